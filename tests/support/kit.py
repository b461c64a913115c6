"""A FlowMCP file that breaks no rule, ways to change it, and what checking says about it.

Not a test: the tests of this folder load it.
"""

from __future__ import annotations

import copy
import json
import re

from callpact.schema import schema_hash
from callpact.sources import check_text
from callpact.sources.flowmcp.check.file_check import read_list

GONE = object()
FILE = "catalogue/providers/weather/Forecasts.mjs"
TOOL = "/tools/getForecast"
META = {
    "isReadOnly": True,
    "isConcurrencySafe": True,
    "isDestructive": False,
    "searchHint": "weather forecast",
    "aliases": ["outlook"],
    "alwaysLoad": False,
}


def parameter(key="city", value="{{USER_PARAM}}", location="query", primitive="string()", *options):
    return {
        "position": {"key": key, "value": value, "location": location},
        "z": {"primitive": primitive, "options": list(options)},
    }


def cases(**given):
    """Three tests that give the same."""
    return [{"_description": f"Case {index}", **given} for index in range(3)]


def tool(*parameters, **fields):
    """A tool that breaks no rule if the parameters do not; `fields` stand beside or instead."""
    return {
        "method": "GET",
        "path": "/forecast",
        "description": "Tells the weather of tomorrow",
        "parameters": list(parameters),
        "output": {
            "mimeType": "application/json",
            "schema": {"type": "object", "properties": {"degrees": {"type": "number"}}},
        },
        "tests": cases(),
        **fields,
    }


MAIN = {
    "namespace": "weather",
    "name": "Forecasts",
    "description": "Tells the weather.",
    "version": "4.1.0",
    "schemaVersion": "1.0.0",
    "schemaHash": "",
    "root": "https://api.example.com/v1",
    "docs": ["https://example.com/docs"],
    "tags": ["weather", "eu-2"],
    "requiredServerParams": ["WEATHER_KEY"],
    "requiredLibraries": ["ethers"],
    "headers": {"Accept": "application/json", "X-Key": "{{SERVER_PARAM:WEATHER_KEY}}"},
    "termsOfService": "https://example.com/terms",
    "termsOfServiceCheckedAt": "2026-02-28",
    "termsOfServiceLanguage": "en",
    "dataLicense": None,
    "dataLicenseName": "CC-BY-4.0",
    "meta": META,
    "tools": {
        "getForecast": tool(
            parameter("city", "{{USER_PARAM}}", "insert"),
            parameter(
                "days", "{{USER_PARAM}}", "query", "number()", "min(1)", "max(9)", "default(3)"
            ),
            parameter("unit", "{{USER_PARAM}}", "query", "enum(celsius,kelvin)", "optional()"),
            parameter("format", "json"),
            parameter("key", "{{SERVER_PARAM:WEATHER_KEY}}"),
            path="/forecast/{{city}}",
            tests=[
                {"_description": "Tomorrow", "city": "Oslo"},
                {"_description": "In kelvin", "city": "Rome", "unit": "kelvin", "days": 2},
                {"_description": "In celsius", "city": "Bern", "unit": "celsius"},
            ],
        )
    },
}
STATIONS = {
    "meta": {
        "name": "stations",
        "version": "1.2.0",
        "description": "Weather stations",
        "fields": [
            {"key": "alias", "type": "string", "description": "Our name"},
            {"key": "height", "type": "number", "description": "Metres"},
            {"key": "code", "type": "string", "description": "Theirs", "optional": True},
            {"key": "isOpen", "type": "boolean", "description": "Sends data", "optional": True},
        ],
    },
    "entries": [
        {"alias": "oslo", "height": 94, "code": "OSL", "isOpen": True},
        {"alias": "bern", "height": 553, "code": None, "isOpen": False},
        {"alias": "rome", "height": 1},
        {"alias": "lima", "height": 1.5, "code": "LIM", "isOpen": True},
    ],
}


def hashed(main):
    """`main` with the hash that it should have."""
    return {**main, "schemaHash": schema_hash(main)}


def put(value, *changes):
    """A copy of data with other values at JSON Pointers; GONE takes a member out."""
    made = copy.deepcopy(value)
    for pointer, new in changes:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
        place = made
        for step in way:
            place = place[int(step) if isinstance(place, list) else step]
        if new is GONE:
            del place[int(last) if isinstance(place, list) else last]
        elif isinstance(place, list):
            place[int(last)] = new
        else:
            place[last] = new
    return made


def changed(*changes, main=MAIN):
    """`main` with changes, and the hash that belongs to it, if it has one at all."""
    made = put(main, *changes)
    is_hash_meant = any(pointer == "/schemaHash" for pointer, _ in changes)
    return made if is_hash_meant or "schemaHash" not in made else hashed(made)


def with_tool(*parameters, **fields):
    return changed((TOOL, tool(*parameters, **fields)))


def exported(value, name="main", code=""):
    return f"export const {name} = {json.dumps(value, indent=2)}\n{code}"


def places_in(value, name="main"):
    """Line and column of each member's key and each item in `exported(value)`, by JSON Pointer."""
    places = {}
    line, column = 1, len(f"export const {name} = ") + 1

    def write(text):
        nonlocal line, column
        line += text.count("\n")
        column = len(text) - text.rfind("\n") if "\n" in text else column + len(text)

    def walk(pointer, held, depth):
        places.setdefault(pointer, (line, column))
        is_object = isinstance(held, dict)
        if not held or not isinstance(held, dict | list):
            write(json.dumps(held))
            return
        write("{" if is_object else "[")
        for index, part in enumerate(held):
            write(("," if index else "") + "\n" + "  " * (depth + 1))
            key = part.replace("~", "~0").replace("/", "~1") if is_object else str(index)
            inner = f"{pointer}/{key}".encode("utf-8", "backslashreplace").decode()
            places[inner] = (line, column)
            if is_object:
                write(f"{json.dumps(part)}: ")
            walk(inner, held[part] if is_object else part, depth + 1)
        write("\n" + "  " * depth + ("}" if is_object else "]"))

    walk("", value, 0)
    return places


def every_place(text):
    """Each line and column that a text has, as editors count."""
    lines = re.split("\r\n|[\n\r\u2028\u2029]", text.removeprefix("\ufeff"))
    return {(n, c) for n, line in enumerate(lines, 1) for c in range(1, len(line) + 2)}


def read_lists(*lists):
    """Lists by name, each of which must be without errors."""
    read = [read_list(exported(item, "list"), f"_lists/{i}.mjs") for i, item in enumerate(lists)]
    return {checked.list.name: checked.list for checked in read}


def checked(main, profile="strict", *, file=FILE, lists=(), libraries=(), code=""):
    """What checking says: about data, or about the text of a whole file."""
    text = main if isinstance(main, str) else exported(main, code=code)
    known = read_lists(*lists)
    return check_text(text, file=file, profile=profile, lists=known, libraries=libraries)


def told(main, profile="strict", **given):
    """The codes that checking gives, each with its place."""
    return {(found.code, found.path) for found in checked(main, profile, **given).findings}


def worst(main, about, profile="strict", **given):
    """How bad a code is told; None if it is not."""
    found = [f.severity for f in checked(main, profile, **given).findings if f.code == about]
    return found[0] if found else None
