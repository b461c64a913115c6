"""The rules of resources that need no SQL: their number, their names, the origin of their data."""

from __future__ import annotations

import re
from typing import Any

from msgspec import UNSET

from callpact.schema.issues.wording import cut
from callpact.sources.flowmcp.read.hit import CAMEL, Hit, Hits, at, got, is_text, members

MAX_RESOURCES = 2
"""Resources that a FlowMCP file may have (seed 002)."""
MAX_QUERIES = 7
"""Queries that a resource of a FlowMCP file may have."""

_SOURCES = ("sqlite", "markdown", "http", "sqlite-gtfs", "geo-geojson", "geo-csv")
_FIELDS = {
    "sqlite": ("mode", "origin", "name", "queries"),
    "markdown": ("origin", "name"),
    "http": ("cacheTtl", "queries"),
    "sqlite-gtfs": ("mode", "path"),
    "geo-geojson": ("mode",),
    "geo-csv": ("mode",),
}
_GEO = frozenset({"geo-geojson", "geo-csv"})
_ADDED = frozenset({"sqlite-gtfs", *_GEO})
_FILES = {"sqlite": ".db", "markdown": ".md"}
_STEM = re.compile(r"[a-z][a-z0-9-]*\Z")
_DRIVE = re.compile(r"[A-Za-z]:")


def resource_hits(main: dict[str, Any]) -> Hits:
    """Breaches in the resources of a file, except in their queries."""
    resources = main.get("resources", UNSET)
    if resources is UNSET:
        return
    if not isinstance(resources, dict):
        words = f"`resources` must be an object of resources, {got(resources)}"
        yield Hit("RES001", "/resources", words)
        return
    if len(members(resources)) > MAX_RESOURCES:
        words = f"there must be at most {MAX_RESOURCES} resources, got {len(members(resources))}"
        yield Hit("RES005", "/resources", words)
    for name, resource in members(resources).items():
        path = at("/resources", name)
        if not CAMEL.match(name):
            words = f"the name of a resource must be in camelCase, {got(name)}"
            yield Hit("RES017", path, words)
        if not isinstance(resource, dict):
            yield Hit("RES001", path, f"a resource must be an object, {got(resource)}")
            continue
        yield from _resource_hits(members(resource), path)


def _resource_hits(resource: dict[str, Any], path: str) -> Hits:
    source = resource.get("source", UNSET)
    if not is_text(resource.get("description")):
        words = f"`description` must be a text, {got(resource.get('description', UNSET))}"
        yield Hit("RES002", f"{path}/description", words)
    if not isinstance(source, str) or source not in _SOURCES:
        words = f"`source` must be one of {', '.join(_SOURCES)}"
        yield Hit("RES001", f"{path}/source", f"{words}, {got(source)}")
        return
    queries = resource.get("queries", UNSET)
    if len(members(queries)) > MAX_QUERIES:
        words = f"there must be at most {MAX_QUERIES} queries, got {len(members(queries))}"
        yield Hit("RES028", f"{path}/queries", words)
    if queries is not UNSET and source != "markdown" and not isinstance(queries, dict):
        yield Hit("RES041", f"{path}/queries", f"`queries` must be an object, {got(queries)}")
    if source == "sqlite" and "database" in resource:
        yield from _database_hits(resource["database"], f"{path}/database")
        return
    for field in _FIELDS[source]:
        if field not in resource:
            yield Hit("RES041", f"{path}/{field}", f"`{field}` must be there")
    yield from _place_hits(resource, path, source)
    yield from _mode_hits(resource, path, source)


def _database_hits(database: Any, path: str) -> Hits:
    yield Hit("VAL143", path, "`database` is the old way to name a file")
    if not isinstance(database, str) or not database.endswith(".db"):
        yield Hit("RES003", path, f"`database` must end with '.db', {got(database)}")
        return
    if database.startswith(("/", "\\", "~")) or _DRIVE.match(database):
        yield Hit("RES003", path, f"`database` must be a relative path, {got(database)}")
    if ".." in re.split(r"[/\\]", database):
        yield Hit("RES004", path, f"`database` must not hold '..', {got(database)}")


def _place_hits(resource: dict[str, Any], path: str, source: str) -> Hits:
    origin, name = resource.get("origin", UNSET), resource.get("name", UNSET)
    if origin is not UNSET and origin not in ("inline", "project", "global"):
        words = f"`origin` must be inline, project or global, {got(origin)}"
        yield Hit("RES026", f"{path}/origin", words)
    ending = _FILES.get(source)
    if ending is not None and name is not UNSET:
        stem = name[: -len(ending)] if isinstance(name, str) and name.endswith(ending) else ""
        if not _STEM.match(stem):
            words = f"`name` must be like 'price-list{ending}', {got(name)}"
            yield Hit("RES027", f"{path}/name", words)
    if source == "sqlite" and origin == "inline":
        yield Hit("RES040", f"{path}/origin", "a database should not be `inline`")
    is_url = source == "http" or resource.get("mode") == "url"
    url = resource.get("url", UNSET)
    if is_url and not (isinstance(url, str) and url.startswith("https://")):
        key = "RES024" if source == "http" else "RES044"
        kind = "a text" if isinstance(url, str) else got(url)
        yield Hit(key, f"{path}/url", f"`url` must begin with https://, got {kind}")
    if source in _ADDED and not is_text(resource.get("addon")):
        words = f"`addon` must name the add-on, {got(resource.get('addon', UNSET))}"
        yield Hit("RES031", f"{path}/addon", words)


def _mode_hits(resource: dict[str, Any], path: str, source: str) -> Hits:
    mode = resource.get("mode", UNSET)
    if source == "markdown":
        if mode is not UNSET:
            yield Hit("RES038", f"{path}/mode", f"a markdown resource has no mode, {got(mode)}")
        if "queries" in resource:
            yield Hit("RES039", f"{path}/queries", "a markdown resource has no queries")
        return
    if mode is UNSET or source == "http":
        return
    if mode == "url":
        if source not in _GEO:
            yield Hit("RES043", f"{path}/mode", f"the source '{cut(source)}' has no mode url")
        elif source == "geo-csv" and not isinstance(resource.get("parseConfig"), dict):
            words = f"`parseConfig` must be an object, {got(resource.get('parseConfig', UNSET))}"
            yield Hit("RES045", f"{path}/parseConfig", words)
    elif source == "sqlite-gtfs" and mode != "file-based":
        yield Hit("RES030", f"{path}/mode", f"`mode` must be file-based, {got(mode)}")
    elif mode not in ("in-memory", "file-based"):
        yield Hit("RES025", f"{path}/mode", f"`mode` must be in-memory or file-based, {got(mode)}")
    if source == "sqlite" and mode == "file-based" and resource.get("origin") != "project":
        words = f"a file-based database must have the origin project, {got(resource.get('origin', UNSET))}"
        yield Hit("RES037", f"{path}/origin", words)
