"""The only wiring: options and `callpact.toml`, read once, become one `Session`.

A session opens its parts on demand: a query of the audit log loads no source, and a list of tools
opens neither the audit log nor a runtime. It prints nothing.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from callpact.config import Configuration, configuration_of
from callpact.errors import UsageError
from callpact.folders import data_folder
from callpact.runtime import Runtime
from callpact.secrets.keys import Secrets
from callpact.sources.base import Opening
from callpact.sources.parts import LoadedSources, load_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from callpact.audit.journal.recorder import Recorder
    from callpact.audit.log import LogPlace
    from callpact.catalog import Catalog
    from callpact.config_file import Config
    from callpact.observers import Observer
    from callpact.sources.parts import WantedSource
    from callpact.telemetry.metrics import Metrics
    from callpact.telemetry.tracing import Telemetry

OFF = "off"
"""Value for the location of the audit log that turns recording off."""
_NOTHING = Opening("")
_READINGS = {
    "lost": "Calls whose record could not be written.",
    "unreadable": "Lines of the audit journal that are not records.",
    "refused": "Records that the audit store rejected.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a session; all else is in its configuration."""

    refs: tuple[str, ...] = ()
    """References to sources, instead of those of the configuration."""
    config: Path | None = None
    """The configuration file; else `./callpact.toml`, unless sources are named."""
    opening: Opening = _NOTHING
    """Settings for all sources; they take precedence over the tables of the configuration."""
    secrets: Path | None = None
    """A file of keys for all sources."""
    audit: str | None = None
    """The audit log: a folder, the address of a server, or `off`; else as configured."""


class Session:
    """Everything that a command needs: configuration, sources, secrets, audit log, runtime.

    The end of the `async with` block closes what `load` and `start` have opened.
    """

    def __init__(
        self, options: Options, *, on_secrets: Callable[[Secrets], None] | None = None
    ) -> None:
        """`on_secrets` is called with all secrets that must be masked, before they are used."""
        self.options = options
        self.loaded = LoadedSources()
        self.secrets: list[Secrets] = []
        """Secrets that the audit log masks from its start on."""
        self.recorder: Recorder | None = None
        self.telemetry: tuple[Telemetry, ...] = ()
        self.metrics: Metrics | None = None
        self._on_secrets = on_secrets
        self._observers: list[Observer] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    # --- configuration ----------------------------------------------------------------------

    @cached_property
    def configuration(self) -> Configuration:
        """The configuration in use.

        Raises:
            InvalidConfig: the file cannot be used.
        """
        return configuration_of(self.options.refs, self.options.config)

    @property
    def config(self) -> Config:
        """The tables of the configuration in use."""
        return self.configuration.tables

    @cached_property
    def opening(self) -> Opening:
        """The settings that all sources share."""
        return self.read_opening()

    def read_opening(self) -> Opening:
        """The settings that all sources share, with the current file of secrets.

        Raises:
            UsageError: the folder of lists does not exist.
            InvalidConfig: the file of secrets cannot be read.
        """
        given, file = self.options.opening, self.options.secrets
        if given.lists is not None and not Path(given.lists).is_dir():
            raise UsageError(f"--lists: {given.lists} is not a folder")
        return msgspec.structs.replace(given, secrets=None if file is None else Secrets(None, file))

    # --- sources ----------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """The loaded tools."""
        return self.loaded.catalog

    async def load(self, refs: Iterable[str] = ()) -> None:
        """Load the sources: those of `refs`, else of the options, else of the configuration.

        Raises:
            DeclarationError: no source could be loaded, or two tools share a name.
        """
        await self._load(self.configuration.wanted(tuple(refs) or self.options.refs))

    async def load_uncurated(self, name: str) -> None:
        """Load one source of the configuration, without changes to its tools.

        Raises:
            DeclarationError: there is no such source, or it could not be loaded.
        """
        await self._load((self.configuration.uncurated(name),))

    async def _load(self, wanted: Iterable[WantedSource]) -> None:
        self.loaded = await load_sources(wanted, self.opening, hide=self.hide)
        self._stack.push_async_callback(self.loaded.aclose)

    # --- secrets ----------------------------------------------------------------------------

    def hide(self, secrets: Secrets) -> None:
        """Mask these secrets in all logs and records from now on."""
        if self._on_secrets is not None:
            self._on_secrets(secrets)
        if self.recorder is None:
            self.secrets.append(secrets)
        else:
            self.recorder.hide(secrets)

    @cached_property
    def tokens(self) -> Secrets:
        """The tokens of callers, by the names in `[serve.tokens]`."""
        file = self.config.secrets
        known = self.opening.secrets or Secrets(
            None, self.configuration.folder / file if file else None
        )
        names = [token.secret for token in self.config.serve.tokens.values()]
        return known.restricted(os.environ, keys=names, withheld=(), only_keys=False)

    # --- audit log --------------------------------------------------------------------------

    @cached_property
    def place(self) -> LogPlace:
        """The location of the audit log, whether or not calls are recorded.

        Raises:
            InvalidConfig: the address is malformed.
        """
        from callpact.audit.log import LogPlace, place_of
        from callpact.audit.store.postgres_address import Address, is_address

        table, audit = self.configuration.audit, self.options.audit
        named = None if table.folder is None else Path(table.folder).expanduser()
        folder = data_folder("audit") if named is None else self.configuration.folder / named
        if audit is not None:
            return LogPlace(folder, Address(audit)) if is_address(audit) else place_of(audit)
        return LogPlace(folder, None if table.store is None else Address(table.store))

    @property
    def is_recorded(self) -> bool:
        """True if calls are recorded."""
        audit = self.options.audit
        return self.configuration.audit.enabled if audit is None else audit != OFF

    # --- calls ------------------------------------------------------------------------------

    async def start(
        self,
        *,
        prepare: Callable[[Catalog], Catalog] | None = None,
        serves: bool = False,
        counts: bool = False,
    ) -> Runtime:
        """Open the audit log and a runtime of the catalog that records its calls.

        `prepare` converts the catalog to the one that is run. The calls of a server (`serves`) are
        also logged and traced; `counts` gives the session `metrics`.

        Raises:
            CallpactError: the log cannot be opened, with the remedy.
        """
        observers = self._observers
        if self.is_recorded:
            self.recorder = self._open_log()
            observers.append(self.recorder)
        if serves:
            from callpact.telemetry.logs import call_observers
            from callpact.telemetry.tracing import observing

            self.telemetry = self._stack.enter_context(observing())
            observers += [*call_observers(), *self.telemetry]
        if counts:
            self.metrics = self._count()
            observers.append(self.metrics)
        return await self.run(self.catalog if prepare is None else prepare(self.catalog))

    async def run(self, catalog: Catalog) -> Runtime:
        """Open a further runtime, whose calls are observed as those of `start`."""
        return await self._stack.enter_async_context(Runtime(catalog, self._observers))

    def _open_log(self) -> Recorder:
        from callpact.audit.log import record_calls

        table = self.configuration.audit
        size = None if table.keep_megabytes is None else int(table.keep_megabytes * 1_000_000)
        return self._stack.enter_context(
            record_calls(
                self.place,
                secrets=self.secrets,
                hashes_only=table.hashes_only,
                durability=table.durability,
                keep_days=table.keep_days,
                keep_bytes=size,
                on_loss=table.on_loss,
            )
        )

    def _count(self) -> Metrics:
        from callpact.telemetry.metrics import MetricReading, Metrics

        def reading(name: str) -> MetricReading:
            def read() -> float:
                return 0 if self.recorder is None else getattr(self.recorder.health(), name)

            return MetricReading(f"callpact_audit_{name}_total", _READINGS[name], read, "counter")

        return Metrics(map(reading, _READINGS))
