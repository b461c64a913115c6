"""Conversions that cannot lose meaning: only where the text or number says exactly that."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from callpact.schema.bounds import with_room
from callpact.schema.integers import MOST_EXACT

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_DIGITS = 400
_MAX_TEXT = 10_000_000
_LEAST, _MOST = -(2**63), 2**64 - 1
"""The integers that every JSON writer of ours can write."""


def converted(value: Any, kind: str) -> Any:
    """The value as the JSON type `kind`, or the same object where it does not say so exactly."""
    if kind == "integer":
        return _whole(value) if type(value) is float else _number(value, is_whole=True)
    if kind == "number":
        return _number(value)
    if kind == "boolean" and isinstance(value, str):
        return {"true": True, "false": False}.get(value, value)
    if kind in ("object", "array") and isinstance(value, str) and len(value) <= _MAX_TEXT:
        return _parsed(value, "{" if kind == "object" else "[")
    return value


def _whole(number: float) -> Any:
    # Beyond, the float may represent another integer.
    return int(number) if abs(number) <= MOST_EXACT and number.is_integer() else number


def _number(value: Any, *, is_whole: bool = False) -> Any:
    """The number that a text says."""
    if not isinstance(value, str) or len(value) > _MAX_DIGITS or not _NUMBER.fullmatch(value):
        return value
    number = float(value)
    if not is_whole and not value.lstrip("-").isdigit():
        return number if _says(value, number) else value
    if not abs(number) < 2 * _MOST:  # Too large for a look at each digit; infinity, too.
        return value
    exact = Decimal(value)
    whole = int(exact)
    return whole if whole == exact and _LEAST <= whole <= _MOST else value


def _says(text: str, number: float) -> bool:
    try:
        return Decimal(text) == Decimal(repr(number))
    except InvalidOperation:  # An exponent beyond what even a decimal holds, or infinity.
        return False


def _parsed(text: str, opening: str) -> Any:
    if not text.lstrip(" \t\r\n").startswith(opening):
        return text
    try:
        return with_room(lambda: msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
