"""`@tool` marks a function as a tool and changes nothing about it.

Apart from `function.py`, so that `from callpact import tool` brings no pydantic.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast, overload

from callpact.errors import InvalidTool
from callpact.tool import OPEN, Access, InputPolicy, Kind, Policy

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__callpact_tool__"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """What `@tool(...)` says of a function; left on it as a marker."""

    namespace: str | None = None
    name: str | None = None
    title: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    version: str | None = None
    kind: Kind | None = None
    """None for what the function is: a subscription if it yields, else a mutation."""
    access: Access = OPEN
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    policy: Policy | None = None
    input_policy: InputPolicy = "exact"


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
        access=access if isinstance(access, Access) else Access(cast("Any", access)),
        annotations=dict(annotations or {}),
        policy=policy,
        input_policy=input_policy,
    )
    mark = functools.partial(_marked, options)
    return mark if function is None else mark(function)


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
    """What `tool` said of a function, or None if it is not marked."""
    options = getattr(given, _MARK, None)
    return options if isinstance(options, ToolOptions) else None
