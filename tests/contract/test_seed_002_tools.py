"""Seed 002, row by row: addresses, keys, lists and tools; what is sent for a call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import schema_file as kit
from callpact import CallError
from callpact.catalog import Catalog
from callpact.discovery import ToolIndex
from callpact.serve.mcp.views import is_served
from callpact.wire.mcp.results import encode_tool

HERE = Path(__file__).parent


rule, codes, loads, breaks = kit.rule, kit.codes, kit.loads, kit.breaks
changed, _at, Caller = kit.changed, kit.at, kit.Caller
GONE, GOOD, TOOL, PROFILES, KEY = kit.GONE, kit.GOOD, kit.TOOL, kit.PROFILES, kit.KEY


# --- field details --------------------------------------------------------------------------


@pytest.mark.requirement("002.namespace.valid")
@pytest.mark.parametrize(
    "namespace", ["etherscan", "coingecko", "defillama", "coingecko-com", "etherscan-io"]
)
def test_the_namespaces_of_the_seed_are_valid(namespace):
    assert codes(_at("/namespace", namespace)) == set()


@pytest.mark.requirement("002.namespace.invalid")
@pytest.mark.parametrize("namespace", ["CoinGecko", "web3_data"])
def test_capitals_and_underscores_are_not_allowed_in_a_namespace(namespace):
    assert breaks(_at("/namespace", namespace), "VAL011", "/namespace")


@pytest.mark.requirement("002.namespace.qualified")
def test_a_tool_is_found_by_its_id_and_by_the_name_of_the_seed(tmp_path):
    caller = Caller(tmp_path, GOOD, {"id": "btc"})
    assert caller.tool.id == "token-prices.getTokenPrice"
    for name in ("token-prices.getTokenPrice", "token-prices/TokenPrices::getTokenPrice"):
        assert caller.call(name=name).data == {"id": "btc"}
    with pytest.raises(CallError) as caught:
        caller.call(name="token-prices/Other::getTokenPrice")
    assert caught.value.code == "tool_not_found"


@pytest.mark.requirement("002.root.prepended")
@pytest.mark.requirement("002.root.examples")
@pytest.mark.requirement("002.path.appended")
@pytest.mark.parametrize(
    "root", ["https://api.etherscan.io", "https://pro-api.coingecko.com/api/v3"]
)
@pytest.mark.parametrize("path", ["/api", "/api/v1/prices", "/"])
def test_the_address_is_root_and_path(tmp_path, root, path):
    main = changed(("/root", root), (TOOL, kit.tool(path=path, parameters=[])))
    main = changed((f"{TOOL}/tests", [{"_description": "All"}] * 3), main=main)
    assert codes(main) == set()
    caller = Caller(tmp_path, main, {})
    caller.call({})
    assert caller.requests[0].url == root + path


@pytest.mark.parametrize(
    ("root", "code"),
    [
        rule("002.root.https", "http://api.etherscan.io", "VAL085"),
        rule("002.constraint.root-https", "HTTP://api.etherscan.io", "VAL085"),
        rule("002.root.https", "ftp://api.etherscan.io", "VAL085"),
        rule("002.root.no-slash", "https://api.etherscan.io/", "VAL086"),
        rule("002.constraint.root-slash", "https://api.etherscan.io/v1/", "VAL086"),
    ],
)
def test_root_is_https_and_has_no_slash_at_its_end(root, code):
    assert breaks(_at("/root", root), code, "/root")


KEYED = changed(
    ("/requiredServerParams", ["ETHERSCAN_API_KEY"]),
    (
        f"{TOOL}/parameters",
        [
            kit.parameter("id", location="insert"),
            kit.parameter("apikey", "{{SERVER_PARAM:ETHERSCAN_API_KEY}}"),
        ],
    ),
    ("/headers", {"Authorization": "Bearer {{SERVER_PARAM:ETHERSCAN_API_KEY}}"}),
)


@pytest.mark.requirement("002.server-params.injected")
@pytest.mark.requirement("002.server-params.declared")
def test_a_key_is_put_in_where_it_belongs_and_shown_nowhere(tmp_path):
    assert codes(KEYED) == set()
    echo = {"id": "btc", "seen": KEY}
    caller = Caller(tmp_path, KEYED, echo, secrets={"ETHERSCAN_API_KEY": KEY})
    envelope = caller.call()
    (request,) = caller.requests
    assert request.url == f"https://api.example.com/v1/price/btc?apikey={KEY}"
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in json.dumps(envelope.to_wire())
    assert caller.tool.contract.input["properties"].keys() == {"id"}


@pytest.mark.requirement("002.server-params.injected")
def test_a_key_may_stand_in_the_path_and_in_the_body(tmp_path):
    secret = "{{SERVER_PARAM:ETHERSCAN_API_KEY}}"
    parameters = [
        kit.parameter("id", location="insert"),
        kit.parameter("account", secret, "insert"),
        kit.parameter("token", secret, "body"),
        kit.parameter("auth", f"key {secret}", "body"),
    ]
    fields = {"method": "POST", "path": "/{{account}}/{{id}}", "parameters": parameters}
    main = changed(("/requiredServerParams", ["ETHERSCAN_API_KEY"]), (TOOL, kit.tool(**fields)))
    assert codes(main) == set()
    caller = Caller(tmp_path, main, {}, secrets={"ETHERSCAN_API_KEY": "a/key&more"})
    caller.call()
    (request,) = caller.requests
    assert request.url == "https://api.example.com/v1/a%2Fkey%26more/btc"
    assert json.loads(request.body) == {"token": "a/key&more", "auth": "key a/key&more"}


@pytest.mark.requirement("002.server-params.declared")
@pytest.mark.requirement("002.server-params.checked-first")
def test_a_tool_without_its_key_is_shown_as_disabled_not_served_and_not_run(tmp_path, monkeypatch):
    monkeypatch.delenv("ETHERSCAN_API_KEY", raising=False)
    caller = Caller(tmp_path, KEYED, {})
    assert "ETHERSCAN_API_KEY" in caller.tool.disabled.reason
    (message,) = caller.rendered()["messages"]
    assert message.startswith("E006 getTokenPrice: ")
    assert "ETHERSCAN_API_KEY" in message
    assert caller.requests == []
    with_key = Caller(tmp_path, KEYED, {}, secrets={"ETHERSCAN_API_KEY": KEY})
    assert with_key.tool.disabled is None
    assert is_served(with_key.tool, None)
    assert not is_served(caller.tool, None)


@pytest.mark.requirement("002.server-params.declared")
def test_keys_come_from_the_environment_once_they_are_granted(tmp_path, monkeypatch):
    monkeypatch.setenv("ETHERSCAN_API_KEY", KEY)
    caller = Caller(tmp_path, KEYED, {}, keys=["ETHERSCAN_API_KEY"])
    caller.call()
    assert KEY in caller.requests[0].url


@pytest.mark.requirement("002.server-params.injected")
def test_a_key_that_is_not_declared_is_an_error():
    main = changed(("/requiredServerParams", GONE), main=KEYED)
    found = codes(main)
    assert {code for code, _ in found} == {"VAL089"}
    assert {path for _, path in found} == {
        f"{TOOL}/parameters/1/position/value",
        "/headers/Authorization",
    }
    assert not loads(main, "compat")


@pytest.mark.requirement("002.libraries.allowed")
@pytest.mark.requirement("002.libraries.rejected")
@pytest.mark.requirement("002.constraint.libraries")
@pytest.mark.requirement("002.loading.libraries")
@pytest.mark.parametrize("profile", PROFILES)
def test_only_libraries_of_the_allowlist_are_taken(profile):
    six = ["ethers", "moment", "indicatorts", "@erc725/erc725.js", "ccxt", "axios"]
    assert codes(_at("/requiredLibraries", six), profile=profile) == set()
    main = _at("/requiredLibraries", ["ethers", "left-pad"])
    ((code, path),) = codes(main, profile=profile)
    assert (code, path) == ("SEC020", "/requiredLibraries/1")
    assert not loads(main, profile)
    for allowed in (("left-pad",), ("*",)):
        assert codes(main, profile=profile, libraries=allowed) == set()


CHAINED = changed(
    (
        "/sharedLists",
        [
            {
                "ref": "evmChains",
                "version": "1.0.0",
                "filter": {"key": "etherscanAlias", "exists": True},
            }
        ],
    ),
    (
        f"{TOOL}/parameters",
        [
            kit.parameter("id", location="insert"),
            kit.parameter("chain", primitive="enum({{evmChains:alias}})", options=["optional()"]),
        ],
    ),
)
REFERENCE = "/sharedLists/0"


@pytest.mark.requirement("002.lists.reference")
def test_a_reference_names_a_list_that_is_there_and_its_version():
    assert codes(CHAINED) == set()
    wrong = [
        ("ref", GONE, "VAL070", "error"),
        ("ref", 5, "VAL070", "error"),
        ("version", GONE, "VAL071", "error"),
        ("version", "1.0", "VAL071", "error"),
        ("version", "2.0.0", "VAL073", "error"),
        ("version", "1.2.0", "VAL123", "warning"),
    ]
    for field, value, code, compat in wrong:
        main = changed((f"{REFERENCE}/{field}", value), main=CHAINED)
        found = (code, f"{REFERENCE}/{field}")
        assert found in codes(main)
        assert found in codes(main, compat, "compat")
        assert loads(main, "compat") == (compat == "warning")
    missing = codes(CHAINED, lists=())
    assert missing == {("VAL072", f"{REFERENCE}/ref")}


@pytest.mark.requirement("002.lists.filter")
@pytest.mark.requirement("002.loading.lists")
def test_a_filter_leaves_the_entries_that_have_the_field(tmp_path):
    filtered = Caller(tmp_path, CHAINED).tool.contract.input["properties"]["chain"]
    assert filtered["enum"] == ["ETHEREUM", "POLYGON"]
    unfiltered = changed((f"{REFERENCE}/filter", GONE), main=CHAINED)
    every = Caller(tmp_path, unfiltered).tool.contract.input["properties"]["chain"]
    assert every["enum"] == ["ETHEREUM", "POLYGON", "TESTNET", "PRIVATE"]
    for wrong in ({}, {"exists": True}, {"key": "etherscanAlias"}, "etherscanAlias"):
        main = changed((f"{REFERENCE}/filter", wrong), main=CHAINED)
        assert ("VAL074", f"{REFERENCE}/filter") in codes(main)
        assert not loads(main, "compat")


@pytest.mark.requirement("002.loading.lists")
def test_lists_are_frozen_to_their_last_value():
    entries = kit.checked(CHAINED).shared_lists["evmChains"]
    assert [entry["alias"] for entry in entries] == ["ETHEREUM", "POLYGON"]
    with pytest.raises(TypeError):
        entries[0]["alias"] = "OTHER"
    with pytest.raises(TypeError):
        entries[0] = {}


# --- tool definition ------------------------------------------------------------------------


@pytest.mark.requirement("002.tool.name")
@pytest.mark.requirement("002.tool.mcp-name")
def test_the_key_is_the_name_of_the_tool_and_part_of_its_name_over_mcp(tmp_path):
    tool = Caller(tmp_path, _at("/tools", {"getContractAbi": kit.tool()})).tool
    assert tool.name == "getContractAbi"
    assert tool.wire_name == "getContractAbi_token-prices"


TESTED = [{"_description": "All"}] * 3


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        rule(
            "002.tool.method",
            "method",
            ["GET", "POST", "PUT", "DELETE"],
            [(bad, "VAL032", "error") for bad in (GONE, "PATCH", "HEAD", "get", 5)],
        ),
        rule(
            "002.tool.path",
            "path",
            ["/price/{{id}}", "/{{id}}"],
            [(GONE, "VAL033", "error"), (5, "VAL033", "error")],
        ),
        rule(
            "002.tool.description",
            "description",
            ["What this tool does."],
            [(GONE, "VAL034", "error"), ("", "VAL034", "error"), (5, "VAL034", "error")],
        ),
        rule(
            "002.tool.output",
            "output",
            [GONE, kit.OUTPUT],
            [("json", "VAL061", "error"), ([], "VAL061", "error")],
        ),
        rule(
            "002.tool.preload",
            "preload",
            [{"enabled": True, "ttl": 3600, "description": "Daily"}, {"enabled": False, "ttl": 1}],
            [(True, "VAL060", "error"), ([], "VAL060", "error")],
        ),
        rule(
            "002.tool.tests",
            "tests",
            [[{"_description": "Bitcoin", "id": "btc"}]],
            [(GONE, "TST001", "warning"), ([], "TST001", "warning")]
            + [(bad, "TST001", "error") for bad in ({}, "btc")],
        ),
    ],
)
def test_a_field_of_a_tool_has_its_form(field, good, bad):
    pointer = f"{TOOL}/{field}"
    for value in good:
        assert (
            codes(_at(pointer, value) if value is not GONE or field in kit.tool() else GOOD)
            == set()
        )
    for value, code, compat in bad:
        assert breaks(_at(pointer, value), code, pointer, compat)


@pytest.mark.requirement("002.tool.parameters")
def test_parameters_are_a_list_that_may_be_empty(tmp_path):
    empty = kit.with_tool(path="/prices", parameters=[], tests=TESTED)
    assert codes(empty) == set()
    caller = Caller(tmp_path, empty, {})
    caller.call({})
    assert caller.requests[0].url == "https://api.example.com/v1/prices"
    for wrong in (GONE, {}, None, "id"):
        main = changed((f"{TOOL}/parameters", wrong), main=empty)
        assert breaks(main, "VAL035", f"{TOOL}/parameters")


@pytest.mark.requirement("002.tool.description")
def test_the_description_of_a_tool_is_what_the_model_reads(tmp_path):
    main = kit.with_tool(description="Returns the ABI of a verified smart contract")
    assert Caller(tmp_path, main).tool.description == "Returns the ABI of a verified smart contract"


# --- method and path ------------------------------------------------------------------------


@pytest.mark.requirement("002.method.body-at-load")
@pytest.mark.parametrize(
    ("method", "has_body"),
    [
        rule("002.method.get", "GET", False),
        rule("002.method.post", "POST", True),
        rule("002.method.put", "PUT", True),
        rule("002.method.delete", "DELETE", False),
    ],
)
def test_only_post_and_put_have_a_body(tmp_path, method, has_body):
    parameters = [
        kit.parameter("id", location="insert"),
        kit.parameter("limit", location="body", primitive="number()", options=["optional()"]),
    ]
    main = kit.with_tool(method=method, parameters=parameters)
    if not has_body:
        assert breaks(main, "VAL087", f"{TOOL}/parameters/1/position/location")
        plain = Caller(tmp_path, kit.with_tool(method=method), {})
        plain.call()
        assert (plain.requests[0].method, plain.requests[0].body) == (method, None)
        return
    assert codes(main) == set()
    caller = Caller(tmp_path, main, {})
    caller.call({"id": "btc", "limit": 5})
    (request,) = caller.requests
    assert request.method == method
    assert json.loads(request.body) == {"limit": 5}
    assert request.headers["Content-Type"] == "application/json"


@pytest.mark.requirement("002.path.placeholder")
@pytest.mark.requirement("002.path.several")
@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/api", "/api"),
        ("/api/v1/{{address}}/transactions", "/api/v1/0xAB/transactions"),
        ("/api/v1/{{chainId}}/address/{{address}}/balances", "/api/v1/1/address/0xAB/balances"),
    ],
)
def test_the_paths_of_the_seed_are_filled_by_key(tmp_path, path, url):
    values = {"address": "0xAB", "chainId": "1"}
    names = [name for name in values if f"{{{{{name}}}}}" in path]
    arguments = {name: values[name] for name in names}
    tests = [{"_description": "One", **arguments}] * 3
    parameters = [kit.parameter(name, location="insert") for name in names]
    main = kit.with_tool(path=path, parameters=parameters, tests=tests)
    assert codes(main) == set()
    caller = Caller(tmp_path, main, {})
    caller.call(arguments)
    assert caller.requests[0].url == f"https://api.example.com/v1{url}"


@pytest.mark.requirement("002.path.placeholder")
@pytest.mark.parametrize(
    ("value", "inserted"),
    [
        ("a/b", "a%2Fb"),
        ("a?b=c", "a%3Fb=c"),
        ("a#b", "a%23b"),
        ("a%2fb", "a%252fb"),
        ("a,b+c;d:e@f", "a,b+c;d:e@f"),
        ("ü", "%C3%BC"),
        ("{{id}}", "%7B%7Bid%7D%7D"),
    ],
)
def test_an_argument_stays_in_its_place_in_the_path(tmp_path, value, inserted):
    caller = Caller(tmp_path, GOOD, {})
    caller.call({"id": value})
    assert caller.requests[0].url == f"https://api.example.com/v1/price/{inserted}"


@pytest.mark.requirement("002.path.placeholder")
@pytest.mark.parametrize("value", ["..", ".", "", "../admin", "%2e%2e", "..;a"])
def test_an_argument_that_would_leave_its_place_is_rejected(tmp_path, value):
    caller = Caller(tmp_path, GOOD, {})
    with pytest.raises(CallError) as caught:
        caller.call({"id": value})
    assert (caught.value.code, caught.value.path) == ("schema_validation_failed", "/id")
    assert caller.requests == []


@pytest.mark.requirement("002.path.needs-parameter")
def test_every_place_in_the_path_has_its_parameter():
    assert breaks(_at(f"{TOOL}/path", "/{{id}}/{{other}}"), "VAL099", f"{TOOL}/path")
    elsewhere = changed(
        (f"{TOOL}/parameters", [kit.parameter("id"), kit.parameter("x", location="insert")]),
        (f"{TOOL}/path", "/{{id}}/{{x}}"),
        (f"{TOOL}/tests", [{"_description": "One", "id": "a", "x": "b"}] * 3),
    )
    assert breaks(elsewhere, "VAL099", f"{TOOL}/path")


# --- what helps clients to find a tool --------------------------------------------------------


@pytest.mark.requirement("002.required.description-found")
def test_a_tool_is_found_by_what_its_file_is_for(tmp_path):
    caller = Caller(tmp_path, _at("/description", "Zeppelins over the harbour"), {"id": "btc"})
    index = ToolIndex(Catalog([caller.tool]))
    assert [hit.id for hit in index.search("zeppelins").hits] == [caller.tool.id]
    assert index.search("submarines").hits == ()


@pytest.mark.requirement("002.optional.meta-served")
@pytest.mark.parametrize("modern", [True, False])
def test_the_metadata_of_a_file_is_served_with_each_tool(tmp_path, modern):
    meta = {
        "isReadOnly": False,
        "isConcurrencySafe": True,
        "isDestructive": True,
        "searchHint": "spot price of a coin",
        "aliases": ["quotation"],
        "alwaysLoad": True,
    }
    caller = Caller(tmp_path, _at("/meta", meta), {"id": "btc"})
    wired = encode_tool(caller.tool, modern=modern)
    assert wired["annotations"]["readOnlyHint"] is False
    assert wired["annotations"]["destructiveHint"] is True
    assert wired["_meta"]["anthropic/searchHint"] == "spot price of a coin"
    assert wired["_meta"]["anthropic/alwaysLoad"] is True
    assert [hit.id for hit in ToolIndex(Catalog([caller.tool])).search("quotation").hits]
