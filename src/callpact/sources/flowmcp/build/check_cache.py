"""A cache of check results between runs: unchanged files are not checked again.

There is one cache file per catalogue and profile, named by a hash of all that the results depend
on: rules, profile, libraries, lists. Its entries are keyed by the path and the hash of a file. A
cache that cannot be read is ignored; one that cannot be written only costs the next run time.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from callpact.sources.base import Finding

MAX_CACHE_BYTES = 200_000_000
"""Bytes that a cache may have; a larger one is not read but replaced."""

_log = logging.getLogger("callpact.sources.flowmcp")


_NOTHING = Raw(msgspec.msgpack.encode(None))


class ToolHead(Struct, frozen=True):
    """The fields of a tool that loading needs; the rules have checked their types."""

    description: Any
    method: Any
    tests: Any = ()
    meta: Any = None
    path: Any = ""


class ManifestHead(Struct, frozen=True, rename="camel"):
    """The few fields of `main` that loading needs."""

    namespace: Any
    name: Any
    tools: dict[str, ToolHead]
    tags: Any = ()
    schema_version: Any = "1.0.0"
    required_server_params: Any = ()
    required_libraries: Any = ()
    meta: Any = None
    description: Any = ""
    docs: Any = ()
    terms_of_service: Any = None
    terms_of_service_checked_at: Any = None
    terms_of_service_language: Any = None
    data_license: Any = None
    data_license_name: Any = None
    root: Any = ""


class CachedManifest:
    """The `main` of a checked file, decoded on demand."""

    def __init__(self, data: Raw) -> None:
        self._data = data

    @cached_property
    def head(self) -> ManifestHead:
        """The fields that loading needs."""
        return _heads.decode(self._data)

    @cached_property
    def main(self) -> dict[str, Any]:
        """All fields, which a call needs."""
        return msgspec.msgpack.decode(self._data)


_heads = msgspec.msgpack.Decoder(ManifestHead)


class Entry(Struct, frozen=True):
    """The check result of one file."""

    data: Raw = _NOTHING
    """Its `main`, as bytes: most files are loaded and never called."""
    findings: tuple[Finding, ...] = ()
    handlers: int | None = None
    """The offset of the code of hooks; None if the file has none."""
    hooked: tuple[str, ...] | None = None
    """The tools that may have hooks; only of files that need libraries, which may be missing."""
    aliases: dict[str, dict[str, str]] = {}
    """Other names of arguments, by tool."""

    @property
    def manifest(self) -> CachedManifest | None:
        """Its `main`; None if it cannot be loaded."""
        return None if self.data == _NOTHING else CachedManifest(self.data)


class Cache:
    """The entries of one catalogue; `save` writes those that were read or added."""

    def __init__(self, folder: Path | None, parts: Iterable[str] = ()) -> None:
        name = hashlib.sha256("\0".join([_rules(), *parts]).encode()).hexdigest()[:32]
        self._path = None if folder is None else folder / f"{name}.msgpack"
        self._old = _read(self._path)
        self._new: dict[str, Entry] = {}

    def key(self, file: str, text: bytes) -> str:
        """The key of a file."""
        return f"{file}\0{hashlib.sha256(text).hexdigest()}"

    def get(self, key: str) -> tuple[Entry, CachedManifest | None] | None:
        """The entry of an unchanged file and its `main`, or None."""
        entry = self._old.get(key)
        if entry is None:
            return None
        manifest = entry.manifest
        try:
            if manifest is not None:
                _ = manifest.head
        except msgspec.DecodeError:  # The cache was tampered with.
            return None
        self._new[key] = entry
        return entry, manifest

    def add(self, key: str, entry: Entry) -> None:
        """Add a file that was checked."""
        self._new[key] = entry

    def save(self) -> None:
        """Replace the cache file if entries changed; no other user can read it."""
        if self._path is None or self._new.keys() == self._old.keys():
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._path.parent, delete=False) as file:
                file.write(msgspec.msgpack.encode(self._new))
            Path(file.name).replace(self._path)
        except (OSError, TypeError, OverflowError) as error:
            _log.info("the cache of %s was not written: %s", self._path, error)


def packed(main: dict[str, Any]) -> Raw:
    """The `main` of a file as an entry keeps it."""
    return Raw(msgspec.msgpack.encode(main))


def hash_of(value: object) -> str:
    """A hash of a value by its repr."""
    return hashlib.sha256(repr(value).encode("utf-8", "backslashreplace")).hexdigest()


def _read(path: Path | None) -> dict[str, Entry]:
    if path is None:
        return {}
    try:
        if path.stat().st_size > MAX_CACHE_BYTES:
            return {}
        return msgspec.msgpack.decode(path.read_bytes(), type=dict[str, Entry])
    except (OSError, ValueError, RecursionError):
        return {}


def _rules() -> str:
    """A fingerprint of the rules, which changes with a release or an edit."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return ";".join(f"{file.name}:{(s := file.stat()).st_size}:{s.st_mtime_ns}" for file in files)
