"""MCP's form of resources, prompts and completions: what the SDK's own types take."""

from __future__ import annotations

import base64
import json

import mcp_types as types
import pytest
from mcp_types import methods
from pydantic import ValidationError

from callpact.envelope import local_envelope
from callpact.resources import Prompt, Resource
from callpact.tool import Contract, Tool
from callpact.wire.mcp.offers import (
    MAX_COMPLETIONS,
    encode_completion,
    encode_contents,
    encode_messages,
    encode_prompt,
    encode_resource,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


async def handler(arguments, context):
    return None


def tool(**given):
    properties = given.pop("properties", {})
    schema = {"type": "object", "properties": properties, "required": given.pop("required", [])}
    fields = {"id": "t.it", "description": "It", "contract": Contract(input=schema)}
    return Tool(**fields, handler=handler, **given)


FIXED = Resource(uri="d:x", tool=tool())


# --- definitions ----------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["2024-11-05", "2025-11-25", "2026-07-28"])
def test_definitions_are_taken_by_every_era(era):
    page = tool(properties={"page": {"type": "string"}}, required=["page"], title="A page")
    entries = {
        "resources/list": ("resources", encode_resource(FIXED)),
        "resources/templates/list": (
            "resourceTemplates",
            encode_resource(Resource(uri="d:{page}", tool=page)),
        ),
        "prompts/list": ("prompts", encode_prompt(Prompt(tool=page))),
    }
    more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    for method, (key, entry) in entries.items():
        whole = {key: [entry], **(more if era == "2026-07-28" else {})}
        assert methods.serialize_server_result(method, era, whole)[key][0]["name"] == "t_it"


def test_a_resource_says_what_is_known_of_it_and_nothing_else():
    assert encode_resource(FIXED) == {"uri": "d:x", "name": "t_it", "description": "It"}
    whole = Resource(
        uri="d:x",
        tool=tool(title="X", annotations={"priority": 0.5}),
        mime_type="text/markdown",
        size=7,
    )
    assert encode_resource(whole) == {
        "uri": "d:x",
        "name": "t_it",
        "title": "X",
        "description": "It",
        "mimeType": "text/markdown",
        "size": 7,
        "annotations": {"priority": 0.5},
    }


def test_a_template_says_so_and_has_no_size():
    page = tool(properties={"page": {"type": "string"}}, required=["page"])
    wired = encode_resource(Resource(uri="d:{page}", tool=page, size=7))
    assert wired == {"uriTemplate": "d:{page}", "name": "t_it", "description": "It"}


def test_a_prompt_says_which_arguments_it_takes():
    topic = {"type": "string", "description": "What about"}
    asked = tool(properties={"topic": topic, "tone": {"type": "string"}}, required=["topic"])
    assert encode_prompt(Prompt(tool=asked)) == {
        "name": "t_it",
        "description": "It",
        "arguments": [
            {"name": "topic", "required": True, "description": "What about"},
            {"name": "tone", "required": False},
        ],
    }
    bare = encode_prompt(Prompt(tool=tool(title="Ask")))
    assert bare == {"name": "t_it", "description": "It", "title": "Ask"}


# --- contents -------------------------------------------------------------------------------


def contents(value, resource=FIXED, uri="d:x"):
    wired = encode_contents(local_envelope(value, "t.it"), resource, uri)
    types.ReadResourceResult.model_validate(wired)
    return wired["contents"]


@pytest.mark.parametrize("text", ["", "é😀\x00\u2028", "x" * 100_000])
def test_a_text_is_sent_as_it_is_under_the_address_that_was_asked_for(text):
    assert contents(text, uri="d:%41") == [{"uri": "d:%41", "mimeType": "text/plain", "text": text}]


@pytest.mark.parametrize(
    ("raw", "kind"), [(PNG, "image/png"), (b"abc", "application/octet-stream"), (b"", None)]
)
def test_bytes_are_sent_in_base64_under_the_type_that_they_show(raw, kind):
    (content,) = contents(raw)
    assert base64.b64decode(content["blob"]) == raw
    assert content["mimeType"] == (kind or "application/octet-stream")


@pytest.mark.parametrize(
    "value", [None, True, 5, [], {}, {"a": [1, None]}, [1, 2], [{"uri": "d:1"}], {"text": "a"}]
)
def test_anything_else_is_sent_as_json(value):
    (content,) = contents(value)
    assert (json.loads(content["text"]), content["mimeType"]) == (value, "application/json")


@pytest.mark.parametrize("value", ["text", PNG, {"a": 1}])
def test_the_declared_type_is_told_whatever_came(value):
    (content,) = contents(value, Resource(uri="d:x", tool=tool(), mime_type="text/csv"))
    assert content["mimeType"] == "text/csv"


def test_several_contents_stay_several():
    given = [{"uri": "d:1", "text": "a"}, {"uri": "d:2", "mimeType": "image/png", "blob": "YQ=="}]
    assert contents(given) == given


def test_a_list_of_contents_and_something_else_is_json():
    mixed = [{"uri": "d:1", "text": "a"}, 5]
    (content,) = contents(mixed)
    assert json.loads(content["text"]) == mixed


# --- messages -------------------------------------------------------------------------------


def messages(value):
    wired = encode_messages(local_envelope(value, "t.it"), Prompt(tool=tool()))
    types.GetPromptResult.model_validate(wired)
    assert wired["description"] == "It"
    return wired["messages"]


def said(text, role="user"):
    return {"role": role, "content": {"type": "text", "text": text}}


def test_a_text_is_what_the_user_says():
    assert messages("Hi") == [said("Hi")]


def test_messages_may_be_short_or_in_full():
    image = {"type": "image", "data": "YQ==", "mimeType": "image/png"}
    given = ["a", {"role": "assistant", "content": "b"}, {"role": "user", "content": image}]
    wanted = [said("a"), said("b", "assistant"), {"role": "user", "content": image}]
    assert messages(given) == wanted
    assert messages({"role": "assistant", "content": "b"}) == [said("b", "assistant")]
    assert messages([]) == []


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        [None],
        {},
        {"role": "system", "content": "a"},
        {"role": "user"},
        {"role": "user", "content": 5},
        {"role": "user", "content": {"type": "image"}},
        {"content": "a"},
    ],
)
def test_what_is_no_message_is_not_made_one(value):
    with pytest.raises(ValidationError):
        messages(value)


# --- completions ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, MAX_COMPLETIONS, MAX_COMPLETIONS + 1, 10_000])
def test_a_completion_gives_the_first_hundred_and_says_how_many_there_are(count):
    values = [str(number) for number in range(count)]
    wired = encode_completion(values)
    types.CompleteResult.model_validate(wired)
    assert wired == {"completion": {"values": values[:100], "total": count, "hasMore": count > 100}}
