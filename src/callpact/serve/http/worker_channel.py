"""The channel between a worker and its supervisor: connections, passed as file descriptors.

One byte for each message, with one descriptor: a connection of a client, a connection of another
worker, or the answer of a worker that is ready. The end of the supervisor ends the worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable

from callpact.errors import UsageError

MAX_WORKERS = 64
"""Processes of one server over HTTP."""
FROM_CLIENT = b"c"
FROM_WORKER = b"w"
READY = 0xFF
"""First byte of a worker's message with its banner; other numbers are those of workers."""

Accept = Callable[[socket.socket, bool], None]


class WorkerChannel:
    """The worker's end: `number` is the worker's own, from 0 on."""

    def __init__(self, number: int, workers: int, end: socket.socket) -> None:
        self.number = number
        self.workers = workers
        self._end = end
        end.setblocking(False)

    def ready(self, banner: bytes) -> None:
        """Report that the worker serves, with the banner of the server."""
        reading, writing = os.pipe()
        try:
            os.set_blocking(writing, False)
            os.write(writing, banner)
            socket.send_fds(self._end, [bytes([READY])], [reading])
        finally:
            os.close(writing)
            os.close(reading)

    def connect(self, worker: int) -> socket.socket:
        """Return a new connection to another worker.

        Raises:
            OSError: the supervisor is gone, or busy.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._end, [bytes([worker])], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        return ours

    def begin(self, accept: Accept) -> None:
        """Call `accept` for each connection, and if it is one of another worker, from now on."""
        asyncio.get_running_loop().add_reader(self._end.fileno(), self._receive, accept)

    def close(self) -> None:
        """Take no more connections; those that were not taken yet are closed."""
        asyncio.get_running_loop().remove_reader(self._end.fileno())

    def _receive(self, accept: Accept) -> None:
        while True:
            try:
                kind, descriptors = receive_one(self._end)
            except BlockingIOError:
                return
            except OSError:
                kind, descriptors = b"", []
            if not kind:  # The supervisor was killed.
                self.close()
                os.kill(os.getpid(), signal.SIGTERM)
                return
            for descriptor in descriptors:
                accept(socket.socket(fileno=descriptor), kind == FROM_WORKER)


def receive_one(end: socket.socket) -> tuple[bytes, list[int]]:
    """Receive one message: its byte, empty at the end of the channel, and its descriptors.

    Raises:
        BlockingIOError: there is none.
    """
    kind, descriptors, _, _ = socket.recv_fds(end, 1, 1)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return kind, descriptors


def check_workers(*, metrics: bool) -> None:
    """Refuse several workers where they cannot be correct.

    Raises:
        UsageError: with the reason.
    """
    if os.name != "posix":
        raise UsageError("--workers: this system cannot pass connections between processes")
    if metrics:
        raise UsageError(
            "--workers: /metrics would show the numbers of one worker; leave out --metrics"
        )
