"""One guest: a WebAssembly instance with a memory of its own, called from outside.

The only module that uses wasmtime's lower interface (its generated ctypes bindings): a call takes
1.5 µs there and 30 µs in the public one, and only it can look up single exports. No Python function
is ever given to a guest: wasmtime implements the clock, all other imports are refusals (`wasm.py`).
Addresses and lengths from a guest are checked.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import wasmtime
from wasmtime import _bindings

from callpact.sandbox.guest.image import Handles, Image, take_image
from callpact.sandbox.guest.wasm import CLOCK, Guest

# The lower interface is untyped and its names are private; both stay within this module.
ffi: Any = _bindings
_call_unchecked: Any = ffi._wasmtime_func_call_unchecked  # noqa: SLF001 - the call without its wrapper
_set_deadline: Any = ffi._wasmtime_context_set_epoch_deadline  # noqa: SLF001 - as above
_error_of: Any = wasmtime.WasmtimeError._from_ptr  # noqa: SLF001 - takes over an error, and frees it  # pyright: ignore[reportPrivateUsage]
_trap_of: Any = wasmtime.Trap._from_ptr  # noqa: SLF001 - takes over a trap, and frees it  # pyright: ignore[reportPrivateUsage]

_pointer_to: Any = ctypes.POINTER
_TrapPointer: Any = _pointer_to(ffi.wasm_trap_t)

_EXPORTS: Final = (
    "qjs_alloc", "qjs_free", "qjs_last_len", "qjs_last_ptr", "eval_code", "eval_module",
    "eval_module_async", "promise_state", "promise_result",
    "call_function", "new_from_json", "new_undefined", "get_string", "get_prop",
    "last_exception", "execute_pending_jobs", "run_gc", "set_memory_limit",
)  # fmt: skip
_WASM_PAGE = 65536
_ARGUMENTS = 8
RESERVE_BYTES: Final = 4 << 20
"""Memory for the guest beyond its scripts' limit, so that it can report their out-of-memory."""


class Trapped(Exception):
    """The guest was stopped from outside; its state is unusable until an image is restored."""

    def __init__(self, name: str, detail: str = "") -> None:
        super().__init__(name, detail)
        self.name = name
        self.detail = detail


class Instance:
    """A guest's memory and stack, and calls into it; one thread at a time may use it."""

    def __init__(self, guest: Guest, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._store = wasmtime.Store(guest.engine)
        self._store.set_limits(
            memory_size=memory_bytes, table_elements=20_000, instances=2, tables=4, memories=1
        )
        self._store.set_wasi(wasmtime.WasiConfig())  # no directory, variable, argument or stream
        self._store.set_epoch_deadline(1 << 40)
        self._context: Any = self._store._context()  # noqa: SLF001 - what the lower calls take  # pyright: ignore[reportPrivateUsage]
        refusals = wasmtime.Instance(self._store, guest.refusals, []).exports(self._store)
        answers = [
            guest.linker.get(self._store, module, name) if name == CLOCK else refusals[name]
            for module, name in guest.imports
        ]
        self._instance = wasmtime.Instance(self._store, guest.module, answers)
        self._functions = {name: ctypes.byref(self._export(name).func) for name in _EXPORTS}
        self._memory = ctypes.byref(self._export("memory").memory)
        self._stack = ctypes.byref(self._export("__stack_pointer").global_)
        self._base = ctypes.addressof(
            ffi.wasmtime_memory_data(self._context, self._memory).contents
        )
        self._least_size = self.size  # A cache of `size`, which never shrinks.
        # A value is 16 bytes wide; its first 4 or 8 hold an i32 or i64.
        values = (ffi.wasmtime_val_raw_t * _ARGUMENTS)()
        self._values: Any = values
        self._wide = (ctypes.c_int64 * (2 * _ARGUMENTS)).from_buffer(values)
        self._narrow = (ctypes.c_int32 * (4 * _ARGUMENTS)).from_buffer(values)
        self._trap = _TrapPointer()
        self._trap_at = ctypes.byref(self._trap)

    def _export(self, name: str) -> Any:
        item = ffi.wasmtime_extern_t()
        text = name.encode()
        buffer = (ctypes.c_char * len(text)).from_buffer_copy(text)
        raw: Any = self._instance._instance  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the public lookup wraps all exports: 12 ms
        if not ffi.wasmtime_instance_export_get(
            self._context, ctypes.byref(raw), buffer, len(text), ctypes.byref(item)
        ):
            raise KeyError(name)
        return item.of

    # Calls and memory.

    def call(self, name: str, *arguments: int) -> int:
        """Call an export of the guest without holding the GIL.

        Raises:
            Trapped: the guest exceeded a limit.
        """
        wide = self._wide
        at = 0
        for argument in arguments:
            wide[at] = argument
            at += 2
        error = _call_unchecked(
            self._context, self._functions[name], self._values, _ARGUMENTS, self._trap_at
        )
        if error or self._trap:
            raise self._reason(error)
        return self._narrow[0]

    def _reason(self, error: Any) -> Trapped:
        if error:
            return Trapped("Crashed", str(_error_of(error)))
        trap = _trap_of(self._trap)
        self._trap = _TrapPointer()
        self._trap_at = ctypes.byref(self._trap)
        code = trap.trap_code
        if code is wasmtime.TrapCode.INTERRUPT:
            return Trapped("Timeout")
        if code is wasmtime.TrapCode.STACK_OVERFLOW:
            return Trapped("StackOverflow")
        if self.is_full:
            return Trapped("MemoryLimit")
        return Trapped("Crashed", trap.message.splitlines()[-1].strip())

    @property
    def size(self) -> int:
        """Bytes of memory that the guest has now; it never shrinks."""
        return ffi.wasmtime_memory_data_size(self._context, self._memory)

    @property
    def is_full(self) -> bool:
        """True if the guest is so near its memory limit that this must have stopped it."""
        return self.size > self._memory_bytes - 2 * RESERVE_BYTES

    def allow(self, ticks: int) -> None:
        """Let the guest run for this number of ticks of the engine."""
        _set_deadline(self._context, ticks)

    def read(self, at: int, length: int) -> bytes:
        return ctypes.string_at(self._address(at, length), length)

    def write(self, at: int, content: bytes) -> None:
        ctypes.memmove(self._address(at, len(content)), content, len(content))

    def numbers(self, at: int, count: int) -> ctypes.Array[ctypes.c_int32]:
        """A view of the numbers at an address; it is valid until the instance is closed."""
        return (ctypes.c_int32 * count).from_address(self._address(at, 4 * count))

    def _address(self, at: int, length: int) -> int:
        at &= 0xFFFFFFFF
        if length < 0 or at + length > self._least_size:
            self._least_size = self.size
            if length < 0 or at + length > self._least_size:
                raise Trapped("Crashed", "the guest named a place outside its memory")
        return self._base + at

    def close(self) -> None:
        """Free the memory."""
        self._store.close()

    # Images.

    def capture(self, handles: Handles, base: Image | None = None) -> Image:
        """The guest's state, to be restored to any instance."""
        self.call("run_gc")
        value = ffi.wasmtime_val_t()
        ffi.wasmtime_global_get(self._context, self._stack, ctypes.byref(value))
        return take_image(self.read, self.size, value.of.i32, handles, base)

    def restore(self, image: Image) -> None:
        """Put the guest into the image's state.

        Raises:
            ValueError: the memory is larger than the image, so that a part would be lost.
            Trapped: the image does not fit into the memory limit.
        """
        missing = image.size - self.size
        if missing < 0:
            raise ValueError("the memory of this instance has grown beyond the image")
        if missing:
            before = ctypes.c_uint64()
            error: Any = ffi.wasmtime_memory_grow(
                self._context, self._memory, missing // _WASM_PAGE, ctypes.byref(before)
            )
            if error:
                raise Trapped("MemoryLimit", str(_error_of(error)))
        self._lay(image)
        value = ffi.wasmtime_val_t()
        value.kind = 0  # i32
        value.of.i32 = image.stack
        ffi.wasmtime_global_set(self._context, self._stack, ctypes.byref(value))

    def _lay(self, image: Image) -> None:
        if image.base is not None:
            self._lay(image.base)
        base = self._base
        for start, length in image.blanks:
            ctypes.memset(base + start, 0, length)
        for start, run in image.runs:
            ctypes.memmove(base + start, run, len(run))
