"""The page at `/`: what it shows to a caller, and what to a stranger."""

from __future__ import annotations

import re
from html import unescape

import pytest

import raw
from callpact.catalog import Catalog
from callpact.runtime import Runtime
from callpact.serve import Authentication, Door, RestDoor
from callpact.serve.rest.landing_page import encode_landing
from callpact.tool import Contract, Tool
from serving import CI, ROOT, TOKENS, Serving, bearer

NAME, VERSION = "Tea & <b>Shop</b>", "7.3.1"


async def answer(arguments, context):
    return 1


def made(name, **more):
    return Tool(id=f"shop.{name}", description=name, contract=Contract(), handler=answer, **more)


def serving(authentication=None, path="/mcp", title=NAME, **given):
    tools = [made("price"), made("order"), made("admin", access=["admin"])]
    door = Door(Runtime(Catalog(tools)))
    has_tokens = authentication is not None
    rest = RestDoor(door.calls, title=title, version=VERSION, has_tokens=has_tokens, mcp_path=path)
    return Serving(authentication, door, rest=rest, path=path, **given)


def landing(line, **headers):
    return line.ask(method="GET", path="/", Content_Type=None, **headers)


def commands(page):
    return [unescape(text) for text in re.findall("<pre>(.*?)</pre>", page.body.decode())]


def test_the_page_names_the_server_its_address_and_how_to_add_it():
    with serving() as served, served.connect() as line:
        page = landing(line, Host=f"localhost:{served.port}")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    text = page.body.decode()
    assert "<h1>Tea &amp; &lt;b&gt;Shop&lt;/b&gt;</h1>" in text
    assert VERSION in text
    assert "2 tools for AI agents" in text
    address = f"http://localhost:{served.port}/mcp"
    assert commands(page) == [
        address,
        f"callpact install claude-code --name Tea-b-Shop-b --http {address}",
        f"claude mcp add --transport http Tea-b-Shop-b {address}",
    ]
    assert re.findall(r'href="(.*?)"', text) == ["docs", "openapi.json"]


def test_it_has_the_headers_of_the_docs_pages_and_loads_nothing():
    with serving() as served, served.connect() as line:
        page = landing(line)
        docs = line.ask(method="GET", path="/docs", Content_Type=None)
    apart = {"content-length", "date"}
    kept = [
        {name: one.headers[name] for name in one.headers.keys() - apart} for one in (page, docs)
    ]
    assert kept[0] == kept[1]
    assert kept[0]["content-security-policy"].startswith("default-src 'none'; style-src 'sha")
    assert not re.search(rb"<script|<img|<link|src=|@import|url\(", page.body)


def test_a_stranger_learns_nothing_that_needs_a_token():
    with serving(Authentication(TOKENS)) as served, served.connect() as line:
        page = landing(line)
        assert page.status == 200
        text = page.body.decode()
        for secret in ("Tea", "Shop", VERSION, "2 tools", "3 tools", "shop."):
            assert secret not in text
        assert "Every request needs a token" in text
        address, install, own = commands(page)
        assert address == "http://127.0.0.1:1/mcp"
        assert install.endswith(" --token MCP_TOKEN")
        assert own.endswith(' --header "Authorization: Bearer $MCP_TOKEN"')


def test_a_caller_sees_the_number_of_its_own_tools():
    with serving(Authentication(TOKENS)) as served, served.connect() as line:
        assert b"2 tools" in landing(line, **bearer(CI)).body
        page = landing(line, **bearer(ROOT))
        assert b"3 tools" in page.body
        assert VERSION.encode() in page.body


def test_a_wrong_token_is_refused():
    with serving(Authentication(TOKENS)) as served, served.connect() as line:
        assert landing(line, **bearer("wrong-0123456789")).status == 401
        assert landing(line, Authorization="Basic Og==").status == 401


def test_the_checks_of_hosts_and_origins_hold_here_too():
    with serving() as served, served.connect() as line:
        assert landing(line, Host="evil.example").status == 403
        assert landing(line, Origin="https://evil.example").status == 403


def test_a_client_that_speaks_mcp_here_is_told_the_path():
    with serving(path="/agents/mcp") as served, served.connect() as line:
        answer = line.ask(raw.message(), path="/", **raw.routed())
        assert answer.status == 404
        assert answer.json["error"]["message"].endswith("messages of MCP go to /agents/mcp")


def test_an_address_is_text_on_the_page_and_one_word_for_the_shell():
    evil = "http://localhost:<img/src=x>;$(x)/mcp"  # Other servers than ours may pass it on.
    page = encode_landing(evil, None, has_tokens=False).decode()
    assert "<img" not in page
    assert f"--http '{evil}'" in unescape(page)


def test_behind_a_proxy_that_ends_tls_the_address_is_https():
    with serving() as served, served.connect() as line:
        page = landing(line, X_Forwarded_Proto="https", Host="localhost")
    assert commands(page)[0] == "https://localhost/mcp"


def test_mcp_at_the_root_comes_first():
    with serving(path="/") as served, served.connect() as line:
        assert line.ask(raw.message(), path="/", **raw.routed()).status == 200
        assert b"<h1>" not in landing(line).body


@pytest.mark.parametrize(("title", "label"), [("***", "callpact"), ("my shop", "my-shop")])
def test_a_name_becomes_one_that_every_client_takes(title, label):
    with serving(title=title) as served, served.connect() as line:
        assert f"--name {label} " in commands(landing(line))[1]
