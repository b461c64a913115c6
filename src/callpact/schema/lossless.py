"""Conversions that cannot lose meaning: only where the text or number says exactly that."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_DIGITS = 400
_MAX_TEXT = 10_000_000


def converted(value: Any, kind: str) -> Any:
    """The value as the JSON type `kind`, or the same object where it does not say so exactly."""
    if kind == "integer":
        if type(value) is float and value.is_integer():
            return int(value)
        number = _number(value)
        return int(number) if type(number) is int or _is_whole(number) else value
    if kind == "number":
        number = _number(value)
        return value if number is None else number
    if kind == "boolean" and isinstance(value, str):
        return {"true": True, "false": False}.get(value, value)
    if kind in ("object", "array") and isinstance(value, str) and len(value) <= _MAX_TEXT:
        return _parsed(value, dict if kind == "object" else list)
    return value


def _is_whole(number: Any) -> bool:
    return type(number) is float and number.is_integer()


def _number(value: Any) -> int | float | None:
    if not isinstance(value, str) or len(value) > _MAX_DIGITS or not _NUMBER.fullmatch(value):
        return None
    if value.lstrip("-").isdigit():
        return int(value)
    number = float(value)
    try:
        exact = Decimal(value) == Decimal(repr(number))
    except InvalidOperation:  # Infinity: the text says more than a double can hold.
        return None
    return number if exact else None


def _parsed(text: str, kind: type) -> Any:
    if not text.lstrip()[:1] == ("{" if kind is dict else "["):
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
