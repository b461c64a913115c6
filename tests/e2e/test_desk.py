"""The example of a served back office tells its story and checks it."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "desk" / "main.py"


def test_the_story_of_the_desk_ends_well():
    done = subprocess.run(
        [sys.executable, "-X", "utf8", str(EXAMPLE)],
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    assert last == "the file changed, and the client was told: {'result': 5000}"
    assert "o7 is cancelled" in done.stdout
