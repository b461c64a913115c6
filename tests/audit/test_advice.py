"""Advice: what callers send and contracts refuse, and the relaxation that would let it in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patched import apply

from callpact.audit import Record
from callpact.audit.analysis.advice import advise, relaxed
from callpact.audit.analysis.replay import Lost, replay
from callpact.audit.record import error_key, note_of, payload_of
from callpact.audit.reports import advice_tail, encode_advice, relaxation_cells
from callpact.errors import InvalidInput
from callpact.gate import admit
from callpact.tool import Contract, Tool

SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer", "maximum": 50},
        "unit": {"enum": ["kg", "lb"]},
        "market": {"type": "string"},
    },
    "required": ["query", "market"],
    "additionalProperties": False,
}
GOOD = {"query": "tea", "market": "de"}


async def _handler(arguments, context):
    raise AssertionError("advice runs nothing")


def _tool(schema=SEARCH, **contract):
    aliases = contract.pop("aliases", {})
    contract = Contract(input=schema, **contract)
    return Tool(
        id="shop.search",
        description="",
        contract=contract,
        handler=_handler,
        argument_aliases=aliases,
    )


def _records(tool, *inputs, **kept):
    return [_record(number, tool, sent, **kept) for number, sent in enumerate(inputs)]


def _record(number, tool, sent, **kept):
    more = {"input": payload_of(json.dumps(sent).encode(), **kept)}
    try:
        admit(tool, sent)
    except InvalidInput as error:
        issues = error.issues
        more |= {"gate": "input", "code": error.code, "issues": tuple(map(note_of, issues))}
        more["key"] = error_key(error.code, issues[0].path, issues[0].code)
    return Record(id=f"r{number:04}", at=number, ms=1.0, tool="shop.search", **more)


def _one(tool, *inputs):
    """The one relaxation that is advised, proved by the gate itself."""
    (found,) = advise(_records(tool, *inputs), tool).relaxations
    for sent in inputs:
        admit(relaxed(tool, found), sent)
    return found


def test_five_of_a_hundred_calls_ask_for_more_than_is_allowed():
    sent = [{**GOOD, "limit": 100 if i % 20 == 0 else 50} for i in range(100)]
    found = _one(_tool(), *sent)
    assert (found.kind, found.path, found.rule) == ("schema", "/limit", "maximum")
    assert found.key == "schema_validation_failed:/limit:maximum"
    assert (found.seen, found.saved, found.of, found.share) == (5, 5, 100, 0.05)
    assert found.samples == ("100",)
    assert found.words == "/properties/limit/maximum: 50 → 100"
    assert apply(SEARCH, found.patch.operations)["properties"]["limit"]["maximum"] == 100


def test_a_number_as_text_is_accepted_by_the_tolerant_policy_and_the_type_stays():
    found = _one(_tool(), GOOD, {**GOOD, "limit": "10"}, {**GOOD, "limit": "20"})
    assert (found.kind, found.input_policy, found.patch) == ("tolerant", "tolerant", None)
    assert (found.seen, found.saved, found.samples) == (2, 2, ('"10"', '"20"'))


@pytest.mark.parametrize("times", [1, 50])
def test_a_type_is_not_widened_to_another_because_callers_send_it(times):
    tool = _tool()
    report = advise(_records(tool, GOOD, *[{**GOOD, "limit": "ten"}] * times), tool)
    assert (report.relaxations, report.saved) == ((), 0)
    (left,) = report.unsolved
    assert (left.path, left.rule, left.seen, left.samples) == ("/limit", "type", times, ('"ten"',))
    assert list(advice_tail(report)) == [
        "left as it is: type at /limit, another type is a mistake of its caller"
    ]


@pytest.mark.parametrize(
    ("sent", "types"), [(None, ["integer", "null"]), (2.5, "number"), (7.25, "number")]
)
def test_a_type_is_widened_to_null_and_to_numbers_that_are_not_whole(sent, types):
    found = _one(_tool(), {**GOOD, "limit": sent})
    assert found.patch.after["properties"]["limit"]["type"] == types


def test_the_null_of_one_call_is_proposed_without_the_text_of_another():
    tool = _tool()
    report = advise(_records(tool, {**GOOD, "limit": None}, {**GOOD, "limit": "ten"}), tool)
    (found,) = report.relaxations
    assert found.patch.after["properties"]["limit"]["type"] == ["integer", "null"]
    assert (found.saved, report.saved) == (1, 1)


def test_a_synonym_becomes_a_choice():
    found = _one(_tool(), {**GOOD, "unit": "KG"}, {**GOOD, "unit": "kg"})
    assert (found.kind, found.rule) == ("schema", "enum")
    assert found.patch.after["properties"]["unit"]["enum"] == ["kg", "lb", "KG"]


def test_a_synonym_becomes_a_choice_of_an_optional_argument():
    unit = {"anyOf": [{"type": "string", "enum": ["kg"]}, {"type": "null"}]}
    found = _one(_tool({"type": "object", "properties": {"unit": unit}}), {"unit": "KG"})
    assert found.words == '/properties/unit/anyOf/0/enum: ["kg"] → ["kg", "KG"]'


def test_a_union_is_reported_without_a_proposal():
    unit = {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "object", "required": ["id"]}]}
    tool = _tool({"type": "object", "properties": {"unit": unit}})
    report = advise(_records(tool, {"unit": "kilogram"}, {"unit": "kg"}), tool)
    assert report.relaxations == ()
    (left,) = report.unsolved
    assert (left.path, left.rule, left.seen, left.samples) == (
        "/unit",
        "maxLength",
        1,
        ('"kilogram"',),
    )
    assert relaxation_cells(left) == ("/unit", "maxLength", "1", "50.0 %", "-", '"kilogram"')
    assert list(advice_tail(report)) == ["left as it is: maxLength at /unit, no change is proposed"]
    assert encode_advice("shop.search", report)["unsolved"][0]["share"] == 0.5


def test_arguments_of_digits_are_advised_upon_by_their_names():
    years = {"2024": {"maximum": 5}, "2025": {"maximum": 5}}
    tool = _tool({"type": "object", "properties": years})
    report = advise(_records(tool, {"2024": 6}, {"2025": 7}), tool)
    assert [(one.path, one.words) for one in report.relaxations] == [
        ("/2024", "/properties/2024/maximum: 5 → 6"),
        ("/2025", "/properties/2025/maximum: 5 → 7"),
    ]
    # Records tell only the pointer.
    assert {one.key for one in report.relaxations} == {"schema_validation_failed:/*:maximum"}


@pytest.mark.parametrize("name", ["Market", "markets", "mar_ket"])
def test_a_key_that_is_nearly_a_known_one_becomes_an_alias(name):
    tool = _tool()
    sent = {"query": "tea", name: "de"}
    report = advise(_records(tool, GOOD, sent), tool)
    found = next(r for r in report.relaxations if r.kind == "alias")
    assert (found.path, found.aliases, found.saved) == (f"/{name}", {name: "market"}, 1)
    admit(relaxed(tool, found), sent)


def test_a_key_that_stands_in_for_a_missing_one_becomes_an_alias():
    tool = _tool()
    report = advise(
        _records(tool, {"q": "tea", "market": "de"}, {"q": "oil", "market": "fr"}), tool
    )
    found = report.relaxations[0]
    assert (found.kind, found.aliases, found.saved) == ("alias", {"q": "query"}, 2)


def test_an_unknown_key_that_stands_for_nothing_is_declared():
    found = _one(_tool(), {**GOOD, "verbose": True})
    assert (found.kind, found.rule) == ("schema", "additionalProperties")
    assert found.patch.after["properties"]["verbose"] == {"type": "boolean"}


def test_a_required_key_that_is_often_missing_gets_the_value_most_callers_give():
    sent = [GOOD, GOOD, {**GOOD, "market": "fr"}, {"query": "tea"}]
    found = _one(_tool(), *sent)
    assert (found.kind, found.path, found.rule) == ("default", "/market", "required")
    assert found.patch.after["required"] == ["query"]
    assert found.patch.after["properties"]["market"]["default"] == "de"
    assert apply(found.patch.before, found.patch.operations) == found.patch.after


def test_no_default_is_made_up():
    found = _one(_tool(), {"query": "tea"})
    assert found.kind == "schema"
    assert "default" not in found.patch.after["properties"]["market"]


def test_relaxations_are_ranked_by_the_calls_that_each_saves_and_add_up():
    tool = _tool()
    inputs = [{**GOOD, "limit": 60}] * 3 + [{**GOOD, "unit": "oz"}] * 4
    inputs += [{**GOOD, "limit": 60, "unit": "oz"}, GOOD]
    report = advise(_records(tool, *inputs), tool)
    told = [(r.rule, r.seen, r.saved) for r in report.relaxations]
    assert told == [("enum", 5, 4), ("maximum", 4, 3)]
    assert (report.calls, report.refused, report.saved, report.checked) == (9, 8, 8, 1)


def test_a_bound_behind_a_text_is_met_by_both_changes_together():
    tool = _tool()
    inputs = [{**GOOD, "limit": "10"}, {**GOOD, "limit": 100}, {**GOOD, "limit": "100"}]
    report = advise(_records(tool, *inputs), tool)
    assert [(r.kind, r.saved) for r in report.relaxations] == [("tolerant", 1), ("schema", 1)]
    assert report.saved == 3


def test_aliases_that_are_there_already_are_reckoned_with():
    tool = _tool(aliases={"q": "query"})
    found = _one(tool, {"q": "tea", "market": "de", "limit": 51})
    assert found.patch.after["properties"]["limit"]["maximum"] == 51


def test_what_the_contract_lets_in_by_now_asks_for_nothing():
    records = _records(_tool(), {**GOOD, "limit": 60})
    wider = {**SEARCH, "properties": {**SEARCH["properties"], "limit": {"maximum": 60}}}
    report = advise(records, _tool(wider))
    assert (report.refused, report.outdated, report.relaxations) == (1, 1, ())


def test_inputs_that_are_not_kept_are_told():
    tool = _tool()
    report = advise(_records(tool, {**GOOD, "limit": 60}, hashes_only=True), tool)
    assert (report.refused, report.lost, report.relaxations) == (1, Lost(hashed=1), ())


def test_what_was_hidden_asks_for_nothing():
    tool = _tool()
    report = advise(_records(tool, {**GOOD, "limit": "***"}), tool)
    assert (report.lost, report.relaxations) == (Lost(masked=1), ())


_VALUES = st.none() | st.integers(0, 100) | st.sampled_from(["x", "10", "kg", "KG"])
_INPUTS = st.lists(
    st.dictionaries(st.sampled_from([*SEARCH["properties"], "q", "Limit"]), _VALUES)
    | st.fixed_dictionaries({"query": st.just("x"), "market": st.just("de")}),
    max_size=8,
)


@given(_INPUTS)
def test_no_relaxation_refuses_what_was_let_in_and_each_saves_what_it_says(inputs):
    tool = _tool()
    records = _records(tool, *inputs)
    report = advise(records, tool)
    for relaxation in report.relaxations:
        replayed = replay(records, {"shop.search": relaxed(tool, relaxation)})
        assert (replayed.now_refused, replayed.now_admitted) == (0, relaxation.saved)
    assert report.saved >= max((r.saved for r in report.relaxations), default=0)
    assert advise(reversed(records), tool) == report
