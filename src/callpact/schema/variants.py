"""Two forms of a schema that let one pass of the validator say more.

`jsonschema-rs` looks only where a schema says so: a NaN, a Python object or a key that is not
a string passes unseen in a place that no keyword visits. The **plain** form accepts exactly what
the schema accepts, but visits every part of a value, so that acceptance also means "this is JSON".
The **closed** form accepts less: a value in which `convert`, `cast` and `strip` have nothing to do.
"""

from __future__ import annotations

from typing import Any, cast

from callpact.schema.bounds import schema_limits
from callpact.schema.document import Document
from callpact.schema.drafts import Draft, draft_of
from callpact.schema.integers import EXACT, WHOLE, count_integers, says_integer
from callpact.schema.json_types import is_array, is_object
from callpact.schema.targets import resolve
from callpact.schema.values import ANY_JSON, UNROLLED, any_json

# Asserts the same without counting any key as evaluated: `not` keeps no annotations.
_QUIET_JSON: dict[str, Any] = {"not": {"not": ANY_JSON}}
_NOTHING: dict[str, Any] = {"not": {}}

UNFORMABLE = frozenset(
    {
        "$dynamicRef",
        "$recursiveRef",
        "$id",
        "$anchor",
        "$dynamicAnchor",
        "unevaluatedProperties",
        "unevaluatedItems",
    }
)
"""Keywords whose meaning hangs on other places, so that a document with one is left as it is."""
INVERTING = frozenset({"oneOf", "not", "if", "contains", "dependentSchemas"})
"""Keywords under which accepting less may mean accepting more: closed says too little alone."""
_COVERING = frozenset({"$ref", "const", "enum", "anyOf", "oneOf", "allOf"})
_KEYED = frozenset({"properties", "patternProperties"})


def plain_form(document: Document) -> tuple[Document, bool]:
    """The form that accepts the same JSON values and nothing that is not JSON.

    Integers are exact in it (`integers.py`). False beside it if it does not say so of all of them.
    """
    return _formed(document, closed=False)


def closed_form(document: Document) -> tuple[Document, bool]:
    """The form that rejects every value that needs a conversion or a strip.

    False beside it if it does not say of all integers that they are exact.
    """
    return _formed(document, closed=True)


def _formed(document: Document, *, closed: bool) -> tuple[Document, bool]:
    former = _Former(document, closed=closed)
    formed = former.form()
    return formed, len(former.integers) == count_integers(document)


class _Former:
    def __init__(self, document: Document, *, closed: bool) -> None:
        self._root = document
        self._closed = closed
        self._draft = draft_of(document)
        # To draft 4 `const` says nothing.
        self._covering = _COVERING - {"const"} if self._draft is Draft.DRAFT_4 else _COVERING
        self._visits = False
        self.integers: set[int] = set()
        """Parts of the document that want an integer, and are formed so that it is exact."""
        self._opened: dict[str, str] = {}
        """Definitions that are also wanted as a part of `allOf`, by reference."""

    def form(self) -> Document:
        formed = self._form(self._root)
        extra: dict[str, Any] = {}
        while self._opened:
            reference, name = self._opened.popitem()
            extra[name] = None
            extra[name] = self._form(resolve(self._root, reference), closing=False)
            self._opened = {r: n for r, n in self._opened.items() if n not in extra}
        if self._visits:
            levels = min(UNROLLED, schema_limits().value_depth)
            extra.update(any_json(levels)["$defs"])
        if not extra or not is_object(formed):
            return formed
        schema = formed
        return {**schema, "$defs": {**schema.get("$defs", {}), **extra}}

    def _any(self, *, quiet: bool = False) -> dict[str, Any]:
        self._visits = True
        return _QUIET_JSON if quiet else ANY_JSON

    def _form(self, node: Any, *, closing: bool = True) -> Any:
        """Form one subschema. A part of `allOf` is not closing: only together do they know all keys."""
        if node is True or node == {}:
            return self._any(quiet=not closing)
        if not is_object(node):
            return node
        schema = dict(node)
        types = schema.get("type")
        types = set(cast("list[str]", types)) if is_array(types) else {types}
        covered = bool(self._covering & schema.keys())
        self._descend(schema, closing=closing and "allOf" not in schema)
        if _KEYED & schema.keys() or ("object" in types and not covered):
            self._form_object(schema, closing=closing and "allOf" not in node)
        if "array" in types:
            self._form_array(schema)
        more = [self._any(quiet=True)] if None in types and not covered else []
        if says_integer(schema):
            self.integers.add(id(cast("Any", node)))
            more.append(self._integer(types))
        if self._closed:
            if "oneOf" in schema:
                # Exactly one of the open variants (INVERTING), and any of the closed ones.
                more.append({"anyOf": schema.pop("oneOf")})
            if "allOf" in node and closing:
                more.extend(self._close(schema))
        if more:
            schema["allOf"] = [*schema.get("allOf", ()), *more]
        return schema

    def _integer(self, types: set[Any]) -> dict[str, Any]:
        if not self._closed:
            return EXACT
        # What `convert` would change is no integer here: 7.0.
        others = sorted(types - {"integer"})
        return {"anyOf": [WHOLE, {"type": others}]} if others else WHOLE

    def _close(self, schema: dict[str, Any]) -> list[Any]:
        if self._draft.has_lone_references:
            return [_NOTHING]
        schema["unevaluatedProperties"] = False
        return []

    def _descend(self, schema: dict[str, Any], *, closing: bool) -> None:
        for keyword in ("properties", "patternProperties"):
            if isinstance(schema.get(keyword), dict):
                schema[keyword] = {k: self._form(v) for k, v in schema[keyword].items()}
        for keyword in ("$defs", "definitions"):
            if isinstance(schema.get(keyword), dict):
                schema[keyword] = {k: self._form_definition(v) for k, v in schema[keyword].items()}
        if isinstance(schema.get("prefixItems"), list):
            schema["prefixItems"] = [self._form(part) for part in schema["prefixItems"]]
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list):
                schema[keyword] = [self._form(part, closing=closing) for part in schema[keyword]]
        if isinstance(schema.get("allOf"), list):
            schema["allOf"] = [self._form_part(part) for part in schema["allOf"]]

    def _form_definition(self, node: Any) -> Any:
        # It may be referred to beside other keywords, whose keys it must not count as known.
        return self._any(quiet=True) if node is True or node == {} else self._form(node)

    def _form_part(self, part: Any) -> Any:
        if not self._closed:
            return self._form(part)
        if is_object(part) and set(part) == {"$ref"}:
            reference = str(part["$ref"])
            name = "callpact.open." + reference[2:].replace("/", ".")
            self._opened[reference] = name
            return {"$ref": "#/$defs/" + name.replace("~", "~0")}
        return self._form(part, closing=False)

    def _form_object(self, schema: dict[str, Any], *, closing: bool) -> None:
        rest = schema.get("additionalProperties")
        if rest is True or is_object(rest):
            schema["additionalProperties"] = self._form(rest)
        elif rest is None and not (self._closed and _KEYED & schema.keys()):
            schema["additionalProperties"] = self._any()
        elif rest is None and closing:
            schema["additionalProperties"] = False
            # A required key is known, even without a schema of its own.
            own = schema.get("properties", {})
            extra = {key: self._any() for key in schema.get("required", ()) if key not in own}
            schema["properties"] = {**own, **extra}

    def _form_array(self, schema: dict[str, Any]) -> None:
        items = schema.get("items")
        if is_array(items):
            schema["items"] = [self._form(item) for item in items]
            rest = schema.get("additionalItems", True)
            schema["additionalItems"] = self._form(rest)
        else:
            schema["items"] = self._form(True if items is None else items)
