"""The documents of public APIs load whole: no error, no dangling reference, every schema compiled."""

from __future__ import annotations

import asyncio
import json

import pytest

from api_documents import check, errors, load
from api_downloads import NoDocument, document
from callpact.schema import is_array, is_object
from callpact.sources import from_openapi
from callpact.wire.mcp.results import encode_tool

LEAST = {
    "github": 1_000,
    "stripe": 440,
    "kubernetes": 800,
    "digitalocean": 280,
    "twilio": 190,
    "bitbucket": 300,
    "jira": 490,
}


def path_of(name):
    try:
        return document(name)
    except NoDocument as error:
        pytest.skip(str(error))


def references(value):
    if is_object(value):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif is_array(value):
        for item in value:
            yield from references(item)


@pytest.mark.parametrize("name", LEAST)
def test_a_public_document_loads_whole_and_every_schema_compiles(name):
    path = path_of(name)
    tools = load(path)
    assert len(tools) >= LEAST[name]
    assert len({tool.id for tool in tools}) == len(tools)
    assert not errors(check(path))


@pytest.mark.parametrize("name", ["github", "stripe"])
def test_published_definitions_are_small_and_whole(name):
    size = 0
    for tool in load(path_of(name)):
        for schema in (tool.contract.input, tool.contract.output or {}):
            defined = schema.get("$defs", {})
            targets = {each.removeprefix("#/$defs/") for each in references(schema)}
            assert targets <= set(defined), tool.id
        assert tool.contract.input["type"] == "object"
        size += len(json.dumps(encode_tool(tool, modern=True)))
    assert size < 30_000_000


def test_the_example_calls_of_a_public_document_mostly_pass_the_gate():
    tools = [tool for tool in load(path_of("github")) if tool.examples]
    passed = [
        tool for tool in tools if tool.contract.compiled_input.accepts(dict(tool.examples[0]))
    ]
    assert len(tools) > 20
    assert len(passed) >= 0.9 * len(tools)


def test_loading_leaves_the_event_loop_free():
    path = path_of("github")

    async def go():
        loading = asyncio.ensure_future(from_openapi(path))
        turns = 0
        while not loading.done():
            await asyncio.sleep(0.001)
            turns += 1
        source, tools = loading.result()
        await source.aclose()
        return turns, len(tools)

    turns, count = asyncio.run(go())
    assert count > 1_000
    assert turns > 3
