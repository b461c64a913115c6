"""How a record stands in the journal: one line of JSON, made quickly and read with care.

The common line is an array: first what a tool's calls have in common, then what one of them has of
its own. Inputs and outputs stand in it as they are, and what can be told from the rest is left out.
Any other record is an object with the names of its fields. Both are read by `decode_line`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple, replace

from callpact.audit.record import (
    MAX_RECORDED_TEXT,
    SMALL_PAYLOAD_BYTES,
    Gate,
    Note,
    Payload,
    Record,
    error_key,
    payload_of,
)
from callpact.call_log import LogLine

_CUT = ("tool", "code", "path", "message", "key", "caller", "client", "server", "via")
_VIA = 4  # What of a call's own a former line had up to the door.
_encoder = msgspec.json.Encoder()


class Head(Struct, frozen=True, array_like=True, gc=False):
    """What is the same for every call of a tool, in the order of its line."""

    tool: str
    kind: str = ""
    version: str | None = None
    contract: str = ""
    policy: str = ""


class _Note(Struct, frozen=True, array_like=True, gc=False):
    """A `Note` in a line."""

    code: str
    path: str = ""
    message: str = ""
    before: str | None = None


class _LogLine(LogLine, frozen=True, array_like=True, gc=False):
    """A `LogLine` in a line."""


class _Line(Struct, frozen=True, array_like=True, gc=False):
    """A call in the order of its line; that of a usual result ends with its output."""

    head: Head
    id: str
    at: int
    ms: float | None
    """None if it was no number."""
    via: str
    client: str
    caller: str | None
    parent: str | None
    count: int | None
    policy: str | None
    """Where the caller asked for a stricter one than the contract's."""
    input: Raw
    output: Raw
    gate: Gate | None = None
    code: str | None = None
    issues: tuple[_Note, ...] = ()
    source: str | None = "local"
    """None if there was no answer."""
    status: int | None = None
    message: str | None = None
    """None if it and the path are those of the first issue."""
    path: str | None = None
    warnings: tuple[_Note, ...] = ()
    changes: tuple[_Note, ...] = ()
    tool_error: bool = False
    server: str = ""
    logs: tuple[_LogLine, ...] = ()


class _FormerHead(Head, frozen=True, array_like=False, gc=False):
    """As an earlier callpact wrote it: with names."""


class _FormerRest(Struct, frozen=True, array_like=True, gc=False):
    """As an earlier callpact wrote it: what is the call's own was an array in the array."""

    own: list[Any]
    source: str
    status: int | None
    input: Raw
    output: Raw
    has_output: bool = True
    gate: str | None = None
    code: str | None = None
    issues: list[Any] = []
    message: str | None = None
    path: str | None = None
    warnings: list[Any] = []
    changes: list[Any] = []
    tool_error: bool = False


_records = msgspec.json.Decoder(Record)
_lines = msgspec.json.Decoder(_Line)
_former_lines = msgspec.json.Decoder(tuple[_FormerHead, _FormerRest])


def encode_head(head: Head) -> bytes:
    """The first part of a line."""
    return _encoder.encode(head)


def encode_line(record: Record) -> bytes:
    """A record as one line of the journal, with its line end."""
    return _encoder.encode(record) + b"\n"


def decode_line(line: bytes) -> Record | None:
    """The record of a line; None for one that was not written to its end, or is no record.

    Hashes that the line leaves out are made here, as a call does not wait for them: those of what a
    store keeps by its hash.
    """
    try:
        if line[:1] == b"[":
            told = _lines.decode(line if line[1:2] == b"[" else _renewed(line))
            record = _joined(told)
            # A text is longer than this only if what is beside the payloads is.
            if len(line) - len(told.input) - len(told.output) > MAX_RECORDED_TEXT:
                return _cut(record)
            return record
        record = _records.decode(line)
        return replace(record, input=_hashed(record.input), output=_hashed(record.output))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _joined(line: _Line) -> Record:
    head, code, path, message = line.head, line.code, line.path, line.message
    issues = _read(line.issues) if line.issues else ()
    if message is None and issues:
        path, message = issues[0].path, issues[0].message
    key = None if code is None else error_key(code, path, issues[0].code if issues else None)
    return Record(
        line.id,
        line.at,
        line.ms or 0.0,
        head.tool,
        head.kind,
        head.version,
        head.contract,
        line.policy or head.policy,
        line.gate,
        code,
        path,
        message,
        key,
        issues,
        _read(line.warnings) if line.warnings else (),
        _read(line.changes) if line.changes else (),
        line.source or "",
        line.status,
        line.server,
        line.caller,
        line.client,
        line.via,
        line.parent,
        line.count,
        _payload(line.input),
        None if line.source is None else _payload(line.output),
        line.tool_error,
        tuple([LogLine(each.level, each.message) for each in line.logs]) if line.logs else (),
    )


def _renewed(line: bytes) -> bytes:
    """A line in the manner before this one, which nested what is now in a row."""
    head, rest = _former_lines.decode(line)
    source = rest.source if rest.has_output else None
    ended = (rest.gate, rest.code, rest.issues, source, rest.status, rest.message, rest.path)
    notes = (rest.warnings, rest.changes, rest.tool_error)
    own = (*rest.own[:_VIA], "", *rest.own[_VIA:])  # It told no client.
    row = (Head(*astuple(head)), *own, rest.input, rest.output, *ended, *notes)
    return _encoder.encode(row)


def _read(notes: tuple[_Note, ...]) -> tuple[Note, ...]:
    return tuple([Note(note.code, note.path, note.message, note.before) for note in notes])


def _cut(record: Record) -> Record:
    """A record without texts that are too long."""

    def cut(text: Any) -> Any:
        return text if text is None else text[:MAX_RECORDED_TEXT]

    def cut_all(notes: tuple[Note, ...]) -> tuple[Note, ...]:
        return tuple(
            Note(cut(note.code), cut(note.path), cut(note.message), note.before) for note in notes
        )

    texts = {name: cut(getattr(record, name)) for name in _CUT}
    notes = {name: cut_all(getattr(record, name)) for name in ("issues", "warnings", "changes")}
    logs = tuple(LogLine(cut(each.level), cut(each.message)) for each in record.logs)
    return replace(record, **texts, **notes, logs=logs)


def _payload(json: bytes | Raw) -> Payload:
    size = len(json)
    return payload_of(json) if size > SMALL_PAYLOAD_BYTES else Payload("", size, str(json, "utf-8"))


def _hashed(payload: Payload | None) -> Payload | None:
    if payload is None or payload.sha256 or payload.json is None:
        return payload
    return _payload(payload.json.encode())
