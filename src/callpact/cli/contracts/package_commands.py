"""`callpact packages`: the published versions of contracts, and the way back to a former one."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from callpact.cli.options import AsJson, ConfigFile, PackagesOption, packages_folder
from callpact.cli.output import TableRow, err, fail, out, plain, print_json, print_table
from callpact.config import configuration_of
from callpact.contracts.packages.package_store import PackageStore
from callpact.contracts.packages.package_version import checked_name, version_of

packages = typer.Typer(
    help="Published versions of contracts.", no_args_is_help=True, rich_markup_mode="markdown"
)


@packages.command("list")
def list_packages(
    *,
    name: Annotated[str | None, typer.Argument(help="Only this package.")] = None,
    folder: PackagesOption = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """List the published versions, the newest first; ranges do not select withdrawn ones."""
    store = PackageStore(packages_folder(folder, configuration_of((), config)))
    index = store.read_index()
    if name is not None and name not in index.names:
        fail(
            f"{store.folder}: there is no package '{name}'; there is {', '.join(index.names) or 'none'}"
        )
    found = [
        (each, version, store.read(each, version, entry), entry.withdrawn)
        for each in index.names
        if name in {None, each}
        for version, entry in sorted(index.versions(each).items(), reverse=True)
    ]
    if as_json:
        forms = [
            {
                "name": package,
                "version": str(version),
                "published": read.created,
                "digest": read.digest,
                "withdrawn": withdrawn or None,
            }
            for package, version, read, withdrawn in found
        ]
        print_json(forms, sys.stdout)
        return
    if not found:
        err.print(f"no packages in {plain(str(store.folder))}; `callpact publish` makes one")
        return
    rows = [
        TableRow(
            (f"{package}@{version}", read.created, read.digest[:19], _state(withdrawn)),
            style="dim" if withdrawn else "",
        )
        for package, version, read, withdrawn in found
    ]
    print_table(rows, ("PACKAGE", "PUBLISHED", "CONTRACTS", "STATE"))


def _state(withdrawn: str) -> str:
    return f"withdrawn {withdrawn}" if withdrawn else "offered"


@packages.command("rollback")
def rollback(
    *,
    package: Annotated[
        str, typer.Argument(metavar="NAME@VERSION", help="The version to go back to.")
    ],
    folder: PackagesOption = None,
    config: ConfigFile = None,
) -> None:
    """Withdraw all versions after this one, so that servers of a range serve it within a second.

    Nothing is deleted: a withdrawn version can still be named exactly, and a rollback to it offers
    it again. The next `callpact publish` takes a new number.
    """
    name, at, wanted = package.partition("@")
    if not at:
        fail(f"a version is NAME@VERSION, as in shop@1.2.0, got '{package}'")
    store = PackageStore(packages_folder(folder, configuration_of((), config)))
    version = version_of(wanted)
    checked_name(name)
    if name not in store.read_index().names:
        fail(f"{store.folder}: there is no package '{name}'")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    withdrawn = store.roll_back(name, version, at=now)
    for each in withdrawn:
        out.print(f"{name}@{each}: withdrawn", highlight=False)
    out.print(f"{name}@{version}: offered", highlight=False)
