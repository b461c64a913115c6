"""A run as a stream: tokens, a reset if they are discarded, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Generic, TypeVar

from msgspec import Struct

from callpact.agent.account import Answer, Paused, TypedResult
from callpact.agent.run.loop import Run
from callpact.errors import OutputSchemaError, RunPaused

T = TypeVar("T")


class Token(Struct, frozen=True):
    """A piece of streamed text; provisional until the answer is judged."""

    text: str
    iteration: int
    is_provisional: bool


class Reset(Struct, frozen=True):
    """The tokens of this iteration are discarded: they are not part of the answer."""

    reason: str
    iteration: int


class Finished(Struct, Generic[T], frozen=True):
    """The end of a stream: the answer as the model wrote it, or the pause; and the typed result.

    Without an `output_schema` and after a pause there is no `result`. If the answer breaks its
    contract and no fallback is declared, `refusal` has the reason instead.
    """

    answer: Answer | Paused
    result: TypedResult[T] | None = None
    refusal: OutputSchemaError | None = None


Streamed = Token | Reset | Finished[T]


async def streamed(run: Run) -> AsyncGenerator[Streamed[Any], None]:
    """Start a run and yield its pieces; closing the generator cancels the run."""
    queue: asyncio.Queue[Token | Reset | None] = asyncio.Queue()
    plan = run.plan
    provisional = plan.contract is not None or plan.reliability is not None
    run.listen(
        lambda text, at: queue.put_nowait(Token(text, at, provisional)),
        lambda why, at: queue.put_nowait(Reset(why, at)),
    )
    task = asyncio.create_task(_end(run))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (item := await queue.get()) is not None:
            yield item
        yield await task
    finally:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # Raised above, or the reader is gone.


async def _end(run: Run) -> Finished[Any]:
    if run.plan.contract is None:
        return Finished(await run.go())
    try:
        result = await run.result()
    except RunPaused as error:
        return Finished(error.paused)
    except OutputSchemaError as error:
        if run.plan.fallback is not None or run.answer is None:
            raise
        return Finished(run.answer, refusal=error)
    return Finished(result.answer, result)
