"""What stands on disk of what is watched, as marks that differ when it differs. Reads, and no more.

Of files that are named the content counts, so that merely touching one is no change; of those in
folders, which may be very many, when they were written, their size and which file it is.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from callpact.sources.loaded import Watched

MAX_WATCHED_FILES = 50_000
"""Files in one folder that are watched; more are left out, with a warning."""
MAX_COMPARED_BYTES = 4_000_000
"""Size of a file up to which its content is compared; of larger ones the time of writing counts."""
_SETTLED_NS = 100_000_000  # A file may be written again within the same tick of its clock.
_log = logging.getLogger("callpact.watching")

Stamp = tuple[int, int, int]
"""When a file was written, its size, and which file it is."""
Mark = tuple[Stamp, bytes | None]
"""A stamp, and of what was read a digest of the content."""
Marks = dict[str, Mark]
"""Files by their paths, and what tells one version of each from another."""


def is_same(one: Marks, other: Marks) -> bool:
    """True if the files are the same, whenever they were written."""
    return one == other or (one.keys() == other.keys() and not any(changed(one, other)))


def changed(one: Marks, other: Marks) -> Iterator[str]:
    """The files that are not the same, in order."""
    for path in sorted({*one, *other}):
        a, b = one.get(path), other.get(path)
        if a is None or b is None or (a != b and (a[1] is None or a[1] != b[1])):
            yield path


class Looker:
    """Looks at files, and reads those again that were written since."""

    def __init__(self) -> None:
        self._read: Marks = {}
        self._overfull: set[Path] = set()

    def look(self, watched: Iterable[Watched]) -> Marks:
        """The marks of all files that are there; what cannot be looked at is not there."""
        marks: Marks = {}
        for each in watched:
            try:
                found = os.stat(each.path)  # noqa: PTH116 - as below
            except (OSError, ValueError):
                continue
            if stat.S_ISDIR(found.st_mode):
                self._walk(each, marks)
            elif stat.S_ISREG(found.st_mode):
                marks[str(each.path)] = self._mark(str(each.path), found)
        return marks

    def _mark(self, path: str, found: os.stat_result) -> Mark:
        stamp = _stamp(found)
        known = self._read.get(path)
        if known is not None and known[0] == stamp:
            return known
        if found.st_size > MAX_COMPARED_BYTES:
            return stamp, None
        try:
            digest = hashlib.blake2b(Path(path).read_bytes(), digest_size=16).digest()
        except OSError:
            return stamp, None
        if time.time_ns() - found.st_mtime_ns > _SETTLED_NS:
            self._read[path] = stamp, digest
        return stamp, digest

    def _walk(self, watched: Watched, marks: Marks) -> None:
        folders, room = [(str(watched.path), 1)], MAX_WATCHED_FILES
        while folders:
            folder, level = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    inside = sorted(entries, key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in inside:
                if _is_folder(entry):
                    if entry.name not in watched.skips and level != watched.levels:
                        folders.append((entry.path, level + 1))
                elif entry.name.endswith(watched.suffix) and entry.path not in marks:
                    if not room:
                        self._tell_overfull(watched.path)
                        return
                    try:
                        # Not the entry's own: this one lets other threads run meanwhile.
                        found = os.stat(entry.path)  # noqa: PTH116 - of thousands
                    except OSError:
                        continue
                    if stat.S_ISREG(found.st_mode):
                        marks[entry.path] = _stamp(found), None
                        room -= 1

    def _tell_overfull(self, folder: Path) -> None:
        if folder not in self._overfull:
            self._overfull.add(folder)
            _log.warning("%s: only %s of its files are watched", folder, f"{MAX_WATCHED_FILES:,}")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_mtime_ns, found.st_size, found.st_ino
