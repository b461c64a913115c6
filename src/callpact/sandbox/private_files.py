"""Cache files in a directory that only this user may write.

Their content, such as compiled code, is used without further checks; so a file is ignored if
anything about it or its directory cannot be trusted. A digest detects damage, such as truncation;
the permissions of the directory protect against other users.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
from collections.abc import Generator
from pathlib import Path

_DIGEST_BYTES = 32
_LENGTH_BYTES = 8


def read_private(file: Path) -> tuple[bytes, bytes] | None:
    """The two parts of the file; None if it is absent or cannot be trusted."""
    with _mapped(file) as content:
        if content is None:
            return None
        at, end = _second(content)
        return content[:at], content[at:end]


def read_private_second(file: Path) -> bytes | None:
    """The second part alone, for callers that map the file, which begins with the first part."""
    with _mapped(file) as content:
        if content is None:
            return None
        at, end = _second(content)
        return content[at:end]


def keep_private(file: Path, first: bytes, second: bytes) -> None:
    """Write the file atomically, by renaming it.

    A directory that cannot be written only costs the next process time.
    """
    temporary = file.with_name(f".{os.urandom(8).hex()}.tmp")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(file.parent):
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with open(os.open(temporary, flags, 0o600), "wb") as opened:  # noqa: PTH123 - a descriptor
            length = len(first).to_bytes(_LENGTH_BYTES, "little")
            digest = hashlib.sha256()
            for part in (first, second, length):
                digest.update(part)
                opened.write(part)
            opened.write(digest.digest())
        temporary.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _mapped(file: Path) -> Generator[mmap.mmap | None]:
    """The content of a file that can be trusted."""
    with contextlib.ExitStack() as stack:
        try:
            content = stack.enter_context(_map(file))
        except (OSError, ValueError):  # absent; empty
            content = None
        yield content if content is not None and _is_whole(content) else None


def _map(file: Path) -> mmap.mmap:
    if not _is_private(file.parent):
        raise OSError
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(file, flags)
    try:
        status = os.fstat(descriptor)
        if not (stat.S_ISREG(status.st_mode) and _is_ours(status)):
            raise OSError
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)


def _is_whole(content: mmap.mmap) -> bool:
    with memoryview(content) as view, view[:-_DIGEST_BYTES] as body:
        return hashlib.sha256(body).digest() == bytes(view[-_DIGEST_BYTES:])


def _second(content: mmap.mmap) -> tuple[int, int]:
    """The offsets of the second part: its beginning and its end."""
    end = len(content) - _DIGEST_BYTES - _LENGTH_BYTES
    return int.from_bytes(content[end : end + _LENGTH_BYTES], "little"), end


def _is_private(folder: Path) -> bool:
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and _is_ours(status)


def _is_ours(status: os.stat_result) -> bool:
    """True if no other user can have written it."""
    if not hasattr(os, "getuid"):
        return True  # Windows: a user's directories are private by default.
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
