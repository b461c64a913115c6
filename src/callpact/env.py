"""Other tools, as a handler sees them: `await env.namespace.name(arguments)`.

It only turns names into a tool id; where the call then goes is decided by `runtime.build_env`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from callpact.envelope import ResponseEnvelope
from callpact.errors import UsageError

Send = Callable[[str, Any], Awaitable[ResponseEnvelope[Any]]]


class Env:
    """The tools that may be called, by attribute or by item: `env.shop.price`, `env["shop.price"]`.

    What the last name stands for is called like a function of its arguments and gives the
    awaitable of an envelope. Whether there is such a tool is found out by that call.
    """

    __slots__ = ("_path", "_send")

    def __init__(self, send: Send, path: str = "") -> None:
        self._send = send
        self._path = path

    def __getattr__(self, name: str) -> Env:
        if name.startswith("_"):  # What Python itself asks for; tools so named are there by item.
            raise AttributeError(f"an env has no attribute {name!r}; by item: env[{name!r}]")
        return self[name]

    def __getitem__(self, name: str) -> Env:
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance] - any key
            raise UsageError(f"tools have names, got {name!r:.100}")
        return Env(self._send, f"{self._path}.{name}" if self._path else name)

    def __iter__(self) -> Any:
        raise TypeError("an env holds every tool that may be called; it cannot be listed")

    def __call__(self, arguments: Any = None) -> Awaitable[ResponseEnvelope[Any]]:
        """Call the tool.

        Raises:
            CallError: as the call of any tool.
            UsageError: no tool was named.
        """
        if "." not in self._path:
            named = f"'{self._path}' names no tool" if self._path else "no tool was named"
            raise UsageError(f"{named}; write env.namespace.name(arguments)")
        return self._send(self._path, arguments)

    def __repr__(self) -> str:
        return f"<env {self._path or 'of tools'}>"
