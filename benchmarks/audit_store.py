"""Guards: what a record costs in the store of files, and how fast questions to it are.

Held to the figures of the decision for it (`docs/decisions/0028`): from a line of the journal to a
file at most 40 µs of CPU; at most 200 bytes of disk for a record with two payloads; at 5 million
records of 2,000 callers every question takes under 1 s of CPU, which is 0.5 s on two idle processors.

`python benchmarks/audit_store.py [RECORDS] [QUESTIONS]`: how many records, and how many questions with
one filter or two are drawn by chance.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from callpact import Contract, Tool
from callpact.audit import Record, drift_of, repairs_of, retry_chain
from callpact.audit.journal.lines import encode_line
from callpact.audit.journal.segments import Journal
from callpact.audit.store import Filter, GroupBy, Store
from callpact.audit.store.compactor import Compactor
from callpact.audit.store.parquet import ParquetStore
from measure import table

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "audit"))
from generated import BEGIN, DAY, HOUR, records

RECORDS = 5_000_000
QUESTIONS = 200
CALLERS, TOOLS, DAYS = 2_000, 200, 30
BATCH = 20_000
LINES = 100_000
ROUNDS = 3
CPU_SECONDS = 1.0
_POOL = 50_000
_ITEM = {"properties": {"id": {"type": "integer"}, "price": {"type": "string"}}}
_PRICES = {"properties": {"items": {"type": "array", "items": _ITEM}}, "required": ["total"]}

Question = tuple[str, Callable[[], Any]]


async def _never(*_):
    raise RuntimeError("nothing is called here")


DRIFTING = Tool(
    id="coingecko.price",
    description="Prices.",
    contract=Contract(input={"type": "object"}, output=_PRICES, policy="warn"),
    handler=_never,
)


def stream(count: int) -> Iterator[Record]:
    """Records over a month, newest last: those of a pool, each time with another id and time."""
    pool = list(records(_POOL, days=DAYS, tools=TOOLS, callers=CALLERS))
    chance = random.Random(3)
    step = DAYS * DAY / count
    for number in range(count):
        record = pool[int(chance.random() * _POOL)]
        yield msgspec.structs.replace(
            record,
            id=f"1f0c9a2e-77b1-4c3d-8e5f-{10**11 + number}",
            at=BEGIN + int(number * step),
            ms=round(record.ms * (0.5 + chance.random()), 3),
        )


def fill(store: Store, count: int, batch: int = BATCH) -> float:
    """Add records; the CPU seconds that it took."""
    source, taken, added = stream(count), 0.0, 0
    while some := list(itertools.islice(source, batch)):
        begun = time.process_time()
        added += store.add(some)
        taken += time.process_time() - begun
        if added % (batch * 25) == 0:
            print(f"{added:,} records, {taken / added * 1e6:.1f} µs of CPU each", flush=True)
    begun = time.process_time()
    store.tidy()
    return taken + time.process_time() - begun


def moving(
    folder: Path, store: Store, cpu: Callable[[], float] = lambda: 0.0
) -> tuple[float, float]:
    """CPU seconds for each line of a journal that is moved, here and elsewhere."""
    journal = Journal(folder / "journal")
    for record in stream(LINES):
        journal.append(encode_line(record))
    journal.close()
    here, there = time.process_time(), cpu()
    with Compactor(folder / "journal", store) as compactor:
        if not compactor.flush(600):
            raise TimeoutError
    return (time.process_time() - here) / LINES, (cpu() - there) / LINES


GROUPS: tuple[GroupBy, ...] = (
    *("tool", "namespace", "caller", "client", "gate", "code", "key", "version", "via", "hour"),
)
FILTERS: tuple[dict[str, str], ...] = (
    *({"tool": text} for text in ("coingecko.search", "shop.*", "*e*")),
    *({"caller": text} for text in ("agent-1", "agent-*", "script-9*", "")),
    *({"client": text} for text in ("cursor 1.4", "c*")),
    *({"gate": text} for text in ("input", "handler")),
    *({"namespace": "mail"}, {"version": "1.1.0"}, {"via": "http"}, {"via": "mcp*"}),
    *({"outcome": "ok"}, {"outcome": "failed"}, {"key": "*:/limit:*"}, {"code": "timeout"}),
)
WINDOWS = ({}, {"since": BEGIN + 3 * DAY + 777, "until": BEGIN + 23 * DAY + 5 * HOUR + 9})


def questions(store: Store) -> Iterator[Question]:
    """What the command line and a console ask."""
    whole, window = Filter(), Filter(**WINDOWS[1])
    for by in GROUPS:
        yield f"rates by {by}", partial(store.rates, whole, by)
    yield "rates by tool, 20 days", partial(store.rates, window, "tool")
    yield "rates by caller of a pattern", partial(store.rates, Filter(caller="agent-*"), "caller")
    day = Filter(since=BEGIN + 29 * DAY)
    yield "rates by tool, the last day", partial(store.rates, day, "tool")
    yield "trend by tool", partial(store.trend, Filter(since=BEGIN), "tool")
    yield "causes", partial(store.causes, whole)
    yield "causes, the last day", partial(store.causes, day)
    yield "notes", partial(store.notes, whole)
    yield "the newest 50", partial(store.log, whole, limit=50)
    yield "the newest 50 of a caller", partial(store.log, Filter(caller="agent-1999"), limit=50)
    yield "the newest 50 that were refused", partial(store.log, Filter(gate="input"), limit=50)
    refused = store.log(Filter(gate="input"), limit=1)[0]
    yield "a record by its id", partial(store.find, refused.id)
    yield "a record by the end of its id", partial(store.ids_like, "", refused.id[-7:])
    yield "a retry chain", partial(retry_chain, store, refused)
    yield "repairs of the latest 50", partial(repairs_of, store, whole)
    yield "drift of a tool", partial(drift_of, store, DRIFTING)


def drawn(store: Store, count: int) -> Iterator[Question]:
    """Questions with one filter or two, by chance."""
    chance = random.Random(5)
    for _ in range(count):
        filters = chance.sample(FILTERS, chance.randint(1, 2))
        parts = {**chance.choice(WINDOWS), **filters[0], **filters[-1]}
        where, by = Filter(**parts), chance.choice(GROUPS)
        kind = chance.randrange(4)
        if kind == 0:
            yield f"log {parts}", partial(store.log, where, limit=50)
        elif kind == 1:
            yield f"causes {parts}", partial(store.causes, where)
        elif kind == 2:
            yield f"trend by {by} {parts}", partial(store.trend, where, by)
        else:
            yield f"rates by {by} {parts}", partial(store.rates, where, by)


def timed(asked: Iterator[Question], rounds: int = ROUNDS) -> list[tuple[str, float, float]]:
    """The least CPU of each here, and the least time by the clock."""
    found: list[tuple[str, float, float]] = []
    for name, ask in asked:
        times: list[tuple[float, float]] = []
        for _ in range(rounds):
            begun, clock = time.process_time(), time.perf_counter()
            ask()
            times.append((time.process_time() - begun, time.perf_counter() - clock))
        cpu, clock = (min(each) for each in zip(*times, strict=True))
        found.append((name, cpu, clock))
    return found


def report(store: Store, count: int) -> None:
    """Ask, and print what each took."""
    _print("Questions", timed(questions(store)))
    found = sorted(timed(drawn(store, count), 1), key=lambda each: -each[1])
    _print(f"The slowest of {count} with one filter or two", found[:5])


def _print(title: str, found: list[tuple[str, float, float]]) -> None:
    named = ((f"{name}; {clock:.2f} s by the clock", cpu) for name, cpu, clock in found)
    table(title, [(name, cpu, cpu / CPU_SECONDS, f"{CPU_SECONDS:g} s") for name, cpu in named])


def main(count: int, asked: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        here, _ = moving(Path(folder), ParquetStore(folder))
        rows = [("from a line of the journal to a file", here, here / 40e-6, "40 µs")]
        table("Moving", rows)
    with tempfile.TemporaryDirectory() as folder:
        store = ParquetStore(folder)
        taken = fill(store, count)
        each = store.size / count
        print(f"\n{count:,} records, {taken / count * 1e6:.1f} µs of CPU each to add,", end=" ")
        print(f"{each:.0f} bytes each with payloads (target: 200), {len(store.stored())} files")
        report(store, asked)
        store.close()


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS,
        int(sys.argv[2]) if len(sys.argv) > 2 else QUESTIONS,
    )
