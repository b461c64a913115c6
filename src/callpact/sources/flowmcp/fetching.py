"""What hooks may fetch: the origin that their file names as `root`, and hosts that are allowed.

Only `executeRequest` may fetch at all. A secret leaves only for the origin of `root`, whatever else
is allowed, and is taken out of every answer before a hook sees it. The rules of `net` hold as for
any request.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Collection
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from callpact.errors import CallError, Failed
from callpact.net import Response, Transport
from callpact.net.address import Refused, place_of
from callpact.secrets import Secrets
from callpact.sources.flowmcp.request import Draft, holds_secret, seal, shown
from callpact.tool import Context

if TYPE_CHECKING:
    from callpact.hooks.steps import Effect

ANY_HOST = "*"
MAX_SLEEP = 10
"""Seconds that a timer of a library in a hook may wait at one time."""


class Fetching:
    """The requests that the hooks of one file may make."""

    def __init__(
        self, root: str, secrets: Secrets, transport: Transport, hosts: Collection[str] = ()
    ) -> None:
        self._root = _origin(root)
        self._secrets = secrets
        self._transport = transport
        self._hosts = frozenset(host.lower() for host in hosts)

    def masked(self, text: str) -> str:
        """The text without any secret."""
        return self._secrets.mask(text)

    def check(self, draft: Draft) -> None:
        """Refuse a request to a host that hooks may not reach, or a secret to another origin.

        Raises:
            Failed: `address_not_allowed`.
        """
        try:
            place = place_of(draft.url)
        except Refused as refused:
            raise refused.told() from None
        if place.origin == self._root:
            return
        if holds_secret(draft):
            words = f"'{place.host}' is not the root of the file: a key may not be sent there"
            raise Failed("address_not_allowed", words, details={"host": place.host})
        is_same_host = self._root is not None and place.host == self._root[1]
        if not (is_same_host or place.host in self._hosts or ANY_HOST in self._hosts):
            words = (
                f"'{place.host}' is not the root of the file: hooks may not reach it unless the "
                f"configuration allows it (--hook-host {place.host})"
            )
            raise Failed("address_not_allowed", words, details={"host": place.host})

    def performing(self, kind: str, context: Context) -> Callable[[Effect], Awaitable[Any]]:
        """What answers the effects of one call of a hook."""

        async def perform(effect: Effect) -> Any:
            from callpact.hooks.pool import EffectRefused

            if effect.kind == "sleep":
                return await _sleep(effect.data)
            if effect.kind != "fetch":
                raise EffectRefused(f"there is no effect '{effect.kind}'")
            if kind != "executeRequest":
                raise EffectRefused(f"fetch is for executeRequest alone, not for {kind} (SEC100)")
            try:
                draft = _draft(effect.data)
                self.check(draft)
                request = seal(draft, self._secrets.get)
                response = await self._transport.send(request, deadline=context.deadline)
            except CallError as error:
                raise EffectRefused(self.masked(f"fetch failed: {error.message}")) from None
            return self._reply(response, draft)

        return perform

    def _reply(self, response: Response, draft: Draft) -> dict[str, Any]:
        reply: dict[str, Any] = {
            "status": response.status,
            "statusText": _phrase(response.status),
            "url": draft.url,
            "headers": [*self._secrets.mask_data(response.headers).items()],
        }
        try:
            return {**reply, "text": self.masked(response.body.decode())}
        except UnicodeDecodeError:
            body = self._secrets.mask_data(response.body)
            return {**reply, "base64": base64.b64encode(body).decode()}


async def _sleep(data: Any) -> None:
    """Wait, as the timers of libraries do; hooks themselves have none."""
    asked = data.get("ms") if isinstance(data, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - the guest made it
    ms = asked if isinstance(asked, int | float) else 0
    await asyncio.sleep(min(max(ms, 0) / 1000, MAX_SLEEP))


def _origin(root: str) -> tuple[str, str, int] | None:
    try:
        return place_of(shown(root)).origin
    except Refused:
        return None


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


def _draft(data: Any) -> Draft:
    """The request of a `fetch`; the guest made its data, so nothing of it is taken on trust."""
    try:
        asked = msgspec.convert(data, _Fetch)
    except msgspec.ValidationError as error:
        raise Failed("handler_error", f"what was asked for is no request: {error}") from None
    headers: dict[str, str] = {}
    for name, value in asked.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    body = asked.text if asked.base64 is None else asked.base64
    return Draft(asked.method, asked.url, headers, body, is_raw=True)
