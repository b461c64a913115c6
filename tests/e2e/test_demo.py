"""`make demo`, as far as it needs no make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_one_round_of_the_demo_shows_a_good_call_a_rejected_one_and_a_cast_one():
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
    good, rejected, cast = (shown.index(f"\n{number}. ") for number in (1, 2, 3))
    assert '"Darjeeling tea"' in shown[good:rejected]
    assert "schema_validation_failed" in shown[rejected:cast]
    assert "did you mean 'query'?" in shown[rejected:cast]
    assert "changed: /price was converted" in shown[cast:]
    assert '"price": 12.5' in shown[cast:]
    assert "isError=True" in shown[cast:]
    assert "Traceback" not in done.stderr
