"""One record of the audit log: what a call was, what became of it, and with what.

Records hold no secret: `recorder.py` masks what is known as one before a record is made. What was
sent and given back is kept beside a record, by its hash, so that equal values are kept once.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from msgspec import Raw, Struct

from callpact.context import LogLine
from callpact.errors import Issue

MAX_PAYLOAD_BYTES = 64 << 10
"""Size of an input or output that is kept with its record; what is larger is cut and flagged."""
MAX_RECORDED_ISSUES = 50
"""Issues, warnings and changes of one call that its record tells."""
MAX_RECORDED_BEFORE = 300
"""Characters of what a change replaced that its record tells."""
MAX_RECORDED_TEXT = 1_000
"""Characters of a message in a record."""

Gate = Literal["find", "access", "input", "handler", "output"]
_INDEX = re.compile(r"/\d+(?=/|$)")


REJECTING: frozenset[str] = frozenset({"find", "access", "input"})
"""Where a call is stopped before anything is run."""


class Payload(Struct, frozen=True, omit_defaults=True, gc=False):
    """An input or output: the hash of its masked JSON, its size, and the JSON itself if it is kept."""

    sha256: str
    """Empty on the way to a store, where nothing asks for it."""
    size: int
    """Bytes of the whole JSON."""
    json: str | None = None
    """None where only the hash is kept."""
    is_cut: bool = False
    """True if `json` is only the beginning."""


class Note(Struct, frozen=True, omit_defaults=True, gc=False):
    """An issue, a warning or a change: its rule or action, where, and in words."""

    code: str
    path: str = ""
    message: str = ""
    before: str | None = None
    """Of a change: the JSON of what stood there, if it is short."""


class Record(Struct, frozen=True, omit_defaults=True, gc=False):
    """One call, whatever became of it. Append-only: it is never changed."""

    id: str
    at: int
    """When it began, in epoch milliseconds."""
    ms: float
    """How long it took."""
    tool: str
    kind: str = ""
    """query, mutation, subscription or interactive; empty for a tool that is not there."""
    version: str | None = None
    contract: str = ""
    """The hash of the tool's contract."""
    policy: str = ""
    gate: Gate | None = None
    """Where it was stopped; None for a call that gave a result."""
    code: str | None = None
    path: str | None = None
    message: str | None = None
    key: str | None = None
    """The cause without what differs from call to call: code, path with `*` for indexes, rule."""
    issues: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()
    changes: tuple[Note, ...] = ()
    source: str = ""
    """local, http or mcp: where the result came from."""
    status: int | None = None
    """The status of an HTTP upstream."""
    server: str = ""
    """The name of an MCP server that answered, as it says itself."""
    caller: str | None = None
    client: str = ""
    """The program that called, as it names itself: `claude-code 2.1.0`."""
    via: str = ""
    """The door: `mcp 2026-07-28`, `http`, `cli`; empty for code of the same process."""
    parent: str | None = None
    count: int | None = None
    """How many results a subscription gave."""
    input: Payload | None = None
    output: Payload | None = None
    tool_error: bool = False
    """True if the tool itself said that it failed (`isError` over MCP); its answer is not judged."""
    logs: tuple[LogLine, ...] = ()
    """What the tool logged meanwhile, the first lines."""

    @property
    def namespace(self) -> str:
        """The first part of the tool's id."""
        return self.tool.partition(".")[0]

    @property
    def is_error(self) -> bool:
        """True if the call gave no result."""
        return self.gate is not None

    @property
    def is_rejected(self) -> bool:
        """True if nothing was run: there is no such tool, or it was refused."""
        return self.gate in REJECTING


def error_key(code: str, path: str | None, rule: str | None) -> str:
    """What equal causes have in common: `schema_validation_failed:/items/*/price:type`."""
    return f"{code}:{place(path or '')}:{rule or ''}"


def place(path: str) -> str:
    """A JSON Pointer with `*` for the indexes of arrays, where only the pointer is known."""
    return _INDEX.sub("/*", path)


def note_of(issue: Issue) -> Note:
    """An issue as a record tells it."""
    return Note(issue.code, issue.path, issue.message[:MAX_RECORDED_TEXT])


def payload_of(json: bytes | Raw, *, hashes_only: bool = False) -> Payload:
    """What is kept of a masked JSON text."""
    sha256, size = hashlib.sha256(json).hexdigest(), len(json)
    if hashes_only:
        return Payload(sha256, size)
    if size <= MAX_PAYLOAD_BYTES:
        return Payload(sha256, size, str(json, "utf-8"))
    begin = bytes(json)[:MAX_PAYLOAD_BYTES].decode("utf-8", "ignore")
    return Payload(sha256, size, begin, is_cut=True)
