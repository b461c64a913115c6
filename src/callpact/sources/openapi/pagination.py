"""Pages of a list, fetched one after the other and merged: only where the settings ask for it.

A rule names the tools, where the next page comes from, and where the items are. Every merged answer
says so in its warnings, and says whether more pages exist.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args
from urllib.parse import urljoin

from callpact.envelope import ResponseEnvelope
from callpact.errors import InvalidConfig, Issue, UpstreamError
from callpact.net.address import Refused, place_of
from callpact.schema import is_array, is_object
from callpact.sources.openapi.operations import Operation, WireParameter
from callpact.sources.response_body import MaskedResponse

DEFAULT_PAGES = 10
"""Pages that are fetched for one call, unless a rule of pagination gives another number."""
DEFAULT_ITEMS = 1_000
"""Items after which no further page is fetched, unless a rule of pagination gives another number."""
MAX_PAGES = 1_000
"""Pages that a rule of pagination may ask for."""

PageStyle = Literal["link", "cursor", "page", "offset"]
_PARAMETER = r"\s*+;\s*+([\w*-]++)\s*+(?>(?:=\s*+(\"(?>(?:[^\"\\]|\\.)*)\"|[^\s\",;]*+))?)"
_ONE_PARAMETER = re.compile(_PARAMETER)
_LINK = re.compile(rf"\s*+<([^<>]*+)>((?>(?:{_PARAMETER})*))\s*+,?")
_ABSENT: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pagination:
    """How the pages of some tools are found.

    Raises:
        InvalidConfig: a field is missing or does not fit the style.
    """

    style: PageStyle
    """`link`: the header `Link`; `cursor`: a value of the answer; `page`, `offset`: a number."""
    tools: tuple[str, ...] = ("*",)
    """Names of tools, with `*` as a placeholder."""
    parameter: str = ""
    """The argument that asks for a page, by its name in the tool or in the request."""
    cursor: str = ""
    """JSON Pointer to the cursor of the next page; `-1` is the last item of an array."""
    more: str = ""
    """JSON Pointer to a value that is false on the last page."""
    items: str = ""
    """JSON Pointer to the array of items; empty if the answer itself is the array."""
    first: int = 1
    """The number of the first page (`page`)."""
    max_pages: int = DEFAULT_PAGES
    max_items: int = DEFAULT_ITEMS

    def __post_init__(self) -> None:
        if self.style not in get_args(PageStyle):
            raise _wrong("style", f"one of {', '.join(get_args(PageStyle))}", self.style)
        if self.style != "link" and not self.parameter:
            raise _wrong("parameter", f"the argument that asks for a page ({self.style})", "")
        if self.style == "cursor" and not self.cursor:
            raise _wrong("cursor", "a JSON Pointer to the next cursor, as in /next_cursor", "")
        for name in ("cursor", "more", "items"):
            pointer = getattr(self, name)
            if pointer and not pointer.startswith("/"):
                raise _wrong(name, "a JSON Pointer, which begins with /", pointer)
        if not 0 < self.max_pages <= MAX_PAGES:
            raise _wrong("max_pages", f"a number from 1 to {MAX_PAGES:,}", self.max_pages)
        if self.max_items < 1:
            raise _wrong("max_items", "a number of 1 or more", self.max_items)

    def parameter_of(self, operation: Operation) -> WireParameter | None:
        """The parameter of an operation that asks for a page, or None."""
        found = [each for each in operation.parameters if each.argument == self.parameter]
        found += [each for each in operation.parameters if each.name == self.parameter]
        return found[0] if found else None

    def fits(self, operation: Operation) -> bool:
        """True if the rule is for an operation: a GET that it names and that has the parameter."""
        if operation.method != "GET" or not any(
            fnmatchcase(operation.name, pattern) for pattern in self.tools
        ):
            return False
        return self.style == "link" or self.parameter_of(operation) is not None


def _wrong(name: str, what: str, got: object) -> InvalidConfig:
    return InvalidConfig(f"pagination.{name}: expected {what}, got {got!r}")


def read_pagination(given: Any) -> tuple[Pagination, ...]:
    """Read the `pagination` of a source: one rule, or a list of rules.

    Raises:
        InvalidConfig: with the key, what was expected and what came.
    """
    tables = given if is_array(given) else [given]
    return tuple(_rule(table) for table in tables)


def _rule(table: Any) -> Pagination:
    if isinstance(table, Pagination):
        return table
    known = {each.name for each in fields(Pagination)}
    if not is_object(table) or "style" not in table:
        raise InvalidConfig(
            "pagination: expected a table with 'style' (link, cursor, page, offset)"
        )
    read = dict(table)
    for key, value in table.items():
        if key not in known:
            raise InvalidConfig(
                f"pagination: '{key}' is not a setting; expected one of {', '.join(sorted(known))}"
            )
        is_number = key in {"first", "max_pages", "max_items"}
        if key == "tools":
            texts = [value] if isinstance(value, str) else value
            if not is_array(texts) or not all(isinstance(each, str) for each in texts):
                raise _wrong(key, "a list of names", value)
            read[key] = tuple(texts)
        elif (
            (isinstance(value, bool) or not isinstance(value, int))
            if is_number
            else (not isinstance(value, str))
        ):
            raise _wrong(key, "a number" if is_number else "a text", value)
    return Pagination(**read)


def rule_for(operation: Operation, rules: Iterable[Pagination]) -> Pagination | None:
    """The first rule that fits an operation, or None."""
    return next((rule for rule in rules if rule.fits(operation)), None)


@dataclass(slots=True)
class FetchedPage:
    """One page: the response, its data, and the address that it came from."""

    read: MaskedResponse
    data: Any
    url: str


FetchPage = Callable[[Mapping[str, Any], str | None], Awaitable[FetchedPage]]
"""Fetches a page for arguments, or from the address of a link."""


async def merged_pages(
    rule: Pagination, operation: Operation, arguments: Mapping[str, Any], fetch: FetchPage
) -> ResponseEnvelope[Any]:
    """Fetch pages up to the limits of the rule, and merge their items into the last page.

    Raises:
        UpstreamError: a link leads to another origin, or a page has no items.
    """
    items: list[Any] = []
    asked: dict[str, Any] = dict(arguments)
    link: str | None = None
    seen: set[str] = set()
    number = 0
    while True:
        page = await fetch(asked, link)
        number += 1
        found = _value_at(page.data, rule.items)
        if not is_array(found):
            if number == 1 and found is _ABSENT and page.data is None:
                return page.read.envelope(page.data)
            raise page.read.unreadable(f"without an array of items at '{rule.items}'")
        items += found
        following = _next(rule, operation, page, found, asked)
        if following is None:
            return _merged(rule, page, items, number, "")
        step = repr(following)
        if step in seen:
            return _merged(rule, page, items, number, "the next page is one that was read already")
        if number >= rule.max_pages:
            return _merged(rule, page, items, number, f"the limit is {rule.max_pages:,} pages")
        if len(items) >= rule.max_items:
            return _merged(rule, page, items, number, f"the limit is {rule.max_items:,} items")
        seen.add(step)
        asked, link = following


def _next(
    rule: Pagination,
    operation: Operation,
    page: FetchedPage,
    found: list[Any],
    asked: Mapping[str, Any],
) -> tuple[dict[str, Any], str | None] | None:
    """The arguments and the link of the next page; None if this page is the last."""
    if rule.more and not _truth(_value_at(page.data, rule.more)):
        return None
    if rule.style == "link":
        link = next_link(page.read.response.headers.get("link", ""))
        return None if link is None else (dict(asked), _same_origin(link, page))
    parameter = rule.parameter_of(operation)
    if parameter is None or not found:
        return None
    argument = parameter.argument
    if rule.style == "cursor":
        cursor = _value_at(page.data, rule.cursor)
        if cursor is _ABSENT or cursor is None or cursor is False or cursor == "":
            return None
        return {**asked, argument: cursor}, None
    given = asked.get(argument)
    start = rule.first if rule.style == "page" else 0
    now = given if isinstance(given, int) and not isinstance(given, bool) else start
    return {**asked, argument: now + (1 if rule.style == "page" else len(found))}, None


def _truth(value: Any) -> bool:
    return value is not _ABSENT and bool(value)


def next_link(header: str) -> str | None:
    """The target of the relation `next` in a header `Link` (RFC 8288), or None."""
    place = 0
    while match := _LINK.match(header, place):
        for name, value in _ONE_PARAMETER.findall(match[2]):
            if name.lower() == "rel" and "next" in value.strip('"').lower().split():
                return match[1].strip()
        place = match.end()
    return None


def _same_origin(link: str, page: FetchedPage) -> str:
    try:
        source = place_of(page.url)
        target = place_of(urljoin(page.url, link))
    except (Refused, ValueError):
        target = source = None
    if target is None or source is None or target.origin != source.origin:
        raise UpstreamError(
            "The link to the next page leads to another origin, and is not followed",
            details={"reason": "pagination", "statusCode": page.read.response.status},
        )
    return target.url


def _value_at(data: Any, pointer: str) -> Any:
    """The value at a JSON Pointer, in which -1 is the last item of an array; absent if there is none."""
    for raw in pointer.split("/")[1:]:
        key = raw.replace("~1", "/").replace("~0", "~")
        if is_object(data) and key in data:
            data = data[key]
        elif is_array(data) and re.fullmatch(r"-1|[0-9]{1,9}", key) and -1 <= int(key) < len(data):
            if not data:
                return _ABSENT
            data = data[int(key)]
        else:
            return _ABSENT
    return data


def _merged(
    rule: Pagination, page: FetchedPage, items: list[Any], number: int, stop: str
) -> ResponseEnvelope[Any]:
    merged = _replaced(page.data, rule.items.split("/")[1:], items)
    text = f"{len(items):,} items of {number:,} {'page' if number == 1 else 'pages'} were merged"
    warnings = [Issue("merged_pages", text, rule.items)]
    if stop:
        text = f"There are more pages, which were not read: {stop}"
        warnings.append(Issue("more_pages", text, rule.items))
    return page.read.envelope(merged, tuple(warnings))


def _replaced(data: Any, keys: list[str], items: list[Any]) -> Any:
    if not keys:
        return items
    key = keys[0].replace("~1", "/").replace("~0", "~")
    if is_object(data):
        return {**data, key: _replaced(data[key], keys[1:], items)}
    copied = list(data)
    copied[int(key)] = _replaced(copied[int(key)], keys[1:], items)
    return copied
