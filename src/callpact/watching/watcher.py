"""The watcher: looks, reads again what changed, swaps the catalog, and tells everybody.

A source is the unit: it is read again as a whole, or its version from before stays.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, cast

from callpact.catalog import Catalog, joined
from callpact.config import DEFAULT_FILE, wanted_sources
from callpact.errors import CallpactError, DeclarationError, DuplicateTool, SourceRefused
from callpact.runtime import Runtime
from callpact.secrets import Secrets
from callpact.sources.loaded import Opening, Watched
from callpact.sources.parts import Loaded as App
from callpact.sources.parts import Part, Wanted, load_part
from callpact.tool import Tool
from callpact.watching.looking import Looker
from callpact.watching.versions import MOST_NAMED, Version, compared, few, lost
from callpact.watching.watches import Watch, watched_of

WATCH_SECONDS = 0.3
"""Seconds between two looks at watched files; more where a look takes more than a tenth of them."""
QUIET_SECONDS = 0.2
"""Seconds for which changed files must stay as they are before they are read again."""
MAX_RELOAD_SECONDS = 60
"""Seconds that a source may wait for others while it is read again."""
_SHARE = 9  # Pauses are so much longer than looks.
_GRACE_SECONDS = 1.0  # A request may have found its tool, and not begun to run it.
_LEAVING_SECONDS = 0.5
_log = logging.getLogger("callpact.watching")

T = TypeVar("T")
_Changed = dict[Watch, list[str]]
"""What is read again, and which of its files changed."""


class Announce(Protocol):
    """Tells every client what changed: lists, and the content behind addresses."""

    async def __call__(
        self, *, tools: bool, resources: bool, prompts: bool, updated: Iterable[str]
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was loaded, so that it can be loaded again: as `load_app` was told it."""

    refs: tuple[str, ...] = ()
    config_file: Path | None = None
    given: Callable[[], Opening] | None = None
    """Makes what is given to all sources; called again when one of the `files` changed."""
    files: tuple[Path, ...] = ()
    """The files that `given` reads."""
    hide: Callable[[Secrets], None] | None = None

    @property
    def config(self) -> Path | None:
        """The configuration file, if there is one."""
        return None if self.refs else self.config_file or Path(DEFAULT_FILE)


def is_offered(tool: Tool) -> bool:
    """True if a tool can be called over any door; whoever may call it."""
    return tool.kind != "subscription" and tool.disabled is None


@asynccontextmanager
async def watching(
    app: App,
    runtime: Runtime,
    asked: Asked,
    announce: Announce,
    *,
    is_served: Callable[[Tool], bool] = is_offered,
    prepare: Callable[[Catalog], Catalog] = lambda catalog: catalog,
) -> AsyncGenerator[None]:
    """Keep what a runtime holds as it is on disk, for as long as this is open.

    `app` is what was loaded and `runtime` what runs it; `asked` says what that was. A change of
    tools that `is_served` leaves out is not announced. `prepare` makes of the catalog of a source
    what is run.
    """
    watcher = _Watcher(app, runtime, asked, announce, is_served=is_served, prepare=prepare)
    await _apart(watcher.begin)
    task = asyncio.create_task(watcher.run(), name="callpact watching")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        await watcher.aclose()


class _Watcher:
    """Looks, reads again what changed, swaps the catalog, and tells."""

    def __init__(
        self,
        app: App,
        runtime: Runtime,
        asked: Asked,
        announce: Announce,
        *,
        is_served: Callable[[Tool], bool],
        prepare: Callable[[Catalog], Catalog],
    ) -> None:
        self._app = app
        self._runtime = runtime
        self._asked = asked
        self._announce = announce
        self._is_served = is_served
        self._prepare = prepare
        self._looker = Looker()
        self._given: Opening | None = None
        self._wanted = tuple(part.wanted for part in app.parts)
        self._config = Watch(() if asked.config is None else (Watched(asked.config),))
        self._watches = {part.wanted.name: Watch(()) for part in app.parts}
        self._unfit: set[str] = set()
        """Sources whose new version was whole, but could not stand beside the others."""
        self._versions: dict[str, Version] = {}
        self._closing: dict[asyncio.Task[None], Version] = {}
        self._swap({part.wanted.name: Version(part, prepare) for part in app.parts})

    async def run(self) -> None:
        """Look and read again, until it is cancelled."""
        while True:
            began, pause = time.perf_counter(), WATCH_SECONDS
            try:
                due = await _apart(self._look)
                pause = max(pause, _SHARE * (time.perf_counter() - began))
                if due:
                    await self._reload(due)
            except Exception:  # noqa: BLE001 - boundary: whatever it was, the next change is read
                _log.exception("what changed could not be read again")
            is_waiting = any(w.seen is not None for w in (self._config, *self._watches.values()))
            await asyncio.sleep(QUIET_SECONDS if is_waiting else pause)

    async def aclose(self) -> None:
        """Close the versions from before, also those with calls under way."""
        for task, version in tuple(self._closing.items()):
            task.cancel()
            await asyncio.wait([task])
            await version.aclose()

    def begin(self) -> None:
        """Remember as what everything was read."""
        since = min((version.part.since for version in self._versions.values()), default=0)
        self._config.settle(self._looker, self._config.watched, since)
        for name, version in self._versions.items():
            part, watch = version.part, self._watches[name]
            watch.settle(self._looker, watched_of(part, self._asked.files), part.since)
            watch.trouble = "" if part.trouble is None else str(part.trouble)

    def _look(self) -> set[Watch]:
        """The watches with something to read."""
        every = (self._config, *self._watches.values())
        return {watch for watch in every if watch.look(self._looker)}

    async def _reload(self, due: set[Watch]) -> None:
        """Read again what is due, and serve what came of it."""
        changed = {watch: watch.take() for watch in due}
        files = {file for each in changed.values() for file in each}
        if not files.isdisjoint(map(str, self._asked.files)):
            self._given = None
        if self._config in due:
            self._read_config()
        versions: dict[str, Version] = {}
        try:
            for wanted in self._wanted:
                old = self._versions.get(wanted.name)
                watch = self._watches.setdefault(wanted.name, Watch(()))
                is_due = watch in due or wanted.name in self._unfit
                if old is None or old.part.wanted != wanted or is_due:
                    versions[wanted.name] = await self._read(wanted, old, watch, changed)
                else:
                    versions[wanted.name] = old
            served = self._fitting(versions, changed)
            await self._serve(served, changed)
        finally:
            for version in versions.values():
                if version not in self._versions.values():
                    await version.aclose()

    def _read_config(self) -> None:
        """Take over what is wanted now; the sources are as they were if that cannot be known."""
        asked, shown = self._asked, _shown(self._asked.config or DEFAULT_FILE)
        try:
            wanted = wanted_sources(asked.refs, asked.config_file)
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
        self, wanted: Wanted, old: Version | None, watch: Watch, changed: _Changed
    ) -> Version:
        """The new version of a source, or the old one if that is all there is to serve."""
        part = await self._load(wanted, None if old is None else old.part, changed)
        trouble = None if part.trouble is None else str(part.trouble)
        if trouble is None and old is not None and (found := lost(old.part, part)) is not None:
            line = "" if found.line is None else f":{found.line}"
            trouble = f"{found.place}{line}: {found.message}"
        parts = (part,) if trouble is None or old is None else (part, old.part)
        watched = [each for known in parts for each in watched_of(known, self._asked.files)]
        await _apart(lambda: watch.settle(self._looker, watched, part.since))
        new = Version(part, self._prepare)
        if trouble is None:
            self._tell_findings(part, old)
            return new
        await new.aclose()
        self._tell_trouble(wanted.name, trouble, changed)
        return new if old is None else old

    async def _load(self, wanted: Wanted, old: Part | None, changed: _Changed) -> Part:
        """Load a source; whatever happens is its trouble."""
        kept, files = None, [file for each in changed.values() for file in each]
        if old is not None and old.wanted.secrets == wanted.secrets:
            kept = None if str(wanted.secrets) in files else old.secrets
        since = time.time_ns()
        try:
            if self._given is None and self._asked.given is not None:
                self._given = self._asked.given()
            async with asyncio.timeout(MAX_RELOAD_SECONDS):
                return await load_part(wanted, self._given, secrets=kept, hide=self._asked.hide)
        except CallpactError as error:
            trouble = SourceRefused(str(error))
        except TimeoutError:
            trouble = SourceRefused(f"{wanted.ref}: not read within {MAX_RELOAD_SECONDS} seconds")
        except Exception as error:  # noqa: BLE001 - boundary: a source of others
            _log.debug("%s could not be read", wanted.ref, exc_info=True)
            trouble = SourceRefused(f"{wanted.ref}: {type(error).__name__}: {error}")
        source = None if old is None else old.source
        return Part(wanted, Catalog(()), (), source, kept, since, trouble)

    def _fitting(self, versions: dict[str, Version], changed: _Changed) -> dict[str, Version]:
        """All new versions, or of those that cannot stand beside one another the first."""
        self._unfit.clear()
        with suppress(DuplicateTool):
            joined(version.catalog for version in versions.values())
            return versions
        fit = {name: self._versions[name] for name in versions if name in self._versions}
        for name, version in versions.items():
            tried = {n: version if n == name else fit[n] for n in versions if n == name or n in fit}
            try:
                joined(other.catalog for other in tried.values())
            except DuplicateTool as error:
                self._unfit.add(name)
                self._tell_trouble(name, str(error), changed)
            else:
                fit = tried
        return fit

    async def _serve(self, versions: dict[str, Version], changed: _Changed) -> None:
        """Swap the catalog, and tell everybody what is different now."""
        gone = [v for v in self._versions.values() if v not in versions.values()]
        come = [v for v in versions.values() if v not in self._versions.values()]
        if not gone and not come:
            return
        self._swap(versions)
        for version in gone:
            self._retire(version)
        for version in come:
            watch = self._watches[version.part.wanted.name]
            if watch.trouble and version.part.trouble is None:
                _log.warning("%s is whole again", version.part.wanted.ref)
                watch.trouble = ""
        read = [v for v in come if self._watches[v.part.wanted.name] in changed]
        change = await _apart(lambda: compared(gone, come, read, self._is_served))
        refs = few(v.part.wanted.ref for v in come if v.part.trouble is None) or "nothing"
        _log.info("%s changed: %s was read again; %s", _told(changed.values()), refs, change)
        is_seen = {kind: change.of(kind) for kind in ("tool", "resource", "prompt")}
        if any(is_seen.values()) or change.updated:
            await self._announce(
                tools=is_seen["tool"],
                resources=is_seen["resource"],
                prompts=is_seen["prompt"],
                updated=change.updated,
            )

    def _swap(self, versions: dict[str, Version]) -> None:
        catalog = joined(version.catalog for version in versions.values())
        self._versions = versions
        self._watches = {name: self._watches[name] for name in (*versions, *self._unfit)}
        self._app.parts = tuple(version.part for version in versions.values())
        self._app.catalog = self._runtime.catalog = catalog

    def _retire(self, version: Version) -> None:
        """Close a version when its last call has ended."""

        async def close() -> None:
            await asyncio.sleep(_GRACE_SECONDS)
            await version.lease.until_idle()
            await version.aclose()

        task = asyncio.create_task(close(), name=f"callpact closes {version.part.wanted.ref}")
        self._closing[task] = version
        task.add_done_callback(lambda ended: self._closing.pop(ended, None))

    def _tell_trouble(self, name: str, trouble: str, changed: _Changed) -> None:
        watch, old = self._watches[name], self._versions.get(name)
        if watch in changed or watch.trouble != trouble:
            is_served = old is not None and old.part.trouble is None
            end = "the version from before stays" if is_served else "it is left out"
            own = [changed[watch]] if watch in changed else changed.values()
            _log.warning("%s changed: %s; %s", _told(own), trouble, end)
        watch.trouble = trouble

    def _tell_findings(self, part: Part, old: Version | None) -> None:
        """What loading had to say that it had not said before."""
        known = frozenset(() if old is None else old.part.report)
        news = [found for found in part.report if found not in known and found.severity != "info"]
        for found in news[:MOST_NAMED]:
            level = logging.WARNING if found.severity == "error" else logging.INFO
            place = "" if found.message.startswith(found.place) else f"{found.place}: "
            _log.log(level, "%s%s", place, found.message)
        if len(news) > MOST_NAMED:
            _log.warning("%s: %s more findings", part.wanted.ref, len(news) - MOST_NAMED)


def _told(files: Iterable[list[str]]) -> str:
    return few(dict.fromkeys(_shown(file) for each in files for file in each))


def _shown(file: str | Path) -> str:
    """A file as a user would name it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


async def _apart(work: Callable[[], T]) -> T:
    """Run it in a thread of its own: all others may be busy with tools, and this one ends with us."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if not done.done():
            done.set_result(cast("T", result)) if error is None else done.set_exception(error)

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 - it is raised where it is waited for
            error = raised
        with suppress(RuntimeError):  # The loop may have ended.
            loop.call_soon_threadsafe(finish, result, error)

    thread = threading.Thread(target=run, name="callpact watching", daemon=True)
    thread.start()
    try:
        return await done
    finally:
        thread.join(_LEAVING_SECONDS)  # It has nothing left to do, unless this was cancelled.
