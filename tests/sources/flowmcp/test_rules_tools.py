"""The rules of tools: method, path and its places, headers, caching, metadata."""

from __future__ import annotations

import pytest

import kit

changed, told, tool, parameter = kit.changed, kit.told, kit.tool, kit.parameter
with_tool, TOOL, GONE = kit.with_tool, kit.TOOL, kit.GONE


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("colour", "red", "VAL076"),
        ("method", GONE, "VAL032"),
        ("method", "get", "VAL032"),
        ("method", "PATCH", "VAL032"),
        ("method", [], "VAL032"),
        ("path", GONE, "VAL033"),
        ("path", 5, "VAL033"),
        ("path", "forecast", "VAL033"),
        ("path", "", "VAL033"),
        ("description", GONE, "VAL034"),
        ("description", "", "VAL034"),
        ("description", 5, "VAL034"),
        ("parameters", GONE, "VAL035"),
        ("parameters", {}, "VAL035"),
        ("output", GONE, "VAL036"),
        ("async", True, "VAL037"),
        ("meta", "read", "VAL124"),
        ("headers", "Accept", "VAL023"),
        ("preload", True, "VAL060"),
    ],
)
def test_a_field_that_breaks_its_rule_is_told_at_its_place(field, value, code):
    main = changed((TOOL, tool()), (f"{TOOL}/{field}", value))
    assert told(main) == {(code, f"{TOOL}/{field}")}


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_four_methods_are_known(method):
    assert told(with_tool(method=method)) == set()


@pytest.mark.parametrize("value", [None, [], "getForecast", 5])
def test_a_tool_is_an_object(value):
    assert told(changed((TOOL, value))) == {("VAL126", TOOL)}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("get_forecast", "VAL030"),
        ("GetForecast", "VAL030"),
        ("get-forecast", "VAL030"),
        ("/forecast/:city", "VAL030"),
        ("", "VAL127"),
        ("///", "VAL127"),
        ("a" * 201, "VAL127"),
    ],
)
def test_the_name_of_a_tool_is_camel_case(name, code):
    path = "/tools/" + name.replace("/", "~1")
    assert told(changed(("/tools", {name: tool()}))) == {(code, path)}


def test_a_body_is_only_for_post_and_put():
    sent = parameter("city", "Oslo", "body")
    place = f"{TOOL}/parameters/0/position/location"
    for method in ("POST", "PUT"):
        assert told(with_tool(sent, method=method)) == set()
    for method in ("GET", "DELETE"):
        assert told(with_tool(sent, method=method)) == {("VAL087", place)}


# --- the path -------------------------------------------------------------------------------

INSERT = parameter("city", "Oslo", "insert")
PATH = f"{TOOL}/path"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/a/{{city}}", set()),
        ("/a/{{ city }}/b?c={{city}}", set()),
        ("/a/{{SERVER_PARAM:WEATHER_KEY}}/{{city}}", set()),
        ("/a/{{city}}?key={{WEATHER_KEY}}", {("VAL090", PATH)}),
        ("/a/{{city}}?key={{SERVER_PARAM:OTHER}}", {("VAL089", PATH)}),
        ("/a/{{city}}/{{street}}", {("VAL099", PATH)}),
        ("/a/{{city}}/{{USER_PARAM}}", {("VAL099", PATH)}),
        ("/a/:city", {("VAL092", PATH)}),
        ("/a/{city}/b", {("VAL092", PATH)}),
        ("/a/{{city}}/:city", set()),
        ("/a/{{city}}:80/claims:search", set()),
        ("/a", {("VAL050", f"{TOOL}/parameters/0/position/location")}),
        ("/a/:cityName", {("VAL050", f"{TOOL}/parameters/0/position/location")}),
    ],
)
def test_places_in_the_path_and_inserts_belong_together(path, found):
    assert told(with_tool(INSERT, path=path)) == found


def test_a_place_in_the_root_counts_too():
    main = changed((TOOL, tool(INSERT)), ("/root", "https://a.b/{{city}}"))
    assert ("VAL050", f"{TOOL}/parameters/0/position/location") not in told(main)


# --- headers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "codes"),
    [
        ("application/json", set()),
        ("Bearer {{SERVER_PARAM:WEATHER_KEY}}", set()),
        ("Bearer {{WEATHER_KEY}}", {"VAL090"}),
        ("{{USER_PARAM}}", {"VAL089"}),
        (7, {"VAL023"}),
        ("a\nb", {"VAL129"}),
    ],
)
def test_a_tool_may_have_headers_of_its_own(value, codes):
    path = f"{TOOL}/headers/Accept"
    assert told(with_tool(headers={"Accept": value})) == {(code, path) for code in codes}


# --- caching --------------------------------------------------------------------------------

CACHED = {"enabled": True, "ttl": 60}
REQUIRED = kit.cases(city="Oslo")


@pytest.mark.parametrize(
    ("preload", "found"),
    [
        ({"enabled": False, "ttl": 60}, set()),
        ({"enabled": False, "ttl": 60, "description": "All of it"}, set()),
        ({}, {("VAL061", "/enabled"), ("VAL062", "/ttl")}),
        ({"enabled": "yes", "ttl": 60}, {("VAL061", "/enabled")}),
        ({"enabled": False, "ttl": 0}, {("VAL062", "/ttl")}),
        ({"enabled": False, "ttl": 1.5}, {("VAL062", "/ttl")}),
        ({"enabled": False, "ttl": True}, {("VAL062", "/ttl")}),
        ({"enabled": False, "ttl": 60, "description": 5}, {("VAL063", "/description")}),
        (CACHED, {("VAL064", "")}),
    ],
)
def test_caching_is_declared_in_three_fields(preload, found):
    place = f"{TOOL}/preload"
    assert told(with_tool(preload=preload)) == {(code, place + path) for code, path in found}


def test_caching_with_required_parameters_is_explained():
    place = (("VAL065", f"{TOOL}/preload"),)
    assert told(with_tool(parameter(), tests=REQUIRED, preload=CACHED)) == set(place)
    explained = {**CACHED, "description": "One answer for each city"}
    assert told(with_tool(parameter(), tests=REQUIRED, preload=explained)) == set()
    optional = parameter("city", "{{USER_PARAM}}", "query", "string()", "optional()")
    assert told(with_tool(optional, tests=REQUIRED, preload=CACHED)) == set()


# --- metadata -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("isReadOnly", GONE, "VAL101"),
        ("isReadOnly", "yes", "VAL101"),
        ("isConcurrencySafe", 1, "VAL102"),
        ("isDestructive", None, "VAL103"),
        ("searchHint", "", "VAL104"),
        ("aliases", "outlook", "VAL105"),
        ("aliases", ["a", 1], "VAL105"),
        ("alwaysLoad", GONE, "VAL106"),
    ],
)
def test_metadata_is_complete_where_it_is_there(field, value, code):
    meta = kit.put(kit.META, (f"/{field}", value))
    assert told(changed(("/meta", meta))) == {(code, f"/meta/{field}")}
    assert told(with_tool(meta=meta)) == {(code, f"{TOOL}/meta/{field}")}


def test_metadata_is_the_tools_own_or_that_of_all():
    both = {"getA": tool(meta=kit.META), "getB": tool()}
    assert told(changed(("/tools", both))) == set()
    lacking = changed(("/tools", both), ("/meta", GONE))
    assert told(lacking) == {("VAL100", "/tools/getB/meta")}
    assert told(changed(("/meta", GONE))) == {("VAL100", "/meta")}
    assert kit.worst(lacking, "VAL100") == "error"
    assert kit.worst(lacking, "VAL100", "compat") == "warning"
