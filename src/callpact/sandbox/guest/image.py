"""A snapshot of a guest's memory, stored as its difference from another snapshot.

A realm's image holds only the runs of pages that differ from its base image, so hundreds of realms
need little memory. Any image can be restored to any instance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
from msgspec import Struct

PAGE = 4096
_NOTHING = bytes(PAGE)
_MERGED_GAP = 4  # Copying a few equal pages is cheaper than another copy call.


class Handles(NamedTuple):
    """Handles of the driver's functions in the guest, and the addresses of its buffers."""

    load: int
    start: int
    take: int
    settle: int
    describe: int
    places: tuple[int, int, int]


class Image(Struct, frozen=True, eq=False):
    """The state of a guest: size and content of its memory, its stack pointer, its handles.

    `runs`, content by address, override the content of `base`; `blanks` are ranges of zeros beyond
    it.
    """

    size: int
    stack: int
    handles: Handles
    runs: tuple[tuple[int, bytes], ...]
    blanks: tuple[tuple[int, int], ...]
    base: Image | None = None

    @property
    def own_bytes(self) -> int:
        """Bytes that this image itself holds, without its base."""
        return sum(len(run) for _, run in self.runs)

    def pages(self) -> dict[int, bytes]:
        """The content of its runs by the address of each page."""
        return {
            start + at: run[at : at + PAGE]
            for start, run in self.runs
            for at in range(0, len(run), PAGE)
        }


class _About(Struct, frozen=True, array_like=True):
    size: int
    stack: int
    handles: Handles
    places: list[tuple[int, int]]


def take_image(
    read: Callable[[int, int], bytes],
    size: int,
    stack: int,
    handles: Handles,
    base: Image | None = None,
) -> Image:
    """An image of a memory, as its difference from `base` or from empty memory.

    `read` returns the content at an address; the memory is never copied as a whole.
    """
    before = {} if base is None else base.pages()
    changed = [at for at in range(0, size, PAGE) if read(at, PAGE) != before.get(at, _NOTHING)]
    runs = tuple((start, read(start, end - start)) for start, end in _ranges(changed))
    return _image(size, stack, handles, runs, base)


def pack_image(image: Image) -> tuple[bytes, bytes]:
    """An image without a base, as a description and its content."""
    places = [(start, len(run)) for start, run in image.runs]
    about = _About(image.size, image.stack, image.handles, places)
    return msgspec.msgpack.encode(about), b"".join(run for _, run in image.runs)


def unpack_image(description: bytes, content: bytes) -> Image:
    """The image from the result of `pack_image`.

    Raises:
        msgspec.DecodeError: the description is invalid.
    """
    about = msgspec.msgpack.decode(description, type=_About)
    runs: list[tuple[int, bytes]] = []
    at = 0
    for start, length in about.places:
        runs.append((start, content[at : at + length]))
        at += length
    return _image(about.size, about.stack, about.handles, tuple(runs))


def _image(
    size: int,
    stack: int,
    handles: Handles,
    runs: tuple[tuple[int, bytes], ...],
    base: Image | None = None,
) -> Image:
    places = [(start, len(run)) for start, run in runs]
    blanks = tuple(_gaps(places, 0 if base is None else base.size, size))
    return Image(size, stack, handles, runs, blanks, base)


def _ranges(pages: list[int]) -> Iterator[tuple[int, int]]:
    """Ranges that cover the pages; ranges with a small gap between them are merged."""
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
    """The gaps between start and end, as starts and lengths."""
    for at, length in covered:
        if at > start:
            yield start, at - start
        start = max(start, at + length)
    if end > start:
        yield start, end - start
