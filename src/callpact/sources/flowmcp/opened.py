"""What is only seen when a file's hooks are opened: its libraries, its factory, the keys it returns.

The code of the file runs for this, in the sandbox and within its limits; no hook is called. Loading
a file opens nothing: `callpact check --hooks` asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from callpact.errors import DeclarationError
from callpact.sources.flowmcp.checking import Checked, PlacedHit
from callpact.sources.flowmcp.file_hooks import CatalogueHooks, Unhooked
from callpact.sources.flowmcp.rules.hit import Hit, texts
from callpact.sources.flowmcp.rules.hooks import hook_key_hit, key_hit, owners
from callpact.sources.flowmcp.tokens import line_starts, place_of

if TYPE_CHECKING:
    from callpact.hooks.realm import Realm

_CODES = {"LibraryFailed": "SEC103", "MainChanged": "VAL162", "NoFactory": "VAL004"}
"""What went wrong by the engine's name for it; everything else is the factory's failure."""
_LIBRARIES = "/requiredLibraries"


async def opened_hits(hooks: CatalogueHooks, checked: Checked) -> list[PlacedHit]:
    """What opening the hooks of a checked file tells; nothing of a file that cannot be loaded."""
    main, handlers = checked.manifest, checked.handlers
    if main is None or handlers is None:
        return []
    libraries = texts(main.get("requiredLibraries"))
    try:
        found = hooks.of_file(checked.file, checked.text, handlers, main["tools"], libraries)
        if isinstance(found, Unhooked):
            return [PlacedHit(Hit("SEC103", _LIBRARIES, found.reason))]
        realm = await found.open()
    except DeclarationError as error:
        return [_refused(error, checked, handlers)]
    line, column = place_of(line_starts(checked.text), handlers)
    return [PlacedHit(hit, line, column) for hit in _key_hits(realm, checked, handlers)]


def _refused(error: DeclarationError, checked: Checked, handlers: int) -> PlacedHit:
    from callpact.hooks.loading import HooksRefused

    if not isinstance(error, HooksRefused):  # The pack itself.
        return PlacedHit(Hit("SEC103", _LIBRARIES, str(error)))
    code = _CODES.get(error.name, "SEC104")
    if code == "SEC103":
        return PlacedHit(Hit(code, _LIBRARIES, error.message))
    words = error.message if code != "SEC104" else f"{error.name}: {error.message}"
    place = (error.line, error.column) if error.line else None
    return PlacedHit(
        Hit(code, "", words), *(place or place_of(line_starts(checked.text), handlers))
    )


def _key_hits(realm: Realm, checked: Checked, handlers: int) -> Iterator[Hit]:
    main = checked.manifest or {}
    known = owners(main)
    # A hook may use what stands beside it by `this`.
    uses_this = "this" in checked.text[handlers:]
    for name, kinds in realm.hooks.items():
        hit = key_hit(name, known)
        if hit is not None:
            yield hit
        elif name in main["tools"] and not uses_this:
            found = (hook_key_hit(kind, name, main) for kind in sorted(kinds))
            yield from (each for each in found if each is not None)
