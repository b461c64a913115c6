"""The two ways of a `tools/call`: answered beside the SDK, or by it.

pytestmark = pytest.mark.usefixtures("way")  # Every test of the module runs both ways.

With the variable below set, a whole run of pytest goes one way, with the servers that it starts.

async with place(door.server) as there, Client(there) as client:
    ...
"""

from __future__ import annotations

import asyncio
import contextlib
import os

from callpact.__main__ import main
from callpact.serve import Door, serve_http

WAY = "CALLPACT_TEST_WAY"
"""The variable with the way: `direct`, `sdk`, or nothing, which is as users have it."""


def is_now(way):
    return os.environ.get(WAY) == way


def callpact():
    """The arguments of Python that run callpact in a process of its own, the same way."""
    return [__file__] if is_now("sdk") else ["-m", "callpact"]


@contextlib.asynccontextmanager
async def place(server):
    """Yield what a client connects to: the server itself, whose calls are the SDK's, or HTTP."""
    if not is_now("direct"):
        yield server
        return
    address = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(serve_http(server, port=0, on_ready=address.set_result))
    try:
        yield await address
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


if __name__ == "__main__":
    Door.has_direct_calls = property(lambda door: False)
    main()
