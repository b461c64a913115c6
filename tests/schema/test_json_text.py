"""What is sent is JSON that every encoder and every reader takes, and all of it."""

from __future__ import annotations

import json
import math
from enum import Enum, StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.schema import is_json
from callpact.schema.bounds import MAX_VALUE_DEPTH
from callpact.schema.json_text import json_text, sendable

BIG = 10**30


class Unit(StrEnum):
    KILO = "kg"


class Level(Enum):
    HIGH = 3


def nested(levels, innermost=BIG):
    value = innermost
    for _ in range(levels):
        value = [value]
    return value


def test_what_every_encoder_takes_is_sent_as_it_is():
    value = {"a": [1, 2.5, None, True, "é"], "b": {}}
    assert sendable(value) is value


@pytest.mark.parametrize(
    "value",
    [
        {"a": BIG, "b": [[i] for i in range(6_000)]},
        {"a": BIG, "b": {str(i): {"n": i} for i in range(6_000)}},
        nested(MAX_VALUE_DEPTH),
        {"a": [Level.HIGH.value, "é"], "b": [[[]]] * 3_000, "c": -BIG},
        [-BIG, BIG**10],
    ],
    ids=["many lists", "many objects", "many levels", "shared", "numbers"],
)
def test_json_with_an_integer_that_not_all_encoders_write_is_sent_whole(value):
    assert is_json(value)
    assert sendable(value) == value
    assert json.loads(json_text(value)) == value
    assert json.loads(json_text(value, indent=True)) == value


def test_tuples_and_members_of_enums_are_sent_as_what_they_stand_for():
    value = {"a": BIG, "b": (Unit.KILO, Level.HIGH), Unit.KILO: 1}
    plain = {"a": BIG, "b": ["kg", 3], "kg": 1}
    sent = sendable(value)
    assert sent == plain
    assert [type(part) for part in sent["b"]] == [str, int]
    assert [type(key) for key in sent] == [str, str, str]
    assert json.loads(json_text(value)) == plain


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (math.nan, None),
        (-math.inf, None),
        ("a\ud800b", "a\N{REPLACEMENT CHARACTER}b"),
        ({"\udfff": 1}, {"\N{REPLACEMENT CHARACTER}": 1}),
        ({1: 2}, {"1": 2}),
        ({"a": {1}}, {"a": "{1}"}),
        (2**20_000, "an integer of 20001 bits"),
    ],
    ids=["nan", "infinity", "surrogate", "surrogate key", "number key", "set", "vast integer"],
)
def test_what_is_not_json_is_told_in_another_way(value, sent):
    assert sendable(value) == sent
    assert json.loads(json_text(value)) == sent


def test_of_what_has_no_end_the_beginning_is_told():
    circle = ["start"]
    circle.append(circle)
    assert sendable(circle) == ["start", "…"]
    assert json.loads(json_text(circle)) == ["start", "…"]
    deep = sendable(nested(2 * MAX_VALUE_DEPTH))
    assert "…" in json.dumps(deep, ensure_ascii=False)
    wide = sendable([{i} for i in range(10)] + [[i] for i in range(50_000)])
    assert wide[0] == "{0}"
    assert wide[-1] == "…"


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**64)
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=()), max_size=3), inner, max_size=3
        )
    ),
    max_leaves=10,
)


def test_json_with_a_lone_surrogate_is_sent_whole_but_for_that():
    value = {"a": "\ud800", "b": [[i] for i in range(6_000)]}
    assert sendable(value) == value | {"a": "\N{REPLACEMENT CHARACTER}"}


@given(ANYTHING)
def test_what_is_sent_reads_back_as_itself_and_nothing_is_lost_of_json(value):
    sent = sendable(value)
    assert is_json(sent)
    assert json.loads(json.dumps(sent)) == sent
    assert json.loads(json_text(value)) == sent
    text = json.dumps(value, ensure_ascii=False)
    if is_json(value) and text == text.encode(errors="replace").decode():
        assert sent == value
