"""Library packs: scripts that hooks find in `libraries`, kept in one private directory.

One file for each library, `NAME-VERSION.js`, and `index.json`, which lists them with their hashes.
A pack is read only if its hash is the one in the index; file names are derived from checked names
and never read from a file. `bundler.py` builds packs (`callpact libs add`), the engine runs them: a
script assigns its library to the global `__callpact_pack`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from callpact.errors import DeclarationError
from callpact.folders import data_folder
from callpact.sandbox.js.builtin_modules import node_module

GLOBAL = "__callpact_pack"
"""The global that a pack's script assigns its library to; the evaluating code deletes it."""
INDEX = "index.json"
"""The file that lists the packs."""
MAX_PACK_BYTES = 16 << 20
"""Bytes that the script of a pack may have."""

_NODE = (
    "assert assert/strict async_hooks buffer child_process cluster console constants crypto dgram "
    "diagnostics_channel dns dns/promises domain events fs fs/promises http http2 https inspector "
    "module net os path path/posix path/win32 perf_hooks process punycode querystring readline "
    "readline/promises repl stream stream/consumers stream/promises stream/web string_decoder sys "
    "timers timers/promises tls trace_events tty url util util/types v8 vm wasi worker_threads zlib"
)
NODE_MODULES = tuple(_NODE.split())
"""Libraries that hooks cannot use: they are part of Node."""
_NATIVE = frozenset({"better-sqlite3", "bcrypt", "canvas", "sharp", "sqlite3", "talib"})
_MAX_INDEX_BYTES = 4 << 20
_FORMAT = 1
# npm's rules for names since 2017, so that no two differ by case alone.
_NAME = re.compile(r"(?=.{1,214}\Z)(?:@[a-z0-9~][a-z0-9._~-]*+/)?[a-z0-9~][a-z0-9._~-]*+", re.ASCII)
_VERSION = re.compile(r"(?=.{1,80}\Z)[0-9]++\.[0-9]++\.[0-9]++(?:-[0-9A-Za-z.-]++)?", re.ASCII)


class PackRefused(DeclarationError):
    """A pack, or the directory of packs, that cannot be trusted or used as it is."""


@dataclass(frozen=True, slots=True)
class Pack:
    """One library, as it was built; its script is read by `load`."""

    name: str
    """The name on npm, by which hooks find it in `libraries`."""
    version: str
    sha256: str
    """Hash of the script."""
    size: int
    """Bytes of the script."""
    path: Path
    esbuild: str = ""
    """Version of the bundler that made it."""
    integrity: str = ""
    """npm's hash of the library that it was made from."""
    built: str = ""
    """When it was made."""


class _Entry(Struct, frozen=True, forbid_unknown_fields=True):
    version: str
    sha256: str
    size: int
    esbuild: str
    integrity: str
    built: str


class _Index(Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    packs: dict[str, _Entry]


def user_packs() -> Path:
    """The directory for the packs of this user."""
    return data_folder("libs")


def is_name(text: str) -> bool:
    """True for the name of a library on npm; such a name is safe in commands and file names."""
    return _NAME.fullmatch(text) is not None


def unusable(name: str) -> str | None:
    """The reason why a known library can never be a pack; None for any other."""
    if node_module(name) is not None:
        return f"{name} is built in: hooks that name it in requiredLibraries have it"
    if name in NODE_MODULES:
        return f"{name} is a part of Node, which hooks do not have"
    if name in _NATIVE:
        return f"{name} is native code, which the sandbox does not run"
    return None


def installed(directory: Path) -> Mapping[str, Pack]:
    """The packs of a directory by name; empty if the directory does not exist.

    Raises:
        PackRefused: other users may write there, or the index cannot be read.
    """
    index = _read_index(directory)
    return {name: _pack(directory, name, entry) for name, entry in sorted(index.items())}


def load(pack: Pack) -> str:
    """The script of a pack.

    Raises:
        PackRefused: it cannot be read, other users may write to it, or its hash is another one.
    """
    again = f"build it again with `callpact libs add {pack.name}`"
    if pack.size > MAX_PACK_BYTES:
        raise PackRefused(f"{pack.path} has {pack.size:,} bytes, {MAX_PACK_BYTES:,} are the most")
    try:
        content = _read(pack.path, pack.size)
    except FileNotFoundError:
        raise PackRefused(f"{pack.path} is in the index but not there; {again}") from None
    except OSError as error:
        raise PackRefused(f"cannot read {pack.path}: {error.strerror or error}") from error
    if hashlib.sha256(content).hexdigest() != pack.sha256:
        raise PackRefused(
            f"{pack.path} is not what was built (its sha256 differs from the index); "
            f"if you did not change it, find out who did, then {again}"
        )
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise PackRefused(f"{pack.path} is not UTF-8 text; {again}") from None


def keep(
    directory: Path,
    name: str,
    version: str,
    script: bytes,
    *,
    esbuild: str,
    integrity: str,
    built: str,
) -> Pack:
    """Write a pack and add it to the index, replacing another version.

    Raises:
        PackRefused: it cannot be a pack, or the directory cannot be trusted or written.
    """
    if not is_name(name) or _VERSION.fullmatch(version) is None:
        raise PackRefused(f"'{name}' in version '{version}' is no library of npm")
    if len(script) > MAX_PACK_BYTES:
        raise PackRefused(
            f"the pack of {name} has {len(script):,} bytes, {MAX_PACK_BYTES:,} are the most"
        )
    digest = hashlib.sha256(script).hexdigest()
    entry = _Entry(version, digest, len(script), esbuild, integrity, built)
    pack = _pack(directory, name, entry)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = _read_index(directory)
        _write(pack.path, script)
        _write_index(directory, {**before, name: entry})
        if name in before:
            _unlink_unless(pack.path, _pack(directory, name, before[name]).path)
    except OSError as error:
        raise PackRefused(f"cannot write to {directory}: {error.strerror or error}") from error
    return pack


def drop(directory: Path, name: str) -> Pack | None:
    """Remove a pack from the index and delete it; None if no pack has this name.

    Raises:
        PackRefused: the directory cannot be trusted or written.
    """
    index = _read_index(directory)
    if name not in index:
        return None
    pack = _pack(directory, name, index[name])
    try:
        _write_index(directory, {key: entry for key, entry in index.items() if key != name})
        pack.path.unlink(missing_ok=True)
    except OSError as error:
        raise PackRefused(f"cannot write to {directory}: {error.strerror or error}") from error
    return pack


def _pack(directory: Path, name: str, entry: _Entry) -> Pack:
    # `+` is in no name of npm: the part before it can only be a scope.
    path = directory / f"{name.replace('/', '+')}-{entry.version}.js"
    return Pack(
        name,
        entry.version,
        entry.sha256,
        entry.size,
        path,
        entry.esbuild,
        entry.integrity,
        entry.built,
    )


def _read_index(directory: Path) -> Mapping[str, _Entry]:
    file = directory / INDEX
    remedy = f"remove {directory} and build your packs again with `callpact libs add`"
    try:
        _check_ours(directory, directory.stat())
        index = msgspec.json.decode(_read(file, _MAX_INDEX_BYTES), type=_Index)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise PackRefused(f"cannot read {file}: {error.strerror or error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise PackRefused(f"{file} is not an index of packs: {error}; {remedy}") from None
    if index.format != _FORMAT:
        raise PackRefused(
            f"{file} has the format {index.format}, this callpact reads {_FORMAT}; {remedy}"
        )
    for name, entry in index.packs.items():
        if not is_name(name) or _VERSION.fullmatch(entry.version) is None:
            raise PackRefused(f"{file} names {name!r} {entry.version!r}, no library; {remedy}")
    return index.packs


def _read(path: Path, most: int) -> bytes:
    """The content of a trusted file, up to one byte more than allowed."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        _check_ours(path, os.fstat(file.fileno()))
        return file.read(most + 1)


def _check_ours(path: Path, status: os.stat_result) -> None:
    """Refuse a path that users other than this one and root can have written."""
    if not hasattr(os, "getuid"):
        return  # Windows: a user's directories are private by default.
    if status.st_uid not in {0, os.getuid()}:
        raise PackRefused(f"{path} belongs to another user; packs are read from files of your own")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PackRefused(f"{path} can be written by others; take that away: chmod go-w {path}")


def _write_index(directory: Path, packs: Mapping[str, _Entry]) -> None:
    index = _Index(_FORMAT, dict(sorted(packs.items())))
    _write(directory / INDEX, msgspec.json.format(msgspec.json.encode(index), indent=2) + b"\n")


def _write(path: Path, content: bytes) -> None:
    """Write atomically, by renaming, with permissions for this user alone."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".pack-")
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def _unlink_unless(kept: Path, old: Path) -> None:
    if old != kept:
        old.unlink(missing_ok=True)
