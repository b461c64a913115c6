"""The requests that hooks may make: to the `root` of their file, and to allowed hosts.

Only `executeRequest` may fetch. A key is sent only to the hosts that it is bound to (`grants.py`) and
only if the file declares it; it is masked in every response before a hook sees it. Redirects are
limited to the same hosts. The rules of `net` apply as to any request.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
from msgspec import Struct
from msgspec.structs import replace

from callpact.context import Context
from callpact.errors import CallError, Failed
from callpact.net import Request, Response, Transport, check_request
from callpact.net.address import Place, Refused, place_of
from callpact.net.host_patterns import HostPatterns
from callpact.sources.flowmcp.http.request import Placeholders, RequestDraft, seal
from callpact.sources.key_grants import FileKeys

if TYPE_CHECKING:
    from callpact.sandbox.steps import Effect

MAX_SLEEP = 10
"""Seconds that a timer of a library in a hook may wait at one time."""


class Fetching:
    """The requests that the hooks of one file may make."""

    def __init__(self, keys: FileKeys, transport: Transport, hosts: HostPatterns) -> None:
        self._keys = keys
        self._secrets = keys.secrets
        self._transport = transport
        self._hosts = hosts

    def masked(self, text: str, marks: Placeholders) -> str:
        """The text with secrets masked and the placeholders of the call replaced by names."""
        return self._secrets.mask(marks.shown(text))

    def masked_data(self, data: Any) -> Any:
        """JSON data with secrets masked."""
        return self._secrets.mask_data(data)

    def sealed(self, draft: RequestDraft, marks: Placeholders) -> Request:
        """The request that a hook made, if it may be sent.

        Raises:
            Failed: `address_not_allowed`, `server_param_missing`, or `handler_error` for a key of
                another file.
            InvalidInput: a header is not exactly one line.
        """
        request, names = seal(draft, marks, self._keys.value)
        try:
            place = place_of(request.url)
        except Refused as refused:
            raise refused.error() from None
        self._keys.check(names, place)
        if not self._keys.allows(names, place):
            self._check_host(place)
        check_request(request)
        return replace(request, check_redirect=self._check_host)

    def _check_host(self, place: Place) -> None:
        """Refuse all hosts except that of `root` and the allowed ones.

        Raises:
            Failed: `address_not_allowed`, with the line that allows it.
        """
        root = self._keys.root
        if place.origin == root.origin or self._hosts.match(place):
            return
        if root.origin is None:
            if root.is_keyed and HostPatterns([root.host or "*"], "root").match(place):
                return
            named = f"is a template for {root.host}" if root.host else "names no host"
            why = f"is not the root of the file, which {named}"
        elif place.host != root.host:
            why = "is not the root of the file"
        elif place.scheme == "https":
            return
        else:
            why = "is the root of the file, but not without TLS"
        is_template = bool(root.host) and HostPatterns([root.host], "root").match(place)
        entry = root.host if is_template else _written(place)
        entries = ", ".join(f'"{each}"' for each in (*self._hosts.entries, entry))
        words = (
            f"'{place.host}' {why}: hooks may not reach it; to allow it, write "
            f"`hook_hosts = [{entries}]` in the table of its source, or `--hook-host {entry}`"
        )
        raise Failed("address_not_allowed", words, details={"host": place.host})

    def performing(
        self, kind: str, context: Context, marks: Placeholders
    ) -> Callable[[Effect], Awaitable[Any]]:
        """The function that performs the effects of one call of a hook."""

        async def perform(effect: Effect) -> Any:
            from callpact.sandbox.pool import EffectRefused

            if effect.kind == "sleep":
                return await _sleep(effect.data)
            if effect.kind != "fetch":
                raise EffectRefused(f"there is no effect '{effect.kind}'")
            if kind != "executeRequest":
                raise EffectRefused(f"fetch is for executeRequest alone, not for {kind} (SEC100)")
            try:
                draft = _draft(effect.data)
                request = self.sealed(draft, marks)
                response = await self._transport.send(request, deadline=context.deadline)
            except CallError as error:
                words = self.masked(f"fetch failed: {error.message}", marks)
                raise EffectRefused(words) from None
            return self._reply(response, draft)

        return perform

    def _reply(self, response: Response, draft: RequestDraft) -> dict[str, Any]:
        reply: dict[str, Any] = {
            "status": response.status,
            "statusText": _phrase(response.status),
            "url": draft.url,
            "headers": [*self._secrets.mask_data(response.headers).items()],
        }
        try:
            return {**reply, "text": self._unescaped(response.body.decode())}
        except UnicodeDecodeError:
            body = self._secrets.mask_data(response.body)
            return {**reply, "base64": base64.b64encode(body).decode()}

    def _unescaped(self, text: str) -> str:
        """A body with all secrets masked, also those with JSON escapes."""
        masked = self._secrets.mask(text)
        if "\\" not in masked:
            return masked
        try:
            data = msgspec.json.decode(masked)
        except (msgspec.DecodeError, RecursionError):
            return masked
        clean = self._secrets.mask_data(data)
        return masked if clean == data else orjson.dumps(clean).decode()


def _written(place: Place) -> str:
    return f"[{place.host}]" if ":" in place.host else place.host


async def _sleep(data: Any) -> None:
    """Wait, as the timers of libraries do; hooks themselves have none."""
    asked = data.get("ms") if isinstance(data, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - the guest made it
    ms = asked if isinstance(asked, int | float) else 0
    await asyncio.sleep(min(max(ms, 0) / 1000, MAX_SLEEP))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


class _Fetch(Struct):
    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    text: str | None = None
    base64: bytes | None = None


def _draft(data: Any) -> RequestDraft:
    """The request of a `fetch`; its data is untrusted, as the guest made it."""
    try:
        asked = msgspec.convert(data, _Fetch)
    except msgspec.ValidationError as error:
        raise Failed("handler_error", f"what was asked for is no request: {error}") from None
    headers: dict[str, str] = {}
    for name, value in asked.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    body = asked.text if asked.base64 is None else asked.base64
    return RequestDraft(asked.method, asked.url, headers, body, is_raw=True)
