"""The wire form of the command line: decodes `KEY=VALUE`, encodes results and failures as text.

Colours are added by the CLI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from callpact.errors import UsageError
from callpact.schema import is_object
from callpact.schema.bounds import with_room
from callpact.schema.json_text import json_text
from callpact.schema.targets import resolve
from callpact.tool import OPEN
from callpact.wire import flowmcp
from callpact.wire import plain as gate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from callpact.envelope import ResponseEnvelope
    from callpact.errors import CallError
    from callpact.resources import Prompt, Resource
    from callpact.tool import Access, Terms, Tool

Form = Literal["data", "envelope", "gate", "flowmcp"]

_RULES = (
    *("enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "format"),
    *("default", "minItems", "maxItems"),
)
_MAX_PARTS = 50
MAX_FIELD_LEVELS = 3
"""Levels of nested objects and items that are shown of a schema."""
MAX_FIELDS = 100
"""Properties that are shown of one schema."""


def decode_arguments(schema: Any, pairs: Iterable[str], input_json: str | None = None) -> Any:
    """Decode the arguments of a call: a JSON document, and `KEY=VALUE` pairs that are added to it.

    Raises:
        UsageError: the JSON or a pair cannot be read.
    """
    given: Any = {} if input_json is None else _read_json(input_json)
    seen: set[str] = set()
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"arguments are written KEY=VALUE, got '{pair}'")
        if not is_object(given):
            raise UsageError("KEY=VALUE can only be added to an --input that is an object")
        if key in seen:
            raise UsageError(f"'{key}' is given twice; write a list as JSON: {key}='[…]'")
        seen.add(key)
        given[key] = _read_value(schema, key, value)
    return given


def _read_json(text: str) -> Any:
    try:
        return with_room(lambda: msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"--input is not JSON: {error}") from None


def _read_value(schema: Any, key: str, value: str) -> Any:
    """Return text if the schema accepts a string; else the parsed JSON, or text that is not JSON."""
    if "string" in types_of(schema, key):
        return value
    try:
        return with_room(lambda: msgspec.json.decode(value))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return value


def types_of(schema: Any, key: str) -> list[str]:
    """Return the types of a property of a schema, in the order of their declaration."""
    return list(dict.fromkeys(kind for kind, _ in _types(schema, properties_of(schema).get(key))))


def _types(root: Any, node: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the types of a schema, each with the part that declares it."""
    for part in _parts(root, node):
        kinds = part.get("type", ())
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            yield kind, part
        values = [*part.get("enum", ()), *([part["const"]] if "const" in part else [])]
        yield from (("string", part) for value in values if isinstance(value, str))


def encode_kind(root: Any, node: Any, level: int = 0) -> str:
    """Return the types of a schema as text: `integer or null`, `array of string`."""
    kinds: list[str] = []
    for kind, part in _types(root, node):
        items = part.get("items")
        if kind == "array" and is_object(items) and level < MAX_FIELD_LEVELS:
            inner = encode_kind(root, items, level + 1)
            kinds.append(f"array of ({inner})" if " or " in inner else f"array of {inner}")
        else:
            kinds.append(kind)
    return " or ".join(dict.fromkeys(kinds)) or "any"


class FieldText(NamedTuple):
    """A property of a schema as text; nested names are written `offers[].price`."""

    name: str
    kind: str
    description: str
    rules: str


def encode_fields(schema: Any) -> list[FieldText]:
    """Return the properties of a schema, each followed by those of its objects and items."""
    rows: list[FieldText] = []
    _add_fields(rows, schema, schema, "", 0)
    return rows


def _add_fields(rows: list[FieldText], root: Any, node: Any, prefix: str, level: int) -> None:
    required = _required(root, node)
    for key, sub in _properties(root, node).items():
        if len(rows) >= MAX_FIELDS:
            return
        described = str(sub.get("description", "")) if is_object(sub) else ""
        rules = ", ".join([*_rules(root, sub), *([] if key in required else ["optional"])])
        rows.append(FieldText(f"{prefix}{key}", encode_kind(root, sub), described, rules))
        if level + 1 < MAX_FIELD_LEVELS:
            _add_fields(rows, root, sub, f"{prefix}{key}.", level + 1)
    for part in _parts(root, node):
        items = part.get("items")
        if is_object(items) and level < MAX_FIELD_LEVELS:
            _add_fields(rows, root, items, f"{prefix.removesuffix('.')}[].", level + 1)


def _rules(root: Any, node: Any) -> list[str]:
    """Return the most useful rules of a schema, each as `name value`."""
    rules = [
        f"{name} {json_text(value)}"
        for part in _parts(root, node)
        for name, value in part.items()
        if name in _RULES
    ]
    return list(dict.fromkeys(rules))


def properties_of(schema: Any) -> dict[str, Any]:
    """Return the declared properties of a schema, also behind a reference."""
    return _properties(schema, schema)


def _properties(root: Any, node: Any) -> dict[str, Any]:
    for part in _parts(root, node):
        if is_object(part.get("properties")):
            return part["properties"]
    return {}


def required_of(schema: Any) -> set[str]:
    """Return the required properties of a schema."""
    return _required(schema, schema)


def _required(root: Any, node: Any) -> set[str]:
    return {key for part in _parts(root, node) for key in part.get("required") or ()}


def _parts(root: Any, node: Any) -> list[dict[str, Any]]:
    """Return a schema with the schemas that it references and combines."""
    found: list[dict[str, Any]] = []
    pending: list[Any] = [node]
    while pending and len(found) < _MAX_PARTS:
        part = pending.pop(0)
        if not is_object(part):
            continue
        found.append(part)
        for keyword in ("anyOf", "oneOf", "allOf"):
            pending += part.get(keyword) or ()
        if isinstance(part.get("$ref"), str):
            pending.append(resolve(root, part["$ref"]))
    return found


def argument_names(tool: Tool) -> list[str]:
    """Return the arguments of a tool, optional ones in brackets."""
    schema = tool.contract.input
    required = required_of(schema)
    return [key if key in required else f"[{key}]" for key in properties_of(schema)]


def first_line(description: str) -> str:
    """Return the first line of a description."""
    return description.strip().partition("\n")[0]


def encode_summary(tool: Tool) -> dict[str, Any]:
    """Encode a tool in a list; `access` and `disabled` are present only if they restrict it.

    `keys` are the secrets that its requests carry, each with the hosts that receive it.
    """
    summary: dict[str, Any] = {
        "id": tool.id,
        "wireName": tool.wire_name,
        "description": tool.description,
        "kind": tool.kind,
        "policy": tool.contract.policy,
        "tags": list(tool.tags),
        "source": tool.source,
    }
    if tool.access != OPEN:
        summary["access"] = _encode_access(tool.access)
    if tool.keys:
        summary["keys"] = dict(tool.keys)
    if tool.disabled is not None:
        summary["disabled"] = {"code": tool.disabled.code, "reason": tool.disabled.reason}
    return summary


def _encode_access(access: Access) -> dict[str, Any]:
    """Encode access requirements with the names of seed 001, without empty ones."""
    members = {
        "requiredScopes": list(access.scopes),
        "requiredScopesAny": list(access.any_scopes),
        "resourceType": access.resource_type,
        "resourceAction": access.resource_action,
    }
    return {key: value for key, value in members.items() if value}


def encode_needs(access: Access) -> str:
    """Describe the rights that a caller needs; empty if it needs none."""
    needs: list[str] = []
    if access.scopes:
        needs.append(f"scope{'s' * (len(access.scopes) > 1)} {', '.join(access.scopes)}")
    if access.any_scopes:
        needs.append(f"one of the scopes {', '.join(access.any_scopes)}")
    if access.resource_type is not None:
        needs.append(f"the right to {access.resource_action} some {access.resource_type}")
    return "; ".join(needs)


def encode_traits(tool: Tool) -> str:
    """Return the marks of a tool: disabled, a subscription, restricted access."""
    needs = encode_needs(tool.access)
    traits = [f"disabled: {tool.disabled.reason}"] if tool.disabled is not None else []
    traits += ["subscription"] if tool.kind == "subscription" else []
    return "; ".join([*traits, *([f"needs {needs}"] if needs else [])])


def encode_facts(tool: Tool) -> dict[str, str]:
    """Return the properties of a tool beside its schemas, by label."""
    is_served = tool.kind != "subscription" and tool.disabled is None
    facts = {
        "policy": tool.contract.policy,
        "kind": tool.kind,
        "over MCP": tool.wire_name if is_served else "not served",
        "from": tool.source,
    }
    if tool.keys:
        facts["keys"] = ", ".join(f"{name} to {hosts}" for name, hosts in tool.keys.items())
    if tool.disabled is not None:
        facts["disabled"] = f"{tool.disabled.reason} [{tool.disabled.code}]"
    if needs := encode_needs(tool.access):
        facts["needs"] = needs
    if tool.aliases:
        facts["also called"] = ", ".join(tool.aliases)
    return facts | _terms_facts(tool.terms)


def _terms_facts(terms: Terms) -> dict[str, str]:
    facts: dict[str, str] = {}
    if terms.docs:
        facts["docs"] = ", ".join(terms.docs)
    if terms.service is not None:
        checked = f"checked {terms.checked}" if terms.checked else ""
        language = f"language {terms.language}" if terms.language else ""
        more = ", ".join(filter(None, (checked, language)))
        facts["terms"] = f"{terms.service} ({more})" if more else terms.service
    licence = ", ".join(filter(None, (terms.licence_name, terms.licence)))
    return facts | ({"data licence": licence} if licence else {})


def _encode_terms(terms: Terms) -> dict[str, Any]:
    """Encode terms with the names of seed 002, without empty ones."""
    members = {
        "docs": list(terms.docs),
        "termsOfService": terms.service,
        "termsOfServiceCheckedAt": terms.checked,
        "termsOfServiceLanguage": terms.language,
        "dataLicense": terms.licence,
        "dataLicenseName": terms.licence_name,
    }
    return {key: value for key, value in members.items() if value}


def encode_resource(resource: Resource) -> dict[str, Any]:
    """Encode a resource in a list."""
    size = {} if resource.size is None else {"size": resource.size}
    kind = {} if resource.mime_type is None else {"mimeType": resource.mime_type}
    return {
        "type": "resource",
        "uri": resource.uri,
        **_encode_offered(resource.tool),
        **kind,
        **size,
    }


def encode_prompt(prompt: Prompt) -> dict[str, Any]:
    """Encode a prompt in a list."""
    arguments = [
        {"name": each.name, "description": each.description, "required": each.is_required}
        for each in prompt.arguments
    ]
    offered = _encode_offered(prompt.tool)
    return {"type": "prompt", "name": prompt.tool.wire_name, **offered, "arguments": arguments}


def _encode_offered(tool: Tool) -> dict[str, Any]:
    summary = encode_summary(tool)
    return {
        key: value for key, value in summary.items() if key not in {"wireName", "kind", "policy"}
    }


def encode_description(tool: Tool) -> dict[str, Any]:
    """Encode a tool with its schemas and terms."""
    terms = _encode_terms(tool.terms)
    details = {**encode_summary(tool), "input": tool.contract.input, "output": tool.contract.output}
    return {**details, "terms": terms} if terms else details


def encode_json(value: Any, *, is_line: bool = False) -> str:
    """Encode JSON, indented or on one line."""
    return json_text(value, indent=not is_line)


def encode_result(envelope: ResponseEnvelope[Any], form: Form) -> Any:
    """Encode a result in one of the forms, as JSON data."""
    match form:
        case "data":
            return envelope.data
        case "envelope":
            return envelope.to_wire(details=bool(envelope.warnings or envelope.changes))
        case "gate":
            return envelope.to_wire()["data"]
        case "flowmcp":
            return flowmcp.encode_result(envelope)


def encode_failure(error: CallError, form: Form, tool_name: str) -> Any:
    """Encode a failure in one of the forms, as JSON data; None if the form has none."""
    if form == "gate":
        return gate.encode_error(error)
    return flowmcp.encode_error(error, tool_name) if form == "flowmcp" else None


def encode_notes(envelope: ResponseEnvelope[Any]) -> list[str]:
    """Return the findings of the contract about an output: warnings, then changes."""
    notes = [f"warning: {issue.message} [{issue.code}]" for issue in envelope.warnings]
    notes += [
        f"changed: {change.path or '(the whole answer)'} was {change.action}"
        for change in envelope.changes
    ]
    return notes


def encode_error(error: CallError) -> list[str]:
    """Encode a failure as lines: the code, then every issue with its path and hint."""
    if not error.issues:
        where = f" (at {error.path})" if error.path else ""
        details = f"  details: {json_text(error.details)}" if _has_more_details(error) else None
        return [f"{error.code}: {error.message}{where}", *([details] if details else [])]
    lines = [f"{error.code}:"]
    for issue in error.issues:
        lines.append(f"  {issue.path or '(the whole value)'}: {issue.message}")
        if issue.hint:
            lines.append(f"    hint: {issue.hint}")
    return lines


def _has_more_details(error: CallError) -> bool:
    """True if the details add something to the message."""
    return bool(error.details) and error.code not in {"tool_not_found", "timeout"}
