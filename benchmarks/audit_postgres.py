"""Guards: what a record costs in the PostgreSQL store, here and on the server, and its questions.

Held to the figures of `audit_store.py`: 40 µs of CPU for a record with two payloads on this side,
400 bytes beyond payloads, 0.5 s for every question. The server is a real one that lives as long as
this runs (`tests/support/postgres.py`).

`python benchmarks/audit_postgres.py [RECORDS] [SECONDS]`
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from pathlib import Path

from audit_store import BATCH, beyond_payloads, indexing, questions, rows_of, stream, sweep
from callpact.audit.postgres import PostgresStore
from callpact.audit.store import Filter
from measure import table

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "audit"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from generated import BEGIN, DAY

from postgres import Server

RECORDS = 500_000
SECONDS = 180.0


def cpu_of_server(server: Server) -> float:
    """CPU seconds of the processes of a server so far (Linux)."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
        except OSError:  # It has just ended.
            continue
        if int(fields[1]) == server._process.pid:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def fill(store: PostgresStore, count: int, seconds: float) -> tuple[int, float]:
    """Add records for some seconds; how many there are, and the CPU seconds of it on this side."""
    end, source = time.monotonic() + seconds, stream(count)
    added, taken = 0, 0.0
    while time.monotonic() < end and (batch := list(itertools.islice(source, 5 * BATCH))):
        begun = time.process_time()
        added += store.add(batch)
        taken += time.process_time() - begun
    return added, taken


def main(count: int, seconds: float) -> None:
    server = Server()
    try:
        with tempfile.TemporaryDirectory() as folder:
            here, there = indexing(
                Path(folder),
                lambda _: PostgresStore(server.new_database()),
                lambda: cpu_of_server(server),
            )
        table(
            "Indexing",
            [
                ("a record with two payloads, all in all", here, here / 40e-6, "40 µs"),
                ("the same on the server", there, there / 40e-6, "40 µs"),
            ],
        )
        store = PostgresStore(server.new_database())
        begun = time.perf_counter()
        added, taken = fill(store, count, seconds)
        whole = time.perf_counter() - begun
        # As it does by itself within a minute, once it is left in peace.
        store._engine._run(store._engine._connection.execute("VACUUM ANALYZE"))
        end = store.log(Filter(), limit=1)[0].at
        print(
            f"\n{added:,} records in {whole:.0f} s, {taken / added * 1e6:.1f} µs of CPU each here,"
        )
        print(f"{beyond_payloads(store) / added:.0f} bytes each beyond payloads (held to 400)")
        asked = questions(store, end)
        table("Questions (time by the clock)", rows_of(asked))
        table("One filter or two", rows_of(sweep(store, end)))
        begun = time.perf_counter()
        gone = store.retention(older_than=BEGIN + DAY + DAY // 2)
        print(f"\nretention of a day and a half: {gone:,} records", end=" ")
        print(f"in {time.perf_counter() - begun:.2f} s")
        store.close()
    finally:
        server.close()


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS,
        float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS,
    )
