"""`callpact diff`: the changes between two catalogs, and whether they are breaking."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callpact import contracts
from callpact.cli.contracts.package_refs import contracts_of
from callpact.cli.options import (
    AsJson,
    PackagesOption,
    SourceOptions,
    packages_folder,
    takes_sources,
)
from callpact.cli.output import counted, err, fail, out, plain, print_json
from callpact.contracts.packages.package_form import published_form
from callpact.schema.json_text import json_text
from callpact.sources.mcp.hidden_text import visible

if TYPE_CHECKING:
    from callpact.contracts import CatalogDiff, ContractChange

_STYLES = {"major": "red", "minor": "green", "patch": "dim"}
_CLASSES = {"major": "breaking", "minor": "non-breaking", "patch": "patch"}
_DECIDED = {
    "rule": "",
    "proved": "proved compatible",
    "refuted": "refuted",
    "table": "by the table",
}


@takes_sources
def diff(
    *,
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            help="A file, folder, other reference, server's address, or published NAME@VERSION.",
        ),
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same for the new contracts.")],
    tolerant_readers: Annotated[
        bool,
        typer.Option(
            "--tolerant-readers",
            help="Readers of outputs ignore fields that they do not know: an added one is no break.",
        ),
    ] = False,
    packages: PackagesOption = None,
    as_json: AsJson = False,
    sources: SourceOptions,
) -> None:
    """Compare the contracts of two sources, and classify every change.

    A change is breaking, non-breaking or a patch; the highest of them is the suggested bump.
    Between FlowMCP files the rules of FlowMCP decide for the changes that they name.
    Exit code 1 on a breaking change, 2 if something could not be loaded.
    """
    if sources.source:
        fail("diff takes two references, OLD and NEW; leave out --source")
    folder = packages_folder(packages, sources.session().configuration)
    loaded = [contracts_of(sources, ref, folder) for ref in (old, new)]
    before, after = (each.catalog for each in loaded)
    compared = [before, after]
    if any(each.is_published for each in loaded):
        # What is not published, such as whether a key is there, is no change.
        compared = [published_form(each) for each in compared]
    found = contracts.diff_catalogs(*compared, tolerant=tolerant_readers)
    if contracts.is_flowmcp(before) and contracts.is_flowmcp(after):
        found = contracts.with_flowmcp_bumps(found, before, after)
    if as_json:
        print_json(_encoded(found), sys.stdout)
    else:
        print_diff(found)
    for ref, each in zip((old, new), loaded, strict=True):
        if not each.is_whole:
            fail(f"not everything of {ref} could be loaded; the comparison is incomplete")
    if found.is_breaking:
        raise typer.Exit(1)


def _encoded(found: CatalogDiff) -> dict[str, Any]:
    return {
        "bump": found.bump,
        "breaking": found.is_breaking,
        "rules": found.rules,
        "changes": [_encoded_change(change) for change in found.changes],
        "unproved": [
            {"tool": tool, "side": side, "reason": reason} for tool, side, reason in found.unproved
        ],
        "violations": list(found.violations),
    }


def _encoded_change(change: ContractChange) -> dict[str, Any]:
    form: dict[str, Any] = {
        "tool": change.tool,
        "side": change.side,
        "path": change.path,
        "change": change.words,
        "class": _CLASSES[change.bump],
        "bump": change.bump,
        "decided": change.decided,
    }
    if change.rule:
        form["rule"] = change.rule
    return {**form, "example": change.example[0]} if change.example else form


def print_diff(found: CatalogDiff) -> None:
    """Print every change by tool, and the suggested bump."""
    print_changes(found)
    if found.bump is None:
        out.print("no change")
        return
    breaking = sum(change.is_breaking for change in found.changes)
    total = f"{counted(len(found.changes), 'change')}, {breaking:,} breaking"
    out.print(f"{total}; suggested bump: {found.bump}{_applied(found)}", highlight=False)


def print_changes(found: CatalogDiff) -> None:
    """Print every change by tool, and what could not be proved."""
    tool = None
    for change in found.changes:
        if change.tool != tool:
            tool = change.tool
            out.print(f"[bold]{_shown(tool)}[/]", highlight=False)
        side = "" if change.side == "tool" else f"{change.side} {change.path}".rstrip() + ": "
        decided = f"FlowMCP: {change.rule}" if change.rule else _DECIDED[change.decided]
        note = f" ({decided})" if decided else ""
        kind = f"[{_STYLES[change.bump]}]{_CLASSES[change.bump]:<12}[/]"
        out.print(f"  {kind} {_shown(side + change.words + note)}", highlight=False, soft_wrap=True)
        if change.example:
            words = (
                "accepted before, refused now" if change.side == "input" else "possible only now"
            )
            value = json_text(change.example[0])
            out.print(f"               {words}: {_shown(value)}", highlight=False, soft_wrap=True)
    for name, side, reason in found.unproved:
        text = f"{name}: {side} could not be proved ({reason}); the table of changes decided"
        err.print(f"[yellow]note:[/] {_shown(text)}")
    for violation in found.violations:
        err.print(f"[yellow]warning:[/] {_shown(violation)}")


def _shown(text: str) -> str:
    """Untrusted text on one line, safe to print, with hidden characters made visible."""
    return plain(visible(text))


def _applied(found: CatalogDiff) -> str:
    """Whose rules were applied, if they are not ours alone."""
    if found.rules == "callpact":
        return ""
    others = sum(not change.rule for change in found.changes)
    more = f", and by the table for {counted(others, 'change')} that they do not name"
    return f", by FlowMCP's rules{more if others else ''}"
