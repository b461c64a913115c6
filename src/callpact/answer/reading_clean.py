"""JSON as RFC 8259 has it, read by compiled code: a whole text, or a span of a broken one.

A double key or a number beyond a double passes unseen through the decoders used here. Writing the
value out again and counting colons and nulls shows both, at a fraction of the cost of a hook.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn, cast

import msgspec
import orjson

from callpact.answer.reading_result import MAX_DEPTH, MAX_TEXT, Unreadable

NOTHING: Any = object()
"""No value, where None is one."""

_WRITER_DEPTH = 254  # Levels that orjson writes.
_SURROGATE = re.compile(r"\\u[dD]|[\ud800-\udfff]")


class _Doubled(Exception):
    """A key stands twice in an object."""


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("Expected a number that a double can hold")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"Expected JSON, got {name}, which JSON does not have")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) != len(pairs):
        raise _Doubled
    return held


_PLAIN = json.JSONDecoder()
_STRICT = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)
_EXACT = json.JSONDecoder(
    parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique
)


def read_strict(text: str) -> Any:
    """Read exactly JSON: no NaN, no Infinity; of a double key the last counts, as in JavaScript.

    Raises:
        Unreadable: the text is not JSON, is too long, or nests too deep.
    """
    bounded(text)
    value = _decoded(text)
    if value is NOTHING:
        value = _with_place(text)
    if not _written(value):
        check_depth(value, text)
    return value


def read_clean(text: str) -> Any:
    """The value of a text that is JSON with no key twice, else `NOTHING`."""
    value = _decoded(text)
    if value is NOTHING:
        if not _SURROGATE.search(text):
            return NOTHING
    elif _faithful(value, text, 0, len(text)):
        return value
    try:
        value = _EXACT.decode(text)
    except (ValueError, RecursionError, _Doubled):
        return NOTHING
    check_depth(value, text)
    return value


def read_span(text: str, at: int) -> tuple[Any, int]:
    """The clean value that begins at a place, and where it ends; or `NOTHING` and where it broke."""
    try:
        value, end = cast("tuple[Any, int]", _PLAIN.raw_decode(text, at))
        if not _faithful(value, text, at, end):
            value, end = cast("tuple[Any, int]", _EXACT.raw_decode(text, at))
    except json.JSONDecodeError as error:
        return NOTHING, error.pos
    except (ValueError, RecursionError, _Doubled):
        return NOTHING, len(text)
    return value, end


def bounded(text: str) -> None:
    """Refuse a text that is longer than `MAX_TEXT`."""
    if len(text) > MAX_TEXT:
        message = f"Expected at most {MAX_TEXT:,} characters, got {len(text):,}"
        raise Unreadable("too_long", message, text, 0)


def too_deep(text: str, at: int) -> Unreadable:
    """The error for a value that nests deeper than `MAX_DEPTH`."""
    message = f"Expected at most {MAX_DEPTH} levels of objects and lists; the text nests deeper"
    return Unreadable("too_deep", message, text, at)


def check_depth(value: Any, text: str) -> None:
    """Refuse a value that nests deeper than `MAX_DEPTH`."""
    layer = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in layer:
            if isinstance(item, dict):
                below.extend(cast("dict[str, Any]", item).values())
            elif isinstance(item, list):
                below.extend(cast("list[Any]", item))
        layer = below
        if not layer:
            return
    raise too_deep(text, 0)


def same(one: Any, other: Any) -> bool:
    """True if two values are the same JSON: 1, 1.0 and true are three."""
    try:
        return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
            other, option=orjson.OPT_SORT_KEYS
        )
    except TypeError:
        return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return NOTHING


def _with_place(text: str) -> Any:
    """Read what msgspec does not: lone surrogates. Else say where the text breaks."""
    try:
        return _STRICT.decode(text)
    except json.JSONDecodeError as error:
        raise Unreadable("not_json", f"Not JSON: {error.msg}", text, error.pos) from None
    except RecursionError:
        raise too_deep(text, 0) from None
    except ValueError as error:
        message = str(error) if str(error).startswith("Expected") else "Expected a shorter number"
        raise Unreadable("not_json", f"Not JSON: {message}", text, 0) from None


def _nested(value: Any) -> Any:
    """The value in as many lists as make orjson refuse what is deeper than `MAX_DEPTH`."""
    for _ in range(_WRITER_DEPTH - MAX_DEPTH):
        value = [value]
    return value


def _written(value: Any) -> bytes | None:
    """The value as bytes, or None if it is too deep or beyond what orjson writes."""
    if not isinstance(value, dict | list):
        return b"0"
    try:
        return orjson.dumps(_nested(value))
    except TypeError:
        return None


def _faithful(value: Any, text: str, at: int, end: int) -> bool:
    """True if it is certain that nothing of the span was lost, and that it is not too deep."""
    if not isinstance(value, dict | list):
        return True
    written = _written(value)
    return (
        written is not None
        and written.count(b":") == text.count(":", at, end)
        and written.count(b"null") == text.count("null", at, end)
        # A colon or a letter of null may hide in an escape.
        and text.find("\\u00", at, end) < 0
    )
