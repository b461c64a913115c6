"""Drift, advice and replays as text and as JSON. Pure; see `text.py` for the rest of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from callpact.audit.analysis.advice import Advice, Refusal, Relaxation
from callpact.audit.analysis.drift import Drift, DriftFinding, Proof
from callpact.audit.analysis.replay import ChangedCall, Lost, Replay
from callpact.audit.analysis.schema_edits import Patch
from callpact.audit.analysis.wordings import Language, wordings
from callpact.audit.text import counted, local, note_line, percent, sparkline, utc, without_value

FINDING_HEADERS = ("PATH", "RULE", "OUTPUTS", "SHARE", "FIRST SEEN", "LAST SEEN", "TREND", "FOUND")
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


def finding_cells(finding: DriftFinding, drift: Drift) -> tuple[str, ...]:
    """A finding as a row under `FINDING_HEADERS`; with its `of` where that is not all outputs."""
    of = "" if finding.of == drift.outputs else f" of {finding.of:,}"
    return (
        finding.path or "/",
        finding.rule,
        f"{finding.outputs:,}{of}",
        percent(finding.share),
        local(finding.first),
        local(finding.last),
        sparkline(finding.trend),
        " ".join(finding.samples) or "-",
    )


def drift_head(tool: str, drift: Drift) -> str:
    """The heading of a drift report: the tool, the number of outputs and the window."""
    more = " (the latest; there are more)" if drift.is_partial else ""
    if not drift.outputs:
        return f"{tool}  no outputs"
    window = f"from {local(drift.since)} to {local(drift.until)}"
    return f"{tool}  {counted(drift.outputs, 'output')} {window}{more}"


def drift_tail(drift: Drift, language: Language | None = None) -> Iterator[str]:
    """The findings in words, the patch and its proof, in lines.

    The patch is worded in the language of the tool's declaration; without one it is a diff.
    """
    for finding in drift.findings:
        first = f"(first: {finding.example})" if finding.example else ""
        words = (finding.path or "/", without_value(finding.message), first)
        yield "  ".join(filter(None, words))  # Beside hashes no message is kept.
    if drift.patch is None:
        yield "the tool has no output schema"
        return
    proof = drift.proof
    if drift.patch.operations:
        what = "output schema" if language is None else "declaration"
        yield f"the smallest change of the {what} that accepts them:"
    if language is None:
        yield from _diff(drift.patch)
    else:
        for line in wordings(drift.patch, language, is_output=True):
            yield f"  {line}"
    yield from _left(drift.patch)
    if drift.patch.operations:
        yield (
            f"with it {proof.passed_after:,} of {counted(proof.checked, 'recorded output')} pass, "
            f"without it {proof.passed_before:,}"
        )
        yield f"proved on {proof.checked:,} of {counted(proof.of, 'output')}{_sample_note(proof)}"
    yield from _lost(proof.lost, "output")


def _sample_note(proof: Proof) -> str:
    is_sample = proof.checked + proof.lost.total < proof.of
    return ": the latest" * is_sample


def quiet_lines(reports: Iterable[Drift | Advice]) -> Iterator[str]:
    """Counts of tools without findings or advice, in lines."""
    counts: dict[str, int] = {}
    for report in reports:
        words = _quiet_drift(report) if isinstance(report, Drift) else _quiet_advice(report)
        counts[words] = counts.get(words, 0) + 1
    for words, count in counts.items():
        yield words.format(counted(count, "tool"))


def _quiet_drift(drift: Drift) -> str:
    if not drift.outputs:
        return "{} without an output on record"
    if drift.patch is None:
        return "{} without an output schema"
    why = _reasons(drift.proof.lost)
    if why and not drift.proof.checked:
        return f"the outputs of {{}} could not be judged: {why}"
    kept = "the outputs of {} keep the contract"
    return f"{kept}, as far as they could be judged: some are {why}" if why else kept


def _quiet_advice(advice: Advice) -> str:
    why = _reasons(advice.lost)
    if why and not advice.checked:
        return f"the inputs of {{}} could not be judged: {why}"
    nothing = "nothing to advise for {}"
    return f"{nothing}, as far as inputs could be judged: some are {why}" if why else nothing


def encode_drift(tool: str, drift: Drift) -> dict[str, Any]:
    """A drift report as JSON."""
    form = _encoded(drift, "since", "until")
    form["findings"] = [
        {**_encoded(found, "first", "last"), "share": found.share} for found in drift.findings
    ]
    return {"tool": tool, **form, "patch": _encode_patch(drift.patch)}


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
    """The heading of an advice: the tool, its calls and its refused calls."""
    more = " (the latest; there are more)" if advice.is_partial else ""
    return (
        f"{tool}  {counted(advice.calls, 'call')}, {advice.refused:,} refused for their input{more}"
    )


def advice_tail(advice: Advice, language: Language | None = None) -> Iterator[str]:
    """The proposed changes and their effect on recorded calls, in lines.

    A schema that is generated from another language is not shown.
    """
    for relaxation in advice.relaxations:
        yield f"saves {counted(relaxation.saved, 'call')}: {relaxation.words}"
        if relaxation.patch is not None:
            yield from () if language else _diff(relaxation.patch)
            yield from _left(relaxation.patch)
    if advice.relaxations:
        yield (
            f"all together let in {advice.saved:,} of {counted(advice.refused, 'refused call')}; "
            f"{counted(advice.checked, 'call')} that the contract lets in stay so"
        )
    for left in advice.unsolved:
        why = (
            "another type is a mistake of its caller"
            if left.rule == "type"
            else "no change is proposed"
        )
        yield f"left as it is: {left.rule} at {left.path or '/'}, {why}"
    if advice.outdated:
        yield f"{counted(advice.outdated, 'refused call')} would pass by now"
    yield from _lost(advice.lost, "input")


def encode_advice(tool: str, advice: Advice) -> dict[str, Any]:
    """An advice as JSON."""
    form = _encoded(advice)
    form["relaxations"] = [
        {**_encoded(found), "share": found.share, "patch": _encode_patch(found.patch)}
        for found in advice.relaxations
    ]
    form["unsolved"] = [{**_encoded(found), "share": found.share} for found in advice.unsolved]
    return {"tool": tool, **form}


def replay_lines(replay: Replay) -> Iterator[str]:
    """The effect of the current contracts on recorded calls, in lines."""
    more = " (the latest; there are more)" if replay.is_partial else ""
    yield f"{counted(replay.calls, 'recorded call')}{more}; nothing was run"
    yield f"{replay.now_refused:,} of {replay.admitted:,} let in then would be refused now"
    for change in replay.refused_by:
        yield f"  {change.calls:,} × {change.tool}  {change.key}"
    yield from map(_change_line, replay.refused_samples[:_SHOWN])
    yield f"{replay.now_admitted:,} of {replay.refused:,} refused then would pass now"
    for change in replay.admitted_by:
        yield f"  {change.calls:,} × {change.tool}  {change.key}"
    yield from map(_change_line, replay.admitted_samples[:_SHOWN])
    if replay.is_compared:
        yield (
            f"{replay.now_broken:,} of {counted(replay.outputs, 'output')} that kept the contract "
            "then would break it now"
        )
    for change in replay.broken_by:
        yield f"  {change.calls:,} × {change.tool}  {change.key}"
    yield from map(_change_line, replay.broken_samples[:_SHOWN])
    if replay.skipped:
        more = ", or no former contract" if replay.is_compared else ""
        yield f"{counted(replay.skipped, 'call')} had other reasons than their input{more}"
    if replay.gone:
        names = ", ".join(map(without_value, replay.gone_tools[:_SHOWN]))
        more = ", …" * (len(replay.gone_tools) > _SHOWN)
        yield f"{counted(replay.gone, 'call')} of tools that are not in the sources: {names}{more}"
    yield from _lost(replay.lost, "input")


_SHOWN = 5
_MAX_INPUT = 200


def _change_line(change: ChangedCall) -> str:
    sent = change.input if len(change.input) <= _MAX_INPUT else f"{change.input[:_MAX_INPUT]}…"
    why = f"  {note_line(change.issues[0])}" if change.issues else ""
    return f"    {local(change.at)}  {change.id}  {sent}{why}"


def encode_replay(replay: Replay) -> dict[str, Any]:
    """A replay as JSON."""
    form = _encoded(replay)
    for name in ("refused_samples", "admitted_samples", "broken_samples"):
        form[name] = [_encoded(change, "at") for change in getattr(replay, name)]
    return form


def _diff(patch: Patch) -> Iterator[str]:
    if patch.operations:
        yield from patch.diff.rstrip("\n").split("\n")


def _left(patch: Patch) -> Iterator[str]:
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


def _encoded(struct: msgspec.Struct, *times: str) -> dict[str, Any]:
    """A struct as JSON, without its patch, with times in UTC."""
    form: dict[str, Any] = msgspec.to_builtins(struct)
    form.pop("patch", None)
    return form | {name: utc(getattr(struct, name)) for name in times}


def _reasons(lost: Lost) -> str:
    return ", ".join(words for name, words in _WHY.items() if getattr(lost, name))


def _lost(lost: Lost, noun: str) -> Iterator[str]:
    if lost.total:
        why = ", ".join(
            f"{count:,} {words}" for name, words in _WHY.items() if (count := getattr(lost, name))
        )
        yield f"{counted(lost.total, noun)} could not be judged again: {why}"
