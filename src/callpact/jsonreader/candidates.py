"""The choice of the answer among the values in a text.

All values count alike, regardless of the fence, quotes or words around them. The only one that fits
the schema is chosen; consecutive values may form the expected list. If several are possible, the
text is refused unless `two_candidates` is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from callpact.jsonreader.reading import Repair, refusal, repair
from callpact.jsonreader.strict import NOTHING, read_clean, written
from callpact.schema import is_array

FitCheck: TypeAlias = Callable[[Any], bool]
"""True for a value that the schema of the answer accepts."""

MAX_CHECKS = 1_000
"""Values of one text that are checked against a schema; with more, the schema does not choose."""
_MAX_GAP = 300
"""The highest number of characters between two values of one list."""
_ITEM_BEFORE = re.compile(r"[}\]]\s*,\s*\Z")
_SCALAR_LINE = re.compile(
    r'^[ \t]*+("[^"\\\n]*+(?>(?:\\.[^"\\\n]*+)*)"|-?\d[\d.eE+\-]*+|true|false|null)[ \t]*+[,;]?+[ \t\r]*+$',
    re.MULTILINE,
)
_DECORATION = re.compile(
    r"(?:`{3,}+|~{3,}+)[ \t]*+[A-Za-z0-9_+\#.\-]*+|</?[A-Za-z][\w:.\-]*+(?:\s[^<>\n]{0,200}+)?>|<\|\w{1,40}\|>"
)
_NUMBERING = re.compile(r"\(?\b\d{1,6}(?:[.):]|\b)")
_WORD = re.compile(r"[^\W\d_]+")
_CONNECTORS = frozenset(
    [
        "and",
        "then",
        "also",
        "plus",
        "next",
        "another",
        "first",
        "second",
        "third",
        "fourth",
        "fifth",
        "finally",
        "lastly",
    ]
)
_BETWEEN = frozenset(" \t\r\n,;:-*+•#|&`\"'")
_CUT_TAG = re.compile(r"</?\|?(?:[A-Za-z][\w:.\-]{0,40})?\Z")
_ELLIPSIS = re.compile(r"[\s,;]*+(?:\.\.\.|…)")


class Candidate(NamedTuple):
    """A value, its position in the text, and its repairs."""

    start: int
    end: int
    value: Any
    repairs: tuple[Repair, ...] = ()
    is_doubtful: bool = False
    """True for [1] or {} within a sentence: it may be no value at all."""


def is_readable(candidate: Candidate, fits: FitCheck | None) -> bool:
    """False for a value that may be part of a sentence, unless the schema accepts it as no citation."""
    if not candidate.is_doubtful:
        return True
    return fits is not None and not _is_citation(candidate.value) and fits(candidate.value)


def _is_citation(value: Any) -> bool:
    if not is_array(value):
        return False
    return 0 < len(value) <= _CITED and all(
        type(item) is int and 0 <= item < 1000 for item in value
    )


_CITED = 3
"""The highest number of sources in one citation."""


def choose(
    text: str, found: list[Candidate], allow: frozenset[str], fits: FitCheck | None
) -> Candidate:
    """Choose the answer; the choice is noted among its repairs.

    Raises:
        Unreadable: more than one value may be the answer.
    """
    distinct = found if len(found) == 1 else _distinct(text, found)
    if len(distinct) == 1:
        return found[-1]
    is_allowed = "two_candidates" in allow
    fitting: list[Candidate] = []
    if fits is not None and len(distinct) <= MAX_CHECKS:
        for each in reversed(distinct):
            if fits(each.value):
                fitting.append(each)
                if len(fitting) > 1 or is_allowed:
                    break
    if len(fitting) == 1 and not is_allowed:
        only = fitting[0]
        other = next(each for each in distinct if each is not only)
        return only._replace(repairs=(repair("unfit_candidate", other.start), *only.repairs))
    if not fitting and fits is not None:
        if listed := _listed(text, found, fits):
            return listed
        solid = [
            each
            for each in distinct
            if isinstance(each.value, dict | list) and not each.is_doubtful
        ]
        if len(solid) == 1:
            return solid[0]  # Its violations are a better error than "two values differ".
    if not is_allowed:
        reason = _BOTH if fitting else "" if fits is None else _NEITHER
        raise refusal("two_candidates", text, distinct[1].start, reason)
    last = next(iter(fitting), None) or _last(found, fits)
    return last._replace(repairs=(repair("two_candidates", distinct[1].start), *last.repairs))


def _last(found: list[Candidate], fits: FitCheck | None) -> Candidate:
    """Return the last value that is no part of a sentence."""
    return next((each for each in reversed(found) if is_readable(each, fits)), found[-1])


_BOTH = "two values differ, and both fit the schema"
_NEITHER = "two values differ, and none fits the schema"


def scalars(text: str, begin: int, end: int) -> Iterator[Candidate]:
    """Find strings, numbers and literals that are alone on a line, in a part of the text."""
    part = text[begin:end]
    for match in _SCALAR_LINE.finditer(part):
        value = read_clean(match[1])
        if value is not NOTHING:
            yield Candidate(begin + match.start(1), begin + match.end(1), value)


def _distinct(text: str, found: list[Candidate]) -> list[Candidate]:
    """Remove equal values except the last; values after a comma are items of a list and all stay."""
    seen: dict[Any, Candidate] = {}
    for index, each in enumerate(found):
        key: Any = written(each.value)
        if index and _ITEM_BEFORE.search(text, max(each.start - 40, 0), each.start):
            key = index
        seen[key] = each
    return sorted(seen.values(), key=_start)


def _start(candidate: Candidate) -> int:
    return candidate.start


def _listed(text: str, found: list[Candidate], fits: FitCheck) -> Candidate | None:
    """Join all values to one list, if only separators are between them and the list fits."""
    gaps = [(one.end, other.start) for one, other in pairwise(found)]
    if not all(end - begin <= _MAX_GAP and _separates(text[begin:end]) for begin, end in gaps):
        return None
    end = found[-1].end
    if _ELLIPSIS.match(text, end) or _CUT_TAG.search(text, max(len(text) - 50, end)):
        return None
    value = [each.value for each in found]
    if not fits(value):
        return None
    notes = [repair("listed", found[0].start)]
    notes += [note for each in found for note in each.repairs]
    return Candidate(found[0].start, found[-1].end, value, tuple(notes))


def _separates(gap: str) -> bool:
    """True for commas, line breaks, bullets, numbers, fences, tags, and words like "and"."""
    plain = _NUMBERING.sub(" ", _DECORATION.sub(" ", gap))
    if any(word.lower() not in _CONNECTORS for word in _WORD.findall(plain)):
        return False
    return set(_WORD.sub("", plain)) <= _BETWEEN
