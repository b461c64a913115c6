"""Data Tools over the runtime: nothing wrong gets in, nothing wrong gets out."""

from __future__ import annotations

import asyncio
import copy
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact import data_tool
from callpact.catalog import Catalog
from callpact.envelope import ResponseEnvelope, local_envelope
from callpact.errors import (
    DuplicateTool,
    HandlerCrashed,
    InvalidInput,
    InvalidTool,
    NotJson,
    OutputRejected,
    ToolError,
)
from callpact.runtime import Runtime
from callpact.schema import (
    PropertyArray,
    PropertyBoolean,
    PropertyDate,
    PropertyGroup,
    PropertyInteger,
    PropertyNumber,
    PropertyString,
    check,
)
from callpact.sources import exhausted_message


class Handler:
    """Remembers what it was given, and answers what it was told to."""

    def __init__(self, answer=None):
        self.answer = {"ok": True} if answer is None else answer
        self.seen = []

    async def __call__(self, props, context):
        self.seen.append(props)
        return self.answer


_OK = {"ok": PropertyBoolean(required=False)}


def run(tool, arguments=None, observers=()):
    return asyncio.run(Runtime([tool], observers).execute(tool.id, arguments))


def seen_by_handler(properties, arguments, **options):
    handler = Handler()
    run(data_tool("t", properties, _OK, handler, **options), arguments)
    [props] = handler.seen
    return props


def rejection(properties, arguments, **options):
    handler = Handler()
    with pytest.raises(InvalidInput) as caught:
        run(data_tool("t", properties, _OK, handler, **options), arguments)
    assert handler.seen == [], "the handler must not be called"
    return caught.value


def output_rejection(output, answer):
    finished = []
    tool = data_tool("t", {}, output, Handler(answer))
    with pytest.raises(OutputRejected) as caught:
        run(tool, {}, [finished.append])
    assert caught.value.code == "output_validation_failed"
    assert caught.value.message.startswith("Output")
    assert [event.envelope for event in finished] == [None], "nothing may be delivered"
    return caught.value


# --- declaration ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tool_id"),
    [
        ("Product Search", "data.product_search"),
        ("product_search", "data.product_search"),
        ("  Product -- Detail (2) ", "data.product_detail_2"),
        ("Café Liste", "data.cafe_liste"),
        ("shop.Find-It", "shop.Find-It"),
    ],
)
def test_a_name_is_slugged_and_one_with_a_dot_is_the_id(name, tool_id):
    assert data_tool(name, {}, {}, Handler()).id == tool_id


def test_a_data_tool_rejects_bad_output_and_carries_what_it_was_declared_with():
    tool = data_tool(
        "Product Search",
        properties={},
        output={"total": PropertyNumber()},
        handler=Handler(),
        namespace="shop",
        description="Finds products",
        title="Search",
        tags=["catalog"],
        version="1.0.0",
        kind="mutation",
    )
    assert tool.id == "shop.product_search"
    assert (tool.description, tool.title, tool.tags) == ("Finds products", "Search", ("catalog",))
    assert (tool.version, tool.kind) == ("1.0.0", "mutation")
    assert tool.contract.policy == "reject"
    assert tool.contract.output == {
        "type": "object",
        "properties": {"total": {"type": "number"}},
        "required": ["total"],
        "additionalProperties": False,
    }
    assert data_tool("t", {}, {}, Handler()).kind == "query"


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        (lambda: data_tool("t", {}, None, Handler()), "output"),
        (lambda: data_tool("t", {"p": {"type": "?"}}, {}, Handler()), "properties at /p"),
        (lambda: data_tool("t", {}, {"p": {"type": "?"}}, Handler()), "output at /p"),
        (lambda: data_tool("t", None, {}, Handler()), "properties"),
        (lambda: data_tool("t", {}, {}, "no function"), "(props, context)"),
        (lambda: data_tool("t", {}, {}, lambda props: {}), "(props, context)"),
        (lambda: data_tool("t", {}, {}, Handler(), kind="interactive"), "kind"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_under_the_tools_id(declare, told):
    with pytest.raises(InvalidTool) as caught:
        declare()
    assert str(caught.value).startswith("tool 'data.t': ")
    assert told in str(caught.value)


@pytest.mark.parametrize("name", ["", "???", None, "a.b c"])
def test_a_name_that_gives_no_id_is_refused(name):
    with pytest.raises(InvalidTool):
        data_tool(name, {}, {}, Handler())


def test_a_generator_is_no_handler():
    async def handler(props, context):
        yield {}

    with pytest.raises(InvalidTool):
        data_tool("t", {}, {}, handler)


def test_two_tools_of_one_name_are_told_apart_by_their_handlers():
    async def first(props, context):
        return {}

    async def second(props, context):
        return {}

    with pytest.raises(DuplicateTool) as caught:
        Catalog([data_tool("a b", {}, {}, first), data_tool("A B", {}, {}, second)])
    assert "first" in str(caught.value)
    assert "second" in str(caught.value)


# --- the gate on the way in -----------------------------------------------------------------


def test_the_seeds_rejection_is_met_to_the_letter():
    error = rejection({"price": PropertyString()}, {"price": 12})
    assert {"error": {"code": error.code, "message": error.message, "path": error.path}} == {
        "error": {
            "code": "schema_validation_failed",
            "message": "Property 'price' must be a string, got number",
            "path": "/price",
        }
    }


@pytest.mark.parametrize(
    ("prop", "value", "rule"),
    [
        (PropertyString(), 1, "type"),
        (PropertyNumber(), "1", "type"),
        (PropertyBoolean(), "true", "type"),
        (PropertyArray(value_type=PropertyString()), "a", "type"),
        ({"type": "enum", "options": ["open", "closed"]}, "pending", "enum"),
        (PropertyNumber(min=1), 0, "minimum"),
        (PropertyNumber(max=50), 51, "maximum"),
        (PropertyString(min_length=1), "", "minLength"),
        (PropertyString(max_length=2), "abc", "maxLength"),
        (PropertyArray(value_type=PropertyString(), min_items=1), [], "minItems"),
        (PropertyArray(value_type=PropertyString(), max_items=1), ["a", "b"], "maxItems"),
        (PropertyString(pattern="^[^@]+@[^@]+$"), "nobody", "pattern"),
        (PropertyString(format="email"), "nobody", "format"),
        (PropertyDate(min_date="2024-01-01"), "2023-12-31", "formatMinimum"),
    ],
)
def test_each_feature_is_validated_before_the_handler(prop, value, rule):
    error = rejection({"p": prop}, {"p": value})
    assert error.code == "schema_validation_failed"
    assert error.path == "/p"
    assert [issue.code for issue in error.issues] == [rule]


def test_a_missing_required_property_is_reported_where_it_should_stand():
    error = rejection({"q": PropertyString(required=True)}, {})
    assert (error.message, error.path) == ("Property 'q' is required", "/q")


def test_the_path_leads_through_groups_and_items():
    rows = PropertyArray(value_type=PropertyGroup(properties={"name": PropertyString()}))
    error = rejection(
        {"f": PropertyGroup(properties={"rows": rows})}, {"f": {"rows": [{"name": 1}]}}
    )
    assert error.path == "/f/rows/0/name"


@pytest.mark.parametrize("arguments", [[], "text", 1, True])
def test_arguments_that_are_no_object_are_rejected(arguments):
    assert rejection({}, arguments).path == ""


# --- what the handler sees ------------------------------------------------------------------


def test_missing_properties_are_filled_with_their_defaults():
    properties = {
        "limit": PropertyInteger(default_value=10),
        "tags": PropertyArray(value_type=PropertyString(), default_value=["new"]),
        "q": PropertyString(),
    }
    assert seen_by_handler(properties, {}) == {"limit": 10, "tags": ["new"]}
    assert seen_by_handler(properties, {"limit": 3, "q": ""}) == {
        "limit": 3,
        "tags": ["new"],
        "q": "",
    }


def test_a_default_of_false_zero_or_empty_text_is_filled_too():
    properties = {
        "no": PropertyBoolean(default_value=False),
        "zero": PropertyNumber(default_value=0),
        "empty": PropertyString(default_value=""),
    }
    assert seen_by_handler(properties, {}) == {"no": False, "zero": 0, "empty": ""}


_SORT = PropertyGroup(
    properties={"by": PropertyString(default_value="price"), "down": PropertyBoolean()}
)


def test_defaults_are_filled_inside_a_group_only_if_the_group_is_there():
    assert seen_by_handler({"sort": _SORT}, {}) == {}
    assert seen_by_handler({"sort": _SORT}, {"sort": {}}) == {"sort": {"by": "price"}}
    assert seen_by_handler({"sort": _SORT}, {"sort": {"down": True}}) == {
        "sort": {"by": "price", "down": True}
    }


def test_a_group_with_a_default_of_its_own_is_filled_and_completed():
    sort = {**_SORT, "defaultValue": {"down": False}}
    assert seen_by_handler({"sort": sort}, {}) == {"sort": {"by": "price", "down": False}}


def test_defaults_are_filled_in_every_item_of_an_array():
    rows = PropertyArray(value_type=_SORT)
    assert seen_by_handler({"rows": rows}, {"rows": [{}, {"by": "name"}]}) == {
        "rows": [{"by": "price"}, {"by": "name"}]
    }


def test_a_handler_that_changes_its_arguments_changes_neither_defaults_nor_the_callers_data():
    def handler(props, context):
        answer = {"seen": list(props["tags"])}
        props["tags"].append("changed")
        props["sort"]["by"] = "changed"
        props["more"].append("changed")
        return answer

    tags = PropertyArray(value_type=PropertyString(), default_value=["new"])
    tool = data_tool(
        "t",
        {"tags": tags, "more": PropertyArray(value_type=PropertyString()), "sort": _SORT},
        {"seen": tags},
        handler,
    )
    arguments = {"sort": {"by": "name"}, "more": ["a"], "undeclared": 1}
    before = copy.deepcopy(arguments)
    assert run(tool, arguments).data == {"seen": ["new"]}
    assert run(tool, arguments).data == {"seen": ["new"]}
    assert arguments == before


def test_undeclared_keys_are_stripped_at_every_level():
    properties = {"sort": _SORT, "rows": PropertyArray(value_type=_SORT)}
    arguments = {
        "sort": {"by": "name", "x": 1},
        "rows": [{"by": "name", "y": {"z": 1}}],
        "w": None,
    }
    assert seen_by_handler(properties, arguments) == {
        "sort": {"by": "name"},
        "rows": [{"by": "name"}],
    }


def test_strict_input_rejects_undeclared_keys_at_every_level_with_a_hint():
    properties = {"limit": PropertyInteger(), "rows": PropertyArray(value_type=_SORT)}
    error = rejection(properties, {"limt": 3}, strict_input=True)
    assert (error.code, error.path) == ("schema_validation_failed", "/limt")
    assert error.issues[0].hint == "did you mean 'limit'?"
    deep = rejection(properties, {"rows": [{"x": 1}]}, strict_input=True)
    assert deep.path == "/rows/0/x"


def test_strict_input_is_published_and_open_input_is_not_closed():
    def is_closed(**options):
        schema = data_tool("t", {}, {}, Handler(), **options).contract.input
        return schema.get("additionalProperties") is False

    assert is_closed(strict_input=True)
    assert not is_closed()


def test_the_observer_is_told_the_arguments_as_they_came():
    finished = []
    tool = data_tool("t", {"limit": PropertyInteger(default_value=1)}, _OK, Handler())
    run(tool, {"x": 1}, [finished.append])
    assert finished[0].arguments == {"x": 1}


# --- handlers -------------------------------------------------------------------------------


def test_a_sync_handler_runs_in_a_thread_of_its_own():
    def handler(props, context):
        return {"thread": threading.get_ident(), "tool": context.tool_id}

    tool = data_tool("t", {}, {"thread": PropertyInteger(), "tool": PropertyString()}, handler)
    data = run(tool).data
    assert data["thread"] != threading.get_ident()
    assert data["tool"] == "data.t"


def test_a_sync_handler_that_returns_an_awaitable_is_awaited():
    answer = Handler({"ok": False})

    def handler(props, context):
        return answer(props, context)

    tool = data_tool("t", {}, _OK, handler)
    assert run(tool).data == {"ok": False}


def test_a_tool_error_passes_with_its_own_code():
    async def handler(props, context):
        raise ToolError("invalid_input", "startDate must be before endDate")

    with pytest.raises(ToolError) as caught:
        run(data_tool("t", {}, _OK, handler))
    assert caught.value.code == "invalid_input"
    assert caught.value.message == "startDate must be before endDate"
    assert caught.value.path is None


def test_a_tool_error_from_a_thread_passes_too():
    def handler(props, context):
        raise ToolError("out_of_stock", "None left", path="/id")

    with pytest.raises(ToolError) as caught:
        run(data_tool("t", {}, _OK, handler))
    assert (caught.value.code, caught.value.path) == ("out_of_stock", "/id")


@pytest.mark.parametrize("kind", [RuntimeError, KeyError, StopIteration, TimeoutError])
@pytest.mark.parametrize("is_async", [True, False])
def test_an_unexpected_exception_leaks_nothing(kind, is_async):
    def fail(props, context):
        raise kind("password=hunter2")

    async def fail_later(props, context):
        fail(props, context)

    tool = data_tool("t", {}, _OK, fail_later if is_async else fail)
    with pytest.raises(HandlerCrashed) as caught:
        run(tool)
    error = caught.value
    assert error.code == "handler_error"
    assert "hunter2" not in f"{error} {error.message} {error.args} {error.details}"
    assert error.__cause__ is None


# --- the gate on the way out ----------------------------------------------------------------

_PRODUCTS = {
    "products": PropertyArray(
        value_type=PropertyGroup(
            properties={
                "name": PropertyString(),
                "note": PropertyString(required=False),
                "made": PropertyGroup(properties={"on": PropertyDate()}, required=False),
            }
        )
    ),
    "total": PropertyNumber(),
}


def test_an_answer_that_keeps_its_block_is_delivered_unchanged():
    answer = {"products": [{"name": "a"}, {"name": "b", "note": "n"}], "total": 2}
    envelope = run(data_tool("t", {}, _PRODUCTS, Handler(answer)))
    assert envelope.data == answer
    assert (envelope.warnings, envelope.changes) == ((), ())


@pytest.mark.parametrize(
    ("answer", "path", "rule"),
    [
        ({"products": [], "total": "2"}, "/total", "type"),
        ({"products": [], "total": None}, "/total", "type"),
        ({"products": {}, "total": 2}, "/products", "type"),
        ({"products": []}, "/total", "required"),
        ({"products": [{}], "total": 1}, "/products/0/name", "required"),
        ({"products": [], "total": 2, "page": 1}, "/page", "additionalProperties"),
        (
            {"products": [{"name": "a", "x": 1}], "total": 1},
            "/products/0/x",
            "additionalProperties",
        ),
        (
            {"products": [{"name": "a", "made": {"on": "2024-01-01", "at": 1}}], "total": 1},
            "/products/0/made/at",
            "additionalProperties",
        ),
        (
            {"products": [{"name": "a", "made": {"on": "soon"}}], "total": 1},
            "/products/0/made/on",
            "format",
        ),
        ([], "", "type"),
        ("text", "", "type"),
        (7, "", "type"),
        (b"bytes", "", "type"),
        (bytearray(b"bytes"), "", "type"),
    ],
)
def test_an_answer_that_breaks_its_block_is_not_delivered(answer, path, rule):
    error = output_rejection(_PRODUCTS, answer)
    assert error.path == path
    assert error.issues[0].code == rule


def test_the_message_names_the_output_the_property_and_what_came():
    error = output_rejection(_PRODUCTS, {"products": [], "total": "2"})
    assert error.message == "Output property 'total' must be a number, got string"


def test_no_answer_at_all_is_rejected():
    async def handler(props, context):
        return None

    with pytest.raises(OutputRejected) as caught:
        run(data_tool("t", {}, _OK, handler))
    assert caught.value.path == ""


def test_an_answer_that_is_not_json_is_rejected_with_its_place():
    error = output_rejection(_OK, {"ok": object()})
    assert isinstance(error, NotJson)
    assert error.path == "/ok"


@pytest.mark.parametrize(
    "meta", [{"source": "mcp", "isError": True, "content": []}, {"source": "local"}]
)
def test_data_that_looks_like_an_envelope_does_not_get_round_the_gate(meta):
    error = output_rejection(_OK, {"data": {"anything": 1}, "meta": meta})
    assert {issue.path for issue in error.issues} == {"/data", "/meta"}


def test_an_output_may_have_properties_called_data_and_meta():
    source = PropertyGroup(properties={"source": PropertyString()})
    answer = {"data": "x", "meta": {"source": "http"}}
    tool = data_tool("t", {}, {"data": PropertyString(), "meta": source}, Handler(answer))
    assert run(tool).data == answer


def test_an_envelope_is_kept_and_its_data_checked():
    good = local_envelope({"ok": True}, "other.tool")
    envelope = run(data_tool("t", {}, _OK, Handler(good)))
    assert isinstance(envelope, ResponseEnvelope)
    assert envelope == good
    assert output_rejection(_OK, local_envelope({"ok": 1}, "other.tool")).path == "/ok"


# --- the user's sentence --------------------------------------------------------------------


def test_the_user_reads_one_sentence_without_schema_details():
    assert exhausted_message("product_search") == (
        "The assistant tried to use product_search but the input didn't match the expected format."
    )


# --- laws -----------------------------------------------------------------------------------

_BLOCK = {
    "n": PropertyInteger(min=0, default_value=1),
    "s": PropertyString(required=True),
    "g": PropertyGroup(properties={"n": PropertyInteger(default_value=2), "s": PropertyString()}),
    "a": PropertyArray(
        value_type=PropertyGroup(properties={"n": PropertyInteger(default_value=3)}), max_items=2
    ),
}
_LEAVES = st.none() | st.booleans() | st.integers(-1, 3) | st.text(max_size=2)
_OBJECTS = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("nsgax"), inner, max_size=4)
    ),
    max_leaves=12,
)
_ARGUMENTS = st.fixed_dictionaries(
    {"s": st.text(max_size=2)},
    optional={
        "n": st.integers(-1, 3),
        "g": st.dictionaries(st.sampled_from("nsx"), st.integers(0, 3), max_size=3),
        "a": st.lists(st.dictionaries(st.sampled_from("nx"), st.integers(0, 3)), max_size=3),
        "x": _OBJECTS,
    },
)


@given(_ARGUMENTS | _OBJECTS)
def test_a_handler_only_ever_sees_what_keeps_the_closed_schema(arguments):
    handler = Handler()
    tool = data_tool("t", _BLOCK, _OK, handler)
    closed = data_tool("t", _BLOCK, _OK, handler, strict_input=True).contract.compiled_input
    before = copy.deepcopy(arguments)
    try:
        run(tool, {} if arguments is None else arguments)
    except InvalidInput:
        assert handler.seen == []
    else:
        [props] = handler.seen
        assert check(closed, props) == []
        assert "n" in props
    assert arguments == before
