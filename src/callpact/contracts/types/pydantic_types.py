"""Pydantic models from the contracts of tools.

A model checks types, required fields, enums and the bounds that Pydantic has. Rules beyond that are
named in a comment above the model. Every text of a declaration is written as a Python literal.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from callpact.contracts.types.named_schemas import (
    IN_PLACE,
    KINDS,
    MAX_TYPE_DEPTH,
    TYPED,
    NamedParts,
    NamedSchema,
    allowed_values,
    kinds_of,
    pascal,
    rules_of,
    submap,
    subschemas,
    unique_name,
)
from callpact.schema import is_array, is_object

_HEADER = '''"""Written by `callpact types --to pydantic`; changes here are lost."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel


def _refuse(value: Any) -> Any:
    raise ValueError("no value is allowed here")


def _whole(value: Any) -> Any:
    is_whole = isinstance(value, float) and abs(value) < 2**53 and value.is_integer()
    return int(value) if is_whole else value


Nothing = Annotated[Any, BeforeValidator(_refuse)]
Integer = Annotated[int, BeforeValidator(_whole)]
'''
_WORD = re.compile(r"[A-Za-z0-9]+")
_SIMPLE = {
    "string": "str",
    "integer": "Integer",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}
_STRING = {"minLength": "min_length", "maxLength": "max_length"}
_NUMBER = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}
_ARRAY = {"minItems": "min_length", "maxItems": "max_length"}
_FORMATS = frozenset({"format", "formatMinimum", "formatMaximum"})
_RULES = (TYPED | IN_PLACE | _FORMATS) - {"then", "else"}
_OWN = frozenset((*dir(BaseModel), *dir(type(BaseModel)))) | {
    *("root", "str", "int", "float", "bool", "list", "dict", "tuple"),
    *("Any", "Literal", "Annotated", "Nothing", "Integer", "Field"),
    *("BaseModel", "RootModel", "ConfigDict"),
}
"""Names that a field may not have: it would hide an attribute or a type of the module."""


def write_pydantic(schemas: Iterable[NamedSchema]) -> str:
    """A Python module with one model for each schema, and one for each object inside it."""
    named = tuple(schemas)
    taken = {each.name.lower() for each in named}
    parts = [_HEADER]
    for each in named:
        definitions = NamedParts(each, taken)
        writer = _ModelWriter(definitions, taken)
        writer.declare(each.name, each.document, each.label)
        for part in definitions.new():
            writer.declare(part.name, part.schema, "")
        parts += writer.models
    return "\n\n".join(parts)


class _ModelWriter:
    def __init__(self, definitions: NamedParts, taken: set[str]) -> None:
        self._definitions = definitions
        self._taken = taken
        self._missed: set[str] = set()
        """Keywords that the model being written does not check, or not exactly."""
        self.models: list[str] = []

    def declare(self, name: str, schema: Any, label: str) -> None:
        """Write the model of a schema: its fields if it is an object, else the one value."""
        about = _about(schema, label)
        if is_object(schema):
            keys = self._definitions.keywords(schema)
            if kinds_of(keys) == ("object",) and _is_model(keys):
                self._object(name, keys, about)
                return
        self._missed = set()
        value = self._type(schema, name)
        note = _note(self._missed)
        # As an annotation of a field, the type may name models that are defined later.
        self.models.append(
            f"{note}class {name}(RootModel[Any]):\n{about}{_STRICT}    root: {value}\n"
        )

    def _miss(self, keywords: Iterable[str], expressed: Iterable[str] = ()) -> None:
        """Note the rules that a type does not express, for the comment above its model."""
        notes = frozenset[str]() if self._definitions.named.formats else _FORMATS
        self._missed |= ({*keywords} & _RULES) - {*expressed} - notes

    def _object(self, name: str, schema: Mapping[str, Any], about: str) -> None:
        extra = schema.get("additionalProperties")
        allowed = "forbid" if extra is False and "patternProperties" not in schema else "allow"
        outer, self._missed = self._missed, set()
        others = IN_PLACE | {"enum", "const"}
        self._miss(rules_of(schema, "object") | ({*schema} & others), _FIELDS)
        lines = [f'    model_config = ConfigDict(strict=True, extra="{allowed}", {_NAMES})\n']
        if is_object(extra) and extra and "patternProperties" not in schema:
            inner = self._type(extra, f"{name}Value")
            lines.append(f"    __pydantic_extra__: dict[str, {inner}]\n")
        required = set(map(str, subschemas(schema, "required")))
        properties = submap(schema, "properties")
        taken: set[str] = set()
        for key in dict.fromkeys([*properties, *sorted(required)]):
            field = unique_name(_field_name(key), taken)
            part = properties.get(key, True if extra is None else extra)
            kind = self._type(part, name + pascal(key))
            options = [] if field == key else [f"alias={key!r}"]
            if is_object(part) and isinstance(part.get("description"), str):
                options.append(f"description={part['description']!r}")
            if key not in required:
                kind = kind if kind == "Any" or kind.endswith("None") else f"{kind} | None"
                options.insert(0, "default=None")
            value = f" = Field({', '.join(options)})" if options else ""
            lines.append(f"    {field}: {kind}{value}\n")
        note = _note(self._missed)
        self._missed = outer
        self.models.append(f"{note}class {name}(BaseModel):\n{about}{''.join(lines)}")

    def _type(self, schema: Any, name: str, within: tuple[str, ...] = KINDS, depth: int = 0) -> str:
        if schema is False:
            return "Nothing"
        if not is_object(schema):
            return "Any"
        keys = self._definitions.keywords(schema)
        if depth > MAX_TYPE_DEPTH:
            self._miss(keys)
            return "Any"
        if "$ref" in keys:
            target = self._definitions.reference(schema)
            self._miss(keys, ("$ref",) if target else ())
            return target or "Any"
        kinds = kinds_of(keys, within)
        for word in ("anyOf", "oneOf"):
            branches = subschemas(keys, word)
            if branches and not {"properties", "items", "enum", "const"} & {*keys}:
                self._miss(keys, ("type", "anyOf") if word == "anyOf" else ("type",))
                return _union(
                    self._type(each, f"{name}{number}", kinds, depth + 1)
                    for number, each in enumerate(branches, 1)
                )
        if len(parts := subschemas(keys, "allOf")) == 1 and TYPED.isdisjoint(keys):
            self._miss(keys, ("allOf",))
            return self._type(parts[0], name, kinds, depth + 1)
        values = allowed_values(keys, kinds)
        if values is not None:
            is_exact = all(_is_plain(value) and value not in (0, 1) for value in values)
            self._miss(keys, ("type", "enum", "const") if is_exact else ("type",))
            return _literals(values)
        if kinds == KINDS and not {"properties", "items", "prefixItems"} & {*keys}:
            self._miss(keys)
            return "Any"
        if not (kinds == ("object",) and _is_model(keys)):
            self._miss({*keys} & IN_PLACE)
        return _union(self._of_kind(keys, kind, name, depth) for kind in kinds)

    def _of_kind(self, schema: Mapping[str, Any], kind: str, name: str, depth: int) -> str:
        if kind == "object":
            if _is_model(schema):
                model = unique_name(name, self._taken)
                self._object(model, schema, _about(schema, ""))
                return model
            extra = schema.get("additionalProperties", True)
            needed = () if schema.get("required") else ("required",)
            self._miss(rules_of(schema, kind), ("properties", "additionalProperties", *needed))
            if extra is False:
                return "dict[str, Nothing]"
            return f"dict[str, {self._type(extra, f'{name}Value', depth=depth + 1)}]"
        if kind == "array":
            return self._array(schema, name, depth)
        bounds = _STRING if kind == "string" else _NUMBER if kind in {"integer", "number"} else {}
        self._miss(
            rules_of(schema, kind), (word for word in bounds if _is_exact(word, schema.get(word)))
        )
        return _bounded(_SIMPLE[kind], _whole(schema) if kind == "integer" else schema, bounds)

    def _array(self, schema: Mapping[str, Any], name: str, depth: int) -> str:
        first = subschemas(schema, "prefixItems")
        least = schema.get("minItems", 0)
        if first and schema.get("items") is False and least >= len(first):
            self._miss(rules_of(schema, "array"), ("prefixItems", "items", "minItems", "maxItems"))
            parts = [
                self._type(part, f"{name}{number}", depth=depth + 1)
                for number, part in enumerate(first, 1)
            ]
            return f"tuple[{', '.join(parts)}]"
        self._miss(rules_of(schema, "array"), (*_ARRAY, *(() if first else ("items",))))
        items = (
            "Any"
            if first
            else self._type(schema.get("items", True), f"{name}Item", depth=depth + 1)
        )
        return _bounded(f"list[{items}]", schema, _ARRAY)


_FIELDS = ("properties", "required", "additionalProperties")
_NAMES = "populate_by_name=True, protected_namespaces=()"
_STRICT = "    model_config = ConfigDict(strict=True)\n"


def _is_model(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("properties")) and "$ref" not in schema


def _is_plain(value: Any) -> bool:
    """True for what can be a literal; Pydantic takes true for `Literal[1]`, and false for 0."""
    return value is None or isinstance(value, bool | int | str)


def _is_exact(word: str, bound: Any) -> bool:
    """Pydantic divides floats, so that 0.3 is no multiple of 0.1."""
    return word != "multipleOf" or isinstance(bound, int)


def _union(types: Iterable[str]) -> str:
    found = list(dict.fromkeys(types))
    if "Any" in found:
        return "Any"
    return " | ".join(each for each in found if each != "Nothing" or len(found) == 1) or "Nothing"


def _bounded(kind: str, schema: Mapping[str, Any], names: Mapping[str, str]) -> str:
    bounds = [
        f"{name}={_number(schema[word])}"
        for word, name in names.items()
        if word in schema and _is_finite(schema[word])
    ]
    return f"Annotated[{kind}, Field({', '.join(bounds)})]" if bounds else kind


def _whole(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The bounds of an integer without fractions, which Pydantic does not take for integers."""
    new = dict(schema)
    for word in ("minimum", "exclusiveMaximum", "maximum", "exclusiveMinimum"):
        if isinstance(new.get(word), float) and _is_finite(new[word]):
            is_up = word in {"minimum", "exclusiveMaximum"}
            new[word] = math.ceil(new[word]) if is_up else math.floor(new[word])
    step = new.get("multipleOf")
    if isinstance(step, float) and not step.is_integer():
        del new["multipleOf"]
    return new


def _is_finite(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _number(value: float) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return repr(int(value) if is_whole else value)


def _literals(values: list[Any]) -> str:
    plain = [value for value in values if _is_plain(value)]
    options = [f"Literal[{', '.join(map(repr, plain))}]"] if plain else []
    if any(isinstance(value, float) for value in values):
        options.append("float")
    if any(is_object(value) for value in values):
        options.append("dict[str, Any]")
    if any(is_array(value) for value in values):
        options.append("list[Any]")
    return _union(options)


def _field_name(key: str) -> str:
    """A name that a field may have: snake case as it is, no keyword, no leading underscore."""
    name = "_".join(_WORD.findall(key))[:80] or "field"
    if not name[0].isalpha():
        name = f"field_{name}"
    is_taken = keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in _OWN
    return f"{name}_" if is_taken or name.startswith("model_") else name


def _about(schema: Any, label: str) -> str:
    about = schema.get("description") if is_object(schema) else None
    text = " ".join([label, *(str(about).split() if isinstance(about, str) else [])]).strip()
    return f"    {text!r}\n\n" if text else ""


def _note(missed: Iterable[str]) -> str:
    words = ", ".join(sorted(missed))
    return f"# Not checked, or not exactly: {words}.\n" if words else ""
