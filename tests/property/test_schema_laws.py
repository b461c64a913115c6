"""Laws of the schema functions over random schemas and values of every supported shape."""

from __future__ import annotations

import copy
import json

import jsonschema_rs
from hypothesis import assume, given
from hypothesis import strategies as st

from callpact.errors import CastError
from callpact.schema import (
    canonical_json,
    cast,
    check,
    compile_schema,
    convert,
    fit,
    schema_hash,
    strip,
)

KEYS = ["a", "b", "x1"]
DEFINITIONS = ["D", "E"]


def texts():
    return st.sampled_from(["", "a", "ab", "12", "7.5", "true", "null", "é"])


def numbers():
    return st.sampled_from([-1, 0, 1, 2, 7.0, 2.5, 0.3, 2**60])


def scalars():
    return st.none() | st.booleans() | numbers() | texts()


def values():
    keys = st.sampled_from([*KEYS, "zz", "dd"])
    return st.recursive(
        scalars(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=8,
    )


def optional(**keywords):
    return st.fixed_dictionaries({}, optional=keywords)


def merged(*parts):
    return st.tuples(*parts).map(lambda found: {k: v for part in found for k, v in part.items()})


def fixed(**keywords):
    return st.just(keywords)


def leaves():
    limits = st.sampled_from([0, 1, 2.5])
    return st.one_of(
        st.sampled_from([{}, True, {"title": "t"}, {"$ref": "#/$defs/D"}, {"$ref": "#/$defs/E"}]),
        merged(fixed(type="string"), optional(minLength=st.integers(0, 2), pattern=st.just("^a"))),
        merged(
            st.sampled_from([{"type": "integer"}, {"type": "number"}]),
            optional(minimum=limits, exclusiveMaximum=limits, multipleOf=st.sampled_from([2, 0.1])),
        ),
        st.sampled_from([{"type": "boolean"}, {"type": "null"}]),
        st.builds(lambda value: {"const": value}, scalars()),
        st.builds(
            lambda found: {"enum": found},
            st.lists(scalars(), min_size=1, max_size=3, unique_by=lambda v: (type(v), v)),
        ),
        st.builds(
            lambda names: {"type": names},
            st.lists(
                st.sampled_from(["string", "integer", "number", "null", "object", "array"]),
                min_size=1,
                max_size=3,
                unique=True,
            ),
        ),
    )


def holders(inner):
    parts = st.lists(inner, min_size=1, max_size=3)
    keys = st.lists(st.sampled_from(KEYS), max_size=2, unique=True)
    properties = st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    objects = merged(
        st.sampled_from([{"type": "object"}, {}, {"type": ["object", "null"]}]),
        optional(
            properties=properties,
            required=keys,
            additionalProperties=st.sampled_from([True, False]) | inner,
            patternProperties=st.dictionaries(st.sampled_from(["^x", "a"]), inner, max_size=2),
            minProperties=st.integers(0, 2),
        ),
        st.just({})
        | optional(
            anyOf=parts,
            allOf=parts,
            oneOf=parts,
            propertyNames=st.just({"maxLength": 1}),
            dependentRequired=st.just({"a": ["b"]}),
            **{
                "not": st.just({"required": ["x1"]}),
                "if": st.just({"required": ["a"]}),
                "then": st.just({"properties": {"zz": {"type": "integer"}}}),
            },
        ),
    )
    arrays = merged(
        st.sampled_from([{"type": "array"}, {}]),
        optional(
            items=inner | st.just(False),
            prefixItems=parts,
            minItems=st.integers(0, 2),
            maxItems=st.integers(1, 3),
            uniqueItems=st.booleans(),
            contains=inner,
        ),
    )
    unions = st.sampled_from(["anyOf", "oneOf", "allOf"]).flatmap(
        lambda keyword: st.builds(lambda found: {keyword: found}, parts)
    )
    nullable = st.builds(lambda found: {"anyOf": [found, {"type": "null"}]}, inner)
    return objects | objects | arrays | unions | nullable


def schemas():
    inner = st.recursive(leaves(), holders, max_leaves=6)
    # D may refer to E, so that no reference leads back.
    closed = inner.map(lambda found: _without_references(found, DEFINITIONS))
    linked = inner.map(lambda found: _without_references(found, ["D"]))
    return st.builds(
        lambda root, d, e: {**(root if isinstance(root, dict) else {}), "$defs": {"D": d, "E": e}},
        holders(inner) | inner,
        linked,
        closed,
    )


def _without_references(schema, names):
    if isinstance(schema, list):
        return [_without_references(item, names) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("$ref") in {f"#/$defs/{name}" for name in names}:
        return {}
    return {key: _without_references(item, names) for key, item in schema.items()}


def exactly(value):
    return json.dumps(value)


@given(schemas(), values())
def test_check_agrees_with_the_official_semantics(schema, value):
    official = jsonschema_rs.validator_for(schema, offline=True).is_valid(value)
    assert (check(schema, value) == []) is official


@given(schemas(), values())
def test_the_plain_form_accepts_what_the_schema_accepts(schema, value):
    official = jsonschema_rs.validator_for(schema, offline=True).is_valid(value)
    assert compile_schema(schema).accepts(value) is official


@given(schemas(), values())
def test_a_value_that_fits_is_valid_and_left_as_it_is_by_the_slow_path(schema, value):
    # Compiled apart, because what `compile_schema` gives may be shared.
    compiled = compile_schema(schema)
    assume(compiled.fits(value))
    assert compiled.accepts(value)
    compiled.fits = lambda _value: False
    fitted = fit(compiled, value)
    assert fitted.value is value
    assert fitted.changes == ()
    assert fitted.problem is None


@given(schemas(), values())
def test_a_valid_value_is_only_converted_or_stripped(schema, value):
    assume(check(schema, value) == [])
    assert {change.action for change in fit(schema, value).changes} <= {"converted", "stripped"}


@given(schemas(), values())
def test_no_change_means_the_same_object(schema, value):
    fitted = fit(schema, value)
    assert bool(fitted.changes) or fitted.value is value


@given(schemas(), values())
def test_every_change_lies_in_the_value_or_in_the_result(schema, value):
    for change in fit(schema, value).changes:
        assert change.path == "" or change.path.startswith("/")
        assert change.action in {
            "converted",
            "filled",
            "replaced",
            "stripped",
            "padded",
            "truncated",
        }


@given(schemas(), values())
def test_convert_and_strip_are_idempotent(schema, value):
    for verb in (convert, strip):
        once = verb(schema, value)
        assert exactly(verb(schema, once)) == exactly(once)


@given(schemas(), values())
def test_a_cast_that_ends_in_a_valid_value_is_idempotent(schema, value):
    try:
        once = cast(schema, value)
    except CastError:
        return
    assume(check(schema, once) == [])
    assert fit(schema, fit(schema, once).value).changes == ()


def sound(inner):
    """Schemas whose created values check: a cast of them always succeeds."""
    properties = st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    objects = st.builds(
        lambda found, count: {
            "type": "object",
            "properties": found,
            "required": list(found)[:count],
        },
        properties,
        st.integers(0, 3),
    )
    arrays = st.builds(lambda found: {"type": "array", "items": found}, inner)
    unions = st.builds(lambda found: {"anyOf": found}, st.lists(inner, min_size=1, max_size=3))
    return objects | arrays | unions


SOUND = st.recursive(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "string", "minLength": 2},
            {"type": "integer", "minimum": 1},
            {"type": "number"},
            {"type": "boolean"},
            {"type": "null"},
            {"const": "cat"},
            {"enum": ["a", 1, None]},
            {"type": "integer", "default": 7},
        ]
    ),
    sound,
    max_leaves=8,
)


@given(SOUND, values())
def test_the_cast_of_a_sound_schema_is_valid_and_idempotent(schema, value):
    once = cast(schema, value)
    assert check(schema, once) == []
    assert cast(schema, once) is once


@given(SOUND, values())
def test_the_fit_of_a_sound_schema_is_valid_and_idempotent(schema, value):
    fitted = fit(schema, value)
    assert check(schema, fitted.value) == []
    again = fit(schema, fitted.value)
    assert again.value is fitted.value
    assert again.changes == ()


@given(schemas(), values())
def test_nothing_is_changed_in_place(schema, value):
    kept_schema, kept_value = copy.deepcopy(schema), copy.deepcopy(value)
    for verb in (check, convert, strip, fit, cast):
        try:
            verb(schema, value)
        except CastError:
            continue
    assert exactly(value) == exactly(kept_value)
    assert exactly(schema) == exactly(kept_schema)


def _reversed(value):
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return [_reversed(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(texts(), values(), max_size=5))
def test_the_hash_is_blind_to_the_order_of_keys(value):
    assert schema_hash(_reversed(value)) == schema_hash(value)


@given(values())
def test_canonical_json_is_json_and_its_own_canonical_form(value):
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text
