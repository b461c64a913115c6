"""Attempts at one reply of the model, as many as the rules allow.

Every attempt is counted and published to the observers of calls, so it is in the audit log.
Without rules there is one attempt, and a failure is raised.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Any, Literal, cast

import msgspec

from callpact.agent.answer.parse import Verdict
from callpact.agent.answer_events import Emitter
from callpact.agent.budget import Spending
from callpact.agent.models.model import (
    NATIVE_ANSWER,
    Finish,
    Message,
    Model,
    ModelReply,
    ModelRequest,
    ToolUse,
    Usage,
    abilities_of,
    as_data,
    without_ephemeral,
)
from callpact.agent.reliability import (
    GENERIC_FEEDBACK,
    MAX_ROUNDS,
    MAX_WAIT,
    ErrorKind,
    Reliability,
    Rule,
    Scope,
    ValidationError,
    echo,
    error_kind,
    is_outage,
    validation_error,
    wait_of,
)
from callpact.context import Identity
from callpact.envelope import local_envelope
from callpact.errors import (
    CallError,
    ModelError,
    OutputSchemaError,
    ReliabilityFailFastError,
    RunStopped,
    ToolError,
    UsageError,
)
from callpact.observers import CallFinished
from callpact.protocol.events import new_id
from callpact.runtime import Runtime
from callpact.schema import is_json
from callpact.schema.json_text import json_text
from callpact.tool import Tool

Phase = Literal["pre-check", "post-decide"]
Judge = Callable[[str, Finish | None], Verdict]
"""Parses the text of a reply as the final answer; the second argument is the finish reason."""
_log = logging.getLogger("callpact.agent")


class Judged(msgspec.Struct, frozen=True):
    """A reply and the verdict on its text; tool calls have no verdict, nor replies without a contract."""

    reply: ModelReply
    verdict: Verdict | None = None

    @property
    def refusal(self) -> OutputSchemaError | None:
        """The reason why the reply cannot be the final answer, if there is one."""
        return self.verdict if isinstance(self.verdict, OutputSchemaError) else None


class _Outcome(msgspec.Struct, frozen=True):
    """The outcome of one attempt: the judged reply, and the failure."""

    judged: Judged | None = None
    error: Exception | None = None
    kind: ErrorKind = "ok"
    latency_ms: float = 0.0

    @property
    def accepted(self) -> Judged | None:
        """The reply, if nothing failed."""
        return self.judged if self.error is None else None


_NO_ATTEMPT = _Outcome()


class Requester:
    """Sends the requests of one run to models, counts their cost and publishes them."""

    def __init__(
        self,
        *,
        model: Model,
        tool: Tool,
        runtime: Runtime,
        emitter: Emitter,
        identity: Identity | None,
        spending: Spending,
    ) -> None:
        self._model = model
        self._tool = tool
        self._runtime = runtime
        self._emitter = emitter
        self._identity = identity
        self.on_token: Callable[[str], None] | None = None
        self.on_reset: Callable[[str], None] | None = None
        self._has_streamed = False
        self._seen = 0
        self.spending = spending
        self.made = 0

    async def send(
        self,
        request: ModelRequest,
        judge: Judge | None = None,
        *,
        model: Model | None = None,
        attempt: int = 1,
    ) -> Judged:
        """Make one attempt, record it, and judge its text.

        Raises:
            ModelError: the request failed, or the reply is unusable.
        """
        model = model or self._model
        started, begun = time.time_ns() // 1_000_000, time.perf_counter()
        reply: ModelReply | None = None
        failure: Exception | None = None
        self.made += 1
        self.spending.add(requests=1)
        try:
            reply = _forced_answer(await self._reply(model, _fitted(request, model)), request)
            self.spending.add(reply.usage)
            judged = _judged(reply, judge)
            failure = judged.refusal
        except Exception as error:
            failure = error
            raise
        finally:
            self._record(model, request, attempt, started, begun, reply, failure)
        return judged

    async def _reply(self, model: Model, request: ModelRequest) -> ModelReply:
        stream = getattr(model, "stream", None)
        if self.on_token is None or stream is None:
            return _checked(await model.complete(request), model)
        last: Any = None
        async for item in stream(request):
            if isinstance(item, str):
                self._has_streamed = self._has_streamed or bool(item)
                self.on_token(item)
            else:
                last = item
        return _checked(last, model)

    def reset(self, reason: str) -> None:
        """Report that the streamed text of this reply is discarded."""
        if self._has_streamed and self.on_reset is not None:
            self._has_streamed = False
            self.on_reset(reason)

    def begin(self) -> None:
        """Start a new reply: text that was streamed before is no longer discarded."""
        self._has_streamed = False

    def _record(  # noqa: PLR0917 - by position, like the event that it makes
        self,
        model: Model,
        request: ModelRequest,
        attempt: int,
        started: int,
        begun: float,
        reply: ModelReply | None,
        failure: Exception | None,
    ) -> None:
        fresh = request.messages[min(self._seen, len(request.messages)) :] or request.messages[-1:]
        self._seen = len(without_ephemeral(request.messages))
        arguments = {
            "model": model.name,
            "iteration": self._emitter.iteration,
            "attempt": attempt,
            "messages": [as_data(message) for message in fresh],
        }
        envelope = None
        if reply is not None:  # Refused replies are recorded as well: the log is searched for them.
            envelope = local_envelope(as_data(reply), self._tool.id)
        self._runtime.publish(
            CallFinished(
                new_id(),
                self._tool.id,
                arguments,
                started,
                time.perf_counter() - begun,
                envelope,
                _record_error(failure, reply),
                self._identity,
                self._emitter.run_id,
                None,
                self._tool,
                "agent",
            )
        )


def _judged(reply: ModelReply, judge: Judge | None) -> Judged:
    if judge is None or reply.tool_uses:
        return Judged(reply)
    return Judged(reply, judge(reply.content, reply.finish))


def _checked(reply: Any, model: Model) -> ModelReply:
    if not isinstance(reply, ModelReply):
        kind = type(reply).__name__
        raise ModelError(f"the model '{model.name}' must give a ModelReply, got {kind}")
    content: Any = reply.content
    uses: Any = reply.tool_uses
    if not isinstance(content, str) or not isinstance(cast("Any", reply.usage), Usage):
        raise ModelError(f"the model '{model.name}' gave a reply without text or usage")
    reason: Any = reply.stop_reason
    if reason is not None and not isinstance(reason, str):
        kind = type(reason).__name__
        raise ModelError(f"the stop_reason of a reply is text, '{model.name}' gave {kind}")
    if not isinstance(uses, tuple) or not all(map(_is_use, cast("tuple[Any, ...]", uses))):
        raise ModelError(
            f"the model '{model.name}' wants something called that is no ToolUse with an id and a "
            "name as text, and arguments that are JSON"
        )
    return reply


def _is_use(use: Any) -> bool:
    return (
        isinstance(use, ToolUse)
        and isinstance(cast("Any", use.id), str)
        and isinstance(cast("Any", use.name), str)
        and (isinstance(use.arguments, str) or is_json(use.arguments))
    )


def _fitted(request: ModelRequest, model: Model) -> ModelRequest:
    """Remove the native schema from a request to a model without that ability."""
    if request.answer_schema is None or NATIVE_ANSWER in abilities_of(model):
        return request
    return msgspec.structs.replace(request, answer_schema=None)


def _forced_answer(reply: ModelReply, request: ModelRequest) -> ModelReply:
    """Convert a forced tool call to the text of an answer."""
    forced = request.forced_tool
    use = next((use for use in reply.tool_uses if use.name == forced), None)
    if use is None:
        return reply
    given = use.arguments
    text = given if isinstance(given, str) else json_text(given)
    return msgspec.structs.replace(reply, content=text, tool_uses=())


def _record_error(failure: Exception | None, reply: ModelReply | None) -> CallError | None:
    if failure is None:
        return None if reply is not None else ToolError("aborted", "The model was not heard out")
    if isinstance(failure, OutputSchemaError):
        return ToolError(failure.code, failure.reason, path=failure.path)
    code = failure.code if isinstance(failure, ModelError) else "ERR_MODEL"
    return ToolError(code, f"{type(failure).__name__}: {failure}")


class Attempts:
    """Applies the rules of an agent until a reply is accepted."""

    def __init__(
        self,
        requester: Requester,
        model: Model,
        reliability: Reliability,
        emitter: Emitter,
        *,
        judge: Judge | None,
        seconds_left: Callable[[], float | None],
        on_refused: Callable[[OutputSchemaError], None],
    ) -> None:
        self._requester = requester
        self._on_refused = on_refused
        self._seconds_left = seconds_left
        self._models = (model, *reliability.providers)
        self._config = reliability
        self._breaker = reliability.circuit_breaker
        self._emitter = emitter
        self._judge = judge
        self._rules = reliability.rules

    async def reply(self, request: ModelRequest) -> Judged:
        """Return the reply that the rules accept.

        Raises:
            ReliabilityFailFastError: the rules gave up.
        """
        scope = self._scope(request, 0, 0, (), {})
        rule = _first(self._config.pre_check, scope)
        if rule is not None and rule.then == "fail-fast":
            raise self._give_up(rule.kind or "pre-check-failed", scope, rule.label, "pre-check")
        at, made, prior, failed = 0, 0, 0, scope.error_kind
        counts: dict[str, int] = {}
        errors: tuple[ValidationError, ...] = ()
        sent, how = request, "retry"
        for _ in range(MAX_ROUNDS):
            model = self._models[at]
            outcome = await self._attempt(model, sent, made + 1)
            if outcome.kind != "circuit-open":
                made += 1
                counts[model.name] = counts.get(model.name, 0) + 1
            if isinstance(outcome.error, OutputSchemaError):
                errors = (*errors, validation_error(outcome.error))
            scope = self._scope(request, at, made, errors, counts, outcome=outcome)
            self._emit_failure(scope)
            rule = _first(self._rules, scope)
            verb = rule.then if rule is not None else ("ok" if scope.error is None else "fail-fast")
            label = None if rule is None else rule.label
            kind = (rule.kind if rule is not None else "") or scope.error_kind
            if verb == "ok":
                if outcome.accepted is None:
                    raise self._give_up("no-response", scope, label)
                self._emit_recovery(made, how, prior, failed)
                return outcome.accepted
            if verb == "fallback":
                reply = await self._fall_back(scope, label)
                self._emit_recovery(made, "fallback", prior + 1, scope.error_kind)
                return _judged(reply, self._judge)
            if verb == "fail-fast":
                raise self._give_up(kind, scope, label)
            if verb == "retry-other":
                if not scope.can_switch_provider:
                    raise self._give_up("no-more-providers", scope, label)
                at += 1
            wait = self._wait(rule, scope, prior)
            prior, how, failed = prior + 1, verb, scope.error_kind
            self._emitter.emit(
                "reliability.retried",
                attempt=made,
                action=verb,
                error_kind=scope.error_kind,
                error_message=_error_text(scope),
                from_provider=model.name,
                to_provider=self._models[at].name,
                wait_seconds=wait or None,
            )
            self._requester.reset(scope.error_kind)
            if isinstance(scope.error, OutputSchemaError):
                self._on_refused(scope.error)
            self._requester.spending.check()
            if wait:
                await self._config.sleep(wait)
            sent = await self._corrected(request, rule, scope)
        raise self._give_up("max-loop-exceeded", scope, f"{MAX_ROUNDS} attempts")

    def _wait(self, rule: Rule | None, scope: Scope, retries: int) -> float:
        """Return the seconds to wait before the next attempt.

        Raises:
            ReliabilityFailFastError: the wait is longer than the time left.
        """
        seconds, left = 0.0 if rule is None else wait_of(rule, scope.error, retries), None
        if seconds:
            left = self._seconds_left()
        most = MAX_WAIT if left is None else min(left, MAX_WAIT)
        if seconds > most:
            label = f"the next attempt would be in {seconds:.0f} s, and {most:.0f} s are left"
            raise self._give_up("no-time-to-wait", scope, label)
        return seconds

    async def _attempt(self, model: Model, request: ModelRequest, attempt: int) -> _Outcome:
        begun = time.perf_counter()
        judged: Judged | None = None
        failure: Exception | None = None
        try:
            self._breaker.check(model.name)
            judged = await self._requester.send(request, self._judge, model=model, attempt=attempt)
            failure = judged.refusal
        except (UsageError, RunStopped):
            raise
        except Exception as error:  # noqa: BLE001 - boundary: the rules decide what a failure means
            failure = error
        kind = "ok" if failure is None else error_kind(failure)
        if kind in {"ok", "schema-fail"}:  # The model replied, even if the answer is refused.
            self._breaker.succeeded(model.name)
        elif failure is not None and is_outage(failure):
            self._breaker.failed(model.name)
        return _Outcome(judged, failure, kind, (time.perf_counter() - begun) * 1000)

    def _scope(
        self,
        request: ModelRequest,
        at: int,
        made: int,
        errors: tuple[ValidationError, ...],
        counts: dict[str, int],
        *,
        outcome: _Outcome = _NO_ATTEMPT,
    ) -> Scope:
        is_refused = isinstance(outcome.error, OutputSchemaError)
        return Scope(
            request,
            made,
            len(self._models),
            at,
            self._models[at].name,
            at + 1 < len(self._models),
            self._config.fallback is not None,
            None if outcome.accepted is None else outcome.accepted.reply,
            outcome.error,
            outcome.kind,
            outcome.latency_ms,
            validation_error=errors[-1] if is_refused else None,
            validation_errors=errors,
            attempts_per_provider=dict(counts),
            breaker_states={model.name: self._breaker.state(model.name) for model in self._models},
            usage=self._requester.spending.usage,
        )

    def _emit_failure(self, scope: Scope) -> None:
        error = scope.validation_error
        if error is not None:
            self._emitter.emit(
                "agent.output_schema_validation_failed",
                message=error.message,
                stage=error.stage,
                path=error.path,
                raw_output=self._emitter.shown(error.raw_output),
                attempt=scope.attempt,
                cumulative_retries=scope.attempt - 1,
            )

    def _emit_recovery(self, made: int, how: str, prior: int, failed: ErrorKind) -> None:
        if prior:
            self._emitter.emit(
                "reliability.recovered",
                attempt=made,
                recovered_via=how,
                prior_failures=prior,
                error_kind=failed,
            )

    async def _fall_back(self, scope: Scope, label: str | None) -> ModelReply:
        if self._config.fallback is None:
            raise self._give_up("fallback-not-configured", scope, label)
        self._requester.reset("fallback")
        given = self._config.fallback(scope.request, scope.error)
        given = await given if isawaitable(given) else given
        if isinstance(given, str):
            return ModelReply(given)
        if isinstance(given, ModelReply):
            return given
        raise UsageError(
            "the fallback of reliability must give text or a ModelReply, "
            f"got {type(given).__name__}"
        )

    async def _corrected(
        self, request: ModelRequest, rule: Rule | None, scope: Scope
    ) -> ModelRequest:
        """Return the request with the last failed answer and its feedback, without earlier ones."""
        if rule is None or rule.feedback_for_llm is None:
            return request
        words = await _feedback(rule, scope)
        more = [Message("user", words, ephemeral=True)]
        failed = scope.error
        if isinstance(failed, OutputSchemaError) and self._config.shows_failed_answer:
            more.insert(0, Message("assistant", echo(failed), ephemeral=True))
        return msgspec.structs.replace(request, messages=(*request.messages, *more))

    def _give_up(
        self, kind: str, scope: Scope, label: str | None, phase: Phase = "post-decide"
    ) -> ReliabilityFailFastError:
        payload = {
            "phase": phase,
            "attempt": scope.attempt,
            "provider_used": scope.current_provider,
            "error_kind": scope.error_kind,
        }
        words = _error_text(scope)
        if words is not None:
            payload["error_message"] = words
        self._emitter.emit("reliability.fail_fast", kind=kind, label=label or kind, **payload)
        return ReliabilityFailFastError(
            kind, phase=phase, label=label, cause=scope.error, payload=payload
        )


def _first(rules: tuple[Rule, ...], scope: Scope) -> Rule | None:
    for rule in rules:
        try:
            if rule.when(scope):
                return rule
        except Exception as error:  # noqa: BLE001 - boundary: a rule that raises does not hold
            _log.warning("the rule '%s' raised %r and is ignored", rule.kind, error)
    return None


async def _feedback(rule: Rule, scope: Scope) -> str:
    given: Any = rule.feedback_for_llm
    try:
        if callable(given):
            given = given(scope)
            given = await given if isawaitable(given) else given
        return str(given)
    except Exception as error:  # noqa: BLE001 - boundary: a failed feedback function ends no run
        _log.warning("the feedback of the rule '%s' raised %r", rule.kind, error)
        return GENERIC_FEEDBACK


def _error_text(scope: Scope) -> str | None:
    return None if scope.error is None else str(scope.error) or type(scope.error).__name__
