"""Results that are too large: pages of whole items, previews, what is kept, and for whom."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callpact.catalog import Catalog
from callpact.envelope import ImageBlock, TextBlock, mcp_envelope
from callpact.runtime import Runtime
from callpact.tool import Contract, Tool
from callpact.wire.mcp.results import encode_kept, encode_page, encode_result
from callpact.wire.paging import (
    PREVIEW,
    SCHEME,
    Items,
    KeptResults,
    Paging,
    cut,
    preview,
    take_apart,
)

ERAS = pytest.mark.parametrize("modern", [True, False], ids=["2026-07-28", "2025-11-25"])
LIMIT = 1_000
ROWS = [{"id": n, "name": f"row {n} ü"} for n in range(200)]
ROWS_SCHEMA = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"type": "object"}}},
    "required": ["rows"],
}
LONG = "word " * 1_000


def make_tool(answer=None, output=None, policy=None, **more) -> Tool:
    async def handler(arguments, context):
        return answer

    contract = Contract(output=output, policy=policy)
    return Tool(id="a.b", description="Does.", contract=contract, handler=handler, **more)


def make_paging(owner="ann", limit=LIMIT, **more) -> Paging:
    return Paging(KeptResults(**more), owner, limit)


def call(tool: Tool, paging: Paging, *, modern: bool = True, **more) -> dict:
    envelope = asyncio.run(Runtime(Catalog([tool])).execute("a.b", {}))
    return encode_result(envelope, tool, modern=modern, paging=paging, **more)


def links_of(result: dict) -> list[dict]:
    return [block for block in result["content"] if block["type"] == "resource_link"]


def whole_of(result: dict, paging: Paging) -> dict:
    (link,) = links_of(result)
    (content,) = encode_kept(link["uri"], paging)["contents"]
    assert content["mimeType"] == link["mimeType"]
    return content


# --- taking apart and cutting ---------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 7, "text", [], {}, {"a": 1}, {"a": {"b": [1]}}, {"a": []}])
def test_a_value_without_a_list_at_its_first_two_levels_is_not_taken_apart(value):
    assert take_apart(value) is None


def test_the_longest_list_is_told_by_its_text_and_not_by_its_items():
    value = {"ids": list(range(20)), "a/b~c": ["x" * 100], "n": 1}
    items = take_apart(value)
    assert items.path == "/a~1b~0c"
    assert items.texts == (b'"%s"' % (b"x" * 100),)
    assert json.loads(items.json()) == value
    assert list(json.loads(items.json())) == list(value)


@pytest.mark.parametrize("value", [ROWS, {"n": 1, "rows": ROWS, "z": [1]}])
def test_a_page_holds_as_many_whole_items_as_fit(value):
    page = cut(take_apart(value), LIMIT)
    rows = page.value if isinstance(value, list) else page.value["rows"]
    assert rows == ROWS[: page.shown]
    assert 0 < page.shown < page.total == len(ROWS)
    assert page.size == len(
        json.dumps(page.value, ensure_ascii=False, separators=(",", ":")).encode()
    )
    assert page.size <= LIMIT
    next_item = json.dumps(ROWS[page.shown], ensure_ascii=False, separators=(",", ":"))
    assert page.size + len(next_item.encode()) + 1 > LIMIT
    assert page.next == page.shown


def test_a_page_that_fits_to_the_byte_is_not_cut_short():
    items = take_apart([1, 22, 333])
    assert cut(items, len(b"[1,22,333]")).shown == 3
    assert cut(items, len(b"[1,22,333]") - 1).shown == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


def listed(value, path: str):
    return value if not path else value[path[1:].replace("~1", "/").replace("~0", "~")]


@given(value=JSON, limit=st.integers(1, 200))
def test_all_pages_together_are_the_whole_list_and_nothing_twice(value, limit):
    items = take_apart(value)
    if items is None:
        return
    seen, start = [], 0
    while start is not None:
        page = cut(items, limit, start)
        assert page.size <= limit or page.shown == 1
        here = listed(page.value, items.path)
        assert len(here) == page.shown
        seen += here
        here[:] = listed(value, items.path)
        assert page.value == value
        start = page.next
    assert seen == listed(value, items.path)
    assert json.loads(items.json()) == value
    assert items.size == len(items.json())


def test_what_was_taken_apart_is_not_changed_by_what_a_handler_does_later():
    value = {"rows": [{"n": 1}, {"n": 2}], "total": {"n": 2}}
    items = take_apart(value)
    value["rows"][0]["n"] = value["total"]["n"] = 9
    assert json.loads(items.json()) == {"rows": [{"n": 1}, {"n": 2}], "total": {"n": 2}}


def test_items_with_integers_beyond_64_bits_stay_what_they_are():
    value = {"rows": [10**30, 1], "n": 10**40}
    assert cut(take_apart(value), 10_000).value == value


# --- previews -------------------------------------------------------------------------------


@given(JSON)
def test_a_preview_is_short_and_no_json_of_a_structure(value):
    shown = preview(value)
    assert len(shown) < 6_000
    if isinstance(value, dict | list):
        with pytest.raises(json.JSONDecodeError):
            json.loads(shown)


def test_a_preview_of_text_is_its_beginning():
    assert preview(LONG) == LONG[:PREVIEW] + "…"
    assert preview("short") == "short"


def test_a_preview_of_an_object_names_its_keys_and_what_they_hold():
    lines = preview({"a": {"x": 1}, "b": [1, 2], "c": "y" * 500, "d": 5}).splitlines()
    assert lines == [
        "An object with 4 keys:",
        "- a: an object with 1 key",
        "- b: a list of 2 items",
        "- c: a text of 500 characters",
        "- d: 5",
    ]


# --- what is kept ---------------------------------------------------------------------------


def keep(results, content=b"x", owner="ann"):
    return results.keep(content, owner=owner, tool_id="a.b")


def test_a_result_is_found_by_its_owner_only():
    results = KeptResults()
    kept = keep(results, b"tea")
    assert results.find(kept.uri, "ann").read() == b"tea"
    assert results.find(kept.uri, "bob") is None
    assert results.find(kept.uri, None) is None
    nobodys = keep(results, owner=None)
    assert results.find(nobodys.uri, None) is nobodys
    assert results.find(nobodys.uri, "") is None


def test_a_cursor_is_good_for_its_owner_and_its_store_only():
    results = KeptResults()
    kept = keep(results, take_apart([1, 2]))
    cursor = results.cursor(kept, 1)
    assert results.at(cursor, "ann") == (kept, 1)
    assert results.at(cursor, "bob") is None
    assert results.at(cursor, None) is None
    assert KeptResults().at(cursor, "ann") is None


def test_no_changed_cursor_is_taken():
    results = KeptResults()
    cursor = results.cursor(keep(results, take_apart([1, 2])), 1)
    raw = bytearray(base64.urlsafe_b64decode(cursor + "=="[: -len(cursor) % 4]))
    for place in range(len(raw)):
        changed = bytes([*raw[:place], raw[place] ^ 1, *raw[place + 1 :]])
        assert results.at(base64.urlsafe_b64encode(changed).decode(), "ann") is None


@given(
    st.text(max_size=80)
    | st.binary(max_size=60).map(lambda b: base64.urlsafe_b64encode(b).decode())
)
def test_what_is_no_cursor_and_no_uri_is_not_found(text):
    results = KeptResults()
    keep(results)
    assert results.at(text, "ann") is None
    assert results.find(text, "ann") is None
    assert results.find(SCHEME + text, "ann") is None


def test_the_oldest_go_when_there_are_too_many():
    results = KeptResults(results=2)
    first, second, third = (keep(results) for _ in range(3))
    assert results.find(first.uri, "ann") is None
    assert results.find(second.uri, "ann") is second
    assert results.find(third.uri, "ann") is third
    assert len(results) == 2


def test_the_oldest_go_when_they_are_too_large_together():
    results = KeptResults(size=10)
    first, second = keep(results, b"x" * 6), keep(results, b"y" * 5)
    assert results.find(first.uri, "ann") is None
    assert results.find(second.uri, "ann") is second
    assert results.size == 5


def test_what_is_too_large_alone_is_not_kept_and_drives_nothing_out():
    results = KeptResults(size=10)
    first = keep(results)
    assert keep(results, b"x" * 11) is None
    assert results.find(first.uri, "ann") is first


def test_old_results_go():
    now = [0.0]
    results = KeptResults(age=60, clock=lambda: now[0])
    kept = keep(results, take_apart([1, 2]))
    cursor = results.cursor(kept, 1)
    now[0] = 59.9
    assert results.at(cursor, "ann") is not None
    now[0] = 60.0
    assert results.at(cursor, "ann") is None
    assert results.find(kept.uri, "ann") is None
    assert (len(results), results.size) == (0, 0)


def test_one_who_asks_for_much_drives_out_what_is_theirs():
    results = KeptResults(results=3)
    anns = keep(results, owner="ann")
    bobs = [keep(results, owner="bob") for _ in range(20)]
    assert results.find(anns.uri, "ann") is anns
    assert [results.find(kept.uri, "bob") for kept in bobs[-2:]] == bobs[-2:]
    carls = keep(results, owner="carl")
    assert results.find(carls.uri, "carl") is carls


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), max_size=30),
)
def test_the_bounds_hold_and_the_latest_is_there(steps):
    results = KeptResults(results=4, size=20)
    for owner, size in steps:
        kept = keep(results, b"x" * size, owner=owner)
        assert results.find(kept.uri, owner) is kept
        assert len(results) <= 4
        assert results.size <= 20


# --- pages over MCP -------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("policy", [None, "warn", "reject"])
def test_a_large_result_comes_as_a_page_with_counts_a_cursor_and_a_link(policy, modern):
    value = {"n": 1, "rows": ROWS}
    paging = make_paging()
    output = None if policy is None else {**ROWS_SCHEMA, "additionalProperties": True}
    tool = make_tool(value, output, policy)
    result = call(tool, paging, modern=modern)
    assert not result.get("isError")
    note = result["_meta"]["callpact/page"]
    assert (note["path"], note["start"], note["total"]) == ("/rows", 0, 200)
    structured = result["structuredContent"]
    assert structured == {"n": 1, "rows": ROWS[: note["shown"]]}
    assert json.loads(result["content"][0]["text"]) == structured
    assert len(result["content"][0]["text"].encode()) <= LIMIT
    told = result["content"][1]["text"]
    assert note["nextCursor"] in told
    assert f"items 1 to {note['shown']} of 200" in told
    assert links_of(result)[0]["uri"] == note["uri"]
    assert json.loads(whole_of(result, paging)["text"]) == value


@ERAS
def test_pages_follow_one_another_to_the_end(modern):
    paging = make_paging()
    result = call(make_tool({"n": 1, "rows": ROWS}), paging, modern=modern)
    rows = list(result["structuredContent"]["rows"])
    note = result["_meta"]["callpact/page"]
    while "nextCursor" in note:
        result = encode_page(note["nextCursor"], paging)
        note = result["_meta"]["callpact/page"]
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        assert note["start"] == len(rows) == result["structuredContent"]["start"]
        rows += result["structuredContent"]["page"]["rows"]
    assert rows == ROWS
    assert "last page" in result["content"][1]["text"]


def test_a_page_of_a_list_is_itself_now_and_boxed_before():
    paging = make_paging()
    output = {"type": "array", "items": {"type": "object"}}
    for tool in (make_tool(ROWS), make_tool(ROWS, output)):
        now, before = call(tool, paging), call(tool, paging, modern=False)
        shown = now["_meta"]["callpact/page"]["shown"]
        assert now["structuredContent"] == ROWS[:shown]
        assert before["structuredContent"] == {"result": ROWS[:shown]}
        for result in (now, before):
            assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


@ERAS
def test_what_fits_is_not_touched(modern):
    paging = make_paging(limit=len(b'{"rows":[1,2]}'))
    result = call(make_tool({"rows": [1, 2]}), paging, modern=modern)
    assert result["structuredContent"] == {"rows": [1, 2]}
    assert len(result["content"]) == 1
    assert "callpact/page" not in result["_meta"]
    assert len(paging.kept) == 0


def test_a_page_names_the_tool_that_gives_the_next():
    paging = Paging(KeptResults(age=90), "ann", LIMIT, "next_page")
    told = call(make_tool(ROWS), paging)["content"][1]["text"]
    assert "call next_page with the cursor" in told
    assert "90 seconds" in told


@ERAS
def test_where_nothing_can_be_kept_the_page_says_so(modern):
    paging = make_paging(size=10)
    result = call(make_tool(ROWS), paging, modern=modern)
    note = result["_meta"]["callpact/page"]
    assert note.keys() == {"path", "start", "shown", "total"}
    assert links_of(result) == []
    assert "ask for less" in result["content"][1]["text"]


@ERAS
def test_invented_values_are_told_beside_a_page(modern):
    output = {
        "type": "object",
        "properties": {"rows": {"type": "array"}, "price": {"type": "number"}},
        "required": ["price", "rows"],
    }
    result = call(make_tool({"rows": ROWS}, output), make_paging(), modern=modern)
    assert "/price" in result["content"][-1]["text"]
    assert result["structuredContent"]["price"] == 0


# --- previews over MCP ----------------------------------------------------------------------

LARGE = {"a": {"text": LONG}, "b": 1}


@ERAS
@pytest.mark.parametrize("value", [LARGE, {"rows": [LONG, 1]}, {"text": LONG, "rows": [1]}])
def test_a_large_value_without_items_that_fit_is_a_preview_and_a_link(value, modern):
    paging = make_paging()
    result = call(make_tool(value), paging, modern=modern)
    assert "structuredContent" not in result
    assert [block["type"] for block in result["content"]] == ["text", "resource_link"]
    assert "An object with" in result["content"][0]["text"]
    assert json.loads(whole_of(result, paging)["text"]) == value
    assert result["_meta"]["callpact/preview"]["uri"] == links_of(result)[0]["uri"]


@ERAS
def test_large_text_is_its_beginning_and_a_link(modern):
    paging = make_paging()
    result = call(make_tool(LONG), paging, modern=modern)
    assert LONG[:PREVIEW] in result["content"][0]["text"]
    assert whole_of(result, paging) == {
        "uri": links_of(result)[0]["uri"],
        "mimeType": "text/plain",
        "text": LONG,
    }


@ERAS
def test_under_a_relaxed_schema_a_preview_is_the_structured_content(modern):
    result = call(make_tool(LARGE, ROWS_SCHEMA, "warn"), make_paging(), modern=modern)
    structured = result["structuredContent"]
    assert structured["preview"] == result["content"][0]["text"]
    assert structured["uri"] == links_of(result)[0]["uri"]


@ERAS
@pytest.mark.parametrize(
    ("value", "output"),
    [
        (LARGE, {"type": "object", "required": ["a", "b"], "additionalProperties": True}),
        (
            {"rows": ROWS},
            {"type": "object", "properties": {"rows": {"type": "array", "minItems": 150}}},
        ),
    ],
    ids=["no list", "a page would break it"],
)
def test_under_a_strict_schema_that_no_part_keeps_the_structure_is_whole(value, output, modern):
    paging = make_paging()
    result = call(make_tool(value, output, "reject"), paging, modern=modern)
    assert not result.get("isError")
    assert result["structuredContent"] == value
    assert len(result["content"][0]["text"]) < LIMIT
    assert json.loads(whole_of(result, paging)["text"]) == value


def test_an_item_that_alone_is_too_large_is_a_preview_among_the_pages():
    paging = make_paging()
    first = call(make_tool([1, LONG, 3]), paging)
    assert first["structuredContent"] == [1]
    second = encode_page(first["_meta"]["callpact/page"]["nextCursor"], paging)
    assert "structuredContent" not in second
    assert LONG[:PREVIEW] in second["content"][0]["text"]
    third = encode_page(second["_meta"]["callpact/page"]["nextCursor"], paging)
    assert third["structuredContent"] == {"page": [3], "start": 2, "shown": 1, "total": 3}


@ERAS
def test_large_bytes_are_a_link_and_pictures_stay_pictures(modern):
    paging = make_paging()
    data = b"\x00" * 2_000
    result = call(make_tool(data), paging, modern=modern)
    assert base64.b64decode(whole_of(result, paging)["blob"]) == data
    assert [block["type"] for block in result["content"]] == ["resource_link"]
    picture = call(make_tool(b"\x89PNG\r\n\x1a\n" + data), paging, modern=modern)
    assert [block["type"] for block in picture["content"]] == ["image"]


@ERAS
def test_large_data_of_a_broken_answer_is_linked_and_the_error_whole(modern):
    schema = {"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]}
    paging = make_paging()
    result = call(make_tool({"a": LONG}, schema, "cast"), paging, modern=modern)
    assert result["isError"]
    body = json.loads(result["content"][0]["text"])
    assert body["error"]["code"] == "output_validation_failed"
    assert "data" not in body
    assert json.loads(whole_of(result, paging)["text"]) == {"a": LONG}


@ERAS
def test_an_interactive_tool_is_drawn_whole(modern):
    tool = make_tool({"rows": ROWS}, kind="interactive")
    result = call(tool, make_paging(), modern=modern)
    assert result["structuredContent"] == {"rows": ROWS}


@ERAS
def test_large_structured_content_of_another_server_is_paged_and_its_pictures_stay(modern):
    data = {"rows": ROWS}
    blocks = [TextBlock(json.dumps(data)), ImageBlock("aGk=", "image/png")]
    answer = mcp_envelope(data, is_error=False, content=blocks, structured_content=data)
    paging = make_paging()
    result = call(make_tool(answer), paging, modern=modern)
    shown = result["_meta"]["callpact/page"]["shown"]
    assert result["structuredContent"] == {"rows": ROWS[:shown]}
    kinds = [block["type"] for block in result["content"]]
    assert kinds == ["text", "text", "resource_link", "image"]


@ERAS
def test_large_text_of_another_server_is_its_beginning_and_a_link(modern):
    blocks = [TextBlock("short"), TextBlock(LONG)]
    paging = make_paging()
    result = call(
        make_tool(mcp_envelope(blocks, is_error=False, content=blocks)), paging, modern=modern
    )
    assert [block["type"] for block in result["content"]] == ["text", "text", "resource_link"]
    assert result["content"][0] == {"type": "text", "text": "short"}
    assert whole_of(result, paging)["text"] == LONG


# --- whose ----------------------------------------------------------------------------------


def test_neither_cursor_nor_link_of_another_caller_gives_anything():
    results = KeptResults()
    ann, bob = Paging(results, "ann", LIMIT), Paging(results, "bob", LIMIT)
    note = call(make_tool(ROWS), ann)["_meta"]["callpact/page"]
    assert encode_page(note["nextCursor"], ann) is not None
    assert encode_page(note["nextCursor"], bob) is None
    assert encode_kept(note["uri"], ann) is not None
    assert encode_kept(note["uri"], bob) is None


def test_a_cursor_into_what_has_no_items_gives_nothing():
    paging = make_paging()
    kept = keep(paging.kept, b"text")
    assert encode_page(paging.kept.cursor(kept, 0), paging) is None


def test_a_list_that_is_empty_is_no_items():
    assert Items(()).json() == b"[]"
    assert Items(()).size == 2


@given(
    value=JSON,
    output=st.sampled_from([None, ROWS_SCHEMA, {"type": "array"}, {"type": ["object", "null"]}]),
    policy=st.sampled_from(["warn", "cast"]),
    advertise=st.sampled_from(["full", "top", "none"]),
    limit=st.integers(1, 300),
    modern=st.booleans(),
)
def test_text_mirrors_structured_content_unless_it_is_a_preview(
    *, value, output, policy, advertise, limit, modern
):
    tool = make_tool(value, output, None if output is None else policy)
    result = call(tool, make_paging(limit=limit), modern=modern, advertise=advertise)
    if "structuredContent" not in result or "callpact/preview" in result["_meta"]:
        return
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
