"""`callpact types`: types for programs that read the results of tools."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callpact import contracts
from callpact.cli.options import SourceOptions, takes_sources
from callpact.cli.output import counted, err, fail
from callpact.schema.json_text import json_text

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.contracts import NamedSchema
    from callpact.tool import Tool


class TypeLanguage(StrEnum):
    """The languages that types are written in."""

    typescript = "typescript"
    zod = "zod"
    pydantic = "pydantic"
    jsonschema = "jsonschema"


def _written(schemas: Iterable[NamedSchema], to: TypeLanguage) -> str:
    match to:
        case TypeLanguage.typescript:
            return contracts.write_typescript(schemas)
        case TypeLanguage.zod:
            return contracts.write_zod(schemas)
        case TypeLanguage.pydantic:
            return contracts.write_pydantic(schemas)
        case TypeLanguage.jsonschema:
            return json_text(contracts.bundle_schemas(schemas), indent=True) + "\n"


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
    schemas = contracts.name_schemas(
        chosen_tools(catalog, tools), ("input", "output") if with_input else ("output",)
    )
    text = _written(schemas, to)
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
