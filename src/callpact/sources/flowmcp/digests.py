"""Digests of keys: a hook asks for one, and the host computes it when the request leaves.

A hook has a placeholder instead of a key, so that a hash it computed would be that of the
placeholder. `node_crypto.js` therefore writes down what was to be hashed, as a placeholder of its
own: `hash` or `hmac`, the algorithm, the encoding, the message and the key in hex.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final

DIGEST: Final = (
    r"(?P<kind>hash|hmac)-(?P<algorithm>md5|sha1|sha224|sha256|sha384|sha512)"
    r"-(?P<encoding>hex|base64|base64url)-(?P<message>[0-9a-f]*)-(?P<key>[0-9a-f]*)"
)
"""The pattern of such a placeholder, between the mark of the host and its end."""


def digest_of(match: re.Match[str], fill: Callable[[str], str]) -> str:
    """The digest that a placeholder stands for; `fill` puts keys into a text."""
    message, key = (_filled(match[part], fill) for part in ("message", "key"))
    algorithm = match["algorithm"]
    if match["kind"] == "hmac":
        made = hmac.digest(key, message, algorithm)
    else:
        made = hashlib.new(algorithm, message, usedforsecurity=False).digest()
    match match["encoding"]:
        case "hex":
            return made.hex()
        case "base64":
            return base64.b64encode(made).decode()
        case _:
            return base64.urlsafe_b64encode(made).decode().rstrip("=")


def _filled(digits: str, fill: Callable[[str], str]) -> bytes:
    """The bytes with keys in the place of their placeholders; an odd digit at the end is dropped."""
    data = bytes.fromhex(digits[: len(digits) // 2 * 2])
    # Placeholders are ASCII; keys are hashed in UTF-8, as JavaScript does.
    return fill(data.decode("latin-1")).encode("latin-1")
