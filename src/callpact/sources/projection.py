"""Projection: the output of a tool reduced to named fields, and the schema of the rest.

Pure functions over JSON Schema as plain data. The projection of a valid output is valid for the
projected schema, which says less about it where a rule is about more than the named fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any
from urllib.parse import unquote

from callpact.errors import InvalidConfig, InvalidSchema
from callpact.gate import kept_fields
from callpact.schema import is_array, is_object
from callpact.schema.drafts import draft_of
from callpact.schema.targets import DEFINITIONS, NAMED_SCHEMAS, VALUES, resolve
from callpact.sources.base import Finding, nearest_name
from callpact.tool import Contract, Policy, Projection, Tool

MAX_FIELD_LEVELS = 32
"""Levels of one of the fields that an output is reduced to."""

Tree = dict[str, Any]
"""The kept fields by name, each with the tree of those kept inside it; empty keeps all."""

_NAME = re.compile(r'"((?:[^"\\]|\\["\\])+)"|([^."\[\]\s]+)')
_FIELD = re.compile(rf"(?:{_NAME.pattern})(?:\.(?:{_NAME.pattern}))*")
_DEFINITION = re.compile(r"#/(\$defs|definitions)/([^/]+)(?:/.*)?", re.DOTALL)
_DELIVERING: tuple[Policy, ...] = ("pass", "warn")
"""Policies that deliver fields which the schema does not declare."""
_JUDGING_MORE = frozenset(
    {"not", "if", "then", "else", "minProperties", "maxProperties", "propertyNames"}
    | {"patternProperties", "unevaluatedProperties", "unevaluatedItems", "uniqueItems"}
    | {"dependentRequired", "dependentSchemas", "dependencies", "discriminator"}
    | {"contains", "minContains", "maxContains", "contentSchema", *DEFINITIONS}
)
"""Keywords that may refuse a value because of what the projection removes."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor", "$recursiveAnchor")


def projected(tool: Tool, fields: Iterable[str], place: str) -> tuple[Contract, list[Finding]]:
    """The contract of a tool whose output is reduced to fields, and findings about them.

    Raises:
        InvalidConfig: a field is malformed, or the output schema does not have it.
    """
    tree, own = _tree(fields, place), tool.contract
    document = own.output
    report = [Finding(place, "warning", f"{place}: {text}") for text in _unknown(tool, tree, place)]
    try:
        contract = Contract(
            input=own.compiled_input,
            output=None if document is None else _Projector(document).whole(tree),
            policy=own.policy,
            input_policy=own.input_policy,
            formats=own.formats,
            projection=Projection(own.compiled_output, tree),
        )
    except (InvalidSchema, RecursionError) as error:
        raise InvalidConfig(f"{place}: the output schema cannot be reduced: {error}") from None
    return contract, report


def field_names(document: Any) -> list[str]:
    """The declared fields of an output: of an object, or of the items of a list."""
    parts = _parts(document, [document])
    return list(dict.fromkeys(key for part in parts for key in part["properties"]))


def written_name(name: str) -> str:
    """A name as it is written in a field; in quotes if it has a dot, a blank or the like."""
    if _NAME.fullmatch(name) and not name.startswith('"'):
        return name
    return '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'


# --- the fields ------------------------------------------------------------------------------


def _tree(fields: Iterable[str], place: str) -> Tree:
    """The fields as a tree; of a field and one inside it, the outer is kept whole."""
    tree: Tree = {}
    for text in sorted(fields, key=lambda field: len(_names(field, place))):
        here = tree
        *outer, last = _names(text, place)
        for name in outer:
            known = here.get(name)
            if known == {}:  # Kept whole.
                break
            here = here.setdefault(name, {})
        else:
            here.setdefault(last, {})
    return tree


def _names(text: str, place: str) -> list[str]:
    """The names of a dotted field."""
    if _FIELD.fullmatch(text) is None or len(_NAME.findall(text)) > MAX_FIELD_LEVELS:
        raise InvalidConfig(
            f"{place}: a field is written as names with dots, at most {MAX_FIELD_LEVELS}, as in "
            f"'items.name' (for each item of a list) or '\"a.b\".c', got {text!r:.100}"
        )
    return [bare or re.sub(r"\\(.)", r"\1", quoted) for quoted, bare in _NAME.findall(text)]


def _unknown(tool: Tool, tree: Tree, place: str) -> list[str]:
    """The fields that the output schema does not declare and may have.

    Raises:
        InvalidConfig: it cannot have a field.
    """
    document = tool.contract.output
    if document is None:
        return [f"'{tool.id}' declares no output, so that its fields are not checked"]
    found: list[str] = []
    pending: list[tuple[str, Tree, list[Any]]] = [("", tree, [document])]
    while pending:
        above, branch, schemas = pending.pop()
        parts = _parts(document, schemas)
        known = {key for part in parts for key in part.get("properties") or ()}
        is_open = tool.contract.policy in _DELIVERING or any(map(_is_open, parts))
        is_closed = bool(parts) and all(part.get("additionalProperties") is False for part in parts)
        for name, inner in branch.items():
            full = f"{above}{written_name(name)}"
            if name in known:
                held = [part["properties"][name] for part in parts if name in part["properties"]]
                pending += [(f"{full}.", inner, held)] if inner else []
            elif not parts:
                outer = above.rstrip(".") or "its output"
                text = f"'{tool.id}' has no field '{full}': {outer} is neither an object nor a list of objects"
                raise InvalidConfig(f"{place}: {text}")
            elif is_open and not is_closed:
                found.append(f"the output schema of '{tool.id}' does not declare '{full}'")
            else:
                hint = nearest_name(full, (f"{above}{written_name(key)}" for key in sorted(known)))
                raise InvalidConfig(f"{place}: '{tool.id}' has no field '{full}'{hint}")
    return found


def _parts(root: Any, schemas: Iterable[Any]) -> list[dict[str, Any]]:
    """The parts of schemas that may describe an object, or an item of a list, at one place."""
    found: list[dict[str, Any]] = []
    pending, seen = list(schemas), set[int]()
    while pending:
        schema = pending.pop()
        if not is_object(schema) or id(schema) in seen:
            pending += [{}] if schema is True else []
            continue
        seen.add(id(schema))
        if isinstance(reference := schema.get("$ref"), str):
            target = resolve(root, reference)
            pending.append(True if target is None else target)
        for keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
            pending += schema.get(keyword) or ()
        is_bare = "array" in _kinds(schema) and "prefixItems" not in schema
        items = schema.get("items", is_bare)
        pending += items if is_array(items) else [items]
        combines = "$ref" in schema or not schema.keys().isdisjoint(("allOf", "anyOf", "oneOf"))
        if "object" in _kinds(schema) and ("properties" in schema or not combines):
            found.append({"properties": {}, **schema})
    return found


def _kinds(schema: dict[str, Any]) -> Iterable[str]:
    """The declared types of a schema; without any, `object` if it may describe one."""
    kinds = schema.get("type")
    if kinds is not None:
        return kinds if is_array(kinds) else [kinds]
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    is_list = "items" in schema or "prefixItems" in schema
    is_other = is_list or (values is not None and not any(map(is_object, values)))
    return () if is_other else ("object",)


def _is_open(schema: dict[str, Any]) -> bool:
    """True if a schema allows fields that it does not declare, or declares none."""
    others = schema.get("additionalProperties")
    allows = others is True or is_object(others) or bool(schema.get("patternProperties"))
    return allows or (not schema["properties"] and others is None)


# --- the schema ------------------------------------------------------------------------------


class _Projector:
    """Projects one schema document.

    A reference is followed into a definition that is projected for the fields at this place, once
    for each such place; what is kept whole keeps its references and their definitions.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._draft = draft_of(root)
        self._anchors = {*_ANCHORS, self._draft.id_keyword}
        held = root if is_object(root) else {}
        self._keyword = next((key for key in DEFINITIONS if key in held), "$defs")
        self._made: dict[str, Any] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._kept: dict[str, set[str]] = {key: set() for key in DEFINITIONS}

    def whole(self, tree: Tree) -> Any:
        """The schema of an output that is reduced to the fields of a tree."""
        made = self._schema(self._root, tree, is_root=True)
        if not is_object(made):
            return made
        for keyword, names in self._kept.items():
            held = self._root.get(keyword, {})
            if kept := {name: held[name] for name in held if name in names}:
                made[keyword] = kept
        if self._made:
            made[self._keyword] = {**made.get(self._keyword, {}), **self._made}
        return made

    def _schema(self, schema: Any, tree: Mapping[str, Any], *, is_root: bool = False) -> Any:
        if not is_object(schema):
            return schema
        if not tree:
            return self._leaf(schema)
        if not is_root and not schema.keys().isdisjoint(self._anchors):
            return True  # References below count from here.
        if "$ref" in schema and self._draft.has_lone_references:
            schema = {key: schema[key] for key in ("$schema", "$ref") if key in schema}
        made: dict[str, Any] = {}
        for keyword, value in schema.items():
            if keyword not in _JUDGING_MORE:
                made |= self._keyword_of(keyword, value, tree)
        if "oneOf" in made:  # Without the other fields, several branches may fit.
            branches = {"anyOf": made.pop("oneOf")}
            made |= {"allOf": [*made.get("allOf", ()), branches]} if "anyOf" in made else branches
        return made

    def _keyword_of(self, keyword: str, value: Any, tree: Mapping[str, Any]) -> dict[str, Any]:
        """One keyword of a schema with its projected value; nothing if it does not apply."""
        match keyword:
            case "$ref":
                return {"$ref": self._reference(value, tree)}
            case "$dynamicRef" | "$recursiveRef":
                return {}
            case "properties":
                kept = {
                    name: self._schema(value[name], tree[name]) for name in value if name in tree
                }
                return {"properties": kept}
            case "required":
                kept = [name for name in value if name in tree]
                return {"required": kept} if kept else {}  # Draft 4 refuses an empty list.
            case "additionalProperties":
                return {keyword: False} if value is False else {}
            case "items" | "prefixItems" | "allOf" | "anyOf" | "oneOf" if is_array(value):
                return {keyword: [self._schema(part, tree) for part in value]}
            case "items" | "additionalItems":
                return {keyword: self._schema(value, tree)}
            case "enum" | "examples" if is_array(value):
                every = [kept_fields(item, tree) for item in value]
                return {keyword: list({repr(item): item for item in every}.values())}
            case "const" | "default":
                return {keyword: kept_fields(value, tree)}
            case _:
                return {keyword: value}

    def _reference(self, reference: Any, tree: Mapping[str, Any]) -> str:
        key = (str(reference), id(tree))
        if key not in self._names:
            base = str(reference).rpartition("/")[2] or "whole"
            base = re.sub(r"[^A-Za-z0-9_.-]", "_", unquote(base))
            taken = {*self._made, *self._root.get(self._keyword, {})}
            name = next(n for i in count(1) if (n := f"{base}_{i}") not in taken)
            self._names[key] = name
            self._made[name] = True  # Taken, for a schema that refers to itself.
            target = resolve(self._root, str(reference))
            self._made[name] = True if target is None else self._schema(target, tree)
        return f"#/{self._keyword}/{self._names[key]}"

    def _leaf(self, schema: dict[str, Any]) -> Any:
        """A schema that is kept whole, with the definitions that it needs.

        One with references to elsewhere would mean something else in the projected document.
        """
        needed: set[tuple[str, str]] = set()
        pending: list[Any] = [schema]
        while pending:
            for reference in self._references(pending.pop()):
                match = _DEFINITION.fullmatch(unquote(reference))
                if match is None:
                    return {k: v for k, v in schema.items() if k in {"title", "description"}}
                name = match[2].replace("~1", "/").replace("~0", "~")
                if (match[1], name) not in needed:
                    needed.add((match[1], name))
                    pending.append(self._root.get(match[1], {}).get(name))
        for keyword, name in needed:
            self._kept[keyword].add(name)
        return schema

    def _references(self, schema: Any) -> list[str]:
        """The references of a schema; an anchor or a dynamic reference counts as one to elsewhere."""
        found: list[str] = []
        pending: list[tuple[Any, bool]] = [(schema, False)]
        while pending:
            part, is_names = pending.pop()
            if is_array(part):
                pending += [(item, False) for item in part]
            elif is_object(part):
                for key, value in part.items():
                    if is_names:
                        pending.append((value, False))
                    elif key == "$ref" and isinstance(value, str):
                        found.append(value)
                    elif key in _REFERENCES or key in self._anchors:
                        found.append("")
                    elif key not in VALUES:
                        pending.append((value, key in NAMED_SCHEMAS))
        return found
