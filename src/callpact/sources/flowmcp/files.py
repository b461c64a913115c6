"""The files of FlowMCP catalogues: which there are, and what stands in them.

Whoever looks at a catalogue finds its files here, so that what is checked is what is loaded. What
cannot be read is told, never left out. Nothing is written, and nothing is known of the rules.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from callpact.errors import InvalidManifest, SourceRefused
from callpact.sources.flowmcp.literal import MAX_FILE_BYTES
from callpact.sources.flowmcp.tokens import line_starts, place_of
from callpact.sources.loaded import Finding

LIST_FOLDERS = ("_lists", "_shared")
"""Folders of shared lists, in a catalogue or up to three levels above what is looked at."""
SKIPPED_FOLDERS = frozenset({"node_modules", "tests"})
"""Folders in a catalogue that hold no files of it."""
_LEVELS_ABOVE = 3


class Candidate(Struct, frozen=True):
    """A file that may be a FlowMCP file, and the path under which it was found."""

    path: Path
    root: Path
    trouble: str = ""
    """Why it cannot even be looked at."""

    @property
    def is_named(self) -> bool:
        """True if it was asked for itself, not the folder that it is in."""
        return self.path == self.root

    @property
    def is_list(self) -> bool:
        """True if it stands where shared lists do."""
        return self.path.parent.name in LIST_FOLDERS

    def read(self) -> bytes:
        """What stands in the file; of one that is too large, enough to say so.

        Raises:
            InvalidManifest: it cannot be read.
        """
        if self.trouble:
            raise InvalidManifest(self.trouble)
        return read_data(self.path)


def read_data(path: Path) -> bytes:
    """What stands in a file; of one that is too large, enough to say so.

    Raises:
        InvalidManifest: it cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # A pipe would be waited for.
            raise InvalidManifest("the file cannot be read: it is not a regular file")
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidManifest(f"the file cannot be read: {_told(error)}") from None


def as_text(data: bytes) -> str:
    """The text of a file, line ends and all.

    Raises:
        InvalidManifest: it is not UTF-8.
    """
    try:
        return data.decode("utf-8", "strict" if len(data) <= MAX_FILE_BYTES else "replace")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        line, column = place_of(line_starts(before), len(before))
        words = f"the file is not UTF-8: byte 0x{data[error.start]:02x}; save it as UTF-8"
        raise InvalidManifest(words, line, column) from None


def read_text(path: Path) -> str:
    """The text of a file, line ends and all; of one that is too large, enough to say so.

    Raises:
        InvalidManifest: it cannot be read, or is not UTF-8.
    """
    return as_text(read_data(path))


def unreadable(path: Path | str, error: InvalidManifest) -> Finding:
    """What is to be said of a file or folder that cannot be read."""
    line, column = error.line or 1, error.column or 1
    return Finding(str(path), "error", error.message, "VAL155", "", line, column)


def find_files(paths: Iterable[Path]) -> list[Candidate]:
    """Every `.mjs` file under the paths, each once; a file that is named is taken as it is.

    Raises:
        SourceRefused: a path does not exist, or holds no such file.
    """
    found: dict[str, Candidate] = {}
    for path in paths:
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except OSError as error:
            raise SourceRefused(f"{path}: {_told(error)}") from None
        candidates = _walked(path) if is_folder else {os.path.realpath(path): Candidate(path, path)}
        if not candidates:
            raise SourceRefused(f"{path} holds no .mjs file")
        for real, candidate in candidates.items():
            found.setdefault(real, candidate)
    return list(found.values())


def _walked(root: Path) -> dict[str, Candidate]:
    """The files of a folder in order, by their real paths.

    Links to folders are not followed, so there is an end, and only links to files are resolved.
    """
    found: dict[str, tuple[str, str]] = {}
    top, base = os.fspath(root), os.path.realpath(root)

    def tell(error: OSError) -> None:
        folder = error.filename
        found[folder] = (folder, f"the folder cannot be read: {_told(error)}")

    for folder, folders, files in os.walk(root, onerror=tell):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        real = base + folder[len(top) :]
        for name in files:
            if name.endswith(".mjs"):
                path = f"{folder}{os.sep}{name}"
                is_link = os.path.islink(path)  # noqa: PTH114 - pathlib is slow for hundreds
                found[path] = (os.path.realpath(path) if is_link else f"{real}{os.sep}{name}", "")
    each: dict[str, Candidate] = {}
    for path in sorted(found, key=lambda path: path.split(os.sep)):  # noqa: PTH206 - as above
        key, trouble = found[path]
        each.setdefault(key, Candidate(Path(path), root, trouble))
    return each


def list_folders(
    root: Path, candidates: Iterable[Candidate], given: Path | None
) -> dict[str, Path]:
    """The folders of shared lists for what is under a path, by their real paths.

    The first counts most: the one that is given, those of the catalogue itself, those above it.
    """
    folders = [] if given is None else [given]
    folders += dict.fromkeys(found.path.parent for found in candidates if found.is_list)
    folders += lists_above(root)
    each: dict[str, Path] = {}
    for folder in folders:
        if os.path.isdir(folder):  # noqa: PTH112 - one that may not be looked at is none
            each.setdefault(os.path.realpath(folder), folder)
    return each


def lists_above(root: Path) -> Iterator[Path]:
    """Where shared lists of a catalogue may be, outside of it."""
    base = root.absolute()
    for parent in base.parents[: _LEVELS_ABOVE + (not base.is_dir())]:
        yield from (parent / name for name in LIST_FOLDERS)


def find_lists(folder: Path) -> list[Candidate]:
    """The files in a folder of shared lists, in order; folders in it do not count."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".mjs"))  # noqa: PTH208 - names are all that is asked for
    except OSError as error:
        return [Candidate(folder, folder, f"the folder cannot be read: {_told(error)}")]
    return [Candidate(folder / name, folder) for name in names]


def _told(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "its symbolic links lead in a circle"
    if error.errno == errno.ENOENT:
        return "it does not exist"
    return error.strerror or str(error)
