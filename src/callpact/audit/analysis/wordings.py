"""Changes of a schema in the language of the tool's declaration: type hints, or a FlowMCP file.

A schema of a Python function or a FlowMCP file is generated, so a JSON Patch of it cannot be
applied. Tools of other sources are declared by the schema itself: their changes have no other
wording. Pure; changes that a language cannot express are worded as changes of the schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec import UNSET, Struct

from callpact.audit.analysis.schema_edits import Patch, PatchOperation, worded
from callpact.schema import is_array, is_object
from callpact.schema.targets import resolve
from callpact.tool import Tool

Language = Literal["python", "flowmcp"]

_PYTHON_RULES = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
    "pattern": "pattern",
}
_HINTS = {
    "integer": "int",
    "number": "float",
    "string": "str",
    "boolean": "bool",
    "null": "None",
    "array": "list",
    "object": "dict",
}
_FLOWMCP_RULES = {
    "minimum": "min",
    "maximum": "max",
    "minLength": "min",
    "maxLength": "max",
    "minItems": "min",
    "maxItems": "max",
    "default": "default",
}
_MANY_CHOICES = 6


class _Edit(Struct, frozen=True):
    """One step of a patch: the field it is about, the keyword, and the rules before and after."""

    field: str
    """`limit`, `filter.price`, `Ticker.price`, `rows[].price`; empty for the whole value."""
    keyword: str
    """The keyword of a schema, or `property` for a field that is declared."""
    old: Any
    new: Any
    before: Any
    after: Any
    """The schemas that hold the keyword."""


def language_of(tool: Tool) -> Language | None:
    """The language that a tool is declared in; None if that is JSON Schema."""
    if tool.source.startswith("flowmcp:"):
        return "flowmcp"
    home = str(getattr(tool.handler, "__module__", ""))
    return "python" if home.startswith("callpact.sources.python.") else None


def wordings(patch: Patch, language: Language, *, is_output: bool) -> tuple[str, ...]:
    """The steps of a patch, one line each."""
    word: Callable[[_Edit], Iterator[str] | None]
    if language == "python":
        word = _python_output if is_output else _python_input
    else:
        word = _flowmcp_output if is_output else _flowmcp_input
    lines: list[str] = []
    for step in patch.operations:
        edit = _edit(patch, step)
        said = None if edit is None else word(edit)
        lines += [worded(patch.before, step)] if said is None else said
    return tuple(dict.fromkeys(lines))


def _edit(patch: Patch, step: PatchOperation) -> _Edit | None:
    """The field and the keyword of a step; None if its place is not a simple field."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in step.path.split("/")[1:]]
    field, at = "", 0
    while at < len(parts) - 1:
        part, name = parts[at], parts[at + 1]
        if part == "properties":
            if at + 2 == len(parts):
                break
            field, at = _joined(field, name), at + 2
        elif part in {"$defs", "definitions"}:
            field, at = name, at + 2
        elif part == "anyOf":  # A nullable.
            at += 2
        elif part == "items":
            field, at = f"{field}[]", at + 1
        else:
            return None
    is_property = at + 2 == len(parts)
    keyword = "property" if is_property else parts[at]
    home = f"#{step.path.rpartition('/')[0]}"
    before, after = resolve(patch.before, home), resolve(patch.after, home)
    new = None if step.value is UNSET else step.value
    field = _joined(field, parts[-1]) if is_property else field
    return _Edit(field, keyword, resolve(patch.before, f"#{step.path}"), new, before, after)


def _joined(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


# --- Python ---------------------------------------------------------------------------------


def _python_input(edit: _Edit) -> Iterator[str] | None:
    match edit.keyword:
        case "required":
            return (
                f"{_joined(edit.field, name)}: give it a default"
                for name in _gone(edit)
                if "default" not in _property(edit, name)
            )
        case "default":
            return iter([f"{edit.field}: {_hint(edit.after)} = {edit.new!r}"])
        case "property":
            return iter([f"a new parameter {edit.field}: {_hint(edit.new)}"])
        case "additionalProperties":
            return iter(["a parameter **others, for arguments of other names"])
        case _:
            return _python_rule(edit)


def _python_output(edit: _Edit) -> Iterator[str] | None:
    match edit.keyword:
        case "required":
            return (
                f"{_joined(edit.field, name)}: NotRequired[{_hint(_property(edit, name))}]"
                for name in _gone(edit)
            )
        case "property":
            return iter([f"a new field {edit.field}: {_hint(edit.new)}"])
        case _:
            return _python_rule(edit)


def _python_rule(edit: _Edit) -> Iterator[str] | None:
    if (name := _PYTHON_RULES.get(edit.keyword)) is not None:
        return _changed(edit, lambda value: f"{name}={value!r}")
    if edit.keyword == "type":
        return iter([f"{edit.field or 'the value'}: {_hint(edit.before)} → {_hint(edit.after)}"])
    if edit.keyword == "enum" and is_array(edit.old) and is_array(edit.new):
        return iter([f"{edit.field}: {_choices(edit, 'Literal[{}]', repr)}"])
    return None


def _hint(rules: Any) -> str:
    """The type hint of a schema: `int | None`; `Any` without a type."""
    kinds: Any = rules.get("type") if is_object(rules) else None
    names: list[Any] = kinds if is_array(kinds) else [kinds]
    return " | ".join(_HINTS.get(name, "Any") for name in names)


# --- FlowMCP --------------------------------------------------------------------------------


def _flowmcp_input(edit: _Edit) -> Iterator[str] | None:
    if (name := _FLOWMCP_RULES.get(edit.keyword)) is not None:
        return _changed(edit, lambda value: f"{name}({_bare(value)})")
    match edit.keyword:
        case "required":
            return (
                f"{name}: optional()"
                for name in _gone(edit)
                if "default" not in _property(edit, name)
            )
        case "enum" if is_array(edit.old) and is_array(edit.new):
            return iter([f"{edit.field}: {_choices(edit, 'enum({})', _bare)}"])
        case "type" if _is_now_nullable(edit):
            return iter([f"{edit.field}: optional(), and callers leave it out instead of null"])
        case "property":
            kind = edit.new.get("type", "string") if is_object(edit.new) else "string"
            kind = "number" if kind == "integer" else kind
            return iter([f"a new parameter {edit.field}: {kind}(), optional()"])
        case _:
            return None


def _flowmcp_output(edit: _Edit) -> Iterator[str] | None:
    match edit.keyword:
        case "type" if _is_now_nullable(edit):
            return iter([f"{edit.field or 'schema'}: nullable: true"])
        case "type":
            kinds = " and ".join(f"'{kind}'" for kind in _kinds(edit.after) if kind != "null")
            came = f"{edit.field or 'schema'}: {kinds} came, and `type` names one"
            return iter([f"{came}; correct it, or leave the property out"])
        case "enum" if is_array(edit.old) and is_array(edit.new):
            if edit.new == [*edit.old, None]:
                return iter([f"{edit.field}: nullable: true"])
            return iter([f"{edit.field}: enum: {_choices(edit, '[{}]', repr)}"])
        case "property":
            kind = edit.new.get("type") if is_object(edit.new) else None
            kind = "number" if kind == "integer" else kind
            return iter([f"{edit.field}: {{ type: '{kind or 'string'}' }}"])
        case "format":
            return _changed(edit, lambda value: f"format: '{value}'")
        case _:
            return None


def _is_now_nullable(edit: _Edit) -> bool:
    return _kinds(edit.after) == [*_kinds(edit.before), "null"]


def _bare(value: Any) -> str:
    """A value as an option of a parameter: texts without quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- both -----------------------------------------------------------------------------------


def _changed(edit: _Edit, form: Callable[[Any], str]) -> Iterator[str]:
    if edit.old is None:
        yield f"{edit.field}: {form(edit.new)}"
    elif edit.new is None:
        yield f"{edit.field}: without {form(edit.old)}"
    else:
        yield f"{edit.field}: {form(edit.old)} → {form(edit.new)}"


def _choices(edit: _Edit, form: str, show: Callable[[Any], str]) -> str:
    """The allowed values before and after; of many, only the new ones."""
    if len(edit.new) <= _MANY_CHOICES:
        old, new = (", ".join(map(show, values)) for values in (edit.old, edit.new))
    else:
        added = [value for value in edit.new if value not in edit.old]
        old, new = "…", ", ".join(["…", *map(show, added)])
    return f"{form.format(old)} → {form.format(new)}"


def _kinds(rules: Any) -> list[str]:
    kinds: Any = rules.get("type") if is_object(rules) else None
    return [*kinds] if is_array(kinds) else [kinds] if isinstance(kinds, str) else []


def _gone(edit: _Edit) -> list[str]:
    """The fields that are no longer required."""
    left: Any = edit.new or []
    return [name for name in edit.old or () if name not in left]


def _property(edit: _Edit, name: str) -> Any:
    declared: Any = edit.after.get("properties") if is_object(edit.after) else None
    rules: Any = declared.get(name) if is_object(declared) else None
    return rules if is_object(rules) else {}
