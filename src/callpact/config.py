"""The configuration file `callpact.toml`: which sources, under which policy.

[sources.shop]
ref = "python:shop.py"
policy = "reject"
allow = ["shop.*"]
deny = ["shop.delete_*"]
timeout = 10
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from callpact.errors import InvalidConfig
from callpact.tool import Policy

DEFAULT_FILE = "callpact.toml"
MAX_BYTES = 1_000_000
"""Size of a configuration file."""


class SourceConfig(BaseModel):
    """One `[sources.NAME]` table."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    ref: str = Field(
        description="Where the tools are: `python:shop.py`, `python:package.module`, "
        "`flowmcp:catalogue/`"
    )
    policy: Policy | None = Field(None, description="Output policy of all its tools")
    allow: list[str] = Field([], description="Patterns of the ids to take; all, if none is given")
    deny: list[str] = Field([], description="Patterns of the ids to leave out")
    timeout: float | None = Field(
        None, gt=0, le=3600, description="Seconds that a call of its tools may take"
    )
    secrets: str | None = Field(None, description="File of keys (dotenv) for its upstreams")
    hosts: list[str] = Field(
        [], description="Private addresses that its tools may reach: hosts, `host:port` or ranges"
    )
    profile: Literal["strict", "compat"] | None = Field(
        None, description="FlowMCP: the letter of the specification, or what real files need"
    )
    lists: str | None = Field(None, description="FlowMCP: folder of shared lists")
    libraries: list[str] = Field(
        [], description="FlowMCP: libraries that hooks may use beside the six; `*` for all"
    )
    hook_hosts: list[str] = Field(
        [], description="FlowMCP: hosts that hooks may reach beside their file's own; `*` for all"
    )


class Config(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    sources: dict[str, SourceConfig] = Field(
        {}, description="Sources by name; the name is the namespace where a source has none"
    )
    secrets: str | None = Field(None, description="File of keys (dotenv) for all sources")
    libraries: list[str] = Field([], description="FlowMCP: libraries allowed for all sources")
    upstreams: dict[str, str] = Field(
        {},
        description='Addresses that stand for others, as `"https://api.x.com" = "http://localhost:9"`',
    )


def read_config(path: Path) -> Config:
    """Read a configuration file.

    Raises:
        InvalidConfig: with the file, the key, what was expected and what came.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidConfig(f"{path}: larger than {MAX_BYTES:,} bytes")
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InvalidConfig(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path}: cannot be read ({error})") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"{path}: not TOML: {error}") from None
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        lines = [_line(cast("dict[str, Any]", item)) for item in error.errors(include_url=False)]
        raise InvalidConfig(f"{path}: " + "; ".join(lines)) from None


def _line(item: dict[str, Any]) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        model = SourceConfig if len(item["loc"]) > 2 else Config
        return f"{key} is not known; known here: {', '.join(model.model_fields)}"
    if item["type"] == "missing":
        return f"{key} is required"
    return f"{key}: {item['msg']}, got {item['input']!r}"


# --- what `callpact init` writes -------------------------------------------------------------

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
