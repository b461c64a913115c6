"""The docs pages of the plain HTTP door: a list of the tools, and a page for each.

Whole HTML without scripts and without anything from elsewhere; pure functions.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

from callpact.codes import CODES, OWN_CODE
from callpact.schema import is_array, is_object
from callpact.schema.json_text import json_text
from callpact.schema.targets import resolve
from callpact.wire.mcp.published import input_schema
from callpact.wire.query_arguments import is_read_only, query_forms

if TYPE_CHECKING:
    from callpact.tool import Tool

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --mark: #0b6bcb; }
@media (prefers-color-scheme: dark) { :root { --mark: #6cb6ff; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
a { color: var(--mark); text-decoration: none; }
a:hover { text-decoration: underline; }
code, pre { font: 14px/1.45 ui-monospace, monospace; }
pre { background: var(--soft); border-radius: 6px; margin: .5rem 0; overflow-x: auto;
  padding: .75rem 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .4rem .75rem .4rem 0; text-align: left;
  vertical-align: top; }
th { font-size: .85rem; font-weight: 600; opacity: .75; white-space: nowrap; }
th:last-child, td:last-child { overflow-wrap: anywhere; padding-right: 0; width: 55%; }
.about { white-space: pre-line; }
.badge { border: 1px solid var(--line); border-radius: 999px; display: inline-block;
  font-size: .8rem; margin: 0 .3rem .3rem 0; padding: .05rem .6rem; }
.quiet { font-size: .9rem; opacity: .75; }
summary { cursor: pointer; margin: .5rem 0; }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The Content-Security-Policy of the pages: their own style, and nothing else."""


def encode_index(tools: Iterable[Tool], *, title: str, has_tokens: bool) -> bytes:
    """Render the list of all tools."""
    groups: dict[str, list[Tool]] = {}
    for tool in tools:
        groups.setdefault(tool.namespace, []).append(tool)
    number = sum(map(len, groups.values()))
    lead = (
        f"<p>{number:,} tool{'' if number == 1 else 's'} as HTTP endpoints. The arguments are the "
        "JSON body of a POST, the result is the body of the response. Machine-readable: "
        '<a href="openapi.json">openapi.json</a>.</p>'
    )
    parts = [f"<h1>{escape(title)}</h1>", lead]
    if has_tokens:
        parts.append(
            "<p>Every request needs a token: <code>Authorization: Bearer …</code>. Only the tools "
            "that your token may use are listed.</p>"
        )
    for namespace, members in groups.items():
        rows = "".join(
            f"<tr><td>{_link(tool)}</td><td>{_methods(tool)}</td>"
            f"<td>{escape(_first_line(tool))}</td></tr>"
            for tool in members
        )
        parts.append(f"<h2>{escape(namespace)}</h2><table>{rows}</table>")
    parts.append(_ERRORS)
    return encode_page(title, parts)


def encode_tool_page(tool: Tool, *, title: str, has_tokens: bool) -> bytes:
    """Render the page of one tool."""
    schema = input_schema(tool)
    output = tool.contract.output
    about = tool.description.strip()
    parts = [
        f'<p class="quiet"><a href="../docs">{escape(title)}</a></p>',
        f"<h1>{escape(tool.title or tool.id)}</h1>",
        f"<p>{''.join(f'<span class=badge>{escape(text)}</span>' for text in _badges(tool))}</p>",
        f'<p class="about">{escape(about)}</p>' if about else "",
        "<h2>Call</h2>",
        f"<pre>{escape(_request(tool, has_tokens=has_tokens))}</pre>",
        _query(tool),
        _names(tool),
        "<h2>Arguments</h2>",
        _fields(schema, "It takes no arguments."),
        _schema("JSON Schema of the arguments", schema),
        "<h2>Result</h2>",
        _result(tool, output),
    ]
    return encode_page(tool.id, parts)


def encode_page(title: str, parts: list[str]) -> bytes:
    """Render a whole page with these parts of HTML; the title is text."""
    body = "\n".join(filter(None, parts))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"{body}\n</body>\n</html>\n"
    ).encode("utf-8", "replace")


def _link(tool: Tool) -> str:
    return f'<a href="docs/{escape(tool.id)}"><code>{escape(tool.id)}</code></a>'


def _methods(tool: Tool) -> str:
    return "GET, POST" if query_forms(tool) is not None else "POST"


def _first_line(tool: Tool) -> str:
    return (tool.title or tool.description.strip()).split("\n", 1)[0][:200]


def _badges(tool: Tool) -> list[str]:
    badges = [_methods(tool), "only reads" if is_read_only(tool) else tool.kind]
    badges += [f"scope {scope}" for scope in tool.access.scopes]
    badges += [f"version {tool.version}"] if tool.version else []
    return badges + list(tool.tags)


def _names(tool: Tool) -> str:
    others = dict.fromkeys((tool.id, tool.wire_name, *tool.aliases))
    names = ", ".join(f"<code>{escape(name)}</code>" for name in others)
    return f'<p class="quiet">Names: {names}</p>'


def _request(tool: Tool, *, has_tokens: bool) -> str:
    lines = ["curl $SERVER/tools/" + tool.id]
    if has_tokens:
        lines.append("-H 'Authorization: Bearer …'")
    given = json_text(_example(tool)).replace("'", "'\\''")
    lines += ["-H 'Content-Type: application/json'", f"-d '{given}'"]
    return " \\\n  ".join(lines)


def _query(tool: Tool) -> str:
    if query_forms(tool) is None:
        return ""
    return (
        '<p class="quiet">With GET the arguments are in the query: a list repeats its name, an '
        "object is JSON text.</p>"
    )


def _example(tool: Tool) -> Any:
    """Return the first valid example; else the required arguments, each with its type in words."""
    compiled = tool.contract.compiled_input
    for example in tool.examples:
        if is_object(example) and compiled.accepts(example):
            return example
    schema = input_schema(tool)
    properties = schema.get("properties")
    held = properties if is_object(properties) else {}
    return {
        name: _sample(held.get(name), schema)
        for name in schema.get("required", ())
        if isinstance(name, str)
    }


def _sample(schema: Any, root: Any) -> Any:
    schema = _resolved(schema, root)
    for keyword in ("examples", "enum"):
        values = schema.get(keyword)
        if is_array(values) and values:
            return values[0]
    for keyword in ("default", "const"):
        if keyword in schema:
            return schema[keyword]
    samples: dict[str, Any] = {
        "integer": 1,
        "number": 1.5,
        "boolean": True,
        "array": [],
        "object": {},
    }
    kinds = schema.get("type")
    kind = kinds[0] if is_array(kinds) and kinds else kinds
    return samples.get(kind, "…") if isinstance(kind, str) else "…"


def _result(tool: Tool, output: Any) -> str:
    if tool.kind == "subscription":
        lead = "<p>A stream of server-sent events, one for each result.</p>"
    else:
        lead = ""
    if not is_object(output):
        return lead + "<p>Any JSON value, or bytes as their content type.</p>"
    if tool.contract.policy == "warn":
        lead += "<p>As the tool declares it; results are sent also where they differ.</p>"
    kind = escape(_type(output, output).capitalize())
    fields = _fields(
        output, f"{kind}, without declared fields." if kind == "Object" else f"{kind}."
    )
    return lead + fields + _schema("JSON Schema of the result", output)


def _fields(schema: dict[str, Any], nothing: str) -> str:
    root, schema = schema, _resolved(schema, schema)
    properties = schema.get("properties")
    if not is_object(properties) or not properties:
        return f"<p>{nothing}</p>" if nothing else ""
    required = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(_type(held, root))}"
        f"{', required' if name in required else ''}</td><td>{_meaning(held, root)}</td></tr>"
        for name, held in properties.items()
    )
    head = "<tr><th>name</th><th>type</th><th>meaning</th></tr>"
    return f"<table>{head}{rows}</table>"


def _schema(title: str, schema: Any) -> str:
    text = escape(json_text(schema, indent=True))
    return f"<details><summary>{title}</summary><pre>{text}</pre></details>"


def _resolved(schema: Any, root: Any, depth: int = 10) -> dict[str, Any]:
    while is_object(schema) and isinstance(schema.get("$ref"), str) and depth:
        schema, depth = resolve(root, schema["$ref"]), depth - 1
    return schema if is_object(schema) else {}


def _type(schema: Any, root: Any, depth: int = 4) -> str:
    schema = _resolved(schema, root)
    kinds = schema.get("type")
    if kinds == "array" and depth:
        return f"list of {_type(schema.get('items'), root, depth - 1)}"
    if isinstance(kinds, str):
        return kinds
    if is_array(kinds):
        return " or ".join(map(str, kinds))
    for keyword in ("anyOf", "oneOf"):
        variants = schema.get(keyword)
        if is_array(variants) and depth:
            return " or ".join(dict.fromkeys(_type(one, root, depth - 1) for one in variants))
    return "any"


def _meaning(schema: Any, root: Any) -> str:
    schema = _resolved(schema, root) | (schema if is_object(schema) else {})
    words = [escape(schema["description"])] if isinstance(schema.get("description"), str) else []
    values = schema.get("enum")
    if is_array(values):
        words.append("one of " + ", ".join(f"<code>{escape(json_text(v))}</code>" for v in values))
    if "default" in schema:
        words.append(f"default <code>{escape(json_text(schema['default']))}</code>")
    limits = [word.format(schema[key]) for key, word in _LIMITS.items() if key in schema]
    words += [escape(", ".join(limits))] if limits else []
    return "; ".join(words)


_LIMITS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "length ≥ {}",
    "maxLength": "length ≤ {}",
    "minItems": "items ≥ {}",
    "maxItems": "items ≤ {}",
    "pattern": "pattern {}",
    "format": "format {}",
}


def _with_code(text: str) -> str:
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


_ERRORS = (
    "<h2>Errors</h2><p>An error has a status and the body "
    '<code>{"error": {"code", "message", "path"}}</code>; several violations are listed in '
    "<code>issues</code>.</p><table><tr><th>code</th><th>status</th><th>meaning</th></tr>"
    + "".join(
        f"<tr><td><code>{escape(row.code)}</code></td><td>{row.http}</td>"
        f"<td>{_with_code(row.meaning)}</td></tr>"
        for row in (*CODES.values(), OWN_CODE)
    )
    + "</table>"
)
