"""The example of an agent under contract tells its story and checks it."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "refunds" / "main.py"


def test_the_story_of_the_refunds_ends_well():
    done = subprocess.run(
        [sys.executable, "-X", "utf8", str(EXAMPLE)],
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    corrected = "Decision(status='refund', amount=40.0, reason='It came nine days late.')"
    assert "  not accepted at /amount, asked again" in done.stdout
    assert corrected in done.stdout
    assert "as it is: json-parse" in done.stdout
    *_, last = done.stdout.splitlines()
    assert last.startswith("three answers that are not JSON: Decision(status='ask-a-human'")
