"""Violations met one by one: each rule that a value breaks is widened where it stands.

What was accepted before stays accepted. `widening.py` tells which values, and when it is enough.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from callpact import schema as schemas
from callpact.audit.patching import Unsolved, same
from callpact.audit.places import (
    Path,
    Places,
    at,
    keywords_of,
    parts_of,
    place_in,
    place_of,
)
from callpact.audit.record import place
from callpact.audit.violations import ABOUT_KEYS, code_of, names_of, rule_of, step
from callpact.audit.widening_bounds import Bounds
from callpact.audit.widening_rules import (
    EXCLUSIVE,
    LEAST,
    MAX_NEW_CHOICES,
    MAX_NEW_KEYS,
    MOST,
    as_any_of,
    described,
    described_all,
    let_miss,
    take_bound,
    take_count,
    take_type,
    type_of,
)
from callpact.audit.widening_unions import Outliner, Union
from callpact.errors import InvalidSchema, Issue
from callpact.schema import CompiledSchema, compile_schema
from callpact.schema.document import Document, in_place, pointer
from callpact.schema.issues import json_type

_MAX_CHOICE = 100
_MAX_ERRORS = 200
_MAX_STEPS = 24
_ABOUT_REST = ("unevaluatedProperties", "unevaluatedItems")
_UNIONS = ("anyOf", "oneOf")


class Widener:
    """A schema while it is widened."""

    def __init__(
        self,
        document: Document,
        *,
        formats: bool,
        meant: frozenset[tuple[str, str]] | None,
        is_hidden: Callable[[Any], bool] | None,
    ) -> None:
        self.document: Any = copy.deepcopy(document)
        self._first = document
        self.unsolved: set[Unsolved] = set()
        self._formats = formats
        self._meant = meant
        self._is_hidden = is_hidden or _never
        self._added: dict[tuple[str | int, ...], list[Any]] = {}
        self._value: Any = None
        self._begin()

    def _begin(self) -> None:
        """What holds for one round: the schema as the validator has it, and what must stay."""
        self._was = copy.deepcopy(self.document)
        self._bounds = Bounds(self._was)
        self._doubtful: set[Unsolved] = set()
        self._joined: list[tuple[Path, Any]] = []

    def meet_all(self, compiled: CompiledSchema, values: Sequence[Any], *, declare: bool) -> bool:
        """Widen for each violation of each value; False if nothing could be done."""
        self._begin()
        for value in values:
            self._meet_value(compiled, value, declare=declare)
        if same(self._was, self.document):
            self.unsolved |= self._doubtful
            return False
        self._bounds.mend(self.document)
        try:
            compile_schema(self.document)
        except InvalidSchema as error:
            self.document = self._was
            self.unsolved.add(Unsolved("", "schema", f"the widened schema is not one: {error}"))
            return False
        return True

    def give_up(self, compiled: CompiledSchema, values: Sequence[Any], *, declare: bool) -> None:
        """Tell why values still do not pass."""
        was = copy.deepcopy(self.document)
        for value in values:
            self._begin()
            self._meet_value(compiled, value, declare=declare)
            self.document = copy.deepcopy(was)
            told = self._doubtful or set(self._untold(compiled, value))
            self.unsolved |= told

    def _untold(self, compiled: CompiledSchema, value: Any) -> list[Unsolved]:
        """Violations that were met, and are still there."""
        reason = "no change was found with which it passes"
        return [
            Unsolved(place_of(value, error), str(error.kind.name), reason)
            for error in compiled.errors(value)[:_MAX_ERRORS]
            if not isinstance(error, Issue)
            and not self._has_hidden(error)
            and self._meant_names(error, str(error.kind.name))
        ]

    def _has_hidden(self, error: Any) -> bool:
        if str(error.kind.name) not in _UNIONS:
            return self._is_hidden(error.instance)
        forms: list[list[Any]] = error.kind.as_dict()["context"]
        return any(self._has_hidden(inner) for form in forms for inner in form)

    def _meet_value(self, compiled: CompiledSchema, value: Any, *, declare: bool) -> None:
        self._value = value
        errors: list[Any] = compiled.errors(value)[:_MAX_ERRORS]
        # What is left over may be spoken of as soon as another rule is met.
        others = [error for error in errors if code_of(error) not in _ABOUT_REST]
        for error in others or errors:
            self._meet(error)
        if declare and not errors:
            fitted = schemas.fit(compiled, value)
            for change in fitted.changes:
                if change.action == "stripped":
                    self._declare_stripped(change.path)

    def _meet(self, error: Any, *, is_forced: bool = False) -> None:
        if isinstance(error, Issue):
            reason = "the value can be judged only as a whole"
            self._doubtful.add(Unsolved(place(error.path), error.code, reason))
            return
        code = str(error.kind.name)
        if self._is_hidden(error.instance):
            return
        names = names_of(error, code) if is_forced else self._meant_names(error, code)
        if not names:
            return
        where = self._bounds.places.path_of(error, self._value)
        reason = (
            "the schema names its parts in more than one way"
            if where is None
            else self._bounds.refusal(where)
        )
        if where is not None and reason is None and not self._widened(error, code, where, names):
            reason = "no wider rule is known"
        if reason is not None:
            self._doubtful.add(Unsolved(place_of(self._value, error), code, reason))

    # -- what is meant -----------------------------------------------------------------------

    def _meant_names(self, error: Any, code: str) -> list[str | None]:
        names = names_of(error, code)
        if self._meant is None:
            return names
        # An issue tells no empty key.
        told = place_in(self._value, pointer(error.instance_path))
        paths = {place_of(self._value, error), told}
        rule = rule_of(error, code)
        return [
            name for name in names if any(self._is_meant(path + step(name), rule) for path in paths)
        ]

    def _is_meant(self, path: str, rule: str) -> bool:
        if self._meant is None or (path, rule) in self._meant:
            return True
        if rule in ABOUT_KEYS and (path.rpartition("/")[0], rule) in self._meant:
            return True
        # What a union is told for may be the rule of one of its forms, at a place inside.
        return rule in _UNIONS and any(
            inner == path or inner.startswith(path + "/") for inner, _ in self._meant
        )

    # -- single rules ------------------------------------------------------------------------

    def _widened(self, error: Any, code: str, where: Path, names: list[str | None]) -> bool:
        if code == "falseSchema":
            return self._opened(where, error)
        node = at(self.document, where[:-1])
        if not isinstance(node, dict) or not where:
            return False
        rules, keyword = cast("dict[str, Any]", node), str(where[-1])
        if code == "type":
            take_type(rules, error.instance)
        elif code == "required":
            let_miss(rules, keyword, cast("str", names[0]), error.instance)
        elif code in ABOUT_KEYS:
            self._declare(rules, where, cast("list[str]", names), error.instance)
        elif code in {"enum", "const"}:
            self._choose(rules, where, error.instance)
        elif code in _UNIONS:
            self._join(rules, where, error)
        elif code in {"minimum", "maximum", *EXCLUSIVE, *LEAST, *MOST}:
            take_bound(rules, code, error.instance)
        elif code == "propertyNames":
            return self._name(error, where)
        elif code == "additionalItems":
            rules[keyword] = described_all(error.instance[error.kind.as_dict()["limit"] :])
        elif code == "unevaluatedItems" and rules.get(keyword) is False:
            rules[keyword] = described_all(list(map(json.loads, error.kind.unexpected)))
        elif code == "contains":
            take_count(self._was, rules, error.instance, formats=self._formats)
        else:
            rules.pop(keyword, None)
        return True

    def _name(self, error: Any, where: Path) -> bool:
        """Let a property have its name; a rule that says nothing any more goes."""
        inner: Any = error.kind.as_dict()["error"]
        holders = [index for index, keyword in keywords_of(where) if keyword == "propertyNames"]
        is_met = self._widened(inner, str(inner.kind.name), where, [None])
        if holders:
            rules = at(self.document, where[: holders[-1]])
            if not is_met or rules.get("propertyNames") == {}:
                rules.pop("propertyNames", None)
                return True
        return is_met

    def _opened(self, where: Path, error: Any) -> bool:
        """Where nothing was allowed, allow what came."""
        if not where:
            self.document = described(error.instance)
            return True
        holder: Any = at(self.document, where[:-1])
        if not isinstance(holder, dict | list):
            return False
        if where[-1] == "propertyNames":
            names = list(cast("dict[str, Any]", error.instance))
            rules = cast("dict[str, Any]", holder)
            if rules["propertyNames"] is False:
                rules["propertyNames"] = {"enum": names} if len(names) <= MAX_NEW_KEYS else True
            return True
        if where[-1] in ABOUT_KEYS:
            # Of an object that declares nothing the validator names no key; the next round does.
            cast("dict[str, Any]", holder).setdefault("properties", {})
            return True
        held = cast("Any", holder)[where[-1]]
        if isinstance(held, dict):
            take_type(cast("dict[str, Any]", held), error.instance)
        else:
            cast("Any", holder)[where[-1]] = described(error.instance)
        return True

    def _declare(
        self, rules: dict[str, Any], where: Path, names: list[str], instance: dict[str, Any]
    ) -> None:
        keyword = str(where[-1])
        rest = rules.get(keyword)
        if rest is True:
            return
        properties = rules.setdefault("properties", {})
        added = self._added.setdefault(tuple(where), [])
        # Other parts may declare the property for other values.
        is_alone = keyword == "additionalProperties" or not _has_parts(rules)
        for name in names:
            if name in properties:
                take_type(properties[name], instance[name])
            elif len(added) < MAX_NEW_KEYS:
                added.append(name)
                own = described(instance[name])
                if isinstance(rest, dict):
                    own = {"anyOf": [copy.deepcopy(cast("dict[str, Any]", rest)), own]}
                properties[name] = own if is_alone else {}
            else:
                rules[keyword] = True
                for one in added:
                    properties.pop(one, None)
                if not properties and "properties" not in (at(self._first, where[:-1]) or ()):
                    del rules["properties"]
                return

    def _declare_stripped(self, path: str) -> None:
        """A property that was allowed and dropped: declared without a rule, so none is refused."""
        told = place_in(self._value, path)
        if not self._is_meant(told, "additionalProperties"):
            return
        *parts, name = parts_of(path)
        node = self._object_at(parts)
        if node is None:
            reason = "the object is described in more than one way"
            self._doubtful.add(Unsolved(told, "additionalProperties", reason))
        else:
            node.setdefault("properties", {}).setdefault(name, {})

    def _object_at(self, parts: list[str]) -> dict[str, Any] | None:
        """The one schema of an object that stands at a place; None if there are several."""
        value, places = self._value, Places(self.document)
        node = self._resolved(self.document, value, places)
        for part in parts:
            if node is None:
                return None
            if isinstance(value, list):
                index, first = int(part), cast("list[Any]", node.get("prefixItems", []))
                value = cast("list[Any]", value)[index]
                child: Any = first[index] if index < len(first) else node.get("items")
            else:
                known = cast("dict[str, Any]", node.get("properties", {}))
                value = cast("dict[str, Any]", value)[part]
                child = known[part] if part in known else node.get("additionalProperties")
            node = self._resolved(child, value, places)
        return node

    def _resolved(self, node: Any, value: Any, places: Places) -> dict[str, Any] | None:
        outliner = Outliner(self.document, places)
        for _ in range(_MAX_STEPS):
            if not isinstance(node, dict):
                return None
            rules = cast("dict[str, Any]", node)
            unions = [keyword for keyword in _UNIONS if keyword in rules]
            if isinstance(rules.get("$ref"), str):
                node = places.target(rules["$ref"])
            elif "allOf" in rules or len(unions) > 1 or (unions and "properties" in rules):
                return None
            elif unions:
                forms = [one for one in rules[unions[0]] if outliner.of(one).has(value)]
                node = forms[0] if len(forms) == 1 else None
            else:
                return rules
        return None

    # -- choices -----------------------------------------------------------------------------

    def _may_add(self, where: Path, item: Any) -> bool:
        added = self._added.setdefault(tuple(where), [])
        if len(added) >= MAX_NEW_CHOICES:
            return False
        added.append(item)
        return True

    def _choose(self, rules: dict[str, Any], where: Path, value: Any) -> None:
        if "const" in rules:
            rules["enum"] = [rules.pop("const")]
            where = [*where[:-1], "enum"]
        options: Any = rules.get("enum")
        if not isinstance(options, list):  # Let go of for an earlier value.
            take_type(rules, value)
            return
        choices = cast("list[Any]", options)
        if any(same(option, value) for option in choices):
            return
        if _is_small(value) and self._may_add(where, value):
            choices.append(value)
            return
        del rules["enum"]
        if "type" not in rules:
            rules["type"] = type_of(choices[0]) if choices else type_of(value)
        for item in (*choices, value):
            take_type(rules, item)

    # -- unions ------------------------------------------------------------------------------

    def _join(self, rules: dict[str, Any], where: Path, error: Any) -> None:
        """Widen the branch that fits a value best, or add one where none is like it."""
        forms: list[list[Any]] = error.kind.as_dict()["context"]
        keyword = str(where[-1])
        if keyword == "oneOf" and not all(forms):
            as_any_of(rules)
        if keyword not in rules:  # Let go of, now or for an earlier value.
            return
        union = Union(error.instance, self._bounds.outlines(where))
        if union.tag is not None and self._is_hidden(union.value[union.tag]):
            return
        if union.is_new and self._add_branch(rules, where, union):
            return
        alike = [index for index in union.alike if self._is_open(forms[index])]
        if alike:
            best = min(alike, key=lambda index: union.fit(index, forms[index], self._is_hidden))
            inner = [one for one in forms[best] if self._meant_names(one, code_of(one))]
            for one in inner or forms[best]:
                self._meet(one, is_forced=not inner)
        elif union.alike and keyword == "oneOf":
            as_any_of(rules)
        else:
            self._add_branch(rules, where, union)

    def _is_open(self, form: list[Any]) -> bool:
        """True if all that a value breaks of a branch may be widened."""
        paths = [self._bounds.places.path_of(error, self._value) for error in form]
        return all(path is not None and self._bounds.refusal(path) is None for path in paths)

    def _add_branch(self, rules: dict[str, Any], where: Path, union: Union) -> bool:
        """Add a branch for a value; False if enough were added."""
        keyword, value = str(where[-1]), union.value
        branches: list[Any] = rules[keyword]
        is_choice = union.is_listed and _is_small(value)
        branch = {"const": value} if is_choice else union.new_branch(self._is_hidden)
        if any(same(branch, one) for one in branches):
            return True
        if is_choice and not self._may_add(where, branch):
            branches = self._without_added(rules, where)
            branch, is_choice = described(value), False
        elif not is_choice:
            new = (where, union.form)
            if any(same([*new], [*one]) for one in self._joined):
                return True  # What the new branch lacks for this value, the next round tells.
            if union.is_crowd and not self._may_add(where, branch):
                self._without_added(rules, where)
                return False
            self._joined.append(new)
        branches.append(branch)
        return True

    def _without_added(self, rules: dict[str, Any], where: Path) -> list[Any]:
        """The branches of a union without the new ones: there are too many for forms."""
        added, keyword = self._added[tuple(where)], str(where[-1])
        rules[keyword] = [one for one in rules[keyword] if not any(one is new for new in added)]
        return rules[keyword]


def _is_small(value: Any) -> bool:
    return json_type(value) not in {"object", "array"} and len(str(value)) <= _MAX_CHOICE


def _has_parts(rules: dict[str, Any]) -> bool:
    return bool(in_place(rules)) or "$ref" in rules or "$dynamicRef" in rules


def _never(_value: Any) -> bool:
    return False
