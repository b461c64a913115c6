"""Plain HTTP at the door: what a request says, and what comes back."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import raw
from callpact.catalog import Catalog
from callpact.context import Identity
from callpact.envelope import mcp_envelope
from callpact.errors import ToolError
from callpact.runtime import Runtime
from callpact.serve import Authentication, Door, RestDoor
from callpact.serve.rest import rest_events
from callpact.telemetry import Telemetry
from callpact.tool import Contract, Tool
from raw import Served
from serving import CI, ROOT, TOKENS, Serving, bearer, challenge

PNG = b"\x89PNG\r\n\x1a\n rest"
ENVELOPE = "application/vnd.callpact.envelope+json"
SKU = {
    "type": "object",
    "properties": {
        "sku": {"type": "string"},
        "quantity": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "integer"}},
        "where": {"type": "object"},
        "gift": {"type": "boolean"},
    },
    "required": ["sku"],
    "additionalProperties": False,
}
TOTAL = {
    "type": "object",
    "properties": {"total": {"type": "number"}, "given": {"type": "object"}},
    "required": ["total"],
}


async def echo(arguments, context):
    return {"total": 2, "given": arguments}


def made(name, handler=echo, **more):
    contract = Contract(input=more.pop("input", SKU), output=more.pop("output", None))
    return Tool(id=f"shop.{name}", description=name, contract=contract, handler=handler, **more)


async def whoami(arguments, context):
    return context.identity and context.identity.id


async def picture(arguments, context):
    return PNG


async def sold_out(arguments, context):
    raise ToolError("sold_out", "No tea left", path="/sku")


async def broken(arguments, context):
    raise RuntimeError("the password is tea")


async def text_total(arguments, context):
    return {"total": "12.5", "secret": 1}


async def bad_code(arguments, context):
    return {"code": "x"}


async def relayed(arguments, context):
    return mcp_envelope(None, is_error=True, content=[])


async def page(arguments, context):
    return b"<script>fetch('/tools/shop.order', {method: 'POST'})</script>"


async def ticks(arguments, context):
    for number in range(3):
        yield {"n": number}


async def failing(arguments, context):
    yield {"n": 0}
    raise ToolError("sold_out", "No more")


ANY = {"type": "object"}
PATTERN = {"type": "object", "properties": {"code": {"type": "string", "pattern": "^[0-9]{3}$"}},
           "required": ["code"]}  # fmt: skip
TOOLS = [
    made("price", kind="query", aliases=("shop/Prices::price",)),
    made("order", output=TOTAL),
    made("whoami", whoami, input=ANY),
    made("admin", whoami, input=ANY, access=["admin"]),
    made("picture", picture, input=ANY, kind="query"),
    made("page", page, input=ANY, kind="query"),
    made("sold_out", sold_out, input=ANY),
    made("broken", broken, input=ANY),
    made("text_total", text_total, input=ANY, output=TOTAL),
    made("pattern", bad_code, input=ANY, output=PATTERN),
    made("relayed", relayed, input=ANY),
    made("ticks", ticks, input=ANY, kind="subscription"),
    made("failing", failing, input=ANY, kind="subscription"),
]


def serving(*tools, authentication=None, identity=None, **given):
    runtime = Runtime(Catalog(tools or TOOLS), observers=given.pop("observers", ()))
    door = Door(runtime, **given)
    return Serving(authentication, door, rest=RestDoor(door.calls, identity=identity))


@pytest.fixture(scope="module")
def shop():
    with serving() as served:
        yield served


@pytest.fixture
def line(shop):
    with shop.connect() as connection:
        yield connection


def post(line, name, body=None, **headers):
    body = b"{}" if body is None else body
    return line.ask(body, path=f"/tools/{name}", **headers)


def get(line, path, **headers):
    return line.ask(method="GET", path=path, Content_Type=None, **headers)


def error(answer, status):
    """The error of an answer, which has seed 004's shape."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json) == ["error"]
    return answer.json["error"]


# --- answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shop.price", "shop_price", "shop/Prices::price"])
def test_the_body_is_the_data_under_every_name_of_the_tool(line, name):
    answer = post(line, name, {"sku": "tea"})
    assert (answer.status, answer.json) == (200, {"total": 2, "given": {"sku": "tea"}})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-operation-id"] == "shop.price"
    assert int(answer.headers["x-operation-timestamp"]) > 1_700_000_000_000
    assert answer.headers["cache-control"] == "no-store"
    assert "callpact-changes" not in answer.headers


def test_the_envelope_is_sent_whole_to_who_accepts_it(line):
    answer = post(line, "shop.text_total", Accept=f"text/html, {ENVELOPE};q=0.5")
    assert answer.headers["content-type"] == ENVELOPE
    assert answer.json["data"] == {"total": 12.5}
    assert answer.json["meta"]["source"] == "local"
    assert {change["action"] for change in answer.json["changes"]} == {"converted", "stripped"}


def test_changes_are_counted_in_a_header(line):
    answer = post(line, "shop.text_total")
    assert answer.json == {"total": 12.5}
    assert answer.headers["callpact-changes"] == "2"


def test_bytes_come_as_their_content_type(line):
    answer = get(line, "/tools/shop.picture")
    assert (answer.status, answer.body) == (200, PNG)
    assert answer.headers["content-type"] == "image/png"


def test_a_page_that_a_tool_gives_cannot_act_in_the_name_of_the_server(line):
    answer = get(line, "/tools/shop.page")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"


def test_a_tool_without_a_result_answers_null(line):
    assert post(line, "shop.whoami").body == b"null"


# --- failures ---------------------------------------------------------------------------------


def test_rejected_input_names_every_issue(line):
    found = error(post(line, "shop.price", {"quantity": 0}), 400)
    assert found["code"] == "schema_validation_failed"
    assert {issue["path"] for issue in found["issues"]} == {"/sku", "/quantity"}


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b"null", b"[" * 2000, b'{"a": "\\ud800"}'])
def test_a_body_that_is_no_json_object_is_refused_and_the_next_request_works(line, body):
    assert error(post(line, "shop.price", body), 400)["code"] == "bad_request"
    assert post(line, "shop.price", {"sku": "a"}).status == 200


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"5", b"false"])
def test_arguments_that_are_no_object_break_the_contract(line, body):
    assert error(post(line, "shop.price", body), 400)["code"] == "schema_validation_failed"


def test_an_error_of_the_tool_keeps_its_code_and_path(line):
    found = error(post(line, "shop.sold_out"), 422)
    assert found == {"code": "sold_out", "message": "No tea left", "path": "/sku"}


def test_a_crash_says_nothing_of_itself(line):
    answer = post(line, "shop.broken")
    assert error(answer, 500)["code"] == "handler_error"
    assert b"tea" not in answer.body


def test_an_unknown_tool_is_not_found_and_the_nearest_is_named(line):
    found = error(post(line, "shop.prize"), 404)
    assert found["code"] == "tool_not_found"
    assert "shop.price" in found["message"]


def test_an_output_that_cannot_be_fitted_is_an_error_with_the_data_beside_it(line):
    answer = post(line, "shop.pattern")
    assert answer.status == 502
    assert answer.json["error"]["code"] == "output_validation_failed"
    assert answer.json["data"]["code"] == "x"


def test_an_error_of_another_server_is_a_bad_gateway(line):
    assert error(post(line, "shop.relayed"), 502)["code"] == "tool_error"


def test_a_call_that_is_too_slow_times_out():
    async def slow(arguments, context):
        await asyncio.Event().wait()

    with serving(made("slow", slow, input=ANY), timeout=0.1) as served, served.connect() as line:
        assert error(post(line, "shop.slow"), 504)["code"] == "timeout"


# --- requests ---------------------------------------------------------------------------------


def test_a_query_is_converted_by_the_input_schema(line):
    query = "sku=12&quantity=3&tags=1&tags=2&gift=true&where=%7B%22a%22%3A1%7D"
    given = get(line, f"/tools/shop.price?{query}").json["given"]
    assert given == {"sku": "12", "quantity": 3, "tags": [1, 2], "gift": True, "where": {"a": 1}}


def test_one_value_of_a_list_is_a_list(line):
    assert get(line, "/tools/shop.price?sku=a&tags=7").json["given"]["tags"] == [7]


@pytest.mark.parametrize("query", ["quantity=1", "sku=a&quantity=1.5", "sku=a&quantity=", "sku=a&sku=b",
                                   "sku=a&x=1", "sku=%ff", "sku=a&" + "x=1&" * 1001])  # fmt: skip
def test_a_query_that_breaks_the_contract_is_rejected(line, query):
    answer = get(line, f"/tools/shop.price?{query}")
    assert error(answer, 400)["code"] == "schema_validation_failed"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_tool_that_writes_takes_post_alone(line, method):
    line.send(raw.request(method=method, path="/tools/shop.order", Content_Length=None))
    status = int(line.file.readline().split()[1])
    assert status == 405
    lines = list(iter(lambda: line.file.readline().strip().lower(), b""))
    assert b"allow: post" in lines


def test_a_subscription_that_only_reads_can_be_read_by_a_browser():
    tool = made("ticks", ticks, input=ANY, kind="subscription", annotations={"readOnlyHint": True})
    with serving(tool) as served, served.connect() as line:
        assert get(line, "/tools/shop.ticks").body.startswith(b"id: 0\n")
        assert error(line.ask(method="PUT", path="/tools/shop.ticks"), 405)


def test_head_is_get_without_a_body(line):
    line.send(raw.request(method="HEAD", path="/tools/shop.price?sku=a", Content_Type=None))
    assert line.file.readline().split()[1] == b"200"
    headers = list(iter(lambda: line.file.readline().strip(), b""))
    assert b"x-operation-id: shop.price" in headers
    assert post(line, "shop.whoami").status == 200


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_form_of_a_web_page_is_refused(line, kind):
    answer = post(line, "shop.order", b"{}", Content_Type=kind)
    assert error(answer, 415)["code"] == "unsupported_media_type"


def test_hosts_and_origins_are_checked_as_for_mcp(line):
    for header in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        found = error(post(line, "shop.order", {"sku": "a"}, **header), 403)
        assert found["code"] == "access_denied"
        assert error(get(line, "/healthz", **header), 403)


def test_an_image_or_link_of_another_site_cannot_call_a_tool(line):
    url = "/tools/shop.price?sku=a"
    for site in ("cross-site", "same-site"):
        assert error(get(line, url, Sec_Fetch_Site=site), 403)["code"] == "access_denied"
    for site in ("none", "same-origin"):
        assert get(line, url, Sec_Fetch_Site=site).status == 200
    own = get(line, url, Sec_Fetch_Site="same-site", Origin="http://localhost:3000")
    assert own.status == 200


def test_a_body_over_the_limit_is_refused(line):
    answer = line.ask(b"", path="/tools/shop.order", Content_Length="5000000")
    assert error(answer, 413)["code"] == "request_too_large"


def test_every_call_is_recorded_with_its_door_and_client():
    events = []
    with serving(observers=[events.append]) as served, served.connect() as line:
        post(line, "shop.price", {"sku": "a"}, User_Agent="curl/8")
        post(line, "shop.price", {})
        post(line, "shop.nope")
    assert [(e.tool_id, e.via, e.client_name, e.error and e.error.code) for e in events] == [
        ("shop.price", "http", "curl/8", None),
        ("shop.price", "http", "", "schema_validation_failed"),
        ("shop.nope", "http", "", "tool_not_found"),
    ]


# --- callers ----------------------------------------------------------------------------------


def test_without_a_token_nothing_but_health_is_answered():
    with serving(authentication=Authentication(TOKENS)) as served, served.connect() as line:
        answer = post(line, "shop.whoami")
        assert error(answer, 401)["code"] == "access_denied"
        assert challenge(answer) == {}
        assert error(post(line, "shop.whoami", **bearer("wrong-0123456789abcdef")), 401)
        assert get(line, "/healthz").status == 200
        assert post(line, "shop.whoami", **bearer(CI)).json == "ci"


def test_a_tool_needs_the_scopes_of_its_caller():
    with serving(authentication=Authentication(TOKENS)) as served, served.connect() as line:
        assert error(post(line, "shop.admin", **bearer(CI)), 403)["code"] == "access_denied"
        assert post(line, "shop.admin", **bearer(ROOT)).json == "root"


def test_without_tokens_the_scopes_of_the_server_apply():
    who = Identity("http", ("admin",))
    with serving(identity=who) as served, served.connect() as line:
        assert post(line, "shop.admin").json == "http"


def test_both_doors_share_the_limit_of_running_calls():
    begun, done = threading.Event(), threading.Event()

    async def slow(arguments, context):
        begun.set()
        await asyncio.to_thread(done.wait, raw.PATIENCE)

    tool = made("slow", slow, input=ANY)
    with serving(tool, calls_per_caller=1) as served:
        with served.connect() as first, served.connect() as second:
            first.send(raw.called("shop_slow"))
            assert begun.wait(raw.PATIENCE)
            answer = post(second, "shop.slow")
            done.set()
            first.read()
        assert error(answer, 503)["code"] == "overloaded"
        assert answer.headers["retry-after"] == "10"


def test_a_client_that_leaves_ends_its_call():
    begun, ended = threading.Event(), threading.Event()

    async def slow(arguments, context):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    events = []
    with serving(made("slow", slow, input=ANY), observers=[events.append]) as served:
        with served.connect() as line:
            line.send(raw.request(b"{}", path="/tools/shop.slow"))
            assert begun.wait(raw.PATIENCE)
        assert ended.wait(raw.PATIENCE)
    assert [event.error.code for event in events] == ["aborted"]


# --- subscriptions ----------------------------------------------------------------------------


def test_a_subscription_is_a_stream_of_events(line):
    answer = post(line, "shop.ticks")
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.body.decode().split("\n\n") == [
        *(f'id: {n}\ndata: {{"n":{n}}}' for n in range(3)),
        'event: completed\ndata: {"count":3}',
        "",
    ]


def test_the_events_of_a_subscription_can_be_envelopes(line):
    first = post(line, "shop.ticks", Accept=ENVELOPE).body.decode().split("\n\n")[0]
    envelope = json.loads(first.split("\n")[1].removeprefix("data: "))
    assert envelope["data"] == {"n": 0}
    assert envelope["meta"]["operationId"] == "shop.ticks"


def test_a_subscription_that_fails_later_ends_with_an_error_event(line):
    last = post(line, "shop.failing").body.decode().split("\n\n")[1]
    assert last.startswith("event: error\ndata: ")
    assert json.loads(last.split("data: ")[1])["error"]["code"] == "sold_out"


def test_a_subscription_that_is_rejected_has_a_status_of_its_own():
    tool = made("ticks", ticks, kind="subscription")
    with serving(tool) as served, served.connect() as line:
        assert error(post(line, "shop.ticks"), 400)["code"] == "schema_validation_failed"


def test_a_subscription_ends_when_its_client_leaves():
    closed = threading.Event()

    async def forever(arguments, context):
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.set()

    tool = made("forever", forever, input=ANY, kind="subscription")
    with serving(tool) as served:
        with served.connect() as line:
            line.send(raw.request(b"{}", path="/tools/shop.forever"))
            while line.file.readline().strip() != b"data: 1":
                pass
        assert closed.wait(raw.PATIENCE)


def test_a_silent_subscription_is_kept_alive(monkeypatch):
    for name in ("BEGIN_SECONDS", "KEEP_ALIVE_SECONDS"):
        monkeypatch.setattr(rest_events, name, 0.01)

    async def silent(arguments, context):
        await asyncio.Event().wait()
        yield 1

    tool = made("silent", silent, input=ANY, kind="subscription")
    with serving(tool) as served, served.connect() as line:
        line.send(raw.request(b"{}", path="/tools/shop.silent"))
        found = [line.file.readline().strip() for _ in range(40)]
        assert found[0].split()[1] == b"200"
        assert found.count(b": keep-alive") > 1


def test_a_subscription_ends_with_the_server():
    async def forever(arguments, context):
        yield 1
        await asyncio.Event().wait()

    tool = made("forever", forever, input=ANY, kind="subscription")
    with serving(tool) as served:
        line = served.connect()
        line.send(raw.request(b"{}", path="/tools/shop.forever"))
        while line.file.readline().strip() != b"data: 1":
            pass
    with line:
        assert line.is_ended()


# --- health -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_the_server_says_that_it_is_well_and_nothing_else(line, path):
    answer = get(line, path)
    assert (answer.status, answer.json) == (200, {"status": "ok"})
    assert error(line.ask(b"{}", path=path), 405)


def test_without_the_door_its_paths_are_not_there():
    door = Door(Runtime(Catalog(TOOLS)))
    with Serving(None, door) as served, served.connect() as line:
        assert get(line, "/healthz").status == 404


def test_the_path_of_mcp_comes_first():
    door = Door(Runtime(Catalog(TOOLS)))
    rest = RestDoor(door.calls)
    with Serving(None, door, rest=rest, path="/tools/mcp") as served, served.connect() as line:
        assert line.ask(raw.message(), path="/tools/mcp", **raw.routed()).result["tools"]
        assert post(line, "shop.whoami").status == 200


# --- the description --------------------------------------------------------------------------


def test_the_document_lists_what_its_caller_may_use():
    with serving(authentication=Authentication(TOKENS)) as served, served.connect() as line:
        assert error(get(line, "/openapi.json"), 401)
        paths = get(line, "/openapi.json", **bearer(CI)).json["paths"]
        assert "/tools/shop.price" in paths
        assert "/tools/shop.admin" not in paths
        assert "/tools/shop.admin" in get(line, "/openapi.json", **bearer(ROOT)).json["paths"]


def test_the_docs_pages_show_every_tool_and_load_nothing(line):
    index = get(line, "/docs")
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    assert index.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha")
    for name in ("shop.price", "shop.ticks"):
        assert f'href="docs/{name}"'.encode() in index.body
        page = get(line, f"/docs/{name}")
        assert page.status == 200
        assert f"/tools/{name}".encode() in page.body
        assert b"<script" not in page.body
        assert b"http://" not in page.body
        assert b"https://" not in page.body


def test_the_docs_hide_what_the_caller_may_not_use(line):
    assert b"shop.admin" not in get(line, "/docs").body
    assert error(get(line, "/docs/shop.admin"), 404)
    assert error(get(line, "/docs/shop.nope"), 404)


def test_words_of_a_tool_are_text_on_its_page():
    evil = "<img src=x onerror=alert(1)>"
    props = {"type": "object", "properties": {evil: {"description": evil, "default": evil}}}
    tool = Tool(
        id="t.x", description=evil, title=evil, tags=(evil,), handler=echo,
        contract=Contract(input=props, output=props), examples=({evil: evil},),
    )  # fmt: skip
    with serving(tool) as served, served.connect() as line:
        for path in ("/docs", "/docs/t.x"):
            body = get(line, path).body
            assert b"&lt;img" in body
            assert b"<img" not in body


def test_the_description_follows_a_reload():
    runtime = Runtime(Catalog([TOOLS[0]]))
    door = Door(runtime)
    with Serving(None, door, rest=RestDoor(door.calls)) as served, served.connect() as line:
        assert set(get(line, "/openapi.json").json["paths"]) > {"/tools/shop.price"}
        runtime.catalog = Catalog([TOOLS[1]])
        paths = get(line, "/openapi.json").json["paths"]
        assert "/tools/shop.order" in paths
        assert "/tools/shop.price" not in paths


def test_a_call_belongs_to_the_trace_of_its_request():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(provider)
    door = Door(Runtime(Catalog(TOOLS), observers=[telemetry]))
    rest = RestDoor(door.calls, telemetry=[telemetry])
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    with Serving(None, door, rest=rest) as served, served.connect() as line:
        assert post(line, "shop.whoami", Traceparent=f"00-{trace}-{parent}-01").status == 200
        assert post(line, "shop.whoami").status == 200
    first, second = exporter.get_finished_spans()
    assert first.name == "execute_tool shop.whoami"
    assert (f"{first.context.trace_id:032x}", f"{first.parent.span_id:016x}") == (trace, parent)
    assert second.parent is None


# --- the command ------------------------------------------------------------------------------

BEHAVIOUR = Path(__file__).parent / "behaviour.py"


def test_the_banner_says_where_the_docs_are_and_a_call_that_is_stopped_gets_503():
    with Served(BEHAVIOUR, args=["--audit", "off"]) as served:
        served.until(f"HTTP API: http://127.0.0.1:{served.port}/docs")
        with served.connect() as line, served.connect() as other:
            line.send(raw.request({"key": "stop"}, path="/tools/behaviour.wait"))
            waited = other.ask({"key": "stop", "place": "begun"}, path="/tools/behaviour.until")
            assert waited.json is True
            served.process.send_signal(signal.SIGTERM)
            assert error(line.read(), 503)["code"] == "unavailable"
        assert served.wait() == 0


def test_a_configuration_can_turn_the_endpoints_off(tmp_path):
    config = f'[sources.b]\nref = "python:{BEHAVIOUR}"\n[serve]\nrest = false\n'
    (tmp_path / "callpact.toml").write_text(config, "utf-8")
    with Served(args=["--audit", "off"], cwd=tmp_path) as served, served.connect() as line:
        assert get(line, "/healthz").status == 404
        assert not any(text.startswith("HTTP API: ") for text in served.lines)
