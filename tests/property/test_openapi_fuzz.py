"""Whatever an OpenAPI document holds, it ends in tools and findings, or is refused with a reason."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api_documents import answer, api, body, check, load, swagger
from callpact import SourceRefused
from callpact.errors import DeclarationError

PET = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "friend": {"$ref": "#/components/schemas/Pet"},
        "kind": {"type": "string", "enum": ["cat"], "nullable": True, "example": "cat"},
    },
    "required": ["id"],
    "additionalProperties": False,
}
MODERN = api(
    {
        "/pets/{id}": {
            "parameters": [
                {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
            ],
            "get": {
                "operationId": "pet",
                "tags": ["a"],
                "parameters": [
                    {
                        "name": "q",
                        "in": "query",
                        "style": "form",
                        "explode": True,
                        "schema": {"type": "array", "items": {}},
                    },
                    {"name": "c", "in": "query", "content": {"application/json": {"schema": {}}}},
                ],
                "responses": {
                    "200": answer({"$ref": "#/components/schemas/Pet"}),
                    "204": {"description": ""},
                },
                "security": [{"key": []}],
            },
            "post": {
                "requestBody": body(
                    {
                        "oneOf": [
                            {"$ref": "#/components/schemas/Pet"},
                            {"allOf": [{"$ref": "#/components/schemas/Pet"}]},
                        ],
                        "discriminator": {
                            "propertyName": "kind",
                            "mapping": {"a": "#/components/schemas/Pet"},
                        },
                    },
                    required=True,
                ),
                "responses": {
                    "default": answer(
                        {"type": "string", "pattern": "^a", "minimum": 3, "exclusiveMinimum": True}
                    )
                },
            },
        }
    },
    components={
        "schemas": {"Pet": PET},
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "K"}},
    },
)
OLD = swagger(
    {
        "/pets": {
            "post": {
                "consumes": ["application/json"],
                "parameters": [
                    {"name": "pet", "in": "body", "schema": {"$ref": "#/definitions/Pet"}},
                    {
                        "name": "q",
                        "in": "query",
                        "type": "array",
                        "collectionFormat": "multi",
                        "items": {"type": "string"},
                    },
                ],
                "responses": {"200": {"description": "", "schema": {"$ref": "#/definitions/Pet"}}},
            },
            "put": {"parameters": [{"name": "f", "in": "formData", "type": "file"}]},
        }
    },
    definitions={"Pet": {"type": "object", "properties": {"n": {"$ref": "#/definitions/Pet"}}}},
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        [
            "",
            "#",
            "#/",
            "#/components/schemas/Pet",
            "x.yaml#/a",
            "https://a.com/x",
            "object",
            "array",
            "null",
            "path",
            "body",
            "(",
            "\ud7ff",
            "{a}",
            "../a",
        ]
    )
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "$ref",
                    "type",
                    "properties",
                    "items",
                    "allOf",
                    "name",
                    "in",
                    "schema",
                    "content",
                    "x",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


def places(value, path=()):
    """Every place of a document."""
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        yield from places(item, (*path, key))


@st.composite
def mutated(draw):
    document = copy.deepcopy(draw(st.sampled_from([MODERN, OLD])))
    for _ in range(draw(st.integers(1, 4))):
        *path, last = draw(st.sampled_from([each for each in places(document) if each]))
        holder = document
        for key in path:
            holder = holder[key]
        change = draw(st.sampled_from(["replace", "remove", "copy"]))
        if change == "remove":
            del holder[last]
        elif change == "copy" and isinstance(holder, dict):
            holder[draw(st.sampled_from(["$ref", "type", "allOf", "/x", "schema"]))] = (
                copy.deepcopy(holder[last])
            )
        else:
            holder[last] = draw(values)
    return document


@given(mutated())
@settings(max_examples=300, deadline=None)
def test_a_mutated_document_ends_in_findings_or_is_refused(document):
    try:
        tools = load(document)
    except DeclarationError:
        return
    for tool in tools:
        assert tool.contract.input["type"] == "object"
        assert tool.contract.policy in {"pass", "cast"}
    for finding in check(document):
        assert finding.message
        assert finding.severity in {"info", "warning", "error"}


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_text_that_was_cut_or_changed_is_read_or_refused(data, tmp_path_factory):
    text = data.draw(
        st.sampled_from([json.dumps(MODERN), json.dumps(MODERN, indent=1).replace('"', "")])
    )
    at = data.draw(st.integers(0, len(text)))
    other = data.draw(
        st.sampled_from(
            ["", "\x00", "- ", "&a ", "*a", "<<: ", "{", "]", "\t", "!!binary ", "\ufeff", "? "]
        )
    )
    path = tmp_path_factory.mktemp("fuzz") / "api.yaml"
    path.write_text(text[:at] + other + text[at + data.draw(st.integers(0, 5)) :], "utf-8")
    refused = str(path)
    try:
        check(path)
    except SourceRefused as error:
        refused = str(error)
    assert refused.startswith(str(path))


@pytest.mark.parametrize("document", [MODERN, OLD])
def test_the_documents_that_are_mutated_are_sound(document):
    assert not [each for each in check(document) if each.severity != "info"]
