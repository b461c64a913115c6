"""The keys of curation in TOML: in a table `[sources.NAME]`, and in a file `NAME.curate.toml`.

Declared once, so that both have the same keys. Nothing here changes a tool.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from callpact.errors import InvalidConfig
from callpact.sources.curation import Curation, ToolCuration
from callpact.sources.selection import SelectionRules
from callpact.tool import InputPolicy, Policy

MAX_CURATE_BYTES = 10_000_000
"""Bytes of a `NAME.curate.toml`; the first file for a thousand tools has about one million."""

# Built when a file is read: without a file nothing is validated.
MODEL = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

Place = tuple[int | str, ...]
"""The keys that lead to a value of a file."""
_Patterns = list[Annotated[str, Field(min_length=1)]]


class ToolConfig(BaseModel):
    """One `[sources.NAME.tools.TOOL]` table; the fields are those of `sources.curation.ToolCuration`."""

    model_config = MODEL

    name: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$",
        description="Its new name; the id becomes `namespace.name`, the names from before stay as "
        "aliases",
    )
    aliases: list[str] = Field([], description="Other names, beside those it has")
    title: str | None = Field(None, description="Its title for people")
    description: str | None = Field(None, description="Its description, instead of the source's")
    append_description: str | None = Field(
        None, description="A paragraph that is added behind the description"
    )
    policy: Policy | None = Field(None, description="Its output policy")
    input_policy: InputPolicy | None = Field(
        None,
        description="Its input policy: `exact`, or `tolerant` to repair what can have one meaning only",
    )
    timeout: float | None = Field(
        None, gt=0, le=3600, description="Seconds that a call of it may take"
    )
    tags: list[str] | None = Field(None, description="Its tags, instead of the source's")
    scopes: list[str] = Field(
        [], description="Scopes that a caller needs, beside those that it declares"
    )
    read_only: bool | None = Field(
        None, description="Whether it only reads: MCP's annotation `readOnlyHint`"
    )
    hidden: dict[str, Any] = Field(
        {},
        description="Arguments with a fixed value: not in the published schema, refused from a "
        "caller, added to every call",
    )
    defaults: dict[str, Any] = Field(
        {}, description="Values of arguments that a caller leaves out; shown in the schema"
    )
    rename: dict[str, Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]] = Field(
        {}, description="New names of arguments, by those of the source, which stay as aliases"
    )
    describe: dict[str, str] = Field(
        {}, description="Descriptions of arguments, by their names in the source"
    )
    fields: list[str] | None = Field(
        None,
        min_length=1,
        description="The fields of its output that are delivered, as `id` or `items.name` (of each "
        "item of a list); the output schema is reduced to them as well",
    )
    enabled: bool = Field(
        True, description="`false`: it is shown as disabled, and cannot be called"
    )


class RulesConfig(BaseModel):
    """A table `select` or `exclude`; the fields are those of `sources.selection.SelectionRules`."""

    model_config = MODEL

    tags: _Patterns = Field([], description="Patterns of tags")
    paths: _Patterns = Field(
        [], description="Patterns of the paths of requests, as `/pets/*`; `*` includes `/`"
    )
    methods: list[Annotated[str, Field(pattern=r"^[A-Z]+$")]] = Field(
        [], description="Methods of requests, as `GET`"
    )
    operations: _Patterns = Field(
        [], description="Patterns of operation ids; of a tool without one, of its name"
    )
    deprecated: bool | None = Field(None, description="Whether a tool is deprecated")


class CurationTable(BaseModel):
    """The keys that a `[sources.NAME]` table and a file `NAME.curate.toml` share."""

    model_config = MODEL

    allow: list[str] = Field([], description="Patterns of the ids to include; all by default")
    deny: list[str] = Field([], description="Patterns of the ids to leave out")
    select: RulesConfig = Field(
        default_factory=RulesConfig.model_construct,
        description="Rules that all fit the tools to include",
    )
    exclude: RulesConfig = Field(
        default_factory=RulesConfig.model_construct,
        description="Rules of which none fits the tools to include",
    )
    namespace: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_-]+$",
        description="Namespace of all its tools, instead of their own; the names from before stay "
        "as aliases. `allow`, `deny` and `tools` go by the ids from before",
    )
    tools: dict[str, ToolConfig] = Field(
        {},
        description="Changes to single tools, by id, name over MCP, alias, or name without the "
        "namespace",
    )

    def curation(self, place: str) -> Curation:
        """The curation that the table declares; an empty one without a place."""
        made = Curation(
            namespace=self.namespace,
            select=_rules(self.select),
            exclude=_rules(self.exclude),
            tools={key: ToolCuration(**dict(tool)) for key, tool in self.tools.items()},
        )
        return made if made == Curation() else replace(made, place=place)


def _rules(table: RulesConfig) -> SelectionRules:
    return SelectionRules(
        tags=tuple(table.tags),
        paths=tuple(table.paths),
        methods=tuple(table.methods),
        operations=tuple(table.operations),
        deprecated=table.deprecated,
    )


def read_curate_file(path: Path) -> CurationTable:
    """Read a file `NAME.curate.toml`.

    Raises:
        InvalidConfig: with the file, the key, the expected and the actual value.
    """
    try:
        return CurationTable.model_validate(read_toml(path, MAX_CURATE_BYTES))
    except ValidationError as error:
        raise invalid_file(path, error, _model_at) from None


def _model_at(place: Place) -> type[BaseModel]:
    match place:
        case ("tools", _):
            return ToolConfig
        case ("select" | "exclude",):
            return RulesConfig
        case _:
            return CurationTable


def read_toml(path: Path, limit: int) -> dict[str, Any]:
    """Read a TOML file of at most `limit` bytes.

    Raises:
        InvalidConfig: it cannot be read.
    """
    try:
        if path.stat().st_size > limit:
            raise InvalidConfig(f"{path}: larger than {limit:,} bytes")
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InvalidConfig(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path}: cannot be read ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"{path}: not TOML: {error}") from None


def invalid_file(
    path: Path,
    error: ValidationError,
    model_at: Callable[[Place], type[BaseModel]],
    is_secret: Callable[[Place], bool] = lambda _: False,
) -> InvalidConfig:
    """The error for a file that is TOML with wrong keys or values; secret values are not shown."""
    lines = [_line(item, model_at, is_secret) for item in error.errors(include_url=False)]
    return InvalidConfig(f"{path}: " + "; ".join(lines))


def _line(
    item: ErrorDetails,
    model_at: Callable[[Place], type[BaseModel]],
    is_secret: Callable[[Place], bool],
) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        fields = model_at(item["loc"][:-1]).model_fields
        known = ", ".join(field.alias or name for name, field in fields.items())
        return f"{key} is not known; known here: {known}"
    if item["type"] == "missing":
        return f"{key} is required"
    if is_secret(item["loc"]):
        return f"{key}: {item['msg']}"
    return f"{key}: {item['msg']}, got {item['input']!r}"
