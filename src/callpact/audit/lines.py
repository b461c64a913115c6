"""How a record stands in the journal: one line of JSON, made quickly and read with care.

The common line is an array of what a tool's calls have in common and of what one of them has of its
own: inputs and outputs stand in it as they are, and what can be told from the rest is left out. Any
other record is an object with the names of its fields. Both are read by `decode_line`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

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

_CUT = ("tool", "code", "path", "message", "key", "caller", "via")
_encoder = msgspec.json.Encoder()


class Head(Struct, frozen=True, omit_defaults=True, gc=False):
    """What is the same for every call of a tool."""

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


class _Own(Struct, frozen=True, array_like=True, gc=False):
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


class _Rest(Struct, frozen=True, array_like=True, gc=False):
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
            head, rest = _lines.decode(line)
            record = _joined(head, rest)
            # A text is longer than this only if what is beside the payloads is.
            if len(line) - len(rest.input) - len(rest.output) > MAX_RECORDED_TEXT:
                return _cut(record)
            return record
        record = _records.decode(line)
        sent, given = record.input, record.output
        if _lacks_hash(sent) or _lacks_hash(given):
            return replace(record, input=_hashed(sent), output=_hashed(given))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return record


def _joined(head: Head, rest: _Rest) -> Record:
    own = rest.own
    code, path, message = rest.code, rest.path, rest.message
    issues = _read(rest.issues) if rest.issues else ()
    if message is None and issues:
        path, message = issues[0].path, issues[0].message
    key = None if code is None else error_key(code, path, issues[0].code if issues else None)
    return Record(
        own.id,
        own.at,
        own.ms,
        head.tool,
        head.kind,
        head.version,
        head.contract,
        own.policy or head.policy,
        rest.gate,
        code,
        path,
        message,
        key,
        issues,
        _read(rest.warnings) if rest.warnings else (),
        _read(rest.changes) if rest.changes else (),
        rest.source,
        rest.status,
        own.caller,
        own.via,
        own.parent,
        own.count,
        payload_of(rest.input),
        payload_of(rest.output) if rest.has_output else None,
        rest.tool_error,
    )


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
    return replace(record, **texts, **notes)


def _lacks_hash(payload: Payload | None) -> bool:
    return payload is not None and not payload.sha256


def _hashed(payload: Payload | None) -> Payload | None:
    if payload is None or payload.sha256 or payload.json is None:
        return payload
    return payload_of(payload.json.encode())
