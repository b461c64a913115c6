"""Parts of Node and ECMAScript for hooks, loaded only for files that use them.

`crypto` and `zlib` are libraries that need no pack; `Intl` is a global with the time zones of this
system. Each is a script beside this module that runs in the guest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

CRYPTO: Final = "crypto"
INTL: Final = "intl"
"""The name of `Intl` and of locale-dependent dates among the needs of a file."""
NODE: Final = (CRYPTO, "zlib")
"""Modules of Node that hooks have, in part."""

IMPORTER: Final = "_node_"
"""The function that replaces `import` in a file that imports one; it has the same length."""

MAX_UNPACKED_BYTES = 16 << 20
"""Size of one result of `zlib` for a hook, however small its input."""
MAX_RANDOM_BYTES = 65_536
"""Bytes that one call of `crypto.randomBytes` returns to a hook."""
MAX_SEALED_BYTES = 16_384
"""Size of a text with a key in it that a hook hashes."""

_USES_INTL = re.compile(r"\bIntl\b|\btoLocale(?:Date|Time)?String\b")


def node_module(library: str) -> str | None:
    """The module of Node with this name, `zlib` for `node:zlib`; None if hooks do not have it."""
    name = library.removeprefix("node:")
    return name if name in NODE else None


def needed_modules(text: str, libraries: Iterable[str]) -> tuple[str, ...]:
    """The modules for the text of a file that may use these libraries, sorted."""
    found = {name for library in libraries if (name := node_module(library))}
    if _USES_INTL.search(text):
        found.add(INTL)
    return tuple(sorted(found))


def module_limits() -> dict[str, int]:
    """The limits that the scripts enforce, by their names there."""
    return {
        "unpacked": MAX_UNPACKED_BYTES,
        "random": MAX_RANDOM_BYTES,
        "sealed": MAX_SEALED_BYTES,
    }


def module_script(module: str) -> bytes:
    """The script of a module."""
    name = "intl.js" if module == INTL else f"node_{module}.js"
    return Path(__file__).with_name(name).read_bytes()
