"""The observer that records every call: masked, in the journal before the call's result leaves.

Secrets are masked by value (`Secrets`), by place (`writeOnly`, `format: password`) and by the
header that carries them. The recorder never raises into a call: values that are not JSON are
recorded by their repr, and a call that cannot be encoded at all gets a minimal record. Payloads
that are kept whole are not hashed here.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, cast

from msgspec import Struct
from orjson import OPT_APPEND_NEWLINE, Fragment, dumps

from callpact.audit.journal.health import Health
from callpact.audit.journal.lines import LineHead, encode_head, encode_line
from callpact.audit.journal.segments import Journal
from callpact.audit.record import (
    MAX_PAYLOAD_BYTES,
    MAX_RECORDED_BEFORE,
    MAX_RECORDED_ISSUES,
    MAX_RECORDED_TEXT,
    MAX_RECORDED_TRACE,
    TRACE_LEVEL,
    Note,
    Payload,
    Record,
    error_key,
    payload_of,
)
from callpact.audit.redaction import Hiding, Mask, recordable
from callpact.context import LogLine
from callpact.envelope import (
    HTTPResponseMeta,
    LocalResponseMeta,
    MCPResponseMeta,
)
from callpact.errors import CallError, InvalidInput, InvalidSchema, Issue, NotRecorded
from callpact.observers import CallFinished, Crash
from callpact.schema import Change, canonical_json, is_array, is_json, is_object
from callpact.schema.json_text import json_text
from callpact.secrets.keys import Secrets
from callpact.tool import Contract, Tool

HASHES_ONLY = "hashes"
"""Value of a tool's annotation `audit` that keeps its inputs, outputs and messages out of records."""

OnLoss = Literal["answer", "refuse"]
"""The outcome of a call whose record cannot be written: its result, or an error."""

_CONTRACT_DIGITS = 16
_log = logging.getLogger("callpact.audit")
_NOT_JSON = frozenset({"json", "depth"})
_SERVER_INFO = "io.modelcontextprotocol/serverInfo"


class Recorder:
    """An observer of a runtime that writes each call as one line to the journal.

    `hashes_only` are patterns of tool ids (`bank.*`) of which only hashes are kept; a tool requests
    this with the annotation `audit: hashes`. With `on_loss="refuse"`, a call whose record cannot be
    written gets an error instead of its result, and later calls are refused before they run, until
    a record can be written again.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        secrets: Secrets | Iterable[Secrets] = (),
        hashes_only: Iterable[str] = (),
        on_loss: OnLoss = "answer",
    ) -> None:
        self._refuses = on_loss == "refuse"
        self._is_failing = False
        self._journal = journal
        self._append = journal.append
        # By id: a reloaded tool replaces the former one.
        self._tools: dict[str, _Known] = {}
        known = (secrets,) if isinstance(secrets, Secrets) else secrets
        self._mask = Mask(known, on_news=self._tools.clear)
        self._patterns = tuple(hashes_only)

    def hide(self, secrets: Secrets) -> None:
        """Mask these secrets as well from now on: a reloaded source may have others."""
        self._mask.hide(secrets)

    def health(self) -> Health:
        """Counts of records that could not be kept, by all processes that share the log."""
        return self._journal.health()

    @property
    def lost(self) -> int:
        """Records that could not be kept."""
        return self._journal.lost

    def __call__(self, event: CallFinished) -> None:
        """Write the record of a call."""
        try:
            tool = event.tool
            known = self._nobody(event) if tool is None else self._tools.get(event.tool_id)
            if known is None or known.tool is not tool:
                known = self._learn(cast("Tool", tool), known)
            line = self._plain_line(event, known.head) if known.is_plain else None
            if line is None:
                line = self._careful_line(event, known)
        except Exception as error:  # noqa: BLE001 - boundary: values of any call must be recorded
            # Only the type: the message and the traceback may contain secrets.
            _log.error("a call is on record without its input and output: %s", type(error).__name__)
            line = _least(event, self._mask)
        is_kept = self._append(line)
        if self._refuses:
            self._is_failing = not is_kept
            if not is_kept:
                raise NotRecorded(is_begun=True)

    def check(self) -> None:
        """Refuse a call before its handler runs, while records cannot be written.

        Raises:
            NotRecorded: the record of the last call is lost.
        """
        if self._is_failing:
            raise NotRecorded(is_begun=False)

    def _plain_line(self, event: CallFinished, head: Fragment) -> bytes | None:
        """The line of a call that is small, JSON, and free of secrets; None for any other call."""
        envelope, identity = event.envelope, event.identity
        own = (
            head,
            event.call_id,
            event.started,
            event.duration * 1000,
            event.via,
            event.client_name,
            None if identity is None else identity.id,
            event.parent_id,
            event.count,
            event.policy,
            event.arguments,
        )
        try:
            if (
                envelope is not None
                and event.error is None
                and type(envelope.meta) is LocalResponseMeta
                and not envelope.warnings
                and not envelope.changes
                and not event.logs
            ):  # The commonest by far.
                line = dumps((*own, envelope.data), None, OPT_APPEND_NEWLINE)
            elif event.crash is not None:
                return None
            else:
                line = dumps(own + _outcome(event), None, OPT_APPEND_NEWLINE)
        except TypeError:  # A value is not JSON.
            return None
        # The larger ones may have to be cut.
        is_small = len(line) <= MAX_PAYLOAD_BYTES
        return line if is_small and not self._mask.finds(line.decode()) else None

    def _careful_line(self, event: CallFinished, known: _Known) -> bytes:
        arguments, envelope, error = event.arguments, event.answer, event.error
        data = None if envelope is None else envelope.data
        mask = self._mask
        if known.hides_input or known.hides_output:
            hiding = Hiding(
                cast("Tool", event.tool), mask, sent=known.hides_input, given=known.hides_output
            )
            arguments, data = hiding.sent(arguments), hiding.given(data)
            mask = mask.also(hiding.found)
        # Values that a cast replaced are left out if the output may hold secrets.
        keeps_before = not known.hides_output
        writing = _Writing(mask, self._mask, known, keeps_before=keeps_before)
        text, tool, ms = mask.text, event.tool, event.duration * 1000
        more: dict[str, Any] = {}
        if envelope is not None:
            source, status = _origin(envelope.meta)
            more = {
                "output": writing.payload(data),
                "warnings": writing.notes(envelope.warnings),
                "changes": writing.notes(envelope.changes),
                "source": source,
                "status": status,
                "tool_error": _is_tool_error(envelope.meta),
                "server": text(_server(envelope.meta)),
            }
        if error is not None:
            more |= {"gate": event.gate, **writing.error(error, event.crash)}
        record = Record(
            _id(event.call_id),
            event.started,
            ms if math.isfinite(ms) else 0.0,
            _tool_id(event, self._mask),
            "" if tool is None else tool.kind,
            None if tool is None or tool.version is None else recordable(tool.version),
            known.contract,
            event.policy or known.policy,
            # Never masked: records are searched by these fields.
            caller=None if event.identity is None else recordable(event.identity.id),
            client=recordable(event.client_name),
            via=recordable(event.via),
            parent=None if event.parent_id is None else _id(event.parent_id),
            count=event.count,
            input=writing.payload(arguments),
            logs=writing.logs(event.logs, event.crash),
            **more,
        )
        return encode_line(record)

    def _learn(self, tool: Tool, former: _Known | None) -> _Known:
        self._mask.refresh()  # Before `finds`, which is also true once after new secrets.
        contract = tool.contract
        if former is not None and cast("Tool", former.tool).contract is contract:
            contract_hash = former.contract
        else:
            contract_hash = hash_contract(contract)
        is_hashed = tool.annotations.get("audit") == HASHES_ONLY or any(
            fnmatchcase(tool.id, pattern) for pattern in self._patterns
        )
        sent, given = _marks_secrets(contract.input), _marks_secrets(contract.output)
        head = encode_head(
            LineHead(tool.id, tool.kind, tool.version, contract_hash, contract.policy)
        )
        is_plain = not (sent or given or is_hashed or self._mask.finds(head.decode()))
        declared = _declared(contract) if sent or given or is_hashed else frozenset({""})
        names = declared if is_hashed else None
        known = _Known(tool, Fragment(head), contract_hash, sent, given, names, declared, is_plain)
        self._tools[tool.id] = known
        return known

    def _nobody(self, event: CallFinished) -> _Known:
        """A call of an id that no tool has."""
        # The id may be a mistyped one of a tool of which only hashes are kept.
        names = frozenset({""}) if self._patterns else None
        try:
            head = encode_head(LineHead(event.tool_id))
        except UnicodeEncodeError:
            return _Known(None, Fragment(b""), names=names)
        if names is not None:
            return _Known(None, Fragment(head), names=names)
        is_small = len(head) <= MAX_RECORDED_TEXT
        return _Known(
            None, Fragment(head), is_plain=is_small and not self._mask.finds(head.decode())
        )


class _Known(Struct, frozen=True):
    """Values that are the same for every call of a tool."""

    tool: Tool | None
    head: Fragment
    contract: str = ""
    hides_input: bool = False
    hides_output: bool = False
    names: frozenset[str] | None = None
    """Where only hashes are kept: the names that the contract declares."""
    declared: frozenset[str] = frozenset({""})
    """The names that the contract declares; they are not masked as values of the call."""
    is_plain: bool = False

    @property
    def policy(self) -> str:
        """The output policy of the contract."""
        return "" if self.tool is None else self.tool.contract.policy


def hash_contract(contract: Contract) -> str:
    """A short hash that identifies a contract: the start of the SHA-256 of its canonical JSON."""
    text = _canonical(
        {
            "input": contract.input,
            "output": contract.output,
            "policy": contract.policy,
            "inputPolicy": contract.input_policy,
            "formats": contract.formats,
        }
    )
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_CONTRACT_DIGITS]


def _declared(contract: Contract) -> frozenset[str]:
    """The names of all properties in a contract's schemas, escaped as in pointers; and the empty one."""
    stack: list[Any] = [contract.input, contract.output]
    names = {""}
    while stack:
        node = stack.pop()
        if is_object(node):
            if is_object(node.get("properties")):
                names.update(node["properties"])
            stack.extend(node.values())
        elif is_array(node):
            stack.extend(node)
    return frozenset(name.replace("~", "~0").replace("/", "~1") for name in names)


def _marks_secrets(schema: Any) -> bool:
    text = _canonical(schema)
    return '"writeOnly":true' in text or '"format":"password"' in text


def _canonical(value: Any) -> str:
    try:
        return canonical_json(value)
    except InvalidSchema:  # Numbers that JavaScript cannot represent.
        return json_text(value)


def _origin(meta: Any) -> tuple[str, int | None]:
    if type(meta) is LocalResponseMeta:
        return "local", None
    if isinstance(meta, HTTPResponseMeta):
        status: Any = meta.status_code  # A status that came over a bus may be of any type.
        return "http", status if type(status) is int and 0 <= status < 1000 else None
    if isinstance(meta, MCPResponseMeta):
        return "mcp", None
    return "", None


def _is_tool_error(meta: Any) -> bool:
    return isinstance(meta, MCPResponseMeta) and meta.is_error is True


def _server(meta: Any) -> str:
    """The name and version that an MCP server reports; empty without them."""
    extension = meta.meta_ext if isinstance(meta, MCPResponseMeta) else None
    info: Any = extension.get(_SERVER_INFO) if is_object(extension) else None
    if not is_object(info):
        return ""
    parts = (info.get(name) for name in ("name", "version"))
    return " ".join(part for part in parts if isinstance(part, str))


def _id(id: str) -> str:
    """An id as it is, or a shortened one with a hash that keeps it unique."""
    text = recordable(id)
    if text == id:
        return text
    digits = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[:100]}~{digits[:16]}"


def _tool_id(event: CallFinished, mask: Mask) -> str:
    """The id of a tool as it is; an unknown id is text of the caller, and is masked."""
    return mask.text(event.tool_id) if event.tool is None else recordable(event.tool_id)


def _least(event: CallFinished, mask: Mask) -> bytes:
    """The minimal line of a call that cannot be encoded: its id, time, tool and outcome."""
    code = None if event.error is None else mask.text(event.error.code)
    gate = cast("Any", event.gate)
    record = Record(
        _id(event.call_id), event.started, 0.0, _tool_id(event, mask), gate=gate, code=code
    )
    return encode_line(record)


def _outcome(event: CallFinished) -> tuple[Any, ...]:
    """The fields of a line after the input: output, error, notes.

    Raises:
        TypeError: a value is not JSON.
    """
    envelope, error, arguments = event.answer, event.error, event.arguments
    if error is None:
        gate = code = message = path = None
        issues = ()
    else:
        code = error.code
        issues = [(i.code, i.path, i.message) for i in error.issues[:MAX_RECORDED_ISSUES]]
        # Arguments that break other rules than those for JSON are JSON; any others may not be.
        is_judged = isinstance(event.arguments, dict) and issues and issues[0][0] not in _NOT_JSON
        if not is_judged and not is_json(arguments):
            raise TypeError
        if type(error) is InvalidInput and issues and envelope is None and not event.logs:
            return None, "input", code, issues, None
        gate, message, path = event.gate, error.message, error.path
    logs = [(line.level, line.message) for line in event.logs]
    if envelope is None:
        notes = ((), (), False, "", logs) if logs else ()
        return None, gate, code, issues, None, None, message, path, *notes
    warnings = [(i.code, i.path, i.message) for i in envelope.warnings[:MAX_RECORDED_ISSUES]]
    changes = [_changed(change) for change in envelope.changes[:MAX_RECORDED_ISSUES]]
    meta = envelope.meta
    notes = (warnings, changes, _is_tool_error(meta), _server(meta), logs)
    origin = _origin(meta)
    return envelope.data, gate, code, issues, *origin, message, path, *notes


def _changed(change: Change) -> tuple[str | None, ...]:
    words = "invented" if change.invented else ""
    return change.action, change.path, words, _before(change)


def _before(change: Change) -> str | None:
    """The JSON of the value that a change replaced, if it is short."""
    if change.action == "filled":
        return None
    written = json_text(change.before)
    return written if len(written) <= MAX_RECORDED_BEFORE else None


class _Writing:
    """Encodes the parts of one record, masked.

    With `known.names`, paths keep only these names, and messages and logs are left out.
    """

    def __init__(self, mask: Mask, configured: Mask, known: _Known, *, keeps_before: bool) -> None:
        names = known.names
        self._mask = mask
        self._configured = configured
        """Masks without the secrets of this call: codes and rules are not text of the call."""
        self._names = names
        self._declared = known.declared
        self._is_hashed = names is not None
        self._keeps_before = keeps_before and names is None

    def payload(self, value: Any) -> Payload:
        data = self._mask.json(value)
        if self._is_hashed or len(data) > MAX_PAYLOAD_BYTES:
            return payload_of(data, hashes_only=self._is_hashed)
        return Payload("", len(data), data.decode())

    def error(self, error: CallError, crash: Crash | None) -> dict[str, Any]:
        text, issues, path = self._configured.text, error.issues, error.path
        code = text(error.code)
        if crash is not None:  # The caller's message says only that there was one.
            kind = text(crash.type)
            message = self._words(f"{crash.type}: {crash.message}") or kind
            return {
                "code": code,
                "message": message,
                "key": error_key(code, text(crash.place), kind),
            }
        place = None if path is None else self._place(path)
        return {
            "code": code,
            "path": place,
            "message": self._words(error.message) or None,
            "key": error_key(code, place, text(issues[0].code) if issues else None),
            "issues": self.notes(issues),
        }

    def notes(self, given: tuple[Issue, ...] | tuple[Change, ...]) -> tuple[Note, ...]:
        text, word = self._mask.text, self._configured.text
        notes: list[Note] = []
        for item in given[:MAX_RECORDED_ISSUES]:
            if isinstance(item, Change):
                words = "invented" if item.invented else ""
                before = _before(item) if self._keeps_before else None
                before = None if before is None else text(before)
                notes.append(Note(word(item.action), self._place(item.path), words, before))
            else:
                place = self._place(item.path)
                notes.append(Note(word(item.code), place, self._words(item.message)))
        return tuple(notes)

    def logs(self, given: Sequence[LogLine], crash: Crash | None) -> tuple[LogLine, ...]:
        if self._is_hashed:
            return ()
        text = self._mask.text
        logs = [LogLine(text(line.level), text(line.message)) for line in given]
        if crash is not None:
            logs.append(LogLine(TRACE_LEVEL, self._trace(crash.trace)))
        return tuple(logs)

    def _trace(self, parts: Sequence[str]) -> str:
        """The last parts of a traceback that fit, each masked as a whole before it is cut."""
        kept: list[str] = []
        left = MAX_RECORDED_TRACE
        for part in reversed(parts):
            masked = self._mask.text(part).rstrip("\n")
            left -= len(masked) + 1
            if left < 0:
                break
            kept.append(masked)
        return "\n".join(reversed(kept))

    def _place(self, path: str) -> str:
        """A path without the keys that must not be recorded."""
        if self._names is not None:
            path = "/".join(part if part in self._names else "*" for part in path.split("/"))
        is_declared = all(part in self._declared or part.isdigit() for part in path.split("/"))
        return (self._configured if is_declared else self._mask).text(path)

    def _words(self, message: str) -> str:
        """A masked message; empty where only hashes are kept."""
        return "" if self._is_hashed else self._mask.text(message)
