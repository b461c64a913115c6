"""The tool calls of one reply, run through the runtime like all others.

A failure becomes a result that the model reads; only a pause interrupts the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from callpact.agent.answer_events import Emitter
from callpact.agent.budget import MAX_AT_ONCE, MAX_TOOL_USES, TOOL_SECONDS, Spending
from callpact.agent.models.model import Cut, Message, ToolOffer, ToolUse
from callpact.agent.plan import READ_SKILL, AgentHandler, Plan, RunCaller
from callpact.agent.prompt.instructions import Skill
from callpact.agent.run.offered_tools import arguments_of, cut_off, error_message, output_message
from callpact.agent.run.pause import Checkpoint, PendingCall, RunClient, read_checkpoint
from callpact.context import LogLine
from callpact.errors import (
    CallError,
    InvalidInput,
    PauseAsked,
    Rejected,
    ToolError,
    UnknownTool,
    UsageError,
)
from callpact.jsonreader.reader import ReadResult
from callpact.observers import CallFinished
from callpact.protocol.events import new_id
from callpact.runtime import MAX_NESTED
from callpact.schema import is_object
from callpact.tool import Call

MAX_NOTED = 20
"""Repairs of a call's arguments that its event and its record list."""


class ToolCaller:
    """Runs the tool calls of one run; counts them, and the consecutive refusals of each tool."""

    def __init__(
        self,
        plan: Plan,
        caller: RunCaller,
        emitter: Emitter,
        spending: Spending,
        seconds_left: Callable[[], float | None],
    ) -> None:
        self._plan = plan
        self._caller = caller
        self._emitter = emitter
        self._seconds_left = seconds_left
        self._spending = spending
        self.rejections: dict[str, int] = {}
        self.skills: list[str] = []

    @property
    def given_up(self) -> str | None:
        """The tool with the maximum number of consecutive refusals, if there is one."""
        limit = self._plan.limits.rejections
        return next((name for name, times in self.rejections.items() if times >= limit), None)

    def offers(self) -> tuple[ToolOffer, ...]:
        """The tools that the model may call now."""
        return offered(self._plan, self._caller)

    async def use(self, wanted: list[PendingCall]) -> None:
        """Run the calls without a result; each gets a result, or the question it paused with."""
        # Calls that are paused wait for their own answer.
        todo = [each for each in wanted if each.result is None and not each.is_paused]
        if len(todo) == 1:
            await self._use(todo[0])
            self._count_rejections(todo)
            return
        room = asyncio.Semaphore(MAX_AT_ONCE)

        async def use_one(pending: PendingCall) -> None:
            async with room:
                await self._use(pending)

        for pending in todo[MAX_TOOL_USES:]:
            pending.result = error_message(pending.use, _TOO_MANY)
        async with asyncio.TaskGroup() as group:
            for pending in todo[:MAX_TOOL_USES]:
                group.create_task(use_one(pending))
        self._count_rejections(todo)

    def refuse(self, wanted: list[PendingCall], finish: Cut) -> None:
        """Refuse all calls of an incomplete reply."""
        for pending in wanted:
            pending.result = self._refused(pending, cut_off(finish))
        self._count_rejections(wanted)

    def _refused(self, pending: PendingCall, error: InvalidInput) -> Message:
        """Publish and return the refusal of a call that does not reach the runtime.

        The record has no arguments: text that is no JSON cannot be masked by the tool's schema.
        """
        use, pending.is_rejected = pending.use, True
        tool = self._plan.runtime.catalog.get(use.name)
        self._plan.runtime.publish(
            CallFinished(
                new_id(),
                use.name if tool is None else tool.id,
                None,
                time.time_ns() // 1_000_000,
                0.0,
                error=error,
                identity=self._caller.identity,
                parent_id=self._emitter.run_id,
                tool=tool,
                via="agent",
            )
        )
        return error_message(use, error)

    def _count_rejections(self, used: list[PendingCall]) -> None:
        """Count refusals once per reply: the same wrong call five times in one reply is one refusal."""
        done = {each.use.name for each in used if each.result is not None and not each.is_rejected}
        for name in done:
            self.rejections.pop(name, None)
        for name in {each.use.name for each in used if each.is_rejected} - done:
            self.rejections[name] = self.rejections.get(name, 0) + 1

    async def _use(self, pending: PendingCall) -> None:
        use = pending.use
        self._emitter.emit("stream.tool_start", tool=use.name, tool_use_id=use.id)
        try:
            pending.result = await self._called(pending)
        except PauseAsked as asked:
            pending.is_paused, pending.question = True, asked.question
            if asked.state is not None:  # The state replaces the earlier answers.
                pending.state, pending.answers = asked.state, []
        except CallError as error:
            pending.result = error_message(use, error)
            pending.is_rejected = isinstance(error, Rejected | UnknownTool)
        self._spending.add(tool_calls=not pending.is_paused)
        self._emitter.emit(
            "stream.tool_end",
            tool=use.name,
            tool_use_id=use.id,
            is_error=pending.result is not None and pending.result.is_error,
            is_paused=pending.is_paused or None,
        )

    async def _called(self, pending: PendingCall) -> Message:
        use, caller, plan = pending.use, self._caller, self._plan
        if use.name == READ_SKILL and plan.skills:
            return self._read_skill(use)
        try:
            read = arguments_of(use)
        except InvalidInput as error:
            return self._refused(pending, error)
        if not plan.has_tools:
            raise UnknownTool(use.name)
        chain = (*caller.chain, plan.name)
        if len(chain) > MAX_NESTED:
            raise ToolError("too_deep", f"Agents and tools nest more than {MAX_NESTED} deep")
        if read.repairs:
            codes = [repair.code for repair in read.repairs[:MAX_NOTED]]
            self._emitter.emit(
                "agent.arguments_repaired", tool=use.name, tool_use_id=use.id, repairs=codes
            )
        call = Call(
            use.name,
            read.value,
            parent_id=self._emitter.run_id,
            deadline=(time.time() + self._seconds_of(use)) * 1000,
            chain=chain,
            via="agent",
            logs=_noted(read),
        )
        envelope = await plan.runtime.call(
            call,
            caller.identity,
            trusted=caller.is_trusted,  # Else the agent has the rights of its caller.
            client=RunClient(caller.client, pending, is_trusted=caller.is_trusted),
        )
        return output_message(use, envelope)

    def _seconds_of(self, use: ToolUse) -> float:
        tool = self._plan.runtime.catalog.get(use.name)
        seconds = TOOL_SECONDS if tool is None or tool.timeout is None else tool.timeout
        left = self._seconds_left()
        return seconds if left is None else min(seconds, left)

    def _read_skill(self, use: ToolUse) -> Message:
        with suppress(InvalidInput):  # Without a name, the error below lists all skills.
            use = msgspec.structs.replace(use, arguments=arguments_of(use).value)
        name = use.arguments.get("name") if is_object(use.arguments) else None
        skill = next((skill for skill in self._plan.skills if skill.name == name), None)
        if skill is None:
            names = ", ".join(skill.name for skill in self._plan.skills)
            raise ToolError(
                "skill_not_found", f"There is no skill {name!r:.100}; there are {names}"
            )
        if skill.name not in self.skills:
            self.skills.append(skill.name)
        text = f"The skill '{skill.name}' is in your instructions now."
        return Message("tool", text, tool_use_id=use.id, tool_name=use.name)


def offered(plan: Plan, caller: RunCaller) -> tuple[ToolOffer, ...]:
    """Return the tools that an agent's model may call on behalf of this caller."""
    offers: tuple[ToolOffer, ...] = ()
    if plan.has_tools:
        offers = plan.offers.of(plan.runtime.catalog, caller.identity, trusted=caller.is_trusted)
    return (*offers, _skill_offer(plan.skills)) if plan.skills else offers


def check_pending_calls(plan: Plan, caller: RunCaller, checkpoint: Checkpoint) -> None:
    """Check that the paused tools can be called, also those of nested agents.

    Raises:
        UsageError: one cannot be called. Nothing was run, and the checkpoint stays valid.
    """
    held = {offer.name for offer in offered(plan, caller)}
    for pending in checkpoint.waiting:
        if not pending.is_paused:
            continue
        tool = plan.runtime.catalog.get(pending.use.name)
        if tool is None or tool.wire_name not in held:
            known = ", ".join(sorted(held)) or "none"
            raise UsageError(
                f"the run waits with a question of the tool '{pending.use.name}', which the agent "
                f"'{plan.name}' does not have for this caller; it has {known:.500}. Nothing was run: "
                "resume the checkpoint with an agent that has the tool"
            )
        if isinstance(tool.handler, AgentHandler) and pending.state is not None:
            below = tool.handler.plan
            check_pending_calls(below, caller, read_checkpoint(pending.state, below.name))


def _noted(read: ReadResult) -> tuple[LogLine, ...]:
    return tuple(
        LogLine(
            "warning",
            f"arguments repaired at character {repair.at}: {repair.code}, {repair.message}",
        )
        for repair in read.repairs[:MAX_NOTED]
    )


_TOO_MANY = ToolError("too_many_calls", f"At most {MAX_TOOL_USES} tools are called at once")


def _skill_offer(skills: tuple[Skill, ...]) -> ToolOffer:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "enum": [skill.name for skill in skills]}},
        "required": ["name"],
        "additionalProperties": False,
    }
    return ToolOffer(READ_SKILL, "Read a skill before you use it.", schema)
