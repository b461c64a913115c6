"""A record as one row of a table, for both engines, and back.

Payloads are texts, so their bytes and hashes stay exact; the hash of a whole one is computed when
it is read. `places` repeats issues, warnings and changes as `kind␟code␟path` with `*` for indexes,
separated by `␞`, so that they can be counted without parsing JSON in SQL.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from callpact.audit.record import Note, Payload, Record, payload_of, place
from callpact.context import LogLine

SEPARATOR = "\x1e"
_PART = "\x1f"
_NOTES = {"issues": "issue", "warnings": "warning", "changes": "change"}
_MAX_INTEGER = (1 << 63) - 1
_encode = msgspec.json.Encoder().encode
_read_notes = msgspec.json.Decoder(tuple[Note, ...]).decode
_read_logs = msgspec.json.Decoder(tuple[LogLine, ...]).decode
_read_kept = msgspec.json.Decoder(tuple[str, int, bool]).decode


class Row(Struct, omit_defaults=True, gc=False):
    """The columns of the table `calls`, in their order."""

    at: int
    id: str
    ms: float
    tool: str
    kind: str
    version: str | None
    contract: str
    policy: str
    gate: str | None
    code: str | None
    path: str | None
    message: str | None
    key: str | None
    issues: str | None
    warnings: str | None
    changes: str | None
    places: str | None
    source: str
    status: int | None
    server: str
    caller: str | None
    client: str
    via: str
    parent: str | None
    count: int | None
    input: str | None
    input_kept: str | None
    output: str | None
    output_kept: str | None
    tool_error: bool
    logs: str | None


NAMES: tuple[str, ...] = Row.__struct_fields__
_KINDS = {"int": "bigint", "float": "double", "bool": "boolean", "str": "text"}
TYPES: dict[str, str] = {
    name: _KINDS[str(kind).partition(" ")[0]] for name, kind in Row.__annotations__.items()
}
"""The type of each column; the engines spell `double` differently."""
COLUMNS = ", ".join(f'"{name}"' for name in NAMES)


def row_of(record: Record) -> Row:
    """A record as a row.

    Raises:
        OverflowError: a number does not fit into 64 bits.
    """
    for number in (record.at, record.status, record.count):
        if number is not None and not -_MAX_INTEGER <= number <= _MAX_INTEGER:
            raise OverflowError(f"the record {record.id:.50} has a number beyond 64 bits")
    notes = {name: getattr(record, name) for name in _NOTES}
    has_notes = any(notes.values())
    given, given_kept = _payload_cells(record.input)
    output, output_kept = _payload_cells(record.output)
    return Row(
        record.at,
        record.id,
        record.ms if math.isfinite(record.ms) else 0.0,
        record.tool,
        record.kind,
        record.version,
        record.contract,
        record.policy,
        record.gate,
        record.code,
        record.path,
        record.message,
        record.key,
        _text(record.issues),
        _text(record.warnings),
        _text(record.changes),
        SEPARATOR.join(dict.fromkeys(_places(notes))) if has_notes else None,
        record.source,
        record.status,
        record.server,
        record.caller,
        record.client,
        record.via,
        record.parent,
        record.count,
        given,
        given_kept,
        output,
        output_kept,
        record.tool_error,
        _text(record.logs),
    )


def record_of(row: Sequence[Any], *, with_payloads: bool) -> Record:
    """The record of a row."""
    fields = dict(zip(NAMES, row, strict=True))
    del fields["places"]
    for name in ("input", "output"):
        fields[name] = _payload(
            fields[name], fields.pop(f"{name}_kept"), with_payloads=with_payloads
        )
    for name in _NOTES:
        fields[name] = () if fields[name] is None else _read_notes(fields[name])
    fields["logs"] = () if fields["logs"] is None else _read_logs(fields["logs"])
    return Record(**fields)


def parts_of_place(text: str) -> tuple[str, str, str]:
    """Kind, code and path of one of the `places`."""
    kind, _, rest = text.partition(_PART)
    code, _, path = rest.partition(_PART)
    return kind, code, path


def _places(notes: dict[str, tuple[Note, ...]]) -> Iterator[str]:
    for name, kind in _NOTES.items():
        for note in notes[name]:
            parts = (kind, note.code, place(note.path))
            yield _PART.join(_plain(part) for part in parts)


def _plain(text: str) -> str:
    """A text without our separators, which a caller may send."""
    return text.replace(SEPARATOR, " ").replace(_PART, " ")


def _text(values: Sequence[Struct]) -> str | None:
    return _encode(values).decode() if values else None


def _payload_cells(payload: Payload | None) -> tuple[str | None, str | None]:
    if payload is None:
        return None, None
    if payload.json is None or payload.is_cut:
        kept = _encode((payload.sha256, payload.size, payload.is_cut)).decode()
        return payload.json, kept
    return payload.json, None


def _payload(json: str | None, kept: str | None, *, with_payloads: bool) -> Payload | None:
    if kept is not None:
        sha256, size, is_cut = _read_kept(kept)
        return Payload(sha256, size, json if with_payloads else None, is_cut and with_payloads)
    return None if json is None else payload_of(json.encode(), hashes_only=not with_payloads)
