"""Every rule of the seeds, as a row: what it says, and what became of it.

`held` rows are proved by at least one test that names them with `@pytest.mark.requirement(id)`;
`divergent` ones too, with the ruling in `note`; `deferred` ones say what they wait for. Seeds 000,
002 and 003 join with the parts that build them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Status = Literal["held", "divergent", "deferred"]


class Requirement(NamedTuple):
    """One MUST, SHOULD, rule or table row of a seed, in short words."""

    id: str
    sentence: str
    status: Status = "held"
    note: str = ""

    @property
    def seed(self) -> str:
        """The seed's number, as in `seeds/`."""
        return self.id.partition(".")[0]


_MCP = "waits for the MCP source (from_mcp)"
_OPENAPI = "waits for the OpenAPI source (from_openapi)"
_INTERACTIVE = "waits for Interactive Tools and component allowlists"
_AUDIT = "waits for the audit log; the event CallFinished already carries it"
_PACKAGES = "waits for packages and their versions"
_LINT = "waits for the authoring lint at publish"


def _deferred(note: str, rows: dict[str, str]) -> tuple[Requirement, ...]:
    """Rows that wait for the same thing."""
    return tuple(Requirement(key, sentence, "deferred", note) for key, sentence in rows.items())


SEED_001: tuple[Requirement, ...] = (
    # -- Types
    Requirement("001.types.envelope", "A result is {data, meta}."),
    Requirement("001.types.source-discriminates", "meta is one of three kinds, told by source."),
    Requirement(
        "001.types.local-meta",
        "local: operationId is namespace.name, timestamp epoch milliseconds, set when wrapped.",
    ),
    Requirement("001.types.http-meta", "http: statusCode, headers as a map of texts, contentType."),
    Requirement(
        "001.types.http-set-cookie",
        "Joined headers do not keep Set-Cookie apart (a known limitation).",
        "divergent",
        "design.md section 6, ruling 5: headers stay a map, setCookie is a list beside it",
    ),
    Requirement("001.types.mcp-meta", "mcp: isError, content, structuredContent?, _meta?."),
    Requirement(
        "001.types.mcp-structured-content",
        "structuredContent, if present, is an object.",
        "divergent",
        "design.md section 3: any JSON value; absent is a sentinel, not None",
    ),
    Requirement("001.types.content-blocks", "Five kinds of content block, with these fields."),
    # -- Detection
    Requirement(
        "001.detect.is-response-envelope",
        "An envelope is an object with data and a meta whose source is known; nothing else is.",
    ),
    Requirement("001.detect.closed-sources", "The sources are a closed, registered list."),
    Requirement("001.detect.json-serializable", "Detection works across JSON."),
    # -- Factories, unwrap, schemas
    Requirement("001.factories.local", "local_envelope(data, operation_id) stamps the time."),
    Requirement("001.factories.http", "http_envelope(data, status, headers, content type)."),
    Requirement("001.factories.mcp", "mcp_envelope(data, is_error, content, …)."),
    Requirement("001.factories.void-data", "A handler without a result gives a valid envelope."),
    Requirement("001.unwrap.returns-data", "unwrap(envelope) is envelope.data."),
    Requirement("001.schemas.envelope", "A schema of the envelope: data unknown, meta a union."),
    Requirement("001.schemas.metas", "A schema of each meta, and of content blocks."),
    # -- execute
    Requirement("001.execute.returns-envelope", "execute returns an envelope, never a raw value."),
    Requirement("001.execute.looks-up", "1. Look the tool up."),
    Requirement("001.execute.validates-input", "2. Validate the input, or raise."),
    Requirement("001.execute.awaits-if-awaitable", "3. Await what the handler gives."),
    Requirement("001.execute.envelopes-pass-through", "4. An envelope passes as it is."),
    Requirement("001.execute.wraps-raw-values", "5. Anything else is wrapped as local."),
    Requirement(
        "001.execute.output-warns-only",
        "6. data that breaks the output schema is a warning, never an error.",
        "divergent",
        "design.md section 3: so under pass, warn and cast; policy reject (seed 004) raises",
    ),
    Requirement("001.execute.order", "7. The steps run in this order; the envelope is returned."),
    Requirement(
        "001.execute.source-is-not-checked",
        "Whether a handler's envelope fits the tool's origin is not asked.",
    ),
    Requirement("001.execute.casts", "With a meaningful output schema, data is cast to it."),
    # -- CallHandler
    Requirement(
        "001.callhandler.owns-responded", "The CallHandler alone publishes call.responded."
    ),
    Requirement("001.callhandler.looks-up", "1. Look up tool and handler."),
    Requirement("001.callhandler.access", "2. Check access."),
    Requirement("001.callhandler.validates", "3. Validate the input."),
    Requirement("001.callhandler.captures-result", "4. Call the handler, keep what it returns."),
    Requirement("001.callhandler.detects", "5. An envelope is used directly."),
    Requirement("001.callhandler.wraps", "6. Anything else is wrapped as local."),
    Requirement(
        "001.callhandler.warns",
        "7. Output is validated, warning only.",
        "divergent",
        "as 001.execute.output-warns-only: so under pass, warn and cast; reject gives call.error",
    ),
    Requirement(
        "001.callhandler.responds", "8. call.responded through the map, with the envelope."
    ),
    Requirement("001.callhandler.errors", "9. An exception becomes call.error."),
    Requirement(
        "001.callhandler.is-error-responds",
        "An envelope with meta.isError does not trigger call.error.",
    ),
    Requirement(
        "001.callhandler.order", "The steps run in this order, and end at the first failure."
    ),
    Requirement(
        "001.callhandler.handlers-publish-nothing", "Handlers return values, they publish nothing."
    ),
    # -- PendingRequestMap
    Requirement("001.respond.guards", "respond() takes envelopes only and raises otherwise."),
    Requirement(
        "001.respond.guard-is-the-detector",
        "The guard of respond() is the detector, not a full validation of the schema.",
    ),
    Requirement("001.call.resolves-with-envelope", "call() resolves with the envelope."),
    # -- subscribe
    Requirement(
        "001.subscribe.wraps-each",
        "Handlers yield raw values; each is wrapped, with a fresh timestamp.",
    ),
    Requirement("001.subscribe.envelopes-pass", "A yielded envelope passes as it is."),
    # -- buildEnv
    Requirement("001.env.returns-envelopes", "Each function of the env returns an envelope."),
    # -- CallEventSchema
    Requirement(
        "001.events.responded-schema", "call.responded.output has the schema of the envelope."
    ),
    Requirement("001.events.request-id", "call.responded names its request: requestId, a text."),
    Requirement(
        "001.events.envelope-is-validated",
        "The envelope of the call protocol is validated by its own schema, data by the tool's.",
    ),
    # -- MCP
    Requirement("001.mcp.is-error-is-data", "isError is a result, not an exception."),
    Requirement(
        "001.mcp.no-schema-blocks-are-data",
        "Without structured content the content blocks are the data.",
    ),
    Requirement(
        "001.mcp.structured-content-is-normalised",
        "Structured content is cast to the output schema; meta keeps the original.",
    ),
    *_deferred(
        _MCP,
        {
            "001.mcp.output-schema-extracted": "SHOULD take outputSchema from the tool's definition.",
            "001.mcp.structured-preferred": "structuredContent is the data when it is there.",
            "001.mcp.content-always-in-meta": "meta.content always holds every block.",
            "001.mcp.blocks-map-one-to-one": "SDK blocks map one to one to ours.",
            "001.mcp.unknown-blocks-become-text": "An unknown block becomes a text block of its JSON.",
            "001.mcp.transport-errors-raise": "Transport errors and unknown tools raise CallError.",
            "001.mcp.unknown-schema-is-untouched": "Without outputSchema nothing is cast.",
            "001.open.json-in-text": "JSON in text blocks: whether to parse it is open.",
            "001.migration.from-mcp-envelope": "from_mcp returns mcp envelopes; isError does not throw.",
            "001.migration.from-mcp-schema": "from_mcp takes outputSchema, else unknown.",
        },
    ),
    # -- OpenAPI
    Requirement("001.openapi.normalises", "An HTTP answer is cast to the output schema."),
    *_deferred(
        _OPENAPI,
        {
            "001.openapi.error-status-raises": "An HTTP error status raises CallError.",
            "001.openapi.json-is-parsed": "application/json is parsed.",
            "001.openapi.text-is-text": "text/* is text.",
            "001.openapi.rest-is-bytes": "Anything else is bytes.",
            "001.openapi.content-type-may-be-empty": "No Content-Type is the empty text.",
            "001.openapi.headers-joined": "Repeated headers are joined with a comma.",
            "001.migration.from-openapi": "from_openapi returns http envelopes; error status raises.",
        },
    ),
    # -- Value.Cast
    Requirement("001.cast.strips-excess", "Properties that the schema lacks are stripped."),
    Requirement(
        "001.cast.fills-defaults",
        "Missing properties are filled with their defaults.",
        "divergent",
        "envelopes.md section 6: as the library was measured; required ones only",
    ),
    Requirement(
        "001.cast.upcasts",
        "Values are upcast to the declared type.",
        "divergent",
        "design.md section 3: lossless conversion first, then the bare cast, which invents",
    ),
    # -- outputSchema and validation
    Requirement("001.output.judges-data-not-envelope", "The output schema judges data only."),
    Requirement("001.output.warns-before-cast", "Warnings are collected on the raw data."),
    Requirement("001.output.normalizes", "Then the data is normalised."),
    Requirement("001.output.unknown-is-skipped", "An unknown output schema skips both."),
    # -- Constraints
    Requirement("001.constraint.no-overhead-for-handlers", "1. Local handlers return raw values."),
    Requirement(
        "001.constraint.envelope-at-boundary", "2. call.responded never carries a raw value."
    ),
    Requirement("001.constraint.factories", "3. Sources make envelopes by the factories only."),
    Requirement("001.constraint.own-content-blocks", "4. Block types are our own, no SDK needed."),
    Requirement("001.constraint.no-transitional-api", "5. There is no second, raw way to call."),
    Requirement("001.constraint.unwrap", "6. unwrap is the simple path."),
    Requirement("001.constraint.output-schema-judges-data", "7. Two schemas, two jobs."),
    Requirement("001.constraint.sole-detection", "8. is_response_envelope is the only detector."),
    # -- Open questions
    Requirement(
        "001.open.client-abstraction",
        "A client that handles isError is open.",
        "divergent",
        "envelopes.md section 8, 1: no client; raise_for_error(envelope)",
    ),
    Requirement(
        "001.open.output-schema-fallback",
        "An output schema that cannot be converted falls back to unknown.",
        "divergent",
        "design.md section 2: kept with output unknown and a warning in the load report; "
        "a Contract made by hand raises InvalidSchema",
    ),
    Requirement(
        "001.open.subscription-metadata",
        "Sequence numbers for subscriptions are open.",
        "divergent",
        "envelopes.md section 8, 2: seq on call.responded, count on call.completed; meta is as it was",
    ),
    Requirement(
        "001.open.respond-visibility",
        "respond() may become internal.",
        "divergent",
        "design.md section 6, ruling 5: it stays public, and guarded",
    ),
    *_deferred(
        "waits for the doors: renderings in wire/ and serve/ bring their own proofs",
        {"001.open.serving": "How envelopes are served over MCP and HTTP is open."},
    ),
    # -- Migration; rows about documents are proved against the reference pages, too
    Requirement("001.migration.execute-type", "execute() returns an envelope."),
    Requirement(
        "001.migration.handler-returns", "CallHandler: handlers return, it wraps and publishes."
    ),
    Requirement(
        "001.migration.respond-validates", "respond() validates and resolves with an envelope."
    ),
    Requirement("001.migration.responded-output", "CallEventMap: responded.output is an envelope."),
    Requirement("001.migration.call-type", "call() resolves with an envelope instead of unknown."),
    Requirement("001.migration.subscribe-type", "subscribe() yields envelopes."),
    Requirement("001.migration.env-type", "OperationEnv: inner functions return envelopes."),
    Requirement("001.migration.callhandler-api", "CallHandler is described with the new model."),
    Requirement(
        "001.migration.respond-breaking", "respond() raises on raw values: a breaking change."
    ),
    Requirement("001.migration.respond-api", "respond() requires an envelope."),
    Requirement(
        "001.migration.direct-listeners", "Direct listeners on call.responded get envelopes too."
    ),
    # -- Invariants that follow (envelopes.md sections 3 and 9); the others have rows above
    Requirement(
        "001.invariant.wrapped-once", "Wrapping happens once; an envelope in data is not unwrapped."
    ),
    Requirement(
        "001.invariant.is-error-never-raises", "isError raises nowhere: call, stream, env, bus."
    ),
    Requirement(
        "001.invariant.round-trip",
        "An envelope is one after a JSON round trip, also that of a void result.",
    ),
    Requirement(
        "001.invariant.errors-cross-the-bus",
        "Every CallError crosses the bus with code, message and JSON details.",
    ),
    Requirement("001.invariant.never-trusted", "A request can never say that it is trusted."),
)

SEED_004: tuple[Requirement, ...] = (
    # -- Where validation runs
    Requirement(
        "004.gate.first",
        "Schema validation is the first gate of every call.",
        "divergent",
        "design.md section 3: at the doors access comes first, so that strangers learn nothing",
    ),
    Requirement("004.gate.bad-input-never-reaches-handler", "Bad input never reaches the handler."),
    Requirement("004.gate.generated", "The input schema is generated from the properties block."),
    Requirement("004.gate.json-schema", "It is a JSON Schema, and judged as one."),
    Requirement("004.gate.binary", "The result is pass or reject, nothing between."),
    # -- What gets validated
    Requirement("004.gate.required", "Required fields present."),
    Requirement("004.gate.types", "Field types match."),
    Requirement("004.gate.enum", "enum values."),
    Requirement("004.gate.min-max", "min and max of numbers."),
    Requirement("004.gate.length", "minLength and maxLength of texts."),
    Requirement("004.gate.items", "minItems and maxItems of arrays."),
    Requirement("004.gate.pattern", "pattern of texts."),
    Requirement("004.gate.groups", "Nested groups, recursively."),
    Requirement("004.gate.array-items", "Items of arrays match valueType."),
    *_deferred(
        _INTERACTIVE,
        {
            "004.gate.allowlist-apart": "The allowlist is checked apart, after the schema.",
            "004.components.input-schema": "An Interactive Tool's input schema is checked first.",
            "004.components.palette": "A component must be on the project's palette.",
            "004.components.slot": "A component must be on the slot's allowlist.",
            "004.components.before-renderer": "Both gates end before the renderer.",
        },
    ),
    # -- Rejections
    Requirement("004.error.shape", "A rejection is {error: {code, message, path}}."),
    Requirement("004.error.example", "The seed's example, to the letter."),
    Requirement("004.retry.by-the-ai", "The model retries; the server keeps no loop."),
    Requirement("004.user.exhausted-message", "The user reads that the input had another format."),
    # -- Designing schemas
    Requirement("004.design.description", "Descriptions reach the model."),
    Requirement("004.design.enum", "A fixed set of values is an enum of the published schema."),
    Requirement("004.design.defaults", "Optional values have defaults, which the handler sees."),
    Requirement("004.design.no-empty-input", "minLength and minItems stop empty input."),
    *_deferred(_LINT, {"004.design.loose-patterns": "Avoid patterns that are too tight."}),
    # -- Schema and handler
    Requirement("004.handler.trusts-shape", "The handler can trust the shape of its input."),
    Requirement("004.handler.business-rules", "The handler checks what a schema cannot say."),
    # -- Output
    Requirement("004.output.after-handler", "The output schema is checked after the handler."),
    Requirement("004.output.rejects-mismatch", "Wrong types, missing or extra fields: rejected."),
    Requirement("004.output.structured-error", "The model reads a structured error."),
    Requirement("004.output.protects-callers", "Nothing of a malformed answer is delivered."),
    # -- Versions
    *_deferred(
        _PACKAGES,
        {
            "004.versions.immutable": "Published packages are immutable.",
            "004.versions.new-version": "A changed property makes a new version.",
            "004.versions.next-list": "Hosts see the new schema on their next list of tools.",
            "004.versions.major": "A breaking change is a MAJOR version.",
        },
    ),
    # -- Custom rules
    Requirement("004.custom.tool-error", "Cross-field rules raise ToolError in the handler."),
    Requirement("004.custom.tool-error-is-clean", "A ToolError reads like a schema rejection."),
    # -- Observability
    *_deferred(
        _AUDIT,
        {
            "004.audit.every-rejection": "Every rejection is in the audit log.",
            "004.audit.timestamp": "… with its timestamp.",
            "004.audit.tool": "… with the tool's name.",
            "004.audit.input": "… with the input that was rejected.",
            "004.audit.error": "… with the specific validation error.",
            "004.audit.patterns": "The log shows how often a tool fails with one error.",
        },
    ),
)

REQUIREMENTS: tuple[Requirement, ...] = (*SEED_001, *SEED_004)
