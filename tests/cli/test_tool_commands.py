"""`list` and `show`: nothing that matters is cut, and everything can be found."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import calls
import command_line
from callpact.cli.output import cut_widths
from callpact.codes import CODES
from terminal import on_terminal

run = command_line.run
LONG = "warehouse_management.find_products_by_their_supplier_number"
TOOLS = f'''
from typing import TypedDict
from callpact import tool
from callpact.sources.python.marker import prompt, resource

class Offer(TypedDict):
    price: float

@tool(namespace="{LONG.partition(".")[0]}")
def {LONG.partition(".")[2]}(supplier: str, limits: list[int]) -> list[Offer]:
    """Search the warehouse for products of one supplier, with prices and more than fits a line."""
    return []

@tool
def close(reason: str = "") -> None:
    """Close the shop."""

@resource("docs://{{page}}", mime_type="text/markdown")
def handbook(page: str) -> str:
    """A page of the handbook."""
    return page

@resource("docs://about")
def about() -> str:
    """About the shop."""
    return "about"

@prompt
def review(code: str, style: str = "") -> str:
    """Review some code."""
    return code
'''


@pytest.fixture
def shop(tmp_path, monkeypatch):
    (tmp_path / "shop.py").write_text(TOOLS, "utf-8")
    (tmp_path / "callpact.toml").write_text('[sources.shop]\nref = "python:shop.py"\n', "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def keyed(tmp_path, monkeypatch):
    """A catalogue in which one of two tools has no key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHOP_KEY", raising=False)
    own = {"buy": calls.tool(calls.parameter("k", value="{{SHOP_KEY}}"), description="Buy tea.")}
    keyed = calls.main(own, name="Keyed", requiredServerParams=["SHOP_KEY"])
    (tmp_path / "Keyed.mjs").write_text(calls.exported(keyed), "utf-8")
    plain = calls.main({"look": calls.tool()}, name="Plain")
    (tmp_path / "Plain.mjs").write_text(calls.exported(plain), "utf-8")
    return tmp_path


# --- list -----------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"NO_COLOR": "1"}], ids=["colour", "no colour"])
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_an_id_is_never_cut_and_a_tool_is_one_line_that_fits(shop, columns, more):
    done = on_terminal("list", columns=columns, **more)
    lines = done.text.splitlines()
    [line] = [line for line in lines if line.startswith("warehouse")]
    assert line.split()[0] == LONG
    if columns > len(LONG) + 12:
        assert "…" in line
        assert max(map(len, lines)) <= columns


def test_a_narrow_terminal_drops_the_spare_columns_first():
    headers, natural = ["TOOL", "DOES", "ARGUMENTS", "POLICY"], [30, 60, 40, 7]
    assert cut_widths(headers, natural, 200, ["POLICY", "ARGUMENTS"]) == dict(enumerate(natural))
    assert cut_widths(headers, natural, 80, ["POLICY", "ARGUMENTS"]) == {0: 30, 1: 18, 2: 19, 3: 7}
    assert cut_widths(headers, natural, 56, ["POLICY", "ARGUMENTS"]) == {0: 30, 1: 11, 2: 11}
    assert cut_widths(headers, natural, 45, ["POLICY", "ARGUMENTS"]) == {0: 30, 1: 13}
    assert cut_widths(headers, natural, 20, ["POLICY", "ARGUMENTS"]) == {0: 30, 1: 10}


def test_resources_and_prompts_are_listed_and_counted(shop, run):
    done = run("list")
    starts = [line.split()[0] for line in done.out.splitlines()]
    assert starts == [
        *("TOOL", LONG, "shop.close"),
        *("RESOURCE", "docs://{page}", "docs://about"),
        *("PROMPT", "shop_review"),
    ]
    assert done.err.splitlines()[-1] == "2 tools, 2 resources, 1 prompt"
    rows = [json.loads(line) for line in run("list", "--json").out.splitlines()]
    assert [row.get("uri") or row.get("name") for row in rows if "type" in row] == [
        "docs://{page}",
        "docs://about",
        "shop_review",
    ]
    assert rows[-1]["arguments"][1] == {"name": "style", "description": "", "required": False}


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--search", "supplier products"], [LONG]),
        (["--search", "handbook"], ["docs://{page}"]),
        (["--search", "review code"], ["shop_review"]),
        (["--namespace", "warehouse_management"], [LONG]),
        (["--search", "shop", "--namespace", "warehouse_management"], []),
    ],
)
def test_a_list_can_be_searched_and_narrowed(shop, run, options, found):
    done = run("list", *options)
    assert done.code == 0
    headers = ("TOOL", "RESOURCE", "PROMPT")
    assert [
        line.split()[0] for line in done.out.splitlines() if not line.startswith(headers)
    ] == found


def test_an_unknown_namespace_is_answered_with_the_nearest(shop, run):
    done = run("list", "--namespace", "shopp")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: there is no namespace 'shopp'; there are: shop\n"


def test_a_disabled_tool_is_found_by_search_with_its_reason(keyed, run):
    done = run("list", "-s", ".", "--search", "buy tea")
    [line] = [line for line in done.out.splitlines() if line.startswith("shop.buy")]
    assert "disabled: " in line
    assert "SHOP_KEY" in line


@pytest.mark.parametrize("columns", [80, 120])
def test_what_is_disabled_is_listed_alone_with_the_whole_reason(keyed, run, columns):
    done = run("list", "-s", ".", "--disabled")
    header, line = done.out.splitlines()
    assert header.split() == ["TOOL", "REASON", "CODE"]
    assert line.startswith("shop.buy ")
    assert line.endswith(" server_param_missing")
    shown = on_terminal("list", "-s", ".", "--disabled", columns=columns).text
    reason = line.removeprefix("shop.buy").removesuffix("server_param_missing").strip()
    assert reason in " ".join(shown.split())
    [row] = run("list", "-s", ".", "--disabled", "--json").out.splitlines()
    assert json.loads(row)["id"] == "shop.buy"


# --- show -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["docs://{page}", "docs://shipping", "shop.handbook"])
def test_a_resource_is_shown_by_address_and_by_id(shop, run, name):
    done = run("show", name)
    assert done.code == 0
    assert done.out.startswith("docs://{page}\nA page of the handbook.\n")
    assert "text/markdown" in done.out
    assert json.loads(run("show", name, "--json").out)["uri"] == "docs://{page}"


def test_a_fixed_address_comes_before_a_template_that_fits(shop, run):
    assert run("show", "docs://about").out.startswith("docs://about\n")


@pytest.mark.parametrize("name", ["shop_review", "shop.review"])
def test_a_prompt_is_shown_by_name(shop, run, name):
    done = run("show", name)
    assert done.out.startswith("shop.review\nReview some code.\n")
    assert "style" in done.out
    assert json.loads(run("show", name, "--json").out)["type"] == "prompt"


def test_an_unknown_name_is_answered_with_near_prompts_and_resources(shop, run):
    assert "'shop_review'" in run("show", "shop_reviews").err
    assert "'docs://about'" in run("show", "doc://about").err


def test_show_prints_the_types_of_items(shop, run):
    shown = run("show", LONG).out
    assert "array of integer" in shown
    assert "Gives array of object\n  [].price  number\n" in shown


# --- call -----------------------------------------------------------------------------------

SLOW = """
from callpact import Context, tool

@tool
async def count(context: Context, to: int = 4) -> int:
    "Count."
    for number in range(to):
        await context.progress(number + 1, to, f"number {number + 1} [bold]\\x1b[31m")
    await context.progress(float("nan"), float("inf"))
    print("printed by the tool")
    return to

@tool
async def ask(context: Context) -> bool:
    "Ask."
    return (await context.client.elicit("Sure?", {"type": "object"})).is_accepted
"""


@pytest.fixture
def slow(tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text(SLOW, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("columns", [80, 120])
def test_progress_is_a_bar_on_a_terminal_that_is_gone_at_the_end(slow, columns):
    done = on_terminal("call", "slow.count", "-s", "slow.py", "--audit", "off", columns=columns)
    assert done.code == 0
    assert "100% number 4" in done.text
    assert "[bold]\\u001b[31m" in done.text
    assert done.text.splitlines()[-1] == "4"


def test_progress_is_not_written_to_a_pipe_and_the_result_stays_on_stdout(slow, run):
    done = run("call", "slow.count", "-s", "slow.py", "--audit", "off")
    assert (done.code, done.out, done.err) == (0, "4\n", "printed by the tool\n")


def test_a_result_on_stdout_stays_there_while_a_bar_is_shown_on_a_terminal(slow):
    done = on_terminal("call", "slow.count", "-s", "slow.py", "--audit", "off", output="result")
    assert (slow / "result").read_text("utf-8") == "4\n"
    assert "100%" in done.text


def test_a_question_on_a_terminal_is_refused_with_the_remedy(slow):
    done = on_terminal("call", "slow.ask", "-s", "slow.py", "--audit", "off")
    assert done.code != 0
    assert "through an MCP client" in done.text


def test_a_call_prints_one_line_about_the_findings_of_other_files(keyed, run, monkeypatch):
    for number in range(80):
        (keyed / f"Bad{number}.mjs").write_text("export const main = {", "utf-8")
    everything = run("list", "-s", ".").err.splitlines()
    assert sum(line.startswith("error: ") for line in everything) == 80
    elsewhere = ("--upstream", "https://api.example.com=http://127.0.0.1:1")
    done = run("call", "shop.look", "-s", ".", *elsewhere, "--audit", "off")
    about = [line for line in done.err.splitlines() if "other place" in line]
    assert about == ["80 errors and 5 warnings in 81 other places; `callpact list` shows them"]
    assert "Bad7.mjs" not in done.err
    assert "Bad7.mjs" in run("show", "shop.look", "-s", ".", "--log-level", "info").err
    assert "Bad7.mjs" in run("call", "shop.bad", "-s", ".", "--audit", "off").err
    assert "Bad7.mjs" not in run("show", "shop.look", "-s", ".").err


def test_a_call_of_a_file_with_findings_prints_those(keyed, run):
    done = run("show", "shop.buy", "-s", ".")
    [own, others] = [line for line in done.err.splitlines() if "warning" in line]
    assert "in 1 file (" in own
    assert "1 other place" in others


# --- a running server -----------------------------------------------------------------------


@pytest.fixture
def server(shop):
    """The address of a server in a process of its own."""
    command = [sys.executable, "-m", "callpact", "serve", "--port", "0", "--audit", "off"]
    env = command_line.environment()
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=env) as running:
        line = running.stderr.readline().decode()
        yield line.split()[-1]
        running.terminate()
        running.stderr.read()


def test_a_running_server_is_listed_shown_and_called_by_its_address(server, run):
    listed = run("list", server)
    assert "shop_close" in listed.out
    assert "docs://about" in listed.out
    assert "Close the shop." in run("show", server, "shop_close").out
    done = run("call", server, "shop_close", "reason=late", "--audit", "off")
    assert (done.code, json.loads(done.out)) == (0, {"result": None})
    assert run("call", server, "shop_closed", "--audit", "off").code == CODES["tool_not_found"].exit


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("list", "shop"), "--search"),
        (("list", "http://localhost:1/mcp", "-s", "shop.py"), "not both"),
        (("show", "shop.close", "shop.close"), "one name"),
        (("call", "http://localhost:1/mcp"), "name a tool"),
        (("call", "http://localhost:1/mcp", "a=1"), "name a tool"),
    ],
)
def test_an_address_in_the_wrong_place_is_wrong_use(shop, run, words, named):
    done = run(*words)
    assert (done.code, done.out) == (2, "")
    assert named in done.err


def test_a_server_that_does_not_answer_is_reported(shop, run):
    done = run("list", "http://localhost:1/mcp")
    assert done.code == 2
    assert "cannot be used" in done.err


# --- a reader that leaves -------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="there is no such shell on Windows")
@pytest.mark.parametrize("words", ["list", "list --json", "call many.t1"])
def test_a_pipe_that_is_closed_early_ends_the_command_quietly(tmp_path, words):
    made = "@tool\ndef t{}() -> str:\n    '{}'\n    return 'x\\n' * 99_999\n"
    lines = "".join(made.format(number, "long " * 100) for number in range(300))
    (tmp_path / "many.py").write_text(f"from callpact import tool\n{lines}\n", "utf-8")
    (tmp_path / "callpact.toml").write_text('[sources.many]\nref = "many.py"\n', "utf-8")
    more = " --audit off" if words.startswith("call") else ""
    line = f"{{ {sys.executable} -m callpact {words}{more}; echo $? >&2; }} | head -c 1"
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=tmp_path,
        capture_output=True,
        env=command_line.environment(),
        timeout=60,
        check=False,
    )
    assert done.stderr.decode().splitlines() == ["141"]
