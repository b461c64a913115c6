"""`callpact diff`: the changes between two catalogs, and whether they are breaking."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callpact.cli.options import AsJson, SourceOptions, takes_sources
from callpact.cli.output import counted, err, fail, out, plain, print_json
from callpact.cli.tool_commands import at_server, is_address
from callpact.contracts import CatalogDiff, ContractChange, diff_catalogs
from callpact.schema.json_text import json_text

if TYPE_CHECKING:
    from callpact.catalog import Catalog

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
        typer.Argument(metavar="OLD", help="A file, folder, other reference, or server's address."),
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same for the new contracts.")],
    tolerant_readers: Annotated[
        bool,
        typer.Option(
            "--tolerant-readers",
            help="Readers of outputs ignore fields that they do not know: an added one is no break.",
        ),
    ] = False,
    as_json: AsJson = False,
    sources: SourceOptions,
) -> None:
    """Compare the contracts of two sources, and classify every change.

    A change is breaking, non-breaking or a patch; the highest of them is the suggested bump.
    Exit code 1 on a breaking change.
    """
    if sources.source:
        fail("diff takes two references, OLD and NEW; leave out --source")
    found = diff_catalogs(_catalog(sources, old), _catalog(sources, new), tolerant=tolerant_readers)
    if as_json:
        print_json(_encoded(found), sys.stdout)
    else:
        _print(found)
    if found.is_breaking:
        raise typer.Exit(1)


def _catalog(sources: SourceOptions, ref: str) -> Catalog:
    if is_address(ref) and not ref.endswith((".json", ".yaml", ".yml")):
        sources = at_server(sources, ref)
        return sources.look(sources.session())
    return sources.look(sources.session(), (ref,))


def _encoded(found: CatalogDiff) -> dict[str, Any]:
    return {
        "bump": found.bump,
        "breaking": found.is_breaking,
        "changes": [_encoded_change(change) for change in found.changes],
        "unproved": [
            {"tool": tool, "side": side, "reason": reason} for tool, side, reason in found.unproved
        ],
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
    return {**form, "example": change.example[0]} if change.example else form


def _print(found: CatalogDiff) -> None:
    tool = None
    for change in found.changes:
        if change.tool != tool:
            tool = change.tool
            out.print(f"[bold]{plain(tool)}[/]", highlight=False)
        side = "" if change.side == "tool" else f"{change.side} {change.path}".rstrip() + ": "
        decided = _DECIDED[change.decided]
        note = f" ({decided})" if decided else ""
        kind = f"[{_STYLES[change.bump]}]{_CLASSES[change.bump]:<12}[/]"
        out.print(f"  {kind} {plain(side + change.words + note)}", highlight=False, soft_wrap=True)
        if change.example:
            words = (
                "accepted before, refused now" if change.side == "input" else "possible only now"
            )
            value = json_text(change.example[0])
            out.print(f"               {words}: {plain(value)}", highlight=False, soft_wrap=True)
    for name, side, reason in found.unproved:
        text = f"{name}: {side} could not be proved ({reason}); the table of changes decided"
        err.print(f"[yellow]note:[/] {plain(text)}")
    if found.bump is None:
        out.print("no change")
        return
    breaking = sum(change.is_breaking for change in found.changes)
    total = f"{counted(len(found.changes), 'change')}, {breaking:,} breaking"
    out.print(f"{total}; suggested bump: {found.bump}", highlight=False)
