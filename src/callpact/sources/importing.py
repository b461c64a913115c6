"""Importing local modules anew once their files have changed, or leaving all as it was.

Local are the modules of a project, not those that are installed. Python keeps one version of each
module by its name; here is known which of them came for sources, what they were read from, and
which of them import which, so that what changed is run again with all that depends on it, and what
did not change keeps its state. Nothing is known here of tools.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_STDLIB = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 - compared as a text
TICK_NS = 50_000_000
"""Nanoseconds by which the clock of a file system may be behind."""
_lock = threading.RLock()


@dataclass
class _Imported:
    """A local module that was imported for a source."""

    name: str
    module: ModuleType
    file: str
    source: bytes
    is_certain: bool
    """False if it may have been read from something else."""
    brought: set[str] = field(default_factory=set[str])
    """Local modules that came with the one that a source names, however it asked for them."""

    @property
    def is_current(self) -> bool:
        return self.is_certain and self.source == _read(self.file)

    @cached_property
    def imports(self) -> frozenset[str]:
        """Every module that it, or a package that it is in, may be made of."""
        is_package = Path(self.file).name == "__init__.py"
        package = self.name if is_package else self.name.rpartition(".")[0]
        return frozenset(_imports(self.source, package)) | _above(self.name)


_imported: dict[str, _Imported] = {}


@dataclass
class Attempt:
    """One go at importing: the module that it is for, and the local files that had a part in it."""

    module: str = ""
    files: set[str] = field(default_factory=set[str])


@contextmanager
def anew(roots: Iterable[Path]) -> Generator[Attempt]:
    """Let what is imported inside be the code that is on disk; local is what is below the roots.

    If it fails, the modules are those from before.
    """
    attempt, homes = Attempt(), tuple(os.path.realpath(root) for root in roots)
    with _lock:
        if _imported:
            importlib.invalidate_caches()
        aside = _set_aside()
        before, since = set(sys.modules), time.time_ns()
        try:
            yield attempt
        except BaseException as error:
            importlib.invalidate_caches()  # What is missing may be there the next time.
            fresh = _fresh(before, homes)
            attempt.files.update(fresh.values())
            attempt.files |= {file for file in _named(error) if _is_local("", file, homes)}
            for name in fresh:
                _take_out(name)
            for known in aside.values():
                _put_back(known)
            raise
        fresh = _fresh(before, homes)
        for name, file in fresh.items():
            brought = _imported[name].brought if name in _imported else set[str]()
            is_certain = written_at(file) < since - TICK_NS
            module = sys.modules[name]
            _imported[name] = _Imported(name, module, file, _read(file) or b"", is_certain, brought)
        for name, known in aside.items():
            if name not in fresh:
                # Others may still run it, but it is not what an import would give now.
                known.is_certain = False
                _put_back(known)
        if attempt.module in _imported:
            _imported[attempt.module].brought |= fresh.keys() - {attempt.module}
        attempt.files |= local_files(attempt.module)


def local_files(name: str) -> set[str]:
    """The files of a module and of all local modules that it is made of."""
    seen: set[str] = set()
    names = {name}
    while names:
        found = _imported.get(names.pop())
        if found is not None and found.name not in seen:
            seen.add(found.name)
            names |= found.imports | found.brought
    return {_imported[found].file for found in seen}


def _set_aside() -> dict[str, _Imported]:
    """Take every module out of Python's sight that is not current, or made of one that is not."""
    for name, known in tuple(_imported.items()):
        if sys.modules.get(name) is not known.module:
            del _imported[name]
    stale = {name for name, known in _imported.items() if not known.is_current}
    for name in stale:
        # Python takes a file for unchanged if its size and the second of its change are.
        with suppress(OSError, NotImplementedError, ValueError):
            Path(importlib.util.cache_from_source(_imported[name].file)).unlink()
    size = -1
    while size < len(stale):
        size = len(stale)
        stale |= {
            name
            for name, known in _imported.items()
            if not stale.isdisjoint(known.imports | known.brought)
        }
    for name in stale:
        _take_out(name)
    return {name: _imported[name] for name in stale}


def _take_out(name: str) -> None:
    module = sys.modules.pop(name, None)
    parent, _, last = name.rpartition(".")
    # Else `from parent import last` would still give the old one.
    if getattr(sys.modules.get(parent), last, None) is module is not None:
        delattr(sys.modules[parent], last)


def _put_back(known: _Imported) -> None:
    sys.modules[known.name] = known.module
    parent, _, last = known.name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, known.module)


def _fresh(before: set[str], homes: tuple[str, ...]) -> dict[str, str]:
    """The local modules that were not there before, and their files."""
    found: dict[str, str] = {}
    for name in set(sys.modules).difference(before):
        module: Any = sys.modules[name]  # A module may put anything in its place.
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(file, str) and _is_local(name, file, homes):
            found[name] = file
    return found


def _is_local(name: str, file: str, homes: tuple[str, ...]) -> bool:
    # Ours run already, and would not be the same when they come again.
    if not file.endswith(".py") or name.partition(".")[0] == "callpact":
        return False
    if _INSTALLED.search(file) or file.startswith(_STDLIB):
        return False
    real = os.path.realpath(file)
    return not _INSTALLED.search(real) and real.startswith(tuple(map(_below, homes)))


def _below(folder: str) -> str:
    return folder if folder.endswith(os.sep) else folder + os.sep


def _named(error: BaseException) -> Generator[str]:
    """The files that an error and its causes name."""
    told: BaseException | None = error
    while told is not None:
        if isinstance(told, SyntaxError) and told.filename is not None:
            yield told.filename
        yield from (frame.filename for frame in traceback.extract_tb(told.__traceback__))
        told = told.__cause__


def _imports(source: bytes, package: str) -> Generator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from (alias.name, *_above(alias.name))
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            home = ".".join(
                [*(base if node.level else ()), *([node.module] if node.module else ())]
            )
            yield from (home, *_above(home), *(f"{home}.{alias.name}" for alias in node.names))


def _above(name: str) -> frozenset[str]:
    """The packages that a module is in."""
    parts = name.split(".")
    return frozenset(".".join(parts[:number]) for number in range(1, len(parts)))


def _read(file: str) -> bytes | None:
    try:
        return Path(file).read_bytes()
    except OSError:
        return None


def written_at(file: str) -> float:
    """When a file was last written, in nanoseconds; never, if nobody can say."""
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return float("inf")
