"""The targets of the references in a schema document: by pointer, anchor or id, never fetched."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from callpact.schema.drafts import draft_of
from callpact.schema.json_types import is_array, is_object

VALUES = frozenset({"const", "enum", "default", "examples"})
"""Keywords that hold data, not schemas."""
DEFINITIONS = ("$defs", "definitions")
NAMED_SCHEMAS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", *DEFINITIONS}
)
"""Keywords that hold schemas by name."""


def resolve(root: Any, reference: str) -> Any:
    """The part of `root` that a pointer names, or None if it is not a pointer into it."""
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return None
    node: Any = root
    for raw in unquote(reference[2:]).split("/"):
        part = raw.replace("~1", "/").replace("~0", "~")
        if is_object(node):
            node = node.get(part)
        elif is_array(node) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        else:
            return None
    return node


class Targets:
    """Finds what the references of one document name.

    A schema with an id is a document of its own: references below it count from there. The names
    are looked up when the first reference is followed; without `has_names` there are none.
    """

    def __init__(self, root: Any, *, has_names: bool = True) -> None:
        self._root = root
        self._draft = draft_of(root)
        self._dynamic_keyword = self._draft.dynamic_keyword
        self._bases: dict[int, str] | None = None if has_names else {}
        """The URI that references of a subschema count from, by its identity; `""` if left out."""
        self._documents: dict[str, Any] = {"": root}
        self._anchors: dict[str, Any] = {}
        """The schemas with an anchor, by the URI with it."""
        self._dynamic: dict[str, list[Any]] = {}
        """The schemas that a dynamic reference may lead to, by the name of the anchor."""

    def of(self, schema: dict[str, Any]) -> list[list[Any]]:
        """The candidates of each reference of a subschema; one that is dynamic may have several.

        `schema` is a part of the document itself, not a copy.
        """
        found: list[list[Any]] = []
        if isinstance(schema.get("$ref"), str):
            found.append(self._static(schema, "$ref"))
        dynamic = self._dynamic_keyword
        if dynamic is not None and isinstance(schema.get(dynamic), str):
            found.append(self._candidates(schema, dynamic))
        return found

    def _static(self, schema: dict[str, Any], keyword: str) -> list[Any]:
        """The one target of a reference; an empty list if it is not known."""
        reference: str = schema[keyword]
        base = self._base(schema)
        uri, fragment = _joined(base, reference)
        if fragment and not fragment.startswith("/"):
            target = self._anchors.get(f"{uri}#{unquote(fragment)}")
        else:
            target = resolve(self._documents.get(uri), f"#{fragment}")
        return [] if target is None else [target]

    def _candidates(self, schema: dict[str, Any], keyword: str) -> list[Any]:
        found = self._static(schema, keyword)
        if not found or not is_object(found[0]):
            return found
        first = found[0]
        name = first.get("$dynamicAnchor")
        if keyword == "$recursiveRef":
            name = "" if first.get("$recursiveAnchor") is True else None
        elif name != str(schema[keyword]).partition("#")[2]:
            name = None
        others = [] if name is None else self._dynamic.get(name, [])
        return [first, *(other for other in others if other is not first)]

    def _base(self, schema: dict[str, Any]) -> str:
        if self._bases is None:
            self._bases = {}
            self._index(self._bases)
        bases = self._bases
        return bases.get(id(schema)) or bases.get(id(self._root), "") if bases else ""

    def _index(self, bases: dict[int, str]) -> None:
        stack: list[tuple[Any, str, bool]] = [(self._root, "", False)]
        while stack:
            node, base, is_names = stack.pop()
            if is_array(node):
                stack.extend((item, base, False) for item in node)
            if not is_object(node):
                continue
            if not is_names:
                base = self._enter(node, base)
                if base:
                    bases[id(node)] = base
            stack.extend(
                (item, base, not is_names and key in NAMED_SCHEMAS)
                for key, item in node.items()
                if (is_names or key not in VALUES) and (is_object(item) or is_array(item))
            )

    def _enter(self, schema: dict[str, Any], base: str) -> str:
        """Note the names of a subschema; the URI that its references count from."""
        draft = self._draft
        given = schema.get(draft.id_keyword)
        if isinstance(given, str) and not ("$ref" in schema and draft.has_lone_references):
            base, fragment = _joined(base, given)
            if not given.startswith("#"):
                self._documents.setdefault(base, schema)
            if fragment and draft.has_lone_references:
                self._anchors.setdefault(f"{base}#{fragment}", schema)
        if draft.has_lone_references:
            return base
        if schema.get("$recursiveAnchor") is True:
            self._dynamic.setdefault("", []).append(schema)
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str):
                self._anchors.setdefault(f"{base}#{name}", schema)
                if keyword == "$dynamicAnchor":
                    self._dynamic.setdefault(name, []).append(schema)
        return base


def _joined(base: str, reference: str) -> tuple[str, str]:
    """The URI that a reference names, and its fragment."""
    if reference.startswith("#"):  # The standard library joins none to a URN.
        return base, reference[1:]
    try:
        return urldefrag(urljoin(base, reference))
    except ValueError:
        return reference, ""
