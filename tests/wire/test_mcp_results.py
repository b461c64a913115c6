"""MCP's form, rule by rule (design section 4), in both eras of the protocol."""

from __future__ import annotations

import asyncio
import base64
import json

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.catalog import Catalog
from callpact.envelope import ImageBlock, TextBlock, http_envelope, local_envelope, mcp_envelope
from callpact.errors import CallError, InvalidInput, Issue, ToolError
from callpact.runtime import Runtime
from callpact.tool import Contract, Tool
from callpact.wire.mcp.results import encode_error, encode_result, encode_tool

ERAS = pytest.mark.parametrize("modern", [True, False], ids=["2026-07-28", "2025-11-25"])
PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8
OFFER = {
    "type": "object",
    "properties": {"price": {"type": "number"}, "stock": {"type": "integer"}},
    "required": ["price", "stock"],
}
STRINGS = {"type": "array", "items": {"type": "string"}}


def make_tool(answer=None, output=None, policy=None, input=None, **more) -> Tool:
    async def handler(arguments, context):
        return answer

    contract = Contract(
        input={"type": "object"} if input is None else input, output=output, policy=policy
    )
    return Tool(id="a.b", description="Does.", contract=contract, handler=handler, **more)


def call(tool: Tool, *, modern: bool) -> dict:
    envelope = asyncio.run(Runtime(Catalog([tool])).execute("a.b", {}))
    return encode_result(envelope, tool, modern=modern)


def text_of(result: dict, index: int = 0) -> str:
    assert result["content"][index]["type"] == "text"
    return result["content"][index]["text"]


def is_valid(schema, value) -> bool:
    return jsonschema_rs.validator_for(schema, offline=True).is_valid(value)


# --- definitions ----------------------------------------------------------------------------


@ERAS
def test_a_definition_has_the_wire_name_the_description_and_both_schemas(modern):
    tool = make_tool(output=OFFER, title="B", annotations={"readOnlyHint": True})
    assert encode_tool(tool, modern=modern) == {
        "name": "a_b",
        "title": "B",
        "description": "Does.",
        "annotations": {"readOnlyHint": True},
        "inputSchema": {"type": "object"},
        "outputSchema": OFFER,
    }


@ERAS
@pytest.mark.parametrize(
    "declared",
    [
        {},
        True,
        {"type": ["object", "null"]},
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}},
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    ],
)
def test_an_input_schema_always_has_an_object_root(declared, modern):
    published = encode_tool(make_tool(input=declared), modern=modern)["inputSchema"]
    assert published["type"] == "object"
    assert is_valid(published, {"a": 1})
    assert not is_valid(published, None)


@ERAS
def test_an_input_schema_that_takes_nothing_is_published_so(modern):
    published = encode_tool(make_tool(input=False), modern=modern)["inputSchema"]
    assert published["type"] == "object"
    assert not is_valid(published, {})


@ERAS
@pytest.mark.parametrize(
    ("output", "policy"), [(None, None), ({}, None), (OFFER, "pass"), (True, "cast")]
)
def test_what_is_not_promised_is_not_published(output, policy, modern):
    assert "outputSchema" not in encode_tool(make_tool(output=output, policy=policy), modern=modern)


@pytest.mark.parametrize("policy", ["cast", "convert", "reject"])
def test_a_root_that_is_not_an_object_is_boxed_for_older_peers_only(policy):
    tool = make_tool(output=STRINGS, policy=policy)
    assert encode_tool(tool, modern=True)["outputSchema"] == STRINGS
    assert encode_tool(tool, modern=False)["outputSchema"] == {
        "type": "object",
        "properties": {"result": STRINGS},
        "required": ["result"],
    }


def test_an_object_behind_a_reference_needs_no_box_but_an_object_root_for_older_peers():
    schema = {"$ref": "#/$defs/Offer", "$defs": {"Offer": OFFER}}
    tool = make_tool({"price": 1, "stock": 2}, schema)
    assert encode_tool(tool, modern=True)["outputSchema"] == schema
    assert encode_tool(tool, modern=False)["outputSchema"] == {**schema, "type": "object"}
    assert call(tool, modern=False)["structuredContent"] == {"price": 1, "stock": 2}


def test_another_kind_behind_references_is_boxed():
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"type": "array"}}}
    assert encode_tool(make_tool(output=schema), modern=False)["outputSchema"]["required"] == [
        "result"
    ]


@ERAS
def test_a_root_that_may_be_null_is_boxed_in_every_era(modern):
    tool = make_tool(output={"type": ["integer", "null"]})
    published = encode_tool(tool, modern=modern)["outputSchema"]
    assert is_valid(published, {"result": None})
    assert not is_valid(published, {"result": "x"})
    assert not is_valid(published, {})


TREES = [
    # Definitions, the root itself, and a place inside it as targets; JSON data that looks like one.
    {"$ref": "#/$defs/T", "$defs": {"T": {"type": "array", "items": {"$ref": "#/$defs/T"}}}},
    {"type": "array", "items": {"$ref": "#"}},
    {"type": "array", "items": {"$ref": "#/$defs/T"}, "$defs": {"T": {"$ref": "#"}}},
    {"type": "array", "items": {"$ref": "#/$defs/a~1b"}, "$defs": {"a/b": {"$ref": "#"}}},
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": {"$ref": "#/definitions/T"},
        "definitions": {"T": {"type": "array", "items": {"$ref": "#/definitions/T"}}},
    },
    {
        "$id": "https://example.org/tree",
        "type": "array",
        "items": {"$ref": "#/$defs/T"},
        "$defs": {"T": {"$ref": "#"}},
    },
    {"type": "array", "items": {"$ref": "#tree"}, "$anchor": "tree"},
]


@pytest.mark.parametrize("schema", TREES)
def test_references_keep_working_in_a_box(schema):
    published = encode_tool(make_tool(output=schema), modern=False)["outputSchema"]
    assert published["type"] == "object"
    assert is_valid(published, {"result": [[], [[]]]})
    assert not is_valid(published, {"result": [[], [1]]})
    assert not is_valid(published, {"result": 1})


def test_data_that_looks_like_a_reference_stays_as_it_is_in_a_box():
    schema = {
        "type": "array",
        "items": {
            "properties": {"$ref": {"const": {"$ref": "#"}}},
            "enum": [{"$ref": {"$ref": "#"}}],
        },
    }
    published = encode_tool(make_tool(output=schema), modern=False)["outputSchema"]
    assert is_valid(published, {"result": [{"$ref": {"$ref": "#"}}]})


@ERAS
def test_a_relaxed_schema_tells_the_fields_and_asserts_nothing(modern):
    schema = {
        "type": "object",
        "title": "Offer",
        "properties": {
            "price": {"type": "number", "minimum": 0, "description": "In euro"},
            "unit": {"enum": ["kg", "lb"]},
            "maker": {"$ref": "#/$defs/Maker"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "parts": {"type": "array", "items": {"type": "object", "properties": {"id": {}}}},
        },
        "required": ["price"],
        "additionalProperties": False,
        "$defs": {"Maker": {"type": "object", "properties": {"name": {"type": "string"}}}},
    }
    published = encode_tool(make_tool(output=schema, policy="warn"), modern=modern)["outputSchema"]
    assert published["title"] == "Offer"
    fields = published["properties"]
    assert fields["price"]["description"] == "In euro (declared: number)"
    assert fields["maker"]["properties"]["name"]["description"] == "(declared: string)"
    assert fields["note"]["description"] == "(declared: string or null)"
    assert "id" in fields["parts"]["items"]["properties"]
    assert is_valid(published, {"price": "free", "unit": 3, "maker": [], "parts": {}, "x": 1})


@ERAS
def test_a_relaxed_schema_of_a_tree_with_many_branches_ends(modern):
    branches = {f"p{n}": {"$ref": "#/$defs/T"} for n in range(30)}
    schema = {
        "type": "object",
        "properties": {f"q{n}": {"$ref": f"#/$defs/U{n}"} for n in range(30)},
        "$defs": {
            "T": {"type": "object", "properties": branches},
            **{f"U{n}": {"properties": branches} for n in range(30)},
        },
    }
    published = encode_tool(make_tool(output=schema, policy="warn"), modern=modern)["outputSchema"]
    assert len(json.dumps(published)) < 1_000_000
    assert is_valid(published, {"q1": {"p1": 3}})


# --- results --------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("output", [None, {"type": "object"}])
def test_an_object_is_structured_content_and_text_mirrors_it(output, modern):
    result = call(make_tool({"a": [1, "ü"]}, output), modern=modern)
    assert result["structuredContent"] == {"a": [1, "ü"]}
    assert json.loads(text_of(result)) == {"a": [1, "ü"]}
    assert not result.get("isError")
    assert result["_meta"]["callpact/source"] == "local"


@pytest.mark.parametrize(
    ("answer", "schema"),
    [
        (["a"], STRINGS),
        (5, {"type": "integer"}),
        ("x", {"type": "string"}),
        (False, {"const": False}),
    ],
)
def test_another_value_under_a_schema_is_itself_now_and_boxed_before(answer, schema):
    tool = make_tool(answer, schema)
    now, before = call(tool, modern=True), call(tool, modern=False)
    assert now["structuredContent"] == answer
    assert before["structuredContent"] == {"result": answer}
    for result in (now, before):
        assert json.loads(text_of(result)) == result["structuredContent"]


@ERAS
def test_text_without_a_schema_is_plain_text(modern):
    result = call(make_tool('say "hi"'), modern=modern)
    assert text_of(result) == 'say "hi"'
    assert "structuredContent" not in result


@pytest.mark.parametrize("answer", [[1, 2], 7, True, []])
def test_another_value_without_a_schema_is_itself_now_and_boxed_before(answer):
    now, before = call(make_tool(answer), modern=True), call(make_tool(answer), modern=False)
    assert now["structuredContent"] == answer
    assert before["structuredContent"] == {"result": answer}
    for result in (now, before):
        assert json.loads(text_of(result)) == result["structuredContent"]


@ERAS
def test_null_is_text_without_a_schema_and_boxed_under_one(modern):
    bare = call(make_tool(None), modern=modern)
    assert text_of(bare) == "null"
    assert "structuredContent" not in bare
    boxed = call(make_tool(None, {"type": ["integer", "null"]}), modern=modern)
    assert boxed["structuredContent"] == {"result": None}


@ERAS
@pytest.mark.parametrize("answer", [None, [1], "x", 3])
def test_an_answer_of_the_wrong_kind_under_warn_is_still_delivered_under_its_schema(answer, modern):
    tool = make_tool(answer, OFFER, "warn")
    result = call(tool, modern=modern)
    assert not result.get("isError")
    assert is_valid(encode_tool(tool, modern=modern)["outputSchema"], result["structuredContent"])
    assert json.loads(text_of(result)) == result["structuredContent"]
    assert result["_meta"]["callpact/warnings"][0]["code"] == "type"


@ERAS
@pytest.mark.parametrize(
    ("data", "kind", "mime"),
    [
        (PNG, "image", "image/png"),
        (b"\xff\xd8\xff\xe0", "image", "image/jpeg"),
        (b"ID3\x04", "audio", "audio/mpeg"),
    ],
)
def test_bytes_of_a_picture_or_a_sound_are_told_by_their_beginning(data, kind, mime, modern):
    result = call(make_tool(data), modern=modern)
    assert result["content"] == [
        {"type": kind, "data": base64.b64encode(data).decode(), "mimeType": mime}
    ]
    assert "structuredContent" not in result


@ERAS
def test_other_bytes_are_a_blob(modern):
    resource = call(make_tool(b"\x00\x01"), modern=modern)["content"][0]["resource"]
    assert resource["mimeType"] == "application/octet-stream"
    assert base64.b64decode(resource["blob"]) == b"\x00\x01"
    assert resource["uri"]


@ERAS
def test_the_content_type_of_an_upstream_wins(modern):
    answer = http_envelope(b"x", status_code=200, headers={}, content_type="audio/wav; rate=8000")
    block = call(make_tool(answer), modern=modern)["content"][0]
    assert (block["type"], block["mimeType"]) == ("audio", "audio/wav")


@ERAS
def test_bytes_where_structured_data_was_promised_are_an_error_that_still_holds_them(modern):
    result = call(make_tool(PNG, OFFER, "cast"), modern=modern)
    assert result["isError"]
    assert "structuredContent" not in result
    assert json.loads(text_of(result))["error"]["code"] == "output_validation_failed"
    assert result["content"][1]["mimeType"] == "image/png"


@ERAS
@pytest.mark.parametrize("output", [OFFER, STRINGS])
def test_bytes_under_warn_are_delivered_under_the_relaxed_schema(output, modern):
    tool = make_tool(PNG, output, "warn")
    result = call(tool, modern=modern)
    assert result["content"][0]["type"] == "image"
    assert is_valid(encode_tool(tool, modern=modern)["outputSchema"], result["structuredContent"])


@ERAS
def test_an_invented_value_is_named_in_the_text_and_in_the_meta(modern):
    result = call(make_tool({"price": "12.5"}, OFFER), modern=modern)
    assert result["structuredContent"] == {"price": 12.5, "stock": 0}
    assert "/stock" in text_of(result, 1)
    assert "/price" not in text_of(result, 1)
    changes = {change["path"]: change["action"] for change in result["_meta"]["callpact/changes"]}
    assert changes == {"/price": "converted", "/stock": "filled"}


@ERAS
def test_a_conversion_alone_needs_no_extra_text(modern):
    result = call(make_tool({"price": "12.5", "stock": 1}, OFFER), modern=modern)
    assert len(result["content"]) == 1
    assert result["_meta"]["callpact/changes"][0]["path"] == "/price"


@ERAS
def test_what_still_fails_after_the_cast_is_an_error_with_the_issues_and_the_data(modern):
    schema = {"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]}
    result = call(make_tool({"a": 1}, schema, "cast"), modern=modern)
    assert result["isError"]
    assert "structuredContent" not in result
    body = json.loads(text_of(result))
    assert body["error"]["code"] == "output_validation_failed"
    assert [issue["path"] for issue in body["error"]["issues"]] == ["/a"]
    assert body["data"] == {"a": 1}


@ERAS
def test_integers_beyond_64_bits_are_told_in_full(modern):
    result = call(make_tool({"a": 10**30}), modern=modern)
    assert json.loads(text_of(result)) == {"a": 10**30}


# --- errors ---------------------------------------------------------------------------------


def test_an_error_is_the_whole_json_error_as_text_and_no_structured_content():
    issues = [Issue("required", "Property 'q' is required", "/q"), Issue("type", "no", "/n")]
    result = encode_error(InvalidInput(lambda: issues))
    assert result["isError"]
    assert "structuredContent" not in result
    body = json.loads(text_of(result))["error"]
    assert body["code"] == "schema_validation_failed"
    assert [issue["path"] for issue in body["issues"]] == ["/q", "/n"]


def test_details_that_are_not_json_do_not_stop_an_error_from_being_told():
    result = encode_error(ToolError("odd", "\ud800", details={"who": {1, 2}, 3: object()}))
    text_of(result).encode()
    assert json.loads(text_of(result))["error"]["code"] == "odd"


def test_a_lone_surrogate_is_told_by_the_replacement_character_and_can_be_sent():
    result = encode_result(
        local_envelope({"a": "x\ud800", "\udfff": 1}, "t.t"),
        make_tool(output={"type": "object"}, policy="cast"),
        modern=True,
    )
    assert result["structuredContent"] == {"a": "x\ufffd", "\ufffd": 1}
    assert json.loads(text_of(result)) == result["structuredContent"]
    json.dumps(result, ensure_ascii=False).encode()


# --- relayed results ------------------------------------------------------------------------

TEXT = TextBlock("from upstream")
IMAGE = ImageBlock("aGk=", "image/png")


@ERAS
def test_content_blocks_of_another_server_are_passed_on_as_they_came(modern):
    answer = mcp_envelope([TEXT, IMAGE], is_error=False, content=[TEXT, IMAGE], meta_ext={"x/y": 1})
    result = call(make_tool(answer), modern=modern)
    assert result["content"] == [
        {"type": "text", "text": "from upstream"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    ]
    assert "structuredContent" not in result
    assert not result.get("isError")
    assert result["_meta"] == {"x/y": 1, "callpact/source": "mcp"}


@ERAS
@pytest.mark.parametrize("output", [None, OFFER])
def test_an_error_of_another_server_stays_an_error_without_structured_content(output, modern):
    answer = mcp_envelope({"a": 1}, is_error=True, content=[TEXT], structured_content={"a": 1})
    result = call(make_tool(answer, output), modern=modern)
    assert result["isError"]
    assert result["content"] == [{"type": "text", "text": "from upstream"}]
    assert "structuredContent" not in result


@ERAS
def test_structured_content_that_keeps_the_contract_is_passed_on_with_its_text(modern):
    data = {"price": 1.5, "stock": 2}
    answer = mcp_envelope(data, is_error=False, content=[TEXT], structured_content=data)
    result = call(make_tool(answer, OFFER), modern=modern)
    assert result["structuredContent"] == data
    assert text_of(result) == "from upstream"


@ERAS
def test_structured_content_that_was_fitted_is_delivered_fitted_and_so_is_its_text(modern):
    data = {"price": "1.5", "stock": 2, "vendor": "acme"}
    answer = mcp_envelope(data, is_error=False, content=[TEXT, IMAGE], structured_content=data)
    result = call(make_tool(answer, OFFER), modern=modern)
    assert result["structuredContent"] == {"price": 1.5, "stock": 2}
    assert json.loads(text_of(result)) == {"price": 1.5, "stock": 2}
    assert result["content"][1]["type"] == "image"


def test_structured_content_without_text_gets_a_text_that_mirrors_it():
    answer = mcp_envelope([1], is_error=False, content=[], structured_content=[1])
    now, before = call(make_tool(answer), modern=True), call(make_tool(answer), modern=False)
    assert now["structuredContent"] == json.loads(text_of(now)) == [1]
    assert before["structuredContent"] == json.loads(text_of(before)) == {"result": [1]}


@ERAS
def test_a_server_that_sends_no_structured_data_where_some_is_promised_is_an_error(modern):
    answer = mcp_envelope([TEXT], is_error=False, content=[TEXT])
    result = call(make_tool(answer, OFFER), modern=modern)
    assert result["isError"]
    assert json.loads(text_of(result))["error"]["code"] == "output_validation_failed"
    assert text_of(result, 1) == "from upstream"


@ERAS
def test_data_with_a_thin_meta_of_another_server_is_delivered(modern):
    result = call(make_tool({"data": {"a": 1}, "meta": {"source": "mcp"}}), modern=modern)
    assert result["structuredContent"] == json.loads(text_of(result)) == {"a": 1}
    assert not result.get("isError")


@ERAS
@pytest.mark.parametrize("policy", ["warn", "cast", "convert", "reject"])
def test_data_that_was_read_from_the_text_of_another_server_is_delivered_as_data(policy, modern):
    data = {"price": 1.5, "stock": 2}
    answer = mcp_envelope(data, is_error=False, content=[TextBlock(json.dumps(data))])
    tool = make_tool(answer, OFFER, policy)
    assert call(tool, modern=modern)["structuredContent"] == data


@ERAS
def test_data_that_was_cast_is_what_is_delivered_where_the_server_sent_no_structure(modern):
    answer = mcp_envelope({"price": "1.5", "stock": 2}, is_error=False, content=[TEXT, IMAGE])
    result = call(make_tool(answer, OFFER), modern=modern)
    assert result["structuredContent"] == {"price": 1.5, "stock": 2}
    assert json.loads(text_of(result)) == {"price": 1.5, "stock": 2}
    assert result["content"][1]["type"] == "image"


# --- the law --------------------------------------------------------------------------------

OUTPUTS = [
    None,
    OFFER,
    STRINGS,
    {"type": "object"},
    {"type": "string"},
    {"type": ["integer", "null"]},
    {"anyOf": [OFFER, STRINGS]},
    {"anyOf": [OFFER, {"type": "null"}]},
    {**OFFER, "additionalProperties": False},
    {"type": "object", "properties": {"a": {"not": {}}}},
    {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^x+$"}},
        "required": ["a"],
    },
    {"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 1},
    {"enum": ["kg", "lb"]},
    {"const": None},
    {"$ref": "#/$defs/Offer", "$defs": {"Offer": OFFER}},
    {"$ref": "#/properties/a", "properties": {"a": OFFER}},
    False,
    *TREES,
]
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "7", "kg"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["price", "stock", "a", "result"]), inner, max_size=4)
    ),
    max_leaves=6,
)
ANSWERS = (
    VALUES
    | st.binary(max_size=4)
    | VALUES.map(
        lambda data: mcp_envelope(data, is_error=False, content=[TEXT], structured_content=data)
    )
    | st.just(mcp_envelope([TEXT], is_error=False, content=[TEXT]))
    | VALUES.map(lambda data: mcp_envelope(data, is_error=False, content=[TEXT]))
    | VALUES.map(lambda data: mcp_envelope(data, is_error=False, content=[]))
    | st.just(mcp_envelope(None, is_error=True, content=[]))
    | VALUES.map(
        lambda data: http_envelope(data, status_code=200, headers={}, content_type="text/plain")
    )
)


@given(
    output=st.sampled_from(OUTPUTS),
    policy=st.sampled_from([None, "pass", "warn", "cast", "convert", "reject"]),
    answer=ANSWERS,
    modern=st.booleans(),
)
def test_what_is_delivered_never_breaks_what_is_published(output, policy, answer, modern):
    tool = make_tool(answer, output, policy)
    published = encode_tool(tool, modern=modern).get("outputSchema")
    try:
        result = call(tool, modern=modern)
    except CallError as error:
        result = encode_error(error)
    if result.get("isError"):
        assert "structuredContent" not in result
        return
    structured = result.get("structuredContent")
    assert modern or structured is None or isinstance(structured, dict)
    if published is not None:
        assert modern or published["type"] == "object"
        # The SDK's client refuses a result without structured content where a schema is published.
        assert structured is not None
        assert is_valid(published, structured)
