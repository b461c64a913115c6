"""A folder of published packages, laid out as an OCI image layout, and its atomic updates.

Blobs are written first, each through a temporary file; `index.json` is replaced last, so that a
crash at any step leaves the former index or the new one. Published versions are never changed; a
mark in the index withdraws one, so that no range selects it. Members of the index that other tools
wrote stay.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from callpact.audit.journal.file_locks import hold, release, sync_folder
from callpact.contracts.packages.package_version import (
    PackageVersion,
    is_package_name,
    is_version,
    selected_version,
    version_of,
)
from callpact.errors import InvalidConfig, UsageError
from callpact.schema.hashing import canonical_json, data_digest

LAYOUT_VERSION = "1.0.0"
ARTIFACT_TYPE = "application/vnd.callpact.package.v1"
CONTRACTS_TYPE = "application/vnd.callpact.contracts.v1+json"
MAX_INDEX_BYTES = 16_000_000
"""Bytes of `index.json`."""
MAX_MANIFEST_BYTES = 1_000_000
"""Bytes of the manifest of one version."""
MAX_CONTRACTS_BYTES = 256_000_000
"""Bytes of the contracts of one version."""
LOCK_SECONDS = 10.0
"""Seconds to wait for another publisher."""
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_EMPTY = b"{}"
_TITLE = "org.opencontainers.image.title"
_VERSION = "org.opencontainers.image.version"
_CREATED = "org.opencontainers.image.created"
_REF = "org.opencontainers.image.ref.name"
_WITHDRAWN = "io.callpact.withdrawn"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TEMPORARY = ".temporary"
_PAUSE = 0.05


class Descriptor(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A reference to a blob."""

    media_type: str
    digest: str
    size: int
    artifact_type: str = ""
    annotations: dict[str, str] = {}

    @property
    def is_package(self) -> bool:
        """True for an entry of the index that is a version of a package."""
        return self.artifact_type == ARTIFACT_TYPE

    @property
    def withdrawn(self) -> str:
        """When the version was withdrawn; empty if it is offered."""
        return self.annotations.get(_WITHDRAWN, "")


class PackageIndex(Struct, frozen=True):
    """The content of `index.json`."""

    entries: tuple[Descriptor, ...] = ()
    document: dict[str, Any] = msgspec.field(
        default_factory=lambda: {"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": []}
    )
    """As it was read, with all members."""

    def versions(self, name: str) -> dict[PackageVersion, Descriptor]:
        """The published versions of a package."""
        found: dict[PackageVersion, Descriptor] = {}
        for each in self.entries:
            if each.is_package and each.annotations[_TITLE] == name:
                version = version_of(each.annotations[_VERSION])
                if version not in found or each.withdrawn:  # Other tools add further references.
                    found[version] = each
        return found

    def offered(self, name: str) -> dict[PackageVersion, Descriptor]:
        """The published versions of a package that are not withdrawn."""
        every = self.versions(name)
        return {each: entry for each, entry in every.items() if not entry.withdrawn}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all packages."""
        own = (each for each in self.entries if each.is_package)
        return tuple(sorted({each.annotations[_TITLE] for each in own}))


class _Manifest(Struct, frozen=True, rename="camel"):
    config: Descriptor
    layers: tuple[Descriptor, ...]
    annotations: dict[str, str] = {}
    artifact_type: str = ""
    schema_version: int = 2
    media_type: str = _MANIFEST_TYPE


class PublishedPackage(Struct, frozen=True):
    """One published version: its contracts as bytes, their digest, and when it was published."""

    name: str
    version: PackageVersion
    contracts: bytes
    digest: str
    created: str


class PackageStore:
    """The packages in a folder, which need not exist before the first version is published.

    All methods raise `InvalidConfig` for a folder that is damaged or of a newer layout.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read_index(self) -> PackageIndex:
        """The current index; empty if nothing was published."""
        layout, path = self.folder / "oci-layout", self.folder / "index.json"
        if not layout.exists() and not path.exists():
            return PackageIndex()
        found = self._decoded(layout, _read(layout, 10_000), dict[str, Any])
        if found.get("imageLayoutVersion") != LAYOUT_VERSION:
            raise InvalidConfig(
                f"{layout}: the layout is {str(found.get('imageLayoutVersion'))[:40]!r}, and this "
                f"callpact reads {LAYOUT_VERSION}"
            )
        if not path.exists():
            return PackageIndex()
        document = self._decoded(path, _read(path, MAX_INDEX_BYTES), dict[str, Any])
        try:
            listed = msgspec.convert(document.get("manifests"), tuple[Descriptor, ...])
        except (ValueError, RecursionError) as error:
            raise InvalidConfig(f"{path}: its manifests cannot be read: {error}") from None
        index = PackageIndex(tuple(map(self._named, listed)), document)
        digests: dict[tuple[str, str], str] = {}
        for each in index.entries:
            if not each.is_package:
                continue
            name, version = (each.annotations.get(key, "") for key in (_TITLE, _VERSION))
            if not is_package_name(name) or not is_version(version):
                raise InvalidConfig(f"{path}: an entry has no valid name and version")
            if digests.setdefault((name, version), each.digest) != each.digest:
                raise InvalidConfig(f"{path}: two manifests are {name}@{version}; remove one")
        return index

    def _named(self, entry: Descriptor) -> Descriptor:
        """An entry with the name and version of its manifest: tools that copy images drop them."""
        is_named = {_TITLE, _VERSION} <= entry.annotations.keys()
        may_be_package = entry.artifact_type in {"", ARTIFACT_TYPE}
        if (entry.is_package and is_named) or not may_be_package:
            return entry
        try:
            data = self._blob(entry, MAX_MANIFEST_BYTES)
            manifest = msgspec.json.decode(data, type=_Manifest)
        except (InvalidConfig, ValueError, RecursionError):  # Of another tool.
            return entry
        if manifest.artifact_type != ARTIFACT_TYPE:
            return entry
        return msgspec.structs.replace(
            entry,
            artifact_type=ARTIFACT_TYPE,
            annotations={**manifest.annotations, **entry.annotations},
        )

    def resolve(self, name: str, wanted: str = "latest") -> PublishedPackage:
        """The newest version of a package in a range; a withdrawn one only by its exact version.

        Raises:
            UsageError: there is none.
        """
        index = self.read_index()
        versions = index.versions(name) if is_version(wanted) else index.offered(name)
        version = selected_version(wanted, versions)
        if version is None:
            known = ", ".join(map(str, sorted(versions))) or "no version"
            raise UsageError(f"{self.folder}: no {name}@{wanted} is published; there is {known}")
        return self.read(name, version, versions[version])

    def read(self, name: str, version: PackageVersion, entry: Descriptor) -> PublishedPackage:
        """A published version, after its digests were checked."""
        data = self._blob(entry, MAX_MANIFEST_BYTES)
        manifest = self._decoded(self._place(entry.digest), data, _Manifest)
        layers = [each for each in manifest.layers if each.media_type == CONTRACTS_TYPE]
        named = manifest.annotations.get(_TITLE), manifest.annotations.get(_VERSION)
        if len(layers) != 1 or named != (name, str(version)):
            raise InvalidConfig(
                f"{self._place(entry.digest)}: this is no manifest of {name}@{version}"
            )
        contracts = self._blob(layers[0], MAX_CONTRACTS_BYTES)
        created = manifest.annotations.get(_CREATED, "")
        return PublishedPackage(name, version, contracts, layers[0].digest, created)

    def publish(
        self,
        name: str,
        version: PackageVersion,
        contracts: bytes,
        *,
        newest: PackageVersion | None,
        created: str,
        files: Callable[[], Mapping[Path, bytes]] = dict,
    ) -> bool:
        """Publish a version after the one that was the newest; False if it has the same contracts.

        `files` returns other new files of the folder, by their paths in it; it is called while
        the folder is locked, and they are written before the version is listed.

        Raises:
            UsageError: the version has other contracts, or the newest version is another by now.
        """
        if len(contracts) > MAX_CONTRACTS_BYTES:
            raise InvalidConfig(f"the contracts have more than {MAX_CONTRACTS_BYTES:,} bytes")
        with self._locked():
            index = self.read_index()
            entry = index.versions(name).get(version)
            if entry is not None and self.read(name, version, entry).contracts == contracts:
                return False
            now = max(index.offered(name), default=None)
            if now != newest:
                raise UsageError(
                    f"somebody else published or withdrew a version at the same time: the newest "
                    f"one of {name} is {now}; nothing was written. Run the command again"
                )
            if entry is not None:
                raise UsageError(
                    f"{name}@{version} is published with other contracts; it never changes"
                )
            for path, data in files().items():
                self._make_folder(path.parent)
                self._replace(self.folder / path, data)
            if not (self.folder / "oci-layout").exists():
                layout = canonical_json({"imageLayoutVersion": LAYOUT_VERSION}).encode()
                self._replace(self.folder / "oci-layout", layout)
            layer = self._write(CONTRACTS_TYPE, contracts)
            config = self._write(_EMPTY_TYPE, _EMPTY)
            about = {_TITLE: name, _VERSION: str(version), _CREATED: created}
            manifest = _Manifest(config, (layer,), about, ARTIFACT_TYPE)
            entry = msgspec.structs.replace(
                self._write(_MANIFEST_TYPE, _encoded(manifest)),
                artifact_type=ARTIFACT_TYPE,
                annotations={**about, _REF: f"{name}-{version}"},
            )
            self._replace_index(index, [*index.document["manifests"], entry])
            return True

    def roll_back(
        self, name: str, version: PackageVersion, *, at: str
    ) -> tuple[PackageVersion, ...]:
        """Withdraw all versions after this one, and offer this one again; returns the withdrawn.

        Raises:
            UsageError: the version is not published.
        """
        with self._locked():
            index = self.read_index()
            versions = index.versions(name)
            if version not in versions:
                known = ", ".join(map(str, sorted(versions))) or "no version"
                raise UsageError(
                    f"{self.folder}: no {name}@{version} is published; there is {known}"
                )
            later = tuple(sorted(each for each in index.offered(name) if each > version))
            if not later and not versions[version].withdrawn:
                return ()
            marks = {versions[each].digest: {_WITHDRAWN: at} for each in later}
            marks[versions[version].digest] = {}
            manifests = [
                {**written, "annotations": {**_unmarked(entry), **marks[entry.digest]}}
                if entry.digest in marks
                else written
                for written, entry in zip(index.document["manifests"], index.entries, strict=True)
            ]
            self._replace_index(index, manifests)
            return later

    # --- files ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        """Make the folder, and hold its lock; an error of the system becomes `InvalidConfig`."""
        try:
            self._make_folder(Path("blobs", "sha256"))
            fd = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
            try:
                deadline = time.monotonic() + LOCK_SECONDS
                while not hold(fd):
                    if time.monotonic() > deadline:
                        raise UsageError(f"{self.folder} is locked by another publisher; try again")
                    time.sleep(_PAUSE)
                try:
                    yield
                finally:
                    (self.folder / _TEMPORARY).unlink(missing_ok=True)
            finally:
                release(fd)
        except OSError as error:
            raise InvalidConfig(
                f"{self.folder} cannot be written: {error.strerror or error}"
            ) from None

    def _make_folder(self, path: Path) -> None:
        (self.folder / path).mkdir(parents=True, exist_ok=True)
        for parent in path.parents:
            sync_folder(self.folder / parent)

    def _write(self, media_type: str, data: bytes) -> Descriptor:
        digest = data_digest(data)
        path = self._place(digest)
        # A damaged blob of a crashed machine is written again.
        if not path.is_file() or path.read_bytes() != data:
            self._replace(path, data)
        return Descriptor(media_type, digest, len(data))

    def _replace_index(self, index: PackageIndex, manifests: list[Any]) -> None:
        whole = {**index.document, "manifests": manifests}
        self._replace(self.folder / "index.json", _encoded(whole))

    def _replace(self, path: Path, data: bytes) -> None:
        temporary = self.folder / _TEMPORARY
        temporary.unlink(missing_ok=True)  # Of a publisher that crashed.
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)

    def _place(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise InvalidConfig(f"{self.folder}: {digest[:80]!r} is not a SHA-256 digest")
        return self.folder / "blobs" / "sha256" / digest.partition(":")[2]

    def _blob(self, entry: Descriptor, most: int) -> bytes:
        path = self._place(entry.digest)
        data = _read(path, most)
        if data_digest(data) != entry.digest or len(data) != entry.size:
            raise InvalidConfig(f"{path}: the content does not have this digest")
        return data

    @staticmethod
    def _decoded(path: Path, data: bytes, kind: Any) -> Any:
        try:
            return msgspec.json.decode(data, type=kind)
        except (ValueError, RecursionError) as error:
            raise InvalidConfig(f"{path} cannot be read: {error}") from None


def _unmarked(entry: Descriptor) -> dict[str, str]:
    return {name: text for name, text in entry.annotations.items() if name != _WITHDRAWN}


def _encoded(value: Any) -> bytes:
    return canonical_json(msgspec.to_builtins(value)).encode()


def _read(path: Path, most: int) -> bytes:
    try:
        if not path.is_file():
            raise InvalidConfig(f"{path} is missing")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > most:
        raise InvalidConfig(f"{path} has more than {most:,} bytes")
    return data
