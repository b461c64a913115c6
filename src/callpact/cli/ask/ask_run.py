"""One `ask`, from its options to the printed result: the agent, its run, the answer or the pause."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from callpact.cli.ask.ask_files import (
    place_of_paused,
    read_paused,
    read_script,
    read_shape,
    write_paused,
)
from callpact.cli.ask.ask_report import (
    CUT_OFF,
    Progress,
    encode_account,
    encode_error,
    encode_pause,
    encode_repairs,
    exit_of,
    print_account,
    print_refusal,
    print_repairs,
    print_stop,
    put,
)
from callpact.cli.options import ProfileName, SourceOptions
from callpact.cli.output import (
    err,
    plain,
    print_json,
    while_read,
)
from callpact.codes import CODES
from callpact.errors import (
    CallpactError,
    ModelError,
    OutputSchemaError,
    RunPaused,
    RunStopped,
    UsageError,
)

if TYPE_CHECKING:
    from callpact.agent.account import Account, Answer, Paused, TypedResult
    from callpact.agent.agent import Agent
    from callpact.agent.answer.parse import RepairMode
    from callpact.agent.answer.shape import Shape
    from callpact.agent.models.model import Model
    from callpact.agent.run.stream import Streamed
    from callpact.app import Session

    _Outcome = Answer | TypedResult[Any] | Paused

_SCRIPTED = "scripted:"
LIMITS: dict[str, type[int | float]] = {
    "iterations": int,
    "tokens": int,
    "cost": float,
    "seconds": float,
    "rejections": int,
}


class RepairName(StrEnum):
    """Which repairs of broken JSON are made."""

    none = "none"
    safe = "safe"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions:
    """The options of an agent; a paused run resumes with the same."""

    model: str
    schema: str | None = None
    system: str = ""
    retries: int = 0
    attempts: int | None = None
    repair: RepairName | None = None
    allow: tuple[str, ...] = ()
    base_url: str | None = None
    memory: str | None = None
    session: str | None = None
    limits: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """How the answer is written, and the file for a paused run."""

    as_json: bool
    stream: bool
    checkpoint: Path | None


def repairing(repair: RepairName | None, allow: list[str] | None) -> RepairMode:
    """The repair mode for an answer; `--allow` implies `safe`.

    Raises:
        UsageError: repairs are both allowed and turned off.
    """
    if repair is None:
        return "safe" if allow else "none"
    if repair is RepairName.none and allow:
        raise UsageError("--allow names repairs, and --repair is none; leave one of them out")
    return repair.value


def shape_from(schema: str | None) -> Shape[Any] | None:
    """The shape that `--schema` names; None without the option.

    Raises:
        CallpactError: it names no shape.
    """
    if schema is None:
        return None
    # Text that a module prints on import must not mix with the results.
    with contextlib.redirect_stdout(sys.stderr):
        return read_shape(schema)


def dumped(shape: Shape[Any], value: Any) -> Any:
    """A value as JSON data, dumped by its type."""
    return value if shape.dump is None else shape.dump(value)


async def start_run(
    message: str, options: AskOptions, sources: SourceOptions, display: Display, audit: str | None
) -> int:
    """Run an agent; returns the exit code.

    Raises:
        CallpactError: the run cannot start.
    """
    shape, model = shape_from(options.schema), _model(options, 0)
    async with sources.session(audit) as session:
        agent = await _agent(options, shape, sources, model=model, session=session)
        turns = options.session or "default"

        async def go(agent: Agent[Any], progress: Progress) -> _Outcome:
            if display.stream:
                return await _streamed(
                    agent.stream(message, session=turns), options, display, progress
                )
            with contextlib.redirect_stdout(sys.stderr):
                if shape is None:
                    return await agent.run(message, session=turns)
                return await agent.run_result(message, session=turns)

        return await _finished(agent, go, shape, options, sources=sources, display=display)


async def resume_run(
    file: Path,
    answer: str,
    given: dict[str, Any],
    sources: SourceOptions,
    *,
    display: Display,
    audit: str | None,
) -> int:
    """Resume a paused run; returns the exit code. Options in `given` take precedence.

    Raises:
        CallpactError: it cannot be resumed.
    """
    options, sources, checkpoint = _resumed(file, given, sources)
    shape, model = shape_from(options.schema), _model(options, _requests(checkpoint))
    async with sources.session(audit) as session:
        agent = await _agent(options, shape, sources, model=model, session=session)

        async def go(agent: Agent[Any], _: Progress) -> _Outcome:
            resume = agent.resume if shape is None else agent.resume_result
            # The file of a finished run is removed: resuming it again would repeat its calls.
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    outcome = await resume(checkpoint, _answer(answer))
            except OutputSchemaError:
                _forget(file)
                raise
            if isinstance(outcome, str) or shape is not None:
                _forget(file)
            return outcome

        return await _finished(agent, go, shape, options, sources=sources, display=display)


async def _finished(
    agent: Agent[Any],
    go: Callable[[Agent[Any], Progress], Awaitable[_Outcome]],
    shape: Shape[Any] | None,
    options: AskOptions,
    *,
    sources: SourceOptions,
    display: Display,
) -> int:
    from callpact.agent.account import Paused

    # Only a run with a shape has a typed result, or a refusal.
    held = cast("Shape[Any]", shape)
    try:
        with Progress(sources.log_level, is_streamed=display.stream) as progress:
            outcome = await go(agent.on(progress), progress)
    except RunPaused as error:
        return _print_pause(error.paused, options, sources, display)
    except OutputSchemaError as error:
        return _print_refusal(error, held, options, display)
    except (RunStopped, ModelError) as error:
        return _print_stop(error, shape, display)
    if isinstance(outcome, str):
        return _print_text(outcome, display)
    if isinstance(outcome, Paused):
        return _print_pause(outcome, options, sources, display)
    return _print_value(outcome, held, display)


async def _agent(
    options: AskOptions,
    shape: Shape[Any] | None,
    sources: SourceOptions,
    *,
    model: Model,
    session: Session,
) -> Agent[Any]:
    from callpact.agent.agent import Agent
    from callpact.agent.reliability import strict_output_rules

    limits = _limits(options.limits)
    if session.options.refs or session.configuration.file is not None:
        await sources.load(session)
    runtime = await session.start()
    agent: Agent[Any] = Agent(model, system=options.system, name="ask", tools=runtime)
    if shape is not None:
        agent = agent.output_schema(
            shape,
            retries=options.retries,
            repair=repairing(options.repair, list(options.allow)),
            allow=options.allow,
        )
    if options.attempts is not None:
        agent = agent.reliability(strict_output_rules(options.attempts))
    if options.memory is not None or options.session is not None:
        agent = agent.memory(options.memory)
    return agent.limits(**limits) if limits else agent


def _limits(given: tuple[str, ...]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for pair in given:
        name, _, number = pair.partition("=")
        kind = LIMITS.get(name.strip())
        if kind is None:
            raise UsageError(f"--limit is NAME=NUMBER with {', '.join(LIMITS)}, got '{pair}'")
        try:
            limits[name.strip()] = kind(number.replace("_", ""))
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise UsageError(f"--limit {name} takes {what}, got '{number}'") from None
    return limits


def _model(options: AskOptions, made: int) -> Model:
    """The model; a scripted one starts after the replies that were used already."""
    if options.model.startswith(_SCRIPTED):
        from callpact.agent.models.scripted import ScriptedModel

        place = options.model.removeprefix(_SCRIPTED)
        return ScriptedModel(read_script(place)[made:], name=Path(place).name)
    from callpact.agent.models.open import open_model

    return open_model(options.model, base_url=options.base_url)


async def _streamed(
    pieces: AsyncGenerator[Streamed[Any], None],
    options: AskOptions,
    display: Display,
    progress: Progress,
) -> _Outcome:
    """Write tokens as they come; a reset and a tool call end the line.

    Raises:
        OutputSchemaError: the answer breaks its contract.
    """
    from callpact.agent.run.stream import Finished, Reset

    output, iteration = sys.stdout, 0
    outcome: _Outcome | None = None
    refusal: OutputSchemaError | None = None
    target = output if options.schema is None else sys.stderr
    with contextlib.redirect_stdout(sys.stderr):
        async with while_read(output), contextlib.aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Finished):
                    outcome, refusal = piece.result or piece.answer, piece.refusal
                elif display.as_json:
                    is_reset = isinstance(piece, Reset)
                    line = {"reset": piece.reason} if is_reset else {"token": piece.text}
                    print_json(line, output, is_line=True)
                elif isinstance(piece, Reset):
                    put("\n", target)
                    progress.print_notes()
                    iteration = 0
                else:
                    ended = "\n" if iteration not in {0, piece.iteration} else ""
                    put(f"{ended}{piece.text}", target)
                    iteration = piece.iteration
    if iteration:
        put("\n", target)
    if refusal is not None:
        raise refusal
    return cast("_Outcome", outcome)


# --- results --------------------------------------------------------------------------------


def _print_text(answer: Answer, display: Display) -> int:
    cut = {"finish": answer.finish} if answer.finish in CUT_OFF else {}
    if display.as_json:
        form = {"answer": str(answer), **cut, "account": encode_account(answer.account)}
        print_json(form, sys.stdout, is_line=display.stream)
        return 0
    if not display.stream:
        put(answer if answer.endswith("\n") else f"{answer}\n", sys.stdout)
    if cut:
        err.print(plain(CUT_OFF[answer.finish]), style="yellow")
    print_account(answer.account)
    return 0


def _print_value(result: TypedResult[Any], shape: Shape[Any], display: Display) -> int:
    value = dumped(shape, result.value)
    if display.as_json:
        form = {
            "value": value,
            "repairs": encode_repairs(result.repairs, result.answer),
            "account": encode_account(result.account),
        }
        print_json(form, sys.stdout, is_line=display.stream)
        return 0
    print_repairs(result.repairs, result.answer)
    print_json(value, sys.stdout)
    print_account(result.account)
    return 0


def _print_refusal(
    error: OutputSchemaError, shape: Shape[Any], options: AskOptions, display: Display
) -> int:
    account: Account = error.account
    if display.as_json:
        form = {"error": encode_error(error), "account": encode_account(account)}
        print_json(form, sys.stdout, is_line=display.stream)
    else:
        asks_again = options.retries or options.attempts
        again = "" if asks_again else "--retries 2 would show the model its mistake"
        print_refusal(error, shape, shows_raw=not display.stream, again=again)
        print_account(account)
    return exit_of(error)


def _print_stop(error: CallpactError, shape: Shape[Any] | None, display: Display) -> int:
    account: Account | None = getattr(error, "account", None)
    if display.as_json:
        form: dict[str, Any] = {"error": encode_error(error)}
        if account is not None:
            form["account"] = encode_account(account)
        print_json(form, sys.stdout, is_line=display.stream)
        return exit_of(error)
    cause = getattr(error, "cause", None)
    if shape is not None and isinstance(cause, OutputSchemaError):
        print_stop(error)
        print_refusal(cause, shape, shows_raw=not display.stream)
    else:
        print_stop(error)
    if account is not None:
        print_account(account)
    return exit_of(error)


# --- pauses ---------------------------------------------------------------------------------


def _print_pause(
    paused: Paused, options: AskOptions, sources: SourceOptions, display: Display
) -> int:
    file = place_of_paused(display.checkpoint, paused.account.run_id)
    write_paused(file, _options(options, sources), paused.checkpoint)
    if display.as_json:
        print_json(encode_pause(paused, str(file)), sys.stdout, is_line=display.stream)
    else:
        question: Any = paused.question
        words = question if isinstance(question, str) else msgspec.json.encode(question).decode()
        err.print(f"[bold]{plain(paused.tool)} asks:[/] {plain(words)}")
        err.print(plain(f'to go on: callpact ask --resume {shlex.quote(str(file))} --answer "…"'))
        print_account(paused.account)
    return CODES["paused"].exit


_SAVED = (
    *("source", "config", "profile", "lists", "allow_library", "secrets", "upstream"),
    *("allow_host", "hook_host", "hook_timeout"),
)


def _options(options: AskOptions, sources: SourceOptions) -> dict[str, Any]:
    """The options of the command, for the one that resumes the run."""
    given = {name: getattr(sources, name) for name in _SAVED}
    saved = {**dataclasses.asdict(options), **given}
    return msgspec.to_builtins({k: str(v) if isinstance(v, Path) else v for k, v in saved.items()})


def _resumed(
    file: Path, given: dict[str, Any], sources: SourceOptions
) -> tuple[AskOptions, SourceOptions, str]:
    """The options of a paused run; those given again take precedence."""
    run_ = read_paused(file)
    if Path(run_.folder) != Path.cwd():
        text = f"the run was begun in {run_.folder}; its files are looked for here"
        err.print(plain(text), style="dim")
    saved = dict(run_.options)
    before = {name: saved.pop(name, None) for name in _SAVED}
    saved |= {name: value for name, value in given.items() if value is not None}
    paths = {name: Path(before[name]) for name in ("config", "lists", "secrets") if before[name]}
    if before["profile"]:
        before["profile"] = ProfileName(before["profile"])
    kept = {n: v for n, v in {**before, **paths}.items() if getattr(sources, n) is None}
    try:
        options = AskOptions(**saved)
        repair = None if options.repair is None else RepairName(options.repair)
        options = dataclasses.replace(options, repair=repair)
        return options, dataclasses.replace(sources, **kept), run_.checkpoint
    except (TypeError, ValueError) as error:
        raise UsageError(f"--resume: '{file}' cannot be used: {error}") from None


def _forget(file: Path) -> None:
    file.unlink(missing_ok=True)


def _requests(checkpoint: str) -> int:
    from callpact.agent.run.pause import read_checkpoint

    return read_checkpoint(checkpoint, "ask").made


def _answer(text: str) -> Any:
    """Decode JSON; other text is returned as it is."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
