"""Recorded calls of tools with hooks, and whether callpact sends the same and gives the same.

The calls were recorded while the clock stood and `Math.random()` gave one number. So they are made
with copies of the files, in a temporary folder, to which a line is added that does the same in the
sandbox. The words in which an engine tells its own errors are not compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from recorded import (
    DEVIATIONS,
    Checkout,
    Outcome,
    Reference,
    Sent,
    file_of,
    name_of,
    recorded_of,
    refused_by_them,
    rejected,
    sent_of,
    told,
)

from callpact import CallError, Runtime, Tool
from callpact.errors import InvalidInput, UpstreamError
from callpact.net import Request
from callpact.sources.flowmcp.read.catalogue_files import (
    find_files,
    find_lists,
    list_folders,
    read_text,
)

HOOK_DEVIATIONS = {
    **DEVIATIONS,
    "libraries": "the sandbox has no such library: the tool is disabled with that reason",
    "library versions": "another version of a library computes otherwise",
    "nothing is kept": "hooks keep nothing between calls: what they remembered is fetched again",
    "content type": "the request that a hook is given has its content type (FlowMCP 02)",
    "missing response": "a postRequest that returns no `response` fails (seed 002, SEC101)",
    "errors are told": "a call that fails is an error, over MCP too, not the answer as it came",
}
CLOCK = (
    "\n;{ const at = Date.UTC( 2026, 0, 15, 12 ); Date = new Proxy( Date, { "
    "construct: ( target, given, made ) => Reflect.construct( target, given.length ? given : [ at ], "
    "made === Date ? target : made ), apply: () => new Date().toString() } ); "
    "Date.now = () => at; Math.random = () => 0.5 }\n"
)
_ENGINE = re.compile(
    r"Cannot (?:read|set|destructure|convert|mix)|Unexpected (?:token|end)|Invalid (?:array|time)"
    r"|[\w.$]+ is not (?:a function|iterable|defined|a constructor)|fetch failed|Failed to parse"
)
"""How Node begins to tell an error of its own; what follows is in the words of an engine."""
_ENGINE_ERRORS = frozenset({"TypeError", "ReferenceError", "SyntaxError", "RangeError"})
_HOOK_ERROR = re.compile(r"(preRequest|executeRequest|postRequest) error: (.*)", re.DOTALL)
_STATUS = re.compile(r"HTTP (\d{3}): ")
_ENVELOPE = {"status", "messages", "data", "dataAsString"}
_SHOWN = 300  # Messages of ours are cut some way behind.


def copy_files(path: Path, lists: Path | None, folder: Path) -> tuple[Path, Path]:
    """Copy a catalogue with the clock of the recordings; where its files are then, and its lists."""
    found = [each for each in find_files([path]) if each.trouble is None]
    for candidate in found:
        text = read_text(candidate.path)
        copy = _below(folder, candidate.path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        has_hooks = "export const handlers" in text
        copy.write_text(text + CLOCK if has_hooks else text, "utf-8", newline="")
    copied = folder / "lists"
    copied.mkdir()
    for place in list_folders(path, found, lists).values():
        for candidate in find_lists(place):
            copy = copied / candidate.path.name
            if not copy.exists():  # The first counts.
                copy.write_text(read_text(candidate.path), "utf-8", newline="")
    return _below(folder, path), copied


def _below(folder: Path, path: Path) -> Path:
    return folder.joinpath(*path.absolute().parts[1:])


class Canned:
    """Answers with what was recorded with the call under way, and keeps the requests."""

    def __init__(self) -> None:
        self.answer: Mapping[str, Any] = {}

    def respond(self, _request: Request) -> Mapping[str, Any]:
        """The recorded answer.

        Raises:
            UpstreamError: what was recorded is that none came.
        """
        if "networkError" in self.answer:
            raise UpstreamError("no answer", details={"reason": "network"})
        return {key: value for key, value in self.answer.items() if key != "statusText"}


class _Theirs(NamedTuple):
    """What the reference did."""

    requests: list[Sent]
    is_success: bool
    data: Any
    messages: list[str]
    is_refusal: bool = False
    """Its MCP server rejected the arguments."""


class _Ours(NamedTuple):
    requests: list[Sent]
    data: Any
    error: CallError | None


class HookedCalls:
    """The tools with hooks, ready to be compared with what was recorded."""

    def __init__(
        self, tools: Iterable[Tool], canned: Canned, requests: list[Request], rows: Iterable[Any]
    ) -> None:
        self._canned = canned
        self._requests = requests
        self._tools = {(file_of(tool), name_of(tool)): tool for tool in tools}
        self._checkout = Checkout(dict.fromkeys(file for file, _ in self._tools))
        self._runtime = Runtime(self._tools.values())
        self._remembered = {row["file"]: _theirs(row) for row in rows if _remembers(row)}

    async def compare(self, row: dict[str, Any]) -> Outcome:
        """Make the call, and compare all of it with what was recorded."""
        file = self._checkout.find(row)
        tool = None if file is None else self._tools.get((file, row["route"]))
        if file is None or tool is None:
            return Outcome(("not loaded",))
        if tool.disabled is not None:
            is_ruled = tool.disabled.reason.startswith("Its hooks")
            names = ("libraries",) if is_ruled else ()
            return Outcome(names, told=told(row, tool.disabled.reason, "an answer"))
        ours, theirs = await self._made(tool, row), _theirs(row)
        if isinstance(ours.error, InvalidInput):
            return rejected(ours.error, is_same=theirs.is_refusal)
        main = self._checkout.main(file)
        if theirs.is_refusal:
            return refused_by_them(row, main)
        remembered = self._remembered.get(row["file"])
        if remembered is not None and ours.requests and theirs[:3] == remembered[:3]:
            return Outcome(("nothing is kept",))
        found = _Compared(row, main)
        if found.explains(ours, theirs):
            return Outcome(tuple(sorted(found.names)), is_same=not found.names)
        shown = (ours.requests, ours.error or ours.data)
        return Outcome(told=told(row, shown, theirs))

    async def _made(self, tool: Tool, row: Mapping[str, Any]) -> _Ours:
        self._requests.clear()
        self._canned.answer = row["canned"]
        data, failed = None, None
        try:
            data = (await self._runtime.execute(tool.id, row["userParams"])).data
        except CallError as error:
            failed = error
        return _Ours([sent_of(request) for request in self._requests], data, failed)


def _remembers(row: Mapping[str, Any]) -> bool:
    """True if the reference answered well what could only fail: it asked at an earlier time."""
    theirs = _theirs(row)
    is_answer = theirs.is_success and not theirs.requests and bool(theirs.data)
    return is_answer and _is_bad(row["canned"])


def _is_bad(canned: Mapping[str, Any]) -> bool:
    return "networkError" in canned or canned["status"] >= 400


def _theirs(row: Mapping[str, Any]) -> _Theirs:
    requests = [recorded_of(request) for request in row["requests"]]
    if "envelope" in row:
        answer = row["envelope"]
        return _Theirs(requests, answer["status"], answer["data"], answer["messages"])
    text = row["result"]["text"]
    if row["result"]["isError"]:
        return _Theirs(requests, False, None, [text], is_refusal=True)
    data = json.loads(text)
    if isinstance(data, dict) and data.keys() == _ENVELOPE:
        answer = cast("dict[str, Any]", data)
        return _Theirs(requests, answer["status"], answer["data"], answer["messages"])
    return _Theirs(requests, True, data, [])


class _Compared:
    """One call of both sides, and the rules by which they differ."""

    def __init__(self, row: Mapping[str, Any], main: Any) -> None:
        self.names: set[str] = set()
        self._row = row
        self._main = main
        self._model = Reference(main, dict(row))
        self._model.request()  # Which finds the deviations.

    def explains(self, ours: _Ours, theirs: _Theirs) -> bool:
        """True if they are the same, or differ by rules, which `names` then has."""
        return self._requests(ours.requests, theirs.requests) and self._results(ours, theirs)

    def _requests(self, ours: list[Sent], theirs: list[Sent]) -> bool:
        if len(ours) != len(theirs):
            return False
        return all(self._request(*pair) for pair in zip(ours, theirs, strict=True))

    def _request(self, ours: Sent, theirs: Sent) -> bool:
        method, url, headers, body = ours
        kind = headers.get("content-type")
        if kind == "application/json" and "content-type" not in theirs[2] and self._is_given:
            self.names.add("content type")
            headers = {name: text for name, text in headers.items() if name != "content-type"}
        plain = (method, url, headers, body)
        if plain == theirs:
            return True
        self.names.update(self._model.deviations)
        return self._model.explains(plain, theirs)

    @property
    def _is_given(self) -> bool:
        """True if a hook is given a request with a body, to send it itself."""
        method = self._main["tools"][self._row["route"]]["method"]
        return "executeRequest" in self._row["handlers"] and method in {"POST", "PUT"}

    def _results(self, ours: _Ours, theirs: _Theirs) -> bool:
        if ours.error is None:
            return theirs.is_success and self._data(ours.data, theirs.data)
        if not theirs.is_success:
            return _same_failure(ours.error, theirs.messages)
        if "hook" not in ours.error.details or theirs.data not in ({}, self._came()):
            return False
        if ours.error.details.get("reason") == "SEC101":
            self.names.add("missing response")
        elif self._row["mode"] == "mcp":
            self.names.add("errors are told")
        else:
            return False
        return True

    def _came(self) -> Any:
        """What the upstream gave, as JSON; None if it gave none."""
        try:
            return json.loads(self._row["canned"].get("body", ""))
        except ValueError:
            return None

    def _data(self, ours: Any, theirs: Any) -> bool:
        if _alike(ours, theirs):
            return True
        touched = self._model.touched
        if touched and _alike(_without(ours, touched), _without(theirs, touched)):
            self.names.update(self._model.deviations)
            return True
        self.names.add("library versions")
        return bool(self._main.get("requiredLibraries"))


def _same_failure(error: CallError, messages: list[str]) -> bool:
    """True if both failed for the same reason, in whichever words."""
    details, first = error.details, messages[0]
    if isinstance(error, UpstreamError):
        status = _STATUS.match(first)
        if status is not None:
            return details.get("statusCode") == int(status[1])
        if first.startswith("No response"):
            return details.get("reason") == "network"
        return first.startswith("Invalid JSON") and details.get("reason") == "unreadable"
    thrown = _HOOK_ERROR.fullmatch(first)
    if thrown is None:  # What a hook says itself.
        return details.get("hook") == "executeRequest" and all(
            _plain(text) in error.message for text in messages
        )
    if details.get("hook") != thrown[1]:
        return False
    text = _plain(thrown[2])
    return text in error.message if text else details.get("reason") in _ENGINE_ERRORS


def _plain(text: str) -> str:
    """What stands before the words of an engine."""
    found = _ENGINE.search(text)
    return text[: found.start() if found else _SHOWN][:_SHOWN]


def _alike(ours: Any, theirs: Any) -> bool:
    """True if data is the same but for the words of engines; 1 and true are not."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_alike(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_alike, ours, theirs))
    if isinstance(ours, str) and isinstance(theirs, str) and _ENGINE.search(theirs):
        return ours.startswith(_plain(theirs))
    return isinstance(ours, bool) == isinstance(theirs, bool) and ours == theirs


def _without(data: Any, keys: set[str]) -> Any:
    if isinstance(data, list):
        return [_without(item, keys) for item in cast("list[Any]", data)]
    if isinstance(data, dict):
        members = cast("dict[str, Any]", data).items()
        return {key: _without(value, keys) for key, value in members if key not in keys}
    return data
