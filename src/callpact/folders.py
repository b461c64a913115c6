"""The user's folders for files of callpact, by the XDG base directories."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """A folder for files that can be made again."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "callpact" / name


def data_folder(name: str) -> Path:
    """A folder for files that the user wants to keep."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "callpact" / name
