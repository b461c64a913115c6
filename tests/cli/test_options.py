"""The options of every command with sources: how FlowMCP files are read, and where requests go."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

import command_line
from callpact.cli.tool_commands import complete_tool
from callpact.codes import CODES

run = command_line.run

MAIN = """\
export const main = {
    namespace: 'weather',
    name: 'Weather',
    description: 'The weather of cities.',
    version: '4.0.0',
    root: 'https://api.example.com',
    MORE
    tools: {
        getCity: {
            method: 'GET',
            path: '/cities/{{city}}',
            description: 'The weather of a city.',
            parameters: [
                {
                    position: { key: 'city', value: '{{USER_PARAM}}', location: 'insert' },
                    z: { primitive: 'string()', options: [] }
                }PARAMETER
            ],
            output: {
                mimeType: 'application/json',
                schema: { type: 'object', properties: { degrees: { type: 'number' } } }
            },
            tests: [ { _description: 'A capital', city: 'Berlin' } ]
        }
    }
}
"""
KEY = """,
                {
                    position: { key: 'key', value: '{{SERVER_PARAM:WEATHER_KEY}}', location: 'query' },
                    z: { primitive: 'string()', options: [] }
                }"""
SECRET = "hush-hush-1234"
PLAIN = MAIN.replace("MORE", "").replace("PARAMETER", "")
KEYED = MAIN.replace("MORE", "requiredServerParams: [ 'WEATHER_KEY' ],").replace("PARAMETER", KEY)
LIST = """\
export const list = {
    meta: {
        name: 'cities', version: '1.0.0', description: 'Cities.',
        fields: [ { key: 'code', type: 'string', description: 'Short name.' } ]
    },
    entries: [ { code: 'Berlin' } ]
}
"""
LISTED = (
    MAIN.replace("MORE", "sharedLists: [ { ref: 'cities', version: '1.0.0' } ],")
    .replace("PARAMETER", "")
    .replace("'string()'", "'enum({{cities:code}})'")
)
NEEDY = MAIN.replace("MORE", "requiredLibraries: [ 'left-pad' ],").replace("PARAMETER", "")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEATHER_KEY", raising=False)
    return tmp_path


@pytest.fixture
def upstream():
    """A server on this machine that answers every GET; `.heard` is what it was asked."""
    heard: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            heard.append(self.path)
            body = json.dumps({"degrees": 12.5, "asked": self.path}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield SimpleNamespace(heard=heard, port=server.server_port)
        server.shutdown()
        thread.join()


def write(text, name="Weather.mjs"):
    Path(name).write_text(text, "utf-8")


def wrong_use(done):
    assert done.code == 2
    assert done.out == ""
    assert "Traceback" not in done.err
    return done.err


CALL = ("call", "weather.getCity", "city=Berlin", "-s", "flowmcp:Weather.mjs")

# --- where requests go -----------------------------------------------------------------------


@pytest.mark.parametrize("ref", ["flowmcp:Weather.mjs", "Weather.mjs", "flowmcp:.", "."])
def test_a_call_goes_to_the_address_that_stands_for_the_upstream(folder, upstream, ref):
    write(PLAIN)
    to = f"https://api.example.com=http://127.0.0.1:{upstream.port}"
    words = ["call", "weather.getCity", "city=Bad Ems", "-s", ref, "--upstream", to]
    done = subprocess.run(
        [sys.executable, "-m", "callpact", *words],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"degrees": 12.5, "asked": "/cities/Bad%20Ems"}
    assert upstream.heard == ["/cities/Bad%20Ems"]


def test_tools_are_called_by_the_id_of_the_file_too(folder, upstream, run):
    write(PLAIN)
    done = run(
        *("call", "weather/Weather::getCity", "city=Berlin", "-s", "."),
        *("--upstream", f"https://api.example.com=http://127.0.0.1:{upstream.port}/v1"),
    )
    assert json.loads(done.out)["asked"] == "/v1/cities/Berlin"


def test_of_several_upstreams_each_stands_for_its_own(folder, upstream, run):
    write(PLAIN)
    write(PLAIN.replace("'weather'", "'tides'").replace("api.example", "tides.example"), "T.mjs")
    both = [
        *("--upstream", f"https://api.example.com=http://127.0.0.1:{upstream.port}/a"),
        *("--upstream", f"https://tides.example.com=http://127.0.0.1:{upstream.port}/b"),
    ]
    for namespace in ("weather", "tides"):
        assert run("call", f"{namespace}.getCity", "city=Kiel", "-s", ".", *both).code == 0
    assert upstream.heard == ["/a/cities/Kiel", "/b/cities/Kiel"]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "https://api.example.com",
        "https://api.example.com=",
        "=http://localhost:9",
        "api.example.com=http://localhost:9",
        "https://api.example.com=localhost:9",
        "ftp://api.example.com=http://localhost:9",
        "https://api.example.com=http://localhost:9?x=1",
        "https://=http://localhost:9",
    ],
)
@pytest.mark.parametrize("command", ["list", "call"])
def test_an_upstream_of_another_form_is_told_with_its_form(folder, run, command, given):
    write(PLAIN)
    start = CALL if command == "call" else ("list", "-s", ".")
    told = wrong_use(run(*start, "--upstream", given))
    assert "--upstream is written FROM=TO" in told
    assert f"'{given}'" in told


def test_an_upstream_that_is_given_twice_is_told(folder, run):
    write(PLAIN)
    pairs = [f"https://api.example.com=http://localhost:{port}" for port in (8, 9)]
    told = wrong_use(run(*CALL, "--upstream", pairs[0], "--upstream", pairs[1]))
    assert "'https://api.example.com' is given twice" in told


def test_an_address_that_no_request_could_go_to_is_told(folder, run):
    write(PLAIN)
    told = wrong_use(run(*CALL, "--upstream", "https://api.example.com=http://user@localhost:9"))
    assert "upstreams" in told


def test_a_private_host_is_reached_only_if_it_is_allowed(folder, upstream, run):
    write(PLAIN.replace("https://api.example.com", f"https://127.0.0.1:{upstream.port}"))
    refused = run(*CALL)
    assert refused.code == CODES["address_not_allowed"].exit
    assert "address_not_allowed" in refused.err
    # There is no TLS behind that port: it was tried.
    tried = run(*CALL, "--allow-host", f"127.0.0.1:{upstream.port}")
    assert "upstream_error" in tried.err
    other = run(*CALL, "--allow-host", "10.0.0.1")
    assert "address_not_allowed" in other.err


@pytest.mark.parametrize("host", ["", " ", "http://localhost", "a b"])
def test_a_host_of_another_form_is_told(folder, run, host):
    write(PLAIN)
    assert "host" in wrong_use(run(*CALL, "--allow-host", host))


# --- secrets ---------------------------------------------------------------------------------


def secrets_file(mode=0o600):
    path = Path("keys.env")
    path.write_text(f"WEATHER_KEY={SECRET}\n", "utf-8")
    path.chmod(mode)
    return path


def test_a_key_comes_from_the_file_of_secrets_and_shows_nowhere(folder, upstream, run):
    write(KEYED)
    to = f"https://api.example.com=http://127.0.0.1:{upstream.port}"
    done = run(*CALL, "--upstream", to, "--secrets", secrets_file(), "--as", "envelope")
    assert done.code == 0
    assert upstream.heard == [f"/cities/Berlin?key={SECRET}"]
    assert SECRET not in done.out + done.err
    assert json.loads(done.out)["data"]["degrees"] == 12.5


def test_without_its_key_a_call_ends_with_the_code_for_it(folder, upstream, run):
    write(KEYED)
    to = f"https://api.example.com=http://127.0.0.1:{upstream.port}"
    done = run(*CALL, "--upstream", to)
    assert done.code == CODES["server_param_missing"].exit
    assert "server_param_missing: " in done.err
    assert "WEATHER_KEY" in done.err
    flow = run(*CALL, "--upstream", to, "--as", "flowmcp")
    assert json.loads(flow.out)["messages"][0].startswith("E006 ")
    assert upstream.heard == []


def test_the_environment_has_keys_too_and_the_file_comes_first(folder, upstream, run, monkeypatch):
    write(KEYED)
    monkeypatch.setenv("WEATHER_KEY", "from-outside")
    to = ("--upstream", f"https://api.example.com=http://127.0.0.1:{upstream.port}")
    assert run(*CALL, *to).code == 7
    assert run(*CALL, *to, "--key", "WEATHER_KEY").code == 0
    assert run(*CALL, *to, "--key", "WEATHER_KEY", "--secrets", secrets_file()).code == 0
    keys = [path.partition("=")[2] for path in upstream.heard]
    assert keys == ["from-outside", SECRET]


@pytest.mark.skipif(os.name == "nt", reason="files have no such modes on Windows")
@pytest.mark.parametrize(("mode", "is_told"), [(0o600, False), (0o644, True)])
def test_a_file_of_secrets_that_others_can_read_is_told(folder, run, mode, is_told):
    write(KEYED)
    done = run("list", "-s", ".", "--secrets", secrets_file(mode))
    assert done.code == 0
    assert ("keys.env: others on this machine may read it" in done.err) == is_told


def test_a_file_of_secrets_that_cannot_be_read_is_told_without_what_stands_in_it(folder, run):
    write(KEYED)
    assert "nosuch.env" in wrong_use(run("list", "-s", ".", "--secrets", "nosuch.env"))
    Path("bad.env").write_text(f"\n{SECRET}\n", "utf-8")
    told = wrong_use(run("list", "-s", ".", "--secrets", "bad.env"))
    assert "line 2" in told
    assert SECRET not in told


# --- how files are read ----------------------------------------------------------------------


def test_the_profile_decides_whether_a_file_is_loaded(folder, run):
    write(PLAIN)
    assert run("list", "-s", ".").code == 0
    assert run("list", "-s", ".", "--profile", "compat").code == 0
    strict = run("list", "-s", ".", "--profile", "strict")
    assert (strict.code, strict.out) == (2, "")
    assert "VAL082" in strict.err
    assert "no tool could be loaded" in strict.err
    assert "lax" in wrong_use(run("list", "-s", ".", "--profile", "lax"))


def test_lists_can_be_named(folder, run):
    write(LISTED)
    Path("lists").mkdir()
    write(LIST, "lists/cities.mjs")
    missing = run("show", "weather.getCity", "-s", ".", "--json")
    assert missing.code == 2
    assert "VAL072" in missing.err
    found = run("show", "weather.getCity", "-s", ".", "--lists", "lists", "--json")
    assert json.loads(found.out)["input"]["properties"]["city"]["enum"] == ["Berlin"]
    for wrong in ("nosuch", "Weather.mjs"):
        told = wrong_use(run("list", "-s", ".", "--lists", wrong))
        assert f"--lists: {wrong} is not a folder" in told


@pytest.mark.parametrize(
    ("allowed", "code"),
    [([], 2), (["right-pad"], 2), (["left-pad"], 0), (["right-pad", "left-pad"], 0), (["*"], 0)],
)
def test_libraries_can_be_allowed(folder, run, allowed, code):
    write(NEEDY)
    options = [part for name in allowed for part in ("--allow-library", name)]
    done = run("list", "-s", ".", *options)
    assert done.code == code
    assert ("'left-pad' is not allowed" in done.err) == bool(code)


def test_a_library_needs_a_name(folder, run):
    write(NEEDY)
    assert "--allow-library needs a name" in wrong_use(
        run("list", "-s", ".", "--allow-library", "")
    )


def test_what_is_given_comes_before_what_the_configuration_says(folder, run):
    write(PLAIN)
    Path("callpact.toml").write_text(
        '[sources.w]\nref = "flowmcp:."\nprofile = "strict"\n', "utf-8"
    )
    assert run("list").code == 2
    assert run("list", "--profile", "compat").code == 0


LOOPING = (
    PLAIN
    + """
export const handlers = () => ({
    getCity: { executeRequest: async ( { payload } ) => { for( ;; ) {} } }
})
"""
)


@pytest.mark.parametrize(
    ("file", "options", "seconds"),
    [
        ("{}", (), "1"),
        ("hook_timeout = 0.1\n{}", (), "0.1"),
        ("{}\nhook_timeout = 0.2", (), "0.2"),
        ("hook_timeout = 0.1\n{}\nhook_timeout = 0.2", (), "0.2"),
        ("hook_timeout = 0.1\n{}\nhook_timeout = 0.2", ("--hook-timeout", "0.3"), "0.3"),
        ("{}", ("--hook-timeout", "1.5"), "1.5"),
    ],
)
def test_the_nearest_hook_timeout_counts_and_is_named(folder, run, file, options, seconds):
    write(LOOPING)
    text = file.format('[sources.w]\nref = "Weather.mjs"')
    Path("callpact.toml").write_text(text, "utf-8")
    done = run("call", "weather.getCity", "city=Berlin", *options)
    words = f"Timeout: it ran longer than {seconds} s; hook_timeout allows up to 60 s"
    assert words in done.err
    assert "--hook-timeout" in done.err


@pytest.mark.parametrize("value", ["0", "-1", "60.5", "nan", "inf"])
def test_a_hook_timeout_outside_its_bounds_is_refused(folder, run, value):
    write(LOOPING)
    done = run("list", "-s", "Weather.mjs", "--hook-timeout", value)
    assert done.code == 2
    assert "--hook-timeout must be above zero and at most 60" in done.err
    for place in ("hook_timeout = {}\n{}", "{1}\nhook_timeout = {0}"):
        text = place.format(value, '[sources.w]\nref = "Weather.mjs"')
        Path("callpact.toml").write_text(text, "utf-8")
        done = run("list")
        assert done.code == 2
        assert "hook_timeout" in done.err


@pytest.mark.parametrize("command", ["list", "show", "call", "serve"])
def test_every_command_with_sources_has_the_same_options(run, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = run(command, "--help").out
    for option in (
        *("--source", "--config", "--profile", "--lists", "--allow-library", "--secrets"),
        *("--upstream", "--allow-host", "--hook-host", "--hook-timeout", "--log-level"),
    ):
        assert option in shown


def test_completion_reads_the_options_before_it_and_never_fails(folder):
    write(NEEDY)

    def complete(**params):
        return complete_tool(SimpleNamespace(params={"source": ["."], **params}), "weather.")

    assert complete() == []
    found = [("weather.getCity", "The weather of a city.")]
    assert complete(allow_library=["left-pad"], profile=None) == found
    assert complete(upstream=["nonsense"]) == []


# --- what loading had to say -----------------------------------------------------------------

WARNINGS = ("VAL080", "VAL082", "VAL100", "VAL138")  # No version, hash, meta; fewer than 3 tests.


def test_warnings_of_files_are_counted_by_code_and_told_by_check(folder, run):
    for name in "ABC":
        write(PLAIN.replace("'weather'", f"'w{name.lower()}'"), f"{name}.mjs")
    done = run("list", "-s", ".")
    assert done.code == 0
    *told, count = done.err.splitlines()
    assert count == "3 tools"
    [line] = told
    assert line.startswith("warning: 12 warnings in 3 files (")
    assert sorted(re.findall(r"(\w+) × 3", line)) == sorted(WARNINGS)
    assert line.endswith("; `callpact check` shows them")


def test_what_is_no_more_than_information_is_told_at_a_lower_level_only(folder, run):
    write(PLAIN.replace("/{{city}}", "/:city"))  # VAL092: taken as the same.
    assert "VAL092" not in run("list", "-s", ".").err
    assert "info: Weather.mjs" in run("list", "-s", ".", "--log-level", "info").err


@pytest.mark.parametrize("level", ["info", "debug"])
def test_with_a_lower_level_everything_is_told(folder, run, level):
    write(PLAIN)
    done = run("list", "-s", ".", "--log-level", level)
    for code in WARNINGS:
        assert re.search(rf"^warning: Weather.mjs.*: {code} .*$", done.err, re.MULTILINE)
    assert "`callpact check` shows them" not in done.err


def test_errors_of_files_are_told_in_full_with_their_place(folder, run):
    write(PLAIN, "Good.mjs")
    write(PLAIN.replace("'weather'", "'w2'").replace("'GET'", "'FETCH'"), "Bad.mjs")
    write(PLAIN.replace("'weather'", "name()"), "Code.mjs")
    done = run("list", "-s", ".")
    assert done.code == 0
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    method = 1 + PLAIN.split("\n").index("            method: 'GET',")
    assert [line.split(": ")[1] for line in errors] == [f"Bad.mjs:{method}:13", "Code.mjs:2:16"]
    assert "VAL032 " in errors[0]
    assert "SEC017 " in errors[1]


def test_remarks_without_a_code_are_told_up_to_a_number(folder, run):
    for number in range(14):
        write(PLAIN, f"W{number}.mjs")
    done = run("list", "-s", ".")
    named = [line for line in done.err.splitlines() if "is declared 14 times" in line]
    assert len(named) == 10
    assert "warning: 4 more warnings; --log-level info shows them" in done.err
    all_told = run("list", "-s", ".", "--log-level", "info").err
    assert all_told.count("is declared 14 times") == 14


# --- disabled tools --------------------------------------------------------------------------


def mixed():
    write(KEYED)
    write(PLAIN.replace("'weather'", "'tides'"), "Tides.mjs")


def test_a_list_shows_what_is_disabled_and_why(folder, run):
    mixed()
    done = run("list", "-s", ".")
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert "NOTE" in lines["TOOL"]
    assert re.search(r"  disabled: .*WEATHER_KEY", lines["weather.getCity"])
    assert "disabled" not in lines["tides.getCity"]
    assert done.err.splitlines()[-1] == "2 tools, 1 of them disabled"
    enabled = run("list", "-s", ".", "--secrets", secrets_file())
    assert "disabled" not in enabled.out + enabled.err


def test_json_tells_what_is_disabled_with_its_code(folder, run):
    mixed()
    by_id = {
        row["id"]: row for row in map(json.loads, run("list", "-s", ".", "--json").out.splitlines())
    }
    assert by_id["weather.getCity"]["disabled"]["code"] == "server_param_missing"
    assert "WEATHER_KEY" in by_id["weather.getCity"]["disabled"]["reason"]
    assert "disabled" not in by_id["tides.getCity"]


def test_show_tells_what_is_disabled_and_that_it_is_not_served(folder, run):
    mixed()
    facts = [
        " ".join(line.split())
        for line in run("show", "weather.getCity", "-s", ".").out.splitlines()
    ]
    assert "over MCP not served" in facts
    [told] = [fact for fact in facts if fact.startswith("disabled ")]
    assert "WEATHER_KEY" in told
    assert told.endswith("[server_param_missing]")
    open_ = run("show", "tides.getCity", "-s", ".").out
    assert "disabled" not in open_
    assert "getCity_tides" in open_
    shown = json.loads(run("show", "weather.getCity", "-s", ".", "--json").out)
    assert shown["disabled"]["code"] == "server_param_missing"


def test_the_banner_of_a_server_counts_what_is_disabled_by_reason(folder):
    mixed()
    write(KEYED.replace("'weather'", "'wind'"), "Wind.mjs")
    env = {key: value for key, value in os.environ.items() if key != "WEATHER_KEY"}
    done = subprocess.run(
        [sys.executable, "-m", "callpact", "serve", "--stdio", "-s", "."],
        input=b"",
        capture_output=True,
        timeout=60,
        check=False,
        env=env,
    )
    lines = done.stderr.decode().splitlines()
    assert "serving 1 tool over stdio" in lines
    [left_out] = [line for line in lines if line.startswith("left out")]
    assert left_out.startswith("left out: 2 (disabled: ")
    assert "WEATHER_KEY" in left_out


# --- the configuration of a client -----------------------------------------------------------

PRINTED = ("install", "claude-desktop", "--print", "--name", "callpact")


@pytest.mark.parametrize(
    "ref", ["flowmcp:cat", "cat", "flowmcp:cat/Weather.mjs", "cat/Weather.mjs"]
)
def test_the_printed_configuration_carries_every_option_along(folder, run, ref):
    Path("cat").mkdir()
    Path("lists").mkdir()
    write(PLAIN, "cat/Weather.mjs")
    write(LIST, "lists/cities.mjs")
    options = [
        *("--profile", "compat", "--lists", "lists", "--secrets", str(secrets_file())),
        *("--allow-library", "a", "--allow-library", "*"),
        *(
            "--upstream",
            "https://api.example.com=http://localhost:9",
            "--allow-host",
            "10.0.0.1",
            "--hook-host",
            "data.example.com",
            "--hook-timeout",
            "2.5",
        ),
    ]
    done = run(*PRINTED, "-s", ref, *options, "--", "--scope", "admin")
    entry = json.loads(done.out)["mcpServers"]["callpact"]
    here = folder.resolve()
    kind, _, place = ref.rpartition(":")
    assert entry["args"][4:] == [
        *("-s", f"{kind}:{here / place}" if kind else str(here / place)),
        *("--profile", "compat", "--lists", str(here / "lists")),
        *("--secrets", str(here / "keys.env")),
        *("--allow-library", "a", "--allow-library", "*"),
        *(
            "--upstream",
            "https://api.example.com=http://localhost:9",
            "--allow-host",
            "10.0.0.1",
            "--hook-host",
            "data.example.com",
            "--hook-timeout",
            "2.5",
        ),
        *("--scope", "admin"),
    ]
    assert "env" not in entry
    assert SECRET not in done.out


def test_the_printed_configuration_has_no_option_that_was_not_given(folder, run):
    write(PLAIN)
    done = run(*PRINTED, "-s", "Weather.mjs")
    entry = json.loads(done.out)["mcpServers"]["callpact"]
    assert entry["args"] == [
        *("-m", "callpact", "serve", "--stdio", "-s", str(folder.resolve() / "Weather.mjs"))
    ]


def test_the_printed_configuration_starts_a_server(folder, run):
    write(KEYED)
    options = ["--secrets", str(secrets_file())]
    done = run(*PRINTED, "-s", ".", *options)
    entry = json.loads(done.out)["mcpServers"]["callpact"]
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    started = subprocess.run(
        [entry["command"], *entry["args"]],
        input=b"",
        capture_output=True,
        timeout=60,
        check=False,
        cwd=elsewhere,
    )
    assert b"serving 1 tool over stdio" in started.stderr
