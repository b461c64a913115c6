"""The only place that wires things: references and configuration into a catalog.

Kinds of source are found through the entry-point group `callpact.sources`; ours register the same
way as anybody's: a callable of one `Opening` that gives a `Source`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Self, cast

import msgspec

from callpact.catalog import Catalog, joined
from callpact.config import DEFAULT_FILE, Config, SourceConfig, config_of, hold_limits, read_config
from callpact.errors import DeclarationError, InvalidConfig, SourceRefused
from callpact.secrets import Secrets, key_name
from callpact.sources.loaded import Finding, Opening, Source, Tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType


@dataclass(frozen=True, slots=True)
class Wanted:
    """One source that is asked for: its table, and what the rest of the file says of it."""

    name: str
    settings: SourceConfig
    folder: Path
    secrets: Path | None
    libraries: tuple[str, ...]
    upstreams: Mapping[str, str]
    hook_timeout: float | None
    withheld: tuple[str, ...] = ()
    """Names of secrets that are tokens of our own doors."""
    is_alone: bool = True
    """True if no other source could be given the keys of a file that all share."""

    @property
    def ref(self) -> str:
        """Its reference as it was written."""
        return self.settings.ref


@dataclass(frozen=True, slots=True)
class Part:
    """What came of one source: its tools and the report; or its `trouble`, and no tool."""

    wanted: Wanted
    catalog: Catalog
    report: tuple[Finding, ...]
    source: Source | None
    secrets: Secrets | None
    since: int
    """When loading it began, in epoch nanoseconds."""
    trouble: DeclarationError | None = None


@dataclass(slots=True)
class App:
    """What is loaded: the catalog, and the parts that it is made of."""

    catalog: Catalog
    parts: tuple[Part, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """The open sources."""
        return tuple(p.source for p in self.parts if p.source is not None and p.trouble is None)

    @property
    def report(self) -> tuple[Finding, ...]:
        """What happened to each declaration."""
        return tuple(finding for part in self.parts for finding in part.report)

    async def aclose(self) -> None:
        """Close every source."""
        for source in self.sources:
            await source.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


async def load_app(
    refs: Iterable[str] = (),
    config_file: Path | None = None,
    given: Opening | None = None,
    *,
    hide: Callable[[Secrets], None] | None = None,
) -> App:
    """Load the named sources, else those of the configuration file (`./callpact.toml`).

    What `given` says comes before what the file says of a source. A source that is refused is an
    error in the report and leaves the others alone. `hide` is told whose secrets must not show,
    before anything of their source runs.

    Raises:
        DeclarationError: no source could be loaded, or two tools share a name.
    """
    wanted = wanted_sources(refs, config_file)
    app = App(Catalog(()), tuple([await load_part(each, given, hide=hide) for each in wanted]))
    refused = [part.trouble for part in app.parts if part.trouble is not None]
    if len(refused) == len(app.parts) == 1:
        raise refused[0]
    if len(refused) == len(app.parts):
        raise SourceRefused("no source could be loaded: " + "; ".join(map(str, refused)))
    try:
        app.catalog = joined(part.catalog for part in app.parts)
    except DeclarationError:
        await app.aclose()
        raise
    return app


async def load_part(
    wanted: Wanted,
    given: Opening | None = None,
    *,
    secrets: Secrets | None = None,
    hide: Callable[[Secrets], None] | None = None,
) -> Part:
    """Open one source and load it, with what `load_app` is told; one that is refused is closed.

    `secrets` are those of an earlier loading, where its file has not changed since.
    """
    since, settings = time_ns(), wanted.settings
    source: Source | None = None
    report: list[Finding] = []
    try:
        opening = _opening(wanted, given, secrets)
        secrets = opening.secrets
        if hide is not None and secrets is not None:
            hide(secrets)
        source = open_source(opening)
        loaded = await source.load()
        catalog = _selected(loaded, settings, report)
    except DeclarationError as error:
        if source is not None:
            await source.aclose()
        told = (Finding(wanted.ref, "error", str(error)),)
        return Part(wanted, Catalog(()), told, source, secrets, since, error)
    except BaseException:
        if source is not None:
            await source.aclose()
        raise
    report.extend(loaded.report)
    if secrets is not None and (given is None or given.secrets is None):
        report += [Finding(wanted.ref, "warning", text) for text in secrets.warnings]
    return Part(wanted, catalog, tuple(report), source, secrets, since)


def _opening(wanted: Wanted, given: Opening | None, secrets: Secrets | None) -> Opening:
    told, settings = given or Opening(""), wanted.settings
    lists = None if settings.lists is None else str(wanted.folder / settings.lists)
    return Opening(
        settings.ref,
        None if wanted.name.startswith(_UNNAMED) else wanted.name,
        wanted.folder,
        told.profile or settings.profile,
        told.lists or lists,
        (*told.libraries, *wanted.libraries),
        (*told.hosts, *settings.hosts),
        {**wanted.upstreams, **told.upstreams},
        _granted(wanted, told, secrets),
        (*told.hook_hosts, *settings.hook_hosts),
        (*told.keys, *settings.keys),
        told.hook_timeout or settings.hook_timeout or wanted.hook_timeout,
    )


def _granted(wanted: Wanted, told: Opening, known: Secrets | None) -> Secrets:
    """The keys of a source; of a file that sources share only those that it is granted by name."""
    settings = wanted.settings
    secrets = told.secrets or known or Secrets(None, wanted.secrets)
    is_shared = told.secrets is not None or settings.secrets is None
    return secrets.restricted(
        os.environ,
        keys=map(key_name, (*told.keys, *settings.keys)),
        withheld=wanted.withheld,
        only_keys=is_shared and not wanted.is_alone,
    )


def open_source(opening: Opening) -> Source:
    """The source behind a reference `kind:rest`; a bare path is sniffed.

    Raises:
        SourceRefused: no kind of source reads it.
    """
    ref, folder = opening.ref, opening.folder
    kinds = {point.name: point for point in entry_points(group="callpact.sources")}
    kind, colon, rest = ref.partition(":")
    if not colon or kind not in kinds:
        kind, rest = _sniffed(ref, folder), ref
    if kind not in kinds or not rest:
        raise SourceRefused(f"no source reads '{ref}'{_remedy(ref, folder, sorted(kinds))}")
    try:
        opener = cast("Callable[[Opening], Source]", kinds[kind].load())
    except ImportError as error:
        raise SourceRefused(f"'{ref}': what reads '{kind}:' cannot be imported: {error}") from error
    return opener(msgspec.structs.replace(opening, ref=rest))


def _sniffed(ref: str, folder: Path | None) -> str | None:
    path = ref.rpartition(":")[0] if not ref.endswith(".py") else ref
    if path.endswith(".py"):
        return "python"
    return "flowmcp" if ref.endswith(".mjs") or ((folder or Path()) / ref).is_dir() else None


def _remedy(ref: str, folder: Path | None, kinds: list[str]) -> str:
    if ((folder or Path()) / f"{ref}.py").is_file():
        return f"; did you mean {ref}.py?"
    return f"; write KIND:WHERE, for example python:shop.py (kinds: {', '.join(kinds)})"


_UNNAMED = " "
"""Begins the name of a source that was named by its reference alone."""


def wanted_sources(refs: Iterable[str], file: Path | None) -> tuple[Wanted, ...]:
    """The sources that are named, else those of the configuration file.

    Raises:
        InvalidConfig: there is none, or the file cannot be used.
    """
    named = tuple(refs)
    if named:
        config = config_of({f"{_UNNAMED}{i}": ref for i, ref in enumerate(named)})
        serve = config.serve if file is None else read_config(file).serve
    else:
        config = _configured(file)
        serve = config.serve
    folder = file.parent if file is not None and not named else Path()
    withheld = tuple(table.secret for table in serve.tokens.values())
    return tuple(_each_wanted(config, folder, withheld))


def _configured(file: Path | None) -> Config:
    path = file or Path(DEFAULT_FILE)
    if file is None and not path.exists():
        raise InvalidConfig(
            f"no source: name one with -s (for example -s python:shop.py), or run this where a "
            f"{DEFAULT_FILE} is; `callpact init` writes one"
        )
    config: Config = read_config(path)
    if not config.sources:
        raise InvalidConfig(f"{path}: names no source; add a [sources.NAME] table with a ref")
    hold_limits(config)
    return config


def _each_wanted(config: Config, folder: Path, withheld: tuple[str, ...]) -> Iterator[Wanted]:
    # Code of the user's own is given no keys.
    keyed = [each for each in config.sources.values() if not _is_python(each.ref, folder)]
    for name, settings in config.sources.items():
        file = settings.secrets or config.secrets
        yield Wanted(
            name,
            settings,
            folder,
            folder / file if file else None,
            (*config.libraries, *settings.libraries),
            dict(config.upstreams),
            config.hook_timeout,
            withheld,
            len(keyed) <= 1,
        )


def _is_python(ref: str, folder: Path) -> bool:
    return ref.startswith("python:") or _sniffed(ref, folder) == "python"


def _selected(loaded: Tools, settings: SourceConfig, report: list[Finding]) -> Catalog:
    catalog = Catalog(
        loaded, resources=loaded.resources, prompts=loaded.prompts, policy=settings.policy
    )
    selected = catalog.select(settings.allow, settings.deny)
    ids = ", ".join(tool.id for tool in catalog)
    if len(catalog) and not len(selected):
        raise InvalidConfig(f"'{settings.ref}': allow and deny leave no tool of {ids}")
    for key in ("allow", "deny"):
        for pattern in getattr(settings, key):
            if not len(catalog.select([pattern])):
                # A deny that fits nothing would leave open what it was meant to close.
                text = f"'{settings.ref}': {key} '{pattern}' fits no tool; there are {ids}"
                report.append(Finding(settings.ref, "warning", text))
    if settings.timeout is None:
        return selected
    return Catalog(
        (replace(tool, timeout=settings.timeout) for tool in selected),
        resources=selected.resources,
        prompts=selected.prompts,
    )
