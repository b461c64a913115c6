"""Commands about typed answers: `ask` runs an agent, `parse` parses the answer of a model.

Values are written to standard output, everything else to standard error.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from callpact.cli.ask.ask_files import STDIN, check_place, read_text
from callpact.cli.ask.ask_report import (
    encode_error,
    encode_repairs,
    exit_of,
    print_refusal,
    print_repairs,
)
from callpact.cli.ask.ask_run import (
    LIMITS,
    AskOptions,
    Display,
    RepairName,
    dumped,
    repairing,
    resume_run,
    shape_from,
    start_run,
)
from callpact.cli.options import RecordOption, SourceOptions, takes_sources
from callpact.cli.output import err, print_json, run
from callpact.errors import OutputSchemaError, UsageError

Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        help="What the answer must be: a file with a JSON Schema, or a type, `module.py:Name`.",
        metavar="FILE",
    ),
]
Repairs = Annotated[
    RepairName | None,
    typer.Option(
        "--repair",
        help="`safe` reads broken JSON where no meaning can be lost. [default: none]",
    ),
]
Allowed = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        help="A repair that could change the meaning and is taken all the same. Repeatable.",
        metavar="NAME",
    ),
]


def add_ask_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command()(ask)
    app.command()(parse)


# --- parse ----------------------------------------------------------------------------------


def parse(
    *,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="What a model wrote; `-` is standard input."),
    ] = STDIN,
    schema: Schema = None,
    repair: Repairs = None,
    allow: Allowed = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Value and repairs, or the error, as one JSON object.")
    ] = False,
) -> None:
    """Parse the answer of a model, check it against a schema, and print the value as JSON.

    Repairs, or the error with its stage, are printed on standard error. Exit code 0 for a value, 8
    for text that is not JSON or breaks its schema, 2 for wrong use.
    """
    from callpact.agent.answer.parse import parse_answer
    from callpact.agent.answer.shape import shape_of
    from callpact.agent.declaration import allowed_repairs

    how, allowed = repairing(repair, allow), allowed_repairs(allow or ())
    shape = shape_from(schema) or shape_of({})
    if file == STDIN and sys.stdin is not None and sys.stdin.isatty():
        err.print("reading the answer from the keyboard; Ctrl-D ends it", style="dim")
    raw = read_text(file, "the answer")
    try:
        parsed = parse_answer(raw, shape, repair=how, allow=allowed)
    except OutputSchemaError as error:
        if as_json:
            print_json({"error": encode_error(error)}, sys.stdout)
        else:
            print_refusal(error, shape, shows_raw=False)
        raise typer.Exit(exit_of(error)) from None
    value = dumped(shape, parsed.value)
    if as_json:
        print_json({"value": value, "repairs": encode_repairs(parsed.repairs, raw)}, sys.stdout)
        return
    print_repairs(parsed.repairs, raw)
    print_json(value, sys.stdout)


# --- ask ------------------------------------------------------------------------------------


@takes_sources
def ask(
    *,
    message: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="What to ask; `-` reads standard input."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help=(
                "The model: `openai:…`, `anthropic:…`, …; `scripted:FILE.json` gives the replies "
                "of a file, for trials."
            ),
            metavar="NAME",
        ),
    ] = None,
    schema: Schema = None,
    system: Annotated[str, typer.Option("--system", help="The system prompt of the model.")] = "",
    retries: Annotated[
        int,
        typer.Option(
            "--retries",
            help="How often the model is asked again for a valid answer.",
            min=0,
            max=10,
        ),
    ] = 0,
    attempts: Annotated[
        int | None,
        typer.Option(
            "--attempts",
            help="Requests for a valid answer within one turn, by the strict rules.",
            min=1,
            max=50,
        ),
    ] = None,
    repair: Repairs = None,
    allow: Allowed = None,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", help="Where the model is served, if elsewhere.", metavar="URL"),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory", help="SQLite file of earlier turns; made if missing.", metavar="FILE"
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", help="Which conversation to go on with.", metavar="NAME"),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            help=f"What the run may cost: {', '.join(LIMITS)}. Repeatable.",
            metavar="NAME=NUMBER",
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Print text as it arrives; with a schema to standard error, as it is provisional.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Value, repairs and costs, or the error, as JSON; a stream in lines."
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            help="Where a run that pauses is kept. [default: a file of its own]",
            metavar="FILE",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", help="Go on with a run that paused.", metavar="FILE"),
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(
            "--answer", help="To the question of the paused run: JSON, or text.", metavar="TEXT"
        ),
    ] = None,
    audit: RecordOption = None,
    sources: SourceOptions,
) -> None:
    """Ask a model that may call the tools, and check its final answer against a schema.

    Exit code 0 for an answer; 8 if it breaks its contract, 7 if the model could not be asked, 9 at
    a limit, 6 if the run paused with a question or was given up, 2 for wrong use.
    """
    display = Display(as_json=as_json, stream=stream, checkpoint=checkpoint or resume)
    if checkpoint is not None:
        check_place(checkpoint)
    if resume is not None:
        if message is not None or answer is None:
            raise UsageError('to go on: callpact ask --resume FILE --answer "…", and nothing new')
        if stream:
            raise UsageError("--stream shows a run from its beginning; leave it out with --resume")
        given = {"model": model, "schema": schema, "base_url": base_url}
        run(resume_run(resume, answer, given, sources, display=display, audit=audit))
        return
    if answer is not None:
        raise UsageError("--answer answers a paused run; name it with --resume FILE")
    if message is None:
        raise UsageError('say what to ask: callpact ask "…"; `-` reads standard input')
    if model is None:
        raise UsageError(
            "say whom to ask with --model, e.g. openai:gpt-5-mini or anthropic:claude-sonnet-4-5; "
            "scripted:FILE.json tries things out without a key"
        )
    if schema is None and (retries or attempts or repair or allow):
        raise UsageError("--retries, --attempts, --repair and --allow need --schema")
    options = AskOptions(
        model=model,
        schema=schema,
        system=system,
        retries=retries,
        attempts=attempts,
        repair=repair,
        allow=tuple(allow or ()),
        base_url=base_url,
        memory=memory,
        session=session,
        limits=tuple(limit or ()),
    )
    text = read_text(STDIN, "the message") if message == STDIN else message
    run(start_run(text, options, sources, display, audit))
