"""The arguments of a curated tool: fixed, given a default, renamed, described.

Pure functions over one Tool. The gate judges a call by the curated schema. Behind it the arguments
get the source's names and the fixed values, and the whole is judged by the source's own schema, so
that a handler receives nothing that its own contract refuses.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import aclosing, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import unquote

import msgspec

from callpact.errors import InvalidConfig, InvalidInput, InvalidSchema, Issue
from callpact.gate import admit
from callpact.schema import check, compile_schema, is_array, is_object
from callpact.schema.document import pointer
from callpact.sources.base import nearest_name
from callpact.tool import Contract, Handler, Tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from callpact.context import Context

_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_BRANCHES = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"}
)
_OF_THE_WHOLE = frozenset({"minProperties", "maxProperties", "const", "enum"})
"""Keywords that judge the arguments together, so that an added one changes their verdict."""
_OF_NAMES = frozenset({"patternProperties", "propertyNames", "const", "enum"})
"""Keywords that judge the names of arguments."""
_NEEDS = ("dependentRequired", "dependencies")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentChanges:
    """The changes to the arguments of one tool, by the names that its source gives them."""

    hidden: Mapping[str, Any]
    defaults: Mapping[str, Any]
    rename: Mapping[str, str]
    describe: Mapping[str, str]


def with_arguments(tool: Tool, place: str, changes: ArgumentChanges) -> Tool:
    """The tool without its hidden arguments, with default values, under other names and texts.

    Raises:
        InvalidConfig: an argument is not there or cannot be changed, or a value breaks its schema.
    """
    hidden, defaults, rename = dict(changes.hidden), dict(changes.defaults), dict(changes.rename)
    document = tool.contract.input if is_object(tool.contract.input) else {}
    _check_changes(tool, document, place, changes)
    try:
        schema = _without(document, hidden, defaults)
        _describe(schema, changes.describe)
        contract = Contract(
            input=_renamed(schema, rename),
            output=tool.contract.output,
            policy=tool.contract.policy,
            input_policy=tool.contract.input_policy,
            formats=tool.contract.formats,
        )
    except InvalidSchema as error:
        _refuse(place, f"the input schema cannot be used with these arguments changed: {error}")
    known = {**tool.argument_aliases, **{old: old for old in rename}}
    aliases = {key: rename.get(name, name) for key, name in known.items() if name not in hidden}
    published = rename.values()  # A former name gives way to a new one.
    examples = (_without_keys(example, hidden) for example in tool.examples)
    return replace(
        tool,
        contract=contract,
        argument_aliases={key: name for key, name in aliases.items() if key not in published},
        examples=tuple(_with_names(example, rename) for example in examples),
        handler=_filling(tool, hidden, defaults, rename)
        if hidden or defaults or rename
        else tool.handler,
    )


def _refuse(place: str, text: str) -> NoReturn:
    raise InvalidConfig(f"{place}: {text}")


# --- checks ----------------------------------------------------------------------------------


def _check_changes(
    tool: Tool, document: dict[str, Any], place: str, changes: ArgumentChanges
) -> None:
    hidden, defaults, rename = changes.hidden, changes.defaults, changes.rename
    if twice := hidden.keys() & defaults.keys():
        _refuse(place, f"'{min(twice)}' is hidden and has a default; one of them is enough")
    if twice := hidden.keys() & {*rename, *changes.describe}:
        _refuse(place, f"'{min(twice)}' is hidden, so that nobody sees its name and its text")
    for key, values in (("hidden", hidden), ("defaults", defaults)):
        for name, value in values.items():
            _check_argument(tool, document, name, f"{place}.{key}", "fixed")
            _check_value(tool, document, {name: value}, f"{place}.{key}.{name}")
    for name in rename:
        _check_argument(tool, document, name, f"{place}.rename", "renamed")
    declared = cast("dict[str, Any]", document.get("properties", {}))
    for name in changes.describe:
        if name not in declared:
            former = next((old for old, new in rename.items() if new == name), None)
            hint = nearest_name(name, declared)
            hint = hint if former is None else f"; by the source's name it is '{former}'"
            _refuse(f"{place}.describe", f"'{tool.id}' has no argument '{name}'{hint}")
    names: dict[str, str] = {}
    for name in declared:
        new = rename.get(name, name)
        other = names.setdefault(new, name)
        if other != name:
            _refuse(f"{place}.rename", f"'{other}' and '{name}' both get the name '{new}'")


def _check_argument(tool: Tool, document: dict[str, Any], name: str, place: str, verb: str) -> None:
    """Refuse an argument that is not there, or that more than its own property speaks of."""
    names = cast("dict[str, Any]", document.get("properties", {}))
    reached = next((keyword for keyword in document if _speaks(document, keyword, name)), None)
    if verb == "renamed":
        reached = reached or next((key for key in document if key in _OF_NAMES), None)
    if reached is not None:
        _refuse(
            place,
            f"'{name}' of '{tool.id}' cannot be {verb}: '{reached}' at the root of the input "
            "schema declares or judges it, and a schema without it might mean something else",
        )
    if name not in names:
        _refuse(place, f"'{tool.id}' has no argument '{name}'{nearest_name(name, names)}")
    if verb == "renamed" and _refers(document, pointer(["properties", name])):
        _refuse(place, f"'{name}' of '{tool.id}' cannot be renamed: its schema is referred to")


def _speaks(document: dict[str, Any], keyword: str, name: str) -> bool:
    """True if a keyword beside `properties` may declare or judge an argument."""
    if keyword in _OF_THE_WHOLE:
        return name in document.get("properties", {})
    if keyword not in _BRANCHES:
        return keyword in _REFERENCES
    part = document[keyword]
    if keyword == "dependencies":  # Those that are lists are handled like `dependentRequired`.
        part = {key: rule for key, rule in part.items() if not is_array(rule)}
    return _mentions(part, name)


def _mentions(part: Any, name: str) -> bool:
    if is_object(part):
        has = name in part or not _REFERENCES.isdisjoint(part)
        return has or any(_mentions(below, name) for below in part.values())
    return any(_mentions(item, name) for item in part) if is_array(part) else part == name


def _refers(part: Any, place: str) -> bool:
    """True if some reference leads to a place of the document or into it."""
    if is_object(part):
        reference = part.get("$ref")
        if isinstance(reference, str) and f"{unquote(reference)}/".startswith(f"#{place}/"):
            return True
        return any(_refers(below, place) for below in part.values())
    return any(_refers(item, place) for item in part) if is_array(part) else False


def _check_value(tool: Tool, document: dict[str, Any], given: dict[str, Any], place: str) -> None:
    judging = {"required", *_NEEDS, *_BRANCHES}
    schema = {key: part for key, part in document.items() if key not in judging}
    try:
        issues = check(compile_schema(schema, formats=tool.contract.formats), given)
    except InvalidSchema as error:
        _refuse(place, f"the schema of the argument cannot be used alone: {error}")
    if issues:
        _refuse(place, f"the value breaks the schema of the argument: {issues[0].message}")


# --- the schema ------------------------------------------------------------------------------


def _without(
    document: dict[str, Any], hidden: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The schema of what a caller gives: hidden arguments gone, those with a default optional."""
    schema, given = dict(document), {**hidden, **defaults}
    schema["properties"] = {
        name: {**(part if is_object(part) else {}), "default": defaults[name]}
        if name in defaults
        else part
        for name, part in document["properties"].items()
        if name not in hidden
    }
    required = list(document.get("required", ()))
    for keyword in _NEEDS:
        rules: dict[str, Any] = schema.pop(keyword, {})
        # An argument that is always there needs others always.
        required += [name for key in given for name in rules.get(key, ())]
        left = {
            key: [name for name in rule if name not in given] if is_array(rule) else rule
            for key, rule in rules.items()
            if key not in given
        }
        if kept := {key: rule for key, rule in left.items() if rule != []}:
            schema[keyword] = kept
    schema["required"] = [name for name in dict.fromkeys(required) if name not in given]
    if not schema["required"]:  # Draft 4 refuses an empty list.
        del schema["required"]
    if is_array(examples := schema.get("examples")):
        schema["examples"] = [_without_keys(example, hidden) for example in examples]
    return schema


def _describe(schema: dict[str, Any], texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        part = schema["properties"][name]
        if part is not False:  # Nothing can be said about an argument that has no valid value.
            held = part if is_object(part) else {}
            schema["properties"][name] = {**held, "description": text}


def _renamed(schema: dict[str, Any], rename: Mapping[str, str]) -> dict[str, Any]:
    """The schema with other names of its properties."""
    if not rename:
        return schema
    made = {**schema, "properties": _with_names(schema["properties"], rename)}
    if "required" in schema:
        made["required"] = _renamed_list(schema["required"], rename)
    for keyword in _NEEDS:
        if keyword in schema:
            rules = _with_names(schema[keyword], rename)
            made[keyword] = {key: _renamed_list(rule, rename) for key, rule in rules.items()}
    if is_array(examples := schema.get("examples")):
        made["examples"] = [_with_names(example, rename) for example in examples]
    if "default" in schema:
        made["default"] = _with_names(schema["default"], rename)
    return made


def _renamed_list(names: Any, rename: Mapping[str, str]) -> Any:
    return [rename.get(name, name) for name in names] if is_array(names) else names


def _with_names(value: Any, rename: Mapping[str, str]) -> Any:
    if not is_object(value):
        return value
    return {rename.get(key, key): item for key, item in value.items()}


def _without_keys(value: Any, names: Mapping[str, Any]) -> Any:
    if not is_object(value):
        return value
    return {key: item for key, item in value.items() if key not in names}


# --- the call --------------------------------------------------------------------------------


def _filling(
    tool: Tool, hidden: dict[str, Any], defaults: dict[str, Any], rename: dict[str, str]
) -> Handler:
    """The handler behind a step that adds the fixed arguments and judges all by its own schema."""
    handler, names = cast("Any", tool.handler), tool.argument_aliases
    former = {new: old for old, new in rename.items()}

    def filled(arguments: dict[str, Any]) -> dict[str, Any]:
        # A schema that is open for other keys admits hidden arguments, and other names.
        given = {former.get(key, key) for key in arguments}
        own: dict[str, Any] = {}
        taken: list[str] = []
        for key, value in arguments.items():
            name = former.get(key, key)
            is_former = key in rename and key not in former
            if names.get(name, name) in hidden or (is_former and rename[key] in arguments):
                taken.append(key)
            is_default = names.get(name) in defaults and names[name] not in given
            own[names[name] if is_default else name] = value
        if taken:
            raise InvalidInput(lambda: map(_undeclared, taken))
        with _published(rename):
            return admit(tool, {**deepcopy(defaults), **own, **deepcopy(hidden)}).arguments

    def call(arguments: dict[str, Any], context: Context) -> Any:
        return handler(filled(arguments), context)

    async def call_renamed(arguments: dict[str, Any], context: Context) -> Any:
        own = filled(arguments)
        with _published(rename):
            value = handler(own, context)
            return await value if hasattr(value, "__await__") else value

    async def stream(arguments: dict[str, Any], context: Context) -> AsyncGenerator[Any, None]:
        own = filled(arguments)
        with _published(rename):
            async with aclosing(handler(own, context)) as values:
                async for value in values:
                    yield value

    if tool.kind == "subscription":
        return stream
    return call_renamed if rename else call


def _undeclared(name: str) -> Issue:
    return Issue("additionalProperties", f"Property '{name}' is not known", pointer([name]))


@contextmanager
def _published(rename: Mapping[str, str]) -> Generator[None]:
    """Report issues about renamed arguments under their new names."""
    try:
        yield
    except InvalidInput as error:
        if not rename:
            raise
        issues = error.issues
        raise InvalidInput(lambda: [_with_new_name(issue, rename) for issue in issues]) from None


def _with_new_name(issue: Issue, rename: Mapping[str, str]) -> Issue:
    _, _, path = issue.path.partition("/")
    first, slash, rest = path.partition("/")
    for old, new in rename.items():
        if pointer([old]) == f"/{first}":
            message = issue.message.replace(f"'{old}'", f"'{new}'")
            place = f"{pointer([new])}{slash}{rest}"
            return msgspec.structs.replace(issue, message=message, path=place)
    return issue
