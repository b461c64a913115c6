"""Parameters in the text of a request: every style and explode, as the OpenAPI tables have them.

RFC 6570 expansion for paths, queries and cookies; headers and cookies of the style `cookie` are not
percent-encoded. A value that contains a delimiter which its style cannot escape is refused, so that
a server that follows the tables reads back exactly the arguments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
import orjson

from callpact.errors import InvalidInput, Issue
from callpact.schema import is_array, is_object
from callpact.sources.openapi.operations import Style, WireParameter

MAX_PAIRS = 10_000
"""Pairs of name and value that one argument may become in a query, form or cookie."""

_TRIPLE = re.compile(r"(%[0-9A-Fa-f]{2})")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_NOT_IN_HEADERS = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
_NOT_IN_COOKIES = re.compile(r"[^\x21\x23-\x3a\x3c-\x5b\x5d-\x7e]")
_JSON = re.compile(r"(?:application|text)/(?:[\w.-]+\+)?json\b|\w+/[\w.-]+\+json\b")
# Reserved characters that `allowReserved` keeps; the others would end or split the place.
_KEPT_IN_PATH = "!$&'()*+,;=:@"
_KEPT_IN_QUERY = "!$'()*,;:@/?"
_KEPT_IN_COOKIE = "!#$&'()*+:=?@/[]"
_MAX_EXACT = 2**53


class _Syntax(NamedTuple):
    """An operator of RFC 6570, or a style that is written like one."""

    first: str = ""
    separator: str = "&"
    is_named: bool = True
    empty: str = "="
    """The text between a name and an empty value."""
    delimiter: str = ","
    """Between the items of a value that is not exploded."""
    clash: str = ""
    """The character that no item may contain: the delimiter itself, which has no escape."""


_SYNTAXES: Mapping[Style, _Syntax] = {
    "matrix": _Syntax(first=";", separator=";", empty=""),
    "label": _Syntax(first=".", separator=".", is_named=False),
    "simple": _Syntax(separator=",", is_named=False),
    "form": _Syntax(),
    "spaceDelimited": _Syntax(delimiter="%20", clash=" "),
    "pipeDelimited": _Syntax(delimiter="%7C", clash="|"),
    "tabDelimited": _Syntax(delimiter="%09", clash="\t"),
    "cookie": _Syntax(separator="; "),
}


class Pair(NamedTuple):
    """A name and a value of a query, form or cookie, both encoded."""

    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


def path_text(parameter: WireParameter, value: Any) -> str:
    """The text of a path parameter, with the delimiter that its style begins with."""
    if parameter.content_type is not None:
        return _percent(content_text(parameter.content_type, value), parameter, "")
    syntax = _SYNTAXES[parameter.style]
    name = _percent(parameter.name, parameter, "")
    is_scalar = not (is_array(value) or is_object(value))
    kept = _KEPT_IN_PATH if parameter.allow_reserved else ""
    # Delimiters within items are encoded also where reserved characters are kept.
    kept = kept if is_scalar and parameter.style == "simple" else _without(kept, ",;=")
    # RFC 6570 does not encode the full stop, which is the delimiter of exploded labels.
    hides_stops = parameter.style == "label" and parameter.explode and not is_scalar

    def encode(text: str) -> str:
        encoded = _percent(text, parameter, kept)
        return encoded.replace(".", "%2E") if hides_stops else encoded

    if _is_undefined(value):
        return syntax.first + (name if syntax.is_named else "")
    return syntax.first + syntax.separator.join(
        _written(syntax, *item) for item in _items(parameter, syntax, name, value, encode)
    )


def query_pairs(parameter: WireParameter, value: Any) -> list[Pair]:
    """The pairs of a query parameter."""
    kept = _KEPT_IN_QUERY if parameter.allow_reserved else ""
    return _pairs(parameter, value, kept, lambda text, keep: _percent(text, parameter, keep))


def form_pairs(parameter: WireParameter, value: Any) -> list[Pair]:
    """The pairs of a property of a form, encoded like WHATWG's application/x-www-form-urlencoded."""
    kept = _KEPT_IN_QUERY if parameter.allow_reserved else ""

    def encode(text: str, keep: str) -> str:
        return _percent(text, parameter, keep).replace("~", "%7E").replace("%20", "+")

    return _pairs(parameter, value, kept, encode)


def cookie_pairs(parameter: WireParameter, value: Any) -> list[Pair]:
    """The pairs of a cookie parameter, which are separated by a semicolon and a space."""
    if parameter.style == "cookie" and parameter.content_type is None:
        return _raw_cookie_pairs(parameter, value)
    kept = _KEPT_IN_COOKIE if parameter.allow_reserved else ""
    return _pairs(parameter, value, kept, lambda text, keep: _percent(text, parameter, keep))


def header_text(parameter: WireParameter, value: Any) -> str:
    """The value of a header parameter, which is not encoded."""
    if parameter.content_type is not None:
        text = content_text(parameter.content_type, value, ascii_only=True)
    elif _is_undefined(value):
        text = ""
    else:
        syntax = _SYNTAXES["simple"]
        if is_object(value) and parameter.explode:
            _check_keys(parameter, value, "a header")
        is_listed = is_array(value) or is_object(value)
        encode = partial(_listed, parameter) if is_listed else str
        items = _items(parameter, syntax, "", value, encode)
        text = ",".join(_written(syntax, *item) for item in items)
    if _NOT_IN_HEADERS.search(text):
        raise unsendable(
            parameter.argument,
            "cannot be sent in a header: it holds a line break, another control character, or a "
            "character that no header can carry",
        )
    if text != text.strip(" \t"):
        raise unsendable(
            parameter.argument, "cannot begin or end with a space: headers do not carry those"
        )
    return text


def content_text(content_type: str, value: Any, *, ascii_only: bool = False) -> str:
    """The text of a value in a media type: JSON, or plain text."""
    if not isinstance(value, str) or _JSON.match(content_type.lower()):
        return json_of(value, ascii_only=ascii_only)
    return value


def is_json_type(content_type: str) -> bool:
    """True for JSON and for every type that ends in `+json`."""
    return _JSON.match(content_type.strip().lower()) is not None


def preference(content_type: str) -> int:
    """The rank of a media type among those of a response: JSON itself, other JSON, the rest."""
    if not is_json_type(content_type):
        return 2
    return 0 if content_type.strip().lower().startswith("application/json") else 1


def json_of(value: Any, *, ascii_only: bool = False) -> str:
    """Compact JSON, of integers of any size.

    Raises:
        InvalidInput: the value holds half a character, or a number that is not finite.
    """
    try:
        if ascii_only:
            return msgspec.json.encode(value).decode().translate(_ASCII)
        return orjson.dumps(value).decode()
    except TypeError:
        return _json_of_large(value)
    except (UnicodeError, RecursionError):
        raise unsendable("", "cannot be written as JSON") from None


def _json_of_large(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, UnicodeError, RecursionError):
        raise unsendable("", "cannot be written as JSON") from None


class _Escapes(dict[int, str]):
    """The escapes of JSON for characters beyond ASCII."""

    def __missing__(self, code: int) -> str:
        if code < 0x80:
            return chr(code)
        units = chr(code).encode("utf-16-be").hex()
        return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


_ASCII = _Escapes()


def scalar_text(value: Any) -> str:
    """A value as text: numbers and booleans as in JSON, an integral number without a fraction."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        if value.is_integer() and abs(value) < _MAX_EXACT:
            return str(int(value))
        if not math.isfinite(value):
            raise unsendable("", "must be a finite number")
    return "" if value is None else json_of(value)


def unsendable(argument: str, why: str) -> InvalidInput:
    """The error for an argument that no request can carry."""
    pointer = f"/{argument.replace('~', '~0').replace('/', '~1')}" if argument else ""
    named = f"Property '{argument}'" if argument else "Input"
    return InvalidInput(lambda: [Issue("unsendable", f"{named} {why}", pointer)])


# --- expansion -------------------------------------------------------------------------------


def _is_undefined(value: Any) -> bool:
    """True for null, and for arrays and objects without members (RFC 6570, section 2.3)."""
    if is_object(value):
        return all(each is None for each in value.values())
    return value is None or value == []


def _written(syntax: _Syntax, name: str | None, text: str) -> str:
    if name is None:
        return text
    return f"{name}={text}" if text else f"{name}{syntax.empty}"


def _items(
    parameter: WireParameter,
    syntax: _Syntax,
    name: str,
    value: Any,
    encode: Callable[[str], str],
) -> list[tuple[str | None, str]]:
    """The encoded items of a value, each with its name where the style writes one."""
    own = name if syntax.is_named else None
    if is_array(value):
        texts = [encode(text) for text in _texts(parameter, syntax, value)]
        if parameter.explode:
            return [(own, text) for text in texts]
        return [(own, syntax.delimiter.join(texts))]
    if is_object(value):
        members = [(encode(k), encode(v)) for k, v in _members(parameter, syntax, value)]
        if parameter.explode:
            return [*members]
        return [(own, syntax.delimiter.join(part for member in members for part in member))]
    return [(own, encode(_scalar(parameter, value)))]


def _texts(parameter: WireParameter, syntax: _Syntax, value: list[Any]) -> Iterator[str]:
    _check_number(parameter, len(value))
    for item in value:
        if item is None:
            raise unsendable(parameter.argument, "cannot hold null: a list in a request has none")
        yield _unclashing(parameter, syntax, _scalar(parameter, item))


def _members(
    parameter: WireParameter, syntax: _Syntax, value: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    _check_number(parameter, len(value))
    for key, member in value.items():
        if member is not None:
            text = _scalar(parameter, member)
            yield _unclashing(parameter, syntax, key), _unclashing(parameter, syntax, text)


def _check_number(parameter: WireParameter, number: int) -> None:
    if number > MAX_PAIRS:
        raise unsendable(parameter.argument, f"has more than {MAX_PAIRS:,} members")


def _unclashing(parameter: WireParameter, syntax: _Syntax, text: str) -> str:
    if syntax.clash and syntax.clash in text and not parameter.explode:
        raise unsendable(
            parameter.argument,
            f"cannot be sent: {text[:60]!r} holds {syntax.clash!r}, which separates its items",
        )
    return text


def _scalar(parameter: WireParameter, value: Any) -> str:
    try:
        return scalar_text(value)
    except InvalidInput as error:
        raise _at(parameter.argument, error) from None


def _at(argument: str, error: InvalidInput) -> InvalidInput:
    return unsendable(argument, error.message.removeprefix("Input "))


def _percent(text: str, parameter: WireParameter, kept: str) -> str:
    """Percent-encode all but unreserved characters; with `kept` also triples stay as they are."""
    try:
        if not kept:
            return quote(text, safe="")
        parts = _TRIPLE.split(text)
        return "".join(
            part if number % 2 else quote(part, safe=kept) for number, part in enumerate(parts)
        )
    except UnicodeEncodeError:
        raise unsendable(parameter.argument, "holds half a character") from None


def _without(kept: str, delimiters: str) -> str:
    return "".join(character for character in kept if character not in delimiters)


def _pairs(
    parameter: WireParameter, value: Any, kept: str, encode: Callable[[str, str], str]
) -> list[Pair]:
    name = encode(parameter.name, "")
    if parameter.content_type is not None:
        text = content_text(parameter.content_type, value)
        return [Pair(name, encode(text, ""))]
    if _is_undefined(value):
        return [Pair(name, "")] if parameter.required else []
    if parameter.style == "deepObject":
        found = list(_deep(parameter, parameter.name, value))
        return [Pair(encode(key, ""), encode(text, kept)) for key, text in found]
    if is_array(value) or is_object(value):
        kept = _without(kept, ",")
    syntax = _SYNTAXES[parameter.style]
    items = _items(parameter, syntax, name, value, lambda text: encode(text, kept))
    return [Pair(key or "", text) for key, text in items]


def _deep(parameter: WireParameter, prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """The pairs of nested objects and arrays: `a[b][c]=1`, `a[0]=1`."""
    stack: list[tuple[str, Any]] = [(prefix, value)]
    number = 0
    while stack:
        name, held = stack.pop()
        if is_object(held):
            nested = [(_bracketed(parameter, name, key), each) for key, each in held.items()]
        elif is_array(held):
            if None in held:
                raise unsendable(
                    parameter.argument, "cannot hold null: a list in a request has none"
                )
            nested = [(f"{name}[{place}]", each) for place, each in enumerate(held)]
        else:
            if held is not None:
                number += 1
                _check_number(parameter, number)
                yield name, _scalar(parameter, held)
            continue
        _check_number(parameter, len(nested))
        stack.extend(reversed(nested))


def _bracketed(parameter: WireParameter, name: str, key: str) -> str:
    if "[" in key or "]" in key:
        raise unsendable(
            parameter.argument, f"cannot be sent: the key {key[:60]!r} holds a bracket"
        )
    return f"{name}[{key}]"


# --- headers and cookies ---------------------------------------------------------------------


def _listed(parameter: WireParameter, text: str) -> str:
    """Refuse a comma within an item of a header, unless the caller has quoted the item."""
    if "," in text and not _QUOTED.fullmatch(text):
        raise unsendable(
            parameter.argument,
            f"cannot be sent in a header: {text[:60]!r} holds a comma; quote the item",
        )
    return text


def _check_keys(parameter: WireParameter, value: Mapping[str, Any], place: str) -> None:
    """Refuse keys that end within a pair `key=value` which is not encoded."""
    for key in value:
        if not key or "=" in key:
            raise unsendable(parameter.argument, f"cannot have the key {key[:60]!r} in {place}")


def _raw_cookie_pairs(parameter: WireParameter, value: Any) -> list[Pair]:
    if _is_undefined(value):
        return [Pair(parameter.name, "")] if parameter.required else []
    is_listed = (is_array(value) or is_object(value)) and not parameter.explode

    def checked(text: str) -> str:
        if _NOT_IN_COOKIES.search(text) or (is_listed and "," in text):
            raise unsendable(
                parameter.argument,
                f"cannot be sent in a cookie: {text[:60]!r} holds a space, a comma, a semicolon, a "
                "quote, a backslash, a control character or a character beyond ASCII; encode it",
            )
        return text

    if is_object(value) and parameter.explode:
        _check_keys(parameter, value, "a cookie")
    items = _items(parameter, _SYNTAXES["cookie"], parameter.name, value, checked)
    return [Pair(name or "", text) for name, text in items]
