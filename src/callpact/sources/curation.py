"""Curation: the tools of any source under the names, texts, rights and arguments of a configuration.

Pure functions over Tools; nothing here reads a file. Selection by rule, arguments and the fields of
an output have modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

from callpact.catalog import Catalog
from callpact.errors import InvalidConfig
from callpact.sources.base import Finding, Tools, nearest_name
from callpact.sources.curated_arguments import ArgumentChanges, with_arguments
from callpact.sources.projection import projected
from callpact.sources.selection import SelectionRules, is_selected, unmatched_rules
from callpact.tool import Contract, Disabled, InputPolicy, Policy, Tool, wire_name

if TYPE_CHECKING:
    from callpact.resources import Prompt, Resource

DISABLED = Disabled("handler_error", "disabled in callpact.toml")
_MOST_NAMED = 10
"""Unknown names in one error."""
_NO_RULES = SelectionRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCuration:
    """The changes to one tool; what is None or empty stays as the source declares it."""

    name: str | None = None
    aliases: Sequence[str] = ()
    title: str | None = None
    description: str | None = None
    append_description: str | None = None
    policy: Policy | None = None
    input_policy: InputPolicy | None = None
    timeout: float | None = None
    tags: Sequence[str] | None = None
    scopes: Sequence[str] = ()
    read_only: bool | None = None
    hidden: Mapping[str, Any] = field(default_factory=dict[str, Any])
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    describe: Mapping[str, str] = field(default_factory=dict[str, str])
    fields: Sequence[str] | None = None
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Curation:
    """The selection of the tools of one source, and the changes to them by a name of the tool."""

    place: str = ""
    """The table that declares it, for messages."""
    namespace: str | None = None
    select: SelectionRules = _NO_RULES
    exclude: SelectionRules = _NO_RULES
    tools: Mapping[str, ToolCuration] = field(default_factory=dict[str, ToolCuration])
    places: Mapping[str, str] = field(default_factory=dict[str, str])
    """The places of what another file declares: of a key, or of the table of a tool."""

    def place_of(self, *keys: str) -> str:
        """The place of a key, or of the table of a tool."""
        key = ".".join(keys)
        return self.places.get(key) or f"{self.place}.{key}"


def curate(whole: Catalog, selected: Catalog, curation: Curation, *, is_complete: bool) -> Tools:
    """The selected tools, resources and prompts of a source with their changes, and findings.

    A table may name any tool of the `whole` source. Of a source that is not complete, because a
    part of it could not be loaded, an unknown name is a finding and no error.

    Raises:
        InvalidConfig: a rule or a table names something that the source does not have, two tools
            get the same name, or a fixed value breaks the schema of its argument.
    """
    report: list[Finding] = []
    unknown = [*_unmatched(whole, curation)]
    tables = _tables(whole, curation, unknown)
    if unknown and is_complete:
        more = len(unknown) - _MOST_NAMED
        named = [f"{place}: {text}" for place, text in unknown[:_MOST_NAMED]]
        raise InvalidConfig("; ".join([*named, f"and {more} more"] if more > 0 else named))
    report += [Finding(place, "warning", f"{place}: {text}") for place, text in unknown]
    chosen = _chosen(selected, curation)
    tools = [_curated(tool, tables.get(tool.id), curation.namespace, report) for tool in chosen]
    _check_names(chosen, tools, curation.place)

    def renamed(offer: Any) -> Any:
        return replace(offer, tool=_named(offer.tool, curation.namespace, None))

    resources: Iterable[Resource] = map(renamed, selected.resources)
    prompts: Iterable[Prompt] = map(renamed, selected.prompts)
    return Tools(tools, report, resources, prompts)


def _unmatched(whole: Catalog, curation: Curation) -> Iterator[tuple[str, str]]:
    """The places of rules that fit no tool, and the reasons."""
    for name, rules in (("select", curation.select), ("exclude", curation.exclude)):
        for key, reason in unmatched_rules(whole, rules):
            yield f"{curation.place_of(name)}.{key}", reason


def _chosen(selected: Catalog, curation: Curation) -> list[Tool]:
    """The tools that the rules select; resources and prompts have nothing that rules are about."""
    chosen = [tool for tool in selected if is_selected(tool, curation.select, curation.exclude)]
    if len(selected) and not chosen:
        name = "exclude" if curation.select == _NO_RULES else "select"
        _refuse(curation.place_of(name), f"it leaves none of the {len(selected)} tools")
    return chosen


_Table = tuple[str, ToolCuration]
"""The place of a table in the configuration, and its changes."""


def _tables(
    whole: Catalog, curation: Curation, unknown: list[tuple[str, str]]
) -> dict[str, _Table]:
    """The tables by the id of their tool; those of no tool are added to `unknown`."""
    found: dict[str, _Table] = {}
    names = [*(known.id for known in whole), *(known.name for known in whole)]
    for key, changes in curation.tools.items():
        place = curation.place_of("tools", key)
        tool = whole.get(key)
        named = [known.id for known in whole if known.name == key] if tool is None else [tool.id]
        if len(named) > 1:
            _refuse(place, f"several tools have this name: {', '.join(named)}; write an id")
        if not named:
            near = nearest_name(key, names) if len(unknown) < _MOST_NAMED else ""
            unknown.append((place, f"the source has no such tool{near}"))
        for tool_id in named:
            other = found.setdefault(tool_id, (place, changes))
            if other[0] != place:
                _refuse(place, f"'{tool_id}' has the table {other[0]} already")
    return found


def _curated(
    tool: Tool, table: _Table | None, namespace: str | None, report: list[Finding]
) -> Tool:
    place, changes = table or ("", ToolCuration())
    tool = _named(tool, namespace, changes.name)
    if table is None:
        return tool
    access, annotations, description = tool.access, tool.annotations, tool.description
    if changes.scopes:
        scopes = dict.fromkeys((*access.scopes, *changes.scopes))
        access = replace(access, scopes=tuple(scopes))
    if changes.read_only is not None:
        annotations = {**annotations, "readOnlyHint": changes.read_only}
    if changes.description is not None:
        description = changes.description
    if changes.append_description is not None:
        description = f"{description}\n\n{changes.append_description}".strip()
    tool = replace(
        tool,
        aliases=tuple(dict.fromkeys((*tool.aliases, *changes.aliases))),
        title=tool.title if changes.title is None else changes.title,
        description=description,
        timeout=changes.timeout or tool.timeout,
        tags=tool.tags if changes.tags is None else tuple(changes.tags),
        access=access,
        annotations=annotations,
        disabled=tool.disabled if changes.enabled else DISABLED,
    )
    arguments = ArgumentChanges(
        hidden=changes.hidden,
        defaults=changes.defaults,
        rename=changes.rename,
        describe=changes.describe,
    )
    if arguments != _NO_ARGUMENTS:
        tool = with_arguments(tool, place, arguments)
    if changes.policy is not None or changes.input_policy is not None:
        tool = replace(tool, contract=_contract(tool.contract, changes))
    if changes.fields is not None:
        contract, findings = projected(tool, changes.fields, f"{place}.fields")
        tool = replace(tool, contract=contract)
        report += findings
    return tool


_NO_ARGUMENTS = ArgumentChanges(hidden={}, defaults={}, rename={}, describe={})


def _contract(own: Contract, changes: ToolCuration) -> Contract:
    return Contract(
        input=own.compiled_input,
        output=own.output,
        policy=changes.policy or own.policy,
        input_policy=changes.input_policy or own.input_policy,
        formats=own.formats,
    )


# --- names -----------------------------------------------------------------------------------


def _named(tool: Tool, namespace: str | None, name: str | None) -> Tool:
    """The tool under another name; the names from before become aliases that give way."""
    namespace, name = namespace or tool.namespace, name or tool.name
    if (namespace, name) == (tool.namespace, tool.name):
        return tool
    is_reversed = tool.wire_name == wire_name(f"{tool.name}_{tool.namespace}")
    over_mcp = f"{name}_{namespace}" if is_reversed else f"{namespace}_{name}"
    new = replace(tool, id=f"{namespace}.{name}", wire_name=wire_name(over_mcp))
    former = dict.fromkeys((tool.id, tool.wire_name, *tool.aliases))
    kept = tuple(known for known in former if known not in {new.id, new.wire_name})
    return replace(new, aliases=kept, former=kept)


def _check_names(selected: list[Tool], tools: list[Tool], place: str) -> None:
    """Refuse a name of two tools; a former name gives way, which is up to the catalog."""
    owners: dict[str, str] = {}
    for old, tool in zip(selected, tools, strict=True):
        for name in {tool.id, tool.wire_name, *tool.aliases}.difference(tool.former):
            other = owners.setdefault(name, old.id)
            if other != old.id:
                _refuse(place, f"'{other}' and '{old.id}' both get the name '{name}'; rename one")


def _refuse(place: str, text: str) -> NoReturn:
    raise InvalidConfig(f"{place}: {text}")
