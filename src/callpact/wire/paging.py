"""Results that are too large for one response: pages of whole items, previews, and a store.

A page is cut from the longest list of a value, at its root or one level below, and never inside an
item. The rest can be fetched for a limited time: page by page with a cursor, or whole under a URI.
MCP's wire forms are in `wire/mcp/`.
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

from callpact.schema import is_object

LIMIT = 100_000
"""Bytes of JSON in one result, unless a door sets another limit."""
PREVIEW = 2_000
"""Characters of a text that a preview shows."""
SCHEME = "callpact://results/"

_KEY = 16
_MAC = 16
_CURSOR = _KEY + 8 + _MAC
_OUTLINED = 30
_SHOWN_SCALAR = 80


class Items(Struct, frozen=True):
    """A value split into the JSON of each item of its longest list, and the JSON around it."""

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
        """Return the JSON of the value with a range of its items."""
        return self.head + b",".join(self.texts[start:end]) + self.tail


class ItemPage(Struct, frozen=True):
    """A value with a range of the items of its list."""

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
    """Split a value at its longest list, at the root or in one property; None without a list."""
    if isinstance(value, list | tuple):
        return Items(_split(_written(cast("list[Any]", value)))) if value else None
    if not is_object(value):
        return None
    lists = [key for key, held in value.items() if isinstance(held, list | tuple) and held]
    if not lists:
        return None
    written = {key: _written(held) for key, held in value.items()}
    longest = max(lists, key=lambda key: len(written[key]))
    pairs = [_written(key) + b":" + text for key, text in written.items()]
    place = list(value).index(longest)
    before, after = pairs[:place], pairs[place + 1 :]
    return Items(
        _split(written[longest]),
        "/" + longest.replace("~", "~0").replace("/", "~1"),
        b"{" + b",".join([*before, _written(longest) + b":["]),
        b",".join([b"]", *after]) + b"}",
    )


def cut(items: Items, limit: int, start: int = 0) -> ItemPage:
    """Return a page with as many whole items as fit, from `start` on, but at least one."""
    room = limit - items.overhead
    lengths = (len(text) + 1 for text in islice(items.texts, start, None))
    fitting = takewhile(lambda used: used - 1 <= room, accumulate(lengths))
    shown = max(sum(1 for _ in fitting), 1)
    text = items.json(start, start + shown)
    value = msgspec.json.decode(text)
    return ItemPage(value, items.path, start, shown, len(items.texts), len(text))


def preview(value: Any) -> str:
    """Describe a value briefly: the beginning of a text, the keys of an object.

    It never contains truncated JSON, which cannot be parsed or changes its meaning.
    """
    if isinstance(value, str):
        begin = value[:PREVIEW]
        return begin if begin == value else f"{begin}…"
    if is_object(value):
        lines = [f"An object with {_counted(len(value), 'key')}:"]
        lines += [
            f"- {_short(key)}: {_outlined(item)}" for key, item in islice(value.items(), _OUTLINED)
        ]
        if len(value) > _OUTLINED:
            lines.append(f"- and {len(value) - _OUTLINED} more")
        return "\n".join(lines)
    outline = _outlined(value)
    return outline[:1].upper() + outline[1:]


def _outlined(value: Any) -> str:
    if is_object(value):
        return f"an object with {_counted(len(value), 'key')}"
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
    """Return the JSON of each item of an encoded list; encoding a million items one by one is slow."""
    return tuple(map(bytes, _splitter.decode(listed)))


# --- kept results ---------------------------------------------------------------------------


class KeptResult(Struct, frozen=True):
    """A stored result, which only its owner can read."""

    key: str
    owner: str | None
    tool_id: str
    content: Items | bytes
    """A list with the JSON around it, or bytes."""
    mime_type: str
    size: int
    expires: float

    @property
    def uri(self) -> str:
        """The URI of the result."""
        return SCHEME + self.key

    def read(self) -> bytes:
        """Return the whole result."""
        return self.content if isinstance(self.content, bytes) else self.content.json()


class KeptResults:
    """A store of results, bounded in number, in bytes and in age.

    The oldest result of the owner that holds the most is evicted first, so that one owner cannot
    evict the results of others. `clock` counts seconds. `mark` begins all keys and cursors.
    """

    def __init__(
        self,
        *,
        results: int = 200,
        size: int = 64 * 1024 * 1024,
        age: float = 600,
        clock: Callable[[], float] = time.monotonic,
        mark: bytes = b"",
    ) -> None:
        self._results = results
        self._size = size
        self._age = age
        self._clock = clock
        self._mark = mark
        self._kept: dict[str, KeptResult] = {}
        self._secret = secrets.token_bytes(32)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        """Bytes of all stored results."""
        return sum(kept.size for kept in self._kept.values())

    @property
    def age(self) -> float:
        """Seconds after which a result expires."""
        return self._age

    def keep(
        self,
        content: Items | bytes,
        *,
        owner: str | None,
        tool_id: str,
        mime_type: str = "application/json",
    ) -> KeptResult | None:
        """Store a result for its owner; None if it is larger than the store."""
        size = len(content) if isinstance(content, bytes) else content.size
        if size > self._size or not self._results:
            return None
        self._drop_old()
        key = (self._mark + secrets.token_bytes(_KEY))[:_KEY].hex()
        expires = self._clock() + self._age
        kept = self._kept[key] = KeptResult(key, owner, tool_id, content, mime_type, size, expires)
        while len(self._kept) > self._results or self.size > self._size:
            self._drop_one(kept)
        return kept

    def find(self, uri: str, owner: str | None) -> KeptResult | None:
        """Return the result under a URI; None if it is unknown or another caller's."""
        return self._owned(uri.removeprefix(SCHEME), owner) if uri.startswith(SCHEME) else None

    def cursor(self, kept: KeptResult, start: int) -> str:
        """Return the cursor of the page that starts at `start`."""
        place = bytes.fromhex(kept.key) + start.to_bytes(8)
        return base64.urlsafe_b64encode(place + self._mac(place)).decode().rstrip("=")

    def at(self, cursor: str, owner: str | None) -> tuple[KeptResult, int] | None:
        """Return the result and the start of the page of a cursor.

        None if the cursor is invalid or of another owner, or if its result has expired.
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

    def _owned(self, key: str, owner: str | None) -> KeptResult | None:
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

    def _drop_one(self, latest: KeptResult) -> None:
        held: dict[str | None, int] = {}
        for kept in self._kept.values():
            held[kept.owner] = held.get(kept.owner, 0) + kept.size + 1
        if len(held) > 1 and len(self._of(latest.owner)) == 1:
            held.pop(latest.owner)  # The latest result itself is not evicted.
        most = max(held, key=held.__getitem__)
        del self._kept[self._of(most)[0].key]

    def _of(self, owner: str | None) -> list[KeptResult]:
        return [kept for kept in self._kept.values() if kept.owner == owner]


class Paging(Struct, frozen=True):
    """The paging of large results for one caller: the limit, and the store of the rest."""

    kept: KeptResults
    owner: str | None = None
    """The owner of the rest: the id of the caller, or of its session."""
    limit: int = LIMIT
    """Bytes of JSON in one result."""
    reader: str = ""
    """The name of the tool that returns the page of a cursor, if the door has one."""


def is_over(paging: Paging | None, size: int) -> bool:
    """True if this number of bytes is too large for one result."""
    return paging is not None and size > paging.limit
