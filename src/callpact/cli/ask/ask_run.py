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
    Way,
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
from callpact.cli.options import Chosen, ProfileName
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
    from callpact.agent.answer.parse import Repairing
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
    """Whether slightly broken JSON is read."""

    none = "none"
    safe = "safe"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
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
class Showing:
    """How the answer is written, and where a run that pauses is kept."""

    as_json: bool
    stream: bool
    checkpoint: Path | None


def repairing(repair: RepairName | None, allow: list[str] | None) -> Repairing:
    """How an answer is read: to allow a repair is to want them.

    Raises:
        UsageError: some are allowed, and none wanted.
    """
    if repair is None:
        return "safe" if allow else "none"
    if repair is RepairName.none and allow:
        raise UsageError("--allow names repairs, and --repair is none; leave one of them out")
    return repair.value


def shape_from(schema: str | None) -> Shape[Any] | None:
    """The shape that `--schema` names, if it does.

    Raises:
        CallpactError: it names none.
    """
    if schema is None:
        return None
    # Text that a module prints on import must not mix with the results.
    with contextlib.redirect_stdout(sys.stderr):
        return read_shape(schema)


def dumped(shape: Shape[Any], value: Any) -> Any:
    """A value as JSON data, as its type says."""
    return value if shape.dump is None else shape.dump(value)


async def begin(
    message: str, asked: Asked, chosen: Chosen, showing: Showing, audit: str | None
) -> int:
    """Ask; returns the exit code.

    Raises:
        CallpactError: it cannot begin.
    """
    shape, model = shape_from(asked.schema), _model(asked, 0)
    async with chosen.session(audit) as session:
        agent = await _agent(asked, shape, chosen, model=model, session=session)
        turns = asked.session or "default"

        async def go(agent: Agent[Any], way: Way) -> _Outcome:
            if showing.stream:
                return await _streamed(agent.stream(message, session=turns), asked, showing, way)
            with contextlib.redirect_stdout(sys.stderr):
                if shape is None:
                    return await agent.run(message, session=turns)
                return await agent.run_result(message, session=turns)

        return await _finished(agent, go, shape, asked, chosen=chosen, showing=showing)


async def go_on(
    file: Path,
    answer: str,
    given: dict[str, Any],
    chosen: Chosen,
    *,
    showing: Showing,
    audit: str | None,
) -> int:
    """Go on with a paused run; returns the exit code. Options in `given` take precedence.

    Raises:
        CallpactError: it cannot go on.
    """
    asked, chosen, checkpoint = _resumed(file, given, chosen)
    shape, model = shape_from(asked.schema), _model(asked, _requests(checkpoint))
    async with chosen.session(audit) as session:
        agent = await _agent(asked, shape, chosen, model=model, session=session)

        async def go(agent: Agent[Any], _: Way) -> _Outcome:
            resume = agent.resume if shape is None else agent.resume_result
            # A run that has its answer is forgotten: to resume it again would do all twice.
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    outcome = await resume(checkpoint, _answer(answer))
            except OutputSchemaError:
                _forget(file)
                raise
            if isinstance(outcome, str) or shape is not None:
                _forget(file)
            return outcome

        return await _finished(agent, go, shape, asked, chosen=chosen, showing=showing)


async def _finished(
    agent: Agent[Any],
    go: Callable[[Agent[Any], Way], Awaitable[_Outcome]],
    shape: Shape[Any] | None,
    asked: Asked,
    *,
    chosen: Chosen,
    showing: Showing,
) -> int:
    from callpact.agent.account import Paused

    # Only a run with a shape has a typed result, or a refusal.
    held = cast("Shape[Any]", shape)
    try:
        with Way(chosen.log_level, is_streamed=showing.stream) as way:
            outcome = await go(agent.on(way), way)
    except RunPaused as error:
        return _print_pause(error.paused, asked, chosen, showing)
    except OutputSchemaError as error:
        return _print_refusal(error, held, asked, showing)
    except (RunStopped, ModelError) as error:
        return _print_stop(error, shape, showing)
    if isinstance(outcome, str):
        return _print_text(outcome, showing)
    if isinstance(outcome, Paused):
        return _print_pause(outcome, asked, chosen, showing)
    return _print_value(outcome, held, showing)


async def _agent(
    asked: Asked,
    shape: Shape[Any] | None,
    chosen: Chosen,
    *,
    model: Model,
    session: Session,
) -> Agent[Any]:
    from callpact.agent.agent import Agent
    from callpact.agent.reliability import strict_output_rules

    limits = _limits(asked.limits)
    if session.options.refs or session.configuration.file is not None:
        await chosen.load(session)
    runtime = await session.start()
    agent: Agent[Any] = Agent(model, system=asked.system, name="ask", tools=runtime)
    if shape is not None:
        agent = agent.output_schema(
            shape,
            retries=asked.retries,
            repair=repairing(asked.repair, list(asked.allow)),
            allow=asked.allow,
        )
    if asked.attempts is not None:
        agent = agent.reliability(strict_output_rules(asked.attempts))
    if asked.memory is not None or asked.session is not None:
        agent = agent.memory(asked.memory)
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


def _model(asked: Asked, made: int) -> Model:
    """The model; a scripted one goes on after the requests that were made already."""
    if asked.model.startswith(_SCRIPTED):
        from callpact.agent.models.scripted import ScriptedModel

        place = asked.model.removeprefix(_SCRIPTED)
        return ScriptedModel(read_script(place)[made:], name=Path(place).name)
    from callpact.agent.models.open import open_model

    return open_model(asked.model, base_url=asked.base_url)


async def _streamed(
    pieces: AsyncGenerator[Streamed[Any], None], asked: Asked, showing: Showing, way: Way
) -> _Outcome:
    """Write tokens as they come; a reset and a tool call end the line.

    Raises:
        OutputSchemaError: the answer breaks its contract.
    """
    from callpact.agent.run.stream import Finished, Reset

    output, iteration = sys.stdout, 0
    outcome: _Outcome | None = None
    refusal: OutputSchemaError | None = None
    target = output if asked.schema is None else sys.stderr
    with contextlib.redirect_stdout(sys.stderr):
        async with while_read(output), contextlib.aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Finished):
                    outcome, refusal = piece.result or piece.answer, piece.refusal
                elif showing.as_json:
                    is_reset = isinstance(piece, Reset)
                    line = {"reset": piece.reason} if is_reset else {"token": piece.text}
                    print_json(line, output, is_line=True)
                elif isinstance(piece, Reset):
                    put("\n", target)
                    way.print_notes()
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


def _print_text(answer: Answer, showing: Showing) -> int:
    cut = {"finish": answer.finish} if answer.finish in CUT_OFF else {}
    if showing.as_json:
        form = {"answer": str(answer), **cut, "account": encode_account(answer.account)}
        print_json(form, sys.stdout, is_line=showing.stream)
        return 0
    if not showing.stream:
        put(answer if answer.endswith("\n") else f"{answer}\n", sys.stdout)
    if cut:
        err.print(plain(CUT_OFF[answer.finish]), style="yellow")
    print_account(answer.account)
    return 0


def _print_value(result: TypedResult[Any], shape: Shape[Any], showing: Showing) -> int:
    value = dumped(shape, result.value)
    if showing.as_json:
        form = {
            "value": value,
            "repairs": encode_repairs(result.repairs, result.answer),
            "account": encode_account(result.account),
        }
        print_json(form, sys.stdout, is_line=showing.stream)
        return 0
    print_repairs(result.repairs, result.answer)
    print_json(value, sys.stdout)
    print_account(result.account)
    return 0


def _print_refusal(
    error: OutputSchemaError, shape: Shape[Any], asked: Asked, showing: Showing
) -> int:
    account: Account = error.account
    if showing.as_json:
        form = {"error": encode_error(error), "account": encode_account(account)}
        print_json(form, sys.stdout, is_line=showing.stream)
    else:
        asks_again = asked.retries or asked.attempts
        again = "" if asks_again else "--retries 2 would show the model its mistake"
        print_refusal(error, shape, shows_raw=not showing.stream, again=again)
        print_account(account)
    return exit_of(error)


def _print_stop(error: CallpactError, shape: Shape[Any] | None, showing: Showing) -> int:
    account: Account | None = getattr(error, "account", None)
    if showing.as_json:
        form: dict[str, Any] = {"error": encode_error(error)}
        if account is not None:
            form["account"] = encode_account(account)
        print_json(form, sys.stdout, is_line=showing.stream)
        return exit_of(error)
    cause = getattr(error, "cause", None)
    if shape is not None and isinstance(cause, OutputSchemaError):
        print_stop(error)
        print_refusal(cause, shape, shows_raw=not showing.stream)
    else:
        print_stop(error)
    if account is not None:
        print_account(account)
    return exit_of(error)


# --- pauses ---------------------------------------------------------------------------------


def _print_pause(paused: Paused, asked: Asked, chosen: Chosen, showing: Showing) -> int:
    file = place_of_paused(showing.checkpoint, paused.account.run_id)
    write_paused(file, _options(asked, chosen), paused.checkpoint)
    if showing.as_json:
        print_json(encode_pause(paused, str(file)), sys.stdout, is_line=showing.stream)
    else:
        question: Any = paused.question
        words = question if isinstance(question, str) else msgspec.json.encode(question).decode()
        err.print(f"[bold]{plain(paused.tool)} asks:[/] {plain(words)}")
        err.print(plain(f'to go on: callpact ask --resume {shlex.quote(str(file))} --answer "…"'))
        print_account(paused.account)
    return CODES["paused"].exit


_CHOSEN = (
    *("source", "config", "profile", "lists", "allow_library", "secrets", "upstream"),
    *("allow_host", "hook_host", "hook_timeout"),
)


def _options(asked: Asked, chosen: Chosen) -> dict[str, Any]:
    """The options of the command, for the one that resumes the run."""
    given = {name: getattr(chosen, name) for name in _CHOSEN}
    options = {**dataclasses.asdict(asked), **given}
    plain_data = {key: str(v) if isinstance(v, Path) else v for key, v in options.items()}
    return msgspec.to_builtins(plain_data)


def _resumed(file: Path, given: dict[str, Any], chosen: Chosen) -> tuple[Asked, Chosen, str]:
    """The options of a paused run; those given again take precedence."""
    run_ = read_paused(file)
    if Path(run_.folder) != Path.cwd():
        text = f"the run was begun in {run_.folder}; its files are looked for here"
        err.print(plain(text), style="dim")
    options = dict(run_.options)
    before = {name: options.pop(name, None) for name in _CHOSEN}
    options |= {name: value for name, value in given.items() if value is not None}
    paths = {name: Path(before[name]) for name in ("config", "lists", "secrets") if before[name]}
    if before["profile"]:
        before["profile"] = ProfileName(before["profile"])
    kept = {n: v for n, v in {**before, **paths}.items() if getattr(chosen, n) is None}
    try:
        asked = Asked(**options)
        repair = None if asked.repair is None else RepairName(asked.repair)
        asked = dataclasses.replace(asked, repair=repair)
        return asked, dataclasses.replace(chosen, **kept), run_.checkpoint
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
