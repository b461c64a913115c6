"""One operation of an OpenAPI document as frozen data, whatever version the document has.

The reader makes it, with references resolved and Swagger 2.0 converted; the encoder of requests and
the decoder of responses read it. Nothing here reads a document or sends anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from callpact.schema import Json

ParameterPlace = Literal["path", "query", "querystring", "header", "cookie"]
Style = Literal[
    "matrix",
    "label",
    "simple",
    "form",
    "spaceDelimited",
    "pipeDelimited",
    "deepObject",
    "cookie",
    "tabDelimited",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireParameter:
    """One parameter: its argument in the tool's input, and its form in the request."""

    name: str
    """The name in the request."""
    argument: str
    """The name in the tool's input; another one than `name` only where two places share a name."""
    place: ParameterPlace
    schema: Json = True
    """JSON Schema 2020-12; references point into the `$defs` of the tool's input schema."""
    required: bool = False
    style: Style
    explode: bool
    allow_reserved: bool = False
    content_type: str | None = None
    """The media type of a `content` parameter; `style` and `explode` then do not apply."""
    description: str = ""
    deprecated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEncoding:
    """How one property of a form or multipart body is encoded (an Encoding Object)."""

    content_type: str | None = None
    headers: tuple[WireParameter, ...] = ()
    style: Style | None = None
    """None if the document gives no style: the rules of the content type apply."""
    explode: bool = True
    allow_reserved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody:
    """The body of a request in the media type that was chosen among the declared ones."""

    content_type: str
    argument: str = "body"
    schema: Json = True
    required: bool = False
    encodings: Mapping[str, PartEncoding] = field(default_factory=dict[str, PartEncoding])
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseDeclaration:
    """One declared response: the schemas by media type; an empty mapping if it has no content."""

    status: str
    """`200`, `2XX` or `default`."""
    content: Mapping[str, Json] = field(default_factory=dict[str, Json])
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityScheme:
    """One way to authenticate: a Security Scheme Object with its name in the document."""

    name: str
    kind: Literal["apiKey", "http", "oauth2", "openIdConnect", "mutualTLS"]
    place: Literal["query", "header", "cookie"] | None = None
    """The place of an API key."""
    key_name: str = ""
    """The name of the header, query parameter or cookie of an API key."""
    http_scheme: str = ""
    """`basic`, `bearer` or another scheme of HTTP authentication, in lower case."""
    token_url: str | None = None
    """The token endpoint of OAuth2 client credentials; None if the scheme has no such flow."""
    discovery_url: str | None = None
    """The address of the OpenID Connect discovery document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityNeed:
    """One scheme of a security requirement, and the scopes that the operation asks for."""

    scheme: SecurityScheme
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation: what a tool sends, and what may come back."""

    name: str
    """The tool's name: the `operationId`, else method and path."""
    operation_id: str | None
    method: str
    """Upper case."""
    path: str
    """The template of the path, `/pets/{petId}`."""
    server: str
    """The root without a trailing slash, variables substituted; relative roots are resolved."""
    pointer: str
    """JSON Pointer of the operation in its document."""
    parameters: tuple[WireParameter, ...] = ()
    body: RequestBody | None = None
    responses: tuple[ResponseDeclaration, ...] = ()
    security: tuple[tuple[SecurityNeed, ...], ...] = ()
    """Alternatives; each is a set of schemes that are needed together. Empty: no security."""
    tags: tuple[str, ...] = ()
    summary: str = ""
    description: str = ""
    deprecated: bool = False
    definitions: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """The `$defs` of the tool's input schema, which the schemas of arguments refer to."""
