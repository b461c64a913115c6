"""A strict check of HTTP/1.1 framing before any parser sees a byte (RFC 9112).

If a proxy and this server disagree about where a request ends, a client can smuggle requests past
the proxy. Ambiguous requests are therefore refused, and the connection is closed. Works on bytes,
without sockets, ASGI or MCP.
"""

from __future__ import annotations

import re

from callpact.serve.jsonrpc import RequestRefused

MAX_REQUEST_LINE_BYTES = 8 << 10
"""Size of the first line of a request over HTTP: method, target and version."""
MAX_HEADERS = 100
"""Headers of a request over HTTP; trailers are counted separately."""
MAX_CHUNK_LINE_BYTES = 256
"""Size of the line that begins a chunk of a body over HTTP."""
MAX_HEADER_BYTES = 64 << 10
"""Size of the headers of a request over HTTP."""

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_NAME = re.compile(_TOKEN)
_REQUEST_LINE = re.compile(rb"(%b) ([\x21-\x7e]+) HTTP/([0-9]\.[0-9])" % _TOKEN)
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*)?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_HOST = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z._~!$&'()*+;=%-]{0,255})(?::([0-9]{0,5}))?"
)
_ABSOLUTE = re.compile(rb"https?://([^/?]*)(.*)", re.IGNORECASE)
_PRINTED = bytes(byte for byte in range(256) if byte in b"\t\r\n" or byte not in {*range(32), 127})


class Framing:
    """The framing of one connection's messages.

    `feed` returns the checked bytes for the parser; after a refusal, `passed` has those before it.
    """

    def __init__(self, header_bytes: int = MAX_HEADER_BYTES) -> None:
        self._header_bytes = header_bytes
        self._held = bytearray()
        self._seen = 0
        self._left = 0
        self._step = self._head
        self.passed = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Check more bytes and return those for the parser; a message's head is returned whole.

        Raises:
            RequestRefused: the framing is not valid; nothing more can be read.
        """
        self._held += data
        self.passed = bytearray()
        while self._step():
            pass
        return bytes(self.passed)

    # --- the parts of a message ---------------------------------------------------------------

    def _head(self) -> bool:
        if b"\r".startswith(self._held):  # Nothing, or half of an empty line's CRLF.
            return False
        if self._held.startswith(b"\r\n"):
            del self._held[:2]  # RFC 9112, section 2.2: an empty line before a request.
        self._step = self._head_after_empty_line
        return True

    def _head_after_empty_line(self) -> bool:
        block = self._block(b"\r\n\r\n", "headers")
        if block is None:
            if b"\r\n" not in self._held and len(self._held) > MAX_REQUEST_LINE_BYTES:
                raise _line_too_long()
            return False
        line, *lines = block.split(b"\r\n")
        head = _Head(line, lines)
        rest = block[len(line) :]
        if head.has_upgrade:  # No protocol is changed, and the parser would drop the body for it.
            kept = [each for each in lines if not each.lower().startswith(b"upgrade:")]
            rest = b"".join(b"\r\n" + each for each in kept)
        self.passed += head.line + rest + b"\r\n\r\n"
        self._left = head.length
        self._step = self._chunk_line if head.is_chunked else self._body
        return True

    def _body(self) -> bool:
        taken = self._held[: self._left]
        self.passed += taken
        del self._held[: len(taken)]
        self._left -= len(taken)
        if self._left:
            return False
        self._step = self._head
        return bool(self._held)

    def _chunk_line(self) -> bool:
        end = self._held.find(b"\r\n", 0, MAX_CHUNK_LINE_BYTES + 2)
        if end < 0 and len(self._held) <= MAX_CHUNK_LINE_BYTES and b"\n" not in self._held:
            return False
        found = _CHUNK_LINE.fullmatch(self._held[: max(end, 0)])
        if found is None:
            raise _bad("A chunk begins with its size in hexadecimal digits and CRLF")
        del self._held[: end + 2]
        self._left = int(found[1], 16)
        if not self._left:
            self._step = self._trailers
            return True
        self.passed += b"%x\r\n" % self._left  # Extensions are dropped.
        self._step = self._chunk
        return True

    def _chunk(self) -> bool:
        taken = self._held[: self._left]
        self.passed += taken
        del self._held[: len(taken)]
        self._left -= len(taken)
        if self._left or not self._held:
            return False
        if not b"\r\n".startswith(self._held[:2]):
            raise _bad("A chunk ends after as many bytes as it says, with CRLF")
        if len(self._held) == 1:
            return False
        del self._held[:2]
        self.passed += b"\r\n"
        self._step = self._chunk_line
        return True

    def _trailers(self) -> bool:
        if b"\r".startswith(self._held):  # Nothing, or half of an empty line.
            return False
        if self._held.startswith(b"\r\n"):
            del self._held[:2]
        else:
            block = self._block(b"\r\n\r\n", "trailers")
            if block is None:
                return False
            _fields(block.split(b"\r\n"))  # Checked, then dropped.
        self.passed += b"0\r\n\r\n"
        self._step = self._head
        return bool(self._held)

    def _block(self, end: bytes, kind: str) -> bytes | None:
        """Remove the lines up to an empty one from the buffer; None while they are incomplete."""
        found = self._held.find(end, max(0, self._seen - 3))
        size = len(self._held) if found < 0 else found
        is_half = self._held.endswith(b"\r", 0, self._seen)
        _check_lines(self._held[self._seen - is_half : size], kind, is_whole=found >= 0)
        if size > self._header_bytes:
            raise RequestRefused(
                431, f"The {kind} of a request may have {self._header_bytes:,} bytes"
            )
        if found < 0:
            self._seen = size
            return None
        self._seen = 0
        block = bytes(self._held[:found])
        del self._held[: found + len(end)]
        return block


class _Head:
    """The normalised request line, and the framing of the body."""

    def __init__(self, line: bytes, lines: list[bytes]) -> None:
        if len(line) > MAX_REQUEST_LINE_BYTES:
            raise _line_too_long()
        found = _REQUEST_LINE.fullmatch(line)
        if found is None:
            raise _bad("A request begins with its method, its target and its version of HTTP")
        method, target, version = found.groups()
        if version not in {b"1.0", b"1.1"}:
            raise RequestRefused(505, "Requests are read in HTTP/1.1 and HTTP/1.0")
        if method == b"CONNECT":
            raise _bad("CONNECT is for proxies, and this server is none")
        fields = _fields(lines)
        self.has_upgrade = b"upgrade" in fields
        host = _host(fields.get(b"host", []), is_needed=version == b"1.1")
        self.line = b"%b %b HTTP/%b" % (method, _path(method, target, host), version)
        self.is_chunked = _is_chunked(fields, version)
        self.length = 0 if self.is_chunked else _length(fields.get(b"content-length", []))
        if any(value.lower() != b"100-continue" for value in fields.get(b"expect", [])):
            raise RequestRefused(417, "The only Expect that is met is 100-continue")


def _check_lines(text: bytearray, kind: str, *, is_whole: bool) -> None:
    """Refuse control characters and a lone CR or LF; LF may still follow a CR at the end."""
    ends, half = text.count(b"\r\n"), not is_whole and text.endswith(b"\r")
    if text.count(b"\n") != ends or text.count(b"\r") - half != ends:
        raise _bad(f"There is a line that ends without CRLF in the {kind} of the request")
    if text.translate(None, _PRINTED):
        raise _bad(f"There is a control character in the {kind} of the request")


def _fields(lines: list[bytes]) -> dict[bytes, list[bytes]]:
    """Return the values of each header, by its name in lower case."""
    if len(lines) > MAX_HEADERS:
        raise RequestRefused(431, f"A request may have {MAX_HEADERS} headers")
    fields: dict[bytes, list[bytes]] = {}
    for line in lines:
        if line[:1] in (b" ", b"\t"):
            raise _bad("A header goes on in the next line; that is no longer part of HTTP/1.1")
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name):
            raise _bad("A header is a name, a colon right after it and a value")
        fields.setdefault(name.lower(), []).append(value.strip(b" \t"))
    return fields


def _host(values: list[bytes], *, is_needed: bool) -> bytes:
    if len(values) > 1 or (is_needed and not values):
        raise _bad(f"A request has one Host, got {len(values)}")
    for value in values:
        found = _HOST.fullmatch(value)
        if found is None or int(found[1] or 0) > 65_535:
            raise _bad("The Host of a request is a name or an address, and a port; no user info")
    return b"".join(values)


def _path(method: bytes, target: bytes, host: bytes) -> bytes:
    """Return the path and query of a target."""
    if b"#" in target:
        raise _bad("The target of a request has no fragment")
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is not None:
        if absolute[1].lower() != host.lower():
            raise _bad("The target of a request names another host than its Host")
        target = absolute[2] if absolute[2].startswith(b"/") else b"/" + absolute[2]
    if not target.startswith(b"/") and (method, target) != (b"OPTIONS", b"*"):
        raise _bad("The target of a request is a path that begins with '/'")
    return target


def _is_chunked(fields: dict[bytes, list[bytes]], version: bytes) -> bool:
    codings = fields.get(b"transfer-encoding")
    if codings is None:
        return False
    if b"content-length" in fields:  # RFC 9112, section 6.1
        raise _bad("A request has a Content-Length or a Transfer-Encoding, not both")
    if version == b"1.0":
        raise _bad("There is no Transfer-Encoding in HTTP/1.0")
    if [coding.lower() for coding in codings] != [b"chunked"]:
        raise RequestRefused(501, "The only Transfer-Encoding that is read is chunked, once")
    return True


def _length(values: list[bytes]) -> int:
    if not values:
        return 0
    if len(values) > 1 or not _LENGTH.fullmatch(values[0]):
        raise _bad("A request has one Content-Length, of up to 18 digits")
    return int(values[0])


def _bad(text: str) -> RequestRefused:
    return RequestRefused(400, text)


def _line_too_long() -> RequestRefused:
    return RequestRefused(
        414, f"The first line of a request may have {MAX_REQUEST_LINE_BYTES:,} bytes"
    )
