"""The types that all sources share: `Source`, `Opening`, the loaded `Tools` and their `Finding`s."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from callpact.resources import Prompt, Resource
from callpact.secrets.keys import Secrets
from callpact.sources.credentials import CallerCredential, OAuthClient
from callpact.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable


UNREAD = ("__pycache__", "node_modules", ".git", ".venv", "venv")
"""Folders without a project's own files."""
Severity = Literal["info", "warning", "error"]
PinMode = Literal["off", "warn", "block"]


class Finding(Struct, frozen=True):
    """One finding about a declaration, in the load report and in `callpact check`.

    `place` is the file or function. Findings of FlowMCP rules also have a `code`, a `path` (a JSON
    Pointer), a `line` and a `column`.
    """

    place: str
    severity: Severity
    message: str
    code: str = ""
    path: str = ""
    line: int | None = None
    column: int | None = None
    is_left_out: bool = False
    """True if the place is not loaded at all, although there is no error."""

    @property
    def is_failure(self) -> bool:
        """True if tools are missing that should be there: an error, or a server that is down.

        A file that is left out by a rule has the code of the rule.
        """
        return self.severity == "error" or (self.is_left_out and not self.code)


def nearest_name(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, else the first ones."""
    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; there are {', '.join(names[:10])}" if names else "; there are none"


class Tools(list[Tool]):
    """A list of tools, with the findings of loading, and the resources and prompts."""

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        report: Iterable[Finding] = (),
        resources: Iterable[Resource] = (),
        prompts: Iterable[Prompt] = (),
    ) -> None:
        super().__init__(tools)
        self.report: tuple[Finding, ...] = tuple(report)
        self.resources: tuple[Resource, ...] = tuple(resources)
        self.prompts: tuple[Prompt, ...] = tuple(prompts)


class Opening(Struct, frozen=True):
    """The reference and the settings that a source is opened with."""

    ref: str
    """The reference without its kind: `shop.py` of `python:shop.py`."""
    namespace: str | None = None
    """The namespace of tools that declare none."""
    folder: Path | None = None
    """The base of relative references; None for the current directory."""
    profile: str | None = None
    lists: str | None = None
    libraries: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Private addresses that its tools may reach, by name."""
    upstreams: Mapping[str, str] = {}
    """Replacements for the roots of upstreams."""
    secrets: Secrets | None = None
    hook_hosts: tuple[str, ...] = ()
    """Hosts that its hooks may reach, besides the root of their file."""
    keys: tuple[str, ...] = ()
    """Names of the environment that it is granted, some bound to a host: `SHOP_KEY@api.x.com`."""
    hook_timeout: float | None = None
    """Seconds that one of its hooks may run; None for the default."""
    headers: Mapping[str, str] = {}
    """Headers of requests to an MCP server or an OpenAPI server; `${NAME}` is a granted key."""
    security: Mapping[str, Any] = {}
    """Credentials of an OpenAPI document, by the names of its security schemes."""
    pagination: tuple[Mapping[str, Any], ...] = ()
    """Rules for merging the pages of lists of an OpenAPI document."""
    env: Mapping[str, str] = {}
    """Variables of the process of an MCP server; `${NAME}` is a granted key."""
    callers: tuple[CallerCredential, ...] = ()
    """Credentials of single callers at an MCP server; `${NAME}` is a granted key."""
    oauth: OAuthClient | None = None
    """The OAuth client that gets tokens for an MCP server."""
    pins: PinMode = "warn"
    """The consequence of a definition that differs from its pin in `callpact.lock`."""
    server: str | None = None
    """The root that requests go to instead of the servers of an OpenAPI document."""
    ref_hosts: tuple[str, ...] = ()
    """Hosts that an OpenAPI document may refer to files of."""


class Source(Protocol):
    """Turns declarations into Tools, and owns their connections and files."""

    async def load(self) -> Tools:
        """Read the declarations; a bad one is reported and does not affect the others."""
        ...

    async def aclose(self) -> None:
        """Close connections and files."""
        ...


class Watched(Struct, frozen=True):
    """A file that a source was read from, or a folder with the files below it."""

    path: Path
    suffix: str = ""
    """The suffix of the files in a folder that are watched."""
    skips: tuple[str, ...] = ()
    """Names of folders that are skipped."""
    levels: int | None = None
    """Levels of a folder that are watched; None for all."""


@runtime_checkable
class Watchable(Protocol):
    """A source that names its files; for any other, the path of its reference is watched."""

    def watched(self) -> Iterable[Watched]:
        """The files of the last load, also of one that failed."""
        ...


@runtime_checkable
class Live(Protocol):
    """A source whose declarations change by themselves; it is loaded again, and not opened anew."""

    changed: asyncio.Event
    """Set when the declarations differ from the loaded ones; cleared by `load`."""
