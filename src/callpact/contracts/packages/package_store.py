"""A folder of published packages, laid out as an OCI image layout, and its atomic updates.

Blobs are written first, each through a temporary file; `index.json` is replaced last, so that a
crash at any step leaves the former index or the new one. Published versions are never changed; a
mark in the index withdraws one, so that no range selects it.
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
_TEMPORARY = ".temporary-"
_PAUSE = 0.05

OnStep = Callable[[str], None]


class Descriptor(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A reference to a blob."""

    media_type: str
    digest: str
    size: int
    artifact_type: str = ""
    annotations: dict[str, str] = {}

    @property
    def created(self) -> str:
        """When the version was published, of an entry of the index."""
        return self.annotations.get(_CREATED, "")

    @property
    def withdrawn(self) -> str:
        """When the version was withdrawn; empty if it is offered."""
        return self.annotations.get(_WITHDRAWN, "")


class PackageIndex(Struct, frozen=True, rename="camel"):
    """The content of `index.json`."""

    manifests: tuple[Descriptor, ...] = ()
    schema_version: int = 2
    media_type: str = _INDEX_TYPE

    def versions(self, name: str) -> dict[PackageVersion, Descriptor]:
        """The published versions of a package."""
        return {
            version_of(each.annotations[_VERSION]): each
            for each in self.manifests
            if each.artifact_type == ARTIFACT_TYPE and each.annotations[_TITLE] == name
        }

    def offered(self, name: str) -> dict[PackageVersion, Descriptor]:
        """The published versions of a package that are not withdrawn."""
        every = self.versions(name)
        return {each: entry for each, entry in every.items() if not entry.withdrawn}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all packages."""
        own = (each for each in self.manifests if each.artifact_type == ARTIFACT_TYPE)
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
        if not path.exists():
            return PackageIndex()
        found = self._decoded(layout, _read(layout, 10_000), dict[str, Any])
        if found.get("imageLayoutVersion") != LAYOUT_VERSION:
            raise InvalidConfig(
                f"{layout}: the layout is {str(found.get('imageLayoutVersion'))[:40]!r}, and this "
                f"callpact reads {LAYOUT_VERSION}"
            )
        index = self._decoded(path, _read(path, MAX_INDEX_BYTES), PackageIndex)
        index = msgspec.structs.replace(index, manifests=tuple(map(self._named, index.manifests)))
        seen: set[tuple[str, str]] = set()
        for each in index.manifests:
            if each.artifact_type != ARTIFACT_TYPE:
                continue
            name, version = each.annotations.get(_TITLE), each.annotations.get(_VERSION)
            if not is_package_name(name) or not is_version(version):
                raise InvalidConfig(f"{path}: an entry has no valid name and version")
            if (str(name), str(version)) in seen:
                raise InvalidConfig(f"{path}: {name}@{version} is there twice")
            seen.add((str(name), str(version)))
        return index

    def _named(self, entry: Descriptor) -> Descriptor:
        """An entry with the name and version of its manifest: tools that copy images drop them."""
        if entry.artifact_type or entry.media_type != _MANIFEST_TYPE:
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
        on_step: OnStep = lambda _: None,
    ) -> bool:
        """Publish a version after the one that was the newest; False if it has the same contracts.

        `files` returns other new files of the folder, by their paths in it; it is called while
        the folder is locked, and they are written before the version is listed. `on_step` is called with the name of each step before the next one.

        Raises:
            UsageError: the version has other contracts, or somebody else published first.
        """
        if len(contracts) > MAX_CONTRACTS_BYTES:
            raise InvalidConfig(f"the contracts have more than {MAX_CONTRACTS_BYTES:,} bytes")
        with self._locked():
            on_step("locked")
            return self._add(
                name,
                version,
                contracts,
                newest=newest,
                created=created,
                files=files,
                on_step=on_step,
            )

    def roll_back(
        self, name: str, version: PackageVersion, *, at: str, on_step: OnStep = lambda _: None
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
            marks = {versions[each].digest: {_WITHDRAWN: at} for each in later}
            marks[versions[version].digest] = {}
            if not later and not versions[version].withdrawn:
                return ()
            entries = (
                msgspec.structs.replace(
                    entry, annotations={**_unmarked(entry), **marks[entry.digest]}
                )
                if entry.digest in marks
                else entry
                for entry in index.manifests
            )
            whole = msgspec.structs.replace(index, manifests=tuple(entries))
            self._replace(self.folder / "index.json", _encoded(whole), on_step)
            return later

    def _add(
        self,
        name: str,
        version: PackageVersion,
        contracts: bytes,
        *,
        newest: PackageVersion | None,
        created: str,
        files: Callable[[], Mapping[Path, bytes]],
        on_step: OnStep,
    ) -> bool:
        index = self.read_index()
        versions = index.versions(name)
        if version in versions:
            if self.read(name, version, versions[version]).contracts == contracts:
                return False
            raise UsageError(
                f"{name}@{version} is published with other contracts; it never changes"
            )
        now = max(index.offered(name), default=None)
        if now != newest:
            raise UsageError(
                f"somebody else published {name}@{now} at the same time; nothing was written. "
                "Run the command again"
            )
        for left in self.folder.glob(f"{_TEMPORARY}*"):
            left.unlink(missing_ok=True)
        for path, data in files().items():
            self._make_folder(path.parent)
            self._replace(self.folder / path, data, on_step)
        if not (self.folder / "oci-layout").exists():
            layout = canonical_json({"imageLayoutVersion": LAYOUT_VERSION}).encode()
            self._replace(self.folder / "oci-layout", layout, on_step)
        layer = self._write(CONTRACTS_TYPE, contracts, on_step)
        config = self._write(_EMPTY_TYPE, _EMPTY, on_step)
        about = {_TITLE: name, _VERSION: str(version), _CREATED: created}
        manifest = _Manifest(config, (layer,), about, ARTIFACT_TYPE)
        entry = self._write(_MANIFEST_TYPE, _encoded(manifest), on_step)
        entry = msgspec.structs.replace(
            entry,
            artifact_type=ARTIFACT_TYPE,
            annotations={**about, _REF: f"{name}-{version}"},
        )
        whole = msgspec.structs.replace(index, manifests=(*index.manifests, entry))
        self._replace(self.folder / "index.json", _encoded(whole), on_step)
        return True

    # --- files ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        """Make the folder, and hold its lock; an error of the system becomes `InvalidConfig`."""
        try:
            (self.folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
            fd = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
            try:
                deadline = time.monotonic() + LOCK_SECONDS
                while not hold(fd):
                    if time.monotonic() > deadline:
                        raise UsageError(f"{self.folder} is locked by another publisher; try again")
                    time.sleep(_PAUSE)
                yield
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

    def _write(self, media_type: str, data: bytes, on_step: OnStep) -> Descriptor:
        digest = data_digest(data)
        path = self._place(digest)
        # A damaged blob of a crashed machine is written again.
        if not path.is_file() or path.read_bytes() != data:
            self._replace(path, data, on_step)
        return Descriptor(media_type, digest, len(data))

    def _replace(self, path: Path, data: bytes, on_step: OnStep) -> None:
        temporary = self.folder / f"{_TEMPORARY}{os.getpid()}"
        with temporary.open("wb") as file:
            file.write(data)
            on_step(f"written {path.name}")
            file.flush()
            os.fsync(file.fileno())
        on_step(f"flushed {path.name}")
        temporary.replace(path)
        on_step(f"renamed {path.name}")
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
