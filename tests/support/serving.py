"""The HTTP door with callers, in a thread of this process; and what they send and read.

with Serving(Authentication(TOKENS)) as serving:
    assert serving.whoami(CI)["id"] == "ci"
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading

import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared._httpx_utils import create_mcp_http_client

import raw
from callpact.context import Identity
from callpact.net import HttpTransport, Limits
from callpact.serve import Authentication, BearerToken, identify, serve_http
from callpact.serve.auth.jwks import IssuerKeys
from callpact.serve.auth.oauth import OAuth
from issuer import AUDIENCE

CI, ROOT = "ci-0123456789abcdef", "root-0123456789abcdef"
TOKENS = (
    BearerToken.of(CI, Identity("ci", ("read",))),
    BearerToken.of(ROOT, Identity("root", ("read", "admin"), {"project:42": ("write",)})),
)
CALL = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "whoami"}}
QUICK = Limits(total_seconds=0.5, body_bytes=100_000, decoded_bytes=100_000)


def server():
    """Says who calls, by the request and by what the SDK binds its state to."""

    async def list_tools(context, params):
        return types.ListToolsResult(
            tools=[types.Tool(name="whoami", input_schema={"type": "object"})]
        )

    async def call_tool(context, params):
        caller = identify(context.request.scope)
        bound = get_access_token()
        told = {
            "id": caller and caller.id,
            "scopes": caller and list(caller.scopes),
            "bound": bound and bound.subject,
            "headers": sorted(context.request.headers),
        }
        return types.CallToolResult(content=[types.TextContent(type="text", text=json.dumps(told))])

    return Server(
        "t",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(InMemorySubscriptionBus()),
    )


class Serving:
    """`serve_http` in a thread, on a free port."""

    def __init__(self, authentication=None, door=None, **given):
        self._ready = threading.Event()
        self._loop = self._task = self._error = None
        self._given = {"port": 0, "authentication": authentication, **given}
        self._server = door.server if door else server()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self):
        def ready(address):
            self.address = address
            self._ready.set()

        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await serve_http(self._server, on_ready=ready, **self._given)
        except Exception as error:
            self._error = error
        finally:
            self._ready.set()

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(raw.PATIENCE)
        if self._error is not None:
            raise self._error
        self.port = int(self.address.split(":")[-1].split("/")[0])
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(raw.PATIENCE)
        assert not self._thread.is_alive()
        assert self._error is None

    def connect(self):
        return raw.Line(self.port)

    def client(self, token, mode):
        """The SDK's own client, with a token."""

        @contextlib.asynccontextmanager
        async def opened():
            headers = {"Authorization": f"Bearer {token}"}
            async with (
                create_mcp_http_client(headers=headers) as http,
                Client(streamable_http_client(self.address, http_client=http), mode=mode) as client,
            ):
                yield client

        return opened()

    def whoami(self, token, mode="2026-07-28"):
        async def go():
            async with self.client(token, mode) as client:
                return text_of(await client.call_tool("whoami", {}))

        return asyncio.run(asyncio.wait_for(go(), raw.PATIENCE))


def text_of(result):
    return json.loads(result.content[0].text)


def bearer(token, scheme="Bearer"):
    return {"Authorization": f"{scheme} {token}"}


def challenge(answer):
    """What the answer says that is needed (RFC 6750)."""
    scheme, _, rest = answer.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return dict(re.findall(r'(\w+)="([^"]*)"', rest))


def works(line, token=CI):
    """True if the next request with a good token is answered on this connection."""
    return "result" in line.ask(raw.message(), **raw.routed(), **bearer(token)).json


def session(line, token):
    """Begin a session; gives its id."""
    answer = line.ask(raw.initialize(), **bearer(token))
    assert answer.status == 200
    number = {"Mcp_Session_Id": answer.headers["mcp-session-id"]}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert line.ask(note, **number, **bearer(token)).status == 202
    return number


def told_in(answer):
    """The result in the one event of a stream."""
    (data,) = [part[6:] for part in answer.body.split(b"\r\n") if part.startswith(b"data: {")]
    return json.loads(json.loads(data)["result"]["content"][0]["text"])


def checking(issuer, *, fresh=600.0, pause=0.0, jwks_uri=None, tokens=(), limits=QUICK, **given):
    """Authentication by an issuer of this machine, which is allowed by name."""
    transport = HttpTransport(limits, [issuer.host])
    keys = IssuerKeys(
        issuer.url, jwks_uri, [issuer.host], transport=transport, fresh=fresh, pause=pause
    )
    given = {"issuer": issuer.url, "audience": AUDIENCE, "hosts": [issuer.host], **given}
    return Authentication(tokens, OAuth(keys=keys, **given))


def asked(serving, token):
    """The status that a token is answered with."""
    with serving.connect() as line:
        return line.ask(raw.message(), **raw.routed(), **bearer(token)).status
