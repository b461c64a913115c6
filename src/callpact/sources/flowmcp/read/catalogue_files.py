"""The files of FlowMCP catalogues: finding and reading them.

Checking and loading both find files here, so they see the same ones. A file that cannot be read is
reported, never skipped. Nothing is written, and no rule is applied.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from callpact.errors import InvalidManifest, SourceRefused
from callpact.sources.base import Finding
from callpact.sources.flowmcp.read.exports import kind_of
from callpact.sources.flowmcp.read.literal import MAX_FILE_BYTES
from callpact.sources.flowmcp.read.literal_parser import line_starts, place_of
from callpact.sources.flowmcp.read.registry import REGISTRY, read_registry

LIST_FOLDERS = ("_lists", "_shared")
"""Folders of shared lists, in a catalogue or up to three levels above the given path."""
SKIPPED_FOLDERS = frozenset({"grading-data", "node_modules", "tests"})
"""Folders in a catalogue that are skipped."""
_SKIPPED_AT_ROOT = frozenset({"archive", "scripts"})
"""Folders at the root of a catalogue's repository that are skipped."""
_REPOSITORY = (REGISTRY, "package.json", ".git")
"""Any of these makes a folder the root of a repository."""
_OTHER_FOLDERS = frozenset({"skills", "prompts", "agents", "selections"})
"""Folders of a catalogue whose files are not schema files, and so not in its registry."""
_LEVELS_ABOVE = 3


class CandidateFile(Struct, frozen=True):
    """A file that may be a FlowMCP file, and the path under which it was found."""

    path: Path
    root: Path
    trouble: Finding | None = None
    """The reason why it is not read."""

    @property
    def is_named(self) -> bool:
        """True if the file itself was named, not its folder."""
        return self.path == self.root

    @property
    def is_list(self) -> bool:
        """True if it is in a folder of shared lists."""
        return self.path.parent.name in LIST_FOLDERS

    def read(self) -> bytes:
        """The contents of the file; of one that is too large, a part that is also too large.

        Raises:
            InvalidManifest: it cannot be read.
        """
        if self.trouble is not None:
            raise _Troubled(self.trouble)
        return read_data(self.path)


class _Troubled(InvalidManifest):
    """A file that is not read, for a reason that is reported already."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def read_data(path: Path) -> bytes:
    """The contents of a file; of one that is too large, a part that is also too large.

    Raises:
        InvalidManifest: it cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # Reading a pipe would block.
            raise InvalidManifest("the file cannot be read: it is not a regular file")
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidManifest(f"the file cannot be read: {_reason(error)}") from None


def as_text(data: bytes) -> str:
    """The text of a file with its line ends.

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
    """The text of a file with its line ends; of one that is too large, enough to report that.

    Raises:
        InvalidManifest: it cannot be read, or is not UTF-8.
    """
    return as_text(read_data(path))


def unreadable(path: Path | str, error: InvalidManifest) -> Finding:
    """The finding about a file or folder that cannot be read."""
    if isinstance(error, _Troubled):
        return error.finding
    line, column = error.line or 1, error.column or 1
    return Finding(str(path), "error", error.message, "VAL155", "", line, column)


def other_kind(path: Path, text: str) -> Finding | None:
    """The finding about a file of a catalogue that is not a schema file."""
    kind = kind_of(text)
    if kind is None:
        return None
    words = f"the file is {kind}, not a schema file; it is not loaded"
    return Finding(str(path), "info", words, "VAL159", "", 1, 1)


def find_files(paths: Iterable[Path]) -> list[CandidateFile]:
    """Every `.mjs` file under the paths, each once; a file that is named is taken as it is.

    Of a folder with a `registry.json`, the files that it lists. At the root of a repository,
    `archive`, `scripts`, hidden folders and configuration files do not count.

    Raises:
        SourceRefused: a path does not exist, or holds no such file.
    """
    found: dict[str, CandidateFile] = {}
    for path in paths:
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except OSError as error:
            raise SourceRefused(f"{path}: {_reason(error)}") from None
        candidates = (
            _walked(path) if is_folder else {os.path.realpath(path): CandidateFile(path, path)}
        )
        if not candidates:
            raise SourceRefused(f"{path} holds no .mjs file")
        for real, candidate in candidates.items():
            found.setdefault(real, candidate)
    return list(found.values())


def _walked(root: Path) -> dict[str, CandidateFile]:
    """The files of a folder in order, by their real paths: those of its registry, if it has one."""
    found = _all_below(root)
    registry = read_registry(root)
    if registry is None:
        return found
    if isinstance(registry, Finding):
        return found | {registry.place: CandidateFile(root / REGISTRY, root, registry)}
    listed = {
        os.path.realpath(path := root / name): CandidateFile(path, root) for name in registry.files
    }
    tops = {_top(Path(name)) for name in registry.files}
    for real, candidate in found.items():
        if candidate.is_list or candidate.trouble is not None:
            listed.setdefault(real, candidate)
        elif real not in listed and _may_be_meant(candidate, tops):
            words = f"{REGISTRY} does not list the file; it is not loaded; add it to the registry"
            finding = Finding(
                str(candidate.path), "warning", words, "CAT006", "", 1, 1, is_left_out=True
            )
            listed[real] = replace(candidate, trouble=finding)
    for finding in registry.findings:
        listed[f"{finding.place}{finding.path}"] = CandidateFile(root / REGISTRY, root, finding)
    return dict(sorted(listed.items(), key=lambda item: item[1].path.parts))


def _may_be_meant(candidate: CandidateFile, tops: Collection[str]) -> bool:
    """True for a file in a folder that the registry has files of."""
    path = candidate.path.relative_to(candidate.root)
    return _top(path) in tops and _OTHER_FOLDERS.isdisjoint(path.parts[:-1])


def _top(path: Path) -> str:
    """The first folder of a relative path; empty for a file at the root."""
    return path.parts[0] if len(path.parts) > 1 else ""


def _all_below(root: Path) -> dict[str, CandidateFile]:
    """The files of a folder in order, by their real paths.

    Links to folders are not followed, so that the walk ends; links to files are resolved.
    """
    found: dict[str, tuple[str, Finding | None]] = {}
    top, base = os.fspath(root), os.path.realpath(root)

    def report(error: OSError) -> None:
        folder = error.filename
        trouble = InvalidManifest(f"the folder cannot be read: {_reason(error)}")
        found[folder] = (folder, unreadable(folder, trouble))

    is_repository = any(os.path.exists(f"{top}{os.sep}{name}") for name in _REPOSITORY)  # noqa: PTH110 - as below
    for folder, folders, files in os.walk(root, onerror=report):
        is_root = is_repository and folder == top
        folders[:] = [name for name in folders if not _is_skipped(name, is_root=is_root)]
        real = base + folder[len(top) :]
        for name in files:
            if name.endswith(".mjs") and not (is_root and _configures(name)):
                path = f"{folder}{os.sep}{name}"
                is_link = os.path.islink(path)  # noqa: PTH114 - pathlib is slow for hundreds
                found[path] = (os.path.realpath(path) if is_link else f"{real}{os.sep}{name}", None)
    each: dict[str, CandidateFile] = {}
    for path in sorted(found, key=lambda path: path.split(os.sep)):  # noqa: PTH206 - as above
        key, trouble = found[path]
        each.setdefault(key, CandidateFile(Path(path), root, trouble))
    return each


def _is_skipped(folder: str, *, is_root: bool) -> bool:
    if folder in SKIPPED_FOLDERS:
        return True
    return is_root and (folder in _SKIPPED_AT_ROOT or folder.startswith("."))


def _configures(name: str) -> bool:
    """True for a configuration file of a repository, such as `jest.config.mjs`."""
    return name.endswith(".config.mjs") or name.startswith(".")


def list_folders(
    root: Path, candidates: Iterable[CandidateFile], given: Path | None
) -> dict[str, Path]:
    """The folders of shared lists for the files under a path, by their real paths.

    In the order of precedence: the given one, those of the catalogue itself, those above it.
    """
    folders = [] if given is None else [given]
    folders += dict.fromkeys(found.path.parent for found in candidates if found.is_list)
    folders += lists_above(root)
    each: dict[str, Path] = {}
    for folder in folders:
        if os.path.isdir(folder):  # noqa: PTH112 - unlike pathlib's, it is False for one that may not be read
            each.setdefault(os.path.realpath(folder), folder)
    return each


def lists_above(root: Path) -> Iterator[Path]:
    """Folders outside of a catalogue that may hold its shared lists."""
    base = root.absolute()
    for parent in base.parents[: _LEVELS_ABOVE + (not base.is_dir())]:
        yield from (parent / name for name in LIST_FOLDERS)


def find_lists(folder: Path) -> list[CandidateFile]:
    """The files in a folder of shared lists, in order; folders in it do not count."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".mjs"))  # noqa: PTH208 - only names are needed
    except OSError as error:
        trouble = InvalidManifest(f"the folder cannot be read: {_reason(error)}")
        return [CandidateFile(folder, folder, unreadable(folder, trouble))]
    return [CandidateFile(folder / name, folder) for name in names]


def _reason(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "its symbolic links lead in a circle"
    if error.errno == errno.ENOENT:
        return "it does not exist"
    return error.strerror or str(error)
