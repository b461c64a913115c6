"""A document from its file to calls of a server: contracts, credentials, settings, reload."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from api_documents import answer, api, body, load
from callpact import Catalog, InvalidInput, Runtime, SourceRefused, UpstreamError
from callpact.app import Options, Session
from callpact.sources import Opening, from_openapi
from callpact.sources.parts import open_source
from echo_upstream import Echo, Sent

PET = {
    "type": "object",
    "properties": {"id": {"type": "integer", "readOnly": True}, "name": {"type": "string"}},
    "required": ["id", "name"],
}


def shop(server, **more):
    """An API of pets."""
    name = {"name": "petId", "in": "path", "required": True, "schema": {"type": "integer"}}
    paths = {
        "/pets": {
            "get": {
                "operationId": "list",
                "parameters": [
                    {"name": "page[limit]", "in": "query", "schema": {"type": "integer"}}
                ],
                "responses": {"200": answer({"type": "array", "items": PET})},
            },
            "post": {
                "operationId": "add",
                "requestBody": body(PET, required=True),
                "responses": {"201": answer(PET)},
            },
        },
        "/pets/{petId}": {
            "get": {
                "operationId": "pet",
                "parameters": [name],
                "responses": {"200": answer(PET), "204": {"description": "none"}},
            }
        },
        "/events": {
            "get": {
                "operationId": "events",
                "responses": {"200": answer({"type": "object"}, "text/event-stream")},
            }
        },
    }
    return api(paths, servers=[{"url": server}], **more)


def with_runtime(answers, work, *, document=shop, **options):
    """Run calls of the tools of a document against a server."""

    async def go():
        async with Echo(answers) as echo:
            source, tools = await from_openapi(
                document(echo.root), namespace="shop", transport=echo.transport, **options
            )
            try:
                async with Runtime(Catalog(tools)) as runtime:
                    return await work(runtime, echo)
            finally:
                await source.aclose()

    return asyncio.run(go())


def test_a_call_is_checked_sent_and_its_answer_fitted():
    async def work(runtime, echo):
        envelope = await runtime.execute("shop.list", {"page_limit": 0})
        return envelope, echo.last

    data = [{"id": "7", "name": "Tom", "extra": 1}]
    envelope, sent = with_runtime(lambda arrived: Sent(data), work)
    assert sent.query in {"page%5Blimit%5D=0", "page[limit]=0"}
    assert envelope.data == [{"id": 7, "name": "Tom"}]
    assert envelope.meta.source == "http"
    assert envelope.meta.status_code == 200


def test_wrong_arguments_never_reach_the_server():
    async def work(runtime, echo):
        for tool, arguments in (
            ("shop.pet", {"petId": "abc"}),
            ("shop.pet", {}),
            ("shop.list", {"unknown": 1}),
            ("shop.add", {"body": {"name": 1}}),
        ):
            with pytest.raises(InvalidInput):
                await runtime.execute(tool, arguments)
        return echo.arrived

    assert with_runtime(lambda arrived: Sent({}), work) == []


def test_a_body_needs_no_read_only_property():
    async def work(runtime, echo):
        envelope = await runtime.execute("shop.add", {"body": {"name": "Tom"}})
        return envelope.data, echo.last.json

    assert with_runtime(lambda arrived: Sent({"id": 1, "name": "Tom"}, 201), work) == (
        {"id": 1, "name": "Tom"},
        {"name": "Tom"},
    )


def test_an_empty_success_is_null_and_nothing_is_invented():
    async def work(runtime, echo):
        return await runtime.execute("shop.pet", {"petId": 1})

    envelope = with_runtime(lambda arrived: Sent(b"", 204), work)
    assert envelope.data is None
    assert not envelope.changes


def test_an_event_stream_is_a_subscription():
    async def work(runtime, echo):
        return [each.data async for each in runtime.subscribe("shop.events", {})]

    text = 'data: {"n": 1}\n\ndata: {"n": 2}\n\n'
    assert with_runtime(lambda arrived: Sent(text, kind="text/event-stream"), work) == [
        {"n": 1},
        {"n": 2},
    ]


def test_an_operation_whose_schema_cannot_be_used_fails_alone():
    deep = {"type": "string"}
    for _ in range(150):
        deep = {"type": "array", "items": deep}

    def document(server):
        return api(
            {"/deep": {"post": {"requestBody": body(deep)}}, "/good": {"get": {}}},
            servers=[{"url": server}],
        )

    async def work(runtime, echo):
        with pytest.raises(UpstreamError, match="declaration"):
            await runtime.execute("shop.post_deep", {})
        return (await runtime.execute("shop.get_good", {})).data

    assert with_runtime(lambda arrived: Sent({"a": 1}), work, document=document) == {"a": 1}


KEYED = {
    "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
    "security": [{"key": []}],
}


def test_a_credential_is_sent_and_without_it_the_tool_is_disabled():
    document = shop("https://api.example.com", **KEYED)
    assert all("needs a credential" in tool.disabled.reason for tool in load(document))

    async def work(runtime, echo):
        await runtime.execute("shop.list", {})
        return echo.last.headers["x-key"]

    sent = with_runtime(
        lambda arrived: Sent([]),
        work,
        document=lambda server: shop(server, **KEYED),
        security={"key": "${SHOP_KEY}"},
        secrets={"SHOP_KEY": "secret-value-123"},
    )
    assert sent == "secret-value-123"


# --- settings -------------------------------------------------------------------------------------

CONFIG = """\
[sources.pets]
ref = "openapi:api.json"
server = "http://127.0.0.1:9"
hosts = ["127.0.0.1"]
ref_hosts = ["schemas.example.com"]
headers = { X-Client = "test" }
security = { key = "${SHOP_KEY}" }
keys = ["SHOP_KEY"]

[[sources.pets.pagination]]
style = "link"
"""


def test_the_configuration_names_server_and_credentials(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_KEY", "secret-value-123")
    (tmp_path / "api.json").write_text(json.dumps(shop("/", **KEYED)), "utf-8")
    (tmp_path / "callpact.toml").write_text(CONFIG, "utf-8")

    async def go():
        async with Session(Options(config=tmp_path / "callpact.toml")) as session:
            await session.load()
            return list(session.catalog), session.loaded.report

    tools, report = asyncio.run(go())
    assert [tool.id for tool in tools] == ["pets.list", "pets.add", "pets.pet", "pets.events"]
    assert all(tool.disabled is None for tool in tools)
    assert set(tools[0].keys) == {"SHOP_KEY"}
    assert not [each for each in report if each.severity == "error"]


@pytest.mark.parametrize(
    ("name", "text", "is_openapi"),
    [
        ("api.json", '{"info": {}, "openapi": "3.0.0"}', True),
        ("api.yaml", "info: {}\nswagger: '2.0'\n", True),
        ("api.yml", "openapi: 3.1.0\n", True),
        ("servers.json", '{"mcpServers": {}}', False),
        ("notes.yaml", "text: about openapi: yes\n", False),
    ],
)
def test_a_bare_path_is_recognised_by_its_content(tmp_path, name, text, is_openapi):
    (tmp_path / name).write_text(text, "utf-8")
    if is_openapi:
        assert type(open_source(Opening(name, folder=tmp_path))).__name__ == "OpenApiSource"
    else:
        with pytest.raises(SourceRefused, match="no source reads"):
            open_source(Opening(name, folder=tmp_path))


def test_an_address_of_a_json_or_yaml_file_is_recognised():
    source = open_source(Opening("https://api.example.com/openapi.yaml"))
    assert type(source).__name__ == "OpenApiSource"


def test_loading_compiles_no_schema(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("compiled while loading")

    monkeypatch.setattr(sys.modules["callpact.tool"], "compile_schema", refuse)
    assert len(load(shop("https://api.example.com"))) == 4
