"""One record of the audit log: a call, its outcome, and its input and output.

Records hold no secrets: `recorder.py` masks known ones before it makes a record. Inputs and
outputs are stored beside records by their hash, so that equal values are stored once.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from msgspec import Raw, Struct

from callpact.context import LogLine
from callpact.errors import Issue

MAX_PAYLOAD_BYTES = 64 << 10
"""Size of an input or output that is kept with its record; a larger one is cut and flagged."""
MAX_RECORDED_ISSUES = 50
"""Issues, warnings and changes of one call that its record keeps."""
MAX_RECORDED_BEFORE = 300
"""Characters of a replaced value that the record of a change keeps."""
MAX_RECORDED_TEXT = 1_000
"""Characters of a message in a record."""
MAX_RECORDED_TRACE = 16_000
"""Characters of the traceback in a record: its end, by whole parts."""
TRACE_LEVEL = "exception"
"""The level of the log line that holds a traceback."""

Gate = Literal["find", "access", "input", "handler", "output"]
_INDEX = re.compile(r"/\d+(?=/|$)")


REJECTING: frozenset[str] = frozenset({"find", "access", "input"})
"""The gates that stop a call before its handler runs."""


class Payload(Struct, frozen=True, omit_defaults=True, gc=False):
    """An input or output: the hash of its masked JSON, its size, and the JSON itself if it is kept."""

    sha256: str
    """Empty until the store computes it."""
    size: int
    """Bytes of the whole JSON."""
    json: str | None = None
    """None where only the hash is kept."""
    is_cut: bool = False
    """True if `json` is only the start."""


class Note(Struct, frozen=True, omit_defaults=True, gc=False):
    """An issue, a warning or a change: its rule or action, its place and its message."""

    code: str
    path: str = ""
    message: str = ""
    before: str | None = None
    """Of a change: the JSON of the replaced value, if it is short."""


class Record(Struct, frozen=True, omit_defaults=True, gc=False):
    """One call with its outcome. Records are append-only and never changed."""

    id: str
    at: int
    """When the call began, in epoch milliseconds."""
    ms: float
    """The duration of the call."""
    tool: str
    kind: str = ""
    """query, mutation, subscription or interactive; empty for an unknown tool."""
    version: str | None = None
    contract: str = ""
    """The hash of the tool's contract."""
    policy: str = ""
    gate: Gate | None = None
    """Where the call was stopped; None for a call with a result."""
    code: str | None = None
    path: str | None = None
    message: str | None = None
    key: str | None = None
    """The cause without values of the call: code, path with `*` for indexes, rule.

    Of an unexpected exception: code, `module:function` that raised it, its type.
    """
    issues: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()
    changes: tuple[Note, ...] = ()
    source: str = ""
    """The origin of the result: local, http or mcp."""
    status: int | None = None
    """The status of an HTTP upstream."""
    server: str = ""
    """The name and version that an MCP server reports."""
    caller: str | None = None
    client: str = ""
    """The calling program, by its own name: `claude-code 2.1.0`."""
    via: str = ""
    """The door: `mcp 2026-07-28`, `http`, `cli`; empty for code of the same process."""
    parent: str | None = None
    count: int | None = None
    """The number of results of a subscription."""
    input: Payload | None = None
    output: Payload | None = None
    tool_error: bool = False
    """True if the tool reported an error (`isError` over MCP); its output is not checked."""
    logs: tuple[LogLine, ...] = ()
    """The first lines that the tool logged, and the traceback of an unexpected exception."""

    @property
    def namespace(self) -> str:
        """The first part of the tool's id."""
        return self.tool.partition(".")[0]

    @property
    def trace(self) -> str | None:
        """The traceback of an unexpected exception."""
        found = (line.message for line in self.logs if line.level == TRACE_LEVEL)
        return next(found, None)

    @property
    def is_error(self) -> bool:
        """True if the call has no result."""
        return self.gate is not None

    @property
    def is_rejected(self) -> bool:
        """True if the handler did not run: the tool is unknown, or the call was refused."""
        return self.gate in REJECTING


def error_key(code: str, path: str | None, rule: str | None) -> str:
    """The key of equal causes: `schema_validation_failed:/items/*/price:type`."""
    return f"{code}:{place(path or '')}:{rule or ''}"


def place(path: str) -> str:
    """A JSON Pointer with `*` for the indexes of arrays, where only the pointer is known."""
    return _INDEX.sub("/*", path)


def note_of(issue: Issue) -> Note:
    """An issue as a note of a record."""
    return Note(issue.code, issue.path, issue.message[:MAX_RECORDED_TEXT])


def payload_of(json: bytes | Raw, *, hashes_only: bool = False) -> Payload:
    """The payload of a masked JSON text: cut if it is too large, or only its hash."""
    sha256, size = hashlib.sha256(json).hexdigest(), len(json)
    if hashes_only:
        return Payload(sha256, size)
    if size <= MAX_PAYLOAD_BYTES:
        return Payload(sha256, size, str(json, "utf-8"))
    begin = bytes(json)[:MAX_PAYLOAD_BYTES].decode("utf-8", "ignore")
    return Payload(sha256, size, begin, is_cut=True)
