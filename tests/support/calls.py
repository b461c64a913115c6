"""FlowMCP files written for a test, loaded and called for real, over a transport that is none.

Not a test: the tests of this folder load it.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from callpact import from_flowmcp
from callpact.errors import CallError
from callpact.runtime import Runtime
from callpact.testing import StubTransport
from callpact.wire import flowmcp

KEY = "s3cr3t/Ke y+42=é"
"""A secret that every encoding writes in another way."""


def parameter(
    key, primitive="string()", *options, value="{{USER_PARAM}}", location="query", **more
):
    position = {"key": key, "value": value, "location": location}
    return {"position": position, "z": {"primitive": primitive, "options": list(options)}, **more}


def tool(*parameters, **fields):
    """A GET of `/it`; `fields` stand beside or instead of what it has."""
    return {
        "method": "GET",
        "path": "/it",
        "description": "Does it",
        "parameters": list(parameters),
        "tests": [{"_description": "Once"}],
        **fields,
    }


def main(tools=None, **fields):
    return {
        "namespace": "shop",
        "name": "Shop",
        "description": "A shop",
        "version": "4.0.0",
        "schemaVersion": "1.0.0",
        "root": "https://api.example.com",
        "tools": {"getIt": tool()} if tools is None else tools,
        **fields,
    }


def exported(data, name="main", code=""):
    return f"export const {name} = {json.dumps(data, indent=2, ensure_ascii=False)}\n{code}"


def a_list(name="colours", version="1.0.0", entries=(), fields=(), **meta):
    """A shared list; its fields are texts unless they are given."""
    keys = dict.fromkeys(key for entry in entries for key in entry)
    declared = [
        {"key": key, "type": "string", "description": key, "optional": True} for key in keys
    ]
    about = {"name": name, "version": version, "description": name, **meta}
    return {"meta": {**about, "fields": list(fields) or declared}, "entries": list(entries)}


def answered(body="{}", status=200, kind="application/json", **headers):
    """What the upstream answers to everything."""
    text = body if isinstance(body, str | bytes) else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = {"status": status, "body": text, "headers": named}
    if kind is not None:
        answer["contentType"] = kind
    return lambda _request: answer


class Shop:
    """One file in a folder of its own, loaded; `answer` is what its upstream says."""

    def __init__(self, folder, data, *, answer=None, code="", file="Shop.mjs", lists=(), **given):
        home = folder / "shop"
        home.mkdir(exist_ok=True)
        (home / file).write_text(exported(data, code=code), "utf-8")
        for item in lists:
            (folder / "_lists").mkdir(exist_ok=True)
            name = f"{item['meta']['name']}.mjs"
            (folder / "_lists" / name).write_text(exported(item, "list"), "utf-8")
        self.transport = StubTransport(answer or answered())
        given = {"secrets": {"KEY": KEY}, "transport": self.transport} | given
        self.tools = from_flowmcp(folder, **given)
        self.report = self.tools.report
        self.events = []
        self.runtime = Runtime(self.tools, observers=[self.events.append])

    @property
    def errors(self):
        return [found for found in self.report if found.severity == "error"]

    @property
    def tool(self):
        """The one tool of the file."""
        assert not self.errors, self.errors
        (only,) = self.tools
        return only

    @property
    def schema(self):
        """What the caller may give."""
        return self.tool.contract.input

    def call(self, arguments=None, name=None, **given):
        return asyncio.run(self.runtime.execute(name or self.tool.id, arguments or {}, **given))

    def failure(self, arguments=None, name=None, **given):
        with pytest.raises(CallError) as caught:
            self.call(arguments, name, **given)
        return caught.value

    def rejected(self, arguments):
        """The code and the place of every issue of a call that nothing was sent for."""
        sent = len(self.transport.requests)
        error = self.failure(arguments)
        assert error.code == "schema_validation_failed"
        assert len(self.transport.requests) == sent
        return {(issue.code, issue.path) for issue in error.issues}

    def sent(self, arguments=None):
        """The request that a call sends."""
        self.call(arguments)
        return self.transport.requests[-1]

    def path(self, arguments=None):
        """What comes behind the host."""
        return self.sent(arguments).url.removeprefix("https://api.example.com")

    def body(self, arguments=None):
        return json.loads(self.sent(arguments).body)

    def rendered(self, arguments=None):
        """The call in FlowMCP's form."""
        try:
            return flowmcp.encode_result(self.call(arguments))
        except CallError as error:
            return flowmcp.encode_error(error, "getIt")


def shown(shop):
    """Everything that anybody can see of the calls of a shop, as one text."""
    texts = []
    for event in shop.events:
        if event.error is not None:
            error = event.error
            texts += [str(error), repr(error), repr(error.details), repr(error.issues)]
            texts.append(json.dumps(flowmcp.encode_error(error, "getIt")))
        if event.envelope is not None:
            texts += [repr(event.envelope), repr(event.envelope.to_wire())]
            texts.append(json.dumps(flowmcp.encode_result(event.envelope)))
    return "\n".join(texts)


def pre(body):
    """A `preRequest` with this body."""
    return f"preRequest: async ( {{ struct, payload }} ) => {{ {body} }}"


def instead(body):
    """An `executeRequest` with this body."""
    return f"executeRequest: async ( {{ struct, payload }} ) => {{ {body} }}"


def post(body):
    """A `postRequest` with this body."""
    return f"postRequest: async ( {{ response, struct, payload }} ) => {{ {body} }}"
