"""Seed 004, *Schema Validation*: the gates of Data Tools, and what a model reads."""

from __future__ import annotations

_INTERACTIVE = "waits for Interactive Tools and component allowlists"

ROWS = (
    # -- Where validation runs
    (
        "004.gate.first",
        "Schema validation is the first gate of every call.",
        "divergent",
        "design.md section 3: at the doors access comes first, so that strangers learn nothing",
    ),
    ("004.gate.bad-input-never-reaches-handler", "Bad input never reaches the handler."),
    ("004.gate.generated", "The input schema is generated from the properties block."),
    ("004.gate.json-schema", "It is a JSON Schema, and judged as one."),
    ("004.gate.binary", "The result is pass or reject, nothing between."),
    # -- What gets validated
    ("004.gate.required", "Required fields present."),
    ("004.gate.types", "Field types match."),
    ("004.gate.enum", "enum values."),
    ("004.gate.min-max", "min and max of numbers."),
    ("004.gate.length", "minLength and maxLength of texts."),
    ("004.gate.items", "minItems and maxItems of arrays."),
    ("004.gate.pattern", "pattern of texts."),
    ("004.gate.groups", "Nested groups, recursively."),
    ("004.gate.array-items", "Items of arrays match valueType."),
    {
        _INTERACTIVE: {
            "004.gate.allowlist-apart": "The allowlist is checked apart, after the schema.",
            "004.components.input-schema": "An Interactive Tool's input schema is checked first.",
            "004.components.palette": "A component must be on the project's palette.",
            "004.components.slot": "A component must be on the slot's allowlist.",
            "004.components.before-renderer": "Both gates end before the renderer.",
        }
    },
    # -- Rejections
    ("004.error.shape", "A rejection is {error: {code, message, path}}."),
    ("004.error.example", "The seed's example, to the letter."),
    ("004.retry.by-the-ai", "The model retries; the server keeps no loop."),
    ("004.user.exhausted-message", "The user reads that the input had another format."),
    # -- Designing schemas
    ("004.design.description", "Descriptions reach the model."),
    ("004.design.enum", "A fixed set of values is an enum of the published schema."),
    ("004.design.defaults", "Optional values have defaults, which the handler sees."),
    ("004.design.no-empty-input", "minLength and minItems stop empty input."),
    ("004.design.loose-patterns", "Avoid patterns that are too tight."),
    # -- Schema and handler
    ("004.handler.trusts-shape", "The handler can trust the shape of its input."),
    ("004.handler.business-rules", "The handler checks what a schema cannot say."),
    # -- Output
    ("004.output.after-handler", "The output schema is checked after the handler."),
    ("004.output.rejects-mismatch", "Wrong types, missing or extra fields: rejected."),
    ("004.output.structured-error", "The model reads a structured error."),
    ("004.output.protects-callers", "Nothing of a malformed answer is delivered."),
    # -- Versions
    ("004.versions.immutable", "Published packages are immutable."),
    ("004.versions.new-version", "A changed property makes a new version."),
    ("004.versions.next-list", "Hosts see the new schema on their next list of tools."),
    ("004.versions.major", "A breaking change is a MAJOR version."),
    # -- Custom rules
    ("004.custom.tool-error", "Cross-field rules raise ToolError in the handler."),
    ("004.custom.tool-error-is-clean", "A ToolError reads like a schema rejection."),
    # -- Observability
    ("004.audit.every-rejection", "Every rejection is in the audit log."),
    ("004.audit.timestamp", "… with its timestamp."),
    ("004.audit.tool", "… with the tool's name."),
    ("004.audit.input", "… with the input that was rejected."),
    ("004.audit.error", "… with the specific validation error."),
    ("004.audit.patterns", "The log shows how often a tool fails with one error."),
)
