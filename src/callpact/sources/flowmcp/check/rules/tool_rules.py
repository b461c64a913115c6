"""The rules of tools: method, path and its places, caching, metadata; and everything inside."""

from __future__ import annotations

import re
from typing import Any

from msgspec import UNSET

from callpact.schema.issues.wording import cut
from callpact.sources.flowmcp.check.rules.hit import (
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
from callpact.sources.flowmcp.check.rules.list_rules import KnownLists
from callpact.sources.flowmcp.check.rules.manifest_rules import header_hits
from callpact.sources.flowmcp.check.rules.output_rules import output_hits
from callpact.sources.flowmcp.check.rules.parameter_rules import (
    Parameters,
    header_secret_hits,
    parameter_hits,
    secret_hits,
    server_hits,
)
from callpact.sources.flowmcp.check.rules.test_rules import hits_in_tests

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
    yield from hits_in_tests(tool.get("tests", UNSET), f"{path}/tests", parameters)


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
