"""The smallest edits of a JSON Schema with which it accepts given values, as a JSON Patch.

Edits change independent rules: `type`, bounds, lengths, `pattern`, `format`, `enum`, `const`,
`required`, and undeclared keys. Each edit accepts more values and refuses no accepted one. Unions
(`anyOf`, `oneOf`, `allOf`, `if`, `not`, …), and schemas that they share with other places by
`$ref`, are left as they are and reported; only `anyOf: [X, null]` counts as a nullable X. Nothing
here knows records, tools or policies.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeGuard

from msgspec import UNSET, Struct, UnsetType

from callpact import schema as schemas
from callpact.errors import InvalidSchema, Issue
from callpact.schema import (
    CompiledSchema,
    compile_schema,
    is_array,
    is_object,
)
from callpact.schema.document import (
    Document,
    in_place,
    pointer,
)
from callpact.schema.drafts import (
    draft_of,
)
from callpact.schema.issues.explain import explain, json_type
from callpact.schema.json_text import json_text
from callpact.schema.targets import resolve

MAX_EDITED = 2_000
"""Values that one change of a schema is made for."""
MAX_NEW_CHOICES = 10
"""Values that are added to an `enum`; with more, the `enum` is replaced by its type."""
MAX_NEW_KEYS = 20
"""Properties that are newly declared in one object; with more, any property is allowed."""

_FIRST_TAKEN = 10
_MAX_ROUNDS = 24
_MAX_REPORTED = 10
_MAX_ERRORS = 200
_MAX_CHOICE = 100

_NULL = {"type": "null"}
_CONTAINERS = ("object", "array")
_UNIONS = frozenset(
    {"anyOf", "oneOf", "allOf", "not", "if", "then", "else", "contains", "propertyNames"}
    | {"dependentSchemas", "dependencies", "unevaluatedItems", "unevaluatedProperties"}
)
_NAMED = ("properties", "patternProperties", "dependentSchemas", "dependencies")
_HELD = ("items", "prefixItems", "additionalItems", "additionalProperties", *_UNIONS)
_ELSEWHERE = ("$dynamicRef", "$recursiveRef", "$id", "id")
_UNDECLARED = ("additionalProperties", "unevaluatedProperties")
_EXCLUSIVE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_SCALAR_RULES = {
    "number": ("minimum", "maximum", *_EXCLUSIVE, "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format", "formatMinimum", "formatMaximum"),
    "array": ("minItems", "maxItems", "uniqueItems"),
    "object": ("minProperties", "maxProperties"),
}
_SIZES = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_LIMITS = ("minimum", "maximum", "formatMinimum", "formatMaximum")

_IN_UNION = "no change of a union, or of what a union shares, is proposed"
_NO_EDIT = "no change of this rule is proposed"


class PatchOperation(Struct, frozen=True, omit_defaults=True):
    """One step of a JSON Patch (RFC 6902)."""

    op: Literal["add", "remove", "replace"]
    path: str
    value: Any | UnsetType = UNSET


class Unsolved(Struct, frozen=True, order=True):
    """A broken rule that is not edited, and the reason."""

    path: str
    rule: str
    reason: str


class Patch(Struct, frozen=True):
    """A change of a schema: the document before and after it."""

    before: Document
    after: Document
    unsolved: tuple[Unsolved, ...] = ()

    @property
    def operations(self) -> tuple[PatchOperation, ...]:
        """The steps of the change, in the order of the documents."""
        return tuple(_difference(self.before, self.after, ""))

    @property
    def words(self) -> str:
        """The change in one line: each place with its former and its new rule."""
        return "; ".join(worded(self.before, step) for step in self.operations)

    @property
    def diff(self) -> str:
        """The change as a unified diff of the indented documents; empty if there is none."""
        old, new = (
            f"{json.dumps(document, indent=2, ensure_ascii=False)}\n".splitlines(keepends=True)
            for document in (self.before, self.after)
        )
        return "".join(difflib.unified_diff(old, new, "schema", "schema (patched)", n=2))


def propose_edits(
    schema: object,
    values: Iterable[Any],
    *,
    formats: bool = False,
    declare: bool = False,
    only: frozenset[tuple[str, str]] | None = None,
    is_hidden: Callable[[Any], bool] | None = None,
    keeps_types: bool = False,
) -> Patch:
    """The smallest change of a schema that accepts values, of which `MAX_EDITED` are read at most.

    `declare=True` also declares the properties that fitting a value would strip. `only` restricts
    the edits to these places and rules; values for which `is_hidden` is true need no edit. With
    `keeps_types`, a type is widened only to null, and `integer` to `number`.

    Raises:
        InvalidSchema: the schema itself cannot be used.
    """
    first = compile_schema(schema, formats=formats)
    editor = _Editor(
        first.document,
        formats=formats,
        only=only,
        is_hidden=is_hidden,
        keeps_types=keeps_types,
    )
    compiled, good = first, first.document
    left = [value for value, _ in zip(values, range(MAX_EDITED), strict=False)]
    failed: list[Any] = []
    # The edits for some values accept most others, so these need not be walked one by one.
    size = _FIRST_TAKEN
    for _ in range(_MAX_ROUNDS):
        left = [value for value in left if not _settled(compiled, value, declare=declare)]
        if not left:
            break
        for value in left[:size]:
            editor.meet(value, stripped(compiled, value) if declare else ())
        if editor.document == good:
            failed, left = [*failed, *left[:size]], left[size:]
        else:
            try:
                compiled = compile_schema(editor.document, formats=formats)
            except InvalidSchema:  # A value exceeds a limit of schemas.
                break
            good = json.loads(json.dumps(editor.document))
        size *= 2
    refused = [
        value for value in (*failed, *left) if not _settled(compiled, value, declare=declare)
    ]
    unsolved = {
        one
        for value in refused[:_MAX_REPORTED]
        for one in editor.unsolved(compiled, value, declare=declare)
    }
    return Patch(first.document, good, tuple(sorted(unsolved)))


def stripped(compiled: CompiledSchema, value: Any) -> list[str]:
    """The places of a value that fitting would strip because the schema does not declare them."""
    fitted = schemas.fit(compiled, value)
    return [change.path for change in fitted.changes if change.action == "stripped"]


def place_in(value: Any, path: str) -> str:
    """A JSON Pointer into a value with `*` for the indexes of arrays; keys of digits stay."""
    place = ""
    for part in path.split("/")[1:]:
        if is_array(value):
            place += "/*"
            is_there = part.isdecimal() and int(part) < len(value)
            value = value[int(part)] if is_there else None
        else:
            place += f"/{part}"
            name = part.replace("~1", "/").replace("~0", "~")
            value = value.get(name) if is_object(value) else None
    return place


def target_of(document: Document, rules: dict[str, Any]) -> Any:
    """The schema that a local `$ref` refers to; None without one."""
    reference = rules.get("$ref")
    return resolve(document, reference) if isinstance(reference, str) else None


def nullable_of(rules: dict[str, Any]) -> Any:
    """The X of `anyOf: [X, null]`; None for any other schema."""
    forms: Any = rules.get("anyOf")
    if not is_array(forms) or len(forms) != len((_NULL, "X")) or _NULL not in forms:
        return None
    return forms[1 - forms.index(_NULL)]


class _Editor:
    """A schema while it is edited, in place."""

    def __init__(
        self,
        document: Document,
        *,
        formats: bool,
        only: frozenset[tuple[str, str]] | None,
        is_hidden: Callable[[Any], bool] | None,
        keeps_types: bool,
    ) -> None:
        self.document: Any = json.loads(json.dumps(document))
        self._formats = formats
        self._keeps_types = keeps_types
        self._only = only
        self._is_hidden = is_hidden or _never
        self._is_old = draft_of(document).has_lone_references
        self._in_unions = _ids_in_unions(self.document)
        self._checks: dict[str, CompiledSchema] = {}
        self._choices: dict[int, int] = {}
        self._keys: dict[int, list[str]] = {}

    def meet(self, value: Any, stripped_at: Iterable[str] = ()) -> None:
        """Edit each rule that a value breaks, and declare the keys at these places."""
        dropped = frozenset(stripped_at)
        stack: list[tuple[Any, Any, str, str]] = [(self.document, value, "", "")]
        while stack:
            node, inner, place, path = stack.pop()
            if self._is_hidden(inner):
                continue
            every = self._applying(node, inner)
            for rules in every:
                if self._in_unions is not None and id(rules) not in self._in_unions:
                    self._edit(rules, inner, place)
            if is_object(inner) and dropped:
                keys = [key for key in inner if path + pointer([key]) in dropped]
                self._declare(
                    every, [k for k in keys if self._may_declare(place, k, _UNDECLARED[0])]
                )
            for rules in every:
                for child, part, item in self._children(rules, inner):
                    step = "/*" if is_array(inner) else pointer([part])
                    stack.append((child, item, place + step, path + pointer([part])))

    def _applying(self, node: Any, value: Any) -> list[dict[str, Any]]:
        """The schemas that apply to a value at one place, through references and nullables."""
        found: list[dict[str, Any]] = []
        nodes, seen = [node], set[int]()
        while nodes:
            rules = nodes.pop()
            if not is_object(rules) or id(rules) in seen:
                continue
            seen.add(id(rules))
            nodes.append(target_of(self.document, rules))
            if "$ref" not in rules or not self._is_old:
                found.append(rules)
                nodes.append(None if value is None else nullable_of(rules))
        return found

    def _children(self, rules: dict[str, Any], value: Any) -> Iterator[tuple[Any, str | int, Any]]:
        """The schema of each member or item of a value, with its key and itself."""
        if is_object(value):
            declared: dict[str, Any] = rules.get("properties") or {}
            for key, item in value.items():
                matching = self._matching(rules, key)
                if key in declared:
                    yield declared[key], key, item
                yield from ((child, key, item) for child in matching)
                if key not in declared and not matching:
                    yield rules.get("additionalProperties"), key, item
        elif is_array(value):
            first, rest = rules.get("prefixItems", []), rules.get("items")
            if is_array(rest):
                first, rest = rest, rules.get("additionalItems")
            for index, item in enumerate(value):
                yield first[index] if index < len(first) else rest, index, item

    def _matching(self, rules: dict[str, Any], key: str) -> list[Any]:
        patterns: dict[str, Any] = rules.get("patternProperties") or {}
        return [
            child for text, child in patterns.items() if not self._is_broken({"pattern": text}, key)
        ]

    def _may(self, place: str, rule: str) -> bool:
        return self._only is None or (place, rule) in self._only

    def _may_declare(self, place: str, key: str, rule: str) -> bool:
        """True if a key may be declared; an issue names the key, or only its object."""
        return self._may(place + pointer([key]), rule) or self._may(place, rule)

    # -- rules -------------------------------------------------------------------------------

    def _is_broken(self, rules: dict[str, Any], value: Any) -> bool:
        own = dict(rules)
        if is_object(self.document) and "$schema" in self.document:
            own["$schema"] = self.document["$schema"]
        text = json_text(own)
        check = self._checks.get(text)
        if check is None:
            check = self._checks[text] = compile_schema(own, formats=self._formats)
        try:
            return not check.accepts(value)
        except ValueError:
            return False

    def _edit(self, rules: dict[str, Any], value: Any, place: str) -> None:
        for keyword in ("const", "enum", *_SCALAR_RULES.get(json_type(value), ())):
            is_meant = keyword in rules and self._may(place, keyword)
            if is_meant and self._is_broken(_rule(rules, keyword), value):
                if keyword in {"const", "enum"}:
                    self._choose(rules, keyword, value)
                else:
                    _loosen(rules, keyword, value)
        if "type" in rules and self._may(place, "type") and self._may_widen(rules["type"], value):
            rules["type"] = _with_type(rules["type"], value)
        if is_object(value):
            self._edit_keys(rules, value, place)

    def _may_widen(self, declared: str | list[str], value: Any) -> bool:
        is_number = json_type(value) == "number" and "integer" in declared
        return not self._keeps_types or value is None or is_number

    def _edit_keys(self, rules: dict[str, Any], value: dict[str, Any], place: str) -> None:
        needed: Any = rules.get("required")
        if is_array(needed):
            missing = [key for key in needed if key not in value]
            gone = {key for key in missing if self._may(place + pointer([key]), "required")}
            rules["required"] = [key for key in needed if key not in gone]
            if gone and not rules["required"]:
                del rules["required"]
        for keyword in _UNDECLARED:
            if rules.get(keyword) is False and (keyword == _UNDECLARED[0] or _is_alone(rules)):
                known: dict[str, Any] = rules.get("properties") or {}
                keys = [key for key in value if key not in known and not self._matching(rules, key)]
                new = [key for key in keys if self._may_declare(place, key, keyword)]
                self._allow(rules, keyword, {key: value[key] for key in new})

    def _choose(self, rules: dict[str, Any], keyword: str, value: Any) -> None:
        if keyword == "const":
            rules["enum"] = [rules.pop("const")]
        choices: list[Any] = rules["enum"]
        count = self._choices[id(rules)] = self._choices.get(id(rules), 0) + 1
        is_small = json_type(value) not in _CONTAINERS and len(str(value)) <= _MAX_CHOICE
        if is_small and count <= MAX_NEW_CHOICES:
            choices.append(value)
            return
        del rules["enum"]
        kinds = rules.get("type", [])
        for each in (value,) if "type" in rules else (*choices, value):
            kinds = _with_type(kinds, each)
        rules["type"] = kinds

    def _allow(self, rules: dict[str, Any], keyword: str, new: dict[str, Any]) -> None:
        """Declare undeclared members with their types; with too many, allow all others."""
        if not new:
            return
        added = self._keys.setdefault(id(rules), [])
        if len(added) + len(new) > MAX_NEW_KEYS:
            rules[keyword] = True
            for key in added:
                del rules["properties"][key]
            return
        added += new
        declared = rules.setdefault("properties", {})
        for key, item in new.items():
            declared[key] = {} if self._is_hidden(item) else {"type": _type_of(item)}

    def _declare(self, every: list[dict[str, Any]], keys: list[str]) -> None:
        """Declare stripped keys without a rule, so that no value is refused."""
        is_plain = all(_is_plain(rules) for rules in every)
        if not keys or not every or not is_plain or self._in_unions is None:
            return
        rules = next((one for one in every if "properties" in one), every[-1])
        added = self._keys.setdefault(id(rules), [])
        if id(rules) not in self._in_unions and len(added) + len(keys) <= MAX_NEW_KEYS:
            added += keys
            rules.setdefault("properties", {}).update({key: {} for key in keys})

    # -- unsolved rules ----------------------------------------------------------------------

    def unsolved(
        self, compiled: CompiledSchema, value: Any, *, declare: bool
    ) -> Iterator[Unsolved]:
        """The rules that a value still breaks, and why they were left."""
        errors: list[Any] = compiled.errors(value)[:_MAX_ERRORS]
        for error in errors:
            if not isinstance(error, Issue) and self._is_hidden(error.instance):
                continue
            for issue in explain(compiled, [error]):
                above = issue.path.rpartition("/")[0]
                place = place_in(value, issue.path)
                if self._may(place, issue.code) or self._may(place_in(value, above), issue.code):
                    yield Unsolved(place, issue.code, self._reason(error))
        if declare and not errors:
            for path in stripped(compiled, value):
                yield Unsolved(place_in(value, path), _UNDECLARED[0], _NO_EDIT)

    def _reason(self, error: Any) -> str:
        if isinstance(error, Issue):
            return _NO_EDIT
        node: Any = self.document
        for part in error.schema_path[:-1]:
            is_there = part in node if is_object(node) else is_array(node) and part < len(node)
            node = node[part] if is_there else None
        is_union = error.kind.name in _UNIONS or self._in_unions is None
        return _IN_UNION if is_union or id(node) in (self._in_unions or ()) else _NO_EDIT


def _ids_in_unions(document: Any) -> set[int] | None:
    """The ids of all schemas that unions hold or refer to; None if a reference is not local."""
    found: set[int] = set()
    seen: set[tuple[int, bool]] = set()
    stack: list[tuple[Any, bool]] = [(document, False)]
    while stack:
        node, is_inside = stack.pop()
        if is_array(node):
            stack += [(item, is_inside) for item in node]
        if not is_object(node) or (id(node), is_inside) in seen:
            continue
        seen.add((id(node), is_inside))
        if is_inside:
            found.add(id(node))
        if "$ref" in node:
            target = target_of(document, node)
            if target is None:
                return None
            stack.append((target, is_inside))
        if node is not document and any(isinstance(node.get(word), str) for word in _ELSEWHERE):
            return None
        for key in (*_NAMED, *_HELD):
            is_union = key in _UNIONS and (key != "anyOf" or nullable_of(node) is None)
            held = node.get(key)
            parts = held.values() if key in _NAMED and is_object(held) else [held]
            stack += [(part, is_inside or is_union) for part in parts]
    return found


def _never(_value: Any) -> bool:
    return False


def _type_of(value: Any) -> str:
    """The type of a value; `integer` for a whole number."""
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0
    return "integer" if is_whole else json_type(value)


def _with_type(declared: str | list[str], value: Any) -> str | list[str]:
    """The declared types together with that of a value."""
    types = [*declared] if is_array(declared) else [str(declared)]
    new = _type_of(value)
    if new in types or (new == "integer" and "number" in types):
        return declared
    if new == "number" and "integer" in types:
        types[types.index("integer")] = new
    else:
        types.append(new)
    return types if len(types) > 1 or (is_array(declared) and declared) else types[0]


def _rule(rules: dict[str, Any], keyword: str) -> dict[str, Any]:
    """One keyword alone; in draft 4 an exclusive bound is the bound and a mark beside it."""
    own = {keyword: rules[keyword]}
    if isinstance(rules[keyword], bool) and keyword in _EXCLUSIVE:
        own[_EXCLUSIVE[keyword]] = rules[_EXCLUSIVE[keyword]]
    return own


def _loosen(rules: dict[str, Any], keyword: str, value: Any) -> None:
    """Move a bound to a value; remove a rule that has no bound."""
    if keyword in _SIZES and len(value):
        rules[keyword] = len(value)
    elif keyword in _LIMITS:
        rules[keyword] = value
    else:
        del rules[keyword]
        if keyword in _EXCLUSIVE:  # Values within the exclusive bound are within this one.
            rules[_EXCLUSIVE[keyword]] = value


def _is_alone(rules: dict[str, Any]) -> bool:
    """True if no other schema declares properties for the same object."""
    return not in_place(rules) and "$ref" not in rules and "additionalProperties" not in rules


def _is_plain(rules: dict[str, Any]) -> bool:
    return not in_place(rules) or nullable_of(rules) is not None


def _settled(compiled: CompiledSchema, value: Any, *, declare: bool) -> bool:
    try:
        if not compiled.accepts(value):
            return False
    except ValueError:
        return False
    return not declare or not stripped(compiled, value)


# --- JSON Patch -----------------------------------------------------------------------------


def _difference(before: Any, after: Any, path: str) -> Iterator[PatchOperation]:
    if before == after:
        return
    if is_object(before) and is_object(after):
        for key, old in before.items():
            inner = path + pointer([key])
            if key in after:
                yield from _difference(old, after[key], inner)
            else:
                yield PatchOperation("remove", inner)
        for key in (key for key in after if key not in before):
            yield PatchOperation("add", path + pointer([key]), after[key])
    elif _are_schemas(before) and _are_schemas(after) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _difference(old, new, f"{path}/{index}")
    else:
        yield PatchOperation("replace", path, after)


def _are_schemas(value: Any) -> TypeGuard[list[Any]]:
    return is_array(value) and all(map(is_object, value))


def worded(before: Document, step: PatchOperation) -> str:
    """A step in words: its place in the schema with the former and the new rule."""
    old, new = (
        json.dumps(value, ensure_ascii=False)
        for value in (resolve(before, f"#{step.path}"), None if step.value is UNSET else step.value)
    )
    if step.op == "add":
        return f"{step.path}: {new}"
    return f"{step.path}: {old} → {'none' if step.op == 'remove' else new}"
