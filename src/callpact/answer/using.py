"""The tools that a model wants called in one reply: called through the runtime, like any other.

A failure is a result that the model reads; only a pause ends the run for now.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

from callpact.answer.events import Teller
from callpact.answer.injections import Skill
from callpact.answer.limits import MAX_AT_ONCE, MAX_TOOL_USES, TOOL_SECONDS
from callpact.answer.model import Message, ToolOffer, ToolUse
from callpact.answer.offering import arguments_of, error_message, result_message
from callpact.answer.pausing import RunClient, Waiting
from callpact.answer.plan import READ_SKILL, Plan, Who
from callpact.errors import CallError, PauseAsked, Rejected, ToolError, UnknownTool
from callpact.runtime import MAX_NESTED
from callpact.tool import Call


class Using:
    """Calls tools in one run: counts the calls, and the refusals of each tool in a row."""

    def __init__(
        self,
        plan: Plan,
        who: Who,
        teller: Teller,
        seconds_left: Callable[[], float | None],
    ) -> None:
        self._plan = plan
        self._who = who
        self._teller = teller
        self._seconds_left = seconds_left
        self.calls = 0
        self.rejections: dict[str, int] = {}
        self.skills: list[str] = []

    @property
    def given_up(self) -> str | None:
        """The tool whose gate the model did not satisfy, however often it tried."""
        limit = self._plan.limits.rejections
        return next((name for name, times in self.rejections.items() if times >= limit), None)

    def offers(self) -> tuple[ToolOffer, ...]:
        """What the model may call now."""
        plan = self._plan
        offers: tuple[ToolOffer, ...] = ()
        if plan.has_tools:
            who = self._who
            offers = plan.offers.of(plan.runtime.catalog, who.identity, trusted=who.is_trusted)
        return (*offers, _skill_offer(plan.skills)) if plan.skills else offers

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

    def _count_rejections(self, used: list[Waiting]) -> None:
        """By reply: a model that wants one wrong call five times at once has failed once."""
        done = {each.use.name for each in used if each.result is not None and not each.is_rejected}
        for name in done:
            self.rejections.pop(name, None)
        for name in {each.use.name for each in used if each.is_rejected} - done:
            self.rejections[name] = self.rejections.get(name, 0) + 1

    async def _use(self, waiting: Waiting) -> None:
        use = waiting.use
        self._teller.tell("stream.tool_start", tool=use.name, tool_use_id=use.id)
        try:
            waiting.result = await self._called(waiting)
        except PauseAsked as asked:
            waiting.is_paused, waiting.question = True, asked.question
            if asked.state is not None:  # It goes on from there, and needs no earlier answers.
                waiting.state, waiting.answers = asked.state, []
        except CallError as error:
            waiting.result = error_message(use, error)
            waiting.is_rejected = isinstance(error, Rejected | UnknownTool)
        self.calls += not waiting.is_paused
        self._teller.tell(
            "stream.tool_end",
            tool=use.name,
            tool_use_id=use.id,
            is_error=waiting.result is not None and waiting.result.is_error,
            is_paused=waiting.is_paused or None,
        )

    async def _called(self, waiting: Waiting) -> Message:
        use, who, plan = waiting.use, self._who, self._plan
        arguments = arguments_of(use)
        if use.name == READ_SKILL and plan.skills:
            return self._read_skill(use, arguments)
        if not plan.has_tools:
            raise UnknownTool(use.name)
        chain = (*who.chain, plan.name)
        if len(chain) > MAX_NESTED:
            raise ToolError("too_deep", f"Agents and tools nest more than {MAX_NESTED} deep")
        call = Call(
            use.name,
            arguments,
            parent_id=self._teller.run_id,
            deadline=(time.time() + self._seconds_of(use)) * 1000,
            chain=chain,
            via="agent",
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

    def _read_skill(self, use: ToolUse, arguments: Any) -> Message:
        given = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}
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


_TOO_MANY = ToolError("too_many_calls", f"At most {MAX_TOOL_USES} tools are called at once")


def _skill_offer(skills: tuple[Skill, ...]) -> ToolOffer:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "enum": [skill.name for skill in skills]}},
        "required": ["name"],
        "additionalProperties": False,
    }
    return ToolOffer(READ_SKILL, "Read a skill before you use it.", schema)
