"""The gates: `grant` checks the caller, `admit` the arguments, `release` the output.

Plain functions without I/O; none of them runs a handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UNSET

from callpact import schema as schemas
from callpact.context import Identity
from callpact.envelope import HTTPResponseMeta, MCPResponseMeta, ResponseEnvelope, TextBlock
from callpact.errors import (
    AccessDenied,
    InvalidInput,
    Issue,
    NotJson,
    OutputRejected,
    UsageError,
)
from callpact.schema import is_json
from callpact.schema.bounds import schema_limits, with_room
from callpact.schema.compiled import CompiledSchema
from callpact.schema.issues.explain import explain, json_type
from callpact.schema.values import not_json
from callpact.tool import OPEN, POLICIES, Admitted, Contract, Policy, Projection, Tool

if TYPE_CHECKING:
    from callpact.schema import Change, Fitted
    from callpact.schema.issues.explain import Side

_BYTES = (bytes, bytearray, memoryview)
_QUIET_FOR_WARN = frozenset(
    {"required", "additionalProperties", "unevaluatedProperties", "dependentRequired"}
)
_REFUSING: tuple[Policy, ...] = ("convert", "reject")
_WITHOUT_CONTENT = frozenset({204, 205})


def grant(tool: Tool, identity: Identity | None) -> None:
    """Check that a caller has the rights that a tool requires.

    Raises:
        AccessDenied: a right is missing; it is named only to a caller with an identity.
    """
    access = tool.access
    if access is OPEN or access == OPEN:
        return
    if identity is None:
        raise AccessDenied(f"'{tool.id}' is not open to everybody: call it with an identity")
    missing = [scope for scope in access.scopes if scope not in identity.scopes]
    if missing:
        raise _denied(tool, identity, "the scopes" if missing[1:] else "the scope", missing)
    if access.any_scopes and not set(access.any_scopes) & set(identity.scopes):
        raise _denied(tool, identity, "one of the scopes", list(access.any_scopes))
    kind, action = access.resource_type, access.resource_action
    if kind is not None and not any(
        name.startswith(f"{kind}:") and action in actions
        for name, actions in identity.resources.items()
    ):
        raise _denied(tool, identity, "a right to", [f"{action} some {kind}"])


def rights_of(identity: Identity | None) -> object:
    """Return a hashable key of a caller's rights: callers with the same key may use the same tools."""
    if identity is None:
        return None
    resources = ((name, frozenset(held)) for name, held in identity.resources.items())
    return frozenset(identity.scopes), frozenset(resources)


def _denied(tool: Tool, identity: Identity, what: str, missing: list[str]) -> AccessDenied:
    text = f"'{identity.id}' may not use '{tool.id}': it needs {what} {', '.join(missing)}"
    return AccessDenied(text, details={"missing": missing})


def admit(tool: Tool, arguments: Any) -> Admitted:
    """Check arguments against the tool's input schema.

    Raises:
        InvalidInput: with every violation; nothing was run.
    """
    schema = tool.contract.compiled_input
    try:
        if schema.accepts(arguments) and type(arguments) is dict:
            return Admitted(tool, cast("dict[str, Any]", arguments))
    except ValueError:
        pass
    return _admit_slowly(tool, arguments)


def _admit_slowly(tool: Tool, arguments: Any) -> Admitted:
    schema = tool.contract.compiled_input
    if type(arguments) is not dict and isinstance(arguments, Mapping):
        arguments = dict(cast("Mapping[str, Any]", arguments))
    warnings: tuple[Issue, ...] = ()
    if tool.argument_aliases and isinstance(arguments, dict):
        arguments, warnings = _renamed(tool, cast("dict[str, Any]", arguments))
    errors = schema.errors(arguments)
    if not errors:
        if isinstance(arguments, dict):
            return Admitted(tool, cast("dict[str, Any]", arguments), warnings)
        raise InvalidInput(lambda: [_not_an_object(arguments)])
    if tool.contract.input_policy == "tolerant":
        repaired = schemas.repair(schema, arguments)
        if repaired.changes:  # Only violations that were not repaired are reported.
            errors = schema.errors(repaired.value)
            if not errors:
                warnings += tuple(map(_repaired, repaired.changes))
                return Admitted(tool, repaired.value, warnings)
    raise InvalidInput(lambda: explain(schema, errors, "Input"))


def _renamed(tool: Tool, arguments: dict[str, Any]) -> tuple[dict[str, Any], tuple[Issue, ...]]:
    """Arguments under their declared names; an alias beside its own name is kept, with a warning."""
    named: dict[str, Any] = {}
    warnings: list[Issue] = []
    for key, value in arguments.items():
        name = tool.argument_aliases.get(key, key)
        if name != key and name not in arguments and name not in named:
            warnings.append(Issue("renamed", f"Input '{key}' was taken for '{name}'", f"/{name}"))
            named[name] = value
        else:
            named[key] = value
    return named, tuple(warnings)


def _not_an_object(arguments: Any) -> Issue:
    kind = json_type(arguments)
    return Issue("type", f"Input must be an object, got {kind}", "", "object", kind)


def _repaired(change: Change) -> Issue:
    where = change.path or "the input"
    return Issue("converted", f"Input at {where} was converted from text", change.path)


def _judge(
    schema: CompiledSchema, value: Any, side: Side, quiet: frozenset[str] = frozenset()
) -> Any:
    """None for a valid value, otherwise a function that returns all issues but the quiet ones."""
    try:
        if schema.accepts(value):
            return None
    except ValueError:
        pass
    errors = schema.errors(value)
    if not errors:
        return None
    return lambda: explain(schema, errors, side, quiet=quiet)


def release(
    contract: Contract, envelope: ResponseEnvelope[Any], policy: Policy | None = None
) -> ResponseEnvelope[Any]:
    """Apply the contract's output policy to an envelope; the given envelope is never changed.

    The whole output is judged, and then reduced to the fields of the contract's projection.

    Raises:
        OutputRejected: the output breaks its schema under `reject`, or under `convert` even after
            all allowed conversions.
        NotJson: the data can be neither JSON nor bytes.
    """
    projection = contract.projection
    schema = contract.compiled_output if projection is None else projection.whole
    if schema is not None:
        try:
            if schema.fits(envelope.data):
                return envelope if projection is None else _projected(projection, envelope)
        except ValueError:
            pass
    released = _release_slowly(schema, envelope, tightened(contract, policy))
    return released if projection is None else _projected(projection, released)


def _projected(projection: Projection, envelope: ResponseEnvelope[Any]) -> ResponseEnvelope[Any]:
    """Reduce an envelope to the fields of a projection, also where its meta repeats the data.

    Bytes, content blocks without structured data, and reported errors have no fields: they stay.
    """
    data, meta = envelope.data, envelope.meta
    if isinstance(meta, MCPResponseMeta):
        if meta.is_error:
            return envelope
        if meta.structured_content is UNSET:
            return _unprojected(envelope, "content blocks")
    if isinstance(data, bytes):
        return _unprojected(envelope, "bytes")
    data = with_room(lambda: kept_fields(data, projection.fields))
    if isinstance(meta, MCPResponseMeta):
        # The text of such a result is the structured content once more.
        content = [block for block in meta.content if not isinstance(block, TextBlock)]
        meta = msgspec.structs.replace(meta, content=content, structured_content=data)
    changes = tuple(c for c in envelope.changes if _is_kept(c.path, projection.fields))
    return ResponseEnvelope(data, meta, envelope.warnings, changes)


def _unprojected(envelope: ResponseEnvelope[Any], kind: str) -> ResponseEnvelope[Any]:
    text = f"Output was not reduced to its fields: it must be structured data, got {kind}"
    return _annotated(envelope, envelope.data, (Issue("projection", text, "", "JSON", kind),), ())


def kept_fields(value: Any, fields: Mapping[str, Any]) -> Any:
    """A value with only these fields; those of each item of a list, and all of other values."""
    if not fields:
        return value
    if isinstance(value, list):
        return [kept_fields(item, fields) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    held = cast("dict[str, Any]", value)
    return {key: kept_fields(held[key], fields[key]) for key in held if key in fields}


def _is_kept(path: str, fields: Mapping[str, Any]) -> bool:
    """True if a place of the whole output is also one of the delivered output."""
    for raw in path.split("/")[1:]:
        if not fields:
            return True
        key = raw.replace("~1", "/").replace("~0", "~")
        if key in fields:
            fields = fields[key]
        elif not raw.isdecimal():
            return False
    return True


def tightened(contract: Contract, policy: Policy | None) -> Policy:
    """The stricter of the contract's policy and the policy of a call.

    Raises:
        UsageError: the policy of the call is weaker than the contract's.
    """
    own = contract.policy
    if policy is None or policy == own:
        return own
    if policy not in POLICIES:
        raise UsageError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
    if POLICIES.index(policy) < POLICIES.index(own):
        raise UsageError(f"a call can only tighten the policy: it is '{own}', got '{policy}'")
    return policy


def _release_slowly(
    schema: CompiledSchema | None, envelope: ResponseEnvelope[Any], policy: Policy
) -> ResponseEnvelope[Any]:
    data, meta = _plain(envelope.data), envelope.meta
    is_content = isinstance(meta, MCPResponseMeta) and _is_content(envelope.data, data, meta)
    if data is not envelope.data:
        envelope = msgspec.structs.replace(envelope, data=data)
    if schema is None or policy == "pass":
        return envelope
    if isinstance(meta, MCPResponseMeta) and meta.is_error:
        return envelope
    if is_content or isinstance(data, bytes):
        return _release_unjudged(envelope, "content blocks" if is_content else "bytes", policy)
    is_empty = isinstance(meta, HTTPResponseMeta) and meta.status_code in _WITHOUT_CONTENT
    if is_empty and data is None and policy != "warn" and not schema.accepts(None):
        return _release_unjudged(envelope, "a response without content", policy)
    issues = _judge(schema, data, "Output", _QUIET_FOR_WARN if policy == "warn" else frozenset())
    if policy == "reject":
        issues = issues or _undeclared(schema, data)
        if issues is None:
            return envelope
        raise OutputRejected(issues)
    found: tuple[Issue, ...] = () if issues is None else tuple(issues())
    if policy == "warn":
        return _annotated(envelope, data, found, ())
    if policy == "convert":
        return _annotated(envelope, *_converted(schema, data, found))
    fitted = schemas.fit(schema, data)
    warnings = found + tuple(_invented(change) for change in fitted.changes if change.invented)
    return _annotated(envelope, fitted.value, warnings + _residual(schema, fitted), fitted.changes)


def _converted(
    schema: CompiledSchema, data: Any, found: tuple[Issue, ...]
) -> tuple[Any, tuple[Issue, ...], tuple[Change, ...]]:
    """The output converted and stripped; refused if it still breaks its schema."""
    fitted = schemas.fit(schema, data, invent=False)
    still = _judge(schema, fitted.value, "Output")
    if still is not None:
        raise OutputRejected(still)
    return fitted.value, found + _not_done(fitted, "converted"), fitted.changes


def _undeclared(schema: CompiledSchema, data: Any) -> Any:
    """Issues for undeclared fields: `reject` refuses the fields that `cast` strips."""
    paths = [
        change.path for change in schemas.fit(schema, data).changes if change.action == "stripped"
    ]
    return (lambda: [_undeclared_issue(path) for path in paths]) if paths else None


def _undeclared_issue(path: str) -> Issue:
    name = path.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
    hint = "declare it, or allow others with additionalProperties"
    return Issue("additionalProperties", f"Output property '{name}' is not known", path, hint=hint)


def _is_content(given: Any, data: Any, meta: MCPResponseMeta) -> bool:
    """True if an MCP server sent no structured data, so that its content blocks are the data."""
    if given is meta.content:
        return True
    return meta.structured_content is UNSET and data == msgspec.to_builtins(meta.content or None)


def _release_unjudged(
    envelope: ResponseEnvelope[Any], kind: str, policy: Policy
) -> ResponseEnvelope[Any]:
    """Release bytes, content blocks and a missing content unchecked: schemas do not describe them."""
    issue = Issue("type", f"Output must be structured data, got {kind}", "", "JSON", kind)
    if policy in _REFUSING:
        raise OutputRejected(lambda: [issue])
    return _annotated(envelope, envelope.data, (issue,), ())


def _plain(data: Any) -> Any:
    """Models, dataclasses, dates and the like as JSON data; JSON and bytes as they are."""
    if isinstance(data, _BYTES):
        return bytes(cast("bytes", data))
    if is_json(data):
        return data
    plain = _dumped_whole(data)
    if is_json(plain):
        return plain
    places = not_json(plain)
    raise NotJson(lambda: [_not_json_issue(issue) for issue in places])


def _dumped_whole(data: Any) -> Any:
    levels = schema_limits().value_depth
    try:
        return with_room(lambda: _dumped(data, levels))
    except RecursionError:
        return data


def _dumped(value: Any, levels: int) -> Any:
    """Convert a value to JSON where possible; other parts stay, to be reported.

    Sets and keys that are not text are not converted: order or type would be lost silently.
    """
    if levels < 0:
        raise RecursionError
    if isinstance(value, Enum):
        return _dumped(value.value, levels)
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Mapping):
        held = cast("Mapping[Any, Any]", value).items()
        return {_dumped_key(key): _dumped(item, levels - 1) for key, item in held}
    if isinstance(value, list | tuple):
        return [_dumped(item, levels - 1) for item in cast("list[Any]", value)]
    if isinstance(value, ResponseEnvelope):
        return _dumped(cast("ResponseEnvelope[Any]", value).to_wire(), levels)
    if isinstance(value, (*_BYTES, set, frozenset)):
        return cast("Any", value)
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_dump)
    except (TypeError, ValueError):
        return value


def _dumped_key(key: Any) -> Any:
    key = key.value if isinstance(key, Enum) else key
    return str(key) if isinstance(key, str) else key


def _dump(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError
    return dump(mode="json")


def _not_json_issue(issue: Issue) -> Issue:
    text = issue.message.removeprefix("Value ")
    hint = "return JSON data (dict, list, str, number, bool, None), a model, or bytes"
    return Issue(issue.code, f"Output {text}", issue.path, "JSON or bytes", hint=hint)


def _invented(change: Change) -> Issue:
    where = change.path or "the whole answer"
    verb = "was missing and is now" if change.action == "filled" else "was replaced by"
    return Issue("replaced", f"Output at {where} {verb} an invented value", change.path)


def _residual(schema: CompiledSchema, fitted: Fitted) -> tuple[Issue, ...]:
    problems = _not_done(fitted, "cast")
    issues = _judge(schema, fitted.value, "Output")
    if issues is None:
        return problems
    still = (
        Issue("residual", f"Still after the cast: {issue.message}", issue.path)
        for issue in issues()
    )
    return (*problems, *still)


def _not_done(fitted: Fitted, verb: str) -> tuple[Issue, ...]:
    problem = fitted.problem
    return () if problem is None else (Issue("cast", f"Output was not {verb}: {problem}"),)


def _annotated(
    envelope: ResponseEnvelope[Any],
    data: Any,
    warnings: tuple[Issue, ...],
    changes: tuple[Change, ...],
) -> ResponseEnvelope[Any]:
    if not warnings and not changes and data is envelope.data:
        return envelope
    return ResponseEnvelope(
        data, envelope.meta, envelope.warnings + warnings, envelope.changes + changes
    )
