"""A full-text index over a catalog, ranked by BM25 (SQLite's FTS5, in memory).

It covers names, titles, tags, descriptions and parameters. A query consists of words only, and
cannot use SQLite's operators. The caller passes the tools that may be found as `visible`.
"""

from __future__ import annotations

import re
import threading
import unicodedata
import weakref
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from callpact.errors import UsageError
from callpact.schema import (
    is_array,
    is_object,
)
from callpact.schema.targets import (
    resolve,
)

if TYPE_CHECKING:
    from sqlite3 import Connection

    from callpact.catalog import Catalog
    from callpact.tool import Tool

MAX_QUERY_LENGTH = 1_000
"""Characters of a query that are read; the rest is ignored."""
MAX_QUERY_WORDS = 24
"""Distinct words of a query that are searched, the first ones; stop words do not count."""
MAX_LIMIT = 50
"""Hits on one page."""
MAX_TEXT_LENGTH = 4_000
"""Characters of one description that are indexed."""
MAX_PARAMETERS = 64
"""Subschemas of one tool's input whose names and descriptions are indexed, the outermost first."""
MAX_WORD_LENGTH = 200
"""Characters of one word, in tools and in queries alike."""
MAX_LINE_LENGTH = 200
"""Characters of a hit's description."""
MAX_REQUIRED = 20
"""Required parameters that a hit names."""
MIN_PREFIX_LENGTH = 3
"""Characters from which on the last word of a query also matches as a prefix."""
MIN_WEIGHED = 1_000
"""Tools from which on a word that more than half of them hold is ignored beside rarer ones."""

_WEIGHTS = {
    "name": 10.0,
    "title": 6.0,
    "namespace": 4.0,
    "tags": 4.0,
    "description": 3.0,
    "parameters": 1.0,
}
_COLUMNS = ", ".join(_WEIGHTS)
_CREATE = (
    f"CREATE VIRTUAL TABLE tools USING fts5({_COLUMNS}, content='', "
    "tokenize='porter unicode61 remove_diacritics 2')"
)
_INSERT = f"INSERT INTO tools(rowid, {_COLUMNS}) VALUES (?, {', '.join('?' * len(_WEIGHTS))})"  # noqa: S608 - constants
_RANK = (
    f"SELECT rowid, bm25(tools, {', '.join(map(str, _WEIGHTS.values()))}) "  # noqa: S608 - constants
    "FROM tools WHERE tools MATCH ? ORDER BY rowid"
)
_COUNT = "SELECT count(*) FROM (SELECT 1 FROM tools WHERE tools MATCH ? LIMIT ?)"

_WORD = re.compile(r"[^\W_]+(?:_+[^\W_]+)*")
_PART = re.compile(
    r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+"
    # Scripts without spaces: every character is a word.
    r"|[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_A-Za-z0-9\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
)
# Where one part of a word ends and the next begins; lookbehind, as few letters start a part.
_COMPOUND = re.compile(
    r"[A-Z0-9_](?:(?<=[a-z_].)|(?<=[A-Z][0-9])|(?<=[0-9])(?=[A-Za-z])|(?<=[A-Z][A-Z])(?=[a-z]))"
)
_SENTENCE_END = re.compile(r"[.!?](?=\s+[^\sa-z])|\n\s*\n")
_STOP_WORDS = frozenset(
    _WORD.findall(
        "a about all am an and any are as at be been but by can could did do does for from give had "
        "has have how i if in into is it its let me my need of on or our please should so some tell "
        "than that the their them then there these they this those to tool tools use using want "
        "was we were what when where which while who whose why will with would you your"
    )
)

Visible = Callable[["Tool"], bool] | Collection[str]
"""The tools that may be found: a predicate, or their ids."""


class SearchHit(Struct, frozen=True):
    """One tool that was found, in short."""

    id: str
    wire_name: str
    title: str | None
    description: str
    """The first sentence, on one line."""
    required: tuple[str, ...]
    """The names of the required parameters."""
    disabled: str | None = None
    """Why it cannot be called; None if it can."""


class Page(Struct, frozen=True):
    """Some of the hits, the best first; `total` counts them all, `next` is the following offset."""

    hits: tuple[SearchHit, ...]
    total: int
    next: int | None = None


class ToolIndex:
    """A search index over the tools of a catalog; filled by the first search, then only read.

    It may be used from several threads.

    Raises:
        UsageError: this Python has no SQLite with FTS5.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._tools = sorted(catalog, key=lambda tool: tool.id)
        self._lock = threading.Lock()
        self._is_filled = False
        self._connection = _connect()
        weakref.finalize(self, self._connection.close)

    def search(
        self,
        query: str,
        limit: int = 10,
        offset: int = 0,
        *,
        namespace: str | None = None,
        tags: Collection[str] = (),
        visible: Visible | None = None,
    ) -> Page:
        """Find the tools that contain words of the query, the best by BM25 first.

        A tool with the query as its name comes first. A query without words finds every tool, in
        the order of ids. Tools must be in the `namespace`, have all `tags` and be `visible` to be
        found or counted.

        Raises:
            UsageError: the limit or the offset is out of range.
        """
        if not 1 <= limit <= MAX_LIMIT:
            raise UsageError(f"limit must be 1 to {MAX_LIMIT}, got {limit!r:.100}")
        if offset < 0:
            raise UsageError(f"offset must be 0 or more, got {offset!r:.100}")
        tools = self._ranked(query)
        if namespace is not None:
            tools = [tool for tool in tools if tool.namespace == namespace]
        if tags:
            tools = [tool for tool in tools if all(tag in tool.tags for tag in tags)]
        if callable(visible):
            tools = list(filter(visible, tools))
        elif visible is not None:
            tools = [tool for tool in tools if tool.id in visible]
        end = offset + limit
        return Page(
            tuple(map(_hit, tools[offset:end])), len(tools), end if end < len(tools) else None
        )

    def _ranked(self, query: str) -> list[Tool]:
        words = query_words(query)
        tools = [self._tools[row] for row in self._rows(words)] if words else self._tools
        named = self.catalog.get(query.strip())
        if named is None:
            return tools
        return [named, *(tool for tool in tools if tool is not named)]

    def _rows(self, words: list[str]) -> list[int]:
        with self._lock:
            if not self._is_filled:
                self._fill()
            last = f'"{words[-1]}"'
            begun = f"{last}*" if len(words[-1]) >= MIN_PREFIX_LENGTH else None
            terms = [f'"{word}"' for word in words]
            if begun is not None and not self._holders(last, 1):
                terms[-1], begun = begun, None
            rows = self._matches(" OR ".join(self._significant(terms)))
            if begun is None or self._is_common(begun):
                return rows
            # Whole words first: else "time" would also find timers.
            known = set(rows)
            others = self._matches(f"{begun} NOT {last}")
            return rows + [row for row in others if row not in known]

    def _significant(self, terms: list[str]) -> list[str]:
        """The terms without those that occur in most tools, which BM25 gives no weight."""
        if len(self._tools) < MIN_WEIGHED:
            return terms
        return [term for term in terms if not self._is_common(term)] or terms

    def _is_common(self, term: str) -> bool:
        half = len(self._tools) // 2
        return len(self._tools) >= MIN_WEIGHED and self._holders(term, half + 1) > half

    def _holders(self, term: str, most: int) -> int:
        return self._connection.execute(_COUNT, (term, most)).fetchone()[0]

    def _matches(self, expression: str) -> list[int]:
        # Rows come in the order of ids, which the stable sort keeps; sorting by both in SQLite
        # takes twice as long.
        ranked = self._connection.execute(_RANK, (expression,)).fetchall()
        ranked.sort(key=itemgetter(1))
        return [row for row, _ in ranked]

    def _fill(self) -> None:
        rows = ((row, *_columns(tool)) for row, tool in enumerate(self._tools))
        with self._connection:
            self._connection.executemany(_INSERT, rows)
            self._connection.execute("INSERT INTO tools(tools) VALUES ('optimize')")
        self._connection.execute("PRAGMA query_only = ON")
        self._is_filled = True


def _connect() -> Connection:
    try:
        import sqlite3  # Some builds of Python lack it.
    except ImportError as error:
        raise _no_index(error) from None
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        make_table(connection)
    except UsageError:
        connection.close()
        raise
    return connection


def make_table(connection: Connection) -> None:
    """Create the empty index.

    Raises:
        UsageError: the SQLite behind the connection has no FTS5.
    """
    from sqlite3 import OperationalError

    try:
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(_CREATE)
    except OperationalError as error:
        raise _no_index(error) from None


def _no_index(error: Exception) -> UsageError:
    return UsageError(
        f"searching tools needs SQLite with FTS5, and this Python has none ({error}); "
        "take a build of Python that has it, or list all tools instead of searching them"
    )


# --- words ----------------------------------------------------------------------------------


def query_words(query: str) -> list[str]:
    """The distinct words of a query: letters and digits only."""
    words = list(dict.fromkeys(_words(query[:MAX_QUERY_LENGTH])))
    significant = [word for word in words if word not in _STOP_WORDS]
    return (significant or words)[:MAX_QUERY_WORDS]


def _words(text: str) -> list[str]:
    """Every word in lower case; a compound word is followed by its parts.

    `getTokenPrice` and `get_token_price` give gettokenprice, get, token, price, gettoken and
    tokenprice: adjacent parts are often written as one word (GitHub, OpenAI).
    """
    if not text.isascii():
        marked = unicodedata.normalize("NFKD", text)
        text = "".join(letter for letter in marked if not unicodedata.combining(letter))
    return [form for word in _WORD.findall(text) for form in _forms(word[:MAX_WORD_LENGTH])]


@lru_cache(maxsize=20_000)
def _forms(word: str) -> tuple[str, ...]:
    parts = [part.lower() for part in _PART.findall(word)]
    if len(parts) < 2:
        return (word.lower(),)
    # Single letters and digits of a longer word are useless alone.
    significant = [part for part in parts if len(part) > 1 or not part.isascii()]
    pairs = map("".join, pairwise(parts))
    return tuple(dict.fromkeys(("".join(parts), *significant, *pairs)))


def _columns(tool: Tool) -> tuple[str, ...]:
    """The texts of one row, each as plain words."""
    texts = (
        tool.name,
        tool.title or "",
        tool.namespace,
        " ".join((*tool.tags, *tool.keywords, tool.search_hint)),
        tool.description,
        " ".join(_parameter_texts(tool.contract.input)),
    )
    return tuple(_plain_words(text[:MAX_TEXT_LENGTH]) for text in texts)


def _plain_words(text: str) -> str:
    # SQLite splits most texts in the same way, in a tenth of the time.
    if text.isascii() and _COMPOUND.search(text) is None:
        return text
    return " ".join(_words(text))


def _parameter_texts(root: Any) -> Iterator[str]:
    """Names and descriptions of parameters and of their subschemas, level by level."""
    pending: list[Any] = [root]
    seen: set[int] = set()
    for node in pending:  # It grows while it is read.
        if not is_object(node) or id(node) in seen:
            continue
        if len(seen) >= MAX_PARAMETERS:
            return
        seen.add(id(node))
        for key in ("title", "description"):
            if node is not root and isinstance(node.get(key), str):
                yield node[key]
        properties = node.get("properties")
        if is_object(properties):
            yield from properties
            pending += properties.values()
        if isinstance(node.get("$ref"), str):
            pending.append(resolve(root, node["$ref"]))
        pending.append(node.get("items"))
        for key in ("allOf", "anyOf", "oneOf"):
            if is_array(node.get(key)):
                pending += node[key]


# --- hits -----------------------------------------------------------------------------------


def _hit(tool: Tool) -> SearchHit:
    return SearchHit(
        tool.id,
        tool.wire_name,
        tool.title,
        first_sentence(tool.description),
        _required(tool),
        None if tool.disabled is None else tool.disabled.reason,
    )


def _required(tool: Tool) -> tuple[str, ...]:
    schema = tool.contract.input
    names = schema.get("required", ()) if is_object(schema) else ()
    return tuple(names[:MAX_REQUIRED])


def first_sentence(text: str) -> str:
    """The first sentence of a description on one line, cut between words if it is long."""
    text = text[:MAX_TEXT_LENGTH].strip()
    end = _SENTENCE_END.search(text)
    line = " ".join((text[: end.end()] if end else text).split())
    if len(line) <= MAX_LINE_LENGTH:
        return line
    cut = line[: MAX_LINE_LENGTH - 1]
    return f"{cut.rpartition(' ')[0] or cut}…"
