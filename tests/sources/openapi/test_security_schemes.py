"""Credentials as they arrive at a server, where they may go, and where they never show."""

from __future__ import annotations

import asyncio
import base64
from urllib.parse import parse_qs

import pytest

from callpact.errors import CallError, Failed, InvalidConfig, InvalidInput, UpstreamError
from callpact.secrets import Secrets
from callpact.sources.openapi.operation_handler import operation_security
from callpact.sources.openapi.operation_settings import OperationSettings
from callpact.sources.openapi.operations import SecurityNeed, SecurityScheme
from callpact.sources.openapi.scheme_credentials import read_credentials, unused_credentials
from echo_upstream import Echo, Sent, a_parameter, an_operation

KEY = "the-secret-of-the-shop"
KEYS = {"SHOP_KEY": KEY, "SHOP_USER": "ada"}


def scheme(kind, name="shop", **more):
    return SecurityScheme(name=name, kind=kind, **more)


def needs(*schemes, scopes=()):
    return tuple(SecurityNeed(scheme=each, scopes=scopes) for each in schemes)


def settings_of(security, secrets=None, **more):
    return OperationSettings(
        credentials=read_credentials(security),
        secrets=Secrets(KEYS if secrets is None else secrets),
        **more,
    )


def arrived(operation, settings, arguments=None, answer=None):
    async def run():
        async with Echo(answer) as echo:
            await echo.call(operation, arguments or {}, settings)
            return echo.arrived

    return asyncio.run(run())


API_KEYS = [
    scheme("apiKey", place="query", key_name="api key"),
    scheme("apiKey", place="header", key_name="X-Key"),
    scheme("apiKey", place="cookie", key_name="session"),
]


@pytest.mark.parametrize("given", API_KEYS, ids=lambda each: each.place)
def test_an_api_key_goes_to_its_place(given):
    (request,) = arrived(
        an_operation(security=(needs(given),)), settings_of({"shop": "${SHOP_KEY}"})
    )
    where = {
        "query": request.query,
        "header": request.headers.get("x-key"),
        "cookie": request.headers.get("cookie"),
    }
    expected = {"query": f"api%20key={KEY}", "header": KEY, "cookie": f"session={KEY}"}
    assert where[given.place] == expected[given.place]


def test_a_key_stands_beside_the_parameters_of_the_call():
    operation = an_operation(
        a_parameter("query", "q"), a_parameter("cookie", "c"), security=(needs(API_KEYS[2]),)
    )
    (request,) = arrived(operation, settings_of({"shop": "${SHOP_KEY}"}), {"q": "x", "c": "y"})
    assert request.target == "/?q=x"
    assert request.headers["cookie"] == f"c=y; session={KEY}"


def test_the_settings_decide_over_an_argument_of_the_same_name():
    operation = an_operation(a_parameter("query", "api key"), security=(needs(API_KEYS[0]),))
    (request,) = arrived(operation, settings_of({"shop": "${SHOP_KEY}"}), {"api key": "mine"})
    assert request.query == f"api%20key={KEY}"


def test_no_key_of_an_object_takes_the_place_of_a_credential():
    operation = an_operation(a_parameter("query", "more"), security=(needs(API_KEYS[0]),))
    with pytest.raises(InvalidInput) as caught:
        arrived(operation, settings_of({"shop": "${SHOP_KEY}"}), {"more": {"api key": "mine"}})
    assert caught.value.path == "/more"


@pytest.mark.parametrize(
    "security",
    [
        {"username": "${SHOP_USER}", "password": "${SHOP_KEY}"},
        {"value": "ada:${SHOP_KEY}"},
        "ada:${SHOP_KEY}",
    ],
)
def test_basic_is_a_user_and_a_password(security):
    operation = an_operation(security=(needs(scheme("http", http_scheme="basic")),))
    (request,) = arrived(operation, settings_of({"shop": security}))
    pair = base64.b64encode(f"ada:{KEY}".encode()).decode()
    assert request.values("Authorization") == [f"Basic {pair}"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (scheme("http", http_scheme="bearer"), f"Bearer {KEY}"),
        (scheme("http", http_scheme="token"), f"Token {KEY}"),
        (scheme("oauth2"), f"Bearer {KEY}"),
        (scheme("openIdConnect"), f"Bearer {KEY}"),
    ],
)
def test_a_token_of_the_settings_is_sent_as_it_is(given, expected):
    (request,) = arrived(
        an_operation(security=(needs(given),)), settings_of({"shop": "${SHOP_KEY}"})
    )
    assert request.values("Authorization") == [expected]


def test_headers_of_the_settings_may_hold_keys_and_no_argument_replaces_them():
    settings = settings_of({}, headers={"X-Version": "2", "X-Tenant": "t-${SHOP_KEY}"})
    operation = an_operation(a_parameter("header", "x-version"), a_parameter("header", "X-tenant"))
    (request,) = arrived(operation, settings, {"x-version": "9", "X-tenant": "mine"})
    assert request.values("X-Version") == ["2"]
    assert request.values("X-Tenant") == [f"t-{KEY}"]


# --- alternatives ----------------------------------------------------------------------------

BEARER = scheme("http", "token", http_scheme="bearer")
MUTUAL = scheme("mutualTLS", "tls")


def test_the_first_alternative_with_all_credentials_is_used():
    operation = an_operation(security=(needs(MUTUAL), needs(API_KEYS[1], BEARER), needs(BEARER)))
    (request,) = arrived(operation, settings_of({"token": "${SHOP_KEY}"}))
    assert "x-key" not in request.headers
    (request,) = arrived(operation, settings_of({"token": "${SHOP_KEY}", "shop": "other-value"}))
    assert request.headers["x-key"] == "other-value"
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_security_that_is_optional_needs_no_credential():
    operation = an_operation(security=((), needs(BEARER)))
    (request,) = arrived(operation, settings_of({}))
    assert "authorization" not in request.headers
    (request,) = arrived(operation, settings_of({"token": "${SHOP_KEY}"}))
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_a_missing_credential_names_its_scheme_and_the_line_to_add():
    operation = an_operation(security=(needs(API_KEYS[1]), needs(BEARER)))
    settings = settings_of({}, table="petstore")
    with pytest.raises(Failed) as caught:
        arrived(operation, settings)
    assert caught.value.code == "server_param_missing"
    assert '`shop = "${KEY}"` in [sources.petstore.security]' in caught.value.message
    assert "the scheme token" in caught.value.message
    found = operation_security(operation, None, settings).disabled()
    assert (found.code, found.reason) == ("server_param_missing", caught.value.message)


def test_a_key_that_is_not_set_or_not_granted_is_named():
    operation = an_operation(security=(needs(BEARER),), server="https://api.shop.example")
    unset = settings_of({"token": "${OTHER}"})
    assert (
        "The key OTHER is not set" in operation_security(operation, None, unset).disabled().reason
    )
    secrets = Secrets({}, None, {"OTHER": KEY}, keys=[])
    ungranted = OperationSettings(
        credentials=read_credentials({"token": "${OTHER}"}), secrets=secrets
    )
    reason = operation_security(operation, None, ungranted).disabled().reason
    assert 'keys = ["OTHER"]' in reason
    granted = settings_of({"token": "${SHOP_KEY}"})
    found = operation_security(operation, None, granted)
    assert found.disabled() is None
    assert found.destinations() == {"SHOP_KEY": "api.shop.example"}


def test_a_key_goes_only_to_the_hosts_that_it_is_bound_to():
    operation = an_operation(security=(needs(BEARER),))
    settings = settings_of({"token": "${SHOP_KEY}"}, keys=("SHOP_KEY@api.shop.example",))
    with pytest.raises(Failed) as caught:
        arrived(operation, settings)
    assert caught.value.code in {"address_not_allowed", "server_param_missing"}
    assert "api.shop.example" in caught.value.message


def test_a_key_without_a_host_of_its_own_needs_one_server():
    operation = an_operation(security=(needs(BEARER),), server="https://api.shop.example")
    settings = settings_of(
        {"token": "${SHOP_KEY}"}, servers=("https://api.shop.example", "https://evil.example")
    )
    reason = operation_security(operation, None, settings).disabled().reason
    assert "different hosts (api.shop.example, evil.example)" in reason


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"shop": 7}, "security.shop: expected a text"),
        ({"shop": {"valeu": "x"}}, "'valeu' is not a setting"),
        ({"shop": {"password": "x"}}, "'password' needs 'username'"),
        ({"shop": {"client_id": "x", "scopes": "a"}}, "scopes: expected a list"),
        ({"shop": {"client_id": "x", "client_auth": "jwt"}}, "client_auth"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_without_their_values(given, words):
    with pytest.raises(InvalidConfig) as caught:
        read_credentials(given)
    assert words in str(caught.value)


def test_a_credential_that_no_header_can_carry_is_not_the_callers_mistake():
    operation = an_operation(security=(needs(BEARER),))
    with pytest.raises(Failed) as caught:
        arrived(operation, settings_of({"token": "${SHOP_KEY}"}, {"SHOP_KEY": f"{KEY}\r\nX: y"}))
    assert caught.value.code == "server_param_missing"
    assert KEY not in str(caught.value)


# --- tokens ----------------------------------------------------------------------------------

OAUTH = scheme("oauth2", token_url="https://replaced.example/token")


class Issuer:
    """Issues numbered tokens at /token, and takes those in `valid` everywhere else."""

    def __init__(self, *, seconds=3600, valid=lambda number: True, status=200, body=None):
        self.seconds, self.valid, self.status, self.body = seconds, valid, status, body
        self.issued = 0

    def __call__(self, request):
        if request.path == "/.well-known/openid-configuration":
            root = f"http://{request.headers['host']}"
            return Sent({"token_endpoint": f"{root}/token"})
        if request.path == "/token":
            self.issued += 1
            token = {"access_token": f"token-number-{self.issued}", "token_type": "Bearer"}
            return Sent(self.body or {**token, "expires_in": self.seconds}, status=self.status)
        number = int(request.headers["authorization"].rpartition("-")[2])
        return Sent({"ok": True}) if self.valid(number) else Sent({"no": 1}, status=401)


def with_issuer(issuer, run, oauth=None, credential=None, **more):
    """Run with a server that is issuer and API in one."""

    async def go():
        async with Echo(issuer) as echo:
            given = oauth or scheme("oauth2", token_url=f"{echo.root}/token")
            if given.kind == "openIdConnect":
                url = f"{echo.root}/.well-known/openid-configuration"
                given = scheme("openIdConnect", discovery_url=url)
            client = {"client_id": "me", "client_secret": "${SHOP_KEY}", **(credential or {})}
            settings = settings_of({"shop": client}, **more)
            operation = an_operation(security=(needs(given, scopes=("read", "write")),))
            await run(echo, operation, settings)
            return echo.arrived

    return asyncio.run(go())


async def once(echo, operation, settings):
    await echo.call(operation, {}, settings)


async def five_times(echo, operation, settings):
    await asyncio.gather(*(echo.call(operation, {}, settings) for _ in range(5)))


@pytest.mark.parametrize("given", [None, scheme("openIdConnect")], ids=["oauth2", "openid"])
def test_a_client_gets_a_token_by_its_credentials(given):
    requests = with_issuer(Issuer(), once, given)
    token, call = requests[-2:]
    assert parse_qs(token.body.decode()) == {
        "grant_type": ["client_credentials"],
        "scope": ["read write"],
    }
    pair = base64.b64encode(f"me:{KEY}".encode()).decode()
    assert token.headers["authorization"] == f"Basic {pair}"
    assert call.headers["authorization"] == "Bearer token-number-1"


def test_a_client_may_send_its_secret_in_the_body_with_scopes_of_its_own():
    more = {"client_auth": "post", "scopes": ["all"], "audience": "shop"}
    token, _ = with_issuer(Issuer(), once, credential=more)
    assert "authorization" not in token.headers
    assert parse_qs(token.body.decode()) == {
        "grant_type": ["client_credentials"],
        "scope": ["all"],
        "audience": ["shop"],
        "client_id": ["me"],
        "client_secret": [KEY],
    }


def test_one_token_serves_many_calls():
    issuer = Issuer()
    assert len(with_issuer(issuer, five_times)) == 6
    assert issuer.issued == 1


def test_a_token_that_is_over_is_fetched_again():
    async def twice(echo, operation, settings):
        await echo.call(operation, {}, settings)
        await echo.call(operation, {}, settings)

    issuer = Issuer(seconds=0)
    with_issuer(issuer, twice)
    assert issuer.issued == 2


def test_a_refused_token_is_replaced_once():
    issuer = Issuer(valid=lambda number: number > 1)
    requests = with_issuer(issuer, once)
    assert [each.path for each in requests] == ["/token", "/", "/token", "/"]

    issuer = Issuer(valid=lambda number: False)
    with pytest.raises(UpstreamError) as caught:
        with_issuer(issuer, once)
    assert caught.value.details["statusCode"] == 401
    assert issuer.issued == 2


@pytest.mark.parametrize(
    ("issuer", "words"),
    [
        (Issuer(status=401, body={"error": "invalid_client"}), "status 401: invalid_client"),
        (Issuer(status=400, body={"error": KEY}), "status 400"),
        (Issuer(body={"token_type": "Bearer"}), "no access_token"),
        (Issuer(body={"access_token": "x y", "token_type": "Bearer"}), "no access_token"),
        (Issuer(body={"access_token": "x", "token_type": "mac"}), "no bearer token"),
    ],
)
def test_no_token_is_a_clear_error_without_secrets(issuer, words):
    with pytest.raises(UpstreamError) as caught:
        with_issuer(issuer, once)
    assert words in caught.value.message
    assert KEY not in repr((caught.value, caught.value.details))


def test_a_document_cannot_send_a_client_secret_to_another_host():
    async def refused(echo, operation, settings):
        with pytest.raises(Failed) as caught:
            await echo.call(operation, {}, settings)
        assert caught.value.code == "address_not_allowed"
        assert 'keys = ["SHOP_KEY@replaced.example"]' in caught.value.message

    assert with_issuer(Issuer(), refused, OAUTH) == []


def test_the_token_and_the_secret_behind_it_are_masked_in_answers():
    issuer = Issuer()

    def answer(request):
        is_call = request.path == "/"
        return Sent([request.headers["authorization"], KEY]) if is_call else issuer(request)

    async def masked(echo, operation, settings):
        assert (await echo.call(operation, {}, settings)).data == ["Bearer ***", "***"]

    with_issuer(answer, masked)


def test_a_token_endpoint_may_be_relative_to_the_server():
    requests = with_issuer(Issuer(), once, scheme("oauth2", token_url="/token"))
    assert [each.path for each in requests] == ["/token", "/"]


def test_a_credential_of_an_unknown_scheme_is_reported_with_the_nearest_name():
    given = read_credentials({"shop_key": "x", "other": "y"})
    assert list(unused_credentials(given, ["shop-key", "token"])) == [
        "security.shop_key: no operation names this scheme; did you mean 'shop-key'?",
        "security.other: no operation names this scheme; it names shop-key, token",
    ]
    assert list(unused_credentials(given, ["shop_key", "other"])) == []


def test_the_settings_may_name_the_token_endpoint():
    async def at_the_endpoint(echo, operation, _):
        client = {
            "client_id": "me",
            "client_secret": "${SHOP_KEY}",
            "token_url": f"{echo.root}/token",
        }
        await echo.call(operation, {}, settings_of({"shop": client}))

    requests = with_issuer(Issuer(), at_the_endpoint, OAUTH)
    assert [each.path for each in requests] == ["/token", "/"]


def test_a_scheme_without_a_token_endpoint_says_what_to_write():
    with pytest.raises(Failed) as caught:
        with_issuer(Issuer(), once, scheme("oauth2"))
    assert "write token_url in [sources.NAME.security.shop]" in caught.value.message


# --- never shown, never elsewhere ------------------------------------------------------------


def test_credentials_are_masked_in_answers_and_errors():
    operation = an_operation(security=(needs(BEARER),))
    settings = settings_of({"token": "${SHOP_KEY}"})

    async def run(status):
        echoed = Sent({"you": f"sent {KEY}"}, status=status, headers={"X-Back": KEY})
        async with Echo(lambda _: echoed) as echo:
            try:
                return (await echo.call(operation, {}, settings)).to_wire()
            except CallError as error:
                return (str(error), error.details)

    assert asyncio.run(run(200))["data"] == {"you": "sent ***"}
    assert KEY not in repr(asyncio.run(run(200)))
    refused = asyncio.run(run(400))
    assert KEY not in repr(refused)
    assert refused[1]["body"] == '{"you": "sent ***"}'


@pytest.mark.parametrize("given", [*API_KEYS[1:], BEARER], ids=["header", "cookie", "bearer"])
def test_credentials_do_not_follow_a_redirect_to_another_origin(given):
    async def run():
        async with Echo() as other, Echo() as echo:
            echo.answer = lambda _: Sent(status=302, headers={"Location": f"{other.root}/there"})
            settings = settings_of({"shop": "${SHOP_KEY}", "token": "${SHOP_KEY}"})
            await echo.call(an_operation(security=(needs(given),)), {}, settings)
            return other.last

    request = asyncio.run(run())
    assert request.path == "/there"
    assert KEY not in repr(request)


def test_a_redirect_that_repeats_a_key_of_the_query_elsewhere_is_refused():
    async def run():
        async with Echo() as other, Echo() as echo:
            echo.answer = lambda request: Sent(
                status=307, headers={"Location": f"{other.root}{request.target}"}
            )
            settings = settings_of({"shop": "${SHOP_KEY}"})
            with pytest.raises(UpstreamError) as caught:
                await echo.call(an_operation(security=(needs(API_KEYS[0]),)), {}, settings)
            return caught.value, other.arrived

    error, requests = asyncio.run(run())
    assert (error.details["reason"], requests) == ("redirect", [])
    assert KEY not in repr((error, error.details))


def test_settings_show_no_secret():
    settings = settings_of({"token": KEY}, keys=("SHOP_KEY",))
    assert KEY not in repr(settings)
