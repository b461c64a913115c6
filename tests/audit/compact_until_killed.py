"""Two compactors and two readers of one log, all killed with signal 9 again and again, are counted.

Run by `test_compactor.py`. One process writes lines. A reader reports each answer: how many lines
were written before it asked, and what it counted.
"""

import json
import os
import random
import signal
import struct
import sys
import threading
import time
from mmap import mmap
from pathlib import Path

from callpact.audit import Record
from callpact.audit.journal.lines import encode_line
from callpact.audit.journal.segments import Journal, segments
from callpact.audit.store import Filter
from callpact.audit.store.compactor import Compactor
from callpact.audit.store.parquet import ParquetStore
from callpact.audit.store.queries import Query

LOG, SECONDS = Path(sys.argv[1]), float(sys.argv[2])
NUMBER = struct.Struct("q")
WRITTEN = mmap(-1, NUMBER.size)
COUNTS = Query("SELECT count(*), count(DISTINCT id) FROM {calls}")


def compact(_pipe):
    store = ParquetStore(LOG)
    compactor = Compactor(LOG / "journal", store)
    while True:
        compactor.flush()


def read(pipe):
    store, last = ParquetStore(LOG), 0
    while True:
        (written,) = NUMBER.unpack(WRITTEN[:])
        [(count, distinct)] = store._rows(COUNTS)
        is_right = count == distinct and count >= written and count >= last
        last = count
        text = f"{int(is_right)} {written} {count} {distinct} {len(store.damaged)}\n"
        os.write(pipe, text.encode())


def write(stop):
    journal, number = Journal(LOG / "journal", max_segment_bytes=20_000), 0
    while not stop.is_set():
        for _ in range(20):
            line = encode_line(Record(f"call-{number}", 1_788_220_800_000 + number, 1.0, "a.b"))
            if not journal.append(line):
                raise OSError("a line is lost")
            number += 1
        WRITTEN[:] = NUMBER.pack(number)
        stop.wait(0.005)
    journal.close()


def begin(work, pipe):
    child = os.fork()
    if not child:
        try:
            work(pipe)
        finally:
            os._exit(1)
    return child


def end(child):
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise RuntimeError("a process ended by itself")


def drain(pipe, answers):
    with os.fdopen(pipe, encoding="ascii") as lines:
        for line in lines:
            answers.append(line.split())


def main():
    reading, writing = os.pipe()
    works = [compact, compact, read, read]
    children = [begin(work, writing) for work in works]
    answers, stop, kills = [], threading.Event(), 0
    threading.Thread(target=drain, args=(reading, answers), daemon=True).start()
    writer = threading.Thread(target=write, args=(stop,))
    writer.start()
    end_at = time.monotonic() + SECONDS
    while time.monotonic() < end_at:
        time.sleep(random.uniform(0.1, 0.6))
        number = random.randrange(4)
        end(children[number])
        children[number] = begin(works[number], writing)
        kills += 1
    stop.set()
    writer.join()
    for child in children:
        end(child)
    store = ParquetStore(LOG)
    [(seen, _)] = store._rows(COUNTS)
    compactor = Compactor(LOG / "journal", store)
    compactor.flush(60)
    compactor.close()
    [(kept, distinct)] = store._rows(COUNTS)
    told = {
        "kills": kills,
        "written": NUMBER.unpack(WRITTEN[:])[0],
        "seen": seen,
        "kept": kept,
        "distinct": distinct,
        "newest": store.log(Filter(), limit=1)[0].id,
        "answers": len(answers),
        "wrong": [answer for answer in answers if answer[0] != "1"][:5],
        "left": len(segments(LOG / "journal")),
    }
    print(json.dumps(told))  # noqa: T201 - what it was run for


if __name__ == "__main__":
    main()
