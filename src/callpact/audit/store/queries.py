"""The queries of a store as SQL, written once for DuckDB and PostgreSQL, and their results.

Each function returns a `Query`. Its text has placeholders: `{calls}` for the table of the engine,
`$1`, `$2`, … for parameters, and `{latest}` for the message of the latest call of a group, which
the engines spell differently. Queries of whole rows also have `{columns}` and `{more}`, so that an
engine can find the wanted rows first. Texts of a caller are parameters, never part of the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from callpact.audit.record import Record
from callpact.audit.store.interface import (
    DAY,
    HOUR,
    MAX_ROWS,
    TEXTS,
    Cause,
    Filter,
    GroupBy,
    Noted,
    Rate,
    Span,
    Step,
    Trend,
)
from callpact.audit.store.rows import COLUMNS, parts_of_place, record_of

_HOURS_UP_TO = 10 * DAY
_EXPRESSIONS = {
    "namespace": "split_part(tool, '.', 1)",
    # The remainder of a time before 1970 is negative.
    "hour": f'"at" - (("at" % {HOUR}) + {HOUR}) % {HOUR}',
}
_COUNTS = """count(*), count(gate),
count(*) FILTER (WHERE gate IN ('find', 'access', 'input')),
count(*) FILTER (WHERE gate IS NULL AND warnings IS NOT NULL),
percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY ms)"""


LATEST_IN_DUCKDB = "arg_max(coalesce(message, ''), ROW(\"at\", id))"
LATEST_IN_POSTGRES = "(array_agg(coalesce(message, '') ORDER BY \"at\" DESC, id DESC))[1]"


class Query(Struct, frozen=True):
    """One query: its text, its parameters, and a filter that contains all calls it needs."""

    text: str
    parameters: tuple[Any, ...] = ()
    where: Filter = Filter()


class _Terms:
    """The SQL conditions of a filter, and their parameters."""

    def __init__(self, where: Filter) -> None:
        self.parameters: list[Any] = []
        self._where = where
        self.text = self.of(where)

    def given(self, value: Any) -> str:
        """Add a parameter; returns its placeholder."""
        self.parameters.append(value)
        return f"${len(self.parameters)}"

    def of(self, where: Filter) -> str:
        """The conditions of another filter."""
        terms = [
            *(["true"] if where.since is None else [f'"at" >= {where.since:d}']),
            *([] if where.until is None else [f'"at" < {where.until:d}']),
            *(
                {"ok": ["gate IS NULL"], "failed": ["gate IS NOT NULL"]}.get(
                    where.outcome or "", []
                )
            ),
        ]
        for name in TEXTS:
            wanted: str | None = getattr(where, name)
            if wanted is None:
                continue
            column = _EXPRESSIONS.get(name, name)
            if "*" in wanted:
                terms.append(
                    f"coalesce({column}, '') LIKE {self.given(_pattern(wanted))} ESCAPE '!'"
                )
            elif wanted:
                terms.append(f"{column} = {self.given(wanted)}")
            else:
                terms.append(f"coalesce({column}, '') = ''")
        return " AND ".join(terms)

    def query(self, text: str) -> Query:
        return Query(text, tuple(self.parameters), self._where)


def _pattern(text: str) -> str:
    return _literal(text).replace("*", "%")


def _literal(text: str) -> str:
    """A LIKE pattern that matches only this text."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _group(by: GroupBy) -> str:
    return f"coalesce(CAST({_EXPRESSIONS.get(by, by)} AS text), '')"


def rates(where: Filter, by: GroupBy) -> Query:
    """Group, counts and the list of three quantiles; the largest group first."""
    terms = _Terms(where)
    return terms.query(
        f"SELECT {_group(by)}, {_COUNTS} FROM {{calls}} WHERE {terms.text} "  # noqa: S608 - our own terms
        f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {MAX_ROWS}"
    )


def span(where: Filter) -> Query:
    """The number of calls, and the times of the first and the last."""
    terms = _Terms(where)
    text = f'SELECT count(*), min("at"), max("at") FROM {{calls}} WHERE {terms.text}'  # noqa: S608 - our own terms
    return terms.query(text)


def last(where: Filter) -> Query:
    """The time of the last call."""
    terms = _Terms(where)
    return terms.query(f'SELECT max("at") FROM {{calls}} WHERE {terms.text}')  # noqa: S608 - our own terms


def _spans(where: Filter, latest: int, most: int) -> range:
    """The starts of the spans of a trend: whole hours, or whole days for a long window."""
    since = latest // HOUR * HOUR - (most - 1) * HOUR if where.since is None else where.since
    unit = HOUR if latest + 1 - since <= _HOURS_UP_TO else DAY
    first, end = since // unit, max(since, latest) // unit + 1
    step = -(-(end - first) // most)
    count = -(-(end - first) // step)
    return range((end - count * step) * unit, end * unit, step * unit)


def trend(where: Filter, by: GroupBy, parts: range) -> Query:
    """Group, start of a span, number of calls."""
    if where.since is None:
        where = replace(where, since=parts.start)
    terms = _Terms(where)
    return terms.query(
        f'SELECT {_group(by)}, "at" - ("at" - ({parts.start})) % {parts.step}, count(*) '  # noqa: S608 - our own terms
        f"FROM {{calls}} WHERE {terms.text} GROUP BY 1, 2"
    )


def causes(where: Filter, limit: int) -> Query:
    """The fields of a `Cause`, the commonest first."""
    terms = _Terms(where)
    every = terms.of(replace(where, gate=None, code=None, key=None, outcome=None))
    return terms.query(
        f"WITH every AS (SELECT tool, count(*) AS total FROM {{calls}} WHERE {every} GROUP BY tool), "  # noqa: S608 - our own terms
        "cause AS (SELECT tool, key, {latest} AS said, "
        'count(*) AS times, min("at") AS first, max("at") AS latest, '
        "min(coalesce(message, '')) AS lowest, max(coalesce(message, '')) AS highest "
        f"FROM {{calls}} WHERE key IS NOT NULL AND {terms.text} GROUP BY tool, key) "
        "SELECT cause.tool, key, said, times, total, first, latest, lowest, highest FROM cause "
        "JOIN every ON every.tool = cause.tool "
        f"ORDER BY times DESC, cause.tool, key LIMIT {limit:d}"
    )


def notes(where: Filter, limit: int, *, of_outputs: bool = False) -> Query:
    """Tool, version, place as `rows.py` writes it, calls, first and last; the commonest first."""
    terms = _Terms(where)
    with_output = " AND (gate IS NULL OR gate = 'output')" if of_outputs else ""
    return terms.query(
        'WITH noted AS (SELECT tool, version, "at", unnest(string_to_array(places, chr(30))) AS place '  # noqa: S608 - our own terms
        f"FROM {{calls}} WHERE places IS NOT NULL AND {terms.text}{with_output}) "
        'SELECT tool, version, place, count(*), min("at"), max("at") FROM noted '
        f"GROUP BY tool, version, place ORDER BY 4 DESC, 1, 3 LIMIT {limit:d}"
    )


def log(where: Filter, limit: int, before: tuple[int, str] | None = None) -> Query:
    """Whole rows before a time and id, the newest first."""
    more = ""
    if before is not None:
        until = before[0] + 1 if where.until is None else min(before[0] + 1, where.until)
        where = replace(where, until=until)
    terms = _Terms(where)
    if before is not None:
        more = f' AND ("at" < {before[0]:d} OR id < {terms.given(before[1])})'
    return terms.query(
        f"SELECT {{columns}} FROM {{calls}} WHERE {terms.text}{more}{{more}} "  # noqa: S608 - our own terms
        f'ORDER BY "at" DESC, id DESC LIMIT {limit:d}'
    )


def find(id: str) -> Query:
    """The whole row of the latest call with an id."""
    text = "SELECT {columns} FROM {calls} WHERE id = $1{more} "
    return Query(f'{text}ORDER BY "at" DESC, id DESC LIMIT 1', (id,))


def ids_like(begin: str, end: str, limit: int) -> Query:
    """Time and id of calls whose ids begin and end with these texts, the latest first."""
    text = (
        "SELECT \"at\", id FROM {calls} WHERE id LIKE $1 ESCAPE '!' AND id LIKE $2 ESCAPE '!' "  # noqa: S608 - our own terms
        f'ORDER BY "at" DESC, id DESC LIMIT {limit:d}'
    )
    return Query(text, (f"{_literal(begin)}%", f"%{_literal(end)}"))


def around(record: Record, within: int, limit: int) -> Query:
    """Whole rows of the calls of one caller, client and tool near a call."""
    until = record.at + within + 1
    terms = _Terms(Filter(since=record.at - within, until=until))
    tool, client = terms.given(record.tool), terms.given(record.client)
    caller = "IS NULL" if record.caller is None else f"= {terms.given(record.caller)}"
    id_ = terms.given(record.id)
    near = (
        f"SELECT {COLUMNS} FROM {{calls}} WHERE {terms.text} "  # noqa: S608 - our own terms
        f"AND tool = {tool} AND client = {client} AND caller {caller}"
    )
    return terms.query(
        f'(({near} AND ("at" < {record.at:d} OR ("at" = {record.at:d} AND id <= {id_})) '
        f'ORDER BY "at" DESC, id DESC LIMIT {limit:d}) UNION ALL '
        f'({near} AND ("at" > {record.at:d} OR ("at" = {record.at:d} AND id > {id_})) '
        f'ORDER BY "at", id LIMIT {limit:d})) ORDER BY 1, 2'
    )


def near_refused(where: Filter, within: int, limit: int) -> Query:
    """The fields of a `Step` of the latest refused inputs and of the calls near them."""
    terms = _Terms(where)
    since, until = where.since, where.until
    wide = replace(
        where,
        since=None if since is None else since - within,
        until=None if until is None else until + within,
    )
    text = (
        f'WITH refused AS (SELECT "at", tool, caller, client FROM {{calls}} WHERE {terms.text} '  # noqa: S608 - our own terms
        f"AND gate = 'input' ORDER BY \"at\" DESC, id DESC LIMIT {limit:d}) "
        'SELECT DISTINCT c."at", c.id, c.tool, c.caller, c.client, c.gate '
        "FROM {calls} AS c JOIN refused AS r ON c.tool = r.tool AND c.client = r.client "
        "AND coalesce(c.caller, '') = coalesce(r.caller, '') "
        f'AND c."at" >= r."at" - {within:d} AND c."at" <= r."at" + {within:d} '
        f"ORDER BY 1, 2 LIMIT {MAX_ROWS}"
    )
    return Query(text, tuple(terms.parameters), Filter(since=wide.since, until=wide.until))


class Queries(ABC):
    """The queries of a store, on top of an engine that returns rows."""

    @abstractmethod
    def _rows(self, query: Query) -> Sequence[Sequence[Any]]:
        """All rows of a query."""

    def _newest(self, query: Query, limit: int) -> Sequence[Sequence[Any]]:
        """The rows of a query that is ordered by time and id, the newest first."""
        return self._rows(query) if limit else ()

    def find(self, id: str) -> Record | None:
        """One record with its payloads: of several with the same id the latest."""
        found = self._newest(find(id), 1)
        return record_of(found[0], with_payloads=True) if found else None

    def ids_like(self, begin: str, end: str, *, limit: int = 4) -> list[str]:
        """Ids that begin and end with these texts, those of the latest calls first."""
        return [id_ for _, id_ in self._rows(ids_like(begin, end, _bounded(limit)))]

    def log(
        self,
        where: Filter,
        *,
        limit: int = 100,
        before: tuple[int, str] | None = None,
        with_payloads: bool = False,
    ) -> list[Record]:
        """Records, the newest first; `before` is the time and id of the last one of a page.

        Payloads have only their hashes, unless `with_payloads` is set.
        """
        limit = _bounded(limit)
        found = self._newest(log(where, limit, before), limit)
        return [record_of(row, with_payloads=with_payloads) for row in found]

    def around(self, record: Record, *, within: int, limit: int) -> list[Record]:
        """Calls of the same caller, client and tool near a call, the earliest first."""
        found = self._rows(around(record, within, _bounded(limit)))
        return [record_of(row, with_payloads=False) for row in found]

    def near_refused(self, where: Filter, *, within: int, limit: int) -> list[Step]:
        """The latest calls refused for their input, and the calls of the same callers near them."""
        found = self._rows(near_refused(where, within, _bounded(limit)))
        return [Step(*row) for row in found]

    def span(self, where: Filter) -> Span | None:
        """The number of matching calls and their times; None without any."""
        for calls, first, last in self._rows(span(where)):
            if calls:
                return Span(calls, first, last)
        return None

    def rates(self, where: Filter, by: GroupBy) -> list[Rate]:
        """Rates by group, the largest first; an hour is named by its first millisecond."""
        found = self._rows(rates(where, by))
        return [Rate(*counts, *quantiles) for *counts, quantiles in found]

    def trend(self, where: Filter, by: GroupBy, *, spans: int = 24) -> Trend:
        """The number of calls of each group over time, in at most this number of spans."""
        latest = self._rows(last(where))
        if not latest or latest[0][0] is None:
            return Trend(0, HOUR, {})
        parts = _spans(where, latest[0][0], max(1, _bounded(spans)))
        counts: dict[str, list[int]] = {}
        for group, start, calls in self._rows(trend(where, by, parts)):
            # Calls may be added between the two queries.
            number = min(max(0, (start - parts.start) // parts.step), len(parts) - 1)
            counts.setdefault(group, [0] * len(parts))[number] += calls
        return Trend(parts.start, parts.step, counts)

    def causes(self, where: Filter, *, limit: int = 100) -> list[Cause]:
        """The commonest error keys, with the number of all calls of their tools in the window."""
        return [Cause(*row) for row in self._rows(causes(where, _bounded(limit)))]

    def notes(self, where: Filter, *, limit: int = 1_000, of_outputs: bool = False) -> list[Noted]:
        """Issues, warnings and changes by place and rule, the commonest first."""
        found = self._rows(notes(where, _bounded(limit), of_outputs=of_outputs))
        return [
            Noted(tool, version, *parts_of_place(place), *counts)
            for tool, version, place, *counts in found
        ]


def _bounded(limit: int) -> int:
    return max(0, min(limit, MAX_ROWS))
