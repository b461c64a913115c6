"""The exports of a FlowMCP file, and the kind of a file that is not a schema file."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from callpact.errors import InvalidManifest
from callpact.schema.issues.wording import cut, shown
from callpact.sources.flowmcp.read.hit import Hit, Hits, got, members
from callpact.sources.flowmcp.read.literal import MAX_FILE_BYTES, Exports, read_exports
from callpact.sources.flowmcp.read.scan import blank

KINDS = {
    "list": "a shared list",
    "skill": "a skill",
    "prompt": "a prompt",
    "content": "the text of a prompt",
    "selection": "a selection",
    "agent": "an agent",
}
"""The kinds of files that are not schema files, by the name that they export."""
_EXPORT = re.compile(
    r"(?<![\w$.])export\s++(?:const|let|var|class|(?:async\s++)?function)\s++([\w$]++)"
)
_HANDLERS = re.compile(
    r"export\s++const\s++handlers\s*+=(?>(?:\s++|//[^\n\r]*+|/\*(?>(?:[^*]++|\*(?!/))*)\*/)*)"
)
_NO_FUNCTION = re.compile(r"[\[{'\"`0-9-]|(?:null|true|false|undefined|new)(?![\w$])")
_FLAT = (
    "it exports a flat `schema`, as FlowMCP 1 had it; nothing converts it by itself: move the data "
    "into `main`, the functions into `handlers`, and rename `flowMCP` to `version`, `routes` to "
    "`tools`, `requestMethod` to `method`, `route` to `path`"
)


class FileReading(Struct, frozen=True):
    """The data of a file, the offset of its code, and the breaches in its exports."""

    data: dict[str, Any] | None = None
    export: str = "main"
    prefix: str = ""
    handlers: int | None = None
    code_begins: int = 0
    hits: tuple[Hit, ...] = ()
    failure: Hit | None = None
    """The reason why the file cannot be read as data."""


def read_schema_file(text: str) -> FileReading:
    """Read the `main` of a schema file."""
    try:
        exports = read_exports(text)
    except InvalidManifest as error:
        return _unreadable(text, error, "main", "SEC017", "VAL001")
    begins = len(text) if exports.handlers is None else exports.handlers
    values, hits = exports.values, tuple(_export_hits(exports, text, "main"))
    if "main" in values:
        main = values["main"]
        if not isinstance(main, dict):
            hits = (*hits, Hit("VAL002", "", f"`main` must be an object, {got(main)}"))
            return FileReading(code_begins=begins, hits=hits)
        return FileReading(members(main), "main", "", exports.handlers, begins, hits)
    if isinstance(members(values.get("schema")).get("main"), dict):
        hits = (Hit("VAL148", "", "`main` is inside `schema`"), *hits)
        lifted = _lifted(values["schema"])
        return FileReading(lifted, "schema", "/main", exports.handlers, begins, hits)
    words = f"there is no `main`: {_described(list(values))}{_version(values.get('schema'))}"
    return FileReading(code_begins=begins, failure=_failure("VAL001", words))


def read_list_file(text: str) -> FileReading:
    """Read the `list` of a list file."""
    try:
        exports = read_exports(text)
    except InvalidManifest as error:
        return _unreadable(text, error, "list", "SEC019", "LST001")
    hits = tuple(_export_hits(exports, text, "list"))
    value = exports.values.get("list")
    if not isinstance(value, dict):
        words = f"there is no object `list`: the file exports {_names(list(exports.values))}"
        return FileReading(export="list", hits=hits, failure=_failure("LST001", words))
    return FileReading(members(value), "list", hits=hits)


def _export_hits(exports: Exports, text: str, wanted: str) -> Hits:
    for name in exports.values:
        if name not in {wanted, "schema"} or (name == "schema" and wanted in exports.values):
            yield Hit("VAL140", "", f"the export `{cut(name)}` does not belong here")
    for path in exports.repeated:
        yield Hit("VAL158", path, f"the key '{cut(path.rpartition('/')[2])}' occurs twice")
    if exports.handlers is None:
        return
    if wanted == "list":
        yield Hit("VAL140", "", "the export `handlers` does not belong here")
        return
    match = _HANDLERS.match(text, exports.handlers)
    if match is not None and _NO_FUNCTION.match(text, match.end()):
        came = shown(text[match.end() : match.end() + 20])
        yield Hit("VAL004", "", f"`handlers` must be a function, got {came}")


def _unreadable(
    text: str, error: InvalidManifest, wanted: str, not_data: str, not_there: str
) -> FileReading:
    if len(text) > MAX_FILE_BYTES or len(text.encode("utf-8", "replace")) > MAX_FILE_BYTES:
        failure = _failure("VAL135", f"a file must have at most {MAX_FILE_BYTES:,} bytes")
        return FileReading(export=wanted, code_begins=len(text), failure=failure)
    names = export_names(text)
    if wanted in names:
        failure = _failure(not_data, error.message, error.line, error.column)
    else:
        words = f"there is no `{wanted}`: {_described(names)}"
        failure = _failure(not_there, words, error.line, error.column)
    return FileReading(export=wanted, failure=failure)


def _failure(key: str, message: str, line: int = 1, column: int = 1) -> Hit:
    return Hit(key, "", message, None, line, column)


def _described(names: list[str]) -> str:
    if "schema" in names:
        return _FLAT
    kind = next((kind for name, kind in KINDS.items() if name in names), None)
    if kind is not None:
        return f"the file is {kind}, not a schema file"
    return f"the file exports {_names(names)}"


def _names(names: list[str]) -> str:
    return ", ".join(f"`{cut(name)}`" for name in names[:10]) or "no data"


def _version(schema: Any) -> str:
    version = members(schema).get("flowMCP") or members(schema).get("version")
    return f" (its version is {shown(version)})" if version else ""


def _lifted(schema: dict[str, Any]) -> dict[str, Any]:
    """`main` with the fields next to it in `schema`."""
    main = dict(members(schema["main"]))
    for name in ("tools", "routes", "resources"):
        if name in schema and name not in main:
            main[name] = schema[name]
    return main


# --- kinds of files --------------------------------------------------------------------------


def export_names(text: str) -> list[str]:
    """The names that a file exports, of any kind; their values are not read."""
    return _EXPORT.findall(blank(text))


def kind_of(text: str) -> str | None:
    """The kind of a file that is not a schema file; None if it may be meant as one."""
    names = export_names(text)
    if "main" in names or "schema" in names:
        return None
    return next((kind for name, kind in KINDS.items() if name in names), None)
