"""The `registry.json` of a FlowMCP catalogue: which of its files are schema files.

Two forms are read: entries of `schemas` with `schemaPath`, as the public catalogue has them, and
with `file`, as the FlowMCP specification has them. A path that leaves the catalogue is refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct

from callpact.schema.issues.wording import cut
from callpact.sources.base import Finding
from callpact.sources.flowmcp.read.hit import at, got, is_text, items, members

REGISTRY = "registry.json"
MAX_REGISTRY_BYTES = 16 * 1024 * 1024
"""Bytes that the `registry.json` of a FlowMCP catalogue may have."""
_PATH_KEYS = ("schemaPath", "file")


class Registry(Struct, frozen=True):
    """The files that a registry lists, as paths under the catalogue, and its findings."""

    files: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def read_registry(root: Path) -> Registry | Finding | None:
    """The registry of a catalogue; a finding if it cannot be used, None if there is no such file."""
    file = root / REGISTRY
    try:
        if not file.is_file():
            return None
        with file.open("rb") as opened:
            data = opened.read(MAX_REGISTRY_BYTES + 1)
    except OSError as error:
        return _unusable(file, f"it cannot be read: {error.strerror}")
    if len(data) > MAX_REGISTRY_BYTES:
        return _unusable(file, f"it has more than {MAX_REGISTRY_BYTES:,} bytes")
    try:
        found: Any = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        return _unusable(file, f"it is not JSON: {error}")
    if not isinstance(members(found).get("schemas"), list):
        return _unusable(file, "it has no list `schemas`")
    return _listed(root, file, members(found))


def _unusable(file: Path, reason: str) -> Finding:
    words = (
        f"{REGISTRY} does not say which files are schema files: {reason}; every file of the folder "
        "is read; correct the registry, or remove it"
    )
    return Finding(str(file), "warning", words, "CAT001", "", 1, 1)


def _listed(root: Path, file: Path, registry: dict[str, Any]) -> Registry:
    base = os.path.realpath(root)
    files: dict[str, None] = {}
    findings: list[Finding] = []
    for kind, code in (("schemas", "CAT004"), ("shared", "CAT003")):
        for index, entry in enumerate(items(registry.get(kind))):
            key = next((key for key in _PATH_KEYS if key in members(entry)), _PATH_KEYS[0])
            path = members(entry).get(key)
            trouble = _trouble(base, path)
            if trouble is not None:
                words = f"{trouble}; correct the entry, or remove it"
                pointer = at(at(at("", kind), index), key)
                findings.append(Finding(str(file), "error", words, code, pointer, 1, 1))
            elif kind == "schemas":
                files.setdefault(os.path.normpath(str(path)))
    return Registry(tuple(files), tuple(findings))


def _trouble(base: str, path: Any) -> str | None:
    """The reason why a path of a registry cannot be used."""
    if not is_text(path):
        return f"an entry must have `schemaPath` or `file`, the path of its file, {got(path)}"
    shown = cut(path)
    parts = path.replace("\\", "/").split("/")
    if "\0" in path or ".." in parts or parts[0] == "" or ":" in parts[0]:
        return f"'{shown}' leads out of the catalogue; a path is relative, without `..`"
    if not path.endswith(".mjs"):
        return f"'{shown}' is no .mjs file"
    real = os.path.realpath(f"{base}/{path}")
    if not real.startswith(f"{base.rstrip(os.sep)}{os.sep}"):
        return f"'{shown}' leads out of the catalogue by a symbolic link"
    return None if os.path.exists(real) else f"'{shown}' is listed, but there is no such file"  # noqa: PTH110 - of thousands
