"""The client that the conformance suite judges: `callpact.sources.from_mcp` and a runtime.

Not a test: `make conformance` gives it to the suite, which starts it once for each scenario, with the address of the scenario's server as the last
argument and the scenario in the environment. It does with every server what the gateway does: it
loads the definitions, then calls each tool, reads each resource and fills each prompt. OAuth is the
SDK's client, given to `from_mcp` as `auth`; its user is played by `Browser`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from callpact import CallError, Catalog, Runtime
from callpact.context import Client, Elicited, Root, Sampled
from callpact.sources import from_mcp
from callpact.tool import Call, Tool

CALLBACK = AnyUrl("http://localhost:3000/callback")
METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""The address of a client metadata document that the suite expects as the client's id."""
SAMPLES = {"string": "test", "number": 5, "integer": 3, "boolean": True, "array": [], "object": {}}


def say(*words: object) -> None:
    """Write a line that the suite shows if the scenario fails."""
    sys.stdout.write(f"{' '.join(map(str, words))}\n")


class User(Client):
    """A client that accepts every question with the defaults of its schema."""

    can_elicit = can_sample = can_list_roots = True

    async def elicit(self, message: str, schema: Mapping[str, Any], *, key: str = "") -> Elicited:
        """Accept with the defaults."""
        parts: Mapping[str, Any] = schema.get("properties", {})
        defaults = {n: part["default"] for n, part in parts.items() if "default" in part}
        return Elicited("accept", defaults)

    async def sample(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        system: str | None = None,
        temperature: float | None = None,
        stop: Sequence[str] = (),
        key: str = "",
    ) -> Sampled:
        """Reply with one text."""
        return Sampled("test", ({"type": "text", "text": "test"},), "none")

    async def roots(self, *, key: str = "") -> tuple[Root, ...]:
        """No folders."""
        return ()

    async def log(self, level: Any, data: Any) -> None:
        """Print it."""
        say("log", level, data)

    async def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Print it."""
        say("progress", done, total, message)


# --- OAuth --------------------------------------------------------------------------------------


class Memory:
    """Keeps tokens and the registration of the client."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self._tokens: OAuthToken | None = None
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens, if there are any."""
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep new tokens."""
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The registration, if there is one."""
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep a registration."""
        self._client = client_info


class Browser:
    """Opens the authorization address as a user would; the suite's server redirects at once."""

    def __init__(self) -> None:
        self._answer: dict[str, str] = {}

    async def open(self, address: str) -> None:
        """Follow the address up to the redirect to the callback."""
        async with httpx2.AsyncClient(trust_env=False) as client:
            response = await client.get(address, follow_redirects=False)
        query = parse_qs(urlsplit(response.headers["location"]).query)
        self._answer = {name: values[0] for name, values in query.items()}

    async def callback(self) -> AuthorizationCodeResult:
        """The parameters of the redirect."""
        return AuthorizationCodeResult.model_validate(self._answer)


def oauth(url: str, context: Mapping[str, Any]) -> OAuthClientProvider:
    """The SDK's OAuth client, with a registration if the scenario has one."""
    known = None
    if "client_id" in context:
        known = OAuthClientInformationFull(
            client_id=context["client_id"],
            client_secret=context.get("client_secret"),
            redirect_uris=[CALLBACK],
            token_endpoint_auth_method="client_secret_basic",
            issuer=context.get("issuer"),
        )
    browser = Browser()
    return OAuthClientProvider(
        url,
        OAuthClientMetadata(client_name="callpact", redirect_uris=[CALLBACK]),
        Memory(known),
        redirect_handler=browser.open,
        callback_handler=browser.callback,
        client_metadata_url=METADATA_URL,
    )


# --- calls --------------------------------------------------------------------------------------


def arguments_of(tool: Tool) -> dict[str, Any]:
    """A value for each required argument of a tool."""
    schema = tool.contract.input
    parts: Mapping[str, Any] = schema.get("properties", {})
    return {n: SAMPLES.get(parts[n].get("type"), "test") for n in schema.get("required", ())}


def calls_of(tools: Sequence[Tool], context: Mapping[str, Any]) -> list[Call]:
    """The calls that a scenario names, or one of each tool."""
    named: Sequence[Mapping[str, Any]] = context.get("toolCalls", ())
    if named:
        # One scenario gives null, which its own schema forbids and the gate refuses: not given.
        return [
            Call(
                f"up.{each['name']}", {n: v for n, v in each["arguments"].items() if v is not None}
            )
            for each in named
        ]
    return [Call(tool.id, arguments_of(tool)) for tool in tools]


async def main(url: str, scenario: str, context: Mapping[str, Any]) -> int:
    """Load a server, and use all that it offers; 0 if it could be loaded.

    A call may fail for the scenario's sake; the suite judges what it received.
    """
    auth = oauth(url, context) if scenario.startswith("auth/") else None
    source, tools = await from_mcp(url, namespace="up", hosts=["localhost"], auth=auth)
    say(*tools.report)
    try:
        async with Runtime(Catalog(tools)) as runtime:
            offers = [each.tool for each in (*tools.resources, *tools.prompts)]
            calls = [(call, None) for call in calls_of(tools, context)]
            calls += [(Call(tool.id, arguments_of(tool)), tool) for tool in offers]
            for call, offer in calls:
                try:
                    envelope = await runtime.call(call, trusted=True, client=User(), found=offer)
                except CallError as error:
                    say(call.tool_id, "failed:", error)
                else:
                    say(call.tool_id, "gave", envelope.data)
    finally:
        await source.aclose()
    return 1 if any(found.is_left_out for found in tools.report) else 0


if __name__ == "__main__":
    variables = os.environ
    raise SystemExit(
        asyncio.run(
            main(
                sys.argv[-1],
                variables["MCP_CONFORMANCE_SCENARIO"],
                json.loads(variables.get("MCP_CONFORMANCE_CONTEXT", "{}")),
            )
        )
    )
