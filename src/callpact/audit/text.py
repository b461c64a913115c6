"""The audit log in words: times as people write them, records and answers as cells, JSON and CSV.

Pure; nothing is printed here, and text of records is given as it is: whoever prints it sees to it
that it draws nothing. Times are local in tables, and UTC in JSON and CSV.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, cast

import msgspec

from callpact.audit.record import Note, Payload, Record
from callpact.audit.store import Cause, Rate
from callpact.context import LogLine
from callpact.errors import UsageError
from callpact.schema.json_text import json_text

BARS = 24
"""Columns that a sparkline has at most."""
RECORD_HEADERS = ("TIME", "TOOL", "OUTCOME", "MS", "CALLER", "VIA", "ID")
RATE_HEADERS = ("CALLS", "FAILED", "RATE", "REJECTED", "P50", "P95", "P99")
CAUSE_HEADERS = ("TOOL", "BEFORE", "AFTER", "CHANGE", "CAUSE")
SPARE_RECORD_HEADERS = ("VIA", "CALLER", "MS")
"""What a narrow terminal does without, in this order; so below."""
SPARE_RATE_HEADERS = ("TREND", "REJECTED", "P99", "P50")
COMPARED_HEADERS = ("CALLS", "FAILED", "RATE", "CHANGE", "P50", "P95", "P99")
CSV_HEADERS = (
    *("id", "at", "ms", "tool", "kind", "version", "contract", "policy", "outcome", "gate", "code"),
    *("path", "message", "key", "issues", "warnings", "changes", "source", "status", "server"),
    *("caller", "client", "via", "parent", "count", "input_bytes", "input"),
    *("output_bytes", "output", "tool_error", "logs"),
)
RATE_FIELDS = (*("group", "calls", "failed", "rate", "rejected", "warned", "p50", "p95", "p99"),)
_AGO = re.compile(r"(\d{1,9})([smhdw])(?: ago)?", re.ASCII)
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DAYS = {"today": 0, "yesterday": 1}
_BLOCKS = "▁▂▃▄▅▆▇█"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_CAME = re.compile(r", got (?:(?!, got ).)*\Z", re.DOTALL)


# --- times ----------------------------------------------------------------------------------


def moment(text: str, now: int) -> int:
    """A time as people write it, in epoch milliseconds: `2h` ago, `yesterday`, a date and time.

    Raises:
        UsageError: it is none of these.
    """
    text = text.strip()
    if (ago := _AGO.fullmatch(text)) is not None:
        return now - int(ago[1]) * _UNITS[ago[2]]
    if (days := _DAYS.get(text)) is not None:
        today = datetime.fromtimestamp(now / 1000).astimezone().date()
        text = (today - timedelta(days=days)).isoformat()
    try:
        # What names no zone is meant where it is typed.
        return round(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"'{text}' is no time: write 30m, 2h or 7d for so long ago, today, yesterday, "
            "or a date and time like 2026-09-01 or 2026-09-01T14:30"
        ) from None


def local(at: int) -> str:
    """A time where we are, to the second."""
    try:
        return f"{datetime.fromtimestamp(at / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"


def utc(at: int) -> str:
    """A time as ISO 8601 in UTC, to the millisecond."""
    try:
        found = datetime.fromtimestamp(at // 1000, UTC).replace(microsecond=at % 1000 * 1000)
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- numbers --------------------------------------------------------------------------------


def percent(share: float) -> str:
    """A share of all: `5.0 %`."""
    return f"{share * 100:.1f} %"


def points(change: float) -> str:
    """A change of a share, in points: `+4.5`."""
    return f"{change * 100:+.1f}" if round(abs(change) * 100, 1) else "0.0"


def duration(ms: float) -> str:
    """Milliseconds, as exact as they are of use."""
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 1 else f"{ms:.2f}"


def sparkline(values: Sequence[int]) -> str:
    """One bar for each value, the highest for the largest; a space for nothing."""
    most = max(values, default=0)
    return "".join(
        _BLOCKS[-(-value * len(_BLOCKS) // most) - 1] if value else " " for value in values
    )


# --- records --------------------------------------------------------------------------------


def outcome(record: Record) -> str:
    """What became of a call: `ok`, or its code and place."""
    if record.is_error:
        return " ".join(filter(None, (record.code or record.gate, record.path)))
    return f"ok, {_many(len(record.warnings), 'warning')}" if record.warnings else "ok"


def short_id(id: str) -> str:
    """The beginning and the end of an id: calls of one process begin alike, first calls end so."""
    return f"{id[:8]}..{id[-6:]}" if len(id) > 16 else id


def record_cells(record: Record, *, is_short: bool = False) -> tuple[str, ...]:
    """A record as a row under `RECORD_HEADERS`, of its id all or so much as is needed."""
    return (
        local(record.at),
        record.tool,
        outcome(record),
        duration(record.ms),
        record.caller or "-",
        record.via or "-",
        short_id(record.id) if is_short else record.id,
    )


def fitted(
    headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, spare: Iterable[str]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A table without so many of the spare columns as do not fit into a width."""
    table = [tuple(headers), *map(tuple, rows)]
    for name in spare:
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        if sum(widths) + 2 * len(widths) <= width or name not in table[0]:
            continue
        at = table[0].index(name)
        table = [(*row[:at], *row[at + 1 :]) for row in table]
    return table[0], table[1:]


def encode_record(record: Record) -> dict[str, Any]:
    """A record as JSON: with its time in UTC, and what was sent and given back as values."""
    told = cast("dict[str, Any]", msgspec.to_builtins(record))
    told |= {
        "at": utc(record.at),
        "ms": round(record.ms, 3),
        "outcome": "failed" if record.is_error else "ok",
    }
    for name, payload in (("input", record.input), ("output", record.output)):
        if payload is not None:
            told[name] = _encode_payload(payload)
    return told


def _encode_payload(payload: Payload) -> dict[str, Any]:
    told: dict[str, Any] = {"sha256": payload.sha256, "size": payload.size}
    if payload.json is None:
        return told
    if payload.is_cut:
        return {**told, "is_cut": True, "begin": payload.json}
    try:
        return {**told, "value": msgspec.json.decode(payload.json)}
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {**told, "begin": payload.json}


def record_row(record: Record) -> list[str]:
    """A record as a row under `CSV_HEADERS`; lists are JSON, and what is cut ends in `…`."""
    cells: dict[str, Any] = {name: getattr(record, name, None) for name in CSV_HEADERS}
    cells |= {
        "at": utc(record.at),
        "ms": round(record.ms, 3),
        "outcome": "failed" if record.is_error else "ok",
        "tool_error": "true" if record.tool_error else "",
    }
    for name in ("issues", "warnings", "changes", "logs"):
        told = cast("tuple[Note | LogLine, ...]", getattr(record, name))
        cells[name] = json_text(msgspec.to_builtins(told)) if told else ""
    for name in ("input", "output"):
        payload = cast("Payload | None", getattr(record, name))
        if payload is not None:
            kept = payload.json or f"sha256:{payload.sha256}"
            cells[name] = f"{kept}…" if payload.is_cut else kept
            cells[f"{name}_bytes"] = payload.size
    return ["" if value is None else str(value) for value in cells.values()]


def csv_text(rows: Iterable[Sequence[str]]) -> str:
    """Rows as CSV; what a spreadsheet would take for a formula is text there, too."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for row in rows:
        writer.writerow([f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in row])
    return written.getvalue()


def facts(record: Record) -> dict[str, str]:
    """What is to be known of one call beside its notes, input and output."""
    told = {
        "time": f"{local(record.at)} ({utc(record.at)})",
        "took": f"{duration(record.ms)} ms",
        "outcome": outcome(record),
        "stopped at": record.gate,
        "message": record.message,
        "key": record.key,
        "kind": record.kind,
        "version": record.version,
        "contract": record.contract,
        "policy": record.policy,
        "from": " ".join(filter(None, (record.source, str(record.status or ""), record.server))),
        "caller": record.caller,
        "client": record.client,
        "via": record.via,
        "called by": record.parent,
        "results": None if record.count is None else str(record.count),
    }
    return {name: value for name, value in told.items() if value}


def note_line(note: Note) -> str:
    """An issue, a warning or a change on one line."""
    return "  ".join(filter(None, (note.path or "/", note.code, note.message)))


def payload_lines(name: str, payload: Payload | None) -> list[str]:
    """An input or output as lines, with what is to be known of it first."""
    if payload is None:
        return []
    head = f"{name}  {payload.size:,} bytes, sha256 {payload.sha256}"
    if payload.json is None:
        return [f"{head}; only its hash is kept"]
    if payload.is_cut:
        kept = len(payload.json.encode("utf-8", "replace"))
        return [f"{head}; cut, only the first {kept:,} bytes are kept", payload.json]
    held = _encode_payload(payload)
    if "value" not in held:
        return [head, payload.json]
    return [head, *json_text(held["value"], indent=True).split("\n")]


# --- rates and causes -----------------------------------------------------------------------


def as_shares(headers: Sequence[str], of: int | None) -> tuple[str, ...]:
    """Headers of rates; of shares, where these are told of so many calls."""
    return tuple(headers if of is None else (n.replace("RATE", "SHARE") for n in headers))


def rate_cells(rate: Rate, of: int | None = None) -> tuple[str, ...]:
    """How a group of calls went, as a row under `RATE_HEADERS`, with its share of so many."""
    return (
        f"{rate.calls:,}",
        f"{rate.failed:,}",
        percent(_told_rate(rate, of)),
        f"{rate.rejected:,}",
        *map(duration, (rate.p50, rate.p95, rate.p99)),
    )


def encode_rate(rate: Rate, by: str, of: int | None = None) -> dict[str, Any]:
    """The same as JSON, under `RATE_FIELDS`, or with its share of so many; an hour in UTC."""
    told = {name: getattr(rate, name) for name in RATE_FIELDS}
    if of is not None:
        told["share"] = _share(rate, of)
    if by == "hour":
        told["group"] = utc(int(rate.group))
    return told


def _share(rate: Rate, of: int) -> float:
    return rate.calls / of if of else 0.0


def cause_line(cause: Cause) -> str:
    """A cause as a sentence: the share of all calls of the tool, what is said, and the key."""
    told = f"{_blamed(cause)} ({cause.key})" if cause.message else cause.key
    return f"{percent(cause.rate)} of {cause.tool} calls fail with: {told}"


def said(message: str) -> str:
    """A message about a rule without what came, which differs from call to call."""
    came = _CAME.search(message)
    is_told = came is not None and message.count("'", 0, came.start()) % 2 == 0
    return message[: came.start()] if came is not None and is_told else message


def _blamed(cause: Cause) -> str:
    """Only where a rule was broken the words are ours, and so is their form."""
    return cause.message if cause.key.endswith(":") else said(cause.message)


def encode_cause(cause: Cause) -> dict[str, Any]:
    """A cause as JSON."""
    told = cast("dict[str, Any]", msgspec.to_builtins(cause))
    return {**told, "rate": cause.rate, "first": utc(cause.first), "last": utc(cause.last)}


def compared(before: Iterable[Cause], after: Iterable[Cause]) -> list[tuple[str, ...]]:
    """Causes before and after something, as rows under `CAUSE_HEADERS`, the largest change first."""
    found: dict[tuple[str, str], list[float]] = {}
    words: dict[tuple[str, str], str] = {}
    for number, causes in enumerate((before, after)):
        for cause in causes:
            key = (cause.tool, cause.key)
            found.setdefault(key, [0.0, 0.0])[number] = cause.rate
            words[key] = f"{_blamed(cause)} ({cause.key})"
    ordered = sorted(found.items(), key=lambda item: (-abs(item[1][1] - item[1][0]), item[0]))
    return [
        (key[0], percent(old), percent(new), points(new - old), words[key])
        for key, (old, new) in ordered
    ]


def compared_rates(
    before: Iterable[Rate],
    after: Iterable[Rate],
    of: tuple[int | None, int | None] = (None, None),
) -> list[tuple[str, ...]]:
    """Groups before and after something, as rows under a name and `COMPARED_HEADERS`.

    `of` are all calls before and after, where shares of them are told.
    """
    old, new = ({rate.group: rate for rate in rates} for rates in (before, after))
    rows: list[tuple[str, ...]] = []
    for group in dict.fromkeys((*new, *old)):
        a, b = (rates.get(group, Rate(group, 0, 0, 0, 0)) for rates in (old, new))
        calls, failed, rate, _, *times = (
            f"{one} → {other}" if one != other else one
            for one, other in zip(_compared_cells(a, of[0]), _compared_cells(b, of[1]), strict=True)
        )
        change = points(_told_rate(b, of[1]) - _told_rate(a, of[0]))
        change = change if (a.calls and b.calls) or of[0] is not None else "-"
        rows.append((group, calls, failed, rate, change, *times))
    return rows


def _told_rate(rate: Rate, of: int | None) -> float:
    return rate.rate if of is None else _share(rate, of)


def _compared_cells(rate: Rate, of: int | None) -> tuple[str, ...]:
    cells = rate_cells(rate, of)
    return cells if rate.calls else ("0", *("-" for _ in cells[1:]))


def changes_of(rates: Sequence[Rate]) -> list[str]:
    """For each group by how much more often it fails than the one before it."""
    changes = (points(after.rate - before.rate) for before, after in pairwise(rates))
    return ["-", *changes][: len(rates)]


def version_order(version: str) -> tuple[Any, ...]:
    """What sorts versions: 1.9.0, 1.10.0-rc.1, 1.10.0."""
    release, _, early = version.partition("-")
    return (_numbers(release), not early, _numbers(early), version)


def _numbers(text: str) -> list[tuple[int, str]]:
    parts = re.findall(r"[0-9]+|[^0-9.]+", text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
