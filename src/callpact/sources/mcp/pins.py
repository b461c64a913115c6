"""Pins of the definitions of MCP servers: `callpact.lock`, and the changes since it was written.

A pin is the SHA-256 of the RFC 8785 form of one whole definition, and the definition itself, so that
a later change can be shown. As in RFC 8785, numbers are doubles: 1 and 1.0 are the same, and so are
integers beyond 2**53 that round to one double. Everything here is pure, but for `read_lock` and
`write_lock`. What a change means for a tool (warn, block) is decided elsewhere.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import stat
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from callpact.errors import InvalidConfig, InvalidSchema
from callpact.schema import canonical_json, is_array, is_object
from callpact.schema.document import pointer
from callpact.schema.hashing import json_digest
from callpact.sources.mcp.hidden_text import HIDDEN, visible

LOCK_VERSION = 1
"""The version of the lock file that is written, and the newest that is read."""
MAX_LOCK_BYTES = 64_000_000
"""Bytes of a lock file."""
MAX_CHANGED_FIELDS = 100
"""Changed fields reported for one definition."""
MAX_DIFF_LINES = 200
"""Lines of each side of a changed text that are compared, from the first changed line on."""
MAX_DESCRIBED_LINES = 400
"""Lines of the description of one change."""
MAX_LINE = 300
"""Characters of one line of such a description, before hidden ones are made visible."""
_CONTEXT = 2
_AROUND = 60
_MAX_INFO = 200

ChangeKind: TypeAlias = Literal["added", "removed", "changed", "renamed"]
Part: TypeAlias = Literal["tool", "prompt", "resource", "template", "instructions"]
_Place: TypeAlias = tuple[Part, str]
PlainDefinitions: TypeAlias = Mapping[str, Any]
"""A server's definitions as on the wire, by `tools`, `prompts`, `resources`, `templates`,
`instructions` and `server`."""
_NAMED: dict[Part, str] = {
    "tool": "name",
    "prompt": "name",
    "resource": "uri",
    "template": "uriTemplate",
}
"""The member that names a definition, by part; the key of all of them is the plural of the part."""


class Pin(Struct, frozen=True, forbid_unknown_fields=True):
    """A definition, or the text of the instructions, and its digest."""

    digest: str
    definition: Any


class PinnedSource(Struct, frozen=True, forbid_unknown_fields=True):
    """The pins of one source; `server` is its name and version, for the reader's information."""

    server: dict[str, str] = {}
    tools: dict[str, Pin] = {}
    prompts: dict[str, Pin] = {}
    instructions: Pin | None = None
    resources: dict[str, Pin] = {}
    templates: dict[str, Pin] = {}


class Lock(Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of `callpact.lock`: pins by the name of their source."""

    sources: dict[str, PinnedSource] = {}
    version: int = LOCK_VERSION


class FieldChange(Struct, frozen=True):
    """One changed value, by its JSON Pointer; UNSET on the side where it is absent."""

    path: str
    before: Any | UnsetType = UNSET
    after: Any | UnsetType = UNSET


class PinChange(Struct, frozen=True):
    """A difference between a pin and the definition that the server sends now."""

    kind: ChangeKind
    part: Part
    name: str = ""
    """The name now; of a removed one, the name that it had. Empty for the instructions."""
    previous: str | None = None
    """The pinned name of a renamed one."""
    fields: tuple[FieldChange, ...] = ()
    """The first `MAX_CHANGED_FIELDS` differences; of an added one, all its fields."""
    is_cut: bool = False
    """True if there are more changed fields."""
    reason: str = ""
    """Why the definition cannot be pinned, if it cannot."""

    @property
    def label(self) -> str:
        """The name to accept the change by.

        A tool's name, `prompt:NAME`, `resource:URI`, `template:URI` or `server:instructions`;
        `tool:NAME` for a tool with a colon in its name.
        """
        return _label(self.part, self.name)


# --- The file ------------------------------------------------------------------------------------


def read_lock(path: Path) -> Lock:
    """The lock file; an empty lock if there is none.

    Raises:
        InvalidConfig: it cannot be read, is too large, too new or damaged.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_LOCK_BYTES + 1)
    except FileNotFoundError:
        return Lock()
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_LOCK_BYTES:
        _damaged(path, f"it is larger than {MAX_LOCK_BYTES:,} bytes")
    raw = _parsed(path, data)
    version = raw.get("version") if is_object(raw) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        _damaged(path, "at /version: expected a whole number above 0")
    if version > LOCK_VERSION:
        raise InvalidConfig(
            f"{path} has version {version}, this callpact reads {LOCK_VERSION}: update callpact"
        )
    try:
        lock = msgspec.convert(raw, Lock)
    except msgspec.ValidationError as error:
        _damaged(path, str(error))
    for source, pinned in lock.sources.items():
        _verify(path, source, pinned)
    return lock


def _damaged(path: Path, what: str) -> NoReturn:
    raise InvalidConfig(
        f"{path} is damaged: {what}; restore it from version control, or remove it, review the"
        " servers and run `callpact lock`"
    )


def _parsed(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data.decode(), object_pairs_hook=_members, parse_constant=_constant)
    except UnicodeDecodeError as error:
        _damaged(path, f"it is not UTF-8 at byte {error.start}")
    except json.JSONDecodeError as error:
        _damaged(path, f"line {error.lineno}, column {error.colno}: {error.msg}")
    except RecursionError:
        _damaged(path, "it is nested too deeply")
    except ValueError as error:
        _damaged(path, str(error))


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key '{_short(twice)}' is there twice in one object")
    return members


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _verify(path: Path, source: str, pinned: PinnedSource) -> None:
    for (part, name), pin in _pins(pinned).items():
        keys = [part] if part == "instructions" else [f"{part}s", name]
        place = _short(pointer(["sources", source, *keys]))
        found = _found(pin.definition)
        if found.reason:
            _damaged(path, f"at {place}: {found.reason}")
        if found.digest != pin.digest:
            _damaged(path, f"at {place}: the definition does not have this digest")
        if part != "instructions" and _name(part, pin.definition) != name:
            _damaged(path, f"at {place}: the definition has another name")


def _pins(pinned: PinnedSource) -> dict[_Place, Pin]:
    pins: dict[_Place, Pin] = {
        (part, name): pin for part in _NAMED for name, pin in getattr(pinned, f"{part}s").items()
    }
    if pinned.instructions:
        pins["instructions", ""] = pinned.instructions
    return pins


def write_lock(path: Path, lock: Lock) -> None:
    """Replace the lock file in one step: indented JSON, keys sorted, hidden characters escaped.

    Raises:
        InvalidConfig: it cannot be written, or would be too large.
    """
    text = json.dumps(msgspec.to_builtins(lock), indent=2, sort_keys=True, ensure_ascii=False)
    data = HIDDEN.sub(_escaped, text).encode() + b"\n"
    if len(data) > MAX_LOCK_BYTES:
        raise InvalidConfig(f"{path} would be larger than {MAX_LOCK_BYTES:,} bytes: pin less in it")
    try:
        _replace(path.resolve(), data)
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be written: {error.strerror or error}") from None


def _escaped(match: re.Match[str]) -> str:
    # A hidden character of JSON text is inside of a string, but for the line breaks between.
    return "\n" if match[0] == "\n" else json.dumps(match[0])[1:-1]


def _replace(path: Path, data: bytes) -> None:
    mode = 0o644
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(path.stat().st_mode)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# --- Pinning -------------------------------------------------------------------------------------


def updated(
    lock: Lock, source: str, definitions: PlainDefinitions, accept: Collection[str] | None = None
) -> Lock:
    """A lock with the source pinned as it is now; with `accept`, only the changes of these labels.

    Resources come and go, as files do: new ones are always pinned, and pins of others dropped. To
    accept a renamed one, its new or its old name will do. An accepted removal drops the pin.

    Raises:
        InvalidConfig: a definition cannot be pinned, or a label names nothing.
    """
    before = lock.sources.get(source, PinnedSource())
    changes = compare(before, definitions)
    if accept is not None:
        changes = _accepted(changes, before, definitions, accept, source)
    pins = _pins(before)
    now = _defined(definitions)
    for change in changes:
        place = change.part, change.name
        if change.reason:
            raise InvalidConfig(
                f"source '{source}': {_short(change.label)} cannot be pinned: {change.reason}"
            )
        pins.pop(place if change.previous is None else (change.part, change.previous), None)
        if change.kind != "removed":
            pins[place] = Pin(now[place].digest, now[place].definition)
    for place, found in now.items():
        if place[0] == "resource" and found.digest:
            pins.setdefault(place, Pin(found.digest, found.definition))
    by_part = {
        f"{part}s": {
            name: pin
            for (other, name), pin in pins.items()
            if other == part and (part != "resource" or (part, name) in now)
        }
        for part in _NAMED
    }
    pinned = PinnedSource(
        _server(definitions.get("server")), instructions=pins.get(("instructions", "")), **by_part
    )
    return Lock({**lock.sources, source: pinned})


def _accepted(
    changes: Iterable[PinChange],
    before: PinnedSource,
    definitions: PlainDefinitions,
    accept: Collection[str],
    source: str,
) -> tuple[PinChange, ...]:
    known = {_label(*place) for place in (*_pins(before), *_defined(definitions))}
    for label in accept:
        if label not in known:
            close = difflib.get_close_matches(label, list(islice(sorted(known), 1_000)), 1)
            hint = f"; did you mean '{_short(close[0])}'?" if close else ""
            raise InvalidConfig(f"source '{source}' has no '{_short(label)}' to accept{hint}")
    return tuple(
        change
        for change in changes
        if change.label in accept
        or (change.previous is not None and _label(change.part, change.previous) in accept)
    )


def _label(part: Part, name: str) -> str:
    if part == "instructions":
        return "server:instructions"
    return name if part == "tool" and ":" not in name else f"{part}:{name}"


def _server(info: Any) -> dict[str, str]:
    if not is_object(info):
        return {}
    texts = {key: info.get(key) for key in ("name", "version")}
    return {key: text[:_MAX_INFO] for key, text in texts.items() if isinstance(text, str)}


def _name(part: Part, definition: Any) -> str | None:
    name = definition.get(_NAMED[part]) if is_object(definition) else None
    return name if isinstance(name, str) else None


class _Found(Struct, frozen=True):
    """A definition of now; the digest is empty if it cannot be pinned, for this reason."""

    definition: Any
    digest: str = ""
    reason: str = ""


def _defined(definitions: PlainDefinitions) -> dict[_Place, _Found]:
    """The definitions by part and name. Entries without a name are left out: nobody can call them."""
    defined: dict[_Place, _Found] = {}
    for part in _NAMED:
        entries = definitions.get(f"{part}s")
        for entry in entries if is_array(entries) else []:
            name = _name(part, entry)
            if name is None:
                continue
            found, other = _found(entry), defined.get((part, name))
            if other and (not found.digest or other.digest != found.digest):
                found = _Found(entry, reason="the server has several definitions of this name")
            defined[part, name] = found
    text = definitions.get("instructions")
    if text is not None:
        defined["instructions", ""] = _found(text)
    return defined


def _found(definition: Any) -> _Found:
    try:
        return _Found(definition, json_digest(definition))
    except InvalidSchema as error:
        return _Found(definition, reason=_short(str(error)))


# --- Comparing -----------------------------------------------------------------------------------


def compare(pinned: PinnedSource, definitions: PlainDefinitions) -> tuple[PinChange, ...]:
    """The differences between the pins and the definitions of now; none if all is as pinned.

    A resource counts only if its definition is another: resources come and go, as files do.
    """
    pins = _pins(pinned)
    changes: list[PinChange] = []
    added: dict[_Place, Any] = {}
    for place, found in _defined(definitions).items():
        pin = pins.pop(place, None)
        if found.reason:
            kind: ChangeKind = "added" if pin is None else "changed"
            changes.append(PinChange(kind, *place, reason=found.reason))
        elif pin is None:
            if place[0] != "resource":
                added[place] = found.definition
        elif found.digest != pin.digest:
            changes.append(_changed("changed", place, pin.definition, found.definition))
    changes += _renamed(pins, added)
    changes += [_changed("added", place, UNSET, now) for place, now in added.items()]
    changes += [PinChange("removed", *place) for place in pins if place[0] != "resource"]
    return tuple(changes)


def pinned_definitions(pinned: PinnedSource) -> PlainDefinitions:
    """The definitions of a server as they were pinned, without its instructions."""
    return {
        f"{part}s": [pin.definition for pin in getattr(pinned, f"{part}s").values()]
        for part in _NAMED
    }


def concerned(definitions: PlainDefinitions, changes: Iterable[PinChange]) -> dict[str, Any]:
    """The definitions that changes are about, pinned ones or those of now; not the instructions."""
    places = {
        (change.part, name)
        for change in changes
        if not change.reason
        for name in (change.name, change.previous)
    }
    return {
        f"{part}s": tuple(
            each for each in definitions[f"{part}s"] if (part, _name(part, each)) in places
        )
        for part in _NAMED
    }


def _renamed(pins: dict[_Place, Pin], added: dict[_Place, Any]) -> Iterator[PinChange]:
    """The renamed ones, taken out of both: first those equal but for the name, then alike ones."""
    for likeness in (_without_name, _core):
        gone: dict[str, list[_Place]] = {}
        for place in sorted((place for place in pins if place[0] != "resource"), reverse=True):
            gone.setdefault(likeness(place[0], pins[place].definition), []).append(place)
        gone.pop("", None)
        for place in sorted(added):
            candidates = gone.get(likeness(place[0], added[place]))
            if candidates:
                old = candidates.pop()
                before, after = pins.pop(old).definition, added.pop(place)
                yield _changed("renamed", place, before, after, previous=old[1])


def _without_name(part: Part, definition: Any) -> str:
    if not is_object(definition):
        return ""
    rest = {key: value for key, value in definition.items() if key != _NAMED.get(part)}
    return part + json_digest(rest)


def _core(part: Part, definition: Any) -> str:
    """The digest of the description and the schemas; empty without a description."""
    if not is_object(definition) or not definition.get("description"):
        return ""
    names = ("description", "inputSchema", "outputSchema", "arguments")
    return part + json_digest({name: definition[name] for name in names if name in definition})


def _changed(
    kind: ChangeKind, place: _Place, before: Any, after: Any, *, previous: str | None = None
) -> PinChange:
    fields = tuple(islice(_differences(before, after, ()), MAX_CHANGED_FIELDS + 1))
    is_cut = len(fields) > MAX_CHANGED_FIELDS
    return PinChange(kind, *place, previous, fields[:MAX_CHANGED_FIELDS], is_cut)


def _differences(before: Any, after: Any, path: tuple[str | int, ...]) -> Iterator[FieldChange]:
    if before is UNSET and after:  # Each field of a new object, so that none is cut off.
        before = {} if is_object(after) else [] if is_array(after) else UNSET
    if is_object(before) and is_object(after):
        for key in sorted({*before, *after}):
            pair = before.get(key, UNSET), after.get(key, UNSET)
            yield from _differences(*pair, (*path, key))
    elif is_array(before) and is_array(after):
        for i in range(max(len(before), len(after))):
            pair = before[i] if i < len(before) else UNSET, after[i] if i < len(after) else UNSET
            yield from _differences(*pair, (*path, i))
    elif before is UNSET or after is UNSET or canonical_json(before) != canonical_json(after):
        yield FieldChange(pointer(path), before, after)


# --- Describing ----------------------------------------------------------------------------------


def describe(change: PinChange) -> list[str]:
    """A change as lines of text in which every hidden or confusable character is visible.

    At most `MAX_DESCRIBED_LINES` lines, each of at most `MAX_LINE` characters of the definition.
    """
    lines = [_title(change)]
    if change.reason:
        lines.append(f"  cannot be pinned: {change.reason}")
    for field in change.fields:
        lines += (f"  {line}" for line in _field_lines(field))
        if len(lines) > MAX_DESCRIBED_LINES:
            break
    if change.is_cut or len(lines) > MAX_DESCRIBED_LINES:
        del lines[MAX_DESCRIBED_LINES - 1 :]
        lines.append("  … more changes are not shown")
    return lines


def _title(change: PinChange) -> str:
    if change.part == "instructions":
        return f"{change.kind} instructions"
    if change.previous is not None:
        return f"renamed {change.part} {_short(change.previous)} to {_short(change.name)}"
    return f"{change.kind} {change.part} {_short(change.name)}"


def _field_lines(field: FieldChange) -> list[str]:
    path = _short(field.path) or "text"
    if isinstance(field.after, str) and isinstance(field.before, str | UnsetType):
        before = [] if field.before is UNSET else field.before.split("\n")
        return [f"{path}:", *(f"  {line}" for line in _text_diff(before, field.after.split("\n")))]
    return [f"{path}: {_value(field.before)} → {_value(field.after)}"]


def _value(value: Any) -> str:
    return "(absent)" if value is UNSET else _short(canonical_json(value))


def _short(text: str) -> str:
    return visible(text) if len(text) <= MAX_LINE else f"{visible(text[:MAX_LINE])}…"


def _text_diff(before: list[str], after: list[str]) -> list[str]:
    """The changed lines of a text, with the lines around them."""
    first = max(0, _shared(before, after) - _CONTEXT)
    before, after = before[first:], after[first:]
    left_out = max(len(before), len(after)) - MAX_DIFF_LINES
    before, after = before[:MAX_DIFF_LINES], after[:MAX_DIFF_LINES]
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    lines: list[str] = []
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        for tag, i, j, k, m in group:
            if tag == "equal":
                lines += (f"  {_line(line)}" for line in before[i:j])
            else:
                lines += _replaced(before[i:j], after[k:m])
    if left_out > 0:
        lines.append(f"… {left_out:,} more lines were not compared")
    return lines


def _replaced(before: list[str], after: list[str]) -> Iterator[str]:
    """Changed lines; of two long ones, only the part in which they differ."""
    starts = [0] * max(len(before), len(after))
    for i, pair in enumerate(zip(before, after, strict=False)):
        if max(map(len, pair)) > MAX_LINE:
            starts[i] = max(0, _shared(*pair) - _AROUND)
    yield from (f"- {_line(line, start)}" for line, start in zip(before, starts, strict=False))
    yield from (f"+ {_line(line, start)}" for line, start in zip(after, starts, strict=False))


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of items that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _line(text: str, start: int = 0) -> str:
    shown = visible(text[start : start + MAX_LINE])
    if shown.endswith(" "):
        shown = f"{shown[:-1]}<U+0020>"
    rest = len(text) - start - MAX_LINE
    more = f"… ({rest:,} more characters)" if rest > 0 else ""
    return f"{'…' if start else ''}{shown}{more}"
