"""`make` on a machine that lacks something says what to install, and exits with 2."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def make(folder, python):
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "requirements").mkdir()
    for name in ("requirements/run.txt", "requirements/test.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    return subprocess.run(
        ["make", "demo", f"PYTHON={python}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def lacking(folder, word):
    """A Python that fails whatever mentions `word`, and is itself otherwise."""
    script = folder / "python"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *{word}*) exit 1;; esac\nexec {sys.executable} "$@"\n'
    )
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("word", "said"),
    [("ensurepip", "apt install python3-venv"), ("version_info", "Python 3.11 or newer")],
)
def test_what_is_missing_is_named_and_nothing_is_left_behind(tmp_path, word, said):
    done = make(tmp_path, lacking(tmp_path, word))
    assert done.returncode == 2
    assert said in done.stdout
    assert not (tmp_path / ".venv").exists()
