"""Which files a catalogue has and what is told about each: the same that loading it tells."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from callpact import from_flowmcp
from callpact.errors import InvalidManifest, SourceRefused
from callpact.sources import Finding
from callpact.sources.flowmcp.catalogue import Catalogue, FileReport, Rules
from callpact.sources.flowmcp.read.catalogue_files import (
    CandidateFile,
    find_files,
    find_lists,
    read_text,
    unreadable,
)
from callpact.sources.flowmcp.read.literal import MAX_FILE_BYTES
from callpact.testing import StubTransport

MAIN = """\
export const main = {
    namespace: 'weather', name: 'Weather', description: 'Weather.', version: '4.0.0',
    root: 'https://api.example.com',LISTS
    tools: {
        getCity: {
            method: 'GET', path: '/cities', description: 'A city.',
            parameters: [ {
                position: { key: 'city', value: '{{USER_PARAM}}', location: 'query' },
                z: { primitive: 'PRIMITIVE', options: [] }
            } ],
            tests: [ { _description: 'A capital', city: 'BE' } ]
        }
    }
}
"""
PLAIN = MAIN.replace("LISTS", "").replace("PRIMITIVE", "string()")
LISTED = MAIN.replace("LISTS", " sharedLists: [ { ref: 'cities', version: '1.0.0' } ],").replace(
    "PRIMITIVE", "enum({{cities:code}})"
)
LIST = """\
export const list = {
    meta: {
        name: 'cities', version: '1.0.0', description: 'Cities.',
        fields: [ { key: 'code', type: 'string', description: 'Short name.' } ]
    },
    entries: [ { code: 'BE' } ]
}
"""
BAD_LIST = LIST.replace("'BE'", "5")


def lay_out(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def report_all(paths, rules=None):
    candidates = find_files(paths)
    catalogue = Catalogue(candidates, lambda _: rules or Rules())
    return [*map(catalogue.check, candidates), *catalogue.unseen()]


def errors_of(findings):
    return {
        (os.path.realpath(found.place), found.code, found.line, found.column)
        for found in findings
        if found.severity == "error"
    }


@pytest.mark.parametrize(
    ("files", "root"),
    [
        ({"cat/W.mjs": PLAIN}, "cat"),
        ({"cat/W.mjs": LISTED}, "cat"),
        ({"cat/_lists/c.mjs": LIST, "cat/W.mjs": LISTED}, "cat"),
        ({"cat/_lists/c.mjs": LIST, "cat/a/b/c/d/W.mjs": LISTED}, "cat"),
        ({"cat/_lists/c.mjs": LIST, "cat/a/b/W.mjs": LISTED}, "cat/a/b/W.mjs"),
        ({"cat/_lists/c.mjs": LIST, "cat/a/b/c/W.mjs": LISTED}, "cat/a/b/c/W.mjs"),
        ({"cat/_lists/c.mjs": LIST, "cat/a/b/c/d/e/W.mjs": LISTED}, "cat/a/b/c/d/e/W.mjs"),
        ({"cat/_lists/c.mjs": LIST, "cat/a/b/c/W.mjs": LISTED}, "cat/a/b/c"),
        ({"cat/_lists/c.mjs": LIST, "cat/a/b/c/d/W.mjs": LISTED}, "cat/a/b/c/d"),
        ({"cat/sub/_shared/c.mjs": LIST, "cat/other/W.mjs": LISTED}, "cat"),
        ({"cat/_lists/c.mjs": BAD_LIST, "cat/W.mjs": LISTED}, "cat"),
        ({"_lists/c.mjs": BAD_LIST, "cat/W.mjs": LISTED}, "cat"),
        ({"cat/_lists/c.mjs": b"\xff", "cat/W.mjs": LISTED}, "cat"),
        ({"cat/a/_lists/c.mjs": BAD_LIST, "cat/b/_lists/c.mjs": LIST, "cat/W.mjs": LISTED}, "cat"),
        ({"cat/W.mjs": b"\xff", "cat/X.mjs": "", "cat/Y.mjs": PLAIN}, "cat"),
        ({"cat/tests/W.mjs": "", "cat/node_modules/W.mjs": "", "cat/Y.mjs": PLAIN}, "cat"),
        ({"cat/_lists/tests/W.mjs": "", "cat/Y.mjs": PLAIN}, "cat"),
    ],
)
def test_checking_finds_the_errors_that_loading_finds(tmp_path, files, root):
    lay_out(tmp_path, files)
    told = errors_of(found for report in report_all([tmp_path / root]) for found in report.findings)
    loaded = from_flowmcp(tmp_path / root, transport=StubTransport(lambda _: {"status": 200}))
    assert told == errors_of(loaded.report)


def test_a_folder_of_lists_that_is_given_comes_first(tmp_path):
    lay_out(tmp_path, {"W.mjs": LISTED, "_lists/c.mjs": BAD_LIST, "mine/c.mjs": LIST})
    [schema] = report_all([tmp_path / "W.mjs"], Rules(lists=tmp_path / "mine"))[:1]
    assert schema.verdict == "warning"
    [schema] = report_all([tmp_path / "W.mjs"])[:1]
    assert schema.verdict == "error"


def test_a_report_is_as_bad_as_its_worst_finding():
    def report(*severities):
        return FileReport("f", tuple(Finding("f", severity, "") for severity in severities))

    assert report().verdict == "ok"
    assert report("info").verdict == "ok"
    assert report("warning", "info").verdict == "warning"
    assert report("warning", "error", "info").verdict == "error"


def test_a_report_tells_the_hash_of_what_is_there(tmp_path):
    # The vector of the digest, with a hash that is wrong: `schemaHash` itself is not hashed.
    lay_out(
        tmp_path,
        {
            "Demo.mjs": "export const main = { namespace: 'demo', name: 'Demo', version: '4.0.0', "
            "schemaVersion: '1.0.0', schemaHash: '00000000', root: 'https://api.example.com', "
            "tools: {} }"
        },
    )
    [report] = report_all([tmp_path])
    assert "VAL084" in {found.code for found in report.findings}
    assert report.hash == "cd2731b9"


def test_what_is_no_text_is_not_told_as_a_name(tmp_path):
    lay_out(tmp_path, {"W.mjs": "export const main = { namespace: 5, name: [], tools: 'x' }"})
    [report] = report_all([tmp_path])
    assert (report.namespace, report.name, report.tools) == (None, None, ())


def test_a_folder_that_cannot_be_read_is_told_and_the_others_are_checked(tmp_path):
    trouble = unreadable(tmp_path, InvalidManifest("the folder cannot be read: Permission denied"))
    candidate = CandidateFile(tmp_path, tmp_path, trouble)
    report = Catalogue([candidate], lambda _: Rules()).check(candidate)
    assert report.verdict == "error"
    assert "Permission denied" in report.findings[0].message


@pytest.mark.parametrize("path", ["nosuch", "empty", "empty/x"])
def test_a_path_without_files_is_refused(tmp_path, path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceRefused):
        find_files([tmp_path / path])


def test_text_is_read_with_its_line_ends_and_its_mark(tmp_path):
    file = tmp_path / "a.mjs"
    file.write_bytes("\ufeffa\r\nb\rc\n".encode())
    assert read_text(file) == "\ufeffa\r\nb\rc\n"


def test_of_a_large_file_only_enough_is_read_to_see_that_it_is(tmp_path):
    file = tmp_path / "a.mjs"
    with file.open("wb") as sparse:
        sparse.truncate(10_000_000_000)
    assert len(read_text(file)) == MAX_FILE_BYTES + 1


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (b"\xff", 1, 1),
        (b"a\n\xc3\xbc\xff", 2, 2),
        (b"a\r\nb\xe2\x82", 2, 2),
        (b"\xed\xa0\x80", 1, 1),
    ],
)
def test_what_is_not_utf_8_is_told_with_its_place(tmp_path, data, line, column):
    file = tmp_path / "a.mjs"
    file.write_bytes(data)
    with pytest.raises(InvalidManifest) as caught:
        read_text(file)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_what_is_no_file_cannot_be_read(tmp_path):
    for path in (tmp_path, tmp_path / "nosuch", Path(os.devnull)):
        with pytest.raises(InvalidManifest, match="cannot be read"):
            read_text(path)


# --- what cannot be read, and what is no schema file ------------------------------------------


@pytest.fixture
def too_deep(tmp_path):
    """A catalogue with a folder that cannot be listed: its path is longer than any may be."""
    if os.mkdir not in os.supports_dir_fd:
        pytest.skip("Windows makes no folder beside another by its descriptor")
    lay_out(tmp_path, {"cat/W.mjs": PLAIN, "cat/Z.mjs": PLAIN.replace("weather", "other")})
    at = os.open(tmp_path / "cat", os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=at)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    yield tmp_path / "cat"
    shutil.rmtree(tmp_path / "cat")


def test_a_folder_that_cannot_be_listed_is_an_error_of_checking_and_of_loading(too_deep):
    reports = report_all([too_deep])
    loaded = from_flowmcp(too_deep, transport=StubTransport(lambda _: {"status": 200}))
    for findings in (loaded.report, [found for report in reports for found in report.findings]):
        [error] = [found for found in findings if found.severity == "error"]
        assert error.code == "VAL155"
        assert "the folder cannot be read" in error.message
        assert Path(error.place).name == "d" * 200
    assert [tool.id for tool in loaded] == ["weather.getCity", "other.getCity"]


def test_lists_that_cannot_be_listed_are_told(tmp_path):
    [found] = find_lists(tmp_path / "nosuch")
    with pytest.raises(InvalidManifest, match="the folder cannot be read"):
        found.read()


def test_a_file_that_two_names_lead_to_is_checked_and_loaded_once(tmp_path):
    lay_out(tmp_path, {"cat/b/W.mjs": PLAIN})
    (tmp_path / "cat" / "a.mjs").symlink_to(tmp_path / "cat" / "b" / "W.mjs")
    assert [Path(report.file).name for report in report_all([tmp_path / "cat"])] == ["a.mjs"]
    loaded = from_flowmcp(tmp_path / "cat", transport=StubTransport(lambda _: {"status": 200}))
    assert [tool.id for tool in loaded] == ["weather.getCity"]


@pytest.mark.parametrize("path", [".", "sub", "./sub/../sub"])
def test_files_are_found_by_paths_of_any_form(tmp_path, monkeypatch, path):
    lay_out(tmp_path, {"sub/W.mjs": PLAIN})
    (tmp_path / "sub" / "Link.mjs").symlink_to("W.mjs")
    monkeypatch.chdir(tmp_path)
    assert [found.path.name for found in find_files([Path(path)])] == ["Link.mjs"]


OTHERS = {
    "skill": ("export const skill = { name: 'a' }", "a skill"),
    "code": ("import { x } from './x.mjs'\nexport const skill = { content: x }", "a skill"),
    "prompt": ("export const prompt = { name: 'a' }", "a prompt"),
    "content": ("export const content = `Some text.`", "the text of a prompt"),
    "selection": ("export const selection = { name: 'a' }", "a selection"),
    "agent": ("export const agent = { name: 'a', tools: {} }", "an agent"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_schema_file_by_nature_is_no_error_of_its_catalogue(tmp_path, name):
    text, kind = OTHERS[name]
    lay_out(tmp_path, {"cat/W.mjs": PLAIN, f"cat/x/{name}.mjs": text})
    _, report = report_all([tmp_path / "cat"])
    loaded = from_flowmcp(tmp_path / "cat", transport=StubTransport(lambda _: {"status": 200}))
    assert report.verdict == "ok"
    for findings in (report.findings, loaded.report):
        [told] = [found for found in findings if Path(found.place).stem == name]
        assert (told.severity, told.code, told.line, told.column) == ("info", "VAL159", 1, 1)
        assert f"is {kind}, not a schema file" in told.message
    assert [tool.id for tool in loaded] == ["weather.getCity"]


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_schema_file_is_an_error_where_it_is_named(tmp_path, name):
    lay_out(tmp_path, {f"{name}.mjs": OTHERS[name][0]})
    path = tmp_path / f"{name}.mjs"
    [report] = report_all([path])
    loaded = from_flowmcp(path, transport=StubTransport(lambda _: {"status": 200}))
    for findings in (report.findings, loaded.report):
        assert "VAL001" in {found.code for found in findings if found.severity == "error"}


@pytest.mark.parametrize(
    "text",
    [
        "export const main = f()\nexport const skill = {}",
        "export const schema = { flowMCP: '1.2.0' }\nexport const prompt = {}",
        "// export const skill = {}",
        "export const text = 'export const skill = {}'",
    ],
)
def test_a_broken_schema_file_stays_an_error(tmp_path, text):
    lay_out(tmp_path, {"W.mjs": text})
    [report] = report_all([tmp_path])
    assert report.verdict == "error"


# --- hooks ----------------------------------------------------------------------------------

HOOKED = f"""{PLAIN}export const handlers = () => ({{
    getCity: {{ preRequest: async ( {{ struct }} ) => {{ await fetch( struct.url ) ; return {{ struct }} }} }},
    getTown: {{}}
}})
"""


def test_hooks_are_looked_at_when_a_file_is_checked_not_when_it_is_loaded(tmp_path):
    lay_out(tmp_path, {"W.mjs": HOOKED})
    (report,) = report_all([tmp_path])
    line = PLAIN.count("\n") + 2
    seen = [(f.code, f.severity, f.line) for f in report.findings if (f.line or 0) >= line]
    assert seen == [
        ("SEC100", "error", line),
        ("SEC101", "warning", line),
        ("VAL005", "warning", line + 1),
    ]
    assert report.verdict == "error"
    assert report.tools == ("getCity",)
    loaded = from_flowmcp(tmp_path, transport=StubTransport(lambda _: {}))
    assert [tool.name for tool in loaded] == ["getCity"]
    assert not {"SEC100", "SEC101", "VAL005"} & {found.code for found in loaded.report}
