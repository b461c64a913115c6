"""Doors: servers through which clients call the tools of a runtime. A door never imports a source.

Doors are imported on first use: they need the extra `callpact[mcp]`.
"""

from typing import TYPE_CHECKING

from callpact.lazy import lazy_names

if TYPE_CHECKING:
    from callpact.serve.auth.bearer import Authentication, BearerToken, identify
    from callpact.serve.http.http_server import serve_http
    from callpact.serve.mcp.door import Door
    from callpact.serve.rest.rest_door import RestDoor
    from callpact.serve.stdio.stdio_server import serve_stdio

DEFAULT_TIMEOUT = 60.0
"""Seconds after which a call through a door times out."""

__getattr__ = lazy_names(
    __name__,
    {
        "auth.bearer": ("Authentication", "BearerToken", "identify"),
        "http.http_server": ("serve_http",),
        "mcp.door": ("Door",),
        "rest.rest_door": ("RestDoor",),
        "stdio.stdio_server": ("serve_stdio",),
    },
)

__all__ = [
    "DEFAULT_TIMEOUT",
    "Authentication",
    "BearerToken",
    "Door",
    "RestDoor",
    "identify",
    "serve_http",
    "serve_stdio",
]
