"""The hooks of checked files: opened in the sandbox when a tool of theirs is first called.

`CatalogueHooks` has one engine for all files of a load, started with the first hook. For a file whose
hooks cannot run it returns the tools concerned and the reason.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from callpact import sandbox as hooks
from callpact.errors import DeclarationError, UsageError
from callpact.folders import cache_folder
from callpact.sandbox.js.builtin_modules import needed_modules, node_module
from callpact.sources.flowmcp.check.rule_table import Profile
from callpact.sources.flowmcp.check.rules.list_rules import ListFile, resolve_lists
from callpact.sources.flowmcp.read.literal import read_exports
from callpact.sources.flowmcp.read.literal_parser import stringify
from callpact.sources.flowmcp.read.scan import hooked_tools, module_imports, without_imports

if TYPE_CHECKING:
    from callpact.sandbox.engine import Engine
    from callpact.sandbox.hook_limits import HookLimits
    from callpact.sandbox.load import HooksRefused
    from callpact.sandbox.packs.library import Pack
    from callpact.sandbox.pool import Perform, ThreadPool
    from callpact.sandbox.realm import Realm
    from callpact.sandbox.steps import Done, StepFailed


class Unhooked(NamedTuple):
    """Tools whose hooks cannot run, and the reason."""

    names: frozenset[str]
    reason: str


class CatalogueHooks:
    """The hooks of the files of one loading."""

    def __init__(
        self,
        lists: Mapping[str, ListFile],
        profile: Profile,
        *,
        packs: Path | None = None,
        limits: HookLimits | None = None,
    ) -> None:
        self.lists = lists
        self.profile: Profile = profile
        self._packs = packs
        self._limits = limits
        self._engine: Engine | None = None
        self._is_closed = False

    def of_file(
        self,
        file: str,
        text: str,
        handlers: int,
        names: Collection[str],
        libraries: Sequence[str],
        *,
        hooked: Collection[str] | None = None,
    ) -> FileHooks | Unhooked:
        """The hooks of a file that exports `handlers`, or the reason why they cannot run.

        `hooked` are the names that may have hooks, if they are known already.
        """
        reason = self._hindrance(libraries)
        if reason is not None:
            concerned = hooked_tools(text, handlers, names) if hooked is None else hooked
            return Unhooked(frozenset(concerned), reason)
        return FileHooks(self, file, text, libraries=libraries, handlers=handlers, names=names)

    def packs(self, libraries: Iterable[str]) -> list[Pack]:
        """The packs of those libraries that are not built in."""
        return [self._installed[name] for name in libraries if node_module(name) is None]

    def _hindrance(self, libraries: Sequence[str]) -> str | None:
        """The reason why hooks that need these libraries cannot run; None if they can."""
        if not self._is_installed:
            return "It needs its hooks, which run with `pip install 'callpact[hooks]'`"
        try:
            packed = [name for name in libraries if node_module(name) is None]
            missing = [name for name in packed if name not in self._installed]
        except DeclarationError as error:  # PackRefused: one file must not stop the others.
            return f"Its hooks need libraries: {self.shown(error)}"
        return _lacking(missing) if missing else None

    def shown(self, error: DeclarationError) -> str:
        """The text of an error for remote callers: without the folder of libraries."""
        folder = str(self._folder)
        return str(error).replace(f"{folder}{os.sep}", "").replace(folder, "the libraries")

    @cached_property
    def pool(self) -> ThreadPool:
        """The pool that runs hooks, started on first use.

        Raises:
            UsageError: the hooks are closed.
        """
        from callpact.sandbox.engine import Engine
        from callpact.sandbox.pool import ThreadPool

        if self._is_closed:
            raise UsageError("the hooks are closed: the tools of this loading were")
        self._engine = Engine(cache_folder("hooks"), self._limits)
        return ThreadPool(self._engine)

    async def aclose(self) -> None:
        """End the engine, if it was started; no hook runs after it."""
        self._is_closed = True
        if self._engine is not None:
            await self.pool.aclose()
            self._engine.close()

    @cached_property
    def _is_installed(self) -> bool:
        return hooks.is_installed()

    @cached_property
    def _folder(self) -> Path:
        from callpact.sandbox.packs.library import user_packs

        return self._packs or user_packs()

    @cached_property
    def _installed(self) -> Mapping[str, Pack]:
        from callpact.sandbox.packs.library import installed

        return installed(self._folder)


class FileHooks:
    """The hooks of one file; its code is first run when one of its tools is first called."""

    def __init__(
        self,
        catalogue: CatalogueHooks,
        file: str,
        text: str,
        *,
        handlers: int,
        names: Collection[str],
        libraries: Sequence[str],
    ) -> None:
        self.file = file
        """Its name for remote callers."""
        self._handlers = handlers
        self._names = names
        self.profile: Profile = catalogue.profile
        self._catalogue = catalogue
        self._text = text
        self._libraries = libraries
        self._realm: Realm | None = None
        self._refused: HooksRefused | None = None

    @cached_property
    def tools(self) -> frozenset[str]:
        """The tools that may have hooks; the others need none of the file's code."""
        return hooked_tools(self._text, self._handlers, self._names)

    def shown(self, error: DeclarationError) -> str:
        """An error as callers see it."""
        return self._catalogue.shown(error)

    async def open(self, caller: str | None = None) -> Realm:
        """The file's realm; two concurrent first calls may each open one.

        Raises:
            DeclarationError: the file's code fails, exceeds a limit or contradicts its `main`, or
                the hash of a library is wrong.
        """
        from callpact.sandbox.load import HooksRefused

        if self._refused is not None:
            raise self._refused
        if self._realm is None:
            main = read_exports(self._text).values.get("main", {})
            lists = stringify(_thawed(resolve_lists(main, self._catalogue.lists).lists))
            try:
                self._realm = await self._catalogue.pool.open(
                    without_imports(self._text),
                    main=stringify(main),
                    lists=lists,
                    packs=self._catalogue.packs(self._libraries),
                    modules=self._modules(),
                    caller=caller,
                )
            except HooksRefused as refused:
                if refused.name != "Timeout":  # A timeout may be due to the load of the machine.
                    self._refused = refused
                raise
        return self._realm

    def _modules(self) -> tuple[str, ...]:
        imported = (found.module for found in module_imports(self._text))
        return needed_modules(self._text, [*self._libraries, *imported])

    async def run(
        self,
        realm: Realm,
        tool: str,
        kind: str,
        argument: bytes,
        perform: Perform,
        *,
        caller: str | None,
    ) -> Done | StepFailed:
        """Call one of its hooks, in the turn of a caller."""
        return await self._catalogue.pool.run(realm, tool, kind, argument, perform, caller=caller)


def _lacking(names: Sequence[str]) -> str:
    from callpact.sandbox.packs.library import unusable

    never = [reason for name in names if (reason := unusable(name))]
    if never:
        return f"Its hooks cannot run: {'; '.join(never)}"
    wanted = " ".join(names)
    return f"Its hooks need {', '.join(names)}, which `callpact libs add {wanted}` builds"


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thawed(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, tuple | list):
        return [_thawed(item) for item in cast("Sequence[Any]", value)]
    return value
