"""The published form of a catalog's contracts: plain data with digests, and a catalog again.

Of a tool everything is kept that callers see, its access rules, the hosts of its keys, and the digest
of the file that it was read from. Pure, but for the reading of those files.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from callpact.catalog import Catalog
from callpact.contracts.flowmcp_bumps import FLOWMCP_KIND
from callpact.errors import CallpactError, InvalidConfig, InvalidSchema
from callpact.resources import Prompt, Resource
from callpact.schema.hashing import canonical_json, data_digest
from callpact.tool import Access, Contract, Terms, Tool

if TYPE_CHECKING:
    from callpact.context import Context

MAX_CODE_BYTES = 50_000_000
"""Bytes of a file of tools whose digest is published."""
_NAMES = ("id", "wire_name", "description", "title", "version", "kind", "search_hint")
_TEXTS = ("tags", "aliases", "keywords", "examples", "terms")


class PublishedContract(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The published contract of one tool, or of the tool behind a resource or prompt."""

    id: str
    offer: str = "tool"
    """`tool`, `prompt`, or the address of a resource."""
    wire_name: str = ""
    description: str = ""
    title: str | None = None
    version: str | None = None
    kind: str = "mutation"
    search_hint: str = ""
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    examples: tuple[Any, ...] = ()
    terms: Terms = Terms()
    annotations: dict[str, Any] = {}
    argument_aliases: dict[str, str] = {}
    access: dict[str, Any] = {}
    keys: dict[str, str] = {}
    """Names of keys, each with the hosts that it is sent to."""
    input: Any = True
    output: Any = None
    policy: str = "pass"
    input_policy: str = "exact"
    formats: bool = False
    code: str = ""
    """The digest of the file that it was read from, hooks included; empty for other sources."""
    is_flowmcp: bool = False
    """True for a tool of a FlowMCP file: its versions follow FlowMCP's rules."""

    @property
    def key(self) -> str:
        """The id of a tool; the address of a resource or the id of a prompt, with the kind."""
        if self.offer in {"tool", "prompt"}:
            return self.id if self.offer == "tool" else f"prompt {self.id}"
        return f"resource {self.offer}"


def published_contracts(catalog: Catalog, folder: Path) -> list[PublishedContract]:
    """The contracts of a catalog, ordered by kind and id; `folder` is that of the sources."""
    digests: dict[Path, str] = {}

    def published(tool: Tool, offer: str) -> PublishedContract:
        file = _code_file(tool.source, folder)
        if file is None:
            return _published(tool, offer, "")
        if file not in digests:
            digests[file] = _digest(file)
        return _published(tool, offer, digests[file])

    entries = [
        *(published(tool, "tool") for tool in catalog),
        *(published(each.tool, each.uri) for each in catalog.resources),
        *(published(each.tool, "prompt") for each in catalog.prompts),
    ]
    return sorted(entries, key=lambda entry: (entry.offer, entry.id))


def encode_contracts(contracts: Iterable[PublishedContract]) -> bytes:
    """The canonical JSON of contracts.

    Raises:
        InvalidConfig: a contract holds a value that is not JSON.
    """
    forms: list[str] = []
    for entry in contracts:
        try:
            forms.append(canonical_json(msgspec.to_builtins(entry)))
        except (InvalidSchema, TypeError, msgspec.MsgspecError) as error:
            raise InvalidConfig(f"'{entry.id}' cannot be published: {error}") from None
    return f"[{','.join(forms)}]".encode()


def decode_contracts(
    data: bytes, known: Mapping[str, Contract] = MappingProxyType({})
) -> list[tuple[PublishedContract, Tool]]:
    """The contracts of a published version, each with a tool that can be compared, not called.

    `known` are contracts by the same keys; their schemas are not compiled again where they are
    equal.

    Raises:
        InvalidConfig: the data are no published contracts.
    """
    try:
        entries = msgspec.json.decode(data, type=list[PublishedContract])
        return [(entry, _tool(entry, known.get(entry.key))) for entry in entries]
    except (ValueError, TypeError, RecursionError, CallpactError) as error:
        raise InvalidConfig(f"the published contracts cannot be read: {error}") from None


def catalog_of_contracts(data: bytes) -> Catalog:
    """The catalog of a published version; its tools can be compared, and not called.

    Raises:
        InvalidConfig: the data are no published contracts.
    """
    tools = [(entry.offer, tool) for entry, tool in decode_contracts(data)]
    try:
        return Catalog(
            (tool for offer, tool in tools if offer == "tool"),
            resources=(
                Resource(uri=offer, tool=tool)
                for offer, tool in tools
                if offer not in {"tool", "prompt"}
            ),
            prompts=(Prompt(tool=tool) for offer, tool in tools if offer == "prompt"),
        )
    except CallpactError as error:
        raise InvalidConfig(f"the published contracts cannot be read: {error}") from None


def published_form(catalog: Catalog) -> Catalog:
    """The catalog as it would be published, to be compared with a published one.

    Raises:
        InvalidConfig: a contract holds a value that is not JSON.
    """
    return catalog_of_contracts(encode_contracts(published_contracts(catalog, Path())))


def _published(tool: Tool, offer: str, code: str) -> PublishedContract:
    contract, access = tool.contract, tool.access
    rights = {
        "scopes": list(access.scopes),
        "any_scopes": list(access.any_scopes),
        "resource_type": access.resource_type,
        "resource_action": access.resource_action,
    }
    return PublishedContract(
        **{name: getattr(tool, name) for name in (*_NAMES, *_TEXTS)},
        offer=offer,
        annotations=dict(tool.annotations),
        argument_aliases=dict(tool.argument_aliases),
        access={name: value for name, value in rights.items() if value},
        keys=dict(tool.keys),
        input=contract.input,
        output=contract.output,
        policy=contract.policy,
        input_policy=contract.input_policy,
        formats=contract.formats,
        code=code,
        is_flowmcp=tool.source.startswith(FLOWMCP_KIND),
    )


def _tool(entry: PublishedContract, known: Contract | None) -> Tool:
    contract: dict[str, Any] = {
        name: getattr(entry, name)
        for name in ("input", "output", "policy", "input_policy", "formats")
    }
    if known is not None and known.formats == entry.formats:
        if known.input == entry.input:
            contract["input"] = known.compiled_input
        if known.compiled_output is not None and known.output == entry.output:
            contract["output"] = known.compiled_output
    plain: dict[str, Any] = {name: getattr(entry, name) for name in (*_NAMES, *_TEXTS)}
    return Tool(
        **plain,
        contract=Contract(**contract),
        handler=_no_stream if entry.kind == "subscription" else _no_call,
        annotations=entry.annotations,
        argument_aliases=entry.argument_aliases,
        access=Access(**entry.access),
        keys=entry.keys,
        source=f"{FLOWMCP_KIND}{entry.code}" if entry.is_flowmcp else "published",
    )


async def _no_call(_arguments: dict[str, Any], _context: Context) -> Any:
    raise NotImplementedError("a published contract has no code")


async def _no_stream(_arguments: dict[str, Any], _context: Context) -> AsyncGenerator[Any, None]:
    raise NotImplementedError("a published contract has no code")
    yield


def _code_file(source: str, folder: Path) -> Path | None:
    """The file of a `python:` or `flowmcp:` source; None for others."""
    kind, _, rest = source.partition(":")
    if kind not in {"python", "flowmcp"}:
        return None
    for name in filter(None, (rest, rest.rpartition(":")[0])):
        # The path of a FlowMCP file has the folder in it already.
        path = Path(name) if kind == "flowmcp" else folder / name
        with suppress(OSError, ValueError):
            if path.is_file():
                return path
    return None


def _digest(file: Path) -> str:
    """The digest of a file; empty for one that is too large or cannot be read."""
    with suppress(OSError):
        if file.stat().st_size <= MAX_CODE_BYTES:
            return data_digest(file.read_bytes())
    return ""
