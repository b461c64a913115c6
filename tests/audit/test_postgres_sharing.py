"""The PostgreSQL store while its server goes and comes, and while processes share it and die."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from generated import counted, naive, records

from callpact import Call, Contract, Runtime, Tool
from callpact.audit import open_store, place_of, record_calls
from callpact.audit.store import Filter
from callpact.errors import UsageError
from postgres import database_of

SAMPLE = list(records(600))


@pytest.fixture
def store(postgres):
    return postgres


# A server that goes and comes


def test_a_lost_connection_is_told_and_opened_again(server, store):
    store.add(SAMPLE[:300])
    server.stop()
    try:
        with pytest.raises(UsageError):
            store.add(SAMPLE)
        with pytest.raises(UsageError):
            store.log(Filter())
        with pytest.raises(UsageError):
            _ = store.size
    finally:
        server.start()
    assert store.add(SAMPLE) == len(SAMPLE) - 300
    assert counted(store) == naive(SAMPLE)


def test_a_database_that_was_made_anew_gets_its_tables_again(server, store, url):
    store.add(SAMPLE)
    name = database_of(url)
    server.run(f"DROP DATABASE {name} WITH (FORCE)")
    server.run(f"CREATE DATABASE {name}")
    other = [msgspec.structs.replace(record, tool=f"new.{n}") for n, record in enumerate(SAMPLE)]
    # The connection may be noticed as lost by this, or before.
    try:
        store.add(other)
    except UsageError:
        store.add(other)
    assert store.add(SAMPLE[:1]) == 0
    assert counted(store) == naive(other)


async def _echo(arguments, _context):
    return arguments


def _record_calls(place, numbers):
    """Calls through a runtime with a log."""

    async def go(recorder):
        tool = Tool(id="load.echo", description="", contract=Contract(), handler=_echo)
        async with Runtime([tool], observers=[recorder]) as runtime:
            for number in numbers:
                await runtime.call(Call("load.echo", {"n": number}, f"call-{number}"), None)

    with record_calls(place) as recorder:
        asyncio.run(go(recorder))


def test_records_wait_for_a_server_and_a_later_start_brings_them_there(
    server, url, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    _record_calls(url, range(3))
    server.stop()
    try:
        with caplog.at_level(logging.ERROR, "callpact.audit"):
            _record_calls(url, range(3, 6))
    finally:
        server.start()
    assert "records wait in" in caplog.text
    place = place_of(url)
    assert str(place.journal) in caplog.text
    _record_calls(url, range(6, 8))
    store = open_store(url)
    assert sorted(record.id for record in store.log(Filter())) == [f"call-{n}" for n in range(8)]
    store.close()
    # Nothing is left, and nothing is in the store of somebody who has no server.
    assert not list(place.journal.glob("*.jsonl"))
    assert not (place.folder / "store").exists()


def test_who_only_asks_a_server_makes_no_folder(server, url, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    open_store(url).close()
    assert not (tmp_path / "data").exists()


# Several processes

WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from generated import records
from callpact.audit.store.postgres import PostgresStore

kept = list(records(600))
sys.stdin.readline()
store = PostgresStore(sys.argv[1])
print(sum(store.add(kept[begin : begin + 60]) for begin in range(0, 600, 60)))
store.close()
"""


def test_processes_that_start_at_once_keep_and_count_each_record_once(server, postgres_store, url):
    command = [sys.executable, "-c", WRITER, url, str(Path(__file__).parent)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, encoding="utf-8", **pipes) for _ in range(3)]
    try:
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        new = [int(process.communicate(timeout=60)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert sum(new) == 600
    store = postgres_store(url)
    assert counted(store) == naive(SAMPLE)
    assert len(store.log(Filter(), limit=1_000)) == 600
    store.close()


KILLED = """
import json, os, signal, sys
from pathlib import Path
from asyncpg.connection import Connection
sys.path.insert(0, sys.argv[3])
from generated import records
from callpact.audit.store.compactor import Compactor
from callpact.audit.journal.segments import Journal
from callpact.audit.journal.lines import encode_line
from callpact.audit.store.postgres import PostgresStore

URL, FOLDER = sys.argv[1], Path(sys.argv[2])


def compact(until):
    "Move lines, and die after so many statements."
    store, count = PostgresStore(URL, "here"), 0

    def counted(statement):
        async def run(self, *words, **more):
            nonlocal count
            result = await statement(self, *words, **more)
            count += 1
            if count == until:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return run

    for name in ("execute", "fetch", "fetchval", "copy_records_to_table"):
        setattr(Connection, name, counted(getattr(Connection, name)))
    compactor = Compactor(FOLDER, store)
    if not compactor.flush(30):
        os._exit(3)
    os._exit(0)


kept, at, killed = list(records(600, tools=5, callers=3)), 0, 0
for until in (*range(1, 16), 20, 60, 0):
    journal = Journal(FOLDER)
    for record in kept[at : at + 15]:
        journal.append(encode_line(record))
    journal.close()
    at += 15
    child = os.fork()
    if not child:
        compact(until)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        killed += 1
    elif os.WEXITSTATUS(status):
        sys.exit("a process failed")
print(json.dumps({"killed": killed, "written": [record.id for record in kept[:at]]}))
"""


def test_a_compactor_that_is_killed_after_any_statement_loses_and_doubles_nothing(
    postgres_store, url, tmp_path
):
    command = [sys.executable, "-c", KILLED, url, str(tmp_path), str(Path(__file__).parent)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["killed"] >= 8
    store = postgres_store(url)
    kept = store.log(Filter(), limit=1_000)
    assert sorted(record.id for record in kept) == sorted(told["written"])
    assert counted(store) == naive(kept)
    store.close()
    assert not list(tmp_path.glob("*.jsonl"))
