"""The help of every command has an example that the command accepts, and options in groups."""

from __future__ import annotations

import shlex

import pytest
import typer.main

import command_line
from callpact.cli.examples import EXAMPLES
from callpact.cli.main import whole
from callpact.cli.options import _SHARED
from terminal import on_terminal

run = command_line.run


def every_command():
    root = typer.main.get_command(whole())
    for name, command in root.commands.items():
        below = getattr(command, "commands", None)
        if below is None:
            yield name, command
        else:
            yield from ((f"{name} {part}", each) for part, each in below.items())


COMMANDS = dict(every_command())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_it_accepts(name):
    for line in EXAMPLES[name].splitlines():
        words = shlex.split(line)
        assert " ".join(words).startswith(f"callpact {name}")
        given = words[1 + len(name.split()) :]
        with COMMANDS[name].make_context(name, given) as context:
            assert context.params is not None


def test_there_is_no_example_of_a_command_that_is_gone():
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_options_are_shown_in_groups_with_the_examples_at_the_end(columns):
    for command in ("list", "serve"):
        lines = on_terminal(command, "--help", columns=columns).text.splitlines()
        groups = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
        assert [group for group in groups if group != "Arguments"] == [
            *("Options", "Sources", "FlowMCP", "Network", "Logging", "Examples")
        ]
        examples = lines[lines.index("Examples:") + 1 :]
        assert [line.strip() for line in examples if line] == EXAMPLES[command].splitlines()
        assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("words", [(), ("audit",), ("libs",)], ids=" ".join)
def test_the_help_of_a_group_has_all_its_commands_uncut(words, run):
    shown = " ".join(run(*words, "--help").out.split())
    group = typer.main.get_command(whole())
    for word in words:
        group = group.commands[word]
    for name, command in group.commands.items():
        assert f"{name} {command.get_short_help_str(1_000)}" in shown


def test_every_shared_option_has_a_group():
    for kind, _ in _SHARED.values():
        assert kind.__metadata__[0].rich_help_panel
