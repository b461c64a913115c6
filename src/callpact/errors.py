"""Every error of callpact; what each is called on each wire stands in `codes.py`.

CallpactError
├─ DeclarationError      the author's fault, at load
│  ├─ InvalidSchema      a JSON Schema that cannot be compiled
│  ├─ InvalidTool        a Tool, function or property block that cannot be declared so
│  ├─ InvalidManifest    a FlowMCP file that cannot be read, with the line
│  ├─ DuplicateTool      two tools under one name
│  ├─ SourceRefused      a source that cannot be read
│  └─ InvalidConfig      a configuration file that cannot be used
├─ CallError             at call; the only kind a caller sees
│  ├─ UnknownTool
│  ├─ Rejected           stopped at a gate: AccessDenied · NotConfirmed · InvalidInput · NotAllowed
│  ├─ PauseAsked         the tool waits for an answer from outside; the run that called it pauses
│  ├─ ToolError          raised by handlers, with a code of their own
│  ├─ Failed             broke while running: UpstreamError · Timeout (Silent: a subscription that
│  │                     sent nothing) · Aborted · NotRecorded ·
│  │                     ClientUnable · HandlerCrashed
│  └─ OutputRejected     the answer broke the contract: NotJson (neither JSON nor bytes)
├─ CastError             a value that `cast` cannot fit to its schema
├─ InvalidEvent          a message on the bus that is no event of the call protocol
└─ UsageError            wrong use of our API (also a RuntimeError): NotAnEnvelope (a TypeError, too)

What an agent's run can end with stands apart, in `answer/errors.py`. It is not a place for behaviour:
errors are data, raised inside and rendered once, at the edge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from callpact.codes import CODES, OWN_CODE, Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class Issue(Struct, frozen=True, gc=False, omit_defaults=True):
    """One violation: the rule that was broken (`code`), where (`path`, a JSON Pointer), and how."""

    code: str
    message: str
    path: str = ""
    expected: Any = None
    received: Any = None
    hint: str | None = None


class CallpactError(Exception):
    """Root of everything that callpact raises."""


class DeclarationError(CallpactError):
    """A declaration that cannot be used; raised while loading, never during a call."""


class InvalidSchema(DeclarationError):
    """A JSON Schema that cannot be compiled, and where it is wrong."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message, path)
        self.message = message
        self.path = path

    def __str__(self) -> str:
        where = f" at {self.path}" if self.path else ""
        return f"invalid JSON Schema{where}: {self.message}"


class InvalidTool(DeclarationError):
    """A tool that cannot be declared as it is written."""


class InvalidManifest(DeclarationError):
    """A FlowMCP file that cannot be read as data, with the line and column where that shows."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message, line, column)
        self.message = message
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"


class SourceRefused(DeclarationError):
    """A source that cannot be found or read."""


class InvalidConfig(DeclarationError):
    """A configuration file, or a line of it, that cannot be used."""


class DuplicateTool(DeclarationError):
    """Two tools claim one name; both sources are named."""

    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(name, first, second)
        self.name = name

    def __str__(self) -> str:
        name, first, second = self.args
        return (
            f"two tools are called '{name}': one from {first}, one from {second}; "
            "rename one of them, or give one source another namespace"
        )


class CallError(CallpactError):
    """A call that did not give a result: `code`, `message`, `path` and all `issues`."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        path: str | None = None,
        issues: Iterable[Issue] = (),
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self._message = message
        self._path = path
        self._issues = tuple(issues)
        self.details = dict(details) if details else {}

    @property
    def message(self) -> str:
        """One sentence for the reader: what was expected, what came."""
        return self._message

    @property
    def path(self) -> str | None:
        """JSON Pointer to the place, or None when the failure has no place."""
        return self._path

    @property
    def issues(self) -> tuple[Issue, ...]:
        """All violations, the best first; empty where the failure is not one of a schema."""
        return self._issues

    @property
    def row(self) -> Code:
        """This error's row in the table of codes."""
        return CODES.get(self.code, OWN_CODE)

    def __str__(self) -> str:
        where = f" (at {self.path})" if self.path else ""
        hint = self.issues[0].hint if self.issues else None
        more = f"; and {len(self.issues) - 1} more" if len(self.issues) > 1 else ""
        return f"{self.code}: {self.message}{where}{f'; {hint}' if hint else ''}{more}"

    def __repr__(self) -> str:
        where = f", path={self.path!r}" if self.path else ""
        return f"{type(self).__name__}({self.code!r}, {self.message!r}{where})"

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructors differ; what an error is stands in its attributes.
        return (_rebuilt, (type(self), self.args, self.__dict__))

    def _state(self) -> tuple[Any, ...]:
        return (type(self), self.code, self.message, self.path, self.issues, self.details)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallError) and self._state() == other._state()

    def __hash__(self) -> int:
        return hash((type(self), self.code, self.message, self.path))


def _rebuilt(kind: type[CallError], args: tuple[Any, ...], state: dict[str, Any]) -> CallError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class UnknownTool(CallError):
    """No tool has this name; the nearest names are suggested."""

    def __init__(self, name: str, nearest: Iterable[str] = ()) -> None:
        near = ", ".join(f"'{n}'" for n in nearest)
        hint = f"; did you mean {near}?" if near else ""
        super().__init__("tool_not_found", f"There is no tool '{name}'{hint}")
        self.details = {"operationId": name}


class Rejected(CallError):
    """The call was stopped at a gate; nothing was run."""


class AccessDenied(Rejected):
    """The caller may not use this tool."""

    def __init__(
        self,
        message: str = "You may not use this tool",
        *,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__("access_denied", message, details=details)


class NotConfirmed(Rejected):
    """The user was asked before a tool that can destroy something, and did not agree."""

    def __init__(self, tool: str, message: str) -> None:
        super().__init__("not_confirmed", f"'{tool}' was not run: {message}")


class NotAllowed(Rejected):
    """A component that the palette or the slot does not take."""


class _Judged(CallError):
    """An error made of issues that are written only when somebody reads them.

    A rejection on the hot path costs one pass of the validator; messages and hints come later.
    """

    _make: Callable[[], Iterable[Issue]] | None = None

    def __init__(self, code: str, issues: Callable[[], Iterable[Issue]]) -> None:
        super().__init__(code, "")
        self._make = issues

    @property
    def issues(self) -> tuple[Issue, ...]:
        if self._make is not None:
            self._issues = tuple(self._make())
            self._make = None
        return self._issues

    @property
    def message(self) -> str:
        if self._message:
            return self._message
        return self.issues[0].message if self.issues else self.row.meaning

    @property
    def path(self) -> str | None:
        if self._path is not None:
            return self._path
        return self.issues[0].path if self.issues else ""

    def __reduce__(self) -> tuple[Any, ...]:
        _ = self.issues  # They must be written before they can be sent.
        return super().__reduce__()


class InvalidInput(_Judged, Rejected):
    """The arguments break the tool's input schema; `issues` holds every violation."""

    def __init__(self, issues: Callable[[], Iterable[Issue]]) -> None:
        super().__init__("schema_validation_failed", issues)


class PauseAsked(CallError):
    """A tool asked a question that somebody answers later; the agent that called it pauses."""

    question: Any = None  # An error of another process has neither.
    state: Any = None

    def __init__(self, question: Any, state: Any = None) -> None:
        super().__init__("paused", "The tool waits for an answer; the run goes on with resume")
        self.question = question
        self.state = state


class ToolError(CallError):
    """Raised by a handler for a rule that a schema cannot say, with a code of its own."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        path: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        # Handlers pass what they have, often a caught exception: on every wire it is text.
        super().__init__(_text(code), _text(message), path=path, details=details)


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value)


class Failed(CallError):
    """The call was admitted and broke while it ran."""


class UpstreamError(Failed):
    """The upstream could not be reached or answered with an error; `details` holds the status."""

    def __init__(self, message: str, *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__("upstream_error", message, details=details)


class Timeout(Failed):
    """The deadline passed before the handler ended, or before it could begin."""

    def __init__(self, tool: str, deadline: float, *, begun: bool = True) -> None:
        message = f"'{tool}' did not answer before its deadline"
        if not begun:
            message = f"The deadline was over before '{tool}' could begin; nothing was run"
        super().__init__("timeout", message, details={"deadline": deadline})


class Silent(Timeout):
    """A subscription sent nothing for as long as its subscriber was ready to wait."""

    def __init__(self, tool: str, idle_timeout: float) -> None:
        message = f"'{tool}' sent nothing for {idle_timeout:g} ms"
        Failed.__init__(self, "timeout", message, details={"idleTimeout": idle_timeout})


class Aborted(Failed):
    """The call was cancelled."""

    def __init__(self, tool: str) -> None:
        super().__init__("aborted", f"The call of '{tool}' was cancelled")


class NotRecorded(Failed):
    """The record of a call cannot be written, and no call may be answered without one."""

    def __init__(self, *, is_begun: bool) -> None:
        what = "its answer is kept back" if is_begun else "nothing was run"
        super().__init__("not_recorded", f"The call cannot be put on record; {what}")


class ClientUnable(Failed):
    """The tool had to ask its client, which cannot be asked or did not answer."""

    missing: str | None = None
    """What the client would have to be able to do: `elicitation`, `sampling` or `roots`."""

    def __init__(self, message: str, missing: str | None = None) -> None:
        super().__init__("client_unable", message)
        self.missing = missing


class HandlerCrashed(Failed):
    """The handler raised something it did not declare; its text stays in the log."""

    def __init__(self, tool: str) -> None:
        super().__init__("handler_error", f"'{tool}' failed unexpectedly; the error was logged")


class OutputRejected(_Judged):
    """The handler's answer breaks the output schema and is not delivered."""

    def __init__(self, issues: Callable[[], Iterable[Issue]]) -> None:
        super().__init__("output_validation_failed", issues)


class NotJson(OutputRejected):
    """The handler returned something that can be neither JSON nor bytes."""


_CLASSES: dict[str, type[CallError]] = {
    "schema_validation_failed": InvalidInput,
    "component_not_on_palette": NotAllowed,
    "component_not_allowed": NotAllowed,
    "access_denied": AccessDenied,
    "not_confirmed": NotConfirmed,
    "tool_not_found": UnknownTool,
    "tool_error": CallError,
    "address_not_allowed": Failed,
    "upstream_error": UpstreamError,
    "server_param_missing": Failed,
    "output_validation_failed": OutputRejected,
    "timeout": Timeout,
    "client_unable": ClientUnable,
    "overloaded": Failed,
    "aborted": Aborted,
    "not_recorded": NotRecorded,
    "paused": PauseAsked,
    "handler_error": HandlerCrashed,
}


def class_of(code: str) -> type[CallError]:
    """The class of errors with this code; a tool's own code is a `ToolError`'s."""
    return _CLASSES.get(code, ToolError)


def restored(
    code: str,
    message: str,
    *,
    path: str | None = None,
    issues: Iterable[Issue] = (),
    details: Mapping[str, Any] | None = None,
    kind: type[CallError] | None = None,
) -> CallError:
    """An error that another process sent, in the class that it names or its code stands for."""
    kind = kind or class_of(code)
    error = kind.__new__(kind)
    CallError.__init__(error, code, message, path=path, issues=issues, details=details)
    return error


class CastError(CallpactError):
    """`cast` has no value to offer for this schema (a pattern, `not`, `contains`, …)."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message, path)
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return f"cannot cast{f' at {self.path}' if self.path else ''}: {self.message}"


class InvalidEvent(CallpactError):
    """A message that is no event of the call protocol; `issues` says why.

    `request_id` is the call that it speaks of and `type` what it says it is, where that much can
    be read.
    """

    def __init__(
        self, issues: Iterable[Issue], request_id: str | None = None, type: str | None = None
    ) -> None:
        self.issues = tuple(issues)
        self.request_id = request_id
        self.type = type
        super().__init__(
            "; ".join(f"{i.message}{f' (at {i.path})' if i.path else ''}" for i in self.issues[:3])
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (InvalidEvent, (self.issues, self.request_id, self.type))

    def __str__(self) -> str:
        more = f"; and {len(self.issues) - 3} more" if len(self.issues) > 3 else ""
        return f"not an event of the call protocol: {self.args[0]}{more}"


class UsageError(CallpactError, RuntimeError):
    """callpact was called in a way that cannot work."""


class NotAnEnvelope(UsageError, TypeError):
    """A raw value where the call protocol carries envelopes only."""
