"""`callpact audit stats`: how calls went, before and after, and whether all are on record."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import time

import pytest

import asked
from asked import HOUR, NOON, called, on_terminal, raw_on_terminal, refused
from callpact.audit import Note
from callpact.audit.journal.health import add_health
from callpact.audit.store.parquet import ParquetStore
from callpact.audit.store.retention import keep

ask = asked.ask
log = asked.log


def test_calls_are_counted_by_what_was_asked_for(ask, log):
    there = log(
        *(called(n) for n in range(3)),
        refused(3),
        called(
            *(4,),
            tool="mail.send",
            caller=None,
            gate="handler",
            code="timeout",
            key="timeout::",
            client="cursor 1.4",
        ),
    )
    expected = {
        "client": {"": (4, 1, 1), "cursor 1.4": (1, 1, 0)},
        "tool": {"shop.search": (4, 1, 1), "mail.send": (1, 1, 0)},
        "namespace": {"shop": (4, 1, 1), "mail": (1, 1, 0)},
        "caller": {"ada": (4, 1, 1), "": (1, 1, 0)},
        "gate": {"": (3, 0, 0), "input": (1, 1, 1), "handler": (1, 1, 0)},
        "hour": {"2026-09-01T12:00:00.000Z": (5, 2, 1)},
        "via": {"http": (5, 2, 1)},
    }
    for by, groups in expected.items():
        told = json.loads(ask("audit", "stats", "--by", by, "--json", *there).out)
        counts = {
            row["group"]: (row["calls"], row["failed"], row["rejected"]) for row in told["groups"]
        }
        assert counts == groups
        assert ask("audit", "stats", "--by", by, *there).code == 0
    rows = list(csv.DictReader(io.StringIO(ask("audit", "stats", "--csv", *there).out)))
    assert [(row["group"], row["rate"]) for row in rows] == [
        ("shop.search", "0.25"),
        ("mail.send", "1.0"),
    ]


def test_the_trend_is_one_bar_for_each_hour(ask, log):
    there = log(*(called(n, at=NOON - hour * HOUR) for n, hour in enumerate([0, 0, 2, 30])))
    [row] = [x for x in ask("audit", "stats", *there).out.splitlines() if x.startswith("shop")]
    # Two calls in the last hour, none before it, half as many before that; the fourth is too old.
    assert row.endswith("   ▄ █")
    later = ask("audit", "stats", "--until", "9999-12-31", *there)
    assert [line for line in later.out.splitlines() if line.endswith("   ▄ █")]
    # In a longer window a bar is two hours: the last is from 11:00 to 13:00, with two calls.
    longer = ask("audit", "stats", "--since", "2026-08-31T06:00Z", "--by", "via", *there)
    [row] = [line for line in longer.out.splitlines() if line.startswith("http")]
    assert "a bar of the trend is 2 hours" in longer.err
    assert row.split()[-2:] == ["▄", "▄█"]


def test_one_clock_that_was_ahead_does_not_hide_the_trend(ask, log):
    now = int(time.time() * 1000)
    there = log(*(called(n, at=now - n) for n in range(4)), called(9, at=now + 3 * 24 * HOUR))
    [row] = [x for x in ask("audit", "stats", *there).out.splitlines() if x.startswith("shop")]
    assert row.split()[1] == "5"
    assert set("▁▂▃▄▅▆▇█") & set(row)


def test_causes_are_told_with_their_share_of_all_calls(ask, log):
    there = log(*(called(n) for n in range(17)), *(refused(n) for n in range(17, 20)))
    for options in ((), ("--failed",)):
        answer = ask("audit", "stats", "--by", "key", *options, *there)
        header, *rows = answer.out.splitlines()
        assert header.split()[:3] == ["KEY", "CALLS", "SHARE"]
        [cause] = [row for row in rows if row.startswith("schema_validation_failed")]
        assert cause.split()[1:4] == ["3", "15.0", "%"]
        told = json.loads(ask("audit", "stats", "--by", "key", "--json", *options, *there).out)
        shares = {row["group"]: row["share"] for row in told["groups"]}
        assert shares["schema_validation_failed:/limit:maximum"] == 0.15


def test_calls_of_tools_that_are_not_there_are_among_the_rejected(ask, log):
    there = log(called(1), called(2, tool="no.such", gate="find", code="tool_not_found"))
    told = json.loads(ask("audit", "stats", "--json", *there).out)["groups"]
    assert {row["group"]: row["rejected"] for row in told} == {"shop.search": 0, "no.such": 1}


def test_whether_callers_repair_what_is_refused_is_told(ask, log):
    there = log(
        *(refused(1), refused(2), called(3)),  # Repaired at the third try,
        *(refused(4, caller="bob"), called(5, caller="bob")),  # at the second,
        *(refused(6, caller="eve"), refused(7, caller="eve")),  # and not at all.
    )
    told = json.loads(ask("audit", "stats", "--json", *there).out)["repairs"]
    assert told == {"chains": 3, "repaired": 2, "tries": 3, "share": 2 / 3}
    words = "the latest refused inputs: 2 of 3 repaired by their caller (66.7 %), after 1.5 tries"
    assert words in ask("audit", "stats", *there).err
    nobody = log(called(8, tool="mail.send"))
    assert "refused inputs" not in ask("audit", "stats", "--tool", "mail.send", *nobody).err


def test_a_repair_is_seen_though_very_many_calls_follow(ask, log):
    there = log(
        refused(0), called(1), *(called(n, at=NOON + 1_000 + n // 3) for n in range(2, 1_500))
    )
    told = json.loads(ask("audit", "stats", "--json", *there).out)["repairs"]
    assert (told["chains"], told["repaired"], told["tries"]) == (1, 1, 1)
    chain = json.loads(ask("audit", "show", refused(0).id, "--json", *there).out)["chain"]
    assert len(chain) == 2


def test_groups_that_are_left_out_are_told(ask, log):
    there = log(*(called(n, tool=f"shop.t{n}") for n in range(5)))
    assert "the largest 2 of 5 groups" in ask("audit", "stats", "-n", "2", *there).err
    assert "groups" not in ask("audit", "stats", *there).err


def versions():
    """One in ten is refused of 1.9.0, one in two of 1.10.0; it is slower, too."""
    return (
        *(called(n, version="1.9.0") for n in range(9)),
        refused(9, version="1.9.0"),
        called(10, version="1.10.0", ms=20.0),
        refused(11, version="1.10.0", ms=20.0),
    )


def test_what_was_before_and_after_a_version_stands_side_by_side(ask, log):
    there = log(*versions())
    answer = ask("audit", "stats", "--version", "1.10.0", "--compare", "1.9.0", *there)
    assert answer.code == 0
    header, rates, _, causes_header, causes = answer.out.splitlines()
    named = ["CALLS", "FAILED", "RATE", "CHANGE", "WARNED", "P50", "P95", "P99"]
    assert header.split() == ["TOOL", *named]
    wanted = "shop.search 10 → 2 1 10.0 % → 50.0 % +40.0 0 2.00 ms → 20.0 ms"
    assert " ".join(rates.split()).startswith(wanted)
    assert causes_header.split() == ["TOOL", "BEFORE", "AFTER", "CHANGE", "KEY", "CAUSE"]
    assert causes.split()[:6] == ["shop.search", "10.0", "%", "50.0", "%", "+40.0"]
    assert causes.endswith("schema_validation_failed:/limit:maximum  Property 'limit' must be ≤ 50")
    told = json.loads(
        ask("audit", "stats", "--version", "1.10.0", "--compare", "1.9.0", "--json", *there).out
    )
    assert [row["rate"] for row in (*told["groups_before"], *told["groups"])] == [0.1, 0.5]
    written = ask("audit", "stats", "--version", "1.10.0", "--compare", "1.9.0", "--csv", *there)
    rows = csv.DictReader(io.StringIO(written.out))
    assert [(row["when"], row["rate"]) for row in rows] == [("before", "0.1"), ("after", "0.5")]
    by_key = ("audit", "stats", "--version", "1.10.0", "--compare", "1.9.0", "--by", "key")
    rows = list(csv.DictReader(io.StringIO(ask(*by_key, "--csv", *there).out)))
    shares = [(row["when"], row["share"]) for row in rows if row["group"]]
    assert shares == [("before", "0.1"), ("after", "0.5")]
    assert None not in rows[0]
    [cause] = [x for x in ask(*by_key, *there).out.splitlines() if x.startswith("schema_v")]
    assert "10.0 % → 50.0 %" in cause
    assert "+40.0" in cause
    lonely = ask("audit", "stats", "--compare", "1.0.0", *there)
    assert lonely.code == 2
    assert "give --version or --contract" in lonely.err


def test_the_versions_of_a_tool_follow_each_other_with_the_change_in_points(ask, log):
    there = log(*versions(), called(12, version=None), called(13, tool="mail.send", version="7"))
    answer = ask("audit", "stats", "--tool", "shop.search", "--by", "version", *there)
    header, *rows = [line.split() for line in answer.out.splitlines()[:4]]
    assert header[9] == "CHANGE"
    assert [(row[0], row[3], row[13]) for row in rows] == [
        ("(none)", "0.0", "-"),
        ("1.9.0", "10.0", "+10.0"),
        ("1.10.0", "50.0", "+40.0"),
    ]
    # Versions of several tools do not follow each other.
    every = ask("audit", "stats", "--by", "version", *there)
    assert "CHANGE" not in every.out
    assert "--tool" in every.err


def test_what_a_log_could_not_keep_is_told(ask, log, tmp_path):
    there = log(called(1))
    assert "health of the log: 0 lost, 0 unreadable, 0 refused, 0 damaged, 0 waiting" in (
        ask("audit", "stats", *there).err
    )
    (tmp_path / "log" / "journal").mkdir(exist_ok=True)
    add_health(tmp_path / "log" / "journal", lost=3, unreadable=1, refused=2)
    assert "health of the log: 3 lost, 1 unreadable, 2 refused, 0 damaged, 0 waiting" in (
        ask("audit", "stats", *there).err
    )
    told = json.loads(ask("audit", "stats", "--json", *there).out)["health"]
    assert told == {
        "lost": 3,
        "unreadable": 1,
        "refused": 2,
        "damaged": 0,
        "waiting": 0,
        "held": None,
    }


def test_a_damaged_file_is_named_by_every_question_and_the_others_answer(ask, log, tmp_path):
    there = log(called(1), called(2, at=NOON + 48 * HOUR))
    first = min((tmp_path / "log" / "store").glob("*.parquet"))
    first.write_bytes(b"no file of ours")
    for command in ("log", "stats", "export"):
        answer = ask("audit", command, *there)
        assert answer.code == 0
        assert f"left out: '{first.name}' cannot be read" in answer.err
    told = json.loads(ask("audit", "stats", "--json", *there).out)
    assert told["health"]["damaged"] == 1
    assert [group["calls"] for group in told["groups"]] == [1]


def test_a_retention_run_that_waits_is_told(ask, log, tmp_path):
    there = log(called(1))
    with contextlib.closing(ParquetStore(tmp_path / "log")) as store:
        keep(store, tmp_path / "log" / "journal", NOON + 400 * 24 * HOUR, keep_days=90)
    answer = ask("audit", "stats", *there)
    assert "retention is held since" in answer.err
    assert "is the clock of this machine right?" in " ".join(answer.err.split())
    told = json.loads(ask("audit", "stats", "--json", *there).out)["health"]["held"]
    assert (told["at"], told["parts"]) == (NOON + 400 * 24 * HOUR, 1)


# --- the screen -----------------------------------------------------------------------------


def mixed():
    """Calls with results, with warnings, refused, and failed in a tool's own words."""
    orders = [
        called(
            *(n,),
            tool="shop.order",
            ms=1_500.0 * n,
            gate="handler",
            code="no_order",
            key="no_order::",
            message=f"Order {n}-{n * 7} of 'customer {n}' was not found",
        )
        for n in range(20, 26)
    ]
    warned = (called(n, warnings=(Note("type", "/price", "must be a number"),)) for n in (5, 6))
    return (*(called(n) for n in range(5)), *warned, *(refused(n, 80 + n) for n in (7, 8)), *orders)


def test_results_with_warnings_have_a_column(ask, log):
    answer = ask("audit", "stats", *log(*mixed()))
    header, *rows = [line.split() for line in answer.out.splitlines()]
    [row] = [row for row in rows if row[:2] == ["shop.search", "9"]]
    assert row[header.index("WARNED") + 1] == "2"  # The rate is two words.
    assert "; 2 with warnings" in answer.err


def test_the_messages_of_a_cause_are_one_pattern(ask, log):
    there = log(*mixed())
    told = json.loads(ask("audit", "stats", "--json", *there).out)["causes"]
    assert {cause["key"]: (cause["calls"], cause["pattern"]) for cause in told} == {
        "no_order::": (6, "Order … of 'customer …' was not found"),
        "schema_validation_failed:/limit:maximum": (2, "Property 'limit' must be ≤ 50"),
    }
    assert told[0]["message"] == "Order 25-175 of 'customer 25' was not found"
    shown = ask("audit", "stats", *there).out
    assert "  6  100.0 %  no_order::                               Order … of" in shown
    assert "customer 2" not in shown


def test_a_view_shows_only_what_it_is_about(ask, log):
    there = log(*mixed())
    for by in ("tool", "namespace"):
        answer = ask("audit", "stats", "--by", by, *there)
        assert "CAUSE" in answer.out
        assert "health of the log" in answer.err
        assert "refused inputs" in answer.err
    for by in ("caller", "client", "via", "version", "hour"):
        answer = ask("audit", "stats", "--by", by, *there)
        assert "CAUSE" not in answer.out
        assert "P95" in answer.out
        assert "health of the log" not in answer.err
        assert "refused inputs" not in answer.err
    for by in ("gate", "code", "key"):
        answer = ask("audit", "stats", "--by", by, *there)
        assert answer.out.split()[:3] == [by.upper(), "CALLS", "SHARE"]
        assert not {"CAUSE", "FAILED", "P50"} & set(answer.out.split())


@pytest.mark.parametrize("columns", [80, 120])
def test_numbers_are_aligned_and_nothing_is_wider_than_the_terminal(log, columns):
    there = log(*mixed())
    shown = on_terminal(columns, "audit", "stats", *there)
    assert max(map(len, shown)) <= columns
    header, *rows = shown
    for name, cells in {"CALLS": "9 6", "FAILED": "2 6", "WARNED": "2 0"}.items():
        end = header.index(name) + len(name)
        assert [row[:end].split()[-1] for row in rows[:2]] == cells.split()
        assert not any(row[end : end + 1].strip() for row in rows[:2])
    assert rows[1].split()[-1] == ("█" if columns == 120 else "s")
    end = header.index("P95") + len("P95")
    assert [row[:end].split()[-2:] for row in rows[:2]] == [["2.00", "ms"], ["37.5", "s"]]
    causes = next(line for line in shown if "CAUSE" in line)
    assert ("KEY" in causes) == (columns == 120)
    assert " ".join(" ".join(shown).split()).count("Order … of 'customer …' was") == 1


def test_without_colour_only_the_weight_of_letters_is_styled(log):
    there = log(*mixed())
    for command in ("stats", "log"):
        styled = "".join(raw_on_terminal(120, "audit", command, *there))
        plain = "".join(raw_on_terminal(120, "audit", command, *there, NO_COLOR="1"))
        assert ("\x1b[31m" in styled) == (command == "log")
        assert "\x1b[3" not in plain
