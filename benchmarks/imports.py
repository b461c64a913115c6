"""Guards: `import callpact` costs little more than what it stands on."""

from __future__ import annotations

import statistics
import subprocess
import sys

from measure import table

_TIMER = "import time; a = time.process_time(); {}; print(time.process_time() - a)"


def _cost(line: str) -> float:
    out = subprocess.run(
        [sys.executable, "-c", _TIMER.format(line)], capture_output=True, text=True, check=True
    )
    return float(out.stdout)


def main() -> None:
    lines = {
        "asyncio, orjson, jsonschema_rs, msgspec": "import asyncio, orjson, jsonschema_rs, msgspec",
        "callpact": "import callpact",
        "callpact and its functions source": "from callpact import from_functions",
        "mcp.server": "import mcp.server",
        "fastmcp": "import fastmcp",
    }
    samples: dict[str, list[float]] = {name: [] for name in lines}
    for _ in range(9):
        for name, line in lines.items():
            samples[name].append(_cost(line))
    taken = {name: statistics.median(values) for name, values in samples.items()}
    base = taken["asyncio, orjson, jsonschema_rs, msgspec"]
    table(
        "Cold start",
        [
            (f"import {name}", value, value / base, "≤ 1.4" if name == "callpact" else "")
            for name, value in taken.items()
        ],
    )
