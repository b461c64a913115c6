"""Find tools in a large catalog: a search index, and three tools that use it."""

from typing import TYPE_CHECKING

from callpact.lazy import lazy_names

if TYPE_CHECKING:
    from callpact.discovery.index import ToolIndex
    from callpact.discovery.tools import discovery_tools

__getattr__ = lazy_names(
    __name__,
    {
        "index": ("ToolIndex",),
        "tools": ("discovery_tools",),
    },
)

__all__ = [
    "ToolIndex",
    "discovery_tools",
]
