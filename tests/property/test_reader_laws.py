"""Laws of the reader for broken JSON: nothing is made up, nothing is lost unseen, time is linear."""

from __future__ import annotations

import contextlib
import gc
import json
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from callpact.jsonreader import read_json
from callpact.jsonreader.reader import LOSSY, Unreadable, read_strict

TEXT = st.text(max_size=8) | st.sampled_from(
    ["it's", 'say "hi" now', "a, b: c", "{x}", "[1]", "```json", "// no", "C:\\dir", "line\nbreak"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
CONTAINERS = JSON.filter(lambda value: isinstance(value, dict | list) and value)
BROKEN = st.text(
    alphabet="{}[]()\"'`,:;+-.0123456789abeflnrstuTFN\\/*# \n\u00a0“”…<>~=", max_size=40
)
INDENTS = st.sampled_from([None, 1, 2])


def same(one, other):
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


class Broken:
    """Writes a value as models do: each place may break JSON in a way that loses nothing."""

    def __init__(self, chance):
        self.chance = chance

    def write(self, value, indent="\n"):
        inner = indent + "  "
        if isinstance(value, dict):
            members = [
                f"{self.key(key)}:{self.gap()}{self.write(item, inner)}"
                for key, item in value.items()
            ]
            return "{" + self.entries(members, inner) + indent + "}"
        if isinstance(value, list):
            return (
                "["
                + self.entries([self.write(item, inner) for item in value], inner)
                + indent
                + "]"
            )
        if isinstance(value, str):
            return self.quoted(value)
        words = {
            True: ["true", "True", "TRUE"],
            False: ["false", "False"],
            None: ["null", "None", "undefined"],
        }
        for word, spellings in words.items():
            if value is word:
                return self.chance.choice(spellings)
        return json.dumps(value)

    def entries(self, written, inner):
        parts = [inner + self.comment() + part for part in written]
        if not parts:
            return ""
        return self.chance.choice([",", ",", ", ", " ,"]).join(parts) + self.chance.choice(
            ["", ",", " , "]
        )

    def key(self, key):
        if key.isidentifier() and key.isascii() and self.chance.random() < 0.5:
            return key
        return self.quoted(key)

    def quoted(self, text):
        double = json.dumps(text)
        kind = self.chance.randrange(3)
        if kind == 1:
            return "'" + double[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"
        if kind == 2 and not set(text) & set("“”"):
            return "“" + double[1:-1].replace('\\"', '"') + "”"
        return double

    def comment(self):
        return self.chance.choice(["", "", "", "/* note */ ", "# note\n", "// note\n"])

    def gap(self):
        return self.chance.choice(["", " ", "\n ", "\u00a0", " /* gap */ "])


@given(JSON, INDENTS)
def test_json_is_read_as_it_is_with_no_repairs(value, indent):
    text = json.dumps(value, indent=indent)
    read = read_json(text)
    assert same(read.value, value)
    assert same(read_strict(text), value)
    assert not read.repairs


@given(st.text(max_size=30) | BROKEN)
def test_strict_takes_what_json_loads_takes_and_nothing_else(text):
    def refuse(_):
        raise ValueError

    try:
        expected = json.loads(text, parse_constant=refuse)
    except ValueError:
        with pytest.raises(Unreadable):
            read_strict(text)
    else:
        assert same(read_strict(text), expected)


@given(
    CONTAINERS,
    INDENTS,
    st.sampled_from(["```json\n{}\n```", "Sure:\n{}", "{}\nDone.", "<a>{}</a>"]),
)
def test_what_stands_around_json_does_not_change_it(value, indent, around):
    before, after = around.split("{}")
    text = before + json.dumps(value, indent=indent) + after
    read = read_json(text)
    assert same(read.value, value)
    assert {repair.code for repair in read.repairs} <= {"fence", "prose", "tag"}
    assert read.repairs


@given(
    CONTAINERS,
    st.randoms(use_true_random=False),
    st.sampled_from(["{}", "```json\n{}\n```", "So:\n{}"]),
)
def test_what_is_broken_without_loss_is_read_as_it_was_meant(value, chance, around):
    before, after = around.split("{}")
    assert same(read_json(before + Broken(chance).write(value) + after).value, value)


@given(CONTAINERS)
def test_what_python_writes_is_read_as_the_value_that_it_is(value):
    try:
        read = read_json(repr(value))
    except Unreadable as error:
        assume(error.code == "ambiguous_escape")
        raise
    assert same(read.value, value)


def is_complete(prefix, text):
    """True if only space is missing, or if the text is a number, which may end anywhere."""
    if prefix.strip() == text.strip():
        return True
    return text.strip()[:1] in set("-0123456789")


AROUND = st.sampled_from(
    [
        "{}",
        "```json\n{}",
        "```json\n{}\n```",
        "```\n{}\n```\nDone.",
        "Sure:\n{}",
        "<a>{}</a>",
        "{}  \n",
    ]
)


@given(JSON, INDENTS, AROUND, st.sampled_from([None, lambda value: True]))
def test_no_beginning_of_json_is_read_for_the_whole(value, indent, around, fits):
    text = json.dumps(value, indent=indent)
    before, after = around.split("{}")
    for end in range(1, len(text)):
        if is_complete(text[:end], text):
            continue
        with pytest.raises(Unreadable) as caught:
            read_json(before + text[:end] + after, fits=fits)
        if isinstance(value, dict | list) and not after:
            assert caught.value.code == "truncated"


@given(CONTAINERS, st.randoms(use_true_random=False), AROUND)
def test_no_beginning_of_broken_json_is_read_for_the_whole(value, chance, around):
    text = Broken(chance).write(value)
    before, after = around.split("{}")
    for end in range(1, len(text)):
        if not text[end:].strip():
            continue
        with pytest.raises(Unreadable):
            read_json(before + text[:end] + after)


@given(CONTAINERS, INDENTS, st.sampled_from(["length", "content_filter"]))
def test_the_reason_why_a_model_stopped_is_named(value, indent, finish):
    text = json.dumps(value, indent=indent)
    assert same(read_json(text, finish=finish).value, value)
    assert same(read_strict(text, finish=finish), value)
    for read in (read_json, read_strict):
        with pytest.raises(Unreadable, match=r"content filter|limit of output tokens") as caught:
            read(text[:-1], finish=finish)
        assert caught.value.code == "truncated"
        assert ("content filter" in str(caught.value)) == (finish == "content_filter")


@given(CONTAINERS, INDENTS, st.data())
def test_a_text_that_was_cut_gives_a_part_of_its_value_where_that_is_allowed(value, indent, data):
    text = json.dumps(value, indent=indent)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    try:
        read = read_json(cut, allow={"truncated"})
    except Unreadable:
        return
    assert is_part(read.value, value)
    assert "truncated" in {repair.code for repair in read.repairs}


def is_part(part, whole):
    """True if a value holds nothing but the beginning of another."""
    if isinstance(part, dict):
        keys = list(whole) if isinstance(whole, dict) else []
        return list(part) == keys[: len(part)] and all(is_part(part[k], whole[k]) for k in part)
    if isinstance(part, list):
        return (
            isinstance(whole, list)
            and len(part) <= len(whole)
            and all(is_part(one, other) for one, other in zip(part, whole, strict=False))
        )
    if isinstance(part, str):
        return isinstance(whole, str) and whole.startswith(part)
    if isinstance(part, float | int) and not isinstance(part, bool):
        return isinstance(whole, float | int)
    return same(part, whole)


@given(BROKEN)
def test_any_text_is_read_or_refused_with_a_place(text):
    try:
        read = read_json(text, allow=LOSSY)
    except Unreadable as error:
        found = error
    else:
        json.dumps(read.value)
        assert all(0 <= repair.at <= len(text) for repair in read.repairs)
        return
    assert 0 <= found.at <= len(text)
    assert found.line == text.count("\n", 0, found.at) + 1
    assert found.message


@given(BROKEN)
def test_what_is_no_json_is_never_read_without_a_repair(text):
    try:
        read = read_json(text)
    except Unreadable:
        return
    if not read.repairs:
        assert same(read.value, read_strict(text))
    else:
        assert not {repair.code for repair in read.repairs} & LOSSY


LINEAR = {
    # Compiled code reads these: less of it would measure the caches of the machine.
    "json": lambda n: json.dumps([{"a": "b", "c": [1, None]}] * n * 5),
    "fenced json": lambda n: "Sure:\n```json\n" + json.dumps([{"a": "b"}] * n * 10) + "\n```",
    "python": lambda n: repr([{"a": "it's", "c": [True, None]}] * n),
    "cut": lambda n: json.dumps([{"a": "b", "c": [1, None]}] * n)[:-1],
    "bare quotes": lambda n: '{"a": "' + 'x "y", z ' * n + '"}',
    "comments": lambda n: "[" + "1, // x\n" * n + "]",
    "objects in each other": lambda n: '{"a": ' * n,
    "keys without values": lambda n: '{"a" ' * n,
    "wrong brackets": lambda n: "[" + '{"a": [1},' * n,
    "prose with brackets": lambda n: "see [x] and {y} " * (n // 4) + '{"a": 1,}',
    "open comments": lambda n: '{"a" /*' * n,
    "fences": lambda n: "```\n" * n,
    "typographic quotes": lambda n: "[“x " * n,
    "comments on one line": lambda n: "[1] {// }" * (n // 4),
    "thinking": lambda n: "</think>" * (n // 2) + "<think>" * (n // 2),
    "escapes": lambda n: '{"a": "' + "\\" * n * 4,
    "spaces": lambda n: "[" + " \n" * n * 4,
    "escaped": lambda n: '{\\"a\\": [' + "1, " * n,
    "values that differ": lambda n: "".join(f'{{"a": {i % 7}}} or\n' for i in range(n // 4)),
    "rows": lambda n: "".join(f'{{"a": {i}}}\n' for i in range(n // 4)),
    "scalars on lines": lambda n: '{"a": 1}\n' + '"x"\n5\ntrue\n' * (n // 4),
    "indexes": lambda n: "x[0][1] [ ](y) [1, 2) " * (n // 8),
    "templates": lambda n: '{"a": <int>} ' * (n // 4),
    "template in a template": lambda n: '{"a": <int>, "b": ' * n,
    "code": lambda n: "```python\n" + 'x = {"a": f(1)}\n' * (n // 4),
    "boxes": lambda n: "\\boxed{" * (n // 200) + '{"a": 1}' * (n // 4),
    "strings in strings": lambda n: json.dumps(json.dumps(json.dumps(["x"] * n))),
    "values": lambda n: '{"a": 1}\n' * (n // 4),
}

CLEAN = (LINEAR["json"], LINEAR["fenced json"])
DEEP = tuple(make for name, make in LINEAR.items() if name.endswith("in each other"))


def read_with_schema(text):
    return read_json(text, fits=lambda value: isinstance(value, list) and len(value) > 1)


def seconds(text, read=read_with_schema):
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        with contextlib.suppress(Unreadable):
            read(text)
        best = min(best, time.process_time() - begun)
    return max(best, 1e-4)


@pytest.mark.parametrize("make", LINEAR.values(), ids=LINEAR)
def test_ten_times_the_text_takes_at_most_thirteen_times_as_long(make):
    """Issue 8 asks for the figure. A square would show a hundred, so a noisy moment is tried again.

    Clean text is decoded by compiled code, where the memory of large values shows: there it is held
    to what the decoder itself takes.
    """
    # Of deep text decoders read as far as Python lets them recurse: both texts nest deeper.
    size = 20_000 if make in DEEP else 2_000
    small, large = make(size), make(10 * size)
    gc.disable()
    try:
        for _ in range(12):
            bound = 13.0
            if make in CLEAN:
                parts = [text[text.index("[") : text.rindex("]") + 1] for text in (small, large)]
                bound = 1.3 * seconds(parts[1], json.loads) / seconds(parts[0], json.loads)
            if seconds(large) / seconds(small) <= bound:
                return
    finally:
        gc.enable()
    pytest.fail("ten times the text took more than thirteen times as long, twelve times over")
