"""Text, JSON and CSV of the audit log: times, records, rates and causes.

Pure; nothing is printed here, and text of records is not escaped: the printing code removes
control characters. Times are local in tables, and UTC in JSON and CSV.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from typing import Any

import msgspec

from callpact.audit.record import Note, Payload, Record
from callpact.audit.store import Cause, Rate
from callpact.context import LogLine
from callpact.errors import UsageError
from callpact.schema.json_text import json_text

BARS = 24
"""The most columns of a sparkline."""
RECORD_HEADERS = ("TIME", "TOOL", "OUTCOME", "TOOK", "CALLER", "VIA", "ID")
RATE_HEADERS = ("CALLS", "FAILED", "RATE", "WARNED", "REJECTED", "P50", "P95", "P99")
SHARE_HEADERS = ("CALLS", "SHARE")
"""Of the groups of a field of the outcome, such as the code."""
CAUSE_HEADERS = ("TOOL", "CALLS", "SHARE", "KEY", "CAUSE")
SPARE_RECORD_HEADERS = ("VIA", "CALLER", "TOOK")
"""Columns that a narrow terminal drops, in this order; the same below."""
SPARE_RATE_HEADERS = ("TREND", "REJECTED", "P99", "P50")
SPARE_CAUSE_HEADERS = ("KEY",)
COMPARED_HEADERS = ("CALLS", "FAILED", "RATE", "CHANGE", "WARNED", "P50", "P95", "P99")
COMPARED_SHARE_HEADERS = ("CALLS", "SHARE", "CHANGE")
COMPARED_CAUSE_HEADERS = ("TOOL", "BEFORE", "AFTER", "CHANGE", "KEY", "CAUSE")
NUMBER_HEADERS = frozenset(
    {*RATE_HEADERS, *SHARE_HEADERS, "TOOK", "CHANGE", "BEFORE", "AFTER", "OUTPUTS", "REFUSED"}
    | {"SAVED"}
)
"""Columns that are aligned to the right."""
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
_GOT = re.compile(r", got (?:(?!, got ).)*\Z", re.DOTALL)
_WORDS = re.compile(r"\s+|[^\s'\"`,;:(){}\[\]]+|.", re.DOTALL)
_GAP = "…"
_GAPS = re.compile(rf"{_GAP}(?:[\s'\"`,;:(){{}}\[\]]*{_GAP})+")
_MAX_PATTERN = 300
_WRAPPED = 40
_MAX_NAME = 24
_USUAL = (11, 20, 31, 7, 8, 14, 16)
"""Widths of usual values under `RECORD_HEADERS`."""


# --- times ----------------------------------------------------------------------------------


def moment(text: str, now: int) -> int:
    """Parse a time to epoch milliseconds: `2h` ago, `yesterday`, a date and time.

    Raises:
        UsageError: the text is not a time.
    """
    text = text.strip()
    if (ago := _AGO.fullmatch(text)) is not None:
        return now - int(ago[1]) * _UNITS[ago[2]]
    if (days := _DAYS.get(text)) is not None:
        today = datetime.fromtimestamp(now / 1000).astimezone().date()
        text = (today - timedelta(days=days)).isoformat()
    try:
        # A time without a zone is local.
        return round(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"'{text}' is no time: write 30m, 2h or 7d for so long ago, today, yesterday, "
            "or a date and time like 2026-09-01 or 2026-09-01T14:30"
        ) from None


def local(at: int) -> str:
    """A time in the local zone, to the second."""
    try:
        return f"{datetime.fromtimestamp(at / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"


def recent(at: int, now: int) -> str:
    """A time in the local zone, short: of today the time of day, else the date with it."""
    whole, today = local(at), local(now)
    return whole[11:] if whole[:10] == today[:10] else whole[5:16]


def utc(at: int) -> str:
    """A time as ISO 8601 in UTC, to the millisecond."""
    try:
        found = datetime.fromtimestamp(at // 1000, UTC).replace(microsecond=at % 1000 * 1000)
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- numbers --------------------------------------------------------------------------------


def percent(share: float) -> str:
    """A share in percent: `5.0 %`."""
    return f"{share * 100:.1f} %"


def points(change: float) -> str:
    """A change of a share, in points: `+4.5`."""
    return f"{change * 100:+.1f}" if round(abs(change) * 100, 1) else "0.0"


def duration(ms: float) -> str:
    """A duration with its unit and a useful number of digits: `0.25 ms`, `12 ms`, `1.50 s`."""
    for size, unit in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if ms >= size:
            return f"{_digits(ms / size)} {unit}"
    return f"{_digits(ms)} ms"


def _digits(number: float) -> str:
    return (
        f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"
    )


def sparkline(values: Sequence[int]) -> str:
    """One bar for each value, the highest for the largest; a space for zero."""
    most = max(values, default=0)
    return "".join(
        _BLOCKS[-(-value * len(_BLOCKS) // most) - 1] if value else " " for value in values
    )


# --- records --------------------------------------------------------------------------------


def outcome(record: Record) -> str:
    """The outcome of a call: `ok`, or its code and path."""
    if record.is_error:
        return " ".join(filter(None, (record.code or record.gate, record.path)))
    return f"ok, {counted(len(record.warnings), 'warning')}" if record.warnings else "ok"


def short_id(id: str) -> str:
    """The start and the end of an id: ids of one process share the start, of first calls the end."""
    return f"{id[:8]}..{id[-6:]}" if len(id) > 16 else id


def record_cells(record: Record, *, is_short: bool = False) -> tuple[str, ...]:
    """A record as a row under `RECORD_HEADERS`, with its whole or its short id."""
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
    """A table without the spare columns that exceed a width; its last column may be wrapped."""
    table = [tuple(headers), *map(tuple, rows)]
    for name in spare:
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        widths[-1] = min(widths[-1], _WRAPPED)
        if sum(widths) + 2 * len(widths) <= width or name not in table[0]:
            continue
        at = table[0].index(name)
        table = [(*row[:at], *row[at + 1 :]) for row in table]
    return table[0], table[1:]


def feed_widths(rows: Sequence[Sequence[str]], width: int | None = None) -> dict[str, int]:
    """The widths of the columns of a feed under `RECORD_HEADERS`, from its first rows.

    Later rows are not known yet, so each column has room for a usual value. Within a width, spare
    columns are dropped, long values have no room of their own, and OUTCOME gets the rest.
    """
    columns = zip(*rows, strict=True) if rows else [()] * len(RECORD_HEADERS)
    widths = {
        name: max((usual, *map(len, cells)))
        for name, usual, cells in zip(RECORD_HEADERS, _USUAL, columns, strict=True)
    }
    if width is None:  # Times are whole.
        return {**widths, "TIME": max(widths["TIME"], 19)}
    longest = widths["OUTCOME"]
    most = {"TOOL": width // 4, "OUTCOME": _USUAL[2]}
    widths = {name: min(each, most.get(name, _MAX_NAME)) for name, each in widths.items()}
    for name in SPARE_RECORD_HEADERS:
        if _line_width(widths) > width:
            del widths[name]
    rest = widths["OUTCOME"] + width - _line_width(widths)
    return {**widths, "OUTCOME": max(1, min(longest, rest))}


def _line_width(widths: dict[str, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)


def feed_line(row: Sequence[str], widths: dict[str, int], width: int | None = None) -> str:
    """A row of a feed as one line; within a width the outcome is cut to make room."""
    cells = {name: cell for name, cell in zip(RECORD_HEADERS, row, strict=True) if name in widths}
    if width is not None:
        more = (len(cells[name]) - widths[name] for name in cells if name != "OUTCOME")
        left = max(1, widths["OUTCOME"] - sum(each for each in more if each > 0))
        cells["OUTCOME"] = _shortened(cells["OUTCOME"], left)
        widths = {**widths, "OUTCOME": left}
    padded = (
        f"{cell:{'>' if name in NUMBER_HEADERS else '<'}{widths[name]}}"
        for name, cell in cells.items()
    )
    line = "  ".join(padded).rstrip()
    return line if width is None else _shortened(line, width)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}{_GAP}"


def encode_record(record: Record) -> dict[str, Any]:
    """A record as JSON, with its time in UTC, and its input and output as values."""
    form: dict[str, Any] = msgspec.to_builtins(record)
    form |= {
        "at": utc(record.at),
        "ms": round(record.ms, 3),
        "outcome": "failed" if record.is_error else "ok",
    }
    for name, payload in (("input", record.input), ("output", record.output)):
        if payload is not None:
            form[name] = _encode_payload(payload)
    return form


def _encode_payload(payload: Payload) -> dict[str, Any]:
    form: dict[str, Any] = {"sha256": payload.sha256, "size": payload.size}
    if payload.json is None:
        return form
    if payload.is_cut:
        return {**form, "is_cut": True, "begin": payload.json}
    try:
        return {**form, "value": msgspec.json.decode(payload.json)}
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {**form, "begin": payload.json}


def record_row(record: Record) -> list[str]:
    """A record as a row under `CSV_HEADERS`; lists are JSON, and cut payloads end in `…`."""
    cells: dict[str, Any] = {name: getattr(record, name, None) for name in CSV_HEADERS}
    cells |= {
        "at": utc(record.at),
        "ms": round(record.ms, 3),
        "outcome": "failed" if record.is_error else "ok",
        "tool_error": "true" if record.tool_error else "",
    }
    for name in ("issues", "warnings", "changes", "logs"):
        notes: tuple[Note | LogLine, ...] = getattr(record, name)
        cells[name] = json_text(msgspec.to_builtins(notes)) if notes else ""
    for name in ("input", "output"):
        payload: Payload | None = getattr(record, name)
        if payload is not None:
            kept = payload.json or f"sha256:{payload.sha256}"
            cells[name] = f"{kept}…" if payload.is_cut else kept
            cells[f"{name}_bytes"] = payload.size
    return ["" if value is None else str(value) for value in cells.values()]


def csv_text(rows: Iterable[Sequence[str]]) -> str:
    """Rows as CSV; cells that a spreadsheet would run as a formula are quoted."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for row in rows:
        writer.writerow([f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in row])
    return written.getvalue()


def facts(record: Record) -> dict[str, str]:
    """The fields of one call except its notes, input and output."""
    form = {
        "time": f"{local(record.at)} ({utc(record.at)})",
        "took": duration(record.ms),
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
    return {name: value for name, value in form.items() if value}


def note_line(note: Note) -> str:
    """An issue, a warning or a change on one line."""
    return "  ".join(filter(None, (note.path or "/", note.code, note.message)))


def payload_lines(name: str, payload: Payload | None) -> list[str]:
    """An input or output as lines, after a heading with its size and hash."""
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


def rate_cells(rate: Rate) -> tuple[str, ...]:
    """A rate as a row under `RATE_HEADERS`."""
    return (
        f"{rate.calls:,}",
        f"{rate.failed:,}",
        percent(rate.rate),
        f"{rate.warned:,}",
        f"{rate.rejected:,}",
        *map(duration, (rate.p50, rate.p95, rate.p99)),
    )


def share_cells(rate: Rate, of: int) -> tuple[str, ...]:
    """A group of a field of the outcome as a row under `SHARE_HEADERS`, of all `of` calls."""
    return f"{rate.calls:,}", percent(_share(rate, of))


def encode_rate(rate: Rate, by: str, of: int | None = None) -> dict[str, Any]:
    """A rate as JSON, under `RATE_FIELDS`, with its share of `of` calls if given; an hour in UTC."""
    form = {name: getattr(rate, name) for name in RATE_FIELDS}
    if of is not None:
        form["share"] = _share(rate, of)
    if by == "hour":
        form["group"] = utc(int(rate.group))
    return form


def _share(rate: Rate, of: int) -> float:
    return rate.calls / of if of else 0.0


def cause_cells(cause: Cause) -> tuple[str, ...]:
    """A cause as a row under `CAUSE_HEADERS`; the share is of all calls of the tool."""
    return cause.tool, f"{cause.calls:,}", percent(cause.rate), cause.key, _words(cause)


def _words(cause: Cause) -> str:
    return pattern_of(cause) or cause.key  # Beside hashes no message is kept.


def without_value(message: str) -> str:
    """A message about a rule without the value, which differs from call to call."""
    got = _GOT.search(message)
    is_value = got is not None and message.count("'", 0, got.start()) % 2 == 0
    return message[: got.start()] if got is not None and is_value else message


def pattern_of(cause: Cause) -> str:
    """The words that the messages of a cause share, with `…` for those that differ."""
    messages = (cause.message, cause.lowest, cause.highest)
    if not cause.key.endswith(":"):  # Only messages about rules are known to end with the value.
        messages = map(without_value, messages)
    found, *others = (_WORDS.findall(each[:_MAX_PATTERN]) for each in messages)
    for words in filter(None, others):
        found = _shared(found, words)
    return _GAPS.sub(_GAP, "".join(found))


def _shared(one: list[str], other: list[str]) -> list[str]:
    """The words that two messages have in the same order, with gaps between them."""
    steps = difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return list(
        chain.from_iterable(one[a:b] if op == "equal" else (_GAP,) for op, a, b, *_ in steps)
    )


def encode_cause(cause: Cause) -> dict[str, Any]:
    """A cause as JSON."""
    form: dict[str, Any] = msgspec.to_builtins(cause)
    del form["lowest"], form["highest"]
    more = {"pattern": pattern_of(cause), "rate": cause.rate}
    return {**form, **more, "first": utc(cause.first), "last": utc(cause.last)}


def compared(before: Iterable[Cause], after: Iterable[Cause]) -> list[tuple[str, ...]]:
    """Causes before and after, as rows under `COMPARED_CAUSE_HEADERS`, the largest change first."""
    found: dict[tuple[str, str], list[float]] = {}
    words: dict[tuple[str, str], str] = {}
    for number, causes in enumerate((before, after)):
        for cause in causes:
            key = (cause.tool, cause.key)
            found.setdefault(key, [0.0, 0.0])[number] = cause.rate
            words[key] = _words(cause)
    ordered = sorted(found.items(), key=lambda item: (-abs(item[1][1] - item[1][0]), item[0]))
    return [
        (key[0], percent(old), percent(new), points(new - old), key[1], words[key])
        for key, (old, new) in ordered
    ]


def compared_rates(before: Iterable[Rate], after: Iterable[Rate]) -> list[tuple[str, ...]]:
    """Groups before and after, as rows under a name and `COMPARED_HEADERS`."""
    rows: list[tuple[str, ...]] = []
    for a, b in _paired(before, after):
        cells = (rate_cells(r) if r.calls else ("0", *"-------") for r in (a, b))
        calls, failed, rate, warned, _, *times = map(_arrow, *cells)
        change = points(b.rate - a.rate) if a.calls and b.calls else "-"
        rows.append((b.group, calls, failed, rate, change, warned, *times))
    return rows


def compared_shares(
    before: Iterable[Rate], after: Iterable[Rate], of: tuple[int, int]
) -> list[tuple[str, ...]]:
    """Groups before and after, as rows under a name and `COMPARED_SHARE_HEADERS`.

    `of` are the numbers of all calls before and after.
    """
    rows: list[tuple[str, ...]] = []
    for a, b in _paired(before, after):
        cells = map(_arrow, share_cells(a, of[0]), share_cells(b, of[1]))
        rows.append((b.group, *cells, points(_share(b, of[1]) - _share(a, of[0]))))
    return rows


def _paired(before: Iterable[Rate], after: Iterable[Rate]) -> Iterator[tuple[Rate, Rate]]:
    old, new = ({rate.group: rate for rate in rates} for rates in (before, after))
    for group in dict.fromkeys((*new, *old)):
        nothing = Rate(group, 0, 0, 0, 0)
        yield old.get(group, nothing), new.get(group, nothing)


def _arrow(old: str, new: str) -> str:
    return f"{old} → {new}" if old != new else old


def changes_of(rates: Sequence[Rate]) -> list[str]:
    """The change of each group's rate from the group before it."""
    changes = (points(after.rate - before.rate) for before, after in pairwise(rates))
    return ["-", *changes][: len(rates)]


def version_order(version: str) -> tuple[Any, ...]:
    """A sort key for versions: 1.9.0, 1.10.0-rc.1, 1.10.0."""
    release, _, early = version.partition("-")
    return (_numbers(release), not early, _numbers(early), version)


def _numbers(text: str) -> list[tuple[int, str]]:
    parts = re.findall(r"[0-9]+|[^0-9.]+", text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
