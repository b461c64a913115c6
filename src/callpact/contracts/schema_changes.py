"""The changes between two schemas, keyword by keyword, each with its effect on what is accepted.

`narrower`: fewer values are accepted than before; `wider`: more; `other`: it cannot be said from the
keyword alone; `note`: no value is concerned. A change that is not understood is `other`, never
`note`. The list is complete: if no change is `narrower` or `other`, every old value is accepted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from msgspec import Struct

from callpact.schema import is_array, is_object
from callpact.schema.targets import NAMED_SCHEMAS, VALUES, Targets
from callpact.schema.values import same

Effect = Literal["narrower", "wider", "other", "note"]
Subject = Literal["rule", "member", "default", "text"]

MAX_SCHEMA_CHANGES = 1_000
"""Changes of one schema that are listed; the rest is one change that is not understood."""
MAX_COMPARED = 20_000
"""Pairs of subschemas that are compared; behind references they can multiply."""
_MAX_LEVELS = 100
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "formatMinimum")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "formatMaximum")
_NEEDS = ("pattern", "format", "contentEncoding", "contentMediaType")
_EITHER = ("$schema", "$vocabulary", "dependentRequired", "maxContains", "minContains")
_NAMES = ("$anchor", "$dynamicAnchor", "$id", "$recursiveAnchor", "id")
_DYNAMIC = ("$dynamicRef", "$recursiveRef")
_UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
_INVERTING = ("not", "if", "then", "else", *_UNEVALUATED)
_TYPES = frozenset({"string", "integer", "fraction", "boolean", "null", "array", "object"})
_SEEN = frozenset(
    {
        *_LOWER,
        *_UPPER,
        *_NEEDS,
        *_EITHER,
        *_DYNAMIC,
        *_INVERTING,
        "$defs",
        "$ref",
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "contains",
        "default",
        "definitions",
        "dependencies",
        "dependentSchemas",
        "enum",
        "items",
        "multipleOf",
        "oneOf",
        "patternProperties",
        "prefixItems",
        "properties",
        "propertyNames",
        "required",
        "type",
        "uniqueItems",
    }
)


class SchemaChange(Struct, frozen=True):
    """One change of a schema: where, in words, and its effect."""

    path: str
    """The place in a value, as `/filters/limit`; `*` for the items of an array."""
    words: str
    effect: Effect
    subject: Subject = "rule"
    """`member`: a declared property came or went; `default`; `text`: descriptions and the like."""


def schema_changes(old: Any, new: Any) -> tuple[SchemaChange, ...]:
    """All changes from one schema document to another."""
    found: list[SchemaChange] = []
    for change in _Comparison(old, new).compare(old, new, ""):
        if len(found) == MAX_SCHEMA_CHANGES:
            found.append(SchemaChange("", "there are more changes than are listed", "other"))
            break
        found.append(change)
    return tuple(dict.fromkeys(found))


def shown(value: Any) -> str:
    """A value as short JSON, for a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _rules_of(part: Any, *, has_names: bool = False) -> Any:
    """A schema without the keywords that concern no value, such as descriptions."""
    if is_array(part):
        return [_rules_of(inner) for inner in part]
    if not is_object(part):
        return part
    return {
        key: inner
        if key in VALUES and not has_names
        else _rules_of(inner, has_names=key in NAMED_SCHEMAS and not has_names)
        for key, inner in part.items()
        if has_names or key in _NAMES or (key in _SEEN and key != "default")
    }


def _below(path: str, name: str) -> str:
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"


def _key(value: Any) -> str:
    """A text that is the same for values that are equal as JSON: 1 is 1.0, but true is not 1."""
    return json.dumps(_with_integers(value), sort_keys=True)


def _with_integers(value: Any) -> Any:
    if is_object(value):
        return {key: _with_integers(inner) for key, inner in value.items()}
    if is_array(value):
        return [_with_integers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Comparison:
    def __init__(self, old: Any, new: Any) -> None:
        self._targets = Targets(old), Targets(new)
        self._is_same = same(_rules_of(old), _rules_of(new))
        self._entered: set[tuple[str, str, bool]] = set()
        self._inverted = 0
        self._levels = 0
        self._left = MAX_COMPARED

    def compare(self, old: Any, new: Any, path: str) -> Iterator[SchemaChange]:
        """The changes of one place; equal parts are compared too, for the references in them."""
        self._left -= 1
        if self._levels == _MAX_LEVELS or self._left < 0:
            yield SchemaChange("", "the schema is too large to be compared in full", "other")
            return
        self._levels += 1
        try:
            yield from self._compare(old, new, path)
        finally:
            self._levels -= 1

    def _compare(self, old: Any, new: Any, path: str) -> Iterator[SchemaChange]:
        if old is False or new is False:
            if old is not new:
                words = "no value is accepted any more" if new is False else "values are accepted"
                yield SchemaChange(path, words, "narrower" if new is False else "wider")
            return
        before: dict[str, Any] = old if is_object(old) else {}
        after: dict[str, Any] = new if is_object(new) else {}
        if "$ref" in before or "$ref" in after:
            yield from self._referred(before, after, path)
            return
        if not before and not after:
            return
        yield from _types(before, after, path)
        yield from _enums(before, after, path)
        yield from _bounds(before, after, path)
        yield from _rules(before, after, path)
        yield from _notes(before, after, path)
        yield from self._members(before, after, path)
        yield from self._items(before, after, path)
        yield from self._branches(before, after, path)
        yield from self._inverting(before, after, path)
        is_unevaluated = any(key in side for key in _UNEVALUATED for side in (before, after))
        if is_unevaluated and not self._is_same:
            yield SchemaChange(path, "which members are 'unevaluated' may have changed", "other")
        if any(key in side for key in _DYNAMIC for side in (before, after)) and not self._is_same:
            yield SchemaChange(path, "a schema behind a reference may have changed", "other")

    def _referred(
        self, before: dict[str, Any], after: dict[str, Any], path: str
    ) -> Iterator[SchemaChange]:
        """The changes behind references and beside them: both hold together."""
        key = (_key(before), _key(after), bool(self._inverted))
        if key in self._entered:  # The changes of what is recursive are listed once.
            return
        sides: list[tuple[Any, dict[str, Any]]] = []
        for targets, side in zip(self._targets, (before, after), strict=True):
            rest = {name: part for name, part in side.items() if name != "$ref"}
            found = targets.of(side)[0] if "$ref" in side else [side]
            sides.append((found, rest if "$ref" in side else {}))
        (old, old_rest), (new, new_rest) = sides
        if not old or not new:
            if not self._is_same:
                yield SchemaChange(path, "a schema behind a reference may have changed", "other")
            return
        self._entered.add(key)
        try:
            yield from self.compare(old[0], new[0], path)
            yield from self.compare(old_rest, new_rest, path)
        finally:
            self._entered.discard(key)

    # --- parts ------------------------------------------------------------------------------

    def _members(
        self, before: dict[str, Any], after: dict[str, Any], path: str
    ) -> Iterator[SchemaChange]:
        old, new = _parts(before, "properties"), _parts(after, "properties")
        patterns = [_parts(side, "patternProperties") for side in (before, after)]
        open_before = before.get("additionalProperties", True)
        open_after = after.get("additionalProperties", True)
        for name in dict.fromkeys((*old, *new)):
            place = _below(path, name)
            if name in old and name in new:
                yield from self.compare(old[name], new[name], place)
                continue
            effect: Effect = "other"
            if not any(patterns):
                first, second = old.get(name, open_before), new.get(name, open_after)
                effect = _together(self.compare(first, second, place))
            words = "the property was removed"
            if name in new:
                words = "the property was added"
                if effect in ("narrower", "other"):
                    words += ", and as an undeclared member it had other rules"
            yield SchemaChange(place, words, effect, "member")
        if patterns[0].keys() == patterns[1].keys():
            for pattern, part in patterns[0].items():
                yield from self.compare(part, patterns[1][pattern], f"{path}/*")
        else:
            yield SchemaChange(path, "the patterns of property names changed", "other")
        if open_before is not True or open_after is not True:
            for change in self.compare(open_before, open_after, f"{path}/*"):
                words = f"undeclared members: {change.words}"
                if open_after is False:
                    words = "undeclared members are refused"
                elif open_before is False:
                    words = "undeclared members are accepted"
                yield SchemaChange(path, words, change.effect, change.subject)

    def _items(
        self, before: dict[str, Any], after: dict[str, Any], path: str
    ) -> Iterator[SchemaChange]:
        for key in ("items", "prefixItems"):
            first, second = before.get(key, True), after.get(key, True)
            if is_array(first) or is_array(second):
                if is_array(first) and is_array(second) and len(first) == len(second):
                    for index, (one, other) in enumerate(zip(first, second, strict=True)):
                        yield from self.compare(one, other, f"{path}/{index}")
                else:
                    yield SchemaChange(path, f"the number of '{key}' changed", "other")
            else:
                yield from self.compare(first, second, f"{path}/*")
        for key, place in (("additionalItems", f"{path}/*"), ("propertyNames", path)):
            yield from self.compare(before.get(key, True), after.get(key, True), place)
        if "contains" in before and "contains" in after:
            if any("maxContains" in side for side in (before, after)):
                yield from self._either("contains", before, after, f"{path}/*")
            else:
                yield from self.compare(before["contains"], after["contains"], f"{path}/*")
        elif "contains" in after:
            yield SchemaChange(path, "an item of a certain kind is required", "narrower")
        elif "contains" in before:
            yield SchemaChange(path, "no item of a certain kind is required", "wider")

    def _branches(
        self, before: dict[str, Any], after: dict[str, Any], path: str
    ) -> Iterator[SchemaChange]:
        for key in ("anyOf", "allOf"):
            first, second = _list(before, key), _list(after, key)
            if not first and not second:
                continue
            if key == "anyOf" and not (first and second):
                effect: Effect = "wider" if first else "narrower"
                words = f"'anyOf' was {'removed' if first else 'added'}"
                yield SchemaChange(path, words, effect)
                continue
            same = {_key(part) for part in first} & {_key(part) for part in second}
            for part in first:
                if _key(part) in same:
                    yield from self.compare(part, part, path)
            gone = [part for part in first if _key(part) not in same]
            come = [part for part in second if _key(part) not in same]
            if len(gone) == len(come):
                for one, other in zip(gone, come, strict=True):
                    yield from self.compare(one, other, path)
                continue
            if gone and come:
                yield SchemaChange(path, f"the branches of '{key}' changed", "other")
            elif (key == "anyOf") == bool(come):
                words = "was added" if come else "was removed"
                yield SchemaChange(path, f"a branch of '{key}' {words}", "wider")
            else:
                words = "was added" if come else "was removed"
                yield SchemaChange(path, f"a branch of '{key}' {words}", "narrower")

    def _inverting(
        self, before: dict[str, Any], after: dict[str, Any], path: str
    ) -> Iterator[SchemaChange]:
        """Keywords under which more can become less: every change but a note is `other`."""
        for key in _INVERTING:
            if (key in before) != (key in after):
                yield SchemaChange(path, f"'{key}' was added or removed", "other")
            elif key in before:
                yield from self._either(key, before, after, path)
        for key in ("oneOf", "dependentSchemas", "dependencies"):
            first, second = _named(before, key), _named(after, key)
            if first.keys() != second.keys():
                yield SchemaChange(path, f"the branches of '{key}' changed", "other")
                continue
            for name in first:
                yield from self._either(name, first, second, path)

    def _either(
        self, key: str, before: dict[str, Any], after: dict[str, Any], path: str
    ) -> Iterator[SchemaChange]:
        if is_array(before[key]) or is_array(after[key]):  # Names, in `dependencies`.
            if not same(before[key], after[key]):
                yield SchemaChange(path, "'dependencies' changed", "other")
            return
        self._inverted += 1
        try:
            for change in self.compare(before[key], after[key], path):
                if change.effect == "note":
                    yield change
                else:
                    yield SchemaChange(change.path, change.words, "other")
        finally:
            self._inverted -= 1


def _together(changes: Iterable[SchemaChange]) -> Effect:
    """The effect of several changes that hold together."""
    effects: set[Effect] = {change.effect for change in changes if change.effect != "note"}
    if not effects:
        return "note"
    return effects.pop() if len(effects) == 1 else "other"


# --- keywords of one place ------------------------------------------------------------------


def _parts(schema: dict[str, Any], key: str) -> dict[str, Any]:
    part = schema.get(key)
    return part if is_object(part) else {}


def _list(schema: dict[str, Any], key: str) -> list[Any]:
    part = schema.get(key)
    return part if is_array(part) else []


def _named(schema: dict[str, Any], key: str) -> dict[str, Any]:
    if key in schema and is_array(schema[key]):
        return {str(index): part for index, part in enumerate(schema[key])}
    return _parts(schema, key)


def _kinds(schema: dict[str, Any]) -> frozenset[str]:
    kinds = schema.get("type")
    if kinds is None:
        return _TYPES
    names = {str(kind) for kind in kinds} if is_array(kinds) else {str(kinds)}
    return frozenset(names - {"number"} | ({"integer", "fraction"} if "number" in names else set()))


def _types(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[SchemaChange]:
    old, new = _kinds(before), _kinds(after)
    if old == new:
        return
    effect: Effect = "wider" if old < new else "narrower" if new < old else "other"
    first, second = before.get("type", "any"), after.get("type", "any")
    yield SchemaChange(path, f"type {_joined(first)} → {_joined(second)}", effect)


def _joined(kinds: Any) -> str:
    return " or ".join(map(str, kinds)) if is_array(kinds) else str(kinds)


def _values(schema: dict[str, Any]) -> dict[str, Any] | None:
    if "const" in schema:
        return {_key(schema["const"]): schema["const"]}
    values = schema.get("enum")
    return {_key(value): value for value in values} if is_array(values) else None


def _enums(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[SchemaChange]:
    old, new = _values(before), _values(after)
    if ("const" in before and "enum" in before) or ("const" in after and "enum" in after):
        if old != new or not same(before.get("enum"), after.get("enum")):
            yield SchemaChange(path, "'const' and 'enum' changed", "other")
    elif old is None and new is not None:
        yield SchemaChange(path, f"only {shown([*new.values()])} is accepted", "narrower")
    elif old is not None and new is None:
        yield SchemaChange(path, "the list of accepted values was removed", "wider")
    elif old is not None and new is not None:
        for key in old.keys() - new.keys():
            yield SchemaChange(path, f"value {shown(old[key])} was dropped", "narrower")
        for key in new.keys() - old.keys():
            yield SchemaChange(path, f"value {shown(new[key])} was added", "wider")


def _bounds(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[SchemaChange]:
    for key in (*_LOWER, *_UPPER):
        first, second = before.get(key), after.get(key)
        if first == second and isinstance(first, bool) == isinstance(second, bool):
            continue
        words = f"{key} {_bound(first)} → {_bound(second)}"
        effect: Effect = "other"
        if isinstance(first, bool) or isinstance(second, bool):
            pass  # Draft 4: they change the meaning of another keyword.
        elif first is None:
            effect = "narrower"
        elif second is None:
            effect = "wider"
        elif isinstance(first, str) == isinstance(second, str):
            effect = "narrower" if (second > first) == (key in _LOWER) else "wider"
        yield SchemaChange(path, words, effect)


def _bound(value: Any) -> str:
    return "none" if value is None else shown(value)


def _rules(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[SchemaChange]:
    old, new = _list(before, "required"), _list(after, "required")
    for name in new:
        if name not in old:
            yield SchemaChange(_below(path, name), "is required now", "narrower")
    for name in old:
        if name not in new:
            yield SchemaChange(_below(path, name), "is optional now", "wider")
    for key in _NEEDS:
        first, second = before.get(key), after.get(key)
        if first != second:
            effect: Effect = "narrower" if first is None else "wider" if second is None else "other"
            yield SchemaChange(path, f"{key} {_bound(first)} → {_bound(second)}", effect)
    first, second = before.get("uniqueItems", False), after.get("uniqueItems", False)
    if first != second:
        words = "items must be unique" if second else "items may repeat"
        yield SchemaChange(path, words, "narrower" if second else "wider")
    yield from _multiples(before.get("multipleOf"), after.get("multipleOf"), path)
    for key in _EITHER:
        if (key in before or key in after) and _key(before.get(key)) != _key(after.get(key)):
            yield SchemaChange(path, f"'{key}' changed", "other")


def _multiples(first: Any, second: Any, path: str) -> Iterator[SchemaChange]:
    if first == second:
        return
    words = f"multipleOf {_bound(first)} → {_bound(second)}"
    effect: Effect = "other"
    if first is None:
        effect = "narrower"
    elif second is None:
        effect = "wider"
    elif isinstance(first, int) and isinstance(second, int) and first and second:
        effect = "wider" if first % second == 0 else "narrower" if second % first == 0 else "other"
    yield SchemaChange(path, words, effect)


def _notes(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[SchemaChange]:
    if ("default" in before) != ("default" in after) or _key(before.get("default")) != _key(
        after.get("default")
    ):
        if "default" not in after:
            words = f"the default {shown(before['default'])} was removed"
        elif "default" not in before:
            words = f"the default {shown(after['default'])} was added"
        else:
            words = f"default {shown(before['default'])} → {shown(after['default'])}"
        yield SchemaChange(path, words, "note", "default")
    for key in dict.fromkeys((*before, *after)):
        if key not in _SEEN and (
            (key in before) != (key in after) or _key(before.get(key)) != _key(after.get(key))
        ):
            yield SchemaChange(path, f"'{key}' changed", "note", "text")
