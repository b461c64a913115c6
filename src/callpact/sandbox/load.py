"""Loading of images: the driver and its globals, libraries, and the module of a file.

All of it runs once, in the sandbox, within the limits for loading. Every call starts from the image
that is taken at the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from callpact.errors import DeclarationError
from callpact.sandbox.guest.image import Handles, Image, pack_image, unpack_image
from callpact.sandbox.guest.instance import Trapped
from callpact.sandbox.guest.machine import Machine, Thrown
from callpact.sandbox.guest.machine_pool import Machines
from callpact.sandbox.guest.wasm import COMPILED_AS
from callpact.sandbox.hook_limits import HookLimits
from callpact.sandbox.js.builtin_modules import INTL, module_limits, module_script
from callpact.sandbox.js.time_zones import zone_texts
from callpact.sandbox.private_files import keep_private, read_private
from callpact.sandbox.steps import StepFailed, read_thrown, words

if TYPE_CHECKING:
    from callpact.sandbox.packs.library import Pack

T = TypeVar("T")
Hooks = Mapping[str, frozenset[str]]

_MAX_DESCRIBED_BYTES = 1 << 20
_shape = msgspec.json.Decoder(dict[str, frozenset[str]])


class HooksRefused(DeclarationError):
    """A file whose hooks cannot be loaded, with the reason and the line (0 if unknown)."""

    def __init__(self, name: str, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(name, message, line, column)
        self.name = name
        self.message = message
        self.line = line
        self.column = column

    def __str__(self) -> str:
        where = f" (line {self.line}, column {self.column})" if self.line else ""
        return f"{self.name}: {self.message}{where}"


class Loading:
    """Makes images on the machines of an engine."""

    def __init__(self, machines: Machines, limits: HookLimits) -> None:
        self._machines = machines
        self._limits = msgspec.structs.replace(limits, seconds=limits.load_seconds)

    def boot(self, packs: Sequence[Pack], modules: Sequence[str]) -> Image:
        """The state before any file's code: driver, globals, and the libraries that it may use.

        Raises:
            HooksRefused: a library fails or breaks a limit.
            PackRefused: a pack cannot be read or is not what was built.
        """
        scripts = _read(packs) if packs else []
        file = None if packs or modules else self._file()
        kept = None if file is None else read_private(file)
        if kept is not None:
            with contextlib.suppress(msgspec.DecodeError):
                return unpack_image(*kept)
        image = self._run(None, lambda machine: self._boot(machine, scripts, modules))
        if file is not None:
            keep_private(file, *pack_image(image))
        return image

    def _file(self) -> Path | None:
        """The file of the image without packs; its name is a hash of all that it depends on."""
        if self._machines.cache is None:
            return None
        digest = hashlib.sha256(COMPILED_AS.encode())
        for part in (_script("bootstrap.js"), _script("globals.js"), self._options()):
            digest.update(hashlib.sha256(part).digest())
        return self._machines.cache / f"base-{digest.hexdigest()[:32]}.bin"

    def _options(self) -> bytes:
        return msgspec.json.encode(self._limits)

    def load(self, base: Image, text: bytes, main: str, lists: str) -> tuple[Hooks, Image]:
        """The hooks of a module and the state after its factory ran.

        Raises:
            HooksRefused: the module fails, exceeds a limit, or contradicts its `main`.
            UsageError: the lists are not JSON.
        """
        loaded = self._run(base, lambda machine: self._load(machine, base, text, main, lists))
        if loaded is not None:
            return loaded
        # The first way gives no reason for a failure; this one gives only that.
        raise self._run(base, lambda machine: self._explain(machine, base.handles, text))

    def _run(self, base: Image | None, work: Callable[[Machine], T]) -> T:
        machine = self._machines.lend(base)
        try:
            return self._limited(machine, work)
        except Trapped as trapped:
            message = words(trapped.name, self._limits)
            detail = f" ({trapped.detail})" if trapped.detail else ""
            raise HooksRefused(trapped.name, message + detail) from None
        except Thrown:
            # Only code that breaks the engine's own intrinsics makes the driver throw.
            name = "MemoryLimit" if machine.is_full else "Crashed"
            raise HooksRefused(name, words(name, self._limits)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HooksRefused("Crashed", f"the driver was not understood ({error})") from None
        finally:
            self._machines.take_back(machine)

    def _limited(self, machine: Machine, work: Callable[[Machine], T]) -> T:
        self._machines.begin(machine, self._limits.seconds)
        try:
            return work(machine)
        finally:
            self._machines.end()

    def _boot(
        self, machine: Machine, scripts: Sequence[tuple[str, bytes]], modules: Sequence[str]
    ) -> Image:
        places = machine.prepare()
        limits = machine.json(self._options())
        installer = machine.evaluate(_script("globals.js"))
        driver = machine.invoke(machine.evaluate(_script("bootstrap.js")), installer, limits)
        load, start, take, settle, describe = (
            machine.member(driver, name) for name in ("load", "start", "take", "settle", "describe")
        )
        handles = Handles(load, start, take, settle, describe, places)
        for module in modules:
            _add_module(machine, driver, module)
        if scripts:
            add_globals = machine.member(driver, "addGlobals")
            machine.invoke(add_globals, machine.evaluate(_script("pack_globals.js")))
            add_library = machine.member(driver, "addLibrary")
            for name, script in scripts:
                try:
                    machine.evaluate(script)
                    machine.run_jobs()
                except Thrown as thrown:
                    failure = self._failure(machine, handles, thrown.handle)
                    raise HooksRefused(
                        "LibraryFailed", f"the library '{name}' failed: {failure.message}"
                    ) from None
                machine.invoke(add_library, _string(machine, name))
        machine.make_room()
        return machine.capture(handles)

    def _load(
        self, machine: Machine, base: Image, text: bytes, main: str, lists: str
    ) -> tuple[Hooks, Image] | None:
        """Load a module; None if its code did not run to its end."""
        handles = base.handles
        # The added export has an unpredictable name: it is there only if all code before it ran.
        mark = f"_{os.urandom(16).hex()}"
        ended = b"%b\n;export const %b=1" % (text, mark.encode())
        try:
            namespace = machine.evaluate_module(ended)
            machine.run_jobs()
        except Thrown as thrown:
            raise _refused(self._failure(machine, handles, thrown.handle)) from None
        if machine.is_full:  # Without room, the engine drops the jobs of promises silently.
            raise Trapped("MemoryLimit")
        try:
            machine.member(namespace, mark)
        except Thrown:
            return None
        answer = machine.invoke(handles.load, namespace, machine.json(lists.encode()))
        machine.run_jobs()
        reply = machine.text(answer, self._limits.input_bytes)
        if reply is None:
            raise Trapped("OutputLimit")
        if reply[:1] != b"D":
            raise _refused(read_thrown(reply[1:], self._limits))
        shape, _, found = reply[1:].partition(b"\n")
        if found != main.encode():
            raise HooksRefused("MainChanged", "the file's code changes 'main', which is data")
        return _shape.decode(shape), machine.capture(handles, base)

    def _explain(self, machine: Machine, handles: Handles, text: bytes) -> HooksRefused:
        try:
            promise = machine.module_promise(text)
            machine.run_jobs()
        except Thrown as thrown:
            return _refused(self._failure(machine, handles, thrown.handle))
        reason = machine.rejection(promise)
        if reason is None:
            return HooksRefused("NeverSettled", words("NeverSettled", self._limits))
        return _refused(self._failure(machine, handles, reason))

    def _failure(self, machine: Machine, handles: Handles, thrown: int) -> StepFailed:
        try:
            text = machine.text(machine.invoke(handles.describe, thrown), _MAX_DESCRIBED_BYTES)
        except Thrown:
            text = None
        if text is None:
            raise Trapped("MemoryLimit" if machine.is_full else "Crashed")
        return read_thrown(text, self._limits)


def _read(packs: Sequence[Pack]) -> list[tuple[str, bytes]]:
    from callpact.sandbox.packs.library import load  # most files have no packs

    return [(pack.name, load(pack).encode()) for pack in packs]


def _add_module(machine: Machine, driver: int, module: str) -> None:
    install = machine.evaluate(module_script(module))
    if module == INTL:
        zones = machine.json(msgspec.json.encode(zone_texts()))
        machine.invoke(machine.member(driver, "addIntl"), install, zones)
    else:
        limits = machine.json(msgspec.json.encode(module_limits()))
        name = _string(machine, module)
        machine.invoke(machine.member(driver, "addModule"), name, install, limits)


def _script(name: str) -> bytes:
    return (Path(__file__).parent / "js" / name).read_bytes()


def _string(machine: Machine, text: str) -> int:
    return machine.json(msgspec.json.encode(text))


def _refused(failed: StepFailed) -> HooksRefused:
    return HooksRefused(failed.name, failed.message, failed.line, failed.column)
