"""The terminal: runs commands, prints results and errors.

Results on standard output, everything else on standard error. It knows no command and no source.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import io
import logging
import os
import re
import signal
import stat
import sys
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TextIO, cast

import typer

from callpact.errors import CallError, CallpactError
from callpact.schema.json_text import json_text
from callpact.wire import terminal as text

if TYPE_CHECKING:
    from callpact.envelope import ResponseEnvelope

UNREAD = 141  # The exit code that shells show for SIGPIPE.
_WIDEST = 120  # A wider cell shifts the rest of its row, not of all rows.
_MOST_RULES = 300  # Characters; an enum may have hundreds of values.
_UNPRINTABLE = re.compile(
    r"(?!\r\n)[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


class _Screen:
    """A rich console that is created on first use: a server may never need it."""

    def __init__(self, *, stderr: bool) -> None:
        self._stderr = stderr

    def __getattr__(self, name: str) -> Any:
        return getattr(self.console, name)

    @property
    def is_terminal(self) -> bool:
        """True if people see it."""
        return (sys.stderr if self._stderr else sys.stdout).isatty()

    @cached_property
    def console(self) -> Any:
        """The console itself."""
        from rich.console import Console

        return Console(stderr=self._stderr, emoji=False, highlight=False, soft_wrap=True)


out = _Screen(stderr=False)
err = _Screen(stderr=True)


class As(StrEnum):
    """Renderings of a result."""

    data = "data"
    envelope = "envelope"
    gate = "gate"
    flowmcp = "flowmcp"


class LogLevel(StrEnum):
    """Levels of the log."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"

    @property
    def is_verbose(self) -> bool:
        """True if everything is printed, without summaries."""
        return self in {LogLevel.debug, LogLevel.info}


class LogFormat(StrEnum):
    """Formats of the log."""

    text = "text"
    json = "json"


def plain(value: str) -> str:
    """Untrusted text, safe to print: without control characters and markup."""
    from rich.markup import escape

    return escape(shown(value))


def print_status(line: str, style: str = "dim") -> None:
    """Print untrusted text on standard error, with a style on a terminal."""
    if err.is_terminal:
        err.print(plain(line), style=style)
    else:
        sys.stderr.write(f"{shown(line)}\n")
        sys.stderr.flush()


def flat(value: str) -> str:
    """Untrusted text on one line."""
    return " ".join(shown(value).split("\n"))


def shown(value: str) -> str:
    """Untrusted text with control characters escaped."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", value)


# --- standard streams -----------------------------------------------------------------------


class _Unread(io.RawIOBase):
    """A standard stream whose reader may close it: later writes are dropped."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._is_left = False

    def write(self, data: Any, /) -> int | None:
        if not self._is_left:
            try:
                return self._raw.write(data)
            except OSError as error:
                self._is_left = True
                self._leave(error)
        return len(data)

    def _leave(self, error: OSError) -> None:
        """Ignore a closed standard error: the command goes on."""

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._raw.isatty()

    def fileno(self) -> int:
        return self._raw.fileno()


class _UnreadResults(_Unread):
    """Standard output: the command ends when its reader closes it."""

    def _leave(self, error: OSError) -> None:
        if isinstance(error, BrokenPipeError):
            raise SystemExit(UNREAD) from None
        raise CallpactError(f"standard output cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def standard_streams() -> Generator[None]:
    """Handle standard output and standard error that are closed, at the start or later.

    When the reader of standard output closes it, the process ends quietly with `UNREAD`, like a
    process that SIGPIPE ended. Streams that were closed at the start are replaced by the null
    device.
    """
    for descriptor in range(3):  # In this order: opening takes the lowest free one.
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    before = sys.stdout, sys.stderr
    with Path(os.devnull).open("w", encoding="utf-8") as nothing:
        sys.stdout = _guarded_stream(sys.stdout or nothing, _UnreadResults)
        sys.stderr = ours = _guarded_stream(sys.stderr or nothing, _Unread)
        try:
            yield
        finally:
            ours.flush()
            sys.stdout, sys.stderr = before


def _guarded_stream(stream: TextIO, kind: type[_Unread]) -> TextIO:
    """A stream that writes to the same place as another."""
    stream.flush()
    held = cast("io.TextIOWrapper", stream)
    raw = kind(getattr(held.buffer, "raw", held.buffer))  # With `python -u` there is no buffer.
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        held.encoding,
        held.errors,
        line_buffering=held.line_buffering or held.write_through,
    )


# --- running --------------------------------------------------------------------------------


class _Threads(ThreadPoolExecutor):
    """The threads of sync tools, with the number of running ones."""

    def __init__(self) -> None:
        super().__init__()
        self._open: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    @property
    def are_busy(self) -> bool:
        return any(future.running() for future in self._open)


def run(
    work: Coroutine[Any, Any, int],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """`asyncio.run`, but an abandoned thread cannot keep the process alive."""
    threads = _Threads()

    async def guarded() -> int:
        asyncio.get_running_loop().set_default_executor(threads)
        _wake_at_signals()
        code = 130
        try:
            code = await work
        except asyncio.CancelledError:  # Ctrl-C
            _leave_if(threads.are_busy, code)
            raise
        except typer.Exit as left:
            _leave_if(threads.are_busy, left.exit_code)
            raise
        except SystemExit as left:  # The reader of standard output left.
            _leave_if(threads.are_busy, cast("int", left.code))
            raise
        _leave_if(threads.are_busy, code)
        return code

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        code = runner.run(guarded())
    if code:
        raise typer.Exit(code)


def _wake_at_signals() -> None:
    """Wake the loop at signals: else a Ctrl-C just before it sleeps is handled at the next event."""
    if os.name == "posix":
        with contextlib.suppress(RuntimeError):  # Not the main thread, which gets the signals.
            # With a handler for one signal, the loop is woken by all of them.
            asyncio.get_running_loop().add_signal_handler(signal.SIGURG, lambda: None)


@contextlib.contextmanager
def ended_at(number: int) -> Generator[None, None, None]:
    """Cancel the body at a signal, as Ctrl-C does; the code after it continues."""
    task, is_signalled = asyncio.current_task(), False
    if os.name != "posix" or task is None:
        yield
        return

    def cancel() -> None:
        nonlocal is_signalled
        if not is_signalled:
            is_signalled = True
            task.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, cancel)
    try:
        yield
    except asyncio.CancelledError:
        if not is_signalled or task.uncancel():
            raise
    finally:
        loop.remove_signal_handler(number)


def _leave_if(is_busy: bool, code: int) -> None:  # noqa: FBT001 - reads as a sentence
    if is_busy:
        try:
            sys.stdout.flush()
        except SystemExit:
            code = UNREAD
        sys.stderr.flush()
        os._exit(code)


@contextlib.contextmanager
def warned_once(tool_id: str, level: LogLevel) -> Generator[None, None, None]:
    """Suppress the log lines for warnings that `print_result` prints, unless everything is logged.

    Warnings of the tools that the tool calls are still logged.
    """

    def is_not_printed(record: logging.LogRecord) -> bool:
        return not isinstance(record.args, tuple) or tool_id not in record.args[:1]

    log = logging.getLogger("callpact.contract")
    if not level.is_verbose:
        log.addFilter(is_not_printed)
    try:
        yield
    finally:
        log.removeFilter(is_not_printed)


def fail(message: str) -> NoReturn:
    """Print an error of usage, and end with exit code 2."""
    err.print(f"[red]error:[/] {plain(message)}")
    raise typer.Exit(2)


# --- printing -------------------------------------------------------------------------------


def _write(data: bytes, output: TextIO) -> None:
    output.flush()
    output.buffer.write(data)
    output.buffer.flush()


async def print_stream(envelopes: AsyncGenerator[ResponseEnvelope[Any], None], as_: As) -> None:
    """Write every result as it comes; the tool's own standard output goes to stderr."""
    output, task = sys.stdout, cast("asyncio.Task[Any]", asyncio.current_task())
    with contextlib.redirect_stdout(sys.stderr):
        async with while_read(output), contextlib.aclosing(envelopes):
            while not task.cancelling() and (envelope := await anext(envelopes, None)) is not None:
                print_result(envelope, as_, output, is_line=True)
            if task.cancelling():  # Ctrl-C, which the tool ignored.
                await asyncio.sleep(0)  # Raises the pending cancellation before the closing.
                raise asyncio.CancelledError


@contextlib.asynccontextmanager
async def while_read(output: TextIO) -> AsyncGenerator[None, None]:
    """Cancel the body when the reader of a pipe leaves, even while nothing is written."""
    loop, descriptor = asyncio.get_running_loop(), _pipe(output)
    if descriptor is None:
        yield
        return
    patience = asyncio.timeout(None)

    def leave() -> None:
        loop.remove_reader(descriptor)
        patience.reschedule(loop.time())

    try:
        async with patience:
            loop.add_reader(descriptor, leave)  # The write end is readable only on that error.
            yield
    except (TimeoutError, CallError):
        if patience.expired():
            raise typer.Exit(UNREAD) from None
        raise
    finally:
        loop.remove_reader(descriptor)


def _pipe(output: TextIO) -> int | None:
    """The file descriptor of a pipe that can be watched; None for anything else."""
    try:
        descriptor = output.fileno()
    except OSError:
        return None
    is_pipe = os.name == "posix" and stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    return descriptor if is_pipe else None


def print_result(
    envelope: ResponseEnvelope[Any], as_: As, output: TextIO, *, is_line: bool = False
) -> None:
    """Write a result to the output, and its warnings and changes to stderr."""
    for note in text.encode_notes(envelope):
        print_status(note, "yellow")
    data = envelope.data
    if as_ is As.data and isinstance(data, bytes):
        if output.isatty():
            fail(f"the output is {len(data)} bytes; send them to a file, or use --as envelope")
        _write(data, output)
        return
    print_json(text.encode_result(envelope, as_.value), output, is_line=is_line)


def print_failure(error: CallError, as_: As, tool_name: str, *, is_line: bool = False) -> None:
    """Print a failure on stderr, and write it to stdout in the requested rendering, if any."""
    form = text.encode_failure(error, as_.value, tool_name)
    if form is not None:
        print_json(form, sys.stdout, is_line=is_line)
    for line in text.encode_error(error):
        print_status(line, "red" if not line.startswith(" ") else "")


def print_json(value: Any, output: TextIO, *, is_line: bool = False) -> None:
    """Write JSON: on one line, or indented, and coloured on a terminal."""
    written = text.encode_json(value, is_line=is_line)
    if output.isatty() and not is_line:
        out.print_json(written)
    else:
        _write(written.encode() + b"\n", output)


class TableRow(NamedTuple):
    """A row of a table: its cells and its styles."""

    cells: tuple[str, ...]
    style: str = ""
    first: str = ""
    """The style of its first cell."""


def print_table(
    rows: Sequence[TableRow],
    headers: Sequence[str] = (),
    *,
    indent: int = 0,
    right: Collection[str] = (),
    spare: Iterable[str] | None = None,
) -> None:
    """Write a table: fitted to the terminal, or elsewhere one line per row, for grep.

    On a terminal long cells are wrapped. With `spare` they are cut instead, one line per row, but
    never those of the first column; the spare columns, by header, are dropped if there is no room.

    `right` are the headers of columns of numbers, which are aligned to the right and not wrapped.
    """
    if not out.is_terminal:
        every = [*([TableRow(tuple(headers))] if headers else []), *rows]
        print_lines(_lined(every, indent, [name in right for name in headers]))
        return
    if spare is not None:
        out.print("\n".join(_cut_lines(rows, headers, out.width, spare)))
        return
    from rich.table import Column, Table

    columns = [
        Column(name, justify="right", no_wrap=True) if name in right else name for name in headers
    ]
    if columns and isinstance(columns[0], str):
        columns[0] = " " * indent + columns[0]
    table = Table(*columns, box=None, pad_edge=False, show_header=bool(headers))
    for row in rows:
        first, *others = map(plain, row.cells)
        first = f"[{row.first}]{first}[/]" if row.first else first
        table.add_row(" " * indent + first, *others, style=row.style)
    out.print(table)


def _cut_lines(
    rows: Sequence[TableRow], headers: Sequence[str], width: int, spare: Iterable[str]
) -> Iterator[str]:
    """Rows as lines of markup that fit a width; rich's tables are too slow for thousands."""
    from rich.cells import cell_len, set_cell_size
    from rich.markup import escape

    cells = [list(headers), *([flat(cell) for cell in row.cells] for row in rows)]
    natural = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    widths = cut_widths(headers, natural, width, spare)

    def fitted(line: list[str], number: int) -> str:
        cell, room = line[number], widths[number]
        cut = cell if cell_len(cell) <= room else f"{set_cell_size(cell, room - 1)}…"
        return escape(set_cell_size(cut, room))

    styles = [TableRow((), "bold"), *rows]
    for row, line in zip(styles, cells, strict=True):
        first, *others = (fitted(line, number) for number in widths)
        first = f"[{row.first}]{first}[/]" if row.first else first
        written = "  ".join([first, *others]).rstrip()
        yield f"[{row.style}]{written}[/]" if row.style else written


def cut_widths(
    headers: Sequence[str], natural: Sequence[int], width: int, spare: Iterable[str] = ()
) -> dict[int, int]:
    """The width of each column by its number, to fit a line; the first column is never cut.

    Spare columns are dropped, in this order, while the others would have less than ten characters.
    """
    least = [min(each, max(len(header), 10)) for header, each in zip(headers, natural, strict=True)]
    least[0] = natural[0]
    kept = list(range(len(headers)))
    for header in spare:
        if sum(least[number] + 2 for number in kept) - 2 <= width:
            break
        kept = [number for number in kept if headers[number] != header]
    widths = {number: natural[number] for number in kept}
    while sum(widths.values()) + 2 * (len(kept) - 1) > width:
        wider = [number for number in kept if widths[number] > least[number]]
        if not wider:
            break
        widths[max(wider, key=widths.__getitem__)] -= 1
    return widths


def _lined(rows: list[TableRow], indent: int, is_right: Sequence[bool]) -> Iterator[str]:
    """Rows as lines with padded columns."""
    cells = [[flat(cell) for cell in row.cells] for row in rows]
    widths = [min(max(map(len, column)), _WIDEST) for column in zip(*cells, strict=True)]
    sides = [">" if each else "<" for each in is_right] or ["<"] * len(widths)
    for row in cells:
        padded = (
            f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)
        )
        yield " " * indent + "  ".join(padded).rstrip()


def print_lines(lines: Iterable[str]) -> None:
    """Write lines as they are."""
    _write("".join(f"{line}\n" for line in lines).encode(), sys.stdout)


def print_diff(before: str, after: str, name: str, *, context: int = 3) -> None:
    """Write the changes of a file as a unified diff, coloured on a terminal."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), name, name, lineterm="", n=context
    )
    for line in lines:
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        out.print(plain(line), style="bold" if line.startswith(("---", "+++")) else style)


def print_properties(title: str, schema: Any) -> None:
    """Write the properties that a schema declares, with those of nested objects and items."""
    fields = [] if schema is None else text.encode_fields(schema)
    kind = "anything" if schema is None else text.encode_kind(schema, schema)
    kind = plain(json_text(schema)[:_MOST_RULES]) if kind == "any" and not fields else plain(kind)
    out.print(f"[bold]{title}[/] {kind}" if kind != "object" or not fields else f"[bold]{title}[/]")
    rows: list[TableRow] = []
    for field in fields:
        rules = field.rules
        rules = rules if len(rules) <= _MOST_RULES else f"{rules[: _MOST_RULES - 1]}…"
        rows.append(TableRow((*field[:3], rules), first="cyan"))
    if rows:
        print_table(rows, indent=2)
    out.print()


def counted(number: int, noun: str = "tool") -> str:
    """A number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
