"""Regular expressions that mean the same on every Python 3.11.

Before 3.11.5, `re` mismatches a possessive quantifier behind a group: it never backtracks inside
the group. An atomic group around a greedy quantifier, `(?>(?:…)*)`, is right on every version.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

# Imports every module of callpact and prints where a group is repeated possessively.
_SURVEY = """
import importlib, json, pkgutil, re, sys
from re import _compiler, _parser

def groups_repeated_possessively(node):
    if isinstance(node, _parser.SubPattern):
        node = node.data
    if isinstance(node, tuple) and len(node) == 2 and node[0] is _parser.POSSESSIVE_REPEAT:
        if not _compiler._simple(node[1][2]):
            return True
    if isinstance(node, (list, tuple)):
        return any(groups_repeated_possessively(part) for part in node)
    return False

found, tried = [], 0
compile_pattern = _compiler.compile

def checked(pattern, flags=0):
    global tried
    frame = sys._getframe()
    while frame and "callpact" not in frame.f_globals.get("__name__", ""):
        frame = frame.f_back
    if frame:
        tried += 1
        if groups_repeated_possessively(_parser.parse(pattern, flags)):
            found.append(frame.f_globals["__name__"] + ": " + str(pattern))
    return compile_pattern(pattern, flags)

_compiler.compile = checked
import callpact
for module in pkgutil.walk_packages(callpact.__path__, "callpact."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(json.dumps({"found": found, "tried": tried}))
"""


def test_no_pattern_repeats_a_group_possessively():
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SURVEY], capture_output=True, text=True, check=True
    )
    survey = json.loads(ran.stdout)
    assert survey["tried"] > 50
    assert survey["found"] == []


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a/* x */b", "ab"),
        ("a/* * ** */b/*/ c */d", "abd"),
        ("/***/a/**/", "a"),
        ("a/* b", "a/* b"),
    ],
)
def test_an_atomic_group_around_a_greedy_quantifier_matches_on_every_version(text, left):
    assert re.sub(r"/\*(?>(?:[^*]++|\*(?!/))*)\*/", "", text) == left
