"""The schemas that a tool publishes over MCP: as declared, boxed, or relaxed.

Pure functions over JSON Schema as plain data. What is published is never stricter than what the
gate lets out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from callpact.schema.document import resolve

if TYPE_CHECKING:
    from callpact.tool import Tool

_RELAXED_NODES = 2_000
"""Fields that a relaxed schema tells; what lies beyond is left open."""
_BOX = "/properties/result"
_DEFINITIONS = ("$defs", "definitions")
_NAMED_SCHEMAS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
)
_VALUES = frozenset({"const", "enum", "default", "examples"})


def input_schema(tool: Tool) -> dict[str, Any]:
    """The published input schema: the declared one, with the object root that MCP asks for."""
    declared = tool.contract.input
    if not isinstance(declared, dict):
        return {"type": "object"} if declared else {"type": "object", "not": {}}
    # Arguments are always an object: to say so changes nothing.
    return {**cast("dict[str, Any]", declared), "type": "object"}


def output_schema(tool: Tool, *, modern: bool) -> dict[str, Any] | None:
    """The published output schema: one that no answer of the tool can break."""
    if not is_published(tool):
        return None
    declared = cast("dict[str, Any]", tool.contract.output)
    wrapped = is_wrapped(tool, modern=modern)
    if tool.contract.policy != "warn":
        if wrapped:
            return _boxed(declared)
        # Older peers want to see the object at the root, not behind a reference.
        return declared if modern else {**declared, "type": "object"}
    relaxed = _Relaxer(declared).relax(declared, frozenset())
    if wrapped:
        return _boxed(relaxed)
    # Older peers ask for an object; what else comes is put into one.
    return relaxed if modern else {**relaxed, "type": "object"}


def is_published(tool: Tool) -> bool:
    """True if clients are told what the tool gives."""
    contract = tool.contract
    return (
        contract.compiled_output is not None
        and contract.policy != "pass"
        and isinstance(contract.output, dict)
    )


def is_wrapped(tool: Tool, *, modern: bool) -> bool:
    """True if this tool's answers travel as `{"result": …}`.

    For older peers whenever the root is not an object; for all where it may be null, because the
    SDK cannot send a null.
    """
    compiled = tool.contract.compiled_output
    if compiled is None or not is_published(tool):
        return False
    if compiled.accepts(None):
        return True
    return not modern and not _is_object(tool.contract.output, tool.contract.output)


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


class _Relaxer:
    """Makes the same tree of fields, with the declared types in words and nothing that asserts."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = _RELAXED_NODES

    def relax(self, node: Any, above: frozenset[str]) -> dict[str, Any]:
        """`above` are the references that led here: a cycle is left open."""
        self._left -= 1
        if not isinstance(node, dict) or self._left < 0:
            return {}
        schema = cast("dict[str, Any]", node)
        properties: dict[str, Any] = {}
        items: dict[str, Any] | None = None
        words: dict[str, str] = {}
        kinds: list[str] = []
        for part, path in self._parts(schema, above):
            for name in ("title", "description"):
                if isinstance(part.get(name), str):
                    words.setdefault(name, part[name])
            kinds += [kind for kind in _kinds(part) if kind not in kinds]
            held = part.get("properties")
            if isinstance(held, dict):
                for key, value in cast("dict[str, Any]", held).items():
                    if key not in properties:
                        properties[key] = self.relax(value, path)
            if items is None and isinstance(part.get("items"), dict):
                items = self.relax(part["items"], path)
        if kinds:
            told = f"(declared: {' or '.join(kinds)})"
            words["description"] = f"{words.get('description', '')} {told}".strip()
        relaxed: dict[str, Any] = dict(words)
        if properties:
            relaxed["properties"] = properties
        if items is not None:
            relaxed["items"] = items
        return relaxed

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
