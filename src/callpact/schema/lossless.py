"""Conversions that cannot lose meaning: only where the text or number says exactly that."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_DIGITS = 400
_MAX_TEXT = 10_000_000
_LEAST, _MOST = -(2**63), 2**64 - 1
"""The integers that every JSON writer of ours can write."""


def converted(value: Any, kind: str) -> Any:
    """The value as the JSON type `kind`, or the same object where it does not say so exactly."""
    if kind == "integer":
        number = value if type(value) is float else _number(value)
        return value if number is None else _whole(number, value)
    if kind == "number":
        number = _number(value)
        return value if number is None else number
    if kind == "boolean" and isinstance(value, str):
        return {"true": True, "false": False}.get(value, value)
    if kind in ("object", "array") and isinstance(value, str) and len(value) <= _MAX_TEXT:
        return _parsed(value, "{" if kind == "object" else "[")
    return value


def _whole(number: float, otherwise: Any) -> Any:
    if isinstance(number, int):
        return number
    if number.is_integer() and _LEAST <= number <= _MOST:
        return int(number)
    return otherwise


def _number(value: Any) -> int | float | None:
    if not isinstance(value, str) or len(value) > _MAX_DIGITS or not _NUMBER.fullmatch(value):
        return None
    if value.lstrip("-").isdigit():
        number = int(value)
        return number if _LEAST <= number <= _MOST else None
    number = float(value)
    try:
        return number if Decimal(value) == Decimal(repr(number)) else None
    except InvalidOperation:  # An exponent beyond what even a decimal holds.
        return None


def _parsed(text: str, opening: str) -> Any:
    if not text.lstrip(" \t\r\n").startswith(opening):
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
