"""Bodies as they arrive at a server: the bytes, and their Content-Type."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from email import message_from_bytes, policy
from urllib.parse import parse_qsl

import pytest

from callpact.errors import InvalidInput
from callpact.sources.openapi.operations import PartEncoding
from callpact.sources.openapi.request_bodies import FILE_SCHEMA, argument_schema
from echo_upstream import Echo, a_body, a_parameter, an_operation

BYTES = bytes(range(256))
BASE64 = base64.b64encode(BYTES).decode()
BINARY = {"type": "string", "format": "binary"}


def posted(body, value, *parameters, **more):
    """The request that arrives when a tool is called with a body."""

    async def run():
        async with Echo() as echo:
            operation = an_operation(*parameters, method="POST", body=body, **more)
            await echo.call(operation, {"body": value})
            return echo.last

    return asyncio.run(run())


def parts_of(arrived):
    """The parts of a multipart body: name, filename, type, bytes."""
    head = f"Content-Type: {arrived.headers['content-type']}\r\n\r\n".encode()
    message = message_from_bytes(head + arrived.body, policy=policy.HTTP)
    return [
        (
            part.get_param("name", header="content-disposition"),
            part.get_filename(),
            part["content-type"],
            part.get_payload(decode=True),
        )
        for part in message.iter_parts()
    ]


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/vnd.api+json",
    ],
)
@pytest.mark.parametrize(
    "value", [{"a": [1, None, "é"]}, [], "text", 0, False, None, 2**70, {"n": None}]
)
def test_json_arrives_as_it_was_given(kind, value):
    arrived = posted(a_body(kind), value)
    assert arrived.headers["content-type"] == kind
    assert arrived.json == value


def test_a_body_of_any_type_is_json():
    arrived = posted(a_body("*/*"), {"a": 1})
    assert arrived.headers["content-type"] == "application/json"
    assert arrived.json == {"a": 1}


def test_a_body_that_is_left_out_is_not_sent():
    async def run():
        async with Echo() as echo:
            await echo.call(an_operation(method="POST", body=a_body()), {})
            return echo.last

    arrived = asyncio.run(run())
    assert arrived.body == b""
    assert "content-type" not in arrived.headers


def test_lines_of_json_are_one_for_each_item():
    assert posted(a_body("application/x-ndjson"), [{"a": 1}, 2]).body == b'{"a":1}\n2\n'


# --- forms -----------------------------------------------------------------------------------

FORM = "application/x-www-form-urlencoded"


def test_a_form_has_the_encoding_of_whatwg():
    value = {"a": "x y&z=~*", "é": "ü+", "n": 0, "t": False, "e": "", "gone": None}
    arrived = posted(a_body(FORM), value)
    assert arrived.headers["content-type"] == FORM
    assert arrived.body == b"a=x+y%26z%3D%7E%2A&%C3%A9=%C3%BC%2B&n=0&t=false&e="


def test_objects_in_a_form_are_json_as_the_specification_shows():
    # OpenAPI 3.1.1, "Encoding the x-www-form-urlencoded Media Type".
    value = {
        "id": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        "address": {"streetAddress": "123 Example Dr.", "zip": "99999+1234"},
        "tags": ["a", "b"],
    }
    pairs = parse_qsl(posted(a_body(FORM), value).body.decode(), strict_parsing=True)
    assert pairs[0] == ("id", value["id"])
    assert json.loads(pairs[1][1]) == value["address"]
    assert pairs[2:] == [("tags", "a"), ("tags", "b")]


def test_a_form_with_encodings_uses_their_styles():
    encodings = {
        "a": PartEncoding(style="form", explode=False),
        "b": PartEncoding(style="spaceDelimited", explode=False),
        "c": PartEncoding(style="pipeDelimited", explode=False),
        "d": PartEncoding(style="form", explode=True),
        "e": PartEncoding(content_type="application/json"),
    }
    value = {"a": [1, 2], "b": [1, 2], "c": [1, 2], "d": {"x": 1, "y": 2}, "e": [1, 2]}
    arrived = posted(a_body(FORM, encodings=encodings), value)
    assert arrived.body == b"a=1,2&b=1%202&c=1%7C2&x=1&y=2&e=%5B1%2C2%5D"


def test_brackets_of_stripe_nest_to_any_depth():
    deep = PartEncoding(style="deepObject", explode=True)
    names = ("items", "metadata", "expand", "card")
    value = {
        "customer": "cus_1",
        "items": [{"price": "p1", "quantity": 0}, {"price": "p2", "tax_rates": ["t1", "t2"]}],
        "metadata": {"order id": "6735"},
        "expand": ["data.customer"],
        "card": "",
    }
    arrived = posted(a_body(FORM, encodings=dict.fromkeys(names, deep)), value)
    assert parse_qsl(arrived.body.decode(), keep_blank_values=True) == [
        ("customer", "cus_1"),
        ("items[0][price]", "p1"),
        ("items[0][quantity]", "0"),
        ("items[1][price]", "p2"),
        ("items[1][tax_rates][0]", "t1"),
        ("items[1][tax_rates][1]", "t2"),
        ("metadata[order id]", "6735"),
        ("expand[0]", "data.customer"),
        ("card", ""),
    ]


def test_the_query_of_a_querystring_parameter_is_a_form():
    parameter = a_parameter("querystring", "q", content_type=FORM)

    async def run(value, given=parameter):
        async with Echo() as echo:
            await echo.call(an_operation(given), {"q": value})
            return echo.last.target

    assert asyncio.run(run({"a": 1, "b": ["x", "y z"]})) == "/?a=1&b=x&b=y+z"
    as_json = a_parameter("querystring", "q", content_type="application/json")
    assert asyncio.run(run({"a": 1}, as_json)) == "/?%7B%22a%22%3A1%7D"
    as_text = a_parameter("querystring", "q", content_type="text/plain")
    assert asyncio.run(run("a=1&b=%20#", as_text)) == "/?a=1&b=%20%23"


# --- multipart -------------------------------------------------------------------------------


def test_multipart_has_a_part_for_each_value():
    schema = {"properties": {"file": BINARY, "files": {"type": "array", "items": BINARY}}}
    value = {
        "name": "Häuser",
        "count": 0,
        "flag": False,
        "tags": ["a", "b"],
        "address": {"zip": "1"},
        "file": BASE64,
        "files": [BASE64, {"data": BASE64, "filename": 'a"\r\nb.png', "content_type": "image/png"}],
        "gone": None,
    }
    arrived = posted(a_body("multipart/form-data", schema=schema), value)
    assert parts_of(arrived) == [
        ("name", None, None, "Häuser".encode()),
        ("count", None, None, b"0"),
        ("flag", None, None, b"false"),
        ("tags", None, None, b"a"),
        ("tags", None, None, b"b"),
        ("address", None, "application/json", b'{"zip":"1"}'),
        ("file", "file", "application/octet-stream", BYTES),
        ("files", "files", "application/octet-stream", BYTES),
        ("files", "a%22%0D%0Ab.png", "image/png", BYTES),
    ]


def test_multipart_uses_the_types_and_headers_of_its_encodings():
    header = a_parameter("header", "X-Kind", schema={"type": "string", "default": "thumb"})
    encodings = {
        "picture": PartEncoding(content_type="image/png, image/jpeg", headers=(header,)),
        "note": PartEncoding(content_type="text/markdown"),
        "data": PartEncoding(content_type="application/vnd.x+json"),
    }
    value = {"picture": BASE64, "note": "# x", "data": "text"}
    arrived = posted(a_body("multipart/form-data", encodings=encodings), value)
    assert parts_of(arrived) == [
        ("picture", "picture", "image/png", BYTES),
        ("note", None, "text/markdown", b"# x"),
        ("data", None, "application/vnd.x+json", b'"text"'),
    ]
    assert b"X-Kind: thumb\r\n" in arrived.body


def test_a_file_behind_references_is_found():
    schema = {"allOf": [{"$ref": "#/$defs/Upload"}]}
    definitions = {
        "Upload": {"properties": {"file": {"$ref": "#/$defs/Bytes"}}},
        "Bytes": BINARY,
    }
    body = a_body("multipart/form-data", schema=schema)
    arrived = posted(body, {"file": BASE64}, definitions=definitions)
    assert parts_of(arrived) == [("file", "file", "application/octet-stream", BYTES)]


def test_base64_that_the_schema_itself_declares_stays_text():
    schema = {"properties": {"file": {"type": "string", "contentEncoding": "base64"}}}
    arrived = posted(a_body("multipart/form-data", schema=schema), {"file": BASE64})
    assert parts_of(arrived) == [("file", None, None, BASE64.encode())]


def test_the_argument_of_a_file_is_base64_or_an_object():
    body = a_body("multipart/form-data")
    schema = {
        "type": "object",
        "properties": {
            "file": {**BINARY, "description": "The picture"},
            "all": {"type": "array", "items": BINARY},
            "name": {"type": "string"},
        },
    }
    made = argument_schema(body, {"$ref": "#/$defs/Upload"}, {"Upload": schema})
    assert made["properties"]["file"] == {**FILE_SCHEMA, "description": "The picture"}
    assert made["properties"]["all"] == {"type": "array", "items": FILE_SCHEMA}
    assert made["properties"]["name"] == {"type": "string"}
    assert argument_schema(a_body("application/octet-stream"), BINARY, {}) == FILE_SCHEMA
    assert argument_schema(a_body(), schema, {}) == schema
    # What the rewritten schema declares is still a file.
    arrived = posted(replace(body, schema=made), {"file": {"data": BASE64}})
    assert parts_of(arrived) == [("file", "file", "application/octet-stream", BYTES)]


# --- text and bytes --------------------------------------------------------------------------


def test_text_and_xml_are_sent_as_they_are():
    assert posted(a_body("text/plain"), "é\n").body == "é\n".encode()
    assert posted(a_body("text/plain"), 7).body == b"7"
    assert posted(a_body("application/apply-patch+yaml"), "a: 1\n").body == b"a: 1\n"
    # JSON is YAML, too.
    assert posted(a_body("application/yaml"), {"a": 1}).body == b'{"a":1}'
    arrived = posted(a_body("application/xml"), "<a/>")
    assert (arrived.body, arrived.headers["content-type"]) == (b"<a/>", "application/xml")


def test_bytes_come_from_base64_or_an_object():
    arrived = posted(a_body("application/octet-stream"), BASE64)
    assert (arrived.body, arrived.headers["content-type"]) == (BYTES, "application/octet-stream")
    arrived = posted(a_body("image/*"), {"data": BASE64, "content_type": "image/png"})
    assert (arrived.body, arrived.headers["content-type"]) == (BYTES, "image/png")
    assert posted(a_body("image/*"), BASE64).headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        ("application/octet-stream", "not base64!", "/body"),
        ("application/octet-stream", 7, "/body"),
        ("image/*", {"data": "", "content_type": "a/b\r\nX: y"}, "/body"),
        ("application/xml", {"a": 1}, "/body"),
        (FORM, "text", "/body"),
        (FORM, {"a": [None]}, "/body/a"),
        ("multipart/form-data", [], "/body"),
        ("multipart/form-data", {"file": "not base64!"}, "/body/file"),
        ("text/plain", "\ud800", "/body"),
        ("application/json", {"a": "\ud800"}, "/body"),
    ],
)
def test_what_no_body_can_carry_is_refused_with_its_place(kind, value, path):
    schema = {"properties": {"file": BINARY}}
    with pytest.raises(InvalidInput) as caught:
        posted(a_body(kind, schema=schema), value)
    assert caught.value.path == path
