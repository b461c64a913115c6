"""The kinds of schema without subschemas, and how `convert`, `cast` and `strip` treat their values.

Seed 001 casts with TypeBox's `Value.Cast`; the nodes are that algorithm over JSON Schema, kind by
kind (which value is left alone, which is created anew). They judge values by TypeBox's rules, not
by JSON Schema's: the validator proper is in `compiled.py`.
"""

from __future__ import annotations

import math
from enum import Enum
from fractions import Fraction
from typing import Any, cast

import jsonschema_rs

from callpact.errors import CastError, InvalidSchema
from callpact.schema.document import MAX_BACKTRACKS, pointer
from callpact.schema.fitting.lossless import converted
from callpact.schema.values import Change, same

MAX_INVENTED = 10_000
"""Items or characters that a cast may have to invent for one `minItems` or `minLength`."""
_MAX_STEPS = 100_000
_STEPS_PER_PART = 50
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_BACKTRACKS)
MISSING: Any = object()


class Meter:
    """Counts what multiplies: references followed, variants tried, values invented.

    It also keeps what is known of parts of the value, so that nothing is looked at twice: in a
    recursive union every level would ask again for all levels below it.
    """

    __slots__ = ("_checked", "_left", "_settled", "_value")

    def __init__(self) -> None:
        self._left = 0
        self._value = MISSING
        self._checked: dict[tuple[int, int], tuple[Any, bool]] = {}
        self._settled: dict[tuple[int, int], Any] = {}

    def start(self, value: Any) -> None:
        """Begin a pass over a value."""
        self._left = _MAX_STEPS
        self._value = value

    def end(self) -> None:
        """Let go of the value."""
        self._value = MISSING
        self._checked = {}
        self._settled = {}

    def check(self, node: Node, value: Any) -> bool:
        """The result of a node's check of a part of the value, cached."""
        if not isinstance(value, dict | list):
            return node.check(value)
        key = (id(node), id(cast("Any", value)))
        known = self._checked.get(key)
        if known is None:
            # With the value itself, whose id is its own only while somebody holds it.
            known = self._checked[key] = (cast("Any", value), node.check(value))
        return known[1]

    def settle(self, node: Node, value: Any) -> None:
        """Remember that a node has nothing to strip from a part."""
        self._settled[(id(node), id(value))] = value

    def is_settled(self, node: Node, value: Any) -> bool:
        """True if a node has nothing to strip from a part."""
        return (id(node), id(value)) in self._settled

    def spend(self, steps: int = 1) -> None:
        """Count some steps. Raises CastError when they are too many for the size of the value."""
        self._left -= steps
        if self._left >= 0:
            return
        if self._value is not MISSING:
            self._left += _STEPS_PER_PART * _count(self._value)
            self._value = MISSING
        if self._left < 0:
            raise CastError("the schema multiplies beyond what a cast may follow or invent")


def _count(value: Any) -> int:
    count, stack = 0, [value]
    while stack:
        item = stack.pop()
        count += 1
        if isinstance(item, dict):
            stack.extend(cast("dict[str, Any]", item).values())
        elif isinstance(item, list | tuple):
            stack.extend(cast("list[Any]", item))
    return count


class FitPass:
    """One pass over a value: where it is, and what it has changed."""

    __slots__ = ("changes", "json_text", "meter", "path")

    def __init__(self, meter: Meter, *, json_text: bool = False) -> None:
        self.path: list[str | int] = []
        self.changes: list[Change] = []
        self.meter = meter
        self.json_text = json_text

    def note(self, action: str, before: Any = None, *, invented: bool = False) -> None:
        """Record a change of the value at the current place."""
        self.changes.append(Change(pointer(self.path), action, before, invented))

    def note_at(self, part: str | int, action: str, before: Any = None) -> None:
        """Record a change of a part of the value at the current place."""
        self.changes.append(Change(pointer([*self.path, part]), action, before))


class Node:
    """A schema that says nothing: every value is as it should be."""

    __slots__ = ("also", "default")
    is_leaf = True
    """True if there is nothing inside that could be stripped."""
    one_pass = False
    """True if `cast` returns a valid value as it is, so that no check is needed before."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.default = schema.get("default", MISSING)
        self.also: tuple[Node, ...] = ()
        """Other nodes for this place, without a kind of their own: schemas under conditions
        (`then`, `dependentSchemas`) and bare `required`, `contains`, … Their keys are known."""

    def check(self, value: Any) -> bool:
        return value is not MISSING

    def create(self, meter: Meter) -> Any:
        """Invent a value of this kind; raise CastError where that cannot be done."""
        if self.default is not MISSING:
            return copied(self.default, meter)
        return self._invent(meter)

    def _invent(self, meter: Meter) -> Any:
        del meter
        return {}

    def cast(self, value: Any, run: FitPass) -> Any:
        if self.check(value):
            return value
        self._note_made(value, run)
        return self._made(run)

    def _note_made(self, value: Any, run: FitPass) -> None:
        if value is MISSING:
            run.note("filled", invented=self.default is MISSING)
        else:
            run.note("replaced", value, invented=True)

    def _made(self, run: FitPass) -> Any:
        try:
            return self.create(run.meter)
        except CastError as error:
            raise CastError(error.message, pointer(run.path)) from None

    def convert(self, value: Any, run: FitPass) -> Any:
        del run
        return value

    def strip(self, value: Any, run: FitPass) -> Any:
        del run
        return value

    def score(self, value: Any) -> int:
        return 1 if self.check(value) else 0

    def keys(self, value: Any) -> set[str] | None:
        """The keys that an object may have by this schema; None for any."""
        known = self._keys(value)
        for node in self.also:
            more = node.keys(value)
            if known is None or more is None:
                return None
            known |= more
        return known

    def _keys(self, value: Any) -> set[str] | None:
        del value
        return set()

    def nodes_of(self, part: str | int) -> list[Node]:
        """Every schema that may speak of the value under a key or at an index."""
        return [node for other in self.also for node in other.nodes_of(part)]


class Unknown(Node):
    """No keyword that the cast knows. A missing one is written as null (TypeBox: undefined)."""

    __slots__ = ()

    def cast(self, value: Any, run: FitPass) -> Any:
        if value is not MISSING:
            return value
        run.note("filled", invented=True)
        return None


class _Scalar(Node):
    __slots__ = ("type",)

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(schema)
        self.type: str = schema["type"]

    def check(self, value: Any) -> bool:
        return self._holds(value) or (isinstance(value, Enum) and self._holds(value.value))

    def _holds(self, value: Any) -> bool:
        raise NotImplementedError

    def convert(self, value: Any, run: FitPass) -> Any:
        new = converted(value, self.type)
        if new is value:
            return value
        run.note("converted", value)
        return new


class String(_Scalar):
    __slots__ = ("_longest", "_matches", "_shortest")

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(schema)
        self._shortest = number(schema, "minLength", 0)
        self._longest = number(schema, "maxLength", math.inf)
        self._matches = matcher(schema["pattern"]) if "pattern" in schema else None

    def _holds(self, value: Any) -> bool:
        return (
            type(value) is str
            and self._shortest <= len(value) <= self._longest
            and (self._matches is None or self._matches(value))
        )

    def _invent(self, meter: Meter) -> Any:
        if self._matches is not None:
            raise CastError("a string with a pattern cannot be invented; give it a default")
        return " " * affordable(self._shortest, "minLength", meter)


class Number(_Scalar):
    __slots__ = ("_above", "_below", "_least", "_most", "_step", "_whole")

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(schema)
        self._whole = schema["type"] == "integer"
        self._least = number(schema, "minimum", None)
        self._most = number(schema, "maximum", None)
        self._above = number(schema, "exclusiveMinimum", None)
        self._below = number(schema, "exclusiveMaximum", None)
        self._step = number(schema, "multipleOf", None)

    def _holds(self, value: Any) -> bool:
        kind = type(value)  # pyright: ignore[reportUnknownVariableType] - JSON
        if kind is float:
            if not math.isfinite(value) or (self._whole and not value.is_integer()):
                return False
        elif kind is not int:
            return False
        return (
            (self._least is None or value >= self._least)
            and (self._most is None or value <= self._most)
            and (self._above is None or value > self._above)
            and (self._below is None or value < self._below)
            and (self._step is None or _is_multiple(value, self._step))
        )

    def _invent(self, meter: Meter) -> Any:
        del meter
        return 0 if self._least is None else self._least


class Boolean(_Scalar):
    __slots__ = ()

    def _holds(self, value: Any) -> bool:
        return value is True or value is False

    def _invent(self, meter: Meter) -> Any:
        del meter
        return False


class Null(_Scalar):
    __slots__ = ()

    def _holds(self, value: Any) -> bool:
        return value is None

    def _invent(self, meter: Meter) -> Any:
        del meter


class Literal(Node):
    __slots__ = ("value",)

    def __init__(self, schema: dict[str, Any], value: Any) -> None:
        super().__init__(schema)
        self.value = value

    def check(self, value: Any) -> bool:
        return value is not MISSING and same(value, self.value)

    def _invent(self, meter: Meter) -> Any:
        return copied(self.value, meter)

    def _keys(self, value: Any) -> set[str] | None:
        return None if self.check(value) else set()

    def convert(self, value: Any, run: FitPass) -> Any:
        if not isinstance(value, str) or isinstance(self.value, str):
            return value
        for kind in ("number", "boolean"):
            new = converted(value, kind)
            if new is not value and same(new, self.value):
                run.note("converted", value)
                return new
        return value


class Choice(Node):
    """One of several literals (`enum`): a union of them, found by lookup."""

    __slots__ = ("_holders", "_scalars", "_values")

    def __init__(self, schema: dict[str, Any], values: list[Any]) -> None:
        super().__init__(schema)
        self._values = values
        self._scalars = {_scalar_key(value) for value in values if not _holds_parts(value)}
        self._holders = [value for value in values if _holds_parts(value)]

    def check(self, value: Any) -> bool:
        if _holds_parts(value):
            return any(same(value, holder) for holder in self._holders)
        if isinstance(value, Enum):
            value = value.value
        try:
            return _scalar_key(value) in self._scalars
        except TypeError:  # Not hashable, and so not JSON.
            return False

    def _invent(self, meter: Meter) -> Any:
        return copied(self._values[0], meter)

    def convert(self, value: Any, run: FitPass) -> Any:
        if not isinstance(value, str) or self.check(value):
            return value
        for kind in ("number", "boolean"):
            new = converted(value, kind)
            if new is not value and self.check(new):
                run.note("converted", value)
                return new
        return value


class Never(Node):
    __slots__ = ()

    def check(self, value: Any) -> bool:
        del value
        return False

    def cast(self, value: Any, run: FitPass) -> Any:
        del value
        raise CastError("no value is allowed here", pointer(run.path))

    def _invent(self, meter: Meter) -> Any:
        del meter
        raise CastError("no value is allowed here")


class Not(Node):
    """A `not`; the keywords beside it (`own`) still decide what is converted and kept."""

    __slots__ = ("_excluded", "_own")
    is_leaf = False

    def __init__(self, schema: dict[str, Any], excluded: Node, own: Node) -> None:
        super().__init__(schema)
        self._excluded = excluded
        self._own = own

    def check(self, value: Any) -> bool:
        return self._own.check(value) and not self._excluded.check(value)

    def _invent(self, meter: Meter) -> Any:
        del meter
        raise CastError("a value that is defined by 'not' cannot be invented; give it a default")

    def convert(self, value: Any, run: FitPass) -> Any:
        return self._own.convert(value, run)

    def strip(self, value: Any, run: FitPass) -> Any:
        return self._own.strip(value, run)

    def _keys(self, value: Any) -> set[str] | None:
        return self._own.keys(value)

    def nodes_of(self, part: str | int) -> list[Node]:
        return self._own.nodes_of(part) + super().nodes_of(part)


# --- values ---------------------------------------------------------------------------------


def _holds_parts(value: Any) -> bool:
    return isinstance(value, dict | list | tuple)


def _scalar_key(value: Any) -> tuple[bool, Any]:
    return (isinstance(value, bool), value)


def _is_multiple(value: float, step: float) -> bool:
    if not step:
        return False
    if type(value) is int and type(step) is int:
        return value % step == 0
    # As decimals, so that 0.3 is a multiple of 0.1.
    return (_fraction(value) / _fraction(step)).denominator == 1


def _fraction(value: float) -> Fraction:
    return Fraction(value) if isinstance(value, int) else Fraction(repr(value))


def copied(value: Any, meter: Meter) -> Any:
    """A copy of a part of the schema, counted."""
    meter.spend()
    if isinstance(value, dict):
        return {key: copied(item, meter) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [copied(item, meter) for item in cast("list[Any]", value)]
    return value


def affordable(count: float, keyword: str, meter: Meter) -> int:
    """The number of items or characters to invent. Raises CastError if they are too many."""
    if count > MAX_INVENTED:
        raise CastError(f"{keyword} asks for {count:,}; at most {MAX_INVENTED:,} are invented")
    meter.spend(int(count))
    return int(count)


def parsed(node: Node, value: Any, kind: type, run: FitPass) -> Any:
    """A string that holds the JSON of the array or object that is wanted (tolerant input)."""
    if not run.json_text or not isinstance(value, str):
        return value
    new = converted(value, "object" if kind is dict else "array")
    if new is value:
        return value
    run.note("converted", value)
    return node.convert(new, run)


# --- keywords -------------------------------------------------------------------------------


def number(schema: dict[str, Any], keyword: str, otherwise: Any) -> Any:
    """The number that a keyword gives."""
    value = schema.get(keyword)
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidSchema(f"{keyword} must be a number, got {value!r:.40}")
    return value


def matcher(pattern: Any) -> Any:
    """A function that searches a text for a pattern, in the validator's dialect and limits."""
    rule = {"type": "string", "pattern": pattern}
    try:
        return jsonschema_rs.validator_for(rule, offline=True, pattern_options=_PATTERNS).is_valid
    except (ValueError, jsonschema_rs.ValidationError):
        raise InvalidSchema(f"{pattern!r:.80} is not a pattern") from None
