"""A strict client accepts every answer: of every policy, in every size of schema, in both eras.

The client is the SDK's own: it validates what is structured against the schema that was listed, and
raises where they differ. The awkward answers stand in `support/awkward.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from itertools import product
from typing import Any

import jsonschema_rs
import mcp_types as types
import pytest
from mcp import Client
from mcp.server import Server
from mcp_types import methods

import awkward
from awkward import BLOCKS, CASES, LARGE, NOT_JSON, UNSENDABLE
from callpact import from_functions
from callpact.runtime import Runtime
from callpact.schema import convert, strip
from callpact.serve import Door
from callpact.tool import Contract, Tool
from callpact.wire.mcp.published import ADVERTISE
from schema_lint import lint_tool
from ways import place

LEGACY, MODERN = "legacy", "2026-07-28"
BOTH_WAYS = pytest.mark.usefixtures("way")
ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])
SIZES = pytest.mark.parametrize("advertise", ADVERTISE)
POLICIES = pytest.mark.parametrize("policy", ["pass", "warn", "cast", "convert", "reject"])
VIEWS = pytest.mark.parametrize(
    ("policy", "advertise"),
    [
        ("pass", "full"),
        *product(["warn", "cast", "convert", "reject"], ADVERTISE),
    ],  # `pass` publishes nothing.
)
PATIENCE = 60
LIMIT = 10_000
FOUND = "output_validation_failed"


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Handlers crash here on purpose."""
    with caplog.at_level(logging.CRITICAL, "callpact"):
        yield


def make(number, case, policy, schema) -> Tool:
    async def handler(arguments, context):
        return case.give()

    contract = Contract(output=schema, policy=policy)
    return Tool(
        id=f"t.n{number}",
        description=case.name,
        contract=contract,
        handler=handler,
        uses_client=False,
    )


def ask(tools, era, advertise, limit=10**9, *, is_called=True):
    """List and call every tool; gives what was listed and the answers, both as on the wire."""

    async def go():
        door = Door(
            Runtime(tools),
            name="t",
            version="1",
            list_up_to=len(tools) + 1,
            advertise=advertise,
            result_limit=limit,
        )
        async with place(door.server) as there, Client(there, mode=era) as client:
            listed = {tool.name: wired(tool) for tool in (await client.list_tools()).tools}
            answers = [await answer(client, tool) for tool in tools if is_called]
            return listed, answers, client.protocol_version

    async def answer(client, tool):
        # An answer that raises must not raise inside the client's task group.
        try:
            return wired(await client.call_tool(tool.wire_name, {}))
        except Exception as error:
            return error

    return asyncio.run(asyncio.wait_for(go(), PATIENCE))


def wired(model):
    """What the client has read, as it was sent."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


def text_of(answer):
    return answer["content"][0]["text"]


def same(one, other) -> bool:
    """True for the same JSON: to Python 1 and true and 1.0 are equal."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def is_kept(schema, value) -> bool:
    return jsonschema_rs.validator_for(schema, offline=True).is_valid(value)


# --- the judge judges -----------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize(
    "structured", [{"a": "x"}, {}, None], ids=["wrong", "missing", "not structured"]
)
def test_the_client_refuses_what_breaks_the_listed_schema(structured, era):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

    async def list_tools(context, params):
        tool = types.Tool(name="t", input_schema={"type": "object"}, output_schema=schema)
        return types.ListToolsResult(tools=[tool])

    async def call_tool(context, params):
        given = {} if structured is None else {"structured_content": structured}
        return types.CallToolResult(content=[], **given)

    async def go():
        server = Server("t", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
        async with Client(server, mode=era) as client:
            await client.list_tools()
            try:
                return await client.call_tool("t", {})
            except RuntimeError as error:
                return error

    assert isinstance(asyncio.run(asyncio.wait_for(go(), PATIENCE)), RuntimeError)


# --- every answer ---------------------------------------------------------------------------


def holds(case, answer, listed, version):
    """What every answer keeps, whatever its policy."""
    assert isinstance(answer, dict), answer
    methods.validate_server_result("tools/call", version, answer)
    text = json.dumps(answer, allow_nan=False, ensure_ascii=False)
    assert same(json.loads(text.encode()), answer)
    published = listed.get("outputSchema")
    if answer.get("isError"):
        assert "structuredContent" not in answer
        if not (case.has_own_text and case.is_error):
            error = json.loads(text_of(answer))["error"]
            assert error["code"]
            assert error["message"]
            # One issue is told by the error itself; several are listed.
            assert error["code"] != FOUND or "path" in error
            assert error.get("issues", [None])
        return
    if published is not None:
        assert is_kept(published, answer["structuredContent"])
    structured = answer.get("structuredContent")
    if version != MODERN:
        assert structured is None or isinstance(structured, dict)
    if structured is not None and not case.has_own_text and case.plain is not BLOCKS:
        assert same(json.loads(text_of(answer)), structured)


def delivered(answer, case):
    """The value that an answer brings, out of its box."""
    if "structuredContent" not in answer:
        return text_of(answer) if isinstance(case.plain, str) else json.loads(text_of(answer))
    structured = answer["structuredContent"]
    is_boxed = isinstance(structured, dict) and structured.keys() == {"result"}
    return structured["result"] if is_boxed and not same(structured, case.plain) else structured


def code_of(answer):
    return json.loads(text_of(answer))["error"]["code"] if answer.get("isError") else None


def is_due(case, contract, advertise, answer, listed):
    """True if this is the answer that the contract asks for (design section 3)."""
    if case.is_error:
        return answer.get("isError") is True
    if case.plain in (NOT_JSON, UNSENDABLE):
        return code_of(answer) == FOUND or case.plain is UNSENDABLE
    policy, schema = contract.policy, contract.output
    if schema is None or policy == "pass":
        return case.plain is BLOCKS or same(delivered(answer, case), case.plain)
    is_strict = "outputSchema" in listed and advertise != "relaxed"
    is_strict = is_strict and (policy != "warn" or advertise == "declared")
    if case.plain is BLOCKS:
        is_medium = isinstance(schema, dict) and "contentEncoding" in schema
        is_refused = not is_medium and (policy in {"convert", "reject"} or is_strict)
        return code_of(answer) == (FOUND if is_refused else None)
    if is_kept(schema, case.plain) and not (case.has_extra and policy != "warn"):
        brought = delivered(answer, case)
        # `cast` and `convert` make 7 of 7.0.
        is_fitted = policy in {"cast", "convert"}
        return brought == case.plain if is_fitted else same(brought, case.plain)
    if policy == "reject" or (policy == "warn" and is_strict):
        return code_of(answer) == FOUND
    if policy == "warn":
        return same(delivered(answer, case), case.plain)
    if policy == "convert":
        return _is_converted(case, schema, answer)
    # It is fitted; what is beyond that is told, and where a strict schema is published not sent.
    if code_of(answer) is None and is_kept(schema, delivered(answer, case)):
        return True
    return code_of(answer) == (FOUND if is_strict else None)


def _is_converted(case, schema, answer):
    """Converted and stripped if that is enough, else refused: nothing is invented."""
    plain = strip(schema, convert(schema, case.plain))
    if not is_kept(schema, plain):
        return code_of(answer) == FOUND
    return code_of(answer) is None and same(delivered(answer, case), plain)


def wrong(cases, tools, advertise, asked):
    """The cases with an answer that is not as it should be, each with the answer."""
    listed, answers, version = asked
    found = {}
    for case, tool, answer in zip(cases, tools, answers, strict=True):
        shown = listed[tool.wire_name]
        try:
            holds(case, answer, shown, version)
            assert is_due(case, tool.contract, advertise, answer, shown)
        except (AssertionError, KeyError, ValueError) as error:
            found[case.name] = f"{type(error).__name__}: {json.dumps(answer, default=str)[:300]}"
    return found


@BOTH_WAYS
@pytest.mark.requirement("001.open.serving")
@ERAS
@VIEWS
def test_every_awkward_answer_is_accepted_and_what_the_contract_asks_for(policy, advertise, era):
    tools = [make(number, case, policy, case.schema) for number, case in enumerate(CASES)]
    asked = ask(tools, era, advertise)
    assert wrong(CASES, tools, advertise, asked) == {}


@BOTH_WAYS
@ERAS
@POLICIES
def test_every_awkward_answer_without_a_schema_is_accepted_as_it_is(policy, era):
    tools = [make(number, case, policy, None) for number, case in enumerate(CASES)]
    listed, answers, version = ask(tools, era, "full")
    assert not any("outputSchema" in shown for shown in listed.values())
    assert wrong(CASES, tools, "full", (listed, answers, version)) == {}


@BOTH_WAYS
@ERAS
@VIEWS
def test_every_answer_that_is_too_large_is_accepted_in_part(policy, advertise, era):
    tools = [make(number, case, policy, case.schema) for number, case in enumerate(LARGE)]
    listed, answers, version = ask(tools, era, advertise, LIMIT)
    for case, tool, answer in zip(LARGE, tools, answers, strict=True):
        shown = listed[tool.wire_name]
        assert isinstance(answer, dict), (case.name, answer)
        methods.validate_server_result("tools/call", version, answer)
        if answer.get("isError"):
            assert "structuredContent" not in answer
            assert code_of(answer) == FOUND, case.name
        elif "outputSchema" in shown:
            assert is_kept(shown["outputSchema"], answer["structuredContent"]), case.name


@BOTH_WAYS
@ERAS
@VIEWS
def test_an_integer_that_nobody_reads_is_told_in_words_or_is_an_error(policy, advertise, era):
    vast = 10**5_000
    case = awkward.case("vast", [vast], {"type": "array", "items": {"type": "integer"}})
    listed, (answer,), _ = ask([make(0, case, policy, case.schema)], era, advertise)
    assert isinstance(answer, dict), answer
    brought = [f"an integer of {vast.bit_length()} bits"]
    told = (brought, {"result": brought})
    published = listed["t_n0"].get("outputSchema", {})
    if any(is_kept(published, value) for value in told):
        assert answer["structuredContent"] in told
    else:
        assert code_of(answer) == FOUND


# --- what is listed -------------------------------------------------------------------------


@ERAS
@VIEWS
def test_no_client_warns_of_what_is_listed(policy, advertise, era):
    tools = [make(number, case, policy, case.schema) for number, case in enumerate(CASES)]
    listed, *_ = ask(tools, era, advertise, is_called=False)
    # A union of types is published as its author wrote it.
    is_whole = advertise == "declared" or (advertise == "full" and policy != "warn")
    found = {name: lint_tool(tool, unions=not is_whole) for name, tool in listed.items()}
    assert {name: texts for name, texts in found.items() if texts} == {}


@ERAS
def test_a_subscription_is_not_listed(era):
    async def handler(arguments, context):
        yield 1

    tool = Tool(
        id="t.ticks",
        description="Ticks.",
        contract=Contract(),
        handler=handler,
        kind="subscription",
    )
    other = make(0, CASES[0], "pass", None)
    listed, *_ = ask([other, tool], era, "full", is_called=False)
    assert list(listed) == ["t_n0"]


# --- functions, whose contracts are made of their annotations -------------------------------


def cup() -> awkward.Cup:
    """Give another thing than it says."""
    return {"name": 3, "made": "yesterday", "colour": "red"}


def point() -> awkward.Point | None:
    """Give nothing."""


def teas() -> list[awkward.Tea]:
    """Give too many and too few."""
    return [awkward.Tea("a", ["b"]), {"name": "c"}, None]


def level() -> awkward.Level:
    """Give no member."""
    return "low"


def pairs() -> dict[str, tuple[int, str]]:
    """Give pairs, and one that is none."""
    return {"a": (1, "b"), "c": [1]}


def anything():
    """Give what nobody declared."""
    return [awkward.Size.BIG, None]


@BOTH_WAYS
@ERAS
@SIZES
@pytest.mark.parametrize("policy", ["warn", "cast", "convert", "reject"])
def test_functions_that_do_not_keep_their_annotations_are_accepted(policy, advertise, era):
    made = from_functions([cup, point, teas, level, pairs, anything], namespace="f", policy=policy)
    tools = list(made)
    listed, answers, version = ask(tools, era, advertise)
    for tool, answer in zip(tools, answers, strict=True):
        case = awkward.case(tool.id, None, None)
        holds(case, answer, listed[tool.wire_name], version)
        assert lint_tool(listed[tool.wire_name], unions=False) == []


def search(what, among: list = (), where: dict | None = None, *, how: Any = None):
    """Take whatever comes."""
    return [what, *among, where, how]


@ERAS
def test_no_client_warns_of_parameters_that_take_anything(era):
    listed, *_ = ask(list(from_functions([search], namespace="f")), era, "full", is_called=False)
    assert lint_tool(listed["f_search"]) == []
