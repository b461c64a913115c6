"""The one result of a call: data, and metadata about its origin.

`ResponseEnvelope`, its three metas, MCP content blocks, the factories that make them, and the
JSON form of all of it (camelCase, as seed 001 writes it). Not a codec of any protocol: those are
in `wire/`. Nothing here needs an MCP SDK.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

import msgspec
import orjson
from msgspec import UNSET, Struct, UnsetType, field

from callpact.errors import CallError, Issue, NotJson, UsageError
from callpact.schema import Change, is_json
from callpact.schema.bounds import with_room
from callpact.schema.values import not_json

__all__ = [
    "HTTP_RESPONSE_META_SCHEMA",
    "LOCAL_RESPONSE_META_SCHEMA",
    "MCP_CONTENT_BLOCK_SCHEMA",
    "MCP_RESPONSE_META_SCHEMA",
    "RESPONSE_ENVELOPE_SCHEMA",
    "RESPONSE_META_SCHEMA",
    "RESPONSE_SOURCES",
    "AudioBlock",
    "HTTPResponseMeta",
    "ImageBlock",
    "LocalResponseMeta",
    "MCPAnnotations",
    "MCPContentBlock",
    "MCPResourceContent",
    "MCPResponseMeta",
    "ResourceBlock",
    "ResourceLinkBlock",
    "ResponseEnvelope",
    "ResponseMeta",
    "TextBlock",
    "http_envelope",
    "is_response_envelope",
    "local_envelope",
    "mcp_envelope",
    "raise_for_error",
    "unwrap",
]

T = TypeVar("T")

RESPONSE_SOURCES = ("local", "http", "mcp")
"""The origins that a result can have; a closed list."""


class MCPAnnotations(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Hints of an MCP server about one content block."""

    audience: list[Literal["user", "assistant"]] | None = None
    priority: float | None = None
    last_modified: str | None = None


class MCPResourceContent(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An embedded resource: text, or a base64 blob."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None
    meta_ext: dict[str, Any] | None = field(default=None, name="_meta")


class TextBlock(
    Struct, frozen=True, tag_field="type", tag="text", rename="camel", omit_defaults=True
):
    """Text for the model."""

    text: str
    annotations: MCPAnnotations | None = None
    meta_ext: dict[str, Any] | None = field(default=None, name="_meta")
    type: ClassVar[str] = "text"


class ImageBlock(
    Struct, frozen=True, tag_field="type", tag="image", rename="camel", omit_defaults=True
):
    """An image, base64."""

    data: str
    mime_type: str
    annotations: MCPAnnotations | None = None
    meta_ext: dict[str, Any] | None = field(default=None, name="_meta")
    type: ClassVar[str] = "image"


class AudioBlock(
    Struct, frozen=True, tag_field="type", tag="audio", rename="camel", omit_defaults=True
):
    """A sound, base64."""

    data: str
    mime_type: str
    annotations: MCPAnnotations | None = None
    meta_ext: dict[str, Any] | None = field(default=None, name="_meta")
    type: ClassVar[str] = "audio"


class ResourceBlock(
    Struct, frozen=True, tag_field="type", tag="resource", rename="camel", omit_defaults=True
):
    """A resource that is part of the answer."""

    resource: MCPResourceContent
    annotations: MCPAnnotations | None = None
    meta_ext: dict[str, Any] | None = field(default=None, name="_meta")
    type: ClassVar[str] = "resource"


class ResourceLinkBlock(
    Struct, frozen=True, tag_field="type", tag="resource_link", rename="camel", omit_defaults=True
):
    """A resource that can be read elsewhere."""

    uri: str
    name: str
    description: str | None = None
    mime_type: str | None = None
    title: str | None = None
    size: int | None = None
    annotations: MCPAnnotations | None = None
    icons: list[Any] | None = None
    meta_ext: dict[str, Any] | None = field(default=None, name="_meta")
    type: ClassVar[str] = "resource_link"


MCPContentBlock = TextBlock | ImageBlock | AudioBlock | ResourceBlock | ResourceLinkBlock


class LocalResponseMeta(
    Struct, frozen=True, gc=False, tag_field="source", tag="local", rename="camel"
):
    """The tool ran in this process. `timestamp` is epoch milliseconds, set when wrapped."""

    operation_id: str
    timestamp: int
    source: ClassVar[str] = "local"


class HTTPResponseMeta(
    Struct, frozen=True, tag_field="source", tag="http", rename="camel", omit_defaults=True
):
    """The answer of an HTTP upstream. `set_cookie` is left out of audit and relays."""

    status_code: int
    headers: dict[str, str]
    content_type: str
    set_cookie: list[str] | None = None
    source: ClassVar[str] = "http"


class MCPResponseMeta(
    Struct, frozen=True, tag_field="source", tag="mcp", rename="camel", omit_defaults=True
):
    """The answer of an MCP server. `is_error` is data: the tool ran and reported an error."""

    is_error: bool = field()
    content: list[MCPContentBlock] = field()
    structured_content: Any | UnsetType = UNSET
    meta_ext: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")
    source: ClassVar[str] = "mcp"


ResponseMeta = LocalResponseMeta | HTTPResponseMeta | MCPResponseMeta


class ResponseEnvelope(Struct, Generic[T], frozen=True, gc=False):
    """A result: `data`, `meta` about its origin, and the findings of the contract.

    `warnings` describe the data before any change, `changes` list the changes. The wire form has
    them only with `details`.
    """

    data: T
    meta: ResponseMeta
    warnings: tuple[Issue, ...] = ()
    changes: tuple[Change, ...] = ()

    def to_wire(self, *, details: bool = False) -> dict[str, Any]:
        """The JSON form: `data` and `meta`; with `details` also warnings and changes.

        Bytes become base64, with `"encoding": "base64"` beside them.
        """
        data: Any = self.data
        wire: dict[str, Any] = {"data": data}
        if isinstance(data, bytes | bytearray | memoryview):
            wire = {"data": base64.b64encode(cast("bytes", data)).decode(), "encoding": "base64"}
        wire["meta"] = msgspec.to_builtins(self.meta)
        if details:
            wire["warnings"] = msgspec.to_builtins(list(self.warnings))
            wire["changes"] = [_shown_change(change) for change in self.changes]
        return wire

    def to_json(self, *, details: bool = False) -> bytes:
        """The JSON form as bytes.

        Raises:
            NotJson: the data holds a value that JSON cannot express, such as a lone surrogate.
        """
        return encode_json(self.to_wire(details=details))

    @staticmethod
    def from_wire(wire: Mapping[str, Any]) -> ResponseEnvelope[Any]:
        """Read the JSON form; an incomplete `meta` is accepted, so are warnings and changes.

        Raises:
            UsageError: the mapping is not an envelope.
        """
        if not is_response_envelope(wire):
            raise UsageError(
                "not an envelope: expected the keys 'data' and 'meta', and in 'meta' a 'source' "
                f"out of {', '.join(RESPONSE_SOURCES)}"
            )
        data = wire["data"]
        if wire.get("encoding") == "base64" and isinstance(data, str):
            try:
                data = base64.b64decode(data, validate=True)
            except binascii.Error:
                raise UsageError("the envelope's data is not base64 as it says") from None
        meta = wire["meta"]
        if isinstance(meta, Mapping):
            meta = _meta(cast("Mapping[str, Any]", meta))
        warnings = _listed(wire.get("warnings"), Issue)
        return ResponseEnvelope(data, meta, warnings, _listed(wire.get("changes"), Change))

    @staticmethod
    def from_json(text: bytes | str) -> ResponseEnvelope[Any]:
        """Read the JSON form from text.

        Raises:
            UsageError: the text is not the JSON of an envelope.
        """
        try:
            wire = with_room(lambda: msgspec.json.decode(text))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise UsageError(f"not an envelope: not JSON ({error})") from None
        return ResponseEnvelope.from_wire(wire)


_encoder = msgspec.json.Encoder(decimal_format="number")


def encode_json(value: Any) -> bytes:
    """The JSON text of a value, written once.

    Raises:
        NotJson: the value holds something that JSON cannot express, such as a lone surrogate.
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # Integers beyond 64 bits and decimals, which orjson does not write.
        pass
    try:
        return with_room(lambda: _encoder.encode(value))
    except (UnicodeError, TypeError, RecursionError):
        places = not_json(value)
        raise NotJson(lambda: places) from None


def _shown_change(change: Change) -> dict[str, Any]:
    before = change.before if is_json(change.before) else repr(change.before)[:200]
    shown = {"path": change.path, "action": change.action, "before": before}
    return shown | {"invented": True} if change.invented else shown


_META_TYPES: dict[str, Any] = {
    "local": LocalResponseMeta,
    "http": HTTPResponseMeta,
    "mcp": MCPResponseMeta,
}


def _listed(given: Any, kind: type[T]) -> tuple[T, ...]:
    """Warnings or changes of the JSON form; empty if they do not have our form."""
    if not given:
        return ()
    try:
        return tuple(msgspec.convert(given, list[kind]))
    except msgspec.ValidationError:
        return ()


def _meta(wire: Mapping[str, Any]) -> ResponseMeta:
    """A meta without validation: missing fields stay UNSET, unknown ones are dropped."""
    kind = _META_TYPES[wire["source"]]
    try:
        return msgspec.convert(dict(wire), kind)
    except (msgspec.ValidationError, TypeError):
        values = {
            name: wire.get(wire_name, UNSET)
            for name, wire_name in zip(
                kind.__struct_fields__, kind.__struct_encode_fields__, strict=True
            )
        }
        return kind(**values)


def is_response_envelope(value: object) -> bool:
    """True for an envelope, or a mapping with `data` and a `meta` whose `source` is known."""
    if isinstance(value, ResponseEnvelope):
        return True
    if not isinstance(value, Mapping) or "data" not in value or "meta" not in value:
        return False
    meta = cast("Mapping[str, Any]", value)["meta"]
    if isinstance(meta, Mapping):
        source = cast("Mapping[str, Any]", meta).get("source")
        return isinstance(source, str) and source in RESPONSE_SOURCES
    return isinstance(meta, LocalResponseMeta | HTTPResponseMeta | MCPResponseMeta)


def now_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


def local_envelope(data: T, operation_id: str) -> ResponseEnvelope[T]:
    """Wrap a value that was made in this process, stamped with the current time."""
    return ResponseEnvelope(data, LocalResponseMeta(operation_id, time.time_ns() // 1_000_000))


def http_envelope(
    data: T,
    *,
    status_code: int,
    headers: Mapping[str, str],
    content_type: str,
    set_cookie: list[str] | None = None,
) -> ResponseEnvelope[T]:
    """Wrap the answer of an HTTP upstream."""
    return ResponseEnvelope(
        data, HTTPResponseMeta(status_code, dict(headers), content_type, set_cookie)
    )


def mcp_envelope(
    data: T,
    *,
    is_error: bool,
    content: list[MCPContentBlock],
    structured_content: Any = UNSET,
    meta_ext: dict[str, Any] | UnsetType = UNSET,
) -> ResponseEnvelope[T]:
    """Wrap the result of an MCP tool; absent parts stay absent."""
    return ResponseEnvelope(data, MCPResponseMeta(is_error, content, structured_content, meta_ext))


def wrap(value: Any, operation_id: str) -> ResponseEnvelope[Any]:
    """Wrap the return value of a handler; an envelope is returned as it is."""
    if isinstance(value, ResponseEnvelope):
        return cast("ResponseEnvelope[Any]", value)
    # Most answers are dicts without "meta": tested first, as the general test is slower.
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType] - any answer
    if (kind is not dict or "meta" in value) and is_response_envelope(value):
        return ResponseEnvelope.from_wire(value)
    return ResponseEnvelope(value, LocalResponseMeta(operation_id, time.time_ns() // 1_000_000))


def unwrap(envelope: ResponseEnvelope[T]) -> T:
    """The data of an envelope."""
    return envelope.data


def raise_for_error(envelope: ResponseEnvelope[T]) -> ResponseEnvelope[T]:
    """Return the envelope, unless an MCP server marked its answer as an error.

    Raises:
        CallError: `tool_error`, with the first text of the answer.
    """
    meta = envelope.meta
    if isinstance(meta, MCPResponseMeta) and meta.is_error:
        texts = (block.text for block in meta.content or () if isinstance(block, TextBlock))
        raise CallError("tool_error", next(texts, "The tool answered with an error"))
    return envelope


# --- schema constants (seed 001) ------------------------------------------------------------

_ANNOTATIONS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "audience": {"type": "array", "items": {"enum": ["user", "assistant"]}},
        "priority": {"type": "number"},
        "lastModified": {"type": "string"},
    },
}


def _object_schema(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


def _block_schema(kind: str, **properties: Any) -> dict[str, Any]:
    schema = _object_schema(["type", *properties], type={"const": kind}, **properties)
    schema["properties"]["annotations"] = _ANNOTATIONS_SCHEMA
    return schema


_STRING: dict[str, Any] = {"type": "string"}
_RESOURCE_SCHEMA = _object_schema(
    ["uri"], uri=_STRING, mimeType=_STRING, text=_STRING, blob=_STRING
)

MCP_CONTENT_BLOCK_SCHEMA: dict[str, Any] = {
    "anyOf": [
        _block_schema("text", text=_STRING),
        _block_schema("image", data=_STRING, mimeType=_STRING),
        _block_schema("audio", data=_STRING, mimeType=_STRING),
        _block_schema("resource", resource=_RESOURCE_SCHEMA),
        _object_schema(
            ["type", "uri", "name"],
            type={"const": "resource_link"},
            uri=_STRING,
            name=_STRING,
            description=_STRING,
            mimeType=_STRING,
        ),
    ]
}
LOCAL_RESPONSE_META_SCHEMA = _object_schema(
    ["source", "operationId", "timestamp"],
    source={"const": "local"},
    operationId=_STRING,
    timestamp={"type": "number"},
)
HTTP_RESPONSE_META_SCHEMA = _object_schema(
    ["source", "statusCode", "headers", "contentType"],
    source={"const": "http"},
    statusCode={"type": "number"},
    headers={"type": "object", "additionalProperties": _STRING},
    contentType=_STRING,
    setCookie={"type": "array", "items": _STRING},
)
MCP_RESPONSE_META_SCHEMA = _object_schema(
    ["source", "isError", "content"],
    source={"const": "mcp"},
    isError={"type": "boolean"},
    content={"type": "array", "items": MCP_CONTENT_BLOCK_SCHEMA},
    structuredContent={},
    _meta={"type": "object"},
)
RESPONSE_META_SCHEMA: dict[str, Any] = {
    "anyOf": [LOCAL_RESPONSE_META_SCHEMA, HTTP_RESPONSE_META_SCHEMA, MCP_RESPONSE_META_SCHEMA]
}
RESPONSE_ENVELOPE_SCHEMA: dict[str, Any] = _object_schema(
    ["data", "meta"], data={"description": "What the tool answered"}, meta=RESPONSE_META_SCHEMA
)
