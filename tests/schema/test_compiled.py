"""Compiled schemas under hostile input: every case ends soon, in an issue or an error of ours."""

from __future__ import annotations

import subprocess
import sys

import pytest

from callpact.errors import InvalidSchema
from callpact.schema import check, compile_schema, is_json
from callpact.schema.bounds import MAX_VALUE_DEPTH
from callpact.schema.compiled import MAX_EXPLAINED
from callpact.schema.values import not_json


def test_a_compiled_schema_is_compiled_once():
    compiled = compile_schema({"type": "string"})
    assert compile_schema(compiled) is compiled


@pytest.mark.parametrize(
    ("schema", "unknown"),
    [
        (True, True),
        ({}, True),
        ({"title": "T", "description": "d", "$defs": {}}, True),
        ({"type": "string"}, False),
        (False, False),
    ],
)
def test_a_schema_of_annotations_alone_is_unknown(schema, unknown):
    assert compile_schema(schema).is_unknown is unknown


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "text"},
        {"type": 5},
        {"properties": 5},
        {"required": "a"},
        {"anyOf": []},
        {"pattern": "("},
        {"minLength": -1},
        {"$ref": "#/$defs/none"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "file:///etc/hosts"},
        {"$schema": 5},
        {"$id": "https://example.com/a", "properties": {"a": {"$ref": "b.json"}}},
    ],
)
def test_what_cannot_be_compiled_is_refused_and_nothing_is_fetched(schema):
    with pytest.raises(InvalidSchema):
        compile_schema(schema)


def test_an_unknown_type_is_named_with_its_place():
    with pytest.raises(InvalidSchema) as caught:
        compile_schema({"properties": {"a": {"type": "text"}}})
    assert caught.value.path == "/properties/a/type"
    assert "'text'" in caught.value.message


def test_format_is_an_annotation_unless_asked_for():
    schema = {"format": "email"}
    assert compile_schema(schema).accepts("nobody")
    assert not compile_schema(schema, formats=True).accepts("nobody")


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def test_json_may_nest_as_deep_as_the_limit():
    assert is_json(nested(MAX_VALUE_DEPTH))
    assert not is_json(nested(MAX_VALUE_DEPTH + 1))
    assert [issue.code for issue in not_json(nested(MAX_VALUE_DEPTH + 1))] == ["depth"]


def test_a_vast_value_has_its_first_violation_told():
    value = ["x"] * (MAX_EXPLAINED + 1)
    (issue,) = check({"items": {"type": "integer"}}, value)
    assert issue.code == "type"


def test_a_number_of_too_many_digits_is_told_as_such():
    (issue,) = check({"properties": {"a": {"type": "string"}}}, {"a": 10**5000})
    assert (issue.code, issue.path) == ("json", "/a")


PRELUDE = """
from callpact.errors import CastError, InvalidSchema, Issue
from callpact.schema import *

def deep(depth, key=None):
    value = 1
    for _ in range(depth):
        value = [value] if key is None else {key: value}
    return value

def chain(count, link):
    defs = {"T0": {"type": "integer"}}
    for i in range(1, count + 1):
        defs[f"T{i}"] = link({"$ref": f"#/$defs/T{i - 1}"})
    return {"$defs": defs, "$ref": f"#/$defs/T{count}"}

def ends(schema, *values):
    for value in values:
        for verb in (check, cast, convert, strip, fit):
            try:
                verb(schema, value)
            except (CastError, InvalidSchema):
                pass

def cycle(keyword, *branches):
    return {"$defs": {"N": {keyword: list(branches)}}, "$ref": "#/$defs/N"}

N = {"$ref": "#/$defs/N"}
BRANCH = {"type": "object", "properties": {"a": N}}
FANCY = ["^(a+)+$", "(a*)*b", r"^(a+)\\1+$", "^(?=(a+)+$)b", "^(?:a(?!b)|aa?)+$", "(?<=a)(a+)+$"]
"""

HOSTILE = {
    "a deep value": "ends({}, deep(50_000), deep(50_000, 'a'))",
    "a deep value under a recursive reference": """
ends({"$defs": {"N": {"items": N, "additionalProperties": N, "type": ["array", "object"]}}, **N},
     deep(50_000), deep(50_000, "a"))""",
    "a deep value among unique ones": """
ends({"type": "array", "uniqueItems": True, "items": {}}, [deep(50_000), deep(50_000)])
ends({"uniqueItems": True}, [deep(50_000), deep(50_000)])""",
    "a deep value against a constant": """
ends({"const": deep(150)}, deep(50_000), deep(150))
ends({"enum": [deep(150), 1]}, deep(50_000))
ends({"const": deep(50_000)}, 1)""",
    "a deep schema": """
schema = {}
for _ in range(50_000):
    schema = {"properties": {"a": schema}}
ends(schema, 1)""",
    "a schema at the limit of depth": """
schema = {"type": "integer"}
for _ in range(95):
    schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
ends(schema, deep(95, "a"), {}, deep(94, "a"))""",
    "references that double in place": "ends(chain(60, lambda r: {'allOf': [r, r]}), 1, 'x')",
    "references that double below the limit": """
ends(chain(20, lambda r: {"allOf": [r, r]}), 1, "x")
ends({**chain(20, lambda r: {"allOf": [r, r]}), "unevaluatedProperties": False}, 1, {})""",
    "references that double through properties": """
ends(chain(40, lambda r: {"type": "object", "properties": {"a": r, "b": r}, "required": ["a", "b"]}),
     1, {}, deep(40, "a"))
ends(chain(18, lambda r: {"properties": {"a": {"allOf": [r, r]}}}), deep(18, "a"), deep(40, "a"))
ends(chain(18, lambda r: {"anyOf": [{"properties": {"a": r}}, {"properties": {"a": r, "b": r}}]}),
     deep(18, "a"), deep(40, "a"))""",
    "cycles that double": """
for keyword in ("anyOf", "oneOf", "allOf"):
    ends(cycle(keyword, BRANCH, {**BRANCH, "required": []}), deep(100, "a"), {"a": {}})""",
    "cycles that double as chains of variants": """
ends({"$defs": {"N": {"type": "object", "properties": {"a": {"anyOf": [N, N]}}}}, **N},
     deep(100, "a"))""",
    "references in a loop": """
ends({"$ref": "#"}, 1, {})
ends({"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"}, 1)
for keyword in ("anyOf", "oneOf", "allOf"):
    ends(cycle(keyword, N, {"type": "string"}), 1, "x")
ends({"not": {"$ref": "#"}}, 1)""",
    "huge numbers": """
for schema in ({}, {"type": "integer"}, {"type": "integer", "maximum": 5}, {"type": "string"},
               {"type": "number", "multipleOf": 0.5}, {"multipleOf": 3}, {"enum": [1, 2]},
               {"const": 1}, {"type": "array", "uniqueItems": True}, {"type": "null"}):
    ends(schema, 2**5000, 10**400, -(10**400), 1e400, 10**5000, [10**5000, 10**5000], "9" * 5000)
for limit in (10**400, 10**5000, 1e308):
    ends({"type": "number", "minimum": limit}, 1)
    ends({"type": "number", "multipleOf": limit}, 1)""",
    "catastrophic patterns": """
for pattern in FANCY:
    ends({"type": "string", "pattern": pattern}, "a" * 30_000 + "!")
    ends({"type": "object", "patternProperties": {pattern: {"type": "integer"}}}, {"a" * 5_000 + "!": ""})
    ends({"type": "object", "propertyNames": {"pattern": pattern}}, {"a" * 5_000 + "!": 1})
ends({"pattern": "((a{100}){100}){100}"}, "a")""",
    "huge sizes to invent": """
huge = 10**12
ends({"type": "array", "minItems": huge, "items": {"type": "integer"}}, 1, [])
ends({"type": "string", "minLength": huge}, 1)
ends({"type": "array", "minItems": 9_999, "items": {"type": "string", "minLength": 9_999}}, 1, [])
ends({"type": "array", "minItems": 9_999, "items": {"default": [1] * 100_000, "type": "array"}}, [])
ends({"type": "array", "minItems": 1e300}, 1)""",
    "many unique objects": """
items = [{"a": i} for i in range(200_000)]
ends({"type": "array", "uniqueItems": True}, items, [*items, {"a": 0}])""",
    "a wide enum": """
ends({"enum": [f"v{i}" for i in range(100_000)]}, "nope", "v99999")
ends({"items": {"enum": [f"v{i}" for i in range(100_000)]}}, ["nope"] * 300)
ends({"enum": [{"v": i} for i in range(50_000)]}, {"v": -1})""",
    "a wide union": """
ends({"anyOf": [{"const": f"v{i}"} for i in range(20_000)]}, "nope")""",
    "many violations": """
ends({"items": {"type": "integer"}}, ["x"] * 150_000)
ends({"type": "object", "required": [f"k{i}" for i in range(50_000)]}, {})
ends({"properties": {f"name_{i}": {} for i in range(2_000)}, "additionalProperties": False},
     {f"nam_{i}": 1 for i in range(2_000)})""",
    "values that hold themselves": """
value = []
value.append(value)
ends({}, value)
ends({"type": "array", "items": {"type": "integer"}}, value)
ends({"$defs": {"N": {"type": "array", "items": N}}, **N}, value)""",
    "what is not JSON": """
class Text(str): pass
class Number(int): pass
strange = [object(), b"x", {1}, (1, 2), Text("x"), Number(1), 1j, range(3), ends, float("nan")]
for schema in ({}, {"type": "array", "items": {"type": "integer"}}, {"enum": ["x", 1]},
               {"const": "x"}, {"type": "object", "properties": {"a": {"type": "string"}}},
               {"type": "array", "uniqueItems": True}, {"anyOf": [{"type": "string"}, {"type": "null"}]}):
    for item in strange:
        ends(schema, item, {"a": item}, [item, item], {item if item.__hash__ else 1: 1})""",
    "lone surrogates": """
for schema in ({}, {"type": "string"}, {"enum": ["a"]}, {"type": "object", "properties": {"a": {}}}):
    for value in ("\\ud800", {"\\ud800": 1}):
        assert {issue.code for issue in check(schema, value)} == {"json"}, (schema, value)
        ends(schema, value, {"a": "\\udfff"}, ["\\ud800"])
ends({"properties": {"\\ud800": {}}}, {})
ends({"const": "\\ud800"}, "\\ud800")""",
    "canonical JSON": """
itself = {}
itself["a"] = itself
for value in (deep(50_000), {"a": deep(50_000, "a")}, itself, {"a": 2**5000}, {1: 2}):
    for verb in (canonical_json, schema_hash):
        try:
            verb(value)
        except InvalidSchema:
            continue
        raise AssertionError(value)""",
}


@pytest.mark.parametrize("story", HOSTILE.values(), ids=HOSTILE)
def test_hostile_input_ends_in_an_issue_or_an_error_of_ours(story):
    # In a process of its own: what it guards against is a crash of the interpreter, or a hang.
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + story],
        capture_output=True,
        text=True,
        timeout=60,  # On a busy machine the slowest takes twenty seconds.
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_same_small_schema_is_compiled_once_and_shared():
    first = compile_schema({"type": "string", "minLength": 3})
    assert compile_schema({"type": "string", "minLength": 3}) is first
    assert compile_schema({"type": "string", "minLength": 4}) is not first
    assert compile_schema({"type": "string", "minLength": 3}, formats=True) is not first


def test_compiled_schemas_are_equal_when_they_say_the_same():
    # A reference keeps a schema from being shared, so that equality is not identity here.
    schema = {"$defs": {"t": {"type": "string"}}, "$ref": "#/$defs/t"}
    first, second = compile_schema(schema), compile_schema(schema)
    assert first is not second
    assert first == second
    assert hash(first) == hash(second)
    assert first != compile_schema(schema, formats=True)
