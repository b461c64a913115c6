"""Every error class of callpact. `codes.py` has the code and the wire forms of each call error.

CallpactError
├─ DeclarationError      the author's mistake, found at load
│  ├─ InvalidSchema      a JSON Schema that cannot be compiled
│  ├─ InvalidTool        a Tool, function or property block that cannot be declared
│  ├─ InvalidManifest    a FlowMCP file that cannot be read, with the line
│  ├─ SourceRefused      a source that cannot be found or read
│  ├─ InvalidConfig      a configuration file that cannot be used
│  ├─ DuplicateTool      two tools under one name
│  └─ Unexpressible      a keyword of a schema that generated code cannot express
├─ CallError             during a call; the only kind that a caller sees
│  ├─ UnknownTool
│  ├─ Rejected           stopped at a gate: AccessDenied · NotConfirmed · InvalidInput · NotAllowed
│  ├─ PauseAsked         the tool waits for an answer from outside; the run that called it pauses
│  ├─ ToolError          raised by handlers, with a code of their own
│  ├─ Failed             broke while running: UpstreamError · Timeout (Silent: a subscription that
│  │                     sent nothing) · Aborted · CodeOutdated · NotRecorded ·
│  │                     ClientUnable · HandlerCrashed
│  └─ OutputRejected     the output broke the contract: NotJson (neither JSON nor bytes)
├─ CastError             a value that `cast` cannot fit to its schema
├─ InvalidEvent          a message on the bus that is not an event of the call protocol
├─ Unreadable            a text whose JSON is missing, or cannot be read without guessing
│                        (also a ValueError)
├─ OutputSchemaError     an agent's answer that breaks its contract, in one of two stages
├─ RunStopped            an agent's run that ended without an answer: LimitReached · RunPaused (a
│                        typed value was requested, and the run waits) · ReliabilityFailFastError
│                        (the rules gave up)
├─ ModelError            a model that could not be asked, or gave no usable reply: CircuitOpen
└─ UsageError            wrong use of the API (also a RuntimeError): NotAnEnvelope (also a TypeError)

Errors are data: raised inside, rendered once, at the edge. This module imports `codes` alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from callpact.codes import CODES, OWN_CODE, Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "Aborted",
    "AccessDenied",
    "CallError",
    "CallpactError",
    "CastError",
    "CircuitOpen",
    "ClientUnable",
    "CodeOutdated",
    "DeclarationError",
    "DuplicateTool",
    "Failed",
    "HandlerCrashed",
    "InvalidConfig",
    "InvalidEvent",
    "InvalidInput",
    "InvalidManifest",
    "InvalidSchema",
    "InvalidTool",
    "Issue",
    "LimitReached",
    "ModelError",
    "NotAllowed",
    "NotAnEnvelope",
    "NotConfirmed",
    "NotJson",
    "NotRecorded",
    "OutputRejected",
    "OutputSchemaError",
    "PauseAsked",
    "Rejected",
    "ReliabilityFailFastError",
    "RunPaused",
    "RunStopped",
    "Silent",
    "SourceRefused",
    "Timeout",
    "ToolError",
    "Unexpressible",
    "UnknownTool",
    "Unreadable",
    "UpstreamError",
    "UsageError",
]


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


class Unexpressible(DeclarationError):
    """A keyword of a tool's schema that the language of generated code cannot express."""

    def __init__(self, tool: str, side: str, keyword: str, reason: str) -> None:
        super().__init__(tool, side, keyword, reason)
        self.tool = tool
        self.side = side
        self.keyword = keyword
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.tool}: '{self.keyword}' in the {self.side} schema: {self.reason}"


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
        # The constructors differ; the attributes hold the whole state.
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
    """An error whose issues are formatted when they are first read.

    A rejection on the hot path costs one pass of the validator, without messages and hints.
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
        _ = self.issues  # A pickle holds the issues, not the function that makes them.
        return super().__reduce__()


class InvalidInput(_Judged, Rejected):
    """The arguments break the tool's input schema; `issues` holds every violation."""

    def __init__(self, issues: Callable[[], Iterable[Issue]]) -> None:
        super().__init__("schema_validation_failed", issues)


class PauseAsked(CallError):
    """A tool asked a question that is answered later; the agent that called it pauses."""

    question: Any = None  # An error of another process has neither.
    state: Any = None

    def __init__(self, question: Any, state: Any = None) -> None:
        super().__init__("paused", "The tool waits for an answer; the run goes on with resume")
        self.question = question
        self.state = state


class ToolError(CallError):
    """Raised by a handler for a rule that no schema can express, with a code of its own."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        path: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        # Handlers often pass a caught exception; every wire carries text.
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


class CodeOutdated(Failed):
    """The published contract admits the arguments, and the running code does not take them."""

    def __init__(self, tool: str, published: str, reason: str) -> None:
        message = (
            f"'{tool}' is served under the contract of {published}, and its running code does not "
            f"take this input: {reason}. Nothing was run"
        )
        super().__init__("code_outdated", message)


class NotRecorded(Failed):
    """The record of a call cannot be written, and no call may be answered without one."""

    def __init__(self, *, is_begun: bool) -> None:
        what = "its answer is kept back" if is_begun else "nothing was run"
        super().__init__("not_recorded", f"The call cannot be put on record; {what}")


class ClientUnable(Failed):
    """The tool had to ask its client, which cannot be asked or did not answer."""

    missing: str | None = None
    """The capability that the client lacks: `elicitation`, `sampling` or `roots`."""

    def __init__(self, message: str, missing: str | None = None) -> None:
        super().__init__("client_unable", message)
        self.missing = missing


class HandlerCrashed(Failed):
    """The handler raised an exception other than `CallError`; its text is only in the log."""

    def __init__(self, tool: str) -> None:
        super().__init__("handler_error", f"'{tool}' failed unexpectedly; the error was logged")


class OutputRejected(_Judged):
    """The handler's output breaks the output schema and is not delivered."""

    def __init__(self, issues: Callable[[], Iterable[Issue]]) -> None:
        super().__init__("output_validation_failed", issues)


class NotJson(OutputRejected):
    """The handler returned a value that is neither JSON nor bytes."""


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
    "idempotency_key_invalid": Rejected,
    "idempotency_key_reused": Rejected,
    "idempotency_key_in_use": Rejected,
    "idempotency_answer_unavailable": Rejected,
    "idempotency_not_recorded": Failed,
    "aborted": Aborted,
    "code_outdated": CodeOutdated,
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
    """An error that another process sent, in the class that it names, or the class of its code."""
    kind = kind or class_of(code)
    error = kind.__new__(kind)
    CallError.__init__(error, code, message, path=path, issues=issues, details=details)
    return error


class CastError(CallpactError):
    """`cast` cannot make a value for this schema (a pattern, `not`, `contains`, …)."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message, path)
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return f"cannot cast{f' at {self.path}' if self.path else ''}: {self.message}"


class InvalidEvent(CallpactError):
    """A message that is not an event of the call protocol; `issues` says why.

    `request_id` and `type` are those of the message, where they can be read.
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


_CONTEXT = 40
"""Characters before and after an offset that are shown as its context."""


class Unreadable(CallpactError, ValueError):
    """A text whose JSON is missing, or cannot be read without guessing.

    `code` names the problem, or the lossy repair that was not allowed; `at` is the offset of the
    character.
    """

    def __init__(self, code: str, message: str, text: str, at: int) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.at = min(at, len(text))
        self._text = text

    @property
    def line(self) -> int:
        """The line of the character, from 1."""
        return self._text.count("\n", 0, self.at) + 1

    @property
    def context(self) -> str:
        """The text around the character, in lower case and with single spaces."""
        begin, end = max(self.at - _CONTEXT, 0), self.at + _CONTEXT
        return " ".join(self._text[begin:end].lower().split())

    @property
    def column(self) -> int:
        """The column of the character, from 1."""
        return self.at - self._text.rfind("\n", 0, self.at)

    def __str__(self) -> str:
        return f"{self.message} (line {self.line}, column {self.column})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Unreadable, (self.code, self.message, self._text, self.at))


class OutputSchemaError(CallpactError):
    """An agent's final answer that breaks its contract.

    `stage` is `json-parse` or `schema-validate`, `raw_output` the whole answer as the model wrote
    it, `cause` the reader's or the validator's own error, `issues` its violations, `path` the place
    of the first. `account` is the cost of the run, if there was one.
    """

    code = "ERR_OUTPUT_SCHEMA"

    def __init__(
        self,
        stage: Literal["json-parse", "schema-validate"],
        raw_output: str,
        cause: BaseException,
        issues: Iterable[Issue] = (),
    ) -> None:
        super().__init__(stage, raw_output, cause)
        self.stage: Literal["json-parse", "schema-validate"] = stage
        self.raw_output = raw_output
        self.cause = cause
        self.issues = tuple(issues)
        self.account: Any = None
        self.__cause__ = cause

    @property
    def message(self) -> str:
        """A fixed sentence for each stage, and one for an answer that is cut off."""
        return _TRUNCATED if self.is_truncated else _STAGES[self.stage]

    @property
    def is_truncated(self) -> bool:
        """True if the answer ends before its JSON is complete."""
        return isinstance(self.cause, Unreadable) and self.cause.code == "truncated"

    @property
    def error(self) -> str:
        """The text of the cause."""
        return str(self.cause) or type(self.cause).__name__

    @property
    def path(self) -> str | None:
        """JSON Pointer to the first issue, or None when the failure has no place."""
        return self.issues[0].path if self.issues else None

    @property
    def reason(self) -> str:
        """The message with the first issue."""
        said = self.issues[0].message if self.issues else self.error
        more = f"; and {len(self.issues) - 1} more" if len(self.issues) > 1 else ""
        return f"{self.message}: {said:.300}{more}"

    def __str__(self) -> str:
        found = self.cause.code if isinstance(self.cause, Unreadable) else self.stage
        return f"{self.reason}; {_REMEDIES.get(found) or _REMEDIES['other']}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.stage, self.raw_output, self.cause, self.issues))


_TRUNCATED = "The answer is truncated"
_STAGES = {
    "json-parse": "The answer is not JSON",
    "schema-validate": "The answer is JSON, but breaks its schema",
}
_REMEDIES = {
    "not_json": "raw_output has it whole; tighten the instruction, read it with repair='safe', "
    "or add retries or a fallback",
    "truncated": "raw_output has what came",
    "schema-validate": "cause has the validator's error, raw_output the answer",
    "other": "raw_output has it whole; tighten the instruction, or add retries or a fallback",
}


class RunStopped(CallpactError):
    """An agent's run that ended without an answer; `account` is its cost until then."""

    code = "ERR_STOPPED"
    account: Any = None


class LimitReached(RunStopped):
    """A run that reached one of its limits: `limit` is iterations, tokens, cost or seconds."""

    code = "ERR_LIMIT_REACHED"

    def __init__(self, limit: str, allowed: float, account: Any = None) -> None:
        super().__init__(limit, allowed)
        self.limit = limit
        self.allowed = allowed
        self.account = account

    def __str__(self) -> str:
        return (
            f"the run was stopped at its limit of {self.allowed:g} {self.limit}, before there was an "
            f"answer; .limits({self.limit}=…) sets another"
        )


class RunPaused(RunStopped):
    """A run for a typed value that paused; `paused` has the question and the checkpoint."""

    code = "ERR_PAUSED"

    def __init__(self, paused: Any) -> None:
        super().__init__(paused)
        self.paused = paused
        self.account = paused.account

    def __str__(self) -> str:
        return (
            "the run paused, and there is no typed value yet; answer paused.question with "
            "resume(paused.checkpoint, answer), then parse_output(…)"
        )


class ReliabilityFailFastError(RunStopped):
    """The rules of `.reliability(…)` gave up. `kind` says why; `cause` is the last error."""

    code = "ERR_RELIABILITY_FAIL_FAST"

    def __init__(
        self,
        kind: str,
        *,
        phase: Literal["pre-check", "post-decide"] = "post-decide",
        label: str | None = None,
        cause: BaseException | None = None,
        payload: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(kind)
        self.kind = kind
        self.phase = phase
        self.label = label or kind
        self.cause = cause
        self.payload = dict(payload or {})
        self.__cause__ = cause

    @property
    def reason(self) -> str:
        """The phase and the text of the rule."""
        return f"reliability-{self.phase}: {self.label}"

    def __str__(self) -> str:
        why = f": {self.cause}" if self.cause is not None else ""
        return f"{self.reason} ({self.kind}){why:.500}"


class ModelError(CallpactError):
    """A model that could not be reached, or answered with an error; `status` is HTTP's, if any.

    `retry_after` is the number of seconds to wait before the next request, if the model sent one.
    """

    code = "ERR_MODEL"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        transient: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.transient = transient
        is_time = retry_after is not None and math.isfinite(retry_after) and retry_after >= 0
        self.retry_after = retry_after if is_time else None


class CircuitOpen(ModelError):
    """No request was sent to the model, because too many of the last ones failed."""

    def __init__(self, provider: str, seconds: float) -> None:
        super().__init__(f"'{provider}' failed too often; it is asked again in {seconds:.0f} s")


class UsageError(CallpactError, RuntimeError):
    """callpact was called in a way that cannot work."""


class NotAnEnvelope(UsageError, TypeError):
    """A raw value where the call protocol carries envelopes only."""
