"""What any schema of a place declares is not stripped, and not refused as undeclared."""

from __future__ import annotations

import pytest

from callpact.envelope import local_envelope
from callpact.errors import OutputRejected
from callpact.gate import release
from callpact.schema import strip
from callpact.tool import Contract

I = {"type": "integer"}  # noqa: E741 - short, for the table
OLD = "http://json-schema.org/draft-07/schema#"


def P(**properties):
    return {"type": "object", "properties": properties}


DECLARED = [
    ("allOf props", {"allOf": [P(a=I), P(b=I)]}, {"a": 1, "b": 2}),
    ("base+allOf", {**P(a=I), "allOf": [P(b=I)]}, {"a": 1, "b": 2}),
    ("base+allOf open object", {**P(a=I), "allOf": [{"type": "object"}]}, {"a": 1, "b": 2}),
    (
        "allOf branch additionalProperties true",
        {**P(a=I), "allOf": [{"type": "object", "additionalProperties": True}]},
        {"a": 1, "b": 2},
    ),
    (
        "allOf branch AP schema",
        {**P(a=I), "allOf": [{"additionalProperties": I}]},
        {"a": 1, "b": 2},
    ),
    (
        "allOf branch AP schema+props",
        {"allOf": [P(a=I), {**P(c=I), "additionalProperties": I}]},
        {"a": 1, "b": 2},
    ),
    (
        "allOf branch pattern",
        {**P(a=I), "allOf": [{"patternProperties": {"^b": I}}]},
        {"a": 1, "b": 2},
    ),
    ("allOf required only", {**P(a=I), "allOf": [{"required": ["b"]}]}, {"a": 1, "b": 2}),
    ("allOf [..,{}]", {"allOf": [P(a=I), {}]}, {"a": 1}),
    ("allOf true", {"allOf": [P(a=I), True]}, {"a": 1}),
    ("allOf anyOf", {"allOf": [P(a=I), {"anyOf": [P(b=I), P(c=I)]}]}, {"a": 1, "b": 2}),
    (
        "allOf oneOf req",
        {
            "allOf": [
                P(a=I),
                {"oneOf": [{**P(b=I), "required": ["b"]}, {**P(c=I), "required": ["c"]}]},
            ]
        },
        {"a": 1, "b": 2},
    ),
    ("props + anyOf", {**P(a=I), "anyOf": [P(b=I), P(c=I)]}, {"a": 1, "b": 2}),
    ("props + anyOf both", {**P(a=I), "anyOf": [P(b=I), P(c=I)]}, {"a": 1, "b": 2, "c": 3}),
    ("props + $ref", {**P(a=I), "$ref": "#/$defs/B", "$defs": {"B": P(b=I)}}, {"a": 1, "b": 2}),
    (
        "allOf refs",
        {
            "allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}],
            "$defs": {"A": P(a=I), "B": P(b=I)},
        },
        {"a": 1, "b": 2},
    ),
    (
        "if then",
        {**P(a=I), "if": {"properties": {"a": {"const": 1}}}, "then": P(b=I), "else": P(c=I)},
        {"a": 1, "b": 2},
    ),
    (
        "if props",
        {**P(a=I), "if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": P(b=I)},
        {"a": 1, "b": 2, "k": 1},
    ),
    ("dependentSchemas", {**P(a=I), "dependentSchemas": {"a": P(b=I)}}, {"a": 1, "b": 2}),
    (
        "dependencies d7",
        {"$schema": OLD, **P(a=I), "dependencies": {"a": P(b=I)}},
        {"a": 1, "b": 2},
    ),
    (
        "allOf if then",
        {**P(a=I), "allOf": [{"if": {"properties": {"a": {"const": 1}}}, "then": P(b=I)}]},
        {"a": 1, "b": 2},
    ),
    (
        "nested allOf in items",
        {"type": "array", "items": {"allOf": [P(a=I), P(b=I)]}},
        [{"a": 1, "b": 2}],
    ),
    ("allOf nested prop", {"allOf": [P(o=P(x=I)), P(o=P(y=I))]}, {"o": {"x": 1, "y": 2}}),
    ("props nested allOf", {**P(o=P(x=I)), "allOf": [P(o=P(y=I))]}, {"o": {"x": 1, "y": 2}}),
    (
        "unevaluated false",
        {"allOf": [P(a=I)], "properties": {"b": I}, "unevaluatedProperties": False},
        {"a": 1, "b": 2},
    ),
    ("unevaluated schema", {"allOf": [P(a=I)], "unevaluatedProperties": I}, {"a": 1, "b": 2}),
    ("unevaluated true", {"allOf": [P(a=I)], "unevaluatedProperties": True}, {"a": 1, "b": 2}),
    ("props unevaluated true", {**P(a=I), "unevaluatedProperties": True}, {"a": 1, "b": 2}),
    ("props unevaluated schema", {**P(a=I), "unevaluatedProperties": I}, {"a": 1, "b": 2}),
    ("anyOf one open", {"anyOf": [P(a=I), {"type": "object"}]}, {"a": 1, "b": 2}),
    (
        "oneOf AP true",
        {
            "oneOf": [
                {**P(a=I), "required": ["a"], "additionalProperties": True},
                {**P(c=I), "required": ["c"]},
            ]
        },
        {"a": 1, "b": 2},
    ),
    (
        "props+oneOf AP true",
        {
            **P(a=I),
            "oneOf": [
                {"required": ["b"], "additionalProperties": True},
                {**P(c=I), "required": ["c"]},
            ],
        },
        {"a": 1, "b": 2},
    ),
    ("not", {**P(a=I), "not": {"required": ["z"]}}, {"a": 1}),
    ("propertyNames", {"type": "object", "propertyNames": {"pattern": "^b"}}, {"b": 2}),
    ("props+propertyNames", {**P(a=I), "propertyNames": {"pattern": "^[ab]"}}, {"a": 1}),
    ("allOf const", {"allOf": [{"type": "object"}, {"const": {"a": 1}}]}, {"a": 1}),
    ("enum objs", {"allOf": [{"type": "object"}, {"enum": [{"a": 1}, {"b": 2}]}]}, {"a": 1}),
    ("props+enum objs", {**P(a=I), "enum": [{"a": 1, "b": 2}]}, {"a": 1, "b": 2}),
    (
        "type list",
        {"type": ["object", "null"], "properties": {"a": I}, "allOf": [{"properties": {"b": I}}]},
        {"a": 1, "b": 2},
    ),
    (
        "allOf array items",
        {"allOf": [{"type": "array", "items": P(a=I)}, {"type": "array", "items": P(b=I)}]},
        [{"a": 1, "b": 2}],
    ),
    (
        "prefixItems allOf",
        {"type": "array", "items": P(a=I), "allOf": [{"items": P(b=I)}]},
        [{"a": 1, "b": 2}],
    ),
    (
        "dynamicRef",
        {
            "$id": "http://x/y",
            "$dynamicAnchor": "n",
            "type": "object",
            "properties": {"a": I},
            "allOf": [{"$ref": "#/$defs/q"}],
            "$defs": {"q": {"properties": {"c": {"$dynamicRef": "#n"}}}},
        },
        {"a": 1, "c": {"a": 2}},
    ),
    (
        "recursiveRef",
        {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "$recursiveAnchor": True,
            "type": "object",
            "properties": {"a": I, "c": {"$recursiveRef": "#"}},
        },
        {"a": 1, "c": {"a": 2}},
    ),
    (
        "anchor ref allOf",
        {"allOf": [{"$ref": "#A"}, P(b=I)], "$defs": {"A": {"$anchor": "A", **P(a=I)}}},
        {"a": 1, "b": 2},
    ),
    (
        "id ref allOf",
        {
            "$id": "http://x/root",
            "allOf": [{"$ref": "sub"}, P(b=I)],
            "$defs": {"A": {"$id": "sub", **P(a=I)}},
        },
        {"a": 1, "b": 2},
    ),
    (
        "d4 id ref allOf",
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "id": "http://x/root",
            "allOf": [{"$ref": "#/definitions/A"}, P(b=I)],
            "definitions": {"A": P(a=I)},
        },
        {"a": 1, "b": 2},
    ),
    (
        "deep allOf",
        {"allOf": [{"allOf": [{"allOf": [P(a=I)]}, P(c=I)]}, P(b=I)]},
        {"a": 1, "b": 2, "c": 3},
    ),
    (
        "allOf closed branches?",
        {"allOf": [{**P(a=I, b=I), "additionalProperties": False}, P(b=I)]},
        {"a": 1, "b": 2},
    ),
    (
        "allOf patternProps closed",
        {
            "allOf": [
                {
                    "properties": {"a": {}},
                    "patternProperties": {"^b": {}},
                    "additionalProperties": False,
                },
                P(a=I),
            ]
        },
        {"a": 1, "b": 2},
    ),
    ("contains", {"type": "array", "contains": P(a=I)}, [{"a": 1, "b": 2}]),
    (
        "array items+contains",
        {"type": "array", "items": P(a=I), "contains": P(b=I)},
        [{"a": 1, "b": 2}],
    ),
    (
        "anyOf req",
        {**P(a=I), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"a": 1, "b": 2},
    ),
    ("allOf minProps", {**P(a=I), "allOf": [{"minProperties": 1}]}, {"a": 1}),
    ("const prop", {**P(a=I, b={"const": {"x": 1}})}, {"a": 1, "b": {"x": 1}}),
    (
        "additionalItems",
        {"$schema": OLD, "type": "array", "items": [P(a=I)], "additionalItems": P(b=I)},
        [{"a": 1}, {"b": 1}],
    ),
    (
        "nullable props allOf",
        {"properties": {"x": {"anyOf": [{"allOf": [P(a=I), P(b=I)]}, {"type": "null"}]}}},
        {"x": {"a": 1, "b": 2}},
    ),
    ("dep req", {**P(a=I), "dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 2}),
]


@pytest.mark.parametrize(
    ("schema", "value"), [case[1:] for case in DECLARED], ids=[case[0] for case in DECLARED]
)
def test_what_any_branch_declares_is_delivered_whole(schema, value):
    assert strip(schema, value) == value
    for policy in ("cast", "convert", "reject"):
        released = release(Contract(output=schema, policy=policy), local_envelope(value, "a.b"))
        assert released.data == value
        assert released.changes == released.warnings == ()


UNDECLARED = [
    ({"allOf": [P(a=I), P(b=I)]}, {"a": 1, "b": 2}),
    ({**P(a=I), "allOf": [{"required": ["b"]}]}, {"a": 1, "b": 2}),
    ({**P(a=I), "anyOf": [P(b=I), P(c=I)]}, {"a": 1, "b": 2}),
    ({**P(a=I), "if": {"required": ["a"]}, "then": P(b=I)}, {"a": 1, "b": 2}),
    ({"$schema": OLD, **P(a=I), "dependencies": {"a": P(b=I)}}, {"a": 1, "b": 2}),
    ({"$ref": "#/$defs/A", "if": True, "then": P(b=I), "$defs": {"A": P(a=I)}}, {"a": 1, "b": 2}),
    ({"anyOf": [P(a=I), {"type": "null"}], "then": P(b=I), "if": True}, {"a": 1, "b": 2}),
]


@pytest.mark.parametrize(("schema", "value"), UNDECLARED)
def test_what_no_branch_declares_is_stripped_or_refused(schema, value):
    more = {**value, "zz": 0}
    assert strip(schema, more) == value
    for policy in ("cast", "convert"):
        released = release(Contract(output=schema, policy=policy), local_envelope(more, "a.b"))
        assert released.data == value
        assert [(change.path, change.action) for change in released.changes] == [
            ("/zz", "stripped")
        ]
    with pytest.raises(OutputRejected) as caught:
        release(Contract(output=schema, policy="reject"), local_envelope(more, "a.b"))
    assert [(issue.code, issue.path) for issue in caught.value.issues] == [
        ("additionalProperties", "/zz")
    ]


def test_a_cast_keeps_what_a_branch_under_a_condition_declares():
    schema = {**P(a=I), "if": {"required": ["b"]}, "then": P(b=I)}
    released = release(
        Contract(output=schema, policy="cast"), local_envelope({"a": "x", "b": 2}, "a.b")
    )
    assert released.data == {"a": 0, "b": 2}


def test_items_of_lists_are_held_to_all_branches_too():
    schema = {"allOf": [{"type": "array", "items": P(a=I)}, {"items": P(b=I)}]}
    assert strip(schema, [{"a": 1, "b": 2, "zz": 3}]) == [{"a": 1, "b": 2}]
