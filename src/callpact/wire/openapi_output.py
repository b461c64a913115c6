"""An OpenAPI 3.1 document of tools as plain HTTP endpoints; pure functions.

Every tool is a POST, those that only read also a GET. The schemas are those of the contracts, as
components; a result never breaks the schema that is published for it. The endpoints themselves are
in `serve/rest/`, the reader of OpenAPI documents in `sources/openapi/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from callpact.codes import CODES
from callpact.envelope import RESPONSE_ENVELOPE_SCHEMA
from callpact.schema import is_object
from callpact.wire.mcp.portable import inside
from callpact.wire.mcp.published import input_schema, plain_output_schema, result_form
from callpact.wire.query_arguments import query_forms, takes_idempotency_key, without_null
from callpact.wire.rest import ENVELOPE, EVENTS, JSON, REFUSALS

if TYPE_CHECKING:
    from callpact.tool import Tool

MAX_DOCUMENT_EXAMPLES = 5
"""Examples of a tool's arguments in an OpenAPI document."""
_SCHEMAS = "#/components/schemas/"
_BEARER = "bearer"
_MEANINGS = {
    400: "The request is not JSON, or the arguments break the input schema; nothing was run",
    401: "The caller has no valid token",
    403: "The caller may not use the tool, or the request came from a foreign web page",
    404: "There is no such tool",
    405: "The method is not one of this path",
    408: "The request was not sent in time",
    409: "The first call with this Idempotency-Key still runs, or its answer is not known",
    413: "The request is too large",
    415: "The body is not application/json",
    422: "The tool refused, or the Idempotency-Key was used with other arguments",
    500: "The tool broke in a way that it did not declare",
    502: "The tool's upstream failed, or its answer breaks the output schema",
    503: "Too many calls run, or the server stops; try again later",
    504: "The call did not end before its deadline",
}


def encode_openapi(
    tools: Iterable[Tool], *, title: str, version: str, has_tokens: bool = False
) -> dict[str, Any]:
    """Describe tools as endpoints; `has_tokens` if every caller needs a bearer token."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {"Error": _ERROR, "Issue": _ISSUE, "Envelope": _ENVELOPE}
    namespaces: dict[str, None] = {}
    for tool in tools:
        paths[f"/tools/{tool.id}"] = _path(tool, schemas, has_tokens=has_tokens)
        namespaces[tool.namespace] = None
    paths |= _HEALTH
    components: dict[str, Any] = {
        "schemas": schemas,
        "responses": {_response_name(status): _refusal(status) for status in _MEANINGS},
        "headers": _HEADERS,
        "parameters": {"IdempotencyKey": _IDEMPOTENCY_KEY},
    }
    if has_tokens:
        components["securitySchemes"] = {_BEARER: {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version or "0", "description": _ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in (*namespaces, "server")],
        "paths": paths,
        "components": components,
    }


_ABOUT = (
    "Every tool is an endpoint: its arguments are the JSON body of a POST, its result is the body "
    f"of the response. `Accept: {ENVELOPE}` asks for the whole envelope: data, origin, warnings "
    "and changes. A POST with the header `Idempotency-Key` can be repeated safely: the tool runs "
    "once, and the recorded answer is sent again."
)


def _path(tool: Tool, schemas: dict[str, Any], *, has_tokens: bool) -> dict[str, Any]:
    taken, given = f"{tool.wire_name}.input", f"{tool.wire_name}.output"
    schemas[taken] = relocated(input_schema(tool), f"{_SCHEMAS}{taken}")
    output = plain_output_schema(tool)
    if output is not None:
        schemas[given] = relocated(output, f"{_SCHEMAS}{given}")
    shared = _operation(tool, None if output is None else given, has_tokens=has_tokens)
    body: dict[str, Any] = {"schema": {"$ref": f"{_SCHEMAS}{taken}"}}
    examples = _examples(tool)
    if examples:
        body["examples"] = examples
    posted: dict[str, Any] = {
        "operationId": tool.wire_name,
        **shared,
        "requestBody": {"required": True, "content": {JSON: body}},
    }
    if takes_idempotency_key(tool):
        # Not among the parameters: it is no argument, and a generated key protects nothing.
        posted["x-callpact-headers"] = [{"$ref": "#/components/parameters/IdempotencyKey"}]
    path: dict[str, Any] = {"post": posted}
    parameters = _query(tool, f"{_SCHEMAS}{taken}")
    if parameters is not None:
        path["get"] = {"operationId": f"{tool.wire_name}.get", **shared, "parameters": parameters}
        if not parameters:
            del path["get"]["parameters"]
    return path


def _operation(tool: Tool, output: str | None, *, has_tokens: bool) -> dict[str, Any]:
    """Return the members that POST and GET share."""
    description = tool.description.strip()
    operation: dict[str, Any] = {
        "summary": tool.title or description.split("\n", 1)[0][:120] or tool.id,
        "description": description,
        "tags": [tool.namespace],
        "x-callpact-id": tool.id,
        "responses": {"200": _result(tool, output)}
        | {
            str(status): {"$ref": f"#/components/responses/{_response_name(status)}"}
            for status in _MEANINGS
            if has_tokens or status != 401
        },
    }
    declared = tool.contract.output
    if declared is not None and (output is None or tool.contract.policy == "warn"):
        # Results may break it: it describes, and is not asserted.
        operation["x-callpact-declared-output"] = declared
    if has_tokens:
        operation["security"] = [{_BEARER: list(tool.access.scopes)}]
    return operation


def _result(tool: Tool, output: str | None) -> dict[str, Any]:
    data: dict[str, Any] = {} if output is None else {"$ref": f"{_SCHEMAS}{output}"}
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in _HEADERS}
    if tool.kind == "subscription":
        headers = {name: headers[name] for name in ("X-Operation-Id", "X-Operation-Timestamp")}
        about = (
            "A stream of server-sent events: `data` of each is a result, an event `completed` ends "
            "it, an event `error` has the reason for an early end"
        )
        # OpenAPI 3.1 cannot say whether a schema is one of the stream, of an event or of its data.
        content = {EVENTS: {"schema": {}, "x-callpact-event-data": data}}
        return {"description": about, "headers": headers, "content": content}
    whole: dict[str, Any] = {"$ref": f"{_SCHEMAS}Envelope"}
    if data:
        whole = {"allOf": [whole], "properties": {"data": data}}
    content: dict[str, Any] = {JSON: {"schema": data}, ENVELOPE: {"schema": whole}}
    media = result_form(tool, modern=True).media
    if output is None:  # Without a schema, a result may be bytes of any type.
        content[media or "*/*"] = {}
    return {"description": "The result of the tool", "headers": headers, "content": content}


def _examples(tool: Tool) -> dict[str, Any]:
    compiled = tool.contract.compiled_input
    valid = [one for one in tool.examples if is_object(one) and compiled.accepts(one)]
    return {str(n): {"value": one} for n, one in enumerate(valid[:MAX_DOCUMENT_EXAMPLES], 1)}


# --- arguments in a query ---------------------------------------------------------------------


def _query(tool: Tool, base: str) -> list[dict[str, Any]] | None:
    """Return the parameters of a GET; None if the tool has none."""
    forms = query_forms(tool)
    schema = tool.contract.input
    if forms is None:
        return None
    properties: Mapping[str, Any] = schema.get("properties", {}) if is_object(schema) else {}
    required = schema.get("required", ()) if is_object(schema) else ()
    parameters: list[dict[str, Any]] = []
    for name, form in forms.items():
        held = properties[name]
        parameter: dict[str, Any] = {"name": name, "in": "query", "required": name in required}
        if is_object(held) and isinstance(held.get("description"), str):
            parameter["description"] = held["description"]
        shown = relocated(without_null(held), base)
        if form == "json":
            parameter["content"] = {JSON: {"schema": shown}}
        else:
            # An empty list cannot be written in a query.
            least = {"minItems": max(1, shown.get("minItems", 1))} if form == "list" else {}
            parameter |= {"schema": shown | least, "style": "form", "explode": True}
        parameters.append(parameter)
    return parameters


# --- schemas --------------------------------------------------------------------------------


def relocated(schema: Any, base: str) -> dict[str, Any]:
    """Return a schema whose references into itself name its place in the document.

    A schema with an id is a document of its own, and stays as it is.
    """
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return _moved(schema, base)


def _moved(schema: Any, base: str) -> Any:
    if not is_object(schema) or _starts_document(schema):
        return schema
    moved = inside(schema, lambda part, _: _moved(part, base))
    for keyword in ("$ref", "$dynamicRef"):
        reference = moved.get(keyword)
        if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
            moved[keyword] = base + reference[1:]
    return moved


def _starts_document(schema: dict[str, Any]) -> bool:
    given = schema.get("$id")
    return isinstance(given, str) and not given.startswith("#")


_TEXT: dict[str, Any] = {"type": "string"}
_ISSUE: dict[str, Any] = {
    "type": "object",
    "description": "One violation: the rule, the place as a JSON Pointer, and what would be right",
    "required": ["code", "message", "path"],
    "properties": {
        "code": _TEXT,
        "message": _TEXT,
        "path": _TEXT,
        "expected": {},
        "received": {},
        "hint": _TEXT,
    },
}
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {
                    "type": "string",
                    "description": "One of the codes of callpact, or the tool's own",
                    "examples": [*CODES, *sorted(set(REFUSALS.values()) - CODES.keys())],
                },
                "message": _TEXT,
                "path": _TEXT | {"description": "JSON Pointer to the place in the arguments"},
                "hint": _TEXT,
                "issues": {"type": "array", "items": {"$ref": f"{_SCHEMAS}Issue"}},
                "details": {"type": "object"},
            },
        },
        "data": {"description": "The result, if it is one that breaks the output schema"},
    },
}
_ENVELOPE: dict[str, Any] = {
    **RESPONSE_ENVELOPE_SCHEMA,
    "properties": {
        **RESPONSE_ENVELOPE_SCHEMA["properties"],
        "encoding": {"const": "base64", "description": "Set if the data is bytes"},
        "warnings": {"type": "array", "items": {"$ref": f"{_SCHEMAS}Issue"}},
        "changes": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "action"],
                "properties": {
                    "path": _TEXT,
                    "action": _TEXT,
                    "before": {},
                    "invented": {"type": "boolean"},
                },
            },
        },
    },
}
_HEADERS: dict[str, Any] = {
    "X-Operation-Id": {"description": "The id of the tool", "required": True, "schema": _TEXT},
    "X-Operation-Timestamp": {
        "description": "The time of the result, in epoch milliseconds",
        "required": True,
        "schema": {"type": "integer"},
    },
    "Idempotency-Replayed": {
        "description": "Set if the answer was recorded by an earlier call with the same key",
        "schema": {"const": "true"},
    },
    "Callpact-Changes": {
        "description": "The number of changes that the contract made to the result",
        "schema": {"type": "integer", "minimum": 1},
    },
}
_IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A key for safe retries: a repeated call with the same key and arguments gets "
    "the recorded answer",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}


def _response_name(status: int) -> str:
    return f"Error{status}"


def _refusal(status: int) -> dict[str, Any]:
    codes = [code for code, row in CODES.items() if row.http == status]
    own = REFUSALS.get(status)
    named = ", ".join(f"`{code}`" for code in dict.fromkeys([*codes, *([own] if own else [])]))
    refusal: dict[str, Any] = {
        "description": f"{_MEANINGS[status]}{f' ({named})' if named else ''}",
        "content": {JSON: {"schema": {"$ref": f"{_SCHEMAS}Error"}}},
    }
    if status in _WITH_HEADERS:
        name, about = _WITH_HEADERS[status]
        refusal["headers"] = {name: {"description": about, "schema": _TEXT}}
    return refusal


_WITH_HEADERS = {
    401: ("WWW-Authenticate", "The challenge (RFC 6750)"),
    405: ("Allow", "The methods of this path"),
    503: ("Retry-After", "Seconds to wait"),
}


def _health(name: str, about: str) -> dict[str, Any]:
    status = {"type": "object", "required": ["status"], "properties": {"status": _TEXT}}
    responses = {"200": {"description": about, "content": {JSON: {"schema": status}}}}
    if name == "readyz":
        stopping = {"description": "The server stops", "content": {JSON: {"schema": status}}}
        responses["503"] = stopping
    return {
        "get": {
            "operationId": f"server.{name}",
            "summary": about,
            "tags": ["server"],
            "security": [],
            "responses": responses,
        }
    }


_HEALTH = {
    "/healthz": _health("healthz", "The server runs"),
    "/readyz": _health("readyz", "The server takes calls"),
}
