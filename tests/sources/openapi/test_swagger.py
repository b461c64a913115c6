"""Swagger 2.0 is read as OpenAPI 3.0."""

from __future__ import annotations

import pytest

from api_documents import check, load, swagger
from callpact.sources.openapi.openapi_document import ApiDocument
from callpact.sources.openapi.openapi_reader import OperationReader
from callpact.sources.openapi.swagger import server_of


def operation(document):
    """The only operation of a document."""
    (plan,) = OperationReader(ApiDocument("openapi", {"openapi": document}), "openapi").read()
    return plan.operation


def test_definitions_bodies_and_responses_are_read():
    pet = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    paths = {
        "/pets/{id}": {
            "put": {
                "parameters": [
                    {"$ref": "#/parameters/Id"},
                    {
                        "name": "pet",
                        "in": "body",
                        "required": True,
                        "schema": {"$ref": "#/definitions/Pet"},
                    },
                ],
                "responses": {
                    "200": {"description": "ok", "schema": {"$ref": "#/definitions/Pet"}}
                },
            }
        }
    }
    shared = {"Id": {"name": "id", "in": "path", "required": True, "type": "integer", "minimum": 1}}
    (tool,) = load(swagger(paths, definitions={"Pet": pet}, parameters=shared))
    assert tool.contract.input == {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 1},
            "body": {"$ref": "#/$defs/Pet"},
        },
        "required": ["id", "body"],
        "additionalProperties": False,
        "$defs": {"Pet": pet},
    }
    assert tool.contract.output == {"$ref": "#/$defs/Pet", "$defs": {"Pet": pet}}


@pytest.mark.parametrize(
    ("place", "collection", "style", "explode"),
    [
        ("query", None, "form", False),
        ("query", "csv", "form", False),
        ("query", "ssv", "spaceDelimited", False),
        ("query", "tsv", "tabDelimited", False),
        ("query", "pipes", "pipeDelimited", False),
        ("query", "multi", "form", True),
        ("path", "csv", "simple", False),
        ("header", None, "simple", False),
    ],
)
def test_collection_formats_become_styles(place, collection, style, explode):
    given = {"name": "a", "in": place, "type": "array", "items": {"type": "string"}}
    if collection is not None:
        given["collectionFormat"] = collection
    (parameter,) = operation(
        swagger({"/x/{a}" if place == "path" else "/x": {"get": {"parameters": [given]}}})
    ).parameters
    assert (parameter.style, parameter.explode) == (style, explode)


def test_a_plain_parameter_of_the_query_is_exploded_as_a_form():
    given = {"name": "a", "in": "query", "type": "string"}
    (parameter,) = operation(swagger({"/x": {"get": {"parameters": [given]}}})).parameters
    assert (parameter.style, parameter.explode) == ("form", True)


def test_form_fields_are_one_body_and_a_file_makes_it_multipart():
    name = {
        "name": "name",
        "in": "formData",
        "type": "string",
        "required": True,
        "description": "N.",
    }
    many = {
        "name": "many",
        "in": "formData",
        "type": "array",
        "items": {},
        "collectionFormat": "multi",
    }
    file = {"name": "file", "in": "formData", "type": "file"}
    body = operation(swagger({"/x": {"post": {"parameters": [name, many]}}})).body
    assert body.content_type == "application/x-www-form-urlencoded"
    assert body.required
    assert (body.encodings["many"].style, body.encodings["many"].explode) == ("form", True)
    document = swagger({"/x": {"post": {"parameters": [name, file]}}})
    assert operation(document).body.content_type == "multipart/form-data"
    (tool,) = load(document)
    schema = tool.contract.input["properties"]["body"]
    assert schema["properties"]["name"] == {"type": "string", "description": "N."}
    assert schema["required"] == ["name"]
    assert "anyOf" in schema["properties"]["file"]


def test_consumes_and_produces_name_the_media_types():
    given = {
        "consumes": ["application/merge-patch+json"],
        "parameters": [{"name": "b", "in": "body", "schema": {}}],
        "responses": {"200": {"schema": {"type": "file"}}, "201": {"schema": {"type": "object"}}},
    }
    found = operation(swagger({"/x": {"patch": given}}, produces=["application/json", "image/png"]))
    assert found.body.content_type == "application/merge-patch+json"
    first, second = found.responses
    assert list(first.content) == ["image/png"]
    assert list(second.content) == ["application/json", "image/png"]


@pytest.mark.parametrize(
    ("given", "server"),
    [
        ({"host": "a.com"}, "https://a.com"),
        ({"host": "a.com:8080", "basePath": "/v1", "schemes": ["http"]}, "http://a.com:8080/v1"),
        ({"host": "a.com", "basePath": "/", "schemes": ["http", "https"]}, "https://a.com/"),
        ({"basePath": "/v1"}, "/v1"),
        ({}, "/"),
    ],
)
def test_the_server_is_made_of_scheme_host_and_path(given, server):
    assert server_of(given) == server


def test_security_definitions_become_schemes():
    flow = {"type": "oauth2", "flow": "application", "tokenUrl": "https://a.com/token"}
    definitions = {
        "basic": {"type": "basic"},
        "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
        "flow": flow,
    }
    security = [{"basic": []}, {"key": [], "flow": ["read"]}, {"unknown": []}]
    document = swagger({"/x": {"get": {}}}, securityDefinitions=definitions, security=security)
    first, second = operation(document).security
    assert [(need.scheme.kind, need.scheme.http_scheme) for need in first] == [("http", "basic")]
    assert [need.scheme.key_name for need in second] == ["X-Key", ""]
    assert (second[1].scheme.token_url, second[1].scopes) == ("https://a.com/token", ("read",))
    assert any("'unknown' is not declared" in each.message for each in check(document))
