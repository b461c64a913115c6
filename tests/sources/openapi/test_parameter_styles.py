"""Parameters as they arrive at a server, compared with the tables of the specification."""

from __future__ import annotations

import asyncio

import pytest

from callpact.errors import InvalidInput
from echo_upstream import Echo, a_parameter, an_operation

STRING = "blue"
ARRAY = ["blue", "black", "brown"]
OBJECT = {"R": 100, "G": 200, "B": 150}

# OpenAPI 3.2.0, "Style Examples": style, explode, empty string, string, array, object.
PATHS = [
    ("matrix", False, ";color", ";color=blue", ";color=blue,black,brown", ";color=R,100,G,200,B,150"),
    ("matrix", True, ";color", ";color=blue", ";color=blue;color=black;color=brown",
     ";R=100;G=200;B=150"),
    ("label", False, ".", ".blue", ".blue,black,brown", ".R,100,G,200,B,150"),
    ("label", True, ".", ".blue", ".blue.black.brown", ".R=100.G=200.B=150"),
    ("simple", False, "", "blue", "blue,black,brown", "R,100,G,200,B,150"),
    ("simple", True, "", "blue", "blue,black,brown", "R=100,G=200,B=150"),
]  # fmt: skip
QUERIES = [
    ("form", False, "color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"),
    ("form", True, "color=", "color=blue", "color=blue&color=black&color=brown",
     "R=100&G=200&B=150"),
    ("spaceDelimited", False, "color=", "color=blue", "color=blue%20black%20brown",
     "color=R%20100%20G%20200%20B%20150"),
    ("pipeDelimited", False, "color=", "color=blue", "color=blue%7Cblack%7Cbrown",
     "color=R%7C100%7CG%7C200%7CB%7C150"),
    ("deepObject", True, "color=", "color=blue", "color%5B0%5D=blue&color%5B1%5D=black&color%5B2%5D=brown",
     "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
    # Not in the table: an exploded list is one of several parameters whatever the delimiter.
    ("spaceDelimited", True, "color=", "color=blue", "color=blue&color=black&color=brown",
     "R=100&G=200&B=150"),
    ("pipeDelimited", True, "color=", "color=blue", "color=blue&color=black&color=brown",
     "R=100&G=200&B=150"),
    # Swagger 2.0, collectionFormat tsv.
    ("tabDelimited", False, "color=", "color=blue", "color=blue%09black%09brown",
     "color=R%09100%09G%09200%09B%09150"),
]  # fmt: skip
HEADERS = [
    (False, "", "blue", "blue,black,brown", "R,100,G,200,B,150"),
    (True, "", "blue", "blue,black,brown", "R=100,G=200,B=150"),
]
COOKIES = [
    ("cookie", False, "color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"),
    ("cookie", True, "color=", "color=blue", "color=blue; color=black; color=brown",
     "R=100; G=200; B=150"),
    ("form", False, "color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"),
    # The specification calls `&` "never correct" between cookies.
    ("form", True, "color=", "color=blue", "color=blue; color=black; color=brown",
     "R=100; G=200; B=150"),
]  # fmt: skip


def sent(parameter, value, path="/"):
    """The request that arrives when a tool is called with a value."""

    async def run():
        async with Echo() as echo:
            await echo.call(an_operation(parameter, path=path), {parameter.argument: value})
            return echo.last

    return asyncio.run(run())


def rows(table):
    return list(_rows(table))


def _rows(table):
    for *key, empty, string, array, thing in table:
        for value, expected in (("", empty), (STRING, string), (ARRAY, array), (OBJECT, thing)):
            yield (*key, value, expected)


@pytest.mark.parametrize(("style", "explode", "value", "expected"), rows(PATHS))
def test_paths_have_the_form_of_the_table(style, explode, value, expected):
    parameter = a_parameter("path", style=style, explode=explode)
    assert sent(parameter, value, "/a/x{color}/b").target == f"/a/x{expected}/b"


@pytest.mark.parametrize(("style", "explode", "value", "expected"), rows(QUERIES))
def test_queries_have_the_form_of_the_table(style, explode, value, expected):
    parameter = a_parameter("query", style=style, explode=explode)
    assert sent(parameter, value).target == f"/?{expected}"


@pytest.mark.parametrize(("explode", "value", "expected"), rows(HEADERS))
def test_headers_have_the_form_of_the_table(explode, value, expected):
    arrived = sent(a_parameter("header", "X-Color", explode=explode), value)
    assert arrived.values("X-Color") == [expected]


@pytest.mark.parametrize(("style", "explode", "value", "expected"), rows(COOKIES))
def test_cookies_have_the_form_of_the_table(style, explode, value, expected):
    arrived = sent(a_parameter("cookie", style=style, explode=explode), value)
    assert arrived.values("Cookie") == [expected]


# --- values ----------------------------------------------------------------------------------

ODD = "a/b?c#d&e=f g+h%i;j,k'\"\u00e9\U0001f600"
ENCODED = "a%2Fb%3Fc%23d%26e%3Df%20g%2Bh%25i%3Bj%2Ck%27%22%C3%A9%F0%9F%98%80"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (False, "false"),
        (True, "true"),
        (-1.5, "-1.5"),
        (7.0, "7"),
        (2**70, str(2**70)),
        (1e300, "1e%2B300"),
        ("", ""),
        (ODD, ENCODED),
        ("~-._", "~-._"),
    ],
)
def test_scalars_are_sent_with_their_value(value, text):
    assert sent(a_parameter("query"), value).target == f"/?color={text}"


def test_the_path_and_the_query_encode_alike():
    assert sent(a_parameter("path"), ODD, "/x/{color}/y").target == f"/x/{ENCODED}/y"


def test_names_are_encoded():
    assert sent(a_parameter("query", "filter[é]"), "x").target == "/?filter%5B%C3%A9%5D=x"


def test_several_parameters_keep_the_order_of_the_document():
    parameters = [a_parameter("query", name) for name in "cab"]

    async def run():
        async with Echo() as echo:
            operation = an_operation(*parameters, path="/x?fixed=1")
            await echo.call(operation, {"a": 1, "b": [2, 3], "c": ""})
            return echo.last.target

    assert asyncio.run(run()) == "/x?fixed=1&c=&a=1&b=2&b=3"


@pytest.mark.parametrize("value", [None, [], {}, {"R": None}])
def test_undefined_values_are_left_out_unless_they_are_required(value):
    assert sent(a_parameter("query"), value).target == "/"
    assert sent(a_parameter("query", required=True), value).target == "/?color="
    assert "cookie" not in sent(a_parameter("cookie"), value).headers
    assert sent(a_parameter("cookie", required=True), value).headers["cookie"] == "color="


def test_null_members_of_an_object_are_left_out():
    assert sent(a_parameter("query"), {"R": None, "G": 0}).target == "/?G=0"


def test_nested_values_are_json():
    parameter = a_parameter("query", explode=False)
    assert sent(parameter, [{"a": 1}, [2]]).target == "/?color=%7B%22a%22%3A1%7D,%5B2%5D"


def test_deep_objects_nest_with_brackets():
    value = {"a": {"b": {"c": 1}}, "d": [1, {"e": 2}], "f": None, "g": {}}
    target = sent(a_parameter("query", style="deepObject"), value).target
    assert target == (
        "/?color%5Ba%5D%5Bb%5D%5Bc%5D=1&color%5Bd%5D%5B0%5D=1&color%5Bd%5D%5B1%5D%5Be%5D=2"
    )


def test_reserved_characters_are_kept_where_they_end_nothing():
    reserved = ":/?#[]@!$&'()*+,;=%41%zz"
    parameter = a_parameter("query", allow_reserved=True)
    assert sent(parameter, reserved).query == "color=:/?%23%5B%5D@!$%26'()*%2B,;%3D%41%25zz"
    listed = a_parameter("query", explode=False, allow_reserved=True)
    assert sent(listed, ["a,b", "c/d"]).query == "color=a%2Cb,c/d"
    in_path = a_parameter("path", allow_reserved=True)
    assert sent(in_path, reserved, "/x{color}").path == ("/x:%2F%3F%23%5B%5D@!$&'()*+,;=%41%25zz")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("application/json", {"a": [1, "é"]}, "%7B%22a%22%3A%5B1%2C%22%C3%A9%22%5D%7D"),
        ("application/json", "x", "%22x%22"),
        ("application/vnd.x+json", None, "null"),
        ("text/plain", "x y", "x%20y"),
    ],
)
def test_content_parameters_have_their_media_type(kind, value, text):
    assert sent(a_parameter("query", content_type=kind), value).target == f"/?color={text}"
    in_path = a_parameter("path", content_type=kind)
    assert sent(in_path, value, "/x{color}").target == f"/x{text}"


def test_a_header_of_json_is_ascii():
    parameter = a_parameter("header", "X-Data", content_type="application/json")
    arrived = sent(parameter, {"a": "é\U0001f600\n"})
    assert arrived.values("X-Data") == ['{"a":"\\u00e9\\ud83d\\ude00\\n"}']


def test_headers_that_the_specification_reserves_are_ignored():
    arrived = sent(a_parameter("header", "Authorization"), "Bearer mine")
    assert "authorization" not in arrived.headers
    assert sent(a_parameter("header", "accept"), "text/html").headers["accept"] == "*/*"


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    ["", ".", "..", "%2e%2e", "..;x", "a/../b", "..\\x", "%252e%252e", "/..", [], {}, None, [""]],
)
def test_no_value_of_a_path_leaves_its_segment(value):
    with pytest.raises(InvalidInput) as caught:
        sent(a_parameter("path"), value, "/a/{color}/b")
    assert caught.value.path == "/color"


def test_parts_of_one_segment_make_no_step_together():
    parameters = a_parameter("path", "a"), a_parameter("path", "b")

    async def run():
        async with Echo() as echo:
            await echo.call(an_operation(*parameters, path="/{a}{b}/x"), {"a": ".", "b": "."})

    with pytest.raises(InvalidInput):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (a_parameter("header", "X-A"), "a\r\nX-B: c"),
        (a_parameter("header", "X-A"), "a\0"),
        (a_parameter("header", "X-A"), "\u20ac"),
        (a_parameter("header", "X-A"), " a"),
        (a_parameter("header", "X-A"), ["a,b"]),
        (a_parameter("header", "X-A", explode=True), {"a=b": "c"}),
        (a_parameter("cookie", style="cookie"), "a; b=c"),
        (a_parameter("cookie", style="cookie"), "a\r\nX: y"),
        (a_parameter("cookie", style="cookie", explode=False), ["a,b"]),
        (a_parameter("cookie", style="cookie"), {"a=b": 1}),
        (a_parameter("query", style="spaceDelimited", explode=False), ["a b"]),
        (a_parameter("query", style="pipeDelimited", explode=False), {"a|b": 1}),
        (a_parameter("query", style="deepObject"), {"a]b": 1}),
        (a_parameter("query"), [1, None]),
        (a_parameter("query", style="deepObject"), {"a": [None]}),
        (a_parameter("query"), "\ud800"),
        (a_parameter("query"), "x" * 70_000),
        (a_parameter("query"), ["x"] * 20_000),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is_sent(parameter, value):
    async def run():
        async with Echo() as echo:
            with pytest.raises(InvalidInput) as caught:
                await echo.call(an_operation(parameter), {parameter.argument: value})
            return caught.value, echo.arrived

    error, requests = asyncio.run(run())
    assert requests == []
    assert error.path in {f"/{parameter.argument}", ""}


def test_an_item_of_a_header_that_is_quoted_may_hold_a_comma():
    arrived = sent(a_parameter("header", "X-A"), ['"a,b"', "c"])
    assert arrived.values("X-A") == ['"a,b",c']


def test_no_key_of_an_object_takes_the_place_of_another_parameter():
    parameters = a_parameter("query", "rest"), a_parameter("query", "limit")

    async def run(value):
        async with Echo() as echo:
            await echo.call(an_operation(*parameters), {"rest": value, "limit": 1})
            return echo.last.target

    assert asyncio.run(run({"other": 2})) == "/?other=2&limit=1"
    with pytest.raises(InvalidInput) as caught:
        asyncio.run(run({"limit": 99}))
    assert caught.value.path == "/rest"
