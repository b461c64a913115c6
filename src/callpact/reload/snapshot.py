"""The state of watched files on disk, by polling, and which of them changed since they were read.

Polling compares stamps. For a file that is watched by name the content decides, so that touching it
is no change; for the files in a folder, which may be thousands, the stamp decides.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callpact.sources.base import Watched
from callpact.sources.python.importer import TICK_NS

Stamp = tuple[int, int, int]
"""Modification time, size and inode of a file."""


@dataclass(slots=True, eq=False)
class Watch:
    """The files of one source or configuration, and their state when they were last read."""

    watched: tuple[Watched, ...] = ()
    trouble: str = ""
    """The error of the last read, if it failed."""
    seen: dict[str, Stamp] | None = None
    """Stamps of the last poll, if they differ from those that were read."""
    _read: dict[str, Stamp] = field(default_factory=dict[str, Stamp])
    _digests: dict[str, bytes | None] = field(default_factory=dict[str, Any])

    def look(self) -> list[str]:
        """The changed files, once two polls found them the same; they count as read then."""
        now = stamps(self.watched)
        was, self.seen = self.seen, None if now == self._read else now
        if self.seen is None or now != was:
            return []
        differing = {path for path, _ in now.items() ^ self._read.items()}
        digests = {path: _digest(path) for path in differing & self._named()}
        equal = {path for path, new in digests.items() if new and new == self._digests.get(path)}
        self._read, self.seen = now, None
        self._digests |= digests
        return sorted(differing - equal)

    def settle(self, watched: Iterable[Watched], since: int) -> None:
        """Watch these files, which were read after `since`, instead of the former ones."""
        self.watched = tuple(dict.fromkeys(watched))
        # Digests before stamps: a file written in between then does not count as read.
        digests = {path: self._digests.get(path) or _digest(path) for path in self._named()}
        now, below = stamps(self.watched), tuple(f"{each.path}{os.sep}" for each in self.watched)
        # For a newly watched file, only an old stamp is known to be the one that was read.
        old = {path: stamp for path, stamp in now.items() if stamp[0] < since - TICK_NS}
        known = {p: stamp for p, stamp in self._read.items() if f"{p}{os.sep}".startswith(below)}
        self._read = old | known
        self._digests = {
            path: new if self._digests.get(path) or self._read.get(path) == now.get(path) else None
            for path, new in digests.items()
        }

    def _named(self) -> set[str]:
        return {str(each.path) for each in self.watched}


def stamps(watched: Iterable[Watched]) -> dict[str, Stamp]:
    """The stamps of all files that can be read, by path."""
    found: dict[str, Stamp] = {}
    for each in watched:
        for path in _files(each):
            with suppress(OSError, ValueError):
                state = os.stat(path)  # noqa: PTH116 - fast, for thousands of files
                if stat.S_ISREG(state.st_mode):
                    found[path] = state.st_mtime_ns, state.st_size, state.st_ino
    return found


def _files(watched: Watched) -> Iterator[str]:
    root = str(watched.path)
    if not watched.path.is_dir():
        yield root
        return
    for folder, folders, names in os.walk(root):
        level = folder.rstrip(os.sep)[len(root.rstrip(os.sep)) :].count(os.sep) + 1
        folders[:] = () if level == watched.levels else set(folders).difference(watched.skips)
        for name in names:
            if name.endswith(watched.suffix):
                yield os.path.join(folder, name)  # noqa: PTH118 - fast, for thousands of files


def _digest(path: str) -> bytes | None:
    if not Path(path).is_file():  # Opening a pipe would wait for its writer.
        return None
    with suppress(OSError), Path(path).open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()
    return None
