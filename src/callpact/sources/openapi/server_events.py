"""Events of `text/event-stream`, read piece by piece as WHATWG defines it.

Nothing is fetched here. An event that the stream does not end with an empty line is incomplete and
is left out.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from msgspec import Struct

from callpact.errors import UpstreamError

MAX_EVENT_BYTES = 2_000_000
"""Size of one event of a stream."""


class ServerEvent(Struct, frozen=True):
    """One event: its data, its name if it has one, and the id that was last seen."""

    data: str
    name: str = ""
    id: str = ""


class EventReader:
    """Turns pieces of bytes into events; a line may be cut anywhere.

    Raises:
        UpstreamError: an event is larger than `MAX_EVENT_BYTES`.
    """

    def __init__(self) -> None:
        # Broken UTF-8 becomes a replacement character, a byte order mark at the start is skipped.
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._rest = ""
        self._ends_in_cr = False
        self._data: list[str] = []
        self._size = 0
        self._name = ""
        self._id = ""

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """Yield the events that a piece completes."""
        text = self._decoder.decode(piece)
        if self._ends_in_cr and text:
            text = text.removeprefix("\n")  # The second half of CR LF.
            self._ends_in_cr = False
        if not text:
            return
        self._ends_in_cr = text.endswith("\r")
        # `str.splitlines` would also split at characters that end no line here.
        lines = (self._rest + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop()
        self._check(len(self._rest))
        for line in lines:
            event = self._line(line)
            if event is not None:
                yield event

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatched()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "data":
                self._data.append(value)
                self._check(len(value) + 1)
                self._size += len(value) + 1
            case "event":
                self._name = value
            case "id" if "\0" not in value:
                self._id = value
            case _:  # A comment, `retry`, or an unknown field.
                pass
        return None

    def _dispatched(self) -> ServerEvent | None:
        data, name = self._data, self._name
        self._data, self._name, self._size = [], "", 0
        return ServerEvent("\n".join(data), name, self._id) if data else None

    def _check(self, more: int) -> None:
        if self._size + more > MAX_EVENT_BYTES:
            raise UpstreamError(
                f"An event of the stream has more than {MAX_EVENT_BYTES:,} bytes",
                details={
                    "reason": "too_large",
                    "limit": "MAX_EVENT_BYTES",
                    "value": MAX_EVENT_BYTES,
                },
            )
