"""`callpact check`: checks files by the settings of their sources, and prints tables or JSON lines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple, cast

from msgspec.structs import replace
from rich.progress import track

from callpact import sandbox as hooks
from callpact.app import Session
from callpact.cli.check_report import (
    print_page,
    print_report_line,
    print_text,
    summary_of,
)
from callpact.cli.options import CheckFormat
from callpact.cli.output import err, flat, out, plain, print_diff
from callpact.config import hold_limits
from callpact.config_file import SourceConfig
from callpact.errors import DeclarationError, InvalidConfig, InvalidManifest, UsageError
from callpact.sources.base import Finding
from callpact.sources.flowmcp.catalogue import Catalogue, FileReport, Rules
from callpact.sources.flowmcp.check.fixes import NotWritten, fix_file, fix_text
from callpact.sources.flowmcp.check.rule_table import RULES, Profile
from callpact.sources.flowmcp.read.catalogue_files import CandidateFile, find_files, read_text

_API_SUFFIXES = frozenset({".json", ".yaml", ".yml"})


class FileRules:
    """The rules for each file: options first, then the settings of its source in `callpact.toml`.

    Raises:
        InvalidConfig: the file cannot be used.
    """

    def __init__(self, session: Session) -> None:
        self._given = session.opening
        file = session.configuration.file
        self._folder = session.configuration.folder
        self._config = session.config
        hold_limits(self._config)
        self._sources: dict[Path, SourceConfig] = {}
        for name, settings in self._config.sources.items():
            root = _root(self._folder, settings.ref)
            if root is None:
                continue
            if settings.lists is not None and not (self._folder / settings.lists).is_dir():
                where = self._folder / settings.lists
                raise InvalidConfig(f"{file}: sources.{name}.lists: {where} is not a folder")
            self._sources[root] = settings

    def of(self, file: Path) -> Rules:
        """The rules for one file: those of the innermost source that holds it."""
        path, given = file.resolve(), self._given
        source: SourceConfig | None = None
        for root in (path, *path.parents) if self._sources else ():
            source = self._sources.get(root)
            if source is not None:
                break
        libraries = {*given.libraries, *self._config.libraries}
        profile, lists = given.profile, given.lists
        if source is not None:
            libraries |= {*source.libraries}
            profile = profile or source.profile
            lists = lists or (source.lists and str(self._folder / source.lists))
        return Rules(
            cast("Profile", profile or "compat"),
            frozenset(libraries),
            Path(lists) if lists else None,
        )


def _root(folder: Path, ref: str) -> Path | None:
    """The path of a FlowMCP source; None for other kinds."""
    if ref.startswith("flowmcp:"):
        return (folder / ref.removeprefix("flowmcp:")).resolve()
    path = folder / ref
    return path.resolve() if ref.endswith(".mjs") or path.is_dir() else None


class CheckSelection(NamedTuple):
    """The findings that are reported, by the beginning of their codes."""

    select: tuple[str, ...] = ()
    """None for all."""
    ignore: tuple[str, ...] = ()
    errors_only: bool = False

    def of(self, report: FileReport) -> FileReport:
        """The report with the selected findings; its verdict is theirs."""
        return replace(report, findings=tuple(filter(self._is_selected, report.findings)))

    def _is_selected(self, found: Finding) -> bool:
        if self.errors_only and found.severity != "error":
            return False
        is_wanted = not self.select or found.code.startswith(self.select)
        return is_wanted and not (self.ignore and found.code.startswith(self.ignore))


_EVERYTHING = CheckSelection()


def selection_of(
    select: Iterable[str] | None, ignore: Iterable[str] | None, *, errors_only: bool
) -> CheckSelection:
    """Read lists of codes, each separated by commas.

    Raises:
        UsageError: no code begins like that.
    """
    given = {"--select": tuple(select or ()), "--ignore": tuple(ignore or ())}
    codes = {
        option: tuple(part.strip().upper() for each in lists for part in each.split(","))
        for option, lists in given.items()
    }
    for option, parts in codes.items():
        for part in parts:
            if not part or not any(key.startswith(part) for key in RULES):
                raise UsageError(
                    f"{option}: no code begins with '{part}'; codes are like VAL012, SEC, TST"
                )
    return CheckSelection(codes["--select"], codes["--ignore"], errors_only)


def check_paths(
    paths: Iterable[Path],
    rules: FileRules,
    *,
    form: CheckFormat = CheckFormat.text,
    selection: CheckSelection = _EVERYTHING,
    shows_warnings: bool = False,
    fixes: bool = False,
    opens_hooks: bool = False,
) -> bool:
    """Check every file under the paths and print the findings; True if there are errors.

    The warnings of a single file are shown in any case.

    Raises:
        SourceRefused: a path does not exist, or holds no file.
        UsageError: hooks are to be opened, and the extra that runs them is not installed.
    """
    if opens_hooks and not hooks.is_installed():
        raise UsageError("--hooks needs the extra 'hooks': pip install 'callpact[hooks]'")
    paths = list(paths)
    documents = list(filter(_is_openapi, paths))
    candidates = find_files(path for path in paths if path not in documents)
    was_written = _fix(candidates) if fixes else True
    reports: list[FileReport] = []
    is_shown = form is CheckFormat.text or not out.is_terminal
    checked = _checked(candidates, rules, is_shown=is_shown, opens_hooks=opens_hooks)
    for found in chain(checked, map(_check_openapi, documents)):
        report = selection.of(found)
        reports.append(report)
        print_report_line(report, form)
    if form is CheckFormat.text:
        print_text(reports, shows_warnings=shows_warnings or len(reports) == 1)
    else:
        if form is CheckFormat.html:
            print_page(reports)
        err.print(summary_of(reports), style="dim")
    return any(report.verdict == "error" for report in reports) or not was_written


def print_fixes(paths: Iterable[Path]) -> bool:
    """Print the changes that `--fix` would write as a diff; True if there are some.

    Raises:
        SourceRefused: a path does not exist, or holds no file.
    """
    has_changes = False
    for candidate in find_files(path for path in paths if not _is_openapi(path)):
        try:
            before = read_text(candidate.path)
        except InvalidManifest:
            continue
        fix, name = fix_text(before), flat(str(candidate.path))
        if fix.refused:
            err.print(f"[yellow]not fixed[/] {plain(f'{candidate.path}: {fix.refused}')}")
        if fix.changes:
            has_changes = True
            print_diff(before, fix.text, name)
    if not has_changes:
        err.print("nothing to fix")
    return has_changes


def _checked(
    candidates: list[CandidateFile], rules: FileRules, *, is_shown: bool, opens_hooks: bool
) -> Iterator[FileReport]:
    catalogue = Catalogue(candidates, rules.of)
    tracked = _tracked(candidates, "checking", is_shown=is_shown)
    if opens_hooks:
        yield from _opened(catalogue, tracked)
    else:
        for candidate in tracked:
            yield catalogue.check(candidate)
    yield from catalogue.unseen()


def _is_openapi(path: Path) -> bool:
    return path.suffix in _API_SUFFIXES and not path.is_dir()


def _check_openapi(path: Path) -> FileReport:
    """The report on an OpenAPI document; nothing is fetched for it, and no tool is called."""
    from callpact.sources.openapi.openapi_source import check_openapi

    try:
        tools = asyncio.run(check_openapi(path))
    except DeclarationError as error:
        text = str(error).removeprefix(f"{path}: ")
        return FileReport(str(path), (Finding(str(path), "error", text),))
    namespace = next((tool.namespace for tool in tools), None)
    return FileReport(
        str(path),
        tools.report,
        namespace=namespace,
        tools=tuple(tool.name for tool in tools),
    )


def _opened(catalogue: Catalogue, candidates: Iterable[CandidateFile]) -> Iterator[FileReport]:
    with asyncio.Runner() as runner:
        try:
            for candidate in candidates:
                yield runner.run(catalogue.check_opened(candidate))
        finally:
            runner.run(catalogue.aclose())


def _fix(candidates: list[CandidateFile]) -> bool:
    """Fix the files; False if one could not be written."""
    notes: list[str] = []
    was_written = True
    readable = [candidate for candidate in candidates if candidate.trouble is None]
    for candidate in _tracked(readable, "fixing"):
        try:
            fix = fix_file(candidate.path)
        except NotWritten as error:
            was_written = False
            notes.append(f"[red]error:[/] {plain(str(error))}")
            continue
        if fix.changes:
            notes.append(f"fixed {plain(str(candidate.path))}: {plain('; '.join(fix.changes))}")
        if fix.refused:
            notes.append(f"[yellow]not fixed[/] {plain(f'{candidate.path}: {fix.refused}')}")
    for line in notes or ["nothing to fix"]:
        err.print(line)
    return was_written


def _tracked(
    candidates: list[CandidateFile], verb: str, *, is_shown: bool = True
) -> Iterable[CandidateFile]:
    if not (is_shown and err.is_terminal):
        return candidates
    return track(candidates, verb, console=err.console, transient=True)
