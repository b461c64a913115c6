"""Masking: a secret is found in every encoding, in every case, within one another; nothing else is."""

from __future__ import annotations

import base64
import html
import json
import random
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.secrets import MASK, Masker
from callpact.secrets.masker import MAX_DECODED, MIN_MASKED

KEY = "s3cr3t/Ke y+42=é"


def quoted(text):
    return quote(text, safe="")


def in_entities(text):
    return "".join(f"&#{ord(each)};" for each in text)


def in_hex_entities(text):
    return "".join(f"&#x{ord(each):X};" for each in text)


def in_json(text):
    return json.dumps(text)[1:-1]


def in_wide_json(text):
    return json.dumps(text, ensure_ascii=False)[1:-1].replace("/", "\\/")


def all_escaped(text):
    return "".join(f"\\u{ord(each):04x}" for each in text)


ENCODINGS = [quoted, quote_plus, html.escape, in_entities, in_hex_entities, in_json, in_wide_json]


@pytest.mark.parametrize(
    "text",
    [
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
        f"0x{KEY.encode().hex()}00",
        KEY.encode().hex(":"),
        KEY.encode().hex(" ").upper(),
        KEY.upper().encode().hex(),
        "".join(f"%u{ord(each):04X}" for each in KEY),
        in_entities(KEY),
        in_hex_entities(KEY).lower(),
        html.escape(KEY),
        KEY.replace("é", "&eacute;").replace("/", "&sol;"),
        quoted(quoted(KEY)),
        quoted(quoted(quoted(KEY))),
        quote_plus(quoted(KEY)).lower(),
        json.dumps({"a": json.dumps({"b": KEY})}),
        json.dumps({"a": json.dumps({"b": json.dumps([KEY])})}),
        all_escaped(KEY),
        json.dumps(all_escaped(KEY)),
        KEY.upper(),
        KEY.title(),
        KEY.swapcase(),
        quoted(KEY.upper()),
        KEY.encode().decode("latin-1"),
        KEY.encode().decode("latin-1").encode().decode("latin-1"),
        KEY.encode().decode("cp1252"),
        quoted(KEY.encode().decode("latin-1")),
        repr(KEY.encode()),
        base64.b64encode(KEY.encode()).decode(),
        quoted(base64.b64encode(KEY.encode()).decode()),
        base64.b64encode(b"user:" + KEY.encode()).decode(),
        html.escape(json.dumps({"key": KEY})),
        json.dumps(quoted(in_entities(KEY))),
    ],
)
def test_a_secret_is_masked_however_it_is_encoded(text):
    masked = Masker([KEY]).mask(f"before {text} after")
    assert MASK in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    lowered = masked.lower()
    assert not [part for part in ("s3cr", "cr3t", "733363", "%73", "&#115") if part in lowered]


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=8, max_size=20),
    st.lists(st.sampled_from(ENCODINGS), max_size=MAX_DECODED - 1),
)
def test_a_secret_is_found_within_encodings_within_one_another(value, encodings):
    text = value
    for encode in encodings:
        text = encode(text)
    masker = Masker([value])
    assert masker.finds(text)
    assert not masker.finds(masker.mask(text)) or masker.mask(text) == text


@given(
    st.text("abc%41&;#\\u0n/~ +", max_size=40),
    st.text("ABCDEFGHIJ", min_size=8, max_size=12),
    st.text("abc%41&;#\\u0n/~ +", max_size=40),
)
def test_what_is_around_a_secret_stays(before, value, after):
    masked = Masker([value]).mask(f"{before} {value} {after}")
    assert masked == f"{before} {MASK} {after}"


def test_only_what_holds_the_secret_is_replaced_where_it_was_decoded():
    text = '{"url": "https://a.example/?q=%20&key=' + quoted(KEY) + '&n=%41", "b": "\\u00e9"}'
    assert Masker([KEY]).mask(text) == text.replace(quoted(KEY), MASK)


def test_a_text_without_a_secret_is_the_same_object():
    text = "a & b %20 \\n &amp; nothing"
    assert Masker([KEY]).mask(text) is text
    assert Masker().mask(text) is text


def test_a_short_value_is_masked_in_no_form():
    masker = Masker(["1234567"])
    assert not masker
    assert masker.mask("1234567 31323334353637") == "1234567 31323334353637"


def test_a_short_value_that_is_asked_for_is_found_as_it_is_written_alone():
    masker = Masker(["Pin4"], shortest=4)
    assert masker.mask("Pin4 pin4 %50in4 50696e34") == f"{MASK} pin4 {MASK} 50696e34"


def test_masking_does_not_depend_on_how_many_secrets_there_are():
    dice = random.Random(7)
    values = ["".join(dice.choices("abcdefghijklmnop", k=12)) for _ in range(300)]
    masker = Masker(values)
    assert masker.mask(f"x {values[250].upper()} y") == f"x {MASK} y"
    assert not masker.finds("plain words of a text that holds none of them")


def test_joined_maskers_leave_nothing_of_the_longer_secret():
    one, other = Masker(["abcdefgh"]), Masker(["abcdefgh-and-more"])
    assert Masker.joined([one, other]).mask("abcdefgh-and-more") == MASK


@pytest.mark.parametrize(
    "text", ["%25" * 300_000, "\\\\" * 300_000, "&amp;" * 200_000, "&#" * 9**6]
)
def test_a_text_made_to_be_decoded_for_long_is_not(text):
    assert Masker([KEY]).mask(text) is text


def test_data_is_masked_in_nested_json_and_in_bytes():
    data = {"a": [json.dumps({"k": KEY})], "b": KEY.encode(), "c": KEY.upper().encode()}
    masked = Masker([KEY]).mask_data(data)
    assert masked == {"a": ['{"k": "***"}'], "b": b"***", "c": b"***"}


def test_eight_characters_are_enough():
    assert Masker(["x" * MIN_MASKED]).finds("XXXXXXXX")
