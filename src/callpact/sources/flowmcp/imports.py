"""`import( 'crypto' )` in the code of hooks: modules of Node that hooks have, under another name.

The format forbids imports, and the sandbox has no modules to import. Public files import `crypto`
all the same; `compat` gives them what `requiredLibraries` would have given.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from callpact.hooks.modules import IMPORTER, NODE, node_module
from callpact.sources.flowmcp.scan import blank

_IMPORT = re.compile(rf"(?<![\w$.])import\s*\(\s*(['\"])((?:node:)?(?:{'|'.join(NODE)}))\1\s*\)")


class ModuleImport(NamedTuple):
    """An import of a module that hooks have."""

    offset: int
    module: str


def module_imports(text: str) -> tuple[ModuleImport, ...]:
    """Every such import in the code of a file, in the order of the text."""
    found = [*_IMPORT.finditer(text)]
    if not found:
        return ()
    code = blank(text)
    return tuple(
        ModuleImport(match.start(), node_module(match[2]) or "")
        for match in found
        if code.startswith("import", match.start())
    )


def without_imports(text: str) -> str:
    """The text with calls of a function in the place of such imports; all places stay the same."""
    parts: list[str] = []
    at = 0
    for offset, _ in module_imports(text):
        parts += (text[at:offset], IMPORTER)
        at = offset + len(IMPORTER)
    return "".join([*parts, text[at:]])
