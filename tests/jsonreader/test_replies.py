"""Answers in the manner of real models, read with the help of a schema."""

from __future__ import annotations

from collections import Counter

import pytest
from pydantic import TypeAdapter

from callpact import OutputSchemaError, parse_answer
from callpact.agent import shape_of
from replies import FAMILIES, NONE, replies_of


def outcome(reply):
    try:
        given = parse_answer(reply.text, shape_of(reply.shape), repair="safe").value
    except OutputSchemaError:
        return "refused" if reply.value is NONE else "missed"
    if reply.value is NONE:
        return "wrong"
    return "right" if given == TypeAdapter(reply.shape).validate_python(reply.value) else "wrong"


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_is_read_as_it_says_and_never_as_something_else(family):
    counts = Counter(outcome(each) for each in replies_of(family, 3, 20))
    assert counts["wrong"] == 0
    assert counts["missed"] == 0
