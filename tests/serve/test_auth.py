"""Who may call over HTTP: tokens, an issuer of tokens, and what everybody else is told."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import re
import threading
import time

import jwt
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.shared._httpx_utils import create_mcp_http_client

import raw
from callpact.errors import InvalidConfig
from callpact.net import HttpTransport, Limits
from callpact.secrets import Secrets
from callpact.serve.auth import Authentication, Token, identify, read_tokens
from callpact.serve.http import check_place, serve_http
from callpact.serve.keys import IssuerKeys
from callpact.serve.oauth import OAuth
from callpact.tool import Identity
from issuer import AUDIENCE, METADATA, OPENID, Issuer, jwk, private_key

CI, ROOT = "ci-0123456789abcdef", "root-0123456789abcdef"
TOKENS = (
    Token.of(CI, Identity("ci", ("read",))),
    Token.of(ROOT, Identity("root", ("read", "admin"), {"project:42": ("write",)})),
)
ERAS = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
MESSAGES = pytest.mark.parametrize(
    ("message", "headers"),
    [(raw.message(), raw.routed()), (raw.initialize(), {})],
    ids=["2026-07-28", "older"],
)


# --- a server, and its clients ----------------------------------------------------------------


def server():
    """Says who calls, by the request and by what the SDK binds its state to."""

    async def list_tools(context, params):
        return types.ListToolsResult(
            tools=[types.Tool(name="whoami", input_schema={"type": "object"})]
        )

    async def call_tool(context, params):
        caller = identify(context)
        bound = get_access_token()
        told = {
            "id": caller and caller.id,
            "scopes": caller and list(caller.scopes),
            "bound": bound and bound.subject,
            "headers": sorted(context.request.headers),
        }
        return types.CallToolResult(content=[types.TextContent(type="text", text=json.dumps(told))])

    return Server("t", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


class Serving:
    """`serve_http` in a thread, on a free port."""

    def __init__(self, authentication=None, door=None, **given):
        self._ready = threading.Event()
        self._loop = self._task = self._error = None
        self._given = {"port": 0, "authentication": authentication, **given}
        self._door = door or server()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self):
        def ready(address):
            self.address = address
            self._ready.set()

        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await serve_http(self._door, on_ready=ready, **self._given)
        except Exception as error:
            self._error = error
        finally:
            self._ready.set()

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(raw.PATIENCE)
        if self._error is not None:
            raise self._error
        self.port = int(self.address.split(":")[-1].split("/")[0])
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(raw.PATIENCE)
        assert not self._thread.is_alive()
        assert self._error is None

    def connect(self):
        return raw.Line(self.port)

    def client(self, token, mode):
        """The SDK's own client, with a token."""

        @contextlib.asynccontextmanager
        async def opened():
            headers = {"Authorization": f"Bearer {token}"}
            async with (
                create_mcp_http_client(headers=headers) as http,
                Client(streamable_http_client(self.address, http_client=http), mode=mode) as client,
            ):
                yield client

        return opened()

    def whoami(self, token, mode="2026-07-28"):
        async def go():
            async with self.client(token, mode) as client:
                return text_of(await client.call_tool("whoami", {}))

        return asyncio.run(asyncio.wait_for(go(), raw.PATIENCE))


def text_of(result):
    return json.loads(result.content[0].text)


def bearer(token, scheme="Bearer"):
    return {"Authorization": f"{scheme} {token}"}


def challenge(answer):
    """What the answer says that is needed (RFC 6750)."""
    scheme, _, rest = answer.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return dict(re.findall(r'(\w+)="([^"]*)"', rest))


def works(line, token=CI):
    """True if the next request with a good token is answered on this connection."""
    return "result" in line.ask(raw.message(), **raw.routed(), **bearer(token)).json


@pytest.fixture(scope="module")
def tokens():
    with Serving(Authentication(TOKENS)) as serving:
        yield serving


@pytest.fixture
def line(tokens):
    with tokens.connect() as connection:
        yield connection


# --- tokens that are known --------------------------------------------------------------------


@ERAS
def test_the_caller_is_who_the_token_says(tokens, mode):
    told = tokens.whoami(ROOT, mode)
    assert (told["id"], told["scopes"], told["bound"]) == ("root", ["read", "admin"], "root")
    assert tokens.whoami(CI, mode)["id"] == "ci"


@ERAS
def test_the_token_is_not_in_the_request_that_tools_see(tokens, mode):
    assert "authorization" not in tokens.whoami(CI, mode)["headers"]


@ERAS
def test_callers_at_the_same_time_are_each_who_they_are(tokens, mode):
    async def go():
        async with tokens.client(CI, mode) as ci, tokens.client(ROOT, mode) as root:
            calls = [client.call_tool("whoami", {}) for _ in range(20) for client in (ci, root)]
            return [text_of(result) for result in await asyncio.gather(*calls)]

    told = asyncio.run(asyncio.wait_for(go(), raw.PATIENCE))
    assert [one["id"] for one in told] == ["ci", "root"] * 20
    assert [one["bound"] for one in told] == ["ci", "root"] * 20


@MESSAGES
def test_without_a_token_a_caller_is_told_to_bring_one(line, message, headers):
    answer = line.ask(message, **headers)
    assert answer.status == 401
    assert challenge(answer) == {}  # RFC 6750, 3.1: no error where nothing was shown.
    assert "token" in answer.error["message"]
    assert works(line)


WRONG = {
    "another": "x" * 20,
    "a part of it": CI[:-1],
    "more than it": CI + "x",
    "in another case": CI.upper(),
    "an id": "ci",
    "two in one": f"{CI} {ROOT}",
    "with a comma": f"{CI}, {ROOT}",
    "in quotes": f'"{CI}"',
    "not ascii": "\xe9" * 20,
    "huge": "x" * 20_000,
}


@MESSAGES
@pytest.mark.parametrize("name", WRONG)
def test_a_token_that_is_not_known_is_refused_and_the_next_works(line, message, headers, name):
    body = raw.request(message, **headers, **bearer("TOKEN"))
    line.send(body.replace(b"TOKEN", WRONG[name].encode("latin-1")))
    answer = line.read()
    assert answer.status == 401
    assert challenge(answer)["error"] == "invalid_token"
    assert works(line)


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic Y2k6Y2k=", CI, f"Token {CI}", f"BearerX {CI}"]
)
def test_what_is_no_bearer_token_counts_as_none(line, header):
    answer = line.ask(raw.message(), **raw.routed(), Authorization=header)
    assert (answer.status, challenge(answer)) == (401, {})
    assert works(line)


def test_the_name_of_the_scheme_has_no_case(line):
    for scheme in ("bearer", "BEARER", "Bearer  "):
        answer = line.ask(raw.message(), **raw.routed(), **bearer(CI, scheme))
        assert answer.result["tools"]


def test_two_tokens_in_one_request_are_refused(line):
    both = [f"Bearer {CI}", f"Bearer {ROOT}"]
    answer = line.ask(raw.message(), **raw.routed(), Authorization=both)
    assert (answer.status, challenge(answer)["error"]) == (400, "invalid_request")
    assert works(line)


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "PUT", "OPTIONS", "HEAD"])
def test_every_method_and_path_needs_a_token(tokens, method):
    for path in ("/mcp", "/mcp/", "/", "/elsewhere", f"/mcp?access_token={CI}",
                 "/.well-known/oauth-protected-resource"):  # fmt: skip
        with tokens.connect() as one:
            one.send(raw.request(method=method, path=path, **raw.routed()))
            assert one.file.readline().split()[1] == b"401"


def test_what_a_stranger_sends_is_not_waited_for(tokens, line):
    with tokens.connect() as stranger:
        stranger.send(raw.request(Content_Length="4000000", **raw.routed()))
        assert stranger.read().status == 401
    assert works(line)


# --- sessions of the older era ----------------------------------------------------------------


def session(line, token):
    """Begin a session; gives its id."""
    answer = line.ask(raw.initialize(), **bearer(token))
    assert answer.status == 200
    number = {"Mcp_Session_Id": answer.headers["mcp-session-id"]}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert line.ask(note, **number, **bearer(token)).status == 202
    return number


def told_in(answer):
    """The result in the one event of a stream."""
    (data,) = [part[6:] for part in answer.body.split(b"\r\n") if part.startswith(b"data: {")]
    return json.loads(json.loads(data)["result"]["content"][0]["text"])


CALL = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "whoami"}}


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_a_session_is_not_there_for_another_caller(line, method):
    number = session(line, CI)
    body = CALL if method == "POST" else b""
    assert line.ask(body, method=method, **number, **bearer(ROOT)).status == 404
    assert line.ask(body, method=method, **number).status == 401
    assert told_in(line.ask(CALL, **number, **bearer(CI)))["id"] == "ci"


def test_in_a_session_each_request_has_the_scopes_of_its_own_token():
    first, second = "first-0123456789abc", "second-0123456789abc"
    both = [
        Token.of(first, Identity("ada", ("read", "admin"))),
        Token.of(second, Identity("ada", ("read",))),
    ]
    with Serving(Authentication(both)) as serving, serving.connect() as line:
        number = session(line, first)
        for token, scopes in ((second, ["read"]), (first, ["read", "admin"])):
            assert told_in(line.ask(CALL, **number, **bearer(token)))["scopes"] == scopes


# --- tokens in a configuration ----------------------------------------------------------------


class Table:
    def __init__(self, secret, id=None, scopes=(), resources=None):
        self.secret, self.id, self.scopes, self.resources = secret, id, scopes, resources or {}


def test_tokens_come_from_the_environment_and_from_a_file(tmp_path):
    file = tmp_path / "keys.env"
    file.write_text(f"CI_TOKEN={CI}\n", "utf-8")
    file.chmod(0o600)
    secrets = Secrets(None, file, {"ROOT_TOKEN": ROOT})
    tables = {
        "ci": Table("CI_TOKEN", scopes=["read"]),
        "root": Table("ROOT_TOKEN", "boss", ["admin"], {"project:42": ["write"]}),
    }
    ci, root = read_tokens(tables, secrets)
    assert ci.identity == Identity("ci", ("read",))
    assert root.identity == Identity("boss", ("admin",), {"project:42": ("write",)})
    assert not any(value in repr([ci, root]) for value in (CI, ROOT))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0123456789abcde", "16 characters"),
        ("0123456789 abcdef", "letters, digits"),
        ("0123456789abcdé", "16 characters"),
        ("0123456789abcdéf", "letters, digits"),
        ("0123456789=abcdef", "letters, digits"),
        (CI, "same value"),
        (None, "environment"),
    ],
)
def test_a_token_that_cannot_be_used_is_told_with_its_table_and_never_shown(value, words):
    secrets = Secrets({"CI_TOKEN": CI} | ({"OTHER": value} if value else {}))
    with pytest.raises(InvalidConfig, match=words) as told:
        read_tokens({"ci": Table("CI_TOKEN"), "other": Table("OTHER")}, secrets)
    assert "[serve.tokens.other]" in str(told.value)
    assert (value or "OTHER") not in str(told.value)  # It may be a token, written there by mistake.


def test_there_is_no_authentication_that_lets_nobody_in():
    with pytest.raises(InvalidConfig, match="tokens or an issuer"):
        Authentication()


# --- an issuer --------------------------------------------------------------------------------

QUICK = Limits(total_seconds=0.5, body_bytes=100_000, decoded_bytes=100_000)


def checking(issuer, *, fresh=600.0, pause=0.0, jwks_uri=None, tokens=(), limits=QUICK, **given):
    """Authentication by an issuer of this machine, which is allowed by name."""
    transport = HttpTransport(limits, [issuer.host])
    keys = IssuerKeys(
        issuer.url, jwks_uri, [issuer.host], transport=transport, fresh=fresh, pause=pause
    )
    given = {"issuer": issuer.url, "audience": AUDIENCE, "hosts": [issuer.host], **given}
    return Authentication(tokens, OAuth(keys=keys, **given))


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


@pytest.mark.parametrize("stream", ["GET", "subscriptions/listen"])
def test_a_stream_ends_with_its_token(guarded, issuer, stream):
    # It ends when the time by which clocks may differ is over, too.
    token = issuer.token(scope="use", exp=int(time.time()) - 28)
    with guarded.connect() as line:
        if stream == "GET":
            number = session(line, token)
            answer = line.ask(method="GET", **number, **bearer(token))
        else:
            asked = raw.message(stream, notifications={"toolsListChanged": True})
            answer = line.ask(asked, **raw.routed(stream), **bearer(token))
        assert answer.status == 200  # And all of it was read: the stream has ended, in order.
        assert works(line, issuer.token(scope="use"))


# --- what clients are told (RFC 9728) ---------------------------------------------------------


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


# --- where the keys are, and when they are asked for ------------------------------------------


def asked(serving, token):
    """The status that a token is answered with."""
    with serving.connect() as line:
        return line.ask(raw.message(), **raw.routed(), **bearer(token)).status


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
                token = forged(issuer, {"alg": "RS256", "kid": f"k{number}"}, OTHER)
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
            assert asked(serving, forged(issuer, {"alg": "RS256"}, OTHER)) == 401


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


# --- where it may be served -------------------------------------------------------------------

KNOWN = Authentication(TOKENS)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", ""])
def test_beyond_this_machine_the_names_of_the_server_must_be_told(host):
    with pytest.raises(InvalidConfig, match="hosts = "):
        check_place(host, 1, "/mcp", authentication=KNOWN)
    allowed = check_place(host, 1, "/mcp", hosts=["Tools.example.com"], authentication=KNOWN)
    assert allowed.hosts == {"tools.example.com"}


def test_the_address_that_is_served_and_the_one_that_clients_have_are_names_of_the_server():
    assert check_place("192.168.1.5", 1, "/mcp", authentication=KNOWN).hosts == {"192.168.1.5"}
    oauth = OAuth(issuer="https://issuer.example.com", audience=AUDIENCE)
    both = Authentication((), oauth)
    assert check_place("0.0.0.0", 1, "/mcp", authentication=both).hosts == {"tools.example.com"}


def test_without_authentication_it_is_said_what_to_do():
    with pytest.raises(InvalidConfig, match=r"\[serve\.tokens\.NAME\] or \[serve\.oauth\]"):
        check_place("0.0.0.0", 1, "/mcp", hosts=["tools.example.com"])
    with pytest.raises(InvalidConfig, match="hosts: without authentication"):
        check_place("127.0.0.1", 1, "/mcp", hosts=["tools.example.com"])


@pytest.mark.parametrize(
    "host", ["", "*", "https://tools.example.com", "tools.example.com:80", "a b", "a/b", "0x7f.1"]
)
def test_what_is_no_name_is_no_host(host):
    with pytest.raises(InvalidConfig, match=r"\[serve\] hosts"):
        check_place("127.0.0.1", 1, "/mcp", hosts=[host], authentication=KNOWN)


@pytest.mark.parametrize(
    "origin", ["", "*", "null", "app.example.com", "https://app.example.com/", "ws://a", "https://*"]
)  # fmt: skip
def test_what_is_no_origin_is_refused(origin):
    with pytest.raises(InvalidConfig, match=r"\[serve\] origins"):
        check_place("127.0.0.1", 1, "/mcp", origins=[origin])


@pytest.fixture(scope="module")
def open_wide():
    given = {"hosts": ["tools.example.com", "10.0.0.5"], "origins": ["https://app.example.com"]}
    with Serving(Authentication(TOKENS), host="0.0.0.0", **given) as serving:
        yield serving


def test_beyond_this_machine_only_the_names_that_were_told_are_served(open_wide):
    with open_wide.connect() as line:
        for host in ("tools.example.com", "TOOLS.example.com:8420", "10.0.0.5:1", "localhost"):
            answer = line.ask(raw.message(), Host=host, **raw.routed(), **bearer(CI))
            assert answer.result["tools"]
        for host in ("evil.example", "tools.example.com.evil.example", "0.0.0.0", "10.0.0.6", "",
                     "x.tools.example.com", "tools.example.com@evil.example"):  # fmt: skip
            answer = line.ask(raw.message(), Host=host, **raw.routed(), **bearer(CI))
            assert answer.status == 403
            assert "Host" in answer.error["message"]


def test_a_web_page_that_was_named_may_ask_and_no_other(open_wide):
    with open_wide.connect() as line:
        told = line.ask(
            raw.message(), Origin="https://app.example.com", **raw.routed(), **bearer(CI)
        )
        assert told.result["tools"]
        assert told.headers["access-control-allow-origin"] == "https://app.example.com"
        for origin in ("https://evil.example", "http://app.example.com", "null",
                       "https://app.example.com:444", "https://app.example.com.evil.example",
                       "https://tools.example.com"):  # fmt: skip
            answer = line.ask(raw.message(), Origin=origin, **raw.routed(), **bearer(CI))
            assert answer.status == 403
            assert "access-control-allow-origin" not in answer.headers


def test_a_browser_may_ask_first_and_can_read_what_it_needs(open_wide):
    with open_wide.connect() as line:
        first = {
            "Origin": "https://app.example.com", "Access_Control_Request_Method": "POST",
            "Access_Control_Request_Headers": "authorization,content-type,mcp-protocol-version",
        }  # fmt: skip
        answer = line.ask(method="OPTIONS", **first)
        assert answer.status == 200
        assert "authorization" in answer.headers["access-control-allow-headers"]
        assert (
            line.ask(method="OPTIONS", **{**first, "Origin": "https://evil.example"}).status == 403
        )
        refused = line.ask(raw.message(), Origin="https://app.example.com", **raw.routed())
        assert refused.status == 401
        assert "www-authenticate" in refused.headers["access-control-expose-headers"]


# --- secrecy ----------------------------------------------------------------------------------


def test_no_token_shows_in_any_log_or_answer(caplog):
    caplog.set_level(1)
    with Issuer() as issuer, Serving(checking(issuer, tokens=TOKENS)) as serving:
        logging.getLogger("uvicorn").setLevel(1)
        good, bad = issuer.token(sub="ada"), issuer.token(aud="https://other.example")
        junk = "junk-0123456789abcdef"
        said = [json.dumps(serving.whoami(token, mode)) for token in (CI, good)
                for mode in ("legacy", "2026-07-28")]  # fmt: skip
        requests = [
            raw.request(raw.message(), **raw.routed(), **bearer(token))
            for token in (CI, good, bad, junk, f"{CI}\x01", f"{good} {CI}")
        ]
        requests += [
            raw.request(b"{", **raw.routed(), **bearer(CI)),
            raw.request(raw.message(), **raw.routed(), Authorization=[f"Bearer {CI}"] * 2),
            raw.request(raw.message(), path=f"/mcp?access_token={CI}", **raw.routed()),
            raw.request(raw.message(), Host="evil.example", **bearer(CI)),
            raw.request(CALL, Mcp_Session_Id="nosuch", **bearer(CI)),
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer " + CI.encode() + b"\r\n\r\n",
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + CI.encode() + b"\0\r\n\r\n",
        ]  # fmt: skip
        for request in requests:
            with serving.connect() as line:
                line.send(request)
                said.append(repr(line.read()))
        issuer.answers = {"/keys": 500}
        said.append(str(asked(serving, issuer.token(name="second"))))
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    assert "the keys of 127.0.0.1 cannot be read" in caplog.text  # What is logged was seen.
    shown = caplog.text + "".join(repr(record.__dict__) for record in caplog.records)
    # What the SDK's own client in this process logs of what it sends is its affair.
    mine = [line for line in shown.splitlines() if "httpx" not in line and "httpcore" not in line]
    for secret in (CI, good, bad, junk, *good.split("."), bad.split(".")[1]):
        assert secret not in "\n".join(said)
        assert secret not in "\n".join(mine)
