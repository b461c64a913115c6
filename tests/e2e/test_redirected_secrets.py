"""A key of a FlowMCP file never reaches another origin, over real connections."""

from __future__ import annotations

import asyncio

import faults
from callpact.errors import UpstreamError
from callpact.net import HttpTransport
from callpact.runtime import Runtime
from callpact.sources.flowmcp.loading import from_flowmcp

KEY = "0123456789abcdef"
FILE = """
export const main = {
    namespace: 'tea',
    name: 'Tea',
    description: 'Tea.',
    version: '4.0.0',
    root: 'https://api.example.com',
    requiredServerParams: [ 'TEA_KEY' ],
    headers: { 'X-Api-Key': '{{SERVER_PARAM:TEA_KEY}}' },
    tools: {
        getTea: {
            method: 'GET', path: '/redirect', description: 'Get tea',
            parameters: [
                { position: { key: 'to', value: '{{USER_PARAM}}', location: 'query' },
                  z: { primitive: 'string()', options: [] } }
            ],
            output: { mimeType: 'text/plain', schema: { type: 'string' } },
            tests: [ { _description: 'one', to: 'x' } ]
        },
        sendTea: {
            method: 'POST', path: '/redirect?code=307', description: 'Send tea',
            parameters: [
                { position: { key: 'to', value: '{{USER_PARAM}}', location: 'query' },
                  z: { primitive: 'string()', options: [] } },
                { position: { key: 'key', value: '{{SERVER_PARAM:TEA_KEY}}', location: 'body' },
                  z: { primitive: 'string()', options: [] } }
            ],
            tests: [ { _description: 'one', to: 'x' } ]
        }
    }
}
"""


def _story(folder, tool_id):
    """Call a tool whose upstream redirects to another origin; what each of the two heard."""
    (folder / "Tea.mjs").write_text(FILE, "utf-8")

    async def go():
        async with asyncio.timeout(20), faults.Faults() as first, faults.Faults() as second:
            transport = HttpTransport(
                allow=[second.here], upstreams={"https://api.example.com": first.url("")}
            )
            tools = from_flowmcp(folder, secrets={"TEA_KEY": KEY}, transport=transport)
            try:
                await Runtime(tools).execute(tool_id, {"to": second.url("/ok")})
                error = None
            except UpstreamError as caught:
                error = caught
            finally:
                await tools.aclose()
            return first.requests, second.requests, error

    return asyncio.run(go())


def test_a_key_in_a_header_stays_behind(tmp_path):
    first, second, error = _story(tmp_path, "tea.getTea")
    assert error is None
    assert first[0].header("x-api-key") == KEY
    assert len(second) == 1
    assert second[0].header("x-api-key") is None


def test_a_key_in_a_body_is_not_sent_on(tmp_path):
    first, second, error = _story(tmp_path, "tea.sendTea")
    assert len(first) == 1
    assert second == []
    assert error.details["reason"] == "redirect"
    assert KEY not in f"{error} {error.details}"
