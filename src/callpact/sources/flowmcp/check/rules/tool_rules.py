"""The rules of tools: method, path and its places, caching, metadata, tests; and everything inside."""

from __future__ import annotations

import re
from typing import Any

from msgspec import UNSET

from callpact.schema.issues.wording import cut, shown
from callpact.sources.flowmcp.check.rules.list_rules import KnownLists
from callpact.sources.flowmcp.check.rules.manifest_rules import header_hits
from callpact.sources.flowmcp.check.rules.output_rules import output_hits
from callpact.sources.flowmcp.check.rules.parameter_rules import (
    Given,
    Parameters,
    header_secret_hits,
    parameter_hits,
    secret_hits,
    server_hits,
)
from callpact.sources.flowmcp.read.hit import (
    CAMEL,
    Hit,
    Hits,
    at,
    got,
    is_text,
    items,
    members,
    texts,
    unknown_hits,
)

ENOUGH_TESTS = 3
"""Tests that a tool should have; one is the least (seed 002)."""

_METHODS = ("GET", "POST", "PUT", "DELETE")
_FIELDS = frozenset(
    {"method", "path", "description", "parameters", "tests", "output", "preload"}
    | {"headers", "meta", "async"}
)
_USABLE = re.compile(r"[A-Za-z0-9]")
_LONGEST_NAME = 200
_PLACES = re.compile(r"\{\{([^{}]*)\}\}|\{([A-Za-z_]\w*)\}|:([A-Za-z_]\w*)")
_SERVER = "SERVER_PARAM:"
_META = {
    "isReadOnly": ("VAL101", "true or false"),
    "isConcurrencySafe": ("VAL102", "true or false"),
    "isDestructive": ("VAL103", "true or false"),
    "searchHint": ("VAL104", "a text"),
    "aliases": ("VAL105", "a list of texts"),
    "alwaysLoad": ("VAL106", "true or false"),
}


def tools_hits(main: dict[str, Any], lists: KnownLists) -> Hits:
    """Breaches in the tools of a file, and in the fields that they share."""
    secrets = frozenset(texts(main.get("requiredServerParams")))
    yield from header_secret_hits(main.get("headers"), "/headers", secrets)
    yield from secret_hits(main.get("root"), "/root", secrets)
    field = "tools" if "tools" in main or "routes" not in main else "routes"
    tools = members(main.get(field))
    if "meta" in main:
        yield from _meta_hits(main["meta"], "/meta")
    elif tools and not any("meta" in members(tool) for tool in tools.values()):
        yield Hit("VAL100", "/meta", "neither `main` nor a tool has `meta`")
    else:
        for name, tool in tools.items():
            if isinstance(tool, dict) and "meta" not in tool:
                path = at(at(f"/{field}", name), "meta")
                yield Hit("VAL100", path, "other tools have `meta`, this one has none")
    for name, tool in tools.items():
        path = at(f"/{field}", name)
        yield from _name_hits(name, path)
        if not isinstance(tool, dict):
            yield Hit("VAL126", path, f"a tool must be an object, {got(tool)}")
            continue
        yield from _tool_hits(members(tool), path, main, secrets, lists)


def _name_hits(name: str, path: str) -> Hits:
    if len(name) > _LONGEST_NAME or not _USABLE.search(name):
        words = f"the name of a tool must have letters or digits, at most {_LONGEST_NAME}"
        yield Hit("VAL127", path, f"{words}, {got(name)}")
    elif not CAMEL.match(name):
        yield Hit("VAL030", path, f"the name of a tool must be in camelCase, {got(name)}")


def _tool_hits(
    tool: dict[str, Any],
    path: str,
    main: dict[str, Any],
    secrets: frozenset[str],
    lists: KnownLists,
) -> Hits:
    yield from unknown_hits("VAL076", path, tool, _FIELDS)
    method = tool.get("method", UNSET)
    if method not in _METHODS:
        words = "`method` must be GET, POST, PUT or DELETE"
        yield Hit("VAL032", f"{path}/method", f"{words}, {got(method)}")
    if not is_text(tool.get("description")):
        words = f"`description` must be a text, {got(tool.get('description', UNSET))}"
        yield Hit("VAL034", f"{path}/description", words)
    declared = tool.get("parameters", UNSET)
    parameters = yield from parameter_hits(declared, f"{path}/parameters", secrets, lists, method)
    yield from _path_hits(tool.get("path", UNSET), path, main.get("root"), secrets, parameters)
    if "headers" in tool:
        yield from header_hits(tool["headers"], f"{path}/headers")
        yield from header_secret_hits(tool["headers"], f"{path}/headers", secrets)
    if "output" in tool:
        yield from output_hits(tool["output"], f"{path}/output")
    else:
        yield Hit("VAL036", f"{path}/output", "`output` is not declared")
    if "preload" in tool:
        yield from _preload_hits(tool["preload"], f"{path}/preload", parameters)
    if "async" in tool:
        yield Hit("VAL037", f"{path}/async", "`async` is reserved")
    if "meta" in tool:
        yield from _meta_hits(tool["meta"], f"{path}/meta")
    yield from _test_hits(tool.get("tests", UNSET), f"{path}/tests", parameters)


# --- the path -------------------------------------------------------------------------------


def _path_hits(
    address: Any, path: str, root: Any, secrets: frozenset[str], parameters: Parameters
) -> Hits:
    place = f"{path}/path"
    if not isinstance(address, str) or not address.startswith("/"):
        words = f"`path` must be a text that begins with '/', {got(address)}"
        yield Hit("VAL033", place, words)
    if not isinstance(address, str):
        return
    inserts = parameters.inserts
    filled = {name for name in _braced(root if isinstance(root, str) else "") if name in inserts}
    others: set[str] = set()
    for match in _PLACES.finditer(address):
        if match[1] is None:
            others.add(match[2] or match[3])
            continue
        name = match[1].strip()
        if name in inserts:
            filled.add(name)
        elif name.startswith(_SERVER) or name in secrets:
            yield from server_hits(name, place, secrets)
        elif parameters.is_known:
            words = f"the place {{{{{cut(name)}}}}} has no parameter with the location insert"
            yield Hit("VAL099", place, words)
    for name in sorted(others & inserts - filled):
        yield Hit("VAL092", place, f"a place must be {{{{{cut(name)}}}}}, got ':' or '{{'")
    for name, declared in parameters.places:
        if name not in filled and name not in others:
            words = f"'{cut(name)}' is to be inserted, but the path has no {{{{{cut(name)}}}}}"
            yield Hit("VAL050", declared, words)


def _braced(text: str) -> list[str]:
    return [match[1].strip() for match in _PLACES.finditer(text) if match[1] is not None]


# --- caching and metadata -------------------------------------------------------------------


def _preload_hits(preload: Any, path: str, parameters: Parameters) -> Hits:
    if not isinstance(preload, dict):
        yield Hit("VAL060:preload", path, f"`preload` must be an object, {got(preload)}")
        return
    declared = members(preload)
    enabled, ttl = declared.get("enabled", UNSET), declared.get("ttl", UNSET)
    description = declared.get("description", UNSET)
    if not isinstance(enabled, bool):
        words = f"`enabled` must be true or false, {got(enabled)}"
        yield Hit("VAL061:preload", f"{path}/enabled", words)
    if not (isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0):
        words = f"`ttl` must be a whole number of seconds above 0, {got(ttl)}"
        yield Hit("VAL062:preload", f"{path}/ttl", words)
    if description is not UNSET and not isinstance(description, str):
        words = f"`description` must be a text, {got(description)}"
        yield Hit("VAL063:preload", f"{path}/description", words)
    if enabled is not True:
        return
    if parameters.is_known and not parameters.given:
        yield Hit("VAL064:preload", path, "without parameters, there is one answer to keep")
    elif not is_text(description) and any(given.z.is_required for given in parameters.given):
        words = "the answers depend on required parameters; `description` should say so"
        yield Hit("VAL065:preload", path, words)


def _meta_hits(meta: Any, path: str) -> Hits:
    if not isinstance(meta, dict):
        yield Hit("VAL124", path, f"`meta` must be an object, {got(meta)}")
        return
    for field, (key, words) in _META.items():
        value = members(meta).get(field, UNSET)
        if field == "searchHint":
            is_right = is_text(value)
        elif field == "aliases":
            is_right = isinstance(value, list) and len(texts(value)) == len(items(value))
        else:
            is_right = isinstance(value, bool)
        if not is_right:
            yield Hit(key, f"{path}/{field}", f"`{field}` must be {words}, {got(value)}")


# --- tests ----------------------------------------------------------------------------------


def _test_hits(tests: Any, path: str, parameters: Parameters) -> Hits:
    if not isinstance(tests, list) or not tests:
        key = "TST001" if tests is UNSET or tests == [] else "TST001:form"
        words = "`tests` must be a list with a test at least"
        yield Hit(key, path, f"{words}, {got(tests)}")
        return
    if len(items(tests)) < ENOUGH_TESTS:
        words = f"there should be {ENOUGH_TESTS} tests, got {len(items(tests))}"
        yield Hit("VAL138", path, words)
    names = {name: g for g in parameters.given for name in (g.alias, g.name) if name}
    required = [given for given in parameters.given if given.z.is_required]
    for index, test in enumerate(items(tests)):
        place = f"{path}/{index}"
        if not isinstance(test, dict):
            yield Hit("VAL156", place, f"a test must be an object, {got(test)}")
            continue
        description = members(test).get("_description", UNSET)
        if not is_text(description):
            words = f"`_description` must be a text, {got(description)}"
            yield Hit("TST002", f"{place}/_description", words)
        if parameters.is_known:
            yield from _value_hits(members(test), place, names, required)
    if parameters.is_known:
        yield from _coverage_hits(items(tests), path, names, parameters)


def _value_hits(
    test: dict[str, Any], path: str, names: dict[str, Given], required: list[Given]
) -> Hits:
    for key, value in test.items():
        if key == "_description":
            continue
        given = names.get(key)
        if given is None:
            words = f"'{cut(key)}' is nothing that the caller can give"
            yield Hit("TST006", at(path, key), words, (key, names))
            continue
        wrong = given.z.violation(value)
        if wrong is not None:
            yield Hit("TST004", at(path, key), f"'{cut(key)}' {wrong}, got {shown(value)}")
    for given in required:
        if given.name not in test and given.alias not in test:
            yield Hit("TST003", at(path, given.name), f"'{cut(given.name)}' must be given")


def _coverage_hits(
    tests: list[Any], path: str, names: dict[str, Given], parameters: Parameters
) -> Hits:
    used: dict[str, list[Any]] = {}
    for test in tests:
        for key, value in members(test).items():
            if key in names:
                used.setdefault(names[key].name, []).append(value)
    optional = [given.name for given in parameters.given if not given.z.is_required]
    for given in parameters.given:
        values = used.get(given.name)
        if given.z.values and len(given.z.values) > 1 and values and _is_one(values):
            words = f"the tests give only one value for '{cut(given.name)}'"
            yield Hit("TST007", path, words)
    if optional and not any(name in used for name in optional):
        yield Hit("TST008", path, "no test gives an optional parameter")


def _is_one(values: list[Any]) -> bool:
    return all(value == values[0] for value in values)
