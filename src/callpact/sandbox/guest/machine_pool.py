"""The machines of an engine: made on demand, lent for a call, then kept idle.

A machine belongs to no realm; each borrower gets it in the state of a given image. Also the clock
that stops guests: a thread that ticks while any of them runs.
"""

from __future__ import annotations

import math
import os
import threading
import time
from pathlib import Path

import wasmtime

from callpact.errors import UsageError
from callpact.sandbox.guest.image import Image
from callpact.sandbox.guest.machine import Machine
from callpact.sandbox.guest.wasm import Guest

TICK_SECONDS = 0.005
"""Seconds between two ticks, the precision of time limits."""
_LINGERING_TICKS = 20  # Waking the ticker for each of many short calls would cost more.
_MAX_IDLE = 8


class Machines:
    """All machines of one engine."""

    def __init__(self, cache: Path | None, memory_bytes: int) -> None:
        self.cache = cache
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._guest: Guest | None = None
        self._idle: list[Machine] = []
        self._lent = 0
        self._is_closed = False
        self._ticker = _Ticker()

    @property
    def lent(self) -> int:
        """Number of machines in use, including those of calls that wait for effects."""
        return self._lent

    def lend(self, image: Image | None = None) -> Machine:
        """A machine in the state of an image, or a new one; the caller must give it back.

        Raises:
            UsageError: the engine is closed, or the guest module cannot be used.
        """
        with self._lock:
            if self._is_closed:
                raise UsageError("the engine of the hooks is closed")
            machine = self._take_idle(image)
            self._lent += 1
        try:
            if machine is None:
                machine = self._make()
            if image is not None:
                machine.enter(image)
        except BaseException:
            self._discard(machine)
            raise
        return machine

    def take_back(self, machine: Machine) -> None:
        """Keep a machine for the next call, unless its memory has grown."""
        with self._lock:
            if not (machine.has_grown or self._is_closed or len(self._idle) >= _MAX_IDLE):
                self._idle.append(machine)
                self._lent -= 1
                return
        self._discard(machine)

    def begin(self, machine: Machine, seconds: float) -> None:
        """Start the time limit of a machine, until `end`."""
        self._ticker.enter(self._load())
        # One more, because the current tick may end at once.
        machine.allow(math.ceil(max(seconds, 0) / TICK_SECONDS) + 1)

    def end(self) -> None:
        """End the time limit of one machine."""
        self._ticker.leave()

    def close(self) -> None:
        """Free idle machines now, and lent ones when they are given back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for machine in idle:
            machine.close()

    def _take_idle(self, image: Image | None) -> Machine | None:
        if image is None:
            return None
        for at in range(len(self._idle) - 1, -1, -1):
            if self._idle[at].size <= image.size:
                return self._idle.pop(at)
        return None

    def _load(self) -> Guest:
        if self._guest is None:
            with self._lock:
                if self._guest is None:
                    self._guest = Guest(self.cache)
        return self._guest

    def _make(self) -> Machine:
        try:
            return Machine(self._load(), self._memory_bytes)
        except wasmtime.WasmtimeError as error:
            # Each guest reserves 4 GiB of address space, which a system limit may forbid.
            raise UsageError(f"no room for the sandbox of a hook: {error}") from error

    def _discard(self, machine: Machine | None) -> None:
        if machine is not None:
            machine.close()
        with self._lock:
            self._lent -= 1


class _Ticker:
    """A thread that ticks while a guest runs, and ends shortly after."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._process = 0  # The process of the thread: a fork does not copy threads.

    def enter(self, guest: Guest) -> None:
        """Start to tick, before a guest runs: without ticks nothing would stop it."""
        with self._lock:
            if self._process != os.getpid():
                threading.Thread(
                    target=self._tick, args=(guest,), name="callpact-hooks-clock", daemon=True
                ).start()
                self._process = os.getpid()
            self._running += 1

    def leave(self) -> None:
        with self._lock:
            self._running -= 1

    def _tick(self, guest: Guest) -> None:
        idle = 0
        while idle <= _LINGERING_TICKS or not self._end():
            time.sleep(TICK_SECONDS)
            guest.tick()
            idle = 0 if self._running else idle + 1

    def _end(self) -> bool:
        with self._lock:
            if self._running:
                return False
            self._process = 0
            return True
