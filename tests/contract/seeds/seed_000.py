"""Seed 000, *Output Schema*: what a FlowMCP tool declares of its answers, and who checks it."""

from __future__ import annotations

_PACKAGES = "waits for packages: generated pages and types; `callpact show` prints the fields"

ROWS = (
    # -- Purpose
    ("000.purpose.fields-in-advance", "Clients know the fields of an answer before they call."),
    ("000.purpose.validator", "The answer is compared with the declaration."),
    {
        _PACKAGES: {
            "000.purpose.documentation": "Documentation has tables of answers, made by themselves.",
            "000.purpose.types": "TypeScript interfaces and Zod schemas are made of it.",
        }
    },
    # -- Declaration
    ("000.declare.optional", "`output` is optional, beside method, path and the rest."),
    ("000.declare.example", "The seed's first example is a good declaration."),
    (
        "000.declare.routes",
        "The seed's examples declare tools in `routes`.",
        "divergent",
        "flowmcp.md section 24, row 5: an alias of `tools`, with a warning",
    ),
    ("000.declare.hashed", "`output` is part of what `schemaHash` is made of."),
    ("000.declare.no-code", "It MUST NOT contain functions or dynamic expressions."),
    ("000.fields.mime-type", "mimeType: a text, required."),
    ("000.fields.schema", "schema: an object, required."),
    ("000.fields.both", "Both are required when `output` is there."),
    ("000.fields.omitted", "No output: the field is left out, not null and not {}."),
    # -- MIME types
    ("000.mime.json", "application/json (the default): the answer is JSON."),
    ("000.mime.png", "image/png: the answer is an image, base64-encoded."),
    ("000.mime.text", "text/plain: the answer is text."),
    ("000.mime.json-type", "application/json requires the type object or array."),
    ("000.mime.png-type", "image/png requires the type string with the format base64."),
    ("000.mime.text-type", "text/plain requires the type string."),
    ("000.mime.mismatch", "MIME type and type that do not fit are an error."),
    # -- Envelope
    ("000.envelope.every-tool", "Every answer of every tool has the same form."),
    ("000.envelope.success", "Success: {status: true, messages: [], data}."),
    ("000.envelope.failure", "Failure: {status: false, messages: [text], data: null}."),
    ("000.envelope.example", "The seed's failure: 'E001 getTokenPrice: API returned 404'."),
    ("000.envelope.status", "status is true on success, false on error."),
    ("000.envelope.messages", "messages: empty on success, the errors on failure."),
    (
        "000.envelope.data",
        "data is an object or null.",
        "divergent",
        "flowmcp.md section 24, row 22: any JSON value that the MIME type allows; null on error",
    ),
    ("000.envelope.only-data", "The schema describes `data` of a success only."),
    ("000.envelope.implicit", "Authors do not declare the form itself."),
    # -- Supported keywords
    ("000.keyword.type", "type: string, number, boolean, object or array."),
    ("000.keyword.properties", "properties: those of an object."),
    ("000.keyword.items", "items: what an array holds."),
    ("000.keyword.description", "description: for people."),
    ("000.keyword.nullable", "nullable: it can be null."),
    ("000.keyword.enum", "enum: the values that are allowed."),
    ("000.keyword.format", "format: a hint."),
    # -- Excluded keywords
    ("000.excluded.ref", "No $ref: schemas are self-contained."),
    ("000.excluded.one-of", "No oneOf."),
    ("000.excluded.any-of", "No anyOf."),
    ("000.excluded.all-of", "No allOf."),
    ("000.excluded.required", "No required: declared properties are not enforced."),
    ("000.excluded.additional-properties", "No additionalProperties: APIs may return more."),
    ("000.excluded.pattern", "No pattern."),
    ("000.excluded.minimum", "No minimum."),
    ("000.excluded.maximum", "No maximum."),
    # -- Types
    ("000.type.string", "string: text."),
    ("000.type.number", "number: whole or not."),
    ("000.type.boolean", "boolean: true or false."),
    ("000.type.object", "object: a plain object."),
    ("000.type.array", "array: a list, with a schema of its items."),
    # -- Forms of answers
    ("000.form.object", "An object with named properties."),
    ("000.form.nested", "Properties can be objects, up to 4 levels deep."),
    ("000.form.array", "A list of objects."),
    ("000.form.primitives", "A list of texts or numbers."),
    ("000.form.array-property", "A property can be an array."),
    ("000.form.image", "An image: a string with the format base64."),
    ("000.form.image-encoded", "The runtime base64-encodes the binary body and puts it into data."),
    ("000.form.text", "Plain text: a string."),
    # -- nullable, enum, format
    ("000.nullable.declared", "A field that may be null MUST declare nullable: true."),
    ("000.nullable.warns", "null without nullable: true is a warning."),
    ("000.enum.restricts", "enum restricts a field to its values."),
    ("000.format.base64", "base64: binary data."),
    ("000.format.date-time", "date-time: a moment in ISO 8601."),
    ("000.format.uri", "uri: an address."),
    ("000.format.informational", "format is never checked."),
    # -- No output schema
    ("000.absent.json", "Without `output` an answer is taken for JSON."),
    ("000.absent.unchecked", "It is passed on without a check."),
    ("000.absent.no-shape", "Clients cannot rely on a shape."),
    ("000.absent.discouraged", "It is valid, but discouraged."),
    ("000.absent.should", "Production schemas SHOULD always declare it."),
    # -- Hooks
    ("000.hooks.none", "Without postRequest the schema describes the raw answer of the API."),
    ("000.hooks.after", "With postRequest it describes what postRequest returns."),
    (
        "000.hooks.checked-after",
        "It is compared with what the hook returns, not with the raw answer.",
    ),
    ("000.hooks.flattened", "A flattened answer is described flat."),
    ("000.hooks.renamed", "Renamed fields are described by their new names."),
    ("000.hooks.example", "The seed's example of a flattened price."),
    # -- Validation rules
    ("000.rule.mime", "mimeType must be one of the three; others are rejected."),
    ("000.rule.type", "schema.type must fit the MIME type."),
    ("000.rule.properties", "properties stands at an object only."),
    ("000.rule.items", "items stands at an array only."),
    ("000.rule.depth", "At most 4 levels, the root being the first; a 5th is rejected."),
    (
        "000.rule.depth-of-items",
        "Whether `items` is a level of its own is not said.",
        "divergent",
        "flowmcp.md section 24, row 6: `items` adds no level",
    ),
    ("000.rule.nullable", "nullable says that a field can be null, not that it can be absent."),
    ("000.rule.non-blocking", "An answer that breaks its schema is a warning, not an error."),
    ("000.rule.delivered", "It is delivered all the same, unchanged."),
    ("000.rule.logged", "The warning is logged and shown to whoever maintains the schema."),
    ("000.rule.flow", "No schema: passed on. A match: returned. Else: a warning, and returned."),
)
