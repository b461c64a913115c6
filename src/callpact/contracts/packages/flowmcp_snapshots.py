"""Snapshots of published FlowMCP files (seed 002): their exact bytes, named by hash and version.

They are kept in `grading-data/schemas/<namespace>/<hash>--v<X.Y.Z>.mjs` of a folder of packages. A
snapshot never changes, and a file has one for each `schemaVersion`. Files are read as data, and
nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from callpact.catalog import Catalog
from callpact.contracts.flowmcp_bumps import FLOWMCP_KIND
from callpact.contracts.packages.package_form import catalog_of_contracts
from callpact.errors import InvalidConfig, InvalidManifest, InvalidSchema, UsageError
from callpact.schema import schema_hash
from callpact.schema.hashing import data_digest
from callpact.sources.flowmcp.read.catalogue_files import as_text, read_data
from callpact.sources.flowmcp.read.exports import read_schema_file
from callpact.sources.flowmcp.read.hit import KEBAB, SEMVER

if TYPE_CHECKING:
    from callpact.contracts.packages.package_store import PublishedPackage

SNAPSHOTS = Path("grading-data", "schemas")
"""The folder of snapshots in a folder of packages."""
MAX_SNAPSHOT_NAMESPACE = 200
"""Characters of the namespace of a published FlowMCP file; it becomes the name of a folder."""
_RESTORE = "restore this snapshot from version control"


class FileSnapshot(Struct, frozen=True):
    """A FlowMCP file as it is published, or was."""

    file: Path
    namespace: str
    name: str
    version: str
    """Its `schemaVersion`; empty if it declares none, and then it has no snapshot."""
    hash: str
    """The hash of `main` as it is, whatever its `schemaHash` says."""
    data: bytes
    code: str
    """The part of the text from the hooks on."""

    @property
    def path(self) -> Path:
        """The place of the snapshot in a folder of packages."""
        return SNAPSHOTS / self.namespace / f"{self.hash}--v{self.version}.mjs"


def read_snapshots(catalog: Catalog) -> tuple[FileSnapshot, ...]:
    """The FlowMCP files that the tools of a catalog were read from.

    Raises:
        InvalidConfig: a file cannot be read any more, or its names cannot be those of a snapshot.
    """
    files = {
        tool.source.removeprefix(FLOWMCP_KIND): None
        for tool in catalog
        if tool.source.startswith(FLOWMCP_KIND)
    }
    return tuple(_read(Path(file)) for file in files)


def new_snapshots(snapshots: Iterable[FileSnapshot], folder: Path) -> dict[Path, bytes]:
    """The snapshots that a folder of packages does not have yet, by their places in it.

    Raises:
        UsageError: a file changed, and its `schemaVersion` was not raised.
        InvalidConfig: a snapshot in the folder is damaged, or cannot be read.
    """
    new: dict[Path, FileSnapshot] = {}
    kept: dict[tuple[str, str], list[FileSnapshot]] = {}
    errors: list[str] = []
    for each in snapshots:
        if not each.version:
            continue
        place = each.namespace, each.version
        if place not in kept:
            kept[place] = [*_kept(folder, *place)]
        old = [other for other in kept[place] if _is_same_version(each, other)]
        twins = [other for other in new.values() if _is_same_version(each, other)]
        errors += (_changed(each, other) for other in old if other.data != each.data)
        errors += (_twice(each, other) for other in twins if other.data != each.data)
        if not old and not twins:
            new[each.path] = each
    if errors:
        raise UsageError("\n".join(errors))
    return {path: each.data for path, each in new.items()}


def published_catalog(package: PublishedPackage, folder: Path) -> Catalog:
    """A catalog of published contracts; the sources of FlowMCP tools are their snapshots.

    A tool whose file has no snapshot keeps the digest of the file as its source.

    Raises:
        InvalidConfig: the data are no published contracts.
    """
    catalog = catalog_of_contracts(package.contracts)
    versions = {tool.version for tool in catalog if tool.source.startswith(FLOWMCP_KIND)}
    found: dict[str, str] = {}
    for path in (folder / SNAPSHOTS).glob("*/*--v*.mjs") if versions else ():
        if path.stem.partition("--v")[2] in versions:
            found[f"{FLOWMCP_KIND}{data_digest(_data(path))}"] = f"{FLOWMCP_KIND}{path}"
    return Catalog(
        (replace(tool, source=found.get(tool.source, tool.source)) for tool in catalog),
        resources=catalog.resources,
        prompts=catalog.prompts,
    )


# --- files ----------------------------------------------------------------------------------


def _read(file: Path) -> FileSnapshot:
    data = _data(file)
    try:
        text = as_text(data)
        reading = read_schema_file(text)
        hashed = schema_hash(reading.data or {})
    except (InvalidManifest, InvalidSchema) as error:
        raise InvalidConfig(f"{file} cannot be read: {error}") from None
    main = reading.data
    if main is None:
        raise InvalidConfig(f"{file} cannot be read: it has no `main`")
    namespace, version = main.get("namespace"), main.get("schemaVersion", "")
    # Both become parts of a path: nothing of it may lead out of the folder.
    if (
        not isinstance(namespace, str)
        or len(namespace) > MAX_SNAPSHOT_NAMESPACE
        or not KEBAB.match(namespace)
    ):
        raise InvalidConfig(
            f"{file}: the namespace must be at most {MAX_SNAPSHOT_NAMESPACE} lower-case letters, "
            "digits and hyphens"
        )
    if not isinstance(version, str) or (version and not SEMVER.match(version)):
        raise InvalidConfig(f"{file}: schemaVersion must be x.y.z")
    code = "" if reading.handlers is None else text[reading.handlers :]
    return FileSnapshot(file, namespace, str(main.get("name")), version, hashed, data, code)


def _data(file: Path) -> bytes:
    try:
        return read_data(file)
    except InvalidManifest as error:
        raise InvalidConfig(f"{file}: {error}") from None


def _kept(folder: Path, namespace: str, version: str) -> Iterator[FileSnapshot]:
    """The snapshots of a namespace and version in a folder of packages."""
    place = folder / SNAPSHOTS / namespace
    try:
        files = sorted(place.glob(f"*--v{version}.mjs")) if place.is_dir() else []
    except OSError as error:
        raise InvalidConfig(f"{place} cannot be read: {error.strerror or error}") from None
    for file in files:
        try:
            found = _read(file)
        except InvalidConfig as error:
            raise InvalidConfig(f"{error}; {_RESTORE}") from None
        if folder / found.path != file:
            raise InvalidConfig(
                f"{file}: its content is that of {found.path.name} in {found.namespace}; {_RESTORE}"
            )
        yield found


# --- conflicts ------------------------------------------------------------------------------


def _is_same_version(one: FileSnapshot, other: FileSnapshot) -> bool:
    """True for one version of one file; several files share a namespace."""
    if one.path == other.path:
        return True
    places = [(each.namespace, each.name, each.version) for each in (one, other)]
    return places[0] == places[1]


def _changed(new: FileSnapshot, old: FileSnapshot) -> str:
    if new.hash != old.hash:
        what = "its content changed"
    elif new.code != old.code:
        what = "the code of its hooks changed"
    else:
        what = "its text (not its data) changed"
    return (
        f"{new.file}: {what} since {old.file} was published, and schemaVersion is still "
        f"{new.version}; raise schemaVersion"
    )


def _twice(new: FileSnapshot, other: FileSnapshot) -> str:
    label = f"{new.namespace}/{new.name} {new.version}"
    return f"{new.file}: {other.file} is {label} too, with other content; rename one of them"
