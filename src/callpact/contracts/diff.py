"""Two catalogs compared: every change of a contract, classified as breaking or not.

Input is safe if the new schema accepts every value of the old one, output if the old schema accepts
every value of the new one. That is proved where it can be; elsewhere the table of changes decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from callpact.contracts.proof import ComparedSchema, CoverProof, Prover
from callpact.contracts.schema_changes import SchemaChange, Subject, schema_changes, shown
from callpact.schema import compile_schema, is_array, is_object
from callpact.schema.hashing import canonical_json
from callpact.tool import POLICIES, Contract, Tool

if TYPE_CHECKING:
    from callpact.catalog import Catalog

Bump = Literal["major", "minor", "patch"]
Side = Literal["tool", "input", "output"]
Decided = Literal["rule", "proved", "refuted", "table"]
Concern = Literal["tool", "fact"] | Subject
BUMP_RANK: dict[str, int] = {"patch": 0, "minor": 1, "major": 2}
"""The order of bumps."""
_TEXTS = ("title", "description", "tags", "keywords", "examples", "search_hint", "terms")
_OPEN = ComparedSchema(compile_schema(True))


class ContractChange(Struct, frozen=True):
    """One change of the contract of a tool, resource or prompt."""

    tool: str
    side: Side
    path: str
    words: str
    """The change and its reason in words."""
    bump: Bump
    decided: Decided = "rule"
    """By a rule about tools, a proof, a counterexample, or the table where no proof was found."""
    example: tuple[Any, ...] = ()
    """A value that was accepted before and is refused now; for an output the reverse. Or empty."""
    subject: Concern = "fact"
    """`tool`: a tool came or went; `fact`: another change of a tool; else the part of a schema."""
    rule: str = ""
    """The rule of FlowMCP that set the bump; empty if none did."""

    @property
    def is_breaking(self) -> bool:
        """True if callers or readers of the old contract can fail."""
        return self.bump == "major"


class CatalogDiff(Struct, frozen=True):
    """All changes from one catalog to another."""

    changes: tuple[ContractChange, ...]
    unproved: tuple[tuple[str, Side, str], ...] = ()
    """Tools and sides for which the table decided, each with the reason."""
    rules: Literal["callpact", "FlowMCP"] = "callpact"
    """The rules of the classes: ours, or those of FlowMCP for changes that they name."""
    violations: tuple[str, ...] = ()
    """FlowMCP files whose `schemaVersion` was not raised as their changes ask for."""

    @property
    def bump(self) -> Bump | None:
        """The suggested change of the version: the highest of all changes; None without any."""
        return max(
            (change.bump for change in self.changes), key=BUMP_RANK.__getitem__, default=None
        )

    @property
    def is_breaking(self) -> bool:
        """True if one of the changes is breaking."""
        return self.bump == "major"


def diff_catalogs(
    old: Catalog, new: Catalog, *, tolerant: bool = False, prover: Prover | None = None
) -> CatalogDiff:
    """Compare two catalogs; `tolerant` if readers of outputs ignore fields that they do not know.

    Tools are compared by their ids. If each catalog has one namespace, and it is another, they
    are compared by their names alone.
    """
    before, after = _entries(old), _entries(new)
    names = [{*each.namespaces} for each in (old, new)]
    if names[0].isdisjoint(names[1]) and len(names[0]) == len(names[1]) == 1:
        before, after = _by_name(before), _by_name(after)
    if prover is None:
        with Prover() as own:
            return _Diff(own, tolerant=tolerant).catalogs(before, after)
    return _Diff(prover, tolerant=tolerant).catalogs(before, after)


def _entries(catalog: Catalog) -> dict[str, Tool]:
    """Tools by id, and the tools behind resources and prompts by their address."""
    return {
        **{tool.id: tool for tool in catalog},
        **{f"resource {each.uri}": each.tool for each in catalog.resources},
        **{f"prompt {each.tool.id}": each.tool for each in catalog.prompts},
    }


def _by_name(entries: Mapping[str, Tool]) -> dict[str, Tool]:
    """The entries without their namespace: `shop_v1.price` and `shop_v2.price` are one tool."""
    return {
        tool.name if key == tool.id else key: replace(tool, wire_name=tool.name[:64])
        for key, tool in entries.items()
    }


class _Diff:
    def __init__(self, prover: Prover, *, tolerant: bool) -> None:
        self._prover = prover
        self._tolerant = tolerant
        self._unproved: list[tuple[str, Side, str]] = []

    def catalogs(self, old: Mapping[str, Tool], new: Mapping[str, Tool]) -> CatalogDiff:
        changes: list[ContractChange] = []
        aliased = {alias: name for name, tool in new.items() for alias in tool.aliases}
        added = [name for name in new if name not in old]
        for name, tool in old.items():
            successor = name if name in new else aliased.get(name)
            if successor is None:
                changes.append(_removed(name, tool, {each: new[each] for each in added}))
                continue
            if successor != name:
                words = f"renamed to {successor}; the old name is still known"
                changes.append(ContractChange(name, "tool", "", words, "minor", subject="tool"))
            changes += _facts(name, tool, new[successor], is_renamed=successor != name)
            changes += self._schemas(name, tool.contract, new[successor].contract)
        changes += [
            ContractChange(name, "tool", "", "was added", "minor", subject="tool") for name in added
        ]
        return CatalogDiff(tuple(changes), tuple(self._unproved))

    def _schemas(self, name: str, old: Contract, new: Contract) -> Iterator[ContractChange]:
        before, after = (ComparedSchema(each.compiled_input, each.formats) for each in (old, new))
        if before != after:
            yield from self._side(name, "input", before, after, wide=after, narrow=before)
        before, after = _output(old), _output(new)
        if before != after:
            wide = _opened(before) if self._tolerant else before
            yield from self._side(name, "output", before, after, wide=wide, narrow=after)

    def _side(
        self,
        name: str,
        side: Side,
        old: ComparedSchema,
        new: ComparedSchema,
        *,
        wide: ComparedSchema,
        narrow: ComparedSchema,
    ) -> Iterator[ContractChange]:
        found = list(schema_changes(old.schema.document, new.schema.document))
        if old.formats != new.formats:
            is_stricter = new.formats
            words = f"formats are {'checked' if is_stricter else 'not checked any more'}"
            found.append(SchemaChange("", words, "narrower" if is_stricter else "wider"))
        bad = "narrower" if side == "input" else "wider"
        if all(change.effect == "note" for change in found):
            proof = CoverProof("yes")
        else:
            proof = self._prover.covers(wide, narrow)
        if proof.verdict == "unknown":
            self._unproved.append((name, side, proof.reason))
        is_shown = False
        for change in found:
            fixed = self._fixed(change, side)
            is_bad = change.effect in (bad, "other") and not (
                fixed == "minor" and side == "output" and change.effect == bad
            )
            if fixed is not None and change.effect == "note":
                yield ContractChange(
                    name, side, change.path, change.words, fixed, subject=change.subject
                )
                continue
            bump: Bump = "major" if is_bad and proof.verdict != "yes" else "minor"
            decided: Decided = "proved" if proof.verdict == "yes" else "table"
            example: tuple[Any, ...] = ()
            if is_bad and proof.verdict == "no":
                decided = "refuted"
                example = () if is_shown else proof.example
                is_shown = True
            if fixed == "major" and bump != "major":
                bump, decided = fixed, "rule"
            yield ContractChange(
                name, side, change.path, change.words, bump, decided, example, change.subject
            )
        if proof.verdict == "no" and not is_shown:
            words = (
                "values that were accepted are refused"
                if side == "input"
                else "values are possible that were not before"
            )
            yield ContractChange(name, side, "", words, "major", "refuted", proof.example, "rule")

    def _fixed(self, change: SchemaChange, side: Side) -> Bump | None:
        """The least class of a change, apart from the values that are accepted; None for rules.

        With tolerant readers an added field of an output is the only change of values that is minor
        by itself.
        """
        if change.subject == "text":
            return "patch"
        if change.subject == "default":
            if side == "output":
                return "patch"
            return "minor" if change.words.endswith("was added") else "major"
        if change.subject == "member":
            if "was removed" in change.words:
                return "major"
            return "major" if side == "output" and not self._tolerant else "minor"
        return None


# --- schemas --------------------------------------------------------------------------------


def _output(contract: Contract) -> ComparedSchema:
    """The delivered output; without a schema, every value."""
    document = contract.output
    if document is None:
        return _OPEN
    return ComparedSchema(compile_schema(document, formats=contract.formats), contract.formats)


def _opened(side: ComparedSchema) -> ComparedSchema:
    """The schema for a reader that ignores members that it does not know."""
    document = _without_closing(side.schema.document)
    return replace(side, schema=compile_schema(document, formats=side.formats))


def _without_closing(part: Any) -> Any:
    if is_object(part):
        is_closed = is_object(part.get("properties")) and part.get("additionalProperties") is False
        return {
            key: _without_closing(inner)
            for key, inner in part.items()
            if not (is_closed and key == "additionalProperties")
        }
    return [_without_closing(inner) for inner in part] if is_array(part) else part


# --- rules about tools ----------------------------------------------------------------------


def _removed(name: str, tool: Tool, added: Mapping[str, Tool]) -> ContractChange:
    same = [
        other
        for other, candidate in added.items()
        if candidate.description == tool.description
        and canonical_json([candidate.contract.input, candidate.contract.output])
        == canonical_json([tool.contract.input, tool.contract.output])
    ]
    words = f"was removed, or renamed to {same[0]} without an alias" if same else "was removed"
    return ContractChange(name, "tool", "", words, "major", subject="tool")


def _facts(name: str, old: Tool, new: Tool, *, is_renamed: bool) -> Iterator[ContractChange]:
    """The changes of a tool besides its schemas."""

    def change(words: str, bump: Bump) -> ContractChange:
        return ContractChange(name, "tool", "", words, bump)

    for field in _TEXTS:
        if getattr(old, field) != getattr(new, field):
            yield ContractChange(name, "tool", "", f"{field} changed", "patch", subject="text")
    if dict(old.annotations) != dict(new.annotations):
        yield change("annotations changed", "patch")
    if old.wire_name != new.wire_name and not is_renamed:
        yield change(f"its name over MCP changed: {old.wire_name} → {new.wire_name}", "major")
    if old.kind != new.kind:
        yield change(f"kind {old.kind} → {new.kind}", "major")
    if (old.disabled is None) != (new.disabled is None):
        is_off = new.disabled is not None
        yield change("is disabled" if is_off else "is enabled", "major" if is_off else "minor")
    for field, words in (("aliases", "alias"), ("argument_aliases", "other argument name")):
        before: tuple[str, ...] = tuple(getattr(old, field))
        after: tuple[str, ...] = tuple(getattr(new, field))
        yield from (
            change(f"{words} {each} was removed", "major") for each in before if each not in after
        )
        yield from (
            change(f"{words} {each} was added", "minor") for each in after if each not in before
        )
    yield from (change(*each) for each in _rights(old, new))
    yield from (change(*each) for each in _policies(old.contract, new.contract))


def _rights(old: Tool, new: Tool) -> Iterator[tuple[str, Bump]]:
    before, after = old.access, new.access
    for scope in after.scopes:
        if scope not in before.scopes:
            yield f"scope {shown(scope)} is needed", "major"
    for scope in before.scopes:
        if scope not in after.scopes:
            yield f"scope {shown(scope)} is not needed any more", "minor"
    if {*before.any_scopes} != {*after.any_scopes}:
        is_looser = not after.any_scopes or (
            before.any_scopes and {*before.any_scopes} <= {*after.any_scopes}
        )
        yield "the scopes of which one is needed changed", "minor" if is_looser else "major"
    resources = [(each.resource_type, each.resource_action) for each in (before, after)]
    if resources[0] != resources[1]:
        bump: Bump = "minor" if after.resource_type is None else "major"
        yield "the needed right to a resource changed", bump


def _policies(old: Contract, new: Contract) -> Iterator[tuple[str, Bump]]:
    if old.policy != new.policy:
        is_weaker = POLICIES.index(new.policy) < POLICIES.index(old.policy)
        yield f"output policy {old.policy} → {new.policy}", "major" if is_weaker else "minor"
    if old.input_policy != new.input_policy:
        bump: Bump = "major" if new.input_policy == "exact" else "minor"
        yield f"input policy {old.input_policy} → {new.input_policy}", bump
