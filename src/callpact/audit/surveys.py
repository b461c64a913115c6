"""Drift of a tool of which very many answers are on record: counted by rollups, proved on some.

Few answers are all read and judged (`drift.py`). Of many, rollups tell what was noted when they
left, with the first and the last time, and the patch is made for and proved on a bounded number:
the first and the last of each thing noted, and others spread over all answers. Whatever was counted
on these alone says so by its `of`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from callpact.audit.answers import Key, noted_as
from callpact.audit.drift import (
    BUCKETS,
    MAX_FINDINGS,
    MAX_KEPT_BYTES,
    Drift,
    Finding,
    Survey,
    drift,
)
from callpact.audit.histogram import DAY, HOUR, whole_hours
from callpact.audit.places import place
from callpact.audit.reading import records_of
from callpact.audit.record import Record
from callpact.audit.recorder import hash_contract
from callpact.audit.store import Filter, Store
from callpact.tool import Tool

if TYPE_CHECKING:
    from callpact.audit.sql_questions import Noted

MAX_JUDGED = 2_000
"""Calls of a tool whose answers are all judged for a report."""
MAX_PROVED = 1_000
"""Answers that the patch is made for and proved on, where there are more."""
MAX_PROVED_BYTES = 2 << 20
"""Bytes of these answers, of which equal ones count once."""
MAX_LOOKS = 50
"""Places in time that are looked at for the first and last answers of what was noted."""
_AT_ONCE = 25
_PLACES = 20
_STRIDE = 7
_MOST_NOTES = 1_000


class _Noting(Protocol):
    def notes(self, where: Filter, *, limit: int = ...) -> list[Noted]: ...


class _Times(Struct, frozen=True):
    """How many answers something was noted of, and when."""

    answers: int
    first: int
    last: int


def drift_of(store: Store, tool: Tool, where: Filter | None = None) -> Drift:
    """What the answers of a tool became, against its contract as it is now.

    `where` says of which calls. Rollups answer for a window, a version or a contract of very many;
    of a caller or anything else, the latest `MAX_ROWS` are read.

    Raises:
        UsageError: the log cannot be read.
    """
    meant = replace(where or Filter(), tool=tool.id)
    if _are_few(store, meant):
        return drift(store.log(meant, limit=MAX_JUDGED, with_payloads=True), tool.contract)
    if not hasattr(store, "notes") or not _has_rollups(meant):
        return drift(records_of(store, meant), tool.contract)
    return _Wide(store, tool, meant).report()


def _has_rollups(where: Filter) -> bool:
    own = Filter(
        since=where.since,
        until=where.until,
        tool=where.tool,
        version=where.version,
        contract=where.contract,
    )
    return where == own


def _answers(where: Filter) -> tuple[Filter, Filter]:
    """Those that gave a result, and those that were refused."""
    return replace(where, outcome="ok"), replace(where, gate="output")


def _are_few(store: Store, where: Filter) -> bool:
    """True if all calls can be read."""
    found = store.log(where, limit=MAX_JUDGED + 1)
    return len(found) <= MAX_JUDGED and sum(_sizes(found).values()) <= MAX_KEPT_BYTES


def _sizes(records: Iterable[Record]) -> dict[str, int]:
    """Bytes of answers by their hash."""
    return {r.output.sha256: r.output.size for r in records if r.output is not None}


def _first_day(store: Store, where: Filter, until: int) -> int:
    """The day of the earliest record: the first that is counted, as long as its records are there.

    Else it is looked for: back in ever larger steps, then in ever smaller ones.
    """
    first = min(int(hour.group) for hour in store.rates(where, "hour")) // DAY * DAY
    if store.log(replace(where, until=first + DAY), limit=1):
        return first
    early, days = until // DAY * DAY, 1
    while store.log(replace(where, until=early), limit=1):
        early -= days * DAY
        days *= 2
    while days > 1:
        days //= 2
        if not store.log(replace(where, until=early + days * DAY), limit=1):
            early += days * DAY
    return early


class _Wide:
    """Many answers of one tool, in whole hours."""

    def __init__(self, store: Store, tool: Tool, where: Filter) -> None:
        since, until = whole_hours(where.since, where.until)
        self._store = store
        self._tool = tool
        self._own = hash_contract(tool.contract)
        self._where = replace(where, since=since, until=until)
        self._ok, self._refused = _answers(self._where)
        counts = {rate.group: rate.calls for rate in store.rates(self._where, "gate")}
        self._has_refused = "output" in counts
        self._answers = counts.get("", 0) + counts.get("output", 0)
        self._end = store.log(self._where, limit=1)[0].at // HOUR * HOUR + HOUR
        self._begin = _first_day(store, self._where, self._end) if since is None else since

    def report(self) -> Drift:
        every = self._noted(self._where)
        own = self._noted(replace(self._where, contract=self._own))
        survey = Survey(self._tool.contract, self._sample(every, own))
        findings = self._findings(survey, every, own)
        patch = survey.patch()
        return Drift(
            self._answers,
            min((survey.since, *(found.first for found in findings))),
            max((survey.until, *(found.last for found in findings))),
            findings[:MAX_FINDINGS],
            patch,
            survey.proof(patch, of=self._answers),
            len(findings) > MAX_FINDINGS,
        )

    # -- what was noted ----------------------------------------------------------------------

    def _noted(self, where: Filter) -> dict[Key, _Times]:
        """What records tell of answers: the warnings and changes of results, and refusals."""
        found = self._notes(where, "warning", "change")
        # Issues are noted of inputs, too; the cause of a refused answer is its first.
        refused = replace(where, gate="output")
        causes = self._store.causes(refused, limit=_MOST_NOTES) if self._has_refused else ()
        for cause in causes:
            path, _, rule = cause.key.partition(":")[2].rpartition(":")
            if rule:
                times = _Times(cause.calls, cause.first, cause.last)
                found[path, rule] = _sum(found.get((path, rule)), times)
        return found

    def _notes(self, where: Filter, *kinds: str) -> dict[Key, _Times]:
        by_kind: dict[tuple[str, str], dict[Key, _Times]] = {}
        for note in cast("_Noting", self._store).notes(where, limit=_MOST_NOTES):
            key = noted_as(note.kind, note.code, note.path) if note.kind in kinds else None
            if key is not None:
                kind = by_kind.setdefault((note.kind, note.code), {})
                kind[key] = _sum(kind.get(key), _Times(note.calls, note.first, note.last))
        found: dict[Key, _Times] = {}
        for key, times in (item for kind in by_kind.values() for item in kind.items()):
            # An answer may have a warning and a change for one reason.
            found[key] = max(found.get(key, times), times, key=lambda one: one.answers)
        return found

    def _trends(self, where: Filter, keys: set[Key]) -> dict[Key, tuple[int, ...]]:
        trends: dict[Key, list[int]] = {key: [] for key in keys}
        kinds = ("warning", "change", "issue") if self._has_refused else ("warning", "change")
        for begin, end in self._parts():
            times = self._notes(replace(where, since=begin, until=end), *kinds)
            for key, trend in trends.items():
                trend.append(times[key].answers if key in times else 0)
        return {key: tuple(trend) for key, trend in trends.items()}

    def _parts(self) -> list[tuple[int, int]]:
        """The window in equal parts; of days where it is long, as there are rollups of them."""
        span = -(-(self._end - self._begin) // BUCKETS)
        unit = DAY if span >= DAY else HOUR
        span = -(-span // unit) * unit
        begins = range(self._begin // unit * unit, self._end, span)
        return [(max(begin, self._begin), min(begin + span, self._end)) for begin in begins]

    # -- what is read ------------------------------------------------------------------------

    def _sample(self, *noted: Mapping[Key, _Times]) -> list[Record]:
        """The first and last of what was noted, then others, each once."""
        found: dict[str, Record] = {}
        sizes: dict[str, int] = {}
        moments = dict.fromkeys(
            moment
            for times in noted
            for each in sorted(times.values(), key=lambda one: -one.answers)
            for moment in (each.first, each.last)
        )
        moments = list(islice(moments, MAX_LOOKS))
        looks = [replace(self._ok, since=at, until=at + 1) for at in moments]
        if self._has_refused:
            # What was refused is told by its record alone.
            looks += [replace(self._refused, since=at, until=at + 1) for at in moments]
            looks.append(self._refused)
        looks += [replace(self._ok, since=self._begin, until=until) for until in self._spread()]
        # Where nothing was noted there is less to look for.
        most = MAX_PROVED if moments else MAX_PROVED // 2
        for where in looks:
            limit = min(most // _PLACES, most - len(found))
            if not limit or sum(sizes.values()) > MAX_PROVED_BYTES:
                break
            records = self._store.log(where, limit=limit, with_payloads=True)
            found.update((record.id, record) for record in records)
            sizes |= _sizes(records)
        return list(found.values())

    def _spread(self) -> list[int]:
        """Moments of the whole window, not in their order: large answers leave room for few."""
        span = self._end - self._begin
        moments = [self._end - number * span // _PLACES for number in range(_PLACES)]
        return [moments[number * _STRIDE % _PLACES] for number in range(_PLACES)]

    # -- what is told ------------------------------------------------------------------------

    def _findings(
        self, survey: Survey, every: Mapping[Key, _Times], own: Mapping[Key, _Times]
    ) -> tuple[Finding, ...]:
        judged = {(found.path, found.rule): found for found in survey.findings()}
        # Rollups take a key of digits for an index; what was judged tells it as it is.
        blurred = {(place(path), rule) for path, rule in judged} - judged.keys()
        every = {key: times for key, times in every.items() if key not in blurred}
        own = {key: times for key, times in own.items() if key not in blurred}
        others = (record for record in survey.answers if record.contract != self._own)
        still = {key for record in others for key in survey.broken(record)}
        # What was noted under another contract counts if an answer from then breaks this one, too.
        whole = {key for key in every if key in still or every[key] == own.get(key)}
        parts = own.keys() - whole
        told = [
            *self._counted(judged, every, whole, self._where),
            *self._counted(judged, own, parts, replace(self._where, contract=self._own)),
            *(self._dated(survey, judged[key]) for key in judged.keys() - whole - parts),
        ]
        return tuple(sorted(told, key=lambda row: (-row.share, row.path, row.rule)))

    def _counted(
        self,
        judged: Mapping[Key, Finding],
        times: Mapping[Key, _Times],
        keys: set[Key],
        where: Filter,
    ) -> Iterator[Finding]:
        trends = self._trends(where, keys) if keys else {}
        for key in keys:
            found = judged.get(key) or Finding(*key, 0, 0, 0, 0, "", (), (), "")
            yield replace(
                found,
                answers=times[key].answers,
                of=self._answers,
                first=times[key].first,
                last=times[key].last,
                trend=trends[key],
            )

    def _dated(self, survey: Survey, found: Finding) -> Finding:
        """What no rollup tells: when it came first is looked for before the first that was read."""
        key = (found.path, found.rule)
        last = max((r.at for r in survey.answers if r.at < found.first), default=self._begin - 1)
        while found.first - last > 1:
            until = found.first
            near = self._before(last, until)
            is_end = len(near) < _AT_ONCE
            if not is_end:
                until = (last + found.first) // 2 + 1
                near = self._before(last, until)
            earliest = next((one for one in reversed(near) if survey.shows(one, key)), None)
            if earliest is not None:
                found = replace(found, first=earliest.at, example=earliest.id)
            if is_end:
                break
            if earliest is None:
                last = until - 1
        return found

    def _before(self, last: int, until: int) -> list[Record]:
        window = replace(self._ok, since=last + 1, until=until)
        return self._store.log(window, limit=_AT_ONCE, with_payloads=True)


def _sum(one: _Times | None, other: _Times) -> _Times:
    if one is None:
        return other
    first, last = min(one.first, other.first), max(one.last, other.last)
    return _Times(one.answers + other.answers, first, last)
