"""The law of `diff`: a change that is called non-breaking breaks no value.

Every value that the old input admitted is admitted by the new one, and every value that the new
output allows was allowed by the old one.
"""

from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callpact import Catalog, Contract, Tool
from callpact.contracts import CoverProof, Prover, diff_catalogs
from callpact.contracts.counterexample import made_values

WORDS = ["a", "b", "c"]
SINGLE = (
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-12, 12), st.sampled_from([0, 1, 1.0, 0.5, 2.5, -3.5]),
    st.text("abc", max_size=4),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner),
    max_leaves=8,
)


def maybe(**rules):
    return st.fixed_dictionaries({}, optional=rules)


LEAVES = st.one_of(
    st.booleans(),
    maybe(type=st.sampled_from(["string", "integer", "number", "null", ["string", "null"]])),
    maybe(type=st.just("integer"), minimum=st.integers(-9, 9), maximum=st.integers(-9, 9)),
    maybe(
        type=st.just("number"), multipleOf=st.integers(1, 6), exclusiveMinimum=st.integers(-9, 9)
    ),
    maybe(type=st.just("string"), minLength=st.integers(0, 3), maxLength=st.integers(0, 4)),
    maybe(type=st.just("string"), pattern=st.sampled_from(["^a", "b$", "^a+$", "^[ab]*$"])),
    st.fixed_dictionaries({"enum": st.lists(SCALARS, min_size=1, max_size=4)}),
    st.fixed_dictionaries({"const": SCALARS}),
    st.sampled_from([{"$ref": "#/$defs/t"}, {"$ref": "#t"}, {"$dynamicRef": "#t"}]),
)


def branches(inner):
    names = st.sampled_from(WORDS)
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        maybe(
            type=st.just("object"),
            properties=st.dictionaries(names, inner, max_size=3),
            required=st.lists(names, unique=True, max_size=2),
            additionalProperties=inner,
            patternProperties=st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=1),
            minProperties=st.integers(0, 2),
            propertyNames=inner,
            dependentRequired=st.dictionaries(names, st.lists(names, unique=True), max_size=1),
            dependentSchemas=st.dictionaries(names, inner, max_size=1),
        ),
        maybe(
            type=st.just("array"),
            items=inner,
            prefixItems=some,
            minItems=st.integers(0, 2),
            maxItems=st.integers(0, 4),
            uniqueItems=st.booleans(),
            contains=inner,
            minContains=st.integers(0, 2),
            maxContains=st.integers(0, 2),
            unevaluatedItems=inner,
        ),
        maybe(anyOf=some, allOf=some, oneOf=some),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"if": inner}, optional={"then": inner, "else": inner}),
        maybe(properties=st.dictionaries(names, inner), unevaluatedProperties=inner),
    )


PARTS = st.recursive(LEAVES, branches, max_leaves=6)


SIMPLE = LEAVES.filter(lambda schema: "Ref" not in str(schema) and "$ref" not in str(schema))
NAMES = {"$anchor": "t", "$dynamicAnchor": "t"}


@st.composite
def changed(draw):
    """A schema, and the same with one part of it drawn anew, extended or with a rule less."""
    old = {"allOf": [draw(PARTS)], "$defs": {"t": {"allOf": [draw(SIMPLE)], **NAMES}}}
    new = copy.deepcopy(old)
    place, key, fresh = draw(
        st.sampled_from([(new["allOf"], 0, PARTS), (new["$defs"]["t"]["allOf"], 0, SIMPLE)])
    )
    while inner := [each for each in inside(place[key]) if draw(st.booleans())]:
        place, key = inner[draw(st.integers(0, len(inner) - 1))]
    part = place[key]
    kind = draw(st.sampled_from(["replaced", "extended", "shortened"]))
    if kind == "shortened" and isinstance(part, dict) and part:
        del part[draw(st.sampled_from([*part]))]
    elif kind == "extended" and isinstance(part, dict):
        more = draw(fresh)
        place[key] = {**part, **(more if isinstance(more, dict) else {})}
    else:
        place[key] = draw(fresh)
    return old, new


def inside(schema):
    """The places of the schemas directly inside a schema, each as its holder and key there."""
    for key, part in schema.items() if isinstance(schema, dict) else ():
        if key in ("properties", "patternProperties", "dependentSchemas"):
            yield from ((part, name) for name in part)
        elif key in ("anyOf", "allOf", "oneOf", "prefixItems"):
            yield from ((part, index) for index in range(len(part)))
        elif key in SINGLE:
            yield schema, key


class Unsure(Prover):
    """Proves nothing, so that the table decides."""

    def covers(self, wide, narrow):
        return CoverProof("unknown", reason="not tried")


async def handler(arguments, context):
    return None


def catalog(side, schema):
    contract = Contract(**{side: schema})
    return Catalog([Tool(id="a.b", description="", contract=contract, handler=handler)])


@pytest.fixture(scope="module", params=[Prover, Unsure])
def prover(request):
    with request.param() as made:
        yield made


@pytest.mark.parametrize("side", ["input", "output"])
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(pair=changed(), values=st.lists(VALUES, min_size=30, max_size=30))
def test_a_change_that_is_not_breaking_breaks_no_value(prover, side, pair, values):
    old, new = (catalog(side, schema) for schema in pair)
    found = diff_catalogs(old, new, prover=prover)
    if found.is_breaking:
        return
    contracts = [each.find("a.b").contract for each in (old, new)]
    if side == "input":
        narrow, wide = (each.compiled_input for each in contracts)
    else:
        wide, narrow = (each.compiled_output for each in contracts)
    for value in (*values, *made_values(pair[0], 100), *made_values(pair[1], 100)):
        if narrow is None or narrow.accepts(value):
            assert wide is None or wide.accepts(value), (value, found.changes)
