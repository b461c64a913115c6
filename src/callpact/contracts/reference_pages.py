"""Reference pages of tools: one page of Markdown or HTML for each namespace.

Everything in a declaration is hostile: each text is escaped for its place, file names are made of
ASCII letters, digits, `-` and `_`, and tables end at limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from msgspec import Struct

from callpact.codes import CODES, OWN_CODE
from callpact.contracts.counterexample import valid_example
from callpact.contracts.types.named_schemas import unique_name
from callpact.errors import InvalidSchema
from callpact.schema import compile_schema, is_array, is_object
from callpact.schema.json_text import json_text
from callpact.schema.targets import resolve
from callpact.wire.terminal import encode_kind, encode_needs

if TYPE_CHECKING:
    from callpact.schema import CompiledSchema
    from callpact.tool import Tool

PageFormat = Literal["markdown", "html"]
MAX_ROWS = 500
"""Rows of one table of fields; a line below it says that there are more."""
MAX_ROW_LEVELS = 8
"""Levels of objects and items in a table of fields."""
_MAX_VALUES = 50
_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "multipleOf": "a multiple of {}",
    "minLength": "≥ {} characters",
    "maxLength": "≤ {} characters",
    "minItems": "≥ {} items",
    "maxItems": "≤ {} items",
    "pattern": "matches {}",
    "format": "as {}",
}
_COMBINING = frozenset({"$ref", "allOf", "anyOf", "oneOf", "not", "if", "enum", "const"})
_MAX_TEXT = 2_000
_MAX_PARTS = 50
_ENDS = {"markdown": ".md", "html": ".html"}
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)$")
_MARKS = re.compile(r"([\\`*_{}\[\]()#+!|<>~&$-])")
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|www|mailto)([:.])")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")
_POLICIES = {
    "pass": "delivered as it is, unchecked",
    "warn": "delivered as it is; what breaks the schema is a warning",
    "cast": "fitted to the schema; every change is reported",
    "convert": "converted where nothing is lost, otherwise refused",
    "reject": "refused if it breaks the schema",
}


class ReferencePage(Struct, frozen=True):
    """The page of one namespace."""

    namespace: str
    file_name: str
    text: str


class FieldRow(Struct, frozen=True):
    """One field of a schema; nested names are written `offers[].price`."""

    name: str
    kind: str
    is_required: bool
    is_nullable: bool
    values: str
    description: str


def write_pages(tools: Iterable[Tool], form: PageFormat = "markdown") -> tuple[ReferencePage, ...]:
    """One page for each namespace, in the order of the tools."""
    spaces: dict[str, list[Tool]] = {}
    for tool in tools:
        spaces.setdefault(tool.namespace, []).append(tool)
    taken = {"index"}
    pages: list[ReferencePage] = []
    for namespace, own in spaces.items():
        name = _UNSAFE.sub("-", namespace)[:100].strip("-") or "tools"
        name = f"{name}-tools" if _DEVICES.match(name) else name
        blocks: list[_Block] = [_Heading(1, namespace)]
        blocks += (block for tool in own for block in _tool_blocks(tool))
        blocks += _error_blocks(own)
        text = _markdown(blocks) if form == "markdown" else _html(namespace, blocks)
        pages.append(ReferencePage(namespace, unique_name(name, taken) + _ENDS[form], text))
    return tuple(pages)


class _Heading(Struct, frozen=True):
    level: int
    text: str


class _Paragraph(Struct, frozen=True):
    text: str


class _Table(Struct, frozen=True):
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    coded: tuple[int, ...] = (0,)
    """Columns whose cells are code."""


class _Listing(Struct, frozen=True):
    text: str


_Block = _Heading | _Paragraph | _Table | _Listing


def _tool_blocks(tool: Tool) -> Iterator[_Block]:
    contract = tool.contract
    yield _Heading(2, tool.id)
    for part in re.split(r"\n\s*\n", tool.description.strip())[:50]:
        if part.strip():
            yield _Paragraph(part)
    yield _Table(("property", "value"), tuple(_facts(tool)), coded=())
    yield _Heading(3, "Input")
    yield from _schema_blocks(contract.input)
    yield from _examples(tool)
    yield _Heading(3, "Output")
    if contract.output is None or contract.compiled_output is None:
        yield _Paragraph("No output schema is declared; any value can be delivered.")
    else:
        yield from _schema_blocks(contract.output)
        yield from _example("Example of an output", contract.compiled_output)


def _facts(tool: Tool) -> Iterator[tuple[str, str]]:
    if tool.title:
        yield "title", tool.title
    yield "kind", tool.kind
    policy = tool.contract.policy
    yield "output policy", f"{policy}: {_POLICIES[policy]}"
    yield "access", encode_needs(tool.access) or "no scope is needed"
    yield "name over MCP", tool.wire_name
    if tool.aliases:
        yield "also called", ", ".join(tool.aliases)
    if tool.tags:
        yield "tags", ", ".join(tool.tags)
    if tool.version:
        yield "version", tool.version
    if tool.disabled is not None:
        yield "disabled", tool.disabled.reason


def _error_blocks(tools: list[Tool]) -> Iterator[_Block]:
    """The codes that a call of one of the tools can end with: a table for the whole page."""
    kinds = {tool.kind for tool in tools}
    policies = {tool.contract.policy for tool in tools}
    rows = [
        (row.code, str(row.http), row.meaning)
        for row in (*CODES.values(), OWN_CODE)
        if (row.kind != "components" or "interactive" in kinds)
        and (row.kind != "output" or not policies.isdisjoint({"convert", "reject"}))
    ]
    yield _Heading(2, "Errors")
    yield _Paragraph(
        "A call of a tool of this page ends with its output or with one of these codes."
    )
    yield _Table(("code", "HTTP", "meaning"), tuple(rows))


def _examples(tool: Tool) -> Iterator[_Block]:
    declared = tool.examples[:10]
    for example in declared:
        yield _Paragraph("Example:")
        yield _Listing(json_text(example, indent=True)[: _MAX_TEXT * 4])
    if not declared:
        yield from _example("Example of an input", tool.contract.compiled_input)


def _example(label: str, schema: CompiledSchema) -> Iterator[_Block]:
    for value in valid_example(schema):
        yield _Paragraph(f"{label}, made from the schema:")
        yield _Listing(json_text(value, indent=True)[: _MAX_TEXT * 4])


def _schema_blocks(schema: Any) -> Iterator[_Block]:
    rows, is_cut = field_rows(schema)
    if not rows:
        yield _Paragraph("No fields are declared.")
        return
    yield _Table(
        ("field", "type", "required", "nullable", "values and bounds", "description"),
        tuple(
            (
                *(row.name, row.kind, _answer(row.is_required), _answer(row.is_nullable)),
                *(row.values, row.description),
            )
            for row in rows
        ),
    )
    if is_cut:
        yield _Paragraph("Deeper or further fields are left out here.")


def _answer(value: bool) -> str:  # noqa: FBT001 - a cell
    return "yes" if value else "no"


def field_rows(schema: Any) -> tuple[list[FieldRow], bool]:
    """The fields of a schema, each followed by those inside it, and True if some are left out."""
    table = _RowMaker(schema)
    table.add(schema, "", is_required=True, level=0, above=())
    return table.rows, table.is_cut


class _RowMaker:
    def __init__(self, root: Any) -> None:
        self._root = root
        self.rows: list[FieldRow] = []
        self.is_cut = False

    def add(
        self, node: Any, name: str, *, is_required: bool, level: int, above: tuple[int, ...]
    ) -> None:
        """Add a row for a place, unless it is the whole of an object, and those below it."""
        parts = self._parts(node)
        properties: dict[str, Any] = {}
        for part in parts:
            for key, sub in part.get("properties", {}).items():
                properties.setdefault(key, sub)
        if name or not properties:
            self._row(node, parts, name or "(whole)", is_required=is_required)
        places = {id(part) for part in parts}
        inside = [*above, *places]
        if places & {*above}:  # A recursive reference.
            return
        required = {key for part in parts for key in part.get("required", ())}
        children: list[tuple[Any, str, bool]] = [
            (sub, f"{name}.{key}" if name else key, key in required)
            for key, sub in properties.items()
        ]
        for part in parts:
            items = part.get("items")
            if is_object(items):
                children.append((items, f"{name}[]", True))
            for place, item in enumerate(part.get("prefixItems", ())):
                children.append((item, f"{name}[{place}]", False))
            extra = part.get("additionalProperties")
            if is_object(extra) and extra:
                children.append((extra, f"{name}.*" if name else "*", False))
        if children and level >= MAX_ROW_LEVELS:
            self.is_cut = True
            return
        for sub, label, needed in children:
            if len(self.rows) >= MAX_ROWS:
                self.is_cut = True
                return
            self.add(sub, label, is_required=needed, level=level + 1, above=tuple(inside))

    def _row(self, node: Any, parts: list[dict[str, Any]], name: str, *, is_required: bool) -> None:
        about = next((str(part["description"]) for part in parts if part.get("description")), "")
        kind = encode_kind(self._root, node)
        kinds = kind.removesuffix(" or null").removeprefix("null or ")
        self.rows.append(
            FieldRow(
                name,
                kinds,
                is_required,
                self._allows_null(node),
                "; ".join(_rules(parts)),
                about,
            )
        )

    def _allows_null(self, node: Any) -> bool:
        for _ in range(_MAX_PARTS):
            if not is_object(node) or {*node} != {"$ref"}:
                break
            target = resolve(self._root, str(node["$ref"]))
            if target is None:  # An anchor.
                break
            node = target
        if not is_object(node):
            return node is True
        if "type" in node and _COMBINING.isdisjoint(node):
            kinds = node["type"]
            return kinds == "null" or (is_array(kinds) and "null" in kinds)
        shared = {
            key: self._root[key]
            for key in ("$schema", "$defs", "definitions")
            if is_object(self._root) and key in self._root
        }
        try:
            return compile_schema({**shared, **node}).accepts_null
        except InvalidSchema:
            return False

    def _parts(self, node: Any) -> list[dict[str, Any]]:
        """A schema with the schemas that it refers to and combines."""
        found: list[dict[str, Any]] = []
        pending: list[Any] = [node]
        while pending and len(found) < _MAX_PARTS:
            part = pending.pop(0)
            if not is_object(part) or any(part is each for each in found):
                continue
            found.append(part)
            for keyword in ("allOf", "anyOf", "oneOf"):
                pending += part.get(keyword) or ()
            if isinstance(part.get("$ref"), str):
                pending.append(resolve(self._root, part["$ref"]))
        return [_checked(part) for part in found] if _is_odd(found) else found


def _rules(parts: list[dict[str, Any]]) -> Iterator[str]:
    """The fixed values of a place, its bounds, and its default."""
    values = [value for part in parts for value in part.get("enum", ())]
    values += [part["const"] for part in parts if "const" in part]
    if values:
        yield ", ".join(map(json_text, values[:_MAX_VALUES])) + "…" * (len(values) > _MAX_VALUES)
    for keyword, words in _BOUNDS.items():
        found = next((part[keyword] for part in parts if keyword in part), None)
        if isinstance(found, str | int | float) and not isinstance(found, bool):
            yield words.format(found)
    default = next((part["default"] for part in parts if "default" in part), None)
    if default is not None:
        yield f"default {json_text(default)}"


def _is_odd(parts: list[dict[str, Any]]) -> bool:
    return any(
        ("properties" in part and not is_object(part["properties"]))
        or any(word in part and not is_array(part[word]) for word in ("required", "enum"))
        for part in parts
    )


def _checked(part: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of an older draft without the members that tables cannot read."""
    kept = dict(part)
    for word in ("required", "enum", "prefixItems"):
        if word in kept and not is_array(kept[word]):
            del kept[word]
    if "properties" in kept and not is_object(kept["properties"]):
        del kept["properties"]
    return kept


def _line(text: str) -> str:
    """A text on one line, without control characters, within the limit."""
    line = _CONTROLS.sub(" ", text).strip()
    return line if len(line) <= _MAX_TEXT else line[:_MAX_TEXT] + "…"


def _markdown(blocks: Iterable[_Block]) -> str:
    return "\n\n".join(map(_markdown_block, blocks)) + "\n"


def _markdown_block(block: _Block) -> str:
    match block:
        case _Heading(level, text):
            return f"{'#' * level} {_escaped(text)}"
        case _Paragraph(text):
            return _escaped(text)
        case _Listing(text):
            fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text) or [""]))
            return f"{fence}json\n{text}\n{fence}"
        case _Table(headers, rows, coded):
            lines = [_row_text(headers), _row_text("---" for _ in headers)]
            lines += [
                _row_text(
                    _coded(cell) if place in coded and cell else _escaped(cell)
                    for place, cell in enumerate(row)
                )
                for row in rows
            ]
            return "\n".join(lines)


def _row_text(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Text in which Markdown and HTML have no meaning; a number and a dot would begin a list."""
    line = _MARKS.sub(r"\\\1", _line(text)).replace(r"\<", "&lt;").replace(r"\&", "&amp;")
    line = _ADDRESS.sub(r"\1\\\2", line)
    return re.sub(r"^(\d+)([.)])", r"\1\\\2", line)


def _coded(text: str) -> str:
    """A name as code in a table cell; one with a backtick or a pipe as escaped text."""
    return _escaped(text) if re.search(r"[`|\\]", text) else f"`{_line(text)}`"


def _html(namespace: str, blocks: Iterable[_Block]) -> str:
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(_line(namespace))}</title>"
        "<style>body{font:16px/1.5 system-ui;max-width:70rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;display:block;overflow-x:auto}td,th{border:1px solid #ccc;padding:.3rem .6rem;"
        "text-align:left;vertical-align:top}th{white-space:nowrap}"
        "td,p,h1,h2{overflow-wrap:anywhere}td{min-width:5rem}"
        "td:first-child{min-width:11rem}td:last-child{min-width:14rem}"
        "ul{columns:16rem;padding-left:1.2rem}h2{margin-top:3rem;border-top:1px solid #ccc;padding-top:1rem}pre{background:#f4f4f4;padding:1rem;overflow:auto}"
        "</style></head><body>\n"
    )
    title, *rest = blocks
    body = [_html_block(title), _contents(rest), *map(_html_block, rest)]
    return head + "\n".join(body) + "\n</body></html>\n"


def _contents(blocks: Iterable[_Block]) -> str:
    """Links to the sections of a page."""
    names = [_line(each.text) for each in blocks if isinstance(each, _Heading) and each.level == 2]
    links = (f'<li><a href="#{quote(name)}">{escape(name)}</a></li>' for name in names)
    return f"<ul>{''.join(links)}</ul>"


def _html_block(block: _Block) -> str:
    match block:
        case _Heading(2, text):
            return f'<h2 id="{escape(_line(text))}">{escape(_line(text))}</h2>'
        case _Heading(level, text):
            return f"<h{level}>{escape(_line(text))}</h{level}>"
        case _Paragraph(text):
            return f"<p>{escape(_line(text))}</p>"
        case _Listing(text):
            return f"<pre><code>{escape(text)}</code></pre>"
        case _Table(headers, rows, coded):
            lines = [f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in headers)}</tr>"]
            for row in rows:
                cells = (
                    f"<td><code>{escape(_line(cell))}</code></td>"
                    if place in coded
                    else f"<td>{escape(_line(cell))}</td>"
                    for place, cell in enumerate(row)
                )
                lines.append(f"<tr>{''.join(cells)}</tr>")
            return "\n".join([*lines, "</table>"])
