"""Contracts that are too strict for what callers naturally send, and what would let it in.

Pure functions over the records of one tool. Each cause of refusals gets the smallest relaxation
that meets it: a wider rule, another name of an argument, a default, or the tolerant input policy. It
is proved on the recorded inputs: how many of the refused would pass, and that none of those let in
is refused. Nothing is run, and nothing is changed.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Literal, cast

from msgspec import UNSET, Struct
from msgspec.structs import replace

from callpact.audit.patching import Patch, difference
from callpact.audit.places import place_in
from callpact.audit.record import Note, Record, error_key
from callpact.audit.replay import (
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
from callpact.audit.store import MAX_ROWS
from callpact.audit.widening import widen
from callpact.json_text import json_text
from callpact.schema import repair
from callpact.tool import Contract, InputPolicy, Tool

MAX_CAUSES = 20
"""Causes of refusals that relaxations are looked for, the commonest first."""
MAX_SAMPLES = 5
"""What was sent, told as samples."""
_MAX_SAMPLE = 80
_NEAR = 0.7
_UNKNOWN = "additionalProperties"

Kind = Literal["schema", "alias", "default", "tolerant"]
Key = tuple[str, str]


class Relaxation(Struct, frozen=True):
    """One change that would let in what was refused, and what it would have done."""

    kind: Kind
    path: str
    """The argument: a JSON Pointer with `*` for indexes; empty for all."""
    rule: str
    key: str
    """The error key of the refusals."""
    words: str
    seen: int
    """Refused calls with this cause, be it one of several."""
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


class Advice(Struct, frozen=True):
    """What the refusals of one tool suggest, the change that saves most calls first."""

    calls: int
    refused: int
    outdated: int
    """Refused then; the current contract lets them in."""
    checked: int
    """Inputs that were let in, and with every relaxation still are."""
    relaxations: tuple[Relaxation, ...]
    saved: int
    """Refused calls that would pass with all relaxations together."""
    lost: Lost
    """Inputs that could not be judged again."""
    is_partial: bool = False
    """True if there were more records or causes than a report holds."""


def advise(records: Iterable[Record], tool: Tool) -> Advice:
    """What the records of one tool tell about its input contract as it is now."""
    taken = list(islice(records, MAX_ROWS + 1))
    study = _Study(tool)
    for record in sorted(taken[:MAX_ROWS], key=lambda record: (record.at, record.id)):
        study.take(record)
    return study.report(is_partial=len(taken) > MAX_ROWS)


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
    """One place and rule, while records are read."""

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
        found = [
            relaxation
            for key, cause in commonest[:MAX_CAUSES]
            for relaxation in self._relaxations(key, cause)
        ]
        # Several causes may ask for the tolerant policy; the commonest names it.
        unique = {(r.kind, r.path, r.rule): r for r in reversed(found)}
        stood_for = {name for r in found for name in r.aliases.values()}
        for key, r in list(unique.items()):
            if r.rule == "required" and not r.saved and _name(r.path) in stood_for:
                del unique[key]  # It did come, under another name.
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
        )

    def _relaxations(self, key: Key, cause: _Cause) -> Iterator[Relaxation]:
        """The first that helps, by what changes least of what a tool means."""
        for candidate in self._candidates(key, cause):
            tool = relaxed(self._tool, candidate)
            if self._eases(tool, key, cause) and not self._breaks(tool):
                saved = self._saved(tool)
                yield replace(candidate, saved=saved)
                return

    def _candidates(self, key: Key, cause: _Cause) -> Iterator[Relaxation]:
        path, rule = key
        if rule == _UNKNOWN and path.count("/") == 1:
            yield from self._aliases(key, cause)
        if rule == "type" and self._tool.contract.input_policy == "exact":
            words = "input_policy tolerant: text that says exactly what is wanted is converted"
            typed = [held for (_, code), held in self._causes.items() if code == "type"]
            inputs = {name for held in typed for name in held.inputs}
            seen = sum(self._stopped[name] for name in inputs)
            samples = tuple(dict.fromkeys(text for held in typed for text in held.samples))
            yield Relaxation(
                "tolerant",
                "",
                rule,
                error_key("schema_validation_failed", path, rule),
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
            yield self._made(kind or "schema", key, cause, patch.words, patch=patch)

    def _aliases(self, key: Key, cause: _Cause) -> Iterator[Relaxation]:
        sent = _name(key[0])
        for known in self._meant_by(sent, cause):
            words = f"argument_aliases: '{sent}' is taken for '{known}'"
            yield self._made("alias", key, cause, words, aliases={sent: known})

    def _meant_by(self, sent: str, cause: _Cause) -> list[str]:
        """The arguments that an unknown one may stand for: of nearly its name, or missing."""
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
        path, rule = key
        error = error_key("schema_validation_failed", path, rule)
        samples = tuple(cause.samples)
        counts = (cause.calls, 0, self._calls)
        return Relaxation(kind, path, rule, error, words, *counts, samples, patch, aliases or {})

    def _widened(self, tool: Tool, inputs: list[str], keys: frozenset[Key]) -> Patch:
        contract = tool.contract
        values = [_prepared(tool, self._values[name]) for name in inputs]
        schema, formats = contract.compiled_input, contract.formats
        return widen(schema, values, formats=formats, meant=keys, is_hidden=is_masked)

    def _with_default(self, patch: Patch, path: str) -> Patch:
        """A field that need not be given, with the value that most callers give."""
        name = _name(path)
        rules = _properties(self._tool).get(name) if path.count("/") == 1 else None
        counts: Counter[str] = Counter()
        for key, times in self._admitted.items():
            value = self._values[key]
            if isinstance(value, dict) and name in value:
                counts[json_text(value[name])] += times
        if not patch.operations or not isinstance(rules, dict) or "default" in rules or not counts:
            return patch
        text, times = min(counts.items(), key=lambda item: (-item[1], item[0]))
        if 2 * times < counts.total() or len(text) > _MAX_SAMPLE:
            return patch
        declared = {**cast("dict[str, Any]", rules), "default": json.loads(text)}
        after: Any = patch.after
        after = {**after, "properties": {**after["properties"], name: declared}}
        return Patch(patch.before, after, difference(patch.before, after), patch.unsolved)

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
        # What one change lets through may meet the next rule: text that is converted, a bound.
        patch = self._widened(tool, list(self._stopped), keys)
        contract = Contract(
            input=patch.after,
            input_policy=tool.contract.input_policy,
            formats=tool.contract.formats,
        )
        return self._saved(under(tool, contract))


def _prepared(tool: Tool, value: Any) -> Any:
    """Arguments as the schema meets them at the gate: renamed, and repaired where that is asked."""
    named: Any = value
    if isinstance(value, dict) and tool.argument_aliases:
        held = cast("dict[str, Any]", value)
        names = {key: tool.argument_aliases.get(key, key) for key in held}
        named = {key if names[key] in held else names[key]: item for key, item in held.items()}
    if tool.contract.input_policy == "tolerant":
        return repair(tool.contract.compiled_input, named).value
    return named


def _properties(tool: Tool) -> dict[str, Any]:
    document: Any = tool.contract.input
    if not isinstance(document, dict):
        return {}
    found: Any = cast("dict[str, Any]", document).get("properties")
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _folded(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


def _name(path: str) -> str:
    return path.rpartition("/")[2].replace("~1", "/").replace("~0", "~")


def _sample(value: Any, path: str) -> str:
    found = value_at(value, path)
    text = "" if found is UNSET else json_text(found)
    return text if len(text) <= _MAX_SAMPLE else text[:_MAX_SAMPLE] + "…"
