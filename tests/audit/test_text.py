"""The audit log in words: times as people write them, bars, sentences, CSV."""

from __future__ import annotations

import csv
import io
import time

import pytest

from callpact.audit import Note, Payload, Record, text
from callpact.audit.store import Cause, Rate
from callpact.errors import UsageError

HOUR = 3_600_000
NOON = 1_788_264_000_000  # 2026-09-01T12:00:00Z


@pytest.fixture(autouse=True)
def _zone(monkeypatch):
    """Two hours ahead of UTC, in POSIX's spelling."""
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("45s", NOON - 45_000),
        ("30m", NOON - 30 * 60_000),
        ("2h", NOON - 2 * HOUR),
        ("7d", NOON - 168 * HOUR),
        ("1w", NOON - 168 * HOUR),
        (" 2h ", NOON - 2 * HOUR),
        ("2h ago", NOON - 2 * HOUR),
        ("today", NOON - 14 * HOUR),
        ("yesterday", NOON - 38 * HOUR),
        ("2026-09-01", NOON - 14 * HOUR),
        ("2026-09-01T14:00", NOON),
        ("2026-09-01 14:00:00.250", NOON + 250),
        ("2026-09-01T12:00:00Z", NOON),
        ("2026-09-01T09:00:00-03:00", NOON),
    ],
)
def test_a_time_is_read_as_it_is_meant_where_it_is_typed(written, meant):
    assert text.moment(written, NOON) == meant


@pytest.mark.parametrize(
    "written", ["", "last week", "2", "h", "-2h", "2 h", "2y", "2026-13-01", "٢h", "9999999999d"]
)
def test_what_is_no_time_is_refused_with_the_forms_that_are(written):
    with pytest.raises(UsageError, match="30m, 2h or 7d"):
        text.moment(written, NOON)


def test_times_are_local_for_people_and_utc_for_programs():
    assert text.local(NOON + 999) == "2026-09-01 14:00:00"
    assert text.utc(NOON + 7) == "2026-09-01T12:00:00.007Z"
    assert text.utc(-1) == "1969-12-31T23:59:59.999Z"
    assert text.local(10**18) == text.utc(10**18) == f"{10**18} ms"


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([], ""), ([0, 0], "  "), ([1], "█"), ([8, 1, 0, 4], "█▁ ▄"), ([1000, 1], "█▁")],
)
def test_a_sparkline_shows_the_largest_highest_and_nothing_as_nothing(values, drawn):
    assert text.sparkline(values) == drawn


def test_a_cause_is_a_row_with_its_share_and_its_message_without_the_value():
    key = "schema_validation_failed:/limit:maximum"
    cause = Cause("shop.search", key, "Property 'limit' must be ≤ 50, got 80", 5, 100, 0, 0)
    cells = ("shop.search", "5", "5.0 %", key, "Property 'limit' must be ≤ 50")
    assert text.cause_cells(cause) == cells
    assert text.cause_cells(Cause("a.b", "x::", "", 0, 0, 0, 0)) == (
        "a.b",
        "0",
        "0.0 %",
        *["x::"] * 2,
    )


@pytest.mark.parametrize(
    ("latest", "lowest", "highest", "pattern"),
    [
        ("late", "late", "late", "late"),
        ("no order 7", "no order 12", "no order 7", "no order …"),
        ("user 'ann lee' is gone", "user 'bob' is gone", "user 'z' is gone", "user '…' is gone"),
        ("a 1, 2", "a 3, 4", "a 5, 6", "a …"),
        ("one", "two", "three", "…"),
        ("late", "", "late", "late"),
    ],
)
def test_the_words_that_differ_between_messages_are_left_out(latest, lowest, highest, pattern):
    cause = Cause("a.b", "own::", latest, 3, 3, 0, 0, lowest, highest)
    assert text.pattern_of(cause) == pattern


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("must be a number, got string", "must be a number"),
        ("must be one of 'a', 'b', got 'c, d'", "must be one of 'a', 'b'"),
        ("Property 'x, got y' is required", "Property 'x, got y' is required"),
        ("the upstream answered 503", "the upstream answered 503"),
    ],
)
def test_what_came_is_no_part_of_a_cause(message, said):
    assert text.without_value(message) == said


def test_the_words_of_a_tool_are_left_as_they_are():
    cause = Cause("a.b", "upstream_error::", "expected 200, got 503", 1, 2, 0, 0)
    assert text.pattern_of(cause) == "expected 200, got 503"


def test_causes_are_compared_the_largest_change_first():
    before = [Cause("a.b", "x", "one", 1, 10, 0, 0), Cause("a.b", "y", "two", 5, 10, 0, 0)]
    after = [Cause("a.b", "x", "one", 9, 10, 0, 0)]
    assert text.compared(before, after) == [
        ("a.b", "10.0 %", "90.0 %", "+80.0", "x", "one"),
        ("a.b", "50.0 %", "0.0 %", "-50.0", "y", "two"),
    ]


def test_an_outcome_is_a_code_with_its_place_or_ok():
    assert text.outcome(Record("1", 0, 1, "a.b")) == "ok"
    assert text.outcome(Record("1", 0, 1, "a.b", warnings=(Note("type"),))) == "ok, 1 warning"
    broken = Record("1", 0, 1, "a.b", gate="input", code="schema_validation_failed", path="/x")
    assert text.outcome(broken) == "schema_validation_failed /x"


def test_a_recorded_value_that_cannot_be_read_is_told_as_text():
    record = Record("1", NOON, 1, "a.b", input=Payload("00", 2, "{]"))
    assert text.encode_record(record)["input"] == {"sha256": "00", "size": 2, "begin": "{]"}
    assert text.payload_lines("Input", record.input)[1:] == ["{]"]


def test_csv_is_read_back_cell_by_cell():
    rows = [["a,b", 'say "x"', "two\nlines", ""], ["=SUM(A1)", "+1", "@x", "-1"]]
    read = list(csv.reader(io.StringIO(text.csv_text(rows))))
    assert read == [rows[0], ["'=SUM(A1)", "'+1", "'@x", "'-1"]]


def test_a_rate_of_an_hour_is_told_by_its_beginning():
    rate = Rate(str(NOON), 4, 1, 1, 0, 1.25, 250.4, 1234.0)
    assert text.encode_rate(rate, "hour")["group"] == "2026-09-01T12:00:00.000Z"
    assert text.rate_cells(rate) == (
        *("4", "1", "25.0 %", "0", "1"),
        *("1.25 ms", "250 ms", "1.23 s"),
    )


def test_versions_are_in_their_order():
    ordered = ["", "1.9.0", "1.10.0-rc.2", "1.10.0-rc.10", "1.10.0", "2", "2.0.1", "10.0.0"]
    mixed = ordered[::-1]
    assert sorted(mixed, key=text.version_order) == ordered
    assert sorted(["b", "1.0", "a"], key=text.version_order) == ["a", "b", "1.0"]


def test_a_change_of_a_share_is_told_in_points():
    told = [text.points(change) for change in (0.045, -0.5, 0.0, -0.0001)]
    assert told == ["+4.5", "-50.0", "0.0", "0.0"]


def test_groups_before_and_after_stand_in_one_row_each():
    before = [Rate("a.b", 10, 1, 1, 0, 2.0, 3.0, 3.0), Rate("a.old", 4, 0, 0, 0, 1.0, 1.0, 1.0)]
    after = [Rate("a.b", 10, 5, 1, 0, 2.0, 4.0, 3.0)]
    assert text.compared_rates(before, after) == [
        (
            *("a.b", "10", "1 → 5", "10.0 % → 50.0 %", "+40.0", "0"),
            *("2.00 ms", "3.00 ms → 4.00 ms", "3.00 ms"),
        ),
        ("a.old", "4 → 0", "0 → -", "0.0 % → -", "-", "0 → -", *["1.00 ms → -"] * 3),
    ]


def test_a_narrow_table_does_without_its_spare_columns_one_after_the_other():
    headers, rows = ("A", "B", "C"), [("11111", "22222", "33333")]
    # Three columns of five, with two signs after each.
    assert text.fitted(headers, rows, 21, ["C", "A"]) == (headers, rows)
    assert text.fitted(headers, rows, 20, ["C", "A"]) == (("A", "B"), [("11111", "22222")])
    assert text.fitted(headers, rows, 3, ["C", "A", "none"]) == (("B",), [("22222",)])
