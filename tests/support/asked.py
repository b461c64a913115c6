"""What tests of questions to the audit log share: logs to ask, and a command line that asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from callpact import CallError
from callpact.app import Options, Session
from callpact.audit import Note, Record
from callpact.audit.record import error_key, payload_of
from callpact.audit.store.parquet import ParquetStore
from callpact.cli import main as cli

HOUR = 3_600_000
NOON = 1_788_264_000_000  # 2026-09-01T12:00:00Z
SHOP = """\
from typing import Annotated
from callpact import tool
from pydantic import Field

@tool(namespace="shop", version="1.0.0")
def product_search(query: str, limit: Annotated[int, Field(ge=1, le=50)] = 10) -> list[str]:
    "Find products."
    return [query]
"""
MARKET = """\
from typing import TypedDict
from callpact import tool

class Ticker(TypedDict):
    price: float
    volume24h: float

@tool(namespace="market", policy="warn")
def ticker(number: int) -> Ticker:
    "Tell the price."
    if number >= 70:
        return {"price": "12.5"}
    return {"price": 12.5, "volume24h": 3.0}
"""


cli.whole()


@pytest.fixture
def ask(monkeypatch, capfdbinary, tmp_path):
    """Run `callpact` in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TZ", "UTC-2")  # Two hours ahead, in POSIX's spelling.
    time.tzset()
    monkeypatch.chdir(tmp_path)

    def ask_(*args):
        monkeypatch.setattr(sys, "argv", ["callpact", *map(str, args)])
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capfdbinary.readouterr()
        return SimpleNamespace(code=left.value.code or 0, out=out.decode(), err=err.decode())

    yield ask_
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def log(tmp_path):
    """Fill a log, and give its folder as options."""
    folder = tmp_path / "log"
    (folder / "journal").mkdir(parents=True)

    def fill(*records):
        with contextlib.closing(ParquetStore(folder)) as store:
            assert store.add(records) == len(records)
        return ("--audit", str(folder))

    return fill


def called(number=0, **more):
    given = {
        "id": f"{number:08x}-0000-4000-8000-{number:012d}",
        "at": NOON + number * 1000,
        "ms": 2.0,
        "tool": "shop.search",
        "kind": "query",
        "caller": "ada",
        "via": "http",
        "input": payload_of(b'{"limit":10}'),
    }
    return Record(**{**given, **more})


def refused(number=0, limit=80, **more):
    message = f"Property 'limit' must be ≤ 50, got {limit}"
    given = {
        "gate": "input",
        "code": "schema_validation_failed",
        "path": "/limit",
        "message": message,
        "key": error_key("schema_validation_failed", "/limit", "maximum"),
        "issues": (Note("maximum", "/limit", message),),
        "input": payload_of(b'{"limit":%d}' % limit),
    }
    return called(number, **{**given, **more})


def lines(answer):
    return [json.loads(line) for line in answer.out.splitlines()]


def numbers_of(found):
    return [int(one[-12:]) for one in found]


def ids(answer):
    return [row["id"] for row in lines(answer)]


def record_calls(folder, source, calls):
    """Call real tools, with everything on record."""

    async def go():
        async with Session(Options(refs=(str(source),), audit=str(folder))) as session:
            await session.load()
            runtime = await session.start()
            for tool, arguments in calls:
                with contextlib.suppress(CallError):
                    await runtime.execute(tool, arguments)

    asyncio.run(go())
    return ("--audit", str(folder))


def on_terminal(columns, *args, **variables):
    """Run `callpact` in a terminal of some columns: the lines that it shows, without styles."""
    return [
        re.sub(r"\x1b\[[0-9;]*m", "", line) for line in raw_on_terminal(columns, *args, **variables)
    ]


def raw_on_terminal(columns, *args, **variables):
    """The same with its styles."""
    fcntl, pty, struct, termios = map(pytest.importorskip, ("fcntl", "pty", "struct", "termios"))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    left = {
        name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR"}
    }
    with subprocess.Popen(
        [sys.executable, "-m", "callpact", *map(str, args)],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**left, "TERM": "xterm-256color", **variables},
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError), os.fdopen(ours, "rb", 0) as screen:
            while data := screen.read(65_536):  # At the end, Linux raises EIO.
                shown += data
        assert process.wait(60) == 0
    return shown.decode().replace("\r\n", "\n").splitlines()


@contextlib.contextmanager
def following(*args):
    with subprocess.Popen(
        [sys.executable, "-m", "callpact", "audit", "tail", "--every", "0.05", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
