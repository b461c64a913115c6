"""The calls of a day in two bytes each tell what is counted of them, and their hours."""

from __future__ import annotations

from collections import Counter

from generated import records
from hypothesis import given
from hypothesis import strategies as st

from callpact.audit.histogram import bucket_of, one_in
from callpact.audit.hours import calls_by_hour, calls_within, packed_call, sums_by_hour
from callpact.audit.sql_rows import mark_of

CALLS = st.lists(st.tuples(st.integers(0, 23), st.sampled_from(list(records(300)))), max_size=60)


@given(CALLS)
def test_the_calls_of_each_hour_are_counted_as_they_went(calls):
    kept = b"".join(packed_call(hour, mark_of(record)) for hour, record in calls)
    assert len(kept) == 2 * len(calls)
    told = {
        hour: (s.calls, s.failed, s.rejected, s.warned, s.histogram)
        for hour, s in sums_by_hour(kept)
    }
    hours = {hour: [record for other, record in calls if other == hour] for hour, _ in calls}
    assert told == {
        hour: (
            len(those),
            sum(record.is_error for record in those),
            sum(record.gate in {"find", "access", "input"} for record in those),
            sum(not record.is_error and bool(record.warnings) for record in those),
            sum(one_in(bucket_of(record.ms)) for record in those),
        )
        for hour, those in hours.items()
    }
    counts = Counter[int]()
    for hour, count in calls_by_hour(kept):
        counts[hour] += count
    assert counts == Counter(hour for hour, _ in calls)


@given(CALLS, st.integers(-30, 30), st.integers(0, 60))
def test_calls_within_some_hours_are_counted_with_the_first_and_the_last_of_these(calls, first, n):
    kept = b"".join(packed_call(hour, mark_of(record)) for hour, record in calls)
    within = [hour for hour, _ in calls if first <= hour < first + n]
    expected = (len(within), min(within), max(within)) if within else None
    assert calls_within(kept, range(first, first + n)) == expected
