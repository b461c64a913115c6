"""Lint: findings about contracts that are valid, and hard for a model to satisfy.

Reads the published input schemas, descriptions and examples of tools; no tool is called. It works on
a catalog, so the rules are the same for every source. A property is read with everything that
applies to it: the targets of its references, and the branches of `allOf`, `anyOf` and `oneOf`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from callpact.contracts.lint_rules import LINT_RULES
from callpact.contracts.schema_changes import shown
from callpact.errors import InvalidSchema
from callpact.schema import CompiledSchema, check, compile_schema, is_array, is_object
from callpact.schema.document import pointer
from callpact.schema.targets import Targets
from callpact.sources.base import Severity

if TYPE_CHECKING:
    from callpact.catalog import Catalog
    from callpact.tool import Tool

MAX_PARAMETERS = 25
"""Parameters of a tool above which they are reported as many."""
MAX_INPUT_LEVELS = 5
"""Levels of nested objects and arrays of an input above which it is reported as deep."""
MAX_LINTED = 5_000
"""Properties of one tool that are read."""
_MAX_FACETS = 50  # Schemas that apply to one place.
_MAX_TEXT = 2_000  # Characters of a description that are read.
_MAX_EXAMPLES = 20  # Examples of a tool, or of a property, that are tried.


class LintFinding(Struct, frozen=True):
    """One finding about the contract of a tool."""

    tool: str
    code: str
    severity: Severity
    path: str
    """The place in the arguments, as `/filters/limit`; `*` for items. Empty for the tool itself."""
    message: str
    remedy: str
    place: str = ""
    """The source of the tool, as `python:shop.py:price`."""


def lint_catalog(catalog: Catalog) -> tuple[LintFinding, ...]:
    """The findings about every tool of a catalog, in its order."""
    same: dict[tuple[str, str], list[str]] = {}
    for tool in catalog:
        key = (tool.namespace, " ".join(tool.description.lower().split()))
        same.setdefault(key, []).append(tool.id)
    found: list[LintFinding] = []
    for tool in catalog:
        key = (tool.namespace, " ".join(tool.description.lower().split()))
        others = [name for name in same[key] if name != tool.id]
        if key[1] and others:
            more = f" and {len(others) - 1:,} more" if others[1:] else ""
            words = f"the description is also that of '{others[0]}'{more}"
            found.append(_finding(tool, "LNT002", "", words))
        found += lint_tool(tool)
    return tuple(found)


def lint_tool(tool: Tool) -> tuple[LintFinding, ...]:
    """The findings about one tool by itself."""
    lint = _ToolLint(tool)
    return tuple(dict.fromkeys(_finding(tool, *hit) for hit in lint.hits()))


def _finding(tool: Tool, code: str, path: str, message: str) -> LintFinding:
    rule = LINT_RULES[code]
    return LintFinding(tool.id, code, rule.severity, path, message, rule.remedy, tool.source)


_Hit = tuple[str, str, str]  # code, path, message


class _ToolLint:
    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._root: Any = tool.contract.input
        self._targets = Targets(self._root)
        self._examples = [
            _without_notes(example, self._root)
            for example in tool.examples[:_MAX_EXAMPLES]
            if is_object(example)
        ]
        # In an OpenAPI document, a response without a schema is mostly one without content, and
        # the property `body` is not the author's.
        self._is_operation = "#/" in tool.source
        self._left = MAX_LINTED
        self._deepest = 0
        self._entered: set[int] = set()

    def hits(self) -> Iterator[_Hit]:
        tool = self._tool
        if not tool.description.strip():
            yield "LNT001", "", "the tool has no description"
        elif _squeezed(tool.description) == _squeezed(tool.name):
            yield "LNT001", "", f"the description {shown(tool.description)} only repeats the name"
        if tool.contract.output in (None, True, {}) and not self._is_operation:
            yield "LNT080", "", "the tool has no output schema"
        yield from self._tool_examples()
        number = sum(len(_members(facet)) for facet in self._facets(self._root))
        if number > MAX_PARAMETERS:
            yield "LNT070", "", f"the tool has {number:,} parameters, more than {MAX_PARAMETERS}"
        yield from self._object(self._root, (), 1)
        if self._deepest > MAX_INPUT_LEVELS:
            words = f"the input has {self._deepest} levels, more than {MAX_INPUT_LEVELS}"
            yield "LNT071", "", words
        if self._left < 0:
            yield "LNT090", "", f"only {MAX_LINTED:,} properties of the input were read"

    def _tool_examples(self) -> Iterator[_Hit]:
        compiled = self._tool.contract.compiled_input
        for example in self._examples:
            for issue in check(compiled, example)[:1]:
                yield "LNT042", issue.path, f"an example is refused: {issue.message}"

    # --- places -----------------------------------------------------------------------------

    def _facets(self, schema: Any) -> list[dict[str, Any]]:
        """All schemas that apply to a place, through references and combined schemas."""
        found: list[dict[str, Any]] = []
        seen: set[int] = set()
        stack = [schema]
        while stack and len(found) < _MAX_FACETS:
            part = stack.pop()
            if not is_object(part) or id(part) in seen:
                continue
            seen.add(id(part))
            found.append(part)
            for targets in self._targets.of(part):
                stack += targets
            for key in ("allOf", "anyOf", "oneOf"):
                branches = part.get(key)
                stack += reversed(branches) if is_array(branches) else []
        return found

    def _object(self, schema: Any, path: tuple[str, ...], level: int) -> Iterator[_Hit]:
        """The findings about the properties of a place and below it; each schema is read once."""
        for facet in self._facets(schema):
            if id(facet) in self._entered:
                continue
            self._entered.add(id(facet))
            members = _members(facet)
            if members:
                self._deepest = max(self._deepest, level)
            yield from _alike(members, path)
            yield from _undeclared(facet, members, path)
            required = facet.get("required")
            needed = {*required} if is_array(required) else set[Any]()
            for name, part in members.items():
                self._left -= 1
                if self._left < 0:
                    return
                yield from self._property(
                    name, part, (*path, name), members, is_required=name in needed
                )
                yield from self._object(part, (*path, name), level + 1)
            if is_object(facet.get("items")):
                yield from self._object(facet["items"], (*path, "*"), level + 1)

    def _property(
        self,
        name: str,
        schema: Any,
        path: tuple[str, ...],
        names: Iterable[str],
        *,
        is_required: bool,
    ) -> Iterator[_Hit]:
        place = pointer(path)
        facets = self._facets(schema)
        described = [text for facet in facets if isinstance(text := facet.get("description"), str)]
        text = next((each for each in described if each.strip()), "")[:_MAX_TEXT]
        keys = {key for facet in facets for key in facet}
        if self._is_operation and path == ("body",):
            pass
        elif not text:
            yield "LNT010", place, f"property '{name}' has no description"
        elif all(_repeats(each, name) for each in described):
            yield "LNT010", place, f"the description {shown(text)} only repeats the name"
        kinds = {kind for facet in facets for kind in _kinds(facet)} - {"null"}
        if kinds == {"string"} and not keys & _FIXED:
            values = listed_values(text, names)
            if values:
                yield "LNT020", place, f"the description lists {', '.join(map(shown, values))}"
        yield from _defaults(name, text, place, keys, is_required=is_required, kinds=kinds)
        if is_required and "default" not in keys:
            if kinds == {"array"} and not keys & {"minItems", "prefixItems", "contains", "const"}:
                yield "LNT050", place, f"property '{name}' may be an empty array"
            if kinds == {"string"} and not keys & {*_FIXED, "minLength"}:
                yield "LNT051", place, f"property '{name}' may be an empty text"
        words = _words(name)
        is_amount = bool(words & _AMOUNTS) and words <= _AMOUNTS | _OF_RESULTS
        is_amount = is_amount and bool(kinds) and kinds <= _NUMBERS
        if is_amount and not keys & {"maximum", "exclusiveMaximum", *_FIXED}:
            yield "LNT060", place, f"property '{name}' has no maximum"
        yield from self._values(name, schema, facets, path)

    # --- values -----------------------------------------------------------------------------

    def _values(
        self, name: str, schema: Any, facets: list[dict[str, Any]], path: tuple[str, ...]
    ) -> Iterator[_Hit]:
        place = pointer(path)
        for facet in facets:
            if trouble := _contradiction(facet):
                yield "LNT043", place, f"no value of property '{name}' is accepted: {trouble}"
        own = [(word, value) for facet in facets for word, value in _own_values(facet)]
        patterns = [text for facet in facets if isinstance(text := facet.get("pattern"), str)]
        if not own and not patterns:
            return
        compiled = self._compiled(schema)
        if compiled is None:
            return
        is_shown = False
        for word, value in own:
            if _accepts(compiled, value):
                is_shown = True
            else:
                words = f"{word} {shown(value)} of property '{name}' is refused by its schema"
                yield "LNT041", place, words
        if not patterns or is_shown or any("enum" in facet or "const" in facet for facet in facets):
            return
        texts = [text for facet in facets if isinstance(text := facet.get("description"), str)]
        samples = [word for text in texts for word in _samples(text[:_MAX_TEXT])]
        samples += [each[name] for each in self._examples if len(path) == 1 and name in each]
        if not any(_accepts(compiled, sample) for sample in samples):
            yield "LNT040", place, f"no example matches the pattern {shown(patterns[0])}"

    def _compiled(self, schema: Any) -> CompiledSchema | None:
        """The validator of one property; None if it refers to more than the shared definitions."""
        if not is_object(schema):
            return None
        keys = ("$schema", "$defs", "definitions")
        shared = {key: self._root[key] for key in keys if key in self._root}
        try:
            return compile_schema({**schema, **shared}, formats=self._tool.contract.formats)
        except InvalidSchema:
            return None


def _accepts(compiled: CompiledSchema, value: Any) -> bool:
    try:
        return compiled.accepts(value)
    except ValueError:
        return False


def _members(schema: dict[str, Any]) -> dict[str, Any]:
    members = schema.get("properties")
    return members if is_object(members) else {}


def _kinds(schema: dict[str, Any]) -> list[Any]:
    kinds = schema.get("type")
    return kinds if is_array(kinds) else [] if kinds is None else [kinds]


def _without_notes(example: dict[str, Any], root: Any) -> dict[str, Any]:
    """The arguments of an example; FlowMCP keeps notes such as `_description` beside them."""
    members = _members(root) if is_object(root) else {}
    return {
        key: value for key, value in example.items() if key in members or not key.startswith("_")
    }


def _own_values(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if "default" in schema:
        yield "default", schema["default"]
    if "example" in schema:
        yield "example", schema["example"]
    examples = schema.get("examples")
    if is_array(examples):
        yield from (("example", value) for value in examples[:_MAX_EXAMPLES])


def _alike(members: dict[str, Any], path: tuple[str, ...]) -> Iterator[_Hit]:
    seen: dict[str, str] = {}
    for name in members:
        other = seen.setdefault(_squeezed(name), name)
        if other != name:
            words = f"properties '{other}' and '{name}' have nearly the same name"
            yield "LNT003", pointer((*path, name)), words


def _undeclared(
    schema: dict[str, Any], members: dict[str, Any], path: tuple[str, ...]
) -> Iterator[_Hit]:
    required = schema.get("required")
    is_closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    for name in required if is_closed and is_array(required) else []:
        if name not in members:
            words = f"property '{name}' is required, and it is neither declared nor allowed"
            yield "LNT043", pointer((*path, str(name))), words


_BOUNDS = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)


def _contradiction(schema: dict[str, Any]) -> str:
    """Two rules of one schema that exclude each other, in words; empty if there are none."""
    if schema.get("enum") == []:
        return "'enum' is empty"
    for low, high in _BOUNDS:
        first, second = schema.get(low), schema.get(high)
        if isinstance(first, int | float) and isinstance(second, int | float) and first > second:
            return f"{low} {shown(first)} is above {high} {shown(second)}"
    return ""


# --- names and descriptions -----------------------------------------------------------------

_NUMBERS = frozenset({"integer", "number"})
_FIXED = frozenset({"enum", "const", "pattern", "format"})
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]+")
_FILLERS = frozenset(
    ["a", "an", "the", "of", "for", "to", "this", "value", "parameter", "field", "property", "tool"]
)
_AMOUNTS = frozenset(["limit", "size", "count", "rows", "top", "results"])
_OF_RESULTS = frozenset(
    ["max", "maximum", "number", "num", "of", "page", "pagination", "per", "query", "result"]
)
"""Words beside those: the size of a page is one of results, that of a cache is not."""
_PAGING = frozenset(["limit", "offset", "page", "size", "pagesize", "perpage"])


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _repeats(description: str, name: str) -> bool:
    """True if a description has no word besides those of the name."""
    text = description[:_MAX_TEXT]
    return _squeezed(text) == _squeezed(name) or _words(text) - _FILLERS <= _words(name)


_QUOTED = r"(?:`[^`\n]{1,40}`|'[^'\n]{1,40}'|\"[^\"\n]{1,40}\")"
_BARE = r"[A-Za-z0-9][\w.:+-]{0,30}"
_SEPARATOR = r"(?:\s?[,|/]\s?(?:or\s|and\s)?|\s(?:or|and)\s)"
_LISTS = (
    re.compile(
        r"\b(?:one of(?: the following)?|(?:allowed|possible|valid|permitted|accepted)"
        r"(?: values?| options?)?(?: are| is)?|options(?: are)?)\s?[:=]?\s?\(?"
        rf"((?:{_QUOTED}|{_BARE})(?:{_SEPARATOR}(?:{_QUOTED}|{_BARE})){{1,40}})"
        r"(?=\s?[.;)\n]|\s?\Z)",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:\b(?:be|either|values?|options?|set to|are|is|use|accepts)|[:(])\s?[:(]?\s?"
        rf"({_QUOTED}(?:{_SEPARATOR}{_QUOTED}){{1,40}})",
        re.IGNORECASE,
    ),
    re.compile(rf"(?<![\w|/])({_BARE}(?:\|{_BARE}){{1,40}})(?![\w|])"),
)
_ITEM = re.compile(rf"{_QUOTED}|{_BARE}")
_OPEN_LIST = re.compile(
    r"\be\.?g\b|\bi\.e\b|\bex\.|\bexamples?\b|\bsuch as\b|\blike\b|\bincluding\b|\betc\b|\.\.\.|…"
    r"|\bseparated\b|\bdelimited\b|\blist of\b|\bcombin|\bany of\b|\bone or more\b|\bmultiple\b"
    r"|\bformat\b|\bprefix|\bcharacters?\b|\bcustom\b|\bfree-?\s?form\b|\bcan also\b",
    re.IGNORECASE,
)


def listed_values(description: str, names: Iterable[str] = ()) -> list[str]:
    """The fixed values that a description lists; empty if it lists none, or gives examples only.

    `names` are those of the properties: a description that mentions them lists no values.
    """
    if _OPEN_LIST.search(description):
        return []
    found = next((found for each in _LISTS if (found := each.search(description))), None)
    if found is None:
        return []
    items = [item.strip("`'\"").rstrip(".") for item in _ITEM.findall(found[1])]
    values = list(dict.fromkeys(item for item in items if item.lower() not in ("or", "and")))
    is_list = len(values) > 1 and all(any(map(str.isalnum, value)) for value in values)
    return values if is_list and not {*names} & {*values} else []


_DEFAULT = re.compile(
    r"(?:\bdefaults? (?:to|is)|\bdefault value(?: is)?|\bdefault\s?(?=[:=])|[(;]\s?default"
    r"|\bby default\b,?)\s?[:=]?\s?"
    rf"(?P<value>{_QUOTED}|-?\d+(?:\.\d+)?|true|false)(?=\s?[).,;\n]|\s?\Z)",
    re.IGNORECASE,
)
_OPTIONAL = re.compile(r"\A\W{0,2}optional\b|\(optional\b|\boptional\)", re.IGNORECASE)
_SAMPLE = re.compile(r"[`'\"(]([^`'\"()\n]{1,100})[`'\")]|([^\s,;]{1,100})")


def _samples(text: str) -> Iterator[str]:
    """Words and quoted parts of a description, each a possible example."""
    for quoted, word in _SAMPLE.findall(text):
        yield quoted or word
        yield (quoted or word).rstrip(".:")


def _defaults(
    name: str, text: str, place: str, keys: Iterable[str], *, is_required: bool, kinds: set[Any]
) -> Iterator[_Hit]:
    if "default" in keys:
        return
    named = _DEFAULT.search(text)
    if is_required and (named or _OPTIONAL.search(text)):
        what = f"names the default {named['value']}" if named else "calls it optional"
        yield "LNT030", place, f"property '{name}' is required, and its description {what}"
    elif is_required and kinds and kinds <= _NUMBERS and _squeezed(name) in _PAGING:
        yield "LNT032", place, f"property '{name}' is required"
    elif named and not is_required:
        yield "LNT031", place, f"the description names the default {named['value']}"
