"""The reference says what the code says."""

import subprocess
import sys
import tomllib
from pathlib import Path

import callpact
from callpact.errors import CODES

ROOT = Path(__file__).resolve().parents[2]


def test_generated_pages_are_what_the_code_says():
    done = subprocess.run(
        [sys.executable, "scripts/reference.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_every_code_has_a_row():
    page = (ROOT / "docs/reference/codes.md").read_text("utf-8")
    for code in CODES:
        assert f"`{code}`" in page


def test_every_extra_is_named_in_the_readme():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    readme = (ROOT / "README.md").read_text("utf-8")
    for extra in extras:
        assert f"callpact[{extra}]" in readme


def test_public_names_are_sorted_and_all_there():
    names = callpact.__all__
    constants = [n for n in names if n.isupper()]
    classes = [n for n in names if n[0].isupper() and not n.isupper()]
    functions = [n for n in names if n[0].islower()]
    assert names == sorted(constants) + sorted(classes) + sorted(functions)
    for name in names:
        assert getattr(callpact, name) is not None


def test_words_that_the_glossary_replaces_stay_out_of_public_names():
    # `operation_id` is seed 001's own name for a member of the local meta.
    for name in callpact.__all__:
        for word in ("route", "operation", "adapter", "provider", "payload"):
            assert word not in name.lower()


def test_except_exception_stands_only_at_the_boundaries_that_the_architecture_lists():
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    listed = page[page.index("Boundaries") :]
    source = ROOT / "src" / "callpact"
    for path in source.rglob("*.py"):
        if "except Exception" in path.read_text("utf-8") or "except (Exception" in path.read_text(
            "utf-8"
        ):
            assert f"`{path.relative_to(source)}`" in listed


def test_no_module_is_longer_than_eight_hundred_lines():
    for path in (ROOT / "src").rglob("*.py"):
        assert len(path.read_text("utf-8").splitlines()) <= 800, path
