"""A file's hooks, loaded: each call starts from the same image and leaves nothing behind.

A call is a chain of steps. A step ends with `Done`, `StepFailed`, or `Pending` when the hook waits for
the host; `Pending.resume` gives the replies and is the next step. Everything here blocks and must
run on a thread with a large stack: `pool.py` is the interface for asyncio.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

import msgspec
import orjson
from msgspec.structs import replace

from callpact.errors import UsageError
from callpact.sandbox.guest.image import Image
from callpact.sandbox.guest.instance import Trapped
from callpact.sandbox.guest.machine import Thrown
from callpact.sandbox.guest.machine_pool import Machines
from callpact.sandbox.hook_limits import HookLimits
from callpact.sandbox.steps import (
    Done,
    Effect,
    Log,
    Reply,
    StepFailed,
    check_json,
    read_effects,
    read_logs,
    read_thrown,
    words,
    write_reply,
)

_LOG_BYTES = 6  # The most bytes that one character takes in JSON.
_NO_LOGS = b"[]"
_SEED_BYTES = 32  # The seed of `crypto`'s random bytes in one call.


class Realm:
    """The hooks of one file; any number of threads may call them at the same time."""

    def __init__(
        self,
        machines: Machines,
        limits: HookLimits,
        image: Image,
        hooks: Mapping[str, frozenset[str]],
        *,
        is_seeded: bool = False,
    ) -> None:
        self._machines = machines
        self._limits = limits
        self.image = image
        self.hooks = hooks
        """The kinds of hooks that each tool has."""
        self._is_seeded = is_seeded
        self._openings = {
            (tool, kind): b"[%b,%b," % (orjson.dumps(tool), orjson.dumps(kind))
            for tool, kinds in hooks.items()
            for kind in kinds
        }

    def begin(self, tool: str, kind: str, argument: str | bytes) -> Step:
        """Call a hook with an argument, given as JSON text.

        Raises:
            UsageError: there is no such hook, or the argument is not JSON.
        """
        opening = self._openings.get((tool, kind))
        if opening is None:
            raise UsageError(f"there is no hook '{kind}' of '{tool}'")
        text = argument if isinstance(argument, bytes) else argument.encode()
        call = _Call(self._machines, self._limits, self.image)
        seed = b',"%b"' % os.urandom(_SEED_BYTES).hex().encode() if self._is_seeded else b""
        return call.step(self.image.handles.start, b"%b%b%b]" % (opening, text, seed))


class Pending:
    """A call that waits for the host, and holds a machine until it is resumed or dropped."""

    def __init__(self, call: _Call, effects: tuple[Effect, ...]) -> None:
        self._call: _Call | None = call
        self.effects = effects
        """The effects of the last step; earlier ones may still be open."""

    def resume(self, replies: Sequence[Reply]) -> Step:
        """Give replies to one or more open effects and let the hook run on.

        Raises:
            UsageError: the call has been resumed or dropped before.
        """
        text = b"[%b]" % b",".join([write_reply(reply) for reply in replies])
        return self._leave().settle({reply.id for reply in replies}, text)

    def drop(self) -> None:
        """End the call here; a second time does nothing."""
        if self._call is not None:
            self._leave().end()

    def _leave(self) -> _Call:
        call, self._call = self._call, None
        if call is None:
            raise UsageError("this step of a hook has been resumed or dropped already")
        return call


Step = Done | StepFailed | Pending


class _Call:
    """One call of a hook while it runs or waits; it has a machine until it ends."""

    def __init__(self, machines: Machines, limits: HookLimits, image: Image) -> None:
        self._machines = machines
        self._limits = limits
        self._handles = image.handles
        self._seconds = limits.seconds
        self._logs: tuple[Log, ...] = ()
        self._effect_count = 0
        self._open: set[int] = set()
        self._machine = machines.lend(image)

    def settle(self, ids: set[int], replies: bytes) -> Step:
        self._open -= ids
        return self.step(self._handles.settle, replies)

    def end(self) -> None:
        self._machines.take_back(self._machine)

    def step(self, function: int, text: bytes) -> Step:
        """Run the guest until it has a result, needs the host or exceeds a limit."""
        try:
            step = self._judge(self._run(function, text))
        except Trapped as trapped:
            step = self._fail(trapped.name, trapped.detail)
        except Thrown:
            # Only code that breaks the engine's own intrinsics makes the driver throw.
            step = self._fail("MemoryLimit" if self._machine.is_full else "Crashed")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            step = self._fail("NotJSON", str(error))
        except BaseException:
            self.end()
            raise
        if not isinstance(step, Pending):
            self.end()
        return step

    def _run(self, function: int, text: bytes) -> bytes | None:
        limits = self._limits
        if len(text) > limits.input_bytes:
            raise Trapped("InputLimit")
        machine = self._machine
        started = time.perf_counter()
        self._machines.begin(machine, self._seconds)
        try:
            machine.invoke(function, machine.json(text))
            machine.run_jobs()
            most = limits.output_bytes + limits.log_characters * _LOG_BYTES
            answer = machine.text(machine.invoke(self._handles.take), most)
        finally:
            self._machines.end()
        self._seconds -= time.perf_counter() - started
        return answer

    def _judge(self, answer: bytes | None) -> Step:
        """Decode the driver's answer (bootstrap.js defines its letters)."""
        if answer is None:
            return self._fail("OutputLimit")
        head, _, body = answer.partition(b"\n")
        letter, lines = head[:1], head[1:]
        if lines != _NO_LOGS:
            self._logs = read_logs(lines, self._logs, self._limits)
        if len(body) > self._limits.output_bytes:
            return self._fail("OutputLimit")
        match letter:
            case b"D":
                return Done(check_json(body), self._logs)
            case b"F":
                thrown = read_thrown(body, self._limits)
                if (thrown.message, thrown.line) == ("null", 0) and self._machine.is_full:
                    return self._fail("MemoryLimit")  # The engine had no room for an error.
                return replace(thrown, logs=self._logs)
            case b"J":
                thrown = read_thrown(body, self._limits)
                name = thrown.name if thrown.name == "MemoryLimit" else "NotJSON"
                return replace(thrown, name=name, logs=self._logs)
            case b"U":
                return self._fail("NotJSON", f"it returned {body.decode()}")
            case b"P" | b"W":
                return self._wait(read_effects(body or b"[]"))
            case b"X":
                return self._fail("TooManyEffects")
            case b"N":
                # A job for which there was no room is lost, and its promise never settles.
                return self._fail("MemoryLimit" if self._machine.is_full else "NeverSettled")
            case _:
                return self._fail("Crashed", "the driver was not understood")

    def _wait(self, effects: tuple[Effect, ...]) -> Step:
        self._effect_count += len(effects)
        if self._effect_count > self._limits.effects:
            return self._fail("TooManyEffects")
        self._open.update(effect.id for effect in effects)
        if not self._open:
            return self._fail("NeverSettled")
        return Pending(self, effects)

    def _fail(self, name: str, detail: str = "") -> StepFailed:
        message = words(name, self._limits)
        return StepFailed(name, f"{message} ({detail})" if detail else message, logs=self._logs)
