"""Limits of values and schemas: settings of the process, made before schemas are compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeVar

from callpact.errors import InvalidConfig

MAX_VALUE_DEPTH = 1_000
"""Levels of JSON that a value may nest."""
MAX_SCHEMA_VALUES = 2_000_000
"""Values that a schema document may hold: an `enum` of 100,000 objects, and more."""
MAX_DEPTH_SETTING = 1_200
"""Levels that `value_depth` may be set to: more could break the stack of a thread."""
T = TypeVar("T")
# Python frames that fitting takes for a level of a value. Both bound how deep compiled decoders may
# recurse into hostile text: about 20,000 levels of msgspec fill a stack of 8 MiB.
_FRAMES_PER_LEVEL = 10
_OTHER_FRAMES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaLimits:
    """The limits of values and schemas.

    Raises:
        InvalidConfig: a limit that is not a number above zero, or a depth that is not safe.
    """

    value_depth: int = MAX_VALUE_DEPTH
    schema_values: int = MAX_SCHEMA_VALUES

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidConfig(f"the limit {field.name} must be more than 0, got {value!r}")
        if self.value_depth > MAX_DEPTH_SETTING:
            raise InvalidConfig(
                f"the limit value_depth must be at most {MAX_DEPTH_SETTING:,}, "
                f"got {self.value_depth:,}"
            )


_now = [SchemaLimits()]


def schema_limits() -> SchemaLimits:
    """The limits that hold now."""
    return _now[0]


def set_schema_limits(limits: SchemaLimits) -> None:
    """Change the limits of this process; schemas that are compiled already keep theirs."""
    _now[0] = limits


def with_room(work: Callable[[], T]) -> T:
    """Do what recurses into a value, and once more with room where Python stopped it.

    Raises:
        RecursionError: there is no more room; the value is deeper than the limit.
    """
    try:
        return work()
    except RecursionError:
        if not make_room():
            raise
    return work()


def make_room() -> bool:
    """Let Python recurse as deep as a value may nest. True if it could not before.

    Python allows 1,000 calls inside one another; to write or fit a value of 1,000 levels takes more.
    It is done when the first such value comes, and stays.
    """
    wanted = _OTHER_FRAMES + _FRAMES_PER_LEVEL * schema_limits().value_depth
    if sys.getrecursionlimit() >= wanted:
        return False
    sys.setrecursionlimit(wanted)
    return True
