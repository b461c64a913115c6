from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from callpact.errors import UsageError
from callpact.jsonreader import ReadResult, read_json
from callpact.jsonreader.reader import (
    LOSSY,
    MAX_DEPTH,
    MAX_MARKS,
    MAX_REPAIRS,
    MAX_TEXT,
    Unreadable,
    read_strict,
)

CASES = json.loads((Path(__file__).parents[1] / "data" / "malformed.json").read_text("utf-8"))
READ = [case for case in CASES if "refused" not in case]
REFUSED = [case for case in CASES if "refused" in case]
ALLOWED = [case for case in REFUSED if "allow" in case]


def name(case):
    return f"{case['kind']}: {case['source']}"


def same(one, other):
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def codes(read):
    return {repair.code for repair in read.repairs}


@pytest.mark.parametrize("case", READ, ids=name)
def test_a_text_is_read_as_it_says_and_every_repair_is_named(case):
    read = read_json(case["text"])
    assert same(read.value, case["value"])
    assert codes(read) == set(case.get("repairs", ()))


@pytest.mark.parametrize("case", REFUSED, ids=name)
def test_what_would_be_a_guess_is_refused(case):
    with pytest.raises(Unreadable) as caught:
        read_json(case["text"])
    assert caught.value.code == case["refused"]


@pytest.mark.parametrize("case", ALLOWED, ids=name)
def test_a_lossy_repair_that_is_allowed_by_name_is_taken_and_named(case):
    read = read_json(case["text"], allow=case["allow"])
    assert same(read.value, case["allowed"])
    assert case["refused"] in codes(read)


@pytest.mark.parametrize("case", ALLOWED, ids=name)
def test_allowing_another_lossy_repair_changes_nothing(case):
    with pytest.raises(Unreadable) as caught:
        read_json(case["text"], allow=LOSSY - {case["refused"]})
    assert caught.value.code == case["refused"]


def test_every_lossy_repair_stands_in_the_table():
    assert {case["refused"] for case in ALLOWED} == LOSSY


def test_repairs_stand_in_the_order_of_the_text_at_the_character_they_are_about():
    read = read_json("Sure: {'a': True,}")
    assert [(repair.code, repair.at) for repair in read.repairs] == [
        ("prose", 0),
        ("single_quotes", 7),
        ("python_literal", 12),
        ("trailing_comma", 16),
    ]
    assert all(repair.message for repair in read.repairs)


def test_what_is_missing_at_the_end_is_one_repair_at_the_end():
    text = '{"a": [{"b": [true'
    read = read_json(text, allow={"truncated"})
    assert [(repair.code, repair.at) for repair in read.repairs] == [("truncated", len(text))]


def test_an_error_says_what_was_expected_what_came_and_where():
    with pytest.raises(Unreadable) as caught:
        read_json('{\n  "a": 1,\n  "b" oops\n}')
    error = caught.value
    assert (error.code, error.at, error.line, error.column) == ("unexpected", 18, 3, 7)
    assert "a colon" in error.message
    assert "oops" in error.message
    assert str(error) == f"{error.message} (line 3, column 7)"


def test_a_refused_repair_says_how_to_allow_it():
    with pytest.raises(Unreadable, match=r"allow=\{'duplicate_key'\}"):
        read_json('{"a": 1, "a": 2}')


def test_an_error_survives_pickling():
    with pytest.raises(Unreadable) as caught:
        read_json('{"a": 1,\n"a": 2}')
    kept = pickle.loads(pickle.dumps(caught.value))
    assert (kept.code, kept.message, kept.at) == ("duplicate_key", caught.value.message, 9)
    assert (kept.line, kept.column) == (2, 1)


@pytest.mark.parametrize("allow", [["duplicate_keys"], ["trailing_comma"], "nan, elided", [3]])
def test_allowing_what_is_no_lossy_repair_is_a_mistake_that_is_told(allow):
    with pytest.raises(UsageError):
        read_json("{}", allow=allow)


def test_one_name_may_be_allowed_without_a_list():
    assert read_json("[NaN]", allow="nan").value == [None]


# Strict


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", '"x"', "0", "-0", "1.5e3", "true", "null", ' {"a": [1, {"b": "\\u00e9\\n"}]} '],
)
def test_strict_reads_what_json_is(text):
    assert same(read_strict(text), json.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NaN",
        "[Infinity]",
        "-Infinity",
        "{'a': 1}",
        '{"a": 1,}',
        "```json\n{}\n```",
        '{"a": 1} ok',
        '"a\nb"',
        "\ufeff{}",
        "[1] // x",
        "01",
        "1e999",
        "9" * 5_000,
        '"\\x41"',
    ],
)
def test_strict_repairs_nothing(text):
    with pytest.raises(Unreadable):
        read_strict(text)


def test_strict_says_where_a_text_is_not_json():
    with pytest.raises(Unreadable) as caught:
        read_strict('{"a": 1,\n "b": tru}')
    assert (caught.value.code, caught.value.line, caught.value.column) == ("not_json", 2, 7)


def test_strict_takes_the_last_of_a_double_key_as_javascript_does():
    assert read_strict('{"a": 1, "a": 2}') == {"a": 2}


def test_integers_beyond_64_bits_are_exact():
    text = '{"id": 123456789012345678901234567890}'
    assert read_strict(text) == {"id": 123456789012345678901234567890}
    assert read_json(text) == ReadResult({"id": 123456789012345678901234567890})


def test_a_lone_surrogate_is_read_as_json_loads_reads_it():
    for text in ('{"a": "\\ud800"}', '{"a": "\ud800"}'):
        assert read_strict(text) == {"a": "\ud800"}
        assert read_json(text) == ReadResult({"a": "\ud800"})


def test_a_double_key_hidden_by_escapes_of_colons_is_found():
    text = '{"a": 1, "a": "x", "b": "\\u003a"}'
    with pytest.raises(Unreadable) as caught:
        read_json(text)
    assert caught.value.code == "duplicate_key"


def test_a_double_key_in_json_within_prose_is_found():
    with pytest.raises(Unreadable) as caught:
        read_json('Here: {"x": [{"a": 1, "a": 2}]}')
    assert caught.value.code == "duplicate_key"


def test_a_number_beyond_a_double_is_refused_within_prose_too():
    with pytest.raises(Unreadable) as caught:
        read_json('Here: {"x": [1, 1e999]}')
    assert caught.value.code == "too_large"


# Limits


def nested(depth):
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("wrap", ["{}", "x: {}", "```json\n{}\n```", "[{},]"])
def test_a_value_nests_as_deep_as_a_schema_check_takes(wrap):
    inner = MAX_DEPTH - (wrap == "[{},]")
    assert read_json(wrap.replace("{}", nested(inner).replace("[]", '["x"]'))).value
    with pytest.raises(Unreadable) as caught:
        read_json(wrap.replace("{}", nested(inner + 1).replace("[]", '["x"]')))
    assert caught.value.code == "too_deep"


def test_strict_nests_as_deep():
    assert read_strict(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 2_000, 1_000_000):
        with pytest.raises(Unreadable) as caught:
            read_strict(nested(depth))
        assert caught.value.code == "too_deep"


def test_a_text_has_a_greatest_length():
    for read in (read_strict, read_json):
        with pytest.raises(Unreadable) as caught:
            read(" " * (MAX_TEXT + 1))
        assert caught.value.code == "too_long"


def test_a_text_that_needs_too_many_repairs_is_refused():
    with pytest.raises(Unreadable) as caught:
        read_json("[" + "/**/" * (MAX_REPAIRS + 1) + "]")
    assert caught.value.code == "too_many_repairs"


def test_prose_with_too_many_brackets_is_refused():
    with pytest.raises(Unreadable) as caught:
        read_json("see [x] " * MAX_MARKS)
    assert caught.value.code == "too_many_marks"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[" * 1_000_000, "too_deep"),
        ("{" * 1_000_000, "too_deep"),
        ('{"a":' * 200_000, "too_deep"),
        ("\\" * 1_000_000, "no_json"),
        ('{"a": "' + "\\" * 1_000_000, "truncated"),
        ('"' * 1_000_000, "unescaped_quote"),
        ("`" * 1_000_000, "no_json"),
        ("{/*" * 300_000, "too_many_marks"),
        ("<think>" * 150_000, "no_json"),
        ("[" + "1" * 1_000_000, "truncated"),
        (" " * 1_000_000, "no_json"),
    ],
    ids=lambda value: value[:8] if len(value) > 20 else "",
)
def test_a_megabyte_of_nonsense_ends_with_a_clear_error(text, code):
    with pytest.raises(Unreadable) as caught:
        read_json(text)
    assert caught.value.code == code
    assert len(str(caught.value)) < 300


def test_a_deep_stack_of_the_caller_does_not_break_the_reader():
    text = "x " + '{"a": [' * 50 + "'b'," + "]}" * 50

    def within(frames):
        return within(frames - 1) if frames else read_json(text).value

    assert within(600)


# What no table of single texts shows


def test_the_value_of_a_broken_part_is_never_taken_for_the_whole():
    inner = '{"x": 1}'
    for text in (
        f'{{"a": oops oops, "b": {inner}}}',
        f"{{a: oops, b: {inner}}}",
        f'["a" oops, {inner}]',
        f'"a": 1, "b": {inner}',
        f"[oops, {inner}]",
        f"[oops {inner}",
        f"1, 2, {inner}]",
        f'{inner}, "b", 3]',
        f'{{"a": "she "said", {inner}}}',
    ):
        with pytest.raises(Unreadable):
            read_json(text)


def test_the_language_of_a_fence_tells_code_from_the_answer():
    text = '```python\nx = {"a": f(1)}\n```\n```json\n{"a": 1}\n```'
    assert read_json(text).value == {"a": 1}


def test_equal_values_are_one_answer_and_numbers_and_booleans_are_not_equal():
    assert read_json('{"a": 1, "b": 2}\n\n{"b": 2, "a": 1}').value == {"a": 1, "b": 2}
    for other in ("1.0", "true", '"1"'):
        with pytest.raises(Unreadable) as caught:
            read_json(f'{{"a": 1}}\n\n{{"a": {other}}}')
        assert caught.value.code == "two_candidates"


def test_escaped_json_may_be_escaped_again():
    text = '{"a": ["x\\ny", 1]}'
    for _ in range(2):
        text = json.dumps(text)[1:-1]
        assert read_json(text).value == {"a": ["x\ny", 1]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"n": 9007199254740993.0}', 9007199254740993),
        ("{'n': 9007199254740993.0,}", 9007199254740993),
        ('{"n": -9007199254740993.00}', -9007199254740993),
        ('{"n": 18446744073709549613.0}', 18446744073709549613),
        ('{"n": 9007199254740992.0}', 9007199254740992.0),
        ('{"n": 1e16}', 1e16),
        ('{"n": 9007199254740993.5}', 9007199254740994.0),
        ('{"n": 7.0}', 7.0),
        ('{"n": 1e300}', 1e300),
    ],
)
def test_an_integer_with_a_fraction_is_never_read_as_another_one(text, value):
    read = read_json(text).value["n"]
    assert read == value
    assert type(read) is type(value)
