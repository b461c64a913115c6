"""MCP clients: where each keeps its servers, and in which form.

Clients start a server in a folder of their choosing, so every path in an entry is absolute.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from callpact.errors import UsageError
from callpact.schema import is_object

_NOT_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_OWNED = frozenset(
    {"command", "args", "env", "type", "url", "httpUrl", "serverUrl", "headers"}
    | {"bearer_token_env_var"}
)
"""The keys of an entry that callpact writes; others are the user's."""


class ClientName(StrEnum):
    """Programs that use MCP servers."""

    claude_code = "claude-code"
    claude_desktop = "claude-desktop"
    vscode = "vscode"
    cursor = "cursor"
    codex = "codex"
    gemini_cli = "gemini-cli"
    windsurf = "windsurf"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientForm:
    """The files and the form of the entries of one client."""

    title: str
    user: str
    """Its file in the user's home; `{config}` is the folder of programs' settings."""
    project: str | None = None
    """Its file in a project; None if it has none."""
    prefers_project: bool = False
    """True if the file of the project is written by default."""
    home: str | None = None
    """A variable of the environment that replaces the first folder of `user`."""
    key: str = "mcpServers"
    address: str | None = "url"
    """The key of an address; None if it uses no servers over HTTP."""
    types: bool = False
    """True if an entry has a `type`."""
    variable: str = "${{env:{}}}"
    """The form of a variable of the environment in a header."""
    after: str = ""
    """How the client reads the file again."""

    @property
    def is_toml(self) -> bool:
        """True if its file is TOML."""
        return self.user.endswith(".toml")


CLIENTS: dict[ClientName, ClientForm] = {
    # ~/.claude.json is also its state, which it writes all the time.
    ClientName.claude_code: ClientForm(
        title="Claude Code",
        user="~/.claude.json",
        project=".mcp.json",
        prefers_project=True,
        home="CLAUDE_CONFIG_DIR",
        types=True,
        variable="${{{}}}",
        after="start Claude Code in this folder; `/mcp` shows the server",
    ),
    ClientName.claude_desktop: ClientForm(
        title="Claude Desktop",
        user="{config}/Claude/claude_desktop_config.json",
        address=None,
        after="quit Claude Desktop and start it again",
    ),
    ClientName.vscode: ClientForm(
        title="VS Code",
        user="{config}/Code/User/mcp.json",
        project=".vscode/mcp.json",
        key="servers",
        types=True,
        after="`MCP: List Servers` in the command palette shows the server",
    ),
    ClientName.cursor: ClientForm(
        title="Cursor",
        user="~/.cursor/mcp.json",
        project=".cursor/mcp.json",
        after="the MCP page of Cursor's settings shows the server",
    ),
    ClientName.codex: ClientForm(
        title="Codex",
        user="~/.codex/config.toml",
        project=".codex/config.toml",
        home="CODEX_HOME",
        key="mcp_servers",
        after="start Codex again; `/mcp` shows the server",
    ),
    ClientName.gemini_cli: ClientForm(
        title="Gemini CLI",
        user="~/.gemini/settings.json",
        project=".gemini/settings.json",
        address="httpUrl",
        variable="${{{}}}",
        after="start Gemini CLI again; `/mcp` shows the server",
    ),
    ClientName.windsurf: ClientForm(
        title="Windsurf",
        user="~/.codeium/windsurf/mcp_config.json",
        address="serverUrl",
        after="refresh the MCP servers in Cascade",
    ),
}


def file_of(client: ClientName, project: Path | None) -> Path:
    """The file of a client: of the project in this folder, or of the user with None.

    Raises:
        UsageError: the client has no file for projects.
    """
    form = CLIENTS[client]
    if project is not None:
        if form.project is None:
            raise UsageError(f"{form.title} has no file for a project; leave out --project")
        return project.resolve() / form.project
    folder, _, rest = form.user.partition("/")
    if form.home is not None and os.environ.get(form.home):
        return Path(os.environ[form.home]) / rest.rpartition("/")[2]
    return (_settings_folder() if folder == "{config}" else Path.home()) / rest


def _settings_folder() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def server_name(name: str | None, configured: str, folder: Path) -> str:
    """The name of a server in a client's file: as given, as configured, or that of the project.

    Raises:
        UsageError: a client would refuse the given name.
    """
    if name is not None:
        if not name or _NOT_NAME.search(name):
            raise UsageError(f"--name takes letters, digits, '-' and '_', got '{name}'")
        return name
    named = folder.resolve().name if configured == "callpact" else configured
    return _NOT_NAME.sub("-", named).strip("-") or "callpact"


# --- entries --------------------------------------------------------------------------------


def stdio_entry(
    client: ClientName, refs: Iterable[str], config_file: Path, options: Iterable[str] = ()
) -> dict[str, Any]:
    """The entry that starts a server for the named sources, or else for the configuration file.

    `options` of `callpact serve` are passed on unchanged.
    """
    named = tuple(refs)
    args = ["-m", "callpact", "serve", "--stdio"]
    for ref in named:
        args += ["-s", _absolute(ref)]
    if not named:
        args += ["--config", str(config_file.resolve())]
    kind = {"type": "stdio"} if CLIENTS[client].types else {}
    # This interpreter has callpact and the tools' packages; a `callpact` on the path may not.
    entry: dict[str, Any] = {
        **kind,
        "command": str(Path(sys.executable).absolute()),
        "args": [*args, *options],
    }
    if any(_place_of(ref) is None for ref in named):
        entry["env"] = {"PYTHONPATH": str(Path.cwd())}  # Modules are imported from here.
    return entry


def http_entry(client: ClientName, address: str, token: str | None = None) -> dict[str, Any]:
    """The entry of a server that runs; `token` is the variable that holds its bearer token.

    Raises:
        UsageError: the client uses no servers over HTTP.
    """
    form = CLIENTS[client]
    if form.address is None:
        raise UsageError(
            f"{form.title} starts the servers of its file itself, over stdio; leave out --http, or "
            "add the address as a connector in its settings"
        )
    entry: dict[str, Any] = {"type": "http"} if form.types else {}
    entry[form.address] = address
    if token is None:
        return entry
    if form.is_toml:
        return {**entry, "bearer_token_env_var": token}
    return {**entry, "headers": {"Authorization": f"Bearer {form.variable.format(token)}"}}


def merged_entry(old: Any, new: Mapping[str, Any]) -> dict[str, Any]:
    """A new entry with what the user has added to the old one: other keys, variables, headers."""
    if not is_object(old):
        return dict(new)
    merged = {key: value for key, value in old.items() if key not in _OWNED} | dict(new)
    extra = "env" if "command" in new else "headers"
    if is_object(old.get(extra)):
        merged[extra] = {**old[extra], **new.get(extra, {})}
    return merged


def _absolute(ref: str) -> str:
    place = _place_of(ref)
    if not place:
        return ref
    before, _, after = ref.partition(place)
    return f"{before}{Path(place).resolve()}{after}"


def _place_of(ref: str) -> str | None:
    """Return the file or folder in `kind:place:name`; None where a module is named.

    `python:file.py:name`, `file.py`, `flowmcp:folder`, `File.mjs` and a bare folder have one; an
    MCP server has none, and needs no folder: it is ''.
    """
    kind, _, rest = ref.partition(":")
    if kind == "mcp-config":
        return rest
    if kind in {"mcp", "http", "https"}:
        return ""
    if kind == "flowmcp" and rest:
        return rest
    if kind != "python" and (ref.endswith(".mjs") or Path(ref).is_dir()):
        return ref
    rest = ref.removeprefix("python:")
    file, found, after = rest.rpartition(".py")
    return file + found if found and (not after or after.startswith(":")) else None
