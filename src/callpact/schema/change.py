"""One change that fitting made to a value. Apart from the rest, so that a result can name it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Change(Struct, frozen=True, omit_defaults=True):
    """One thing that was done to a value: where, what, and what stood there before."""

    path: str
    action: str
    """converted | filled | replaced | stripped | padded | truncated"""
    before: Any = None
    invented: bool = False
    """True if the value that stands there now comes from nowhere: not converted, no default."""
