"""What a guest's memory looked like at one moment, kept as its difference from another image.

A realm's image holds only the runs of pages in which it differs from the image that it was made
from, so hundreds of realms cost little. Not tied to an instance: any instance can be put into the
state of any image.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec import Struct

PAGE = 4096
_MERGED_GAP = 4  # Copying a few equal pages costs less than another copy call.


class Handles(NamedTuple):
    """The guest's own numbers: the driver's functions, and the places for what goes in and out."""

    load: int
    start: int
    take: int
    settle: int
    tell: int
    places: tuple[int, int, int]


class Image(Struct, frozen=True, eq=False):
    """The state of a guest: size and content of its memory, its stack pointer, its handles.

    Over the content of `base` lie `runs`, pieces of content by address, and `blanks`, ranges of
    zeros beyond it.
    """

    size: int
    stack: int
    handles: Handles
    runs: tuple[tuple[int, bytes], ...]
    blanks: tuple[tuple[int, int], ...]
    base: Image | None = None
    whole: bytes = b""
    """All of the memory, kept where other images are made from this one."""

    @property
    def own_bytes(self) -> int:
        """Content that this image holds itself, beside its base."""
        return sum(len(run) for _, run in self.runs)


class _About(Struct, frozen=True, array_like=True):
    size: int
    stack: int
    handles: Handles
    places: list[tuple[int, int]]


def take_image(memory: bytes, stack: int, handles: Handles, base: Image | None = None) -> Image:
    """An image of `memory`, as its difference from `base` or from nothing."""
    size = len(memory)
    known = 0 if base is None else base.size
    before = (b"" if base is None else base.whole).ljust(size, b"\0")
    changed = [
        at for at in range(0, size, PAGE) if memory[at : at + PAGE] != before[at : at + PAGE]
    ]
    runs = [(start, memory[start:end]) for start, end in _ranges(changed)]
    blanks = list(_gaps([(start, len(run)) for start, run in runs], known, size))
    whole = memory if base is None else b""
    return Image(size, stack, handles, tuple(runs), tuple(blanks), base, whole)


def pack_image(image: Image) -> tuple[bytes, bytes]:
    """An image that was made from nothing, as a description and its content."""
    places = [(start, len(run)) for start, run in image.runs]
    about = _About(image.size, image.stack, image.handles, places)
    return msgspec.msgpack.encode(about), b"".join(run for _, run in image.runs)


def unpack_image(description: bytes, content: bytes) -> Image:
    """The image that was packed.

    Raises:
        msgspec.DecodeError: the description is not one.
    """
    about = msgspec.msgpack.decode(description, type=_About)
    whole = bytearray(about.size)
    at = 0
    for start, length in about.places:
        whole[start : start + length] = content[at : at + length]
        at += length
    return take_image(bytes(whole), about.stack, about.handles)


def _ranges(pages: list[int]) -> Iterator[tuple[int, int]]:
    """Ranges that cover the pages, with small gaps closed."""
    start = end = -1
    for at in pages:
        if start >= 0 and at - end <= _MERGED_GAP * PAGE:
            end = at + PAGE
            continue
        if start >= 0:
            yield start, end
        start, end = at, at + PAGE
    if start >= 0:
        yield start, end


def _gaps(covered: list[tuple[int, int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """What lies between start and end and is not covered, as starts and lengths."""
    for at, length in covered:
        if at > start:
            yield start, at - start
        start = max(start, at + length)
    if end > start:
        yield start, end - start
