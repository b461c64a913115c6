"""Puts the calls of a command on record, as the `[audit]` table and the command line say."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from callpact.config import DEFAULT_FILE, AuditConfig, config_of, read_config
from callpact.folders import data_folder

if TYPE_CHECKING:
    from callpact.audit.auditing import Place
    from callpact.observers import Observer
    from callpact.options import Chosen
    from callpact.secrets import Secrets

OFF = "off"
"""What `--audit` takes for no record at all."""


@contextlib.contextmanager
def recorded(
    chosen: Chosen, audit: str | None, secrets: Iterable[Secrets]
) -> Generator[tuple[Observer, ...]]:
    """The observers that put calls on record, for as long as this is open.

    `audit` is a folder, the address of a server, or `off`; else the configuration decides.

    Raises:
        CallpactError: the log cannot be opened, with what to do.
    """
    place = place_of_log(chosen, audit)
    if place is None:
        yield ()
        return
    from callpact.audit.auditing import auditing

    table, _ = audit_table(chosen)
    with auditing(
        place,
        secrets=secrets,
        hashes_only=table.hashes_only,
        durability=table.durability,
        keep_days=table.keep_days,
        keep_bytes=None if table.keep_megabytes is None else int(table.keep_megabytes * 1_000_000),
        on_loss=table.on_loss,
    ) as recorder:
        yield (recorder,)


def place_of_log(chosen: Chosen, audit: str | None) -> Place | None:
    """Where calls are put on record; None if they are not.

    Raises:
        InvalidConfig: an address that cannot be read.
    """
    table, _ = audit_table(chosen)
    if audit == OFF or (audit is None and not table.enabled):
        return None
    return asked_place(chosen, audit)


def asked_place(chosen: Chosen, audit: str | None) -> Place:
    """Which log is meant, whether or not calls are put on record now.

    Raises:
        InvalidConfig: an address that cannot be read.
    """
    from callpact.audit.auditing import Place, place_of
    from callpact.audit.store.postgres_address import Address, is_address

    table, base = audit_table(chosen)
    named = None if table.folder is None else Path(table.folder).expanduser()
    folder = data_folder("audit") if named is None else base / named
    if audit is not None:
        return Place(folder, Address(audit)) if is_address(audit) else place_of(audit)
    return Place(folder, None if table.store is None else Address(table.store))


def audit_table(chosen: Chosen) -> tuple[AuditConfig, Path]:
    """The `[audit]` table of the configuration that is in use, and the folder of its file."""
    path = chosen.config or Path(DEFAULT_FILE)
    is_used = chosen.config is not None or (not chosen.source and path.exists())
    return (read_config(path) if is_used else config_of({})).audit, path.parent
