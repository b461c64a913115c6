"""Seed 004, row by row: Data Tools from property blocks, both gates, and what a model reads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import pytest

from callpact import Runtime, ToolError, data_tool
from callpact.audit import open_store, record_calls
from callpact.audit.store import Filter
from callpact.errors import CallError, InvalidInput, OutputRejected
from callpact.schema import (
    PropertyArray,
    PropertyBoolean,
    PropertyEnum,
    PropertyGroup,
    PropertyInteger,
    PropertyNumber,
    PropertyString,
    check,
)
from callpact.sources import exhausted_message
from callpact.wire.plain import encode_error

# The table "What gets validated": what is declared, a value that passes, one that does not.
STRING = PropertyString(required=True)
EVERY_TYPE = {
    "string": (PropertyString(), "x", 5),
    "number": (PropertyNumber(), 1.5, "1.5"),
    "integer": (PropertyInteger(), 1, 1.5),
    "boolean": (PropertyBoolean(), True, "true"),
    "array": (PropertyArray(valueType=PropertyString()), ["x"], "x"),
    "group": (PropertyGroup(properties={}), {}, []),
}


class _Heard:
    """A handler that remembers its input and gives one answer."""

    def __init__(self, answer=None):
        self.inputs = []
        self.answer = {} if answer is None else answer

    async def __call__(self, props, context):
        self.inputs.append(props)
        return self.answer


def _call(properties, arguments, output=None, answer=None):
    heard, events = _Heard(answer), []
    tool = data_tool("Product Search", properties, output or {}, heard)
    runtime = Runtime([tool], observers=[events.append])
    try:
        result = asyncio.run(runtime.execute(tool.id, arguments))
    except CallError as error:
        result = error
    assert len(events) == 1
    return result, heard


def _passes(properties, arguments):
    result, heard = _call(properties, arguments)
    assert not isinstance(result, CallError), result
    assert len(heard.inputs) == 1


def _rejects(properties, arguments, code, path):
    error, heard = _call(properties, arguments)
    assert isinstance(error, InvalidInput)
    assert error.code == "schema_validation_failed"
    assert (error.issues[0].code, error.path) == (code, path)
    assert heard.inputs == []


# --- where validation runs ------------------------------------------------------------------


@pytest.mark.requirement("004.gate.generated")
@pytest.mark.requirement("004.gate.json-schema")
def test_the_input_schema_is_a_json_schema_made_from_the_properties():
    block = {
        "q": PropertyString(required=True, minLength=2),
        "limit": {"type": "number", "max": 50},
    }
    schema = data_tool("t", block, {}, _Heard()).contract.input
    assert schema["type"] == "object"
    assert schema["required"] == ["q"]
    assert check(schema, {"q": "tea", "limit": 50}) == []
    assert [issue.code for issue in check(schema, {"q": "t"})] == ["minLength"]
    assert [issue.code for issue in check(schema, {"q": "tea", "limit": 51})] == ["maximum"]


@pytest.mark.requirement("004.gate.first")
@pytest.mark.requirement("004.gate.bad-input-never-reaches-handler")
def test_bad_input_never_reaches_a_data_tools_handler():
    _rejects({"price": PropertyString()}, {"price": 5}, "type", "/price")


# --- what gets validated --------------------------------------------------------------------


@pytest.mark.requirement("004.gate.required")
def test_required_fields_must_be_present():
    _passes({"q": STRING}, {"q": "tea"})
    _rejects({"q": STRING}, {}, "required", "/q")


@pytest.mark.requirement("004.gate.types")
@pytest.mark.parametrize("kind", EVERY_TYPE)
def test_field_types_must_match(kind):
    prop, good, bad = EVERY_TYPE[kind]
    _passes({"x": prop}, {"x": good})
    _rejects({"x": prop}, {"x": bad}, "type", "/x")
    _rejects({"x": prop}, {"x": None}, "type", "/x")


@pytest.mark.requirement("004.gate.enum")
@pytest.mark.parametrize(
    "prop",
    [
        PropertyEnum(options=["open", "closed"]),
        {"type": "string", "enum": ["open", "closed"]},
        PropertyEnum(options=[{"value": "open", "label": "Open"}, {"value": "closed"}]),
    ],
)
def test_enum_values_must_be_among_the_options(prop):
    _passes({"status": prop}, {"status": "open"})
    _rejects({"status": prop}, {"status": "pending"}, "enum", "/status")


@pytest.mark.requirement("004.gate.min-max")
@pytest.mark.parametrize("prop", [PropertyNumber(min=1, max=50), PropertyInteger(min=1, max=50)])
def test_numbers_must_lie_between_min_and_max(prop):
    for limit in (1, 50):
        _passes({"limit": prop}, {"limit": limit})
    _rejects({"limit": prop}, {"limit": 0}, "minimum", "/limit")
    _rejects({"limit": prop}, {"limit": 51}, "maximum", "/limit")


@pytest.mark.requirement("004.gate.length")
def test_texts_must_have_their_length():
    prop = PropertyString(minLength=2, maxLength=3)
    for text in ("ab", "abc"):
        _passes({"q": prop}, {"q": text})
    _rejects({"q": prop}, {"q": "a"}, "minLength", "/q")
    _rejects({"q": prop}, {"q": "abcd"}, "maxLength", "/q")


@pytest.mark.requirement("004.gate.items")
def test_arrays_must_have_their_number_of_items():
    prop = PropertyArray(valueType=PropertyString(), minItems=1, maxItems=2)
    for items in (["a"], ["a", "b"]):
        _passes({"tags": prop}, {"tags": items})
    _rejects({"tags": prop}, {"tags": []}, "minItems", "/tags")
    _rejects({"tags": prop}, {"tags": ["a", "b", "c"]}, "maxItems", "/tags")


@pytest.mark.requirement("004.gate.pattern")
def test_texts_must_match_their_pattern():
    prop = {"type": "string", "pattern": "^[^@]+@[^@]+$", "description": "User's email address"}
    _passes({"email": prop}, {"email": "ann@example.com"})
    _rejects({"email": prop}, {"email": "ann"}, "pattern", "/email")


@pytest.mark.requirement("004.gate.groups")
def test_nested_groups_are_checked_at_every_level():
    inner = PropertyGroup(required=True, properties={"zip": PropertyString(required=True)})
    outer = {"user": PropertyGroup(required=True, properties={"address": inner})}
    _passes(outer, {"user": {"address": {"zip": "10115"}}})
    _rejects(outer, {"user": {"address": {"zip": 10115}}}, "type", "/user/address/zip")
    _rejects(outer, {"user": {"address": {}}}, "required", "/user/address/zip")
    _rejects(outer, {"user": {}}, "required", "/user/address")


@pytest.mark.requirement("004.gate.array-items")
def test_items_of_arrays_must_match_their_value_type():
    prop = PropertyArray(valueType=PropertyGroup(properties={"id": PropertyInteger(required=True)}))
    _passes({"rows": prop}, {"rows": [{"id": 1}, {"id": 2}]})
    _rejects({"rows": prop}, {"rows": [{"id": 1}, {"id": "2"}]}, "type", "/rows/1/id")
    _rejects({"rows": prop}, {"rows": [{"id": 1}, 2]}, "type", "/rows/1")


# --- rejections -----------------------------------------------------------------------------


@pytest.mark.requirement("004.error.shape")
@pytest.mark.requirement("004.error.example")
def test_the_model_reads_the_seeds_example_to_the_letter():
    error, _ = _call({"price": PropertyString()}, {"price": 5})
    assert encode_error(error) == {
        "error": {
            "code": "schema_validation_failed",
            "message": "Property 'price' must be a string, got number",
            "path": "/price",
        }
    }


@pytest.mark.requirement("004.retry.by-the-ai")
def test_a_rejected_call_is_not_tried_again_by_the_server_and_a_corrected_one_passes():
    heard, events = _Heard(), []
    tool = data_tool("Product Search", {"limit": PropertyInteger(max=50)}, {}, heard)
    runtime = Runtime([tool], observers=[events.append])
    with pytest.raises(InvalidInput):
        asyncio.run(runtime.execute(tool.id, {"limit": 80}))
    assert (len(events), heard.inputs) == (1, [])
    asyncio.run(runtime.execute(tool.id, {"limit": events[0].error.issues[0].expected}))
    assert (len(events), heard.inputs) == (2, [{"limit": 50}])


@pytest.mark.requirement("004.user.exhausted-message")
def test_the_user_reads_the_seeds_sentence():
    assert exhausted_message("product_search") == (
        "The assistant tried to use product_search but the input didn't match the expected format."
    )


# --- designing schemas ----------------------------------------------------------------------


@pytest.mark.requirement("004.design.description")
@pytest.mark.requirement("004.design.enum")
def test_descriptions_and_enums_stand_in_the_schema_that_models_read():
    block = {
        "searchTerm": PropertyString(description="Term to search for"),
        "status": PropertyEnum(options=["open", "closed", "pending"]),
    }
    published = data_tool("t", block, {}, _Heard()).contract.input["properties"]
    assert published["searchTerm"]["description"] == "Term to search for"
    assert published["status"]["enum"] == ["open", "closed", "pending"]


@pytest.mark.requirement("004.design.defaults")
def test_an_optional_field_with_a_default_need_not_be_sent_and_reaches_the_handler():
    block = {"limit": PropertyInteger(defaultValue=10, max=50)}
    _, heard = _call(block, {})
    assert heard.inputs == [{"limit": 10}]
    published = data_tool("t", block, {}, _Heard()).contract.input
    assert published["properties"]["limit"]["default"] == 10
    assert "limit" not in published.get("required", [])


@pytest.mark.requirement("004.design.no-empty-input")
def test_empty_texts_and_arrays_are_stopped_by_the_schema():
    _rejects({"q": PropertyString(minLength=1)}, {"q": ""}, "minLength", "/q")
    ids = PropertyArray(valueType=PropertyString(), minItems=1)
    _rejects({"ids": ids}, {"ids": []}, "minItems", "/ids")


# --- schema and handler ---------------------------------------------------------------------


@pytest.mark.requirement("004.handler.trusts-shape")
def test_a_handler_sees_only_what_was_declared():
    _, heard = _call({"q": STRING}, {"q": "tea", "debug": True})
    assert heard.inputs == [{"q": "tea"}]


@pytest.mark.requirement("004.handler.business-rules")
@pytest.mark.requirement("004.custom.tool-error")
@pytest.mark.requirement("004.custom.tool-error-is-clean")
def test_a_cross_field_rule_of_the_handler_reads_like_a_rejection():
    async def handler(props, context):
        if props["startDate"] > props["endDate"]:
            raise ToolError("invalid_input", "startDate must be before endDate")
        return {}

    block = {"startDate": STRING, "endDate": STRING}
    runtime = Runtime([data_tool("Report", block, {}, handler)])
    with pytest.raises(ToolError) as caught:
        asyncio.run(
            runtime.execute("data.report", {"startDate": "2026-02-01", "endDate": "2026-01-01"})
        )
    assert encode_error(caught.value) == {
        "error": {"code": "invalid_input", "message": "startDate must be before endDate"}
    }


# --- output ---------------------------------------------------------------------------------

# The seed's own output block.
OUTPUT = {
    "products": PropertyArray(
        valueType=PropertyGroup(properties={"id": PropertyString(), "price": PropertyNumber()})
    ),
    "total": PropertyNumber(),
}
PRODUCT = {"id": "k1", "price": 2.5}


@pytest.mark.requirement("004.output.after-handler")
def test_an_answer_that_keeps_its_block_is_delivered_as_it_is():
    answer = {"products": [PRODUCT], "total": 1}
    result, heard = _call({}, {}, OUTPUT, answer)
    assert result.data == answer
    assert heard.inputs == [{}]


@pytest.mark.requirement("004.output.after-handler")
@pytest.mark.requirement("004.output.rejects-mismatch")
@pytest.mark.requirement("004.output.structured-error")
@pytest.mark.requirement("004.output.protects-callers")
@pytest.mark.parametrize(
    ("answer", "path"),
    [
        ({"products": [], "total": "1"}, "/total"),
        ({"products": []}, "/total"),
        ({"products": [], "total": 0, "debug": 1}, "/debug"),
        ({"products": [{"id": "k1"}], "total": 1}, "/products/0/price"),
        ({"products": [{**PRODUCT, "vendor": "acme"}], "total": 1}, "/products/0/vendor"),
        ({"products": [{"id": 1, "price": 1}], "total": 1}, "/products/0/id"),
    ],
)
def test_wrong_missing_and_extra_fields_are_rejected_at_every_level(answer, path):
    error, heard = _call({}, {}, OUTPUT, answer)
    assert isinstance(error, OutputRejected)
    assert len(heard.inputs) == 1
    told = encode_error(error)
    assert told["error"]["code"] == "output_validation_failed"
    assert told["error"]["message"].startswith("Output")
    assert told["error"]["path"] == path
    assert set(told) == {"error"}


# --- observability ----------------------------------------------------------------------------


def _search_log(tmp_path, limits):
    """The log of a search that was called once with each limit, of which 50 is the largest."""
    block = {"query": STRING, "limit": PropertyInteger(max=50)}
    search = data_tool("Product Search", block, {}, _Heard())

    async def go():
        with record_calls(tmp_path) as recorder:
            runtime = Runtime([search], observers=[recorder])
            for limit in limits:
                with contextlib.suppress(CallError):
                    await runtime.execute(search.id, {"query": "tea", "limit": limit})

    asyncio.run(go())
    return search, open_store(tmp_path)


@pytest.mark.requirement("004.audit.every-rejection")
@pytest.mark.requirement("004.audit.timestamp")
@pytest.mark.requirement("004.audit.tool")
@pytest.mark.requirement("004.audit.input")
@pytest.mark.requirement("004.audit.error")
def test_every_rejection_is_on_record_with_its_time_tool_input_and_error(tmp_path):
    before = time.time() * 1000
    search, store = _search_log(tmp_path, [80, 10, 51])
    rejected = [store.find(record.id) for record in store.log(Filter(gate="input"))]
    assert len(rejected) == 2
    for record, limit in zip(reversed(rejected), (80, 51), strict=True):
        assert before - 1 <= record.at <= time.time() * 1000
        assert record.tool == search.id
        assert json.loads(record.input.json) == {"query": "tea", "limit": limit}
        assert record.message == f"Property 'limit' must be ≤ 50, got {limit}"
        assert (record.code, record.path) == ("schema_validation_failed", "/limit")
    store.close()


@pytest.mark.requirement("004.audit.patterns")
def test_the_log_says_that_five_per_cent_of_the_calls_fail_with_one_error(tmp_path):
    search, store = _search_log(tmp_path, [80, *[10] * 18, 99, *[20] * 20])
    [cause] = store.causes(Filter(tool=search.id))
    assert (cause.calls, cause.of, cause.rate) == (2, 40, 0.05)
    assert cause.key == "schema_validation_failed:/limit:maximum"
    assert store.causes(Filter(tool="other.*")) == []
    store.close()
