"""The line format of the journal: one record as one line of JSON, encoded fast, decoded strictly.

The common line is an array: first the values that all calls of a tool share, then those of one
call. Inputs and outputs are embedded as they are, and fields that can be derived are left out. Any
other record is an object with the names of its fields. `decode_line` reads both.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from callpact.audit.record import (
    MAX_PAYLOAD_BYTES,
    MAX_RECORDED_TEXT,
    Gate,
    Note,
    Payload,
    Record,
    error_key,
    payload_of,
)
from callpact.context import LogLine

_CUT = ("tool", "code", "path", "message", "key", "caller", "client", "server", "via")
_encoder = msgspec.json.Encoder()


class LineHead(Struct, frozen=True, array_like=True, gc=False):
    """The values that all calls of a tool share, in the order of its line."""

    tool: str
    kind: str = ""
    version: str | None = None
    contract: str = ""
    policy: str = ""


class _Note(Struct, frozen=True, array_like=True, gc=False):
    """A `Note` as an array."""

    code: str
    path: str = ""
    message: str = ""
    before: str | None = None


class _LogLine(LogLine, frozen=True, array_like=True, gc=False):
    """A `LogLine` as an array."""


class _Line(Struct, frozen=True, array_like=True, gc=False):
    """A call in the order of its line; the line of a plain result ends with its output."""

    head: LineHead
    id: str
    at: int
    ms: float | None
    """None if it was not a finite number."""
    via: str
    client: str
    caller: str | None
    parent: str | None
    count: int | None
    policy: str | None
    """The caller's policy, where it is stricter than the contract's."""
    input: Raw
    output: Raw
    gate: Gate | None = None
    code: str | None = None
    issues: tuple[_Note, ...] = ()
    source: str | None = "local"
    """None without a result."""
    status: int | None = None
    message: str | None = None
    """None if it and the path equal those of the first issue."""
    path: str | None = None
    warnings: tuple[_Note, ...] = ()
    changes: tuple[_Note, ...] = ()
    tool_error: bool = False
    server: str = ""
    logs: tuple[_LogLine, ...] = ()


_records = msgspec.json.Decoder(Record)
_lines = msgspec.json.Decoder(_Line)


def encode_head(head: LineHead) -> bytes:
    """The first part of a line."""
    return _encoder.encode(head)


def encode_line(record: Record) -> bytes:
    """A record as one line of the journal, with its line end."""
    return _encoder.encode(record) + b"\n"


def decode_line(line: bytes) -> Record | None:
    """The record of a line; None for a line that is incomplete or not a record."""
    try:
        if line[:1] == b"[":
            parsed = _lines.decode(line)
            record = _joined(parsed)
            # A text can be too long only if the line without its payloads is.
            if len(line) - len(parsed.input) - len(parsed.output) > MAX_RECORDED_TEXT:
                return _cut(record)
            return record
        return _records.decode(line)
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


def _read(notes: tuple[_Note, ...]) -> tuple[Note, ...]:
    return tuple([Note(note.code, note.path, note.message, note.before) for note in notes])


def _cut(record: Record) -> Record:
    """A record with its texts cut to `MAX_RECORDED_TEXT`."""

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
    """A payload, cut if it is too large; the store computes the hash of a whole one."""
    if len(json) > MAX_PAYLOAD_BYTES:
        return payload_of(json)
    return Payload("", len(json), str(json, "utf-8"))
