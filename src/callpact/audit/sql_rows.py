"""Records as the rows of a store, and back; what is in a file is decided here alone."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callpact.audit.histogram import DAY, HOUR, bucket_of
from callpact.audit.record import SMALL_PAYLOAD_BYTES, Note, Payload, Record, payload_of
from callpact.call_log import LogLine

INPUT_IS_HASH = 1
OUTPUT_IS_HASH = 2
IS_WARNED = 4
IS_TOOL_ERROR = 8
IS_FAILED = 16
IS_REJECTED = 32
_FLAGS = 6  # Bits of them.
IS_HASH, IS_PLAIN, IS_PACKED, IS_CUT = 0, 1, 2, 4

BY_CELL, BY_CALLER, DAILY, BY_TOOL, BY_CAUSE, BY_DOOR = 1, 2, 4, 8, 16, 32
"""The bits of a rollup's unit."""
FACETS = {
    BY_CAUSE: ("gate", "code", "key"),
    BY_DOOR: ("version", "via", "gate"),
    BY_TOOL: ("tool", "namespace", "version", "contract", "gate"),
}
"""Parts of a cell that are asked about alone, so often that they have rollups of their own; the
first that has all that is asked for has the fewest."""
HOURLY_UNITS = (0, BY_CALLER, *FACETS)
DAILY_UNITS = (BY_CELL, BY_CELL | BY_CALLER, BY_CAUSE | BY_CALLER, BY_DOOR | BY_CALLER)
"""Of these there are daily rollups only."""
UNITS = sorted(
    (*HOURLY_UNITS, *(unit | DAILY for unit in (*HOURLY_UNITS, *DAILY_UNITS))),
    key=lambda unit: not unit & BY_CALLER,
)
"""All of them; those of callers go first, so that there are never more of theirs than in all."""

CALLER = "name, client"
CELL = "tool, kind, version, contract, policy, source, via, gate, code, key"
PLACE = "identity, namespace, tool, version, contract, kind, code, path"
PAYLOAD = "id, prefix, sha256, size, uses, form, json"
ROLLUP = "unit, caller, start, cell, calls, failed, rejected, warned, histogram, first, last, hours"
CALL = "number, id, at, ms, mark, cell, caller, status, more, input, output"

HOUR_OF = f"(at - ((at % {HOUR}) + {HOUR}) % {HOUR})"
DAY_OF = f"((at - ((at % {DAY}) + {DAY}) % {DAY}) / {DAY})"
"""The first millisecond of a record's hour, and the number of its day; an index has the latter."""
HOUR_IN_DAY = f"(((at % {DAY}) + {DAY}) % {DAY} / {HOUR})"
"""From 0 to 23."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_MIN_PACKED = 1_024
# A small window and table: for texts of some kilobytes what is set up costs more than the packing.
_WINDOW, _MEMORY = -12, 4
_INDEX = re.compile(r"/\d+(?=/|$)")


class More(Struct, frozen=True, omit_defaults=True, gc=False):
    """What most records do not have, as the JSON of one column."""

    path: str | None = None
    message: str | None = None
    count: int | None = None
    parent: str | None = None
    notes: tuple[tuple[Note, ...], tuple[Note, ...], tuple[Note, ...]] | None = None
    """Issues, warnings and changes."""
    given: dict[str, str | None] | None = None
    """What it was called itself, where its cell or caller has another name."""
    input: str | None = None
    output: str | None = None
    """JSON that is so small that it stands here."""
    server: str = ""
    logs: tuple[LogLine, ...] = ()


_NOTHING_MORE, _NO_NOTES = More(), ((), (), ())
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(More).decode


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


def mark_of(record: Record) -> int:
    """The bucket of its duration, and what is told by single bits."""
    mark = mark_with(bucket_of(record.ms), 0)
    sent, given = record.input, record.output
    if sent is not None and sent.json is None:
        mark |= INPUT_IS_HASH
    if given is not None and given.json is None:
        mark |= OUTPUT_IS_HASH
    if record.gate is not None:
        mark |= IS_FAILED | IS_REJECTED if record.is_rejected else IS_FAILED
    elif record.warnings:
        mark |= IS_WARNED
    if record.tool_error:
        mark |= IS_TOOL_ERROR
    return mark


def mark_with(bucket: int, flags: int) -> int:
    """The mark of a bucket and these bits."""
    return bucket << _FLAGS | flags


def bucket_in(mark: int) -> int:
    """The bucket that a mark tells."""
    return mark >> _FLAGS


class Names(Struct, frozen=True, gc=False):
    """Under which names a record is kept, and what it was called itself, if that is another."""

    cell: int
    caller: int
    given: dict[str, str | None] | None = None
    """The fields that the names do not tell."""


def call_row(
    number: int, id: Any, record: Record, names: Names, payloads: Mapping[str, int]
) -> tuple[Any, ...]:
    """One row, in the order of `CALL`; the id is as it is kept."""
    sent, given = record.input, record.output
    small_sent = sent.json if sent is not None and is_small(sent) else None
    small_given = given.json if given is not None and is_small(given) else None
    return (
        number,
        id,
        record.at,
        record.ms,
        mark_of(record),
        names.cell,
        names.caller,
        record.status,
        _more(record, names.given, small_sent, small_given),
        None if sent is None or small_sent is not None else payloads[sent.sha256],
        None if given is None or small_given is not None else payloads[given.sha256],
    )


def is_small(payload: Payload) -> bool:
    """True if it stands in its row."""
    return payload.size <= SMALL_PAYLOAD_BYTES and payload.json is not None and not payload.is_cut


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


def payload_row(id: int, prefix: int, payload: Payload, uses: int) -> tuple[Any, ...]:
    """One row, in the order of `PAYLOAD`."""
    kept = packed_payload(payload)
    return id, prefix, bytes.fromhex(payload.sha256), payload.size, uses, *kept


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


def _payload(row: Sequence[Any] | None, *, hash_only: bool) -> Payload | None:
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
    caller: Sequence[Any],
    payloads: Mapping[int, Sequence[Any]],
    *,
    with_payloads: bool,
) -> Record:
    """The record of a row, its cell and its caller; payloads are by their ids."""
    _, kept, at, ms, mark, _, _, status, told, sent, given = row
    tool, kind, version, contract, policy, source, via, gate, code, key = cell
    more = more_of(told)
    issues, warnings, changes = more.notes or _NO_NOTES
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
        path=more.path,
        message=more.message,
        key=key,
        issues=issues,
        warnings=warnings,
        changes=changes,
        source=source,
        status=status,
        server=more.server,
        caller=caller[0],
        client=caller[1],
        via=via,
        parent=more.parent,
        count=more.count,
        input=payload_of(more.input.encode(), hashes_only=not with_payloads)
        if more.input is not None
        else _payload(payloads.get(sent), hash_only=bool(mark & INPUT_IS_HASH)),
        output=payload_of(more.output.encode(), hashes_only=not with_payloads)
        if more.output is not None
        else _payload(payloads.get(given), hash_only=bool(mark & OUTPUT_IS_HASH)),
        tool_error=bool(mark & IS_TOOL_ERROR),
        logs=more.logs,
    )
    return record if more.given is None else replace(record, **more.given)


def given_names(record: Record, names: Mapping[str, str | None]) -> dict[str, str | None] | None:
    """What a record says otherwise than the names that it is kept under."""
    others = {name: told for name in names if (told := getattr(record, name)) != names[name]}
    return others or None


def _more(
    record: Record, named: dict[str, str | None] | None, sent: str | None, given: str | None
) -> str | None:
    notes = record.issues, record.warnings, record.changes
    more = More(
        record.path,
        record.message,
        record.count,
        record.parent,
        None if notes == _NO_NOTES else notes,
        named,
        sent,
        given,
        record.server,
        record.logs,
    )
    encoded = _encode(more)
    return None if encoded == b"{}" else encoded.decode()


def more_of(kept: str | None) -> More:
    """What the column `more` tells."""
    return _NOTHING_MORE if kept is None else _decode(kept)


def order_of(row: Sequence[Any]) -> tuple[int, bool, str | bytes]:
    """By which rows are sorted that begin with a number, an id and a time: bytes are after texts."""
    _, id_, at, *_ = row
    return at, isinstance(id_, bytes), id_
