"""The package as a whole: its tree, its public names, its prose."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

import callpact

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "callpact"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT / "src").parts) for path in SOURCE.rglob("__init__.py")
)
FACES = [
    name
    for name in PACKAGES
    if "__all__" in (ROOT / "src" / Path(*name.split(".")) / "__init__.py").read_text("utf-8")
]
DIALECT = re.compile(
    r"\b(?i:told|tells?|telling|whoever|so many|meanwhile|by chance|lest)\b"
    r"|(?<!there )\bis none\b|\AWhat "
)


def sentences(path):
    """Every docstring and every string under a constant of a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def test_no_two_modules_share_a_name():
    names = Counter(path.stem for path in MODULES if path.name != "__main__.py")
    assert [name for name, number in names.items() if number > 1] == []


def test_no_two_public_classes_share_a_name():
    names = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, number in names.items() if number > 1] == []


def test_every_folder_with_modules_is_a_package():
    assert {path.parent for path in MODULES if not (path.parent / "__init__.py").exists()} == set()


def test_no_module_takes_the_place_of_a_lazy_name_of_its_package():
    """A module that is imported becomes an attribute of its package: `schema.fit` was one."""
    for face in FACES:
        folder = ROOT / "src" / Path(*face.split("."))
        modules = {path.stem for path in folder.iterdir()}
        lazy = {
            name.value
            for node in ast.walk(ast.parse((folder / "__init__.py").read_text("utf-8")))
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lazy_names"
            for name in ast.walk(node)
            if isinstance(name, ast.Constant)
        }
        assert modules & lazy & set(importlib.import_module(face).__all__) == set()


def test_no_folder_holds_more_than_twenty_modules():
    folders = Counter(path.parent for path in MODULES)
    assert {str(f): n for f, n in folders.items() if n > 20} == {}


def test_no_module_is_longer_than_eight_hundred_lines():
    for path in MODULES:
        assert len(path.read_text("utf-8").splitlines()) <= 800, path


def test_docstrings_are_plain_technical_english():
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text[:60]!r}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, text in sentences(path)
        if DIALECT.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("name", FACES)
def test_the_public_names_of_a_package_are_sorted_and_there(name):
    package = importlib.import_module(name)
    names = package.__all__
    constants = [n for n in names if n.isupper()]
    classes = [n for n in names if n[0].isupper() and not n.isupper()]
    functions = [n for n in names if n[0].islower()]
    assert names == sorted(constants) + sorted(classes) + sorted(functions)
    for public in names:
        assert getattr(package, public) is not None
    with pytest.raises(AttributeError):
        _ = package.no_such_name


def test_every_package_but_the_command_line_has_public_names():
    packages = {name for name in PACKAGES if name.count(".") == 1}
    assert packages - set(FACES) == {"callpact.cli"}


def test_the_package_itself_has_the_names_that_a_program_needs():
    assert len(callpact.__all__) <= 70


def imported(text):
    """The modules of callpact that a text of Python imports, with the names that it takes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "callpact":
            yield str(node.module), [alias.name for alias in node.names]


def samples():
    for path in sorted((ROOT / "examples").rglob("*.py")):
        yield path, path.read_text("utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for block in re.findall(
            r"^```python\n(.*?)^```$", path.read_text("utf-8"), re.MULTILINE | re.DOTALL
        ):
            yield path, block


def test_docs_and_examples_import_from_packages_and_top_level_modules_alone():
    deep = [
        f"{path.relative_to(ROOT)}: {module}"
        for path, text in samples()
        for module, _ in imported(text)
        if module.count(".") > 1
    ]
    assert deep == []
