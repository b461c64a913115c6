"""How the answers of one tool have moved away from its output schema, and what would accept them.

Pure functions over records: each answer is judged by the current schema, and what it breaks is
counted by place and rule. The schema is then widened by as little as these answers ask for, and
every kept answer is judged again to prove it. `surveys.py` chooses what is read of very many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from callpact.audit.answers import (
    ABSENT,
    MAX_SAMPLES,
    Judge,
    Key,
    Told,
    absence,
    before_of,
    is_answer,
    is_unstructured,
    noted,
    passes,
    restored,
)
from callpact.audit.patching import Patch
from callpact.audit.places import Places
from callpact.audit.record import Record
from callpact.audit.replay import Loss, Lost, Tally, is_masked, load
from callpact.audit.store import MAX_ROWS
from callpact.audit.widening import widen
from callpact.json_text import json_text
from callpact.schema import compile_schema
from callpact.tool import Contract

MAX_FINDINGS = 100
"""Places and rules that one report tells, the commonest first."""
MAX_KEPT_BYTES = 4 << 20
"""Bytes of answers that one report judges; those beyond are told as not judged."""
MIN_STEADY = 10
"""Answers that hold an optional field, one after the other, before its absence is told."""
BUCKETS = 24
"""Parts of the window in which findings are counted, at most."""
_CLOSED = ("cast", "convert", "reject")


class Finding(Struct, frozen=True):
    """One rule that answers break at one place: how many, since when, and what stands there.

    The rule `absent` breaks no schema: an optional field that always came and no longer does.
    """

    path: str
    """A JSON Pointer with `*` for indexes."""
    rule: str
    answers: int
    of: int
    """The answers that it was looked for in, also those that keep the schema."""
    first: int
    last: int
    message: str
    samples: tuple[str, ...]
    trend: tuple[int, ...]
    """Answers with it, in equal parts of the window."""
    example: str
    """The id of the first record with it."""

    @property
    def share(self) -> float:
        """The part of all answers."""
        return self.answers / self.of if self.of else 0.0


class Proof(Struct, frozen=True):
    """How recorded answers fare with the schema as it is, and as it would be."""

    checked: int
    passed_before: int
    passed_after: int
    lost: Lost
    """Answers that were read and could not be judged again."""
    of: int
    """All answers of the window, also those that were not read."""

    @property
    def is_whole(self) -> bool:
        """True if all that could be checked passes with the patch."""
        return self.passed_after == self.checked


class Drift(Struct, frozen=True):
    """What became of the answers of one tool."""

    answers: int
    since: int
    until: int
    findings: tuple[Finding, ...]
    patch: Patch | None
    """None where the tool has no output schema."""
    proof: Proof
    is_partial: bool = False
    """True if there were more records or findings than a report holds."""


def drift(records: Iterable[Record], contract: Contract) -> Drift:
    """What the records of one tool tell about its answers, against the current contract."""
    taken = list(islice(records, MAX_ROWS + 1))
    survey = Survey(contract, taken[:MAX_ROWS])
    findings, patch = survey.findings(), survey.patch()
    return Drift(
        len(survey.answers),
        survey.since,
        survey.until,
        findings[:MAX_FINDINGS],
        patch,
        survey.proof(patch, of=len(survey.answers)),
        len(taken) > MAX_ROWS or len(findings) > MAX_FINDINGS,
    )


class _Seen:
    """One place and rule, while records are read."""

    def __init__(self, record: Record) -> None:
        self.first = self.last = record.at
        self.example = record.id
        self.answers = 0
        self.message = ""
        self.samples: list[str] = []
        self.trend = [0] * BUCKETS


class Survey:
    """Answers of one tool, judged by its current contract; what is the same is judged once."""

    def __init__(self, contract: Contract, records: Iterable[Record]) -> None:
        self._contract = contract
        self._schema = contract.compiled_output
        self._is_closed = contract.policy in _CLOSED
        self._judge = (
            None if self._schema is None else Judge(self._schema, is_closed=self._is_closed)
        )
        self._places = Places({} if self._schema is None else self._schema.document)
        self._seen: dict[Key, _Seen] = {}
        self._fields: dict[str, _Field] = {}
        self._lost = Tally()
        self._values: dict[str, Any] = {}
        self._told: dict[str, Told] = {}
        self._times: dict[str, int] = {}
        self._bytes = self._unread = 0
        self.answers = sorted(filter(is_answer, records), key=lambda record: (record.at, record.id))
        self.since = self.answers[0].at if self.answers else 0
        self.until = self.answers[-1].at if self.answers else 0
        if sum(record.output.size for record in self.answers if record.output) > MAX_KEPT_BYTES:
            # Where not all can be judged, it is the latest and the earliest.
            for record in _from_both_ends(self.answers):
                self._learn(record)
        for record in self.answers:
            self._take(record)

    def _take(self, record: Record) -> None:
        if self._judge is None:
            return
        name, loss = self._learn(record)
        if loss is not None:
            self._lost.add(loss)
            if loss == "beyond":
                self._unread += 1
                return
            for key, message in noted(record, self._places.place):
                self._count(record, key, message, "")
            return
        self._times[name] = self._times.get(name, 0) + 1
        told = self._told[name]
        for key, (message, sample) in told.broken.items():
            self._count(record, key, message, sample)
        for path, is_there in told.optional.items():
            self._fields.setdefault(path, _Field()).take(record, is_there=is_there)

    def _learn(self, record: Record) -> tuple[str, Loss | None]:
        """Judge what came, once for all answers that are the same."""
        if record.output is None or record.output.json is None or is_unstructured(record):
            return "", load(record.output)[1] or "absent"
        name = record.output.json  # Its hash is not there before it is indexed.
        if record.changes:
            name += json_text([[n.code, n.path, before_of(n)] for n in record.changes])
        if name in self._told or self._judge is None:
            return name, None
        if self._bytes + record.output.size > MAX_KEPT_BYTES:
            return name, "beyond"
        value, loss = restored(record)
        if loss is not None:
            return name, loss
        self._bytes += record.output.size
        self._values[name] = value
        self._told[name] = self._judge.told(value)
        return name, None

    def _count(self, record: Record, key: Key, message: str, sample: str) -> None:
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _Seen(record)
        seen.answers += 1
        seen.last = record.at
        seen.message = message
        seen.trend[self._bucket(record.at)] += 1
        if sample and sample not in seen.samples and len(seen.samples) < MAX_SAMPLES:
            seen.samples.append(sample)

    def _bucket(self, at: int) -> int:
        width = self.until - self.since + 1
        return (at - self.since) * BUCKETS // width

    def findings(self) -> tuple[Finding, ...]:
        """What was found, the commonest first."""
        for path, field in self._fields.items():
            if field.is_gone and (path, ABSENT) not in self._seen:
                for record in field.without:
                    self._count(record, (path, ABSENT), absence(path), "")
        found = map(self._finding, self._seen)
        return tuple(sorted(found, key=lambda row: (-row.answers, row.path, row.rule)))

    def _finding(self, key: Key) -> Finding:
        seen = self._seen[key]
        return Finding(
            *key,
            answers=seen.answers,
            of=len(self.answers) - self._unread,
            first=seen.first,
            last=seen.last,
            message=seen.message,
            samples=tuple(seen.samples),
            trend=tuple(seen.trend),
            example=seen.example,
        )

    def patch(self) -> Patch | None:
        """The smallest change of the schema with which these answers pass."""
        if self._schema is None:
            return None
        return widen(
            self._schema,
            (self._values[name] for name, told in self._told.items() if not told.passes),
            formats=self._contract.formats,
            declare=self._is_closed,
            is_hidden=is_masked,
        )

    def proof(self, patch: Patch | None, *, of: int) -> Proof:
        """Judge every kept answer again, by the schema with a patch."""
        if patch is None:
            return Proof(0, 0, 0, self._lost.lost(), of)
        schema = compile_schema(patch.after, formats=self._contract.formats)
        before = after = 0
        for name, times in self._times.items():
            before += times * self._told[name].passes
            after += times * passes(schema, self._values[name], is_closed=self._is_closed)
        return Proof(sum(self._times.values()), before, after, self._lost.lost(), of)


class _Field:
    """An optional field through time."""

    def __init__(self) -> None:
        self._steady = 0
        self._has_come = False
        self.without: list[Record] = []

    def take(self, record: Record, *, is_there: bool) -> None:
        """Note whether the next answer has it."""
        if not is_there:
            self.without.append(record)
        elif self.without:
            self._has_come = True
        else:
            self._steady += 1

    @property
    def is_gone(self) -> bool:
        """True if it came steadily and then missed, or never came although declared."""
        if self._steady >= MIN_STEADY:
            return bool(self.without)
        never = self._steady == 0 and not self._has_come
        return never and len(self.without) >= MIN_STEADY


def _from_both_ends(records: Sequence[Record]) -> Iterator[Record]:
    for latest, earliest in zip(reversed(records), records, strict=True):
        yield latest
        yield earliest
        if earliest.at > latest.at:
            return
