"""Why calls failed, whatever engine is behind a store: the commonest error keys of each tool."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from operator import itemgetter

from msgspec.structs import replace

from callpact.audit import sql_rows as rows
from callpact.audit.engine import Engine, rows_by_id
from callpact.audit.histogram import FIRST, HOUR
from callpact.audit.hours import calls_within
from callpact.audit.sql_parts import Part, parts_of
from callpact.audit.sql_sums import Times
from callpact.audit.sql_terms import cell_terms, fitting_callers, narrowed, terms
from callpact.audit.store import Cause, Filter

_Key = tuple[str, str]
"""A tool and an error key."""


class Causes:
    """Tells the causes in a store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def commonest(self, where: Filter, limit: int) -> list[Cause]:
        """The commonest error keys, of all calls of their tools in the window."""
        with self._engine.reading():
            where = narrowed(self._engine, where)
            fitting, parameters = cell_terms(self._engine, where)
            sql = f"SELECT id FROM cells WHERE key IS NOT NULL AND {fitting or '1 = 1'}"  # noqa: S608 - our own terms
            chosen = {id_ for (id_,) in self._engine.rows(sql, parameters)}
            calls = self._by_cell(where) if chosen else {}
            names = rows_by_id(self._engine, "tool, key FROM cells", calls)
            of: Counter[str] = Counter()
            causes: defaultdict[_Key, Times] = defaultdict(Times)
            for cell, times in calls.items():
                tool, key = names[cell]
                of[tool] += times.calls
                if cell in chosen:
                    causes[tool, key].add(times.calls, times.first, times.last)
            commonest = sorted(causes.items(), key=lambda item: (-item[1].calls, item[0]))[:limit]
            shown = {cause: times.last for cause, times in commonest}
            of_cells = {
                cell: (tool, key)
                for cell, (tool, key) in names.items()
                if cell in chosen and (tool, key) in shown
            }
            messages = self._messages(where, of_cells, shown)
        return [
            Cause(
                tool,
                key,
                message=messages[tool, key],
                calls=times.calls,
                of=of[tool],
                first=times.first,
                last=times.last,
            )
            for (tool, key), times in commonest
        ]

    def _messages(
        self, where: Filter, of_cells: Mapping[int, _Key], last: Mapping[_Key, int]
    ) -> dict[_Key, str]:
        """Those of the latest calls; of calls that are gone, the last ones of their kinds."""
        fits, parameters = fitting_callers(self._engine, where)
        sql = f"SELECT id FROM callers WHERE {fits or '1 = 1'}"  # noqa: S608 - our own terms
        callers = {id_ for (id_,) in self._engine.rows(sql, parameters)}
        messages: dict[_Key, str] = {}
        sql = "SELECT number, id, at, cell, caller, more FROM calls INDEXED BY calls_at WHERE at IN"
        latest = self._engine.among(sql, list(set(last.values())))
        for _, _, at, cell, caller, more in sorted(latest, key=rows.order_of):
            key = of_cells.get(cell)
            if key is not None and at == last[key] and caller in callers:
                messages[key] = rows.more_of(more).message or ""
        sql = f"SELECT coalesce(message_at, {FIRST}), id, message FROM cells WHERE id IN"  # noqa: S608 - constants
        gone = [cell for cell, key in of_cells.items() if key not in messages]
        for _, cell, message in sorted(self._engine.among(sql, gone), key=itemgetter(0)):
            messages[of_cells[cell]] = message or ""
        return messages

    def _by_cell(self, where: Filter) -> dict[int, Times]:
        """All calls of a window by what they have in common, whatever became of them."""
        everything = replace(where, gate=None, code=None, key=None, outcome=None)
        fitting = terms(self._engine, everything, ("tool", "key"))
        found: defaultdict[int, Times] = defaultdict(Times)
        for part in parts_of(self._engine, where, fitting):
            if part.of == "hours":
                for cell, times in self._timed(part, where).items():
                    found[cell].add(times.calls, times.first, times.last)
                continue
            counts = "cell, CAST(sum(calls) AS bigint), min(first), max(last)"
            if part.of == "records":
                counts = "calls.cell, count(*), min(at), max(at)"
            sql = f"SELECT {counts} FROM {part.source.sql} GROUP BY 1"  # noqa: S608 - our own terms
            for cell, calls, first, last in self._engine.rows(sql, part.source.parameters):
                found[cell].add(calls, first, last)
        return found

    def _timed(self, part: Part, where: Filter) -> dict[int, Times]:
        """Calls by cell, from rollups that know hours: of what failed, records tell when it was."""
        found: defaultdict[int, Times] = defaultdict(Times)
        known = f"{self._engine.strung('hours')}, min(first), max(last)"
        sql = f"SELECT cell, start, {known} FROM {part.source.sql} GROUP BY 1, 2"  # noqa: S608 - our own terms
        for cell, day, kept, first, last in self._engine.rows(sql, part.source.parameters):
            hours = range(*((end - day) // HOUR for end in part.window))
            if within := calls_within(kept or b"", hours):
                calls, begin, end = within
                begun, ended = day + begin * HOUR, day + end * HOUR + HOUR - 1
                found[cell].add(calls, max(first, begun), min(last, ended))
        gone = self._engine.kept_number("gone_before", FIRST)
        failed = terms(self._engine, replace(where, outcome="failed")).records(part.window)
        sql = f"SELECT calls.cell, min(at), max(at) FROM {failed.sql} GROUP BY 1"  # noqa: S608 - our own terms
        for cell, first, last in self._engine.rows(sql, failed.parameters):
            if cell in found:  # Else it is not rolled up yet.
                times = found[cell]
                times.first = times.first if times.first < gone else first
                times.last = last
        return found
