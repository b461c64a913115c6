"""Schemas and values that the benchmarks share."""

from __future__ import annotations

import copy

IN = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1, "maxLength": 200},
        "n": {"type": "integer", "minimum": 0, "maximum": 1000},
    },
    "required": ["text", "n"],
    "additionalProperties": False,
}
OUT = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["text", "n"],
}
ARGUMENTS = {"text": "hello world", "n": 7}
THREE_WRONG = {"text": "", "n": "seven", "zz": 1}

_ITEM = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string", "maxLength": 50},
        "price": {"type": "number", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
        "size": {
            "type": "object",
            "properties": {"w": {"type": "number"}, "h": {"type": "number"}},
            "required": ["w", "h"],
        },
        "active": {"type": "boolean"},
    },
    "required": ["id", "name", "price"],
}
PAGE = {
    "type": "object",
    "properties": {"total": {"type": "integer"}, "items": {"type": "array", "items": _ITEM}},
    "required": ["items"],
}


def page(count: int = 7_000) -> dict:
    """About 1 MB of valid JSON."""
    items = [
        {
            "id": f"id{i}",
            "name": "some product name here",
            "price": i * 1.5,
            "tags": ["a", "bb", "ccc"],
            "size": {"w": 1.5, "h": 2.5},
            "active": True,
        }
        for i in range(count)
    ]
    return {"total": count, "items": items}


def page_with(wrong: int) -> dict:
    """The same with a price that is no number in the first `wrong` items."""
    value = copy.deepcopy(page())
    for item in value["items"][:wrong]:
        item["price"] = "a lot"
    return value
