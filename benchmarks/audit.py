"""Guards: the observer and the journal of the audit log add at most 5 µs of CPU to a call."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path

import orjson

from callpact import Call, Contract, Runtime, Tool
from callpact.audit import Recorder
from callpact.audit.journal.segments import Journal
from callpact.observers import CallFinished
from callpact.secrets import Secrets
from cases import ARGUMENTS, IN, OUT, THREE_WRONG
from measure import drive, least_cpu, table


async def _echo(arguments, _context):
    return {"text": arguments["text"], "n": arguments["n"]}


def _events() -> dict[str, CallFinished]:
    """What observers are told of a result and of refusals."""
    seen: list[CallFinished] = []
    contract = Contract(input=IN, output=OUT, policy="cast")
    tool = Tool(id="b.echo", description="Echo.", contract=contract, handler=_echo)
    runtime = Runtime([tool], observers=[seen.append])
    for arguments in (ARGUMENTS, {**ARGUMENTS, "n": "seven"}, THREE_WRONG):
        try:
            drive(runtime.call(Call("b.echo", arguments, via="http"), None))
        except Exception as error:
            str(error)  # A door has told it before it is on record.
    return dict(zip(("result", "refusal", "refusal of three"), seen, strict=True))


def observing() -> None:
    """One call on record, in all: mask, encode, write."""
    events = _events()
    # Random, so that no part of one is part of another.
    keys = [Secrets({str(n): os.urandom(16).hex() for n in range(count)}) for count in (1, 10)]
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal", max_segment_bytes=1 << 30)
        plain, one, ten = (Recorder(journal, secrets=known) for known in ((), *keys))
        line = orjson.dumps("x" * 400) + b"\n"
        taken = least_cpu(
            {
                "the write alone": partial(journal.append, line),
                "a result": partial(plain, events["result"]),
                "a result, 1 secret": partial(one, events["result"]),
                "a result, 10 secrets": partial(ten, events["result"]),
                "a refusal, 1 issue": partial(plain, events["refusal"]),
                "a refusal, 3 issues": partial(plain, events["refusal of three"]),
            }
        )
        journal.close()
        if journal.lost:
            raise RuntimeError(f"{journal.lost} records were lost")
    floor = taken["the write alone"]
    rows = [
        (name, each, each / floor, "≤ 5 µs" if name.startswith("a ") else "")
        for name, each in taken.items()
    ]
    table("Audit: the observer and the journal, for each call", rows)


def main() -> None:
    observing()


if __name__ == "__main__":
    main()
