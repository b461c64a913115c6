"""Drift of very many answers: what rollups count, and a patch that is proved on some of them."""

from __future__ import annotations

import contextlib
import dataclasses
import json

import msgspec
import pytest

from callpact.audit.answers import passes
from callpact.audit.drift import drift
from callpact.audit.record import Note, Record, note_of, payload_of
from callpact.audit.recorder import hash_contract
from callpact.audit.reports import drift_tail, encode_drift, finding_cells
from callpact.audit.sqlite import SqliteStore
from callpact.audit.store import Filter
from callpact.audit.surveys import MAX_JUDGED, MAX_PROVED, MAX_REFUSALS, drift_of
from callpact.envelope import local_envelope
from callpact.errors import OutputRejected
from callpact.gate import release
from callpact.schema import compile_schema
from callpact.tool import Contract, Tool

HOUR = 3_600_000
BEGIN = 1_788_220_800_000
STEP = 10 * 60_000
COUNT = MAX_JUDGED + 1_000
TICKER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "volume24h": {"type": "number"},
    },
}
ALL = {**TICKER, "required": ["id", "price", "volume24h"]}


async def _unused(call):
    raise AssertionError(call)


def tool_of(contract):
    return Tool(
        id="coins.ticker",
        description="Tell a price.",
        contract=contract,
        handler=_unused,
    )


def answered(number, contract, data, **more):
    """The record of an answer, as the gate lets it out."""
    call = Record(
        id=f"1f0c9a2e-77b1-4c3d-8e5f-{10**11 + number}",
        at=BEGIN + number * STEP,
        ms=1.0,
        tool="coins.ticker",
        contract=hash_contract(contract),
        policy=contract.policy,
        **more,
    )
    try:
        envelope = release(contract, local_envelope(data, "coins.ticker"))
    except OutputRejected as error:
        best = error.issues[0]
        return msgspec.structs.replace(
            call,
            gate="output",
            code=error.code,
            key=f"{error.code}:{best.path}:{best.code}",
            issues=tuple(map(note_of, error.issues)),
            output=payload_of(json.dumps(data).encode()),
        )
    changes = (
        Note(c.action, c.path, before=None if c.action == "filled" else json.dumps(c.before))
        for c in envelope.changes
    )
    return msgspec.structs.replace(
        call,
        output=payload_of(json.dumps(envelope.data).encode()),
        warnings=tuple(map(note_of, envelope.warnings)),
        changes=tuple(changes),
    )


def ticker(number):
    """From the 1,500th on, 3 in 5 have a price of text, and none has a volume."""
    answer = {"id": number, "price": number + 0.5, "volume24h": number}
    if number >= COUNT // 2:
        del answer["volume24h"]
        if number % 5 < 3:
            answer["price"] = str(answer["price"])
    return answer


@pytest.fixture
def kept(tmp_path):
    """A store of records."""
    with contextlib.ExitStack() as stack:

        def fill(records):
            store = stack.enter_context(contextlib.closing(SqliteStore(tmp_path / "audit.db")))
            store.add(list(records))
            return store

        yield fill


def facts(finding):
    return (finding.path, finding.rule, finding.answers, finding.of, finding.first, finding.last)


@pytest.mark.parametrize("policy", ["cast", "warn"])
def test_of_many_answers_the_same_is_told_as_of_all_of_them(kept, policy):
    contract = Contract(output=ALL, policy=policy)
    records = [answered(n, contract, ticker(n)) for n in range(COUNT)]
    report = drift_of(kept(records), tool_of(contract))
    exact = drift(records, contract)
    assert {f.path for f in exact.findings} == {"/volume24h", "/price"}
    told = {found.path: found for found in report.findings}
    for found in exact.findings:
        # A missing field is no warning under `warn`: no rollup counts it.
        is_counted = policy == "cast" or found.path == "/price"
        assert told[found.path].rule == found.rule
        assert told[found.path].first == found.first
        assert told[found.path].share == pytest.approx(found.share, abs=0 if is_counted else 0.05)
        assert (told[found.path].of == COUNT) is is_counted
        if is_counted:
            assert facts(told[found.path]) == facts(found)
            assert sum(told[found.path].trend) == found.answers
    assert report.patch.after == exact.patch.after
    schema = compile_schema(report.patch.after)
    assert all(passes(schema, ticker(n), is_closed=policy == "cast") for n in range(COUNT))


def test_answers_are_read_from_the_day_on_whose_records_are_left(kept):
    contract = Contract(output=ALL, policy="cast")
    records = [answered(n, contract, ticker(n)) for n in range(COUNT)]
    store = kept(records)
    left = BEGIN + 120 * HOUR
    store.retention(older_than=left)
    report = drift_of(store, tool_of(contract))
    exact = {found.path: found for found in drift(records, contract).findings}
    assert {found.path for found in report.findings} == exact.keys()
    for found in report.findings:
        assert facts(found) == facts(exact[found.path])
        # Half of all are broken, in two thirds of the time that is left.
        assert sum(found.trend) == found.answers
        assert 0.6 < sum(map(bool, found.trend)) / len(found.trend) < 0.75
    assert left <= report.since < left + 24 * HOUR


def test_the_report_says_how_many_answers_the_patch_was_proved_on(kept):
    contract = Contract(output=ALL, policy="warn")
    report = drift_of(
        kept(answered(n, contract, ticker(n)) for n in range(COUNT)), tool_of(contract)
    )
    proof = report.proof
    assert (proof.of, proof.is_whole) == (COUNT, True)
    assert 0 < proof.passed_before < proof.checked <= MAX_PROVED
    assert any(
        line.startswith(f"proved on {proof.checked:,} of {COUNT:,} answers")
        for line in drift_tail(report)
    )
    assert encode_drift("coins.ticker", report)["proof"]["of"] == COUNT
    [missing] = [found for found in report.findings if found.rule == "required"]
    cell = f"{missing.answers:,} of {missing.of:,}"
    assert finding_cells(missing, report)[2] == cell


def test_a_property_of_digits_is_told_once_and_by_its_name(kept):
    schema = {"type": "object", "properties": {"2024": {"type": "number"}}}
    contract = Contract(output=schema, policy="warn")
    records = [answered(n, contract, {"2024": "x"}) for n in range(COUNT)]
    report = drift_of(kept(records), tool_of(contract))
    assert [(found.path, found.rule) for found in report.findings] == [("/2024", "type")]
    assert report.proof.is_whole


def test_few_answers_are_all_proved(kept):
    contract = Contract(output=ALL, policy="warn")
    records = [answered(n, contract, ticker(n)) for n in range(COUNT - MAX_JUDGED, COUNT)]
    report = drift_of(kept(records), tool_of(contract))
    assert report == drift(records, contract)
    assert report.proof.checked == report.proof.of == MAX_JUDGED


def test_a_window_has_its_own_share(kept):
    contract = Contract(output=ALL, policy="cast")
    records = [answered(n, contract, ticker(n)) for n in range(2 * COUNT)]
    since = BEGIN + COUNT // 2 * STEP
    report = drift_of(kept(records), tool_of(contract), Filter(since=since))
    assert {found.path: found.share for found in report.findings} == {
        "/price": 0.6,
        "/volume24h": 1.0,
    }
    assert report.since == since


def test_what_one_caller_got_is_read_from_its_records(kept):
    contract = Contract(output=ALL, policy="cast")
    records = [
        answered(n, contract, ticker(n), caller="ada" if n % 2 else "bob") for n in range(2 * COUNT)
    ]
    report = drift_of(kept(records), tool_of(contract), Filter(caller="ada"))
    assert report.answers == COUNT
    assert {found.path for found in report.findings} == {"/price", "/volume24h"}


def test_one_rare_answer_among_many_is_in_the_patch(kept):
    contract = Contract(output=ALL, policy="cast")

    def rare(number):
        answer = {"id": number, "price": 1.5, "volume24h": 1}
        return {**answer, "price": None} if number == 1_234 else answer

    records = [answered(n, contract, rare(n)) for n in range(COUNT)]
    report = drift_of(kept(records), tool_of(contract))
    [found] = report.findings
    assert facts(found) == ("/price", "type", 1, COUNT, records[1_234].at, records[1_234].at)
    assert found.example == records[1_234].id
    assert report.patch.after["properties"]["price"] == {"type": ["number", "null"]}


def test_an_optional_field_that_is_dropped_is_dated_to_the_answer(kept):
    contract = Contract(output=TICKER, policy="cast")
    gone = COUNT * 2 // 3 + 7

    def dropped(number):
        answer = {"id": number, "price": 1.5}
        return answer if number >= gone else {**answer, "volume24h": 1}

    records = [answered(n, contract, dropped(n)) for n in range(COUNT)]
    [found] = drift_of(kept(records), tool_of(contract)).findings
    assert (found.path, found.rule) == ("/volume24h", "absent")
    assert (found.first, found.example) == (records[gone].at, records[gone].id)
    assert found.share == pytest.approx(1 / 3, abs=0.05)


def test_what_an_earlier_contract_noted_and_this_one_allows_is_not_told(kept):
    former = Contract(output=ALL, policy="cast")
    wider = {**ALL["properties"], "price": {"type": ["number", "string"]}}
    contract = Contract(output={**ALL, "properties": wider}, policy="cast")
    records = [answered(n, former if n < 2_500 else contract, ticker(n)) for n in range(COUNT)]
    [found] = drift_of(kept(records), tool_of(contract)).findings
    assert facts(found)[:4] == ("/volume24h", "required", COUNT // 2, COUNT)
    assert found.first == BEGIN + COUNT // 2 * STEP


def test_what_a_stricter_contract_would_find_is_looked_for_in_the_sample(kept):
    former = Contract(output=TICKER, policy="cast")
    strict = {**TICKER["properties"], "id": {"type": "integer", "minimum": COUNT // 2}}
    contract = Contract(output={**TICKER, "properties": strict}, policy="cast")
    records = [answered(n, former, {"id": n, "price": 1.5, "volume24h": 1}) for n in range(COUNT)]
    report = drift_of(kept(records), tool_of(contract))
    [found] = report.findings
    assert (found.path, found.rule) == ("/id", "minimum")
    assert found.of < COUNT
    assert found.share == pytest.approx(0.5, abs=0.05)
    assert (found.first, found.example) == (records[0].at, records[0].id)


def test_refused_answers_are_counted_by_their_cause(kept):
    contract = Contract(output=ALL, policy="reject")

    def spoiled(number):
        answer = {"id": number, "price": 1.5, "volume24h": 1}
        return {**answer, "price": "1.5"} if number % 4 == 0 else answer

    records = [answered(n, contract, spoiled(n)) for n in range(COUNT)]
    refused_input = Record(
        id="1f0c9a2e-77b1-4c3d-8e5f-900000000000",
        at=BEGIN,
        ms=1.0,
        tool="coins.ticker",
        gate="input",
        code="schema_validation_failed",
        key="schema_validation_failed:/coin:type",
        issues=(Note("type", "/coin", "must be text"),),
    )
    report = drift_of(kept([*records, refused_input]), tool_of(contract))
    [found] = report.findings
    assert facts(found)[:4] == ("/price", "type", COUNT // 4, COUNT)
    assert sum(found.trend) == COUNT // 4


def test_large_answers_are_proved_on_fewer(kept):
    contract = Contract(output=TICKER, policy="warn")

    def long(number):
        price = "1.5" if number % 2 else 1.5
        return {"id": number, "price": price, "volume24h": 1, "text": "x" * 20_000}

    report = drift_of(kept(answered(n, contract, long(n)) for n in range(300)), tool_of(contract))
    [found] = report.findings
    assert (found.path, found.rule, found.answers, found.of) == ("/price", "type", 150, 300)
    assert 50 < report.proof.checked < report.proof.of == 300
    assert report.proof.is_whole


# --- answers that were refused --------------------------------------------------------------

PAIR = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
}


def pair(number):
    """Both fields are wrong in odd answers, one in even ones."""
    return {"a": "x" if number % 2 else 1, "b": "y"}


def refused_input(number, *notes):
    best = notes[0]
    return Record(
        id=f"1f0c9a2e-77b1-4c3d-8e5f-{9 * 10**11 + number}",
        at=BEGIN + number * STEP,
        ms=1.0,
        tool="coins.ticker",
        gate="input",
        code="schema_validation_failed",
        key=f"schema_validation_failed:{best.path}:{best.code}",
        issues=notes,
    )


@pytest.mark.parametrize("count", [MAX_JUDGED, MAX_JUDGED + 2])
def test_refused_answers_are_counted_by_all_their_issues(kept, count):
    contract = Contract(output=PAIR, policy="reject")
    records = [answered(n, contract, pair(n)) for n in range(count)]
    report = drift_of(kept(records), tool_of(contract))
    found = {f.path: f for f in report.findings}
    assert {path: (f.answers, f.of) for path, f in found.items()} == {
        "/a": (count // 2, count),
        "/b": (count, count),
    }
    assert report.proof.passed_before == 0
    assert report.proof.passed_after == report.proof.checked >= 900
    assert all(sum(each.trend) == each.answers for each in found.values())


def test_what_inputs_were_refused_for_is_no_finding(kept):
    contract = Contract(output=PAIR, policy="reject")
    records = [answered(n, contract, pair(n)) for n in range(COUNT)]
    notes = Note("type", "/b"), Note("maximum", "/c")
    inputs = [refused_input(n, *notes) for n in range(0, 3 * MAX_REFUSALS, 3)]
    found = {f.path: f for f in drift_of(kept(records + inputs), tool_of(contract)).findings}
    assert {path: f.answers for path, f in found.items()} == {"/a": COUNT // 2, "/b": COUNT}
    assert all(sum(each.trend) == each.answers for each in found.values())


def test_beside_many_refused_inputs_answers_count_by_their_first_issue(kept):
    contract = Contract(output=PAIR, policy="reject")
    records = [answered(n, contract, pair(n)) for n in range(COUNT)]
    inputs = [
        refused_input(n, Note("type", "/b"), Note("maximum", "/old" if n < 10 else "/new"))
        for n in range(MAX_REFUSALS + 100)
    ]
    found = {f.path: f for f in drift_of(kept(records + inputs), tool_of(contract)).findings}
    # Every other answer has the other issue first.
    assert {path: f.answers for path, f in found.items()} == {"/a": COUNT // 2, "/b": COUNT // 2}


# --- which answers are read -----------------------------------------------------------------

STATUS = {"type": "object", "properties": {"status": {"enum": ["ok"]}, "id": {}}}


def choices(report):
    return set(report.patch.after["properties"]["status"]["enum"])


def at(record, moment):
    return msgspec.structs.replace(record, at=moment)


def test_a_burst_is_sampled_from_its_begin_to_its_end(kept):
    contract = Contract(output=STATUS, policy="warn")
    noon = BEGIN + 12 * HOUR + 1_234_567

    def status(number):
        return {"id": number, "status": "late" if 2_000 <= number < 2_500 else "odd"}

    records = [at(answered(n, contract, status(n)), noon + n) for n in range(5_000)]
    report = drift_of(kept(records), tool_of(contract))
    assert 0.9 * MAX_PROVED <= report.proof.checked <= MAX_PROVED
    assert choices(report) == {"ok", "late", "odd"}
    assert (report.since, report.until) == (noon, noon + 4_999)


def test_bursts_far_apart_are_all_sampled(kept):
    contract = Contract(output=STATUS, policy="warn")
    begins = [BEGIN, BEGIN + HOUR // 2, BEGIN + 40 * 24 * HOUR, BEGIN + 40 * 24 * HOUR + HOUR]
    records = [
        at(
            answered(burst * 1_000 + n, contract, {"id": n, "status": f"odd{burst}{n % 2}"}),
            begin + n,
        )
        for burst, begin in enumerate(begins)
        for n in range(1_000)
    ]
    report = drift_of(kept(records), tool_of(contract))
    assert 0.9 * MAX_PROVED <= report.proof.checked <= MAX_PROVED
    every = {f"odd{burst}{n}" for burst in range(4) for n in range(2)}
    assert choices(report) == {"ok", *every}


def test_answers_of_one_moment_are_sampled(kept):
    contract = Contract(output=STATUS, policy="warn")
    records = [at(answered(n, contract, {"id": n, "status": "odd"}), BEGIN) for n in range(COUNT)]
    report = drift_of(kept(records), tool_of(contract))
    assert 0.9 * MAX_PROVED <= report.proof.checked <= MAX_PROVED


def test_of_what_is_rare_answers_are_looked_for(kept):
    contract = Contract(output=STATUS, policy="warn")
    rare = {777: "a", 1_111: "b", 1_555: "c", 2_001: "d", 2_444: "e"}

    def status(number):
        return {"id": number, "status": rare.get(number, "ok")}

    records = [answered(n, contract, status(n)) for n in range(COUNT)]
    report = drift_of(kept(records), tool_of(contract))
    [found] = report.findings
    assert (found.answers, found.of) == (len(rare), COUNT)
    assert choices(report) == {"ok", *rare.values()}


# --- a tool that has another id now ---------------------------------------------------------


@pytest.mark.parametrize("count", [100, COUNT])
def test_answers_under_a_former_id_are_judged(kept, count):
    contract = Contract(output=ALL, policy="cast")
    records = [answered(n, contract, ticker(COUNT - count + n)) for n in range(count)]
    late = records[count // 2 :]
    renamed = [msgspec.structs.replace(record, tool="coins.price") for record in late]
    tool = dataclasses.replace(tool_of(contract), id="coins.price", aliases=("coins.ticker",))
    report = drift_of(kept([*records[: count // 2], *renamed]), tool)
    exact = drift(records, contract)
    assert report.answers == count
    assert list(map(facts, report.findings)) == list(map(facts, exact.findings))
    assert report.patch.after == exact.patch.after
    assert report.proof.checked <= MAX_PROVED
