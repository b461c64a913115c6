"""The script that measures a whole catalogue, on small ones of our own."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "catalogue.py"


def parameter(key, primitive="string()", *options, value="{{USER_PARAM}}", location="query"):
    position = {"key": key, "value": value, "location": location}
    return {"position": position, "z": {"primitive": primitive, "options": list(options)}}


def tool(*parameters, **fields):
    tests = [{"_description": "Once"}]
    base = {"method": "GET", "path": "/it", "description": "Does it", "tests": tests}
    return {**base, "parameters": list(parameters), **fields}


def main(tools, **fields):
    base = {"name": "Shop", "description": "A shop", "version": "4.0.0", "schemaVersion": "1.0.0"}
    return {
        "namespace": "shop",
        "root": "https://api.example.com",
        **base,
        "tools": tools,
        **fields,
    }


GOOD = main(
    {
        "getIt": tool(
            parameter("id", location="insert"),
            parameter("n", "number()", "default(3)"),
            parameter("city", "string()", "optional()", value="{{CITY}}"),
            parameter("key", value="{{SHOP_KEY}}"),
            parameter("q", "string()", "optional()"),
            path="/it/:id",
            tests=[{"_description": "One", "id": "7"}, {"_description": "Two", "id": "8", "CITY": "Oslo"}],
        ),
        "listThem": tool(parameter("v", value="1"), parameter("v", value="2")),
    },
    requiredServerParams=["SHOP_KEY"],
)  # fmt: skip
HOOKED = "export const handlers = () => ( { getIt: { postRequest: async ( a ) => a } } )"


def hooked(hooks, tools=None, **fields):
    """A file with these hooks."""
    held = main(tools or {"getIt": tool()}, **fields)
    text = ", ".join(f"{name}: {code}" for name, code in hooks.items())
    return (
        f"export const main = {json.dumps(held)}\nexport const handlers = () => ( {{ {text} }} )\n"
    )


def post(code):
    return {"getIt": f"{{ postRequest: async ( {{ response, payload }} ) => {{ {code} }} }}"}


def execute(code):
    return {"getIt": f"{{ executeRequest: async ( {{ struct, payload }} ) => {{ {code} }} }}"}


@pytest.fixture
def catalogue(tmp_path):
    """A checkout with these files below `providers/shop`."""

    def write(**files):
        for name, held in files.items():
            text = held if isinstance(held, str) else f"export const main = {json.dumps(held)}\n"
            folder = tmp_path / "checkout" / "providers" / "shop"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.mjs").write_text(text)
        return tmp_path / "checkout"

    return write


def run(path, *options, files=1, tools=1):
    command = [sys.executable, SCRIPT, path, "--files", files, "--tools", tools, *options]
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def recorded(url, *, route="getIt", mode="direct", given=None, body=None, method="GET", **more):
    request = {"url": url, "method": method, "headers": {}, "body": body}
    return {
        "file": "providers/shop/Shop.mjs",
        "route": route,
        "handlers": [],
        "userParams": given or {},
        "serverParams": {"SHOP_KEY": "sp-shop_key"},
        "mode": mode,
        "case": "test0",
        "requests": [] if url is None else [request],
        **more,
    }


@pytest.fixture
def records(tmp_path):
    """A file of recorded calls."""

    def write(*rows):
        path = tmp_path / "requests.jsonl.gz"
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
        return path

    return write


# --- files and tests ------------------------------------------------------------------------


def test_a_good_catalogue_reaches_its_bars(catalogue):
    status, told = run(catalogue(Shop=GOOD), tools=2)
    assert status == 0
    assert "1 of 1 files load" in told
    assert "2 of 2 tools pass their own test values" in told
    assert "MISSED" not in told


def test_a_file_that_does_not_load_is_named_with_its_rule(catalogue):
    broken = "export const main = { a: f() }"
    status, told = run(catalogue(Shop=GOOD, Broken=broken), files=2)
    assert status == 1
    assert "1 of 2 files load" in told
    assert "shop/Broken.mjs: SEC017 (line 1)" in told
    assert "MISSED: 1 where 2 are asked for" in told


def test_a_tool_that_contradicts_itself_is_named(catalogue):
    wrong = tool(parameter("n", "number()"), tests=[{"_description": "One", "n": "7"}])
    status, told = run(catalogue(Shop=main({"getIt": wrong, "getThat": tool()})), tools=2)
    assert status == 1
    assert "1 of 2 tools pass" in told
    assert "shop.getIt: test 1: Property 'n' must be a number, got string" in told
    assert "MISSED: 1 where 2 are asked for" in told


def test_lists_are_taken_from_where_they_are_given(catalogue, tmp_path):
    held = {
        "meta": {"name": "colours", "version": "1.0.0", "description": "Colours", "fields": [{"key": "name", "type": "string", "description": "Name"}]},
        "entries": [{"name": "red"}],
    }  # fmt: skip
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "colours.mjs").write_text(f"export const list = {json.dumps(held)}")
    data = main(
        {"getIt": tool(parameter("c", "enum({{colours:name}})"), tests=[{"_description": "One", "c": "red"}])},
        sharedLists=[{"ref": "colours", "version": "1.0.0"}],
    )  # fmt: skip
    path = catalogue(Shop=data)
    assert run(path)[0] == 1
    assert run(path, "--lists", tmp_path / "lists")[0] == 0


# --- requests -------------------------------------------------------------------------------

SENT = "https://api.example.com/it/7?n=3&key=sp-shop_key"


def test_a_request_that_is_sent_the_same_is_counted(catalogue, records):
    rows = records(recorded(SENT, given={"id": "7"}))
    status, told = run(catalogue(Shop=GOOD), "--requests", rows)
    assert status == 0
    assert "1 of 1 recorded calls without hooks are sent the same" in told
    assert "0 unexplained" in told


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        (recorded("https://api.example.com/it/7?city=&key=sp-shop_key", given={"id": "7"}), "defaults"),
        (recorded("https://api.example.com/it/a b?n=3&city=&key=sp-shop_key", given={"id": "a b", "n": 3}), "encoding"),
        (recorded("https://api.example.com/it/7?n=3&city=&key=sp-shop_key", given={"id": "7", "n": 3, "CITY": "Oslo"}), "placeholders"),
        (recorded("https://api.example.com/it/7?n=3&city=&key=sp-shop_key&q=a%7B%7BUSER_PARAM%7D%7D", given={"id": "7", "n": 3, "q": "a$&"}), "patterns"),
        (recorded("https://api.example.com/it?v=2", route="listThem"), "duplicates"),
        (recorded("https://api.example.com/it?v=1", route="listThem", given={"v": "9"}), "undeclared keys"),
        (recorded("https://api.example.com/it/undefined", given={}), "missing keys"),
        (recorded("https://api.example.com/it/7", given={"id": 7}), "wrong values"),
        (recorded(None, mode="mcp", given={"id": "7"}, result={"text": 'error: [{"path": ["city"]}]'}), "placeholders"),
        (recorded(None, mode="mcp", route="listThem", result={"text": 'error: [{"path": ["v"]}]'}), "fixed values"),
    ],
)  # fmt: skip
def test_a_request_that_is_sent_otherwise_is_explained_by_its_rule(catalogue, records, row, rule):
    status, told = run(catalogue(Shop=GOOD), "--requests", records(row))
    assert status == 0, told
    assert "0 of 1 recorded calls" in told
    assert f"     1  {rule}: " in told


@pytest.mark.parametrize(
    "row",
    [
        recorded("https://api.example.com/it/7?n=4&key=sp-shop_key", given={"id": "7"}),
        recorded("https://api.example.com/other/7?key=sp-shop_key", given={"id": "7"}),
        recorded(SENT, given={"id": "7"}, method="POST"),
        recorded(SENT + "&more=1", given={"id": "7"}),
        recorded("https://api.example.com/it?v=2&v=1", route="listThem"),
        recorded(None, mode="mcp", given={"id": "7"}, result={"text": "out of order"}),
    ],
)
def test_a_difference_without_a_rule_is_shown_and_fails(catalogue, records, row):
    status, told = run(catalogue(Shop=GOOD), "--requests", records(row))
    assert status == 1
    assert "1 unexplained" in told
    assert "providers/shop/Shop.mjs" in told


def test_calls_of_other_catalogues_are_not_compared(catalogue, records):
    absent = recorded(SENT) | {"file": "providers/other/Other.mjs"}
    rows = records(absent, called(1) | {"file": "providers/other/Other.mjs"})
    status, told = run(catalogue(Shop=GOOD), "--requests", rows)
    assert status == 0
    assert "0 of 0 recorded calls without hooks" in told
    assert "0 of 0 recorded calls with hooks" in told
    assert told.count("1 calls of files that are not there") == 2


def test_a_call_of_a_file_that_does_not_load_is_told_as_such(catalogue, records):
    rows = records(recorded(SENT))
    status, told = run(catalogue(Shop="export const main = f()", Good=GOOD), "--requests", rows)
    assert status == 0
    assert "1  not loaded: " in told


def test_a_tool_that_only_shares_a_word_with_a_hook_is_compared(catalogue, records):
    text = f"export const main = {json.dumps(GOOD)}\n{HOOKED}"
    rows = records(recorded(SENT, given={"id": "7"}))
    status, told = run(catalogue(Shop=text), "--requests", rows)
    assert status == 0
    assert "1 of 1 recorded calls without hooks are sent the same" in told


def test_skills_and_the_like_are_not_counted(catalogue):
    path = catalogue(Shop=GOOD, Skill="export const skill = { name: 'a' }")
    code, text = run(path)
    assert code == 0
    assert "1 of 1 files load" in text


# --- hooks ----------------------------------------------------------------------------------


def test_files_whose_hooks_open_are_counted(catalogue):
    files = {"Shop": hooked(post("return { response }")), "Plain": GOOD}
    status, told = run(catalogue(**files), files=2)
    assert status == 0
    assert "1 of 1 files with hooks open in the sandbox" in told


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (hooked(post("return { response }"), requiredLibraries=["talib"]), "talib is native code"),
        (hooked(post("return { response }"), requiredLibraries=["http"]), "http is a part of Node"),
        (hooked(post("return { response }"), requiredLibraries=["moment"]), "callpact libs add moment"),
        (hooked(post("return await import( 'fs' )")), "It imports modules, which hooks do not have: SEC001"),
    ],
)  # fmt: skip
def test_hooks_that_lack_a_library_or_import_are_named_and_excused(
    catalogue, tmp_path, text, reason
):
    status, told = run(catalogue(Shop=text, Good=GOOD), "--packs", tmp_path / "packs")
    assert status == 0, told
    assert "0 of 1 files with hooks open" in told
    assert "shop/Shop.mjs: It" in told
    assert reason in told


def test_hooks_that_do_not_open_for_any_other_reason_miss_the_bar(catalogue):
    text = hooked({"getIt": "missing()"})
    status, told = run(catalogue(Shop=text))
    assert status == 1
    assert "0 of 1 files with hooks open" in told
    assert "shop/Shop.mjs: The engine refuses them" in told
    assert "missing" in told
    assert "MISSED: 1 that lack no library" in told


def test_hooks_open_though_their_file_breaks_another_rule(catalogue):
    held = {"getIt": tool(parameter("a", location="body"), tests=[{"_description": "A", "a": "1"}])}
    text = hooked(post("return { response }"), held)
    status, told = run(catalogue(Shop=text, Good=GOOD))
    assert status == 0
    assert "1 of 1 files with hooks open" in told
    assert "Its hooks open, but it is not loaded: VAL087" in told


# --- recorded calls of hooks ----------------------------------------------------------------

ADDRESS = "https://api.example.com/it"
JSON = {"status": 200, "contentType": "application/json", "body": '{"a": 1}'}
FETCH = "struct.data = await ( await fetch( payload.url ) ).json(); return { struct }"


def called(data=None, *, messages=(), kinds=("postRequest",), canned=None, sent=(ADDRESS,), **more):
    """A recorded call of the command line; messages mean that it failed."""
    row = recorded(None, **more)
    requests = [{"url": url, "method": "GET", "headers": {}, "body": None} for url in sent]
    envelope = {"status": not messages, "messages": list(messages), "data": data}
    return row | {
        "handlers": list(kinds),
        "canned": JSON if canned is None else canned,
        "requests": requests,
        "envelope": envelope,
    }


def served(text, **more):
    """A recorded call of the MCP server."""
    row = called(mode="mcp", **more)
    del row["envelope"]
    return row | {"result": {"isError": False, "text": text}}


EXECUTES = {"kinds": ("executeRequest",)}


@pytest.mark.parametrize(
    ("hooks", "row"),
    [
        (post("return { response: { b: response.a } }"), called({"b": 1})),
        (post("return { response: { b: response.a } }"), served('{"b": 1}')),
        (post("return { response: [ Date.now(), new Date().getDate(), Math.random() ] }"), called([1768478400000, 15, 0.5])),
        (post("return { response: new Date( 0 ) instanceof Date }"), called(True)),
        (execute(FETCH), called({"a": 1}, **EXECUTES)),
        (post("throw new Error( 'no luck' )"), called(messages=["postRequest error: no luck"])),
        (post("return { response: response.b.c }"), called(messages=["postRequest error: Cannot read properties of undefined (reading 'c')"])),
        (post("return { response }"), called(messages=["HTTP 404: Not Found"], canned={"status": 404, "body": "{}"})),
        (post("return { response }"), called(messages=["No response received from server."], canned={"networkError": "fetch failed"})),
        (post("return { response }"), called(messages=["Invalid JSON response from server."], canned={"status": 200, "body": "<p>"})),
        (execute("try { " + FETCH + " } catch( error ) { struct.status = false; struct.messages = [ 'Sad: ' + error.message ]; return { struct } }"), called(messages=["Sad: fetch failed"], canned={"networkError": "fetch failed"}, **EXECUTES)),
        (execute("try { null.a } catch( error ) { return { response: { why: 'Sad: ' + error.message } } }"), called({"why": "Sad: Cannot read properties of null (reading 'a')"}, sent=(), **EXECUTES)),
    ],
)  # fmt: skip
def test_a_call_with_hooks_that_does_the_same_is_counted(catalogue, records, hooks, row):
    status, told = run(catalogue(Shop=hooked(hooks)), "--requests", records(row))
    assert status == 0, told
    assert "1 of 1 recorded calls with hooks send the same and give the same data" in told


POSTS = {
    "getIt": tool(
        parameter("a", location="body"), method="POST", tests=[{"_description": "A", "a": "1"}]
    )
}
DEFAULT = {"getIt": tool(parameter("n", "number()", "default(3)"))}
SEND = "await fetch( payload.url, { method: payload.method, headers: payload.headers, body: JSON.stringify( payload.body ) } ); return { struct }"
BAD = {"status": 500, "body": "{}"}


@pytest.mark.parametrize(
    ("file", "row", "rule"),
    [
        (hooked(post("return { response }"), requiredLibraries=["talib"]), called({"a": 1}), "libraries"),
        (hooked(post("return { struct: 1 }")), called({"a": 1}), "missing response"),
        (hooked(post("throw new Error( 'no' )")), served('{"a": 1}'), "errors are told"),
        (hooked(execute(FETCH)), called({"b": 2}, sent=(), canned=BAD, **EXECUTES), "nothing is kept"),
        (hooked(post("return { response: payload }"), DEFAULT), called({}), "defaults"),
        (hooked(post("return { response: { ...payload, c: 1 } }"), DEFAULT), called({"c": 1}), "defaults"),
        (hooked(post("return { response }")), called({"a": 1}, given={"x": 1}), "undeclared keys"),
    ],
)  # fmt: skip
def test_a_call_with_hooks_that_differs_by_a_rule_is_explained(catalogue, records, file, row, rule):
    path = catalogue(Shop=file)
    status, told = run(path, "--packs", path / "none", "--requests", records(row), tools=0)
    assert status == 0, told
    assert "0 of 1 recorded calls with hooks" in told
    assert f"     1  {rule}: " in told


def test_the_content_type_that_a_hook_is_given_is_a_rule(catalogue, records):
    row = called(given={"a": "1"}, **EXECUTES)
    row["requests"][0] |= {"method": "POST", "body": '{"a":"1"}'}
    status, told = run(catalogue(Shop=hooked(execute(SEND), POSTS)), "--requests", records(row))
    assert status == 0, told
    assert "     1  content type: " in told


@pytest.mark.parametrize(
    ("hooks", "row"),
    [
        (post("return { response: 2 }"), called(1)),
        (post("return { response: 1 }"), called(True)),
        (post("return { response }"), called({"a": 1}, sent=(ADDRESS, ADDRESS))),
        (post("return { response }"), called({"a": 1}, sent=(ADDRESS + "?b=1",))),
        (post("return { response }"), called(messages=["postRequest error: no luck"])),
        (post("throw new Error( 'bad luck' )"), called(messages=["postRequest error: no luck"])),
        (post("throw new Error( 'no' )"), called({"a": 1})),
        (post("throw new Error( 'no' )"), served('{"a": 2}')),
        (post("throw new Error( 'a' )"), called(messages=["postRequest error: Cannot read properties of null"])),
        (post("return { response }"), called(messages=["HTTP 404: Not Found"], canned={"status": 500, "body": ""})),
        (execute(FETCH), called({"a": 1}, sent=(), **EXECUTES)),
    ],
)  # fmt: skip
def test_a_difference_of_hooks_without_a_rule_is_shown_and_fails(catalogue, records, hooks, row):
    status, told = run(catalogue(Shop=hooked(hooks)), "--requests", records(row))
    assert status == 1, told
    assert "1 unexplained" in told
    assert "providers/shop/Shop.mjs" in told


def test_hooks_of_recorded_calls_see_shared_lists(catalogue, records, tmp_path):
    held = {
        "meta": {"name": "colours", "version": "1.0.0", "description": "Colours", "fields": [{"key": "name", "type": "string", "description": "Name"}]},
        "entries": [{"name": "red"}],
    }  # fmt: skip
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "colours.mjs").write_text(f"export const list = {json.dumps(held)}")
    text = hooked(
        post("return { response: sharedLists.colours }"),
        sharedLists=[{"ref": "colours", "version": "1.0.0"}],
    ).replace("handlers = ()", "handlers = ( { sharedLists } )")
    rows = records(called([{"name": "red"}]))
    status, told = run(catalogue(Shop=text), "--lists", tmp_path / "lists", "--requests", rows)
    assert status == 0, told
    assert "1 of 1 recorded calls with hooks" in told
