"""Reads a log in pages, so that any number of records is read in bounded memory.

Also the records of one tool under all its ids, a comparison of two sets of calls, and the journal:
the number of records that are not in the store yet, and the records that are new in it.
"""

from __future__ import annotations

import dataclasses
import heapq
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from callpact.audit.journal.lines import decode_line
from callpact.audit.journal.segments import segments
from callpact.audit.record import Record
from callpact.audit.store import MAX_ROWS, Cause, Filter, GroupBy, Noted, Rate, Store
from callpact.tool import Tool

MAX_JUDGED = 5_000
"""Records of a tool that a report on drift or advice reads: the latest."""
LATE_MS = 600_000
"""The longest call that `tail` finds in a store; in a local journal it finds any."""
_PAGE = 500
_SMALL = 4_096
_BLOCK = 1 << 20
_REMEMBERED = 20_000
_FILE = re.compile(r"python:(?:.*[/\\])?([^/\\]+)\.py:")
_NOT_NAMESPACE = re.compile(r"[^A-Za-z0-9_-]+")


def pages_of(
    store: Store,
    where: Filter,
    limit: int | None = None,
    *,
    with_payloads: bool = False,
) -> Iterator[list[Record]]:
    """Pages of records, the newest first; all of them unless there is a limit.

    Pages of small records grow, as each page is a query.
    """
    before: tuple[int, str] | None = None
    left = sys.maxsize if limit is None else limit
    page = _PAGE
    while left > 0:
        found = store.log(where, limit=min(left, page), before=before, with_payloads=with_payloads)
        if not found:
            return
        yield found
        if not with_payloads or sum(map(_size, found)) <= _SMALL * len(found):
            page = min(4 * page, MAX_ROWS)
        left -= len(found)
        before = (found[-1].at, found[-1].id)


def _size(record: Record) -> int:
    return sum(len(each.json or "") for each in (record.input, record.output) if each is not None)


class ToolRecords:
    """The records of one tool in a store, under its id and its current aliases.

    A filter need not name the tool.
    """

    def __init__(self, store: Store, tool: Tool) -> None:
        self._store = store
        others = (name for name in tool.aliases if store.log(Filter(tool=name), limit=1))
        self._names = tuple(dict.fromkeys((tool.id, *others)))

    def _each(self, where: Filter) -> list[Filter]:
        """One filter for each name; only the given one if it names a tool."""
        if where.tool is not None:
            return [where]
        return [replace(where, tool=name) for name in self._names]

    def records(self, where: Filter, limit: int) -> Iterator[Record]:
        """Records with their payloads, the newest first."""
        found = (
            chain.from_iterable(pages_of(self._store, each, limit, with_payloads=True))
            for each in self._each(where)
        )
        newest = heapq.merge(*found, key=lambda record: (record.at, record.id), reverse=True)
        return islice(newest, limit)

    def counts(self, where: Filter, by: GroupBy) -> dict[str, int]:
        """The number of calls by group."""
        counts: dict[str, int] = {}
        for rate in (rate for each in self._each(where) for rate in self._store.rates(each, by)):
            counts[rate.group] = counts.get(rate.group, 0) + rate.calls
        return counts

    def output_notes(self, where: Filter) -> list[Noted]:
        """The rules that outputs broke, by place; the commonest of each name."""
        return [
            found
            for each in self._each(where)
            for found in self._store.notes(each, of_outputs=True)
        ]


def under_recorded_names(
    store: Store, tools: Iterable[Tool], where: Filter | None = None
) -> tuple[list[Tool], dict[str, str]]:
    """Tools whose namespace comes from their file, with their ids on record as aliases.

    A namespace on record that no tool has, and of whose tools at least half have the names of
    those of one file, is taken for the former name of that file. Returns the tools, and the
    present namespace of each such namespace.

    Raises:
        UsageError: the log cannot be read.
    """
    every, meant = list(tools), where or Filter()
    present = _by_namespace(tool.id for tool in every)
    calls = {rate.group: rate.calls for rate in store.rates(meant, "tool")}
    if _by_namespace(calls).keys() <= present.keys():
        return every, {}
    missed = {rate.group: rate.calls for rate in store.rates(replace(meant, gate="find"), "tool")}
    # An id that was never found is a name that a caller made up.
    on_record = _by_namespace(name for name in calls if missed.get(name) != calls[name])
    of_files = {tool.namespace: present[tool.namespace] for tool in every if _is_of_file(tool)}
    found: dict[str, str] = {}
    for former, names in on_record.items():
        alike = [
            namespace
            for namespace, held in of_files.items()
            if namespace not in on_record and 2 * len(names & held) >= len(names)
        ]
        if former not in present and len(alike) == 1:
            found[former] = alike[0]
    former_of = {namespace: former for former, namespace in found.items()}
    if len(former_of) < len(found):  # Several are alike: none is certain.
        return every, {}
    taken = {name for tool in every for name in (tool.id, tool.wire_name, *tool.aliases)}
    named: list[Tool] = []
    for tool in every:
        alias = f"{former_of.get(tool.namespace, tool.namespace)}.{tool.name}"
        is_new = tool.namespace in former_of and alias not in taken
        named.append(dataclasses.replace(tool, aliases=(*tool.aliases, alias)) if is_new else tool)
    return named, found


def _by_namespace(ids: Iterable[str]) -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for id_ in ids:
        namespace, _, name = id_.partition(".")
        names.setdefault(namespace, set()).add(name)
    return names


def _is_of_file(tool: Tool) -> bool:
    """True if the namespace of a tool is the name of its Python file."""
    file = _FILE.match(tool.source)
    return file is not None and _NOT_NAMESPACE.sub("_", file[1]).strip("_") == tool.namespace


class Comparison(Struct, frozen=True):
    """Rates and causes of two sets of calls; the commonest groups and causes first."""

    before: list[Rate]
    after: list[Rate]
    causes_before: list[Cause]
    causes_after: list[Cause]


def compare(
    store: Store, before: Filter, after: Filter, *, by: GroupBy = "tool", limit: int = 100
) -> Comparison:
    """Compare two sets of calls: of two versions, contracts, windows or callers.

    Raises:
        UsageError: the log cannot be read.
    """
    return Comparison(
        store.rates(before, by)[:limit],
        store.rates(after, by)[:limit],
        store.causes(before, limit=limit),
        store.causes(after, limit=limit),
    )


def waiting(journal: Path, taken: Mapping[str, int]) -> int | None:
    """The number of records in a journal that are not in the store; None if it is not readable."""
    try:
        return sum(_lines_left(path, taken.get(path.name, 0)) for path in segments(journal))
    except OSError:
        return None


def _lines_left(segment: Path, at: int) -> int:
    found = 0
    try:
        with segment.open("rb") as file:
            file.seek(at)
            while block := file.read(_BLOCK):
                found += block.count(b"\n")
    except FileNotFoundError:  # It was moved into the store.
        return 0
    return found


class Arrivals:
    """The records that were added since the last poll, in the order of their arrival.

    A record is written when its call ends, and the log is ordered by the start of calls: a call of
    one hour appears an hour back. So the journal is followed through open files, which stay
    readable when a compactor removes them. Records that passed through the journal between two
    polls are found in the store by their time.
    """

    def __init__(self, store: Store, journal: Path, where: Filter, now: Callable[[], int]) -> None:
        self._store = store
        self._journal = journal
        self._where = where
        self._now = now
        self._files: dict[str, int] = {}
        self._at: dict[str, int] = {}
        self._seen: deque[tuple[int, str]] = deque(maxlen=_REMEMBERED)
        self._stored = store.stored()
        for path in segments(journal):
            with suppress(FileNotFoundError):
                self._at[path.name] = path.stat().st_size
        self._seen.extend((record.at, record.id) for record in self._recent())

    def new(self) -> list[Record]:
        """The matching records that were added since the last call."""
        found = list(self._from_journal())
        if self._store.is_eager or self._store.stored() != self._stored:
            self._stored = self._store.stored()
            found += reversed(self._recent())
        seen = set(self._seen)
        new = {(record.at, record.id): record for record in found}
        self._seen.extend(key for key in new if key not in seen)
        return [record for key, record in new.items() if key not in seen]

    def _recent(self) -> list[Record]:
        since = self._now() - LATE_MS
        if self._where.since is not None:
            since = max(since, self._where.since)
        return self._store.log(replace(self._where, since=since), limit=MAX_ROWS)

    def _from_journal(self) -> Iterator[Record]:
        names = {path.name for path in segments(self._journal)}
        for name in sorted(names - self._files.keys()):
            with suppress(FileNotFoundError):
                self._files[name] = os.open(self._journal / name, os.O_RDONLY)
        for name, fd in list(self._files.items()):
            at = self._at.get(name, 0)
            data = os.pread(fd, os.fstat(fd).st_size - at, at)
            data = data[: data.rfind(b"\n") + 1]
            self._at[name] = at + len(data)
            for line in data.split(b"\n"):
                record = decode_line(line) if line else None
                if record is not None and self._where.fits(record):
                    yield record
            if name not in names:
                os.close(self._files.pop(name))

    def close(self) -> None:
        """Close the files."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
