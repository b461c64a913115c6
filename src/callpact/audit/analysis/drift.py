"""Differences between the outputs of one tool and its output schema, and edits that accept them.

The latest `MAX_JUDGED` records are read, each output is checked against the current schema, and
violations are counted by place and rule. Where there are more records, one query over the whole
window counts the violations that were recorded under the current contract; a finding that was
counted on the latest records alone has their number in `of`. The edits are verified on every
output that was read.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from callpact.audit.analysis.replay import Loss, Lost, Tally, at_masked, is_masked, load, value_at
from callpact.audit.analysis.schema_edits import (
    Patch,
    nullable_of,
    place_in,
    propose_edits,
    stripped,
    target_of,
)
from callpact.audit.journal.recorder import hash_contract
from callpact.audit.pages import MAX_JUDGED, ToolRecords
from callpact.audit.record import MAX_RECORDED_ISSUES, Note, Record, place
from callpact.audit.store import Filter, Store
from callpact.errors import Issue
from callpact.schema import CompiledSchema, compile_schema, fit, is_array, is_object
from callpact.schema.document import Document, pointer
from callpact.schema.issues.explain import explain
from callpact.schema.json_text import json_text
from callpact.secrets.masker import MASK
from callpact.tool import Contract, Tool

MAX_READ_BYTES = 32 << 20
"""Bytes of the outputs that are read for a report on drift."""
MAX_KEPT_BYTES = 4 << 20
"""Bytes of distinct outputs that one report checks, the latest; others are counted as not checked."""
MAX_FINDINGS = 100
"""Places and rules in one report, the commonest first."""
MAX_SAMPLES = 3
"""Values that a finding shows as samples."""
MIN_STEADY = 10
"""Outputs in a row that hold an optional field before its absence is a finding."""
BUCKETS = 24
"""Parts of the window in which findings are counted, at most."""
UNDECLARED = "additionalProperties"
ABSENT = "absent"
"""The rule of an optional field that always came and no longer does."""
_CLOSED = ("cast", "convert", "reject")
_UNIONS = ("anyOf", "oneOf", "propertyNames")
_NOT_RULES = frozenset({"renamed", "converted", "replaced", "residual", "cast", "projection"})
_UNSTRUCTURED = "must be structured data"
_MAX_SAMPLE = 80
_MAX_PLACES = 5_000
_MAX_STEPS = 24
_ALIKE = 5
_OBJECTS = frozenset({"properties", "patternProperties", "additionalProperties"})

Key = tuple[str, str]
"""A place, with `*` for indexes, and a rule."""
Words = tuple[str, str]
"""A message, and a sample."""


class DriftFinding(Struct, frozen=True):
    """One rule that outputs break at one place: how many, since when, and samples of them.

    The rule `absent` breaks no schema: an optional field that always came and no longer does.
    """

    path: str
    """A JSON Pointer with `*` for indexes."""
    rule: str
    outputs: int = field(name="answers")
    of: int
    """The outputs that were checked for it, including those that match the schema."""
    first: int
    last: int
    message: str
    samples: tuple[str, ...]
    trend: tuple[int, ...]
    """Outputs with this violation, in equal parts of the window."""
    example: str
    """The id of the first record with this violation."""

    @property
    def share(self) -> float:
        """The share of all outputs."""
        return self.outputs / self.of if self.of else 0.0


class Proof(Struct, frozen=True):
    """How many recorded outputs pass the current schema, and how many the edited one."""

    checked: int
    passed_before: int
    passed_after: int
    lost: Lost
    """Outputs that were read and could not be checked again."""
    of: int
    """All outputs of the window, including those that were not read."""

    @property
    def is_whole(self) -> bool:
        """True if all checked outputs pass with the patch."""
        return self.passed_after == self.checked


class Drift(Struct, frozen=True):
    """A report on the outputs of one tool."""

    outputs: int = field(name="answers")
    """All outputs of the window."""
    since: int
    until: int
    findings: tuple[DriftFinding, ...]
    patch: Patch | None
    """None where the tool has no output schema."""
    proof: Proof
    is_partial: bool = False
    """True if there were more records or findings than a report holds."""


def drift_of(store: Store, tool: Tool, where: Filter | None = None) -> Drift:
    """Compare the recorded outputs of a tool with its current contract.

    Outputs under an id that is now an alias of the tool are included. `where` selects the calls.

    Raises:
        UsageError: the log cannot be read.
    """
    meant, own = replace(where or Filter(), tool=None), ToolRecords(store, tool)
    records, is_whole = _latest(own, meant)
    if is_whole:
        return drift(records, tool.contract)
    return _wide(own, tool, meant, records)


def drift(records: Iterable[Record], contract: Contract) -> Drift:
    """Compare the outputs in the records of one tool with the current contract."""
    taken = list(islice(records, MAX_JUDGED + 1))
    survey = _Survey(contract, taken[:MAX_JUDGED])
    findings, patch = survey.findings(), survey.patch()
    return Drift(
        len(survey.records),
        survey.since,
        survey.until,
        findings[:MAX_FINDINGS],
        patch,
        survey.proof(patch, of=len(survey.records)),
        len(taken) > MAX_JUDGED or len(findings) > MAX_FINDINGS,
    )


# --- the latest records, and the whole window -----------------------------------------------


class _Times(Struct, frozen=True):
    """How many outputs have a recorded violation, and when the first and the last."""

    outputs: int
    first: int
    last: int


def _latest(own: ToolRecords, where: Filter) -> tuple[list[Record], bool]:
    """The latest records, and whether they are all records."""
    records: list[Record] = []
    size = 0
    for record in own.records(where, MAX_JUDGED + 1):
        if len(records) == MAX_JUDGED or size > MAX_READ_BYTES:
            return records, False
        records.append(record)
        size += 0 if record.output is None else len(record.output.json or "")
    return records, True


def _wide(own: ToolRecords, tool: Tool, where: Filter, records: list[Record]) -> Drift:
    contract = hash_contract(tool.contract)
    here = replace(where, contract=contract)
    every, of_contract = (_outputs(own.counts(each, "gate")) for each in (where, here))
    survey = _Survey(tool.contract, records)
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


def _outputs(counts: Mapping[str, int]) -> int:
    return counts.get("", 0) + counts.get("output", 0)


def _noted(own: ToolRecords, where: Filter) -> dict[Key, _Times]:
    """The rules that outputs broke: warnings and changes of results, issues of refused ones."""
    kinds: dict[tuple[str, str], dict[Key, _Times]] = {}
    for note in own.output_notes(where):
        kind = "warning" if note.kind == "issue" else note.kind
        if (key := noted_as(kind, note.code, note.path)) is not None:
            of_kind = kinds.setdefault((note.kind, note.code), {})
            of_kind[key] = _sum(of_kind.get(key), _Times(note.calls, note.first, note.last))
    found: dict[Key, _Times] = {}
    for (kind, _), of_kind in kinds.items():
        for key, times in of_kind.items():
            if kind == "issue":  # A refused output has neither warnings nor changes.
                found[key] = _sum(found.get(key), times)
            else:  # A result may have a warning and a change for one reason.
                found[key] = max(found.get(key, times), times, key=lambda one: one.outputs)
    return found


def _sum(one: _Times | None, other: _Times) -> _Times:
    if one is None:
        return other
    first, last = min(one.first, other.first), max(one.last, other.last)
    return _Times(one.outputs + other.outputs, first, last)


def _findings(survey: _Survey, times: Mapping[Key, _Times], of: int) -> Iterator[DriftFinding]:
    judged = {(found.path, found.rule): found for found in survey.findings()}
    # A note has `*` for every key of digits; a checked output has the key itself.
    blurred = {(place(path), rule) for path, rule in judged} - judged.keys()
    for key, noted in times.items():
        if key in blurred:
            continue
        found = judged.pop(key, None) or DriftFinding(*key, 0, 0, 0, 0, "", (), (), "")
        if noted.outputs < found.outputs:  # The sample includes outputs of former contracts.
            yield found
            continue
        yield replace(found, outputs=noted.outputs, of=of, first=noted.first, last=noted.last)
    yield from judged.values()


# --- all outputs ----------------------------------------------------------------------------


class _Seen:
    """The outputs that break one rule at one place, while records are read."""

    def __init__(self, record: Record) -> None:
        self.first = self.last = record.at
        self.example = record.id
        self.outputs = 0
        self.message = ""
        self.samples: list[str] = []
        self.trend = [0] * BUCKETS


class _Survey:
    """The outputs of one tool, checked against its current contract; equal ones are checked once."""

    def __init__(self, contract: Contract, records: Iterable[Record]) -> None:
        self._contract = contract
        self._schema = contract.compiled_output
        self._is_closed = contract.policy in _CLOSED
        self._judge = (
            None if self._schema is None else _Judge(self._schema, is_closed=self._is_closed)
        )
        self._seen: dict[Key, _Seen] = {}
        self._fields: dict[str, _Field] = {}
        self._lost = Tally()
        self._values: dict[str, Any] = {}
        self._judged: dict[str, _Judged] = {}
        self._times: dict[str, int] = {}
        self._bytes = self._unread = 0
        self.records = sorted(
            filter(_has_output, records), key=lambda record: (record.at, record.id)
        )
        self.since = self.records[0].at if self.records else 0
        self.until = self.records[-1].at if self.records else 0
        if sum(record.output.size for record in self.records if record.output) > MAX_KEPT_BYTES:
            for record in reversed(self.records):  # Not all fit: check the latest.
                self._learn(record)
        for record in self.records:
            self._take(record)

    def _take(self, record: Record) -> None:
        if self._judge is None or self._schema is None:
            return
        name, loss = self._learn(record)
        if loss is not None:
            self._lost.add(loss)
            if loss == "beyond":
                self._unread += 1
                return
            for key, message in _noted_in(record, self._schema.document):
                self._count(record, key, message, "")
            return
        self._times[name] = self._times.get(name, 0) + 1
        judged = self._judged[name]
        for key, (message, sample) in judged.broken.items():
            self._count(record, key, message, sample)
        for path, is_there in judged.optional.items():
            self._fields.setdefault(path, _Field()).take(record, is_there=is_there)

    def _learn(self, record: Record) -> tuple[str, Loss | None]:
        """Check an output, once for all equal ones."""
        if record.output is None or record.output.json is None or _is_unstructured(record):
            return "", load(record.output)[1] or "absent"
        name = record.output.json  # Its hash is not there before it is indexed.
        if record.changes:
            name += json_text([[n.code, n.path, n.before] for n in record.changes])
        if name in self._judged or self._judge is None:
            return name, None
        if self._bytes + record.output.size > MAX_KEPT_BYTES:
            return name, "beyond"
        value, loss = restored(record)
        if loss is not None:
            return name, loss
        self._bytes += record.output.size
        self._values[name] = value
        self._judged[name] = self._judge.judge(value)
        return name, None

    def _count(self, record: Record, key: Key, message: str, sample: str) -> None:
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _Seen(record)
        seen.outputs += 1
        seen.last = record.at
        seen.message = message
        seen.trend[self._bucket(record.at)] += 1
        if sample and sample not in seen.samples and len(seen.samples) < MAX_SAMPLES:
            seen.samples.append(sample)

    def _bucket(self, at: int) -> int:
        width = self.until - self.since + 1
        return (at - self.since) * BUCKETS // width

    def findings(self) -> tuple[DriftFinding, ...]:
        """The places and rules that were found, the commonest first."""
        for path, found in self._fields.items():
            if found.is_gone and (path, ABSENT) not in self._seen:
                for record in found.without:
                    self._count(record, (path, ABSENT), _absence(path), "")
        rows = map(self._finding, self._seen)
        return tuple(sorted(rows, key=lambda row: (-row.outputs, row.path, row.rule)))

    def _finding(self, key: Key) -> DriftFinding:
        seen = self._seen[key]
        return DriftFinding(
            *key,
            outputs=seen.outputs,
            of=len(self.records) - self._unread,
            first=seen.first,
            last=seen.last,
            message=seen.message,
            samples=tuple(seen.samples),
            trend=tuple(seen.trend),
            example=seen.example,
        )

    def patch(self) -> Patch | None:
        """The smallest change of the schema that accepts these outputs."""
        if self._schema is None:
            return None
        return propose_edits(
            self._schema,
            (self._values[name] for name in self._times if not self._judged[name].passes),
            formats=self._contract.formats,
            declare=self._is_closed,
            is_hidden=is_masked,
        )

    def proof(self, patch: Patch | None, *, of: int) -> Proof:
        """Check every kept output again, with the patched schema."""
        if patch is None:
            return Proof(0, 0, 0, self._lost.lost(), of)
        schema = compile_schema(patch.after, formats=self._contract.formats)
        before = after = 0
        for name, times in self._times.items():
            before += times * self._judged[name].passes
            after += times * passes(schema, self._values[name], is_closed=self._is_closed)
        return Proof(sum(self._times.values()), before, after, self._lost.lost(), of)


class _Field:
    """Presence of an optional field over time."""

    def __init__(self) -> None:
        self._steady = 0
        self._has_come = False
        self.without: list[Record] = []

    def take(self, record: Record, *, is_there: bool) -> None:
        """Count the next output, with or without the field."""
        if not is_there:
            self.without.append(record)
        elif self.without:
            self._has_come = True
        else:
            self._steady += 1

    @property
    def is_gone(self) -> bool:
        """True if the field was always present and then missing, or declared and never present."""
        if self._steady >= MIN_STEADY:
            return bool(self.without)
        never = self._steady == 0 and not self._has_come
        return never and len(self.without) >= MIN_STEADY


# --- one output -----------------------------------------------------------------------------


class _Judged(Struct, frozen=True):
    """The rules that one output breaks, and the optional fields that it has."""

    broken: dict[Key, Words]
    """Message and sample by place and rule."""
    optional: dict[str, bool]
    """Places of optional fields: True if the field is in every object that may have it."""
    passes: bool


def passes(schema: CompiledSchema, value: Any, *, is_closed: bool) -> bool:
    """True if an output matches a schema; for a closed one, also if a cast would change nothing."""
    try:
        is_kept = schema.accepts(value)
    except ValueError:
        is_kept = False
    if not is_kept:
        return _has_mask(value) and not _issues(schema, schema.errors(value), value)
    return not is_closed or not fit(schema, value).changes


def _has_mask(value: Any) -> bool:
    return MASK in json_text(value)


def _issues(schema: CompiledSchema, errors: Iterable[Any], value: Any) -> list[Issue]:
    issues = explain(schema, errors, "Output")
    return [issue for issue in issues if not at_masked(value, issue.path)]


class _Judge:
    """Finds the rules that outputs break; equal sets of violations are worded a few times only."""

    def __init__(self, schema: CompiledSchema, *, is_closed: bool) -> None:
        self._schema = schema
        self._is_closed = is_closed
        self._plan = _Plan(schema.document)
        self._known: dict[tuple[tuple[str, ...], ...], list[dict[Key, Words]]] = {}

    def judge(self, value: Any) -> _Judged:
        optional = self._plan.optional(value)
        if passes(self._schema, value, is_closed=self._is_closed):
            return _Judged({}, optional, passes=True)
        broken = dict(self._broken(value))
        if self._is_closed:
            for path in stripped(self._schema, value):
                found = place_in(value, path)
                words = (_undeclared(found), _sample(value, path))
                broken.setdefault((found, UNDECLARED), words)
        return _Judged(broken, optional, passes=False)

    def _broken(self, value: Any) -> dict[Key, Words]:
        errors: list[Any] = []
        counts: dict[tuple[str, ...], int] = {}
        for error in self._schema.errors(value):
            kind = _kind(error, value)
            counts[kind] = counts.get(kind, 0) + 1
            # The number of explained errors is bounded: one rule must not hide the others.
            if not kind or counts[kind] <= _ALIKE:
                errors.append(error)
        is_plain = () not in counts and not _has_mask(value)
        known = self._known.setdefault(tuple(counts), []) if is_plain else []
        if len(known) >= MAX_SAMPLES:
            return known[-1]
        broken: dict[Key, Words] = {}
        for issue in _issues(self._schema, errors, value):
            words = (issue.message, _sample(value, issue.path))
            broken.setdefault((place_in(value, issue.path), issue.code), words)
        known.append(broken)
        return broken


def _kind(error: Any, value: Any) -> tuple[str, ...]:
    """The place, the rule and the keys of a violation; empty where its issues may differ."""
    if isinstance(error, Issue) or error.kind.name in _UNIONS:
        return ()
    code, details = str(error.kind.name), error.kind.as_dict()
    keys = [details["property"]] if code == "required" else details.get("unexpected", ())
    rule = pointer(error.schema_path)
    return (place_in(value, pointer(error.instance_path)), code, rule, *map(str, keys))


def _noted_in(record: Record, document: Document) -> Iterator[tuple[Key, str]]:
    """The recorded violations of an output that cannot be checked again."""
    found: dict[Key, str] = {}
    for note in (*record.issues, *record.warnings):
        key = noted_as("warning", note.code, _place_by(document, note.path))
        if key is not None:
            found.setdefault(key, note.message)
    for note in record.changes:
        key = noted_as("change", note.code, _place_by(document, note.path))
        if key is not None:
            found.setdefault(key, _undeclared(key[0]))
    yield from found.items()


def noted_as(kind: str, code: str, path: str) -> Key | None:
    """The place and rule of an issue, warning or change; None if it is not a violation."""
    if kind == "change":
        return (path, UNDECLARED) if code == "stripped" else None
    return None if code in _NOT_RULES else (path, code)


def _place_by(document: Document, path: str) -> str:
    """A JSON Pointer with `*` for indexes; digits are a key where the schema declares an object."""
    found, node = "", document
    for part in path.split("/")[1:]:
        rules = _described(document, node)
        is_key = not part.isdecimal() or not _OBJECTS.isdisjoint(rules)
        found += f"/{part}" if is_key else "/*"
        declared: dict[str, Any] = rules.get("properties") or {}
        name = part.replace("~1", "/").replace("~0", "~")
        member = declared[name] if name in declared else rules.get("additionalProperties")
        node = member if is_key else rules.get("items")
    return found


def _described(document: Document, node: Any) -> dict[str, Any]:
    """The rules of a place, behind references and `anyOf: [X, null]`."""
    for _ in range(_MAX_STEPS):
        if not is_object(node):
            break
        inner = target_of(document, node) or nullable_of(node)
        if inner is None:
            return node
        node = inner
    return {}


def _undeclared(path: str) -> str:
    return f"Output property at {path} is not declared"


def _absence(path: str) -> str:
    return f"Output property at {path} is declared, may be missing, and does not come any more"


def _sample(value: Any, path: str) -> str:
    found = value_at(value, path)
    text = "" if found is UNSET else json_text(found)
    return text if len(text) <= _MAX_SAMPLE else text[:_MAX_SAMPLE] + "…"


class _Plan:
    """The optional fields that a schema declares, read once for all outputs."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._left = _MAX_PLACES
        self._root = self._read(document, "", ())

    def optional(self, value: Any) -> dict[str, bool]:
        """Each optional field, with whether every object that may have it does."""
        found: dict[str, bool] = {}
        if self._root is not None:
            _visit(self._root, value, found)
        return found

    def _read(self, node: Any, path: str, above: tuple[int, ...]) -> _Spot | None:
        self._left -= 1
        if self._left < 0 or not is_object(node) or id(node) in above:
            return None
        inside = (*above, id(node))
        if "$ref" in node:
            return self._read(target_of(self._document, node), path, inside)
        needed: Any = node.get("required", ())
        fields: list[tuple[str, str]] = []
        children: list[tuple[str, _Spot]] = []
        declared: dict[str, Any] = node.get("properties") or {}
        for key, rule in declared.items():
            inner = path + pointer([key])
            if key not in needed:
                fields.append((key, inner))
            child = self._read(rule, inner, inside)
            if child is not None:
                children.append((key, child))
        items = self._read(node.get("items"), f"{path}/*", inside)
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
    if is_object(value):
        for key, path in spot.fields:
            found[path] = key in value and found.get(path, True)
        for key, child in spot.children:
            if key in value:
                _visit(child, value[key], found)
    elif is_array(value) and spot.items is not None:
        for item in value:
            _visit(spot.items, item, found)


def _has_output(record: Record) -> bool:
    """True if a tool gave an output, also if it was refused."""
    # An error result of an MCP server is released without a check.
    return record.gate in (None, "output") and not record.tool_error


def _is_unstructured(record: Record) -> bool:
    """True for bytes or content blocks, which no schema describes."""
    return any(note.path == "" and _UNSTRUCTURED in note.message for note in record.warnings)


# --- outputs before a cast ------------------------------------------------------------------


def restored(record: Record) -> tuple[Any, Loss | None]:
    """An output before a cast changed it; UNSET and the reason if the record does not hold it."""
    value, loss = load(record.output)
    if loss is not None or not record.changes:
        return value, loss
    if len(record.changes) >= MAX_RECORDED_ISSUES:
        return UNSET, "cut"
    held = [copy.deepcopy(value)]
    try:
        for note in reversed(_lasting(record.changes)):
            _undo(held, note)
    except (LookupError, TypeError, ValueError):
        return UNSET, "cut"
    return held[0], None


def _lasting(changes: Iterable[Note]) -> list[Note]:
    """Changes without fills inside a value that was later replaced as a whole."""
    left: list[Note] = []
    for note in changes:
        if note.code == "replaced":
            gone = [each.path for each in left if _is_filled_into(note.path, each)]
            left = [each for each in left if not any(_is_within(path, each) for path in gone)]
        left.append(note)
    return left


def _is_filled_into(path: str, note: Note) -> bool:
    return note.code == "filled" and note.path.rpartition("/")[0] == path


def _is_within(path: str, note: Note) -> bool:
    return note.path == path or note.path.startswith(f"{path}/")


def _undo(root: list[Any], note: Note) -> None:
    above, _, last = note.path.rpartition("/")
    holder: Any = value_at(root[0], above) if note.path else root
    key: Any = last.replace("~1", "/").replace("~0", "~") if note.path else 0
    if isinstance(holder, list):
        key = int(key)
    if note.code == "filled":
        # Items of a list are filled in order, so the last one is removed first.
        del holder[key]
        return
    if note.before is None:
        raise LookupError(note.path)
    holder[key] = json.loads(note.before)
