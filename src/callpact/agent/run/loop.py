"""One run of an agent: send requests to the model, call its tools, judge its answer.

A run is made for one message and used once. `plan.py` declares everything that it may do; its
account records the work and the cost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, cast

from callpact.agent.account import (
    Account,
    Answer,
    AnswerAttempt,
    Outcome,
    Paused,
    TypedResult,
    Unmet,
)
from callpact.agent.answer.fallback import recovered
from callpact.agent.answer.parse import Parsed, Verdict
from callpact.agent.answer_events import Emitter
from callpact.agent.budget import Spending
from callpact.agent.models.model import (
    FORCED_TOOL,
    Message,
    ModelReply,
    ModelRequest,
    ToolOffer,
    Usage,
    abilities_of,
    cut_finish,
    entered,
    without_ephemeral,
)
from callpact.agent.plan import ANSWER_TOOL, Plan, RunCaller
from callpact.agent.prompt.instructions import Turn, compose, skill_injections
from callpact.agent.prompt.memory import Remembered
from callpact.agent.reliability import echo, framed, issue_lines
from callpact.agent.run.attempts import Attempts, Judged, Requester
from callpact.agent.run.pause import VERSION, Checkpoint, PendingCall, write_checkpoint
from callpact.agent.run.tool_calls import ToolCaller, check_pending_calls
from callpact.errors import (
    LimitReached,
    OutputSchemaError,
    ReliabilityFailFastError,
    RunPaused,
    RunStopped,
    UsageError,
)
from callpact.protocol.events import new_id
from callpact.schema.json_text import json_text
from callpact.sources.data_tools import exhausted_message

_log = logging.getLogger("callpact.agent")


class Run:
    """One turn of an agent, from the message to the answer, or to a pause."""

    def __init__(
        self,
        plan: Plan,
        message: Message,
        session: str,
        caller: RunCaller,
        *,
        history: Iterable[Message] = (),
    ) -> None:
        self.plan = plan
        # Events and the memory hold text only.
        self._message = message.content or f"[{len(message.parts)} files]"
        self._session = session
        self._caller = caller
        self._run_id = caller.run_id or new_id()
        self._messages: list[Message] = [*history, message]
        self._pending: list[PendingCall] = []
        self._attempts: list[AnswerAttempt] = []
        self._unmet: Unmet | None = None
        self.answer: Answer | None = None
        self._verdict: Verdict | None = None
        self._iteration = 0
        self._seconds, self._begun = 0.0, time.monotonic()
        self._start(Spending(plan.limits, Usage()))

    def _start(self, spending: Spending) -> None:
        plan, self._spending = self.plan, spending
        self._emitter = Emitter(plan.handlers, self._run_id, is_whole=plan.emits_whole_texts)
        self._requester = Requester(
            model=plan.model,
            tool=plan.model_tool,
            runtime=plan.runtime,
            emitter=self._emitter,
            identity=self._caller.identity,
            spending=spending,
        )
        self._tool_caller = ToolCaller(
            plan, self._caller, self._emitter, spending, self._seconds_left
        )

    @classmethod
    def resumed(cls, plan: Plan, checkpoint: Checkpoint, answer: Any, caller: RunCaller) -> Run:
        """Make a run that continues from a checkpoint.

        Raises:
            UsageError: the agent lacks a tool that asked a question.
        """
        check_pending_calls(plan, caller, checkpoint)
        run = cls(plan, Message("user", checkpoint.message), checkpoint.session, caller)
        run._run_id = checkpoint.run_id
        run._messages = list(checkpoint.messages)
        run._pending = list(checkpoint.waiting)
        run._attempts = list(checkpoint.attempts)
        run._iteration, run._seconds = checkpoint.iteration, checkpoint.seconds
        spent = (checkpoint.usage, checkpoint.requests, checkpoint.tool_calls)
        run._start(Spending(plan.limits, *spent))
        run._requester.made = checkpoint.made
        run._tool_caller.skills = list(checkpoint.skills)
        run._tool_caller.rejections = dict(checkpoint.rejections)
        asked = next(pending for pending in run._pending if pending.is_paused)
        asked.answers = [*asked.answers, answer]
        asked.is_paused, asked.question = False, None
        return run

    def listen(
        self, on_token: Callable[[str, int], None], on_reset: Callable[[str, int], None]
    ) -> None:
        """Set the callbacks for streamed text, and for resets that discard it."""
        self._requester.on_token = lambda text: on_token(text, self._iteration)
        self._requester.on_reset = lambda why: on_reset(why, self._iteration)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far, history included."""
        return tuple(self._messages)

    @property
    def account(self) -> Account:
        """The work and the cost of the run so far."""
        return Account(
            self._run_id,
            self._iteration,
            self._spending.requests,
            self._spending.tool_calls,
            self._spending.usage,
            self._seconds + time.monotonic() - self._begun,
            tuple(self._attempts),
            self._unmet,
        )

    async def go(self) -> Answer | Paused:
        """Run to the answer, or to a pause.

        Raises:
            RunStopped: a limit was reached, or the rules gave up.
            ModelError: a request to the model failed, and there are no rules.
        """
        emit, self._begun = self._emitter.emit, time.monotonic()
        emit("agent.turn_start", message=self._emitter.shown(self._message))
        left = self._seconds_left()
        timer = asyncio.timeout(left)
        try:
            with self._spending.running():
                async with timer, entered(self.plan.models):
                    outcome = await self._turns()
        except TimeoutError:
            if not timer.expired():
                raise
            seconds = self.plan.limits.seconds or left or 0.0
            self._requester.reset(LimitReached.code)
            raise LimitReached("seconds", seconds, self.account) from None
        except RunStopped as error:
            self._emit_unmet_by_rules(error)
            error.account = self.account
            self._requester.reset(error.code)
            raise
        finally:
            account = self.account
            emit(
                "agent.turn_end",
                iterations=account.iterations,
                requests=account.requests,
                tool_calls=account.tool_calls,
                input_tokens=account.usage.input_tokens,
                output_tokens=account.usage.output_tokens,
                cost=account.usage.cost,
            )
        return outcome

    async def result(self) -> TypedResult[Any]:
        """Run to the typed value, from the fallback if the answer breaks the contract.

        Raises:
            OutputSchemaError: the answer breaks the contract, and no fallback gives a value.
            RunPaused: a tool asked a question.
            RunStopped: a limit was reached, or the rules gave up.
            ModelError: a request to the model failed, and there are no rules.
        """
        self.plan.required_contract()
        try:
            answer = await self.go()
        except ReliabilityFailFastError as error:
            cause = error.cause
            if self.plan.fallback is None or not isinstance(cause, OutputSchemaError):
                raise
            # With a fallback, the caller gets a value in this case, too.
            given_up = OutputSchemaError(cause.stage, cause.raw_output, error, cause.issues)
            refused = Answer(cause.raw_output, error.account, self.messages)
            try:
                return await self._recovered(given_up, refused, error.payload["attempt"] - 1)
            except (
                Exception
            ) as failure:  # boundary: the fallback failed too, so the rules' error is raised
                raise error from failure
        if isinstance(answer, Paused):
            raise RunPaused(answer)
        verdict = cast("Verdict", self._verdict)  # An answer under contract has one.
        if isinstance(verdict, Parsed):
            return TypedResult(verdict.value, "primary", verdict.repairs, answer)
        spent = None if self._unmet is None else self._unmet.retries_spent
        return await self._recovered(verdict, answer, spent)

    async def _recovered(
        self, error: OutputSchemaError, answer: Answer, retries_spent: int | None
    ) -> TypedResult[Any]:
        error.account = answer.account
        shape = self.plan.required_contract().shape
        # A new emitter without an iteration: the run is over.
        emitter = Emitter(self.plan.handlers, self._run_id)
        found = await recovered(error, self.plan.fallback, shape, emitter, retries_spent)
        return TypedResult(found.value, found.tier, (), answer)

    async def _turns(self) -> Answer | Paused:
        self._check_forced()
        outcome: Answer | Paused | None = None
        if self._pending:
            self._emitter.iteration = self._iteration
            outcome = await self._use_tools()
        while outcome is None:
            self._check_limits()
            self._iteration += 1
            self._emitter.iteration = self._iteration
            self._emitter.emit("agent.iteration_start")
            outcome = await self._turn()
            self._emitter.emit("agent.iteration_end")
        return outcome

    async def _turn(self) -> Answer | Paused | None:
        request = await self._request()
        self._requester.begin()
        self._emitter.emit(
            "stream.llm_start",
            model=self.plan.model.name,
            messages=len(request.messages),
            tools=[tool.name for tool in request.tools],
        )
        judged = await self._reply(request)
        reply = judged.reply
        self._emitter.emit(
            "stream.llm_end",
            input_tokens=self._spending.usage.input_tokens,
            output_tokens=self._spending.usage.output_tokens,
            finish=reply.finish,
            content=self._emitter.shown(reply.content),
            tools=[use.name for use in reply.tool_uses],
        )
        finish = cut_finish(reply)
        if finish is not None:
            self._emitter.emit(
                "agent.reply_cut_off", finish=finish, tools=[use.name for use in reply.tool_uses]
            )
        if reply.tool_uses:
            self._messages.append(Message("assistant", reply.content, reply.tool_uses))
            self._pending = [PendingCall(use) for use in reply.tool_uses]
            if finish is not None:
                self._tool_caller.refuse(self._pending, finish)
            return await self._use_tools()
        return await self._judge(judged)

    # --- asking ---------------------------------------------------------------------------

    async def _request(self) -> ModelRequest:
        plan = self.plan
        remembered = await self._remembered()
        turn = Turn(self._run_id, self._iteration, tuple(self._messages))
        injections = (*plan.injections, *skill_injections(plan.skills, self._tool_caller.skills))
        system, ids = compose(plan.system, injections, turn)
        for id_ in ids:
            self._emitter.emit("context.injected", id=id_, slot="system-prompt")
        schema = None
        if plan.contract is not None and not plan.is_forced:
            schema = plan.contract.shape.json_schema
        return ModelRequest(
            system,
            (*remembered, *self._messages),
            self._offered(),
            schema,
            ANSWER_TOOL if plan.is_forced else None,
            plan.settings,
            self._seconds_left(),
        )

    def _offered(self) -> tuple[ToolOffer, ...]:
        contract = self.plan.contract
        if contract is None or not self.plan.is_forced:
            return self._tool_caller.offers()
        text, words = "Give your final answer by calling this tool.", contract.shape.description
        if words and words != json_text(contract.shape.json_schema):
            text = f"{text} {words}"
        return (ToolOffer(ANSWER_TOOL, text, contract.shape.json_schema),)

    def _check_forced(self) -> None:
        if not self.plan.is_forced:
            return
        for model in self.plan.models:
            if FORCED_TOOL not in abilities_of(model):
                raise UsageError(
                    f"the model '{model.name}' does not declare that it can be made to call a tool; "
                    "strategy='instruct' works with every model"
                )

    async def _remembered(self) -> list[Message]:
        if self.plan.memory is None:
            return []
        turns = await self.plan.memory.recall(self._session, self.plan.turns)
        return [
            message
            for turn in turns
            for message in (Message("user", turn.message), Message("assistant", turn.answer))
        ]

    async def _reply(self, request: ModelRequest) -> Judged:
        plan = self.plan
        judge = None if plan.contract is None else plan.contract.judge
        if plan.reliability is None:
            return await self._requester.send(request, judge)
        attempts = Attempts(
            self._requester,
            plan.model,
            plan.reliability,
            self._emitter,
            judge=judge,
            seconds_left=self._seconds_left,
            on_refused=lambda refusal: self._add_attempt("retried", refusal),
        )
        return await attempts.reply(request)

    # --- tools ----------------------------------------------------------------------------

    async def _use_tools(self) -> Answer | Paused | None:
        """Run the pending tool calls; None if the run continues with the next request."""
        await self._tool_caller.use(self._pending)
        paused = next((pending for pending in self._pending if pending.is_paused), None)
        if paused is not None:
            return self._paused(paused)
        self._messages += [pending.result for pending in self._pending if pending.result]
        self._pending = []
        if (tool := self._tool_caller.given_up) is None:
            return None
        # Seed 004: if the model never satisfies the gate, the user is shown a message about it.
        text, contract = exhausted_message(tool), self.plan.contract
        return self._conclude(Judged(ModelReply(text), contract.judge(text) if contract else None))

    def _paused(self, pending: PendingCall) -> Paused:
        account = self.account
        checkpoint = Checkpoint(
            VERSION,
            self.plan.name,
            self._run_id,
            self._message,
            self._session,
            self._iteration,
            list(without_ephemeral(tuple(self._messages))),
            self._pending,
            account.usage,
            account.requests,
            account.tool_calls,
            self._attempts,
            self._tool_caller.skills,
            self._tool_caller.rejections,
            account.seconds,
            self._requester.made,
        )
        self._emitter.emit("agent.paused", tool=pending.use.name)
        return Paused(pending.question, write_checkpoint(checkpoint), pending.use.name, account)

    # --- judging --------------------------------------------------------------------------

    async def _judge(self, judged: Judged) -> Answer | None:
        contract, refusal = self.plan.contract, judged.refusal
        if contract is not None and refusal is not None:
            # Retries by rules add no correction to the conversation and are not counted here.
            attempt = 1 + sum(row.corrective_message_hash is not None for row in self._attempts)
            if attempt <= contract.retries and self._iteration < self.plan.limits.iterations:
                self._ask_again(refusal, attempt, contract.retries)
                return None
        answer = self._conclude(judged)
        is_whole = contract is not None or cut_finish(judged.reply) is None
        if refusal is None and is_whole and self.plan.memory is not None:
            await self.plan.memory.keep(self._session, Remembered(self._message, str(answer)))
        return answer

    def _ask_again(self, refusal: OutputSchemaError, attempt: int, retries: int) -> None:
        correction = framed(issue_lines(refusal), attempt + 1, retries + 1)
        self._messages += [Message("assistant", echo(refusal)), Message("user", correction)]
        hashed = _fnv1a(correction)
        self._add_attempt("retried", refusal, hashed)
        self._emitter.emit(
            "agent.output_schema_retry",
            attempt=attempt,
            retries_remaining=retries - attempt,
            iteration=self._iteration,
            stage=refusal.stage,
            error=refusal.error,
            path=refusal.path,
            corrective_message_hash=hashed,
        )
        self._requester.reset("schema-fail")

    def _conclude(self, judged: Judged) -> Answer:
        """Make a reply the answer of the run, whether it keeps the contract or not."""
        reply, self._verdict = judged.reply, judged.verdict
        if isinstance(judged.verdict, Parsed):
            repairs = tuple(repair.code for repair in judged.verdict.repairs)
            self._add_attempt("passed", None, repairs=repairs)
            if repairs:
                self._emitter.emit("agent.output_repaired", repairs=list(repairs))
        elif judged.verdict is not None:
            self._add_attempt("exhausted", judged.verdict)
            self._emit_unmet(judged.verdict, len(self._attempts))
            self._requester.reset("schema-fail")
        text = reply.content
        self._messages.append(Message("assistant", text))
        self.answer = Answer(text, self.account, tuple(self._messages), reply.finish)
        return self.answer

    def _add_attempt(
        self,
        outcome: Outcome,
        refusal: OutputSchemaError | None,
        hashed: str | None = None,
        repairs: tuple[str, ...] = (),
    ) -> None:
        number = len(self._attempts) + 1
        stage = error = path = None
        if refusal is not None:
            stage, error, path = refusal.stage, refusal.error, refusal.path
        self._attempts.append(
            AnswerAttempt(number, self._iteration, outcome, stage, error, path, hashed, repairs)
        )

    def _emit_unmet(self, refusal: OutputSchemaError, attempts: int) -> None:
        has_fallback = self.plan.fallback is not None
        self._unmet = Unmet(
            refusal.stage, refusal.error, attempts, attempts - 1, has_fallback, refusal.path
        )
        self._emitter.emit(
            "agent.output_contract_unmet",
            stage=refusal.stage,
            error=refusal.error,
            path=refusal.path,
            attempts=attempts,
            retries_spent=attempts - 1,
            fallback_configured=has_fallback,
            iteration=self._iteration,
        )
        # Log only the stage: a model's text may hold secrets or personal data.
        _log.warning(
            "the answer of agent '%s' (run %s) breaks its contract at stage %s after %s attempts",
            self.plan.name,
            self._run_id,
            refusal.stage,
            attempts,
        )

    def _emit_unmet_by_rules(self, error: RunStopped) -> None:
        if isinstance(error, ReliabilityFailFastError) and isinstance(
            error.cause, OutputSchemaError
        ):
            self._add_attempt("exhausted", error.cause)
            self._emit_unmet(error.cause, error.payload["attempt"])

    # --- limits ---------------------------------------------------------------------------

    def _seconds_left(self) -> float | None:
        spent = self._seconds + time.monotonic() - self._begun
        limit, deadline = self.plan.limits.seconds, self._caller.deadline
        left = [] if limit is None else [limit - spent]
        if deadline is not None:
            left.append(deadline / 1000 - time.time())
        return max(min(left), 0.001) if left else None

    def _check_limits(self) -> None:
        limits = self.plan.limits
        if self._iteration >= limits.iterations:
            raise LimitReached("iterations", limits.iterations)
        self._spending.check()


def _fnv1a(text: str) -> str:
    """32 bits of FNV-1a in lower hex."""
    value = 0x811C9DC5
    for byte in text.encode("utf-8", "surrogatepass"):
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{value:x}"
