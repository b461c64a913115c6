"""Tokens for MCP servers: client credentials and token exchange, with a real server and issuer."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import pickle

import pytest

from callpact import AccessDenied, CallError, Identity
from callpact.protocol import CallRequested, decode_event, encode_event
from callpact.secrets.sealed_token import SealedToken
from callpact.tool import Call
from guarded_server import METHODS, GuardedServer, runtime_of, write_config

ADA, BEN = Identity("ada"), Identity("ben")
SECRET = "client+key/444444="
SOURCE = """
[sources.up]
ref = "mcp:{url}"
hosts = {hosts}
secrets = "keys.env"
{lists}
[sources.up.oauth]
client_id = "gate way"
client_secret = "${{CLIENT_KEY}}"
{more}
"""
BY_ID = 'exchange = "id"\nsubject_token_type = "urn:example:caller"\nissuer = "{issuer}"'
FORBIDDEN = "Bearer never-accepted"


def config(folder, server, more="", hosts=None, lists=""):
    text = SOURCE.format(
        url=server.url,
        hosts=json.dumps(hosts or ["127.0.0.1"]),
        lists=lists,
        more=more.format(issuer=server.issuer, token_url=server.token_url),
    )
    return write_config(folder, text, CLIENT_KEY=SECRET)


async def called(runtime, identity=None, name="up.whoami", **arguments):
    return (await runtime.call(Call(name, arguments), identity)).data


def run(work):
    async def bounded():
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


# --- client credentials -------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize(
    "more",
    ["", 'issuer = "{issuer}"', 'token_url = "{token_url}"'],
    ids=["discovered", "issuer", "token_url"],
)
def test_one_token_is_obtained_and_used_for_everything(more, era, tmp_path):
    async def go(server):
        scopes = 'scopes = ["read", "write"]\naudience = "them"\n'
        async with runtime_of(config(tmp_path, server, scopes + more)) as (runtime, loaded):
            assert loaded.report == ()
            for identity in (None, ADA, BEN):
                assert (await called(runtime, identity))[0]["text"] == "you sent Bearer ***"
        (asked,) = server.asked
        pair = base64.b64decode(asked.pop("authorization").removeprefix("Basic ")).decode()
        assert pair == "gate%20way:client%2Bkey%2F444444%3D"
        assert asked == {
            "grant_type": "client_credentials",
            "resource": server.url,
            "scope": "read write",
            "audience": "them",
        }
        assert {each.authorization for each in server.seen if each.method != "ping"} == {
            "Bearer granted-token-1"
        }

    with GuardedServer(set(), era) as server:
        run(go(server))


def test_metadata_is_found_where_the_challenge_says(tmp_path):
    async def go(server):
        server.metadata_path = "/elsewhere/metadata.json"
        async with runtime_of(config(tmp_path, server)) as (runtime, _):
            await called(runtime)

    with GuardedServer(set()) as server:
        run(go(server))


def test_the_secret_goes_into_the_body_if_the_issuer_wants_it_there(tmp_path):
    async def go(server):
        more = 'token_url = "{token_url}"\nclient_auth = "post"'
        async with runtime_of(config(tmp_path, server, more)) as (runtime, _):
            await called(runtime)
        (asked,) = server.asked
        assert (asked["client_id"], asked["client_secret"]) == ("gate way", SECRET)
        assert asked["authorization"] is None

    with GuardedServer(set()) as server:
        run(go(server))


def test_a_token_is_renewed_before_it_ends_and_one_request_serves_all_that_wait(tmp_path):
    async def go(server):
        server.life = 0.000_001
        async with runtime_of(config(tmp_path, server, 'issuer = "{issuer}"')) as (runtime, _):
            before = len(server.asked)
            await called(runtime)
            await called(runtime)
            assert len(server.asked) == before + 2
            assert server.of("tools/call") == [f"Bearer {each}" for each in server.given[-2:]]
            server.life = 3600
            await called(runtime)
            before = len(server.asked)
            await asyncio.gather(*(called(runtime) for _ in range(20)))
            assert len(server.asked) == before

    with GuardedServer(set()) as server:
        run(go(server))


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_after_a_401_the_request_is_repeated_once_with_a_new_token(era, tmp_path):
    async def go(server):
        async with runtime_of(config(tmp_path, server, 'issuer = "{issuer}"')) as (runtime, _):
            await called(runtime)
            server.accepts.clear()
            server.seen.clear()
            await called(runtime)
            assert server.of("tools/call") == ["Bearer granted-token-1", "Bearer granted-token-2"]

    with GuardedServer(set(), era) as server:
        run(go(server))


def test_a_server_that_takes_no_token_gets_few_and_the_error_says_401(tmp_path):
    async def go(server):
        async with runtime_of(config(tmp_path, server, 'issuer = "{issuer}"')) as (runtime, _):
            await called(runtime)
            server.accepts = {FORBIDDEN}
            server.grant = lambda *_: (
                200,
                {"access_token": f"useless-{len(server.asked)}", "token_type": "bearer"},
            )
            before = len(server.asked)
            for _ in range(20):
                with pytest.raises(CallError) as refused:
                    await called(runtime)
                assert refused.value.details["statusCode"] == 401
                assert "useless" not in repr(refused.value) + json.dumps(refused.value.details)
            assert len(server.asked) < before + 20

    with GuardedServer(set()) as server:
        run(go(server))


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, {"error": "invalid_client"}, "answers 401 (invalid_client)"),
        (400, {"error": SECRET, "error_description": SECRET}, "answers 400"),
        (500, "no", "answers 500"),
        (200, [], "no JSON object"),
        (200, {"token_type": "bearer"}, "no access_token"),
        (200, {"access_token": "a b", "token_type": "bearer"}, "no access_token"),
        (200, {"access_token": "a\r\nX: b", "token_type": "bearer"}, "no access_token"),
        (200, {"access_token": "abcdefgh", "token_type": "mac"}, "not Bearer"),
        (200, {"access_token": "a" * 100_000, "token_type": "bearer"}, "more than 65,536 bytes"),
        (307, {"location": "https://other.example/token"}, "redirect"),
    ],
)
def test_an_answer_that_is_no_token_is_a_clear_error_without_secrets(
    status, body, words, tmp_path, caplog
):
    async def go(server):
        headers = body if status == 307 else {}
        server.grant = lambda *_: (status, body, headers)
        with caplog.at_level(logging.DEBUG):
            file = config(tmp_path, server, 'token_url = "{token_url}"')
            async with runtime_of(file) as (_, loaded):
                (finding,) = loaded.report
        assert words in finding.message.lower() or words in finding.message
        assert server.seen == []
        spread = finding.message + caplog.text
        assert SECRET not in spread
        assert "abcdefgh" not in spread

    with GuardedServer(set()) as server:
        run(go(server))


def test_private_addresses_are_refused_unless_hosts_names_them(tmp_path):
    async def go(server, other):
        more = f'token_url = "{other.token_url}"'
        async with runtime_of(config(tmp_path, server, more, [server.host, other.host])):
            assert other.asked
        other.asked.clear()
        # Discovered at a server that is allowed, and still refused.
        server.issuer = other.issuer
        async with runtime_of(config(tmp_path, server, hosts=[server.host])) as (_, loaded):
            (finding,) = loaded.report
        assert other.asked == []
        assert "hosts" in finding.message

    with GuardedServer(set()) as server, GuardedServer() as other:
        run(go(server, other))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"resource": "https://other.example/mcp"}, "another resource"),
        ({"authorization_servers": []}, "no authorization server"),
        ({"authorization_servers": ["http://other.example"]}, "over https"),
        ({"issuer": "https://other.example"}, "another issuer"),
        ({"token_endpoint": "http://other.example/token"}, "over https"),
        ({"token_endpoint": 5}, "no token_endpoint"),
    ],
)
def test_metadata_that_lies_gets_no_secret(change, words, tmp_path):
    async def go(server):
        real = server._issued

        def issued(path, body, headers):
            found = real(path, body, headers)
            if found is None or path == "/token" or found[0] != 200:
                return found
            return 200, {key: change.get(key, value) for key, value in found[1].items()}

        server._issued = issued
        async with runtime_of(config(tmp_path, server)) as (_, loaded):
            (finding,) = loaded.report
        assert words in finding.message
        assert server.asked == []

    with GuardedServer(set()) as server:
        run(go(server))


def test_a_secret_that_is_bound_to_another_host_is_not_sent(tmp_path):
    async def go(server):
        bound = 'keys = ["CLIENT_KEY@{host}"]'
        for host, asked in (("login.example.com", 0), ("127.0.0.1:9", 0), (server.host, 1)):
            file = config(tmp_path, server, lists=bound.format(host=host))
            async with runtime_of(file) as (_, loaded):
                assert ["not bound to" in each.message for each in loaded.report] == [True] * (
                    1 - asked
                )
            assert len(server.asked) == asked

    with GuardedServer(set()) as server:
        run(go(server))


# --- exchange -----------------------------------------------------------------------------------


def test_each_caller_gets_a_token_by_its_id_and_lists_the_clients_own(tmp_path):
    async def go(server):
        async with runtime_of(config(tmp_path, server, BY_ID)) as (runtime, _):
            for _ in range(2):
                for identity in (ADA, BEN):
                    await called(runtime, identity, who=identity.id)
            with pytest.raises(AccessDenied):
                await called(runtime, None)
        own, *exchanged = server.asked
        assert own["grant_type"] == "client_credentials"
        assert [each["subject_token"] for each in exchanged] == ["ada", "ben"]
        assert {each["subject_token_type"] for each in exchanged} == {"urn:example:caller"}
        calls = {
            (each.arguments["who"], each.authorization)
            for each in server.seen
            if each.method in METHODS
        }
        assert calls == {("ada", "Bearer granted-token-2"), ("ben", "Bearer granted-token-3")}

    with GuardedServer(set()) as server:
        run(go(server))


def test_tokens_that_end_at_once_never_mix_callers_that_call_at_once(tmp_path):
    async def go(server):
        owners = {}
        granted = server.grant

        def grant(form, authorization):
            status, body = granted(form, authorization)
            owners[f"Bearer {body['access_token']}"] = form.get("subject_token")
            return status, body

        server.grant, server.life = grant, 0.000_001
        names = [f"caller-{number}" for number in range(6)]
        async with runtime_of(config(tmp_path, server, BY_ID)) as (runtime, _):
            await asyncio.gather(
                *(
                    called(runtime, Identity(names[n % 6]), who=names[n % 6], seconds=n % 3 / 100)
                    for n in range(90)
                )
            )
        calls = [each for each in server.seen if each.method == "tools/call"]
        assert len(calls) == 90
        assert all(owners[each.authorization] == each.arguments["who"] for each in calls)

    with GuardedServer(set()) as server:
        run(go(server))


def test_a_caller_that_the_issuer_refuses_is_denied_and_others_go_on(tmp_path):
    async def go(server):
        granted = server.grant

        def grant(form, authorization):
            if form.get("subject_token") == "ada":
                return 400, {"error": "invalid_grant", "error_description": "ada is no more"}
            return granted(form, authorization)

        server.grant = grant
        async with runtime_of(config(tmp_path, server, BY_ID)) as (runtime, _):
            with pytest.raises(AccessDenied, match="gives you no token \\(invalid_grant\\)"):
                await called(runtime, ADA)
            await called(runtime, BEN)
            assert server.of("tools/call") == [f"Bearer {server.given[-1]}"]
            server.grant = lambda *_: (503, {})
            with pytest.raises(CallError, match="answers 503") as down:
                await called(runtime, Identity("eve"))
            assert down.value.code == "upstream_error"
            await called(runtime, BEN)  # The token is still good.

    with GuardedServer(set()) as server:
        run(go(server))


def test_a_header_of_the_source_reads_the_lists_beside_an_exchange(tmp_path):
    async def go(server):
        lists = 'headers = { Authorization = "Bearer list-key-0000" }'
        async with runtime_of(config(tmp_path, server, BY_ID, lists=lists)) as (runtime, _):
            assert server.asked == []
            await called(runtime, ADA)
        assert [each["subject_token"] for each in server.asked] == ["ada"]
        assert server.of("tools/list") == ["Bearer list-key-0000"]
        assert server.of("tools/call") == ["Bearer granted-token-1"]

    with GuardedServer({"Bearer list-key-0000"}) as server:
        run(go(server))


def test_a_token_of_a_caller_is_exchanged_only_for_the_requests_that_carry_it(tmp_path):
    more = 'exchange = "token"\nissuer = "{issuer}"'

    async def go(server):
        async with runtime_of(config(tmp_path, server, more)) as (runtime, _):
            for token in ("one", "two", "one"):
                await called(runtime, Identity("ada", token=SealedToken(token)))
            with pytest.raises(AccessDenied, match="needs a token of an issuer"):
                await called(runtime, ADA)
        assert [each.get("subject_token") for each in server.asked] == [None, "one", "two"]
        assert server.of("tools/call") == [f"Bearer granted-token-{n}" for n in (2, 3, 2)]

    with GuardedServer(set()) as server:
        run(go(server))


# --- sealed tokens ------------------------------------------------------------------------------


def test_a_sealed_token_is_shown_nowhere_and_stays_in_the_process():
    sealed = SealedToken("very-secret-token")
    identity = Identity("ada", ("read",), token=sealed)
    assert "very-secret" not in f"{sealed!r} {sealed} {identity!r}"
    with pytest.raises(TypeError):
        pickle.dumps(sealed)
    event = CallRequested("r", "t.t", {}, identity=identity)
    data = encode_event(event)
    assert b"very-secret" not in (data if isinstance(data, bytes) else json.dumps(data).encode())
    assert decode_event(data).identity == Identity("ada", ("read",))
    assert sealed == SealedToken("very-secret-token") != SealedToken("another")
