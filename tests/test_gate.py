"""The gates, row by row of the design's section 3, and who may call."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import enum
import uuid
from collections import ChainMap, OrderedDict
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import pytest
from pydantic import BaseModel

from callpact.context import Identity
from callpact.envelope import (
    ImageBlock,
    ResponseEnvelope,
    TextBlock,
    http_envelope,
    local_envelope,
    mcp_envelope,
)
from callpact.errors import AccessDenied, InvalidInput, NotJson, OutputRejected, UsageError
from callpact.gate import admit, grant, release, tightened
from callpact.tool import OPEN, POLICIES, Access, Contract, Tool

IN = {
    "type": "object",
    "properties": {
        "q": {"type": "string", "description": "what to look for"},
        "limit": {"type": "integer", "maximum": 50},
        "unit": {"enum": ["kg", "lb"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["q"],
    "additionalProperties": False,
}
OUT = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "price": {"type": "number"},
        "unit": {"enum": ["kg", "lb"]},
        "note": {"type": "string"},
    },
    "required": ["id", "price"],
}
GOOD = {"id": "k1", "price": 12.5}


async def _handler(arguments, context):
    return None


def _tool(schema=IN, **contract):
    contract = Contract(input=schema, **contract)
    return Tool(id="shop.search", description="", contract=contract, handler=_handler)


def _rejection(tool, arguments):
    with pytest.raises(InvalidInput) as caught:
        admit(tool, arguments)
    return caught.value


def _released(data, policy, schema=OUT, **options):
    contract = Contract(output=schema, policy=policy, **options)
    return release(contract, local_envelope(data, "shop.search"))


def _codes(issues):
    return [(issue.code, issue.path) for issue in issues]


# --- admit ----------------------------------------------------------------------------------


@pytest.mark.requirement("004.gate.binary")
def test_arguments_that_keep_the_schema_are_let_in_as_they_are():
    tool, arguments = _tool(), {"q": "tea", "limit": 50}
    admitted = admit(tool, arguments)
    assert admitted.tool is tool
    assert admitted.arguments is arguments
    assert admitted.warnings == ()


@pytest.mark.requirement("001.execute.validates-input")
def test_all_violations_are_told_at_once_the_best_first():
    error = _rejection(_tool(), {"limit": 80, "unit": "stone", "extra": 1})
    assert error.code == "schema_validation_failed"
    assert set(_codes(error.issues)) == {
        ("required", "/q"),
        ("maximum", "/limit"),
        ("enum", "/unit"),
        ("additionalProperties", "/extra"),
    }
    assert (error.message, error.path) == ("Property 'q' is required", "/q")


@pytest.mark.requirement("004.error.shape")
@pytest.mark.parametrize(
    ("schema", "arguments", "message", "path"),
    [
        # Seed 004's own example, and the forms of the design's section 3.
        (
            {"type": "object", "properties": {"price": {"type": "string"}}},
            {"price": 5},
            "Property 'price' must be a string, got number",
            "/price",
        ),
        (IN, {"q": "tea", "limit": 80}, "Property 'limit' must be ≤ 50, got 80", "/limit"),
        (IN, {}, "Property 'q' is required", "/q"),
        (
            IN,
            {"q": "tea", "unit": "stone"},
            "Property 'unit' must be one of kg, lb, got 'stone'",
            "/unit",
        ),
    ],
)
def test_a_violation_has_the_words_of_the_design(schema, arguments, message, path):
    error = _rejection(_tool(schema), arguments)
    assert (error.message, error.path) == (message, path)


def test_a_hint_gives_the_nearest_legal_value_or_the_missing_keys_description():
    near = _rejection(_tool(), {"q": "tea", "unit": "KG"}).issues[0]
    assert "'kg'" in near.hint
    missing = _rejection(_tool(), {}).issues[0]
    assert "what to look for" in missing.hint
    extra = _rejection(_tool(), {"q": "tea", "limt": 3}).issues[0]
    assert "'limit'" in extra.hint


@pytest.mark.parametrize("arguments", [None, 5, "q=tea", [], [{"q": "tea"}], True, 1.5])
@pytest.mark.parametrize("schema", [IN, {}, True, {"type": ["object", "array", "number"]}])
def test_arguments_that_are_not_an_object_are_rejected_at_the_root(arguments, schema):
    error = _rejection(_tool(schema), arguments)
    assert (error.issues[0].code, error.path) == ("type", "")


def test_what_is_not_an_object_is_called_by_its_json_name():
    assert _rejection(_tool({}), []).message == "Input must be an object, got array"
    assert _rejection(_tool({}), None).message == "Input must be an object, got null"


@pytest.mark.parametrize("kind", [OrderedDict, MappingProxyType, ChainMap])
def test_every_mapping_is_taken_and_handed_on_as_a_dict(kind):
    admitted = admit(_tool(), kind({"q": "tea"}))
    assert type(admitted.arguments) is dict
    assert admitted.arguments == {"q": "tea"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": float("nan")},
        {"x": float("inf")},
        {"x": object()},
        {"x": {1, 2}},
        {"x": b"bytes"},
        {"x": {1: 2}},
        {1: "x"},
    ],
)
def test_what_is_not_json_is_rejected_also_where_no_keyword_looks(arguments):
    error = _rejection(_tool({"type": "object"}), arguments)
    assert error.issues[0].code == "json"


def test_arguments_nested_too_deeply_are_rejected():
    deep = []
    for _ in range(2000):
        deep = [deep]
    assert _rejection(_tool({}), {"x": deep}).issues[0].code == "depth"


def test_exact_is_the_default_and_repairs_nothing():
    error = _rejection(_tool(), {"q": "tea", "limit": "10"})
    assert _codes(error.issues) == [("type", "/limit")]


def test_tolerant_repairs_what_cannot_lose_meaning_and_says_so():
    tool = _tool(input_policy="tolerant")
    given = {"q": "tea", "limit": "10", "tags": '["a", "b"]'}
    before = copy.deepcopy(given)
    admitted = admit(tool, given)
    assert admitted.arguments == {"q": "tea", "limit": 10, "tags": ["a", "b"]}
    assert sorted(_codes(admitted.warnings)) == [("converted", "/limit"), ("converted", "/tags")]
    assert given == before


def test_tolerant_rejects_with_the_issues_that_no_repair_helps():
    error = _rejection(_tool(input_policy="tolerant"), {"limit": "10", "unit": "stone"})
    assert set(_codes(error.issues)) == {("required", "/q"), ("enum", "/unit")}


@pytest.mark.parametrize("text", ["ten", "1e", "10.5", " 10", "0x10", "true"])
def test_tolerant_does_not_guess(text):
    assert _rejection(_tool(input_policy="tolerant"), {"q": "tea", "limit": text})


# --- release: pass --------------------------------------------------------------------------


def test_pass_delivers_anything_as_it_is():
    envelope = local_envelope({"id": 5, "x": None}, "shop.search")
    assert release(Contract(output=OUT, policy="pass"), envelope) is envelope
    assert release(Contract(), envelope) is envelope


# --- release: warn --------------------------------------------------------------------------


@pytest.mark.requirement("001.execute.output-warns-only")
@pytest.mark.parametrize(
    ("data", "codes"),
    [
        ({"id": 5, "price": 1}, [("type", "/id")]),
        ({"id": None, "price": 1}, [("type", "/id")]),
        ({**GOOD, "unit": "stone"}, [("enum", "/unit")]),
        ({"id": "k1"}, []),
        ({**GOOD, "vendor": "acme"}, []),
        ([], [("type", "")]),
    ],
)
def test_warn_tells_wrong_types_nulls_and_enums_but_no_missing_or_extra_field(data, codes):
    before = copy.deepcopy(data)
    envelope = _released(data, "warn")
    assert _codes(envelope.warnings) == codes
    assert envelope.data is data
    assert data == before
    assert envelope.changes == ()


def test_warn_ignores_extra_fields_of_a_closed_schema_too():
    closed = {**OUT, "additionalProperties": False}
    envelope = _released({**GOOD, "vendor": "acme"}, "warn", closed)
    assert envelope.warnings == ()
    assert envelope.data == {**GOOD, "vendor": "acme"}


# --- release: cast --------------------------------------------------------------------------


def test_cast_hands_a_fitting_answer_back_as_the_same_envelope():
    envelope = local_envelope(GOOD, "shop.search")
    assert release(Contract(output=OUT, policy="cast"), envelope) is envelope


@pytest.mark.requirement("001.cast.strips-excess")
@pytest.mark.requirement("001.output.normalizes")
def test_cast_strips_extra_fields_and_reports_them():
    envelope = _released({**GOOD, "vendor": "acme"}, "cast")
    assert envelope.data == GOOD
    assert [(c.path, c.action, c.before) for c in envelope.changes] == [
        ("/vendor", "stripped", "acme")
    ]
    assert envelope.warnings == ()


def test_cast_converts_first_what_says_exactly_the_wanted_type():
    envelope = _released({"id": "k1", "price": "12.5"}, "cast")
    assert envelope.data == GOOD
    assert [(c.path, c.action, c.before) for c in envelope.changes] == [
        ("/price", "converted", "12.5")
    ]
    assert _codes(envelope.warnings) == [("type", "/price")]


@pytest.mark.requirement("001.cast.upcasts")
@pytest.mark.requirement("001.output.warns-before-cast")
def test_cast_warns_of_the_value_as_it_was_and_again_of_every_invented_one():
    envelope = _released({"id": "k1", "price": "n/a"}, "cast")
    assert envelope.data == {"id": "k1", "price": 0}
    assert _codes(envelope.warnings) == [("type", "/price"), ("replaced", "/price")]
    assert "got string" in envelope.warnings[0].message
    assert [(c.path, c.action, c.before) for c in envelope.changes] == [
        ("/price", "replaced", "n/a")
    ]


@pytest.mark.requirement("001.cast.fills-defaults")
def test_cast_fills_what_is_missing_with_its_default_or_an_invented_value_that_is_never_quiet():
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "default": "Berlin"}, "n": {"type": "number"}},
        "required": ["city", "n"],
    }
    envelope = _released({}, "cast", schema)
    assert envelope.data == {"city": "Berlin", "n": 0}
    assert set(_codes(envelope.warnings)) == {
        ("required", "/city"),
        ("required", "/n"),
        ("replaced", "/n"),
    }
    assert {(c.path, c.action) for c in envelope.changes} == {("/city", "filled"), ("/n", "filled")}


def test_a_result_that_still_fails_is_delivered_with_a_residual_warning():
    # envelopes.md, example 9: exclusiveMinimum 2 gives 0, which still fails.
    schema = {
        "type": "object",
        "properties": {"level": {"type": "number", "exclusiveMinimum": 2}},
        "required": ["level"],
    }
    envelope = _released({"level": 2}, "cast", schema)
    assert envelope.data == {"level": 0}
    assert _codes(envelope.warnings) == [
        ("exclusiveMinimum", "/level"),
        ("replaced", "/level"),
        ("residual", "/level"),
    ]


def test_a_cast_that_throws_leaves_the_data_and_says_why():
    # envelopes.md, example 25: no value can be invented for a pattern.
    schema = {
        "type": "object",
        "properties": {"when": {"type": "string", "pattern": r"^\d{4}$"}},
        "required": ["when"],
    }
    envelope = _released({"when": "24"}, "cast", schema)
    assert envelope.data == {"when": "24"}
    assert envelope.changes == ()
    assert _codes(envelope.warnings) == [
        ("pattern", "/when"),
        ("cast", ""),
        ("residual", "/when"),
    ]


@pytest.mark.parametrize("policy", ["warn", "cast"])
def test_the_handlers_own_envelope_and_data_are_never_changed(policy):
    data = {"id": 7, "price": "12.5", "deep": {"x": [1, {"y": 2}]}}
    own = ResponseEnvelope(data, local_envelope(None, "a.b").meta)
    before = copy.deepcopy(data)
    released = release(Contract(output=OUT, policy=policy), own)
    assert released is not own
    assert own.data is data
    assert data == before
    assert own.warnings == own.changes == ()
    assert released.meta is own.meta


def test_what_a_handler_warned_of_stays_before_what_the_gate_adds():
    first = _released({"id": 7, "price": 1}, "warn")
    again = release(Contract(output=OUT, policy="cast"), first)
    assert again.warnings[0] == first.warnings[0]
    assert len(again.warnings) > 1


# --- release: convert -----------------------------------------------------------------------


def test_convert_hands_a_fitting_answer_back_as_the_same_envelope():
    envelope = local_envelope(GOOD, "shop.search")
    assert release(Contract(output=OUT, policy="convert"), envelope) is envelope


def test_convert_converts_and_strips_as_cast_does_and_tells_both():
    data = {"id": "k1", "price": "12.5", "vendor": "acme"}
    envelope = _released(data, "convert")
    assert envelope.data == GOOD
    assert [(c.path, c.action, c.before) for c in envelope.changes] == [
        ("/price", "converted", "12.5"),
        ("/vendor", "stripped", "acme"),
    ]
    assert _codes(envelope.warnings) == [("type", "/price")]
    assert data == {"id": "k1", "price": "12.5", "vendor": "acme"}


def test_convert_strips_what_a_closed_schema_forbids():
    closed = {**OUT, "additionalProperties": False}
    assert _released({**GOOD, "vendor": "acme"}, "convert", closed).data == GOOD


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        ({"id": "k1", "price": "n/a"}, [("type", "/price")]),
        ({"id": "k1"}, [("required", "/price")]),
        ({"id": None, "price": "1", "unit": "stone"}, [("type", "/id"), ("enum", "/unit")]),
        ({"id": "k1", "price": True}, [("type", "/price")]),
        ([], [("type", "")]),
        (None, [("type", "")]),
        ("{}", [("type", "")]),
        (b"{}", [("type", "")]),
    ],
)
def test_convert_refuses_what_is_still_wrong_or_missing_and_tells_only_that(data, codes):
    with pytest.raises(OutputRejected) as caught:
        _released(data, "convert")
    assert _codes(caught.value.issues) == codes
    assert caught.value.code == "output_validation_failed"


def test_convert_tells_what_a_converted_value_breaks():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 20}}}
    with pytest.raises(OutputRejected, match="must be ≥ 20, got 12"):
        _released({"n": "12"}, "convert", schema)


def test_convert_fills_nothing_in_not_even_a_default():
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "default": "Berlin"}},
        "required": ["city"],
    }
    with pytest.raises(OutputRejected) as caught:
        _released({}, "convert", schema)
    assert _codes(caught.value.issues) == [("required", "/city")]


def test_convert_neither_cuts_nor_pads_a_list():
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
    for data in ([1], [1, 2, 3]):
        with pytest.raises(OutputRejected):
            _released(data, "convert", schema)
    assert _released(["1", 2.0], "convert", schema).data == [1, 2]


def test_convert_lets_errors_of_mcp_servers_out():
    envelope = mcp_envelope(None, is_error=True, content=[])
    assert release(Contract(output=OUT, policy="convert"), envelope) is envelope


@pytest.mark.parametrize("own", ["pass", "warn", "cast"])
def test_a_call_can_ask_for_convert_where_the_contract_is_looser(own):
    contract = Contract(output=OUT, policy=own)
    with pytest.raises(OutputRejected):
        release(contract, local_envelope({"id": "k1"}, "a.b"), "convert")
    with pytest.raises(UsageError, match="only tighten"):
        release(Contract(output=OUT, policy="convert"), local_envelope({}, "a.b"), "cast")


# --- release: reject ------------------------------------------------------------------------

CLOSED = {**OUT, "additionalProperties": False}


@pytest.mark.requirement("004.output.rejects-mismatch")
@pytest.mark.parametrize(
    ("data", "codes"),
    [
        ({"id": 7, "price": 1}, [("type", "/id")]),
        ({"id": "k1"}, [("required", "/price")]),
        ({**GOOD, "vendor": "acme"}, [("additionalProperties", "/vendor")]),
        (None, [("type", "")]),
    ],
)
def test_reject_delivers_nothing_of_an_answer_that_is_wrong_incomplete_or_too_much(data, codes):
    with pytest.raises(OutputRejected) as caught:
        _released(data, "reject", CLOSED)
    assert caught.value.code == "output_validation_failed"
    assert _codes(caught.value.issues) == codes
    assert caught.value.message.startswith("Output")


def test_reject_refuses_undeclared_fields_also_where_the_schema_is_left_open():
    nested = {"type": "object", "properties": {"rows": {"type": "array", "items": OUT}}}
    with pytest.raises(OutputRejected) as caught:
        _released({"rows": [GOOD, {**GOOD, "a/b": 1}], "debug": 1}, "reject", nested)
    assert set(_codes(caught.value.issues)) == {
        ("additionalProperties", "/rows/1/a~1b"),
        ("additionalProperties", "/debug"),
    }
    assert "Output property 'a/b' is not known" in {i.message for i in caught.value.issues}


def test_reject_lets_further_fields_pass_where_the_schema_welcomes_them():
    welcoming = {**OUT, "additionalProperties": True}
    data = {**GOOD, "vendor": "acme"}
    assert _released(data, "reject", welcoming).data is data


def test_reject_delivers_a_good_answer_as_it_is():
    envelope = local_envelope(GOOD, "shop.search")
    assert release(Contract(output=CLOSED, policy="reject"), envelope) is envelope


# --- bytes, content blocks, errors ----------------------------------------------------------


@pytest.mark.parametrize("data", [b"\x00\x01", bytearray(b"\x00\x01"), memoryview(b"\x00\x01")])
def test_bytes_are_delivered_as_bytes_and_never_cast(data):
    assert _released(data, "pass", None).data == b"\x00\x01"
    for policy in ("warn", "cast"):
        envelope = _released(data, policy)
        assert type(envelope.data) is bytes
        assert envelope.data == b"\x00\x01"
        assert _codes(envelope.warnings) == [("type", "")]
        assert envelope.changes == ()


def test_bytes_are_rejected_where_only_what_the_schema_accepts_is_delivered():
    with pytest.raises(OutputRejected) as caught:
        _released(b"\x00", "reject")
    assert "got bytes" in caught.value.message


BLOCKS = [TextBlock("it is 5 degrees"), ImageBlock("aGk=", "image/png")]
ON_THE_WIRE = [
    {"type": "text", "text": "it is 5 degrees"},
    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
]
CONTENT = [
    mcp_envelope(BLOCKS, is_error=False, content=BLOCKS),
    mcp_envelope(list(BLOCKS), is_error=False, content=list(BLOCKS)),
    mcp_envelope(copy.deepcopy(ON_THE_WIRE), is_error=False, content=BLOCKS),
    ResponseEnvelope.from_wire(
        {"data": ON_THE_WIRE, "meta": {"source": "mcp", "isError": False, "content": ON_THE_WIRE}}
    ),
]


@pytest.mark.requirement("001.mcp.no-schema-blocks-are-data")
@pytest.mark.parametrize("envelope", CONTENT)
def test_content_blocks_are_never_cast_and_leave_one_warning(envelope):
    assert release(Contract(), envelope).data == ON_THE_WIRE
    for policy in ("warn", "cast"):
        released = release(Contract(output=OUT, policy=policy), envelope)
        assert released.data == ON_THE_WIRE
        assert _codes(released.warnings) == [("type", "")]
        assert "content blocks" in released.warnings[0].message
        assert released.changes == ()
    with pytest.raises(OutputRejected):
        release(Contract(output=OUT, policy="reject"), envelope)


@pytest.mark.requirement("001.mcp.is-error-is-data")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("data", [BLOCKS, {"id": 5, "reason": "no such city"}, "boom"])
def test_an_mcp_error_result_is_delivered_untouched_under_every_policy(policy, data):
    envelope = mcp_envelope(data, is_error=True, content=BLOCKS)
    released = release(Contract(output=OUT, policy=policy), envelope)
    assert released.data == (ON_THE_WIRE if data is BLOCKS else data)
    assert released.meta is envelope.meta
    assert released.warnings == released.changes == ()


@pytest.mark.requirement("001.mcp.structured-content-is-normalised")
def test_structured_content_is_cast_and_meta_keeps_the_original():
    original = {"id": "k1", "price": 1, "vendor": "acme"}
    envelope = mcp_envelope(
        original, is_error=False, content=BLOCKS, structured_content=dict(original)
    )
    released = release(Contract(output=OUT), envelope)
    assert released.data == {"id": "k1", "price": 1}
    assert released.meta.structured_content == original
    assert released.meta.content == BLOCKS


@pytest.mark.requirement("001.openapi.normalises")
def test_an_http_answer_is_cast_like_any_other():
    envelope = http_envelope(
        {**GOOD, "x": 1}, status_code=200, headers={}, content_type="application/json"
    )
    assert release(Contract(output=OUT), envelope).data == GOOD


@pytest.mark.requirement("001.constraint.output-schema-judges-data")
@pytest.mark.requirement("001.output.judges-data-not-envelope")
def test_the_output_schema_judges_the_data_and_not_the_envelope():
    only_number = Contract(output={"type": "number"}, policy="reject")
    envelope = local_envelope(5, "a.b")
    assert release(only_number, envelope) is envelope


# --- what is not JSON -----------------------------------------------------------------------


class _Colour(enum.Enum):
    RED = "red"


class _Model(BaseModel):
    id: str
    day: dt.date


class _Struct(msgspec.Struct, rename="camel"):
    item_id: str


@dataclasses.dataclass
class _Point:
    x: int
    tags: set[str]
    by_year: dict[int, str]


class _Text(str):
    __slots__ = ()


class _Count(int):
    pass


class _Pair(NamedTuple):
    left: int
    right: int


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (_Model(id="a", day=dt.date(2026, 1, 2)), {"id": "a", "day": "2026-01-02"}),
        ([_Model(id="a", day=dt.date(2026, 1, 2))], [{"id": "a", "day": "2026-01-02"}]),
        (_Struct("a"), {"itemId": "a"}),
        (_Point(1, {"t"}, {2026: "now"}), {"x": 1, "tags": ["t"], "by_year": {"2026": "now"}}),
        ({"p": {"q": _Struct("a")}}, {"p": {"q": {"itemId": "a"}}}),
        (dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC), "2026-01-02T03:04:00Z"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ({_Colour.RED: dt.date(2026, 1, 2)}, {"red": "2026-01-02"}),
        ([_Colour.RED, dt.date(2026, 1, 2)], ["red", "2026-01-02"]),
        (_Text("text"), "text"),
        (_Count(3), 3),
        (_Pair(1, 2), [1, 2]),
        (MappingProxyType({"a": ChainMap({"b": 1})}), {"a": {"b": 1}}),
        ({"inner": ResponseEnvelope(1, None)}, {"inner": {"data": 1, "meta": None}}),
    ],
)
def test_models_dataclasses_and_dates_become_plain_data(value, plain):
    released = _released(value, "pass", None)
    assert released.data == plain
    assert type(released.data) is type(plain)


def test_a_model_is_judged_after_it_became_plain_data():
    envelope = _released(_Model(id="a", day=dt.date(2026, 1, 2)), "cast")
    assert envelope.data == {"id": "a", "price": 0}


def _cycle():
    value = []
    value.extend([value, value])
    return value


def _deep():
    value = []
    for _ in range(5000):
        value = [value]
    return value


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("schema", [None, OUT])
@pytest.mark.parametrize(
    ("make", "code", "path"),
    [
        (object, "json", ""),
        (lambda: {1, 2}, "json", ""),
        (lambda: {"a": frozenset()}, "json", "/a"),
        (lambda: float("nan"), "json", ""),
        (lambda: {"a": [1, float("inf")]}, "json", "/a/1"),
        (lambda: {1: "a"}, "json", ""),
        (lambda: {"a": {None: 1}}, "json", "/a"),
        (lambda: {"a": b"bytes"}, "json", "/a"),
        (lambda: (n for n in "ab"), "json", ""),
        (lambda: "\ud800", "json", ""),
        (lambda: {"m": _Struct("a"), "o": object()}, "json", "/o"),
        (lambda: _Model, "json", ""),
        (_deep, "depth", None),
        (_cycle, "depth", None),
    ],
)
def test_what_can_be_neither_json_nor_bytes_is_refused_under_every_policy(
    make, code, path, schema, policy
):
    with pytest.raises(NotJson) as caught:
        _released(make(), policy, schema)
    error = caught.value
    assert error.code == "output_validation_failed"
    assert error.issues[0].code == code
    if path is not None:
        assert [issue.path for issue in error.issues] == [path]
    assert error.message.startswith("Output")
    assert "return JSON data" in error.issues[0].hint


# --- tightening -----------------------------------------------------------------------------


def test_a_call_can_tighten_the_policy_but_never_loosen_it():
    for own in POLICIES:
        contract = Contract(output=OUT, policy=own)
        assert tightened(contract, None) == own
        for asked in POLICIES:
            if POLICIES.index(asked) >= POLICIES.index(own):
                assert tightened(contract, asked) == asked
            else:
                with pytest.raises(UsageError, match="can only tighten"):
                    tightened(contract, asked)


def test_an_unknown_policy_of_a_call_is_wrong_use():
    with pytest.raises(UsageError, match="policy must be one of pass, warn, cast, convert, reject"):
        tightened(Contract(output=OUT), "strict")


def test_a_tightened_policy_is_the_one_that_counts():
    contract = Contract(output=OUT, policy="warn")
    envelope = local_envelope({"id": 5, "price": 1}, "a.b")
    assert release(contract, envelope).data == {"id": 5, "price": 1}
    assert release(contract, envelope, "cast").data == {"id": "", "price": 1}
    with pytest.raises(OutputRejected):
        release(contract, envelope, "reject")


# --- grant ----------------------------------------------------------------------------------

SCOPE_SETS = [(), ("a",), ("b",), ("a", "b"), ("c",), ("a", "c"), ("b", "c"), ("a", "b", "c")]
RESOURCE_SETS = [
    {},
    {"project:1": ["read"]},
    {"project:1": ["write"]},
    {"project:1": ["write"], "project:2": ["read", "write"]},
    {"projects:1": ["read"]},
    {"project": ["read"]},
    {"my:project:1": ["read"]},
    {"Project:1": ["read"]},
    {"project:": ["read"]},
    {"file:1": ["read"], "project:1": []},
]


def _guarded(access):
    return Tool(
        id="shop.refund", description="", contract=Contract(), handler=_handler, access=access
    )


def _is_granted(access, identity):
    try:
        grant(_guarded(access), identity)
    except AccessDenied:
        return False
    return True


def _may(identity, all_of, any_of, resource):
    """Seed 001's rule, in other words than the code's."""
    if identity is None:
        return not (all_of or any_of or resource)
    held = set(identity.scopes)
    if not held.issuperset(all_of) or (any_of and held.isdisjoint(any_of)):
        return False
    rights = {
        (name.partition(":")[0], action)
        for name, actions in identity.resources.items()
        if ":" in name
        for action in actions
    }
    return resource is None or resource in rights


@pytest.mark.parametrize("resource", [None, ("project", "read")])
@pytest.mark.parametrize("any_of", [(), ("a",), ("a", "b")])
@pytest.mark.parametrize("all_of", [(), ("a",), ("a", "c"), ("b", "c")])
def test_whoever_holds_all_that_is_asked_for_passes_and_nobody_else(all_of, any_of, resource):
    kind, action = resource or (None, None)
    access = Access(all_of, any_of, kind, action)
    callers = [None] + [
        Identity("me", scopes, resources) for scopes in SCOPE_SETS for resources in RESOURCE_SETS
    ]
    for caller in callers:
        assert _is_granted(access, caller) is _may(caller, all_of, any_of, resource), caller


def test_what_asks_for_nothing_lets_everybody_pass():
    for access in (OPEN, Access(), Access([], [])):
        for caller in (None, Identity("me"), Identity("", ["admin"])):
            grant(_guarded(access), caller)


def test_scopes_are_compared_whole_and_by_case():
    for held in ("orders", "orders:read:all", "Orders:read", " orders:read", "*", "orders:*"):
        assert not _is_granted(Access(["orders:read"]), Identity("me", [held]))
    assert _is_granted(Access(["orders:read"]), Identity("me", ["x", "orders:read"]))


def test_an_action_is_compared_whole():
    access = Access(resource_type="project", resource_action="read")
    for actions in (["readonly"], ["r", "e", "a", "d"], ["READ"], ["*"]):
        assert not _is_granted(access, Identity("me", (), {"project:1": actions}))


SECRETIVE = [
    Access(["secret:scope"]),
    Access((), ["secret:scope", "other"]),
    Access((), (), "secret", "scope"),
    Access(["secret:a"], ["secret:b"], "secret", "c"),
]


@pytest.mark.parametrize("access", SECRETIVE, ids=str)
def test_a_stranger_is_told_to_bring_an_identity_and_learns_nothing_of_the_tool(access):
    with pytest.raises(AccessDenied) as caught:
        grant(_guarded(access), None)
    error = caught.value
    assert "identity" in error.message
    assert "secret" not in f"{error} {error!r} {error.details} {error.issues} {error.args}"
    assert error.details == {}


@pytest.mark.parametrize(
    ("access", "held", "missing"),
    [
        (Access(["a", "b", "c"]), ["b"], ["a", "c"]),
        (Access(["a"]), [], ["a"]),
        (Access((), ["a", "b"]), ["c"], ["a", "b"]),
        (Access(["a"], ["b"]), [], ["a"]),
        (Access(["a"], ["b"]), ["a"], ["b"]),
    ],
)
def test_a_caller_who_is_known_is_told_who_they_are_and_what_is_missing(access, held, missing):
    with pytest.raises(AccessDenied) as caught:
        grant(_guarded(access), Identity("ada", held))
    assert caught.value.code == "access_denied"
    assert caught.value.details == {"missing": missing}
    assert "'ada'" in caught.value.message
    assert "'shop.refund'" in caught.value.message
    assert all(scope in caught.value.message for scope in missing)


def test_a_caller_without_the_right_is_told_the_action_and_the_kind_of_resource():
    access = Access(resource_type="project", resource_action="delete")
    with pytest.raises(AccessDenied) as caught:
        grant(_guarded(access), Identity("ada", (), {"project:42": ["read"]}))
    assert "delete" in caught.value.message
    assert "project" in caught.value.message
    assert "42" not in caught.value.message


def test_under_warn_a_hundred_missing_fields_hide_no_wrong_type():
    item = {
        "type": "object",
        "properties": {"price": {"type": "number"}, "name": {"type": "string"}},
        "required": ["name"],
    }
    contract = Contract(output={"type": "array", "items": item}, policy="warn")
    answers = [{"price": 1} for _ in range(150)] + [{"price": "much", "name": "x"}]
    released = release(contract, local_envelope(answers, "shop.list"))
    assert [(issue.code, issue.path) for issue in released.warnings] == [("type", "/150/price")]
