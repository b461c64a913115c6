"""Arguments in the query of a GET: the form of each by its schema, and the way back; pure functions.

A number, a text or a boolean is written as it is, a list of them by repeating its name, everything
else as JSON text. The description of the endpoints (`openapi_output.py`) and the door go by the same
forms.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl

from callpact import schema as schemas
from callpact.errors import InvalidInput, Issue
from callpact.schema import is_array, is_object
from callpact.schema.targets import resolve

if TYPE_CHECKING:
    from callpact.tool import Tool

QueryForm = Literal["text", "list", "json"]

MAX_QUERY_ARGUMENTS = 1_000
"""Arguments in the query of one request, repeated ones counted each time."""
_SCALARS = frozenset({"string", "number", "integer", "boolean"})
_FLAT = frozenset(
    {
        *("$schema", "$defs", "definitions", "$comment", "title", "description", "examples"),
        *("type", "properties", "required", "additionalProperties", "default", "deprecated"),
    }
)
"""Keywords of a schema whose properties are independent of one another."""
_DEPTH = 20
_WIDE = re.compile(rb"[0-9]{19}")
_WIDE_INTEGER = re.compile(r"-?[1-9][0-9]{18,399}", re.ASCII)


def is_read_only(tool: Tool) -> bool:
    """True if a tool only reads, so that it can be called with GET."""
    return tool.annotations.get("readOnlyHint", tool.kind == "query") is True


def takes_idempotency_key(tool: Tool) -> bool:
    """True if a repeated call could do its work twice, so that a key protects it."""
    return not is_read_only(tool) and tool.kind != "subscription"


def query_forms(tool: Tool) -> dict[str, QueryForm] | None:
    """Return the form of each argument in a query; None if the tool cannot be called with GET.

    It can be if it only reads, and if each argument has a form that is read back without a guess:
    its types are declared, and a text cannot be taken for a list or an object.
    """
    schema = tool.contract.input
    if not is_read_only(tool):
        return None
    if not is_object(schema):
        return {}
    properties = schema.get("properties", {})
    if not _FLAT.issuperset(schema) or not is_object(properties):
        return None
    forms: dict[str, QueryForm] = {}
    for name, held in properties.items():
        form = _form(held, schema)
        if form is None:
            return None
        forms[name] = form
    return forms


def read_query(query: bytes, tool: Tool) -> dict[str, Any]:
    """Read the arguments of a query: texts are converted where the input schema says so exactly.

    Raises:
        InvalidInput: the query is not UTF-8, or has too many arguments.
    """
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_QUERY_ARGUMENTS,
        )
    except ValueError:
        text = f"The query must be UTF-8 with at most {MAX_QUERY_ARGUMENTS:,} arguments"
        raise InvalidInput(lambda: [Issue("query", text)]) from None
    texts: dict[str, list[str]] = {}
    for name, value in pairs:
        texts.setdefault(name, []).append(value)
    forms = query_forms(tool) or {}
    arguments = {
        name: values[0] if len(values) == 1 and forms.get(name) != "list" else values
        for name, values in texts.items()
    }
    compiled = tool.contract.compiled_input
    converted = schemas.repair(compiled, arguments).value
    if _WIDE.search(query) and not compiled.accepts(converted):
        wide = {name: _widened(value) for name, value in converted.items()}
        return wide if compiled.accepts(wide) else converted
    return converted


def _widened(value: Any) -> Any:
    """Convert texts that are integers of more than 64 bits, which `repair` leaves."""
    if is_array(value):
        return [_widened(item) for item in value]
    is_wide = isinstance(value, str) and _WIDE_INTEGER.fullmatch(value)
    return int(value) if is_wide else value


def without_null(schema: Any) -> Any:
    """Return a schema without null, which a query cannot express: the argument is left out."""
    if not is_object(schema):
        return schema
    kept = {key: value for key, value in schema.items() if key != "default" or value is not None}
    kinds = schema.get("type")
    if is_array(kinds) and "null" in kinds:
        rest = [kind for kind in kinds if kind != "null"]
        kept["type"] = rest[0] if len(rest) == 1 else rest
    for keyword in ("anyOf", "oneOf"):
        variants = schema.get(keyword)
        if not is_array(variants):
            continue
        rest = [one for one in variants if not _is_null(one)]
        if len(rest) == 1 < len(variants) and is_object(rest[0]):
            del kept[keyword]
            return (
                {**rest[0], **kept} if rest[0].keys().isdisjoint(kept) else kept | {keyword: rest}
            )
        kept[keyword] = rest
    return kept


def _form(schema: Any, root: dict[str, Any]) -> QueryForm | None:
    schema = without_null(schema)
    kinds = _kinds(schema, root)
    if not kinds:
        return None
    if kinds <= _SCALARS:
        return "text"
    if kinds & _SCALARS:
        return None
    items = _items(schema, root)
    is_plain = (
        kinds == frozenset({"array"}) and items is not None and _kinds(items, root) <= _SCALARS
    )
    return "list" if is_plain and _kinds(items, root) else "json"


def _kinds(schema: Any, root: dict[str, Any], depth: int = _DEPTH) -> frozenset[str]:
    """Return the types of a schema but null; empty if they are not declared."""
    if not is_object(schema) or not depth:
        return frozenset()
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return frozenset({kinds}) - {"null"}
    if is_array(kinds):
        return frozenset(kind for kind in kinds if isinstance(kind, str)) - {"null"}
    if "const" in schema or is_array(schema.get("enum")):
        values = [schema["const"]] if "const" in schema else schema["enum"]
        # Without a type, texts are not converted to other values.
        are_texts = all(isinstance(value, str | None) for value in values)
        return frozenset({"string"}) if are_texts else frozenset()
    if isinstance(schema.get("$ref"), str):
        return _kinds(resolve(root, schema["$ref"]), root, depth - 1)
    for keyword in ("anyOf", "oneOf"):
        variants = schema.get(keyword)
        if is_array(variants):
            found = [
                _kinds(variant, root, depth - 1) for variant in variants if not _is_null(variant)
            ]
            return frozenset[str]().union(*found) if all(found) else frozenset()
    parts = schema.get("allOf")
    found = [_kinds(part, root, depth - 1) for part in parts] if is_array(parts) else []
    return next(filter(None, found), frozenset[str]())


def _is_null(schema: Any) -> bool:
    return is_object(schema) and schema.get("type") == "null"


def _items(schema: Any, root: dict[str, Any], depth: int = _DEPTH) -> Any:
    """Return the schema of the items of an array; None if it is not a simple one."""
    if not is_object(schema) or not depth:
        return None
    if isinstance(schema.get("$ref"), str):
        return _items(resolve(root, schema["$ref"]), root, depth - 1)
    return schema.get("items") if "prefixItems" not in schema else None
