"""A key of a FlowMCP file never reaches another origin, over real connections."""

from __future__ import annotations

import asyncio

import pytest

import faults
from callpact import from_flowmcp
from callpact.errors import CallError, UpstreamError
from callpact.net import HttpTransport
from callpact.runtime import Runtime

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


# --- hooks, and keys in addresses -----------------------------------------------------------

HOOKED = """
export const main = {
    namespace: 'tea', name: 'Tea', description: 'Tea.', version: '4.0.0',
    root: 'https://api.example.com',
    requiredServerParams: [ 'TEA_KEY' ],
    tools: {
        getTea: {
            method: 'GET', path: '/redirect', description: 'Get tea',
            parameters: [
                { position: { key: 'to', value: '{{USER_PARAM}}', location: 'query' },
                  z: { primitive: 'string()', options: [] } }
            ],
            tests: [ { _description: 'one', to: 'x' } ]
        },
        moveTea: {
            method: 'GET', path: '/elsewhere', description: 'Move tea',
            parameters: [
                { position: { key: 'to', value: '{{USER_PARAM}}', location: 'query' },
                  z: { primitive: 'string()', options: [] } }
            ],
            output: { mimeType: 'text/plain', schema: { type: 'string' } },
            tests: [ { _description: 'one', to: 'x' } ]
        }
    }
}
export const handlers = () => ({
    getTea: { executeRequest: async ( { struct } ) => {
        try { const r = await fetch( struct.url ); return { response: r.status } }
        catch( error ) { return { response: error.message } }
    } },
    moveTea: { preRequest: async ( { struct, payload } ) => {
        struct.url = struct.url.replace( 'elsewhere', 'redirect' ); return { struct, payload }
    } }
})
"""


def _hooked_story(folder, tool_id, to, **given):
    (folder / "Tea.mjs").write_text(HOOKED, "utf-8")

    async def go():
        async with asyncio.timeout(20), faults.Faults() as first, faults.Faults() as second:
            transport = HttpTransport(
                allow=[second.here], upstreams={"https://api.example.com": first.url("")}
            )
            tools = from_flowmcp(folder, secrets={"TEA_KEY": KEY}, transport=transport, **given)
            try:
                target = second.url("/ok") if to == "elsewhere" else to
                answer = await Runtime(tools).execute(tool_id, {"to": target})
                return answer.data, second.requests
            except CallError as error:
                return error, second.requests
            finally:
                await tools.aclose()

    return asyncio.run(go())


def test_a_fetch_of_a_hook_is_not_led_to_a_host_that_is_not_allowed(tmp_path):
    data, second = _hooked_story(tmp_path, "tea.getTea", "elsewhere")
    assert "'127.0.0.1' is not the root of the file" in data
    assert '`hook_hosts = ["127.0.0.1"]`' in data
    assert second == []


def test_a_request_that_a_hook_made_is_not_led_to_a_host_that_is_not_allowed(tmp_path):
    error, second = _hooked_story(tmp_path, "tea.moveTea", "elsewhere")
    assert error.code == "address_not_allowed"
    assert second == []


def test_a_redirect_of_a_hook_to_an_allowed_host_is_followed(tmp_path):
    for tool_id in ("tea.getTea", "tea.moveTea"):
        data, second = _hooked_story(tmp_path, tool_id, "elsewhere", hook_hosts=["127.0.0.1"])
        assert not isinstance(data, CallError)
        assert len(second) == 1


def test_a_redirect_of_a_hook_within_its_root_is_followed(tmp_path):
    for target in ("/ok", "https://api.example.com/ok"):
        data, _ = _hooked_story(tmp_path, "tea.getTea", target)
        assert data == 200


@pytest.mark.parametrize("form", ["{}", "{}?key={}", "{}?k=%{:x}"])
def test_a_key_that_a_redirect_repeats_in_its_address_is_not_followed_to_another_host(
    tmp_path, form
):
    """The upstream puts into `Location` what it was sent; here the caller says so."""
    written = {"{}": "", "{}?key={}": KEY, "{}?k=%{:x}": ""}[form]
    text = "".join(f"%{ord(each):02x}" for each in KEY)
    (tmp_path / "Tea.mjs").write_text(FILE, "utf-8")

    async def go():
        async with asyncio.timeout(20), faults.Faults() as first, faults.Faults() as second:
            transport = HttpTransport(
                allow=[second.here], upstreams={"https://api.example.com": first.url("")}
            )
            tools = from_flowmcp(tmp_path, secrets={"TEA_KEY": KEY}, transport=transport)
            query = f"?k={text}" if form.startswith("{}?k") else f"?key={written}"
            try:
                await Runtime(tools).execute("tea.getTea", {"to": second.url(f"/ok{query}")})
                error = None
            except UpstreamError as caught:
                error = caught
            finally:
                await tools.aclose()
            return second.requests, error

    heard, error = asyncio.run(go())
    if form == "{}":
        assert (len(heard), error) == (1, None)
    else:
        assert heard == []
        assert error.details["reason"] == "redirect"
        assert KEY not in str(error)
