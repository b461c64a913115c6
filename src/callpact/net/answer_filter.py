"""A filter for the events of one JSON-RPC request: it drops answers to other requests.

The MCP SDK takes the first answer on the stream of a request for its answer, whatever its id. This
is a filter of bytes, not a reader of events: everything but such an answer passes unchanged.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_BREAK = rb"(?:\r\n|\n|\r(?!\n))"
_END = re.compile(_BREAK * 2)
_LINE = re.compile(_BREAK)
_BOM = b"\xef\xbb\xbf"


class _MessageHead(msgspec.Struct):
    """The members of a message that say what it answers."""

    id: Any = None
    method: Any = None
    error: msgspec.Raw = msgspec.Raw()


class AnswerFilter:
    """Takes the bytes of a stream and gives those to pass on; an event passes as a whole.

    An event of more than `limit` bytes ends the filter: the rest passes, for its reader to refuse.
    """

    def __init__(self, request_id: object, limit: int) -> None:
        self.request_id = request_id
        self.last_event = ""
        """The `id` of the last event that had one."""
        self._limit = limit
        self._held = bytearray()
        self._searched = 0
        self._is_off = False

    def feed(self, chunk: bytes) -> bytes:
        """Add bytes, and return all events that are complete now."""
        if self._is_off:
            return chunk
        self._held += chunk
        passed = bytearray()
        start = 0
        while end := _END.search(self._held, max(start, self._searched)):
            event = bytes(self._held[start : end.end()])
            start = self._searched = end.end()
            if self._belongs(event):
                passed += event
        del self._held[:start]
        self._searched = max(0, len(self._held) - 4)
        if len(self._held) > self._limit:
            self._is_off = True
            return bytes(passed) + self.rest()
        return bytes(passed)

    def rest(self) -> bytes:
        """The bytes of an event that did not come to its end."""
        held = bytes(self._held)
        self._held.clear()
        return held if self._is_off or self._belongs(held) else b""

    def _belongs(self, event: bytes) -> bool:
        """True for all but the answer to another request."""
        data: list[bytes] = []
        for line in _LINE.split(event.removeprefix(_BOM)):
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                data.append(value)
            elif name == b"id":
                self.last_event = value.decode("utf-8", "replace")
        try:
            head = msgspec.json.decode(b"\n".join(data), type=_MessageHead)
        except (msgspec.DecodeError, RecursionError):
            return True
        if head.method is not None or (head.id is None and head.error):
            return True
        return str(head.id) == str(self.request_id)
