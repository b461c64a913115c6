"""Tools from a Python module or file: what it marks with `@tool`, and the Tools it holds.

References: `python:shop.py`, `python:package.module`, and either with `:name` for one object.
Importing a module runs it; only name modules that you trust.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from callpact.errors import DeclarationError, SourceRefused
from callpact.sources.function import from_functions, is_marked
from callpact.sources.loaded import Finding, Tools
from callpact.tool import Tool

if TYPE_CHECKING:
    from types import ModuleType


class PythonSource:
    """A module whose functions are tools."""

    def __init__(self, ref: str, namespace: str | None = None) -> None:
        self._ref = ref
        self._namespace = namespace

    async def load(self) -> Tools:
        """Import the module and collect its tools.

        Raises:
            SourceRefused: it cannot be imported, or holds no tool.
        """
        module_ref, name = _split(self._ref)
        module = _import(module_ref)
        if name is None:
            found = _marked(module)
            if not found:
                raise SourceRefused(
                    f"python:{self._ref} holds no tool; mark its functions with @callpact.tool, "
                    "or name one object of it: python:module:name"
                )
            return self._collect(found)
        if not hasattr(module, name):
            raise SourceRefused(f"python:{module_ref} has no '{name}'")
        return self._collect(_objects(getattr(module, name)))

    async def aclose(self) -> None:
        """Nothing is held."""

    def _collect(self, found: Iterable[Any]) -> Tools:
        """Every tool that can be made; a bad one is reported and leaves the others alone."""
        tools: list[Tool] = []
        report: list[Finding] = []
        for item in found:
            try:
                made = from_functions(item, namespace=self._namespace)
            except DeclarationError as error:
                report.append(Finding(_name(item), "error", str(error)))
                continue
            tools.extend(made)
            report.extend(made.report)
        return Tools(tools, report)


def open_python(ref: str, namespace: str | None = None) -> PythonSource:
    """The source behind `python:` references."""
    return PythonSource(ref, namespace)


def _split(ref: str) -> tuple[str, str | None]:
    head, colon, tail = ref.rpartition(":")
    # A Windows drive ("C:\tools.py") is not a module with a name in it.
    if colon and tail.isidentifier() and len(head) > 1:
        return head, tail
    return ref, None


def _import(ref: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return _import_file(Path(ref)) if ref.endswith(".py") else importlib.import_module(ref)
    except SourceRefused:
        raise
    except (Exception, SystemExit) as error:  # Boundary: importing runs the user's own code.
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}, line {last.lineno}"
        text = f"python:{ref} cannot be imported: {type(error).__name__}: {error} ({place})"
        raise SourceRefused(text) from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise SourceRefused(f"python:{path} is not a file")
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path.resolve()):
        return known
    if known is not None or not name.isidentifier():
        name = f"callpact_file_{abs(hash(str(path.resolve())))}"
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise SourceRefused(f"python:{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Type hints are resolved through sys.modules, so the module must stand there while it runs.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _marked(module: ModuleType) -> list[Any]:
    found: list[Any] = []
    for value in vars(module).values():
        own = isinstance(value, Tool) or (
            is_marked(value) and inspect.getmodule(inspect.unwrap(value)) is module
        )
        if own and value not in found:
            found.append(value)
    return found


def _objects(value: Any) -> list[Any]:
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return list(cast("Iterable[Any]", value))
    return [value]


def _name(item: Any) -> str:
    return item.id if isinstance(item, Tool) else getattr(item, "__qualname__", repr(item))
