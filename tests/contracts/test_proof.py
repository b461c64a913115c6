"""Proofs: yes, no with a value that was tried, and unknown within bounds."""

from __future__ import annotations

import pytest

from callpact.contracts import Prover
from callpact.contracts import proof as proofs
from callpact.contracts.counterexample import counterexample
from callpact.contracts.proof import ComparedSchema, decide
from callpact.schema import compile_schema


def judged(schema, *, formats=False):
    return ComparedSchema(compile_schema(schema, formats=formats), formats)


@pytest.fixture(scope="module")
def prover():
    with Prover() as made:
        yield made


def test_a_wider_schema_is_proved(prover):
    found = prover.covers(judged({"type": "number"}), judged({"type": "integer", "minimum": 3}))
    assert found.verdict == "yes"


def test_a_narrower_schema_is_refuted_with_a_value(prover):
    wide, narrow = judged({"type": "integer"}), judged({"type": "number"})
    found = prover.covers(wide, narrow)
    assert found.verdict == "no"
    (value,) = found.example
    assert narrow.schema.accepts(value)
    assert not wide.schema.accepts(value)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ({"type": "object", "required": ["a"]}, {"type": "object"}),
        ({"type": "array", "maxItems": 40}, {"type": "array"}),
        ({"type": "string", "maxLength": 1_000}, {"type": "string"}),
        ({"anyOf": [{"type": "null"}]}, {"anyOf": [{"type": "null"}, {"const": "q"}]}),
        ({"allOf": [{"minimum": 7}]}, {"allOf": [{"type": "integer"}, {"minimum": 6}]}),
        (
            {"type": "array", "items": {"type": "object", "properties": {"n": {"maximum": 77}}}},
            {"type": "array", "items": {"type": "object", "properties": {"n": {"maximum": 99}}}},
        ),
    ],
)
def test_a_value_is_found_inside(wide, narrow):
    first, second = compile_schema(wide), compile_schema(narrow)
    (value,) = counterexample(first, second, narrow)
    assert second.accepts(value)
    assert not first.accepts(value)


def test_values_of_a_schema_whose_references_multiply_are_bounded():
    wide = [f"p{number}" for number in range(400)]
    document = {"$ref": "#/$defs/t0", "$defs": {"t8": {"type": "number"}}}
    for level in range(8):
        below = {"$ref": f"#/$defs/t{level + 1}"}
        document["$defs"][f"t{level}"] = {
            "type": "object",
            "properties": dict.fromkeys(wide, below),
        }
    schema = compile_schema(document)
    assert counterexample(schema, schema, document) == ()


def test_formats_count_where_they_are_asserted(prover):
    email = {"type": "string", "format": "email"}
    assert prover.covers(judged(email), judged({"type": "string"})).verdict == "yes"
    found = prover.covers(judged(email, formats=True), judged({"type": "string"}, formats=True))
    assert found.verdict == "no"


def test_bounds_of_dates_are_unknown(prover):
    late = {"type": "string", "format": "date", "formatMinimum": "1999-01-01"}
    later = {"type": "string", "format": "date", "formatMinimum": "1999-01-02"}
    found = prover.covers(judged(later, formats=True), judged(late, formats=True))
    assert (found.verdict, found.reason) == ("unknown", "bounds of dates cannot be proved")


def test_a_schema_that_is_too_large_is_unknown(prover):
    names = [f"{number:07}" for number in range(30_000)]
    found = prover.covers(judged({"enum": [*names, "x"]}), judged({"enum": names}))
    assert found.verdict == "unknown"
    assert "larger than 200,000 bytes" in found.reason


def test_a_proof_that_takes_too_long_is_unknown_and_the_next_one_works():
    wide, narrow = judged({"type": "number"}), judged({"type": "integer"})
    with Prover() as prover:
        assert prover.covers(wide, narrow).verdict == "yes"
        prover._process.kill()
        found = prover.covers(wide, judged({"type": "integer", "minimum": 1}))
        assert found.verdict == "unknown"
        assert "not finished" in found.reason
        assert prover.covers(wide, judged({"type": "integer", "minimum": 2})).verdict == "yes"


def test_a_process_that_cannot_start_is_unknown(monkeypatch):
    monkeypatch.setattr(proofs, "_PROGRAM", "raise SystemExit")
    with Prover() as prover:
        found = prover.covers(judged({"type": "number"}), judged({"type": "integer"}))
    assert (found.verdict, found.reason) == (
        "unknown",
        "the process of the proofs could not be started",
    )


def test_drafts_that_cannot_be_compared_are_unknown():
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}
    verdict, _, reason = decide(({"type": "integer"}, False), (old, False))
    assert verdict == "unknown"
    assert reason


def test_a_question_is_asked_once_and_known_answers_stay_when_the_time_is_used_up():
    wide, narrow = judged({"type": "number"}), judged({"type": "integer"})
    with Prover() as prover:
        assert prover.covers(wide, narrow).verdict == "yes"
        prover._process.kill()
        assert prover.covers(wide, narrow).verdict == "yes"
        prover._left = 0
        assert prover.covers(wide, narrow).verdict == "yes"
        found = prover.covers(narrow, wide)
    assert (found.verdict, found.reason) == (
        "unknown",
        "the time for all proofs, 60 s, is used up",
    )
