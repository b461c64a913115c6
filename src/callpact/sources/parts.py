"""Opens and loads sources, and joins their selected tools in one catalog.

Kinds of source are found through the entry-point group `callpact.sources`, our own as well: a
callable of one `Opening` that returns a `Source`. Configuration files are not read here.
"""

from __future__ import annotations

import asyncio
import os
import re
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


_RULES = ("namespace", "select", "exclude")
"""Keys of curation for a whole source; those for its tools are in `tools`."""
MAX_SNIFFED = 50_000_000
"""Bytes of a file that are searched for the kind of its source."""
_API_SUFFIXES = (".json", ".yaml", ".yml")
_API_KEY = re.compile(rb"""(?:^|[{,]\s*)["']?(?:openapi|swagger)["']?\s*:""", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSource:
    """One source to load: its settings, the selection of its tools, and their policy."""

    name: str
    settings: Opening
    """The declared settings; `lists` is relative to its folder, and `secrets` are not set."""
    secrets: Path | None = None
    """The file of its keys."""
    owns_secrets: bool = False
    """True if no other source uses that file, so that it is granted all keys in it."""
    withheld: tuple[str, ...] = ()
    """Names of secrets that are tokens of our own doors."""
    is_alone: bool = True
    """True if no other source could get the keys of a shared file, so that it gets all of them."""
    policy: Policy | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    timeout: float | None = None
    curation: Curation = field(default_factory=Curation)
    curate_file: Path | None = None
    """A file with more of its curation, which may not exist."""
    has_curate_file: bool = False
    """True if that file must exist."""

    @property
    def ref(self) -> str:
        """Its reference as it was written."""
        return self.settings.ref

    @property
    def folder(self) -> Path:
        """The folder that its relative paths start from."""
        return self.settings.folder or Path()


@dataclass(frozen=True, slots=True)
class SourcePart:
    """One loaded source, with its tools and its report; or its `trouble`, and no tool."""

    wanted: WantedSource
    catalog: Catalog
    report: tuple[Finding, ...]
    source: Source | None
    secrets: Secrets | None
    since: int
    """The start of its loading, in epoch nanoseconds."""
    trouble: DeclarationError | None = None


@dataclass(slots=True)
class LoadedSources:
    """All loaded sources: one catalog, and the parts that it is made of."""

    catalog: Catalog = field(default_factory=lambda: Catalog(()))
    parts: tuple[SourcePart, ...] = ()

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
    wanted: Iterable[WantedSource],
    given: Opening | None = None,
    *,
    hide: Callable[[Secrets], None] | None = None,
) -> LoadedSources:
    """Load sources into one catalog.

    `given` overrides the settings of each source. A refused source is an error in the report and
    does not affect the others. `hide` is called with the secrets of a source before it is opened.

    Raises:
        DeclarationError: no source could be loaded, or two tools share a name.
    """
    # Side by side, as servers take their time to start.
    parts = tuple(await asyncio.gather(*(load_part(each, given, hide=hide) for each in wanted)))
    loaded = LoadedSources(parts=parts)
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


def _lost_names(tools: Iterable[Tool], catalog: Catalog, wanted: WantedSource) -> Iterable[Finding]:
    """The former names of tools that they do not keep, as other tools have or had them."""
    for tool in tools:
        for name in tool.former:
            other = catalog.get(name)
            if other is None or other.id != tool.id:
                held = "several tools had it" if other is None else f"it is '{other.id}' now"
                text = f"'{name}' is no longer a name of '{tool.id}': {held}"
                yield Finding(wanted.ref, "warning", text)


async def load_part(
    wanted: WantedSource,
    given: Opening | None = None,
    *,
    secrets: Secrets | None = None,
    hide: Callable[[Secrets], None] | None = None,
    source: Source | None = None,
) -> SourcePart:
    """Open and load one source, as `load_sources` does; a refused one is closed.

    `secrets` are those of an earlier load, if the file has not changed since. An open `source` is
    loaded again.
    """
    since = time_ns()
    report: list[Finding] = []
    try:
        opening = _opening(wanted, given, secrets)
        secrets = opening.secrets
        if hide is not None and secrets is not None:
            hide(secrets)
        source = source or open_source(opening)
        loaded = await source.load()
        catalog = _selected(loaded, _with_file(wanted), report)
    except DeclarationError as error:
        if source is not None:
            await source.aclose()
        found = (Finding(wanted.ref, "error", str(error)),)
        return SourcePart(wanted, Catalog(()), found, source, secrets, since, error)
    except BaseException:
        if source is not None:
            await source.aclose()
        raise
    report.extend(loaded.report)
    if secrets is not None and (given is None or given.secrets is None):
        report += [Finding(wanted.ref, "warning", text) for text in secrets.warnings]
    return SourcePart(wanted, catalog, tuple(report), source, secrets, since)


def _opening(wanted: WantedSource, given: Opening | None, secrets: Secrets | None) -> Opening:
    opening, settings = given or Opening(""), wanted.settings
    lists = None if settings.lists is None else str(wanted.folder / settings.lists)
    return msgspec.structs.replace(
        settings,
        profile=opening.profile or settings.profile,
        lists=opening.lists or lists,
        libraries=(*opening.libraries, *settings.libraries),
        hosts=(*opening.hosts, *settings.hosts),
        upstreams={**settings.upstreams, **opening.upstreams},
        secrets=_granted(wanted, opening, secrets),
        hook_hosts=(*opening.hook_hosts, *settings.hook_hosts),
        keys=(*opening.keys, *settings.keys),
        hook_timeout=opening.hook_timeout or settings.hook_timeout,
    )


def _granted(wanted: WantedSource, opening: Opening, known: Secrets | None) -> Secrets:
    """The keys of a source; of a shared file only those that are granted by name."""
    secrets = opening.secrets or known or Secrets(None, wanted.secrets)
    is_shared = opening.secrets is not None or not wanted.owns_secrets
    return secrets.restricted(
        os.environ,
        keys=map(key_name, (*opening.keys, *wanted.settings.keys)),
        withheld=wanted.withheld,
        only_keys=is_shared and not wanted.is_alone,
    )


def open_source(opening: Opening) -> Source:
    """The source of a reference `kind:rest`; for a bare path the kind is guessed.

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
    if ref.startswith(("http://", "https://")):
        return "openapi" if ref.partition("?")[0].endswith(_API_SUFFIXES) else "mcp"
    path = ref.rpartition(":")[0] if not ref.endswith(".py") else ref
    if path.endswith(".py"):
        return "python"
    if ref.endswith(_API_SUFFIXES):
        return "openapi" if _names_openapi((folder or Path()) / ref) else None
    return "flowmcp" if ref.endswith(".mjs") or ((folder or Path()) / ref).is_dir() else None


def _names_openapi(path: Path) -> bool:
    """True if a file names OpenAPI or Swagger, which some do at the end."""
    try:
        with path.open("rb") as file:
            return _API_KEY.search(file.read(MAX_SNIFFED)) is not None
    except OSError:
        return False


def _remedy(ref: str, folder: Path | None, kinds: list[str]) -> str:
    if ((folder or Path()) / f"{ref}.py").is_file():
        return f"; did you mean {ref}.py?"
    return f"; write KIND:WHERE, for example python:shop.py (kinds: {', '.join(kinds)})"


def is_python(opening: Opening) -> bool:
    """True for a source that is the user's own Python code."""
    return opening.ref.startswith("python:") or _sniffed(opening.ref, opening.folder) == "python"


def _with_file(wanted: WantedSource) -> WantedSource:
    """A source with the curation of its file.

    Raises:
        InvalidConfig: the file cannot be used, or declares something that the table declares, too.
    """
    file, own = wanted.curate_file, wanted.curation
    if file is None or not (wanted.has_curate_file or file.exists()):
        return wanted
    from callpact.sources.curate_file import read_curate_file  # It takes time to import.

    table = read_curate_file(file)
    given, nothing = table.curation(str(file)), Curation()
    keys = [key for key in _RULES if getattr(given, key) != getattr(nothing, key)]
    twice = [key for key in keys if getattr(own, key) != getattr(nothing, key)]
    twice += [key for key in ("allow", "deny") if getattr(table, key) and getattr(wanted, key)]
    twice += [f"tools.{key}" for key in given.tools if key in own.tools]
    if twice:
        raise InvalidConfig(
            f"{file}: '{twice[0]}' is also in the table [sources.{wanted.name}]; keep one of them"
        )
    places = [*keys, *(f"tools.{key}" for key in given.tools)]
    curation = replace(
        own,
        place=own.place or f"sources.{wanted.name}",
        tools={**own.tools, **given.tools},
        places={key: f"{file}: {key}" for key in places},
        **{key: getattr(given, key) for key in keys},
    )
    return replace(
        wanted,
        curation=curation,
        allow=wanted.allow or tuple(table.allow),
        deny=wanted.deny or tuple(table.deny),
    )


def _selected(loaded: Tools, wanted: WantedSource, report: list[Finding]) -> Catalog:
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
                # A deny pattern without a match may leave a tool open that it was meant to close.
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
