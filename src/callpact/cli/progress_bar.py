"""The terminal as the client of a call: it shows `context.progress` as a bar, on standard error."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NoReturn

from callpact.cli.output import err, flat
from callpact.context import Client, LogLevel
from callpact.errors import ClientUnable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@contextlib.contextmanager
def progress_bar() -> Generator[Client | None]:
    """The client of one call; None if standard error is not a terminal.

    The bar appears with the first report and is gone at the end.
    """
    if not err.is_terminal:
        yield None
        return
    bar = _ProgressBar()
    try:
        yield bar
    finally:
        bar.close()


class _ProgressBar(Client):
    """Shows progress; nobody answers questions here."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    async def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Show how much of the call is done."""
        if not math.isfinite(done) or not math.isfinite(total or 0):
            return
        progress, task = self._open()
        shown = flat(message or "")[: err.width // 2]
        progress.update(task, completed=max(done, 0), total=total or None, description=shown)

    def _open(self) -> tuple[Progress, TaskID]:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        if self._progress is None or self._task is None:
            text = TextColumn("{task.description}", markup=False)
            self._progress = Progress(
                BarColumn(), TaskProgressColumn(), text, console=err.console, transient=True
            )
            self._task = self._progress.add_task("", total=None)
            self._progress.start()
        return self._progress, self._task

    def close(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()

    @property
    def can_elicit(self) -> bool:
        """False: nobody is asked."""
        return False

    @property
    def can_sample(self) -> bool:
        """False: there is no model."""
        return False

    @property
    def can_list_roots(self) -> bool:
        """False: there are no roots."""
        return False

    async def elicit(self, *_: Any, **__: Any) -> NoReturn:
        """Raise `ClientUnable`."""
        _refuse()

    async def sample(self, *_: Any, **__: Any) -> NoReturn:
        """Raise `ClientUnable`."""
        _refuse()

    async def roots(self, **_: Any) -> NoReturn:
        """Raise `ClientUnable`."""
        _refuse()

    async def log(self, level: LogLevel, data: Any) -> None:
        """Drop a message: the log of the command line has the lines of `context.logger`."""


def _refuse() -> NoReturn:
    raise ClientUnable("`callpact call` answers no questions; call the tool through an MCP client")
