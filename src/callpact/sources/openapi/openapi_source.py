"""OpenAPI documents as a source: `from_openapi`, and the reference `openapi:`.

Each operation becomes a tool. Its schemas are converted and compiled when it is first shown or
called; `check_openapi` does so at once for all of them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from callpact.context import Context
from callpact.errors import (
    CallError,
    DeclarationError,
    InvalidSchema,
    InvalidTool,
    SourceRefused,
    UpstreamError,
)
from callpact.net import HttpTransport, Request, Transport
from callpact.net.address import Refused, place_of
from callpact.net.host_patterns import HostPatterns
from callpact.schema import CompiledSchema, Json, compile_schema, is_object
from callpact.schema.compiled import says_nothing
from callpact.schema.json_text import json_text
from callpact.secrets.keys import Secrets, key_name
from callpact.sources.base import Finding, Opening, Tools, Watched
from callpact.sources.openapi.openapi_document import (
    ApiDocument,
    is_address,
    read_document,
    real_path,
)
from callpact.sources.openapi.openapi_reader import (
    READING,
    OperationPlan,
    OperationReader,
    version_of,
    with_schemas,
)
from callpact.sources.openapi.openapi_schema import SchemaConverter, Uses
from callpact.sources.openapi.operation_handler import operation_handler, operation_security
from callpact.sources.openapi.operation_settings import OperationSettings, settings_from
from callpact.sources.openapi.operations import Operation
from callpact.sources.openapi.pagination import read_pagination
from callpact.sources.openapi.request_bodies import argument_schema
from callpact.sources.openapi.scheme_credentials import read_credentials, unused_credentials
from callpact.tool import Contract, DeclaredSchemas, Disabled, Handler, Kind, Origin, Tool

MAX_NAMESPACE = 40
"""Characters of a namespace that is made of the title of an OpenAPI document."""
MAX_PLACED = 500
"""Findings about an OpenAPI document that `callpact check` shows the line of."""
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_NO_SERVER = "the document names no server with a host; set `server` of the source"
_DESTRUCTIVE = frozenset({"DELETE"})
_REPEATABLE = frozenset({"PUT", "DELETE"})


class OpenApiSource:
    """The tools of one document."""

    def __init__(
        self,
        document: str | Path | Mapping[str, Any],
        *,
        transport: Transport,
        settings: OperationSettings | None = None,
        namespace: str | None = None,
        ref_hosts: Iterable[str] = (),
    ) -> None:
        self._first = document
        self._transport = transport
        self._settings = settings or OperationSettings()
        self._namespace = namespace
        self._ref_hosts = HostPatterns(ref_hosts, "ref_hosts")
        is_local = not isinstance(document, Mapping) and not is_address(str(document))
        self._files = (real_path(str(document)),) if is_local else ()

    async def load(self) -> Tools:
        """Read the document; an operation that cannot be used is reported and left out.

        Raises:
            SourceRefused: it cannot be read, or is not an OpenAPI document.
        """
        loaded = await self._load()
        loaded.document.source = b""
        return Tools(loaded.tools(), loaded.findings)

    async def check(self) -> Tools:
        """Load the document, and convert and compile every schema; the report has all findings.

        Raises:
            SourceRefused: it cannot be read, or is not an OpenAPI document.
        """
        loaded = await self._load()
        return await asyncio.to_thread(loaded.examined)

    async def _load(self) -> _LoadedDocument:
        shown = "openapi" if isinstance(self._first, Mapping) else str(self._first)
        document = await read_document(self._first, self._fetch, self._allows)
        self._files = tuple(name for name in document.files if not is_address(name))
        return await asyncio.to_thread(
            _LoadedDocument, document, shown, self._namespace, self._settings, self._transport
        )

    async def _fetch(self, address: str) -> bytes:
        headers = {"Accept": "application/json, application/yaml, */*;q=0.5"}
        try:
            response = await self._transport.send(Request("GET", address, headers))
        except CallError as error:
            raise SourceRefused(f"{address}: {error}") from None
        if response.status != 200:
            raise SourceRefused(f"{address}: HTTP {response.status}")
        return response.body

    def _allows(self, address: str) -> bool:
        try:
            return self._ref_hosts.match(place_of(address))
        except Refused:
            return False

    def watched(self) -> Iterator[Watched]:
        """The files of the document."""
        for name in self._files:
            yield Watched(Path(name))

    async def aclose(self) -> None:
        """Close the connections to upstreams."""
        await self._transport.aclose()


class _LoadedDocument:
    """The operations of a document that was read, and the converters of its schemas."""

    def __init__(
        self,
        document: ApiDocument,
        shown: str,
        namespace: str | None,
        settings: OperationSettings,
        transport: Transport,
    ) -> None:
        version = version_of(document)
        self.document = document
        self.shown = shown
        self.transport = transport
        reader = OperationReader(document, shown, settings.server)
        plans = reader.read()
        self.findings = [*document.findings, *reader.findings]
        is_lone = version.startswith(("2.", "3.0"))
        self.inputs = SchemaConverter(document, "input", lone_references=is_lone)
        self.outputs = SchemaConverter(document, "output", lone_references=is_lone)
        self.shared_outputs: dict[tuple[Any, ...], tuple[dict[str, Any], int]] = {}
        self.compiled_outputs: dict[int, CompiledSchema] = {}
        """By the id of a shared output schema."""
        self._placeable = MAX_PLACED
        self.version = _text(_info(document).get("version")) or None
        self.namespace = namespace or _slug(_text(_info(document).get("title")))
        if plans and any(not plan.operation.server for plan in plans):
            self.findings.append(Finding(shown, "warning", _NO_SERVER, path="/servers"))
        schemes = (
            need.scheme.name
            for plan in plans
            for needs in plan.operation.security
            for need in needs
        )
        for text in unused_credentials(settings.credentials, schemes):
            self.findings.append(
                Finding(shown, "warning", text, path="/components/securitySchemes")
            )
        servers = dict.fromkeys(plan.operation.server for plan in plans)
        self.settings = dataclasses.replace(settings, servers=tuple(filter(None, servers)))
        self.operations = [_ToolOperation(plan, self) for plan in plans]
        if document.broken:
            self.operations = [each for each in self.operations if self._is_whole(each)]

    def _is_whole(self, operation: _ToolOperation) -> bool:
        """False if the input of an operation has a reference that leads nowhere."""
        try:
            _ = operation.input
        except InvalidSchema as error:
            self.findings.append(operation.left_out(error))
            return False
        return True

    def tools(self) -> list[Tool]:
        """A tool for each operation."""
        made: list[Tool] = []
        for each in self.operations:
            try:
                made.append(each.tool())
            except InvalidTool as error:
                place = each.plan.operation.pointer
                self.findings.append(Finding(self.shown, "error", str(error), path=place))
        return made

    def examined(self) -> Tools:
        """The tools, with the findings about their schemas."""
        tools = self.tools()
        for each in self.operations:
            self.findings += each.examined()
        schemas = (*self.inputs.findings.values(), *self.outputs.findings.values())
        found = [
            *self.findings,
            *(replace(each, place=self._shown(each.place)) for each in schemas),
        ]
        return Tools(tools, map(self._placed, found))

    def _shown(self, file: str) -> str:
        return self.shown if file == self.document.root else file

    def _placed(self, finding: Finding) -> Finding:
        if finding.line is not None or finding.place != self.shown or self._placeable <= 0:
            return finding
        self._placeable -= 1
        return replace(finding, line=self.document.line_of(finding.path))


class _ToolOperation:
    """One operation: its tool, and its schemas, which are converted on first use."""

    def __init__(self, plan: OperationPlan, loaded: _LoadedDocument) -> None:
        self.plan = plan
        self._loaded = loaded
        self._reduced = 0
        self._trouble: InvalidSchema | None = None

    @cached_property
    def input(self) -> tuple[dict[str, Any], Operation]:
        """The input schema, and the operation with the schema of each argument.

        Raises:
            InvalidSchema: a schema cannot be converted.
        """
        operation, converter, uses = self.plan.operation, self._loaded.inputs, Uses()
        schemas: dict[str, Any] = {
            argument: converter.convert(target.value, target.file, target.pointer, uses)
            for argument, target in self.plan.inputs.items()
        }
        body = operation.body
        definitions = converter.reached(uses)
        if body is not None:
            given = schemas.get(body.argument, {})
            schemas[body.argument] = argument_schema(body, given, definitions)
        properties: dict[str, Any] = {}
        required: list[str] = []
        for each in operation.parameters:
            words = {"description": each.description} if each.description else {}
            if each.deprecated:
                words = {**words, "deprecated": True}
            properties[each.argument] = _described(schemas.get(each.argument, {}), words)
            if each.required:
                required.append(each.argument)
        if body is not None:
            words = {"description": body.description} if body.description else {}
            properties[body.argument] = _described(schemas.get(body.argument, {}), words)
            if body.required:
                required.append(body.argument)
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        if definitions:
            schema["$defs"] = definitions
        return schema, with_schemas(operation, schemas, definitions)

    @cached_property
    def output(self) -> dict[str, Any] | None:
        """The output schema; None if it is not known."""
        plan, converter, uses = self.plan, self._loaded.outputs, Uses()
        if not plan.outputs:
            return None
        parts: list[Json] = [
            converter.convert(target.value, target.file, target.pointer, uses)
            for target in plan.outputs
        ]
        if plan.may_be_empty:
            parts.append({"type": "null"})
        schema = parts[0] if len(parts) == 1 else {"anyOf": parts}
        if not is_object(schema):
            return None
        if plan.is_stream and schema.get("type") == "string":
            return None  # It describes the text of the stream, not the data of an event.
        # Many operations answer alike: they share the schema, and what is compiled of it.
        key = (json_text(schema), *uses.keys)
        shared = self._loaded.shared_outputs.get(key)
        if shared is None:
            shared = self._loaded.shared_outputs[key] = converter.bounded(schema, uses)
        bounded, self._reduced = shared
        return bounded

    def schemas(self) -> DeclaredSchemas:
        """The schemas before they are compiled."""
        try:
            schema, _ = self.input
        except InvalidSchema:
            schema = {"type": "object"}
        is_known = self.output is not None and not says_nothing(self.output)
        return DeclaredSchemas(schema, self.output, "cast" if is_known else "pass")

    def contract(self) -> Contract:
        """The contract; a schema that cannot be compiled never affects other tools."""
        try:
            schema, _ = self.input
            compiled = Contract(input=schema).compiled_input
        except InvalidSchema as error:
            self._trouble = error  # Every call reports it.
            return Contract()
        try:
            return Contract(input=compiled, output=self._compiled_output())
        except InvalidSchema:
            return Contract(input=compiled)

    def _compiled_output(self) -> CompiledSchema | None:
        output, shared = self.output, self._loaded.compiled_outputs
        if output is None:
            return None
        compiled = shared.get(id(output))
        if compiled is None:
            compiled = shared[id(output)] = compile_schema(output)
        return compiled

    @cached_property
    def _handler(self) -> Handler:
        _, operation = self.input
        loaded, is_stream = self._loaded, self.plan.is_stream
        return operation_handler(operation, loaded.transport, loaded.settings, is_stream=is_stream)

    def _ready(self) -> Handler:
        """The handler.

        Raises:
            UpstreamError: the schemas of the operation cannot be used; `contract` gave none then.
        """
        trouble: DeclarationError | None = self._trouble
        if trouble is None:
            try:
                return self._handler
            except DeclarationError as error:
                trouble = error
        raise UpstreamError(f"the declaration of this tool cannot be used: {trouble}")

    async def call(self, arguments: dict[str, Any], context: Context) -> Any:
        handler: Any = self._ready()
        return await handler(arguments, context)

    async def stream(
        self, arguments: dict[str, Any], context: Context
    ) -> AsyncGenerator[Any, None]:
        handler: Any = self._ready()
        async for value in handler(arguments, context):
            yield value

    def tool(self) -> Tool:
        """The tool.

        Raises:
            InvalidTool: it cannot be declared.
        """
        plan, loaded, operation = self.plan, self._loaded, self.plan.operation
        kind: Kind = "query" if operation.method in READING else "mutation"
        annotations: dict[str, Any] = {"readOnlyHint": operation.method in READING}
        if operation.method not in READING:
            annotations["destructiveHint"] = operation.method in _DESTRUCTIVE
            annotations["idempotentHint"] = operation.method in _REPEATABLE
        words = operation.description or operation.summary
        disabled, keys = Disabled("upstream_error", _NO_SERVER), dict[str, str]()
        if operation.server:
            security = operation_security(operation, loaded.transport, loaded.settings)
            disabled, keys = security.disabled(), dict(security.destinations())
        return Tool(
            id=f"{loaded.namespace}.{operation.name}",
            description=f"Deprecated. {words}".strip() if operation.deprecated else words,
            title=operation.summary or None,
            contract=Contract.later(self.contract, self.schemas),
            handler=self.stream if plan.is_stream else self.call,
            kind="subscription" if plan.is_stream else kind,
            tags=operation.tags,
            version=loaded.version,
            annotations=annotations,
            examples=plan.examples,
            source=f"{loaded.shown}#{operation.pointer}",
            disabled=disabled,
            keys=keys,
            origin=Origin(
                operation.method,
                operation.path,
                operation.operation_id or "",
                operation.deprecated,
            ),
            uses_client=False,
        )

    def left_out(self, error: InvalidSchema) -> Finding:
        """The finding about an operation whose input cannot be used."""
        operation = self.plan.operation
        text = f"{operation.method} {operation.path} is left out: {error.message}"
        return Finding(self._loaded.shown, "error", text, path=error.path or operation.pointer)

    def examined(self) -> Iterator[Finding]:
        """Findings of compiling its schemas."""
        operation, shown = self.plan.operation, self._loaded.shown
        name = f"{operation.method} {operation.path}"
        try:
            Contract(input=self.input[0])
        except InvalidSchema as error:
            text = f"{name} cannot be called: {error.message}"
            yield Finding(shown, "error", text, path=error.path or operation.pointer)
        try:
            self._compiled_output()
        except InvalidSchema as error:
            text = f"the output of {name} is not checked: {error.message}"
            yield Finding(shown, "warning", text, path=operation.pointer)
        if self._reduced:
            text = (
                f"the output schema of {name} is reduced: {self._reduced:,} definitions far from "
                "its root accept anything of their type"
            )
            yield Finding(shown, "info", text, path=operation.pointer)


def _described(schema: Json, words: dict[str, Any]) -> Json:
    """A schema with the words of its parameter, which are nearer than its own."""
    if not words:
        return schema
    return {**schema, **words} if is_object(schema) else words


def _info(document: ApiDocument) -> dict[str, Any]:
    info = document.data.get("info")
    return info if is_object(info) else {}


def _text(value: Any) -> str:
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_plain else ""


def _slug(title: str) -> str:
    words = _NOT_SLUG.sub("_", title.lower()).strip("_")
    if len(words) > MAX_NAMESPACE:
        words = words[: MAX_NAMESPACE + 1].rpartition("_")[0] or words[:MAX_NAMESPACE]
    return words or "api"


# --- opening ------------------------------------------------------------------------------------


async def from_openapi(
    document: str | Path | Mapping[str, Any],
    *,
    namespace: str | None = None,
    server: str | None = None,
    headers: Mapping[str, str] | None = None,
    security: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | Secrets | None = None,
    keys: Iterable[str] = (),
    pagination: Any = (),
    hosts: Iterable[str] = (),
    ref_hosts: Iterable[str] = (),
    transport: Transport | None = None,
) -> tuple[OpenApiSource, Tools]:
    """Read an OpenAPI document, and return the source with its tools; close the source when done.

    `document` is a path, an address, or the document as plain data. The namespace of the tools is
    made of the title unless it is given. `server` replaces the servers of the document. `headers`
    and `security`, which has a credential for each security scheme, may hold `${NAME}` for a key of
    `secrets`, or of the environment if `keys` names it. `pagination` has rules for merging pages.
    Private addresses are reached only if `hosts` names them; files of other hosts are read only if
    `ref_hosts` names these.

    Raises:
        SourceRefused: it cannot be read, or is not an OpenAPI document.
        InvalidConfig: a setting is malformed.
    """
    names = tuple(keys)
    if not isinstance(secrets, Secrets):
        secrets = Secrets(secrets, environ=os.environ, keys=map(key_name, names))
    source = OpenApiSource(
        document,
        transport=transport or HttpTransport(allow=hosts),
        settings=OperationSettings(
            server=server,
            headers=headers or {},
            credentials=read_credentials(security or {}),
            secrets=secrets,
            keys=names,
            pagination=read_pagination(pagination) if pagination else (),
        ),
        namespace=namespace,
        ref_hosts=ref_hosts,
    )
    try:
        return source, await source.load()
    except BaseException:
        await source.aclose()
        raise


async def check_openapi(document: str | Path | Mapping[str, Any]) -> Tools:
    """Check a document without fetching anything; the report of the tools has all findings.

    Raises:
        SourceRefused: it cannot be read, or is not an OpenAPI document.
    """
    source = OpenApiSource(document, transport=HttpTransport())
    try:
        return await source.check()
    finally:
        await source.aclose()


def open_openapi(opening: Opening) -> OpenApiSource:
    """The source behind `openapi:PATH` or `openapi:ADDRESS`.

    Raises:
        InvalidConfig: a setting is malformed.
    """
    ref = opening.ref
    return OpenApiSource(
        ref if is_address(ref) else (opening.folder or Path()) / ref,
        transport=HttpTransport(allow=opening.hosts, upstreams=opening.upstreams),
        settings=settings_from(opening, server=opening.server),
        namespace=opening.namespace,
        ref_hosts=opening.ref_hosts,
    )
