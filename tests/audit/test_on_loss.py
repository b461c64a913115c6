"""`on_loss = "refuse"`: what cannot be put on record is not answered."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from callpact import Call, CallError, Contract, Runtime, Tool
from callpact.audit import Recorder
from callpact.audit.journal.segments import Journal, segments
from callpact.codes import CODES
from callpact.errors import NotRecorded


class Broken(Journal):
    """A journal that is written as long as it is told to work."""

    works = True

    def append(self, line):
        if not self.works:
            self.lost += 1
            return False
        return super().append(line)


@pytest.fixture
def journal(tmp_path):
    journal = Broken(tmp_path)
    yield journal
    journal.close()


@pytest.fixture
def ran():
    return []


@pytest.fixture
def runtime(journal, ran):
    async def buy(arguments, _context):
        ran.append(arguments)
        return "bought"

    async def watch(_arguments, _context):
        for number in range(3):
            yield number

    tools = [
        Tool(id="shop.buy", description="", contract=Contract(), handler=buy),
        Tool(
            id="shop.watch",
            description="",
            contract=Contract(),
            handler=watch,
            kind="subscription",
        ),
    ]
    return Runtime(tools, [Recorder(journal, on_loss="refuse")])


def outcome(runtime, tool="shop.buy"):
    try:
        return asyncio.run(runtime.call(Call(tool, {}))).data
    except CallError as error:
        return error.code


def test_a_call_that_cannot_be_put_on_record_is_answered_with_an_error(runtime, journal, ran):
    assert outcome(runtime) == "bought"
    journal.works = False
    assert outcome(runtime) == "not_recorded"
    assert len(ran) == 2
    assert runtime.observer_failures == 0


def test_while_records_are_lost_no_handler_runs(runtime, journal, ran):
    journal.works = False
    assert outcome(runtime) == "not_recorded"
    assert [outcome(runtime) for _ in range(3)] == ["not_recorded"] * 3
    assert len(ran) == 1


def test_the_record_of_a_refused_call_shows_that_records_can_be_written_again(
    runtime, journal, ran, tmp_path
):
    journal.works = False
    outcome(runtime)
    journal.works = True
    assert outcome(runtime) == "not_recorded"
    assert outcome(runtime) == "bought"
    assert len(ran) == 2
    [segment] = segments(tmp_path)
    assert segment.read_bytes().count(b"\n") == 2


def test_an_error_that_cannot_be_put_on_record_is_not_answered_either(runtime, journal):
    journal.works = False
    assert outcome(runtime, "shop.nothing") == "not_recorded"


def test_a_subscription_that_cannot_be_put_on_record_ends_with_an_error(runtime, journal):
    journal.works = False

    async def read():
        seen = []
        with contextlib.suppress(NotRecorded):
            async for envelope in runtime.stream(Call("shop.watch", {})):
                seen.append(envelope.data)
            seen.append("end")
        return seen

    assert asyncio.run(read()) == [0, 1, 2]
    assert asyncio.run(read()) == []


def test_a_call_that_is_cancelled_stays_cancelled(runtime, journal, ran):
    began = asyncio.Event()

    async def wait(_arguments, _context):
        began.set()
        await asyncio.Event().wait()

    tool = Tool(id="shop.wait", description="", contract=Contract(), handler=wait)
    slow = runtime.over([tool])
    journal.works = False

    async def go():
        task = asyncio.ensure_future(slow.call(Call("shop.wait", {})))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())


def test_by_default_a_call_is_answered_though_its_record_is_lost(journal):
    async def buy(_arguments, _context):
        return "bought"

    tool = Tool(id="shop.buy", description="", contract=Contract(), handler=buy)
    runtime = Runtime([tool], [Recorder(journal)])
    journal.works = False
    assert [outcome(runtime) for _ in range(3)] == ["bought"] * 3
    assert journal.lost == 3


def test_the_error_has_its_row_in_the_table_of_codes():
    row = CODES["not_recorded"]
    assert (row.http, row.flowmcp) == (503, "E005")
    assert NotRecorded(is_begun=False).code == "not_recorded"
