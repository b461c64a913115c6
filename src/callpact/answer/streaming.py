"""A run as it goes: tokens, a reset where they do not stand, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from msgspec import Struct

from callpact.answer.account import Answer, Paused
from callpact.answer.loop import Run
from callpact.answer.plan import Plan, Who


class Token(Struct, frozen=True):
    """A piece of text as the model writes it; provisional until the answer is judged."""

    text: str
    iteration: int
    is_provisional: bool


class Reset(Struct, frozen=True):
    """What was streamed in this iteration does not stand: the model is asked again."""

    reason: str
    iteration: int


class Finished(Struct, frozen=True):
    """The end of a stream: the answer, or the pause."""

    answer: Answer | Paused


Streamed = Token | Reset | Finished


async def streamed(
    plan: Plan, message: str, session: str, who: Who
) -> AsyncGenerator[Streamed, None]:
    """What a run gives as it goes; it ends with whoever reads."""
    queue: asyncio.Queue[Token | Reset | None] = asyncio.Queue()
    provisional = plan.contract is not None or plan.reliability is not None
    run = Run(
        plan,
        message,
        session,
        who,
        on_token=lambda text, at: queue.put_nowait(Token(text, at, provisional)),
        on_reset=lambda why, at: queue.put_nowait(Reset(why, at)),
    )
    task = asyncio.create_task(run.go())
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (item := await queue.get()) is not None:
            yield item
        yield Finished(await task)
    finally:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # Raised above, or nobody reads any more.
