"""The drafts of JSON Schema: which one a document follows, and its keywords as 2020-12 says them.

The validator judges each document by its own draft. Fitting knows the keywords of 2020-12 only,
and reads every subschema through `upgraded`.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any

from callpact.schema.json_types import is_array, is_object


class Draft(IntEnum):
    """A draft of JSON Schema; a later one is greater."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 2019
    DRAFT_2020_12 = 2020

    @property
    def uri(self) -> str:
        """The `$schema` that every validator knows."""
        if self <= Draft.DRAFT_7:
            return f"http://json-schema.org/draft-0{self:d}/schema#"
        month = "09" if self is Draft.DRAFT_2019_09 else "12"
        return f"https://json-schema.org/draft/{self:d}-{month}/schema"

    @property
    def id_keyword(self) -> str:
        """The keyword that names a schema."""
        return "id" if self is Draft.DRAFT_4 else "$id"

    @property
    def dynamic_keyword(self) -> str | None:
        """The keyword of references that depend on the way to them."""
        return {2019: "$recursiveRef", 2020: "$dynamicRef"}.get(self)

    @property
    def has_lone_references(self) -> bool:
        """True if nothing beside a `$ref` counts."""
        return self <= Draft.DRAFT_7


_URI = re.compile(
    r"https?://json-schema\.org/(?:draft-0([467])|draft/(2019)-09|draft/(2020)-12)/schema#?"
)
_LATER: dict[Draft, tuple[str, ...]] = {
    Draft.DRAFT_6: ("const", "contains", "propertyNames"),
    Draft.DRAFT_7: ("if", "then", "else"),
    Draft.DRAFT_2019_09: (
        *("dependentRequired", "dependentSchemas", "maxContains", "minContains"),
        *("unevaluatedItems", "unevaluatedProperties"),
    ),
    Draft.DRAFT_2020_12: ("prefixItems",),
}
"""The keywords that fitting reads, by the draft that brought them."""
_NOT_YET = {
    draft: frozenset(word for later, words in _LATER.items() if later > draft for word in words)
    for draft in Draft
}
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


def named_draft(document: Any) -> Draft | None:
    """The draft that the `$schema` of a document names; None without one, or if it is not known."""
    given = document.get("$schema") if is_object(document) else None
    found = _URI.fullmatch(given) if isinstance(given, str) else None
    return Draft(int(found[1] or found[2] or found[3])) if found else None


def draft_of(document: Any) -> Draft:
    """The draft whose rules hold for a document: 2020-12 unless its `$schema` names an older one."""
    return named_draft(document) or Draft.DRAFT_2020_12


def with_known_draft(document: dict[str, Any]) -> dict[str, Any]:
    """The document without a `$schema` that names no known draft: it is judged as 2020-12."""
    if not isinstance(document.get("$schema"), str) or named_draft(document):
        return document
    return {key: value for key, value in document.items() if key != "$schema"}


def upgraded(schema: dict[str, Any], draft: Draft) -> dict[str, Any]:
    """One subschema with the keywords of 2020-12 that mean what its own keywords mean.

    Subschemas inside are the same objects, of their own draft still. Without a `$schema`, tuples as
    TypeBox writes them and bounds as OpenAPI 3.0 writes them are read, too: in 2020-12 they would
    mean nothing.
    """
    if "$ref" in schema and draft.has_lone_references:
        return {"$ref": schema["$ref"]}
    if draft is Draft.DRAFT_2020_12 and _SAME.isdisjoint(schema):
        return schema
    new = {key: value for key, value in schema.items() if key not in _NOT_YET[draft]}
    rest = new.pop("additionalItems", None)
    if is_array(new.get("items")):
        new["prefixItems"] = new.pop("items")
        if rest is not None:
            new["items"] = rest
    for exclusive, bound in _BOUNDS.items():
        if isinstance(new.get(exclusive), bool):
            is_exclusive = new.pop(exclusive)
            if is_exclusive and bound in new:
                new[exclusive] = new.pop(bound)
    if "dependencies" in new:
        _split(new)
    return new


_SAME = frozenset({"items", "additionalItems", "dependencies", *_BOUNDS})


def _split(schema: dict[str, Any]) -> None:
    """Replace `dependencies` by the two keywords that it became."""
    required, schemas = (_map(schema, f"dependent{kind}") for kind in ("Required", "Schemas"))
    for key, rule in _map(schema, "dependencies").items():
        if is_array(rule):
            others = required.get(key)
            required[key] = [*others, *rule] if is_array(others) else rule
        else:
            schemas[key] = {"allOf": [schemas[key], rule]} if key in schemas else rule
    del schema["dependencies"]
    schema |= {"dependentRequired": required, "dependentSchemas": schemas}


def _map(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    held = schema.get(keyword)
    return dict(held) if is_object(held) else {}
