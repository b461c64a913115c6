"""Host patterns of settings: `api.example.com`, `*.example.com`, `api.example.com:8443`, `*`."""

from __future__ import annotations

from collections.abc import Iterable

from callpact.errors import InvalidConfig
from callpact.net.address import Place, Refused, is_address, normal_host

ANY_HOST = "*"
_EXPECTED = "expected a host (data.example.com), its subdomains (*.example.com), or one with a port"


class HostPatterns:
    """Matches places by host, and by port if the pattern has one.

    `*.example.com` matches subdomains at any depth, not `example.com` itself. `*` alone matches
    every host. Hosts are compared in the one spelling of `normal_host`.

    Raises:
        InvalidConfig: an entry is not of this form; `setting` is named in it.
    """

    def __init__(self, entries: Iterable[str], setting: str) -> None:
        self.entries = tuple(entries)
        self.matches_all = ANY_HOST in self.entries
        exact: set[tuple[str, int]] = set()
        suffixes: set[tuple[str, int]] = set()
        for entry in self.entries:
            if entry != ANY_HOST:
                host, port = _read(entry, setting)
                (suffixes if host.startswith(".") else exact).add((host, port))
        self._exact = frozenset(exact)
        self._suffixes = tuple(sorted(suffixes, key=str))

    def __repr__(self) -> str:
        return f"HostPatterns({list(self.entries)})"

    def match(self, place: Place, default_port: int | None = None) -> bool:
        """True if a pattern matches; one without a port matches any port, or the default one."""
        host, ports = place.host, {place.port}
        if default_port in {None, place.port}:
            ports.add(0)
        if self.matches_all or any((host, port) in self._exact for port in ports):
            return True
        return any(host.endswith(suffix) and port in ports for suffix, port in self._suffixes)


def _read(entry: str, setting: str) -> tuple[str, int]:
    """The host of an entry, with a dot before it if it is a pattern; the port, or 0 for none."""
    text = entry.removeprefix("*.")
    wrong = InvalidConfig(f"{setting}: '{entry}': {_EXPECTED}")
    name, colon, digits = text.rpartition(":") if _has_port(text) else (text, "", "")
    try:
        host = normal_host(name)
    except Refused:
        raise wrong from None
    port = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 5 else 0
    if colon and not 0 < port < 65_536:
        raise wrong
    if text == entry:
        return host, port
    if is_address(host) or "." not in host:
        raise InvalidConfig(
            f"{setting}: '*.{host}' is not a pattern of subdomains of one site: {_EXPECTED}; "
            "'*' alone allows all hosts"
        )
    return f".{host}", port


def _has_port(text: str) -> bool:
    return ":" in text.rpartition("]")[2]
