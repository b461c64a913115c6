"""The calls of tools that come in through the doors of one server: one set of limits for all.

A door finds the tool and knows its caller; the call then gets a deadline, a place among the running
calls, and goes to the runtime. What a protocol adds stays in its door.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from callpact.envelope import ResponseEnvelope, now_ms
from callpact.errors import AccessDenied
from callpact.gate import grant
from callpact.serve import DEFAULT_TIMEOUT
from callpact.serve.answer_store import AnswerStore
from callpact.serve.concurrency import CALLS_PER_CALLER, CALLS_PER_TOOL, RunningCalls
from callpact.serve.idempotency import CallOutcome, IdempotentCalls, check_key, key_of
from callpact.tool import Call, Tool
from callpact.wire.query_arguments import takes_idempotency_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from callpact.context import Client, Context, Identity
    from callpact.runtime import Runtime


class CallSender(Struct, frozen=True):
    """The sender of one request: an identity for access, and an owner for limits and kept results."""

    identity: Identity | None
    owner: str | None
    """None if the door has only one client."""


class DoorCalls:
    """Runs the calls of all doors of a server within its limits.

    More concurrent calls than `calls_per_tool` and `calls_per_caller` are refused; a call without a
    timeout of its tool ends after `timeout` seconds. `answers` keeps those of calls with an
    idempotency key; by default in the user's data folder.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        calls_per_tool: int = CALLS_PER_TOOL,
        calls_per_caller: int = CALLS_PER_CALLER,
        answers: AnswerStore | None = None,
    ) -> None:
        self.runtime = runtime
        self._once = IdempotentCalls(answers or AnswerStore())
        self._timeout = timeout
        self._running = RunningCalls(calls_per_tool, calls_per_caller)

    def request(
        self,
        name: str,
        arguments: Any,
        tool: Tool | None,
        *,
        via: str,
        client_name: str,
        uses_wire_names: bool = False,
    ) -> Call:
        """Return a call with its deadline; `tool` is the one whose timeout applies.

        A subscription has only a deadline of its own.
        """
        limit = None if tool is None else tool.timeout
        if limit is None and (tool is None or tool.kind != "subscription"):
            limit = self._timeout
        deadline = None if limit is None else now_ms() + limit * 1000
        return Call(
            name,
            arguments,
            deadline=deadline,
            via=via,
            client_name=client_name,
            uses_wire_names=uses_wire_names,
        )

    async def run(
        self,
        call: Call,
        tool: Tool | None,
        sender: CallSender,
        *,
        client: Client | None = None,
        counted: Tool | None = None,
    ) -> ResponseEnvelope[Any]:
        """Run a call of a tool; `counted` is the tool that the call is counted for, if another.

        Raises:
            CallError: as `Runtime.call`; `overloaded` if too many calls run.
        """
        if tool is None:
            return await self.runtime.call(call, sender.identity)
        with self._running.entered((counted or tool).id, sender.owner) as refusal:
            admitted = tool if refusal is None else replace(tool, disabled=refusal)
            return await self.runtime.call(call, sender.identity, client=client, found=admitted)

    async def run_once(
        self,
        call: Call,
        tool: Tool,
        sender: CallSender,
        key: Any,
        *,
        client: Client | None = None,
        counted: Tool | None = None,
    ) -> CallOutcome:
        """Run a call with an idempotency key, or return the outcome of the first one with it.

        A tool that only reads is run every time. The caller's access is checked every time.

        Raises:
            CallError: the key cannot be used, or there is no outcome.
        """
        key, target = check_key(key), counted or tool
        is_granted = _is_granted(tool, sender.identity) and _is_granted(target, sender.identity)
        if not takes_idempotency_key(target) or not is_granted:
            return CallOutcome(await self.run(call, tool, sender, client=client, counted=counted))
        has_begun = False

        async def handler(arguments: dict[str, Any], context: Context) -> Any:
            nonlocal has_begun
            has_begun = True
            value: Any = tool.handler(arguments, context)
            return await value if hasattr(value, "__await__") else value

        marked = replace(tool, handler=handler)
        arguments: Any = {} if call.arguments is None else call.arguments
        return await self._once.run(
            key_of(sender.owner or "", target.id, key, arguments),
            call.deadline or now_ms(),
            lambda: self.run(call, marked, sender, client=client, counted=target),
            lambda: has_begun,
        )

    async def aclose(self) -> None:
        """End the calls with an idempotency key that outlived their clients."""
        await self._once.aclose()

    async def stream(
        self, call: Call, tool: Tool, sender: CallSender
    ) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        """Run a subscription, which counts as one call until it ends.

        Raises:
            CallError: as `Runtime.stream`; `overloaded` if too many calls run.
        """
        with self._running.entered(tool.id, sender.owner) as refusal:
            admitted = tool if refusal is None else replace(tool, disabled=refusal)
            values = self.runtime.stream(call, sender.identity, found=admitted)
            try:
                async for envelope in values:
                    yield envelope
            finally:
                await values.aclose()


def _is_granted(tool: Tool, identity: Identity | None) -> bool:
    try:
        grant(tool, identity)
    except AccessDenied:
        return False
    return True
