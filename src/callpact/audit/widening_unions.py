"""The branches of a union: which values each may take, which fits one best, and what a new one says.

An outline never claims less than a branch accepts, so that branches whose outlines have nothing in
common exclude each other for certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from msgspec import Struct

from callpact.audit.places import Places
from callpact.audit.widening_rules import (
    EXCLUSIVE,
    LEAST,
    MAX_NEW_KEYS,
    MOST,
    described,
)
from callpact.schema.document import is_old_draft
from callpact.schema.issues import json_type

_MAX_BRANCHES = 100
_MAX_DEPTH = 8
_MAX_PARTS = 500
_KINDS = frozenset({"null", "boolean", "number", "string", "array", "object"})
_MUCH = 4
_STRAINS = {
    **dict.fromkeys(("minimum", "maximum", *EXCLUSIVE, *LEAST, *MOST), 1),
    **dict.fromkeys(("enum", "const", "additionalProperties"), 2),
    **dict.fromkeys(("type", "required"), 3),
}
_ONLY_OBJECTS = frozenset({"object"})
_NO_NAMES: frozenset[str] = frozenset()

Choice = tuple[str, Any]
"""A scalar with its kind: 1 is not true, and 1.0 is 1."""


class Outline(Struct, frozen=True):
    """What a schema says at least of the values that it accepts."""

    kinds: frozenset[str] = _KINDS
    choices: frozenset[Choice] | None = None
    """The values themselves, where they are few scalars."""
    tags: dict[str, frozenset[Choice]] = {}
    """Properties that have only certain values."""
    required: frozenset[str] = _NO_NAMES
    declared: frozenset[str] = _NO_NAMES
    """Properties that it speaks of."""
    known: frozenset[str] | None = None
    """The only properties that may be there."""

    def has(self, value: Any) -> bool:
        """True if it accepts values of this kind."""
        return json_type(value) in self.kinds

    def excludes(self, other: Outline) -> bool:
        """True if no value fits both."""
        shared = self.kinds & other.kinds
        if not shared:
            return True
        if self.choices is not None and other.choices is not None:
            return not self.choices & other.choices
        if shared != _ONLY_OBJECTS:
            return False
        needed = self.required | other.required
        tags = self.tags.keys() & other.tags.keys() & needed
        if any(not self.tags[name] & other.tags[name] for name in tags):
            return True
        return _lacks(self, other) or _lacks(other, self)


def _lacks(one: Outline, other: Outline) -> bool:
    return one.known is not None and not other.required <= one.known


def _choice(value: Any) -> Choice:
    return (json_type(value), value)


def _choices(values: Iterable[Any]) -> frozenset[Choice] | None:
    found = list(values)
    if any(isinstance(value, dict | list) for value in found):
        return None
    return frozenset(map(_choice, found))


class Outliner:
    """Outlines of the schemas of one document."""

    def __init__(self, document: Any, places: Places) -> None:
        self._places = places
        self._is_old = is_old_draft(document)
        self._left = 0

    def of(self, node: Any) -> Outline:
        """The outline of a schema."""
        self._left = _MAX_PARTS
        return self._of(node, 0)

    def _of(self, node: Any, depth: int) -> Outline:
        self._left -= 1
        if node is False:
            return Outline(frozenset())
        if not isinstance(node, dict) or depth > _MAX_DEPTH or self._left < 0:
            return Outline()
        rules = cast("dict[str, Any]", node)
        parts: list[Any] = []
        if isinstance(reference := rules.get("$ref"), str):
            target = self._places.target(reference)
            if self._is_old:
                return self._of(target, depth + 1)
            parts.append(target)
        outline = self._own(rules, depth)
        if isinstance(every := rules.get("allOf"), list):
            parts += cast("list[Any]", every)
        for part in parts:
            outline = _both(outline, self._of(part, depth + 1))
        for keyword in ("anyOf", "oneOf"):
            if isinstance(forms := rules.get(keyword), list):
                inner = [self._of(form, depth + 1) for form in cast("list[Any]", forms)]
                outline = _both(outline, _either(inner))
        return outline

    def _own(self, rules: dict[str, Any], depth: int) -> Outline:
        types: Any = rules.get("type", list(_KINDS))
        names = cast("list[str]", types) if isinstance(types, list) else [types]
        kinds = frozenset("number" if name == "integer" else name for name in names)
        choices: frozenset[Choice] | None = None
        if "const" in rules:
            choices = _choices([rules["const"]])
        elif isinstance(rules.get("enum"), list):
            choices = _choices(rules["enum"])
        if choices is not None:
            kinds &= frozenset(kind for kind, _ in choices)
        held: Any = rules.get("properties")
        properties = cast("dict[str, Any]", held) if isinstance(held, dict) else {}
        tags = {name: self._of(part, depth + 1).choices for name, part in properties.items()}
        needed: Any = rules.get("required")
        required = frozenset(cast("list[str]", needed) if isinstance(needed, list) else ())
        is_closed = rules.get("additionalProperties") is False and "patternProperties" not in rules
        return Outline(
            kinds,
            choices,
            {name: found for name, found in tags.items() if found is not None},
            required,
            frozenset(properties) | required,
            frozenset(properties) if is_closed else None,
        )

    def apart(self, branches: Sequence[Any]) -> frozenset[int]:
        """Those branches of a union that exclude all others, by their indexes."""
        if len(branches) > _MAX_BRANCHES:
            return frozenset()
        outlines = [self.of(branch) for branch in branches]
        return frozenset(
            index
            for index, one in enumerate(outlines)
            if all(one.excludes(other) for i, other in enumerate(outlines) if i != index)
        )


def _both(one: Outline, other: Outline) -> Outline:
    tags = {**one.tags, **other.tags}
    for name in one.tags.keys() & other.tags.keys():
        tags[name] = one.tags[name] & other.tags[name]
    return Outline(
        one.kinds & other.kinds,
        _fewer(one.choices, other.choices),
        tags,
        one.required | other.required,
        one.declared | other.declared,
        _fewer(one.known, other.known),
    )


def _fewer(one: frozenset[Any] | None, other: frozenset[Any] | None) -> frozenset[Any] | None:
    return other if one is None else one if other is None else one & other


def _either(outlines: list[Outline]) -> Outline:
    kinds = _union(one.kinds for one in outlines)
    declared = _union(one.declared for one in outlines)
    choices: frozenset[Choice] | None = frozenset()
    for one in outlines:
        choices = None if choices is None or one.choices is None else choices | one.choices
    return Outline(kinds, choices, declared=declared)


# --- one value --------------------------------------------------------------------------------


class Union:
    """A value that fits no branch of a union."""

    def __init__(self, value: Any, outlines: Sequence[Outline]) -> None:
        self.value = value
        self._keys: set[str] = set(cast("dict[str, Any]", value)) if _is_object(value) else set()
        self._outlines = outlines
        same_kind = [index for index, outline in enumerate(outlines) if outline.has(value)]
        self._same_kind = [outlines[index] for index in same_kind]
        tag = _tag_of(self._same_kind)
        self.tag = tag if tag in self._keys else None
        """The property that tells which branch is meant."""
        tagged = [index for index in same_kind if self._is_tagged(outlines[index])]
        self.alike = tagged or same_kind
        """The branches that may be meant, by their indexes."""
        self.is_new = not same_kind or (not tagged and self._is_unlike())
        """True if this is not one of the forms of its kind gone wrong, but another form."""

    def _is_tagged(self, outline: Outline) -> bool:
        found = _choices([self.value[self.tag]]) if self.tag is not None else None
        return found is not None and found <= outline.tags.get(cast("str", self.tag), frozenset())

    def _is_unlike(self) -> bool:
        if self.tag is not None:
            return True
        if not self.is_crowd:
            return False
        if _is_object(self.value):
            return not any(outline.declared & self._keys for outline in self._same_kind)
        return all(len(outline.choices or ()) == 1 for outline in self._same_kind)

    @property
    def is_crowd(self) -> bool:
        """True if there are several branches of the same kind."""
        return len(self._same_kind) > 1

    @property
    def is_listed(self) -> bool:
        """True if the branches name all values that they accept."""
        near = self._same_kind or self._outlines
        return all(outline.choices is not None or outline.kinds <= {"null"} for outline in near)

    @property
    def form(self) -> list[Any]:
        """What values have in common that one new branch is for."""
        return [json_type(self.value), self.tag, self.value[self.tag] if self.tag else None]

    def fit(
        self, index: int, errors: Sequence[Any], is_hidden: Callable[[Any], bool]
    ) -> tuple[int, int]:
        """How far a value is from a branch; the least is the nearest."""
        shared = len(self._outlines[index].declared & self._keys)
        return _strain(errors, is_hidden) - 2 * shared, -shared

    def new_branch(self, is_hidden: Callable[[Any], bool]) -> dict[str, Any]:
        """A branch for the value: what is known of it, and no more.

        What tells it from others of its kind is required: its tag, or else all that it has.
        """
        if not _is_object(self.value) or not self._same_kind:
            return described(self.value)
        held = cast("dict[str, Any]", self.value)
        if not held:
            return {"type": "object", "maxProperties": 0}
        names, tag = list(held)[:MAX_NEW_KEYS], self.tag
        if tag is not None:
            others = [name for name in names if name != tag] if len(held) == len(names) else []
            names = [tag, *others]
        branch: dict[str, Any] = {
            "type": "object",
            "properties": {
                name: {"const": held[name]} if name == tag else _told(held[name], is_hidden)
                for name in names
            },
            "required": names if tag is None else [tag],
        }
        if len(names) == len(held) and all(one.known is not None for one in self._same_kind):
            branch["additionalProperties"] = False
        return branch


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _told(value: Any, is_hidden: Callable[[Any], bool]) -> dict[str, Any]:
    return {} if is_hidden(value) else described(value)


def _tag_of(outlines: Sequence[Outline]) -> str | None:
    """The property whose values tell the branches of a union apart."""
    counts: dict[str, list[frozenset[Choice]]] = {}
    for outline in outlines:
        for name, choices in outline.tags.items():
            counts.setdefault(name, []).append(choices)
    for name, found in counts.items():
        if len(found) > 1 and sum(map(len, found)) == len(_union(found)):
            return name
    return None


def _union(sets: Iterable[frozenset[Any]]) -> frozenset[Any]:
    return frozenset(item for one in sets for item in one)


def _strain(errors: Sequence[Any], is_hidden: Callable[[Any], bool], depth: int = 0) -> int:
    """How much of a branch would have to change for a value to fit it."""
    return sum(_strain_of(error, is_hidden, depth) for error in errors)


def _strain_of(error: Any, is_hidden: Callable[[Any], bool], depth: int) -> int:
    code, instance = str(error.kind.name), error.instance
    if is_hidden(instance):
        return 0
    if code in {"anyOf", "oneOf"} and depth < _MAX_DEPTH:
        forms: list[list[Any]] = error.kind.as_dict()["context"]
        return min((_strain(form, is_hidden, depth + 1) for form in forms), default=_MUCH)
    if code == "type":
        is_number = json_type(instance) == "number" and "integer" in error.kind.types
        return 1 if is_number else _STRAINS[code]
    if code in {"enum", "const"} and isinstance(instance, dict | list):
        return 2 * _MUCH
    if code == "additionalProperties":
        return _STRAINS[code] * len(error.kind.as_dict()["unexpected"])
    return _STRAINS.get(code, _MUCH)
