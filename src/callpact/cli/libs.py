"""`callpact libs`: add, list and remove packs of libraries for hooks.

The work is done in `callpact.sandbox.packs`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from callpact.cli.options import AsJson
from callpact.cli.output import TableRow, err, plain, print_json, print_table
from callpact.sandbox.packs.bundler import LibraryRefused, find_npm, kept, parse, workshop
from callpact.sandbox.packs.library import Pack, PackRefused, drop, installed, user_packs

libs = typer.Typer(help="Libraries for the hooks of FlowMCP files.", no_args_is_help=True)


@libs.command("add")
def add_by_name(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="As on npm; `NAME@VERSION` for a version.")
    ],
) -> None:
    """Build libraries from npm for hooks, pinned by hash; none of their code runs outside the sandbox."""
    if not add_libraries(names, user_packs()):
        raise typer.Exit(1)


@libs.command("list")
def list_all(*, as_json: AsJson = False) -> None:
    """List the libraries that hooks can use."""
    list_libraries(user_packs(), as_json=as_json)


@libs.command("remove")
def remove_by_name(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="As `libs list` has it.")],
) -> None:
    """Remove libraries."""
    if not remove_libraries(names, user_packs()):
        raise typer.Exit(1)


def add_libraries(specs: Iterable[str], directory: Path) -> bool:
    """Build a pack for each `NAME` or `NAME@VERSION` and print the outcomes; True if all were built.

    Raises:
        UsageError: a name is malformed, or npm is missing.
        LibraryRefused: the bundler itself cannot be installed.
        PackRefused: the directory cannot be used.
    """
    every = [parse(spec) for spec in specs]
    installed(directory)
    is_complete = True
    with workshop(find_npm()) as shop:
        for wanted in every:
            err.print(f"building {plain(wanted.name)} …", style="dim")
            try:
                built = shop.build(wanted)
                shop.try_out(built)
                pack = kept(built, directory)
            except (LibraryRefused, PackRefused) as error:
                err.print(f"[red]refused:[/] {plain(str(error))}")
                is_complete = False
                continue
            less = f"; it does without {', '.join(built.left_out)}" if built.left_out else ""
            err.print(
                f"[green]added[/] {plain(f'{pack.name} {pack.version}, {_size(pack)}{less}')}"
            )
    return is_complete


def list_libraries(directory: Path, *, as_json: bool) -> None:
    """Print the installed packs.

    Raises:
        PackRefused: the directory cannot be used.
    """
    packs = installed(directory).values()
    if as_json:
        print_json([_encode(pack) for pack in packs], sys.stdout)
        return
    if not packs:
        err.print(f"no packs in {plain(str(directory))}; `callpact libs add NAME` builds one")
        return
    rows = [
        TableRow((pack.name, pack.version, _size(pack), pack.sha256[:12], pack.built))
        for pack in packs
    ]
    print_table(rows, ("LIBRARY", "VERSION", "SIZE", "SHA256", "BUILT"))


def remove_libraries(names: Iterable[str], directory: Path) -> bool:
    """Remove the packs of these names; True if all existed.

    Raises:
        PackRefused: the directory cannot be used.
    """
    is_complete = True
    for name in names:
        pack = drop(directory, name)
        if pack is None:
            err.print(
                f"[red]error:[/] there is no pack of '{plain(name)}'; `callpact libs list` shows all"
            )
            is_complete = False
        else:
            err.print(f"removed {plain(pack.name)} {pack.version}")
    return is_complete


def _size(pack: Pack) -> str:
    return f"{max(1, round(pack.size / 1000)):,} kB"


def _encode(pack: Pack) -> dict[str, Any]:
    return {
        "name": pack.name,
        "version": pack.version,
        "sha256": pack.sha256,
        "size": pack.size,
        "file": str(pack.path),
        "esbuild": pack.esbuild,
        "integrity": pack.integrity,
        "built": pack.built,
    }
