"""The schemas that a tool publishes over MCP: as declared, relaxed, or the first level; and boxed.

Pure functions over JSON Schema as plain data. A published schema is never stricter than the gate,
and the gate never depends on it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import unquote

from msgspec import Struct

from callpact.schema import (
    is_array,
    is_object,
)
from callpact.schema.compiled import says_nothing
from callpact.schema.document import (
    in_place,
)
from callpact.schema.drafts import (
    draft_of,
)
from callpact.schema.json_text import json_text
from callpact.schema.targets import DEFINITIONS, NAMED_SCHEMAS, VALUES, resolve
from callpact.wire.mcp.portable import (
    VACUOUS,
    agreed,
    bounded,
    explicit,
    inside,
    loosened,
    with_plain_draft,
)

if TYPE_CHECKING:
    from callpact.tool import Contract, Tool

AdvertiseMode = Literal["full", "declared", "relaxed", "top", "none"]
"""How much of an output schema is published: by its policy (`full`: as declared under `cast`,
`convert` and `reject`, relaxed under `warn`), always as declared, always relaxed, the first level, nothing.
"""
ADVERTISE: tuple[str, ...] = get_args(AdvertiseMode)
Rendering = Literal["mcp", "flowmcp"]
"""The form of results: MCP's own, or FlowMCP's `{status, messages, data}`."""

_RECURSIVE = frozenset({"$recursiveRef", "$recursiveAnchor"})
_REFERENCES = ("$ref", "$dynamicRef")
_RELAXED_NODES = 2_000
"""Fields of a relaxed schema; further ones get a schema that accepts everything."""
_ANCHORED = re.compile(r'"(?:\$id|\$anchor|\$dynamic\w+|\$recursive\w+)":')
_HOISTED_FROM = 2_000
_SHARED_FROM = 150
_FIELDS = frozenset({"properties", "items", "allOf", "anyOf", "oneOf"})
_DEFINITION = re.compile(r"#/(?:\$defs|definitions)/[^/%]+")


def input_schema(tool: Tool) -> dict[str, Any]:
    """Return the published input schema: the declared one, with the object root that MCP requires."""
    declared = tool.contract.input
    if not is_object(declared):
        return {"type": "object"} if declared else {"type": "object", "not": {}}
    # Arguments are always an object: to say so changes nothing.
    return {**with_plain_draft(declared), "type": "object"}


class ResultForm(Struct, frozen=True, gc=False):
    """The published form of a tool's results for one peer."""

    is_published: bool
    """True if an output schema is published."""
    is_strict: bool
    """True if an output could break the published schema."""
    is_wrapped: bool
    """True if outputs are sent as `{"result": …}`, as the published schema requires."""
    media: str | None
    """The media type of an output that is sent as an image, a sound or the like."""
    is_enveloped: bool = False
    """True if outputs are sent as `{status, messages, data}`."""


def result_form(
    tool: Tool, *, modern: bool, advertise: AdvertiseMode = "full", rendering: Rendering = "mcp"
) -> ResultForm:
    """Return the published form of a tool's results for a peer of one era.

    The schema of a medium is not published: it would require base64 text beside the image.
    """
    if rendering == "flowmcp":  # The envelope is an object, and is always published.
        form = result_form(tool, modern=modern, advertise=advertise)
        return ResultForm(True, form.is_strict, False, form.media, is_enveloped=True)
    contract = tool.contract
    output = contract.output
    media = _declared_media(output)
    if (
        says_nothing(output)
        or advertise == "none"
        or contract.policy == "pass"
        or media is not None
        or not is_object(output)
    ):
        return ResultForm(False, False, False, media)
    # For older peers if the root is not an object; for all peers if it may be null, because the SDK
    # cannot send null.
    is_wrapped = _takes_null(contract) or (not modern and not _takes_objects_only(output, output))
    is_strict = advertise == "declared" or (advertise != "relaxed" and contract.policy != "warn")
    return ResultForm(True, is_strict, is_wrapped, None)


def output_schema(
    tool: Tool, *, modern: bool, advertise: AdvertiseMode = "full", rendering: Rendering = "mcp"
) -> dict[str, Any] | None:
    """Return the published output schema, which no delivered output of the tool breaks."""
    form = result_form(tool, modern=modern, advertise=advertise)
    if rendering == "flowmcp":
        if advertise == "none":
            return None
        data = _shown(tool, form, advertise) if form.is_published else dict[str, Any]()
        return _enveloped(bounded(data))
    if not form.is_published:
        return None
    shown = _shown(tool, form, advertise)
    if form.is_wrapped:
        return boxed(bounded(shown))
    # Older peers require an object at the root, not behind a reference; under a relaxed schema other
    # outputs are wrapped in an object.
    return bounded(shown) if modern else {**shown, "type": "object"}


def plain_output_schema(tool: Tool) -> dict[str, Any] | None:
    """Return the published output schema for a wire that carries every JSON value as it is."""
    form = result_form(tool, modern=True)
    if not form.is_published:
        return None
    declared = with_plain_draft(tool.contract.output)
    return agreed(_finite(declared)) if form.is_strict else _Relaxer(declared).whole()


def _shown(tool: Tool, form: ResultForm, advertise: AdvertiseMode) -> dict[str, Any]:
    """Return the published part of the declared schema."""
    declared = with_plain_draft(tool.contract.output)
    if not form.is_strict:
        return _Relaxer(declared, is_top=advertise == "top").whole()
    declared = _finite(declared)
    return _top(declared) if advertise == "top" else hoisted(explicit(agreed(declared)))


def _finite(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without references that lead to a cycle at one location of a value."""
    loops = _loops(schema)
    return loosened(_without_references(schema, loops)) if loops else schema


def _declared_media(schema: Any) -> str | None:
    """Return the media type of an output that is declared as base64 text; None for others.

    JSON Schema declares it with `contentEncoding` and `contentMediaType`.
    """
    if not is_object(schema):
        return None
    if schema.get("contentEncoding") != "base64":
        return None
    kinds = _kinds(schema)
    if "string" not in kinds or not {"string", "null"}.issuperset(kinds):
        return None
    kind = schema.get("contentMediaType")
    return (kind.partition(";")[0].strip().lower() or None) if isinstance(kind, str) else None


def _takes_null(contract: Contract) -> bool:
    """True if the output may be null; compiles nothing where a few keywords decide."""
    found = _null_verdict(contract.output, contract.output, 10)
    if found is None:
        compiled = contract.compiled_output
        return compiled is None or compiled.accepts_null
    return found


def _null_verdict(schema: Any, root: Any, depth: int) -> bool | None:
    """Whether a schema accepts null; None if that takes a validator."""
    if not is_object(schema) or not depth or not _UNDECIDED.isdisjoint(schema):
        return schema if isinstance(schema, bool) else None
    verdicts: list[bool | None] = []
    if kinds := _kinds(schema):
        verdicts.append("null" in kinds)
    if "enum" in schema:
        verdicts.append(is_array(schema["enum"]) and None in schema["enum"])
    if isinstance(schema.get("$ref"), str):
        verdicts.append(_null_verdict(resolve(root, schema["$ref"]), root, depth - 1))
    if is_array(parts := schema.get("allOf")):
        verdicts += [_null_verdict(part, root, depth - 1) for part in parts]
    if is_array(parts := schema.get("anyOf")):
        found = [_null_verdict(part, root, depth - 1) for part in parts]
        verdicts.append(True if True in found else None if None in found else False)
    return False if False in verdicts else None if None in verdicts else True


_UNDECIDED = frozenset(
    {"$schema", "$id", "$dynamicRef", "$recursiveRef", "const", "oneOf", "not", "if"}
)


def _takes_objects_only(schema: Any, root: Any, depth: int = 20) -> bool:
    """True if the root of a schema accepts objects only."""
    if not is_object(schema) or not depth:
        return False
    if schema.get("type") == "object":
        return True
    reference = schema.get("$ref")
    return isinstance(reference, str) and _takes_objects_only(
        resolve(root, reference), root, depth - 1
    )


_STATUS: dict[str, Any] = {
    "status": {"type": "boolean", "description": "true on success, false on error"},
    "messages": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Empty on success, error descriptions on failure",
    },
}
"""The fields of FlowMCP's envelope beside `data` (seed 000)."""


def _enveloped(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of `{status, messages, data}` around a schema of the data."""
    box = boxed(schema, "data")
    return {**box, "properties": _STATUS | box["properties"], "required": [*_STATUS, "data"]}


def _top(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the first level of a schema, never stricter than the whole."""
    top = {"$schema": schema["$schema"]} if "$schema" in schema else {}
    parts = _demands(schema, schema)
    top |= _first_words(parts)
    required: dict[str, None] = {}
    fields: dict[str, Any] = {}
    for part in parts:
        required |= dict.fromkeys(part.get("required", ()))
        held = part.get("properties")
        if is_object(held):
            fields = {**held, **fields}
            if part.get("additionalProperties") is False and "patternProperties" not in part:
                top["additionalProperties"] = False
        # After `prefixItems` they are not the schema of all items.
        if is_object(part.get("items")) and "prefixItems" not in part:
            top.setdefault("items", _leaf(part["items"], schema))
    if required:
        top["required"] = list(required)
    if fields:
        top["properties"] = {name: _leaf(value, schema) for name, value in fields.items()}
    return top


def _leaf(node: Any, root: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field of the first level, without its own fields."""
    return {"not": {}} if node is False else bounded(_first_words(_demands(node, root)))


def _first_words(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first title, description and type of several schemas."""
    words: dict[str, Any] = {}
    for part in parts:
        words = _words(part) | words
        kinds = _kinds(part)
        if kinds and words.keys().isdisjoint(("type", "anyOf")):
            # Some clients accept only a single type.
            alike = [{"type": kind} for kind in kinds]
            words |= alike[0] if len(alike) == 1 else {"anyOf": alike}
    return words


def _demands(schema: Any, root: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas that all apply to a value: this one, and those it references."""
    found: list[dict[str, Any]] = []
    above: set[str] = set()
    while is_object(schema):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return [*found, schema]
        # In old drafts nothing beside a reference counts.
        found.append(_words(schema) if draft_of(root).has_lone_references else schema)
        is_apart = "$id" in schema and schema is not root  # Its references look into itself.
        if is_apart or reference in above:
            break
        above.add(reference)
        schema = resolve(root, reference)
    return found


def hoisted(schema: dict[str, Any]) -> dict[str, Any]:
    """Move repeated parts of a schema to definitions, if that makes it shorter.

    Only for schemas whose references all point to definitions, so that every reference keeps its
    target.
    """
    text = json_text(schema)
    if len(text) < _HOISTED_FROM or draft_of(schema).has_lone_references or _ANCHORED.search(text):
        return schema
    if not all(_DEFINITION.fullmatch(reference) for reference in _references(schema)):
        return schema
    sharing = _Deduplicator(schema)
    shorter = sharing.whole()
    return shorter if len(json_text(shorter)) < len(text) else schema


class _Deduplicator:
    """Moves the repeated parts of one schema to definitions."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._counts: Counter[str] = Counter()
        self._named: dict[str, str] = {}
        self._definitions: dict[str, Any] = {}
        self._taken = frozenset(root.get("$defs") or {})

    def whole(self) -> dict[str, Any]:
        inside(self._root, self._count)
        root = inside(self._root, self._shared)
        if not self._definitions:
            return self._root
        own: dict[str, Any] = root.get("$defs") or {}
        return {**root, "$defs": own | self._definitions}

    def _count(self, schema: Any, _: str) -> Any:
        if not is_object(schema):
            return schema
        text = json_text(schema)
        if len(text) >= _SHARED_FROM:
            self._counts[text] += 1
            inside(schema, self._count)
        return schema

    def _shared(self, schema: Any, _: str) -> Any:
        if not is_object(schema):
            return schema
        text = json_text(schema)
        if self._counts[text] < 2:
            return inside(schema, self._shared) if len(text) >= _SHARED_FROM else schema
        if text not in self._named:
            free = (f"shared{n}" for n in count(len(self._named) + 1))
            name = self._named[text] = next(name for name in free if name not in self._taken)
            self._definitions[name] = inside(schema, self._shared)
        return {"$ref": f"#/$defs/{self._named[text]}"}


class _Relaxer:
    """Copies the fields of a schema without assertions; declared types become descriptions.

    Definitions that are used more than once stay definitions, to keep the list of tools short.
    """

    def __init__(self, root: dict[str, Any], *, is_top: bool = False) -> None:
        self._root = root
        self._left = _RELAXED_NODES
        self._levels = 1 if is_top else _RELAXED_NODES
        self._shared = frozenset[str]() if is_top else _shared(root)
        self._definitions: dict[str, dict[str, Any]] = {}

    def whole(self) -> dict[str, Any]:
        """Return the relaxed root."""
        return self._relax(self._root, frozenset(), 0) | self._definitions

    def _relax(self, schema: Any, above: frozenset[str], level: int) -> dict[str, Any]:
        """Relax a schema; `above` are the references on the way to it, and a cycle stays open."""
        self._left -= 1
        if not is_object(schema) or self._left < 0:
            return dict(VACUOUS)
        reference = schema.get("$ref")
        if level and reference in self._shared and not _FIELDS & schema.keys():
            self._define(reference)
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
            if is_open and is_object(held):
                for key, value in held.items():
                    if key not in properties:
                        properties[key] = self._relax(value, path, level + 1)
            if is_open and items is None and is_object(part.get("items")):
                items = self._relax(part["items"], path, level + 1)
        if kinds:
            declared = f"(declared: {' or '.join(kinds)})"
            words["description"] = f"{words.get('description', '')} {declared}".strip()
        relaxed: dict[str, Any] = dict(words)
        if properties:
            relaxed["properties"] = properties
        if items is not None:
            relaxed["items"] = items
        return bounded(relaxed) if level else relaxed

    def _define(self, reference: str) -> None:
        _, keyword, raw = reference.split("/")
        name = raw.replace("~1", "/").replace("~0", "~")
        definitions = self._definitions.setdefault(keyword, {})
        if name not in definitions:
            definitions[name] = {}  # It may reference itself.
            # As a root, so that no definition is only a reference, which could be an endless cycle.
            target = self._relax(resolve(self._root, reference), frozenset({reference}), 0)
            definitions[name] = bounded(target)

    def _parts(
        self, schema: dict[str, Any], above: frozenset[str]
    ) -> list[tuple[dict[str, Any], frozenset[str]]]:
        """Return a schema and those it references or combines, each with the references on the way."""
        found: list[tuple[dict[str, Any], frozenset[str]]] = []
        pending: list[tuple[Any, frozenset[str]]] = [(schema, above)]
        while pending and len(found) < _RELAXED_NODES:
            part, path = pending.pop(0)
            if not is_object(part):
                continue
            found.append((part, path))
            reference = part.get("$ref")
            if isinstance(reference, str) and reference not in path:
                pending.append((resolve(self._root, reference), path | {reference}))
            for keyword in ("allOf", "anyOf", "oneOf"):
                variants = part.get(keyword)
                if is_array(variants):
                    pending += [(variant, path) for variant in variants]
        return found


def _kinds(schema: dict[str, Any]) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


def _words(schema: dict[str, Any]) -> dict[str, str]:
    return {
        key: schema[key] for key in ("title", "description") if isinstance(schema.get(key), str)
    }


def _references(root: dict[str, Any]) -> list[str]:
    """Return every reference of a document, with repetitions."""
    found: list[str] = []
    pending: list[Any] = [root]
    while pending:
        node = pending.pop()
        if is_array(node):
            pending += node
        elif is_object(node):
            for key, value in node.items():
                if key == "$ref" and isinstance(value, str):
                    found.append(value)
                elif key not in VALUES:
                    pending.append(value)
    return found


def _shared(root: dict[str, Any]) -> frozenset[str]:
    """Return the definitions that the document references more than once."""
    return frozenset(
        reference
        for reference, times in Counter(_references(root)).items()
        if times > 1 and _DEFINITION.fullmatch(reference) and is_object(resolve(root, reference))
    )


def _loops(root: dict[str, Any]) -> frozenset[str]:
    """Return the references that lead to a cycle at one location of a value.

    Other validators follow such a cycle until they fail.
    """
    leads = {
        reference: _references_in_place(resolve(root, reference)) for reference in _references(root)
    }
    while True:
        ended = [reference for reference, onward in leads.items() if onward.isdisjoint(leads)]
        if not ended:
            return frozenset(leads)
        for reference in ended:
            del leads[reference]


def _without_references(schema: dict[str, Any], loops: frozenset[str]) -> dict[str, Any]:
    """The same schema without some of its references.

    Where nothing beside a reference counts, nothing is left in its place.
    """
    is_old = draft_of(schema).has_lone_references

    def each(held: Any, _: str) -> Any:
        if not is_object(held):
            return held
        reference = held.get("$ref")
        is_loop = isinstance(reference, str) and reference in loops
        if is_loop and is_old:
            return {key: held[key] for key in (*DEFINITIONS, "$schema") if key in held}
        kept = {key: value for key, value in held.items() if not (is_loop and key == "$ref")}
        return inside(kept, each)

    return each(schema, "")


def _references_in_place(target: Any) -> frozenset[str]:
    found: set[str] = set()
    pending: list[Any] = [target]
    while pending:
        schema = pending.pop()
        if is_object(schema):
            if isinstance(schema.get("$ref"), str):
                found.add(schema["$ref"])
            pending += in_place(schema)
    return frozenset(found)


# --- boxes ----------------------------------------------------------------------------------
# A reference is relative to the root of its document, or to the nearest schema with an id. If all
# references are plain, definitions stay at the root and other references are rewritten; if not, the
# schema becomes an embedded document.


def boxed(schema: dict[str, Any], field: str = "result") -> dict[str, Any]:
    """Return the schema of an object that holds a value of `schema` in one field."""
    box: dict[str, Any] = {}
    if "$schema" in schema:
        box["$schema"] = schema["$schema"]
    box |= {"type": "object", "properties": {field: {}}, "required": [field]}
    inner = {key: value for key, value in schema.items() if key != "$schema"}
    id_key = draft_of(schema).id_keyword
    is_old = draft_of(schema).has_lone_references
    if is_old and "$ref" in inner:  # Nothing beside it counts, an id neither.
        inner.pop(id_key, None)
    elif not _is_id(inner.get(id_key)) and not is_old and _needs_id(inner):
        name = hashlib.sha256(json_text(schema).encode()).hexdigest()[:16]
        inner = {"$id": f"urn:callpact:result:{name}", **inner}
    if _is_id(inner.get(id_key)):  # An embedded document: its references are relative to itself.
        box["properties"][field] = inner
        return box
    moved = _Relocator(id_key, f"/properties/{field}")
    for key in DEFINITIONS:
        if is_object(inner.get(key)):
            box[key] = moved.part(inner.pop(key), is_names=True)
    box["properties"][field] = moved.part(inner)
    return box


def _is_id(given: Any) -> bool:
    """True for an id that starts a document; in old drafts `#name` is an anchor only."""
    return isinstance(given, str) and not given.startswith("#")


def _needs_id(schema: dict[str, Any]) -> bool:
    """True if a schema has recursive references, which are relative to the document."""
    pending: list[Any] = [schema]
    while pending:
        part = pending.pop()
        if is_array(part):
            pending += part
        elif is_object(part):
            if _RECURSIVE & part.keys():
                return True
            pending += [value for key, value in part.items() if key not in VALUES]
    return False


class _Relocator:
    """Copies a schema into a box and rewrites its references, except those to definitions.

    Embedded documents stay unchanged.
    """

    def __init__(self, id_key: str, box: str) -> None:
        self._id_key = id_key
        self._box = box

    def part(self, schema: Any, *, is_names: bool = False) -> Any:
        if is_array(schema):
            return [self.part(item) for item in schema]
        if not is_object(schema):
            return schema
        if not is_names and _is_id(schema.get(self._id_key)):
            return schema
        moved: dict[str, Any] = {}
        for key, value in schema.items():
            if is_names:
                moved[key] = self.part(value)
            elif key in _REFERENCES and isinstance(value, str):
                moved[key] = _moved_reference(value, self._box)
            elif key in VALUES:
                moved[key] = value
            else:
                moved[key] = self.part(value, is_names=key in NAMED_SCHEMAS)
        return moved


def _moved_reference(reference: str, box: str) -> str:
    is_pointer = reference == "#" or reference.startswith("#/")
    if not is_pointer or unquote(reference).startswith(("#/$defs/", "#/definitions/")):
        return reference
    return f"#{box}{reference[1:]}"
