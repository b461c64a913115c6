"""Guards: what a record costs in the SQLite store, and how fast questions to it are.

Indexing one with two payloads takes at most 40 µs of CPU; beyond payloads one takes at most 400
bytes; at 5 million records every question answers in under 0.5 s.

`python benchmarks/audit_store.py [RECORDS] [SECONDS]` fills a store for so many seconds at most, and
says how many records there are when it asks. Indexing is all of it: from a line of the journal to
what is committed in the store, rollups included, in a store that knows its tools and callers.
"""

from __future__ import annotations

import gc
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import orjson

from callpact import Contract, Tool
from callpact.audit.chains import retry_chain
from callpact.audit.indexer import Indexer
from callpact.audit.lines import Head, encode_head
from callpact.audit.record import Record, payload_of
from callpact.audit.sql_store import SqlStore
from callpact.audit.sqlite import SqliteStore
from callpact.audit.store import Filter, GroupBy, Store
from callpact.audit.surveys import drift_of
from measure import table

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "audit"))
from generated import BEGIN, DAY, HOUR, records

RECORDS = 5_095_000
"""So that nearly as many wait to be rolled up as may."""
SECONDS = 180.0
DAYS = 30
BATCH = 1_000
INDEXED = 100_000
ROUNDS = 8
_POOL = 50_000
_ITEM = {"properties": {"id": {"type": "integer"}, "price": {"type": "number"}}}
_PRICES = {"properties": {"items": {"type": "array", "items": _ITEM}}, "required": ["total"]}


async def _never(*_):
    raise RuntimeError("nothing is called here")


DRIFTING = Tool(
    id="coingecko.price",
    description="Prices.",
    contract=Contract(input={"type": "object"}, output=_PRICES, policy="warn"),
    handler=_never,
)
"""One of those whose answers are kept: three in ten have another price since the last version."""


def stream(count: int, *, tools: int = 200, callers: int = 100) -> Iterator[Record]:
    """Records over a month, newest last: those of a pool, each time with another id and time."""
    pool = [
        _with_answer(number, record)
        for number, record in enumerate(
            records(_POOL, days=DAYS, tools=tools, callers=callers, payloads=False)
        )
    ]
    chance = random.Random(3)
    step = DAYS * DAY / count
    for number in range(count):
        record = pool[int(chance.random() * _POOL)]
        yield msgspec.structs.replace(
            record,
            id=f"1f0c9a2e-77b1-4c3d-8e5f-{10**11 + number}",
            at=BEGIN + int(number * step),
            version="1.1.0" if record.warnings or number > count * 0.6 else "1.0.0",
        )


def _with_answer(number: int, record: Record) -> Record:
    """Where answers change they are kept: about 600 bytes of one in ten calls."""
    if record.gate is not None or not record.tool.endswith(".price"):
        return record
    price = "12.5" if record.warnings else 12.5
    items = [{"id": number * 10 + n, "name": "a thing to buy", "price": price} for n in range(10)]
    answer = {"items": items, "total": len(items)}
    return msgspec.structs.replace(record, output=payload_of(orjson.dumps(answer)))


def fill(store: SqliteStore, count: int, seconds: float) -> tuple[int, float]:
    """Add records for some seconds; how many there are, and the CPU seconds of adding them."""
    end, source = time.monotonic() + seconds, stream(count)
    # The journal is not at stake here, and the disk is not what is measured.
    store._file.execute("PRAGMA synchronous = OFF")
    added, taken, told = 0, 0.0, 0
    while time.monotonic() < end and (batch := list(itertools.islice(source, 5 * BATCH))):
        begun = time.process_time()
        added += store.add(batch)
        taken += time.process_time() - begun
        if added >= told + count // 20:
            told = added
            print(f"{added:,} records, {taken / added * 1e6:.1f} µs of CPU each", flush=True)
    return added, taken


GROUPS: tuple[GroupBy, ...] = (
    "tool",
    "namespace",
    "caller",
    "client",
    "gate",
    "code",
    "key",
    "version",
    "via",
    "hour",
)


def sweep(store: SqlStore, end: int) -> dict[str, float]:
    """Seconds that the slowest of very many questions take: one or two filters, by each group."""
    parts = (
        Filter(tool="shop.*"),
        Filter(tool="*.search*"),
        Filter(caller="agent-*"),
        Filter(caller="*-*"),
        Filter(client="cursor*"),
        Filter(key="*:/limit:*"),
        Filter(version="1.0.0"),
        Filter(version="1.1.0"),
        Filter(via="http"),
        Filter(outcome="ok"),
    )
    both = itertools.chain(zip(parts), itertools.combinations(parts, 2))
    asked: dict[str, Callable[[], object]] = {}
    for filters, window in itertools.product(both, (Filter(), _odd(end))):
        given = [_given(each) for each in (*filters, window)]
        named = {name: value for each in given for name, value in each.items()}
        if len(named) < sum(map(len, given)):  # Two of the same part.
            continue
        shown = ", ".join(
            "20 odd days" if name == "until" else f"{name} {value}"
            for name, value in named.items()
            if name != "since"
        )
        where = Filter(**named)
        asked |= {f"rates by {by}, {shown}": partial(store.rates, where, by) for by in GROUPS}
        asked[f"a trend by tool, {shown}"] = partial(store.trend, where, "tool")
        asked[f"causes, {shown}"] = partial(store.causes, where)
        asked[f"log, {shown}"] = partial(store.log, where)
    taken = {name: _seconds(ask) for name, ask in asked.items()}
    # What seems slow is asked twice more: others may have been at work.
    for name in [name for name, seconds in taken.items() if seconds > 0.25]:
        taken[name] = min(taken[name], *(_seconds(asked[name]) for _ in range(2)))
    print(f"{len(taken)} questions with one filter or two, the slowest of them:")
    return dict(sorted(taken.items(), key=lambda item: -item[1])[:10])


def _given(where: Filter) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(where).items() if value}


def _seconds(ask: Callable[[], object]) -> float:
    begun = time.perf_counter()
    ask()
    return time.perf_counter() - begun


def _odd(end: int) -> Filter:
    return Filter(since=end - 20 * DAY + 1_234_567, until=end - 777)


def questions(store: SqliteStore, end: int) -> dict[str, float]:
    """Seconds that each question takes, the best of four times."""
    day, odd = Filter(since=end - DAY), _odd(end)
    tool, caller = Filter(tool="shop.search"), Filter(caller="agent-7")
    agents = Filter(caller="agent-*")
    rare = Filter(caller="agent-90", tool="geo.*", key="*:/limit:*")
    asked = {f"rates by {by}": lambda by=by: store.rates(Filter(), by) for by in GROUPS}
    asked |= {f"rates by {by}, 20 odd days": lambda by=by: store.rates(odd, by) for by in GROUPS}
    asked |= {
        "rates by tool, failed": lambda: store.rates(Filter(outcome="failed"), "tool"),
        "rates by tool of a version": lambda: store.rates(Filter(version="1.1.0"), "tool"),
        "rates by key of a door": lambda: store.rates(Filter(via="http"), "key"),
        "rates by hour of a tool's results": lambda: store.rates(
            Filter(tool="shop.search", outcome="ok"), "hour"
        ),
        "rates by hour of a tool and key": lambda: store.rates(
            Filter(tool="shop.search", key="*:/limit:*"), "hour"
        ),
        "rates by caller, failed, 20 odd days": lambda: store.rates(
            msgspec.structs.replace(odd, outcome="failed"), "caller"
        ),
        "rates by caller, results, 20 odd days": lambda: store.rates(
            msgspec.structs.replace(odd, outcome="ok"), "caller"
        ),
        "rates by hour of a door's results": lambda: store.rates(
            Filter(via="http", outcome="ok"), "hour"
        ),
        "rates by hour of a namespace and version": lambda: store.rates(
            Filter(namespace="shop", version="1.1.0"), "hour"
        ),
        "rates by hour of many tools and callers": lambda: store.rates(
            Filter(tool="shop.*", caller="agent-*"), "hour"
        ),
        "rates by hour of most callers' results": lambda: store.rates(
            Filter(caller="agent-*", outcome="ok"), "hour"
        ),
        "rates by hour of a third of all calls": lambda: store.rates(
            Filter(tool="*.search*"), "hour"
        ),
        "rates by key of two thirds of all callers": lambda: store.rates(agents, "key"),
        "rates by tool of two thirds of all callers": lambda: store.rates(agents, "tool"),
        "a trend by tool": lambda: store.trend(Filter(), "tool"),
        "a trend by tool, 20 odd days": lambda: store.trend(odd, "tool"),
        "a trend by tool of two thirds of all callers": lambda: store.trend(agents, "tool"),
        "rates by tool, one day": lambda: store.rates(day, "tool"),
        "rates by hour of a tool": lambda: store.rates(tool, "hour"),
        "rates by tool of a caller": lambda: store.rates(caller, "tool"),
        "rates by caller of a tool": lambda: store.rates(tool, "caller"),
        "rates by caller, failed": lambda: store.rates(Filter(outcome="failed"), "caller"),
        "causes": lambda: store.causes(Filter()),
        "causes, 20 odd days": lambda: store.causes(odd),
        "causes of a tool": lambda: store.causes(tool),
        "causes of a caller": lambda: store.causes(caller),
        "drift": lambda: drift_of(store, DRIFTING),
        "drift of a version": lambda: drift_of(store, DRIFTING, Filter(version="1.1.0")),
        "drift of a day": lambda: drift_of(store, DRIFTING, day),
        "notes": lambda: store.notes(Filter()),
        "notes of a tool": lambda: store.notes(tool),
        "log": lambda: store.log(Filter()),
        "log, a page in the middle": lambda: store.log(Filter(), before=(end - 15 * DAY, "")),
        "log of a tool": lambda: store.log(tool),
        "log of a pattern": lambda: store.log(Filter(tool="*.price*")),
        "log of a caller": lambda: store.log(caller),
        "log of what failed": lambda: store.log(Filter(outcome="failed")),
        "log of a key": lambda: store.log(Filter(key="*:/items/*/id:type")),
        "log of a rare caller, tool and key": lambda: store.log(rare),
        "log of all callers that fit, a key": lambda: store.log(
            Filter(caller="agent-*", key="*:/price:*")
        ),
        "log of an old version": lambda: store.log(Filter(version="1.0.0", gate="access")),
        "retry chains of 50 rejected calls of one day": lambda: [
            retry_chain(store, record)
            for record in store.log(Filter(since=end - DAY, gate="input"), limit=50)
        ],
        "log of a door": lambda: store.log(Filter(via="mcp*")),
        "log of nothing": lambda: store.log(Filter(tool="nothing.here")),
        "log, 10,000 rows": lambda: store.log(Filter(), limit=10_000),
        "log of a tool, 10,000 rows": lambda: store.log(tool, limit=10_000),
    }
    taken: dict[str, float] = {}
    for name, ask in asked.items():
        tries: list[tuple[float, float]] = []
        for _ in range(4):
            begun, used = time.perf_counter(), time.process_time()
            ask()
            tries.append((time.perf_counter() - begun, time.process_time() - used))
        taken[name], used = min(tries)
        print(f"{name}: {taken[name]:.3f} s, {used:.3f} s of CPU", flush=True)
    return taken


class _Watched:
    """A store that notes how much CPU was used when each batch was in it, here and elsewhere."""

    def __init__(self, store: Store, elsewhere: Callable[[], float]) -> None:
        self._store = store
        self._elsewhere = elsewhere
        self.used: list[tuple[float, float]] = []

    def add(self, those: Sequence[Record]) -> int:
        added = self._store.add(those)
        self.note()
        return added

    def note(self) -> None:
        self.used.append((time.process_time(), self._elsewhere()))


def indexing(
    folder: Path,
    new_store: Callable[[Path], Store],
    elsewhere: Callable[[], float] = lambda: 0.0,
) -> tuple[float, float]:
    """CPU seconds per record with an input and an output, here and elsewhere.

    200 tools and 100 callers, as many calls a day as 5 million in a month. Some stores are given
    the same batches; of each batch the least counts: what it takes while others are quiet.
    """
    whole = INDEXED + INDEXED // 2
    days = whole / (RECORDS / DAYS)
    lines = [_line(record) for record in records(whole, days=days, tools=200, callers=100)]
    parts = b"".join(lines[: INDEXED // 2]), b"".join(lines[INDEXED // 2 :])
    del lines
    least: list[tuple[float, ...]] = []
    for number in range(ROUNDS):
        store = new_store(folder / f"{number}.db")
        watched = _Watched(store, elsewhere)
        journal = folder / f"journal-{number}"
        journal.mkdir()
        indexer = Indexer(journal, watched)
        for part, data in enumerate(parts):
            (folder / "whole").write_bytes(data)
            gc.collect()
            watched.used.clear()
            watched.note()
            (folder / "whole").rename(journal / f"{part:020}-1.jsonl")
            if not indexer.flush(timeout=300):
                raise RuntimeError("the store does not take records")
        indexer.close()
        if indexer.indexed != whole:
            raise RuntimeError(f"{indexer.indexed} of {whole} records are in the store")
        store.close()
        taken = [
            (here[1] - here[0], there[1] - there[0])
            for here, there in (zip(*pair, strict=True) for pair in pairwise(watched.used))
        ]
        least = [tuple(map(min, *both)) for both in zip(taken, least or taken, strict=True)]
        print("indexing:", *_each(taken), "so far at least", *_each(least), flush=True)
    return tuple(sum(column) / INDEXED for column in zip(*least, strict=True))


def _each(taken: Sequence[tuple[float, ...]]) -> list[str]:
    sums = (sum(column) / INDEXED for column in zip(*taken, strict=True))
    return [f"{each * 1e6:.1f} µs" for each in sums if each]


def _line(record: Record) -> bytes:
    """A line as `recorder.py` writes it."""
    contract = f"{sum(record.tool.encode()):016x}"  # No tool has a new one meanwhile.
    head = Head(record.tool, record.kind, "1.1.0", contract, record.policy)
    own = (record.id, record.at, record.ms, record.via, record.client, record.caller)
    sent, given = (
        None if p is None else orjson.Fragment(p.json) for p in (record.input, record.output)
    )
    issues, warnings, changes = (
        [(note.code, note.path, note.message, note.before) for note in notes]
        for notes in (record.issues, record.warnings, record.changes)
    )
    told = [
        orjson.Fragment(encode_head(head)),
        *own,
        record.parent,
        record.count,
        None,
        sent,
        given,
    ]
    if record.gate is not None or warnings or record.source != "local":
        told += [record.gate, record.code, issues, record.source or None, record.status]
        told += [record.message, record.path, warnings, changes]
    return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)


def beyond_payloads(store: SqlStore) -> int:
    """Bytes of a store without the JSON in it."""
    with store._engine.reading():
        row = store._engine.row("SELECT CAST(sum(length(json)) AS bigint) FROM payloads")
    return store.size - (row[0] or 0)


def rows_of(asked: dict[str, float]) -> list[tuple[str, float, float, str]]:
    """Questions as the rows of a table."""
    return [(question, seconds, seconds / 0.5, "0.5 s") for question, seconds in asked.items()]


def main(count: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        each, _ = indexing(folder, SqliteStore)
        table(
            "Indexing",
            [("a record with two payloads, all in all", each, each / 40e-6, "40 µs")],
        )
        store = SqliteStore(folder / "audit.db")
        added, taken = fill(store, count, seconds)
        end = store.log(Filter(), limit=1)[0].at
        print(f"\n{added:,} records, {taken / added * 1e6:.1f} µs of CPU each,")
        print(f"{beyond_payloads(store) / added:.0f} bytes each beyond payloads (held to 400)")
        asked = questions(store, end)
        table("Questions (time by the clock)", rows_of(asked))
        table("One filter or two", rows_of(sweep(store, end)))
        begun = time.perf_counter()
        gone = store.retention(older_than=BEGIN + HOUR)
        print(f"\nretention: {gone:,} records in {time.perf_counter() - begun:.2f} s")
        store.close()


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS,
        float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS,
    )
