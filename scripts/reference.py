"""Writes docs/reference/ from the code: codes, command line, configuration, limits.

With `--check` it writes nothing, and exits with 1 if a page is not what the code says.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import typer.main

from callpact.cli import app
from callpact.config import Config, SourceConfig
from callpact.errors import CODES, OWN_CODE

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
NOTE = "<!-- Written by scripts/reference.py; do not edit. -->\n\n"


def codes() -> str:
    """The table of codes, the one in errors.py."""
    lines = [
        "# Codes",
        "",
        (
            "One code for one kind of failure, the same in Python (`CallError.code`), over MCP and "
            "on the command line. *Event* is its name in the events of the call protocol, "
            "*FlowMCP* the one in `{status, messages, data}`, *exit* the exit code of "
            "`callpact call`."
        ),
        "",
        "| code | event | FlowMCP | HTTP | exit | meaning |",
        "| --- | --- | --- | ---: | ---: | --- |",
    ]
    for row in (*CODES.values(), OWN_CODE):
        name = row.code if row is OWN_CODE else f"`{row.code}`"
        lines.append(
            f"| {name} | {row.event} | {row.flowmcp} | {row.http} | {row.exit} | {row.meaning} |"
        )
    lines += [
        "",
        (
            "Wrong use of the command line, a source that cannot be read and a configuration that "
            "cannot be used end with exit code 2."
        ),
    ]
    return "\n".join(lines) + "\n"


def command_line() -> str:
    """Every command with its arguments and options, as typer has them."""
    root: Any = typer.main.get_command(app)
    lines = ["# Command line", "", root.help, ""]
    for name, command in root.commands.items():
        lines += [f"## callpact {name}", "", inspect.cleandoc(command.help or ""), ""]
        lines += ["| argument or option | meaning | default |", "| --- | --- | --- |"]
        for param in command.params:
            kind = getattr(param, "param_type_name", "option")
            label = param.metavar or param.name if kind == "argument" else ", ".join(param.opts)
            choices = _choices(param)
            about = (param.help or "") + (
                f" One of {', '.join(map(str, choices))}." if choices else ""
            )
            lines.append(f"| `{label}` | {about} | {_default(param)} |")
        lines.append("")
    return "\n".join(lines)


def _choices(param: Any) -> list[str]:
    kind = param.type_descriptor.annotation
    return (
        [member.value for member in kind]
        if isinstance(kind, type) and issubclass(kind, Enum)
        else []
    )


def _default(param: Any) -> str:
    if param.default is None or param.default is False or callable(param.default):
        return "required" if param.required else ""
    value = getattr(param.default, "value", param.default)
    return f"`{value}`" if "Sentinel" not in type(value).__name__ else "required"


def configuration() -> str:
    """Every key of callpact.toml."""
    lines = [
        "# Configuration",
        "",
        (
            "`callpact.toml` in the current directory, or the file named with `--config`. It is "
            "read when no source is named with `-s`."
        ),
        "",
        "```toml",
        "[sources.shop]",
        'ref = "python:shop.py"',
        'policy = "reject"',
        "```",
        "",
        "| key | meaning |",
        "| --- | --- |",
    ]
    lines += [f"| `{name}` | {f.description} |" for name, f in Config.model_fields.items()]
    lines += [
        f"| `sources.NAME.{name}` | {f.description} |"
        for name, f in SourceConfig.model_fields.items()
    ]
    return "\n".join(lines) + "\n"


def limits() -> str:
    """Every limit, with the sentence that stands under it in the code."""
    lines = [
        "# Limits",
        "",
        (
            "Schemas, values, model output and configuration are hostile until shown otherwise. "
            "What goes beyond a limit is refused with an error that names it."
        ),
        "",
        "| limit | value | what it bounds |",
        "| --- | ---: | --- |",
    ]
    for path in sorted((ROOT / "src").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for name, sentence in _sentences(path.read_text("utf-8")).items():
            if name.startswith("MAX_") or name == "DEFAULT_TIMEOUT":
                value = getattr(importlib.import_module(module.removesuffix(".__init__")), name)
                lines.append(f"| `{name}` in `{module}` | {value:,} | {sentence} |")
    return "\n".join(lines) + "\n"


def _sentences(source: str) -> dict[str, str]:
    """The string under each constant."""
    found: dict[str, str] = {}
    body = ast.parse(source).body
    for node, after in itertools.pairwise(body):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            found[node.targets[0].id] = " ".join(str(after.value.value).split())
    return found


WRITERS = {
    "codes.md": codes,
    "command-line.md": command_line,
    "configuration.md": configuration,
    "limits.md": limits,
}


def main(arguments: list[str]) -> int:
    """Write or check every page."""
    stale = [name for name, write in WRITERS.items() if _on_disk(name) != NOTE + write()]
    if "--check" in arguments:
        for name in stale:
            print(f"docs/reference/{name} is not what the code says; run scripts/reference.py")
        return 1 if stale else 0
    for name, write in WRITERS.items():
        (PAGES / name).write_text(NOTE + write(), "utf-8")
    return 0


def _on_disk(name: str) -> str:
    path = PAGES / name
    return path.read_text("utf-8") if path.exists() else ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
