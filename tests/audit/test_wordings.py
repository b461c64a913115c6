"""Changes of contracts in the language that a tool is declared in."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from pydantic import Field

from callpact import Contract, Tool, from_functions, tool
from callpact.audit import Record
from callpact.audit.analysis.advice import advise
from callpact.audit.analysis.drift import drift
from callpact.audit.analysis.wordings import language_of, wordings
from callpact.audit.record import note_of, payload_of
from callpact.audit.reports import advice_tail, drift_tail
from callpact.errors import InvalidInput
from callpact.gate import admit


class Row(TypedDict):
    price: float
    unit: NotRequired[str]


class Page(TypedDict):
    rows: list[Row]
    total: int


@tool(namespace="shop", policy="warn")
def search(
    query: Annotated[str, Field(max_length=10)],
    limit: Annotated[int, Field(ge=1, le=50)] = 10,
    unit: Literal["kg", "lb"] = "kg",
) -> Page:
    """Find products."""
    raise NotImplementedError


@tool(namespace="shop", policy="warn")
async def count() -> int:
    """Count products."""
    raise NotImplementedError


async def _handler(_arguments: Any, _context: Any) -> None:
    raise NotImplementedError


FLOWMCP = {
    "type": "object",
    "properties": {
        "limit": {"type": "number", "minimum": 1, "maximum": 50},
        "unit": {"type": "string", "enum": ["kg", "lb"]},
        "market": {"type": "string"},
    },
    "required": ["market"],
    "additionalProperties": False,
}
PRICE = {"type": "object", "properties": {"price": {"type": "number"}, "day": {"enum": ["mo"]}}}


def _flowmcp(**more):
    contract = Contract(input=FLOWMCP, output=PRICE, policy="warn")
    return Tool(
        id="shop.search",
        description="",
        contract=contract,
        handler=_handler,
        source="flowmcp:Shop.mjs",
        **more,
    )


def _advised(found, *inputs):
    """The words of all relaxations that refused inputs lead to."""
    records = []
    for number, sent in enumerate(inputs):
        with pytest.raises(InvalidInput) as refused:
            admit(found, sent)
        issues = tuple(map(note_of, refused.value.issues))
        kept = {"gate": "input", "code": "schema_validation_failed", "issues": issues}
        payload = payload_of(json.dumps(sent).encode())
        records.append(Record(str(number), number, 1.0, found.id, input=payload, **kept))
    report = advise(records, found)
    lines = [each.words for each in report.relaxations]
    shown = "\n".join(advice_tail(report, language_of(found)))
    assert all(line in shown for line in lines)
    assert "@@" not in shown  # No diff of a schema that nobody wrote.
    return lines


def _drifted(found, *outputs):
    records = [
        Record(str(n), n, 1.0, found.id, output=payload_of(json.dumps(data).encode()))
        for n, data in enumerate(outputs)
    ]
    report = drift(records, found.contract)
    lines = wordings(report.patch, language_of(found), is_output=True)
    shown = list(drift_tail(report, language_of(found)))
    assert "the smallest change of the declaration that accepts them:" in shown
    assert {f"  {line}" for line in lines} <= set(shown)
    return list(lines)


def test_the_language_is_that_of_the_declaration():
    [function, other] = from_functions(search, count)
    assert [language_of(each) for each in (function, other)] == ["python"] * 2
    assert language_of(_flowmcp()) == "flowmcp"
    declared = Tool(id="a.b", description="", contract=Contract(), handler=_handler)
    assert language_of(declared) is None


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"query": "x", "limit": 80}, ["limit: le=50 → le=80"]),
        ({"query": "x", "limit": 0}, ["limit: ge=1 → ge=0"]),
        ({"query": "x" * 11}, ["query: max_length=10 → max_length=11"]),
        ({"query": "x", "unit": "KG"}, ["unit: Literal['kg', 'lb'] → Literal['kg', 'lb', 'KG']"]),
        ({"query": "x", "limit": None}, ["limit: int → int | None"]),
        ({"query": "x", "limit": 2.5}, ["limit: int → float"]),
        ({}, ["query: give it a default"]),
        ({"query": "x", "exact": True}, ["a new parameter exact: bool"]),
        ({"query": "x", "limit": "ten"}, []),
        (
            {"query": "x", "limit": "10"},
            ['@tool(input_policy="tolerant"): text that says exactly what is wanted is converted'],
        ),
    ],
)
def test_advice_for_a_function_is_about_its_parameters(sent, words):
    [found] = from_functions(search)
    assert _advised(found, sent) == words


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"market": "de", "limit": 80}, ["limit: max(50) → max(80)"]),
        ({"market": "de", "limit": 0}, ["limit: min(1) → min(0)"]),
        ({"market": "de", "unit": "KG"}, ["unit: enum(kg, lb) → enum(kg, lb, KG)"]),
        ({}, ["market: optional()"]),
        ({"market": "de", "exact": True}, ["a new parameter exact: boolean(), optional()"]),
        ({"market": "de", "limit": "ten"}, []),
    ],
)
def test_advice_for_a_flowmcp_file_is_about_its_options(sent, words):
    assert _advised(_flowmcp(), sent) == words


ONE_TYPE = "`type` names one; correct it, or leave the property out"
GOOD = {"rows": [{"price": 1.0}], "total": 1}


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ({**GOOD, "total": None}, ["Page.total: int → int | None"]),
        ({"rows": []}, ["Page.total: NotRequired[int]"]),
        ({**GOOD, "rows": [{"price": "1"}]}, ["Row.price: float → float | str"]),
    ],
)
def test_drift_of_a_function_is_about_its_hints(output, words):
    [found] = from_functions(search)
    assert _drifted(found, GOOD, output) == words


def test_drift_of_a_plain_result_is_about_the_value():
    [found] = from_functions(count)
    assert _drifted(found, 1, None) == ["the value: int → int | None"]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ({"price": None}, ["price: nullable: true"]),
        ({"day": None}, ["day: nullable: true"]),
        ({"day": "tu"}, ["day: enum: ['mo'] → ['mo', 'tu']"]),
        ({"price": "1"}, [f"price: 'number' and 'string' came, and {ONE_TYPE}"]),
    ],
)
def test_drift_of_a_flowmcp_file_is_about_its_schema(output, words):
    assert _drifted(_flowmcp(), {"price": 1}, output) == words


def test_a_change_that_a_language_has_no_words_for_is_one_of_the_schema():
    rules = {"type": "object", "properties": {"a": {"type": "string", "format": "date"}}}
    found = Tool(
        id="a.b",
        description="",
        contract=Contract(input=rules, formats=True),
        handler=_handler,
        source="flowmcp:A.mjs",
    )
    assert _advised(found, {"a": "x"}) == ['/properties/a/format: "date" → none']
