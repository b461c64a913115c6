"""Each caller's own credential reaches an MCP server, on every method, and nobody else's does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

import hostile_server
import raw
from callpact import (
    AccessDenied,
    CallError,
    Catalog,
    Context,
    Identity,
    Runtime,
    SourceRefused,
    from_functions,
    tool,
)
from callpact.errors import InvalidConfig
from callpact.sources.credentials import CallerCredential, credential_of
from callpact.sources.mcp.server_settings import ServerSettings
from callpact.sources.mcp.session_pool import UpstreamPool
from callpact.tool import Call
from guarded_server import METHODS, GuardedServer, every_method, runtime_of, write_config
from issuer import AUDIENCE, Issuer

ADA, BEN, EVE = Identity("ada"), Identity("b", ("ops",)), Identity("eve")
LIST_KEY, ADA_KEY, BEN_KEY = "list-key-00000000", "ada-key-11111111", "ben-key-22222222"
KEYS = {"LIST_KEY": LIST_KEY, "ADA_KEY": ADA_KEY, "BEN_KEY": BEN_KEY}
DOOR = {name: f"{name}-door-0123456789" for name in ("ada", "ben", "eve")}
SOURCE = """
[sources.up]
ref = "mcp:{url}"
hosts = ["127.0.0.1"]
secrets = "keys.env"
"""
LISTS = 'headers = { Authorization = "Bearer ${LIST_KEY}" }\n'
CALLERS = """
[[sources.up.callers]]
id = "ada"
headers = { Authorization = "Bearer ${ADA_KEY}" }
[[sources.up.callers]]
scope = "ops"
headers = { Authorization = "Bearer ${BEN_KEY}" }
"""
TOKENS = """
[serve.tokens.ada]
secret = "ADA_DOOR"
[serve.tokens.b]
secret = "BEN_DOOR"
scopes = ["ops"]
[serve.tokens.eve]
secret = "EVE_DOOR"
[audit]
folder = "audit"
"""
ERAS = ["modern", "legacy"]
MODES = ["2026-07-28", "legacy"]


def known():
    return {f"Bearer {key}" for key in KEYS.values()}


@contextlib.asynccontextmanager
async def client(address, token, mode):
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(address, http_client=http), mode=mode) as client,
    ):
        yield client


def used(address, token, mode="2026-07-28"):
    """The outcome of every method for the caller with this token."""

    async def go():
        async with asyncio.timeout(raw.PATIENCE), client(address, token, mode) as at:
            return await every_method(at)

    return asyncio.run(go())


def recorded(folder):
    """All that the audit log of a folder holds."""
    command = [sys.executable, "-m", "callpact", "audit", "export"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def refusal(outcome):
    """The error of a refused use of a method, over MCP."""
    if isinstance(outcome, Exception):
        return outcome.error.data["error"]
    assert outcome.is_error
    return json.loads(outcome.content[0].text)["error"]


async def called(runtime, identity, name="up.whoami", **arguments):
    return (await runtime.call(Call(name, arguments), identity)).data


# --- through the door ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("era", ERAS)
def test_every_method_carries_the_credential_of_its_caller_alone(era, mode, tmp_path, monkeypatch):
    for name, token in DOOR.items():
        monkeypatch.setenv(f"{name.upper()}_DOOR", token)
    with GuardedServer(known(), era) as server:
        write_config(tmp_path, SOURCE.format(url=server.url) + LISTS + CALLERS + TOKENS, **KEYS)
        with raw.Served(cwd=tmp_path, args=["--log-level", "debug"]) as served:
            for name, key in (("ada", ADA_KEY), ("ben", BEN_KEY)):
                before = len(server.seen)
                outcomes = used(served.address, DOOR[name], mode)
                seen = server.seen[before:]
                assert [each.method for each in seen if each.method in METHODS] == list(METHODS)
                assert {each.authorization for each in seen} == {f"Bearer {key}"}
                assert not any(isinstance(each, Exception) for each in outcomes.values())
                assert outcomes["tools/call"].content[0].text == "you sent Bearer ***"
                assert outcomes["completion/complete"].completion.values == ["alan"]
            before = len(server.seen)
            refused = used(served.address, DOOR["eve"], mode)
            assert server.seen[before:] == []
            for method in METHODS:
                assert refusal(refused[method])["code"] == "access_denied", method
                text = refusal(refused[method])["message"]
                assert "[[sources.up.callers]]" in text
                assert "ada" not in text
            assert not server.of(*METHODS).count(f"Bearer {LIST_KEY}")
    sessions = {(each.session, each.authorization) for each in server.seen if each.session}
    assert (
        len({session for session, _ in sessions}) == len(sessions) == (3 if era == "legacy" else 0)
    )
    spread = "\n".join(served.lines) + recorded(tmp_path)
    assert '"eve"' in spread
    assert not [each for each in (*KEYS.values(), *DOOR.values()) if each in spread]


@pytest.mark.parametrize("era", ERAS)
def test_the_own_token_of_a_caller_is_exchanged_and_nothing_else_gets_it(
    era, tmp_path, monkeypatch
):
    monkeypatch.setenv("EVE_DOOR", DOOR["eve"])
    with Issuer() as issuer, GuardedServer(known(), era) as server:
        oauth = f"""
[sources.up.oauth]
client_id = "gateway"
client_secret = "${{CLIENT_KEY}}"
token_url = "{server.token_url}"
exchange = "token"
[serve.tokens.eve]
secret = "EVE_DOOR"
[serve.oauth]
issuer = "{issuer.url}"
audience = "{AUDIENCE}"
hosts = ["{issuer.host}"]
[audit]
folder = "audit"
"""
        keys = {**KEYS, "CLIENT_KEY": "client-key-333333"}
        write_config(tmp_path, SOURCE.format(url=server.url) + LISTS + oauth, **keys)
        own = {name: issuer.token(sub=name) for name in ("ada", "ben")}
        with raw.Served(cwd=tmp_path, args=["--log-level", "debug"]) as served:
            for number, token in enumerate(own.values(), 1):
                before = len(server.seen)
                outcomes = used(served.address, token)
                assert not any(isinstance(each, Exception) for each in outcomes.values())
                seen = {each.authorization for each in server.seen[before:]}
                assert seen == {f"Bearer granted-token-{number}"}
                assert server.asked[-1]["subject_token"] == token
            before = len(server.seen)
            refused = used(served.address, DOOR["eve"])
            assert {refusal(each)["code"] for each in refused.values()} == {"access_denied"}
            assert server.seen[before:] == []
        assert len(server.asked) == 2
        asked = server.asked[0]
        assert asked["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
        assert asked["subject_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
        assert asked["resource"] == server.url
        assert asked["authorization"].startswith("Basic ")
        assert not any(token in json.dumps(server.headers) for token in own.values())
    spread = "\n".join(served.lines) + recorded(tmp_path)
    hidden = (*own.values(), *keys.values(), *server.given)
    assert not [each for each in hidden if each in spread]


# --- in this process ----------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
def test_callers_at_once_never_share_a_session(era, tmp_path):
    callers = {"ada": (ADA, ADA_KEY), "b": (BEN, BEN_KEY)}

    async def go(server):
        text = SOURCE.format(url=server.url) + LISTS + CALLERS
        async with runtime_of(write_config(tmp_path, text, **KEYS)) as (runtime, _):

            async def one(number):
                name = ("ada", "b", "eve")[number % 3]
                identity = callers.get(name, (EVE, ""))[0]
                delay = number % 5 / 100
                try:
                    await called(runtime, identity, who=name, seconds=delay)
                except AccessDenied:
                    return name == "eve"
                return name != "eve"

            async with asyncio.timeout(60):
                assert all(await asyncio.gather(*map(one, range(150))))

    with GuardedServer(known(), era) as server:
        asyncio.run(go(server))
        calls = [each for each in server.seen if each.method == "tools/call"]
        assert len(calls) == 100
        for each in calls:
            assert each.authorization == f"Bearer {callers[each.arguments['who']][1]}"
        sessions = {(each.session, each.authorization) for each in calls}
        assert len(sessions) == 2


def test_a_call_without_a_caller_is_refused_and_calls_of_calls_keep_their_caller(tmp_path):
    @tool(namespace="own")
    async def relay(context: Context) -> str:
        """Call the server for the caller."""
        envelope = await context.env.up.whoami({})
        return envelope.data[0]["text"]

    async def go(server):
        text = SOURCE.format(url=server.url) + LISTS + CALLERS
        async with runtime_of(write_config(tmp_path, text, **KEYS)) as (runtime, loaded):
            for identity in (None, EVE):
                with pytest.raises(AccessDenied):
                    await called(runtime, identity)
                with pytest.raises(AccessDenied):
                    await runtime.execute("up.whoami", {}, identity=identity)
            assert server.of("tools/call") == []
            async with Runtime(Catalog([*loaded.catalog, *from_functions([relay])])) as both:
                await called(both, ADA, "own.relay")
                with pytest.raises(CallError) as refused:
                    await called(both, EVE, "own.relay")
                assert refused.value.code == "access_denied"
            assert server.of("tools/call") == [f"Bearer {ADA_KEY}"]

    with GuardedServer(known()) as server:
        asyncio.run(go(server))


def test_headers_of_the_source_are_for_lists_and_never_go_with_a_caller(tmp_path):
    lists = 'headers = { X-Api-Key = "${LIST_KEY}", Authorization = "Bearer ${LIST_KEY}" }\n'

    async def go(server):
        text = SOURCE.format(url=server.url) + lists + CALLERS
        async with runtime_of(write_config(tmp_path, text, **KEYS)) as (runtime, _):
            assert {each["x-api-key"] for each in server.headers} == {LIST_KEY}
            server.headers.clear()
            await called(runtime, ADA)
            assert not any("x-api-key" in each for each in server.headers)

    with GuardedServer(known()) as server:
        asyncio.run(go(server))


def test_lists_that_need_a_credential_are_reported_without_one(tmp_path):
    async def go(server):
        text = SOURCE.format(url=server.url) + CALLERS
        async with runtime_of(write_config(tmp_path, text, **KEYS)) as (_, loaded):
            (finding,) = loaded.report
            assert "lists are read with headers or oauth" in finding.message
            assert len(loaded.catalog) == 0

    with GuardedServer(known()) as server:
        asyncio.run(go(server))


def test_what_a_server_repeats_of_a_credential_is_masked(tmp_path):
    async def go(server):
        text = SOURCE.format(url=server.url) + LISTS + CALLERS
        async with runtime_of(write_config(tmp_path, text, **KEYS)) as (runtime, _):
            assert (await called(runtime, ADA))[0]["text"] == "you sent Bearer ***"
            with pytest.raises(CallError) as failed:
                await called(runtime, ADA, "up.fail")
            assert "refused Bearer ***" in failed.value.message
            server.accepts.discard(f"Bearer {ADA_KEY}")
            with pytest.raises(CallError) as failed:
                await called(runtime, ADA)
            assert failed.value.details["statusCode"] == 401
            assert ADA_KEY not in repr(failed.value) + json.dumps(failed.value.details)
            await called(runtime, BEN)  # The refusal of one costs no other.

    with GuardedServer(known()) as server:
        asyncio.run(go(server))


# --- the pool -----------------------------------------------------------------------------------


def pool_of(server, callers=20, **limits):
    made = [CallerCredential({"Authorization": f"Bearer k{n}"}, id=f"c{n}") for n in range(callers)]
    settings = ServerSettings(
        name="up", url=server.url, hosts=("127.0.0.1",), callers=tuple(made), call_seconds=20
    )
    return UpstreamPool(settings, lambda: None, **limits)


async def asked(pool, number, **arguments):
    params = {"name": "whoami", "arguments": arguments}
    return await pool.request("tools/call", params, identity=Identity(f"c{number}"))


def test_resources_of_a_server_with_credentials_of_callers_are_not_followed():
    async def go(server):
        pool = pool_of(server)
        with pytest.raises(CallError, match="are not followed"):
            await pool.follow("test://notes/1", lambda: None)
        await pool.aclose()
        assert server.headers == []

    with GuardedServer(known()) as server:
        asyncio.run(go(server))


@pytest.mark.parametrize("era", ERAS)
def test_the_longest_idle_session_is_closed_for_one_more(era):
    async def go(server):
        pool = pool_of(server, most=4)
        for number in (0, 1, 2, 3, 0, 4):  # c1 is the longest idle.
            await asked(pool, number)
        await asked(pool, 0)
        await asked(pool, 1)
        await pool.aclose()
        return server.of("server/discover")

    with GuardedServer(era=era) as server:
        opened = asyncio.run(asyncio.wait_for(go(server), raw.PATIENCE))
        assert opened == [f"Bearer k{n}" for n in (0, 1, 2, 3, 4, 1)]
        if era == "legacy":
            assert sorted(server.of("DELETE")) == [f"Bearer k{n}" for n in (0, 1, 1, 2, 3, 4)]


def test_sessions_in_use_are_not_closed_and_one_more_is_refused():
    async def go(server):
        pool = pool_of(server, most=2)
        busy = [asyncio.create_task(asked(pool, number, who="held")) for number in (0, 1)]
        while len(server.of("tools/call")) < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(CallError) as refused:
            await asked(pool, 2)
        assert refused.value.code == "overloaded"
        server.released.set()
        assert all(each["content"] for each in await asyncio.gather(*busy))
        await asked(pool, 2)
        await pool.aclose()

    with GuardedServer() as server:
        asyncio.run(asyncio.wait_for(go(server), raw.PATIENCE))


def test_an_idle_session_is_closed_with_the_next_request_of_anybody():
    async def go(server):
        pool = pool_of(server, idle_seconds=0)
        for number in (0, 1, 1):
            await asked(pool, number)
        await pool.aclose()
        assert server.of("server/discover") == ["Bearer k0", "Bearer k1", "Bearer k1"]

    with GuardedServer() as server:
        asyncio.run(asyncio.wait_for(go(server), raw.PATIENCE))


# --- the mapping --------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", ""])
RULES = st.builds(
    CallerCredential, st.just({"X": "y"}), id=st.none() | NAMES, scope=st.none() | NAMES
).filter(lambda rule: (rule.id, rule.scope) != (None, None))
IDENTITIES = st.builds(Identity, NAMES, st.lists(NAMES, max_size=3).map(tuple))


@given(st.lists(RULES, max_size=6), IDENTITIES)
def test_a_caller_gets_the_first_credential_that_names_it_and_no_other(rules, identity):
    found = credential_of(rules, identity)
    fitting = [
        rule
        for rule in rules
        if rule.id in {None, identity.id} and ({rule.scope} <= {None, *identity.scopes})
    ]
    assert found is (fitting[0] if fitting else None)
    assert credential_of(rules, None) is None


# --- configuration ------------------------------------------------------------------------------

OAUTH = '[sources.up.oauth]\nclient_id = "c"\n'
EXCHANGE = f'{OAUTH}token_url = "https://login.example.com/t"\nexchange = "token"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CALLERS.replace('id = "ada"', ""), "each entry needs an id or a scope"),
        (CALLERS + EXCHANGE, "use one"),
        (OAUTH, "needs a client_secret"),
        (OAUTH + 'exchange = "token"', "needs token_url or issuer"),
        (EXCHANGE.replace('"token"', '"id"'), "subject_token_type"),
        (OAUTH + 'client_secret = "${NO_SUCH}"', "wants the key NO_SUCH, which is not set"),
        (OAUTH + 'client_secret = "literal-secret-1"', "client_secret"),
        (EXCHANGE.replace("https", "http"), "must be reached over https"),
        (CALLERS.replace("Bearer ${ADA_KEY}", "literal-secret-1\\nb"), "one line"),
        ('keys = ["ADA_KEY@other.example.com"]' + CALLERS, "is for other.example.com alone"),
        (CALLERS + 'token = "literal-secret-1"', "callers.1.token is not known"),
        (CALLERS.replace("{ Auth", '{ X = ["literal-secret-1"], Auth'), "callers.0.headers.X"),
    ],
)
def test_credentials_that_cannot_be_used_are_refused_without_showing_them(text, words, tmp_path):
    async def go():
        file = write_config(tmp_path, SOURCE.format(url="https://up.example.com") + text, **KEYS)
        async with runtime_of(file):
            pass

    with pytest.raises((SourceRefused, InvalidConfig)) as refused:
        asyncio.run(go())
    assert words in str(refused.value)
    assert "literal-secret-1" not in str(refused.value)
    assert ADA_KEY not in str(refused.value)


@pytest.mark.parametrize("kind", ["mcp", "mcp-config"])
def test_a_process_and_a_file_of_servers_take_no_credentials_of_callers(kind, tmp_path):
    ref = " ".join(hostile_server.command(only=["echo"])) if kind == "mcp" else "servers.json"
    (tmp_path / "servers.json").write_text('{"mcpServers": {"a": {"url": "https://a.example"}}}')
    text = f"[sources.up]\nref = '''{kind}:{ref}'''\nsecrets = 'keys.env'\n" + CALLERS

    async def go():
        async with runtime_of(write_config(tmp_path, text, **KEYS)):
            pass

    with pytest.raises(SourceRefused, match="callers and oauth are for"):
        asyncio.run(go())
