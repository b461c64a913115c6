"""Tokens of an OAuth issuer: which are good, and what everybody else is told."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
import time

import jwt
import pytest

import raw
from issuer import AUDIENCE, Issuer, jwk, private_key
from serving import (
    CALL,
    CI,
    TOKENS,
    Serving,
    bearer,
    challenge,
    checking,
    session,
    told_in,
    works,
)

ERAS = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])


@pytest.fixture(scope="module")
def issuer():
    with Issuer(algorithms=("RS256", "PS256", "ES256", "EdDSA")) as made:
        yield made


@pytest.fixture(scope="module")
def guarded(issuer):
    with Serving(checking(issuer, tokens=TOKENS, required_scopes=["use"])) as serving:
        yield serving


@pytest.fixture
def way(guarded):
    with guarded.connect() as connection:
        yield connection


@ERAS
@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_a_good_token_is_its_subject_with_its_scopes(guarded, issuer, algorithm, mode):
    token = issuer.token(algorithm, sub="ada", scope="use read")
    told = guarded.whoami(token, mode)
    assert (told["id"], told["scopes"], told["bound"]) == ("ada", ["use", "read"], "ada")
    assert "authorization" not in told["headers"]


@pytest.mark.parametrize(
    "claims",
    [
        {"scope": "use read"},
        {"scope": ["use", "read"]},
        {"scp": "use read"},
        {"scp": ["use", "read"]},
        {"scope": " use  read "},
        {"scope": "use read", "scp": "other"},
        {"scope": "use read", "aud": ["https://other.example", AUDIENCE]},
        {"scope": "use read", "nbf": 1, "iat": 1},
    ],
    ids=str,
)
def test_scopes_are_one_text_or_a_list(guarded, issuer, claims):
    assert guarded.whoami(issuer.token(**claims))["scopes"] == ["use", "read"]


def test_static_tokens_work_beside_an_issuer_and_need_no_scope_of_it(guarded):
    assert guarded.whoami(CI)["id"] == "ci"


def test_clocks_may_differ_a_little(guarded, issuer):
    now = int(time.time())
    for claims in ({"exp": now - 10}, {"nbf": now + 10}, {"iat": now + 10}):
        assert guarded.whoami(issuer.token(scope="use", **claims))["id"] == "ada"


def encoded(data):
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forged(issuer, header, key=None, **claims):
    """A token with this header, signed with what is given, or not at all."""
    now = int(time.time())
    told = {"iss": issuer.url, "aud": AUDIENCE, "sub": "eve", "scope": "use", "exp": now + 600}
    start = f"{encoded(header)}.{encoded({**told, **claims})}"
    if key is None:
        return f"{start}."
    return f"{start}.{encoded(jwt.get_algorithm_by_name('RS256').sign(start.encode(), key))}"


def signed(issuer, claims, algorithm="RS256"):
    """A token of the issuer with these claims, byte by byte; what good ones have is put before."""
    if claims.startswith(b"{"):
        now = int(time.time())
        good = {"iss": issuer.url, "aud": AUDIENCE, "sub": "eve", "scope": "use", "exp": now + 600}
        claims = json.dumps(good).encode()[:-1] + b", " + claims[1:]
    start = f"{encoded({'alg': algorithm, 'kid': 'first'})}.{encoded(claims)}"
    signature = jwt.get_algorithm_by_name(algorithm).sign(
        start.encode(), private_key(algorithm, "first")
    )
    return f"{start}.{encoded(signature)}"


def pem():
    from cryptography.hazmat.primitives import serialization as form

    return (
        private_key().public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    )  # fmt: skip


def hmac_signed(issuer, key, **claims):
    import hashlib
    import hmac

    start = forged(issuer, {"alg": "HS256", "kid": "first"}, **claims)[:-1]
    return f"{start}.{encoded(hmac.new(key, start.encode(), hashlib.sha256).digest())}"


def swapped(issuer):
    """The claims of one token under the signature of another."""
    mine = issuer.token(scope="use", sub="eve").split(".")
    theirs = issuer.token(scope="use", sub="ada").split(".")
    return ".".join([mine[0], theirs[1], mine[2]])


OTHER = private_key("RS256", "of eve")
HOSTILE = {
    "alg none": lambda i: forged(i, {"alg": "none"}),
    "alg None": lambda i: forged(i, {"alg": "None", "kid": "first"}),
    "alg none with a signature": lambda i: forged(i, {"alg": "none", "kid": "first"}, OTHER),
    "no alg": lambda i: forged(i, {"kid": "first"}, OTHER),
    "alg is a list": lambda i: forged(i, {"alg": ["RS256"], "kid": "first"}, OTHER),
    "alg is an object": lambda i: forged(i, {"alg": {}, "kid": "first"}, OTHER),
    "HS256 with the public key": lambda i: hmac_signed(i, pem()),
    "HS256 with the key as JSON": lambda i: hmac_signed(i, json.dumps(jwk()).encode()),
    "HS256 with nothing": lambda i: hmac_signed(i, b""),
    "signed by another": lambda i: forged(i, {"alg": "RS256", "kid": "first"}, OTHER),
    "signed by another without kid": lambda i: forged(i, {"alg": "RS256"}, OTHER),
    "not signed": lambda i: forged(i, {"alg": "RS256", "kid": "first"}),
    "claims of another": swapped,
    "another alg for the key": lambda i: i.token("RS256", header={"alg": "PS256"}, scope="use"),
    "a key of another kind": lambda i: forged(i, {"alg": "ES256", "kid": "first"}, OTHER),
    "kid is not known": lambda i: i.token(name="never published", scope="use"),
    "kid is a path": lambda i: i.token(header={"kid": "../../etc/passwd"}, scope="use"),
    "kid is a number": lambda i: forged(i, {"alg": "RS256", "kid": 1}, OTHER),
    "kid is an object": lambda i: forged(i, {"alg": "RS256", "kid": {}}, OTHER),
    "critical extension": lambda i: i.token(header={"crit": ["exp"], "exp": 1}, scope="use"),
    "another audience": lambda i: i.token(aud="https://other.example/mcp", scope="use"),
    "audience with a slash": lambda i: i.token(aud=f"{AUDIENCE}/", scope="use"),
    "audience in another case": lambda i: i.token(aud=AUDIENCE.upper(), scope="use"),
    "a part of the audience": lambda i: i.token(aud="https://tools.example.com", scope="use"),
    "audience is a list of others": lambda i: i.token(aud=["a", "b"], scope="use"),
    "audience is an object": lambda i: i.token(aud={AUDIENCE: 1}, scope="use"),
    "audience is empty": lambda i: i.token(aud=[], scope="use"),
    "no audience": lambda i: i.token(aud=None, scope="use"),
    "another issuer": lambda i: i.token(iss="https://evil.example", scope="use"),
    "issuer with a slash": lambda i: i.token(iss=f"{i.url}/", scope="use"),
    "no issuer": lambda i: i.token(iss=None, scope="use"),
    "expired": lambda i: i.token(exp=int(time.time()) - 60, scope="use"),
    "expired in 1970": lambda i: i.token(exp=0, scope="use"),
    "never expires": lambda i: i.token(exp=None, scope="use"),
    "expires at infinity": lambda i: i.token(exp=float("inf"), scope="use"),
    "expires at a text": lambda i: i.token(exp="tomorrow", scope="use"),
    "not valid yet": lambda i: i.token(nbf=int(time.time()) + 120, scope="use"),
    "issued in the future": lambda i: i.token(iat=int(time.time()) + 120, scope="use"),
    "subject is half a character": lambda i: i.token(sub="\ud800", scope="use"),
    "scope is half a character": lambda i: i.token(scope="use \udfff"),
    "subject is a number": lambda i: signed(i, b'{"sub": 7}'),
    "issuer is a list": lambda i: signed(i, b'{"iss": ["x"]}'),
    "jti is an object": lambda i: i.token(jti={}, scope="use"),
    "claims are deep": lambda i: signed(i, b'{"a": ' + b"[" * 3_000 + b"]" * 3_000 + b"}"),
    "claims are NaN": lambda i: signed(i, b'{"a": NaN}'),
    "claims are no UTF-8": lambda i: signed(i, b'{"a": "\xff"}'),
    "claims are cut": lambda i: signed(i, b'{"a": '),
    "claims are empty": lambda i: signed(i, b""),
    "claims are null": lambda i: signed(i, b"null"),
    "detached claims": lambda i: forged(i, {"alg": "RS256", "b64": False, "crit": ["b64"]}, OTHER),
    "compressed": lambda i: i.token(header={"zip": "DEF", "crit": ["zip"]}, scope="use"),
    "no subject": lambda i: i.token(sub=None, scope="use"),
    "an empty subject": lambda i: i.token(sub="", scope="use"),
    "scope is a number": lambda i: i.token(scope=5),
    "scope is an object": lambda i: i.token(scope={"use": True}),
    "scope is a list of numbers": lambda i: i.token(scope=["use", 1]),
    "huge": lambda i: i.token(scope="use", pad="x" * 16_000),
    "huge header": lambda i: i.token(header={"pad": "x" * 16_000}, scope="use"),
    "deep header": lambda i: f"{encoded(b'[' * 9_000)}.e30.x",
    "deep value in the header": lambda i: encoded(b'{"a":' + b"[" * 9_000) + ".e30.x",
    "long number in the header": lambda i: encoded(b'{"alg":' + b"9" * 9_000 + b"}") + ".e30.x",
    "deep claims": lambda i: f"{encoded({'alg': 'RS256'})}.{encoded(b'[' * 9_000)}.eA",
    "header is a list": lambda i: f"{encoded([1])}.e30.eA",
    "header is no UTF-8": lambda i: encoded(b"\xff\xfe") + ".e30.eA",
    "header is nothing": lambda i: ".e30.eA",
    "claims are a list": lambda i: f"{encoded({'alg': 'RS256', 'kid': 'first'})}.{encoded([])}.eA",
    "bad base64": lambda i: "a!b.c$d.e%f",
    "one letter": lambda i: "a.a.a",
    "padded with junk": lambda i: i.token(scope="use") + "===",
    "two parts": lambda i: ".".join(i.token(scope="use").split(".")[:2]),
    "four parts": lambda i: i.token(scope="use") + ".x",
    "five parts": lambda i: "a.b.c.d.e",
    "dots": lambda i: "..",
    "no JWT": lambda i: "x" * 100,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_token_is_refused_and_the_next_request_works(way, issuer, name):
    token = HOSTILE[name](issuer)
    for message, headers in ((raw.message(), raw.routed()), (raw.initialize(), {})):
        answer = way.ask(message, **headers, **bearer(token))
        assert answer.status == 401
        told = challenge(answer)
        assert told["error"] == "invalid_token"
        assert token not in json.dumps([answer.headers, answer.json])
        assert works(way, issuer.token(scope="use"))


NO_TIMES = [
    b"1" + b"0" * 400, b"-1" + b"0" * 400, b"9" * 5_000, b"1e400", b"1e308", b"-1", b"-1e308",
    b"253402300800", b"1e30", b"Infinity", b"-Infinity", b"NaN", b'"4102444800"', b'""', b"true",
    b"false", b"null", b"[]", b"[4102444800]", b"{}", b'{"$date": 1}',
]  # fmt: skip


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("time", NO_TIMES, ids=lambda text: text[:20].decode())
def test_a_claim_that_is_no_time_is_refused(way, issuer, claim, time):
    token = signed(issuer, b'{"%s": %s}' % (claim.encode(), time))
    answer = way.ask(raw.message(), **raw.routed(), **bearer(token))
    assert (answer.status, challenge(answer)["error"]) == (401, "invalid_token")
    assert works(way, issuer.token(scope="use"))


def test_a_time_may_have_a_fraction_or_be_far_away(guarded, issuer):
    for claims in (b'{"exp": 4102444800.5, "iat": 0.5}', b'{"exp": 253402300799}', b'{"nbf": 0}'):
        assert guarded.whoami(signed(issuer, claims))["id"] == "eve"


@pytest.mark.parametrize("member", ["jku", "x5u", "jwk", "x5c"])
def test_keys_that_a_token_brings_along_are_not_looked_at(way, issuer, member):
    with Issuer() as eve:
        eve.keys = [jwk("RS256", "of eve")]
        brought = {
            "jku": f"{eve.url}/keys", "x5u": f"{eve.url}/keys", "jwk": jwk("RS256", "of eve"),
            "x5c": ["AAAA"],
        }[member]  # fmt: skip
        for kid in ("first", "of eve"):
            token = forged(issuer, {"alg": "RS256", "kid": kid, member: brought}, OTHER)
            assert way.ask(raw.message(), **raw.routed(), **bearer(token)).status == 401
        assert eve.asked == []
    assert works(way, issuer.token(scope="use"))


def test_a_token_without_a_scope_that_all_need_is_told_which(way, issuer):
    answer = way.ask(raw.message(), **raw.routed(), **bearer(issuer.token(scope="read")))
    assert answer.status == 403
    told = challenge(answer)
    assert (told["error"], told["scope"]) == ("insufficient_scope", "use")
    assert told["resource_metadata"].endswith("/.well-known/oauth-protected-resource/mcp")
    assert works(way, issuer.token(scope="use"))


def test_a_session_is_bound_to_issuer_client_and_subject(way, issuer):
    number = session(way, issuer.token(scope="use", client_id="app"))
    again = issuer.token(scope="use more", client_id="app", jti="another")
    assert told_in(way.ask(CALL, **number, **bearer(again)))["scopes"] == ["use", "more"]
    for claims in ({"sub": "eve", "client_id": "app"}, {"client_id": "other"}):
        other = issuer.token(scope="use", **claims)
        assert way.ask(CALL, **number, **bearer(other)).status == 404
    assert way.ask(CALL, **number, **bearer(CI)).status == 404


def test_a_static_token_and_a_subject_of_the_same_name_are_two_callers(way, issuer):
    number = session(way, CI)
    same = issuer.token(sub="ci", client_id="ci", scope="use")
    assert way.ask(CALL, **number, **bearer(same)).status == 404


@contextlib.contextmanager
def at_most(line):
    """Hang up in the end, as a stream that stays open is never silent."""
    patience = threading.Timer(raw.PATIENCE, line.socket.shutdown, (socket.SHUT_RDWR,))
    patience.start()
    try:
        yield
    finally:
        patience.cancel()


@pytest.mark.parametrize("stream", ["GET", "subscriptions/listen"])
def test_a_stream_ends_with_its_token(guarded, issuer, stream):
    # It ends when the time by which clocks may differ is over, too.
    token = issuer.token(scope="use", exp=int(time.time()) - 28)
    with guarded.connect() as line, at_most(line):
        if stream == "GET":
            number = session(line, token)
            answer = line.ask(method="GET", **number, **bearer(token))
        else:
            asked = raw.message(stream, notifications={"toolsListChanged": True})
            answer = line.ask(asked, **raw.routed(stream), **bearer(token))
        assert answer.status == 200  # And all of it was read: the stream has ended, in order.
        assert works(line, issuer.token(scope="use"))


# --- what clients are told (RFC 9728) ------------------------------------------------------------


def test_anybody_is_told_where_tokens_come_from(way, issuer):
    answer = way.ask(raw.message(), **raw.routed())
    told = challenge(answer)
    assert answer.status == 401
    where = "https://tools.example.com/.well-known/oauth-protected-resource/mcp"
    assert told == {"scope": "use", "resource_metadata": where}
    for path in ("", "/", "/mcp"):
        found = way.ask(method="GET", path=f"/.well-known/oauth-protected-resource{path}")
        assert (found.status, found.headers["content-type"]) == (200, "application/json")
        assert found.json == {
            "resource": AUDIENCE,
            "authorization_servers": [issuer.url],
            "scopes_supported": ["use"],
            "bearer_methods_supported": ["header"],
        }
    for path in ("/other", "/mcp/more", "x", "/mcp/../x"):
        elsewhere = f"/.well-known/oauth-protected-resource{path}"
        assert way.ask(method="GET", path=elsewhere).status == 401
    assert way.ask(path="/.well-known/oauth-protected-resource").status == 401


def test_the_path_of_a_proxy_and_our_own_both_lead_to_the_metadata(issuer):
    given = {"resource": "https://example.com/tools/mcp", "scopes": ["read", "write"]}
    checked = checking(issuer, audience="api://tools", required_scopes=["read"], **given)
    with Serving(checked, path="/own") as serving, serving.connect() as line:
        told = challenge(line.ask(raw.message(), path="/own", **raw.routed()))
        where = "https://example.com/.well-known/oauth-protected-resource/tools/mcp"
        assert told["resource_metadata"] == where
        for path in ("/tools/mcp", "/own"):
            found = line.ask(method="GET", path=f"/.well-known/oauth-protected-resource{path}").json
            assert found["resource"] == "https://example.com/tools/mcp"
            assert found["scopes_supported"] == ["read", "write"]
        token = issuer.token(aud="api://tools", scope="read")
        answer = line.ask(raw.message(), path="/own", **raw.routed(), **bearer(token))
        assert answer.result["tools"]


def test_the_sdk_finds_the_issuer_from_what_it_is_told(way, issuer):
    from mcp.client.auth.utils import (
        extract_resource_metadata_from_www_auth,
        extract_scope_from_www_auth,
    )
    from mcp.shared.auth import ProtectedResourceMetadata

    answer = way.ask(raw.message(), **raw.routed())
    seen = type("Seen", (), {"status_code": answer.status, "headers": None})()
    seen.headers = {"WWW-Authenticate": answer.headers["www-authenticate"]}
    where = extract_resource_metadata_from_www_auth(seen)
    assert extract_scope_from_www_auth(seen) == "use"
    path = where.removeprefix("https://tools.example.com")
    found = ProtectedResourceMetadata.model_validate_json(way.ask(method="GET", path=path).body)
    assert str(found.resource) == AUDIENCE
    assert [str(one).rstrip("/") for one in found.authorization_servers] == [issuer.url]
