"""Fair shares: callers take turns, nobody has more than a share, the largest crowd is refused."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.sandbox.fair_slots import Crowded, FairQueue, FairSlots


def drained(queue):
    out = []
    while (item := queue.pop()) is not None:
        out.append(item)
    return out


def test_callers_take_turns_and_each_is_served_in_its_own_order():
    queue = FairQueue()
    for caller, item in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)]:
        queue.push(caller, item)
    assert [item for _, item in drained(queue)] == [1, 4, 5, 2, 6, 3]
    assert len(queue) == 0


@given(st.lists(st.integers(0, 4), max_size=60))
def test_no_caller_is_served_twice_while_another_one_waits_its_turn(callers):
    queue = FairQueue()
    for at, caller in enumerate(callers):
        queue.push(caller, at)
    left, since = Counter(callers), {}
    for caller, item in drained(queue):
        assert callers[item] == caller
        left[caller] -= 1
        for other, count in left.items():
            if other != caller and count:
                since[other, caller] = since.get((other, caller), 0) + 1
                assert since[other, caller] <= 2
        since = {pair: n for pair, n in since.items() if pair[0] != caller}
    assert not +left


def test_the_oldest_item_of_the_largest_caller_goes_first():
    queue = FairQueue()
    for caller, item in [("small", 1), ("large", 2), ("large", 3)]:
        queue.push(caller, item)
    assert queue.pop_largest() == 2
    assert sorted(item for _, item in drained(queue)) == [1, 3]


def test_an_item_is_discarded_once():
    queue = FairQueue()
    queue.push("a", 1)
    for _ in range(2):
        queue.discard("a", 1)
    queue.discard("b", 1)
    assert (len(queue), queue.pop()) == (0, None)


def slots(count=1, share=1, most_waiting=10):
    return FairSlots(count, share=share, most_waiting=most_waiting)


def run(story):
    async def bounded():
        async with asyncio.timeout(20):
            await story()

    asyncio.run(bounded())


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_caller_with_many_waiters_delays_another_one_by_one_turn_alone():
    async def story():
        places = slots()
        served = []

        async def use(caller):
            await places.take(caller)
            served.append(caller)

        await places.take("greedy")
        tasks = [asyncio.create_task(use("greedy")) for _ in range(8)]
        await settle()
        tasks.append(asyncio.create_task(use("other")))
        await settle()
        holder = "greedy"
        for at in range(9):
            places.give(holder)
            await settle()
            holder = served[at]
        assert served.index("other") <= 1
        assert len(served) == 9

    run(story)


def test_a_caller_has_no_more_than_its_share_while_slots_are_free():
    async def story():
        places = slots(count=4, share=3)
        for _ in range(3):
            await places.take("greedy")
        fourth = asyncio.create_task(places.take("greedy"))
        await settle()
        assert not fourth.done()
        await places.take("other")
        places.give("greedy")
        await fourth

    run(story)


def test_a_full_queue_refuses_the_oldest_waiter_of_the_largest_caller():
    async def story():
        places = slots(most_waiting=3)
        await places.take("x")
        greedy = [asyncio.create_task(places.take("greedy")) for _ in range(3)]
        await settle()
        other = asyncio.create_task(places.take("other"))
        await settle()
        assert [task.done() for task in greedy] == [True, False, False]
        assert not other.done()
        with pytest.raises(Crowded):
            await greedy[0]
        for caller, task in [("x", greedy[1]), ("greedy", other), ("other", greedy[2])]:
            places.give(caller)
            await task

    run(story)


@pytest.mark.parametrize("gives_first", [True, False])
def test_a_slot_of_a_waiter_that_was_cancelled_goes_to_the_next(gives_first):
    async def story():
        places = slots()
        await places.take("a")
        left = asyncio.create_task(places.take("a"))
        following = asyncio.create_task(places.take("b"))
        await settle()
        if gives_first:
            places.give("a")
            left.cancel()
        else:
            left.cancel()
            places.give("a")
        await following
        assert left.cancelled()
        places.give("b")
        await places.take("a")

    run(story)


def test_a_waiter_of_a_closed_loop_is_passed_over():
    places = slots()

    async def abandon():
        await places.take("a")
        task = asyncio.ensure_future(places.take("b"))
        await settle()
        return task

    loop = asyncio.new_event_loop()
    task = loop.run_until_complete(abandon())
    loop.close()

    async def story():
        places.give("a")
        await places.take("c")

    run(story)
    task._log_destroy_pending = False  # Its loop is closed: nothing can end it.


def test_slots_may_be_given_from_other_threads():
    async def story():
        places = slots()
        await places.take("a")
        thread = threading.Timer(0, places.give, ["a"])
        thread.start()
        await places.take("b")
        thread.join()

    run(story)
