"""Strict JSON (RFC 8259), read by compiled code: a whole text, or a span of a broken one.

The decoders report neither duplicate keys nor numbers beyond a double. Encoding the value again and
counting colons and nulls detects both, at a fraction of the cost of a hook.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn, cast

import msgspec
import orjson

from callpact.jsonreader.reading import (
    CUT_FINISHES,
    MAX_DEPTH,
    MAX_TEXT,
    ReadBudget,
    Unreadable,
    truncation,
)
from callpact.schema.bounds import with_room
from callpact.schema.integers import MOST_EXACT

NOTHING: Any = object()
"""No value, because None is the value of null."""

_SPARE = (
    254 - MAX_DEPTH
)  # orjson writes 254 levels: inside this many lists it refuses a value that is too deep.
_SHORT = 4_000  # Characters up to which counting brackets costs less than those lists.


class _Doubled(Exception):
    """An object has a duplicate key."""


def number_of(digits: str) -> float:
    """Convert digits with a fraction or an exponent to a number.

    Digits with a zero fraction that a float would round are converted to an integer.

    Raises:
        ValueError: the number is larger than a float can hold.
    """
    number = float(digits)
    if math.isinf(number):
        raise ValueError("Expected a number that a double can hold")
    if MOST_EXACT < abs(number) < _MOST_BITS and (whole := _WHOLE.fullmatch(digits)):
        exact = int(whole[1])
        return number if number == exact else exact
    return number


_MOST_BITS = 2.0**64
_WHOLE = re.compile(r"([+-]?\d+)\.0*")
_VAST = re.compile(r"\d{16}\.|\d{17}")
"""Digits of an integer that a float may round."""
_DIGITS = bytes(48 if chr(code).isdigit() and code < 128 else 32 for code in range(256))
_VAST_RUN = b"0" * 16
_exact_floats = msgspec.json.Decoder(float_hook=number_of)


def _has_vast(text: str) -> bool:
    """True for a text with such digits; most texts are ruled out without the slower pattern."""
    digits = text.encode("utf-8", "surrogatepass").translate(_DIGITS)
    return _VAST_RUN in digits and _VAST.search(text) is not None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"Expected JSON, got {name}, which JSON does not have")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) != len(pairs):
        raise _Doubled
    return held


_PLAIN = json.JSONDecoder(parse_float=number_of)
_STRICT = json.JSONDecoder(parse_constant=_no_constant, parse_float=number_of)
_EXACT = json.JSONDecoder(
    parse_constant=_no_constant, parse_float=number_of, object_pairs_hook=_unique
)


def read_strict(text: str, *, finish: str | None = None) -> Any:
    """Read strict JSON without NaN and Infinity; of duplicate keys the last counts, as in JavaScript.

    `finish` is the reason why the model stopped, as for `read_json`.

    Raises:
        Unreadable: the text is not JSON, is truncated, is too long, or nests too deep.
    """
    bounded(text)
    value = _decoded(text)
    if value is NOTHING:
        value = _with_place(text, finish)
    check_depth(value, text)
    if finish in CUT_FINISHES and not is_closed(value):
        raise truncation(text, len(text), finish)
    return value


def is_closed(value: Any) -> bool:
    """False for a number, which may lack digits if the text was cut off."""
    return isinstance(value, dict | list | str | bool) or value is None


def is_cut(text: str, at: int, budget: ReadBudget) -> bool:
    """True if the text from a position on is valid JSON that is cut off by the end of the text."""
    if budget.scans <= 0:
        return False
    try:
        _PLAIN.raw_decode(text, at)
    except json.JSONDecodeError as error:
        budget.scans -= error.pos - at + error.pos // 8
        return _ends_within(text, error)
    except (ValueError, RecursionError):
        return False
    return False


def _ends_within(text: str, error: json.JSONDecodeError) -> bool:
    """True if a decoder failed because the text ended."""
    if error.msg.startswith("Unterminated string"):
        return True
    if error.msg.startswith("Extra data"):
        return False
    rest = _REST.match(text, error.pos)
    return rest is not None and (
        rest[1] in _HALVES or _CUT_CODE.search(text, max(len(text) - 6, 0)) is not None
    )


_REST = re.compile(r"([^ \t\r\n]{0,9}+)[ \t\r\n]*+\Z")
_CUT_CODE = re.compile(r"\\u[0-9a-fA-F]{0,3}\Z")
_HALVES = frozenset(
    ["", ".", "e", "E", "e+", "e-", "E+", "E-"]
    + [
        word[:end]
        for word in ("true", "false", "null", "-Infinity", "NaN")
        for end in range(1, len(word))
    ]
)
"""Incomplete literals and number endings at which a decoder fails."""


def read_clean(text: str) -> Any:
    """Read a text that is JSON without duplicate keys; `NOTHING` if it is not."""
    value = _decoded(text)
    if value is NOTHING:
        if not _may_hold_surrogates(text):
            return NOTHING
    elif not isinstance(value, dict | list) or _is_whole(value, text):
        return cast("Any", value)
    try:
        value = _EXACT.decode(text)
    except (ValueError, RecursionError, _Doubled):
        return NOTHING
    check_depth(value, text)
    return value


def read_span(text: str, at: int) -> tuple[Any, int]:
    """Return the valid value at a position and its end, or `NOTHING` and where the decoder failed."""
    try:
        value, end = _PLAIN.raw_decode(text, at)
        if not _is_faithful(value, text, at, end):
            value, end = _EXACT.raw_decode(text, at)
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
    """Return the error for a value that nests deeper than `MAX_DEPTH`."""
    message = f"Expected at most {MAX_DEPTH} levels of objects and lists; the text nests deeper"
    return Unreadable("too_deep", message, text, at)


def check_depth(value: Any, text: str) -> None:
    """Refuse a value that nests deeper than `MAX_DEPTH`."""
    if not isinstance(value, dict | list) or _written(cast("Any", value), _SPARE):
        return
    layer: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in layer:
            below.extend(cast("dict[str, Any]", item).values() if isinstance(item, dict) else item)
        layer = [item for item in below if isinstance(item, dict | list)]
        if not layer:
            return
    raise too_deep(text, 0)


def written(value: Any) -> bytes | str:
    """Encode a value canonically; 1, 1.0 and true differ."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(value, sort_keys=True)


def _decoded(text: str) -> Any:
    decode = _exact_floats.decode if _has_vast(text) else msgspec.json.decode
    try:
        return with_room(lambda: decode(text))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return NOTHING


def _with_place(text: str, finish: str | None) -> Any:
    """Read text that msgspec refuses because of lone surrogates, or raise the error with its position."""
    try:
        return _STRICT.decode(text)
    except json.JSONDecodeError as error:
        if finish in CUT_FINISHES or (text.strip() and _ends_within(text, error)):
            raise truncation(text, len(text), finish) from None
        raise Unreadable("not_json", f"Not JSON: {error.msg}", text, error.pos) from None
    except RecursionError:
        raise too_deep(text, 0) from None
    except ValueError as error:
        message = str(error) if str(error).startswith("Expected") else "Expected a shorter number"
        raise Unreadable("not_json", f"Not JSON: {message}", text, 0) from None


def _written(value: Any, spare: int) -> bytes | None:
    """Encode a value inside `spare` nested lists; None if orjson refuses it."""
    for _ in range(spare):
        value = [value]
    try:
        return orjson.dumps(value)
    except TypeError:
        return None


def _is_whole(value: Any, text: str) -> bool:
    """True if the value certainly has all members of the text and is not too deep."""
    is_flat = len(text) < _SHORT and text.count("[") + text.count("{") <= MAX_DEPTH
    written = _written(value, 0 if is_flat else _SPARE)
    return (
        written is not None
        and written.count(b":") == text.count(":")
        and "\\u00" not in text  # An escape may be a colon.
    )


def _is_faithful(value: Any, text: str, at: int, end: int) -> bool:
    """True if the value certainly has all members of a span, and all numbers are finite."""
    written = _written(value, 0)
    return (
        written is not None
        and written.count(b":") == text.count(":", at, end)
        and written.count(b"null") == text.count("null", at, end)
        and text.find("\\u00", at, end) < 0
    )


def _may_hold_surrogates(text: str) -> bool:
    """True if lone surrogates may be the reason why msgspec refused a text."""
    if text[:1] not in {"{", "[", '"', " ", "\t", "\r", "\n"}:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return "\\ud" in text or "\\uD" in text
