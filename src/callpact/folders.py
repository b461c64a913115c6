"""The user's folders for files of callpact, by the XDG base directories, and writes in one step."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


def cache_folder(name: str) -> Path:
    """A folder for files that can be made again."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "callpact" / name


def data_folder(name: str) -> Path:
    """A folder for files that the user wants to keep."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "callpact" / name


def replace_file(path: Path, data: bytes, *, like: Path | None = None) -> None:
    """Write a file in one step; owner and mode are those of `like`, by default of the old file.

    Raises:
        OSError: it cannot be written; the old file is unchanged.
    """
    before = _stat(path if like is None else like)
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(0, "it is read-only")
    descriptor, name = tempfile.mkstemp(prefix=".callpact-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if before is not None and hasattr(os, "chown"):
            with contextlib.suppress(PermissionError):  # Keep the owner if we may.
                os.chown(name, before.st_uid, before.st_gid)
        Path(name).chmod(0o644 if before is None else stat.S_IMODE(before.st_mode))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
