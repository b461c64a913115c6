"""What loading gives: tools, and what happened to each declaration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from msgspec import Struct

from callpact.resources import Prompt, Resource
from callpact.secrets import Secrets
from callpact.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable


Severity = Literal["info", "warning", "error"]


class Finding(Struct, frozen=True):
    """One remark of the load report: about what, how bad, and what to do.

    `place` is the file or function; `code`, `path` (a JSON Pointer), `line` and `column` say more
    where there is more to say.
    """

    place: str
    severity: Severity
    message: str
    code: str = ""
    path: str = ""
    line: int | None = None
    column: int | None = None
    is_left_out: bool = False
    """Nothing of the place is loaded, though it is not wrong."""


class Tools(list[Tool]):
    """A plain list of tools, with the report of how they were loaded and what came beside them."""

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
    """What a kind of source is given to open one: where it is, and what its table says of it."""

    ref: str
    """The reference behind its kind: `shop.py` of `python:shop.py`."""
    namespace: str | None = None
    """For tools that have none of their own."""
    folder: Path | None = None
    """Where relative references start; the current directory if it is None."""
    profile: str | None = None
    lists: str | None = None
    libraries: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Private addresses that its tools may reach, by name."""
    upstreams: Mapping[str, str] = {}
    """Roots of upstreams that stand for others."""
    secrets: Secrets | None = None
    hook_hosts: tuple[str, ...] = ()
    """Hosts that its hooks may reach beside the one that their file names."""
    keys: tuple[str, ...] = ()
    """Names of the environment that it is granted, some bound to a host: `SHOP_KEY@api.x.com`."""
    hook_timeout: float | None = None
    """Seconds that one of its hooks may run; None for the default."""


class Source(Protocol):
    """Turns declarations into Tools, and holds what they need while they can be called."""

    async def load(self) -> Tools:
        """Read the declarations. One bad declaration never takes the others down."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and files."""
        ...


class Watched(Struct, frozen=True):
    """A file that a source was read from, or a folder with the files below it."""

    path: Path
    suffix: str = ""
    """How the names of those files in a folder end that count."""
    skips: tuple[str, ...] = ()
    """Names of folders in a folder that are not looked into."""
    levels: int | None = None
    """How many levels of a folder are looked at; all, if it is None."""


@runtime_checkable
class Watchable(Protocol):
    """A source that says what it is read from; of any other it is what its reference names."""

    def watched(self) -> Iterable[Watched]:
        """What the last loading read, or would have read if it had not failed."""
        ...
