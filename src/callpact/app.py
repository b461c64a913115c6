"""The only place that wires things: references and configuration into a catalog.

Kinds of source are found through the entry-point group `callpact.sources`; ours register the same
way as anybody's: a callable of one `Opening` that gives a `Source`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import msgspec

from callpact.catalog import Catalog, joined
from callpact.config import DEFAULT_FILE, Config, SourceConfig, read_config
from callpact.errors import DeclarationError, InvalidConfig, SourceRefused
from callpact.secrets import Secrets
from callpact.sources.loaded import Finding, Opening, Source, Tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType


@dataclass(frozen=True, slots=True)
class App:
    """What was loaded: the catalog, the open sources, and what happened to each declaration."""

    catalog: Catalog
    sources: tuple[Source, ...] = ()
    report: tuple[Finding, ...] = field(default=())

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
    parts: list[Catalog] = []
    sources: list[Source] = []
    report: list[Finding] = []
    refused: list[DeclarationError] = []
    folder = config_file.parent if config_file is not None and not refs else Path()
    config = _wanted(tuple(refs), config_file)
    for name, settings in config.sources.items():
        try:
            opening = _opening(name, settings, config, folder, given)
            if hide is not None and opening.secrets is not None:
                hide(opening.secrets)
            source = open_source(opening)
            loaded = await source.load()
            parts.append(_selected(loaded, settings, report))
        except DeclarationError as error:
            refused.append(error)
            report.append(Finding(settings.ref, "error", str(error)))
            continue
        sources.append(source)
        report.extend(loaded.report)
        if opening.secrets is not None and (given is None or opening.secrets is not given.secrets):
            report += [Finding(settings.ref, "warning", text) for text in opening.secrets.warnings]
    if len(refused) == 1 and not sources:
        raise refused[0]
    if refused and not sources:
        raise SourceRefused("no source could be loaded: " + "; ".join(map(str, refused)))
    loaded_app = App(Catalog(()), tuple(sources), tuple(report))
    try:
        return replace(loaded_app, catalog=joined(parts))
    except DeclarationError:
        await loaded_app.aclose()
        raise


def _opening(
    name: str, settings: SourceConfig, config: Config, folder: Path, given: Opening | None
) -> Opening:
    told = given or Opening("")
    file = settings.secrets or config.secrets
    lists = None if settings.lists is None else str(folder / settings.lists)
    return Opening(
        settings.ref,
        None if name.startswith(_UNNAMED) else name,
        folder,
        told.profile or settings.profile,
        told.lists or lists,
        (*told.libraries, *config.libraries, *settings.libraries),
        (*told.hosts, *settings.hosts),
        {**config.upstreams, **told.upstreams},
        told.secrets or Secrets(None, folder / file if file else None, os.environ),
        (*told.hook_hosts, *settings.hook_hosts),
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


def _wanted(refs: tuple[str, ...], file: Path | None) -> Config:
    if refs:
        unnamed = {f"{_UNNAMED}{i}": {"ref": ref} for i, ref in enumerate(refs)}
        return Config.model_validate({"sources": unnamed})
    path = file or Path(DEFAULT_FILE)
    if file is None and not path.exists():
        raise InvalidConfig(
            f"no source: name one with -s (for example -s python:shop.py), or run this where a "
            f"{DEFAULT_FILE} is; `callpact init` writes one"
        )
    config: Config = read_config(path)
    if not config.sources:
        raise InvalidConfig(f"{path}: names no source; add a [sources.NAME] table with a ref")
    return config


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
