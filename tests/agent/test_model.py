"""Models as the agent uses them."""

from __future__ import annotations

import asyncio

import pytest

from callpact import Agent, ModelError
from callpact.agent import Rule, Usage
from callpact.testing import ScriptedModel


class Connected(ScriptedModel):
    """A model that keeps a connection while it is entered."""

    def __init__(self, replies, *, name="connected"):
        super().__init__(replies, name=name)
        self.entered = self.left = 0

    async def __aenter__(self):
        self.entered += 1
        return self

    async def __aexit__(self, *_):
        self.left += 1


def test_a_model_that_can_be_entered_is_entered_once_for_a_run_of_several_requests():
    model = Connected(["no JSON", "12"])
    assert asyncio.run(Agent(model).output_schema(int, retries=1).run_typed("How many?")) == 12
    assert (len(model.requests), model.entered, model.left) == (2, 1, 1)


def test_a_model_is_left_also_when_the_run_fails():
    model = Connected([ModelError("gone")])
    with pytest.raises(ModelError):
        asyncio.run(Agent(model).run("How many?"))
    assert (model.entered, model.left) == (1, 1)


def test_the_other_models_of_the_rules_are_entered_as_well():
    first, other = Connected([ModelError("gone")]), Connected(["here"], name="other")
    on_error = Rule(lambda scope: scope.error is not None, "retry-other", "down")
    answer = asyncio.run(Agent(first).reliability(on_error, providers=[other]).run("Who?"))
    assert (answer, other.entered, other.left) == ("here", 1, 1)


def test_usage_adds_up_and_a_cost_that_one_side_does_not_know_stays_that_of_the_other():
    assert Usage(1, 2) + Usage(3, 4) == Usage(4, 6)
    assert Usage(1, 2, 0.5) + Usage(3, 4) == Usage(4, 6, 0.5)
    assert Usage(1, 2, 0.5) + Usage(3, 4, 0.25) == Usage(4, 6, 0.75)
    assert Usage(1, 2).tokens == 3
