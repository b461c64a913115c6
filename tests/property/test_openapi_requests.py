"""Arguments of an OpenAPI operation build a request that parses back to the same arguments.

The parser here follows the tables of the specification and shares no code with the encoder.
"""

from __future__ import annotations

import json
from urllib.parse import unquote, unquote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from callpact.errors import InvalidInput
from callpact.sources.openapi.operation_request import RequestOutline
from callpact.sources.openapi.operations import PartEncoding
from callpact.sources.openapi.request_bodies import body_of
from echo_upstream import a_body, a_parameter, an_operation

SERVER = "https://api.example/v1"
PLAIN = st.text("abcXYZ019-_~é€😀", min_size=1)
ANY = st.text(min_size=0, max_size=12)
SCALARS = {"string": None, "integer": st.integers(-(2**60), 2**60), "boolean": st.booleans()}
STYLES = [
    ("path", "simple"),
    ("path", "label"),
    ("path", "matrix"),
    ("query", "form"),
    ("query", "spaceDelimited"),
    ("query", "pipeDelimited"),
    ("query", "deepObject"),
    ("header", "simple"),
    ("cookie", "form"),
    ("cookie", "cookie"),
]


def typed(text, kind):
    """The value of a text, by the type that the schema declares."""
    if kind == "string":
        return text
    assert kind != "boolean" or text in {"true", "false"}
    return text == "true" if kind == "boolean" else int(text)


def shaped(items, names, shape, kind):
    """Parts of a value: for an object `names` are its keys."""
    if shape == "array":
        return [typed(item, kind) for item in items]
    return {name: typed(item, kind) for name, item in zip(names, items, strict=True)}


def listed(text, delimiter, shape, kind, decode):
    """A value whose items stand in one text."""
    parts = [decode(part) for part in text.split(delimiter)]
    if shape == "array":
        return shaped(parts, None, shape, kind)
    return shaped(parts[1::2], parts[::2], shape, kind)


def pairs_of(text, separator, decode):
    return [
        tuple(decode(part) for part in (name, value))
        for name, _, value in (pair.partition("=") for pair in text.split(separator))
    ]


def parsed_pairs(text, separator, parameter, shape, kind, *, decode):
    """A value in pairs `name=value`: a query, a matrix, a cookie."""
    if parameter.explode or shape == "scalar":
        pairs = pairs_of(text, separator, decode)
        if shape == "object":
            return shaped([value for _, value in pairs], [name for name, _ in pairs], shape, kind)
        assert {name for name, _ in pairs} == {parameter.name}
        values = [typed(value, kind) for _, value in pairs]
        return values if shape == "array" else values[0]
    name, _, value = text.partition("=")
    assert decode(name) == parameter.name
    return listed(value, ",", shape, kind, decode)


def parsed(parameter, shape, kind, built):
    """The value that a server reads from a request."""
    style = parameter.style
    if parameter.place == "path":
        text = built.address.removeprefix(f"{SERVER}/before-").removesuffix("/after")
        assert not set(text) & set("/?#")
        if style == "matrix":
            assert text.startswith(";")
            return parsed_pairs(text[1:], ";", parameter, shape, kind, decode=unquote)
        if style == "label":
            assert text.startswith(".")
            text = text[1:]
        if shape == "scalar":
            return typed(unquote(text), kind)
        separator = "." if style == "label" and parameter.explode else ","
        if shape == "object" and parameter.explode:
            found = pairs_of(text, separator, unquote)
            return shaped([v for _, v in found], [n for n, _ in found], shape, kind)
        return listed(text, separator, shape, kind, unquote)
    if parameter.place == "header":
        text = built.headers[parameter.name]
        if shape == "scalar":
            return typed(text, kind)
        if shape == "object" and parameter.explode:
            found = pairs_of(text, ",", str)
            return shaped([v for _, v in found], [n for n, _ in found], shape, kind)
        return listed(text, ",", shape, kind, str)
    if parameter.place == "cookie":
        decode = str if style == "cookie" else unquote
        return parsed_pairs("; ".join(built.cookies), "; ", parameter, shape, kind, decode=decode)
    query = "&".join(built.query)
    if style == "deepObject":
        found = pairs_of(query, "&", unquote_plus)
        if shape == "scalar":
            assert found[0][0] == parameter.name
            return typed(found[0][1], kind)
        names = [name.removeprefix(f"{parameter.name}[").removesuffix("]") for name, _ in found]
        if shape == "array":
            assert names == [str(number) for number in range(len(names))]
        return shaped([value for _, value in found], names, shape, kind)
    delimiters = {"spaceDelimited": " ", "pipeDelimited": "|"}
    if style in delimiters and not parameter.explode and shape != "scalar":
        ((name, value),) = pairs_of(query, "&", unquote_plus)
        assert name == parameter.name
        return listed(value, delimiters[style], shape, kind, str)
    return parsed_pairs(query, "&", parameter, shape, kind, decode=unquote_plus)


@st.composite
def cases(draw, texts):
    place, style = draw(st.sampled_from(STYLES))
    shape = draw(st.sampled_from(["scalar", "array", "object"]))
    kind = draw(st.sampled_from(list(SCALARS)))
    explode = True if style == "deepObject" else draw(st.booleans())
    name = "X-Name" if place == "header" else "na[me]" if place == "query" else "name"
    if style == "deepObject":
        name = "name"
    values = texts if kind == "string" else SCALARS[kind]
    value = draw(
        {
            "scalar": values,
            "array": st.lists(values, min_size=1, max_size=5),
            "object": st.dictionaries(texts, values, min_size=1, max_size=5),
        }[shape]
    )
    parameter = a_parameter(
        place, name, style=style, explode=explode, argument="value", required=True
    )
    return parameter, shape, kind, value


def built_with(parameter, value):
    operation = an_operation(
        parameter, path="/before-{name}/after" if parameter.place == "path" else "/"
    )
    outline = RequestOutline(operation, SERVER, "*/*", {}, {})
    return outline.build({"value": value})


def built_or_refused(parameter, value):
    try:
        return built_with(parameter, value), None
    except InvalidInput as error:
        return None, error


@given(cases(PLAIN))
def test_values_without_delimiters_are_always_sent_and_read_back(case):
    parameter, shape, kind, value = case
    # Neither headers nor the style `cookie` carry characters beyond ASCII.
    is_raw = parameter.place == "header" or parameter.style == "cookie"
    assume(not is_raw or json.dumps(value, ensure_ascii=False).isascii())
    assert parsed(parameter, shape, kind, built_with(parameter, value)) == value


@given(cases(ANY))
def test_any_value_is_read_back_or_refused(case):
    parameter, shape, kind, value = case
    built, refusal = built_or_refused(parameter, value)
    if built is None:
        assert refusal.path in {"/value", ""}
        return
    if parameter.place == "header" and shape != "scalar" and '"' in json.dumps(value):
        return  # A quoted item may hold the delimiter.
    assert parsed(parameter, shape, kind, built) == value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY, inner, max_size=4),
    max_leaves=10,
)


@given(JSON)
def test_json_bodies_are_read_back(value):
    try:
        encoded = body_of(a_body(), value)
    except InvalidInput:
        assert "\\ud" in json.dumps(value)
        return
    assert json.loads(encoded.data) == value


LEAVES = st.text(min_size=0, max_size=8).filter(lambda text: text.isprintable())
KEYS = st.text("abc xyz.&=+é%", min_size=1, max_size=5)
NESTED = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(KEYS, inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


def unbracketed(pairs):
    """Nested data from `a[b][0]=c`; an object whose keys count from 0 is an array."""
    root = {}
    for name, value in pairs:
        head, *rest = name.replace("]", "").split("[")
        at, keys = root, [head, *rest]
        for key in keys[:-1]:
            at = at.setdefault(key, {})
        at[keys[-1]] = value
    return {key: arrays(value) for key, value in root.items()}


def arrays(value):
    if not isinstance(value, dict):
        return value
    inner = {key: arrays(each) for key, each in value.items()}
    numbers = [str(number) for number in range(len(inner))]
    return list(inner.values()) if list(inner) == numbers else inner


@given(st.dictionaries(KEYS, NESTED, min_size=1, max_size=4))
def test_forms_with_brackets_are_read_back(value):
    deep = PartEncoding(style="deepObject", explode=True)
    body = a_body("application/x-www-form-urlencoded", encodings=dict.fromkeys(value, deep))
    encoded = body_of(body, value)
    assert unbracketed(pairs_of(encoded.data.decode("ascii"), "&", unquote_plus)) == value


@pytest.mark.parametrize("place", ["path", "query"])
def test_the_parser_of_this_test_sees_a_wrong_value(place):
    parameter = a_parameter(place, "name", argument="value", required=True)
    built = built_with(parameter, ["a", "b,c"])
    assert parsed(parameter, "array", "string", built) != ["a", "b", "c"]
