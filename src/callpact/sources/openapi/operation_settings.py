"""The settings of an OpenAPI source that its requests depend on, with the tokens that they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from callpact.net.oauth_token import TokenCache
from callpact.secrets.keys import Secrets
from callpact.sources.base import Opening
from callpact.sources.key_grants import FileKeys, KeyGrants, UpstreamRoot, WantedKeys, read_root
from callpact.sources.openapi.pagination import Pagination, read_pagination
from callpact.sources.openapi.scheme_credentials import Credential, key_names, read_credentials


@dataclass(frozen=True, kw_only=True)
class OperationSettings:
    """The settings of one source for all of its operations; made once, as it keeps tokens.

    Raises:
        InvalidConfig: an entry of `keys` is not a key.
    """

    table: str = "NAME"
    """The name of the source in the configuration, for messages."""
    server: str | None = None
    """The root that requests go to instead of the document's servers."""
    servers: tuple[str, ...] = ()
    """All servers of the operations: a key that no host is named for must have one server."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of every request, which no argument replaces; `${NAME}` is a granted key."""
    credentials: Mapping[str, Credential] = field(default_factory=dict[str, Credential])
    """Credentials by the name of their security scheme."""
    secrets: Secrets = field(default_factory=Secrets)
    keys: tuple[str, ...] = ()
    """The granted keys, some of them bound to hosts: `SHOP_KEY@api.shop.example`."""
    pagination: tuple[Pagination, ...] = ()
    """Rules for merging pages; without one, a call fetches one page."""
    tokens: TokenCache = field(default_factory=TokenCache, compare=False)

    def __post_init__(self) -> None:
        _ = self.grants

    @cached_property
    def grants(self) -> KeyGrants:
        """The parsed `keys`."""
        return KeyGrants(self.keys)

    @cached_property
    def fixed_headers(self) -> Mapping[str, str]:
        """The headers that hold no key."""
        return {name: text for name, text in self.headers.items() if not key_names([text])}

    @cached_property
    def keyed_headers(self) -> Mapping[str, str]:
        """The headers that hold keys."""
        return {name: text for name, text in self.headers.items() if key_names([text])}

    @cached_property
    def _wanted(self) -> WantedKeys:
        """The hosts of all servers, for each key that goes to a server."""
        names = key_names(self.headers.values())
        for credential in self.credentials.values():
            if credential.client_id is None:
                names += credential.names
        wanted = WantedKeys()
        for server in (self.server,) if self.server is not None else self.servers:
            wanted.add(names, read_root(server))
        return wanted

    def server_keys(self, names: tuple[str, ...], root: UpstreamRoot) -> FileKeys:
        """Keys that go to a server, or to the hosts that `keys` binds them to."""
        return FileKeys(names, root, self.secrets, self.grants, self._wanted, has_hooks=False)

    def client_keys(self, names: tuple[str, ...], root: UpstreamRoot) -> FileKeys:
        """Keys of a client that go to a token endpoint, or to the hosts that they are bound to."""
        return FileKeys(names, root, self.secrets, self.grants, WantedKeys(), has_hooks=True)


def settings_from(
    opening: Opening, *, server: str | None = None, servers: Iterable[str] = ()
) -> OperationSettings:
    """The settings of a source that was opened; `servers` are those of its operations.

    Raises:
        InvalidConfig: `security`, `pagination` or `keys` cannot be used.
    """
    return OperationSettings(
        table=opening.namespace or "NAME",
        server=server,
        servers=tuple(dict.fromkeys(servers)),
        headers=opening.headers,
        credentials=read_credentials(opening.security),
        secrets=opening.secrets or Secrets(),
        keys=opening.keys,
        pagination=read_pagination(list(opening.pagination)),
    )
