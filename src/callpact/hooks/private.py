"""Files of our own making in a directory that nobody else may write.

What they hold is used as it is, compiled code above all; so whatever is odd about the directory or
the file, it is as if the file were not there. A digest guards against damage, such as a file that
was cut short; against people, the directory does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

_DIGEST_BYTES = 32
_LENGTH_BYTES = 8


def read_private(file: Path) -> tuple[bytes, bytes] | None:
    """The two parts of the file; nothing if it is absent or cannot be trusted."""
    try:
        if not _is_private(file.parent):
            return None
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with open(os.open(file, flags), "rb") as opened:  # noqa: PTH123 - a descriptor, not a path
            status = os.fstat(opened.fileno())
            if not (stat.S_ISREG(status.st_mode) and _is_ours(status)):
                return None
            digest = opened.read(_DIGEST_BYTES)
            length = opened.read(_LENGTH_BYTES)
            first = opened.read(min(int.from_bytes(length, "little"), status.st_size))
            second = opened.read()
    except OSError:
        return None
    return (first, second) if _digest(first, second) == digest else None


def keep_private(file: Path, first: bytes, second: bytes) -> None:
    """Write the file under another name first, so that nobody ever reads half of it.

    A directory that cannot be written costs time in the next process, and nothing else.
    """
    temporary = file.with_name(f".{os.urandom(8).hex()}.tmp")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(file.parent):
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with open(os.open(temporary, flags, 0o600), "wb") as opened:  # noqa: PTH123 - a descriptor
            opened.write(_digest(first, second))
            opened.write(len(first).to_bytes(_LENGTH_BYTES, "little"))
            opened.write(first)
            opened.write(second)
        temporary.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _digest(first: bytes, second: bytes) -> bytes:
    digest = hashlib.sha256(len(first).to_bytes(_LENGTH_BYTES, "little"))
    digest.update(first)
    digest.update(second)
    return digest.digest()


def _is_private(folder: Path) -> bool:
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and _is_ours(status)


def _is_ours(status: os.stat_result) -> bool:
    """Whether only we can have written it."""
    if not hasattr(os, "getuid"):
        return True  # Windows: a user's directories are private by default.
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
