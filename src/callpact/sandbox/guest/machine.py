"""A guest as a machine for JavaScript: values in, calls, values out.

JavaScript values are represented by the guest's own numbers ("handles"). They are never freed: an
image is restored before the next call. Limits and steps are in `realm.py`.
"""

from __future__ import annotations

from typing import Final

from callpact.errors import UsageError
from callpact.sandbox.guest.image import Image
from callpact.sandbox.guest.instance import RESERVE_BYTES, Instance, Trapped
from callpact.sandbox.guest.wasm import Guest

MODULE_NAME: Final = "hooks.mjs"
"""The name of a file's module in the guest, and in the stacks of its errors."""
_SLOTS = 8  # one result, then the arguments of a call
_INBOX_BYTES = 32 << 10
_ROOM_BYTES = 512 << 10
_OK, _THROWN = 0, 1
_NAME_BYTES = MODULE_NAME.encode()


class Thrown(Exception):
    """A JavaScript exception from a call; the handle is the value thrown."""

    def __init__(self, handle: int) -> None:
        super().__init__(handle)
        self.handle = handle


class Machine(Instance):
    """One instance, with buffers for input and output."""

    def __init__(self, guest: Guest, memory_bytes: int) -> None:
        super().__init__(guest, memory_bytes)
        self._home_size = self._slots = self._inbox = self._undefined = 0
        self._slot = self.numbers(0, 0)

    def prepare(self) -> tuple[int, int, int]:
        """Allocate the buffers that every image of this guest has: slots, inbox, undefined."""
        self.call("set_memory_limit", self._memory_bytes - RESERVE_BYTES)
        slots, inbox = self._allocate(4 * _SLOTS), self._allocate(_INBOX_BYTES)
        self._settle_in((slots, inbox, self.call("new_undefined")))
        return self._slots, self._inbox, self._undefined

    def make_room(self) -> None:
        """Grow the memory a little, so that ordinary calls do not, and the machine can be reused."""
        self.call("qjs_free", self._allocate(_ROOM_BYTES), _ROOM_BYTES)

    def enter(self, image: Image) -> None:
        """Take the state of an image, which must not be smaller than this machine's memory."""
        self.restore(image)
        self._home_size = image.size
        self._settle_in(image.handles.places)

    def _settle_in(self, places: tuple[int, int, int]) -> None:
        self._slots, self._inbox, self._undefined = places
        self._slot = self.numbers(self._slots, _SLOTS)

    @property
    def has_grown(self) -> bool:
        """True if the last call grew the memory, which can never shrink again."""
        return self.size > self._home_size

    def json(self, text: bytes) -> int:
        """A value from its JSON text.

        Raises:
            UsageError: the text is not JSON.
        """
        at = self._hand_over(text)
        status = self.call("new_from_json", at, len(text), self._slots)
        if at != self._inbox:
            self.call("qjs_free", at, len(text))
        if status == _THROWN and not self.is_full:
            raise UsageError("what is given to a hook must be JSON")
        return self._result(status)

    def evaluate(self, script: bytes) -> int:
        """The completion value of a script."""
        at = self._hand_over(script)
        return self._result(self.call("eval_code", at, len(script), self._slots))

    def evaluate_module(self, text: bytes) -> int:
        """The namespace of a module, whether or not its code ran to its end."""
        return self._module("eval_module", text)

    def module_promise(self, text: bytes) -> int:
        """The promise of a module's evaluation, which does not give its namespace."""
        return self._module("eval_module_async", text)

    def rejection(self, promise: int) -> int | None:
        """The reason why a promise was rejected; None if it was not."""
        if self.call("promise_state", promise, self._slots) != _OK or self._slot[0] != 2:
            return None
        self.call("promise_result", promise, self._slots)
        return self._slot[0]

    def member(self, value: int, name: str) -> int:
        """A property of an object."""
        text = name.encode()
        at = self._hand_over(text)
        return self._result(self.call("get_prop", value, at, len(text), self._slots))

    def invoke(self, function: int, *arguments: int) -> int:
        """Call a function.

        Raises:
            Thrown: it threw.
        """
        slots = self._slots
        for at, argument in enumerate(arguments, 1):
            self._slot[at] = argument
        status = self.call(
            "call_function", function, self._undefined, slots + 4, len(arguments), slots
        )
        return self._result(status)

    def text(self, value: int, most: int) -> bytes | None:
        """A string as UTF-8; None if it has more than `most` bytes."""
        status = self.call("get_string", value)
        if status != _OK:
            raise self._fault(status)
        length = self.call("qjs_last_len")
        if not 0 <= length <= most:
            return None
        return self.read(self.call("qjs_last_ptr"), length)

    def run_jobs(self) -> None:
        """Run all queued jobs of promises; one call stops after 100,000 of them."""
        while self.call("execute_pending_jobs") > 0:
            pass

    def _module(self, export: str, text: bytes) -> int:
        at = self._allocate(len(text))
        self.write(at, text)
        name = self._hand_over(_NAME_BYTES)
        return self._result(self.call(export, at, len(text), name, len(_NAME_BYTES), self._slots))

    def _allocate(self, length: int) -> int:
        at = self.call("qjs_alloc", length)
        if at == 0:
            raise Trapped("MemoryLimit")
        return at & 0xFFFFFFFF

    def _hand_over(self, content: bytes) -> int:
        at = self._inbox if len(content) <= _INBOX_BYTES else self._allocate(len(content))
        self.write(at, content)
        return at

    def _result(self, status: int) -> int:
        if status == _OK:
            return self._slot[0]
        if status == _THROWN and self.call("last_exception", self._slots) == _OK:
            raise Thrown(self._slot[0])
        raise self._fault(status)

    def _fault(self, status: int) -> Trapped:
        if self.is_full:
            return Trapped("MemoryLimit")
        return Trapped("Crashed", f"the guest answered with status {status}")
