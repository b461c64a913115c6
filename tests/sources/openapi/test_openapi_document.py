"""Documents are read from JSON and YAML, from one file or several, within limits."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from api_documents import api, body, check, errors, load
from callpact import SourceRefused
from callpact.net import Response
from callpact.sources import OpenApiSource, from_openapi
from callpact.sources.openapi import openapi_document

YAML = """\
openapi: 3.0.3
info: {title: Pets, version: 1.0.0}
servers:
  - url: https://api.example.com
paths:
  /pets:
    get:
      operationId: list
      parameters:
        - {name: on, in: query, schema: {type: string, enum: [no, yes, on, ~]}}
        - {name: day, in: query, schema: {type: string, default: 2020-01-01}}
      responses:
        200:
          content: {application/json: {schema: {type: object}}}
"""


def written(folder, text, name="api.yaml"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def test_yaml_follows_version_1_2_without_dates(tmp_path):
    (tool,) = load(written(tmp_path, YAML))
    properties = tool.contract.input["properties"]
    assert properties["on"]["enum"] == ["no", "yes", "on", None]
    assert properties["day"]["default"] == "2020-01-01"
    assert tool.contract.output == {"type": "object"}


def test_json_and_yaml_of_one_document_give_the_same_tools(tmp_path):
    document = api({"/pets": {"post": {"requestBody": body({"type": "object"})}}})
    (first,) = load(written(tmp_path, json.dumps(document), "a.json"))
    (second,) = load(written(tmp_path, json.dumps(document, indent=1).replace("{", " {"), "b.yaml"))
    (third,) = load(document)
    assert first.contract == second.contract == third.contract
    assert first.id == second.id == third.id


def test_a_bom_and_a_flow_mapping_are_read(tmp_path):
    text = "{openapi: 3.0.0, info: {title: A}, paths: {/a: {get: {}}}}"
    assert len(load(written(tmp_path, "\ufeff" + text))) == 1


def test_merge_keys_are_applied(tmp_path):
    text = (
        YAML
        + "  /cats:\n    get:\n      <<: &x {summary: Cats, operationId: cats}\n      summary: C\n"
    )
    tools = load(written(tmp_path, text))
    assert [(tool.name, tool.title) for tool in tools][1] == ("cats", "C")


def test_a_key_that_occurs_twice_is_a_warning(tmp_path):
    tools = load(written(tmp_path, YAML + "  /pets:\n    get: {operationId: last}\n"))
    assert [tool.name for tool in tools] == ["last"]
    assert any("duplicate" in each.message for each in tools.report)


def test_errors_of_a_file_name_the_line(tmp_path):
    path = written(tmp_path, YAML + "  /b:\n    get:\n      parameters: [{in: query}]\n")
    (finding,) = (each for each in load(path).report if each.severity == "error")
    assert finding.line == YAML.count("\n") + 2
    assert finding.place == str(path)


# --- several files --------------------------------------------------------------------------------


def several(folder):
    """A document whose path, operation, parameter, schema and description are in other files."""
    written(
        folder,
        "name: limit\nin: query\nschema: {$ref: '../models/all.yml#/Limit'}\n",
        "parts/limit.yml",
    )
    written(folder, "Limit: {type: integer}\nPet: {$ref: pet.json}\n", "models/all.yml")
    written(
        folder,
        '{"type":"object","properties":{"friend":{"$ref":"all.yml#/Pet"}}}',
        "models/pet.json",
    )
    written(
        folder,
        "operationId: list\ndescription: {$ref: ../words.yml}\nparameters: [{$ref: limit.yml}]\n"
        "requestBody: {content: {application/json: {schema: {$ref: '../models/all.yml#/Pet'}}}}\n",
        "parts/list.yml",
    )
    written(folder, "'All of them.'\n", "words.yml")
    text = "openapi: 3.0.0\ninfo: {title: Pets}\npaths:\n  /pets: {post: {$ref: parts/list.yml}}\n"
    return written(folder, text, "root.yaml")


def test_references_to_other_files_are_resolved_each_from_its_own_file(tmp_path):
    path = several(tmp_path)
    tools = load(path)
    (tool,) = tools
    assert not errors(tools.report)
    assert tool.description == "All of them."
    schema = tool.contract.input
    assert len(schema["$defs"]) == 3
    accepts = tool.contract.compiled_input.accepts
    assert accepts({"limit": 1, "body": {"friend": {"friend": {}}}})
    assert not accepts({"limit": 1, "body": {"friend": {"friend": 1}}})
    assert not accepts({"limit": "1"})


def test_definitions_have_the_same_names_wherever_the_document_lies(tmp_path):
    (one,), (two,) = load(several(tmp_path / "a")), load(several(tmp_path / "b" / "c"))
    assert one.contract.input == two.contract.input


def test_every_file_is_watched_also_if_the_first_cannot_be_read(tmp_path):
    async def watched(path):
        source = OpenApiSource(path, transport=_Network({}))
        with contextlib.suppress(SourceRefused):
            await source.load()
        return {each.path.name for each in source.watched()}

    several(tmp_path)
    expected = {"root.yaml", "list.yml", "limit.yml", "all.yml", "pet.json", "words.yml"}
    assert asyncio.run(watched(tmp_path / "root.yaml")) == expected
    assert asyncio.run(watched(tmp_path / "none.yaml")) == {"none.yaml"}


@pytest.mark.parametrize(
    "where", ["../secret.yaml", "/etc/hostname", "link.yaml", "file:///etc/hostname"]
)
def test_no_file_outside_the_folder_of_the_document_is_read(tmp_path, where):
    written(tmp_path, "type: string\n", "secret.yaml")
    folder = tmp_path / "api"
    document = api({"/a": {"post": {"requestBody": body({"$ref": where})}}, "/b": {"get": {}}})
    path = written(folder, json.dumps(document), "api.json")
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    tools = load(path)
    assert [tool.name for tool in tools] == ["get_b"]
    assert "cannot be resolved" in errors(tools.report)[0][1]


# --- the network ----------------------------------------------------------------------------------


class _Network:
    """A transport that answers by address."""

    def __init__(self, pages):
        self.pages = pages
        self.asked = []

    async def send(self, request, *, deadline=None):
        self.asked.append(request.url)
        if request.url not in self.pages:
            return Response(404)
        return Response(200, {}, self.pages[request.url].encode())

    async def aclose(self):
        pass


ROOT = "https://api.example.com/docs/openapi.json"


def fetched(pages, **options):
    async def go():
        network = _Network(pages)
        _, tools = await from_openapi(ROOT, transport=network, **options)
        return network, tools

    return asyncio.run(go())


def test_a_document_is_fetched_and_its_relative_server_resolved():
    document = api({"/a": {"get": {}}}, servers=[{"url": "../v1"}])
    network, (tool,) = fetched({ROOT: json.dumps(document)})
    assert network.asked == [ROOT]
    assert tool.disabled is None


def test_files_of_the_network_are_fetched_only_from_hosts_that_are_named():
    refs = ["models.json#/A", "https://other.example.com/b.json"]
    paths = {f"/{n}": {"post": {"requestBody": body({"$ref": ref})}} for n, ref in enumerate(refs)}
    pages = {
        ROOT: json.dumps(api(paths)),
        "https://api.example.com/docs/models.json": '{"A": {"type": "string"}}',
        "https://other.example.com/b.json": '{"type": "integer"}',
    }
    network, tools = fetched(pages)
    assert (network.asked, len(tools)) == ([ROOT], 0)
    assert "name it in ref_hosts" in errors(tools.report)[0][1]
    network, tools = fetched(pages, ref_hosts=["api.example.com"])
    assert len(network.asked) == 2
    assert [tool.name for tool in tools] == ["post_0"]
    _, tools = fetched(pages, ref_hosts=["*"])
    assert len(tools) == 2


def test_an_address_without_a_document_is_refused():
    with pytest.raises(SourceRefused, match="HTTP 404"):
        fetched({})


def test_a_check_fetches_nothing(tmp_path):
    document = api({"/a": {"post": {"requestBody": body({"$ref": "https://example.com/a.json"})}}})
    ((_, message),) = errors(check(written(tmp_path, json.dumps(document), "a.json")))
    assert "not allowed" in message


# --- what is no document, and hostile ones --------------------------------------------------------

BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [1,",
        '{"openapi": ',
        "- a\n",
        "just text",
        "openapi: 3.0.0\npaths: {/a: {get: {x: .inf}}}\n",
        "openapi: 3.0.0\n? [a, b]\n: c\n",
        "openapi: 3.0.0\n\x00paths: {}\n",
        BOMB,
        "- " * 100_000 + "x",
        "? " * 50_000 + "x",
        "[" * 100_000,
        '{"a":' * 100_000,
        "".join(" " * n + "a:\n" for n in range(2_000)),
        "a: !!set {b, c}\n",
    ],
)
def test_what_is_no_document_is_refused_with_a_reason(tmp_path, text):
    path = written(tmp_path, text)
    with pytest.raises(SourceRefused, match=r"api\.yaml: \S"):
        load(path)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path):
    path = tmp_path / "api.yaml"
    path.write_bytes(b"openapi: \xff\xfe\n")
    with pytest.raises(SourceRefused, match="UTF-8"):
        load(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path, reason in ((tmp_path / "none.yaml", "no such file"), (tmp_path, "is a folder")):
        with pytest.raises(SourceRefused, match=reason):
            load(path)


def test_an_alias_that_holds_itself_ends(tmp_path):
    text = "openapi: 3.0.0\npaths:\n  /a: &a\n    get: {x: *a}\n"
    assert len(load(written(tmp_path, text))) == 1


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [
        ("MAX_DOCUMENT_BYTES", 100, "bytes"),
        ("MAX_DOCUMENT_VALUES", 20, "values"),
        ("MAX_DOCUMENT_FILES", 3, "files"),
    ],
)
def test_a_document_over_a_limit_is_refused(tmp_path, monkeypatch, limit, value, reason):
    path = several(tmp_path)
    monkeypatch.setattr(openapi_document, limit, value)
    with pytest.raises(SourceRefused, match=reason):
        load(path)


def test_a_million_paths_are_refused(tmp_path):
    paths = ",".join(f'"/{n}":{{}}' for n in range(1_000_000))
    path = written(tmp_path, f'{{"openapi":"3.0.0","paths":{{{paths}}}}}', "a.json")
    with pytest.raises(SourceRefused, match="paths"):
        load(path)


def test_references_that_lead_in_a_circle_end_in_findings():
    schemas = {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}}
    circle = {"$ref": "#/components/parameters/P"}
    paths = {
        "/parameter": {"get": {"parameters": [circle]}},
        "/schema": {"post": {"requestBody": body({"$ref": "#/components/schemas/A"})}},
        "/good": {"get": {}},
    }
    document = api(paths, components={"schemas": schemas, "parameters": {"P": circle}})
    findings = check(document)
    assert ("/paths/~1parameter/get/parameters/0") in dict(errors(findings))
    assert [tool.name for tool in load(document)][-1] == "get_good"


def test_a_chain_of_many_references_ends():
    schemas = {f"S{n}": {"items": {"$ref": f"#/components/schemas/S{n + 1}"}} for n in range(3_000)}
    schemas["S3000"] = {"type": "string"}
    paths = {"/a": {"post": {"requestBody": body({"$ref": "#/components/schemas/S0"})}}}
    document = api(paths, components={"schemas": schemas})
    (tool,) = load(document)
    assert tool.contract.policy == "pass"
    assert all(each.message for each in check(document))
