"""The rules of shared lists: their files, references to them, filters, versions, dependencies."""

from __future__ import annotations

import pytest

import kit
from callpact.sources.flowmcp.check.file_check import gather_lists, read_list
from callpact.sources.flowmcp.check.rules.list_rules import resolve_lists

changed, told, GONE, STATIONS = kit.changed, kit.told, kit.GONE, kit.STATIONS
CODE = "export const handlers = ( { sharedLists } ) => ({ a: sharedLists.stations })"


def listed(*changes, profile="strict", data=STATIONS):
    """What is told about a list file."""
    read = read_list(kit.exported(kit.put(data, *changes), "list"), "stations.mjs", profile)
    return {(found.code, found.path) for found in read.findings}


def reference(**fields):
    return {"ref": "stations", "version": "1.2.0", **fields}


def refers(*references, lists=(STATIONS,), profile="strict"):
    """What is told about the references of a file whose hooks use the list."""
    main = changed(("/sharedLists", list(references)))
    return told(main, profile, lists=lists, code=CODE)


def resolved(**fields):
    """The aliases of the entries that a file sees."""
    main = changed(("/sharedLists", [reference(**fields)]))
    found, hits = resolve_lists(main, kit.read_lists(STATIONS))
    assert hits == ()
    return [entry["alias"] for entry in found["stations"]]


# --- list files -----------------------------------------------------------------------------


def test_a_list_that_keeps_every_rule_has_no_findings():
    assert listed() == set()


@pytest.mark.parametrize(
    ("pointer", "value", "code"),
    [
        ("/meta", [], "LST002"),
        ("/meta/name", GONE, "LST002"),
        ("/meta/name", 5, "LST002"),
        ("/meta/name", "Weather-Stations", "VAL145"),
        ("/meta/version", GONE, "LST003"),
        ("/meta/version", "1.2", "LST003"),
        ("/meta/description", GONE, "VAL144"),
        ("/meta/fields", GONE, "LST004"),
        ("/meta/fields", [], "LST004"),
        ("/meta/fields", {}, "LST004"),
        ("/meta/fields/0/key", "", "LST005"),
        ("/meta/fields/0/type", "object", "LST005"),
        ("/meta/fields/0/type", ["string"], "LST005"),
        ("/meta/fields/2/key", "alias", "LST005"),
        ("/meta/fields/0/description", GONE, "VAL144"),
        ("/meta/dependsOn", "stations", "LST009"),
        ("/entries", GONE, "LST006"),
        ("/entries", [], "LST006"),
        ("/entries/0", "oslo", "LST007"),
        ("/entries/0/alias", GONE, "LST007"),
        ("/entries/0/alias", None, "LST008"),
        ("/entries/0/height", "94", "LST008"),
        ("/entries/0/height", True, "LST008"),
        ("/entries/0/isOpen", 1, "LST008"),
        ("/entries/0/colour", "red", "VAL146"),
    ],
)
def test_a_list_that_breaks_a_rule_is_told_at_its_place(pointer, value, code):
    assert (code, pointer) in listed((pointer, value))


def test_an_entry_is_flat():
    assert listed(("/entries/0/code", {"a": 1})) == {("LST008", "/entries/0/code")}
    both = {("VAL146", "/entries/0/more"), ("LST008", "/entries/0/more")}
    assert listed(("/entries/0/more", [])) == both


@pytest.mark.parametrize("optional", [None, GONE])
def test_an_optional_field_may_be_null_or_missing(optional):
    assert listed(("/entries/0/code", optional)) == set()


def test_missing_descriptions_do_not_keep_a_list_from_use_in_compat():
    text = kit.exported(kit.put(STATIONS, ("/meta/fields/0/description", GONE)), "list")
    assert read_list(text, "a.mjs").list.name == "stations"
    assert read_list(text, "a.mjs", "strict").list is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("export const lists = {}", "LST001"),
        ("export const list = 'a'", "LST001"),
        ("const list = {}", "LST001"),
        ("", "LST001"),
        ("export const list = { meta: a }", "SEC019"),
        ("export const list = { entries: [ ...a ] }", "SEC019"),
        ("export const list = { entries: [ () => 1 ] }", "SEC201"),
        ("export const list = { a: function () {} }", "SEC200"),
        ("export const list = { a: `${ b }` }", "SEC203"),
        ("export const list = { a: await b }", "SEC202"),
        ("import a from 'b'\nexport const list = {}", "SEC204"),
        ("export const list = { a: '" + "x" * 600_000 + "' }", "VAL135"),
    ],
)
def test_a_list_file_is_data_and_nothing_else(text, code):
    read = read_list(text, "a.mjs")
    assert read.list is None
    assert code in {found.code for found in read.findings}
    assert all(found.line for found in read.findings)


@pytest.mark.parametrize("more", ["export const main = {}", "export const handlers = () => {}"])
def test_a_list_file_exports_one_thing(more):
    read = read_list(f"{kit.exported(STATIONS, 'list')}{more}", "a.mjs")
    assert "VAL140" in {found.code for found in read.findings}


# --- references -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (reference(), set()),
        (reference(filter={"key": "code", "exists": True}), set()),
        ("stations", {("VAL024", "/sharedLists/0")}),
        ({"version": "1.2.0"}, {("VAL070", "/sharedLists/0/ref")}),
        ({"name": "stations", "version": "1.2.0"}, {("VAL070", "/sharedLists/0/ref")}),
        ({"ref": "stations"}, {("VAL071", "/sharedLists/0/version")}),
        (reference(version="1.2"), {("VAL071", "/sharedLists/0/version")}),
        (reference(version=1), {("VAL071", "/sharedLists/0/version")}),
        (reference(version="2.2.0"), {("VAL073", "/sharedLists/0/version")}),
        (reference(version="1.3.0"), {("VAL123", "/sharedLists/0/version")}),
        (reference(filter=None), {("VAL074", "/sharedLists/0/filter")}),
        (reference(filter={}), {("VAL074", "/sharedLists/0/filter")}),
        (reference(filter={"key": "code"}), {("VAL074", "/sharedLists/0/filter")}),
        (reference(filter={"exists": True}), {("VAL074", "/sharedLists/0/filter")}),
        (reference(filter={"field": "code", "value": 1}), {("VAL074", "/sharedLists/0/filter")}),
        (
            reference(filter={"key": "code", "exists": True, "value": 1}),
            {("VAL074", "/sharedLists/0/filter")},
        ),
        (
            reference(filter={"key": "code", "exists": 1}),
            {("VAL074", "/sharedLists/0/filter/exists")},
        ),
        (reference(filter={"key": "code", "in": "a"}), {("VAL074", "/sharedLists/0/filter/in")}),
        (
            reference(filter={"key": "kode", "exists": True}),
            {("VAL074", "/sharedLists/0/filter/key")},
        ),
    ],
)
def test_a_reference_names_a_list_a_version_and_perhaps_a_filter(given, found):
    assert refers(given) == found


def test_a_list_that_is_not_there_is_told_with_the_nearest_one():
    main = changed(("/sharedLists", [reference(ref="station")]))
    findings = kit.checked(main, lists=[STATIONS], code="").findings
    assert [(f.code, f.path) for f in findings if f.code != "VAL075"] == [
        ("VAL072", "/sharedLists/0/ref")
    ]
    assert "did you mean 'stations'?" in findings[1].message


def test_a_list_is_referred_to_once():
    assert refers(reference(), reference()) == {("VAL139", "/sharedLists/1")}


def test_a_list_that_nobody_uses_is_told():
    main = changed(("/sharedLists", [reference()]))
    assert told(main, lists=[STATIONS]) == {("VAL075", "/sharedLists/0")}


def test_versions_are_exact_in_strict_and_of_the_same_major_in_compat():
    main = changed(("/sharedLists", [reference(version="1.0.0")]))
    assert kit.worst(main, "VAL123", lists=[STATIONS]) == "error"
    checked = kit.checked(main, "compat", lists=[STATIONS], code=CODE)
    assert [(f.code, f.severity) for f in checked.findings] == [("VAL123", "warning")]
    assert len(checked.shared_lists["stations"]) == 4
    other = changed(("/sharedLists", [reference(version="2.0.0")]))
    assert kit.checked(other, "compat", lists=[STATIONS]).manifest is None


# --- what a file sees -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filtered", "aliases"),
    [
        ({"key": "code", "exists": True}, ["oslo", "lima"]),
        ({"key": "code", "exists": False}, ["bern", "rome"]),
        ({"key": "isOpen", "value": True}, ["oslo", "lima"]),
        ({"key": "height", "value": True}, []),
        ({"key": "height", "value": 1}, ["rome"]),
        ({"key": "height", "value": "1"}, []),
        ({"key": "code", "value": None}, ["bern"]),
        ({"key": "height", "in": [94, 1.5, "1"]}, ["oslo", "lima"]),
        ({"key": "isOpen", "in": [1, 0, [], {}]}, []),
        ({"key": "alias", "in": []}, []),
    ],
)
def test_a_filter_is_strict_about_types(filtered, aliases):
    assert resolved(filter=filtered) == aliases


def test_without_a_filter_every_entry_is_seen():
    assert resolved() == ["oslo", "bern", "rome", "lima"]


def test_nobody_can_change_what_a_file_sees():
    main = changed(("/sharedLists", [reference()]))
    entries = kit.checked(main, lists=[STATIONS], code=CODE).shared_lists["stations"]
    assert isinstance(entries, tuple)
    with pytest.raises(TypeError):
        entries[0]["alias"] = "paris"


# --- dependencies ---------------------------------------------------------------------------


def depends(name, *on, **more):
    """A list that depends on others, each a name or a whole dependency."""
    wanted = [{"ref": o, "version": "1.2.0"} if isinstance(o, str) else o for o in on]
    return kit.put(STATIONS, ("/meta/name", name), ("/meta/dependsOn", wanted), *more.items())


def chained(*lists):
    """The codes of what is wrong with lists together."""
    read = [read_list(kit.exported(item, "list"), f"{i}.mjs") for i, item in enumerate(lists)]
    _, findings = gather_lists(read)
    return {(found.code, found.place) for found in findings}


def when(field, value):
    return {"ref": "b", "version": "1.2.0", "condition": {"field": field, "value": value}}


@pytest.mark.parametrize(
    ("lists", "found"),
    [
        ([depends("a", "b"), depends("b")], set()),
        ([depends("a", "b"), depends("b", "c"), depends("c")], set()),
        ([depends("a", "b")], {("LST009", "0.mjs")}),
        (
            [depends("a", {"ref": "b", "version": "1.0.0"}), depends("b")],
            {("LST009", "0.mjs")},
        ),
        ([depends("a", "a")], {("LST010", "0.mjs")}),
        ([depends("a", "b"), depends("b", "a")], {("LST010", "0.mjs"), ("LST010", "1.mjs")}),
        (
            [depends("a", "b"), depends("b", "c"), depends("c", "d"), depends("d")],
            {("LST011", "0.mjs")},
        ),
        ([depends("a", when("alias", "oslo")), depends("b")], set()),
        ([depends("a", when("alias", "paris")), depends("b")], {("LST009", "0.mjs")}),
        ([depends("a", when("height", True)), depends("b")], {("LST009", "0.mjs")}),
        ([depends("a", when("nothing", 1)), depends("b")], {("LST009", "0.mjs")}),
        ([depends("a", when("alias", ["oslo"])), depends("b")], {("LST009", "0.mjs")}),
        ([depends("a"), depends("a")], {("LST002", "1.mjs")}),
    ],
)
def test_lists_depend_on_lists_at_most_three_deep_and_never_in_a_circle(lists, found):
    assert chained(*lists) == found


@pytest.mark.parametrize(
    "wanted",
    ["b", {"ref": "b"}, {"version": "1.0.0"}, {"ref": "b", "version": "1"}]
    + [
        {"ref": "b", "version": "1.0.0", "condition": c}
        for c in (None, {"field": "a"}, {"value": 1})
    ],
)
def test_a_dependency_names_a_list_a_version_and_perhaps_a_condition(wanted):
    found = listed(("/meta/dependsOn", [wanted]))
    assert {code for code, _ in found} == {"LST009"}


def test_what_is_wrong_with_the_lists_behind_a_list_is_told_where_it_is_used():
    lists = [depends("stations", "b")]
    assert refers(reference(), lists=lists) == {("LST009", "/sharedLists/0/ref")}


def test_a_great_many_dependencies_are_looked_at_once():
    wanted = [when("alias", "oslo") for _ in range(2_000)]
    lists = [depends("a", *wanted), depends("b", *(["c"] * 2_000)), depends("c")]
    assert chained(*lists) == set()
