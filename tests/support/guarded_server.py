"""An MCP server over HTTP on the SDK, and an OAuth issuer beside it; both record every request.

    with GuardedServer(accepts={"Bearer one"}) as server:
        server.url, server.issuer, server.seen, server.asked

`accepts` are the values of Authorization that are let in; None lets in all. The token endpoint gives
`token-1`, `token-2`, … and adds them to `accepts`; `grant` can be replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from dataclasses import dataclass
from urllib.parse import parse_qsl

import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.shared.exceptions import MCPError

from callpact import Runtime
from callpact.config import configuration_of
from callpact.sources.parts import load_sources

PATIENCE = 30
METHODS = ("tools/call", "resources/read", "prompts/get", "completion/complete")
"""The methods that are sent for a caller."""


@dataclass(frozen=True)
class Seen:
    """One message that the server got."""

    method: str
    authorization: str | None
    session: str | None = None
    arguments: dict | None = None


class GuardedServer:
    """The server, in a thread on a free port."""

    def __init__(self, accepts=None, era="modern", life=3600):
        self.accepts, self.era, self.life = accepts, era, life
        self.seen, self.asked, self.given = [], [], []
        self.released = threading.Event()
        """Ends the calls whose argument `who` is "held"."""
        self.headers = []
        """All headers of each request to the server."""
        self.metadata_path = "/.well-known/oauth-protected-resource/mcp"
        self.grant = self._grant
        config = uvicorn.Config(
            self._app,
            port=0,
            log_level="error",
            lifespan="on",
            interface="asgi3",
            timeout_graceful_shutdown=1,
        )
        self._uvicorn = uvicorn.Server(config)
        self._inner = _server(self).streamable_http_app()
        self._thread = threading.Thread(target=self._uvicorn.run)

    def __enter__(self):
        self._thread.start()
        for _ in range(PATIENCE * 100):
            if self._uvicorn.started:
                break
            self._thread.join(0.01)
        self.port = self._uvicorn.servers[0].sockets[0].getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        self.issuer = f"http://{self.host}"
        self.url, self.token_url = f"{self.issuer}/mcp", f"{self.issuer}/token"
        return self

    def __exit__(self, *_):
        self._uvicorn.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def of(self, *methods):
        """The credentials that came with these methods."""
        return [each.authorization for each in self.seen if each.method in methods]

    def _grant(self, form, authorization):
        """Give a new token, and let it in."""
        token = f"granted-token-{len(self.given) + 1}"
        self.given.append(token)
        if self.accepts is not None:
            self.accepts.add(f"Bearer {token}")
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.life}

    async def _app(self, scope, receive, send):
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        body, more = b"", True
        while more and scope["method"] == "POST":
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        found = self._issued(scope["path"], body, headers)
        if found is not None:
            await _answer(send, *found)
            return
        message = json.loads(body) if body else {}
        method = message.get("method", scope["method"])
        given = headers.get("authorization")
        arguments = (message.get("params") or {}).get("arguments")
        self.seen.append(Seen(method, given, headers.get("mcp-session-id"), arguments))
        self.headers.append(headers)
        if self.accepts is not None and given not in self.accepts:
            where = f'Bearer resource_metadata="{self.issuer}{self.metadata_path}"'
            await _answer(send, 401, {"echo": given}, {"www-authenticate": where})
            return
        if method == "server/discover" and self.era == "legacy":
            error = {"code": -32601, "message": "Method not found"}
            await _answer(send, 200, {"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        sent = False

        async def again():
            nonlocal sent
            if sent or scope["method"] != "POST":
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._inner(scope, again, send)

    def _issued(self, path, body, headers):
        if path == self.metadata_path:
            return 200, {"resource": self.url, "authorization_servers": [self.issuer]}
        if path == "/.well-known/oauth-authorization-server":
            return 200, {"issuer": self.issuer, "token_endpoint": self.token_url}
        if path == "/token":
            form = dict(parse_qsl(body.decode()))
            self.asked.append({**form, "authorization": headers.get("authorization")})
            return self.grant(form, headers.get("authorization"))
        return (404, {}) if path.startswith("/.well-known") else None


async def _answer(send, status, body, headers=None):
    data = json.dumps(body).encode()
    given = {
        "content-type": "application/json",
        "content-length": str(len(data)),
        **(headers or {}),
    }
    pairs = [(key.encode(), value.encode()) for key, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": data})


def _server(guarded):
    """Offers one of each kind; the tools give back the credential that they were called with."""

    async def list_tools(context, params):
        properties = {"seconds": {"type": "number"}, "who": {"type": "string"}}
        schema = {"type": "object", "properties": properties}
        names = ("whoami", "fail")
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema=schema) for name in names]
        )

    async def call_tool(context, params):
        given = context.request.headers.get("authorization")
        arguments = params.arguments or {}
        await asyncio.sleep(arguments.get("seconds", 0))
        while arguments.get("who") == "held" and not guarded.released.is_set():
            await asyncio.sleep(0.01)
        if params.name == "fail":
            raise MCPError(-31_000, f"refused {given}")
        text = types.TextContent(type="text", text=f"you sent {given}")
        return types.CallToolResult(content=[text])

    async def list_resources(context, params):
        return types.ListResourcesResult(resources=[types.Resource(uri="note://1", name="note")])

    async def list_templates(context, params):
        template = types.ResourceTemplate(uri_template="page://{number}", name="page")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(context, params):
        text = types.TextResourceContents(uri=params.uri, text="a note", mime_type="text/plain")
        return types.ReadResourceResult(contents=[text])

    async def list_prompts(context, params):
        argument = types.PromptArgument(name="who", required=True)
        return types.ListPromptsResult(prompts=[types.Prompt(name="greet", arguments=[argument])])

    async def get_prompt(context, params):
        text = types.TextContent(type="text", text="Greet")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])

    async def complete(context, params):
        return types.CompleteResult(completion=types.Completion(values=["alan"]))

    return Server(
        "guarded",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
    )


async def every_method(client, namespace="up"):
    """Use each method once; gives the result or the error of each."""
    about = types.PromptReference(type="ref/prompt", name=f"{namespace}_greet")
    uses = {
        "tools/call": lambda: client.call_tool(f"{namespace}_whoami", {}),
        "resources/read": lambda: client.read_resource("note://1"),
        "prompts/get": lambda: client.get_prompt(f"{namespace}_greet", {"who": "Ada"}),
        "completion/complete": lambda: client.complete(about, {"name": "who", "value": "al"}),
    }
    found = {}
    for method, use in uses.items():
        try:
            found[method] = await use()
        except Exception as error:
            found[method] = error
    return found


def write_config(folder, text, **keys):
    """Write `callpact.toml` and its keys; gives the path of the file."""
    lines = [f"{name}={value}\n" for name, value in keys.items()]
    (folder / "keys.env").write_text("".join(lines), "utf-8")
    (folder / "keys.env").chmod(0o600)
    (folder / "callpact.toml").write_text(text, "utf-8")
    return folder / "callpact.toml"


@contextlib.asynccontextmanager
async def runtime_of(file):
    """The sources of a configuration in a runtime; also gives what was loaded."""
    loaded = await load_sources(configuration_of((), file).wanted())
    try:
        async with Runtime(loaded.catalog) as runtime:
            yield runtime, loaded
    finally:
        async with asyncio.timeout(PATIENCE):
            await loaded.aclose()
