"""The keys of an issuer: where they are, when they are asked for, and an issuer that misbehaves."""

from __future__ import annotations

import asyncio

import pytest

import raw
from callpact.errors import InvalidConfig
from callpact.serve.auth.oauth import OAuth
from issuer import AUDIENCE, METADATA, OPENID, Issuer, jwk
from serving import (
    CI,
    TOKENS,
    Serving,
    asked,
    bearer,
    checking,
    works,
)


@pytest.mark.parametrize(
    ("path", "metadata"),
    [
        ("", METADATA),
        ("", OPENID),
        ("/", METADATA),
        ("/tenant", f"{METADATA}/tenant"),
        ("/tenant", f"{OPENID}/tenant"),
        ("/tenant", f"/tenant{OPENID}"),
        ("/tenant/", f"/tenant{OPENID}"),
    ],
)
def test_the_metadata_of_an_issuer_is_found_where_the_standards_have_it(path, metadata):
    with Issuer(path, metadata) as issuer, Serving(checking(issuer)) as serving:
        assert asked(serving, issuer.token()) == 200
        assert issuer.asked[-2:] == [metadata, "/keys"]


def test_with_the_address_of_the_keys_nothing_else_is_asked_for():
    with Issuer() as issuer, Serving(checking(issuer, jwks_uri=f"{issuer.url}/keys")) as serving:
        assert asked(serving, issuer.token()) == 200
        assert set(issuer.asked) == {"/keys"}


def elsewhere(issuer):
    return {"Location": f"http://127.0.0.1:{issuer.port + 1}/keys"}


BROKEN = {
    "nothing there": lambda i: {METADATA: 404, OPENID: 404},
    "an error": lambda i: {METADATA: 500, OPENID: 500},
    "no JSON": lambda i: {"/keys": b"<html>"},
    "a list": lambda i: {"/keys": []},
    "no keys": lambda i: {"/keys": {}},
    "keys is an object": lambda i: {"/keys": {"keys": {}}},
    "no key at all": lambda i: {"/keys": {"keys": []}},
    "keys that cannot be used": lambda i: {"/keys": {"keys": [
        None, 5, [], {}, {"kty": "RSA"}, {"kty": "RSA", "n": "!", "e": "AQAB"}, {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "oct", "k": "AAAA", "kid": "first"}, jwk(use="enc"), jwk(key_ops=["sign"]), jwk("RS256", "weak"),
        jwk(alg="HS256"), {**jwk(), "n": 5}, {**jwk(), "e": None}, {**jwk(), "kty": []},
    ]}},
    "metadata of another issuer": lambda i: {METADATA: {"issuer": "https://evil.example", "jwks_uri": f"{i.url}/keys"}},
    "metadata without keys": lambda i: {METADATA: {"issuer": i.url}},
    "keys at no address": lambda i: {METADATA: {"issuer": i.url, "jwks_uri": 5}},
    "keys in a file": lambda i: {METADATA: {"issuer": i.url, "jwks_uri": "file:///etc/passwd"}},
    "keys at a private address": lambda i: {METADATA: {"issuer": i.url, "jwks_uri": "https://169.254.169.254/keys"}},
    "keys over plain http": lambda i: {METADATA: {"issuer": i.url, "jwks_uri": "http://example.com/keys"}},
    "a redirect to a private address": lambda i: {"/keys": (302, elsewhere(i), b"")},
    "a redirect in a circle": lambda i: {"/keys": (302, {"Location": "/keys"}, b"")},
    "a drip": lambda i: {"/keys": i.drip},
    "a drip of metadata": lambda i: {METADATA: i.drip},
    "too much": lambda i: {"/keys": {"keys": [jwk()], "pad": "x" * 200_000}},
    "cut off": lambda i: {"/keys": lambda request: request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")},
    "no HTTP": lambda i: {"/keys": lambda request: request.wfile.write(b"hello\r\n\r\n")},
    "deep": lambda i: {"/keys": b'{"keys":' + b"[" * 50_000},
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_an_issuer_that_misbehaves_costs_nothing_but_its_tokens(name):
    with Issuer() as issuer:
        issuer.answers = BROKEN[name](issuer)
        with Serving(checking(issuer, tokens=TOKENS)) as serving, serving.connect() as line:
            answer = line.ask(raw.message(), **raw.routed(), **bearer(issuer.token()))
            assert answer.status == 503
            assert int(answer.headers["retry-after"]) > 0
            assert "issuer" in answer.error["message"]
            assert serving.whoami(CI)["id"] == "ci"
            issuer.answers = {}
            assert asked(serving, issuer.token()) == 200


def test_an_issuer_that_is_not_there_is_not_waited_for_by_others():
    with Issuer() as issuer:
        token = issuer.token()
    with Serving(checking(issuer, tokens=TOKENS)) as serving:
        assert asked(serving, token) == 503
        assert asked(serving, CI) == 200


def test_keys_that_are_known_stay_in_use_while_the_issuer_is_away():
    with Issuer() as issuer, Serving(checking(issuer, fresh=0.0)) as serving:
        assert asked(serving, issuer.token()) == 200
        issuer.answers = {METADATA: 500, OPENID: 500}
        assert [asked(serving, issuer.token()) for _ in range(3)] == [200] * 3
        # Nobody can say whether it has this key by now.
        assert asked(serving, issuer.token(name="second")) == 503
        assert asked(serving, issuer.token()) == 200
        issuer.keys.append(jwk("RS256", "second"))
        issuer.answers = {}
        assert asked(serving, issuer.token(name="second")) == 200


def test_a_new_key_is_found_at_its_first_token_and_an_old_one_is_forgotten():
    with Issuer() as issuer, Serving(checking(issuer)) as serving:
        assert asked(serving, issuer.token()) == 200
        issuer.keys = [jwk("RS256", "second")]
        assert asked(serving, issuer.token(name="second")) == 200
        assert asked(serving, issuer.token()) == 401


def test_tokens_cannot_make_us_ask_the_issuer_again_and_again():
    with Issuer() as issuer, Serving(checking(issuer, pause=3_600.0)) as serving:
        assert asked(serving, issuer.token()) == 200
        before = list(issuer.asked)
        with serving.connect() as line:
            for number in range(50):
                token = issuer.token(name="of eve", header={"kid": f"k{number}"})
                assert line.ask(raw.message(), **raw.routed(), **bearer(token)).status == 401
            assert works(line, issuer.token())
        assert issuer.asked == before


def test_many_first_tokens_ask_the_issuer_once():
    with Issuer() as issuer:
        oauth = OAuth(issuer=issuer.url, audience=AUDIENCE, hosts=[issuer.host])

        async def go():
            found = await asyncio.gather(*[oauth.verify(issuer.token()) for _ in range(20)])
            await oauth.aclose()
            return {one.identity.id for one in found}

        assert asyncio.run(asyncio.wait_for(go(), raw.PATIENCE)) == {"ada"}
        assert issuer.asked == [METADATA, "/keys"]


def test_a_key_without_a_name_is_tried_for_tokens_without_one():
    with Issuer() as issuer:
        issuer.keys = [jwk("RS256", "second", kid=None, alg=None), jwk(kid=None, use=None)]
        with Serving(checking(issuer)) as serving:
            assert asked(serving, issuer.token(header={"kid": None})) == 200
            assert asked(serving, issuer.token(name="second", header={"kid": None})) == 200
            assert asked(serving, issuer.token(name="of eve", header={"kid": None})) == 401


def test_only_the_ways_to_sign_that_were_chosen_are_accepted():
    issuer = Issuer(algorithms=("RS256", "ES256"))
    with issuer, Serving(checking(issuer, algorithms=["ES256"])) as serving:
        assert asked(serving, issuer.token("ES256")) == 200
        assert asked(serving, issuer.token("RS256")) == 401


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"algorithms": ["none"]}, "algorithms: .*'none'"),
        ({"algorithms": ["RS256", "HS256"]}, "algorithms: .*'HS256'"),
        ({"algorithms": []}, "algorithms"),
        ({"issuer": "http://issuer.example.com"}, "issuer: .*https"),
        ({"issuer": "issuer.example.com"}, "issuer"),
        ({"issuer": "https://issuer.example.com?a=b"}, "issuer: .*query"),
        ({"jwks_uri": "http://issuer.example.com/keys"}, "jwks_uri: .*https"),
        ({"audience": "api://tools"}, "audience: .*resource"),
        ({"resource": "tools"}, "resource: "),
        ({"audience": 'https://a.example/"'}, "audience: "),
        ({"audience": "https://a.example/mcp#part"}, "audience: "),
        ({"hosts": ["http://x"]}, "hosts: "),
    ],
    ids=str,
)
def test_a_configuration_that_cannot_be_meant_is_told_with_its_key(given, words):
    good = {"issuer": "https://issuer.example.com", "audience": AUDIENCE}
    OAuth(**good)
    with pytest.raises(InvalidConfig, match=words):
        OAuth(**{**good, **given})
