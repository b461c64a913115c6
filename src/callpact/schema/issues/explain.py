"""Violations as issues: what was expected, what came, where, and the likely remedy.

It turns the validator's errors into `Issue`s. Nothing here decides whether a value is valid.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import structs

from callpact.errors import Issue
from callpact.schema.compiled import CompiledSchema, compile_schema
from callpact.schema.document import pointer
from callpact.schema.issues.secrecy import SecretPlaces
from callpact.schema.issues.wording import (
    ASIS,
    HIDDEN,
    RuleWords,
    brief,
    choice_rule,
    cut,
    json_type,
    known_keys,
    nearest,
    rule_of,
    shown,
    type_rule,
)
from callpact.schema.json_types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from jsonschema_rs import ValidationError

__all__ = ["MAX_ISSUES", "Side", "check", "explain", "json_type", "shown"]

Side = Literal["Value", "Input", "Output"]
MAX_ISSUES = 100
"""Issues reported for one value; the best first."""
_MAX_ERRORS = 10_000
_MAX_PATH = 500
_MAX_SEARCHES = 20

_RANKS = {
    "json": 0,
    "depth": 0,
    "required": 0,
    "dependentRequired": 0,
    "dependencies": 0,
    "type": 1,
    "enum": 2,
    "const": 2,
    "additionalProperties": 4,
    "unevaluatedProperties": 4,
}
_OTHER = 3
_ABOUT_KEYS = frozenset({"additionalProperties", "unevaluatedProperties", "propertyNames"})
_NAMED_CHILDREN = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})


def check(schema: object, value: Any) -> list[Issue]:
    """Every violation of a JSON Schema by a value, the best first; empty for a valid value.

    Raises:
        InvalidSchema: the schema itself cannot be used.
    """
    compiled = compile_schema(schema)
    try:
        if compiled.accepts(value):
            return []
    except ValueError:
        pass
    return explain(compiled, compiled.errors(value))


def explain(
    compiled: CompiledSchema,
    errors: Iterable[ValidationError | Issue],
    side: Side = "Value",
    *,
    quiet: Collection[str] = (),
) -> list[Issue]:
    """Put the validator's errors into words: at most `MAX_ISSUES`, deepest place first.

    Of rules that are `quiet` nothing is said; they take no room from others.
    """
    writer = _Writer(compiled, side)
    issues: dict[tuple[str, str, str], Issue] = {}
    shown = (error for error in errors if _code(error) not in quiet) if quiet else errors
    likely = sorted(islice(shown, _MAX_ERRORS), key=_first_rank)
    for error in likely[: 2 * MAX_ISSUES]:
        for issue in writer.write(error):
            if issue.code not in quiet:
                issues.setdefault((issue.path, issue.code, issue.message), issue)
    return sorted(issues.values(), key=_rank)[:MAX_ISSUES]


def _rank(issue: Issue) -> tuple[int, int]:
    return (-issue.path.count("/"), _RANKS.get(issue.code, _OTHER))


def _code(error: ValidationError | Issue) -> str:
    return error.code if isinstance(error, Issue) else error.kind.name


def _first_rank(error: ValidationError | Issue) -> tuple[int, int]:
    """The rank of an error before it is written; what it writes may lie deeper."""
    if isinstance(error, Issue):
        return _rank(error)
    code = _code(error)
    depth = len(error.instance_path) + (code in {"required", "additionalProperties"})
    return (-depth, _RANKS.get(code, _OTHER))


class _Writer:
    def __init__(self, compiled: CompiledSchema, side: Side) -> None:
        self._document = compiled.document
        self._side = side
        self._secrets = SecretPlaces(compiled.document, has_any=compiled.has_secrets)
        self._searches = _MAX_SEARCHES

    def write(self, error: ValidationError | Issue) -> list[Issue]:
        if isinstance(error, Issue):
            message = error.message
            if message.startswith("Value "):
                message = self._side + message[5:]
            return [structs.replace(error, message=message)]
        code: str = error.kind.name
        if code == "required":
            return [self._missing(error)]
        if code in {"additionalProperties", "unevaluatedProperties"}:
            return self._extras(error, code, error.kind.as_dict()["unexpected"])
        if code in {"anyOf", "oneOf"}:
            return self._union(error, code)
        if code == "propertyNames":
            return [self._bad_name(error)]
        if code == "falseSchema":
            return self._forbidden(error)
        return [self._ruled(error, code)]

    def _ruled(self, error: Any, code: str) -> Issue:
        """An issue of a single rule about the value itself."""
        if code == "enum":
            return self._issue(error, "enum", choice_rule(self._options(error), error.instance))
        details: dict[str, Any] = error.kind.as_dict()
        if code == "type" and isinstance(declared := self._at(error.schema_path), list):
            details = {"types": declared}
        if code == "contains":
            code = str(error.schema_path[-1])
        if code == "pattern" and "pattern" not in details:
            # The search was given up; the schema has the pattern.
            details = {"pattern": str(self._at(error.schema_path))}
        return self._issue(error, code, rule_of(code, details, error.instance))

    def _issue(self, error: Any, code: str, rule: RuleWords) -> Issue:
        path = error.instance_path
        got, received, hint = rule.got, rule.received, rule.hint
        if received is ASIS:
            received = brief(error.instance)
        if code != "type" and got is not None and self._secrets.hide(path):
            got, received, hint = HIDDEN, None, None
        elif code == "type" and hint is not None and self._secrets.hide(path):
            hint = None
        elif code == "type" and got != received and self._secrets.hide(path):
            got = received
        tail = "" if got is None else f", got {got}"
        text = f"{self._subject(path)} {rule.must}{tail}"
        return Issue(code, text, _pointer(path), rule.expected, received, hint)

    # -- keys --------------------------------------------------------------------------------

    def _missing(self, error: Any) -> Issue:
        name: str = error.kind.property
        path = [*error.instance_path, name]
        keyword = str(error.schema_path[-1])
        because = ""
        if keyword in {"dependentRequired", "dependencies"}:
            because = self._because(error, name)
        else:
            keyword = "required"
        about = self._property(error.schema_path, name).get("description")
        hint = f"{cut(name)}: {about}" if isinstance(about, str) and about else None
        text = f"{self._subject(path)} is required{because}"
        return Issue(keyword, text, _pointer(path), hint=hint)

    def _because(self, error: Any, name: str) -> str:
        rules = self._node(error.schema_path)
        given: Any = error.instance
        for key, needed in rules.items():
            if key in given and is_array(needed) and name in needed:
                return f" when '{cut(key)}' is given"
        return ""

    def _extras(self, error: Any, code: str, names: Iterable[str]) -> list[Issue]:
        return [self._extra(error, code, name) for name in islice(names, MAX_ISSUES)]

    def _extra(self, error: Any, code: str, name: str) -> Issue:
        path = [*error.instance_path, name]
        declared = list(self._node(error.schema_path[:-1]).get("properties") or {})
        self._searches -= 1
        near = nearest(name, declared) if self._searches >= 0 else None
        text = f"{self._subject(path)} is not known"
        hint = near or known_keys(declared)
        return Issue(code, text, _pointer(path), hint=hint)

    def _bad_name(self, error: Any) -> Issue:
        inner: Any = error.kind.as_dict()["error"]
        name: str = inner.instance
        path = [*error.instance_path, name]
        code = inner.kind.name
        if code == "enum":
            rule = choice_rule(self._options(inner), name)
        else:
            rule = rule_of(code, inner.kind.as_dict(), name)
        text = f"Property name {shown(name)} {rule.must}"
        return Issue("propertyNames", text, _pointer(path), rule.expected, hint=rule.hint)

    def _forbidden(self, error: Any) -> list[Issue]:
        """A place under the schema `false`; the code is the keyword that holds it."""
        path: list[Any] = list(error.schema_path)
        names = [part for part in path if isinstance(part, str)]
        code = names[-1] if names else "false"
        if len(path) > 1 and path[-2] in _NAMED_CHILDREN:
            code = str(path[-2])
        must = "must not have any property" if code in _ABOUT_KEYS else "is not allowed"
        text = f"{self._subject(error.instance_path)} {must}"
        return [Issue(code, text, _pointer(error.instance_path))]

    # -- unions ------------------------------------------------------------------------------

    def _union(self, error: Any, code: str) -> list[Issue]:
        path = error.instance_path
        branches: list[list[Any]] = error.kind.as_dict()["context"]
        if not all(branches):
            text = f"{self._subject(path)} matches more than one of forms that exclude each other"
            return [Issue(code, text, _pointer(path))]
        depth = len(path)
        typed = [b for b in branches if all(_is_type_at(e, depth) for e in b)]
        if len(typed) == len(branches):
            types = list(dict.fromkeys(t for b in branches for e in b for t in e.kind.types))
            return [self._issue(error, "type", type_rule(types, error.instance))]
        likely = [b for b in branches if b not in typed]
        for at in (depth, depth + 1):
            # Constants distinguish the branches: either the value itself, or one of its properties.
            tags = [next((e for e in b if _is_constant(e, at)), None) for b in likely]
            if all(tags) and len({tuple(e.instance_path) for e in tags if e}) == 1:
                options = [option for e in tags for option in self._options(e)]
                rule = choice_rule(options, cast("Any", tags[0]).instance)
                return [self._issue(tags[0], "enum", rule)]
        chosen = [b for b in likely if not any(_is_constant(e, depth + 1) for e in b)] or likely
        written = [self._written(branch) for branch in chosen[:MAX_ISSUES]]
        if len(written) == 1:
            return written[0]
        shared = [issue for issue in written[0] if all(issue in other for other in written)]
        if shared:
            return shared
        first = min(written, key=len)[0]
        text = f"{self._subject(path)} matches none of its {len(branches)} allowed forms"
        return [Issue(code, text, _pointer(path), hint=f"nearest form: {first.message}")]

    def _written(self, errors: list[Any]) -> list[Issue]:
        return sorted((issue for e in errors for issue in self.write(e)), key=_rank)

    def _options(self, error: Any) -> list[Any]:
        """The literals that an `enum` or `const` allows, as the schema has them."""
        node = self._at(error.schema_path)
        if error.kind.name == "const":
            return [error.kind.as_dict()["expected_value"]]
        return node if is_array(node) else error.kind.as_dict()["options"]

    # -- places ------------------------------------------------------------------------------

    def _subject(self, path: list[str | int]) -> str:
        if not path:
            return self._side
        last = path[-1]
        if isinstance(last, int):
            owner = next((p for p in reversed(path) if isinstance(p, str)), None)
            name = f"item {last} of '{cut(owner)}'" if owner else f"item {last}"
        else:
            name = f"property '{cut(last)}'"
        return f"Output {name}" if self._side == "Output" else name[0].upper() + name[1:]

    def _at(self, path: Iterable[str | int]) -> Any:
        node: Any = self._document
        for part in path:
            if is_object(node):
                node = node.get(str(part))
            elif is_array(node) and isinstance(part, int) and part < len(cast("Any", node)):
                node = node[part]
            else:
                return None
        return node

    def _node(self, path: Iterable[str | int]) -> dict[str, Any]:
        node = self._at(path)
        return node if is_object(node) else {}

    def _property(self, schema_path: list[str | int], name: str) -> dict[str, Any]:
        found = self._node([*schema_path[:-1], "properties", name])
        return found or self._node(["properties", name])


def _pointer(path: list[str | int]) -> str:
    text = pointer(path)
    return text if len(text) <= _MAX_PATH else text[:_MAX_PATH] + "…"


def _is_type_at(error: Any, depth: int) -> bool:
    return error.kind.name == "type" and len(error.instance_path) == depth


def _is_constant(error: Any, depth: int) -> bool:
    return error.kind.name in {"const", "enum"} and len(error.instance_path) == depth
