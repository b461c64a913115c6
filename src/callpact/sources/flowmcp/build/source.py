"""FlowMCP files as Tools: `from_flowmcp` reads, checks and loads a file or a whole catalogue.

One bad file never stops the others; the report has the findings about each. No code of a file is
run.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from callpact.errors import DeclarationError, InvalidManifest, SourceRefused
from callpact.folders import cache_folder
from callpact.net import HttpTransport, Transport
from callpact.net.host_patterns import HostPatterns
from callpact.sandbox.hook_limits import HookLimits, limits_of
from callpact.secrets.keys import Secrets, key_name
from callpact.sources.base import Finding, Opening, Tools, Watched
from callpact.sources.flowmcp.build.check_cache import Cache, CachedManifest, Entry, hash_of, packed
from callpact.sources.flowmcp.build.tool_factory import (
    LoadedTool,
    ToolFactory,
    unique_tools,
)
from callpact.sources.flowmcp.check.file_check import ListFile, check_text, read_list
from callpact.sources.flowmcp.check.rule_table import Profile
from callpact.sources.flowmcp.hooks.file_hooks import CatalogueHooks
from callpact.sources.flowmcp.read.catalogue_files import (
    SKIPPED_FOLDERS,
    CandidateFile,
    as_text,
    find_files,
    find_lists,
    list_folders,
    lists_above,
    other_kind,
    unreadable,
)
from callpact.sources.flowmcp.read.parameters import (
    argument_aliases,
)
from callpact.sources.flowmcp.read.registry import REGISTRY
from callpact.sources.flowmcp.read.scan import hooked_tools
from callpact.sources.key_grants import FileKeys, KeyGrants, UpstreamRoot, WantedKeys, read_root
from callpact.tool import Tool


class FlowMCPTools(Tools):
    """The tools of FlowMCP files, their report, and the connections they hold."""

    def __init__(
        self,
        tools: Iterable[Tool],
        report: Iterable[Finding],
        transport: Transport,
        hooks: CatalogueHooks,
    ) -> None:
        super().__init__(tools, report)
        self._transport = transport
        self._hooks = hooks

    async def aclose(self) -> None:
        """Close the connections to upstreams, and the engines of hooks."""
        await self._hooks.aclose()
        await self._transport.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loading:
    """The settings and resources that all files of one load share."""

    profile: Profile
    lists: Mapping[str, ListFile]
    libraries: frozenset[str]
    root: Path
    secrets: Secrets
    grants: KeyGrants
    wanted_keys: WantedKeys
    transport: Transport
    cache: Cache
    hooks: CatalogueHooks
    hook_hosts: HostPatterns


def from_flowmcp(
    path: str | Path,
    *,
    profile: Profile = "compat",
    lists: str | Path | None = None,
    libraries: Iterable[str] = (),
    secrets: Mapping[str, str] | Secrets | None = None,
    keys: Iterable[str] = (),
    transport: Transport | None = None,
    cache: Path | None = None,
    packs: Path | None = None,
    hook_hosts: Iterable[str] = (),
    hook_limits: HookLimits | None = None,
) -> FlowMCPTools:
    """Make Tools of a FlowMCP file, or of every one in a folder.

    `lists` is a folder of shared lists, in addition to the catalogue's own (`_lists`). `libraries`
    extends the six that hooks may use; `*` allows all. `secrets` are keys by name; `keys` are names
    that are read from the environment, also as `NAME@host` to bind one to hosts, or `*` for a
    catalogue that is trusted with all of them. `cache` is a folder for the results of checks, so
    that unchanged files are not checked again. `packs` is the folder of libraries for hooks, by
    default the user's own; `hook_hosts` are hosts that hooks may reach besides the root of their
    file (`*`: all).

    Raises:
        SourceRefused: there is no such file or folder, or no FlowMCP file in it.
        InvalidConfig: an entry of `keys` or `hook_hosts` is malformed.
    """
    root = Path(path)
    report: list[Finding] = []
    with _paused_collector():
        found = _found(root)
        known = _read_lists(_list_files(root, found, lists), profile, report)
        allowed, grants = frozenset(libraries), KeyGrants(keys)
        loading = _Loading(
            profile=profile,
            lists=known,
            libraries=allowed,
            root=root,
            secrets=_known(secrets, grants),
            grants=grants,
            wanted_keys=WantedKeys(),
            transport=HttpTransport() if transport is None else transport,
            cache=Cache(
                cache, [str(root.absolute()), profile, *sorted(allowed), *_list_hashes(known)]
            ),
            hooks=CatalogueHooks(known, profile, packs=packs, limits=hook_limits),
            hook_hosts=HostPatterns(hook_hosts, "hook_hosts"),
        )
        files = [candidate for candidate in found if not candidate.is_list]
        # All files are read before a tool is made: a key of several files may need to be bound.
        read = [each for file in files if (each := _read(file, loading, report)) is not None]
        loaded = [tool for each in read for tool in _load(each, loading, report)]
        loading.cache.save()
        return FlowMCPTools(unique_tools(loaded, report), report, loading.transport, loading.hooks)


@contextmanager
def _paused_collector() -> Generator[None]:
    """Pause garbage collection: a catalogue has very many objects, and all of them are kept.

    Repeated traversals would take a tenth of a cold load and half of a warm one.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _known(secrets: Mapping[str, str] | Secrets | None, grants: KeyGrants) -> Secrets:
    if isinstance(secrets, Secrets):
        return secrets
    return Secrets(secrets, environ=os.environ, keys=map(key_name, grants.entries))


def _found(root: Path) -> list[CandidateFile]:
    try:
        found = find_files([root])
    except SourceRefused as error:
        raise SourceRefused(f"flowmcp:{error}") from None
    if all(candidate.is_list for candidate in found):
        raise SourceRefused(f"flowmcp:{root} holds no .mjs file but shared lists")
    return found


def _list_files(
    root: Path, found: list[CandidateFile], given: str | Path | None
) -> Iterator[CandidateFile]:
    """Every file of shared lists that files under the path can refer to, each once."""
    if given is not None and not Path(given).is_dir():
        raise SourceRefused(f"lists: {given} is not a folder")
    seen: set[str] = set()
    for folder in list_folders(root, found, None if given is None else Path(given)).values():
        for candidate in find_lists(folder):
            real = os.path.realpath(candidate.path)
            if real not in seen:
                seen.add(real)
                yield candidate


def _read_lists(
    files: Iterable[CandidateFile], profile: Profile, report: list[Finding]
) -> dict[str, ListFile]:
    known: dict[str, ListFile] = {}
    for candidate in files:
        file = str(candidate.path)
        try:
            read = read_list(as_text(candidate.read()), file, profile)
        except InvalidManifest as error:
            report.append(unreadable(file, error))
            continue
        report.extend(read.findings if read.list is None else read.unplaced)
        if read.list is None:
            continue
        first = known.setdefault(read.list.name, read.list)
        if first is not read.list:
            words = f"the list '{read.list.name}' is also in {first.file}, which counts"
            report.append(Finding(file, "warning", words, "LST002", "/meta/name"))
    return known


class _ReadFile(NamedTuple):
    """One file that passed its checks."""

    file: Path
    data: bytes
    entry: Entry
    manifest: CachedManifest
    root: UpstreamRoot


def _read(candidate: CandidateFile, loading: _Loading, report: list[Finding]) -> _ReadFile | None:
    file = candidate.path
    try:
        data = candidate.read()
        entry, manifest = _entry(data, candidate, loading)
    except InvalidManifest as error:
        report.append(unreadable(file, error))
        return None
    report.extend(entry.findings)
    if manifest is None:
        return None
    names = manifest.head.required_server_params
    root = read_root(manifest.head.root, names)
    loading.wanted_keys.add(names, root)
    return _ReadFile(file, data, entry, manifest, root)


def _load(read: _ReadFile, loading: _Loading, report: list[Finding]) -> list[LoadedTool]:
    file, entry, head = read.file, read.entry, read.manifest.head
    hooks = None
    if entry.handlers is not None:
        text, libraries = as_text(read.data), head.required_libraries or ()
        hooks = loading.hooks.of_file(
            _shown(file, loading.root),
            text,
            entry.handlers,
            head.tools,
            libraries,
            hooked=entry.hooked,
        )
    keys = FileKeys(
        head.required_server_params,
        read.root,
        loading.secrets,
        loading.grants,
        loading.wanted_keys,
        has_hooks=hooks is not None,
    )
    factory = ToolFactory(
        entry,
        read.manifest,
        file,
        lists=loading.lists,
        keys=keys,
        transport=loading.transport,
        hooks=hooks,
        hosts=loading.hook_hosts,
    )
    stem = file.stem
    made: list[LoadedTool] = []
    for name in head.tools:
        try:
            made.append(LoadedTool(name, stem, factory.make(name)))
        except DeclarationError as error:
            report.append(Finding(str(file), "error", f"tool '{name}': {error}"))
    return made


def _shown(file: Path, root: Path) -> str:
    """The name of a file for remote callers: its path in the catalogue."""
    is_inside = file != root and file.is_relative_to(root)
    return file.relative_to(root).as_posix() if is_inside else file.name


def _entry(
    data: bytes, candidate: CandidateFile, loading: _Loading
) -> tuple[Entry, CachedManifest | None]:
    """The entry of a file, from the cache or by checking it now."""
    key = loading.cache.key(str(candidate.path), data)
    known = loading.cache.get(key)
    if known is not None:
        return known
    entry = _checked(as_text(data), candidate, loading)
    loading.cache.add(key, entry)
    return entry, entry.manifest


def _checked(text: str, candidate: CandidateFile, loading: _Loading) -> Entry:
    checked = check_text(
        text,
        file=str(candidate.path),
        profile=loading.profile,
        lists=loading.lists,
        libraries=loading.libraries,
    )
    if checked.manifest is None:
        other = None if candidate.is_named else other_kind(candidate.path, text)
        return Entry(findings=checked.findings if other is None else (other,))
    secrets = checked.manifest.get("requiredServerParams", ())
    tools = checked.manifest["tools"].items()
    aliases = {name: own for name, declared in tools if (own := _aliases(declared, secrets))}
    # Computing the lines of warnings would take longer than all the rest.
    return Entry(
        packed(checked.manifest),
        checked.unplaced,
        checked.handlers,
        _hooked(text, checked.handlers, checked.manifest),
        aliases,
    )


def _hooked(text: str, handlers: int | None, manifest: Mapping[str, Any]) -> tuple[str, ...] | None:
    if handlers is None or not manifest.get("requiredLibraries"):
        return None
    return tuple(sorted(hooked_tools(text, handlers, manifest["tools"])))


def _aliases(declared: Mapping[str, Any], secrets: Iterable[str]) -> dict[str, str]:
    """Other names of a tool's arguments, which the file uses in its placeholders."""
    values = (block["position"]["value"] for block in declared["parameters"])
    if not any("{{" in value and value != "{{USER_PARAM}}" for value in values):
        return {}
    return argument_aliases(declared["parameters"], secrets)


def _list_hashes(lists: Mapping[str, ListFile]) -> Iterable[str]:
    """Hashes of the lists, on which the check of a file depends."""
    parts = ((k.name, k.version, k.fields, k.entries, k.depends_on) for k in lists.values())
    return sorted(hash_of(part) for part in parts)


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
        transport = HttpTransport(allow=given.hosts, upstreams=given.upstreams)
        # In a thread: calls are served while thousands of files are read again.
        self._tools = await asyncio.to_thread(
            from_flowmcp,
            (given.folder or Path()) / given.ref,
            profile=cast("Profile", given.profile or "compat"),
            lists=given.lists,
            libraries=given.libraries,
            secrets=given.secrets,
            keys=given.keys,
            transport=transport,
            cache=cache_folder("flowmcp"),
            hook_hosts=given.hook_hosts,
            hook_limits=limits_of(given.hook_timeout),
        )
        return self._tools

    def watched(self) -> Iterator[Watched]:
        """Its files, and every folder where shared lists for them may be."""
        root = (self._opening.folder or Path()) / self._opening.ref
        yield Watched(root, ".mjs", tuple(SKIPPED_FOLDERS))
        yield Watched(root / REGISTRY)
        if self._opening.lists is not None:
            yield Watched(Path(self._opening.lists), ".mjs", levels=1)
        for folder in lists_above(root):
            yield Watched(folder, ".mjs", levels=1)

    async def aclose(self) -> None:
        """Close the connections to upstreams."""
        if self._tools is not None:
            await self._tools.aclose()


def open_flowmcp(opening: Opening) -> FlowMCPSource:
    """The source of a `flowmcp:` reference."""
    return FlowMCPSource(opening)
