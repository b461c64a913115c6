"""Two judges of HTTP endpoints by others, run against what callpact serves: `make endpoints`.

openapi-spec-validator reads the OpenAPI document of each server, and schemathesis calls all that it
describes, rightly and wrongly; it must find nothing. They have an environment of their own, built on
first use from requirements/endpoints.txt, because schemathesis caps jsonschema-rs. Exit status: 0 if
nothing failed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-endpoints"
PINS = ROOT / "requirements" / "endpoints.txt"
TOKEN = "endpoints-0123456789abcdef"  # noqa: S105 - of a server that lives for seconds
EXAMPLES = "40"
"""Requests of each kind for one endpoint."""
PATIENCE = 180
"""Seconds for any one program; it is ended then."""
_TOKENS = """
[sources.endpoints]
ref = "python:{file}"

[serve.tokens.judge]
secret = "JUDGE"
"""
_CONFIG = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 422]
"""


def build() -> None:
    """Create the environment of the judges, unless an equal one is there."""
    digest = hashlib.sha256(PINS.read_bytes()).hexdigest()
    stamp = VENV / "built.stamp"
    if stamp.is_file() and stamp.read_text() == digest:
        return
    print(f"making the environment of the judges in {VENV.name} …", flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", str(VENV)],
        [*pip, "install", "--require-hashes", "-r", str(PINS)],
    ):
        subprocess.run(command, cwd=ROOT, check=True)
    stamp.write_text(digest)


@contextlib.contextmanager
def serving(folder: Path, *args: str) -> Iterator[str]:
    """Serve on a free port; yields the root address."""
    command = [sys.executable, "-m", "callpact", "serve", "--port", "0", "--audit", "off", *args]
    environment = {**os.environ, "JUDGE": TOKEN, "XDG_DATA_HOME": str(folder)}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stderr.readline() if process.stderr else ""
            found = re.search(r"http://[^/\s]+", line)
            if found is None:
                raise SystemExit(f"the server did not start: {line}")
            yield found[0]
        finally:
            process.kill()


def judge(
    name: str, address: str, folder: Path, headers: dict[str, str], *, refuses: bool = False
) -> bool:
    """Run both judges against one server; True if they found nothing.

    `refuses` if tools refuse some valid arguments with codes of their own.
    """
    print(f"\n-- {name}", flush=True)
    document = folder / "openapi.json"
    request = urllib.request.Request(f"{address}/openapi.json", headers=headers)  # noqa: S310 - http
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:  # noqa: S310 - as above
        document.write_bytes(response.read())
    (folder / "schemathesis.toml").write_text(_CONFIG if refuses else "")
    given = [part for pair in headers.items() for part in ("-H", ": ".join(pair))]
    schemathesis = [str(VENV / "bin" / "st"), "run", str(document), "--url", address, *given]
    schemathesis += ["--checks", "all", "--phases", "examples,coverage,fuzzing", "--no-color"]
    schemathesis += ["--max-examples", EXAMPLES]
    schemathesis += ["--generation-deterministic", "--warnings", "off"]
    commands = ([str(VENV / "bin" / "openapi-spec-validator"), str(document)], schemathesis)
    return all(
        subprocess.run(command, cwd=folder, timeout=PATIENCE, check=False).returncode == 0
        for command in commands
    )


def main() -> int:
    """Judge the endpoints of the tests, with and without tokens, and those of the demo."""
    build()
    tools = ROOT / "tests" / "serve" / "endpoints.py"
    shop = ROOT / "examples" / "shop" / "shop.py"
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        (folder / "callpact.toml").write_text(_TOKENS.format(file=tools))
        results: list[bool] = []
        for name, args, headers in (
            ("every shape of endpoint", ("-s", f"python:{tools}"), {}),
            ("the same behind tokens", (), bearer),
            ("examples/shop", ("-s", f"python:{shop}"), {}),
        ):
            with serving(folder, *args) as address:
                refuses = name == "examples/shop"
                results.append(judge(name, address, folder, headers, refuses=refuses))
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
