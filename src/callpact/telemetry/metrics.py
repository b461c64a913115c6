"""Metrics for Prometheus: the number of calls, their outcomes and their durations.

An observer that counts, and the page that a scraper reads (text format 0.0.4). Values that a caller
can choose are never a label: neither the caller nor the name of an unknown tool. It serves nothing
itself and keeps no call.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from callpact.codes import CODES
from callpact.envelope import MCPResponseMeta, ResponseEnvelope
from callpact.errors import CallError
from callpact.observers import CallFinished

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets, in seconds."""
MAX_TOOLS = 500
"""Tools with their own series; the calls of further ones are counted as `other`."""
MAX_OWN_CODES = 100
"""Codes of tools' own with a label of their own; further ones are counted as `other`."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

OTHER = "other"
UNKNOWN = "unknown"
"""The label of calls of unknown tools. An id has a dot, so no tool has this name."""

Outcome = Literal["ok", "rejected", "failed"]
"""A result; stopped before the handler; or failed in the handler or at the output gate."""

_CODE = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")
_RUN = frozenset({"handler", "output"})


@dataclass(frozen=True, slots=True)
class End:
    """The outcome of a call, in a bounded set of labels."""

    outcome: Outcome
    gate: str = ""
    code: str = ""


_OK = End("ok")
_TOOL_ERROR = End("failed", "handler", "tool_error")


def end_of(event: CallFinished) -> End:
    """Return the outcome of a call; a tool's own code that is not a valid label becomes `other`.

    An MCP server's result with isError is a failure, though it is delivered like a result.
    """
    error = event.error
    if error is None:
        return _TOOL_ERROR if _is_tool_error(event.envelope) else _OK
    gate, code = event.gate or "handler", str(error.code)
    outcome: Outcome = "failed" if gate in _RUN else "rejected"
    return End(outcome, gate, code if _CODE.fullmatch(code) else OTHER)


def _is_tool_error(envelope: ResponseEnvelope[Any] | None) -> bool:
    if envelope is None:
        return False
    meta = envelope.meta
    return type(meta) is MCPResponseMeta and meta.is_error


@dataclass(frozen=True, slots=True)
class MetricReading:
    """A metric that is kept elsewhere: `read` is called for each page, and must be quick."""

    name: str
    help: str
    read: Callable[[], float]
    kind: Literal["counter", "gauge"] = "gauge"


class _Times:
    """The durations of the calls of one tool with one outcome."""

    __slots__ = ("counts", "seconds", "warned")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0
        self.warned = 0


class _Stops:
    """The number of calls of one tool with one failure, and the durations of their outcome."""

    __slots__ = ("number", "times")

    def __init__(self, times: _Times) -> None:
        self.number = 0
        self.times = times


class Metrics:
    """Observer that counts calls; `render` returns the page. Thread-safe."""

    def __init__(self, readings: Iterable[MetricReading] = ()) -> None:
        self._readings = tuple(readings)
        self._lock = threading.Lock()
        self._results: dict[str, _Times] = {}
        self._others: dict[tuple[str, Outcome], _Times] = {}
        self._stopped: dict[tuple[str, End], _Stops] = {}
        self._seen: dict[tuple[str, type[CallError | None], str | None], _Stops] = {}
        self._tools: set[str] = set()
        self._codes: set[str] = set(CODES)

    def __call__(self, event: CallFinished) -> None:
        """Count one call."""
        seconds, envelope, error = event.duration, event.envelope, event.error
        at = bisect_left(BUCKETS, seconds)
        with self._lock:
            if error is not None or _is_tool_error(envelope):
                key = (event.tool_id, type(error), None if error is None else error.code)
                stops = self._seen.get(key) or self._stops(event)
                stops.number += 1
                times = stops.times
            else:
                times = self._results.get(event.tool_id) or self._result(event.tool_id)
            times.counts[at] += 1
            times.seconds += seconds
            if envelope is not None and envelope.warnings:
                times.warned += 1

    def _result(self, tool_id: str) -> _Times:
        return self._results.setdefault(self._tool(tool_id), _Times())

    def _stops(self, event: CallFinished) -> _Stops:
        tool = UNKNOWN if event.tool is None else self._tool(event.tool_id)
        end = self._limited(end_of(event))
        stops = self._stopped.get((tool, end))
        if stops is None:
            times = self._others.setdefault((tool, end.outcome), _Times())
            stops = self._stopped[tool, end] = _Stops(times)
        if event.error is not None:
            # By label, so there are as few as series. Computing the labels costs three times more.
            self._seen[tool, type(event.error), end.code] = stops
        return stops

    def _limited(self, end: End) -> End:
        if end.code not in self._codes:
            if len(self._codes) == len(CODES) + MAX_OWN_CODES:
                return End(end.outcome, end.gate, OTHER)
            self._codes.add(end.code)
        return end

    def _tool(self, tool_id: str) -> str:
        if tool_id in self._tools:
            return tool_id
        if len(self._tools) == MAX_TOOLS:
            return OTHER
        self._tools.add(tool_id)
        return tool_id

    def render(self) -> bytes:
        """Return the page, as `CONTENT_TYPE`."""
        with self._lock:
            stopped = {key: stops.number for key, stops in self._stopped.items()}
            times = {(tool, "ok"): _copy(each) for tool, each in self._results.items()}
            times |= {key: _copy(each) for key, each in self._others.items()}
        ends = {
            (tool, _OK): sum(t.counts) for (tool, outcome), t in times.items() if outcome == "ok"
        }
        lines = [
            *_calls(ends | stopped),
            *_durations(times),
            *_warned(times),
            *(line for reading in self._readings for line in _read(reading)),
        ]
        return "".join(f"{line}\n" for line in lines).encode()


def _copy(times: _Times) -> _Times:
    copy = _Times()
    copy.counts, copy.seconds, copy.warned = list(times.counts), times.seconds, times.warned
    return copy


# --- the page -------------------------------------------------------------------------------
# Labels need no escaping: they are ids of tools, our own words, and codes that match `_CODE`.


def _calls(ends: dict[tuple[str, End], int]) -> Iterator[str]:
    name = "callpact_calls_total"
    yield from _head(name, "Calls that have ended, by outcome.", "counter")
    for (tool, end), number in sorted(ends.items(), key=lambda item: _order(*item[0])):
        labels = f'tool="{tool}",outcome="{end.outcome}",gate="{end.gate}",code="{end.code}"'
        yield f"{name}{{{labels}}} {number}"


def _order(tool: str, end: End) -> tuple[str, ...]:
    return (tool, end.outcome, end.gate, end.code)


def _durations(times: dict[tuple[str, str], _Times]) -> Iterator[str]:
    name = "callpact_call_duration_seconds"
    yield from _head(name, "Durations of calls.", "histogram")
    for (tool, outcome), each in sorted(times.items(), key=lambda item: item[0]):
        labels = f'tool="{tool}",outcome="{outcome}"'
        number = 0
        for bound, more in zip(_BOUNDS, each.counts, strict=True):
            number += more
            yield f'{name}_bucket{{{labels},le="{bound}"}} {number}'
        yield f"{name}_sum{{{labels}}} {_number(each.seconds)}"
        yield f"{name}_count{{{labels}}} {number}"


def _warned(times: dict[tuple[str, str], _Times]) -> Iterator[str]:
    name = "callpact_calls_warned_total"
    yield from _head(name, "Calls whose result came with warnings of the contract.", "counter")
    numbers: dict[str, int] = {}
    for (tool, _), each in times.items():
        numbers[tool] = numbers.get(tool, 0) + each.warned
    for tool, number in sorted(numbers.items()):
        yield f'{name}{{tool="{tool}"}} {number}'


def _read(reading: MetricReading) -> Iterator[str]:
    yield from _head(reading.name, reading.help, reading.kind)
    yield f"{reading.name} {_number(reading.read())}"


def _head(name: str, help: str, kind: str) -> tuple[str, str]:
    text = help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _number(value: float) -> str:
    """A number as Go formats it: 1 for 1.0, and all significant digits."""
    return str(int(value)) if float(value).is_integer() else repr(value)


_BOUNDS = (*map(_number, BUCKETS), "+Inf")
