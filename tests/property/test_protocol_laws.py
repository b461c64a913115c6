"""Laws of the call protocol: what is written is read as it was meant, and reading never breaks."""

from __future__ import annotations

import copy
import datetime as dt
import json

import jsonschema_rs
from hypothesis import example, given
from hypothesis import strategies as st

from callpact.codes import CODES
from callpact.context import Identity
from callpact.envelope import (
    AudioBlock,
    HTTPResponseMeta,
    ImageBlock,
    LocalResponseMeta,
    MCPAnnotations,
    MCPResourceContent,
    MCPResponseMeta,
    ResourceBlock,
    ResourceLinkBlock,
    ResponseEnvelope,
    TextBlock,
    is_response_envelope,
)
from callpact.errors import (
    Aborted,
    AccessDenied,
    HandlerCrashed,
    InvalidEvent,
    InvalidInput,
    Issue,
    NotAllowed,
    NotJson,
    OutputRejected,
    Silent,
    Timeout,
    ToolError,
    UnknownTool,
    UpstreamError,
    restored,
)
from callpact.protocol import (
    CALL_EVENT_SCHEMAS,
    MAX_ID_LENGTH,
    CallAborted,
    CallCompleted,
    CallFailed,
    CallRequested,
    CallResponded,
    decode_event,
    encode_event,
    read_event,
    write_event,
)
from callpact.protocol.events import EVENT_TYPES, MAX_CHAIN
from callpact.schema import Change

TEXT = st.text(max_size=8)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.sampled_from(["type", "requestId", "data", "meta", "source", "code", "path"]) | TEXT
SCALARS = st.none() | st.booleans() | NUMBERS | st.integers(-(2**90), 2**90) | TEXT
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=4)
IDS = st.text(min_size=1, max_size=MAX_ID_LENGTH)
# What is None, empty or false is what is not set: the two cannot be told apart, nor need they be.
ISSUES = st.builds(Issue, TEXT, TEXT, TEXT, JSON, JSON, st.none() | TEXT)
CHANGES = st.builds(
    Change, TEXT, st.sampled_from(["replaced", "converted", "stripped"]), JSON, st.booleans()
)

ANNOTATIONS = st.none() | st.builds(
    MCPAnnotations,
    st.none() | st.lists(st.sampled_from(["user", "assistant"]), max_size=2),
    st.none() | st.floats(0, 1),
    st.none() | TEXT,
)
RESOURCES = st.builds(MCPResourceContent, TEXT, *[st.none() | TEXT] * 3)
BLOCKS = st.one_of(
    st.builds(TextBlock, TEXT, ANNOTATIONS),
    st.builds(ImageBlock, TEXT, TEXT, ANNOTATIONS),
    st.builds(AudioBlock, TEXT, TEXT, ANNOTATIONS),
    st.builds(ResourceBlock, RESOURCES, ANNOTATIONS),
    st.builds(ResourceLinkBlock, TEXT, TEXT, st.none() | TEXT, st.none() | TEXT),
)


@st.composite
def _mcp_metas(draw):
    given = {"is_error": draw(st.booleans()), "content": draw(st.lists(BLOCKS, max_size=3))}
    if draw(st.booleans()):
        given["structured_content"] = draw(JSON)
    if draw(st.booleans()):
        given["meta_ext"] = draw(OBJECTS)
    return MCPResponseMeta(**given)


METAS = st.one_of(
    st.builds(LocalResponseMeta, TEXT, st.integers(0, 2**53)),
    st.builds(
        HTTPResponseMeta,
        st.integers(100, 599),
        st.dictionaries(TEXT, TEXT, max_size=3),
        TEXT,
        st.none() | st.lists(TEXT, max_size=2),
    ),
    _mcp_metas(),
)
ENVELOPES = st.builds(
    ResponseEnvelope,
    JSON | st.binary(max_size=20),
    METAS,
    st.lists(ISSUES, max_size=2).map(tuple),
    st.lists(CHANGES, max_size=2).map(tuple),
)
IDENTITIES = st.builds(
    Identity,
    TEXT,
    st.lists(TEXT, max_size=3),
    st.dictionaries(TEXT, st.lists(TEXT, max_size=2), max_size=2),
)
POSITIVE = st.floats(0, 1e300, exclude_min=True) | st.integers(1, 2**60)
COUNTS = st.none() | st.integers(0, 2**63)
EVENTS = st.one_of(
    st.builds(
        CallRequested,
        IDS,
        TEXT,
        JSON,
        st.none() | IDS,
        st.none() | NUMBERS,
        st.none() | POSITIVE,
        st.none() | IDENTITIES,
        st.none() | OBJECTS,
        st.lists(TEXT, max_size=MAX_CHAIN).map(tuple),
        st.booleans(),
    ),
    st.builds(CallResponded, IDS, ENVELOPES, COUNTS),
    st.builds(CallFailed, IDS, st.text(min_size=1, max_size=8), TEXT, JSON),
    st.builds(CallAborted, IDS),
    st.builds(CallCompleted, IDS, COUNTS),
)
VALIDATORS = {
    kind: jsonschema_rs.validator_for(schema, offline=True)
    for kind, schema in CALL_EVENT_SCHEMAS.items()
}


# --- round trips ----------------------------------------------------------------------------


@given(EVENTS)
def test_an_event_means_the_same_after_a_wire(event):
    text = write_event(event)
    twin = read_event(text)
    assert type(twin) is type(event)
    assert twin == event
    # Equality takes 1 for True and 1.0: the text does not.
    assert json.loads(write_event(twin)) == json.loads(text)
    assert json.dumps(json.loads(write_event(twin))) == json.dumps(json.loads(text))


@given(EVENTS)
def test_plain_data_and_text_tell_the_same_and_keep_the_published_schema(event):
    wire = encode_event(event)
    assert json.loads(json.dumps(wire)) == json.loads(write_event(event))
    assert decode_event(wire) == event
    assert VALIDATORS[event.type].is_valid(json.loads(write_event(event)))


@given(EVENTS)
def test_what_is_not_set_is_left_out_and_what_is_needed_is_always_there(event):
    wire = json.loads(write_event(event))
    needed = set(CALL_EVENT_SCHEMAS[event.type]["required"])
    assert needed <= set(wire)
    assert all(wire[key] is not None for key in set(wire) - {"input", "details"})
    if isinstance(event, CallRequested):
        optional = ("parent_request_id", "deadline", "idle_timeout", "identity", "metadata")
        names = ("parentRequestId", "deadline", "idleTimeout", "identity", "metadata")
        for field, name in zip(optional, names, strict=True):
            assert (name in wire) == (getattr(event, field) is not None)
        assert ("chain" in wire) == bool(event.chain)
        assert ("stream" in wire) == event.stream


@given(EVENTS)
def test_encoding_changes_nothing_in_the_event(event):
    before = copy.deepcopy(event)
    write_event(event)
    encode_event(event)
    assert event == before


@given(ENVELOPES, IDS)
def test_an_answer_stays_an_envelope_with_all_that_stands_beside_it(envelope, request_id):
    output = read_event(write_event(CallResponded(request_id, envelope))).output
    assert is_response_envelope(output)
    assert type(output.data) is type(envelope.data)
    assert (output.warnings, output.changes) == (envelope.warnings, envelope.changes)
    assert output.meta == envelope.meta


# --- reading is total -----------------------------------------------------------------------


def _event_or_none(read, wire):
    """The event, or None if it is none; whatever else is raised breaks the law."""
    try:
        event = read(wire)
    except InvalidEvent as error:
        refused = error
    else:
        assert event.type in EVENT_TYPES
        return event
    assert refused.issues
    assert all(isinstance(issue, Issue) for issue in refused.issues)
    assert refused.request_id is None or isinstance(refused.request_id, str)
    assert str(refused).startswith("not an event of the call protocol")
    return None


def _is_told_apart(wire, event):
    """A message is an event exactly if the published schema of its type says so."""
    kind = wire.get("type") if isinstance(wire, dict) else None
    if not isinstance(kind, str) or kind not in VALIDATORS:
        return event is None
    return (event is not None) <= VALIDATORS[kind].is_valid(wire)


@given(JSON)
def test_any_json_is_an_event_or_none(wire):
    assert _is_told_apart(wire, _event_or_none(decode_event, wire))


@given(st.sampled_from(EVENT_TYPES), IDS, OBJECTS)
def test_any_object_that_says_it_is_an_event_is_one_or_none(kind, request_id, more):
    wire = {**more, "type": kind, "requestId": request_id}
    event = _event_or_none(decode_event, wire)
    assert _is_told_apart(wire, event)
    if event is not None:
        assert event.request_id == request_id


def _places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, child in items:
        yield from _places(child, (*path, key))


@st.composite
def _mutated(draw):
    """A valid event in which one place was removed, replaced or joined by another."""
    wire = json.loads(write_event(draw(EVENTS)))
    for _ in range(draw(st.integers(1, 3))):
        places = [place for place in _places(wire) if place]
        if not places:
            break
        *path, last = draw(st.sampled_from(places))
        holder = wire
        for key in path:
            holder = holder[key]
        change = draw(st.sampled_from(["remove", "replace", "wrap", "add"]))
        if change == "remove":
            del holder[last]
        elif change == "replace":
            holder[last] = draw(JSON)
        elif change == "wrap":
            holder[last] = draw(st.sampled_from([[holder[last]], {"data": holder[last]}]))
        elif isinstance(holder, dict):
            holder[draw(KEYS)] = draw(JSON)
    return wire


@given(_mutated())
def test_a_damaged_event_is_an_event_or_none(wire):
    before = copy.deepcopy(wire)
    event = _event_or_none(decode_event, wire)
    assert _is_told_apart(wire, event)
    assert wire == before
    if event is not None:
        assert decode_event(encode_event(event)) == event
        if isinstance(event, CallFailed):
            assert event.error.message or not event.message


@given(st.binary(max_size=60) | TEXT)
@example(b"")
@example(b"\xef\xbb\xbf{}")
@example(b'"\\ud800"')
def test_any_bytes_are_an_event_or_none(text):
    _event_or_none(read_event, text)


@given(EVENTS, st.data())
def test_damaged_text_of_an_event_is_an_event_or_none(event, data):
    text = bytearray(write_event(event))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(place, min(len(text), place + 5)))
        text[place:until] = data.draw(st.binary(max_size=3) | st.sampled_from([b'"', b"{", b"\\u"]))
    _event_or_none(read_event, bytes(text))


# --- errors ---------------------------------------------------------------------------------

RESERVED = {*CODES, *(row.event for row in CODES.values()), "UNKNOWN_ERROR"}
OWN_CODES = st.text(min_size=1, max_size=12).filter(lambda code: code not in RESERVED)
DETAILS = st.dictionaries(KEYS | st.just("issues"), JSON, max_size=3)
SOME_ISSUES = st.lists(ISSUES, min_size=1, max_size=3)
ERRORS = st.one_of(
    st.builds(UnknownTool, TEXT, st.lists(TEXT, max_size=2)),
    st.builds(lambda text, details: AccessDenied(text, details=details), TEXT, DETAILS),
    st.builds(
        lambda code, text, path, details: NotAllowed(code, text, path=path, details=details),
        st.sampled_from(["component_not_on_palette", "component_not_allowed"]),
        TEXT,
        st.none() | TEXT,
        DETAILS,
    ),
    st.builds(
        lambda code, text, path, details: ToolError(code, text, path=path, details=details),
        OWN_CODES,
        TEXT,
        st.none() | TEXT,
        DETAILS,
    ),
    st.builds(lambda text, details: UpstreamError(text, details=details), TEXT, DETAILS),
    st.builds(lambda tool, at, begun: Timeout(tool, at, begun=begun), TEXT, NUMBERS, st.booleans()),
    st.builds(Aborted, TEXT),
    st.builds(HandlerCrashed, TEXT),
    SOME_ISSUES.map(lambda issues: InvalidInput(lambda: issues)),
    SOME_ISSUES.map(lambda issues: OutputRejected(lambda: issues)),
)


def _crossed(error):
    return read_event(write_event(CallFailed.of("1", error))).error


def _state(error):
    return (error.code, error.message, error.path, error.issues, error.details)


@given(ERRORS)
def test_every_error_crosses_the_bus_whole_and_in_its_class(error):
    crossed = _crossed(error)
    assert crossed == error
    assert _state(crossed) == _state(error)
    assert str(crossed) == str(error)


@given(st.builds(Silent, TEXT, POSITIVE) | SOME_ISSUES.map(lambda found: NotJson(lambda: found)))
def test_errors_that_share_a_code_with_another_class_keep_what_they_say(error):
    assert _state(_crossed(error)) == _state(error)


@given(st.sampled_from(sorted(CODES)), TEXT.filter(bool), SOME_ISSUES, DETAILS)
def test_every_code_crosses_with_issues_and_details_at_once(code, message, issues, details):
    error = restored(code, message, path=issues[0].path, issues=issues, details=details)
    event = CallFailed.of("1", error)
    assert event.code == CODES[code].event
    assert _crossed(error) == error


ODD = st.sampled_from([object(), {1, 2}, b"bytes", {1: 2}, float("nan"), ValueError("x"), "\ud800"])
ODD_DETAILS = st.recursive(
    SCALARS | ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | NUMBERS, inner, max_size=3),
    max_leaves=6,
)


@given(OWN_CODES, TEXT, ODD_DETAILS)
@example("sold_out", "", float("nan"))
@example("sold_out", "", [{"at": dt.datetime(2026, 1, 1)}])
def test_whatever_the_details_are_the_error_arrives_and_they_are_json(code, message, odd):
    event = CallFailed.of("1", ToolError(code, message, details={"odd": odd}))
    json.dumps(encode_event(event), allow_nan=False)
    error = _crossed(ToolError(code, message, details={"odd": odd}))
    assert (error.code, error.message) == (code, message)
    assert set(error.details) == {"odd"}


@given(st.text(min_size=1, max_size=12) | st.sampled_from(sorted(RESERVED)), TEXT, JSON)
def test_any_error_of_anybody_is_one_of_ours_that_can_be_sent_on(code, message, details):
    wire = {"type": "call.error", "requestId": "1", "code": code, "message": message}
    error = decode_event({**wire, "details": details}).error
    assert error.message == message or not message
    assert error.path is None or isinstance(error.path, str)
    assert _crossed(error).code == error.code
