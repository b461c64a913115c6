"""Output of `ask` and `parse`: answers, refusals and runs as text or as JSON.

Text goes to standard error. This module runs nothing.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self, TextIO

from callpact.cli.output import LogLevel, counted, err, flat, plain, print_status, shown
from callpact.codes import CODES
from callpact.errors import (
    CallpactError,
    LimitReached,
    ModelError,
    OutputSchemaError,
    ReliabilityFailFastError,
)

if TYPE_CHECKING:
    from callpact.agent.account import Account, Paused
    from callpact.agent.answer.shape import Shape
    from callpact.agent.answer_events import AnswerEvent
    from callpact.jsonreader.reader import Repair

MAX_LISTED = 20
"""Repairs, and issues, that are printed one by one; `--json` prints all."""
MAX_RAW = 20_000
"""Characters of a refused answer that are printed; `--json` prints it whole."""
_EXCERPT = 60
CUT_OFF: dict[str | None, str] = {
    "length": "the answer was cut off at the length limit of the model: it is incomplete",
    "content_filter": "the answer was stopped by the content filter of the model: it is incomplete",
    "error": "the answer did not end as a complete one does: it may be incomplete",
}
"""Notes for incomplete answers, by finish reason."""


def exit_of(error: CallpactError) -> int:
    """The exit code for an error of a run, from the table of codes."""
    if isinstance(error, ReliabilityFailFastError) and isinstance(error.cause, CallpactError):
        return exit_of(error.cause)
    if isinstance(error, OutputSchemaError):
        return CODES["output_validation_failed"].exit
    if isinstance(error, ModelError):
        return CODES["upstream_error"].exit
    return CODES["timeout" if isinstance(error, LimitReached) else "tool_error"].exit


# --- as text --------------------------------------------------------------------------------


def print_repairs(repairs: Iterable[Repair], raw: str) -> None:
    """Print the repairs of an answer, with line and column."""
    listed = list(repairs)
    for repair, line, column in _placed(listed[:MAX_LISTED], raw):
        text = f"repaired: {repair.message} (line {line}, column {column}) [{repair.code}]"
        err.print(plain(text), style="yellow")
    if len(listed) > MAX_LISTED:
        rest = f"repaired: {len(listed) - MAX_LISTED:,} more; --json lists them all"
        err.print(rest, style="yellow")


def print_refusal(
    error: OutputSchemaError, shape: Shape[Any], *, shows_raw: bool, again: str = ""
) -> None:
    """Print why an answer was refused: the stage, the issues, and a remedy."""
    from callpact.jsonreader.reader import Unreadable

    err.print(f"[red]{error.code} at {error.stage}:[/] {plain(error.message)}")
    cause: Any = error.cause
    if isinstance(cause, ReliabilityFailFastError):
        cause = cause.cause
    if isinstance(cause, Unreadable):
        said = cause.message.partition(": this could change")[0]
        place = f"line {cause.line}, column {cause.column}"
        err.print(plain(f"  {place}: {said}"))
        if not shows_raw and (excerpt := _excerpt(error.raw_output, cause.at)):
            err.print(plain(f"    {excerpt}"), style="dim")
    elif error.issues:
        for issue in error.issues[:MAX_LISTED]:
            err.print(plain(f"  {issue.path or '(the whole answer)'}: {issue.message}"))
            if issue.hint:
                err.print(plain(f"    hint: {issue.hint}"))
        if len(error.issues) > MAX_LISTED:
            err.print(f"  and {counted(len(error.issues) - MAX_LISTED, 'issue')} more")
    else:
        err.print(plain(f"  {error.error}"))
    if error.stage == "json-parse" and (how := _how_to_read(error.raw_output, shape)):
        err.print(plain(f"  {how}"))
    if again:
        err.print(plain(f"  {again}"))
    if shows_raw:
        raw = error.raw_output
        more = f"… ({len(raw):,} characters; --json shows all)" if len(raw) > MAX_RAW else ""
        err.print("  the model wrote:")
        err.print(plain(f"{raw[:MAX_RAW]}{more}"), style="dim")


def _how_to_read(raw: str, shape: Shape[Any]) -> str:
    """The options with which an answer that is not JSON could be read; empty without any."""
    from callpact.agent.answer.parse import parse_answer
    from callpact.jsonreader.reader import LOSSY, Unreadable

    allowed: list[str] = []
    while True:
        broken = ""
        try:
            codes = [r.code for r in parse_answer(raw, shape, repair="safe", allow=allowed).repairs]
        except OutputSchemaError as error:
            if isinstance(error.cause, Unreadable):
                if error.cause.code not in LOSSY or error.cause.code in allowed:
                    return ""
                allowed.append(error.cause.code)
                continue
            codes, broken = [], "; then it breaks its schema"
        if allowed:
            options = " ".join(f"--allow {code}" for code in allowed)
            return f"{options} would read it, and could change what was meant{broken}"
        said = f" ({', '.join(dict.fromkeys(codes))})" if codes else ""
        return f"--repair safe would read it{said}{broken}"


def print_stop(error: CallpactError) -> None:
    """Print why a run ended without an answer."""
    code, said = getattr(error, "code", "error"), str(error)
    if isinstance(error, LimitReached):
        said = (
            f"the run was stopped at its limit of {error.allowed:g} {error.limit}, before there "
            f"was an answer; --limit {error.limit}=… sets another"
        )
    if isinstance(error, ReliabilityFailFastError):
        why = "" if isinstance(error.cause, OutputSchemaError) else f": {error.cause}"
        said = f"given up: {error.label}{why if error.cause else ''} [{error.kind}]"
    err.print(f"[red]{code}:[/] {plain(said)}")


def print_account(account: Account) -> None:
    """Print the work and the cost of a run on one line."""
    usage = account.usage
    parts = [counted(account.requests, "request")]
    if account.tool_calls:
        parts.append(counted(account.tool_calls, "tool call"))
    parts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
    if usage.cost is not None:
        parts.append(f"cost {usage.cost:g}")
    err.print(", ".join([*parts, f"{account.seconds:.1f} s"]), style="dim")


def _placed(repairs: Iterable[Repair], text: str) -> Iterator[tuple[Repair, int, int]]:
    """Repairs, sorted by position, with line and column, both from 1."""
    line, begin, seen = 1, 0, 0
    for repair in repairs:
        line += text.count("\n", seen, repair.at)
        begin = max(begin, text.rfind("\n", seen, repair.at) + 1)
        seen = max(seen, repair.at)
        yield repair, line, repair.at - begin + 1


def put(text: str, output: TextIO) -> None:
    """Write a model's text as it is; to a terminal without control characters."""
    data = (shown(text) if output.isatty() else text).encode("utf-8", "replace")
    output.buffer.write(data)
    output.buffer.flush()


def _excerpt(text: str, at: int) -> str:
    """The line around a character, cut to a few characters before and after it."""
    begin = max(text.rfind("\n", 0, at) + 1, at - _EXCERPT)
    end = text.find("\n", at)
    end = min(len(text) if end < 0 else end, at + _EXCERPT)
    return flat(text[begin:end]).strip()


# --- as JSON --------------------------------------------------------------------------------


def encode_repairs(repairs: Iterable[Repair], raw: str) -> list[dict[str, Any]]:
    """Repairs with their positions."""
    return [
        {"code": repair.code, "message": repair.message, "line": line, "column": column}
        for repair, line, column in _placed(repairs, raw)
    ]


def encode_error(error: CallpactError) -> dict[str, Any]:
    """An error of a run, or of parsing an answer."""
    form: dict[str, Any] = {"code": getattr(error, "code", "error"), "message": str(error)}
    refusal = error.cause if isinstance(error, ReliabilityFailFastError) else error
    if isinstance(error, ReliabilityFailFastError):
        form["kind"] = error.kind
    if isinstance(error, LimitReached):
        form["limit"] = error.limit
    if isinstance(refusal, OutputSchemaError):
        form |= {
            "message": f"{refusal.message}: {_first(refusal)}",
            "stage": refusal.stage,
            "path": refusal.path,
            "issues": [
                {"code": issue.code, "message": issue.message, "path": issue.path}
                | ({"hint": issue.hint} if issue.hint else {})
                for issue in refusal.issues
            ],
            "rawOutput": refusal.raw_output,
        }
    return form


def _first(error: OutputSchemaError) -> str:
    more = f"; and {len(error.issues) - 1} more" if error.issues[1:] else ""
    return f"{error.issues[0].message}{more}" if error.issues else error.error


def encode_account(account: Account) -> dict[str, Any]:
    """The work and the cost of a run, with every attempt at an answer."""
    usage = account.usage
    return {
        "runId": account.run_id,
        "iterations": account.iterations,
        "requests": account.requests,
        "toolCalls": account.tool_calls,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cost": usage.cost,
        "seconds": round(account.seconds, 3),
        "attempts": [
            {
                "attempt": attempt.attempt,
                "outcome": attempt.outcome,
                "stage": attempt.stage,
                "error": attempt.error,
                "path": attempt.path,
                "repairs": list(attempt.repairs),
            }
            for attempt in account.attempts
        ],
    }


def encode_pause(paused: Paused, file: str) -> dict[str, Any]:
    """A paused run, and the file to resume it from."""
    return {
        "paused": {"question": paused.question, "tool": paused.tool, "checkpoint": file},
        "account": encode_account(paused.account),
    }


# --- progress -------------------------------------------------------------------------------


class Progress:
    """Prints the progress of a run on standard error: current step and refused answers.

    The log line for the same refusal is suppressed, unless everything is logged.
    """

    def __init__(self, level: LogLevel, *, is_streamed: bool) -> None:
        self._level = level
        self._is_streamed = is_streamed
        self._notes: list[str] = []
        self._status: Any = None
        self._stack = contextlib.ExitStack()
        self._is_shown = not is_streamed and sys.stderr.isatty()

    def __enter__(self) -> Self:
        if not self._level.is_verbose:
            log = logging.getLogger("callpact.agent")
            log.addFilter(_is_not_printed)
            self._stack.callback(log.removeFilter, _is_not_printed)
        if self._is_shown:
            self._status = self._stack.enter_context(err.status("asking the model", spinner="line"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._status = None
        self.print_notes()

    def print_notes(self) -> None:
        """Print the notes that were held back until the text before them was shown."""
        notes, self._notes = self._notes, []
        for note in notes:
            print_status(note)

    def _note(self, text: str) -> None:
        self._notes.append(text)
        if not self._is_streamed:
            self.print_notes()

    def __call__(self, event: AnswerEvent) -> None:
        """Handle an event."""
        payload = event.payload
        match event.type:
            case "stream.llm_start":
                self._say(f"asking {payload['model']}")
            case "stream.tool_start":
                self._say(f"calling {payload['tool']}")
            case "agent.output_schema_retry":
                self._note(
                    f"not accepted ({payload['stage']}): {flat(payload['error'])}; asking again"
                )
            case "agent.output_schema_validation_failed":
                said = flat(payload["message"])
                self._note(
                    f"attempt {payload['attempt']} not accepted ({payload['stage']}): {said}"
                )
            case "reliability.retried" if payload["error_kind"] != "schema-fail":
                why = flat(str(payload.get("error_message") or payload["error_kind"]))
                self._note(f"attempt {payload['attempt']} failed: {why:.300}; asking again")
            case "agent.reply_cut_off" if payload["tools"]:
                tools = ", ".join(payload["tools"])
                self._note(f"a reply was cut off ({payload['finish']}): not calling {tools:.300}")
            case "agent.arguments_repaired":
                codes = ", ".join(payload["repairs"])
                self._note(f"repaired the arguments for {payload['tool']}: {codes:.300}")
            case _:
                pass

    def _say(self, text: str) -> None:
        if self._status is not None:
            self._status.update(plain(text))


def _is_not_printed(record: logging.LogRecord) -> bool:
    """False for the line about an answer that breaks its contract: the command prints it in full."""
    return "breaks its contract" not in str(record.msg)
