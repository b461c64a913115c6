"""Seed 001, *Response Envelopes*: the result of a call, and the call protocol around it."""

from __future__ import annotations

ROWS = (
    # -- Types
    ("001.types.envelope", "A result is {data, meta}."),
    ("001.types.source-discriminates", "meta is one of three kinds, told by source."),
    (
        "001.types.local-meta",
        "local: operationId is namespace.name, timestamp epoch milliseconds, set when wrapped.",
    ),
    ("001.types.http-meta", "http: statusCode, headers as a map of texts, contentType."),
    (
        "001.types.http-set-cookie",
        "Joined headers do not keep Set-Cookie apart (a known limitation).",
        "divergent",
        "design.md section 6, ruling 5: headers stay a map, setCookie is a list beside it",
    ),
    ("001.types.mcp-meta", "mcp: isError, content, structuredContent?, _meta?."),
    (
        "001.types.mcp-structured-content",
        "structuredContent, if present, is an object.",
        "divergent",
        "design.md section 3: any JSON value; absent is a sentinel, not None",
    ),
    ("001.types.content-blocks", "Five kinds of content block, with these fields."),
    # -- Detection
    (
        "001.detect.is-response-envelope",
        "An envelope is an object with data and a meta whose source is known; nothing else is.",
    ),
    ("001.detect.closed-sources", "The sources are a closed, registered list."),
    ("001.detect.json-serializable", "Detection works across JSON."),
    # -- Factories, unwrap, schemas
    ("001.factories.local", "local_envelope(data, operation_id) stamps the time."),
    ("001.factories.http", "http_envelope(data, status, headers, content type)."),
    ("001.factories.mcp", "mcp_envelope(data, is_error, content, …)."),
    ("001.factories.void-data", "A handler without a result gives a valid envelope."),
    ("001.unwrap.returns-data", "unwrap(envelope) is envelope.data."),
    ("001.schemas.envelope", "A schema of the envelope: data unknown, meta a union."),
    ("001.schemas.metas", "A schema of each meta, and of content blocks."),
    # -- execute
    ("001.execute.returns-envelope", "execute returns an envelope, never a raw value."),
    ("001.execute.looks-up", "1. Look the tool up."),
    ("001.execute.validates-input", "2. Validate the input, or raise."),
    ("001.execute.awaits-if-awaitable", "3. Await what the handler gives."),
    ("001.execute.envelopes-pass-through", "4. An envelope passes as it is."),
    ("001.execute.wraps-raw-values", "5. Anything else is wrapped as local."),
    (
        "001.execute.output-warns-only",
        "6. data that breaks the output schema is a warning, never an error.",
        "divergent",
        "design.md section 3: so under pass, warn and cast; convert and reject (seed 004) raise",
    ),
    ("001.execute.order", "7. The steps run in this order; the envelope is returned."),
    (
        "001.execute.source-is-not-checked",
        "Whether a handler's envelope fits the tool's origin is not asked.",
    ),
    ("001.execute.casts", "With a meaningful output schema, data is cast to it."),
    # -- CallHandler
    ("001.callhandler.owns-responded", "The CallHandler alone publishes call.responded."),
    ("001.callhandler.looks-up", "1. Look up tool and handler."),
    ("001.callhandler.access", "2. Check access."),
    ("001.callhandler.validates", "3. Validate the input."),
    ("001.callhandler.captures-result", "4. Call the handler, keep what it returns."),
    ("001.callhandler.detects", "5. An envelope is used directly."),
    ("001.callhandler.wraps", "6. Anything else is wrapped as local."),
    (
        "001.callhandler.warns",
        "7. Output is validated, warning only.",
        "divergent",
        "as 001.execute.output-warns-only: so under pass, warn and cast; reject gives call.error",
    ),
    ("001.callhandler.responds", "8. call.responded through the map, with the envelope."),
    ("001.callhandler.errors", "9. An exception becomes call.error."),
    (
        "001.callhandler.is-error-responds",
        "An envelope with meta.isError does not trigger call.error.",
    ),
    ("001.callhandler.order", "The steps run in this order, and end at the first failure."),
    ("001.callhandler.handlers-publish-nothing", "Handlers return values, they publish nothing."),
    # -- PendingRequestMap
    ("001.respond.guards", "respond() takes envelopes only and raises otherwise."),
    (
        "001.respond.guard-is-the-detector",
        "The guard of respond() is the detector, not a full validation of the schema.",
    ),
    ("001.call.resolves-with-envelope", "call() resolves with the envelope."),
    # -- subscribe
    (
        "001.subscribe.wraps-each",
        "Handlers yield raw values; each is wrapped, with a fresh timestamp.",
    ),
    ("001.subscribe.envelopes-pass", "A yielded envelope passes as it is."),
    # -- buildEnv
    ("001.env.returns-envelopes", "Each function of the env returns an envelope."),
    # -- CallEventSchema
    ("001.events.responded-schema", "call.responded.output has the schema of the envelope."),
    ("001.events.request-id", "call.responded names its request: requestId, a text."),
    (
        "001.events.envelope-is-validated",
        "The envelope of the call protocol is validated by its own schema, data by the tool's.",
    ),
    # -- MCP
    ("001.mcp.is-error-is-data", "isError is a result, not an exception."),
    (
        "001.mcp.no-schema-blocks-are-data",
        "Without structured content the content blocks are the data.",
    ),
    (
        "001.mcp.structured-content-is-normalised",
        "Structured content is cast to the output schema; meta keeps the original.",
    ),
    ("001.mcp.output-schema-extracted", "SHOULD take outputSchema from the tool's definition."),
    ("001.mcp.structured-preferred", "structuredContent is the data when it is there."),
    ("001.mcp.content-always-in-meta", "meta.content always holds every block."),
    ("001.mcp.blocks-map-one-to-one", "SDK blocks map one to one to ours."),
    ("001.mcp.unknown-blocks-become-text", "An unknown block becomes a text block of its JSON."),
    ("001.mcp.transport-errors-raise", "Transport errors and unknown tools raise CallError."),
    ("001.mcp.unknown-schema-is-untouched", "Without outputSchema nothing is cast."),
    ("001.open.json-in-text", "JSON in text blocks: whether to parse it is open."),
    ("001.migration.from-mcp-envelope", "from_mcp returns mcp envelopes; isError does not throw."),
    ("001.migration.from-mcp-schema", "from_mcp takes outputSchema, else unknown."),
    # -- OpenAPI
    ("001.openapi.normalises", "An HTTP answer is cast to the output schema."),
    ("001.openapi.error-status-raises", "An HTTP error status raises CallError."),
    ("001.openapi.json-is-parsed", "application/json is parsed."),
    ("001.openapi.text-is-text", "text/* is text."),
    ("001.openapi.rest-is-bytes", "Anything else is bytes."),
    ("001.openapi.content-type-may-be-empty", "No Content-Type is the empty text."),
    ("001.openapi.headers-joined", "Repeated headers are joined with a comma."),
    ("001.migration.from-openapi", "from_openapi returns http envelopes; error status raises."),
    # -- Value.Cast
    ("001.cast.strips-excess", "Properties that the schema lacks are stripped."),
    (
        "001.cast.fills-defaults",
        "Missing properties are filled with their defaults.",
        "divergent",
        "envelopes.md section 6: as the library was measured; required ones only",
    ),
    (
        "001.cast.upcasts",
        "Values are upcast to the declared type.",
        "divergent",
        "design.md section 3: lossless conversion first, then the bare cast, which invents",
    ),
    # -- outputSchema and validation
    ("001.output.judges-data-not-envelope", "The output schema judges data only."),
    ("001.output.warns-before-cast", "Warnings are collected on the raw data."),
    ("001.output.normalizes", "Then the data is normalised."),
    ("001.output.unknown-is-skipped", "An unknown output schema skips both."),
    # -- Constraints
    ("001.constraint.no-overhead-for-handlers", "1. Local handlers return raw values."),
    ("001.constraint.envelope-at-boundary", "2. call.responded never carries a raw value."),
    ("001.constraint.factories", "3. Sources make envelopes by the factories only."),
    ("001.constraint.own-content-blocks", "4. Block types are our own, no SDK needed."),
    ("001.constraint.no-transitional-api", "5. There is no second, raw way to call."),
    ("001.constraint.unwrap", "6. unwrap is the simple path."),
    ("001.constraint.output-schema-judges-data", "7. Two schemas, two jobs."),
    ("001.constraint.sole-detection", "8. is_response_envelope is the only detector."),
    # -- Open questions
    (
        "001.open.client-abstraction",
        "A client that handles isError is open.",
        "divergent",
        "envelopes.md section 8, 1: no client; raise_for_error(envelope)",
    ),
    (
        "001.open.output-schema-fallback",
        "An output schema that cannot be converted falls back to unknown.",
        "divergent",
        (
            "design.md section 2: kept with output unknown and a warning in the load report; "
            "a Contract made by hand raises InvalidSchema"
        ),
    ),
    (
        "001.open.subscription-metadata",
        "Sequence numbers for subscriptions are open.",
        "divergent",
        "envelopes.md section 8, 2: seq on call.responded, count on call.completed; meta is as it was",
    ),
    (
        "001.open.respond-visibility",
        "respond() may become internal.",
        "divergent",
        "design.md section 6, ruling 5: it stays public, and guarded",
    ),
    (
        "001.open.serving",
        "How envelopes are served over MCP and HTTP is open.",
        "divergent",
        "envelopes.md section 8, 4: renderings after the runtime, the envelope unchanged; HTTP later",
    ),
    # -- Migration; rows about documents are proved against the reference pages, too
    ("001.migration.execute-type", "execute() returns an envelope."),
    ("001.migration.handler-returns", "CallHandler: handlers return, it wraps and publishes."),
    ("001.migration.respond-validates", "respond() validates and resolves with an envelope."),
    ("001.migration.responded-output", "CallEventMap: responded.output is an envelope."),
    ("001.migration.call-type", "call() resolves with an envelope instead of unknown."),
    ("001.migration.subscribe-type", "subscribe() yields envelopes."),
    ("001.migration.env-type", "OperationEnv: inner functions return envelopes."),
    ("001.migration.callhandler-api", "CallHandler is described with the new model."),
    ("001.migration.respond-breaking", "respond() raises on raw values: a breaking change."),
    ("001.migration.respond-api", "respond() requires an envelope."),
    ("001.migration.direct-listeners", "Direct listeners on call.responded get envelopes too."),
    # -- Invariants that follow (envelopes.md sections 3 and 9); the others have rows above
    ("001.invariant.wrapped-once", "Wrapping happens once; an envelope in data is not unwrapped."),
    ("001.invariant.is-error-never-raises", "isError raises nowhere: call, stream, env, bus."),
    (
        "001.invariant.round-trip",
        "An envelope is one after a JSON round trip, also that of a void result.",
    ),
    (
        "001.invariant.errors-cross-the-bus",
        "Every CallError crosses the bus with code, message and JSON details.",
    ),
    ("001.invariant.never-trusted", "A request can never say that it is trusted."),
)
