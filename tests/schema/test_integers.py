"""A float beyond 2^53 is never taken for an integer: it may have been another one."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact import from_functions
from callpact.catalog import Catalog
from callpact.errors import InvalidInput, OutputRejected
from callpact.runtime import Runtime
from callpact.schema import check, compile_schema, fit

INT = {"type": "integer"}
VAST = json.loads("9007199254740993.0")  # Read as 9007199254740992.0.
WANTING = [
    (INT, VAST, ""),
    ({"type": ["integer", "null"]}, VAST, ""),
    ({"anyOf": [INT, {"type": "null"}]}, VAST, ""),
    ({"oneOf": [INT, {"type": "string"}]}, VAST, ""),
    ({"type": "object", "properties": {"n": INT}}, {"n": VAST}, "/n"),
    ({"properties": {"n": INT}, "additionalProperties": False}, {"n": VAST}, "/n"),
    ({"type": "object", "additionalProperties": INT}, {"n": VAST}, "/n"),
    ({"additionalProperties": INT}, {"n": VAST}, "/n"),
    ({"patternProperties": {"^n": INT}}, {"n": VAST}, "/n"),
    ({"type": "array", "items": INT}, [1, VAST], "/1"),
    ({"items": INT}, [1, VAST], "/1"),
    ({"type": "array", "prefixItems": [{}, INT]}, [1.5, VAST], "/1"),
    ({"allOf": [{"properties": {"n": INT}}]}, {"n": VAST}, "/n"),
    ({"$ref": "#/$defs/N", "$defs": {"N": INT}}, VAST, ""),
    ({"$ref": "#/$defs/N", "$defs": {"N": {"properties": {"n": INT, "o": {"$ref": "#/$defs/N"}}}}},
     {"o": {"o": {"n": VAST}}}, "/o/o/n"),
    ({"$id": "urn:a", "$ref": "#n", "$defs": {"N": {"$anchor": "n", **INT}}}, VAST, ""),
    ({"if": {"type": "number"}, "then": INT}, VAST, ""),
    ({"dependentSchemas": {"a": {"properties": {"n": INT}}}}, {"a": 1, "n": VAST}, "/n"),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [INT]}, [VAST], "/0"),
    ({"$schema": "http://json-schema.org/draft-04/schema#", **INT}, VAST, ""),
    ({"type": "object", "properties": {"n": INT}, "unevaluatedProperties": False}, {"n": VAST}, "/n"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "path"), WANTING)
@pytest.mark.parametrize("size", [VAST, -VAST, 2.0**60, 1e23, 1e300])
def test_a_float_beyond_2_to_the_53_is_no_integer(schema, value, path, size):
    value = json.loads(json.dumps(value).replace("9007199254740992.0", repr(size)))
    compiled = compile_schema(schema)
    assert not compiled.accepts(value)
    assert not compiled.fits(value)
    issues = check(schema, value)
    assert [(issue.code, issue.path) for issue in issues] == [("type", path)]


@pytest.mark.parametrize(("schema", "value", "path"), WANTING)
@pytest.mark.parametrize("number", [7, 2**53 + 1, 2**64 + 1, -(10**40)])
def test_integers_of_any_size_are_integers(schema, value, path, number):
    value = json.loads(json.dumps(value).replace("9007199254740992.0", str(number)))
    assert compile_schema(schema).accepts(value)
    assert check(schema, value) == []


@pytest.mark.parametrize("value", [VAST, 1e300, 2**70, 0.5, -0.0])
@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "number"},
        {"type": ["integer", "number"]},
        {"anyOf": [INT, {"type": "number"}]},
        {"type": "number", "multipleOf": 0.25},
    ],
)
def test_floats_of_any_size_are_numbers(schema, value):
    assert compile_schema(schema).accepts(value)
    assert check(schema, value) == []


def test_the_issue_says_what_to_do_and_not_the_value():
    (issue,) = check({"properties": {"n": {**INT, "writeOnly": True}}}, {"n": VAST})
    assert "9007" not in issue.message
    assert (issue.expected, issue.received) == ("integer", "number")
    assert "without a fraction" in issue.hint


def test_a_fitted_value_keeps_such_a_float_and_is_not_called_fitting():
    fitted = fit(INT, VAST)
    assert type(fitted.value) is float
    assert check(INT, fitted.value)


@given(st.integers() | st.integers(2**53 - 2, 2**70) | st.integers(-(2**70), 2 - 2**53))
def test_an_integer_written_with_a_fraction_comes_as_itself_or_is_refused(number):
    read = json.loads(f"{number}.0")
    fitted = fit(INT, read)
    assert fitted.value == number or check(INT, read)


def run_tool(tool, arguments):
    return asyncio.run(Runtime(Catalog([tool])).execute(tool.id, arguments))


async def count(n: int) -> int:
    return n


def test_a_function_is_never_given_another_integer_than_was_sent():
    (tool,) = from_functions(count, namespace="t")
    with pytest.raises(InvalidInput):
        run_tool(tool, {"n": VAST})
    assert run_tool(tool, {"n": 2**53 + 1}).data == 2**53 + 1


def test_a_function_that_returns_such_a_float_for_an_int_is_refused():
    async def vast() -> int:
        return 9007199254740993.0

    (tool,) = from_functions(vast, namespace="t")
    with pytest.raises(OutputRejected):
        run_tool(tool, {})
