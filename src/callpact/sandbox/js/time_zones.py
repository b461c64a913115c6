"""The time zones of this system as texts for `intl.js`: a rule, and every change of the offset.

Read from compiled zone files (TZif, RFC 9636), where `zoneinfo` finds them. A system without zone
files has only UTC.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from zoneinfo import TZPATH, available_timezones

_MAX_BYTES = 1 << 16
_HEAD = struct.Struct(">4sc15x6l")
_EVER = -(2**53)
"""A time before the earliest `Date` of JavaScript."""


@cache
def zone_texts() -> Mapping[str, str]:
    """Every zone of this system."""
    return read_zones(available_timezones(), TZPATH)


def read_zones(names: Iterable[str], folders: Sequence[str]) -> Mapping[str, str]:
    """Zones by name: `RULE;TIME,…;OFFSET,…` in seconds; the first offset holds from the start.

    A file that cannot be parsed is left out.
    """
    known: dict[bytes, str] = {}  # Many names share one file.
    texts: dict[str, str] = {}
    for name in sorted(names):
        data = _read(name, folders)
        if data is None:
            continue
        if data not in known:
            try:
                known[data] = _text(data)
            except (struct.error, ValueError, IndexError):
                continue
        texts[name] = known[data]
    return texts


def _read(name: str, folders: Sequence[str]) -> bytes | None:
    for folder in folders:
        try:
            with Path(folder, name).open("rb") as file:
                return file.read(_MAX_BYTES)
        except OSError:
            continue
    try:  # The package `tzdata`, if the system has no zones.
        return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    except (ModuleNotFoundError, OSError):
        return None


def _text(data: bytes) -> str:
    """The second block of a file, whose times have 64 bits, and the rule behind it.

    Raises:
        ValueError: it is not a TZif file with 64-bit times.
    """
    start = _HEAD.size + _block_size(data, 0, 4)
    times, types = _HEAD.unpack_from(data, start)[5:7]
    at = start + _HEAD.size
    moments = struct.unpack_from(f">{times}q", data, at)
    kinds = data[at + 8 * times : at + 9 * times]
    offsets = [
        struct.unpack_from(">l", data, at + 9 * times + 6 * index)[0] for index in range(types)
    ]
    rule = data[at + _block_size(data, start, 8) :].strip(b"\n").decode("ascii")
    return ";".join(
        [
            rule,
            ",".join(map(str, (_EVER, *moments))),
            ",".join([str(offsets[0]), *(str(offsets[kind]) for kind in kinds)]),
        ]
    )


def _block_size(data: bytes, start: int, width: int) -> int:
    magic, version, universal, standard, leaps, times, types, letters = _HEAD.unpack_from(
        data, start
    )
    if magic != b"TZif" or version < b"2":
        raise ValueError("no zone file with times of 64 bits")
    return times * (width + 1) + types * 6 + letters + leaps * (width + 4) + standard + universal
