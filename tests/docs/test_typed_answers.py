"""The guides of typed answers name what the code has."""

import re
from pathlib import Path
from typing import get_args

from callpact.agent.reliability import ErrorKind, Verb
from callpact.codes import CODES
from callpact.jsonreader.reader import LOSSY

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"


def test_every_repair_that_has_to_be_allowed_has_one_row():
    page = (GUIDES / "typed-answers.md").read_text("utf-8")
    table = page[page.index("| name | what is taken") :].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == sorted(LOSSY)


def test_every_verb_and_every_kind_of_error_is_told():
    page = (GUIDES / "reliable-answers.md").read_text("utf-8")
    for verb in get_args(Verb):
        assert f"| `{verb}` |" in page
    for kind in get_args(ErrorKind):
        assert f"`{kind}`" in page


def test_exit_codes_are_those_of_the_table_of_codes():
    page = (GUIDES / "typed-answers.md").read_text("utf-8")
    told = dict(re.findall(r"^\| (\d+) \| (.+) \|$", page, re.MULTILINE))
    for code, words in {
        "paused": "paused",
        "upstream_error": "could not be asked",
        "output_validation_failed": "breaks its schema",
        "timeout": "limit",
    }.items():
        assert words in told[str(CODES[code].exit)]
