"""The log on standard error: as text for people, or as one JSON object per line.

No line of any logger holds a known secret, a control character or more than its limits, and logging
never raises. A server never waits for its standard error. Knows no command; standard output is not
touched.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import logging
import os
import re
import select
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING, Any, Literal, cast

from callpact.schema import is_array, is_object
from callpact.schema.json_text import json_text, sendable
from callpact.secrets.keys import AllSecrets, Secrets
from callpact.secrets.masker import MASK

if TYPE_CHECKING:
    from callpact.observers import CallFinished, Observer

MAX_LOG_MESSAGE = 10_000
"""Characters of a message in the log; of a longer one the rest is left out."""
MAX_LOG_TRACE = 20_000
"""Characters of an exception in the log; of a longer one the rest is left out."""
MAX_LOG_FRAMES = 50
"""Innermost calls of an exception that the log shows."""
STDERR_SECONDS = 0.2
"""Seconds that a server waits for its standard error to be read, before it drops lines."""

LogForm = Literal["text", "json"]

_FIELDS = (
    *("event", "call_id", "parent_id", "tool_id", "ok", "code", "gate", "source", "caller"),
    *("ms", "count"),
)
_TOOL = "callpact.tool."
_MAX_NAME = 200
_MAX_PRINTED = 1_000_000  # Characters of one line that other code prints.
_AHEAD = 10  # This many times the limit of a text is searched for secrets.
# Characters that control a terminal, end a line for some readers, or are not text.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX = re.compile(r"(error|warning):")
# They log contents of calls (frames, chunks, addresses) and ids of sessions.
_TALKATIVE = ("mcp", "sse_starlette", "uvicorn", "aiohttp", "httpx2", "httpcore2")

_calls = logging.getLogger("callpact.calls")


def configure(level: str, form: LogForm = "text") -> Logs:
    """Send every logger to standard error, from this level on; replaces an earlier configuration.

    As JSON, text that other code prints to standard error becomes lines of JSON, too.
    """
    root = logging.getLogger()
    for handler in tuple(root.handlers):
        if isinstance(handler, Logs):
            handler.close()
    logs = Logs(form)
    root.addHandler(logs)
    root.setLevel(level.upper())
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    if form == "json":
        logs.take_stderr()
    return logs


class Logs(logging.Handler):
    """Writes log records and, once it has replaced standard error, the text that others print."""

    def __init__(self, form: LogForm) -> None:
        super().__init__()
        self.form: LogForm = form
        self._secrets = AllSecrets()
        self._output = _Output(self._dropped_line)
        self._decoded = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self._partial = ""
        self._taken: tuple[Any, Any] | None = None

    def hide(self, secrets: Secrets) -> None:
        """Mask these secrets from now on, including those that become known later."""
        self._secrets.hide(secrets)

    def write_event(self, event: str, message: str, fields: Mapping[str, Any]) -> None:
        """Write one line of JSON about the command itself, at any level."""
        with contextlib.suppress(Exception):
            line: dict[str, Any] = {**self._head(time(), "info", "callpact"), "event": event}
            line["message"] = self._clean(message, MAX_LOG_MESSAGE)
            self._output.write(_line({**line, **self._data(sendable(dict(fields)))}))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._as_json(record) if self.form == "json" else self._as_text(record)
        except Exception as error:  # noqa: BLE001 - boundary: logging never breaks the logging code
            line = self._failed(record, error)
        self._output.write(line)

    def take_stderr(self, *, steady: bool = False) -> None:
        """Replace `sys.stderr`, so that secrets are masked in all text that is printed there.

        `steady` is for a server: if standard error is not read, or closed, lines are dropped and
        counted; nothing waits for it and nothing fails.
        """
        if self._taken is None:
            printed = _Printed(self._printed, sys.stderr, is_plain=self.form == "json")
            ours = io.TextIOWrapper(
                io.BufferedWriter(printed), "utf-8", "backslashreplace", "\n", line_buffering=True
            )
            self._output.keep(sys.stderr)
            self._taken = (sys.stderr, ours)
            sys.stderr = ours
        if steady:
            self._output.steady()

    def close(self) -> None:
        """Stop writing and restore standard error."""
        logging.getLogger().removeHandler(self)
        if self._taken is not None:
            before, ours = self._taken
            self._taken = None
            with contextlib.suppress(OSError, ValueError):
                ours.flush()
            if self._partial:
                self._printed(b"\n")
            if sys.stderr is ours:
                sys.stderr = before
        super().close()

    # --- lines ------------------------------------------------------------------------------

    def _as_text(self, record: logging.LogRecord) -> str:
        first = f"{record.levelname} {record.name}: {_message(record)}"
        texts = [self._clean(first, MAX_LOG_MESSAGE)]
        texts += [self._clean(text, MAX_LOG_TRACE) for text in _traces(record).values()]
        # Later lines are indented: no untrusted text can look like a record of its own.
        return _safe("\n".join(texts).replace("\r\n", "\n").replace("\n", "\n    ")) + "\n"

    def _as_json(self, record: logging.LogRecord) -> str:
        line = self._head(record.created, record.levelname.lower(), record.name)
        line["message"] = self._clean(_message(record), MAX_LOG_MESSAGE)
        given = vars(record)
        line |= {name: self._field(given[name]) for name in _FIELDS if given.get(name) is not None}
        if record.name.startswith(_TOOL):
            line.setdefault("tool_id", line["logger"][len(_TOOL) :])
        line |= {name: self._clean(text, MAX_LOG_TRACE) for name, text in _traces(record).items()}
        return _line(line)

    def _head(self, created: float, level: str, logger: str) -> dict[str, Any]:
        moment = datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds")
        name = self._clean(logger, _MAX_NAME)
        return {"time": moment.replace("+00:00", "Z"), "level": level, "logger": name}

    def _failed(self, record: logging.LogRecord, error: Exception) -> str:
        text = f"a record could not be written: {type(error).__name__}"
        if self.form == "text":
            return f"{record.levelname} callpact.telemetry.logs: {text}\n"
        level = record.levelname.lower()
        return _line({"level": level, "logger": "callpact.telemetry", "message": text})

    def _dropped_line(self, number: int) -> str:
        text = f"{number:,} lines were left out: nobody read standard error"
        if self.form == "text":
            return f"WARNING callpact.telemetry.logs: {text}\n"
        return _line({**self._head(time(), "warning", "callpact.telemetry"), "message": text})

    def _printed(self, data: bytes) -> None:
        """Write printed text, masked before it is split into lines: a secret may span several."""
        text, self._partial = self._partial + self._decoded(data), ""
        text, end, rest = self._masked(text).rpartition("\n")
        self._partial = rest[:_MAX_PRINTED]
        if not end:
            return
        if self.form == "text":
            self._output.write(f"{text}\n")
            return
        for line in text.splitlines():
            bare = _COLOUR.sub("", line).rstrip()
            if bare:
                found = _PREFIX.match(bare)
                head = self._head(time(), found[1] if found else "info", "stderr")
                self._output.write(_line({**head, "message": _cut(bare, MAX_LOG_MESSAGE)}))

    # --- secrets ----------------------------------------------------------------------------

    def _clean(self, text: str, limit: int) -> str:
        """Mask a text, then cut it: a part of a secret must not be shown either."""
        end = limit * _AHEAD + self._secrets.masker().longest
        clean = self._masked(text[:end])
        if len(text) <= end:
            return _cut(clean, limit)
        if len(clean) <= limit:
            # So much was masked that the rest may end with a part of a secret.
            clean = clean[: clean.rfind(MASK) + len(MASK)]
        return f"{clean[:limit]}…"

    def _masked(self, text: str) -> str:
        return self._secrets.masker().mask(text)

    def _field(self, value: Any) -> Any:
        if isinstance(value, bool | int | float):
            return value
        return self._clean(str(value), MAX_LOG_MESSAGE)

    def _data(self, value: Any) -> Any:
        if is_object(value):
            return {self._masked(key): self._data(item) for key, item in value.items()}
        if is_array(value):
            return [self._data(item) for item in value]
        return value if value is None else self._field(value)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - boundary: as above
        return f"{record.msg!s} (its arguments cannot be shown: {type(error).__name__})"


def _traces(record: logging.LogRecord) -> dict[str, str]:
    traces: dict[str, str] = {}
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        lines = traceback.format_exception(error, limit=-MAX_LOG_FRAMES)
        traces["exception"] = "".join(lines).rstrip("\n")
    elif record.exc_text:
        traces["exception"] = record.exc_text
    if record.stack_info:
        traces["stack"] = record.stack_info
    return traces


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _line(fields: Mapping[str, Any]) -> str:
    return _safe(json_text(fields)) + "\n"


def _safe(text: str) -> str:
    # In JSON such characters occur only in strings, where this escape is allowed.
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


# --- calls ----------------------------------------------------------------------------------


def call_observers() -> tuple[Observer, ...]:
    """Return the observers that log every call; none if that level is off."""
    return (log_call,) if _calls.isEnabledFor(logging.INFO) else ()


def log_call(event: CallFinished) -> None:
    """Log one line for a call that has ended; never its arguments or its output."""
    ms = round(event.duration * 1000, 1)
    code = None if event.error is None else event.error.code
    meta = None if event.envelope is None else event.envelope.meta
    source = None if meta is None else meta.source
    caller = None if event.identity is None else event.identity.id
    fields = {
        "event": "call",
        "call_id": event.call_id,
        "parent_id": event.parent_id,
        "tool_id": event.tool_id,
        "ok": code is None,
        "code": code,
        "gate": event.gate,
        "source": source,
        "caller": caller,
        "ms": ms,
        "count": event.count,
    }
    more = ", ".join(f"{word} {part}" for word, part in (("from", source), ("for", caller)) if part)
    parts = (event.tool_id, code or "ok", ms, f" ({more})" if more else "")
    _calls.info("call finished: %s %s in %s ms%s", *parts, extra=fields)


# --- standard error -------------------------------------------------------------------------


class _Printed(io.RawIOBase):
    """A raw stream in place of standard error that passes on the printed bytes."""

    def __init__(self, take: Callable[[bytes], None], before: Any, *, is_plain: bool) -> None:
        self._take = take
        self._before = before
        self._is_plain = is_plain

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        taken = bytes(data)
        with contextlib.suppress(Exception):
            self._take(taken)
        return len(taken)

    def isatty(self) -> bool:
        return not self._is_plain and self._before is not None and self._before.isatty()

    def fileno(self) -> int:
        return super().fileno() if self._before is None else self._before.fileno()


class _Output:
    """The final output of lines. It never raises; once it is steady, it never waits."""

    def __init__(self, dropped_line: Callable[[int], str]) -> None:
        self._dropped_line = dropped_line
        self._lock = threading.RLock()
        self._stream: Any = None
        self._is_kept = False
        self._descriptor: int | None = None
        self._room: Any = None
        self._is_full = False
        self._rest = b""
        self._dropped = 0

    def keep(self, stream: Any) -> None:
        """Write to this stream, even if `sys.stderr` is replaced."""
        self._stream, self._is_kept = stream, True

    def steady(self) -> None:
        """Drop lines that would have to wait, from now on."""
        with contextlib.suppress(AttributeError, OSError, ValueError):  # None, or not a file.
            descriptor = self._stream.fileno()
            self._stream.flush()
            if hasattr(select, "poll"):  # Not on Windows, where pipes cannot be polled.
                self._room = select.poll()
                self._room.register(descriptor, select.POLLOUT)
            self._descriptor = descriptor

    def write(self, text: str) -> None:
        with self._lock:
            if self._descriptor is not None:
                self._send(text)
                return
            stream = self._stream if self._is_kept else sys.stderr
            with contextlib.suppress(AttributeError, OSError, ValueError):  # Closed, full, None.
                stream.write(text)
                stream.flush()

    def _send(self, text: str) -> None:
        if not self._is_through():
            self._dropped += 1
            return
        if self._dropped:
            text = self._dropped_line(self._dropped) + text
            self._dropped = 0
        self._rest = text.encode("utf-8", "backslashreplace")
        self._is_through()

    def _is_through(self) -> bool:
        """Write the rest of the last line; True once it is written."""
        while self._rest:
            if not self._has_room():
                return False
            try:
                # Where there is room at all, this many bytes fit without blocking.
                number = os.write(cast("int", self._descriptor), self._rest[:_PIECE])
            except BlockingIOError:
                return False
            except OSError:  # Closed, or the disk is full: the line is lost.
                self._rest = b""
                return True
            self._rest = self._rest[number:]
        return True

    def _has_room(self) -> bool:
        if self._room is None:
            return True
        # Waits once: after that, a reader that is gone delays no call.
        self._is_full = not self._room.poll(0 if self._is_full else STDERR_SECONDS * 1000)
        return not self._is_full


_PIECE = getattr(select, "PIPE_BUF", 512)
