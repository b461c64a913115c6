"""The tools that a model wants called in one reply: called through the runtime, like any other.

A failure is a result that the model reads; only a pause ends the run for now.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import msgspec

from callpact.agent.answer_events import Emitter
from callpact.agent.budget import MAX_AT_ONCE, MAX_TOOL_USES, TOOL_SECONDS, Spending
from callpact.agent.models.model import Cut, Message, ToolOffer, ToolUse
from callpact.agent.plan import READ_SKILL, AgentHandler, Plan, Who
from callpact.agent.prompt.instructions import Skill
from callpact.agent.run.offered_tools import arguments_of, cut_off, error_message, result_message
from callpact.agent.run.pause import Checkpoint, RunClient, Waiting, read_checkpoint
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
from callpact.jsonreader.reader import Read
from callpact.observers import CallFinished
from callpact.protocol.events import new_id
from callpact.runtime import MAX_NESTED
from callpact.tool import Call

MAX_NOTED = 20
"""Repairs of a call's arguments that its event and its record name: the first."""


class Using:
    """Calls tools in one run: counts the calls, and the refusals of each tool in a row."""

    def __init__(
        self,
        plan: Plan,
        who: Who,
        emitter: Emitter,
        spending: Spending,
        seconds_left: Callable[[], float | None],
    ) -> None:
        self._plan = plan
        self._who = who
        self._emitter = emitter
        self._seconds_left = seconds_left
        self._spending = spending
        self.rejections: dict[str, int] = {}
        self.skills: list[str] = []

    @property
    def given_up(self) -> str | None:
        """The tool whose gate the model did not satisfy, however often it tried."""
        limit = self._plan.limits.rejections
        return next((name for name, times in self.rejections.items() if times >= limit), None)

    def offers(self) -> tuple[ToolOffer, ...]:
        """The tools that the model may call now."""
        return offered(self._plan, self._who)

    async def use(self, wanted: list[Waiting]) -> None:
        """Call what has no result yet; each gets its result, or what it paused with."""
        # One that still waits for its own answer is left alone.
        todo = [each for each in wanted if each.result is None and not each.is_paused]
        if len(todo) == 1:
            await self._use(todo[0])
            self._count_rejections(todo)
            return
        room = asyncio.Semaphore(MAX_AT_ONCE)

        async def use_one(waiting: Waiting) -> None:
            async with room:
                await self._use(waiting)

        for waiting in todo[MAX_TOOL_USES:]:
            waiting.result = error_message(waiting.use, _TOO_MANY)
        async with asyncio.TaskGroup() as group:
            for waiting in todo[:MAX_TOOL_USES]:
                group.create_task(use_one(waiting))
        self._count_rejections(todo)

    def refuse(self, wanted: list[Waiting], finish: Cut) -> None:
        """Give each call of an incomplete reply the refusal that the model reads; none runs."""
        for waiting in wanted:
            waiting.result = self._refused(waiting, cut_off(finish))
        self._count_rejections(wanted)

    def _refused(self, waiting: Waiting, error: InvalidInput) -> Message:
        """The refusal of a call that does not reach the runtime; on record like any other.

        Its arguments are not: text that is no JSON cannot be masked by the tool's schema.
        """
        use, waiting.is_rejected = waiting.use, True
        tool = self._plan.runtime.catalog.get(use.name)
        self._plan.runtime.tell(
            CallFinished(
                new_id(),
                use.name if tool is None else tool.id,
                None,
                time.time_ns() // 1_000_000,
                0.0,
                error=error,
                identity=self._who.identity,
                parent_id=self._emitter.run_id,
                tool=tool,
                via="agent",
            )
        )
        return error_message(use, error)

    def _count_rejections(self, used: list[Waiting]) -> None:
        """By reply: a model that wants one wrong call five times at once has failed once."""
        done = {each.use.name for each in used if each.result is not None and not each.is_rejected}
        for name in done:
            self.rejections.pop(name, None)
        for name in {each.use.name for each in used if each.is_rejected} - done:
            self.rejections[name] = self.rejections.get(name, 0) + 1

    async def _use(self, waiting: Waiting) -> None:
        use = waiting.use
        self._emitter.emit("stream.tool_start", tool=use.name, tool_use_id=use.id)
        try:
            waiting.result = await self._called(waiting)
        except PauseAsked as asked:
            waiting.is_paused, waiting.question = True, asked.question
            if asked.state is not None:  # It goes on from there, and needs no earlier answers.
                waiting.state, waiting.answers = asked.state, []
        except CallError as error:
            waiting.result = error_message(use, error)
            waiting.is_rejected = isinstance(error, Rejected | UnknownTool)
        self._spending.add(tool_calls=not waiting.is_paused)
        self._emitter.emit(
            "stream.tool_end",
            tool=use.name,
            tool_use_id=use.id,
            is_error=waiting.result is not None and waiting.result.is_error,
            is_paused=waiting.is_paused or None,
        )

    async def _called(self, waiting: Waiting) -> Message:
        use, who, plan = waiting.use, self._who, self._plan
        if use.name == READ_SKILL and plan.skills:
            return self._read_skill(use)
        try:
            read = arguments_of(use)
        except InvalidInput as error:
            return self._refused(waiting, error)
        if not plan.has_tools:
            raise UnknownTool(use.name)
        chain = (*who.chain, plan.name)
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
            who.identity,
            trusted=who.is_trusted,  # Else the agent may do what its caller may.
            client=RunClient(who.client, waiting, is_trusted=who.is_trusted),
        )
        return result_message(use, envelope)

    def _seconds_of(self, use: ToolUse) -> float:
        tool = self._plan.runtime.catalog.get(use.name)
        seconds = TOOL_SECONDS if tool is None or tool.timeout is None else tool.timeout
        left = self._seconds_left()
        return seconds if left is None else min(seconds, left)

    def _read_skill(self, use: ToolUse) -> Message:
        with suppress(InvalidInput):  # Without a name, the error lists those that there are.
            use = msgspec.structs.replace(use, arguments=arguments_of(use).value)
        held: Any = use.arguments
        given = cast("dict[str, Any]", held) if isinstance(held, dict) else {}
        name = given.get("name")
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


def offered(plan: Plan, who: Who) -> tuple[ToolOffer, ...]:
    """The tools that an agent's model may call on behalf of this caller."""
    offers: tuple[ToolOffer, ...] = ()
    if plan.has_tools:
        offers = plan.offers.of(plan.runtime.catalog, who.identity, trusted=who.is_trusted)
    return (*offers, _skill_offer(plan.skills)) if plan.skills else offers


def check_waiting(plan: Plan, who: Who, checkpoint: Checkpoint) -> None:
    """See that the tools that wait for an answer can be called, in agents below as well.

    Raises:
        UsageError: one cannot. Nothing was run, and the checkpoint is as good as before.
    """
    held = {offer.name for offer in offered(plan, who)}
    for waiting in checkpoint.waiting:
        if not waiting.is_paused:
            continue
        tool = plan.runtime.catalog.get(waiting.use.name)
        if tool is None or tool.wire_name not in held:
            known = ", ".join(sorted(held)) or "none"
            raise UsageError(
                f"the run waits with a question of the tool '{waiting.use.name}', which the agent "
                f"'{plan.name}' does not have for this caller; it has {known:.500}. Nothing was run: "
                "resume the checkpoint with an agent that has the tool"
            )
        if isinstance(tool.handler, AgentHandler) and waiting.state is not None:
            below = tool.handler.plan
            check_waiting(below, who, read_checkpoint(waiting.state, below.name))


def _noted(read: Read) -> tuple[LogLine, ...]:
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
