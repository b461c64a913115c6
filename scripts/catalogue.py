"""How a whole FlowMCP catalogue fares: which files load, which tests pass, which requests are sent.

`python scripts/catalogue.py PATH [--lists DIR] [--requests FILE.jsonl.gz]`. PATH is a checkout of a
catalogue. The recorded requests are those of the JavaScript runtime of FlowMCP, one JSON object per
line; what callpact sends otherwise must follow from a rule. Nothing is sent to anybody. The exit
status is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import logging
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from callpact import CallError, Runtime, Tool, from_flowmcp
from callpact.net import Request
from callpact.secrets import Secrets
from callpact.sources.flowmcp.files import find_files, read_text
from callpact.sources.flowmcp.literal import read_exports
from callpact.sources.flowmcp.loading import FlowMCPTools
from callpact.sources.flowmcp.request import as_text
from callpact.testing import StubTransport

FILES, TOOLS = 358, 1_500
DEVIATIONS = {
    "defaults": "a default is sent when the argument is left out (FlowMCP 02)",
    "default types": "a default is of the type of its primitive (FlowMCP 02)",
    "encoding": "what is inserted into a path is percent-encoded and stays in its place",
    "duplicates": "query keys that are declared twice are sent twice, in their order (FlowMCP 02)",
    "placeholders": "{{NAME}} that is no server parameter is an argument of the caller (VAL091)",
    "patterns": "a value is sent as it is: `$&` in it is no pattern",
    "left out": "an optional part of the path that is left out leaves no trace (FlowMCP 02)",
    "fixed values": "fixed values and server parameters are not asked of the caller (seed 002)",
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


# --- files and tests ------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Print the report; 0 if every bar is reached."""
    logging.disable(logging.WARNING)  # Answers are made up here, and break what is declared.
    given = _parsed(arguments)
    tools, transport = _loaded(given.path, given.lists)
    others = {found.place for found in tools.report if found.code == "VAL159"}
    found = [str(found.path) for found in find_files([given.path]) if not found.is_list]
    files = [file for file in found if file not in others]
    reached = [_tell_files(tools, files, given.files), _tell_tests(tools, given.tools)]
    if given.requests is not None:
        known = _Known(tools, transport, files)
        reached.append(asyncio.run(_tell_requests(known, given.requests)))
    return 0 if all(reached) else 1


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="catalogue.py", description=__doc__)
    parser.add_argument("path", type=Path, help="a checkout of a catalogue, or a part of one")
    parser.add_argument("--lists", type=Path, help="a folder of shared lists")
    parser.add_argument("--requests", type=Path, help="recorded requests, .jsonl or .jsonl.gz")
    parser.add_argument("--files", type=int, default=FILES, help="files that must load")
    parser.add_argument("--tools", type=int, default=TOOLS, help="tools that must pass their tests")
    return parser.parse_args(arguments)


def _loaded(path: Path, lists: Path | None) -> tuple[FlowMCPTools, StubTransport]:
    transport = StubTransport(lambda _: {"status": 200, "body": "{}"})
    secrets = Secrets(environ=_Recorded(known=""))
    tools = from_flowmcp(path, lists=lists, libraries=["*"], secrets=secrets, transport=transport)
    return tools, transport


class _Recorded(dict[str, str]):
    """Every secret that can be asked for, as the recorded calls had it."""

    def get(self, name: str, _default: Any = None) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"sp-{name.lower()}"


def _tell_files(tools: FlowMCPTools, files: list[str], least: int) -> bool:
    working = {_file_of(tool) for tool in tools}
    errors: dict[str, list[str]] = defaultdict(list)
    for found in tools.report:
        if found.severity == "error":
            errors[found.place].append(f"{found.code} (line {found.line}): {found.message}")
    broken = [file for file in files if file in errors and file not in working]
    _title(f"{len(files) - len(broken):,} of {len(files):,} files load", least)
    for file in broken:
        more = f"; and {len(errors[file]) - 1} more" if errors[file][1:] else ""
        print(f"  {_short(file)}: {errors[file][0]}{more}")
    return _reached(len(files) - len(broken), least)


def _tell_tests(tools: FlowMCPTools, least: int) -> bool:
    wrong = {tool.id: issue for tool in tools if (issue := _contradiction(tool))}
    _title(f"{len(tools) - len(wrong):,} of {len(tools):,} tools pass their own test values", least)
    for name, issue in wrong.items():
        print(f"  {name}: {issue}")
    return _reached(len(tools) - len(wrong), least)


def _contradiction(tool: Tool) -> str | None:
    """What the tests of a tool break of its own declaration; None if they break nothing."""
    from callpact.gate import admit

    for number, test in enumerate(tool.examples, 1):
        try:
            admit(tool, {key: value for key, value in test.items() if key != "_description"})
        except CallError as error:
            return f"test {number}: " + "; ".join(issue.message for issue in error.issues)
    return None


# --- requests -------------------------------------------------------------------------------


async def _tell_requests(known: _Known, file: Path) -> bool:
    counts: Counter[str] = Counter()
    unexplained: list[str] = []
    for row in _rows(file):
        if row["handlers"]:
            counts["hooks"] += 1
            continue
        outcome = await known.compare(row)
        counts.update([outcome.kind, *outcome.deviations])
        if outcome.kind == "unexplained":
            unexplained.append(outcome.told)
    calls = counts["same"] + counts["ruled"] + counts["unexplained"]
    _title(f"{counts['same']:,} of {calls:,} recorded calls without hooks are sent the same")
    print(f"  {counts['ruled']:,} otherwise, by a rule (a call may have several):")
    for name, rule in DEVIATIONS.items():
        if counts[name]:
            print(f"  {counts[name]:6,}  {name}: {rule}")
    print(f"  {counts['unexplained']:,} unexplained, which must be 0")
    for told in unexplained:
        print(f"  {told}")
    print(f"  {counts['hooks']:,} calls of tools with hooks are not compared")
    if counts["absent"]:
        print(f"  {counts['absent']:,} calls of files that are not there are not compared")
    return not unexplained


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    data = file.read_bytes()
    text = gzip.decompress(data) if file.suffix == ".gz" else data
    yield from (json.loads(line) for line in text.splitlines() if line.strip())


class _Known:
    """The tools by file and name, ready to be compared with what was recorded."""

    def __init__(self, tools: FlowMCPTools, transport: StubTransport, files: list[str]) -> None:
        self._transport = transport
        self._files = files
        # Whether a tool may have hooks is a guess by its name; the records know.
        self._tools = {
            (_file_of(tool), _name_of(tool)): replace(tool, disabled=None) for tool in tools
        }
        self._runtime = Runtime(self._tools.values())
        self._mains: dict[str, Any] = {}

    async def compare(self, row: dict[str, Any]) -> Outcome:
        name = "/" + row["file"]
        file = next((file for file in self._files if Path(file).as_posix().endswith(name)), None)
        if file is None:
            return Outcome(is_compared=False)
        tool = self._tools.get((file, row["route"]))
        if tool is None:
            return Outcome(("not loaded",))
        made = await self._sent(tool, row["userParams"])
        theirs = row["requests"][0] if row["requests"] else None
        if isinstance(made, CallError):
            return _rejected(made, theirs)
        if theirs is None:
            return self._refused_by_them(row, file)
        ours, recorded = _plain(made), _comparable(theirs)
        if ours == recorded:
            return Outcome(is_same=True)
        model = _Reference(self._main(file), row)
        if model.request() == recorded and model.explains(ours, recorded):
            return Outcome(tuple(sorted(model.deviations)))
        return Outcome(told=_told(row, ours, recorded))

    async def _sent(self, tool: Tool, arguments: dict[str, Any]) -> Request | CallError:
        self._transport.requests.clear()
        try:
            await self._runtime.execute(tool.id, arguments)
        except CallError as error:
            return error
        return self._transport.requests[0]

    def _refused_by_them(self, row: dict[str, Any], file: str) -> Outcome:
        """The reference asked over MCP for what the caller cannot give, or knew no value."""
        declared = {
            block["position"]["key"]: block
            for block in self._main(file)["tools"][row["route"]]["parameters"]
        }
        text = row.get("result", {}).get("text", "")
        issues = json.loads(text[text.index("[") :]) if "[" in text else []
        names = {_why_refused(declared.get(issue["path"][0])) for issue in issues}
        if not names or "" in names:
            return Outcome(told=_told(row, "a request", text[:300]))
        return Outcome(tuple(sorted(names)))

    def _main(self, file: str) -> Any:
        if file not in self._mains:
            self._mains[file] = read_exports(read_text(Path(file))).values["main"]
        return self._mains[file]


def _why_refused(block: Any) -> str:
    if block is None:
        return ""
    value, z = block["position"]["value"], block["z"]
    if "{{" not in value:
        return "fixed values"
    if "USER_PARAM" not in value:
        return "placeholders"
    if any(option.startswith("values(") for option in z["options"]):
        return "values()"
    return "default types" if any(o.startswith("default(") for o in z["options"]) else ""


def _rejected(error: CallError, theirs: Any) -> Outcome:
    if theirs is None:
        return Outcome(is_same=True)
    names = {_GATE.get(issue.code, "wrong values") for issue in error.issues}
    return Outcome(tuple(sorted(names)))


Sent = tuple[str, str, dict[str, str], Any]
"""Method, URL, headers by lower-case name, body as data."""


def _plain(request: Request) -> Sent:
    headers = {name.lower(): value for name, value in request.headers.items()}
    body = None if request.body is None else json.loads(request.body)
    return request.method, request.url, headers, body


def _comparable(recorded: Mapping[str, Any]) -> Sent:
    headers = {name.lower(): value for name, value in recorded["headers"].items()}
    body = json.loads(recorded["body"]) if recorded["body"] else None
    return recorded["method"], recorded["url"], headers, body


class _Reference:
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

    def explains(self, ours: Sent, theirs: Sent) -> bool:
        """True if the two differ in nothing but what a deviation touched."""
        touched = {key for keys in self.deviations.values() for key in keys}
        inserts = {
            block["position"]["key"]
            for block in self._tool["parameters"]
            if block["position"]["location"] == "insert"
        }
        sides: list[Any] = []
        for method, url, headers, body in (ours, theirs):
            before, _, query = url.partition("?")
            pairs = [pair for pair in parse_qsl(query, True) if pair[0] not in touched]
            members = {key: body[key] for key in body if key not in touched} if body else body
            address = "" if touched & inserts else before
            sides.append((method, address, pairs, headers, members))
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
        if re.search(r"[^\w.!~*'()-]", text, re.ASCII):
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


# --- words ----------------------------------------------------------------------------------


def _file_of(tool: Tool) -> str:
    return tool.source.removeprefix("flowmcp:")


def _name_of(tool: Tool) -> str:
    return tool.aliases[0].partition("::")[2]


def _short(file: str) -> str:
    return "/".join(Path(file).parts[-2:])


def _told(row: Mapping[str, Any], ours: Any, theirs: Any) -> str:
    call = f"{row['file']} {row['route']} ({row['mode']}, {row['case']}) {row['userParams']}"
    return f"{call}\n    ours   {ours}\n    theirs {theirs}"


def _title(text: str, least: int | None = None) -> None:
    print(f"\n{text}" + ("" if least is None else f" (at least {least:,})"))


def _reached(found: int, least: int) -> bool:
    if found < least:
        print(f"  MISSED: {found:,} where {least:,} are asked for")
    return found >= least


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
