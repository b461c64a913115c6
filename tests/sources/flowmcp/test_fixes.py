"""Mending FlowMCP files: exactly what is to be written is written, and nothing else moves."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.schema import schema_hash
from callpact.sources import check_text
from callpact.sources.flowmcp.check.fixes import Fix, fix_file, fix_text
from callpact.sources.flowmcp.read.literal import read_exports

# The digest's vector: namespace demo, name Demo, version 4.0.0, schemaVersion 1.0.0, this root,
# no tools.
HASH = "cd2731b9"
ROOT = "https://api.example.com"


def main_of(text):
    return read_exports(text).values["main"]


def codes(text):
    return {found.code for found in check_text(text, file="Demo.mjs", lists={}).findings}


# --- where the new members go, and how they are written --------------------------------------

PLAIN = f"""\
// A file.
export const main = {{
    namespace: 'demo',
    name: 'Demo',
    version: '4.0.0',
    root: '{ROOT}',
    tools: {{}}
}}
"""


def test_missing_members_stand_behind_the_version():
    fix = fix_text(PLAIN)
    assert fix.text == PLAIN.replace(
        "'4.0.0',\n", f"'4.0.0',\n    schemaVersion: '1.0.0',\n    schemaHash: '{HASH}',\n"
    )
    assert fix.changes == ("`schemaVersion` is '1.0.0'", f"`schemaHash` is '{HASH}'")
    assert fix.refused == ""


def test_routes_become_tools_and_are_hashed_as_tools():
    fix = fix_text(PLAIN.replace("tools:", "routes:"))
    assert fix.text == fix_text(PLAIN).text
    assert fix.changes[0] == "`routes` is called `tools`"


def test_a_version_that_is_there_stays_and_the_hash_stands_behind_it():
    before = PLAIN.replace("root:", "schemaVersion: '2.3.4', // ours\n    root:")
    main = main_of(before)
    fix = fix_text(before)
    assert fix.text == before.replace(
        "// ours\n", f"// ours\n    schemaHash: '{schema_hash(main)}',\n"
    )


WITH_BOTH = fix_text(PLAIN).text


@pytest.mark.parametrize("text", [WITH_BOTH, fix_text(PLAIN.replace("tools:", "routes:")).text])
def test_a_file_that_needs_nothing_comes_back_as_it_is(text):
    assert fix_text(text) == Fix(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("'00000000'", f"'{HASH}'"),
        ('"00000000"', f'"{HASH}"'),
        ("`00000000`", f"`{HASH}`"),
        ("12345678", f"'{HASH}'"),
        ("null", f"'{HASH}'"),
        ("-5", f"'{HASH}'"),
        ("{ a: [ '}', 1 ] /* } */ }", f"'{HASH}'"),
        ("[ /* , */ ',' , 2 ]", f"'{HASH}'"),
        ("'00000000' /* old */", f"'{HASH}' /* old */"),
        ("/* here */ '00000000'", f"/* here */ '{HASH}'"),
    ],
)
def test_a_wrong_hash_is_replaced_where_it_stands(old, new):
    before = WITH_BOTH.replace(f"'{HASH}'", old)
    assert fix_text(before).text == WITH_BOTH.replace(f"'{HASH}'", new)


ADDED = f"schemaHash: '{HASH}'"
HEAD, TAIL = "namespace: 'demo', name: 'Demo', ", f"root: '{ROOT}', tools: {{}}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # One line, with and without blanks.
        (
            f"export const main = {{ {HEAD}version: '4.0.0', {TAIL} }};",
            f"export const main = {{ {HEAD}version: '4.0.0', schemaVersion: '1.0.0', {ADDED}, {TAIL} }};",
        ),
        (
            f"export const main={{namespace:'demo',name:'Demo',version:'4.0.0',root:'{ROOT}',tools:{{}}}}",
            f"export const main={{namespace:'demo',name:'Demo',version:'4.0.0',schemaVersion:'1.0.0',schemaHash:'{HASH}',root:'{ROOT}',tools:{{}}}}",
        ),
        # As JSON has it.
        (
            f'export const main = {{\n\t"namespace": "demo",\n\t"name": "Demo",\n\t"version": "4.0.0",\n\t"root": "{ROOT}",\n\t"tools": {{}}\n}}\n',
            f'export const main = {{\n\t"namespace": "demo",\n\t"name": "Demo",\n\t"version": "4.0.0",\n\t"schemaVersion": "1.0.0",\n\t"schemaHash": "{HASH}",\n\t"root": "{ROOT}",\n\t"tools": {{}}\n}}\n',
        ),
        # The version is the last member: without a comma, and with one.
        (
            f"export const main = {{\n  {HEAD}{TAIL},\n  version: '4.0.0'\n}}",
            f"export const main = {{\n  {HEAD}{TAIL},\n  version: '4.0.0',\n  schemaVersion: '1.0.0',\n  {ADDED}\n}}",
        ),
        (
            f"export const main = {{\n  {HEAD}{TAIL},\n  version: '4.0.0', // last\n}}",
            f"export const main = {{\n  {HEAD}{TAIL},\n  version: '4.0.0', // last\n  schemaVersion: '1.0.0',\n  {ADDED},\n}}",
        ),
        (
            f"export const main = {{ {HEAD}{TAIL}, version: '4.0.0' }}",
            f"export const main = {{ {HEAD}{TAIL}, version: '4.0.0', schemaVersion: '1.0.0', {ADDED} }}",
        ),
        # Commas first.
        (
            f"export const main = {{\n  {HEAD}{TAIL}\n, version: '4.0.0'\n}}",
            f"export const main = {{\n  {HEAD}{TAIL}\n, version: '4.0.0', schemaVersion: '1.0.0', {ADDED}\n}}",
        ),
        # Comments at the version stay with it.
        (
            f"export const main = {{\n  {HEAD}\n  /* a */ version /* b */ : /* c */ '4.0.0' /* d */, /* e */ // f\n  {TAIL}\n}}",
            f"export const main = {{\n  {HEAD}\n  /* a */ version /* b */ : /* c */ '4.0.0', schemaVersion: '1.0.0', {ADDED} /* d */, /* e */ // f\n  {TAIL}\n}}",
        ),
        (
            f"export const main = {{\n  {HEAD}\n  version: '4.0.0', /* of\n FlowMCP */ {TAIL}\n}}",
            f"export const main = {{\n  {HEAD}\n  version: '4.0.0', schemaVersion: '1.0.0', {ADDED}, /* of\n FlowMCP */ {TAIL}\n}}",
        ),
        # Other line ends, a byte order mark.
        (
            f"\ufeffexport const main = {{\r\n  {HEAD}\r\n  version: '4.0.0',\r\n  {TAIL}\r\n}}\r\n",
            f"\ufeffexport const main = {{\r\n  {HEAD}\r\n  version: '4.0.0',\r\n  schemaVersion: '1.0.0',\r\n  {ADDED},\r\n  {TAIL}\r\n}}\r\n",
        ),
        (
            f"export const main = {{\r\n  {HEAD}{TAIL},\r\n  version: '4.0.0'\r\n}}",
            f"export const main = {{\r\n  {HEAD}{TAIL},\r\n  version: '4.0.0',\r\n  schemaVersion: '1.0.0',\r\n  {ADDED}\r\n}}",
        ),
        # `main` is another name for something else, or has one.
        (
            f"export const schema = {{ {HEAD}version: '4.0.0', {TAIL} }}\nexport const main = schema\n",
            f"export const schema = {{ {HEAD}version: '4.0.0', schemaVersion: '1.0.0', {ADDED}, {TAIL} }}\nexport const main = schema\n",
        ),
        (
            f"export const main = {{ {HEAD}version: '4.0.0', {TAIL} }}\nexport const schema = main\n",
            f"export const main = {{ {HEAD}version: '4.0.0', schemaVersion: '1.0.0', {ADDED}, {TAIL} }}\nexport const schema = main\n",
        ),
    ],
)
def test_members_are_written_as_those_around_them_are(before, after):
    assert fix_text(before).text == after
    assert codes(after).isdisjoint({"VAL080", "VAL082", "VAL083", "VAL084"})


def test_main_inside_of_schema_is_mended_where_it_stands():
    before = (
        "export const schema = {\n  main: {\n    namespace: 'demo', name: 'Demo',\n"
        f"    version: '4.0.0',\n    root: '{ROOT}'\n  }},\n  'routes': {{}}\n}}\n"
    )
    assert fix_text(before).text == before.replace("'routes'", "'tools'").replace(
        "'4.0.0',\n", f"'4.0.0',\n    schemaVersion: '1.0.0',\n    {ADDED},\n"
    )


@pytest.mark.parametrize("key", ["routes", "'routes'", '"routes"', r"'r\u006futes'"])
def test_only_the_key_of_the_tools_is_renamed(key):
    before = WITH_BOTH.replace("tools: {}", f"{key}: {{ routes: {{ routes: 'routes' }} }}")
    before += "// routes\nexport const handlers = () => ({ routes: 'main routes' })\n"
    quote = key[0] if key[0] in "'\"" else ""
    after = fix_text(before).text
    assert f"{quote}tools{quote}: {{ routes: {{ routes: 'routes' }} }}" in after
    assert after.partition("// routes")[2] == before.partition("// routes")[2]


def test_without_a_version_the_members_stand_behind_the_name():
    fix = fix_text("export const main = {\n  name: 'Demo',\n  tools: {}\n}\n")
    main = main_of(fix.text)
    assert list(main) == ["name", "schemaVersion", "schemaHash", "tools"]
    assert main["schemaHash"] == schema_hash(
        {"name": "Demo", "schemaVersion": "1.0.0", "tools": {}}
    )


@pytest.mark.parametrize(
    ("before", "keys"),
    [
        ("export const main = { 'a/b~c': 1, z: 2 }", ["a/b~c", "schemaVersion", "schemaHash", "z"]),
        ("export const main = {}", ["schemaVersion", "schemaHash"]),
        ("export const main = { /* nothing */ }", ["schemaVersion", "schemaHash"]),
        ("export const main = { 7: 1 }", ["7", "schemaVersion", "schemaHash"]),
    ],
)
def test_any_object_can_be_mended(before, keys):
    fix = fix_text(before)
    assert list(main_of(fix.text)) == keys
    assert fix_text(fix.text) == Fix(fix.text)


# --- what is left alone ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JavaScript",
        PLAIN.replace("'demo'", "name()"),
        PLAIN.replace("tools: {}", "tools: { a: new Date() }"),
        "export const main = [ 1 ]",
        "export const list = { meta: {}, entries: [] }",
        "import fs from 'fs'\n" + PLAIN,
        PLAIN + " " * 600_000,
    ],
)
def test_what_cannot_be_read_as_data_is_left_alone(text):
    assert fix_text(text) == Fix(text)


@pytest.mark.parametrize("version", ["1.2.0", "2.0.0"])
def test_old_formats_are_left_alone_and_told(version):
    before = PLAIN.replace("4.0.0", version).replace("tools", "routes")
    fix = fix_text(before)
    assert (fix.text, fix.changes) == (before, ())
    assert f"FlowMCP {version[0]}" in fix.refused


def test_tools_and_routes_together_are_not_for_us_to_decide():
    before = PLAIN.replace("tools: {}", "tools: {}, routes: {}")
    main = main_of(fix_text(before).text)
    assert (main["tools"], main["routes"]) == ({}, {})


def test_routes_that_a_hook_reads_are_left_alone_and_told():
    before = PLAIN.replace("tools:", "routes:") + "export const handlers = () => main.routes\n"
    fix = fix_text(before)
    assert "routes" in main_of(fix.text)
    assert "main.routes" in fix.refused
    # In a comment, or of another object, it says nothing about `main`.
    for tail in ("() => 1 // main.routes\n", "({ data }) => data.main.routes\n"):
        fix = fix_text(PLAIN.replace("tools:", "routes:") + f"export const handlers = {tail}")
        assert "tools" in main_of(fix.text)
        assert fix.refused == ""


def test_a_key_that_stands_twice_is_not_edited():
    before = PLAIN.replace("tools: {}", "routes: { a: 1 }, routes: {}")
    fix = fix_text(before)
    assert (fix.text, fix.changes) == (before, ())
    assert "twice" in fix.refused


def test_of_two_hashes_the_one_that_counts_is_replaced():
    before = WITH_BOTH.replace(f"'{HASH}'", "'11111111', schemaHash: '22222222'")
    assert fix_text(before).text == before.replace("22222222", HASH)


# --- laws ------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
KEYS = TEXTS.filter(lambda key: key not in {"__proto__", "schemaHash", "schemaVersion", "routes"})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*\Z", re.ASCII)


@st.composite
def sources(draw):
    """A manifest, and a text that says it in some style."""
    main = draw(st.dictionaries(KEYS, VALUES, max_size=4))
    main |= draw(st.sampled_from([{}, {"version": "4.0.0"}, {"version": 4}]))
    if draw(st.booleans()):
        main["schemaVersion"] = draw(VALUES)
    if draw(st.booleans()):
        main["schemaHash"] = draw(VALUES | st.just(schema_hash(main)))
    if draw(st.booleans()) and "tools" not in main:
        main["routes"] = draw(VALUES)
    main = dict(draw(st.permutations(list(main.items()))))
    quote = draw(st.sampled_from("'\""))
    gap = st.sampled_from(["", " ", "\n", "\n    ", "\r\n\t", " /* , } */ ", " // , } '\n"])
    comma = draw(st.sampled_from([",", ", ", " ,", ",\n  ", "\n,", ",\r\n    ", ", // next\n  "]))

    def write(value):
        match value:
            case str():
                escaped = json.dumps(value, ensure_ascii=False)[1:-1]
                return (
                    f'"{escaped}"'
                    if quote == '"'
                    else f"'{escaped.replace(chr(39), chr(92) + chr(39))}'"
                )
            case list():
                return "[" + comma.join(map(write, value)) + draw(gap) + "]"
            case dict():
                members = (
                    f"{write_key(key)}:{draw(gap)}{write(item)}" for key, item in value.items()
                )
                trailing = "," if value and draw(st.booleans()) else ""
                return "{" + draw(gap) + comma.join(members) + trailing + draw(gap) + "}"
            case _:
                return json.dumps(value)

    def write_key(key):
        return key if IDENTIFIER.match(key) and draw(st.booleans()) else write(key)

    tail = draw(st.sampled_from(["", ";\n", "\nexport const handlers = () => ({ a: 1 })\n"]))
    return main, f"export const main ={draw(gap)}{write(main)}{tail}"


@given(sources())
def test_the_data_is_what_it_was_and_exactly_the_fields_that_were_asked_for(source):
    main, text = source
    assert main_of(text) == main
    fix = fix_text(text)
    expected = {
        "tools" if key == "routes" and "tools" not in main else key: main[key] for key in main
    }
    expected.setdefault("schemaVersion", "1.0.0")
    expected["schemaHash"] = schema_hash(expected)
    assert main_of(fix.text) == expected
    assert (fix.text == text) == (not fix.changes) == (expected == main)
    assert fix_text(fix.text) == Fix(fix.text)
    assert codes(fix.text).isdisjoint({"VAL080", "VAL082", "VAL083", "VAL084"})


def alike(one, other):
    """How many characters two texts have in common at their beginning."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@given(sources().filter(lambda source: "routes" not in source[0]))
def test_every_other_character_stays_where_it_is(source):
    main, text = source
    fixed = fix_text(text).text
    if "schemaHash" in main:
        # The value may be replaced: what stands before its key and behind the object stays.
        text, fixed = (re.split(r"schemaHash", value, maxsplit=1)[0] for value in (text, fixed))
    before = alike(text, fixed)
    behind = alike(text[before:][::-1], fixed[before:][::-1])
    assert before + behind == len(text)  # Something was put in, nothing was taken out.


@given(sources().filter(lambda source: "schemaHash" in source[0] and "routes" in source[0]))
def test_code_and_comments_behind_the_data_stay_as_they_are(source):
    _, text = source
    tail = "\n/* routes: */ export const handlers = () => ({ schemaHash: 1 }) // routes\n"
    text = re.sub(r"(;\n|\nexport const handlers.*\n)\Z", "", text) + tail
    assert fix_text(text).text.endswith(tail)


# --- files -----------------------------------------------------------------------------------


def test_a_file_is_replaced_with_its_mode_and_nothing_is_left_behind(tmp_path):
    file = tmp_path / "Demo.mjs"
    file.write_bytes(PLAIN.replace("\n", "\r\n").encode())
    file.chmod(0o640)
    fix = fix_file(file)
    assert fix.changes
    assert file.read_bytes() == WITH_BOTH.replace("\n", "\r\n").encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_needs_nothing_is_not_written(tmp_path):
    file = tmp_path / "Demo.mjs"
    file.write_text(WITH_BOTH, "utf-8")
    os.utime(file, ns=(1, 1))
    before = file.stat()
    assert fix_file(file) == Fix(WITH_BOTH)
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == (1, before.st_ino)


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_behind_a_link_the_file_is_mended_and_the_link_stays(tmp_path):
    file, link = tmp_path / "real" / "Demo.mjs", tmp_path / "Link.mjs"
    file.parent.mkdir()
    file.write_text(PLAIN, "utf-8")
    link.symlink_to(file)
    fix_file(link)
    assert link.is_symlink()
    assert file.read_text("utf-8") == WITH_BOTH
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("data", [b"\xff" + PLAIN.encode(), b"", None])
def test_a_file_that_cannot_be_read_is_left_alone(tmp_path, data):
    file = tmp_path / "Demo.mjs"
    if data is not None:
        file.write_bytes(data)
    assert fix_file(file).changes == ()
    assert data is None or file.read_bytes() == data


FULL_DISK = """
import resource, sys
from pathlib import Path
from callpact.sources.flowmcp.check.fixes import NotWritten, fix_file
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
try:
    fix_file(Path(sys.argv[1]))
except NotWritten as error:
    print(error)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit for the size of files")
def test_if_there_is_no_room_the_file_is_as_it_was_and_nothing_is_left_behind(tmp_path):
    file = tmp_path / "Demo.mjs"
    file.write_text(PLAIN, "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith(f"{file} cannot be written: ")
    assert file.read_text("utf-8") == PLAIN
    assert list(tmp_path.iterdir()) == [file]
