"""Operations become tools: their names, arguments, kinds, examples; a broken one is left out."""

from __future__ import annotations

import pytest

from api_documents import SERVER, answer, api, body, check, errors, load, one
from callpact import SourceRefused
from callpact.tool import Origin


def names(tools):
    return [tool.id for tool in tools]


def query(name, schema=None, **more):
    return {"name": name, "in": "query", "schema": schema or {"type": "string"}, **more}


def test_the_operation_id_is_the_name_and_the_title_of_the_document_the_namespace():
    tool = one({"operationId": "listPets", "responses": {}})
    assert tool.id == "pet_shop.listPets"
    assert tool.version == "1.2"
    assert tool.source.endswith("#/paths/~1pets/get")


def test_a_given_namespace_wins_over_the_title():
    tools = load(api({"/pets": {"get": {"operationId": "list"}}}), namespace="shop")
    assert names(tools) == ["shop.list"]


def test_without_an_operation_id_method_and_path_are_the_name():
    paths = {
        "/": {"get": {}},
        "/pets/{petId}/toys": {"get": {}, "post": {}},
        "/pets": {"delete": {}},
    }
    tools = load(api(paths))
    assert names(tools) == [
        "pet_shop.get_root",
        "pet_shop.get_pets_toys",
        "pet_shop.post_pets_toys",
        "pet_shop.delete_pets",
    ]


def test_a_name_of_other_characters_is_made_legal_and_reported():
    tools = load(api({"/pets": {"get": {"operationId": "pets/list all"}}}))
    assert names(tools) == ["pet_shop.pets_list_all"]
    assert any("'pets/list all' is pets_list_all" in each.message for each in tools.report)


def test_two_operations_of_one_name_get_different_names_visibly():
    paths = {
        "/pets": {"get": {}},
        "/pets/{petId}": {"get": {}},
        "/a": {"get": {"operationId": "same"}},
        "/b": {"get": {"operationId": "same"}},
    }
    tools = load(api(paths))
    assert names(tools) == [
        "pet_shop.get_pets",
        "pet_shop.get_pets_by_petId",
        "pet_shop.same",
        "pet_shop.same_2",
    ]
    warned = [each.path for each in tools.report if "is the name of" in each.message]
    assert warned == ["/paths/~1pets~1{petId}/get", "/paths/~1b/get"]


def test_the_method_decides_on_kind_and_annotations():
    tools = load(api({"/pets": {"get": {}, "post": {}, "put": {}, "delete": {}, "head": {}}}))
    kinds = {tool.name: (tool.kind, dict(tool.annotations)) for tool in tools}
    assert kinds["get_pets"] == ("query", {"readOnlyHint": True})
    assert kinds["head_pets"] == ("query", {"readOnlyHint": True})
    writes = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False}
    assert kinds["post_pets"] == ("mutation", writes)
    assert kinds["put_pets"] == ("mutation", {**writes, "idempotentHint": True})
    deletes = {**writes, "destructiveHint": True, "idempotentHint": True}
    assert kinds["delete_pets"] == ("mutation", deletes)


def test_an_event_stream_is_a_subscription_unless_json_is_declared_too():
    stream = {"text/event-stream": {"schema": {"type": "object"}}}
    both = {**stream, "application/json": {"schema": {"type": "object"}}}
    tools = load(
        api(
            {
                "/events": {"get": {"responses": {"200": {"content": stream}}}},
                "/answers": {"post": {"responses": {"200": {"content": both}}}},
            }
        )
    )
    assert [tool.kind for tool in tools] == ["subscription", "mutation"]


def test_words_and_tags_are_kept():
    tool = one(
        {
            "summary": "List pets",
            "description": "Lists all pets.",
            "tags": ["pets", "read"],
            "deprecated": True,
        }
    )
    assert tool.title == "List pets"
    assert tool.description == "Deprecated. Lists all pets."
    assert tool.tags == ("pets", "read")
    assert tool.origin == Origin("GET", "/pets", "", True)


def test_parameters_and_body_are_the_closed_input():
    operation = {
        "parameters": [
            query("limit", {"type": "integer", "maximum": 50}, description="How many."),
            {"name": "petId", "in": "path", "required": True, "schema": {"type": "string"}},
        ],
        "requestBody": body({"type": "object"}, required=True, description="The pet."),
    }
    assert one(operation, "post", "/pets/{petId}").contract.input == {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "maximum": 50, "description": "How many."},
            "petId": {"type": "string"},
            "body": {"type": "object", "description": "The pet."},
        },
        "required": ["petId", "body"],
        "additionalProperties": False,
    }


def test_parameters_of_the_path_are_shared_and_may_be_replaced():
    paths = {
        "/pets": {
            "parameters": [query("a"), query("b")],
            "get": {"parameters": [query("b", {"type": "integer"})]},
        }
    }
    (tool,) = load(api(paths))
    assert tool.contract.input["properties"] == {"a": {"type": "string"}, "b": {"type": "integer"}}


def test_one_name_in_two_places_becomes_two_arguments_visibly():
    operation = {
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
            query("id", {"type": "integer"}),
            {"name": "id", "in": "header", "schema": {"type": "boolean"}},
            query("body"),
        ],
        "requestBody": body({"type": "object"}),
    }
    tools = load(api({"/pets/{id}": {"post": operation}}))
    (tool,) = tools
    properties = tool.contract.input["properties"]
    assert {name: part["type"] for name, part in properties.items()} == {
        "id": "string",
        "id_query": "integer",
        "id_header": "boolean",
        "body": "string",
        "body_body": "object",
    }
    messages = [each.message for each in tools.report if each.severity == "info"]
    assert any("'id_query'" in text for text in messages)
    assert any("'body_body'" in text for text in messages)


def test_an_argument_has_a_name_that_every_provider_takes():
    tools = load(api({"/pets": {"get": {"parameters": [query("$top"), query("filter[kind]")]}}}))
    (tool,) = tools
    assert list(tool.contract.input["properties"]) == ["top", "filter_kind"]
    assert any("'$top' is the argument 'top'" in each.message for each in tools.report)


def test_reserved_headers_are_no_arguments():
    headers = ["Accept", "content-type", "Authorization", "X-Trace"]
    parameters = [{"name": name, "in": "header", "schema": {}} for name in headers]
    assert list(one({"parameters": parameters}).contract.input["properties"]) == ["X-Trace"]


def test_a_path_parameter_that_is_not_declared_is_text_with_a_warning():
    tools = load(api({"/pets/{petId}": {"get": {}}}))
    (tool,) = tools
    assert tool.contract.input["required"] == ["petId"]
    assert any("'petId' is not declared" in each.message for each in tools.report)


def test_json_is_chosen_among_the_media_types_of_a_body():
    content = {
        "application/xml": {"schema": {"type": "string"}},
        "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
        "application/json; charset=utf-8": {"schema": {"type": "array", "items": {}}},
    }
    tool = one({"requestBody": {"content": content}}, "post")
    assert tool.contract.input["properties"]["body"]["type"] == "array"


def test_a_get_has_no_body_unless_it_is_required():
    loose = one({"requestBody": body({"type": "object"})})
    assert loose.contract.input["properties"] == {}
    strict = one({"requestBody": body({"type": "object"}, required=True)})
    assert list(strict.contract.input["properties"]) == ["body"]


@pytest.mark.parametrize(
    ("responses", "output"),
    [
        ({"200": answer({"type": "object"}), "201": answer({"type": "object"})}, "object"),
        ({"201": answer({"type": "integer"}), "404": answer({"type": "string"})}, "integer"),
        ({"2XX": answer({"type": "boolean"}), "default": answer({"type": "string"})}, "boolean"),
        ({"default": answer({"type": "number"})}, "number"),
        ({"200": answer({"type": "string"}, "application/problem+json")}, "string"),
        ({"200": answer({"type": "object"}, "image/png")}, None),
        ({"204": {"description": "nothing"}}, None),
        ({"404": answer({"type": "object"})}, None),
        ({}, None),
    ],
)
def test_the_output_is_the_schema_of_the_success(responses, output):
    found = one({"responses": responses}).contract.output
    assert (None if found is None else found["type"]) == output


def test_successes_of_different_form_are_all_accepted():
    responses = {
        "200": answer({"type": "object", "properties": {"a": {"type": "string"}}}),
        "202": answer({"type": "array", "items": {}}),
        "204": {"description": "nothing"},
    }
    output = one({"responses": responses}).contract.output
    assert [part["type"] for part in output["anyOf"]] == ["object", "array", "null"]


def test_examples_become_examples_of_the_tool():
    operation = {
        "parameters": [query("kind", required=True, example="cat"), query("limit", example=3)],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"type": "object"},
                    "examples": {
                        "a": {"value": {"n": 1}},
                        "b": {"$ref": "#/components/examples/b"},
                    },
                }
            },
        },
    }
    components = {"examples": {"b": {"value": {"n": 2}}}}
    tool = one(operation, "post", components=components)
    assert tool.examples == (
        {"kind": "cat", "body": {"n": 1}},
        {"kind": "cat", "body": {"n": 2}},
    )


def test_without_an_example_of_every_required_argument_there_is_none():
    assert one({"parameters": [query("kind", required=True)]}).examples == ()


BROKEN = [
    ({"get": {"parameters": [{"in": "query"}]}}, "/paths/~1bad/get/parameters/0"),
    ({"get": {"parameters": [{"name": "a", "in": "body"}]}}, "/paths/~1bad/get/parameters/0"),
    ({"get": {"parameters": {}}}, "/paths/~1bad/get/parameters"),
    ({"get": {"parameters": [{"$ref": "#/nowhere"}]}}, "/paths/~1bad/get/parameters/0"),
    ({"get": []}, "/paths/~1bad/get"),
    ({"parameters": [{}], "get": {}}, "/paths/~1bad/parameters/0"),
    ({"post": {"requestBody": {}}}, "/paths/~1bad/post/requestBody"),
    ({"post": {"requestBody": {"$ref": "#/nowhere"}}}, "/paths/~1bad/post/requestBody"),
    (
        {"post": {"requestBody": body({"$ref": "#/nowhere"})}},
        "/paths/~1bad/post/requestBody/content/application~1json/schema",
    ),
    ({"get": {"servers": [{"url": "https://{host}/"}]}}, "/paths/~1bad/get"),
    (None, "/paths/~1bad"),
    ({"$ref": "other.yaml"}, "/paths/~1bad"),
]


@pytest.mark.parametrize(("item", "place"), BROKEN)
def test_a_broken_operation_is_left_out_with_its_place_and_the_rest_loads(item, place):
    tools = load(api({"/bad": item, "/good": {"get": {}}}))
    assert names(tools) == ["pet_shop.get_good"]
    ((found, message),) = errors(tools.report)
    assert found == place
    assert message


def test_an_operation_that_reaches_a_broken_reference_only_through_others_is_left_out():
    schemas = {"A": {"properties": {"b": {"$ref": "#/components/schemas/B"}}}, "B": {"$ref": "#/x"}}
    paths = {
        "/bad": {"post": {"requestBody": body({"$ref": "#/components/schemas/A"})}},
        "/good": {"get": {"responses": {"200": answer({"$ref": "#/components/schemas/A"})}}},
    }
    tools = load(api(paths, components={"schemas": schemas}))
    assert names(tools) == ["pet_shop.get_good"]
    assert errors(tools.report)[0][0] == "/components/schemas/B"
    assert tools[0].contract.output is not None


@pytest.mark.parametrize(
    ("more", "server"),
    [
        ({}, SERVER),
        (
            {
                "servers": [
                    {
                        "url": "https://{place}.example.com/",
                        "variables": {"place": {"default": "eu"}},
                    }
                ]
            },
            "https://eu.example.com",
        ),
        ({"servers": [{"url": "/v2"}]}, ""),
        ({"servers": []}, ""),
    ],
)
def test_the_server_is_the_first_with_its_variables(more, server):
    (tool,) = load(api({"/pets": {"get": {}}}, **more))
    assert (tool.disabled is None) == bool(server)


def test_a_given_server_replaces_that_of_the_document():
    document = api({"/pets": {"get": {}}}, servers=[{"url": "/v2"}])
    (tool,) = load(document, server="https://other.example.com/")
    assert tool.disabled is None


def test_other_methods_of_version_3_2_are_tools():
    item = {
        "query": {"operationId": "find"},
        "additionalOperations": {"COPY": {"operationId": "c"}},
    }
    tools = load(api({"/pets": item}, "3.2.0"))
    assert [(tool.name, tool.kind) for tool in tools] == [("find", "query"), ("c", "mutation")]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"openapi": "4.0.0", "paths": {}},
        {"swagger": "1.2", "paths": {}},
        {"openapi": "3.0.0"},
        {"openapi": "3.0.0", "paths": []},
        {"openapi": None, "paths": {}},
    ],
)
def test_what_is_not_an_openapi_document_is_refused(document):
    with pytest.raises(SourceRefused, match=r"expected|paths"):
        load(document)


def test_a_check_finds_what_loading_leaves_for_later():
    schema = {"type": "strange", "properties": {"a": {"pattern": "(", "minLength": -1}}}
    document = api({"/pets": {"post": {"requestBody": body(schema)}}})
    assert not load(document).report
    place = "/paths/~1pets/post/requestBody/content/application~1json/schema"
    found = {(each.severity, each.path) for each in check(document)}
    assert found == {
        ("warning", f"{place}/type"),
        ("warning", f"{place}/properties/a/pattern"),
        ("warning", f"{place}/properties/a/minLength"),
    }
