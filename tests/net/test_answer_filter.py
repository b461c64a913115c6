"""Answers to other requests are dropped from a stream of events, whatever its chunks."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.net.answer_filter import AnswerFilter

BREAKS = ["\n", "\r\n", "\r"]
OURS = [
    {"id": 7, "result": {"a": 1}},
    {"id": "7", "result": {}},
    {"id": 7, "error": {"code": 1, "message": "no"}},
    {"id": None, "error": {"code": -32700, "message": "unreadable"}},
    {"method": "notifications/progress", "params": {"progress": 1}},
    {"id": 8, "method": "elicitation/create", "params": {}},
]
OTHERS = [
    {"id": 8, "result": {}},
    {"id": "another", "result": {}},
    {"id": None, "result": {}},
    {"id": {"a": 1}, "result": {}},
    {"id": 70, "error": {"code": 1, "message": "no"}},
    {"result": {}},
]
ODD = [": comment", "data: not json", "event: odd", "id: 5", "retry: 10", "data: [1]", "data"]


def event(message, line_break="\n", *, is_split=False):
    text = json.dumps({"jsonrpc": "2.0", **message}, indent=1 if is_split else None)
    lines = [f"data: {line}" for line in text.split("\n")]
    return (line_break.join(["event: message", *lines]) + line_break * 2).encode()


def passed(data, cuts=(), limit=1_000_000):
    events = AnswerFilter(7, limit)
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(places)]
    return b"".join([*map(events.feed, pieces), events.rest()])


@pytest.mark.parametrize("message", OURS)
def test_our_answer_and_all_that_is_no_answer_pass(message):
    assert passed(event(message)) == event(message)


@pytest.mark.parametrize("message", OTHERS)
def test_an_answer_to_another_request_is_dropped(message):
    assert passed(event(message)) == b""


@given(
    st.lists(
        st.tuples(st.sampled_from([*OURS, *OTHERS]), st.sampled_from(BREAKS), st.booleans())
        | st.sampled_from(ODD)
    ),
    st.lists(st.integers(min_value=0)),
)
def test_chunks_make_no_difference(parts, cuts):
    data = kept = b""
    for part in parts:
        if isinstance(part, str):
            made = f"{part}\n\n".encode()
        else:
            made = event(part[0], part[1], is_split=part[2])
        data += made
        if isinstance(part, str) or part[0] in OURS:
            kept += made
    assert passed(data, cuts) == kept


def test_the_start_of_an_event_without_end_passes():
    assert passed(b'data: {"id": 8, "result"') == b'data: {"id": 8, "result"'


def test_an_answer_to_another_request_is_dropped_without_the_end_of_its_event():
    assert passed(event(OTHERS[0]).rstrip()) == b""


def test_an_event_over_the_limit_passes_for_its_reader_to_refuse():
    data = event({"id": 8, "result": "x" * 1_000})
    assert passed(data, cuts=(500,), limit=100) == data


def test_the_last_event_is_known():
    events = AnswerFilter(7, 1_000)
    events.feed(b"id: a\n\nid: b\ndata: 1\n\nid: c")
    assert events.last_event == "b"
