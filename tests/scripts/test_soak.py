"""The script that makes very many calls of hooks, with a few of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "soak.py"


def run(code, *arguments):
    done = subprocess.run(
        [sys.executable, *code, *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_calls_of_all_sorts_are_made_and_nothing_of_them_is_left():
    status, told, wrong = run([str(SCRIPT)], "--calls", "1000")
    assert wrong == ""
    assert status == 0, told
    assert "Nothing grew." in told
    for outcome in ("answered", "Error", "SEC101", "OutputLimit", "TooManyEffects", "given up"):
        assert f" {outcome}" in told
    assert "tool_not_found" not in told


def test_what_grew_is_named():
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from soak import Held, _grown
few = Held(10, 50.0, 3, 9, 0, 2, 1, 100, 8.0)
many = Held(100, 90.0, 4, 12, 1, 2, 1, 100, 8.0)
print(_grown([few, few]), _grown([few, many]))
"""
    _, told, wrong = run(["-c", code], str(SCRIPT.parent))
    assert wrong == ""
    assert told.startswith("[] [")
    for part in (
        "threads grew from 3 to 4",
        "files grew from 9 to 12",
        "memory grew from 50 to 90",
    ):
        assert part in told
    assert "1 instances were never given back" in told
