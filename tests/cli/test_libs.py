"""`callpact libs`: what is refused, what is told, and one pack that is really built from npm."""

from __future__ import annotations

import json
import sys

import pytest

from callpact.cli.libs import add_libraries, list_libraries, remove_libraries
from callpact.errors import UsageError
from callpact.sandbox.engine import Engine
from callpact.sandbox.packs.bundler import (
    ESBUILD,
    NEEDS_NPM,
    LibraryRefused,
    WantedLibrary,
    Workshop,
    find_npm,
    parse,
    workshop,
)
from callpact.sandbox.packs.library import installed, keep

# Stands in for npm: "installs" what packages.json beside it describes, and records how it was run.
NPM = """#!{python}
import json, pathlib, stat, sys
here = pathlib.Path(__file__).parent
with open(here / "runs.jsonl", "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
spec = sys.argv[-1]
name = spec[:1] + spec[1:].partition("@")[0]
packages = json.loads((here / "packages.json").read_text())
if name not in packages:
    print("npm error code E404", file=sys.stderr)
    print("npm error 404 Not Found - GET somewhere/" + name, file=sys.stderr)
    print("npm error A complete log of this run can be found in: x", file=sys.stderr)
    sys.exit(1)
for path, text in packages[name].items():
    file = pathlib.Path("node_modules", path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
lock = {{"packages": {{"node_modules/" + name: {{"version": "1.2.3", "integrity": "sha512-abc"}}}}}}
pathlib.Path("package-lock.json").write_text(json.dumps(lock))
"""

# Stands in for esbuild: cannot resolve MISSING unless they are aliased, then writes SCRIPT.
ESBUILD_SCRIPT = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__).parent
aliased = {{arg.partition(":")[2].partition("=")[0] for arg in sys.argv if arg.startswith("--alias:")}}
missing = [name for name in {missing!r} if name not in aliased]
for name in missing:
    print(f'x [ERROR] Could not resolve "{{name}}"', file=sys.stderr)
for words in {errors!r}:
    print(f"x [ERROR] {{words}}", file=sys.stderr)
if missing or {errors!r}:
    sys.exit(1)
pathlib.Path("pack.js").write_text({script!r})
pathlib.Path("meta.json").write_text(json.dumps({{"inputs": dict.fromkeys({inputs!r}, {{}})}}))
"""

LIBRARY = {"tiny/package.json": "{}", "tiny/index.js": ""}
SCRIPT = "globalThis.__callpact_pack = { one: 1 }"


@pytest.fixture
def shop(tmp_path):
    """Makes a workshop whose npm has one library, `tiny`, and whose bundler gives `script`."""

    def make(library=LIBRARY, *, script=SCRIPT, missing=(), errors=(), inputs=("entry.mjs",)):
        bundler = ESBUILD_SCRIPT.format(
            python=sys.executable,
            script=script,
            missing=list(missing),
            errors=list(errors),
            inputs=list(inputs),
        )
        packages = {"esbuild": {"@esbuild/any/bin/esbuild": bundler}, "tiny": library}
        tools, place = tmp_path / "tools", tmp_path / "place"
        tools.mkdir()
        place.mkdir()
        (tools / "packages.json").write_text(json.dumps(packages), "utf-8")
        npm = tools / "npm"
        npm.write_text(NPM.format(python=sys.executable), "utf-8")
        npm.chmod(0o755)
        return Workshop(place, npm)

    return make


TINY = WantedLibrary("tiny")


# --- what is asked for ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("ethers", WantedLibrary("ethers", "")),
        ("ethers@6.17.0", WantedLibrary("ethers", "6.17.0")),
        ("@scope/name", WantedLibrary("@scope/name", "")),
        ("@scope/name@^1.2", WantedLibrary("@scope/name", "^1.2")),
        ("moment@latest", WantedLibrary("moment", "latest")),
    ],
)
def test_a_library_is_named_as_npm_names_it(spec, wanted):
    assert parse(spec) == wanted


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "@",
        "ethers@",
        "ethers@ 6",
        "../x",
        "./x",
        "/x",
        "file:../x",
        "git+ssh://x/y",
        "https://x/y.tgz",
        "github:a/b",
        "a/b",
        "x@npm:y",
        "x@file:../y",
        "x@../y",
        "--prefix",
        "-g",
    ],
)
def test_paths_addresses_and_options_are_no_libraries(spec):
    with pytest.raises(UsageError, match="named as on npm"):
        parse(spec)


@pytest.mark.parametrize("name", ["zlib", "crypto", "fs", "events", "buffer"])
def test_a_part_of_node_is_no_library(name):
    with pytest.raises(UsageError, match="part of Node"):
        parse(name)


def test_npm_runs_no_script_of_a_library(shop, tmp_path):
    shop().build(WantedLibrary("tiny", "^1"))
    runs = [json.loads(line) for line in (tmp_path / "tools/runs.jsonl").read_text().splitlines()]
    assert [run[-1] for run in runs] == [f"esbuild@{ESBUILD}", "tiny@^1"]
    for run in runs:
        assert run[0] == "install"
        assert "--ignore-scripts" in run
        assert run[-2] == "--"


# --- what is built --------------------------------------------------------------------------


def test_what_is_built_says_what_npm_gave(shop):
    built = shop().build(TINY)
    assert (built.version, built.integrity) == ("1.2.3", "sha512-abc")
    assert built.script == SCRIPT.encode()
    assert built.left_out == ()


def test_modules_that_npm_did_not_install_are_left_out_and_told(shop):
    assert shop(missing=["optional/thing"]).build(TINY).left_out == ("optional/thing",)


def test_parts_of_node_are_there_without_a_word(shop):
    built = shop(missing=["crypto", "node:zlib", "node:newer"]).build(TINY)
    assert built.left_out == ()


def test_a_missing_file_of_its_own_refuses_a_library(shop):
    with pytest.raises(LibraryRefused, match=r"tiny cannot be bundled.*\./lost"):
        shop(missing=["./lost.js"]).build(TINY)


def test_what_npm_does_not_have_is_told_in_its_words(shop):
    with pytest.raises(LibraryRefused) as refused:
        shop().build(WantedLibrary("other"))
    assert str(refused.value) == "npm cannot install other: Not Found - GET somewhere/other"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"tiny/package.json": "{}", "tiny/binding.gyp": ""}, "binding.gyp"),
        ({"tiny/package.json": '{"gypfile": true}'}, "gypfile"),
        ({"tiny/package.json": "{}", "tiny/prebuilds/any.node": ""}, "any.node"),
    ],
)
def test_a_native_library_is_refused_with_the_reason(shop, files, reason):
    with pytest.raises(LibraryRefused, match="native code") as refused:
        shop(files).build(TINY)
    assert reason in str(refused.value)


def test_a_bundle_that_needs_a_compiled_file_is_refused(shop):
    errors = ['No loader is configured for ".node" files: node_modules/x/x.node']
    with pytest.raises(LibraryRefused, match="native code"):
        shop(errors=errors).build(TINY)


def test_a_bundle_with_a_loader_of_compiled_files_is_refused(shop):
    inputs = ["entry.mjs", "node_modules/tiny/index.js", "node_modules/bindings/bindings.js"]
    with pytest.raises(LibraryRefused, match="through bindings"):
        shop(inputs=inputs).build(TINY)


@pytest.mark.parametrize(
    "path",
    ["../../home/x/.config/keys.json", "/etc/passwd", "node_modules/../../x.json", "other.js"],
)
def test_a_library_cannot_take_files_of_this_machine_into_its_pack(shop, path):
    with pytest.raises(LibraryRefused, match="not its own"):
        shop(inputs=["entry.mjs", path]).build(TINY)


def test_files_that_the_bundler_made_or_left_empty_are_fine(shop):
    inputs = ["<define:global>", "(disabled):node_modules/tiny/node.js", "stand-ins/1.cjs"]
    assert shop(inputs=inputs).build(TINY).script == SCRIPT.encode()


def test_a_library_that_the_sandbox_cannot_load_is_refused(shop):
    place = shop(script="document.title")
    with pytest.raises(LibraryRefused, match="does not run in the sandbox"):
        place.try_out(place.build(TINY))


def test_a_library_that_the_sandbox_can_load_passes(shop):
    place = shop()
    place.try_out(place.build(TINY))


# --- what is told ---------------------------------------------------------------------------


def kept(directory, name):
    script = SCRIPT.encode()
    return keep(directory, name, "1.2.3", script, esbuild="0", integrity="i", built="2026-01-01")


def test_packs_are_listed_as_lines_and_as_json(tmp_path, capsys):
    pack = kept(tmp_path, "@a/b")
    list_libraries(tmp_path, as_json=False)
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.split() == ["@a/b", "1.2.3", "1", "kB", pack.sha256[:12], "2026-01-01"]
    list_libraries(tmp_path, as_json=True)
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed == {
        "name": "@a/b",
        "version": "1.2.3",
        "sha256": pack.sha256,
        "size": len(SCRIPT),
        "file": str(pack.path),
        "esbuild": "0",
        "integrity": "i",
        "built": "2026-01-01",
    }


def test_an_empty_directory_is_told_with_what_to_do(tmp_path, capsys):
    list_libraries(tmp_path, as_json=False)
    told = capsys.readouterr()
    assert told.out == ""
    assert "callpact libs add" in told.err


def test_removing_tells_what_was_not_there(tmp_path, capsys):
    kept(tmp_path, "one")
    assert not remove_libraries(["one", "two"], tmp_path)
    told = capsys.readouterr().err
    assert "removed one 1.2.3" in told
    assert "no pack of 'two'" in told
    assert installed(tmp_path) == {}


def test_without_npm_one_sentence_says_what_to_install():
    with pytest.raises(UsageError) as refused, workshop(None):
        pass
    assert str(refused.value) == NEEDS_NPM


def test_npm_is_taken_from_the_path(tmp_path, monkeypatch):
    npm = tmp_path / "npm"
    npm.write_text("", "utf-8")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_npm() == npm


def test_names_are_checked_before_anything_is_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="named as on npm"):
        add_libraries(["ethers", "../x"], tmp_path / "libs")


# --- for real -------------------------------------------------------------------------------

XML_HOOK = """export const main = {};
export const handlers = ( { libraries } ) => ( { t: { postRequest: async ( { response } ) => {
    const { xml2js } = libraries
    return await xml2js.parseStringPromise( response )
} } } )
"""


def test_a_library_from_npm_runs_in_the_sandbox_and_a_native_one_is_refused(tmp_path, capsys):
    assert not add_libraries(["xml2js@0.6.2", "better-sqlite3@12.4.1"], tmp_path / "libs")
    told = capsys.readouterr().err
    assert "added xml2js 0.6.2" in told
    assert "better-sqlite3 is not JavaScript alone" in told
    packs = installed(tmp_path / "libs")
    assert [*packs] == ["xml2js"]
    assert packs["xml2js"].integrity.startswith("sha512-")
    engine = Engine(None)
    realm = engine.open(XML_HOOK, main="{}", lists="{}", packs=[*packs.values()])
    xml = '<a x="1"><b>hé</b><b>2</b></a>'
    step = realm.begin("t", "postRequest", json.dumps({"response": xml}))
    engine.close()
    assert json.loads(step.data) == {"a": {"$": {"x": "1"}, "b": ["hé", "2"]}}
