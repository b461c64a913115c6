"""The OpenAPI document of tools: its schemas are the contracts, and references lead somewhere."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest

from callpact.tool import Contract, Tool
from callpact.wire.openapi_output import encode_openapi


async def handler(arguments, context):
    return arguments


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
RECURSIVE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "$defs": {"node": NODE},
}
OUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def tool(name="x", *, output=None, policy=None, input=None, **more):
    contract = Contract(input=input or {"type": "object"}, output=output, policy=policy)
    return Tool(id=f"t.{name}", description=name, contract=contract, handler=handler, **more)


def document(*tools, **given):
    made = encode_openapi(tools, title="t", version="1", **given)
    return json.loads(json.dumps(made))


def references(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            yield from references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def target(whole, reference):
    node = whole
    for part in reference.removeprefix("#/").split("/"):
        node = node[part.replace("~1", "/").replace("~0", "~")]
    return node


TOOLS = [
    tool("recursive", input=RECURSIVE, output=RECURSIVE, policy="cast"),
    tool("read", input=RECURSIVE, kind="query"),
    tool("warn", output=OUT, policy="warn"),
]


def test_every_reference_leads_somewhere():
    made = document(*TOOLS)
    found = set(references(made))
    assert "#/components/schemas/t_recursive.input/$defs/node" in found
    for reference in found:
        assert target(made, reference) is not None


def test_the_schema_of_a_component_judges_as_the_contract():
    made = document(*TOOLS)
    schema = {"$ref": "#/components/schemas/t_recursive.input", "components": made["components"]}
    judge = jsonschema_rs.validator_for(schema)
    assert judge.is_valid({"root": {"next": {"next": {}}}})
    assert not judge.is_valid({"root": {"next": {"next": 5}}})


def test_a_tool_that_reads_has_a_get_with_its_parameters():
    path = document(*TOOLS)["paths"]["/tools/t.read"]
    assert set(path) == {"get", "post"}
    (parameter,) = path["get"]["parameters"]
    assert parameter["name"] == "root"
    assert "application/json" in parameter["content"]
    assert "get" not in document(*TOOLS)["paths"]["/tools/t.warn"]


def test_an_output_that_may_be_broken_is_described_and_not_asserted():
    made = document(*TOOLS)
    operation = made["paths"]["/tools/t.warn"]["post"]
    assert operation["x-callpact-declared-output"] == OUT
    shown = made["components"]["schemas"]["t_warn.output"]
    assert jsonschema_rs.validator_for(shown).is_valid({"n": "text"})
    assert shown["properties"]["n"]["description"] == "(declared: integer)"


def test_with_tokens_each_endpoint_names_its_scopes():
    made = document(tool(access=["read", "write"]), has_tokens=True)
    assert made["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    operation = made["paths"]["/tools/t.x"]["post"]
    assert operation["security"] == [{"bearer": ["read", "write"]}]
    assert "401" in operation["responses"]
    assert made["paths"]["/healthz"]["get"]["security"] == []
    assert "401" not in document(tool())["paths"]["/tools/t.x"]["post"]["responses"]


def test_examples_are_those_that_the_contract_accepts():
    made = document(tool(input=OUT, examples=({"n": 1}, {"n": "one"}, 5)))
    body = made["paths"]["/tools/t.x"]["post"]["requestBody"]["content"]["application/json"]
    assert body["examples"] == {"1": {"value": {"n": 1}}}


def test_a_tool_without_an_output_schema_may_give_bytes():
    content = document(tool())["paths"]["/tools/t.x"]["post"]["responses"]["200"]["content"]
    assert set(content) == {"application/json", "application/vnd.callpact.envelope+json", "*/*"}


@pytest.mark.parametrize("kind", ["query", "mutation"])
def test_only_a_tool_that_writes_takes_an_idempotency_key(kind):
    operation = document(tool(kind=kind))["paths"]["/tools/t.x"]["post"]
    assert ("x-callpact-headers" in operation) is (kind == "mutation")
