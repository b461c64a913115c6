"""Errors of an agent's run and of its answer, below the root that all errors have.

CallpactError
├─ Unreadable            a text without JSON, or with none that can be read without guessing
│                        (a ValueError, too)
├─ OutputSchemaError     an agent's answer that breaks its contract, in one of two stages
├─ RunStopped            an agent's run that gave no answer: ReliabilityFailFastError (the rules
│                        gave up) · LimitReached · RunPaused (a value was asked for, and it waits)
└─ ModelError            a model that could not be asked, or said nothing that can be used

They are none of a call: what a tool's caller sees is a `CallError`. `errors.py` has all others.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from callpact.errors import CallpactError, Issue

MAX_ECHO = 20_000
"""Characters of a failed answer that a correction shows to the model."""
_CONTEXT = 40
"""Characters before and behind a place that are its context."""


def hashed(text: str) -> str:
    """A short hash of a text, also of one that is not valid Unicode."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Unreadable(CallpactError, ValueError):
    """A text that holds no JSON, or none that can be read without guessing.

    `code` names what was found, or the lossy repair that was not allowed; `at` is the offset of the
    character.
    """

    def __init__(self, code: str, message: str, text: str, at: int) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.at = min(at, len(text))
        self._text = text

    @property
    def line(self) -> int:
        """The line of the character, from 1."""
        return self._text.count("\n", 0, self.at) + 1

    @property
    def context(self) -> str:
        """The text around the character, in lower case and with single spaces."""
        begin, end = max(self.at - _CONTEXT, 0), self.at + _CONTEXT
        return " ".join(self._text[begin:end].lower().split())

    @property
    def column(self) -> int:
        """The column of the character, from 1."""
        return self.at - self._text.rfind("\n", 0, self.at)

    def __str__(self) -> str:
        return f"{self.message} (line {self.line}, column {self.column})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Unreadable, (self.code, self.message, self._text, self.at))


class OutputSchemaError(CallpactError):
    """An agent's final answer that breaks its contract.

    `stage` is `json-parse` or `schema-validate`, `raw_output` the whole answer as the model wrote
    it, `cause` the reader's or the validator's own error, `issues` what it names, `path` where the
    first of them is. `account` is what the run cost, where there was one.
    """

    code = "ERR_OUTPUT_SCHEMA"

    def __init__(
        self,
        stage: Literal["json-parse", "schema-validate"],
        raw_output: str,
        cause: BaseException,
        issues: Iterable[Issue] = (),
    ) -> None:
        super().__init__(stage, raw_output, cause)
        self.stage: Literal["json-parse", "schema-validate"] = stage
        self.raw_output = raw_output
        self.cause = cause
        self.issues = tuple(issues)
        self.account: Any = None
        self.__cause__ = cause

    @property
    def message(self) -> str:
        """One sentence for each stage, and one for an answer that is not complete."""
        return _TRUNCATED if self.is_truncated else _STAGES[self.stage]

    @property
    def is_truncated(self) -> bool:
        """True if the answer ends before its JSON is complete."""
        return isinstance(self.cause, Unreadable) and self.cause.code == "truncated"

    @property
    def fingerprint(self) -> str:
        """Hash of how the answer failed: the stage with the rules and places of its issues.

        A text that is not JSON has the code of what was found and the text around it instead.
        """
        parts = sorted(f"{issue.path}:{issue.code}" for issue in self.issues)
        if isinstance(self.cause, Unreadable):
            parts = [self.cause.code, self.cause.context]
        elif not parts:  # A parser that names no places.
            parts = [self.error]
        return hashed("\n".join((self.stage, *parts)))

    @property
    def echo(self) -> str:
        """The answer as a correction shows it to the model.

        Of a long one: its head, the text around the error and its tail, and how many characters
        are left out between them.
        """
        text, part = self.raw_output, MAX_ECHO // 4
        if len(text) <= MAX_ECHO:
            return text
        at = self.cause.at if isinstance(self.cause, Unreadable) else 0
        middle = min(max(at - part, part), len(text) - 3 * part)
        tail = len(text) - part
        return "".join(
            (
                text[:part],
                _left_out(middle - part),
                text[middle : middle + 2 * part],
                _left_out(tail - middle - 2 * part),
                text[tail:],
            )
        )

    @property
    def error(self) -> str:
        """What the cause says."""
        return str(self.cause) or type(self.cause).__name__

    @property
    def path(self) -> str | None:
        """JSON Pointer to the first issue, or None when the failure has no place."""
        return self.issues[0].path if self.issues else None

    @property
    def reason(self) -> str:
        """The sentence with what was wrong first."""
        said = self.issues[0].message if self.issues else self.error
        more = f"; and {len(self.issues) - 1} more" if len(self.issues) > 1 else ""
        return f"{self.message}: {said:.300}{more}"

    def __str__(self) -> str:
        found = self.cause.code if isinstance(self.cause, Unreadable) else self.stage
        return f"{self.reason}; {_REMEDIES.get(found) or _REMEDIES['other']}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.stage, self.raw_output, self.cause, self.issues))


def _left_out(characters: int) -> str:
    return f"\n[… {characters:,} characters left out …]\n" if characters else ""


_TRUNCATED = "The answer is truncated"
_STAGES = {
    "json-parse": "The answer is not JSON",
    "schema-validate": "The answer is JSON, but breaks its schema",
}
_REMEDIES = {
    "not_json": "raw_output has it whole; tighten the instruction, read it with repair='safe', "
    "or add retries or a fallback",
    "truncated": "raw_output has what came",
    "schema-validate": "cause has the validator's error, raw_output the answer",
    "other": "raw_output has it whole; tighten the instruction, or add retries or a fallback",
}


class RunStopped(CallpactError):
    """An agent's run that ended without an answer; `account` is what it cost until then."""

    code = "ERR_STOPPED"
    account: Any = None


class LimitReached(RunStopped):
    """A run that met one of its limits: `limit` is iterations, tokens, cost or seconds."""

    code = "ERR_LIMIT_REACHED"

    def __init__(self, limit: str, allowed: float, account: Any = None) -> None:
        super().__init__(limit, allowed)
        self.limit = limit
        self.allowed = allowed
        self.account = account

    def __str__(self) -> str:
        return (
            f"the run was stopped at its limit of {self.allowed:g} {self.limit}, before there was an "
            f"answer; .limits({self.limit}=…) sets another"
        )


class RunPaused(RunStopped):
    """A typed value was asked for, and the run paused; `paused` has the question and checkpoint."""

    code = "ERR_PAUSED"

    def __init__(self, paused: Any) -> None:
        super().__init__(paused)
        self.paused = paused
        self.account = paused.account

    def __str__(self) -> str:
        return (
            "the run paused, and there is no typed value yet; answer paused.question with "
            "resume(paused.checkpoint, answer), then parse_output(…)"
        )


class ReliabilityFailFastError(RunStopped):
    """The rules of `.reliability(…)` gave up. `kind` says why; `cause` is what went wrong last."""

    code = "ERR_RELIABILITY_FAIL_FAST"

    def __init__(
        self,
        kind: str,
        *,
        phase: Literal["pre-check", "post-decide"] = "post-decide",
        label: str | None = None,
        cause: BaseException | None = None,
        payload: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(kind)
        self.kind = kind
        self.phase = phase
        self.label = label or kind
        self.cause = cause
        self.payload = dict(payload or {})
        self.__cause__ = cause

    @property
    def reason(self) -> str:
        """The phase and the rule's own words."""
        return f"reliability-{self.phase}: {self.label}"

    def __str__(self) -> str:
        why = f": {self.cause}" if self.cause is not None else ""
        return f"{self.reason} ({self.kind}){why:.500}"


class ModelError(CallpactError):
    """A model that could not be asked, or answered with an error; `status` is HTTP's, if any.

    `retry_after` are the seconds that it asks to wait before the next request, if it does.
    """

    code = "ERR_MODEL"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        transient: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.transient = transient
        is_time = retry_after is not None and math.isfinite(retry_after) and retry_after >= 0
        self.retry_after = retry_after if is_time else None
