"""Hot reload: changed sources are read again while their tools are served.

Running calls finish on the version that they began with, whose source is closed after the last one.
Starts no server and does not know MCP.
"""

from typing import TYPE_CHECKING

from callpact.lazy import lazy_names

if TYPE_CHECKING:
    from callpact.reload.watcher import Endpoint, LoadOptions, Watcher

__getattr__ = lazy_names(
    __name__,
    {
        "watcher": ("Endpoint", "LoadOptions", "Watcher"),
    },
)

__all__ = [
    "Endpoint",
    "LoadOptions",
    "Watcher",
]
