"""Local modules that are imported anew once their files have changed."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest

import callpact
from callpact.sources.python.importer import anew

LONG_AGO = 1_600_000_000


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder that Python imports from; what came from it is gone again after the test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("im_"):
            del sys.modules[name]


def write(folder, name, text, at=LONG_AGO):
    """A file that was written at a certain second; long ago, so that nobody doubts what was read."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    os.utime(path, (at, at))
    return path


def attempted(project, name="im_main"):
    with anew([project]) as attempt:
        importlib.import_module(name)
        attempt.module = name
    return attempt


def load(project, name="im_main"):
    return sys.modules[attempted(project, name).module]


def names(files):
    return {Path(file).name for file in files}


def test_what_did_not_change_is_not_run_again(project):
    write(project, "im_main.py", "import im_helper\n")
    write(project, "im_helper.py", "STATE = []\n")
    first = load(project)
    first.im_helper.STATE.append(1)
    assert load(project) is first
    assert sys.modules["im_helper"].STATE == [1]


def test_what_changed_is_run_again_and_what_it_imports_keeps_its_state(project):
    write(project, "im_main.py", "import im_helper\nVALUE = 1\n")
    write(project, "im_helper.py", "STATE = []\n")
    first = load(project)
    first.im_helper.STATE.append(1)
    write(project, "im_main.py", "import im_helper\nVALUE = 2\n")
    second = load(project)
    assert (first.VALUE, second.VALUE) == (1, 2)
    assert second.im_helper is first.im_helper


def test_what_imports_something_that_changed_is_run_again_however_far_away(project):
    write(project, "im_main.py", "from im_middle import VALUE\n")
    write(project, "im_middle.py", "def late():\n    import im_aside\nfrom im_deep import VALUE\n")
    write(project, "im_deep.py", "VALUE = 1\n")
    assert load(project).VALUE == 1
    write(project, "im_deep.py", "VALUE = 2\n")
    assert load(project).VALUE == 2


def test_a_change_of_the_same_size_in_the_same_second_is_seen(project, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write(project, "im_main.py", "VALUE = 1\n")
    assert load(project).VALUE == 1
    write(project, "im_main.py", "VALUE = 2\n")
    assert load(project).VALUE == 2


def test_another_process_sees_a_change_of_the_same_size_in_the_same_second(project):
    tool = "from callpact import tool\n@tool(namespace='t')\nasync def n() -> int:\n    return {}\n"
    command = [sys.executable, "-m", "callpact", "call", "-s", "im_main.py", "t.n"]
    soon = time.time_ns() + 60_000_000_000  # As if written just before it is imported.
    for value in (1, 2):
        write(project, "im_main.py", tool.format(value))
        os.utime(project / "im_main.py", ns=(soon, soon))
        done = subprocess.run(
            [*command, "--audit", "off"],
            cwd=project,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout == f"{value}\n"


def test_packages_and_relative_imports_are_followed(project):
    write(project, "im_pack/__init__.py", "from .words import HELLO\n")
    write(project, "im_pack/words.py", "HELLO = 'hi'\n")
    write(project, "im_pack/desk.py", "from . import words\nfrom .deep.down import DEPTH\n")
    write(project, "im_pack/deep/__init__.py", "")
    write(project, "im_pack/deep/down.py", "from ..words import HELLO\nDEPTH = HELLO\n")
    assert load(project, "im_pack.desk").DEPTH == "hi"
    write(project, "im_pack/words.py", "HELLO = 'ho'\n")
    desk = load(project, "im_pack.desk")
    assert (desk.DEPTH, desk.words.HELLO, sys.modules["im_pack"].HELLO) == ("ho", "ho", "ho")
    assert sys.modules["im_pack"].words is desk.words


def test_a_module_behind_an_unchanged_package_is_not_taken_from_it(project):
    write(project, "im_pack/__init__.py", "")
    write(project, "im_pack/words.py", "HELLO = 'hi'\n")
    write(project, "im_main.py", "from im_pack import words\n")
    assert load(project).words.HELLO == "hi"
    write(project, "im_pack/words.py", "HELLO = 'ho'\n")
    assert load(project).words.HELLO == "ho"


def test_a_package_that_is_run_again_has_its_modules_anew(project):
    write(project, "im_pack/__init__.py", "MORE = 1\n")
    write(project, "im_pack/desk.py", "VALUE = 1\n")
    write(project, "im_main.py", "import im_pack.desk\nSUM = im_pack.desk.VALUE + im_pack.MORE\n")
    assert load(project).SUM == 2
    write(project, "im_pack/__init__.py", "MORE = 2\n")
    assert load(project).SUM == 3


def test_our_own_modules_are_never_run_again(project, monkeypatch):
    monkeypatch.setattr(callpact, "__path__", [*callpact.__path__, str(project / "ours")])
    write(project, "ours/im_part.py", "")
    write(project, "im_main.py", "import callpact.im_part\n")
    try:
        assert names(attempted(project).files) == {"im_main.py"}
    finally:
        del sys.modules["callpact.im_part"], callpact.im_part


@pytest.mark.parametrize(
    "broken", ["1 / 0\n", "def broken(:\n", "import im_nowhere\n", "raise SystemExit\n"]
)
def test_if_it_fails_all_modules_are_those_from_before(project, broken):
    write(project, "im_pack/__init__.py", "")
    write(project, "im_pack/words.py", "VALUE = 1\n")
    write(project, "im_main.py", "from im_pack import words\n")
    first = load(project)
    write(project, "im_pack/words.py", "VALUE = 2\n")
    write(project, "im_new.py", "")
    write(project, "im_main.py", f"from im_pack import words\nimport im_new\n{broken}")
    with pytest.raises((Exception, SystemExit)):
        load(project)
    assert sys.modules["im_main"] is first
    assert sys.modules["im_pack.words"] is first.words is sys.modules["im_pack"].words
    assert "im_new" not in sys.modules
    write(project, "im_main.py", "from im_pack import words\n")
    assert load(project).words.VALUE == 2


def test_a_failure_names_the_files_that_may_mend_it(project):
    write(project, "im_main.py", "import im_first\nimport im_second\n")
    write(project, "im_first.py", "")
    write(project, "im_second.py", "def broken(:\n")
    with pytest.raises(SyntaxError), anew([project]) as attempt:
        importlib.import_module("im_main")
    assert names(attempt.files) == {"im_main.py", "im_first.py", "im_second.py"}


def test_the_files_of_a_module_are_those_of_all_local_modules_that_it_is_made_of(project):
    write(
        project,
        "im_main.py",
        "import json, pydantic\nimport im_a\nimport importlib\nimportlib.import_module('im_' + 'c')\n",
    )
    write(project, "im_a.py", "def late():\n    import im_b\n")
    write(project, "im_b.py", "")
    write(project, "im_c.py", "")
    write(project, "im_alone.py", "")
    assert names(attempted(project).files) == {"im_main.py", "im_a.py", "im_c.py"}
    load(project, "im_b")
    assert "im_b.py" in names(attempted(project).files)


def test_modules_that_are_installed_are_left_alone(project):
    write(project, "lib/site-packages/im_installed.py", "VALUE = 1\n")
    write(
        project,
        "im_main.py",
        "import sys\nsys.path.insert(0, __file__.replace('im_main.py', 'lib/site-packages'))\n"
        "import im_installed\n",
    )
    first = load(project).im_installed
    write(project, "lib/site-packages/im_installed.py", "VALUE = 2\n")
    write(project, "im_main.py", "import im_installed\nCHANGED = 1\n")
    second = load(project)
    assert second.CHANGED
    assert second.im_installed is first


def test_a_module_that_somebody_else_imported_is_left_alone(project):
    write(project, "im_theirs.py", "VALUE = 1\n")
    theirs = importlib.import_module("im_theirs")
    write(project, "im_main.py", "import im_theirs\n")
    load(project)
    write(project, "im_theirs.py", "VALUE = 2\n")
    assert load(project).im_theirs is theirs
    assert theirs.VALUE == 1


def test_what_is_written_while_it_is_read_is_read_again(project):
    path = write(project, "im_main.py", "VALUE = 1\n")
    with anew([project]) as attempt:
        module = importlib.import_module("im_main")
        path.write_text("VALUE = 2\n", "utf-8")
        attempt.module = "im_main"
    assert module.VALUE == 1
    assert load(project).VALUE == 2


def test_old_versions_do_not_pile_up(project):
    alive = []
    for number in range(20):
        write(project, "im_main.py", f"import im_helper\nVALUE = {number}\n")
        write(project, "im_helper.py", f"class Thing:\n    number = {number}\n")
        module = load(project)
        alive += [weakref.ref(module), weakref.ref(module.im_helper.Thing)]
    del module
    gc.collect()
    assert [ref() for ref in alive[:-2] if ref() is not None] == []
    assert alive[-1]().number == 19
