"""Zod 4 schemas from the contracts of tools: they accept the values that the contract accepts.

Rules that Zod has no method for become checks in the generated code. A rule that no such check can
express is an error that names the tool and the keyword; none is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from callpact.contracts.types.named_schemas import (
    IN_PLACE,
    KINDS,
    MAX_TYPE_DEPTH,
    TYPED,
    NamedParts,
    NamedSchema,
    allowed_values,
    kinds_of,
    rules_of,
    submap,
    subschemas,
)
from callpact.contracts.types.script_patterns import script_pattern
from callpact.contracts.types.typescript_types import comment, literal, type_declaration
from callpact.contracts.types.zod_runtime import RUNTIME
from callpact.errors import Unexpressible
from callpact.schema import is_array, is_object

_HEADER = "// Written by `callpact types --to zod`; changes here are lost. Needs zod 4, ES2022.\n"
_INHERITED = frozenset(
    {
        *("__proto__", "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable"),
        *("toLocaleString", "toString", "valueOf", "__defineGetter__", "__defineSetter__"),
        *("__lookupGetter__", "__lookupSetter__"),
    }
)
"""Names that every object of JavaScript inherits: Zod takes a missing key for a present one."""
_NEVER_WRITTEN = ("$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems")
_FORMATS = {
    "date": "isDate",
    "ipv4": "isIpv4",
    "uuid": "isUuid",
}


def write_zod(schemas: Iterable[NamedSchema]) -> str:
    """A TypeScript module with one Zod schema for each schema, and the type of each.

    Raises:
        Unexpressible: a keyword has no exact form in Zod.
    """
    named = tuple(schemas)
    taken = {each.name.lower() for each in named}
    parts = [_HEADER, 'import * as z from "zod";\n', RUNTIME]
    for each in named:
        parts += _declarations(each, taken)
    return "\n".join(parts)


def _declarations(named: NamedSchema, taken: set[str]) -> list[str]:
    definitions = NamedParts(named, taken)
    writer = _ZodWriter(definitions)
    name, text = named.name, writer.schema(named.document)
    if not writer.refers:
        doc = comment(named.document, "", named.label)
        return [
            f"{doc}export const {name} = {text};\nexport type {name} = z.infer<typeof {name}>;\n"
        ]
    # With references, the types are written out: TypeScript cannot infer recursive ones.
    types, constants = [type_declaration(definitions)], [_lazy(name, text)]
    for part in definitions.new():
        types.append(type_declaration(definitions, part))
        constants.append(_lazy(part.name, writer.schema(part.schema)))
    return [*types, *constants]


def _lazy(name: str, text: str) -> str:
    return f"export const {name}: z.ZodType<{name}> = z.lazy((): any => {text}) as any;\n"


class _ZodWriter:
    def __init__(self, definitions: NamedParts) -> None:
        self._definitions = definitions
        self.refers = False

    def schema(
        self, schema: Any, indent: str = "", within: tuple[str, ...] = KINDS, depth: int = 0
    ) -> str:
        """The expression of a schema, for values of the types `within`."""
        if schema is False:
            return "z.never()"
        if not is_object(schema):
            return "json"
        if depth > MAX_TYPE_DEPTH:
            raise self._refusal("properties", f"it is nested more than {MAX_TYPE_DEPTH} levels")
        keys = self._definitions.keywords(schema)
        for keyword in _NEVER_WRITTEN:
            if keyword in keys:
                raise self._refusal(keyword, "Zod cannot express it")
        kinds = kinds_of(keys, within)
        parts = self._in_place(schema, keys, indent, kinds, depth)
        says = {*keys} & TYPED
        if says and not (says == {"type"} and parts and kinds == within):
            parts.insert(0, self._own(keys, indent, kinds, depth))
        elif not parts or parts[0].startswith(("none(", "cases(")):
            parts.insert(0, self._own({}, indent, kinds, depth))
        return parts[0] if len(parts) == 1 else f"all({', '.join(parts)})"

    def _refusal(self, keyword: str, reason: str) -> Unexpressible:
        named = self._definitions.named
        return Unexpressible(named.tool, named.side, keyword, reason)

    def _in_place(
        self,
        schema: dict[str, Any],
        keys: Mapping[str, Any],
        indent: str,
        kinds: tuple[str, ...],
        depth: int,
    ) -> list[str]:
        """The schemas that apply to the same value, as arguments of `all`."""
        if IN_PLACE.isdisjoint(keys):
            return []

        def inner(part: Any) -> str:
            return self.schema(part, indent, kinds, depth + 1)

        parts: list[str] = []
        if "$ref" in keys:
            name = self._definitions.reference(schema)
            if (fixed := self._definitions.constant(schema)) is not None:
                name = "json" if fixed else "z.never()"
            elif name is None:
                raise self._refusal("$ref", f"{schema['$ref']!r} leads nowhere or to itself")
            self.refers = self.refers or fixed is None
            parts.append(name)
        if "anyOf" in keys:
            parts.append(_union([inner(each) for each in subschemas(keys, "anyOf")]))
        if "oneOf" in keys:
            branches = [inner(each) for each in subschemas(keys, "oneOf")]
            parts.append(branches[0] if len(branches) == 1 else f"one({', '.join(branches)})")
        parts += [inner(each) for each in subschemas(keys, "allOf")]
        if "not" in keys:
            parts.append(f"none({inner(keys['not'])})")
        if "if" in keys and ("then" in keys or "else" in keys):
            cases = [inner(keys.get(word, True)) for word in ("if", "then", "else")]
            parts.append(f"cases({', '.join(cases)})")
        return parts

    def _own(
        self, schema: Mapping[str, Any], indent: str, kinds: tuple[str, ...], depth: int
    ) -> str:
        values = allowed_values(schema, kinds)
        if values is not None:
            text = _values(values)
            rest = {
                key: value for key, value in schema.items() if key not in {"enum", "const", "type"}
            }
            used = {_kind_of(value) for value in values}
            if any(rules_of(rest, kind) for kind in used):
                others = tuple(kind for kind in KINDS if kind in used)
                return f"all({text}, {self._own(rest, indent, others, depth)})"
            return text
        if kinds == KINDS and not any(rules_of(schema, kind) for kind in KINDS):
            return "json"
        return _union([self._of_kind(schema, kind, indent, depth) for kind in kinds])

    def _of_kind(self, schema: Mapping[str, Any], kind: str, indent: str, depth: int) -> str:
        match kind:
            case "string":
                return self._string(schema)
            case "number" | "integer":
                return _number(schema, is_integer=kind == "integer")
            case "array":
                return self._array(schema, indent, depth)
            case "object":
                return self._object(schema, indent, depth)
            case _:
                return f"z.{kind}()"

    def _string(self, schema: Mapping[str, Any]) -> str:
        text = "z.string()"
        if "minLength" in schema:
            text += f".refine(atLeast({_size(schema['minLength'])}))"
        if "maxLength" in schema:
            text += f".refine(atMost({_size(schema['maxLength'])}))"
        if "pattern" in schema:
            text += f".regex({self._pattern(schema['pattern'], 'pattern')})"
        if self._definitions.named.formats and "format" in schema:
            name = schema["format"]
            if name not in _FORMATS:
                raise self._refusal("format", f"the check of {name!r} has no form in Zod")
            text += f".refine({_FORMATS[name]})"
        if self._definitions.named.formats:
            for keyword, sign in (("formatMinimum", ">="), ("formatMaximum", "<=")):
                if keyword in schema:
                    text += f".refine((text) => text {sign} {literal(schema[keyword])})"
        return text

    def _pattern(self, pattern: Any, keyword: str) -> str:
        try:
            return f'new RegExp({literal(script_pattern(str(pattern)))}, "u")'
        except ValueError as error:
            raise self._refusal(keyword, f"{pattern!r}: {error}") from None

    def _array(self, schema: Mapping[str, Any], indent: str, depth: int) -> str:
        items = schema.get("items", True)
        first = subschemas(schema, "prefixItems")
        rest = self.schema(items, indent, depth=depth + 1)
        least, most = _size(schema.get("minItems", 0)), schema.get("maxItems")
        if first:
            parts: list[str] = []
            for place, part in enumerate(first):
                item = self.schema(part, indent, depth=depth + 1)
                parts.append(item if place < least else f"{item}.optional()")
            more = "" if items is False else f", {rest}"
            text = f"z.tuple([{', '.join(parts)}]{more})"
            rules = [f"items({least}, {_size(most) if most is not None else 'Infinity'})"]
            rules = rules if "minItems" in schema or most is not None else []
        else:
            text = f"z.array({rest})"
            text += f".min({least})" if least else ""
            text += f".max({_size(most)})" if most is not None else ""
            rules = []
        if "contains" in schema:
            inner = self.schema(schema["contains"], indent, depth=depth + 1)
            bounds = (schema.get("minContains", 1), schema.get("maxContains"))
            high = "Infinity" if bounds[1] is None else str(_size(bounds[1]))
            rules.append(f"contains({inner}, {_size(bounds[0])}, {high})")
        if schema.get("uniqueItems") is True:
            rules.append("unique")
        return f"all({text}, {', '.join(rules)})" if rules else text

    def _object(self, schema: Mapping[str, Any], indent: str, depth: int) -> str:
        inner = indent + "  "
        properties = submap(schema, "properties")
        required = list(dict.fromkeys(map(str, subschemas(schema, "required"))))
        extra = schema.get("additionalProperties", True)
        patterns = submap(schema, "patternProperties")

        def sub(part: Any) -> str:
            return self.schema(part, inner, depth=depth + 1)

        rules: list[str] = []
        lines: list[str] = []
        for name in dict.fromkeys([*properties, *required]):
            # The rule about further keys judges those that a pattern may match.
            text = sub(properties.get(name, True if patterns else extra))
            if name in _INHERITED:
                rules.append(f"member({literal(name)}, {text}, {literal(name in required)})")
                lines.append(f"{inner}[{literal(name)}]: json.optional(),\n")
                continue
            mark = "" if name in required else ".optional()"
            doc = comment(properties.get(name), inner)
            lines.append(f"{doc}{inner}{literal(name)}: {text}{mark},\n")
        shape = f"{{\n{''.join(lines)}{indent}}}" if lines else "{}"
        listed = [self._pattern(each, "patternProperties") for each in patterns]
        if extra is False and not patterns:
            text = f"z.strictObject({shape})"
        elif (extra is True or extra == {}) or patterns or not is_object(extra):
            text = f"z.looseObject({shape})"
        else:
            text = f"z.looseObject({shape}).catchall({sub(extra)})"
        for expression, part in zip(listed, patterns.values(), strict=True):
            rules.append(f"matching({expression}, {sub(part)})")
        if extra is not True and extra != {} and (patterns or extra is not False):
            names = f"[{', '.join(literal(name) for name in properties)}]"
            rules.append(f"rest({names}, [{', '.join(listed)}], {sub(extra)})")
        rules += self._object_rules(schema, sub)
        return f"all({text}, {', '.join(rules)})" if rules else text

    def _object_rules(self, schema: Mapping[str, Any], sub: Any) -> list[str]:
        rules: list[str] = []
        if "minProperties" in schema or "maxProperties" in schema:
            most = schema.get("maxProperties")
            high = "Infinity" if most is None else str(_size(most))
            rules.append(f"size({_size(schema.get('minProperties', 0))}, {high})")
        if "propertyNames" in schema:
            rules.append(f"names({sub(schema['propertyNames'])})")
        rules += [
            f"together({literal(name)}, {literal(others)})"
            for name, others in submap(schema, "dependentRequired").items()
        ]
        rules += [
            f"dependent({literal(name)}, {sub(part)})"
            for name, part in submap(schema, "dependentSchemas").items()
        ]
        return rules


def _union(options: Iterable[str]) -> str:
    found = list(dict.fromkeys(options))
    if not found:
        return "z.never()"
    if len(found) == 2 and "z.null()" in found:
        other = next(each for each in found if each != "z.null()")
        return f"{other}.nullable()"
    return found[0] if len(found) == 1 else f"z.union([{', '.join(found)}])"


def _values(values: list[Any]) -> str:
    plain = [value for value in values if not is_object(value) and not is_array(value)]
    options = [f"z.literal([{', '.join(map(literal, plain))}])"] if plain else []
    options += [
        f"equal({_value(value)})" for value in values if is_object(value) or is_array(value)
    ]
    return _union(options)


def _value(value: Any) -> str:
    """A value as an expression; as a plain key, `__proto__` would set the prototype."""
    if is_array(value):
        return f"[{', '.join(map(_value, value))}]"
    if not is_object(value):
        return literal(value)
    return f"{{{', '.join(f'[{literal(key)}]: {_value(each)}' for key, each in value.items())}}}"


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if value is None:
        return "null"
    return "array" if is_array(value) else "object"


def _size(value: Any) -> int:
    """A count; JSON Schema allows 3.0 for 3."""
    return int(value)


def _number(schema: Mapping[str, Any], *, is_integer: bool) -> str:
    # z.int() refuses integers beyond 2^53, which JSON Schema accepts.
    text = "z.number()" + (".refine(Number.isInteger)" if is_integer else "")
    for keyword, method in (
        ("minimum", "gte"),
        ("maximum", "lte"),
        ("exclusiveMinimum", "gt"),
        ("exclusiveMaximum", "lt"),
    ):
        if keyword in schema:
            text += f".{method}({literal(schema[keyword])})"
    if "multipleOf" in schema:
        text += f".refine(multipleOf({literal(schema['multipleOf'])}))"
    return text
