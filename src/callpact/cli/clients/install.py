"""Writes the entry of a server into a client's file: shows the change, asks, keeps the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from callpact.cli.clients.client_table import CLIENTS, ClientName, file_of, merged_entry
from callpact.cli.clients.json_comments import NotEditable, read_json, with_member
from callpact.cli.clients.toml_tables import read_toml, with_table, write_table
from callpact.cli.output import err, plain, print_diff, print_json, print_lines
from callpact.errors import CallpactError
from callpact.folders import replace_file
from callpact.schema import is_array, is_object

MAX_CLIENT_BYTES = 20_000_000
"""Size of a client's file."""
BACKUP = ".callpact-backup"
"""Added to the name of a client's file for the copy of what was there before."""


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """An entry of callpact in a client's file."""

    client: ClientName
    file: Path
    name: str
    trouble: str = ""
    """Why the client cannot start it; empty if it can."""


def print_entry(client: ClientName, name: str, entry: Mapping[str, Any], file: Path) -> None:
    """Print an entry in the form of a client's file; the name of the file is on standard error."""
    form = CLIENTS[client]
    if form.is_toml:
        print_lines(write_table(form.key, name, entry).splitlines())
    else:
        print_json({form.key: {name: entry}}, sys.stdout)
    err.print(f"for {plain(str(file))}", style="dim")


def install_entry(
    client: ClientName,
    name: str,
    entry: Mapping[str, Any],
    file: Path,
    *,
    confirmed: Callable[[], bool],
) -> bool:
    """Put an entry into a client's file, once the shown change is confirmed; False if it is not.

    A file that is replaced is copied first, to a name that ends with `.callpact-backup`.

    Raises:
        CallpactError: the file cannot be read, edited or written; it is unchanged.
    """
    before = _read(file)
    after = _edited(client, before or "", name, entry, file)
    if before == after:
        err.print(f"{plain(str(file))} has this server already; nothing to change")
        return True
    # Other servers may have keys in the lines nearby.
    print_diff(before or "", after, str(file), context=1)
    if not confirmed():
        err.print("nothing was written")
        return False
    if _read(file) != before:
        raise CallpactError(f"{file} was changed in the meantime; run this again")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        place = file.resolve()  # A link to the file stays a link.
        if before is not None:
            backup = place.with_name(place.name + BACKUP)
            replace_file(backup, before.encode(), like=place)
            err.print(f"kept the old file as {plain(str(backup))}", style="dim")
        replace_file(place, after.encode())
    except OSError as error:
        raise CallpactError(f"{file} cannot be written: {error.strerror or error}") from None
    err.print(f"wrote {plain(str(file))}; {plain(CLIENTS[client].after)}")
    return True


def _edited(client: ClientName, text: str, name: str, entry: Mapping[str, Any], file: Path) -> str:
    form = CLIENTS[client]
    try:
        known = _servers(client, text)
        wanted = merged_entry(known.get(name), entry)
        if known.get(name) == wanted:
            return text
        if form.is_toml:
            return with_table(text, form.key, name, wanted)
        return with_member(text, (form.key, name), wanted)
    except NotEditable as error:
        raise CallpactError(
            f"{file}: {error}; correct it, or add what --print prints by hand"
        ) from None


def _servers(client: ClientName, text: str) -> dict[str, Any]:
    form = CLIENTS[client]
    data: Any = read_toml(text) if form.is_toml else read_json(text)
    servers: Any = data.get(form.key) if is_object(data) else None
    return servers if is_object(servers) else {}


def _read(file: Path) -> str | None:
    """The text of a file; None if there is no such file."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_CLIENT_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CallpactError(f"{file} cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_CLIENT_BYTES:
        raise CallpactError(f"{file}: larger than {MAX_CLIENT_BYTES:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CallpactError(f"{file}: not UTF-8 at byte {error.start:,}") from None


# --- clients that are set up ----------------------------------------------------------------


def find_entries(project: Path) -> Iterator[ClientEntry]:
    """The entries of callpact in the files of all clients, of the user and of a project."""
    for client, form in CLIENTS.items():
        folders = (None, project) if form.project else (None,)
        for file in dict.fromkeys(file_of(client, folder) for folder in folders):
            try:
                servers = _servers(client, _read(file) or "")
            except CallpactError as error:
                yield ClientEntry(client, file, "", str(error))
                continue
            for name, entry in servers.items():
                if is_object(entry) and _is_ours(entry):
                    yield ClientEntry(client, file, name, _trouble(entry))


def _is_ours(entry: Mapping[str, Any]) -> bool:
    args = entry.get("args")
    return is_array(args) and "callpact" in args and "serve" in args


def _trouble(entry: Mapping[str, Any]) -> str:
    command, args = Path(str(entry.get("command"))), [*map(str, entry["args"])]
    if command.is_absolute() and not command.exists():
        return f"{command} is not there"
    configs = [Path(place) for option, place in pairwise(args) if option == "--config"]
    gone = [place for place in configs if not place.is_file()]
    return f"{gone[0]} is not there" if gone else ""
