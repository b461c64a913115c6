"""What counts as one message of JSON-RPC; the doors' own tests have the table of what does not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.serve.jsonrpc import BadMessage, read_message

CODES = {-32700, -32600}


def as_bytes(value):
    return json.dumps(value).encode()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
fields = {
    "jsonrpc": st.just("2.0") | values,
    "id": values,
    "method": st.text() | values,
    "params": values,
    "result": values,
    "error": values,
}


def judged(text):
    """A message and no error, or the other way round."""
    try:
        return read_message(text), None
    except BadMessage as bad:
        return None, bad


@given(st.binary() | values.filter(lambda value: not isinstance(value, dict)).map(as_bytes))
def test_what_is_no_object_is_an_error_that_names_no_request(text):
    _, bad = judged(text)
    answer = json.loads(bad.body)
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", None)
    assert answer["error"]["code"] in CODES


@given(st.fixed_dictionaries({}, optional=fields))
def test_an_object_is_given_back_as_it_is_or_refused_with_the_id_that_it_has(message):
    given = message.get("id")
    is_id = isinstance(given, str | int) and not isinstance(given, bool)
    found, bad = judged(as_bytes(message))
    if bad is not None:
        assert bad.code in CODES
        assert bad.id == (given if is_id and bad.code == -32600 else None)
        return
    assert found == message
    assert message["jsonrpc"] == "2.0"
    # A request has an id that can be answered, or it is none.
    assert "method" not in message or "id" not in message or is_id


@pytest.mark.parametrize("number", [2**53 + 1, 2**64 - 1, 2**64, -(2**63) - 1, 10**300])
def test_integers_are_read_exactly(number):
    note = {"jsonrpc": "2.0", "method": "x", "params": {"n": number}}
    assert read_message(json.dumps(note).encode()) == note
    assert read_message(json.dumps({**note, "id": number}).encode())["id"] == number


@pytest.mark.parametrize("number", ["1e309", "-1e309", "1" + "0" * 400, "9" * 5_000])
def test_numbers_that_no_reader_could_hold_are_refused(number):
    text = f'{{"jsonrpc": "2.0", "method": "x", "params": {{"n": {number}}}}}'.encode()
    assert judged(text)[1].code == -32700


def test_levels_are_counted_with_the_message_itself():
    def note(levels):
        return {
            "jsonrpc": "2.0",
            "method": "x",
            "params": {"n": json.loads("[" * levels + "]" * levels)},
        }

    assert read_message(json.dumps(note(8)).encode(), depth=10) == note(8)
    with pytest.raises(BadMessage) as bad:
        read_message(json.dumps(note(9)).encode(), depth=10)
    assert bad.value.code == -32700
    # Brackets in a text are no levels.
    assert read_message(json.dumps({**note(1), "id": "[{" * 20}).encode(), depth=10)
