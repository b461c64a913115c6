"""Results that are too large for one answer: pages of whole items, previews, and the rest kept.

A page is cut from the longest list of a value, at its root or one level below, and never inside an
item. What was not sent can be fetched for a while: by cursor, page after page, or whole, under a
URI. Nothing here knows MCP's forms; those are in `mcp.py` and `mcp_content.py`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from itertools import accumulate, islice, takewhile
from typing import Any, cast

import msgspec
import orjson
from msgspec import Struct

LIMIT = 100_000
"""Bytes of JSON that one answer may hold unless a door says otherwise."""
PREVIEW = 2_000
"""Characters of a text, and of an outline, that a preview shows."""
SCHEME = "callpact://results/"

_KEY = 16
_MAC = 16
_CURSOR = _KEY + 8 + _MAC
_OUTLINED = 30
_SHOWN_SCALAR = 80


class Items(Struct, frozen=True):
    """A value taken apart: its longest list, as the JSON of each item, and the JSON around it."""

    texts: tuple[bytes, ...]
    path: str = ""
    """JSON Pointer to the list: empty, or one property of the root."""
    head: bytes = b"["
    """The JSON up to the first item."""
    tail: bytes = b"]"
    """The JSON after the last item."""

    @property
    def overhead(self) -> int:
        """Bytes of the JSON without any item."""
        return len(self.head) + len(self.tail)

    @property
    def size(self) -> int:
        """Bytes of the whole JSON."""
        return self.overhead + sum(map(len, self.texts)) + max(0, len(self.texts) - 1)

    def json(self, start: int = 0, end: int | None = None) -> bytes:
        """The JSON of the value with these items of the list."""
        return self.head + b",".join(self.texts[start:end]) + self.tail


class Page(Struct, frozen=True):
    """Some items of a list, inside the value that holds it."""

    value: Any
    path: str
    """JSON Pointer to the list inside the value."""
    start: int
    shown: int
    total: int
    size: int
    """Bytes of the page's JSON."""

    @property
    def next(self) -> int | None:
        """Where the next page begins; None after the last item."""
        end = self.start + self.shown
        return end if end < self.total else None


def take_apart(value: Any) -> Items | None:
    """The longest list of a value, at its root or in one property of the root; None without one."""
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return Items(_split(_written(items))) if items else None
    if not isinstance(value, dict):
        return None
    root = cast("dict[str, Any]", value)
    lists = [key for key, held in root.items() if isinstance(held, list | tuple) and held]
    if not lists:
        return None
    written = {key: _written(held) for key, held in root.items()}
    longest = max(lists, key=lambda key: len(written[key]))
    pairs = [_written(key) + b":" + text for key, text in written.items()]
    place = list(root).index(longest)
    before, after = pairs[:place], pairs[place + 1 :]
    return Items(
        _split(written[longest]),
        "/" + longest.replace("~", "~0").replace("/", "~1"),
        b"{" + b",".join([*before, _written(longest) + b":["]),
        b",".join([b"]", *after]) + b"}",
    )


def cut(items: Items, limit: int, start: int = 0) -> Page:
    """As many whole items as fit, from `start` on; one at least, though it may not fit alone."""
    room = limit - items.overhead
    lengths = (len(text) + 1 for text in islice(items.texts, start, None))
    fitting = takewhile(lambda used: used - 1 <= room, accumulate(lengths))
    shown = max(sum(1 for _ in fitting), 1)
    text = items.json(start, start + shown)
    value = msgspec.json.decode(text)
    return Page(value, items.path, start, shown, len(items.texts), len(text))


def preview(value: Any) -> str:
    """Describe a value briefly: the beginning of a text, the keys of an object.

    Never a piece of JSON: what is cut there cannot be read, or reads as something else.
    """
    if isinstance(value, str):
        begin = value[:PREVIEW]
        return begin if begin == value else f"{begin}…"
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        lines = [f"An object with {_counted(len(held), 'key')}:"]
        lines += [f"- {_short(key)}: {_outlined(item)}" for key, item in _first(held)]
        if len(held) > _OUTLINED:
            lines.append(f"- and {len(held) - _OUTLINED} more")
        return "\n".join(lines)
    outline = _outlined(value)
    return outline[:1].upper() + outline[1:]


def _first(held: dict[str, Any]) -> list[tuple[str, Any]]:
    return [pair for pair, _ in zip(held.items(), range(_OUTLINED), strict=False)]


def _outlined(value: Any) -> str:
    if isinstance(value, dict):
        return f"an object with {_counted(len(cast('dict[str, Any]', value)), 'key')}"
    if isinstance(value, list | tuple):
        return f"a list of {_counted(len(cast('list[Any]', value)), 'item')}"
    if isinstance(value, str) and len(value) > _SHOWN_SCALAR:
        return f"a text of {_counted(len(value), 'character')}"
    return _written(value).decode()


def _short(key: str) -> str:
    return key if len(key) <= _SHOWN_SCALAR else f"{key[:_SHOWN_SCALAR]}…"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


_encoder = msgspec.json.Encoder()


def _written(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # Integers beyond 64 bits.
        return _encoder.encode(value)


_splitter = msgspec.json.Decoder(list[msgspec.Raw])


def _split(listed: bytes) -> tuple[bytes, ...]:
    """The JSON of each item of a list: from its text, as writing a million items takes seconds."""
    return tuple(map(bytes, _splitter.decode(listed)))


# --- what was not sent ----------------------------------------------------------------------


class Kept(Struct, frozen=True):
    """A result that can still be read, by its owner only."""

    key: str
    owner: str | None
    tool_id: str
    content: Items | bytes
    """A list with what is around it, or the bytes as they are read."""
    mime_type: str
    size: int
    expires: float

    @property
    def uri(self) -> str:
        """Where it is read."""
        return SCHEME + self.key

    def read(self) -> bytes:
        """All of it."""
        return self.content if isinstance(self.content, bytes) else self.content.json()


class KeptResults:
    """Results for later, bounded in number, in bytes and in age.

    The oldest of the owner who holds the most goes first: nobody can drive out what is another's by
    asking for much. `clock` counts seconds.
    """

    def __init__(
        self,
        *,
        results: int = 200,
        size: int = 64 * 1024 * 1024,
        age: float = 600,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._results = results
        self._size = size
        self._age = age
        self._clock = clock
        self._kept: dict[str, Kept] = {}
        self._secret = secrets.token_bytes(32)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        """Bytes that are held now."""
        return sum(kept.size for kept in self._kept.values())

    @property
    def age(self) -> float:
        """Seconds that a result is kept at most."""
        return self._age

    def keep(
        self,
        content: Items | bytes,
        *,
        owner: str | None,
        tool_id: str,
        mime_type: str = "application/json",
    ) -> Kept | None:
        """Hold a result for its owner; None if it alone is too large to be held."""
        size = len(content) if isinstance(content, bytes) else content.size
        if size > self._size or not self._results:
            return None
        self._drop_old()
        key = secrets.token_hex(_KEY)
        expires = self._clock() + self._age
        kept = self._kept[key] = Kept(key, owner, tool_id, content, mime_type, size, expires)
        while len(self._kept) > self._results or self.size > self._size:
            self._drop_one(kept)
        return kept

    def find(self, uri: str, owner: str | None) -> Kept | None:
        """Return the result under a URI; None if it is unknown or another caller's."""
        return self._owned(uri.removeprefix(SCHEME), owner) if uri.startswith(SCHEME) else None

    def cursor(self, kept: Kept, start: int) -> str:
        """Return the cursor of the page that begins at `start`."""
        place = bytes.fromhex(kept.key) + start.to_bytes(8)
        return base64.urlsafe_b64encode(place + self._mac(place)).decode().rstrip("=")

    def at(self, cursor: str, owner: str | None) -> tuple[Kept, int] | None:
        """The result that a cursor speaks of, and where its page begins.

        None for a cursor that was never given out to this owner, or whose result is gone.
        """
        try:
            raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        except (ValueError, binascii.Error):
            return None
        place = raw[:-_MAC]
        if len(raw) != _CURSOR or not hmac.compare_digest(raw[-_MAC:], self._mac(place)):
            return None
        kept = self._owned(place[:_KEY].hex(), owner)
        return None if kept is None else (kept, int.from_bytes(place[_KEY:]))

    def _mac(self, place: bytes) -> bytes:
        return hmac.digest(self._secret, place, hashlib.sha256)[:_MAC]

    def _owned(self, key: str, owner: str | None) -> Kept | None:
        self._drop_old()
        kept = self._kept.get(key)
        return kept if kept is not None and kept.owner == owner else None

    def _drop_old(self) -> None:
        now = self._clock()
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if oldest.expires > now:
                return
            del self._kept[oldest.key]

    def _drop_one(self, latest: Kept) -> None:
        held: dict[str | None, int] = {}
        for kept in self._kept.values():
            held[kept.owner] = held.get(kept.owner, 0) + kept.size + 1
        if len(held) > 1 and len(self._of(latest.owner)) == 1:
            held.pop(latest.owner)  # What was asked for just now must be there to be read.
        most = max(held, key=held.__getitem__)
        del self._kept[self._of(most)[0].key]

    def _of(self, owner: str | None) -> list[Kept]:
        return [kept for kept in self._kept.values() if kept.owner == owner]


class Paging(Struct, frozen=True):
    """The paging of large results for one caller: the limit, and the store of the rest."""

    kept: KeptResults
    owner: str | None = None
    """The owner of the rest: the id of the caller, or of its session."""
    limit: int = LIMIT
    """Bytes of JSON that one answer may hold."""
    reader: str = ""
    """The tool that takes a cursor and gives the next page, if the door has one."""


def is_over(paging: Paging | None, size: int) -> bool:
    """True if this number of bytes is too large for one result."""
    return paging is not None and size > paging.limit
