"""Lines over descriptors: however they are cut on the way, and on a loop that can watch none."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.serve.stdio.line_pipes import LineReader, LineTooLong, LineWriter, _Lines

PATIENCE = 20
MOST = 8
BOM = b"\xef\xbb\xbf"


class Unwatching(asyncio.SelectorEventLoop):
    """A loop that cannot watch pipes, as on Windows."""

    def add_reader(self, *_):
        raise NotImplementedError

    remove_reader = add_writer = remove_writer = add_reader


LOOPS = pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, Unwatching])


def run(loop, work):
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(asyncio.wait_for(work, PATIENCE))


def wanted(text):
    """The rule, for a text that is there at once: a line that is too long is None."""
    lines = text.split(b"\n")
    kept = [None if len(line) > MOST else line for line in lines]
    if kept[0] is not None:
        kept[0] = kept[0].removeprefix(BOM)
    return [line for line in kept if line is None or line.strip(b" \t\n\r\v\f")]


texts = st.lists(
    st.sampled_from([b"\n", b"\n\n", b"\r\n", b" ", b"a", b"bcd", b"x" * MOST, b"x" * 30, BOM])
).map(b"".join)


@given(texts, st.data())
def test_lines_are_the_same_however_they_are_cut_on_the_way(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    lines = _Lines(MOST)
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        lines.feed(text[begin:end])
    lines.end()
    assert list(lines.whole) == wanted(text)


@LOOPS
def test_lines_are_read_to_the_end_and_a_long_one_costs_no_other(loop):
    given, sending = os.pipe()
    os.write(sending, b"one\n" + b"x" * 100 + b"\n\ntwo")
    os.close(sending)

    async def go():
        reader, told = LineReader(given, MOST), []
        while True:
            try:
                told.append(await reader.read())
            except LineTooLong:
                told.append(None)
            except EOFError:
                return told

    try:
        assert run(loop, go()) == [b"one", None, b"two"]
    finally:
        os.close(given)


@LOOPS
def test_whoever_waits_for_a_line_is_told_when_reading_is_stopped(loop):
    given, sending = os.pipe()

    async def go():
        reader = LineReader(given, MOST)
        waiting = asyncio.ensure_future(reader.read())
        await asyncio.sleep(0)
        reader.stop()
        with pytest.raises(EOFError):
            await waiting
        with pytest.raises(EOFError):
            await reader.read()

    try:
        run(loop, go())
    finally:
        os.close(sending)  # A thread that still reads ends with it.


@LOOPS
def test_lines_that_do_not_fit_are_written_whole_in_order_also_if_nobody_waits(loop):
    reading, taken = os.pipe()
    lines = [bytes([65 + n]) * size + b"\n" for n, size in enumerate((10, 300_000, 5, 70_000, 1))]
    read = []
    ended = []

    def drain():
        with os.fdopen(reading, "rb") as file:
            read.extend(file)

    async def go():
        writer = LineWriter(taken)
        writes = [
            asyncio.ensure_future(writer.write(line, lambda line=line: ended.append(line)))
            for line in lines
        ]
        await asyncio.sleep(0)
        writes[1].cancel()
        writes[2].cancel()
        await asyncio.sleep(0)
        assert ended == lines[:1]
        reader = threading.Thread(target=drain)
        reader.start()
        await asyncio.wait(writes)
        os.close(taken)
        await asyncio.to_thread(reader.join, PATIENCE)
        assert writer.written == sum(map(len, lines))

    run(loop, go())
    assert read == ended == lines


def test_a_line_never_slips_into_one_that_is_half_written():
    reading, taken = os.pipe()
    long = b"a" * 300_000 + b"\n"

    async def go():
        writer = LineWriter(taken)
        first = asyncio.ensure_future(writer.write(long))
        await asyncio.sleep(0)
        read = os.read(reading, 1 << 16)  # Now there is room, and the loop has not seen it yet.
        second = asyncio.ensure_future(writer.write(b"b\n"))
        await asyncio.sleep(0)
        while len(read) < len(long) + 2:
            read += await asyncio.to_thread(os.read, reading, 1 << 16)
        await asyncio.gather(first, second)
        return read

    try:
        assert run(asyncio.SelectorEventLoop, go()) == long + b"b\n"
    finally:
        os.close(reading)
        os.close(taken)


@LOOPS
def test_whoever_waits_is_told_when_nobody_reads_any_more(loop):
    reading, taken = os.pipe()
    ended, broken = [], []

    async def go():
        writer = LineWriter(taken)
        writer.on_broken = lambda: broken.append(True)
        writes = [
            asyncio.ensure_future(writer.write(b"x" * 300_000, lambda n=n: ended.append(n)))
            for n in range(2)
        ]
        await asyncio.sleep(0)
        os.close(reading)
        for write in writes:
            with pytest.raises(BrokenPipeError):
                await write
        with pytest.raises(BrokenPipeError):
            await writer.write(b"x\n", lambda: ended.append(2))

    run(loop, go())
    os.close(taken)
    assert ended == [0, 1, 2]
    assert broken


def test_descriptors_that_others_made_non_blocking_are_waited_for_all_the_same():
    given, sending = os.pipe()
    os.set_blocking(given, False)
    os.set_blocking(sending, False)
    line = b"x" * 300_000 + b"\n"

    async def go():
        writing = asyncio.ensure_future(LineWriter(sending).write(line))
        read = await LineReader(given, len(line)).read()
        await writing
        return read

    try:
        assert run(asyncio.SelectorEventLoop, go()) == line[:-1]
    finally:
        os.close(given)
        os.close(sending)
