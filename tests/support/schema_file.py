"""A FlowMCP file that keeps every rule of the seeds, ways to break it, to check it and to call it.

Not a test: the contract tests of seeds 000 and 002 load it.
"""

from __future__ import annotations

import asyncio
import copy
import json

import pytest

from callpact import CallError, Runtime, from_flowmcp
from callpact.schema import schema_hash
from callpact.sources import check_text
from callpact.sources.flowmcp.check.file_check import read_list
from callpact.testing import StubTransport
from callpact.wire import flowmcp

GONE = object()
PROFILES = ("strict", "compat")
HANDLERS = "export const handlers = ( { sharedLists, libraries } ) => ({ %s })\n"
KEY = "a-secret-of-16-ch"
FILE = "TokenPrices.mjs"
TOOL = "/tools/getTokenPrice"
META = {
    "isReadOnly": True,
    "isConcurrencySafe": True,
    "isDestructive": False,
    "searchHint": "token price",
    "aliases": [],
    "alwaysLoad": False,
}
OUTPUT = {
    "mimeType": "application/json",
    "schema": {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "Token identifier"},
            "price": {"type": "number", "description": "Current price in USD"},
        },
    },
}
GUIDE = {"source": "markdown", "origin": "inline", "name": "guide.md", "description": "A guide"}


def parameter(key, value="{{USER_PARAM}}", location="query", primitive="string()", options=()):
    position = {"key": key, "value": value, "location": location}
    return {"position": position, "z": {"primitive": primitive, "options": list(options)}}


def tool(**fields):
    """A tool with one required text; `fields` stand beside or instead of what it has."""
    tests = [{"_description": f"The price of {key}", "id": key} for key in ("btc", "eth", "doge")]
    return {
        "method": "GET",
        "path": "/price/{{id}}",
        "description": "Get the current price of a token",
        "parameters": [parameter("id", location="insert")],
        "output": OUTPUT,
        "tests": tests,
        **fields,
    }


def hashed(main):
    return {**main, "schemaHash": schema_hash(main)}


GOOD = hashed(
    {
        "namespace": "token-prices",
        "name": "TokenPrices",
        "description": "Current prices of tokens.",
        "version": "4.0.0",
        "schemaVersion": "1.0.0",
        "root": "https://api.example.com/v1",
        "tools": {"getTokenPrice": tool()},
        "meta": META,
    }
)
LIST = {
    "meta": {
        "name": "evmChains",
        "version": "1.0.0",
        "description": "Chains",
        "fields": [
            {"key": "alias", "type": "string", "description": "Our name"},
            {"key": "etherscanAlias", "type": "string", "optional": True, "description": "Theirs"},
        ],
    },
    "entries": [
        {"alias": "ETHEREUM", "etherscanAlias": "eth"},
        {"alias": "POLYGON", "etherscanAlias": "matic"},
        {"alias": "TESTNET", "etherscanAlias": None},
        {"alias": "PRIVATE"},
    ],
}


def changed(*changes, main=GOOD):
    """`main` with values at JSON Pointers replaced, or left out, and its hash made anew."""
    made = copy.deepcopy(main)
    for pointer, value in changes:
        *way, last = pointer.removeprefix("/").split("/")
        place = made
        for step in way:
            place = place[int(step) if isinstance(place, list) else step]
        last = int(last) if isinstance(place, list) else last
        if value is GONE:
            del place[last]
        else:
            place[last] = copy.deepcopy(value)
    if "schemaHash" not in made or any(pointer == "/schemaHash" for pointer, _ in changes):
        return made
    return hashed(made)


def at(pointer, value):
    """The good file with one value replaced."""
    return changed((pointer, value))


def with_tool(**fields):
    return changed((TOOL, tool(**fields)))


def exported(value, name="main", code=""):
    return f"export const {name} = {json.dumps(value, indent=4)}\n{code}"


def known_lists(*lists):
    read = [read_list(exported(item, "list"), f"{item['meta']['name']}.mjs") for item in lists]
    return {item.list.name: item.list for item in read}


def checked(main, profile="strict", *, file=FILE, lists=(LIST,), libraries=(), code=""):
    """What checking says about `main`: data, or the text of a whole file."""
    text = main if isinstance(main, str) else exported(main, code=code)
    known = known_lists(*lists)
    return check_text(text, file=file, profile=profile, lists=known, libraries=libraries)


def codes(main, severity="error", profile="strict", **given):
    """The codes that checking gives, by severity, each with its place."""
    findings = checked(main, profile, **given).findings
    return {(f.code, f.path) for f in findings if f.severity == severity}


def loads(main, profile="strict", **given):
    """True if a file is loaded: its errors forbid it."""
    return checked(main, profile, **given).manifest is not None


def breaks(main, code, path, compat="error", **given):
    """True if one rule is broken: an error under strict, and what the profile compat makes of it."""
    assert codes(main, **given) == {(code, path)}
    assert (code, path) in codes(main, compat, "compat", **given)
    assert loads(main, "compat", **given) == (compat == "warning")
    return True


def answering(body, status=200, kind="application/json"):
    """A transport with one answer for everything."""
    return StubTransport(lambda _: {"status": status, "contentType": kind, "body": body})


class Caller:
    """The tools of one file behind a transport that answers always the same."""

    def __init__(self, folder, main=GOOD, answer=None, *, profile="strict", code="", **given):
        (folder / "_lists").mkdir(exist_ok=True)
        (folder / "_lists" / "evm-chains.mjs").write_text(exported(LIST, "list"), "utf-8")
        path = folder / given.pop("file", FILE)
        text = main if isinstance(main, str) else exported(main, code=code)
        path.write_text(text, "utf-8")
        transport = answer if isinstance(answer, StubTransport) else answering(json.dumps(answer))
        self.tools = from_flowmcp(path, profile=profile, transport=transport, **given)
        self.requests = transport.requests

    @property
    def tool(self):
        (only,) = self.tools
        return only

    def call(self, arguments=None, name=None):
        """The envelope of a call."""
        given = {"id": "btc"} if arguments is None else arguments
        return asyncio.run(Runtime(self.tools).execute(name or self.tool.id, given))

    def rendered(self, arguments=None, name=None):
        """What FlowMCP clients read: of a result or of an error."""
        tool_name = (name or self.tool.id).rpartition(".")[2]
        try:
            return flowmcp.encode_result(self.call(arguments, name))
        except CallError as error:
            return flowmcp.encode_error(error, tool_name)


def rule(key, *values):
    """A case of a parametrized test that proves a rule."""
    return pytest.param(*values, marks=pytest.mark.requirement(key), id=key)
