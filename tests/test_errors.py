"""Errors are data: one tree, one table of codes, texts that say what to do."""

from __future__ import annotations

import copy
import pickle

import pytest

from callpact import errors
from callpact.errors import (
    CODES,
    OWN_CODE,
    Aborted,
    AccessDenied,
    CallError,
    CallpactError,
    CastError,
    DeclarationError,
    DuplicateTool,
    Failed,
    HandlerCrashed,
    InvalidInput,
    InvalidSchema,
    InvalidTool,
    Issue,
    NotAllowed,
    NotJson,
    OutputRejected,
    Rejected,
    SourceRefused,
    Timeout,
    ToolError,
    UnknownTool,
    UpstreamError,
    UsageError,
)

# Design, section 5: code on the wire, seed 001, FlowMCP, HTTP.
DESIGN = {
    "schema_validation_failed": ("VALIDATION_ERROR", "E004", 400),
    "component_not_on_palette": ("VALIDATION_ERROR", "E004", 400),
    "component_not_allowed": ("VALIDATION_ERROR", "E004", 400),
    "access_denied": ("ACCESS_DENIED", "E007", 403),
    "tool_not_found": ("OPERATION_NOT_FOUND", "E008", 404),
    "tool_error": ("TOOL_ERROR", "E005", 502),
    "address_not_allowed": ("EXECUTION_ERROR", "E002", 502),
    "upstream_error": ("EXECUTION_ERROR", "E001", 502),
    "server_param_missing": ("EXECUTION_ERROR", "E006", 503),
    "output_validation_failed": ("OUTPUT_VALIDATION_ERROR", "E009", 502),
    "timeout": ("TIMEOUT", "E002", 504),
    "aborted": ("ABORTED", "E002", 503),
    "handler_error": ("EXECUTION_ERROR", "E005", 500),
}

ISSUES = (
    Issue("required", "Property 'q' is required", "/q", hint="q: what to look for"),
    Issue("type", "Property 'limit' must be an integer, got string", "/limit", "integer", "string"),
)

EVERY_CALL_ERROR = [
    CallError("own", "text", path="/a", issues=ISSUES, details={"k": [1]}),
    UnknownTool("shop.serch", ["shop.search"]),
    Rejected("access_denied", "no"),
    AccessDenied(),
    NotAllowed("component_not_allowed", "not here", path="/slot"),
    InvalidInput(lambda: ISSUES),
    ToolError("invalid_input", "startDate must be before endDate", path="/startDate"),
    Failed("server_param_missing", "no key"),
    UpstreamError("HTTP 503: Unavailable", details={"status": 503}),
    Timeout("a.b", 12.5),
    Timeout("a.b", 12.5, begun=False),
    Aborted("a.b"),
    HandlerCrashed("a.b"),
    OutputRejected(lambda: ISSUES),
    NotJson(lambda: ISSUES),
]


def test_the_table_of_codes_is_the_one_of_the_design():
    table = {code: (row.event, row.flowmcp, row.http) for code, row in CODES.items()}
    assert table == DESIGN
    assert all(row.code == code and row.meaning for code, row in CODES.items())


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


def test_every_exit_code_tells_a_failure_from_success():
    assert all(row.exit > 0 for row in (*CODES.values(), OWN_CODE))


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
        (OutputRejected, CallError),
        (NotJson, OutputRejected),
        (CastError, CallpactError),
        (UsageError, RuntimeError),
    ]:
        assert issubclass(child, parent)
    assert not issubclass(UsageError, CallError)


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
