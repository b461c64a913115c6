"""Calls, and the lines that a recorder writes of them, for the tests of recorders."""

import asyncio

from callpact import CallError, Contract, Identity, Runtime, Tool
from callpact.audit import Recorder
from callpact.audit.journal.lines import decode_line
from callpact.audit.journal.segments import Journal, segments
from callpact.envelope import (
    local_envelope,
)
from callpact.observers import CallFinished

KEY = 'sk-Zq7"\\é7Lw9Xe'
"""A secret that JSON, Python and URLs each write in their own way."""
PASSWORD = "correct-horse-battery"
LIMIT = {"type": "object", "properties": {"limit": {"type": "integer", "maximum": 50}}}


async def echo(arguments, _context):
    return arguments


def tool(handler=echo, **more):
    contract = more.pop("contract", Contract())
    return Tool(id="shop.search", description="", contract=contract, handler=handler, **more)


def finished(arguments=None, data=None, **more):
    envelope = more.pop("envelope", local_envelope(data, "shop.search"))
    more = {"tool": tool(), "via": "http", **more}
    return CallFinished("call-1", "shop.search", arguments, 1_000, 0.25, envelope, **more)


def raw(folder):
    return b"".join(path.read_bytes() for path in segments(folder))


def written(folder):
    lines = raw(folder).split(b"\n")
    assert lines.pop() == b""
    records = [decode_line(line) for line in lines]
    assert None not in records
    return records


def recorded(folder, *events, **options):
    journal = Journal(folder)
    recorder = Recorder(journal, **options)
    for event in events:
        recorder(event)
    journal.close()
    assert journal.lost == 0
    records = written(folder)
    assert len(records) == len(events)
    return records


def call(folder, tools, calls, **options):
    """Run calls under a runtime; their records."""
    journal = Journal(folder)
    runtime = Runtime(tools, observers=[Recorder(journal, **options)])

    async def main():
        for each in calls:
            try:
                await runtime.call(each, Identity("ann"))
            except CallError:
                continue

    asyncio.run(main())
    journal.close()
    assert runtime.observer_failures == 0
    return written(folder)


class Foreign:
    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return f"<{'.' * 190}{self.text}>"


SECRET_INPUT = {
    "type": "object",
    "properties": {
        "user": {"type": "string"},
        "login": {
            "type": "object",
            "properties": {"password": {"type": "string", "format": "password"}},
        },
        "token": {"$ref": "#/$defs/token"},
    },
    "$defs": {"token": {"writeOnly": True}},
}
