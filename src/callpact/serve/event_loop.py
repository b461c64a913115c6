"""The event loop of a server over HTTP."""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of uvloop where it is installed (extra `fast`), else asyncio's.

    Not for stdio: uvloop makes the descriptors that it watches non-blocking, and those of stdio may
    be shared with other processes.
    """
    try:
        import uvloop
    except ImportError:  # There is none for Windows.
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
