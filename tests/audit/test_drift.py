"""Drift: what answers became, since when, and the patch with which they pass."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patched import apply

from callpact.audit import Note, Record
from callpact.audit.analysis.drift import (
    BUCKETS,
    MAX_KEPT_BYTES,
    MIN_STEADY,
    drift,
    passes,
    restored,
)
from callpact.audit.analysis.replay import Lost
from callpact.audit.record import MAX_PAYLOAD_BYTES, note_of, payload_of
from callpact.audit.reports import drift_tail
from callpact.envelope import local_envelope
from callpact.errors import OutputRejected
from callpact.gate import release
from callpact.schema import compile_schema
from callpact.tool import Contract

TICKER = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "price": {"type": "number"},
        "volume24h": {"type": "number"},
    },
}
ALL = {**TICKER, "required": ["id", "price", "volume24h"]}
START, STEP = 1_000_000, 1_000


class _Changed(Note, frozen=True):
    before: str | None = None


def _change(change):
    before = None if change.action == "filled" else json.dumps(change.before)
    return _Changed(change.action, change.path, before=before)


def _record(number, contract, data, **kept):
    """The record of an answer, as it left the gate."""
    call = Record(id=f"r{number:04}", at=START + number * STEP, ms=1.0, tool="coins.ticker")
    try:
        envelope = release(contract, local_envelope(data, "coins.ticker"))
    except OutputRejected as error:
        notes = tuple(map(note_of, error.issues))
        return msgspec.structs.replace(call, gate="output", code=error.code, issues=notes)
    return msgspec.structs.replace(
        call,
        output=payload_of(json.dumps(envelope.data).encode(), **kept),
        warnings=tuple(map(note_of, envelope.warnings)),
        changes=tuple(map(_change, envelope.changes)),
    )


def _answer(number):
    """From the 41st of a hundred on, half have a price of text, and none has a volume."""
    answer = {"id": f"k{number}", "price": number + 0.5, "volume24h": number}
    if number >= 40:
        del answer["volume24h"]
        if number % 2 == 0:
            answer["price"] = str(answer["price"])
    return answer


@pytest.mark.parametrize("policy", ["warn", "cast"])
@pytest.mark.parametrize(("schema", "missing"), [(ALL, "required"), (TICKER, "absent")])
def test_a_price_of_text_and_a_dropped_volume_are_named_and_the_patch_accepts(
    policy, schema, missing
):
    contract = Contract(output=schema, policy=policy)
    report = drift([_record(i, contract, _answer(i)) for i in range(100)], contract)
    volume, price = report.findings
    assert (volume.path, volume.rule, volume.share) == ("/volume24h", missing, 0.6)
    assert (price.path, price.rule, price.share) == ("/price", "type", 0.3)
    assert volume.first == price.first == START + 40 * STEP
    assert (volume.last, price.last) == (START + 99 * STEP, START + 98 * STEP)
    assert price.samples == ('"40.5"', '"42.5"', '"44.5"')
    assert price.example == "r0040"
    proof = report.proof
    assert (proof.checked, proof.passed_after, proof.lost) == (100, 100, Lost())
    assert proof.passed_before == (40 if missing == "required" else 70)
    after = report.patch.after
    assert after["properties"]["price"] == {"type": ["number", "string"]}
    assert after.get("required") == (["id", "price"] if missing == "required" else None)
    assert apply(schema, report.patch.operations) == after
    mended = Contract(output=after, policy=policy)
    for number in range(100):
        envelope = release(mended, local_envelope(_answer(number), "coins.ticker"))
        assert (envelope.data, envelope.warnings) == (_answer(number), ())


def test_findings_are_counted_over_time():
    contract = Contract(output=ALL, policy="warn")
    report = drift([_record(i, contract, _answer(i)) for i in range(100)], contract)
    for finding in report.findings:
        assert len(finding.trend) == BUCKETS
        assert sum(finding.trend) == finding.outputs
        assert not any(finding.trend[: BUCKETS * 4 // 10])


def test_the_order_of_records_does_not_matter():
    contract = Contract(output=ALL, policy="cast")
    records = [_record(i, contract, _answer(i)) for i in range(60)]
    assert drift(records, contract) == drift(reversed(records), contract)


def test_answers_that_keep_the_schema_tell_nothing():
    contract = Contract(output=ALL, policy="cast")
    report = drift([_record(i, contract, _answer(i)) for i in range(40)], contract)
    assert (report.findings, report.patch.operations) == ((), ())
    assert (report.proof.passed_before, report.proof.passed_after) == (40, 40)


def test_a_union_is_reported_without_a_proposal():
    forms = [{"type": "object", "required": ["id"]}, {"type": "array", "maxItems": 1}]
    contract = Contract(output={"properties": {"price": {"anyOf": forms}}}, policy="warn")
    report = drift([_record(0, contract, {"price": "12.5"})], contract)
    (finding,) = report.findings
    assert (finding.path, finding.rule, finding.samples) == ("/price", "type", ('"12.5"',))
    assert report.patch.operations == ()
    left = "left as it is: type at /price, no change of a union, or of what a union shares, is proposed"
    assert left in list(drift_tail(report))


def test_answers_in_lists_are_one_place():
    contract = Contract(output={"type": "array", "items": ALL}, policy="warn")
    rows = [{"id": "a", "price": "1", "volume24h": 1}] * 3
    report = drift([_record(0, contract, rows)], contract)
    assert [(f.path, f.rule, f.outputs) for f in report.findings] == [("/*/price", "type", 1)]


@pytest.mark.parametrize("policy", ["warn", "cast"])
def test_many_of_one_rule_in_one_answer_do_not_hide_another(policy):
    contract = Contract(output={"type": "array", "items": ALL}, policy=policy)
    rows = [{"id": "a", "price": "1"} for _ in range(300)]
    record = _record(0, contract, rows)
    bare = msgspec.structs.replace(record, output=payload_of(json.dumps(rows).encode()), changes=())
    report = drift([bare], contract)
    assert {(f.path, f.rule) for f in report.findings} == {
        ("/*/price", "type"),
        ("/*/volume24h", "required"),
    }
    assert report.proof.is_whole


def test_what_is_beyond_a_report_is_neither_judged_nor_counted():
    contract = Contract(output=ALL, policy="warn")
    size = MAX_PAYLOAD_BYTES - 1_000
    count = MAX_KEPT_BYTES // size + 40
    answers = [{"id": f"{i:0{size}}", "price": "1", "volume24h": 1} for i in range(count)]
    report = drift([_record(i, contract, answer) for i, answer in enumerate(answers)], contract)
    (finding,) = report.findings
    proof = report.proof
    assert proof.of == count == proof.checked + proof.lost.beyond
    assert (finding.outputs, finding.of, finding.share) == (proof.checked, proof.checked, 1.0)
    # The latest are judged.
    assert finding.first == report.until - (proof.checked - 1) * STEP
    assert finding.last == report.until


def test_properties_of_digits_are_told_and_patched_by_their_names():
    years = {"2024": {"type": "number"}, "2025": {"type": "number"}}
    contract = Contract(output={"type": "object", "properties": years}, policy="warn")
    answers = [{"2024": "x"}, {"2025": "x"}, {"2025": None}, {"2024": 1}]
    records = [_record(i, contract, answer) for i, answer in enumerate(answers)]
    records.append(_record(4, contract, {"2025": "x"}, hashes_only=True))
    report = drift(records, contract)
    assert [(f.path, f.outputs) for f in report.findings] == [("/2025", 3), ("/2024", 1)]
    after = report.patch.after["properties"]
    assert after["2024"]["type"] == ["number", "string"]
    assert after["2025"]["type"] == ["number", "string", "null"]
    assert report.proof.is_whole


def test_keys_of_digits_are_told_as_they_are():
    rows = {"type": "array", "items": {"additionalProperties": {"type": "integer"}}}
    contract = Contract(output=rows, policy="warn")
    report = drift([_record(0, contract, [{"7": "x"}])], contract)
    assert [found.path for found in report.findings] == ["/*/7"]


def test_an_optional_field_that_comes_and_goes_is_no_drift():
    contract = Contract(output=TICKER, policy="warn")
    answers = [{"id": "a", "price": 1} | ({"volume24h": 1} if i % 3 else {}) for i in range(90)]
    assert drift([_record(i, contract, a) for i, a in enumerate(answers)], contract).findings == ()


def test_a_declared_field_that_never_comes_is_told():
    contract = Contract(output=TICKER, policy="warn")
    records = [_record(i, contract, {"id": "a", "price": i}) for i in range(MIN_STEADY)]
    (finding,) = drift(records, contract).findings
    assert (finding.path, finding.rule, finding.share) == ("/volume24h", "absent", 1.0)
    assert drift(records[1:], contract).findings == ()


@pytest.mark.parametrize("policy", ["cast", "warn"])
def test_a_new_field_is_declared_where_it_would_be_dropped(policy):
    contract = Contract(output=ALL, policy=policy)
    data = {"id": "a", "price": 1, "volume24h": 1, "currency": "EUR"}
    report = drift([_record(0, contract, data)], contract)
    if policy == "warn":
        assert report.findings == ()
        return
    (finding,) = report.findings
    assert (finding.path, finding.rule) == ("/currency", "additionalProperties")
    assert finding.samples == ('"EUR"',)
    assert report.patch.after["properties"]["currency"] == {}
    assert report.proof.is_whole


def test_refused_answers_that_an_earlier_version_did_not_keep_are_told_by_their_issues():
    contract = Contract(output=ALL, policy="reject")
    report = drift([_record(i, contract, _answer(i)) for i in range(100)], contract)
    told = {(f.path, f.rule): f.share for f in report.findings}
    assert told == {("/volume24h", "required"): 0.6, ("/price", "type"): 0.3}
    assert (report.proof.checked, report.proof.lost) == (40, Lost(absent=60))
    assert "60 outputs could not be judged again: 60 not kept" in list(drift_tail(report))


def test_what_was_cut_or_only_hashed_is_told_as_not_checked():
    contract = Contract(output=ALL, policy="warn")
    wrong = {"id": "a" * MAX_PAYLOAD_BYTES, "price": "1", "volume24h": 1}
    records = [
        _record(0, contract, wrong),
        _record(1, contract, {**wrong, "id": "a"}, hashes_only=True),
        _record(2, contract, {**wrong, "id": "a"}),
    ]
    report = drift(records, contract)
    (finding,) = report.findings
    assert (finding.path, finding.outputs) == ("/price", 3)
    assert report.proof.lost == Lost(cut=1, hashed=1)
    assert (report.proof.checked, report.proof.passed_after) == (1, 1)


def test_a_change_without_what_was_before_cannot_be_checked_and_is_told_by_its_warning():
    contract = Contract(output=ALL, policy="cast")
    record = _record(0, contract, {"id": "a", "price": "1", "volume24h": 1})
    bare = tuple(Note(note.code, note.path) for note in record.changes)
    report = drift([msgspec.structs.replace(record, changes=bare)], contract)
    assert [(f.path, f.rule) for f in report.findings] == [("/price", "type")]
    assert report.proof.lost == Lost(cut=1)


def test_an_item_that_a_cast_filled_in_is_told_as_missing():
    pair = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}
    schema = {"type": "object", "properties": {"pair": {**pair, "minItems": 2}}}
    contract = Contract(output=schema, policy="cast")
    answers = [{"pair": ["a"]}, {"pair": []}, {"pair": ["a", 1]}]
    report = drift([_record(i, contract, a) for i, a in enumerate(answers)], contract)
    assert [(f.path, f.rule, f.outputs) for f in report.findings] == [("/pair", "minItems", 2)]
    assert report.findings[0].samples == ('["a"]', "[]")
    proof = report.proof
    assert (proof.checked, proof.passed_before, proof.passed_after) == (3, 1, 3)


def test_what_was_hidden_is_no_drift():
    contract = Contract(output=ALL, policy="warn")
    record = _record(0, contract, {"id": "a", "price": 1, "volume24h": 1})
    hidden = payload_of(b'{"id": "a", "price": "***", "volume24h": 1}')
    report = drift([msgspec.structs.replace(record, output=hidden)], contract)
    assert (report.findings, report.patch.operations) == ((), ())


def test_a_hidden_value_does_not_hide_the_drift_of_others():
    contract = Contract(output=ALL, policy="warn")
    texts = ["***", "1", "2", "3", "***", "4"]
    answers = [{"id": "a", "price": text, "volume24h": 1} for text in texts]
    records = [_record(i, contract, answer) for i, answer in enumerate(answers)]
    (finding,) = drift(records, contract).findings
    assert (finding.outputs, finding.samples) == (4, ('"1"', '"2"', '"3"'))


def test_a_schema_that_refers_to_itself_is_read_to_its_end():
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/N"}, "value": {"type": "number"}},
    }
    contract = Contract(output={"$defs": {"N": node}, "$ref": "#/$defs/N"}, policy="warn")
    answers = [{"value": 1, "next": {"value": "x", "next": {"value": 2}}}]
    (finding,) = drift([_record(0, contract, a) for a in answers], contract).findings
    assert (finding.path, finding.rule) == ("/next/value", "type")


def test_bytes_are_told_and_not_judged():
    contract = Contract(output=ALL, policy="warn")
    envelope = release(contract, local_envelope(b"\xff", "coins.ticker"))
    record = Record(
        id="r",
        at=1,
        ms=1.0,
        tool="coins.ticker",
        warnings=tuple(map(note_of, envelope.warnings)),
        output=payload_of(b'{"data": "/w==", "encoding": "base64"}'),
    )
    report = drift([record], contract)
    assert [(f.path, f.rule) for f in report.findings] == [("", "type")]
    assert report.patch.operations == ()


def test_failed_calls_are_no_answers():
    contract = Contract(output=ALL, policy="warn")
    failed = Record(id="r", at=1, ms=1.0, tool="coins.ticker", gate="handler", code="timeout")
    assert drift([failed], contract).outputs == 0


def test_a_tool_without_an_output_schema_has_no_patch():
    contract = Contract()
    report = drift([_record(0, contract, {"a": 1})], contract)
    assert (report.outputs, report.findings, report.patch) == (1, (), None)


# --- laws -----------------------------------------------------------------------------------

_SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "1", "true", "x"])
_ROWS = st.dictionaries(st.sampled_from(["id", "price", "volume24h", "new"]), _SCALARS)
_ANSWERS = st.one_of(_ROWS, _SCALARS, st.lists(_ROWS, max_size=3))
_NESTED = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "price": {"type": "array", "items": {"type": "number"}, "maxItems": 2},
        "volume24h": {"type": "object", "properties": {"new": {"type": "boolean"}}},
    },
    "required": ["price"],
}


_PAIR = {
    "type": "array",
    "prefixItems": [{"type": "string"}, {"type": "integer"}, TICKER],
    "minItems": 3,
    "items": False,
}
_NUMBERED = {
    "type": "object",
    "properties": {"0": {"type": "string"}, "1": {"type": "array", "default": ["x"]}},
    "required": ["0", "1"],
}
_NUMBERED["properties"]["1"]["items"] = {"type": "number"}
_LISTS = st.lists(_SCALARS | _ROWS | st.lists(_SCALARS, max_size=3), max_size=4)


@given(
    st.sampled_from(
        [
            _PAIR,
            _NUMBERED,
            {"type": "array", "items": _PAIR, "minItems": 2},
            {"type": "object", "properties": {"id": _PAIR, "price": _NUMBERED}, "required": ["id"]},
            {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
            {
                "type": "array",
                "items": {"anyOf": [{"type": "integer"}, _PAIR]},
                "uniqueItems": True,
            },
        ]
    ),
    st.one_of(
        _LISTS,
        st.lists(_LISTS, max_size=3),
        st.dictionaries(st.sampled_from(["id", "price", "0", "1"]), _LISTS),
    ),
)
def test_what_a_cast_did_to_lists_can_be_taken_back(schema, answer):
    contract = Contract(output=schema, policy="cast")
    assert restored(_record(0, contract, answer)) == (answer, None)


@given(st.sampled_from([ALL, TICKER, _NESTED, {"type": "array", "items": ALL}]), _ANSWERS)
def test_what_a_cast_did_can_be_taken_back(schema, answer):
    contract = Contract(output=schema, policy="cast")
    assert restored(_record(0, contract, answer)) == (answer, None)


@given(st.sampled_from(["warn", "cast"]), st.lists(_ANSWERS, min_size=1, max_size=5))
def test_with_the_patch_every_answer_that_could_be_checked_passes(policy, answers):
    contract = Contract(output=ALL, policy=policy)
    records = [_record(i, contract, answer) for i, answer in enumerate(answers)]
    report = drift(records, contract)
    assert report.proof.checked == len(answers)
    if not report.patch.unsolved:
        assert report.proof.is_whole
        schema = compile_schema(report.patch.after)
        assert all(passes(schema, answer, is_closed=policy == "cast") for answer in answers)
