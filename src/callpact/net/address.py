"""The hosts and addresses that a request may reach.

`place_of` parses a URL and refuses every spelling that disguises its host; `AddressRules` decides
which places and which addresses may be reached. Names are resolved elsewhere; the address that a
connection is made to is checked here.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from urllib.parse import quote

from msgspec import Struct

from callpact.errors import Failed, InvalidConfig

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?://([^/?#]*))?([^#]*)", re.DOTALL)
_LABELS = re.compile(r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
                     r"(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*\Z")  # fmt: skip
_ENDS_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\Z")
_LOCALHOST = re.compile(r"(?:.*\.)?localhost(?:\.localdomain|6)?\Z|ip6-(?:localhost|loopback)\Z")
_MAX_AUTHORITY = 300  # A name has 253 characters at most.
_PORTS = {"http": 80, "https": 443}
# Characters kept in a path or query; the rest is percent-encoded, as fetch does.
_AS_IS = "%/?:@!$&'()*+,;=-._~[]|^"

_RANGES: tuple[tuple[str, str], ...] = (
    ("an unspecified address", "0.0.0.0/8"),
    ("a private address", "10.0.0.0/8"),
    ("a shared address of a carrier", "100.64.0.0/10"),
    ("a loopback address", "127.0.0.0/8"),
    ("a link-local address", "169.254.0.0/16"),
    ("a private address", "172.16.0.0/12"),
    ("a reserved address", "192.0.0.0/24"),
    ("an address for documentation", "192.0.2.0/24"),
    ("a 6to4 relay", "192.88.99.0/24"),
    ("a private address", "192.168.0.0/16"),
    ("a reserved address", "198.18.0.0/15"),
    ("an address for documentation", "198.51.100.0/24"),
    ("an address for documentation", "203.0.113.0/24"),
    ("a multicast address", "224.0.0.0/4"),
    ("a reserved address", "240.0.0.0/4"),
    ("an unspecified address", "::/128"),
    ("a loopback address", "::1/128"),
    ("an IPv4 address in disguise", "::/96"),
    ("an IPv4 address in disguise", "::ffff:0:0/96"),
    ("an IPv4 address in disguise", "::ffff:0:0:0/96"),
    ("an IPv4 address behind NAT64", "64:ff9b::/96"),
    ("an IPv4 address behind NAT64", "64:ff9b:1::/48"),
    ("an IPv4 address behind Teredo", "2001::/32"),
    ("a reserved address", "2001::/23"),
    ("an address for documentation", "2001:db8::/32"),
    ("an IPv4 address behind 6to4", "2002::/16"),
    ("an address for documentation", "3fff::/20"),
    ("a private address", "fc00::/7"),
    ("a link-local address", "fe80::/10"),
    ("a private address", "fec0::/10"),
    ("a multicast address", "ff00::/8"),
)
_REFUSED = tuple((word, ip_network(text)) for word, text in _RANGES)
_GLOBAL_6 = IPv6Network("2000::/3")
_LOOPBACK = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))


class Refused(Exception):
    """A place that may not be reached, with the reason; `remedy` if it can be allowed."""

    def __init__(self, host: str, why: str, remedy: str = "") -> None:
        super().__init__(host, why, remedy)
        self.host = host
        self.why = why
        self.remedy = remedy

    def error(self) -> Failed:
        """The error for the caller: the host, never the URL or the resolved address."""
        if not self.host:
            return Failed("address_not_allowed", f"The URL cannot be used: {self.why}")
        message = f"'{self.host}' may not be reached: {self.why}{self.remedy}"
        return Failed("address_not_allowed", message, details={"host": self.host})


class Place(Struct, frozen=True):
    """The destination of a request: an origin, a path and a query."""

    scheme: str
    host: str
    port: int
    tail: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port; credentials are never sent to another origin."""
        return (self.scheme, self.host, self.port)

    @property
    def url(self) -> str:
        """The URL in its normal form."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.tail}"


def place_of(url: str) -> Place:
    """Parse a URL.

    Raises:
        Refused: it is not http or https, has user-info, or disguises its host.
    """
    match = _URL.match(url)
    if match is None:
        raise Refused("", "it is not absolute")
    scheme, authority, tail = match[1].lower(), match[2], match[3]
    if scheme not in _PORTS:
        raise Refused("", "it is neither http nor https")
    if not authority or len(authority) > _MAX_AUTHORITY:
        raise Refused("", "it names no host")
    host, port = _host_and_port(authority, _PORTS[scheme])
    if not tail.startswith("/"):
        tail = f"/{tail}"
    return Place(scheme, host, port, _encoded(tail))


def _encoded(tail: str) -> str:
    try:
        return quote(tail, safe=_AS_IS)
    except UnicodeEncodeError:
        raise Refused("", "it holds half a character") from None


@lru_cache(maxsize=1_024)
def _host_and_port(authority: str, default: int) -> tuple[str, int]:
    if "@" in authority:
        host = authority.rpartition("@")[2]
        raise Refused(_shown(host), "the URL holds a user name; send credentials in a header")
    match = re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{0,5}))?", authority)
    if match is None:
        raise Refused(_shown(authority), "the host or port of the URL cannot be read")
    host = normal_host(match[1])
    port = int(match[2]) if match[2] else default
    if not 0 < port < 65_536:
        raise Refused(host, f"{port} is not a port")
    return host, port


def normal_host(written: str) -> str:
    """The normal form of a host: lower case, ASCII, without brackets and final dot.

    Raises:
        Refused: the spelling disguises the host.
    """
    if written.startswith("["):
        try:
            # A zone (%eth0) names an interface of this machine, not a place.
            address = IPv6Address(written[1:-1] if "%" not in written else "")
        except ValueError:
            raise Refused(_shown(written), "the host is no IPv6 address") from None
        return str(address)
    host = written if written.isascii() else _ascii(written)
    host = host.lower().removesuffix(".")
    if _ENDS_IN_NUMBER.match(host):
        try:
            return str(IPv4Address(host))
        except ValueError:
            why = "the host is a number that is not written as an IPv4 address (1.2.3.4)"
            raise Refused(_shown(host), why) from None
    if not _LABELS.match(host):
        raise Refused(_shown(written), "the host is no name")
    return host


def _ascii(host: str) -> str:
    try:
        idna = importlib.import_module("idna")
        return idna.encode(host, uts46=True).decode("ascii")
    except (ImportError, UnicodeError):
        raise Refused(_shown(host), "the host is no international name") from None


def _shown(host: str) -> str:
    return host.encode("ascii", "backslashreplace").decode()[:80].translate(_VISIBLE)


_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(0x21), 0x7F)}


class AddressRules:
    """The hosts and addresses that may be reached: all public ones, and those named here.

    `hosts` are host names, `host:port`, addresses, `address:port` and ranges: `localhost:8123`,
    `db.internal`, `10.0.0.0/8`.

    Raises:
        InvalidConfig: an entry has another form.
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self.hosts = tuple(hosts)
        names: set[tuple[str, int | None]] = set()
        networks: list[tuple[Network, int | None]] = []
        for entry in self.hosts:
            named, port = _entry(entry)
            if isinstance(named, str):
                names.add((named, port))
            else:
                networks.append((named, port))
        self._names = frozenset(names)
        self._networks = tuple(networks)
        self._forbids = lru_cache(maxsize=4_096)(self._reason)

    def __repr__(self) -> str:
        return f"AddressRules({list(self.hosts)})"

    def with_hosts(self, hosts: Iterable[str]) -> AddressRules:
        """These rules with more hosts."""
        return AddressRules((*self.hosts, *hosts))

    def check_place(self, host: str, port: int) -> None:
        """Check a host before it is resolved: addresses, and names of this machine.

        Raises:
            Refused: it may not be reached.
        """
        address = _literal(host)
        if address is not None:
            self.check_address(host, port, address)
        elif (
            _LOCALHOST.match(host)
            and not self._is_named(host, port)
            and not any(
                network.version == loop.version and network.overlaps(loop)  # pyright: ignore[reportArgumentType] - versions are equal
                for network, _ in self._networks
                for loop in _LOOPBACK
            )
        ):
            raise _refused(host, port, "it names this machine")

    def check_address(self, host: str, port: int, address: str | Address) -> None:
        """Check an address of a host before the connection is made.

        Raises:
            Refused: it may not be reached.
        """
        word = self._forbids(host, port, str(address))
        if word:
            raise _refused(host, port, word)

    def _is_named(self, host: str, port: int) -> bool:
        return (host, port) in self._names or (host, None) in self._names

    def _reason(self, host: str, port: int, text: str) -> str | None:
        """The reason why an address may not be reached, or None."""
        if self._is_named(host, port):
            return None
        address = ip_address(text.partition("%")[0])
        for network, only in self._networks:
            if address in network and only in {None, port}:
                return None
        word = kind_of(address)
        leads = "it is" if _literal(host) is not None else "it leads to"
        return f"{leads} {word}" if word else None


def kind_of(address: Address) -> str | None:
    """The kind of a special address; None for a public one."""
    for word, network in _REFUSED:
        if address in network:
            return word
    if isinstance(address, IPv6Address) and address not in _GLOBAL_6:
        return "a reserved address"
    return None


@lru_cache(maxsize=1_024)
def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_address(host: str) -> bool:
    """True if a host in its normal form is an address, not a name."""
    return _literal(host) is not None


def _refused(host: str, port: int, why: str) -> Refused:
    shown = f"[{host}]" if ":" in host else host
    return Refused(host, why, f'; if this is meant, allow it by name: hosts = ["{shown}:{port}"]')


def _entry(entry: str) -> tuple[str | Network, int | None]:
    expected = "expected a host (db.internal), host:port or a range (10.0.0.0/8)"
    if "://" in entry or "*" in entry or "@" in entry:
        raise InvalidConfig(f"hosts: '{_shown(entry)}' cannot be allowed: {expected}")
    try:
        if "/" in entry:
            return ip_network(entry), None
        if entry.count(":") > 1 and not entry.startswith("["):
            return ip_network(entry), None
        host, port = _host_and_port(entry, 0) if ":" in entry.rpartition("]")[2] else (
            normal_host(entry), None)  # fmt: skip
    except (ValueError, Refused) as error:
        why = error.why if isinstance(error, Refused) else str(error)
        raise InvalidConfig(
            f"hosts: '{_shown(entry)}' cannot be allowed ({why}): {expected}"
        ) from None
    address = _literal(host)
    return (ip_network(address) if address else host), port
