"""Limits of a hook: time, memory and sizes of one call, each a field of `HookLimits`.

The host enforces them from outside the guest, so no hook can raise them.
"""

from __future__ import annotations

import math

from msgspec import Struct, structs

from callpact.errors import InvalidConfig

MAX_SECONDS = 1.0
"""Seconds that the JavaScript of one hook call may run, all its steps together (`hook_timeout`)."""
MAX_HOOK_TIMEOUT = 60.0
"""Seconds that `hook_timeout` may set; other callers may wait for one turn of this length."""
MAX_LOAD_SECONDS = 5.0
"""Seconds that a file's libraries, its module and its factory may run when hooks are loaded; a
longer `hook_timeout` applies to this as well."""
MAX_MEMORY_BYTES = 64 << 20
"""Memory of one running hook: its code, its libraries and its data."""
MAX_OUTPUT_BYTES = 8 << 20
"""Size of a hook's return value, as JSON, and of the requests that it makes at one time."""
MAX_INPUT_BYTES = 16 << 20
"""Size of a hook's argument, as JSON, and of the replies that it gets at one time."""
MAX_EFFECTS = 32
"""Requests (`fetch`) that one hook call may make."""
MAX_LOG_LINES = 100
"""Lines that one hook call may write to the console; further lines are dropped."""
MAX_LOG_CHARACTERS = 10_000
"""Characters that one hook call may write to the console; the rest is cut off."""

_LEAST_MEMORY_BYTES = 16 << 20


class HookLimits(Struct, frozen=True, kw_only=True):
    """The limits of one engine.

    Raises:
        InvalidConfig: a limit that is not a number above zero, or too little memory to start in.
    """

    seconds: float = MAX_SECONDS
    load_seconds: float = MAX_LOAD_SECONDS
    memory_bytes: int = MAX_MEMORY_BYTES
    output_bytes: int = MAX_OUTPUT_BYTES
    input_bytes: int = MAX_INPUT_BYTES
    effects: int = MAX_EFFECTS
    log_lines: int = MAX_LOG_LINES
    log_characters: int = MAX_LOG_CHARACTERS

    def __post_init__(self) -> None:
        for name, value in structs.asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidConfig(f"hook limit '{name}' must be a number, got {value!r}")
            if not (value > 0 and math.isfinite(value)):
                raise InvalidConfig(f"hook limit '{name}' must be above zero, got {value!r}")
        if self.memory_bytes < _LEAST_MEMORY_BYTES:
            raise InvalidConfig(
                f"hook limit 'memory_bytes' must be at least {_LEAST_MEMORY_BYTES}: "
                f"the JavaScript engine itself needs room; got {self.memory_bytes}"
            )


def limits_of(hook_timeout: float | None) -> HookLimits:
    """The default limits, with another time limit if one is given."""
    if hook_timeout is None:
        return HookLimits()
    return HookLimits(seconds=hook_timeout, load_seconds=max(hook_timeout, MAX_LOAD_SECONDS))
