"""Imports local modules again after their files have changed; a failed import changes nothing.

Local modules are those of a project, not installed ones. The modules imported for sources, their
code and their imports are recorded, so that a changed module is run again with all modules that
depend on it, and an unchanged one keeps its state. Knows nothing of tools.
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
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any

_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_STDLIB = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 - compared as a text
TICK_NS = 50_000_000
"""Nanoseconds by which the clock of a file system may be behind."""
_SECOND_NS = 1_000_000_000 + TICK_NS
_lock = threading.RLock()


@dataclass
class _Imported:
    """A local module that was imported for a source."""

    name: str
    module: ModuleType
    file: str
    source: bytes | None
    is_certain: bool
    """False if the running module may come from code other than `source`."""
    brought: set[str] = field(default_factory=set[str])
    """Local modules that were imported during the import of a source's main module."""

    @property
    def is_current(self) -> bool:
        return self.is_certain and self.source == _read(self.file)

    @cached_property
    def imports(self) -> set[str]:
        """Every module that its import statements may name, with their packages and its own."""
        package = self.name if hasattr(self.module, "__path__") else self.name.rpartition(".")[0]
        names = {self.name}
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            for node in ast.walk(ast.parse(self.source or b"")):
                if isinstance(node, ast.Import):
                    names.update(alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    with suppress(ImportError):  # A relative import from beyond the top package.
                        home = "." * node.level + (node.module or "")
                        home = importlib.util.resolve_name(home, package)
                        names.update(f"{home}.{alias.name}" for alias in node.names)
        return {part for name in names for part in accumulate(name.split("."), "{}.{}".format)}


_imported: dict[str, _Imported] = {}


@dataclass
class ImportAttempt:
    """One import for a source: the name of its main module, and all local files involved."""

    module: str = ""
    files: set[str] = field(default_factory=set[str])


@contextmanager
def anew(roots: Iterable[Path]) -> Generator[ImportAttempt]:
    """Run imports of local modules, the files below the roots, with the code on disk.

    If the body fails, the previous modules are restored.
    """
    # Joined with nothing, a folder ends with a separator.
    homes = tuple(os.path.join(os.path.realpath(root), "") for root in roots)  # noqa: PTH118
    attempt = ImportAttempt()
    with _lock:
        importlib.invalidate_caches()
        aside = _set_aside()
        before, since = set(sys.modules), time.time_ns()
        try:
            yield attempt
        except BaseException as error:
            fresh = _fresh(before, homes)
            named = {file for file in _named(error) if _is_local("", file, homes)}
            attempt.files.update(named, fresh.values())
            for name in fresh:
                _take_out(name)
            for known in aside.values():
                _put_back(known)
            raise
        fresh = _fresh(before, homes)
        for name, file in fresh.items():
            brought = _imported[name].brought if name in _imported else set[str]()
            written = _written_at(file)
            if written > since - _SECOND_NS:  # It may still change in the second of its bytecode.
                _forget_bytecode(file)
            is_certain = written < since - TICK_NS
            module = sys.modules[name]
            _imported[name] = _Imported(name, module, file, _read(file), is_certain, brought)
        for name, known in aside.items():
            if name not in fresh:
                # Other sources may still use it, but an import now gives another module.
                known.is_certain = False
                _put_back(known)
        if attempt.module in _imported:
            _imported[attempt.module].brought |= fresh.keys() - {attempt.module}
        attempt.files = {_imported[name].file for name in _made_of(attempt.module)}


def _made_of(name: str) -> set[str]:
    """A module and all local modules that it imports, directly or indirectly."""
    seen, names = set[str](), {name}
    while names:
        found = _imported.get(names.pop())
        if found is not None and found.name not in seen:
            seen.add(found.name)
            names |= found.imports | found.brought
    return seen


def _set_aside() -> dict[str, _Imported]:
    """Remove every module from `sys.modules` that is not current, or depends on one that is not."""
    for name, known in tuple(_imported.items()):
        if sys.modules.get(name) is not known.module:
            del _imported[name]
    changed = {name for name, known in _imported.items() if not known.is_current}
    for name in changed:
        _forget_bytecode(_imported[name].file)
    stale = {name for name in _imported if changed and not changed.isdisjoint(_made_of(name))}
    for name in stale:
        _take_out(name)
    return {name: _imported[name] for name in stale}


def _forget_bytecode(file: str) -> None:
    """Delete the bytecode of a file: Python compares only the size and the second of its change."""
    with suppress(OSError, NotImplementedError, ValueError):
        Path(importlib.util.cache_from_source(file)).unlink()


def _take_out(name: str) -> None:
    module = sys.modules.pop(name, None)
    parent, _, last = name.rpartition(".")
    # Otherwise `from parent import last` would still return the old module.
    if getattr(sys.modules.get(parent), last, None) is module is not None:
        delattr(sys.modules[parent], last)


def _put_back(known: _Imported) -> None:
    sys.modules[known.name] = known.module
    parent, _, last = known.name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, known.module)


def _fresh(before: set[str], homes: tuple[str, ...]) -> dict[str, str]:
    """The local modules that were imported since, and their files."""
    found: dict[str, str] = {}
    for name in set(sys.modules).difference(before):
        module: Any = sys.modules[name]  # A module may replace itself by any object.
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(file, str) and _is_local(name, file, homes):
            found[name] = file
    return found


def _is_local(name: str, file: str, homes: tuple[str, ...]) -> bool:
    real = os.path.realpath(file)
    is_installed = _INSTALLED.search(f"{file}\n{real}") or file.startswith(_STDLIB)
    is_ours = name.partition(".")[0] == "callpact"  # callpact itself is never imported again.
    return file.endswith(".py") and not is_installed and not is_ours and real.startswith(homes)


def _named(error: BaseException | None) -> Generator[str]:
    """The files that an error and its causes name."""
    while error is not None:
        if isinstance(error, SyntaxError) and error.filename is not None:
            yield error.filename
        yield from (frame.filename for frame in traceback.extract_tb(error.__traceback__))
        error = error.__cause__


def _read(file: str) -> bytes | None:
    with suppress(OSError):
        return Path(file).read_bytes()
    return None


def _written_at(file: str) -> float:
    """The time of a file's last change, in nanoseconds; infinity if it is unknown."""
    with suppress(OSError):
        return Path(file).stat().st_mtime_ns
    return float("inf")
