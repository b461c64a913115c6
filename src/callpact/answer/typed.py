"""From a run to a value under contract: judged, or by the tiers of the fallback."""

from __future__ import annotations

from typing import Any

from callpact.answer.account import Answer, Paused, TypedResult
from callpact.answer.events import Teller
from callpact.answer.fallback import Recovered, recovered
from callpact.answer.loop import Run
from callpact.answer.plan import AnswerContract, Plan
from callpact.errors import OutputSchemaError, ReliabilityFailFastError, RunPaused, UsageError


def contract_of(plan: Plan) -> AnswerContract:
    """The contract of an agent's answer.

    Raises:
        UsageError: it has none.
    """
    if plan.contract is None:
        raise UsageError("the agent has no output_schema, so there is no typed answer; use run()")
    return plan.contract


async def result_of(plan: Plan, run: Run) -> TypedResult[Any]:
    """The value of a run, and how it came about.

    Raises:
        OutputSchemaError: the answer breaks the contract, and no fallback answers.
        RunPaused: a tool waits for an answer.
    """
    contract, teller = contract_of(plan), Teller(plan.handlers, run.account.run_id)
    try:
        answer = await run.go()
    except ReliabilityFailFastError as error:
        cause = error.cause
        if plan.fallback is None or not isinstance(cause, OutputSchemaError):
            raise
        # The caller was promised a value either way.
        given_up = OutputSchemaError(cause.stage, cause.raw_output, error, cause.issues)
        given_up.account = error.account
        try:
            found = await by_tiers(plan, given_up, teller, error.payload["attempt"] - 1)
        except Exception as failure:  # boundary: no tier answers, so the rules have the last word
            raise error from failure
        refused = Answer(cause.raw_output, error.account, run.messages)
        return TypedResult(found.value, found.tier, (), refused)
    if isinstance(answer, Paused):
        raise RunPaused(answer)
    try:
        parsed = contract.parse(answer, answer.finish)
    except OutputSchemaError as error:
        error.account = answer.account
        unmet = answer.account.unmet
        spent = None if unmet is None else unmet.retries_spent
        found = await by_tiers(plan, error, teller, spent)
        return TypedResult(found.value, found.tier, (), answer)
    return TypedResult(parsed.value, "primary", parsed.repairs, answer)


async def by_tiers(
    plan: Plan, error: OutputSchemaError, teller: Teller, retries_spent: int | None
) -> Recovered[Any]:
    """The value that the fallback gives instead.

    Raises:
        OutputSchemaError: there is no fallback, or it breaks the contract, too.
    """
    if plan.fallback is None:
        raise error
    return await recovered(error, plan.fallback, contract_of(plan).shape, teller, retries_spent)
