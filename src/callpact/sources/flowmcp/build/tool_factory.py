"""Tools of checked FlowMCP files; their requests and schemas are built on first use.

Nothing is checked here: `source.py` passes only manifests without errors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from callpact.context import Context
from callpact.envelope import ResponseEnvelope
from callpact.errors import Failed
from callpact.net import Request, Transport
from callpact.net.address import Refused, place_of
from callpact.net.host_patterns import HostPatterns
from callpact.secrets.keys import Secrets
from callpact.sources.base import (
    Finding,
)
from callpact.sources.flowmcp.build.check_cache import CachedManifest, Entry, ManifestHead
from callpact.sources.flowmcp.check.file_check import ListFile
from callpact.sources.flowmcp.check.rules.list_rules import resolve_lists
from callpact.sources.flowmcp.hooks.file_hooks import FileHooks, Unhooked
from callpact.sources.flowmcp.hooks.hook_fetch import Fetching
from callpact.sources.flowmcp.hooks.hooked_call import HookedCall
from callpact.sources.flowmcp.http.request import (
    Placeholders,
    RequestDraft,
    RequestPlan,
    plan_request,
    seal,
    unsealed,
)
from callpact.sources.flowmcp.http.response import JSON, mime_type, output_schema, read_response
from callpact.sources.flowmcp.read.hit import texts
from callpact.sources.flowmcp.read.parameters import (
    Parameter,
    input_schema,
    read_parameters,
)
from callpact.sources.key_grants import FileKeys
from callpact.sources.response_body import masked_error
from callpact.tool import (
    Contract,
    Disabled,
    Kind,
    Origin,
    Terms,
    Tool,
    wire_name,
)

_NOT_ID = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True)
class _Parts:
    """The parts of a tool, each built when it is first needed: most tools are never called."""

    manifest: CachedManifest
    name: str
    lists: Mapping[str, ListFile]
    is_tolerant: bool
    """True if the file has placeholders of its own: it then treats all values as text."""

    @property
    def main(self) -> dict[str, Any]:
        """The `main` of the file."""
        return self.manifest.main

    @property
    def declared(self) -> dict[str, Any]:
        """The declaration of this tool."""
        return self.manifest.main["tools"][self.name]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its parameters, with shared lists resolved."""
        secrets = self.main.get("requiredServerParams", ())
        entries = resolve_lists(self.main, self.lists).lists if "sharedLists" in self.main else {}
        return read_parameters(self.declared["parameters"], secrets, entries)

    @cached_property
    def plan(self) -> RequestPlan:
        """The plan that turns its arguments into a request."""
        return plan_request(self.main, self.declared, self.parameters)

    def contract(self) -> Contract:
        """Its contract; the rules reject every schema that would not compile."""
        output = output_schema(self.declared.get("output"))
        return Contract(
            input=input_schema(self.parameters),
            output=output,
            policy=None if output is None else "warn",
            input_policy="tolerant" if self.is_tolerant else "exact",
        )


@dataclass(frozen=True)
class _Handler:
    """The handler of a tool: drafts, seals and sends the request, and reads the response."""

    parts: _Parts
    keys: FileKeys
    transport: Transport
    hooks: FileHooks | None
    hosts: HostPatterns

    @cached_property
    def mime_type(self) -> str:
        return mime_type(self.parts.declared.get("output"))

    @cached_property
    def used(self) -> Secrets | None:
        """The secrets of the file, which a response may echo."""
        secrets = self.keys.secrets
        known = {name: value for name in self.keys.names if (value := secrets.get(name))}
        return Secrets(known) if known else None

    @cached_property
    def fetching(self) -> Fetching | None:
        """The requests that its hooks may make; None if it has no hooks."""
        if self.hooks is None or self.parts.name not in self.hooks.tools:
            return None
        return Fetching(self.keys, self.transport, self.hosts)

    def call(
        self, arguments: dict[str, Any], context: Context
    ) -> Coroutine[Any, Any, ResponseEnvelope[Any]]:
        parts = self.parts
        if self.fetching is not None:
            hooks = cast("FileHooks", self.hooks)
            hooked = HookedCall(parts.name, parts.plan, hooks, self, self.fetching)
            return hooked.run(arguments, context)
        marks = Placeholders()
        return self.send(self.sealed(parts.plan.draft(arguments, marks), marks), context)

    def sealed(self, draft: RequestDraft, marks: Placeholders) -> Request:
        """The request with its keys, if they may be sent to its address.

        Raises:
            Failed: `address_not_allowed`, or `server_param_missing`.
        """
        if not self.keys.names:
            return unsealed(draft)
        request, names = seal(draft, marks, self.keys.value)
        if names:
            try:
                self.keys.check(names, place_of(request.url))
            except Refused as refused:
                raise masked_error(refused.error(), self.keys.secrets) from None
        return request

    async def send(
        self, request: Request, context: Context, *, for_hook: bool = False
    ) -> ResponseEnvelope[Any]:
        """Send a request and read the response, with the secrets of the file masked."""
        try:
            response = await self.transport.send(request, deadline=context.deadline)
            is_json = for_hook and "json" in response.headers.get("content-type", "")
            return read_response(response, JSON if is_json else self.mime_type, self.used)
        except Failed as error:
            raise masked_error(error, self.keys.secrets) from None


class ToolFactory:
    """Makes the tools of one checked file."""

    def __init__(
        self,
        entry: Entry,
        manifest: CachedManifest,
        file: Path,
        *,
        lists: Mapping[str, ListFile],
        keys: FileKeys,
        transport: Transport,
        hooks: FileHooks | Unhooked | None,
        hosts: HostPatterns,
    ) -> None:
        head = manifest.head
        self._manifest = manifest
        self._head = head
        self._lists = lists
        self._keys = keys
        self._transport = transport
        self._aliases = entry.aliases
        self._hooks = hooks if isinstance(hooks, FileHooks) else None
        self._unhooked = hooks if isinstance(hooks, Unhooked) else None
        self._hosts = hosts
        self._keyless = keys.disabled()
        self._destinations = keys.destinations()
        self._tags: tuple[str, ...] = tuple(head.tags)
        self._source = f"flowmcp:{file}"
        self._stem = file.stem
        self._terms = _terms(head)

    def make(self, name: str) -> Tool:
        """The tool that the file declares under a name.

        Raises:
            InvalidTool: the declaration cannot become a tool.
        """
        head, own = self._head, self._head.tools[name]
        aliases = self._aliases.get(name, {})
        parts = _Parts(self._manifest, name, self._lists, bool(aliases))
        meta: dict[str, Any] = own.meta or head.meta or {}
        is_read = own.method == "GET"
        kind: Kind = "query" if is_read else "mutation"
        return Tool(
            id=f"{head.namespace}.{id_part(name, 'tool')}",
            description=own.description,
            contract=Contract.later(parts.contract),
            handler=_Handler(parts, self._keys, self._transport, self._hooks, self._hosts).call,
            title=f"{head.name}: {name}",
            tags=self._tags,
            aliases=(f"{head.namespace}/{self._stem}::{name}",),
            version=head.schema_version,
            kind=kind,
            annotations={
                "readOnlyHint": meta.get("isReadOnly", is_read),
                "destructiveHint": meta.get("isDestructive", not is_read),
                "openWorldHint": True,
            },
            examples=tuple(own.tests),
            source=self._source,
            wire_name=wire_name(f"{name}_{head.namespace}"),
            argument_aliases=aliases,
            disabled=self._keyless or self._hookless(name),
            keywords=(*texts(meta.get("aliases")), *texts([head.description])),
            search_hint=hint if isinstance(hint := meta.get("searchHint"), str) else "",
            always_listed=meta.get("alwaysLoad") is True,
            terms=self._terms,
            uses_client=self._hooks is not None,  # Hooks may log.
            origin=Origin(own.method, own.path),
            keys=self._destinations,
        )

    def _hookless(self, name: str) -> Disabled | None:
        if self._unhooked is None or name not in self._unhooked.names:
            return None
        return Disabled("handler_error", self._unhooked.reason)


def _terms(head: ManifestHead) -> Terms:
    docs = tuple(texts(head.docs))
    given = (
        head.terms_of_service,
        head.terms_of_service_checked_at,
        head.terms_of_service_language,
        head.data_license,
        head.data_license_name,
    )
    return Terms(docs, *(text if isinstance(text, str) and text else None for text in given))


# --- names -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadedTool:
    """A tool, with its name and that of its file as they are written."""

    name: str
    file: str
    tool: Tool


def id_part(name: str, otherwise: str) -> str:
    """A name as part of an id."""
    return _NOT_ID.sub("_", name).strip("_") or otherwise


def unique_tools(loaded: list[LoadedTool], report: list[Finding]) -> list[Tool]:
    """The tools, with the file's name added to the name of those that several files declare."""
    count = Counter(item.tool.id for item in loaded)
    tools: list[Tool] = []
    names: dict[str, Tool] = {}
    for item in loaded:
        tool = item.tool
        if count[tool.id] > 1:
            tool = _renamed(item, count[tool.id], report)
        own = (tool.id, tool.wire_name, *tool.aliases)
        taken = next((name for name in own if name in names), None)
        if taken is not None:
            other = _file_of(names[taken])
            text = f"'{taken}' is already a tool of {other}: rename the tool or its file"
            report.append(Finding(_file_of(tool), "error", text))
            continue
        names |= dict.fromkeys(own, tool)
        tools.append(tool)
    return tools


def _renamed(item: LoadedTool, count: int, report: list[Finding]) -> Tool:
    tool = item.tool
    file = id_part(item.file, "file")
    new = f"{tool.namespace}.{file}.{tool.name}"
    text = f"'{tool.id}' is declared {count} times; here it is '{new}'"
    report.append(Finding(_file_of(tool), "warning", text))
    return replace(tool, id=new, wire_name=wire_name(f"{item.name}_{file}_{tool.namespace}"))


def _file_of(tool: Tool) -> str:
    return tool.source.removeprefix("flowmcp:")
