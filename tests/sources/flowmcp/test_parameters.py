"""Parameters: what the caller may give, under which name, and what is sent when he gives nothing."""

from __future__ import annotations

import pytest

import calls
from callpact.sources.flowmcp.read.parameters import (
    ValuePart,
    argument_aliases,
    enum_values,
    input_schema,
    read_parameters,
    read_parts,
    regex_pattern,
    split_options,
)

Shop, a_list, main, parameter, tool, KEY = (
    calls.Shop,
    calls.a_list,
    calls.main,
    calls.parameter,
    calls.tool,
    calls.KEY,
)


@pytest.fixture
def shop(tmp_path):
    """One tool with these parameters, loaded and ready to be called."""

    def make(*parameters, lists=(), code="", **fields):
        own = {key: fields.pop(key) for key in ("path", "method", "headers") if key in fields}
        return Shop(
            tmp_path, main({"getIt": tool(*parameters, **own)}, **fields), lists=lists, code=code
        )

    return make


# --- what the caller sees -------------------------------------------------------------------


def test_the_schema_is_closed_and_names_what_is_required(shop):
    made = shop(parameter("a"), parameter("b", "number()", "optional()"))
    assert made.schema == {
        "type": "object",
        "properties": {
            "a": {"description": "A", "type": "string"},
            "b": {"description": "B", "type": "number"},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_a_tool_without_parameters_takes_an_empty_object_and_nothing_else(shop):
    made = shop()
    assert made.path() == "/it"
    assert made.rejected({"a": 1}) == {("additionalProperties", "/a")}


def test_an_undeclared_key_is_refused_with_the_one_that_was_probably_meant(shop):
    made = shop(parameter("limit", "number()", "optional()"))
    error = made.failure({"limitt": 5})
    assert [(issue.code, issue.path) for issue in error.issues] == [
        ("additionalProperties", "/limitt")
    ]
    assert "limit" in error.issues[0].hint


def test_fixed_values_and_secrets_are_invisible_and_cannot_be_given(shop):
    made = shop(
        parameter("module", value="contract"),
        parameter("key", value="{{SERVER_PARAM:KEY}}"),
        parameter("bare", value="{{KEY}}"),
        parameter("id"),
        requiredServerParams=["KEY"],
    )
    assert list(made.schema["properties"]) == ["id"]
    given = {"id": "1", "module": "x", "key": "y", "bare": "z", "KEY": "w"}
    assert made.rejected(given) == {
        ("additionalProperties", f"/{name}") for name in ("module", "key", "bare", "KEY")
    }


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("city", "City"),
        ("cityName", "City name"),
        ("pager_limit", "Pager limit"),
        ("api-version", "Api version"),
        ("fromURL", "From URL"),
        ("x2", "X2"),
    ],
)
def test_a_description_is_made_of_the_words_of_the_key_where_the_file_has_none(shop, key, told):
    assert shop(parameter(key)).schema["properties"][key]["description"] == told


def test_the_description_of_the_file_is_kept(shop):
    made = shop(parameter("a", description="The first letter"))
    assert made.schema["properties"]["a"]["description"] == "The first letter"


# --- primitives -----------------------------------------------------------------------------

ACCEPTED = {
    "string()": ["", "a", "7"],
    "number()": [0, -1, 1.5, 10**30],
    "boolean()": [True, False],
    "enum(A,B,7)": ["A", "B", "7"],
    "array()": [[], ["a"], [1, None]],
    "object()": [{}, {"a": {"b": 1}}],
}
REFUSED = {
    "string()": [7, True, None, [], {}],
    "number()": ["7", True, None, [], float("nan"), float("inf")],
    "boolean()": ["true", 1, 0, None],
    "enum(A,B,7)": ["a", "C", "", "A,B", 7, None],
    "array()": ["a,b", {}, None, 1],
    "object()": [[], "{}", None],
}


@pytest.mark.parametrize(
    ("primitive", "value"), [(p, value) for p, values in ACCEPTED.items() for value in values]
)
def test_a_primitive_takes_its_values(shop, primitive, value):
    made = shop(parameter("a", primitive))
    assert made.call({"a": value}).data == {}


@pytest.mark.parametrize(
    ("primitive", "value"), [(p, value) for p, values in REFUSED.items() for value in values]
)
def test_a_primitive_refuses_other_values_before_anything_is_sent(shop, primitive, value):
    made = shop(parameter("a", primitive))
    assert {path for _, path in made.rejected({"a": value})} == {"/a"}


def test_the_members_of_an_object_reach_the_upstream_whole(shop):
    made = shop(parameter("a", "object()", location="body"), method="POST")
    assert made.body({"a": {"x": 1, "y": {"z": [None]}}}) == {"a": {"x": 1, "y": {"z": [None]}}}


# --- options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("primitive", "options", "good", "bad"),
    [
        ("string()", ["min(2)"], ["ab", "éé"], ["a", ""]),
        ("string()", ["max(2)"], ["", "ab", "😀😀"], ["abc"]),
        ("string()", ["length(2)"], ["ab"], ["a", "abc"]),
        ("number()", ["min(2)"], [2, 2.5], [1.9, -3]),
        ("number()", ["max(-1.5)"], [-1.5, -2], [-1, 0]),
        ("number()", ["min(0)", "max(0)"], [0, 0.0], [1, -1]),
        ("number()", ["min(1e3)"], [1000], [999]),
        ("array()", ["min(1)"], [["a"]], [[]]),
        ("array()", ["max(1)"], [[], ["a"]], [["a", "b"]]),
        ("array()", ["length(1)"], [["a"]], [[], ["a", "b"]]),
        ("string()", ["regex(^[0-9]+$)"], ["7"], ["a", ""]),
        ("string()", ["regex(/^[0-9]+$/)"], ["7"], ["a"]),
        ("string()", ["regex(/^a$/i)"], ["a", "A"], ["b"]),
        ("string()", ["regex(^0x[a-fA-F0-9]{40}$)"], ["0x" + "a" * 40], ["0x" + "g" * 40]),
        ("string()", ["regex(\\d)"], ["a7b"], ["ab"]),  # As in JavaScript: anywhere.
        ("string()", [" min( 2 ) "], ["ab"], ["a"]),
    ],
)
def test_an_option_limits_what_is_taken(shop, primitive, options, good, bad):
    made = shop(parameter("a", primitive, *options))
    for value in good:
        assert made.call({"a": value}).data == {}
    for value in bad:
        assert {path for _, path in made.rejected({"a": value})} == {"/a"}


@pytest.mark.parametrize(
    ("primitive", "options", "value"),
    [
        ("number()", ["min(1)", "min(5)"], 4),
        ("number()", ["min(5)", "min(1)"], 4),
        ("number()", ["max(5)", "max(9)"], 6),
        ("string()", ["length(3)", "min(1)"], "a"),
        ("string()", ["min(1)", "length(3)"], "a"),
        ("string()", ["length(3)", "max(9)"], "aaaa"),
        ("string()", ["regex(^a)", "regex(b$)"], "ac"),
        ("string()", ["regex(b$)", "regex(^a)"], "ac"),
    ],
)
def test_options_combine_with_and_in_any_order(shop, primitive, options, value):
    assert {
        path for _, path in shop(parameter("a", primitive, *options)).rejected({"a": value})
    } == {"/a"}


@pytest.mark.parametrize("option", ["min(2)", "max(2)", "length(2)", "regex(a)", "values(a)"])
def test_an_option_that_says_nothing_about_a_primitive_is_ignored(shop, option):
    made = shop(parameter("a", "boolean()", option))
    assert made.schema["properties"]["a"] == {"description": "A", "type": "boolean"}
    assert [found.code for found in made.report if found.path.endswith("/options/0")] == ["VAL132"]


# --- optional and default -------------------------------------------------------------------


def test_an_optional_parameter_that_is_left_out_disappears_from_the_request(shop):
    made = shop(parameter("a", "string()", "optional()"), parameter("b", "string()", "optional()"))
    assert made.path({"b": "1"}) == "/it?b=1"
    assert made.path({}) == "/it"


def test_null_does_not_stand_for_left_out(shop):
    assert shop(parameter("a", "string()", "optional()")).rejected({"a": None}) == {("type", "/a")}


@pytest.mark.parametrize(
    ("primitive", "text", "value"),
    [
        ("string()", "abc", "abc"),
        ("string()", "10", "10"),
        ("string()", "true", "true"),
        ("string()", "'quoted'", "quoted"),
        ("string()", '"quoted"', "quoted"),
        ("string()", "a,b (c)", "a,b (c)"),
        ("string()", "", ""),
        ("number()", "10", 10),
        ("number()", "-1.5", -1.5),
        ("number()", "1e3", 1000),
        ("number()", "'10'", 10),
        ("boolean()", "true", True),
        ("boolean()", "false", False),
        ("boolean()", "'false'", False),
        ("enum(1,2)", "2", "2"),
        ("array()", "[]", []),
        ("array()", '["a","b"]', ["a", "b"]),
        ("array()", "[a, b]", ["a", "b"]),
        ("array()", "a,b", ["a", "b"]),
        ("object()", '{"a":1}', {"a": 1}),
    ],
)
def test_a_default_is_of_the_type_of_its_primitive(shop, primitive, text, value):
    made = shop(parameter("a", primitive, f"default({text})", location="body"), method="POST")
    assert made.schema["properties"]["a"]["default"] == value
    assert type(made.schema["properties"]["a"]["default"]) is type(value)
    assert "required" not in made.schema
    assert made.body({}) == {"a": value}


@pytest.mark.parametrize(
    "options",
    [
        ["default(10)"],
        ["optional()", "default(10)"],
        ["default(10)", "optional()"],
        ["optional()", "default(10)", "min(1)", "max(99)"],
        ["max(99)", "default(10)", "min(1)", "optional()"],
    ],
)
def test_a_default_is_sent_in_whatever_order_the_options_stand(shop, options):
    made = shop(parameter("n", "number()", *options))
    assert made.path({}) == "/it?n=10"
    assert made.path({"n": 7}) == "/it?n=7"


def test_a_default_does_not_lift_the_limits_of_what_is_given(shop):
    made = shop(parameter("n", "number()", "default(10)", "min(1)"))
    assert made.rejected({"n": 0}) == {("minimum", "/n")}


@pytest.mark.parametrize("value", [0, False, "", []])
def test_a_value_that_is_empty_is_given_all_the_same(shop, value):
    primitive = {int: "number()", bool: "boolean()", str: "string()", list: "array()"}[type(value)]
    made = shop(parameter("a", primitive, "optional()", location="body"), method="POST")
    assert made.body({"a": value}) == {"a": value}


# --- enums ----------------------------------------------------------------------------------

COLOURS = a_list(
    entries=[
        {"name": "red", "hex": "f00", "kind": "warm"},
        {"name": "blue", "hex": None, "kind": "cold"},
        {"name": "red", "hex": "e00", "kind": "warm"},
        {"name": "grey"},
    ]
)
NUMBERS = a_list(
    "numbers",
    entries=[{"n": 1, "b": True}, {"n": 2.5, "b": False}, {"n": 10**21, "b": True}],
    fields=[
        {"key": "n", "type": "number", "description": "N"},
        {"key": "b", "type": "boolean", "description": "B"},
    ],
)


def reference(name="colours", version="1.0.0", **chosen):
    return {"ref": name, "version": version, **({"filter": chosen} if chosen else {})}


@pytest.mark.parametrize(
    ("primitive", "chosen", "values"),
    [
        ("enum({{colours:name}})", {}, ["red", "blue", "grey"]),
        ("enum({{colours:hex}})", {}, ["f00", "e00"]),
        ("enum(custom,{{colours:hex}},last)", {}, ["custom", "f00", "e00", "last"]),
        ("enum({{colours:kind}},warm,hot)", {}, ["warm", "cold", "hot"]),
        ("enum({{colours:name}})", {"key": "hex", "exists": True}, ["red"]),
        ("enum({{colours:name}})", {"key": "hex", "exists": False}, ["blue", "grey"]),
        ("enum({{colours:name}})", {"key": "kind", "value": "cold"}, ["blue"]),
        ("enum({{colours:name}})", {"key": "hex", "in": ["e00", "x"]}, ["red"]),
    ],
)
def test_an_enum_takes_the_values_of_a_shared_list_after_its_filter(
    shop, primitive, chosen, values
):
    made = shop(parameter("a", primitive), lists=[COLOURS], sharedLists=[reference(**chosen)])
    assert made.schema["properties"]["a"]["enum"] == values


def test_numbers_and_truths_of_a_list_are_texts_as_javascript_writes_them(shop):
    made = shop(
        parameter("n", "enum({{numbers:n}})"),
        parameter("b", "enum({{numbers:b}})"),
        lists=[NUMBERS],
        sharedLists=[reference("numbers")],
    )
    assert made.schema["properties"]["n"]["enum"] == ["1", "2.5", "1e+21"]
    assert made.schema["properties"]["b"]["enum"] == ["true", "false"]
    assert made.path({"n": "2.5", "b": "true"}) == "/it?n=2.5&b=true"
    assert {path for _, path in made.rejected({"n": 2.5, "b": True})} == {"/n", "/b"}


@pytest.mark.parametrize(
    ("primitive", "options", "values"),
    [
        ("enum()", ["values(a,b)"], ["a", "b"]),
        ("enum()", ["optional()", "values( a , b )"], ["a", "b"]),
        ("enum(a,b)", ["values(c)"], ["a", "b"]),
        ("enum( a , 'b' )", [], ["a", "b"]),
        ("enum(a,a,b,)", [], ["a", "b"]),
    ],
)
def test_the_values_of_an_enum_are_found_where_real_files_write_them(
    shop, primitive, options, values
):
    assert shop(parameter("a", primitive, *options)).schema["properties"]["a"]["enum"] == values


# --- placeholders ---------------------------------------------------------------------------


def test_a_bare_name_that_is_no_secret_is_a_parameter_under_its_key(shop):
    made = shop(parameter("city", value="{{CITY}}"))
    assert list(made.schema["properties"]) == ["city"]
    assert made.path({"city": "Oslo"}) == "/it?city=Oslo"


def test_the_name_in_the_placeholder_is_taken_too_and_told(shop):
    made = shop(parameter("city", value="{{CITY}}"), parameter("b", "string()", "optional()"))
    envelope = made.call({"CITY": "Oslo", "b": "1"})
    assert made.transport.requests[-1].url.endswith("/it?city=Oslo&b=1")
    assert [(issue.code, issue.path) for issue in envelope.warnings] == [("renamed", "/city")]


def test_where_a_file_has_placeholders_of_its_own_a_text_may_say_a_number(shop):
    made = shop(parameter("limit", "number()", "max(9)", value="{{LIMIT}}"))
    for given in ({"LIMIT": "5"}, {"limit": "5"}, {"limit": 5}):
        assert made.path(given) == "/it?limit=5"
    assert "converted" in {issue.code for issue in made.call({"LIMIT": "5"}).warnings}
    for given in ({"LIMIT": "ten"}, {"LIMIT": "10"}, {"limit": True}):
        assert {path for _, path in made.rejected(given)} == {"/limit"}


def test_elsewhere_a_text_is_no_number(shop):
    made = shop(
        parameter("limit", "number()"),
        parameter("k", value="{{KEY}}"),
        requiredServerParams=["KEY"],
    )
    assert made.tool.contract.input_policy == "exact"
    assert made.rejected({"limit": "5"}) == {("type", "/limit")}


def test_a_value_under_both_names_is_refused(shop):
    made = shop(parameter("city", value="{{CITY}}"))
    assert made.rejected({"city": "Oslo", "CITY": "Rome"}) == {("additionalProperties", "/CITY")}


def test_a_bare_name_that_is_declared_as_a_secret_is_the_secret(shop):
    made = shop(parameter("key", value="{{KEY}}"), requiredServerParams=["KEY"])
    assert made.schema["properties"] == {}
    assert made.path() == "/it?key=s3cr3t%2FKe%20y%2B42%3D%C3%A9"


@pytest.mark.parametrize(
    "value", ["{{SERVER_PARAM:KEY}}", "{{ SERVER_PARAM:KEY }}", "{{SERVER_PARAM: KEY }}"]
)
def test_a_server_parameter_may_be_written_with_blanks(shop, value):
    made = shop(
        parameter("key", value=value),
        path=f"/p/{value}/it",
        headers={"X": value},
        requiredServerParams=["KEY"],
    )
    sent = made.sent()
    assert sent.url == (
        "https://api.example.com/p/s3cr3t%2FKe%20y%2B42%3D%C3%A9/it?key=s3cr3t%2FKe%20y%2B42%3D%C3%A9"
    )
    assert sent.headers == {"X": KEY}


def test_text_around_a_placeholder_is_kept(shop):
    made = shop(parameter("when", "string()", "max(4)", value=">={{USER_PARAM}};"))
    assert made.path({"when": "2024"}) == "/it?when=%3E%3D2024%3B"
    assert made.rejected({"when": "20240"}) == {("maxLength", "/when")}


def test_several_names_in_one_value_are_arguments_of_their_own(shop):
    made = shop(parameter("range", value="{{FROM}}..{{TO}}"))
    assert made.schema["required"] == ["FROM", "TO"]
    assert made.path({"FROM": "1", "TO": "2"}) == "/it?range=1..2"
    assert made.rejected({"FROM": "1"}) == {("required", "/TO")}


def test_a_value_of_several_names_is_left_out_unless_all_are_given(shop):
    made = shop(parameter("range", "string()", "optional()", value="{{FROM}}..{{TO}}"))
    assert made.path({"FROM": "1"}) == "/it"


def test_a_secret_beside_what_the_caller_gives(shop):
    made = shop(parameter("auth", value="{{USER_PARAM}}:{{KEY}}"), requiredServerParams=["KEY"])
    assert made.path({"auth": "me"}) == "/it?auth=me%3As3cr3t%2FKe%20y%2B42%3D%C3%A9"


def test_two_parameters_of_one_key_are_filled_by_one_argument(shop):
    made = shop(parameter("id", location="insert"), parameter("id"), path="/it/{{id}}")
    assert made.schema["required"] == ["id"]
    assert made.path({"id": "7"}) == "/it/7?id=7"


@pytest.mark.parametrize("key", ["pager_limit", "filter[name]", "$top", "x-y", "a.b", "größe"])
def test_a_key_that_is_not_in_camel_case_is_sent_as_it_is(shop, key):
    from urllib.parse import parse_qsl, urlsplit

    made = shop(parameter(key))
    assert parse_qsl(urlsplit(made.path({key: "1"})).query) == [(key, "1")]


# --- the functions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("", [("text", "")]),
        ("fixed", [("text", "fixed")]),
        ("{{USER_PARAM}}", [("user", "k")]),
        ("a{{USER_PARAM}}b", [("text", "a"), ("user", "k"), ("text", "b")]),
        ("{{SERVER_PARAM:S}}", [("server", "S")]),
        ("{{S}}", [("server", "S")]),
        ("{{X}}", [("user", "k")]),
        ("{{X}}{{Y}}", [("user", "X"), ("user", "Y")]),
        ("{{X}}{{X}}", [("user", "k"), ("user", "k")]),
        ("{{USER_PARAM}}{{X}}{{Y}}", [("user", "k"), ("user", "X"), ("user", "Y")]),
        ("{{X}}{{S}}", [("user", "k"), ("server", "S")]),
        ("{X}", [("text", "{X}")]),
        ("{{X", [("text", "{{X")]),
    ],
)
def test_a_value_is_made_of_its_parts(value, parts):
    assert read_parts(value, frozenset({"S"}), "k") == tuple(ValuePart(*part) for part in parts)


def test_an_alias_that_is_the_name_of_another_argument_is_none():
    declared = [
        parameter("a", value="{{b}}"),
        parameter("b"),
        parameter("c", value="{{D}}"),
        parameter("e", value="{{e}}"),
        parameter("f", value="{{G}}-{{H}}"),
        parameter("i", value="{{S}}"),
        parameter("j", value="{{S}}{{K}}"),
    ]
    assert argument_aliases(declared, ["S"]) == {"D": "c", "K": "j"}
    properties = input_schema(read_parameters(declared, ["S"], {}))["properties"]
    assert list(properties) == ["a", "b", "c", "e", "G", "H", "j"]


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("", []),
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("'a','b c'", ["a", "b c"]),
        ("{{l:x}}", ["1", "two"]),
        ("z,{{l:x}},a", ["z", "1", "two", "a"]),
        ("{{l:y}}", []),
        ("{{other:x}}", []),
    ],
)
def test_enum_values_are_listed_once_and_nulls_left_out(argument, values):
    entries = [{"x": 1}, {"x": None}, {"x": "two"}, {"x": 1}, {}]
    assert enum_values(argument, {"l": entries}) == values


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("^a$", "^a$"),
        ("/^a$/", "^a$"),
        ("/^a$/i", "(?i:^a$)"),
        ("/a/g", "a"),
        ("/a.b/ims", "(?ims:a.b)"),
        (" /a/ ", "a"),
        ("a/b", "a/b"),
    ],
)
def test_a_regex_is_taken_with_and_without_slashes(text, pattern):
    assert regex_pattern(text) == pattern


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("optional(), default(1000)", ["optional()", "default(1000)"]),
        ("min(1),max(9) , optional()", ["min(1)", "max(9)", "optional()"]),
        ("default(a, b)", ["default(a, b)"]),
        ("default([1,2])", ["default([1,2])"]),
        ("regex(^(a), min(2)$)", ["regex(^(a), min(2)$)"]),
        ("optional(), email()", ["optional(), email()"]),
        ("optional(),", ["optional(),"]),
        ("optional() default(1)", ["optional() default(1)"]),
    ],
)
def test_options_in_one_text_are_told_apart_if_all_are_known(text, options):
    assert split_options(text) == options


def test_two_options_in_one_text_mean_what_they_mean_alone():
    def read(*options):
        block = {
            "position": {"key": "a", "value": "{{USER_PARAM}}", "location": "query"},
            "z": {"primitive": "number()", "options": list(options)},
        }
        return read_parameters([block], (), {})

    together = read("optional(), default(1000), max(2000)")
    assert together == read("optional()", "default(1000)", "max(2000)")
    assert together[0].inputs[0].default == 1000
