"""Schema Objects of OpenAPI documents as JSON Schema 2020-12, for input or for output.

A schema that a reference leads to is converted once per direction and becomes a definition; a tool's
schema has the definitions that it reaches, and no other. A keyword with a value that means nothing
is left out with a finding; a reference that leads nowhere breaks an input.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePath
from typing import Any, ClassVar, Literal

import jsonschema_rs

from callpact.errors import InvalidSchema
from callpact.schema import Json, is_array, is_object
from callpact.schema.document import MAX_SCHEMA_DEPTH, pointer
from callpact.schema.json_text import json_text
from callpact.sources.base import Finding, Severity
from callpact.sources.openapi.openapi_document import (
    ApiDocument,
    Unresolved,
    is_address,
    place_parts,
)

MAX_OUTPUT_DEFINITIONS = 32_000
"""Bytes of definitions in the output schema of an OpenAPI tool; further ones accept anything of
their type."""

Direction = Literal["input", "output"]
Key = tuple[str, str]
"""A schema by its file and its JSON Pointer."""

_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_COMPONENTS = ("/components/schemas/", "/definitions/")
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")
_COMPOSED = frozenset({"$ref", "allOf", "anyOf", "oneOf", "not", "if"})
_UNIONS = ("oneOf", "anyOf")
_BESIDE = frozenset({"title", "description", "deprecated", "default", "nullable"})
_BINARY = {"type": "string", "format": "binary"}


@dataclass(frozen=True, slots=True)
class Definition:
    """A converted schema, the definitions that it refers to, and its size as JSON."""

    name: str
    schema: Json
    uses: tuple[Key, ...]
    size: int


@dataclass(slots=True)
class Uses:
    """The definitions that a converted schema refers to, in order."""

    keys: dict[Key, None] = field(default_factory=dict[Key, None])


_Convert = Callable[["SchemaConverter", dict[str, Any], str, Any, int], None]


class SchemaConverter:
    """Converts the schemas of one document for one direction."""

    def __init__(
        self, document: ApiDocument, direction: Direction, *, lone_references: bool = False
    ) -> None:
        """With `lone_references` only words and `nullable` count beside a `$ref` (before 3.1)."""
        self.findings: dict[tuple[str, str, str], Finding] = {}
        self._document = document
        self._lone_references = lone_references
        self._is_input = direction == "input"
        self._hiding = "readOnly" if self._is_input else "writeOnly"
        self._definitions: dict[Key, Definition] = {}
        self._names: dict[Key, str] = {}
        self._file = document.root
        self._uses = Uses()
        self._path: list[str | int] = []

    # --- whole schemas ----------------------------------------------------------------------

    def convert(self, schema: Any, file: str, place: str, uses: Uses) -> Json:
        """Convert one schema; the definitions that it needs are added to `uses`.

        Raises:
            InvalidSchema: a reference of an input leads nowhere, or it is too deep.
        """
        outer = self._file, self._uses, self._path
        self._file, self._uses, self._path = file, uses, list[str | int](place_parts(place))
        try:
            return self._schema(schema, 0)
        finally:
            self._file, self._uses, self._path = outer

    def reached(self, uses: Uses) -> dict[str, Json]:
        """All definitions that a schema reaches, by name."""
        found: dict[str, Json] = {}
        pending, seen = deque(uses.keys), set(uses.keys)
        while pending:
            each = self._definition(pending.popleft())
            found[each.name] = each.schema
            fresh = [key for key in each.uses if key not in seen]
            seen.update(fresh)
            pending.extend(fresh)
        return found

    def bounded(self, schema: dict[str, Any], uses: Uses) -> tuple[dict[str, Any], int]:
        """The schema with the nearest definitions it reaches, and how many are reduced to a type."""
        definitions: dict[str, Json] = {}
        size = reduced = 0
        pending, seen = deque(uses.keys), set(uses.keys)
        while pending:
            each = self._definition(pending.popleft())
            if size + each.size > MAX_OUTPUT_DEFINITIONS:
                reduced += 1
                definitions[each.name] = _type_alone(each.schema)
                continue
            size += each.size
            definitions[each.name] = each.schema
            fresh = [key for key in each.uses if key not in seen]
            seen.update(fresh)
            pending.extend(fresh)
        return (schema | {"$defs": definitions} if definitions else schema), reduced

    def _definition(self, key: Key) -> Definition:
        known = self._definitions.get(key)
        if known is None:
            file, place = key
            uses = Uses()
            value = self._document.resolve(f"#{_fragment(place)}", file).value
            schema = self.convert(value, file, place, uses)
            size = len(json_text(schema))
            known = Definition(self._name(key), schema, tuple(uses.keys), size)
            self._definitions[key] = known
        return known

    def _name(self, key: Key) -> str:
        """The name of a definition: that of the component, with a hash where it is not unique."""
        known = self._names.get(key)
        if known is None:
            known = self._names[key] = _definition_name(key, self._document.root)
        return known

    # --- one schema -------------------------------------------------------------------------

    def _schema(self, node: Any, depth: int) -> Json:
        if not is_object(node):
            if not isinstance(node, bool):
                self._note("warning", f"a schema must be an object, got {node!r:.60}")
                return {}
            return node
        if depth > MAX_SCHEMA_DEPTH // 2:
            raise InvalidSchema(f"nested deeper than {MAX_SCHEMA_DEPTH // 2} levels", self._place())
        made: dict[str, Any] = {}
        reference = node.get("$ref", node.get("$dynamicRef"))
        if isinstance(reference, str):
            if not self._refer(reference, made):
                return {}
            if len(node) == 1:
                return made
            if self._lone_references:
                node = {key: value for key, value in node.items() if key in _BESIDE}
        for keyword, value in node.items():
            is_right = _PLAIN.get(keyword)
            if is_right is not None:
                if is_right(value):
                    made[keyword] = value
                else:
                    self._path.append(keyword)
                    self._drop(keyword, value)
                    self._path.pop()
                continue
            convert = self._CONVERTED.get(keyword)
            if convert is not None:
                self._path.append(keyword)
                convert(self, made, keyword, value, depth + 1)
                self._path.pop()
        if "required" in node or "allOf" in node:
            self._hide(made, self._hidden_names(node, self._file, 0))
        return self._finished(made, node)

    def _finished(self, made: dict[str, Any], node: dict[str, Any]) -> Json:
        kinds = made.get("type")
        if "items" not in made and (kinds == "array" or (is_array(kinds) and "array" in kinds)):
            made["items"] = {}
        for exclusive, bound in (
            ("exclusiveMinimum", "minimum"),
            ("exclusiveMaximum", "maximum"),
        ):
            if node.get(exclusive) is True and bound in made:
                made[exclusive] = made.pop(bound)
        if "discriminator" in node:
            self._discriminate(made, node)
        if not self._is_input and "oneOf" in made:
            # Answers often fit several branches, and none of them is wrong then.
            branches = {"anyOf": made.pop("oneOf")}
            if "anyOf" in made:
                made["allOf"] = [*made.get("allOf", ()), branches]
            else:
                made |= branches
        if node.get("nullable") is True:
            return _nullable(made)
        return made

    def _refer(self, reference: str, made: dict[str, Any]) -> bool:
        """Add a reference to a definition; False, in an output, if it leads nowhere."""
        try:
            target = self._document.resolve(reference, self._file)
        except Unresolved as error:
            if self._is_input:
                raise InvalidSchema(str(error), self._place()) from None
            self._note("warning", f"{error}; any value is accepted here")
            return False
        key = (target.file, target.pointer)
        self._uses.keys[key] = None
        made["$ref"] = f"#/$defs/{self._name(key)}"
        return True

    # --- keywords ---------------------------------------------------------------------------

    def _type(self, made: dict[str, Any], keyword: str, value: Any, _depth: int) -> None:
        if value == "file":
            made |= _BINARY
        elif isinstance(value, str) and value in _TYPES:
            made[keyword] = value
        elif is_array(value) and value and all(isinstance(v, str) and v in _TYPES for v in value):
            kinds = list(dict.fromkeys(value))
            made[keyword] = kinds if len(kinds) > 1 else kinds[0]
        else:
            self._drop(keyword, value)

    def _pattern(self, made: dict[str, Any], keyword: str, value: Any, _depth: int) -> None:
        if isinstance(value, str) and _is_pattern(value):
            made[keyword] = value
        else:
            text = (
                f"'{keyword}' is ignored: {value!r:.60} is not a regular expression of JSON Schema"
            )
            self._note("warning", text)

    def _example(self, made: dict[str, Any], keyword: str, value: Any, _depth: int) -> None:
        if self._is_input:
            made["examples"] = value if keyword == "examples" and is_array(value) else [value]

    def _exclusive(self, made: dict[str, Any], keyword: str, value: Any, _depth: int) -> None:
        if _is_number(value):
            made[keyword] = value
        elif not isinstance(value, bool):
            self._drop(keyword, value)

    def _one(self, made: dict[str, Any], keyword: str, value: Any, depth: int) -> None:
        made[keyword] = self._schema(value, depth)

    def _items(self, made: dict[str, Any], keyword: str, value: Any, depth: int) -> None:
        if is_array(value):
            keyword = "prefixItems"
            self._list(made, keyword, value, depth)
        else:
            made[keyword] = self._schema(value, depth)

    def _rest(self, made: dict[str, Any], keyword: str, value: Any, depth: int) -> None:
        made[keyword] = value if isinstance(value, bool) else self._schema(value, depth)

    def _list(self, made: dict[str, Any], keyword: str, value: Any, depth: int) -> None:
        if not is_array(value) or not value:
            self._drop(keyword, value)
            return
        parts: list[Json] = []
        for index, part in enumerate(value):
            self._path.append(index)
            parts.append(self._schema(part, depth))
            self._path.pop()
        made[keyword] = parts

    def _map(self, made: dict[str, Any], keyword: str, value: Any, depth: int) -> None:
        if not is_object(value):
            self._drop(keyword, value)
            return
        parts: dict[str, Json] = {}
        for name, part in value.items():
            if keyword == "patternProperties" and not _is_pattern(name):
                self._drop(keyword, name)
                continue
            if keyword == "properties" and self._is_hidden(part, self._file):
                continue
            self._path.append(name)
            parts[name] = self._schema(part, depth)
            self._path.pop()
        made[keyword] = parts

    _CONVERTED: ClassVar[dict[str, _Convert]] = {
        "type": _type,
        "pattern": _pattern,
        **dict.fromkeys(("example", "examples"), _example),
        **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), _exclusive),
        "items": _items,
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _list),
        **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), _map),
        **dict.fromkeys(("not", "if", "then", "else", "contains", "propertyNames"), _one),
        **dict.fromkeys(
            ("additionalProperties", "unevaluatedProperties", "unevaluatedItems"), _rest
        ),
    }

    def _discriminate(self, made: dict[str, Any], node: dict[str, Any]) -> None:
        """Let each branch of an input name the values of the discriminator that select it."""
        given = node["discriminator"]
        name = given.get("propertyName") if is_object(given) else given
        union = next((keyword for keyword in _UNIONS if is_array(node.get(keyword))), None)
        if union is None:
            if not self._is_input:  # The schemas that extend it have further properties.
                made.setdefault("additionalProperties", True)
            return
        if not self._is_input or not isinstance(name, str) or union not in made:
            return
        mapping = given.get("mapping") if is_object(given) else None
        branches = made[union]
        for index, branch in enumerate(node[union]):
            reference = branch.get("$ref") if is_object(branch) else None
            if isinstance(reference, str) and is_object(branches[index]):
                values = self._selecting(reference, mapping, name)
                if values:
                    own = {"properties": {name: {"enum": values}}, "required": [name]}
                    branches[index] = branches[index] | own

    def _selecting(self, reference: str, mapping: Any, name: str) -> list[str]:
        """The values of a discriminator for one branch; none if the branch itself names them."""
        target = self._document.followed({"$ref": reference}, self._file, "")
        declared = target.value.get("properties") if is_object(target.value) else None
        own = declared.get(name) if is_object(declared) else None
        if is_object(own) and not {"enum", "const", "$ref"}.isdisjoint(own):
            return []
        tail = reference.rpartition("/")[2]
        if not is_object(mapping):
            return [tail]
        found = [key for key, to in mapping.items() if to in (reference, tail)]
        return found or [tail]

    # --- read-only and write-only -----------------------------------------------------------

    def _is_hidden(self, part: Any, file: str) -> bool:
        if not is_object(part):
            return False
        if self._hiding in part:
            return part[self._hiding] is True
        reference = part.get("$ref")
        if not isinstance(reference, str):
            return False
        try:
            target = self._document.resolve(reference, file).value
        except Unresolved:
            return False
        return is_object(target) and target.get(self._hiding) is True

    def _hidden_names(self, node: Any, file: str, depth: int) -> frozenset[str]:
        """Names of properties that do not exist in this direction, also of `allOf` branches."""
        try:
            target = self._document.followed(node, file, "")
        except Unresolved:
            return frozenset()
        found: set[str] = set()
        if not is_object(target.value) or depth > 8:
            return frozenset()
        properties, branches = target.value.get("properties"), target.value.get("allOf")
        if is_object(properties):
            found.update(n for n, part in properties.items() if self._is_hidden(part, target.file))
        for branch in branches if is_array(branches) else ():
            found |= self._hidden_names(branch, target.file, depth + 1)
        return frozenset(found)

    def _hide(self, made: dict[str, Any], hidden: frozenset[str]) -> None:
        """Require no property that does not exist in this direction."""
        for part in (made, *made.get("allOf", ())) if hidden else ():
            if is_object(part) and "required" in part:
                part["required"] = [name for name in part["required"] if name not in hidden]

    # --- findings ---------------------------------------------------------------------------

    def _place(self) -> str:
        return pointer(self._path)

    def _drop(self, keyword: str, value: Any) -> None:
        self._note("warning", f"'{keyword}' is ignored: {value!r:.60} is not a value of it")

    def _note(self, severity: Severity, message: str) -> None:
        place = self._place()
        finding = Finding(self._file, severity, message, path=place)
        self.findings.setdefault((self._file, place, message), finding)


# --- values of keywords -------------------------------------------------------------------------


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_true(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_step(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_names(value: Any) -> bool:
    return is_array(value) and all(isinstance(name, str) for name in value)


def _is_values(value: Any) -> bool:
    return is_array(value) and bool(value)


def _is_anything(_value: Any) -> bool:
    return True


def _is_dependency(value: Any) -> bool:
    return is_object(value) and all(map(_is_names, value.values()))


@cache
def _is_pattern(text: str) -> bool:
    try:
        jsonschema_rs.validator_for({"pattern": text})
    except ValueError:
        return False
    return True


_PLAIN: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("title", "description", "format"), _is_text),
    **dict.fromkeys(("contentMediaType", "contentEncoding"), _is_text),
    **dict.fromkeys(("uniqueItems", "deprecated", "writeOnly"), _is_true),
    **dict.fromkeys(("minimum", "maximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), _is_count),
    "multipleOf": _is_step,
    "required": _is_names,
    "enum": _is_values,
    "const": _is_anything,
    "default": _is_anything,
    "dependentRequired": _is_dependency,
}


# --- forms --------------------------------------------------------------------------------------


def _nullable(made: dict[str, Any]) -> dict[str, Any]:
    """The schema that also accepts null."""
    if not _COMPOSED.isdisjoint(made):
        words = {key: made.pop(key) for key in ("title", "description", "default") if key in made}
        return words | {"anyOf": [made, {"type": "null"}]}
    kinds = made.get("type")
    if kinds is not None and kinds != "null" and not (is_array(kinds) and "null" in kinds):
        made["type"] = [*(kinds if is_array(kinds) else [kinds]), "null"]
    if "enum" in made and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    return made


def _type_alone(schema: Json) -> dict[str, Any]:
    """A schema that accepts every value of the same type."""
    made: dict[str, Any] = {}
    if is_object(schema):
        made = {key: schema[key] for key in ("title", "type") if key in schema}
        if isinstance(schema.get("description"), str):
            made["description"] = schema["description"][:200]
        kinds = made.get("type", ())
        if "array" in (kinds if is_array(kinds) else [kinds]):
            made["items"] = {}
    return made


def _definition_name(key: Key, root: str) -> str:
    file, place = key
    prefix = next((each for each in _COMPONENTS if place.startswith(each)), "")
    tail = place.removeprefix(prefix)
    name = tail.replace("~1", "/").replace("~0", "~")
    if file == root and prefix and not _ODD.search(name):
        return name
    last = place.rpartition("/")[2] or PurePath(file).stem
    home = file if is_address(file) else PurePath(file).name
    mark = zlib.crc32(f"{home} {_relative(file, root)} {place}".encode())
    return f"{_ODD.sub('_', last)[:60].strip('_') or 'schema'}_{mark:08x}"


def _relative(file: str, root: str) -> str:
    if is_address(file) or file == root:
        return "" if file == root else file
    folder = PurePath(root).parent
    path = PurePath(file)
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def _fragment(place: str) -> str:
    return place.replace("%", "%25")
