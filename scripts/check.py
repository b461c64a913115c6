"""Everything `make test` checks, group by group, each with its time; all groups run, all are told.

Not a test itself. Groups can be named: `make test GROUPS="lint unit"`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
WORKERS = str(min(4, os.cpu_count() or 2))
PYTEST = [str(BIN / "python"), "-m", "pytest", "-q", "-n", WORKERS]

GROUPS: dict[str, list[list[str]]] = {
    "lint": [
        [str(BIN / "ruff"), "check", "--no-cache", "."],
        [str(BIN / "ruff"), "format", "--no-cache", "--check", "."],
    ],
    "imports": [[str(BIN / "lint-imports")]],
    "types": [[str(BIN / "pyright")]],
    "unit": [
        [
            *PYTEST,
            "tests",
            *(f"--ignore=tests/{name}" for name in ("contract", "property", "docs", "e2e")),
        ]
    ],
    "contract": [[*PYTEST, "tests/contract"]],
    "property": [[*PYTEST, "tests/property"]],
    "docs": [[*PYTEST, "tests/docs"]],
    "e2e": [[*PYTEST, "tests/e2e"]],
    "conformance": [[str(BIN / "python"), "scripts/conformance.py"]],
}


def main(names: list[str]) -> int:
    """Run the named groups, or all; 0 if every one of them passed."""
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        print(f"no such group: {', '.join(unknown)}; there are {', '.join(GROUPS)}")
        return 2
    results: list[tuple[str, float, bool]] = []
    for name in names or list(GROUPS):
        print(f"\n== {name}", flush=True)
        begun = time.monotonic()
        ok = all(
            subprocess.run(line, cwd=ROOT, check=False).returncode == 0 for line in GROUPS[name]
        )
        results.append((name, time.monotonic() - begun, ok))
    print("\n== groups")
    for name, seconds, ok in results:
        print(f"{name:>11} {seconds:7.1f} s  {'ok' if ok else 'FAILED'}")
    return 0 if all(ok for _, _, ok in results) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
