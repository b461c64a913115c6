"""Tools from Python files and modules."""

from __future__ import annotations

import asyncio
import sys

import pytest

from callpact.errors import SourceRefused
from callpact.sources import Opening
from callpact.sources.python.modules import open_python


@pytest.fixture(autouse=True)
def _forget_modules():
    """A file is imported as a program would: what it leaves behind is taken away again."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and name.startswith(
            ("py_", "callpact_file")
        ):
            del sys.modules[name]
    sys.path[:] = path


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("from callpact import tool\n" + text, "utf-8")
    return path


def load(ref, folder, namespace=None):
    return asyncio.run(open_python(Opening(ref, namespace, folder)).load())


def ids(tools):
    return [tool.id for tool in tools]


def refusal(ref, folder) -> str:
    with pytest.raises(SourceRefused) as caught:
        load(ref, folder)
    return str(caught.value)


TWO = "@tool\ndef one() -> int: return 1\n@tool\ndef two() -> int: return 2\ndef three(): pass\n"


def test_the_marked_functions_of_a_file_are_its_tools(tmp_path):
    write(tmp_path, "py_two.py", TWO)
    tools = load("py_two.py", tmp_path)
    assert ids(tools) == ["py_two.one", "py_two.two"]
    assert [tool.source for tool in tools] == ["python:py_two.py:one", "python:py_two.py:two"]


def test_an_absolute_file_needs_no_folder(tmp_path):
    path = write(tmp_path, "py_abs.py", TWO)
    assert ids(load(str(path), None)) == ["py_abs.one", "py_abs.two"]


def test_a_module_is_found_in_the_folder(tmp_path):
    write(tmp_path, "py_pack/__init__.py", "")
    write(tmp_path, "py_pack/desk.py", "from py_pack.words import HELLO\n" + TWO)
    write(tmp_path, "py_pack/words.py", "HELLO = 'hi'")
    assert ids(load("py_pack.desk", tmp_path)) == ["desk.one", "desk.two"]


def test_a_file_may_import_its_neighbour(tmp_path):
    write(tmp_path, "deep/py_main.py", "import py_neighbour\n" + TWO)
    write(tmp_path, "deep/py_neighbour.py", "")
    assert len(load("deep/py_main.py", tmp_path)) == 2


@pytest.mark.parametrize("name", ["one", "BOTH", "PAIR"])
def test_one_object_can_be_named(tmp_path, name):
    write(
        tmp_path,
        "py_named.py",
        TWO + "from callpact import from_functions\n"
        "BOTH = [one, two]\nPAIR = from_functions(one, two)\n",
    )
    assert len(load(f"py_named.py:{name}", tmp_path)) == (1 if name == "one" else 2)


def test_a_namespace_is_taken_only_where_the_decorator_has_none(tmp_path):
    write(
        tmp_path,
        "py_space.py",
        "@tool\ndef one(): pass\n@tool(namespace='own')\ndef two(): pass\n",
    )
    assert ids(load("py_space.py", tmp_path, "given")) == ["given.one", "own.two"]


def test_a_file_whose_name_is_no_identifier_has_a_readable_namespace(tmp_path):
    write(tmp_path, "my tools.v2.py", TWO)
    assert ids(load("my tools.v2.py", tmp_path)) == ["my_tools_v2.one", "my_tools_v2.two"]


def test_two_files_of_one_name_are_two_modules_with_stable_ids(tmp_path):
    write(tmp_path, "a/py_same.py", "@tool\ndef one(): pass\n")
    write(tmp_path, "b/py_same.py", "@tool\ndef two(): pass\n")
    assert ids(load("a/py_same.py", tmp_path)) == ["py_same.one"]
    assert ids(load("b/py_same.py", tmp_path)) == ["py_same.two"]
    assert ids(load("b/py_same.py", tmp_path)) == ["py_same.two"]


def test_a_file_named_like_a_module_of_python_is_read_all_the_same(tmp_path):
    write(tmp_path, "json.py", TWO)
    assert ids(load("json.py", tmp_path)) == ["json.one", "json.two"]


def test_what_is_imported_from_another_module_stays_there(tmp_path):
    write(tmp_path, "py_home.py", TWO)
    write(tmp_path, "py_guest.py", "from py_home import one\n@tool\ndef own(): pass\n")
    assert ids(load("py_guest.py", tmp_path)) == ["py_guest.own"]


def test_a_marked_bound_method_is_a_tool(tmp_path):
    write(
        tmp_path,
        "py_bound.py",
        "class Desk:\n    def ring(self) -> int: return 1\nring = tool(Desk().ring)\n",
    )
    assert ids(load("py_bound.py", tmp_path)) == ["py_bound.ring"]


def test_a_ready_tool_is_taken_as_it_is(tmp_path):
    write(
        tmp_path,
        "py_ready.py",
        "from callpact import Contract, Tool\nasync def run(a, c): return 1\n"
        "ready = Tool(id='x.y', description='', contract=Contract(), handler=run)\n",
    )
    tools = load("py_ready.py", tmp_path)
    assert ids(tools) == ["x.y"]
    assert tools[0].source == "python:py_ready.py:ready"


def test_one_bad_function_leaves_the_others_alone_and_is_reported(tmp_path):
    write(tmp_path, "py_bad.py", TWO + "@tool\ndef bad(x: object()): pass\n")
    tools = load("py_bad.py", tmp_path)
    assert ids(tools) == ["py_bad.one", "py_bad.two"]
    assert [(f.place, f.severity) for f in tools.report] == [("python:py_bad.py:bad", "error")]
    assert "x" in tools.report[0].message


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert "nosuch.py" in refusal("nosuch.py", tmp_path)


def test_a_module_that_is_not_there_is_named(tmp_path):
    told = refusal("py_nosuch", tmp_path)
    assert "there is no module 'py_nosuch'" in told


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("\n\n1 / 0\n", "ZeroDivisionError"),
        ("\n\nimport py_missing_dependency\n", "py_missing_dependency"),
        ("\n\ndef broken(:\n", "SyntaxError"),
        ("\n\nraise SystemExit('bye')\n", "SystemExit"),
    ],
)
def test_a_module_that_fails_to_import_is_told_with_the_error_and_its_line(tmp_path, text, named):
    write(tmp_path, "py_fails.py", text)
    told = refusal("py_fails.py", tmp_path)
    assert told.startswith("python:py_fails.py cannot be imported: ")
    assert named in told
    assert "py_fails.py, line 4" in told
    assert "py_fails" not in sys.modules


def test_a_module_without_tools_says_what_to_do(tmp_path):
    write(tmp_path, "py_none.py", "def one(): pass\n")
    told = refusal("py_none.py", tmp_path)
    assert "holds no tool" in told
    assert "@callpact.tool" in told


def test_a_name_that_is_not_there_is_told_with_those_that_are(tmp_path):
    write(tmp_path, "py_names.py", TWO)
    told = refusal("py_names.py:tow", tmp_path)
    assert "has no 'tow'" in told
    assert "one, two" in told


def test_a_changed_file_is_read_anew_with_the_modules_that_it_imports(tmp_path):
    text = "from pydantic import BaseModel\nimport py_unit\n\n\nclass Item(BaseModel):\n"
    text += "    {field}: int\n\n\n@tool\ndef one(item: Item) -> Item: return item\n"
    write(tmp_path, "py_fresh.py", text.format(field="old"))
    write(tmp_path, "py_unit.py", "")
    source = open_python(Opening("py_fresh.py", None, tmp_path))
    (first,) = asyncio.run(source.load())
    write(tmp_path, "py_fresh.py", text.format(field="new"))
    (second,) = asyncio.run(source.load())
    assert "new" in str(second.contract.input)
    assert "new" not in str(first.contract.input)
    assert sys.modules["py_fresh"].Item.model_fields.keys() == {"new"}


def test_a_version_without_tools_leaves_the_module_from_before(tmp_path):
    write(tmp_path, "py_kept.py", TWO)
    load("py_kept.py", tmp_path)
    known = sys.modules["py_kept"]
    write(tmp_path, "py_kept.py", "")
    assert "holds no tool" in refusal("py_kept.py", tmp_path)
    assert sys.modules["py_kept"] is known


def watched(source):
    return {each.path.name for each in source.watched()}


def test_what_is_watched_are_the_files_that_were_read(tmp_path):
    write(tmp_path, "py_seen.py", "import json, py_beside\n" + TWO)
    write(tmp_path, "py_beside.py", "")
    write(tmp_path, "py_other.py", "")
    source = open_python(Opening("py_seen.py", None, tmp_path))
    asyncio.run(source.load())
    assert watched(source) == {"py_seen.py", "py_beside.py"}


def test_after_a_failure_all_modules_around_are_watched(tmp_path):
    write(tmp_path, "deep/py_sick.py", "import py_not_yet\n" + TWO)
    source = open_python(Opening("deep/py_sick.py", None, tmp_path))
    with pytest.raises(SourceRefused):
        asyncio.run(source.load())
    assert watched(source) == {"py_sick.py", "deep", tmp_path.name}
    write(tmp_path, "deep/py_not_yet.py", "")
    assert len(asyncio.run(source.load())) == 2
    assert watched(source) == {"py_sick.py", "py_not_yet.py"}


def test_a_file_that_was_never_there_is_watched(tmp_path):
    source = open_python(Opening("py_absent.py", None, tmp_path))
    assert "py_absent.py" in watched(source)
