"""Seed 000, row by row: what a FlowMCP tool declares of its answers, and who checks it."""

from __future__ import annotations

import base64
import logging
from pathlib import Path

import pytest

import schema_file as kit
from callpact.wire.mcp import results as mcp

HERE = Path(__file__).parent


rule, codes, loads, Caller = kit.rule, kit.codes, kit.loads, kit.Caller
OUTPUT = f"{kit.TOOL}/output"
SCHEMA = f"{OUTPUT}/schema"
TEXT = {"type": "string"}
PNG = b"\x89PNG\r\n\x1a\n\x00\xff"


def _output(schema, mime="application/json"):
    return kit.with_tool(output={"mimeType": mime, "schema": schema})


def _object(**properties):
    return {"type": "object", "properties": properties}


def _given(folder, schema, answer):
    """The envelope of a call whose tool declares `schema`, and whose API gives `answer`."""
    envelope = Caller(folder, _output(schema), answer).call()
    assert envelope.data == answer
    return envelope


def _warned(folder, schema, answer):
    return [(issue.code, issue.path) for issue in _given(folder, schema, answer).warnings]


# --- purpose --------------------------------------------------------------------------------

# The seed's first example.
PRICE = _object(
    id={"type": "string", "description": "Token identifier"},
    symbol={"type": "string", "description": "Token symbol"},
    price={"type": "number", "description": "Current price in USD"},
    marketCap={"type": "number", "description": "Market capitalization", "nullable": True},
    volume24h={"type": "number", "description": "Trading volume (24h)"},
)
PRICED = {"id": "btc", "symbol": "BTC", "price": 1.5, "marketCap": None, "volume24h": 7}


@pytest.mark.requirement("000.purpose.fields-in-advance")
def test_the_declared_fields_stand_in_the_contract_and_over_mcp(tmp_path):
    tool = Caller(tmp_path, _output(PRICE)).tool
    fields = {"id", "symbol", "price", "marketCap", "volume24h"}
    assert tool.contract.output["properties"].keys() == fields
    assert tool.contract.output["properties"]["price"]["description"] == "Current price in USD"
    published = mcp.encode_tool(tool, modern=True)["outputSchema"]
    assert published["properties"].keys() == fields
    without = Caller(tmp_path, kit.changed((OUTPUT, kit.GONE))).tool
    assert without.contract.output is None


@pytest.mark.requirement("000.purpose.validator")
def test_an_answer_is_compared_with_the_declaration(tmp_path):
    assert _warned(tmp_path, PRICE, PRICED) == []
    assert _warned(tmp_path, PRICE, {**PRICED, "price": "1.5"}) == [("type", "/price")]


# --- declaration ----------------------------------------------------------------------------


@pytest.mark.requirement("000.declare.optional")
def test_a_tool_may_declare_its_output_or_not():
    assert codes(kit.GOOD) == set()
    assert codes(kit.changed((OUTPUT, kit.GONE))) == set()


@pytest.mark.requirement("000.declare.example")
@pytest.mark.requirement("000.declare.routes")
def test_the_first_example_is_good_and_its_routes_are_taken_for_tools(tmp_path):
    main = kit.changed(("/routes", {"getTokenPrice": kit.tool()}), ("/tools", kit.GONE))
    output = {"mimeType": "application/json", "schema": PRICE}
    main = kit.changed(("/routes/getTokenPrice/output", output), main=main)
    assert codes(main) == set()
    assert codes(main, "warning") == {("VAL018", "/routes")}
    assert Caller(tmp_path, main, PRICED).call(name="token-prices.getTokenPrice").data == PRICED


@pytest.mark.requirement("000.declare.hashed")
def test_another_output_makes_another_hash():
    other = kit.changed((f"{SCHEMA}/properties/price/description", "In euros"))
    assert other["schemaHash"] != kit.GOOD["schemaHash"]
    stale = {**other, "schemaHash": kit.GOOD["schemaHash"]}
    assert codes(stale) == {("VAL084", "/schemaHash")}


@pytest.mark.requirement("000.declare.no-code")
@pytest.mark.parametrize(
    "written", ["() => 1", "function () {}", "price()", "`${price}`", "new Date()", "price", "1+1"]
)
def test_functions_and_expressions_have_no_place_in_an_output(written):
    text = kit.exported(kit.changed((f"{SCHEMA}/properties/price/description", "HERE")))
    assert loads(text)
    found = kit.checked(text.replace('"HERE"', written)).findings
    assert [(f.code, f.severity) for f in found] == [("SEC017", "error")]
    assert found[0].line == text[: text.index('"HERE"')].count("\n") + 1


@pytest.mark.parametrize(
    ("pointer", "bad", "found"),
    [
        rule("000.fields.mime-type", f"{OUTPUT}/mimeType", [5, None, ""], "VAL060"),
        rule("000.fields.schema", SCHEMA, ["object", None, []], "VAL061"),
    ],
)
def test_both_fields_have_their_types(pointer, bad, found):
    for value in bad:
        assert codes(kit.changed((pointer, value))) == {(found, pointer)}


@pytest.mark.requirement("000.fields.both")
@pytest.mark.parametrize(("field", "found"), [("mimeType", "VAL060"), ("schema", "VAL061")])
def test_both_fields_are_required(field, found):
    missing = f"{OUTPUT}/{field}"
    assert codes(kit.changed((missing, kit.GONE))) == {(found, missing)}


@pytest.mark.requirement("000.fields.omitted")
@pytest.mark.parametrize("value", [None, {}])
def test_an_output_that_is_null_or_empty_is_an_error(value):
    assert codes(kit.with_tool(output=value)) == {("VAL061", OUTPUT)}


# --- MIME types -----------------------------------------------------------------------------


@pytest.mark.requirement("000.mime.json")
def test_json_is_parsed_and_anything_else_is_unreadable(tmp_path):
    good = Caller(tmp_path, kit.GOOD, kit.answering('{"id": "btc", "price": 1.5}'))
    assert good.call().data == {"id": "btc", "price": 1.5}
    bad = Caller(tmp_path, kit.GOOD, kit.answering("<html>", kind="text/html"))
    assert bad.rendered()["messages"][0].startswith("E003 getTokenPrice: ")


@pytest.mark.requirement("000.mime.png")
@pytest.mark.requirement("000.form.image-encoded")
def test_an_image_is_delivered_in_base64(tmp_path):
    main = _output({"type": "string", "format": "base64"}, "image/png")
    caller = Caller(tmp_path, main, kit.answering(PNG, kind="image/png"))
    rendered = caller.rendered()
    assert rendered["status"] is True
    assert base64.b64decode(rendered["data"], validate=True) == PNG
    assert caller.call().warnings == ()


@pytest.mark.requirement("000.mime.text")
def test_text_is_delivered_as_it_is(tmp_path):
    main = _output(TEXT, "text/plain")
    for text in ('{"not": "parsed"}', "contract A {}\n", "grün"):
        caller = Caller(tmp_path, main, kit.answering(text, kind="text/plain; charset=utf-8"))
        assert caller.call().data == text


@pytest.mark.requirement("000.mime.mismatch")
@pytest.mark.requirement("000.rule.type")
@pytest.mark.parametrize(
    ("mime", "good", "bad"),
    [
        rule(
            "000.mime.json-type",
            "application/json",
            [_object(a=TEXT), {"type": "array", "items": TEXT}],
            [TEXT, {"type": "number"}, {"type": "boolean"}, {"type": "string", "format": "base64"}],
        ),
        rule(
            "000.mime.png-type",
            "image/png",
            [{"type": "string", "format": "base64"}],
            [TEXT, {"type": "string", "format": "uri"}, _object(a=TEXT), {"type": "number"}],
        ),
        rule(
            "000.mime.text-type",
            "text/plain",
            [TEXT],
            [_object(a=TEXT), {"type": "array", "items": TEXT}, {"type": "number"}],
        ),
    ],
)
def test_the_type_goes_with_the_mime_type(mime, good, bad):
    for schema in good:
        assert codes(_output(schema, mime)) == set()
    for schema in bad:
        assert {code for code, _ in codes(_output(schema, mime))} == {"VAL062"}
        assert not loads(_output(schema, mime), "compat")


# --- envelope -------------------------------------------------------------------------------

EVERY_FORM = [
    (_object(a=TEXT), "application/json", b'{"a": "x"}', {"a": "x"}),
    ({"type": "array", "items": TEXT}, "application/json", b'["x"]', ["x"]),
    (TEXT, "text/plain", b"x", "x"),
    ({"type": "string", "format": "base64"}, "image/png", PNG, base64.b64encode(PNG).decode()),
]


@pytest.mark.requirement("000.envelope.every-tool")
@pytest.mark.requirement("000.envelope.success")
@pytest.mark.requirement("000.envelope.data")
@pytest.mark.parametrize(("schema", "mime", "body", "data"), EVERY_FORM)
def test_every_result_has_the_three_fields_and_data_is_what_the_mime_type_allows(
    tmp_path, schema, mime, body, data
):
    caller = Caller(tmp_path, _output(schema, mime), kit.answering(body, kind=mime))
    assert caller.rendered() == {"status": True, "messages": [], "data": data}


@pytest.mark.requirement("000.envelope.every-tool")
@pytest.mark.requirement("000.envelope.failure")
@pytest.mark.requirement("000.envelope.example")
@pytest.mark.parametrize(("schema", "mime", "body", "data"), EVERY_FORM)
def test_the_failure_of_the_seed_is_told_to_the_letter(tmp_path, schema, mime, body, data):
    caller = Caller(tmp_path, _output(schema, mime), kit.answering(body, 404, mime))
    assert caller.rendered() == {
        "status": False,
        "messages": ["E001 getTokenPrice: API returned 404"],
        "data": None,
    }


@pytest.mark.requirement("000.envelope.status")
@pytest.mark.requirement("000.envelope.messages")
def test_status_and_messages_say_whether_it_worked(tmp_path):
    good = Caller(tmp_path, kit.GOOD, {"id": "btc", "price": 1}).rendered()
    assert (good["status"], good["messages"]) == (True, [])
    rejected = Caller(tmp_path, kit.GOOD, {}).rendered({"id": 5, "ID": "btc"})
    assert rejected["status"] is False
    assert len(rejected["messages"]) == 2
    assert all(text.startswith("E004 getTokenPrice: ") for text in rejected["messages"])


@pytest.mark.requirement("000.envelope.only-data")
@pytest.mark.requirement("000.envelope.implicit")
def test_the_schema_speaks_of_data_alone_and_only_of_a_success(tmp_path):
    caller = Caller(tmp_path, kit.GOOD, {"id": "btc", "price": 1})
    assert caller.call().warnings == ()
    # Were the form itself under the schema, `status` and `messages` would be told of.
    wrapped = _object(status={"type": "boolean"}, data=_object(id=TEXT))
    assert _warned(tmp_path, wrapped, {"status": "1"}) == [("type", "/status")]
    failed = Caller(tmp_path, kit.GOOD, kit.answering('{"price": "none"}', 500)).rendered()
    assert failed["messages"] == ["E001 getTokenPrice: API returned 500"]


# --- keywords -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "good", "bad", "path"),
    [
        rule("000.keyword.type", {"type": "number"}, 1, "1", "/x"),
        rule("000.keyword.properties", _object(y={"type": "number"}), {"y": 1}, {"y": "1"}, "/x/y"),
        rule("000.keyword.items", {"type": "array", "items": TEXT}, ["a"], ["a", 1], "/x/1"),
        rule("000.keyword.nullable", {"type": "number", "nullable": False}, 1, None, "/x"),
        rule("000.keyword.enum", {"type": "string", "enum": ["a", "b"]}, "b", "c", "/x"),
    ],
)
def test_a_keyword_is_allowed_and_does_what_it_says(tmp_path, node, good, bad, path):
    assert codes(_output(_object(x=node))) == set()
    assert _warned(tmp_path, _object(x=node), {"x": good}) == []
    assert [where for _, where in _warned(tmp_path, _object(x=node), {"x": bad})] == [path]


@pytest.mark.parametrize(
    "node",
    [
        rule("000.keyword.description", {"type": "string", "description": "Price in USD"}),
        rule("000.keyword.format", {"type": "string", "format": "uri"}),
    ],
)
def test_a_hint_is_allowed_and_told_to_clients(tmp_path, node):
    assert codes(_output(_object(x=node))) == set()
    tool = Caller(tmp_path, _output(_object(x=node))).tool
    assert tool.contract.output["properties"]["x"] == node
    (name,) = node.keys() - {"type"}
    wrong = _output(_object(x={**node, name: 5}))
    assert codes(wrong) == {("VAL061", f"{SCHEMA}/properties/x/{name}")}


@pytest.mark.parametrize(
    ("keyword", "value", "answer"),
    [
        rule("000.excluded.ref", "$ref", "#/x", {"x": 1}),
        rule("000.excluded.one-of", "oneOf", [{"type": "string"}], {"x": 1}),
        rule("000.excluded.any-of", "anyOf", [{"type": "string"}], {"x": 1}),
        rule("000.excluded.all-of", "allOf", [{"type": "string"}], {"x": 1}),
        rule("000.excluded.required", "required", ["y"], {"x": 1}),
        rule("000.excluded.additional-properties", "additionalProperties", False, {"x": 1}),
        rule("000.excluded.pattern", "pattern", "^a$", {"x": 1}),
        rule("000.excluded.minimum", "minimum", 10, {"x": 1}),
        rule("000.excluded.maximum", "maximum", 0, {"x": 1}),
    ],
)
def test_an_excluded_keyword_is_refused_and_under_compat_ignored(tmp_path, keyword, value, answer):
    excluded = _output(_object(x={"type": "number", keyword: value}))
    at_root = _output({**_object(x={"type": "number"}), keyword: value})
    place = f"{SCHEMA}/properties/x/{keyword}"
    assert codes(excluded) == {("VAL121", place)}
    assert codes(at_root) == {("VAL121", f"{SCHEMA}/{keyword}")}
    for main in (excluded, at_root):
        assert loads(main, "compat")
        # Design, ruling 1: ignored when data is checked.
        assert Caller(tmp_path, main, answer, profile="compat").call().warnings == ()
    assert ("VAL121", place) in codes(excluded, "warning", "compat")


@pytest.mark.requirement("000.excluded.required")
@pytest.mark.requirement("000.excluded.additional-properties")
def test_missing_fields_and_extra_ones_are_nothing_to_speak_of(tmp_path):
    envelope = _given(tmp_path, PRICE, {"id": "btc", "vendor": {"extra": True}})
    assert (envelope.warnings, envelope.changes) == ((), ())


# --- types ----------------------------------------------------------------------------------

VALUES = {
    "string": ["", "a"],
    "number": [1, 1.5, -0.0],
    "boolean": [True, False],
    "object": [{}, {"a": 1}],
    "array": [[], ["a"]],
}
EXTRA = {"object": {"properties": {}}, "array": {"items": {"type": "string"}}}


@pytest.mark.parametrize(
    "kind",
    [
        rule("000.type.string", "string"),
        rule("000.type.number", "number"),
        rule("000.type.boolean", "boolean"),
        rule("000.type.object", "object"),
        rule("000.type.array", "array"),
    ],
)
def test_a_type_takes_its_values_and_no_others(tmp_path, kind):
    schema = _object(x={"type": kind, **EXTRA.get(kind, {})})
    assert codes(_output(schema)) == set()
    for other, values in VALUES.items():
        for value in values:
            expected = [] if other == kind else [("type", "/x")]
            assert _warned(tmp_path, schema, {"x": value}) == expected, value


@pytest.mark.requirement("000.keyword.type")
@pytest.mark.parametrize("kind", ["date", "null", "any", "String", 5, None, ["string", "null"]])
def test_other_types_do_not_exist(kind):
    main = _output(_object(x={"type": kind}))
    assert codes(main) == {("VAL061", f"{SCHEMA}/properties/x/type")}
    assert not loads(main, "compat")


@pytest.mark.requirement("000.keyword.type")
def test_integer_is_no_type_and_under_compat_a_number(tmp_path):
    main = _output(_object(x={"type": "integer"}))
    place = ("VAL122", f"{SCHEMA}/properties/x/type")
    assert codes(main) == {place}
    assert place in codes(main, "warning", "compat")
    assert Caller(tmp_path, main, {"x": 1.5}, profile="compat").call().warnings == ()


@pytest.mark.requirement("000.type.array")
def test_an_array_says_what_it_holds_or_under_compat_anything(tmp_path):
    main = _output(_object(x={"type": "array"}))
    place = ("VAL120", f"{SCHEMA}/properties/x")
    assert codes(main) == {place}
    assert place in codes(main, "warning", "compat")
    assert Caller(tmp_path, main, {"x": [1, "a"]}, profile="compat").call().warnings == ()


# --- forms of answers: the seed's own examples ----------------------------------------------

NESTED = _object(
    token={
        "type": "object",
        "description": "Token metadata",
        "properties": {
            "name": {"type": "string", "description": "Token name"},
            "contract": {
                "type": "object",
                "description": "Contract details",
                "properties": {
                    "address": {"type": "string", "description": "Contract address"},
                    "verified": {"type": "boolean", "description": "Verification status"},
                },
            },
        },
    }
)
PROTOCOLS = {
    "type": "array",
    "items": _object(
        name={"type": "string", "description": "Protocol name"},
        tvl={"type": "number", "description": "Total value locked in USD"},
    ),
}
ADDRESSES = {"type": "array", "items": {"type": "string", "description": "Contract address"}}
RESULTS = _object(
    total={"type": "number", "description": "Total result count"},
    results={
        "type": "array",
        "description": "List of matching tokens",
        "items": _object(
            symbol={"type": "string", "description": "Token symbol"},
            price={"type": "number", "description": "Current price"},
        ),
    },
)


@pytest.mark.parametrize(
    ("schema", "good", "bad", "path"),
    [
        rule("000.form.object", PRICE, PRICED, {**PRICED, "id": 1}, "/id"),
        rule(
            "000.form.nested",
            NESTED,
            {"token": {"name": "T", "contract": {"address": "0x", "verified": True}}},
            {"token": {"name": "T", "contract": {"address": "0x", "verified": "yes"}}},
            "/token/contract/verified",
        ),
        rule("000.form.array", PROTOCOLS, [{"name": "a", "tvl": 1}], [{"tvl": "1"}], "/0/tvl"),
        rule("000.form.primitives", ADDRESSES, ["0x1", "0x2"], ["0x1", 2], "/1"),
        rule(
            "000.form.array-property",
            RESULTS,
            {"total": 1, "results": [{"symbol": "T", "price": 1}]},
            {"total": 1, "results": [{"symbol": "T", "price": 1}, {"price": None}]},
            "/results/1/price",
        ),
    ],
)
def test_the_examples_of_the_seed_are_good_and_judge_answers(tmp_path, schema, good, bad, path):
    assert codes(_output(schema)) == set()
    assert _warned(tmp_path, schema, good) == []
    assert [where for _, where in _warned(tmp_path, schema, bad)] == [path]


@pytest.mark.parametrize(
    ("mime", "schema"),
    [
        rule(
            "000.form.image",
            "image/png",
            {
                "type": "string",
                "format": "base64",
                "description": "Chart image as base64-encoded PNG",
            },
        ),
        rule(
            "000.form.text",
            "text/plain",
            {"type": "string", "description": "Raw contract source code"},
        ),
    ],
)
def test_the_examples_of_images_and_texts_are_good(tmp_path, mime, schema):
    assert codes(_output(schema, mime)) == set()
    envelope = Caller(tmp_path, _output(schema, mime), kit.answering(b"abc", kind=mime)).call()
    assert isinstance(envelope.data, str)
    assert envelope.warnings == ()


# --- nullable, enum, format -----------------------------------------------------------------


@pytest.mark.requirement("000.nullable.declared")
@pytest.mark.requirement("000.nullable.warns")
def test_null_is_a_warning_unless_it_is_declared(tmp_path):
    declared = _object(
        marketCap={"type": "number", "description": "Market capitalization", "nullable": True},
        website={"type": "string", "description": "Project website URL", "nullable": True},
    )
    nulls = {"marketCap": None, "website": None}
    assert _warned(tmp_path, declared, nulls) == []
    silent = _object(marketCap={"type": "number"}, website={"type": "string", "nullable": False})
    assert _warned(tmp_path, silent, nulls) == [("type", "/marketCap"), ("type", "/website")]


@pytest.mark.requirement("000.rule.nullable")
def test_nullable_says_nothing_about_a_field_that_is_absent(tmp_path):
    for nullable in (True, False):
        schema = _object(marketCap={"type": "number", "nullable": nullable})
        assert _warned(tmp_path, schema, {}) == []
    wrong = _output(_object(marketCap={"type": "number", "nullable": "yes"}))
    assert codes(wrong) == {("VAL061", f"{SCHEMA}/properties/marketCap/nullable")}


@pytest.mark.requirement("000.enum.restricts")
def test_a_value_outside_of_its_enum_is_a_warning(tmp_path):
    status = {"type": "string", "enum": ["verified", "unverified", "pending"]}
    for value in status["enum"]:
        assert _warned(tmp_path, _object(status=status), {"status": value}) == []
    assert _warned(tmp_path, _object(status=status), {"status": "open"}) == [("enum", "/status")]
    nullable = _object(status={**status, "nullable": True})
    assert _warned(tmp_path, nullable, {"status": None}) == []
    for wrong in ("verified", {}, []):
        main = _output(_object(status={**status, "enum": wrong}))
        assert codes(main) == {("VAL061", f"{SCHEMA}/properties/status/enum")}


@pytest.mark.requirement("000.format.informational")
@pytest.mark.parametrize(
    ("name", "good"),
    [
        rule("000.format.base64", "base64", "iVBORw0KGgo="),
        rule("000.format.date-time", "date-time", "2026-02-16T12:00:00Z"),
        rule("000.format.uri", "uri", "https://etherscan.io/address/0x0"),
    ],
)
def test_a_format_is_taken_told_and_never_checked(tmp_path, name, good):
    schema = _object(x={"type": "string", "format": name})
    assert codes(_output(schema), "warning") == set()
    for value in (good, "not at all of this format ☃"):
        assert _warned(tmp_path, schema, {"x": value}) == []
    unknown = _output(_object(x={"type": "string", "format": "email"}))
    assert codes(unknown, "warning") == {("VAL136", f"{SCHEMA}/properties/x/format")}


# --- no output schema -----------------------------------------------------------------------

SILENT = kit.changed((OUTPUT, kit.GONE))


@pytest.mark.requirement("000.absent.json")
def test_without_a_schema_an_answer_is_taken_for_json(tmp_path):
    good = Caller(tmp_path, SILENT, kit.answering('{"a": [1]}', kind="text/plain"))
    assert good.call().data == {"a": [1]}
    bad = Caller(tmp_path, SILENT, kit.answering("plain text"))
    assert bad.rendered()["messages"][0].startswith("E003 getTokenPrice: ")


@pytest.mark.requirement("000.absent.unchecked")
@pytest.mark.requirement("000.absent.no-shape")
@pytest.mark.parametrize("answer", [{"a": 1}, [None], "text", 7, None, True])
def test_without_a_schema_everything_is_passed_on(tmp_path, answer):
    caller = Caller(tmp_path, SILENT, answer)
    envelope = caller.call()
    assert envelope.data == answer
    assert envelope.warnings == ()
    assert caller.tool.contract.output is None
    assert "outputSchema" not in mcp.encode_tool(caller.tool, modern=True)


@pytest.mark.requirement("000.absent.discouraged")
@pytest.mark.requirement("000.absent.should")
@pytest.mark.parametrize("profile", ["strict", "compat"])
def test_a_tool_without_a_schema_loads_with_a_warning(profile):
    assert loads(SILENT, profile)
    assert codes(SILENT, "warning", profile) == {("VAL036", OUTPUT)}
    assert codes(kit.GOOD, "warning", profile) == set()


@pytest.mark.requirement("000.hooks.none")
def test_without_hooks_the_schema_describes_the_raw_answer(tmp_path):
    raw = {"bitcoin": {"usd": 45000, "usd_market_cap": 850000000000}}
    schema = _object(bitcoin=_object(usd={"type": "number"}))
    assert _warned(tmp_path, schema, raw) == []
    flat = _object(bitcoin={"type": "number"})
    assert _warned(tmp_path, flat, raw) == [("type", "/bitcoin")]


# --- validation rules -----------------------------------------------------------------------


@pytest.mark.requirement("000.rule.mime")
@pytest.mark.parametrize("profile", ["strict", "compat"])
def test_only_three_mime_types_are_taken(profile):
    good = {"application/json": PRICE, "text/plain": TEXT}
    for mime, schema in good.items():
        assert loads(_output(schema, mime), profile)
    for mime in ("text/html", "application/xml", "image/jpeg", "APPLICATION/JSON", "json"):
        main = kit.changed((f"{OUTPUT}/mimeType", mime))
        assert codes(main, profile=profile) == {("VAL060", f"{OUTPUT}/mimeType")}


@pytest.mark.parametrize(
    ("keyword", "value", "good", "bad", "found"),
    [
        rule("000.rule.properties", "properties", {"a": TEXT}, "object", "array", "VAL064"),
        rule("000.rule.properties", "properties", {"a": TEXT}, "object", "string", "VAL064"),
        rule("000.rule.items", "items", TEXT, "array", "object", "VAL065"),
        rule("000.rule.items", "items", TEXT, "array", "string", "VAL065"),
    ],
)
def test_a_keyword_stands_only_where_it_belongs(keyword, value, good, bad, found):
    assert codes(_output(_object(x={"type": good, keyword: value}))) == set()
    wrong = {"type": bad, keyword: value, **({"items": TEXT} if bad == "array" else {})}
    main = _output(_object(x=wrong))
    assert codes(main) == {(found, f"{SCHEMA}/properties/x/{keyword}")}
    assert not loads(main, "compat")


def _levels(count):
    """A schema with so many levels, the root being the first, and an answer that is wrong there."""
    schema, answer, path = TEXT, 5, ""
    for level in range(count - 1):
        name = f"p{level}"
        schema, answer, path = _object(**{name: schema}), {name: answer}, f"/{name}{path}"
    return schema, answer, path


@pytest.mark.requirement("000.rule.depth")
@pytest.mark.requirement("000.form.nested")
def test_four_levels_are_checked_and_a_fifth_is_rejected(tmp_path):
    schema, answer, path = _levels(4)
    assert codes(_output(schema)) == set()
    assert _warned(tmp_path, schema, answer) == [("type", path)]
    deep = _output(_levels(5)[0])
    assert {code for code, _ in codes(deep)} == {"VAL063"}
    assert not loads(deep)
    assert {code for code, _ in codes(deep, "warning", "compat")} == {"VAL063"}
    assert loads(deep, "compat")


@pytest.mark.requirement("000.rule.depth-of-items")
def test_items_add_no_level():
    schema = {"type": "array", "items": {"type": "array", "items": _levels(4)[0]}}
    assert codes(_output(schema)) == set()
    assert {code for code, _ in codes(_output({**schema, "items": _levels(5)[0]}))} == {"VAL063"}


@pytest.mark.requirement("000.rule.non-blocking")
@pytest.mark.requirement("000.rule.delivered")
@pytest.mark.parametrize(
    "answer",
    [
        {"id": 5, "price": "1.5"},
        {"id": None, "price": {"usd": 1}},
        ["not", "an", "object"],
        "text",
        None,
    ],
)
def test_an_answer_that_breaks_its_schema_is_delivered_unchanged_with_warnings(tmp_path, answer):
    caller = Caller(tmp_path, kit.GOOD, answer)
    envelope = caller.call()
    assert envelope.data == answer
    assert envelope.changes == ()
    assert envelope.warnings
    assert caller.rendered() == {"status": True, "messages": [], "data": answer}


@pytest.mark.requirement("000.rule.logged")
def test_a_warning_is_logged_with_the_tool_and_the_place(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "callpact")
    Caller(tmp_path, kit.GOOD, {"id": "btc", "price": 1.5}).call()
    assert caplog.records == []
    Caller(tmp_path, kit.GOOD, {"id": "btc", "price": "1.5"}).call()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "token-prices.getTokenPrice" in f"{record.name} {record.getMessage()}"
    assert "/price" in record.getMessage() or "'price'" in record.getMessage()


@pytest.mark.requirement("000.rule.flow")
@pytest.mark.parametrize(
    ("main", "answer", "warned"),
    [
        (SILENT, {"id": 5}, []),
        (kit.GOOD, {"id": "btc", "price": 1.5}, []),
        (kit.GOOD, {"id": 5, "price": 1.5}, ["/id"]),
    ],
)
def test_the_three_ways_of_an_answer(tmp_path, main, answer, warned):
    envelope = Caller(tmp_path, main, answer).call()
    assert envelope.data == answer
    assert [issue.path for issue in envelope.warnings] == warned
