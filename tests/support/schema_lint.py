"""What clients that lint the schemas of tools complain of, by JSON Pointer.

Not a test: tests of what is published load it. The rules are those that the Inspector's `--strict`
documents, so that they hold where there is no Node:

- a schema in which nothing could judge a value is no schema (but under `not`);
- `true` and `false` are schemas only for what else an object or a list holds;
- one `type` is a word; several are branches of `anyOf`;
- a reference leads into the document.
"""

from __future__ import annotations

MAPS = {"properties", "patternProperties", "dependentSchemas", "dependencies"}
DEFINITIONS = {"$defs", "definitions"}
LISTS = {"allOf", "anyOf", "oneOf", "prefixItems"}
REST = {"additionalProperties", "unevaluatedProperties", "additionalItems", "unevaluatedItems"}
SINGLE = {"items", "contains", "not", "propertyNames", "contentSchema"}
CONDITION = {"if", "then", "else"}
ASSERTIONS = {
    *("type", "enum", "const", "format", "pattern", "contentEncoding", "contentMediaType"),
    *("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems"),
    *("minContains", "maxContains", "minProperties", "maxProperties"),
    *("required", "dependentRequired", "$ref", "$dynamicRef", "$recursiveRef"),
}
JUDGING = ASSERTIONS | MAPS | LISTS | REST | SINGLE

OPEN = {
    "type": "object",
    "properties": {
        "any": {},
        "titled": {"title": "Anything"},
        "true": True,
        "false": False,
        "list": {"type": "array", "items": {}},
        "pair": {"type": "array", "prefixItems": [True, {"type": "string"}], "items": False},
        "rest": {"type": "object", "additionalProperties": {}},
        "closed": {"type": "object", "additionalProperties": False},
        "never": {"not": True},
        "always": {"not": {"not": {}}},
        "case": {"if": {"type": "string"}, "then": {"minLength": 1}, "else": True},
        "half": {"if": {"type": "string"}},
        "defined": {"$ref": "#/$defs/Any"},
    },
    "$defs": {"Any": {"description": "Whatever"}},
}
"""A schema with all that is complained of, but for references and unions."""


def lint(schema, *, unions=True):
    """The complaints about a schema, each with its place; without `unions`, none of type unions."""
    found = [f"{place or '/'}: {text}" for place, text in _complaints(schema, "", "")]
    return found if unions else [text for text in found if "several types" not in text]


def lint_tool(listed, *, unions=True):
    """The complaints about both schemas of a tool as it is listed on the wire."""
    parts = (listed["inputSchema"], listed.get("outputSchema", {"type": "object"}))
    return [text for part in parts for text in lint(part, unions=unions)]


def _complaints(node, place, keyword):
    if isinstance(node, bool):
        if keyword not in REST:
            yield place, "a boolean where a schema should be"
        return
    if not isinstance(node, dict):
        return
    is_condition = "if" in node and bool({"then", "else"} & node.keys())
    if not (JUDGING & node.keys() or is_condition or keyword == "not"):
        yield place, "nothing here could judge a value"
    if isinstance(node.get("type"), list):
        yield place, "several types in one word"
    if not str(node.get("$ref", "#")).startswith("#"):
        yield place, "a reference that leads elsewhere"
    for key, value in node.items():
        if key in MAPS | DEFINITIONS and isinstance(value, dict):
            parts = [(f"/{key}/{name}", part) for name, part in value.items()]
        elif isinstance(value, list) and key in LISTS | {"items"}:
            parts = [(f"/{key}/{index}", part) for index, part in enumerate(value)]
        elif key in REST | SINGLE | CONDITION:
            parts = [(f"/{key}", value)]
        else:
            parts = []
        for step, part in parts:
            yield from _complaints(part, place + step, key)
