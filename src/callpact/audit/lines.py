"""How a record stands in the journal: one line of JSON, made quickly and read with care.

The common line is an array of what a tool's calls have in common and of what one of them has of its
own: inputs and outputs stand in it as they are, and what can be told from the rest is left out. Any
other record is an object with the names of its fields. Both are read by `decode_line`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from callpact.audit.record import (
    MAX_RECORDED_TEXT,
    Gate,
    Note,
    Payload,
    Record,
    error_key,
    payload_of,
)

END = b"]\n"
"""How a line ends that begins with a head."""

_encoder = msgspec.json.Encoder()


class Head(Struct, frozen=True, omit_defaults=True):
    """What is the same for every call of a tool."""

    tool: str
    kind: str = ""
    version: str | None = None
    contract: str = ""
    policy: str = ""


class _Note(Struct, frozen=True, array_like=True):
    """A `Note` in a line."""

    code: str
    path: str = ""
    message: str = ""
    before: str | None = None

    def read(self) -> Note:
        return Note(_cut(self.code), _cut(self.path), _cut(self.message), self.before)


class _Own(Struct, frozen=True, array_like=True):
    """What tells a call from others, in the order of its line."""

    id: str
    at: int
    ms: float
    via: str
    caller: str | None
    parent: str | None
    count: int | None
    policy: str | None
    """Where the caller asked for a stricter one than the contract's."""


class _Rest(Struct, frozen=True, array_like=True):
    """A call without its tool, in the order of its line; that of a result ends with its output."""

    own: _Own
    source: str
    status: int | None
    input: Raw
    output: Raw
    has_output: bool = True
    gate: Gate | None = None
    code: str | None = None
    issues: tuple[_Note, ...] = ()
    message: str | None = None
    """None if it and the path are those of the first issue."""
    path: str | None = None
    warnings: tuple[_Note, ...] = ()
    changes: tuple[_Note, ...] = ()
    tool_error: bool = False


_records = msgspec.json.Decoder(Record)
_lines = msgspec.json.Decoder(tuple[Head, _Rest])


def encode_head(head: Head) -> bytes:
    """The beginning of a line: the array of a call's own values follows, and `END`."""
    return b"[" + _encoder.encode(head) + b","


def encode_line(record: Record) -> bytes:
    """A record as one line of the journal, with its line end."""
    return _encoder.encode(record) + b"\n"


def decode_line(line: bytes) -> Record | None:
    """The record of a line; None for one that was not written to its end, or is no record.

    Hashes that the line leaves out are made here: a call does not wait for them.
    """
    try:
        if line[:1] == b"[":
            return _joined(*_lines.decode(line))
        record = _records.decode(line)
        sent, given = record.input, record.output
        if _lacks_hash(sent) or _lacks_hash(given):
            return msgspec.structs.replace(record, input=_hashed(sent), output=_hashed(given))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return record


def _joined(head: Head, rest: _Rest) -> Record:
    own = rest.own
    code, path, message, issues = rest.code, rest.path, rest.message, _read(rest.issues)
    if message is None and issues:
        path, message = issues[0].path, issues[0].message
    key = None if code is None else error_key(code, path, issues[0].code if issues else None)
    return Record(
        own.id,
        own.at,
        own.ms,
        _cut(head.tool),
        head.kind,
        head.version,
        head.contract,
        own.policy or head.policy,
        rest.gate,
        _cut(code),
        _cut(path),
        _cut(message),
        _cut(key),
        issues,
        _read(rest.warnings),
        _read(rest.changes),
        rest.source,
        rest.status,
        _cut(own.caller),
        _cut(own.via),
        own.parent,
        own.count,
        payload_of(bytes(rest.input)),
        payload_of(bytes(rest.output)) if rest.has_output else None,
        rest.tool_error,
    )


def _read(notes: tuple[_Note, ...]) -> tuple[Note, ...]:
    return tuple([note.read() for note in notes])


def _cut(text: Any) -> Any:
    return text if text is None else text[:MAX_RECORDED_TEXT]


def _lacks_hash(payload: Payload | None) -> bool:
    return payload is not None and not payload.sha256


def _hashed(payload: Payload | None) -> Payload | None:
    if payload is None or payload.sha256 or payload.json is None:
        return payload
    return payload_of(payload.json.encode())
