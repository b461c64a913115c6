"""The data of results and failures as JSON text that can be sent; raises nothing.

JSON goes out whole, however much it is. What a handler puts into the details of its errors need not
be JSON: there, other values become their Python form, a lone surrogate the replacement
character, and endless values are cut.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, cast

import orjson

from callpact.schema import is_json

_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DEPTH = 100
_MAX_PARTS = 5_000
_MAX_SHOWN = 200
_MAX_BITS = 14_000  # Python refuses to write integers of more than 4,300 digits.


def json_text(value: Any, *, indent: bool = False) -> str:
    """JSON, on one line or indented."""
    option = orjson.OPT_INDENT_2 if indent else None
    try:
        return orjson.dumps(value, option=option).decode()
    except TypeError:
        plain = _plain(value)
    separators = None if indent else (",", ":")
    return json.dumps(plain, indent=2 if indent else None, separators=separators)


def sendable(value: Any) -> Any:
    """The same value if every encoder and every reader takes it, else a copy that they take."""
    if not is_json(value):
        return _beginning(value)
    try:
        orjson.dumps(value)
    except TypeError:  # Integers beyond 64 bits, and keys that are members of enums.
        return _whole(value)
    return value


def _plain(value: Any) -> Any:
    return _whole(value) if is_json(value) else _beginning(value)


def _whole(value: Any) -> Any:
    """A copy of JSON, which goes nowhere round, and not too deep."""
    return _Copy(math.inf).of(value, math.inf)


def _beginning(value: Any) -> Any:
    return _Copy(_MAX_PARTS).of(value, _MAX_DEPTH)


class _Copy:
    """One copy in the making: it stops at circles, at a depth, and at a number of parts."""

    def __init__(self, parts: float) -> None:
        self._left = parts
        self._above: set[int] = set()

    def of(self, value: Any, depth: float) -> Any:
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, Mapping | list | tuple):
            return self._structure(value, depth)  # pyright: ignore[reportUnknownArgumentType] - of anything
        if isinstance(value, float) and not math.isfinite(value):
            return None
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            return f"an integer of {value.bit_length()} bits"
        if isinstance(value, str):
            return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
        if value is None or isinstance(value, bool | int | float):
            return value
        return _shown(value)

    def _structure(self, value: object, depth: float) -> Any:
        self._left -= 1
        place = id(value)
        if not depth or self._left < 0 or place in self._above:
            return "…"
        self._above.add(place)
        try:
            if isinstance(value, Mapping):
                held = cast("Mapping[Any, Any]", value).items()
                return {_key(key): self.of(item, depth - 1) for key, item in held}
            return [self.of(item, depth - 1) for item in cast("list[Any]", value)]
        finally:
            self._above.discard(place)


def _key(key: Any) -> str:
    key = key.value if isinstance(key, Enum) else key
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", key if isinstance(key, str) else _shown(key))


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - boundary: whatever a handler left in its error
        text = f"<{type(value).__name__}>"
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text[:_MAX_SHOWN])
