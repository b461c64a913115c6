"""A line of the journal is read as what was written, also one of an earlier callpact."""

from __future__ import annotations

import hashlib
import json

import pytest

from callpact.audit.lines import decode_line, encode_line
from callpact.audit.record import Note, Payload, Record

OWN = b'["call-1",1700000000000,1.5,"http","ann","call-0",3,"reject"]'
ISSUE = b'["type","/items/3/n","Must be a number"]'


def kept(value):
    """On the way to the store: what is so small has no hash there."""
    text = json.dumps(value, separators=(",", ":"))
    return Payload("", len(text), text)


def expected(tool=("shop.price",), **more):
    fields = {"policy": "reject", "caller": "ann", "via": "http", "parent": "call-0", "count": 3}
    sent = kept({"a": 1})
    return Record("call-1", 1700000000000, 1.5, *tool, **(fields | {"input": sent} | more))


REFUSED = {
    "gate": "input",
    "code": "schema_validation_failed",
    "path": "/items/3/n",
    "message": "Must be a number",
    "key": "schema_validation_failed:/items/*/n:type",
    "issues": (Note("type", "/items/3/n", "Must be a number"),),
}


@pytest.mark.parametrize(
    ("former", "record"),
    [
        (
            b'[{"tool":"shop.price"},[' + OWN + b',"local",null,{"a":1},[2]]]',
            expected(source="local", output=kept([2])),
        ),
        (
            b'[{"tool":"shop.price","kind":"query","version":"2","contract":"00ff","policy":"warn"},['
            + OWN
            + b',"http",203,{"a":1},[2],true,null,null,[],null,null,['
            + ISSUE
            + b'],[["cast","/n","","1"]],true]]',
            expected(
                ("shop.price", "query", "2", "00ff"),
                source="http",
                status=203,
                output=kept([2]),
                warnings=REFUSED["issues"],
                changes=(Note("cast", "/n", "", "1"),),
                tool_error=True,
            ),
        ),
        (
            b'[{"tool":"shop.price"},['
            + OWN
            + b',"",null,{"a":1},null,false,"input","schema_validation_failed",['
            + ISSUE
            + b"]]]",
            expected(**REFUSED),
        ),
        (
            b'[{"tool":"shop.price"},['
            + OWN
            + b',"",null,{"a":1},null,false,"handler","full",[],"No room","/a"]]',
            expected(gate="handler", code="full", message="No room", path="/a", key="full:/a:"),
        ),
    ],
    ids=["result", "result with notes", "refusal", "failure"],
)
def test_a_line_of_an_earlier_callpact_is_its_record(former, record):
    assert decode_line(former + b"\n") == record


@pytest.mark.parametrize("size", [256, 257, 70_000])
def test_what_a_store_keeps_by_its_hash_has_one(size):
    text = json.dumps("x" * (size - 2)).encode()
    line = b'[["a.b"],"call-1",1,0.5,"","",null,null,null,null,' + text + b"," + text + b"]\n"
    quick = decode_line(line)
    whole = Payload("", size, text.decode())
    careful = decode_line(encode_line(Record("i", 1, 0.5, "a.b", input=whole, output=whole)))
    for payload in (quick.input, quick.output, careful.input, careful.output):
        expected = "" if size <= 256 else hashlib.sha256(text).hexdigest()
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
