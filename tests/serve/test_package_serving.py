"""`callpact serve --package`: published contracts, followed and announced, with a draft beside."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys

import mcp_types as types
import pytest
from mcp import Client
from mcp.server.subscriptions import ToolsListChanged

import raw
from callpact.audit import open_store
from callpact.audit.store import Filter
from watched import LEGACY, MODERN, Heard

SHOP = """
from typing import Literal
from callpact import tool

@tool
async def price(item: str, currency: Literal["EUR", "USD"] = "EUR") -> float:
    "The price of an item."
    return 1.0
"""
WIDER = SHOP.replace('"USD"]', '"USD", "CHF"]')
TWO, THREE = ["EUR", "USD"], ["EUR", "USD", "CHF"]


@pytest.fixture
def command(tmp_path):
    """Runs a command in the folder of the tools, in a process of its own."""

    def command_(*words, code=0):
        line = [sys.executable, "-m", "callpact", *words]
        done = subprocess.run(
            line, cwd=tmp_path, capture_output=True, text=True, timeout=raw.PATIENCE, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    command_("publish", "-s", "shop.py", "--name", "shop")
    return command_


def publish_wider(command, folder):
    (folder / "shop.py").write_text(WIDER, "utf-8")
    command("publish", "-s", "shop.py", "--name", "shop")


async def currencies(client):
    found = next(each for each in (await client.list_tools()).tools if each.name == "shop_price")
    return found.input_schema["properties"]["currency"]["enum"]


async def until_listed(expected, *clients):
    """Wait for a list; with workers, another one may notice a change a moment later."""
    for client in clients:
        while await currencies(client) != expected:
            await asyncio.sleep(0.05)


@pytest.mark.requirement("004.versions.next-list")
@pytest.mark.parametrize("more", [(), ("--workers", "2")], ids=["one", "workers"])
def test_a_published_version_and_a_rollback_reach_every_connected_client(command, tmp_path, more):
    async def go(address):
        heard = Heard()
        async with (
            asyncio.timeout(60),
            Client(address, mode=LEGACY, message_handler=heard) as old,
            Client(address, mode=MODERN) as new,
            new.listen(tools_list_changed=True) as stream,
        ):
            assert await currencies(old) == await currencies(new) == TWO
            await asyncio.to_thread(publish_wider, command, tmp_path)
            assert await anext(stream) == ToolsListChanged()
            await heard.until(types.ToolListChangedNotification)
            await until_listed(THREE, old, new)

            await asyncio.to_thread(command, "packages", "rollback", "shop@1.0.0")
            assert await anext(stream) == ToolsListChanged()
            await heard.until(types.ToolListChangedNotification)
            await until_listed(TWO, old, new)

    args = ("--package", "shop@^1", "--audit", "off", *more)
    with raw.Served("shop.py", args=args, cwd=tmp_path) as served:
        served.until("contracts: shop@1.0.0")
        asyncio.run(go(served.address))
        assert served.end(signal.SIGTERM) == 0


def test_a_pinned_version_stays_while_others_are_published(command, tmp_path):
    publish_wider(command, tmp_path)
    args = ("--package", "shop@1.0.0", "--audit", "off")
    with raw.Served("shop.py", args=args, cwd=tmp_path) as served, served.connect() as line:
        (found,) = line.ask(raw.message(), **raw.routed()).result["tools"]
        assert found["inputSchema"]["properties"]["currency"]["enum"] == TWO
        line.send(raw.called("shop_price", item="tea", currency="CHF"))
        assert line.read().result["isError"]
        served.until(
            "WARNING callpact.serve: shop@1.0.0: the input contract is another in the sources: "
            "shop.price. A call that the code does not take is refused"
        )
        assert served.end(signal.SIGTERM) == 0


def test_the_draft_has_the_contracts_of_the_sources_and_records_carry_the_version(
    command, tmp_path
):
    (tmp_path / "shop.py").write_text(WIDER, "utf-8")

    async def go(address):
        async with asyncio.timeout(60):
            for mode in (LEGACY, MODERN):
                async with Client(address, mode=mode) as client:
                    assert await currencies(client) == TWO
                    await client.call_tool("shop_price", {"item": "tea"})
                async with Client(f"{address}/draft", mode=mode) as client:
                    assert await currencies(client) == THREE
                    await client.call_tool("shop_price", {"item": "tea", "currency": "CHF"})

    args = ("--package", "shop", "--draft", "--audit", "log")
    with raw.Served("shop.py", args=args, cwd=tmp_path) as served:
        served.until(f"draft: {served.address}/draft")
        asyncio.run(go(served.address))
        assert served.end(signal.SIGTERM) == 0
    with contextlib.closing(open_store(tmp_path / "log")) as store:
        versions = [record.version for record in store.log(Filter())]
    assert sorted(versions) == ["shop@1.0.0"] * 2 + ["shop@draft"] * 2


def test_the_draft_follows_its_file_and_the_package_does_not(command, tmp_path):
    async def go(address):
        async with (
            asyncio.timeout(60),
            Client(address) as package,
            Client(f"{address}/draft") as draft,
            draft.listen(tools_list_changed=True) as stream,
        ):
            assert await currencies(draft) == TWO
            (tmp_path / "shop.py").write_text(WIDER, "utf-8")
            assert await anext(stream) == ToolsListChanged()
            assert await currencies(draft) == THREE
            assert await currencies(package) == TWO

    args = ("--package", "shop", "--draft", "--watch", "--audit", "off")
    with raw.Served("shop.py", args=args, cwd=tmp_path) as served:
        asyncio.run(go(served.address))
        assert served.end(signal.SIGTERM) == 0


def test_a_damaged_folder_leaves_the_served_version(command, tmp_path):
    args = ("--package", "shop", "--audit", "off")
    with raw.Served("shop.py", args=args, cwd=tmp_path) as served, served.connect() as line:
        index = tmp_path / "contracts" / "index.json"
        index.write_text("{", "utf-8")
        served.wait_for("the version from before stays")
        assert len(line.ask(raw.message(), **raw.routed()).result["tools"]) == 1
        assert served.end(signal.SIGTERM) == 0


def test_a_call_at_another_path_is_not_answered(command, tmp_path):
    with raw.Served("shop.py", args=("--audit", "off"), cwd=tmp_path) as served:
        for path in ("/mcp/draft", "/other"):
            with served.connect() as line:
                asked = raw.message("tools/call", name="shop_price", arguments={"item": "tea"})
                answer = line.ask(asked, path=path, **raw.routed("tools/call", "shop_price"))
                assert answer.status == 404


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--package", "shop@^2"), "no shop@^2 is published; there is 1.0.0"),
        (("--package", "other"), "no other@latest is published; there is no version"),
        (("--package", "../shop"), "the name of a package"),
        (("--package", "shop@x"), "a range of versions is"),
        (("--draft",), "add --package"),
        (("--draft", "--package", "shop", "--stdio"), "leave out --stdio"),
    ],
)
def test_what_cannot_be_served_is_one_error(command, args, words):
    said = command("serve", "-s", "shop.py", "--port", "0", "--audit", "off", *args, code=2)
    assert words in said
    assert "Traceback" not in said


def test_sources_without_anything_of_the_package_are_refused(command, tmp_path):
    (tmp_path / "shoes.py").write_text(SHOP, "utf-8")
    args = ("serve", "-s", "shoes.py", "--port", "0", "--package", "shop", "--audit", "off")
    assert "the sources have nothing of shop@1.0.0" in command(*args, code=2)
