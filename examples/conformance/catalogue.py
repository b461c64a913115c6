"""What the MCP conformance suite asks a server for, declared like any other catalogue.

The names, texts and values are the suite's: it calls `test_simple_text`, reads `test://static-text`
and so on. `make conformance` serves this folder and runs the suite against it.
"""

from __future__ import annotations

import asyncio
import base64
import io
import re
import wave
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from callpact import (
    Context,
    Contract,
    ResponseEnvelope,
    Tool,
    ToolError,
    mcp_envelope,
    prompt,
    resource,
    tool,
)
from callpact.envelope import ImageBlock, MCPResourceContent, ResourceBlock, TextBlock

if TYPE_CHECKING:
    from callpact.context import Client

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
"""A red pixel: PNG, base64."""
STEP = 0.05
"""Seconds between two notifications, as the suite asks for."""
FOLDER = Path(__file__).parent

WavText = Annotated[
    str, Field(json_schema_extra={"contentEncoding": "base64", "contentMediaType": "audio/wav"})
]


def words(**schemas: str) -> dict[str, Any]:
    """The schema of a form with texts: their names, and what they are."""
    fields = {name: {"type": "string", "description": text} for name, text in schemas.items()}
    return {"type": "object", "properties": fields, "required": list(fields)}


def client_of(context: Context) -> Client:
    """Whoever called.

    Raises:
        ToolError: nobody is there to be asked.
    """
    if context.client is None:
        raise ToolError("no_client", "This tool asks its client, and there is none")
    return context.client


# --- answers of every kind --------------------------------------------------------------------


@tool
def simple_text() -> str:
    """Give a text."""
    return "This is a simple text response for testing."


@tool
def image_content() -> bytes:
    """Give an image."""
    return base64.b64decode(PIXEL)


@tool
def audio_content() -> WavText:
    """Give a sound."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 8_000, 0, "NONE", "not compressed"))
        sound.writeframes(bytes(160))
    return base64.b64encode(file.getvalue()).decode()


@tool
def embedded_resource() -> ResponseEnvelope[Any]:
    """Give a resource within the answer."""
    embedded = MCPResourceContent(
        uri="test://embedded-resource",
        mime_type="text/plain",
        text="This is an embedded resource content.",
    )
    return mcp_envelope(None, is_error=False, content=[ResourceBlock(embedded)])


@tool
def multiple_content_types() -> ResponseEnvelope[Any]:
    """Give a text, an image and a resource at once."""
    embedded = MCPResourceContent(
        uri="test://mixed-content-resource",
        mime_type="application/json",
        text='{"test":"data","value":123}',
    )
    content = [
        TextBlock("Multiple content types test:"),
        ImageBlock(PIXEL, "image/png"),
        ResourceBlock(embedded),
    ]
    return mcp_envelope(None, is_error=False, content=[*content])


@tool
def error_handling() -> None:
    """Fail, always."""
    raise ToolError("intended", "This tool intentionally returns an error for testing")


# --- schemas that must arrive as they are written -----------------------------------------------


@tool
def region_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Take an argument that clients repeat in a header, where proxies can read it.

    Args:
        region: Where.
    """
    return region


async def _contact(arguments: dict[str, Any], _: Context) -> dict[str, Any]:
    return arguments


json_schema_2020_12 = Tool(
    id="test.json_schema",
    wire_name="json_schema_2020_12_tool",
    description="Tool with JSON Schema 2020-12 features",
    contract=Contract(
        input={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {
                "name": {"type": "string"},
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"},
                "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {
                "properties": {"contactMethod": {"const": "phone"}},
                "required": ["contactMethod"],
            },
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": False,
        }
    ),
    handler=_contact,
)


# --- notifications ----------------------------------------------------------------------------


@tool
async def tool_with_progress(context: Context) -> str:
    """Tell three times how far it is."""
    for done in (0, 50, 100):
        await context.progress(done, 100)
        await asyncio.sleep(STEP)
    return "Done."


@tool
async def tool_with_logging(context: Context) -> str:
    """Tell three times what it does."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await client_of(context).log("info", text)
        await asyncio.sleep(STEP)
    return "Done."


@tool
async def logging_tool(context: Context) -> str:
    """Tell something to those who want to hear it, and nothing to others."""
    await client_of(context).log("info", "Only for those who set a level")
    return "Done."


# --- questions to the client ------------------------------------------------------------------


@tool
async def sampling(prompt: str, context: Context) -> str:
    """Ask the client's model.

    Args:
        prompt: What to ask.
    """
    sampled = await client_of(context).sample(prompt, max_tokens=100)
    return f"LLM response: {sampled.text}"


@tool
async def elicitation(message: str, context: Context) -> str:
    """Ask the user for a name and an address.

    Args:
        message: What to show to the user.
    """
    schema = words(username="User's response", email="User's email address")
    return _told(await client_of(context).elicit(message, schema))


@tool
async def elicitation_sep1034_defaults(context: Context) -> str:
    """Ask with a default for every kind of field."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    }
    schema = {"type": "object", "properties": fields}
    return _told(await client_of(context).elicit("Review the values", schema))


@tool
async def elicitation_sep1330_enums(context: Context) -> str:
    """Ask with every way to write a choice."""
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"Option number {n}"} for n in (1, 2, 3)]
    fields = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    schema = {"type": "object", "properties": fields}
    return _told(await client_of(context).elicit("Choose", schema))


def _told(elicited: Any) -> str:
    return f"Elicitation completed: action={elicited.action}, content={elicited.data}"


# --- questions from 2026-07-28 on: each round is a call of its own ----------------------------


@tool
async def input_required_result_elicitation(context: Context) -> str:
    """Ask the user for a name."""
    schema = words(name="Your name")
    answer = await client_of(context).elicit("What is your name?", schema, key="user_name")
    return f"Hello, {(answer.data or {}).get('name', 'stranger')}!"


@tool
async def input_required_result_sampling(context: Context) -> str:
    """Ask the client's model for a capital."""
    sampled = await client_of(context).sample(
        "What is the capital of France?", max_tokens=100, key="capital_question"
    )
    return sampled.text


@tool
async def input_required_result_list_roots(context: Context) -> list[str]:
    """Ask which folders the client works in."""
    return [root.uri for root in await client_of(context).roots(key="client_roots")]


@tool
async def input_required_result_request_state(context: Context) -> str:
    """Ask for a confirmation; what the client carries for us is checked when it comes back."""
    await _confirmed(context)
    return "state-ok"


@tool
async def input_required_result_tampered_state(context: Context) -> str:
    """Ask for a confirmation; what was changed on the way is refused."""
    await _confirmed(context)
    return "Done."


async def _confirmed(context: Context) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    await client_of(context).elicit("Please confirm", schema, key="confirm")


@tool
async def input_required_result_multiple_inputs(context: Context) -> str:
    """Ask three things at once."""
    client = client_of(context)
    name, greeting, roots = await asyncio.gather(
        client.elicit("What is your name?", words(name="Your name"), key="user_name"),
        client.sample("Generate a greeting", max_tokens=50, key="greeting"),
        client.roots(key="client_roots"),
    )
    return f"{greeting.text} {name.data} in {[root.uri for root in roots]}"


@tool
async def input_required_result_multi_round(context: Context) -> str:
    """Ask one thing, and then another."""
    client = client_of(context)
    name = await client.elicit("Step 1: What is your name?", words(name="Your name"), key="step1")
    color = await client.elicit(
        "Step 2: What is your favorite color?", words(color="A color"), key="step2"
    )
    return f"{name.data} likes {color.data}"


@tool
async def input_required_result_capabilities(context: Context) -> str:
    """Ask only what this client can be asked."""
    client = client_of(context)
    if client.can_elicit:
        await client.elicit("What is your name?", words(name="Your name"))
    if client.can_sample:
        await client.sample("Generate a greeting", max_tokens=50)
    return "Done."


@tool
async def missing_capability(context: Context) -> str:
    """Ask the client's model, whether or not there is one."""
    return (await client_of(context).sample("Say something", max_tokens=10)).text


@tool
async def streaming_elicitation(context: Context) -> str:
    """Tell how far it is, and ask the user."""
    await context.progress(0, 1)
    return _told(await client_of(context).elicit("Go on?", words(answer="Yes or no")))


# --- a catalogue that changes while it is served ----------------------------------------------


@tool
def trigger_tool_change() -> str:
    """Put another tool into the place of one."""
    return _changed("changing_tool.py")


@tool
def trigger_prompt_change() -> str:
    """Put another prompt into the place of one."""
    return _changed("changing_prompt.py")


def _changed(name: str) -> str:
    """Give the next number to the one function in a file, as an author at work would."""
    file = FOLDER / name
    text = re.sub(r"(?<=generation_)[0-9]+", lambda n: str(int(n[0]) + 1), file.read_text("utf-8"))
    fresh = file.with_suffix(".new")
    fresh.write_text(text, "utf-8")
    fresh.replace(file)
    return f"{name} has changed"


# --- resources --------------------------------------------------------------------------------


@resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text that stays the same."""
    return "This is the content of the static text resource."


@resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image that stays the same."""
    return base64.b64decode(PIXEL)


@resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:
    """Data of one id.

    Args:
        id: Whose data.
    """
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """A text that clients subscribe to."""
    return "Watched resource content"


# --- prompts ----------------------------------------------------------------------------------


@prompt
def simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@prompt(complete={"arg1": ["test", "testing", "toast"]})
def prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments.

    Args:
        arg1: First test argument.
        arg2: Second test argument.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@prompt
def prompt_with_embedded_resource(
    uri: Annotated[str, Field(alias="resourceUri", description="The resource to embed.")],
) -> list[dict[str, Any]]:
    """A prompt with a resource in it."""
    embedded = {
        "uri": uri,
        "mimeType": "text/plain",
        "text": "Embedded resource content for testing.",
    }
    return [
        {"role": "user", "content": {"type": "resource", "resource": embedded}},
        {"role": "user", "content": "Please process the embedded resource above."},
    ]


@prompt
def prompt_with_image() -> list[dict[str, Any]]:
    """A prompt with an image in it."""
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    return [
        {"role": "user", "content": image},
        {"role": "user", "content": "Please analyze the image above."},
    ]


@prompt
async def input_required_result_prompt(context: Context) -> str:
    """A prompt that asks the user first."""
    answer = await client_of(context).elicit(
        "What context should the prompt use?", words(context="The context"), key="user_context"
    )
    return f"Use this context: {(answer.data or {}).get('context', 'none')}"
