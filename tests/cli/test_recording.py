"""Every call that comes through the command line or a door leaves exactly one record."""

from __future__ import annotations

import asyncio
import sys

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from typer.testing import CliRunner

from callpact.audit import open_store, record_calls
from callpact.audit.store import Filter, compactor
from callpact.cli.main import whole

TOOLS = """
from typing import Annotated
from pydantic import Field
from callpact import ToolError, tool

@tool
def buy(item: str, times: Annotated[int, Field(le=5)] = 1) -> str:
    if item == "gold":
        raise ToolError("sold_out", "No gold left")
    return f"{times} {item}"

@tool
def enter(password: Annotated[str, Field(json_schema_extra={"writeOnly": True})]) -> str:
    return "welcome"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "shop_on_record.py").write_text(TOOLS, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def call(*args):
    return CliRunner().invoke(whole(), ["call", "-s", "python:shop_on_record.py", *args])


def records(where=None):
    store = open_store(where)
    try:
        found = store.log(Filter())
        return [store.find(record.id) for record in reversed(found)]
    finally:
        store.close()


def test_every_outcome_of_the_command_line_leaves_one_record(folder):
    call("shop_on_record.buy", "item=tea")
    call("shop_on_record.buy", "item=tea", "times=9")
    call("shop_on_record.buy", "item=gold")
    call("shop_on_record.sell", "item=gold")
    call("buy", "item=tea")
    kept = records()
    assert [(record.gate, record.code, record.via) for record in kept] == [
        (None, None, "cli"),
        ("input", "schema_validation_failed", "cli"),
        ("handler", "sold_out", "cli"),
        ("find", "tool_not_found", "cli"),
        ("find", "tool_not_found", "cli"),
    ]
    assert kept[0].input.json == '{"item":"tea"}'
    assert kept[0].output.json == '"1 tea"'
    assert kept[1].key == "schema_validation_failed:/times:maximum"
    assert kept[1].input.json == '{"item":"tea","times":9}'


def test_what_a_schema_marks_as_secret_is_not_on_record(folder):
    call("shop_on_record.enter", "password=open sesame")
    [record] = records()
    assert record.tool == "shop_on_record.enter"
    held = [path for path in (folder / "data").rglob("*") if path.is_file()]
    assert held
    assert not any(b"open sesame" in path.read_bytes() for path in held)


@pytest.mark.parametrize("how", ["option", "table"])
def test_where_no_record_is_wanted_there_is_none(folder, how):
    if how == "option":
        call("shop_on_record.buy", "item=tea", "--audit", "off")
    else:
        (folder / "callpact.toml").write_text(
            '[sources.x]\nref = "python:shop_on_record.py"\n[audit]\nenabled = false\n', "utf-8"
        )
        done = CliRunner().invoke(whole(), ["call", "x.buy", "item=tea"])
        assert done.exit_code == 0
    assert not (folder / "data").exists()


def test_the_folder_of_the_log_can_be_named(folder):
    call("shop_on_record.buy", "item=tea", "--audit", "log")
    assert [record.tool for record in records(folder / "log")] == ["shop_on_record.buy"]
    assert not (folder / "data").exists()


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
def test_every_call_over_mcp_leaves_one_record_with_its_door(folder, mode):
    args = ["-m", "callpact", "serve", "--stdio", "-s", "shop_on_record.py", "--audit", "log"]

    async def go():
        server = StdioServerParameters(command=sys.executable, args=args, cwd=folder)
        async with Client(server, mode=mode) as client:
            await client.call_tool("shop_on_record_buy", {"item": "tea"})
            await client.call_tool("shop_on_record_buy", {})
            return client.protocol_version

    era = asyncio.run(asyncio.wait_for(go(), 60))
    kept = records(folder / "log")
    assert [(record.gate, record.via) for record in kept] == [
        (None, f"mcp {era}"),
        ("input", f"mcp {era}"),
    ]


def test_commands_that_end_at_once_make_files_of_many_segments_and_remove_what_is_too_much(
    folder, monkeypatch
):
    monkeypatch.setattr(compactor, "DUE_SEGMENTS", 3)
    for number in range(1, 4):
        assert not (folder / "log" / "store").exists()
        call("shop_on_record.buy", "item=tea", "--audit", "log")
        assert len(records("log")) == number
    assert len(list((folder / "log" / "store").glob("*.parquet"))) == 1
    assert list((folder / "log" / "journal").glob("*.jsonl")) == []
    monkeypatch.setattr(compactor, "DUE_SEGMENTS", 1)
    with record_calls("log", keep_bytes=1) as recorder:
        assert recorder._journal.append(b"\n")
    assert records("log") == []
