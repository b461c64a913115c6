"""Decoding of an answer's Content-Encoding, piece by piece, with a running size count.

Decoding stops as soon as the size limit is exceeded; a truncated or broken encoding is an error.
Media types are not read here: the result is bytes.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from callpact.net.limits import Limits

ACCEPTED = "gzip, deflate, br"
"""The supported encodings, as a value of Accept-Encoding."""
MAX_GZIP_MEMBERS = 1_000
"""Members that a gzip encoding of an upstream's answer may be made of."""

_STEP = 65_536


class Undecodable(Exception):
    """An answer that cannot be decoded, with the reason."""


class TooLarge(Exception):
    """An answer is larger than a limit allows."""

    def __init__(self, limit: str, value: int) -> None:
        super().__init__(limit, value)
        self.limit = limit
        self.value = value


class Body:
    """Collects an answer's body, decoded.

    Raises:
        Undecodable: too many encodings, or one that is not known.
    """

    def __init__(self, encodings: Iterable[str], limits: Limits) -> None:
        self._most = limits.body_bytes
        self._raw = 0
        self._stages = [_Stage(d, limits.decoded_bytes) for d in _decoders(encodings, limits)]
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Take the next piece.

        Raises:
            TooLarge: before or after decoding.
            Undecodable: the encoding is broken.
        """
        self._raw += len(data)
        if self._raw > self._most:
            raise TooLarge("body_bytes", self._most)
        if self._stages:
            self._pieces.extend(_through(self._stages, data))
        else:
            self._pieces.append(data)

    def end(self, *, may_be_empty: bool = True) -> bytes:
        """Return the whole body; an empty one is not a truncated encoding if it `may_be_empty`.

        Raises:
            Undecodable: the encoding was cut short.
        """
        if self._raw or not may_be_empty:
            for stage in self._stages:
                stage.end()
        pieces = self._pieces
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _Decoder(Protocol):
    """One encoding; `feed` yields small pieces, `is_whole` is True after the end."""

    def feed(self, data: bytes) -> Iterator[bytes]: ...

    @property
    def is_whole(self) -> bool: ...


class _Stage:
    """A decoder with its own size count, which bounds the data between two encodings."""

    def __init__(self, decoder: _Decoder, most: int) -> None:
        self._decoder = decoder
        self._most = most
        self._given = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        for piece in self._decoder.feed(data):
            self._given += len(piece)
            if self._given > self._most:
                raise TooLarge("decoded_bytes", self._most)
            yield piece

    def end(self) -> None:
        if not self._decoder.is_whole:
            raise Undecodable("is cut short")


def _through(stages: list[_Stage], data: bytes) -> Iterator[bytes]:
    first, *rest = stages
    for piece in first.feed(data):
        if rest:
            yield from _through(rest, piece)
        else:
            yield piece


def _decoders(encodings: Iterable[str], limits: Limits) -> list[_Decoder]:
    names = [
        name
        for line in encodings
        for part in line.split(",")
        if (name := part.strip().lower()) and name != "identity"
    ]
    if len(names) > limits.encodings:
        raise Undecodable(f"is encoded {len(names)} times; at most {limits.encodings} are undone")
    if any(name not in _KNOWN for name in names):
        raise Undecodable(f"has an encoding that is not known; known are {ACCEPTED}")
    # The last encoding applied is decoded first (RFC 9110, section 8.4).
    return [_KNOWN[name]() for name in reversed(names)]


class _Gzip:
    """gzip, also of several members one after the other."""

    def __init__(self) -> None:
        self._inflate: Any = zlib.decompressobj(wbits=31)
        self._members = 1

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inflate.eof:
                self._members += 1
                if self._members > MAX_GZIP_MEMBERS:
                    raise Undecodable(f"has more than {MAX_GZIP_MEMBERS:,} gzip members")
                self._inflate = zlib.decompressobj(wbits=31)
            yield from _inflated(self._inflate, data)
            data = self._inflate.unused_data

    @property
    def is_whole(self) -> bool:
        return self._inflate.eof


class _Deflate:
    """deflate: in a zlib wrapping, as it should be, or bare, as some upstreams send it."""

    def __init__(self) -> None:
        self._inflate: Any = None
        self._held = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._inflate is None:
            data = self._held + data
            if len(data) < 2:
                self._held = data
                return
            wrapped = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._inflate = zlib.decompressobj(wbits=15 if wrapped else -15)
        elif self._inflate.eof and data:
            raise Undecodable("goes on after its end")
        yield from _inflated(self._inflate, data)
        if self._inflate.unused_data:
            raise Undecodable("goes on after its end")

    @property
    def is_whole(self) -> bool:
        return self._inflate is not None and self._inflate.eof


def _inflated(inflate: Any, data: bytes) -> Iterator[bytes]:
    try:
        while data and not inflate.eof:
            yield inflate.decompress(data, _STEP)
            data = inflate.unconsumed_tail
        while not inflate.eof and (rest := inflate.decompress(b"", _STEP)):
            yield rest
    except zlib.error:
        raise Undecodable("is broken") from None


class _Brotli:
    """br, by the package brotli."""

    def __init__(self) -> None:
        brotli: Any = importlib.import_module("brotli")
        self._error: type[Exception] = brotli.error
        self._decoder: Any = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        decoder = self._decoder
        while True:
            try:
                piece: bytes = decoder.process(data, output_buffer_limit=_STEP)
            except self._error:
                raise Undecodable("is broken") from None
            data = b""
            yield piece
            if decoder.is_finished() or (not piece and decoder.can_accept_more_data()):
                return

    @property
    def is_whole(self) -> bool:
        return self._decoder.is_finished()


_KNOWN: dict[str, Callable[[], _Decoder]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
}
