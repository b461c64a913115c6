"""How an MCP server is reached: from a reference, a table, or the `mcpServers` file of a client.

Pure: nothing is started or connected here. `${NAME}` and `${env:NAME}` in arguments, environment,
address and headers are replaced by keys that the source was granted.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from callpact.errors import InvalidConfig, InvalidInput, SourceRefused
from callpact.net import Request, check_request
from callpact.net.address import Refused, place_of
from callpact.net.host_patterns import HostPatterns
from callpact.schema import is_array, is_object
from callpact.secrets.keys import Secrets
from callpact.sources.credentials import CallerCredential, OAuthClient, check_credentials

MAX_CONFIG_BYTES = 1_000_000
"""Size of a file with `mcpServers`."""
MAX_SERVERS = 100
"""Servers in one such file."""
CALL_SECONDS = 60.0
"""Seconds that one request to a server may take, unless its call has less time left."""
CONNECT_SECONDS = 30.0
"""Seconds until a server has started and answered the first request."""
CONCURRENCY = 32
"""Requests under way at one server; more wait."""

_PLACEHOLDER = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_NOT_NAMESPACE = re.compile(r"[^A-Za-z0-9_-]+")
_INHERITED = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")


class ServerSettings(Struct, frozen=True, kw_only=True):
    """One server: a command for stdio, or an address for Streamable HTTP."""

    name: str
    """The namespace of its tools."""
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    """Variables that the process gets beside the few that every program needs."""
    folder: Path | None = None
    url: str = ""
    headers: Mapping[str, str] = {}
    hosts: tuple[str, ...] = ()
    """Private addresses that may be reached, by name."""
    callers: tuple[CallerCredential, ...] = ()
    """Credentials of single callers; `headers` are then sent with lists alone."""
    oauth: OAuthClient | None = None
    secrets: tuple[str, ...] = ()
    """The keys in its command, variables, address and headers; they are masked in answers."""
    auth: Any = None
    """An `httpx2.Auth` for every request to the address, such as an OAuth client of the SDK."""
    call_seconds: float = CALL_SECONDS
    connect_seconds: float = CONNECT_SECONDS
    concurrency: int = CONCURRENCY

    @property
    def is_per_caller(self) -> bool:
        """True if every caller needs a credential."""
        return bool(self.callers) or (self.oauth is not None and self.oauth.exchange is not None)

    @property
    def place(self) -> str:
        """The server as messages show it: never its arguments, credentials or query."""
        if self.command:
            return f"mcp:{Path(self.command[0]).name}"
        return f"mcp:{_shown_url(self.url)}"


def settings_of(
    where: str, *, namespace: str | None = None, folder: Path | None = None
) -> ServerSettings:
    """Read a reference: `https://host/mcp`, or a command line such as `uvx mcp-server-time`.

    Raises:
        SourceRefused: it is neither.
    """
    text = where.strip()
    if re.match(r"https?://", text, re.IGNORECASE):
        host = _shown_url(text).partition("://")[2].partition("/")[0].partition(":")[0]
        return ServerSettings(name=namespace or namespace_of(host), url=text)
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise SourceRefused(f"mcp:{text[:80]}: not a command line ({error})") from None
    if not command:
        raise SourceRefused("mcp: needs a command or an address, as in mcp:https://host/mcp")
    name = namespace or namespace_of(_program(command))
    return ServerSettings(name=name, command=command, folder=folder)


def _program(command: tuple[str, ...]) -> str:
    """The part of a command line that names the server: not the runner, not an option."""
    runners = {"npx", "uvx", "node", "python", "python3", "bunx", "docker", "run", "exec", "-m"}
    names = [part for part in command if part not in runners and not part.startswith("-")]
    last = Path((names or list(command))[0]).name
    return re.sub(r"@[\w.-]+\Z", "", last).removesuffix(".py").removesuffix(".js")


def read_servers(path: Path) -> tuple[ServerSettings, ...]:
    """Read the `mcpServers` (Claude, Cursor) or `servers` (VS Code) of a client's file.

    A server that is marked `disabled` is left out.

    Raises:
        InvalidConfig: with the file, the key, what was expected and what came.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read ({error.strerror})") from None
    if len(data) > MAX_CONFIG_BYTES:
        raise InvalidConfig(f"{path}: larger than {MAX_CONFIG_BYTES:,} bytes")
    try:
        read = json.loads(data)
    except ValueError as error:
        raise InvalidConfig(f"{path}: not JSON ({error})") from None
    return settings_from(read, str(path), folder=path.parent)


def settings_from(
    read: object, place: str, *, folder: Path | None = None
) -> tuple[ServerSettings, ...]:
    """Read the servers of a client's configuration that is in memory.

    Raises:
        InvalidConfig: with the key, what was expected and what came.
    """
    tables = read if is_object(read) else {}
    nested = tables.get("mcp")
    if is_object(nested):  # VS Code's settings.json.
        tables = nested
    servers = tables.get("mcpServers", tables.get("servers"))
    if not is_object(servers) or not servers:
        raise InvalidConfig(f"{place}: expected an object 'mcpServers' that names servers")
    if len(servers) > MAX_SERVERS:
        raise InvalidConfig(f"{place}: has {len(servers):,} servers, the limit is {MAX_SERVERS}")
    return tuple(_each(servers, place, folder))


def _each(servers: Mapping[str, Any], place: str, folder: Path | None) -> Iterator[ServerSettings]:
    taken: dict[str, str] = {}
    for name, table in servers.items():
        where = f"{place}: {name}"
        if not is_object(table):
            raise InvalidConfig(f"{where}: expected an object with 'command' or 'url'")
        if table.get("disabled") is True:
            continue
        namespace = namespace_of(name)
        if namespace in taken:
            raise InvalidConfig(f"{where}: has the namespace of '{taken[namespace]}', {namespace}")
        taken[namespace] = name
        yield _server(table, where, namespace, folder)


def _server(table: Mapping[str, Any], where: str, name: str, folder: Path | None) -> ServerSettings:
    command, url = table.get("command"), table.get("url", table.get("serverUrl"))
    if (command is None) == (url is None):
        raise InvalidConfig(f"{where}: expected either 'command' or 'url'")
    if url is not None:
        if not isinstance(url, str) or not re.match(r"https?://", url, re.IGNORECASE):
            raise InvalidConfig(f"{where}: 'url' must be an http address, got {url!r:.100}")
        return ServerSettings(name=name, url=url, headers=_texts(table, "headers", where))
    arguments = table.get("args", [])
    if not isinstance(command, str) or not command:
        raise InvalidConfig(f"{where}: 'command' must be a text, got {command!r:.100}")
    if not is_array(arguments) or not all(isinstance(each, str) for each in arguments):
        raise InvalidConfig(f"{where}: 'args' must be a list of texts, got {arguments!r:.100}")
    cwd = table.get("cwd")
    return ServerSettings(
        name=name,
        command=(command, *cast("list[str]", arguments)),
        env=_texts(table, "env", where),
        folder=Path(cwd) if isinstance(cwd, str) else folder,
    )


def _texts(table: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    given = table.get(key, {})
    if not is_object(given) or not all(isinstance(each, str) for each in given.values()):
        raise InvalidConfig(f"{where}: '{key}' must be an object of texts")
    return dict(given)


def with_keys(
    settings: ServerSettings, secrets: Secrets | None, keys: Iterable[str] = ()
) -> ServerSettings:
    """Put granted keys into the places that name them.

    An entry `NAME@host` of `keys` binds a key to a host: the server's, or the token endpoint's for
    the secret of an OAuth client.

    Raises:
        SourceRefused: a key is not set, not granted, or bound to another host; or a header would
            not stay one line.
        InvalidConfig: the credentials contradict one another.
    """
    used: list[str] = []
    hosts: dict[str, list[str]] = {}
    for name, _, host in (entry.partition("@") for entry in keys if "@" in entry):
        hosts.setdefault(name, []).append(host)

    def filled(text: str) -> str:
        return _PLACEHOLDER.sub(value, text)

    def value(found: re.Match[str]) -> str:
        known = None if secrets is None else secrets.get(found[1])
        if known is not None:
            if settings.url and not is_bound_to(hosts.get(found[1], ()), settings.url):
                raise SourceRefused(
                    f"{settings.place}: wants the key {found[1]}, which is for "
                    f"{', '.join(hosts[found[1]])} alone"
                )
            used.append(known)
            return known
        standing = "unset" if secrets is None else secrets.standing(found[1])
        if standing == "ungranted":
            raise SourceRefused(
                f"{settings.place}: wants the key {found[1]}, which is set but not granted; "
                f'write keys = ["{found[1]}"] in the table of this source, or --key {found[1]}'
            )
        raise SourceRefused(
            f"{settings.place}: wants the key {found[1]}, which is not set; put it into the secrets "
            f"file, or into the environment and grant it with --key {found[1]}"
        )

    def headers_of(given: Mapping[str, str]) -> dict[str, str]:
        made = {name: filled(text) for name, text in given.items()}
        try:
            check_request(Request("GET", "", made))
        except InvalidInput as error:
            raise SourceRefused(f"{settings.place}: {error.message}") from None
        return made

    def caller_of(each: CallerCredential) -> CallerCredential:
        used.clear()
        return replace(each, headers=headers_of(each.headers), secrets=tuple(used))

    callers = tuple(map(caller_of, settings.callers))
    used.clear()
    oauth = settings.oauth
    if oauth is not None and (named := _PLACEHOLDER.fullmatch(oauth.client_secret or "")):
        secret_hosts = tuple(hosts.pop(named[1], ()))  # Checked where it is sent.
        oauth = replace(oauth, client_secret=value(named), secret_hosts=secret_hosts)
    if settings.command and (callers or oauth is not None):
        raise SourceRefused(
            f"{settings.place}: callers and oauth are for servers over HTTP; a process has one set "
            "of variables for all its callers"
        )
    check_credentials(callers, oauth)
    return replace(
        settings,
        command=tuple(map(filled, settings.command)),
        env={name: filled(text) for name, text in settings.env.items()},
        url=filled(settings.url),
        headers=headers_of(settings.headers),
        callers=callers,
        oauth=oauth,
        secrets=tuple(used),
    )


def is_bound_to(hosts: Collection[str], url: str) -> bool:
    """True if a key that is bound to these hosts, or to none, may be sent to a URL."""
    if not hosts:
        return True
    try:
        return HostPatterns(hosts, "keys").match(place_of(url))
    except Refused:
        return False


def environment(settings: ServerSettings) -> dict[str, str]:
    """The variables of a server's process: the few that every program needs, and its own."""
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**kept, **settings.env}


def namespace_of(name: str) -> str:
    """A namespace made of any name; dots would be parts of an id."""
    return _NOT_NAMESPACE.sub("_", name).strip("_") or "mcp"


def _shown_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    path = re.split(r"[?#]", rest[len(re.split(r"[/?#]", rest, maxsplit=1)[0]) :], maxsplit=1)[0]
    return f"{scheme}://{authority}{path}"
