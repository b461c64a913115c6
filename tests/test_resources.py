"""Resources and prompts as declarations: addresses, arguments, completions."""

from __future__ import annotations

import re
import string
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callpact.catalog import Catalog
from callpact.errors import DuplicateTool, InvalidTool
from callpact.resources import MAX_URI_LENGTH, Prompt, PromptArgument, Resource, completion_of
from callpact.tool import Contract, Tool


async def handler(arguments, context):
    return arguments


def tool(*names, required=None, id="t.it", **properties):
    schemas = {name: {"type": "string"} for name in names} | properties
    needed = list(schemas) if required is None else list(required)
    contract = Contract(input={"type": "object", "properties": schemas, "required": needed})
    return Tool(id=id, description="it", contract=contract, handler=handler)


def resource(uri, *names, **given):
    return Resource(uri=uri, tool=tool(*names), **given)


# --- addresses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "names", "uri", "values"),
    [
        ("docs://readme", (), "docs://readme", {}),
        ("docs://{page}", ("page",), "docs://intro", {"page": "intro"}),
        ("docs://{page}", ("page",), "docs://a%20b%C3%A9", {"page": "a bé"}),
        ("docs://{page}", ("page",), "docs://é😀", {"page": "é😀"}),
        ("docs://{page}", ("page",), "docs://tcp%2Fip", {"page": "tcp/ip"}),
        ("docs://{a}/x/{b}", ("a", "b"), "docs://1/x/2", {"a": "1", "b": "2"}),
        ("docs://{+path}", ("path",), "docs://a/b/c.md", {"path": "a/b/c.md"}),
        ("docs://{+path}/{v}", ("path", "v"), "docs://a/b/2", {"path": "a/b", "v": "2"}),
        ("docs://find?q={q}&n={n}", ("q", "n"), "docs://find?q=a&n=2", {"q": "a", "n": "2"}),
        ("docs://{page}.md", ("page",), "docs://a.md.md", {"page": "a.md"}),
        ("a+b.c-d:{x}", ("x",), "a+b.c-d:1", {"x": "1"}),
    ],
)
def test_an_address_gives_the_values_of_its_variables(template, names, uri, values):
    assert resource(template, *names).match(uri) == values


@pytest.mark.parametrize(
    ("template", "names", "uri"),
    [
        ("docs://readme", (), "docs://readme/"),
        ("docs://readme", (), "DOCS://readme"),
        ("docs://a.b", (), "docs://aXb"),
        ("docs://{page}", ("page",), "docs://"),
        ("docs://{page}", ("page",), "docs://a/b"),
        ("docs://{page}", ("page",), "docs://a?b"),
        ("docs://{page}", ("page",), "docs://a#b"),
        ("docs://{page}", ("page",), "other://a"),
        ("docs://{page}", ("page",), "xdocs://a"),
        ("docs://{+path}", ("path",), "docs://"),
        ("docs://{page}", ("page",), ""),
    ],
)
def test_the_address_of_something_else_gives_nothing(template, names, uri):
    assert resource(template, *names).match(uri) is None


@pytest.mark.parametrize(
    "value",
    [
        "..",
        "../etc/passwd",
        "a/../../b",
        "a/..",
        "..\\boot.ini",
        "/etc/passwd",
        "//server/share",
        "a\0.md",
        "\0",
    ],
)
@pytest.mark.parametrize("template", ["docs://{page}", "docs://{+page}"])
def test_no_value_leads_a_handler_that_opens_files_out_of_its_folder(template, value):
    assert resource(template, "page").match(f"docs://{quote(value, safe='')}") is None


@pytest.mark.parametrize("value", ["1..2", "..a", "a..", "...", ".", "a/b", "a\\b", "C", "~"])
def test_what_only_looks_like_a_way_out_is_a_value(value):
    assert resource("docs://{page}", "page").match(f"docs://{quote(value, safe='')}") == {
        "page": value
    }


def test_an_address_has_so_many_characters_at_most():
    one = resource("d:{page}", "page")
    longest = "x" * (MAX_URI_LENGTH - 2)
    assert one.match(f"d:{longest}") == {"page": longest}
    assert one.match(f"d:{longest}x") is None
    with pytest.raises(InvalidTool, match="2,000"):
        resource("d:" + "x" * (MAX_URI_LENGTH - 1))


def test_what_is_not_utf8_is_told_by_the_replacement_character():
    assert resource("d:{page}", "page").match("d:%FFa%") == {"page": "�a%"}


def test_a_long_address_that_almost_fits_is_read_at_once():
    one = resource("d:{+path}/x/{a}/{b}/{c}", "path", "a", "b", "c")
    assert one.match("d:a" + "/x" * 990) is not None
    assert one.match("d:" + "a/" * 990) is None


_TEXTS = st.text(min_size=1).filter(lambda text: text.isprintable() or text.isspace())
_PLAIN = st.text(string.ascii_letters + string.digits + "/?#&%{} é.", min_size=1, max_size=20)


def _leads_out(value):
    parts = value.replace("\\", "/").split("/")
    return ".." in parts or value.startswith("/") or "\0" in value


@given(
    a=_PLAIN | _TEXTS,
    b=_PLAIN | _TEXTS,
    template=st.sampled_from(
        ["d:{a}/{b}", "d:{+a}/{b}", "d:{a}/x/{+b}", "d:{a}?q={b}", "d:{a}x/y{b}z", "d:{+a}#{b}"]
    ),
)
@example(a="a/b", b="%2F", template="d:{+a}/{b}")
@example(a="..", b="x", template="d:{a}/{b}")
def test_matching_an_address_gives_the_values_that_it_was_made_of(a, b, template):
    one = resource(template, "a", "b")
    values = {"a": a, "b": b}
    try:
        uri = one.address(values)
    except UnicodeEncodeError:  # Half a character has no address.
        return
    if len(uri) > MAX_URI_LENGTH or _leads_out(a) or _leads_out(b):
        assert one.match(uri) is None
    else:
        assert one.match(uri) == values


# --- declarations ---------------------------------------------------------------------------


@pytest.mark.parametrize("uri", ["", "readme", "/readme", "{page}", "{s}://a", "docs:", 5, None])
def test_an_address_is_a_uri_with_a_scheme(uri):
    with pytest.raises(InvalidTool, match="scheme"):
        resource(uri, "page")


@pytest.mark.parametrize(
    ("uri", "names", "text"),
    [
        ("d:{page}/{page}", ("page",), "twice"),
        ("d:{a}{b}", ("a", "b"), "between"),
        ("d:{a}-{b}", ("a", "b"), "between"),
        ("d:{+a}/{+b}", ("a", "b"), "one {+name}"),
        ("d:{a", ("a",), "written"),
        ("d:a}", ("a",), "written"),
        ("d:{}", (), "written"),
        ("d:{?q}", ("q",), "written"),
        ("d:{a*}", ("a",), "written"),
        ("d:{1}", (), "written"),
        ("d:{a}", (), "takes none"),
        ("d:{a}", ("a", "b"), "takes a, b"),
        ("d:x", ("a",), "variables none"),
    ],
)
def test_an_address_that_cannot_be_read_in_one_way_is_refused_with_the_reason(uri, names, text):
    with pytest.raises(InvalidTool, match=re.escape(text)):
        resource(uri, *names)


def test_a_parameter_that_is_not_needed_may_be_left_out_of_the_address():
    one = Resource(uri="d:{a}", tool=tool("a", "b", required=["a"]))
    assert (one.variables, one.is_template) == (("a",), True)
    assert not resource("d:x").is_template


@pytest.mark.parametrize("given", ["text", b"bytes", 5, None])
def test_a_completion_is_a_list_or_a_function(given):
    with pytest.raises(InvalidTool, match="'page'"):
        resource("d:{page}", "page", completions={"page": given})


def test_a_completion_is_for_something_that_there_is():
    with pytest.raises(InvalidTool, match="pages"):
        resource("d:{page}", "page", completions={"pages": ["a"]})
    with pytest.raises(InvalidTool, match="topics"):
        Prompt(tool=tool("topic"), completions={"topics": ["a"]})


def test_values_that_can_be_read_once_complete_more_than_once():
    prompt = Prompt(tool=tool("a"), completions={"a": (letter for letter in "xy")})
    assert [list(completion_of(prompt, "a")) for _ in range(2)] == [["x", "y"]] * 2


def test_what_is_declared_completes_before_the_schema_does():
    taken = tool(a={"enum": ["x", 5, "y"]}, b={"enum": ["x"]}, c={"type": "string"})
    prompt = Prompt(tool=taken, completions={"b": ["z"]})
    assert [list(completion_of(prompt, name)) for name in ("a", "b", "c", "d")] == [
        ["x", "y"],
        ["z"],
        [],
        [],
    ]


def test_the_arguments_of_a_prompt_are_the_input_of_its_tool():
    described = {"type": "string", "description": "What about"}
    prompt = Prompt(tool=tool(topic=described, tone={"type": "string"}, required=["topic"]))
    assert prompt.arguments == (
        PromptArgument("topic", "What about", is_required=True),
        PromptArgument("tone", "", is_required=False),
    )
    assert Prompt(tool=tool()).arguments == ()


# --- in a catalog ---------------------------------------------------------------------------


def named(name, uri):
    return Resource(uri=uri, tool=tool(id=f"t.{name}"))


def test_a_catalog_holds_resources_and_prompts_beside_its_tools():
    one, two = named("one", "d:1"), named("two", "d:2")
    prompt = Prompt(tool=tool(id="t.ask"))
    catalog = Catalog([tool()], resources=[one, two], prompts=[prompt])
    assert (catalog.resources, catalog.prompts, len(catalog)) == ((one, two), (prompt,), 1)
    assert catalog.get("t.one") is None
    other = Catalog(resources=[named("three", "d:3")])
    assert [held.uri for held in (catalog | other).resources] == ["d:1", "d:2", "d:3"]
    assert (catalog | other).prompts == (prompt,)


def test_a_selection_is_one_of_resources_and_prompts_too():
    prompts = [Prompt(tool=tool(id="t.ask")), Prompt(tool=tool(id="u.ask"))]
    catalog = Catalog(resources=[named("one", "d:1"), named("two", "d:2")], prompts=prompts)
    chosen = catalog.select(allow=["t.*"], deny=["t.two"])
    assert [held.uri for held in chosen.resources] == ["d:1"]
    assert [held.tool.id for held in chosen.prompts] == ["t.ask"]


def test_two_resources_at_one_address_or_prompts_of_one_name_are_an_error():
    with pytest.raises(DuplicateTool, match="d:1"):
        Catalog(resources=[named("one", "d:1"), named("two", "d:1")])
    with pytest.raises(DuplicateTool, match="t_ask"):
        Catalog(prompts=[Prompt(tool=tool(id="t.ask")), Prompt(tool=tool("a", id="t.ask"))])
    same = named("one", "d:1")
    assert Catalog(resources=[same, same]).resources == (same,)


def test_what_is_no_resource_or_prompt_is_refused():
    with pytest.raises(InvalidTool, match="Resource"):
        Catalog(resources=[tool()])
    with pytest.raises(InvalidTool, match="Prompt"):
        Catalog(prompts=[named("one", "d:1")])


@pytest.mark.parametrize("schema", [True, False])
def test_a_tool_whose_input_is_true_or_false_takes_no_arguments(schema):
    made = Tool(id="d.page", description="", contract=Contract(input=schema), handler=handler)
    assert Prompt(tool=made).arguments == ()
    assert Resource(uri="d:page", tool=made).variables == ()
    with pytest.raises(InvalidTool, match="but it takes none"):
        Resource(uri="d:{page}", tool=made)
