"""Drift of very many answers: counted over the whole window, judged on the latest."""

from __future__ import annotations

import contextlib
import dataclasses
import json

import msgspec
import pytest

from callpact.audit import Note, Record, drift_of
from callpact.audit.analysis.drift import drift
from callpact.audit.journal.recorder import hash_contract
from callpact.audit.record import note_of, payload_of
from callpact.audit.reports import drift_tail, encode_drift, finding_cells
from callpact.audit.store import Filter
from callpact.audit.store.parquet import ParquetStore
from callpact.envelope import local_envelope
from callpact.errors import OutputRejected
from callpact.gate import release
from callpact.tool import Contract, Tool

BEGIN = 1_788_220_800_000
STEP = 10 * 60_000
SAMPLED = 400
COUNT = 1_000
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
    """From the 500th on, 3 in 5 have a price of text, and none has a volume."""
    answer = {"id": number, "price": number + 0.5, "volume24h": number}
    if number >= COUNT // 2:
        del answer["volume24h"]
        if number % 5 < 3:
            answer["price"] = str(answer["price"])
    return answer


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr("callpact.audit.analysis.drift.MAX_JUDGED", SAMPLED)


@pytest.fixture
def kept(tmp_path):
    """A store of records."""
    with contextlib.ExitStack() as stack:

        def fill(records):
            store = stack.enter_context(contextlib.closing(ParquetStore(tmp_path)))
            store.add(list(records))
            return store

        yield fill


def _whole(monkeypatch, records, contract):
    """The report on all records."""
    with monkeypatch.context() as patched:
        patched.setattr("callpact.audit.analysis.drift.MAX_JUDGED", len(records))
        return drift(records, contract)


def facts(finding):
    return (finding.path, finding.rule, finding.outputs, finding.of, finding.first, finding.last)


@pytest.mark.parametrize("policy", ["cast", "warn"])
def test_what_was_noted_is_counted_over_the_whole_window(kept, policy, monkeypatch):
    contract = Contract(output=ALL, policy=policy)
    records = [answered(n, contract, ticker(n)) for n in range(COUNT)]
    report = drift_of(kept(records), tool_of(contract))
    whole = _whole(monkeypatch, records, contract)
    exact = {found.path: found for found in whole.findings}
    told = {found.path: found for found in report.findings}
    assert told.keys() == exact.keys() == {"/volume24h", "/price"}
    for path, found in told.items():
        # A missing field is no warning under `warn`: it is known of the sample alone.
        if policy == "cast" or path == "/price":
            assert facts(found) == facts(exact[path])
        else:
            assert (found.outputs, found.of) == (SAMPLED, SAMPLED)
    assert report.patch.after == whole.patch.after
    assert (report.outputs, report.proof.of, report.proof.is_whole) == (COUNT, COUNT, True)


def test_the_report_says_how_many_answers_were_judged(kept):
    contract = Contract(output=ALL, policy="warn")
    report = drift_of(
        kept(answered(n, contract, ticker(n)) for n in range(COUNT)), tool_of(contract)
    )
    assert report.proof.checked == SAMPLED
    assert f"proved on {SAMPLED} of {COUNT:,} outputs: the latest" in list(drift_tail(report))
    assert encode_drift("coins.ticker", report)["proof"]["of"] == COUNT
    [missing] = [found for found in report.findings if found.rule == "required"]
    assert finding_cells(missing, report)[2] == f"{SAMPLED} of {SAMPLED}"


def test_a_property_of_digits_is_told_once_and_by_its_name(kept):
    schema = {"type": "object", "properties": {"2024": {"type": "number"}}}
    contract = Contract(output=schema, policy="warn")
    records = [answered(n, contract, {"2024": "x"}) for n in range(COUNT)]
    report = drift_of(kept(records), tool_of(contract))
    assert [(found.path, found.rule) for found in report.findings] == [("/2024", "type")]
    assert report.proof.is_whole


def test_few_answers_are_all_proved(kept):
    contract = Contract(output=ALL, policy="warn")
    records = [answered(n, contract, ticker(n)) for n in range(COUNT - SAMPLED, COUNT)]
    report = drift_of(kept(records), tool_of(contract))
    assert report == drift(records, contract)
    assert report.proof.checked == report.proof.of == SAMPLED


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


def test_answers_of_one_caller_are_counted_and_judged_apart(kept):
    contract = Contract(output=ALL, policy="cast")
    records = [
        answered(n, contract, ticker(n), caller="ada" if n % 2 else "bob") for n in range(2 * COUNT)
    ]
    report = drift_of(kept(records), tool_of(contract), Filter(caller="ada"))
    assert report.outputs == COUNT
    assert {found.path for found in report.findings} == {"/price", "/volume24h"}


def test_what_was_noted_long_ago_is_told_though_no_judged_answer_has_it(kept):
    contract = Contract(output=ALL, policy="cast")

    def rare(number):
        answer = {"id": number, "price": 1.5, "volume24h": 1}
        return {**answer, "price": None} if number == 123 else answer

    report = drift_of(kept(answered(n, contract, rare(n)) for n in range(COUNT)), tool_of(contract))
    [found] = report.findings
    assert (found.path, found.outputs, found.of) == ("/price", 1, COUNT)
    assert found.first == found.last == BEGIN + 123 * STEP
    assert report.patch.operations == ()
    assert [line for line in drift_tail(report) if "(first: )" in line] == []


def test_notes_of_a_former_contract_do_not_count(kept):
    former = Contract(output={**ALL, "required": ["gone"]}, policy="cast")
    now = Contract(output=TICKER, policy="cast")
    good = {"id": 1, "price": 1.5, "volume24h": 1}
    records = [answered(n, former if n < 500 else now, good) for n in range(COUNT)]
    report = drift_of(kept(records), tool_of(now))
    assert report.findings == ()
    assert report.outputs == COUNT


def test_issues_of_refused_answers_count_and_those_of_refused_inputs_do_not(kept, monkeypatch):
    contract = Contract(output=ALL, policy="reject")
    records = [
        answered(n, contract, ticker(n) if n % 2 else {"id": n, "price": 1.5, "volume24h": 1})
        for n in range(COUNT)
    ]
    refused = Record(
        id="refused",
        at=BEGIN,
        ms=1.0,
        tool="coins.ticker",
        contract=hash_contract(contract),
        gate="input",
        code="schema_validation_failed",
        issues=(Note("type", "/price"), Note("type", "/other")),
    )
    exact = _whole(monkeypatch, records, contract)
    report = drift_of(kept([*records, refused]), tool_of(contract))
    assert sorted(map(facts, report.findings)) == sorted(map(facts, exact.findings))


def test_answers_under_a_former_id_are_among_them(kept, monkeypatch):
    contract = Contract(output=ALL, policy="cast")
    records = [answered(n, contract, ticker(n)) for n in range(COUNT)]
    renamed = dataclasses.replace(tool_of(contract), id="coins.price", aliases=("coins.ticker",))
    store = kept(
        msgspec.structs.replace(r, tool="coins.price") if n % 3 else r
        for n, r in enumerate(records)
    )
    report = drift_of(store, renamed)
    exact = _whole(monkeypatch, records, contract)
    assert sorted(map(facts, report.findings)) == sorted(map(facts, exact.findings))
    assert report.outputs == COUNT
