"""The check of whole FlowMCP catalogues: one report per file.

Every file is read once and checked against the rules for its folder. Nothing is written, code runs
only when hooks are opened, and one bad file never stops the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from callpact.errors import DeclarationError, InvalidManifest
from callpact.sources.base import Finding
from callpact.sources.flowmcp.check.file_check import (
    Checked,
    CheckedList,
    GatheredLists,
    Places,
    check_text,
    gather_lists,
    in_order,
    read_list,
)
from callpact.sources.flowmcp.check.rule_table import Profile
from callpact.sources.flowmcp.check.rules.hook_rules import hook_hits, hook_key_hit, key_hit, owners
from callpact.sources.flowmcp.hooks.file_hooks import CatalogueHooks, Unhooked
from callpact.sources.flowmcp.read.catalogue_files import (
    LIST_FOLDERS,
    CandidateFile,
    as_text,
    find_lists,
    list_folders,
    other_kind,
    unreadable,
)
from callpact.sources.flowmcp.read.exports import read_schema_file
from callpact.sources.flowmcp.read.hit import Hit, Hits, is_text, items, members, texts
from callpact.sources.flowmcp.read.literal_parser import line_starts, place_of
from callpact.sources.key_grants import read_root

if TYPE_CHECKING:
    from callpact.sandbox.realm import Realm

_EXPORTS = re.compile(r"^[ \t]*export\s++const\s++(main|schema|list)\b", re.MULTILINE)

Verdict = Literal["ok", "warning", "error"]


class Rules(Struct, frozen=True):
    """The settings that a file is checked with."""

    profile: Profile = "compat"
    libraries: frozenset[str] = frozenset()
    lists: Path | None = None


class FileReport(Struct, frozen=True):
    """The findings about one file, and the facts that `callpact check` prints."""

    file: str
    findings: tuple[Finding, ...]
    namespace: str | None = None
    name: str | None = None
    tools: tuple[str, ...] = ()
    hash: str | None = None
    """The hash of `main` as it is, whatever its `schemaHash` says."""
    keys: tuple[str, ...] = ()
    """Names of the keys that it asks for."""
    host: str = ""
    """The host of its root, or the pattern of a template, to which its keys are sent."""

    @property
    def verdict(self) -> Verdict:
        """The severity of the worst finding; infos count as ok."""
        found = {finding.severity for finding in self.findings}
        return "error" if "error" in found else "warning" if "warning" in found else "ok"


class Catalogue:
    """Checks files, each with the shared lists that it can refer to."""

    def __init__(
        self, candidates: Iterable[CandidateFile], rules_of: Callable[[Path], Rules]
    ) -> None:
        self._rules_of = rules_of
        self._inside: dict[Path, list[CandidateFile]] = {}
        for found in candidates:
            if found.is_list:
                self._inside.setdefault(found.root, []).append(found)
        self._folders: dict[tuple[Path, Path | None], tuple[str, ...]] = {}
        self._read: dict[str, CheckedList] = {}
        self._gathered: dict[tuple[str, ...], GatheredLists] = {}
        self._seen: set[str] = set()
        self._hooks: list[CatalogueHooks] = []

    def check(self, candidate: CandidateFile) -> FileReport:
        """Check a file without running its hooks."""
        return self._look(candidate).report

    async def check_opened(self, candidate: CandidateFile) -> FileReport:
        """Check a file, and open its hooks in the sandbox."""
        report, checked = self._look(candidate)
        if checked is None or checked.handlers is None:
            return report
        hits = await opened_hits(self._hooks_of(candidate), checked)
        profile = self._rules_of(candidate.path).profile
        return replace(report, findings=checked.findings_with(hits, profile))

    async def aclose(self) -> None:
        """Stop the engines that run hooks."""
        for hooks in self._hooks:
            await hooks.aclose()

    def _look(self, candidate: CandidateFile) -> _Looked:
        path = candidate.path
        self._seen.add(os.path.realpath(path))
        try:
            text = as_text(candidate.read())
        except InvalidManifest as error:
            return _Looked(FileReport(str(path), (unreadable(path, error),)))
        if candidate.is_list or _is_list(text):
            return _Looked(self._check_list(candidate, text))
        rules = self._rules_of(path)
        checked = check_text(
            text,
            file=str(path),
            profile=rules.profile,
            lists=self._lists_of(candidate).lists,
            libraries=rules.libraries,
            hook_rules=hook_hits,
        )
        main: Any = checked.manifest
        if main is None:
            other = None if candidate.is_named else other_kind(path, text)
            if other is not None:
                return _Looked(FileReport(str(path), (other,)))
            main = read_schema_file(text).data or {}
        keys = tuple(filter(is_text, items(main.get("requiredServerParams"))))
        report = FileReport(
            str(path),
            tuple(self._with_folders(found, candidate) for found in checked.findings),
            _text_or_none(main.get("namespace")),
            _text_or_none(main.get("name")),
            tuple(members(main.get("tools", main.get("routes")))),
            checked.hash,
            keys,
            read_root(_text_or_none(main.get("root")) or "", keys).host,
        )
        return _Looked(report, checked)

    def _with_folders(self, found: Finding, candidate: CandidateFile) -> Finding:
        """The finding about a missing list, with the folders that were searched."""
        if found.code != "VAL072":
            return found
        folders = self._folders[candidate.root, self._rules_of(candidate.path).lists]
        searched = ", ".join(folders) or f"none, as there is no {' or '.join(LIST_FOLDERS)}"
        return replace(found, message=f"{found.message}; folders searched: {searched}")

    def unseen(self) -> Iterator[FileReport]:
        """Reports of unusable lists that checked files refer to, but that were not checked themselves."""
        for file, read in self._read.items():
            if file not in self._seen and read.list is None:
                yield FileReport(file, read.findings)

    def _check_list(self, candidate: CandidateFile, text: str) -> FileReport:
        path = candidate.path
        file = os.path.realpath(path)
        gathered = self._lists_of(candidate, os.path.dirname(file))  # noqa: PTH120 - a key
        read = self._read_list(CandidateFile(Path(file), candidate.root), text)
        places = Places(text, "list")
        findings = [*read.findings]
        findings += [places.placed(found) for found in gathered.findings if found.place == file]
        name = None if read.list is None else read.list.name
        placed = in_order(replace(found, place=str(path)) for found in findings)
        return FileReport(str(path), placed, name=name)

    def _hooks_of(self, candidate: CandidateFile) -> CatalogueHooks:
        """The hooks of all files with the same lists and the same profile."""
        gathered = self._lists_of(candidate)
        profile = self._rules_of(candidate.path).profile
        for hooks in self._hooks:
            if hooks.lists is gathered.lists and hooks.profile == profile:
                return hooks
        self._hooks.append(CatalogueHooks(gathered.lists, profile))
        return self._hooks[-1]

    def _lists_of(self, candidate: CandidateFile, *own: str) -> GatheredLists:
        """The lists that a file can refer to, in the order in which a source reads them."""
        rules = self._rules_of(candidate.path)
        root = candidate.root
        if (root, rules.lists) not in self._folders:
            found = list_folders(root, self._inside.get(root, ()), rules.lists)
            self._folders[root, rules.lists] = tuple(found)
        key = (rules.profile, *dict.fromkeys((*own, *self._folders[root, rules.lists])))
        if key not in self._gathered:
            self._gathered[key] = self._gather(key[1:], rules.profile)
        return self._gathered[key]

    def _gather(self, folders: Iterable[str], profile: Profile) -> GatheredLists:
        found = [candidate for folder in folders for candidate in find_lists(Path(folder))]
        each = {os.path.realpath(candidate.path): candidate for candidate in found}
        read = [
            self._read_list(replace(candidate, path=Path(file))) for file, candidate in each.items()
        ]
        return gather_lists(read, profile)

    def _read_list(self, candidate: CandidateFile, text: str | None = None) -> CheckedList:
        file = str(candidate.path)
        if file not in self._read:
            try:
                text = as_text(candidate.read()) if text is None else text
                profile = self._rules_of(candidate.path).profile
                self._read[file] = read_list(text, file, profile)
            except InvalidManifest as error:
                found = (unreadable(file, error),)
                self._read[file] = CheckedList(
                    list=None, unplaced=found, _places=Places("", "list")
                )
        return self._read[file]


class _Looked(NamedTuple):
    report: FileReport
    checked: Checked | None = None
    """The result for a schema file that could be read."""


def _is_list(text: str) -> bool:
    names = _EXPORTS.findall(text)
    return "list" in names and "main" not in names


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# --- opened hooks ---------------------------------------------------------------------------

_CODES = {"LibraryFailed": "SEC103", "MainChanged": "VAL162", "NoFactory": "VAL004"}
"""Codes by the engine's name of an error; any other error is a failure of the factory."""
_LIBRARIES = "/requiredLibraries"


async def opened_hits(hooks: CatalogueHooks, checked: Checked) -> list[Hit]:
    """Breaches that show when the hooks of a checked file are opened in the sandbox.

    The code of the file runs, within its limits; no hook is called. A file that cannot be loaded is
    not opened.
    """
    main, handlers = checked.manifest, checked.handlers
    if main is None or handlers is None:
        return []
    libraries = texts(main.get("requiredLibraries"))
    try:
        found = hooks.of_file(checked.file, checked.text, handlers, main["tools"], libraries)
        if isinstance(found, Unhooked):
            return [Hit("SEC103", _LIBRARIES, found.reason)]
        realm = await found.open()
    except DeclarationError as error:
        return [_refused(error, checked, handlers)]
    line, column = place_of(line_starts(checked.text), handlers)
    return [hit._replace(line=line, column=column) for hit in _key_hits(realm, checked, handlers)]


def _refused(error: DeclarationError, checked: Checked, handlers: int) -> Hit:
    from callpact.sandbox.load import HooksRefused

    if not isinstance(error, HooksRefused):  # The pack itself.
        return Hit("SEC103", _LIBRARIES, str(error))
    code = _CODES.get(error.name, "SEC104")
    if code == "SEC103":
        return Hit(code, _LIBRARIES, error.message)
    words = error.message if code != "SEC104" else f"{error.name}: {error.message}"
    place = (error.line, error.column) if error.line else None
    return Hit(code, "", words, None, *(place or place_of(line_starts(checked.text), handlers)))


def _key_hits(realm: Realm, checked: Checked, handlers: int) -> Hits:
    main = checked.manifest or {}
    known = owners(main)
    # A hook may use other members through `this`.
    uses_this = "this" in checked.text[handlers:]
    for name, kinds in realm.hooks.items():
        hit = key_hit(name, known)
        if hit is not None:
            yield hit
        elif name in main["tools"] and not uses_this:
            found = (hook_key_hit(kind, name, main) for kind in sorted(kinds))
            yield from (each for each in found if each is not None)
