"""What a result or a failure holds as JSON that can be sent; never an exception.

Results are JSON already, but for lone surrogates, which are told by the replacement character. What
a handler puts into the details of its errors need not be JSON: there, what JSON cannot say is told
as Python would show it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, cast

import orjson

_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DEPTH = 200
_MAX_SHOWN = 200
_MAX_BITS = 14_000  # Python refuses to write integers of more than 4,300 digits.


def json_text(value: Any, *, indent: bool = False) -> str:
    """JSON, on one line or indented."""
    option = orjson.OPT_INDENT_2 if indent else None
    try:
        return orjson.dumps(value, option=option).decode()
    except TypeError:
        plain = _plain(value, _MAX_DEPTH)
    separators = None if indent else (",", ":")
    return json.dumps(plain, indent=2 if indent else None, separators=separators)


def sendable(value: Any) -> Any:
    """The same value if every encoder takes it, else a copy that they take."""
    try:
        orjson.dumps(value)
    except TypeError:  # Integers beyond 64 bits, lone surrogates, and what is not JSON at all.
        return _plain(value, _MAX_DEPTH)
    return value


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str):
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth and isinstance(value, Mapping):
        held = cast("Mapping[Any, Any]", value).items()
        return {
            _plain(key if isinstance(key, str) else repr(key), 0): _plain(item, depth - 1)
            for key, item in held
        }
    if depth and isinstance(value, list | tuple):
        return [_plain(item, depth - 1) for item in cast("list[Any]", value)]
    return repr(value)[:_MAX_SHOWN]
