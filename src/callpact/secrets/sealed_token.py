"""A token that is passed on in this process, and shown nowhere."""

from __future__ import annotations

import hashlib
from typing import NoReturn, final


@final
class SealedToken:
    """A token of a caller; no repr, format, copy, pickle or encoder shows it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the token, for the one request that it is sent with."""
        return self._value

    @property
    def digest(self) -> bytes:
        """A digest of the token, to recognise it."""
        return hashlib.sha256(self._value.encode("utf-8", "surrogatepass")).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SealedToken) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return "SealedToken(***)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("tokens are not pickled")
