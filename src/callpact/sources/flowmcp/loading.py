"""FlowMCP files as Tools: `from_flowmcp` reads, checks and loads a file or a whole catalogue.

One bad file never stops the others; what happened to each stands in the report. Nothing of a file
is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from callpact.errors import DeclarationError, Failed, InvalidManifest, SourceRefused, restored
from callpact.net import HttpTransport, Transport
from callpact.secrets import Secrets
from callpact.sources.flowmcp.answer import read_answer
from callpact.sources.flowmcp.cache import Cache, Entry, hash_of, user_cache
from callpact.sources.flowmcp.catalogue import LIST_FOLDERS, read_text
from callpact.sources.flowmcp.checking import ListFile, check_text, read_list
from callpact.sources.flowmcp.output import mime_type, output_schema
from callpact.sources.flowmcp.parameters import (
    Parameter,
    argument_aliases,
    input_schema,
    read_parameters,
)
from callpact.sources.flowmcp.request import RequestPlan, missing_secret, plan_request, seal
from callpact.sources.flowmcp.rules.lists import resolve_lists
from callpact.sources.loaded import Finding, Opening, Tools
from callpact.tool import Context, Contract, Disabled, Kind, Tool, wire_name

Profile = Literal["strict", "compat"]
_NOT_ID = re.compile(r"[^A-Za-z0-9_-]+")
_SKIPPED = frozenset({"node_modules", "tests"})
_LEVELS_ABOVE = 3


class FlowMCPTools(Tools):
    """The tools of FlowMCP files, their report, and the connections they hold."""

    def __init__(
        self, tools: Iterable[Tool], report: Iterable[Finding], transport: Transport
    ) -> None:
        super().__init__(tools, report)
        self._transport = transport

    async def aclose(self) -> None:
        """Close the connections to upstreams."""
        await self._transport.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loading:
    """What every file of one loading shares."""

    profile: Profile
    lists: Mapping[str, ListFile]
    libraries: frozenset[str]
    secrets: Secrets
    transport: Transport
    cache: Cache


def from_flowmcp(
    path: str | Path,
    *,
    profile: Profile = "compat",
    lists: str | Path | None = None,
    libraries: Iterable[str] = (),
    secrets: Mapping[str, str] | Secrets | None = None,
    transport: Transport | None = None,
    cache: Path | None = None,
) -> FlowMCPTools:
    """Make Tools of a FlowMCP file, or of every one in a folder.

    `lists` is a folder of shared lists, beside those that the catalogue has itself (`_lists`).
    `libraries` extends the six that hooks may use; `*` allows all. `secrets` come before the
    environment. `cache` is a folder where it is kept what checking gave; unchanged files are then
    not checked again.

    Raises:
        SourceRefused: there is no such file or folder, or no FlowMCP file in it.
    """
    root = Path(path)
    report: list[Finding] = []
    found = _found(root)
    files = [file for file in found if file.parent.name not in LIST_FOLDERS]
    if not files:
        raise SourceRefused(f"flowmcp:{root} holds no .mjs file")
    known = _read_lists(_list_files(root, lists, found), profile, report)
    allowed = frozenset(libraries)
    loading = _Loading(
        profile=profile,
        lists=known,
        libraries=allowed,
        secrets=_known(secrets),
        transport=HttpTransport() if transport is None else transport,
        cache=Cache(cache, [str(root.absolute()), profile, *sorted(allowed), *_told(known)]),
    )
    loaded = [tool for file in files for tool in _load(file, loading, report)]
    loading.cache.save()
    return FlowMCPTools(_apart(loaded, report), report, loading.transport)


def _known(secrets: Mapping[str, str] | Secrets | None) -> Secrets:
    return secrets if isinstance(secrets, Secrets) else Secrets(secrets, environ=os.environ)


def _found(root: Path) -> list[Path]:
    """The schema files and the lists of a catalogue; links to folders are not followed."""
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise SourceRefused(f"flowmcp:{root} does not exist")
    found: list[Path] = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        found += [Path(folder, name) for name in files if name.endswith(".mjs")]
    return sorted(found)


def _list_files(root: Path, given: str | Path | None, found: list[Path]) -> list[Path]:
    """Every file of shared lists: those given, those in the catalogue, those above it."""
    if given is not None and not Path(given).is_dir():
        raise SourceRefused(f"lists: {given} is not a folder")
    inside = [file for file in found if file.parent.name in LIST_FOLDERS]
    base = root.absolute()
    above = [*base.parents[: _LEVELS_ABOVE + base.is_file()]]
    folders = [parent / name for parent in above for name in LIST_FOLDERS]
    first = [] if given is None else sorted(Path(given).glob("*.mjs"))
    outside = (file for folder in folders for file in sorted(folder.glob("*.mjs")))
    each: dict[Path, Path] = {}
    for file in (*first, *inside, *outside):
        each.setdefault(file.resolve(), file)
    return list(each.values())


def _read_lists(
    files: Iterable[Path], profile: Profile, report: list[Finding]
) -> dict[str, ListFile]:
    known: dict[str, ListFile] = {}
    for file in files:
        text = _text(file, report)
        if text is None:
            continue
        read = read_list(text, str(file), profile)
        report.extend(read.findings if read.list is None else read.unplaced)
        if read.list is None:
            continue
        first = known.setdefault(read.list.name, read.list)
        if first is not read.list:
            words = f"the list '{read.list.name}' is also in {first.file}, which counts"
            report.append(Finding(str(file), "warning", words, "LST002", "/meta/name"))
    return known


def _text(file: Path, report: list[Finding]) -> str | None:
    try:
        return read_text(file)
    except InvalidManifest as error:
        found = Finding(str(file), "error", error.message, "VAL155", "", error.line, error.column)
        report.append(found)
        return None


def _load(file: Path, loading: _Loading, report: list[Finding]) -> list[_Loaded]:
    text = _text(file, report)
    if text is None:
        return []
    key = loading.cache.key(str(file), text.encode())
    entry = loading.cache.get(key)
    if entry is None:
        entry = _checked(text, file, loading)
        loading.cache.add(key, entry)
    report.extend(entry.findings)
    if entry.manifest is None:
        return []
    found: list[_Loaded] = []
    for name, declared in entry.manifest["tools"].items():
        reason = entry.refused.get(name)
        try:
            if reason is None:
                found.append(_Loaded(name, file.stem, _tool(name, declared, entry, loading, file)))
        except DeclarationError as error:
            reason = str(error)
        if reason is not None:
            report.append(Finding(str(file), "error", f"tool '{name}': {reason}"))
    return found


def _checked(text: str, file: Path, loading: _Loading) -> Entry:
    checked = check_text(
        text,
        file=str(file),
        profile=loading.profile,
        lists=loading.lists,
        libraries=loading.libraries,
    )
    if checked.manifest is None:
        return Entry(None, checked.findings)
    aliases: dict[str, dict[str, str]] = {}
    refused: dict[str, str] = {}
    for name, declared in checked.manifest["tools"].items():
        making = _Making(checked.manifest, declared, loading.lists)
        if making.aliases:
            aliases[name] = making.aliases
        if making.has_patterns:
            try:
                making.contract()
            except DeclarationError as error:
                refused[name] = str(error)
    hooked = tuple(sorted(checked.hooked))
    # The lines of mere warnings cost more than all the rest.
    return Entry(checked.manifest, checked.unplaced, hooked, aliases, refused)


def _told(lists: Mapping[str, ListFile]) -> Iterable[str]:
    """What the check of a file may depend on, of the lists that it may refer to."""
    parts = ((k.name, k.version, k.fields, k.entries, k.depends_on) for k in lists.values())
    return sorted(hash_of(part) for part in parts)


@dataclass(frozen=True, slots=True)
class _Loaded:
    name: str
    file: str
    tool: Tool


def _tool(
    name: str, declared: Mapping[str, Any], entry: Entry, loading: _Loading, file: Path
) -> Tool:
    main = cast("dict[str, Any]", entry.manifest)
    making = _Making(main, declared, loading.lists)
    namespace = main["namespace"]
    meta: dict[str, Any] = declared.get("meta") or main.get("meta") or {}
    is_read = declared["method"] == "GET"
    kind: Kind = "query" if is_read else "mutation"
    return Tool(
        id=f"{namespace}.{_NOT_ID.sub('_', name).strip('_') or 'tool'}",
        description=declared["description"],
        contract=Contract.later(making.contract),
        handler=_Calling(making, loading.secrets, loading.transport).call,
        title=f"{main['name']}: {name}",
        tags=tuple(main.get("tags", ())),
        aliases=(f"{namespace}/{file.stem}::{name}",),
        version=main.get("schemaVersion", "1.0.0"),
        kind=kind,
        annotations={
            "readOnlyHint": meta.get("isReadOnly", is_read),
            "destructiveHint": meta.get("isDestructive", not is_read),
            "openWorldHint": True,
        },
        examples=tuple(declared.get("tests", ())),
        source=f"flowmcp:{file}",
        wire_name=wire_name(f"{name}_{namespace}"),
        argument_aliases=entry.aliases.get(name, {}),
        disabled=_disabled(name, entry, loading.secrets),
    )


@dataclass(frozen=True)
class _Making:
    """What a tool is made of, each part when it is first needed: most tools are never called."""

    main: Mapping[str, Any]
    declared: Mapping[str, Any]
    lists: Mapping[str, ListFile]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        secrets = self.main.get("requiredServerParams", ())
        entries = resolve_lists(self.main, self.lists).lists if "sharedLists" in self.main else {}
        return read_parameters(self.declared["parameters"], secrets, entries)

    @cached_property
    def plan(self) -> RequestPlan:
        return plan_request(self.main, self.declared, self.parameters)

    @property
    def has_patterns(self) -> bool:
        """True if a schema holds what may not compile."""
        options = (block["z"].get("options", ()) for block in self.declared["parameters"])
        return any(option.startswith("regex") for given in options for option in given)

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Other names of arguments, which the file uses in its placeholders."""
        values = (block["position"]["value"] for block in self.declared["parameters"])
        if not any("{{" in value and value != "{{USER_PARAM}}" for value in values):
            return {}
        secrets = self.main.get("requiredServerParams", ())
        return argument_aliases(self.declared["parameters"], secrets)

    def contract(self) -> Contract:
        output = output_schema(self.declared.get("output"))
        return Contract(
            input=input_schema(self.parameters),
            output=output,
            policy=None if output is None else "warn",
            # Files with placeholders of their own take all values for text, their tests as well.
            input_policy="tolerant" if self.aliases else "exact",
        )


def _disabled(name: str, entry: Entry, secrets: Secrets) -> Disabled | None:
    main = cast("dict[str, Any]", entry.manifest)
    for key in main.get("requiredServerParams", ()):
        if secrets.get(key) is None:
            missing = missing_secret(key)
            return Disabled(missing.code, missing.message)
    if name in entry.hooked:
        libraries = main.get("requiredLibraries") or ()
        needs = f" and the libraries {', '.join(libraries)}" if libraries else ""
        return Disabled("handler_error", f"It needs its hooks{needs}, which are not run yet")
    return None


@dataclass(frozen=True)
class _Calling:
    """What calls a tool: its request is drafted, sealed, sent, and its answer read."""

    making: _Making
    secrets: Secrets
    transport: Transport

    @cached_property
    def mime_type(self) -> str:
        return mime_type(self.making.declared.get("output"))

    @cached_property
    def used(self) -> Secrets | None:
        """The secrets that a call sends, which its answer may echo."""
        names = self.making.plan.secrets
        known = {name: value for name in names if (value := self.secrets.get(name))}
        return Secrets(known) if known else None

    async def call(self, arguments: dict[str, Any], context: Context) -> Any:
        request = seal(self.making.plan.draft(arguments), self.secrets.get)
        try:
            response = await self.transport.send(request, deadline=context.deadline)
            return read_answer(response, self.mime_type, self.used)
        except Failed as error:
            raise _masked(error, self.secrets) from None


def _masked(error: Failed, secrets: Secrets) -> Failed:
    """The error without any secret, of those other calls use as well."""
    message, details = secrets.mask(error.message), secrets.mask_data(error.details)
    if message == error.message and details == error.details:
        return error
    kind = type(error)
    return cast("Failed", restored(error.code, message, details=details, kind=kind))


class FlowMCPSource:
    """A FlowMCP file or a folder of them."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._tools: FlowMCPTools | None = None

    async def load(self) -> Tools:
        """Read every file.

        Raises:
            SourceRefused: there is no such file or folder.
        """
        given = self._opening
        self._tools = from_flowmcp(
            (given.folder or Path()) / given.ref,
            profile=cast("Profile", given.profile or "compat"),
            lists=given.lists,
            libraries=given.libraries,
            secrets=given.secrets,
            transport=HttpTransport(allow=given.hosts, upstreams=given.upstreams),
            cache=user_cache(),
        )
        return self._tools

    async def aclose(self) -> None:
        """Close the connections to upstreams."""
        if self._tools is not None:
            await self._tools.aclose()


def open_flowmcp(opening: Opening) -> FlowMCPSource:
    """The source behind `flowmcp:` references."""
    return FlowMCPSource(opening)


def _apart(loaded: list[_Loaded], report: list[Finding]) -> list[Tool]:
    """Tools of one name in several files get the file's name into theirs, each with a warning."""
    count: dict[str, int] = {}
    for item in loaded:
        count[item.tool.id] = count.get(item.tool.id, 0) + 1
    tools: list[Tool] = []
    names: dict[str, Tool] = {}
    for item in loaded:
        tool = item.tool
        if count[tool.id] > 1:
            file = _NOT_ID.sub("_", item.file).strip("_") or "file"
            new = f"{tool.namespace}.{file}.{tool.name}"
            text = f"'{tool.id}' is declared {count[tool.id]} times; here it is '{new}'"
            report.append(Finding(_file_of(tool), "warning", text))
            name = wire_name(f"{item.name}_{file}_{tool.namespace}")
            tool = replace(tool, id=new, wire_name=name)
        own = (tool.id, tool.wire_name, *tool.aliases)
        taken = next((name for name in own if name in names), None)
        if taken is not None:
            text = f"'{taken}' is already a tool of {_file_of(names[taken])}: rename the tool or its file"
            report.append(Finding(_file_of(tool), "error", text))
            continue
        names |= dict.fromkeys(own, tool)
        tools.append(tool)
    return tools


def _file_of(tool: Tool) -> str:
    return tool.source.removeprefix("flowmcp:")
