"""Every sample of README and docs runs, and prints what stands under it.

A `python` block is run as a script; one that begins with `# name.py` is also written to that file,
and so are a `toml` block that begins with `# name.toml` and a `js` block that begins with
`// name.mjs`.
A `text` block after it is its output. In a `sh` block lines after `$ ` are run, and what follows
them is their output; a block without `$ ` is only read by people. A process whose id is in a file
`name.pid` is ended after the page.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENV = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def blocks(page):
    return BLOCK.findall(page.read_text("utf-8"))


def output(command, folder, **kwargs):
    return subprocess.run(
        command,
        cwd=folder,
        # Libraries that whoever runs the tests has built are not those of a new user.
        env={**ENV, "XDG_DATA_HOME": str(folder / ".data")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **kwargs,
    )


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    for path in tmp_path.glob("*.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(path.read_text("utf-8")), signal.SIGTERM)


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if any(kind in {"python", "sh"} for kind, _ in blocks(p))],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_every_sample_runs_and_prints_what_the_page_says(page, folder):
    found = blocks(page)
    for (kind, text), (next_kind, expected) in zip(found, [*found[1:], ("", "")], strict=True):
        if kind == "python":
            name = re.match(r"# (\w+\.py)\n", text)
            path = folder / (name[1] if name else "sample.py")
            path.write_text(text, "utf-8")
            done = output([sys.executable, str(path)], folder)
            assert done.returncode == 0, done.stderr
            if next_kind == "text":
                assert done.stdout == expected
        elif kind in {"toml", "js"} and (
            name := re.match(r"(?:#|//) ([\w.]+\.(?:toml|mjs))\n", text)
        ):
            (folder / name[1]).write_text(text, "utf-8")
        elif kind == "sh":
            for command, said in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                done = output(command, folder, shell=True, executable="/bin/bash")
                assert done.stdout == said, done.stderr


def test_every_link_between_pages_leads_somewhere():
    for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_first_screen_of_the_readme_holds_the_two_commands():
    first = (ROOT / "README.md").read_text("utf-8").splitlines()[:12]
    assert any("make demo" in line for line in first)
    assert any("make test" in line for line in first)
