"""Bodies of requests: JSON, forms, multipart, text and bytes.

Bytes are base64 in an argument, or an object of `data`, `filename` and `content_type`. XML is sent
as the text that was given.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from msgspec import structs

from callpact.errors import InvalidInput
from callpact.schema import Json, is_array, is_object
from callpact.sources.openapi.operations import PartEncoding, RequestBody, WireParameter
from callpact.sources.openapi.parameter_styles import (
    Pair,
    content_text,
    form_pairs,
    is_json_type,
    json_of,
    scalar_text,
    unsendable,
)

FORM = "application/x-www-form-urlencoded"
BYTES = "application/octet-stream"
MAX_PARTS = 1_000
"""Parts of a multipart body."""

_LINES = frozenset({"application/jsonl", "application/x-ndjson", "application/x-jsonlines"})
_XML = re.compile(r"(?:application|text)/(?:[\w.-]+\+)?xml\b|\w+/[\w.-]+\+xml\b")
_TEXT = re.compile(
    r"text/|application/(?:graphql|javascript|sql|toml)\b"
    r"|application/(?:[\w.-]+\+)?(?:xml|yaml|x-yaml)\b|\w+/[\w.-]+\+(?:xml|yaml)\b"
)
_TYPE = re.compile(
    r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?:\s*;\s*[\w-]+=(?:[\w!#$&^.+-]+|\"[^\"\\\r\n]*\"))*"
)
_NO_ENCODING = PartEncoding()
_NO_DEFINITIONS: Mapping[str, Json] = {}
_MAX_HOPS = 50  # References that are followed from one schema.


class EncodedBody(NamedTuple):
    """The bytes of a body, and the value of its Content-Type."""

    data: bytes
    content_type: str


def body_of(
    body: RequestBody, value: Any, definitions: Mapping[str, Json] = _NO_DEFINITIONS
) -> EncodedBody | None:
    """Encode the argument of a body; None if there is nothing to send.

    `definitions` are the `$defs` that its schema refers to.

    Raises:
        InvalidInput: the argument cannot be sent in the media type of the body.
    """
    kind = body.content_type.strip()
    plain = kind.partition(";")[0].strip().lower()
    try:
        if is_json_type(plain) or plain in {"*/*", "application/*", ""}:
            kind = kind if is_json_type(plain) else "application/json"
            return EncodedBody(json_of(value).encode(), kind)
        if value is None and not body.required:
            return None
        if plain in _LINES:
            return EncodedBody(_lines(value), kind)
        if plain == FORM:
            pairs = _form(body, _object(value, "an object"))
            return EncodedBody("&".join(map(str, pairs)).encode("ascii"), kind)
        if plain.startswith("multipart/"):
            return _multipart(body, plain, _object(value, "an object"), definitions)
        if _TEXT.match(plain):
            return EncodedBody(_text(value, plain), kind)
        return _raw(value, kind)
    except InvalidInput as error:
        raise _within(body.argument, error) from None


def form_query(parameter: WireParameter, value: Any) -> str:
    """The whole query of a `querystring` parameter."""
    kind = (parameter.content_type or FORM).lower()
    if kind.startswith(FORM) and is_object(value):
        body = RequestBody(content_type=FORM, argument=parameter.argument, schema=parameter.schema)
        return "&".join(map(str, _form(body, value)))
    text = content_text(kind, value)
    try:
        if is_json_type(kind):
            return quote(text, safe="")
        return quote(text, safe="%!$&'()*+,;=:@/?")
    except UnicodeEncodeError:
        raise unsendable(parameter.argument, "holds half a character") from None


def _within(argument: str, error: InvalidInput) -> InvalidInput:
    """The same error with its place inside the argument of the body."""
    issue = error.issues[0]
    if not issue.path:
        return unsendable(argument, issue.message.removeprefix("Input "))
    moved = structs.replace(issue, path=f"/{argument}{issue.path}")
    return InvalidInput(lambda: [moved])


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not is_object(value):
        raise unsendable("", f"must be {what} to be sent in this media type")
    return value


def _lines(value: Any) -> bytes:
    items = value if is_array(value) else [value]
    return "".join(f"{json_of(item)}\n" for item in items).encode()


def _text(value: Any, kind: str) -> bytes:
    if not isinstance(value, str) and _XML.match(kind):
        raise unsendable("", "must be the text of the XML document: XML is not made of JSON")
    text = value if isinstance(value, str) else scalar_text(value)
    return _utf8(text)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise unsendable("", "holds half a character") from None


def _raw(value: Any, kind: str) -> EncodedBody:
    file = read_file(value)
    given = file.content_type or ("" if "*" in kind else kind)
    return EncodedBody(file.data, given or BYTES)


# --- files -----------------------------------------------------------------------------------


class FileBytes(NamedTuple):
    """The bytes of an argument, and the names that came with them."""

    data: bytes
    filename: str | None = None
    content_type: str | None = None


FILE_SCHEMA: dict[str, Json] = {
    "anyOf": [
        {"type": "string", "contentEncoding": "base64", "description": "The bytes in base64"},
        {
            "type": "object",
            "properties": {
                "data": {"type": "string", "contentEncoding": "base64"},
                "filename": {"type": "string"},
                "content_type": {"type": "string"},
            },
            "required": ["data"],
            "additionalProperties": False,
        },
    ]
}
"""The input schema of an argument that holds the bytes of a file."""


def is_file(schema: Json) -> bool:
    """True for the schema of bytes that are sent as they are: OpenAPI's `binary`."""
    if not is_object(schema):
        return False
    if schema.get("anyOf") == FILE_SCHEMA["anyOf"] or schema.get("format") == "binary":
        return True
    return "contentMediaType" in schema and "contentEncoding" not in schema and not is_json_type(
        str(schema["contentMediaType"])
    )  # fmt: skip


def _resolved(schema: Json, definitions: Mapping[str, Json]) -> Json:
    """A schema behind its references into `$defs`."""
    for _ in range(_MAX_HOPS):
        if not is_object(schema) or not isinstance(schema.get("$ref"), str):
            return schema
        name = str(schema["$ref"]).removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")
        if name not in definitions:
            return schema
        schema = definitions[name]
    return True


def _properties(schema: Json, definitions: Mapping[str, Json], depth: int = 0) -> dict[str, Json]:
    """The properties of an object, also those of its `allOf`."""
    schema = _resolved(schema, definitions)
    if not is_object(schema) or depth > _MAX_HOPS:
        return {}
    found: dict[str, Json] = {}
    parts = schema.get("allOf")
    for part in parts if is_array(parts) else ():
        found |= _properties(part, definitions, depth + 1)
    own = schema.get("properties")
    return found | own if is_object(own) else found


def argument_schema(body: RequestBody, schema: Json, definitions: Mapping[str, Json]) -> Json:
    """The input schema of a body, with bytes as base64 or as a file object.

    A multipart body is replaced by a copy whose files have `FILE_SCHEMA`, a body of bytes by
    `FILE_SCHEMA` itself; every other schema is returned as it is.
    """
    plain = body.content_type.partition(";")[0].strip().lower()
    if not plain.startswith("multipart/"):
        is_bytes = not (_is_textual(plain) or plain in {*_LINES, FORM, "*/*", "application/*", ""})
        return FILE_SCHEMA if is_bytes else schema
    files: dict[str, Json] = {}
    for name, given in _properties(schema, definitions).items():
        held = _resolved(given, definitions)
        words = (
            {"description": held["description"]}
            if is_object(held) and "description" in held
            else {}
        )
        if is_file(held):
            files[name] = {**FILE_SCHEMA, **words}
        elif is_object(held) and is_file(_resolved(held.get("items", True), definitions)):
            files[name] = {**held, "items": FILE_SCHEMA}
    if not files:
        return schema
    whole = _resolved(schema, definitions)
    if not is_object(whole) or not is_object(own := whole.get("properties")):
        return schema
    return {**whole, "properties": {**own, **{k: v for k, v in files.items() if k in own}}}


def read_file(value: Any) -> FileBytes:
    """The bytes of an argument: base64, or an object with `data`, `filename` and `content_type`.

    Raises:
        InvalidInput: it is neither.
    """
    if is_object(value) and isinstance(value.get("data"), str):
        kind, name = value.get("content_type"), value.get("filename")
        if kind is not None and not (isinstance(kind, str) and _TYPE.fullmatch(kind)):
            raise unsendable("", "must have a media type as its content_type, as in image/png")
        text = None if name is None else scalar_text(name)
        return FileBytes(_decoded(value["data"]), text, kind)
    if isinstance(value, str):
        return FileBytes(_decoded(value))
    raise unsendable(
        "", "must be bytes in base64, or an object with 'data', 'filename' and 'content_type'"
    )


def _decoded(text: str) -> bytes:
    stripped = re.sub(r"\s+", "", text)
    try:
        return base64.b64decode(stripped, validate=True)
    except (binascii.Error, ValueError):
        raise unsendable("", "must be bytes in base64") from None


# --- forms -----------------------------------------------------------------------------------


def _form(body: RequestBody, value: Mapping[str, Any]) -> Iterator[Pair]:
    for name, member in value.items():
        encoding = body.encodings.get(name, _NO_ENCODING)
        if member is None:
            continue
        yield from form_pairs(_field(name, encoding, member), member)


def _field(name: str, encoding: PartEncoding, value: Any) -> WireParameter:
    """The parameter that a property of a form is encoded like."""
    kind = encoding.content_type
    if encoding.style is None and (kind is not None or is_object(value)):
        # Without a style the content type decides, and that of objects is JSON.
        kind = kind or "application/json"
        if not is_array(value) or is_json_type(kind):
            is_text = kind.startswith("text/") and not is_object(value)
            return WireParameter(
                name=name,
                argument=name,
                place="query",
                style="form",
                explode=True,
                content_type=None if is_text else kind,
            )
    return WireParameter(
        name=name,
        argument=name,
        place="query",
        style=encoding.style or "form",
        explode=encoding.explode,
        allow_reserved=encoding.allow_reserved,
    )


# --- multipart -------------------------------------------------------------------------------


class _Part(NamedTuple):
    name: str
    data: bytes
    content_type: str | None
    filename: str | None
    headers: Mapping[str, str]


def _multipart(
    body: RequestBody, kind: str, value: Mapping[str, Any], definitions: Mapping[str, Json]
) -> EncodedBody:
    parts = list(_parts(body, value, definitions))
    if len(parts) > MAX_PARTS:
        raise unsendable("", f"has more than {MAX_PARTS:,} parts")
    boundary = f"callpact-{secrets.token_hex(16)}"
    disposition = "form-data" if kind == "multipart/form-data" else "attachment"
    written = [_written_part(part, boundary, disposition) for part in parts]
    data = b"".join(written) + f"--{boundary}--\r\n".encode()
    return EncodedBody(data, f"{kind}; boundary={boundary}")


def _parts(
    body: RequestBody, value: Mapping[str, Any], definitions: Mapping[str, Json]
) -> Iterator[_Part]:
    declared = _properties(body.schema, definitions)
    for name, member in value.items():
        if member is None:
            continue
        encoding = body.encodings.get(name, _NO_ENCODING)
        item = _resolved(declared.get(name, True), definitions)
        if is_array(member):
            item = _resolved(item.get("items", True), definitions) if is_object(item) else True
        for each in member if is_array(member) else (member,):
            try:
                yield _part(name, each, encoding, item)
            except InvalidInput as error:
                raise unsendable(name, error.message.removeprefix("Input ")) from None


def _part(name: str, value: Any, encoding: PartEncoding, schema: Json) -> _Part:
    headers = {each.name: text for each in encoding.headers if (text := _fixed(each)) is not None}
    first = (encoding.content_type or "").partition(",")[0].strip()
    kind = first if first and "*" not in first else None
    is_bytes = is_file(schema) or (
        # OpenAPI 3.1: a media type alone declares bytes.
        kind is not None and not _is_textual(kind) and schema in (True, {})
    )
    if is_bytes:
        file = read_file(value)
        kind = file.content_type or kind or BYTES
        return _Part(name, file.data, kind, file.filename or name, headers)
    if is_object(value) or is_array(value) or (kind is not None and is_json_type(kind)):
        return _Part(name, json_of(value).encode(), kind or "application/json", None, headers)
    return _Part(name, _utf8(scalar_text(value)), kind, None, headers)


def _is_textual(kind: str) -> bool:
    return is_json_type(kind) or _TEXT.match(kind) is not None


def _fixed(header: WireParameter) -> str | None:
    """The value of a header of a part, which only its schema can give."""
    schema = header.schema
    if not is_object(schema):
        return None
    given = schema.get("const", schema.get("default"))
    choices = schema.get("enum")
    if given is None and is_array(choices) and len(choices) == 1:
        given = choices[0]
    return None if given is None else re.sub(r"[\r\n]+", " ", scalar_text(given))


def _written_part(part: _Part, boundary: str, disposition: str) -> bytes:
    lines = [f"--{boundary}", f'Content-Disposition: {disposition}; name="{_quoted(part.name)}"']
    if part.filename is not None:
        lines[-1] += f'; filename="{_quoted(part.filename)}"'
    if part.content_type is not None:
        lines.append(f"Content-Type: {part.content_type}")
    lines += [f"{name}: {value}" for name, value in part.headers.items()]
    return _utf8("\r\n".join(lines)) + b"\r\n\r\n" + part.data + b"\r\n"


def _quoted(text: str) -> str:
    """A name in Content-Disposition, escaped as WHATWG's multipart/form-data is."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
