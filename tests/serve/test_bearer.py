"""Who may call over HTTP: tokens that are known, where it may be served, and secrecy."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

import raw
from callpact import Access, Catalog, Contract, Runtime, Tool
from callpact.context import Identity
from callpact.errors import InvalidConfig
from callpact.secrets import Secrets
from callpact.serve import Authentication, BearerToken, Door, identify
from callpact.serve.auth.bearer import read_tokens
from callpact.serve.auth.oauth import OAuth
from callpact.serve.http.guard import HttpLimits
from callpact.serve.http.http_server import check_place
from issuer import AUDIENCE, Issuer
from serving import (
    CALL,
    CI,
    ROOT,
    TOKENS,
    Serving,
    asked,
    bearer,
    challenge,
    checking,
    session,
    text_of,
    told_in,
    works,
)

ERAS = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
MESSAGES = pytest.mark.parametrize(
    ("message", "headers"),
    [(raw.message(), raw.routed()), (raw.initialize(), {})],
    ids=["2026-07-28", "older"],
)


@pytest.fixture(scope="module")
def tokens():
    with Serving(Authentication(TOKENS)) as serving:
        yield serving


@pytest.fixture
def line(tokens):
    with tokens.connect() as connection:
        yield connection


# --- tokens that are known -----------------------------------------------------------------------


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


# --- sessions of the older era -------------------------------------------------------------------


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
        BearerToken.of(first, Identity("ada", ("read", "admin"))),
        BearerToken.of(second, Identity("ada", ("read",))),
    ]
    with Serving(Authentication(both)) as serving, serving.connect() as line:
        number = session(line, first)
        for token, scopes in ((second, ["read"]), (first, ["read", "admin"])):
            assert told_in(line.ask(CALL, **number, **bearer(token)))["scopes"] == scopes


# --- tools, by what their callers hold --------------------------------------------------------


async def who(arguments, context):
    return {"id": context.identity.id, "scopes": list(context.identity.scopes)}


async def confirm(arguments, context):
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
    answer = await context.client.elicit("Sure?", schema)
    return {"id": context.identity.id, "action": answer.action}


def made(name, handler=who, **more):
    return Tool(id=f"t.{name}", description=name, contract=Contract(), handler=handler, **more)


CATALOG = Catalog([
    made("open"), made("confirm", confirm), made("read", access=["read"]),
    made("admin", access=["admin"]),
    made("write", access=Access(resource_type="project", resource_action="write")),
])  # fmt: skip


@pytest.fixture(scope="module", params=[200, 0], ids=["listed", "searched"])
def door(request):
    front = Door(Runtime(CATALOG), identity=identify, list_up_to=request.param)
    with Serving(Authentication(TOKENS), door=front) as serving:
        yield serving


def calls(serving, token, mode, *names):
    """What a caller sees of the tools, and what calling each gives; also through `call_tool`."""

    async def go():
        async with serving.client(token, mode) as client:
            listed = [tool.name for tool in (await client.list_tools()).tools]
            if "call_tool" in listed:
                found = await client.call_tool("search_tools", {"query": "", "limit": 50})
                listed = [tool["name"].replace(".", "_") for tool in text_of(found)["tools"]]
                asked = [("call_tool", {"name": f"t.{name}"}) for name in names]
            else:
                asked = [(f"t_{name}", {}) for name in names]
            return listed, [await client.call_tool(*one) for one in asked]

    return asyncio.run(asyncio.wait_for(go(), raw.PATIENCE))


@ERAS
def test_each_caller_sees_and_calls_what_its_token_lets_it(door, mode):
    names = ("open", "read", "admin", "write")
    for _ in range(2):  # What was made ready for one caller is not shown to the next.
        listed, results = calls(door, CI, mode, *names)
        assert sorted(listed) == ["t_confirm", "t_open", "t_read"]
        assert [result.is_error for result in results] == [False, False, True, True]
        assert text_of(results[0])["id"] == text_of(results[1])["id"] == "ci"
        assert {text_of(refused)["error"]["code"] for refused in results[2:]} == {"access_denied"}
        listed, results = calls(door, ROOT, mode, *names)
        assert sorted(listed) == ["t_admin", "t_confirm", "t_open", "t_read", "t_write"]
        assert [text_of(result)["id"] for result in results] == ["root"] * 4


def test_a_question_to_one_caller_cannot_be_answered_by_another(door):
    able = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}

    def ask(line, token, **more):
        body = raw.message("tools/call", name="t_confirm", arguments={}, **more)
        body["params"]["_meta"] |= able
        return line.ask(body, **raw.routed("tools/call", "t_confirm"), **bearer(token))

    with door.connect() as line:
        asked = ask(line, CI).result
        (key,) = asked["inputRequests"]
        answer = {
            "requestState": asked["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"sure": True}}},
        }
        assert "error" in ask(line, ROOT, **answer).json
        told = ask(line, CI, **answer).result
        assert json.loads(told["content"][0]["text"]) == {"id": "ci", "action": "accept"}


# --- tokens in a configuration -------------------------------------------------------------------


class Table:
    def __init__(self, secret, id=None, scopes=(), resources=None):
        self.secret, self.id, self.scopes, self.resources = secret, id, scopes, resources or {}


def test_tokens_come_from_the_environment_and_from_a_file(tmp_path):
    file = tmp_path / "keys.env"
    file.write_text(f"CI_TOKEN={CI}\n", "utf-8")
    file.chmod(0o600)
    secrets = Secrets(None, file, {"ROOT_TOKEN": ROOT}, keys=["ROOT_TOKEN"])
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
    assert value is None or value not in str(told.value)


@pytest.mark.parametrize(
    ("name", "is_named"),
    [
        ("OTHER", True),
        ("CI_TOKEN_2", True),
        ("MY_COMPANY_DEPLOYMENT_SERVER_TOKEN", True),
        # Each may be a token, written there by mistake.
        ("sk_live_4eC39HqLyjWDarjt", False),
        ("JBSWY3DPEHPK3PXPJBSWY3DP", False),
        ("0123456789ABCDEF", False),
        ("d3adb33f", False),
    ],
)
def test_a_missing_secret_is_named_and_a_token_in_its_place_is_not(name, is_named):
    with pytest.raises(InvalidConfig, match=r"\[serve.tokens.other\] secret: no secret") as told:
        read_tokens({"other": Table(name)}, Secrets({"CI_TOKEN": CI}))
    assert (f"'{name}'" in str(told.value)) == (name in str(told.value)) == is_named


def test_there_is_no_authentication_that_lets_nobody_in():
    with pytest.raises(InvalidConfig, match="tokens or an issuer"):
        Authentication()


# --- where it may be served ----------------------------------------------------------------------

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
    with pytest.raises(InvalidConfig, match="as in a container's own network: --trust-network"):
        check_place("0.0.0.0", 1, "/mcp")
    with pytest.raises(
        InvalidConfig, match=r"hosts: without authentication.* trust_network = true"
    ):
        check_place("127.0.0.1", 1, "/mcp", hosts=["tools.example.com"])


def test_in_a_trusted_network_only_the_names_of_the_server_are_needed():
    for host in ("0.0.0.0", "127.0.0.1"):
        allowed = check_place(host, 1, "/mcp", hosts=["tools"], trust_network=True)
        assert allowed.hosts == {"tools"}
    assert check_place("10.0.0.5", 1, "/mcp", trust_network=True).hosts == {"10.0.0.5"}
    with pytest.raises(InvalidConfig, match="hosts = "):
        check_place("0.0.0.0", 1, "/mcp", trust_network=True)


def test_in_a_trusted_network_callers_with_tokens_are_still_asked_for_them():
    given = {"host": "0.0.0.0", "hosts": ["tools"], "trust_network": True}
    with Serving(Authentication(TOKENS), **given) as serving, serving.connect() as line:
        assert line.ask(raw.message(), **raw.routed()).status == 401


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
                     "x.tools.example.com"):  # fmt: skip
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


# --- secrecy -------------------------------------------------------------------------------------


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


# --- shares ---------------------------------------------------------------------------------------


def test_sessions_are_shared_by_token_whatever_the_address():
    limits = HttpLimits(sessions=4)
    with Serving(Authentication(TOKENS), limits=limits) as serving, serving.connect() as line:
        held = [session(line, CI) for _ in range(6)]
        mine = [session(line, ROOT) for _ in range(2)]
        for _ in range(3):
            held.append(session(line, CI))
        statuses = [line.ask(CALL, **one, **bearer(ROOT)).status for one in mine]
        assert statuses == [200, 200]
        statuses = [line.ask(CALL, **one, **bearer(CI)).status for one in held]
        assert statuses == [404] * 7 + [200] * 2
