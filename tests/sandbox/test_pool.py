"""Hooks from asyncio: effects on the loop, calls on threads, and nothing left when one is given up."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading

import pytest

from callpact.errors import CallError, UsageError
from callpact.sandbox import HookLimits
from callpact.sandbox.engine import Engine
from callpact.sandbox.pool import (
    MAX_CALLS,
    MAX_CALLS_OF_ONE,
    MAX_WAITING,
    EffectRefused,
    ThreadPool,
)
from callpact.sandbox.steps import Done, StepFailed

FILE = """export const main = {}
export const handlers = () => ( { tool: {
    sum: async ( { items } ) => items.reduce( ( a, b ) => a + b, 0 ),
    loop: async () => { for( ;; ) {} },
    get: async ( { urls } ) => Promise.all( urls.map( async ( u ) => ( await fetch( u ) ).text() ) ),
    chain: async ( { n } ) => { let t = ''; for( let i = 0; i < n; i++ ) { t += await ( await fetch( `https://example.com/${ i }` ) ).text() } return t },
    race: async ( { urls } ) => ( await Promise.race( urls.map( ( u ) => fetch( u ) ) ) ).text(),
    forget: async ( { urls } ) => { urls.map( ( u ) => fetch( u ) ); return ( await fetch( 'https://last.example/' ) ).text() },
    guarded: async () => { try { await fetch( 'https://example.com/' ) } catch( e ) { return `${ e.name }: ${ e.message }` } },
} } )
"""


def reply(text):
    return {"status": 200, "statusText": "OK", "url": "", "headers": [], "text": text}


async def no_effects(effect):
    raise AssertionError(effect)


async def echo(effect):
    await asyncio.sleep(0)
    return reply(effect.data["url"][-1])


def play(engine, story):
    """Run a story with a pool and a realm; afterwards nothing may be in use."""

    before = set(threading.enumerate())  # threads of other tests may still end

    async def main():
        pool = ThreadPool(engine)
        try:
            async with asyncio.timeout(60):
                realm = await pool.open(FILE, main="{}", lists="{}")
                await story(pool, realm)
        finally:
            await pool.aclose()

    asyncio.run(main())
    gc.collect()  # a task whose error nobody took would be told now, and fail the test
    assert engine.machines.lent == 0
    left = set(threading.enumerate()) - before
    assert not [t for t in left if t.name == "callpact-hooks"]


async def works(pool, realm):
    done = await pool.run(realm, "tool", "sum", '{"items":[1,2,3]}', no_effects)
    assert done == Done("6")


async def until(condition):
    """Wait for another thread, a turn of the loop at a time."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


def test_calls_of_one_realm_at_the_same_time_do_not_meet(engine):
    async def story(pool, realm):
        calls = [
            pool.run(realm, "tool", "sum", json.dumps({"items": [n, 1]}), no_effects)
            for n in range(50)
        ]
        assert await asyncio.gather(*calls) == [Done(str(n + 1)) for n in range(50)]

    play(engine, story)


def test_effects_are_performed_at_the_same_time_and_answered_in_their_order(engine):
    async def story(pool, realm):
        everybody = asyncio.Barrier(3)

        async def perform(effect):
            await everybody.wait()  # passes only if all three are under way
            return reply(effect.data["url"][-1])

        urls = [f"https://example.com/{name}" for name in "abc"]
        done = await pool.run(realm, "tool", "get", json.dumps({"urls": urls}), perform)
        assert json.loads(done.data) == ["a", "b", "c"]

    play(engine, story)


def test_effects_of_many_steps_follow_one_another(engine):
    async def story(pool, realm):
        assert await pool.run(realm, "tool", "chain", '{"n":10}', echo) == Done('"0123456789"')

    play(engine, story)


def test_a_refused_effect_reaches_the_hook_in_the_host_s_words(engine):
    async def story(pool, realm):
        async def perform(effect):
            raise EffectRefused("only example.org may be asked")

        done = await pool.run(realm, "tool", "guarded", "{}", perform)
        assert json.loads(done.data) == "TypeError: only example.org may be asked"

    play(engine, story)


def test_effects_that_the_hook_does_not_wait_for_are_cancelled_when_it_ends(engine):
    async def story(pool, realm):
        begun, cancelled = [], []

        async def perform(effect):
            begun.append(effect.data["url"])
            if "last" in effect.data["url"]:
                return reply("end")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(effect.data["url"])
                raise

        urls = ["https://a.example/", "https://b.example/"]
        for kind, more in (("forget", []), ("race", ["https://last.example/"])):
            begun.clear()
            cancelled.clear()
            argument = json.dumps({"urls": [*urls, *more]})
            assert await pool.run(realm, "tool", kind, argument, perform) == Done('"end"')
            assert sorted(cancelled) == urls
            assert len(begun) == 3

    play(engine, story)


def test_an_error_of_the_host_ends_the_call_and_its_other_effects(engine):
    async def story(pool, realm):
        class Broken(Exception):
            pass

        async def perform(effect):
            if effect.data["url"].endswith("ok"):
                await asyncio.Event().wait()
            raise Broken

        argument = json.dumps({"urls": [f"https://example.com/{n}" for n in ("ok", "1", "2", "3")]})
        with pytest.raises(Broken):
            await pool.run(realm, "tool", "get", argument, perform)
        await works(pool, realm)
        assert len(asyncio.all_tasks()) == 1

    play(engine, story)


def test_a_hook_that_loops_is_stopped_while_the_loop_and_other_calls_go_on(engine):
    async def story(pool, realm):
        looping = asyncio.create_task(pool.run(realm, "tool", "loop", "{}", no_effects))
        turns = 0
        while not looping.done():
            turns += 1
            await asyncio.sleep(0.001)
        assert turns > 10
        failed = looping.result()
        assert isinstance(failed, StepFailed)
        assert failed.name == "Timeout"
        await works(pool, realm)

    play(engine, story)


@pytest.mark.parametrize("kind", ["get", "loop", "sum"])
@pytest.mark.parametrize("turns", [0, 1, 2, 5, 20])
def test_a_call_cancelled_at_any_moment_leaves_nothing_behind(engine, kind, turns):
    async def story(pool, realm):
        async def perform(effect):
            await asyncio.Event().wait()

        argument = '{"items":[1],"urls":["https://a.example/","https://b.example/"]}'
        task = asyncio.create_task(pool.run(realm, "tool", kind, argument, perform))
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        task.cancel()
        await asyncio.wait([task])

        await works(pool, realm)
        await until(lambda: engine.machines.lent == 0)

    play(engine, story)


def test_a_call_cancelled_while_it_waits_for_an_effect_cancels_the_effect(engine):
    async def story(pool, realm):
        waiting, ended = asyncio.Event(), []

        async def perform(effect):
            waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(effect.id)

        task = asyncio.create_task(
            pool.run(realm, "tool", "get", '{"urls":["https://a.example/"]}', perform)
        )
        await waiting.wait()
        assert engine.machines.lent == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [1]
        assert engine.machines.lent == 0

    play(engine, story)


def test_a_call_cancelled_while_its_code_runs_is_given_up_at_once(hooks_cache):
    engine = Engine(hooks_cache, HookLimits(seconds=2))

    async def story(pool, realm):
        task = asyncio.create_task(pool.run(realm, "tool", "loop", "{}", no_effects))
        await until(lambda: engine.machines.lent == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.machines.lent == 1  # its thread is still at it
        await until(lambda: engine.machines.lent == 0)
        await works(pool, realm)

    play(engine, story)
    engine.close()


def test_queued_calls_that_are_cancelled_never_run(engine):
    async def story(pool, realm):
        tasks = [
            asyncio.create_task(pool.run(realm, "tool", "loop", "{}", no_effects))
            for _ in range(60)
        ]
        await until(lambda: engine.machines.lent > 0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        # Sixty loops of 0.3 s would not be over in this test's time.
        await until(lambda: engine.machines.lent == 0)
        await works(pool, realm)

    play(engine, story)


def test_more_calls_than_there_are_places_wait_for_one(engine):
    async def story(pool, realm):
        release, under_way = asyncio.Event(), []

        async def perform(effect):
            under_way.append(effect)
            await release.wait()
            return reply("x")

        argument = '{"urls":["https://a.example/"]}'
        tasks = [
            asyncio.create_task(pool.run(realm, "tool", "get", argument, perform, caller=n % 2))
            for n in range(MAX_CALLS + 5)
        ]
        await until(lambda: len(under_way) == MAX_CALLS)
        assert engine.machines.lent == MAX_CALLS
        tasks[0].cancel()
        tasks[-1].cancel()
        await until(lambda: len(under_way) == MAX_CALLS + 1)
        release.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert outcomes[1:-1] == [Done('["x"]')] * (MAX_CALLS + 3)

    play(engine, story)


def test_calls_of_one_caller_that_wait_for_effects_leave_places_to_others(engine):
    async def story(pool, realm):
        release, under_way = asyncio.Event(), []

        async def perform(effect):
            under_way.append(effect)
            await release.wait()
            return reply("x")

        argument = '{"urls":["https://a.example/"]}'
        tasks = [
            asyncio.create_task(pool.run(realm, "tool", "get", argument, perform, caller="a"))
            for _ in range(MAX_CALLS + 5)
        ]
        await until(lambda: len(under_way) == MAX_CALLS_OF_ONE)
        other = await pool.run(realm, "tool", "sum", '{"items":[1,2]}', no_effects, caller="b")
        assert (other, len(under_way)) == (Done("3"), MAX_CALLS_OF_ONE)
        release.set()
        assert await asyncio.gather(*tasks) == [Done('["x"]')] * (MAX_CALLS + 5)

    play(engine, story)


def test_ninety_looping_hooks_of_one_caller_delay_another_one_by_one_turn(engine):
    async def story(pool, realm):
        ended = []

        async def loop():
            ended.append(await pool.run(realm, "tool", "loop", "{}", no_effects, caller="greedy"))

        greedy = [asyncio.create_task(loop()) for _ in range(90)]
        await until(lambda: engine.machines.lent > 0)
        for turn in range(3):
            before = len(ended)
            done = await pool.run(
                realm, "tool", "sum", '{"items":[1,2]}', no_effects, caller="modest"
            )
            assert done == Done("3"), turn
            # Those that ran when the call came and those of the next turn; a slow machine adds some.
            assert len(ended) - before < 24
        assert {failed.name for failed in ended} <= {"Timeout"}
        for task in greedy:
            task.cancel()
        await asyncio.wait(greedy)

    play(engine, story)


def test_too_many_waiting_calls_refuse_those_of_the_caller_with_the_most(engine):
    async def story(pool, realm):
        release = asyncio.Event()

        async def perform(effect):
            await release.wait()
            return reply("x")

        def ask(caller):
            argument = '{"urls":["https://a.example/"]}'
            run = pool.run(realm, "tool", "get", argument, perform, caller=caller)
            return asyncio.create_task(run)

        greedy = [ask("greedy") for _ in range(MAX_CALLS_OF_ONE + MAX_WAITING)]
        await until(lambda: engine.machines.lent == MAX_CALLS_OF_ONE)
        others = [ask(f"other {n}") for n in range(MAX_CALLS)]
        await until(lambda: engine.machines.lent == MAX_CALLS)
        refused = [task for task in greedy if task.done()]
        assert refused == greedy[MAX_CALLS_OF_ONE : MAX_CALLS_OF_ONE + len(refused)]
        assert len(refused) == MAX_CALLS_OF_ONE
        for task in refused:
            with pytest.raises(CallError, match="4,096 hook calls wait already") as caught:
                task.result()
            assert caught.value.code == "overloaded"
        waiting = greedy[MAX_CALLS_OF_ONE + len(refused) :]
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        release.set()
        await asyncio.gather(*others, *greedy[:MAX_CALLS_OF_ONE])

    play(engine, story)


def test_a_hook_runs_to_its_end_while_another_one_is_running(hooks_cache):
    """The first is in its endless loop all the time: it ends by its limit, after the second."""
    engine = Engine(hooks_cache, HookLimits(seconds=3))
    realm = engine.open(FILE, main="{}", lists="{}")
    outcomes = []

    def loop():
        outcomes.append(realm.begin("tool", "loop", "{}"))

    first = threading.Thread(target=loop)
    first.start()
    while engine.machines.lent == 0:
        pass
    second = realm.begin("tool", "sum", '{"items":[1,2]}')
    assert (second, outcomes) == (Done("3"), [])
    first.join(timeout=60)
    assert [failed.name for failed in outcomes] == ["Timeout"]
    engine.close()


def test_the_interpreter_runs_on_while_a_guest_runs(hooks_cache):
    """A guest that loops cannot hold the interpreter: this thread counts until it has ended."""
    engine = Engine(hooks_cache, HookLimits(seconds=0.3))
    realm = engine.open(FILE, main="{}", lists="{}")
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(realm.begin("tool", "loop", "{}")))
    thread.start()
    counted = 0
    while thread.is_alive():
        counted += 1
    thread.join()
    assert outcome[0].name == "Timeout"
    assert counted > 1000
    engine.close()


def test_recursion_on_a_thread_of_the_pool_is_contained(engine):
    async def story(pool, realm):
        deep = await pool.open(
            "export const main = {}\nexport const handlers = () => ( { t: { h: () => { const f = () => f() + 1; return f() } } } )",
            main="{}",
            lists="{}",
        )
        for _ in range(3):
            assert (await pool.run(deep, "t", "h", "{}", no_effects)).name == "StackOverflow"
        await works(pool, realm)

    play(engine, story)


def test_a_pool_serves_several_loops(engine):
    pool = ThreadPool(engine)
    realms = []

    async def first():
        realms.append(await pool.open(FILE, main="{}", lists="{}"))
        await works(pool, realms[0])

    asyncio.run(first())
    asyncio.run(works(pool, realms[0]))
    asyncio.run(pool.aclose())


def test_a_loop_that_ends_while_a_hook_runs_does_no_harm(engine):
    pool = ThreadPool(engine)
    realm = engine.open(FILE, main="{}", lists="{}")

    async def abandon():
        task = asyncio.ensure_future(pool.run(realm, "tool", "loop", "{}", no_effects))
        await until(lambda: engine.machines.lent == 1)
        return task

    asyncio.run(abandon())

    async def after():
        await works(pool, realm)
        await until(lambda: engine.machines.lent == 0)
        await pool.aclose()

    asyncio.run(after())


def test_a_closed_pool_says_so(engine):
    async def main():
        pool = ThreadPool(engine)
        realm = await pool.open(FILE, main="{}", lists="{}")
        await pool.aclose()
        await pool.aclose()
        with pytest.raises(UsageError):
            await pool.run(realm, "tool", "sum", "{}", no_effects)

    asyncio.run(main())
    assert engine.machines.lent == 0


def test_the_clock_of_the_guests_stops_when_none_runs(engine):
    realm = engine.open(FILE, main="{}", lists="{}")
    realm.begin("tool", "sum", '{"items":[1]}')

    async def main():
        await until(
            lambda: not [t for t in threading.enumerate() if t.name == "callpact-hooks-clock"]
        )

    asyncio.run(main())
    assert realm.begin("tool", "loop", "{}").name == "Timeout"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_hook_is_stopped_in_a_forked_process_too(hooks_cache):
    """The thread that stops hooks is not copied by a fork; the child must start its own."""
    code = """if True:
        import os, sys
        from pathlib import Path
        from callpact.sandbox.engine import Engine
        from callpact.sandbox.hook_limits import HookLimits
        engine = Engine(Path(sys.argv[1]), HookLimits(seconds=0.2))
        source = "export const main={}\\nexport const handlers=()=>({t:{h:()=>{for(;;){}}}})"
        realm = engine.open(source, main="{}", lists="{}")
        assert realm.begin("t", "h", "{}").name == "Timeout"
        child = os.fork()
        if child == 0:
            os._exit(0 if realm.begin("t", "h", "{}").name == "Timeout" else 1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    subprocess.run([sys.executable, "-c", code, str(hooks_cache)], check=True, timeout=60)
