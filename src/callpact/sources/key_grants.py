"""Grants of keys to the files of a source, and the hosts that each key may be sent to.

The `keys` of a source grant names: `NAME` of the environment, `NAME@host` for these hosts alone,
`*` for every name. A key that no entry binds to hosts is sent to the root of the files that declare
it, if they all have the same one. Values come from `Secrets`; nothing is sent here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from callpact.errors import Failed, InvalidConfig
from callpact.net.address import Place, Refused, place_of
from callpact.net.host_patterns import HostPatterns
from callpact.secrets.keys import EVERY_KEY, Secrets
from callpact.tool import Disabled

MAX_NAMED_HOSTS = 5
"""Hosts that a message names, of those that files would send one key to."""

_TLS_PORT = 443
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?")


class UpstreamRoot(NamedTuple):
    """The destination of the requests of a file."""

    origin: tuple[str, str, int] | None
    """Scheme, host and port; None if the host is a template or there is no root."""
    host: str
    """The host, or the pattern `*.example.com` of a template; empty if it is unknown."""
    is_keyed: bool = False
    """True if the host is a template of keys only."""


def read_root(root: str, names: Iterable[str] = ()) -> UpstreamRoot:
    """Parse a `root`; `names` are those of the file's keys."""
    try:
        place = place_of(root)
    except Refused:
        return _read_template(root, names)
    return UpstreamRoot(place.origin, place.host)


def _read_template(root: str, names: Iterable[str]) -> UpstreamRoot:
    match = _AUTHORITY.match(root)
    if match is None:
        return UpstreamRoot(None, "")
    host = re.sub(r":[0-9]*\Z", "", match[1])
    for name in names:
        host = re.sub(rf"\{{\{{\s*(?:SERVER_PARAM:\s*)?{re.escape(name)}\s*\}}\}}", "\0", host)
    labels = host.split(".")
    is_keyed = all(_LABEL.fullmatch(label.replace("\0", "x")) for label in labels)
    known: list[str] = []
    while labels and _LABEL.fullmatch(labels[-1]):
        known.insert(0, labels.pop().lower())
    return UpstreamRoot(None, f"*.{'.'.join(known)}" if len(known) > 1 else "", is_keyed)


class KeyGrants:
    """The `keys` of one source.

    Raises:
        InvalidConfig: an entry is not `NAME`, `NAME@host` or `*`.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self.entries = tuple(keys)
        hosts: dict[str, list[str]] = {}
        for entry in self.entries:
            name, at, host = entry.partition("@")
            if entry != EVERY_KEY and not (_NAME.fullmatch(name) and bool(at) == bool(host)):
                raise InvalidConfig(
                    f"keys: '{entry}' is not a key: expected the name of a variable (SHOP_KEY), a "
                    "name with the host that it is for (SHOP_KEY@api.example.com), or * for all"
                )
            if at:
                hosts.setdefault(name, []).append(host)
        self._hosts = {name: HostPatterns(each, f"keys: {name}@") for name, each in hosts.items()}
        self.trusts_all = EVERY_KEY in self.entries

    def hosts(self, name: str) -> HostPatterns | None:
        """The hosts that a key is bound to; None if no entry binds it."""
        return self._hosts.get(name)

    def line(self, entry: str) -> str:
        """The configuration line and the option that grant one more key."""
        quoted = ", ".join(f'"{each}"' for each in dict.fromkeys((*self.entries, entry)))
        return f"`keys = [{quoted}]` in the table of its source, or `--key {entry}`"


class WantedKeys:
    """The keys that the files of a source declare, with the hosts of these files."""

    def __init__(self) -> None:
        self._hosts: dict[str, dict[str, None]] = {}

    def add(self, names: Iterable[str], root: UpstreamRoot) -> None:
        """Add the keys of one file."""
        for name in names:
            self._hosts.setdefault(name, {})[root.host] = None

    def hosts(self, name: str) -> Sequence[str]:
        """The hosts of all files that declare a key."""
        return tuple(self._hosts.get(name, ()))


class FileKeys:
    """The keys of one file: their values, and the hosts that each may be sent to."""

    def __init__(
        self,
        names: Collection[str],
        root: UpstreamRoot,
        secrets: Secrets,
        grants: KeyGrants,
        wanted: WantedKeys,
        *,
        has_hooks: bool,
    ) -> None:
        self.names = tuple(sorted(names))
        self.root = root
        self.secrets = secrets
        self._grants = grants
        self._wanted = wanted
        self._has_hooks = has_hooks

    def destinations(self) -> Mapping[str, str]:
        """The hosts that each key may be sent to, as text."""
        return {name: self._destination(name) for name in self.names}

    def _destination(self, name: str) -> str:
        hosts = self._grants.hosts(name)
        return ", ".join(hosts.entries) if hosts is not None else self.root.host or "nowhere"

    def disabled(self) -> Disabled | None:
        """The reason why the tools of the file cannot be called for lack of a key, or None."""
        for name in self.names:
            reason = self._hindrance(name)
            if reason is not None:
                return Disabled("server_param_missing", reason)
        return None

    def value(self, name: str) -> str:
        """The value of a key that the file declares.

        Raises:
            Failed: `handler_error` for a key of another file, `server_param_missing` for one that
                is not set or not granted; never with a value.
        """
        if name not in self.names:
            words = f"the key '{name}' is not among the file's requiredServerParams"
            raise Failed("handler_error", words, details={"name": name})
        reason = self._hindrance(name)
        value = self.secrets.get(name)
        if value is None or reason is not None:
            raise Failed("server_param_missing", reason or "", details={"name": name})
        return value

    def check(self, names: Iterable[str], place: Place) -> None:
        """Refuse to send keys to a place that they are not bound to.

        Raises:
            Failed: `address_not_allowed`, with the line that allows it.
        """
        for name in names:
            if not self._may_reach(name, place):
                raise self._refused(name, place)

    def _refused(self, name: str, place: Place) -> Failed:
        words = (
            f"'{place.host}': a key may not be sent there: {name} is for {self._destination(name)}"
        )
        if place.scheme == "https":
            words += f"; to allow it, write {self._grants.line(f'{name}@{_written(place)}')}"
        else:
            words += ", and for https alone"
        return Failed("address_not_allowed", words, details={"host": place.host})

    def allows(self, names: Collection[str], place: Place) -> bool:
        """True if an entry of `keys` names the place for each of these keys."""
        bound = [self._grants.hosts(name) for name in names]
        return bool(bound) and all(each is not None and each.match(place) for each in bound)

    def _may_reach(self, name: str, place: Place) -> bool:
        root, hosts = self.root, self._grants.hosts(name)
        if hosts is not None:
            if place.origin == root.origin:
                return hosts.match(place)
            return place.scheme == "https" and hosts.match(place, _TLS_PORT)
        if root.origin is not None:
            return place.origin == root.origin
        return root.is_keyed and HostPatterns([root.host or "*"], "root").match(place, _TLS_PORT)

    def _hindrance(self, name: str) -> str | None:
        """The reason why the file cannot send a key, with the remedy."""
        grants, root = self._grants, self.root
        standing = self.secrets.standing(name)
        if standing == "withheld":
            return f"The key {name} is a token of [serve], which no source is given"
        if standing == "unset":
            return (
                f"The key {name} is not set: put it into the secrets file, or into the environment "
                f"and grant it: {grants.line(name)}"
            )
        if standing == "ungranted":
            return (
                f"The key {name} is set, but not granted: {grants.line(name)} sends it to "
                f"{self._destination(name)}"
            )
        hosts = grants.hosts(name)
        if hosts is None and root.origin is None and not root.is_keyed:
            entry = f"{name}@{root.host or 'HOST'}"
            return (
                f"The key {name} has no host yet, as `root` of the file does not name one: "
                f"{grants.line(entry)}"
            )
        hosts_of_files = self._wanted.hosts(name)
        if hosts is None and not grants.trusts_all and len(hosts_of_files) > 1:
            named = ", ".join(sorted(hosts_of_files)[:MAX_NAMED_HOSTS])
            return (
                f"The key {name} is asked for with different hosts ({named}); name those that may "
                f"have it: {grants.line(f'{name}@{root.host}')}"
            )
        if hosts is not None and not self._has_hooks and root.origin is not None:
            place = Place(*root.origin, "/")
            if not self._may_reach(name, place):
                return (
                    f"The key {name} is for {self._destination(name)}, not for '{place.host}': "
                    f"{grants.line(f'{name}@{_written(place)}')}"
                )
        return None


def _written(place: Place) -> str:
    """A place in the form of an entry of `keys`."""
    host = f"[{place.host}]" if ":" in place.host else place.host
    return host if place.port == _TLS_PORT else f"{host}:{place.port}"
