"""The request of a FlowMCP tool: planned once, drafted per call, sealed with the secrets last.

A draft holds a placeholder for every secret, so that a hook or a log never sees one. `seal` puts
the secrets in when the request is sent. Placeholders are random and made per call: no argument can
contain one, even if a hook of another call has leaked its own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from msgspec import UNSET, Struct
from msgspec.structs import replace

from callpact.errors import InvalidInput, InvalidSchema, Issue
from callpact.net import Request
from callpact.net.path_steps import holds_step
from callpact.secrets.masker import (
    MASK,
    Masker,
)
from callpact.sources.flowmcp.read.hit import (
    items,
    members,
)
from callpact.sources.flowmcp.read.literal_parser import (
    stringify,
)
from callpact.sources.flowmcp.read.parameters import (
    Parameter,
    ValuePart,
    read_parts,
)

# Characters that no encoding changes. Used in plans only; no hook and no caller ever sees it.
_SLOT = f"callpact-slot-{os.urandom(8).hex()}-"
_SLOTS = re.compile(rf"{_SLOT}([A-Za-z0-9_]+)-end")
_DIGEST = (
    r"(?P<kind>hash|hmac)-(?P<algorithm>md5|sha1|sha224|sha256|sha384|sha512)"
    r"-(?P<encoding>hex|base64|base64url)-(?P<message>[0-9a-f]*)-(?P<key>[0-9a-f]*)"
)
"""The placeholder of a digest of a key, between the mark of the host and its end.

A hook sees a placeholder instead of a key, so it would hash the placeholder. `node_crypto.js`
therefore returns a placeholder for the digest: `hash` or `hmac`, the algorithm, the encoding, and
the message and the key in hex. The host computes the digest when the request is sent.
"""
_PLACEHOLDER = re.compile(rf"callpact-secret-([0-9a-f]{{16}})-(?:([A-Za-z0-9_]+)|{_DIGEST})-end")
"""The placeholder of a key, or of a digest of a key, that a hook sees."""
_WORDS = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}|\{([A-Za-z_]\w*)\}|:([A-Za-z_]\w*)")
_BODIED = frozenset({"POST", "PUT"})
_MIN_CREDENTIAL = 4  # Characters of a key that a redirect is searched for.
_REST = re.compile(r"[^/?#]*")


class Placeholders:
    """Random texts in place of the keys of a file, for one call."""

    __slots__ = ("_code", "_mark")

    def __init__(self) -> None:
        self._code = os.urandom(8).hex()
        self._mark = f"callpact-secret-{self._code}-"

    def of(self, name: str) -> str:
        """The placeholder of a key."""
        return f"{self._mark}{name}-end"

    def fill(self, template: str) -> str:
        """A text of a plan with the placeholders of this call."""
        return template.replace(_SLOT, self._mark)

    def is_in(self, text: str) -> bool:
        """True if a text holds one of them."""
        return self._mark in text

    def replaced(
        self, text: str, value: Callable[[str], str], written: Callable[[str], str] = str
    ) -> str:
        """A text with the value of each key, or of a digest of it, in place of its placeholder.

        `written` encodes each value.
        """

        def raw(match: re.Match[str]) -> str:
            return _digest(match, hashed) if match[2] is None else value(match[2])

        def hashed(part: str) -> str:
            return self._each(part, lambda match: _bytewise(raw(match)))

        return self._each(text, lambda match: written(raw(match)))

    def shown(self, text: str) -> str:
        """A text with placeholders replaced by the names of keys; a cut-off one becomes a mask."""
        return self._each(text, _named).replace(self._mark, MASK)

    def _each(self, text: str, written: Callable[[re.Match[str]], str]) -> str:
        if self._mark not in text:
            return text
        return _PLACEHOLDER.sub(
            lambda match: written(match) if match[1] == self._code else match[0], text
        )


def _bytewise(text: str) -> str:
    """One character for each byte of a text in UTF-8."""
    return text.encode().decode("latin-1")


def _digest(match: re.Match[str], fill: Callable[[str], str]) -> str:
    """Compute the digest of a placeholder; `fill` replaces the placeholders of keys in a text."""
    message, key = (_digested(match[part], fill) for part in ("message", "key"))
    algorithm = match["algorithm"]
    if match["kind"] == "hmac":
        made = hmac.digest(key, message, algorithm)
    else:
        made = hashlib.new(algorithm, message, usedforsecurity=False).digest()
    match match["encoding"]:
        case "hex":
            return made.hex()
        case "base64":
            return base64.b64encode(made).decode()
        case _:
            return base64.urlsafe_b64encode(made).decode().rstrip("=")


def _digested(digits: str, fill: Callable[[str], str]) -> bytes:
    """The bytes with placeholders replaced by keys; an odd digit at the end is dropped."""
    data = bytes.fromhex(digits[: len(digits) // 2 * 2])
    # Placeholders are ASCII; keys are hashed in UTF-8, as JavaScript does.
    return fill(data.decode("latin-1")).encode("latin-1")


def _named(match: re.Match[str]) -> str:
    if match[2] is None:
        return f"{{{{{match['kind']}:{match['algorithm']}}}}}"
    return f"{{{{SERVER_PARAM:{match[2]}}}}}"


class RequestDraft(Struct, frozen=True):
    """A request without its secrets: the `struct` of seed 002."""

    method: str
    url: str
    headers: dict[str, str]
    body: Any = None
    is_raw: bool = False
    """True if the body is text or bytes, to be sent as it is; otherwise it is JSON data."""


@dataclass(frozen=True, slots=True)
class _Insert:
    parameter: Parameter
    is_segment: bool
    is_in_query: bool
    argument: str | None
    """The argument that is the value, where it is just that."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A parameter in the query, with the parts that are known before any call."""

    parameter: Parameter
    begin: str
    """The encoded key with its `=`; for a fixed value, followed by the value."""
    argument: str | None
    """The argument that is the value, where it is just that."""
    is_fixed: bool


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """The plan that turns a tool's arguments into a request; made once."""

    method: str
    path: tuple[str | _Insert, ...]
    """The address with its inserts, and slots for secrets."""
    parameters: tuple[Parameter, ...]
    headers: dict[str, str]
    defaults: dict[str, Any]
    secrets: frozenset[str]
    """Names of the secrets that a request of this tool carries."""
    known_secrets: tuple[str, ...]
    """Names of all secrets that the file declares."""
    query: tuple[_Pair, ...] = field(init=False)
    body: tuple[Parameter, ...] = field(init=False)

    def __post_init__(self) -> None:
        fill = object.__setattr__
        fill(self, "query", tuple(_pair(p) for p in self.parameters if p.location == "query"))
        fill(self, "body", tuple(p for p in self.parameters if p.location == "body"))

    def draft(self, arguments: Mapping[str, Any], marks: Placeholders) -> RequestDraft:
        """The request for these arguments, which passed the gate.

        Raises:
            InvalidInput: a value would change the structure of the path.
        """
        values = {**self.defaults, **arguments} if self.defaults else arguments
        url, headers = self._address(values, marks), self.headers
        if self.query:
            pairs = self._pairs(values, marks)
            if pairs:
                url += _joint(url) + "&".join(pairs)
        if self.secrets:
            headers = {name: marks.fill(text) for name, text in headers.items()}
        if self.method not in _BODIED:
            return RequestDraft(self.method, url, headers)
        found = ((parameter.key, _filled(parameter, values, marks)) for parameter in self.body)
        body = {key: value for key, value in found if value is not _ABSENT}
        return RequestDraft(self.method, url, headers, body)

    def _pairs(self, values: Mapping[str, Any], marks: Placeholders) -> list[str]:
        pairs: list[str] = []
        for pair in self.query:
            if pair.is_fixed:
                pairs.append(marks.fill(pair.begin))
                continue
            argument = pair.argument
            if argument is None:
                value = _filled(pair.parameter, values, marks)
            else:
                value = values.get(argument, _ABSENT)
            if value is not _ABSENT:
                pairs.append(pair.begin + _form(value if type(value) is str else as_text(value)))
        return pairs

    def _address(self, values: Mapping[str, Any], marks: Placeholders) -> str:
        if len(self.path) == 1 and isinstance(self.path[0], str):
            return marks.fill(self.path[0])
        made: list[str] = []
        for piece in self.path:
            if isinstance(piece, str):
                made.append(marks.fill(piece))
                continue
            value = values.get(piece.argument) if piece.argument is not None else None
            if type(value) is str and value.isascii() and value.isalnum():  # As most are.
                made.append(value)
                continue
            text = _insert(piece, values, marks)
            if text is None and piece.is_segment and made and made[-1].endswith("/"):
                made[-1] = made[-1][:-1]  # An optional part of the path that was left out.
            made.append(text or "")
        address = "".join(made)
        if "/." in address or "%" in address or address.find("//", 8) >= 0:
            self._check_segments(made, address)
        return address

    def _check_segments(self, made: list[str], address: str) -> None:
        """Refuse inserts that make a path segment empty, `.` or `..`, alone or together."""
        end = 0
        for piece, part in zip(self.path, made, strict=True):
            begin, end = end, end + len(part)
            if isinstance(piece, str) or piece.is_in_query:
                continue
            before, after = address[:begin].rpartition("/")[2], _REST.match(address, begin)
            segment = before + (after[0] if after else "")
            if not segment and not piece.is_segment:
                raise _misplaced(piece.parameter.key, "must not be empty: it is a part of the path")
            if holds_step(segment):
                raise _misplaced(
                    piece.parameter.key, "must not be a step of the path, as '.' and '..' are"
                )


def _pair(parameter: Parameter) -> _Pair:
    begin = f"{_form(parameter.key)}="
    if not parameter.inputs:
        return _Pair(parameter, begin + _form(_slotted(parameter.parts)), None, is_fixed=True)
    return _Pair(parameter, begin, parameter.argument, is_fixed=False)


_ABSENT: Any = object()


def _joint(url: str) -> str:
    """The separator between an address and the query that is appended."""
    if "?" not in url:
        return "?"
    return "" if url[-1] in "?&" else "&"


def plan_request(
    main: Mapping[str, Any], tool: Mapping[str, Any], parameters: tuple[Parameter, ...]
) -> RequestPlan:
    """Plan the request of a tool whose declaration passed the rules."""
    secrets: frozenset[str] = frozenset(main.get("requiredServerParams", ()))
    inserts = {p.key: p for p in parameters if p.location == "insert"}
    headers = {
        name: _slotted(read_parts(as_text(value), secrets, name))
        for name, value in _headers(main, tool)
    }
    if tool["method"] in _BODIED and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = "application/json"
    path = _planned(f"{main.get('root', '')}{tool['path']}", secrets, inserts)
    used = {part.text for p in parameters for part in p.parts if part.kind == "server"}
    texts = [*headers.values(), *(piece for piece in path if isinstance(piece, str))]
    used |= {name for text in texts for name in _SLOTS.findall(text)}
    given = [item for parameter in parameters for item in parameter.inputs]
    defaults = {item.name: item.default for item in given if item.default is not UNSET}
    return RequestPlan(
        tool["method"], path, parameters, headers, defaults, frozenset(used), tuple(sorted(secrets))
    )


def _headers(main: Mapping[str, Any], tool: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """The headers of the file, overridden by those of the tool; names ignore case."""
    found: dict[str, tuple[str, Any]] = {}
    for declared in (main, tool):
        for name, value in declared.get("headers", {}).items():
            found[name.lower()] = (name, value)
    return found.values()


def _planned(
    url: str, secrets: frozenset[str], inserts: Mapping[str, Parameter]
) -> tuple[str | _Insert, ...]:
    pieces: list[str | _Insert] = []
    end = 0
    start = url.find("/", url.find("://") + 3) if "://" in url else 0
    for match in _WORDS.finditer(url):
        name = match[1] or match[2] or match[3]
        parameter = inserts.get(name) if match.start() >= start >= 0 else None
        is_secret = match[1] is not None and (name in secrets or name.startswith("SERVER_PARAM:"))
        if parameter is None and not is_secret:
            continue  # `:80`, `{…}` in the API's own syntax, or a placeholder for a hook.
        pieces.append(url[end : match.start()])
        end = match.end()
        if parameter is not None:
            around = url[match.start() - 1 : match.start()], url[end : end + 1]
            is_segment = around[0] == "/" and around[1] in {"", "/", "?"}
            is_in_query = "?" in url[: match.start()] or "#" in url[: match.start()]
            pieces.append(_Insert(parameter, is_segment, is_in_query, parameter.argument))
        else:
            pieces.append(_slot(name.removeprefix("SERVER_PARAM:").strip()))
    pieces.append(url[end:])
    return _merged(pieces)


def _merged(pieces: Iterable[str | _Insert]) -> tuple[str | _Insert, ...]:
    merged: list[str | _Insert] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        elif piece != "":
            merged.append(piece)
    return tuple(merged)


def _slot(name: str) -> str:
    return f"{_SLOT}{name}-end"


def _slotted(parts: Iterable[ValuePart]) -> str:
    return "".join(_slot(part.text) if part.kind == "server" else part.text for part in parts)


def _filled(parameter: Parameter, values: Mapping[str, Any], marks: Placeholders) -> Any:
    """The value of a parameter; absent if the caller left out an optional argument."""
    if any(given.name not in values for given in parameter.inputs):
        return _ABSENT
    if parameter.argument is not None:
        return values[parameter.argument]
    return "".join(_filled_part(part, values, marks) for part in parameter.parts)


def _filled_part(part: ValuePart, values: Mapping[str, Any], marks: Placeholders) -> str:
    if part.kind == "user":
        return as_text(values[part.text])
    return marks.of(part.text) if part.kind == "server" else part.text


def _insert(insert: _Insert, values: Mapping[str, Any], marks: Placeholders) -> str | None:
    parameter, argument = insert.parameter, insert.argument
    value = _filled(parameter, values, marks) if argument is None else values.get(argument, _ABSENT)
    if value is _ABSENT:
        return None
    encode = _component if insert.is_in_query else _path_part
    if isinstance(value, list):
        encoded = (encode(as_text(item)) for item in items(value))
        text = ",".join(item.replace(",", "%2C") for item in encoded)
    else:
        text = encode(as_text(value))
    if not text and parameter.inputs and insert.is_segment:
        raise _misplaced(parameter.key, "must not be empty: it is a part of the path")
    return text


def _misplaced(key: str, text: str) -> InvalidInput:
    path = "/" + key.replace("~", "~0").replace("/", "~1")
    return InvalidInput(lambda: [Issue("path", f"Property '{key}' {text}", path)])


_is_plain = re.compile(r"[A-Za-z0-9_.-]*+").fullmatch
_is_plain_form = re.compile(r"[A-Za-z0-9_.* -]*+").fullmatch
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
_IN_COMPONENT = [
    chr(code) if code in _LETTERS or code in b"~!*'()" else f"%{code:02X}" for code in range(256)
]
_IN_PATH = [
    chr(code) if code in _LETTERS or code in b"~!$&'()*+,;=:@" else f"%{code:02X}"
    for code in range(256)
]
_IN_FORM = [
    chr(code) if code in _LETTERS or code in b"*" else f"%{code:02X}" for code in range(256)
]
_IN_FORM[0x20] = "+"


def _component(text: str) -> str:
    """Encode like JavaScript's `encodeURIComponent`."""
    if _is_plain(text):
        return text
    return "".join([_IN_COMPONENT[byte] for byte in text.encode("utf-8", "replace")])


def _path_part(text: str) -> str:
    """Encode a segment of a path: characters that RFC 3986 allows there stay."""
    if _is_plain(text):
        return text
    return "".join([_IN_PATH[byte] for byte in text.encode("utf-8", "replace")])


def _form(text: str) -> str:
    """Encode like JavaScript's `URLSearchParams`."""
    if _is_plain_form(text):
        return text.replace(" ", "+")
    return "".join([_IN_FORM[byte] for byte in text.encode("utf-8", "replace")])


def as_text(value: Any) -> str:
    """A value in a URL: numbers and booleans as in JavaScript, lists joined by commas."""
    if isinstance(value, str):
        return value
    if type(value) is int and -(2**53) < value < 2**53:
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(as_text(item) for item in items(value))
    return "" if value is None else _written(value)


def _written(value: Any) -> str:
    try:
        return stringify(value)
    except InvalidSchema:  # JSON allows such numbers, but no upstream can read them.
        text = "Input holds a number that is too large to be sent"
        raise InvalidInput(lambda: [Issue("maximum", text)]) from None


def unsealed(draft: RequestDraft) -> Request:
    """The request of a file that has no secrets."""
    return Request(draft.method, draft.url, draft.headers.copy(), _body(draft))


class Sealed(NamedTuple):
    """A request with its secrets, and their names."""

    request: Request
    names: frozenset[str]


def seal(draft: RequestDraft, marks: Placeholders, key: Callable[[str], str]) -> Sealed:
    """The request to send, with this call's placeholders replaced by secrets.

    `key` returns the value of a key, and raises for one that may not be used.
    """
    body, headers = _body(draft), draft.headers
    has_secret_body = body is not None and marks.is_in(body.decode("latin-1"))
    if not has_secret_body and not marks.is_in("\n".join((draft.url, *headers.values()))):
        return Sealed(unsealed(draft), frozenset())
    used: dict[str, str] = {}

    def value(name: str) -> str:
        found = used[name] = key(name)
        return found

    if has_secret_body:
        body = _body(replace(draft, body=_replaced(draft.body, marks, value)))
    secret_headers = tuple(name for name, text in headers.items() if marks.is_in(text))
    filled = {name: marks.replaced(text, value) for name, text in headers.items()}
    url = marks.replaced(draft.url, value, _component)
    credentials = Masker(used.values(), shortest=_MIN_CREDENTIAL)
    request = Request(draft.method, url, filled, body, secret_headers, has_secret_body, credentials)
    return Sealed(request, frozenset(used))


def _body(draft: RequestDraft) -> bytes | None:
    body = draft.body
    if body is None or not draft.is_raw:
        return None if body is None else _json(body)
    return body if isinstance(body, bytes) else body.encode("utf-8", "replace")


def _json(value: Any) -> bytes:
    """JSON with the numbers that JavaScript would send: 7 for 7.0, and no limit of 64 bits."""
    try:
        written = orjson.dumps(value)
    except TypeError:
        return _written(value).encode("utf-8", "replace")
    return _written(value).encode() if b".0" in written else written


def _replaced(value: Any, marks: Placeholders, key: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return marks.replaced(value, key)
    if isinstance(value, bytes):
        return marks.replaced(value.decode("latin-1"), key, _bytewise).encode("latin-1")
    if isinstance(value, list):
        return [_replaced(item, marks, key) for item in items(value)]
    if isinstance(value, dict):
        return {k: _replaced(v, marks, key) for k, v in members(value).items()}
    return value
