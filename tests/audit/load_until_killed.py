"""Records calls under load in pairs of processes, kills them with signal 9, and counts what is kept.

Run by `test_compactor.py`. Every process reports the id of a call over a pipe once it was answered.
"""

import asyncio
import json
import os
import random
import select
import signal
import sys
import threading
from pathlib import Path

from callpact import Call, Contract, Runtime, Tool
from callpact.audit import Recorder
from callpact.audit.journal.segments import Journal
from callpact.audit.store import Filter
from callpact.audit.store.compactor import Compactor
from callpact.audit.store.parquet import ParquetStore

LOG, ROUNDS = Path(sys.argv[1]), int(sys.argv[2])
FOLDER = LOG / "journal"


async def echo(arguments, _context):
    return arguments


def compact():
    """Move lines into files all the time, however few they are."""
    compactor = Compactor(FOLDER, ParquetStore(LOG)).start()
    while True:
        compactor.flush()


def work(pipe):
    """Call, report, again and again, until it is killed."""
    tool = Tool(id="load.echo", description="", contract=Contract(), handler=echo)
    journal = Journal(FOLDER, max_segment_bytes=20_000)
    runtime = Runtime([tool], observers=[Recorder(journal)])
    threading.Thread(target=compact, daemon=True).start()

    async def main():
        number = 0
        while True:
            call = f"{os.getpid()}-{random.getrandbits(64):x}-{number}"
            await runtime.call(Call("load.echo", {"n": number}, call), None)
            os.write(pipe, f"{call}\n".encode())
            number += 1

    asyncio.run(main())


def begin():
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.close(reading)
    try:
        work(writing)
    finally:
        os._exit(1)


def read_all(pipe, wanted):
    """What a process reports, until it reported as much as is wanted, or it ended."""
    text = b""
    while text.count(b"\n") < wanted:
        if not select.select([pipe], [], [], 30)[0]:
            raise TimeoutError("a process reports nothing")
        data = os.read(pipe, 1 << 16)
        if not data:
            break
        text += data
    return text


def one_round():
    """A pair of processes, each killed after some of its calls."""
    pair = [begin() for _ in range(2)]
    answered = []
    for child, pipe in pair:
        text = read_all(pipe, random.randint(1, 400))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WTERMSIG(status) != signal.SIGKILL:
            raise RuntimeError("a process ended by itself")
        text += read_all(pipe, float("inf"))
        os.close(pipe)
        # A report is written whole or not at all: it is smaller than a pipe's unit.
        answered += text.decode().split()
    return answered


def pages(store):
    before = None
    while page := store.log(Filter(), limit=1_000, before=before):
        yield from (record.id for record in page)
        before = (page[-1].at, page[-1].id)


def main():
    answered = [call for _ in range(ROUNDS) for call in one_round()]
    seen = list(pages(ParquetStore(LOG)))
    compactor = Compactor(FOLDER, ParquetStore(LOG))
    if not compactor.flush(60):
        raise TimeoutError("the journal is not in the store")
    compactor.close()
    kept = list(pages(ParquetStore(LOG)))
    found = set(kept)
    told = {
        "kills": 2 * ROUNDS,
        "answered": len(answered),
        "records": len(kept),
        "missing": [call for call in answered if call not in found][:5],
        "twice": [] if len(found) == len(kept) else ["some"],
        "seen": seen == kept,
        "left": [path.name for path in FOLDER.iterdir() if path.name not in {"health", "lock"}],
    }
    print(json.dumps(told))  # noqa: T201 - what it was run for


if __name__ == "__main__":
    main()
