"""`callpact serve --as flowmcp`, and `as` under `[serve]`: the form of results over stdio."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import piped
from callpact.config_file import read_config
from callpact.errors import InvalidConfig

TOOLS = Path(__file__).parent / "behaviour.py"
CONFIG = f'[serve]\nas = "flowmcp"\n[sources.behaviour]\nref = "python:{TOOLS}"\n'


class Configured(piped.Piped):
    """A server whose sources are those of a configuration file."""

    def __init__(self, file, *options):
        super().__init__(TOOLS, "--config", file, *options)


def sum_of(wire):
    wire.send(wire.call("behaviour_add", a=1, b=2))
    return wire.read()["result"]["structuredContent"]


def test_the_option_gives_flowmcps_form():
    with piped.Piped(TOOLS, "--as", "flowmcp") as wire:
        found = sum_of(wire)
    assert found.keys() == {"status", "messages", "data"}
    assert found["status"] is True


@pytest.mark.parametrize(("options", "keys"), [((), {"status", "messages", "data"}), (("--as", "mcp"), None)])  # fmt: skip
def test_the_configuration_gives_it_and_the_option_comes_first(tmp_path, options, keys):
    file = tmp_path / "callpact.toml"
    file.write_text(CONFIG, "utf-8")
    with Configured(file, *options) as wire:
        found = sum_of(wire)
    assert ("status" in found) == (keys is not None)


def test_a_form_that_is_not_known_is_refused_with_those_that_are(tmp_path):
    file = tmp_path / "callpact.toml"
    file.write_text(CONFIG.replace('"flowmcp"', '"xml"'), "utf-8")
    with pytest.raises(InvalidConfig, match=r"serve\.as: .*'mcp' or 'flowmcp'"):
        read_config(file)
    file.write_text("[serve]\nas_ = 1\n", "utf-8")
    with pytest.raises(InvalidConfig, match=r"known here: .*\bas\b"):
        read_config(file)


def test_the_help_names_both_forms():
    command = [sys.executable, "-m", "callpact", "serve", "--help"]
    env = {**os.environ, "COLUMNS": "200", "TERM": "dumb"}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout
    assert "mcp|flowmcp" in told
