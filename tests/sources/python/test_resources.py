"""`@resource` and `@prompt`: functions that are read or filled in, beside those that are called."""

from __future__ import annotations

import asyncio
import sys

import pytest

import callpact
from callpact import from_functions, prompt, resource, tool
from callpact.context import Context
from callpact.errors import InvalidTool, SourceRefused
from callpact.resources import PromptArgument
from callpact.sources import Opening
from callpact.sources.python.modules import open_python


@tool
def add(a: int, b: int) -> int:
    return a + b


@resource(
    "docs://{page}/{line}",
    name="book",
    title="A line",
    mime_type="text/plain",
    access=["read"],
    complete={"page": ["intro"]},
    timeout=5,
)
def line_of(page: str, line: int, context: Context) -> str:
    """One line of a page.

    Args:
        page: Its name.
    """
    return f"{page}:{line}"


@prompt
def review(code: str, tone: str = "kind") -> str:
    """Review some code.

    Args:
        code: What to review.
    """
    return f"{tone}: {code}"


def test_a_marked_function_is_still_the_function():
    assert line_of("a", 1, None) == "a:1"
    assert review("x") == "kind: x"


def test_tools_resources_and_prompts_are_told_apart():
    made = from_functions(add, line_of, review, namespace="t")
    assert [one.id for one in made] == ["t.add"]
    assert [one.tool.id for one in made.resources] == ["t.book"]
    assert [one.tool.id for one in made.prompts] == ["t.review"]
    assert callpact.resource is resource
    assert callpact.prompt is prompt


def test_what_the_decorator_and_the_docstring_say_of_a_resource_is_kept():
    (made,) = from_functions(line_of, namespace="t").resources
    assert (made.uri, made.mime_type, made.variables) == (
        "docs://{page}/{line}",
        "text/plain",
        ("page", "line"),
    )
    held = made.tool
    assert (held.title, held.description, held.timeout) == ("A line", "One line of a page.", 5)
    assert (held.access.scopes, held.kind) == (("read",), "query")
    assert held.contract.input["properties"]["page"]["description"] == "Its name."
    assert dict(made.completions) == {"page": ("intro",)}


def test_what_the_docstring_says_of_a_prompt_is_kept():
    (made,) = from_functions(review, namespace="t").prompts
    assert made.tool.description == "Review some code."
    assert made.arguments == (
        PromptArgument("code", "What to review.", is_required=True),
        PromptArgument("tone", "", is_required=False),
    )


def test_texts_become_what_the_function_takes():
    (made,) = from_functions(line_of, namespace="t").resources
    runtime = callpact.Runtime([made.tool])
    envelope = asyncio.run(runtime.execute("t.book", {"page": "intro", "line": "7"}))
    assert envelope.data == "intro:7"


def test_resources_and_prompts_that_are_made_already_pass_through():
    made = from_functions(line_of, review, namespace="t")
    again = from_functions(*made.resources, *made.prompts)
    assert (again.resources, again.prompts, list(again)) == (made.resources, made.prompts, [])


@pytest.mark.parametrize("given", [None, 5, add])
def test_a_resource_needs_an_address(given):
    with pytest.raises(InvalidTool, match="address"):
        resource(given)


@pytest.mark.parametrize(
    ("uri", "text"),
    [("docs://{name}", "name"), ("docs://all", "page"), ("no scheme", "scheme")],
)
def test_an_address_that_does_not_fit_the_function_is_refused(uri, text):
    def page(page: str) -> str:
        return page

    with pytest.raises(InvalidTool, match=text):
        from_functions(resource(uri)(page))


def test_a_completion_for_no_parameter_is_refused():
    with pytest.raises(InvalidTool, match="size"):
        from_functions(prompt(complete={"size": ["small"]})(add))


@pytest.mark.parametrize("mark", [prompt, resource("docs://all")], ids=["prompt", "resource"])
def test_a_function_that_yields_gives_no_one_answer_to_read(mark):
    async def ticks():
        yield 1

    with pytest.raises(InvalidTool, match="yields"):
        from_functions(mark(ticks))


def test_one_text_is_no_list_of_scopes():
    with pytest.raises(InvalidTool, match="scopes"):
        prompt(access="admin")
    with pytest.raises(InvalidTool, match="scopes"):
        resource("docs://all", access="admin")


# --- from a file ----------------------------------------------------------------------------

FILE = """
from callpact import prompt, resource, tool
from callpact.resources import Prompt

@tool
def add(a: int, b: int) -> int: return a + b

@resource("docs://{page}")
def page(page: str) -> str: return page

@prompt
def review(code: str) -> str: return code
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Write a file and load it; what it leaves behind is taken away again."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def loaded(text, name="py_offers.py", ref=None):
        (tmp_path / name).write_text(text, "utf-8")
        return asyncio.run(open_python(Opening(ref or name, None, tmp_path)).load())

    yield loaded
    for name in [name for name in sys.modules if name.startswith(("py_offers", "callpact_file"))]:
        del sys.modules[name]


def test_a_file_gives_what_it_marks_each_with_its_source(load):
    made = load(FILE)
    assert [one.id for one in made] == ["py_offers.add"]
    assert [(one.uri, one.tool.source) for one in made.resources] == [
        ("docs://{page}", "python:py_offers.py:page")
    ]
    assert [(one.tool.id, one.tool.source) for one in made.prompts] == [
        ("py_offers.review", "python:py_offers.py:review")
    ]


def test_a_file_of_resources_alone_is_enough(load):
    made = load("from callpact import resource\n@resource('d:x')\ndef x() -> str: return 'x'\n")
    assert (len(made), len(made.resources)) == (0, 1)


def test_one_resource_can_be_named(load):
    made = load(FILE, ref="py_offers.py:page")
    assert (len(made), len(made.resources), len(made.prompts)) == (0, 1, 0)


def test_a_bad_resource_is_reported_and_leaves_the_others_alone(load):
    bad = "@resource('docs://{pages}')\ndef bad(page: str) -> str: return page\n"
    made = load(FILE + bad)
    assert (len(made), len(made.resources), len(made.prompts)) == (1, 1, 1)
    (finding,) = made.report
    assert (finding.place, finding.severity) == ("python:py_offers.py:bad", "error")
    assert "pages" in finding.message


def test_resources_and_prompts_that_a_file_holds_are_its_own(load):
    more = "from callpact import from_functions\nheld = Prompt(tool=from_functions(add)[0])\n"
    made = load(FILE + more)
    assert [one.tool.source for one in made.prompts] == [
        "python:py_offers.py:review",
        "python:py_offers.py:held",
    ]


def test_a_file_without_any_of_them_is_refused(load):
    with pytest.raises(SourceRefused, match="python:py_offers"):
        load("x = 1\n")
