"""Projection: outputs, and their published schemas, reduced to the fields of a configuration."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from callpact import from_functions
from callpact.app import Options, Session
from callpact.catalog import Catalog
from callpact.envelope import ImageBlock, TextBlock, mcp_envelope
from callpact.errors import InvalidConfig, InvalidSchema, OutputRejected
from callpact.gate import kept_fields
from callpact.runtime import Runtime
from callpact.schema import check, compile_schema
from callpact.sources.curation import Curation, ToolCuration, curate
from callpact.sources.projection import MAX_FIELD_LEVELS
from callpact.tool import Contract, Tool
from callpact.wire import flowmcp
from callpact.wire.mcp.published import output_schema
from callpact.wire.mcp.results import encode_result
from schema_file import Caller

PET = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "owner": {"$ref": "#/$defs/person"},
        "tags": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"key": {"type": "string"}, "value": {}},
                "required": ["key", "value"],
            },
        },
    },
    "required": ["id", "name"],
    "$defs": {
        "person": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "pet": {"$ref": "#"},
                "boss": {"$ref": "#/$defs/person"},
            },
        },
        "unused": {"type": "null"},
    },
}
DATA = {
    "id": 1,
    "name": "Rex",
    "owner": {"name": "Ann", "boss": {"name": "Bo"}},
    "tags": [{"key": "a", "value": 1}, {"key": "b", "value": [2]}],
}


def make(output=PET, answer=None, policy=None, **fields):
    async def give(arguments, context):
        return DATA if answer is None else answer

    given_fields = {"handler": give, **fields}
    contract = Contract(output=output, policy=policy)
    return Tool(id="shop.pet", description="Gives.", contract=contract, **given_fields)


def curated(tool, *names, report=None, **changes):
    whole = Catalog([tool])
    table = ToolCuration(fields=names, **changes)
    made = curate(
        whole, whole, Curation(place="sources.shop", tools={tool.id: table}), is_complete=True
    )
    if report is not None:
        report += [found.message for found in made.report]
    return Catalog(made)


def refused(tool, *names) -> str:
    with pytest.raises(InvalidConfig) as caught:
        curated(tool, *names)
    text = str(caught.value)
    assert text.startswith(f"sources.shop.tools.{tool.id}.fields: ")
    return text


def execute(catalog, arguments=None, name="shop.pet", **given_to):
    async def go():
        async with Runtime(catalog) as runtime:
            return await runtime.execute(name, arguments, **given_to)

    return asyncio.run(go())


# --- data and schema -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "data"),
    [
        (["id"], {"id": 1}),
        (["name", "id"], {"id": 1, "name": "Rex"}),
        (["owner.name"], {"owner": {"name": "Ann"}}),
        (["owner.boss.name"], {"owner": {"boss": {"name": "Bo"}}}),
        (["tags.key"], {"tags": [{"key": "a"}, {"key": "b"}]}),
        (["owner", "owner.name"], {"owner": DATA["owner"]}),
        (["owner.name", "owner"], {"owner": DATA["owner"]}),
    ],
)
def test_an_output_is_reduced_to_its_fields(names, data):
    catalog = curated(make(policy="warn"), *names)
    assert execute(catalog).data == data
    assert not check(catalog.find("shop.pet").contract.compiled_output, data)


def test_the_published_schema_has_the_fields_and_the_definitions_that_they_need():
    made = curated(make(), "id", "owner.boss.name", "tags.key").find("shop.pet").contract.output
    assert made == {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "owner": {"$ref": "#/$defs/person_1"},
            "tags": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"key": {"type": "string"}},
                    "required": ["key"],
                },
            },
        },
        "required": ["id"],
        "$defs": {
            "person_1": {
                "type": "object",
                "properties": {"boss": {"$ref": "#/$defs/person_2"}},
            },
            "person_2": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    }


def test_a_field_that_is_kept_whole_keeps_its_definitions():
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x~1y"}, "b": {}},
        "$defs": {"x/y": {"type": "array", "items": {"$ref": "#/$defs/z"}}, "z": {}, "w": {}},
    }
    made = curated(make(schema, {"a": [1], "b": 1}), "a").find("shop.pet").contract.output
    assert made["$defs"].keys() == {"x/y", "z"}


def test_a_field_that_refers_to_the_whole_output_has_no_schema_left():
    # Its reference would mean the reduced output.
    catalog = curated(make(), "owner")
    made = catalog.find("shop.pet").contract.output
    assert made["properties"] == {"owner": {}}
    assert execute(catalog).data == {"owner": DATA["owner"]}


def test_a_list_at_the_root_is_reduced_in_each_item():
    pet = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {}}}
    schema = {"type": "array", "items": {"$ref": "#/$defs/pet"}, "$defs": {"pet": pet}}
    catalog = curated(
        make({**schema, "uniqueItems": True}, [{"id": 1, "name": "Rex"}, {"id": 2, "name": "Bo"}]),
        "name",
    )
    assert execute(catalog).data == [{"name": "Rex"}, {"name": "Bo"}]
    assert "uniqueItems" not in catalog.find("shop.pet").contract.output


def test_null_and_other_values_in_place_of_an_object_stay():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": ["object", "null", "string"], "properties": {"b": {"type": "integer"}}}
        },
    }
    for value in (None, "text", {"b": 1}):
        assert execute(curated(make(schema, {"a": value}), "a.b")).data == {"a": value}


def test_a_name_with_a_dot_is_quoted():
    schema = {"type": "object", "properties": {"a.b": {"properties": {'c"d\\': {}, "e": {}}}}}
    catalog = curated(make(schema, {"a.b": {'c"d\\': 1, "e": 2}}), '"a.b"."c\\"d\\\\"')
    assert execute(catalog).data == {"a.b": {'c"d\\': 1}}


def test_branches_are_reduced_each():
    cat = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}}
    dog = {"type": "object", "properties": {"kind": {"const": "dog"}, "barks": {"type": "boolean"}}}
    schema = {"oneOf": [cat, dog], "discriminator": {"propertyName": "kind"}}
    catalog = curated(make(schema, {"kind": "cat", "lives": 9}), "lives", "barks")
    made = catalog.find("shop.pet").contract.output
    assert made == {
        "anyOf": [
            {"type": "object", "properties": {"lives": {"type": "integer"}}},
            {"type": "object", "properties": {"barks": {"type": "boolean"}}},
        ]
    }
    assert execute(catalog).data == {"lives": 9}


def test_rules_about_other_fields_are_left_out_of_the_schema():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {}},
        "required": ["b"],
        "minProperties": 2,
        "dependentRequired": {"a": ["b"]},
        "if": {"required": ["a"]},
        "then": {"required": ["b"]},
        "additionalProperties": False,
        "enum": [{"a": 1, "b": 1}, {"a": 1, "b": 2}],
        "examples": [{"a": 1, "b": 1}],
    }
    made = curated(make(schema, {"a": 1, "b": 2}), "a").find("shop.pet").contract.output
    assert made == {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": False,
        "enum": [{"a": 1}],
        "examples": [{"a": 1}],
    }


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"]
)
def test_an_old_draft_stays_one(draft):
    schema = {
        "$schema": draft,
        "$ref": "#/definitions/pet",
        "type": "string",
        "definitions": {
            "pet": {"type": "object", "properties": {"id": {}, "x": {}}, "required": ["x"]}
        },
    }
    catalog = curated(make(schema, {"id": 1, "x": 2}), "id")
    assert catalog.find("shop.pet").contract.output == {
        "$schema": draft,
        "$ref": "#/definitions/pet_1",
        "definitions": {"pet_1": {"type": "object", "properties": {"id": {}}}},
    }
    assert execute(catalog).data == {"id": 1}


NAMES = st.sampled_from("abc")
SCALARS = st.sampled_from(
    [{"type": "integer"}, {"type": "string"}, {}, True, {"enum": [1, "x", None]}]
)


def _objects(inner):
    def closed(parts):
        properties, required, more = parts
        return {"properties": properties, "required": required, **more}

    more = st.sampled_from(
        [
            {},
            {"type": "object"},
            {"additionalProperties": False},
            {"minProperties": 1},
            {"dependentRequired": {"a": ["b"]}},
            {"not": {"required": ["c"]}},
            {"additionalProperties": {"type": "integer"}},
            {"propertyNames": {"enum": ["a", "b"]}},
        ]
    )
    objects = st.tuples(st.dictionaries(NAMES, inner), st.lists(NAMES, unique=True), more).map(
        closed
    )
    return st.one_of(
        objects,
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"prefixItems": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"items": inner, "uniqueItems": st.just(True)}),
        st.fixed_dictionaries({"contains": inner}),
        *(
            st.fixed_dictionaries({key: st.lists(inner, min_size=1, max_size=2)})
            for key in ("allOf", "anyOf", "oneOf")
        ),
        st.just({"$ref": "#/$defs/a"}),
        st.just({"$ref": "#/$defs/b"}),
        st.just({"$ref": "#"}),
        st.just({"$ref": "#/$defs/a", "required": ["a"]}),
    )


SCHEMAS = st.recursive(SCALARS, _objects, max_leaves=6)
ROOTS = st.tuples(_objects(SCHEMAS), SCHEMAS, SCHEMAS).map(
    lambda parts: {**parts[0], "$defs": {"a": parts[1], "b": parts[2]}}
)
VALUES = st.recursive(
    st.sampled_from([0, 1, "x", None, True]),
    lambda inner: st.one_of(st.dictionaries(NAMES, inner), st.lists(inner, max_size=3)),
    max_leaves=8,
)
FIELDS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map(".".join), min_size=1, max_size=3)


@settings(deadline=None, max_examples=400)
@given(schema=ROOTS, value=VALUES, names=FIELDS)
def test_the_projection_of_a_valid_output_is_valid_for_the_projected_schema(schema, value, names):
    try:
        catalog = curated(make(schema, policy="pass"), *names)
    except (InvalidConfig, InvalidSchema):
        return
    contract = catalog.find("shop.pet").contract
    reduced = kept_fields(value, contract.projection.fields)
    if not check(compile_schema(schema), value):
        assert contract.compiled_output is None or not check(contract.compiled_output, reduced)


# --- the contract ----------------------------------------------------------------------------


def test_the_whole_output_is_judged_by_the_contract_of_the_source():
    broken = {"id": 1, "name": 7}
    with pytest.raises(OutputRejected) as caught:
        execute(curated(make(answer=broken, policy="reject"), "id"))
    assert caught.value.path == "/name"
    warned = execute(curated(make(answer=broken, policy="warn"), "id"))
    assert warned.data == {"id": 1}
    assert [issue.path for issue in warned.warnings] == ["/name"]


def test_a_call_may_tighten_the_policy_of_the_whole_output():
    catalog = curated(make(answer={"id": 1, "name": 7}), "id")
    assert execute(catalog).data == {"id": 1}
    with pytest.raises(OutputRejected):
        execute(catalog, policy="reject")


def test_changes_of_fields_that_are_not_delivered_are_not_reported():
    catalog = curated(
        make(answer={"id": "1", "name": 7, "tags": [{"key": 5, "value": 1}]}), "id", "tags.key"
    )
    envelope = execute(catalog)
    assert envelope.data == {"id": 1, "tags": [{"key": ""}]}
    assert {change.path for change in envelope.changes} == {"/id", "/tags/0/key"}


def test_a_policy_of_the_same_table_and_of_the_catalog_holds():
    catalog = curated(make(answer={"id": 1, "name": 7}), "id", policy="reject")
    with pytest.raises(OutputRejected):
        execute(catalog)
    catalog = Catalog(curated(make(answer={"id": 1, "name": 7}), "id"), policy="reject")
    with pytest.raises(OutputRejected):
        execute(catalog)


def test_bytes_are_delivered_whole_with_a_warning():
    envelope = execute(curated(make(None, b"abc"), "id"))
    assert envelope.data == b"abc"
    assert [issue.code for issue in envelope.warnings] == ["projection"]


def test_a_subscription_is_reduced_in_each_value():
    async def ticks(arguments, context):
        yield DATA
        yield {**DATA, "id": 2}

    catalog = curated(make(handler=ticks, kind="subscription"), "id")

    async def go():
        async with (
            Runtime(catalog) as runtime,
            aclosing(runtime.subscribe("shop.pet")) as values,
        ):
            return [envelope.data async for envelope in values]

    assert asyncio.run(go()) == [{"id": 1}, {"id": 2}]


# --- fields that are not there ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["nam"], "no field 'nam'; did you mean 'name'?"),
        (["owner.nme"], "no field 'owner.nme'; did you mean 'owner.name'?"),
        (["tags.keys"], "no field 'tags.keys'; did you mean 'tags.key'?"),
        (["id.x"], "no field 'id.x': id is neither an object nor a list of objects"),
    ],
)
def test_a_field_that_the_schema_does_not_have_is_an_error_with_the_nearest_name(names, words):
    assert words in refused(make(), *names)


def test_an_output_without_fields_is_refused():
    assert "its output is neither an object nor a list" in refused(make({"type": "string"}), "a")


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a b", '"a', 'a"b"', "a[0]", "/a"])
def test_a_malformed_field_is_an_error(text):
    if text == "/a":  # A name like any other.
        assert "no field '/a'" in refused(make(), text)
    else:
        assert "a field is written as names with dots" in refused(make(), text)


def test_a_field_has_a_limit_of_levels():
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"a": {"$ref": "#/$defs/a"}}}}}
    curated(make(schema), ".".join("a" * MAX_FIELD_LEVELS))
    assert "at most 32" in refused(make(schema), ".".join("a" * (MAX_FIELD_LEVELS + 1)))


@pytest.mark.parametrize(
    ("output", "policy", "name"),
    [
        (None, None, "a"),
        ({"type": "object"}, None, "a"),
        ({"type": "array"}, None, "a"),
        ({"properties": {"b": {}}, "additionalProperties": True}, None, "a"),
        ({"properties": {"b": {}}, "additionalProperties": {"type": "integer"}}, None, "a"),
        ({"properties": {"b": {}}, "patternProperties": {"^a": {}}}, None, "a"),
        ({"properties": {"b": {}}}, "warn", "a"),
        ({"properties": {"b": {}}}, "pass", "a"),
        ({"properties": {"b": True}}, None, "b.c"),
    ],
)
def test_a_field_that_an_open_schema_does_not_declare_is_a_warning(output, policy, name):
    report = []
    catalog = curated(make(output, {"a": 1, "b": {"c": 2, "d": 3}}, policy), name, report=report)
    assert len(report) == 1
    assert "shop.pet" in report[0]
    expected = {"a": 1} if name == "a" else {"b": {"c": 2}}
    if output != {"type": "array"}:
        assert execute(catalog).data == expected


def test_a_closed_schema_delivers_nothing_else_under_any_policy():
    schema = {"properties": {"b": {}}, "additionalProperties": False}
    assert "no field 'a'" in refused(make(schema, policy="warn"), "a")


# --- hostile schemas -------------------------------------------------------------------------


def test_references_that_multiply_make_no_large_schema():
    levels = 20
    definitions = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "object", "properties": {"a": {}, "b": {}}}
    made = curated(make({"$ref": "#/$defs/d0", "$defs": definitions}), "a").find("shop.pet")
    assert len(made.contract.output["$defs"]) == levels + 1


def test_a_chain_of_many_references_ends():
    many = 50
    definitions = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(many)}
    definitions[f"d{many}"] = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}}
    schema = {"$ref": "#/$defs/d0", "$defs": definitions}
    assert len(curated(make(schema), "a.a").find("shop.pet").contract.output["$defs"]) > many
    assert "cannot be reduced" in refused(make(schema), ".".join("a" * MAX_FIELD_LEVELS))


# --- every source ----------------------------------------------------------------------------


def test_the_answer_of_a_function_is_reduced():
    class Owner(BaseModel):
        name: str
        phone: str

    class Pet(BaseModel):
        id: int
        owners: list[Owner]

    async def pet() -> Pet:
        """Pet."""
        return Pet(id=1, owners=[Owner(name="Ann", phone="1")])

    (tool,) = from_functions(pet, namespace="shop")
    catalog = curated(tool, "owners.name")
    assert execute(catalog).data == {"owners": [{"name": "Ann"}]}
    assert "phone" in refused(tool, "owners.phon")


def test_the_answer_of_a_flowmcp_tool_is_reduced_in_its_rendering(tmp_path):
    caller = Caller(tmp_path, answer={"id": "btc", "price": 1.5, "more": 1})
    catalog = curated(caller.tool, "price")
    envelope = execute(catalog, {"id": "btc"}, caller.tool.id)
    assert flowmcp.encode_result(envelope) == {
        "status": True,
        "messages": [],
        "data": {"price": 1.5},
    }


def test_the_answer_of_an_mcp_server_is_reduced_in_every_form():
    data = {"id": 1, "name": "Rex"}
    content = [TextBlock('{"id": 1, "name": "Rex"}'), ImageBlock("aGk=", "image/png")]
    whole = mcp_envelope(data, is_error=False, content=content, structured_content=data)
    catalog = curated(make(answer=whole), "id")
    envelope = execute(catalog)
    assert "Rex" not in str(envelope.to_wire(details=True))
    assert envelope.meta.structured_content == {"id": 1}
    tool = catalog.find("shop.pet")
    sent = encode_result(envelope, tool, modern=True)
    assert "Rex" not in str(sent)
    assert sent["structuredContent"] == {"id": 1}
    assert output_schema(tool, modern=True)["properties"].keys() == {"id"}


def test_content_without_structure_and_errors_of_an_mcp_server_stay():
    blocks = [TextBlock("text")]
    for is_error, codes in ((False, ["type", "projection"]), (True, [])):
        answer = mcp_envelope(blocks, is_error=is_error, content=blocks)
        envelope = execute(curated(make(answer=answer), "id"))
        assert envelope.meta.content == blocks
        assert [issue.code for issue in envelope.warnings] == codes


SHOP = '''
from callpact import tool

@tool
async def pet(pet_id: int) -> dict[str, str | int]:
    """A pet."""
    return {"id": pet_id, "name": "Rex"}
'''


def test_the_tool_of_another_server_is_selected_renamed_and_reduced(tmp_path):
    (tmp_path / "up.py").write_text(SHOP, "utf-8")
    up = f"{sys.executable} -m callpact serve --stdio --audit off -s python:{tmp_path / 'up.py'}"
    text = f"""
[sources.zoo]
ref = "mcp:{up}"
select = {{ operations = ["up_*"] }}

[sources.zoo.tools.up_pet]
rename = {{ pet_id = "id" }}
describe = {{ pet_id = "Its number." }}
fields = ["name"]
"""
    (tmp_path / "callpact.toml").write_text(text, "utf-8")

    async def go():
        async with Session(Options(config=tmp_path / "callpact.toml")) as session:
            await session.load()
            async with Runtime(session.catalog) as runtime:
                return (await runtime.execute("zoo.up_pet", {"id": 7})).data

    assert asyncio.run(asyncio.wait_for(go(), 60)) == {"name": "Rex"}
