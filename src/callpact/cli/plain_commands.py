"""Commands and groups of typer that start without rich and pydantic.

Typer draws its help with rich, and converts every value of an option with pydantic; each takes
longer to import than a whole call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from typer.core import TyperCommand, TyperGroup


class PlainCommand(TyperCommand):
    """A command whose help has a section for each group of options, and ends with its examples."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the values of all parameters."""
        _convert_plainly(self, ctx)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options by the names of their groups."""
        _write_parameters(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as typer calls it
        """Write the examples, each on a line of its own, to be copied."""
        if self.epilog:
            with formatter.section("Examples"):
                for line in self.epilog.splitlines():
                    formatter.write(f"{' ' * formatter.current_indent}{line}\n")


class PlainGroup(TyperGroup):
    """A group of commands whose help has the whole first sentence of each."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the values of all parameters."""
        _convert_plainly(self, ctx)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, then the commands."""
        _write_parameters(self, ctx, formatter)
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(1_000)) for name, each in self.commands.items()]
            )


def _write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            sections.setdefault(parameter.rich_help_panel or kind, []).append(record)
    for name, records in sections.items():
        if records:
            with formatter.section(name):
                formatter.write_dl(records)


def _convert_plainly(command: Any, ctx: Any) -> None:
    for parameter in command.get_params(ctx):
        parameter.process_value = partial(_converted, parameter, parameter.process_value)


def _converted(parameter: Any, by_typer: Callable[..., Any], ctx: Any, value: Any) -> Any:
    """The value of a parameter; typer converts only what is not of its type already."""
    kind = parameter.type_descriptor.annotation
    if value is None and not parameter.required:
        value = () if parameter.multiple or parameter.nargs == -1 else None
    elif kind == list[str] and value:
        value = list(value)
    elif not (isinstance(kind, type) and isinstance(value, kind)):
        return by_typer(ctx, value)
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)
