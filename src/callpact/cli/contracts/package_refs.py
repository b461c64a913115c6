"""References to published contracts on the command line: `shop@^1`, or a folder of packages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from callpact.cli.output import counted, fail
from callpact.cli.tool_commands import session_of
from callpact.contracts.packages.flowmcp_snapshots import published_catalog
from callpact.contracts.packages.package_store import PackageStore
from callpact.contracts.packages.package_version import is_package_name

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.cli.options import SourceOptions


@dataclass(frozen=True, slots=True)
class LoadedContracts:
    """The contracts of a reference; `is_whole` if they are all that it declares."""

    catalog: Catalog
    is_whole: bool = True
    is_published: bool = False


def contracts_of(sources: SourceOptions, ref: str, packages: Path) -> LoadedContracts:
    """The contracts of a source, of a running server, or of a published version."""
    published = published_of(ref, packages)
    if published is not None:
        return LoadedContracts(published, is_published=True)
    session = session_of(sources, ref)
    is_whole = not any(finding.is_failure for finding in session.loaded.report)
    return LoadedContracts(session.catalog, is_whole)


def published_of(ref: str, packages: Path) -> Catalog | None:
    """The contracts of `NAME@RANGE`, or the newest ones of a folder with one package; else None."""
    folder = Path(ref)
    name, at, wanted = ref.partition("@")
    if (folder / "oci-layout").is_file():
        store, wanted = PackageStore(folder), "latest"
        names = store.read_index().names
        if len(names) != 1:
            fail(f"{ref} has {counted(len(names), 'package')}; write NAME@VERSION --packages {ref}")
        name = names[0]
    elif at and is_package_name(name) and not folder.exists():
        store = PackageStore(packages)
    else:
        return None
    return published_catalog(store.resolve(name, wanted), store.folder)
