"""Recorded calls of the JavaScript runtime of FlowMCP, and whether callpact sends the same.

This is of tools without hooks; what hooks add stands in `recorded_hooks.py`. What is sent otherwise
must follow from a rule: `Reference` sends as that runtime does and knows by which of its habits.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from callpact import CallError, Runtime, Tool
from callpact.net import Request
from callpact.sources.flowmcp.build.source import FlowMCPTools
from callpact.sources.flowmcp.http.request import as_text
from callpact.sources.flowmcp.read.catalogue_files import read_text
from callpact.sources.flowmcp.read.literal import read_exports
from callpact.testing import StubTransport

DEVIATIONS = {
    "defaults": "a default is sent when the argument is left out (FlowMCP 02)",
    "default types": "a default is of the type of its primitive (FlowMCP 02)",
    "encoding": "what a segment of a path may not hold (RFC 3986) is percent-encoded when it is inserted",
    "duplicates": "query keys that are declared twice are sent twice, in their order (FlowMCP 02)",
    "placeholders": "{{NAME}} that is no server parameter is an argument of the caller (VAL091)",
    "patterns": "a value is sent as it is: `$&` in it is no pattern",
    "left out": "an optional part of the path that is left out leaves no trace (FlowMCP 02)",
    "fixed values": "fixed values and server parameters are not asked of the caller (seed 002)",
    "shared lists": "an enum() of a shared list takes the values of the list (seed 002)",
    "values()": "an empty enum() takes its values from values(…) (VAL095)",
    "undeclared keys": "a key that is not declared is rejected at the gate: the schema is closed",
    "missing keys": "a required key that is missing is rejected at the gate (FlowMCP 02)",
    "wrong values": "a value that breaks its `z` is rejected at the gate (FlowMCP 02)",
    "not loaded": "the file breaks a rule and is not loaded",
}
_GATE = {"additionalProperties": "undeclared keys", "required": "missing keys"}
_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
_PATTERN = re.compile(r"\$([$&`'])")


@dataclass(frozen=True)
class Outcome:
    """What became of one recorded call: compared or not; the same, or explained, or told."""

    deviations: tuple[str, ...] = ()
    is_same: bool = False
    is_compared: bool = True
    told: str = ""

    @property
    def kind(self) -> str:
        """In one word."""
        if not self.is_compared:
            return "absent"
        return "same" if self.is_same else "ruled" if self.deviations else "unexplained"


def rows_of(file: Path) -> Iterator[dict[str, Any]]:
    """Every recorded call of a file."""
    data = file.read_bytes()
    text = gzip.decompress(data) if file.suffix == ".gz" else data
    yield from (json.loads(line) for line in text.splitlines() if line.strip())


class Checkout:
    """The files of a catalogue, as records name them."""

    def __init__(self, files: Iterable[str]) -> None:
        self._files = list(files)
        self._mains: dict[str, Any] = {}

    def find(self, row: Mapping[str, Any]) -> str | None:
        """The file of a recorded call; None if it is not there."""
        name = "/" + row["file"]
        return next((file for file in self._files if Path(file).as_posix().endswith(name)), None)

    def main(self, file: str) -> Any:
        """What a file declares."""
        if file not in self._mains:
            self._mains[file] = read_exports(read_text(Path(file))).values["main"]
        return self._mains[file]


class Known:
    """The tools by file and name, ready to be compared with what was recorded."""

    def __init__(self, tools: FlowMCPTools, transport: StubTransport, files: list[str]) -> None:
        self._transport = transport
        self._checkout = Checkout(files)
        # Whether a tool may have hooks is a guess by its name; the records know.
        self._tools = {
            (file_of(tool), name_of(tool)): replace(tool, disabled=None) for tool in tools
        }
        self._runtime = Runtime(self._tools.values())

    async def compare(self, row: dict[str, Any]) -> Outcome:
        """Make the call, and compare what is sent with what was recorded."""
        file = self._checkout.find(row)
        if file is None:
            return Outcome(is_compared=False)
        tool = self._tools.get((file, row["route"]))
        if tool is None:
            return Outcome(("not loaded",))
        made = await self._sent(tool, row["userParams"])
        theirs = row["requests"][0] if row["requests"] else None
        if isinstance(made, CallError):
            return rejected(made, is_same=theirs is None)
        main = self._checkout.main(file)
        if theirs is None:
            return refused_by_them(row, main)
        ours, recorded = sent_of(made), recorded_of(theirs)
        if ours == recorded:
            return Outcome(is_same=True)
        model = Reference(main, row)
        if model.request() == recorded and model.explains(ours, recorded):
            return Outcome(tuple(sorted(model.deviations)))
        return Outcome(told=told(row, ours, recorded))

    async def _sent(self, tool: Tool, arguments: dict[str, Any]) -> Request | CallError:
        self._transport.requests.clear()
        try:
            await self._runtime.execute(tool.id, arguments)
        except CallError as error:
            return error
        return self._transport.requests[0]


def refused_by_them(row: Mapping[str, Any], main: Any) -> Outcome:
    """The reference asked over MCP for what the caller cannot give, or knew no value."""
    declared = {
        block["position"]["key"]: block for block in main["tools"][row["route"]]["parameters"]
    }
    text = row.get("result", {}).get("text", "")
    issues = json.loads(text[text.index("[") :]) if "[" in text else []
    names = {_why_refused(declared.get(issue["path"][0])) for issue in issues}
    if not names or "" in names:
        return Outcome(told=told(row, "a request", text[:300]))
    return Outcome(tuple(sorted(names)))


def _why_refused(block: Any) -> str:
    if block is None:
        return ""
    value, z = block["position"]["value"], block["z"]
    if "{{" in z["primitive"]:
        return "shared lists"
    if "{{" not in value:
        return "fixed values"
    if "USER_PARAM" not in value:
        return "placeholders"
    if any(option.startswith("values(") for option in z["options"]):
        return "values()"
    return "default types" if any(o.startswith("default(") for o in z["options"]) else ""


def rejected(error: CallError, *, is_same: bool) -> Outcome:
    """What is rejected at the gate, as it was by the reference or not."""
    if is_same:
        return Outcome(is_same=True)
    names = {_GATE.get(issue.code, "wrong values") for issue in error.issues}
    return Outcome(tuple(sorted(names)), told=str(error))


Sent = tuple[str, str, dict[str, str], Any]
"""Method, URL, headers by lower-case name, body: data if it is JSON, else its text."""


def sent_of(request: Request) -> Sent:
    """A request that callpact sends."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    return request.method, request.url, headers, _body(request.body)


def recorded_of(recorded: Mapping[str, Any]) -> Sent:
    """A request that was recorded."""
    headers = {name.lower(): value for name, value in recorded["headers"].items()}
    return recorded["method"], recorded["url"], headers, _body(recorded["body"])


def _body(body: str | bytes | None) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body if isinstance(body, str) else body.decode("utf-8", "replace")


class Reference:
    """What the JavaScript runtime sends, and by which of its habits that differs from the rules."""

    def __init__(self, main: Any, row: dict[str, Any]) -> None:
        self.deviations: dict[str, set[str]] = {}
        """Names of deviations, each with the keys of the parameters that it touched."""
        self._key: str = ""
        self._main = main
        self._tool = main["tools"][row["route"]]
        self._asked = row["userParams"]
        self._given = row.get("validatedParams", self._asked)
        self._secrets = row["serverParams"]

    def request(self) -> Sent:
        """The request; `deviations` is filled on the way."""
        path, pairs, body = self._tool["path"], dict[str, str](), dict[str, Any]()
        for block in self._tool["parameters"]:
            key, location = block["position"]["key"], block["position"]["location"]
            self._key = key
            value = self._value(block)
            if location == "insert":
                path = self._inserted(path, key, value)
            elif value is not None and location == "query":
                if key in pairs:
                    self._add("duplicates")
                pairs[key] = as_text(value)
            elif value is not None:
                body[key] = value
        self._key = ""
        url = self._filled(self._main["root"] + path)
        if pairs:
            url += ("&" if "?" in url else "?") + urlencode(pairs, safe="*").replace("~", "%7E")
        method = self._tool["method"]
        headers = {**self._main.get("headers", {}), **self._tool.get("headers", {})}
        named = {name.lower(): self._filled(text) for name, text in headers.items()}
        if method in {"POST", "PUT"}:
            named.setdefault("content-type", "application/json")
        return method, url, named, body if method in {"POST", "PUT"} else None

    @property
    def touched(self) -> set[str]:
        """Keys of the parameters that a deviation touched."""
        return {key for keys in self.deviations.values() for key in keys}

    def explains(self, ours: Sent, theirs: Sent) -> bool:
        """True if the two differ in nothing but what a deviation touched."""
        touched = self.touched
        inserts = {
            block["position"]["key"]
            for block in self._tool["parameters"]
            if block["position"]["location"] == "insert"
        }
        sides: list[Any] = []
        for method, url, headers, body in (ours, theirs):
            before, _, query = url.partition("?")
            pairs = [pair for pair in parse_qsl(query, True) if pair[0] not in touched]
            address = "" if touched & inserts else before
            sides.append((method, address, pairs, headers, _without(body, touched)))
        return bool(self.deviations) and sides[0] == sides[1]

    def _add(self, deviation: str) -> None:
        self.deviations.setdefault(deviation, set()).add(self._key)

    def _value(self, block: Any) -> Any:
        """The value that is sent for a parameter; None if it is left out."""
        key, value = block["position"]["key"], block["position"]["value"]
        if "{{USER_PARAM}}" in value:
            if key not in self._given:
                if any(option.strip().startswith("default(") for option in block["z"]["options"]):
                    self._add("defaults")
                return None
            given = self._given[key]
            if key not in self._asked and str(given)[:1] in {"'", '"'}:
                self._add("default types")  # Quotes are no part of a default.
            if value == "{{USER_PARAM}}" and not isinstance(given, str):
                return given
            return self._replaced(value, "{{USER_PARAM}}", as_text(given))
        return self._filled(value)

    def _filled(self, text: str) -> str:
        """The first secret in its place; any other name is nothing, and all others stay."""

        def held(match: re.Match[str]) -> str:
            name = match[1].strip().removeprefix("SERVER_PARAM:").strip()
            if name not in self._main.get("requiredServerParams", ()):
                self._add("placeholders")
                return ""
            return self._secrets.get(name, f"sp-{name.lower()}")

        return _PLACEHOLDER.sub(held, text, count=1)

    def _inserted(self, path: str, key: str, value: Any) -> str:
        text = "undefined" if value is None else as_text(value)
        place = next((p for p in (f"{{{{{key}}}}}", f":{key}") if p in path), None)
        if place is None:
            return path
        if value is None:
            self._add("left out")
        if re.search(r"[^\w.!$&'()*+,;=:@~-]", text, re.ASCII):
            self._add("encoding")
        return self._replaced(path, place, text)

    def _replaced(self, text: str, place: str, new: str) -> str:
        """As `text.replace( place, new )` of JavaScript, where `$&` means what was found."""
        before, _, after = text.partition(place)
        meant = {"$": "$", "&": place, "`": before, "'": after}
        written = _PATTERN.sub(lambda match: meant[match[1]], new)
        if written != new:
            self._add("patterns")
        return before + written + after


def _without(body: Any, keys: set[str]) -> Any:
    """A body of JSON or of a form, without some of its members."""
    if isinstance(body, str):
        return [pair for pair in parse_qsl(body, True) if pair[0] not in keys]
    if isinstance(body, dict):
        return {key: value for key, value in body.items() if key not in keys}
    return body


# --- words ----------------------------------------------------------------------------------


def file_of(tool: Tool) -> str:
    """The file that a tool is from."""
    return tool.source.removeprefix("flowmcp:")


def name_of(tool: Tool) -> str:
    """The name that a file gives its tool."""
    return tool.aliases[0].partition("::")[2]


def told(row: Mapping[str, Any], ours: Any, theirs: Any) -> str:
    """Both sides of a call that nothing explains."""
    call = f"{row['file']} {row['route']} ({row['mode']}, {row['case']}) {row['userParams']}"
    return f"{call}\n    ours   {ours}\n    theirs {theirs}"
