"""The events of the call protocol, as seed 001 defines them.

The five `call.*` events are typed here, plain JSON on a wire (`write_event`, `read_event`), each
with its JSON Schema; a bus carries them (`bus.py`). Observers of a runtime get other events
(`observers.py`).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import msgspec
import orjson
from msgspec import Struct

from callpact import errors
from callpact.codes import CODES, OWN_CODE
from callpact.context import Identity
from callpact.envelope import RESPONSE_ENVELOPE_SCHEMA, RESPONSE_META_SCHEMA, ResponseEnvelope
from callpact.errors import (
    CallError,
    InvalidEvent,
    InvalidInput,
    Issue,
    NotJson,
    OutputRejected,
    UsageError,
    class_of,
    restored,
)
from callpact.schema import CompiledSchema, check, compile_schema, is_array, is_json
from callpact.schema.bounds import with_room
from callpact.schema.json_text import json_text, sendable
from callpact.schema.values import not_json

MAX_EVENT_BYTES = 16_000_000
"""Bytes of JSON that one event may have when it is read from a wire."""
MAX_ID_LENGTH = 200
"""Characters that a request id may have when it is read from a wire."""
MAX_CHAIN = 100
"""Tools that the chain of a request may name when it is read from a wire."""


# --- the events of the call protocol --------------------------------------------------------


class CallRequested(Struct, frozen=True, gc=False, rename="camel"):
    """A request to call a tool."""

    request_id: str
    operation_id: str
    input: Any
    parent_request_id: str | None = None
    deadline: float | None = None
    """Epoch milliseconds."""
    idle_timeout: float | None = None
    """Milliseconds of silence after which a subscriber gives up."""
    identity: Identity | None = None
    metadata: Mapping[str, Any] | None = None
    chain: tuple[str, ...] = ()
    """The tools that called one another to get here."""
    stream: bool = False
    """True for a subscription; a tool with one answer is then refused."""
    type: ClassVar[str] = "call.requested"


class CallResponded(Struct, frozen=True, gc=False, rename="camel"):
    """A tool answered; always with an envelope."""

    request_id: str
    output: ResponseEnvelope[Any]
    seq: int | None = None
    """The number of this envelope in its subscription, from 0."""
    type: ClassVar[str] = "call.responded"


class CallFailed(Struct, frozen=True, gc=False, rename="camel"):
    """A call ended in an error (`call.error`). `code` is the event code of seed 001."""

    request_id: str
    code: str
    message: str
    details: Any = None
    type: ClassVar[str] = "call.error"

    @staticmethod
    def of(request_id: str, error: CallError) -> CallFailed:
        """The event for an error; its details are converted to JSON."""
        code = error.row.event if error.row is not OWN_CODE else error.code
        code = code or "UNKNOWN_ERROR"
        return CallFailed(request_id, code, error.message, _encode_details(error, code))

    @property
    def error(self) -> CallError:
        """The error of the event, in the class of its code."""
        return _decode_error(self)


class CallAborted(Struct, frozen=True, gc=False, rename="camel"):
    """The end of a call whose caller gave up, or whose handler was cancelled."""

    request_id: str
    type: ClassVar[str] = "call.aborted"


class CallCompleted(Struct, frozen=True, gc=False, rename="camel"):
    """A subscription came to its end, after `count` envelopes."""

    request_id: str
    count: int | None = None
    type: ClassVar[str] = "call.completed"


CallEvent = CallRequested | CallResponded | CallFailed | CallAborted | CallCompleted
EVENT_TYPES = ("call.requested", "call.responded", "call.error", "call.aborted", "call.completed")


# --- errors on the bus ----------------------------------------------------------------------

_EVENT_CODES: dict[str, str] = {"UNKNOWN_ERROR": "handler_error"}
for _row in CODES.values():
    _EVENT_CODES.setdefault(_row.event, _row.code)
# Of several codes with one event code, the most general one.
_EVENT_CODES["EXECUTION_ERROR"] = "handler_error"


_OURS = "callpact"
"""The member of `details` with the fields that only callpact reads."""


def _encode_details(error: CallError, event_code: str) -> Any:
    """Issues as a list; otherwise the error's details, with fields that the event lacks."""
    issues = [_encode_issue(issue) for issue in error.issues]
    ours = _ours(error, event_code)
    if not ours and not error.details:
        return _plain(issues) or None
    if issues:
        ours["issues"] = issues
    details: dict[str, Any] = dict(error.details)
    if _OURS in details:
        ours, details = {**ours, "details": details}, {}
    return _plain({**details, _OURS: ours} if ours else details)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(sendable(value))  # Also members of enums and tuples.


def _ours(error: CallError, event_code: str) -> dict[str, Any]:
    ours: dict[str, Any] = {}
    code = _EVENT_CODES.get(event_code, event_code)
    if code != error.code:
        ours["code"] = error.code
    if type(error) is not class_of(code):
        ours["class"] = type(error).__name__
    if error.path != (error.issues[0].path if error.issues else None):
        ours["path"] = error.path
    return ours


def _encode_issue(issue: Issue) -> dict[str, Any]:
    members = {"path": issue.path, **msgspec.structs.asdict(issue)}
    return {key: value for key, value in members.items() if value is not None}


def _decode_error(event: CallFailed) -> CallError:
    code = _EVENT_CODES.get(event.code, event.code)
    given: Any = event.details
    ours: dict[str, Any] = {}
    details: dict[str, Any] = {}
    if is_array(given):
        ours = {"issues": given}
    elif isinstance(given, Mapping):
        details = dict(cast("Mapping[str, Any]", given))
        if isinstance(details.get(_OURS), Mapping):
            ours = dict(details.pop(_OURS))
    issues = _decode_issues(ours.get("issues"))
    path = ours.get("path", issues[0].path if issues else None)
    if isinstance(ours.get("details"), Mapping):
        details = dict(ours["details"])
    own = ours.get("code")
    if isinstance(own, str) and (own not in CODES or CODES[own].event == event.code):
        code = own
    return restored(
        code,
        event.message,
        path=path if isinstance(path, str) else None,
        issues=issues,
        details=details,
        kind=_NAMED.get(str(ours.get("class"))),
    )


_NAMED: dict[str, type[CallError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, CallError) and not name.startswith("_")
}


def _decode_issues(given: Any) -> tuple[Issue, ...]:
    issues: list[Issue] = []
    for item in given if is_array(given) else []:
        try:
            issues.append(msgspec.convert({"code": "invalid", **item}, Issue))
        except (TypeError, msgspec.ValidationError):
            continue  # Details in the form of another implementation; the message suffices.
    return tuple(issues)


# --- schemas and reading --------------------------------------------------------------------

_ID: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}
_NUMBER: dict[str, Any] = {"type": "number"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}

IDENTITY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": _TEXT,
        "scopes": _TEXTS,
        "resources": {"type": "object", "additionalProperties": _TEXTS},
    },
}


def _event_schema(kind: str, required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["type", "requestId", *required],
        "properties": {"type": {"const": kind}, "requestId": _ID, **required, **optional},
    }


CALL_EVENT_SCHEMAS: dict[str, dict[str, Any]] = {
    "call.requested": _event_schema(
        "call.requested",
        {"operationId": _TEXT, "input": {"description": "The arguments of the tool"}},
        parentRequestId=_ID,
        deadline=_NUMBER,
        idleTimeout={"type": "number", "exclusiveMinimum": 0},
        identity=IDENTITY_SCHEMA,
        metadata={"type": "object"},
        chain={"type": "array", "items": _TEXT, "maxItems": MAX_CHAIN},
        stream={"type": "boolean"},
    ),
    "call.responded": _event_schema(
        "call.responded", {"output": RESPONSE_ENVELOPE_SCHEMA}, seq=_COUNT
    ),
    "call.error": _event_schema(
        "call.error",
        {"code": {"type": "string", "minLength": 1}, "message": _TEXT},
        details={"description": "Any JSON"},
    ),
    "call.aborted": _event_schema("call.aborted", {}),
    "call.completed": _event_schema("call.completed", {}, count=_COUNT),
}
"""The schema of each event, by its type. Keys that a schema does not name are allowed."""

_TOO_LARGE = f"the limit is {MAX_EVENT_BYTES:,} bytes"
_compiled: dict[str, CompiledSchema] = {}


def _compile(name: str, schema: dict[str, Any]) -> CompiledSchema:
    """Compiled on first use: most processes never read an event from a wire."""
    if name not in _compiled:
        _compiled[name] = compile_schema(schema)
    return _compiled[name]


def read_event(text: bytes | bytearray | memoryview | str) -> CallEvent:
    """Read an event from JSON that came over a wire.

    Raises:
        InvalidEvent: it is too large, not JSON, or not an event; with every reason.
        UsageError: it is neither bytes nor text.
    """
    if _size(text) > MAX_EVENT_BYTES:
        raise InvalidEvent([Issue("maxLength", f"It is too large: {_TOO_LARGE}")])
    try:
        whole = text if isinstance(text, str) else bytes(text)
        wire = with_room(lambda: msgspec.json.decode(whole))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidEvent([Issue("json", f"It is not JSON: {error}")]) from None
    return decode_event(wire)


def _size(text: Any) -> int:
    if isinstance(text, str):
        return len(text.encode("utf-8", "replace"))
    if not isinstance(text, bytes | bytearray | memoryview):
        kind = type(text).__name__
        raise UsageError(f"an event is read from JSON, as bytes or text; got {kind}")
    return memoryview(cast("bytes", text)).nbytes


def decode_event(wire: Any) -> CallEvent:
    """Decode an event from plain JSON data.

    Raises:
        InvalidEvent: with every violation.
    """
    event: dict[str, Any] = dict(cast("Any", wire)) if isinstance(wire, Mapping) else {}
    kind = event.get("type")
    if not isinstance(kind, str) or kind not in EVENT_TYPES:
        came = f"'{kind[:100]}'" if isinstance(kind, str) else type(kind).__name__
        what = f"'type' must be one of {', '.join(EVENT_TYPES)}, got {came}"
        raise InvalidEvent([Issue("type", f"Event {what}", "/type")])
    issues = check(_compile(kind, CALL_EVENT_SCHEMAS[kind]), event)
    if issues:
        raise InvalidEvent(issues, _readable_id(event.get("requestId")), kind)
    return _DECODERS[kind](event)


def _readable_id(given: Any) -> str | None:
    return given if isinstance(given, str) and 0 < len(given) <= MAX_ID_LENGTH else None


def write_event(event: CallEvent) -> bytes:
    """The event as one line of JSON, without the line's end.

    Raises:
        InvalidInput, OutputRejected: the arguments or the output hold a value that JSON cannot
            express, or are too large for an event.
    """
    if isinstance(event, CallRequested):
        _check_writable(event.input, InvalidInput)
    elif isinstance(event, CallResponded):
        _check_writable(event.output.data, NotJson)
        _check_meta(event.output)
    text = _json(event)
    if len(text) <= MAX_EVENT_BYTES:
        return text
    if isinstance(event, CallFailed):  # A failure is sent without details rather than not at all.
        return _json(CallFailed(event.request_id, event.code[:100], event.message[:10_000]))
    kind = InvalidInput if isinstance(event, CallRequested) else OutputRejected
    issue = Issue("maxLength", f"An event of {len(text):,} bytes cannot be sent, {_TOO_LARGE}")
    raise kind(lambda: [issue])


def _check_writable(value: Any, kind: type[InvalidInput | NotJson]) -> None:
    if kind is NotJson and isinstance(value, bytes | bytearray | memoryview):
        return
    if not is_json(value):
        places = not_json(value)
        raise kind(lambda: places)


def _check_meta(envelope: ResponseEnvelope[Any]) -> None:
    """Refuse an incomplete meta, which a handler can make: no reader would accept it."""
    try:
        meta = msgspec.to_builtins(envelope.meta)
    except (TypeError, ValueError, RecursionError):
        issue = Issue("type", "Output meta holds what JSON cannot say", "/meta")
        raise OutputRejected(lambda: [issue]) from None
    issues = check(_compile("meta", RESPONSE_META_SCHEMA), meta)
    if issues:
        moved = [Issue(i.code, i.message, f"/meta{i.path}", i.expected, i.received) for i in issues]
        raise OutputRejected(lambda: moved)


def _json(event: CallEvent) -> bytes:
    wire = encode_event(event)
    try:
        return orjson.dumps(wire)
    except TypeError:  # Integers beyond 64 bits, and lone surrogates.
        return json_text(wire).encode()


def encode_event(event: CallEvent) -> dict[str, Any]:
    """The event as plain data, for JSON; unset fields are left out."""
    wire: dict[str, Any] = {"type": event.type}
    names, defaults = event.__struct_fields__, event.__struct_defaults__
    required = len(names) - len(defaults)
    for place, (name, key) in enumerate(zip(names, event.__struct_encode_fields__, strict=True)):
        value = getattr(event, name)
        if place < required or value is not defaults[place - required]:
            wire[key] = _ENCODERS[name](value) if name in _ENCODERS else value
    return wire


def _encode_output(envelope: ResponseEnvelope[Any]) -> dict[str, Any]:
    # With details: the other side of a bus must see which values were invented.
    return envelope.to_wire(details=bool(envelope.warnings or envelope.changes))


def _encode_identity(identity: Identity) -> dict[str, Any]:
    # Without its token, which never leaves the process.
    known = {name: getattr(identity, name) for name in IDENTITY_SCHEMA["properties"]}
    return msgspec.to_builtins(known)


_ENCODERS: dict[str, Callable[[Any], Any]] = {
    "output": _encode_output,
    "identity": _encode_identity,
    "chain": list,
    "metadata": sendable,
    "details": sendable,
}


def _requested(wire: dict[str, Any]) -> CallRequested:
    identity: Any = wire.get("identity")
    return CallRequested(
        wire["requestId"],
        wire["operationId"],
        wire["input"],
        wire.get("parentRequestId"),
        wire.get("deadline"),
        wire.get("idleTimeout"),
        identity
        and Identity(identity["id"], identity.get("scopes", ()), identity.get("resources", {})),
        wire.get("metadata"),
        tuple(wire.get("chain", ())),
        wire.get("stream", False),
    )


def _responded(wire: dict[str, Any]) -> CallResponded:
    try:
        output = ResponseEnvelope.from_wire(wire["output"])
    except UsageError as error:
        issue = Issue("output", str(error), "/output")
        raise InvalidEvent([issue], wire["requestId"], "call.responded") from None
    return CallResponded(wire["requestId"], output, wire.get("seq"))


_DECODERS: dict[str, Callable[[dict[str, Any]], CallEvent]] = {
    "call.requested": _requested,
    "call.responded": _responded,
    "call.error": lambda wire: CallFailed(
        wire["requestId"], wire["code"], wire["message"], wire.get("details")
    ),
    "call.aborted": lambda wire: CallAborted(wire["requestId"]),
    "call.completed": lambda wire: CallCompleted(wire["requestId"], wire.get("count")),
}


# --- ids ------------------------------------------------------------------------------------


def _fresh_prefix() -> str:
    digits = os.urandom(9).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-8{digits[15:18]}-"


_prefix = _fresh_prefix()
_next = itertools.count(10**11).__next__  # Twelve digits from the first to the last.


def _renew_ids() -> None:
    global _prefix  # noqa: PLW0603 - a forked process must not give the ids of its parent
    _prefix = _fresh_prefix()


os.register_at_fork(after_in_child=_renew_ids)


def new_id() -> str:
    """A unique id in the form of a UUID: a random prefix per process, and a counter."""
    return f"{_prefix}{_next()}"
