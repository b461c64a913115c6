"""Callers who may be far away never see where on this machine the files are."""

from __future__ import annotations

import asyncio
import json

import pytest

import calls
from callpact import from_flowmcp
from callpact.catalog import Catalog
from callpact.discovery import discovery_tools
from callpact.discovery.tools import CALL_TOOL, DESCRIBE_TOOL
from callpact.errors import CallError
from callpact.runtime import Runtime
from callpact.testing import StubTransport
from callpact.wire import flowmcp
from callpact.wire import plain as gate
from callpact.wire.mcp import results as mcp

THROWING = "export const handlers = () => ({ getIt: { %s } })"
CODES = {
    "a hook that throws": THROWING % calls.instead("throw new Error( 'no' )"),
    "a hook that runs for ever": THROWING % calls.instead("for(;;) {}"),
    "a hook of a wrong shape": THROWING % calls.instead("return 1"),
    "a hook that shows its stack": THROWING
    % calls.instead("return { response: new Error( 'x' ).stack }"),
    "a factory that throws": "export const handlers = () => { throw new Error( 'no' ) }",
    "another main": "export const handlers = () => { main.name = 'x'; "
    "return { getIt: { executeRequest: async () => ({ response: 1 }) } } }",
}


def everything(tools, arguments=None):
    """All that a caller can get to see of a tool, over any door, as one text."""
    (tool,) = tools
    texts = [json.dumps(mcp.encode_tool(tool, modern=modern)) for modern in (True, False)]
    texts.append(repr(tool.disabled))

    async def go():
        runtime = Runtime(Catalog(tools))
        inner = Runtime(Catalog(discovery_tools(runtime)))
        for where, name, given in (
            (runtime, tool.id, arguments or {}),
            (inner, DESCRIBE_TOOL, {"name": tool.id}),
            (inner, CALL_TOOL, {"name": tool.id, "arguments": arguments or {}}),
        ):
            try:
                envelope = await where.execute(name, given)
                texts.append(json.dumps(envelope.to_wire(details=True), default=str))
            except CallError as error:
                texts.append(f"{error} {error.details} {error.issues}")
                texts.append(json.dumps(gate.encode_error(error), default=str))
                texts.append(json.dumps(flowmcp.encode_error(error, "getIt")))
                texts.append(json.dumps(mcp.encode_error(error), default=str))
        await tools.aclose()

    asyncio.run(go())
    return "\n".join(texts)


@pytest.mark.parametrize("case", CODES)
def test_no_failure_of_a_hook_shows_an_absolute_path(tmp_path, case):
    folder = tmp_path / "a-place-of-ours"
    folder.mkdir()
    file = folder / "Shop.mjs"
    file.write_text(calls.exported(calls.main(), code=CODES[case]), "utf-8")
    for path in (folder, file):
        text = everything(from_flowmcp(path, transport=StubTransport(calls.answered())))
        assert "a-place-of-ours" not in text
        assert str(tmp_path) not in text


@pytest.mark.parametrize("index", ["not an index", '{"format": 99, "packs": {}}', None])
def test_no_trouble_with_libraries_shows_an_absolute_path(tmp_path, index):
    folder, packs = tmp_path / "a-place-of-ours", tmp_path / "packs-of-ours"
    folder.mkdir()
    packs.mkdir(mode=0o700)
    if index is not None:
        for name in ("index.json", "packs.json"):
            (packs / name).write_text(index, "utf-8")
            (packs / name).chmod(0o600)
    data = calls.main(requiredLibraries=["moment"])
    code = THROWING % calls.instead("return { response: 1 }")
    (folder / "Shop.mjs").write_text(calls.exported(data, code=code), "utf-8")
    tools = from_flowmcp(folder, packs=packs, transport=StubTransport(calls.answered()))
    text = everything(tools)
    assert "a-place-of-ours" not in text
    assert "packs-of-ours" not in text
