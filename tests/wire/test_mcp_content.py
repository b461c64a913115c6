"""Media, notes and hints of MCP results and definitions, rule by rule, in both eras."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from callpact.catalog import Catalog
from callpact.envelope import (
    AudioBlock,
    MCPResourceContent,
    ResourceBlock,
    ResourceLinkBlock,
    http_envelope,
    local_envelope,
    mcp_envelope,
)
from callpact.runtime import Runtime
from callpact.schema import Change
from callpact.sources.flowmcp.http.response import output_schema as flowmcp_output
from callpact.tool import Contract, Tool
from callpact.wire.mcp.content import MAX_BEFORE, MAX_NOTES
from callpact.wire.mcp.results import encode_result, encode_tool

ERAS = pytest.mark.parametrize("modern", [True, False], ids=["2026-07-28", "2025-11-25"])
POLICIES = pytest.mark.parametrize("policy", ["pass", "warn", "cast", "convert", "reject"])
PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8
JPEG = b"\xff\xd8\xff\xe0" + b"\x00" * 8
PICTURE = {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"}
SOUND = {"type": "string", "contentEncoding": "base64", "contentMediaType": "audio/wav"}
FLOWMCP = flowmcp_output(
    {"mimeType": "image/png", "schema": {"type": "string", "format": "base64"}}
)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def make_tool(answer=None, output=None, policy=None, **more) -> Tool:
    async def handler(arguments, context):
        return answer

    contract = Contract(output=output, policy=policy)
    more.setdefault("description", "Does.")
    return Tool(id="a.b", contract=contract, handler=handler, **more)


def call(tool: Tool, *, modern: bool, **more) -> dict:
    envelope = asyncio.run(Runtime(Catalog([tool])).execute("a.b", {}))
    return encode_result(envelope, tool, modern=modern, **more)


# --- media ----------------------------------------------------------------------------------


@ERAS
@POLICIES
@pytest.mark.parametrize(
    ("output", "source"), [(PICTURE, "code"), (FLOWMCP, "flowmcp:/shop/chart.mjs")]
)
def test_base64_text_that_is_declared_a_picture_is_an_image_block(output, source, policy, modern):
    tool = make_tool(base64_of(PNG), output, policy, source=source)
    result = call(tool, modern=modern)
    assert result["content"] == [{"type": "image", "data": base64_of(PNG), "mimeType": "image/png"}]
    assert "structuredContent" not in result
    assert not result.get("isError")
    # A schema would oblige us to send the text as well.
    assert "outputSchema" not in encode_tool(tool, modern=modern)


@ERAS
def test_base64_text_that_is_declared_a_sound_is_an_audio_block(modern):
    data = base64_of(b"RIFF1234WAVE")
    result = call(make_tool(data, SOUND), modern=modern)
    assert result["content"] == [{"type": "audio", "data": data, "mimeType": "audio/wav"}]


@ERAS
@pytest.mark.parametrize(
    "output",
    [
        None,
        {"type": "string", "format": "base64"},
        {"type": "string", "contentMediaType": "image/png"},
        {"type": "object", "properties": {"picture": PICTURE}},
    ],
)
def test_what_is_not_declared_a_picture_stays_text(output, modern):
    text = base64_of(PNG)
    answer = {"picture": text} if output and output["type"] == "object" else text
    result = call(make_tool(answer, output), modern=modern)
    assert [block["type"] for block in result["content"]] == ["text"]
    assert text in result["content"][0]["text"]


@ERAS
@pytest.mark.parametrize(
    "text", ["not base64!", "", base64_of(b"<svg/>"), "data:image/png;base64,"]
)
def test_text_that_is_not_the_picture_it_was_declared_is_delivered_as_text(text, modern):
    result = call(make_tool(text, PICTURE), modern=modern)
    assert result["content"] == [{"type": "text", "text": text}]
    assert not result.get("isError")


@ERAS
def test_a_picture_of_another_kind_than_declared_says_what_it_is(modern):
    result = call(make_tool(base64_of(JPEG), PICTURE), modern=modern)
    assert result["content"][0]["mimeType"] == "image/jpeg"


@ERAS
def test_a_picture_tool_that_answers_otherwise_under_warn_is_delivered_as_it_is(modern):
    tool = make_tool({"error": "no chart"}, FLOWMCP, "warn", source="flowmcp:/shop/chart.mjs")
    result = call(tool, modern=modern)
    assert result["structuredContent"] == {"error": "no chart"}
    assert json.loads(result["content"][0]["text"]) == {"error": "no chart"}
    assert result["_meta"]["callpact/warnings"][0]["code"] == "type"


@ERAS
@pytest.mark.parametrize("policy", ["pass", "warn", "cast"])
def test_bytes_of_a_declared_medium_are_that_medium(policy, modern):
    result = call(make_tool(b"RIFF1234WAVE", SOUND, policy), modern=modern)
    assert not result.get("isError")
    assert result["content"] == [
        {"type": "audio", "data": base64_of(b"RIFF1234WAVE"), "mimeType": "audio/wav"}
    ]


@ERAS
def test_bytes_that_an_upstream_calls_octets_are_told_by_their_beginning(modern):
    answer = http_envelope(
        PNG, status_code=200, headers={}, content_type="application/octet-stream"
    )
    assert call(make_tool(answer), modern=modern)["content"][0]["mimeType"] == "image/png"


@ERAS
def test_sounds_links_and_resources_of_a_handler_are_passed_on_as_blocks(modern):
    blocks = [
        AudioBlock("aGk=", "audio/wav"),
        ResourceLinkBlock("file:///a.csv", "a.csv", mime_type="text/csv"),
        ResourceBlock(MCPResourceContent("file:///b", text="b")),
    ]
    answer = mcp_envelope(blocks, is_error=False, content=blocks)
    assert call(make_tool(answer), modern=modern)["content"] == [
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {
            "type": "resource_link",
            "uri": "file:///a.csv",
            "name": "a.csv",
            "mimeType": "text/csv",
        },
        {"type": "resource", "resource": {"uri": "file:///b", "text": "b"}},
    ]


@ERAS
@pytest.mark.parametrize("title", [None, "The table"])
def test_an_interactive_tool_tells_one_line_and_gives_the_whole_structure(title, modern):
    layout = {"component": "Table", "props": {"rows": [1, 2]}}
    tool = make_tool(layout, {"type": "object"}, kind="interactive", title=title)
    result = call(tool, modern=modern)
    (block,) = result["content"]
    assert "\n" not in block["text"]
    assert (title or "a.b") in block["text"]
    assert result["structuredContent"] == layout


# --- values ---------------------------------------------------------------------------------


@ERAS
def test_a_large_value_with_a_huge_integer_is_told_in_full(modern):
    value = {"big": 10**30, "rows": [[n] for n in range(6_000)]}
    result = call(make_tool(value), modern=modern)
    assert result["structuredContent"] == value
    assert json.loads(result["content"][0]["text"]) == value


@ERAS
def test_an_integer_that_no_reader_takes_is_told_in_words(modern):
    result = call(make_tool({"a": 10**5000, "b": [1]}), modern=modern)
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert "bits" in result["structuredContent"]["a"]
    assert result["structuredContent"]["b"] == [1]


# --- notes ----------------------------------------------------------------------------------


@ERAS
def test_an_answer_over_http_tells_its_status_and_how_long_it_took(modern):
    answer = http_envelope({"a": 1}, status_code=203, headers={}, content_type="application/json")
    meta = call(make_tool(answer), modern=modern, duration=0.0123)["_meta"]
    assert meta == {
        "callpact/source": "http",
        "callpact/status": 203,
        "callpact/durationMs": 12.3,
    }


@ERAS
def test_headers_and_cookies_of_an_upstream_are_not_told(modern):
    answer = http_envelope(
        {}, status_code=200, headers={"x-key": "tea"}, content_type="", set_cookie=["k=tea"]
    )
    assert "tea" not in json.dumps(call(make_tool(answer), modern=modern))


@ERAS
def test_what_another_server_says_of_itself_is_told_as_the_upstream(modern):
    meta_ext = {
        "io.modelcontextprotocol/serverInfo": {"name": "up", "version": "2", "icons": []},
        "io.modelcontextprotocol/related-task": {"taskId": "7"},
        "vendor/x": 1,
    }
    answer = mcp_envelope([], is_error=False, content=[], meta_ext=meta_ext)
    assert call(make_tool(answer), modern=modern)["_meta"] == {
        "callpact/source": "mcp",
        "callpact/server": {"name": "up", "version": "2"},
        "vendor/x": 1,
    }


@ERAS
def test_many_changes_are_bounded_and_the_invented_ones_come_first(modern):
    stripped = [Change(f"/x{n}", "stripped", n) for n in range(MAX_NOTES + 5)]
    changes = (*stripped, Change("/price", "filled", None, invented=True))
    envelope = local_envelope({"price": 0}, "a.b")
    envelope = type(envelope)(envelope.data, envelope.meta, (), changes)
    meta = encode_result(envelope, make_tool(), modern=modern)["_meta"]
    assert len(meta["callpact/changes"]) == MAX_NOTES
    assert meta["callpact/changes"][0]["path"] == "/price"
    assert meta["callpact/changes"][0]["invented"] is True
    assert meta["callpact/moreChanges"] == 6


@ERAS
def test_a_change_of_something_large_tells_its_size_only(modern):
    output = {"type": "object", "properties": {"a": {}}}
    tool = make_tool({"a": 1, "log": "x" * (MAX_BEFORE + 1)}, output, "cast")
    (change,) = call(tool, modern=modern)["_meta"]["callpact/changes"]
    assert change == {
        "path": "/log",
        "action": "stripped",
        "beforeBytes": MAX_BEFORE + 3,
    }


# --- definitions ----------------------------------------------------------------------------


@ERAS
def test_tags_are_a_hint_for_clients_that_search(modern):
    tool = make_tool(
        description="Finds prices. Very slowly.", tags=("shop", "money"), version="1.2.0"
    )
    meta = encode_tool(tool, modern=modern)["_meta"]
    assert meta == {
        "anthropic/searchHint": "Finds prices (shop, money)",
        "callpact/tags": ["shop", "money"],
        "callpact/version": "1.2.0",
    }


@ERAS
def test_a_tool_without_tags_pays_nothing_for_hints(modern):
    assert "_meta" not in encode_tool(make_tool(), modern=modern)


@ERAS
def test_a_query_says_that_it_only_reads_unless_it_says_otherwise(modern):
    assert encode_tool(make_tool(kind="query"), modern=modern)["annotations"] == {
        "readOnlyHint": True
    }
    said = make_tool(kind="query", annotations={"readOnlyHint": False, "idempotentHint": True})
    assert encode_tool(said, modern=modern)["annotations"] == {
        "readOnlyHint": False,
        "idempotentHint": True,
    }
    assert "annotations" not in encode_tool(make_tool(), modern=modern)


# --- advertise and results ------------------------------------------------------------------

OFFER = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}


@ERAS
def test_under_a_declared_schema_an_answer_that_breaks_it_is_an_error_even_under_warn(modern):
    tool = make_tool({"cost": 1}, OFFER, "warn")
    result = call(tool, modern=modern, advertise="declared")
    assert result["isError"]
    assert "structuredContent" not in result
    body = json.loads(result["content"][0]["text"])
    assert [issue["path"] for issue in body["error"]["issues"]] == ["/price"]
    assert body["data"] == {"cost": 1}
    good = call(make_tool({"price": 1}, OFFER, "warn"), modern=modern, advertise="declared")
    assert good["structuredContent"] == {"price": 1}


@ERAS
@pytest.mark.parametrize("advertise", ["relaxed", "none"])
def test_where_no_strict_schema_is_published_a_residual_is_a_warning(advertise, modern):
    schema = {"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]}
    result = call(make_tool({"a": 1}, schema, "cast"), modern=modern, advertise=advertise)
    assert not result.get("isError")
    assert result["structuredContent"] == {"a": 1}
    assert "residual" in {issue["code"] for issue in result["_meta"]["callpact/warnings"]}


@ERAS
def test_what_was_stripped_is_named_in_the_text(modern):
    tool = make_tool({"price": "1", "vendor": "acme", "a b\n": 1}, OFFER, "convert")
    result = call(tool, modern=modern)
    assert result["structuredContent"] == {"price": 1}
    assert json.loads(result["content"][0]["text"]) == {"price": 1}
    (line,) = [block["text"] for block in result["content"][1:]]
    assert line == (
        'From the tool, but removed because its contract does not declare it: /vendor, "/a b\\n"'
    )
    assert {change["path"] for change in result["_meta"]["callpact/changes"]} == {
        "/price", "/vendor", "/a b\n"
    }  # fmt: skip


@ERAS
def test_many_and_long_names_that_were_stripped_are_cut(modern):
    extra = {f"{n}{'x' * 500}": n for n in range(30)}
    result = call(make_tool({"price": 1, **extra}, OFFER, "cast"), modern=modern)
    line = result["content"][1]["text"]
    assert line.endswith(" and 10 more")
    assert len(line) < 3_000


@ERAS
def test_what_was_cut_from_a_list_and_what_was_invented_are_both_named(modern):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "maxItems": 1}, "n": {"type": "integer"}},
        "required": ["n"],
    }
    result = call(make_tool({"a": [1, 2]}, schema, "cast"), modern=modern)
    texts = [block["text"] for block in result["content"][1:]]
    assert [text.rpartition(" ")[2] for text in texts] == ["/n", "/a"]


@ERAS
def test_what_was_replaced_in_a_plain_text_is_named_too(modern):
    result = call(make_tool(5, {"type": "string"}, "cast"), modern=modern, advertise="none")
    assert result["content"][0]["text"] == ""
    assert "the whole answer" in result["content"][1]["text"]
