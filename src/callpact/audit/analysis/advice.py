"""Contracts that refuse inputs which callers often send, and the relaxations that would admit them.

The latest `MAX_JUDGED` records of one tool are checked. Each cause of refusals gets the smallest
relaxation that removes it: a wider rule, an alias of an argument, a default, or the tolerant input
policy. Each is verified on the recorded inputs: how many refused inputs would pass, and that no
admitted input is refused. Causes without a relaxation, such as unions, are reported. No tool is
run and no contract is changed.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from callpact.audit.analysis.replay import (
    Lost,
    Tally,
    at_masked,
    is_masked,
    load,
    refusal,
    under,
    value_at,
    was_refused,
)
from callpact.audit.analysis.schema_edits import Patch, place_in, propose_edits
from callpact.audit.analysis.wordings import Language, language_of, wordings
from callpact.audit.pages import MAX_JUDGED, ToolRecords
from callpact.audit.record import Note, Record, error_key
from callpact.audit.store import Filter, Store
from callpact.schema import is_object, repair
from callpact.schema.json_text import json_text
from callpact.tool import Contract, InputPolicy, Tool

MAX_CAUSES = 20
"""Causes of refusals that get a relaxation, the commonest first."""
MAX_SAMPLES = 5
"""Values that a relaxation shows as samples."""
_MAX_SAMPLE = 80
_NEAR = 0.7
_UNKNOWN = "additionalProperties"
_TOLERANT: dict[Language | None, str] = {
    "python": '@tool(input_policy="tolerant")',
    "flowmcp": 'input_policy = "tolerant" in the table of the source',
    None: "input_policy tolerant",
}

Kind = Literal["schema", "alias", "default", "tolerant"]
Key = tuple[str, str]


class Relaxation(Struct, frozen=True):
    """One change that would admit refused calls, and its effect on the recorded calls."""

    kind: Kind
    path: str
    """The argument: a JSON Pointer with `*` for indexes; empty for all."""
    rule: str
    key: str
    """The error key of the refusals."""
    words: str
    seen: int
    """Refused calls with this cause, alone or among others."""
    saved: int
    """Refused calls that would pass with this change alone."""
    of: int
    """All calls of the tool."""
    samples: tuple[str, ...]
    patch: Patch | None = None
    """The change of the input schema, if it is one."""
    aliases: dict[str, str] = {}
    input_policy: InputPolicy | None = None

    @property
    def share(self) -> float:
        """The part of all calls that were refused for this cause."""
        return self.seen / self.of if self.of else 0.0


class Refusal(Struct, frozen=True):
    """A cause of refusals without a proposed change: a union, or no change that helps."""

    path: str
    rule: str
    key: str
    """Refused calls with this cause, alone or among others."""
    seen: int
    """Refused calls with this cause, be it one of several."""
    of: int
    """All calls of the tool."""
    samples: tuple[str, ...]

    @property
    def share(self) -> float:
        """The part of all calls that were refused for this cause."""
        return self.seen / self.of if self.of else 0.0


class Advice(Struct, frozen=True):
    """The changes that the refusals of one tool suggest, the one that saves most calls first."""

    calls: int
    refused: int
    outdated: int
    """Refused calls that the current contract admits."""
    checked: int
    """Inputs that the current contract admits, and that every relaxation still admits."""
    relaxations: tuple[Relaxation, ...]
    saved: int
    """Refused calls that would pass with all relaxations together."""
    lost: Lost
    """Inputs that could not be checked again."""
    is_partial: bool = False
    """True if there were more records or causes than a report holds."""
    unsolved: tuple[Refusal, ...] = ()
    """The commonest first."""


def advice_of(store: Store, tool: Tool, where: Filter | None = None) -> Advice:
    """Relaxations of a tool's input contract that its recorded calls suggest.

    Calls under an id that is now an alias of the tool are included.

    Raises:
        UsageError: the log cannot be read.
    """
    meant = replace(where or Filter(), tool=None)
    return advise(ToolRecords(store, tool).records(meant, MAX_JUDGED + 1), tool)


def advise(records: Iterable[Record], tool: Tool) -> Advice:
    """Relaxations of a tool's current input contract that these records suggest."""
    taken = list(islice(records, MAX_JUDGED + 1))
    study = _Study(tool)
    for record in sorted(taken[:MAX_JUDGED], key=lambda record: (record.at, record.id)):
        study.take(record)
    return study.report(is_partial=len(taken) > MAX_JUDGED)


def relaxed(tool: Tool, relaxation: Relaxation) -> Tool:
    """The tool with a relaxation."""
    own = tool.contract
    contract = Contract(
        input=own.compiled_input if relaxation.patch is None else relaxation.patch.after,
        output=own.output,
        policy=own.policy,
        input_policy=relaxation.input_policy or own.input_policy,
        formats=own.formats,
    )
    aliases = {**tool.argument_aliases, **relaxation.aliases}
    return dataclasses.replace(under(tool, contract), argument_aliases=aliases)


class _Cause:
    """The calls refused by one rule at one place, while records are read."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.calls = 0
        self.samples: list[str] = []


class _Study:
    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._calls = self._refused = self._outdated = 0
        self._lost = Tally()
        self._values: dict[str, Any] = {}
        self._admitted: dict[str, int] = {}
        self._stopped: dict[str, int] = {}
        self._notes: dict[str, tuple[Note, ...]] = {}
        self._causes: dict[Key, _Cause] = {}

    # -- reading -----------------------------------------------------------------------------

    def take(self, record: Record) -> None:
        self._calls += 1
        is_refused = was_refused(record)
        if is_refused is None:
            return
        self._refused += is_refused
        value, loss = load(record.input)
        if loss is not None or record.input is None or record.input.json is None:
            self._lost.add(loss or "absent")
            return
        name = record.input.json  # Its hash is not there before it is indexed.
        if name not in self._notes:
            self._values[name] = value
            self._notes[name] = refusal(self._tool, value)
        notes = self._notes[name]
        if any(at_masked(value, note.path) for note in notes):
            self._lost.add("masked")
        elif not notes:
            self._outdated += is_refused
            self._admitted[name] = self._admitted.get(name, 0) + 1
        elif is_refused:
            self._stopped[name] = self._stopped.get(name, 0) + 1
            self._blame(name, notes)

    def _blame(self, name: str, notes: tuple[Note, ...]) -> None:
        value = self._values[name]
        keys = [(place_in(value, note.path), note.code) for note in notes]
        for key in dict.fromkeys(keys):
            cause = self._causes.setdefault(key, _Cause())
            cause.calls += 1
            if self._stopped[name] > 1:
                continue
            cause.inputs.append(name)
            sample = _sample(value, notes[keys.index(key)].path)
            if sample and sample not in cause.samples and len(cause.samples) < MAX_SAMPLES:
                cause.samples.append(sample)

    # -- looking for relaxations -------------------------------------------------------------

    def report(self, *, is_partial: bool) -> Advice:
        commonest = sorted(self._causes.items(), key=lambda item: (-item[1].calls, item[0]))
        found: list[Relaxation] = []
        unsolved: list[Refusal] = []
        for (path, rule), cause in commonest[:MAX_CAUSES]:
            relaxation = self._relaxation((path, rule), cause)
            if relaxation is not None:
                found.append(relaxation)
                continue
            counts = (cause.calls, self._calls, tuple(cause.samples))
            unsolved.append(Refusal(path, rule, _error_key(path, rule), *counts))
        # Several causes may ask for the tolerant policy; the commonest names it.
        unique = {(r.kind, r.path, r.rule): r for r in reversed(found)}
        aliased = {name for r in found for name in r.aliases.values()}
        for key, r in list(unique.items()):
            if r.rule == "required" and not r.saved and _name(r.path) in aliased:
                del unique[key]  # The argument was sent under another name.
        best = sorted(unique.values(), key=lambda r: (-r.saved, -r.seen, r.path, r.rule, r.kind))
        return Advice(
            self._calls,
            self._refused,
            self._outdated,
            sum(self._admitted.values()),
            tuple(best),
            self._together(best),
            self._lost.lost(),
            is_partial or len(commonest) > MAX_CAUSES,
            tuple(unsolved),
        )

    def _relaxation(self, key: Key, cause: _Cause) -> Relaxation | None:
        """The first candidate that helps, in order of how little it changes the tool's meaning."""
        for candidate in self._candidates(key, cause):
            tool = relaxed(self._tool, candidate)
            if self._eases(tool, key, cause) and not self._breaks(tool):
                return replace(candidate, saved=self._saved(tool))
        return None

    def _candidates(self, key: Key, cause: _Cause) -> Iterator[Relaxation]:
        path, rule = key
        if rule == _UNKNOWN and path.count("/") == 1:
            yield from self._aliases(key, cause)
        if rule == "type" and self._tool.contract.input_policy == "exact":
            words = f"{_TOLERANT[language_of(self._tool)]}: text that says exactly what is wanted "
            words += "is converted"
            typed = [held for (_, code), held in self._causes.items() if code == "type"]
            inputs = {name for held in typed for name in held.inputs}
            seen = sum(self._stopped[name] for name in inputs)
            samples = tuple(dict.fromkeys(text for held in typed for text in held.samples))
            yield Relaxation(
                "tolerant",
                "",
                rule,
                _error_key(path, rule),
                words,
                seen,
                0,
                self._calls,
                samples[:MAX_SAMPLES],
                input_policy="tolerant",
            )
        patch = self._widened(self._tool, [*cause.inputs], frozenset({key}))
        if rule == "required":
            patch = self._with_default(patch, path)
        if patch.operations:
            kind = "default" if any(o.path.endswith("/default") for o in patch.operations) else None
            yield self._made(kind or "schema", key, cause, self._words(patch), patch=patch)

    def _words(self, patch: Patch) -> str:
        language = language_of(self._tool)
        if language is None:
            return patch.words
        return "; ".join(wordings(patch, language, is_output=False))

    def _aliases(self, key: Key, cause: _Cause) -> Iterator[Relaxation]:
        sent = _name(key[0])
        for known in self._meant_by(sent, cause):
            words = f"argument_aliases: '{sent}' is taken for '{known}'"
            yield self._made("alias", key, cause, words, aliases={sent: known})

    def _meant_by(self, sent: str, cause: _Cause) -> list[str]:
        """The arguments that an unknown one may mean: one with a similar name, or a missing one."""
        properties = _properties(self._tool)
        folded = {_folded(name): name for name in properties}
        near = difflib.get_close_matches(_folded(sent), folded, n=1, cutoff=_NEAR)
        missing: list[set[str]] = [
            {_name(note.path) for note in self._notes[name] if note.code == "required"}
            for name in cause.inputs
        ]
        lacking = sorted(missing[0].intersection(*missing[1:])) if missing else []
        return list(dict.fromkeys([*(folded[name] for name in near), *lacking]))

    def _made(
        self,
        kind: Kind,
        key: Key,
        cause: _Cause,
        words: str,
        *,
        patch: Patch | None = None,
        aliases: dict[str, str] | None = None,
    ) -> Relaxation:
        counts = (cause.calls, 0, self._calls, tuple(cause.samples))
        return Relaxation(kind, *key, _error_key(*key), words, *counts, patch, aliases or {})

    def _widened(self, tool: Tool, inputs: list[str], keys: frozenset[Key]) -> Patch:
        contract = tool.contract
        values = [_prepared(tool, self._values[name]) for name in inputs]
        schema, formats = contract.compiled_input, contract.formats
        # A handler cannot work with another type, however often callers send it.
        return propose_edits(
            schema, values, formats=formats, only=keys, is_hidden=is_masked, keeps_types=True
        )

    def _with_default(self, patch: Patch, path: str) -> Patch:
        """Give a field that is no longer required the default that most callers send."""
        name = _name(path)
        rules = _properties(self._tool).get(name) if path.count("/") == 1 else None
        counts: Counter[str] = Counter()
        for key, times in self._admitted.items():
            value = self._values[key]
            if is_object(value) and name in value:
                counts[json_text(value[name])] += times
        if not patch.operations or not is_object(rules) or "default" in rules or not counts:
            return patch
        text, times = min(counts.items(), key=lambda item: (-item[1], item[0]))
        if 2 * times < counts.total() or len(text) > _MAX_SAMPLE:
            return patch
        declared = {**rules, "default": json.loads(text)}
        after: Any = patch.after
        after = {**after, "properties": {**after["properties"], name: declared}}
        return Patch(patch.before, after, patch.unsolved)

    # -- proving -----------------------------------------------------------------------------

    def _eases(self, tool: Tool, key: Key, cause: _Cause) -> bool:
        """True if the cause is gone from some of the inputs that had it."""
        values = [self._values[name] for name in cause.inputs]
        return any(
            key not in {(place_in(value, note.path), note.code) for note in refusal(tool, value)}
            for value in values
        )

    def _breaks(self, tool: Tool) -> bool:
        return any(refusal(tool, self._values[name]) for name in self._admitted)

    def _saved(self, tool: Tool) -> int:
        held = self._stopped.items()
        return sum(times for name, times in held if not refusal(tool, self._values[name]))

    def _together(self, relaxations: list[Relaxation]) -> int:
        if not relaxations:
            return 0
        tool = self._tool
        for relaxation in relaxations:
            if relaxation.patch is None:
                tool = relaxed(tool, relaxation)
        keys = frozenset((r.path, r.rule) for r in relaxations if r.patch is not None)
        # One change may expose the next rule: text that is converted may break a bound.
        patch = self._widened(tool, list(self._stopped), keys)
        contract = Contract(
            input=patch.after,
            input_policy=tool.contract.input_policy,
            formats=tool.contract.formats,
        )
        return self._saved(under(tool, contract))


def _prepared(tool: Tool, value: Any) -> Any:
    """Arguments as the gate checks them: aliases renamed, and repaired if the policy is tolerant."""
    named: Any = value
    if is_object(value) and tool.argument_aliases:
        names = {key: tool.argument_aliases.get(key, key) for key in value}
        named = {key if names[key] in value else names[key]: item for key, item in value.items()}
    if tool.contract.input_policy == "tolerant":
        return repair(tool.contract.compiled_input, named).value
    return named


def _properties(tool: Tool) -> dict[str, Any]:
    document: Any = tool.contract.input
    found: Any = document.get("properties") if is_object(document) else None
    return found if is_object(found) else {}


def _error_key(path: str, rule: str) -> str:
    return error_key("schema_validation_failed", path, rule)


def _folded(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


def _name(path: str) -> str:
    return path.rpartition("/")[2].replace("~1", "/").replace("~0", "~")


def _sample(value: Any, path: str) -> str:
    found = value_at(value, path)
    text = "" if found is UNSET else json_text(found)
    return text if len(text) <= _MAX_SAMPLE else text[:_MAX_SAMPLE] + "…"
