"""Errors are data: one tree, texts that say what to do."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import json
import pickle
import re

import pytest

from callpact import errors
from callpact.codes import CODES, OWN_CODE
from callpact.errors import (
    Aborted,
    AccessDenied,
    CallError,
    CallpactError,
    CastError,
    ClientUnable,
    CodeOutdated,
    DeclarationError,
    DuplicateTool,
    Failed,
    HandlerCrashed,
    InvalidEvent,
    InvalidInput,
    InvalidSchema,
    InvalidTool,
    Issue,
    LimitReached,
    ModelError,
    NotAllowed,
    NotAnEnvelope,
    NotConfirmed,
    NotJson,
    NotRecorded,
    OutputRejected,
    OutputSchemaError,
    PauseAsked,
    Rejected,
    ReliabilityFailFastError,
    RunPaused,
    RunStopped,
    Silent,
    SourceRefused,
    Timeout,
    ToolError,
    UnknownTool,
    Unreadable,
    UpstreamError,
    UsageError,
    restored,
)
from callpact.protocol import CallFailed, decode_event, read_event, write_event
from callpact.runtime import Runtime
from callpact.tool import Contract, Tool

ISSUES = (
    Issue("required", "Property 'q' is required", "/q", hint="q: what to look for"),
    Issue("type", "Property 'limit' must be an integer, got string", "/limit", "integer", "string"),
)

EVERY_CALL_ERROR = [
    CallError("own", "text", path="/a", issues=ISSUES, details={"k": [1]}),
    UnknownTool("shop.serch", ["shop.search"]),
    Rejected("access_denied", "no"),
    AccessDenied(),
    AccessDenied("no", details={"missing": ["a"]}),
    NotConfirmed("a.b", "the user did not agree"),
    NotAllowed("component_not_allowed", "not here", path="/slot"),
    InvalidInput(lambda: ISSUES),
    PauseAsked("Tea?", {"step": 1}),
    ToolError("invalid_input", "startDate must be before endDate", path="/startDate"),
    Failed("server_param_missing", "no key"),
    UpstreamError("HTTP 503: Unavailable", details={"status": 503}),
    Timeout("a.b", 12.5),
    Timeout("a.b", 12.5, begun=False),
    Silent("a.b", 250),
    Aborted("a.b"),
    ClientUnable("yours cannot", "elicitation"),
    HandlerCrashed("a.b"),
    OutputRejected(lambda: ISSUES),
    NotJson(lambda: ISSUES),
]


@pytest.mark.requirement("004.custom.tool-error-is-clean")
def test_a_tool_errors_own_code_is_rendered_as_the_designs_row_for_tools():
    error = ToolError("invalid_input", "startDate must be before endDate")
    assert (error.code, error.message, error.path) == (
        "invalid_input",
        "startDate must be before endDate",
        None,
    )
    assert error.row is OWN_CODE
    assert (OWN_CODE.flowmcp, OWN_CODE.http) == ("E005", 422)


def test_what_a_handler_passes_as_message_becomes_text():
    error = ToolError("sold_out", ValueError("no tea left"))
    assert error.message == "no tea left"
    assert ToolError(404, "gone").code == "404"


def test_everything_callpact_raises_has_one_root_and_the_tree_of_the_docstring():
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, BaseException)
    ]
    assert all(issubclass(kind, CallpactError) for kind in classes)
    public = {kind.__name__ for kind in classes if not kind.__name__.startswith("_")}
    assert {name for name in public if name not in errors.__doc__} == set()
    for child, parent in [
        (InvalidSchema, DeclarationError),
        (InvalidTool, DeclarationError),
        (DuplicateTool, DeclarationError),
        (SourceRefused, DeclarationError),
        (UnknownTool, CallError),
        (AccessDenied, Rejected),
        (InvalidInput, Rejected),
        (NotAllowed, Rejected),
        (Rejected, CallError),
        (ToolError, CallError),
        (UpstreamError, Failed),
        (Timeout, Failed),
        (Aborted, Failed),
        (HandlerCrashed, Failed),
        (Silent, Timeout),
        (InvalidEvent, CallpactError),
        (NotAnEnvelope, UsageError),
        (NotAnEnvelope, TypeError),
        (OutputRejected, CallError),
        (NotJson, OutputRejected),
        (CastError, CallpactError),
        (PauseAsked, CallError),
        (Unreadable, CallpactError),
        (Unreadable, ValueError),
        (OutputSchemaError, CallpactError),
        (RunStopped, CallpactError),
        (LimitReached, RunStopped),
        (RunPaused, RunStopped),
        (ReliabilityFailFastError, RunStopped),
        (ModelError, CallpactError),
        (UsageError, RuntimeError),
    ]:
        assert issubclass(child, parent)
    assert not issubclass(UsageError, CallError)
    assert not issubclass(InvalidEvent, CallError)
    assert not issubclass(OutputSchemaError, CallError)
    assert not issubclass(RunStopped, CallError)
    assert not issubclass(PauseAsked, Rejected)


@pytest.mark.parametrize("error", EVERY_CALL_ERROR, ids=lambda error: type(error).__name__)
def test_a_call_error_survives_pickling_and_copying_as_an_equal_of_the_same_class(error):
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert twin == error
        assert (twin.code, twin.message, twin.path, twin.issues, twin.details) == (
            error.code,
            error.message,
            error.path,
            error.issues,
            error.details,
        )
        assert str(twin) == str(error)


def test_declaration_errors_survive_pickling_with_their_text():
    for error in (
        InvalidSchema("'str' is not a type", "/properties/q/type"),
        InvalidTool("no"),
        DuplicateTool("a.b", "one", "two"),
        CastError("no default", "/x"),
        UsageError("no"),
        NotAnEnvelope("no"),
    ):
        twin = pickle.loads(pickle.dumps(error))
        assert type(twin) is type(error)
        assert str(twin) == str(error)


def test_errors_with_the_same_content_are_equal_and_hash_alike():
    one, two = InvalidInput(lambda: ISSUES), InvalidInput(lambda: list(ISSUES))
    assert one == two
    assert hash(one) == hash(two)
    assert one != OutputRejected(lambda: ISSUES)
    assert one != InvalidInput(lambda: ISSUES[:1])
    assert one != "schema_validation_failed"


def test_the_first_issue_fills_message_and_path_and_the_rest_stay():
    error = InvalidInput(lambda: ISSUES)
    assert error.code == "schema_validation_failed"
    assert (error.message, error.path) == (ISSUES[0].message, "/q")
    assert error.issues == ISSUES


def test_issues_are_written_once_and_only_when_they_are_read():
    written = []

    def write():
        written.append(1)
        return ISSUES

    error = InvalidInput(write)
    assert error.code == "schema_validation_failed"
    assert written == []
    assert error.issues == error.issues == ISSUES
    assert written == [1]


def test_the_text_of_a_rejection_says_what_where_what_to_do_and_how_many_more():
    text = str(InvalidInput(lambda: ISSUES))
    assert text.startswith("schema_validation_failed: Property 'q' is required")
    assert "/q" in text
    assert "q: what to look for" in text
    assert "1 more" in text


def test_the_repr_of_an_error_tells_its_code_and_message():
    assert repr(InvalidInput(lambda: ISSUES[:1])) == (
        "InvalidInput('schema_validation_failed', \"Property 'q' is required\", path='/q')"
    )
    assert repr(Aborted("a.b")) == "Aborted('aborted', \"The call of 'a.b' was cancelled\")"


def test_an_error_without_issues_still_has_a_message():
    assert InvalidInput(list).message == CODES["schema_validation_failed"].meaning


def test_an_unknown_tool_names_what_was_asked_for_and_the_nearest():
    error = UnknownTool("shop.serch", ["shop.search"])
    assert error.code == "tool_not_found"
    assert "'shop.serch'" in error.message
    assert "did you mean 'shop.search'?" in error.message
    assert error.details == {"operationId": "shop.serch"}


def test_a_deadline_that_was_over_before_the_call_says_that_nothing_ran():
    late, over = Timeout("a.b", 5.0), Timeout("a.b", 5.0, begun=False)
    assert late.code == over.code == "timeout"
    assert late.details == over.details == {"deadline": 5.0}
    assert "nothing was run" in over.message
    assert "nothing was run" not in late.message


def test_a_duplicate_names_both_sources_and_the_way_out():
    text = str(DuplicateTool("a.b", "one.py ('a.b')", "two.py ('a.b')"))
    assert "'a.b'" in text
    assert "one.py" in text
    assert "two.py" in text
    assert "rename" in text


# --- errors of the call protocol ------------------------------------------------------------

# The errors.py tree: which class each reserved code stands for.
CLASS_OF = {
    "schema_validation_failed": InvalidInput,
    "component_not_on_palette": NotAllowed,
    "component_not_allowed": NotAllowed,
    "access_denied": AccessDenied,
    "not_confirmed": NotConfirmed,
    "tool_not_found": UnknownTool,
    "tool_error": CallError,
    "address_not_allowed": Failed,
    "upstream_error": UpstreamError,
    "server_param_missing": Failed,
    "output_validation_failed": OutputRejected,
    "timeout": Timeout,
    "aborted": Aborted,
    "client_unable": ClientUnable,
    "overloaded": Failed,
    "code_outdated": CodeOutdated,
    "not_recorded": NotRecorded,
    "idempotency_key_invalid": Rejected,
    "idempotency_key_reused": Rejected,
    "idempotency_key_in_use": Rejected,
    "idempotency_answer_unavailable": Rejected,
    "idempotency_not_recorded": Failed,
    "paused": PauseAsked,
    "handler_error": HandlerCrashed,
}


def test_every_reserved_code_has_a_class():
    assert set(CLASS_OF) == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_an_error_of_another_process_is_restored_in_the_class_of_its_code(code):
    error = restored(code, "as it was", issues=ISSUES, path="/q", details={"k": [1]})
    assert type(error) is CLASS_OF[code]
    assert (error.code, error.message, error.path) == (code, "as it was", "/q")
    assert (error.issues, error.details) == (ISSUES, {"k": [1]})
    assert error.row is CODES[code]
    assert str(error).startswith(f"{code}: as it was (at /q)")
    assert pickle.loads(pickle.dumps(error)) == error
    assert error == restored(code, "as it was", issues=ISSUES, path="/q", details={"k": [1]})


@pytest.mark.parametrize("code", ["sold_out", "RATE_LIMITED", "Timeout", "x" * 500, " "])
def test_a_code_that_is_not_reserved_is_a_tools_own(code):
    error = restored(code, "no")
    assert type(error) is ToolError
    assert (error.code, error.message, error.path) == (code, "no", None)
    assert (error.issues, error.details) == ((), {})
    assert error.row is OWN_CODE


def test_the_details_of_a_restored_error_are_its_own():
    details = {"k": 1}
    error = restored("sold_out", "no", details=details)
    details["k"] = 2
    assert error.details == {"k": 1}


def test_a_caller_who_may_not_is_told_what_is_missing_in_the_details():
    assert AccessDenied().details == {}
    assert AccessDenied().message == "You may not use this tool"
    error = AccessDenied("no", details={"missing": ["a", "b"]})
    assert (error.code, error.message) == ("access_denied", "no")
    assert error.details == {"missing": ["a", "b"]}


def test_a_pause_of_another_process_has_no_question():
    error = restored("paused", "wait")
    assert (type(error), error.question, error.state) == (PauseAsked, None, None)


ANSWER_ERRORS = [
    (OutputSchemaError("json-parse", "raw", ValueError("x")), "ERR_OUTPUT_SCHEMA", "not JSON"),
    (OutputSchemaError("schema-validate", "raw", ValueError("x")), "ERR_OUTPUT_SCHEMA", "schema"),
    (RunStopped("ended"), "ERR_STOPPED", "ended"),
    (LimitReached("tokens", 5), "ERR_LIMIT_REACHED", "limits(tokens="),
    (ReliabilityFailFastError("mine", label="words"), "ERR_RELIABILITY_FAIL_FAST", "words (mine)"),
    (ModelError("down", status=503, transient=True), "ERR_MODEL", "down"),
]


@pytest.mark.parametrize(("error", "code", "words"), ANSWER_ERRORS)
def test_the_errors_of_an_agent_have_codes_and_say_what_to_do(error, code, words):
    assert error.code == code
    assert words in str(error)


def test_an_agents_error_is_short_however_long_its_cause_is():
    cause = ValueError("x" * 100_000)
    assert len(str(OutputSchemaError("json-parse", "y" * 100_000, cause))) < 1_000
    assert len(str(ReliabilityFailFastError("mine", cause=cause))) < 1_000


@pytest.mark.parametrize(("error", "code", "words"), ANSWER_ERRORS)
def test_the_errors_of_an_agent_survive_pickling_and_copying(error, code, words):
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert (str(twin), twin.code) == (str(error), code)


def test_a_client_that_cannot_be_asked_is_told_what_it_lacks_in_this_process_only():
    assert ClientUnable("yours cannot", "sampling").missing == "sampling"
    assert ClientUnable("no answer").missing is None
    assert restored("client_unable", "yours cannot").missing is None


def test_silence_is_a_timeout_that_tells_how_long_it_lasted():
    error = Silent("feed.ticks", 1500.0)
    assert error.code == "timeout"
    assert error.details == {"idleTimeout": 1500.0}
    assert "'feed.ticks'" in error.message
    assert "1500 ms" in error.message


def test_a_message_that_is_no_event_tells_the_first_reasons_and_how_many_more():
    issues = [Issue("required", f"Property '{name}' is required", f"/{name}") for name in "abcde"]
    error = InvalidEvent(issues, "7", "call.requested")
    assert error.issues == tuple(issues)
    assert (error.request_id, error.type) == ("7", "call.requested")
    text = str(error)
    assert "not an event of the call protocol" in text
    assert all(f"Property '{name}' is required (at /{name})" in text for name in "abc")
    assert "'d'" not in text
    assert "2 more" in text
    assert "more" not in str(InvalidEvent(issues[:3]))
    assert InvalidEvent(issues[:1]).request_id is None


def test_a_message_that_is_no_event_may_be_told_of_without_any_reason():
    assert "not an event of the call protocol" in str(InvalidEvent([]))


def test_an_invalid_event_survives_pickling_and_copying_with_its_reasons():
    error = InvalidEvent(ISSUES, "7", "call.error")
    for twin in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is InvalidEvent
        assert (twin.issues, twin.request_id, twin.type) == (ISSUES, "7", "call.error")
        assert str(twin) == str(error)


# --- errors on the bus ----------------------------------------------------------------------


def _nested(depth, core=1):
    for _ in range(depth):
        core = [core]
    return core


def _crossed(error):
    return read_event(write_event(CallFailed.of("1", error))).error


@pytest.mark.parametrize("code", CODES)
def test_every_reserved_code_crosses_under_its_upper_case_name_and_comes_back(code):
    for error in (
        restored(code, "no"),
        restored(code, "no", path="/a"),
        restored(code, "no", issues=ISSUES, path="/q"),
        restored(code, "no", issues=ISSUES, path="/q", details={"k": 1}),
        restored(code, "no", details={"k": {"l": [None]}}),
    ):
        event = CallFailed.of("1", error)
        assert (event.code, event.message) == (CODES[code].event, "no")
        assert _crossed(error) == error


@pytest.mark.parametrize(
    "error",
    [
        UnknownTool("shop.serch", ["shop.search"]),
        AccessDenied(),
        AccessDenied("no", details={"missing": ["a"]}),
        NotConfirmed("a.b", "the user did not agree"),
        NotAllowed("component_not_allowed", "not here", path="/slot"),
        NotAllowed("component_not_on_palette", "none such"),
        InvalidInput(lambda: ISSUES),
        InvalidInput(list),
        ToolError("sold_out", "no tea left"),
        ToolError("sold_out", "", path="", details={"left": 0}),
        ToolError("SOLD OUT!", "ü \U0001f600", path="/a~1b"),
        Failed("server_param_missing", "no key"),
        Failed("address_not_allowed", "10.0.0.1"),
        UpstreamError("HTTP 503: Unavailable", details={"statusCode": 503, "body": "…"}),
        Timeout("a.b", 12.5),
        Timeout("a.b", 1_700_000_000_000, begun=False),
        Silent("a.b", 250),
        Aborted("a.b"),
        ClientUnable("yours cannot", "elicitation"),
        HandlerCrashed("a.b"),
        OutputRejected(lambda: ISSUES),
        NotJson(lambda: ISSUES),
        CallError("tool_error", "the text of an MCP server"),
    ],
    ids=repr,
)
def test_every_error_crosses_the_bus_as_its_equal_of_the_same_class(error):
    assert _crossed(error) == error


@pytest.mark.parametrize(
    "error",
    [
        CallError("own", "text"),
        CallError("own", "text", path="/a", issues=ISSUES, details={"k": [1]}),
        CallError("own", "text", issues=ISSUES),
        Rejected("access_denied", "no"),
        Failed("aborted", "the reader fell behind"),
        Failed("handler_error", "'a.b' is a subscription: subscribe to it"),
        NotAllowed("component_not_allowed", "no", path="/slot", issues=ISSUES),
    ],
    ids=repr,
)
def test_an_error_of_a_wider_class_crosses_into_one_that_is_caught_in_the_same_way(error):
    crossed = _crossed(error)
    assert isinstance(crossed, type(error))
    assert (crossed.code, crossed.message, crossed.path) == (error.code, error.message, error.path)
    assert (crossed.issues, crossed.details) == (error.issues, error.details)


@pytest.mark.parametrize("key", ["path", "issues", "code", "message", "details", "requestId"])
@pytest.mark.parametrize("value", ["/a", "timeout", 5, None, [], [{"path": "/a", "message": "m"}]])
@pytest.mark.parametrize("make", [ToolError, lambda _code, text, **k: UpstreamError(text, **k)])
def test_details_may_use_the_words_of_the_protocol_for_something_else(make, key, value):
    for error in (
        make("sold_out", "no", details={key: value}),
        make("sold_out", "no", details={key: value, "left": 0}),
    ):
        assert _crossed(error) == error


@pytest.mark.parametrize(
    "code", [*CODES, *sorted({row.event for row in CODES.values()}), "UNKNOWN_ERROR"]
)
def test_a_tools_own_code_stays_as_it_is_even_if_it_looks_like_a_reserved_one(code):
    error = ToolError(code, "no tea left", path="/tea", details={"left": 0})
    crossed = _crossed(error)
    assert (crossed.code, crossed.message) == (code, "no tea left")
    assert (crossed.path, crossed.details) == ("/tea", {"left": 0})
    assert isinstance(crossed, ToolError)


def test_an_error_without_a_code_arrives_all_the_same():
    crossed = _crossed(ToolError("", "no tea left"))
    assert isinstance(crossed, ToolError)
    assert crossed.message == "no tea left"


def test_issues_are_told_as_the_seed_tells_them_each_with_path_and_message():
    event = CallFailed.of("1", InvalidInput(lambda: ISSUES))
    assert event.code == "VALIDATION_ERROR"
    assert [(item["path"], item["message"]) for item in event.details] == [
        ("/q", "Property 'q' is required"),
        ("/limit", "Property 'limit' must be an integer, got string"),
    ]
    root = CallFailed.of("1", InvalidInput(lambda: [Issue("type", "Input must be an object")]))
    assert root.details == [{"path": "", "code": "type", "message": "Input must be an object"}]


def test_an_unknown_tool_is_told_with_the_id_that_was_asked_for():
    event = CallFailed.of("1", UnknownTool("shop.serch"))
    assert (event.code, event.details) == ("OPERATION_NOT_FOUND", {"operationId": "shop.serch"})


def test_a_deadline_is_told_in_the_details():
    event = CallFailed.of("1", Timeout("a.b", 1_700_000_000_000))
    assert (event.code, event.details) == ("TIMEOUT", {"deadline": 1_700_000_000_000})


def test_nothing_of_what_a_handler_crashed_with_leaves_the_process():
    async def handler(arguments, context):
        secret = "hunter2"
        raise ValueError(f"cannot open {secret} of {arguments}") from KeyError(secret)

    tool = Tool(id="a.b", description="", contract=Contract(), handler=handler)
    with pytest.raises(HandlerCrashed) as caught:
        asyncio.run(Runtime([tool]).execute("a.b", {"q": "private"}))
    text = write_event(CallFailed.of("1", caught.value)).decode()
    assert json.loads(text)["code"] == "EXECUTION_ERROR"
    assert not re.search("hunter2|private|ValueError|KeyError|Traceback|cannot open", text)


class _Unshowable:
    def __repr__(self):
        raise ValueError("no repr")


class _Graph(dict):
    """A mapping that holds itself, twice; it counts how often it is read."""

    def __init__(self):
        super().__init__()
        self["parent"] = self["child"] = self
        self.reads = 0

    def items(self):
        self.reads += 1
        if self.reads > 10_000:
            raise AssertionError("read without end")
        return super().items()


def _cycle():
    cycle = {}
    cycle["me"] = [cycle]
    return cycle


@pytest.mark.parametrize(
    "make",
    [
        object,
        lambda: {1: {2: 3}},
        lambda: {None: 1, (1, 2): 2, "\ud800": "\udfff"},
        lambda: (1, {"a": (2,)}),
        lambda: b"\xff",
        lambda: 10**5000,
        lambda: 2**70,
        lambda: float("-inf"),
        lambda: ValueError("caught"),
        lambda: dt.date(2026, 1, 1),
        lambda: _nested(129),
        lambda: _nested(240),
        lambda: _nested(5000),
        lambda: _nested(400, {"k": object()}),
        _cycle,
        _Unshowable,
        _Graph,
    ],
    ids=[
        *("object", "numbers as keys", "odd keys", "tuples", "bytes", "vast", "big", "infinite"),
        *("exception", "date", "deep", "deeper", "deepest", "deep and odd", "cycle", "unshowable"),
        "graph",
    ],
)
def test_whatever_a_handler_puts_into_details_its_error_arrives(make):
    crossed = _crossed(ToolError("sold_out", "no tea left", details={"odd": make(), "left": 0}))
    assert (crossed.code, crossed.message) == ("sold_out", "no tea left")
    assert crossed.details["left"] == 0


@pytest.mark.parametrize("odd", [object(), {1, 2}, b"x", float("nan"), dt.date(2026, 1, 1), 2**70])
def test_whatever_an_issue_expects_or_received_its_error_arrives(odd):
    issue = Issue("enum", "Property 'q' is odd", "/q", odd, [odd])
    crossed = _crossed(InvalidInput(lambda: [issue]))
    assert (crossed.path, crossed.message) == ("/q", "Property 'q' is odd")
    assert [found.code for found in crossed.issues] == ["enum"]


FOREIGN = {"type": "call.error", "requestId": "1", "message": "their words"}
ABSENT = ...


# --- errors of other implementations --------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "own", "kind"),
    [
        ("OPERATION_NOT_FOUND", "tool_not_found", UnknownTool),
        ("ACCESS_DENIED", "access_denied", AccessDenied),
        ("VALIDATION_ERROR", "schema_validation_failed", InvalidInput),
        ("TIMEOUT", "timeout", Timeout),
        ("ABORTED", "aborted", Aborted),
        ("EXECUTION_ERROR", "handler_error", HandlerCrashed),
        ("UNKNOWN_ERROR", "handler_error", HandlerCrashed),
        ("RATE_LIMITED", "RATE_LIMITED", ToolError),
        ("rate-limited: 5", "rate-limited: 5", ToolError),
    ],
)
@pytest.mark.parametrize(
    "details",
    [
        ABSENT,
        None,
        "text",
        5,
        True,
        [],
        {},
        [5, "x", None, []],
        [{"message": 5}, {"path": "/a"}, {}],
        [{"path": ["a", 0], "message": "x"}],
        [{"path": None, "message": "x"}],
        {"issues": "none", "path": 7, "code": 5},
        {"code": "no_such_code"},
        {"code": ["timeout"], "issues": {"0": {}}},
        {"issues": [{"message": "x"}], "path": None},
    ],
    ids=repr,
)
def test_a_foreign_error_becomes_ours_whatever_its_details_are(code, own, kind, details):
    wire = {**FOREIGN, "code": code}
    if details is not ABSENT:
        wire["details"] = details
    error = decode_event(wire).error
    assert type(error) is kind
    assert (error.code, error.message) == (own, "their words")
    assert error.path is None or isinstance(error.path, str)
    assert str(error).startswith(f"{own}: their words")
    assert isinstance(error.details, dict)
    assert _crossed(error) == error


def test_foreign_issues_of_path_and_message_become_issues():
    details = [{"path": "/q", "message": "too short"}, {"message": "odd"}, "x", {"path": "/n"}]
    error = decode_event({**FOREIGN, "code": "VALIDATION_ERROR", "details": details}).error
    assert isinstance(error, InvalidInput)
    assert [(issue.path, issue.message) for issue in error.issues] == [
        ("/q", "too short"),
        ("", "odd"),
    ]
    assert (error.path, error.message) == ("/q", "their words")


def test_the_details_of_a_foreign_error_are_kept():
    details = {"statusCode": 503, "retry": {"after": [1, None]}}
    for code in ("EXECUTION_ERROR", "RATE_LIMITED", "TIMEOUT"):
        error = decode_event({**FOREIGN, "code": code, "details": details}).error
        assert error.details == details


def test_a_code_in_the_details_counts_only_where_the_events_code_allows_it():
    def read(code, own):
        details = {"callpact": {"code": own}}
        return decode_event({**FOREIGN, "code": code, "details": details}).error

    assert read("EXECUTION_ERROR", "upstream_error") == restored("upstream_error", "their words")
    assert read("VALIDATION_ERROR", "component_not_allowed").code == "component_not_allowed"
    for code, own in [("EXECUTION_ERROR", "access_denied"), ("TIMEOUT", "upstream_error")]:
        error = read(code, own)
        assert error.row.event == code
        assert error.details == {}
