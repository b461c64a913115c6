"""Output written straight to a file descriptor: it reaches standard error as it is, unmasked.

`test_serve_logs.py` has the output that passes through Python's streams, which is masked.
"""

from __future__ import annotations

import signal
import subprocess

import pytest

import raw

SECRET = "0123456789abcdef-key"
TOOLS = f"""
import ctypes, os, subprocess, sys
from callpact import tool

@tool
def speak() -> None:
    "Write past the streams of Python."
    os.write(1, b"written {SECRET}\\n")
    os.write(2, b"reported {SECRET}\\n")
    library = ctypes.CDLL(None)
    library.puts(b"put {SECRET}")
    library.fflush(None)
    child = "import sys; print('child {SECRET}'); print('failed {SECRET}', file=sys.stderr)"
    subprocess.run([sys.executable, "-c", child], check=True)
    print("printed {SECRET}", flush=True)
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_output_past_the_streams_of_python_reaches_standard_error_unmasked(tmp_path, form):
    (tmp_path / "t.py").write_text(TOOLS, "utf-8")
    keys = tmp_path / "keys.env"
    keys.write_text(f"KEY={SECRET}\n", "utf-8")
    keys.chmod(0o600)
    config = 'secrets = "keys.env"\n[sources.t]\nref = "python:t.py"\n'
    (tmp_path / "callpact.toml").write_text(config, "utf-8")
    args = ["--log-format", form]
    with raw.Served(args=args, cwd=tmp_path, stdout=subprocess.PIPE) as served:
        with served.connect() as line:
            line.send(raw.called("t_speak"))
            assert not line.read().result["isError"]
        assert served.end(signal.SIGTERM) == 0
        with served.process.stdout as output:
            assert output.read() == ""
    told = {line for line in served.lines if SECRET in line}
    assert told == {
        f"{word} {SECRET}" for word in ("written", "reported", "put", "child", "failed")
    }
    assert any("printed ***" in line for line in served.lines)
