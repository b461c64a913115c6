"""What a source is read from, and whether it is still what was read."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callpact.sources.importing import TICK_NS, written_at
from callpact.sources.loaded import Watchable, Watched
from callpact.sources.parts import Part
from callpact.watching.looking import Looker, Marks, changed, is_same

_log = logging.getLogger("callpact.watching")
_UNREAD = ("__pycache__", "node_modules", ".git", ".venv", "venv")


@dataclass(slots=True, eq=False)
class Watch:
    """Some files, and as what they were last read."""

    watched: tuple[Watched, ...]
    read: Marks = field(default_factory=dict[str, Any])
    seen: Marks | None = None
    """As what they were last seen, if that is something else."""
    trouble: str = ""
    """What was wrong with them when they were last read."""

    def look(self, looker: Looker) -> bool:
        """True if they changed, and have been quiet since."""
        now = looker.look(self.watched)
        if is_same(now, self.read):
            self.read, self.seen = now, None
            return False
        was, self.seen = self.seen, now
        return now == was

    def take(self) -> list[str]:
        """They are read now, as they were seen; gives the files that changed."""
        was = self.read
        if self.seen is not None:
            self.read, self.seen = self.seen, None
        return list(changed(self.read, was))

    def settle(self, looker: Looker, watched: Iterable[Watched], since: int) -> None:
        """From now on watch these, which were read since then; what changes later is a change."""
        self.watched = tuple(dict.fromkeys(watched))
        now, roots = looker.look(self.watched), {str(each.path) for each in self.watched}
        inside = tuple(root + os.sep for root in roots)
        known = {
            path: mark
            for path, mark in self.read.items()
            if (path in roots or path.startswith(inside))
            and (now.get(path, mark)[1] is None) == (mark[1] is None)
        }
        # Of a file that nobody had looked at, it is not known which version of it was read.
        old = {path: m for path, m in now.items() if written_at(path) < since - TICK_NS}
        self.read = old | known


def watched_of(part: Part, given: Iterable[Path]) -> tuple[Watched, ...]:
    """What a source is read from."""
    wanted, source = part.wanted, part.source
    files = [Watched(file) for file in (wanted.secrets, *given) if file is not None]
    if isinstance(source, Watchable):
        try:
            return (*files, *source.watched())
        except Exception:  # noqa: BLE001 - boundary: a source of others must not end the watching
            _log.exception("%s cannot say what it was read from", wanted.ref)
    kind, colon, rest = wanted.ref.partition(":")
    named = [wanted.ref, rest if colon and kind else "", wanted.settings.lists or ""]
    return (*files, *(Watched(wanted.folder / path, "", _UNREAD) for path in named if path))
