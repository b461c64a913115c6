import asyncio
import functools
import inspect
import time
import typing
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, TypeVar

import msgspec
import pytest
from pydantic import BaseModel, Field, field_serializer
from typing_extensions import TypeAliasType

from callpact import from_functions, tool
from callpact.catalog import Catalog
from callpact.context import Context
from callpact.envelope import ResponseEnvelope, local_envelope
from callpact.errors import (
    Failed,
    HandlerCrashed,
    InvalidInput,
    InvalidTool,
    OutputRejected,
    Timeout,
    ToolError,
)
from callpact.runtime import Runtime
from callpact.tool import Tool

T = TypeVar("T")
INTEGERS = TypeAliasType("INTEGERS", AsyncIterator[int])
STREAM = TypeAliasType("STREAM", AsyncIterator[T], type_params=(T,))
WAIT = 10
"""Seconds after which a test that hangs is ended."""


class Color(Enum):
    RED = "red"


class Line(BaseModel):
    sku: str
    due: date | None = None


@dataclass
class Size:
    width: int


class Point(msgspec.Struct):
    x: int


class Opaque:
    pass


def made(function: Any, **options: Any) -> Tool:
    (only,) = from_functions(function, **options)
    return only


async def read(
    function: Any, arguments: Any = None, *, deadline: float | None = None, **options: Any
) -> list[ResponseEnvelope[Any]]:
    """Every result of a subscription to a function, by way of a runtime."""
    built = made(function, **options)
    results = Runtime(Catalog([built])).subscribe(built.id, arguments, deadline=deadline)
    async with asyncio.timeout(WAIT), aclosing(results):
        return [envelope async for envelope in results]


def received(function: Any, arguments: Any = None, **options: Any) -> list[Any]:
    return [envelope.data for envelope in asyncio.run(read(function, arguments, **options))]


async def count(to: int) -> AsyncIterator[int]:
    """Count up."""
    for number in range(to):
        yield number


# --- what a subscription is -----------------------------------------------------------------


def test_an_async_generator_function_is_a_subscription_without_being_told():
    built = made(count)
    assert built.kind == "subscription"
    assert inspect.isasyncgenfunction(built.handler)
    assert built.contract.output == {"type": "integer"}
    assert (built.contract.policy, built.contract.input_policy) == ("convert", "exact")
    assert built.description == "Count up."
    assert received(count, {"to": 3}) == [0, 1, 2]
    assert received(count, {"to": 0}) == []


def test_a_marked_async_generator_function_is_the_same_function():
    async def f() -> AsyncIterator[int]:
        yield 1

    assert tool(policy="reject")(f) is f
    assert (made(f).kind, made(f).contract.policy) == ("subscription", "reject")


def test_a_subscription_cannot_be_executed_and_another_tool_cannot_be_subscribed_to():
    async def one() -> int:
        return 1

    async def main():
        runtime = Runtime(Catalog(from_functions(count, one, namespace="a")))
        with pytest.raises(Failed, match="subscribe"):
            await runtime.execute("a.count", {"to": 1})
        with pytest.raises(Failed, match="call it"):
            await anext(runtime.subscribe("a.one"))
        assert (await anext(runtime.subscribe("a.count", {"to": 1}))).data == 0
        assert (await runtime.execute("a.one")).data == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    "annotation",
    [
        AsyncIterator[int],
        AsyncIterable[int],
        AsyncGenerator[int, None],
        AsyncGenerator[int],
        typing.AsyncIterator[int],
        typing.AsyncIterable[int],
        typing.AsyncGenerator[int, None],
        AsyncIterator[ResponseEnvelope[int]],
        Annotated[AsyncIterator[int], "numbers"],
        INTEGERS,
        STREAM[int],
        "AsyncIterator[int]",
    ],
    ids=str,
)
def test_the_output_schema_is_that_of_one_yield(annotation):
    async def f():
        yield 7

    f.__annotations__["return"] = annotation
    built = made(f)
    assert (built.kind, built.contract.output) == ("subscription", {"type": "integer"})
    assert received(f) == [7]


@pytest.mark.parametrize(
    "annotation",
    [
        inspect.Parameter.empty,
        Any,
        object,
        AsyncIterator,
        AsyncGenerator,
        typing.AsyncIterator,
        AsyncIterator[Any],
        AsyncIterator[bytes],
        AsyncIterator[T],
        AsyncIterator[ResponseEnvelope],
    ],
    ids=str,
)
def test_a_type_that_says_nothing_of_a_yield_promises_nothing(annotation):
    async def f():
        yield 7
        yield b"bytes"

    if annotation is not inspect.Parameter.empty:
        f.__annotations__["return"] = annotation
    tools = from_functions(f)
    assert tools.report == ()
    assert (tools[0].kind, tools[0].contract.output) == ("subscription", None)
    assert received(f) == [7, b"bytes"]


def test_constraints_on_the_yielded_type_are_checked():
    @tool(policy="reject")
    async def f() -> AsyncIterator[Annotated[int, Field(le=5)]]:
        yield 5
        yield 6

    with pytest.raises(OutputRejected) as caught:
        received(f)
    assert caught.value.issues[0].code == "maximum"


# --- what can be one ------------------------------------------------------------------------


class Feed:
    """Feeds."""

    def __init__(self, start: int = 0) -> None:
        self.start = start

    async def bound(self, n: int) -> AsyncIterator[int]:
        yield self.start + n

    @staticmethod
    async def static(n: int) -> AsyncIterator[int]:
        yield n

    @classmethod
    async def of_class(cls, n: int) -> AsyncIterator[str]:
        yield f"{cls.__name__}{n}"

    async def __call__(self, n: int) -> AsyncIterator[int]:
        yield self.start * n


def passed_on(function):
    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        async for value in function(*args, **kwargs):
            yield value

    return wrapper


def called(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Traced:
    def __init__(self, function):
        functools.update_wrapper(self, function)

    def __call__(self, *args, **kwargs):
        return self.__wrapped__(*args, **kwargs)


async def added(a: int, n: int) -> AsyncIterator[int]:
    yield a + n


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (Feed(10).bound, 12),
        (Feed(10).static, 2),
        (Feed.of_class, "Feed2"),
        (tool(name="marked")(Feed(10).bound), 12),
        (tool(name="object")(Feed(10)), 20),
        (tool(name="part")(functools.partial(added, 40)), 42),
        (tool(name="parts")(functools.partial(functools.partial(added), a=40)), 42),
        (tool(name="object_part")(functools.partial(Feed(10))), 20),
        (passed_on(Feed.static), 2),
        (called(Feed.static), 2),
        (called(passed_on(called(Feed.static))), 2),
        (Traced(Feed.static), 2),
        (tool(name="wrapped_method")(called(Feed(10).bound)), 12),
    ],
)
def test_methods_partials_objects_and_decorated_functions_work(function, expected):
    built = made(function)
    assert built.kind == "subscription"
    assert list(built.contract.input["properties"]) == ["n"]
    assert built.contract.output["type"] in {"integer", "string"}
    assert received(function, {"n": 2}) == [expected]


def test_a_wrapper_may_give_an_iterator_that_has_no_aclose():
    class Once:
        def __init__(self):
            self.left = [1]

        def __aiter__(self):
            return self

        async def __anext__(self):
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop()

    @functools.wraps(count)
    def wrapper(to: int):
        return Once()

    assert received(wrapper, {"to": 1}) == [1]


def test_a_wrapper_that_gives_no_iterator_is_a_crash_of_the_tool(caplog):
    @functools.wraps(count)
    def wrapper(to: int):
        return [to]

    with pytest.raises(HandlerCrashed):
        received(wrapper, {"to": 1})
    assert "list" in caplog.text


# --- arguments ------------------------------------------------------------------------------


def test_arguments_are_typed_and_the_context_is_injected():
    seen: list[Any] = []

    async def f(
        line: Line,
        color: Color,
        /,
        sizes: list[Size],
        limit: int = 3,
        note: str = Field("none", alias="remark"),
        *,
        context: Context,
        **rest: date,
    ) -> AsyncIterator[str]:
        seen.extend([line, color, sizes, limit, note, rest])
        yield context.tool_id

    arguments = {
        "line": {"sku": "a", "due": "2026-12-24"},
        "color": "red",
        "sizes": [{"width": 2}],
        "since": "2026-01-01",
    }
    built = made(f)
    assert list(built.contract.input["properties"]) == [
        "line",
        "color",
        "sizes",
        "limit",
        "remark",
    ]
    assert received(f, arguments) == [built.id]
    assert seen == [
        Line(sku="a", due=date(2026, 12, 24)),
        Color.RED,
        [Size(2)],
        3,
        "none",
        {"since": date(2026, 1, 1)},
    ]
    seen.clear()
    received(f, {**arguments, "limit": 9, "remark": "R"})
    assert seen[3:5] == [9, "R"]


@pytest.mark.parametrize(
    ("arguments", "path"), [({}, "/due"), ({"due": 3}, "/due"), ({"due": "never"}, "/due")]
)
def test_arguments_that_do_not_fit_are_rejected_before_the_function_begins(arguments, path):
    begun: list[int] = []

    async def f(due: date) -> AsyncIterator[int]:
        begun.append(1)
        yield 1

    with pytest.raises(InvalidInput) as caught:
        received(f, arguments)
    assert (caught.value.path, begun) == (path, [])
    assert received(f, {"due": "2026-12-24"}) == [1]


def test_every_subscription_begins_anew():
    async def f(items: Annotated[list[int], Field(default_factory=list)]) -> AsyncIterator[int]:
        items.append(1)
        yield len(items)

    assert received(f) == [1]
    assert received(f) == [1]


# --- what is yielded ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "value", "data"),
    [
        (Line, Line(sku="a", due=date(2026, 12, 24)), {"sku": "a", "due": "2026-12-24"}),
        (Size, Size(2), {"width": 2}),
        (Point, Point(1), {"x": 1}),
        (list[Line], [Line(sku="a")], [{"sku": "a", "due": None}]),
        (date, date(2026, 12, 24), "2026-12-24"),
        (Color, Color.RED, "red"),
        (Line | None, None, None),
        (None, None, None),
        (bytes, b"\x00", b"\x00"),
    ],
)
def test_yields_are_dumped_like_answers(annotation, value, data):
    async def f():
        yield value
        yield value

    f.__annotations__["return"] = AsyncIterator[annotation]
    envelopes = asyncio.run(read(f))
    assert [envelope.data for envelope in envelopes] == [data, data]
    assert [(envelope.warnings, envelope.changes) for envelope in envelopes] == [((), ())] * 2


def test_a_yielded_envelope_keeps_its_meta_and_its_data_is_dumped():
    given = local_envelope(Line(sku="a"), "other.tool")

    async def f() -> AsyncIterator[ResponseEnvelope[Line]]:
        yield given

    (envelope,) = asyncio.run(read(f))
    assert envelope.meta is given.meta
    assert envelope.data == {"sku": "a", "due": None}


def test_each_yield_is_cast_on_its_own():
    async def f() -> AsyncIterator[int]:
        yield 1
        yield "2"
        yield 3

    first, second, third = asyncio.run(read(f))
    assert (first.data, second.data, third.data) == (1, 2, 3)
    assert (first.warnings, third.warnings) == ((), ())
    assert second.warnings[0].code == "type"


def test_a_yielded_type_without_a_schema_is_kept_with_a_warning():
    async def f() -> AsyncIterator[Opaque]:
        yield 1

    tools = from_functions(f)
    (finding,) = tools.report
    assert (finding.severity, tools[0].contract.output) == ("warning", None)
    assert "Opaque" in finding.message
    assert received(f) == [1]


def test_a_return_type_that_cannot_be_resolved_is_a_warning():
    async def f() -> "AsyncIterator[Missing]":  # noqa: F821 - the subject
        yield 1

    tools = from_functions(f)
    (finding,) = tools.report
    assert (finding.severity, tools[0].kind) == ("warning", "subscription")
    assert "Missing" in finding.message
    assert received(f) == [1]


# --- kinds and types that contradict --------------------------------------------------------


def test_the_kind_may_be_given_if_it_is_right():
    @tool(kind="subscription")
    async def f() -> AsyncIterator[int]:
        yield 1

    assert received(f) == [1]


@pytest.mark.parametrize("kind", ["mutation", "query", "interactive", "stream", "", ["query"]])
def test_another_kind_on_an_async_generator_function_is_refused_by_name(kind):
    @tool(kind=kind)
    async def watch() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(InvalidTool, match=r"\.watch: .*'subscription'"):
        from_functions(watch)


def test_a_kind_that_is_not_known_is_refused_on_a_plain_function_too():
    @tool(kind="")
    async def f() -> int:
        return 1

    with pytest.raises(InvalidTool, match=r"\.f: .*kind"):
        from_functions(f)


async def _async_answer() -> int:
    return 1


def _answer() -> int:
    return 1


class _Called:
    async def __call__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (_async_answer, "_async_answer"),
        (_answer, "_answer"),
        (_Called(), "_Called"),
        (functools.partial(_answer), "_answer"),
        (lambda: 1, "<lambda>"),
    ],
)
def test_a_subscription_that_does_not_yield_is_refused_by_name(function, name):
    # The marker is left on a partial, so that the functions themselves stay as they are.
    marked = tool(name="f", kind="subscription")(functools.partial(function))
    with pytest.raises(InvalidTool, match=f":{name}: .*'async def' with a yield"):
        from_functions(marked)
    assert made(tool(name="f")(functools.partial(function))).kind == "mutation"


@pytest.mark.parametrize("kind", [None, "subscription"])
def test_a_sync_generator_function_is_refused_with_the_remedy(kind):
    @tool(kind=kind)
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(InvalidTool, match=r"\.numbers: .*'async def'"):
        from_functions(numbers)


@pytest.mark.parametrize(
    ("annotation", "told"),
    [
        (int, "int"),
        (None, "None"),
        (list[int], r"list\[int\]"),
        (Iterator[int], r"collections\.abc\.Iterator\[int\]"),
        (AsyncIterator[int] | None, "AsyncIterator"),
        (bytes, "bytes"),
        (ResponseEnvelope[int], "int"),
    ],
)
def test_a_function_that_yields_and_says_that_it_returns_is_refused(annotation, told):
    async def watch():
        yield 1

    watch.__annotations__["return"] = annotation
    with pytest.raises(InvalidTool, match=rf"\.watch: .*{told}.*AsyncIterator\[\.\.\.\]"):
        from_functions(watch)
    with pytest.raises(InvalidTool, match=rf"\.watch: .*{told}"):
        from_functions(called(watch))


@pytest.mark.parametrize(
    "annotation",
    [
        AsyncIterator[int],
        AsyncGenerator[int, None],
        AsyncIterable,
        Awaitable[AsyncIterator[int]],
        INTEGERS,
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [None, "subscription", "query"])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_function_that_says_that_it_yields_and_does_not_is_refused(annotation, kind, is_async):
    async def later():
        return count(1)

    def now():
        return count(1)

    function = later if is_async else now
    function.__annotations__["return"] = annotation
    with pytest.raises(InvalidTool, match=rf"\.{function.__name__}: .*yield item"):
        from_functions(tool(kind=kind)(function))


def collected(function):
    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        return [value async for value in function(*args, **kwargs)]

    return wrapper


def twice(function):
    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        yield await function(*args, **kwargs)
        yield await function(*args, **kwargs)

    return wrapper


class Collected:
    def __init__(self, function):
        functools.update_wrapper(self, function)

    async def __call__(self, *args, **kwargs):
        return [value async for value in self.__wrapped__(*args, **kwargs)]


class Twice:
    def __init__(self, function):
        functools.update_wrapper(self, function)

    async def __call__(self, *args, **kwargs):
        yield await self.__wrapped__(*args, **kwargs)
        yield await self.__wrapped__(*args, **kwargs)


@pytest.mark.parametrize("collected", [collected, Collected])
def test_a_decorator_that_collects_makes_one_answer_and_the_type_is_not_used(collected):
    tools = from_functions(collected(count))
    (finding,) = tools.report
    assert (tools[0].kind, tools[0].contract.output) == ("mutation", None)
    assert (finding.severity, "wraps" in finding.message) == ("warning", True)
    answer = asyncio.run(Runtime(Catalog(tools)).execute(tools[0].id, {"to": 2}))
    assert answer.data == [0, 1]


@pytest.mark.parametrize("twice", [twice, Twice])
def test_a_decorator_that_repeats_makes_a_subscription_and_the_type_is_not_used(twice):
    @twice
    async def price(of: str) -> float:
        return 1.5

    tools = from_functions(price)
    (finding,) = tools.report
    assert (tools[0].kind, tools[0].contract.output) == ("subscription", None)
    assert (finding.severity, "wraps" in finding.message) == ("warning", True)
    assert received(price, {"of": "a"}) == [1.5, 1.5]


# --- how it ends ----------------------------------------------------------------------------


class Bad(BaseModel):
    n: int

    @field_serializer("n")
    def fail(self, n: int) -> int:
        if n:
            raise KeyError(n)
        return n


class Story:
    """A subscription that tells how it ended; its cleanup waits, as that of a connection would."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.waits = asyncio.Event()

    async def _close(self) -> None:
        await asyncio.sleep(0)
        self.told.append("closed")

    async def endless(self) -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            await self._close()

    async def breaks(self, code: str) -> AsyncIterator[int]:
        try:
            yield 1
            raise ToolError(code, "Sold out") if code else KeyError(code)
        finally:
            await self._close()

    async def wrong(self) -> AsyncIterator[int]:
        try:
            yield 1
            yield "none"
            self.told.append("went on")
        finally:
            await self._close()

    async def undumpable(self) -> AsyncIterator[Bad]:
        try:
            yield Bad(n=0)
            yield Bad(n=1)
            self.told.append("went on")
        finally:
            await self._close()

    async def waiting(self) -> AsyncIterator[int]:
        try:
            yield 1
            self.waits.set()
            await asyncio.Event().wait()
        finally:
            await self._close()


def test_a_generator_that_ends_is_closed():
    told: list[str] = []

    async def f() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            told.append("closed")

    assert received(f) == [1]
    assert told == ["closed"]


def test_a_reader_that_stops_early_closes_the_generator():
    async def main():
        story = Story()
        built = made(story.endless)
        results = Runtime(Catalog([built])).subscribe(built.id)
        async with asyncio.timeout(WAIT), aclosing(results):
            async for envelope in results:
                assert envelope.data == 1
                break
            assert story.told == []
        assert story.told == ["closed"]

    asyncio.run(main())


@pytest.mark.parametrize(("code", "error"), [("sold_out", ToolError), ("", HandlerCrashed)])
def test_an_error_of_the_generator_reaches_the_reader_after_it_was_closed(code, error):
    async def main():
        story = Story()
        built = made(story.breaks)
        results = Runtime(Catalog([built])).subscribe(built.id, {"code": code})
        async with asyncio.timeout(WAIT), aclosing(results):
            assert (await anext(results)).data == 1
            with pytest.raises(error) as caught:
                await anext(results)
            assert story.told == ["closed"]
        assert caught.value.code == (code or "handler_error")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "error"), [("wrong", OutputRejected), ("undumpable", HandlerCrashed)]
)
def test_a_yield_that_cannot_be_delivered_closes_the_generator(name, error):
    async def main():
        story = Story()
        with pytest.raises(error):
            await read(getattr(story, name), policy="reject")
        assert story.told == ["closed"]

    asyncio.run(main())


def test_a_deadline_closes_the_generator():
    async def main():
        story = Story()
        with pytest.raises(Timeout):
            await read(story.waiting, deadline=time.time() * 1000 + 300)
        assert (story.waits.is_set(), story.told) == (True, ["closed"])

    asyncio.run(main())


def test_a_cancelled_reader_closes_the_generator():
    async def main():
        story = Story()
        reader = asyncio.create_task(read(story.waiting))
        async with asyncio.timeout(WAIT):
            await story.waits.wait()
            assert story.told == []
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
        assert story.told == ["closed"]

    asyncio.run(main())


def test_a_handler_that_is_closed_before_it_began_never_calls_the_function():
    begun: list[int] = []

    @functools.wraps(count)
    def f(to: int):
        begun.append(to)
        return count(to)

    async def main():
        handler = made(f).handler
        await handler({"to": 1}, Context("c", "t")).aclose()
        assert begun == []
        assert [value async for value in handler({"to": 1}, Context("c", "t"))] == [0]
        assert begun == [1]

    asyncio.run(main())
