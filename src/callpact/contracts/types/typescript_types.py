"""TypeScript types from the contracts of tools.

A type accepts every value of its schema. Rules without a form in TypeScript (bounds, patterns,
`not`, `if`) are named in the comments; `zod_types.py` checks them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from callpact.contracts.types.named_schemas import (
    KINDS,
    MAX_TYPE_DEPTH,
    TYPED,
    NamedPart,
    NamedParts,
    NamedSchema,
    allowed_values,
    kinds_of,
    submap,
    subschemas,
)
from callpact.schema import is_array, is_object

ANY_TYPE = "unknown"
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_BREAKS = re.compile("[\r\n\u0085\u2028\u2029]+")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_TAGS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems"),
    *("minProperties", "maxProperties", "default"),
)
_UNTYPED = ("not", "if", "contains", "propertyNames", "dependentRequired", "dependentSchemas")
_TYPING = frozenset({"$ref", "anyOf", "oneOf", "allOf"})
_HEADER = "// Written by `callpact types --to typescript`; changes here are lost.\n"


def write_typescript(schemas: Iterable[NamedSchema]) -> str:
    """A module with one exported type for each schema, and one for each of its definitions."""
    named = tuple(schemas)
    taken = {each.name.lower() for each in named}
    parts = [_HEADER]
    for each in named:
        definitions = NamedParts(each, taken)
        parts.append(type_declaration(definitions))
        parts += [type_declaration(definitions, part) for part in definitions.new()]
    return "\n".join(parts)


def type_declaration(definitions: NamedParts, part: NamedPart | None = None) -> str:
    """The declaration of a schema, or of one of its definitions."""
    writer = _TypeWriter(definitions)
    if part is not None:
        return writer.declaration(part.name, part.schema)
    return writer.declaration(
        definitions.named.name, definitions.named.document, definitions.named.label
    )


class _TypeWriter:
    def __init__(self, definitions: NamedParts) -> None:
        self._definitions = definitions

    def declaration(self, name: str, schema: Any, label: str = "") -> str:
        text = self.type(schema)
        doc = comment(schema, "", label)
        if _is_one_object(text):
            return f"{doc}export interface {name} {text}\n"
        return f"{doc}export type {name} = {text};\n"

    def type(
        self, schema: Any, indent: str = "", within: tuple[str, ...] = KINDS, depth: int = 0
    ) -> str:
        if schema is False:
            return "never"
        if not is_object(schema) or depth > MAX_TYPE_DEPTH:
            return ANY_TYPE
        keys = self._definitions.keywords(schema)
        kinds = kinds_of(keys, within)
        says = {*keys} & TYPED
        is_left_out = not says or (says == {"type"} and not _TYPING.isdisjoint(keys))
        parts = [] if is_left_out else [self._own(keys, indent, kinds, depth)]
        if "$ref" in keys:
            is_never = self._definitions.constant(schema) is False
            parts.append("never" if is_never else self._definitions.reference(schema) or ANY_TYPE)
        for keyword in ("anyOf", "oneOf"):
            if keyword in keys:
                branches = [
                    self.type(each, indent, kinds, depth + 1) for each in subschemas(keys, keyword)
                ]
                parts.append(union(branches))
        parts += [self.type(each, indent, kinds, depth + 1) for each in subschemas(keys, "allOf")]
        known = [part for part in dict.fromkeys(parts) if part != ANY_TYPE]
        if not known:
            return ANY_TYPE if kinds == KINDS else self._own({}, indent, kinds, depth)
        return known[0] if len(known) == 1 else " & ".join(map(_grouped, known))

    def _own(
        self, schema: Mapping[str, Any], indent: str, kinds: tuple[str, ...], depth: int
    ) -> str:
        values = allowed_values(schema, kinds)
        if values is not None:
            return union([_literal_type(value) for value in values])
        if set(kinds) == {*KINDS} and not {"properties", "items", "prefixItems"} & {*schema}:
            return ANY_TYPE
        return union([self._of_kind(schema, kind, indent, depth) for kind in kinds])

    def _of_kind(self, schema: Mapping[str, Any], kind: str, indent: str, depth: int) -> str:
        match kind:
            case "integer":
                return "number"
            case "array":
                return self._array(schema, indent, depth)
            case "object":
                return self._object(schema, indent, depth)
            case _:
                return kind

    def _array(self, schema: Mapping[str, Any], indent: str, depth: int) -> str:
        rest = self.type(schema.get("items", True), indent, depth=depth + 1)
        first = subschemas(schema, "prefixItems")
        if not first:
            return "[]" if rest == "never" else f"{_grouped(rest)}[]"
        least = schema.get("minItems", 0)
        items: list[str] = []
        for place, part in enumerate(first):
            item = _grouped(self.type(part, indent, depth=depth + 1))
            items.append(item if place < least else f"{item}?")
        items += [] if rest == "never" else [f"...{_grouped(rest)}[]"]
        return f"[{', '.join(items)}]"

    def _object(self, schema: Mapping[str, Any], indent: str, depth: int) -> str:
        inner = indent + "  "
        properties = submap(schema, "properties")
        required = set(map(str, subschemas(schema, "required")))
        extra = schema.get("additionalProperties")
        patterns = submap(schema, "patternProperties")
        lines: list[str] = []
        types: list[str] = []
        for name in dict.fromkeys([*properties, *sorted(required)]):
            part = properties.get(name, True if extra is None or patterns else extra)
            text = self.type(part, inner, depth=depth + 1)
            mark = "" if name in required else "?"
            types += [text] if name in required else [text, "undefined"]
            lines.append(f"{comment(part, inner)}{inner}{_key(name)}{mark}: {text};\n")
        is_open = extra is not False and (extra is not None or bool(patterns) or not lines)
        others = [self.type(True if extra is None else extra, inner, depth=depth + 1)]
        others = others if is_open else []
        others += [self.type(part, inner, depth=depth + 1) for part in patterns.values()]
        if others:
            lines.append(f"{inner}[key: string]: {union([*others, *types])};\n")
        return f"{{\n{''.join(lines)}{indent}}}" if lines else "{ [key: string]: never }"


def union(types: Iterable[str]) -> str:
    """A union without repeated members; `never` without any."""
    found = list(dict.fromkeys(types))
    if ANY_TYPE in found:
        return ANY_TYPE
    found = [each for each in found if each != "never"] or ["never"]
    return " | ".join(_grouped(each, "&") for each in found)


def _is_one_object(text: str) -> bool:
    """True if a type is one object type, so that it can be an interface."""
    return text.startswith("{\n") and text.index("\n}") == len(text) - 2


def _grouped(text: str, operators: str = "|&") -> str:
    """The type in parentheses if it has an operator of its own outside of brackets."""
    depth, is_quoted, is_escaped = 0, False, False
    for sign in text:
        if is_escaped:
            is_escaped = False
        elif is_quoted:
            is_escaped = sign == "\\"
            is_quoted = sign != '"'
        elif sign == '"':
            is_quoted = True
        elif sign in "{[(":
            depth += 1
        elif sign in "}])":
            depth -= 1
        elif sign in operators and not depth:
            return f"({text})"
    return text


def _literal_type(value: Any) -> str:
    if is_object(value):
        members = "; ".join(f"{_key(name)}: {_literal_type(each)}" for name, each in value.items())
        return f"{{ {members} }}" if members else "{ [key: string]: never }"
    if is_array(value):
        return f"[{', '.join(map(_literal_type, value))}]"
    return literal(value)


def literal(value: Any) -> str:
    """A JSON value as an expression of JavaScript, in ASCII."""
    return json.dumps(value, ensure_ascii=True)


def _key(name: str) -> str:
    return name if _NAME.fullmatch(name) else literal(name)


def comment(schema: Any, indent: str, label: str = "") -> str:
    """The description and the rules of a schema as a JSDoc comment; empty without any."""
    lines = [label] if label else []
    if is_object(schema):
        about = schema.get("description") or schema.get("title")
        if isinstance(about, str):
            lines += _BREAKS.split(about.strip())
        if schema.get("deprecated") is True:
            lines.append("@deprecated")
        lines += [f"@{tag} {literal(schema[tag])}" for tag in _TAGS if tag in schema]
        hidden = [word for word in _UNTYPED if word in schema]
        if hidden:
            lines.append(f"Further rules: {', '.join(hidden)}.")
    shown = [_CONTROLS.sub(" ", line).replace("*/", "*\\/").rstrip()[:2_000] for line in lines]
    if not shown:
        return ""
    if len(shown) == 1:
        return f"{indent}/** {shown[0]} */\n"
    body = "".join(f"{indent} * {line}".rstrip() + "\n" for line in shown)
    return f"{indent}/**\n{body}{indent} */\n"
