"""The files of FlowMCP catalogues: which there are, and what is to be said about each.

Every file is read once, held to the rules that go for it, and told in one report. Nothing is run,
nothing is written, and one bad file never stops the others.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from callpact.errors import InvalidManifest, SourceRefused
from callpact.sources.flowmcp.checking import (
    CheckedList,
    ListFile,
    check_text,
    gather_lists,
    read_list,
)
from callpact.sources.flowmcp.codes import Profile
from callpact.sources.flowmcp.literal import MAX_FILE_BYTES
from callpact.sources.flowmcp.places import Places, in_order, line_starts, place_of
from callpact.sources.flowmcp.reading import read_schema_file
from callpact.sources.flowmcp.rules.hit import members
from callpact.sources.loaded import Finding

LIST_FOLDERS = ("_lists", "_shared")
"""Folders of shared lists, in a catalogue or up to three levels above what is looked at."""
_SKIPPED = frozenset({"node_modules", "tests"})
_LEVELS_ABOVE = 3
_UNREADABLE = "VAL155"
_EXPORTS = re.compile(r"^[ \t]*export\s++const\s++(main|schema|list)\b", re.MULTILINE)

Verdict = Literal["ok", "warning", "error"]


class Rules(Struct, frozen=True):
    """What a file is held to."""

    profile: Profile = "compat"
    libraries: frozenset[str] = frozenset()
    lists: Path | None = None


class FileReport(Struct, frozen=True):
    """What is to be said about one file."""

    file: str
    findings: tuple[Finding, ...]
    namespace: str | None = None
    name: str | None = None
    tools: tuple[str, ...] = ()
    hash: str | None = None
    """The hash of `main` as it is, whatever its `schemaHash` says."""

    @property
    def verdict(self) -> Verdict:
        """As bad as the worst finding."""
        found = {finding.severity for finding in self.findings}
        return "error" if "error" in found else "warning" if "warning" in found else "ok"


class Candidate(Struct, frozen=True):
    """A file that may be a FlowMCP file, and the path under which it was found."""

    path: Path
    root: Path
    trouble: str = ""
    """Why it cannot even be looked at."""


def read_text(path: Path) -> str:
    """The text of a file, line ends and all; of one that is too large, enough to say so.

    Raises:
        InvalidManifest: it cannot be read, or is not UTF-8.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # A pipe would be waited for.
            raise InvalidManifest("the file cannot be read: it is not a regular file")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidManifest(f"the file cannot be read: {_told(error)}") from None
    try:
        return data.decode("utf-8", "strict" if len(data) <= MAX_FILE_BYTES else "replace")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        line, column = place_of(line_starts(before), len(before))
        words = f"the file is not UTF-8: byte 0x{data[error.start]:02x}; save it as UTF-8"
        raise InvalidManifest(words, line, column) from None


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
        candidates = list(_walked(path)) if is_folder else [Candidate(path, path)]
        if not candidates:
            raise SourceRefused(f"{path} holds no .mjs file")
        for candidate in candidates:
            found.setdefault(os.path.realpath(candidate.path), candidate)
    return list(found.values())


def _walked(root: Path) -> Iterator[Candidate]:
    """The files of a folder in order; links to folders are not followed, so there is no end."""
    troubles: list[Candidate] = []
    found: list[Candidate] = []

    def tell(error: OSError) -> None:
        path = Path(error.filename)
        troubles.append(Candidate(path, root, f"the folder cannot be read: {_told(error)}"))

    for folder, folders, files in os.walk(root, onerror=tell):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        found += [Candidate(Path(folder, name), root) for name in files if name.endswith(".mjs")]
    return iter(sorted((*troubles, *found), key=lambda candidate: candidate.path))


def _told(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "its symbolic links lead in a circle"
    if error.errno == errno.ENOENT:
        return "it does not exist"
    return error.strerror or str(error)


class Catalogue:
    """Checks files, and knows which shared lists go with each."""

    def __init__(self, candidates: Iterable[Candidate], rules_of: Callable[[Path], Rules]) -> None:
        self._rules_of = rules_of
        self._inside: dict[Path, dict[Path, None]] = {}
        for found in candidates:
            if found.path.parent.name in LIST_FOLDERS:
                self._inside.setdefault(found.root, {})[found.path.parent] = None
        self._read: dict[str, CheckedList] = {}
        self._gathered: dict[tuple[str, ...], _Gathered] = {}
        self._told: set[str] = set()

    def check(self, candidate: Candidate) -> FileReport:
        """Everything there is to say about a file."""
        path = candidate.path
        self._told.add(os.path.realpath(path))
        if candidate.trouble:
            return _trouble(path, candidate.trouble)
        try:
            text = read_text(path)
        except InvalidManifest as error:
            return _trouble(path, error.message, error.line, error.column)
        if _is_list(path, text):
            return self._check_list(candidate, text)
        rules = self._rules_of(path)
        checked = check_text(
            text,
            file=str(path),
            profile=rules.profile,
            lists=self._lists_of(candidate).lists,
            libraries=rules.libraries,
        )
        main: Any = checked.manifest
        if main is None:
            main = read_schema_file(text).data or {}
        return FileReport(
            str(path),
            checked.findings,
            _text_or_none(main.get("namespace")),
            _text_or_none(main.get("name")),
            tuple(members(main.get("tools", main.get("routes")))),
            checked.hash,
        )

    def unseen(self) -> Iterator[FileReport]:
        """The lists that were needed but not asked about, if they cannot be used."""
        for file, read in self._read.items():
            if file not in self._told and read.list is None:
                yield FileReport(file, read.findings)

    def _check_list(self, candidate: Candidate, text: str) -> FileReport:
        path = candidate.path
        file = os.path.realpath(path)
        gathered = self._lists_of(candidate, os.path.dirname(file))  # noqa: PTH120 - a key
        read = self._read_list(file, text)
        places = Places(text, "list")
        findings = [*read.findings]
        findings += [places.placed(found) for found in gathered.findings if found.place == file]
        name = None if read.list is None else read.list.name
        told = in_order(replace(found, place=str(path)) for found in findings)
        return FileReport(str(path), told, name=name)

    def _lists_of(self, candidate: Candidate, *own: str) -> _Gathered:
        """The lists that a file can refer to, in the order in which a source reads them."""
        rules = self._rules_of(candidate.path)
        folders = [*self._inside.get(candidate.root, ()), *_folders_above(candidate.root)]
        if rules.lists is not None:
            folders.insert(0, rules.lists)
        present = (os.path.realpath(folder) for folder in folders if folder.is_dir())
        key = (rules.profile, *dict.fromkeys((*own, *present)))
        if key not in self._gathered:
            self._gathered[key] = self._gather(key[1:], rules.profile)
        return self._gathered[key]

    def _gather(self, folders: Iterable[str], profile: Profile) -> _Gathered:
        files = [file for folder in folders for file in sorted(Path(folder).glob("*.mjs"))]
        read = {path: self._read_list(path) for path in map(os.path.realpath, files)}
        lists, findings = gather_lists(read.values(), profile)
        return _Gathered(lists, findings)

    def _read_list(self, file: str, text: str | None = None) -> CheckedList:
        if file not in self._read:
            try:
                text = read_text(Path(file)) if text is None else text
                self._read[file] = read_list(text, file, self._rules_of(Path(file)).profile)
            except InvalidManifest as error:
                told = _trouble(Path(file), error.message, error.line, error.column)
                self._read[file] = CheckedList(
                    list=None, unplaced=told.findings, _places=Places("", "list")
                )
        return self._read[file]


def _folders_above(root: Path) -> list[Path]:
    base = root.absolute()
    above = base.parents[: _LEVELS_ABOVE + (not base.is_dir())]
    return [parent / name for parent in above for name in LIST_FOLDERS]


class _Gathered(Struct, frozen=True):
    lists: dict[str, ListFile]
    findings: tuple[Finding, ...]


def _trouble(
    path: Path, words: str, line: int | None = None, column: int | None = None
) -> FileReport:
    found = Finding(str(path), "error", words, _UNREADABLE, "", line or 1, column or 1)
    return FileReport(str(path), (found,))


def _is_list(path: Path, text: str) -> bool:
    if path.parent.name in LIST_FOLDERS:
        return True
    names = _EXPORTS.findall(text)
    return "list" in names and "main" not in names


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
