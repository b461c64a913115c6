"""The watcher: polls files, reads changed sources again, swaps the catalog, notifies clients.

A source is the unit of reload: it is replaced as a whole, or its previous version stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol, TypeVar

from callpact.catalog import Catalog, joined
from callpact.errors import CallpactError, DeclarationError, DuplicateTool, SourceRefused
from callpact.reload.snapshot import Watch
from callpact.reload.versions import MOST_NAMED, Version, compared, few, lost
from callpact.runtime import Runtime
from callpact.secrets.keys import Secrets
from callpact.sources.base import (
    UNREAD,
    Live,
    Opening,
    Watchable,
    Watched,
)
from callpact.sources.parts import (
    LoadedSources,
    SourcePart,
    WantedSource,
    load_part,
)
from callpact.tool import Tool

WATCH_SECONDS = 0.3
"""Seconds between two polls of watched files; more where a poll takes more than a tenth of them."""
QUIET_SECONDS = 0.2
"""Seconds for which changed files must stay the same before they are read again."""
MAX_RELOAD_SECONDS = 60
"""Seconds within which a source must be read again."""
_SHARE = 9  # A pause lasts at least this many times as long as the poll before it.
_log = logging.getLogger("callpact.reload")

T = TypeVar("T")
_Changed = dict[Watch, list[str]]
"""The watches that are read again, each with its changed files."""


class Announce(Protocol):
    """Notifies clients of changed lists and of updated resources."""

    async def __call__(
        self, *, tools: bool, resources: bool, prompts: bool, updated: Iterable[str]
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How the sources were loaded, to load them again."""

    config: Path | None = None
    """The configuration file that names the sources; None if references were given."""
    wanted: Callable[[], tuple[WantedSource, ...]] = tuple
    """Reads the wanted sources from that file."""
    given: Callable[[], Opening] | None = None
    """Makes the settings that all sources share; called again when one of the `files` changed."""
    files: tuple[Path, ...] = ()
    """The files that `given` reads."""
    hide: Callable[[Secrets], None] | None = None


def is_offered(tool: Tool) -> bool:
    """True if a tool can be called through a door by some caller."""
    return tool.kind != "subscription" and tool.disabled is None


def as_it_is(catalog: Catalog) -> Catalog:
    """Return the catalog of a source as the one that is run."""
    return catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A runtime that serves the sources, and the way to notify its clients."""

    name: str = ""
    """Shown in the log, if there are several."""
    runtime: Runtime
    announce: Announce
    is_served: Callable[[Tool], bool] = is_offered
    """Changes of other tools are not announced."""
    prepare: Callable[[Catalog], Catalog] = as_it_is
    """Converts the catalog of a source to the one that is run."""
    file: Path | None = None
    """A file that `prepare` depends on, watched always."""
    refresh: Callable[[], None] = lambda: None
    """Reads that file again."""


@dataclass(eq=False)
class Watcher:
    """Keeps the catalogs of endpoints in step with their sources, while the context is open.

    `options` is how `loaded` was loaded.
    """

    loaded: LoadedSources
    endpoints: tuple[Endpoint, ...]
    options: LoadOptions
    watches_files: bool = True
    """False to follow only sources that change by themselves, and the files of endpoints."""

    def __post_init__(self) -> None:
        # Its own thread, as tools may keep all others busy.
        self._thread = ThreadPoolExecutor(1, "callpact watching")
        self._given: Opening | None = None
        self._wanted = tuple(part.wanted for part in self.loaded.parts)
        self._config = Watch((Watched(self.options.config),) if self.options.config else ())
        self._watches = {part.wanted.name: Watch() for part in self.loaded.parts}
        files = [each.file for each in self.endpoints if each.file is not None]
        self._prepared = Watch(tuple(map(Watched, files)))
        self._unfit: set[str] = set()
        """Sources whose new version has tools that another source has already."""
        self._versions: dict[str, Version] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._swap({part.wanted.name: self._version(part) for part in self.loaded.parts})

    def _version(self, part: SourcePart, former: Version | None = None) -> Version:
        return Version(part, [endpoint.prepare for endpoint in self.endpoints], former)

    async def __aenter__(self) -> None:
        # Record the state of all files, if it is the state that was loaded.
        since = min((version.part.since for version in self._versions.values()), default=0)
        for watch in (self._config, self._prepared):
            await self._apart(partial(watch.settle, watch.watched, since))
        for name, version in self._versions.items():
            await self._settle(self._watches[name], version.part)
            self._watches[name].trouble = str(version.part.trouble or "")
        self._task = asyncio.create_task(self._run(), name="callpact watching")

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self._thread.shutdown(wait=False, cancel_futures=True)
        for task in self._closing:  # Previous versions, some with running calls.
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _run(self) -> None:
        """Poll for changes and reload them, until cancelled."""
        while True:
            began, pause = time.perf_counter(), WATCH_SECONDS
            try:
                changed = {**self._changed_live(), **await self._apart(self._look)}
                pause = max(pause, _SHARE * (time.perf_counter() - began))
                if changed:
                    await self._reload(changed)
            except Exception:  # noqa: BLE001 - boundary: after any error the next change is read
                _log.exception("what changed could not be read again")
            is_waiting = any(watch.seen is not None for watch in self._looked_at())
            await asyncio.sleep(QUIET_SECONDS if is_waiting else pause)

    async def _apart(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _settle(self, watch: Watch, part: SourcePart, *more: SourcePart) -> None:
        """Watch the files of these parts; the first was read just now."""
        watched = [each for known in (part, *more) for each in _watched(known, self.options.files)]
        await self._apart(lambda: watch.settle(watched, part.since))

    def _looked_at(self) -> tuple[Watch, ...]:
        files = (self._config, *self._watches.values()) if self.watches_files else ()
        return (self._prepared, *files)

    def _look(self) -> _Changed:
        looks = {watch: watch.look() for watch in self._looked_at()}
        return {watch: files for watch, files in looks.items() if files}

    def _changed_live(self) -> _Changed:
        """The sources that changed by themselves, such as MCP servers."""
        return {
            self._watches[name]: [version.part.wanted.ref]
            for name, version in self._versions.items()
            if isinstance(version.part.source, Live) and version.part.source.changed.is_set()
        }

    async def _reload(self, changed: _Changed) -> None:
        """Read the changed sources again, and serve them."""
        if not set(chain(*changed.values())).isdisjoint(map(str, self.options.files)):
            self._given = None
        if self._config in changed:
            self._read_config()
        is_prepared_anew = self._prepared in changed and await self._apart(self._refresh)
        versions: dict[str, Version] = {}
        try:
            for wanted in self._wanted:
                old = self._versions.get(wanted.name)
                watch = self._watches.setdefault(wanted.name, Watch())
                is_due = watch in changed or wanted.name in self._unfit
                if old is None or old.part.wanted != wanted or is_due:
                    versions[wanted.name] = await self._read(wanted, old, watch, changed)
                else:
                    versions[wanted.name] = (
                        self._version(old.part, old) if is_prepared_anew else old
                    )
            await self._serve(self._fitting(versions, changed), changed)
        finally:
            for version in versions.values():
                if version not in self._versions.values() and not self._is_used(version):
                    await version.aclose()

    def _refresh(self) -> bool:
        """Read the files of endpoints again; False if one cannot be used, and all stays as it is."""
        try:
            for endpoint in self.endpoints:
                endpoint.refresh()
        except CallpactError as error:
            _log.warning("%s; the version from before stays", error)
            return False
        return True

    def _is_used(self, version: Version) -> bool:
        """True if a served version has the same open source."""
        served = self._versions.values()
        return any(other.part.source is version.part.source for other in served)

    def _read_config(self) -> None:
        """Read the wanted sources; they stay the same if the configuration is broken."""
        shown = _shown([str(self.options.config)])
        try:
            wanted = self.options.wanted()
        except DeclarationError as error:
            if self._config.trouble != str(error):
                _log.warning("%s; what it said before stays", error)
            self._config.trouble = str(error)
            return
        if self._config.trouble:
            _log.warning("%s is whole again", shown)
        elif wanted == self._wanted:
            _log.info("%s: its sources are the same; all else is read when a server starts", shown)
        self._config.trouble = ""
        self._wanted = wanted

    async def _read(
        self, wanted: WantedSource, old: Version | None, watch: Watch, changed: _Changed
    ) -> Version:
        """The new version of a source, or the old one if the new one is broken."""
        part = await self._load(wanted, None if old is None else old.part, changed)
        # Of a server by others, one bad tool keeps no other from being served.
        trouble = str(part.trouble or "")
        if not trouble and old is not None and not isinstance(part.source, Live):
            trouble = lost(old.part, part)
        await self._settle(watch, part, *((old.part,) if trouble and old is not None else ()))
        new = self._version(part)
        if not trouble:
            self._log_findings(part, old)
            return new
        if not self._is_used(new):
            await new.aclose()
        self._log_trouble(wanted.name, trouble, changed)
        return new if old is None else old

    async def _load(
        self, wanted: WantedSource, old: SourcePart | None, changed: _Changed
    ) -> SourcePart:
        """Load a source; any error becomes its trouble."""
        kept = None
        if old is not None and old.wanted.secrets == wanted.secrets:
            kept = None if str(wanted.secrets) in chain(*changed.values()) else old.secrets
        since = time.time_ns()
        open_one = None
        if old is not None and old.wanted == wanted and isinstance(old.source, Live):
            open_one = old.source if old.trouble is None and old.source.changed.is_set() else None
        try:
            if self._given is None and self.options.given is not None:
                self._given = self.options.given()
            async with asyncio.timeout(MAX_RELOAD_SECONDS):
                return await load_part(
                    wanted, self._given, secrets=kept, hide=self.options.hide, source=open_one
                )
        except CallpactError as error:
            trouble = SourceRefused(str(error))
        except TimeoutError:
            trouble = SourceRefused(f"{wanted.ref}: not read within {MAX_RELOAD_SECONDS} seconds")
        except Exception as error:  # noqa: BLE001 - boundary: a third-party source
            _log.debug("%s could not be read", wanted.ref, exc_info=True)
            trouble = SourceRefused(f"{wanted.ref}: {type(error).__name__}: {error}")
        source = None if old is None else old.source
        return SourcePart(wanted, Catalog(()), (), source, kept, since, trouble)

    def _fitting(self, versions: dict[str, Version], changed: _Changed) -> dict[str, Version]:
        """The new versions; of two with colliding tools, the later keeps its previous version."""
        self._unfit.clear()
        with suppress(DuplicateTool):
            self._joined(versions)
            return versions
        fit = {name: self._versions[name] for name in versions if name in self._versions}
        for name, version in versions.items():
            tried = {n: version if n == name else fit[n] for n in versions if n == name or n in fit}
            try:
                self._joined(tried)
            except DuplicateTool as error:
                self._unfit.add(name)
                self._log_trouble(name, str(error), changed)
            else:
                fit = tried
        return fit

    def _joined(self, versions: dict[str, Version]) -> list[Catalog]:
        """The catalog of each endpoint.

        Raises:
            DuplicateTool: two versions have a tool of one name.
        """
        return [
            joined(version.catalogs[place].tools for version in versions.values())
            for place in range(len(self.endpoints))
        ]

    async def _serve(self, versions: dict[str, Version], changed: _Changed) -> None:
        """Swap the catalogs, and announce the differences that clients see."""
        gone = [v for v in self._versions.values() if v not in versions.values()]
        come = [v for v in versions.values() if v not in self._versions.values()]
        if not gone and not come:
            return
        self._swap(versions)
        for version in gone:
            if self._is_used(version):
                continue
            name = f"callpact closes {version.part.wanted.ref}"
            self._closing.add(task := asyncio.create_task(version.retire(), name=name))
            task.add_done_callback(self._closing.discard)
        for version in come:
            watch = self._watches[version.part.wanted.name]
            if watch.trouble and version.part.trouble is None:
                _log.warning("%s is whole again", version.part.wanted.ref)
                watch.trouble = ""
        read = [v for v in come if self._watches[v.part.wanted.name] in changed]
        known = [version.part for version in gone]
        refs = few(
            v.part.wanted.ref for v in come if v.part.trouble is None and v.part not in known
        )
        shown = _shown(chain(*changed.values()))
        for place, endpoint in enumerate(self.endpoints):
            old, new, own = ([v.catalogs[place] for v in part] for part in (gone, come, read))
            change = await self._apart(partial(compared, old, new, own, endpoint.is_served))
            words = f"{endpoint.name}: {change}" if endpoint.name else change
            _log.info("%s changed: %s was read again; %s", shown, refs or "nothing", words)
            tools, resources, prompts = map(change.of, ("tool", "resource", "prompt"))
            if tools or resources or prompts or change.updated:
                await endpoint.announce(
                    tools=tools, resources=resources, prompts=prompts, updated=change.updated
                )

    def _swap(self, versions: dict[str, Version]) -> None:
        catalogs = self._joined(versions)
        self._versions = versions
        self._watches = {name: self._watches[name] for name in (*versions, *self._unfit)}
        self.loaded.parts = tuple(version.part for version in versions.values())
        self.loaded.catalog = catalogs[0]
        for endpoint, catalog in zip(self.endpoints, catalogs, strict=True):
            endpoint.runtime.catalog = catalog

    def _log_trouble(self, name: str, trouble: str, changed: _Changed) -> None:
        watch, old = self._watches[name], self._versions.get(name)
        if watch in changed or watch.trouble != trouble:
            is_served = old is not None and old.part.trouble is None
            end = "the version from before stays" if is_served else "it is left out"
            files = changed.get(watch) or chain(*changed.values())
            _log.warning("%s changed: %s; %s", _shown(files), trouble, end)
        watch.trouble = trouble

    def _log_findings(self, part: SourcePart, old: Version | None) -> None:
        """Log the findings that the previous version did not have."""
        known = frozenset(() if old is None else old.part.report)
        news = [found for found in part.report if found not in known and found.severity != "info"]
        for found in news[:MOST_NAMED]:
            level = logging.WARNING if found.severity == "error" else logging.INFO
            place = "" if found.message.startswith(found.place) else f"{found.place}: "
            _log.log(level, "%s%s", place, found.message)
        if len(news) > MOST_NAMED:
            _log.warning("%s: %s more findings", part.wanted.ref, len(news) - MOST_NAMED)


def _watched(part: SourcePart, given: Iterable[Path]) -> tuple[Watched, ...]:
    """The files and folders that a source is read from."""
    wanted, source = part.wanted, part.source
    files = [
        Watched(file) for file in (wanted.secrets, wanted.curate_file, *given) if file is not None
    ]
    if isinstance(source, Watchable):
        try:
            return (*files, *source.watched())
        except Exception:  # noqa: BLE001 - boundary: a third-party source must not end the watcher
            _log.exception("%s cannot say what it was read from", wanted.ref)
    kind, colon, rest = wanted.ref.partition(":")
    named = [wanted.ref, rest if colon and kind else "", wanted.settings.lists or ""]
    return (*files, *(Watched(wanted.folder / path, "", UNREAD) for path in named if path))


def _shown(files: Iterable[str | Path]) -> str:
    """Paths relative to the current folder, if they are inside it."""
    here = f"{Path.cwd()}{os.sep}"
    return few(dict.fromkeys(str(file).removeprefix(here) for file in files))
