"""Tools of checked FlowMCP files: what a call needs is made when the tool is first called.

Nothing is checked here; `loading.py` gives what checking let pass.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from callpact.envelope import ResponseEnvelope
from callpact.errors import Failed, restored
from callpact.net import Transport
from callpact.secrets import Secrets
from callpact.sources.flowmcp.answer import read_answer
from callpact.sources.flowmcp.cache import Entry, Head, Manifest
from callpact.sources.flowmcp.checking import ListFile
from callpact.sources.flowmcp.fetching import Fetching
from callpact.sources.flowmcp.file_hooks import FileHooks, Unhooked
from callpact.sources.flowmcp.hooking import HookedCall
from callpact.sources.flowmcp.naming import id_part
from callpact.sources.flowmcp.output import JSON, mime_type, output_schema
from callpact.sources.flowmcp.parameters import (
    Parameter,
    input_schema,
    read_parameters,
)
from callpact.sources.flowmcp.request import (
    Draft,
    RequestPlan,
    missing_secret,
    plan_request,
    seal,
)
from callpact.sources.flowmcp.rules.lists import resolve_lists
from callpact.tool import Context, Contract, Disabled, Kind, Terms, Tool, wire_name


@dataclass(frozen=True)
class _Making:
    """What a tool is made of, each part when it is first needed: most tools are never called."""

    manifest: Manifest
    name: str
    lists: Mapping[str, ListFile]
    is_tolerant: bool
    """True if the file has placeholders of its own: it takes all values for text, its tests too."""

    @property
    def main(self) -> dict[str, Any]:
        """What the file declares."""
        return self.manifest.main

    @property
    def declared(self) -> dict[str, Any]:
        """What the file declares of this tool."""
        return self.manifest.main["tools"][self.name]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Where its arguments go, and what each must keep."""
        secrets = self.main.get("requiredServerParams", ())
        entries = resolve_lists(self.main, self.lists).lists if "sharedLists" in self.main else {}
        return read_parameters(self.declared["parameters"], secrets, entries)

    @cached_property
    def plan(self) -> RequestPlan:
        """How its arguments become a request."""
        return plan_request(self.main, self.declared, self.parameters)

    def contract(self) -> Contract:
        """What it takes and gives; the rules let nothing pass that would not compile."""
        output = output_schema(self.declared.get("output"))
        return Contract(
            input=input_schema(self.parameters),
            output=output,
            policy=None if output is None else "warn",
            input_policy="tolerant" if self.is_tolerant else "exact",
        )


@dataclass(frozen=True)
class _Calling:
    """What calls a tool: its request is drafted, sealed, sent, and its answer read."""

    making: _Making
    secrets: Secrets
    transport: Transport
    hooks: FileHooks | None
    hosts: Collection[str]

    @cached_property
    def mime_type(self) -> str:
        return mime_type(self.making.declared.get("output"))

    @cached_property
    def used(self) -> Secrets | None:
        """The secrets that a call may send, which its answer may echo."""
        plan = self.making.plan
        names = plan.secrets if self.hooked is None else plan.known_secrets
        known = {name: value for name in names if (value := self.secrets.get(name))}
        return Secrets(known) if known else None

    def secret(self, name: str) -> str | None:
        """A secret that the file asks for, and none of anybody else."""
        return self.secrets.get(name) if name in self.making.plan.known_secrets else None

    @cached_property
    def hooked(self) -> HookedCall | None:
        """How it is called if its file has hooks."""
        making = self.making
        if self.hooks is None or making.name not in self.hooks.tools:
            return None
        root = making.main.get("root", "")
        fetching = Fetching(root, self.secrets, self.transport, self.hosts)
        return HookedCall(making.name, making.plan, self.hooks, self.send, fetching)

    def call(
        self, arguments: dict[str, Any], context: Context
    ) -> Coroutine[Any, Any, ResponseEnvelope[Any]]:
        if self.hooked is not None:
            return self.hooked.run(arguments, context)
        return self.send(self.making.plan.draft(arguments), context)

    async def send(
        self, draft: Draft, context: Context, *, for_hook: bool = False
    ) -> ResponseEnvelope[Any]:
        request = seal(draft, self.secret)
        try:
            response = await self.transport.send(request, deadline=context.deadline)
            is_json = for_hook and "json" in response.headers.get("content-type", "")
            return read_answer(response, JSON if is_json else self.mime_type, self.used)
        except Failed as error:
            raise _masked(error, self.secrets) from None


def _masked(error: Failed, secrets: Secrets) -> Failed:
    """The error without any secret, of those other calls use as well."""
    message, details = secrets.mask(error.message), secrets.mask_data(error.details)
    if message == error.message and details == error.details:
        return error
    kind = type(error)
    return cast("Failed", restored(error.code, message, details=details, kind=kind))


class Workshop:
    """Makes the tools of one checked file."""

    def __init__(
        self,
        entry: Entry,
        manifest: Manifest,
        file: Path,
        *,
        lists: Mapping[str, ListFile],
        secrets: Secrets,
        transport: Transport,
        hooks: FileHooks | Unhooked | None = None,
        hosts: Collection[str] = (),
    ) -> None:
        head = manifest.head
        self._manifest = manifest
        self._head = head
        self._lists = lists
        self._secrets = secrets
        self._transport = transport
        self._aliases = entry.aliases
        self._hooks = hooks if isinstance(hooks, FileHooks) else None
        self._unhooked = hooks if isinstance(hooks, Unhooked) else None
        self._hosts = hosts
        self._keyless = _keyless(head, secrets)
        self._tags: tuple[str, ...] = tuple(head.tags)
        self._source = f"flowmcp:{file}"
        self._stem = file.stem
        self._terms = _terms(head)

    def make(self, name: str) -> Tool:
        """The tool that the file declares under a name.

        Raises:
            InvalidTool: it cannot be one.
        """
        head, own = self._head, self._head.tools[name]
        aliases = self._aliases.get(name, {})
        making = _Making(self._manifest, name, self._lists, bool(aliases))
        meta: dict[str, Any] = own.meta or head.meta or {}
        is_read = own.method == "GET"
        kind: Kind = "query" if is_read else "mutation"
        return Tool(
            id=f"{head.namespace}.{id_part(name, 'tool')}",
            description=own.description,
            contract=Contract.later(making.contract),
            handler=_Calling(making, self._secrets, self._transport, self._hooks, self._hosts).call,
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
            keywords=(*_texts(meta.get("aliases")), *_texts([head.description])),
            search_hint=hint if isinstance(hint := meta.get("searchHint"), str) else "",
            always_listed=meta.get("alwaysLoad") is True,
            terms=self._terms,
        )

    def _hookless(self, name: str) -> Disabled | None:
        if self._unhooked is None or name not in self._unhooked.names:
            return None
        return Disabled("handler_error", self._unhooked.reason)


def _texts(given: Any) -> tuple[str, ...]:
    held = cast("list[Any]", given) if isinstance(given, list) else []
    return tuple(item for item in held if isinstance(item, str))


def _terms(head: Head) -> Terms:
    docs = _texts(head.docs)
    given = (
        head.terms_of_service,
        head.terms_of_service_checked_at,
        head.terms_of_service_language,
        head.data_license,
        head.data_license_name,
    )
    return Terms(docs, *(text if isinstance(text, str) and text else None for text in given))


def _keyless(head: Head, secrets: Secrets) -> Disabled | None:
    for key in head.required_server_params:
        if secrets.get(key) is None:
            missing = missing_secret(key)
            return Disabled(missing.code, missing.message)
    return None
