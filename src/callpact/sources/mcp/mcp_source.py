"""Other MCP servers as a source: `from_mcp`, and the references `mcp:` and `mcp-config:`.

Each server has a namespace, so that the name of a tool never depends on which other servers there
are. A server that is down leaves a warning, and its tools come when it answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from msgspec import UNSET, Struct, UnsetType

from callpact.catalog import Catalog
from callpact.context import Context, Identity
from callpact.envelope import MCPContentBlock, ResponseEnvelope, TextBlock, mcp_envelope
from callpact.errors import CallError, InvalidSchema, InvalidTool, SourceRefused, ToolError
from callpact.resources import NO_RESOURCE, CallerCompleter, Prompt, Resource
from callpact.schema import compile_schema, is_array, is_object
from callpact.schema.json_text import json_text
from callpact.secrets.keys import Secrets
from callpact.sources.base import Finding, Opening, PinMode, Tools
from callpact.sources.mcp.definitions import Definitions, read_definitions
from callpact.sources.mcp.pins import Lock, Part, PinChange, PinnedSource, compare, read_lock
from callpact.sources.mcp.server_settings import (
    ServerSettings,
    read_servers,
    settings_from,
    settings_of,
    with_keys,
)
from callpact.sources.mcp.session_pool import UpstreamPool
from callpact.tool import Contract, Disabled, Tool, wire_name

LOCK_FILE = "callpact.lock"
"""The file of pins, beside the configuration file."""
_NOT_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_OWN = {"name", "title", "description", "inputSchema", "outputSchema", "annotations"}
_VARIABLE = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")
_FROM_TEXT = "operations/dataFrom"


class McpSource:
    """The tools, resources and prompts of some servers."""

    def __init__(
        self,
        servers: Iterable[ServerSettings],
        *,
        pins: PinMode = "off",
        lock: Path = Path(LOCK_FILE),
    ) -> None:
        self.changed = asyncio.Event()
        """Set when the definitions of a server are others than the loaded ones."""
        self._servers = [_Server(UpstreamPool(each, self.changed.set)) for each in servers]
        self._pins = pins
        self._lock = lock
        self._tasks: set[asyncio.Task[None]] = set()

    async def load(self) -> Tools:
        """Read the definitions of all servers, side by side."""
        self.changed.clear()
        lock = Lock() if self._pins == "off" else read_lock(self._lock)
        loaded = await asyncio.gather(
            *(server.load(lock.sources.get(server.settings.name)) for server in self._servers)
        )
        if self._pins == "block":
            pairs = zip(loaded, self._servers, strict=True)
            loaded = [_blocked(each, server.pin_findings) for each, server in pairs]
        for server in self._servers:
            if server.is_down:
                self._wait_for(server)
        report = [finding for each in loaded for finding in each.report]
        return Tools(
            [tool for each in loaded for tool in each],
            report,
            _unique([resource for each in loaded for resource in each.resources], report),
            [prompt for each in loaded for prompt in each.prompts],
        )

    def _wait_for(self, server: _Server) -> None:
        """Try a server that is down again and again; it is loaded anew once it answers."""

        async def wait() -> None:
            while True:
                await asyncio.sleep(max(server.upstream.pause, 0.05))
                with contextlib.suppress(CallError):
                    await server.upstream.connection()
                    self.changed.set()
                    return

        if server.is_waited_for:
            return
        server.is_waited_for = True
        task = asyncio.create_task(wait(), name=f"callpact mcp waits {server.settings.name}")
        self._tasks.add(task)

        def done(ended: asyncio.Task[None]) -> None:
            self._tasks.discard(ended)
            server.is_waited_for = False

        task.add_done_callback(done)

    async def definitions(self) -> dict[str, Definitions]:
        """The definitions of each server by its namespace, as they are now.

        Raises:
            CallError: a server cannot be reached.
        """
        return {
            server.settings.name: await read_definitions(server.upstream)
            for server in self._servers
        }

    def catalog_of(self, name: str, definitions: Definitions) -> Catalog:
        """The tools, resources and prompts that a server would have by these definitions."""
        pool = next(server.pool for server in self._servers if server.settings.name == name)
        made = Builder(pool, definitions).build()
        return Catalog(made, resources=_unique([*made.resources], []), prompts=made.prompts)

    async def examine(self) -> list[ServerState]:
        """The state of each server as it is now; nothing is called but with arguments that break."""
        return list(await asyncio.gather(*(server.examine() for server in self._servers)))

    async def aclose(self) -> None:
        """Close the connections, and end the processes."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(server.pool.aclose() for server in self._servers))


def _pin_finding(place: str, change: PinChange) -> Finding:
    """A difference from a pin, with the command that shows and accepts it."""
    what = (
        "is not pinned yet" if change.kind == "added" else f"was {change.kind} since it was pinned"
    )
    text = f"{change.label} {what}; `callpact lock --accept {change.label}` shows and accepts it"
    return Finding(f"{place}:{change.name}", "warning", text)


def _blocked(loaded: Tools, findings: Mapping[tuple[Part, str], Finding]) -> Tools:
    """The same tools, resources and prompts; those that differ from their pins are disabled."""

    def checked(tool: Tool, *parts: Part) -> Tool:
        for part in parts:
            if (found := findings.get((part, tool.source))) is not None:
                return replace(tool, disabled=Disabled("upstream_error", found.message))
        return tool

    return Tools(
        [checked(tool, "tool") for tool in loaded],
        loaded.report,
        [replace(r, tool=checked(r.tool, "resource", "template")) for r in loaded.resources],
        [replace(prompt, tool=checked(prompt.tool, "prompt")) for prompt in loaded.prompts],
    )


def _unique(resources: list[Resource], report: list[Finding]) -> list[Resource]:
    """The resources without those whose address another server has already; these are reported."""
    first: dict[str, Resource] = {}
    for resource in resources:
        other = first.setdefault(resource.uri, resource)
        if other is not resource:
            text = f"the resource {resource.uri} of {resource.tool.id} is left out: {other.tool.id} has it"
            report.append(Finding(resource.tool.source, "warning", text))
    return list(first.values())


class ServerState(Struct, frozen=True):
    """A server as `callpact doctor` finds it."""

    name: str
    definitions: Definitions | None
    """None if it could not be reached."""
    error: str = ""
    bad_arguments: str = ""
    """How it answers a tool that it does not have."""


class _Server:
    """One server, and the tools that it had when it last answered."""

    def __init__(self, pool: UpstreamPool) -> None:
        self.pool = pool
        self.upstream = pool.shared
        self.settings = pool.settings
        self.is_down = False
        self.is_waited_for = False
        self.pin_findings: dict[tuple[Part, str], Finding] = {}
        """The definitions that differ from their pins."""
        self._last = Tools()

    async def load(self, pinned: PinnedSource | None = None) -> Tools:
        """Its tools; of a server that is down those from before, disabled, and a warning."""
        try:
            found = await read_definitions(self.upstream)
        except CallError as error:
            self.is_down = True
            lists = "; its lists are read with headers or oauth, not with credentials of callers"
            hint = lists if self.settings.is_per_caller else ""
            reason = f"{error}; its tools come back when it answers{hint}"
            disabled = Disabled("upstream_error", str(error))
            return Tools(
                [replace(tool, disabled=disabled) for tool in self._last],
                [Finding(self.settings.place, "warning", reason, is_left_out=not self._last)],
            )
        self.is_down = False
        self._last = Builder(self.pool, found).build()
        changes = () if pinned is None else compare(pinned, cast("Any", found.plain()))
        findings = [_pin_finding(self.settings.place, each) for each in changes]
        self.pin_findings = {
            (change.part, found.place): found
            for change, found in zip(changes, findings, strict=True)
        }
        self._last.report += tuple(findings)
        return self._last

    async def examine(self) -> ServerState:
        """Read its definitions, and call a tool that it does not have."""
        name = self.settings.name
        try:
            found = await read_definitions(self.upstream)
        except CallError as error:
            return ServerState(name, None, str(error))
        params: dict[str, Any] = {"name": "callpact-no-such-tool", "arguments": {}}
        try:
            result = await self.upstream.request("tools/call", params)
        except CallError as error:
            code = error.details.get("code") if is_object(error.details) else None
            answer = "an error of the protocol" if code is not None else error.message
        else:
            is_error = result.get("isError") is True
            answer = "an error result" if is_error else "a success, as if they were right"
        return ServerState(name, found, "", answer)


class Builder:
    """Makes Tools, Resources and Prompts of the definitions of one server."""

    def __init__(self, pool: UpstreamPool, found: Definitions) -> None:
        self._pool = pool
        self._found = found
        self._namespace = pool.settings.name
        self._place = pool.settings.place
        self._report: list[Finding] = []
        self._ids: dict[str, str] = {}

    def build(self) -> Tools:
        """Everything that can be made; an entry that cannot be used is reported and left out."""
        tools = self._each(self._found.tools, self._tool)
        resources = [
            *self._each(self._found.resources, self._resource),
            *self._each(self._found.templates, self._template),
        ]
        prompts = self._each(self._found.prompts, self._prompt)
        self._report += (Finding(self._place, "warning", note) for note in self._found.notes)
        return Tools(tools, self._report, resources, prompts)

    def _each(
        self, entries: Iterable[dict[str, Any]], make: Callable[[dict[str, Any]], Any]
    ) -> list[Any]:
        made: list[Any] = []
        for entry in entries:
            name = str(entry.get("name") or entry.get("uri") or "")[:200]
            try:
                made.append(make(entry))
            except (InvalidTool, InvalidSchema) as error:
                self._report.append(Finding(f"{self._place}:{name}", "error", str(error)))
        return made

    def _id(self, name: str, kind: str) -> str:
        """The id of an entry; two names that differ only in odd characters collide, which is an error."""
        made = f"{self._namespace}.{_NOT_NAME.sub('_', name).strip('_') or kind}"
        first = self._ids.setdefault(made, name)
        if first != name or self._ids.get(f"{made}\n{kind}") is not None:
            raise InvalidTool(f"'{name}' would be {made}, as '{first}' already is")
        self._ids[f"{made}\n{kind}"] = name
        return made

    def _tool(self, entry: dict[str, Any]) -> Tool:
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidTool(f"a tool has no name: {json_text(entry)[:200]}")
        if not is_object(entry.get("inputSchema")):
            raise InvalidTool("inputSchema must be an object schema")
        if (reason := find_invalid_x_mcp_header(entry["inputSchema"])) is not None:
            raise InvalidTool(f"x-mcp-header cannot be used: {reason}")
        annotations = entry.get("annotations")
        known = dict(annotations) if is_object(annotations) else {}
        tool_id = self._id(name, "tool")
        description, title = entry.get("description"), entry.get("title")
        return Tool(
            id=tool_id,
            description=description if isinstance(description, str) else "",
            title=title if isinstance(title, str) else None,
            contract=Contract(input=entry["inputSchema"], output=self._output(entry, tool_id)),
            handler=self._handler(entry, name),
            kind="query" if known.get("readOnlyHint") is True else "mutation",
            annotations=known,
            definition={key: value for key, value in entry.items() if key not in _OWN},
            source=f"{self._place}:{name}",
            timeout=self._pool.settings.call_seconds,
            wire_name=wire_name(tool_id.replace(".", "_")),
        )

    def _output(self, entry: dict[str, Any], tool_id: str) -> Any:
        """The output schema; None, with a warning, if it cannot be used (seed 001)."""
        schema = entry.get("outputSchema")
        if schema is None:
            return None
        try:
            compile_schema(schema)
        except InvalidSchema as error:
            text = f"{tool_id}: its output schema cannot be used, so its output is not checked: {error}"
            self._report.append(Finding(f"{self._place}:{entry['name']}", "warning", text))
            return None
        return schema

    def _handler(self, entry: dict[str, Any], name: str) -> Any:
        pool = self._pool
        header_map = x_mcp_header_map(entry["inputSchema"]) or None
        output = entry.get("outputSchema")

        async def call(arguments: dict[str, Any], context: Context) -> ResponseEnvelope[Any]:
            # Nothing of the caller goes along, such as metadata; its identity selects a session.
            params: dict[str, Any] = {"name": name, "arguments": arguments}
            result = await pool.request(
                "tools/call", params, context=context, header_map=header_map
            )
            return envelope_of(result, output)

        return call

    def _resource(self, entry: dict[str, Any]) -> Resource:
        return self._readable(entry, str(entry.get("uri") or ""))

    def _template(self, entry: dict[str, Any]) -> Resource:
        return self._readable(entry, str(entry.get("uriTemplate") or ""))

    def _readable(self, entry: dict[str, Any], uri: str) -> Resource:
        pool, name = self._pool, str(entry.get("name") or uri)
        variables = [found[1] for found in _VARIABLE.findall(uri)]
        properties = {each: {"type": "string"} for each in variables}
        schema = {"type": "object", "properties": properties, "required": variables}

        async def read(arguments: dict[str, Any], context: Context) -> Any:
            params = {"uri": resource.address(arguments) if variables else uri}
            result = await pool.request("resources/read", params, context=context)
            contents = result.get("contents")
            if not is_array(contents) or not contents:
                raise ToolError(NO_RESOURCE, f"{params['uri']}: nothing is there")
            data = [dict(each) for each in contents if is_object(each)]
            return mcp_envelope(data, is_error=False, content=[], meta_ext=_meta_of(result))

        mime, size = entry.get("mimeType"), entry.get("size")
        resource = Resource(
            uri=uri,
            tool=Tool(
                id=self._id(name, "resource"),
                description=str(entry.get("description") or ""),
                title=entry["title"] if isinstance(entry.get("title"), str) else None,
                contract=Contract(input=schema),
                handler=read,
                kind="query",
                annotations=entry["annotations"] if is_object(entry.get("annotations")) else {},
                source=f"{self._place}:{uri}",
            ),
            mime_type=mime if isinstance(mime, str) else None,
            size=size if isinstance(size, int) else None,
            completions={each: self._completer("ref/resource", uri, each) for each in variables},
            follow=pool.follow,
        )
        return resource

    def _prompt(self, entry: dict[str, Any]) -> Prompt:
        pool, name = self._pool, entry.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidTool("a prompt has no name")
        given = entry.get("arguments")
        arguments = [each for each in given if is_object(each)] if is_array(given) else []
        names = [str(each.get("name")) for each in arguments]
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                str(each.get("name")): {
                    "type": "string",
                    "description": str(each.get("description") or ""),
                }
                for each in arguments
            },
            "required": [
                str(each.get("name")) for each in arguments if each.get("required") is True
            ],
        }

        async def fill(values: dict[str, Any], context: Context) -> Any:
            params = {"name": name, "arguments": values}
            result = await pool.request("prompts/get", params, context=context)
            messages = result.get("messages")
            data = messages if is_array(messages) else []
            return mcp_envelope(data, is_error=False, content=[], meta_ext=_meta_of(result))

        return Prompt(
            tool=Tool(
                id=self._id(name, "prompt"),
                description=str(entry.get("description") or ""),
                title=entry["title"] if isinstance(entry.get("title"), str) else None,
                contract=Contract(input=schema),
                handler=fill,
                kind="query",
                source=f"{self._place}:{name}",
            ),
            completions={each: self._completer("ref/prompt", name, each) for each in names},
        )

    def _completer(self, kind: str, name: str, argument: str) -> CallerCompleter:
        key = "uri" if kind == "ref/resource" else "name"

        async def complete(
            text: str, others: Mapping[str, str], identity: Identity | None
        ) -> list[str]:
            params: dict[str, Any] = {
                "ref": {"type": kind, key: name},
                "argument": {"name": argument, "value": text},
            }
            if others:
                params["context"] = {"arguments": dict(others)}
            result = await self._pool.request("completion/complete", params, identity=identity)
            completion = result.get("completion")
            values = completion.get("values") if is_object(completion) else None
            return [each for each in values if isinstance(each, str)] if is_array(values) else []

        return CallerCompleter(complete)


# --- results --------------------------------------------------------------------------------


def envelope_of(result: Mapping[str, Any], output: Any = None) -> ResponseEnvelope[Any]:
    """The envelope of a `CallToolResult` (seed 001): `structuredContent`, else the content blocks.

    JSON in the only text block is data where an output schema asks for an object or a list.
    """
    found = result.get("content")
    blocks = content_blocks(found if is_array(found) else [])
    is_error = result.get("isError") is True
    meta = _meta_of(result)
    structured = result.get("structuredContent")
    if structured is not None:
        return mcp_envelope(
            structured,
            is_error=is_error,
            content=blocks,
            structured_content=structured,
            meta_ext=meta,
        )
    if not is_error and (read := _read_text(blocks, output)) is not None:
        noted = {**({} if meta is UNSET else meta), _FROM_TEXT: "text-json"}
        return mcp_envelope(read, is_error=False, content=blocks, meta_ext=noted)
    return mcp_envelope(blocks, is_error=is_error, content=blocks, meta_ext=meta)


def _meta_of(result: Mapping[str, Any]) -> dict[str, Any] | UnsetType:
    """The `_meta` of a result; it is passed on, and no part of the data."""
    meta = result.get("_meta")
    return dict(meta) if is_object(meta) else UNSET


def content_blocks(found: Iterable[Any]) -> list[MCPContentBlock]:
    """Content blocks one to one; a block of an unknown kind becomes text with its JSON."""
    blocks: list[MCPContentBlock] = []
    for each in found:
        try:
            blocks.append(cast("MCPContentBlock", msgspec.convert(each, MCPContentBlock)))
        except (msgspec.ValidationError, TypeError):
            blocks.append(TextBlock(json_text(each)))
    return blocks


def _read_text(blocks: list[MCPContentBlock], output: Any) -> Any:
    """JSON in the only block, if its root is what the output schema's root wants."""
    if not is_object(output) or len(blocks) != 1 or not isinstance(blocks[0], TextBlock):
        return None
    wanted = output.get("type")
    kinds = wanted if is_array(wanted) else [wanted]
    try:
        read: Any = msgspec.json.decode(blocks[0].text)
    except (ValueError, RecursionError):
        return None
    is_wanted = (is_object(read) and "object" in kinds) or (is_array(read) and "array" in kinds)
    return read if is_wanted else None


# --- opening --------------------------------------------------------------------------------


async def from_mcp(
    server: str | Iterable[str] | Mapping[str, Any] | Path,
    *,
    namespace: str | None = None,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    hosts: Iterable[str] = (),
    auth: Any = None,
    secrets: Mapping[str, str] | None = None,
) -> tuple[McpSource, Tools]:
    """Connect to MCP servers, and return the source with its tools; close the source when done.

    `server` is an address, a command (a text, or a list of its words), the `mcpServers` of a
    client's configuration, or the path of such a file. Private addresses are reached only if
    `hosts` names them. `auth` is an `httpx2.Auth` that authorizes the requests to an address, such
    as the SDK's `OAuthClientProvider`. `${NAME}` in arguments, environment and headers is a key of
    `secrets`.

    Raises:
        DeclarationError: it cannot be read, or a key is missing.
    """
    if isinstance(server, Path):
        found = read_servers(server)
    elif isinstance(server, Mapping):
        found = settings_from(cast("Mapping[str, Any]", server), "mcp")
    elif isinstance(server, str):
        found = (settings_of(server, namespace=namespace),)
    else:
        words = tuple(server)
        first = settings_of(" ".join(words[:1]) or "", namespace=namespace)
        found = (msgspec.structs.replace(first, command=words),)
    keys = Secrets(dict(secrets or {}))
    ready = [
        with_keys(
            msgspec.structs.replace(
                each,
                env={**each.env, **(env or {})},
                headers={**each.headers, **(headers or {})},
                hosts=tuple(hosts),
                auth=auth,
            ),
            keys,
        )
        for each in found
    ]
    source = McpSource(ready)
    return source, await source.load()


def open_mcp(opening: Opening) -> McpSource:
    """The source behind `mcp:ADDRESS` or `mcp:COMMAND`.

    Raises:
        DeclarationError: it cannot be read, or a key is missing.
    """
    settings = settings_of(opening.ref, namespace=opening.namespace, folder=opening.folder)
    return _opened((settings,), opening)


def open_mcp_config(opening: Opening) -> McpSource:
    """The source behind `mcp-config:PATH`, a client's file with `mcpServers`.

    Raises:
        DeclarationError: it cannot be read, or a key is missing.
    """
    if opening.callers or opening.oauth is not None:
        raise SourceRefused(
            f"mcp-config:{opening.ref}: callers and oauth are for one server, and a file has several; "
            "name the server, as in mcp:https://host/mcp"
        )
    return _opened(read_servers((opening.folder or Path()) / opening.ref), opening)


def _opened(servers: Iterable[ServerSettings], opening: Opening) -> McpSource:
    return McpSource(
        [
            with_keys(
                msgspec.structs.replace(
                    each,
                    hosts=opening.hosts,
                    headers={**each.headers, **opening.headers},
                    env={**each.env, **opening.env},
                    callers=opening.callers,
                    oauth=opening.oauth,
                ),
                opening.secrets,
                opening.keys,
            )
            for each in servers
        ],
        pins=opening.pins,
        lock=(opening.folder or Path()) / LOCK_FILE,
    )
