"""Tools from a Python module or file: its functions marked with `@tool`, and its Tools.

References: `python:shop.py`, `python:package.module`, and either with `:name` for one object.
Importing a module runs it; only name modules that you trust.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from callpact.errors import DeclarationError, SourceRefused
from callpact.resources import Prompt, Resource
from callpact.sources.base import UNREAD, Finding, Opening, Tools, Watched
from callpact.sources.python.functions import from_functions
from callpact.sources.python.importer import ImportAttempt, anew
from callpact.sources.python.marker import options_of
from callpact.tool import Tool

if TYPE_CHECKING:
    from types import ModuleType

_NOT_NAMESPACE = re.compile(r"[^A-Za-z0-9_-]+")


class PythonSource:
    """A module whose functions are tools."""

    def __init__(self, ref: str, namespace: str | None = None, folder: Path | None = None) -> None:
        self._ref = ref
        self._folder = folder or Path.cwd()
        self._module, self._name = _split(ref)
        self._namespace = namespace or _namespace(self._module)
        self._attempt = ImportAttempt()
        self._is_loaded = False

    async def load(self) -> Tools:
        """Import the module and collect its tools; changed modules are imported again.

        Raises:
            SourceRefused: it cannot be imported, or has no tool; the previous modules stay.
        """
        self._is_loaded = False
        with anew(self._roots) as self._attempt:
            module = imported(self._module, self._folder)
            self._attempt.module = module.__name__
            tools = self._tools_of(module)
        self._is_loaded = True
        return tools

    def watched(self) -> Iterable[Watched]:
        """The module and the local modules that it imports; after a failure, all local files."""
        files = {Path(file) for file in self._attempt.files}
        if self._module.endswith(".py"):
            files.add((self._folder / self._module).absolute())
        yield from map(Watched, sorted(files))
        if not self._is_loaded:
            parents = {file.parent for file in files}
            for folder in sorted({*self._roots, *parents}):
                yield Watched(folder, ".py", UNREAD, 2)

    @property
    def _roots(self) -> tuple[Path, ...]:
        """The folders of local modules."""
        if not self._module.endswith(".py"):
            return (self._folder,)
        return (self._folder, (self._folder / self._module).resolve().parent)

    def _tools_of(self, module: ModuleType) -> Tools:
        found = marked_in(module)
        if self._name is None:
            if not found:
                raise SourceRefused(
                    f"python:{self._ref} holds no tool; mark its functions with @callpact.tool, "
                    f"or name one object of it: python:{self._ref}:name"
                )
            return self._collect(found)
        if not hasattr(module, self._name):
            held = f"; its tools are {', '.join(found)}" if found else ""
            raise SourceRefused(f"python:{self._module} has no '{self._name}'{held}")
        return self._collect(_objects(self._name, getattr(module, self._name)))

    async def aclose(self) -> None:
        """Nothing to close."""

    def _collect(self, found: dict[str, Any]) -> Tools:
        """Every valid tool; a bad one is reported and does not affect the others."""
        tools: list[Tool] = []
        report: list[Finding] = []
        resources: list[Resource] = []
        prompts: list[Prompt] = []
        for name, item in found.items():
            place = f"python:{self._module}:{name}"
            try:
                made = from_functions(item, namespace=self._namespace)
            except DeclarationError as error:
                report.append(Finding(place, "error", str(error)))
                continue
            tools.extend(replace(tool, source=place) for tool in made)
            resources.extend(replace(o, tool=replace(o.tool, source=place)) for o in made.resources)
            prompts.extend(replace(o, tool=replace(o.tool, source=place)) for o in made.prompts)
            report.extend(made.report)
        return Tools(tools, report, resources, prompts)


def open_python(opening: Opening) -> PythonSource:
    """The source of a `python:` reference."""
    return PythonSource(opening.ref, opening.namespace, opening.folder)


def _split(ref: str) -> tuple[str, str | None]:
    head, colon, tail = ref.rpartition(":")
    # A Windows drive ("C:\tools.py") is not a module with a name in it.
    if colon and tail.isidentifier() and len(head) > 1:
        return head, tail
    return ref, None


def _namespace(module: str) -> str | None:
    """The name of a file; None for a module, whose name `from_functions` uses by default."""
    if not module.endswith(".py"):
        return None
    return _NOT_NAMESPACE.sub("_", Path(module).stem).strip("_") or None


def imported(ref: str, folder: Path) -> ModuleType:
    """The module of a reference, a file or a name; its folder is added to `sys.path`.

    Raises:
        SourceRefused: it cannot be imported, with the line that failed.
    """
    here = str(folder.resolve())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        if ref.endswith(".py"):
            return _import_file(folder / ref)
        return importlib.import_module(ref)
    except SourceRefused:
        raise
    except (Exception, SystemExit) as error:  # Boundary: importing runs the user's own code.
        raise SourceRefused(f"python:{ref} cannot be imported: {_cause(error, ref)}") from error


def _cause(error: BaseException, ref: str) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == ref.partition(".")[0]:
        return f"there is no module '{error.name}' here or in this environment"
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):  # Its text already names the file and the line.
        return text
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "importlib" not in frame.filename]
    # The first frame is ours; without another one there is no line of the module to name.
    return f"{text} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own[1:] else text


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise SourceRefused(f"there is no file {path}")
    path = path.resolve()
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if known is not None or not name.isidentifier():
        name = f"callpact_file_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
        if name in sys.modules:
            return sys.modules[name]
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SourceRefused(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Type hints are resolved through sys.modules, so the module must be there while it runs.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def marked_in(module: ModuleType) -> dict[str, Any]:
    """The marked functions, Tools, resources and prompts of a module, by their names in it."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        is_tool = isinstance(value, Tool | Resource | Prompt) or (
            options_of(value) and _is_own(value, module)
        )
        if is_tool and not any(value is other for other in found.values()):
            found[name] = value
    return found


def _is_own(function: Any, module: ModuleType) -> bool:
    """False for a function that was imported from another module, whose tool it is."""
    home = inspect.getmodule(inspect.unwrap(function))
    return home is module or home is None or all(v is not function for v in vars(home).values())


def _objects(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        items = cast("Iterable[Any]", value)
        return {f"{name}[{index}]": item for index, item in enumerate(items)}
    return {name: value}
