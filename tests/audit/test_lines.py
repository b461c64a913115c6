"""A line of the journal is read as what was written."""

from __future__ import annotations

import hashlib
import json

import pytest

from callpact.audit import Record
from callpact.audit.journal.lines import decode_line, encode_line

ISSUE = b'["type","/items/3/n","Must be a number"]'


@pytest.mark.parametrize("size", [2, 257, 65_536, 70_000])
def test_a_payload_that_is_cut_has_its_hash_and_one_that_is_whole_needs_none(size):
    text = json.dumps("x" * (size - 2)).encode()
    line = b'[["a.b"],"call-1",1,0.5,"","",null,null,null,null,' + text + b"," + text + b"]\n"
    record = decode_line(line)
    for payload in (record.input, record.output):
        expected = "" if size <= 65_536 else hashlib.sha256(text).hexdigest()
        assert (payload.sha256, payload.size) == (expected, size)


def test_a_line_that_was_not_written_to_its_end_is_no_record():
    record = Record("call-1", 1_001, 0.5, "shop.price")
    line = encode_line(record)
    assert decode_line(line) == decode_line(line[:-1]) == record
    assert {decode_line(line[:size]) for size in range(len(line) - 1)} == {None}


def test_a_quick_line_that_was_not_written_to_its_end_is_no_record():
    line = (
        b'[["a.b"],"call-1",1,0.5,"","cursor 1",null,null,null,null,{"a":1},[2],"input","c",['
        + ISSUE
        + b"]]"
    )
    assert decode_line(line) is not None
    assert {decode_line(line[:end]) for end in range(len(line))} == {None}
