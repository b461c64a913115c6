"""FlowMCP files as Tools: `from_flowmcp` reads, checks and loads a file or a whole catalogue.

One bad file never stops the others; what happened to each stands in the report. Nothing of a file
is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from callpact.errors import DeclarationError, SourceRefused, UpstreamError
from callpact.net import HttpTransport, Response, Transport
from callpact.secrets import Secrets
from callpact.sources.flowmcp.answer import read_answer
from callpact.sources.flowmcp.checking import Checked, ListFile, check_text, read_list
from callpact.sources.flowmcp.output import mime_type, output_schema
from callpact.sources.flowmcp.parameters import (
    Parameter,
    argument_aliases,
    input_schema,
    read_parameters,
)
from callpact.sources.flowmcp.request import RequestPlan, missing_secret, plan_request, seal
from callpact.sources.loaded import Finding, Opening, Tools
from callpact.tool import Context, Contract, Disabled, Handler, Kind, Tool, wire_name

Profile = Literal["strict", "compat"]
_NOT_ID = re.compile(r"[^A-Za-z0-9_-]+")
_LIST_FOLDERS = ("_lists", "_shared")
_SKIPPED = frozenset({"node_modules", "tests", *_LIST_FOLDERS})


class FlowMCPTools(Tools):
    """The tools of FlowMCP files, their report, and the connections they hold."""

    def __init__(
        self, tools: Iterable[Tool], report: Iterable[Finding], transport: Transport
    ) -> None:
        super().__init__(tools, report)
        self._transport = transport

    async def aclose(self) -> None:
        """Close the connections to upstreams."""
        await self._transport.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loading:
    """What every file of one loading shares."""

    profile: Profile
    lists: Mapping[str, ListFile]
    libraries: frozenset[str]
    secrets: Secrets
    transport: Transport


def from_flowmcp(
    path: str | Path,
    *,
    profile: Profile = "compat",
    lists: str | Path | None = None,
    libraries: Iterable[str] = (),
    secrets: Mapping[str, str] | Secrets | None = None,
    transport: Transport | None = None,
) -> FlowMCPTools:
    """Make Tools of a FlowMCP file, or of every one in a folder.

    `lists` is a folder of shared lists, beside those that the catalogue has itself (`_lists`).
    `libraries` extends the six that hooks may use; `*` allows all. `secrets` come before the
    environment.

    Raises:
        SourceRefused: there is no such file or folder, or no FlowMCP file in it.
    """
    root = Path(path)
    files = _files(root)
    report: list[Finding] = []
    loading = _Loading(
        profile=profile,
        lists=_read_lists(root, lists, report),
        libraries=frozenset(libraries),
        secrets=_known(secrets),
        transport=HttpTransport() if transport is None else transport,
    )
    loaded = [tool for file in files for tool in _load(file, loading, report)]
    return FlowMCPTools(_apart(loaded, report), report, loading.transport)


def _known(secrets: Mapping[str, str] | Secrets | None) -> Secrets:
    return secrets if isinstance(secrets, Secrets) else Secrets(secrets, environ=os.environ)


def _files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise SourceRefused(f"flowmcp:{root} does not exist")
    files = sorted(
        file
        for file in root.rglob("*.mjs")
        if not _SKIPPED & set(file.relative_to(root).parts[:-1])
    )
    if not files:
        raise SourceRefused(f"flowmcp:{root} holds no .mjs file")
    return files


def _read_lists(root: Path, given: str | Path | None, report: list[Finding]) -> dict[str, ListFile]:
    base = root if root.is_dir() else root.parent
    folders = [base / name for name in _LIST_FOLDERS]
    folders += [parent / name for parent in base.parents[:3] for name in _LIST_FOLDERS]
    if given is not None:
        folders.insert(0, Path(given))
        if not Path(given).is_dir():
            raise SourceRefused(f"lists: {given} is not a folder")
    found: dict[str, ListFile] = {}
    for file in (
        file for folder in folders if folder.is_dir() for file in sorted(folder.glob("*.mjs"))
    ):
        text = _text(file, report)
        if text is None:
            continue
        read = read_list(text, str(file))
        report.extend(read.findings)
        if read.list is not None:
            found.setdefault(read.list.name, read.list)
    return found


def _text(file: Path, report: list[Finding]) -> str | None:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        report.append(Finding(str(file), "error", f"it cannot be read: {error}"))
        return None


def _load(file: Path, loading: _Loading, report: list[Finding]) -> list[_Loaded]:
    text = _text(file, report)
    if text is None:
        return []
    checked = check_text(
        text,
        file=str(file),
        profile=loading.profile,
        lists=loading.lists,
        libraries=loading.libraries,
    )
    main = checked.manifest
    if main is None:
        report.extend(checked.findings)
        return []
    report.extend(checked.unplaced)  # The lines of mere warnings cost more than all the rest.
    found: list[_Loaded] = []
    for name, declared in main["tools"].items():
        try:
            found.append(_Loaded(name, file.stem, _tool(name, declared, checked, loading, file)))
        except DeclarationError as error:
            report.append(Finding(str(file), "error", f"tool '{name}': {error}"))
    return found


@dataclass(frozen=True, slots=True)
class _Loaded:
    name: str
    file: str
    tool: Tool


def _tool(
    name: str, declared: Mapping[str, Any], checked: Checked, loading: _Loading, file: Path
) -> Tool:
    main = cast("dict[str, Any]", checked.manifest)
    making = _Making(main, declared, checked.shared_lists)
    namespace = main["namespace"]
    meta: dict[str, Any] = declared.get("meta") or main.get("meta") or {}
    is_read = declared["method"] == "GET"
    kind: Kind = "query" if is_read else "mutation"
    return Tool(
        id=f"{namespace}.{_NOT_ID.sub('_', name).strip('_') or 'tool'}",
        description=declared["description"],
        contract=making.contract() if making.has_patterns else Contract.later(making.contract),
        handler=_handler(making, loading),
        title=f"{main['name']}: {name}",
        tags=tuple(main.get("tags", ())),
        aliases=(f"{namespace}/{file.stem}::{name}",),
        version=main.get("schemaVersion", "1.0.0"),
        kind=kind,
        annotations={
            "readOnlyHint": meta.get("isReadOnly", is_read),
            "destructiveHint": meta.get("isDestructive", not is_read),
            "openWorldHint": True,
        },
        examples=tuple(declared.get("tests", ())),
        source=f"flowmcp:{file}",
        wire_name=wire_name(f"{name}_{namespace}"),
        argument_aliases=argument_aliases(making.parameters) if making.has_placeholders else {},
        disabled=_disabled(name, checked, loading.secrets),
    )


@dataclass(frozen=True)
class _Making:
    """What a tool is made of, each part when it is first needed: most tools are never called."""

    main: Mapping[str, Any]
    declared: Mapping[str, Any]
    lists: Mapping[str, Any]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        secrets = self.main.get("requiredServerParams", ())
        return read_parameters(self.declared["parameters"], secrets, self.lists)

    @cached_property
    def plan(self) -> RequestPlan:
        return plan_request(self.main, self.declared, self.parameters)

    @property
    def has_patterns(self) -> bool:
        """True if a schema holds what may not compile."""
        options = (block["z"].get("options", ()) for block in self.declared["parameters"])
        return any(option.startswith("regex") for given in options for option in given)

    @property
    def has_placeholders(self) -> bool:
        """True if a value holds a placeholder of its own."""
        values = (block["position"]["value"] for block in self.declared["parameters"])
        return any("{{" in value and value != "{{USER_PARAM}}" for value in values)

    def contract(self) -> Contract:
        output = output_schema(self.declared.get("output"))
        return Contract(
            input=input_schema(self.parameters),
            output=output,
            policy=None if output is None else "warn",
        )


def _disabled(name: str, checked: Checked, secrets: Secrets) -> Disabled | None:
    main = cast("dict[str, Any]", checked.manifest)
    for key in main.get("requiredServerParams", ()):
        if secrets.get(key) is None:
            missing = missing_secret(key)
            return Disabled(missing.code, missing.message)
    if name in checked.hooked:
        libraries = main.get("requiredLibraries") or ()
        needs = f" and the libraries {', '.join(libraries)}" if libraries else ""
        return Disabled("handler_error", f"It needs its hooks{needs}, which are not run yet")
    return None


def _handler(making: _Making, loading: _Loading) -> Handler:
    secrets, transport = loading.secrets, loading.transport
    mime = mime_type(making.declared.get("output"))

    async def call(arguments: dict[str, Any], context: Context) -> Any:
        plan = making.plan
        request = seal(plan.draft(arguments), secrets.get)
        if not plan.secrets:
            return read_answer(await transport.send(request, deadline=context.deadline), mime)
        used = Secrets({name: value for name in plan.secrets if (value := secrets.get(name))})
        try:
            response = await transport.send(request, deadline=context.deadline)
            return read_answer(_masked(response, used), mime)
        except UpstreamError as error:
            details = secrets.mask_data(error.details)
            raise UpstreamError(secrets.mask(error.message), details=details) from None

    return call


def _masked(response: Response, used: Secrets) -> Response:
    """The answer without the secrets that were sent: some upstreams echo them."""
    body = response.body
    try:
        text = body.decode()
    except UnicodeDecodeError:
        pass
    else:
        shown = used.mask(text)
        body = body if shown == text else shown.encode()
    return msgspec.structs.replace(response, headers=used.mask_data(response.headers), body=body)


class FlowMCPSource:
    """A FlowMCP file or a folder of them."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._tools: FlowMCPTools | None = None

    async def load(self) -> Tools:
        """Read every file.

        Raises:
            SourceRefused: there is no such file or folder.
        """
        given = self._opening
        self._tools = from_flowmcp(
            (given.folder or Path()) / given.ref,
            profile=cast("Profile", given.profile or "compat"),
            lists=given.lists,
            libraries=given.libraries,
            secrets=given.secrets,
            transport=HttpTransport(allow=given.hosts, upstreams=given.upstreams),
        )
        return self._tools

    async def aclose(self) -> None:
        """Close the connections to upstreams."""
        if self._tools is not None:
            await self._tools.aclose()


def open_flowmcp(opening: Opening) -> FlowMCPSource:
    """The source behind `flowmcp:` references."""
    return FlowMCPSource(opening)


def _apart(loaded: list[_Loaded], report: list[Finding]) -> list[Tool]:
    """Tools of one name in several files get the file's name into theirs, each with a warning."""
    count: dict[str, int] = {}
    for item in loaded:
        count[item.tool.id] = count.get(item.tool.id, 0) + 1
    tools: list[Tool] = []
    for item in loaded:
        tool = item.tool
        if count[tool.id] > 1:
            file = _NOT_ID.sub("_", item.file).strip("_") or "file"
            new = f"{tool.namespace}.{file}.{tool.name}"
            text = f"'{tool.id}' is in {count[tool.id]} files; here it is '{new}'"
            report.append(Finding(tool.source.removeprefix("flowmcp:"), "warning", text))
            name = wire_name(f"{item.name}_{file}_{tool.namespace}")
            tool = replace(tool, id=new, wire_name=name)
        tools.append(tool)
    return tools
