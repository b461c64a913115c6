"""The supervisor of `callpact serve --workers`: accepts connections and passes them to workers.

It runs no event loop and starts no thread, so that it can fork at any time. A worker that dies is
replaced, after a delay that grows if it dies again. It knows nothing of HTTP and MCP.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from callpact.serve.http.worker_channel import (
    FROM_CLIENT,
    FROM_WORKER,
    READY,
    WorkerChannel,
    receive_one,
)

MAX_WORKER_ENDING_SECONDS = 15.0
"""Seconds that workers have to end before they are killed."""
FIRST_RESTART_SECONDS = 0.25
"""Seconds before a worker that died is replaced; they double each time that it dies soon again."""
MAX_RESTART_SECONDS = 30.0
"""Seconds before a worker that died is replaced, at most."""
STEADY_SECONDS = 30.0
"""Seconds after which a worker counts as steady: its next death is a first one."""
_ACCEPTED = 64
_log = logging.getLogger("callpact.serve.workers")


class WorkerFailed(Exception):
    """A worker ended at the start; it has reported why."""

    def __init__(self, code: int) -> None:
        super().__init__(f"a worker ended with exit code {code}")
        self.code = code


@dataclass(slots=True, eq=False)
class _Worker:
    number: int
    pid: int = 0
    end: socket.socket | None = None
    is_ready: bool = False
    since: float = 0.0
    deaths: int = 0
    restart_at: float | None = None


class Supervisor:
    """Keeps a number of workers running behind a socket that is bound, and not listening yet."""

    def __init__(
        self, number: int, bound: socket.socket, on_ready: Callable[[bytes], None]
    ) -> None:
        """`on_ready` is called with the banner of the first worker once all of them serve."""
        self._bound = bound
        self._on_ready = on_ready
        self._workers = [_Worker(each) for each in range(number)]
        self._selector = selectors.DefaultSelector()
        self._banner = b""
        self._is_serving = False
        self._signal = 0
        self._next = 0
        self._wakes: tuple[socket.socket, socket.socket] | None = None

    def run(self) -> WorkerChannel | int:
        """In a worker return its channel; in the supervisor, at the end, the signal that ended it.

        Raises:
            WorkerFailed: a worker ended before all were ready.
            OSError: the socket cannot listen.
        """
        with self._signals():
            try:
                return self._start(self._workers[0]) or self._loop()
            finally:
                if self._workers:  # Not in a worker.
                    self._end()

    # --- workers ------------------------------------------------------------------------------

    def _start(self, worker: _Worker) -> WorkerChannel | None:
        """Fork; returns the channel in the worker, None in the supervisor."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if not pid:
            return self._become(worker.number, ours, theirs)
        theirs.close()
        ours.setblocking(False)
        worker.pid, worker.end, worker.is_ready = pid, ours, False
        worker.since, worker.restart_at = time.monotonic(), None
        self._selector.register(ours, selectors.EVENT_READ, worker)
        return None

    def _become(self, number: int, ours: socket.socket, theirs: socket.socket) -> WorkerChannel:
        """Leave the supervisor's state behind, in a new worker."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the supervisor ends us.
        self._selector.close()
        ours.close()
        for worker in self._workers:
            if worker.end is not None:
                worker.end.close()
        for wake in self._wakes or ():
            wake.close()
        channel = WorkerChannel(number, len(self._workers), theirs)
        self._workers = []
        return channel

    def _bury(self) -> None:
        """Notice the workers that ended."""
        for worker in self._workers:
            if not worker.pid or not (status := os.waitpid(worker.pid, os.WNOHANG))[0]:
                continue
            code = os.waitstatus_to_exitcode(status[1])
            pid, worker.pid = worker.pid, 0
            self._leave(worker)
            if not self._is_serving:
                raise WorkerFailed(code if code > 0 else 1)
            now = time.monotonic()
            worker.deaths = 0 if now - worker.since > STEADY_SECONDS else worker.deaths
            delay = min(FIRST_RESTART_SECONDS * 2**worker.deaths, MAX_RESTART_SECONDS)
            worker.deaths += 1
            worker.restart_at = now + delay
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            _log.error("worker %d %s; it is replaced in %g s", pid, how, delay)

    def _leave(self, worker: _Worker) -> None:
        worker.is_ready = False
        if worker.end is not None:
            self._selector.unregister(worker.end)
            worker.end.close()
            worker.end = None

    # --- the loop -----------------------------------------------------------------------------

    def _loop(self) -> WorkerChannel | int:
        while not self._signal:
            for key, _ in self._selector.select(self._patience()):
                if isinstance(key.data, _Worker):
                    if key.data.end is not None:
                        self._hear(key.data)
                elif key.fileobj is self._bound:
                    self._accept()
                else:
                    os.read(key.fd, 4096)  # The numbers of signals, which are noted already.
            self._bury()
            channel = self._start_due()
            if channel is not None:
                return channel
        return self._signal

    def _patience(self) -> float | None:
        due = [worker.restart_at for worker in self._workers if worker.restart_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _start_due(self) -> WorkerChannel | None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.restart_at is not None and worker.restart_at <= now:
                channel = self._start(worker)
                if channel is not None:
                    return channel
        if self._is_serving or not self._workers[0].is_ready:
            return None
        # The first one has loaded everything: an error of the sources is reported once.
        for worker in self._workers:
            if not worker.pid:
                channel = self._start(worker)
                if channel is not None:
                    return channel
        if all(worker.is_ready for worker in self._workers):
            self._bound.setblocking(False)
            self._bound.listen(1_024)
            self._selector.register(self._bound, selectors.EVENT_READ)
            self._is_serving = True
            self._on_ready(self._banner)
        return None

    def _hear(self, worker: _Worker) -> None:
        """Read one message of a worker: it is ready, or wants a connection to another one."""
        if worker.end is None:
            return
        try:
            kind, descriptors = receive_one(worker.end)
        except BlockingIOError:
            return
        except OSError:
            kind, descriptors = b"", []
        if not kind:
            self._leave(worker)
            return
        for descriptor in descriptors:
            if kind[0] == READY:
                with os.fdopen(descriptor, "rb") as banner:
                    self._banner = self._banner or banner.read()
                if worker.deaths:
                    _log.warning("worker %d serves", worker.pid)
                worker.is_ready = True
                continue
            wanted = self._workers[kind[0]] if kind[0] < len(self._workers) else None
            if wanted is not None and wanted.is_ready:
                _pass_on(wanted, FROM_WORKER, descriptor)
            os.close(descriptor)  # Without a receiver it is closed: the other worker sees the end.

    def _accept(self) -> None:
        for _ in range(_ACCEPTED):
            try:
                connected, _ = self._bound.accept()
            except BlockingIOError:
                return
            except OSError as error:
                _log.error("a connection cannot be accepted: %s", error)
                time.sleep(0.05)  # Out of descriptors: the loop would spin.
                return
            with connected:
                for step in range(len(self._workers)):
                    worker = self._workers[(self._next + step) % len(self._workers)]
                    if worker.is_ready and _pass_on(worker, FROM_CLIENT, connected.fileno()):
                        self._next = worker.number + 1
                        break

    # --- the end ------------------------------------------------------------------------------

    def _end(self) -> None:
        self._bound.close()
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, signal.SIGTERM)
        until = time.monotonic() + MAX_WORKER_ENDING_SECONDS
        while any(worker.pid for worker in self._workers):
            for worker in self._workers:
                if worker.pid and os.waitpid(worker.pid, os.WNOHANG)[0]:
                    worker.pid = 0
                elif worker.pid and time.monotonic() > until:
                    _log.error("worker %d did not end in time, and is killed", worker.pid)
                    os.kill(worker.pid, signal.SIGKILL)
                    os.waitpid(worker.pid, 0)
                    worker.pid = 0
            time.sleep(0.01)
        self._selector.close()

    @contextlib.contextmanager
    def _signals(self) -> Generator[None]:
        """Note SIGTERM and SIGINT, and wake at them and at the end of a worker."""
        reading, writing = self._wakes = socket.socketpair()
        reading.setblocking(False)
        writing.setblocking(False)
        self._selector.register(reading, selectors.EVENT_READ)

        def note(number: int, _: Any) -> None:
            if number != signal.SIGCHLD:
                self._signal = self._signal or number

        owner = os.getpid()
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        before = {each: signal.signal(each, note) for each in numbers}
        signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            if os.getpid() == owner:
                signal.set_wakeup_fd(-1)
                for number, handler in before.items():
                    signal.signal(number, handler)
                reading.close()
                writing.close()


def _pass_on(worker: _Worker, kind: bytes, descriptor: int) -> bool:
    if worker.end is None:
        return False
    try:
        socket.send_fds(worker.end, [kind], [descriptor])
    except OSError:  # It is dead, or takes no more.
        return False
    return True
