"""Which files a catalogue has and what is told about each: the same that loading it tells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from callpact.errors import InvalidManifest, SourceRefused
from callpact.sources.flowmcp.catalogue import (
    Candidate,
    Catalogue,
    FileReport,
    Rules,
    find_files,
    read_text,
)
from callpact.sources.flowmcp.literal import MAX_FILE_BYTES
from callpact.sources.flowmcp.loading import from_flowmcp
from callpact.sources.loaded import Finding
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
    candidate = Candidate(tmp_path, tmp_path, "the folder cannot be read: Permission denied")
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
