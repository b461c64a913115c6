"""`callpact types`: types for programs that read the results of tools."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callpact.cli.options import SourceOptions, takes_sources
from callpact.cli.output import counted, err, fail
from callpact.contracts import (
    NamedSchema,
    bundle_schemas,
    name_schemas,
    write_pydantic,
    write_typescript,
    write_zod,
)
from callpact.schema.json_text import json_text

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.tool import Tool


class TypeLanguage(StrEnum):
    """The languages that types are written in."""

    typescript = "typescript"
    zod = "zod"
    pydantic = "pydantic"
    jsonschema = "jsonschema"


def _bundle_text(schemas: Iterable[NamedSchema]) -> str:
    return json_text(bundle_schemas(schemas), indent=True) + "\n"


_WRITERS: dict[str, Callable[[Iterable[NamedSchema]], str]] = {
    "typescript": write_typescript,
    "zod": write_zod,
    "pydantic": write_pydantic,
    "jsonschema": _bundle_text,
}


@takes_sources
def types(
    *,
    tools: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOOL", help="Only these tools, by id, wire name or alias."),
    ] = None,
    to: Annotated[TypeLanguage, typer.Option("--to", help="The language of the types.")],
    with_input: Annotated[
        bool, typer.Option("--input", help="Types of the arguments, too.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--out", help="The file to write. [default: standard output]", metavar="FILE"),
    ] = None,
    sources: SourceOptions,
) -> None:
    """Write types of the outputs of tools, from their contracts.

    A tool without an output schema gets a type that allows every value. Exit code 2 if a keyword
    has no exact form in Zod; the error names the tool and the keyword.
    """
    catalog = sources.look(sources.session())
    schemas = name_schemas(
        chosen_tools(catalog, tools), ("input", "output") if with_input else ("output",)
    )
    text = _WRITERS[to.value](schemas)
    if output is None:
        sys.stdout.write(text)
        return
    write_file(output, text)
    err.print(f"wrote {counted(len(schemas), 'type')} to {output}", highlight=False)


def chosen_tools(catalog: Catalog, names: Iterable[str] | None) -> list[Tool]:
    """The tools of a catalog with these names, or all of them.

    Raises:
        UnknownTool: there is no such tool.
    """
    return [catalog.find(name) for name in names] if names else list(catalog)


def write_file(path: Path, text: str) -> None:
    """Write a file as UTF-8 with the line ends of Unix; its folder must exist."""
    try:
        path.write_text(text, "utf-8", newline="\n")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror or error}")
