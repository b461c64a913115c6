"""Contracts with a real history are compared within bounds, and the known changes are found."""

from __future__ import annotations

import inspect
from collections import Counter
from importlib import import_module

import pytest
from pydantic import BaseModel

from api_documents import load
from api_downloads import NoDocument, document
from callpact import Catalog, Contract, Tool
from callpact.contracts import Prover, diff_catalogs


async def handler(arguments, context):
    return None


def revision(date):
    """The messages of a revision of MCP: results as outputs, all others as inputs."""
    module = import_module(f"mcp_types._v{date}")
    tools = []
    for name, model in vars(module).items():  # Some have a second name.
        if not (inspect.isclass(model) and issubclass(model, BaseModel)):
            continue
        if (model.__module__, model.__name__) != (module.__name__, name):
            continue
        side = "output" if model.__name__.endswith("Result") else "input"
        contract = Contract(**{side: model.model_json_schema()})
        tools.append(
            Tool(id=f"mcp.{model.__name__}", description="", contract=contract, handler=handler)
        )
    return Catalog(tools)


def test_the_two_revisions_of_mcp_are_compared():
    old, new = revision("2025_11_25"), revision("2026_07_28")
    with Prover(1, total=15) as prover:
        found = diff_catalogs(old, new, prover=prover)
    words = {(change.tool, change.words) for change in found.changes}
    assert found.bump == "major"
    assert ("mcp.InitializeRequest", "was removed") in words
    assert ("mcp.PingRequest", "was removed") in words
    assert ("mcp.DiscoverRequest", "was added") in words
    for change in found.changes:
        if change.example:
            before, after = (each.find(change.tool).contract for each in (old, new))
            schemas = [
                each.compiled_input if change.side == "input" else each.compiled_output
                for each in (before, after)
            ]
            accepted = [schema is None or schema.accepts(change.example[0]) for schema in schemas]
            assert accepted == ([True, False] if change.side == "input" else [False, True])
    assert diff_catalogs(new, new).changes == ()


def test_two_versions_of_the_api_of_github_are_compared_within_the_time_for_proofs():
    try:
        paths = document("github_before"), document("github")
    except NoDocument as error:
        pytest.skip(str(error))
    old, new = (Catalog(load(path)) for path in paths)
    with Prover(1, total=5) as prover:
        found = diff_catalogs(old, new, prover=prover)
    kinds = Counter(change.words for change in found.changes if change.subject == "tool")
    assert found.bump == "major"
    assert kinds["was added"] > 50
    assert sum(number for words, number in kinds.items() if "was removed" in words) > 20
    assert any("all proofs, 5 s, is used up" in reason for _, _, reason in found.unproved)
    decided = Counter(change.decided for change in found.changes)
    assert decided["proved"] > 0
    assert decided["refuted"] > 0
