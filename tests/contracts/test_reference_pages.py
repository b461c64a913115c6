"""Reference pages: tables of fields, and declarations that try to break out of them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from callpact.contracts import write_pages
from callpact.contracts.reference_pages import MAX_ROWS, field_rows
from callpact.tool import Contract, Tool


async def handler(arguments, context):
    return None


def tool(id="shop.price", description="The price.", output=None, **more):
    contract = Contract(output=output, input=more.pop("input", {"type": "object"}))
    return Tool(id=id, description=description, contract=contract, handler=handler, **more)


TOKEN = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "Token identifier"},
        "marketCap": {"type": ["number", "null"], "description": "In USD"},
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"status": {"enum": ["verified", "pending"]}},
                "required": ["status"],
            },
        },
    },
    "required": ["id"],
}


@pytest.mark.requirement("000.purpose.documentation")
def test_a_response_table_has_nested_fields_types_and_marks():
    (page,) = write_pages([tool(output=TOKEN, kind="query", access=["shop:read"])])
    assert page.file_name == "shop.md"
    assert "| `id` | string | yes | no |  | Token identifier |" in page.text
    assert "| `marketCap` | number | no | yes |  | In USD |" in page.text
    assert '| `results[].status` | string | yes | no | "verified", "pending" |  |' in page.text
    assert "| kind | query |" in page.text
    assert "| access | scope shop:read |" in page.text
    assert "| output policy | cast:" in page.text
    assert "| `schema_validation_failed` | 400 |" in page.text


def test_the_errors_of_all_tools_are_one_table_at_the_end_of_the_page():
    (page,) = write_pages([tool(output=TOKEN), tool(id="shop.stock", output=TOKEN)])
    assert page.text.count("| `access_denied` | 403 |") == 1
    assert page.text.index("## shop.stock") < page.text.index("## Errors")
    assert "component_not_allowed" not in page.text
    assert "output_validation_failed" not in page.text  # `cast` refuses no output.


def test_a_tool_that_refuses_wrong_outputs_adds_their_code_to_the_page():
    strict = Contract(output=TOKEN, policy="reject")
    refusing = Tool(id="shop.all", description="All.", contract=strict, handler=handler)
    (page,) = write_pages([tool(output=TOKEN), refusing])
    assert "| `output_validation_failed` | 502 |" in page.text


def test_declared_examples_come_before_made_ones():
    (page,) = write_pages([tool(examples=({"item": "tea"},))])
    assert '"item": "tea"' in page.text
    assert "Example of an input, made" not in page.text
    (page,) = write_pages([tool(output=TOKEN)])
    assert "Example of an output, made from the schema:" in page.text


def test_values_bounds_and_defaults_of_a_field_are_shown():
    schema = {
        "properties": {
            "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
            "unit": {"anyOf": [{"enum": ["kg", "lb"]}, {"type": "null"}], "default": None},
            "code": {"type": "string", "minLength": 2, "pattern": "^[A-Z]+$"},
            "odd": {"minimum": True, "maxItems": {}},
        }
    }
    rows, _ = field_rows(schema)
    assert {row.name: row.values for row in rows} == {
        "limit": "≥ 1; ≤ 50; default 10",
        "unit": '"kg", "lb"',
        "code": "≥ 2 characters; matches ^[A-Z]+$",
        "odd": "",
    }


EVIL = "a|b`c`<script>alert(1)</script>\n\n# Title\n| x | [y](javascript:z) &lt; \u202e\x00"


def test_texts_cannot_break_out_of_markdown():
    schema = {
        "type": "object",
        "properties": {EVIL: {"description": EVIL, "enum": [EVIL], "pattern": EVIL}},
    }
    (page,) = write_pages([tool(description=EVIL, output=schema, input=schema)])
    tables = re.sub(r"`{3,}json\n.*?\n`{3,}", "", page.text, flags=re.DOTALL)
    assert "<script" not in tables
    assert "[y]" not in tables.replace("\\[", "")
    assert "\n# Title" not in tables
    rows = [line for line in tables.splitlines() if "alert" in line and line.startswith("| ")]
    assert rows
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 7


def test_texts_cannot_break_out_of_html():
    schema = {"type": "object", "properties": {EVIL: {"description": EVIL, "const": EVIL}}}
    (page,) = write_pages([tool(description=EVIL, output=schema)], "html")
    tags = set()

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.add(tag)

    Reader().feed(page.text)
    assert "script" not in tags
    assert page.file_name == "shop.html"


def test_an_html_page_begins_with_links_to_its_sections():
    (page,) = write_pages([tool(), tool(id="shop.stock")], "html")
    links, ids = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            links.extend(value for name, value in attrs if name == "href")
            ids.extend(value for name, value in attrs if name == "id")

    Reader().feed(page.text)
    assert links == ["#shop.price", "#shop.stock", "#Errors"]
    assert [f"#{each}" for each in ids] == links


def test_namespaces_have_files_of_their_own_in_the_folder():
    pages = write_pages([tool(id=f"{name}.x") for name in ("Shop", "shop", "index", "CON", "a-b")])
    names = [page.file_name.lower() for page in pages]
    assert len(set(names)) == 5
    assert "index.md" not in names
    assert "con.md" not in names
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+\.md", name) for name in names)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}}}},
        {"type": "array", "items": {"$ref": "#"}},
        {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
        {"properties": {f"p{n}": {"$ref": "#"} for n in range(40)}},
    ],
)
def test_recursive_schemas_end(schema):
    rows, _ = field_rows(schema)
    assert 0 < len(rows) <= MAX_ROWS


def test_a_long_table_is_cut_and_says_so():
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(600)}}
    (page,) = write_pages([tool(output=schema)])
    assert field_rows(schema)[1]
    assert "left out here" in page.text
