"""Records as the rows of a store, and back; what is in a file is decided here alone."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callpact.audit.histogram import DAY, HOUR, bucket_of
from callpact.audit.record import Note, Payload, Record

INPUT_IS_HASH = 1
OUTPUT_IS_HASH = 2
IS_WARNED = 4
IS_TOOL_ERROR = 8
IS_HASH, IS_PLAIN, IS_PACKED, IS_CUT = 0, 1, 2, 4

BY_CELL, BY_CALLER, DAILY, BY_TOOL, BY_CAUSE, BY_DOOR = 1, 2, 4, 8, 16, 32
"""The bits of a rollup's unit."""
FACETS = {
    BY_DOOR: ("version", "via"),
    BY_CAUSE: ("gate", "code", "key"),
    BY_TOOL: ("tool", "namespace", "gate"),
}
"""Parts of a cell that are asked about alone, so often that they have rollups of their own; the
first that has all that is asked for has the fewest."""
HOURLY_UNITS = (0, BY_CELL, BY_CALLER, *FACETS)
DAILY_UNITS = (BY_CELL | BY_CALLER, BY_CAUSE | BY_CALLER, BY_DOOR | BY_CALLER)
"""Of these there are daily rollups only."""
UNITS = (*HOURLY_UNITS, *(unit | DAILY for unit in (*HOURLY_UNITS, *DAILY_UNITS)))

CELL = "tool, kind, version, contract, policy, source, via, gate, code, key"
PLACE = "identity, namespace, tool, version, contract, kind, code, path"
PAYLOAD = "id, prefix, sha256, size, uses, form, json"
ROLLUP = "unit, caller, start, cell, calls, failed, rejected, warned, first, last, histogram"
CALL = "number, id, at, ms, bucket, cell, caller, flags, path, message, status, count, parent, notes, given, input, output"

HOUR_OF = f"(at - ((at % {HOUR}) + {HOUR}) % {HOUR})"
DAY_OF = f"((at - ((at % {DAY}) + {DAY}) % {DAY}) / {DAY})"
"""The first millisecond of a record's hour, and the number of its day; an index has the latter."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_MIN_PACKED = 1_024
# A small window and table: for texts of some kilobytes what is set up costs more than the packing.
_WINDOW, _MEMORY = -12, 4
_INDEX = re.compile(r"/\d+(?=/|$)")

_Notes = tuple[tuple[Note, ...], ...]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, str | None]).decode
_decode_notes = msgspec.json.Decoder(_Notes).decode


def kept_id(id: str) -> str | bytes:
    """An id as it is kept: 16 bytes for a UUID in its usual spelling, else the text."""
    return bytes.fromhex(id.replace("-", "")) if _UUID.fullmatch(id) else id


def shown_id(kept: str | bytes) -> str:
    """The id that `kept_id` was given."""
    if isinstance(kept, str):
        return kept
    digits = kept.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def cell_of(record: Record) -> tuple[str | None, ...]:
    """What a record has in common with others, in the order of `CELL`."""
    return (
        record.tool,
        record.kind,
        record.version,
        record.contract,
        record.policy,
        record.source,
        record.via,
        record.gate,
        record.code,
        record.key,
    )


def facet_of(facet: int, names: Mapping[str, str | None]) -> tuple[str | None, ...]:
    """The cell that stands for all cells with the same facet, in the order of `CELL`."""
    parts = FACETS[facet]
    empty = {"version": None, "gate": None, "code": None, "key": None}
    return tuple(names[name] if name in parts else empty.get(name, "") for name in CELL.split(", "))


def outcome_of(gate: str | None) -> tuple[bool, bool]:
    """Whether a call that was stopped there failed, and whether it was rejected."""
    return gate is not None, gate in {"access", "input"}


def flags_of(record: Record) -> int:
    """What a row tells by single bits."""
    flags = 0
    if record.input is not None and record.input.json is None:
        flags |= INPUT_IS_HASH
    if record.output is not None and record.output.json is None:
        flags |= OUTPUT_IS_HASH
    if record.warnings and record.gate is None:
        flags |= IS_WARNED
    if record.tool_error:
        flags |= IS_TOOL_ERROR
    return flags


class Names(Struct, frozen=True, gc=False):
    """Under which names a record is kept, and what it was called itself, if that is another."""

    cell: int
    caller: int
    given: str | None = None
    """JSON with the fields that the names do not tell."""


def call_row(
    record: Record, number: int, ids: tuple[Any, Any], names: Names, payloads: Mapping[str, int]
) -> tuple[Any, ...]:
    """One row, in the order of `CALL`; the ids are its own and its parent's, as they are kept."""
    id_, parent = ids
    return (
        number,
        id_,
        record.at,
        record.ms,
        bucket_of(record.ms),
        names.cell,
        names.caller,
        flags_of(record),
        record.path,
        record.message,
        record.status,
        record.count,
        parent,
        _kept_notes(record),
        names.given,
        None if record.input is None else payloads[record.input.sha256],
        None if record.output is None else payloads[record.output.sha256],
    )


def places_of(record: Record) -> set[tuple[str, str, str]]:
    """Where and what a record's notes are: kind, code, and path with `*` for indexes; each once."""
    return {
        (kind, note.code, _INDEX.sub("/*", note.path))
        for kind, notes in (
            ("issue", record.issues),
            ("warning", record.warnings),
            ("change", record.changes),
        )
        for note in notes
    }


def packed_payload(payload: Payload) -> tuple[int, bytes | None]:
    """The form of a payload's JSON, and its bytes; packed only if that is smaller."""
    if payload.json is None:
        return IS_HASH, None
    cut = IS_CUT if payload.is_cut else 0
    plain = payload.json.encode()
    if len(plain) >= _MIN_PACKED:
        packing = zlib.compressobj(1, zlib.DEFLATED, _WINDOW, _MEMORY)
        packed = packing.compress(plain) + packing.flush()
        if len(packed) < len(plain):
            return IS_PACKED | cut, packed
    return IS_PLAIN | cut, plain


def payload_of_row(row: Sequence[Any] | None, *, hash_only: bool) -> Payload | None:
    """The payload of a row with its hash, size, form and bytes."""
    if row is None:
        return None
    sha256, size, form, kept = row
    if hash_only or kept is None:
        return Payload(sha256.hex(), size)
    plain = zlib.decompress(kept, _WINDOW) if form & IS_PACKED else kept
    return Payload(sha256.hex(), size, plain.decode(), is_cut=bool(form & IS_CUT))


def record_of(
    row: Sequence[Any],
    shown_id: Callable[[Any], str],
    cell: Sequence[Any],
    caller: str | None,
    payloads: Iterable[Any],
) -> Record:
    """The record of a row, its cell and its two payloads."""
    _, kept, at, ms, _, _, _, flags, path, message, status, count, parent, notes, names, _, _ = row
    tool, kind, version, contract, policy, source, via, gate, code, key = cell
    issues, warnings, changes = _notes(notes)
    sent, given = payloads
    record = Record(
        id=shown_id(kept),
        at=at,
        ms=0.0 if ms is None else ms,
        tool=tool,
        kind=kind,
        version=version,
        contract=contract,
        policy=policy,
        gate=gate,
        code=code,
        path=path,
        message=message,
        key=key,
        issues=issues,
        warnings=warnings,
        changes=changes,
        source=source,
        status=status,
        caller=caller,
        via=via,
        parent=None if parent is None else shown_id(parent),
        count=count,
        input=sent,
        output=given,
        tool_error=bool(flags & IS_TOOL_ERROR),
    )
    return record if names is None else replace(record, **_decode(names))


def given_names(record: Record, names: Mapping[str, str | None]) -> str | None:
    """What a record says otherwise than the names that it is kept under."""
    others = {name: told for name in names if (told := getattr(record, name)) != names[name]}
    return _encode(others).decode() if others else None


def _kept_notes(record: Record) -> str | None:
    if not (record.issues or record.warnings or record.changes):
        return None
    return _encode((record.issues, record.warnings, record.changes)).decode()


def _notes(kept: str | None) -> Iterable[tuple[Note, ...]]:
    if kept is None:
        return (), (), ()
    return _decode_notes(kept)
