"""The lines of a journal that are not in a store yet, read without a lock.

Only whole lines are read: one without its end may still be written. What one question reads is
bounded, and the newest segments come first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from callpact.audit.journal import segments
from callpact.audit.lines import decode_line
from callpact.audit.record import Record

MAX_WAITING_BYTES = 64 << 20
"""Bytes of the journal that one question to the audit log reads at most."""
MAX_WAITING_LINES = 200_000
"""Lines of the journal that one question to the audit log reads at most."""


class Waiting(Struct, frozen=True):
    """Records that wait, and how far each segment was read for them."""

    records: list[Record]
    read: dict[str, int]
    unread: int
    """Bytes that were left out."""


def read_waiting(
    journal: Path,
    taken: Mapping[str, int],
    *,
    most_bytes: int = MAX_WAITING_BYTES,
    most_lines: int = MAX_WAITING_LINES,
) -> Waiting:
    """The lines after these places of the segments.

    Raises:
        OSError: a segment cannot be read.
    """
    records: list[Record] = []
    read, unread, left = dict(taken), 0, most_bytes
    for path in reversed(segments(journal)):
        at = taken.get(path.name, 0)
        try:
            with path.open("rb") as file:
                size = max(0, file.seek(0, os.SEEK_END) - at)
                file.seek(at)
                data = file.read(max(0, min(size, left)) if len(records) < most_lines else 0)
        except FileNotFoundError:
            continue  # It is in the store by now, as a new manifest will say.
        is_cut = len(data) < size
        data = data[: data.rfind(b"\n") + 1]
        found = (decode_line(line) for line in data.split(b"\n") if line)
        records.extend(record for record in found if record is not None)
        left -= len(data)
        read[path.name] = at + len(data)
        if is_cut:
            unread += size - len(data)
    return Waiting(records, read, unread)
