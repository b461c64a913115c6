"""What hooks may fetch: the origin that their file names as `root`, and hosts that are allowed.

Only `executeRequest` may fetch at all. A secret leaves only for the origin of `root`, whatever else
is allowed, only if the file declares it, and is taken out of every answer before a hook sees it.
The rules of `net` hold as for any request.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Collection, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
from msgspec import Struct

from callpact.errors import CallError, Failed, InvalidConfig
from callpact.net import Request, Response, Transport, check_request
from callpact.net.address import Place, Refused, normal_host, place_of
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
        self,
        root: str,
        secrets: Secrets,
        transport: Transport,
        hosts: Collection[str] = frozenset(),
    ) -> None:
        self._root = _origin(root)
        self._secrets = secrets
        self._transport = transport
        self._hosts = hosts

    def masked(self, text: str) -> str:
        """The text without any secret, and without the tokens that stand for them."""
        return self._secrets.mask(shown(text))

    def masked_data(self, data: Any) -> Any:
        """JSON data without any secret."""
        return self._secrets.mask_data(data)

    def sealed(self, draft: Draft, names: Collection[str]) -> Request:
        """The request that a hook made, if it may leave; `names` are the file's own secrets.

        Raises:
            Failed: `address_not_allowed`, or `handler_error` for a secret of somebody else.
            InvalidInput: a header that does not stay one line.
        """
        try:
            place = place_of(draft.url)
        except Refused as refused:
            raise refused.told() from None
        if place.origin != self._root:
            self._check_other(place, holds_secret=holds_secret(draft))

        def secret(name: str) -> str | None:
            if name not in names:
                words = f"the key '{name}' is not among the file's requiredServerParams"
                raise Failed("handler_error", words, details={"name": name})
            return self._secrets.get(name)

        request = seal(draft, secret)
        check_request(request)
        return request

    def _check_other(self, place: Place, *, holds_secret: bool) -> None:
        """Refuse a secret to another origin than `root`, and all other hosts unless allowed."""
        host = place.host
        if holds_secret:
            words = f"'{host}' is not the root of the file: a key may not be sent there"
            raise Failed("address_not_allowed", words, details={"host": host})
        if host in self._hosts or ANY_HOST in self._hosts:
            return
        allow = f"hooks may not reach it unless the configuration allows it (--hook-host {host})"
        if self._root is None or host != self._root[1]:
            words = f"'{host}' is not the root of the file: {allow}"
        elif place.scheme != "https":
            words = f"'{host}' is the root of the file, but not without TLS: {allow}"
        else:
            return
        raise Failed("address_not_allowed", words, details={"host": host})

    def performing(
        self, kind: str, context: Context, names: Collection[str]
    ) -> Callable[[Effect], Awaitable[Any]]:
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
                request = self.sealed(draft, names)
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
            return {**reply, "text": self._unescaped(response.body.decode())}
        except UnicodeDecodeError:
            body = self._secrets.mask_data(response.body)
            return {**reply, "base64": base64.b64encode(body).decode()}

    def _unescaped(self, text: str) -> str:
        """A body without any secret, those that escapes of JSON would hide included."""
        masked = self._secrets.mask(text)
        if "\\" not in masked:
            return masked
        try:
            data = msgspec.json.decode(masked)
        except (msgspec.DecodeError, RecursionError):
            return masked
        clean = self._secrets.mask_data(data)
        return masked if clean == data else orjson.dumps(clean).decode()


async def _sleep(data: Any) -> None:
    """Wait, as the timers of libraries do; hooks themselves have none."""
    asked = data.get("ms") if isinstance(data, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - the guest made it
    ms = asked if isinstance(asked, int | float) else 0
    await asyncio.sleep(min(max(ms, 0) / 1000, MAX_SLEEP))


def checked_hosts(names: Iterable[str]) -> frozenset[str]:
    """Hosts that hooks may reach beside their own, as `place_of` spells them; `*` for all.

    Raises:
        InvalidConfig: a name is not that of a host.
    """
    return frozenset(name if name == ANY_HOST else _spelt(name) for name in names)


def _spelt(name: str) -> str:
    try:
        return normal_host(name)
    except Refused:
        raise InvalidConfig(
            f"a host for hooks is a name or an address alone, as data.example.com; got '{name}'"
        ) from None


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
