"""The entries of a catalog beside tools: `Resource`, to be read, and `Prompt`, to be filled in.

Each wraps a Tool whose input are the variables of the address or the arguments of the prompt and
whose output is the content, so the gates, access, deadlines and records of tools apply to them.
Declarations only; nothing here runs one.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, cast
from urllib.parse import quote, unquote

from msgspec import Struct

from callpact.context import Identity
from callpact.errors import InvalidTool
from callpact.schema import is_object
from callpact.tool import Tool

NO_RESOURCE = "no_resource"
"""The code of a `ToolError` that the tool of a template raises if an address has no resource."""
MAX_URI_LENGTH = 2_000
"""Characters that the address of a resource may have."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]+")
_VARIABLE = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")
_ONE = "[^/?#&]+"
_MANY = ".+"
_UNDIVIDED = re.compile(r"\}[^/?#&]*\{")

Completer = Callable[[str, Mapping[str, str]], Iterable[str] | Awaitable[Iterable[str]]]


@dataclass(frozen=True, slots=True)
class CallerCompleter:
    """A function of the text so far, the other arguments, and the caller."""

    complete: Callable[[str, Mapping[str, str], Identity | None], Awaitable[Iterable[str]]]


Completion = Iterable[str] | Completer | CallerCompleter
"""Values to choose from, or a function of the text so far and the other arguments."""

Follow = Callable[[str, Callable[[], None]], Awaitable[Callable[[], None]]]
"""Calls a function at each change of the content at an address; returns a function that ends it."""


class PromptArgument(Struct, frozen=True):
    """One argument of a prompt."""

    name: str
    description: str
    is_required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Content under an address. `uri` may be a template: `docs://{page}`, or `{+path}` for many parts.

    The tool's input are the variables of the template; its answer is text, bytes or JSON.

    Raises:
        InvalidTool: the address cannot be used, or its variables are not the tool's input.
    """

    uri: str
    tool: Tool
    mime_type: str | None = None
    size: int | None = None
    completions: Mapping[str, Completion] = field(default_factory=dict[str, Completion])
    follow: Follow | None = None
    """Follows changes of the content; None if they are only noticed with a reload."""
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(cast("Any", self.uri), str) or not _SCHEME.fullmatch(self.uri):
            raise InvalidTool(
                f"resource '{self.tool.id}': an address is a URI with a scheme, as in "
                f"docs://{{page}}, got {self.uri!r:.100}"
            )
        if len(self.uri) > MAX_URI_LENGTH:
            raise self._wrong(f"its address has more than {MAX_URI_LENGTH:,} characters")
        names = self.variables
        if "{" in _VARIABLE.sub("", self.uri) or "}" in _VARIABLE.sub("", self.uri):
            raise self._wrong(f"variables are written {{name}} or {{+name}}, got {self.uri!r}")
        if len(set(names)) < len(names):
            raise self._wrong(f"a variable occurs twice in {self.uri!r}")
        # Otherwise an address could match in many ways, and matching takes exponential time.
        if _UNDIVIDED.search(self.uri) or self.uri.count("{+") > 1:
            raise self._wrong(
                f"'/', '?', '#' or '&' must be between two variables, and at most one {{+name}} "
                f"in an address, got {self.uri!r}"
            )
        taken, needed = _input(self.tool)
        if not set(names) <= set(taken) or not needed <= set(names):
            raise self._wrong(
                f"its address has the variables {_listed(names)}, but it takes {_listed(taken)}"
            )
        object.__setattr__(self, "completions", _completions(self.tool, self.completions, names))
        object.__setattr__(self, "_pattern", _pattern(self.uri))

    def _wrong(self, text: str) -> InvalidTool:
        return InvalidTool(f"resource '{self.tool.id}': {text}")

    @property
    def variables(self) -> tuple[str, ...]:
        """The names in the address; empty for a fixed address."""
        return tuple(name for _, name in _VARIABLE.findall(self.uri))

    @property
    def is_template(self) -> bool:
        """True if the address has variables."""
        return bool(self.variables)

    def match(self, uri: str) -> dict[str, str] | None:
        """The values of the variables in an address; None if the address does not match.

        An address with a value that could leave a folder, such as `..` or `/etc`, never matches.
        """
        if len(uri) > MAX_URI_LENGTH:
            return None
        found = self._pattern.fullmatch(uri)
        if found is None:
            return None
        values = {name: unquote(value) for name, value in found.groupdict().items()}
        return None if any(map(_leads_out, values.values())) else values

    def address(self, values: Mapping[str, str]) -> str:
        """The address for these values of the variables."""

        def filled(found: re.Match[str]) -> str:
            return quote(str(values[found[2]]), safe="/" if found[1] else "")

        return _VARIABLE.sub(filled, self.uri)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Messages to start a conversation with: a text, or a list of `{"role", "content"}`.

    Raises:
        InvalidTool: a completion is for no argument.
    """

    tool: Tool
    completions: Mapping[str, Completion] = field(default_factory=dict[str, Completion])

    def __post_init__(self) -> None:
        taken = _input(self.tool)[0]
        object.__setattr__(self, "completions", _completions(self.tool, self.completions, taken))

    @property
    def arguments(self) -> tuple[PromptArgument, ...]:
        """Its arguments, in the order of its input schema."""
        taken, needed = _input(self.tool)
        return tuple(
            PromptArgument(name, str(schema.get("description", "")), name in needed)
            for name, schema in taken.items()
        )


Offer = Resource | Prompt


def completion_of(offer: Offer, name: str) -> Completion:
    """The completions of an argument or variable: as declared, else its schema's enum."""
    declared = offer.completions.get(name)
    if declared is not None:
        return declared
    schema = _input(offer.tool)[0].get(name, {})
    return tuple(value for value in schema.get("enum", ()) if isinstance(value, str))


def _input(tool: Tool) -> tuple[dict[str, dict[str, Any]], set[str]]:
    schema = tool.contract.input
    if not is_object(schema):  # `true`, or `false`.
        return {}, set()
    properties: dict[str, Any] = schema.get("properties", {})
    taken = {name: part if is_object(part) else {} for name, part in properties.items()}
    return taken, set(schema.get("required", ()))


def _completions(
    tool: Tool, completions: Mapping[str, Completion], names: Iterable[str]
) -> dict[str, Completion]:
    """The completions after a check, with iterators converted to tuples."""
    known = tuple(names)
    made: dict[str, Completion] = {}
    for name, given in completions.items():
        if name not in known:
            raise InvalidTool(f"'{tool.id}': completes '{name}', but takes {_listed(known)}")
        values = isinstance(cast("Any", given), Iterable) and not isinstance(given, str | bytes)
        if isinstance(given, CallerCompleter):
            made[name] = given
            continue
        if not values and not callable(given):
            raise InvalidTool(
                f"'{tool.id}': the completion of '{name}' must be a list of texts or a function, "
                f"got {given!r:.100}"
            )
        made[name] = given if callable(given) else tuple(cast("Iterable[str]", given))
    return made


def _pattern(uri: str) -> re.Pattern[str]:
    parts: list[str] = []
    end = 0
    for found in _VARIABLE.finditer(uri):
        parts += [
            re.escape(uri[end : found.start()]),
            f"(?P<{found[2]}>{_MANY if found[1] else _ONE})",
        ]
        end = found.end()
    return re.compile("".join([*parts, re.escape(uri[end:])]), re.DOTALL)


def _leads_out(value: str) -> bool:
    """True for a value that could make a handler open a file outside its folder."""
    parts = value.replace("\\", "/").split("/")
    return "\0" in value or ".." in parts or bool(PurePath(value).anchor)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
