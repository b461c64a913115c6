"""`Agent`: a model, its tools, and the contract of its final answer. The entry point of the package.

An agent is immutable: every method that declares something returns a new one.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar, Unpack, cast, overload

from msgspec import UNSET
from pydantic import TypeAdapter

from callpact.agent.account import Answer, Paused, TypedResult
from callpact.agent.answer.fallback import declared_fallback, recovered
from callpact.agent.answer.parse import Parsed, RepairMode, parse_answer
from callpact.agent.answer.shape import Parser
from callpact.agent.answer_events import Emitter, EventHandler
from callpact.agent.as_tool import agent_tool
from callpact.agent.budget import MAX_ITERATIONS, MAX_REJECTIONS, declared_limits
from callpact.agent.declaration import (
    AgentOptions,
    AnswerOptions,
    MessageInput,
    RunOptions,
    Tools,
    allowed_repairs,
    check_agent,
    check_options,
    checked_history,
    declared_contract,
    message_of,
    model_of,
)
from callpact.agent.models.model import Model, ModelRequest
from callpact.agent.plan import Plan, RunCaller
from callpact.agent.prompt.instructions import Injection, Skill, Text, added
from callpact.agent.prompt.memory import TURNS, Memory, SqliteMemory
from callpact.agent.reliability import CircuitBreaker, Rule, Sleep, declared_reliability
from callpact.agent.run.loop import Run
from callpact.agent.run.offered_tools import Offers
from callpact.agent.run.pause import read_checkpoint
from callpact.agent.run.stream import Streamed, streamed
from callpact.catalog import Catalog
from callpact.context import (
    Identity,
)
from callpact.errors import (
    OutputSchemaError,
    RunPaused,
    UsageError,
)
from callpact.runtime import Runtime
from callpact.sources.python.functions import from_functions
from callpact.tool import Tool

T = TypeVar("T")
U = TypeVar("U")


class Agent(Generic[T]):
    """A model that may call tools, and whose final answer is checked against a contract.

    `Agent("openai:gpt-5", system="…").tools(catalog).output_schema(Refund, retries=2)`; the same
    can be given as keyword arguments. A model given by its name is opened on its first request.
    `observers` are notified of every call and every request to the model, like those of a
    `Runtime`; handlers given to `on` receive the events of a run.

    Raises:
        UsageError: an option is not valid; the text names the remedy.
    """

    __slots__ = ("_plan",)

    _plan: Plan

    @overload
    def __init__(
        self: Agent[U],
        model: Model | str,
        *,
        output_schema: type[U] | TypeAdapter[U] | Parser[U],
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[U],
        model: Model | str,
        *,
        output_schema: Callable[[Any], U],
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[Any],
        model: Model | str,
        *,
        output_schema: Mapping[str, Any] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    def __init__(
        self, model: Model | str, *, output_schema: Any = None, **options: Unpack[AgentOptions]
    ) -> None:
        check_options(options, AgentOptions)
        system, name = options.get("system", ""), options.get("name", "agent")
        check_agent(system, name)
        runtime = Runtime((), options.get("observers", ()))
        settings = dict(options.get("settings") or {})
        self._plan = Plan(model_of(model), name, runtime, system, settings=settings)
        tools, retries = options.get("tools"), options.get("retries", 0)
        if tools is not None:
            self._plan = self._tooled(tools)
        if output_schema is not None:
            self._plan = self._contracted(output_schema, retries=retries)
        elif retries:
            raise UsageError("retries ask again for what breaks output_schema=, and there is none")
        fallback, canned = options.get("fallback"), options.get("canned", UNSET)
        if fallback is not None or canned is not UNSET:
            self._plan = self._recovering(fallback, canned)

    @staticmethod
    def _of(plan: Plan) -> Agent[Any]:
        agent: Agent[Any] = object.__new__(Agent)  # pyright: ignore[reportUnknownVariableType] - not yet of a type
        agent._plan = plan
        return agent

    def _with(self, **changes: Any) -> Agent[T]:
        return self._of(dataclasses.replace(self._plan, **changes))

    @property
    def name(self) -> str:
        """The agent's name in events, records and checkpoints."""
        return self._plan.name

    # --- declaring ------------------------------------------------------------------------

    def tools(self, tools: Tools) -> Agent[T]:
        """Declare the tools that the model may call: a catalog, tools, functions, or a runtime.

        Raises:
            UsageError: the agent has tools already.
            DeclarationError: a function cannot be a tool.
        """
        return self._of(self._tooled(tools))

    def _tooled(self, tools: Tools) -> Plan:
        plan = self._plan
        if plan.has_tools:
            raise UsageError("the agent has tools already; give them all at once, or join catalogs")
        if plan.is_forced:
            raise UsageError("strategy='tool-forced' leaves no room for tools; use 'instruct'")
        if not isinstance(tools, Runtime):
            catalog = tools if isinstance(tools, Catalog) else Catalog(from_functions(tools))
            runtime = plan.runtime.over(catalog)
            return dataclasses.replace(plan, runtime=runtime, has_tools=True, offers=Offers())
        if plan.runtime.has_observers:
            raise UsageError("the runtime has observers of its own; give them to it, not the agent")
        return dataclasses.replace(plan, runtime=tools, has_tools=True, offers=Offers())

    @overload
    def output_schema(
        self,
        schema: type[U] | TypeAdapter[U] | Parser[U],
        **options: Unpack[AnswerOptions],
    ) -> Agent[U]: ...
    @overload
    def output_schema(
        self, schema: Callable[[Any], U], **options: Unpack[AnswerOptions]
    ) -> Agent[U]: ...
    @overload
    def output_schema(self, schema: Any, **options: Unpack[AnswerOptions]) -> Agent[Any]: ...
    def output_schema(self, schema: Any, **options: Unpack[AnswerOptions]) -> Agent[Any]:
        """Declare the shape of the final answer: it is sent to the model, and the answer is checked.

        `name` is the id of the injected instruction; `instruction` replaces its text. `retries` are
        corrective re-asks, each a turn of its own. `repair="safe"` reads slightly broken JSON, and
        `allow` names repairs that could change its meaning. `strategy="tool-forced"` makes the
        model answer by a tool call, if it declares that ability.

        Raises:
            UsageError: there is a schema already, or an option is not valid.
            InvalidSchema: a JSON Schema that cannot be compiled.
        """
        return self._of(self._contracted(schema, **options))

    def _contracted(self, schema: Any, **options: Unpack[AnswerOptions]) -> Plan:
        plan = self._plan
        if plan.contract is not None:
            raise UsageError(
                "output_schema is already set; an agent has one contract for its answer: build two "
                "agents for two shapes"
            )
        contract = declared_contract(schema, **options)
        if contract.strategy == "tool-forced" and (plan.has_tools or plan.skills):
            raise UsageError("strategy='tool-forced' leaves no room for tools; use 'instruct'")
        injections = added(plan.injections, Injection(contract.name, contract.instruction))
        return dataclasses.replace(plan, contract=contract, injections=injections)

    def output_fallback(
        self,
        *,
        fallback: Callable[[OutputSchemaError, str], Any | Awaitable[Any]] | None = None,
        canned: Any = UNSET,
    ) -> Agent[T]:
        """Declare the value that `run_typed` returns when the answer breaks its contract.

        The return value of `fallback(error, raw)` comes first and is checked like an answer; then
        `canned`, which is checked now.

        Raises:
            UsageError: there is no `output_schema` yet, there is a fallback already, or the canned
                value breaks the schema.
        """
        return self._of(self._recovering(fallback, canned))

    def _recovering(self, fallback: Any, canned: Any) -> Plan:
        plan = self._plan
        if plan.contract is None:
            raise UsageError("output_fallback needs output_schema first: there is nothing to keep")
        if plan.fallback is not None:
            raise UsageError("output_fallback is already set; an agent has one")
        held = declared_fallback(plan.contract.shape, fallback, canned)
        return dataclasses.replace(plan, fallback=held)

    def reliability(
        self,
        *rules: Rule | Iterable[Rule],
        pre_check: Iterable[Rule] = (),
        providers: Iterable[Model | str] = (),
        fallback: Callable[[ModelRequest, Exception | None], Any] | None = None,
        circuit_breaker: CircuitBreaker | None = None,
        stops_when_stuck: bool = True,
        shows_failed_answer: bool = True,
        sleep: Sleep = asyncio.sleep,
    ) -> Agent[T]:
        """Declare rules for each attempt at a reply: `.reliability(strict_output_rules(3))`.

        `sleep` is called for the wait of a rule; tests replace it.

        Raises:
            UsageError: the agent has rules already, or a value is no rule.
        """
        if self._plan.reliability is not None:
            raise UsageError("reliability is already set; give all rules at once")
        return self._with(
            reliability=declared_reliability(
                cast("Iterable[Rule]", rules),
                pre_check=pre_check,
                providers=map(model_of, providers),
                fallback=fallback,
                circuit_breaker=circuit_breaker,
                stops_when_stuck=stops_when_stuck,
                shows_failed_answer=shows_failed_answer,
                sleep=sleep,
            )
        )

    def instruction(self, text: Text, *, name: str | None = None) -> Agent[T]:
        """Add text to the system prompt of every request; a function of (turn) is called for each.

        Raises:
            UsageError: another injection has the name.
        """
        injections = self._plan.injections
        id_ = name or f"instruction-{len(injections) + 1}"
        return self._with(injections=added(injections, Injection(id_, text)))

    def skills(self, *skills: Skill) -> Agent[T]:
        """Add instructions that the model reads when it needs them.

        Raises:
            UsageError: two skills have the same name, or the strategy is `tool-forced`.
        """
        plan = self._plan
        if plan.is_forced:
            raise UsageError("strategy='tool-forced' leaves no room for skills; use 'instruct'")
        held = (*plan.skills, *skills)
        names = [skill.name for skill in held]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f"two skills are called '{twice[0]}'; rename one")
        return self._with(skills=held)

    def memory(self, store: Memory | str | Path | None = None, *, turns: int = TURNS) -> Agent[T]:
        """Store the accepted answer of each turn by session, in a SQLite file by default.

        Raises:
            UsageError: the agent has a memory already, or `turns` is less than 1.
        """
        if self._plan.memory is not None:
            raise UsageError("memory is already set; an agent has one")
        if turns < 1:
            raise UsageError(f"a memory recalls one turn or more, got {turns}")
        held = SqliteMemory(store) if store is None or isinstance(store, str | Path) else store
        if not hasattr(held, "recall") or not hasattr(held, "keep"):
            raise UsageError(
                f"a memory is a file, or has recall(…) and keep(…), got {type(held).__name__}"
            )
        return self._with(memory=held, turns=turns)

    def limits(
        self,
        *,
        iterations: int = MAX_ITERATIONS,
        tokens: int | None = None,
        cost: float | None = None,
        seconds: float | None = None,
        rejections: int = MAX_REJECTIONS,
    ) -> Agent[T]:
        """Limit a run; it is stopped with `LimitReached` at a limit.

        Raises:
            UsageError: a limit is no positive number.
        """
        return self._with(
            limits=declared_limits(
                iterations=iterations,
                tokens=tokens,
                cost=cost,
                seconds=seconds,
                rejections=rejections,
            )
        )

    def on(self, handler: EventHandler, *, whole_texts: bool = False) -> Agent[T]:
        """Call a function with each event of a run; with `whole_texts`, texts in events are not cut.

        Raises:
            UsageError: the handler is no function.
        """
        if not callable(handler):
            raise UsageError(f"a handler of events is a function of (event), got {handler!r:.100}")
        whole = whole_texts or self._plan.emits_whole_texts
        return self._with(handlers=(*self._plan.handlers, handler), emits_whole_texts=whole)

    # --- running --------------------------------------------------------------------------

    async def run(self, message: MessageInput, **options: Unpack[RunOptions]) -> Answer | Paused:
        """Run, and return the final answer, even if it breaks the contract, or the pause.

        A message is text, or a list of texts and files. `history` are the messages before it, such
        as `answer.messages` of an earlier run. `model` replaces the agent's own model in this run.
        With an identity, only tools that it may use are offered and called. `session` selects the
        conversation in the memory.

        Raises:
            UsageError: the message is empty, or an option is not valid.
            RunStopped: a limit was reached, or the rules gave up.
            ModelError: a request to the model failed.
        """
        return await self._started(message, options).go()

    async def run_typed(self, message: MessageInput, **options: Unpack[RunOptions]) -> T:
        """Run, and return the value that keeps the contract, from the fallback if necessary.

        Raises:
            OutputSchemaError: the answer breaks the contract, and no fallback gives a value.
            RunPaused: a tool asked a question; the error has the checkpoint.
            RunStopped: a limit was reached, or the rules gave up.
            ModelError: a request to the model failed.
            UsageError: there is no `output_schema`, or as `run`.
        """
        return (await self.run_result(message, **options)).value

    async def run_result(
        self, message: MessageInput, **options: Unpack[RunOptions]
    ) -> TypedResult[T]:
        """`run_typed` with the tier, repairs, attempts, cost and messages beside the value.

        Raises:
            CallpactError: as `run_typed`.
        """
        self._plan.required_contract()
        return await self._started(message, options).result()

    def run_sync(self, message: MessageInput, **options: Unpack[RunOptions]) -> Answer | Paused:
        """`run` for code without an event loop, on the background loop of the agent's runtime.

        Raises:
            UsageError: called inside an event loop, which it would block; or as `run`.
            CallpactError: as `run`.
        """
        return self._plan.runtime.run_sync(self.run, message, **options)

    def run_typed_sync(self, message: MessageInput, **options: Unpack[RunOptions]) -> T:
        """`run_typed` for code without an event loop.

        Raises:
            UsageError: called inside an event loop; or as `run_typed`.
            CallpactError: as `run_typed`.
        """
        return self._plan.runtime.run_sync(self.run_typed, message, **options)

    def stream(
        self, message: MessageInput, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Streamed[T], None]:
        """Yield the answer as it is written: tokens, a reset if they are discarded, and the end.

        With an `output_schema` tokens are provisional; the end has the typed result, from the
        fallback if necessary.

        Raises:
            UsageError: as `run`.
            RunStopped: as `run`, after the streamed tokens.
        """
        return streamed(self._started(message, options))

    def _started(self, message: MessageInput, options: RunOptions) -> Run:
        check_options(options, RunOptions, "a run")
        asked = message_of(message)
        history = checked_history(options.get("history", ()), asked)
        plan, caller = self._answered_by(options.get("model")), RunCaller(options.get("identity"))
        session = options.get("session", "default")
        return Run(plan, asked, session, caller, history=history)

    def _answered_by(self, model: Model | str | None) -> Plan:
        return (
            self._plan if model is None else dataclasses.replace(self._plan, model=model_of(model))
        )

    async def resume(
        self,
        checkpoint: str | bytes | Paused,
        answer: Any,
        *,
        identity: Identity | None = None,
        model: Model | str | None = None,
    ) -> Answer | Paused:
        """Resume a paused run, in this process or another, with the answer to its question.

        Raises:
            UsageError: the checkpoint is of another agent, or the agent lacks the tool that asked;
                nothing was run, and the checkpoint can still be resumed.
            RunStopped: as `run`.
        """
        return await self._resumed(checkpoint, answer, identity, model).go()

    async def resume_typed(
        self,
        checkpoint: str | bytes | Paused,
        answer: Any,
        *,
        identity: Identity | None = None,
        model: Model | str | None = None,
    ) -> T:
        """`resume`, and return the value that keeps the contract, from the fallback if necessary.

        Raises:
            UsageError: as `resume`, or there is no `output_schema`.
            CallpactError: as `run_typed`.
        """
        return (await self.resume_result(checkpoint, answer, identity=identity, model=model)).value

    async def resume_result(
        self,
        checkpoint: str | bytes | Paused,
        answer: Any,
        *,
        identity: Identity | None = None,
        model: Model | str | None = None,
    ) -> TypedResult[T]:
        """`resume_typed` with the tier, repairs, attempts, cost and messages beside the value.

        Raises:
            CallpactError: as `resume_typed`.
        """
        self._plan.required_contract()
        return await self._resumed(checkpoint, answer, identity, model).result()

    def _resumed(
        self,
        checkpoint: str | bytes | Paused,
        answer: Any,
        identity: Identity | None,
        model: Model | str | None,
    ) -> Run:
        text = checkpoint.checkpoint if isinstance(checkpoint, Paused) else checkpoint
        plan, kept = self._answered_by(model), read_checkpoint(text, self.name)
        return Run.resumed(plan, kept, answer, RunCaller(identity))

    # --- reading --------------------------------------------------------------------------

    def parse_output(
        self, raw: str | Paused, *, repair: RepairMode | None = None, allow: Iterable[str] = ()
    ) -> T:
        """Parse an existing answer; `repair` and `allow` override those of `output_schema`.

        Raises:
            OutputSchemaError: it is not JSON, or breaks the schema; the fallback is not used.
            RunPaused: the run paused, and there is no answer yet.
            UsageError: there is no `output_schema`.
        """
        return self.read_output(raw, repair=repair, allow=allow).value

    def read_output(
        self, raw: str | Paused, *, repair: RepairMode | None = None, allow: Iterable[str] = ()
    ) -> Parsed[T]:
        """`parse_output` with the list of repairs beside the value.

        Raises:
            OutputSchemaError: it is not JSON, or breaks the schema.
            RunPaused: the run paused, and there is no answer yet.
            UsageError: there is no `output_schema`.
        """
        contract = self._plan.required_contract()
        if isinstance(raw, Paused):
            raise RunPaused(raw)
        how = contract.repair if repair is None else repair
        allowed = allowed_repairs(allow) or (contract.allow if how == "safe" else ())
        finish = raw.finish if isinstance(raw, Answer) else None
        return parse_answer(raw, contract.shape, repair=how, allow=allowed, finish=finish)

    async def parse_output_async(
        self, raw: str | Paused, *, repair: RepairMode | None = None, allow: Iterable[str] = ()
    ) -> T:
        """`parse_output`, with the fallback for an answer that breaks the contract.

        Raises:
            OutputSchemaError: it breaks the contract, and no fallback gives a value.
            RunPaused: the run paused, and there is no answer yet.
            UsageError: there is no `output_schema`.
        """
        try:
            return self.parse_output(raw, repair=repair, allow=allow)
        except OutputSchemaError as error:
            plan, emitter = self._plan, Emitter(self._plan.handlers)
            shape = plan.required_contract().shape
            return (await recovered(error, plan.fallback, shape, emitter, None)).value

    # --- as a tool ------------------------------------------------------------------------

    def as_tool(
        self, id: str | None = None, *, description: str | None = None, timeout: float | None = None
    ) -> Tool:
        """Return the agent as a tool: the input is a message, the output is the answer.

        Raises:
            InvalidTool: the id is not valid.
        """
        return agent_tool(self._plan, id, description, timeout)

    def __repr__(self) -> str:
        contract = self._plan.contract
        shape = "" if contract is None else f", output_schema={contract.shape.label}"
        return f"Agent({self._plan.model.name!r}, name={self.name!r}{shape})"
