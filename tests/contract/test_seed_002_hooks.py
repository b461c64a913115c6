"""Seed 002, row by row: the export `handlers`, kinds of hooks, their rules; seed 000 after hooks."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

import schema_file as kit
from callpact import CallError
from callpact.cli.libs import add_libraries
from callpact.sandbox.packs.library import keep
from callpact.testing import StubTransport

HERE = Path(__file__).parent


changed, Caller, codes = kit.changed, kit.Caller, kit.codes
GOOD, TOOL, PROFILES, HANDLERS, KEY = kit.GOOD, kit.TOOL, kit.PROFILES, kit.HANDLERS, kit.KEY
URL = "https://api.example.com/v1/price/btc"
LISTS = [{"ref": "evmChains", "version": "1.0.0", "filter": {"key": "etherscanAlias", "exists": True}}]  # fmt: skip


@pytest.fixture
def called(tmp_path):
    """Makes a Caller whose tool has the hooks of a text, and closes it."""
    made = []

    def make(hooks, main=GOOD, answer=None, *, code=None, **given):
        text = HANDLERS % f"getTokenPrice: {{ {hooks} }}" if code is None else code
        made.append(Caller(tmp_path, main, {} if answer is None else answer, code=text, **given))
        return made[-1]

    yield make
    for caller in made:
        asyncio.run(caller.tools.aclose())


@pytest.fixture
def packs(tmp_path):
    folder = tmp_path / "packs"
    script = "globalThis.__callpact_pack = { getAddress: ( text ) => 'checked ' + text }"
    for name, text in (("ethers", script), ("unasked", script)):
        keep(folder, name, "6.0.0", text.encode(), esbuild="", integrity="", built="")
    return folder


def refused(caller, hook, **given):
    """The error of a call that a hook broke, as FlowMCP clients see it."""
    rendered = caller.rendered(**given)
    assert (rendered["status"], rendered["data"]) == (False, None)
    (message,) = rendered["messages"]
    assert message.startswith(f"E005 getTokenPrice: The hook {hook} of 'getTokenPrice' failed: ")
    return message


# --- the export, and what it is given -------------------------------------------------------

FIRST = """export const handlers = ( { sharedLists, libraries } ) => ({
    getTokenPrice: {
        preRequest: async ( { struct, payload } ) => {
            return { struct, payload }
        },
        postRequest: async ( { response, struct, payload } ) => {
            return { response }
        }
    }
})
"""


@pytest.mark.requirement("002.handlers.first-example")
@pytest.mark.parametrize("profile", PROFILES)
def test_hooks_that_change_nothing_change_nothing(called, profile):
    caller = called("", answer={"id": "btc", "price": 1}, code=FIRST, profile=profile)
    assert caller.call().data == {"id": "btc", "price": 1}
    (request,) = caller.requests
    assert (request.method, request.url, request.body) == ("GET", URL, None)


@pytest.mark.requirement("002.handlers.map")
@pytest.mark.requirement("002.loading.handlers")
def test_each_tool_has_the_hooks_under_its_name(called):
    main = kit.at("/tools/other", kit.tool())
    hooks = "getTokenPrice: { postRequest: async () => ({ response: 'one' }) }, other: { postRequest: async () => ({ response: 'two' }) }"
    caller = called("", main, code=HANDLERS % hooks)
    assert caller.call(name="token-prices.getTokenPrice").data == "one"
    assert caller.call(name="token-prices.other").data == "two"


@pytest.mark.requirement("002.handlers.called-once")
@pytest.mark.requirement("002.handlers.called-at-load")
@pytest.mark.requirement("002.why.injected")
@pytest.mark.parametrize("profile", PROFILES)
def test_the_factory_is_called_once_when_its_hooks_are_first_needed(called, profile):
    code = """export const handlers = ( ...given ) => {
    handlers.calls = ( handlers.calls ?? 0 ) + 1
    const told = { given: given.map( Object.keys ), calls: handlers.calls }
    return { getTokenPrice: { executeRequest: async () => ({ response: { ...told, now: handlers.calls } }) } }
}
"""
    caller = called("", code=code, profile=profile)
    for _ in range(2):
        data = caller.call().data
        assert data == {"given": [["sharedLists", "libraries"]], "calls": 1, "now": 1}
    failing = called("", code=HANDLERS % "...( () => { throw new Error( 'factory' ) } )(), getTokenPrice: {}")  # fmt: skip
    assert failing.tool.disabled is None  # Loading ran nothing.
    assert "Error: factory" in refused(failing, "handlers")


CHANGES = (
    "sharedLists.evmChains = []",
    "sharedLists.evmChains.push( {} )",
    "sharedLists.evmChains[ 0 ].alias = 'X'",
    "delete sharedLists.evmChains[ 0 ].alias",
)


@pytest.mark.requirement("002.handlers.shared-lists")
@pytest.mark.requirement("002.rules.lists")
@pytest.mark.parametrize("profile", PROFILES)
def test_lists_are_there_by_name_filtered_and_frozen(called, profile):
    tries = ", ".join(f"() => {{ {change} }}" for change in CHANGES)
    body = (
        "executeRequest: async () => { "
        f"const errors = [ {tries} ].map( ( change ) => {{ try {{ change() }} catch ( error ) {{ return error.name }} }} ); "
        "return { response: { errors, names: Object.keys( sharedLists ), same: sharedLists[ 'evmChains' ] === sharedLists.evmChains, list: sharedLists.evmChains } } }"
    )
    data = called(body, kit.changed(("/sharedLists", LISTS)), profile=profile).call().data
    assert data == {
        "errors": ["TypeError"] * len(CHANGES),
        "names": ["evmChains"],
        "same": True,
        "list": [
            {"alias": "ETHEREUM", "etherscanAlias": "eth"},
            {"alias": "POLYGON", "etherscanAlias": "matic"},
        ],
    }


@pytest.mark.requirement("002.handlers.libraries")
@pytest.mark.requirement("002.handlers.libraries-allowed")
@pytest.mark.requirement("002.libraries.injected")
@pytest.mark.requirement("002.rules.libraries")
@pytest.mark.requirement("002.loading.libraries-loaded")
@pytest.mark.parametrize("profile", PROFILES)
def test_libraries_are_there_by_the_names_of_their_packages(called, packs, profile):
    body = "executeRequest: async () => ({ response: [ Object.keys( libraries ), libraries[ 'ethers' ].getAddress( 'a' ), libraries.ethers === libraries[ 'ethers' ] ] })"
    main = kit.changed(("/requiredLibraries", ["ethers"]))
    caller = called(body, main, profile=profile, packs=packs)
    assert caller.call().data == [["ethers"], "checked a", True]
    unapproved = kit.changed(("/requiredLibraries", ["unasked"]))
    assert called(body, unapproved, profile=profile, packs=packs).tools == []


CHAIN = """export const handlers = ( { sharedLists, libraries } ) => ({
    getContractAbi: {
        preRequest: async ( { struct, payload } ) => {
            const chain = sharedLists.evmChains
                .find( ( c ) => c.alias === payload.chainName )
            const updatedPayload = { ...payload, chainId: chain.chainId }

            return { struct, payload: updatedPayload }
        },
        postRequest: async ( { response, struct, payload } ) => {
            const { result } = response
            const parsed = JSON.parse( result )

            return { response: parsed }
        }
    }
})
"""


def _contract(**fields):
    """A file with the tool of the seed's examples: two arguments, of which the path has one."""
    own = kit.tool(
        path="/abi/{{address}}",
        parameters=[
            kit.parameter("address", location="insert"),
            kit.parameter("chainName"),
            kit.parameter("chainId", primitive="number()", options=["optional()"]),
        ],
        tests=[{"_description": "One", "address": "0xabc", "chainName": "POLYGON"}] * 3,
    )
    changes = [(f"/{name}", value) for name, value in fields.items()]
    return kit.changed(("/tools", {"getContractAbi": own}), ("/sharedLists", LISTS), *changes)


@pytest.mark.requirement("002.handlers.chain-example")
@pytest.mark.parametrize("profile", PROFILES)
def test_a_chain_is_looked_up_and_the_result_is_parsed(called, profile):
    code = CHAIN.replace("chain.chainId", "chain.etherscanAlias.length")
    caller = called("", _contract(), {"result": '[{"type":"function"}]'}, code=code, profile=profile)  # fmt: skip
    given = {"address": "0xabc", "chainName": "POLYGON"}
    assert caller.call(given).data == [{"type": "function"}]
    # The payload that the hook gave back is what the request was made of.
    (request,) = caller.requests
    assert request.url.endswith("/abi/0xabc?chainName=POLYGON&chainId=5")


BOTH = """export const handlers = ( { sharedLists, libraries } ) => {
    const { ethers } = libraries

    return {
        getContractAbi: {
            preRequest: async ( { struct, payload } ) => {
                const checksummed = ethers.getAddress( payload.address )
                const chain = sharedLists.evmChains
                    .find( ( c ) => c.alias === payload.chainName )

                return { struct, payload: { ...payload, address: checksummed } }
            }
        }
    }
}
"""
XML = """export const handlers = ( { sharedLists, libraries } ) => ({
    getXmlData: {
        executeRequest: async ( { struct, payload } ) => {
            const { xml2js } = libraries
            const rawResponse = await fetch( struct.url, {
                method: struct.method, headers: struct.headers
            } )
            const text = await rawResponse.text()
            const parsed = await xml2js.parseStringPromise( text )

            return { response: parsed }
        }
    }
})
"""


@pytest.mark.requirement("002.handlers.example")
@pytest.mark.requirement("002.execute.example")
def test_the_examples_of_the_seed_run_with_libraries_from_npm(called, tmp_path):
    packs = tmp_path / "built"
    assert add_libraries(["ethers@6.17.0", "xml2js@0.6.2"], packs)
    main = _contract(requiredLibraries=["ethers"])
    for profile in PROFILES:
        caller = called("", main, {}, code=BOTH, profile=profile, packs=packs)
        # The first address of EIP-55's own examples, without its capitals.
        address = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
        caller.call({"address": address.lower(), "chainName": "POLYGON"})
        assert caller.requests[0].url.endswith(f"/abi/{address}?chainName=POLYGON")
        wrong = caller.rendered({"address": "0x12", "chainName": "POLYGON"})
        assert "The hook preRequest of 'getContractAbi' failed: " in wrong["messages"][0]
    main = kit.changed(
        ("/tools", {"getXmlData": kit.tool()}),
        ("/headers", {"Accept": "text/xml"}),
        ("/requiredLibraries", ["xml2js"]),
    )
    answer = kit.answering('<r><city id="1">Århus</city><city id="2"/></r>', kind="text/xml")
    for profile in PROFILES:
        caller = called(
            "", main, answer, code=XML, profile=profile, packs=packs, libraries=["xml2js"]
        )
        cities = [{"_": "Århus", "$": {"id": "1"}}, {"$": {"id": "2"}}]
        assert caller.call().data == {"r": {"city": cities}}
        request = caller.requests[-1]
        assert (request.method, request.url) == ("GET", URL)
        assert request.headers == {"accept": "text/xml"}


# --- kinds of hooks -------------------------------------------------------------------------


@pytest.mark.requirement("002.handler.pre-request")
@pytest.mark.requirement("002.per-call.struct")
@pytest.mark.parametrize("profile", PROFILES)
def test_pre_request_changes_what_is_sent(called, profile):
    body = (
        "preRequest: async ( { struct, payload } ) => { "
        "const { url, method, headers, body } = struct; "
        "struct.url = url + '/more'; struct.method = 'PUT'; struct.headers.A = method; struct.body = { was: body, names: Object.keys( struct ) }; "
        "return { struct, payload } }"
    )
    caller = called(body, kit.changed(("/headers", {"Accept": "text/csv"})), profile=profile)
    caller.call()
    (request,) = caller.requests
    assert (request.method, request.url) == ("PUT", f"{URL}/more")
    assert (request.headers["A"], request.headers["Accept"]) == ("GET", "text/csv")
    names = ["url", "method", "headers", "body"]
    assert json.loads(request.body) == {"was": None, "names": names}


@pytest.mark.requirement("002.handler.execute-request")
@pytest.mark.requirement("002.execute.skips-http")
@pytest.mark.parametrize("profile", PROFILES)
def test_execute_request_stands_in_for_the_request(called, profile):
    caller = called("executeRequest: async () => ({ response: { local: 1 } })", profile=profile)
    envelope = caller.call()
    assert envelope.data == {"local": 1}
    assert envelope.to_wire()["meta"]["source"] == "local"
    assert caller.requests == []


@pytest.mark.requirement("002.execute.composite")
@pytest.mark.parametrize("profile", PROFILES)
def test_execute_request_may_combine_several_requests(called, profile):
    answer = StubTransport(lambda r: {"status": 200, "body": json.dumps(r.url[-1])})
    body = (
        "executeRequest: async ( { struct } ) => { const [ a, b ] = await Promise.all( [ 1, 2 ].map( "
        "async ( n ) => ( await fetch( struct.url + n ) ).json() ) ); return { response: { a, b } } }"
    )
    caller = called(body, answer=answer, profile=profile)
    assert caller.call().data == {"a": "1", "b": "2"}
    assert sorted(request.url for request in caller.requests) == [f"{URL}1", f"{URL}2"]


@pytest.mark.requirement("002.handler.post-request")
@pytest.mark.requirement("002.handler.post-request-after")
@pytest.mark.requirement("002.per-call.response")
@pytest.mark.parametrize("profile", PROFILES)
def test_post_request_changes_the_answer_of_the_api_or_of_execute_request(called, profile):
    after = "postRequest: async ( { response } ) => ({ response: { twice: 2 * response.n } })"
    assert called(after, answer={"n": 4}, profile=profile).call().data == {"twice": 8}
    both = f"executeRequest: async () => ({{ response: {{ n: 5 }} }}), {after}"
    assert called(both, answer={"n": 4}, profile=profile).call().data == {"twice": 10}


@pytest.mark.requirement("002.per-call.payload")
@pytest.mark.parametrize("profile", PROFILES)
def test_the_payload_is_the_checked_arguments(called, profile):
    parameters = [
        kit.parameter("id", location="insert"),
        kit.parameter("days", primitive="number()", options=["default(3)"]),
        kit.parameter("fixed", "yes"),
    ]
    main = kit.changed((f"{TOOL}/parameters", parameters))
    body = "postRequest: async ( { payload } ) => ({ response: payload })"
    caller = called(body, main, profile=profile)
    assert caller.call({"id": "btc"}).data == {"id": "btc", "days": 3}
    with pytest.raises(CallError) as caught:
        caller.call({"id": "btc", "days": "three"})
    assert caught.value.code == "schema_validation_failed"
    assert len(caller.requests) == 1  # What breaks a rule reaches no hook and no API.


TELL = "Object.keys( given ).sort()"
SHAPES = [
    kit.rule(
        "002.handler.pre-request-shape",
        "preRequest",
        "{ struct: { ...given.struct, headers: { Keys: %s } }, payload: given.payload }",
        ["payload", "struct"],
    ),
    kit.rule("002.handler.execute-request-shape", "executeRequest", "{ response: %s }", ["payload", "struct"]),
    kit.rule("002.handler.post-request-shape", "postRequest", "{ response: %s }", ["payload", "response", "struct"]),
]  # fmt: skip


@pytest.mark.parametrize(("hook", "result", "keys"), SHAPES)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_hook_is_given_what_its_kind_is_given(called, hook, result, keys, profile):
    told = f"{TELL}.join()" if hook == "preRequest" else TELL
    caller = called(f"{hook}: async ( given ) => ( {result % told} )", profile=profile)
    data = caller.call().data
    if hook == "preRequest":
        data = caller.requests[0].headers["Keys"].split(",")
    assert data == keys


@pytest.mark.requirement("002.rules.return-shape")
@pytest.mark.requirement("002.handler.pre-request-shape")
@pytest.mark.requirement("002.handler.execute-request-shape")
@pytest.mark.requirement("002.handler.post-request-shape")
@pytest.mark.parametrize(
    ("hook", "lacking", "is_taken"),
    [
        ("preRequest", "{ struct: given.struct }", True),
        ("preRequest", "{ payload: given.payload }", True),
        ("preRequest", "{}", False),
        ("executeRequest", "{ struct: given.struct }", True),
        ("executeRequest", "{ payload: {} }", False),
        ("postRequest", "{ struct: given.struct, payload: given.payload }", False),
        ("postRequest", "{ response: undefined }", False),
    ],
)
def test_a_result_without_its_keys_is_an_error(called, hook, lacking, is_taken):
    # Not so that it could be seen without running it.
    body = f"{hook}: async ( given ) => {{ const result = ( () => ( {lacking} ) )(); return result }}"  # fmt: skip
    assert "it must return {" in refused(called(body), hook)
    compat = called(body, profile="compat")
    if is_taken:  # flowmcp.md section 24, rows 9 and 10
        assert compat.rendered()["status"]
    else:
        assert "it must return {" in refused(compat, hook)


# --- rules of hooks -------------------------------------------------------------------------


@pytest.mark.requirement("002.per-call.no-server-params")
@pytest.mark.parametrize("profile", PROFILES)
def test_hooks_never_see_a_server_parameter(called, profile):
    main = kit.changed(
        ("/requiredServerParams", ["API_KEY"]),
        ("/headers", {"Authorization": "Bearer {{SERVER_PARAM:API_KEY}}"}),
        (
            f"{TOOL}/parameters",
            [
                kit.parameter("id", location="insert"),
                kit.parameter("key", "{{SERVER_PARAM:API_KEY}}"),
            ],
        ),
    )
    look = f"JSON.stringify( given ).includes( {json.dumps(KEY)} )"
    split = look.replace(KEY, KEY[:8] + '" + "' + KEY[8:])  # The scan of secrets sees no key here.
    hooks = (
        f"preRequest: async ( given ) => ({{ struct: given.struct, payload: {{ ...given.payload, before: {split} }} }}), "
        f"postRequest: async ( given ) => ({{ response: [ given.payload.before, {split}, given ] }})"
    )
    caller = called(hooks, main, {"echo": KEY}, profile=profile, secrets={"API_KEY": KEY})
    before, after, given = caller.call().data
    assert (before, after) == (False, False)
    assert KEY not in json.dumps(given)
    (request,) = caller.requests
    assert request.url == f"{URL}?key={KEY}"
    assert request.headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.requirement("002.per-call.no-user-params")
def test_the_old_parameters_are_gone(called):
    body = "executeRequest: async ( { userParams, context, payload } ) => ({ response: [ typeof userParams, typeof context, Object.keys( payload ) ] })"
    assert called(body).call().data == ["undefined", "undefined", ["id"]]
    # flowmcp.md section 6: real files read them out of the payload of executeRequest.
    *gone, keys = called(body, profile="compat").call().data
    assert gone == ["undefined", "undefined"]
    assert {"id", "userParams", "serverParams"} <= set(keys)


@pytest.mark.requirement("002.rules.fetch")
@pytest.mark.parametrize("profile", PROFILES)
def test_fetch_is_for_execute_request_alone_and_for_the_host_of_the_file(called, profile):
    for hook in ("preRequest", "postRequest"):
        body = f"{hook}: async ( given ) => {{ await fetch( given.struct.url ); return given }}"
        caller = called(body, profile=profile)
        assert "SEC100" in refused(caller, hook)
        assert len(caller.requests) == (1 if hook == "postRequest" else 0)  # the tool's own
    inside = (
        "executeRequest: async ( { struct } ) => ({ response: ( await fetch( ADDRESS ) ).status })"
    )
    own = called(inside.replace("ADDRESS", "struct.url"), profile=profile)
    assert own.call().data == 200
    other = called(inside.replace("ADDRESS", "'https://other.example/'"), profile=profile)
    assert "'other.example' is not the root of the file" in refused(other, "executeRequest")
    assert other.requests == []


@pytest.mark.requirement("002.rules.pure")
@pytest.mark.parametrize("profile", PROFILES)
def test_a_hook_leaves_nothing_behind(called, profile):
    code = """export const handlers = ( { sharedLists, libraries } ) => {
    let seen = 0
    return { getTokenPrice: { executeRequest: async () => {
        seen += 1
        Array.prototype.seen = ( Array.prototype.seen ?? 0 ) + 1
        JSON.seen = ( JSON.seen ?? 0 ) + 1
        return { response: [ seen, Array.prototype.seen, JSON.seen ] }
    } } }
}
"""
    caller = called("", code=code, profile=profile)
    assert [caller.call().data for _ in range(3)] == [[1, 1, 1]] * 3


@pytest.mark.requirement("002.rules.no-logging")
@pytest.mark.parametrize(("profile", "severity"), [("strict", "error"), ("compat", "warning")])
@pytest.mark.parametrize(
    "use", ["console.log( 1 )", "const { warn } = console ; warn( 1 )", "[ 1 ].map( console.log )"]
)
def test_a_hook_that_logs_is_a_finding(profile, severity, use):
    code = (
        HANDLERS
        % f"getTokenPrice: {{ postRequest: ( {{ response }} ) => {{ {use} ; return {{ response }} }} }}"
    )
    text = kit.exported(GOOD, code=code)
    found = [f for f in kit.checked(text, profile).findings if f.code == "VAL164"]
    assert [(f.severity, f.line) for f in found] == [
        (severity, text[: text.index("console")].count("\n") + 1)
    ]


@pytest.mark.requirement("002.rules.no-logging")
def test_what_a_hook_logs_goes_to_the_log_of_its_tool_and_nowhere_else(called, caplog, capfd):
    caplog.set_level(logging.INFO, "callpact.tool.token-prices.getTokenPrice")
    caller = called("postRequest: async ( { response } ) => { console.log( 'a line' ); return { response } }", profile="compat")  # fmt: skip
    caller.call()
    assert [record.getMessage() for record in caplog.records] == ["postRequest: a line"]
    assert "a line" not in "".join(capfd.readouterr())


@pytest.mark.requirement("002.example.post-request")
def test_post_request_of_the_complete_example_flattens_the_answer(called):
    example = (HERE / "seeds" / "SmartContractExplorer.mjs").read_text("utf-8")
    code = example[example.index("export const handlers") :].replace("getSourceCode", "getTokenPrice")  # fmt: skip
    first = {"SourceCode": "contract A {}", "ABI": "[]", "ContractName": "A"}
    first |= {"CompilerVersion": "v0.8", "OptimizationUsed": "0", "Runs": "200"}
    caller = called("", answer={"status": "1", "result": [first]}, code=code)
    assert caller.call().data == {
        "contractName": "A",
        "compilerVersion": "v0.8",
        "optimizationUsed": False,
        "sourceCode": "contract A {}",
        "abi": "[]",
    }


# --- seed 000: the output schema after hooks ------------------------------------------------

RAW = {"bitcoin": {"usd": 45000, "usd_market_cap": 850000000000}}
FLATTENING = """export const handlers = ( { sharedLists, libraries } ) => ({
    getTokenPrice: {
        postRequest: async ( { response, struct, payload } ) => {
            const [ id ] = Object.keys( response )
            const { usd, usd_market_cap } = response[ id ]

            return { response: { id, price: usd, marketCap: usd_market_cap } }
        }
    }
})
"""
FLAT = {
    "id": {"type": "string", "description": "Token identifier"},
    "price": {"type": "number", "description": "Price in USD"},
    "marketCap": {"type": "number", "description": "Market capitalization in USD"},
}


def _described(properties):
    schema = {"type": "object", "properties": properties}
    return kit.with_tool(output={"mimeType": "application/json", "schema": schema})


@pytest.mark.requirement("000.hooks.example")
@pytest.mark.requirement("000.hooks.after")
@pytest.mark.requirement("000.hooks.flattened")
@pytest.mark.requirement("000.hooks.renamed")
@pytest.mark.parametrize("profile", PROFILES)
def test_the_schema_describes_what_post_request_returns(called, profile):
    envelope = called("", _described(FLAT), RAW, code=FLATTENING, profile=profile).call()
    assert envelope.data == {"id": "bitcoin", "price": 45000, "marketCap": 850000000000}
    assert envelope.warnings == ()


@pytest.mark.requirement("000.hooks.checked-after")
@pytest.mark.parametrize("profile", PROFILES)
def test_the_schema_is_compared_with_what_the_hook_returns(called, profile):
    wrong = {**FLAT, "price": {"type": "string"}, "bitcoin": {"type": "string"}}
    envelope = called("", _described(wrong), RAW, code=FLATTENING, profile=profile).call()
    # `bitcoin` stands in the raw answer alone, where it would be of the wrong type.
    assert [(issue.code, issue.path) for issue in envelope.warnings] == [("type", "/price")]
    assert envelope.data["price"] == 45000
