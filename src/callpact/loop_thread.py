"""An event loop in a thread of its own, for code that has none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from callpact.errors import UsageError

_ENDING_SECONDS = 1.0


class LoopThread:
    """One event loop in one background thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="callpact-loop", daemon=True)
        self._thread.start()

    def run(self, call: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def abandon(self) -> None:
        """Stop without waiting for it, from any thread: nobody can use the loop any more."""
        with suppress(RuntimeError):  # It was stopped and closed.
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._ending = self._loop.create_task(_end_tasks())
        self._ending.add_done_callback(lambda _: self._loop.stop())

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def stop(self) -> None:
        if threading.current_thread() is self._thread:
            raise UsageError("a call cannot close the runtime that runs it")
        asyncio.run_coroutine_threadsafe(_end_tasks(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def give_up(self, last: Callable[[], object] | None = None) -> None:
        """Stop within two seconds, whatever runs there; `last` is called in the loop before."""
        ended = asyncio.run_coroutine_threadsafe(_call(last), self._loop)
        with suppress(TimeoutError):
            ended.result(_ENDING_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_ENDING_SECONDS)


async def _call(last: Callable[[], object] | None) -> None:
    if last is not None:
        last()
    for _ in range(3):  # What it closed is let go of by the next turns of the loop.
        await asyncio.sleep(0)


async def _end_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
