"""How a whole FlowMCP catalogue fares: files, tests, hooks, and recorded calls.

`python scripts/catalogue.py PATH [--lists DIR] [--packs DIR] [--requests FILE.jsonl.gz]`. PATH is a
checkout of a catalogue; the hooks of every file are opened in the sandbox. The recorded calls are
those of the JavaScript runtime of FlowMCP, one JSON object per line; what callpact does otherwise
must follow from a rule. Nothing is sent to anybody. The exit status is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from recorded import DEVIATIONS, Known, Outcome, file_of, rows_of
from recorded_hooks import HOOK_DEVIATIONS, Canned, HookedCalls, copy_files

from callpact import CallError, Tool, from_flowmcp
from callpact.errors import DeclarationError, InvalidManifest
from callpact.secrets.keys import Secrets
from callpact.sources.flowmcp.build.source import FlowMCPTools
from callpact.sources.flowmcp.hooks.file_hooks import Unhooked
from callpact.sources.flowmcp.read.catalogue_files import find_files, read_text
from callpact.sources.flowmcp.read.literal import read_exports
from callpact.testing import StubTransport

FILES, TOOLS = 358, 1_500

# --- files and tests ------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Print the report; 0 if every bar is reached."""
    logging.disable(logging.WARNING)  # Answers are made up here, and break what is declared.
    return asyncio.run(_report(_parsed(arguments)))


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="catalogue.py", description=__doc__)
    parser.add_argument("path", type=Path, help="a checkout of a catalogue, or a part of one")
    parser.add_argument("--lists", type=Path, help="a folder of shared lists")
    parser.add_argument("--packs", type=Path, help="a folder of libraries for hooks")
    parser.add_argument("--requests", type=Path, help="recorded requests, .jsonl or .jsonl.gz")
    parser.add_argument("--files", type=int, default=FILES, help="files that must load")
    parser.add_argument("--tools", type=int, default=TOOLS, help="tools that must pass their tests")
    return parser.parse_args(arguments)


async def _report(given: argparse.Namespace) -> int:
    transport = StubTransport(lambda _: {"status": 200, "body": "{}"})
    tools = _loaded(given.path, given.lists, given.packs, transport)
    try:
        others = {found.place for found in tools.report if found.code == "VAL159"}
        found = [
            str(found.path)
            for found in find_files([given.path])
            if found.trouble is None and not found.is_list
        ]
        files = [file for file in found if file not in others]
        reached = [_tell_files(tools, files, given.files), _tell_tests(tools, given.tools)]
        reached.append(await _tell_hooks(tools, files))
        if given.requests is not None:
            rows = list(rows_of(given.requests))
            known = Known(tools, transport, files)
            reached.append(await _tell_plain(known, rows))
            reached.append(await _tell_hooked(given, rows, files))
    finally:
        await tools.aclose()
    return 0 if all(reached) else 1


def _loaded(
    path: Path, lists: Path | None, packs: Path | None, transport: StubTransport
) -> FlowMCPTools:
    secrets = Secrets(environ=_Recorded(known=""), keys=["*"])
    return from_flowmcp(
        path,
        lists=lists,
        libraries=["*"],
        secrets=secrets,
        keys=["*", "INFURA_API_KEY@*.infura.io"],
        transport=transport,
        packs=packs,
    )


class _Recorded(dict[str, str]):
    """Every secret that can be asked for, as the recorded calls had it."""

    def get(self, name: str, _default: Any = None) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"sp-{name.lower()}"


def _tell_files(tools: FlowMCPTools, files: list[str], least: int) -> bool:
    working = {file_of(tool) for tool in tools}
    errors: dict[str, list[str]] = defaultdict(list)
    for found in tools.report:
        if found.severity == "error":
            errors[found.place].append(f"{found.code} (line {found.line}): {found.message}")
    broken = [file for file in files if file in errors and file not in working]
    _title(f"{len(files) - len(broken):,} of {len(files):,} files load", least)
    for file in broken:
        more = f"; and {len(errors[file]) - 1} more" if errors[file][1:] else ""
        print(f"  {_short(file)}: {errors[file][0]}{more}")
    return _reached(len(files) - len(broken), least)


def _tell_tests(tools: FlowMCPTools, least: int) -> bool:
    wrong = {tool.id: issue for tool in tools if (issue := _contradiction(tool))}
    _title(f"{len(tools) - len(wrong):,} of {len(tools):,} tools pass their own test values", least)
    for name, issue in wrong.items():
        print(f"  {name}: {issue}")
    return _reached(len(tools) - len(wrong), least)


def _contradiction(tool: Tool) -> str | None:
    """What the tests of a tool break of its own declaration; None if they break nothing."""
    from callpact.gate import admit

    for number, test in enumerate(tool.examples, 1):
        try:
            admit(tool, {key: value for key, value in test.items() if key != "_description"})
        except CallError as error:
            return f"test {number}: " + "; ".join(issue.message for issue in error.issues)
    return None


# --- hooks ----------------------------------------------------------------------------------


async def _tell_hooks(tools: FlowMCPTools, files: Iterable[str]) -> bool:
    """Open the hooks of every file that has some, also of those that break a rule otherwise."""
    findings: dict[str, list[str]] = defaultdict(list)
    importing: set[str] = set()
    for found in tools.report:
        if found.severity == "error":
            findings[found.place].append(f"{found.code} (line {found.line}): {found.message}")
            importing |= {found.place} if found.code == "SEC001" else set()
    count, closed, failed, loose = 0, dict[str, str](), dict[str, str](), dict[str, str]()
    for file in files:
        reason = await _closed(tools, file)
        count += reason is not None
        if reason and reason.startswith("Its hooks"):
            closed[file] = reason
        elif reason:
            failed[file] = reason
        elif reason is not None and file in importing:
            closed[file] = f"It imports modules, which hooks do not have: {findings[file][0]}"
        elif reason is not None and file in findings:
            loose[file] = f"Its hooks open, but it is not loaded: {findings[file][0]}"
    opened = count - len(closed) - len(failed)
    _title(f"{opened:,} of {count:,} files with hooks open in the sandbox")
    for file, reason in {**closed, **loose, **failed}.items():
        print(f"  {_short(file)}: {reason}")
    if failed:
        print(f"  MISSED: {len(failed):,} that lack no library and import nothing do not open")
    return not failed


async def _closed(tools: FlowMCPTools, file: str) -> str | None:
    """Why the hooks of a file do not open, empty if they do; None if it has none."""
    try:
        text = read_text(Path(file))
        exports = read_exports(text)
    except InvalidManifest:
        return None
    main = exports.values.get("main", {})
    if exports.handlers is None:
        return None
    libraries = main.get("requiredLibraries", ())
    hooks = tools._hooks.of_file(file, text, exports.handlers, main.get("tools", ()), libraries)  # noqa: SLF001 - only a proof opens hooks without a call
    if isinstance(hooks, Unhooked):
        return hooks.reason
    try:
        await hooks.open()
    except DeclarationError as error:
        return f"The engine refuses them: {error}"
    return ""


# --- recorded calls -------------------------------------------------------------------------


async def _tell_plain(known: Known, rows: Iterable[dict[str, Any]]) -> bool:
    plain = [row for row in rows if not row["handlers"]]
    title = "{same:,} of {calls:,} recorded calls without hooks are sent the same"
    return await _tell_calls(title, plain, known.compare, DEVIATIONS)


async def _tell_hooked(
    given: argparse.Namespace, rows: Iterable[dict[str, Any]], files: Iterable[str]
) -> bool:
    names = tuple(Path(file).as_posix() for file in files)
    hooked = [row for row in rows if row["handlers"]]
    there = {
        row["file"] for row in hooked if any(name.endswith("/" + row["file"]) for name in names)
    }
    title = "{same:,} of {calls:,} recorded calls with hooks send the same and give the same data"
    with tempfile.TemporaryDirectory() as folder:
        path, lists = copy_files(given.path, given.lists, Path(folder))
        canned = Canned()
        transport = StubTransport(canned.respond)
        tools = _loaded(path, lists, given.packs, transport)
        calls = HookedCalls(tools, canned, transport.requests, hooked)

        async def compare(row: dict[str, Any]) -> Outcome:
            return await calls.compare(row) if row["file"] in there else Outcome(is_compared=False)

        try:
            return await _tell_calls(title, hooked, compare, HOOK_DEVIATIONS)
        finally:
            await tools.aclose()


async def _tell_calls(
    title: str,
    rows: Iterable[dict[str, Any]],
    compare: Callable[[dict[str, Any]], Awaitable[Outcome]],
    rules: Mapping[str, str],
) -> bool:
    counts: Counter[str] = Counter()
    unexplained: list[str] = []
    for row in rows:
        outcome = await compare(row)
        counts.update([outcome.kind, *outcome.deviations])
        if outcome.kind == "unexplained":
            unexplained.append(outcome.told)
    calls = counts["same"] + counts["ruled"] + counts["unexplained"]
    _title(title.format(same=counts["same"], calls=calls))
    print(f"  {counts['ruled']:,} otherwise, by a rule (a call may have several):")
    for name, rule in rules.items():
        if counts[name]:
            print(f"  {counts[name]:6,}  {name}: {rule}")
    print(f"  {counts['unexplained']:,} unexplained, which must be 0")
    for told in unexplained:
        print(f"  {told}")
    if counts["absent"]:
        print(f"  {counts['absent']:,} calls of files that are not there are not compared")
    return not unexplained


# --- words ----------------------------------------------------------------------------------


def _short(file: str) -> str:
    return "/".join(Path(file).parts[-2:])


def _title(text: str, least: int | None = None) -> None:
    print(f"\n{text}" + ("" if least is None else f" (at least {least:,})"))


def _reached(found: int, least: int) -> bool:
    if found < least:
        print(f"  MISSED: {found:,} where {least:,} are asked for")
    return found >= least


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
