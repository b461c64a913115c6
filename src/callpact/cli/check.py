"""`callpact check`: checks files by the settings of their sources, and prints tables or JSON lines."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, cast

from rich.markup import escape
from rich.progress import track

from callpact import sandbox as hooks
from callpact.app import Session
from callpact.cli.output import (
    TableRow,
    counted,
    err,
    flat,
    out,
    plain,
    print_json,
    print_lines,
    print_table,
)
from callpact.config import SourceConfig, hold_limits
from callpact.errors import DeclarationError, InvalidConfig, UsageError
from callpact.sources.base import (
    Finding,
)
from callpact.sources.flowmcp.catalogue import Catalogue, FileReport, Rules
from callpact.sources.flowmcp.check.fixes import (
    NotWritten,
    fix_file,
)
from callpact.sources.flowmcp.check.rule_table import (
    Profile,
)
from callpact.sources.flowmcp.read.catalogue_files import CandidateFile, find_files

_API_SUFFIXES = frozenset({".json", ".yaml", ".yml"})
_STYLES = {"error": "red", "warning": "yellow", "info": "dim"}


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


def check_paths(
    paths: Iterable[Path],
    rules: FileRules,
    *,
    as_json: bool,
    fixes: bool,
    opens_hooks: bool = False,
) -> bool:
    """Check every file under the paths and print the findings; True if there are errors.

    Raises:
        SourceRefused: a path does not exist, or holds no file.
        UsageError: hooks are to be opened, and the extra that runs them is not installed.
    """
    if opens_hooks and not hooks.is_installed():
        raise UsageError("--hooks needs the extra 'hooks': pip install 'callpact[hooks]'")
    paths = list(paths)
    documents = [path for path in paths if path.suffix in _API_SUFFIXES and not path.is_dir()]
    candidates = find_files(path for path in paths if path not in documents)
    was_written = _fix(candidates) if fixes else True
    verdicts: Counter[str] = Counter()
    reports: list[FileReport] = []
    with_keys: list[FileReport] = []
    is_shown = not (as_json and out.is_terminal)
    checked = _checked(candidates, rules, is_shown=is_shown, opens_hooks=opens_hooks)
    for report in chain(checked, map(_check_openapi, documents)):
        verdicts[report.verdict] += 1
        if report.keys:
            with_keys.append(report)
        if as_json:
            print_json(_encode(report), sys.stdout, is_line=True)
        elif report.findings:
            reports.append(report)
    for report in reports:
        _print(report)
    if not as_json:
        _print_keys(with_keys)
    ok, warned, failed = (verdicts[verdict] for verdict in ("ok", "warning", "error"))
    summary = f"{counted(verdicts.total(), 'file')}: {ok:,} ok, {warned:,} with warnings, {failed:,} with errors"
    (err if as_json else out).print(summary, style="bold" if not as_json else "dim")
    return bool(failed) or not was_written


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


def _print(report: FileReport) -> None:
    """Print the findings of one file in columns; rich is too slow for thousands of rows."""
    rows = [_row(found) for found in report.findings]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    lines: list[tuple[str, str]] = []
    for *cells, message in rows:
        first, *others = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        lines.append((first, "  ".join([*others, message])))
    if not out.is_terminal:
        print_lines([flat(report.file), *(f"  {first}  {rest}" for first, rest in lines), ""])
        return
    out.print(f"[bold]{plain(report.file)}[/]")
    for first, rest in lines:
        out.print(f"  [{_STYLES[first.strip()]}]{first}[/]  {escape(rest)}")
    out.print()


def _print_keys(with_keys: list[FileReport]) -> None:
    """Print which file asks for which key, and the host it would be sent to."""
    if not with_keys:
        return
    rows = [
        TableRow((name, report.host or "no host of its own", report.file))
        for report in with_keys
        for name in report.keys
    ]
    print_table(rows, ["KEY", "SENT TO", "BY"])
    out.print()


def _row(found: Finding) -> list[str]:
    place = f"{found.line or 1}:{found.column or 1}"
    if not found.code:  # The line of an OpenAPI document is known, its column never.
        place = "-" if found.line is None else str(found.line)
    return [found.severity, found.code, place, *map(flat, (found.path or "-", found.message))]


def _encode(report: FileReport) -> dict[str, Any]:
    keys = {"keys": dict.fromkeys(report.keys, report.host)} if report.keys else {}
    return {
        "file": report.file,
        "verdict": report.verdict,
        "issues": [_encode_finding(found) for found in report.findings],
        "namespace": report.namespace,
        "name": report.name,
        "tools": list(report.tools),
        "schemaHash": report.hash,
        **keys,
    }


def _encode_finding(found: Finding) -> dict[str, Any]:
    return {
        "code": found.code,
        "severity": found.severity,
        "path": found.path,
        "line": found.line,
        "column": found.column,
        "message": found.message,
    }
