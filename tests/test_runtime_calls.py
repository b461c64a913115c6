"""`Runtime.call`, `stream`, `subscribe` and `env`: who may call, what streams give, how calls nest.

Tests run on a loop whose clock is its own, see `stories.py`.
"""

from __future__ import annotations

import asyncio
import functools
import gc
from contextlib import aclosing

import pytest

import stories
from callpact.catalog import Catalog
from callpact.context import Context, Identity
from callpact.envelope import (
    LocalResponseMeta,
    TextBlock,
    http_envelope,
    local_envelope,
    mcp_envelope,
    now_ms,
)
from callpact.errors import (
    Aborted,
    AccessDenied,
    CallError,
    Failed,
    HandlerCrashed,
    InvalidInput,
    NotJson,
    OutputRejected,
    Timeout,
    ToolError,
    UnknownTool,
    UsageError,
)
from callpact.protocol import LocalBus, PendingRequestMap, build_call_handler
from callpact.protocol.events import EVENT_TYPES
from callpact.runtime import MAX_NESTED, Runtime, build_env
from callpact.tool import OPEN, Access, Call, Contract, Tool

_story, _settle, _ever, _in = stories.story, stories.settle, stories.ever, stories.from_now
_tool, _outcome, _JsonBus = stories.tool, stories.outcome, stories.JsonBus
HOUR, SECRET, OUT = stories.HOUR, stories.SECRET, stories.OUT
ANN = Identity("ann", ["shop:read", "shop:write"], {"project:42": ["read"]})
IN = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}


class _Told:
    """A runtime, and what its observers heard."""

    def __init__(self, *tools):
        self.finished = []
        self.runtime = Runtime(tools, observers=[self.finished.append])

    def call(self, tool_id="t.tool", arguments=None, identity=None, **call):
        return self.runtime.call(Call(tool_id, arguments, **call), identity)

    def stream(self, tool_id="t.tool", arguments=None, identity=None, **call):
        return self.runtime.stream(Call(tool_id, arguments, **call), identity)

    async def first(self, tool_id="t.tool", arguments=None, identity=None, **call):
        """The answer of a call, or the first of a stream."""
        if self.runtime.catalog.find("t.tool").kind != "subscription":
            return await self.call(tool_id, arguments, identity, **call)
        async with aclosing(self.stream(tool_id, arguments, identity, **call)) as stream:
            return await anext(stream)

    @property
    def end(self):
        (event,) = self.finished
        return event


async def _read(stream):
    async with aclosing(stream):
        return [envelope async for envelope in stream]


async def _echo(arguments, context):
    return arguments


async def _counts(arguments, context):
    for number in range(3):
        yield number


# --- access ---------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", [_echo, _counts])
@_story
async def test_access_is_asked_before_any_schema_work(handler):
    told = _Told(_tool(handler, access=["shop:admin"], input=IN))
    # A value that no schema can be asked about shows that none was.
    for arguments in ({"n": "x"}, {"n": object()}, 5):
        for identity in (None, Identity("bob"), ANN):
            told.finished.clear()
            with pytest.raises(AccessDenied) as caught:
                await told.first(arguments=arguments, identity=identity)
            assert caught.value.code == "access_denied"
            assert caught.value.issues == ()
            assert "integer" not in str(caught.value)
            assert told.end.error is caught.value
            assert told.end.gate == "access"
            assert told.end.identity == identity


@_story
async def test_a_stranger_learns_nothing_and_a_known_caller_what_is_missing():
    told = _Told(_tool(_echo, access=["shop:admin", "shop:read"]))
    with pytest.raises(AccessDenied) as stranger:
        await told.call()
    assert "shop:" not in str(stranger.value)
    assert stranger.value.details == {}
    with pytest.raises(AccessDenied) as known:
        await told.call(identity=ANN)
    assert known.value.details == {"missing": ["shop:admin"]}


@pytest.mark.parametrize(
    ("access", "identity", "is_granted"),
    [
        (OPEN, None, True),
        (Access(), ANN, True),
        (["shop:read"], ANN, True),
        (["shop:read", "shop:write"], ANN, True),
        (["shop:read", "root"], ANN, False),
        (["shop:read"], None, False),
        (["shop"], ANN, False),
        (Access(any_scopes=["root", "shop:read"]), ANN, True),
        (Access(any_scopes=["root", "admin"]), ANN, False),
        (Access(any_scopes=["root"]), None, False),
        (Access(["shop:read"], ["root"]), ANN, False),
        (Access(resource_type="project", resource_action="read"), ANN, True),
        (Access(resource_type="project", resource_action="write"), ANN, False),
        (Access(resource_type="proj", resource_action="read"), ANN, False),
        (Access(resource_type="project", resource_action="read"), None, False),
        (Access(["root"], (), "project", "read"), ANN, False),
    ],
)
@_story
async def test_the_right_callers_pass(access, identity, is_granted):
    told = _Told(_tool(_echo, access=access), _tool(_counts, "t.stream", access=access))
    if is_granted:
        assert (await told.call(arguments={"n": 1}, identity=identity)).data == {"n": 1}
        assert len(await _read(told.stream("t.stream", identity=identity))) == 3
    else:
        with pytest.raises(AccessDenied):
            await told.call(identity=identity)
        with pytest.raises(AccessDenied):
            await anext(told.stream("t.stream", identity=identity))


@_story
async def test_a_tool_is_guarded_under_every_name_it_has():
    told = _Told(_tool(_echo, "shop.price", access=["root"], aliases=["old_price"]))
    for name in ("shop.price", "shop_price", "old_price"):
        with pytest.raises(AccessDenied):
            await told.call(name, identity=ANN)
        assert told.finished[-1].tool_id == "shop.price"


@_story
async def test_code_of_the_process_is_not_asked():
    told = _Told(_tool(_echo, access=["root"]), _tool(_counts, "t.stream", access=["root"]))
    assert (await told.runtime.execute("t.tool", {"n": 1})).data == {"n": 1}
    assert (await told.runtime.call(Call("t.tool"), trusted=True)).data == {}
    assert len(await _read(told.runtime.subscribe("t.stream"))) == 3
    assert len(await _read(told.runtime.stream(Call("t.stream"), trusted=True))) == 3


@pytest.mark.parametrize("wrong", ["ann", {"id": "ann", "scopes": ["root"]}, 5, Identity, b""])
@_story
async def test_an_identity_that_is_none_of_ours_is_wrong_use(wrong):
    told = _Told(_tool(_echo), _tool(_counts, "t.stream"))
    for asked in (
        told.call(identity=wrong),
        told.runtime.execute("t.tool", identity=wrong),
        anext(told.stream("t.stream", identity=wrong)),
        anext(told.runtime.subscribe("t.stream", identity=wrong)),
    ):
        with pytest.raises(UsageError):
            await asked
    assert told.finished == []


@_story
async def test_only_tools_that_the_caller_may_use_are_suggested():
    told = _Told(
        _tool(_echo, "shop.price_root", access=["root"]),
        _tool(_echo, "shop.price_read", access=["shop:read"]),
        _tool(_counts, "shop.price_ticks", access=Access(any_scopes=["root"])),
        _tool(_echo, "shop.price_open"),
    )
    seen = {}
    for name, identity in [
        ("stranger", None),
        ("ann", ANN),
        ("root", Identity("root", ["root", "shop:read"])),
    ]:
        for asked in (
            told.call("shop.price_xxxx", identity=identity),
            anext(told.stream("shop.price_xxxx", identity=identity)),
        ):
            with pytest.raises(UnknownTool) as caught:
                await asked
            named = {tool.id for tool in told.runtime.catalog if tool.id in caught.value.message}
            assert seen.setdefault(name, named) == named
    assert seen["stranger"] == {"shop.price_open"}
    assert seen["ann"] == {"shop.price_open", "shop.price_read"}
    assert {"shop.price_root", "shop.price_ticks"} & seen["root"]


# --- the wrong kind -------------------------------------------------------------------------


@pytest.mark.parametrize("is_trusted", [True, False])
@_story
async def test_the_answer_of_a_subscription_and_the_stream_of_an_answer_are_refused(is_trusted):
    ran = []

    async def handler(arguments, context):
        ran.append(1)

    async def stream(arguments, context):
        ran.append(1)
        yield 1

    told = _Told(_tool(handler, "t.plain"), _tool(stream, "t.stream"))
    with pytest.raises(Failed) as caught:
        await told.runtime.call(Call("t.stream"), trusted=is_trusted)
    assert (type(caught.value), caught.value.code) == (Failed, "handler_error")
    assert "t.stream" in caught.value.message
    with pytest.raises(Failed) as caught:
        await anext(told.runtime.stream(Call("t.plain"), trusted=is_trusted))
    assert (type(caught.value), caught.value.code) == (Failed, "handler_error")
    assert "t.plain" in caught.value.message
    assert ran == []
    assert [event.tool_id for event in told.finished] == ["t.stream", "t.plain"]


@_story
async def test_a_stream_that_is_never_read_is_no_call():
    told = _Told(_tool(_counts))
    stream = told.stream()
    await stream.aclose()
    assert told.finished == []


# --- what streams give ----------------------------------------------------------------------


@_story
async def test_each_result_is_wrapped_with_a_time_of_its_own():
    async def stream(arguments, context):
        for number in range(3):
            before = now_ms()
            while now_ms() == before:
                pass
            yield number

    got = await _read(Runtime([_tool(stream)]).subscribe("t.tool"))
    assert [envelope.data for envelope in got] == [0, 1, 2]
    assert all(type(envelope.meta) is LocalResponseMeta for envelope in got)
    assert {envelope.meta.operation_id for envelope in got} == {"t.tool"}
    stamps = [envelope.meta.timestamp for envelope in got]
    assert stamps == sorted(set(stamps))
    assert len(stamps) == 3


@_story
async def test_envelopes_pass_as_they_are():
    own = [
        local_envelope({"n": 1}, "somebody.else"),
        http_envelope({"n": 1}, status_code=200, headers={}, content_type="application/json"),
        mcp_envelope({"n": 1}, is_error=False, content=[], structured_content={"n": 1}),
        mcp_envelope([], is_error=True, content=[TextBlock("no")]),
    ]

    async def stream(arguments, context):
        for envelope in own:
            yield envelope
        yield {"data": {"n": 5}, "meta": {"source": "http"}}

    for policy in ("cast", "warn", "reject"):
        got = await _read(Runtime([_tool(stream, output=OUT, policy=policy)]).subscribe("t.tool"))
        assert all(came is sent for came, sent in zip(got, own, strict=False))
        assert (got[4].data, got[4].meta.source) == ({"n": 5}, "http")


@_story
async def test_an_envelope_in_the_data_stays_data():
    inner = {"data": 1, "meta": {"source": "local"}}

    async def stream(arguments, context):
        yield {"data": inner, "meta": {"source": "mcp"}}

    (got,) = await _read(Runtime([_tool(stream)]).subscribe("t.tool"))
    assert got.data == inner


async def _wrong(arguments, context):
    yield {"n": 1}
    yield {"n": "many"}
    yield {"n": 3, "extra": 1}
    yield {}


@_story
async def test_each_result_is_cast_on_its_own():
    got = await _read(Runtime([_tool(_wrong, output=OUT)]).subscribe("t.tool"))
    assert [envelope.data for envelope in got] == [{"n": 1}, {"n": 0}, {"n": 3}, {"n": 0}]
    assert [{change.path for change in envelope.changes} for envelope in got] == [
        set(), {"/n"}, {"/extra"}, {"/n"},
    ]  # fmt: skip
    assert [bool(envelope.warnings) for envelope in got] == [False, True, False, True]


@_story
async def test_each_result_is_warned_of_on_its_own():
    got = await _read(Runtime([_tool(_wrong, output=OUT, policy="warn")]).subscribe("t.tool"))
    assert [envelope.data for envelope in got] == [
        {"n": 1},
        {"n": "many"},
        {"n": 3, "extra": 1},
        {},
    ]
    assert [[issue.path for issue in envelope.warnings] for envelope in got] == [
        [], ["/n"], [], [],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "tightened"),
    [
        ("reject", None),
        ("cast", "reject"),
        ("warn", "reject"),
        ("convert", None),
        ("cast", "convert"),
    ],
)
@_story
async def test_a_result_that_is_rejected_ends_the_stream_and_closes_the_generator(
    policy, tightened
):
    ended = []

    async def stream(arguments, context):
        try:
            async for value in _wrong(arguments, context):
                yield value
        finally:
            ended.append(1)

    told = _Told(_tool(stream, output=OUT, policy=policy))
    got, error = await _outcome(told.stream(policy=tightened))
    assert got == [{"n": 1}]
    assert type(error) is OutputRejected
    assert error.path == "/n"
    assert ended == [1]
    assert (told.end.count, told.end.error, told.end.gate) == (1, error, "output")


@_story
async def test_a_result_that_is_not_json_ends_the_stream():
    async def stream(arguments, context):
        yield 1
        yield {1, 2}

    told = _Told(_tool(stream))
    got, error = await _outcome(told.stream())
    assert got == [1]
    assert type(error) is NotJson
    assert told.end.count == 1


@_story
async def test_a_stream_can_only_be_tightened():
    told = _Told(_tool(_wrong, output=OUT, policy="reject"))
    with pytest.raises(UsageError):
        await anext(told.runtime.subscribe("t.tool", policy="warn"))
    with pytest.raises(UsageError):
        await anext(told.runtime.subscribe("t.tool", policy="quiet"))
    assert told.finished == []


@_story
async def test_repairs_of_the_input_are_warnings_of_the_first_result_alone():
    seen = []

    async def stream(arguments, context):
        seen.append(arguments)
        yield {"n": 1}
        yield {"n": 2}

    told = _Told(_tool(stream, input=IN, output=OUT, input_policy="tolerant"))
    first, second = await _read(told.stream(arguments={"n": "10"}))
    assert seen == [{"n": 10}]
    assert [issue.path for issue in first.warnings] == ["/n"]
    assert second.warnings == ()
    first, second = await _read(told.stream(arguments={"n": 10}))
    assert (first.warnings, second.warnings) == ((), ())


@_story
async def test_bad_input_never_reaches_the_generator():
    ran = []

    async def stream(arguments, context):
        ran.append(1)
        yield 1

    told = _Told(_tool(stream, input=IN))
    with pytest.raises(InvalidInput) as caught:
        await anext(told.stream(arguments={"n": "x"}))
    assert caught.value.path == "/n"
    assert ran == []
    assert (told.end.count, told.end.gate) == (0, "input")


# --- how streams end ------------------------------------------------------------------------


class _Tap:
    """A generator that says when it is closed, and with what."""

    def __init__(self, *, waits=False):
        self.closed = []
        self.waits = waits

    async def stream(self, arguments, context):
        try:
            for number in range(100):
                yield number
                if self.waits:
                    await _ever()
        except BaseException as error:
            self.closed.append(type(error))
            raise
        else:
            self.closed.append(None)

    def told(self):
        async def handler(arguments, context):
            async with aclosing(self.stream(arguments, context)) as values:
                async for value in values:
                    yield value

        return _Told(_tool(handler))


@_story
async def test_a_stream_that_ends_is_one_finished_call_with_its_count():
    tap = _Tap()
    told = tap.told()
    assert len(await _read(told.stream(id="c-1", parent_id="p-1", identity=ANN))) == 100
    assert tap.closed == [None]
    end = told.end
    assert (end.count, end.envelope, end.error, end.is_error, end.gate) == (
        100, None, None, False, None,
    )  # fmt: skip
    assert (end.call_id, end.parent_id, end.tool_id) == ("c-1", "p-1", "t.tool")
    assert end.identity is ANN
    assert end.arguments == {}


@_story
async def test_a_reader_that_has_enough_closes_the_generator():
    tap = _Tap()
    told = tap.told()
    async with aclosing(told.stream()) as stream:
        async for envelope in stream:
            if envelope.data == 4:
                break
    assert tap.closed == [GeneratorExit]
    assert (told.end.count, told.end.error) == (5, None)
    await stream.aclose()
    assert len(told.finished) == 1


@_story
async def test_an_exception_of_the_reader_closes_the_generator_and_is_not_the_tools():
    tap = _Tap()
    told = tap.told()

    async def read():
        async with aclosing(told.stream()) as stream:
            async for _ in stream:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await read()
    assert tap.closed == [GeneratorExit]
    assert (told.end.count, told.end.error) == (1, None)


@_story
async def test_a_deadline_closes_the_generator():
    tap = _Tap(waits=True)
    told = tap.told()
    deadline = _in(HOUR)
    got, error = await _outcome(told.stream(deadline=deadline))
    assert got == [0]
    assert type(error) is Timeout
    assert error.details == {"deadline": deadline}
    assert tap.closed == [asyncio.CancelledError]
    assert (told.end.count, told.end.error) == (1, error)


@_story
async def test_a_deadline_that_is_over_runs_nothing():
    tap = _Tap()
    told = tap.told()
    with pytest.raises(Timeout):
        await anext(told.stream(deadline=5.0))
    assert tap.closed == []
    assert told.end.count == 0


@pytest.mark.parametrize(
    "wrong",
    [float("nan"), float("inf"), float("-inf"), True, "1", [1], 10**400],
    ids=lambda v: f"{v!r:.9}",
)
@pytest.mark.parametrize("handler", [_echo, _counts])
@_story
async def test_a_deadline_that_is_no_number_is_wrong_use_in_the_words_of_the_bus(wrong, handler):
    told = _Told(_tool(handler))
    with pytest.raises(UsageError) as here:
        await told.first(deadline=wrong)
    assert told.finished == []
    with pytest.raises(UsageError) as over_the_bus:
        await PendingRequestMap().call("t.tool", deadline=wrong)
    assert str(here.value) == str(over_the_bus.value)


@pytest.mark.parametrize("is_reading", [True, False])
@_story
async def test_a_reader_that_is_cancelled_closes_the_generator(is_reading):
    tap = _Tap(waits=is_reading)
    told = tap.told()

    async def read():
        async with aclosing(told.stream()) as stream:
            async for _ in stream:
                if not is_reading:
                    await _ever()

    task = asyncio.ensure_future(read())
    await _settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(tap.closed) == 1
    assert told.end.count == 1


@_story
async def test_a_reader_that_runs_out_of_time_is_not_told_that_the_tool_did():
    tap = _Tap(waits=True)
    told = tap.told()
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(1):
            await _read(told.stream())
    assert not isinstance(caught.value, CallError)
    assert len(tap.closed) == 1
    assert len(told.finished) == 1


@_story
async def test_a_stream_that_is_dropped_closes_the_generator_when_it_is_collected():
    tap = _Tap()
    told = tap.told()
    stream = told.stream()
    await anext(stream)
    del stream
    gc.collect()
    await _settle()
    assert tap.closed == [GeneratorExit]
    assert told.end.count == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ToolError("sold_out", "none left"), ToolError),
        (KeyError(SECRET), HandlerCrashed),
        (SystemExit(SECRET), HandlerCrashed),
        (StopAsyncIteration(SECRET), HandlerCrashed),
        (asyncio.CancelledError(SECRET), Aborted),
        (GeneratorExit(SECRET), CallError),
    ],
    ids=lambda value: type(value).__name__,
)
@_story
async def test_what_a_generator_raises_ends_the_stream(error, kind):
    async def stream(arguments, context):
        yield 1
        raise error

    told = _Told(_tool(stream))
    got, came = await _outcome(told.stream())
    assert got == [1]
    assert isinstance(came, kind)
    assert SECRET not in str(came)
    assert (told.end.count, told.end.error) == (1, came)


def _breaks_when_closed(error):
    async def stream(arguments, context):
        try:
            for number in range(10):
                yield number
        finally:
            if error is asyncio.CancelledError:
                future = asyncio.get_running_loop().create_future()
                future.cancel()
                await future
            raise error(SECRET)

    return stream


@pytest.mark.parametrize("error", [KeyError, SystemExit, asyncio.CancelledError, ToolError])
@_story
async def test_a_generator_that_breaks_while_it_is_closed_troubles_nobody(error):
    if error is ToolError:
        error = functools.partial(ToolError, "late")
    told = _Told(_tool(_breaks_when_closed(error)))
    async with aclosing(told.stream()) as stream:
        assert (await anext(stream)).data == 0
    assert (told.end.count, told.end.error) == (1, None)


@_story
async def test_a_generator_that_goes_on_when_it_is_closed_troubles_nobody():
    async def stream(arguments, context):
        while True:
            try:
                yield 1
            except GeneratorExit:
                yield 2
                return

    told = _Told(_tool(stream))
    async with aclosing(told.stream()) as reader:
        await anext(reader)
    assert (told.end.count, told.end.error) == (1, None)


@_story
async def test_an_object_that_is_called_like_an_async_generator_function_streams():
    class Odd:
        async def __call__(self, arguments, context):
            yield 1

    told = _Told(
        Tool(id="t.tool", description="", contract=Contract(), handler=Odd(), kind="subscription")
    )
    assert [envelope.data for envelope in await _read(told.stream())] == [1]


# --- one finished call ----------------------------------------------------------------------


@_story
async def test_every_call_is_one_finished_call_whatever_became_of_it():
    async def handler(arguments, context):
        match arguments.get("n"):
            case 1:
                raise ToolError("sold_out", "none left")
            case 2:
                raise KeyError(SECRET)
            case 3:
                return {1}
            case 4:
                await _ever()
        return arguments

    told = _Told(_tool(handler, input=IN, access=["shop:read"]))
    for arguments, identity, kind in [
        ({}, ANN, None),
        ({"n": 1}, ANN, ToolError),
        ({"n": 2}, ANN, HandlerCrashed),
        ({"n": 3}, ANN, NotJson),
        ({"n": "x"}, ANN, InvalidInput),
        ({"n": "x"}, None, AccessDenied),
        ({"n": 4}, ANN, Timeout),
    ]:
        told.finished.clear()
        call = told.call(arguments=arguments, identity=identity, id="c", deadline=_in(HOUR))
        if kind is None:
            envelope = await call
            assert told.end.envelope is envelope
        else:
            with pytest.raises(kind) as caught:
                await call
            assert told.end.error is caught.value
        assert (told.end.call_id, told.end.count) == ("c", None)
        assert told.end.identity == identity


@_story
async def test_a_call_without_an_id_gets_one_and_no_two_the_same():
    seen = []

    async def handler(arguments, context):
        seen.append(context.call_id)

    told = _Told(_tool(handler))
    for _ in range(3):
        await told.call()
    assert [event.call_id for event in told.finished] == seen
    assert len(set(seen)) == 3


# --- env: what is handed on -----------------------------------------------------------------


WAYS = pytest.mark.parametrize("way", ["in process", "bus", "json bus"])


class _House:
    """Tools that call one another, in process or over a bus, and everything that was said."""

    def __init__(self, way, *tools):
        self.finished = []
        self.runtime = Runtime(tools, observers=[self.finished.append])
        self.events = []
        self.map = None
        if way != "in process":
            self.map = PendingRequestMap(_JsonBus() if way == "json bus" else LocalBus())
            for topic in EVENT_TYPES:
                self.map.bus.subscribe(topic, self.events.append)
            self.map.bus.subscribe("call.requested", build_call_handler(self.runtime, self.map))

    async def call(self, tool_id, arguments=None, identity=None, **options):
        if self.map is not None:
            return await self.map.call(tool_id, arguments, identity=identity, **options)
        return await self.runtime.call(Call(tool_id, arguments, **options), identity)

    async def assert_empty(self):
        await _settle()
        if self.map is not None:
            assert self.map.pending_count == 0
            assert self.map.answering == {}
            assert self.map.bus._tasks == set()
        assert asyncio.all_tasks() == {asyncio.current_task()}


@WAYS
@_story
async def test_identity_deadline_metadata_parent_and_chain_are_handed_on(way):
    contexts = {}

    async def inner(arguments, context):
        contexts["inner"] = context
        return {"n": arguments["n"] + 1}

    async def middle(arguments, context):
        contexts["middle"] = context
        await asyncio.sleep(0)
        return (await context.env.t.inner(arguments)).data

    async def outer(arguments, context):
        contexts["outer"] = context
        return (await context.env["t"]["middle"](arguments)).data

    house = _House(way, _tool(inner, "t.inner"), _tool(middle, "t.middle"), _tool(outer, "t.outer"))
    deadline = _in(HOUR)
    envelope = await house.call(
        "t.outer", {"n": 1}, identity=ANN, deadline=deadline, metadata={"trace": "x"}
    )
    assert envelope.data == {"n": 2}
    outer, middle, inner = (contexts[name] for name in ("outer", "middle", "inner"))
    for context in (outer, middle, inner):
        assert context.identity == ANN
        assert context.deadline == deadline
        assert context.metadata == {"trace": "x"}
    assert outer.parent_id is None
    assert middle.parent_id == outer.call_id
    assert inner.parent_id == middle.call_id
    assert len({outer.call_id, middle.call_id, inner.call_id}) == 3
    assert (outer.chain, middle.chain, inner.chain) == (
        (), ("t.outer",), ("t.outer", "t.middle"),
    )  # fmt: skip
    assert [event.tool_id for event in house.finished] == ["t.inner", "t.middle", "t.outer"]
    assert [event.parent_id for event in house.finished] == [
        middle.call_id, outer.call_id, None,
    ]  # fmt: skip
    requests = [event for event in house.events if event.type == "call.requested"]
    assert len(requests) == (0 if way == "in process" else 3)
    await house.assert_empty()


@WAYS
@_story
async def test_a_stream_hands_on_what_a_call_does(way):
    contexts = []

    async def inner(arguments, context):
        contexts.append(context)
        return 1

    async def outer(arguments, context):
        contexts.append(context)
        yield (await context.env.t.inner()).data

    house = _House(way, _tool(inner, "t.inner"), _tool(outer, "t.outer"))
    options = {"deadline": _in(HOUR), "metadata": {"trace": "x"}}
    if house.map is None:
        stream = house.runtime.stream(Call("t.outer", **options), ANN)
    else:
        stream = house.map.subscribe("t.outer", identity=ANN, **options)
    assert [envelope.data for envelope in await _read(stream)] == [1]
    outer, inner = contexts
    assert (inner.identity, inner.deadline, inner.metadata) == (
        ANN, options["deadline"], {"trace": "x"},
    )  # fmt: skip
    assert (inner.parent_id, inner.chain) == (outer.call_id, ("t.outer",))
    await house.assert_empty()


@WAYS
@_story
async def test_who_calls_is_asked_again_over_a_bus_and_not_in_process(way):
    async def outer(arguments, context):
        return (await context.env.t.guarded({"n": 1})).data

    house = _House(way, _tool(_echo, "t.guarded", access=["root"]), _tool(outer, "t.outer"))
    if way == "in process":
        assert (await house.call("t.outer", identity=ANN)).data == {"n": 1}
        return
    for identity in (ANN, None):
        with pytest.raises(AccessDenied):
            await house.call("t.outer", identity=identity)
    root = Identity("root", ["root"])
    assert (await house.call("t.outer", identity=root)).data == {"n": 1}


@WAYS
@_story
async def test_errors_of_inner_calls_reach_the_outer_handler(way):
    async def inner(arguments, context):
        raise ToolError("sold_out", "none left", details={"left": 0})

    async def outer(arguments, context):
        try:
            await context.env.t.inner()
        except ToolError as error:
            return {"code": error.code, "details": error.details}

    async def passes(arguments, context):
        return await context.env.t.inner()

    house = _House(way, _tool(inner, "t.inner"), _tool(outer, "t.outer"), _tool(passes, "t.passes"))
    assert (await house.call("t.outer")).data == {"code": "sold_out", "details": {"left": 0}}
    with pytest.raises(ToolError) as caught:
        await house.call("t.passes")
    assert caught.value.code == "sold_out"
    with pytest.raises(UnknownTool):
        await build_env(house.runtime, None, None, house.map).t.none()
    with pytest.raises(CallError):
        await build_env(house.runtime, None, None, house.map)["none"]["none"]()
    await house.assert_empty()


@WAYS
@_story
async def test_an_envelope_of_an_inner_call_is_the_answer_of_the_outer_one(way):
    async def outer(arguments, context):
        return await context.env.t.inner({"n": 1})

    house = _House(way, _tool(_echo, "t.inner"), _tool(outer, "t.outer"))
    envelope = await house.call("t.outer")
    assert envelope.data == {"n": 1}
    assert envelope.meta.operation_id == "t.inner"


@WAYS
@_story
async def test_the_deadline_of_the_outer_call_ends_the_inner_one(way):
    ended = []

    async def inner(arguments, context):
        try:
            await _ever()
        finally:
            ended.append("inner")

    async def outer(arguments, context):
        try:
            return await context.env.t.inner()
        finally:
            ended.append("outer")

    house = _House(way, _tool(inner, "t.inner"), _tool(outer, "t.outer"))
    with pytest.raises(Timeout):
        await house.call("t.outer", deadline=_in(HOUR))
    await _settle()
    assert sorted(ended) == ["inner", "outer"]
    await house.assert_empty()


@WAYS
@pytest.mark.parametrize("is_warm", [False, True])
@_story
async def test_cancelling_the_outer_call_cancels_the_inner_one(way, is_warm):
    ended = []

    async def inner(arguments, context):
        try:
            await _ever()
        except asyncio.CancelledError:
            ended.append("inner")
            raise

    async def outer(arguments, context):
        try:
            await context.env.t.middle()
        except asyncio.CancelledError:
            ended.append("outer")
            raise

    async def middle(arguments, context):
        await asyncio.sleep(0)
        await context.env.t.inner()

    house = _House(way, _tool(inner, "t.inner"), _tool(outer, "t.outer"), _tool(middle, "t.middle"))
    if is_warm:
        for _ in range(3):
            with pytest.raises(UnknownTool):
                await house.call("t.none")
            await _settle()
        house.finished.clear()
    call = asyncio.ensure_future(house.call("t.outer"))
    await _settle()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await _settle()
    assert sorted(ended) == ["inner", "outer"]
    assert [type(event.error) for event in house.finished] == [Aborted] * 3
    await house.assert_empty()


@WAYS
@_story
async def test_many_nested_calls_at_once_do_not_mix(way):
    async def leaf(arguments, context):
        for _ in range(arguments["n"] % 4):
            await asyncio.sleep(0)
        return arguments["n"]

    async def twice(arguments, context):
        n = arguments["n"]
        if n % 3 == 0:
            await asyncio.sleep(0)
        first, second = await asyncio.gather(
            context.env.t.leaf({"n": n}), context.env.t.leaf({"n": n + 1000})
        )
        return [first.data, second.data]

    async def outer(arguments, context):
        got = await context.env.t.twice(arguments)
        await asyncio.sleep(0)
        return {"n": arguments["n"], "got": got.data}

    house = _House(way, _tool(leaf, "t.leaf"), _tool(twice, "t.twice"), _tool(outer, "t.outer"))
    calls = [house.call("t.outer", {"n": n}) for n in range(60)]
    for n, envelope in enumerate(await asyncio.gather(*calls)):
        assert envelope.data == {"n": n, "got": [n, n + 1000]}
    await house.assert_empty()


# --- env: how deep --------------------------------------------------------------------------


async def _descend(arguments, context):
    n = arguments["n"]
    if n == 0:
        return len(context.chain)
    if n % 2:
        await asyncio.sleep(0)
    return (await context.env.t.descend({"n": n - 1})).data


@WAYS
@pytest.mark.parametrize("levels", [1, MAX_NESTED - 1, MAX_NESTED])
@_story
async def test_calls_nest_as_deep_as_allowed(way, levels):
    house = _House(way, _tool(_descend, "t.descend"))
    assert (await house.call("t.descend", {"n": levels})).data == levels
    await house.assert_empty()


@WAYS
@pytest.mark.parametrize("levels", [MAX_NESTED + 1, MAX_NESTED + 50])
@_story
async def test_one_level_more_is_refused(way, levels):
    house = _House(way, _tool(_descend, "t.descend"))
    with pytest.raises(CallError) as caught:
        await house.call("t.descend", {"n": levels})
    assert caught.value.code == "handler_error"
    assert str(MAX_NESTED) in caught.value.message
    assert "t.descend" in caught.value.message
    assert len(house.finished) == MAX_NESTED + 1
    await house.assert_empty()


@WAYS
@_story
async def test_the_depth_limit_names_the_tools_of_the_cycle(way):
    async def ping(arguments, context):
        return await context.env.t.pong()

    async def pong(arguments, context):
        return await context.env.t.ping()

    async def start(arguments, context):
        return await context.env.t.ping()

    house = _House(way, _tool(ping, "t.ping"), _tool(pong, "t.pong"), _tool(start, "t.start"))
    with pytest.raises(CallError) as caught:
        await house.call("t.start")
    for name in ("t.start", "t.ping", "t.pong"):
        assert name in caught.value.message
    await house.assert_empty()


@_story
async def test_the_depth_is_kept_across_processes():
    """A chain that came with a request counts."""
    house = _House("bus", _tool(_descend, "t.descend"))
    chain = tuple(f"far.{n}" for n in range(MAX_NESTED))
    assert (await house.map.call("t.descend", {"n": 0}, chain=chain)).data == MAX_NESTED
    with pytest.raises(CallError) as caught:
        await house.map.call("t.descend", {"n": 1}, chain=chain)
    assert "far.0" in caught.value.message
    assert "t.descend" in caught.value.message


# --- env: names and bounds ------------------------------------------------------------------


@WAYS
@_story
async def test_an_env_with_namespaces_stays_within_them(way):
    house = _House(
        way, _tool(_echo, "shop.price"), _tool(_echo, "cellar.key"), _tool(_echo, "shop.a.b")
    )
    env = build_env(house.runtime, None, iter(["shop"]), house.map)
    assert (await env.shop.price({"n": 1})).data == {"n": 1}
    assert (await env.shop.a.b({"n": 2})).data == {"n": 2}
    assert (await env["shop.price"]({"n": 3})).data == {"n": 3}
    for refused in (env.cellar.key, env["cellar.key"], env["cellar"]["key"], env.shopping.price):
        with pytest.raises(AccessDenied) as caught:
            await refused({"n": 1})
        assert caught.value.code == "access_denied"
    assert {event.tool_id for event in house.finished} == {"shop.price", "shop.a.b"}
    with pytest.raises(AccessDenied):
        await build_env(house.runtime, None, [], house.map).shop.price()


@_story
async def test_an_env_of_no_context_has_no_parent():
    contexts = []

    async def handler(arguments, context):
        contexts.append(context)

    runtime = Runtime([_tool(handler)])
    await build_env(runtime).t.tool()
    await build_env(runtime, Context("c", "a.b", ANN, None, "p", ("x.y",), {"m": 1})).t.tool()
    assert (contexts[0].parent_id, contexts[0].chain, contexts[0].identity) == (None, (), None)
    assert (contexts[1].parent_id, contexts[1].chain) == ("c", ("x.y", "a.b"))
    assert (contexts[1].identity, contexts[1].metadata) == (ANN, {"m": 1})


@_story
async def test_what_names_no_tool_is_wrong_use():
    env = build_env(Runtime([_tool(_echo)]))
    for wrong in (env, env.t, env["t"]):
        with pytest.raises(UsageError):
            await wrong({})
    for wrong in ("", 5, None, b"t"):
        with pytest.raises(UsageError):
            env[wrong]
    with pytest.raises(AttributeError):
        env._t  # noqa: B018 - the attribute is what is asked for
    with pytest.raises(TypeError):
        list(env)
    assert not hasattr(env, "__len__")


def test_a_context_of_no_runtime_has_no_env():
    with pytest.raises(UsageError):
        _ = Context("c", "t.tool").env


@_story
async def test_tools_are_found_by_attribute_and_by_item():
    runtime = Runtime([_tool(_echo, "t.tool-x"), _tool(_echo, "t._hidden"), _tool(_echo, "t.a.b")])
    env = build_env(runtime)
    for found in (env.t["tool-x"], env["t.tool-x"], env.t["_hidden"], env.t.a.b, env["t"].a["b"]):
        assert (await found({"n": 1})).data == {"n": 1}
    assert (await env.t.a.b()).data == {}


@_story
async def test_inner_calls_are_checked_like_any_other():
    async def outer(arguments, context):
        return (await context.env.t.inner(arguments)).data

    async def inner(arguments, context):
        return {"n": str(arguments["n"])}

    runtime = Runtime([_tool(inner, "t.inner", input=IN, output=OUT), _tool(outer, "t.outer")])
    assert (await runtime.execute("t.outer", {"n": 5})).data == {"n": 5}
    with pytest.raises(InvalidInput):
        await runtime.execute("t.outer", {"n": "x"})


@_story
async def test_a_subscription_is_not_called_through_an_env_in_process():
    runtime = Runtime([_tool(_counts)])
    with pytest.raises(Failed) as caught:
        await build_env(runtime).t.tool()
    assert caught.value.code == "handler_error"


@_story
async def test_a_catalog_that_is_swapped_is_what_inner_calls_see():
    async def outer(arguments, context):
        runtime.catalog = Catalog([_tool(_echo, "t.new")])
        return (await context.env.t.new({"n": 1})).data

    runtime = Runtime([_tool(outer, "t.outer")])
    assert (await runtime.execute("t.outer")).data == {"n": 1}
