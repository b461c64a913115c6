"""Laws of the core that hold for any JSON: gates are total, wrapping happens once, errors travel."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle

from hypothesis import given
from hypothesis import strategies as st

from callpact.envelope import (
    ResponseEnvelope,
    TextBlock,
    http_envelope,
    is_response_envelope,
    local_envelope,
    mcp_envelope,
    wrap,
)
from callpact.errors import (
    Aborted,
    AccessDenied,
    CallError,
    Failed,
    HandlerCrashed,
    InvalidInput,
    Issue,
    NotAllowed,
    NotJson,
    OutputRejected,
    Rejected,
    Timeout,
    ToolError,
    UnknownTool,
    UpstreamError,
)
from callpact.gate import admit, release
from callpact.runtime import Runtime
from callpact.schema import check, convert, fit, strip
from callpact.tool import POLICIES, Admitted, Contract, Tool

TEXT = st.text(max_size=8)
KEYS = st.sampled_from(["id", "n", "tags", "deep", "data", "meta", "source"]) | TEXT
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
NOT_JSON = st.sampled_from(
    [float("nan"), float("inf"), object(), {1, 2}, b"bytes", {1: 2}, (x for x in "ab"), Tool]
)
ANYTHING = st.recursive(
    SCALARS | NOT_JSON,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)

LEAVES = st.sampled_from(
    [
        True,
        False,
        {},
        {"type": "string", "minLength": 2},
        {"type": "string", "pattern": "^a"},
        {"type": "integer", "minimum": 0, "maximum": 9},
        {"type": "number", "exclusiveMinimum": 2},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": ["kg", "lb", 1, None]},
        {"const": {"a": [1]}},
        {"type": ["string", "null"], "default": "x"},
        {"not": {"type": "string"}},
    ]
)


def _schemas(inner):
    properties = st.dictionaries(KEYS, inner, max_size=3)
    objects = st.builds(
        lambda props, required, rest: {
            "type": "object",
            "properties": props,
            "required": sorted(required),
            **rest,
        },
        properties,
        st.sets(KEYS, max_size=2),
        st.sampled_from([{}, {"additionalProperties": False}, {"additionalProperties": True}]),
    )
    arrays = st.builds(
        lambda items, bounds: {"type": "array", "items": items, **bounds},
        inner,
        st.sampled_from([{}, {"minItems": 1}, {"maxItems": 1}, {"uniqueItems": True}]),
    )
    unions = st.builds(
        lambda word, parts: {word: parts},
        st.sampled_from(["anyOf", "oneOf", "allOf"]),
        st.lists(inner, min_size=1, max_size=3),
    )
    return objects | arrays | unions


SCHEMAS = st.recursive(LEAVES, _schemas, max_leaves=6)


async def _handler(arguments, context):
    return arguments


def _tool(schema, **contract):
    contract = Contract(input=schema, **contract)
    return Tool(id="t.tool", description="", contract=contract, handler=_handler)


def _outcome(call, *given):
    """What a call gives: its result, or the CallError that it raises."""
    try:
        return call(*given)
    except CallError as error:
        return error


# --- gates ----------------------------------------------------------------------------------


@given(SCHEMAS, ANYTHING, st.sampled_from(["exact", "tolerant"]))
def test_admit_gives_an_admitted_or_invalid_input_and_nothing_else(schema, value, input_policy):
    outcome = _outcome(admit, _tool(schema, input_policy=input_policy), value)
    if isinstance(outcome, Admitted):
        assert type(outcome.arguments) is dict
        assert check(schema, outcome.arguments) == []
    else:
        assert type(outcome) is InvalidInput
        assert outcome.code == "schema_validation_failed"
        assert (outcome.message, outcome.path) == (
            outcome.issues[0].message,
            outcome.issues[0].path,
        )


@given(SCHEMAS, JSON)
def test_admit_lets_in_exactly_the_objects_that_check(schema, value):
    good = isinstance(value, dict) and check(schema, value) == []
    before = copy.deepcopy(value)
    try:
        admitted = admit(_tool(schema), value)
    except InvalidInput:
        assert not good
    else:
        assert good
        assert admitted.arguments == before
    assert value == before


@given(SCHEMAS, JSON, st.sampled_from(["pass", "warn"]))
def test_pass_and_warn_never_change_data(schema, value, policy):
    before = copy.deepcopy(value)
    envelope = local_envelope(value, "t.tool")
    released = release(Contract(output=schema, policy=policy), envelope)
    assert released.data is value
    assert value == before
    assert released.changes == ()
    if policy == "pass":
        assert released is envelope


@given(SCHEMAS, ANYTHING, st.sampled_from(POLICIES))
def test_release_gives_json_or_an_output_rejection_and_never_touches_what_came(
    schema, value, policy
):
    envelope = local_envelope(value, "t.tool")
    outcome = _outcome(release, Contract(output=schema, policy=policy), envelope)
    if isinstance(outcome, ResponseEnvelope):
        assert json.loads(outcome.to_json(details=True))
    else:
        is_refusing = policy in {"convert", "reject"}
        assert type(outcome) in ({OutputRejected, NotJson} if is_refusing else {NotJson})
        assert outcome.code == "output_validation_failed"
        assert outcome.issues
    assert envelope.data is value
    assert envelope.warnings == envelope.changes == ()


@given(SCHEMAS, JSON)
def test_what_a_cast_does_not_warn_of_keeps_its_schema(schema, value):
    before = copy.deepcopy(value)
    contract = Contract(output=schema, policy="cast")
    released = release(contract, local_envelope(value, "t.tool"))
    assert value == before
    told = {warning.code for warning in released.warnings}
    still_wrong = bool(check(schema, released.data))
    assert still_wrong == ("residual" in told)
    if released.data != before:
        assert released.changes


@given(SCHEMAS, JSON)
def test_convert_delivers_what_keeps_its_schema_with_nothing_invented_or_refuses(schema, value):
    before = copy.deepcopy(value)
    contract = Contract(output=schema, policy="convert")
    outcome = _outcome(release, contract, local_envelope(value, "t.tool"))
    assert value == before
    if isinstance(outcome, OutputRejected):
        assert check(schema, strip(schema, convert(schema, value)))
        return
    assert check(schema, outcome.data) == []
    assert {change.action for change in outcome.changes} <= {"converted", "stripped"}
    assert not any(change.invented for change in outcome.changes)
    cast = release(contract.with_policy("cast"), local_envelope(value, "t.tool"))
    assert (outcome.data, outcome.changes) == (cast.data, cast.changes)


@given(SCHEMAS, JSON)
def test_reject_delivers_the_very_value_or_nothing(schema, value):
    contract = Contract(output=schema, policy="reject")
    extra = [change for change in fit(schema, value).changes if change.action == "stripped"]
    outcome = _outcome(release, contract, local_envelope(value, "t.tool"))
    if isinstance(outcome, OutputRejected):
        assert check(schema, value) or extra
    else:
        assert outcome.data is value
        assert check(schema, value) == []
        assert extra == [] or contract.compiled_output is None


@given(SCHEMAS, JSON, JSON, st.sampled_from(POLICIES))
def test_every_call_ends_in_one_event_whatever_came_and_went(schema, arguments, answer, policy):
    async def handler(arguments, context):
        return answer

    events = []
    contract = Contract(input=schema, output=schema, policy=policy)
    tool = Tool(id="t.tool", description="", contract=contract, handler=handler)
    runtime = Runtime([tool], observers=[events.append])
    outcome = _outcome(asyncio.run, runtime.execute("t.tool", arguments))
    (event,) = events
    assert outcome is (event.envelope or event.error)
    assert (event.envelope is None) == isinstance(outcome, CallError)


# --- envelopes ------------------------------------------------------------------------------

METAS = st.sampled_from(
    [
        lambda data: local_envelope(data, "t.tool"),
        lambda data: http_envelope(data, status_code=200, headers={"a": "b"}, content_type=""),
        lambda data: mcp_envelope(data, is_error=False, content=[TextBlock("x")]),
        lambda data: mcp_envelope(
            data, is_error=True, content=[], structured_content=data, meta_ext={"k": data}
        ),
    ]
)


@given(JSON, METAS)
def test_an_envelope_survives_json_with_equal_data(data, make):
    envelope = make(data)
    text = envelope.to_json()
    assert is_response_envelope(json.loads(text))
    assert ResponseEnvelope.from_json(text) == envelope


@given(st.binary(max_size=64))
def test_bytes_survive_json(data):
    envelope = local_envelope(data, "t.tool")
    assert ResponseEnvelope.from_json(envelope.to_json()) == envelope


@given(JSON | st.binary(max_size=8))
def test_wrapping_happens_once(value):
    once = wrap(value, "a.b")
    assert wrap(once, "c.d") is once
    assert is_response_envelope(once)


@given(JSON, METAS)
def test_an_envelope_inside_data_is_not_unwrapped(data, make):
    inner = make(data).to_wire()
    outer = wrap(local_envelope(inner, "a.b"), "c.d")
    assert outer.data == inner
    assert wrap(outer.to_wire(), "e.f").data == inner


@given(JSON)
def test_what_is_no_envelope_is_wrapped_as_it_is(value):
    if not is_response_envelope(value):
        assert wrap(value, "a.b").data is value


# --- errors ---------------------------------------------------------------------------------

ISSUES = st.lists(st.builds(Issue, TEXT, TEXT, TEXT, JSON, JSON, st.none() | TEXT), max_size=3).map(
    tuple
)
DETAILS = st.dictionaries(TEXT, JSON, max_size=2)
PATHS = st.none() | TEXT


def _judged(kind):
    return ISSUES.map(lambda issues: kind(lambda: issues))


ERRORS = st.one_of(
    *(
        st.builds(kind, TEXT, TEXT, path=PATHS, issues=ISSUES, details=DETAILS)
        for kind in (CallError, Rejected, NotAllowed, Failed)
    ),
    st.builds(ToolError, TEXT, TEXT, path=PATHS, details=DETAILS),
    st.builds(UnknownTool, TEXT, st.lists(TEXT, max_size=2)),
    st.builds(AccessDenied, TEXT),
    st.builds(UpstreamError, TEXT, details=DETAILS),
    st.builds(Timeout, TEXT, st.floats(allow_nan=False), begun=st.booleans()),
    st.builds(Aborted, TEXT),
    st.builds(HandlerCrashed, TEXT),
    _judged(InvalidInput),
    _judged(OutputRejected),
    _judged(NotJson),
)


@given(ERRORS)
def test_every_call_error_survives_pickling(error):
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert (twin.code, twin.message, twin.path) == (error.code, error.message, error.path)
    assert (twin.issues, twin.details) == (error.issues, error.details)
    assert twin == error
    assert hash(twin) == hash(error)
    assert (str(twin), repr(twin)) == (str(error), repr(error))
