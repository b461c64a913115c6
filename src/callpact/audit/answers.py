"""One answer against an output schema: what came, the rules it breaks, the fields it lacks.

What was delivered is taken back to what came, as a cast tells its changes. `drift.py` counts what
is told here over many answers.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from msgspec import UNSET, Struct

from callpact.audit.places import place_in
from callpact.audit.record import MAX_RECORDED_ISSUES, Note, Record, place
from callpact.audit.replay import Loss, at_masked, load, value_at
from callpact.audit.violations import signature, thinned
from callpact.audit.widening import stripped
from callpact.errors import Issue
from callpact.json_text import json_text
from callpact.masker import MASK
from callpact.schema import CompiledSchema, fit
from callpact.schema.document import pointer, resolve
from callpact.schema.issues import explain

MAX_SAMPLES = 3
"""What was found at a place, told as samples."""
UNDECLARED = "additionalProperties"
ABSENT = "absent"
"""The rule of an optional field that always came and no longer does."""
_MAX_SAMPLE = 80
_MAX_PLACES = 5_000
_UNSTRUCTURED = "must be structured data"
_NOT_RULES = frozenset({"renamed", "converted", "replaced", "residual", "cast"})

Key = tuple[str, str]
"""A place, with `*` for indexes, and a rule."""
Words = tuple[str, str]
"""What is said, and a sample."""


class Told(Struct, frozen=True):
    """What one answer tells: the rules that it breaks, and which optional fields it has."""

    broken: dict[Key, Words]
    """Message and sample by place and rule."""
    optional: dict[str, bool]
    """Places of optional fields: True if the field is there wherever it could be."""
    passes: bool


def passes(schema: CompiledSchema, value: Any, *, is_closed: bool) -> bool:
    """True if an answer keeps a schema; for a closed one, also if nothing would be changed."""
    try:
        is_kept = schema.accepts(value)
    except ValueError:
        is_kept = False
    if not is_kept:
        return not _told_issues(schema, schema.errors(value), value) if _has_mask(value) else False
    return not is_closed or not fit(schema, value).changes


def _has_mask(value: Any) -> bool:
    return MASK in json_text(value)


def _told_issues(schema: CompiledSchema, errors: Iterable[Any], value: Any) -> list[Issue]:
    issues = explain(schema, errors, "Output")
    return [issue for issue in issues if not at_masked(value, issue.path)]


class Judge:
    """Tells the rules that answers break; what breaks the same rules is put into words once."""

    def __init__(self, schema: CompiledSchema, *, is_closed: bool) -> None:
        self._schema = schema
        self._is_closed = is_closed
        self._plan = _Plan(schema.document)
        self._known: dict[tuple[Key, ...], list[dict[Key, Words]]] = {}

    def told(self, value: Any) -> Told:
        optional = self._plan.optional(value)
        if passes(self._schema, value, is_closed=self._is_closed):
            return Told({}, optional, passes=True)
        broken = dict(self._broken(value))
        if self._is_closed:
            for path in stripped(self._schema, value):
                found = place_in(value, path)
                words = (_undeclared(found), _sample(value, path))
                broken.setdefault((found, UNDECLARED), words)
        return Told(broken, optional, passes=False)

    def _broken(self, value: Any) -> dict[Key, Words]:
        # An explanation is bounded: many of one rule must not hide the others.
        errors = thinned(self._schema.errors(value), value)
        kind = () if _has_mask(value) else signature(errors, value)
        known = self._known.setdefault(kind, []) if kind else []
        if len(known) >= MAX_SAMPLES:
            return known[-1]
        broken: dict[Key, Words] = {}
        for issue in _told_issues(self._schema, errors, value):
            words = (issue.message, _sample(value, issue.path))
            broken.setdefault((place_in(value, issue.path), issue.code), words)
        known.append(broken)
        return broken


def noted(record: Record, place_of: Callable[[str], str] = place) -> Iterator[tuple[Key, str]]:
    """What a record itself tells, where the answer cannot be judged again.

    `place_of` makes a place of a path; else it is told as rollups tell it.
    """
    told: dict[Key, str] = {}
    for note in (*record.issues, *record.warnings):
        if (key := noted_as("warning", note.code, place_of(note.path))) is not None:
            told.setdefault(key, note.message)
    for note in record.changes:
        if (key := noted_as("change", note.code, place_of(note.path))) is not None:
            told.setdefault(key, _undeclared(key[0]))
    yield from told.items()


def noted_as(kind: str, code: str, path: str) -> Key | None:
    """The place and rule that an issue, warning or change speaks of; None if it tells of none."""
    if kind == "change":
        return (path, UNDECLARED) if code == "stripped" else None
    return None if code in _NOT_RULES else (path, code)


def _undeclared(path: str) -> str:
    return f"Output property at {path} is not declared"


def absence(path: str) -> str:
    """What is said of an optional field that does not come any more."""
    return f"Output property at {path} is declared, may be missing, and does not come any more"


def _sample(value: Any, path: str) -> str:
    found = value_at(value, path)
    text = "" if found is UNSET else json_text(found)
    return text if len(text) <= _MAX_SAMPLE else text[:_MAX_SAMPLE] + "…"


class _Plan:
    """Where a schema declares fields that may be missing, read once for all answers."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._left = _MAX_PLACES
        self._root = self._read(document, "", ())

    def optional(self, value: Any) -> dict[str, bool]:
        """Each such field with whether it is there in all objects that could have it."""
        found: dict[str, bool] = {}
        if self._root is not None:
            _visit(self._root, value, found)
        return found

    def _read(self, node: Any, path: str, above: tuple[int, ...]) -> _Spot | None:
        self._left -= 1
        if self._left < 0 or not isinstance(node, dict) or id(cast("Any", node)) in above:
            return None
        rules = cast("dict[str, Any]", node)
        inside = (*above, id(rules))
        if isinstance(rules.get("$ref"), str):
            return self._read(resolve(self._document, rules["$ref"]), path, inside)
        needed: Any = rules.get("required", ())
        fields: list[tuple[str, str]] = []
        children: list[tuple[str, _Spot]] = []
        for key, rule in cast("dict[str, Any]", rules.get("properties") or {}).items():
            inner = path + pointer([key])
            if key not in needed:
                fields.append((key, inner))
            child = self._read(rule, inner, inside)
            if child is not None:
                children.append((key, child))
        items = self._read(rules.get("items"), f"{path}/*", inside)
        if not fields and not children and items is None:
            return None
        return _Spot(tuple(fields), tuple(children), items)


class _Spot(Struct, frozen=True):
    """One place of a plan."""

    fields: tuple[tuple[str, str], ...]
    """Key and place of each field of an object here that may be missing."""
    children: tuple[tuple[str, _Spot], ...]
    items: _Spot | None


def _visit(spot: _Spot, value: Any, found: dict[str, bool]) -> None:
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        for key, path in spot.fields:
            found[path] = key in held and found.get(path, True)
        for key, child in spot.children:
            if key in held:
                _visit(child, held[key], found)
    elif isinstance(value, list) and spot.items is not None:
        for item in cast("list[Any]", value):
            _visit(spot.items, item, found)


def is_answer(record: Record) -> bool:
    """True if a tool answered, also if its answer was refused."""
    # What an MCP server sends as an error is let out unjudged.
    return record.gate in (None, "output") and not record.tool_error


def is_unstructured(record: Record) -> bool:
    """True if bytes or content blocks came: no schema speaks of them."""
    return any(note.path == "" and _UNSTRUCTURED in note.message for note in record.warnings)


# --- what came ------------------------------------------------------------------------------


def restored(record: Record) -> tuple[Any, Loss | None]:
    """What came, before a cast changed it; UNSET and the reason if the record does not tell it."""
    value, loss = load(record.output)
    if loss is not None or not record.changes:
        return value, loss
    if len(record.changes) >= MAX_RECORDED_ISSUES:
        return UNSET, "cut"
    held = [copy.deepcopy(value)]
    try:
        for note in reversed(_lasting(record.changes)):
            _undo(held, note)
    except (LookupError, TypeError, ValueError):
        return UNSET, "cut"
    return held[0], None


def before_of(note: Note) -> str | None:
    """JSON of what stood at the place of a change; None where a record does not keep it."""
    return cast("str | None", getattr(note, "before", None))


def _lasting(changes: Iterable[Note]) -> list[Note]:
    """Changes without what was filled into a value that was then replaced as a whole."""
    left: list[Note] = []
    for note in changes:
        if note.code == "replaced":
            gone = [each.path for each in left if _is_filled_into(note.path, each)]
            left = [each for each in left if not any(_is_within(path, each) for path in gone)]
        left.append(note)
    return left


def _is_filled_into(path: str, note: Note) -> bool:
    return note.code == "filled" and note.path.rpartition("/")[0] == path


def _is_within(path: str, note: Note) -> bool:
    return note.path == path or note.path.startswith(f"{path}/")


def _undo(root: list[Any], note: Note) -> None:
    above, _, last = note.path.rpartition("/")
    holder: Any = value_at(root[0], above) if note.path else root
    key: Any = last.replace("~1", "/").replace("~0", "~") if note.path else 0
    if isinstance(holder, list):
        key = int(key)
    if note.code == "filled":
        # The places of a list are filled in their order, so the last one is the first to go.
        del holder[key]
        return
    before = before_of(note)
    if before is None:
        raise LookupError(note.path)
    holder[key] = json.loads(before)
