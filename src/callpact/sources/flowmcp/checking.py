"""Checking one FlowMCP file: read as data, scanned, held to every rule; nothing of it is run.

`check_text` gives everything that is to be said about a file at once, and what a source needs to
load it: an error means that it cannot be loaded. Severities are those of a profile (`codes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from callpact.schema import schema_hash
from callpact.schema.wording import nearest
from callpact.sources.flowmcp.codes import RULES, Profile, Rule, Severity
from callpact.sources.flowmcp.imports import module_imports
from callpact.sources.flowmcp.places import Places, in_order
from callpact.sources.flowmcp.reading import Reading, read_list_file, read_schema_file
from callpact.sources.flowmcp.rules.hit import Hit, members
from callpact.sources.flowmcp.rules.lists import (
    Entries,
    KnownLists,
    ListFile,
    chain_hits,
    list_hits,
    made_list,
    resolve_lists,
)
from callpact.sources.flowmcp.rules.main import character_hits, file_hits, hash_hits, main_hits
from callpact.sources.flowmcp.rules.resources import resource_hits
from callpact.sources.flowmcp.rules.tools import tools_hits
from callpact.sources.flowmcp.scan import FileKind, hooked_tools, scan, uses_hook
from callpact.sources.flowmcp.tokens import line_starts, place_of
from callpact.sources.loaded import Finding

if TYPE_CHECKING:
    from callpact.sources.flowmcp.rules.hooks import CodeHit

MAX_FINDINGS = 200
"""Findings told about one FlowMCP file, errors before the rest."""
_MOST_HITS = 10_000
_NOT_DATA = frozenset({"SEC017", "SEC019"})

__all__ = [
    "MAX_FINDINGS",
    "Checked",
    "CheckedList",
    "ListFile",
    "PlacedHit",
    "check_text",
    "gather_lists",
    "read_list",
]


class PlacedHit(NamedTuple):
    """A hit and where it stands, if its path does not say so."""

    hit: Hit
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What checking a schema file gives."""

    file: str
    manifest: dict[str, Any] | None = field(repr=False)
    """The data of `main`, with `routes` as `tools`; None if an error forbids to load it."""
    shared_lists: dict[str, Entries] = field(repr=False)
    """The lists that the file refers to: filtered, and nobody can change them."""
    unplaced: tuple[Finding, ...] = field(repr=False)
    """The findings without line and column, which cost more to find than all the rest."""
    _places: Places = field(repr=False)
    _reading: Reading = field(repr=False)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Everything there is to say, with line and column, in the order of the file."""
        return in_order(self._places.placed(finding) for finding in self.unplaced)

    def findings_with(self, hits: Iterable[PlacedHit], profile: Profile) -> tuple[Finding, ...]:
        """All of it together with what was found out since; what is known is not told again."""
        found = _Found(profile)
        for hit, line, column in hits:
            found.tell(hit, line, column)
        known = {(finding.code, finding.message) for finding in self.findings}
        more = [
            each for each in found.findings(self.file) if (each.code, each.message) not in known
        ]
        return in_order([*self.findings, *map(self._places.placed, more)])

    @cached_property
    def hash(self) -> str | None:
        """The hash of `main`, as `schemaHash` should have it; None if there is no `main`."""
        return None if self._reading.data is None else schema_hash(self._reading.data)

    @property
    def text(self) -> str:
        """The text of the file."""
        return self._places.text

    @property
    def handlers(self) -> int | None:
        """Where the code of the file's hooks begins, if it has some."""
        return self._reading.handlers


@dataclass(frozen=True, kw_only=True)
class CheckedList:
    """What checking a list file gives."""

    list: ListFile | None = field(repr=False)
    """None if an error forbids to use it."""
    unplaced: tuple[Finding, ...] = field(repr=False)
    """The findings without line and column."""
    _places: Places = field(repr=False)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Everything there is to say, with line and column, in the order of the file."""
        return in_order(self._places.placed(finding) for finding in self.unplaced)


def check_text(
    text: str,
    *,
    file: str,
    profile: Profile = "compat",
    lists: Mapping[str, ListFile],
    libraries: Collection[str] = (),
    hook_rules: Callable[[str, int, Mapping[str, Any]], Iterable[CodeHit]] | None = None,
) -> Checked:
    """Check the text of a schema file; `libraries` are allowed beside the six of FlowMCP.

    `hook_rules` look at the code of hooks. Loading has none: they cost time, and what is wrong with
    a hook is no reason not to load the file.
    """
    reading = read_schema_file(text)
    found = _Found(profile)
    _add_reading(found, reading, text, "schema")
    main = reading.data
    entries: dict[str, Entries] = {}
    if main is not None:
        resolved = resolve_lists(main, lists)
        entries = resolved.lists
        known = KnownLists(main, lists, entries)
        tail = "" if reading.handlers is None else text[reading.handlers :]
        found.add(file_hits(file, main.get("namespace")))
        found.add(main_hits(main, libraries, is_hooked=_is_hooked(main, text, reading)))
        found.add(hash_hits(main))
        found.add(character_hits(main))
        found.add(tools_hits(main, known))
        found.add(resource_hits(main))
        found.add(known.unused_hits(resolved.hits, tail))
    manifest = None if found.is_error or main is None else _lifted(main)
    if hook_rules is not None and main is not None and reading.handlers is not None:
        found.add_placed(hook_rules(text, reading.handlers, main), text)
    return Checked(
        file=file,
        manifest=manifest,
        shared_lists=entries,
        unplaced=found.findings(file),
        _places=Places(text, reading.export, reading.prefix),
        _reading=reading,
    )


def read_list(text: str, file: str, profile: Profile = "compat") -> CheckedList:
    """Check the text of a list file."""
    found = _Found(profile)
    reading = read_list_file(text)
    _add_reading(found, reading, text, "list")
    if reading.data is not None:
        found.add(list_hits(reading.data))
        found.add(character_hits(reading.data))
    made = None if found.is_error or reading.data is None else made_list(reading.data, file)
    return CheckedList(list=made, unplaced=found.findings(file), _places=Places(text, "list"))


def gather_lists(
    read: Iterable[CheckedList], profile: Profile = "compat"
) -> tuple[dict[str, ListFile], tuple[Finding, ...]]:
    """The lists by name, and what is wrong with them together; of two namesakes the first counts."""
    available: dict[str, ListFile] = {}
    findings: list[Finding] = []
    for known in (checked.list for checked in read if checked.list is not None):
        found = _Found(profile)
        if known.name in available:
            words = f"the list '{known.name}' is also in {available[known.name].file}"
            found.add([Hit("LST002", "/meta/name", words)])
            findings += found.findings(known.file)
        else:
            available[known.name] = known
    for known in available.values():
        found = _Found(profile)
        found.add(chain_hits(known, available, "/meta/dependsOn"))
        findings += found.findings(known.file)
    return available, tuple(findings)


def _add_reading(found: _Found, reading: Reading, text: str, kind: FileKind) -> None:
    found.add(reading.hits)
    scanned = scan(text, kind, reading.code_begins)
    starts = line_starts(text) if scanned else []
    lines: set[int] = set()
    built_in = {found.offset for found in module_imports(text)} if scanned else set[int]()
    for hit in scanned:
        line, column = place_of(starts, hit.offset)
        lines.add(line)
        is_built_in = hit.code == "SEC001" and hit.offset in built_in
        key = "SEC001:builtin" if is_built_in else hit.code
        found.tell(Hit(key, "", f"'{hit.word}' must not stand in the code"), line, column)
    failure = reading.failure
    is_told = failure is not None and failure.key in _NOT_DATA and failure.line in lines
    if failure is not None and not is_told:  # One word for one thing.
        found.tell(Hit(failure.key, "", failure.message), failure.line, failure.column)


def _is_hooked(main: dict[str, Any], text: str, reading: Reading) -> bool:
    """True if there is no `root`, and hooks may well make the request of every tool."""
    if main.get("root") or reading.handlers is None:
        return False
    names = [*members(main.get("tools")), *members(main.get("routes"))]
    return uses_hook(text, reading.handlers, "executeRequest") and hooked_tools(
        text, reading.handlers, names
    ) == frozenset(names)


def _lifted(main: dict[str, Any]) -> dict[str, Any]:
    return {"tools" if key == "routes" else key: value for key, value in main.items()}


class _Told(NamedTuple):
    """A finding in the making."""

    order: int
    severity: Severity
    rule: Rule
    hit: Hit
    line: int | None
    column: int | None

    def finding(self, file: str) -> Finding:
        hit = self.hit
        meant = hit.meant and _nearest(hit.meant[0], tuple(hit.meant[1]))
        text = f"{hit.message}; {meant or ''}{' ' if meant else ''}{self.rule.remedy}"
        path = hit.path
        if not path.isascii():  # It is to be printed.
            path = path.encode("utf-8", "backslashreplace").decode()
        return Finding(
            file,
            self.severity,
            text,
            self.rule.code,
            path,
            self.line,
            self.column,
            is_left_out=self.rule.key == "VAL165",
        )


@lru_cache(maxsize=1_024)
def _nearest(word: str, options: tuple[str, ...]) -> str | None:
    """A suggestion; the same few words are wrong in many files."""
    return nearest(word, [*options])


class _Found:
    """What was found so far: the worst is kept, however much there is."""

    def __init__(self, profile: Profile) -> None:
        self._profile: Profile = profile
        self._told: dict[Severity, list[_Told]] = {"error": [], "warning": [], "info": []}
        self._seen: int = 0
        self._count: int = 0

    @property
    def is_error(self) -> bool:
        return bool(self._told["error"])

    def add(self, hits: Iterable[Hit]) -> None:
        """Take hits, but not without end: what breaks so many rules cannot be loaded."""
        if self._seen > _MOST_HITS:
            return
        for hit in hits:
            if not self._is_room():
                return
            self.tell(hit)

    def add_placed(self, hits: Iterable[CodeHit], text: str) -> None:
        """Take hits in the code of a text, but not without end."""
        if self._seen > _MOST_HITS:
            return
        starts: list[int] = []
        for hit, offset in hits:
            if not self._is_room():
                return
            starts = starts or line_starts(text)
            self.tell(hit, *place_of(starts, offset))

    def _is_room(self) -> bool:
        """Count one more; False, and told, when it is too many."""
        self._seen += 1
        if self._seen > _MOST_HITS:
            words = f"rules are broken more than {_MOST_HITS:,} times; no more was looked at"
            del self._told["error"][MAX_FINDINGS - 2 :]
            self.tell(Hit("VAL154", "", words))
        return self._seen <= _MOST_HITS

    def tell(self, hit: Hit, line: int | None = None, column: int | None = None) -> None:
        rule = RULES[hit.key]
        severity = rule.severity(self._profile)
        if severity is None:
            return
        self._count += 1
        told = self._told[severity]
        if len(told) < MAX_FINDINGS:
            told.append(_Told(self._count, severity, rule, hit, line, column))

    def findings(self, file: str) -> tuple[Finding, ...]:
        kept = [told for of_severity in self._told.values() for told in of_severity]
        if self._count > MAX_FINDINGS:
            kept = kept[: MAX_FINDINGS - 1]
            words = f"{self._count - len(kept)} more findings are left out"
            last = Hit("VAL152", "", words)
            kept.append(_Told(self._count + 1, "info", RULES["VAL152"], last, None, None))
        return tuple(told.finding(file) for told in sorted(kept, key=_order))


def _order(told: _Told) -> int:
    return told.order
