"""The rules of resources that need no SQL."""

from __future__ import annotations

import pytest

import kit

changed, GONE = kit.changed, kit.GONE
SQLITE = {
    "source": "sqlite",
    "mode": "in-memory",
    "origin": "global",
    "name": "weather-data.db",
    "description": "Past weather",
    "queries": {},
}
MARKDOWN = {"source": "markdown", "origin": "inline", "name": "about.md", "description": "About"}
HTTP = {
    "source": "http",
    "url": "https://example.com/a.db",
    "cacheTtl": 60,
    "description": "Past weather",
    "queries": {},
}
GTFS = {
    "source": "sqlite-gtfs",
    "mode": "file-based",
    "path": "a.db",
    "addon": "gtfs",
    "description": "Trains",
}
GEO = {
    "source": "geo-csv",
    "mode": "url",
    "url": "https://example.com/a.csv",
    "addon": "geo",
    "parseConfig": {},
    "description": "Places",
}
OLD = {"source": "sqlite", "database": "data/a.db", "description": "Past weather", "queries": {}}


def told(main):
    """What is told about a file, but for that its resources are not loaded."""
    return {(code, path) for code, path in kit.told(main) if code != "VAL165"}


def resource(value, *changes):
    """What is told about one resource, places without what stands before."""
    found = told(changed(("/resources", {"pastWeather": kit.put(value, *changes)})))
    return {(code, path.removeprefix("/resources/pastWeather")) for code, path in found}


@pytest.mark.parametrize("profile", ["strict", "compat"])
@pytest.mark.parametrize("others", [{"resources": {"about": MARKDOWN}}, {"skills": ["full-audit"]}])
def test_a_file_without_tools_is_told_as_not_loaded(profile, others):
    (name,) = others
    main = changed(("/tools", {}), (f"/{name}", others[name]))
    (found,) = (f for f in kit.checked(main, profile).findings if f.code == "VAL165")
    assert (found.severity, found.path, found.is_left_out) == ("warning", f"/{name}", True)
    assert f"only {name}" in found.message
    assert "nothing of it is loaded" in found.message


def test_resources_beside_tools_are_told_as_not_loaded_and_the_tools_are():
    main = changed(("/resources", {"about": MARKDOWN}))
    (found,) = (f for f in kit.checked(main).findings if f.code == "VAL165")
    assert (found.severity, found.is_left_out) == ("info", False)


@pytest.mark.parametrize("value", [SQLITE, MARKDOWN, HTTP, GTFS, GEO])
def test_six_sources_are_known(value):
    assert resource(value) == set()


@pytest.mark.parametrize(
    ("value", "field", "new", "found"),
    [
        (SQLITE, "source", "mysql", {("RES001", "/source")}),
        (SQLITE, "source", GONE, {("RES001", "/source")}),
        (SQLITE, "description", "", {("RES002", "/description")}),
        (SQLITE, "mode", GONE, {("RES041", "/mode")}),
        (SQLITE, "mode", "memory", {("RES025", "/mode")}),
        (SQLITE, "mode", [], {("RES025", "/mode")}),
        (SQLITE, "mode", "url", {("RES043", "/mode"), ("RES044", "/url")}),
        (SQLITE, "mode", "file-based", {("RES037", "/origin")}),
        (SQLITE, "origin", GONE, {("RES041", "/origin")}),
        (SQLITE, "origin", "home", {("RES026", "/origin")}),
        (SQLITE, "origin", "inline", {("RES040", "/origin")}),
        (SQLITE, "name", GONE, {("RES041", "/name")}),
        (SQLITE, "name", "Weather.db", {("RES027", "/name")}),
        (SQLITE, "name", "weather.md", {("RES027", "/name")}),
        (SQLITE, "name", "../weather.db", {("RES027", "/name")}),
        (SQLITE, "name", 5, {("RES027", "/name")}),
        (SQLITE, "queries", GONE, {("RES041", "/queries")}),
        (SQLITE, "queries", [], {("RES041", "/queries")}),
        (SQLITE, "queries", {f"q{i}": {} for i in range(8)}, {("RES028", "/queries")}),
        (MARKDOWN, "mode", "in-memory", {("RES038", "/mode")}),
        (MARKDOWN, "queries", {}, {("RES039", "/queries")}),
        (MARKDOWN, "name", "about.db", {("RES027", "/name")}),
        (HTTP, "url", "http://example.com/a.db", {("RES024", "/url")}),
        (HTTP, "url", GONE, {("RES024", "/url")}),
        (HTTP, "cacheTtl", GONE, {("RES041", "/cacheTtl")}),
        (GTFS, "mode", "in-memory", {("RES030", "/mode")}),
        (GTFS, "addon", GONE, {("RES031", "/addon")}),
        (GTFS, "path", GONE, {("RES041", "/path")}),
        (GEO, "parseConfig", GONE, {("RES045", "/parseConfig")}),
        (GEO, "url", 5, {("RES044", "/url")}),
    ],
)
def test_a_field_that_breaks_its_rule_is_told_at_its_place(value, field, new, found):
    assert resource(value, (f"/{field}", new)) == found


@pytest.mark.parametrize(
    ("database", "codes"),
    [
        ("data/a.db", set()),
        ("data/a.sqlite", {"RES003"}),
        ("/etc/a.db", {"RES003"}),
        ("C:\\a.db", {"RES003"}),
        ("~/a.db", {"RES003"}),
        ("data/../../a.db", {"RES004"}),
        ("..\\a.db", {"RES004"}),
        (5, {"RES003"}),
    ],
)
def test_the_old_way_to_name_a_database_is_taken_with_a_warning(database, codes):
    found = resource(OLD, ("/database", database))
    assert found == {("VAL143", "/database"), *((code, "/database") for code in codes)}


def test_two_resources_are_enough():
    two = {"a": MARKDOWN, "b": MARKDOWN}
    assert told(changed(("/resources", two))) == set()
    assert told(changed(("/resources", {**two, "c": MARKDOWN}))) == {("RES005", "/resources")}


def test_the_name_of_a_resource_is_camel_case():
    assert told(changed(("/resources", {"past-weather": MARKDOWN}))) == {
        ("RES017", "/resources/past-weather")
    }


@pytest.mark.parametrize("value", [None, [], "a"])
def test_resources_are_objects(value):
    assert told(changed(("/resources", value))) == {("RES001", "/resources")}
    assert told(changed(("/resources", {"a": value}))) == {("RES001", "/resources/a")}
