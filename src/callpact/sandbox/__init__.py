"""A sandbox for hooks: untrusted JavaScript, run within limits that the host enforces.

`Engine.open` loads a file's hooks into a `Realm`; `Pool.run` calls one from asyncio and serves
its requests to the host. Hooks need the extra `callpact[hooks]`; the core never imports it.
"""

from __future__ import annotations

from importlib.util import find_spec

from callpact.sandbox.hook_limits import HookLimits

__all__ = ["HookLimits", "is_installed"]


def is_installed() -> bool:
    """True if the engine that runs hooks is installed."""
    return find_spec("wasmtime") is not None and find_spec("quickjs_rs") is not None
