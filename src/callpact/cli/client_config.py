"""Snippets for the configuration files of MCP clients, which start a server over stdio.

Clients start a server in a folder of their choosing, so every path in a snippet is absolute.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def client_config(
    client: str,
    name: str,
    refs: tuple[str, ...],
    config_file: Path,
    options: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the entry for a client's configuration, for the named sources or else the file.

    `options` of the command line are passed on unchanged.
    """
    args = ["-m", "callpact", "serve", "--stdio"]
    if name != "callpact":
        args += ["--name", name]
    for ref in refs:
        args += ["-s", _absolute(ref)]
    if not refs:
        args += ["--config", str(config_file.resolve())]
    args += options
    # This interpreter has callpact and the tools' packages; a `callpact` on the path may not.
    entry: dict[str, Any] = {"command": sys.executable, "args": args}
    if any(_place_of(ref) is None for ref in refs):
        entry["env"] = {
            "PYTHONPATH": str(Path.cwd())
        }  # Modules are imported from the current folder.
    if client == "vscode":
        return {"servers": {name: {"type": "stdio", **entry}}}
    return {"mcpServers": {name: entry}}


def _absolute(ref: str) -> str:
    place = _place_of(ref)
    if place is None:
        return ref
    before, _, after = ref.partition(place)
    return f"{before}{Path(place).resolve()}{after}"


def _place_of(ref: str) -> str | None:
    """Return the file or folder in `kind:place:name`; None where a module is named.

    `python:file.py:name`, `file.py`, `flowmcp:folder`, `File.mjs` and a bare folder have one.
    """
    kind, _, rest = ref.partition(":")
    if kind == "flowmcp" and rest:
        return rest
    if kind != "python" and (ref.endswith(".mjs") or Path(ref).is_dir()):
        return ref
    rest = ref.removeprefix("python:")
    file, found, after = rest.rpartition(".py")
    return file + found if found and (not after or after.startswith(":")) else None
