"""`KEY=VALUE` into arguments, results and failures into lines of text."""

from __future__ import annotations

import datetime as dt
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.envelope import local_envelope
from callpact.errors import InvalidInput, Issue, Timeout, ToolError, UnknownTool, UsageError
from callpact.schema import Change
from callpact.schema.json_text import json_text
from callpact.tool import OPEN, Access, Contract, Disabled, Tool
from callpact.wire.terminal import (
    MAX_FIELDS,
    argument_names,
    decode_arguments,
    encode_error,
    encode_failure,
    encode_fields,
    encode_json,
    encode_needs,
    encode_notes,
    encode_result,
    encode_summary,
    encode_traits,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "flag": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]},
        "size": {"enum": ["1", "2"]},
        "only": {"const": "3"},
        "kind": {"$ref": "#/$defs/Kind"},
        "all": {"allOf": [{"type": "string"}, {"minLength": 1}]},
        "any": {},
    },
    "required": ["text"],
    "$defs": {"Kind": {"type": "string"}},
}


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("text=12", "12"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("count=12", 12),
        ("count=twelve", "twelve"),
        ("count=99999999999999999999999", 99999999999999999999999),
        ("flag=true", True),
        ('tags=["a"]', ["a"]),
        ("maybe=null", None),
        ("maybe=3", 3),
        ("either=3", "3"),
        ("size=1", "1"),
        ("only=3", "3"),
        ("kind=5", "5"),
        ("all=5", "5"),
        ("any=5", 5),
        ("any=five", "five"),
        ("unknown=5", 5),
    ],
)
def test_a_value_is_text_where_the_schema_takes_text_and_else_json(pair, value):
    key = pair.partition("=")[0]
    decoded = decode_arguments(SCHEMA, [pair])
    assert decoded == {key: value}
    assert type(decoded[key]) is type(value)


def test_pairs_add_to_the_input_and_win():
    assert decode_arguments(SCHEMA, ["count=2"], '{"text": "a", "count": 1}') == {
        "text": "a",
        "count": 2,
    }


def test_input_that_is_not_an_object_is_left_to_the_gate():
    assert decode_arguments(SCHEMA, [], "[1]") == [1]


@pytest.mark.parametrize(
    ("pairs", "input_json", "named"),
    [
        (["text"], None, "'text'"),
        (["=x"], None, "'=x'"),
        (["count=1", "count=2"], None, "'count'"),
        (["count=1"], "[1]", "--input"),
        ([], "{", "--input"),
        ([], "", "--input"),
        ([], "[" * 100_000, "--input"),
    ],
)
def test_what_cannot_be_read_is_named(pairs, input_json, named):
    with pytest.raises(UsageError, match=named.replace("[", r"\[")):
        decode_arguments(SCHEMA, pairs, input_json)


def test_a_schema_behind_a_reference_is_read_too():
    schema = {"$ref": "#/$defs/S", "$defs": {"S": SCHEMA, "Kind": {"type": "string"}}}
    assert decode_arguments(schema, ["text=1", "count=1"]) == {"text": "1", "count": 1}
    rules = {field.name: field.rules for field in encode_fields(schema)}
    assert rules["size"] == 'enum ["1","2"], optional'
    assert rules["text"] == ""


def test_the_types_of_items_and_of_nested_objects_are_shown():
    price = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
    schema = {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}},
            "rows": {
                "type": "array",
                "items": {"type": "array", "items": {"type": ["integer", "null"]}},
            },
            "offers": {"type": "array", "items": {"$ref": "#/$defs/P"}},
            "bare": {"type": "array"},
        },
        "$defs": {"P": price},
    }
    kinds = {field.name: field.kind for field in encode_fields(schema)}
    assert kinds == {
        "tags": "array of string",
        "rows": "array of (array of (integer or null))",
        "offers": "array of object",
        "offers[].amount": "number",
        "bare": "array",
    }
    [amount] = encode_fields({"type": "array", "items": price})
    assert (amount.name, amount.rules) == ("[].amount", "")


def test_a_schema_that_holds_itself_is_shown_to_a_depth():
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert [field.name for field in encode_fields(node)] == ["next", "next.next", "next.next.next"]


def test_a_schema_with_very_many_properties_is_shown_to_a_number():
    node = {"type": "object", "properties": {f"p{n}": {} for n in range(10_000)}}
    assert len(encode_fields(node)) == MAX_FIELDS


def test_a_schema_that_is_not_an_object_takes_json():
    assert decode_arguments(True, ["a=1"]) == {"a": 1}


def test_notes_tell_warnings_before_changes():
    envelope = local_envelope({"price": 0}, "a.b")
    warned = type(envelope)(
        envelope.data,
        envelope.meta,
        (Issue("type", "Output property 'price' must be a number, got null", "/price"),),
        (Change("/price", "replaced", None, invented=True), Change("", "converted", "x")),
    )
    assert encode_notes(warned) == [
        "warning: Output property 'price' must be a number, got null [type]",
        "changed: /price was replaced",
        "changed: (the whole answer) was converted",
    ]


def test_every_issue_is_told_with_its_place_and_hint():
    issues = [
        Issue("required", "Property 'q' is required", "/q", hint="q: text"),
        Issue("type", "Input must be an object, got array", ""),
    ]
    assert encode_error(InvalidInput(lambda: issues)) == [
        "schema_validation_failed:",
        "  /q: Property 'q' is required",
        "    hint: q: text",
        "  (the whole value): Input must be an object, got array",
    ]


def test_a_failure_without_issues_is_one_line_and_its_details():
    error = ToolError("sold_out", "None left", path="/item", details={"left": 0})
    assert encode_error(error) == [
        "sold_out: None left (at /item)",
        '  details: {"left":0}',
    ]


@pytest.mark.parametrize("error", [UnknownTool("x"), Timeout("a.b", 12.0)])
def test_details_that_the_message_says_already_are_left_out(error):
    assert len(encode_error(error)) == 1


def test_a_summary_says_how_a_tool_is_called():
    async def handler(arguments, context):
        return None

    tool = Tool(id="a.b", description="Does.", contract=Contract(input=SCHEMA), handler=handler)
    summary = encode_summary(tool)
    assert summary["id"] == "a.b"
    assert summary["wireName"] == "a_b"
    assert summary["policy"] == "pass"
    assert argument_names(tool)[:2] == ["text", "[count]"]


async def answer(arguments, context):
    return None


async def stream(arguments, context):
    yield None


def make(name: str, **more) -> Tool:
    handler = stream if more.get("kind") == "subscription" else answer
    return Tool(id=f"a.{name}", description="", contract=Contract(), handler=handler, **more)


@pytest.mark.parametrize(
    ("access", "needs", "wire"),
    [
        (Access(["admin"]), "scope admin", {"requiredScopes": ["admin"]}),
        (Access(["a", "b"]), "scopes a, b", {"requiredScopes": ["a", "b"]}),
        (
            Access(any_scopes=["a", "b"]),
            "one of the scopes a, b",
            {"requiredScopesAny": ["a", "b"]},
        ),
        (
            Access(["a"], resource_type="project", resource_action="read"),
            "scope a; the right to read some project",
            {"requiredScopes": ["a"], "resourceType": "project", "resourceAction": "read"},
        ),
    ],
)
def test_what_a_caller_needs_is_told_in_words_and_in_json(access, needs, wire):
    tool = make("b", access=access)
    assert encode_needs(access) == needs
    assert encode_traits(tool) == f"needs {needs}"
    assert encode_summary(tool)["access"] == wire


def test_an_open_tool_is_told_without_a_word_about_access():
    assert encode_needs(OPEN) == ""
    assert encode_traits(make("b")) == ""
    assert "access" not in encode_summary(make("b", access=Access()))


def test_a_subscription_is_told_before_what_it_needs():
    tool = make("b", kind="subscription", access=["admin"])
    assert encode_traits(tool) == "subscription; needs scope admin"
    assert encode_summary(tool)["kind"] == "subscription"


MISSING = Disabled("server_param_missing", "It needs A_KEY")


def test_a_disabled_tool_is_told_with_its_reason_and_its_code():
    tool = make("b", disabled=MISSING, access=["admin"])
    assert encode_traits(tool) == "disabled: It needs A_KEY; needs scope admin"
    summary = encode_summary(tool)
    assert summary["disabled"] == {"code": "server_param_missing", "reason": "It needs A_KEY"}
    assert "disabled" not in encode_summary(make("b"))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("data", {"a": 1}),
        ("gate", {"a": 1}),
        ("flowmcp", {"status": True, "messages": [], "data": {"a": 1}}),
    ],
)
def test_a_result_has_a_form_for_every_reader(form, expected):
    assert encode_result(local_envelope({"a": 1}, "a.b"), form) == expected


def test_the_form_of_an_envelope_holds_warnings_only_where_there_are_some():
    envelope = local_envelope(1, "a.b")
    warned = type(envelope)(1, envelope.meta, (Issue("type", "Wrong", "/a"),))
    assert set(encode_result(envelope, "envelope")) == {"data", "meta"}
    wire = encode_result(warned, "envelope")
    assert [issue["path"] for issue in wire["warnings"]] == ["/a"]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("data", None),
        ("envelope", None),
        ("gate", {"error": {"code": "sold_out", "message": "None left"}}),
        ("flowmcp", {"status": False, "messages": ["E005 b: None left"], "data": None}),
    ],
)
def test_a_failure_has_a_form_where_the_format_has_one(form, expected):
    assert encode_failure(ToolError("sold_out", "None left"), form, "b") == expected


def test_json_on_one_line_is_one_line_whatever_it_holds():
    value = {"text": "a\r\nb", "big": 10**30, "list": [1, 2]}
    text = encode_json(value, is_line=True)
    assert text.splitlines() == [text]
    assert json.loads(text) == value
    assert " " not in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(JSON.filter(lambda value: "inf" not in repr(value)), st.booleans())
def test_json_text_reads_back_as_the_same_value(value, indent):
    assert json.loads(json_text(value, indent=indent)) == value


@pytest.mark.parametrize(
    "value",
    [
        10**30,
        10**5000,
        {1: 2},
        {"a": {3}},
        "\ud800",
        [math.nan],
        dt.date(2026, 1, 1),
        object(),
        {"a": [10**30, math.inf]},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_say_is_still_told_as_json(value):
    text = encode_json(value)
    text.encode()
    json.loads(text, parse_constant=pytest.fail)
