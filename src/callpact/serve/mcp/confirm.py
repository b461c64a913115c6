"""Confirmation by the user: tools with `destructiveHint` run only if the client's user agrees."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from callpact.catalog import Catalog
from callpact.errors import NotConfirmed
from callpact.schema.issues.secrecy import SecretPlaces
from callpact.schema.json_text import json_text
from callpact.serve import DEFAULT_TIMEOUT
from callpact.serve.mcp.input_rounds import ANSWER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from callpact.context import Context
    from callpact.tool import Tool

MAX_SHOWN_ARGUMENTS = 500
"""Characters of the arguments in the question to the user."""
_HIDDEN = "•••"
_QUESTION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "confirm": {"type": "boolean", "title": "Run it", "default": False},
    },
    "required": ["confirm"],
}


def with_confirmation(catalog: Catalog) -> Catalog:
    """Return the catalog with a confirmation before each tool with `destructiveHint`."""
    return Catalog(
        (_with_confirmation(tool) if is_destructive(tool) else tool for tool in catalog),
        resources=catalog.resources,
        prompts=catalog.prompts,
    )


def is_destructive(tool: Tool) -> bool:
    """True if a tool declares that it can destroy something."""
    return tool.annotations.get("destructiveHint") is True and tool.kind != "subscription"


def _with_confirmation(tool: Tool) -> Tool:
    async def handler(arguments: dict[str, Any], context: Context) -> Any:
        await _confirmed(tool, arguments, context)
        value: Any = tool.handler(arguments, context)
        return await cast("Awaitable[Any]", value) if hasattr(value, "__await__") else value

    # The tool's own timeout does not include the user's time.
    timeout = (tool.timeout or DEFAULT_TIMEOUT) + ANSWER_SECONDS
    return replace(tool, handler=handler, timeout=timeout, uses_client=True)


async def _confirmed(tool: Tool, arguments: dict[str, Any], context: Context) -> None:
    client = context.client
    if client is None or not client.can_elicit:
        raise NotConfirmed(
            tool.id,
            "it can destroy something, so the user has to agree, and this client cannot ask its "
            "user (elicitation)",
        )
    title = tool.title or tool.id
    message = f"Run '{title}' with {_shown(tool, arguments)}? It can destroy something."
    answer = await client.elicit(message, _QUESTION, key="confirm")
    if not answer.is_accepted or not (answer.data or {}).get("confirm"):
        raise NotConfirmed(tool.id, "the user did not agree")


def _shown(tool: Tool, arguments: dict[str, Any]) -> str:
    compiled = tool.contract.compiled_input
    secrets = SecretPlaces(compiled.document, has_any=compiled.has_secrets)
    text = json_text(secrets.masked(arguments, _HIDDEN))
    return text if len(text) <= MAX_SHOWN_ARGUMENTS else f"{text[:MAX_SHOWN_ARGUMENTS]}…"
