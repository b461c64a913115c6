"""The rules of a tool's output (seed 000): MIME type, the dialect of seven keywords, four levels."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from callpact.schema.issues.wording import cut, shown
from callpact.sources.flowmcp.read.hit import Hit, Hits, at, got, members, unknown_hits

MAX_OUTPUT_LEVELS = 4
"""Levels that the output schema of a FlowMCP tool may have (seed 000); `items` adds none."""

_ROOTS = {
    "application/json": ("object", "array"),
    "image/png": ("string",),
    "text/plain": ("string",),
}
_TYPES = frozenset({"string", "number", "boolean", "object", "array"})
_KEYWORDS = frozenset({"type", "properties", "items", "description", "nullable", "enum", "format"})
_FORMATS = frozenset({"base64", "date-time", "uri"})
_LEAVES = frozenset({"string", "number", "boolean"})
_STRUCTURE = frozenset({"type", "description", "properties", "items"})


def output_hits(output: Any, path: str) -> Hits:
    """Breaches in a declared `output`."""
    if not isinstance(output, dict) or not output:
        words = "`output` must be { mimeType, schema }, or not be there"
        yield Hit("VAL061", path, f"{words}, {got(output)}")
        return
    declared = members(output)
    yield from unknown_hits("VAL137", path, declared, frozenset({"mimeType", "schema"}))
    mime = declared.get("mimeType", UNSET)
    roots = _ROOTS.get(mime) if isinstance(mime, str) else None
    if roots is None:
        words = "`mimeType` must be application/json, image/png or text/plain"
        yield Hit("VAL060", f"{path}/mimeType", f"{words}, {got(mime)}")
    schema = declared.get("schema", UNSET)
    if not isinstance(schema, dict):
        yield Hit("VAL061", f"{path}/schema", f"`schema` must be an object, {got(schema)}")
        return
    if roots is not None:
        yield from _root_hits(members(schema), f"{path}/schema", str(mime), roots)
    yield from _schema_hits(members(schema), f"{path}/schema")


def _root_hits(schema: dict[str, Any], path: str, mime: str, roots: tuple[str, ...]) -> Hits:
    kind = schema.get("type", UNSET)
    if kind not in roots:
        words = f"{mime} must have the type {' or '.join(roots)}"
        yield Hit("VAL062", f"{path}/type", f"{words}, {got(kind)}")
    elif mime == "image/png" and schema.get("format") != "base64":
        words = "image/png must have the format base64"
        yield Hit("VAL062", f"{path}/format", f"{words}, {got(schema.get('format', UNSET))}")


def _schema_hits(root: dict[str, Any], path: str) -> Hits:
    deep = 0
    first = ""
    nodes: list[tuple[Any, str, int]] = [(root, path, 1)]
    while nodes:
        node, place, level = nodes.pop()
        if level > MAX_OUTPUT_LEVELS:
            deep, first = deep + 1, first or place
        if not isinstance(node, dict):
            yield Hit("VAL061", place, f"a schema must be an object, {got(node)}")
            continue
        schema = members(node)
        yield from _node_hits(schema, place)
        properties = members(schema.get("properties"))
        children = properties.items()
        if level < MAX_OUTPUT_LEVELS:  # Most are leaves, which cannot break a rule.
            children = [pair for pair in children if not _is_leaf(pair[1])]
        for name, child in children:
            nodes.append((child, at(f"{place}/properties", name), level + 1))
        if "items" in schema:
            nodes.append((schema["items"], f"{place}/items", level))
    if deep:
        words = f"a schema must have at most {MAX_OUTPUT_LEVELS} levels, {deep} places are deeper"
        yield Hit("VAL063", first, words)


def _is_leaf(node: Any) -> bool:
    """True for `{ type: 'string', description: '…' }` and the like."""
    schema = members(node)
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _LEAVES:
        return False
    return len(schema) == 1 or (len(schema) == 2 and isinstance(schema.get("description"), str))


def _node_hits(schema: dict[str, Any], path: str) -> Hits:
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        yield from _type_hits(schema, path)
    if kind == "array" and "items" not in schema:
        yield Hit("VAL120", path, "an array must say in `items` what it holds")
    if not schema.keys() <= _STRUCTURE:
        yield from _keyword_hits(schema, path)
    if "properties" in schema:
        if kind != "object":
            words = f"only an object may have `properties`, the type is {_named(schema)}"
            yield Hit("VAL064", f"{path}/properties", words)
        if not isinstance(schema["properties"], dict):
            words = f"`properties` must be an object, {got(schema['properties'])}"
            yield Hit("VAL061", f"{path}/properties", words)
    if "items" in schema and kind != "array":
        words = f"only an array may have `items`, the type is {_named(schema)}"
        yield Hit("VAL065", f"{path}/items", words)
    if "description" in schema and not isinstance(schema["description"], str):
        yield from _text_hits(schema, path, "description")


def _named(schema: dict[str, Any]) -> str:
    return shown(schema["type"]) if "type" in schema else "missing"


def _type_hits(schema: dict[str, Any], path: str) -> Hits:
    kind = schema.get("type", UNSET)
    if kind == "integer":
        yield Hit("VAL122", f"{path}/type", "'integer' is not a type here")
    elif kind is not UNSET or schema.keys() <= _KEYWORDS:
        words = "`type` must be string, number, boolean, object or array"
        yield Hit("VAL061", f"{path}/type", f"{words}, {got(kind)}")


def _keyword_hits(schema: dict[str, Any], path: str) -> Hits:
    for keyword in schema:
        if keyword not in _KEYWORDS:
            words = f"the keyword '{cut(keyword)}' is not part of the dialect"
            yield Hit("VAL121", at(path, keyword), words)
    if "nullable" in schema and not isinstance(schema["nullable"], bool):
        words = f"`nullable` must be true or false, {got(schema['nullable'])}"
        yield Hit("VAL061", f"{path}/nullable", words)
    if "enum" in schema and not (isinstance(schema["enum"], list) and schema["enum"]):
        words = f"`enum` must be a list of values, {got(schema['enum'])}"
        yield Hit("VAL061", f"{path}/enum", words)
    if "format" in schema:
        yield from _text_hits(schema, path, "format")
        if isinstance(schema["format"], str) and schema["format"] not in _FORMATS:
            words = f"`format` should be base64, date-time or uri, {got(schema['format'])}"
            yield Hit("VAL136", f"{path}/format", words)


def _text_hits(schema: dict[str, Any], path: str, keyword: str) -> Hits:
    if not isinstance(schema[keyword], str):
        words = f"`{keyword}` must be a text, {got(schema[keyword])}"
        yield Hit("VAL061", f"{path}/{keyword}", words)
