"""The observer that puts every call on record: masked, in the journal before its answer leaves.

Secrets are known by their value (`Secrets`), by their place (`writeOnly`, `format: password`) and by
the header that carries them. It never raises into a call: what JSON cannot say is told somehow, and
what cannot even be told leaves a record that says so much. It hashes nothing that is kept whole.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, cast

import orjson
from msgspec import Struct

from callpact.audit.journal import Journal, encode_line
from callpact.audit.masking import Hiding, Mask
from callpact.audit.record import (
    MAX_PAYLOAD_BYTES,
    MAX_RECORDED_BEFORE,
    MAX_RECORDED_ISSUES,
    MAX_RECORDED_TEXT,
    Note,
    Payload,
    Record,
    error_key,
    payload_of,
)
from callpact.envelope import (
    HTTPResponseMeta,
    LocalResponseMeta,
    MCPResponseMeta,
    ResponseEnvelope,
)
from callpact.errors import CallError, InvalidSchema
from callpact.finished import CallFinished
from callpact.json_text import json_text
from callpact.schema import Change, Issue, canonical_json
from callpact.secrets import Secrets
from callpact.tool import Contract, Tool

HASHES_ONLY = "hashes"
"""Value of a tool's annotation `audit` that keeps its inputs, outputs and messages out of records."""

_CONTRACT_DIGITS = 16
_MAX_QUICK = 10_000  # Characters; far below what is cut.
_MAX_MS = 1e15
_log = logging.getLogger("callpact.audit")


class Recorder:
    """An observer of a runtime: each call is one line in the journal.

    `hashes_only` are patterns of tool ids (`bank.*`) of which only hashes are kept; a tool asks for
    it by the annotation `audit: hashes`.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        secrets: Secrets | Iterable[Secrets] = (),
        hashes_only: Iterable[str] = (),
    ) -> None:
        self._journal = journal
        self._append = journal.append
        self._mask = Mask((secrets,) if isinstance(secrets, Secrets) else tuple(secrets))
        self._patterns = tuple(hashes_only)
        # By id: a tool that was read again takes the place of the former.
        self._tools: dict[str, _Known] = {}

    @property
    def lost(self) -> int:
        """Records that could not be kept."""
        return self._journal.lost

    def __call__(self, event: CallFinished) -> None:
        """Keep the record of a call."""
        try:
            line = self._line(event)
        except Exception as error:  # noqa: BLE001 - boundary: whatever a call holds, it is on record
            # By its kind alone: its words and its trace may hold what must not show.
            _log.error("a call is on record without its input and output: %s", type(error).__name__)
            line = _least(event, self._mask)
        self._append(line)

    def _line(self, event: CallFinished) -> bytes:
        tool = event.tool
        known = _NONE if tool is None else self._tools.get(tool.id)
        if known is None or known.tool is not tool:
            known = self._learn(cast("Tool", tool), known)
        line = None
        if known.is_plain:
            envelope = event.envelope
            if (
                envelope is None
                or tool is None
                or event.error is not None
                or envelope.warnings
                or envelope.changes
            ):
                line = self._plain_line(event, known)
            else:
                line = self._result_line(event, known, tool, envelope)
        return self._careful_line(event, known) if line is None else line

    def _result_line(
        self, event: CallFinished, known: _Known, tool: Tool, envelope: ResponseEnvelope[Any]
    ) -> bytes | None:
        """What `_plain_line` gives, for the commonest call: a result, and nothing to say of it."""
        ms, identity = event.duration * 1000, event.identity
        caller = None if identity is None else identity.id
        source, status = "local", None
        if type(envelope.meta) is not LocalResponseMeta:
            source, status = _origin(envelope.meta)
        try:
            sent_json, given_json = orjson.dumps(event.arguments), orjson.dumps(envelope.data)
            sent, given = sent_json.decode(), given_json.decode()
            text = f"{sent}\n{given}\n{event.call_id}\n{caller}\n{event.parent_id}"
            # The larger ones are looked at with care. A time that is no number is not JSON.
            if len(text) > _MAX_QUICK or not -_MAX_MS < ms < _MAX_MS or self._mask.finds(text):
                return None
            return encode_line(
                _Result(
                    event.call_id,
                    event.started,
                    ms,
                    event.tool_id,
                    tool.kind,
                    tool.version,
                    known.contract,
                    known.policy,
                    source,
                    status,
                    caller,
                    event.via,
                    event.parent_id,
                    event.count,
                    _Kept("", len(sent_json), sent),
                    _Kept("", len(given_json), given),
                )
            )
        except (TypeError, UnicodeEncodeError):  # What JSON cannot say.
            return None

    def _plain_line(self, event: CallFinished, known: _Known) -> bytes | None:
        """The line of a call in which all is small, JSON, and no secret; None if it is not so."""
        tool, envelope, error, caller = event.tool, event.envelope, event.error, event.identity
        ms = event.duration * 1000
        texts: list[Any] = [event.call_id, event.parent_id or ""]
        source, status, output = "", None, None
        warnings = changes = issues = ()
        code = path = message = key = gate = None
        try:
            data = orjson.dumps(event.arguments)
            size, sent, given = len(data), data.decode(), ""
            if envelope is not None:
                data = orjson.dumps(envelope.data)
                size, given = size + len(data), data.decode()
                output = Payload("", len(data), given)
                source, status = _origin(envelope.meta)
                if envelope.warnings or envelope.changes:
                    warnings = _plain_notes(envelope.warnings, texts)
                    changes = _plain_notes(envelope.changes, texts)
            if caller is not None:
                texts.append(caller.id)
            if tool is None:
                texts.append(event.tool_id)
            if error is not None:
                gate, code, path, message = event.gate, error.code, error.path, error.message
                issues = _plain_notes(error.issues, texts)
                texts += (code, path or "", message)
                key = error_key(code, path, issues[0].code if issues else None)
            all_texts = "\n".join(texts)
            is_small = size <= MAX_PAYLOAD_BYTES and len(all_texts) <= MAX_RECORDED_TEXT
            if not (is_small and -_MAX_MS < ms < _MAX_MS):
                return None
            if self._mask.finds(f"{all_texts}\n{sent}\n{given}"):
                return None
            record = Record(
                event.call_id,
                event.started,
                ms,
                event.tool_id,
                "" if tool is None else tool.kind,
                None if tool is None else tool.version,
                known.contract,
                known.policy,
                cast("Any", gate),
                code,
                path,
                message,
                key,
                issues,
                warnings,
                changes,
                source,
                status,
                None if caller is None else caller.id,
                event.via,
                event.parent_id,
                event.count,
                Payload("", size - (output.size if output else 0), sent),
                output,
            )
            return encode_line(record)
        except (TypeError, UnicodeEncodeError):  # What JSON cannot say.
            return None

    def _careful_line(self, event: CallFinished, known: _Known) -> bytes:
        arguments, envelope, error = event.arguments, event.envelope, event.error
        data = None if envelope is None else envelope.data
        mask = self._mask
        if known.hides_input or known.hides_output:
            hiding = Hiding(
                cast("Tool", event.tool), mask, sent=known.hides_input, given=known.hides_output
            )
            arguments, data = hiding.sent(arguments), hiding.given(data)
            mask = mask.also(hiding.found)
        # Where a secret may stand in an answer, what stood there before is not told.
        tells_before = not known.hides_output
        writing = _Writing(mask, is_hashed=known.is_hashed, tells_before=tells_before)
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
                "tool_error": isinstance(envelope.meta, MCPResponseMeta)
                and envelope.meta.is_error is True,
            }
        if error is not None:
            more |= {"gate": event.gate, **writing.error(error)}
        record = Record(
            _id(event.call_id, mask),
            event.started,
            ms if math.isfinite(ms) else 0.0,
            text(event.tool_id),
            "" if tool is None else tool.kind,
            None if tool is None or tool.version is None else text(tool.version),
            known.contract,
            known.policy,
            caller=None if event.identity is None else text(event.identity.id),
            via=text(event.via),
            parent=None if event.parent_id is None else _id(event.parent_id, mask),
            count=event.count,
            input=writing.payload(arguments),
            **more,
        )
        return encode_line(record)

    def _learn(self, tool: Tool, former: _Known | None) -> _Known:
        contract = tool.contract
        if former is not None and cast("Tool", former.tool).contract is contract:
            contract_hash = former.contract
        else:
            contract_hash = hash_contract(contract)
        is_hashed = tool.annotations.get("audit") == HASHES_ONLY or any(
            fnmatchcase(tool.id, pattern) for pattern in self._patterns
        )
        sent, given = _marks_secrets(contract.input), _marks_secrets(contract.output)
        is_plain = not (sent or given or is_hashed)
        known = _Known(tool, contract_hash, contract.policy, sent, given, is_hashed, is_plain)
        self._tools[tool.id] = known
        return known


class _Kept(Struct, gc=False):
    """A `Payload` in a line."""

    sha256: str
    size: int
    json: str


class _Result(Struct, omit_defaults=True, gc=False):
    """The fields of a `Record` that a plain result has: the others cost time, not only space."""

    id: str
    at: int
    ms: float
    tool: str
    kind: str
    version: str | None = None
    contract: str = ""
    policy: str = ""
    source: str = ""
    status: int | None = None
    caller: str | None = None
    via: str = ""
    parent: str | None = None
    count: int | None = None
    input: _Kept | None = None
    output: _Kept | None = None


class _Known(Struct, frozen=True):
    """What is the same for every call of a tool."""

    tool: Tool | None = None
    contract: str = ""
    policy: str = ""
    hides_input: bool = False
    hides_output: bool = False
    is_hashed: bool = False
    is_plain: bool = False


_NONE = _Known(is_plain=True)


def hash_contract(contract: Contract) -> str:
    """What tells one contract from another: the beginning of the SHA-256 of its canonical JSON."""
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


def _marks_secrets(schema: Any) -> bool:
    text = _canonical(schema)
    return '"writeOnly":true' in text or '"format":"password"' in text


def _canonical(value: Any) -> str:
    try:
        return canonical_json(value)
    except InvalidSchema:  # Numbers that JavaScript does not have.
        return json_text(value)


def _origin(meta: Any) -> tuple[str, int | None]:
    if type(meta) is LocalResponseMeta:
        return "local", None
    if isinstance(meta, HTTPResponseMeta):
        status: Any = meta.status_code  # What a bus sent need not be a number.
        return "http", status if type(status) is int and 0 <= status < 1000 else None
    if isinstance(meta, MCPResponseMeta):
        return "mcp", None
    return "", None


def _id(id: str, mask: Mask) -> str:
    """An id as it is, or one that is told apart from others all the same."""
    told = mask.text(id)
    if told == id:
        return told
    digits = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{told[:100]}~{digits[:16]}"


def _least(event: CallFinished, mask: Mask) -> bytes:
    """The line of a call that cannot be told: that it was, and how it ended."""
    code = None if event.error is None else mask.text(event.error.code)
    gate = cast("Any", event.gate)
    record = Record(
        _id(event.call_id, mask), event.started, 0.0, mask.text(event.tool_id), gate=gate, code=code
    )
    return encode_line(record)


def _plain_notes(given: tuple[Any, ...], texts: list[Any]) -> tuple[Note, ...]:
    """Issues or changes as they are; what they say is added to the texts to be looked through."""
    notes: list[Note] = []
    for item in given[:MAX_RECORDED_ISSUES]:
        if type(item) is Issue:
            note = Note(item.code, item.path, item.message)
        else:
            words = "invented" if item.invented else ""
            note = Note(item.action, item.path, words, _before(item))
            texts.append(note.before)
        notes.append(note)
        texts += (note.code, note.path, note.message)
    return tuple(notes)


def _before(change: Change) -> str | None:
    """What a change replaced, as JSON, if that is short."""
    if change.action == "filled":
        return None
    written = json_text(change.before)
    return written if len(written) <= MAX_RECORDED_BEFORE else None


class _Writing:
    """The parts of one record, masked."""

    def __init__(self, mask: Mask, *, is_hashed: bool, tells_before: bool) -> None:
        self._mask = mask
        self._is_hashed = is_hashed
        self._tells_before = tells_before and not is_hashed

    def payload(self, value: Any) -> Payload:
        data = self._mask.json(value)
        if self._is_hashed or len(data) > MAX_PAYLOAD_BYTES:
            return payload_of(data, hashes_only=self._is_hashed)
        return Payload("", len(data), data.decode())

    def error(self, error: CallError) -> dict[str, Any]:
        text, issues, path = self._mask.text, error.issues, error.path
        code = text(error.code)
        place = None if path is None else text(path)
        return {
            "code": code,
            "path": place,
            "message": self._words(error.message) or None,
            "key": error_key(code, place, text(issues[0].code) if issues else None),
            "issues": self.notes(issues),
        }

    def notes(self, given: tuple[Issue, ...] | tuple[Change, ...]) -> tuple[Note, ...]:
        text = self._mask.text
        notes: list[Note] = []
        for item in given[:MAX_RECORDED_ISSUES]:
            if isinstance(item, Change):
                words = "invented" if item.invented else ""
                before = _before(item) if self._tells_before else None
                before = None if before is None else text(before)
                notes.append(Note(text(item.action), text(item.path), words, before))
            else:
                notes.append(Note(text(item.code), text(item.path), self._words(item.message)))
        return tuple(notes)

    def _words(self, message: str) -> str:
        """A message may tell what was sent."""
        return "" if self._is_hashed else self._mask.text(message)
