"""`callpact check`: every FlowMCP file under the paths, told as tables or as JSON, and mended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from callpact import sandbox as hooks
from callpact.cli.main import main
from callpact.schema import schema_hash
from callpact.sources.flowmcp.read.literal import read_exports
from terminal import on_terminal

BODY = """\
    root: 'https://api.example.com',
    meta: {
        isReadOnly: true, isConcurrencySafe: true, isDestructive: false,
        searchHint: 'weather', aliases: [], alwaysLoad: false
    },
    tools: {
        getCity: {
            method: 'GET',
            path: '/cities/{{city}}',
            description: 'The weather of a city.',
            parameters: [
                {
                    position: { key: 'city', value: '{{USER_PARAM}}', location: 'insert' },
                    z: { primitive: 'string()', options: [ 'min(2)' ] }
                }
            ],
            output: {
                mimeType: 'application/json',
                schema: { type: 'object', properties: { degrees: { type: 'number' } } }
            },
            tests: [
                { _description: 'A capital', city: 'Berlin' },
                { _description: 'A port', city: 'Hamburg' },
                { _description: 'A town', city: 'Celle' }
            ]
        }
    }
}
"""
BARE = f"""\
export const main = {{
    namespace: 'weather',
    name: 'Weather',
    description: 'The weather of cities.',
    version: '4.0.0',
{BODY}"""


def signed(text):
    """The text with its version and hash, written by hand and not by what is under test."""
    with_version = text.replace("'4.0.0',\n", "'4.0.0',\n    schemaVersion: '1.0.0',\n")
    made = schema_hash(read_exports(with_version).values["main"])
    return with_version.replace("'1.0.0',\n", f"'1.0.0',\n    schemaHash: '{made}',\n", 1)


GOOD = signed(BARE)
HASH = schema_hash(read_exports(GOOD).values["main"])
# A warning in both profiles (fewer than three tests), and an error in both (a fifth method).
WARNED = signed(BARE.replace("                { _description: 'A port', city: 'Hamburg' },\n", ""))
BROKEN = signed(BARE.replace("'GET'", "'FETCH'"))
LIST = """\
export const list = {
    meta: {
        name: 'cities',
        version: '1.0.0',
        description: 'Cities.',
        fields: [ { key: 'code', type: 'string', description: 'Short name.' } ]
    },
    entries: [ { code: 'BE' }, { code: 'HH' } ]
}
"""
LISTED = signed(
    BARE.replace(
        "    root:", "    sharedLists: [ { ref: 'cities', version: '1.0.0' } ],\n    root:"
    )
    .replace("'string()'", "'enum({{cities:code}})'")
    .replace("[ 'min(2)' ]", "[]")
    .replace("'Berlin'", "'BE'")
    .replace("'Hamburg'", "'HH'")
    .replace("'Celle'", "'HH'")
)


def write(folder, **files):
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.mjs"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.fixture
def check(monkeypatch, capfdbinary):
    """Run `callpact check` in this process: exit code, standard output, standard error."""

    def check_(*args, cwd=None):
        monkeypatch.setattr(sys, "argv", ["callpact", "check", *map(str, args)])
        capfdbinary.readouterr()
        with contextlib.chdir(cwd or Path()), pytest.raises(SystemExit) as left:
            main()
        out, err = capfdbinary.readouterr()
        return SimpleNamespace(
            returncode=left.value.code or 0, stdout=out.decode(), stderr=err.decode()
        )

    return check_


def process(*args, **more):
    """The same in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "callpact", "check", *map(str, args)],
        capture_output=True,
        timeout=60,
        check=False,
        encoding="utf-8",
        **more,
    )


def rows(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def codes(row, severity=None):
    return [i["code"] for i in row["issues"] if severity is None or i["severity"] == severity]


def wrong_use(done):
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    return done.stderr


# --- what is told, and the exit code ---------------------------------------------------------


@pytest.mark.parametrize("profile", ["strict", "compat"])
def test_a_good_file_is_ok_in_both_profiles(tmp_path, profile, check):
    write(tmp_path, Weather=GOOD)
    done = check(tmp_path, "--profile", profile, "--json")
    assert done.returncode == 0
    assert rows(done) == [
        {
            "file": str(tmp_path / "Weather.mjs"),
            "verdict": "ok",
            "issues": [],
            "namespace": "weather",
            "name": "Weather",
            "tools": ["getCity"],
            "schemaHash": HASH,
        }
    ]
    assert check(tmp_path, "--profile", profile).stdout == (
        "1 file: 1 ok, 0 with warnings, 0 with errors\n"
    )


@pytest.mark.parametrize(
    ("text", "verdict", "summary"),
    [
        (WARNED, "warning", "0 ok, 1 with warnings, 0 with errors"),
        (BROKEN, "error", "0 ok, 0 with warnings, 1 with errors"),
    ],
)
def test_the_worst_finding_is_the_verdict_and_only_errors_fail(
    tmp_path, text, verdict, summary, check
):
    write(tmp_path, Weather=text)
    done = check(tmp_path, "--json")
    assert done.returncode == (verdict == "error")
    assert [row["verdict"] for row in rows(done)] == [verdict]
    done = check(tmp_path)
    assert done.returncode == (verdict == "error")
    assert done.stdout.endswith(f"\n1 file: {summary}\n")


def test_a_process_ends_with_the_same_codes(tmp_path):
    write(tmp_path, a__Weather=GOOD, b__Weather=BROKEN)
    good, bad, wrong = (process(tmp_path / name) for name in ("a", "b", "c"))
    assert [done.returncode for done in (good, bad, wrong)] == [0, 1, 2]
    assert "1 with errors" in bad.stdout
    assert "does not exist" in wrong_use(wrong)


def test_an_issue_says_what_where_and_what_to_do(tmp_path, check):
    write(tmp_path, Weather=BROKEN)
    [row] = rows(check(tmp_path, "--json"))
    [issue] = row["issues"]
    lines = BROKEN.split("\n")
    line = next(i for i, text in enumerate(lines, 1) if "method" in text)
    assert {key: issue[key] for key in ("code", "severity", "path", "line", "column")} == {
        "code": "VAL032",
        "severity": "error",
        "path": "/tools/getCity/method",
        "line": line,
        "column": lines[line - 1].index("method") + 1,
    }
    assert "'FETCH'" in issue["message"]
    # What can be read of a file that cannot be loaded is told all the same.
    assert (row["namespace"], row["name"], row["tools"]) == ("weather", "Weather", ["getCity"])


def test_the_table_is_grouped_by_file_and_each_finding_is_one_line(tmp_path, check):
    write(tmp_path, a__Weather=GOOD, b__Weather=WARNED, c__Weather=BROKEN)
    done = check(tmp_path, "--warnings", cwd=tmp_path)
    [good, warned, broken] = rows(check(tmp_path, "--json"))
    blocks = done.stdout.split("\n\n")
    assert [block.split("\n")[0] for block in blocks[:2]] == [broken["file"], warned["file"]]
    assert good["file"] not in done.stdout
    for block, row in zip(blocks, (broken, warned), strict=False):
        issues = sorted(row["issues"], key=lambda issue: issue["severity"] != "error")
        for line, issue in zip(block.split("\n")[1:], issues, strict=True):
            cells = re.split(r"  +", line.strip(), maxsplit=4)
            place = f"{issue['line']}:{issue['column']}"
            expected = [issue["severity"], issue["code"], place, issue["path"], issue["message"]]
            assert cells == expected
    assert blocks[-1] == "3 files: 1 ok, 1 with warnings, 1 with errors\n"
    assert done.stderr == ""


def test_over_many_files_errors_come_first_then_a_summary_by_code(tmp_path, check):
    files = {f"w{number}__Weather": WARNED for number in range(30)}
    write(tmp_path, **files, x__Weather=BROKEN, y__Weather=BROKEN)
    done = check(tmp_path)
    [*broken, codes_, last] = done.stdout.split("\n\n")
    assert [Path(block.split("\n")[0]).parent.name for block in broken] == ["x", "y"]
    assert all(line.split()[0] == "error" for block in broken for line in block.split("\n")[1:])
    header, *lines = codes_.split("\n")
    assert header.split() == ["CODE", "SEVERITY", "FINDINGS", "FILES", "RULE"]
    assert [line.split()[1] for line in lines] == sorted(line.split()[1] for line in lines)
    assert next(line.split()[2:4] for line in lines if "warning" in line) == ["30", "30"]
    assert last == "32 files: 0 ok, 30 with warnings, 2 with errors\n"
    assert done.stderr == "30 warnings not shown; --warnings shows them\n"
    assert check(tmp_path, "--warnings").stdout.count("Weather.mjs\n") == 32


@pytest.mark.parametrize(
    ("options", "code", "verdict"),
    [
        ([], 1, "error"),
        (["--errors-only"], 1, "error"),
        (["--select", "VAL080,TST"], 0, "ok"),
        (["--select", "val"], 1, "error"),
        (["--ignore", "VAL"], 0, "ok"),
        (["--select", "VAL", "--ignore", "VAL"], 0, "ok"),
    ],
)
def test_codes_can_be_selected_and_ignored_and_the_exit_code_follows(
    tmp_path, check, options, code, verdict
):
    write(tmp_path, Weather=BROKEN)
    done = check(tmp_path, "--json", *options)
    [row] = rows(done)
    assert (done.returncode, row["verdict"]) == (code, verdict)


def test_errors_only_leaves_warnings_out(tmp_path, check):
    write(tmp_path, Weather=WARNED)
    assert rows(check(tmp_path, "--json", "--errors-only"))[0]["issues"] == []
    assert (
        check(tmp_path, "--errors-only").stdout == "1 file: 1 ok, 0 with warnings, 0 with errors\n"
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--select", "XYZ"], "--select: no code begins with 'XYZ'"),
        (["--ignore", "VAL,,SEC"], "--ignore: no code begins with ''"),
        (["--warnings", "--errors-only"], "contradict"),
        (["--json", "--format", "html"], "two formats"),
        (["--dry-run"], "--fix"),
    ],
)
def test_options_of_a_check_that_make_no_sense_are_wrong_use(tmp_path, check, options, named):
    write(tmp_path, Weather=GOOD)
    done = check(tmp_path, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr


def test_annotations_of_github_have_the_place_and_escape_what_github_reads(tmp_path, check):
    write(tmp_path, **{"a,b": BROKEN})
    done = check(tmp_path, "--format", "github")
    [issue] = [
        each for each in rows(check(tmp_path, "--json"))[0]["issues"] if each["severity"] == "error"
    ]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("::error ")]
    place = f"line={issue['line']},col={issue['column']},title={issue['code']}::"
    assert place in line
    assert "a%2Cb.mjs" in line
    assert done.returncode == 1


def test_a_page_of_html_holds_all_findings_and_none_of_their_markup(tmp_path, check):
    write(
        tmp_path,
        a__Weather=WARNED,
        b__Weather=BROKEN.replace("'FETCH'", "'<script>alert(1)</script>'"),
    )
    done = check(tmp_path, "--format", "html")
    assert done.returncode == 1
    assert done.stdout.startswith("<!doctype html>")
    assert "<script" not in done.stdout
    assert "&lt;script&gt;" in done.stdout
    assert done.stdout.count("<h2><code>") == 2
    assert done.stderr == "2 files: 0 ok, 1 with warnings, 1 with errors\n"


@pytest.mark.parametrize("more", [{}, {"NO_COLOR": "1"}], ids=["colour", "no colour"])
@pytest.mark.parametrize("columns", [80, 120])
def test_findings_are_fitted_to_the_width_without_losing_a_word(tmp_path, check, columns, more):
    write(tmp_path, a__Weather=BROKEN, b__Weather=WARNED)
    done = on_terminal("check", ".", columns=columns, cwd=tmp_path, **more)
    issues = rows(check(".", "--json", cwd=tmp_path))[0]["issues"]
    message = next(each["message"] for each in issues if each["severity"] == "error")
    lines = [line for line in done.text.splitlines() if "checking" not in line]
    assert max(map(len, lines)) <= columns
    assert message in " ".join(done.text.split())


def test_json_has_the_summary_on_stderr_and_nothing_else_on_stdout(tmp_path, check):
    write(tmp_path, a__Weather=GOOD, b__Weather=BROKEN)
    done = check(tmp_path, "--json")
    assert len(rows(done)) == 2
    assert done.stderr == "2 files: 1 ok, 0 with warnings, 1 with errors\n"


def test_the_profile_decides_what_is_an_error(tmp_path, check):
    write(tmp_path, Weather=BARE)
    [row] = rows(check(tmp_path, "--json"))
    assert (row["verdict"], codes(row)) == ("warning", ["VAL080", "VAL082"])
    done = check(tmp_path, "--json", "--profile", "strict")
    assert done.returncode == 1
    assert codes(rows(done)[0], "error") == ["VAL080", "VAL082"]


def test_text_of_a_file_cannot_draw_on_the_terminal(tmp_path, check):
    evil = BROKEN.replace("getCity:", r"'get\u001b[31m\u009bCity\ud800':")
    write(tmp_path, Weather=evil)
    done = check(tmp_path)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "\x9b" not in done.stdout
    assert r"get\u001b[31m\u009bCity" in done.stdout
    [row] = rows(check(tmp_path, "--json"))
    assert "\x1b[31m" in row["tools"][0]


# --- which files -----------------------------------------------------------------------------


def test_files_and_folders_are_taken_each_file_once(tmp_path, check):
    write(tmp_path, a__Weather=GOOD, b__c__Weather=GOOD, b__Other=GOOD)
    (tmp_path / "b" / "readme.md").write_text("no", "utf-8")
    (tmp_path / "b" / "Same.mjs").symlink_to(tmp_path / "a" / "Weather.mjs")
    done = check("a/Weather.mjs", ".", "b", tmp_path / "a", "--json", cwd=tmp_path)
    assert [row["file"] for row in rows(done)] == [
        "a/Weather.mjs",
        "b/Other.mjs",
        "b/c/Weather.mjs",
    ]


def test_installed_packages_and_tests_are_not_looked_at_unless_they_are_named(tmp_path, check):
    write(tmp_path, node_modules__x__A=BROKEN, tests__B=BROKEN, Weather=GOOD)
    assert [row["file"] for row in rows(check(".", "--json", cwd=tmp_path))] == ["Weather.mjs"]
    named = rows(check("tests", "--json", cwd=tmp_path))
    assert [row["file"] for row in named] == ["tests/B.mjs"]


def test_a_named_file_is_checked_whatever_it_is_called(tmp_path, check):
    (tmp_path / "weather.txt").write_text(GOOD, "utf-8")
    assert rows(check(tmp_path / "weather.txt", "--json"))[0]["verdict"] == "ok"


def test_a_path_that_is_not_there_is_wrong_use(tmp_path, check):
    write(tmp_path, Weather=GOOD)
    assert f"{tmp_path}/nosuch: it does not exist" in wrong_use(
        check(tmp_path, tmp_path / "nosuch")
    )


def test_a_folder_without_files_is_wrong_use(tmp_path, check):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x.json").write_text("{}", "utf-8")
    assert f"{tmp_path} holds no .mjs file" in wrong_use(check(tmp_path))


def test_no_path_at_all_is_wrong_use(check):
    done = check()
    assert done.returncode == 2
    assert "PATH" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_links_in_a_circle_end(tmp_path, check):
    write(tmp_path, Weather=GOOD)
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "A.mjs").symlink_to("B.mjs")
    (tmp_path / "B.mjs").symlink_to("A.mjs")
    (tmp_path / "Gone.mjs").symlink_to("nowhere.mjs")
    by_file = {row["file"]: row for row in rows(check(".", "--json", cwd=tmp_path))}
    assert list(by_file) == ["A.mjs", "B.mjs", "Gone.mjs", "Weather.mjs"]
    assert [row["verdict"] for row in by_file.values()] == ["error", "error", "error", "ok"]
    assert "in a circle" in by_file["A.mjs"]["issues"][0]["message"]
    assert "does not exist" in by_file["Gone.mjs"]["issues"][0]["message"]
    assert "in a circle" in wrong_use(check(tmp_path / "A.mjs"))


def test_a_file_that_is_not_utf_8_is_an_error_with_its_place_and_the_others_are_checked(
    tmp_path, check
):
    before, behind = GOOD.split("cities.", 1)
    write(tmp_path, Bad=before.encode() + b"\xfc\xff" + behind.encode(), Weather=GOOD)
    done = check(tmp_path, "--json")
    assert done.returncode == 1
    bad, good = rows(done)
    assert (bad["verdict"], good["verdict"]) == ("error", "ok")
    [issue] = bad["issues"]
    assert "UTF-8" in issue["message"]
    assert "0xfc" in issue["message"]
    assert (issue["line"], issue["column"]) == (4, len(before.split("\n")[-1]) + 1)


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path, check):
    write(tmp_path, Weather=GOOD + "ü" * 3_000_000)
    [row] = rows(check(tmp_path, "--json"))
    assert codes(row) == ["VAL135"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes among its files")
def test_what_is_no_file_is_told_and_not_waited_for(tmp_path, check):
    os.mkfifo(tmp_path / "Pipe.mjs")
    (tmp_path / "Folder.mjs").mkdir()
    write(tmp_path, Weather=GOOD)
    by_file = {row["file"]: row for row in rows(check(".", "--json", cwd=tmp_path))}
    assert {file: row["verdict"] for file, row in by_file.items()} == {
        "Pipe.mjs": "error",
        "Weather.mjs": "ok",
    }


def test_one_file_that_is_no_schema_never_stops_the_others(tmp_path, check):
    write(tmp_path, A="import fs from 'fs'", B="", C="export const main = 5", D=GOOD)
    verdicts = [row["verdict"] for row in rows(check(tmp_path, "--json"))]
    assert verdicts == ["error", "error", "error", "ok"]


# --- lists -----------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["_lists", "_shared"])
@pytest.mark.parametrize("where", [".", "providers", "providers/weather/Weather.mjs"])
def test_lists_of_the_catalogue_are_found_from_wherever_one_looks(tmp_path, folder, where, check):
    write(tmp_path, **{f"{folder}__cities": LIST, "providers__weather__Weather": LISTED})
    [*_, row] = rows(check(where, "--json", cwd=tmp_path))
    assert (row["verdict"], row["issues"]) == ("ok", [])


def test_lists_can_be_elsewhere(tmp_path, check):
    write(tmp_path, lists__cities=LIST, catalogue__Weather=LISTED)
    alone = check("catalogue", "--json", cwd=tmp_path)
    assert (alone.returncode, codes(rows(alone)[0], "error")) == (1, ["VAL072"])
    given = check("catalogue", "--lists", "lists", "--json", cwd=tmp_path)
    assert (given.returncode, [row["verdict"] for row in rows(given)]) == (0, ["ok"])


def test_a_missing_list_is_reported_with_the_option_and_the_folders_searched(tmp_path, check):
    write(tmp_path, catalogue__Weather=LISTED)
    [issue] = rows(check("catalogue", "--json", cwd=tmp_path))[0]["issues"]
    assert "--lists DIR" in issue["message"]
    assert "folders searched: none, as there is no _lists or _shared" in issue["message"]
    (tmp_path / "_lists").mkdir()
    [issue] = rows(check("catalogue", "--json", cwd=tmp_path))[0]["issues"]
    assert issue["message"].endswith(f"folders searched: {(tmp_path / '_lists').resolve()}")


def test_a_folder_of_lists_that_is_none_is_wrong_use(tmp_path, check):
    write(tmp_path, Weather=GOOD)
    assert "--lists" in wrong_use(check(tmp_path, "--lists", tmp_path / "nosuch"))
    assert "--lists" in wrong_use(check(tmp_path, "--lists", tmp_path / "Weather.mjs"))


@pytest.mark.parametrize("folder", ["_lists", "lists", "."])
def test_list_files_are_checked_too(tmp_path, folder, check):
    write(
        tmp_path / folder,
        cities=LIST,
        towns=LIST.replace("'cities'", "'towns'").replace("'HH'", "5"),
    )
    done = check(tmp_path, "--json", "--profile", "strict")
    good, bad = rows(done)
    assert done.returncode == 1
    expected = {"verdict": "ok", "issues": [], "namespace": None, "name": "cities", "tools": []}
    assert good == {"file": good["file"], **expected, "schemaHash": None}
    assert codes(bad) == ["LST008"]
    assert bad["issues"][0]["path"] == "/entries/1/code"


def test_a_list_that_is_not_utf_8_is_told_once(tmp_path, check):
    write(tmp_path, _lists__cities=b"\xff" + LIST.encode(), Weather=LISTED)
    by_file = {row["file"]: codes(row) for row in rows(check(".", "--json", cwd=tmp_path))}
    assert by_file == {"Weather.mjs": ["VAL072"], "_lists/cities.mjs": ["VAL155"]}


def test_lists_are_held_to_one_another(tmp_path, check):
    depends = "        dependsOn: [ { ref: 'nosuch', version: '1.0.0' } ],\n        fields:"
    write(
        tmp_path,
        _lists__a=LIST,
        _lists__b=LIST,
        _lists__c=LIST.replace("'cities'", "'towns'").replace("        fields:", depends),
    )
    first, second, third = rows(check(tmp_path, "--json"))
    assert first["issues"] == []
    assert codes(second) == ["LST002"]
    assert "a.mjs" in second["issues"][0]["message"]
    assert codes(third) == ["LST009"]
    [issue] = third["issues"]
    assert issue["line"] == 1 + LIST.split("\n").index("        description: 'Cities.',") + 1


def test_a_list_that_cannot_be_used_is_told_with_the_files_that_need_it(tmp_path, check):
    write(tmp_path, lists__cities=LIST.replace("'HH'", "5"), lists__fine=LIST, catalogue__W=LISTED)
    done = check("catalogue", "--lists", "lists", "--json", cwd=tmp_path)
    assert done.returncode == 1
    *_, last = rows(done)
    assert last["file"] == str(tmp_path.resolve() / "lists" / "cities.mjs")
    assert codes(last) == ["LST008"]


def test_a_given_list_stands_before_that_of_the_catalogue(tmp_path, check):
    write(tmp_path, c___lists__cities=LIST, c__Weather=LISTED)
    write(tmp_path, mine__cities=LIST.replace("'HH'", "'M'"))
    assert check("c", "--profile", "strict", cwd=tmp_path).returncode == 0
    by_file = {r["file"]: r for r in rows(check("c", "--lists", "mine", "--json", cwd=tmp_path))}
    assert codes(by_file["c/Weather.mjs"]) == ["TST004", "TST004"]
    assert by_file["c/_lists/cities.mjs"]["verdict"] == "ok"


# --- libraries, and what callpact.toml says --------------------------------------------------

NEEDY = signed(BARE.replace("    root:", "    requiredLibraries: [ 'left-pad' ],\n    root:"))


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ([], "error"),
        (["--allow-library", "right-pad"], "error"),
        (["--allow-library", "left-pad"], "ok"),
        (["--allow-library", "right-pad", "--allow-library", "left-pad"], "ok"),
        (["--allow-library", "*"], "ok"),
    ],
)
def test_libraries_can_be_allowed(tmp_path, options, verdict, check):
    write(tmp_path, Weather=NEEDY)
    done = check(tmp_path, "--json", *options)
    assert [row["verdict"] for row in rows(done)] == [verdict]
    assert done.returncode == (1 if verdict == "error" else 0)


def test_a_library_that_is_not_allowed_is_reported_with_the_option(tmp_path, check):
    write(tmp_path, Weather=NEEDY)
    [issue] = [
        each for each in rows(check(tmp_path, "--json"))[0]["issues"] if each["code"] == "SEC020"
    ]
    assert "`--allow-library NAME`" in issue["message"]


def test_a_library_without_a_name_is_wrong_use(tmp_path, check):
    write(tmp_path, Weather=NEEDY)
    assert "--allow-library" in wrong_use(check(tmp_path, "--allow-library", ""))


@pytest.mark.parametrize(
    ("config", "verdict"),
    [
        ("", "error"),
        ('libraries = ["left-pad"]\n', "ok"),
        ('[sources.w]\nref = "flowmcp:cat"\nlibraries = ["left-pad"]\n', "ok"),
        ('[sources.w]\nref = "cat"\nlibraries = ["*"]\n', "ok"),
        ('[sources.w]\nref = "flowmcp:other"\nlibraries = ["*"]\n', "error"),
        ('[sources.w]\nref = "python:cat.py"\n', "error"),
    ],
)
def test_the_configuration_allows_libraries_for_all_or_for_a_source(
    tmp_path, config, verdict, check
):
    write(tmp_path, cat__Weather=NEEDY)
    (tmp_path / "callpact.toml").write_text(config, "utf-8")
    assert [r["verdict"] for r in rows(check("cat", "--json", cwd=tmp_path))] == [verdict]


def test_each_file_has_the_profile_of_its_own_source_unless_one_is_given(tmp_path, check):
    write(tmp_path, cat__a__Weather=BARE, cat__b__Weather=BARE, Weather=BARE)
    (tmp_path / "callpact.toml").write_text(
        '[sources.x]\nref = "flowmcp:cat"\nprofile = "strict"\n'
        '[sources.y]\nref = "cat/b/Weather.mjs"\nprofile = "compat"\n',
        "utf-8",
    )
    verdicts = {r["file"]: r["verdict"] for r in rows(check(".", "--json", cwd=tmp_path))}
    assert verdicts == {
        "Weather.mjs": "warning",
        "cat/a/Weather.mjs": "error",
        "cat/b/Weather.mjs": "warning",
    }
    given = rows(check(".", "--json", "--profile", "compat", cwd=tmp_path))
    assert {row["verdict"] for row in given} == {"warning"}


def test_the_configuration_can_be_elsewhere_and_its_lists_stand_beside_it(tmp_path, check):
    write(tmp_path, conf__lists__cities=LIST, cat__Weather=LISTED)
    (tmp_path / "conf" / "c.toml").write_text(
        '[sources.w]\nref = "flowmcp:../cat"\nlists = "lists"\n', "utf-8"
    )
    assert check("cat", cwd=tmp_path).returncode == 1
    assert check("cat", "-c", "conf/c.toml", cwd=tmp_path).returncode == 0
    (tmp_path / "conf" / "lists").rename(tmp_path / "conf" / "moved")
    told = wrong_use(check("cat", "-c", "conf/c.toml", cwd=tmp_path))
    assert "conf/c.toml: sources.w.lists: conf/lists is not a folder" in told


def test_a_configuration_that_cannot_be_used_is_wrong_use(tmp_path, check):
    write(tmp_path, Weather=GOOD)
    assert "other.toml" in wrong_use(check(".", "-c", "other.toml", cwd=tmp_path))
    (tmp_path / "callpact.toml").write_text("profle = 1", "utf-8")
    assert "profle" in wrong_use(check(".", cwd=tmp_path))


def test_an_unknown_profile_is_wrong_use(tmp_path, check):
    write(tmp_path, Weather=GOOD)
    done = check(tmp_path, "--profile", "lax")
    assert (done.returncode, done.stdout) == (2, "")
    assert "lax" in done.stderr


# --- --fix -----------------------------------------------------------------------------------


def test_fix_writes_what_is_missing_says_so_and_the_findings_are_gone(tmp_path, check):
    write(tmp_path, Weather=BARE.replace("tools:", "routes:"))
    file = tmp_path / "Weather.mjs"
    file.chmod(0o600)
    before = rows(check(tmp_path, "--json"))[0]
    assert set(codes(before)) == {"VAL018", "VAL080", "VAL082"}
    done = check(tmp_path, "--fix", "--json", "--profile", "strict")
    assert done.returncode == 0
    [row] = rows(done)
    assert (row["verdict"], row["issues"], row["schemaHash"]) == ("ok", [], HASH)
    told = done.stderr.splitlines()[0]
    assert told.startswith(f"fixed {file}: ")
    assert all(word in told for word in ("`routes`", "`tools`", "`schemaVersion`", HASH))
    assert file.read_text("utf-8") == GOOD
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_dry_run_shows_the_changes_as_a_diff_and_writes_nothing(tmp_path, check):
    write(tmp_path, Weather=BARE, Good=GOOD)
    before = (tmp_path / "Weather.mjs").read_bytes()
    done = check(tmp_path, "--fix", "--dry-run")
    assert done.returncode == 1
    assert (tmp_path / "Weather.mjs").read_bytes() == before
    added = [line for line in done.stdout.splitlines() if line.startswith("+ ")]
    assert any("schemaHash" in line for line in added)
    assert any("schemaVersion" in line for line in added)
    assert "Good.mjs" not in done.stdout
    check(tmp_path, "--fix")
    done = check(tmp_path, "--fix", "--dry-run")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "nothing to fix\n")


def test_a_dry_run_leaves_openapi_documents_alone(tmp_path, check):
    write(tmp_path, Weather=BARE)
    (tmp_path / "api.json").write_text('{"openapi": "3.1.0"}', "utf-8")
    done = check("Weather.mjs", "api.json", "--fix", "--dry-run", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "api.json" not in done.stdout


def test_fix_twice_changes_nothing_the_second_time(tmp_path, check):
    write(tmp_path, a__Weather=BARE, b__Weather=GOOD)
    assert check(tmp_path, "--fix").stderr.count("fixed ") == 1
    inode = (tmp_path / "a" / "Weather.mjs").stat().st_ino
    again = check(tmp_path, "--fix")
    assert again.stderr == "nothing to fix\n"
    assert (tmp_path / "a" / "Weather.mjs").stat().st_ino == inode
    assert again.stdout == "2 files: 2 ok, 0 with warnings, 0 with errors\n"


def test_without_fix_nothing_is_written(tmp_path, check):
    write(tmp_path, Weather=BARE)
    check(tmp_path)
    assert (tmp_path / "Weather.mjs").read_text("utf-8") == BARE


def test_fix_leaves_alone_what_it_cannot_read_and_what_is_no_schema(tmp_path, check):
    files = {
        "Bad": BARE.encode() + b"\xff",
        "Code": BARE.replace("'weather'", "name()"),
        "_lists__cities": LIST,
        "Old": BARE.replace("4.0.0", "2.0.0").replace("tools:", "routes:"),
    }
    write(tmp_path, **files)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.mjs")}
    done = check(tmp_path, "--fix")
    assert done.returncode == 1
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.mjs")} == before
    assert "Traceback" not in done.stderr
    assert f"not fixed {tmp_path}/Old.mjs: nothing converts FlowMCP 2" in done.stderr


def test_what_fix_cannot_write_is_told_and_fails(tmp_path):
    write(tmp_path, Weather=BARE)
    command = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10));"
        "from callpact.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", command, "check", "--fix", str(tmp_path)],
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
    )
    assert done.returncode == 1
    assert f"error: {tmp_path}/Weather.mjs cannot be written" in done.stderr
    assert (tmp_path / "Weather.mjs").read_text("utf-8") == BARE


# --- terminals, pipes, signals ---------------------------------------------------------------


def many(tmp_path):
    """More than a pipe holds."""
    return write(tmp_path, **{f"n{number}__Weather": BARE for number in range(300)})


@contextlib.contextmanager
def started(*args, **pipes):
    command = [sys.executable, "-m", "callpact", "check", *map(str, args)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes}
    with subprocess.Popen(command, **pipes) as running:
        watch = threading.Timer(60, running.kill)
        watch.start()
        try:
            yield running
        finally:
            watch.cancel()
            running.kill()


@pytest.mark.skipif(os.name == "nt", reason="a closed pipe is another error on Windows")
@pytest.mark.parametrize("options", [["--json"], ["--warnings"]])
def test_a_reader_that_leaves_ends_it_quietly(tmp_path, options):
    with started(many(tmp_path), *options) as running:
        assert running.stdout.readline()
        running.stdout.close()
        err = running.stderr.read()
        assert running.wait() == 128 + signal.SIGPIPE
    assert err == b""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_ctrl_c_ends_it_without_a_trace(tmp_path):
    with started(many(tmp_path), "--json") as running:
        assert running.stdout.readline()
        running.send_signal(signal.SIGINT)  # It waits until somebody reads on.
        err = running.stderr.read()
        assert running.wait() == 130
    assert b"Traceback" not in err


def read_all(screen):
    text = b""
    with contextlib.suppress(OSError):  # The end of a terminal is an error.
        while part := os.read(screen, 10_000):
            text += part
    os.close(screen)
    return text.decode()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals of this kind")
def test_progress_is_shown_on_a_terminal_only(tmp_path, check):
    write(tmp_path, Weather=GOOD)
    screen, terminal = os.openpty()
    command = [sys.executable, "-m", "callpact", "check", str(tmp_path), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, timeout=60, check=False)
    os.close(terminal)
    assert "checking" in read_all(screen)
    assert json.loads(done.stdout)["verdict"] == "ok"
    assert "checking" not in check(tmp_path, "--json").stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals of this kind")
def test_a_terminal_shows_the_same_in_colours(tmp_path, check):
    write(tmp_path, Weather=BROKEN)
    plain = check(tmp_path).stdout
    screen, terminal = os.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "400"}
    env.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "callpact", "check", str(tmp_path)]
    done = subprocess.run(
        command, stdout=terminal, stderr=subprocess.PIPE, timeout=60, check=False, env=env
    )
    os.close(terminal)
    shown = read_all(screen)
    assert done.returncode == 1
    assert "\x1b[31merror\x1b[0m" in shown
    bare = re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r\n", "\n")
    assert bare == plain


# --- hooks ----------------------------------------------------------------------------------

HOOKED = f"""{GOOD}export const handlers = ( {{ libraries }} ) => {{
    const {{ missing }} = libraries
    return {{ getCity: {{ postRequest: ( {{ response }} ) => ({{ response, a: missing.b }}) }} }}
}}
"""
THROWING = HOOKED.replace("    return", "    missing.use()\n    return")


@pytest.fixture
def _user_cache(tmp_path_factory, monkeypatch):
    """One compiled guest for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "popen-" in base.name else base) / "user-cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))


def test_hooks_are_looked_at_without_running_them(tmp_path, check):
    code = GOOD + "export const handlers = () => ({ getTown: {}, getCity: { b: f } })\n"
    write(tmp_path, Weather=code)
    done = check(tmp_path, "--profile", "strict")
    line = GOOD.count("\n") + 1
    assert done.returncode == 0
    assert re.search(rf"warning  VAL005  {line}:34 +- ", done.stdout)
    assert re.search(rf"warning  VAL161  {line}:58 +/tools/getCity ", done.stdout)


@pytest.mark.usefixtures("_user_cache")
def test_hooks_are_opened_if_that_is_asked_for(tmp_path, check):
    write(tmp_path, Weather=THROWING)
    assert check(tmp_path, "--profile", "strict").returncode == 0
    done = check(tmp_path, "--profile", "strict", "--hooks")
    line = THROWING[: THROWING.index("missing.use")].count("\n") + 1
    assert done.returncode == 1
    assert re.search(rf"error  SEC104  {line}:", done.stdout)
    write(tmp_path, Weather=HOOKED, Plain=GOOD, cities=LIST)
    done = check(tmp_path, "--hooks", "--json")
    assert done.returncode == 0
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(reports) == 3
    assert "SEC104" not in done.stdout


def test_opening_hooks_without_the_extra_says_what_to_install(tmp_path, check, monkeypatch):
    monkeypatch.setattr(hooks, "find_spec", lambda _: None)
    write(tmp_path, Weather=HOOKED)
    assert check(tmp_path).returncode == 0
    done = check(tmp_path, "--hooks")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'callpact[hooks]'" in done.stderr


# --- OpenAPI documents ------------------------------------------------------------------------

OPENAPI = """\
openapi: 3.0.0
info: {title: Pets, version: '1'}
servers: [{url: https://api.example.com}]
paths:
  /pets:
    get: {operationId: list}
"""


def test_a_sound_openapi_document_passes(tmp_path, check):
    path = tmp_path / "api.yaml"
    path.write_text(OPENAPI, "utf-8")
    assert check(path).returncode == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (OPENAPI + "    post: {parameters: [{in: query}]}\n", "a parameter must have a `name`"),
        ("a: [", "not YAML"),
        ("a: 1\n", "expected `openapi: 3.x`"),
        ("- " * 5_000, "levels"),
    ],
)
def test_a_broken_openapi_document_is_reported_without_a_traceback(tmp_path, check, text, reason):
    path = tmp_path / "api.yaml"
    path.write_text(text, "utf-8")
    left = check(path)
    assert left.returncode == 1
    assert reason in left.stdout
    assert "Traceback" not in left.stdout + left.stderr
