"""Rules of seed 001 that no single module proves: order, factories, the one way to call."""

from __future__ import annotations

import ast
import asyncio
import inspect
from pathlib import Path

import pytest

import callpact
from callpact import from_functions
from callpact.envelope import ResponseEnvelope, local_envelope, mcp_envelope
from callpact.errors import InvalidInput, InvalidSchema
from callpact.runtime import Runtime
from callpact.tool import Contract, Tool

IN = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def _run(handler, arguments, **contract):
    contract = Contract(**{"input": IN, "output": OUT, **contract})
    tool = Tool(id="t.tool", description="", contract=contract, handler=handler)
    return asyncio.run(Runtime([tool]).execute("t.tool", arguments))


@pytest.mark.requirement("001.execute.order")
def test_input_is_judged_before_the_handler_and_its_answer_after():
    steps = []

    async def handler(arguments, context):
        steps.append(arguments)
        return {"n": "7"}

    with pytest.raises(InvalidInput):
        _run(handler, {"n": "x"})
    assert steps == []
    envelope = _run(handler, {"n": 1})
    assert steps == [{"n": 1}]
    assert envelope.data == {"n": 7}
    assert [warning.code for warning in envelope.warnings] == ["type"]


@pytest.mark.requirement("001.execute.casts")
@pytest.mark.parametrize(
    "answer",
    [
        {"n": 1, "x": 2},
        local_envelope({"n": 1, "x": 2}, "other.tool"),
        {"data": {"n": 1, "x": 2}, "meta": {"source": "http"}},
    ],
)
def test_raw_values_and_envelopes_alike_are_cast_to_a_meaningful_schema(answer):
    async def handler(arguments, context):
        return answer

    assert _run(handler, {"n": 1}).data == {"n": 1}
    assert _run(handler, {"n": 1}, output=None).data == {"n": 1, "x": 2}


@pytest.mark.requirement("001.cast.fills-defaults")
def test_a_missing_optional_field_is_not_filled_with_its_default():
    optional = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "stock": {"type": "integer", "default": 1}},
        "required": ["n"],
    }

    async def handler(arguments, context):
        return {"n": 1}

    assert _run(handler, {"n": 1}, output=optional).data == {"n": 1}


@pytest.mark.requirement("001.types.mcp-structured-content")
@pytest.mark.parametrize("value", [{}, [], "text", 0, False, None])
def test_structured_content_may_be_any_json_value(value):
    envelope = mcp_envelope(value, is_error=False, content=[], structured_content=value)
    read = ResponseEnvelope.from_json(envelope.to_json())
    assert read.meta.structured_content == value
    assert "structuredContent" in envelope.to_wire()["meta"]


@pytest.mark.requirement("001.execute.returns-envelope")
@pytest.mark.requirement("001.migration.execute-type")
@pytest.mark.requirement("001.constraint.no-transitional-api")
def test_the_only_ways_to_call_return_an_envelope():
    calling = [
        method
        for name, method in inspect.getmembers(Runtime, inspect.isfunction)
        if name.startswith(("execute", "call"))
    ]
    assert {method.__name__ for method in calling} >= {"execute", "execute_sync"}
    for method in calling:
        given = method.__annotations__["return"]
        assert given in {"ResponseEnvelope[Any]", "Coroutine[Any, Any, ResponseEnvelope[Any]]"}


@pytest.mark.requirement("001.constraint.factories")
def test_sources_make_envelopes_by_the_factories_only():
    sources = Path(callpact.__file__).parent / "sources"
    built_by_hand = [
        f"{path.name}:{node.lineno}"
        for path in sorted(sources.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ResponseEnvelope"
    ]
    assert built_by_hand == []


class _Opaque:
    pass


def _opaque(n: int) -> _Opaque:
    return {"n": n}


@pytest.mark.requirement("001.open.output-schema-fallback")
def test_an_output_without_a_usable_schema_is_unknown_and_told_in_the_report():
    tools = from_functions(_opaque)
    assert tools[0].contract.compiled_output is None
    assert [finding.severity for finding in tools.report] == ["warning"]
    envelope = asyncio.run(Runtime(tools).execute(tools[0].id, {"n": 1}))
    assert envelope.data == {"n": 1}
    with pytest.raises(InvalidSchema):
        Contract(output={"type": "opaque"})
