"""The OpenAPI document of tools: its schemas are the contracts, and references lead somewhere."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import jsonschema_rs
import pytest

from callpact.app import Options, Session
from callpact.runtime import Runtime
from callpact.sources import from_openapi
from callpact.tool import Contract, Tool
from callpact.wire.openapi_output import encode_openapi
from raw import Served

ENDPOINTS = Path(__file__).parents[1] / "serve" / "endpoints.py"


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


# --- back again -------------------------------------------------------------------------------


def expanded(schema, root, levels=8):
    """A schema without references, as far as the levels go, so that names make no difference."""
    if isinstance(schema, list):
        return [expanded(item, root, levels) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if not levels:
        return "…"
    if "$ref" in schema:
        return expanded(target(root, schema["$ref"]), root, levels)
    return {
        key: expanded(value, root, levels - (key == "properties"))
        for key, value in schema.items()
        if key != "$defs"
    }


def test_the_document_read_back_has_the_same_contracts():
    async def story():
        async with Session(Options(refs=(str(ENDPOINTS),), audit="off")) as session:
            await session.load()
            tools = list(session.catalog)
            source, read = await from_openapi(
                document(*tools), namespace="t", server="http://x.test"
            )
            await source.aclose()
            assert list(read.report) == []
            return tools, {tool.id: tool for tool in read}

    tools, read = asyncio.run(story())
    assert len(tools) == 8
    for tool in tools:
        other = read[f"t.{tool.wire_name}"]
        assert (other.kind == "subscription") is (tool.kind == "subscription")
        taken = other.contract.input["properties"]["body"]
        declared = tool.contract.input
        assert expanded(taken, other.contract.input) == expanded(declared, declared)
        given, wanted = other.contract.output or {}, tool.contract.output or {}
        assert expanded(given, given) == expanded(wanted, wanted)
    forms = [tool for tool in read if tool.endswith(".get")]
    assert forms == [f"t.endpoints_{name}.get" for name in ("price", "nothing", "find", "logo")]


def test_a_tool_read_back_calls_the_endpoint_it_came_from():
    async def story(server):
        async with Session(Options(refs=(str(ENDPOINTS),), audit="off")) as session:
            await session.load()
            made = document(*session.catalog)
        source, tools = await from_openapi(made, namespace="t", server=server, hosts=["127.0.0.1"])
        try:
            async with Runtime(tools) as runtime:
                price = await runtime.execute(
                    "t.endpoints_price", {"body": {"sku": "a", "quantity": 2}}
                )
                same = await runtime.execute("t.endpoints_price.get", {"sku": "a", "quantity": 2})
                return price.data, same.data
        finally:
            await source.aclose()

    with Served(ENDPOINTS, args=["--audit", "off"]) as served:
        server = f"http://127.0.0.1:{served.port}"
        answers = asyncio.run(asyncio.wait_for(story(server), 30))
    assert answers == ({"total": 5.0}, {"total": 5.0})
