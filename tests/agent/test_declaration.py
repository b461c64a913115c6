"""What is said of a declaration before anything runs."""

from __future__ import annotations

import logging

import pytest

from callpact import Agent
from callpact.testing import ScriptedModel


def told(caplog, instruction):
    with caplog.at_level(logging.WARNING, "callpact.agent"):
        Agent(ScriptedModel([])).output_schema(dict, name="refunds", instruction=instruction)
    return caplog.text


@pytest.mark.parametrize(
    "instruction",
    ['Answer as {"status": "ok", "items": []}.', 'The schema: {\n  "type": "object"\n}'],
)
def test_a_shape_that_is_spelled_out_in_the_instruction_is_warned_of(caplog, instruction):
    said = told(caplog, instruction)
    assert "'refunds' spells the shape out as JSON" in said
    assert "description" in said


@pytest.mark.parametrize(
    "instruction",
    [
        # As the seed writes one.
        'Return only a JSON object: { status, items }. status is "ok" if you found tickets.',
        "Be brief.",
    ],
)
def test_an_instruction_in_words_is_not(caplog, instruction):
    assert told(caplog, instruction) == ""
