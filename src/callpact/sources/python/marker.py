"""`@tool`, `@resource` and `@prompt` mark functions without changing them.

Apart from `functions.py`, so that `from callpact import tool` does not import pydantic.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast, overload

from callpact.errors import InvalidTool
from callpact.resources import Completion
from callpact.tool import OPEN, Access, InputPolicy, Kind, Policy

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__callpact_tool__"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """The options of `@tool(...)`, an attribute of the function."""

    namespace: str | None = None
    name: str | None = None
    title: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    version: str | None = None
    kind: Kind | None = None
    """None for the default: a subscription if the function yields, otherwise a mutation."""
    access: Access = OPEN
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    policy: Policy | None = None
    input_policy: InputPolicy = "exact"
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceOptions(ToolOptions):
    """The options of `@resource(...)`."""

    uri: str
    mime_type: str | None = None
    complete: Mapping[str, Completion] = field(default_factory=dict[str, Completion])


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions(ToolOptions):
    """The options of `@prompt(...)`."""

    complete: Mapping[str, Completion] = field(default_factory=dict[str, Completion])


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    namespace: str | None = None,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    tags: Iterable[str] = (),
    aliases: Iterable[str] = (),
    version: str | None = None,
    kind: Kind | None = None,
    access: Access | Iterable[str] = OPEN,
    annotations: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    input_policy: InputPolicy = "exact",
    timeout: float | None = None,
) -> Callable[[F], F]: ...
def tool(
    function: Any = None,
    /,
    *,
    namespace: str | None = None,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    tags: Iterable[str] = (),
    aliases: Iterable[str] = (),
    version: str | None = None,
    kind: Kind | None = None,
    access: Access | Iterable[str] = OPEN,
    annotations: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    input_policy: InputPolicy = "exact",
    timeout: float | None = None,
) -> Any:
    """Mark a function as a tool; it stays callable as before.

    Raises:
        InvalidTool: `tags`, `aliases` or `access` is one text instead of a list of texts.
    """
    options = ToolOptions(
        namespace=namespace,
        name=name,
        title=title,
        description=description,
        tags=_texts(tags, "tags"),
        aliases=_texts(aliases, "aliases"),
        version=version,
        kind=kind,
        access=_access(access),
        annotations=dict(annotations or {}),
        policy=policy,
        input_policy=input_policy,
        timeout=timeout,
    )
    mark = functools.partial(_marked, options)
    return mark if function is None else mark(function)


def resource(
    uri: str,
    /,
    *,
    namespace: str | None = None,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    access: Access | Iterable[str] = OPEN,
    annotations: Mapping[str, Any] | None = None,
    complete: Mapping[str, Completion] | None = None,
    timeout: float | None = None,
) -> Callable[[F], F]:
    """Mark a function that reads a resource; its parameters are the variables of `uri`.

    It returns text, bytes or JSON. `complete` has values for variables, or a function of the text
    so far and the other variables.

    Raises:
        InvalidTool: there is no address, or `access` is one text instead of a list of texts.
    """
    if not isinstance(cast("Any", uri), str):
        raise InvalidTool(
            f'@resource takes an address, as in @resource("docs://{{page}}"), got {uri!r:.100}'
        )
    options = ResourceOptions(
        uri=uri,
        namespace=namespace,
        name=name,
        title=title,
        description=description,
        mime_type=mime_type,
        kind="query",
        access=_access(access),
        annotations=dict(annotations or {}),
        # Variables are texts, whatever the parameters are.
        input_policy="tolerant",
        complete=dict(complete or {}),
        timeout=timeout,
    )
    return functools.partial(_marked, options)


@overload
def prompt(function: F, /) -> F: ...
@overload
def prompt(
    *,
    namespace: str | None = None,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    access: Access | Iterable[str] = OPEN,
    complete: Mapping[str, Completion] | None = None,
    timeout: float | None = None,
) -> Callable[[F], F]: ...
def prompt(
    function: Any = None,
    /,
    *,
    namespace: str | None = None,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    access: Access | Iterable[str] = OPEN,
    complete: Mapping[str, Completion] | None = None,
    timeout: float | None = None,
) -> Any:
    """Mark a function as a prompt; it returns a text, or a list of messages.

    Raises:
        InvalidTool: `access` is one text instead of a list of texts.
    """
    options = PromptOptions(
        namespace=namespace,
        name=name,
        title=title,
        description=description,
        kind="query",
        access=_access(access),
        input_policy="tolerant",  # Arguments of prompts are texts on every wire.
        complete=dict(complete or {}),
        timeout=timeout,
    )
    mark = functools.partial(_marked, options)
    return mark if function is None else mark(function)


def _access(given: Access | Iterable[str]) -> Access:
    return given if isinstance(given, Access) else Access(cast("Any", given))


def _texts(given: Iterable[str], what: str) -> tuple[str, ...]:
    if isinstance(given, str):
        raise InvalidTool(f"{what} must be a list of texts, got the text {given!r}")
    return tuple(given)


def _marked(options: ToolOptions, function: Any) -> Any:
    inner: Any = function
    if isinstance(function, classmethod | staticmethod):
        inner = cast("Any", function).__func__
    try:
        setattr(inner, _MARK, options)
    except (AttributeError, TypeError):  # Bound methods and built-ins take no attributes.
        if not callable(inner):
            raise InvalidTool(f"@tool marks functions, got {type(inner).__name__}") from None
        wrapped = functools.partial(inner)
        name = getattr(inner, "__name__", None)
        vars(wrapped).update({_MARK: options} | ({} if name is None else {"__name__": name}))
        return wrapped
    return cast("Any", function)


def options_of(given: Any) -> ToolOptions | None:
    """The options of a marked function; None if it is not marked."""
    options = getattr(given, _MARK, None)
    return options if isinstance(options, ToolOptions) else None
