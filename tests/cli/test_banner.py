from __future__ import annotations

from callpact.catalog import Catalog
from callpact.cli.banner import (
    MAX_BANNER_NAMESPACES,
    MAX_BANNER_REASONS,
    Serving,
    encode_fields,
    encode_lines,
    reasons_of,
    serving_of,
)
from callpact.resources import Prompt, Resource
from callpact.tool import Access, Contract, Disabled, Tool

ADDRESS = "http://127.0.0.1:8420/mcp"


async def answer(arguments, context):
    return 1


async def ticks(arguments, context):
    yield 1


def made(id, handler=answer, **more):
    return Tool(id=id, description=id, contract=Contract(), handler=handler, **more)


def disabled(id, reason):
    return made(id, disabled=Disabled("server_param_missing", reason))


def serving(**more):
    given = {"place": "stdio", "tools": {"shop": 2}, "left_out": {}, **more}
    return Serving(**given)


# --- what is counted -------------------------------------------------------------------------


def test_tools_are_counted_by_namespace_and_the_others_by_reason():
    catalog = Catalog(
        [
            made("shop.price"),
            made("shop.stock"),
            made("wind.now"),
            disabled("wind.later", "It needs WIND_KEY"),
            disabled("rain.now", "It needs WIND_KEY"),
            made("shop.ticks", ticks, kind="subscription"),
            made("shop.close", access=Access(scopes=("admin",))),
        ]
    )
    named = {"shop.price", "shop.stock", "wind.now"}
    told = serving_of(catalog, lambda tool: tool.id in named, ADDRESS, is_watching=True)
    assert told.place == ADDRESS
    assert told.tools == {"shop": 2, "wind": 1}
    assert told.total == 3
    assert told.left_out == {
        "disabled: It needs WIND_KEY": 2,
        "subscription": 1,
        "needs scope admin": 1,
    }
    assert (told.resources, told.prompts, told.is_watching) == (0, 0, True)


def test_resources_and_prompts_are_counted_if_they_are_served():
    catalog = Catalog(
        [made("shop.price")],
        resources=[Resource(uri="docs://a", tool=made("docs.a"))],
        prompts=[Prompt(tool=made("ask.a")), Prompt(tool=made("ask.b"))],
    )
    told = serving_of(catalog, lambda tool: tool.id != "ask.b", "stdio")
    assert (told.total, told.resources, told.prompts) == (1, 1, 1)


def test_the_commonest_reason_comes_first():
    tools = [disabled("a.a", "rare"), disabled("a.b", "common"), disabled("a.c", "common")]
    assert list(reasons_of(tools).items()) == [("disabled: common", 2), ("disabled: rare", 1)]


# --- lines -----------------------------------------------------------------------------------


def test_little_is_said_of_little():
    assert encode_lines(serving()) == ["serving 2 tools over stdio"]
    assert encode_lines(serving(tools={"shop": 1})) == ["serving 1 tool over stdio"]


def test_the_first_line_says_all_that_is_served_and_ends_with_the_place():
    full = serving(place=ADDRESS, tools={"shop": 1200}, resources=1, prompts=3)
    first = encode_lines(full)[0]
    assert first == f"serving 1,200 tools, 1 resource and 3 prompts over {ADDRESS}"
    two = serving(resources=2)
    assert encode_lines(two)[0] == "serving 2 tools and 2 resources over stdio"


def test_a_server_over_http_says_whether_callers_are_asked_who_they_are():
    nobody = encode_lines(serving(place=ADDRESS))
    assert "authentication: none, so it is bound to this machine" in nobody
    asked = encode_lines(serving(place=ADDRESS, authentication="bearer tokens"))
    assert "authentication: bearer tokens" in asked
    assert not any("authentication" in line for line in encode_lines(serving()))


def test_a_server_for_everybody_in_its_network_warns():
    open_wide = serving(place=ADDRESS, trusts_network=True)
    [line] = [line for line in encode_lines(open_wide) if "authentication" in line]
    assert line.startswith("warning: there is no authentication (--trust-network)")
    assert line.endswith("everybody who reaches this port can call the tools")
    assert encode_fields(open_wide)["trust_network"] is True
    assert encode_fields(serving(place=ADDRESS))["trust_network"] is False


def test_revisions_are_told_as_a_span():
    many = serving(versions=("2024-11-05", "2025-11-25", "2026-07-28"))
    assert "MCP: 2024-11-05 to 2026-07-28" in encode_lines(many)
    assert "MCP: 2026-07-28" in encode_lines(serving(versions=("2026-07-28",)))


def test_stand_ins_are_told_only_where_they_stand_in():
    few, many = serving(list_up_to=2), serving(list_up_to=1)
    assert not any(line.startswith("listed: ") for line in encode_lines(few))
    [line] = [line for line in encode_lines(many) if line.startswith("listed: ")]
    assert all(name in line for name in ("search_tools", "describe_tool", "call_tool"))
    assert not serving().is_searched


def test_the_largest_namespaces_are_counted_one_by_one():
    tools = {f"n{number}": number for number in range(1, MAX_BANNER_NAMESPACES + 3)}
    [line] = [line for line in encode_lines(serving(tools=tools)) if line.startswith("tools: ")]
    assert line.startswith("tools: n12 12, n11 11, ")
    assert line.endswith("n3 3, and 3 of 2 more namespaces")


def test_what_was_not_loaded_and_what_is_watched_is_told():
    lines = encode_lines(serving(not_loaded=1, is_watching=True))
    assert "not loaded: 1 declaration, see the errors" in lines
    assert any(line.startswith("watching: ") for line in lines)


def test_where_calls_are_put_on_record_is_told():
    assert encode_lines(serving(audit="/var/log/calls"))[1:] == ["audit: /var/log/calls"]
    assert encode_fields(serving(audit="/var/log/calls"))["audit"] == "/var/log/calls"


def test_the_commonest_reasons_are_named_and_the_rest_is_counted():
    reasons = {f"disabled: Key {number}": 2_000 for number in range(MAX_BANNER_REASONS)}
    assert len(encode_lines(serving(left_out=reasons))) == 1 + MAX_BANNER_REASONS
    *lines, last = encode_lines(serving(left_out={**reasons, "a": 2, "b": 1}))
    assert lines[1] == "left out: 2,000 (disabled: Key 0)"
    assert last == "left out: 3 (2 more reasons; `callpact list` shows them)"


# --- data ------------------------------------------------------------------------------------


def test_as_data_the_banner_has_the_same_keys_whatever_is_served():
    fields = encode_fields(serving())
    assert fields == {
        "place": "stdio",
        "tools": 2,
        "namespaces": {"shop": 2},
        "namespace_count": 1,
        "resources": 0,
        "prompts": 0,
        "searched": False,
        "protocol_versions": [],
        "docs": None,
        "authentication": None,
        "trust_network": False,
        "audit": None,
        "watching": False,
        "workers": 1,
        "package": None,
        "draft": None,
        "not_loaded": 0,
        "left_out": 0,
        "left_out_reasons": [],
    }
    big = encode_fields(
        serving(
            place=ADDRESS,
            tools={f"n{number}": 1 for number in range(500)},
            left_out={f"disabled: {number}": 1 for number in range(500)},
            authentication="bearer tokens",
            versions=("2024-11-05", "2026-07-28"),
            list_up_to=200,
        )
    )
    assert big.keys() == fields.keys()
    assert (big["tools"], big["namespace_count"], big["left_out"]) == (500, 500, 500)
    assert len(big["namespaces"]) == MAX_BANNER_NAMESPACES
    assert big["left_out_reasons"][0] == {"reason": "disabled: 0", "tools": 1}
    assert len(big["left_out_reasons"]) == MAX_BANNER_REASONS
    assert big["searched"]
    assert big["protocol_versions"] == ["2024-11-05", "2026-07-28"]
