"""The rules of `main` itself: its fields, versions, address, headers, libraries, licences."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import orjson
from msgspec import UNSET

from callpact.errors import InvalidSchema
from callpact.sandbox.js.builtin_modules import node_module
from callpact.schema import schema_hash
from callpact.schema.issues.wording import cut, shown
from callpact.sources.flowmcp.read.hit import (
    KEBAB,
    PASCAL,
    SEMVER,
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

ALLOWED_LIBRARIES = frozenset(
    {"ethers", "moment", "indicatorts", "@erc725/erc725.js", "ccxt", "axios"}
)
"""Libraries that hooks may use unless a source allows more."""
MAX_TOOLS = 8
"""Tools that a FlowMCP file may have (seed 002)."""

_FIELDS = frozenset(
    {"namespace", "name", "description", "version", "schemaVersion", "schemaHash", "root"}
    | {"tools", "routes", "docs", "tags", "requiredServerParams", "requiredLibraries"}
    | {"headers", "sharedLists", "resources", "meta", "prompts", "skills"}
    | {"termsOfService", "termsOfServiceCheckedAt", "termsOfServiceLanguage"}
    | {"dataLicense", "dataLicenseName"}
)
_TEXT_LISTS = {
    "docs": "VAL020",
    "tags": "VAL021",
    "requiredServerParams": "VAL022",
    "requiredLibraries": "VAL025",
}
_VERSION = re.compile(r"([0-9]{1,9})\.[0-9]{1,9}\.[0-9]{1,9}\Z")
_ROOT = re.compile(r"https://[^\s/?#@\\]+(?:[/?#][^\s\\]*)?\Z")
_HASH = re.compile(r"[0-9a-f]{8}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_SENDABLE = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")
_HALF = re.compile("[\ud800-\udfff]")
_SKILL = re.compile(r"[a-z][a-z0-9-]{0,63}\Z")
_LICENCES = {
    "termsOfService": (re.compile(r"https?://\S+\Z|no-tos-found\Z"), "an address, or null"),
    "termsOfServiceCheckedAt": (
        re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])\Z"),
        "a date YYYY-MM-DD, or null",
    ),
    "termsOfServiceLanguage": (re.compile(r"[a-z]{2}\Z|multi\Z"), "two letters or multi, or null"),
    "dataLicense": (re.compile(r"https?://\S+\Z"), "an address, or null"),
    "dataLicenseName": (re.compile(r"\S"), "a text, or null"),
}
_OLDER = {
    "1": (
        "FlowMCP 1 had one flat `schema` with functions inside; nothing converts it by itself: "
        "move the data into `main`, the functions into `handlers`, and rename `flowMCP` to "
        "`version`, `routes` to `tools`, `requestMethod` to `method`, `route` to `path`"
    ),
    "2": (
        "FlowMCP 2 called tools `routes` and gave hooks other arguments; nothing converts it by "
        "itself: rename `routes` to `tools`, let `handlers` be a function of "
        "`{ sharedLists, libraries }`, and check every parameter"
    ),
}


def main_hits(main: dict[str, Any], libraries: Collection[str], *, is_hooked: bool) -> Hits:
    """Breaches in the fields of `main`, except tools, lists and resources.

    `is_hooked` is True if hooks make the request of every tool.
    """
    yield from unknown_hits("VAL003", "", main, _FIELDS)
    yield from _name_hits(main)
    yield from _version_hits(main)
    yield from _root_hits(main, is_hooked=is_hooked)
    yield from _tools_hits(main)
    yield from _text_list_hits(main)
    yield from _library_hits(main, libraries)
    yield from header_hits(main.get("headers", UNSET), "/headers")
    yield from _licence_hits(main)
    yield from _skill_hits(main)


def character_hits(data: Any) -> Hits:
    """A hit for each text with a lone surrogate, which cannot be sent or shown."""
    try:
        orjson.dumps(data)
    except TypeError:
        pass
    else:
        return
    places: list[tuple[Any, str]] = [(data, "")]
    while places:
        value, path = places.pop()
        if isinstance(value, str) and _HALF.search(value):
            words = f"a text must hold whole characters, {got(value)}"
            yield Hit("VAL157", path, words)
        for key, inner in members(value).items():
            if _HALF.search(key):
                yield Hit("VAL157", path, f"a key must hold whole characters, {got(key)}")
            places.append((inner, at(path, key)))
        places += [(inner, f"{path}/{index}") for index, inner in enumerate(items(value))]


def _name_hits(main: dict[str, Any]) -> Hits:
    namespace = main.get("namespace", UNSET)
    if not isinstance(namespace, str):
        yield Hit("VAL010", "/namespace", f"`namespace` must be a text, {got(namespace)}")
    elif not KEBAB.match(namespace):
        words = "must be lowercase letters, digits and hyphens, beginning with a letter"
        yield Hit("VAL011", "/namespace", f"`namespace` {words}, {got(namespace)}")
    elif namespace == "shared":
        yield Hit("VAL149", "/namespace", "`namespace` must not be 'shared'")
    name = main.get("name", UNSET)
    if not is_text(name):
        yield Hit("VAL012", "/name", f"`name` must be a text, {got(name)}")
    elif not PASCAL.match(name):
        words = "must be in PascalCase (letters and digits, a capital first)"
        yield Hit("VAL094", "/name", f"`name` {words}, {got(name)}")
    description = main.get("description", UNSET)
    if not is_text(description):
        yield Hit("VAL013", "/description", f"`description` must be a text, {got(description)}")


def _version_hits(main: dict[str, Any]) -> Hits:
    version = main.get("version", UNSET)
    match = _VERSION.match(version) if isinstance(version, str) else None
    major = match[1] if match else None
    if major == "3":
        yield Hit("VAL096", "/version", f"`version` should be 4.x.y, {got(version)}")
    elif major != "4":
        advice = _OLDER.get(major or "")
        more = f": {advice}" if advice else ""
        yield Hit("VAL014", "/version", f"`version` must be 4.x.y, {got(version)}{more}")
    content = main.get("schemaVersion", UNSET)
    if content is UNSET:
        yield Hit("VAL080", "/schemaVersion", "`schemaVersion` is missing")
    elif not (isinstance(content, str) and SEMVER.match(content)):
        yield Hit("VAL081", "/schemaVersion", f"`schemaVersion` must be x.y.z, {got(content)}")


def hash_hits(main: Any) -> Hits:
    """Breaches in `schemaHash`, or in the data that it is computed from."""
    if not isinstance(main, dict):
        yield Hit("HSH-002", "", f"only an object has a hash, {got(main)}")
        return
    declared = members(main).get("schemaHash", UNSET)
    if declared is UNSET:
        yield Hit("VAL082", "/schemaHash", "`schemaHash` is missing")
        return
    if not (isinstance(declared, str) and _HASH.match(declared)):
        words = "must be eight hex digits in lower case"
        yield Hit("VAL083", "/schemaHash", f"`schemaHash` {words}, {got(declared)}")
        return
    try:
        made = schema_hash(members(main))
    except InvalidSchema as error:
        is_number = "number" in str(error)
        yield Hit("HSH-003" if is_number else "HSH-004", error.path or "", str(error))
        return
    if declared != made:
        words = f"must be the hash of `main`, which is '{made}'"
        yield Hit("VAL084", "/schemaHash", f"`schemaHash` {words}, {got(declared)}")


def _root_hits(main: dict[str, Any], *, is_hooked: bool) -> Hits:
    root = main.get("root", UNSET)
    has_tools = bool(main.get("tools") or main.get("routes"))
    if root is UNSET or root == "":
        if has_tools:
            key = "VAL147" if is_hooked else "VAL015"
            yield Hit(key, "/root", f"`root` must be given if there are tools, {got(root)}")
        return
    if not (isinstance(root, str) and _ROOT.match(root)):
        yield Hit("VAL085", "/root", f"`root` must be https://host/path, got {_address(root)}")
    elif "?" in root or "#" in root:
        words = f"`root` should end before a query or a fragment, got {_address(root)}"
        yield Hit("VAL153", "/root", words)
    if isinstance(root, str) and root.endswith("/") and root != "https://":
        yield Hit("VAL086", "/root", f"`root` must not end with a slash, got {_address(root)}")


def _address(root: Any) -> str:
    """An address for a message, without the parts that can hold a secret."""
    if not isinstance(root, str):
        return shown(root)
    plain = root.partition("?")[0].partition("#")[0]
    scheme, sep, rest = plain.partition("://")
    user, is_user, host = rest.rpartition("@")
    return shown(f"{scheme}{sep}…@{host}" if is_user and user else plain)


def _tools_hits(main: dict[str, Any]) -> Hits:
    if "routes" in main:
        if "tools" in main:
            words = "`tools` and `routes` must not both be there"
            yield Hit("VAL017", "/routes", words)
        else:
            yield Hit("VAL018", "/routes", "`routes` is the old name of `tools`")
    field = "tools" if "tools" in main or "routes" not in main else "routes"
    tools = main.get(field, UNSET)
    if not isinstance(tools, dict):
        yield Hit("VAL016", f"/{field}", f"`{field}` must be an object, {got(tools)}")
    elif not tools and not (main.get("resources") or main.get("skills") or main.get("prompts")):
        words = "must have a tool if there are neither resources nor skills"
        yield Hit("VAL128", f"/{field}", f"`{field}` {words}")
    elif len(members(tools)) > MAX_TOOLS:
        count = len(members(tools))
        words = f"must have at most {MAX_TOOLS} tools, got {count}"
        yield Hit("VAL031", f"/{field}", f"`{field}` {words}")
    others = [name for name in ("resources", "skills", "prompts") if main.get(name)]
    if not tools and others:
        words = f"the file has no tools, only {' and '.join(others)}: nothing of it is loaded"
        yield Hit("VAL165", f"/{others[0]}", words)
    elif members(main.get("resources")):
        yield Hit("VAL165:beside", "/resources", "the resources of the file are not loaded")


def _text_list_hits(main: dict[str, Any]) -> Hits:
    for field, key in _TEXT_LISTS.items():
        value = main.get(field, UNSET)
        if value is UNSET:
            continue
        if not isinstance(value, list):
            yield Hit(key, f"/{field}", f"`{field}` must be a list of texts, {got(value)}")
            continue
        for index, item in enumerate(items(value)):
            if not is_text(item):
                words = f"`{field}` must hold texts only, {got(item)}"
                yield Hit(key, f"/{field}/{index}", words)
            elif field == "tags" and not KEBAB.match(item):
                words = "a tag must be lowercase letters, digits and hyphens"
                yield Hit("VAL097", f"/tags/{index}", f"{words}, {got(item)}")
            elif field == "requiredServerParams" and not _VARIABLE.match(item):
                words = "a server parameter must be the name of an environment variable"
                yield Hit("VAL151", f"/{field}/{index}", f"{words}, {got(item)}")


def _library_hits(main: dict[str, Any], libraries: Collection[str]) -> Hits:
    if "*" in libraries:
        return
    for index, name in enumerate(items(main.get("requiredLibraries"))):
        if is_text(name) and name not in ALLOWED_LIBRARIES and name not in libraries:
            allowed = ", ".join(sorted({*ALLOWED_LIBRARIES, *libraries})[:20])
            key, words = "SEC020", f"the library '{cut(name)}' is not allowed; allowed: {allowed}"
            if node_module(name) is not None:
                key, words = "SEC020:builtin", f"'{name}' is a part of Node, no library of FlowMCP"
            yield Hit(key, f"/requiredLibraries/{index}", words)


def header_hits(headers: Any, path: str) -> Hits:
    """Breaches in an object of headers; their values are never shown."""
    if headers is UNSET:
        return
    if not isinstance(headers, dict):
        yield Hit("VAL023", path, f"`headers` must be an object of texts, {got(headers)}")
        return
    for name, value in members(headers).items():
        if not isinstance(value, str):
            words = f"the header '{cut(name)}' must be a text, got {_kind(value)}"
            yield Hit("VAL023", at(path, name), words)
        elif not _SENDABLE.match(value):
            words = f"the value of the header '{cut(name)}' must be one line of Latin-1"
            yield Hit("VAL129", at(path, name), words)
        if not _HEADER.match(name):
            words = f"the name of a header must be letters, digits and hyphens, {got(name)}"
            yield Hit("VAL129", at(path, name), words)


def _kind(value: Any) -> str:
    return "a number or a truth" if isinstance(value, int | float) else shown(value)


def _licence_hits(main: dict[str, Any]) -> Hits:
    for field, (pattern, words) in _LICENCES.items():
        value = main.get(field)
        if value is not None and not (isinstance(value, str) and pattern.match(value)):
            yield Hit("VAL125", f"/{field}", f"`{field}` must be {words}, {got(value)}")


def _skill_hits(main: dict[str, Any]) -> Hits:
    skills = main.get("skills", UNSET)
    if skills is UNSET:
        return
    names = list(members(skills)) or texts(skills)
    is_list = isinstance(skills, list) and len(texts(skills)) == len(items(skills))
    if not (isinstance(skills, dict) or is_list):
        yield Hit("VAL150", "/skills", f"`skills` must be an object or a list, {got(skills)}")
    for name in names:
        if not _SKILL.match(name):
            words = "the name of a skill must be lowercase letters, digits and hyphens"
            yield Hit("VAL150", "/skills", f"{words}, {got(name)}")


def file_hits(file: str, namespace: Any) -> Hits:
    """Breaches in the name of a file, or of its folder."""
    parts = [part for part in re.split(r"[/\\]", file) if part]
    if not parts or not parts[-1].endswith((".mjs", ".js")):
        return
    name = parts[-1]
    if not (name.endswith(".mjs") and PASCAL.match(name[:-4])):
        words = "the name of a schema file must be PascalCase.mjs"
        yield Hit("VAL093", "", f"{words}, {got(name)}")
    if "providers" in parts[:-2] and isinstance(namespace, str):
        last = len(parts) - 1 - parts[::-1].index("providers")
        folder = parts[last + 1] if last + 1 < len(parts) - 1 else namespace
        if folder != namespace:
            words = f"the folder '{cut(folder)}' must have the name of the namespace"
            yield Hit("VAL019", "/namespace", f"{words}, '{cut(namespace)}'")
