"""References to published contracts on the command line: `shop@^1`, or a folder of packages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callpact.cli.output import counted, fail
from callpact.cli.tool_commands import catalog_of
from callpact.contracts.package_form import catalog_of_contracts
from callpact.contracts.package_store import PackageStore, PublishedPackage
from callpact.contracts.package_version import is_package_name

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.cli.options import SourceOptions

DEFAULT_PACKAGES = Path("contracts")
PackagesOption = Annotated[
    Path, typer.Option("--packages", help="The folder of published packages.", metavar="DIR")
]


def contracts_of(sources: SourceOptions, ref: str, packages: Path) -> Catalog:
    """The contracts of a source, of a running server, or of a published version."""
    published = published_of(ref, packages)
    if published is None:
        return catalog_of(sources, ref)
    return catalog_of_contracts(published.contracts)


def published_of(ref: str, packages: Path) -> PublishedPackage | None:
    """The version of `NAME@RANGE`, or the newest one of a folder with one package; else None."""
    folder = Path(ref)
    if (folder / "oci-layout").is_file():
        store = PackageStore(folder)
        names = store.read_index().names
        if len(names) != 1:
            fail(f"{ref} has {counted(len(names), 'package')}; write NAME@VERSION --packages {ref}")
        return store.resolve(names[0])
    name, at, wanted = ref.partition("@")
    if not at or not is_package_name(name) or folder.exists():
        return None
    return PackageStore(packages).resolve(name, wanted)
