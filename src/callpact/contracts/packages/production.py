"""Tools of running sources, held to a published version of their contracts.

What a caller sees is of the published version: names, texts, schemas, policies. Handlers, keys,
time limits and whether a tool is disabled are those of the sources. Of the access rules both apply:
neither an old version nor a changed source opens a tool.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from callpact.catalog import Catalog
from callpact.context import Context
from callpact.contracts.packages.package_form import decode_contracts, published_contracts
from callpact.contracts.packages.package_store import PackageStore, PublishedPackage
from callpact.errors import CodeOutdated, InvalidInput
from callpact.gate import admit
from callpact.resources import Prompt
from callpact.tool import Access, Admitted, Contract, Disabled, Handler, Tool

MAX_NAMED = 5
"""Tools that a note names; the others are counted."""
_SEEN = (
    *("wire_name", "description", "title", "search_hint", "tags", "aliases", "keywords", "kind"),
    *("examples", "terms", "annotations", "argument_aliases"),
)
"""Fields of a tool that are those of its published contract."""
_CONTRACT = ("input", "output", "policy", "input_policy", "formats")
_log = logging.getLogger("callpact.reload")

Convert = Callable[[str, Tool], Tool | None]


class Production:
    """The newest published version in a range, and the catalogs that are held to it.

    `live` is the catalog of the sources at the start: schemas that are published as they are there
    are not compiled again.

    Raises:
        CallpactError: no such version is published, or the folder cannot be read.
    """

    def __init__(
        self, store: PackageStore, name: str, wanted: str, live: Catalog | None = None
    ) -> None:
        self._live = {} if live is None else {key: tool.contract for key, tool in _entries(live)}
        self._store = store
        self._name = name
        self._wanted = wanted
        self._take(store.resolve(name, wanted))

    def _take(self, package: PublishedPackage) -> None:
        read = decode_contracts(package.contracts, self._live)
        self._contracts = {contract.key: contract for contract, _ in read}
        self._tools = {contract.key: tool for contract, tool in read}
        self._version = package.version

    @property
    def index(self) -> Path:
        """The file that changes when a version is published or withdrawn."""
        return self._store.folder / "index.json"

    @property
    def label(self) -> str:
        """The name and version that are served, as in `shop@1.2.0`."""
        return f"{self._name}@{self._version}"

    def refresh(self) -> None:
        """Take the newest version in the range.

        Raises:
            CallpactError: there is none any more, or the folder cannot be read.
        """
        package, before = self._store.resolve(self._name, self._wanted), self.label
        if package.version != self._version:
            self._take(package)
            _log.warning("%s is served instead of %s", self.label, before)

    # --- catalogs -----------------------------------------------------------------------------

    def held(self, catalog: Catalog) -> Catalog:
        """The published tools, resources and prompts among those of a catalog."""
        return _converted(catalog, self._held)

    def drafted(self, catalog: Catalog) -> Catalog:
        """The same catalog; the version of every tool is `NAME@draft`."""
        return _converted(catalog, lambda _, tool: replace(tool, version=f"{self._name}@draft"))

    def _held(self, key: str, tool: Tool) -> Tool | None:
        published = self._tools.get(key)
        if published is None:
            return None
        if (published.kind == "subscription") != (tool.kind == "subscription"):
            reason = f"{self.label} has it as a {published.kind}, and its code is a {tool.kind}"
            return replace(tool, version=self.label, disabled=Disabled("code_outdated", reason))
        access = _both(published.access, tool.access)
        if access is None:
            reason = f"{self.label} asks for other rights than its code; publish it again"
            return replace(tool, version=self.label, disabled=Disabled("code_outdated", reason))
        is_other = self._contracts[key].input != tool.contract.input
        return replace(
            tool,
            **{name: getattr(published, name) for name in _SEEN},
            version=self.label,
            access=access,
            contract=_contract(published.contract, tool.contract),
            handler=_checked(tool, self.label) if is_other else tool.handler,
        )

    # --- notes --------------------------------------------------------------------------------

    def notes(self, catalog: Catalog, folder: Path) -> Iterator[str]:
        """Differences between the sources and the published version; `folder` is theirs."""
        live = {each.key: each for each in published_contracts(catalog, folder)}
        missing = [key for key in self._contracts if key not in live]
        if missing:
            yield f"{self.label}: published, and in no source: {_few(missing)}"
        pairs = {key: (old, live[key]) for key, old in self._contracts.items() if key in live}
        other = [key for key, (old, new) in pairs.items() if old.input != new.input]
        if other:
            yield (
                f"{self.label}: the input contract is another in the sources: {_few(other)}. A call "
                "that the code does not take is refused"
            )
        changed = [key for key, (old, new) in pairs.items() if old.code != new.code]
        if changed:
            yield f"{self.label}: the code was changed after it was published: {_few(changed)}"


def _both(one: Access, other: Access) -> Access | None:
    """The access of callers that have the rights of both; None if no rule can say that."""
    if one == other:
        return other
    scopes = tuple(dict.fromkeys((*one.scopes, *other.scopes)))
    choices = [each.any_scopes for each in (one, other) if each.any_scopes]
    # A scope that is in both lists is enough for both.
    any_scopes = tuple(scope for scope in choices[0] if scope in choices[-1]) if choices else ()
    rights = {(each.resource_type, each.resource_action) for each in (one, other)} - {(None, None)}
    if len(rights) > 1 or (choices and not any_scopes):
        return None
    return Access(scopes, any_scopes, *next(iter(rights), (None, None)))


def _contract(published: Contract, own: Contract) -> Contract:
    """The published contract, as the tool's own if they are equal: that keeps the order of keys."""
    if all(getattr(published, name) == getattr(own, name) for name in _CONTRACT):
        return own
    if own.projection is None:
        return published
    return Contract(
        **{name: getattr(published, name) for name in _CONTRACT}, projection=own.projection
    )


def _checked(tool: Tool, label: str) -> Handler:
    """The handler of a tool, which checks its arguments by the contract of the code, too."""
    handler: Any = tool.handler

    def admitted(arguments: dict[str, Any]) -> Admitted:
        try:
            return admit(tool, arguments)
        except InvalidInput as error:
            raise CodeOutdated(tool.id, label, str(error)) from None

    async def call(arguments: dict[str, Any], context: Context) -> Any:
        return await handler(admitted(arguments).arguments, context)

    async def stream(arguments: dict[str, Any], context: Context) -> AsyncGenerator[Any, None]:
        async with aclosing(handler(admitted(arguments).arguments, context)) as values:
            async for value in values:
                yield value

    return stream if tool.kind == "subscription" else call


def _entries(catalog: Catalog) -> Iterator[tuple[str, Tool]]:
    """The tools of a catalog, and those of its resources and prompts, by the published key."""
    yield from ((tool.id, tool) for tool in catalog)
    yield from ((f"resource {each.uri}", each.tool) for each in catalog.resources)
    yield from ((f"prompt {each.tool.id}", each.tool) for each in catalog.prompts)


def _converted(catalog: Catalog, convert: Convert) -> Catalog:
    """A catalog of the converted tools, resources and prompts; those that become None are left out."""
    tools = (convert(tool.id, tool) for tool in catalog)
    resources = ((each, convert(f"resource {each.uri}", each.tool)) for each in catalog.resources)
    prompts = ((each, convert(f"prompt {each.tool.id}", each.tool)) for each in catalog.prompts)
    return Catalog(
        filter(None, tools),
        resources=(replace(each, tool=tool) for each, tool in resources if tool is not None),
        prompts=(_prompt(each, tool) for each, tool in prompts if tool is not None),
    )


def _prompt(prompt: Prompt, tool: Tool) -> Prompt:
    """The prompt with another tool, and completions of the arguments that this one takes."""
    taken = {argument.name for argument in Prompt(tool=tool).arguments}
    kept = {name: each for name, each in prompt.completions.items() if name in taken}
    return replace(prompt, tool=tool, completions=kept)


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
