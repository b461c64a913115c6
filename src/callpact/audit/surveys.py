"""Drift of a tool of which very many answers are on record: counted by rollups, proved on some.

Few answers are all read and judged (`drift.py`). Of many, rollups tell what was noted when they
left, with the first and the last time, and the patch is made for and proved on a bounded number:
the first and the last of each thing noted, and others spread over all answers. Whatever was counted
on these alone says so by its `of`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from callpact.audit.answers import Key, noted, noted_as
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
from callpact.audit.namesakes import Namesakes
from callpact.audit.places import place
from callpact.audit.record import Record
from callpact.audit.recorder import hash_contract
from callpact.audit.sampling import Sample, sizes, stretches
from callpact.audit.store import Filter, Store
from callpact.tool import Tool

MAX_JUDGED = 2_000
"""Calls of a tool whose answers are all judged for a report."""
MAX_PROVED = 1_000
"""Answers that the patch is made for and proved on, where there are more."""
MAX_PROVED_BYTES = 2 << 20
"""Bytes of these answers, of which equal ones count once."""
MAX_LOOKS = 50
"""Moments that are looked at for answers of which something was noted."""
MAX_REFUSALS = 300
"""Refused inputs whose issues are told apart from those of refused answers one by one."""
MIN_CARRIERS = 10
"""Answers with what was noted that are looked for, where there are so many."""
_AT_ONCE = 25
_MOST_NOTES = 1_000


class _Times(Struct, frozen=True):
    """How many answers something was noted of, and when."""

    answers: int
    first: int
    last: int


def drift_of(store: Store, tool: Tool, where: Filter | None = None) -> Drift:
    """What the answers of a tool became, against its contract as it is now.

    Those under an id that is an alias now are among them. `where` says of which calls. Rollups
    answer for a window, a version or a contract of very many; of a caller or anything else, the
    latest `MAX_ROWS` are read.

    Raises:
        UsageError: the log cannot be read.
    """
    meant, own = replace(where or Filter(), tool=None), Namesakes(store, tool)
    if _are_few(own, meant):
        return drift(own.log(meant, limit=MAX_JUDGED, with_payloads=True), tool.contract)
    if not own.has_notes or not _has_rollups(meant):
        return drift(own.records(meant), tool.contract)
    return _Wide(own, tool, meant).report()


def _has_rollups(where: Filter) -> bool:
    own = Filter(
        since=where.since,
        until=where.until,
        tool=where.tool,
        version=where.version,
        contract=where.contract,
    )
    return where == own


def _are_few(own: Namesakes, where: Filter) -> bool:
    """True if all calls can be read."""
    found = own.log(where, limit=MAX_JUDGED + 1)
    return len(found) <= MAX_JUDGED and sum(sizes(found).values()) <= MAX_KEPT_BYTES


class _Wide:
    """Many answers of one tool, in whole hours."""

    def __init__(self, store: Namesakes, tool: Tool, where: Filter) -> None:
        since, until = whole_hours(where.since, where.until)
        self._store = store
        self._tool = tool
        self._own = hash_contract(tool.contract)
        self._where = replace(where, since=since, until=until)
        self._ok = replace(self._where, outcome="ok")
        self._refused = replace(self._where, gate="output")
        counts = store.counts(self._where, "gate")
        self._has_refused = "output" in counts
        self._answers = counts.get("", 0) + counts.get("output", 0)
        inputs = counts.get("input", 0) if self._has_refused else 0
        self._refusals = _Refusals(store, self._where, inputs)
        answers = (self._ok, self._refused) if self._has_refused else (self._ok,)
        self._stretches = [
            (each, stretches(store.store, each)) for one in answers for each in store.each(one)
        ]
        self._by_part: dict[Filter, list[dict[Key, _Times]]] = {}

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
        found = self._notes(where)
        if self._has_refused:
            for key, times in self._refusals.first_of(where).items():
                found[key] = _sum(found.get(key), times)
        return found

    def _notes(self, where: Filter) -> dict[Key, _Times]:
        results: dict[tuple[str, str], dict[Key, _Times]] = {}
        issues: dict[Key, _Times] = {}
        for note in self._store.notes(where, limit=_MOST_NOTES):
            kind = "warning" if note.kind == "issue" else note.kind
            if (key := noted_as(kind, note.code, note.path)) is None:
                continue
            times = _Times(note.calls, note.first, note.last)
            told = issues
            if note.kind != "issue":
                told = results.setdefault((note.kind, note.code), {})
            told[key] = _sum(told.get(key), times)
        found: dict[Key, _Times] = {}
        for key, times in (item for told in results.values() for item in told.items()):
            # An answer may have a warning and a change for one reason.
            found[key] = max(found.get(key, times), times, key=lambda one: one.answers)
        if self._has_refused:
            # A refused answer has issues, and neither warnings nor changes.
            for key, times in self._refusals.of(issues, where).items():
                found[key] = _sum(found.get(key), times)
        return found

    def _in_parts(self, where: Filter) -> list[dict[Key, _Times]]:
        """What records tell, for each part of the window."""
        if where not in self._by_part:
            self._by_part[where] = [
                self._notes(replace(where, since=begin, until=end)) for begin, end in self._parts()
            ]
        return self._by_part[where]

    def _trends(self, where: Filter, keys: set[Key]) -> dict[Key, tuple[int, ...]]:
        parts = self._in_parts(where)
        return {
            key: tuple(part[key].answers if key in part else 0 for part in parts) for key in keys
        }

    def _parts(self) -> list[tuple[int, int]]:
        """The window in equal parts; of days where it is long, as there are rollups of them."""
        times = self._notes(self._where).values()
        read = [one for _, each in self._stretches for one in each]
        begin = min((*(one.first for one in times), *(one.begin for one in read)))
        begin = begin // HOUR * HOUR if self._where.since is None else self._where.since
        end = max((*(one.last for one in times), *(one.end - 1 for one in read)))
        end = end // HOUR * HOUR + HOUR
        span = -(-(end - begin) // BUCKETS)
        unit = DAY if span >= DAY else HOUR
        span = -(-span // unit) * unit
        begins = range(begin // unit * unit, end, span)
        return [(max(start, begin), min(start + span, end)) for start in begins]

    # -- what is read ------------------------------------------------------------------------

    def _sample(self, *noted_of: Mapping[Key, _Times]) -> list[Record]:
        """The first and last of what was noted, others of all the time, and more of what is rare."""
        # Where nothing was noted there is less to look for.
        most = MAX_PROVED if any(noted_of) else MAX_PROVED // 2
        sample = Sample(self._store, most, MAX_PROVED_BYTES, looks=MAX_LOOKS)
        ends = dict.fromkeys(
            moment
            for times in noted_of
            for each in sorted(times.values(), key=lambda one: -one.answers)
            for moment in (each.first, each.last)
        )
        sample.take_at(self._where, list(ends))
        calls = [sum(one.calls for one in found) for _, found in self._stretches]
        for (where, found), count in zip(self._stretches, calls, strict=True):
            sample.take_spread(where, found, count / max(1, sum(calls)))
        carriers = Counter(key for record in sample.records for key, _ in noted(record))
        every = noted_of[0]
        rare = {key for key in every if carriers[key] < min(MIN_CARRIERS, every[key].answers)}
        if rare:
            sample.take_at(self._where, self._moments(rare))
        return sample.records

    def _moments(self, keys: set[Key]) -> list[int]:
        """When these were noted, as rollups tell it: of each key some before the next of any."""
        parts = self._in_parts(self._where)
        found = (
            [at for part in parts if key in part for at in (part[key].first, part[key].last)]
            for key in sorted(keys)
        )
        rounds = zip_longest(*(list(dict.fromkeys(each))[:MIN_CARRIERS] for each in found))
        return [at for each in rounds for at in each if at is not None]

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
        begin = min((one.begin for _, each in self._stretches for one in each), default=found.first)
        last = max((r.at for r in survey.answers if r.at < found.first), default=begin - 1)
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


class _Refusals:
    """Issues of refused answers. Rollups count them together with those of refused inputs.

    Few inputs are all read, and their issues taken off. Of more it is only known what some of them
    broke; where answers broke the same, those count of which it was the first issue.
    """

    def __init__(self, store: Namesakes, where: Filter, inputs: int) -> None:
        self._store = store
        self._inputs = self._read(replace(where, gate="input")) if inputs else {}
        self._answers: set[Key] | None = None
        if inputs > MAX_REFUSALS:
            refused = replace(where, gate="output")
            self._answers = {*self._first(refused), *self._read(refused)}

    def _read(self, where: Filter) -> dict[Key, list[Record]]:
        found: dict[Key, list[Record]] = {}
        for record in self._store.log(where, limit=MAX_REFUSALS):
            for key, _ in noted(record):
                found.setdefault(key, []).append(record)
        return found

    def of(self, issues: Mapping[Key, _Times], where: Filter) -> dict[Key, _Times]:
        """Those of answers alone; where they are not known apart, none."""
        if self._answers is not None:
            apart = self._answers - self._inputs.keys()
            return {key: times for key, times in issues.items() if key in apart}
        found: dict[Key, _Times] = {}
        for key, times in issues.items():
            others = sum(_is_meant(record, where) for record in self._inputs.get(key, ()))
            if times.answers > others:
                found[key] = replace(times, answers=times.answers - others)
        return found

    def first_of(self, where: Filter) -> dict[Key, _Times]:
        """The first issues of answers, of those that are not known apart."""
        mixed = (self._answers or set()) & self._inputs.keys()
        found = self._first(replace(where, gate="output")) if mixed else {}
        return {key: times for key, times in found.items() if key in mixed}

    def _first(self, where: Filter) -> dict[Key, _Times]:
        found: dict[Key, _Times] = {}
        for cause in self._store.causes(where, limit=_MOST_NOTES):
            path, _, rule = cause.key.partition(":")[2].rpartition(":")
            if rule:
                times = _Times(cause.calls, cause.first, cause.last)
                found[path, rule] = _sum(found.get((path, rule)), times)
        return found


def _is_meant(record: Record, where: Filter) -> bool:
    """True if a call is in a window, and of a contract."""
    if where.contract is not None and record.contract != where.contract:
        return False
    is_late = where.since is None or record.at >= where.since
    return is_late and (where.until is None or record.at < where.until)


def _sum(one: _Times | None, other: _Times) -> _Times:
    if one is None:
        return other
    first, last = min(one.first, other.first), max(one.last, other.last)
    return _Times(one.answers + other.answers, first, last)
