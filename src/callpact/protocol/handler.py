"""The answering side of the call protocol: requests from a bus, answered by a runtime.

An adapter over `Runtime.call` and `Runtime.stream`, which do the work of a call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

from callpact.errors import CallError, Failed, HandlerCrashed
from callpact.protocol.events import CallAborted, CallRequested
from callpact.tool import Call

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.context import Identity
    from callpact.envelope import ResponseEnvelope
    from callpact.protocol.pending import PendingRequestMap

MAX_ANSWERING = 10_000
"""Requests that one process works on at a time; one more is refused with `aborted`."""

_log = logging.getLogger("callpact.protocol")


class Answering(Protocol):
    """The part of a `Runtime` that answers requests."""

    catalog: Catalog

    async def call(
        self, call: Call, identity: Identity | None = None, *, call_map: PendingRequestMap
    ) -> ResponseEnvelope[Any]:
        """Call a tool for a caller."""
        ...

    def stream(
        self, call: Call, identity: Identity | None = None, *, call_map: PendingRequestMap
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """Call a subscription for a caller."""
        ...


def build_call_handler(
    runtime: Answering, call_map: PendingRequestMap, *, namespaces: Iterable[str] | None = None
) -> Callable[[CallRequested], Coroutine[Any, Any, None] | None]:
    """A listener for `call.requested` that answers with the tools of a runtime.

    It alone publishes; handlers return values. With `namespaces`, requests for other namespaces are
    ignored, so that several call handlers can share a bus. A request ends in exactly one of
    `call.responded`, `call.error`, `call.aborted`; a subscription in any number of `call.responded`
    before `call.completed`. Once the map is closed, requests are refused with `aborted`.
    """
    served = None if namespaces is None else _names(namespaces)
    answering = call_map.answering

    def handle(event: CallRequested) -> Coroutine[Any, Any, None] | None:
        if served is not None and not _is_served(event.operation_id, runtime.catalog, served):
            return None
        if event.request_id in answering:
            _log.warning("duplicate of request %s, which is being answered", event.request_id)
            return None
        answering[event.request_id] = None  # Now, so that an abort before the first step counts.
        return answer(event)

    async def answer(event: CallRequested) -> None:
        request_id = event.request_id
        if answering.get(request_id, call_map) is not None:
            return  # Aborted before it began.
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        answering[request_id] = task
        try:
            if len(answering) > MAX_ANSWERING or call_map.is_closed:
                _refuse(call_map)
            call = Call(
                event.operation_id,
                event.input,
                request_id,
                event.parent_request_id,
                event.deadline,
                None,
                event.chain,
                event.metadata,
            )
            tool = runtime.catalog.get(event.operation_id)
            if event.stream or (tool is not None and tool.kind == "subscription"):
                stream = runtime.stream(call, event.identity, call_map=call_map)
                await _send_stream(stream, call_map, request_id, task)
            else:
                envelope = await runtime.call(call, event.identity, call_map=call_map)
                if answering.get(request_id) is task:  # Otherwise the caller has given up.
                    await call_map.respond(request_id, envelope)
        except CallError as error:
            if answering.get(request_id) is task:
                await call_map.emit_error(request_id, error)
        except asyncio.CancelledError:
            if answering.get(request_id) is task:  # Otherwise the caller aborted it.
                await call_map.bus.publish(CallAborted(request_id))
            raise
        except Exception:  # noqa: BLE001 - boundary: the caller gets an error, the bus goes on
            _log.exception("request %s of %s failed", request_id, event.operation_id)
            if answering.get(request_id) is task:
                await call_map.emit_error(request_id, HandlerCrashed(event.operation_id))
        except GeneratorExit:  # The loop is closed: no event can be published.
            raise
        except BaseException:
            if answering.get(request_id) is task:
                await call_map.emit_error(request_id, HandlerCrashed(event.operation_id))
            raise
        finally:
            if answering.get(request_id) is task:
                del answering[request_id]

    return handle


def _names(given: Iterable[str]) -> frozenset[str]:
    return frozenset([given] if isinstance(given, str) else given)


def _is_served(tool_id: Any, catalog: Catalog, served: frozenset[str]) -> bool:
    # An id that is not text has no namespace: every call handler refuses it.
    return not isinstance(tool_id, str) or catalog.namespace_of(tool_id) in served


def _refuse(call_map: PendingRequestMap) -> NoReturn:
    if call_map.is_closed:
        raise Failed("aborted", "Nothing is answered here any more: the other side is closed")
    raise Failed("aborted", f"{MAX_ANSWERING:,} calls are under way; try again later")


async def _send_stream(
    stream: AsyncGenerator[ResponseEnvelope[Any], None],
    call_map: PendingRequestMap,
    request_id: str,
    task: asyncio.Task[Any],
) -> None:
    count = 0
    async with aclosing(stream) as envelopes:
        async for envelope in envelopes:
            if call_map.answering.get(request_id) is not task:  # The caller has given up.
                return
            await call_map.respond(request_id, envelope, seq=count)
            count += 1
            await asyncio.sleep(0)  # Lets readers run beside a generator that never waits.
    if call_map.answering.get(request_id) is task:
        await call_map.complete(request_id, count=count)
