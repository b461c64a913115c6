"""What every store answers, whatever engine is behind it: what plain Python says of the records."""

from __future__ import annotations

import msgspec
import pytest
from generated import (
    BEGIN,
    DAY,
    HOUR,
    TEXT_FIELDS,
    fits,
    naive_causes,
    naive_log,
    naive_rates,
    naive_trend,
    records,
)
from hypothesis import example, given
from hypothesis import strategies as st

from callpact.audit import Note, Record
from callpact.audit.record import error_key, payload_of
from callpact.audit.store import MAX_ROWS, Filter
from callpact.context import LogLine

GROUPS = (
    *("tool", "namespace", "caller", "client", "gate", "code", "key", "version", "via", "hour"),
)
SAMPLE = list(records(2_500))


def bare(record):
    """As a log tells it: of payloads the hashes alone."""
    hashes = {
        name: msgspec.structs.replace(payload, json=None, is_cut=False)
        for name in ("input", "output")
        if (payload := getattr(record, name)) is not None
    }
    return msgspec.structs.replace(record, **hashes)


@pytest.fixture(scope="module")
def filled(new_store):
    """A store with `SAMPLE`, in batches that overlap and are not in order."""
    store = new_store()
    for begin in (1_500, 0, 700, 2_000, 1_000):
        store.add(SAMPLE[begin : begin + 800])
    return store


def _texts(name):
    values = sorted({getattr(record, name) or "" for record in SAMPLE})
    exact = st.sampled_from([*values, "nobody has this"])
    return st.none() | exact | st.builds(_with_star, exact, st.integers(0, 9), st.integers(0, 9))


def _with_star(text, begin, length):
    return f"{text[:begin]}*{text[begin + length :]}"


_TIMES = st.none() | st.one_of(
    st.integers(BEGIN - HOUR, BEGIN + 3 * DAY + HOUR),
    st.integers(-2, 80).map(lambda hours: BEGIN + hours * HOUR),
    st.sampled_from([record.at for record in SAMPLE[::50]]),
)
FILTERS = st.builds(
    Filter,
    since=_TIMES,
    until=_TIMES,
    outcome=st.sampled_from([None, "ok", "failed"]),
    **{name: st.one_of(st.none(), st.none(), _texts(name)) for name in TEXT_FIELDS},
)


def assert_rates(store, kept, where, by):
    expected = naive_rates(kept, where, by)
    rates = store.rates(where, by)
    assert {
        rate.group: (rate.calls, rate.failed, rate.rejected, rate.warned) for rate in rates
    } == {group: counts[:4] for group, counts in expected.items()}
    for rate in rates:
        assert (rate.p50, rate.p95, rate.p99) == expected[rate.group][4:]
    assert [rate.calls for rate in rates] == sorted((rate.calls for rate in rates), reverse=True)


@pytest.mark.parametrize("by", GROUPS)
def test_rates_of_everything_are_what_counting_gives(filled, by):
    assert_rates(filled, SAMPLE, Filter(), by)


@given(where=FILTERS, by=st.sampled_from(GROUPS))
@example(where=Filter(tool="*.*", caller="*-*"), by="hour")
@example(where=Filter(since=BEGIN + 7, until=BEGIN + 2 * DAY + 9, outcome="ok"), by="hour")
def test_rates_by_any_filter_are_what_counting_gives(filled, where, by):
    assert_rates(filled, SAMPLE, where, by)


@given(where=FILTERS, by=st.sampled_from(GROUPS), most=st.integers(1, 30))
@example(where=Filter(since=BEGIN, tool="coingecko.list", via=""), by="hour", most=1)
def test_a_trend_by_any_filter_is_what_counting_gives(filled, where, by, most):
    trend = filled.trend(where, by, spans=most)
    fitting = naive_log(SAMPLE, where)
    if not fitting:
        assert trend.counts == {}
        return
    expected = naive_trend(fitting, by, trend)
    assert trend.counts == expected
    assert any(counts[-1] for counts in expected.values())
    assert {len(counts) for counts in expected.values()} <= set(range(1, most + 1))
    if where.since is None:
        assert 0 <= fitting[0].at - trend.begin < most * HOUR
    else:
        assert sum(map(sum, expected.values())) == len(fitting)


@given(where=FILTERS)
def test_causes_by_any_filter_are_what_counting_gives(filled, where):
    assert filled.causes(where, limit=MAX_ROWS) == naive_causes(SAMPLE, where)


@given(where=FILTERS, limit=st.integers(1, 400))
def test_pages_of_a_log_are_all_records_that_fit_the_newest_first(filled, where, limit):
    expected = [bare(record) for record in naive_log(SAMPLE, where)]
    found, before = [], None
    while page := filled.log(where, limit=limit, before=before):
        assert len(page) <= limit
        found += page
        before = page[-1].at, page[-1].id
        if len(found) >= 5 * limit:
            break
    assert found == expected[: len(found)]
    assert len(found) >= min(len(expected), 5 * limit)


def test_a_page_before_the_last_one_is_full(filled):
    where = Filter(tool="shop.*")
    expected = naive_log(SAMPLE, where)
    assert len(expected) > 20
    last = filled.log(where, limit=7)[-1]
    page = filled.log(where, limit=7, before=(last.at, last.id))
    assert [record.id for record in page] == [record.id for record in expected[7:14]]


def test_records_of_one_millisecond_are_each_on_one_page(store):
    same = [msgspec.structs.replace(record, at=BEGIN) for record in SAMPLE[:50]]
    store.add(same)
    first = store.log(Filter(), limit=20)
    rest = store.log(Filter(), before=(first[-1].at, first[-1].id))
    assert [r.id for r in first + rest] == sorted((r.id for r in same), reverse=True)


def test_every_record_is_found_as_it_was_given(filled):
    for record in SAMPLE[::40]:
        assert filled.find(record.id) == record


def test_a_record_that_is_not_there_is_none(filled):
    assert filled.find("00000000-0000-4000-8000-000000000000") is None
    assert filled.find("") is None


def test_a_record_with_every_field_is_found_as_it_was_given(store):
    full = Record(
        id="not a UUID",
        at=BEGIN,
        ms=0.25,
        tool="a.b",
        kind="subscription",
        version="2.0.0-rc.1",
        contract="c0ffee",
        policy="reject",
        gate="output",
        code="output_validation_failed",
        path="/items/4/näme",
        message="a message with 'quotes' and \N{SNOWMAN}",
        key="output_validation_failed:/items/*/näme:type",
        issues=(Note("type", "/items/4/näme", "wrong"), Note("minimum")),
        warnings=(Note("format", "/a", "b"),),
        changes=(Note("replaced", "/c", before='{"d":1}'),),
        source="mcp",
        status=502,
        server="weather 2.0",
        caller="caller [1]?",
        client="claude-code 2.1.0",
        via="http",
        parent="1F0C9A2E-77B1-4C3D-8E5F-100000000001",
        count=12,
        input=payload_of(b'{"a":1}'),
        output=payload_of(b'"' + b"x" * 100_000 + b'"'),
        tool_error=True,
        logs=(LogLine("info", "asked twice"), LogLine("warning", "\N{SNOWMAN}\x00")),
    )
    assert full.output.is_cut
    given = msgspec.structs.asdict(full)
    assert all(value for value in given.values()), "a field that this test does not know"
    store.add([full])
    assert store.find(full.id) == full


def test_ids_that_differ_only_in_their_spelling_are_different_records(store):
    usual = SAMPLE[0].id
    spellings = [usual, usual.upper(), usual.replace("-", ""), f"{{{usual}}}"]
    assert store.add([msgspec.structs.replace(SAMPLE[0], id=each) for each in spellings]) == 4
    assert [store.find(each).id for each in spellings] == spellings


def test_absent_and_empty_texts_are_found_as_they_were_given(store):
    absent = Record(id="1", at=BEGIN, ms=1, tool="a.b")
    empty = Record(id="2", at=BEGIN, ms=1, tool="a.b", version="", caller="")
    store.add([absent, empty])
    assert [store.find("1"), store.find("2")] == [absent, empty]
    assert [(r.group, r.calls) for r in store.rates(Filter(), "caller")] == [("", 2)]


def test_a_payload_kept_only_as_a_hash_stays_hidden_beside_one_that_is_kept(store):
    json = b'{"pin":"1234"}'
    hidden = Record(id="1", at=BEGIN, ms=1, tool="a.b", input=payload_of(json, hashes_only=True))
    shown = Record(id="2", at=BEGIN, ms=1, tool="a.c", output=payload_of(json))
    store.add([hidden])
    store.add([shown])
    store.add([msgspec.structs.replace(hidden, id="3")])
    assert store.find("1").input.json is None
    assert store.find("2").output.json == json.decode()
    assert store.find("3").input.json is None


@pytest.mark.parametrize("size", [1, 255, 256, 257, 1_023, 1_024, 5_000])
def test_a_payload_of_any_size_is_found_as_it_was_given(store, size):
    text = payload_of(b'"' + b"x" * (size - 2) + b'"' if size > 1 else b"1")
    odd = payload_of(b"{")  # No JSON at all is kept as it is.
    kept = [
        Record(id="1", at=BEGIN, ms=1, tool="a.b", input=text, output=text),
        Record(id="2", at=BEGIN, ms=1, tool="a.b", input=odd, output=text),
    ]
    store.add(kept)
    assert [store.find(record.id) for record in kept] == kept
    assert store.log(Filter(), with_payloads=True) == kept[::-1]
    assert store.log(Filter()) == [bare(record) for record in kept[::-1]]


def test_a_log_tells_payloads_where_they_are_asked_for(filled):
    [newest] = filled.log(Filter(), limit=1, with_payloads=True)
    assert newest == naive_log(SAMPLE, Filter())[0]


def test_a_record_is_kept_and_counted_once(store):
    assert store.add([*SAMPLE[:10], *SAMPLE[5:15]]) == 15
    assert store.add(SAMPLE[10:20]) == 5
    assert store.add([]) == 0
    assert_rates(store, SAMPLE[:20], Filter(), "tool")
    assert len(store.log(Filter())) == 20


def test_calls_with_the_same_id_are_different_records(store):
    first, second = (Record(id="1", at=BEGIN + n, ms=1, tool=f"a.b{n}") for n in (0, 1))
    assert store.add([second, first, second]) == 2
    assert store.find("1") == second
    assert store.log(Filter()) == [second, first]
    assert store.add([first, second]) == 0
    assert_rates(store, [first, second], Filter(), "tool")


def test_the_door_is_a_filter(store):
    doors = ["http", "mcp 2025-06-18", "mcp 2026-07-28", ""]
    kept = [
        Record(
            id=str(n), at=BEGIN + n, ms=1, tool="a.b", via=via, gate="input", code="c", key="c::"
        )
        for n, via in enumerate(doors)
    ]
    store.add(kept)
    for wanted in (*doors, "mcp*", "*", "nobody"):
        where = Filter(via=wanted)
        assert store.log(where) == naive_log(kept, where)
        assert store.causes(where) == naive_causes(kept, where)
        for by in GROUPS:
            assert_rates(store, kept, where, by)


def test_what_has_no_version_fits_no_pattern_of_one(store):
    kept = [
        Record(
            id=f"{n}",
            at=BEGIN + n,
            ms=1,
            tool="a.b",
            version=None if n % 5 == 0 else "1.0.0",
            caller=f"agent-{n % 3}",
        )
        for n in range(20)
    ]
    store.add(kept)
    for where in (Filter(version="1.*"), Filter(version="1.*", caller="agent-2")):
        assert store.log(where) == naive_log(kept, where)
        for by in GROUPS:
            assert_rates(store, kept, where, by)


def test_stars_are_the_only_patterns(store):
    tools = ["a.b", "a.[b]", "a.?", "a.%", "a._", "A.b"]
    kept = [Record(id=str(n), at=BEGIN, ms=1, tool=tool) for n, tool in enumerate(tools)]
    store.add(kept)
    for wanted in (*tools, "a.*", "*.b", "*[*", "*?", "*%", "*_", "*b*", "*"):
        found = {record.tool for record in store.log(Filter(tool=wanted))}
        assert found == {r.tool for r in kept if fits(r, Filter(tool=wanted))}, wanted


def test_the_share_of_one_cause_is_of_all_calls_of_its_tool(store):
    def call(number, **error):
        return Record(id=str(number), at=BEGIN + number, ms=3, tool="shop.product_search", **error)

    key = error_key("schema_validation_failed", "/limit", "maximum")
    said = "limit must be ≤ 50"
    refused = {"gate": "input", "code": "schema_validation_failed", "key": key, "message": said}
    store.add([call(n, **(refused if n % 20 == 0 else {})) for n in range(200)])
    store.add([Record(id="other", at=BEGIN, ms=1, tool="shop.other")])
    [cause] = store.causes(Filter(tool="shop.product_search"))
    assert (cause.key, cause.message, cause.rate) == (key, said, 0.05)
    assert (cause.first, cause.last) == (BEGIN, BEGIN + 180)


def test_no_calls_are_no_groups(store):
    assert store.rates(Filter(), "tool") == store.causes(Filter()) == store.log(Filter()) == []


def test_times_far_from_now_are_counted_and_found(store):
    times = [-DAY * 365 * 30 - 1, -1, 0, BEGIN, BEGIN + DAY * 365 * 300]
    kept = [
        Record(id=str(n), at=at, ms=n + 1.0, tool="a.b", gate="find", code="c", key="c::")
        for n, at in enumerate(times)
    ]
    store.add(kept)
    for since in (None, *times):
        for until in (None, *times):
            where = Filter(since=since, until=until)
            assert_rates(store, kept, where, "tool")
            assert_rates(store, kept, where, "hour")
            assert store.causes(where) == naive_causes(kept, where)
            assert store.log(where) == naive_log(kept, where)


def test_lists_are_bounded(filled):
    assert len(filled.log(Filter(), limit=3)) == 3
    assert filled.log(Filter(), limit=0) == filled.log(Filter(), limit=-5) == []
    assert len(filled.causes(Filter(), limit=2)) == 2


def test_retention_by_age_lets_go_of_the_oldest_records_alone(new_store):
    store = new_store()
    store.add(SAMPLE)
    end = BEGIN + DAY + 12_345  # Within the second day, which stays as a whole.
    old = [record for record in SAMPLE if record.at < BEGIN + DAY]
    assert store.retention(older_than=end) == len(old)
    assert store.find(old[-1].id) is None
    left = [record for record in SAMPLE if record.at >= BEGIN + DAY]
    assert [r.id for r in store.log(Filter(), limit=MAX_ROWS)] == [
        r.id for r in naive_log(left, Filter())
    ]
    for record in left[::40]:
        assert store.find(record.id) == record
    assert store.retention(older_than=end) == 0


def test_a_trend_has_spans_of_hours_and_of_days_for_a_long_window(store):
    store.add(SAMPLE)
    assert store.trend(Filter(since=BEGIN + DAY), "tool").span == 2 * HOUR
    assert store.trend(Filter(since=BEGIN), "tool").span == 3 * HOUR
    assert store.trend(Filter(since=BEGIN - 30 * DAY), "tool").span == 2 * DAY
    assert store.trend(Filter(tool="nothing.here"), "tool").counts == {}


def test_retention_by_size_lets_go_of_the_oldest_until_it_is_small_enough(new_store):
    store = new_store()
    store.add(SAMPLE)
    before = store.size
    gone = store.retention(larger_than=before * 9 // 10)
    assert gone > 0
    assert store.size <= before * 9 // 10
    newest = naive_log(SAMPLE, Filter())
    assert [r.id for r in store.log(Filter(), limit=MAX_ROWS)] == [
        r.id for r in newest[: len(SAMPLE) - gone]
    ]


def test_retention_without_limits_does_nothing(filled):
    before = filled.size
    assert filled.retention() == 0
    assert filled.retention(larger_than=before * 2) == 0


def test_notes_are_counted_by_place_and_rule(filled):
    for where in (
        Filter(),
        Filter(since=BEGIN + DAY, until=BEGIN + 2 * DAY + 5 * HOUR),
        Filter(tool="*.price", version="1.1.0"),
        Filter(namespace="nobody"),
    ):
        expected = {}
        for record in sorted(SAMPLE, key=lambda r: r.at):
            if fits(record, where):
                places = {("issue", n.code, n.path) for n in record.issues}
                places |= {("warning", n.code, n.path) for n in record.warnings}
                places |= {("change", n.code, n.path) for n in record.changes}
                for kind, code, path in places:
                    place = path.replace("/0/", "/*/").replace("/1/", "/*/").replace("/3/", "/*/")
                    key = (record.tool, record.version, kind, code, place)
                    calls, first, _ = expected.get(key, (0, record.at, 0))
                    expected[key] = (calls + 1, first, record.at)
        found = {
            (n.tool, n.version, n.kind, n.code, n.path): (n.calls, n.first, n.last)
            for n in filled.notes(where)
        }
        assert found == expected


def test_names_that_callers_invent_make_no_answer_longer_than_its_bound(store):
    count = MAX_ROWS + 500
    store.add(
        [
            Record(
                id=str(n),
                at=BEGIN + n,
                ms=1,
                tool=f"made.up{n}",
                client=f"client {n}",
                gate="find",
                code="tool_not_found",
                key=f"tool_not_found:/{n}x:",
                issues=(Note("x", f"/{n}x"),),
            )
            for n in range(count)
        ]
    )
    assert len(store.rates(Filter(), "tool")) == MAX_ROWS
    assert len(store.rates(Filter(), "client")) == MAX_ROWS
    assert len(store.causes(Filter(), limit=count)) == MAX_ROWS
    assert len(store.notes(Filter(), limit=count)) == MAX_ROWS
    assert len(store.log(Filter(), limit=count)) == MAX_ROWS
    assert store.rates(Filter(), "namespace")[0].calls == count
