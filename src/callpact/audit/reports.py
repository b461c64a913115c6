"""Drift, advice and replays in words and as JSON. Pure; see `text.py` for the rest of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from callpact.audit.analysis.advice import Advice, Refusal, Relaxation
from callpact.audit.analysis.drift import Drift, Finding, Proof
from callpact.audit.analysis.replay import Lost, Replay, Turn
from callpact.audit.analysis.schema_edits import Patch
from callpact.audit.text import local, note_line, percent, said, sparkline, utc

FINDING_HEADERS = ("PATH", "RULE", "ANSWERS", "SHARE", "FIRST SEEN", "LAST SEEN", "TREND", "FOUND")
SPARE_FINDING_HEADERS = ("TREND", "LAST SEEN", "FOUND")
RELAXATION_HEADERS = ("ARGUMENT", "RULE", "REFUSED", "SHARE", "SAVED", "SENT")
_WHY = {
    "cut": "cut",
    "hashed": "kept as hashes",
    "absent": "not kept",
    "unreadable": "not readable",
    "masked": "with secrets hidden",
    "beyond": "beyond what one report judges",
}


def finding_cells(finding: Finding, drift: Drift) -> tuple[str, ...]:
    """A finding as a row under `FINDING_HEADERS`; of how many, where it is not of all answers."""
    of = "" if finding.of == drift.answers else f" of {finding.of:,}"
    return (
        finding.path or "/",
        finding.rule,
        f"{finding.answers:,}{of}",
        percent(finding.share),
        local(finding.first),
        local(finding.last),
        sparkline(finding.trend),
        " ".join(finding.samples) or "-",
    )


def drift_head(tool: str, drift: Drift) -> str:
    """Of what a report tells."""
    more = " (the latest; there are more)" if drift.is_partial else ""
    if not drift.answers:
        return f"{tool}  no answers"
    window = f"from {local(drift.since)} to {local(drift.until)}"
    return f"{tool}  {_many(drift.answers, 'answer')} {window}{more}"


def drift_tail(drift: Drift) -> Iterator[str]:
    """The patch of a report, and what it was proved by, in lines."""
    for finding in drift.findings:
        first = f"(first: {finding.example})" if finding.example else ""
        words = (finding.path or "/", said(finding.message), first)
        yield "  ".join(filter(None, words))  # Beside hashes no message is kept.
    if drift.patch is None:
        yield "the tool has no output schema"
        return
    proof = drift.proof
    yield from _patch(drift.patch, "the smallest change of the output schema that accepts them:")
    if drift.patch.operations:
        yield (
            f"with it {proof.passed_after:,} of {_many(proof.checked, 'recorded answer')} pass, "
            f"without it {proof.passed_before:,}"
        )
        yield f"proved on {proof.checked:,} of {_many(proof.of, 'answer')}{_chosen(proof)}"
    yield from _lost(proof.lost, "answer")


def _chosen(proof: Proof) -> str:
    is_sample = proof.checked + proof.lost.total < proof.of
    return ": the latest" * is_sample


def quiet_lines(reports: Iterable[Drift | Advice]) -> Iterator[str]:
    """How it is with tools of which there is nothing to tell, in lines."""
    counts: dict[str, int] = {}
    for report in reports:
        words = _quiet_drift(report) if isinstance(report, Drift) else _quiet_advice(report)
        counts[words] = counts.get(words, 0) + 1
    for words, count in counts.items():
        yield words.format(_many(count, "tool"))


def _quiet_drift(drift: Drift) -> str:
    if not drift.answers:
        return "{} without an answer on record"
    if drift.patch is None:
        return "{} without an output schema"
    why = _reasons(drift.proof.lost)
    if why and not drift.proof.checked:
        return f"the answers of {{}} could not be judged: {why}"
    kept = "the answers of {} keep the contract"
    return f"{kept}, as far as they could be judged: some are {why}" if why else kept


def _quiet_advice(advice: Advice) -> str:
    why = _reasons(advice.lost)
    if why and not advice.checked:
        return f"the inputs of {{}} could not be judged: {why}"
    nothing = "nothing to advise for {}"
    return f"{nothing}, as far as inputs could be judged: some are {why}" if why else nothing


def encode_drift(tool: str, drift: Drift) -> dict[str, Any]:
    """A report as JSON."""
    told = _told(drift, "since", "until")
    told["findings"] = [
        {**_told(found, "first", "last"), "share": found.share} for found in drift.findings
    ]
    return {"tool": tool, **told, "patch": _encode_patch(drift.patch)}


def relaxation_cells(row: Relaxation | Refusal) -> tuple[str, ...]:
    """A cause of refusals as a row under `RELAXATION_HEADERS`."""
    is_relaxation = isinstance(row, Relaxation)
    return (
        row.path or ("all" if is_relaxation else "/"),
        row.rule,
        f"{row.seen:,}",
        percent(row.share),
        f"{row.saved:,}" if is_relaxation else "-",
        " ".join(row.samples) or "-",
    )


def advice_head(tool: str, advice: Advice) -> str:
    """Of what a report tells."""
    more = " (the latest; there are more)" if advice.is_partial else ""
    return (
        f"{tool}  {_many(advice.calls, 'call')}, {advice.refused:,} refused for their input{more}"
    )


def advice_tail(advice: Advice) -> Iterator[str]:
    """The changes that a report advises, and what they would have done, in lines."""
    for relaxation in advice.relaxations:
        yield f"saves {_many(relaxation.saved, 'call')}: {relaxation.words}"
        if relaxation.patch is not None:
            yield from _patch(relaxation.patch, "")
    if advice.relaxations:
        yield (
            f"all together let in {advice.saved:,} of {_many(advice.refused, 'refused call')}; "
            f"{_many(advice.checked, 'call')} that the contract lets in stay so"
        )
    for left in advice.unsolved:
        yield f"left as it is: {left.rule} at {left.path or '/'}, no change is proposed"
    if advice.outdated:
        yield f"{_many(advice.outdated, 'refused call')} would pass by now"
    yield from _lost(advice.lost, "input")


def encode_advice(tool: str, advice: Advice) -> dict[str, Any]:
    """A report as JSON."""
    told = _told(advice)
    told["relaxations"] = [
        {**_told(found), "share": found.share, "patch": _encode_patch(found.patch)}
        for found in advice.relaxations
    ]
    told["unsolved"] = [{**_told(found), "share": found.share} for found in advice.unsolved]
    return {"tool": tool, **told}


def replay_lines(replay: Replay) -> Iterator[str]:
    """What a changed contract would have done, in lines."""
    more = " (the latest; there are more)" if replay.is_partial else ""
    yield f"{_many(replay.calls, 'recorded call')}{more}; nothing was run"
    yield f"{replay.now_refused:,} of {replay.admitted:,} let in then would be refused now"
    for turned in replay.refused_by:
        yield f"  {turned.calls:,} × {turned.tool}  {turned.key}"
    yield from map(_turn, replay.refused_samples[:_SHOWN])
    yield f"{replay.now_admitted:,} of {replay.refused:,} refused then would pass now"
    for turned in replay.admitted_by:
        yield f"  {turned.calls:,} × {turned.tool}  {turned.key}"
    yield from map(_turn, replay.admitted_samples[:_SHOWN])
    if replay.skipped:
        yield f"{_many(replay.skipped, 'call')} had other reasons than their input"
    if replay.gone:
        names = ", ".join(map(said, replay.gone_tools[:_SHOWN]))
        more = ", …" * (len(replay.gone_tools) > _SHOWN)
        yield f"{_many(replay.gone, 'call')} of tools that are not in the sources: {names}{more}"
    yield from _lost(replay.lost, "input")


_SHOWN = 5
_MAX_INPUT = 200


def _turn(turn: Turn) -> str:
    sent = turn.input if len(turn.input) <= _MAX_INPUT else f"{turn.input[:_MAX_INPUT]}…"
    why = f"  {note_line(turn.issues[0])}" if turn.issues else ""
    return f"    {local(turn.at)}  {turn.id}  {sent}{why}"


def encode_replay(replay: Replay) -> dict[str, Any]:
    """A replay as JSON."""
    told = _told(replay)
    for name in ("refused_samples", "admitted_samples"):
        told[name] = [_told(turn, "at") for turn in getattr(replay, name)]
    return told


def _patch(patch: Patch, head: str) -> Iterator[str]:
    if patch.operations:
        if head:
            yield head
        yield from patch.diff.rstrip("\n").split("\n")
    for left in patch.unsolved:
        yield f"left as it is: {left.rule} at {left.path or '/'}, {left.reason}"


def _encode_patch(patch: Patch | None) -> dict[str, Any] | None:
    if patch is None:
        return None
    return {
        "operations": msgspec.to_builtins(patch.operations),
        "unsolved": msgspec.to_builtins(patch.unsolved),
        "words": patch.words,
        "diff": patch.diff,
        "after": patch.after,
    }


def _told(struct: msgspec.Struct, *times: str) -> dict[str, Any]:
    """A struct as JSON, without its patch, with times in UTC."""
    held = {name: getattr(struct, name) for name in struct.__struct_fields__ if name != "patch"}
    for name in times:
        held[name] = utc(held[name])
    return cast("dict[str, Any]", msgspec.to_builtins(held))


def _reasons(lost: Lost) -> str:
    return ", ".join(words for name, words in _WHY.items() if getattr(lost, name))


def _lost(lost: Lost, noun: str) -> Iterator[str]:
    if lost.total:
        why = ", ".join(
            f"{count:,} {words}" for name, words in _WHY.items() if (count := getattr(lost, name))
        )
        yield f"{_many(lost.total, noun)} could not be judged again: {why}"


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
