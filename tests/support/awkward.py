"""Answers that a contract, an era of MCP or JSON itself makes awkward, each with a schema.

Not a test: the suite of the strict client serves them. A case says what the handler gives, what that
is as JSON, and which schema is declared; all else follows from the policy (design section 3).
"""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import msgspec
from pydantic import BaseModel

from callpact.envelope import (
    ImageBlock,
    ResourceLinkBlock,
    TextBlock,
    http_envelope,
    mcp_envelope,
)
from callpact.errors import ToolError
from callpact.schema.bounds import MAX_VALUE_DEPTH

NOT_JSON = object()
"""As JSON: what no JSON can say."""
BLOCKS = object()
"""As JSON: nothing; the answer is a picture, a file or the like."""
UNSENDABLE = object()
"""As JSON: what only an error can tell, or another character."""
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
PNG_TEXT = base64.b64encode(PNG).decode()
BIG = 10**30


@dataclass(frozen=True)
class Case:
    """One awkward answer."""

    name: str
    answer: Any
    """What the handler gives; a function is called for it."""
    schema: Any
    plain: Any = None
    """What it is as JSON."""
    has_extra: bool = False
    """It holds fields that the schema does not declare."""
    is_error: bool = False
    """It is an error whatever the policy."""
    has_own_text: bool = False
    """Its text is another server's, which stands."""
    more: dict[str, Any] = field(default_factory=dict)
    """What else the tool declares."""

    def give(self) -> Any:
        return self.answer() if callable(self.answer) else self.answer


def case(name: str, answer: Any, schema: Any, plain: Any = None, **more: Any) -> Case:
    """A case whose answer is JSON, unless it is told what it is as JSON."""
    plain = answer if plain is None and not isinstance(answer, Callable) else plain
    return Case(name, answer, schema, plain, **more)


# --- kinds ----------------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


class Level(Enum):
    HIGH = "high"


@dataclass
class Point:
    x: int
    y: float


class Cup(BaseModel):
    name: str
    made: dt.date
    price: float | None = None


class Tea(msgspec.Struct):
    name: str
    leaves: list[str]


DEEP = 128
"""Levels that the client and the server of the SDK pass to each other in memory."""


def nested(levels: int, step: Callable[[Any], Any], innermost: Any) -> Any:
    value = innermost
    for _ in range(levels):
        value = step(value)
    return value


def http_reply(data: Any, status: int = 200, kind: str = "application/json") -> Any:
    return http_envelope(
        data, status_code=status, headers={"a": "b"}, content_type=kind, set_cookie=["c=d"]
    )


def mcp_blocks(blocks: list[Any]) -> Any:
    """What a server sent that gives no structure: its blocks are the data."""
    return mcp_envelope(blocks, is_error=False, content=blocks)


def refused() -> Any:
    raise ToolError("sold_out", "None left \ud800", path="/item", details={"left": {1, 2}})


def crashed() -> Any:
    raise ValueError("the password is tea")


# --- schemas --------------------------------------------------------------------------------

SHOP = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "open": {"type": "boolean"},
        "stock": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "stock"],
}
CLOSED = {**SHOP, "additionalProperties": False}
TREE = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "left": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
            },
            "required": ["value"],
        }
    },
}
NAMES = {"type": "array", "items": {"type": "string"}, "minItems": 1}
UNION = {
    "anyOf": [
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "string", "enum": ["none"]},
    ]
}
OLD = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"a": {"$ref": "#/definitions/A", "type": "string"}},
    "required": ["a"],
    "definitions": {"A": {"type": "integer"}},
}
ROUND = {
    "type": "object",
    "properties": {"v": {"$ref": "#/$defs/A"}},
    "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "string"}]}},
}
MANY = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


CASES = [
    # --- too little, too much, something else
    case("null", None, SHOP),
    case("null where it may be", None, {"type": ["object", "null"]}),
    case("null of an optional", None, {"anyOf": [SHOP, {"type": "null"}]}),
    case("null at a field", {"name": None, "stock": None}, SHOP),
    case("missing", {"name": "tea"}, SHOP),
    case("empty object", {}, SHOP),
    case("empty object of a list", {}, NAMES),
    case("empty list of an object", [], SHOP),
    case("empty list", [], NAMES),
    case("empty text", "", {"type": "string", "minLength": 1}),
    case("empty text of an object", "", SHOP),
    case("extra", {"name": "tea", "stock": 1, "more": [{"a": 1}]}, SHOP, has_extra=True),
    case("extra in a closed one", {"name": "tea", "stock": 1, "more": 2}, CLOSED),
    case("wrong types", {"name": 1, "open": "perhaps", "stock": "many", "tags": "a"}, SHOP),
    case("right in words", {"name": "tea", "open": "true", "stock": "12", "tags": []}, SHOP),
    case("good", {"name": "tea", "stock": 0}, CLOSED),
    case("truth for a number", {"name": "tea", "stock": True}, SHOP),
    case("object for text", {"name": {}, "stock": 1}, SHOP),
    # --- numbers
    case("nan", math.nan, {"type": "number"}, NOT_JSON),
    case("nan inside", {"name": "tea", "stock": math.nan}, SHOP, NOT_JSON),
    case("infinity", [math.inf, -math.inf], {"type": "array"}, NOT_JSON),
    case("big", BIG, {"type": "integer"}),
    case("big inside", {"name": "tea", "stock": BIG, "tags": []}, SHOP),
    case("big and wrong", {"name": BIG, "stock": -BIG}, SHOP),
    case("big beside many", [BIG, [[n] for n in range(6_000)]], {"type": "array"}),
    case("float for an integer", {"name": "tea", "stock": 7.0}, SHOP),
    case("half for an integer", {"name": "tea", "stock": 7.5}, SHOP),
    case("tiny, huge and minus nought", [5e-324, 1e308, -0.0], {"type": "array"}),
    case("cents", {"price": 19.99}, fields(price={"type": "number", "multipleOf": 0.01})),
    # --- text
    case("surrogate", "a\ud800", {"type": "string"}, UNSENDABLE),
    case("surrogate inside", {"name": "\udfff", "stock": 1}, SHOP, UNSENDABLE),
    case("surrogate in a key", {"\ud800": 1}, {"type": "object"}, UNSENDABLE),
    case("all sorts of text", "\0\x1f\x7f\u2028é😀\ufeff\uffff", {"type": "string"}),
    case("text that is JSON", '{"name": "tea", "stock": 1}', SHOP),
    case("text that is JSON of a list", '["a"]', NAMES),
    case("text that is JSON as text", '{"a": 1}', {"type": "string"}),
    case("text of a number", "12.5", {"type": "number"}),
    case("text for whoever wants none", "tea", {"type": "integer"}),
    case("awkward keys", {"": 1, "a/b": 2, "~": 3, "$ref": 4, "é": 5}, {"type": "object"}),
    case("keys named as keywords", {"type": 1, "result": [2]}, fields(type={}, result={})),
    # --- depth
    case("deep", nested(DEEP, lambda v: [v], 1), {"type": "array"}),
    case("too deep", nested(MAX_VALUE_DEPTH + 2, lambda v: [v], 1), {"type": "array"}, NOT_JSON),
    case("deep in a box", nested(DEEP, lambda v: {"result": v}, 1), {"type": "object"}),
    case("deep in references", nested(DEEP, lambda v: {"value": 1, "left": v}, None), TREE),
    case("wrong in references", nested(9, lambda v: {"value": "x", "left": v}, 3), TREE),
    # --- Python
    case("tuple", ("a", "b"), NAMES, ["a", "b"]),
    case("members", {"v": [Colour.RED, Size.BIG, Level.HIGH]}, SHOP, {"v": ["red", 3, "high"]}),
    case("member", Colour.RED, {"enum": ["red", "blue"]}, "red"),
    case("keys that are members", {Colour.RED: 1}, {"type": "object"}, {"red": 1}),
    case(
        "dataclass",
        Point(1, 2.5),
        fields(x={"type": "integer"}),
        {"x": 1, "y": 2.5},
        has_extra=True,
    ),
    case(
        "model",
        Cup(name="x", made=dt.date(2026, 2, 3)),
        fields(made={"type": "string", "format": "date"}),
        {"name": "x", "made": "2026-02-03", "price": None},
        has_extra=True,
    ),
    case("struct", Tea("x", ["y"]), SHOP, {"name": "x", "leaves": ["y"]}),
    case(
        "dates and ids",
        [dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), UUID(int=1)],
        NAMES,
        ["2026-01-02T03:00:00Z", "00000000-0000-0000-0000-000000000001"],
    ),
    case("set", {1, 2}, {"type": "array"}, NOT_JSON),
    case("keys that are numbers", {1: 2}, {"type": "object"}, NOT_JSON),
    case("something", object(), {"type": "object"}, NOT_JSON),
    case("circle", lambda: (held := [], held.append(held))[0], {"type": "array"}, NOT_JSON),
    # --- roots
    case("list", ["a"], NAMES),
    case("list of the wrong", [1, None, {"a": 1}], NAMES),
    case("number", 3, {"type": "integer"}),
    case("number of another", 3.5, {"type": "integer"}),
    case("false", False, {"type": "boolean"}),
    case("nought", 0, {"type": "number"}),
    case("text", "tea", {"type": "string"}),
    case("text outside", "tea", {"enum": ["coffee"]}),
    case("anything", [1], {}),
    case("whatever", {"a": None}, True),
    case("nothing at all", 1, False),
    case("union, first", {"a": 1}, UNION),
    case("union, second", [1], UNION),
    case("union, third", "none", UNION),
    case("union, none", {"a": "x"}, UNION),
    case("tree", {"value": 1, "left": {"value": 2, "left": None}}, TREE),
    case("a result", {"result": 1}, {"type": ["object", "null"]}),
    # --- keywords
    case("format", {"v": "yesterday"}, fields(v={"type": "string", "format": "date"})),
    case("pattern", {"v": "x"}, fields(v={"type": "string", "pattern": "^[a-c]+$"})),
    case("pattern of letters", {"v": "é"}, fields(v={"type": "string", "pattern": r"^\p{L}$"})),
    case("enum", {"v": "stone"}, fields(v={"enum": ["kg", "lb"]})),
    case("const", {"v": 2}, fields(v={"const": 1})),
    case("one of two", {"v": 3}, fields(v={"oneOf": [{"type": "number"}, {"type": "integer"}]})),
    case("not", {"v": "x"}, fields(v={"not": {"type": "string"}})),
    case("case", {"v": 1}, {"if": {"required": ["v"]}, "then": {"required": ["w"]}}),
    case("unlike", {"v": [1, 1.0]}, fields(v={"type": "array", "uniqueItems": True})),
    case("pair", ["a", 1, "c"], {"prefixItems": [{"type": "string"}], "items": False}),
    case("names", {"x-a": 1, "b": 2}, {"patternProperties": {"^x-": {"type": "string"}}}),
    case("short names", {"long": 1}, {"type": "object", "propertyNames": {"maxLength": 2}}),
    case("too many", {"a": 1, "b": 2}, {"type": "object", "maxProperties": 1}),
    case(
        "unevaluated", {"a": 1, "b": 2}, {"unevaluatedProperties": False, "properties": {"a": {}}}
    ),
    case("booleans", {"a": 1, "b": 2}, {"type": "object", "properties": {"a": True, "b": False}}),
    case("old draft", {"a": 1}, OLD),
    case("old draft, wrong", {"a": "x"}, OLD),
    case("named document", {"name": "tea", "stock": 1}, {"$id": "https://example.org/s", **SHOP}),
    case("named document, wrong", [], {"$id": "https://example.org/s", **SHOP}),
    case("anchor", {"v": 1}, {**fields(v={"$ref": "#n"}), "$defs": {"N": {"$anchor": "n"}}}),
    case("round", {"v": "x"}, ROUND),
    # --- media
    case("bytes", b"\0\xff", SHOP, BLOCKS),
    case("no bytes", b"", SHOP, BLOCKS),
    case("bytes in a list", [b"a"], {"type": "array"}, NOT_JSON),
    case("picture", bytearray(PNG), {"type": "object"}, BLOCKS),
    case(
        "picture in text",
        PNG_TEXT,
        {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"},
        BLOCKS,
    ),
    case(
        "no picture in text",
        "not base64 at all",
        {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"},
    ),
    # --- envelopes
    case(
        "answer of HTTP",
        lambda: http_reply({"name": 1}),
        SHOP,
        {"name": 1},
    ),
    case(
        "error of HTTP",
        lambda: http_reply({"error": "x"}, 404),
        SHOP,
        {"error": "x"},
    ),
    case("picture of HTTP", lambda: http_reply(PNG, kind="image/png"), SHOP, BLOCKS),
    case(
        "error of MCP",
        lambda: mcp_envelope({"a": 1}, is_error=True, content=[TextBlock("No such page")]),
        SHOP,
        BLOCKS,
        is_error=True,
        has_own_text=True,
    ),
    case(
        "structure of MCP",
        lambda: mcp_envelope(
            {"name": "tea", "stock": 1},
            is_error=False,
            content=[TextBlock("Tea: 1"), ImageBlock(PNG_TEXT, "image/png")],
            structured_content={"name": "tea", "stock": 1},
        ),
        SHOP,
        {"name": "tea", "stock": 1},
        has_own_text=True,
    ),
    case(
        "wrong structure of MCP",
        lambda: mcp_envelope(
            {"name": 3}, is_error=False, content=[], structured_content={"name": 3}
        ),
        SHOP,
        {"name": 3},
    ),
    case(
        "null structure of MCP",
        lambda: mcp_envelope(None, is_error=False, content=[], structured_content=None),
        SHOP,
    ),
    case(
        "list structure of MCP",
        lambda: mcp_envelope([1], is_error=False, content=[], structured_content=[1]),
        SHOP,
        [1],
    ),
    case(
        "blocks of MCP",
        lambda: mcp_blocks([TextBlock("a"), ResourceLinkBlock("https://example.org/a", "a")]),
        SHOP,
        BLOCKS,
        has_own_text=True,
    ),
    case("nothing of MCP", lambda: mcp_blocks([]), SHOP, BLOCKS),
    # --- errors, and what is too large
    case("refused", refused, SHOP, is_error=True),
    case("crashed", crashed, SHOP, is_error=True),
]
LARGE = [
    case("long list", [{"n": n} for n in range(2_000)], MANY),
    case("long list of a least length", [{"n": n} for n in range(2_000)], {**MANY, "minItems": 99}),
    case("long list inside", {"rows": [{"n": n} for n in range(2_000)]}, fields(rows=MANY)),
    case("long list of the wrong", [{"n": "x"} for n in range(2_000)], MANY),
    case("long text", "tea " * 5_000, {"type": "string"}),
    case("long text inside", {"v": "tea " * 5_000}, fields(v={"type": "string"})),
    case("wide object", {str(n): n for n in range(2_000)}, {"type": "object"}),
    case("big integers", [BIG + n for n in range(1_000)], {"type": "array"}),
    case("many bytes", bytes(20_000), SHOP, BLOCKS),
]
"""Answers over a limit of 10,000 bytes, which come in part."""
