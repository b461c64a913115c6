"""Reports: what a record costs in the PostgreSQL store, here and on the server, and its questions.

No figure is held to: the server reads every row of a window, so a narrower window is the remedy, and
the guide says so. The server is a real one that lives as long as this runs
(`tests/support/postgres.py`).

`python benchmarks/audit_postgres.py [RECORDS] [QUESTIONS]`
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from audit_store import fill, moving, report
from callpact.audit.store.postgres import PostgresStore
from measure import table

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from postgres import Server

RECORDS = 500_000
QUESTIONS = 50
BATCH = 5_000


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


def main(count: int, asked: int) -> None:
    server = Server()
    try:
        with tempfile.TemporaryDirectory() as folder:
            store = PostgresStore(server.new_database())
            here, there = moving(Path(folder), store, lambda: cpu_of_server(server))
            store.close()
        rows = [
            ("from a line of the journal to the server", here, here / 40e-6, "40 µs"),
            ("the same on the server", there, there / 40e-6, "40 µs"),
        ]
        table("Moving", rows)
        store = PostgresStore(server.new_database())
        taken = fill(store, count, BATCH)
        # As it does by itself within a minute, once it is left in peace.
        store._run(store._connection.execute("VACUUM ANALYZE"))
        print(f"\n{count:,} records, {taken / count * 1e6:.1f} µs of CPU each here,", end=" ")
        print(f"{store.size / count:.0f} bytes each with payloads and indexes")
        report(store, asked)
        store.close()
    finally:
        server.close()


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS,
        int(sys.argv[2]) if len(sys.argv) > 2 else QUESTIONS,
    )
