"""The schemas of tools under names for generated code, each with the definitions it refers to.

Shared by the generators of types. Every text of a declaration is hostile: names are made of ASCII
letters and digits here, and generators quote the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from callpact.schema import compile_schema, is_array, is_object
from callpact.schema.document import in_place
from callpact.schema.drafts import Draft, draft_of, upgraded
from callpact.schema.targets import Targets

if TYPE_CHECKING:
    from callpact.tool import Tool

TypeSide = Literal["input", "output"]
KINDS = ("string", "number", "boolean", "null", "array", "object")
"""The types of JSON; `integer` is a number."""
MAX_TYPE_DEPTH = 60
"""Levels of a schema that become nested types."""
_WORD = re.compile(r"[A-Za-z0-9]+")
_MAX_NAME = 120
_KEYWORDS: dict[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
    "array": frozenset(
        {
            *("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
            *("contains", "minContains", "maxContains", "unevaluatedItems"),
        }
    ),
    "object": frozenset(
        {
            *("properties", "required", "additionalProperties", "patternProperties"),
            *("propertyNames", "minProperties", "maxProperties", "dependentRequired"),
            *("dependentSchemas", "unevaluatedProperties"),
        }
    ),
}
IN_PLACE = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "$dynamicRef", "$recursiveRef"}
)
"""Keywords that apply other schemas to the same value."""
TYPED = frozenset({"type", "enum", "const"}).union(*_KEYWORDS.values())
"""Keywords that assert something about a value by themselves."""


class NamedSchema(Struct, frozen=True):
    """The input or output schema of one tool under the name of a type."""

    name: str
    tool: str
    side: TypeSide
    document: Any
    formats: bool = False
    """True if `format` is an assertion."""

    @property
    def label(self) -> str:
        """The tool and the side, for a comment."""
        return f"{self.side.capitalize()} of `{self.tool}`."


def name_schemas(
    tools: Iterable[Tool], sides: Iterable[TypeSide] = ("output",)
) -> tuple[NamedSchema, ...]:
    """The schemas of tools with unique names: `ShopPriceOutput`. Unknown outputs accept anything."""
    taken: set[str] = set()
    named: list[NamedSchema] = []
    wanted = tuple(sides)
    for tool in tools:
        contract = tool.contract
        for side in wanted:
            schema = contract.input if side == "input" else contract.output
            name = unique_name(pascal(tool.id) + side.capitalize(), taken)
            document = True if schema is None else schema
            named.append(NamedSchema(name, tool.id, side, document, contract.formats))
    return tuple(named)


def pascal(text: str) -> str:
    """A name of ASCII letters and digits: `ShopPrice` of `shop.price`."""
    words = "".join(word[:1].upper() + word[1:] for word in _WORD.findall(text))[:_MAX_NAME]
    return words if words[:1].isalpha() else f"Type{words}"


def unique_name(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken; names that differ only in case are the same."""
    found, number = name, 1
    while found.lower() in taken:
        number += 1
        found = f"{name}{number}"
    taken.add(found.lower())
    return found


class NamedPart(Struct, frozen=True):
    """A part of a document that is referred to, under the name of a type."""

    name: str
    schema: Any


class NamedParts:
    """The named parts of one document, found while its references are followed."""

    def __init__(self, named: NamedSchema, taken: set[str]) -> None:
        self.named = named
        self.draft = draft_of(named.document)
        self._targets = Targets(named.document)
        self._taken = taken
        self._names: dict[int, str] = {id(named.document): named.name}
        self._waiting: list[NamedPart] = []

    def reference(self, schema: dict[str, Any]) -> str | None:
        """The name of the type that a `$ref` leads to; None if it has none.

        A reference has none that leads to several schemas, nowhere, or endlessly back to itself.
        """
        found = self._targets.of(schema)
        if len(found) != 1 or len(found[0]) != 1:
            return None
        target = found[0][0]
        if isinstance(target, bool) or self._is_endless(target):
            return None
        key = id(target)
        if key not in self._names:
            label = str(schema.get("$ref", "")).rpartition("/")[2].rpartition("#")[2]
            name = unique_name(self.named.name + pascal(label or "Part"), self._taken)
            self._names[key] = name
            self._waiting.append(NamedPart(name, target))
        return self._names[key]

    def constant(self, schema: dict[str, Any]) -> bool | None:
        """The schema that a `$ref` leads to, if it is true or false."""
        found = self._targets.of(schema)
        target = found[0][0] if len(found) == 1 and len(found[0]) == 1 else None
        return target if isinstance(target, bool) else None

    def _is_endless(self, target: Any) -> bool:
        """True if a schema refers to itself for the same value."""
        seen: set[int] = set()
        stack = [target]
        is_first = True
        while stack:
            part = stack.pop()
            if not is_object(part) or (id(part) in seen and part is not target):
                continue
            if part is target and not is_first:
                return True
            is_first = False
            seen.add(id(part))
            stack += in_place(part)
            stack += [each for candidates in self._targets.of(part) for each in candidates]
        return False

    def new(self) -> Iterator[NamedPart]:
        """The definitions found so far that were not given out yet."""
        while self._waiting:
            yield self._waiting.pop(0)

    def keywords(self, schema: dict[str, Any]) -> dict[str, Any]:
        """One subschema with the keywords of 2020-12, without those that the draft does not know."""
        new = upgraded(schema, self.draft)
        if self.draft is Draft.DRAFT_4 and "const" in new:
            new = {key: value for key, value in new.items() if key != "const"}
        return new


def kinds_of(schema: Mapping[str, Any], within: Iterable[str] = KINDS) -> tuple[str, ...]:
    """The types that a schema allows, of those that the place of it allows.

    `integer` is given for a number without a fraction.
    """
    given = schema.get("type")
    allowed = tuple(within)
    if given is None:
        return allowed
    names = [str(name) for name in given] if is_array(given) else [str(given)]
    found: list[str] = []
    for name in dict.fromkeys(names):
        if name in allowed or (name == "integer" and "number" in allowed):
            found.append(name)
        elif name == "number" and "integer" in allowed:
            found.append("integer")
    return tuple(name for name in found if not (name == "integer" and "number" in found))


def rules_of(schema: Mapping[str, Any], kind: str) -> set[str]:
    """The keywords of a schema about values of one type."""
    return {*schema} & _KEYWORDS.get("number" if kind == "integer" else kind, frozenset())


def allowed_values(schema: Mapping[str, Any], within: Iterable[str] = KINDS) -> list[Any] | None:
    """The values of `enum` and `const` that have an allowed type; None without these keywords."""
    if "const" in schema:
        values: list[Any] = [schema["const"]]
        if is_array(schema.get("enum")):
            values = [value for value in values if _among(value, schema["enum"])]
    elif is_array(schema.get("enum")):
        values = list(schema["enum"])
    else:
        return None
    kinds = kinds_of(schema, within)
    judge = compile_schema({"type": list(kinds)}).accepts if kinds else _nothing
    return [value for value in values if judge(value)]


def _among(value: Any, values: list[Any]) -> bool:
    return compile_schema({"enum": values}).accepts(value)


def _nothing(_value: Any) -> bool:
    return False


def subschemas(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    """The list of schemas under a keyword."""
    given = schema.get(keyword)
    return list(given) if is_array(given) else []


def submap(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    """The schemas, or other rules, by name under a keyword."""
    given = schema.get(keyword)
    return dict(given) if is_object(given) else {}
