"""Arguments in a query: what is sent comes back, and what cannot be is never offered."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.errors import InvalidInput
from callpact.tool import Contract, Tool
from callpact.wire.query_arguments import query_forms, read_query


async def handler(arguments, context):
    return arguments


def tool(properties, kind="query", **more):
    input = {"type": "object", "properties": properties, **more}  # noqa: A001 - as in Contract
    return Tool(
        id="t.x", description="", contract=Contract(input=input), handler=handler, kind=kind
    )


TYPES = {
    "text": {"type": "string"},
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "texts": {"type": "array", "items": {"type": "string"}},
    "wholes": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
    "pairs": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    "object": {"type": "object"},
    "shared": {"$ref": "#/$defs/shared"},
}
TOOL = tool(TYPES, **{"$defs": {"shared": {"type": "object"}}})
TEXT = st.text(st.characters(codec="utf-8"))
WHOLE = st.integers(-(10**30), 10**30)
JSON = st.dictionaries(TEXT, st.one_of(TEXT, st.integers(-1000, 1000), st.booleans(), st.none()))
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "text": TEXT,
        "whole": WHOLE,
        "number": st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "maybe": WHOLE,
        "texts": st.lists(TEXT, min_size=1),
        "wholes": st.lists(WHOLE, min_size=1),
        "pairs": st.lists(st.lists(st.integers(-1000, 1000))),
        "object": JSON,
        "shared": JSON,
    },
)


def written(arguments):
    """A query as the document describes it."""
    forms, pairs = query_forms(TOOL), []
    for name, value in arguments.items():
        if forms[name] == "list":
            pairs += [(name, _text(item)) for item in value]
        else:
            pairs.append((name, json.dumps(value) if forms[name] == "json" else _text(value)))
    return urlencode(pairs).encode()


def _text(value):
    return value if isinstance(value, str) else json.dumps(value)


def test_each_type_has_its_form():
    forms = query_forms(TOOL)
    assert {name for name, form in forms.items() if form == "list"} == {"texts", "wholes"}
    assert {name for name, form in forms.items() if form == "json"} == {"pairs", "object", "shared"}


@given(ARGUMENTS)
def test_arguments_come_back_as_they_were(arguments):
    assert read_query(written(arguments), TOOL) == arguments


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {}},
        {"a": True},
        {"a": {"enum": [1, 2]}},
        {"a": {"anyOf": [{"type": "string"}, {"type": "object"}]}},
        {"a": {"type": ["string", "array"]}},
        {"a": {"anyOf": [{"type": "string"}, {}]}},
        {"a": {"$ref": "#/properties/a"}},
    ],
    ids=str,
)
def test_an_argument_that_could_be_misread_leaves_no_get(properties):
    assert query_forms(tool(properties)) is None


def test_arguments_that_depend_on_one_another_leave_no_get():
    flat = {"a": {"type": "string"}}
    assert query_forms(tool(flat)) == {"a": "text"}
    assert query_forms(tool(flat, oneOf=[{"required": ["a"]}, {}])) is None
    assert query_forms(tool(flat, minProperties=1)) is None


def test_only_a_tool_that_reads_has_a_get():
    assert query_forms(tool({}, kind="mutation")) is None
    assert query_forms(tool({}, kind="query")) == {}


@pytest.mark.parametrize("query", [b"a=%ff", "a=é".encode(), b"&".join([b"a=1"] * 1001)])
def test_a_query_that_cannot_be_read_is_rejected(query):
    with pytest.raises(InvalidInput):
        read_query(query, TOOL)
