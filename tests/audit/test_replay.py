"""Replay: recorded inputs before a changed gate; nothing is run."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from callpact.audit import Record
from callpact.audit.analysis.replay import MAX_SAMPLES, ChangedCount, Lost, by_name, replay, under
from callpact.audit.record import MAX_PAYLOAD_BYTES, error_key, note_of, payload_of
from callpact.audit.reports import replay_lines
from callpact.errors import InvalidInput
from callpact.gate import admit
from callpact.tool import Access, Contract, Tool

SEARCH = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "limit": {"type": "integer", "maximum": 50}},
    "required": ["q"],
    "additionalProperties": False,
}
TOO_MANY = "schema_validation_failed:/limit:maximum"


async def _never(arguments, context):
    raise AssertionError("a replay runs nothing")


def _tool(schema=SEARCH, **contract):
    contract = Contract(input=schema, **contract)
    return Tool(id="shop.search", description="", contract=contract, handler=_never)


def _limited(maximum):
    return {**SEARCH, "properties": {**SEARCH["properties"], "limit": {"maximum": maximum}}}


def _record(number, arguments, tool=None, **kept):
    """The record of a call, as the gate judged it."""
    more = {"input": payload_of(json.dumps(arguments).encode(), **kept)}
    try:
        admit(tool or _tool(), arguments)
    except InvalidInput as error:
        issues = error.issues
        more |= {"gate": "input", "code": error.code, "issues": tuple(map(note_of, issues))}
        more["key"] = error_key(error.code, issues[0].path, issues[0].code)
    return Record(id=f"r{number:04}", at=number, ms=1.0, tool="shop.search", **more)


def _replayed(records, tool):
    return replay(records, {"shop.search": tool})


def test_a_tighter_contract_tells_which_calls_it_would_refuse_and_why():
    records = [_record(i, {"q": "x", "limit": i}) for i in range(51)]
    report = _replayed(records, _tool(_limited(40)))
    assert (report.calls, report.admitted, report.now_refused, report.now_admitted) == (
        51,
        51,
        10,
        0,
    )
    assert report.refused_by == (ChangedCount("shop.search", TOO_MANY, 10),)
    first = report.refused_samples[0]
    assert (first.id, json.loads(first.input)["limit"]) == ("r0041", 41)
    assert [(note.code, note.path) for note in first.issues] == [("maximum", "/limit")]


def test_a_wider_contract_tells_which_calls_it_would_let_in():
    records = [_record(i, {"q": "x", "limit": 10 * i}) for i in range(11)]
    report = _replayed(records, _tool(_limited(80)))
    assert (report.refused, report.now_admitted, report.now_refused) == (5, 3, 0)
    assert report.admitted_by == (ChangedCount("shop.search", TOO_MANY, 3),)
    assert [turn.id for turn in report.admitted_samples] == ["r0006", "r0007", "r0008"]


def test_samples_are_bounded_and_counts_are_not():
    records = [_record(i, {"q": "x", "limit": 50}) for i in range(MAX_SAMPLES + 5)]
    report = _replayed(records, _tool(_limited(40)))
    assert (len(report.refused_samples), report.now_refused) == (MAX_SAMPLES, MAX_SAMPLES + 5)


def test_inputs_that_were_cut_or_only_hashed_are_told_as_not_replayable():
    records = [
        _record(0, {"q": "x" * MAX_PAYLOAD_BYTES}),
        _record(1, {"q": "x"}, hashes_only=True),
        Record(id="r2", at=2, ms=1.0, tool="shop.search"),
        Record(id="r3", at=3, ms=1.0, tool="shop.search", input=payload_of(b"{")),
    ]
    report = _replayed(records, _tool(_limited(1)))
    assert report.lost == Lost(cut=1, hashed=1, absent=1, unreadable=1)
    assert report.lost.total == 4
    assert (report.now_refused, report.now_admitted) == (0, 0)


def test_what_was_hidden_is_not_taken_for_what_was_sent():
    narrow = {"type": "object", "properties": {"q": {"type": "string", "minLength": 20}}}
    report = _replayed([_record(0, {"q": "***"})], _tool(narrow))
    assert (report.lost, report.now_refused) == (Lost(masked=1), 0)


@pytest.mark.parametrize(
    ("gate", "code"),
    [("access", "access_denied"), ("input", "domain_not_allowed")],
)
def test_calls_that_were_stopped_for_other_reasons_are_passed_over(gate, code):
    sent = payload_of(b'{"q": 1}')
    record = Record(id="r", at=1, ms=1.0, tool="shop.search", gate=gate, code=code, input=sent)
    report = _replayed([record], _tool())
    assert (report.skipped, report.now_refused, report.now_admitted) == (1, 0, 0)


def test_calls_of_a_tool_that_is_gone_would_be_refused_now():
    records = [_record(0, {"q": "x"}), _record(1, {"q": "y"}), _record(2, {"q": 1})]
    report = replay(records, {})
    assert (report.gone, report.admitted, report.refused) == (3, 2, 1)
    assert (report.now_refused, report.now_admitted) == (2, 0)
    assert report.refused_by == (ChangedCount("shop.search", "tool_not_found::", 2),)
    assert report.gone_tools == ("shop.search",)
    told = list(replay_lines(report))
    assert "2 of 2 let in then would be refused now" in told
    assert "  2 × shop.search  tool_not_found::" in told
    assert "3 calls of tools that are not in the sources: shop.search" in told


def _unknown(arguments, **more):
    sent = payload_of(json.dumps(arguments).encode())
    missing = {"gate": "find", "code": "tool_not_found", "key": "tool_not_found::"}
    return Record(id="r", at=1, ms=1.0, tool="shop.search", input=sent, **missing, **more)


@pytest.mark.parametrize(("sent", "passes"), [({"q": "x"}, 1), ({"q": 1}, 0)])
def test_a_call_of_a_tool_that_was_not_there_passes_now_if_its_input_fits(sent, passes):
    report = _replayed([_unknown(sent)], _tool())
    assert (report.refused, report.now_admitted, report.now_refused) == (1, passes, 0)
    turned = ChangedCount("shop.search", "tool_not_found::", 1)
    assert report.admitted_by == ((turned,) if passes else ())


def test_a_call_of_a_tool_that_is_not_there_yet_is_passed_over():
    report = replay([_unknown({"q": "x"})], {})
    assert (report.skipped, report.gone, report.refused) == (1, 0, 0)


def test_a_tool_that_missed_another_one_was_there():
    report = _replayed([_unknown({"q": "x"}, contract="0123456789abcdef")], _tool())
    assert (report.skipped, report.now_admitted) == (1, 0)


def test_a_tool_that_not_everybody_may_find_is_not_said_to_let_calls_in():
    tool = dataclasses.replace(_tool(), access=Access(scopes=("shop:read",)))
    report = _replayed([_unknown({"q": "x"})], tool)
    assert (report.skipped, report.now_admitted) == (1, 0)


def test_an_alias_and_a_wire_name_lead_to_the_tool():
    former = dataclasses.replace(_tool(), id="shop.find", aliases=("shop.search",))
    named = by_name([former])
    assert named.keys() == {"shop.find", former.wire_name, "shop.search"}
    report = replay([_record(0, {"q": "x"}), _record(1, {"q": 1})], named)
    assert (report.gone, report.now_refused, report.now_admitted) == (0, 0, 0)


def test_an_id_leads_to_its_tool_before_an_alias_of_another():
    other = dataclasses.replace(_tool(), id="shop.find", aliases=("shop.search",))
    assert by_name([_tool(), other])["shop.search"].id == "shop.search"


def test_a_call_that_broke_later_was_let_in():
    sent = payload_of(b'{"q": "x", "limit": 50}')
    record = Record(
        id="r", at=1, ms=1.0, tool="shop.search", gate="handler", code="timeout", input=sent
    )
    assert _replayed([record], _tool(_limited(40))).now_refused == 1


_INPUTS = st.dictionaries(
    st.sampled_from(["q", "limit", "extra"]),
    st.none() | st.integers(0, 100) | st.sampled_from(["x", "10"]),
)


@given(st.lists(_INPUTS, max_size=8), st.sampled_from(["exact", "tolerant"]))
def test_an_unchanged_contract_changes_nothing(inputs, policy):
    tool = _tool(input_policy=policy)
    report = _replayed([_record(i, sent, tool) for i, sent in enumerate(inputs)], tool)
    assert (report.now_refused, report.now_admitted) == (0, 0)
    assert (report.calls, report.lost) == (len(inputs), Lost())


@given(st.lists(_INPUTS, max_size=8))
def test_there_and_back_the_same_calls_turn(inputs):
    strict, open_tool = _tool(), under(_tool(), Contract())
    there = _replayed([_record(i, sent, strict) for i, sent in enumerate(inputs)], open_tool)
    back = _replayed([_record(i, sent, open_tool) for i, sent in enumerate(inputs)], strict)
    assert there.now_admitted == back.now_refused
    assert [turn.id for turn in there.admitted_samples] == [t.id for t in back.refused_samples]


# --- two contracts --------------------------------------------------------------------------


def _compared(records, old, new):
    return replay(records, {"shop.search": new}, {"shop.search": old})


def _answered(number, arguments, output, **more):
    record = _record(number, arguments, _tool({"type": "object"}))
    payload = payload_of(json.dumps(output).encode())
    return changed(record, output=payload, **more)


def test_two_contracts_are_compared_whatever_the_recorded_outcome_was():
    records = [_record(i, {"q": "x", "limit": 10 * i}) for i in range(11)]  # Up to 50 was let in.
    report = _compared(records, _tool(_limited(80)), _tool(_limited(20)))
    assert (report.admitted, report.refused) == (9, 2)
    assert (report.now_refused, report.now_admitted) == (6, 0)
    back = _compared(records, _tool(_limited(20)), _tool(_limited(80)))
    assert (back.now_refused, back.now_admitted) == (0, 6)


def test_outputs_that_keep_the_old_contract_and_break_the_new_one_are_counted():
    old = _tool({"type": "object"}, output={"type": "object"})
    schema = {"type": "object", "properties": {"n": {"maximum": 5}}}
    new = _tool({"type": "object"}, output=schema)
    records = [
        *(_answered(i, {}, {"n": i}) for i in range(9)),
        _answered(20, {}, {"n": 20}, tool_error=True),
        _answered(21, {}, ["not an object"]),
    ]
    report = _compared(records, old, new)
    assert (report.outputs, report.now_broken) == (9, 3)
    key = "output_validation_failed:/n:maximum"
    assert report.broken_by == (ChangedCount("shop.search", key, 3),)
    assert [sample.id for sample in report.broken_samples] == ["r0006", "r0007", "r0008"]
    lines = list(replay_lines(report))
    assert "3 of 9 outputs that kept the contract then would break it now" in lines
    assert f"  3 × shop.search  {key}" in lines


def test_inputs_that_are_not_kept_or_have_no_former_contract_are_not_compared():
    lost = _record(0, {"q": "x"}, hashes_only=True)
    report = _compared([lost], _tool(), _tool())
    assert report.lost == Lost(hashed=1)
    unknown = replay([_record(1, {"q": "x"})], {"shop.search": _tool(_limited(0))}, {})
    assert (unknown.skipped, unknown.now_refused) == (1, 0)
    assert "1 call had other reasons than their input, or no former contract" in (
        list(replay_lines(unknown))
    )
