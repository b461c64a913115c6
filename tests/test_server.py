"""`run` and `asgi_app`: tools of a program, served without wiring of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import types
import urllib.error
import urllib.request

import pytest
import uvicorn
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import callpact
from callpact import Catalog, Identity, InvalidConfig, UsageError, from_functions
from callpact.serve import Authentication, BearerToken

TOKEN = "ada-0123456789abcdef"
PROGRAM = """
import sys
import callpact

@callpact.tool
async def add(a: int, b: int) -> int:
    '''Add two numbers.'''
    return a + b

if __name__ == "__main__":
    callpact.run(stdio="--stdio" in sys.argv, port=0, name="shop", audit=sys.argv[1])
"""


@callpact.tool
async def double(n: int) -> int:
    """Double a number."""
    return 2 * n


@callpact.tool(access=["admin"])
async def secret() -> str:
    """For administrators."""
    return "tea"


def post(address, arguments, token=None):
    headers = {"content-type": "application/json"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    request = urllib.request.Request(address, json.dumps(arguments).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def read(address):
    with urllib.request.urlopen(address, timeout=20) as response:
        return response.read().decode()


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "shop.py"
    file.write_text(PROGRAM, "utf-8")
    return file


def test_a_program_serves_its_own_tools_over_http_until_it_is_ended(program, tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, str(program), str(log)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        address = re.search(r"serving 1 tool at (http://\S+)", line)[1]
        assert post(f"{address.removesuffix('/mcp')}/tools/shop.add", {"a": 1, "b": 2}) == 3
        called = asyncio.run(_call(address, "shop_add", {"a": 2, "b": 2}))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert called == 4
    found = subprocess.run(
        [sys.executable, "-m", "callpact", "audit", "stats", "--audit", str(log), "--json"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert '"calls":2' in found.stdout.replace(" ", "")


async def _call(server, name, arguments):
    async with Client(server) as client:
        return (await client.call_tool(name, arguments)).structured_content


def test_a_program_serves_its_own_tools_over_stdio(program, tmp_path):
    command = [str(program), str(tmp_path / "log"), "--stdio"]
    server = StdioServerParameters(command=sys.executable, args=command)
    assert asyncio.run(_call(server, "shop_add", {"a": 2, "b": 5})) == 7


@contextlib.asynccontextmanager
async def listening(app, lifespan="on"):
    """An ASGI application under uvicorn."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan=lifespan))
        server.install_signal_handlers = lambda: None
        task = asyncio.ensure_future(server.serve(sockets=[bound]))
        async with asyncio.timeout(20):
            while not server.started and not task.done():
                await asyncio.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            with contextlib.suppress(SystemExit):
                await task


@pytest.mark.parametrize("lifespan", ["on", "off"])
def test_an_application_runs_under_any_server(lifespan):
    async def story():
        app = callpact.asgi_app(double, audit="off")
        async with listening(app, lifespan) as root:
            over_http = await asyncio.to_thread(post, f"{root}/tools/test_server.double", {"n": 4})
            return over_http, await _call(f"{root}/mcp", "test_server_double", {"n": 5})

    assert asyncio.run(story()) == (8, 10)


def test_an_application_is_mounted_beside_the_routes_of_another():
    async def story():
        tools = callpact.asgi_app(double, audit="off")
        home = Route("/", lambda _: PlainTextResponse("home"))
        app = Starlette(routes=[home, Mount("/agents", tools)])
        async with listening(app) as root:
            over_http = await asyncio.to_thread(
                post, f"{root}/agents/tools/test_server.double", {"n": 4}
            )
            over_mcp = await _call(f"{root}/agents/mcp", "test_server_double", {"n": 5})
            pages = [
                await asyncio.to_thread(urllib.request.urlopen, address)
                for address in (root, f"{root}/agents/")
            ]
            with pages[0], pages[1]:
                home, landing = (page.read() for page in pages)
            assert f"<pre>{root}/agents/mcp</pre>".encode() in landing
            return over_http, over_mcp, home

    assert asyncio.run(story()) == (8, 10, b"home")


def test_an_application_with_tokens_knows_its_callers():
    async def story():
        tokens = [BearerToken.of(TOKEN, Identity("ada", ("admin",)))]
        app = callpact.asgi_app(secret, authentication=Authentication(tokens), audit="off")
        async with listening(app) as root:
            address = f"{root}/tools/test_server.secret"
            allowed = await asyncio.to_thread(post, address, {}, TOKEN)
            with pytest.raises(urllib.error.HTTPError) as refused:
                await asyncio.to_thread(post, address, {})
            with refused.value as answer:
                return allowed, answer.code

    assert asyncio.run(story()) == ("tea", 401)


def test_callers_without_tokens_get_the_scopes_that_are_given():
    async def story():
        async with listening(callpact.asgi_app(secret, scopes=["admin"], audit="off")) as root:
            return await asyncio.to_thread(post, f"{root}/tools/test_server.secret", {})

    assert asyncio.run(story()) == "tea"


def test_a_source_that_cannot_be_loaded_is_reported_when_the_server_starts():
    async def story():
        sent = []

        async def receive():
            return {"type": "lifespan.startup"}

        async def send(message):
            sent.append(message)

        app = callpact.asgi_app("python:no_such_file.py", audit="off")
        await app({"type": "lifespan"}, receive, send)
        return sent

    (message,) = asyncio.run(story())
    assert message["type"] == "lifespan.startup.failed"
    assert "no_such_file.py" in message["message"]


def test_a_module_a_catalog_and_functions_are_served_together(tmp_path):
    module = types.ModuleType("house")
    exec("import callpact\n@callpact.tool\nasync def one() -> int:\n    return 1", module.__dict__)
    catalog = Catalog(from_functions(double, namespace="other"))

    async def story():
        app = callpact.asgi_app(module, catalog, [secret], audit="off", scopes=["admin"])
        async with listening(app) as root:
            page = await asyncio.to_thread(urllib.request.urlopen, f"{root}/openapi.json")
            with page:
                return sorted(json.load(page)["paths"])

    assert {"/tools/other.double", "/tools/test_server.secret"} <= set(asyncio.run(story()))


def test_a_module_without_tools_is_refused():
    with pytest.raises(UsageError, match=r"empty holds no tool; mark its functions"):
        callpact.run(types.ModuleType("empty"), audit="off")


def test_a_public_name_needs_authentication():
    with pytest.raises(InvalidConfig, match="without authentication"):
        callpact.asgi_app(double, hosts=["tools.example.com"])
    with pytest.raises(InvalidConfig, match="without authentication"):
        callpact.run(double, host="0.0.0.0", audit="off")
