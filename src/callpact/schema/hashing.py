"""Canonical JSON, byte for byte as JavaScript writes it; digests, and the schema hash."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, cast

from callpact.errors import InvalidSchema
from callpact.schema.document import MAX_SCHEMA_DEPTH, pointer
from callpact.schema.json_types import is_object

_EXPONENT = re.compile(r"^(-?)(\d)(?:\.(\d+))?e([+-]\d+)$")


def canonical_json(value: Any) -> str:
    """JSON without white space, keys in UTF-16 order, numbers and strings as JavaScript has them.

    Raises:
        InvalidSchema: the value is not JSON, or nested too deeply.
    """
    return _write(value, [])


def schema_hash(schema: dict[str, Any]) -> str:
    """First eight hex digits of the SHA-256 over the canonical JSON, without its own field."""
    if not isinstance(cast("Any", schema), dict):
        kind = type(schema).__name__
        raise InvalidSchema(f"only an object has a schema hash, got {kind}")
    digest = json_digest({k: v for k, v in schema.items() if k != "schemaHash"})
    return digest.removeprefix("sha256:")[:8]


def json_digest(value: Any) -> str:
    """The digest of the canonical JSON of a value.

    Raises:
        InvalidSchema: the value is not JSON, or nested too deeply.
    """
    return data_digest(canonical_json(value).encode())


def data_digest(data: bytes) -> str:
    """The digest of bytes: `sha256:` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _write(value: Any, path: list[str | int]) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return canonical_string(value)
    if isinstance(value, int | float):
        return _number(value, path)
    if len(path) > MAX_SCHEMA_DEPTH:
        raise InvalidSchema(f"nested deeper than {MAX_SCHEMA_DEPTH} levels", pointer(path[:8]))
    if is_object(value):
        members = cast("dict[Any, Any]", value)
        for key in members:
            if not isinstance(key, str):
                raise InvalidSchema(f"keys must be strings, got {key!r}", pointer(path))
        ordered = sorted(cast("dict[str, Any]", members).items(), key=_utf16)
        return "{" + ",".join(_member(k, v, path) for k, v in ordered) + "}"
    if isinstance(value, list | tuple):
        items = enumerate(cast("list[Any]", value))
        return "[" + ",".join(_write(item, [*path, i]) for i, item in items) + "]"
    raise InvalidSchema(f"{type(value).__name__} is not JSON", pointer(path))


def _member(key: str, value: Any, path: list[str | int]) -> str:
    return f"{canonical_string(key)}:{_write(value, [*path, key])}"


def _utf16(member: tuple[str, Any]) -> bytes:
    return member[0].encode("utf-16-be", "surrogatepass")


_SHORT = {0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0C: "\\f", 0x0D: "\\r"}
_ESCAPES = {
    **{code: f"\\u{code:04x}" for code in (*range(0x20), *range(0xD800, 0xE000))},
    **_SHORT,
    0x22: '\\"',
    0x5C: "\\\\",
}


def canonical_string(text: str) -> str:
    """A text as JavaScript's `JSON.stringify` writes it."""
    return f'"{text.translate(_ESCAPES)}"'


def canonical_number(value: float) -> str:
    """A number as JavaScript writes it."""
    return _number(value, [])


def _number(value: float, path: list[str | int]) -> str:
    if isinstance(value, int):
        if abs(value) < 2**53:
            return str(int(value))
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
    if not math.isfinite(value):
        raise InvalidSchema(f"{value!r} is not a JSON number", pointer(path))
    if value == 0:
        return "0"
    if value.is_integer() and abs(value) < 1e21:
        return _integer(value)
    text = json.dumps(value)
    match = _EXPONENT.match(text)
    if match is None:
        return text
    sign, first, rest, exponent = match.groups()
    power = int(exponent)
    if -7 < power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{first}{rest or ''}"
    digits = f"{first}.{rest}" if rest else first
    return f"{sign}{digits}e{'+' if power > 0 else '-'}{abs(power)}"


def _integer(value: float) -> str:
    """JavaScript writes the shortest digits that name the double, then zeros."""
    text = repr(value)
    if "e" not in text:
        return text[:-2]
    mantissa, exponent = text.split("e")
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "")
    return sign + digits.ljust(int(exponent) + 1, "0")
