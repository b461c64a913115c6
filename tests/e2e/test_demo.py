"""`make demo`, as far as it needs no make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_one_round_of_the_demo_shows_every_step_in_its_order():
    done = subprocess.run(
        [sys.executable, "examples/shop/demo.py", "--once"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout
    places = [shown.index(f"\n{number}. ") for number in range(1, 7)]
    assert places == sorted(places)
    good, rejected, cast, over_mcp, two_processes, agent = places
    assert '"Darjeeling tea"' in shown[good:rejected]
    assert "schema_validation_failed" in shown[rejected:cast]
    assert "did you mean 'query'?" in shown[rejected:cast]
    assert "changed: /price was converted" in shown[cast:over_mcp]
    assert '"price": 12.5' in shown[cast:over_mcp]
    assert "isError=True" in shown[over_mcp:two_processes]
    assert "102.0 euros are 110.16 USD" in shown[two_processes:agent]
    assert shown[agent:].count(" µs ") == 6
    assert "Traceback" not in done.stderr
