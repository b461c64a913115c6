"""The smallest change of a schema that lets given values pass.

Each rule that a value breaks is widened where it stands in the schema, by no more than the value
asks for; what was accepted before stays accepted. Nothing here knows records, tools or policies.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, cast

from callpact import schema as schemas
from callpact.audit.patching import Patch, Unsolved, difference, same
from callpact.audit.widening_rules import (
    DEPENDENT,
    EXCLUSIVE,
    LEAST,
    MOST,
    described,
    let_miss,
    take_bound,
    take_type,
    type_of,
)
from callpact.errors import InvalidSchema, Issue
from callpact.schema import CompiledSchema, compile_schema
from callpact.schema.document import Document, pointer, resolve
from callpact.schema.issues import json_type

MAX_ROUNDS = 24
"""How often a schema is widened and tried again: what is behind a first violation shows later."""
MAX_WIDENED = 2_000
"""Values that one change of a schema is made for."""
MAX_NEW_CHOICES = 10
"""Values that are added to an `enum`; what would need more of them gets none."""
MAX_NEW_KEYS = 20
"""Properties that are declared anew in one object; beyond, others are allowed altogether."""
_FIRST_TAKEN = 10
_ALIKE = 5
_MAX_CHOICE = 100
_MAX_ERRORS = 200

_INDEX = re.compile(r"/\d+(?=/|$)")
_INVERTING = ("not", "if", "oneOf", "contains")
_ABOUT_KEYS = ("additionalProperties", "unevaluatedProperties")
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs")
_UNLIKE = ("anyOf", "oneOf", "propertyNames")
_UNIONS = ("anyOf", "oneOf")

Path = list[str | int]


def place(path: str) -> str:
    """A JSON Pointer with `*` for the indexes of arrays."""
    return _INDEX.sub("/*", path)


def widen(
    schema: object,
    values: Iterable[Any],
    *,
    formats: bool = False,
    declare: bool = False,
    meant: frozenset[tuple[str, str]] | None = None,
    is_hidden: Callable[[Any], bool] | None = None,
) -> Patch:
    """The smallest change of a schema with which it accepts values, `MAX_WIDENED` of them at most.

    `declare=True` also declares the properties that fitting a value would strip. `meant` names the
    places and rules to meet, if not all; `is_hidden(value)` tells values that are not what came.

    Raises:
        InvalidSchema: the schema itself cannot be used.
    """
    compiled = compile_schema(schema, formats=formats)
    before = copy.deepcopy(compiled.document)
    widener = _Widener(before, meant, is_hidden)
    left = [value for value, _ in zip(values, range(MAX_WIDENED), strict=False)]
    # What some values ask for lets most others pass, so these need not be explained one by one.
    size = _FIRST_TAKEN
    for _ in range(MAX_ROUNDS):
        left = [value for value in left if not _settled(compiled, value, declare=declare)]
        if not left:
            break
        if widener.meet_all(compiled, left[:size], declare=declare):
            compiled = compile_schema(widener.document, formats=formats)
        else:
            left = left[size:]
        size *= 2
    after = widener.document
    unsolved = tuple(sorted(widener.unsolved))
    return Patch(before, after, difference(before, after), unsolved)


def _settled(compiled: CompiledSchema, value: Any, *, declare: bool) -> bool:
    try:
        if not compiled.accepts(value):
            return False
    except ValueError:
        return False
    return not declare or not stripped(compiled, value)


def stripped(compiled: CompiledSchema, value: Any) -> list[str]:
    """The places of what fitting would strip from a value: what the schema does not declare."""
    fitted = schemas.fit(compiled, value)
    return [change.path for change in fitted.changes if change.action == "stripped"]


def signature(errors: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    """The places and rules of violations, each once; empty where they do not tell the issues."""
    found: dict[tuple[str, str], None] = {}
    for error in errors:
        if isinstance(error, Issue) or error.kind.name in _UNLIKE:
            return ()
        found.update(dict.fromkeys(_keys_of(error)))
    return tuple(found)


def thinned(errors: Sequence[Any]) -> list[Any]:
    """Violations without most of those that others tell, too: of the same rule at the same place."""
    kept: list[Any] = []
    counts: dict[tuple[tuple[str, str], ...], int] = {}
    for error in errors:
        key = () if isinstance(error, Issue) else _keys_of(error)
        counts[key] = counts.get(key, 0) + 1
        if not key or counts[key] <= _ALIKE:
            kept.append(error)
    return kept


def _keys_of(error: Any) -> tuple[tuple[str, str], ...]:
    code = str(error.kind.name)
    path, rule = "".join(map(_segment, error.instance_path)), _rule(error, code)
    return tuple((path + _step(name), rule) for name in _names(error, code))


@lru_cache(4096)
def _segment(part: str | int) -> str:
    """A step of a pointer, as `place` writes it."""
    return place(pointer((part,)))


class _Widener:
    def __init__(
        self,
        document: Document,
        meant: frozenset[tuple[str, str]] | None,
        is_hidden: Callable[[Any], bool] | None,
    ) -> None:
        self.document: Any = copy.deepcopy(document)
        self.unsolved: set[Unsolved] = set()
        self._meant = meant
        self._is_hidden = is_hidden or _never
        self._inverted: list[Path] = []
        self._added: dict[tuple[str | int, ...], int] = {}

    def meet_all(self, compiled: CompiledSchema, values: Sequence[Any], *, declare: bool) -> bool:
        """Widen for each violation of each value; False if nothing could be done."""
        was = copy.deepcopy(self.document)
        self._inverted = _inverted_targets(was)
        for value in values:
            errors = compiled.errors(value)[:_MAX_ERRORS]
            for error in errors:
                self._meet(error)
            if declare and not errors:
                for path in stripped(compiled, value):
                    self._declare_stripped(path)
        if same(was, self.document):
            return False
        try:
            compile_schema(self.document)
        except InvalidSchema as error:
            self.document = was
            self.unsolved.add(Unsolved("", "schema", f"the widened schema is not one: {error}"))
            return False
        return True

    def _meet(self, error: Any) -> None:
        if isinstance(error, Issue):
            reason = "the value can be judged only as a whole"
            self.unsolved.add(Unsolved(place(error.path), error.code, reason))
            return
        code, path = str(error.kind.name), place(pointer(error.instance_path))
        if self._is_hidden(error.instance):
            return
        meant = [
            name
            for name in _names(error, code)
            if self._is_meant(path + _step(name), _rule(error, code))
        ]
        if not meant:
            return
        where: Path = list(error.schema_path)
        reason = self._refusal(where)
        if reason is None and not self._widened(error, code, where, meant):
            reason = "no wider rule is known"
        if reason is not None:
            self.unsolved.add(Unsolved(path, code, reason))

    def _is_meant(self, path: str, rule: str) -> bool:
        if self._meant is None or (path, rule) in self._meant:
            return True
        if rule in _ABOUT_KEYS and (path.rpartition("/")[0], rule) in self._meant:
            return True
        # What a union is told for may be the rule of one of its forms, at a place inside.
        return rule in _UNIONS and any(
            inner == path or inner.startswith(path + "/") for inner, _ in self._meant
        )

    def _refusal(self, where: Path) -> str | None:
        """Why a place must not be widened: it also serves where more would then be refused."""
        if any(part in _INVERTING for part in where[:-1] if isinstance(part, str)):
            # A property may have such a name; then the part before it says so.
            pairs = zip(["", *where], where[:-1], strict=False)
            if any(b in _INVERTING and a not in {"properties", "$defs"} for a, b in pairs):
                return "it stands where widening would refuse other values"
        for target in self._inverted:
            if where[: len(target)] == target:
                return "it is shared with a place where widening would refuse other values"
        return None

    def _widened(self, error: Any, code: str, where: Path, names: list[str | None]) -> bool:
        if code == "falseSchema":
            return self._opened(where, error)
        node = _at(self.document, where[:-1])
        if not isinstance(node, dict) or not where:
            return False
        rules, keyword = cast("dict[str, Any]", node), str(where[-1])
        if code == "type":
            take_type(rules, error.instance)
        elif code == "required":
            let_miss(rules, keyword, cast("str", names[0]), error.instance)
        elif code in _ABOUT_KEYS:
            self._declare(rules, where, cast("list[str]", names), error.instance)
        elif code in {"enum", "const"}:
            self._choose(rules, where, error.instance)
        elif code in _UNIONS:
            self._join(rules, where, error)
        elif code in {"minimum", "maximum", *EXCLUSIVE, *LEAST, *MOST}:
            take_bound(rules, code, error.instance)
        elif code == "propertyNames":
            last = max(i for i, part in enumerate(where) if part == "propertyNames")
            _at(self.document, where[:last]).pop("propertyNames", None)
        elif code == "additionalItems":
            rules[keyword] = True
        elif code == "contains" and "unevaluatedItems" in json.dumps(self.document):
            return False
        else:
            rules.pop(keyword, None)
        return True

    # -- keys --------------------------------------------------------------------------------

    def _declare(
        self, rules: dict[str, Any], where: Path, names: list[str], instance: dict[str, Any]
    ) -> None:
        keyword = str(where[-1])
        if rules.get(keyword) is not False:
            return
        properties = rules.setdefault("properties", {})
        for name in names:
            if name in properties:
                take_type(properties[name], instance[name])
            elif self._may_add(where, MAX_NEW_KEYS):
                properties[name] = described(instance[name])
            else:
                rules[keyword] = True
                return

    def _declare_stripped(self, path: str) -> None:
        """A property that was allowed and dropped: declared without a rule, so none is refused."""
        if not self._is_meant(place(path), "additionalProperties"):
            return
        *parts, name = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
        node = _object_at(self.document, parts)
        if node is None:
            reason = "the object is described in more than one way"
            self.unsolved.add(Unsolved(place(path), "additionalProperties", reason))
        else:
            node.setdefault("properties", {}).setdefault(name, {})

    def _may_add(self, where: Path, most: int) -> bool:
        count = self._added[tuple(where)] = self._added.get(tuple(where), 0) + 1
        return count <= most

    # -- choices -----------------------------------------------------------------------------

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
        is_small = json_type(value) not in {"object", "array"} and len(str(value)) <= _MAX_CHOICE
        if is_small and self._may_add(where, MAX_NEW_CHOICES):
            choices.append(value)
            return
        del rules["enum"]
        if "type" not in rules:
            rules["type"] = type_of(choices[0]) if choices else type_of(value)
        for item in (*choices, value):
            take_type(rules, item)

    def _join(self, rules: dict[str, Any], where: Path, error: Any) -> None:
        if where[-1] == "oneOf":
            # What fits one form only also fits any form; and no form need shut out the others.
            branches = rules.pop("oneOf", None)
            if branches is None:
                return
            if "anyOf" in rules:
                rules.setdefault("allOf", []).append({"anyOf": branches})
            else:
                rules["anyOf"] = branches
            return
        forms: list[list[Any]] = error.kind.as_dict()["context"]
        depth = len(error.instance_path)
        near = [form for form in forms if not any(_is_other(e, depth) for e in form)]
        if near:
            for inner in min(near, key=len):
                self._meet(inner)
            return
        new, branches = described(error.instance), rules["anyOf"]
        if not any(same(new, branch) for branch in branches):
            branches.append(new)

    def _opened(self, where: Path, error: Any) -> bool:
        """Where nothing was allowed, allow what came."""
        holder: Any = _at(self.document, where[:-1])
        if not where or not isinstance(holder, dict | list):
            return False
        if where[-1] in _ABOUT_KEYS:
            # Of an object that declares nothing the validator names no key; the next round does.
            cast("dict[str, Any]", holder).setdefault("properties", {})
            return True
        held = cast("Any", holder)[where[-1]]
        if isinstance(held, dict):
            take_type(cast("dict[str, Any]", held), error.instance)
        else:
            cast("Any", holder)[where[-1]] = described(error.instance)
        return True


def _never(_value: Any) -> bool:
    return False


def _names(error: Any, code: str) -> list[str | None]:
    """The keys that a violation is about; None for the value itself."""
    if code == "required":
        return [str(error.kind.property)]
    if code in _ABOUT_KEYS:
        return list(error.kind.as_dict()["unexpected"])
    return [None]


def _step(name: str | None) -> str:
    return "" if name is None else pointer([name])


def _rule(error: Any, code: str) -> str:
    """The code that an issue of this violation has."""
    keyword = str(error.schema_path[-1]) if error.schema_path else code
    if code == "falseSchema":
        parts = [part for part in error.schema_path if isinstance(part, str)]
        is_named = len(error.schema_path) > 1 and error.schema_path[-2] in _NAMED
        return str(error.schema_path[-2]) if is_named else parts[-1] if parts else "false"
    is_keyword = code == "contains" or (code == "required" and keyword in DEPENDENT)
    return keyword if is_keyword else code


def _is_other(error: Any, depth: int) -> bool:
    """True if a form is of another kind altogether: by its type, or by the constant that tells it."""
    code, at = error.kind.name, len(error.instance_path)
    return (code == "type" and at == depth) or (code in {"const", "enum"} and at <= depth + 1)


# --- places ---------------------------------------------------------------------------------


def _at(document: Any, path: Path) -> Any:
    node = document
    for part in path:
        try:
            node = node[part]
        except (LookupError, TypeError):
            return None
    return node


def _object_at(document: Any, parts: list[str]) -> dict[str, Any] | None:
    """The one schema of an object that stands at a place of a value; None if there are several."""
    node = _resolved(document, document)
    for part in parts:
        if node is None:
            return None
        properties = node.get("properties")
        if isinstance(properties, dict) and part in properties:
            child = cast("Any", properties[part])
        elif part.isdigit():
            child = node.get("items")
        else:
            child = node.get("additionalProperties")
        node = _resolved(document, child)
    return node


def _resolved(document: Any, node: Any) -> dict[str, Any] | None:
    for _ in range(MAX_ROUNDS):
        if not isinstance(node, dict):
            return None
        rules = cast("dict[str, Any]", node)
        reference = rules.get("$ref")
        if not isinstance(reference, str):
            is_plain = not any(key in rules for key in ("anyOf", "oneOf", "allOf", "prefixItems"))
            return rules if is_plain else None
        node = resolve(document, reference)
    return None


def _inverted_targets(document: Any) -> list[Path]:
    """The places that are referred to from where a wider rule refuses more, as paths."""
    found: list[str] = []
    stack: list[tuple[Any, bool]] = [(document, False)]
    while stack:
        node, is_inverted = stack.pop()
        if isinstance(node, list):
            stack.extend((item, is_inverted) for item in cast("list[Any]", node))
        elif isinstance(node, dict):
            rules = cast("dict[str, Any]", node)
            reference = rules.get("$ref", rules.get("$dynamicRef"))
            if is_inverted and isinstance(reference, str) and reference not in found:
                found.append(reference)
                stack.append((resolve(document, reference), True))
            stack.extend((item, is_inverted or key in _INVERTING) for key, item in rules.items())
    return [_target_path(reference) for reference in found]


def _target_path(reference: str) -> Path:
    # What is named otherwise than by its place may be anywhere.
    if not reference.startswith("#/"):
        return []
    parts = reference[2:].split("/")
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]
