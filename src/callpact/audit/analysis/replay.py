"""Recorded inputs checked against changed contracts: which would be refused, which would pass.

No tool is run: each input is only checked by the gate again. An input that its record does not
hold in full cannot be checked again, and is counted as such. With former contracts, these and not
the recorded outcomes are compared with the changed ones, and outputs are checked too.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from callpact.audit.pages import ToolRecords, pages_of
from callpact.audit.record import Note, Payload, Record, error_key, note_of
from callpact.audit.store import MAX_ROWS, Filter, Store
from callpact.errors import InvalidInput
from callpact.gate import admit
from callpact.schema import is_array, is_object
from callpact.schema.issues.explain import explain
from callpact.secrets.masker import MASK
from callpact.tool import OPEN, Contract, Tool

MAX_SAMPLES = 20
"""Calls that a report shows of each kind; all of them are counted."""
_MAX_NOTES = 5
_NOT_JUDGED = ("find", "access")
_NOT_FOUND = error_key("tool_not_found", None, None)

Loss = Literal["cut", "hashed", "absent", "unreadable", "masked", "beyond"]
"""Why a value cannot be checked again."""


class Lost(Struct, frozen=True, omit_defaults=True):
    """How many values could not be checked again, by reason."""

    cut: int = 0
    hashed: int = 0
    absent: int = 0
    unreadable: int = 0
    masked: int = 0
    beyond: int = 0
    """More than one report checks."""

    @property
    def total(self) -> int:
        """All of them."""
        return sum(getattr(self, name) for name in self.__struct_fields__)


class ChangedCall(Struct, frozen=True):
    """One recorded call with the opposite outcome now, and its issues, then or now."""

    id: str
    at: int
    tool: str
    input: str
    issues: tuple[Note, ...]


class ChangedCount(Struct, frozen=True):
    """The number of calls of one tool with the opposite outcome now, for one cause."""

    tool: str
    key: str
    calls: int


class Replay(Struct, frozen=True):
    """The effect of the current contracts on recorded calls."""

    calls: int
    """All calls that were read."""
    admitted: int
    """Admitted then."""
    refused: int
    """Refused then: for their input, or because the tool did not exist and now does."""
    now_refused: int
    """Admitted then, refused now."""
    now_admitted: int
    """Refused then, admitted now."""
    refused_by: tuple[ChangedCount, ...]
    admitted_by: tuple[ChangedCount, ...]
    refused_samples: tuple[ChangedCall, ...]
    admitted_samples: tuple[ChangedCall, ...]
    lost: Lost
    skipped: int
    """Stopped for another reason than their input: unknown tools, access, a tool's own rules."""
    gone: int
    """Calls of tools that no longer exist: those admitted then would be refused now."""
    is_partial: bool = False
    """True if there were more records than `MAX_ROWS`."""
    gone_tools: tuple[str, ...] = ()
    """The names of tools that no longer exist."""
    is_compared: bool = False
    """True if the changed contracts are compared with former ones, not with recorded outcomes."""
    outputs: int = 0
    """Outputs that keep the former contracts; 0 without former contracts."""
    now_broken: int = 0
    """Those of them that break the changed ones."""
    broken_by: tuple[ChangedCount, ...] = ()
    broken_samples: tuple[ChangedCall, ...] = ()


def replay_of(
    store: Store,
    tools: Iterable[Tool],
    where: Filter | None = None,
    former: Iterable[Tool] | None = None,
) -> Replay:
    """Which recorded calls the current contracts would refuse or admit. No tool is run.

    Records and `where` may name a tool by an alias or its wire name. `former` are tools whose
    contracts are compared with the current ones, instead of the recorded outcomes.

    Raises:
        UsageError: the log cannot be read.
    """
    meant, named = where or Filter(), by_name(tools)
    before = None if former is None else by_name(former)
    tool, limit = named.get(meant.tool or ""), MAX_ROWS + 1
    if tool is None:
        pages = pages_of(store, meant, limit, with_payloads=True)
        return replay(chain.from_iterable(pages), named, before)
    return replay(ToolRecords(store, tool).records(replace(meant, tool=None), limit), named, before)


def replay(
    records: Iterable[Record],
    tools: Mapping[str, Tool],
    former: Mapping[str, Tool] | None = None,
) -> Replay:
    """Check recorded inputs at the gates of tools, given by name; the earliest calls first."""
    run = _Run(tools, former)
    taken = list(islice(records, MAX_ROWS + 1))
    for record in sorted(taken[:MAX_ROWS], key=lambda record: (record.at, record.id)):
        run.take(record)
    return run.report(is_partial=len(taken) > MAX_ROWS)


def by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Tools by alias, wire name and id."""
    every = list(tools)
    named = {name: tool for tool in every for name in (*tool.aliases, tool.wire_name)}
    return named | {tool.id: tool for tool in every}


def under(tool: Tool, contract: Contract) -> Tool:
    """The same tool under another contract."""
    return dataclasses.replace(tool, contract=contract)


def was_refused(record: Record) -> bool | None:
    """True if the call was refused for its input, False if admitted; None if it was not checked."""
    if record.gate == "input":
        return True if record.code == "schema_validation_failed" else None
    return None if record.gate in _NOT_JUDGED else False


def load(payload: Payload | None) -> tuple[Any, Loss | None]:
    """A value as it was recorded, or UNSET and the reason why the record lacks it."""
    if payload is None:
        return UNSET, "absent"
    if payload.json is None:
        return UNSET, "hashed"
    if payload.is_cut:
        return UNSET, "cut"
    try:
        return json.loads(payload.json), None
    except (ValueError, RecursionError):
        return UNSET, "unreadable"


def is_masked(value: Any) -> bool:
    """True for text in which a secret was masked: it differs from the original value."""
    return isinstance(value, str) and MASK in value


def refusal(tool: Tool, arguments: Any) -> tuple[Note, ...]:
    """The issues that a tool's gate finds in arguments, the best first; empty if it admits them."""
    try:
        admit(tool, arguments)
    except InvalidInput as error:
        return tuple(map(note_of, error.issues))
    return ()


def key_of(note: Note) -> str:
    """The error key of a refusal with this first issue."""
    return error_key("schema_validation_failed", note.path, note.code)


def value_at(value: Any, path: str) -> Any:
    """The value at a JSON Pointer; UNSET if there is no such place."""
    for part in path.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if is_object(value):
            value = value.get(name, UNSET)
        elif is_array(value) and name.isdigit():
            value = value[int(name)] if int(name) < len(value) else UNSET
        else:
            return UNSET
    return value


def at_masked(value: Any, path: str) -> bool:
    """True if the value at a place was masked."""
    return is_masked(value_at(value, path))


class Tally:
    """Counts values that could not be checked again."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, loss: Loss) -> None:
        """Count one value."""
        self._counts[loss] = self._counts.get(loss, 0) + 1

    def lost(self) -> Lost:
        """The counts."""
        return Lost(**self._counts)


class _Run:
    def __init__(self, tools: Mapping[str, Tool], former: Mapping[str, Tool] | None) -> None:
        self._tools = tools
        self._former = former
        self._outputs = 0
        self._broken: dict[tuple[str, str], int] = {}
        self._broken_samples: list[ChangedCall] = []
        self._lost = Tally()
        self._counts = dict.fromkeys(("calls", "admitted", "refused", "skipped", "gone"), 0)
        self._changed: dict[bool, dict[tuple[str, str], int]] = {True: {}, False: {}}
        self._samples: dict[bool, list[ChangedCall]] = {True: [], False: []}
        self._gone: dict[str, None] = {}

    def take(self, record: Record) -> None:
        self._counts["calls"] += 1
        tool = self._tools.get(record.tool)
        before = self._refused_before(record, tool)
        if before is None:
            self._counts["skipped"] += 1
            return
        self._counts["refused" if before else "admitted"] += 1
        if tool is None:
            self._miss(record, is_refused=before)
            return
        value, loss = load(record.input)
        if loss is not None:
            self._lost.add(loss)
            return
        notes = refusal(tool, value)
        if notes and any(at_masked(value, note.path) for note in notes):
            self._lost.add("masked")
        elif bool(notes) != before:
            self._count_change(record, notes or record.issues, is_refused=bool(notes))
        if self._former is not None:
            self._take_output(record, self._former.get(record.tool), tool)

    def _refused_before(self, record: Record, tool: Tool | None) -> bool | None:
        if self._former is None:
            return True if _is_found_now(record, tool) else was_refused(record)
        former, (value, loss) = self._former.get(record.tool), load(record.input)
        if former is None or record.gate in _NOT_JUDGED:
            return None
        if loss is not None:  # Counted as lost, whatever the outcome was.
            return bool(was_refused(record))
        notes = refusal(former, value)
        return None if any(at_masked(value, note.path) for note in notes) else bool(notes)

    def _take_output(self, record: Record, former: Tool | None, tool: Tool) -> None:
        """Count an output that keeps the former contract, and breaks the changed one."""
        value, loss = load(record.output)
        if former is None or loss is not None or record.tool_error or _breaks(former, value):
            return
        self._outputs += 1
        if notes := _breaks(tool, value):
            key = (record.tool, error_key("output_validation_failed", notes[0].path, notes[0].code))
            self._broken[key] = self._broken.get(key, 0) + 1
            if len(self._broken_samples) < MAX_SAMPLES:
                text = (record.output.json if record.output is not None else None) or ""
                self._broken_samples.append(
                    ChangedCall(record.id, record.at, record.tool, text, notes[:_MAX_NOTES])
                )

    def _miss(self, record: Record, *, is_refused: bool) -> None:
        """Count a call of a tool that no longer exists."""
        self._counts["gone"] += 1
        self._gone[record.tool] = None
        if not is_refused:
            counts, key = self._changed[True], (record.tool, _NOT_FOUND)
            counts[key] = counts.get(key, 0) + 1

    def _count_change(self, record: Record, notes: tuple[Note, ...], *, is_refused: bool) -> None:
        key = key_of(notes[0]) if is_refused else (record.key or "")
        counts = self._changed[is_refused]
        counts[record.tool, key] = counts.get((record.tool, key), 0) + 1
        samples = self._samples[is_refused]
        if len(samples) < MAX_SAMPLES:
            text = record.input.json if record.input is not None else None
            changed = ChangedCall(record.id, record.at, record.tool, text or "", notes[:_MAX_NOTES])
            samples.append(changed)

    def report(self, *, is_partial: bool) -> Replay:
        return Replay(
            **self._counts,
            now_refused=sum(self._changed[True].values()),
            now_admitted=sum(self._changed[False].values()),
            refused_by=_ranked(self._changed[True]),
            admitted_by=_ranked(self._changed[False]),
            refused_samples=tuple(self._samples[True]),
            admitted_samples=tuple(self._samples[False]),
            lost=self._lost.lost(),
            is_partial=is_partial,
            gone_tools=tuple(sorted(self._gone)),
            is_compared=self._former is not None,
            outputs=self._outputs,
            now_broken=sum(self._broken.values()),
            broken_by=_ranked(self._broken),
            broken_samples=tuple(self._broken_samples),
        )


def _breaks(tool: Tool, value: Any) -> tuple[Note, ...]:
    """The issues of an output, the best first; those of masked values do not count."""
    schema = tool.contract.compiled_output
    errors = () if schema is None else schema.errors(value)
    if schema is None or not errors:
        return ()
    issues = explain(schema, errors, "Output")
    return tuple(note_of(issue) for issue in issues if not at_masked(value, issue.path))


def _is_found_now(record: Record, tool: Tool | None) -> bool:
    """True if the tool did not exist then, and now exists with open access."""
    # A record with a contract is of a tool that existed: its handler called an unknown one.
    was_missing = record.gate == "find" and not record.contract
    return was_missing and tool is not None and tool.access == OPEN


def _ranked(counts: dict[tuple[str, str], int]) -> tuple[ChangedCount, ...]:
    rows = (ChangedCount(tool, key, calls) for (tool, key), calls in counts.items())
    return tuple(sorted(rows, key=lambda row: (-row.calls, row.tool, row.key)))
