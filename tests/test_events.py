"""What observers hear: one frozen record per call, whatever became of it."""

from __future__ import annotations

import asyncio
import time

import pytest

from callpact.envelope import local_envelope
from callpact.errors import (
    Aborted,
    AccessDenied,
    HandlerCrashed,
    InvalidInput,
    NotAllowed,
    NotJson,
    OutputRejected,
    Timeout,
    ToolError,
    UnknownTool,
    UpstreamError,
)
from callpact.events import CallFinished
from callpact.runtime import Runtime
from callpact.tool import Contract, Tool


def _event(error=None, envelope=None):
    return CallFinished("1", "a.b", {}, 0, 0.0, envelope, error)


@pytest.mark.parametrize(
    ("error", "gate"),
    [
        (UnknownTool("a.b"), "find"),
        (AccessDenied(), "access"),
        (InvalidInput(list), "input"),
        (NotAllowed("component_not_allowed", "no"), "input"),
        (ToolError("sold_out", "no"), "handler"),
        (UpstreamError("no"), "handler"),
        (Timeout("a.b", 1), "handler"),
        (Aborted("a.b"), "handler"),
        (HandlerCrashed("a.b"), "handler"),
        (OutputRejected(list), "output"),
        (NotJson(list), "output"),
    ],
)
def test_an_event_says_where_the_call_was_stopped(error, gate):
    assert _event(error).gate == gate
    assert _event(error).is_error


def test_a_result_was_stopped_nowhere():
    event = _event(envelope=local_envelope(1, "a.b"))
    assert event.gate is None
    assert not event.is_error


def test_an_event_cannot_be_changed():
    with pytest.raises(AttributeError):
        _event().error = None


def test_an_event_tells_when_the_call_began_and_how_long_it_took():
    async def handler(arguments, context):
        return None

    events = []
    tool = Tool(id="a.b", description="", contract=Contract(), handler=handler)
    before = time.time_ns() // 1_000_000
    asyncio.run(Runtime([tool], observers=[events.append]).execute("a.b"))
    after = time.time_ns() // 1_000_000
    (event,) = events
    assert before <= event.started <= after
    assert event.duration >= 0
