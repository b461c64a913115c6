"""Reads the operations of an OpenAPI document: their names, parameters, bodies, responses, security.

Schemas are only located here and are converted when a tool is first used: a document of a thousand
operations costs no more than its reading. A broken operation is reported and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args
from urllib.parse import urljoin

import orjson

from callpact.errors import SourceRefused
from callpact.schema import is_array, is_object
from callpact.sources.base import Finding, Severity
from callpact.sources.openapi import swagger
from callpact.sources.openapi.openapi_document import (
    ApiDocument,
    Target,
    Unresolved,
    is_address,
)
from callpact.sources.openapi.operations import (
    Operation,
    ParameterPlace,
    PartEncoding,
    RequestBody,
    ResponseDeclaration,
    SecurityNeed,
    SecurityScheme,
    Style,
    WireParameter,
)
from callpact.sources.openapi.parameter_styles import is_json_type, preference

MAX_PATHS = 25_000
"""Paths of an OpenAPI document."""
MAX_OPERATIONS = 25_000
"""Operations of an OpenAPI document."""
MAX_EXAMPLE_BYTES = 10_000
"""Bytes of one example of an OpenAPI tool; longer ones are left out."""

EVENT_STREAM = "text/event-stream"
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "query")
READING = frozenset({"GET", "HEAD", "OPTIONS", "QUERY"})
"""Methods that change nothing."""
_BODILESS = frozenset({"GET", "HEAD"})
_PLACES = frozenset(get_args(ParameterPlace))
_STYLES = frozenset(get_args(Style))
_DEFAULT_STYLES: dict[str, Style] = {
    "path": "simple",
    "query": "form",
    "querystring": "form",
    "header": "simple",
    "cookie": "form",
}
# `deepObject` means nothing else.
_EXPLODED = frozenset({"form", "cookie", "deepObject"})
# The specification reserves these headers: they come from the media types and the security.
_RESERVED_HEADERS = frozenset({"accept", "content-type", "authorization"})
_BODY_ORDER = (
    "application/json",
    "application/merge-patch+json",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
)
_TEMPLATE = re.compile(r"\{([^{}]*)\}")
_NOT_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_NOT_ARGUMENT = re.compile(r"[^A-Za-z0-9_.-]+")
_NO_CONTENT = frozenset({"204", "205"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPlan:
    """An operation whose schemas are still to be converted, and where these are."""

    operation: Operation
    """Every schema in it is `True`."""
    inputs: dict[str, Target] = field(default_factory=dict[str, Target])
    """The schema of each argument that has one."""
    outputs: tuple[Target, ...] = ()
    """The different schemas of its successes; none if the output is unknown."""
    may_be_empty: bool = False
    """True if a success may have no content."""
    is_stream: bool = False
    examples: tuple[dict[str, Any], ...] = ()


class _Broken(Exception):
    """An operation cannot be used, with the place and the reason."""

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message)
        self.place = place


def version_of(document: ApiDocument) -> str:
    """The version of OpenAPI or Swagger that a document follows.

    Raises:
        SourceRefused: it is not such a document, or of a version that is not known.
    """
    data = document.data
    given = data.get("openapi", data.get("swagger"))
    version = str(given) if isinstance(given, str | float | int) else ""
    if ("openapi" in data and version.startswith("3.")) or version.startswith("2."):
        return version
    found = f"got {given!r:.40}" if given is not None else "found neither"
    raise SourceRefused(f"{document.root}: expected `openapi: 3.x` or `swagger: 2.0`, {found}")


class OperationReader:
    """Reads the operations of one document; what cannot be used becomes a finding."""

    def __init__(self, document: ApiDocument, shown: str, server: str | None = None) -> None:
        """`shown` names the document in findings; `server` replaces all of its servers."""
        self.findings: list[Finding] = []
        self._document = document
        self._data = document.data
        self._shown = shown
        self._is_swagger = swagger.is_swagger(self._data)
        self._server = None if server is None else server.rstrip("/")
        self._names: dict[str, str] = {}
        self._renamed: list[str] = []
        self._arguments: dict[str, str] = {}
        self._schemes: dict[str, SecurityScheme | None] = {}

    def read(self) -> list[OperationPlan]:
        """The operations that can be used.

        Raises:
            SourceRefused: there are no paths, or more than the limits allow.
        """
        paths = self._data.get("paths")
        if not is_object(paths):
            if paths is None and not self._is_swagger and "webhooks" in self._data:
                paths = {}
            else:
                raise SourceRefused(f"{self._shown}: `paths` must be an object")
        if len(paths) > MAX_PATHS:
            raise SourceRefused(f"{self._shown}: more than {MAX_PATHS:,} paths ({len(paths):,})")
        plans: list[OperationPlan] = []
        for path, item in paths.items():
            if not path.startswith("x-"):
                plans += self._read_path(path, item)
            if len(plans) > MAX_OPERATIONS:
                raise SourceRefused(f"{self._shown}: more than {MAX_OPERATIONS:,} operations")
        self._report_names()
        return plans

    def _report_names(self) -> None:
        if self._renamed:
            count, first = len(self._renamed), self._renamed[0]
            text = f"{count:,} names are made of letters, digits, '_', '-' and '.' alone: {first}"
            self._note("info", text, "/paths")
        for name, argument in self._arguments.items():
            self._note("info", f"the parameter '{name}' is the argument '{argument}'", "/paths")

    def _note(self, severity: Severity, message: str, place: str) -> None:
        line = self._document.line_of(place) if severity == "error" else None
        self.findings.append(Finding(self._shown, severity, message, path=place, line=line))

    # --- paths ------------------------------------------------------------------------------

    def _read_path(self, path: str, given: Any) -> Iterator[OperationPlan]:
        place = f"/paths/{_escaped(path)}"
        try:
            item = self._path_item(path, given, place)
            shared = self._parameters(item.value.get("parameters"), item.file, item.pointer)
        except _Broken as error:
            self._note("error", str(error), error.place)
            return
        for method, operation in self._methods(item):
            try:
                yield self._read_operation(path, method, operation, item, shared)
            except _Broken as error:
                text = f"{method.upper()} {path[:200]} is left out: {error}"
                self._note("error", text, error.place)

    def _path_item(self, path: str, given: Any, place: str) -> Target:
        if not path.startswith("/"):
            raise _Broken(f"the path '{path[:100]}' must begin with '/'", place)
        item = self._followed(given, self._document.root, place)
        if not is_object(item.value):
            raise _Broken("a path must be an object", place)
        if is_object(given) and "$ref" in given:
            beside = {key: value for key, value in given.items() if key != "$ref"}
            item = item._replace(value={**item.value, **beside})
        return item

    def _methods(self, item: Target) -> Iterator[tuple[str, Target]]:
        for method in _METHODS:
            if method in item.value:
                place = f"{item.pointer}/{method}"
                yield method, Target(item.value[method], item.file, place)
        others = item.value.get("additionalOperations")
        for method, value in others.items() if is_object(others) else ():
            place = f"{item.pointer}/additionalOperations/{_escaped(method)}"
            yield method, Target(value, item.file, place)

    def _read_operation(
        self, path: str, method: str, given: Target, item: Target, shared: list[Target]
    ) -> OperationPlan:
        found = self._followed(*given)
        operation, file, place = found
        if not is_object(operation):
            raise _Broken("an operation must be an object", given.pointer)
        own = self._parameters(operation.get("parameters"), file, place)
        parameters = _overridden(shared, own)
        body = self._body(operation, file, place)
        if self._is_swagger:
            parameters, body = self._split(parameters, operation, place)
        if body is not None and method.upper() in _BODILESS:
            # Its meaning is not defined; many documents declare one that is never sent.
            body = body if body.value.get("required") is True else None
        inputs: dict[str, Target] = {}
        wire = self._wire_parameters(parameters, path, inputs, place)
        taken = {each.argument for each in wire}
        request_body = None if body is None else self._request_body(body, taken, inputs)
        responses = self._responses(operation, file, place)
        return OperationPlan(
            operation=Operation(
                name=self._name(operation.get("operationId"), method, path, given.pointer),
                operation_id=_text(operation.get("operationId")) or None,
                method=method.upper(),
                path=path.partition("#")[0],
                server=self._root(operation, item.value, place),
                pointer=given.pointer,
                parameters=tuple(wire),
                body=request_body,
                responses=tuple(declared for declared, _ in responses),
                security=self._security(operation, place),
                tags=_texts(operation.get("tags")),
                summary=_text(operation.get("summary")),
                description=self._words(operation.get("description"), file, place),
                deprecated=operation.get("deprecated") is True,
            ),
            inputs=inputs,
            examples=self._examples(wire, parameters, request_body, body),
            **self._output(method, responses),
        )

    def _followed(self, value: Any, file: str, place: str) -> Target:
        try:
            return self._document.followed(value, file, place)
        except Unresolved as error:
            raise _Broken(str(error), place) from None

    def _words(self, value: Any, file: str, place: str) -> str:
        return _text(self._followed(value, file, place).value)

    # --- names ------------------------------------------------------------------------------

    def _name(self, given: Any, method: str, path: str, place: str) -> str:
        if isinstance(given, str) and given:
            name = _legal(given)
            if name != given:
                self._renamed.append(f"'{given[:100]}' is {name}")
            longer = name
        else:
            parts = [part for part in path.partition("?")[0].split("/") if part]
            kept = [part for part in parts if not _TEMPLATE.search(part)] or ["root"]
            name = _legal("_".join([method.lower(), *kept]))
            longer = _legal("_".join([name, "by", *_TEMPLATE.findall(path)]))
        unique, number = name if name not in self._names else longer, 1
        while unique in self._names:
            number += 1
            unique = f"{longer}_{number}"
        if unique != name:
            text = f"'{name}' is the name of {self._names[name]}; this one is '{unique}'"
            self._note("warning", text, place)
        self._names[unique] = f"{method.upper()} {path[:200]}"
        return unique

    # --- parameters -------------------------------------------------------------------------

    def _parameters(self, given: Any, file: str, place: str) -> list[Target]:
        if given is None:
            return []
        if not is_array(given):
            raise _Broken("`parameters` must be a list", f"{place}/parameters")
        found: list[Target] = []
        for index, each in enumerate(given):
            at = f"{place}/parameters/{index}"
            target = self._followed(each, file, at)
            value = target.value
            if not is_object(value) or not isinstance(value.get("name"), str) or not value["name"]:
                raise _Broken("a parameter must have a `name`", at)
            kinds = _PLACES | {"body", "formData"} if self._is_swagger else _PLACES
            if _text(value.get("in")) not in kinds:
                expected = ", ".join(sorted(kinds))
                raise _Broken(f"`in` must be one of {expected}, got {value.get('in')!r:.40}", at)
            found.append(target)
        return found

    def _split(
        self, parameters: list[Target], operation: dict[str, Any], place: str
    ) -> tuple[list[Target], Target | None]:
        """The parameters of Swagger 2.0 in the form of 3.0, and the body that some of them make."""
        consumes = swagger.media_types(operation.get("consumes"), self._data.get("consumes"))
        plain: list[Target] = []
        fields: list[Target] = []
        body: Target | None = None
        for each in parameters:
            if each.value["in"] == "body":
                body = each._replace(value=swagger.json_body(each.value, consumes))
            elif each.value["in"] == "formData":
                fields.append(each)
            else:
                plain.append(each._replace(value=swagger.parameter(each.value)))
        if fields and body is None:
            made = swagger.form_body([each.value for each in fields], consumes)
            body = Target(made, fields[0].file, f"{place}/parameters")
        return plain, body

    def _wire_parameters(
        self, parameters: list[Target], path: str, inputs: dict[str, Target], place: str
    ) -> list[WireParameter]:
        names = _TEMPLATE.findall(path)
        made: list[WireParameter] = []
        taken: set[str] = set()
        for each in parameters:
            value = each.value
            name, where = value["name"], value["in"]
            if where == "header" and name.lower() in _RESERVED_HEADERS:
                continue
            if where == "path" and name not in names:
                text = f"the path parameter '{name[:100]}' is ignored: the path has no {{{name[:100]}}}"
                self._note("warning", text, each.pointer)
                continue
            argument = self._argument(name, where, taken, each.pointer)
            parameter, schema = self._wire_parameter(each, argument)
            made.append(parameter)
            if schema is not None:
                inputs[argument] = schema
        declared = {each.name for each in made if each.place == "path"}
        for name in dict.fromkeys(names):
            if name not in declared:
                text = f"the path parameter '{name[:100]}' is not declared; it is taken as text"
                self._note("warning", text, place)
                argument = self._argument(name or "path", "path", taken, place)
                made.append(
                    WireParameter(
                        name=name,
                        argument=argument,
                        place="path",
                        required=True,
                        style="simple",
                        explode=False,
                    )
                )
                inputs[argument] = Target({"type": "string"}, self._document.root, place)
        return made

    def _argument(self, name: str, where: str, taken: set[str], place: str) -> str:
        """The name of an argument: legal for every model provider, and the only one."""
        legal = _NOT_ARGUMENT.sub("_", name).strip("_")[:64] or "value"
        if _NOT_ARGUMENT.search(name):
            self._arguments.setdefault(name, legal)
        argument, number = legal, 1
        while argument in taken:
            argument = f"{legal[:50]}_{where}" + (f"_{number}" if number > 1 else "")
            number += 1
        if argument != legal:
            text = f"another argument is called '{legal}'; that of the {where} is '{argument}'"
            self._note("info", text, place)
        taken.add(argument)
        return argument

    def _wire_parameter(self, found: Target, argument: str) -> tuple[WireParameter, Target | None]:
        value, file, place = found
        where = cast("ParameterPlace", value["in"])
        kind: str | None = None
        schema, at = value.get("schema"), f"{place}/schema"
        content = value.get("content")
        if is_object(content) and content:
            kind = next(iter(content))
            at = f"{place}/content/{_escaped(kind)}"
            media = self._followed(content[kind], file, at)
            schema, file, at = _member(media, "schema")
        given = value.get("style")
        style = _DEFAULT_STYLES[where]
        if isinstance(given, str) and given in _STYLES:
            style = cast("Style", given)
        elif given is not None:
            self._note("warning", f"the style {given!r:.40} is not known; '{style}' is used", place)
        explode = value.get("explode")
        parameter = WireParameter(
            name=value["name"],
            argument=argument,
            place=where,
            required=where == "path" or value.get("required") is True,
            style=style,
            explode=explode if isinstance(explode, bool) else style in _EXPLODED,
            allow_reserved=value.get("allowReserved") is True,
            content_type=kind,
            description=_text(value.get("description")),
            deprecated=value.get("deprecated") is True,
        )
        return parameter, None if schema is None else Target(schema, file, at)

    # --- bodies -----------------------------------------------------------------------------

    def _body(self, operation: dict[str, Any], file: str, place: str) -> Target | None:
        if self._is_swagger or operation.get("requestBody") is None:
            return None
        body = self._followed(operation["requestBody"], file, f"{place}/requestBody")
        if not is_object(body.value) or not is_object(body.value.get("content")):
            raise _Broken("a request body must have `content`", f"{place}/requestBody")
        return body if body.value["content"] else None

    def _request_body(
        self, body: Target, taken: set[str], inputs: dict[str, Target]
    ) -> RequestBody:
        content = body.value["content"]
        kind = _chosen(content)
        at = f"{body.pointer}/content/{_escaped(kind)}"
        media = self._followed(content[kind], body.file, at)
        if not is_object(media.value):
            raise _Broken("a media type must be an object", at)
        argument = self._argument("body", "body", taken, body.pointer)
        schema = _member(media, "schema")
        if schema.value is not None:
            inputs[argument] = schema
        encodings = media.value.get("encoding")
        return RequestBody(
            content_type=kind,
            argument=argument,
            required=body.value.get("required") is True,
            encodings={
                name: self._encoding(each, media)
                for name, each in (encodings.items() if is_object(encodings) else ())
                if is_object(each)
            },
            description=_text(body.value.get("description")),
        )

    def _encoding(self, given: dict[str, Any], media: Target) -> PartEncoding:
        style, explode = given.get("style"), given.get("explode")
        known = cast("Style", style) if isinstance(style, str) and style in _STYLES else None
        headers: list[WireParameter] = []
        declared = given.get("headers")
        for name, each in declared.items() if is_object(declared) else ():
            header = self._followed(each, media.file, media.pointer)
            if is_object(header.value) and name.lower() != "content-type":
                value = {**header.value, "name": name, "in": "header"}
                headers.append(self._wire_parameter(header._replace(value=value), name)[0])
        return PartEncoding(
            content_type=_text(given.get("contentType")) or None,
            headers=tuple(headers),
            style=known,
            explode=explode if isinstance(explode, bool) else known in {None, "form"},
            allow_reserved=given.get("allowReserved") is True,
        )

    # --- responses --------------------------------------------------------------------------

    def _responses(
        self, operation: dict[str, Any], file: str, place: str
    ) -> list[tuple[ResponseDeclaration, dict[str, Target]]]:
        given = operation.get("responses")
        produces = swagger.media_types(operation.get("produces"), self._data.get("produces"))
        found: list[tuple[ResponseDeclaration, dict[str, Target]]] = []
        for status, each in given.items() if is_object(given) else ():
            if status.startswith("x-"):
                continue
            at = f"{place}/responses/{_escaped(status)}"
            try:
                target = self._document.followed(each, file, at)
            except Unresolved as error:
                self._note("warning", f"{error}; the response {status} is unknown", at)
                continue
            value = target.value
            if not is_object(value):
                continue
            if self._is_swagger:
                value = swagger.response(value, produces)
            content = value.get("content")
            schemas: dict[str, Target] = {}
            for kind, media in content.items() if is_object(content) else ():
                inner = f"{target.pointer}/content/{_escaped(kind)}"
                schemas[kind.lower()] = self._media_schema(media, target, inner)
            declared = ResponseDeclaration(
                status=status.upper() if status != "default" else status,
                content=dict.fromkeys(schemas, True),
                description=_text(value.get("description")),
            )
            found.append((declared, schemas))
        return found

    def _media_schema(self, media: Any, response: Target, place: str) -> Target:
        if self._is_swagger:
            return Target(media["schema"], response.file, f"{response.pointer}/schema")
        try:
            found = self._document.followed(media, response.file, place)
        except Unresolved as error:
            self._note("warning", f"{error}; its schema is unknown", place)
            return Target(None, response.file, place)
        if not is_object(found.value):
            return Target(None, response.file, place)
        name = "itemSchema" if "itemSchema" in found.value else "schema"
        return _member(found, name)

    def _output(
        self, method: str, responses: list[tuple[ResponseDeclaration, dict[str, Target]]]
    ) -> dict[str, Any]:
        """The output of the successes: each JSON schema once, and whether there may be nothing."""
        if method.upper() == "HEAD":
            return {}
        successes = sorted(
            (each for each in responses if each[0].status.startswith("2")),
            key=lambda each: _RANKS.get(each[0].status, 2),
        ) or [each for each in responses if each[0].status == "default"]
        outputs: list[Target] = []
        may_be_empty = is_unknown = False
        for index, (declared, schemas) in enumerate(successes):
            kinds = sorted(filter(is_json_type, schemas), key=preference)
            if not schemas or declared.status in _NO_CONTENT:
                may_be_empty = True
            elif kinds:
                outputs.append(schemas[kinds[0]])
            elif EVENT_STREAM in _plain_kinds(schemas):
                stream = next(schemas[kind] for kind in schemas if kind.startswith(EVENT_STREAM))
                if index == 0:
                    known = (stream,) if stream.value is not None else ()
                    return {"is_stream": True, "outputs": known}
                is_unknown = True
            elif any(kind.startswith("text/") for kind in schemas):
                outputs.append(Target({"type": "string"}, self._document.root, ""))
        if is_unknown or not outputs or any(each.value is None for each in outputs):
            return {}
        if all(each.value == {"type": "string"} for each in outputs):
            return {"outputs": (outputs[0],), "may_be_empty": may_be_empty}
        different: list[Target] = []
        for each in outputs:
            if not any((each.value, each.file) == (one.value, one.file) for one in different):
                different.append(each)
        return {"outputs": tuple(different), "may_be_empty": may_be_empty}

    # --- servers and security ---------------------------------------------------------------

    def _root(self, operation: dict[str, Any], item: dict[str, Any], place: str) -> str:
        """The root of an operation; empty if it is relative and the document has no address."""
        if self._server is not None:
            return self._server
        if self._is_swagger:
            url = swagger.server_of(self._data)
        else:
            holders = (operation, item, self._data)
            lists = (holder.get("servers") for holder in holders)
            servers = next((each for each in lists if is_array(each) and each), [{"url": "/"}])
            url = _server_url(servers[0], place)
        if "://" not in url and is_address(self._document.root):
            url = urljoin(self._document.root, url)
        return url.rstrip("/") if "://" in url else ""

    def _security(
        self, operation: dict[str, Any], place: str
    ) -> tuple[tuple[SecurityNeed, ...], ...]:
        given = operation.get("security", self._data.get("security"))
        alternatives: list[tuple[SecurityNeed, ...]] = []
        for each in given if is_array(given) else ():
            if not is_object(each):
                continue
            needs: list[SecurityNeed] = []
            for name, scopes in each.items():
                scheme = self._scheme(name, place)
                if scheme is None:
                    break
                needs.append(SecurityNeed(scheme=scheme, scopes=_texts(scopes)))
            else:
                alternatives.append(tuple(needs))
        return tuple(alternatives)

    def _scheme(self, name: str, place: str) -> SecurityScheme | None:
        if name not in self._schemes:
            try:
                self._schemes[name] = self._read_scheme(name)
            except _Broken as error:
                self._note("warning", f"{error}; it is ignored", place)
                self._schemes[name] = None
        return self._schemes[name]

    def _read_scheme(self, name: str) -> SecurityScheme:
        components = self._data.get("components")
        place = f"/components/securitySchemes/{_escaped(name)}"
        schemes = components.get("securitySchemes") if is_object(components) else None
        if self._is_swagger:
            schemes, place = self._data.get("securityDefinitions"), "/securityDefinitions"
        given = schemes.get(name) if is_object(schemes) else None
        value = self._followed(given, self._document.root, place).value
        if not is_object(value):
            raise _Broken(f"the security scheme '{name[:100]}' is not declared", place)
        if self._is_swagger:
            value = swagger.security_scheme(value)
        kind, where = _text(value.get("type")), _text(value.get("in"))
        if kind not in {"apiKey", "http", "oauth2", "openIdConnect", "mutualTLS"}:
            raise _Broken(f"the security scheme '{name[:100]}' is of no known type", place)
        if kind == "apiKey" and where not in {"query", "header", "cookie"}:
            raise _Broken(f"the key '{name[:100]}' must be in query, header or cookie", place)
        flows = value.get("flows")
        flow = flows.get("clientCredentials") if is_object(flows) else None
        return SecurityScheme(
            name=name,
            kind=cast("Any", kind),
            place=cast("Any", where) if kind == "apiKey" else None,
            key_name=_text(value.get("name")),
            http_scheme=_text(value.get("scheme")).lower(),
            token_url=(_text(flow.get("tokenUrl")) or None) if is_object(flow) else None,
            discovery_url=_text(value.get("openIdConnectUrl")) or None,
        )

    # --- examples ---------------------------------------------------------------------------

    def _examples(
        self,
        wire: list[WireParameter],
        parameters: list[Target],
        request_body: RequestBody | None,
        body: Target | None,
    ) -> tuple[dict[str, Any], ...]:
        """Arguments of whole calls: of every required parameter, and of the body."""
        given = {(each.value["in"], each.value["name"]): each for each in parameters}
        arguments: dict[str, Any] = {}
        for each in wire:
            if each.required:
                target = given.get((each.place, each.name))
                values = [] if target is None else self._example_values(target)
                if not values:
                    return ()
                arguments[each.argument] = values[0]
        found = [arguments] if arguments else []
        if request_body is not None and body is not None:
            media = body._replace(value=body.value["content"][request_body.content_type])
            bodies = self._example_values(self._followed(*media))
            if bodies:
                found = [{**arguments, request_body.argument: value} for value in bodies[:3]]
            elif request_body.required:
                return ()
        return tuple(each for each in found if _is_short(each))

    def _example_values(self, target: Target) -> list[Any]:
        value = target.value
        if not is_object(value):
            return []
        if "example" in value:
            return [value["example"]]
        named, schema = value.get("examples"), value.get("schema")
        found: list[Any] = []
        for each in list(named.values())[:3] if is_object(named) else ():
            try:
                example = self._document.followed(each, target.file, target.pointer).value
            except Unresolved:
                continue
            if is_object(example) and "value" in example:
                found.append(example["value"])
        if not found and is_object(schema) and "example" in schema:
            found.append(schema["example"])
        return found


_RANKS = {"200": 0, "201": 1}


def _overridden(shared: list[Target], own: list[Target]) -> list[Target]:
    """The parameters of a path, each replaced by that of the operation with the same name."""
    merged = {(each.value["in"], each.value["name"]): each for each in shared}
    merged |= {(each.value["in"], each.value["name"]): each for each in own}
    return list(merged.values())


def _chosen(content: dict[str, Any]) -> str:
    """The media type of a body: JSON first, then forms, then the first that is declared."""
    kinds = {kind.partition(";")[0].strip().lower(): kind for kind in reversed(content)}
    for kind in _BODY_ORDER[:2]:
        if kind in kinds:
            return kinds[kind]
    for plain, kind in reversed(kinds.items()):
        if is_json_type(plain) and "json-patch" not in plain:
            return kind
    for kind in _BODY_ORDER[2:]:
        if kind in kinds:
            return kinds[kind]
    return next(iter(content))


def _plain_kinds(kinds: Iterable[str]) -> set[str]:
    return {kind.partition(";")[0].strip().lower() for kind in kinds}


def _member(holder: Target, name: str) -> Target:
    value = holder.value.get(name) if is_object(holder.value) else None
    return Target(value, holder.file, f"{holder.pointer}/{name}")


def _server_url(given: Any, place: str) -> str:
    url = given.get("url") if is_object(given) else None
    if not isinstance(url, str):
        raise _Broken("a server must have a `url`", place)
    variables = given.get("variables")

    def value_of(found: re.Match[str]) -> str:
        variable = variables.get(found[1]) if is_object(variables) else None
        default = variable.get("default") if is_object(variable) else None
        if not isinstance(default, str | int | float):
            raise _Broken(f"the variable '{found[1][:100]}' of the server has no default", place)
        return str(default)

    return _TEMPLATE.sub(value_of, url.strip())


def _legal(text: str) -> str:
    """A part of a tool's id: letters, digits, `_`, `-`, and single dots inside."""
    name = re.sub(r"\.{2,}", ".", _NOT_NAME.sub("_", text))
    return name.strip("._") or "operation"


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> tuple[str, ...]:
    return (
        tuple(each for each in value if isinstance(each, str) and each) if is_array(value) else ()
    )


def _is_short(value: Any) -> bool:
    try:
        return len(orjson.dumps(value)) <= MAX_EXAMPLE_BYTES
    except (TypeError, ValueError, RecursionError):
        return False


def with_schemas(
    operation: Operation, schemas: dict[str, Any], definitions: dict[str, Any]
) -> Operation:
    """The operation with the converted schema of each argument, and the definitions of these."""
    parameters = tuple(
        replace(each, schema=schemas.get(each.argument, True)) for each in operation.parameters
    )
    body = operation.body
    if body is not None:
        body = replace(body, schema=schemas.get(body.argument, True))
    return replace(operation, parameters=parameters, body=body, definitions=definitions)
