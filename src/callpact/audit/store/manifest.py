"""The list of a store's files: one small file that is replaced by rename.

Files that are not listed are ignored: a process was killed while it wrote them. The manifest also
has the stored position in each segment of the journal, so a line of the journal is in a file or
waits, and never both.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from callpact.audit.journal.file_locks import hold, release, sync_folder
from callpact.errors import InvalidConfig, UsageError

FORMAT = 1
MANIFEST = "manifest.json"
LOCK = "lock"


class StoreFile(Struct, frozen=True):
    """One Parquet file, which is never changed, with the times of its first and last record."""

    name: str
    first: int
    last: int
    rows: int
    size: int


class StoreManifest(Struct, frozen=True):
    """The files of a store, and the bytes of each segment of the journal that are in them."""

    version: int = FORMAT
    files: tuple[StoreFile, ...] = ()
    taken: Mapping[str, int] = {}


_decode = msgspec.json.Decoder(StoreManifest).decode
_encode = msgspec.json.Encoder().encode


def read_manifest(folder: Path) -> StoreManifest | None:
    """The manifest of a store; None if it has none.

    Raises:
        InvalidConfig: it is of a later callpact, or is no manifest.
        UsageError: it cannot be read.
    """
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"the audit log in '{folder}' cannot be read: {error.strerror}") from None
    try:
        manifest = _decode(data)
    except msgspec.DecodeError:
        raise InvalidConfig(
            f"'{path}' is damaged; move the folder '{folder}' away, and the log begins anew"
        ) from None
    if manifest.version != FORMAT:
        raise InvalidConfig(
            f"'{path}' is of format {manifest.version}, and this callpact reads format {FORMAT}: "
            "it was written by another version; use that one, or name another folder"
        )
    return manifest


def write_manifest(folder: Path, manifest: StoreManifest) -> None:
    """Replace the manifest; after a loss of power, the old or the new one is intact."""
    path = folder / f"{MANIFEST}.tmp"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(_encode(manifest))
        os.fsync(fd)
    finally:
        os.close(fd)
    path.rename(folder / MANIFEST)
    sync_folder(folder)


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold the exclusive lock of a store, waiting for another process that writes.

    Raises:
        OSError: the lock cannot be taken.
    """
    while True:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        path = folder / LOCK
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        hold(fd, wait=True)
        try:
            is_there = os.fstat(fd).st_ino == path.stat().st_ino
        except FileNotFoundError:
            is_there = False
        if is_there:
            break
        release(fd)  # The folder was removed: other processes lock a new file.
    try:
        yield
    finally:
        release(fd)
