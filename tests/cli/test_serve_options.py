"""Every option of `serve` can be in `callpact.toml`; the command line takes precedence."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from mcp import Client
from mcp.client.stdio import StdioServerParameters

import command_line
from callpact.cli.main import whole
from callpact.cli.options import _SHARED
from callpact.cli.serve import serve_options
from callpact.config_file import AuditConfig, ServeConfig, read_config

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
GIVEN = {
    "stdio": True,
    "host": "::1",
    "port": 9,
    "workers": 3,
    "path": "/x",
    "package": "shop@^1",
    "packages": "published",
    "draft": True,
    "name": "shop",
    "version": "1.2",
    "instructions": "Be kind.",
    "list_up_to": 5,
    "advertise": "none",
    "as_": "flowmcp",
    "result_limit": 2_000,
    "ask_first": True,
    "watch": True,
    "metrics": True,
    "scopes": ["pay"],
    "trust_network": True,
}


def test_every_option_has_a_key():
    command = typer.main.get_command(whole()).commands["serve"]
    keys = {"server_version": "version", "scope": "scopes", "as_": "as_"}
    own = {keys.get(param.name, param.name) for param in command.params} - _SHARED.keys() - {"help"}
    assert own - {"audit"} == GIVEN.keys()
    assert GIVEN.keys() <= ServeConfig.model_fields.keys()


def test_the_table_counts_where_no_option_is_given(tmp_path):
    written = {key.rstrip("_"): json.dumps(value) for key, value in GIVEN.items()}
    lines = [f"{key} = {value}" for key, value in written.items()]
    file = tmp_path / "callpact.toml"
    file.write_text("[serve]\n" + "\n".join(lines) + "\n", "utf-8")
    table = read_config(file).serve
    options = serve_options(table, **dict.fromkeys(GIVEN))
    assert {key: getattr(options, key) for key in GIVEN} == GIVEN
    assert serve_options(table, **{**dict.fromkeys(GIVEN), "port": 0, "watch": False}).port == 0
    assert not serve_options(table, **{**dict.fromkeys(GIVEN), "watch": False}).watch


@pytest.mark.parametrize(("table", "prefix"), [(ServeConfig, "serve"), (AuditConfig, "audit")])
def test_every_key_is_in_the_reference(table, prefix):
    page = PAGE.read_text("utf-8")
    for name, field in table.model_fields.items():
        assert f"| `{prefix}.{field.alias or name}` |" in page


TOML = """\
[sources.shop]
ref = "python:shop.py"

[serve]
stdio = true
metrics = true
name = "till"
version = "7.1"
instructions = "Ask for prices only."
"""


@pytest.mark.parametrize(("options", "name"), [([], "till"), (["--name", "desk"], "desk")])
def test_a_client_gets_name_version_and_instructions(tmp_path, options, name):
    (tmp_path / "shop.py").write_text(
        "from callpact import tool\n@tool\ndef greet() -> str: return ''\n", "utf-8"
    )
    (tmp_path / "callpact.toml").write_text(TOML, "utf-8")
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "callpact", "serve", "--audit", "off", *options],
        cwd=tmp_path,
        env=command_line.environment(),
    )

    async def story():
        async with asyncio.timeout(60), Client(server) as client:
            info = client.server_info
            return info.name, info.version, client.instructions

    assert asyncio.run(story()) == (name, "7.1", "Ask for prices only.")


def test_metrics_and_stdio_together_on_the_command_line_are_wrong_use(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "callpact", "serve", "--stdio", "--metrics", "-s", "x.py"],
        capture_output=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert b"--metrics" in done.stderr
