"""The tables of `callpact.toml`, checked by pydantic, and how the file is read.

It takes time to import: only for a command that reads a file, or asks for a table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator

from callpact.sandbox.hook_limits import MAX_HOOK_TIMEOUT
from callpact.schema.bounds import MAX_DEPTH_SETTING, MAX_SCHEMA_VALUES, MAX_VALUE_DEPTH
from callpact.sources.base import PinMode
from callpact.sources.credentials import Exchange
from callpact.sources.curate_file import (
    MODEL,
    CurationTable,
    Place,
    RulesConfig,
    ToolConfig,
    invalid_file,
    read_toml,
)
from callpact.tool import Policy

MAX_BYTES = 1_000_000
"""Size of a configuration file."""


class CallerConfig(BaseModel):
    """One `[[sources.NAME.callers]]` table; the fields are those of `sources.credentials`."""

    model_config = MODEL

    id: str | None = Field(None, min_length=1, description="The id of the caller")
    scope: str | None = Field(None, min_length=1, description="A scope that the caller holds")
    headers: dict[str, str] = Field(
        min_length=1,
        description="Headers that are sent for this caller, and no others; `${NAME}` is a granted key",
    )


class OAuthClientConfig(BaseModel):
    """The `[sources.NAME.oauth]` table; the fields are those of `sources.credentials.OAuthClient`."""

    model_config = MODEL

    client_id: str = Field(min_length=1, description="The id of the client at the issuer")
    client_secret: str | None = Field(
        None,
        pattern=r"^\$\{(env:)?[A-Za-z_][A-Za-z0-9_]*\}$",
        description="Its secret, as `${NAME}` of a granted key; never the secret itself",
    )
    client_auth: Literal["basic", "post"] = Field(
        "basic",
        description="Where the secret is sent: in a header (`basic`) or in the body (`post`)",
    )
    token_url: str | None = Field(
        None, description="The token endpoint; by default from the metadata of the issuer"
    )
    issuer: str | None = Field(
        None, description="The issuer; by default the one that the server names in its metadata"
    )
    scopes: list[str] = Field([], description="Scopes that are requested")
    audience: str | None = Field(
        None, description="`audience` of the request, beside `resource`, the address of the server"
    )
    exchange: Exchange | None = Field(
        None,
        description="A token for each caller by token exchange (RFC 8693): for the caller's `id`, or "
        "for the caller's own `token` of the issuer in `[serve.oauth]`; without it, one token for all",
    )
    subject_token_type: str | None = Field(
        None,
        description="Type of the subject of an exchange; by default an access token",
    )


class SourceConfig(CurationTable):
    """One `[sources.NAME]` table."""

    ref: str = Field(
        description="Where the tools are: `python:shop.py`, `python:package.module`, "
        "`flowmcp:catalogue/`, `openapi:shop.yaml`, `openapi:https://shop.example/openapi.json`"
    )
    policy: Policy | None = Field(None, description="Output policy of all its tools")
    curate: str | None = Field(
        None,
        description="File with `allow`, `deny`, `select`, `exclude`, `namespace` and `tools` of "
        "this table; by default `NAME.curate.toml` beside this file, if there is one",
    )
    timeout: float | None = Field(
        None, gt=0, le=3600, description="Seconds that a call of its tools may take"
    )
    secrets: str | None = Field(
        None, description="File of keys (dotenv) for its upstreams; it is granted all of them"
    )
    keys: list[str] = Field(
        [],
        description="Keys that it is granted, of the environment and of a secrets file that "
        "several sources share: `NAME`, `NAME@host` to bind one to a host or to `*.site.com`; `*` "
        "for a catalogue that you trust with all",
    )
    hosts: list[str] = Field(
        [], description="Private addresses that its tools may reach: hosts, `host:port` or ranges"
    )
    headers: dict[str, str] = Field(
        {},
        description="MCP, OpenAPI: headers that are sent to the server; `${NAME}` is a granted key",
    )
    security: dict[str, Any] = Field(
        {},
        description="OpenAPI: credentials by the name of the security scheme: a text with `${NAME}` "
        "of a granted key, or a table (see [credentials](../guides/openapi.md#credentials))",
    )
    pagination: list[dict[str, Any]] = Field(
        [],
        description="OpenAPI: rules for merging the pages of lists (see "
        "[pages](../guides/openapi.md#pages)); without one, a call fetches one page",
    )
    env: dict[str, str] = Field(
        {}, description="MCP: variables of the server's process; `${NAME}` is a granted key"
    )
    callers: list[CallerConfig] = Field(
        [],
        description="MCP over HTTP: credentials of single callers, the first that fits; `headers` are "
        "then sent with lists alone, and callers without a credential are refused",
    )
    oauth: OAuthClientConfig | None = Field(
        None, description="MCP over HTTP: the OAuth client that gets tokens for the server"
    )
    pins: PinMode = Field(
        "warn",
        description="MCP: whether a definition that differs from its pin in `callpact.lock` is a "
        "warning, disables its tool (`block`), or is ignored (`off`)",
    )
    server: str | None = Field(
        None,
        pattern=r"^https?://[^\s]+$",
        description="OpenAPI: the root that requests go to, instead of the document's servers",
    )
    ref_hosts: list[str] = Field(
        [],
        description="OpenAPI: hosts that the document may refer to files of, as `schemas.site.com` "
        "or `*.site.com`; none by default",
    )
    profile: Literal["strict", "compat"] | None = Field(
        None, description="FlowMCP: strict as the specification, or compatible with real files"
    )
    lists: str | None = Field(None, description="FlowMCP: folder of shared lists")
    libraries: list[str] = Field(
        [], description="FlowMCP: libraries that hooks may use besides the six; `*` for all"
    )
    hook_hosts: list[str] = Field(
        [],
        description="FlowMCP: hosts that hooks may reach besides their file's own, as "
        "`data.site.com`, `*.site.com` or with a port; `*` for all",
    )
    hook_timeout: float | None = Field(
        None,
        gt=0,
        le=MAX_HOOK_TIMEOUT,
        description="FlowMCP: seconds that the code of one hook call may run, at most 60; "
        "1 by default",
    )


class TokenConfig(BaseModel):
    """One `[serve.tokens.NAME]` table."""

    model_config = MODEL

    secret: str = Field(
        description="Name of the variable of the environment, or of the secrets file, that holds "
        "the token; never the token itself"
    )
    id: str | None = Field(None, description="The caller's id; by default the name of the token")
    scopes: list[str] = Field([], description="Scopes that the caller holds")
    resources: dict[str, list[str]] = Field(
        {}, description='What the caller may do to which resources, as `"project:42" = ["read"]`'
    )


class OAuthConfig(BaseModel):
    """The `[serve.oauth]` table; the fields are those of `serve.oauth.OAuth`."""

    model_config = MODEL

    issuer: str = Field(description="The issuer of the tokens (JWT): exactly their `iss`")
    audience: str = Field(
        description="The audience: exactly their `aud`, usually the address of this server"
    )
    resource: str | None = Field(
        None, description="The address of this server, where the audience is something else"
    )
    jwks_uri: str | None = Field(
        None, description="Address of the issuer's keys; by default from its metadata"
    )
    algorithms: list[str] | None = Field(
        None, description="Accepted signature algorithms; by default all without a shared secret"
    )
    required_scopes: list[str] = Field([], description="Scopes that every caller needs")
    scopes: list[str] = Field([], description="Other scopes that clients may request")
    hosts: list[str] = Field(
        [], description="Private addresses that may be reached for the issuer's keys"
    )


class ServeConfig(BaseModel):
    """The `[serve]` table; options of `callpact serve` take precedence."""

    model_config = MODEL

    stdio: bool = Field(False, description="Speak MCP on standard input and output, not over HTTP")
    host: str = Field(
        "127.0.0.1", description="Address for HTTP; the default is for this machine only"
    )
    port: int = Field(8420, ge=0, le=65_535, description="The port for HTTP; 0 for any free one")
    workers: int = Field(
        1, ge=1, le=64, description="Processes that serve HTTP behind the one port"
    )
    path: str = Field("/mcp", description="The path for HTTP")
    package: str | None = Field(
        None,
        description="Serve the tools under a published version of their contracts, as `shop@^1`; "
        "the newest one of a range is followed",
    )
    packages: str = Field("contracts", description="The folder of published packages")
    draft: bool = Field(
        False,
        description="Whether the contracts of the sources are served too, at `PATH/draft`, beside "
        "a package over HTTP",
    )
    name: str = Field("callpact", min_length=1, description="The server's name for its clients")
    version: str | None = Field(
        None, description="The server's version for its clients; by default that of callpact"
    )
    instructions: str | None = Field(
        None, description="What clients tell their model about the server as a whole"
    )
    list_up_to: int = Field(
        200,
        ge=0,
        description="With more tools than this, three tools that search, describe and call them "
        "are listed",
    )
    advertise: Literal["full", "declared", "relaxed", "top", "none"] = Field(
        "full", description="How much of output schemas the list of tools shows"
    )
    result_limit: int = Field(
        100_000, ge=1_000, description="Bytes above which a result comes in pages of whole items"
    )
    ask_first: bool = Field(
        False, description="Whether the user is asked before a destructive tool runs"
    )
    watch: bool = Field(False, description="Whether changed sources are read again while serving")
    metrics: bool = Field(
        False, description="Whether metrics for Prometheus are at /metrics, over HTTP"
    )
    scopes: list[str] = Field(
        [], description="Scopes that the client holds; without authentication only"
    )
    hosts: list[str] = Field(
        [], description="Host names of the server for its clients, besides this machine's"
    )
    trust_network: bool = Field(
        False,
        description="Whether everybody who reaches the server may call its tools: it needs no "
        "authentication beyond this machine, only `hosts`",
    )
    origins: list[str] = Field(
        [], description="Web pages that may call it, as `https://app.example.com`"
    )
    as_: Literal["mcp", "flowmcp"] = Field(
        "mcp",
        alias="as",
        description="The form of results: MCP's own, or FlowMCP's `{status, messages, data}`",
    )
    rest: bool = Field(
        True, description="Whether each tool is also a plain HTTP endpoint, beside MCP"
    )
    calls_per_tool: int = Field(
        1_000, ge=1, description="Calls of one tool that run at one time over HTTP"
    )
    calls_per_caller: int = Field(
        1_000, ge=1, description="Calls of one caller that run at one time over HTTP"
    )
    tokens: dict[str, TokenConfig] = Field({}, description="Tokens of callers, by name")
    oauth: OAuthConfig | None = Field(None, description="An issuer whose tokens are accepted")


class AuditConfig(BaseModel):
    """The `[audit]` table."""

    model_config = MODEL

    enabled: bool = Field(True, description="Whether calls are recorded")
    folder: str | None = Field(None, description="Its folder; by default the user's data folder")
    store: str | None = Field(
        None,
        description="A PostgreSQL server for the records, as `postgresql://user@host/database`; the "
        "password is taken from `PGPASSWORD` or `~/.pgpass`",
    )
    hashes_only: list[str] = Field(
        [], description="Patterns of the tools of whose inputs and outputs only hashes are kept"
    )
    durability: Literal["write", "fsync"] = Field(
        "write", description="`fsync`: records survive a loss of power, not only of the process"
    )
    keep_days: float = Field(90, gt=0, le=36_500, description="Days that records are kept")
    keep_megabytes: float | None = Field(
        None, gt=0, description="Size of the store above which the oldest records are removed"
    )
    on_loss: Literal["answer", "refuse"] = Field(
        "answer",
        description="The outcome of a call whose record cannot be written; `refuse`: it gets the "
        "error `not_recorded`, and later calls are refused before they run",
    )

    @field_validator("store")
    @classmethod
    def _is_address(cls, store: str | None) -> str | None:
        from callpact.audit.store.postgres_address import is_address

        if store is not None and not is_address(store):
            raise ValueError("must be like `postgresql://user@host/database`")
        return store


class LimitsConfig(BaseModel):
    """The `[limits]` table; the fields are those of `schema.SchemaLimits`."""

    model_config = MODEL

    value_depth: int = Field(
        MAX_VALUE_DEPTH,
        ge=1,
        le=MAX_DEPTH_SETTING,
        description="Levels of JSON that an input or an output may nest",
    )
    schema_values: int = Field(
        MAX_SCHEMA_VALUES, ge=1, description="Values that one schema may hold, as in an enum"
    )


class Config(BaseModel):
    """The whole file."""

    model_config = MODEL

    sources: dict[str, SourceConfig] = Field(
        {}, description="Sources by name; the name is the namespace where a source has none"
    )
    serve: ServeConfig = Field(
        default_factory=ServeConfig.model_construct, description="How the tools are served"
    )
    audit: AuditConfig = Field(
        default_factory=AuditConfig.model_construct,
        description="The audit log; an address is short for a table with this `store`",
    )
    limits: LimitsConfig = Field(
        default_factory=LimitsConfig.model_construct,
        description="Limits of values and schemas in this process",
    )
    secrets: str | None = Field(
        None,
        description="File of keys (dotenv) for sources without one of their own; where there are "
        "several, each is granted those in its `keys`",
    )
    libraries: list[str] = Field([], description="FlowMCP: libraries allowed for all sources")
    hook_timeout: float | None = Field(
        None,
        gt=0,
        le=MAX_HOOK_TIMEOUT,
        description="FlowMCP: `hook_timeout` of all sources that set none",
    )
    upstreams: dict[str, str] = Field(
        {},
        description='Addresses to replace, as `"https://api.x.com" = "http://localhost:9"`',
    )

    @field_validator("audit", mode="before")
    @classmethod
    def _table_of(cls, audit: object) -> object:
        """`audit = "postgresql://…"` is short for a table."""
        return {"store": audit} if isinstance(audit, str) else audit


def read_config(path: Path) -> Config:
    """Read a configuration file.

    Raises:
        InvalidConfig: with the file, the key, the expected and the actual value.
    """
    try:
        return Config.model_validate(read_toml(path, MAX_BYTES))
    except ValidationError as error:
        raise invalid_file(path, error, _model_at, _is_secret) from None


def _is_secret(place: Place) -> bool:
    """True if a value may be a token, or an address with a password."""
    is_credential = bool({"callers", "oauth", "security"} & set(place[2:3]))
    return is_credential or place[:2] in {("serve", "tokens"), ("audit",), ("audit", "store")}


def _model_at(place: Place) -> type[BaseModel]:
    """The model of the table at a place of the file."""
    match place:
        case ("sources", _):
            return SourceConfig
        case ("sources", _, "tools", _):
            return ToolConfig
        case ("sources", _, "callers", _):
            return CallerConfig
        case ("sources", _, "oauth"):
            return OAuthClientConfig
        case ("sources", _, "select" | "exclude"):
            return RulesConfig
        case ("audit",):
            return AuditConfig
        case ("limits",):
            return LimitsConfig
        case ("serve",):
            return ServeConfig
        case ("serve", "tokens", _):
            return TokenConfig
        case ("serve", "oauth"):
            return OAuthConfig
        case _:
            return Config
