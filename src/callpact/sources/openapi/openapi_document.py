"""Reads the files of an OpenAPI document, JSON or YAML, and resolves references between them.

Files come from a folder tree or, where a host is allowed by name, from the network; all of them are
read before anything is resolved. Nothing here knows operations or schemas.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import orjson

from callpact.errors import CallpactError, SourceRefused
from callpact.schema import is_array, is_object
from callpact.schema.document import pointer
from callpact.sources.base import Finding

MAX_DOCUMENT_BYTES = 50_000_000
"""Bytes of all files of an OpenAPI document together."""
MAX_DOCUMENT_FILES = 5_000
"""Files of an OpenAPI document."""
MAX_DOCUMENT_VALUES = 10_000_000
"""JSON values of all files of an OpenAPI document together, counted before they are read."""
MAX_DOCUMENT_DEPTH = 200
"""Levels of JSON or YAML that a file of an OpenAPI document may nest."""
MAX_REFERENCE_CHAIN = 50
"""References of an OpenAPI document that lead from one to the next."""
_MAX_ALIASED = 1_000_000
_MAX_INDENT = 400
_REFERENCE = re.compile(rb'"\$ref"\s*:\s*"((?:[^"\\]|\\.)*)"')
# Every level of a block takes at least one of these; the parser recurses into it.
_NESTED = re.compile(rf"^(?:[ \t]|[-?:][ \t]|[&!]\S*[ \t]){{{_MAX_INDENT}}}", re.MULTILINE)
_PUNCTUATION = (b",", b"[", b"{", b":")
_YAML_PUNCTUATION = (b",", b"[", b"{", b"\n", b"?")

Fetch = Callable[[str], Awaitable[bytes]]
"""Returns the bytes at an address, or raises a `CallpactError`."""


class Target(NamedTuple):
    """The value that a reference leads to, and the place of that value."""

    value: Any
    file: str
    """The file or address that holds the value."""
    pointer: str


class Unresolved(Exception):
    """A reference that leads nowhere, with the reason."""


@dataclass
class ApiDocument:
    """The files of one document, by path or address."""

    root: str
    """The name of the first file."""
    files: dict[str, Any] = field(default_factory=dict[str, Any])
    findings: list[Finding] = field(default_factory=list[Finding])
    broken: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """References that lead nowhere, each with the file that has it."""
    source: bytes = b""
    """The text of the first file, for line numbers; empty if there is none."""
    _resolved: dict[tuple[str, str], Target] = field(default_factory=dict[tuple[str, str], Target])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Why files that are referred to were not read."""

    @property
    def data(self) -> dict[str, Any]:
        """The first file."""
        return self.files[self.root]

    def resolve(self, reference: str, file: str) -> Target:
        """The value that a reference in a file leads to; it may be a reference itself.

        Raises:
            Unresolved: it leads nowhere.
        """
        key = (file, reference)
        known = self._resolved.get(key)
        if known is None:
            known = self._resolved[key] = self._resolve(reference, file)
        return known

    def followed(self, value: Any, file: str, place: str) -> Target:
        """A value; where it is a reference, the value at the end of the chain.

        Raises:
            Unresolved: a reference leads nowhere, or in a circle.
        """
        target = Target(value, file, place)
        for _ in range(MAX_REFERENCE_CHAIN):
            reference = target.value.get("$ref") if is_object(target.value) else None
            if not isinstance(reference, str):
                return target
            target = self.resolve(reference, target.file)
        raise Unresolved(f"'{_shown(str(value.get('$ref')))}' leads from reference to reference")

    def line_of(self, place: str) -> int | None:
        """The line of an operation or path of the first file, by its JSON Pointer."""
        if not self.source:
            return None
        at, text = 0, self._text
        for part in place_parts(place)[:3]:
            name = re.escape(part)
            is_json = text[:1_000].lstrip()[:1] == "{"
            form = rf'"{name}"\s*:' if is_json else rf"""^\s*["']?{name}["']?\s*:"""
            found = re.compile(form, re.MULTILINE).search(text, at)
            if found is None:
                return None
            at = found.end()
        return text.count("\n", 0, at) + 1

    @cached_property
    def _text(self) -> str:
        return self.source.decode("utf-8", "replace")

    def _resolve(self, reference: str, file: str) -> Target:
        where, fragment = urldefrag(reference)
        name = file if not where else _joined(file, where)
        if name not in self.files:
            reason = self.reasons.get(name, "no such file was read")
            raise Unresolved(f"'{_shown(reference)}' cannot be resolved: {reason}")
        data = self.files[name]
        if not fragment.startswith("/"):
            if fragment:
                return self._anchored(unquote(fragment), name, data)
            return Target(data, name, "")
        parts = [
            unquote(part).replace("~1", "/").replace("~0", "~") for part in fragment[1:].split("/")
        ]
        found = _at(data, parts)
        if found is _MISSING:
            raise Unresolved(f"'{_shown(reference)}' leads nowhere")
        return Target(found, name, pointer(cast("list[str | int]", parts)))

    def _anchored(self, anchor: str, name: str, data: Any) -> Target:
        stack: list[tuple[Any, tuple[str | int, ...]]] = [(data, ())]
        while stack:
            value, path = stack.pop()
            if is_object(value):
                if anchor in (value.get("$anchor"), value.get("$dynamicAnchor")):
                    return Target(value, name, pointer(path))
                stack += [(item, (*path, key)) for key, item in value.items()]
            elif is_array(value):
                stack += [(item, (*path, index)) for index, item in enumerate(value)]
        raise Unresolved(f"'#{_shown(anchor)}' is no anchor of the file")

    # --- reading ----------------------------------------------------------------------------

    def check_references(self, references: Mapping[str, Iterable[str]]) -> None:
        """Collect the references of each file that lead nowhere."""
        for file, found in references.items():
            for reference in found:
                try:
                    self.resolve(reference, file)
                except Unresolved:
                    self.broken.add((file, reference))


_MISSING = object()


def _at(data: Any, parts: Iterable[str]) -> Any:
    for part in parts:
        if is_object(data):
            data = data.get(part, _MISSING)
        elif is_array(data) and part.isdecimal() and int(part[:9]) < len(data):
            data = data[int(part)]
        else:
            return _MISSING
    return data


def place_parts(place: str) -> list[str]:
    """The keys and indexes of a JSON Pointer."""
    return [part.replace("~1", "/").replace("~0", "~") for part in place.split("/")[1:]]


def _shown(reference: str) -> str:
    """A reference for messages: short, on one line, without a password."""
    text = re.sub(r"//[^/@]*@", "//…@", reference)
    return "".join(c if c.isprintable() else "?" for c in text[:200])


def is_address(name: str) -> bool:
    """True for the address of a file, not its path."""
    return name.startswith(("https://", "http://"))


def _joined(file: str, where: str) -> str:
    if is_address(where) or is_address(file):
        return urljoin(file, where)
    return str((Path(file).parent / unquote(where)).resolve())


# --- files --------------------------------------------------------------------------------------


async def read_document(
    first: str | Path | Mapping[str, Any],
    fetch: Fetch,
    allows: Callable[[str], bool],
) -> ApiDocument:
    """Read a document and every file that it refers to.

    Files must lie in the folder of the first one or below; those of other hosts are read only if
    `allows` returns True for their address. A file that cannot be read makes the references to it
    broken, the first one the whole document.

    Raises:
        SourceRefused: the first file cannot be read, or a limit is exceeded.
    """
    if isinstance(first, Mapping):
        document = ApiDocument("openapi")
        document.files["openapi"] = _plain(_copied(first), "openapi")
        document.check_references({"openapi": set(_references(document.data))})
        return _checked(document)
    is_remote = isinstance(first, str) and is_address(first)
    root = str(first) if is_remote else real_path(first)
    reading = _Reading(ApiDocument(root), fetch, allows, None if is_remote else Path(root).parent)
    await reading.read(root, str(first))
    return _checked(reading.document)


def real_path(path: str | Path) -> str:
    """The path of a file without links."""
    return os.path.realpath(path)


def _copied(data: Mapping[str, Any]) -> Any:
    try:
        return orjson.loads(orjson.dumps(dict(data), option=orjson.OPT_NON_STR_KEYS))
    except (TypeError, ValueError, RecursionError) as error:
        raise SourceRefused(f"the document is not JSON: {error}") from None


def _checked(document: ApiDocument) -> ApiDocument:
    data: Any = document.files[document.root]
    if not is_object(data):
        raise SourceRefused(f"{document.root}: an OpenAPI document is an object, got {_kind(data)}")
    return document


class _Reading:
    """Reads the files of one document within the limits."""

    def __init__(
        self,
        document: ApiDocument,
        fetch: Fetch,
        allows: Callable[[str], bool],
        folder: Path | None,
    ) -> None:
        self.document = document
        self._fetch = fetch
        self._allows = allows
        self._folder = folder
        """The folder that all files lie in; None for a document of the network."""
        self._bytes = 0
        self._values = 0
        self._references: dict[str, set[str]] = {}

    async def read(self, root: str, shown: str) -> None:
        document = self.document
        data = await self._bytes_of(root, shown)
        document.files[root] = self._parsed(root, shown, data)
        document.source = data
        pending = self._others(root)
        while pending:
            name = pending.pop()
            if name in document.files or name in document.reasons:
                continue
            if len(document.files) >= MAX_DOCUMENT_FILES:
                raise SourceRefused(f"{shown}: refers to more than {MAX_DOCUMENT_FILES:,} files")
            try:
                if not self._is_allowed(name):
                    continue
                shown_name = name if is_address(name) else self._relative(name)
                data = await self._bytes_of(name, shown_name)
                document.files[name] = self._parsed(name, shown_name, data)
            except _TooMuch as error:
                raise SourceRefused(str(error)) from None
            except CallpactError as error:
                document.reasons[name] = str(error)
                continue
            pending += self._others(name)
        document.check_references(self._references)

    def _others(self, file: str) -> list[str]:
        found = {urldefrag(reference)[0] for reference in self._references[file]}
        return sorted({_joined(file, where) for where in found if where} - {file})

    def _relative(self, name: str) -> str:
        return Path(name).relative_to(self._folder or "").as_posix()

    def _is_allowed(self, name: str) -> bool:
        if is_address(name):
            if self._allows(name):
                return True
            host = urlsplit(name).hostname or ""
            text = f"the host {_shown(host)} is not allowed; name it in ref_hosts"
        elif self._folder is not None and Path(name).is_relative_to(self._folder):
            return True
        else:
            text = "the file is not in the folder of the document"
        self.document.reasons[name] = text
        return False

    async def _bytes_of(self, name: str, shown: str) -> bytes:
        left = MAX_DOCUMENT_BYTES - self._bytes
        if is_address(name):
            data = await self._fetch(name)
        else:
            data = _file_bytes(Path(name), shown, left)
        self._bytes += len(data)
        if len(data) > left:
            raise _TooMuch(f"{shown}: more than {MAX_DOCUMENT_BYTES:,} bytes")
        return data

    def _parsed(self, name: str, shown: str, data: bytes) -> Any:
        marks = _PUNCTUATION if _is_json(data) else _YAML_PUNCTUATION
        self._values += sum(data.count(mark) for mark in marks)
        if self._values > MAX_DOCUMENT_VALUES:
            raise _TooMuch(f"{shown}: more than {MAX_DOCUMENT_VALUES:,} values")
        value, references = parse(data, shown, self.document.findings)
        self._references[name] = references
        return value


class _TooMuch(SourceRefused):
    """A limit of the whole document is exceeded."""


def _file_bytes(path: Path, shown: str, most: int) -> bytes:
    try:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "no such file"
            raise SourceRefused(f"{shown}: {what}")
        with path.open("rb") as file:
            # A buffer of the whole limit would be most of the memory that loading takes.
            return file.read(min(os.fstat(file.fileno()).st_size, most) + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SourceRefused(f"{shown}: cannot be read ({reason})") from None


# --- text ---------------------------------------------------------------------------------------


def parse(data: bytes, shown: str, findings: list[Finding]) -> tuple[Any, set[str]]:
    """The value of a JSON or YAML text, and the references in it.

    Raises:
        SourceRefused: it is neither, or a limit is exceeded; with line and column.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    if _is_json(data):
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            if not _could_be_yaml(data):
                raise SourceRefused(
                    f"{shown}: not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
                ) from None
        else:
            return value, set(map(_unescaped, _REFERENCE.findall(data)))
    value = _plain(_yaml(data, shown, findings), shown)
    return value, set(_references(value))


def _is_json(data: bytes) -> bool:
    return data[:1_000].lstrip()[:1] in (b"{", b"[")


def _could_be_yaml(data: bytes) -> bool:
    """True for a flow mapping such as `{openapi: 3.0.0}`."""
    return re.match(rb"\s*\{\s*[A-Za-z'#]", data) is not None


def _unescaped(text: bytes) -> str:
    try:
        return orjson.loads(b'"%b"' % text)
    except orjson.JSONDecodeError:
        return text.decode("utf-8", "replace")


def _yaml(data: bytes, shown: str, findings: list[Finding]) -> Any:
    try:
        import yaml_rs
    except ImportError:
        raise SourceRefused(
            f"{shown}: YAML needs the extra 'openapi': pip install 'callpact[openapi]'"
        ) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceRefused(f"{shown}: not UTF-8 at byte {error.start:,}") from None
    if "\x00" in text:  # The parser would take it for the end.
        raise SourceRefused(f"{shown}: not YAML: it holds a NUL character")
    if (nested := _NESTED.search(text)) is not None:
        line = text.count("\n", 0, nested.start()) + 1
        raise SourceRefused(
            f"{shown}: line {line:,} is indented by more than {_MAX_INDENT} columns or levels"
        )
    limits = yaml_rs.AliasLimits(max_total_replayed_events=_MAX_ALIASED)

    def load(policy: yaml_rs.DuplicateKeyPolicy) -> Any:
        return yaml_rs.loads(
            text, parse_datetime=False, alias_limits=limits, duplicate_key_policy=policy
        )

    try:
        try:
            return load(yaml_rs.DuplicateKeyPolicy.Error)
        except yaml_rs.YAMLDecodeError as error:
            if not str(error).startswith("duplicate mapping key"):
                raise
            value = load(yaml_rs.DuplicateKeyPolicy.LastWins)
            findings.append(Finding(shown, "warning", f"{_one_line(error)}; the last one counts"))
            return value
    except (yaml_rs.YAMLDecodeError, ValueError, TypeError, RecursionError) as error:
        raise SourceRefused(f"{shown}: not YAML: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    first, *others = str(error).splitlines() or [""]
    return f"{first}: {others[-1].strip()}"[:300] if others else first[:300]


def _plain(value: Any, shown: str) -> Any:
    """A value of YAML as JSON: keys are text, merge keys (`<<`) are applied.

    Raises:
        SourceRefused: a value that is not JSON, or too many levels.
    """
    return _Plain(shown).part(value, 0)


class _Plain:
    def __init__(self, shown: str) -> None:
        self._shown = shown

    def part(self, value: Any, depth: int) -> Any:
        kind = cast("type[Any]", type(value))
        if kind is str or value is None or kind is bool or kind is int:
            return value
        if depth > MAX_DOCUMENT_DEPTH:
            raise SourceRefused(f"{self._shown}: nested deeper than {MAX_DOCUMENT_DEPTH} levels")
        if is_object(value):
            return self._object(value, depth)
        if is_array(value):
            return [self.part(item, depth + 1) for item in value]
        if kind is float and math.isfinite(value):
            return value
        raise SourceRefused(f"{self._shown}: {value!r:.60} is not a JSON value")

    def _object(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        merged = value.get("<<")
        for part in merged if is_array(merged) else [merged]:
            if is_object(part):
                made = {**self._object(part, depth + 1), **made}
        for key, item in value.items():
            if key != "<<" or not (is_object(item) or is_array(item)):
                made[self._key(key)] = self.part(item, depth + 1)
        return made

    def _key(self, key: Any) -> str:
        if isinstance(key, str):
            return key
        if isinstance(key, bool):
            return "true" if key else "false"
        if isinstance(key, int | float):
            return str(key)
        if key is None:
            return "null"
        raise SourceRefused(f"{self._shown}: {key!r:.60} is not a key of a JSON object")


def _references(value: Any) -> Iterator[str]:
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if is_object(item):
            reference = item.get("$ref")
            if isinstance(reference, str):
                yield reference
            stack.extend(item.values())
        elif is_array(item):
            stack.extend(item)


def _kind(value: Any) -> str:
    kinds = {list: "a list", str: "text", type(None): "nothing"}
    return kinds.get(cast("Any", type(value)), f"{value!r:.40}")
