"""The guest: QuickJS-NG as a WebAssembly module, found, checked by hash and compiled once.

The module file is part of the package `quickjs_rs`, whose own code never runs. The compiled form is
cached in a private directory; if that cannot be trusted, the module is compiled again. The module
runs in `instance.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path

import wasmtime

from callpact.errors import UsageError
from callpact.sandbox.private_files import keep_private, read_private, read_private_second

GUEST_SHA256 = "647ab11ae29cc6d39a6d17d3aa1e7a6a0b5fb9c44b4864475a18bc644f926050"
"""The hash of the one module that is trusted; another must pass the attack tests first."""
WASM_STACK_BYTES = 2 << 20
"""Stack of guest code; a larger one aborts the process when an engine is made."""

CLOCK = "clock_time_get"
"""The one import that wasmtime itself implements."""
_REFUSALS = """(module
  (func (export "host_interrupt") (result i32) i32.const 0)
  (func (export "host_call") (param i32 i32 i32 i32 i32) (result i32) i32.const -1)
  (func (export "host_module_normalize") (param i32 i32 i32 i32 i32) (result i32) i32.const 0)
  (func (export "host_module_load") (param i32 i32 i32) (result i32) i32.const 0)
  (func (export "random_get") (param i32 i32) (result i32) i32.const 0)
  (func (export "environ_get") (param i32 i32) (result i32) i32.const 52)
  (func (export "environ_sizes_get") (param i32 i32) (result i32) i32.const 52)
  (func (export "fd_close") (param i32) (result i32) i32.const 8)
  (func (export "fd_fdstat_get") (param i32 i32) (result i32) i32.const 8)
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) i32.const 8)
  (func (export "fd_write") (param i32 i32 i32 i32) (result i32) i32.const 8)
  (func (export "proc_exit") (param i32) unreachable))"""
# `random_get` claims success and writes nothing: the guest does not start when it fails.
# 52 is "not supported" and 8 "bad descriptor" in WASI; a null module name is a refused import.

COMPILED_AS = f"{GUEST_SHA256[:16]}-4"
"""The version of cached files; raise it when `make_engine` or the refusals change."""

_INSTALL = "install callpact[hooks]"


class Guest:
    """The source of instances: the compiled module and the functions that it imports.

    Raises:
        UsageError: the guest module is not installed, or is not the pinned one.
    """

    def __init__(self, cache: Path | None) -> None:
        self.engine = make_engine()
        self.module, self.refusals = load_modules(self.engine, cache)
        self.imports = [(item.module, item.name or "") for item in self.module.imports]
        self.linker = wasmtime.Linker(self.engine)
        self.linker.define_wasi()

    def tick(self) -> None:
        """Advance the engine's clock: guests whose ticks are used up stop."""
        self.engine.increment_epoch()


def make_engine() -> wasmtime.Engine:
    """A wasmtime engine with our settings; compiled files depend on them."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    config.max_wasm_stack = WASM_STACK_BYTES
    config.memory_may_move = False  # so that addresses stay valid while the memory grows
    return wasmtime.Engine(config)


def load_modules(
    engine: wasmtime.Engine, cache: Path | None, read: Callable[[], bytes] | None = None
) -> tuple[wasmtime.Module, wasmtime.Module]:
    """The compiled guest and refusals, from the cache directory if it can be trusted.

    `read` returns the guest's bytes if it must be compiled (by default `read_guest`).

    Raises:
        UsageError: the guest module is not installed, or is not the pinned one.
    """
    file = None if cache is None else cache / _file_name()
    kept = None if file is None else read_private_second(file)
    if file is not None and kept is not None:
        # For example a file of another build of wasmtime: it is replaced below.
        with contextlib.suppress(wasmtime.WasmtimeError):
            return _kept_guest(engine, file), wasmtime.Module.deserialize(engine, kept)
    guest = wasmtime.Module(engine, (read or read_guest)())
    refusals = wasmtime.Module(engine, _REFUSALS)
    if file is not None:
        keep_private(file, bytes(guest.serialize()), bytes(refusals.serialize()))
    return guest, refusals


def _kept_guest(engine: wasmtime.Engine, file: Path) -> wasmtime.Module:
    # Mapped code is not read or copied as a whole, and processes share it; but some file systems
    # forbid execution.
    with contextlib.suppress(wasmtime.WasmtimeError):
        return wasmtime.Module.deserialize_file(engine, str(file))
    kept = read_private(file)
    return wasmtime.Module.deserialize(engine, b"" if kept is None else kept[0])


def read_guest() -> bytes:
    """The bytes of the guest module.

    Raises:
        UsageError: it is not installed, or is not the pinned one.
    """
    spec = util.find_spec("quickjs_rs")
    folders = None if spec is None else spec.submodule_search_locations
    if not folders:
        raise UsageError(f"the JavaScript engine for hooks is not installed: {_INSTALL}")
    path = Path(folders[0], "_guest.wasm")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the JavaScript engine for hooks: {error}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != GUEST_SHA256:
        raise UsageError(
            f"{path} is not the JavaScript engine that callpact was tried with "
            f"(sha256 {found[:12]}…, expected {GUEST_SHA256[:12]}…): {_INSTALL}"
        )
    return content


def _file_name() -> str:
    version = _wasmtime_version()
    where = f"{sys.platform}-{platform.machine()}".lower()
    return f"hooks-{COMPILED_AS}-{version}-{where}.bin"


def _wasmtime_version() -> str:
    """The version of the installed package; `importlib.metadata` would take 15 ms."""
    beside = Path(wasmtime.__file__).parent.parent
    names = sorted(found.name for found in beside.glob("wasmtime-*.dist-info"))
    return names[0].split("-")[1].removesuffix(".dist") if names else "unknown"
