"""Proofs that one schema accepts every value of another, by `jsonschema-rs`.

Only this module uses the experimental `canonicalize`, `covers` and `subtract`. They run in a process
of their own, since a schema can make them run for long or fill the memory: a proof that takes too
long, a process that dies and an operation that is not supported are all *unknown*. A counterexample
is tried on the real validators before it is returned.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import jsonschema_rs
from jsonschema_rs import canonical

from callpact.contracts.counterexample import counterexample
from callpact.schema.compiled import MAX_BACKTRACKS

if TYPE_CHECKING:
    from types import TracebackType

    from callpact.schema import CompiledSchema

PROOF_SECONDS = 5.0
"""Time for one proof; after it the answer is unknown."""
ALL_PROOFS_SECONDS = 60.0
"""Time for the proofs and trials of one comparison; after it the table of changes decides."""
MAX_PROOF_BYTES = 200_000
"""Size of a schema, as JSON, up to which a proof is tried."""
MAX_PROOF_MEMORY = 1 << 30
"""Bytes of memory that the process of the proofs may use, on systems that can limit it."""
_START_SECONDS = 30.0
_PROGRAM = "from callpact.contracts.proof import answer_requests; answer_requests()"
_BOUNDS = ('"formatMinimum"', '"formatMaximum"')

Verdict = Literal["yes", "no", "unknown"]


@dataclass(frozen=True, slots=True)
class ComparedSchema:
    """A schema with the way its formats are treated: as an assertion, or as a note."""

    schema: CompiledSchema
    formats: bool = False


@dataclass(frozen=True, slots=True)
class CoverProof:
    """The answer to the question whether one schema accepts every value of another."""

    verdict: Verdict
    example: tuple[Any, ...] = ()
    """With `no`, one value that only the other schema accepts; empty if none was found."""
    reason: str = ""
    """With `unknown`, why."""


class Prover:
    """Proves in a process of its own, which starts with the first proof and ends with the block.

    The same question is answered once: the tools of an API share many schemas. `total` bounds the
    time of all answers together.
    """

    def __init__(
        self, seconds: float = PROOF_SECONDS, *, total: float = ALL_PROOFS_SECONDS
    ) -> None:
        self._seconds = seconds
        self._total = total
        self._left = total
        self._known: dict[bytes, CoverProof] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def covers(self, wide: ComparedSchema, narrow: ComparedSchema) -> CoverProof:
        """Whether `wide` accepts every value that `narrow` accepts."""
        if wide == narrow:
            return CoverProof("yes")
        texts = [json.dumps(side.schema.document) for side in (wide, narrow)]
        parts = (
            part
            for side, text in zip((wide, narrow), texts, strict=True)
            for part in (text, side.formats)
        )
        key = sha256(repr([*parts]).encode()).digest()
        known = self._known.get(key)
        if known is None:
            if self._left <= 0:
                reason = f"the time for all proofs, {self._total:g} s, is used up"
                return CoverProof("unknown", reason=reason)
            begun = time.monotonic()
            known = self._known[key] = self._decided(wide, narrow, texts)
            self._left -= time.monotonic() - begun
        return known

    def _decided(
        self, wide: ComparedSchema, narrow: ComparedSchema, texts: list[str]
    ) -> CoverProof:
        if found := counterexample(wide.schema, narrow.schema, narrow.schema.document):
            return CoverProof("no", found)
        if any(len(text) > MAX_PROOF_BYTES for text in texts):
            return CoverProof(
                "unknown", reason=f"a schema is larger than {MAX_PROOF_BYTES:,} bytes"
            )
        if any(
            side.formats and any(bound in text for bound in _BOUNDS)
            for side, text in zip((wide, narrow), texts, strict=True)
        ):
            return CoverProof("unknown", reason="bounds of dates cannot be proved")
        line = (
            f"[[{texts[0]},{json.dumps(wide.formats)}],[{texts[1]},{json.dumps(narrow.formats)}]]"
        )
        verdict, difference, reason = self._ask(line.encode())
        if verdict != "yes" and difference is not None:
            found = counterexample(wide.schema, narrow.schema, difference)
            if found:
                return CoverProof("no", found)
        return CoverProof(verdict, reason=reason)

    def _ask(self, line: bytes) -> tuple[Verdict, Any, str]:
        """The answer of the process; unknown if it takes too long or dies, and it is replaced."""
        process = self._process
        if process is None:
            process = self._process = subprocess.Popen(  # noqa: S603 - this interpreter
                [sys.executable, "-P", "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            if self._exchange(process, b"", _START_SECONDS) is None:
                self._end()
                return "unknown", None, "the process of the proofs could not be started"
        answer = self._exchange(process, line + b"\n", self._seconds)
        if answer is None:
            self._end()
            return "unknown", None, f"the proof was not finished within {self._seconds:g} s"
        verdict, difference, reason = answer
        return verdict, difference, reason

    @staticmethod
    def _exchange(process: subprocess.Popen[bytes], line: bytes, seconds: float) -> Any:
        """The next line of the process as JSON; None if it is killed or dies before."""
        assert process.stdin is not None  # noqa: S101 - they are pipes
        assert process.stdout is not None  # noqa: S101
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
            return json.loads(answer) if answer.endswith(b"\n") else None
        except (OSError, ValueError):
            return None
        finally:
            timer.cancel()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


# --- in the process of the proofs -----------------------------------------------------------


def answer_requests() -> None:
    """Answer proofs, one per line of standard input, until it ends."""
    try:
        import resource
    except ImportError:  # Windows.
        pass
    else:
        resource.setrlimit(resource.RLIMIT_AS, (MAX_PROOF_MEMORY, MAX_PROOF_MEMORY))
    sys.stdout.write("[]\n")
    sys.stdout.flush()
    for line in sys.stdin.buffer:
        wide, narrow = json.loads(line)
        sys.stdout.write(json.dumps(decide(wide, narrow), default=float) + "\n")
        sys.stdout.flush()


def decide(wide: tuple[Any, bool], narrow: tuple[Any, bool]) -> tuple[Verdict, Any, str]:
    """The verdict of the library, a schema of the values that it is no for, and a reason.

    Each side is a schema document and whether its formats are assertions.
    """
    try:
        first, second = _canonical(*wide), _canonical(*narrow)
        verdict = cast("Verdict", first.covers(second).value)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return "unknown", None, f"the schemas cannot be compared: {str(error)[:200]}"
    if verdict == "yes":
        return verdict, None, ""
    try:
        difference = second.subtract(first)
        form = difference.to_json_schema()
        if difference.satisfiability() is canonical.Satisfiability.NO:
            return "yes", None, ""
    except (ValueError, jsonschema_rs.ReferencingError):
        form = None
    return verdict, form, "" if verdict == "no" else "the schemas can be neither proved nor refuted"


def _canonical(document: Any, formats: bool) -> jsonschema_rs.CanonicalSchema:  # noqa: FBT001
    return jsonschema_rs.canonicalize(
        document,
        validate_formats=True if formats else None,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_BACKTRACKS),
        offline=True,
    )
