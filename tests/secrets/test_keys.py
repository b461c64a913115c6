"""Secrets: where they come from, and that none of them shows."""

from __future__ import annotations

import base64
import copy
import json
import logging
import os
import pickle
from pathlib import Path
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.errors import InvalidConfig, UsageError
from callpact.secrets import Secrets
from callpact.secrets.keys import MAX_SECRETS_BYTES
from callpact.secrets.masker import MAX_MASKED_DEPTH

KEY = "sk-live/12+34=56 é&"


def dotenv(folder, text, mode=0o600):
    path = folder / "secrets.env"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


def read(folder, text):
    secrets = Secrets(file=dotenv(folder, text))
    return {name: secrets.get(name) for name in secrets._known}


# --- where they come from -------------------------------------------------------------------


def test_what_is_given_comes_before_the_file_before_the_environment(tmp_path):
    path = dotenv(tmp_path, "A=file\nB=file\n")
    environ = {"A": "environment", "B": "environment", "C": "environment"}
    secrets = Secrets({"A": "given"}, path, environ, keys=["*"])
    assert [secrets.get(name) for name in "ABCD"] == ["given", "file", "environment", None]


def test_an_empty_value_counts_as_not_set(tmp_path):
    secrets = Secrets(
        {"A": ""}, dotenv(tmp_path, "A=\nB=''\n"), {"A": "environment", "C": ""}, keys=["*"]
    )
    assert [secrets.get(name) for name in "ABC"] == ["environment", None, None]


def test_nothing_is_read_unasked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("A=file\n", "utf-8")
    monkeypatch.setenv("A", "environment")
    assert Secrets().get("A") is None


def test_a_value_that_is_not_text_is_wrong_use():
    with pytest.raises(UsageError) as caught:
        Secrets({"A": 12345678})
    assert "'A'" in str(caught.value)
    assert "12345678" not in str(caught.value)


# --- the file -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=plain", "plain"),
        ("A = spaced ", "spaced"),
        ("export A=exported", "exported"),
        ("  A=indented", "indented"),
        ("A=with=equals", "with=equals"),
        ("A=value # a comment", "value"),
        ("A=value#part", "value#part"),
        ("A='single # quoted'", "single # quoted"),
        ("A='no \\n escape'", "no \\n escape"),
        ('A="double # quoted"', "double # quoted"),
        ('A="line\\nbreak"', "line\nbreak"),
        ('A="a \\"quote\\" and a \\\\"', 'a "quote" and a \\'),
        ("A='quoted' # a comment", "quoted"),
        ("A=$HOME ${B} $(date)", "$HOME ${B} $(date)"),
        ('A="$HOME"', "$HOME"),
        ("A=it's", "it's"),
        ("A=windows\r", "windows"),
        ("A=\u2028separator", "\u2028separator"),
        ("\ufeffA=marked", "marked"),
        ("a.b_C1=name", None),
    ],
)
def test_a_line_is_read_as_dotenv_has_it(tmp_path, line, value):
    found = read(tmp_path, f"{line}\n")
    assert found == ({"A": value} if value else {"a.b_C1": "name"})


def test_comments_and_empty_lines_are_passed_over(tmp_path):
    assert read(tmp_path, "\n# A=1\n   # B=2\n\nC=3") == {"C": "3"}


@pytest.mark.parametrize(
    "line",
    [
        "sk-hidden-value",
        "A sk-hidden-value",
        "1A=sk-hidden-value",
        "A B=sk-hidden-value",
        "A='sk-hidden-value",
        'A="sk-hidden-value',
        "A='sk-hidden' value",
        'A="sk-hidden\\"',
        "=sk-hidden-value",
    ],
)
def test_a_line_that_cannot_be_read_is_told_by_its_number_and_never_shown(tmp_path, line):
    path = dotenv(tmp_path, f"GOOD=1\n\n{line}\n")
    with pytest.raises(InvalidConfig) as caught:
        Secrets(file=path)
    assert str(caught.value).startswith(f"{path}: line 3: ")
    assert "hidden" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_file_that_is_not_utf_8_is_told_by_its_line(tmp_path):
    path = dotenv(tmp_path, b"A=1\nB=\xff-hidden\n")
    with pytest.raises(InvalidConfig) as caught:
        Secrets(file=path)
    assert str(caught.value) == f"{path}: line 2: not UTF-8"


def test_a_file_that_is_absent_or_too_large_is_told(tmp_path):
    with pytest.raises(InvalidConfig):
        Secrets(file=tmp_path / "absent")
    with pytest.raises(InvalidConfig):
        Secrets(file=tmp_path)
    assert read(tmp_path, "A=1\n".ljust(MAX_SECRETS_BYTES, "#")) == {"A": "1"}
    with pytest.raises(InvalidConfig) as caught:
        read(tmp_path, "A=1\n".ljust(MAX_SECRETS_BYTES + 1, "#"))
    assert f"{MAX_SECRETS_BYTES:,}" in str(caught.value)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o777])
def test_a_file_that_others_may_read_is_a_warning_that_is_not_printed(tmp_path, mode, capfd):
    secrets = Secrets(file=dotenv(tmp_path, f"A={KEY}\n", mode))
    (warning,) = secrets.warnings
    assert f"mode {mode:04o}" in warning
    assert "chmod 600" in warning
    assert KEY not in warning
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_for_the_owner_alone_is_no_warning(tmp_path, mode):
    assert Secrets(file=dotenv(tmp_path, "A=1\n", mode)).warnings == ()


def test_a_name_that_is_set_twice_is_a_warning_and_the_last_counts(tmp_path):
    secrets = Secrets(file=dotenv(tmp_path, "A=one\nB=2\nA=two\n"))
    assert secrets.get("A") == "two"
    (warning,) = secrets.warnings
    assert "line 3: A " in warning


def test_a_pipe_can_be_read():
    reading, writing = os.pipe()
    os.write(writing, b"A=from a pipe\n")
    os.close(writing)
    secrets = Secrets(file=Path(f"/dev/fd/{reading}"))
    os.close(reading)
    assert (secrets.get("A"), secrets.warnings) == ("from a pipe", ())


# --- masking --------------------------------------------------------------------------------


def basic(user):
    return base64.b64encode(f"{user}:{KEY}".encode()).decode()


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        f"before {KEY} after {KEY}",
        f"https://api.example/?key={quote(KEY)}",
        f"https://api.example/?key={quote(KEY, safe='')}",
        f"https://api.example/?key={quote(KEY, safe='').lower()}",
        urlencode({"key": KEY}),
        quote_plus(KEY),
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(KEY.encode()).decode(),
        base64.b64encode(KEY.encode()).decode().rstrip("="),
        basic(""),
        basic("u"),
        basic("us"),
        basic("use"),
        json.dumps({"key": KEY}),
        json.dumps({"key": KEY}, ensure_ascii=False),
    ],
)
def test_a_secret_is_masked_in_every_form(text):
    masked = Secrets({"KEY": KEY}).mask(text)
    assert "***" in masked
    core = "sk-live"
    forms = [core, *(base64.b64encode(bytes(n) + b"sk-live/1").decode()[4:-4] for n in range(3))]
    assert not [form for form in forms if form in masked]


@pytest.mark.parametrize("user", ["", "u", "us"])
def test_a_secret_is_masked_in_base64_for_urls(user):
    value = "ÿþÿþ??>>~~"
    encoded = base64.urlsafe_b64encode(f"{user}:{value}".encode()).decode()
    assert "-" in encoded or "_" in encoded
    masked = Secrets({"KEY": value}).mask(encoded)
    assert len(masked) <= 3 + len("***") + 4


def test_the_rest_of_a_text_stays_as_it_is():
    secrets = Secrets({"KEY": "abcdefgh"})
    assert (
        secrets.mask("GET /?key=abcdefgh&q=abcdefg HTTP/1.1") == "GET /?key=***&q=abcdefg HTTP/1.1"
    )
    assert secrets.mask("nothing here") == "nothing here"


def test_the_longest_secret_is_masked_first():
    secrets = Secrets({"SHORT": "abcdefgh", "LONG": "abcdefgh-and-more"})
    assert secrets.mask("abcdefgh-and-more abcdefgh") == "*** ***"


def test_a_value_of_seven_characters_is_not_masked_and_one_of_eight_is():
    secrets = Secrets({"A": "1234567", "B": "abcdefgh"})
    assert secrets.mask("1234567 abcdefgh") == "1234567 ***"


def test_of_the_environment_only_what_was_asked_for_is_masked():
    secrets = Secrets(environ={"KEY": "abcdefgh", "HOME": "/home/user"}, keys=["*"])
    assert secrets.mask("abcdefgh /home/user") == "abcdefgh /home/user"
    secrets.get("KEY")
    assert secrets.mask("abcdefgh /home/user") == "*** /home/user"


def test_values_of_the_file_are_masked_before_they_are_asked_for(tmp_path):
    secrets = Secrets(file=dotenv(tmp_path, "KEY=abcdefgh\n"))
    assert secrets.mask("abcdefgh") == "***"


def test_data_is_masked_in_strings_keys_and_bytes():
    secrets = Secrets({"KEY": "abcdefgh"})
    data = {
        "a": ["x abcdefgh", 1, None, True, 1.5],
        "abcdefgh": {"b": ("abcdefgh",)},
        "c": b"abcdefgh!",
    }
    before = copy.deepcopy(data)
    assert secrets.mask_data(data) == {
        "a": ["x ***", 1, None, True, 1.5],
        "***": {"b": ["***"]},
        "c": b"***!",
    }
    assert data == before


def test_data_that_nests_without_end_is_masked_as_a_whole():
    deep = "abcdefgh"
    for _ in range(50_000):
        deep = [deep]
    masked = Secrets({"KEY": "abcdefgh"}).mask_data(deep)
    for _ in range(MAX_MASKED_DEPTH):
        (masked,) = masked
    assert masked == "***"


def test_without_secrets_data_is_passed_through():
    data = {"a": [1]}
    assert Secrets().mask_data(data) is data


VALUES = st.text(st.characters(exclude_characters="*"), min_size=8, max_size=30)


@given(VALUES, st.text(max_size=20), st.text(max_size=20))
def test_no_secret_is_left_in_any_text(value, before, after):
    masked = Secrets({"KEY": value}).mask(before + value + after)
    assert value not in masked


@given(
    st.text(st.characters(codec="utf-8"), min_size=8, max_size=30),
    st.binary(max_size=5),
    st.binary(max_size=5),
)
def test_base64_of_anything_around_a_secret_does_not_hold_it(value, before, after):
    encoded = base64.b64encode(before + value.encode() + after).decode()
    masked = Secrets({"KEY": value}).mask(encoded)
    assert "***" in masked
    assert len(masked) <= len(encoded) - len(value.encode()) * 4 // 3 + 3 + 3


# --- no value shows -------------------------------------------------------------------------


def test_no_form_of_the_object_shows_a_value(caplog):
    secrets = Secrets({"KEY": KEY}, environ={"OTHER": "environment-value"}, keys=["*"])
    secrets.get("OTHER")
    logging.getLogger("test").warning("%s %r", secrets, secrets)
    texts = [repr(secrets), str(secrets), f"{secrets}", f"{secrets:}", f"{[secrets]}", caplog.text]
    assert repr(secrets) == "Secrets(KEY, OTHER)"
    for text in texts:
        assert KEY not in text
        assert "environment-value" not in text
    assert not hasattr(secrets, "__dict__")


def test_secrets_are_not_pickled_and_a_copy_is_the_same_object():
    secrets = Secrets({"KEY": KEY})
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError) as caught:
            pickle.dumps(secrets, protocol)
        assert KEY not in str(caught.value)
    assert copy.copy(secrets) is secrets
    assert copy.deepcopy({"s": secrets})["s"] is secrets
