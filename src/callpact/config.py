"""The configuration file `callpact.toml`: which sources, under which policy.

[sources.shop]
ref = "python:shop.py"
policy = "reject"
allow = ["shop.*"]
deny = ["shop.delete_*"]
timeout = 10

[sources.shop.tools.price]
name = "get_price"
hidden = { currency = "EUR" }
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from callpact.errors import InvalidConfig
from callpact.schema.bounds import SchemaLimits, set_schema_limits
from callpact.sources.base import Opening, nearest_name
from callpact.sources.credentials import CallerCredential, OAuthClient
from callpact.sources.curation import Curation
from callpact.sources.parts import WantedSource, is_python

if TYPE_CHECKING:
    from callpact.audit.journal.recorder import OnLoss
    from callpact.audit.journal.segments import Durability
    from callpact.config_file import Config, SourceConfig

DEFAULT_FILE = "callpact.toml"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The settings of the audit log; the keys are those of `config_file.AuditConfig`.

    They need no pydantic, as every command that calls tools reads them.
    """

    enabled: bool = True
    folder: str | None = None
    store: str | None = None
    hashes_only: Iterable[str] = ()
    durability: Durability = "write"
    keep_days: float = 90
    keep_megabytes: float | None = None
    on_loss: OnLoss = "answer"


def hold_limits(config: Config) -> None:
    """Apply the limits of a file to the process, before anything is loaded."""
    given = config.limits
    limits = SchemaLimits(value_depth=given.value_depth, schema_values=given.schema_values)
    set_schema_limits(limits)


@dataclasses.dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration in use: its tables, and the file that they were read from."""

    read: Config | None = None
    file: Path | None = None
    """None without a file; all tables are empty then."""

    @property
    def tables(self) -> Config:
        """The tables of the file."""
        from callpact.config_file import Config  # It takes time to import.

        return Config.model_construct() if self.read is None else self.read

    @property
    def audit(self) -> AuditSettings:
        """The settings of the audit log."""
        return AuditSettings() if self.read is None else AuditSettings(**dict(self.read.audit))

    @property
    def folder(self) -> Path:
        """The folder that paths in the file start from."""
        return Path() if self.file is None else self.file.parent

    def wanted(self, refs: Iterable[str] = ()) -> tuple[WantedSource, ...]:
        """The sources of `refs`, else those of the file, whose limits then apply.

        Raises:
            InvalidConfig: there are no sources.
        """
        wanted = [
            # No table has such a name.
            WantedSource(name=f" {number}", settings=Opening(ref, folder=Path()))
            for number, ref in enumerate(refs)
        ]
        if not wanted:
            self._check_sources()
            hold_limits(self.tables)
            wanted = [self._wanted(name, table) for name, table in self.tables.sources.items()]
        # Python sources, which are the user's own code, are granted no keys.
        is_alone = sum(not is_python(each.settings) for each in wanted) <= 1
        tokens = {} if self.read is None else self.read.serve.tokens
        withheld = tuple(token.secret for token in tokens.values())
        return tuple(
            dataclasses.replace(each, withheld=withheld, is_alone=is_alone) for each in wanted
        )

    def _check_sources(self) -> None:
        if self.file is None:
            raise InvalidConfig(
                f"no source: name one with -s (for example -s python:shop.py), or run this where a "
                f"{DEFAULT_FILE} is; `callpact init` writes one"
            )
        if not self.tables.sources:
            raise InvalidConfig(
                f"{self.file}: names no source; add a [sources.NAME] table with a ref"
            )

    def _wanted(self, name: str, table: SourceConfig) -> WantedSource:
        tables, secrets = self.tables, table.secrets or self.tables.secrets
        settings = Opening(
            table.ref,
            name,
            self.folder,
            table.profile,
            table.lists,
            (*tables.libraries, *table.libraries),
            tuple(table.hosts),
            tables.upstreams,
            hook_hosts=tuple(table.hook_hosts),
            keys=tuple(table.keys),
            hook_timeout=table.hook_timeout or tables.hook_timeout,
            headers=table.headers,
            security=table.security,
            pagination=tuple(table.pagination),
            env=table.env,
            callers=tuple(CallerCredential(**dict(each)) for each in table.callers),
            oauth=None if table.oauth is None else OAuthClient(**dict(table.oauth)),
            pins=table.pins,
            server=table.server,
            ref_hosts=tuple(table.ref_hosts),
        )
        return WantedSource(
            name=name,
            settings=settings,
            secrets=self.folder / secrets if secrets else None,
            owns_secrets=table.secrets is not None,
            policy=table.policy,
            allow=tuple(table.allow),
            deny=tuple(table.deny),
            timeout=table.timeout,
            curation=table.curation(f"sources.{name}"),
            curate_file=self.curate_file(name),
            has_curate_file=table.curate is not None,
        )

    def uncurated(self, name: str) -> WantedSource:
        """A source of the file with its selection, and without changes to its tools.

        Raises:
            InvalidConfig: there is no such source.
        """
        known = {each.name: each for each in self.wanted()}
        if name not in known:
            raise InvalidConfig(f"{self.file}: no source '{name}'{nearest_name(name, known)}")
        wanted, own = known[name], known[name].curation
        curation = Curation(place=own.place, select=own.select, exclude=own.exclude)
        return dataclasses.replace(wanted, curation=curation, curate_file=None)

    def curate_file(self, name: str) -> Path:
        """The file of the curation of a source, whether or not there is one."""
        named = self.tables.sources[name].curate
        return self.folder / (named or f"{name.replace('/', '_')}.curate.toml")


def configuration_of(refs: Iterable[str] = (), file: Path | None = None) -> Configuration:
    """The configuration in use: of `file`, else of `./callpact.toml` unless `refs` name sources.

    Raises:
        InvalidConfig: the file cannot be used.
    """
    default = Path(DEFAULT_FILE)
    if file is None and not tuple(refs) and default.exists():
        file = default
    if file is None:
        return Configuration()
    from callpact.config_file import read_config  # It takes time to import.

    return Configuration(read_config(file), file)


# --- the files of `callpact init` ------------------------------------------------------------

FIRST_CONFIG = """\
# Where the tools are. Every [sources.NAME] table takes: ref, policy, allow, deny, timeout.
[sources.tools]
ref = "python:tools.py"
"""

FIRST_TOOLS = '''\
"""Tools of this project. Type hints become the contract, the docstring is what the model reads."""

from typing import Annotated

from pydantic import Field

from callpact import tool


@tool
async def greet(name: str, times: Annotated[int, Field(ge=1, le=5)] = 1) -> list[str]:
    """Greet somebody.

    Args:
        name: Who is greeted.
        times: How often.
    """
    return [f"Hello, {name}!"] * times
'''
