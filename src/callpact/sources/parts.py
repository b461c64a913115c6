"""Sources, from their references to one catalog: opened, loaded, and cut to what is wanted.

Kinds of source are found through the entry-point group `callpact.sources`; ours register the same
way as anybody's: a callable of one `Opening` that returns a `Source`. Configuration files are not
read here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, cast

import msgspec

from callpact.catalog import Catalog, joined
from callpact.errors import DeclarationError, InvalidConfig, SourceRefused
from callpact.secrets.keys import Secrets, key_name
from callpact.sources.base import Finding, Opening, Source, Tools
from callpact.sources.curation import Curation, curate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from callpact.tool import Policy, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One source to load: how it is opened, and which of its tools are taken under what policy."""

    name: str
    settings: Opening
    """As it was declared; `lists` starts at its folder, and there are no secrets yet."""
    secrets: Path | None = None
    """The file of its keys."""
    owns_secrets: bool = False
    """True if that file is its own, so that it is granted all of it."""
    withheld: tuple[str, ...] = ()
    """Names of secrets that are tokens of our own doors."""
    is_alone: bool = True
    """True if no other source could be given the keys of a file that all share."""
    policy: Policy | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    timeout: float | None = None
    curation: Curation = field(default_factory=Curation)

    @property
    def ref(self) -> str:
        """Its reference as it was written."""
        return self.settings.ref

    @property
    def folder(self) -> Path:
        """The folder that its relative paths start from."""
        return self.settings.folder or Path()


@dataclass(frozen=True, slots=True)
class Part:
    """One loaded source, with its tools and its report; or its `trouble`, and no tool."""

    wanted: Wanted
    catalog: Catalog
    report: tuple[Finding, ...]
    source: Source | None
    secrets: Secrets | None
    since: int
    """When loading it began, in epoch nanoseconds."""
    trouble: DeclarationError | None = None


@dataclass(slots=True)
class Loaded:
    """All loaded sources: one catalog, and the parts that it is made of."""

    catalog: Catalog = field(default_factory=lambda: Catalog(()))
    parts: tuple[Part, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """The open sources."""
        return tuple(p.source for p in self.parts if p.source is not None and p.trouble is None)

    @property
    def report(self) -> tuple[Finding, ...]:
        """The findings about each declaration."""
        return tuple(finding for part in self.parts for finding in part.report)

    async def aclose(self) -> None:
        """Close every source."""
        for source in self.sources:
            await source.aclose()


async def load_sources(
    wanted: Iterable[Wanted],
    given: Opening | None = None,
    *,
    hide: Callable[[Secrets], None] | None = None,
) -> Loaded:
    """Load sources into one catalog.

    What `given` says comes before what a source's own settings say. A source that is refused is an
    error in the report and leaves the others alone. `hide` is called with the secrets of a source
    before anything of it runs.

    Raises:
        DeclarationError: no source could be loaded, or two tools share a name.
    """
    parts = tuple([await load_part(each, given, hide=hide) for each in wanted])
    loaded = Loaded(parts=parts)
    refused = [part.trouble for part in parts if part.trouble is not None]
    if len(refused) == len(parts) == 1:
        raise refused[0]
    if len(refused) == len(parts):
        raise SourceRefused("no source could be loaded: " + "; ".join(map(str, refused)))
    try:
        loaded.catalog = joined(part.catalog for part in parts)
    except DeclarationError:
        await loaded.aclose()
        raise
    loaded.parts = tuple(
        replace(
            part, report=(*part.report, *_lost_names(part.catalog, loaded.catalog, part.wanted))
        )
        for part in parts
    )
    return loaded


def _lost_names(tools: Iterable[Tool], catalog: Catalog, wanted: Wanted) -> Iterable[Finding]:
    """The former names of tools that they do not keep, as other tools have or had them."""
    for tool in tools:
        for name in tool.former:
            other = catalog.get(name)
            if other is None or other.id != tool.id:
                held = "several tools had it" if other is None else f"it is '{other.id}' now"
                text = f"'{name}' is no longer a name of '{tool.id}': {held}"
                yield Finding(wanted.ref, "warning", text)


async def load_part(
    wanted: Wanted,
    given: Opening | None = None,
    *,
    secrets: Secrets | None = None,
    hide: Callable[[Secrets], None] | None = None,
) -> Part:
    """Open one source and load it, as `load_sources` does; one that is refused is closed.

    `secrets` are those of an earlier loading, where its file has not changed since.
    """
    since = time_ns()
    source: Source | None = None
    report: list[Finding] = []
    try:
        opening = _opening(wanted, given, secrets)
        secrets = opening.secrets
        if hide is not None and secrets is not None:
            hide(secrets)
        source = open_source(opening)
        loaded = await source.load()
        catalog = _selected(loaded, wanted, report)
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
    return msgspec.structs.replace(
        settings,
        profile=told.profile or settings.profile,
        lists=told.lists or lists,
        libraries=(*told.libraries, *settings.libraries),
        hosts=(*told.hosts, *settings.hosts),
        upstreams={**settings.upstreams, **told.upstreams},
        secrets=_granted(wanted, told, secrets),
        hook_hosts=(*told.hook_hosts, *settings.hook_hosts),
        keys=(*told.keys, *settings.keys),
        hook_timeout=told.hook_timeout or settings.hook_timeout,
    )


def _granted(wanted: Wanted, told: Opening, known: Secrets | None) -> Secrets:
    """The keys of a source; of a file that sources share only those that it is granted by name."""
    secrets = told.secrets or known or Secrets(None, wanted.secrets)
    is_shared = told.secrets is not None or not wanted.owns_secrets
    return secrets.restricted(
        os.environ,
        keys=map(key_name, (*told.keys, *wanted.settings.keys)),
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


def is_python(opening: Opening) -> bool:
    """True for a source that is Python code of the user's own."""
    return opening.ref.startswith("python:") or _sniffed(opening.ref, opening.folder) == "python"


def _selected(loaded: Tools, wanted: Wanted, report: list[Finding]) -> Catalog:
    catalog = Catalog(
        loaded, resources=loaded.resources, prompts=loaded.prompts, policy=wanted.policy
    )
    selected = catalog.select(wanted.allow, wanted.deny)
    ids = ", ".join(tool.id for tool in catalog)
    if len(catalog) and not len(selected):
        raise InvalidConfig(f"'{wanted.ref}': allow and deny leave no tool of {ids}")
    for key, patterns in (("allow", wanted.allow), ("deny", wanted.deny)):
        for pattern in patterns:
            if not len(catalog.select([pattern])):
                # A deny that fits nothing would leave open what it was meant to close.
                text = f"'{wanted.ref}': {key} '{pattern}' fits no tool; there are {ids}"
                report.append(Finding(wanted.ref, "warning", text))
    if wanted.timeout is not None:
        selected = Catalog(
            (replace(tool, timeout=wanted.timeout) for tool in selected),
            resources=selected.resources,
            prompts=selected.prompts,
        )
    if wanted.curation == Curation():
        return selected
    is_complete = not any(f.severity == "error" or f.is_left_out for f in loaded.report)
    curated = curate(catalog, selected, wanted.curation, is_complete=is_complete)
    made = Catalog(curated, resources=curated.resources, prompts=curated.prompts)
    report += (*curated.report, *_lost_names(curated, made, wanted))
    return made
