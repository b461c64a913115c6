"""Guards: what a record costs in the SQLite store, and how fast questions to it are.

Indexing one with two payloads takes at most 40 µs of CPU; beyond payloads one takes at most 400
bytes; at 5 million records every question answers in under 0.5 s.

`python benchmarks/audit_store.py [RECORDS] [SECONDS]` fills a store for so many seconds at most, and
says how many records there are when it asks.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from callpact.audit.record import Record
from callpact.audit.sqlite import SqliteStore
from callpact.audit.store import Filter
from measure import table

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "audit"))
from generated import BEGIN, DAY, HOUR, records

RECORDS = 5_000_000
SECONDS = 180.0
DAYS = 30
BATCH = 1_000
_POOL = 50_000


def stream(count: int, *, tools: int = 200, callers: int = 100) -> Iterator[Record]:
    """Records over a month, newest last: those of a pool, each time with another id and time."""
    pool = list(records(_POOL, days=DAYS, tools=tools, callers=callers, payloads=False))
    chance = random.Random(3)
    step = DAYS * DAY / count
    for number in range(count):
        record = pool[int(chance.random() * _POOL)]
        yield msgspec.structs.replace(
            record,
            id=f"1f0c9a2e-77b1-4c3d-8e5f-{10**11 + number}",
            at=BEGIN + int(number * step),
            version="1.1.0" if number > count * 0.6 else "1.0.0",
        )


def fill(store: SqliteStore, count: int, seconds: float) -> tuple[int, float]:
    """Add records for some seconds; how many there are, and the CPU seconds of adding them."""
    end, source = time.monotonic() + seconds, stream(count)
    # The journal is not at stake here, and the disk is not what is measured.
    store._file.execute("PRAGMA synchronous = OFF")
    added, taken = 0, 0.0
    while time.monotonic() < end and (batch := list(itertools.islice(source, 5 * BATCH))):
        begun = time.process_time()
        added += store.add(batch)
        taken += time.process_time() - begun
    return added, taken


def questions(store: SqliteStore, end: int) -> dict[str, float]:
    """Seconds that each question takes, the second time it is asked."""
    groups = ("tool", "namespace", "caller", "gate", "code", "key", "version", "via", "hour")
    day, odd = Filter(since=end - DAY), Filter(since=end - 20 * DAY + 1_234_567, until=end - 777)
    tool, caller = Filter(tool="shop.search"), Filter(caller="agent-7")
    rare = Filter(caller="agent-90", tool="geo.*", key="*:/limit:*")
    asked = {f"rates by {by}": lambda by=by: store.rates(Filter(), by) for by in groups}
    asked |= {f"rates by {by}, 20 odd days": lambda by=by: store.rates(odd, by) for by in groups}
    asked |= {
        "rates by tool, one day": lambda: store.rates(day, "tool"),
        "rates by hour of a tool": lambda: store.rates(tool, "hour"),
        "rates by tool of a caller": lambda: store.rates(caller, "tool"),
        "rates by caller of a tool": lambda: store.rates(tool, "caller"),
        "rates by caller, failed": lambda: store.rates(Filter(outcome="failed"), "caller"),
        "causes": lambda: store.causes(Filter()),
        "causes, 20 odd days": lambda: store.causes(odd),
        "causes of a caller": lambda: store.causes(caller),
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
        "log of nothing": lambda: store.log(Filter(tool="nothing.here")),
        "log, 10,000 rows": lambda: store.log(Filter(), limit=10_000),
        "log of a tool, 10,000 rows": lambda: store.log(tool, limit=10_000),
    }
    taken: dict[str, float] = {}
    for name, ask in asked.items():
        ask()
        begun = time.perf_counter()
        ask()
        taken[name] = time.perf_counter() - begun
    return taken


def indexing(folder: Path) -> float:
    """CPU seconds per record with an input and an output, in batches: the median batch."""
    store = SqliteStore(folder / "payloads.db")
    those = list(records(30_000, days=1, tools=60, callers=40))
    taken: list[float] = []
    for begin in range(0, len(those), BATCH):
        begun = time.process_time()
        store.add(those[begin : begin + BATCH])
        taken.append((time.process_time() - begun) / BATCH)
    store.close()
    return statistics.median(taken)


def main(count: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        each = indexing(folder)
        table(
            "Indexing",
            [("a record with two payloads, in batches of 1,000", each, each / 40e-6, "40 µs")],
        )
        store = SqliteStore(folder / "audit.db")
        added, taken = fill(store, count, seconds)
        end = store.log(Filter(), limit=1)[0].at
        print(f"\n{added:,} records, {taken / added * 1e6:.1f} µs of CPU each without payloads,")
        print(f"{store.size / added:.0f} bytes each, indexes and rollups included (held to 400)")
        asked = questions(store, end)
        rows = [(question, seconds, seconds / 0.5, "0.5 s") for question, seconds in asked.items()]
        table("Questions (time by the clock)", rows)
        begun = time.perf_counter()
        gone = store.retention(older_than=BEGIN + HOUR)
        print(f"\nretention: {gone:,} records in {time.perf_counter() - begun:.2f} s")
        store.close()


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS,
        float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS,
    )
