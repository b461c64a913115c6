"""What of an output schema is advertised, in every size and in both eras (design section 4)."""

from __future__ import annotations

import json

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.tool import Contract, Tool
from callpact.wire.mcp.portable import explicit
from callpact.wire.mcp.published import (
    ADVERTISE,
    hoisted,
    input_schema,
    output_schema,
    result_form,
)
from callpact.wire.mcp.results import encode_tool
from schema_lint import OPEN, lint

ERAS = pytest.mark.parametrize("modern", [True, False], ids=["2026-07-28", "2025-11-25"])
SHOP = {
    "type": "object",
    "title": "Shop",
    "properties": {
        "name": {"type": "string", "minLength": 2, "description": "As on the door"},
        "owner": {"$ref": "#/$defs/Person", "description": "Who pays"},
        "staff": {"type": "array", "items": {"$ref": "#/$defs/Person"}},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {
        "Person": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "boss": {"$ref": "#/$defs/Person"}},
        }
    },
}
GOOD = {"name": "tea", "owner": {"name": "A"}, "staff": [{"name": "B", "boss": {"name": "A"}}]}


def make_tool(output=SHOP, policy="cast", **more) -> Tool:
    async def handler(arguments, context):
        return None

    contract = Contract(output=output, policy=policy)
    return Tool(id="a.b", description="Does.", contract=contract, handler=handler, **more)


def is_valid(schema, value) -> bool:
    return jsonschema_rs.validator_for(schema, offline=True).is_valid(value)


def kept_keywords(node) -> set[str]:
    """The keywords of a schema and of what lies in it; names of properties are none."""
    if isinstance(node, list):
        return set().union(*map(kept_keywords, node))
    if not isinstance(node, dict):
        return set()
    found = set(node)
    for key, value in node.items():
        held = value.values() if key in {"properties", "$defs"} else [value]
        found |= set().union(*map(kept_keywords, held))
    return found


# --- which form -----------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("policy", ["cast", "convert", "reject"])
def test_full_is_the_declared_schema_where_the_contract_holds_it(policy, modern):
    assert output_schema(make_tool(policy=policy), modern=modern) == SHOP


@ERAS
def test_full_is_relaxed_where_answers_may_break_it(modern):
    tool = make_tool(policy="warn")
    assert output_schema(tool, modern=modern) == output_schema(
        tool, modern=modern, advertise="relaxed"
    )


@ERAS
@pytest.mark.parametrize("policy", ["warn", "cast", "convert", "reject"])
def test_declared_and_relaxed_hold_whatever_the_policy(policy, modern):
    tool = make_tool(policy=policy)
    assert output_schema(tool, modern=modern, advertise="declared") == SHOP
    relaxed = output_schema(tool, modern=modern, advertise="relaxed")
    assert is_valid(relaxed, {"name": 1, "owner": "x", "staff": {}, "more": 1})


@ERAS
@pytest.mark.parametrize("policy", ["pass", "warn", "cast", "convert", "reject"])
def test_none_is_no_schema(policy, modern):
    tool = make_tool(policy=policy)
    assert "outputSchema" not in encode_tool(tool, modern=modern, advertise="none")


@ERAS
@pytest.mark.parametrize("advertise", ADVERTISE)
def test_what_is_never_checked_is_never_advertised(advertise, modern):
    assert output_schema(make_tool(policy="pass"), modern=modern, advertise=advertise) is None


# --- the first level ------------------------------------------------------------------------


@ERAS
def test_top_tells_the_first_level_and_nothing_below(modern):
    assert output_schema(make_tool(), modern=modern, advertise="top") == {
        "type": "object",
        "title": "Shop",
        "properties": {
            "name": {"type": "string", "description": "As on the door"},
            "owner": {"type": "object", "description": "Who pays"},
            "staff": {"type": "array"},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


@ERAS
def test_top_of_a_relaxed_schema_asserts_nothing_and_tells_the_first_level(modern):
    top = output_schema(make_tool(policy="warn"), modern=modern, advertise="top")
    assert top["properties"].keys() == SHOP["properties"].keys()
    assert "properties" not in top["properties"]["owner"]
    assert "items" not in top["properties"]["staff"]
    assert is_valid(top, {"name": 1, "more": 2})


@ERAS
def test_top_of_a_reference_tells_what_it_leads_to_and_what_stands_beside_it(modern):
    schema = {
        "$ref": "#/$defs/Shop",
        "title": "Ours",
        "required": ["staff"],
        "properties": {"open": {"type": ["boolean", "null"]}},
        "$defs": {"Shop": {key: SHOP[key] for key in SHOP if key != "$defs"}, **SHOP["$defs"]},
    }
    assert output_schema(make_tool(schema), modern=modern, advertise="top") == {
        "type": "object",
        "title": "Ours",
        "properties": {
            "name": {"type": "string", "description": "As on the door"},
            "owner": {"type": "object", "description": "Who pays"},
            "staff": {"type": "array"},
            "open": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
        "required": ["staff", "name"],
        "additionalProperties": False,
    }


@ERAS
def test_top_of_a_reference_that_leads_nowhere_or_round_says_little(modern):
    for target in ({"$ref": "#/$defs/A"}, True):
        schema = {"$ref": "#/$defs/A", "title": "Round", "$defs": {"A": target}}
        tool = make_tool(schema, policy="reject")
        top = output_schema(tool, modern=modern, advertise="top")
        assert lint(top) == []
        assert is_valid(top, {"result": 1})


@ERAS
def test_top_does_not_follow_what_looks_into_a_document_of_its_own(modern):
    inner = {
        "$id": "https://example.org/inner",
        "$ref": "#/$defs/B",
        "$defs": {"B": {"type": "object", "properties": {"b": {"type": "integer"}}}},
    }
    schema = {"$ref": "#/$defs/A", "$defs": {"A": inner, "B": {"type": "string"}}}
    tool = make_tool(schema)
    top = output_schema(tool, modern=modern, advertise="top")
    value = {"b": 1}
    assert tool.contract.compiled_output.accepts(value)
    is_wrapped = result_form(tool, modern=modern).is_wrapped
    assert is_valid(top, {"result": value} if is_wrapped else value)


def test_top_of_a_list_tells_what_its_items_are_and_is_boxed_for_older_peers():
    tool = make_tool({"type": "array", "items": SHOP, "minItems": 1, "$defs": SHOP["$defs"]})
    now = output_schema(tool, modern=True, advertise="top")
    assert now == {"type": "array", "items": {"type": "object", "title": "Shop"}}
    before = output_schema(tool, modern=False, advertise="top")
    assert before["properties"] == {"result": now}


@ERAS
def test_top_does_not_say_more_than_a_draft_in_which_a_reference_stands_alone(modern):
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/A", "type": "string"}},
        "definitions": {"A": {"type": "integer"}},
    }
    top = output_schema(make_tool(schema), modern=modern, advertise="top")
    assert is_valid(top, {"a": 1})


@ERAS
def test_top_leaves_room_for_names_that_fit_a_pattern(modern):
    schema = {
        "type": "object",
        "properties": {"a": {}},
        "patternProperties": {"^x-": {}},
        "additionalProperties": False,
    }
    top = output_schema(make_tool(schema), modern=modern, advertise="top")
    assert is_valid(top, {"a": 1, "x-b": 2})


# --- definitions ----------------------------------------------------------------------------


@ERAS
def test_a_relaxed_schema_keeps_what_is_shared_as_a_definition(modern):
    relaxed = output_schema(make_tool(policy="warn"), modern=modern)
    assert relaxed["properties"]["owner"] == {
        "$ref": "#/$defs/Person",
        "description": "Who pays",
    }
    assert relaxed["$defs"]["Person"]["properties"]["boss"] == {"$ref": "#/$defs/Person"}
    told = kept_keywords(relaxed) - {"type", "minLength"}
    assert told <= {"title", "description", "properties", "items", "$ref", "$defs"}
    assert relaxed["$defs"]["Person"]["properties"]["name"]["minLength"] == 0


def test_definitions_of_a_boxed_relaxed_schema_stand_where_references_look():
    tool = make_tool({"type": "array", "items": SHOP, "$defs": SHOP["$defs"]}, policy="warn")
    boxed = output_schema(tool, modern=False)
    assert boxed["$defs"].keys() == {"Person"}
    assert is_valid(boxed, {"result": [GOOD]})
    assert is_valid(boxed, {"result": 3})
    assert not is_valid(boxed, {})


ADDRESS = {
    "type": "object",
    "properties": {
        name: {"type": "string", "description": f"The {name} of the address, as on a letter"}
        for name in ("street", "town", "code", "country")
    },
    "required": ["street", "town"],
}


@ERAS
def test_parts_that_stand_in_a_schema_several_times_are_sent_once(modern):
    places = ("home", "work", "billing", "delivery", "holiday")
    schema = {"type": "object", "properties": dict.fromkeys(places, ADDRESS)}
    published = output_schema(make_tool(schema), modern=modern)
    assert len(json.dumps(published)) < len(json.dumps(schema)) / 2
    assert is_valid(published, {"home": {"street": "a", "town": "b"}})
    assert not is_valid(published, {"work": {"street": "a"}})


@pytest.mark.parametrize(
    "more",
    [
        {"$id": "https://example.org/x"},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"properties": {"a": {"$ref": "#/properties/p0/properties/street"}}},
    ],
)
def test_a_schema_with_other_references_than_to_definitions_is_published_as_it_is(more):
    fields = {f"p{n}": ADDRESS for n in range(6)} | more.get("properties", {})
    schema = {"type": "object", **more, "properties": fields}
    assert hoisted(schema) is schema


def test_a_definition_of_the_same_name_is_not_overwritten():
    schema = {
        "type": "object",
        "properties": {f"p{n}": ADDRESS for n in range(6)} | {"q": {"$ref": "#/$defs/shared1"}},
        "$defs": {"shared1": {"type": "integer"}},
    }
    short = hoisted(schema)
    assert len(json.dumps(short)) < len(json.dumps(schema))
    assert is_valid(short, {"q": 1})
    assert not is_valid(short, {"q": "x"})


# --- what clients warn of -------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("advertise", ["full", "declared", "relaxed", "top"])
@pytest.mark.parametrize("policy", ["warn", "cast", "convert", "reject"])
@pytest.mark.parametrize(
    "wrapped", [dict, lambda schema: {"type": "array", "items": schema, "$defs": schema["$defs"]}]
)
def test_what_is_open_is_published_so_that_no_client_warns(wrapped, policy, advertise, modern):
    tool = make_tool(wrapped(OPEN), policy=policy)
    assert lint(output_schema(tool, modern=modern, advertise=advertise)) == []


@ERAS
@pytest.mark.parametrize("policy", ["warn", "cast", "convert", "reject"])
@pytest.mark.parametrize("advertise", ["full", "relaxed", "top"])
@pytest.mark.parametrize(
    "definitions",
    [
        {"A": {"$ref": "#/$defs/A"}},
        {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
        {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "string"}]}},
        {"A": {"allOf": [{"$ref": "#/$defs/B"}]}, "B": {"oneOf": [{"$ref": "#/$defs/A"}]}},
    ],
)
def test_references_that_go_round_end_in_what_is_published(definitions, advertise, policy, modern):
    fields = {name: {"$ref": "#/$defs/A"} for name in "ab"}
    schema = {"type": "object", "properties": fields, "$defs": definitions}
    published = output_schema(make_tool(schema, policy), modern=modern, advertise=advertise)
    # The client of the SDK is made of Python functions, which such references would exhaust.
    jsonschema.Draft202012Validator(published).validate({"a": "x", "b": "y"})
    assert lint(published) == []


# --- laws -----------------------------------------------------------------------------------

NODES = st.recursive(
    st.sampled_from(
        [
            {"type": "string", "description": "some words that take their place in the text"},
            {"type": ["integer", "null"], "minimum": 3},
            {"enum": ["a", 1, None]},
            {"$ref": "#/$defs/A"},
            {"$ref": "#/$defs/B", "title": "B"},
            {"title": "Anything"},
            {},
            True,
            False,
        ]
    ),
    lambda inner: st.one_of(
        st.builds(
            lambda fields, required, closed: {
                "type": "object",
                "properties": fields,
                "required": required,
                "additionalProperties": not closed,
                "description": "an object that is long enough to be worth a name of its own " * 2,
            },
            st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
            st.lists(st.sampled_from("abcd"), max_size=2, unique=True),
            st.booleans(),
        ),
        st.builds(lambda items: {"type": "array", "items": items, "minItems": 1}, inner),
        st.builds(lambda one, two: {"anyOf": [one, two, one]}, inner, inner),
        st.builds(lambda one, two: {"allOf": [one], "prefixItems": [two, True]}, inner, inner),
        st.builds(lambda one, two: {"if": one, "then": two, "else": {"not": two}}, inner, inner),
    ),
    max_leaves=25,
)
ANY_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abcd") | st.text(max_size=2), inner, max_size=4)
    ),
    max_leaves=8,
)
VALUES = st.recursive(
    st.none() | st.integers(0, 5) | st.sampled_from(["a", "x"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=4)
    ),
    max_leaves=8,
)


def rooted(node) -> dict:
    definition = {"type": "object", "properties": {"a": {"type": "integer"}}}
    fields = {"a": node, "b": node, "c": {"type": "array", "items": node}}
    looped = {"properties": {"a": {"$ref": "#/$defs/B"}, "b": node}, "title": "Of itself"}
    return {"type": "object", "properties": fields, "$defs": {"A": definition, "B": looped}}


def rootings(node) -> list[dict]:
    """Schemas with a part in them: below the root, at it, and behind a reference."""
    held = rooted(node)["$defs"]
    found = [rooted(node), {"$ref": "#/$defs/C", "$defs": {**held, "C": node}}]
    return [*found, node | {"$defs": held}] if isinstance(node, dict) else found


@given(node=NODES, value=VALUES)
def test_a_schema_with_shared_parts_judges_as_the_one_without(node, value):
    schema = rooted(node)
    for instance in (value, {"a": value}, {"b": value, "c": [value]}):
        assert is_valid(hoisted(schema), instance) == is_valid(schema, instance)


@given(node=NODES, value=VALUES, modern=st.booleans())
def test_the_first_level_takes_all_that_the_schema_takes(node, value, modern):
    for schema in rootings(node):
        tool = make_tool(schema)
        top = output_schema(tool, modern=modern, advertise="top")
        if top is not None and is_valid(schema, value):
            is_boxed = "result" in top.get("required", ())
            assert is_valid(top, {"result": value} if is_boxed else value)


def sent(tool, value, *, modern, advertise="full"):
    """A value as it travels: in a box where the view or the era says so."""
    is_wrapped = result_form(tool, modern=modern, advertise=advertise).is_wrapped
    is_plain = modern or isinstance(value, dict)
    return value if is_plain and not is_wrapped else {"result": value}


@given(node=NODES, value=ANY_VALUES, modern=st.booleans())
def test_a_relaxed_schema_takes_every_json_value(node, value, modern):
    for schema in rootings(node):
        tool = make_tool(schema, policy="warn")
        for advertise in ("relaxed", "top"):
            published = output_schema(tool, modern=modern, advertise=advertise)
            if published is not None:
                wired = sent(tool, value, modern=modern, advertise=advertise)
                assert is_valid(published, wired)
                # What the era asks of a root is all that it asserts.
                bare = {key: published[key] for key in published.keys() - {"type", "required"}}
                assert is_valid(bare, value)
                assert is_valid(bare, {"result": value, "a": value, "b": [value]})


@given(
    node=NODES, modern=st.booleans(), policy=st.sampled_from(["warn", "cast", "convert", "reject"])
)
def test_no_client_warns_of_what_is_published(node, modern, policy):
    for schema in rootings(node):
        tool = make_tool(schema, policy=policy)
        for advertise in ("full", "declared", "relaxed", "top"):
            published = output_schema(tool, modern=modern, advertise=advertise)
            # A declared union of types is published as its author wrote it.
            is_whole = advertise == "declared" or (advertise == "full" and policy != "warn")
            if published is not None:
                assert lint(published, unions=not is_whole) == []
        assert lint(explicit(input_schema(tool))) == []


@ERAS
@pytest.mark.parametrize("policy", ["cast", "reject"])
def test_types_stay_types_beside_references_that_go_round(policy, modern):
    schema = {
        "type": "object",
        "properties": {
            "price": {"type": "number"},
            "round": {"$ref": "#/$defs/A", "description": "Round"},
            "names": {"type": "array", "items": {"$ref": "#/$defs/Name"}},
        },
        "$defs": {
            "A": {"allOf": [{"$ref": "#/$defs/B"}]},
            "B": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "number"}]},
            "Name": {"type": "string"},
        },
    }
    published = output_schema(make_tool(schema, policy), modern=modern)
    assert published["properties"]["price"] == {"type": "number"}
    assert published["properties"]["names"]["items"] == {"$ref": "#/$defs/Name"}
    assert published["properties"]["round"]["description"] == "Round"
    assert "$ref" not in published["properties"]["round"]
    assert "minLength" not in json.dumps(published)
    jsonschema.Draft202012Validator(published).validate({"price": 1, "round": 7, "names": ["a"]})
    assert not is_valid(published, {"price": "x"})


# --- drafts ---------------------------------------------------------------------------------

TUPLE = {
    "type": "object",
    "properties": {"pair": {"type": "array", "items": [{"type": "integer"}]}},
}


@ERAS
@pytest.mark.parametrize(
    ("given", "published"),
    [
        ("http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-07/schema#"),
        ("https://json-schema.org/draft-07/schema", "http://json-schema.org/draft-07/schema#"),
        (
            "https://json-schema.org/draft/2019-09/schema",
            "https://json-schema.org/draft/2019-09/schema",
        ),
    ],
)
def test_an_old_draft_is_named_so_that_clients_know_it(given, published, modern):
    schema = {"$schema": given, **TUPLE}
    tool = make_tool(output=schema)
    assert output_schema(tool, modern=modern) == {"$schema": published, **TUPLE}
    contract = Contract(input=schema)
    asked = Tool(id="a.b", description="Does.", contract=contract, handler=tool.handler)
    assert input_schema(asked) == {"$schema": published, **TUPLE}
    for form in (input_schema(asked), output_schema(tool, modern=modern)):
        theirs = jsonschema.validators.validator_for(form)
        assert theirs(form).is_valid({"pair": [1, "x"]})
        assert not theirs(form).is_valid({"pair": ["x"]})


@ERAS
def test_a_draft_that_nobody_knows_is_not_published(modern):
    schema = {"$schema": "https://example.com/meta", "type": "object", "required": ["a"]}
    tool = make_tool(output=schema)
    assert "$schema" not in output_schema(tool, modern=modern)
    contract = Contract(input=schema)
    asked = Tool(id="a.b", description="Does.", contract=contract, handler=tool.handler)
    assert input_schema(asked) == {"type": "object", "required": ["a"]}


def test_without_its_endless_reference_an_old_schema_says_nothing_more():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/L", "type": "string"}},
        "definitions": {"L": {"allOf": [{"$ref": "#/definitions/L"}]}},
    }
    published = output_schema(make_tool(output=schema), modern=True)
    assert is_valid(published, {"a": 1})
