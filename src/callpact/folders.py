"""Where files of ours are kept for a user, as the XDG base directories have it."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """For what can be made anew."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "callpact" / name


def data_folder(name: str) -> Path:
    """For what the user asked to be kept."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "callpact" / name
