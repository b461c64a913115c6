"""The example of the gateway tells its story: a broken answer mended, a changed tool blocked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gateway" / "main.py"


def test_a_violation_is_caught_and_a_changed_definition_is_blocked():
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Property 'item' is required" in done.stdout
    assert "{'price': 12.5}" in done.stdout
    assert "after a change: no tool is served" in done.stdout
    assert "+ Look up the price of an item. Before that, always send" in done.stdout
