"""A command reads `callpact.toml` once, and imports only what it needs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest

import command_line

CONFIG = """\
secrets = "keys.env"

[sources.shop]
ref = "python:shop.py"

[serve.tokens.ci]
secret = "CI_TOKEN"

[audit]
folder = "log"
"""
TOOLS = """
from callpact import tool


@tool
def price(item: str) -> int:
    \"""The price of an item.\"""
    return 3
"""
SCRIPT = [{"tool": "shop.price", "arguments": {"item": "tea"}}, "It costs 3."]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
# As `python -m callpact`, in a process that prints to a file what it opens and imports.
OBSERVED = """
import atexit, runpy, sys

opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)


def write():
    with open(report, "w") as file:
        opens = [name for name in opened if name.endswith("callpact.toml")]
        heavy = [name for name in ("duckdb", "mcp", "pydantic_ai") if name in sys.modules]
        file.write(f"{len(opens)} {','.join(heavy)}")


report = sys.argv.pop(1)
atexit.register(write)
runpy.run_module("callpact", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "callpact.toml").write_text(CONFIG, "utf-8")
    (tmp_path / "shop.py").write_text(TOOLS, "utf-8")
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT), "utf-8")
    (tmp_path / "keys.env").write_text("CI_TOKEN=0123456789abcdef0123456789abcdef\n", "utf-8")
    (tmp_path / "keys.env").chmod(0o600)
    return tmp_path


class Observed:
    """Commands in processes of their own: how often each read the file, and what it imported."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, *words):
        return subprocess.Popen(
            [sys.executable, "-c", OBSERVED, "report.txt", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=command_line.environment(),
            text=True,
        )

    def end(self, process, text=""):
        with process:
            out, err = process.communicate(text, timeout=60)
        assert process.returncode == 0, err
        reads, _, heavy = (self.folder / "report.txt").read_text("utf-8").partition(" ")
        return int(reads), heavy, out

    def run(self, *words, text=""):
        return self.end(self.start(*words), text)


@pytest.fixture
def observed(shop):
    return Observed(shop)


@pytest.mark.parametrize("named", [(), ("-c", "callpact.toml")])
@pytest.mark.parametrize(
    "words", [("call", "shop.price", "item=tea"), ("list",), ("show", "shop.price"), ("doctor",)]
)
def test_a_command_with_tools_reads_the_configuration_once(observed, words, named):
    reads, heavy, _ = observed.run(*words, *named)
    assert (reads, heavy) == (1, "")


def test_questions_to_the_audit_log_read_the_configuration_once(observed):
    observed.run("call", "shop.price", "item=tea")
    against = ("replay", "--against", "shop.py")
    for words in (
        *(("audit", "log"), ("audit", "stats"), ("audit", "drift"), ("replay",)),
        *(against, (*against, "-c", "callpact.toml")),
    ):
        assert observed.run(*words)[0] == 1, words


def test_an_agent_is_asked_with_one_reading_of_the_configuration(observed):
    reads, heavy, out = observed.run("ask", "How much?", "--model", "scripted:script.json")
    assert (reads, heavy, out) == (1, "", "It costs 3.\n")


def test_a_check_reads_the_configuration_once(observed, shop):
    (shop / "files").mkdir()
    (shop / "files" / "Empty.mjs").write_text("export const main = {}\n", "utf-8")
    with observed.start("check", "files") as process:
        process.communicate(timeout=60)
    assert (shop / "report.txt").read_text("utf-8") == "1 "


@pytest.mark.parametrize("more", [(), ("-c", "callpact.toml"), ("--as", "flowmcp")])
def test_a_server_over_stdio_reads_the_configuration_once(observed, more):
    text = json.dumps(INITIALIZE) + "\n"
    reads, _, out = observed.run("serve", "--stdio", *more, text=text)
    assert json.loads(out)["result"]["serverInfo"]["name"] == "callpact"
    assert reads == 1


def test_a_server_over_http_reads_the_configuration_once(observed):
    process = observed.start("serve", "--port", "0", "--metrics")
    for line in process.stderr:
        if re.search(r"http://127\.0\.0\.1:\d+", line):
            break
    process.send_signal(signal.SIGTERM)
    assert observed.end(process)[0] == 1


@pytest.mark.parametrize("words", [("--help",), ("list", "--help"), ("list", "-s", "shop.py")])
def test_what_does_not_need_the_configuration_does_not_read_it(observed, words):
    reads, heavy, _ = observed.run(*words)
    assert (reads, heavy) == (0, "")
