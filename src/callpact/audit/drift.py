"""How the answers of one tool have moved away from its output schema, and what would accept them.

Pure functions over records: what was delivered is taken back to what came (a cast tells its
changes), judged by the current schema, and grouped by place and rule. The schema is then widened by
as little as these answers ask for, and every kept answer is judged again to prove it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, cast

from msgspec import UNSET, Struct

from callpact.audit.patching import Patch
from callpact.audit.record import MAX_RECORDED_ISSUES, Note, Record
from callpact.audit.replay import Loss, Lost, Tally, at_masked, is_masked, load, value_at
from callpact.audit.store import MAX_ROWS
from callpact.audit.widening import place, signature, stripped, widen
from callpact.errors import Issue
from callpact.json_text import json_text
from callpact.schema import CompiledSchema, compile_schema, fit
from callpact.schema.document import pointer, resolve
from callpact.schema.issues import explain
from callpact.secrets import MASK
from callpact.tool import Contract

MAX_FINDINGS = 100
"""Places and rules that one report tells, the commonest first."""
MAX_SAMPLES = 3
"""What was found at a place, told as samples."""
MAX_KEPT_BYTES = 64 << 20
"""Bytes of answers that are held for one report; what is beyond is not judged."""
MIN_STEADY = 10
"""Answers that hold an optional field, one after the other, before its absence is told."""
BUCKETS = 24
"""Parts of the window in which findings are counted."""
_MAX_SAMPLE = 80
_MAX_PLACES = 5_000
_UNDECLARED = "additionalProperties"
_ABSENT = "absent"
_UNSTRUCTURED = "must be structured data"
_NOT_RULES = frozenset({"renamed", "converted", "replaced", "residual", "cast"})
_CLOSED = ("cast", "reject")

Key = tuple[str, str]
_Words = tuple[str, str]


class Finding(Struct, frozen=True):
    """One rule that answers break at one place: how many, since when, and what stands there.

    The rule `absent` breaks no schema: an optional field that always came and no longer does.
    """

    path: str
    """A JSON Pointer with `*` for indexes."""
    rule: str
    answers: int
    of: int
    """All answers, also those that keep the schema."""
    first: int
    last: int
    message: str
    samples: tuple[str, ...]
    trend: tuple[int, ...]
    """Answers with it, in `BUCKETS` equal parts of the window."""
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
    """Answers that could not be judged again."""

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
    ordered = sorted(taken[:MAX_ROWS], key=lambda record: (record.at, record.id))
    answers = [record for record in ordered if _is_answer(record)]
    survey = _Survey(contract, answers)
    for record in answers:
        survey.take(record)
    return survey.report(is_partial=len(taken) > MAX_ROWS)


class _Seen:
    """One place and rule, while records are read."""

    def __init__(self, record: Record) -> None:
        self.first = self.last = record.at
        self.example = record.id
        self.answers = 0
        self.message = ""
        self.samples: list[str] = []
        self.trend = [0] * BUCKETS


class _Told(Struct, frozen=True):
    """What one answer tells: the rules that it breaks, and which optional fields it has."""

    broken: dict[Key, _Words]
    """Message and sample by place and rule."""
    optional: dict[str, bool]
    """Places of optional fields: True if the field is there wherever it could be."""
    passes: bool


class _Survey:
    def __init__(self, contract: Contract, answers: list[Record]) -> None:
        self._contract = contract
        self._schema = contract.compiled_output
        self._is_closed = contract.policy in _CLOSED
        self._judge = (
            None if self._schema is None else _Judge(self._schema, is_closed=self._is_closed)
        )
        self._since = answers[0].at if answers else 0
        self._until = answers[-1].at if answers else 0
        self._answers = len(answers)
        self._seen: dict[Key, _Seen] = {}
        self._fields: dict[str, _Field] = {}
        self._lost = Tally()
        self._values: dict[str, Any] = {}
        self._told: dict[str, _Told] = {}
        self._times: dict[str, int] = {}
        self._bytes = 0

    def take(self, record: Record) -> None:
        if self._judge is None:
            return
        name, loss = self._learn(record, self._judge)
        if loss is not None:
            self._lost.add(loss)
            for key, message in _noted(record):
                self._count(record, key, message, "")
            return
        self._times[name] = self._times.get(name, 0) + 1
        told = self._told[name]
        for key, (message, sample) in told.broken.items():
            self._count(record, key, message, sample)
        for path, is_there in told.optional.items():
            self._fields.setdefault(path, _Field()).take(record, is_there=is_there)

    def _learn(self, record: Record, judge: _Judge) -> tuple[str, Loss | None]:
        """Judge what came, once for all answers that are the same."""
        if record.output is None or record.output.json is None or _is_unstructured(record):
            return "", load(record.output)[1] or "absent"
        name = record.output.json  # Its hash is not there before it is indexed.
        if record.changes:
            name += json_text([[n.code, n.path, _before(n)] for n in record.changes])
        if name in self._told:
            return name, None
        value, loss = restored(record)
        if loss is None and self._bytes + record.output.size > MAX_KEPT_BYTES:
            loss = "cut"
        if loss is not None:
            return name, loss
        self._bytes += record.output.size
        self._values[name] = value
        self._told[name] = judge.told(value)
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
        width = self._until - self._since + 1
        return (at - self._since) * BUCKETS // width

    def report(self, *, is_partial: bool) -> Drift:
        for path, field in self._fields.items():
            if field.is_gone:
                for record in field.without:
                    self._count(record, (path, _ABSENT), _absence(path), "")
        rows = sorted(
            map(self._finding, self._seen), key=lambda row: (-row.answers, row.path, row.rule)
        )
        patch = self._patch()
        return Drift(
            self._answers,
            self._since,
            self._until,
            tuple(rows[:MAX_FINDINGS]),
            patch,
            self._proof(patch),
            is_partial or len(rows) > MAX_FINDINGS,
        )

    def _finding(self, key: Key) -> Finding:
        seen = self._seen[key]
        return Finding(
            *key,
            answers=seen.answers,
            of=self._answers,
            first=seen.first,
            last=seen.last,
            message=seen.message,
            samples=tuple(seen.samples),
            trend=tuple(seen.trend),
            example=seen.example,
        )

    def _failing(self) -> Iterator[Any]:
        return (self._values[name] for name, told in self._told.items() if not told.passes)

    def _patch(self) -> Patch | None:
        if self._schema is None:
            return None
        return widen(
            self._schema,
            self._failing(),
            formats=self._contract.formats,
            declare=self._is_closed,
            is_hidden=is_masked,
        )

    def _proof(self, patch: Patch | None) -> Proof:
        if patch is None:
            return Proof(0, 0, 0, self._lost.lost())
        schema = compile_schema(patch.after, formats=self._contract.formats)
        before = after = 0
        for name, times in self._times.items():
            before += times * self._told[name].passes
            after += times * passes(schema, self._values[name], is_closed=self._is_closed)
        return Proof(sum(self._times.values()), before, after, self._lost.lost())


class _Field:
    """An optional field through time."""

    def __init__(self) -> None:
        self._steady = 0
        self._has_come = False
        self.without: list[Record] = []

    def take(self, record: Record, *, is_there: bool) -> None:
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


# --- one answer -----------------------------------------------------------------------------


def passes(schema: CompiledSchema, value: Any, *, is_closed: bool) -> bool:
    """True if an answer keeps a schema; for a closed one, also if nothing would be changed."""
    try:
        is_kept = schema.accepts(value)
    except ValueError:
        is_kept = False
    if not is_kept:
        return not _told_issues(schema, schema.errors(value), value) if _has_mask(value) else False
    return not is_closed or not fit(schema, value).changes


def _has_mask(value: Any) -> bool:
    return MASK in json_text(value)


def _told_issues(schema: CompiledSchema, errors: Iterable[Any], value: Any) -> list[Issue]:
    issues = explain(schema, errors, "Output")
    return [issue for issue in issues if not at_masked(value, issue.path)]


class _Judge:
    """Tells the rules that answers break; what breaks the same rules is put into words once."""

    def __init__(self, schema: CompiledSchema, *, is_closed: bool) -> None:
        self._schema = schema
        self._is_closed = is_closed
        self._plan = _Plan(schema.document)
        self._known: dict[tuple[Key, ...], list[dict[Key, _Words]]] = {}

    def told(self, value: Any) -> _Told:
        optional = self._plan.optional(value)
        if passes(self._schema, value, is_closed=self._is_closed):
            return _Told({}, optional, passes=True)
        broken = dict(self._broken(value))
        if self._is_closed:
            for path in stripped(self._schema, value):
                key = (place(path), _UNDECLARED)
                broken.setdefault(key, (_undeclared(path), _sample(value, path)))
        return _Told(broken, optional, passes=False)

    def _broken(self, value: Any) -> dict[Key, _Words]:
        errors = self._schema.errors(value)
        kind = () if _has_mask(value) else signature(errors)
        known = self._known.setdefault(kind, []) if kind else []
        if len(known) >= MAX_SAMPLES:
            return known[-1]
        broken: dict[Key, _Words] = {}
        for issue in _told_issues(self._schema, errors, value):
            words = (issue.message, _sample(value, issue.path))
            broken.setdefault((place(issue.path), issue.code), words)
        known.append(broken)
        return broken


def _noted(record: Record) -> Iterator[tuple[Key, str]]:
    """What a record itself tells, where the answer cannot be judged again."""
    told: dict[Key, str] = {}
    for note in (*record.issues, *record.warnings):
        if note.code not in _NOT_RULES:
            told.setdefault((place(note.path), note.code), note.message)
    for note in record.changes:
        if note.code == "stripped":
            told.setdefault((place(note.path), _UNDECLARED), _undeclared(note.path))
    yield from told.items()


def _undeclared(path: str) -> str:
    return f"Output property at {place(path)} is not declared"


def _absence(path: str) -> str:
    return f"Output property at {path} is declared, may be missing, and does not come any more"


def _sample(value: Any, path: str) -> str:
    found = value_at(value, path)
    text = "" if found is UNSET else json_text(found)
    return text if len(text) <= _MAX_SAMPLE else text[:_MAX_SAMPLE] + "…"


class _Plan:
    """Where a schema declares fields that may be missing, read once for all answers."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._left = _MAX_PLACES
        self._root = self._read(document, "", ())

    def optional(self, value: Any) -> dict[str, bool]:
        """Each such field with whether it is there in all objects that could have it."""
        found: dict[str, bool] = {}
        if self._root is not None:
            _visit(self._root, value, found)
        return found

    def _read(self, node: Any, path: str, above: tuple[int, ...]) -> _Spot | None:
        self._left -= 1
        if self._left < 0 or not isinstance(node, dict) or id(cast("Any", node)) in above:
            return None
        rules = cast("dict[str, Any]", node)
        inside = (*above, id(rules))
        if isinstance(rules.get("$ref"), str):
            return self._read(resolve(self._document, rules["$ref"]), path, inside)
        needed: Any = rules.get("required", ())
        fields: list[tuple[str, str]] = []
        children: list[tuple[str, _Spot]] = []
        for key, rule in cast("dict[str, Any]", rules.get("properties") or {}).items():
            inner = path + pointer([key])
            if key not in needed:
                fields.append((key, inner))
            child = self._read(rule, inner, inside)
            if child is not None:
                children.append((key, child))
        items = self._read(rules.get("items"), f"{path}/*", inside)
        if not fields and not children and items is None:
            return None
        return _Spot(tuple(fields), tuple(children), items)


class _Spot(Struct, frozen=True):
    """One place of a plan."""

    fields: tuple[tuple[str, str], ...]
    """Key and place of each field of an object here that may be missing."""
    children: tuple[tuple[str, _Spot], ...]
    items: _Spot | None


def _visit(spot: _Spot, value: Any, found: dict[str, bool]) -> None:
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        for key, path in spot.fields:
            found[path] = key in held and found.get(path, True)
        for key, child in spot.children:
            if key in held:
                _visit(child, held[key], found)
    elif isinstance(value, list) and spot.items is not None:
        for item in cast("list[Any]", value):
            _visit(spot.items, item, found)


def _is_answer(record: Record) -> bool:
    # What an MCP server sends as an error is let out unjudged.
    return record.gate in (None, "output") and not getattr(record, "tool_error", False)


def _is_unstructured(record: Record) -> bool:
    """True if bytes or content blocks came: no schema speaks of them."""
    return any(note.path == "" and _UNSTRUCTURED in note.message for note in record.warnings)


# --- what came ------------------------------------------------------------------------------


def restored(record: Record) -> tuple[Any, Loss | None]:
    """What came, before a cast changed it; UNSET and the reason if the record does not tell it."""
    value, loss = load(record.output)
    if loss is not None or not record.changes:
        return value, loss
    if len(record.changes) >= MAX_RECORDED_ISSUES:
        return UNSET, "cut"
    held = [copy.deepcopy(value)]
    try:
        for note in reversed(record.changes):
            _undo(held, note)
    except (LookupError, TypeError, ValueError):
        return UNSET, "cut"
    return held[0], None


def _before(note: Note) -> str | None:
    """JSON of what stood at the place of a change; None where a record does not keep it."""
    return cast("str | None", getattr(note, "before", None))


def _undo(root: list[Any], note: Note) -> None:
    above, _, last = note.path.rpartition("/")
    holder: Any = value_at(root[0], above) if note.path else root
    key: Any = last.replace("~1", "/").replace("~0", "~") if note.path else 0
    if note.code == "filled":
        # What was filled into a value that was replaced as a whole is gone with it.
        if isinstance(holder, dict):
            cast("dict[str, Any]", holder).pop(key, None)
        return
    before = _before(note)
    if before is None:
        raise LookupError(note.path)
    if isinstance(holder, list):
        key = int(key)
    holder[key] = json.loads(before)
