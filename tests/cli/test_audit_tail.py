"""`callpact audit tail`: calls as they are recorded; and logs that may only be read."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

import asked
from asked import HOUR, called, following, on_terminal, refused
from callpact.audit import Note, text
from callpact.audit.journal.lines import encode_line
from callpact.audit.journal.segments import Journal

log = asked.log


@pytest.fixture
def record(log, tmp_path):
    """Put calls on record, as a server does."""

    def add(*records):
        with contextlib.closing(Journal(tmp_path / "log" / "journal")) as journal:
            for each in records:
                assert journal.append(encode_line(each))

    return add


@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGINT for one process")
def test_tail_shows_what_is_recorded_until_ctrl_c(log, record):
    now = int(time.time() * 1000)
    there = log(called(1, at=now - HOUR), called(2, at=now - 1000))
    with following("--json", "-n", "1", *there) as process:
        assert json.loads(process.stdout.readline())["id"] == called(2).id
        # A call is recorded when it ends: one that began earlier may come later.
        record(called(4, at=now))
        assert json.loads(process.stdout.readline())["id"] == called(4).id
        log(called(3, at=now - 500))  # It came, and was in the store at once.
        assert json.loads(process.stdout.readline())["id"] == called(3).id
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stdout.read() == b""
        assert b"Traceback" not in process.stderr.read()


def test_tail_ends_at_the_time_that_it_was_given(log):
    now = int(time.time() * 1000)
    there = log(called(1, at=now - HOUR))
    with following("--json", "--until", "30m", *there) as process:
        assert json.loads(process.stdout.readline())["id"] == called(1).id
        assert process.wait(30) == 0


def test_tail_of_a_name_that_nobody_has_tells_the_nearest(log):
    there = log(called(1))
    with following("--tool", "shop.serch", "--until", "1s", *there) as process:
        assert process.wait(30) == 0
        assert b"did you mean 'shop.search'?" in process.stderr.read()


@pytest.mark.skipif(os.name != "posix", reason="Windows has no pipes that can be watched")
def test_tail_ends_when_its_reader_does(log):
    there = log(called(1, at=int(time.time() * 1000)))
    with following(*there) as process:
        assert process.stdout.readline().split()[:2] == [b"TIME", b"TOOL"]
        assert b"shop.search" in process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


@pytest.mark.skipif(os.name != "posix", reason="the process is ended by a signal")
def test_tail_shows_a_call_that_took_hours(log, record):
    now = int(time.time() * 1000)
    there = log(called(1, at=now - 1000))
    with following("--json", "-n", "1", "--tool", "shop.*", *there) as process:
        assert json.loads(process.stdout.readline())["id"] == called(1).id
        record(
            called(2, at=now - 5 * HOUR, ms=5.0 * HOUR),
            called(3, at=now, tool="mail.send"),
            called(4, at=now),
        )
        rows = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [row["id"] for row in rows] == [called(2).id, called(4).id]


@pytest.mark.skipif(os.name != "posix", reason="the process is ended by a signal")
def test_tail_shows_every_call_once_though_many_come_at_one_time(log, record):
    now = int(time.time() * 1000)
    there = log(called(1, at=now))
    with following("--json", "-n", "1", *there) as process:
        assert json.loads(process.stdout.readline())["id"] == called(1).id
        for begin in range(10, 1_510, 500):
            record(*(called(n, at=now) for n in range(begin, begin + 500)))
        seen = [json.loads(process.stdout.readline())["id"] for _ in range(1_500)]
        record(called(9_999, at=now + 1))
        assert json.loads(process.stdout.readline())["id"] == called(9_999).id
    assert seen == [called(n).id for n in range(10, 1_510)]


# --- the screen -----------------------------------------------------------------------------


def various(now):
    return (
        called(1, at=now - 50 * HOUR),
        called(2, at=now, warnings=(Note("type", "/price", "must be a number"),)),
        refused(3, at=now, path="/a/very/long/path/to/one/argument"),
        called(4, at=now, tool="shop.a_tool_with_a_long_name_shown_whole"),
        called(5, at=now, caller="two\nlines", ms=90_000.0),
    )


@pytest.mark.parametrize("columns", [80, 120])
def test_tail_has_a_header_and_one_line_for_each_call_on_a_terminal(log, columns):
    now = int(time.time() * 1000)
    there = log(*various(now))
    header, *rows = on_terminal(columns, "audit", "tail", "--until", "0s", *there)
    assert header.split()[:3] == ["TIME", "TOOL", "OUTCOME"]
    assert ("CALLER" in header) == (columns == 120)
    assert len(rows) == 5
    assert max(map(len, (header, *rows))) <= columns
    begin = header.index("OUTCOME")
    outcomes = [row[begin:].split("  ")[0] for row in rows if "long_name" not in row]
    assert outcomes[:2] == ["ok", "ok, 1 warning"]
    assert outcomes[2].startswith("schema_validation_failed")
    assert outcomes[2].endswith("…")
    assert "shop.a_tool_with_a_long_name_shown_whole" in rows[3]
    assert [row.split()[-1] for row in rows] == [f"{n:08x}..{n:06d}" for n in range(1, 6)]


def test_tail_is_the_same_lines_through_a_pipe_with_nothing_cut(log):
    now = int(time.time() * 1000)
    there = log(*various(now))
    with following("--until", "0s", *there) as process:
        header, *rows = process.stdout.read().decode().splitlines()
    assert header.split() == ["TIME", "TOOL", "OUTCOME", "TOOK", "CALLER", "VIA", "ID"]
    assert len(rows) == 5
    assert "schema_validation_failed /a/very/long/path/to/one/argument" in rows[2]
    assert "1.50 min  two lines" in rows[4]
    assert [row.split()[-1] for row in rows] == [called(n).id for n in range(1, 6)]


@pytest.mark.parametrize("width", [1, 8, 40, 80, 120, 200])
def test_a_line_of_tail_never_exceeds_its_width(width):
    rows = [text.record_cells(record, is_short=True) for record in various(0)]
    for first in ([], rows):
        widths = text.feed_widths(first, width)
        assert all(len(text.feed_line(row, widths, width)) <= width for row in rows)


# --- logs that may only be read -------------------------------------------------------------


def asked_without_rights(*args):
    """`callpact` as somebody whom permission bits bind, as they do not bind root."""
    command = [sys.executable, "-m", "callpact", *args]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root needs setpriv to give up its rights")
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@contextlib.contextmanager
def locked_up(folder):
    """Nobody may write into a folder."""
    kept = [folder, *folder.rglob("*")]
    modes = [path.stat().st_mode for path in kept]
    for path in reversed(kept):
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        yield
    finally:
        for path, mode in zip(kept, modes, strict=True):
            path.chmod(mode)


@pytest.mark.skipif(os.name != "posix", reason="there are no permission bits")
@pytest.mark.parametrize("is_open", [False, True])
def test_a_log_that_may_only_be_read_is_asked_all_the_same(log, tmp_path, is_open):
    there = log(called(1), called(2))
    with contextlib.ExitStack() as stack:
        if is_open:  # A server has it, so its newest records wait in the journal.
            journal = Journal(tmp_path / "log" / "journal")
            stack.enter_context(contextlib.closing(journal))
            assert journal.append(encode_line(called(3)))
        stack.enter_context(locked_up(tmp_path / "log"))
        before = sorted(path.name for path in (tmp_path / "log").rglob("*"))
        for command in (["log", "--json"], ["export"]):
            answer = asked_without_rights("audit", *command, *there)
            assert (answer.returncode, answer.stderr) == (0, "")
            assert len(answer.stdout.splitlines()) == (3 if is_open else 2)
        stats = asked_without_rights("audit", "stats", *there)
        assert stats.returncode == 0
        assert f"{3 if is_open else 2} calls" in stats.stderr
        assert sorted(path.name for path in (tmp_path / "log").rglob("*")) == before
