"""The compiled guest on disk: used when it can be trusted, made anew when anything is odd."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import wasmtime

from callpact.errors import UsageError
from callpact.sandbox import HookLimits
from callpact.sandbox.engine import Engine
from callpact.sandbox.guest import wasm as module
from callpact.sandbox.guest.wasm import Guest, load_modules, make_engine, read_guest
from callpact.sandbox.private_files import keep_private, read_private
from callpact.sandbox.steps import Done, StepFailed

CHILD = """
import sys
from pathlib import Path
from callpact.sandbox.engine import Engine
engine = Engine(Path(sys.argv[1]))
realm = engine.open("export const main={}\\nexport const handlers=()=>({t:{h:()=>42}})", main="{}", lists="{}")
print(realm.begin("t", "h", "{}").data)
"""


@pytest.fixture
def compiled(hooks_cache):
    """The content of a good file."""
    Guest(hooks_cache)
    [file] = hooks_cache.glob("hooks-*.bin")
    return file


class Asked(Exception):
    """Raised where the guest would be compiled."""


def ask():
    raise Asked


def is_compiled(cache):
    """Whether the guest would have to be compiled; it is not, which takes a second."""
    try:
        load_modules(make_engine(), cache, ask)
    except Asked:
        return True
    return False


def copy_of(compiled, folder):
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / compiled.name
    file.write_bytes(compiled.read_bytes())
    file.chmod(0o600)
    return file


def test_a_good_file_is_used_and_nothing_is_compiled(compiled, tmp_path):
    copy_of(compiled, tmp_path / "cache")
    assert not is_compiled(tmp_path / "cache")


def test_a_good_file_on_a_file_system_whose_files_must_not_be_run_is_used(
    compiled, tmp_path, monkeypatch
):
    copy_of(compiled, tmp_path / "cache")

    def refuse(engine, path):
        raise wasmtime.WasmtimeError("not to be run")

    monkeypatch.setattr(wasmtime.Module, "deserialize_file", refuse)
    assert not is_compiled(tmp_path / "cache")


def test_the_file_and_its_directory_are_private(tmp_path):
    folder = tmp_path / "deep" / "cache"
    Guest(folder)
    [file] = folder.iterdir()  # and no temporary file is left
    if os.name == "posix":
        assert folder.stat().st_mode & 0o777 == 0o700
        assert file.stat().st_mode & 0o777 == 0o600
    assert module.GUEST_SHA256[:16] in file.name
    assert "50.0.1" in file.name


def test_nothing_there_is_compiled(tmp_path):
    assert is_compiled(tmp_path / "absent")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: content[:1000] + bytes([content[1000] ^ 1]) + content[1001:],
        lambda content: content[:-32] + bytes(32),
        lambda content: bytes(31),
        lambda content: b"not a module at all",
    ],
)
def test_a_damaged_file_is_compiled_anew(compiled, tmp_path, damage):
    file = copy_of(compiled, tmp_path / "cache")
    file.write_bytes(damage(file.read_bytes()))
    assert is_compiled(tmp_path / "cache")


def test_a_sound_file_that_wasmtime_refuses_is_compiled_anew(compiled, tmp_path):
    file = copy_of(compiled, tmp_path / "cache")
    keep_private(file, b"of another", b"build")
    assert read_private(file) == (b"of another", b"build")
    assert is_compiled(tmp_path / "cache")


posix = pytest.mark.skipif(
    os.name != "posix", reason="Windows has no owners and modes as POSIX has them"
)


@posix
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_may_write_is_not_trusted(compiled, tmp_path, mode):
    folder = copy_of(compiled, tmp_path / "cache").parent
    folder.chmod(mode)
    assert is_compiled(folder)


@posix
@pytest.mark.parametrize("mode", [0o660, 0o606])
def test_a_file_that_others_may_write_is_not_trusted(compiled, tmp_path, mode):
    file = copy_of(compiled, tmp_path / "cache")
    file.chmod(mode)
    assert is_compiled(file.parent)


@posix
def test_a_link_is_not_trusted(compiled, tmp_path):
    real = copy_of(compiled, tmp_path / "real")
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    (folder / real.name).symlink_to(real)
    linked = tmp_path / "linked"
    linked.symlink_to(real.parent)
    assert is_compiled(folder)
    assert is_compiled(linked)


@posix
def test_what_someone_else_owns_is_not_trusted(compiled, tmp_path, monkeypatch):
    file = copy_of(compiled, tmp_path / "cache")
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    assert is_compiled(file.parent)


@posix
def test_a_directory_that_cannot_be_written_costs_no_more_than_time(tmp_path):
    # A file where the directory should be: as unwritable for root as for anybody.
    blocked = tmp_path / "cache"
    blocked.write_text("", encoding="utf-8")
    Guest(blocked / "below")
    assert blocked.read_text(encoding="utf-8") == ""


def test_two_processes_at_once_both_work_and_leave_one_whole_file(tmp_path):
    folder = tmp_path / "cache"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    outputs = [child.communicate(timeout=120)[0].strip() for child in children]

    assert outputs == ["42", "42"]
    assert sorted(file.name.split("-")[0] for file in folder.iterdir()) == ["base", "hooks"]
    assert not is_compiled(folder)


def open_and_call(cache):
    engine = Engine(cache)
    realm = engine.open(
        "export const main={}\nexport const handlers=()=>({t:{h:(x)=>new URL(x.u).host}})",
        main="{}",
        lists="{}",
    )
    assert realm.begin("t", "h", '{"u":"https://example.com/x"}') == Done('"example.com"')
    engine.close()
    [file] = cache.glob("base-*.bin")
    return file


def test_the_state_before_any_file_is_kept_and_a_damaged_one_is_made_anew(compiled, tmp_path):
    cache = copy_of(compiled, tmp_path / "cache").parent
    file = open_and_call(cache)
    good = file.read_bytes()
    assert open_and_call(cache).read_bytes() == good

    for bad in (b"", good[:-1], good[:500_000] + bytes([good[500_000] ^ 1]) + good[500_001:]):
        file.write_bytes(bad)
        assert read_private(file) is None
        assert read_private(open_and_call(cache)) is not None
    keep_private(file, b"no description", b"")
    open_and_call(cache)
    assert read_private(file) != (b"no description", b"")


def test_states_of_other_limits_are_kept_apart(compiled, tmp_path):
    cache = copy_of(compiled, tmp_path / "cache").parent
    for effects in (1, 2):
        engine = Engine(cache, HookLimits(effects=effects))
        code = "export const main={}\nexport const handlers=()=>({t:{h:()=>{ for( let i = 0; i < 2; i++ ) fetch( 'https://a.example/' ); return 1 }}})"
        step = engine.open(code, main="{}", lists="{}").begin("t", "h", "{}")
        assert isinstance(step, StepFailed if effects == 1 else Done)
        engine.close()
    assert len(list(cache.glob("base-*.bin"))) == 2


def test_another_module_than_the_pinned_one_is_refused(monkeypatch):
    monkeypatch.setattr(module, "GUEST_SHA256", "0" * 64)
    with pytest.raises(UsageError):
        read_guest()


def test_an_absent_module_is_told_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setattr(module.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"callpact\[hooks\]"):
        read_guest()


def test_importing_hooks_loads_no_guest_and_runs_none_of_its_package():
    code = (
        "import sys, callpact.sandbox.engine, callpact.sandbox.pool\n"
        "assert 'quickjs_rs' not in sys.modules\n"
        "import threading; assert threading.active_count() == 1\n"
        "import callpact.cli.main\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    core = "import sys, callpact\nassert not [m for m in sys.modules if 'wasmtime' in m or 'callpact.sandbox' in m]"
    subprocess.run([sys.executable, "-c", core], check=True, timeout=60)
    assert (Path(module.__file__).parents[1] / "js" / "bootstrap.js").exists()
