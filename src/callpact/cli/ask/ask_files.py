"""Files that `ask` and `parse` read and write: shapes, answers, scripts of a model, paused runs.

Reading is bounded, and errors name the file. No commands, no terminal.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from callpact.errors import DeclarationError, ModelError, SourceRefused, UsageError
from callpact.folders import data_folder
from callpact.schema import compile_schema, is_array, is_object
from callpact.schema.json_text import json_text

if TYPE_CHECKING:
    from types import ModuleType

    from callpact.agent.answer.shape import Shape
    from callpact.agent.models.scripted import Scripted

MAX_SCHEMA_BYTES = 4_000_000
"""Bytes of a file with the schema of an answer, or with the script of a model."""
MAX_ANSWER_BYTES = 32_000_000
"""Bytes of a file, or of standard input, that holds an answer or a message."""
MAX_PAUSED_BYTES = 64_000_000
"""Bytes of a file with a paused run."""
STDIN = "-"

_KIND = "paused run"
_VERSION = 1
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_BOMS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_KEYWORDS = frozenset(
    (
        *("$schema", "$ref", "$defs", "$dynamicRef", "definitions", "type"),
        *("enum", "const", "properties", "required", "additionalProperties", "patternProperties"),
        *(
            "propertyNames",
            "minProperties",
            "maxProperties",
            "dependentRequired",
            "dependentSchemas",
            "unevaluatedProperties",
        ),
        *("items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems"),
        *(
            "unevaluatedItems",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
        ),
        *("minLength", "maxLength", "pattern", "format", "anyOf", "oneOf"),
        *("allOf", "not", "if"),
    )
)


# --- texts ----------------------------------------------------------------------------------


def read_text(place: str, what: str) -> str:
    """The text of a file, or of standard input for `-`.

    Raises:
        UsageError: it cannot be read, is not text, or is too large.
    """
    if place != STDIN:
        return _text(_bytes(Path(place), MAX_ANSWER_BYTES, what), f"{what} '{place}'")
    given: Any = sys.stdin
    if given is None or given.closed:
        raise UsageError(f"{what} was to come from standard input, which is closed")
    data: bytes = given.buffer.read(MAX_ANSWER_BYTES + 1)
    _check_size(data, MAX_ANSWER_BYTES, f"{what} on standard input")
    return _text(data, f"{what} on standard input")


def _bytes(path: Path, limit: int, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise UsageError(f"{what}: there is no file '{path}'{_meant(path)}") from None
    except IsADirectoryError:
        raise UsageError(f"{what}: '{path}' is a folder") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{what}: '{path}' cannot be read: {why}") from None
    _check_size(data, limit, f"{what} '{path}'")
    return data


def _check_size(data: bytes, limit: int, what: str) -> None:
    if len(data) > limit:
        raise UsageError(f"{what} has more than {limit:,} bytes, which is the most that is read")


def _meant(path: Path) -> str:
    """A suggestion: the file in that folder with the most similar name."""
    with contextlib.suppress(OSError):
        names = {Path(entry.name).stem: entry.name for entry in os.scandir(path.parent)}
        if near := get_close_matches(path.stem, names, 1):
            return f"; did you mean '{path.parent / names[near[0]]}'?"
    return ""


def _text(data: bytes, what: str) -> str:
    """Decode text by its byte order mark, which is removed; UTF-8 without one."""
    mark = next((bom for bom in _BOMS if data.startswith(bom)), b"")
    encoding = _BOMS.get(mark, "utf-8")
    try:
        return data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{what} is not {encoding.upper()} text: byte {data[error.start]:#04x} at "
            f"{error.start + len(mark):,}"
        ) from None


def _json(path: Path, what: str) -> Any:
    text = _text(_bytes(path, MAX_SCHEMA_BYTES, what), f"{what} '{path}'")
    if not text.strip():
        raise UsageError(f"{what}: '{path}' is empty")
    try:
        return json.loads(text)
    except RecursionError:
        raise UsageError(f"{what}: '{path}' nests too deep") from None
    except ValueError as error:
        raise UsageError(f"{what}: '{path}' is not JSON: {error}") from None


# --- shapes ---------------------------------------------------------------------------------


def read_shape(ref: str) -> Shape[Any]:
    """The shape that `--schema` names: a file with a JSON Schema, or a type as `module.py:Name`.

    Raises:
        UsageError: it does not exist, or cannot be a shape.
        SourceRefused: the module cannot be imported.
    """
    from callpact.agent.answer.shape import shape_of

    module, colon, name = ref.rpartition(":")
    if colon and _is_module(module):
        return shape_of(_object(module, name))
    if ref.endswith(".py"):
        held = _types(_imported(ref))
        raise UsageError(f"--schema names one type of a module: {ref}:{_either(held)}")
    return shape_of(_schema(Path(ref)))


def _is_module(name: str) -> bool:
    return name.endswith(".py") or (bool(_MODULE.fullmatch(name)) and not name.endswith(".json"))


def _imported(ref: str) -> ModuleType:
    from callpact.sources.python.modules import imported

    try:
        # Imported like a source with the same reference, so that both give the same module.
        return imported(ref, Path.cwd())
    except SourceRefused as error:
        path = Path(ref)
        meant = _meant(path) if ref.endswith(".py") and not path.exists() else ""
        raise SourceRefused(f"--schema: {error}{meant}") from error


def _object(ref: str, name: str) -> Any:
    module = _imported(ref)
    found = getattr(module, name, None)
    if found is None:
        held = _types(module)
        near = get_close_matches(name, held, 1)
        more = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(held) or 'no type'}"
        raise UsageError(f"--schema: {ref} has no '{name}'{more}")
    return found


def _types(module: ModuleType) -> list[str]:
    own = ((name, value) for name, value in vars(module).items() if not name.startswith("_"))
    return [n for n, v in own if isinstance(v, type) and v.__module__ == module.__name__]


def _either(names: Iterable[str]) -> str:
    return " or :".join(names) or "Name"


def _schema(path: Path) -> dict[str, Any]:
    schema = _json(path, "--schema")
    if not is_object(schema):
        raise UsageError(
            f"--schema: a JSON Schema is an object, '{path}' holds {json_text(schema):.40}"
        )
    if schema and not _KEYWORDS & schema.keys():
        keys = ", ".join(list(schema)[:5])
        raise UsageError(
            f"--schema: '{path}' has no keyword of JSON Schema (it has {keys}), so every answer "
            f'would keep it; write {{"type": "object", "properties": {{…}}}}'
        )
    try:
        _ = compile_schema(schema)
    except DeclarationError as error:
        raise UsageError(f"--schema: '{path}': {error}") from None
    return schema


# --- scripts --------------------------------------------------------------------------------


def read_script(place: str) -> list[Scripted | list[Scripted]]:
    """The replies of a scripted model.

    Raises:
        UsageError: an item is not a reply.
    """
    what, replies = "--model scripted", _json(Path(place), "--model scripted")
    if not is_array(replies):
        raise UsageError(f"{what}: '{place}' must be a list of replies")
    return [
        _reply(reply, f"{what}: reply {number} of '{place}'")
        for number, reply in enumerate(replies, 1)
    ]


def _reply(reply: Any, what: str) -> Any:
    fields = reply if is_object(reply) else {}
    has_text = isinstance(fields.get("text"), str) and isinstance(fields.get("finish", ""), str)
    if isinstance(reply, str) or has_text:
        return reply
    if isinstance(fields.get("error"), str):
        return ModelError(fields["error"], status=fields.get("status"))
    for use in reply if is_array(reply) else [reply]:
        if not is_object(use) or not isinstance(use.get("tool"), str):
            raise UsageError(
                f'{what} must be text, {{"text": TEXT, "finish": REASON}}, {{"tool": NAME, "arguments": {{…}}}}, a list of those, or '
                f'{{"error": TEXT}}'
            )
    return reply


# --- paused runs ----------------------------------------------------------------------------


class PausedRun(Struct, frozen=True):
    """A run that waits for an answer, and the command's options to resume it with."""

    callpact: str
    version: int
    folder: str
    options: dict[str, Any]
    checkpoint: str


def place_of_paused(given: Path | None, run_id: str) -> Path:
    """The file that a paused run is written to."""
    return given or data_folder("paused") / f"{run_id}.json"


def check_place(path: Path) -> None:
    """Check that a paused run can be written there, before the run costs anything.

    Raises:
        UsageError: it cannot, or the file is not a paused run.
    """
    if path.is_dir():
        raise UsageError(f"--checkpoint: '{path}' is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"--checkpoint: there is no folder '{path.parent}'")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"--checkpoint: nothing can be written to '{path.parent}'")
    if path.exists() and path.stat().st_size:
        try:
            _ = read_paused(path)
        except UsageError:
            raise UsageError(
                f"--checkpoint: '{path}' is something else, and would be lost; name another file"
            ) from None


def write_paused(path: Path, options: dict[str, Any], checkpoint: str) -> None:
    """Write a paused run atomically, readable by its owner only.

    Raises:
        UsageError: it cannot be written.
    """
    run = PausedRun(_KIND, _VERSION, str(Path.cwd()), options, checkpoint)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(run))
        Path(name).replace(path)
    except OSError as error:
        raise UsageError(f"the paused run cannot be kept in '{path}': {error.strerror}") from error


def read_paused(path: Path) -> PausedRun:
    """Read a paused run.

    Raises:
        UsageError: the file is not a paused run.
    """
    data = _bytes(path, MAX_PAUSED_BYTES, "--resume")
    try:
        run = msgspec.json.decode(data, type=PausedRun)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        run = None
    if run is None or run.callpact != _KIND:
        raise UsageError(f"--resume: '{path}' is no run that `callpact ask` paused")
    if run.version != _VERSION:
        raise UsageError(
            f"--resume: '{path}' is of version {run.version}, and this callpact reads {_VERSION}"
        )
    return run
