"""The bus inside a process: who hears what, in which order, and that nobody can break it."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from callpact.envelope import local_envelope
from callpact.errors import UsageError
from callpact.protocol import (
    CallAborted,
    CallCompleted,
    CallFailed,
    CallRequested,
    CallResponded,
    LocalBus,
)
from callpact.protocol.events import EVENT_TYPES

SECONDS = 10.0
ONE_OF_EACH = [
    CallRequested("1", "a.b", {}),
    CallResponded("1", local_envelope(1, "a.b")),
    CallFailed("1", "TIMEOUT", "late"),
    CallAborted("1"),
    CallCompleted("1"),
]


def _run(story):
    return asyncio.run(asyncio.wait_for(story, SECONDS))


async def _turn():
    """Let everything run that is ready."""
    for _ in range(3):
        await asyncio.sleep(0)


async def _warm(bus):
    """After this the bus has started async listeners before."""

    async def listener(event):
        pass

    unsubscribe = bus.subscribe("call.completed", listener)
    for _ in range(3):
        await bus.publish(CallCompleted("warm"))
        await _turn()
    unsubscribe()


def _errors(caplog):
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


# --- who hears what -------------------------------------------------------------------------


def test_a_listener_hears_its_type_of_event_and_no_other_as_the_same_object():
    async def story():
        bus, heard = LocalBus(), {topic: [] for topic in EVENT_TYPES}
        for topic in EVENT_TYPES:
            bus.subscribe(topic, heard[topic].append)
        for event in ONE_OF_EACH:
            await bus.publish(event)
        for event in ONE_OF_EACH:
            (only,) = heard[event.type]
            assert only is event

    _run(story())


def test_nobody_listening_is_no_problem():
    async def story():
        for event in ONE_OF_EACH:
            await LocalBus().publish(event)

    _run(story())


def test_listeners_are_called_in_the_order_in_which_they_came_before_publish_returns():
    async def story():
        bus, heard = LocalBus(), []
        for name in "abc":
            bus.subscribe("call.aborted", lambda event, name=name: heard.append(name))
        await bus.publish(CallAborted("1"))
        assert heard == ["a", "b", "c"]

    _run(story())


def test_every_listener_hears_events_in_the_order_in_which_they_were_published():
    async def story():
        bus, plain, steps = LocalBus(), [], []

        async def waits(event):
            steps.append(event.request_id)
            await asyncio.sleep(0)

        bus.subscribe("call.aborted", lambda event: plain.append(event.request_id))
        bus.subscribe("call.aborted", waits)
        expected = [str(number) for number in range(50)]
        for number in expected:
            await bus.publish(CallAborted(number))
            if int(number) % 10 == 0:
                await asyncio.sleep(0)
        await _turn()
        assert plain == expected
        assert steps == expected

    _run(story())


def test_a_listener_that_subscribed_twice_hears_everything_twice():
    async def story():
        bus, heard = LocalBus(), []
        bus.subscribe("call.aborted", heard.append)
        bus.subscribe("call.aborted", heard.append)
        await bus.publish(CallAborted("1"))
        assert heard == [CallAborted("1")] * 2

    _run(story())


@pytest.mark.parametrize("topic", ["call.request", "CALL.ABORTED", "call.*", "", None, 5, ["call"]])
def test_a_topic_that_is_none_is_refused_with_those_that_are(topic):
    with pytest.raises(UsageError) as caught:
        LocalBus().subscribe(topic, print)
    assert all(known in str(caught.value) for known in EVENT_TYPES)


def test_events_can_be_delivered_without_a_loop_to_listeners_that_need_none():
    bus, heard = LocalBus(), []
    bus.subscribe("call.aborted", heard.append)
    bus.deliver(CallAborted("1"))
    assert heard == [CallAborted("1")]


def test_an_async_listener_without_a_loop_is_wrong_use_and_the_others_hear_all_the_same():
    bus, heard, ran = LocalBus(), [], []

    async def listener(event):
        ran.append(event)

    bus.subscribe("call.aborted", listener)
    bus.subscribe("call.aborted", heard.append)
    for event in (CallAborted("1"), CallAborted("2")):
        with pytest.raises(UsageError, match=r"call\.aborted"):
            bus.deliver(event)
    assert heard == [CallAborted("1"), CallAborted("2")]
    assert ran == []
    gc.collect()  # A coroutine that nobody awaited would warn, and a warning is an error here.


def test_a_plain_listener_that_fails_without_a_loop_is_logged_as_ever(caplog):
    bus = LocalBus()

    def listener(event):
        raise ValueError("what went wrong")

    bus.subscribe("call.aborted", listener)
    bus.deliver(CallAborted("1"))
    (record,) = _errors(caplog)
    assert str(record.exc_info[1]) == "what went wrong"


# --- unsubscribing --------------------------------------------------------------------------


def test_who_unsubscribed_hears_nothing_any_more_and_the_others_go_on():
    async def story():
        bus, gone, kept = LocalBus(), [], []
        unsubscribe = bus.subscribe("call.aborted", gone.append)
        bus.subscribe("call.aborted", kept.append)
        await bus.publish(CallAborted("1"))
        unsubscribe()
        unsubscribe()
        await bus.publish(CallAborted("2"))
        assert gone == [CallAborted("1")]
        assert kept == [CallAborted("1"), CallAborted("2")]

    _run(story())


def test_unsubscribing_twice_ends_one_subscription_and_not_its_twin():
    async def story():
        bus, heard = LocalBus(), []
        first = bus.subscribe("call.aborted", heard.append)
        bus.subscribe("call.aborted", heard.append)
        first()
        first()
        await bus.publish(CallAborted("1"))
        assert heard == [CallAborted("1")]

    _run(story())


def test_a_listener_may_unsubscribe_while_it_is_told_and_the_next_is_told_all_the_same():
    async def story():
        bus, heard = LocalBus(), []

        def once(event):
            heard.append(("once", event.request_id))
            unsubscribe()

        unsubscribe = bus.subscribe("call.aborted", once)
        bus.subscribe("call.aborted", lambda event: heard.append(("next", event.request_id)))
        await bus.publish(CallAborted("1"))
        await bus.publish(CallAborted("2"))
        assert heard == [("once", "1"), ("next", "1"), ("next", "2")]

    _run(story())


def test_who_subscribes_while_an_event_is_told_hears_the_next_one():
    async def story():
        bus, heard = LocalBus(), []
        unsubscribe = bus.subscribe(
            "call.aborted", lambda event: bus.subscribe("call.aborted", heard.append)
        )
        await bus.publish(CallAborted("1"))
        unsubscribe()
        assert heard == []
        await bus.publish(CallAborted("2"))
        assert heard == [CallAborted("2")]

    _run(story())


def test_unsubscribing_does_not_stop_what_an_async_listener_does_already():
    async def story():
        bus, go, done = LocalBus(), asyncio.Event(), asyncio.Event()

        async def listener(event):
            await go.wait()
            done.set()

        unsubscribe = bus.subscribe("call.aborted", listener)
        await bus.publish(CallAborted("1"))
        await _turn()
        unsubscribe()
        go.set()
        await done.wait()

    _run(story())


# --- listeners that fail --------------------------------------------------------------------


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("when", ["plain", "first step", "later"])
def test_a_listener_that_fails_breaks_neither_the_publisher_nor_the_others(when, error, is_warm):
    async def story():
        bus, heard, failed = LocalBus(), [], asyncio.Event()
        if is_warm:
            await _warm(bus)

        def plain(event):
            failed.set()
            raise error

        async def first_step(event):
            failed.set()
            raise error

        async def later(event):
            await asyncio.sleep(0)
            failed.set()
            raise error

        bus.subscribe("call.aborted", {"plain": plain, "later": later}.get(when, first_step))
        bus.subscribe("call.aborted", heard.append)
        await bus.publish(CallAborted("1"))
        await failed.wait()
        await bus.publish(CallAborted("2"))
        await _turn()
        assert heard == [CallAborted("1"), CallAborted("2")]
        assert asyncio.current_task().cancelling() == 0

    _run(story())


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_what_a_listener_raises_is_logged_in_full_once(waits, is_warm, caplog):
    async def story():
        bus = LocalBus()
        if is_warm:
            await _warm(bus)

        async def listener(event):
            if waits:
                await asyncio.sleep(0)
            raise ValueError("what went wrong")

        bus.subscribe("call.aborted", listener)
        await bus.publish(CallAborted("1"))
        await _turn()

    _run(story())
    gc.collect()
    (record,) = _errors(caplog)
    assert record.name == "callpact.protocol"
    assert str(record.exc_info[1]) == "what went wrong"


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_listener_that_returns_something_else_than_a_coroutine_breaks_nothing(is_warm):
    async def story():
        bus, heard, done = LocalBus(), [], []

        async def listener(event):
            await asyncio.sleep(0)
            done.append(event)

        if is_warm:
            await _warm(bus)
        for odd in (5, "text", object()):
            bus.subscribe("call.aborted", lambda event, odd=odd: odd)
        bus.subscribe("call.aborted", heard.append)
        bus.subscribe("call.aborted", listener)
        await bus.publish(CallAborted("1"))
        await _turn()
        assert heard == done == [CallAborted("1")]

    _run(story())


# --- async listeners ------------------------------------------------------------------------


@pytest.mark.parametrize("is_warm", [False, True])
def test_publish_waits_for_no_listener_and_each_runs_in_a_task_of_its_own(is_warm):
    async def story():
        bus, go, tasks = LocalBus(), asyncio.Event(), []
        if is_warm:
            await _warm(bus)

        async def listener(event):
            tasks.append(asyncio.current_task())
            await go.wait()
            tasks.remove(asyncio.current_task())

        for _ in range(3):
            bus.subscribe("call.aborted", listener)
        await bus.publish(CallAborted("1"))
        await _turn()
        assert len({id(task) for task in tasks}) == 3
        assert asyncio.current_task() not in tasks
        go.set()
        await asyncio.gather(*tasks)
        assert tasks == []

    _run(story())


@pytest.mark.parametrize("is_warm", [False, True])
def test_cancelling_the_publisher_does_not_cancel_a_listener(is_warm):
    async def story():
        bus, go, done = LocalBus(), asyncio.Event(), asyncio.Event()
        if is_warm:
            await _warm(bus)

        async def listener(event):
            await go.wait()
            done.set()

        async def publisher():
            await bus.publish(CallAborted("1"))
            await asyncio.Event().wait()

        bus.subscribe("call.aborted", listener)
        task = asyncio.create_task(publisher())
        await asyncio.sleep(0)
        task.cancel()
        await _turn()
        assert task.cancelled()
        go.set()
        await done.wait()

    _run(story())


def test_what_async_listeners_do_is_held_until_it_is_done():
    # asyncio keeps weak references only: a task that nobody holds may vanish in mid-air.
    async def story():
        bus, done, made = LocalBus(), asyncio.Event(), []

        async def listener(event):
            future = asyncio.get_running_loop().create_future()
            made.append(future.set_result)
            await future
            done.set()

        bus.subscribe("call.aborted", listener)
        await bus.publish(CallAborted("1"))
        await _turn()
        gc.collect()
        made.pop()(None)
        await done.wait()

    _run(story())


# --- listeners that publish -----------------------------------------------------------------


def test_a_listener_may_publish_and_everybody_hears_both_events():
    async def story():
        bus, heard = LocalBus(), []

        async def answer(event):
            await bus.publish(CallCompleted(event.request_id))

        bus.subscribe("call.aborted", answer)
        bus.subscribe("call.aborted", heard.append)
        bus.subscribe("call.completed", heard.append)
        await bus.publish(CallAborted("1"))
        await _turn()
        assert sorted(event.type for event in heard) == ["call.aborted", "call.completed"]

    _run(story())


@pytest.mark.parametrize("is_async", [False, True])
def test_an_answer_is_not_heard_before_the_event_that_it_answers(is_async):
    async def story():
        bus, heard = LocalBus(), []
        await _warm(bus)

        def answer(event):
            bus.deliver(CallCompleted(event.request_id))

        async def answer_async(event):
            await bus.publish(CallCompleted(event.request_id))

        bus.subscribe("call.aborted", answer_async if is_async else answer)
        bus.subscribe("call.aborted", heard.append)
        bus.subscribe("call.completed", heard.append)
        await bus.publish(CallAborted("1"))
        await _turn()
        assert heard == [CallAborted("1"), CallCompleted("1")]

    _run(story())


def test_a_chain_of_events_that_cause_one_another_comes_to_its_end():
    async def story():
        bus, heard = LocalBus(), []

        async def next_one(event):
            heard.append(int(event.request_id))
            if heard[-1] < 50:
                await bus.publish(CallAborted(str(heard[-1] + 1)))

        bus.subscribe("call.aborted", next_one)
        await bus.publish(CallAborted("1"))
        while heard[-1:] != [50]:
            await asyncio.sleep(0)
        assert heard == list(range(1, 51))

    _run(story())


class _Odd(BaseException):
    """Such as other libraries make of their own exits."""


@pytest.mark.parametrize("error", [SystemExit(3), _Odd("x")], ids=repr)
def test_an_exit_in_a_plain_listener_is_raised_after_all_were_called_in_order(error):
    async def story():
        bus, heard = LocalBus(), []

        def exits(event):
            if event.request_id == "1":
                bus.deliver(CallAborted("2"))
                raise error

        bus.subscribe("call.aborted", exits)
        bus.subscribe("call.aborted", lambda event: heard.append(event.request_id))
        with pytest.raises(type(error)) as caught:
            await bus.publish(CallAborted("1"))
        assert caught.value is error
        assert heard == ["1", "2"]
        await bus.publish(CallAborted("3"))
        assert heard == ["1", "2", "3"]

    _run(story())


def test_an_exit_in_an_async_listener_ends_the_program_after_all_were_called():
    heard = []

    async def story():
        bus = LocalBus()

        async def exits(event):
            raise SystemExit(3)

        bus.subscribe("call.aborted", exits)
        bus.subscribe("call.aborted", heard.append)
        await bus.publish(CallAborted("1"))
        await asyncio.Event().wait()

    with pytest.raises(SystemExit):
        _run(story())
    assert heard == [CallAborted("1")]


def test_of_many_exits_the_first_comes_out_once():
    bus, heard = LocalBus(), []

    def exits(event):
        heard.append(event.request_id)
        if len(heard) < 5_000:
            bus.deliver(CallAborted(str(len(heard))))
        raise _Odd(event.request_id)

    bus.subscribe("call.aborted", exits)
    with pytest.raises(_Odd) as caught:
        bus.deliver(CallAborted("0"))
    assert caught.value.args == ("0",)
    assert heard == [str(number) for number in range(5_000)]
    bus.deliver(CallCompleted("1"))


def test_an_interrupt_ends_telling_at_once_and_what_was_not_told_is_not_told_later():
    bus, heard = LocalBus(), []

    def interrupted(event):
        heard.append(event.request_id)
        if event.request_id == "1":
            bus.deliver(CallAborted("2"))
            raise KeyboardInterrupt

    bus.subscribe("call.aborted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bus.deliver(CallAborted("1"))
    bus.deliver(CallAborted("3"))
    assert heard == ["1", "3"]


# --- closing --------------------------------------------------------------------------------


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_closing_cancels_what_runs_and_waits_until_it_has_cleaned_up(turns, is_warm):
    async def story():
        bus, did = LocalBus(), []
        if is_warm:
            await _warm(bus)

        async def listener(event):
            did.append("begun")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0.001)
                did.append("clean")
                raise

        bus.subscribe("call.aborted", listener)
        await bus.publish(CallAborted("1"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await bus.aclose()
        # What had not even begun need not begin.
        assert did in (["begun", "clean"], [])
        assert turns == 0 or did == ["begun", "clean"]

    _run(story())


def test_closing_twice_and_closing_an_idle_bus_is_no_problem():
    async def story():
        bus = LocalBus()
        await bus.aclose()
        bus.subscribe("call.aborted", lambda event: asyncio.Event().wait())
        await bus.publish(CallAborted("1"))
        await asyncio.gather(bus.aclose(), bus.aclose())

    _run(story())


def test_closing_waits_for_a_listener_that_does_not_give_up():
    async def story():
        bus, did = LocalBus(), []

        async def listener(event):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0.001)
            did.append("finished all the same")

        bus.subscribe("call.aborted", listener)
        await bus.publish(CallAborted("1"))
        await _turn()
        await bus.aclose()
        assert did == ["finished all the same"]

    _run(story())


def test_closing_hides_nothing_that_a_listener_raises_meanwhile(caplog):
    async def story():
        bus = LocalBus()

        async def listener(event):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("while closing") from None

        bus.subscribe("call.aborted", listener)
        await bus.publish(CallAborted("1"))
        await _turn()
        await bus.aclose()

    _run(story())
    assert [str(record.exc_info[1]) for record in _errors(caplog)] == ["while closing"]


def test_closing_also_ends_what_is_started_while_others_clean_up():
    async def story():
        bus, running = LocalBus(), set()

        async def listener(event):
            running.add(event.request_id)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if event.request_id == "1":  # As a call handler does for the calls it made.
                    await bus.publish(CallAborted("2"))
                raise
            finally:
                running.remove(event.request_id)

        bus.subscribe("call.aborted", listener)
        await bus.publish(CallAborted("1"))
        await _turn()
        await bus.aclose()
        assert running == set()

    _run(story())


def test_a_listener_may_close_the_bus_that_it_hears():
    async def story():
        bus, ended = LocalBus(), asyncio.Event()

        async def listener(event):
            await asyncio.sleep(0)
            try:
                await bus.aclose()
            finally:
                ended.set()

        bus.subscribe("call.aborted", listener)
        await bus.publish(CallAborted("1"))
        async with asyncio.timeout(2):
            await ended.wait()

    _run(story())


def test_a_bus_goes_on_after_it_was_closed_and_in_another_loop(caplog):
    gc.collect()
    caplog.clear()  # Of what other tests left behind.
    bus, heard = LocalBus(), []

    async def listener(event):
        heard.append(("begun", event.request_id))
        await asyncio.sleep(0)
        heard.append(("done", event.request_id))
        if event.request_id == "left":
            await asyncio.Event().wait()

    async def story(name):
        await bus.publish(CallAborted(name))
        while ("done", name) not in heard:
            await asyncio.sleep(0)
        await bus.publish(CallAborted("left"))
        await _turn()
        if name == "b":
            await bus.aclose()

    bus.subscribe("call.aborted", listener)
    for name in "abc":
        _run(story(name))
    assert [name for what, name in heard if what == "done"] == [
        "a",
        "left",
        "b",
        "left",
        "c",
        "left",
    ]
    gc.collect()
    assert caplog.records == []
