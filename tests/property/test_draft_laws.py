"""Laws of every draft: our verdict is that of the draft's own validator, and fitting agrees with it."""

from __future__ import annotations

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from callpact.schema import check, compile_schema, fit
from callpact.schema.drafts import Draft
from callpact.tool import Contract, Tool
from callpact.wire.mcp.published import ADVERTISE, input_schema, output_schema, result_form

JUDGES = {
    Draft.DRAFT_4: jsonschema_rs.Draft4Validator,
    Draft.DRAFT_6: jsonschema_rs.Draft6Validator,
    Draft.DRAFT_7: jsonschema_rs.Draft7Validator,
    Draft.DRAFT_2019_09: jsonschema_rs.Draft201909Validator,
    Draft.DRAFT_2020_12: jsonschema_rs.Draft202012Validator,
}
KEYS = ["a", "b", "c"]
TYPES = ["string", "integer", "number", "null", "object", "array"]
INT = {"type": "integer"}


def values():
    numbers = st.sampled_from([-1, 0, 1, 5, 7.0, 2.5])
    scalars = st.none() | st.booleans() | numbers | st.sampled_from(["", "a", "12", "true"])
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, "zz"]), inner)
        ),
        max_leaves=8,
    )


def bounds(draft):
    if draft is Draft.DRAFT_4:
        return st.sampled_from(
            [{"minimum": 1, "exclusiveMinimum": True}, {"maximum": 5, "exclusiveMaximum": False}]
        )
    return st.sampled_from([{"minimum": 1}, {"exclusiveMinimum": 1}, {"exclusiveMaximum": 5}])


def leaves(draft):
    links = ["#/definitions/D", "#/definitions/E"]
    simple = st.sampled_from([{}, {"type": "string"}, {"type": "boolean"}, INT, {"const": 5}])
    linked = st.builds(
        # What is beside a reference counts from 2019-09 on.
        lambda link, beside: {"$ref": link, **beside},
        st.sampled_from(links),
        st.sampled_from([{}, {"type": "integer"}, {"required": ["a"]}, {"properties": {"c": INT}}]),
    )
    typed = st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True)
    choices = st.sampled_from([{"enum": [1, "a"]}, {"enum": [None]}])
    limited = st.builds(lambda bound: {"type": "number", **bound}, bounds(draft))
    return simple | linked | limited | choices | st.builds(lambda found: {"type": found}, typed)


def holders(draft):
    def held(inner):
        parts = st.lists(inner, min_size=1, max_size=2)
        names = st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True)
        places = inner if draft is Draft.DRAFT_2020_12 else inner | parts
        open_or_not = st.booleans() | inner
        mapped = st.dictionaries(st.sampled_from(KEYS), inner, max_size=2)
        keywords = {
            "items": places,
            "prefixItems": parts,
            "additionalItems": open_or_not,
            "contains": inner,
            "properties": mapped,
            "patternProperties": st.dictionaries(st.just("^[ab]"), inner, max_size=1),
            "additionalProperties": open_or_not,
            "required": names,
            "dependencies": st.dictionaries(st.sampled_from(KEYS), names | inner, max_size=2),
            "dependentRequired": st.dictionaries(st.sampled_from(KEYS), names, max_size=1),
            "dependentSchemas": mapped,
            "propertyNames": st.just({"enum": KEYS}),
            "allOf": parts,
            "anyOf": parts,
            "oneOf": parts,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "minItems": st.integers(0, 2),
        }
        some = st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=4, unique=True)
        kinds = st.sampled_from([{}, {"type": "object"}, {"type": "array"}])
        return st.tuples(
            kinds,
            some.flatmap(lambda chosen: st.fixed_dictionaries({k: keywords[k] for k in chosen})),
        ).map(lambda pair: pair[0] | pair[1])

    return held


def schemas(draft):
    inner = st.recursive(leaves(draft), holders(draft), max_leaves=6)
    return st.builds(
        lambda root, d, e: {
            **root,
            "$schema": draft.uri,
            "definitions": {"D": unlinked(d, "D"), "E": unlinked(e, "DE")},
        },
        holders(draft)(inner) | inner,
        inner,
        inner,
    )


def unlinked(schema, names):
    """The schema without references to some definitions, so that none leads back."""
    if isinstance(schema, list):
        return [unlinked(item, names) for item in schema]
    if not isinstance(schema, dict):
        return schema
    link = schema.get("$ref")
    if isinstance(link, str) and link[-1] in names:
        return {}
    return {key: unlinked(item, names) for key, item in schema.items()}


def cases():
    return st.sampled_from(list(Draft)).flatmap(
        lambda draft: st.tuples(st.just(draft), schemas(draft), values())
    )


@given(cases())
def test_our_verdict_is_that_of_the_draft(case):
    draft, schema, value = case
    official = JUDGES[draft](schema, offline=True).is_valid(value)
    compiled = compile_schema(schema)
    assert compiled.accepts(value) is official
    assert (compiled.errors(value) == []) is official
    assert (check(schema, value) == []) is official


@given(cases())
def test_a_value_that_fits_is_valid_and_left_as_it_is_by_the_slow_path(case):
    _, schema, value = case
    compiled = compile_schema(schema)
    if not compiled.fits(value):
        return
    assert compiled.accepts(value)
    compiled.fits = lambda _value: False
    fitted = fit(compiled, value)
    assert fitted.value is value
    assert fitted.changes == ()


@given(cases())
def test_fitting_a_valid_value_only_converts_and_strips(case):
    _, schema, value = case
    if check(schema, value):
        return
    fitted = fit(schema, value)
    assert {change.action for change in fitted.changes} <= {"converted", "stripped"}
    assert fitted.problem is None


def made(**contract):
    async def handler(arguments, context):
        return None

    return Tool(
        id="a.b",
        description="Does.",
        contract=Contract(policy="reject", **contract),
        handler=handler,
    )


def judges(schema, value):
    """The verdicts of two clients, which choose the draft by what they are sent."""
    theirs = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return {
        jsonschema_rs.validator_for(schema, offline=True).is_valid(value),
        theirs(schema).is_valid(value),
    }


@given(cases())
def test_clients_judge_arguments_by_the_published_schema_as_we_do(case):
    draft, schema, value = case
    # From 2019-09 on, validators may read `dependencies` or ignore it.
    assume(draft <= Draft.DRAFT_7 or "dependencies" not in str(schema))
    arguments = value if isinstance(value, dict) else {"a": value}
    schema = {**schema, "type": "object"}
    published = input_schema(made(input=schema))
    assert judges(published, arguments) == {check(schema, arguments) == []}


@pytest.mark.parametrize("modern", [True, False], ids=["2026-07-28", "2025-11-25"])
@given(case=cases(), advertise=st.sampled_from(ADVERTISE))
def test_no_valid_answer_breaks_a_published_schema(modern, case, advertise):
    _, schema, value = case
    if check(schema, value):
        return
    tool = made(output=schema)
    published = output_schema(tool, modern=modern, advertise=advertise)
    if published is None:
        return
    is_wrapped = result_form(tool, modern=modern, advertise=advertise).is_wrapped
    assert judges(published, {"result": value} if is_wrapped else value) == {True}
