"""The site has every page, and each guide begins with what its reader will have."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LESSONS = sorted([*(DOCS / "guides").glob("*.md"), *(DOCS / "tutorials").glob("*.md")])


def test_the_navigation_names_every_page_once():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[1]
    named = re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(named) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_the_pages_of_the_site_load_nothing_from_elsewhere():
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert "://" not in settings
    assert "font: false" in settings
    assert "assets/iframe-worker.js" in settings


@pytest.mark.parametrize("page", LESSONS, ids=lambda p: str(p.relative_to(DOCS)))
def test_a_guide_begins_with_what_its_reader_will_have(page):
    title, paragraph, *_ = page.read_text("utf-8").split("\n\n")
    assert title.startswith("# ")
    assert paragraph.startswith("At the end of this page ")
    assert len(paragraph.splitlines()) == 1
    assert len(paragraph) <= 300, "three lines of a page"
