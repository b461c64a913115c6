from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import subprocess
import sys
import threading
import unicodedata
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from callpact.context import Identity
from callpact.envelope import http_envelope
from callpact.errors import CallError, ToolError
from callpact.runtime import Runtime
from callpact.secrets import MASK, Secrets
from callpact.telemetry import logs as module
from callpact.telemetry.logs import (
    MAX_LOG_FRAMES,
    MAX_LOG_MESSAGE,
    MAX_LOG_TRACE,
    call_observers,
    log_call,
)
from callpact.tool import Access, Call, Contract, Tool

SECRET = 'k3y+/of"upstream'
LATER = "known-only-later"
FORMS = ["text", "json"]
PATIENCE = 60
FULL = Path("/dev/full")


def configure(level, form="text"):
    """Without the handlers of the test runner, which raise at what ours has to bear."""
    for handler in tuple(logging.root.handlers):
        if not isinstance(handler, module.Logs):
            logging.root.removeHandler(handler)
    return module.configure(level, form)


class Stderr:
    """What was written to standard error so far."""

    def __init__(self, capsys):
        self._capsys = capsys
        self._read = ""

    def getvalue(self):
        self._read += self._capsys.readouterr().err
        return self._read


@pytest.fixture
def stderr(capsys):
    """Standard error as a text; logging is as it was before once the test is over."""
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in root.manager.loggerDict}
    level, handlers = root.level, tuple(root.handlers)
    yield Stderr(capsys)
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.setLevel(level)
    for name in tuple(root.manager.loggerDict):
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))


def printed(*texts, end="\n"):
    print(*texts, end=end, file=sys.stderr)  # noqa: T201 - as tools do


def lines_of(stderr):
    return stderr.getvalue().splitlines()


def records_of(stderr):
    return [json.loads(line) for line in lines_of(stderr)]


# --- one record --------------------------------------------------------------------------------


def test_a_record_is_one_json_object_with_time_level_logger_and_message(stderr):
    configure("info", "json")
    before = datetime.now(UTC)
    logging.getLogger("shop.till").warning("%s items, %s", 3, "é")
    [record] = records_of(stderr)
    assert record.keys() == {"time", "level", "logger", "message"}
    assert (record["level"], record["logger"]) == ("warning", "shop.till")
    assert record["message"] == "3 items, é"
    assert record["time"].endswith("Z")
    assert len(record["time"].partition(".")[2]) == len("000Z")
    told = datetime.fromisoformat(record["time"])
    assert before - timedelta(milliseconds=1) <= told <= datetime.now(UTC)


def test_text_is_level_logger_and_message(stderr):
    configure("info")
    logging.getLogger("shop.till").info("%s items", 3)
    assert stderr.getvalue() == "INFO shop.till: 3 items\n"


@pytest.mark.parametrize("form", FORMS)
def test_what_is_below_the_level_is_not_written(stderr, form):
    configure("error", form)
    logging.getLogger("shop").warning("quiet")
    assert not stderr.getvalue()


@pytest.mark.parametrize("form", FORMS)
def test_the_last_configuration_counts(stderr, form):
    configure("debug", "json")
    configure("info", form)
    logging.getLogger("shop").debug("quiet")
    logging.getLogger("shop").info("once")
    assert stderr.getvalue().count("once") == 1
    assert "quiet" not in stderr.getvalue()


def test_closed_logs_give_standard_error_back(stderr):
    before = sys.stderr
    logs = configure("info", "json")
    assert sys.stderr is not before
    sys.stderr.write("half a line")
    logs.close()
    assert sys.stderr is before
    assert [record["message"] for record in records_of(stderr)] == ["half a line"]


def test_an_exception_is_a_field_of_its_record(stderr):
    configure("info", "json")
    try:
        raise KeyError("gone") from ValueError("the cause")
    except KeyError:
        logging.getLogger("shop").exception("it failed")
    [record] = records_of(stderr)
    assert record["message"] == "it failed"
    assert "ValueError: the cause" in record["exception"]
    assert record["exception"].endswith("KeyError: 'gone'")


def test_a_stack_is_a_field_and_no_exception_is_none(stderr):
    configure("info", "json")
    logging.getLogger("shop").info("here", stack_info=True, exc_info=(None, None, None))
    [record] = records_of(stderr)
    assert "test_logs.py" in record["stack"]
    assert "exception" not in record


def test_the_call_and_the_tool_of_a_record_are_fields(stderr):
    configure("info", "json")
    extra = {"call_id": "c-1", "tool_id": "shop.price", "else": "not told"}
    logging.getLogger("callpact.runtime").info("a", extra=extra)
    logging.getLogger("callpact.tool.shop.price").info("b")
    logging.getLogger("elsewhere").info("c", extra={"call_id": ["odd", 1]})
    first, second, third = records_of(stderr)
    assert (first["call_id"], first["tool_id"]) == ("c-1", "shop.price")
    assert "else" not in first
    assert second["tool_id"] == "shop.price"
    assert isinstance(third["call_id"], str)


# --- nothing in a record can pretend to be another ----------------------------------------------

HOSTILE = {
    "a line": "a\nERROR bank: forged",
    "a carriage return": "a\r\nERROR bank: forged\rERROR bank: forged",
    "other line ends": "a\x0bb\x0cc\x1cd\x1ee\x85f\u2028g\u2029h",
    "a terminal's codes": "\x1b[2J\x1b]0;title\x07\x9b31m",
    "turned around": "\u202eabc\u2066\u200f",
    "nothing": "\x00\x7f",
    "half a character": "\ud800",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_json_is_one_line_without_control_characters_whatever_is_logged(stderr, text):
    configure("info", "json")
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger(f"shop{text}").exception("%s", text, extra={"call_id": text})
    written = stderr.getvalue()
    assert written.endswith("}\n")
    assert len(written.splitlines()) == 1
    assert not [char for char in written[:-1] if unicodedata.category(char) in {"Cc", "Cf", "Cs"}]
    if text.isascii():
        assert json.loads(written)["message"] == text


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_in_text_no_line_of_a_message_begins_like_a_record(stderr, text):
    configure("info")
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("shop").exception("%s", text)
    first, *others = lines_of(stderr)
    assert first.startswith("ERROR shop: ")
    assert all(line.startswith("    ") for line in others)
    shown = stderr.getvalue().replace("\n", "")
    assert not [char for char in shown if unicodedata.category(char) in {"Cc", "Cf", "Cs"}]


# --- secrets -----------------------------------------------------------------------------------


def log_everywhere(value):
    log = logging.getLogger("third.party")
    log.warning("in a message: %s", value)
    log.warning(f"{value} in front")  # noqa: G004 - as others do
    log.warning("in a field", extra={"call_id": value, "tool_id": {"a": [value]}})
    logging.getLogger(f"third.{value}").warning("in a name")
    log.warning("in a stack", stack_info=True)
    try:
        try:
            raise ConnectionError(f"https://api.x.com/?key={value}")
        except ConnectionError as error:
            error.add_note(f"with {value}")
            raise RuntimeError(value) from error
    except RuntimeError:
        log.exception("it failed")
    group = ExceptionGroup("several", [ValueError(value), TypeError(value)])
    log.error("it failed", exc_info=group)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [SECRET, LATER], ids=["given", "found later"])
def test_a_secret_is_masked_wherever_any_logger_puts_it(stderr, form, value):
    logs = configure("debug", form)
    secrets = Secrets({"KEY": SECRET}, None, {"LATER": LATER}, keys=["LATER"])
    logs.hide(secrets)
    assert secrets.get("LATER") == LATER
    log_everywhere(value)
    written = stderr.getvalue()
    assert value not in written
    assert json.dumps(value)[1:-1] not in written
    assert written.count(MASK) == (8 if form == "text" else 10)


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_within_the_secret_of_another_source_leaves_nothing_of_it(stderr, form):
    logs = configure("info", form)
    logs.hide(Secrets({"SHORT": "abcdefgh"}))
    logs.hide(Secrets({"LONG": "abcdefgh-and-more"}))
    logging.getLogger("shop").info("key abcdefgh-and-more, key abcdefgh.")
    assert f"key {MASK}, key {MASK}." in stderr.getvalue()


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_of_several_lines_is_masked(stderr, form):
    logs = configure("info", form)
    key = "-----BEGIN KEY-----\nabcdefghijkl\nmnopqrstuvwx\n-----END KEY-----"
    logs.hide(Secrets({"KEY": key}))
    logs.take_stderr()
    logging.getLogger("shop").info("it is %s", key)
    printed(f"it is {key}")
    assert "abcdefghijkl" not in stderr.getvalue()
    assert stderr.getvalue().count(f"it is {MASK}") == 2


LONG_SECRET = "".join(f"<{number}>" for number in range(400))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("times", [1, 10, 11, 40])
@pytest.mark.parametrize("shift", [-1500, -700, -1, 0, 1])
def test_where_a_text_is_cut_no_part_of_a_secret_shows(stderr, form, times, shift):
    logs = configure("info", form)
    logs.hide(Secrets({"KEY": LONG_SECRET}))
    before = MAX_LOG_MESSAGE * times + shift
    log = logging.getLogger("shop")
    log.info(f"{'x' * before}{LONG_SECRET}")  # noqa: G004 - the message itself is long
    log.info(LONG_SECRET * (before // len(LONG_SECRET) + 1))
    assert "<17" not in stderr.getvalue()
    assert "<39" not in stderr.getvalue()


# --- limits ------------------------------------------------------------------------------------


def test_a_long_message_is_cut_and_says_so(stderr):
    configure("info", "json")
    logging.getLogger("shop").info("x" * (MAX_LOG_MESSAGE + 1))
    logging.getLogger("shop").info("x" * MAX_LOG_MESSAGE)
    cut, whole = records_of(stderr)
    assert cut["message"] == "x" * MAX_LOG_MESSAGE + "…"
    assert whole["message"] == "x" * MAX_LOG_MESSAGE


def test_the_innermost_calls_of_a_deep_exception_are_shown(stderr):
    configure("info", "json")

    def even(number):
        return odd(number - 1) if number else 1 / 0

    def odd(number):
        return even(number - 1) if number else 1 / 0

    try:
        even(300)
    except ZeroDivisionError:
        logging.getLogger("shop").exception("it failed")
    [record] = records_of(stderr)
    assert record["exception"].count("File ") == MAX_LOG_FRAMES
    assert record["exception"].endswith("ZeroDivisionError: division by zero")


def test_a_huge_exception_is_cut(stderr):
    configure("info", "json")
    logging.getLogger("shop").error("it failed", exc_info=ValueError("y" * 5_000_000))
    [record] = records_of(stderr)
    assert record["exception"].startswith("ValueError: yyy")
    assert len(record["exception"]) == MAX_LOG_TRACE + len("…")


# --- logging never raises ----------------------------------------------------------------------


class Mute:
    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


class Locked(Secrets):
    def masker(self):
        raise RuntimeError("the dictionary changed")


@pytest.mark.parametrize("form", FORMS)
def test_arguments_that_cannot_be_shown_leave_the_rest_of_the_message(stderr, form):
    configure("info", form)
    logging.getLogger("shop").info("%d items", "three")
    logging.getLogger("shop").info("an item: %s", Mute())
    first, second = lines_of(stderr)
    assert "%d items (its arguments cannot be shown: TypeError)" in first
    assert "an item: %s (its arguments cannot be shown: RuntimeError)" in second


@pytest.mark.parametrize("form", FORMS)
def test_a_record_that_cannot_be_shown_is_told_of_without_what_it_holds(stderr, form):
    configure("info", form)
    logging.getLogger("shop").error(Mute())
    [line] = lines_of(stderr)
    assert "a record could not be written: RuntimeError" in line


@pytest.mark.parametrize("form", FORMS)
def test_what_cannot_be_masked_is_not_written(stderr, form):
    logs = configure("info", form)
    logs.hide(Locked())
    logging.getLogger("shop").error("the key is %s", SECRET)
    logs.write_event("serving", f"the key is {SECRET}", {"key": SECRET})
    logs.take_stderr()
    printed(f"the key is {SECRET}")
    [line] = lines_of(stderr)
    assert "could not be written" in line
    assert "key is" not in line


@pytest.mark.parametrize("form", FORMS)
def test_without_standard_error_nothing_is_written_and_nothing_fails(monkeypatch, stderr, form):
    monkeypatch.setattr(sys, "stderr", None)
    logs = configure("info", form)
    logging.getLogger("shop").info("unheard")
    logs.take_stderr(steady=True)
    logging.getLogger("shop").info("unheard")
    printed("unheard")
    with pytest.raises(OSError):
        sys.stderr.fileno()


@pytest.mark.parametrize("form", FORMS)
def test_a_closed_stream_breaks_nothing(monkeypatch, stderr, form):
    closed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", closed)
    configure("info", form)
    closed.close()
    logging.getLogger("shop").info("unheard")


# --- what others print -------------------------------------------------------------------------


def test_beside_json_what_is_printed_is_json_too(stderr):
    configure("info", "json")
    printed("one", "two")
    printed("\n\x1b[31merror:\x1b[0m no such file\nwarning: old")
    sys.stderr.buffer.write(b"\xff raw\n")
    sys.stderr.flush()
    told = [(record["level"], record["logger"], record["message"]) for record in records_of(stderr)]
    assert told == [
        ("info", "stderr", "one two"),
        ("error", "stderr", "error: no such file"),
        ("warning", "stderr", "warning: old"),
        ("info", "stderr", "\\xff raw"),
    ]
    assert not sys.stderr.isatty()


def test_as_text_what_is_printed_stays_as_it_is_but_for_secrets(stderr):
    logs = configure("info")
    logs.hide(Secrets({"KEY": SECRET}))
    logs.take_stderr()
    printed(f"\x1b[31mred\x1b[0m {SECRET}", end="\n\n")
    assert stderr.getvalue() == f"\x1b[31mred\x1b[0m {MASK}\n\n"


def test_a_printed_line_without_end_is_cut(stderr):
    configure("info", "json")
    for _ in range(300):
        sys.stderr.write("z" * 10_000)
    sys.stderr.write("\n")
    [record] = records_of(stderr)
    assert record["message"] == "z" * MAX_LOG_MESSAGE + "…"


def test_what_a_command_tells_itself_is_one_line_at_every_level(stderr):
    logs = configure("error", "json")
    logs.hide(Secrets({"KEY": SECRET}))
    fields = {"tools": {"shop": 2, f"a {SECRET}": 1}, "reasons": [f"no {SECRET}"], "watching": True}
    logs.write_event("serving", "serving 3 tools", fields)
    [record] = records_of(stderr)
    assert record["event"] == "serving"
    assert record["message"] == "serving 3 tools"
    assert record["tools"] == {"shop": 2, f"a {MASK}": 1}
    assert record["reasons"] == [f"no {MASK}"]
    assert record["watching"] is True


# --- those who tell too much ---------------------------------------------------------------------


@pytest.mark.parametrize("level", ["debug", "info"])
@pytest.mark.parametrize("name", ["mcp.server.runner", "sse_starlette.sse", "httpx2", "aiohttp"])
def test_libraries_that_log_what_calls_carry_are_heard_from_warnings_on(stderr, level, name):
    configure(level)
    log = logging.getLogger(name)
    log.debug("frame: %s", {"arguments": {"city": "Ulm"}})
    log.info("session 123 of 10.0.0.1")
    log.warning("gave up")
    assert lines_of(stderr) == [f"WARNING {name}: gave up"]


# --- calls -------------------------------------------------------------------------------------


def made(name, handler, **more):
    return Tool(id=f"shop.{name}", description=name, contract=Contract(), handler=handler, **more)


async def price(arguments, context):
    return {"price": "the answer"}


async def fetched(arguments, context):
    return http_envelope("the answer", status_code=200, headers={}, content_type="text/plain")


async def sold_out(arguments, context):
    raise ToolError("sold_out", "the message", details={"a": "the details"})


async def nested(arguments, context):
    return await context.env.shop.price({})


TOOLS = [
    made("price", price),
    made("fetched", fetched),
    made("sold_out", sold_out),
    made("nested", nested),
    made("closed", price, access=Access(scopes=("admin",))),
]


def call_all(*names):
    async def go():
        async with Runtime(TOOLS, call_observers()) as runtime:
            for name in names:
                call = Call(name, {"city": "the arguments"})
                with contextlib.suppress(CallError):
                    await runtime.call(call, Identity("ada", ()))

    asyncio.run(go())


def test_every_call_is_a_line_with_its_tool_outcome_time_and_caller(stderr):
    configure("info", "json")
    call_all("shop.price", "shop.fetched", "shop.sold_out", "shop.closed", "shop.none")
    records = records_of(stderr)
    assert {record["event"] for record in records} == {"call"}
    assert {record["logger"] for record in records} == {"callpact.calls"}
    assert {record["caller"] for record in records} == {"ada"}
    assert all(record["ms"] >= 0 for record in records)
    assert len({record["call_id"] for record in records}) == len(records)
    told = [
        tuple(record.get(key) for key in ("tool_id", "ok", "code", "gate", "source"))
        for record in records
    ]
    assert told == [
        ("shop.price", True, None, None, "local"),
        ("shop.fetched", True, None, None, "http"),
        ("shop.sold_out", False, "sold_out", "handler", None),
        ("shop.closed", False, "access_denied", "access", None),
        ("shop.none", False, "tool_not_found", "find", None),
    ]


def test_a_call_within_a_call_names_its_parent(stderr):
    configure("info", "json")
    call_all("shop.nested")
    inner, outer = records_of(stderr)
    assert inner["parent_id"] == outer["call_id"]
    assert "parent_id" not in outer


@pytest.mark.parametrize("form", FORMS)
def test_neither_arguments_nor_answers_nor_messages_of_calls_are_logged(stderr, form):
    configure("debug", form)
    call_all("shop.price", "shop.fetched", "shop.sold_out", "shop.none")
    assert len(lines_of(stderr)) >= 4
    for part in ("arguments", "answer", "message of", "the message", "details"):
        assert part not in stderr.getvalue().replace('"message":', "")


def test_a_call_reads_as_a_sentence_in_text(stderr):
    configure("info")
    call_all("shop.price", "shop.sold_out")
    first, second = lines_of(stderr)
    assert first.startswith("INFO callpact.calls: call finished: shop.price ok in ")
    assert first.endswith(" ms (from local, for ada)")
    assert second.startswith("INFO callpact.calls: call finished: shop.sold_out sold_out in ")


def test_a_tool_that_nobody_has_is_told_within_the_limits(stderr):
    configure("info", "json")
    call_all("x\nERROR" * 100_000)
    [record] = records_of(stderr)
    assert len(record["tool_id"]) <= MAX_LOG_MESSAGE + 1
    assert record["code"] == "tool_not_found"


def test_calls_are_observed_only_where_they_would_be_logged(stderr):
    configure("warning")
    assert call_observers() == ()
    configure("info")
    assert call_observers() == (log_call,)


# --- a real standard error ------------------------------------------------------------------------

SERVER = """
import logging, sys
from callpact.telemetry.logs import configure
logs = configure("info", sys.argv[1])
logs.take_stderr(steady=True)
log = logging.getLogger("shop")
for number in sys.stdin:
    for turn in range(int(number)):
        log.info("a record of some length: %s", "x" * 3000)
        print("printed", "y" * 3000, file=sys.stderr)
    sys.stdout.write("answered\\n")
    sys.stdout.flush()
"""


@contextlib.contextmanager
def server(form, stderr, **more):
    """A process that logs a lot before it answers each line; it is given a minute."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": stderr, "text": True}
    command = [sys.executable, "-c", SERVER, form]
    with subprocess.Popen(command, **pipes, **more) as running:
        watch = threading.Timer(PATIENCE, running.kill)
        watch.start()
        try:
            yield running
        finally:
            watch.cancel()
            running.kill()


def ask(running, number):
    running.stdin.write(f"{number}\n")
    running.stdin.flush()
    assert running.stdout.readline() == "answered\n"


def waiting(running):
    """What stands in the pipe of a server that waits for its next line."""
    descriptor, read = running.stderr.fileno(), b""
    os.set_blocking(descriptor, False)
    with contextlib.suppress(BlockingIOError):
        while part := os.read(descriptor, 1 << 16):
            read += part
    return read


def end(running):
    running.stdin.close()
    assert running.wait(PATIENCE) == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_server_whose_standard_error_nobody_reads_keeps_answering(form):
    with server(form, subprocess.PIPE) as running:
        for number in (1, 100, 1, 100):
            ask(running, number)
        read = waiting(running)
        ask(running, 1)
        ask(running, 1)
        read += waiting(running)
        end(running)
    read = read.decode().splitlines(keepends=True)
    assert all(line.endswith("\n") for line in read)
    messages = [json.loads(line)["message"] if form == "json" else line for line in read]
    [told] = [text for text in messages if "lines were left out: nobody read" in text]
    left_out = int(
        told.removeprefix("WARNING callpact.telemetry.logs: ").split()[0].replace(",", "")
    )
    written = sum("xxx" in text or "yyy" in text for text in messages)
    assert written + left_out == 2 * (1 + 100 + 1 + 100 + 1 + 1)


@pytest.mark.parametrize("form", FORMS)
def test_a_server_whose_standard_error_is_closed_meanwhile_keeps_answering(form):
    reading, writing = os.pipe()
    with server(form, writing) as running:
        os.close(writing)
        ask(running, 1)
        os.close(reading)
        ask(running, 100)
        ask(running, 1)
        end(running)


@pytest.mark.parametrize("form", FORMS)
def test_a_server_that_was_started_without_standard_error_keeps_answering(form):
    without = lambda: os.close(2)
    with server(form, None, preexec_fn=without) as running:
        ask(running, 10)
        end(running)


@pytest.mark.skipif(not FULL.exists(), reason="there is no disk that is always full")
@pytest.mark.parametrize("form", FORMS)
def test_a_server_whose_disk_is_full_keeps_answering(form):
    with FULL.open("wb") as full, server(form, full) as running:
        ask(running, 10)
        end(running)


@pytest.mark.parametrize("form", FORMS)
def test_a_reader_that_keeps_up_gets_every_line(form):
    read = b""
    with server(form, subprocess.PIPE) as running:
        for _ in range(30):
            ask(running, 5)
            read += waiting(running)
        end(running)
    assert read.count(b"\n") == 30 * 5 * 2
    assert b"left out" not in read
