"""Hooks: JavaScript of strangers, run in a sandbox within limits that the host keeps.

`Engine.open` loads a file's hooks into a `Realm`; `Pool.run` calls one from asyncio and serves
what it asks of the host. Not imported by the core: it needs the extra `callpact[hooks]`.
"""

from __future__ import annotations

from importlib.util import find_spec


def is_installed() -> bool:
    """True if what runs hooks is there."""
    return find_spec("wasmtime") is not None and find_spec("quickjs_rs") is not None
