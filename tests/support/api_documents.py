"""Small OpenAPI documents for tests, and the tools that they become."""

from __future__ import annotations

import asyncio

from callpact.sources import from_openapi
from callpact.sources.openapi.openapi_source import check_openapi

SERVER = "https://api.example.com/v1"


def api(paths, version="3.0.3", **more):
    """A document with these paths."""
    info = {"title": "Pet Shop", "version": "1.2"}
    return {"openapi": version, "info": info, "servers": [{"url": SERVER}], "paths": paths, **more}


def swagger(paths, **more):
    """A document of Swagger 2.0 with these paths."""
    info = {"title": "Pet Shop", "version": "1.2"}
    return {"swagger": "2.0", "info": info, "host": "api.example.com", "paths": paths, **more}


def answer(schema, kind="application/json"):
    """A response with one schema."""
    return {"description": "ok", "content": {kind: {"schema": schema}}}


def body(schema, kind="application/json", **more):
    """A request body with one schema."""
    return {"content": {kind: {"schema": schema}}, **more}


def load(document, **options):
    """The tools of a document; nothing is fetched."""

    async def go():
        source, tools = await from_openapi(document, **options)
        await source.aclose()
        return tools

    return asyncio.run(go())


def one(operation, method="get", path="/pets", version="3.0.3", **more):
    """The only tool of a document with one operation."""
    (tool,) = load(api({path: {method: operation}}, version, **more))
    return tool


def check(document):
    """All findings about a document."""
    return asyncio.run(check_openapi(document)).report


def errors(findings):
    """The errors among findings, as place and message."""
    return [(each.path, each.message) for each in findings if each.severity == "error"]
