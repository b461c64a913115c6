"""`callpact publish`, and `callpact diff` of published versions."""

from __future__ import annotations

import json
import sys

import pytest

import command_line
from callpact.contracts.packages.package_store import PackageStore
from callpact.schema.hashing import json_digest
from schema_file import FILE, GONE, GOOD, HANDLERS, TOOL, changed, exported

run = command_line.run
SHOP = """
from typing import Literal
from callpact import tool

@tool
def price(item: str, currency: Literal["EUR", "USD"] = "EUR") -> float:
    "The price of an item."
    return 1.0
"""
WIDER = SHOP.replace('"USD"]', '"USD", "CHF"]')
COMMAND = ("publish", "-s", "shop.py", "--name", "shop")
FLOWMCP = ("publish", "-s", ".", "--name", "tokens")
MORE = (f"{TOOL}/output/schema/properties/volume", {"type": "number", "description": "A day"})
PLACE = "contracts/grading-data/schemas/token-prices"


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Writes the file of the tools; the folder is the current one."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "shop.py").write_text(text, "utf-8")
        return tmp_path

    return write


def test_the_first_version_is_one_and_the_same_contracts_are_published_once(shop, run):
    shop(SHOP)
    assert run(*COMMAND).out == "shop@1.0.0: 1 contract published\n"
    assert run(*COMMAND).out == "shop@1.0.0: as published\n"
    assert run(*COMMAND, "--version", "1.0.0").out == "shop@1.0.0: as published\n"


def test_nothing_is_published_while_a_server_is_down(shop, run):
    folder = shop(SHOP)
    serving = ["-m", "callpact", "serve", "--stdio", "--audit", "off", "-s", "shop.py"]
    servers = {
        "up": {"command": sys.executable, "args": serving},
        "down": {"command": str(folder / "missing")},
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
    refused = run("publish", "-s", "mcp-config:mcp.json", "--name", "shop")
    assert refused.code == 2
    assert "'down' cannot be started" in refused.err
    assert "not every source could be loaded; nothing was published" in refused.err
    assert not (folder / "contracts").exists()
    compared = run("diff", "mcp-config:mcp.json", "shop.py")
    assert compared.code == 2
    assert "not everything of mcp-config:mcp.json could be loaded" in compared.err


@pytest.mark.requirement("004.versions.new-version")
@pytest.mark.requirement("004.versions.major")
def test_the_suggested_step_is_taken_and_a_smaller_one_refused(shop, run):
    shop(SHOP)
    run(*COMMAND)
    shop(WIDER)
    refused = run(*COMMAND, "--bump", "patch")
    assert refused.code == 2
    assert "need a minor step, and 1.0.1 is patch" in refused.err
    assert "shop@1.1.0: 1 contract published" in run(*COMMAND).out
    shop(SHOP)
    assert "shop@2.0.0" in run(*COMMAND).out


def test_a_change_of_code_only_is_a_patch(shop, run):
    shop(SHOP)
    run(*COMMAND)
    shop(SHOP.replace("return 1.0", "return 2.0"))
    assert "shop@1.0.1" in run(*COMMAND).out


@pytest.mark.requirement("004.versions.immutable")
def test_a_published_version_never_changes(shop, run):
    shop(SHOP)
    run(*COMMAND)
    shop(WIDER)
    for more in ((), ("--dry-run",)):
        refused = run(*COMMAND, "--version", "1.0.0", *more)
        assert refused.code == 2
        assert "it never changes" in refused.err


def test_a_dry_run_writes_nothing(shop, run):
    folder = shop(SHOP)
    assert "would be published" in run(*COMMAND, "--dry-run").out
    assert not (folder / "contracts").exists()


@pytest.mark.parametrize("name", ["../shop", "Shop", "", "a" * 65])
def test_a_name_that_is_no_name_of_a_package_is_refused(shop, run, name):
    shop(SHOP)
    assert run("publish", "-s", "shop.py", "--name", name).code == 2


def test_diff_takes_published_versions_and_folders(shop, run):
    shop(SHOP)
    run(*COMMAND)
    shop(WIDER)
    run(*COMMAND)
    assert "suggested bump: minor" in run("diff", "shop@1.0.0", "shop@latest").out
    assert run("diff", "shop@^1", "shop.py").out == "no change\n"
    assert run("diff", "contracts", "shop.py").out == "no change\n"
    assert run("diff", "shop@9", "shop.py").code == 2


def test_a_published_version_of_the_same_files_has_no_difference(tokens, run):
    terms = ("/termsOfService", "https://example.com/terms")
    tokens(terms, ("/requiredServerParams", ["NO_SUCH_KEY"]))
    run(*FLOWMCP)
    for pair in (("tokens@latest", FILE), (FILE, "tokens@latest")):
        assert run("diff", *pair).out == "no change\n"
    tokens(("/requiredServerParams", ["NO_SUCH_KEY"]))
    assert "terms changed" in run("diff", "tokens@latest", FILE).out


def test_the_configured_folder_of_packages_is_used_from_every_folder(shop, run, monkeypatch):
    project = shop(SHOP) / "project"
    project.mkdir()
    (project / "callpact.toml").write_text(
        '[sources.shop]\nref = "../shop.py"\n[serve]\npackages = "releases"\n', "utf-8"
    )
    config = ("--config", "project/callpact.toml")
    assert run("publish", *config).out == "project@1.0.0: 1 contract published\n"
    assert (project / "releases" / "index.json").is_file()
    assert "project@1.0.0" in run("packages", "list", *config).out
    assert run("packages", "rollback", "project@1.0.0", *config).code == 0
    assert run("diff", "project@1", "shop.py", *config).out == "no change\n"
    refused = run("serve", "--package", "project@2", *config)
    assert "project/releases: no project@2 is published; there is 1.0.0" in refused.err
    refused = run("serve", "--package", "project@2", "--packages", "here", *config)
    assert "here: no project@2 is published" in refused.err
    monkeypatch.chdir(project)
    assert run("publish").out == "project@1.0.0: as published\n"
    assert run("packages", "list").out.startswith("PACKAGE")


def test_the_digest_of_a_package_is_that_of_its_contracts_as_canonical_json(shop, run):
    folder = shop(SHOP)
    run(*COMMAND)
    package = PackageStore(folder / "contracts").resolve("shop")
    assert package.digest == json_digest(json.loads(package.contracts))


@pytest.fixture
def tokens(tmp_path, monkeypatch):
    """Writes a FlowMCP file; the folder is the current one."""
    monkeypatch.chdir(tmp_path)

    def write(*changes, code=""):
        (tmp_path / FILE).write_text(exported(changed(*changes), code=code), "utf-8")
        return tmp_path

    return write


def test_a_flowmcp_file_is_published_with_a_snapshot(tokens, run):
    folder = tokens()
    path = f"{PLACE}/{GOOD['schemaHash']}--v1.0.0.mjs"
    dry = run(*FLOWMCP, "--dry-run")
    assert dry.out.splitlines()[0] == f"{path} would be written"
    assert not (folder / "contracts").exists()
    done = run(*FLOWMCP)
    assert done.out == "1 snapshot of FlowMCP files written\ntokens@1.0.0: 1 contract published\n"
    assert (folder / path).read_bytes() == (folder / FILE).read_bytes()
    assert run(*FLOWMCP).out == "tokens@1.0.0: as published\n"


def test_a_changed_flowmcp_file_with_its_old_version_publishes_nothing(tokens, run):
    folder = tokens()
    run(*FLOWMCP)
    before = sorted(folder.rglob("contracts/**/*"))
    for change, code in ((MORE, ""), (("/root", GOOD["root"]), HANDLERS % "")):
        tokens(change, code=code)
        for more in ((), ("--dry-run",)):
            refused = run(*FLOWMCP, *more)
            assert refused.code == 2
            assert "raise schemaVersion" in refused.err
    assert sorted(folder.rglob("contracts/**/*")) == before


def test_the_step_of_flowmcp_files_follows_flowmcps_rules(tokens, run):
    tokens()
    run(*FLOWMCP)
    tokens(MORE, ("/root", "https://api.example.com/v2"), ("/schemaVersion", "1.1.0"))
    done = run(*FLOWMCP)
    assert "(FlowMCP: add an output field)\n" in done.out
    assert "the root of its request changed (FlowMCP: change a meaning)\n" in done.out
    assert "suggested bump: minor, by FlowMCP's rules\n" in done.out
    assert "tokens@1.1.0: 1 contract published\n" in done.out
    assert "schemaVersion" not in done.err
    compared = run("diff", "tokens@1.0.0", "tokens@1.1.0")
    assert "suggested bump: minor, by FlowMCP's rules\n" in compared.out
    assert "change a meaning" in compared.out


def test_a_version_that_was_raised_too_little_is_a_warning(tokens, run):
    tokens()
    run(*FLOWMCP)
    tokens(MORE, ("/schemaVersion", "1.0.1"))
    done = run(*FLOWMCP)
    assert done.code == 0
    assert "schemaVersion 1.0.0 → 1.0.1 is patch, its changes are minor" in done.err


def test_a_flowmcp_file_without_a_version_is_published_without_a_snapshot(tokens, run):
    folder = tokens(("/schemaVersion", GONE))
    done = run(*FLOWMCP)
    assert done.out == "tokens@1.0.0: 1 contract published\n"
    assert f"no snapshot of 1 file without schemaVersion: {FILE};" in done.err
    assert not (folder / "contracts" / "grading-data").exists()
    tokens(("/schemaVersion", GONE), MORE)
    assert "by FlowMCP's rules" in run(*FLOWMCP).out


def test_a_change_of_hooks_is_published_also_with_the_configuration_of_another_folder(
    tokens, run, tmp_path
):
    tokens()
    (tmp_path / "sub").mkdir()
    (tmp_path / FILE).rename(tmp_path / "sub" / FILE)
    (tmp_path / "sub" / "callpact.toml").write_text("[sources.a]\nref = 'flowmcp:.'\n", "utf-8")
    command = ("publish", "--config", "sub/callpact.toml", "--name", "tokens")
    assert "tokens@1.0.0: 1 contract published" in run(*command).out
    text = exported(changed(("/schemaVersion", "1.0.1")), code=HANDLERS % "")
    (tmp_path / "sub" / FILE).write_text(text, "utf-8")
    assert "tokens@1.0.1: 1 contract published" in run(*command).out
