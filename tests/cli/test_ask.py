"""`callpact ask` and `callpact parse`: values on standard output, everything else on stderr."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import command_line
from callpact.agent import SqliteMemory
from callpact.audit import open_store
from callpact.audit.store import Filter
from callpact.cli.ask.ask_files import MAX_ANSWER_BYTES, MAX_SCHEMA_BYTES
from callpact.codes import CODES
from callpact.jsonreader.reader import LOSSY

run = command_line.run

BROKEN = CODES["output_validation_failed"].exit
SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "number", "minimum": 0}, "reason": {"type": "string"}},
    "required": ["amount", "reason"],
    "additionalProperties": False,
}
TOOLS = '''
import datetime
import os
import signal
from pydantic import BaseModel, Field
from callpact import Context, tool

print("printed while imported")


class Refund(BaseModel):
    """An amount in euros, and why."""

    amount: float = Field(ge=0)
    reason: str
    on: datetime.date = datetime.date(2026, 1, 2)


number = 7


@tool
def order(id: str) -> dict:
    """Find an order."""
    print("printed by a tool")
    return {"id": id, "total": 40}


@tool
async def approve(amount: float, context: Context) -> dict:
    """Ask the manager."""
    said = await context.pause(f"Refund {amount:g} euros?")
    again = await context.pause({"sure": said}) if said == "maybe" else said
    return {"approved": again}


@tool
async def hang() -> None:
    """Wait for Ctrl-C."""
    import asyncio
    print("hanging", flush=True)
    await asyncio.Event().wait()
'''
GOOD = '{"amount": 40, "reason": "late"}'


@pytest.fixture
def desk(tmp_path, monkeypatch):
    (tmp_path / "refunds_desk.py").write_text(TOOLS, "utf-8")
    (tmp_path / "refund.json").write_text(json.dumps(SCHEMA), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    yield tmp_path
    sys.modules.pop("refunds_desk", None)


@pytest.fixture
def ask(desk, run):
    """Ask a model that gives these replies."""

    def ask_(replies, *args):
        (desk / "script.json").write_text(json.dumps(replies), "utf-8")
        words = () if "--resume" in args else ("refund o7", "--model", "scripted:script.json")
        return run("ask", *words, *args)

    return ask_


def process(*args, **more):
    return subprocess.run(
        [sys.executable, "-m", "callpact", *args],
        capture_output=True,
        timeout=60,
        check=False,
        **more,
    )


def written(desk, text, name="answer.txt"):
    data = text if isinstance(text, bytes) else text.encode()
    (desk / name).write_bytes(data)
    return name


# --- parse ----------------------------------------------------------------------------------


def test_a_good_answer_is_its_value_and_nothing_is_told(desk, run):
    done = run("parse", written(desk, GOOD), "--schema", "refund.json")
    assert (done.code, json.loads(done.out), done.err) == (0, json.loads(GOOD), "")


def test_an_answer_is_read_from_standard_input(desk):
    for place in ([], ["-"]):
        done = process("parse", *place, "--schema", "refund.json", input=GOOD.encode())
        assert (done.returncode, json.loads(done.stdout)) == (0, json.loads(GOOD))


def test_without_a_schema_any_json_is_taken(desk, run):
    done = run("parse", written(desk, "[1, null]"))
    assert (done.code, json.loads(done.out)) == (0, [1, None])


FENCED = '```json\n{"amount": 40,\n "reason": "late",}\n```'


def test_broken_json_is_not_repaired_unasked_and_the_option_that_would_is_named(desk, run):
    done = run("parse", written(desk, FENCED), "--schema", "refund.json")
    assert (done.code, done.out) == (BROKEN, "")
    head, place, _, remedy = done.err.splitlines()
    assert "json-parse" in head
    assert place.strip().startswith("line 1, column 1:")
    assert remedy.strip() == "--repair safe would read it (fence, trailing_comma)"


def test_every_repair_is_told_with_its_place(desk, run):
    done = run("parse", written(desk, FENCED), "--schema", "refund.json", "--repair", "safe")
    assert (done.code, json.loads(done.out)) == (0, json.loads(GOOD))
    fence, comma = done.err.splitlines()
    assert fence.endswith("(line 1, column 1) [fence]")
    assert comma.endswith("(line 3, column 18) [trailing_comma]")


def test_as_json_value_and_repairs_stand_in_one_object(desk, run):
    name = written(desk, FENCED)
    done = run("parse", name, "--schema", "refund.json", "--repair", "safe", "--json")
    told = json.loads(done.out)
    assert told["value"] == json.loads(GOOD)
    assert [(r["code"], r["line"], r["column"]) for r in told["repairs"]] == [
        ("fence", 1, 1),
        ("trailing_comma", 3, 18),
    ]
    assert done.err == ""


def test_of_many_repairs_the_first_are_told_and_the_rest_counted(desk, run):
    name = written(desk, "[" + "'x',\n" * 50 + "]")
    done = run("parse", name, "--repair", "safe")
    assert json.loads(done.out) == ["x"] * 50
    *lines, last = done.err.splitlines()
    assert len(lines) == 20
    assert last == "repaired: 31 more; --json lists them all"  # 50 quotes, one comma at the end.
    told = json.loads(run("parse", name, "--repair", "safe", "--json").out)["repairs"]
    assert [(r["line"], r["column"]) for r in told[:3]] == [(1, 2), (2, 1), (3, 1)]


def test_what_could_change_the_meaning_is_refused_until_it_is_allowed_by_name(desk, run):
    name = written(desk, '{"amount": 40, "reason": "la')
    done = run("parse", name, "--schema", "refund.json", "--repair", "safe")
    assert done.code == BROKEN
    assert "--allow truncated would read it, and could change what was meant" in done.err
    done = run("parse", name, "--schema", "refund.json", "--allow", "truncated")
    assert (done.code, json.loads(done.out)) == (0, {"amount": 40, "reason": "la"})
    assert "[truncated]" in done.err


def test_a_repair_that_would_not_help_is_told_to_break_the_schema(desk, run):
    done = run("parse", written(desk, 'Sure: {"amount": "x"}'), "--schema", "refund.json")
    assert "--repair safe would read it; then it breaks its schema" in done.err


def test_an_unknown_repair_is_answered_with_all_names(desk, run):
    done = run("parse", written(desk, GOOD), "--allow", "cutstring")
    assert done.code == 2
    assert all(name in done.err for name in LOSSY)
    done = run("parse", written(desk, GOOD), "--allow", "nan", "--repair", "none")
    assert done.code == 2


def test_what_breaks_the_schema_is_told_place_by_place(desk, run):
    name = written(desk, '{"amount": -1, "resaon": "late"}')
    done = run("parse", name, "--schema", "refund.json")
    assert (done.code, done.out) == (BROKEN, "")
    assert "schema-validate" in done.err.splitlines()[0]
    assert [line.split(":")[0].strip() for line in done.err.splitlines()[1:]] == [
        "/reason",
        "/amount",
        "/resaon",
        "hint",
    ]


@pytest.mark.parametrize(
    ("text", "stage", "path"),
    [("Sure!", "json-parse", None), ('{"amount": 1}', "schema-validate", "/reason")],
)
def test_as_json_the_error_has_its_stage_and_the_whole_text(desk, run, text, stage, path):
    done = run("parse", written(desk, text), "--schema", "refund.json", "--json")
    error = json.loads(done.out)["error"]
    assert done.code == BROKEN
    assert (error["code"], error["stage"]) == ("ERR_OUTPUT_SCHEMA", stage)
    assert (error["path"], error["rawOutput"]) == (path, text)


def test_a_type_of_a_module_is_a_schema_and_its_value_is_written_as_json(desk, run):
    done = run("parse", written(desk, GOOD), "--schema", "refunds_desk.py:Refund")
    assert (done.code, json.loads(done.out)) == (0, {**json.loads(GOOD), "on": "2026-01-02"})
    assert done.err == "printed while imported\n"
    done = run("parse", written(desk, GOOD), "--schema", "refunds_desk:Refund")
    assert done.code == 0


@pytest.mark.parametrize(
    ("ref", "told"),
    [
        ("refnd.json", "there is no file 'refnd.json'; did you mean 'refund.json'?"),
        ("refunds_desks.py:Refund", "did you mean 'refunds_desk.py'?"),
        ("refunds_desk.py:Refnd", "did you mean Refund?"),
        ("refunds_desk.py:Zebra", "has no 'Zebra'; it has Refund"),
        ("refunds_desk.py", "names one type of a module: refunds_desk.py:Refund"),
        ("refunds_desk.py:number", "cannot be an answer's shape"),
        ("nothing.at.all:Refund", "there is no module 'nothing'"),
        ("empty.json", "is empty"),
        ("half.json", "is not JSON"),
        ("list.json", "is an object, 'list.json' holds [1]"),
        ("value.json", "has no keyword of JSON Schema (it has amount, reason)"),
        ("wrong.json", "invalid JSON Schema at /type"),
        ("deep.json", "too deep"),
        ("large.json", f"more than {MAX_SCHEMA_BYTES:,} bytes"),
        ("folder.json", "is a folder"),
        ("binary.json", "is not UTF-8 text: byte 0xff at 1"),
    ],
)
def test_a_schema_that_cannot_be_one_is_told_with_what_to_do(desk, run, ref, told):
    files = {
        "empty.json": " \n",
        "half.json": '{"type":',
        "list.json": "[1]",
        "value.json": GOOD,
        "wrong.json": '{"type": "strng"}',
        "deep.json": "[" * 100_000,
        "large.json": " " * (MAX_SCHEMA_BYTES + 1),
        "binary.json": b"{\xff}",
    }
    for name, text in files.items():
        written(desk, text, name)
    (desk / "folder.json").mkdir()
    done = run("parse", written(desk, GOOD), "--schema", ref)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


def test_a_file_that_is_no_answer_is_told_by_its_name(desk, run):
    for name, told in (
        ("anwser.txt", "there is no file 'anwser.txt'; did you mean 'answer.txt'?"),
        ("data.bin", "'data.bin' is not UTF-8 text: byte 0xff at 1"),
        (".", "'.' is a folder"),
    ):
        written(desk, GOOD)
        written(desk, b"{\xff}", "data.bin")
        done = run("parse", name)
        assert (done.code, done.out) == (2, "")
        assert told in done.err


def test_an_empty_answer_is_not_json(desk, run):
    done = run("parse", written(desk, ""), "--json")
    assert (done.code, json.loads(done.out)["error"]["stage"]) == (BROKEN, "json-parse")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a file without an end")
def test_a_file_without_an_end_is_read_to_the_limit_only(desk, run):
    done = run("parse", "/dev/zero")
    assert done.code == 2
    assert f"more than {MAX_ANSWER_BYTES:,} bytes" in done.err


def test_the_mark_of_an_encoding_is_not_a_part_of_the_answer(desk, run):
    for encoding in ("utf-8-sig", "utf-16"):
        done = run("parse", written(desk, GOOD.encode(encoding)), "--schema", "refund.json")
        assert (done.code, json.loads(done.out)) == (0, json.loads(GOOD))


@pytest.mark.skipif(os.name == "nt", reason="shells of Windows cannot close standard input")
@pytest.mark.parametrize("words", ["parse", "ask - --model scripted:script.json"])
def test_a_closed_standard_input_is_told(desk, words):
    written(desk, "[]", "script.json")
    line = f"exec '{sys.executable}' -m callpact {words} <&-"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert b"standard input, which is closed" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="a closed pipe is another error on Windows")
@pytest.mark.parametrize(
    "words",
    [
        ["parse", "answer.txt"],
        ["ask", "hi", "--model", "scripted:script.json", "--audit", "off"],
        ["ask", "hi", "--model", "scripted:script.json", "--audit", "off", "--stream"],
    ],
)
def test_a_reader_that_leaves_ends_the_command_quietly(desk, words):
    written(desk, GOOD)
    written(desk, json.dumps(["word " * 1000]), "script.json")
    done = command_line.unread(*words)
    assert (done.returncode, done.stderr) == (141, b"")


# --- ask ------------------------------------------------------------------------------------

ORDER = {"tool": "refunds_desk_order", "arguments": {"id": "o7"}}
TOOLED = ("-s", "python:refunds_desk.py")


def test_an_answer_under_contract_is_its_value_and_the_cost_is_told(ask):
    done = ask([ORDER, GOOD], "--schema", "refund.json", *TOOLED)
    assert (done.code, json.loads(done.out)) == (0, json.loads(GOOD))
    assert "2 requests, 1 tool call, 20 tokens in, 10 out" in done.err
    assert "printed by a tool" in done.err


def test_without_a_schema_the_answer_is_the_text(ask):
    done = ask(["Forty euros."])
    assert (done.code, done.out) == (0, "Forty euros.\n")


def test_the_message_can_come_from_standard_input(desk):
    written(desk, '["Forty."]', "script.json")
    words = ["ask", "-", "--model", "scripted:script.json"]
    assert process(*words, input=b"refund?").stdout == b"Forty.\n"
    done = process(*words, input=b" \n")
    assert done.returncode == 2
    assert b"the message is empty" in done.stderr


def test_an_answer_that_breaks_its_contract_is_told_whole(ask):
    done = ask(["Sure, forty!"], "--schema", "refund.json")
    assert (done.code, done.out) == (BROKEN, "")
    assert "json-parse" in done.err
    assert "--retries 2 would show the model its mistake" in done.err
    assert "the model wrote:\nSure, forty!\n" in done.err
    assert "WARNING" not in done.err  # The log would tell it again.
    logged = ask(["Sure, forty!"], "--schema", "refund.json", "--log-level", "info")
    assert "WARNING" in logged.err


def test_a_bad_answer_is_asked_for_again(ask):
    done = ask(["Forty", GOOD], "--schema", "refund.json", "--retries", 1, "--json")
    told = json.loads(done.out)
    assert told["value"] == json.loads(GOOD)
    assert [a["outcome"] for a in told["account"]["attempts"]] == ["retried", "passed"]
    assert told["account"]["requests"] == 2
    assert "not accepted (json-parse)" in done.err


def test_strict_rules_ask_again_within_the_turn(ask):
    replies = ["Forty", '{"amount": -1}', GOOD]
    done = ask(replies, "--schema", "refund.json", "--attempts", 3, "--json")
    account = json.loads(done.out)["account"]
    assert (account["requests"], account["iterations"]) == (3, 1)
    done = ask(replies, "--schema", "refund.json", "--attempts", 2)
    assert (done.code, done.out) == (BROKEN, "")
    assert "ERR_RELIABILITY_FAIL_FAST" in done.err
    assert "[schema-retry-exhausted]" in done.err
    done = ask(replies, "--schema", "refund.json", "--attempts", 2, "--json")
    error = json.loads(done.out)["error"]
    assert (error["kind"], error["stage"]) == ("schema-retry-exhausted", "schema-validate")
    assert error["rawOutput"] == replies[1]


def test_an_answer_can_be_repaired(ask):
    done = ask([FENCED], "--schema", "refund.json", "--repair", "safe")
    assert (done.code, json.loads(done.out)) == (0, json.loads(GOOD))
    assert "[fence]" in done.err
    cut = '{"amount": 40, "reason": "la'
    done = ask([cut], "--schema", "refund.json", "--allow", "truncated", "--json")
    assert [r["code"] for r in json.loads(done.out)["repairs"]] == ["truncated"]


def test_every_request_and_every_tool_call_is_on_record(ask, desk):
    ask([ORDER, "Forty", GOOD], "--schema", "refund.json", "--retries", 1, *TOOLED)
    ask([GOOD], "--audit", "off")
    store = open_store(desk / "data" / "callpact" / "audit")
    try:
        kept = [(r.tool, r.code, r.via) for r in reversed(store.log(Filter()))]
    finally:
        store.close()
    assert kept == [
        ("ask.model", None, "agent"),
        ("refunds_desk.order", None, "agent"),
        ("ask.model", "ERR_OUTPUT_SCHEMA", "agent"),
        ("ask.model", None, "agent"),
    ]


def test_the_tools_of_a_configuration_file_are_offered_as_to_every_command(ask, desk):
    text = '[sources.refunds_desk]\nref = "python:refunds_desk.py"\n'
    written(desk, text, "callpact.toml")
    assert "1 tool call" in ask([ORDER, "Forty."]).err


def test_a_model_that_fails_is_told_with_its_words(ask):
    done = ask([{"error": "the model is overloaded", "status": 529}], "--schema", "refund.json")
    assert (done.code, done.out) == (CODES["upstream_error"].exit, "")
    assert "ERR_MODEL: the model is overloaded" in done.err
    done = ask([{"error": "gone"}], "--json")
    assert json.loads(done.out)["error"]["code"] == "ERR_MODEL"


def test_a_limit_ends_the_run_and_says_how_to_set_another(ask):
    done = ask([ORDER, GOOD], "--limit", "iterations=1", *TOOLED)
    assert (done.code, done.out) == (CODES["timeout"].exit, "")
    assert "ERR_LIMIT_REACHED" in done.err
    assert "--limit iterations=… sets another" in done.err
    done = ask([ORDER, GOOD], "--limit", "tokens=12", "--json", *TOOLED)
    assert json.loads(done.out)["error"]["limit"] == "tokens"


@pytest.mark.parametrize("given", ["tokens", "tokens=x", "tokens=0", "tokens=1.5", "coins=3", "="])
def test_a_limit_that_is_none_is_refused(ask, given):
    done = ask([GOOD], "--limit", given)
    assert done.code == 2
    assert "limit" in done.err


def test_a_session_remembers_the_turns_of_earlier_processes(ask, desk):
    ask(["Forty."], "--memory", "turns.db", "--session", "ada")
    ask(["Again forty."], "--memory", "turns.db", "--session", "ada")
    memory = SqliteMemory(desk / "turns.db")
    turns = asyncio.run(memory.recall("ada", 9))
    memory.close()
    assert [turn.answer for turn in turns] == ["Forty.", "Again forty."]


def test_a_stream_without_a_schema_is_written_as_it_comes(ask):
    done = ask([ORDER, "Forty euros."], "--stream", *TOOLED)
    assert (done.code, done.out) == (0, "Forty euros.\n")


def test_a_stream_under_contract_is_told_beside_the_value_and_what_does_not_stand_is_ended(ask):
    done = ask(["For ty", GOOD], "--schema", "refund.json", "--retries", 1, "--stream")
    assert (done.code, json.loads(done.out)) == (0, json.loads(GOOD))
    first, note, second, _ = done.err.splitlines()
    assert (first, second) == ("For ty", GOOD)
    assert note.startswith("not accepted (json-parse)")


def test_a_stream_as_json_is_one_line_for_each_piece_and_ends_with_the_value(ask):
    done = ask(["For ty", GOOD], "--schema", "refund.json", "--retries", 1, "--stream", "--json")
    *pieces, last = map(json.loads, done.out.splitlines())
    reset = pieces.index({"reset": "schema-fail"})
    assert "".join(piece["token"] for piece in pieces[:reset]) == "For ty"
    assert "".join(piece["token"] for piece in pieces[reset + 1 :]) == GOOD
    assert last["value"] == json.loads(GOOD)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("{}", "must be a list of replies"),
        ("[1]", "reply 1 of 'script.json' must be text"),
        ('["a", {"arguments": {}}]', "reply 2 of 'script.json' must be text"),
        ("[", "is not JSON"),
        ("[]", "has 0 replies, and this is request 1"),
    ],
)
def test_a_script_that_a_model_cannot_say_is_told(desk, run, script, told):
    written(desk, script, "script.json")
    done = run("ask", "hi", "--model", "scripted:script.json")
    assert (done.code, done.out) == (2, "")
    assert told in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "say what to ask"),
        (("hi",), "say whom to ask with --model"),
        (("hi", "--model", "nobody:x"), "nobody:x"),
        (("hi", "--model", "scripted:scrip.json"), "did you mean 'script.json'?"),
        (("hi", "--model", "scripted:script.json", "--retries", "2"), "need --schema"),
        (("hi", "--model", "scripted:script.json", "--answer", "yes"), "name it with --resume"),
        (("hi", "--resume", "x.json", "--answer", "yes"), "and nothing new"),
        (("--resume", "x.json"), "--answer"),
        (("--resume", "x.json", "--answer", "yes"), "there is no file 'x.json'"),
        (("--resume", "script.json", "--answer", "yes"), "is no run that `callpact ask` paused"),
        (("hi", "--model", "x:y", "--checkpoint", "refund.json"), "is something else"),
        (("hi", "--model", "x:y", "--checkpoint", "no/where.json"), "there is no folder 'no'"),
        (("hi", "--model", "x:y", "--checkpoint", "."), "is a folder"),
    ],
)
def test_wrong_use_is_told_before_anything_is_asked(desk, run, words, told):
    written(desk, "[]", "script.json")
    done = run("ask", *words)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


# --- pauses ---------------------------------------------------------------------------------

APPROVE = {"tool": "refunds_desk_approve", "arguments": {"amount": 40}}
PAUSING = ("--schema", "refund.json", "--checkpoint", "run.json", *TOOLED)


def test_a_run_that_pauses_tells_the_question_and_how_to_go_on(ask, desk):
    done = ask([APPROVE, GOOD], *PAUSING)
    assert (done.code, done.out) == (CODES["paused"].exit, "")
    assert "refunds_desk_approve asks: Refund 40 euros?" in done.err
    assert 'callpact ask --resume run.json --answer "…"' in done.err
    assert (desk / "run.json").stat().st_mode & 0o077 == 0


def test_a_paused_run_goes_on_in_another_process_with_nothing_but_the_answer(ask, desk):
    ask([APPROVE, GOOD], *PAUSING)
    done = process("ask", "--resume", "run.json", "--answer", "yes", cwd=desk)
    assert (done.returncode, json.loads(done.stdout)) == (0, json.loads(GOOD))
    assert b"2 requests, 1 tool call" in done.stderr
    assert not (desk / "run.json").exists()  # A second answer would do everything twice.


def test_a_run_can_pause_again_and_is_kept_in_the_same_file(ask, desk):
    ask([APPROVE, GOOD], *PAUSING)
    again = ask([APPROVE, GOOD], "--resume", "run.json", "--answer", "maybe", "--json")
    paused = json.loads(again.out)["paused"]
    assert again.code == CODES["paused"].exit
    assert (paused["question"], paused["checkpoint"]) == ({"sure": "maybe"}, "run.json")
    assert ask([APPROVE, GOOD], "--resume", "run.json", "--answer", "true").code == 0


def test_without_a_place_a_paused_run_is_kept_for_its_owner(ask, desk):
    done = ask([APPROVE, GOOD], "--json", *TOOLED)
    kept = json.loads(done.out)["paused"]["checkpoint"]
    assert kept.startswith(str(desk / "data"))
    done = ask([APPROVE, GOOD], "--resume", kept, "--answer", '{"by": "Ada"}')
    assert (done.code, done.out) == (0, f"{GOOD}\n")


def test_a_run_that_cannot_go_on_keeps_its_checkpoint(ask, desk):
    ask([APPROVE, {"error": "gone"}], *PAUSING)
    failing = [APPROVE, {"error": "gone"}]
    done = ask(failing, "--resume", "run.json", "--answer", "yes")
    assert done.code == CODES["upstream_error"].exit
    assert ask([APPROVE, GOOD], "--resume", "run.json", "--answer", "yes").code == 0


def test_a_run_whose_tool_is_not_among_the_sources_keeps_its_checkpoint(ask, desk):
    ask([APPROVE, GOOD], *PAUSING)
    (desk / "other_desk.py").write_text(
        "from callpact import tool\n\n@tool\ndef look() -> str:\n    return ''\n", "utf-8"
    )
    resumed = ("--resume", "run.json", "--answer", "yes")
    done = ask([APPROVE, GOOD], *resumed, "-s", "python:other_desk.py")
    assert (done.code, done.out) == (2, "")
    assert "refunds_desk_approve" in done.err
    assert ask([APPROVE, GOOD], *resumed).code == 0


def test_a_call_that_was_cut_off_and_half_an_answer_are_reported(ask):
    cut = {"tool": "refunds_desk_order", "arguments": '{"id": "o7"', "finish": "length"}
    replies = [cut, {"text": "Half an ans", "finish": "length"}]
    done = ask(replies, *TOOLED)
    assert (done.code, done.out) == (0, "Half an ans\n")
    assert "a reply was cut off (length): not calling refunds_desk_order" in done.err
    assert "it is incomplete" in done.err
    assert "0 tool calls" in done.err or "tool call" not in done.err.splitlines()[-1]
    form = json.loads(ask(replies, "--json", *TOOLED).out)
    assert (form["answer"], form["finish"]) == ("Half an ans", "length")


def test_elsewhere_it_is_told_where_the_run_was_begun(ask, desk, monkeypatch):
    ask([APPROVE, GOOD], "--schema", str(desk / "refund.json"), "--checkpoint", "run.json", *TOOLED)
    (desk / "other").mkdir()
    monkeypatch.chdir(desk / "other")
    done = ask([APPROVE, GOOD], "--resume", "../run.json", "--answer", "yes")
    assert done.code == 2  # Its tools are not here.
    assert f"the run was begun in {desk}" in done.err


# --- terminals ------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_ctrl_c_ends_a_run_at_once_without_a_trace(desk):
    written(desk, json.dumps([{"tool": "refunds_desk_hang"}, GOOD]), "script.json")
    words = ["ask", "hi", "--model", "scripted:script.json", *TOOLED]
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "callpact", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        for line in running.stderr:
            if b"hanging" in line:
                break
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (130, b"")
    assert b"Traceback" not in err


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such terminals")
def test_on_a_terminal_an_answer_draws_nothing_and_progress_is_shown_beside_it(desk):
    import pty

    written(desk, json.dumps([ORDER, "red \x1b[31m text"]), "script.json")
    screen, terminal = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "callpact", "ask", "hi", "-m", "scripted:script.json", *TOOLED],
            stdout=terminal,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        os.close(terminal)
        shown = os.read(screen, 1000)
    finally:
        os.close(screen)
    assert done.returncode == 0
    assert shown == b"red \\u001b[31m text\r\n"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such terminals")
def test_on_a_terminal_it_is_shown_what_a_run_waits_for(desk):
    import pty

    written(desk, json.dumps([ORDER, "Forty."]), "script.json")
    screen, terminal = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "callpact", "ask", "hi", "-m", "scripted:script.json", *TOOLED],
            env={**os.environ, "TERM": "xterm"},
            stdout=subprocess.PIPE,
            stderr=terminal,
            timeout=60,
            check=False,
        )
        os.close(terminal)
        shown = b""
        while b" requests" not in shown:
            shown += os.read(screen, 4000)
    finally:
        os.close(screen)
    assert (done.returncode, done.stdout) == (0, b"Forty.\n")
    assert b"asking" in shown
