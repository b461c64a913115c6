"""`callpact install` writes one entry into the file of a client, and leaves the rest alone."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

import command_line
from callpact.cli.clients.client_table import CLIENTS, ClientName, file_of
from callpact.cli.clients.install import BACKUP
from terminal import on_terminal

run = command_line.run
TOOLS = "from callpact import tool\n@tool\ndef greet() -> str: return 'hello'\n"
URL = "https://shop.example.com/mcp"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project named `My Shop!`, and an empty home."""
    home, folder = tmp_path / "home", tmp_path / "My Shop!"
    home.mkdir()
    folder.mkdir()
    (folder / "shop.py").write_text(TOOLS, "utf-8")
    (folder / "callpact.toml").write_text('[sources.shop]\nref = "python:shop.py"\n', "utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def servers(client, file):
    text = file.read_text("utf-8")
    data = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    return data[CLIENTS[ClientName(client)].key]


@pytest.mark.skipif(sys.platform != "linux", reason="the places are those of Linux")
@pytest.mark.parametrize(
    ("client", "user", "in_project"),
    [
        ("claude-code", ".claude.json", ".mcp.json"),
        ("claude-desktop", ".config/Claude/claude_desktop_config.json", None),
        ("vscode", ".config/Code/User/mcp.json", ".vscode/mcp.json"),
        ("cursor", ".cursor/mcp.json", ".cursor/mcp.json"),
        ("codex", ".codex/config.toml", ".codex/config.toml"),
        ("gemini-cli", ".gemini/settings.json", ".gemini/settings.json"),
        ("windsurf", ".codeium/windsurf/mcp_config.json", None),
    ],
)
def test_each_client_gets_a_server_over_stdio_in_its_own_file(
    project, run, client, user, in_project
):
    done = run("install", client, "--yes", "--user")
    assert done.code == 0, done.err
    file = Path.home() / user
    entry = servers(client, file)["My-Shop"]
    assert entry["command"] == sys.executable
    assert entry["args"] == [
        *("-m", "callpact", "serve", "--stdio", "--config", str(project / "callpact.toml")),
        *("--name", "My-Shop"),
    ]
    assert entry.get("type") == ("stdio" if client in {"claude-code", "vscode"} else None)
    assert f"+++ {file}" in done.out
    assert f"wrote {file}" in done.err
    done = run("install", client, "--yes", "--project")
    if in_project is None:
        assert (done.code, "no file for a project" in done.err) == (2, True)
    else:
        assert servers(client, project / in_project)["My-Shop"] == entry


def test_claude_code_gets_the_file_of_the_project_by_default(project, run):
    run("install", "claude-code", "--yes")
    assert (project / ".mcp.json").is_file()
    assert not (Path.home() / ".claude.json").exists()


@pytest.mark.parametrize(
    ("client", "entry"),
    [
        (
            "claude-code",
            {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${KEY}"}},
        ),
        ("vscode", {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${env:KEY}"}}),
        ("cursor", {"url": URL, "headers": {"Authorization": "Bearer ${env:KEY}"}}),
        ("codex", {"url": URL, "bearer_token_env_var": "KEY"}),
        ("gemini-cli", {"httpUrl": URL, "headers": {"Authorization": "Bearer ${KEY}"}}),
        ("windsurf", {"serverUrl": URL, "headers": {"Authorization": "Bearer ${env:KEY}"}}),
    ],
)
def test_each_client_gets_a_running_server_by_its_address(project, run, client, entry):
    done = run("install", client, "--yes", "--http", URL, "--token", "KEY")
    assert done.code == 0, done.err
    name = ClientName(client)
    file = file_of(name, project if CLIENTS[name].prefers_project else None)
    assert servers(client, file)["My-Shop"] == entry


def test_the_rest_of_a_file_stays_byte_for_byte_and_the_old_file_is_kept(project, run):
    file = project / ".vscode" / "mcp.json"
    file.parent.mkdir()
    before = (
        b'// mine\r\n{\r\n\t"servers": {\r\n\t\t"a": {"command": "x"}, // first\r\n\t},\r\n}\r\n'
    )
    file.write_bytes(before)
    file.chmod(0o600)
    assert run("install", "vscode", "--project", "--yes").code == 0
    after = file.read_bytes()
    at = before.index(b"\r\n\t},")
    assert after.startswith(before[:at])
    assert after.endswith(before[at:])
    assert file.with_name("mcp.json" + BACKUP).read_bytes() == before
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".callpact-")] == []


def test_installing_twice_changes_nothing_and_keeps_what_the_user_added(project, run):
    file = Path.home() / ".cursor" / "mcp.json"
    run("install", "cursor", "--yes")
    edited = json.loads(file.read_text("utf-8"))
    edited["mcpServers"]["My-Shop"] |= {"timeout": 9, "env": {"SHOP_KEY": "secret"}}
    file.write_text(json.dumps(edited), "utf-8")
    before = file.read_bytes()
    done = run("install", "cursor")
    assert (done.code, done.out) == (0, "")
    assert "nothing to change" in done.err
    assert file.read_bytes() == before
    run("install", "cursor", "--yes", "--http", URL)
    assert servers("cursor", file)["My-Shop"] == {"timeout": 9, "url": URL}


def test_keys_of_other_servers_are_not_shown_with_the_change(project, run):
    other = {"mcpServers": {"other": {"command": "x", "env": {"KEY": "a-secret"}}}}
    (project / ".mcp.json").write_text(json.dumps(other, indent=2), "utf-8")
    done = run("install", "claude-code", "--yes")
    assert done.code == 0
    assert "a-secret" not in done.out + done.err
    assert "a-secret" in (project / ".mcp.json").read_text("utf-8")


def test_a_link_to_the_file_stays_a_link(project, run):
    real = project / "dotfiles.toml"
    real.write_text("model = 'x'\n", "utf-8")
    (Path.home() / ".codex").mkdir()
    link = Path.home() / ".codex" / "config.toml"
    link.symlink_to(real)
    assert run("install", "codex", "--yes").code == 0
    assert link.is_symlink()
    assert "[mcp_servers.My-Shop]" in real.read_text("utf-8")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b'{"mcpServers": ', "line 1, column 16"),
        (b'{"mcpServers": []}', "not an object"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused_and_unchanged(project, run, content, named):
    file = project / ".mcp.json"
    file.write_bytes(content)
    done = run("install", "claude-code", "--yes")
    assert (done.code, done.out) == (2, "")
    assert named in done.err
    assert file.read_bytes() == content


def test_a_folder_that_cannot_be_made_is_reported(project, run):
    (Path.home() / ".cursor").symlink_to(project / "gone" / "folder")
    done = run("install", "cursor", "--yes")
    assert done.code == 2
    assert "cannot be written" in done.err


def test_printing_writes_nothing_and_names_the_file(project, run):
    done = run("install", "codex", "--print", "--http", URL)
    assert tomllib.loads(done.out) == {"mcp_servers": {"My-Shop": {"url": URL}}}
    assert done.err == f"for {Path.home() / '.codex' / 'config.toml'}\n"
    done = run("install", "claude-code", "--print", "-s", "python:shop.py:greet")
    entry = json.loads(done.out)["mcpServers"]["My-Shop"]
    assert f"python:{project / 'shop.py'}:greet" in entry["args"]
    assert list(Path.home().iterdir()) == []


def test_a_module_is_imported_from_the_folder_of_the_project(project, run):
    done = run("install", "cursor", "--print", "-s", "python:shop")
    assert json.loads(done.out)["mcpServers"]["My-Shop"]["env"] == {"PYTHONPATH": str(project)}


def test_the_name_comes_from_the_option_the_configuration_or_the_folder(project, run):
    def name(*options):
        [name] = json.loads(run("install", "cursor", "--print", *options).out)["mcpServers"]
        return name

    assert name() == "My-Shop"
    with Path("callpact.toml").open("a", encoding="utf-8") as file:
        file.write('[serve]\nname = "till"\n')
    assert name() == "till"
    assert name("--name", "other") == "other"


def test_options_of_serve_are_passed_on_and_checked_first(project, run):
    done = run("install", "cursor", "--print", "--", "--ask-first", "--scope", "pay")
    args = json.loads(done.out)["mcpServers"]["My-Shop"]["args"]
    assert args[-3:] == ["--ask-first", "--scope", "pay"]
    done = run("install", "cursor", "--yes", "--", "--no-such-option")
    assert done.code == 2
    assert list(Path.home().iterdir()) == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("claude-desktop", "--http", URL), "over stdio"),
        (("cursor", "--http", "localhost:8420"), "--http takes an address"),
        (("cursor", "--token", "KEY"), "--token is sent over HTTP"),
        (("cursor", "--http", URL, "--", "--ask-first"), "over stdio"),
        (("cursor", "--name", "my shop"), "--name takes letters"),
        (("cursor", "-s", "missing.py"), "missing.py"),
        (("emacs",), "emacs"),
    ],
)
def test_what_makes_no_sense_is_wrong_use_and_nothing_is_written(project, run, words, named):
    done = run("install", *words, "--yes") if "--" not in words else run("install", *words)
    assert done.code == 2
    assert named in done.err
    assert list(Path.home().iterdir()) == []


@pytest.mark.parametrize("more", [{}, {"NO_COLOR": "1"}], ids=["colour", "no colour"])
@pytest.mark.parametrize(("keys", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_the_change_is_shown_and_confirmed_on_a_terminal(project, keys, code, more):
    done = on_terminal("install", "claude-code", keys=keys, **more)
    assert done.code == code
    assert '+  "mcpServers": {' in done.text
    assert "write this? [y/N]" in done.text
    assert (project / ".mcp.json").exists() is (code == 0)


def test_without_a_terminal_nothing_is_written_unless_that_is_confirmed(project):
    done = command_line.redirected("", "install", "claude-code")
    assert done.returncode == 1
    assert b"--yes writes it" in done.stderr
    assert not (project / ".mcp.json").exists()
