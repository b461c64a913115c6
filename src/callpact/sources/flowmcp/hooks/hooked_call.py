"""One call of a tool with hooks: their arguments, and the values that they may return.

The shapes are those of seed 002 and, under `compat`, also those that real files rely on. A hook
never sees a secret: it sees a placeholder (`request.py`) of this one call, which the host replaces
when the request is sent. The requests of hooks themselves are in `hook_fetch.py`; the JavaScript
runs in `callpact.sandbox`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import orjson
from msgspec.structs import replace

from callpact.context import Context
from callpact.envelope import ResponseEnvelope, local_envelope
from callpact.errors import DeclarationError, Failed, InvalidInput
from callpact.net import Request
from callpact.schema.bounds import with_room
from callpact.sources.flowmcp.hooks.file_hooks import FileHooks
from callpact.sources.flowmcp.hooks.hook_fetch import Fetching
from callpact.sources.flowmcp.http.request import Placeholders, RequestDraft, RequestPlan, as_text
from callpact.sources.flowmcp.read.hit import (
    items,
    members,
    texts,
)

if TYPE_CHECKING:
    from callpact.sandbox.load import HooksRefused
    from callpact.sandbox.realm import Realm
    from callpact.sandbox.steps import Log, StepFailed

_BODIED = frozenset({"POST", "PUT"})
_METHODS = frozenset({"GET", "POST", "PUT", "DELETE"})
_LEVELS = {"debug": logging.DEBUG, "warn": logging.WARNING, "error": logging.ERROR}
_MAX_WORDS = 500
_HALF = re.compile("[\ud800-\udfff]")


class Sender(Protocol):
    """Sends the requests of a tool."""

    def sealed(self, draft: RequestDraft, marks: Placeholders) -> Request:
        """The request that the file declares, with its keys."""
        ...

    async def send(
        self, request: Request, context: Context, *, for_hook: bool
    ) -> ResponseEnvelope[Any]:
        """Send a request; the response is read as JSON if a hook gets it next."""
        ...


class HookedCall:
    """One call of a tool whose file has hooks: `preRequest`, the request, `postRequest`."""

    def __init__(
        self, name: str, plan: RequestPlan, hooks: FileHooks, sender: Sender, fetching: Fetching
    ) -> None:
        self._name = name
        self._plan = plan
        self._hooks = hooks
        self._sender = sender
        self._fetching = fetching
        self._marks = Placeholders()

    async def run(self, arguments: Mapping[str, Any], context: Context) -> ResponseEnvelope[Any]:
        """Call the tool.

        Raises:
            Failed: `handler_error`, with the hook and the reason; or the error of the request.
        """
        try:
            realm = await self._hooks.open(_caller(context))
        except DeclarationError as error:
            raise self._unopened(error) from None
        kinds = realm.hooks.get(self._name, frozenset())
        payload = {**self._plan.defaults, **arguments}
        draft = planned = self._plan.draft(arguments, self._marks)
        if "preRequest" in kinds:
            draft, payload = await self._before(realm, draft, payload, context)
        if "executeRequest" in kinds:
            data = await self._instead(realm, draft, payload, context)
            envelope = local_envelope(data, context.tool_id)
        else:
            if draft is planned:
                request = self._sender.sealed(draft, self._marks)
            else:
                request = self._sealed(draft)
            envelope = await self._sender.send(request, context, for_hook="postRequest" in kinds)
        if "postRequest" in kinds:
            given = {"response": envelope.data, "struct": _struct(draft), "payload": payload}
            returned = await self._call(realm, "postRequest", given, context)
            if "response" not in returned:
                raise self._misshapen("postRequest", "{ response }", returned)
            envelope = replace(envelope, data=returned["response"])
        return envelope

    async def _before(
        self, realm: Realm, draft: RequestDraft, payload: dict[str, Any], context: Context
    ) -> tuple[RequestDraft, dict[str, Any]]:
        struct = _struct(draft)
        given = {"struct": struct, "payload": payload}
        returned = await self._call(realm, "preRequest", given, context)
        wanted = {"struct", "payload"} if self._hooks.profile == "strict" else {"struct"}
        if not wanted <= returned.keys() and not (
            self._hooks.profile == "compat" and "payload" in returned
        ):
            raise self._misshapen("preRequest", "{ struct, payload }", returned)
        new_struct, new_payload = returned.get("struct", struct), returned.get("payload", payload)
        for name, part in (("struct", new_struct), ("payload", new_payload)):
            if not isinstance(part, dict):
                raise self._failed("preRequest", f"its `{name}` must be an object", {})
        is_edited = not _is_same(
            {name: new_struct.get(name, struct[name]) for name in struct}, struct
        )
        if not is_edited and _is_same(new_payload, payload):
            return draft, payload
        try:
            if is_edited:
                made = self._edited(draft, new_struct)
            else:
                made = self._plan.draft(new_payload, self._marks)
        except InvalidInput as error:
            raise self._failed("preRequest", error.message, {}) from None
        return made, new_payload

    def _sealed(self, draft: RequestDraft) -> Request:
        """A request that a hook changed, if it may be sent."""
        try:
            return self._fetching.sealed(draft, self._marks)
        except (InvalidInput, Failed) as error:
            if error.code in {"address_not_allowed", "server_param_missing"}:
                raise
            raise self._failed("preRequest", error.message, {}) from None

    def _edited(self, draft: RequestDraft, struct: dict[str, Any]) -> RequestDraft:
        """The draft with the fields that a hook returned; the others are kept."""
        url, method = struct.get("url", draft.url), struct.get("method", draft.method)
        headers = struct.get("headers", draft.headers)
        if not isinstance(url, str):
            raise self._failed("preRequest", "`struct.url` must be a text", {})
        if method not in _METHODS:
            words = f"`struct.method` must be one of {', '.join(sorted(_METHODS))}"
            raise self._failed("preRequest", words, {})
        if not isinstance(headers, dict) or any(
            isinstance(value, dict | list | None) for value in members(headers).values()
        ):
            raise self._failed("preRequest", "`struct.headers` must be texts by name", {})
        sent = {name: as_text(v) for name, v in members(headers).items()}
        kind = next((v for name, v in sent.items() if name.lower() == "content-type"), "json")
        body = struct.get("body", draft.body)
        if body is not None and method not in _BODIED:
            if self._hooks.profile == "strict":
                raise self._failed("preRequest", f"a {method} has no body, but `struct` does", {})
            body = None
        is_text = isinstance(body, str) and "json" not in kind.lower()
        if body is not None and not any(name.lower() == "content-type" for name in sent):
            sent["Content-Type"] = "application/json"
        return RequestDraft(method, url, sent, body, is_text)

    async def _instead(
        self, realm: Realm, draft: RequestDraft, payload: dict[str, Any], context: Context
    ) -> Any:
        struct = _struct(draft)
        given: dict[str, Any] = {"struct": struct, "payload": payload}
        if self._hooks.profile == "compat":
            secrets = {name: self._marks.of(name) for name in self._plan.known_secrets}
            given = {
                "struct": {**struct, "status": True, "messages": [], "data": None},
                "payload": {**payload, **struct, "userParams": payload, "serverParams": secrets},
            }
        returned = await self._call(realm, "executeRequest", given, context)
        if "response" in returned:
            return returned["response"]
        result = returned.get("struct")
        if self._hooks.profile == "strict" or not isinstance(result, dict):
            raise self._misshapen("executeRequest", "{ response }", returned)
        outcome = members(result)
        if outcome.get("status") is False:
            raise self._failed("executeRequest", _messages(outcome.get("messages")), {})
        return outcome.get("data")

    async def _call(
        self, realm: Realm, kind: str, given: Mapping[str, Any], context: Context
    ) -> dict[str, Any]:
        from callpact.sandbox.steps import Done

        perform = self._fetching.performing(kind, context, self._marks)
        try:
            argument = _json(given)
        except InvalidInput:
            if kind != "postRequest":
                raise
            words = "the answer holds a number that is too large for JavaScript"
            raise self._failed(kind, words, {}) from None
        step = await self._hooks.run(
            realm, self._name, kind, argument, perform, caller=_caller(context)
        )
        self._log(step.logs, kind, context)
        if not isinstance(step, Done):
            raise self._failed(kind, f"{step.name}: {step.message}", _place(step))
        # The caller sees the names of keys; the request that is sent needs their placeholders.
        data = step.data if kind == "preRequest" else self._marks.shown(step.data)
        try:
            returned = with_room(lambda: msgspec.json.decode(data))
        except (msgspec.DecodeError, RecursionError):
            raise self._failed(kind, "what it returned is nested too deep", {}) from None
        if not isinstance(returned, dict):
            raise self._failed(kind, "it must return an object", {"reason": "SEC101"})
        if kind != "preRequest" and self._masked(data) != data:
            returned = self._fetching.masked_data(returned)
        return members(returned)

    def _log(self, logs: Sequence[Log], kind: str, context: Context) -> None:
        for line in logs:
            level = _LEVELS.get(line.level, logging.INFO)
            context.logger.log(level, "%s: %s", kind, self._masked(line.text))

    def _masked(self, text: str) -> str:
        return self._fetching.masked(text, self._marks)

    def _unopened(self, error: DeclarationError) -> Failed:
        from callpact.sandbox.load import HooksRefused

        if not isinstance(error, HooksRefused):
            return self._failed("handlers", self._hooks.shown(error), {})
        return self._failed("handlers", f"{error.name}: {error.message}", _place(error))

    def _misshapen(self, kind: str, wanted: str, returned: Mapping[str, Any]) -> Failed:
        came = ", ".join(sorted(returned)[:5]) or "nothing"
        words = f"it must return {wanted}, it returned {{ {came} }}"
        return self._failed(kind, words, {"reason": "SEC101"})

    def _failed(self, kind: str, words: str, details: Mapping[str, Any]) -> Failed:
        line = details.get("line")
        place = f" ({self._hooks.file}:{line}:{details['column']})" if line else ""
        shown = self._masked(words)
        shown = shown if len(shown) <= _MAX_WORDS else f"{shown[:_MAX_WORDS]}…"
        message = f"The hook {kind} of '{self._name}' failed: {shown}{place}"
        shown_details = {"hook": kind, **details}
        if "reason" in details:
            shown_details["reason"] = self._masked(details["reason"])
        return Failed("handler_error", message, details=shown_details)


def _caller(context: Context) -> str | None:
    """The caller for the fair sharing of hooks; all callers without an identity are one."""
    return None if context.identity is None else context.identity.id


def _struct(draft: RequestDraft) -> dict[str, Any]:
    """The request as hooks see it."""
    return {
        "url": draft.url,
        "method": draft.method,
        "headers": draft.headers,
        "body": draft.body,
    }


def _place(failed: StepFailed | HooksRefused) -> dict[str, Any]:
    """The details of a failure: its name, line and column."""
    place = {"line": failed.line, "column": failed.column} if failed.line else {}
    return {"reason": failed.name, **place}


def _is_same(given: Any, sent: Any) -> bool:
    """True if a hook returned its input unchanged, as far as JavaScript can represent it.

    It has no integers beyond 53 bits, and lone surrogates are replaced.
    """
    if isinstance(sent, dict):
        held = members(sent)
        return (
            isinstance(given, dict)
            and given.keys() == held.keys()
            and all(_is_same(given[key], value) for key, value in held.items())
        )
    if isinstance(sent, list):
        back, out = items(given), items(sent)
        return isinstance(given, list) and len(back) == len(out) and all(map(_is_same, back, out))
    if isinstance(sent, str):
        return given == sent or given == _whole(sent)
    if isinstance(sent, bool) or sent is None or isinstance(given, bool):
        return given is sent
    return isinstance(given, int | float) and float(given) == float(sent)


def _whole(text: str) -> str:
    return _HALF.sub("\ufffd", text)


def _messages(messages: Any) -> str:
    found = [messages] if isinstance(messages, str) else texts(messages)
    return "; ".join(found) or "it says no reason"


def _json(value: Any) -> bytes:
    """JSON for a hook.

    Raises:
        InvalidInput: a number is too large for JavaScript, which would turn it into null.
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # Numbers beyond 64 bits, and lone surrogates, which are sent escaped.
        return as_text(value).encode()
