"""`callpact publish`: an immutable version of the contracts of all tools, in a folder."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from callpact.cli.clients.client_table import server_name
from callpact.cli.contracts.diff_command import print_diff
from callpact.cli.options import PackagesOption, SourceOptions, packages_folder, takes_sources
from callpact.cli.output import counted, err, fail, out, plain
from callpact.contracts.diff import Bump, diff_catalogs
from callpact.contracts.flowmcp_bumps import is_flowmcp, with_flowmcp_bumps
from callpact.contracts.packages.flowmcp_snapshots import (
    new_snapshots,
    published_catalog,
    read_snapshots,
)
from callpact.contracts.packages.package_form import (
    catalog_of_contracts,
    encode_contracts,
    published_contracts,
)
from callpact.contracts.packages.package_store import PackageStore, PublishedPackage
from callpact.contracts.packages.package_version import (
    FIRST,
    PackageVersion,
    checked_name,
    version_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from callpact.app import Session
    from callpact.catalog import Catalog

_RANKS = ("patch", "minor", "major")


class BumpName(StrEnum):
    """How the next version is chosen."""

    auto = "auto"
    major = "major"
    minor = "minor"
    patch = "patch"


@takes_sources
def publish(
    *,
    bump: Annotated[
        BumpName,
        typer.Option("--bump", help="The step of the version; `auto` takes the suggested one."),
    ] = BumpName.auto,
    version: Annotated[
        str | None,
        typer.Option("--version", help="The version itself, instead of --bump.", metavar="X.Y.Z"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="The name of the package. [default: the configured server's, else the folder's]",
        ),
    ] = None,
    packages: PackagesOption = None,
    tolerant_readers: Annotated[
        bool,
        typer.Option(
            "--tolerant-readers",
            help="Readers of outputs ignore fields that they do not know: an added one is no break.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes and the version; write nothing.")
    ] = False,
    sources: SourceOptions,
) -> None:
    """Publish the contracts of all tools as an immutable version.

    The first version is 1.0.0. Contracts that are published already are not published again, and
    a smaller step than the changes need is refused. The folder is an OCI image layout; FlowMCP
    files are kept in it too, one snapshot for each `schemaVersion`.
    """
    session = sources.session()
    label = checked_name(_default_name(session) if name is None else name)
    store = PackageStore(packages_folder(packages, session.configuration))
    newest = _newest(store, label)
    catalog = sources.look(session)
    if any(finding.is_failure for finding in session.loaded.report):
        fail("not every source could be loaded; nothing was published")
    contracts = encode_contracts(published_contracts(catalog, session.configuration.folder))
    if newest is not None and newest.contracts == contracts and version is None:
        out.print(f"{label}@{newest.version}: as published", highlight=False)
        return
    wanted = None if version is None else version_of(version)
    chosen = _version(
        store,
        newest,
        contracts,
        bump,
        wanted,
        catalog=catalog,
        name=label,
        tolerant=tolerant_readers,
    )
    files = read_snapshots(catalog)
    new = new_snapshots(files, store.folder)
    _warn_of_unversioned([each.file for each in files if not each.version])
    many = _many(catalog)
    if dry_run:
        for path in new:
            out.print(f"{plain(str(store.folder / path))} would be written", highlight=False)
        out.print(f"{label}@{chosen}: {many} would be published", highlight=False)
        return
    is_new = store.publish(
        label,
        chosen,
        contracts,
        newest=None if newest is None else newest.version,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        files=lambda: new_snapshots(files, store.folder),
    )
    if new:
        out.print(f"{counted(len(new), 'snapshot')} of FlowMCP files written", highlight=False)
    done = f"{many} published" if is_new else "as published"
    out.print(f"{label}@{chosen}: {done}", highlight=False)


def _default_name(session: Session) -> str:
    named = server_name(None, session.config.serve.name, session.configuration.folder).lower()
    return re.sub(r"[^a-z0-9]+", "-", named).strip("-") or "callpact"


def _newest(store: PackageStore, name: str) -> PublishedPackage | None:
    return store.resolve(name) if store.read_index().offered(name) else None


def _many(catalog: Catalog) -> str:
    return counted(len(catalog) + len(catalog.resources) + len(catalog.prompts), "contract")


def _warn_of_unversioned(files: list[Path]) -> None:
    if files:
        names = ", ".join(str(each) for each in files[:3]) + (", …" if len(files) > 3 else "")
        text = f"no snapshot of {counted(len(files), 'file')} without schemaVersion: {names}"
        err.print(f"[yellow]warning:[/] {plain(text)}; `callpact check --fix` writes it")


def _version(
    store: PackageStore,
    newest: PublishedPackage | None,
    contracts: bytes,
    bump: BumpName,
    wanted: PackageVersion | None,
    *,
    catalog: Catalog,
    name: str,
    tolerant: bool,
) -> PackageVersion:
    """The version to publish, after a check that its step is large enough."""
    if newest is None:
        return wanted or FIRST
    published = store.read_index().versions(name)
    if wanted is not None and (entry := published.get(wanted)) is not None:
        if store.read(name, wanted, entry).contracts != contracts:
            fail(f"{name}@{wanted} is published with other contracts; it never changes")
        return wanted
    before = published_catalog(newest, store.folder)
    found = diff_catalogs(before, catalog_of_contracts(contracts), tolerant=tolerant)
    if is_flowmcp(before) and is_flowmcp(catalog):
        found = with_flowmcp_bumps(found, before, catalog)
    print_diff(found)
    needed: Bump = found.bump or "patch"
    if wanted is not None and wanted <= newest.version:
        fail(f"{wanted} is not above {newest.version}, the newest version of {name}")
    step = needed if bump is BumpName.auto else bump.value
    chosen = newest.version.bumped(step) if wanted is None else wanted
    while wanted is None and chosen in published:  # Withdrawn versions keep their numbers.
        chosen = chosen.bumped(step)
    given = chosen.bump_from(newest.version)
    if _RANKS.index(given) < _RANKS.index(needed):
        fail(f"the changes since {newest.version} need a {needed} step, and {chosen} is {given}")
    return chosen
