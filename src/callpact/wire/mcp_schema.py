"""The schemas that a tool publishes over MCP: as declared, relaxed, or its first level, and boxed.

Pure functions over JSON Schema as plain data. What is published is never stricter than what the
gate lets out; what the gate does never depends on what is published.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from msgspec import Struct

from callpact.json_text import json_text
from callpact.schema.document import is_old_draft, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from callpact.tool import Tool

Advertise = Literal["full", "declared", "relaxed", "top", "none"]
"""How much of an output schema clients are told: by its policy (`full`: as declared under `cast`
and `reject`, relaxed under `warn`), always as declared, always relaxed, the first level, nothing.
"""
ADVERTISE: tuple[str, ...] = get_args(Advertise)

_RELAXED_NODES = 2_000
"""Fields that a relaxed schema tells; what lies beyond is left open."""
_BOX = "/properties/result"
_DEFINITIONS = ("$defs", "definitions")
_NAMED_SCHEMAS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
)
_VALUES = frozenset({"const", "enum", "default", "examples"})
_ONE_SCHEMA = frozenset(
    {"items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames"}
)
_LISTED_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_ANCHORED = re.compile(r'"(?:\$id|\$anchor|\$dynamic\w+|\$recursive\w+)":')
_HOISTED_FROM = 2_000
_SHARED_FROM = 150
_FIELDS = frozenset({"properties", "items", "allOf", "anyOf", "oneOf"})
_DEFINITION = re.compile(r"#/(?:\$defs|definitions)/[^/%]+")


def input_schema(tool: Tool) -> dict[str, Any]:
    """The published input schema: the declared one, with the object root that MCP asks for."""
    declared = tool.contract.input
    if not isinstance(declared, dict):
        return {"type": "object"} if declared else {"type": "object", "not": {}}
    # Arguments are always an object: to say so changes nothing.
    return {**cast("dict[str, Any]", declared), "type": "object"}


class View(Struct, frozen=True, gc=False):
    """What one peer is told of a tool's answers, and so how they travel."""

    is_published: bool
    """Clients are told what the tool gives."""
    is_strict: bool
    """The published schema is one that an answer could break."""
    is_wrapped: bool
    """Answers travel as `{"result": …}` because the published schema says so."""
    media: str | None
    """The media type of what is delivered as a picture, a sound or the like."""


def view_of(tool: Tool, *, modern: bool, advertise: Advertise = "full") -> View:
    """How the answers of a tool travel to a peer of one era.

    Clients are not told of a medium: its schema would ask for base64 text beside the picture.
    """
    contract = tool.contract
    compiled, output = contract.compiled_output, contract.output
    media = _declared_media(output)
    if (
        compiled is None
        or advertise == "none"
        or contract.policy == "pass"
        or media is not None
        or not isinstance(output, dict)
    ):
        return View(False, False, False, media)
    # For older peers whenever the root is not an object; for all where it may be null, because the
    # SDK cannot send a null.
    is_wrapped = compiled.accepts(None) or (not modern and not _is_object(output, output))
    is_strict = advertise == "declared" or (advertise != "relaxed" and contract.policy != "warn")
    return View(True, is_strict, is_wrapped, None)


def output_schema(
    tool: Tool, *, modern: bool, advertise: Advertise = "full"
) -> dict[str, Any] | None:
    """The published output schema: one that no answer of the tool can break."""
    view = view_of(tool, modern=modern, advertise=advertise)
    if not view.is_published:
        return None
    declared = cast("dict[str, Any]", tool.contract.output)
    if view.is_strict:
        shown = _top(declared) if advertise == "top" else hoisted(declared)
    else:
        shown = _Relaxer(declared, is_top=advertise == "top").whole()
    if view.is_wrapped:
        return _boxed(shown)
    # Older peers want to see an object at the root, not behind a reference; under a relaxed schema
    # what else comes is put into one.
    return shown if modern else {**shown, "type": "object"}


def _declared_media(output: Any) -> str | None:
    """The media type of a tool whose whole answer is declared to be base64 text; None for others.

    JSON Schema says it with `contentEncoding` and `contentMediaType`.
    """
    if not isinstance(output, dict):
        return None
    schema = cast("dict[str, Any]", output)
    if schema.get("contentEncoding") != "base64":
        return None
    kinds = _kinds(schema)
    if "string" not in kinds or not {"string", "null"}.issuperset(kinds):
        return None
    kind = schema.get("contentMediaType")
    return (kind.partition(";")[0].strip().lower() or None) if isinstance(kind, str) else None


def _is_object(node: Any, root: Any, depth: int = 20) -> bool:
    """True if the schema takes objects only, as far as it says so at its root."""
    if not isinstance(node, dict) or not depth:
        return False
    schema = cast("dict[str, Any]", node)
    if schema.get("type") == "object":
        return True
    reference = schema.get("$ref")
    return isinstance(reference, str) and _is_object(resolve(root, reference), root, depth - 1)


def _boxed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of `{"result": …}`; definitions stay at the root, where references look."""
    box: dict[str, Any] = {}
    if "$schema" in schema:
        box["$schema"] = schema["$schema"]
    box |= {"type": "object", "properties": {"result": {}}, "required": ["result"]}
    inner = {key: value for key, value in schema.items() if key != "$schema"}
    if "$id" in inner:  # It is a document of its own: its references look into itself.
        box["properties"]["result"] = inner
        return box
    for key in _DEFINITIONS:
        if isinstance(inner.get(key), dict):
            box[key] = _moved(inner.pop(key), is_names=True)
    box["properties"]["result"] = _moved(inner)
    return box


def _moved(node: Any, *, is_names: bool = False) -> Any:
    """The same schema one box deeper: references to anything but definitions follow it."""
    if isinstance(node, list):
        return [_moved(item) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    moved: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", node).items():
        if is_names:
            moved[key] = _moved(value)
        elif key == "$ref" and isinstance(value, str):
            moved[key] = _moved_reference(value)
        elif key in _VALUES:
            moved[key] = value
        else:
            moved[key] = _moved(value, is_names=key in _NAMED_SCHEMAS)
    return moved


def _moved_reference(reference: str) -> str:
    is_pointer = reference == "#" or reference.startswith("#/")
    if not is_pointer or reference.startswith(("#/$defs/", "#/definitions/")):
        return reference
    return f"#{_BOX}{reference[1:]}"


def _top(schema: dict[str, Any]) -> dict[str, Any]:
    """The first level of a schema: never stricter than the whole."""
    top = {key: schema[key] for key in ("$schema", "title", "description") if key in schema}
    if "$ref" in schema and is_old_draft(schema):
        return top  # Nothing beside the reference counts there.
    for key in ("type", "required"):
        if key in schema:
            top[key] = schema[key]
    held = schema.get("properties")
    if isinstance(held, dict):
        fields = cast("dict[str, Any]", held).items()
        top["properties"] = {name: _leaf(value) for name, value in fields}
        if schema.get("additionalProperties") is False and "patternProperties" not in schema:
            top["additionalProperties"] = False
    if isinstance(schema.get("items"), dict):
        top["items"] = _leaf(schema["items"])
        if "prefixItems" in schema:  # These are not the items that it speaks of.
            del top["items"]
    return top


def _leaf(schema: Any) -> Any:
    """What stands below the first level, without what stands below itself."""
    if not isinstance(schema, dict):
        return schema
    node = cast("dict[str, Any]", schema)
    # In old drafts nothing beside a reference counts: the type would be one assertion too many.
    kept = ("title", "description") if "$ref" in node else ("title", "description", "type")
    return {key: node[key] for key in kept if key in node}


def hoisted(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema with parts that stand in it several times as definitions, if that is shorter.

    Parts are moved only where nothing but definitions is referred to, so that no reference can miss
    its target.
    """
    text = _canonical(schema)
    if len(text) < _HOISTED_FROM or is_old_draft(schema) or _ANCHORED.search(text):
        return schema
    if not all(_DEFINITION.fullmatch(reference) for reference in _references(schema)):
        return schema
    sharing = _Sharing(schema)
    shorter = sharing.whole()
    return shorter if len(_canonical(shorter)) < len(text) else schema


class _Sharing:
    """One schema on its way to a form without repetitions."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._counts: Counter[str] = Counter()
        self._named: dict[str, str] = {}
        self._definitions: dict[str, Any] = {}
        self._taken = frozenset(cast("dict[str, Any]", root.get("$defs") or {}))

    def whole(self) -> dict[str, Any]:
        self._inside(self._root, self._count)
        root = self._inside(self._root, self._shared)
        if not self._definitions:
            return self._root
        own = cast("dict[str, Any]", root.get("$defs") or {})
        return {**root, "$defs": own | self._definitions}

    def _count(self, schema: dict[str, Any]) -> dict[str, Any]:
        text = _canonical(schema)
        if len(text) >= _SHARED_FROM:
            self._counts[text] += 1
            self._inside(schema, self._count)
        return schema

    def _shared(self, schema: dict[str, Any]) -> dict[str, Any]:
        text = _canonical(schema)
        if self._counts[text] < 2:
            return self._inside(schema, self._shared) if len(text) >= _SHARED_FROM else schema
        if text not in self._named:
            free = (f"shared{n}" for n in count(len(self._named) + 1))
            name = self._named[text] = next(name for name in free if name not in self._taken)
            self._definitions[name] = self._inside(schema, self._shared)
        return {"$ref": f"#/$defs/{self._named[text]}"}

    def _inside(
        self, schema: dict[str, Any], each: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        """The schema with something done to each schema right below it."""

        def do(part: Any) -> Any:
            return each(cast("dict[str, Any]", part)) if isinstance(part, dict) else part

        done = dict(schema)
        for key, value in schema.items():
            if key in _NAMED_SCHEMAS and isinstance(value, dict):
                held = cast("dict[str, Any]", value).items()
                done[key] = {name: do(part) for name, part in held}
            elif key in _ONE_SCHEMA:
                done[key] = do(value)
            elif key in _LISTED_SCHEMAS and isinstance(value, list):
                done[key] = [do(part) for part in cast("list[Any]", value)]
        return done


def _canonical(schema: dict[str, Any]) -> str:
    return json_text(schema)


class _Relaxer:
    """Makes the same tree of fields, with the declared types in words and nothing that asserts.

    Definitions that are used more than once stay definitions: copies would fill the list of tools.
    """

    def __init__(self, root: dict[str, Any], *, is_top: bool = False) -> None:
        self._root = root
        self._left = _RELAXED_NODES
        self._levels = 1 if is_top else _RELAXED_NODES
        self._shared = frozenset[str]() if is_top else _shared(root)
        self._definitions: dict[str, dict[str, Any]] = {}

    def whole(self) -> dict[str, Any]:
        """The relaxed form of the root."""
        return self._relax(self._root, frozenset(), 0) | self._definitions

    def _relax(self, node: Any, above: frozenset[str], level: int) -> dict[str, Any]:
        """`above` are the references that led here: a cycle is left open."""
        self._left -= 1
        if not isinstance(node, dict) or self._left < 0:
            return {}
        schema = cast("dict[str, Any]", node)
        reference = schema.get("$ref")
        if level and reference in self._shared and not _FIELDS & schema.keys():
            self._define(cast("str", reference))
            return _words(schema) | {"$ref": reference}
        properties: dict[str, Any] = {}
        items: dict[str, Any] | None = None
        words: dict[str, str] = {}
        kinds: list[str] = []
        is_open = level < self._levels
        for part, path in self._parts(schema, above):
            words = _words(part) | words
            kinds += [kind for kind in _kinds(part) if kind not in kinds]
            held = part.get("properties")
            if is_open and isinstance(held, dict):
                for key, value in cast("dict[str, Any]", held).items():
                    if key not in properties:
                        properties[key] = self._relax(value, path, level + 1)
            if is_open and items is None and isinstance(part.get("items"), dict):
                items = self._relax(part["items"], path, level + 1)
        if kinds:
            told = f"(declared: {' or '.join(kinds)})"
            words["description"] = f"{words.get('description', '')} {told}".strip()
        relaxed: dict[str, Any] = dict(words)
        if properties:
            relaxed["properties"] = properties
        if items is not None:
            relaxed["items"] = items
        return relaxed

    def _define(self, reference: str) -> None:
        _, keyword, raw = reference.split("/")
        name = raw.replace("~1", "/").replace("~0", "~")
        definitions = self._definitions.setdefault(keyword, {})
        if name not in definitions:
            definitions[name] = {}  # It may lead back to itself.
            definitions[name] = self._relax(
                resolve(self._root, reference), frozenset({reference}), 1
            )

    def _parts(
        self, schema: dict[str, Any], above: frozenset[str]
    ) -> list[tuple[dict[str, Any], frozenset[str]]]:
        """The schema and what it refers to or combines, each with the references on the way."""
        found: list[tuple[dict[str, Any], frozenset[str]]] = []
        pending: list[tuple[Any, frozenset[str]]] = [(schema, above)]
        while pending and len(found) < _RELAXED_NODES:
            node, path = pending.pop(0)
            if not isinstance(node, dict):
                continue
            part = cast("dict[str, Any]", node)
            found.append((part, path))
            reference = part.get("$ref")
            if isinstance(reference, str) and reference not in path:
                pending.append((resolve(self._root, reference), path | {reference}))
            for keyword in ("allOf", "anyOf", "oneOf"):
                variants = part.get(keyword)
                if isinstance(variants, list):
                    pending += [(variant, path) for variant in cast("list[Any]", variants)]
        return found


def _kinds(schema: dict[str, Any]) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else cast("list[str]", kinds)


def _words(schema: dict[str, Any]) -> dict[str, str]:
    return {
        key: schema[key] for key in ("title", "description") if isinstance(schema.get(key), str)
    }


def _references(root: dict[str, Any]) -> list[str]:
    """Every reference of a document, as often as it stands there."""
    found: list[str] = []
    pending: list[Any] = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += cast("list[Any]", node)
        elif isinstance(node, dict):
            for key, value in cast("dict[str, Any]", node).items():
                if key == "$ref" and isinstance(value, str):
                    found.append(value)
                elif key not in _VALUES:
                    pending.append(value)
    return found


def _shared(root: dict[str, Any]) -> frozenset[str]:
    """The definitions that the document refers to more than once."""
    return frozenset(
        reference
        for reference, times in Counter(_references(root)).items()
        if times > 1
        and _DEFINITION.fullmatch(reference)
        and isinstance(resolve(root, reference), dict)
    )
