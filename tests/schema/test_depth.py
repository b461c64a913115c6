"""Values of 1,000 levels are checked, converted, cast and stripped; beyond comes a clear error."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from callpact import from_functions
from callpact.catalog import Catalog
from callpact.envelope import ResponseEnvelope, local_envelope
from callpact.errors import InvalidConfig, InvalidInput, InvalidSchema, NotJson, OutputRejected
from callpact.gate import release
from callpact.runtime import Runtime
from callpact.schema import (
    SchemaLimits,
    cast,
    check,
    compile_schema,
    fit,
    is_json,
    schema_limits,
    set_schema_limits,
    strip,
)
from callpact.schema.bounds import MAX_DEPTH_SETTING, MAX_VALUE_DEPTH
from callpact.secrets import Secrets
from callpact.tool import Contract

OPEN = {"type": ["object", "array"]}
TREE = {
    "type": "object",
    "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "integer"}]}, "b": {"type": "integer"}},
}


@pytest.fixture
def limits():
    """Whatever a test sets, others have the limits from before."""
    before = schema_limits()
    yield
    set_schema_limits(before)


def nested(levels, leaf=1, **more):
    value = leaf
    for _ in range(levels):
        value = {"a": value, **more}
    return value


def listed(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("make", [nested, listed])
@pytest.mark.parametrize("levels", [127, 128, 129, 255, 256, 384, 999, MAX_VALUE_DEPTH])
def test_a_value_within_the_limit_is_json_and_keeps_an_open_schema(make, levels):
    value = make(levels)
    assert is_json(value)
    assert compile_schema(OPEN).accepts(value)
    assert check(OPEN, value) == []


@pytest.mark.parametrize("make", [nested, listed])
@pytest.mark.parametrize("levels", [MAX_VALUE_DEPTH + 2, 2 * MAX_VALUE_DEPTH, 50_000])
def test_a_deeper_value_is_refused_with_the_limit(make, levels):
    value = make(levels)
    assert not is_json(value)
    assert not compile_schema(OPEN).accepts(value)
    (issue, *_) = check(OPEN, value)
    assert (issue.code, issue.expected) == ("depth", MAX_VALUE_DEPTH)
    assert "1,000 levels" in issue.message


def test_a_value_that_holds_itself_is_refused():
    for times in (1, 2):
        value = []
        value.extend([value] * times)
        assert not is_json(value)
        assert check({}, value)[0].code == "depth"


def test_what_is_not_json_is_found_at_every_depth():
    for levels in (100, 200, 900):
        assert not is_json(nested(levels, leaf=float("nan")))
        assert not is_json(nested(levels, leaf=object()))


@pytest.mark.parametrize("levels", [200, 1_000])
def test_deep_values_are_converted_stripped_and_cast(levels):
    value = nested(levels, leaf="7", zz=1)
    fitted = fit(TREE, value)
    assert fitted.problem is None
    assert len(fitted.changes) == levels + 1
    inner = fitted.value
    while isinstance(inner, dict):
        assert inner.keys() == {"a"}
        inner = inner["a"]
    assert inner == 7
    assert strip(TREE, fitted.value) is fitted.value
    assert isinstance(cast(TREE, value), dict)


@pytest.mark.parametrize("policy", ["warn", "cast", "convert", "reject"])
def test_deep_answers_are_released_and_written(policy):
    value = nested(1_000)
    envelope = release(Contract(output=TREE, policy=policy), local_envelope(value, "a.b"))
    assert envelope.data is value
    text = envelope.to_json()
    assert text.count(b"{") > 1_000
    assert ResponseEnvelope.from_json(text).to_json() == text


def test_a_deep_answer_that_is_wrong_is_refused_in_good_time():
    for leaf, policy in (("x", "convert"), ("7", "reject")):
        with pytest.raises(OutputRejected):
            release(
                Contract(output=TREE, policy=policy), local_envelope(nested(1_000, leaf), "a.b")
            )


def test_what_is_wrong_above_a_deep_part_is_told_with_its_place():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "deep": {}}}
    (issue,) = check(schema, {"n": "x", "deep": nested(900)})
    assert (issue.code, issue.path) == ("type", "/n")


def test_a_deep_argument_reaches_a_function():
    async def levels(value: dict) -> int:
        count = 0
        while isinstance(value, dict):
            value, count = value["a"], count + 1
        return count

    (tool,) = from_functions(levels, namespace="t")
    runtime = Runtime(Catalog([tool]))
    assert asyncio.run(runtime.execute(tool.id, {"value": nested(999)})).data == 999
    with pytest.raises(InvalidInput) as caught:
        asyncio.run(runtime.execute(tool.id, {"value": nested(5_000)}))
    assert caught.value.issues[0].code == "depth"


def test_a_function_may_return_a_deep_dict():
    async def deep() -> dict:
        return nested(1_000)

    (tool,) = from_functions(deep, namespace="t")
    assert json.dumps(asyncio.run(Runtime(Catalog([tool])).execute(tool.id, {})).data)


def test_an_answer_beyond_the_limit_is_refused_not_crashed():
    with pytest.raises(NotJson):
        release(Contract(output=TREE), local_envelope(nested(5_000), "a.b"))


def test_secrets_are_masked_at_every_depth():
    masked = Secrets({"KEY": "abcdefgh"}).mask_data(nested(1_000, leaf="abcdefgh"))
    while isinstance(masked, dict):
        masked = masked["a"]
    assert masked == "***"


@pytest.mark.parametrize("entry", [str, lambda n: {"id": n}, lambda n: [n, n]])
def test_an_enum_of_100_000_entries_is_legal(entry):
    schema = {"type": "object", "properties": {"e": {"enum": [entry(n) for n in range(100_000)]}}}
    compiled = compile_schema(schema)
    assert compiled.accepts({"e": entry(99_999)})
    assert check(compiled, {"e": "nope"})[0].code == "enum"


def test_the_limits_are_settings(limits):
    set_schema_limits(SchemaLimits(value_depth=50, schema_values=10_000))
    assert is_json(nested(50))
    assert not is_json(nested(51))
    assert check({"type": "object", "title": "fresh"}, nested(60))[0].expected == 50
    with pytest.raises(InvalidSchema, match="schema_values"):
        compile_schema({"enum": list(range(20_000))})
    set_schema_limits(SchemaLimits(value_depth=1_200))
    assert is_json(nested(1_200))
    assert not is_json(nested(1_201))


@pytest.mark.parametrize("given", [0, -1, True, 1.5, "9", MAX_DEPTH_SETTING + 1])
def test_a_depth_that_is_not_safe_is_refused(given):
    with pytest.raises(InvalidConfig):
        SchemaLimits(value_depth=given)


def test_python_gets_room_to_recurse_only_for_deep_values():
    before = sys.getrecursionlimit()
    assert is_json(nested(100))
    assert fit(TREE, nested(50)).problem is None
    assert sys.getrecursionlimit() == before
