"""The outcome of a step of a hook, as data: a result, a failure, an effect, a log line.

Also the decoding of the guest's texts, which trusts nothing in them. The steps are made in
`realm.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import orjson
from msgspec import Struct

from callpact.sandbox.guest.machine import MODULE_NAME
from callpact.sandbox.guest.wasm import WASM_STACK_BYTES
from callpact.sandbox.hook_limits import MAX_HOOK_TIMEOUT, HookLimits
from callpact.schema.bounds import with_room

_FRAME = re.compile(rf"\b{re.escape(MODULE_NAME)}:(\d{{1,7}}):(\d{{1,7}})", re.ASCII)

# JSON.stringify escapes lone surrogates only.
_LONE_SURROGATE = re.compile(rb"((?<!\\)(?:\\\\)*)\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_OUT_OF_MEMORY = ("InternalError", "out of memory")


class Log(Struct, frozen=True, array_like=True):
    """A line that a hook wrote to the console."""

    level: str
    text: str


class Effect(Struct, frozen=True):
    """A request of a hook to the host; `data` is JSON data from the guest, unchecked."""

    id: int
    kind: str
    data: Any


class Reply(Struct, frozen=True):
    """The host's answer to an effect: JSON data, or the message of a refusal."""

    id: int
    data: Any = None
    refusal: str | None = None


class Done(Struct, frozen=True):
    """The hook's result, as JSON text."""

    data: str
    logs: tuple[Log, ...] = ()


class StepFailed(Struct, frozen=True):
    """The reason for a missing result; `line` and `column` refer to the file's text, or are 0."""

    name: str
    message: str
    line: int = 0
    column: int = 0
    logs: tuple[Log, ...] = ()


class _Thrown(Struct):
    name: str
    message: str
    stack: str


_logs = msgspec.json.Decoder(tuple[Log, ...])
_effects = msgspec.json.Decoder(tuple[Effect, ...])
_thrown = msgspec.json.Decoder(_Thrown)


def read_logs(text: bytes, before: Sequence[Log], limits: HookLimits) -> tuple[Log, ...]:
    """The lines so far and the new ones, within the limits.

    Raises:
        msgspec.DecodeError: the text is not what the driver writes.
    """
    room = limits.log_characters - sum(len(log.text) for log in before)
    kept = list(before)
    for log in _logs.decode(text):
        if room <= 0 or len(kept) >= limits.log_lines:
            break
        kept.append(Log(log.level[:20], log.text[:room]))
        room -= len(log.text)
    return tuple(kept)


def read_effects(text: bytes) -> tuple[Effect, ...]:
    """The effects of a step.

    Raises:
        msgspec.DecodeError: the text is not what the driver writes.
        RecursionError: it is nested too deep.
    """
    try:
        return _effects.decode(text)
    except msgspec.DecodeError:
        return _effects.decode(_well_formed(text))


def read_thrown(text: bytes, limits: HookLimits) -> StepFailed:
    """The exception of a hook and its place; the engine's out-of-memory error counts as the limit.

    Raises:
        msgspec.DecodeError: the text is not what the driver writes.
    """
    thrown = _thrown.decode(text)
    frame = _FRAME.search(thrown.stack)
    line, column = (int(frame[1]), int(frame[2])) if frame else (0, 0)
    name, message = thrown.name or "Error", thrown.message
    if (name, message) == _OUT_OF_MEMORY:
        name, message = "MemoryLimit", words("MemoryLimit", limits)
    return StepFailed(name, message, line, column)


def check_json(text: bytes) -> str:
    """The text, checked to be JSON without lone surrogates.

    Raises:
        msgspec.DecodeError: it is not JSON.
        UnicodeDecodeError: it is not UTF-8.
        RecursionError: it is nested too deep.
    """
    try:
        with_room(lambda: msgspec.json.decode(text, type=msgspec.Raw))
    except msgspec.DecodeError:
        whole = _well_formed(text)
        with_room(lambda: msgspec.json.decode(whole, type=msgspec.Raw))
        return whole.decode()
    return text.decode()


def _well_formed(text: bytes) -> bytes:
    """JSON of JavaScript with lone surrogates replaced, as UTF-8 cannot encode them.

    A text that was cut within an emoji ends with the replacement character, as in a browser.
    """
    return _LONE_SURROGATE.sub(rb"\1\\ufffd", text)


def write_reply(reply: Reply) -> bytes:
    """A reply as the driver reads it."""
    if reply.refusal is not None:
        return b"[%d,false,%b]" % (reply.id, _json(reply.refusal))
    return b"[%d,true,%b]" % (reply.id, _json(reply.data))


def _json(data: Any) -> bytes:
    try:
        return orjson.dumps(data)
    except TypeError:
        # A lone surrogate is legal in JavaScript and can be sent escaped.
        return json.dumps(data).encode()


def words(name: str, limits: HookLimits) -> str:
    """The message of a failure that is not the hook's own error; it names the limit."""
    match name:
        case "Timeout":
            return f"it ran longer than {limits.seconds:g} s{_longer(limits)}"
        case "MemoryLimit":
            return f"it needed more than {_size(limits.memory_bytes)} of memory"
        case "StackOverflow":
            return f"its calls went deeper than {_size(WASM_STACK_BYTES)} of stack"
        case "InputLimit":
            return f"it would be given more than {_size(limits.input_bytes)} of JSON"
        case "OutputLimit":
            return f"it gave more than {_size(limits.output_bytes)} of JSON"
        case "TooManyEffects":
            return f"it made more than {limits.effects} requests"
        case "NeverSettled":
            return "it waits for a promise that nothing will ever settle"
        case "NotJSON":
            return "what it returned cannot be written as JSON"
        case _:
            return "the JavaScript engine broke down"


def _longer(limits: HookLimits) -> str:
    if limits.seconds >= MAX_HOOK_TIMEOUT:
        return ""
    return (
        f"; hook_timeout allows up to {MAX_HOOK_TIMEOUT:g} s (--hook-timeout, or in callpact.toml)"
    )


def _size(length: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if length % unit == 0:
            return f"{length // unit} {name}"
    return f"{length} bytes"
