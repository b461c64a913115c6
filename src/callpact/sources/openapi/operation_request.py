"""The request of an operation: planned once, built from admitted arguments per call.

Credentials are not here: `security_schemes` adds them to the built request. No value of a path can
leave its segment, and no key of an exploded object can take the place of another parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from callpact.errors import InvalidTool
from callpact.net.address import Refused, place_of
from callpact.net.path_steps import holds_step
from callpact.sources.openapi.operations import Operation, WireParameter
from callpact.sources.openapi.parameter_styles import (
    Pair,
    cookie_pairs,
    header_text,
    path_text,
    query_pairs,
    unsendable,
)
from callpact.sources.openapi.request_bodies import body_of, form_query

MAX_URL = 65_536
"""Characters of the address of a request to an operation."""

_NAME = re.compile(r"\{([^{}]*)\}")
# The specification reserves these headers: they come from the media types and the security.
_IGNORED = frozenset({"accept", "authorization", "content-type"})


@dataclass(slots=True)
class BuiltRequest:
    """A request without credentials, which are added to it before it is sent."""

    method: str
    address: str
    """The address without its query."""
    query: list[str] = field(default_factory=list[str])
    """Encoded pairs, or one encoded query."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cookies: list[str] = field(default_factory=list[str])
    body: bytes | None = None

    @property
    def url(self) -> str:
        """The whole address."""
        query = "&".join(self.query)
        if not query:
            return self.address
        return f"{self.address}{'&' if '?' in self.address else '?'}{query}"


_Segment = tuple[str | WireParameter, ...]


@dataclass(frozen=True, slots=True)
class RequestOutline:
    """The parts of an operation's request that are the same for every call.

    Raises:
        InvalidTool: the server is no address, or the path names a parameter that is not declared.
    """

    operation: Operation
    server: str
    accept: str
    headers: Mapping[str, str]
    """Headers of the settings, which no argument replaces."""
    reserved: Mapping[str, frozenset[str]]
    """Names that belong to the security, by place: `query` and `cookie`."""
    segments: tuple[_Segment, ...] = field(init=False)
    tail: str = field(init=False)
    claimed: Mapping[str, frozenset[str]] = field(init=False)
    """Names by place that no key of an exploded object may have."""

    def __post_init__(self) -> None:
        operation = self.operation
        try:
            place_of(self.server)
        except Refused as refused:
            raise InvalidTool(
                f"{operation.pointer}: the server '{self.server[:100]}' cannot be used: "
                f"{refused.why}; set `server` in the table of the source"
            ) from None
        path, mark, tail = operation.path.partition("?")
        if "#" in operation.path:
            raise InvalidTool(f"{operation.pointer}: the path holds '#', which is never sent")
        fill = object.__setattr__
        named = {each.name: each for each in operation.parameters if each.place == "path"}
        fill(self, "segments", tuple(self._segment(part, named) for part in path.split("/")))
        fill(self, "tail", mark + tail)
        fill(self, "claimed", {place: self._claimed(place) for place in ("query", "cookie")})

    def _claimed(self, place: str) -> frozenset[str]:
        names = {each.name for each in self.operation.parameters if each.place == place}
        names |= self.reserved.get(place, frozenset())
        return frozenset(names | {quote(name, safe="") for name in names})

    def _segment(self, part: str, named: Mapping[str, WireParameter]) -> _Segment:
        pieces: list[str | WireParameter] = []
        for number, piece in enumerate(_NAME.split(part)):
            if number % 2 == 0:
                pieces += [piece] if piece else []
            elif piece in named:
                pieces.append(named[piece])
            else:
                raise InvalidTool(
                    f"{self.operation.pointer}: the path names '{{{piece}}}', which is not declared "
                    "among the path parameters"
                )
        return tuple(pieces)

    def build(self, arguments: Mapping[str, Any]) -> BuiltRequest:
        """The request for arguments that passed the gate.

        Raises:
            InvalidInput: a value that the request cannot carry, or that would change its structure.
        """
        operation = self.operation
        built = BuiltRequest(operation.method, self._address(arguments))
        built.headers["Accept"] = self.accept
        for parameter in operation.parameters:
            if parameter.argument not in arguments or parameter.place == "path":
                continue
            value = arguments[parameter.argument]
            if value is None and not parameter.required and parameter.content_type is None:
                continue  # RFC 6570, section 2.3: undefined values are left out.
            self._add(built, parameter, value)
        if operation.body is not None and operation.body.argument in arguments:
            value = arguments[operation.body.argument]
            encoded = body_of(operation.body, value, operation.definitions)
            if encoded is not None:
                built.body = encoded.data
                put_header(built.headers, "Content-Type", encoded.content_type)
        for name, text in self.headers.items():
            put_header(built.headers, name, text)
        if len(built.url) > MAX_URL:
            raise unsendable("", f"needs an address of more than {MAX_URL:,} characters")
        return built

    def _address(self, arguments: Mapping[str, Any]) -> str:
        made = [self._filled(segment, arguments) for segment in self.segments]
        return self.server + "/".join(made) + self.tail

    def _filled(self, segment: _Segment, arguments: Mapping[str, Any]) -> str:
        last: WireParameter | None = None
        texts: list[str] = []
        for piece in segment:
            if isinstance(piece, str):
                texts.append(piece)
                continue
            last = piece
            texts.append(path_text(piece, arguments.get(piece.argument)))
        text = "".join(texts)
        if last is None:
            return text
        if not text:
            raise unsendable(last.argument, "must not be empty: it is a part of the path")
        if ("." in text or "%" in text) and holds_step(text):
            raise unsendable(last.argument, "must not be a step of the path, as '.' and '..' are")
        return text

    def _add(self, built: BuiltRequest, parameter: WireParameter, value: Any) -> None:
        match parameter.place:
            case "query":
                built.query += self._unclaimed(parameter, query_pairs(parameter, value))
            case "querystring":
                built.query.append(form_query(parameter, value))
            case "cookie":
                built.cookies += self._unclaimed(parameter, cookie_pairs(parameter, value))
            case _:
                if parameter.name.lower() not in _IGNORED:
                    put_header(built.headers, parameter.name, header_text(parameter, value))

    def _unclaimed(self, parameter: WireParameter, pairs: Iterable[Pair]) -> list[str]:
        """Refuse a key of an exploded object that is the name of another parameter."""
        names = self.claimed[parameter.place] - {parameter.name, quote(parameter.name, safe="")}
        for pair in pairs:
            if pair.name in names:
                raise unsendable(
                    parameter.argument, f"cannot have the key '{pair.name}': a parameter has it"
                )
        return [str(pair) for pair in pairs]


def linked_request(built: BuiltRequest, url: str) -> BuiltRequest:
    """The request of a link: its address, with the method and the headers of the first request."""
    address, _, query = url.partition("?")
    pairs = query.split("&") if query else []
    return replace(built, address=address, query=pairs, body=None)


def put_header(headers: dict[str, str], name: str, value: str) -> None:
    """Set a header, whatever the case of its name."""
    for present in [each for each in headers if each.lower() == name.lower()]:
        del headers[present]
    headers[name] = value
