"""Requests: every value in its place and encoded, nothing escapes, secrets last and never shown."""

from __future__ import annotations

import json
import logging
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

import calls
from callpact import CallError
from callpact.errors import Failed, Timeout, UpstreamError
from callpact.sources.flowmcp.http.request import as_text

Shop, answered, main, parameter, shown, tool, KEY = (
    calls.Shop,
    calls.answered,
    calls.main,
    calls.parameter,
    calls.shown,
    calls.tool,
    calls.KEY,
)
AWKWARD = "a/b?c=d&e#f g+h%20é;:@\"'<>\\^`{|}~!*()$,.😀\n\t"


def inserted(key="id", primitive="string()", *options, **fields):
    return parameter(key, primitive, *options, location="insert", **fields)


@pytest.fixture
def shop(tmp_path):
    """One tool with these parameters, loaded and ready to be called."""

    def make(*parameters, **fields):
        own = {key: fields.pop(key) for key in ("path", "method", "toolHeaders") if key in fields}
        if "toolHeaders" in own:
            own["headers"] = own.pop("toolHeaders")
        given = {
            key: fields.pop(key) for key in ("answer", "secrets", "transport") if key in fields
        }
        return Shop(tmp_path, main({"getIt": tool(*parameters, **own)}, **fields), **given)

    return make


# --- the path -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/users/{{id}}/posts", "/users/:id/posts", "/users/{id}/posts", "/users/{{ id }}/posts"],
)
def test_an_insert_stands_where_its_key_stands(shop, path):
    assert shop(inserted(), path=path).path({"id": "7"}) == "/users/7/posts"


def test_inserts_are_matched_by_key_not_by_order(shop):
    made = shop(inserted("b"), inserted("a"), path="/{{a}}/x/{{b}}")
    assert made.path({"a": "1", "b": "2"}) == "/1/x/2"


def test_one_insert_may_stand_twice(shop):
    assert shop(inserted(), path="/{{id}}/copy/{{id}}").path({"id": "7"}) == "/7/copy/7"


def test_a_name_that_begins_like_another_is_another(shop):
    made = shop(
        inserted("id"), inserted("idType"), inserted("i"), path="/:idType/:id/:i/:ids/{{id}}Type"
    )
    assert made.path({"id": "1", "idType": "t", "i": "x"}) == "/t/1/x/:ids/1Type"


@pytest.mark.parametrize("key", ["id", "ID", "user_id", "userId2", "_x"])
def test_a_colon_begins_a_whole_word(shop, key):
    assert shop(inserted(key), path=f"/a/:{key}.json").path({key: "7"}) == "/a/7.json"


def test_a_port_and_a_scheme_are_no_inserts(shop):
    made = shop(inserted("https"), root="https://api.example.com:8443/:https", path="/x")
    assert made.sent({"https": "7"}).url == "https://api.example.com:8443/7/x"


def test_an_insert_is_percent_encoded_whole(shop):
    made = shop(inserted(), path="/users/{{id}}/posts")
    sent = made.path({"id": AWKWARD})
    before, text, after = sent.split("/")[1:]
    assert (before, unquote(text), after) == ("users", AWKWARD, "posts")
    assert not set(text) & set('/?# <>\\^`{|}"é\n')


@pytest.mark.parametrize(
    "value",
    ["USD,EUR", "a+b", "a;v=1", "coingecko:ethereum", "@handle", "k=v", "Things(15955)", "a!$&'()*+,;=:@~._-z"],
)  # fmt: skip
def test_what_a_segment_may_hold_by_rfc_3986_is_sent_as_it_is(shop, value):
    assert shop(inserted(), path="/x/{{id}}").path({"id": value}) == f"/x/{value}"


@drawn(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_insert_is_one_segment_of_what_was_given_or_refused(shop, value):
    made = shop(inserted(), path="/x/{{id}}/z")
    try:
        sent = made.path({"id": value})
    except CallError:
        assert made.rejected({"id": value}) == {("path", "/id")}
        return
    first, text, last = sent.removeprefix("/").split("/")
    assert (first, unquote(text), last) == ("x", value, "z")


@pytest.mark.parametrize(
    "value",
    ["..", ".", "../../admin", "..%2f", "%2e%2e", "%2E%2E/", "a/../b", "a/..", "..\\", "a\\..\\b", "..;", "..;a=b/c", ".;", "%252e%252e", "%2%65%2%65", "..%00", "..?x", "..#", "./a", ".%2e", "%2e.", "a%2f..", "a%5c..%5cb", "a%255c..", "..%3b"],
)  # fmt: skip
def test_a_value_that_is_or_holds_a_step_however_encoded_is_refused(shop, value):
    made = shop(inserted(), path="/users/{{id}}/posts")
    assert made.rejected({"id": value}) == {("path", "/id")}


@pytest.mark.parametrize(
    "value",
    ["/", "//", "?x=1", "#x", "\x00", ". .", "...", "a..", "..a", "a.;b", "v1..v2", "a/.b", "..,.."],
)  # fmt: skip
def test_no_value_leaves_its_segment(shop, value):
    made = shop(inserted(), path="/users/{{id}}/posts")
    parts = urlsplit(made.sent({"id": value}).url)
    assert (parts.query, parts.fragment) == ("", "")
    segments = parts.path.split("/")
    assert [segments[1], segments[3], len(segments)] == ["users", "posts", 4]
    assert unquote(segments[2]) == value
    assert segments[2].lower() not in {"..", ".", "%2e%2e", "%2e", ".%2e", "%2e."}


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/a/{{x}}{{y}}/b", {"x": ".", "y": "."}),
        ("/a/.{{x}}/b", {"x": "."}),
        ("/a/{{x}}./b", {"x": "."}),
        ("/a/{{x}}", {"x": ".."}),
        ("/a/%2e{{x}}/b", {"x": "."}),
        ("/a/{{x}}?q=1", {"x": ".."}),
        ("/a/{{x}}{{y}}", {"x": "", "y": ".."}),
        ("/a/.{{x}}/b", {"x": ";v=1"}),
        ("/a/.{{x}}.", {"x": ""}),
        ("/a/{{x}};v=1", {"x": ".."}),
        ("/a/%2{{x}}", {"x": "e"}),
        ("/a/{{x}}{{y}}/b", {"x": "", "y": ""}),
    ],
)
def test_values_do_not_make_a_step_with_their_neighbours(shop, path, given):
    made = shop(*(inserted(key) for key in given), path=path)
    ((code, place),) = made.rejected(given)
    assert code == "path"
    assert place.strip("/") in given


@pytest.mark.parametrize(
    ("path", "given", "sent"),
    [
        ("/a/{{x}}{{y}}/b", {"x": "..", "y": "z"}, "/a/..z/b"),
        ("/a/v{{x}}/b", {"x": ".."}, "/a/v../b"),
        ("/a/.{{x}}/b", {"x": "well-known"}, "/a/.well-known/b"),
        ("/a/{{x}}.json", {"x": "."}, "/a/..json"),
        ("/a?p=/{{x}}", {"x": ".."}, "/a?p=/.."),
        ("/./{{x}}", {"x": "b"}, "/./b"),
    ],
)
def test_dots_that_are_no_step_are_sent(shop, path, given, sent):
    assert shop(*(inserted(key) for key in given), path=path).path(given) == sent


@pytest.mark.parametrize("value", ["", []])
def test_an_empty_part_of_the_path_is_refused(shop, value):
    made = shop(inserted("id", "array()" if value == [] else "string()"), path="/users/{{id}}")
    assert made.rejected({"id": value}) == {("path", "/id")}


def test_the_place_of_a_refused_insert_is_a_json_pointer(shop):
    made = shop(inserted("a/b"), path="/users/{{a/b}}")
    assert made.rejected({"a/b": ".."}) == {("path", "/a~1b")}


def test_an_empty_insert_beside_other_text_is_sent(shop):
    assert shop(inserted(), path="/v{{id}}/x").path({"id": ""}) == "/v/x"


@pytest.mark.parametrize(
    ("path", "given", "sent"),
    [
        ("/a/{{x}}/b", {}, "/a/b"),
        ("/a/{{x}}", {}, "/a"),
        ("/{{x}}/{{y}}", {}, ""),
        ("/{{x}}/{{y}}", {"y": "2"}, "/2"),
        ("/a/{{x}}?q=1", {}, "/a?q=1"),
        ("/a-{{x}}/b", {}, "/a-/b"),
        ("/a?x={{x}}", {}, "/a?x="),
    ],
)
def test_an_optional_insert_that_is_left_out_takes_its_slash_along(shop, path, given, sent):
    made = shop(*(inserted(key, "string()", "optional()") for key in "xy"), path=path)
    assert made.path(given) == sent


def test_a_default_is_inserted_when_nothing_is_given(shop):
    assert shop(inserted("id", "number()", "default(7)"), path="/a/{{id}}").path() == "/a/7"


def test_a_fixed_value_is_inserted_encoded(shop):
    assert shop(inserted(value="a b/c"), path="/x/{{id}}").path() == "/x/a%20b%2Fc"


def test_an_insert_without_a_place_is_not_sent(shop):
    assert shop(inserted("id", "string()", "optional()"), path="/x").path({"id": "7"}) == "/x"


def test_a_list_is_joined_by_commas_and_each_item_encoded(shop):
    made = shop(inserted("id", "array()"), path="/x/{{id}}")
    assert made.path({"id": ["a", "b/c", "d,e", 1, True]}) == "/x/a,b%2Fc,d%2Ce,1,true"


def test_an_insert_may_stand_in_the_query_of_the_path(shop):
    made = shop(inserted(), path="/x?id={{id}}&z=1")
    assert made.path({"id": "a&b=c"}) == "/x?id=a%26b%3Dc&z=1"


@pytest.mark.parametrize("root", ["https://{host}.example.com/{host}", "https://h:host/:host"])
def test_an_insert_never_reaches_the_host(shop, root):
    made = shop(inserted("host"), root=root, path="/x")
    parts = urlsplit(made.sent({"host": "evil.org/"}).url)
    assert parts.path == "/evil.org%2F/x"
    assert "evil.org" not in parts.netloc


def test_the_caller_cannot_be_asked_for_the_host(shop):
    made = shop(inserted("host"), root="https://{{host}}.example.com", path="/x/{{host}}")
    assert [(found.code, found.path) for found in made.errors] == [("VAL089", "/root")]


# --- the query ------------------------------------------------------------------------------


def test_the_query_keeps_the_order_of_the_declaration(shop):
    made = shop(parameter("z"), parameter("m", value="1"), parameter("a"), parameter("k"))
    assert made.path({"a": "2", "k": "3", "z": "0"}) == "/it?z=0&m=1&a=2&k=3"


def test_repeated_keys_are_all_sent_in_order(shop):
    made = shop(
        parameter("f", value="one"), parameter("x"), parameter("f", value="two"), parameter("x")
    )
    assert made.path({"x": "7"}) == "/it?f=one&x=7&f=two&x=7"


def test_keys_and_values_are_form_encoded(shop):
    made = shop(parameter("a[b c]"))
    query = urlsplit(made.sent({"a[b c]": AWKWARD}).url).query
    assert parse_qsl(query, keep_blank_values=True) == [("a[b c]", AWKWARD)]
    assert "+" in query
    assert not set(query) & set(" &#?/;@:éé\n~'()!")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (7.0, "7"),
        (-0.0, "0"),
        (1.5, "1.5"),
        (1e21, "1e+21"),
        (10**21, "1e+21"),
        (10**20, "100000000000000000000"),
        (2**53 + 1, "9007199254740992"),
        (1e-7, "1e-7"),
        (0.000001, "0.000001"),
    ],
)
def test_numbers_are_written_as_javascript_writes_them(shop, value, text):
    ((_, sent),) = parse_qsl(
        urlsplit(shop(parameter("n", "number()")).sent({"n": value}).url).query
    )
    assert sent == text


@pytest.mark.parametrize(("value", "text"), [(True, "true"), (False, "false")])
def test_truths_are_words(shop, value, text):
    assert shop(parameter("b", "boolean()")).path({"b": value}) == f"/it?b={text}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b,c"], "a,b,c"),
        ([1, 2.0, True, None], "1,2,true,"),
        ([["a", "b"], "c"], "a,b,c"),
    ],
)
def test_lists_are_joined_by_commas(shop, value, text):
    made = shop(parameter("l", "array()"))
    assert parse_qsl(urlsplit(made.sent({"l": value}).url).query, keep_blank_values=True) == [
        ("l", text)
    ]


def test_an_object_in_the_query_is_json(shop):
    made = shop(parameter("o", "object()"))
    ((_, text),) = parse_qsl(urlsplit(made.sent({"o": {"b": [1.0, "é"], "a": 10**30}}).url).query)
    assert text == '{"b":[1,"é"],"a":1e+30}'


@pytest.mark.parametrize(
    ("path", "sent"),
    [("/x?a=1", "/x?a=1&q=7"), ("/x?", "/x?q=7"), ("/x?a=1&", "/x?a=1&q=7"), ("/x", "/x?q=7")],
)
def test_a_query_in_the_path_is_gone_on_with(shop, path, sent):
    assert shop(parameter("q"), path=path).path({"q": "7"}) == sent


def test_a_number_that_is_too_large_for_javascript_is_refused(shop):
    made = shop(parameter("n", "number()", "optional()"), parameter("o", "object()", "optional()"))
    for given in ({"n": 10**400}, {"o": {"a": [10**400]}}):
        assert {code for code, _ in made.rejected(given)} == {"maximum"}


# --- the body -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_body_is_json_with_the_types_of_the_arguments(shop, method):
    made = shop(
        parameter("s", location="body"),
        parameter("n", "number()", location="body"),
        parameter("b", "boolean()", location="body"),
        parameter("l", "array()", location="body"),
        parameter("o", "object()", location="body"),
        parameter("fixed", value="7", location="body"),
        parameter("left", "string()", "optional()", location="body"),
        parameter("by", "number()", "default(3)", location="body"),
        parameter("around", "number()", value="#{{USER_PARAM}}", location="body"),
        method=method,
    )
    given = {"s": "7", "n": 7, "b": False, "l": [1, "a"], "o": {"x": None}, "around": 5}
    sent = made.sent(given)
    assert sent.method == method
    assert sent.headers == {"Content-Type": "application/json"}
    assert list(json.loads(sent.body).items()) == [
        ("s", "7"),
        ("n", 7),
        ("b", False),
        ("l", [1, "a"]),
        ("o", {"x": None}),
        ("fixed", "7"),
        ("by", 3),
        ("around", "#5"),
    ]


def test_query_path_and_body_go_together(shop):
    made = shop(
        inserted("id"), parameter("q"), parameter("b", location="body"), method="PUT", path="/x/:id"
    )
    sent = made.sent({"id": "1", "q": "2", "b": "3"})
    assert (sent.method, sent.url, json.loads(sent.body)) == (
        "PUT",
        "https://api.example.com/x/1?q=2",
        {"b": "3"},
    )


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_body_without_parameters_is_an_empty_object(shop, method):
    assert shop(method=method).sent().body == b"{}"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_other_methods_have_no_body_and_no_content_type(shop, method):
    sent = shop(parameter("q"), method=method).sent({"q": "1"})
    assert (sent.method, sent.body, sent.headers) == (method, None, {})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7.0, b"7"),
        (10**30, b"1e+30"),
        (-(2**63) - 1, b"-9223372036854776000"),
        (0.1, b"0.1"),
        (1.05, b"1.05"),
    ],
)
def test_numbers_in_a_body_are_those_of_javascript(shop, value, text):
    made = shop(parameter("n", "number()", location="body"), method="POST")
    assert made.sent({"n": value}).body == b'{"n":' + text + b"}"


def test_texts_in_a_body_are_what_was_given(shop):
    made = shop(parameter("t", location="body"), method="POST")
    assert made.body({"t": AWKWARD + "\u2028 1.0"}) == {"t": AWKWARD + "\u2028 1.0"}


@pytest.mark.parametrize("depth", [10, 100, 125])
def test_a_nested_argument_is_sent_whole(shop, depth):
    value = nested(depth)
    made = shop(parameter("o", "array()", location="body"), method="POST")
    assert made.body({"o": value}) == {"o": value}


@pytest.mark.parametrize("depth", [1_001, 100_000])
def test_an_argument_that_is_nested_too_deeply_is_refused(shop, depth):
    made = shop(parameter("o", "array()", location="body"), method="POST")
    assert made.rejected({"o": nested(depth)})


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


# --- headers --------------------------------------------------------------------------------


def test_headers_of_the_tool_override_those_of_the_file(shop):
    made = shop(
        headers={"Accept": "text/plain", "X-A": "1"},
        toolHeaders={"Accept": "application/json", "X-B": "2"},
    )
    assert made.sent().headers == {"Accept": "application/json", "X-A": "1", "X-B": "2"}


def test_header_names_are_the_same_in_any_case(shop):
    made = shop(headers={"Accept": "text/plain"}, toolHeaders={"accept": "application/json"})
    assert made.sent().headers == {"accept": "application/json"}


@pytest.mark.parametrize("name", ["Content-Type", "content-type", "CONTENT-TYPE"])
def test_a_content_type_that_is_set_is_kept(shop, name):
    made = shop(method="POST", headers={name: "application/vnd.api+json"})
    assert made.sent().headers == {name: "application/vnd.api+json"}


def test_a_header_may_be_made_of_a_secret_and_text(shop):
    made = shop(
        headers={"Authorization": "Bearer {{SERVER_PARAM:KEY}}"}, requiredServerParams=["KEY"]
    )
    assert made.sent().secret_headers == ("Authorization",)
    assert not made.sent().has_secret_body
    assert made.sent().headers == {"Authorization": f"Bearer {KEY}"}


def test_a_secret_with_a_line_end_is_not_sent_and_not_shown(shop):
    secret = "first line\nSet-Cookie: a=b"
    made = shop(headers={"X-Key": "{{KEY}}"}, requiredServerParams=["KEY"], secrets={"KEY": secret})
    error = made.failure()
    assert made.transport.requests == []
    assert "X-Key" in error.message
    assert "first line" not in shown(made)


# --- secrets --------------------------------------------------------------------------------

EVERYWHERE = {
    "root": "https://api.example.com/{{KEY}}",
    "path": "/p/{{SERVER_PARAM:KEY}}/{{id}}?k={{KEY}}",
    "headers": {"X-Key": "{{KEY}}"},
    "toolHeaders": {"Authorization": "Token {{SERVER_PARAM:KEY}}"},
    "requiredServerParams": ["KEY"],
    "method": "POST",
}
IN_EVERY_PLACE = (
    inserted("id"),
    parameter("q", value="{{SERVER_PARAM:KEY}}"),
    parameter("b", value="{{SERVER_PARAM:KEY}}", location="body"),
    parameter("c", value="x-{{KEY}}-{{USER_PARAM}}", location="body"),
)


def test_a_secret_is_put_into_every_place_that_names_it(shop):
    sent = shop(*IN_EVERY_PLACE, **EVERYWHERE).sent({"id": "7", "c": "8"})
    key = quote(KEY, safe="")
    assert sent.url == f"https://api.example.com/{key}/p/{key}/7?k={key}&q={key}"
    assert sent.headers == {
        "X-Key": KEY,
        "Authorization": f"Token {KEY}",
        "Content-Type": "application/json",
    }
    assert json.loads(sent.body) == {"b": KEY, "c": f"x-{KEY}-8"}
    # The transport keeps these within their origin when it is redirected.
    assert set(sent.secret_headers) == {"X-Key", "Authorization"}
    assert sent.has_secret_body


def test_a_value_of_the_caller_that_looks_like_a_placeholder_is_text(shop):
    made = shop(*IN_EVERY_PLACE, parameter("t"), **EVERYWHERE)
    tries = ["{{SERVER_PARAM:KEY}}", "{{KEY}}", "{{USER_PARAM}}", ":id", "{id}", "$&", "\\1"]
    for text in tries:
        sent = made.sent({"id": text, "c": text, "t": text})
        assert unquote(urlsplit(sent.url).path.rpartition("/")[2]) == text
        assert parse_qsl(urlsplit(sent.url).query)[-1] == ("t", text)
        assert json.loads(sent.body)["c"] == f"x-{KEY}-{text}"


def test_a_value_of_the_caller_that_looks_like_a_token_is_text(shop):
    made = shop(*IN_EVERY_PLACE, **EVERYWHERE)
    text = "callpact-secret-0123456789abcdef-KEY-end"
    assert json.loads(made.sent({"id": "1", "c": text}).body)["c"] == f"x-{KEY}-{text}"


def test_a_secret_that_looks_like_a_placeholder_is_not_filled_again(shop):
    made = shop(
        parameter("a", value="{{A}}"),
        requiredServerParams=["A", "B"],
        secrets={"A": "{{B}}{{SERVER_PARAM:B}}", "B": "the other secret"},
    )
    ((_, text),) = parse_qsl(urlsplit(made.sent().url).query)
    assert text == "{{B}}{{SERVER_PARAM:B}}"


def test_a_secret_with_backslashes_is_sent_as_it_is(shop):
    secret = r"a\1\g<0>\n$1"
    made = shop(headers={"X": "{{K}}"}, requiredServerParams=["K"], secrets={"K": secret})
    assert made.sent().headers == {"X": secret}


FORMS = {
    "as it is": KEY,
    "in a path": quote(KEY, safe=""),
    "in a form": quote_plus(KEY),
    "in json": json.dumps(KEY)[1:-1],
    "in json of php": json.dumps(KEY)[1:-1].replace("/", "\\/"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("status", [200, 401, 500])
def test_a_secret_that_the_upstream_echoes_is_never_shown(shop, caplog, form, status):
    caplog.set_level(logging.DEBUG)
    echo = FORMS[form].replace('"', '\\"')
    body = '{"request": {"url": "https://x/?k=ECHO&z=1"}, "kECHO": ["ECHO"]}'.replace("ECHO", echo)
    answer = answered(
        body, status, X_Echo=FORMS[form].encode("latin-1", "replace").decode("latin-1")
    )
    made = shop(*IN_EVERY_PLACE, answer=answer, **EVERYWHERE)
    if status == 200:
        data = made.call({"id": "1", "c": "2"}).data
        assert data["request"] == {"url": "https://x/?k=***&z=1"}
        assert data["k***"] == ["***"]
    else:
        assert made.failure({"id": "1", "c": "2"}).details["statusCode"] == status
    seen = shown(made) + caplog.text
    for written in FORMS.values():
        assert written not in seen
    assert "callpact-secret" not in seen


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16", "utf-16-le", "cp1252"])
@pytest.mark.parametrize("status", [200, 500])
def test_an_echo_in_another_encoding_is_masked_too(shop, encoding, status):
    body = json.dumps({"key": KEY, "é": 1}, ensure_ascii=False).encode(encoding)
    kind = f"application/json; charset={encoding}"
    made = shop(*IN_EVERY_PLACE, answer=answered(body, status, kind), **EVERYWHERE)
    if status == 200:
        assert made.call({"id": "1", "c": "2"}).data == {"key": "***", "é": 1}
    else:
        assert "***" in made.failure({"id": "1", "c": "2"}).details["body"]
    assert KEY not in shown(made)


def test_a_warning_about_an_answer_shows_no_secret(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    output = {
        "mimeType": "application/json",
        "schema": {
            "type": "object",
            "properties": {"n": {"type": "number"}, "e": {"type": "string", "enum": ["x"]}},
        },
    }
    data = main(
        {"getIt": tool(parameter("k", value="{{KEY}}"), output=output)},
        requiredServerParams=["KEY"],
    )
    made = Shop(tmp_path, data, answer=answered({"n": KEY, "e": f"the key is {KEY}"}))
    assert {issue.path for issue in made.call().warnings} == {"/n", "/e"}
    assert KEY not in shown(made) + caplog.text


def test_a_cookie_that_echoes_a_secret_is_masked(shop):
    made = shop(
        *IN_EVERY_PLACE, answer=answered(Set_Cookie=f"k={quote(KEY)}; Path=/"), **EVERYWHERE
    )
    envelope = made.call({"id": "1", "c": "2"})
    assert envelope.meta.set_cookie == ["k=***; Path=/"]


def test_the_beginning_of_a_secret_does_not_show_at_the_end_of_what_is_shown(shop):
    for before in range(1_980, 2_001):
        made = shop(*IN_EVERY_PLACE, answer=answered("x" * before + KEY, 500), **EVERYWHERE)
        shown_body = made.failure({"id": "1", "c": "2"}).details["body"]
        assert KEY[:3] not in shown_body
        assert len(shown_body) <= 2_000


def test_a_number_that_holds_the_digits_of_a_secret_is_left_whole(shop):
    made = shop(
        parameter("k", value="{{KEY}}"),
        requiredServerParams=["KEY"],
        secrets={"KEY": "12345678"},
        answer=answered('{"id": 1234567890, "text": "12345678"}'),
    )
    assert made.call().data == {"id": 1234567890, "text": "***"}


@pytest.mark.parametrize(
    "error",
    [
        UpstreamError(f"cannot reach https://{KEY}.example.com", details={"url": KEY}),
        Failed("address_not_allowed", f"{KEY}.example.com lies in a private range"),
        Timeout(KEY, 1.0),
    ],
)
def test_an_error_of_the_transport_is_told_without_the_secret(shop, caplog, error):
    caplog.set_level(logging.DEBUG)

    def fail(_request):
        raise error

    made = shop(*IN_EVERY_PLACE, answer=fail, **EVERYWHERE)
    told = made.failure({"id": "1", "c": "2"})
    assert (type(told), told.code) == (type(error), error.code)
    assert "***" in told.message
    assert KEY not in shown(made) + caplog.text


def test_what_is_refused_at_the_gate_shows_no_secret(shop):
    made = shop(*IN_EVERY_PLACE, **EVERYWHERE)
    made.rejected({"id": ".."})
    made.rejected({"q": "1"})
    assert KEY not in shown(made)


def test_a_secret_that_goes_missing_is_named_and_nothing_is_sent(shop, monkeypatch):
    made = shop(parameter("k", value="{{KEY}}"), requiredServerParams=["KEY"], secrets={})
    error = made.failure()
    assert (error.code, made.transport.requests) == ("server_param_missing", [])
    assert "KEY" in error.message


def test_all_secrets_of_the_file_are_taken_out_of_its_answers(tmp_path):
    tools = {
        "getA": tool(parameter("k", value="{{A_KEY}}")),
        "getB": tool(parameter("k", value="{{B_KEY}}")),
    }
    secrets = {"A_KEY": "first-secret", "B_KEY": "second-secret"}
    made = Shop(
        tmp_path,
        main(tools, requiredServerParams=list(secrets)),
        secrets=secrets,
        answer=answered(["first-secret", "second-secret"]),
    )
    assert made.call(name="shop.getA").data == ["***", "***"]
    assert made.call(name="shop.getB").data == ["***", "***"]


# --- the function ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        ("", ""),
        (None, ""),
        (True, "true"),
        (1.0, "1"),
        ([1, [2]], "1,2"),
        ({"a": [1.0]}, '{"a":[1]}'),
    ],
)
def test_a_value_in_a_url_is_written_as_javascript_writes_it(value, text):
    assert as_text(value) == text
