"""The address of a PostgreSQL server, shown without its password."""

from __future__ import annotations

import hashlib
from urllib.parse import parse_qsl, unquote, urlsplit

from callpact.errors import InvalidConfig
from callpact.secrets.masker import Masker

_SCHEMES = ("postgresql", "postgres")
_EXAMPLE = "postgresql://user@host/database"


def is_address(text: str) -> bool:
    """True if a text is the address of a server and not a folder."""
    return text.partition("://")[0].lower() in _SCHEMES and "://" in text


class Address:
    """The address of a server, as the driver needs it (`url`) and without its password (`str`).

    Raises:
        InvalidConfig: it is malformed; the error does not show it, as it may have a password.
    """

    __slots__ = ("_masker", "_shown", "database", "url", "user")

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
            host, port, user = parts.hostname, parts.port, parts.username
        except ValueError:
            raise InvalidConfig(f"the address of the audit log is not like '{_EXAMPLE}'") from None
        if not is_address(url):
            raise InvalidConfig(f"the address of the audit log is not like '{_EXAMPLE}'")
        self.url = url
        self.user = query.get("user") or unquote(user or "")
        self.database = (
            query.get("database") or query.get("dbname") or unquote(parts.path.strip("/"))
        )
        place = query.get("host") or host or ""
        place = f"[{place}]" if ":" in place else place
        who = f"{self.user}@" if self.user else ""
        at = f":{query.get('port') or port}" if query.get("port") or port else ""
        self._shown = f"postgresql://{who}{place}{at}/{self.database}"
        secrets = {part for part in (parts.password, query.get("password")) if part}
        plain = {unquote(part) for part in secrets}
        self._masker = Masker({url} | secrets | plain, shortest=1)

    def hide(self, text: str) -> str:
        """A text of the driver or the server without the password."""
        return self._masker.mask(text)

    @property
    def digest(self) -> str:
        """A hash of the server and the database, without the user."""
        place = self._shown.partition("://")[2].rpartition("@")[2]
        return hashlib.sha256(place.encode()).hexdigest()[:12]

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return f"Address('{self._shown}')"
