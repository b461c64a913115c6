"""The check of one FlowMCP file: read as data, scanned, and checked against every rule.

`check_text` returns all findings about a file, and the manifest that a source loads, unless a
finding is an error. Severities depend on the profile (`rule_table.py`). No code of the file is run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from msgspec.structs import replace

from callpact.errors import InvalidManifest
from callpact.schema import schema_hash
from callpact.schema.issues.wording import nearest
from callpact.sources.base import Finding, Severity
from callpact.sources.flowmcp.check.rule_table import RULES, CheckRule, Profile
from callpact.sources.flowmcp.check.rules.list_rules import (
    Entries,
    KnownLists,
    ListFile,
    chain_hits,
    list_hits,
    made_list,
    resolve_lists,
)
from callpact.sources.flowmcp.check.rules.manifest_rules import (
    character_hits,
    file_hits,
    hash_hits,
    main_hits,
)
from callpact.sources.flowmcp.check.rules.resource_rules import resource_hits
from callpact.sources.flowmcp.check.rules.tool_rules import tools_hits
from callpact.sources.flowmcp.read.exports import FileReading, read_list_file, read_schema_file
from callpact.sources.flowmcp.read.hit import Hit, members
from callpact.sources.flowmcp.read.literal_parser import line_starts, place_of, read_carefully
from callpact.sources.flowmcp.read.scan import FileKind, hooked_tools, scan, uses_hook

MAX_FINDINGS = 200
"""Findings reported for one FlowMCP file, errors before the rest."""
_MOST_HITS = 10_000
_NOT_DATA = frozenset({"SEC017", "SEC019"})

__all__ = [
    "MAX_FINDINGS",
    "Checked",
    "CheckedList",
    "GatheredLists",
    "ListFile",
    "check_text",
    "gather_lists",
    "read_list",
]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The result of checking a schema file."""

    file: str
    manifest: dict[str, Any] | None = field(repr=False)
    """The data of `main`, with `routes` as `tools`; None if there is an error."""
    shared_lists: dict[str, Entries] = field(repr=False)
    """The lists that the file refers to, filtered and immutable."""
    unplaced: tuple[Finding, ...] = field(repr=False)
    """The findings without line and column, which take longer to compute than all the rest."""
    _places: Places = field(repr=False)
    _reading: FileReading = field(repr=False)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """All findings with line and column, in the order of the file."""
        return in_order(self._places.placed(finding) for finding in self.unplaced)

    def findings_with(self, hits: Iterable[Hit], profile: Profile) -> tuple[Finding, ...]:
        """The findings with those of further hits; none is repeated."""
        found = _Findings(self.file, profile)
        for hit in hits:
            found.report(hit)
        known = {(finding.code, finding.message) for finding in self.findings}
        more = [each for each in found.worst() if (each.code, each.message) not in known]
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
        """The offset of the code of hooks; None if the file has none."""
        return self._reading.handlers


@dataclass(frozen=True, kw_only=True)
class CheckedList:
    """The result of checking a list file."""

    list: ListFile | None = field(repr=False)
    """None if there is an error."""
    unplaced: tuple[Finding, ...] = field(repr=False)
    """The findings without line and column."""
    _places: Places = field(repr=False)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """All findings with line and column, in the order of the file."""
        return in_order(self._places.placed(finding) for finding in self.unplaced)


def check_text(
    text: str,
    *,
    file: str,
    profile: Profile = "compat",
    lists: Mapping[str, ListFile],
    libraries: Collection[str] = (),
    hook_rules: Callable[[str, int, Mapping[str, Any]], Iterable[Hit]] | None = None,
) -> Checked:
    """Check the text of a schema file; `libraries` are allowed beside the six of FlowMCP.

    `hook_rules` check the code of hooks. Loading passes none: they take time, and a file with a
    broken hook is still loaded.
    """
    reading = read_schema_file(text)
    found = _Findings(file, profile)
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
        found.add(hook_rules(text, reading.handlers, main))
    return Checked(
        file=file,
        manifest=manifest,
        shared_lists=entries,
        unplaced=found.worst(),
        _places=Places(text, reading.export, reading.prefix),
        _reading=reading,
    )


def read_list(text: str, file: str, profile: Profile = "compat") -> CheckedList:
    """Check the text of a list file."""
    found = _Findings(file, profile)
    reading = read_list_file(text)
    _add_reading(found, reading, text, "list")
    if reading.data is not None:
        found.add(list_hits(reading.data))
        found.add(character_hits(reading.data))
    made = None if found.is_error or reading.data is None else made_list(reading.data, file)
    return CheckedList(list=made, unplaced=found.worst(), _places=Places(text, "list"))


class GatheredLists(NamedTuple):
    """The usable lists by name, and the findings that concern several of them."""

    lists: dict[str, ListFile]
    findings: tuple[Finding, ...]


def gather_lists(read: Iterable[CheckedList], profile: Profile = "compat") -> GatheredLists:
    """Collect lists by name; of two with one name the first is used."""
    available: dict[str, ListFile] = {}
    findings: list[Finding] = []
    for known in (checked.list for checked in read if checked.list is not None):
        first = available.setdefault(known.name, known)
        if first is not known:
            found = _Findings(known.file, profile)
            words = f"the list '{known.name}' is also in {first.file}"
            found.report(Hit("LST002", "/meta/name", words))
            findings += found.worst()
    for known in available.values():
        found = _Findings(known.file, profile)
        found.add(chain_hits(known, available, "/meta/dependsOn"))
        findings += found.worst()
    return GatheredLists(available, tuple(findings))


def _add_reading(found: _Findings, reading: FileReading, text: str, kind: FileKind) -> None:
    found.add(reading.hits)
    scanned = scan(text, kind, reading.code_begins)
    for hit in scanned:
        found.report(hit)
    failure = reading.failure
    if failure is None:
        return
    # A forbidden word is one finding, although it also makes the file unreadable as data.
    if failure.key not in _NOT_DATA or failure.line not in {hit.line for hit in scanned}:
        found.report(failure)


def _is_hooked(main: dict[str, Any], text: str, reading: FileReading) -> bool:
    """True if there is no `root`, and hooks may make the request of every tool."""
    if main.get("root") or reading.handlers is None:
        return False
    names = [*members(main.get("tools")), *members(main.get("routes"))]
    return uses_hook(text, reading.handlers, "executeRequest") and hooked_tools(
        text, reading.handlers, names
    ) == frozenset(names)


def _lifted(main: dict[str, Any]) -> dict[str, Any]:
    return {"tools" if key == "routes" else key: value for key, value in main.items()}


class _Findings:
    """The findings about one file; of each severity, the first `MAX_FINDINGS` are kept."""

    def __init__(self, file: str, profile: Profile) -> None:
        self._file = file
        self._profile: Profile = profile
        self._kept: dict[Severity, list[tuple[int, Finding]]] = {
            "error": [],
            "warning": [],
            "info": [],
        }
        self._added: int = 0
        self._count: int = 0

    @property
    def is_error(self) -> bool:
        return bool(self._kept["error"])

    def add(self, hits: Iterable[Hit]) -> None:
        """Report hits, up to a limit: beyond it, the file is refused."""
        if self._added > _MOST_HITS:
            return
        for hit in hits:
            self._added += 1
            if self._added > _MOST_HITS:
                words = f"rules are broken more than {_MOST_HITS:,} times; no more was looked at"
                del self._kept["error"][MAX_FINDINGS - 2 :]
                self.report(Hit("VAL154", "", words))
                return
            self.report(hit)

    def report(self, hit: Hit) -> None:
        """Keep the finding of a hit, unless the profile ignores its rule."""
        rule = RULES[hit.key]
        severity = rule.severity(self._profile)
        if severity is None:
            return
        self._count += 1
        kept = self._kept[severity]
        if len(kept) < MAX_FINDINGS:
            kept.append((self._count, self._finding(hit, rule, severity)))

    def worst(self) -> tuple[Finding, ...]:
        """At most `MAX_FINDINGS` findings, errors before the rest, in the order of reporting."""
        kept = [pair for pairs in self._kept.values() for pair in pairs]
        if self._count > MAX_FINDINGS:
            kept = kept[: MAX_FINDINGS - 1]
            last = Hit("VAL152", "", f"{self._count - len(kept)} more findings are left out")
            kept.append((self._count + 1, self._finding(last, RULES["VAL152"], "info")))
        return tuple(finding for _, finding in sorted(kept, key=itemgetter(0)))

    def _finding(self, hit: Hit, rule: CheckRule, severity: Severity) -> Finding:
        meant = hit.meant and _nearest(hit.meant[0], tuple(hit.meant[1]))
        path = hit.path
        if not path.isascii():  # It must be printable.
            path = path.encode("utf-8", "backslashreplace").decode()
        return Finding(
            self._file,
            severity,
            f"{hit.message}; {meant or ''}{' ' if meant else ''}{rule.remedy}",
            rule.code,
            path,
            hit.line,
            hit.column,
            is_left_out=rule.key == "VAL165",
        )


@lru_cache(maxsize=1_024)
def _nearest(word: str, options: tuple[str, ...]) -> str | None:
    """A suggestion; the same few words are wrong in many files."""
    return nearest(word, [*options])


# --- lines and columns -----------------------------------------------------------------------


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings in the order of the file."""
    return tuple(sorted(findings, key=lambda found: (found.line or 0, found.column or 0)))


class Places:
    """The offsets of an export's values; the file is parsed for them on first use.

    `prefix` is the JSON Pointer of the data in the export, if it is not all of it.
    """

    def __init__(self, text: str, export: str, prefix: str = "") -> None:
        self.text = text
        self._export = export
        self._prefix = prefix

    @cached_property
    def _offsets(self) -> dict[str, int]:
        """Offsets by JSON Pointer; of `export const main = schema`, those of `schema`."""
        try:
            found = read_carefully(self.text)
        except InvalidManifest:
            return {}
        value = found.values.get(self._export)
        same = (name for name in found.values if found.values[name] is value)
        export = next((name for name in same if (name, "") in found.places), self._export)
        return {path: offset for (name, path), offset in found.places.items() if name == export}

    @cached_property
    def _starts(self) -> list[int]:
        return line_starts(self.text)

    def placed(self, finding: Finding) -> Finding:
        """The finding with line and column; for a missing value, those of the object it belongs in."""
        if finding.line is not None:
            return finding
        line, column = place_of(self._starts, self._offset(finding.path))
        return replace(finding, line=line, column=column)

    def _offset(self, path: str) -> int:
        while True:
            for prefix in (self._prefix, ""):
                offset = self._offsets.get(prefix + path)
                if offset is not None:
                    return offset
            if not path:
                return 0
            path = path.rpartition("/")[0]
