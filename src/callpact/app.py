"""The only place that wires things: references and configuration into a catalog.

Kinds of source are found through the entry-point group `callpact.sources`; ours register the same
way as anybody's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, cast

from callpact.catalog import Catalog
from callpact.config import DEFAULT_FILE, Config, SourceConfig, read_config
from callpact.errors import DeclarationError, InvalidConfig, SourceRefused
from callpact.sources.loaded import Finding, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from callpact.tool import Tool


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


async def load_app(refs: Iterable[str] = (), config_file: Path | None = None) -> App:
    """Load the named sources, else those of the configuration file (`./callpact.toml`).

    A source that is refused is an error in the report and leaves the others alone.

    Raises:
        DeclarationError: no source could be loaded, or two tools share a name.
    """
    tools: list[Tool] = []
    sources: list[Source] = []
    report: list[Finding] = []
    refused: list[DeclarationError] = []
    for name, settings in _wanted(tuple(refs), config_file):
        try:
            source = open_source(settings.ref, namespace=name)
            loaded = await source.load()
            tools.extend(_selected(loaded, settings))
        except DeclarationError as error:
            refused.append(error)
            report.append(Finding(settings.ref, "error", str(error)))
            continue
        sources.append(source)
        report.extend(loaded.report)
    if refused and not sources:
        raise refused[0]
    return App(Catalog(tools), tuple(sources), tuple(report))


def open_source(ref: str, *, namespace: str | None = None) -> Source:
    """The source behind a reference `kind:rest`; a bare path or module name is sniffed.

    Raises:
        SourceRefused: no kind of source reads it.
    """
    kinds = {point.name: point for point in entry_points(group="callpact.sources")}
    kind, colon, rest = ref.partition(":")
    if not colon or kind not in kinds:
        kind, rest = _sniffed(ref), ref
    if kind not in kinds or not rest:
        raise SourceRefused(
            f"no source reads '{ref}'; give it a kind: {', '.join(sorted(kinds))} "
            "(for example python:shop.py)"
        )
    opener = cast("Callable[[str, str | None], Source]", kinds[kind].load())
    return opener(rest, namespace)


def _sniffed(ref: str) -> str | None:
    path = ref.rpartition(":")[0] if not ref.endswith(".py") else ref
    return "python" if path.endswith(".py") else None


def _wanted(refs: tuple[str, ...], file: Path | None) -> list[tuple[str | None, SourceConfig]]:
    if refs:
        return [(None, SourceConfig(ref=ref, policy=None, timeout=None)) for ref in refs]
    path = file or Path(DEFAULT_FILE)
    if file is None and not path.exists():
        raise InvalidConfig(
            f"no source: name one with -s (for example -s python:shop.py), or run this where a "
            f"{DEFAULT_FILE} is; `callpact init` writes one"
        )
    config: Config = read_config(path)
    if not config.sources:
        raise InvalidConfig(f"{path}: names no source; add a [sources.NAME] table with a ref")
    return list(config.sources.items())


def _selected(tools: Iterable[Tool], settings: SourceConfig) -> Iterable[Tool]:
    catalog = Catalog(tools, policy=settings.policy).select(settings.allow, settings.deny)
    if not len(catalog) and (settings.allow or settings.deny):
        raise DeclarationError(f"'{settings.ref}': allow and deny leave no tool")
    if settings.timeout is None:
        return catalog
    return [replace(tool, timeout=settings.timeout) for tool in catalog]
