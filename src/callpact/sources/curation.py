"""Curation: the tools of any source under the names, texts, rights and arguments of a configuration.

Pure functions over Tools; nothing here reads a file. The gate judges a call by the curated schema.
Behind it the fixed arguments are added and the whole is judged by the source's own schema, so that
a handler receives nothing that its own contract refuses.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

from callpact.errors import InvalidConfig, InvalidInput, InvalidSchema, Issue
from callpact.gate import admit
from callpact.schema import check, compile_schema, is_array, is_object
from callpact.schema.document import pointer
from callpact.sources.base import Finding, Tools
from callpact.tool import Contract, Disabled, Handler, InputPolicy, Policy, Tool, wire_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from callpact.catalog import Catalog
    from callpact.context import Context
    from callpact.resources import Prompt, Resource

DISABLED = Disabled("handler_error", "disabled in callpact.toml")
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_BRANCHES = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"}
)
_OF_THE_WHOLE = frozenset({"minProperties", "maxProperties", "const", "enum"})
"""Keywords that judge the arguments together, so that an added one changes their verdict."""
_NEEDS = ("dependentRequired", "dependencies")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCuration:
    """The changes to one tool; what is None or empty stays as the source declares it."""

    name: str | None = None
    aliases: Sequence[str] = ()
    title: str | None = None
    description: str | None = None
    append_description: str | None = None
    policy: Policy | None = None
    input_policy: InputPolicy | None = None
    timeout: float | None = None
    tags: Sequence[str] | None = None
    scopes: Sequence[str] = ()
    read_only: bool | None = None
    hidden: Mapping[str, Any] = field(default_factory=dict[str, Any])
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Curation:
    """The changes to the tools of one source, each under a name of its tool."""

    place: str = ""
    """The table that declares it, for messages."""
    namespace: str | None = None
    tools: Mapping[str, ToolCuration] = field(default_factory=dict[str, ToolCuration])


def curate(whole: Catalog, selected: Catalog, curation: Curation, *, is_complete: bool) -> Tools:
    """The selected tools, resources and prompts of a source with their changes, and findings.

    A table may name any tool of the `whole` source. Of a source that is not complete, because a
    part of it could not be loaded, an unknown name is a finding and no error.

    Raises:
        InvalidConfig: a table names what the source does not have, two tools get the same name, or
            a fixed value breaks the schema of its argument.
    """
    report: list[Finding] = []
    tables = _tables(whole, curation, None if is_complete else report)
    tools = [_curated(tool, tables.get(tool.id), curation.namespace) for tool in selected]
    _check_names(selected, tools, curation.place)

    def renamed(offer: Any) -> Any:
        return replace(offer, tool=_named(offer.tool, curation.namespace, None))

    resources: Iterable[Resource] = map(renamed, selected.resources)
    prompts: Iterable[Prompt] = map(renamed, selected.prompts)
    return Tools(tools, report, resources, prompts)


_Table = tuple[str, ToolCuration]
"""The place of a table in the configuration, and its changes."""


def _tables(whole: Catalog, curation: Curation, report: list[Finding] | None) -> dict[str, _Table]:
    """The tables by the id of their tool."""
    found: dict[str, _Table] = {}
    for key, changes in curation.tools.items():
        place = f"{curation.place}.tools.{key}"
        tool = whole.get(key)
        named = [known.id for known in whole if known.name == key] if tool is None else [tool.id]
        if len(named) > 1:
            _refuse(place, f"several tools have this name: {', '.join(named)}; write an id")
        if not named:
            names = [*(known.id for known in whole), *(known.name for known in whole)]
            text = f"the source has no such tool{_nearest(key, names)}"
            if report is None:
                _refuse(place, text)
            report.append(Finding(place, "warning", f"{place}: {text}"))
        for tool_id in named:
            other = found.setdefault(tool_id, (place, changes))
            if other[0] != place:
                _refuse(place, f"'{tool_id}' has the table {other[0]} already")
    return found


def _curated(tool: Tool, table: _Table | None, namespace: str | None) -> Tool:
    place, changes = table or ("", ToolCuration())
    tool = _named(tool, namespace, changes.name)
    if table is None:
        return tool
    access, annotations, description = tool.access, tool.annotations, tool.description
    if changes.scopes:
        scopes = dict.fromkeys((*access.scopes, *changes.scopes))
        access = replace(access, scopes=tuple(scopes))
    if changes.read_only is not None:
        annotations = {**annotations, "readOnlyHint": changes.read_only}
    if changes.description is not None:
        description = changes.description
    if changes.append_description is not None:
        description = f"{description}\n\n{changes.append_description}".strip()
    tool = replace(
        tool,
        aliases=tuple(dict.fromkeys((*tool.aliases, *changes.aliases))),
        title=tool.title if changes.title is None else changes.title,
        description=description,
        timeout=changes.timeout or tool.timeout,
        tags=tool.tags if changes.tags is None else tuple(changes.tags),
        access=access,
        annotations=annotations,
        disabled=tool.disabled if changes.enabled else DISABLED,
    )
    if changes.hidden or changes.defaults:
        tool = _fixed(tool, place, changes)
    if changes.policy is not None or changes.input_policy is not None:
        policies = changes.policy or tool.contract.policy, changes.input_policy
        tool = replace(tool, contract=_contract(tool, tool.contract.compiled_input, *policies))
    return tool


def _contract(
    tool: Tool, schema: Any, policy: Policy, input_policy: InputPolicy | None = None
) -> Contract:
    own = tool.contract
    return Contract(
        input=schema,
        output=own.output,
        policy=policy,
        input_policy=input_policy or own.input_policy,
        formats=own.formats,
    )


# --- names -----------------------------------------------------------------------------------


def _named(tool: Tool, namespace: str | None, name: str | None) -> Tool:
    """The tool under another name; the names from before become aliases that give way."""
    namespace, name = namespace or tool.namespace, name or tool.name
    if (namespace, name) == (tool.namespace, tool.name):
        return tool
    is_reversed = tool.wire_name == wire_name(f"{tool.name}_{tool.namespace}")
    over_mcp = f"{name}_{namespace}" if is_reversed else f"{namespace}_{name}"
    new = replace(tool, id=f"{namespace}.{name}", wire_name=wire_name(over_mcp))
    former = dict.fromkeys((tool.id, tool.wire_name, *tool.aliases))
    kept = tuple(known for known in former if known not in {new.id, new.wire_name})
    return replace(new, aliases=kept, former=kept)


def _check_names(selected: Catalog, tools: list[Tool], place: str) -> None:
    """Refuse a name of two tools; a former name gives way, which is up to the catalog."""
    owners: dict[str, str] = {}
    for old, tool in zip(selected, tools, strict=True):
        for name in {tool.id, tool.wire_name, *tool.aliases}.difference(tool.former):
            other = owners.setdefault(name, old.id)
            if other != old.id:
                _refuse(place, f"'{other}' and '{old.id}' both get the name '{name}'; rename one")


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; there are {', '.join(names[:10])}" if names else "; there are none"


def _refuse(place: str, text: str) -> NoReturn:
    raise InvalidConfig(f"{place}: {text}")


# --- arguments -------------------------------------------------------------------------------


def _fixed(tool: Tool, place: str, changes: ToolCuration) -> Tool:
    """The tool without its hidden arguments and with default values, which every call is given."""
    hidden, defaults = dict(changes.hidden), dict(changes.defaults)
    document = tool.contract.input if is_object(tool.contract.input) else {}
    if twice := hidden.keys() & defaults.keys():
        _refuse(place, f"'{min(twice)}' is hidden and has a default; one of them is enough")
    for key, values in (("hidden", hidden), ("defaults", defaults)):
        for name, value in values.items():
            _check_argument(tool, document, name, f"{place}.{key}")
            _check_value(tool, document, {name: value}, f"{place}.{key}.{name}")
    try:
        schema = _without(document, hidden, defaults)
        contract = _contract(tool, schema, tool.contract.policy)
    except InvalidSchema as error:
        _refuse(place, f"the input schema cannot be used with these arguments fixed: {error}")
    aliases = {k: name for k, name in tool.argument_aliases.items() if name not in hidden}
    return replace(
        tool,
        contract=contract,
        argument_aliases=aliases,
        examples=tuple(_without_keys(example, hidden) for example in tool.examples),
        handler=_filling(tool, hidden, defaults),
    )


def _check_argument(tool: Tool, document: dict[str, Any], name: str, place: str) -> None:
    """Refuse an argument that is not there, or that more than its own property speaks of."""
    names = cast("dict[str, Any]", document.get("properties", {}))
    reached = next((keyword for keyword in document if _speaks(document, keyword, name)), None)
    if reached is not None:
        _refuse(
            place,
            f"'{name}' of '{tool.id}' cannot be fixed: '{reached}' at the root of the input schema "
            "declares or judges it, and a schema without it might mean something else",
        )
    if name not in names:
        _refuse(place, f"'{tool.id}' has no argument '{name}'{_nearest(name, names)}")


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


def _check_value(tool: Tool, document: dict[str, Any], given: dict[str, Any], place: str) -> None:
    judging = {"required", *_NEEDS, *_BRANCHES}
    schema = {key: part for key, part in document.items() if key not in judging}
    try:
        issues = check(compile_schema(schema, formats=tool.contract.formats), given)
    except InvalidSchema as error:
        _refuse(place, f"the schema of the argument cannot be used alone: {error}")
    if issues:
        _refuse(place, f"the value breaks the schema of the argument: {issues[0].message}")


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


def _without_keys(value: Any, names: Mapping[str, Any]) -> Any:
    if not is_object(value):
        return value
    return {key: item for key, item in value.items() if key not in names}


def _filling(tool: Tool, hidden: dict[str, Any], defaults: dict[str, Any]) -> Handler:
    """The handler behind a step that adds the fixed arguments and judges all by its own schema."""
    handler, names = cast("Any", tool.handler), tool.argument_aliases

    def filled(arguments: dict[str, Any]) -> dict[str, Any]:
        # A schema that is open for other keys admits these, and other names of arguments.
        if taken := [key for key in arguments if names.get(key, key) in hidden]:
            raise InvalidInput(lambda: map(_undeclared, taken))
        renamed = [key for key in arguments if names.get(key) in defaults.keys() - arguments.keys()]
        own = {names[key] if key in renamed else key: arguments[key] for key in arguments}
        return admit(tool, {**deepcopy(defaults), **own, **deepcopy(hidden)}).arguments

    def call(arguments: dict[str, Any], context: Context) -> Any:
        return handler(filled(arguments), context)

    async def stream(arguments: dict[str, Any], context: Context) -> AsyncGenerator[Any, None]:
        async with aclosing(handler(filled(arguments), context)) as values:
            async for value in values:
                yield value

    return stream if tool.kind == "subscription" else call


def _undeclared(name: str) -> Issue:
    return Issue("additionalProperties", f"Property '{name}' is not known", pointer([name]))
