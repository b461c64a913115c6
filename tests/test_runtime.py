"""One call, in order: find, admit, run, wrap, release, publish."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
import gc
import logging
import re
import sys
import threading
import time
import traceback
import weakref
from types import MappingProxyType

import pytest

from callpact.catalog import Catalog
from callpact.context import Identity
from callpact.envelope import (
    LocalResponseMeta,
    TextBlock,
    http_envelope,
    local_envelope,
    mcp_envelope,
    now_ms,
    unwrap,
)
from callpact.errors import (
    Aborted,
    CallError,
    HandlerCrashed,
    InvalidInput,
    InvalidTool,
    NotJson,
    OutputRejected,
    Timeout,
    ToolError,
    UnknownTool,
    UsageError,
)
from callpact.runtime import Runtime
from callpact.tool import Contract, Disabled, Tool

IN = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
OUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
SECRET = "postgres://admin:hunter2@db"


def _tool(handler, id="t.tool", **contract):
    contract = Contract(**{"input": IN, **contract})
    return Tool(id=id, description="", contract=contract, handler=handler, aliases=["old_tool"])


async def _echo(arguments, context):
    return arguments


def _later(seconds=3600.0):
    return (time.time() + seconds) * 1000


class _Story:
    """One runtime with one tool, and everything an observer heard of it."""

    def __init__(self, handler, **contract):
        self.events = []
        self.runtime = Runtime([_tool(handler, **contract)], observers=[self.events.append])

    def call(self, arguments=None, tool_id="t.tool", **options):
        return asyncio.run(self.runtime.execute(tool_id, arguments, **options))

    def failure(self, kind, arguments=None, tool_id="t.tool", **options):
        with pytest.raises(kind) as caught:
            self.call(arguments, tool_id, **options)
        assert type(caught.value) is kind
        (event,) = self.events
        assert event.error is caught.value
        assert event.envelope is None
        return caught.value


# --- results --------------------------------------------------------------------------------


@pytest.mark.requirement("001.execute.returns-envelope")
@pytest.mark.requirement("001.execute.wraps-raw-values")
@pytest.mark.requirement("001.constraint.no-overhead-for-handlers")
def test_a_raw_value_comes_back_in_a_local_envelope():
    story = _Story(_echo, output=OUT)
    envelope = story.call({"n": 5})
    assert unwrap(envelope) == {"n": 5}
    assert isinstance(envelope.meta, LocalResponseMeta)
    assert envelope.meta.operation_id == "t.tool"
    (event,) = story.events
    assert event.envelope is envelope
    assert event.error is None
    assert (event.tool_id, event.arguments, event.is_error, event.gate) == (
        "t.tool",
        {"n": 5},
        False,
        None,
    )


@pytest.mark.requirement("001.execute.envelopes-pass-through")
@pytest.mark.requirement("001.execute.source-is-not-checked")
@pytest.mark.parametrize(
    "own",
    [
        local_envelope({"n": 1}, "somebody.else"),
        http_envelope({"n": 1}, status_code=200, headers={}, content_type="application/json"),
        mcp_envelope({"n": 1}, is_error=False, content=[], structured_content={"n": 1}),
    ],
)
def test_an_envelope_that_a_handler_made_comes_back_as_it_is(own):
    async def handler(arguments, context):
        return own

    assert _Story(handler, output=OUT).call() is own


def test_an_envelope_in_json_form_is_an_envelope_too():
    async def handler(arguments, context):
        return {"data": {"n": 1}, "meta": {"source": "mcp"}}

    envelope = _Story(handler, output=OUT).call()
    assert envelope.data == {"n": 1}
    assert envelope.meta.source == "mcp"


@pytest.mark.requirement("001.mcp.is-error-is-data")
def test_an_mcp_error_result_raises_nothing():
    async def handler(arguments, context):
        return mcp_envelope([], is_error=True, content=[TextBlock("no such city")])

    story = _Story(handler, output=OUT)
    envelope = story.call()
    assert envelope.meta.is_error
    assert story.events[0].error is None


@pytest.mark.requirement("001.factories.void-data")
def test_a_handler_that_returns_nothing_gives_null():
    async def handler(arguments, context):
        pass

    assert _Story(handler).call().data is None


@pytest.mark.requirement("001.execute.order")
@pytest.mark.requirement("001.output.warns-before-cast")
def test_the_answer_is_cast_with_warnings_of_what_it_was():
    async def handler(arguments, context):
        return {"n": "many", "extra": 1}

    envelope = _Story(handler, output=OUT).call()
    assert envelope.data == {"n": 0}
    assert [w.code for w in envelope.warnings] == ["type", "replaced"]
    assert {c.action for c in envelope.changes} == {"replaced", "stripped"}


def test_repairs_of_the_input_are_warnings_of_the_answer():
    story = _Story(_echo, output=OUT, input_policy="tolerant")
    envelope = story.call({"n": "5"})
    assert envelope.data == {"n": 5}
    assert [(w.code, w.path) for w in envelope.warnings] == [("converted", "/n")]
    assert story.events[0].arguments == {"n": "5"}


@dataclasses.dataclass
class _Answer:
    n: int
    day: dt.date


def test_a_dataclass_of_a_raw_handler_becomes_plain_data():
    async def handler(arguments, context):
        return _Answer(1, dt.date(2026, 1, 2))

    assert _Story(handler).call().data == {"n": 1, "day": "2026-01-02"}


@pytest.mark.requirement("001.execute.awaits-if-awaitable")
def test_a_sync_handler_is_called_and_what_it_returns_awaited_if_it_can_be():
    def plain(arguments, context):
        return {"n": 1}

    def future(arguments, context):
        made = asyncio.get_running_loop().create_future()
        made.set_result({"n": 2})
        return made

    class Awaitable:
        def __await__(self):
            yield from asyncio.sleep(0).__await__()
            return {"n": 3}

    assert _Story(plain).call().data == {"n": 1}
    assert _Story(future).call().data == {"n": 2}
    assert _Story(lambda arguments, context: Awaitable()).call().data == {"n": 3}
    assert _Story(plain).call(deadline=_later()).data == {"n": 1}
    assert _Story(future).call(deadline=_later()).data == {"n": 2}


@pytest.mark.parametrize("name", ["t.tool", "t_tool", "old_tool"])
def test_a_tool_is_called_by_id_wire_name_or_alias_and_recorded_by_its_id(name):
    story = _Story(_echo)
    assert story.call({"n": 1}, name).meta.operation_id == "t.tool"
    assert story.events[0].tool_id == "t.tool"


def test_no_arguments_are_an_empty_object_and_any_mapping_will_do():
    assert _Story(_echo).call().data == {}
    assert _Story(_echo).call(None).data == {}
    assert _Story(_echo).call(MappingProxyType({"n": 1})).data == {"n": 1}


def test_a_handler_knows_its_call_and_nothing_of_the_runtime():
    seen = []

    async def handler(arguments, context):
        seen.append(context)

    story = _Story(handler)
    deadline = _later()
    story.call(identity=Identity("ann"), deadline=deadline)
    (context,), (event,) = seen, story.events
    assert (context.tool_id, context.identity, context.deadline) == (
        "t.tool",
        Identity("ann"),
        deadline,
    )
    assert context.call_id == event.call_id
    assert event.identity == Identity("ann")


class _Name(enum.StrEnum):
    ID = "t.tool"
    ALIAS = "old_tool"


@pytest.mark.parametrize("name", [*_Name, "old_tool", "t_tool"])
def test_under_whatever_name_a_tool_is_called_everybody_is_told_its_id_as_plain_text(name):
    seen = []

    async def handler(arguments, context):
        seen.append(context.tool_id)

    story = _Story(handler)
    envelope = story.call(tool_id=name)
    told = [*seen, story.events[0].tool_id, envelope.meta.operation_id]
    assert [(type(text), text) for text in told] == [(str, "t.tool")] * 3


def test_every_call_has_an_id_of_its_own_also_across_runtimes():
    events = []
    for _ in range(2):
        runtime = Runtime([_tool(_echo)], observers=[events.append])
        for _ in range(3):
            asyncio.run(runtime.execute("t.tool"))
    assert len({event.call_id for event in events}) == 6


# --- failures: each leaves exactly one event ------------------------------------------------


@pytest.mark.requirement("001.execute.looks-up")
def test_an_unknown_tool_is_told_with_the_nearest_and_recorded():
    story = _Story(_echo)
    error = story.failure(UnknownTool, tool_id="t.tol")
    assert error.code == "tool_not_found"
    assert "'t.tool'" in error.message
    assert (story.events[0].gate, story.events[0].tool_id) == ("find", "t.tol")


@pytest.mark.requirement("001.execute.validates-input")
@pytest.mark.requirement("004.gate.bad-input-never-reaches-handler")
@pytest.mark.requirement("004.gate.first")
@pytest.mark.parametrize("arguments", [{"n": "5"}, {"x": 1}, 5, "n=1", [1], {1: 2}])
def test_a_handler_never_sees_arguments_that_break_the_schema(arguments):
    seen = []

    async def handler(arguments, context):
        seen.append(arguments)

    story = _Story(handler)
    error = story.failure(InvalidInput, arguments)
    assert error.code == "schema_validation_failed"
    assert seen == []
    assert story.events[0].gate == "input"
    assert story.events[0].arguments is arguments


@pytest.mark.requirement("004.custom.tool-error-is-clean")
def test_a_tool_error_reaches_the_caller_as_it_was_raised():
    raised = ToolError("sold_out", "No tea left", path="/n", details={"left": 0})

    async def handler(arguments, context):
        raise raised

    story = _Story(handler)
    assert story.failure(ToolError) is raised
    assert story.events[0].gate == "handler"


def test_any_call_error_of_a_handler_propagates_as_it_is():
    inner = CallError("tool_error", "upstream said no")

    async def handler(arguments, context):
        raise inner

    assert _Story(handler).failure(CallError) is inner


@pytest.mark.parametrize(
    "crash",
    [
        ValueError(SECRET),
        KeyError(SECRET),
        TimeoutError(SECRET),
        RecursionError(SECRET),
        StopAsyncIteration(SECRET),
        UsageError(SECRET),
        InvalidTool(SECRET),
        ExceptionGroup(SECRET, [ValueError(SECRET)]),
    ],
    ids=lambda crash: type(crash).__name__,
)
@pytest.mark.parametrize("options", [{}, {"deadline": _later()}], ids=["", "with a deadline"])
def test_an_unexpected_exception_is_logged_in_full_and_shown_only_as_a_code(crash, options, caplog):
    async def handler(arguments, context):
        raise crash

    story = _Story(handler)
    with caplog.at_level(logging.ERROR, "callpact.runtime"):
        error = story.failure(HandlerCrashed, **options)
    assert error.code == "handler_error"
    shown = [str(error), repr(error), repr(error.details), repr(error.issues)]
    shown.extend(traceback.format_exception(error))
    assert not any("hunter2" in text for text in shown)
    (record,) = caplog.records
    assert record.exc_info[1] is crash
    assert story.events[0].call_id in record.getMessage()
    assert "t.tool" in record.getMessage()


def test_a_sync_handler_that_raises_is_a_crash_like_any_other(caplog):
    def handler(arguments, context):
        raise ValueError(SECRET)

    assert _Story(handler).failure(HandlerCrashed).code == "handler_error"


@pytest.mark.requirement("004.output.rejects-mismatch")
def test_an_answer_that_breaks_a_strict_contract_is_not_delivered():
    async def handler(arguments, context):
        return {"n": "five"}

    story = _Story(handler, output=OUT, policy="reject")
    error = story.failure(OutputRejected)
    assert (error.code, error.path) == ("output_validation_failed", "/n")
    assert story.events[0].gate == "output"
    assert story.events[0].refused.data == {"n": "five"}


@pytest.mark.parametrize(
    "make", [object, lambda: {1}, lambda: float("nan"), lambda: {1: 2}, lambda: (x for x in "a")]
)
def test_an_answer_that_is_neither_json_nor_bytes_is_not_delivered(make):
    async def handler(arguments, context):
        return make()

    story = _Story(handler)
    assert story.failure(NotJson).code == "output_validation_failed"
    assert story.events[0].gate == "output"


class _HostileMapping(dict):
    def __contains__(self, key):
        raise ValueError(SECRET)


@pytest.mark.parametrize(
    "answer",
    [
        {"data": "no base64!", "encoding": "base64", "meta": {"source": "local"}},
        _HostileMapping(),
    ],
)
def test_an_answer_that_breaks_while_it_is_read_is_a_crash_with_one_event(answer, caplog):
    async def handler(arguments, context):
        return answer

    error = _Story(handler).failure(HandlerCrashed)
    assert "hunter2" not in str(error)
    assert len(caplog.records) == 1


# --- deadlines ------------------------------------------------------------------------------


def test_a_deadline_in_the_future_changes_nothing():
    assert _Story(_echo).call({"n": 1}, deadline=_later()).data == {"n": 1}


def test_a_deadline_in_the_past_is_a_timeout_before_the_handler_runs():
    seen = []

    async def handler(arguments, context):
        seen.append(1)

    error = _Story(handler).failure(Timeout, deadline=_later(-1))
    assert error.code == "timeout"
    assert "nothing was run" in error.message
    assert seen == []


def test_a_deadline_that_passes_during_the_call_stops_the_handler():
    stopped = []

    async def handler(arguments, context):
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(1)

    deadline = _later(0.02)
    story = _Story(handler)
    error = story.failure(Timeout, deadline=deadline)
    assert error.details == {"deadline": deadline}
    assert "nothing was run" not in error.message
    assert stopped == [1]
    assert story.events[0].gate == "handler"


def test_a_handlers_own_timeout_is_not_ours(caplog):
    async def handler(arguments, context):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    _Story(handler).failure(HandlerCrashed, deadline=_later())
    _Story(handler).failure(HandlerCrashed)


def test_bad_input_is_told_before_a_deadline_in_the_past():
    _Story(_echo).failure(InvalidInput, {"n": "5"}, deadline=_later(-1))


@pytest.mark.parametrize(
    "deadline",
    ["soon", float("nan"), float("inf"), -float("inf"), True, dt.datetime(2026, 1, 1), [1]],
)
def test_a_deadline_that_is_no_point_in_time_is_wrong_use_and_no_call(deadline):
    story = _Story(_echo)
    with pytest.raises(UsageError, match="deadline must be epoch milliseconds"):
        story.call(deadline=deadline)
    assert story.events == []


# --- cancellation ---------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"deadline": _later()}], ids=["", "with a deadline"])
def test_cancellation_propagates_and_is_recorded_as_aborted(options):
    async def handler(arguments, context):
        started.set()
        await asyncio.Event().wait()

    async def main():
        call = asyncio.create_task(story.runtime.execute("t.tool", **options))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    story = _Story(handler)
    started = asyncio.Event()
    asyncio.run(main())
    (event,) = story.events
    assert event.error == Aborted("t.tool")
    assert event.error.code == "aborted"
    assert event.envelope is None


def test_cancelling_what_a_handler_waits_for_aborts_the_call_but_not_the_caller():
    async def handler(arguments, context):
        inner = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner

    assert _Story(handler).failure(Aborted).code == "aborted"


def test_the_end_of_the_program_is_not_held_up_and_still_recorded():
    async def handler(arguments, context):
        raise KeyboardInterrupt

    story = _Story(handler)
    call = story.runtime.execute("t.tool")
    with pytest.raises(KeyboardInterrupt):
        call.send(None)
    (event,) = story.events
    assert event.error == Aborted("t.tool")


def test_a_tool_that_exits_does_not_take_the_program_with_it():
    async def handler(arguments, context):
        sys.exit(3)

    story = _Story(handler)
    assert story.failure(HandlerCrashed).code == "handler_error"
    (event,) = story.events
    assert event.error == HandlerCrashed("t.tool")


def test_a_handler_that_hides_its_timeout_behind_an_error_is_still_out_of_time():
    async def handler(arguments, context):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("mine") from None

    story = _Story(handler)
    assert story.failure(Timeout, deadline=now_ms() + 30).code == "timeout"


def test_a_failed_call_leaves_no_garbage_behind():
    async def handler(arguments, context):
        raise ToolError("no", "No")

    story = _Story(handler)
    gc.collect()
    gc.disable()
    try:
        watched = None
        try:
            story.runtime.execute("t.tool").send(None)
        except ToolError as error:
            watched = weakref.ref(error)
        story.events.clear()
        assert watched is not None
        assert watched() is None
    finally:
        gc.enable()


# --- policies -------------------------------------------------------------------------------


def test_a_call_can_tighten_the_policy():
    async def handler(arguments, context):
        return {"n": "five"}

    story = _Story(handler, output=OUT, policy="warn")
    assert story.call().data == {"n": "five"}
    assert story.call(policy="cast").data == {"n": 0}
    with pytest.raises(OutputRejected):
        story.call(policy="reject")


@pytest.mark.parametrize("policy", ["pass", "warn", "strict", 5])
def test_a_call_cannot_loosen_the_policy_and_the_attempt_is_no_call(policy):
    seen = []

    async def handler(arguments, context):
        seen.append(1)

    story = _Story(handler, output=OUT, policy="cast")
    with pytest.raises(UsageError):
        story.call(policy=policy)
    assert seen == story.events == []


def test_an_unknown_tool_is_told_as_such_whatever_policy_is_asked_for():
    _Story(_echo).failure(UnknownTool, tool_id="no.tool", policy="reject", deadline=_later())


# --- observers ------------------------------------------------------------------------------


def test_observers_that_raise_are_counted_and_logged_and_change_nothing(caplog):
    def broken(event):
        raise ValueError("disk full")

    events = []
    runtime = Runtime([_tool(_echo)], observers=[broken, events.append, broken])
    envelope = asyncio.run(runtime.execute("t.tool", {"n": 1}))
    assert envelope.data == {"n": 1}
    assert len(events) == 1
    assert runtime.observer_failures == 2
    assert len(caplog.records) == 2
    with pytest.raises(UnknownTool):
        asyncio.run(runtime.execute("no.tool"))
    assert runtime.observer_failures == 4
    assert len(events) == 2


async def _async_observer(event):
    pass


class _AsyncObserver:
    async def __call__(self, event):
        pass


@pytest.mark.parametrize(
    "observers",
    [5, [5], [None], ["log"], [_async_observer], [_AsyncObserver()], print],
)
def test_what_cannot_observe_is_wrong_use(observers):
    with pytest.raises(UsageError, match="observer"):
        Runtime([], observers=observers)


def test_a_runtime_takes_a_catalog_or_any_list_of_tools():
    catalog = Catalog([_tool(_echo)])
    assert Runtime(catalog).catalog is catalog
    assert len(Runtime([_tool(_echo)]).catalog) == 1
    with pytest.raises(InvalidTool):
        Runtime(5)


# --- execute_sync ---------------------------------------------------------------------------


def test_execute_sync_gives_the_envelope_without_an_event_loop():
    story = _Story(_echo)
    assert story.runtime.execute_sync("t.tool", {"n": 1}).data == {"n": 1}
    with pytest.raises(InvalidInput):
        story.runtime.execute_sync("t.tool", {"n": "x"})
    with pytest.raises(Timeout):
        story.runtime.execute_sync("t.tool", deadline=_later(-1))
    with pytest.raises(UsageError):
        story.runtime.execute_sync("t.tool", deadline="soon")
    story.runtime.close()
    assert len(story.events) == 3


def test_execute_sync_inside_an_event_loop_is_wrong_use():
    story = _Story(_echo)

    async def main():
        story.runtime.execute_sync("t.tool")

    with pytest.raises(UsageError, match=re.escape("await execute(...) instead")):
        asyncio.run(main())
    assert story.events == []


def test_execute_sync_serves_several_threads_on_one_loop():
    loops = set()

    async def handler(arguments, context):
        loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return arguments

    story = _Story(handler)
    results = []

    def work(n):
        results.append(story.runtime.execute_sync("t.tool", {"n": n}).data["n"])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    story.runtime.close()
    assert sorted(results) == list(range(20))
    assert len(loops) == 1
    assert len(story.events) == 20


def test_closing_aborts_the_calls_that_still_run_and_nobody_hangs():
    started, outcome = threading.Event(), []

    async def handler(arguments, context):
        started.set()
        await asyncio.Event().wait()

    story = _Story(handler)

    def work():
        try:
            story.runtime.execute_sync("t.tool")
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(30)
    story.runtime.close()
    thread.join(30)
    assert not thread.is_alive()
    assert outcome == [Aborted("t.tool")]
    assert [event.error for event in story.events] == [Aborted("t.tool")]


def test_a_runtime_can_be_closed_twice_and_used_again():
    story = _Story(_echo)
    story.runtime.close()
    assert story.runtime.execute_sync("t.tool", {"n": 1}).data == {"n": 1}
    story.runtime.close()
    story.runtime.close()
    assert story.runtime.execute_sync("t.tool", {"n": 2}).data == {"n": 2}
    story.runtime.close()


def test_leaving_the_context_of_a_runtime_ends_its_background_loop():
    story = _Story(_echo)
    story.runtime.execute_sync("t.tool")

    async def main():
        async with story.runtime as runtime:
            assert (await runtime.execute("t.tool", {"n": 1})).data == {"n": 1}

    asyncio.run(main())
    assert "callpact-loop" not in {thread.name for thread in threading.enumerate()}


def test_a_call_cannot_close_the_runtime_that_runs_it(caplog):
    async def handler(arguments, context):
        story.runtime.close()

    story = _Story(handler)
    with pytest.raises(HandlerCrashed):
        story.runtime.execute_sync("t.tool")
    assert caplog.records[0].exc_info[0] is UsageError
    story.runtime.close()


# --- many at once ---------------------------------------------------------------------------


def test_calls_run_side_by_side_and_each_leaves_one_event():
    waiting = 0
    gate = asyncio.Event()

    async def handler(arguments, context):
        nonlocal waiting
        waiting += 1
        if waiting == 50:
            gate.set()
        await gate.wait()
        return arguments

    story = _Story(handler)

    async def main():
        calls = (story.runtime.execute("t.tool", {"n": n}) for n in range(50))
        return await asyncio.gather(*calls)

    envelopes = asyncio.run(main())
    assert [e.data["n"] for e in envelopes] == list(range(50))
    assert len({event.call_id for event in story.events}) == 50


# --- tools that cannot be called ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mutation", "subscription"])
def test_a_disabled_tool_is_refused_with_its_code_before_its_input_is_looked_at(kind):
    ran = []

    async def answer(arguments, context):
        ran.append(arguments)

    async def stream(arguments, context):
        ran.append(arguments)
        yield 1

    tool = Tool(
        id="t.tool",
        description="",
        contract=Contract(input=IN),
        handler=stream if kind == "subscription" else answer,
        kind=kind,
        disabled=Disabled("server_param_missing", "The key TEA_KEY is not set"),
    )
    events = []
    runtime = Runtime([tool], observers=[events.append])

    async def read():
        if kind == "subscription":
            return [item async for item in runtime.subscribe("t.tool", {"wrong": 1})]
        return await runtime.execute("t.tool", {"wrong": 1})

    with pytest.raises(CallError) as caught:
        asyncio.run(read())
    assert (caught.value.code, caught.value.message) == (
        "server_param_missing",
        "The key TEA_KEY is not set",
    )
    assert ran == []
    assert [event.error for event in events] == [caught.value]


def test_a_contract_made_later_is_made_once_and_only_when_it_is_needed():
    made = []

    def make():
        made.append(1)
        return Contract(input=IN, output=OUT, policy="reject")

    contract = Contract.later(make)
    tool = Tool(id="t.tool", description="", contract=contract, handler=_echo)
    runtime = Runtime([tool])
    assert made == []
    assert asyncio.run(runtime.execute("t.tool", {"n": 1})).data == {"n": 1}
    with pytest.raises(InvalidInput):
        asyncio.run(runtime.execute("t.tool", {"n": "1"}))
    assert made == [1]
    assert (contract.policy, contract.input, contract.output) == ("reject", IN, OUT)
    assert contract == Contract(input=IN, output=OUT, policy="reject")
    with pytest.raises(AttributeError):
        _ = contract.nothing


# --- other names of arguments ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected", "told"),
    [
        ({"n": 1}, {"n": 1}, []),
        ({"NUMBER": 1}, {"n": 1}, ["/n"]),
    ],
)
def test_an_argument_may_come_under_another_name_and_that_is_told(given, expected, told):
    tool = dataclasses.replace(_tool(_echo), argument_aliases={"NUMBER": "n"})
    envelope = asyncio.run(Runtime([tool]).execute("t.tool", given))
    assert envelope.data == expected
    assert [warning.path for warning in envelope.warnings if warning.code == "renamed"] == told


@pytest.mark.parametrize("given", [{"NUMBER": 1, "n": 2}, {"NUMBER": "x"}, {"number": 1}])
def test_another_name_lets_nothing_in_that_is_wrong_under_its_own(given):
    tool = dataclasses.replace(_tool(_echo), argument_aliases={"NUMBER": "n"})
    with pytest.raises(InvalidInput):
        asyncio.run(Runtime([tool]).execute("t.tool", given))
