"""FlowMCP's own rules for raising `schemaVersion`, applied to the changes between FlowMCP files.

They differ from the table for other contracts: FlowMCP's outputs require no field, so an added one
is minor, and so is a changed default. A change that FlowMCP does not name keeps its class. The files
are read as data; requests, keys and list entries are compared there, since tools do not show them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from callpact.contracts.diff import BUMP_RANK, Bump, CatalogDiff, ContractChange
from callpact.errors import InvalidManifest, InvalidSchema
from callpact.schema import is_array, is_object, schema_hash
from callpact.sources.flowmcp.read.catalogue_files import read_text
from callpact.sources.flowmcp.read.exports import read_schema_file

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.tool import Tool

FLOWMCP_KIND = "flowmcp:"
"""The beginning of the source of a tool of a FlowMCP file."""


class BumpRule(Struct, frozen=True):
    """One rule: the bump, and the change that it is for."""

    bump: Bump
    change: str


_REMOVED_TOOL = BumpRule("major", "rename or remove a tool")
_REMOVED_PARAMETER = BumpRule("major", "rename or remove a parameter")
_REMOVED_FIELD = BumpRule("major", "rename or remove an output field")
_REQUIRED_PARAMETER = BumpRule("major", "add a required parameter")
_ADDED_TOOL = BumpRule("minor", "add a tool")
_ADDED_PARAMETER = BumpRule("minor", "add an optional parameter")
_ADDED_FIELD = BumpRule("minor", "add an output field")
_DEFAULT = BumpRule("minor", "change a default")
_MEANING = BumpRule("minor", "change a meaning")
_KEYS = BumpRule("minor", "change `requiredServerParams`")
_WORDING = BumpRule("patch", "wording")
_ENTRY = BumpRule("patch", "list entry")
FLOWMCP_BUMPS = (
    _REMOVED_TOOL,
    _REMOVED_PARAMETER,
    _REMOVED_FIELD,
    _REQUIRED_PARAMETER,
    _ADDED_TOOL,
    _ADDED_PARAMETER,
    _ADDED_FIELD,
    _DEFAULT,
    _MEANING,
    _KEYS,
    _WORDING,
    _ENTRY,
)
"""FlowMCP's guide for version bumps, the highest first."""


def is_flowmcp(catalog: Catalog) -> bool:
    """True if every tool comes from a FlowMCP file, and there is one."""
    return len(catalog) > 0 and all(tool.source.startswith(FLOWMCP_KIND) for tool in catalog)


def with_flowmcp_bumps(found: CatalogDiff, old: Catalog, new: Catalog) -> CatalogDiff:
    """The changes between two catalogs of FlowMCP files, classified by FlowMCP's rules."""
    files: dict[str, dict[str, Any] | None] = {}
    before, after = (_Declared(catalog, files) for catalog in (old, new))
    changes: list[ContractChange] = []
    for change in found.changes:
        rule = _rule(change, before.of(change.tool), after.of(change.tool))
        changes.append(change if rule is None else _by(rule, change))
    for name, tool in before.tools.items():
        other = after.of(tool.tool.id) or after.of(name)
        changes += [] if other is None else _unseen(name, tool, other)
    places = {change.tool: place for place, change in reversed([*enumerate(found.changes)])}
    changes.sort(key=lambda change: places.get(change.tool, len(found.changes)))
    violations = tuple(_violations(before, after, changes))
    return replace(found, changes=tuple(changes), rules="FlowMCP", violations=violations)


def _by(rule: BumpRule, change: ContractChange) -> ContractChange:
    is_kept = rule.bump == change.bump
    return replace(
        change,
        bump=rule.bump,
        rule=rule.change,
        decided=change.decided if is_kept else "rule",
        example=change.example if is_kept else (),
    )


# --- files ----------------------------------------------------------------------------------


class _DeclaredTool(Struct, frozen=True):
    """A tool with the data that its file declares; empty if the file cannot be read."""

    tool: Tool
    main: dict[str, Any]

    @property
    def file_name(self) -> str:
        return f"{self.main.get('namespace')}/{self.main.get('name')}"

    @property
    def own(self) -> dict[str, Any]:
        declared = self.main.get("tools", self.main.get("routes"))
        own = _member(declared, next((_local(each) for each in self.tool.aliases), self.tool.name))
        return own if is_object(own) else {}

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(map(str, _items(self.main.get("requiredServerParams"))))

    @property
    def request(self) -> dict[str, Any]:
        """The parts of a request that no caller gives."""
        names = ("method", "path", "headers")
        fixed = [
            position
            for position in map(_position, _items(self.own.get("parameters")))
            if "{{" not in str(position.get("value"))
        ]
        own = {name: self.own.get(name) for name in names}
        return {"root": self.main.get("root"), **own, "fixed parameters": fixed}

    def primitive(self, key: str) -> str:
        for block in _items(self.own.get("parameters")):
            if _position(block).get("key") == key:
                return str(_member(_member(block, "z"), "primitive"))
        return ""


def _member(value: Any, key: str) -> Any:
    return value.get(key) if is_object(value) else None


def _items(value: Any) -> list[Any]:
    return value if is_array(value) else []


def _position(block: Any) -> dict[str, Any]:
    position = _member(block, "position")
    return position if is_object(position) else {}


def _local(alias: str) -> str:
    """The name of a tool in its file, from an alias such as `weather/Forecast::getForecast`."""
    return alias.rpartition("::")[2]


class _Declared:
    def __init__(self, catalog: Catalog, files: dict[str, dict[str, Any] | None]) -> None:
        self.tools: dict[str, _DeclaredTool] = {}
        self._names: dict[str, _DeclaredTool] = {}
        for tool in catalog:
            path = tool.source.removeprefix(FLOWMCP_KIND)
            if path not in files:
                files[path] = _read(path)
            declared = _DeclaredTool(tool, files[path] or {})
            self.tools[tool.id] = self._names[tool.name] = declared

    def of(self, name: str) -> _DeclaredTool | None:
        """A tool by its id, or by its name where catalogs are compared by names."""
        return self.tools.get(name) or self._names.get(name)

    def manifests(self) -> Mapping[str, dict[str, Any]]:
        """The data of the files by the names that they declare."""
        return {each.file_name: each.main for each in self.tools.values() if each.main}


def _read(path: str) -> dict[str, Any] | None:
    try:
        return read_schema_file(read_text(Path(path))).data
    except InvalidManifest:
        return None


# --- rules ----------------------------------------------------------------------------------


def _rule(
    change: ContractChange, old: _DeclaredTool | None, new: _DeclaredTool | None
) -> BumpRule | None:
    """The rule that names a change; None if none does."""
    match change.side, change.subject:
        case "tool", "tool":
            return _ADDED_TOOL if change.words == "was added" else _REMOVED_TOOL
        case _, "text":
            return _WORDING
        case "input", "default":
            return _DEFAULT
        case "input", "member":
            if "was removed" in change.words:
                return _REMOVED_PARAMETER
            is_required = new is not None and _is_required(new.tool, change.path)
            return _REQUIRED_PARAMETER if is_required else _ADDED_PARAMETER
        case "output", "member":
            return _REMOVED_FIELD if "was removed" in change.words else _ADDED_FIELD
        case _:
            pass
    if old is None or new is None:
        return None
    if change.words in ("is disabled", "is enabled") and old.keys != new.keys:
        return _KEYS
    if change.side == "input" and change.words.startswith("value "):
        key = change.path.removeprefix("/")
        first, second = old.primitive(key), new.primitive(key)
        return _ENTRY if first == second and "{{" in first else None
    return None


def _is_required(tool: Tool, path: str) -> bool:
    required = _member(tool.contract.input, "required")
    return path.removeprefix("/") in _items(required)


def _unseen(name: str, old: _DeclaredTool, new: _DeclaredTool) -> Iterator[ContractChange]:
    """The changes of a file that its tools do not show."""
    if not (old.main and new.main):
        return

    def change(words: str, rule: BumpRule) -> ContractChange:
        return ContractChange(name, "tool", "", words, rule.bump, rule=rule.change)

    for key in sorted(old.keys ^ new.keys):
        words = "is needed" if key in new.keys else "is not needed any more"
        yield change(f"key {key} {words}", _KEYS)
    before, after = old.request, new.request
    for part in before:
        if before[part] != after[part]:
            yield change(f"the {part} of its request changed", _MEANING)


# --- versions -------------------------------------------------------------------------------


def _violations(old: _Declared, new: _Declared, changes: Iterable[ContractChange]) -> Iterator[str]:
    """Files whose `schemaVersion` was not raised as their changes ask for."""
    needed: dict[str, Bump] = {}
    for change in changes:
        declared = new.of(change.tool) or old.of(change.tool)
        name = "" if declared is None else declared.file_name
        best = needed.get(name, "patch")
        needed[name] = max(best, change.bump, key=BUMP_RANK.__getitem__)
    before = old.manifests()
    for name, main in new.manifests().items():
        if name not in before or _content(main) == _content(before[name]):
            continue
        wanted = needed.get(name, "patch")
        first, second = (str(each.get("schemaVersion", "1.0.0")) for each in (before[name], main))
        raised = _raised(first, second)
        if raised is None:
            version = (
                f"is still {first}" if first == second else f"{first} → {second} is not higher"
            )
            yield f"{name}: its content changed, and schemaVersion {version} ({wanted})"
        elif BUMP_RANK[raised] < BUMP_RANK[wanted]:
            yield f"{name}: schemaVersion {first} → {second} is {raised}, its changes are {wanted}"


def _content(main: Mapping[str, Any]) -> str:
    """The hash of a file's data without its version."""
    try:
        return schema_hash({key: value for key, value in main.items() if key != "schemaVersion"})
    except InvalidSchema:
        return ""


def _raised(old: str, new: str) -> Bump | None:
    """The part of a version that was raised; None if it is not higher than before."""
    bumps: tuple[Bump, ...] = ("major", "minor", "patch")
    for bump, first, second in zip(bumps, old.split("."), new.split("."), strict=False):
        if first != second:
            is_higher = first.isdecimal() and second.isdecimal() and int(second) > int(first)
            return bump if is_higher else None
    return None
