"""Pins: digests, the lock file, changes since it was written, and how they are shown."""

from __future__ import annotations

import copy
import json
import os
import stat
import struct
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from callpact.errors import InvalidConfig, InvalidSchema
from callpact.schema import canonical_json
from callpact.schema.hashing import json_digest
from callpact.sources.mcp.hidden_text import visible
from callpact.sources.mcp.pins import (
    MAX_CHANGED_FIELDS,
    MAX_DESCRIBED_LINES,
    MAX_LINE,
    FieldChange,
    Lock,
    PinChange,
    PinnedSource,
    compare,
    concerned,
    describe,
    pinned_definitions,
    read_lock,
    updated,
    write_lock,
)

TOOL = {
    "name": "read_file",
    "title": "Read",
    "description": "Reads a file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "icons": [{"src": "data:,"}],
    "_meta": {"a": 1},
    "x-unknown": [1, 2],
}
PROMPT = {"name": "greet", "description": "Greets.", "arguments": [{"name": "who"}]}
LOOKS = {"name": "files", "version": "1.0"}


def defined(*tools, prompts=(), instructions=None):
    return {
        "tools": list(tools),
        "prompts": list(prompts),
        "instructions": instructions,
        "server": LOOKS,
    }


def pinned(*tools, **others):
    return updated(Lock(), "s", defined(*tools, **others)).sources["s"]


def but(definition=TOOL, **changes):
    return {**definition, **changes}


# --- Digests ---------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
definitions = st.fixed_dictionaries(
    {"name": st.text(min_size=1, max_size=5)},
    optional={"description": st.text(max_size=20), "inputSchema": values, "_meta": values},
)


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def tagged(value):
    """A value in which true, 1, "1" and 1.0 have forms of their own."""
    if isinstance(value, dict):
        return ("object", frozenset((key, tagged(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("array", tuple(tagged(item) for item in value))
    return (type(value).__name__, value)


@given(values)
def test_a_digest_is_blind_to_the_order_of_keys(value):
    assert json_digest(value) == json_digest(reversed_keys(value))


@given(values, values)
def test_a_digest_sees_every_other_change(one, other):
    assert (json_digest(one) == json_digest(other)) == (tagged(one) == tagged(other))


@pytest.mark.parametrize("field", TOOL)
def test_a_digest_covers_every_field_of_a_definition(field):
    without = {key: value for key, value in TOOL.items() if key != field}
    assert json_digest(without) != json_digest(TOOL)
    assert json_digest(but(**{field: None})) != json_digest(TOOL)


def test_a_digest_names_its_algorithm():
    assert (
        json_digest({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    )


# The table of RFC 8785, appendix B.
@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_canonical_json_writes_numbers_as_rfc_8785_does(bits, text):
    assert canonical_json(struct.unpack(">d", bytes.fromhex(bits))[0]) == text


def test_canonical_json_sorts_and_escapes_as_rfc_8785_does():
    value = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji",
        "\u0080": "Control",
        "\u00f6": 'Latin "\u000f\n',
    }
    assert canonical_json(value) == (
        '{"\\r":"Carriage Return","1":"One","\u0080":"Control","ö":"Latin \\"\\u000f\\n",'
        '"€":"Euro Sign","\U0001f600":"Emoji","\ufb33":"Hebrew Letter Dalet With Dagesh"}'
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, {1: 2}, object()])
def test_what_is_not_json_has_no_digest(value):
    with pytest.raises(InvalidSchema):
        json_digest({"name": "x", "inputSchema": value})


# --- The lock file ---------------------------------------------------------------------------------


@given(st.lists(definitions, max_size=4, unique_by=lambda d: d["name"]), st.text() | st.none())
def test_a_lock_is_read_as_it_was_written(tmp_path_factory, tools, instructions):
    path = tmp_path_factory.mktemp("lock") / "callpact.lock"
    lock = updated(Lock(), "s", defined(*tools, prompts=[{"name": "p"}], instructions=instructions))
    write_lock(path, lock)
    assert read_lock(path) == lock
    assert (
        compare(
            read_lock(path).sources["s"],
            defined(*map(reversed_keys, tools), prompts=[{"name": "p"}], instructions=instructions),
        )
        == ()
    )


def test_a_lock_is_the_same_text_for_the_same_definitions(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    b = but(name="b")
    write_lock(one, updated(updated(Lock(), "s", defined(TOOL, b)), "r", defined(b)))
    write_lock(
        other, updated(updated(Lock(), "r", defined(b)), "s", reversed_keys(defined(b, TOOL)))
    )
    assert one.read_bytes() == other.read_bytes()


def test_a_lock_holds_digest_and_definition_one_field_a_line(tmp_path):
    path = tmp_path / "callpact.lock"
    write_lock(path, updated(Lock(), "s", defined(TOOL, prompts=[PROMPT], instructions="Be kind.")))
    raw = json.loads(path.read_text("utf-8"))
    assert raw["version"] == 1
    source = raw["sources"]["s"]
    assert source["server"] == LOOKS
    assert source["tools"]["read_file"] == {"digest": json_digest(TOOL), "definition": TOOL}
    assert source["prompts"]["greet"] == {"digest": json_digest(PROMPT), "definition": PROMPT}
    assert source["instructions"] == {"digest": json_digest("Be kind."), "definition": "Be kind."}
    assert '          "title": "Read"' in path.read_text("utf-8")


def test_hidden_characters_are_escaped_in_the_file_and_others_are_not(tmp_path):
    path = tmp_path / "callpact.lock"
    text = "a\u200bb\U000e0041c\u202ed\x7fe\ud800 Größe 日本"
    lock = updated(Lock(), "s", defined(but(description=text)))
    write_lock(path, lock)
    written = path.read_text("utf-8")
    assert r"a\u200bb\udb40\udc41c\u202ed\u007fe\ud800 Größe 日本" in written
    assert read_lock(path) == lock


def test_there_is_an_empty_lock_where_there_is_no_file(tmp_path):
    assert read_lock(tmp_path / "callpact.lock") == Lock()


def written(tmp_path, change=lambda raw: None):
    path = tmp_path / "callpact.lock"
    write_lock(path, updated(Lock(), "s", defined(TOOL, instructions="x")))
    raw = json.loads(path.read_text("utf-8"))
    change(raw)
    path.write_text(json.dumps(raw), "utf-8")
    return path


def test_a_lock_of_a_newer_callpact_is_refused(tmp_path):
    path = written(tmp_path, lambda raw: raw.update(version=2, news=1))
    with pytest.raises(InvalidConfig, match=r"version 2, this callpact reads 1: update callpact"):
        read_lock(path)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda raw: raw.pop("version"), "/version"),
        (lambda raw: raw.update(version=True), "/version"),
        (lambda raw: raw.update(version=0), "/version"),
        (lambda raw: raw.update(extra=1), "extra"),
        (lambda raw: raw["sources"].update(s=[]), "sources"),
        (lambda raw: raw["sources"]["s"]["tools"]["read_file"].pop("digest"), "digest"),
        (
            lambda raw: raw["sources"]["s"]["tools"]["read_file"]["definition"].update(title="New"),
            "at /sources/s/tools/read_file: the definition does not have this digest",
        ),
        (
            lambda raw: raw["sources"]["s"]["instructions"].update(definition="y"),
            "at /sources/s/instructions: the definition does not have this digest",
        ),
        (
            lambda raw: raw["sources"]["s"]["tools"].update(
                other=raw["sources"]["s"]["tools"]["read_file"]
            ),
            "at /sources/s/tools/other: the definition has another name",
        ),
    ],
)
def test_a_damaged_lock_is_refused_with_the_place_and_the_remedy(tmp_path, change, where):
    with pytest.raises(InvalidConfig) as refused:
        read_lock(written(tmp_path, change))
    assert where in str(refused.value)
    assert "restore it from version control" in str(refused.value)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"", "line 1, column 1"),
        (b'{\n<<<<<<< HEAD\n"version": 1}', "line 2, column 1"),
        (b'{"version": 1, "version": 1}', "'version' is there twice"),
        (b'{"version": NaN}', "NaN is not a JSON number"),
        (b'{"version": "\xff"}', "not UTF-8 at byte 13"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5_000, ""),
        (b"[]", "/version"),
    ],
)
def test_a_file_that_is_no_lock_is_refused(tmp_path, data, where):
    path = tmp_path / "callpact.lock"
    path.write_bytes(data)
    with pytest.raises(InvalidConfig) as refused:
        read_lock(path)
    assert where in str(refused.value)


def test_a_lock_that_is_too_large_is_neither_read_nor_written(tmp_path, monkeypatch):
    path = written(tmp_path)
    before = path.read_bytes()
    monkeypatch.setattr("callpact.sources.mcp.pins.MAX_LOCK_BYTES", 100)
    with pytest.raises(InvalidConfig, match="larger than 100 bytes"):
        read_lock(path)
    with pytest.raises(InvalidConfig, match="larger than 100 bytes"):
        write_lock(path, Lock({"s": pinned(TOOL)}))
    assert path.read_bytes() == before


def test_a_lock_that_cannot_be_read_or_written_is_an_error_of_configuration(tmp_path):
    with pytest.raises(InvalidConfig, match="cannot be read"):
        read_lock(tmp_path)
    with pytest.raises(InvalidConfig, match="cannot be written"):
        write_lock(tmp_path / "none" / "callpact.lock", Lock())


@pytest.mark.skipif(os.name == "nt", reason="modes and links of POSIX")
def test_writing_keeps_the_mode_and_the_link_and_leaves_nothing_behind(tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "callpact.lock").symlink_to(real / "callpact.lock")
    write_lock(tmp_path / "callpact.lock", Lock())
    assert stat.S_IMODE((real / "callpact.lock").stat().st_mode) == 0o644
    (real / "callpact.lock").chmod(0o600)
    write_lock(tmp_path / "callpact.lock", Lock({"s": pinned(TOOL)}))
    assert stat.S_IMODE((real / "callpact.lock").stat().st_mode) == 0o600
    assert read_lock(real / "callpact.lock").sources.keys() == {"s"}
    assert [path.name for path in real.iterdir()] == ["callpact.lock"]


# --- Comparing -------------------------------------------------------------------------------------


@given(st.lists(definitions, max_size=5, unique_by=lambda d: d["name"]))
def test_equal_definitions_have_no_changes(tools):
    now = defined(*tools, prompts=tools, instructions="x")
    source = updated(Lock(), "s", now).sources["s"]
    assert compare(source, reversed_keys(copy.deepcopy(now))) == ()


@given(definitions, definitions)
def test_a_definition_has_changed_fields_if_its_digest_is_another(one, other):
    other = {**other, "name": one["name"]}
    changes = compare(pinned(one), defined(other))
    assert bool(changes) == (json_digest(one) != json_digest(other))
    assert all(change.kind == "changed" and change.fields for change in changes)


def test_an_unpinned_source_has_nothing_but_added_definitions():
    now = defined(TOOL, prompts=[PROMPT], instructions="x")
    changes = compare(PinnedSource(), now)
    assert [(change.kind, change.label) for change in changes] == [
        ("added", "read_file"),
        ("added", "prompt:greet"),
        ("added", "server:instructions"),
    ]


def test_changed_fields_are_named_by_their_pointers():
    schema = {"type": "object", "properties": {"path": {"type": "integer"}, "a/b": {}}}
    now = but(inputSchema=schema, _meta={"a": True})
    now.pop("title")
    (change,) = compare(pinned(TOOL), defined(now))
    assert change.kind == "changed"
    assert change.fields == (
        FieldChange("/_meta/a", 1, True),
        FieldChange("/inputSchema/properties/a~1b", UNSET, {}),
        FieldChange("/inputSchema/properties/path/type", "string", "integer"),
        FieldChange("/title", "Read", UNSET),
    )


def test_added_and_removed_definitions_are_reported():
    changes = compare(
        pinned(TOOL, instructions="x"), defined({"name": "b", "description": "Else."})
    )
    assert [(change.kind, change.part, change.name) for change in changes] == [
        ("added", "tool", "b"),
        ("removed", "tool", "read_file"),
        ("removed", "instructions", ""),
    ]


@pytest.mark.parametrize(
    ("now", "kinds"),
    [
        (but(name="read"), ["renamed"]),
        (but(name="read", title="Other", annotations={}), ["renamed"]),
        (but(name="read", description="Writes a file."), ["added", "removed"]),
        (but(name="read", inputSchema={}), ["added", "removed"]),
    ],
)
def test_a_renamed_tool_has_the_same_schemas_and_description(now, kinds):
    changes = compare(pinned(TOOL), defined(now))
    assert [change.kind for change in changes] == kinds
    if kinds == ["renamed"]:
        assert (changes[0].name, changes[0].previous) == ("read", "read_file")
        assert FieldChange("/name", "read_file", "read") in changes[0].fields


def test_tools_without_a_description_are_renamed_only_if_all_else_is_equal():
    assert [c.kind for c in compare(pinned({"name": "a"}), defined({"name": "b"}))] == ["renamed"]
    changes = compare(pinned({"name": "a"}), defined({"name": "b", "title": "B"}))
    assert [change.kind for change in changes] == ["added", "removed"]


def test_a_prompt_is_no_renamed_tool():
    changes = compare(pinned({"name": "a"}), defined(prompts=[{"name": "b"}]))
    assert [(change.kind, change.part) for change in changes] == [
        ("added", "prompt"),
        ("removed", "tool"),
    ]


def test_of_several_candidates_each_is_renamed_once():
    changes = compare(
        pinned(but(name="a"), but(name="b")), defined(but(name="c"), but(name="d"), but(name="e"))
    )
    assert [(c.kind, c.previous, c.name) for c in changes] == [
        ("renamed", "a", "c"),
        ("renamed", "b", "d"),
        ("added", None, "e"),
    ]


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ([TOOL, but(title="Evil")], "several definitions of this name"),
        ([but(title="Evil"), TOOL], "several definitions of this name"),
        ([TOOL, but(title="Evil"), TOOL], "several definitions of this name"),
        ([but(_meta=float("nan"))], "not a JSON number"),
    ],
)
def test_a_definition_that_cannot_be_pinned_is_a_change_for_ever(tools, reason):
    (change,) = compare(pinned(TOOL), defined(*tools))
    assert change.kind == "changed"
    assert reason in change.reason
    assert reason in "\n".join(describe(change))
    (change,) = compare(PinnedSource(), defined(*tools))
    assert change.kind == "added"
    with pytest.raises(InvalidConfig, match=f"read_file cannot be pinned: .*{reason}"):
        updated(Lock(), "s", defined(*tools))


def test_a_definition_listed_twice_alike_is_one():
    assert compare(pinned(TOOL), defined(TOOL, reversed_keys(TOOL))) == ()


def test_entries_without_a_name_are_left_out():
    assert compare(PinnedSource(), {"tools": [1, None, {}, {"name": 2}], "prompts": "x"}) == ()


def test_the_changed_fields_of_one_definition_are_bounded():
    many = but(_meta={f"k{i}": i for i in range(5 * MAX_CHANGED_FIELDS)})
    (change,) = compare(pinned(TOOL), defined(many))
    assert len(change.fields) == MAX_CHANGED_FIELDS
    assert change.is_cut
    assert describe(change)[-1] == "  … more changes are not shown"


# --- Accepting -------------------------------------------------------------------------------------


def test_only_accepted_changes_are_pinned():
    now = defined(but(title="New"), but(name="b", title="New"), instructions="new")
    lock = Lock({"s": pinned(TOOL, but(name="b"), but(name="c", title="C"), instructions="old")})
    accepted = updated(lock, "s", now, accept=["b", "server:instructions"])
    assert [c.label for c in compare(accepted.sources["s"], now)] == ["read_file", "c"]
    accepted = updated(accepted, "s", now, accept={"c"})
    assert accepted.sources["s"].tools.keys() == {"read_file", "b"}
    assert compare(updated(accepted, "s", now).sources["s"], now) == ()


def test_accepting_leaves_the_other_sources_and_the_given_lock_alone():
    lock = Lock({"r": pinned(TOOL), "s": pinned(TOOL)})
    after = updated(lock, "s", defined(but(title="New")))
    assert after.sources["r"] is lock.sources["r"]
    assert lock.sources["s"].tools["read_file"].digest == json_digest(TOOL)


@pytest.mark.parametrize("label", ["read", "read_file"])
def test_a_renamed_tool_is_accepted_by_either_name(label):
    lock = Lock({"s": pinned(TOOL)})
    after = updated(lock, "s", defined(but(name="read")), accept=[label])
    assert after.sources["s"].tools.keys() == {"read"}


def test_labels_are_unambiguous():
    now = defined({"name": "prompt:x"}, {"name": "x"}, prompts=[{"name": "x"}])
    labels = [change.label for change in compare(PinnedSource(), now)]
    assert labels == ["tool:prompt:x", "x", "prompt:x"]
    after = updated(Lock(), "s", now, accept=["prompt:x"]).sources["s"]
    assert (after.tools, after.prompts.keys()) == ({}, {"x"})


NOTE = {"uri": "notes://1", "name": "note", "description": "A note."}
NOTES = {"uriTemplate": "notes://{number}", "name": "notes"}


def offered(resources=(NOTE,), templates=(NOTES,)):
    return {**defined(), "resources": list(resources), "templates": list(templates)}


def test_changed_resources_and_templates_are_changes_by_their_addresses(tmp_path):
    lock = updated(Lock(), "s", offered())
    write_lock(tmp_path / "lock", lock)
    assert read_lock(tmp_path / "lock") == lock
    now = offered([but(NOTE, description="Another.")], [but(NOTES, title="New")])
    changes = compare(lock.sources["s"], now)
    assert [(change.kind, change.label) for change in changes] == [
        ("changed", "resource:notes://1"),
        ("changed", "template:notes://{number}"),
    ]
    after = updated(lock, "s", now, accept=["resource:notes://1"])
    assert [change.part for change in compare(after.sources["s"], now)] == ["template"]


def test_resources_come_and_go_and_templates_do_not():
    lock = updated(Lock(), "s", offered())
    now = offered([but(NOTE, uri="notes://2")], [but(NOTES, uriTemplate="n://{a}"), NOTES])
    assert [change.label for change in compare(lock.sources["s"], now)] == ["template:n://{a}"]
    after = updated(lock, "s", now, accept=[]).sources["s"]
    assert after.resources.keys() == {"notes://2"}
    assert after.templates.keys() == {"notes://{number}"}
    gone = compare(lock.sources["s"], offered(templates=()))
    assert [(change.kind, change.part) for change in gone] == [("removed", "template")]


def test_the_definitions_that_changes_are_about_are_selected_on_both_sides():
    before = {**offered(), **defined(TOOL, but(name="b"), but(name="c"), prompts=[PROMPT])}
    now = {**before, "tools": [but(title="New"), but(name="b"), but(name="d")], "resources": []}
    source = updated(Lock(), "s", before).sources["s"]
    changes = compare(source, now)
    assert [change.kind for change in changes] == ["changed", "renamed"]
    nothing = {"prompts": (), "resources": (), "templates": ()}
    pins = pinned_definitions(source)
    assert concerned(pins, changes) == {"tools": (TOOL, but(name="c")), **nothing}
    assert concerned(now, changes) == {"tools": (but(title="New"), but(name="d")), **nothing}


def test_a_definition_that_cannot_be_pinned_is_in_no_comparison():
    now = {**offered(), "tools": [TOOL, but(title="Twice")]}
    changes = compare(PinnedSource(), now)
    assert concerned(now, changes)["tools"] == ()


def test_to_accept_an_unknown_name_is_an_error_and_an_unchanged_one_nothing():
    lock = Lock({"s": pinned(TOOL)})
    assert updated(lock, "s", defined(TOOL), accept=["read_file"]) == lock
    with pytest.raises(InvalidConfig, match=r"no 'read_fil' to accept; did you mean 'read_file'\?"):
        updated(lock, "s", defined(TOOL), accept=["read_fil"])


def test_a_definition_that_cannot_be_pinned_hinders_no_other():
    now = defined(but(title="New"), but(name="b", _meta=float("inf")))
    after = updated(Lock({"s": pinned(TOOL)}), "s", now, accept=["read_file"])
    assert [change.label for change in compare(after.sources["s"], now)] == ["b"]


def test_only_the_texts_of_the_servers_name_and_version_are_kept():
    now = {**defined(), "server": {"name": "n" * 1_000, "version": 1, "more": "x"}}
    assert updated(Lock(), "s", now).sources["s"].server == {"name": "n" * 200}


# --- Showing ---------------------------------------------------------------------------------------


def shown(before, after):
    (change,) = compare(pinned(but(description=before)), defined(but(description=after)))
    return describe(change)


def test_a_changed_description_is_shown_as_a_diff():
    assert shown("Reads.\nA file.\nOnly text.\nFast.", "Reads.\nAny file.\nOnly text.\nFast.") == [
        "changed tool read_file",
        "  /description:",
        "      Reads.",
        "    - A file.",
        "    + Any file.",
        "      Only text.",
        "      Fast.",
    ]


def test_other_values_are_shown_as_json():
    (change,) = compare(pinned(TOOL), defined(but(_meta={"a": [1]}, annotations=None)))
    assert describe(change)[1:] == [
        "  /_meta/a: 1 → [1]",
        '  /annotations: {"readOnlyHint":true} → null',
    ]


def test_every_field_of_an_added_tool_is_shown():
    (change,) = compare(PinnedSource(), defined({"name": "b", "inputSchema": {"a": {"b": 1}}}))
    assert describe(change) == [
        "added tool b",
        "  /inputSchema/a/b: (absent) → 1",
        "  /name:",
        "    + b",
    ]


def test_instructions_removed_and_renamed_ones_have_their_titles():
    (change,) = compare(pinned(instructions="a"), defined(instructions="b"))
    assert describe(change) == ["changed instructions", "  text:", "    - a", "    + b"]
    assert describe(PinChange("removed", "prompt", "x")) == ["removed prompt x"]
    (change,) = compare(pinned(TOOL), defined(but(name="re\u0430d_file")))
    assert describe(change)[0] == "renamed tool read_file to re<U+0430>d_file"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Reads\u200b a file.", "Reads<U+200B> a file."),
        ("Reads \U000e0041a file.", "Reads <U+E0041>a file."),
        ("\u202eReads a file.", "<U+202E>Reads a file."),
        ("Reads a file\ufe0f.", "Reads a file<U+FE0F>."),
        ("Reads\xa0a file.", "Reads<U+00A0>a file."),
        ("\x1b[8mReads a file.", "<U+001B>[8mReads a file."),
        ("Reads a file.\r", "Reads a file.<U+000D>"),
        ("Reads a file. ", "Reads a file.<U+0020>"),
        ("Re\u0430ds a file.", "Re<U+0430>ds a file."),
        ("Reads a \U0001d41file.", "Reads a <U+1D41F>ile."),
        ("Читает файл.", "Читает файл."),
    ],
)
def test_a_change_that_cannot_be_seen_is_made_visible(text, line):
    assert f"    + {line}" in shown("Reads a file.", text)


VISIBLE_FORMAT = {0x0600, 0x0601, 0x0602, 0x0603, 0x0604, 0x0605, 0x06DD, 0x08E2, 0x110BD, 0x110CD}
VISIBLE_FORMAT |= {0x0890, 0x0891}
IGNORABLE = {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}
IGNORABLE |= {*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0000, 0xE1000)}


def is_invisible(char):
    if ord(char) in IGNORABLE:
        return True
    if ord(char) in VISIBLE_FORMAT or char == " ":
        return False
    return unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs"}


def test_no_invisible_character_stays_invisible():
    hidden = [char for char in map(chr, range(0x110000)) if is_invisible(char)]
    assert [hex(ord(char)) for char in hidden if visible(char) == char] == []


odd = st.text(
    st.sampled_from([*"ab \n\t\r\x00\x1b", *map(chr, sorted(IGNORABLE))]) | st.characters(),
    max_size=30,
)


@given(odd, odd, odd, odd)
def test_a_described_change_has_no_invisible_character(name, before, after, key):
    source = pinned({"name": name, "description": before}, instructions=before)
    now = defined({"name": name, "description": after, key: after, "m": {key: [after]}})
    for change in compare(source, {**now, "instructions": after}):
        for line in describe(change):
            assert not any(map(is_invisible, line))


@pytest.mark.parametrize(
    "after",
    [
        "x" * 1_000_000,
        "x\n" * 500_000,
        "".join(f"{i}\n" for i in range(100_000)),
        "\u200b" * 1_000_000,
        "word " * 200_000,
    ],
)
def test_a_huge_description_has_a_bounded_diff(after):
    for before in ("", after[:-1], f"y{after[::-1]}"):
        lines = shown(before, after)
        assert 2 < len(lines) <= MAX_DESCRIBED_LINES
        assert max(map(len, lines)) <= MAX_LINE * len("<U+200B>") + 100


def test_a_change_late_in_a_long_line_is_shown():
    lines = shown("x" * 100_000 + "good", "x" * 100_000 + "evil")
    assert any(line.endswith("xxgood") for line in lines)
    assert any(line.endswith("xxevil") for line in lines)


def test_lines_that_are_not_compared_are_counted():
    lines = shown("a", "\n".join(map(str, range(1_000))))
    assert lines[-1].strip() == "… 800 more lines were not compared"
