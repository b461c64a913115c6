"""Swagger 2.0 in the forms of OpenAPI 3.0: parameters, bodies, responses, servers, security.

Pure functions over plain data. Schemas stay where they are, and so does every reference to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from callpact.schema import is_array, is_object

_NOT_SCHEMA = frozenset(
    {"name", "in", "required", "description", "collectionFormat", "allowEmptyValue", "schema"}
)
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_STYLES = {
    "ssv": ("spaceDelimited", False),
    "tsv": ("tabDelimited", False),
    "pipes": ("pipeDelimited", False),
    "multi": ("form", True),
}
_FLOWS = {
    "application": "clientCredentials",
    "accessCode": "authorizationCode",
    "implicit": "implicit",
    "password": "password",
}


def is_swagger(data: dict[str, Any]) -> bool:
    """True for a document of Swagger 2.0."""
    return "swagger" in data and "openapi" not in data


def server_of(data: dict[str, Any]) -> str:
    """The root of `schemes`, `host` and `basePath`; a relative one without a host."""
    host, base, schemes = data.get("host"), data.get("basePath"), data.get("schemes")
    base = base if isinstance(base, str) and base.startswith("/") else ""
    if not isinstance(host, str) or not host:
        return base or "/"
    names = [name for name in schemes if isinstance(name, str)] if is_array(schemes) else []
    scheme = "https" if "https" in names or not names else names[0]
    return f"{scheme}://{host}{base}"


def media_types(given: Any, shared: Any) -> list[str]:
    """The `consumes` or `produces` of an operation, else those of the document."""
    chosen = given if is_array(given) else shared
    return [name for name in chosen if isinstance(name, str)] if is_array(chosen) else []


def parameter(given: dict[str, Any]) -> dict[str, Any]:
    """A parameter of the path, the query or a header."""
    made: dict[str, Any] = {
        key: given[key] for key in ("name", "in", "required", "description") if key in given
    }
    made["schema"] = schema_of(given)
    if "x-example" in given:
        made["example"] = given["x-example"]
    if given.get("type") == "array":
        plain = "form" if given.get("in") == "query" else "simple"
        format_name = given.get("collectionFormat")
        style, explode = _STYLES.get(str(format_name), (plain, False))
        if plain == "simple":  # In paths and headers there are only commas.
            style, explode = plain, False
        made |= {"style": style, "explode": explode}
    return made


def schema_of(given: dict[str, Any]) -> dict[str, Any]:
    """The schema keywords that stand in a parameter itself."""
    return {key: value for key, value in given.items() if key not in _NOT_SCHEMA}


def form_body(fields: Iterable[dict[str, Any]], consumes: list[str]) -> dict[str, Any]:
    """The request body of `formData` parameters."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    encoding: dict[str, Any] = {}
    for each in fields:
        name = each.get("name")
        if not isinstance(name, str):
            continue
        schema = schema_of(each)
        if isinstance(each.get("description"), str):
            schema["description"] = each["description"]
        properties[name] = schema
        if each.get("required") is True:
            required.append(name)
        if each.get("type") == "array":
            style, explode = _STYLES.get(str(each.get("collectionFormat")), ("form", False))
            encoding[name] = {"style": style, "explode": explode}
    has_file = any(schema.get("type") == "file" for schema in properties.values())
    kind = _MULTIPART if has_file or (_MULTIPART in consumes and _FORM not in consumes) else _FORM
    schema = {"type": "object", "properties": properties, "required": required}
    media = {"schema": schema, "encoding": encoding}
    return {"required": bool(required), "content": {kind: media}}


def json_body(given: dict[str, Any], consumes: list[str]) -> dict[str, Any]:
    """The request body of a `body` parameter."""
    media = {"schema": given.get("schema", {})}
    if "x-example" in given:
        media["example"] = given["x-example"]
    kinds = consumes or ["application/json"]
    body: dict[str, Any] = {"required": given.get("required") is True}
    if "description" in given:
        body["description"] = given["description"]
    return body | {"content": dict.fromkeys(kinds, media)}


def response(given: dict[str, Any], produces: list[str]) -> dict[str, Any]:
    """One response."""
    made = {"description": given.get("description", "")}
    schema = given.get("schema")
    if not is_object(schema):
        return made
    if schema.get("type") == "file":
        kinds = [kind for kind in produces if "json" not in kind] or ["application/octet-stream"]
        schema = {"type": "string", "format": "binary"}
        return made | {"content": {kind: {"schema": schema} for kind in kinds}}
    return made | {
        "content": {kind: {"schema": schema} for kind in produces or ["application/json"]}
    }


def security_scheme(given: dict[str, Any]) -> dict[str, Any]:
    """One entry of `securityDefinitions`."""
    kind = given.get("type")
    if kind == "basic":
        return {"type": "http", "scheme": "basic"}
    if kind == "oauth2":
        flow = _FLOWS.get(str(given.get("flow")))
        return {"type": "oauth2", "flows": {} if flow is None else {flow: given}}
    return given
