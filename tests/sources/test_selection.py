"""Selection by rule: tags, paths, methods, operations, deprecated, for the tools of any source."""

from __future__ import annotations

from typing_extensions import deprecated

from callpact import from_functions
from callpact.tool import Origin
from schema_file import Caller


def test_a_flowmcp_tool_has_the_method_and_the_path_of_its_request(tmp_path):
    assert Caller(tmp_path).tool.origin == Origin("GET", "/price/{{id}}")


def test_a_function_that_is_marked_as_deprecated_is_a_deprecated_tool():
    @deprecated("Use new.")
    def old() -> int:
        return 1

    def new() -> int:
        return 1

    made = from_functions(old, new, namespace="shop")
    assert [tool.origin for tool in made] == [Origin(deprecated=True), Origin()]
