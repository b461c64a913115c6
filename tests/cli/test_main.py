"""The command line: results on standard output, everything else on standard error."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

import command_line
from callpact.cli.main import main
from callpact.cli.tool_commands import complete_tool
from callpact.codes import CODES

TOOLS = '''
import asyncio
import threading
from typing import Annotated, Literal, TypedDict

from pydantic import Field

from callpact import AccessDenied, CallError, Catalog, Context, Contract, NotAllowed, Runtime, Tool, ToolError, UpstreamError, tool

print("printed while imported")


class Offer(TypedDict):
    price: float
    stock: int


@tool(aliases=["plus"])
def add(a: int, b: Annotated[int, Field(ge=0, le=9)] = 2) -> int:
    """Add two numbers.

    The second line is not in the list.

    Args:
        a: The first.
        b: The second [of two].
    """
    print("printed by a tool")
    return a + b


@tool
async def echo(text: str, number: float = 0, flag: bool = False, tags: list[str] = []) -> dict:
    """Give back."""
    return {"text": text, "number": number, "flag": flag, "tags": tags}


@tool(policy="cast")
async def offer() -> Offer:
    """An upstream that changed."""
    return {"price": "12.5", "vendor": "acme"}


@tool
async def price(context: Context) -> float:
    """What another tool says."""
    envelope = await context.env.desk.offer({})
    return envelope.data["price"]


@tool
async def picture() -> bytes:
    """Bytes."""
    return b"\\x00\\xff\\n"


@tool
async def huge() -> int:
    """Beyond 64 bits."""
    return 10**30


@tool
def hang() -> None:
    """Hang."""
    print("hanging", flush=True)
    threading.Event().wait()


@tool
async def fail(code: str) -> None:
    """Fail as asked."""
    match code:
        case "access_denied":
            raise AccessDenied
        case "component_not_on_palette" | "component_not_allowed":
            raise NotAllowed(code, "no such component")
        case "upstream_error":
            raise UpstreamError("down", details={"statusCode": 503})
        case "aborted":
            raise asyncio.CancelledError
        case "handler_error":
            raise RuntimeError("the password is tea")
        case "sold_out":
            raise ToolError("sold_out", "None left", details={"left": 0})
        case _:
            raise CallError(code, "as asked")


async def _closed(arguments, context):
    return {"a": 1}

closed = Tool(
    id="strict.closed",
    description="Breaks its promise.",
    contract=Contract(output={"type": "object", "properties": {"a": {"type": "string"}}}, policy="reject"),
    handler=_closed,
)
'''
FEED = """
import asyncio
import sys
import threading

from callpact import Access, Contract, Tool, ToolError

OFFER = {"type": "object", "properties": {"price": {"type": "number"}}}
COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


def stream(name, handler, **more):
    contract = Contract(input=more.pop("input", {"type": "object"}), output=more.pop("output", None))
    return Tool(
        id=f"feed.{name}", description=f"{name}.", contract=contract, handler=handler,
        kind="subscription", **more,
    )


async def _upto(arguments, context):
    print("printed by a tool")
    for number in range(arguments["count"]):
        yield {"number": number, "text": "a\\nb"}


async def _lines(arguments, context):
    yield "ready"
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line.strip()


async def _deadline(arguments, context):
    yield context.deadline


async def _offers(arguments, context):
    yield {"price": 1}
    yield {"price": "12.5"}


async def _broken(arguments, context):
    yield 1
    yield 2
    raise ToolError("sold_out", "None left")


async def _forever(arguments, context):
    while True:
        await asyncio.sleep(0)
        yield "tick"


async def _chunks(arguments, context):
    yield b"\\x00\\xff"
    yield b"\\n"


async def _none(arguments, context):
    for nothing in ():
        yield nothing


async def _silent(arguments, context):
    try:
        yield "first"
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        print("closed", flush=True)


async def _busy(arguments, context):
    try:
        yield "first"
        while True:
            yield "more"
    finally:
        await asyncio.sleep(0)
        print("closed", flush=True)


async def _polite(arguments, context):
    try:
        yield "first"
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return
    finally:
        await asyncio.sleep(0)
        print("closed", flush=True)


async def _deaf(arguments, context):
    try:
        yield "first"
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                yield "went on"
    finally:
        await asyncio.sleep(0)
        print("closed", flush=True)


async def _stuck(arguments, context):
    try:
        yield "first"
        await asyncio.to_thread(threading.Event().wait)
    finally:
        await asyncio.sleep(0)
        print("closed", flush=True)


upto = stream("upto", _upto, input=COUNT)
lines = stream("lines", _lines)
deadline = stream("deadline", _deadline, timeout=5)
offers = stream("offers", _offers, output=OFFER)
broken = stream("broken", _broken)
forever = stream("forever", _forever)
chunks = stream("chunks", _chunks)
none = stream("none", _none, access=["feed:read", "feed:pay"])
silent, busy, polite = stream("silent", _silent), stream("busy", _busy), stream("polite", _polite)
deaf, stuck = stream("deaf", _deaf), stream("stuck", _stuck)


async def _sum(arguments, context):
    return 0

total = Tool(
    id="feed.total", description="Sum.", contract=Contract(), handler=_sum,
    access=Access(any_scopes=["one", "two"], resource_type="feed", resource_action="read"),
)
"""
CONFIG = '[sources.desk]\nref = "python:desk.py"\n'


@pytest.fixture
def desk(tmp_path, monkeypatch):
    (tmp_path / "desk.py").write_text(TOOLS, "utf-8")
    (tmp_path / "callpact.toml").write_text(CONFIG, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(monkeypatch, capfdbinary):
    """Run a command line in this process: exit code, standard output, standard error."""
    path = list(sys.path)

    def run_(*args):
        monkeypatch.setattr(sys, "argv", ["callpact", *map(str, args)])
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capfdbinary.readouterr()
        return SimpleNamespace(code=left.value.code or 0, out=out, err=err.decode())

    yield run_
    sys.path[:] = path


@pytest.fixture
def feed(tmp_path, monkeypatch):
    (tmp_path / "feed.py").write_text(FEED, "utf-8")
    (tmp_path / "callpact.toml").write_text('[sources.feed]\nref = "python:feed.py"\n', "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextlib.contextmanager
def started(*args):
    """A process that is given a minute."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-m", "callpact", *args], **pipes) as running:
        watch = threading.Timer(60, running.kill)
        watch.start()
        try:
            yield running
        finally:
            watch.cancel()
            running.kill()


def process(*args, **more):
    return subprocess.run(
        [sys.executable, "-m", "callpact", *args],
        capture_output=True,
        timeout=60,
        check=False,
        **more,
    )


# --- list, show ------------------------------------------------------------------------------


def test_list_shows_every_tool_with_its_first_line_and_arguments(desk, run):
    done = run("list")
    assert done.code == 0
    row = next(line for line in done.out.decode().splitlines() if line.startswith("desk.add"))
    assert "Add two numbers." in row
    assert "a, [b]" in row
    assert b"second line" not in done.out
    assert "9 tools" in done.err
    assert "printed while imported" in done.err


def test_in_a_pipe_a_tool_is_one_line_however_much_there_is_to_say(desk, run):
    (desk / "wordy.py").write_text(
        f"from callpact import tool\n@tool\ndef talk(a: int) -> int:\n    'Talk{' a lot' * 40}.'\n",
        "utf-8",
    )
    done = run("list", "-s", "wordy.py", "-s", "desk.py:add")
    header, *lines = done.out.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["wordy.talk", "desk.add"]
    assert lines[0].endswith("a lot.  a          convert")
    assert header.index("ARGUMENTS") == lines[1].index("a, [b]")


def test_what_a_tool_says_of_itself_cannot_draw_on_the_terminal(desk, run):
    (desk / "evil.py").write_text(
        "from callpact import tool\n@tool\ndef draw() -> int:\n    'A \\x1b[31mred [bold]\\ud800 word.'\n",
        "utf-8",
    )
    for words in (("list", "-s", "evil.py"), ("show", "evil.draw", "-s", "evil.py")):
        done = run(*words)
        assert done.code == 0
        assert "A \\u001b[31mred [bold]\\ud800 word." in done.out.decode()


def test_list_as_json_is_one_object_per_line(desk, run):
    rows = [json.loads(line) for line in run("list", "--json").out.splitlines()]
    assert rows[0]["id"] == "desk.add"
    assert rows[0]["wireName"] == "desk_add"
    assert rows[-1] == {
        "id": "strict.closed",
        "wireName": "strict_closed",
        "description": "Breaks its promise.",
        "kind": "mutation",
        "policy": "reject",
        "tags": [],
        "source": "python:desk.py:closed",
    }


@pytest.mark.parametrize("name", ["desk.add", "desk_add", "plus"])
def test_show_tells_what_a_tool_takes_and_gives(desk, run, name):
    done = run("show", name)
    assert done.code == 0
    text = done.out.decode()
    for part in (
        "desk.add",
        "The second [of two].",
        "maximum 9",
        "optional",
        "integer",
        "desk_add",
        "plus",
    ):
        assert part in text


def test_show_cuts_a_long_enum_and_json_does_not(desk, run):
    (desk / "big.py").write_text(
        "from typing import Literal\nfrom callpact import tool\n"
        f"@tool\ndef pick(word: Literal[{', '.join(repr(f'word{n}') for n in range(200))}]) -> int:\n"
        "    'Pick.'\n",
        "utf-8",
    )
    text = run("show", "big.pick", "-s", "big.py").out.decode()
    assert '"word0"' in text
    assert '"word199"' not in text
    shown = json.loads(run("show", "big.pick", "-s", "big.py", "--json").out)
    assert len(shown["input"]["properties"]["word"]["enum"]) == 200


def test_show_as_json_holds_both_schemas(desk, run):
    shown = json.loads(run("show", "desk.add", "--json").out)
    assert shown["input"]["required"] == ["a"]
    assert shown["output"] == {"type": "integer"}


def test_show_of_an_unknown_tool_names_the_nearest(desk, run):
    done = run("show", "desk.ad")
    assert done.code == CODES["tool_not_found"].exit
    assert done.out == b""
    assert "'desk.add'" in done.err


def test_a_bare_name_is_answered_with_every_id_that_ends_in_it(desk, run):
    (desk / "till.py").write_text(
        "from callpact import tool\n@tool\ndef add() -> int: return 1\n", "utf-8"
    )
    done = run("call", "add", "-s", "desk.py", "-s", "till.py")
    assert done.code == CODES["tool_not_found"].exit
    assert "'desk.add', 'till.add'" in done.err


# --- call ------------------------------------------------------------------------------------


def test_a_call_writes_its_data_as_json_and_what_is_printed_goes_to_stderr(desk):
    done = process("call", "desk.add", "a=1")
    assert done.returncode == 0
    assert done.stdout == b"3\n"
    assert b"printed while imported" in done.stderr
    assert b"printed by a tool" in done.stderr


def test_pairs_are_read_by_the_schema(desk, run):
    done = run("call", "desk.echo", "text=12", "number=12", "flag=true", 'tags=["a"]')
    assert json.loads(done.out) == {"text": "12", "number": 12, "flag": True, "tags": ["a"]}


def test_all_arguments_can_come_as_json(desk, run):
    assert run("call", "desk.add", "--input", '{"a": 1, "b": 3}').out == b"4\n"
    assert run("call", "desk.add", "-i", '{"a": 1}', "b=4").out == b"5\n"


def test_a_dash_reads_the_arguments_from_standard_input(desk):
    assert process("call", "desk.add", "-i", "-", input=b'{"a": 5}').stdout == b"7\n"


def test_the_envelope_says_where_a_result_came_from(desk, run):
    wire = json.loads(run("call", "desk.add", "a=1", "--as", "envelope").out)
    assert wire["data"] == 3
    assert wire["meta"]["source"] == "local"
    assert wire["meta"]["operationId"] == "desk.add"
    assert "changes" not in wire


@pytest.mark.parametrize(
    ("form", "expected"),
    [("gate", 3), ("data", 3), ("flowmcp", {"status": True, "messages": [], "data": 3})],
)
def test_a_result_can_be_written_in_other_forms(desk, run, form, expected):
    assert json.loads(run("call", "desk.add", "a=1", "--as", form).out) == expected


def test_warnings_and_changes_stand_on_stderr_only(desk, run):
    done = run("call", "desk.offer")
    assert done.code == 0
    assert json.loads(done.out) == {"price": 12.5, "stock": 0}
    for note in ("changed: /price was converted", "changed: /vendor was stripped", "[replaced]"):
        assert note in done.err


STOCK = b"Output property 'stock' is required"


def test_a_warning_is_told_once_and_logged_beside_it_only_if_all_is(desk):
    told = process("call", "desk.offer").stderr
    assert told.count(STOCK) == told.count(b"warning: " + STOCK) == 1
    told = process("call", "desk.offer", "--log-level", "info").stderr
    assert told.count(b"warning: " + STOCK) == 1
    assert told.count(b"WARNING callpact.contract: tool desk.offer ") == 1


def test_a_warning_about_a_tool_that_was_called_in_turn_is_told_once_by_the_log(desk):
    told = process("call", "desk.price").stderr
    assert told.count(STOCK) == told.count(b"WARNING callpact.contract: tool desk.offer ") == 1


def test_a_warning_about_a_result_of_a_subscription_is_told_once(feed):
    told = process("call", "feed.offers").stderr
    assert told.count(b"Output property 'price' must be a number") == 1
    assert b"callpact.contract" not in told


def test_the_envelope_holds_warnings_and_changes_where_there_are_some(desk, run):
    wire = json.loads(run("call", "desk.offer", "--as", "envelope").out)
    assert {change["path"] for change in wire["changes"]} == {"/price", "/stock", "/vendor"}
    assert wire["warnings"]


def test_a_policy_can_be_tightened_and_never_loosened(desk, run):
    tight = run("call", "desk.offer", "--policy", "reject")
    assert tight.code == CODES["output_validation_failed"].exit
    assert tight.out == b""
    loose = run("call", "desk.offer", "--policy", "pass")
    assert loose.code == 2
    assert "tighten" in loose.err


def test_bytes_go_to_a_pipe_as_they_are_and_into_json_as_base64(desk, run):
    assert run("call", "desk.picture").out == b"\x00\xff\n"
    wire = json.loads(run("call", "desk.picture", "--as", "envelope").out)
    assert base64.b64decode(wire["data"]) == b"\x00\xff\n"
    assert wire["encoding"] == "base64"


def test_integers_beyond_64_bits_are_written(desk, run):
    assert json.loads(run("call", "desk.huge").out) == 10**30


def test_a_rejected_call_tells_every_issue(desk, run):
    done = run("call", "desk.add", "b=12", "aa=1")
    assert done.code == CODES["schema_validation_failed"].exit
    assert done.out == b""
    for part in ("/a: Property 'a' is required", "/b: ", "/aa: ", "did you mean 'a'?"):
        assert part in done.err


def test_a_failure_is_json_on_stdout_where_a_form_for_it_was_asked_for(desk, run):
    gate = run("call", "desk.add", "--as", "gate")
    assert gate.code == CODES["schema_validation_failed"].exit
    assert json.loads(gate.out)["error"]["path"] == "/a"
    flow = json.loads(run("call", "desk.add", "--as", "flowmcp").out)
    assert flow == {
        "status": False,
        "messages": ["E004 add: Property 'a' is required"],
        "data": None,
    }


@pytest.mark.parametrize("code", [*CODES, "sold_out"])
def test_the_exit_code_tells_the_kind_of_error(desk, run, code):
    row = CODES.get(code)
    done = run("call", "desk.fail", f"code={code}")
    assert done.code == (row.exit if row else 6)
    assert done.out == b""
    assert f"{code}:" in done.err
    if code != "handler_error":
        assert "Traceback" not in done.err


def test_a_crash_is_logged_in_full_and_told_as_a_code(desk):
    done = process("call", "desk.fail", "code=handler_error", "--as", "gate")
    assert done.returncode == CODES["handler_error"].exit
    assert b"tea" not in done.stdout
    assert b"the password is tea" in done.stderr


def test_details_of_an_error_are_told(desk, run):
    assert '{"left":0}' in run("call", "desk.fail", "code=sold_out").err


def test_an_answer_that_breaks_a_strict_promise_is_not_delivered(desk, run):
    done = run("call", "strict.closed")
    assert done.code == CODES["output_validation_failed"].exit
    assert done.out == b""
    assert "/a" in done.err


@pytest.mark.parametrize("source", ["flag", "file"])
def test_a_timeout_ends_the_process_although_the_thread_runs_on(desk, source):
    args = ["--timeout", "0.2"] if source == "flag" else []
    if not args:
        (desk / "callpact.toml").write_text(CONFIG + "timeout = 0.2\n", "utf-8")
    done = process("call", "desk.hang", *args)
    assert done.returncode == CODES["timeout"].exit
    assert b"timeout: 'desk.hang'" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_ctrl_c_ends_a_call_at_once_without_a_trace(desk):
    started = subprocess.Popen(
        [sys.executable, "-m", "callpact", "call", "desk.hang"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    for line in started.stderr:
        if b"hanging" in line:
            break
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=30)
    assert started.returncode == 130
    assert out == b""
    assert b"Traceback" not in err


WRITING = [
    ("call", "desk.add", "a=1"),
    ("list",),
    ("list", "--json"),
    ("show", "desk.add"),
    ("--version",),
    ("--help",),
    ("list", "--help"),
    ("audit", "--help"),
    ("audit", "tail"),
    ("audit", "stats"),
]
"""Commands that have something to say on standard output."""


@pytest.mark.skipif(os.name == "nt", reason="a closed pipe is another error on Windows")
@pytest.mark.parametrize("stderr", [subprocess.PIPE, subprocess.STDOUT], ids=["read", "unread"])
@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_a_reader_that_leaves_early_ends_the_command_as_sigpipe_would(desk, words, stderr):
    if words[1:] in {("stats",), ("tail",)}:  # An empty log is an error of its own.
        command_line.unread("call", "desk.add", "a=1")
    done = command_line.unread(*words, stderr=stderr)
    assert (done.returncode, said(done.stderr or b"")) == (141, [])


def said(stderr):
    """The lines of a command on standard error, but for those that the tools print."""
    return [line for line in stderr.decode().splitlines() if not line.startswith("printed ")]


@pytest.mark.skipif(os.name == "nt", reason="shells of Windows cannot close a stream")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        *((words, 0) for words in WRITING[:7]),
        (("list", "-s", "missing.py"), 2),
        (("missing",), 2),
        (("call", "desk.add"), 3),
        (("call", "desk.add", "--as", "gate"), 3),
    ],
    ids=str,
)
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_without_standard_streams_ends_with_its_own_code(desk, words, code, closed):
    done = command_line.redirected(closed, *words)
    assert done.returncode == code
    if "2>&-" not in closed:
        assert b"Traceback" not in done.stderr
        assert b"Exception" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", WRITING[:7], ids=" ".join)
def test_results_that_cannot_be_written_are_an_error(desk, words):
    done = command_line.redirected(">/dev/full", *words)
    told = b"error: standard output cannot be written: No space left on device"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, told)
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_messages_that_nobody_can_read_do_not_stop_a_command(desk):
    done = command_line.redirected("2>/dev/full", "list", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[0])["id"] == "desk.add"


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["desk.add", "a"], "KEY=VALUE"),
        (["desk.add", "a=1", "a=2"], "'a' is given twice"),
        (["desk.add", "-i", "{"], "--input is not JSON"),
        (["desk.add", "-i", "[1]", "a=1"], "--input that is an object"),
        (["desk.add", "a=1", "--as", "xml"], "xml"),
        (["desk.add", "a=1", "--timeout", "0"], "--timeout"),
        (["desk.add", "a=1", "--timeout", "nan"], "timeout"),
    ],
)
def test_wrong_use_is_exit_code_2_and_says_what_is_wrong(desk, run, args, named):
    done = run("call", *args)
    assert done.code == 2
    assert done.out == b""
    assert named in done.err
    assert "Traceback" not in done.err


def test_arguments_that_are_no_object_are_rejected_by_the_gate(desk, run):
    done = run("call", "desk.add", "-i", "[1]")
    assert done.code == CODES["schema_validation_failed"].exit
    assert "must be an object, got array" in done.err


# --- subscriptions ---------------------------------------------------------------------------


def rows(done):
    """What was written, line by line; every line is JSON on its own."""
    return [json.loads(line) for line in done.out.splitlines()]


UPTO_2 = [{"number": number, "text": "a\nb"} for number in (0, 1)]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("data", UPTO_2),
        ("gate", UPTO_2),
        ("flowmcp", [{"status": True, "messages": [], "data": data} for data in UPTO_2]),
    ],
)
def test_a_subscription_writes_one_line_for_each_result(feed, run, form, expected):
    done = run("call", "feed.upto", "count=2", "--as", form)
    assert done.code == 0
    assert rows(done) == expected
    assert "printed by a tool" in done.err


def test_the_lines_of_a_subscription_are_compact(feed, run):
    done = run("call", "feed.upto", "count=1")
    assert done.out == b'{"number":0,"text":"a\\nb"}\n'


def test_the_envelopes_of_a_subscription_say_where_they_came_from(feed, run):
    wires = rows(run("call", "feed.upto", "count=2", "--as", "envelope"))
    assert [wire["data"] for wire in wires] == UPTO_2
    assert {wire["meta"]["operationId"] for wire in wires} == {"feed.upto"}


def test_a_subscription_without_results_writes_nothing(feed, run):
    done = run("call", "feed.none")
    assert (done.code, done.out) == (0, b"")


def test_nobody_asks_who_sits_at_the_keyboard(feed, run):
    assert run("call", "feed.total").out == b"0\n"


def test_each_result_is_written_before_the_next_one_comes(feed):
    with started("call", "feed.lines") as running:
        assert running.stdout.readline() == b'"ready"\n'
        for text in (b"one", b"two"):
            running.stdin.write(text + b"\n")
            running.stdin.flush()
            assert running.stdout.readline() == b'"' + text + b'"\n'
        running.stdin.close()
        assert running.stdout.read() == b""
        assert running.wait() == 0


def test_each_result_of_a_subscription_keeps_the_contract_and_its_notes_are_on_stderr(feed, run):
    done = run("call", "feed.offers")
    assert rows(done) == [{"price": 1}, {"price": 12.5}]
    assert done.err.count("changed: /price was converted") == 1


def test_a_tightened_policy_ends_a_subscription_at_the_result_that_breaks_it(feed, run):
    done = run("call", "feed.offers", "--policy", "reject")
    assert rows(done) == [{"price": 1}]
    assert done.code == CODES["output_validation_failed"].exit
    assert "/price" in done.err


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("data", [1, 2]),
        ("gate", [1, 2, {"error": {"code": "sold_out", "message": "None left"}}]),
        (
            "flowmcp",
            [
                {"status": True, "messages": [], "data": 1},
                {"status": True, "messages": [], "data": 2},
                {"status": False, "messages": ["E005 broken: None left"], "data": None},
            ],
        ),
    ],
)
def test_a_failure_comes_after_the_results_before_it(feed, run, form, expected):
    done = run("call", "feed.broken", "--as", form)
    assert done.code == 6
    assert rows(done) == expected
    assert "sold_out: None left" in done.err


def test_a_rejected_subscription_never_starts(feed, run):
    done = run("call", "feed.upto", "--as", "gate")
    assert done.code == CODES["schema_validation_failed"].exit
    assert [row["error"]["path"] for row in rows(done)] == ["/count"]
    assert "printed by a tool" not in done.err


def test_a_subscription_has_a_deadline_only_if_it_is_given_one(feed, run):
    (feed / "callpact.toml").write_text(
        '[sources.feed]\nref = "python:feed.py"\ntimeout = 7\n', "utf-8"
    )
    assert rows(run("call", "feed.deadline")) == [None]
    (deadline,) = rows(run("call", "feed.deadline", "--timeout", "60"))
    assert deadline > 0


def test_the_timeout_ends_a_subscription_although_it_sends(feed, run):
    done = run("call", "feed.forever", "--timeout", "0.2")
    assert done.code == CODES["timeout"].exit
    assert set(rows(done)) == {"tick"}
    assert "timeout: 'feed.forever'" in done.err


def test_bytes_of_a_subscription_go_to_a_pipe_as_they_are_and_into_json_as_base64(feed, run):
    assert run("call", "feed.chunks").out == b"\x00\xff\n"
    wires = rows(run("call", "feed.chunks", "--as", "envelope"))
    assert [base64.b64decode(wire["data"]) for wire in wires] == [b"\x00\xff", b"\n"]
    assert {wire["encoding"] for wire in wires} == {"base64"}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals of this kind")
@pytest.mark.parametrize(
    ("tool", "code", "shown"),
    [("feed.upto", 0, b'{"number":0,"text":"a\\nb"}\r\n'), ("feed.chunks", 2, b"")],
)
def test_a_terminal_shows_lines_too_and_never_bytes(feed, tool, code, shown):
    screen, terminal = os.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "callpact", "call", tool, "-i", '{"count": 1}'],
        stdout=terminal,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(terminal)
    text = b""
    with contextlib.suppress(OSError):  # The end of a terminal is an error.
        while part := os.read(screen, 1000):
            text += part
    os.close(screen)
    assert (done.returncode, text) == (code, shown)
    assert (b"--as envelope" in done.stderr) == bool(code)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
@pytest.mark.parametrize("tool", ["silent", "busy", "polite", "deaf", "stuck"])
def test_ctrl_c_ends_a_subscription_and_closes_its_tool(feed, tool):
    with started("call", f"feed.{tool}") as running:
        assert running.stdout.readline() == b'"first"\n'
        running.send_signal(signal.SIGINT)
        _, err = running.communicate()
    assert running.returncode == 130
    assert err.splitlines() == [b"closed"]


@pytest.mark.skipif(os.name == "nt", reason="a closed pipe is another error on Windows")
@pytest.mark.parametrize("tool", ["silent", "busy", "polite", "deaf", "stuck"])
def test_a_reader_that_leaves_ends_a_subscription_quietly_and_closes_its_tool(feed, tool):
    with started("call", f"feed.{tool}") as running:
        assert running.stdout.readline() == b'"first"\n'
        running.stdout.close()
        err = running.stderr.read()
        assert running.wait() == 128 + signal.SIGPIPE
    assert err.splitlines() == [b"closed"]


def test_a_list_tells_what_is_a_subscription_and_what_a_caller_needs(feed):
    lines = process("list", env={**os.environ, "COLUMNS": "200"}).stdout.decode().splitlines()
    notes = {line.split()[0]: line.partition(" pass ")[2].strip() for line in lines}
    assert "NOTE" in lines[0]
    assert notes["feed.silent"] == "subscription"
    assert notes["feed.none"] == "subscription; needs scopes feed:read, feed:pay"
    assert notes["feed.total"] == "needs one of the scopes one, two; the right to read some feed"


def test_a_list_of_ordinary_tools_has_no_column_for_notes(desk, run):
    assert b"NOTE" not in run("list").out


def test_json_tells_what_a_caller_needs_as_seed_001_writes_it(feed, run):
    by_id = {row["id"]: row for row in rows(run("list", "--json"))}
    assert by_id["feed.none"]["kind"] == "subscription"
    assert by_id["feed.none"]["access"] == {"requiredScopes": ["feed:read", "feed:pay"]}
    assert "access" not in by_id["feed.silent"]
    shown = json.loads(run("show", "feed.total", "--json").out)
    assert shown["access"] == {
        "requiredScopesAny": ["one", "two"],
        "resourceType": "feed",
        "resourceAction": "read",
    }


def test_show_tells_kind_and_needs(feed, run):
    shown = run("show", "feed.none").out.decode()
    facts = [" ".join(line.split()) for line in shown.splitlines()]
    assert "kind subscription" in facts
    assert "over MCP not served" in facts
    assert "needs scopes feed:read, feed:pay" in facts
    assert "needs" not in run("show", "feed.silent").out.decode()


# --- what cannot be loaded -------------------------------------------------------------------


def failure(done) -> str:
    assert done.code == 2
    assert done.out == b""
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    return done.err


def test_without_sources_it_says_how_to_name_one(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    told = failure(run("list"))
    assert "-s python:shop.py" in told
    assert "callpact init" in told


def test_bad_toml_is_told_with_file_and_line(desk, run):
    (desk / "callpact.toml").write_text("[sources.a]\nref = \n", "utf-8")
    told = failure(run("list"))
    assert "callpact.toml" in told
    assert "line 2" in told


def test_an_unknown_key_is_told_with_the_known_ones(desk, run):
    (desk / "callpact.toml").write_text(CONFIG + "polcy = 'cast'\n", "utf-8")
    told = failure(run("list"))
    assert "sources.desk.polcy" in told
    assert "policy" in told


def test_a_configuration_file_that_is_not_there_is_named(desk, run):
    assert "other.toml" in failure(run("list", "-c", "other.toml"))


def test_a_module_that_fails_to_import_is_told_with_its_line(desk, run):
    (desk / "broken.py").write_text("import callpact\n\n1 / 0\n", "utf-8")
    told = failure(run("list", "-s", "broken.py"))
    assert "ZeroDivisionError" in told
    assert "broken.py, line 3" in told


def test_a_module_without_tools_says_what_to_do(desk, run):
    (desk / "empty.py").write_text("x = 1\n", "utf-8")
    assert "@callpact.tool" in failure(run("list", "-s", "empty.py"))


def test_a_reference_that_no_source_reads_says_what_one_looks_like(desk, run):
    assert "python:shop.py" in failure(run("list", "-s", "shop.json"))


def test_one_bad_function_is_told_and_the_others_work(desk, run):
    (desk / "mixed.py").write_text(
        "from callpact import tool\n@tool\ndef good() -> int: return 1\n"
        "@tool\ndef bad(x: object()): pass\n",
        "utf-8",
    )
    done = run("call", "mixed.good", "-s", "mixed.py")
    assert (done.code, done.out) == (0, b"1\n")
    assert done.err.startswith("error: ")
    assert "bad" in done.err


def test_if_all_functions_are_bad_nothing_is_listed(desk, run):
    (desk / "allbad.py").write_text(
        "from callpact import tool\n@tool\ndef bad(x: object()): pass\n", "utf-8"
    )
    done = run("list", "-s", "allbad.py")
    assert done.code == 2
    assert "bad" in done.err
    assert "no tool could be loaded" in done.err


def test_two_tools_of_one_name_are_told_with_both_sources(desk, run):
    (desk / "twin.py").write_text(
        "from callpact import tool\n@tool(namespace='desk')\ndef add() -> int: return 1\n", "utf-8"
    )
    done = run("list", "-s", "desk.py:add", "-s", "twin.py")
    assert (done.code, done.out) == (2, b"")
    assert "python:desk.py:add" in done.err
    assert "python:twin.py:add" in done.err


# --- init, serve, help, completion -----------------------------------------------------------


def test_what_init_writes_works_at_once(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    done = run("init", "desk")
    assert done.code == 0
    assert done.out == b""
    assert "cd desk && callpact call tools.greet name=Ada" in done.err
    monkeypatch.chdir(tmp_path / "desk")
    assert json.loads(run("call", "tools.greet", "name=Ada", "times=2").out) == ["Hello, Ada!"] * 2
    assert run("call", "tools.greet", "name=Ada", "times=9").code == 3


def test_init_never_writes_over_a_file(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text("mine", "utf-8")
    assert "tools.py exists already" in failure(run("init"))
    assert (tmp_path / "tools.py").read_text("utf-8") == "mine"
    assert not (tmp_path / "callpact.toml").exists()


def test_init_into_a_file_is_told(tmp_path, run):
    (tmp_path / "file").write_text("", "utf-8")
    assert "cannot write" in failure(run("init", tmp_path / "file" / "folder"))


def test_a_server_logs_the_warnings_of_its_tools(desk):
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    hello["clientInfo"] = {"name": "test", "version": "1"}
    with started("serve", "--stdio") as running:
        for number, method, params in [
            (1, "initialize", hello),
            (None, "notifications/initialized", {}),
            (2, "tools/call", {"name": "desk_offer", "arguments": {}}),
        ]:
            message = {"jsonrpc": "2.0", "method": method, "params": params}
            message |= {} if number is None else {"id": number}
            running.stdin.write(json.dumps(message).encode() + b"\n")
            running.stdin.flush()
            if number is not None:
                answer = json.loads(running.stdout.readline())
                assert (answer["id"], "result" in answer) == (number, True)
        _, told = running.communicate()
    assert told.count(b"WARNING callpact.contract: tool desk.offer ") == 1


def test_version_says_which_one_is_installed(run):
    assert run("--version").out.decode().strip() == f"callpact {version('callpact')}"


@pytest.mark.parametrize("command", [None, "list", "show", "call", "check", "init", "serve"])
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_has_help(run, command, flag):
    done = run(*([command] if command else []), flag)
    assert done.code == 0
    assert b"Usage: callpact" in done.out


def test_the_shell_completes_tool_names(desk):
    # The protocol of typer's shell scripts: the words so far in the environment.
    done = process(
        env={
            **os.environ,
            "_CALLPACT_COMPLETE": "complete_bash",
            "COMP_WORDS": "callpact call desk.a",
            "COMP_CWORD": "2",
            "_TYPER_COMPLETE_ARGS": "callpact call desk.a",
        }
    )
    assert done.stdout.split() == [b"desk.add"]


def test_completion_looks_into_the_named_sources_and_never_fails(desk):
    context = SimpleNamespace(params={"source": ["desk.py"]})
    assert complete_tool(context, "desk.a") == [("desk.add", "Add two numbers.")]
    assert complete_tool(SimpleNamespace(params={"source": ["nosuch.py"]}), "") == []
