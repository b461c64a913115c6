"""Work that starts at once is a task like any other: for timeouts, groups, contexts and ends."""

from __future__ import annotations

import asyncio
import gc
import sys
from contextvars import ContextVar

import anyio
import pytest

from callpact.eager import Starter

SECONDS = 10.0
VALUE: ContextVar[str] = ContextVar("VALUE", default="unset")


def _run(story):
    return asyncio.run(asyncio.wait_for(story, SECONDS))


async def _ended():
    pass


async def _turn():
    """Let everything run that is ready."""
    for _ in range(3):
        await asyncio.sleep(0)


async def _warm(depth=1):
    """A starter that has worked before, also for work inside of work."""
    starter = Starter()

    async def nested(below):
        if below:
            starter.start(nested(below - 1))

    for _ in range(depth and depth + 1):
        starter.start(nested(depth - 1))
        await _turn()
    return starter


async def _cold():
    return Starter()


EITHER = pytest.mark.parametrize("make", [_cold, _warm], ids=["cold", "warm"])


async def _finish(starter, work):
    """What became of the work, wherever it is told: by the start or by the task."""
    try:
        task = starter.start(work)
        if task is not None:
            await task
    except BaseException as error:
        return error
    return None


# --- the first step -------------------------------------------------------------------------


def test_work_that_never_waits_has_ended_when_start_returns():
    async def story():
        starter, did = await _warm(), []

        async def work():
            did.append("all")

        assert starter.start(work()) is None
        assert did == ["all"]

    _run(story())


def test_work_that_waits_is_a_task_of_which_the_first_step_was_taken():
    async def story():
        starter, did, go = await _warm(), [], asyncio.Event()

        async def work():
            did.append("first")
            await go.wait()
            did.append("second")

        task = starter.start(work())
        assert isinstance(task, asyncio.Task)
        assert did == ["first"]
        assert not task.done()
        go.set()
        assert await task is None
        assert did == ["first", "second"]

    _run(story())


def test_the_very_first_start_runs_the_first_step_at_once_too():
    async def story():
        did = []

        async def work():
            did.append("all")

        Starter().start(work())
        assert did == ["all"]

    _run(story())


def test_what_the_first_step_raises_is_raised_by_start_and_the_next_work_is_not_touched():
    class Broken(BaseException):
        pass

    async def story():
        did = []

        async def fail(error):
            raise error

        async def work():
            await asyncio.sleep(0)
            did.append("done")

        for error in (ValueError("x"), Broken(), asyncio.CancelledError(), StopAsyncIteration()):
            starter = await _warm()
            with pytest.raises(type(error)) as caught:
                starter.start(fail(error))
            assert caught.value is error
            await starter.start(work())
        assert did == ["done"] * 4

    _run(story())


@EITHER
def test_what_a_later_step_raises_is_the_tasks_and_start_returns(make):
    async def story():
        starter = await make()

        async def work():
            await asyncio.sleep(0)
            raise ValueError("late")

        task = starter.start(work())
        with pytest.raises(ValueError, match="late"):
            await task
        assert isinstance(task.exception(), ValueError)

    _run(story())


# --- the current task -----------------------------------------------------------------------


@EITHER
def test_work_has_one_real_task_before_and_after_its_first_wait_and_not_the_publishers(make):
    async def story():
        starter, seen = await make(), []

        async def work():
            for _ in range(3):
                seen.append(asyncio.current_task())
                await asyncio.sleep(0)

        task = starter.start(work())
        await task
        assert seen == [task] * 3
        assert isinstance(task, asyncio.Task)
        assert task is not asyncio.current_task()

    _run(story())


def test_the_publisher_is_the_current_task_again_however_the_first_step_ends():
    async def story():
        starter, me = await _warm(), asyncio.current_task()

        async def fail():
            raise ValueError

        starter.start(_ended())
        assert asyncio.current_task() is me
        with pytest.raises(ValueError):
            starter.start(fail())
        assert asyncio.current_task() is me
        task = starter.start(asyncio.sleep(0))
        assert asyncio.current_task() is me
        await task
        assert asyncio.current_task() is me

    _run(story())


def test_work_can_be_started_by_a_callback_of_the_loop_where_no_task_is_current():
    async def story():
        starter, loop = await _warm(), asyncio.get_running_loop()
        told = loop.create_future()

        async def work():
            own = asyncio.current_task()
            await asyncio.sleep(0)
            assert asyncio.current_task() is own

        def callback():
            task = starter.start(work())
            told.set_result((task, asyncio.current_task()))

        loop.call_soon(callback)
        task, current = await told
        await task
        assert current is None

    _run(story())


@EITHER
def test_two_that_wait_for_one_future_and_the_publisher_all_get_its_result(make):
    async def story():
        starter, got = await make(), []
        shared = asyncio.get_running_loop().create_future()

        async def work():
            got.append(await shared)

        async def later():
            got.append(await shared)

        tasks = [starter.start(work()), starter.start(work()), asyncio.create_task(later())]
        asyncio.get_running_loop().call_soon(shared.set_result, "x")
        assert await shared == "x"
        await asyncio.gather(*tasks)
        assert got == ["x"] * 3

    _run(story())


@EITHER
def test_work_may_wait_for_what_is_done_already_or_is_done_before_the_next_turn(make):
    async def story():
        starter, loop, got = await make(), asyncio.get_running_loop(), []
        done, soon = loop.create_future(), loop.create_future()
        done.set_result("done")

        async def work():
            got.append(await done)
            got.append(await soon)

        task = starter.start(work())
        soon.set_result("soon")
        await task
        assert got == ["done", "soon"]

    _run(story())


@EITHER
def test_the_error_of_what_is_waited_for_is_raised_in_the_work(make):
    async def story():
        starter = await make()
        failing = asyncio.get_running_loop().create_future()

        async def work():
            with pytest.raises(ValueError, match="upstream"):
                await failing

        task = starter.start(work())
        failing.set_exception(ValueError("upstream"))
        await task

    _run(story())


@EITHER
def test_work_that_waits_for_what_asyncio_does_not_know_is_told_so(make):
    class Foreign:
        def __await__(self):
            yield "of another event loop"

    async def story():
        starter, told = await make(), []

        async def work():
            try:
                await Foreign()
            except RuntimeError as error:
                told.append(error)
                await asyncio.sleep(0)

        outcome = await _finish(starter, work())
        await _turn()
        gc.collect()  # What is complained of is complained of here.
        assert outcome is None
        assert len(told) == 1

    _run(story())


# --- timeouts and groups --------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize("seconds", [-1, 0, 0.001])
def test_a_timeout_inside_the_work_fires_on_the_work_and_never_on_the_publisher(make, seconds):
    async def story():
        starter, ends = await make(), []

        async def work():
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.Event().wait()
            except TimeoutError:
                ends.append("timeout")
            await asyncio.sleep(0)
            ends.append(asyncio.current_task().cancelling())

        assert await _finish(starter, work()) is None
        assert ends == ["timeout", 0]
        assert asyncio.current_task().cancelling() == 0

    _run(story())


@EITHER
def test_a_timeout_around_the_start_fires_on_the_publisher_and_never_on_the_work(make):
    async def story():
        starter, go, ends, tasks = await make(), asyncio.Event(), [], []

        async def work():
            await go.wait()
            ends.append("done")

        async def publish():
            async with asyncio.timeout(0.001):
                tasks.append(starter.start(work()))
                await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            await publish()
        (task,) = tasks
        assert not task.done()
        go.set()
        await task
        assert ends == ["done"]
        assert task.cancelling() == 0

    _run(story())


@EITHER
def test_a_task_group_inside_the_work_cancels_the_work_and_not_the_publisher(make):
    async def story():
        starter, ends = await make(), []

        async def fail():
            raise ValueError

        async def work():
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(fail())
                    await asyncio.Event().wait()
            except* ValueError:
                ends.append("group")
            ends.append(asyncio.current_task().cancelling())

        assert await _finish(starter, work()) is None
        assert ends == ["group", 0]
        assert asyncio.current_task().cancelling() == 0

    _run(story())


@EITHER
def test_a_task_group_around_the_start_does_not_hold_the_work(make):
    async def story():
        starter, go, tasks = await make(), asyncio.Event(), []

        async def fail():
            raise ValueError

        async def publish():
            async with asyncio.TaskGroup() as group:
                tasks.append(starter.start(go.wait()))
                group.create_task(fail())

        with pytest.raises(ExceptionGroup):
            await publish()
        (task,) = tasks
        assert not task.done()
        go.set()
        await task

    _run(story())


@EITHER
def test_scopes_and_groups_of_anyio_hold_inside_the_work(make):
    async def story():
        starter, ends = await make(), []

        async def child():
            await anyio.sleep(0)
            ends.append("child")

        async def fail():
            raise ValueError

        async def work():
            with anyio.CancelScope() as scope:
                scope.cancel()
                await anyio.sleep_forever()
            ends.append(scope.cancelled_caught)
            with anyio.move_on_after(0.001) as scope:
                await anyio.sleep_forever()
            ends.append(scope.cancelled_caught)
            async with anyio.create_task_group() as group:
                group.start_soon(child)
                group.start_soon(child)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(fail)
                    await anyio.sleep_forever()
            except* ValueError:
                ends.append("group")
            with anyio.fail_after(SECONDS), anyio.CancelScope(shield=True):
                await anyio.sleep(0)
            ends.append("end")

        assert await _finish(starter, work()) is None
        assert ends == [True, True, "child", "child", "group", "end"]

    _run(story())


@EITHER
def test_a_cancelled_scope_of_anyio_around_the_start_leaves_the_work_alone(make):
    async def story():
        starter, go = await make(), asyncio.Event()
        with anyio.CancelScope() as scope:
            task = starter.start(go.wait())
            scope.cancel()
            await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert not task.done()
        go.set()
        await task

    _run(story())


# --- context variables ----------------------------------------------------------------------


@EITHER
def test_every_step_sees_the_publishers_variables_as_they_were_at_the_start(make):
    async def story():
        starter, seen = await make(), []

        async def work():
            for _ in range(3):
                seen.append(VALUE.get())
                await asyncio.sleep(0)

        VALUE.set("mine")
        task = starter.start(work())
        VALUE.set("changed since")
        await task
        assert seen == ["mine"] * 3

    _run(story())


@EITHER
def test_variables_that_work_sets_stay_its_own_through_all_of_its_steps(make):
    async def story():
        starter, seen = await make(), []
        VALUE.set("publisher")

        async def work(name):
            token = VALUE.set(name)
            await asyncio.sleep(0)
            seen.append(VALUE.get())
            asyncio.get_running_loop().call_soon(lambda: seen.append(VALUE.get()))
            await asyncio.sleep(0)
            VALUE.reset(token)
            seen.append(VALUE.get())

        async def ends_at_once():
            VALUE.set("leak")

        starter.start(ends_at_once())
        assert VALUE.get() == "publisher"
        await starter.start(work("a"))
        assert VALUE.get() == "publisher"
        assert seen == ["a", "a", "publisher"]
        await asyncio.gather(starter.start(work("b")), starter.start(work("c")))
        assert sorted(seen[3:]) == ["b", "b", "c", "c", "publisher", "publisher"]

    _run(story())


# --- cancellation ---------------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_cancelled_work_is_told_at_its_wait_and_cleans_up_before_the_task_ends(make, turns):
    async def story():
        starter, did = await make(), []

        async def work():
            did.append("begun")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                did.append("cancelled")
                raise
            finally:
                await asyncio.sleep(0)
                did.append("clean")

        task = starter.start(work())
        for _ in range(turns):
            await asyncio.sleep(0)
        if not did:  # A task that has not begun is cancelled like any: nothing to clean up.
            await asyncio.sleep(0)
        assert task.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert did == ["begun", "cancelled", "clean"]

    _run(story())


@pytest.mark.parametrize("turns", [0, 3])
def test_work_may_survive_its_cancellation_and_still_end_well(turns):
    async def story():
        starter, did = await _warm(), []

        async def work():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                asyncio.current_task().uncancel()
            await asyncio.sleep(0)
            did.append("went on")

        task = starter.start(work())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await task
        assert did == ["went on"]
        assert not task.cancelled()

    _run(story())


def test_cancelling_work_cancels_what_it_waits_for():
    async def story():
        starter, inner = await _warm(), asyncio.create_task(asyncio.Event().wait())

        async def work():
            await inner

        task = starter.start(work())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await _turn()
        assert inner.cancelled()

    _run(story())


@EITHER
@pytest.mark.parametrize("turns", [0, 3])
def test_cancelled_work_goes_on_when_what_it_waits_for_has_cleaned_up(make, turns):
    async def story():
        starter, did = await make(), []

        async def inner():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                did.append("inner is clean")
                raise

        async def work():
            did.append("begun")
            try:
                await awaited
            finally:
                did.append("work goes on")

        awaited = asyncio.create_task(inner())
        await _turn()
        task = starter.start(work())
        for _ in range(turns):
            await asyncio.sleep(0)
        if not did:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert did == ["begun", "inner is clean", "work goes on"]

    _run(story())


@EITHER
def test_work_that_cancels_itself_hears_of_it_at_its_next_wait(make):
    async def story():
        starter, did = await make(), []

        async def work():
            asyncio.current_task().cancel()
            did.append("still here")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                did.append("cancelled")
                raise

        assert isinstance(await _finish(starter, work()), asyncio.CancelledError)
        assert did == ["still here", "cancelled"]
        assert asyncio.current_task().cancelling() == 0

    _run(story())


@pytest.mark.parametrize("takes_it_back", [False, True])
def test_work_that_cancels_itself_and_ends_at_once_spoils_nothing_for_the_next(takes_it_back):
    async def story():
        starter, did = await _warm(), []

        async def cancel_oneself():
            asyncio.current_task().cancel()
            if takes_it_back:
                asyncio.current_task().uncancel()

        async def work():
            await asyncio.sleep(0)
            did.append("done")

        for _ in range(3):
            outcome = await _finish(starter, cancel_oneself())
            assert outcome is None or isinstance(outcome, asyncio.CancelledError)
            assert await _finish(starter, work()) is None
        assert did == ["done"] * 3

    _run(story())


@pytest.mark.parametrize("turns", [0, 3])
def test_cancelling_the_task_of_work_that_has_ended_touches_no_later_work(turns):
    async def story():
        starter, kept, did = await _warm(), [], []

        async def remember():
            kept.append(asyncio.current_task())

        async def work():
            await asyncio.sleep(0)
            did.append("done")

        starter.start(remember())
        kept[0].cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert await _finish(starter, work()) is None
        assert did == ["done"]

    _run(story())


def test_cancelling_the_task_of_work_that_has_ended_touches_no_work_that_runs():
    async def story():
        starter, kept = await _warm(), []

        async def remember():
            kept.append(asyncio.current_task())

        starter.start(remember())
        running = starter.start(asyncio.sleep(0))
        kept[0].cancel()
        await running

    _run(story())


def test_a_name_given_to_the_task_of_work_is_not_that_of_the_next():
    async def story():
        starter, names = await _warm(), []

        async def work():
            names.append(asyncio.current_task().get_name())
            asyncio.current_task().set_name("mine")

        starter.start(work())
        starter.start(work())
        assert "mine" not in names
        assert len(names) == 2

    _run(story())


def test_a_callback_on_the_task_of_work_is_called_when_the_work_has_ended():
    async def story():
        called = []

        async def work(name, waits):
            asyncio.current_task().add_done_callback(lambda _task: called.append(name))
            if waits:
                await asyncio.sleep(0)

        await (await _warm()).start(work("waits", True))
        await _turn()
        assert called == ["waits"]
        (await _warm()).start(work("ends at once", False))
        await _turn()
        assert called == ["waits", "ends at once"]

    _run(story())


# --- many and nested ------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1, 5])
@pytest.mark.parametrize("pattern", [(False,), (True,), (False, True), (True, False, False)])
def test_work_that_starts_work_keeps_its_own_task_at_every_level(depth, pattern):
    async def story():
        starter, seen, running = await _warm(depth), {}, []

        async def work(level):
            own = asyncio.current_task()
            waits = pattern[level % len(pattern)]
            if waits:
                await asyncio.sleep(0)
            if level:
                running.append(starter.start(work(level - 1)))
            assert asyncio.current_task() is own
            if waits:
                await asyncio.sleep(0)
            assert asyncio.current_task() is own
            seen[level] = own

        running.append(starter.start(work(5)))
        while any(task is not None and not task.done() for task in running):
            await asyncio.gather(*(task for task in running if task is not None))
        assert sorted(seen) == [0, 1, 2, 3, 4, 5]
        assert asyncio.current_task() not in seen.values()

    _run(story())


def test_work_that_runs_inside_one_another_never_shares_a_task():
    async def story():
        starter, stack = await _warm(5), []

        async def work(level):
            stack.append(asyncio.current_task())
            if level:
                starter.start(work(level - 1))

        starter.start(work(5))
        await _turn()
        assert len(stack) == 6
        assert len({id(task) for task in stack}) == 6

    _run(story())


def test_a_thousand_works_of_every_sort_each_run_once_and_to_their_own_end():
    async def story():
        starter, ends, tasks = await _warm(), [], []

        async def inner(number):
            await asyncio.sleep(0)
            ends.append(("inner", number))

        async def work(number):
            VALUE.set(str(number))
            kind = number % 5
            if kind == 1:
                await asyncio.sleep(0)
            elif kind == 2:
                tasks.append(starter.start(inner(number)))
                await asyncio.sleep(0.001)
            elif kind == 3:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await asyncio.Event().wait()
            elif kind == 4:
                ends.append((VALUE.get(), number))
                raise ValueError(number)
            ends.append((VALUE.get(), number))

        raised = 0
        for number in range(1000):
            try:
                tasks.append(starter.start(work(number)))
            except ValueError:
                raised += 1
            if number % 7 == 0:
                await asyncio.sleep(0)
        told = await asyncio.gather(*(t for t in tasks if t is not None), return_exceptions=True)
        raised += sum(isinstance(error, ValueError) for error in told)
        assert raised == 200
        assert [e for e in told if e is not None and not isinstance(e, ValueError)] == []
        expected = [(str(n), n) for n in range(1000)] + [("inner", n) for n in range(2, 1000, 5)]
        assert sorted(ends) == sorted(expected)

    _run(story())


# --- what is left behind --------------------------------------------------------------------


def test_what_waits_for_work_is_not_among_the_tasks_and_what_works_is():
    async def story():
        starter, go = await _warm(3), asyncio.Event()
        me = asyncio.current_task()
        waiting = {me}  # wait_for runs the story itself in one of the tasks.
        waiting |= {task for task in asyncio.all_tasks() if "wait_for" in repr(task.get_coro())}
        assert asyncio.all_tasks() == waiting
        task = starter.start(go.wait())
        assert asyncio.all_tasks() == waiting | {task}
        go.set()
        await task
        await _turn()
        assert asyncio.all_tasks() == waiting

    _run(story())


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_loop_that_ends_cancels_what_still_works_and_nothing_is_complained_of(turns, caplog):
    cleaned = []

    async def story():
        starter = await _warm(2)

        async def work():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cleaned.append(1)
                raise

        starter.start(_ended())
        for _ in range(3):
            starter.start(work())
        for _ in range(turns):
            await asyncio.sleep(0)

    asyncio.run(story())
    assert cleaned == [1, 1, 1]
    gc.collect()
    assert caplog.records == []


def test_a_loop_that_ends_before_anything_else_ran_leaves_nothing_to_complain_of(caplog):
    async def story():
        Starter().start(_ended())

    asyncio.run(story())
    gc.collect()
    assert caplog.records == []


@pytest.mark.parametrize("waits", [False, True])
def test_work_that_has_ended_leaves_nothing_to_the_garbage_collector(waits):
    async def work():
        if waits:
            await asyncio.sleep(0)

    async def story():
        starter = await _warm()
        gc.collect()
        gc.disable()
        try:
            for _ in range(100):
                await _finish(starter, work())
            await _turn()
            return gc.collect()
        finally:
            gc.enable()

    assert _run(story()) < 100


def test_a_starter_works_in_one_loop_after_another():
    starter, did = Starter(), []

    async def work(number):
        did.append(number)
        await asyncio.sleep(0)
        did.append(number)

    async def story(number):
        starter.start(_ended())
        await _turn()
        task = starter.start(work(number))
        await task
        assert task.get_loop() is asyncio.get_running_loop()

    for number in range(3):
        _run(story(number))
    assert did == [0, 0, 1, 1, 2, 2]


@pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="from 3.12 on the task is asyncio's own, started eagerly (eager.py)",
)
def test_work_that_ends_at_once_costs_no_task_of_its_own():
    async def story():
        starter, loop, made = await _warm(), asyncio.get_running_loop(), []

        def factory(loop, coroutine, **options):
            made.append(coroutine)
            return asyncio.Task(coroutine, loop=loop, **options)

        loop.set_task_factory(factory)
        for _ in range(100):
            assert starter.start(_ended()) is None
            await asyncio.sleep(0)
        assert made == []

    _run(story())
