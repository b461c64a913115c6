"""`Context`, which a handler gets with its arguments, and the parts of it.

`Identity` is the caller, `Env` the other tools, `Client` the program that called (doors and agents
implement it), `CallLogger` the logger. Nothing here runs a tool or speaks a protocol.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import force_setattr

from callpact.envelope import ResponseEnvelope
from callpact.errors import ClientUnable, UsageError
from callpact.secrets.sealed_token import SealedToken

__all__ = [
    "Client",
    "Context",
    "Elicited",
    "Env",
    "Identity",
    "Resumed",
    "Root",
    "Sampled",
]

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
Send = Callable[[str, Any], Awaitable[ResponseEnvelope[Any]]]
MAX_KEPT_LINES = 50
"""Log lines that are kept with one call: its first ones."""
MAX_KEPT_TEXT = 1_000
"""Characters of a log line that is kept with a call."""


class Identity(Struct, frozen=True):
    """The caller: an id, the granted scopes, and the allowed actions on resources.

    `resources` maps `type:name` to actions, as in `{"project:42": ["read"]}`.

    Raises:
        UsageError: a part has the wrong type; one text is never taken for a list of texts.
    """

    id: str
    scopes: tuple[str, ...] = ()
    resources: dict[str, tuple[str, ...]] = {}
    token: SealedToken | None = None
    """The caller's own token; only of an issuer, and only if a source exchanges it for another."""

    def __post_init__(self) -> None:
        if not isinstance(cast("Any", self.id), str):
            raise UsageError(f"an identity's id must be text, got {self.id!r:.100}")
        if self.scopes != ():
            force_setattr(self, "scopes", _granted(self.scopes, "scopes"))
        held = cast("Any", self.resources)
        if type(held) is not dict or held:
            if not isinstance(held, Mapping):
                raise UsageError(f"an identity's resources must be a mapping, got {held!r:.100}")
            pairs = cast("Mapping[str, Any]", held).items()
            force_setattr(self, "resources", {str(k): _granted(v, "resources") for k, v in pairs})


def _granted(given: Any, what: str) -> tuple[str, ...]:
    # A text is an iterable of its letters: as a list of scopes it would grant the scope "a".
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise UsageError(f"an identity's {what} must be a list of texts, got {given!r:.100}")
    granted = tuple(cast("Iterable[Any]", given))
    if not all(isinstance(item, str) for item in granted):
        raise UsageError(f"an identity's {what} must be a list of texts, got {given!r:.100}")
    return granted


class Env:
    """The tools that may be called, by attribute or by item: `env.shop.price`, `env["shop.price"]`.

    Calling the last name with arguments returns the awaitable of an envelope. Whether there is
    such a tool is checked by that call.
    """

    __slots__ = ("_path", "_send")

    def __init__(self, send: Send, path: str = "") -> None:
        self._send = send
        self._path = path

    def __getattr__(self, name: str) -> Env:
        if name.startswith(
            "_"
        ):  # Names that Python looks up itself; such tools are reached by item.
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


class Elicited(Struct, frozen=True):
    """The user's answer to a question; `data` keeps the schema of the question."""

    action: Literal["accept", "decline", "cancel"]
    data: dict[str, Any] | None = None

    @property
    def is_accepted(self) -> bool:
        """True if the user gave an answer."""
        return self.action == "accept"


class Sampled(Struct, frozen=True):
    """The reply of the client's model."""

    text: str
    """The texts of its content, joined."""
    content: tuple[dict[str, Any], ...]
    """Its blocks as they came: text, image, audio, use of a tool."""
    model: str = ""
    stop_reason: str | None = None


class Root(Struct, frozen=True):
    """A folder or file that the client works in."""

    uri: str
    name: str = ""


class Resumed(Struct, frozen=True):
    """The state that a call paused with, and the answer."""

    state: Any
    answer: Any


class Client(ABC):
    """The client of one call. A question that it cannot answer raises `ClientUnable`."""

    resumed: Resumed | None = None
    """Set if the call continues from a state that it paused with."""

    async def pause(self, question: Any, state: Any = None) -> Any:  # noqa: ARG002 - for clients that can
        """Return the answer to a question; it may come much later, in another process.

        Raises:
            PauseAsked: there is no answer yet; the caller of the tool keeps the question.
            ClientUnable: the call cannot wait that long.
        """
        raise ClientUnable(
            "the tool pauses until somebody answers, which only an agent's run can wait for; "
            "call it through an Agent, or ask with context.client.elicit"
        )

    @property
    @abstractmethod
    def can_elicit(self) -> bool:
        """True if its user can answer questions."""

    @property
    @abstractmethod
    def can_sample(self) -> bool:
        """True if its model can be used."""

    @property
    @abstractmethod
    def can_list_roots(self) -> bool:
        """True if it can list the folders that it works in."""

    @abstractmethod
    async def elicit(self, message: str, schema: Mapping[str, Any], *, key: str = "") -> Elicited:
        """Ask the user for an object that keeps a flat JSON Schema: texts, numbers, choices.

        `key` names the question for the client; questions without one are numbered. Several can
        be asked at once, with `asyncio.gather`.

        Raises:
            ClientUnable: the client has no user to ask, or the answer does not keep the schema.
            UsageError: the schema is not one that a client can show.
        """

    async def elicit_url(
        self,
        message: str,  # noqa: ARG002 - for clients that can
        url: str,  # noqa: ARG002 - as above
        *,
        elicitation_id: str = "",  # noqa: ARG002 - as above
        key: str = "",  # noqa: ARG002 - as above
    ) -> Elicited:
        """Ask the user to open an address, such as that of a payment; no data comes back.

        Raises:
            ClientUnable: the client cannot do that, or the address is not one of the web.
        """
        raise ClientUnable("the client cannot ask its user to open an address (URL elicitation)")

    async def url_elicited(self, elicitation_id: str) -> None:  # noqa: B027 - few have it
        """Notify the client that the user is done at an address, if its protocol has that."""

    @abstractmethod
    async def sample(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        system: str | None = None,
        temperature: float | None = None,
        stop: Sequence[str] = (),
        key: str = "",
    ) -> Sampled:
        """Ask the model to continue a text, or messages `{"role", "content"}`.

        Raises:
            ClientUnable: it cannot be asked, or the client refused.
        """

    @abstractmethod
    async def roots(self, *, key: str = "") -> tuple[Root, ...]:
        """Ask which folders it works in.

        Raises:
            ClientUnable: it cannot be asked.
        """

    @abstractmethod
    async def log(self, level: LogLevel, data: Any) -> None:
        """Send the client a log message during the call, if it wants messages of this level."""

    @abstractmethod
    async def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Report the progress of the call to the client, if it wants reports."""


class LogLine(Struct, frozen=True, gc=False):
    """One line that a tool logged."""

    level: str
    """info, warning, error or critical."""
    message: str


class CallLogger(logging.LoggerAdapter[logging.Logger]):
    """The logger of a tool for one call; its lines carry the ids of both."""

    def __init__(self, tool_id: str, call_id: str, kept: list[LogLine]) -> None:
        logger = logging.getLogger(f"callpact.tool.{tool_id}")
        super().__init__(logger, {"tool_id": tool_id, "call_id": call_id})
        self._kept = kept

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line, and keep it with the call."""
        if level >= logging.INFO and len(self._kept) < MAX_KEPT_LINES:
            name = logging.getLevelName(level).lower()
            self._kept.append(LogLine(name, _text(level, msg, args)[:MAX_KEPT_TEXT]))
        # One more level: the log record has the tool's line of code, not this one.
        super().log(level, msg, *args, **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Add both ids to the fields that the tool gives."""
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), **(self.extra or {})}}


def _text(level: int, msg: object, args: tuple[object, ...]) -> str:
    try:
        return logging.LogRecord("", level, "", 0, msg, args, None).getMessage()
    except Exception:  # noqa: BLE001 - boundary: whatever a tool logs, its call goes on
        return "a line that cannot be written out"


class Context(Struct, frozen=True):
    """The data and services of one call for its handler: never the secrets or the runtime itself."""

    call_id: str
    tool_id: str
    identity: Identity | None = None
    deadline: float | None = None
    """The time by which the call must end, in epoch milliseconds; None for no limit."""
    parent_id: str | None = None
    chain: tuple[str, ...] = ()
    """The tools that called one another to get here, without this one."""
    metadata: Mapping[str, Any] | None = None
    """Metadata from the caller; passed on to every call that is made through `env`."""
    client: Client | None = None
    """The client, for progress and questions; None for a call without one."""
    _open_env: Callable[..., Env] | None = None
    _call_map: Any = None
    logged: list[LogLine] = []
    """The lines that the tool has logged so far."""

    async def progress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report the progress of the call to its client; `done` grows from report to report."""
        if self.client is not None:
            await self.client.progress(done, total, message)

    async def pause(self, question: Any, *, state: Any = None) -> Any:
        """Ask a question that is answered later, perhaps in another process; returns the answer.

        The agent's run ends here and continues with `resume`: the tool is called again with the
        same arguments, and each `pause` returns its answer. With `state`, JSON data, `resumed` also
        has that state and the answer.

        Raises:
            PauseAsked: there is no answer yet; do not catch it.
            ClientUnable: no agent called the tool.
        """
        if self.client is None:
            raise ClientUnable("the tool pauses for an answer; call it through an Agent")
        return await self.client.pause(question, state)

    @property
    def resumed(self) -> Resumed | None:
        """The state that the call paused with, and the answer; None if it has not paused."""
        return None if self.client is None else self.client.resumed

    @property
    def logger(self) -> CallLogger:
        """The logger of this tool, `callpact.tool.<id>`; its first lines are kept with the call."""
        return CallLogger(self.tool_id, self.call_id, self.logged)

    @property
    def env(self) -> Env:
        """The other tools: `await context.env.namespace.name(arguments)` gives an envelope.

        Raises:
            UsageError: the handler was not called by a runtime.
        """
        if self._open_env is None:
            raise UsageError(
                f"this context of '{self.tool_id}' came from no runtime: there are no other tools; "
                "build_env(runtime) makes an env of its own"
            )
        return self._open_env(self, call_map=self._call_map)
