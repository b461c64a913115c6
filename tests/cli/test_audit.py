"""`callpact audit` and `callpact replay`: questions asked as a person asks them, of real logs."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time

import pytest

import asked
from asked import HOUR, MARKET, NOON, SHOP, called, ids, lines, numbers_of, record_calls, refused
from callpact.audit import Note, Payload
from callpact.audit.record import payload_of
from callpact.context import LogLine

ask = asked.ask
log = asked.log

# --- the acceptance stories -----------------------------------------------------------------


def test_five_per_cent_of_the_calls_of_a_tool_fail_with_one_cause(ask, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    calls = [{"query": "tea", "limit": 80 if n % 20 == 0 else n % 20} for n in range(100)]
    there = record_calls(
        tmp_path / "log",
        tmp_path / "shop.py",
        [("shop.product_search", arguments) for arguments in calls],
    )
    answer = ask("audit", "stats", *there)
    assert answer.code == 0
    row, cause = [line.split() for line in answer.out.splitlines() if line.startswith("shop.")]
    assert row[1:7] == ["100", "5", "5.0", "%", "0", "5"]
    assert cause[1:4] == ["5", "5.0", "%"]
    assert cause[4] == "schema_validation_failed:/limit:maximum"
    assert " ".join(cause[5:]) == "Property 'limit' must be ≤ 50"


@pytest.mark.parametrize("policy", ["warn", "cast", "convert", "reject"])
def test_drift_names_both_paths_their_share_and_a_patch_that_holds(ask, tmp_path, policy):
    source = tmp_path / "market.py"
    source.write_text(MARKET.replace('policy="warn"', f'policy="{policy}"'), "utf-8")
    there = record_calls(
        tmp_path / "log", source, [("market.ticker", {"number": n}) for n in range(100)]
    )
    answer = ask("audit", "drift", "-s", source, *there)
    assert answer.code == 0
    rows = [line.split() for line in answer.out.splitlines()]
    assert ["/price", "type", "30", "30.0", "%"] in [row[:5] for row in rows]
    assert ["/volume24h", "required", "30", "30.0", "%"] in [row[:5] for row in rows]
    assert "with it 100 of 100 recorded outputs pass, without it 70" in answer.out

    [told] = lines(ask("audit", "drift", "market.*", "-s", source, "--json", *there))
    first = next(row for row in told["findings"] if row["path"] == "/price")["first"]
    [at] = [
        row["at"]
        for row in lines(ask("audit", "export", *there))
        if row["input"]["value"] == {"number": 70}
    ]
    assert first == at
    assert told["proof"]["passed_after"] == told["proof"]["checked"] == 100
    assert told["patch"]["operations"]


def test_advice_tells_what_was_sent_and_the_change_that_lets_it_in(ask, tmp_path):
    source = tmp_path / "shop.py"
    source.write_text(SHOP, "utf-8")
    calls = [("shop.product_search", {"query": "tea", "limit": n}) for n in (5, 60, 80)]
    there = record_calls(tmp_path / "log", source, calls)
    answer = ask("audit", "advice", "-s", source, *there)
    assert answer.code == 0
    assert "  saves 2 calls: limit: le=50 → le=80" in answer.out.splitlines()
    [told] = lines(ask("audit", "advice", "shop.product_search", "-s", source, "--json", *there))
    assert (told["calls"], told["refused"], told["saved"]) == (3, 2, 2)
    [change] = told["relaxations"][0]["patch"]["operations"]
    assert (change["path"], change["value"]) == ("/properties/limit/maximum", 80)


def test_replay_tells_which_calls_a_changed_contract_would_turn(ask, tmp_path):
    source, changed = tmp_path / "shop.py", tmp_path / "changed.py"
    source.write_text(SHOP, "utf-8")
    changed.write_text(SHOP.replace("ge=1, le=50", "ge=10, le=70"), "utf-8")
    calls = [("shop.product_search", {"query": "tea", "limit": n}) for n in (5, 20, 60, 80)]
    there = record_calls(tmp_path / "log", source, calls)
    answer = ask("replay", "--against", changed, *there)
    assert answer.code == 0
    assert "1 of 2 let in then would be refused now" in answer.out
    assert "1 of 2 refused then would pass now" in answer.out
    told = json.loads(ask("replay", "--against", changed, "--json", *there).out)
    assert json.loads(told["refused_samples"][0]["input"])["limit"] == 5
    assert json.loads(told["admitted_samples"][0]["input"])["limit"] == 60
    same = json.loads(ask("replay", "-s", source, "--json", *there).out)
    assert (same["now_refused"], same["now_admitted"]) == (0, 0)


def test_an_unexpected_exception_is_shown_with_its_traceback_and_counted_by_its_place(
    ask, tmp_path, caplog
):
    source = tmp_path / "stock.py"
    source.write_text(
        "from callpact import tool\n\n@tool\ndef count(product: str) -> int:\n"
        '    "Count products."\n    return {"tea": 3}[product]\n',
        "utf-8",
    )
    calls = [("stock.count", {"product": name}) for name in ("tea", "oil", "rye")]
    there = record_calls(tmp_path / "log", source, calls)
    assert "KeyError" in caplog.text
    [cause] = json.loads(ask("audit", "stats", "--json", *there).out)["causes"]
    assert (cause["calls"], cause["of"]) == (2, 3)
    assert (cause["key"], cause["pattern"]) == (
        "handler_error:stock:count:KeyError",
        "KeyError: '…'",
    )
    [row, _] = lines(ask("audit", "log", "--cause", cause["key"], "--json", *there))
    shown = ask("audit", "show", row["id"], *there).out.splitlines()
    assert "     message  KeyError: 'rye'" in shown
    begin = shown.index("Traceback")
    assert shown[begin + 1] == "  Traceback (most recent call last):"
    assert "  KeyError: 'rye'" in shown[begin:]
    assert "Logs" not in shown


# --- log and its filters --------------------------------------------------------------------


def test_the_log_is_a_table_of_local_times_the_newest_first(ask, log):
    there = log(called(1), refused(2, caller=None, via=""))
    header, newest, older = ask("audit", "log", *there).out.splitlines()
    assert header.split() == ["TIME", "TOOL", "OUTCOME", "TOOK", "CALLER", "VIA", "ID"]
    assert newest.startswith("2026-09-01 14:00:02  shop.search  schema_validation_failed /limit")
    assert older.split()[2:7] == ["shop.search", "ok", "2.00", "ms", "ada"]


def test_json_lines_have_times_in_utc(ask, log):
    [row] = lines(ask("audit", "log", "--json", *log(called(1))))
    assert row["at"] == "2026-09-01T12:00:01.000Z"
    assert row["outcome"] == "ok"


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--tool", "shop.search"], [4, 3, 1]),
        (["--tool", "mail.*"], [2]),
        (["--namespace", "mail"], [2]),
        (["--caller", "bob"], [3]),
        (["--caller", ""], [2]),
        (["--gate", "input"], [4]),
        (["--code", "timeout"], [3]),
        (["--cause", "schema_validation_failed:*"], [4]),
        (["--version", "2.0.0"], [2]),
        (["--contract", "abc"], [1]),
        (["--client", "cursor 1.4"], [2]),
        (["--client", "c*", "--caller", "*"], [2, 1]),
        (["--client", ""], [4, 3]),
        (["--via", "cli"], [1]),
        (["--via", "mcp*"], [2]),
        (["--failed"], [4, 3]),
        (["--ok"], [2, 1]),
        (["--since", "2026-09-01T12:00:03Z"], [4, 3]),
        (["--until", "2026-09-01T14:00:03"], [2, 1]),
        (["--since", "2026-09-01", "--until", "2026-09-02", "--limit", "1"], [4]),
    ],
)
def test_a_filter_gives_the_calls_that_fit(ask, log, options, numbers):
    there = log(
        called(1, contract="abcdef", via="cli", client="claude-code 2.1.0"),
        called(
            *(2,),
            tool="mail.send",
            version="2.0.0",
            caller=None,
            via="mcp 2026-07-28",
            client="cursor 1.4",
        ),
        called(3, gate="handler", code="timeout", key="timeout::", caller="bob"),
        refused(4),
    )
    answer = ask("audit", "log", "--json", *options, *there)
    assert answer.code == 0
    assert numbers_of(ids(answer)) == numbers


def test_so_long_ago_counts_from_now(ask, log):
    now = int(time.time() * 1000)
    there = log(called(1, at=now - 3 * HOUR), called(2, at=now - HOUR))
    assert numbers_of(ids(ask("audit", "log", "--json", "--since", "2h", *there))) == [2]


def test_nothing_found_is_no_error(ask, log):
    there = log(called(1))
    for command in (["log"], ["log", "--json"], ["stats"], ["export"]):
        answer = ask("audit", *command, "--tool", "none.*", *there)
        assert answer.code == 0
        assert "no call on record fits" in answer.err
    assert not ask("audit", "log", "--tool", "none.*", *there).out


def test_what_nobody_has_is_told_with_the_nearest_that_somebody_has(ask, log):
    there = log(called(1, tool="shop.product_search", version="1.0.0"))
    answer = ask("audit", "log", "--tool", "shop.produkt_search", "--caller", "bob", *there)
    assert answer.code == 0
    assert "no tool 'shop.produkt_search' on record; did you mean 'shop.product_search'?" in (
        answer.err
    )
    assert "no caller 'bob' on record" in answer.err
    door = ask("audit", "stats", "--via", "htp", *there)
    assert "no via 'htp' on record; did you mean 'http'?" in door.err
    known = ask("audit", "log", "--tool", "shop.product_search", "--failed", *there)
    assert known.err == "no call on record fits\n"


def test_text_of_records_draws_nothing_and_stays_the_same_in_json(ask, log):
    evil = "\x1b[2J\x9b31m\u202ename"
    there = log(called(1, tool=evil, caller=evil, input=payload_of(json.dumps(evil).encode())))
    shown = [
        ask("audit", *command, *there).out
        for command in (["log"], ["show", "00000001"], ["stats"], ["log", "--csv"], ["export"])
    ]
    assert not any(sign in text for text in shown for sign in ("\x1b", "\x9b", "\u202e"))
    [row] = lines(ask("audit", "export", *there))
    assert row["tool"] == row["input"]["value"] == evil


# --- export ---------------------------------------------------------------------------------


def test_an_export_has_every_call_once_over_many_pages(ask, log):
    there = log(*(called(n, at=NOON + n // 7) for n in range(1_234)))
    rows = lines(ask("audit", "export", *there))
    assert len({row["id"] for row in rows}) == len(rows) == 1_234
    assert [row["at"] for row in rows] == sorted((row["at"] for row in rows), reverse=True)
    assert rows[0]["input"]["value"] == {"limit": 10}
    assert len(lines(ask("audit", "export", "--limit", "600", *there))) == 600


def test_csv_is_read_back_and_holds_no_formula(ask, log):
    there = log(called(1, caller="=1+1", output=payload_of(b'["a\\nb",1]')), refused(2))
    rows = list(csv.DictReader(io.StringIO(ask("audit", "export", "--csv", *there).out)))
    assert [row["outcome"] for row in rows] == ["failed", "ok"]
    assert rows[1]["caller"] == "'=1+1"
    assert json.loads(rows[1]["output"]) == ["a\nb", 1]
    assert json.loads(rows[0]["issues"])[0]["code"] == "maximum"


def test_csv_says_how_large_a_value_was_and_that_it_is_cut(ask, log):
    cut = payload_of(b'"' + b"x" * 100_000 + b'"')
    there = log(called(1, output=cut), called(2, output=payload_of(b"[1]")), called(3))
    rows = list(csv.DictReader(io.StringIO(ask("audit", "export", "--csv", *there).out)))
    told = [(row["output_bytes"], row["output"][-3:]) for row in reversed(rows)]
    assert told == [("100002", "xx…"), ("3", "[1]"), ("", "")]
    assert {row["input_bytes"] for row in rows} == {"12"}


def test_csv_has_what_a_tool_logged_and_that_it_said_it_failed(ask, log):
    there = log(called(1, logs=(LogLine("info", "one, two"),), tool_error=True), called(2))
    second, first = csv.DictReader(io.StringIO(ask("audit", "export", "--csv", *there).out))
    assert json.loads(first["logs"]) == [{"level": "info", "message": "one, two"}]
    assert (first["tool_error"], second["tool_error"], second["logs"]) == ("true", "", "")


def test_a_closed_pipe_ends_an_export_quietly(log):
    there = log(*(called(n) for n in range(3_000)))
    with subprocess.Popen(
        [sys.executable, "-m", "callpact", "audit", "export", *there],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert json.loads(process.stdout.readline())["tool"] == "shop.search"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 141


# --- show -----------------------------------------------------------------------------------


def test_a_call_is_shown_with_all_that_is_known(ask, log):
    warned = called(
        1,
        warnings=(Note("type", "/price", "must be a number"),),
        changes=(Note("converted", "/limit"),),
        status=200,
        source="http",
        client="cursor 1.4",
        output=payload_of(b'{"price":"12"}'),
        logs=(LogLine("warning", "the second try\x1b[2J"),),
    )
    answer = ask("audit", "show", warned.id, *log(warned))
    assert answer.code == 0
    for part in (
        "2026-09-01 14:00:01 (2026-09-01T12:00:01.000Z)",
        "http 200",
        "client  cursor 1.4",
        "warning  the second try",
        "/price  type  must be a number",
        "/limit  converted",
        '"price": "12"',
        '"limit": 10',
    ):
        assert part in answer.out
    assert "\x1b[2J" not in answer.out
    told = json.loads(ask("audit", "show", warned.id, "--json", "--audit", "log").out)
    assert told["logs"] == [{"level": "warning", "message": "the second try\x1b[2J"}]
    assert told["client"] == "cursor 1.4"


def test_a_name_that_a_caller_made_up_forges_no_line(ask, log):
    forged = called(1, tool="x\n        time  1999-01-01 00:00:00", gate="find")
    answer = ask("audit", "show", forged.id, *log(forged))
    assert not [line for line in answer.out.splitlines() if line.lstrip().startswith("time  1999")]


def test_what_is_cut_or_kept_as_a_hash_says_so(ask, log):
    whole = payload_of(b'"' + b"x" * 70_000 + b'"')
    answer = ask("audit", "show", "0", *log(called(1, input=whole, output=Payload("ab" * 32, 9))))
    assert "70,002 bytes" in answer.out
    assert "cut, only the first 65,536 bytes are kept" in answer.out
    assert "only its hash is kept" in answer.out
    told = json.loads(ask("audit", "show", "0", "--json", "--audit", "log").out)
    assert told["input"]["is_cut"]
    assert told["output"] == {"sha256": "ab" * 32, "size": 9}


def test_the_tries_before_a_repaired_call_are_its_chain(ask, log):
    there = log(
        called(1),
        refused(2, 90),
        refused(3, 80, caller="bob"),
        refused(4, 70),
        called(5),
        called(6),
    )
    for number in (2, 4, 5):
        told = json.loads(ask("audit", "show", f"{number:012d}", "--json", *there).out)
        assert numbers_of(told["chain"]) == [2, 4, 5]
    assert json.loads(ask("audit", "show", called(6).id, "--json", *there).out)["chain"] == []
    shown = ask("audit", "show", called(5).id, *there).out
    assert shown.count("schema_validation_failed /limit") == 2


def test_of_many_tries_those_around_a_call_are_shown(ask, log):
    there = log(*(refused(n) for n in range(50)), called(50))
    answer = ask("audit", "show", refused(25).id, *there)
    assert "21 of 51 tries" in answer.err
    assert (
        len(json.loads(ask("audit", "show", refused(25).id, "--json", *there).out)["chain"]) == 51
    )


def test_tries_of_two_clients_without_a_name_are_two_chains(ask, log):
    there = log(
        refused(1, caller=None, client="cursor 1.4"),
        called(2, caller=None, client="claude-code 2.1"),
        called(3, caller=None, client="cursor 1.4"),
    )
    told = json.loads(ask("audit", "show", refused(1).id, "--json", *there).out)
    assert numbers_of(told["chain"]) == [1, 3]


def test_a_part_of_an_id_must_be_of_one_call(ask, log):
    there = log(called(1), called(2))
    unknown = ask("audit", "show", "nothing", *there)
    assert unknown.code == 2
    assert "no call 'nothing' on record" in unknown.err
    several = ask("audit", "show", "0000000", *there)
    assert several.code == 2
    assert called(1).id in several.err
    assert called(2).id in several.err
    for part in ("00000002", "000002", "00000002..000002"):
        assert json.loads(ask("audit", "show", part, "--json", *there).out)["id"] == called(2).id
    assert ask("audit", "show", "00000001..000002", *there).code == 2


# --- what goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["log", "--since", "last week"], "'last week' is no time"),
        (["log", "--since", "1h", "--until", "2h"], "is not before"),
        (["log", "--json", "--csv"], "choose one"),
        (["stats", "--by", "colour"], "'colour' is not one of"),
        (["log", "--gate", "door"], "'door' is not one of"),
    ],
)
def test_a_question_that_cannot_be_read_is_one_clear_error(ask, log, options, said):
    answer = ask("audit", *options, *log(called(1)))
    assert answer.code == 2
    assert not answer.out
    assert said in " ".join(answer.err.split())


def test_where_nothing_was_recorded_is_told_and_nothing_is_made(ask, tmp_path):
    for command in (["log"], ["stats"], ["show", "1"], ["export"], ["tail"]):
        answer = ask("audit", *command)
        assert answer.code == 2
        assert "nothing is on record yet" in answer.err
        missing = ask("audit", *command, "--audit", "elsewhere")
        assert missing.code == 2
        assert "no audit log in 'elsewhere'" in missing.err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_log_says_how_it_is_filled(ask, log):
    there = log()
    for command in ("log", "stats", "export"):
        answer = ask("audit", command, *there)
        assert answer.code == 2
        assert "`callpact call`" in answer.err


@pytest.mark.parametrize("manifest", ['{"version": 999}', "{"])
def test_a_log_of_another_callpact_is_refused(ask, log, tmp_path, manifest):
    there = log(called(1))
    (tmp_path / "log" / "store" / "manifest.json").write_text(manifest, "utf-8")
    answer = ask("audit", "log", *there)
    assert answer.code == 2
    assert "manifest.json" in answer.err
    assert answer.err.count("\n") == 1


def test_the_folder_of_the_configuration_is_the_one_that_is_read(ask, log, tmp_path):
    log(called(1))
    (tmp_path / "callpact.toml").write_text('[audit]\nfolder = "log"\n', "utf-8")
    assert ids(ask("audit", "log", "--json")) == [called(1).id]
    (tmp_path / "callpact.toml").rename(tmp_path / "other.toml")
    assert ids(ask("audit", "log", "--json", "-c", "other.toml")) == [called(1).id]


def test_a_folder_in_the_home_of_the_user_is_found_there(ask, log, tmp_path, monkeypatch):
    log(called(1))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "callpact.toml").write_text('[audit]\nfolder = "~/log"\n', "utf-8")
    assert numbers_of(ids(ask("audit", "log", "--json"))) == [1]


def test_a_tool_that_is_not_in_the_sources_is_told(ask, log, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    there = log(called(1))
    for command in ("drift", "advice"):
        named = ask("audit", command, "shop.nothing", "-s", "shop.py", *there)
        assert named.code == 2
        assert "shop.nothing" in named.err
        every = ask("audit", command, "-s", "shop.py", *there)
        assert every.code == 0
        assert "1 tool on record cannot be judged" in every.err
