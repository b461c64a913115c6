"""`callpact docs`: reference pages of tools, from their contracts."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from callpact import contracts
from callpact.cli.contracts.types_command import chosen_tools, write_file
from callpact.cli.options import SourceOptions, takes_sources
from callpact.cli.output import counted, err, fail


class PageForm(StrEnum):
    """The forms of reference pages."""

    markdown = "markdown"
    html = "html"


@takes_sources
def docs(
    *,
    tools: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOOL", help="Only these tools, by id, wire name or alias."),
    ] = None,
    form: Annotated[PageForm, typer.Option("--format", help="The form of the pages.")] = (
        PageForm.markdown
    ),
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The folder to write one page for each namespace to; made if it is missing. "
            "[default: standard output, for one namespace]",
            metavar="DIR",
        ),
    ] = None,
    sources: SourceOptions,
) -> None:
    """Write reference pages of tools, one for each namespace.

    A page has the inputs, the fields of the outputs, examples, errors, policy, kind and access of
    each tool.
    """
    catalog = sources.look(sources.session())
    pages = contracts.write_pages(chosen_tools(catalog, tools), form.value)
    if folder is None:
        if len(pages) != 1:
            names = ", ".join(page.namespace for page in pages[:10])
            fail(f"there are {len(pages):,} namespaces ({names}); name a folder with --out")
        sys.stdout.write(pages[0].text)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"cannot make {folder}: {error.strerror or error}")
    for page in pages:
        write_file(folder / page.file_name, page.text)
    err.print(f"wrote {counted(len(pages), 'page')} to {folder}", highlight=False)
