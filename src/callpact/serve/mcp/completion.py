"""Completions: suggested values for an argument of a prompt or a variable of a resource."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, cast

from callpact.context import Identity
from callpact.errors import AccessDenied
from callpact.resources import CallerCompleter, Completer, Offer, completion_of

COMPLETION_SECONDS = 5
"""Seconds that a completion may take; after that it is empty."""
MAX_COMPLETED = 10_000
"""Values that a completion is chosen from."""
_log = logging.getLogger("callpact.serve.mcp")


async def complete(
    offer: Offer, name: str, text: str, others: Mapping[str, str], identity: Identity | None
) -> list[str]:
    """Return the values that begin with a text, then those that contain it; or a function's values.

    A function that fails is logged and suggests nothing.

    Raises:
        AccessDenied: the caller may not ask.
    """
    declared = completion_of(offer, name)
    if not callable(declared) and not isinstance(declared, CallerCompleter):
        return _fitting(_texts(declared), text)
    try:
        async with asyncio.timeout(COMPLETION_SECONDS):
            if isinstance(declared, CallerCompleter):
                return _texts(await declared.complete(text, dict(others), identity))
            if inspect.iscoroutinefunction(declared):
                return _texts(await declared(text, dict(others)))
            given = await asyncio.to_thread(_called, declared, text, dict(others))
            return _texts(await given) if inspect.isawaitable(given) else given
    except AccessDenied:
        raise
    except Exception:  # noqa: BLE001 - boundary: code of the author's
        _log.exception("%s: the completion of '%s' failed", offer.tool.id, name)
        return []


def _called(function: Completer, text: str, others: Mapping[str, str]) -> Any:
    """Call a function in a thread, where it may block; returns its texts, or an awaitable."""
    given = function(text, others)
    return given if inspect.isawaitable(given) else _texts(given)


def _texts(given: Any) -> list[str]:
    values = cast("Iterable[Any]", () if given is None or isinstance(given, str) else given)
    return [str(value) for value in islice(values, MAX_COMPLETED)]


def _fitting(values: list[str], text: str) -> list[str]:
    wanted = text.casefold()
    fitting = [value for value in values if wanted in value.casefold()]
    return sorted(fitting, key=lambda value: not value.casefold().startswith(wanted))
