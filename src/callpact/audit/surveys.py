"""Drift of a tool of which very many answers are on record: counted in all, judged on the latest.

Few answers are all read and judged (`drift.py`). Of more, the latest `MAX_SAMPLED` records are read
and judged, and one query counts over the whole window what was noted of answers under the present
contract when they left. A finding that was counted on the sample alone says so by its `of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from callpact.audit.answers import Key, noted_as
from callpact.audit.drift import MAX_FINDINGS, Drift, Finding, Survey, drift
from callpact.audit.namesakes import Namesakes
from callpact.audit.record import Record, place
from callpact.audit.recorder import hash_contract
from callpact.audit.store import Filter, Store
from callpact.tool import Tool

MAX_SAMPLED = 5_000
"""Records of a tool that are read for a report on drift: the latest."""
MAX_SAMPLED_BYTES = 32 << 20
"""Bytes of the answers that are read for a report on drift."""


class _Times(Struct, frozen=True):
    """How many answers something was noted of, and when."""

    answers: int
    first: int
    last: int


def drift_of(store: Store, tool: Tool, where: Filter | None = None) -> Drift:
    """How the answers of a tool differ from its contract as it is now.

    Those under an id that is an alias now are among them. `where` says of which calls.

    Raises:
        UsageError: the log cannot be read.
    """
    meant, own = replace(where or Filter(), tool=None), Namesakes(store, tool)
    records, is_whole = _latest(own, meant)
    if is_whole:
        return drift(records, tool.contract)
    return _wide(own, tool, meant, records)


def _latest(own: Namesakes, where: Filter) -> tuple[list[Record], bool]:
    """The latest records, and whether these are all."""
    records: list[Record] = []
    size = 0
    for record in own.records(where, MAX_SAMPLED + 1):
        if len(records) == MAX_SAMPLED or size > MAX_SAMPLED_BYTES:
            return records, False
        records.append(record)
        size += 0 if record.output is None else len(record.output.json or "")
    return records, True


def _wide(own: Namesakes, tool: Tool, where: Filter, records: list[Record]) -> Drift:
    contract = hash_contract(tool.contract)
    here = replace(where, contract=contract)
    every, of_contract = (_answers(own.counts(each, "gate")) for each in (where, here))
    survey = Survey(tool.contract, records)
    times = _noted(own, here) if where.contract in (None, contract) else {}
    findings = tuple(
        sorted(
            _findings(survey, times, of_contract),
            key=lambda found: (-found.share, found.path, found.rule),
        )
    )
    patch = survey.patch()
    return Drift(
        every,
        min((survey.since, *(found.first for found in findings))),
        max((survey.until, *(found.last for found in findings))),
        findings[:MAX_FINDINGS],
        patch,
        survey.proof(patch, of=every),
        len(findings) > MAX_FINDINGS,
    )


def _answers(counts: Mapping[str, int]) -> int:
    return counts.get("", 0) + counts.get("output", 0)


def _noted(own: Namesakes, where: Filter) -> dict[Key, _Times]:
    """What records tell of answers: the warnings and changes of results, the issues of refused ones."""
    kinds: dict[tuple[str, str], dict[Key, _Times]] = {}
    for note in own.answer_notes(where):
        kind = "warning" if note.kind == "issue" else note.kind
        if (key := noted_as(kind, note.code, note.path)) is not None:
            told = kinds.setdefault((note.kind, note.code), {})
            told[key] = _sum(told.get(key), _Times(note.calls, note.first, note.last))
    found: dict[Key, _Times] = {}
    for (kind, _), told in kinds.items():
        for key, times in told.items():
            if kind == "issue":  # A refused answer has neither warnings nor changes.
                found[key] = _sum(found.get(key), times)
            else:  # A result may have a warning and a change for one reason.
                found[key] = max(found.get(key, times), times, key=lambda one: one.answers)
    return found


def _sum(one: _Times | None, other: _Times) -> _Times:
    if one is None:
        return other
    first, last = min(one.first, other.first), max(one.last, other.last)
    return _Times(one.answers + other.answers, first, last)


def _findings(survey: Survey, times: Mapping[Key, _Times], of: int) -> Iterator[Finding]:
    judged = {(found.path, found.rule): found for found in survey.findings()}
    # A note has `*` for every key of digits; what was judged has the key itself.
    blurred = {(place(path), rule) for path, rule in judged} - judged.keys()
    for key, noted in times.items():
        if key in blurred:
            continue
        found = judged.pop(key, None) or Finding(*key, 0, 0, 0, 0, "", (), (), "")
        if noted.answers < found.answers:  # Of former contracts there are more in the sample.
            yield found
            continue
        yield replace(found, answers=noted.answers, of=of, first=noted.first, last=noted.last)
    yield from judged.values()
