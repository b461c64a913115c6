"""Parameters as they arrive at a server, compared with the tables of the specification."""

from __future__ import annotations

import asyncio

import pytest

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
