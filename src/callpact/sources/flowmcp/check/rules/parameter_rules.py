"""The rules of parameters: position, value, placeholders and `z`; and the caller's arguments."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from msgspec import UNSET

from callpact.schema.issues.wording import cut
from callpact.sources.flowmcp.check.rules.list_rules import KnownLists
from callpact.sources.flowmcp.check.rules.z_rules import (
    PLACEHOLDER,
    Z,
    as_number,
    default_hits,
    read_z,
    with_lists,
)
from callpact.sources.flowmcp.read.hit import (
    CAMEL,
    Hit,
    Hits,
    at,
    got,
    is_text,
    items,
    members,
    unknown_hits,
)

_SERVER = "SERVER_PARAM:"
_USER = "USER_PARAM"
_LOCATIONS = ("insert", "query", "body")
_FIELDS = frozenset({"position", "z", "description"})
_POSITION_FIELDS = frozenset({"key", "value", "location"})
_Z_FIELDS = frozenset({"primitive", "options"})


class Given(NamedTuple):
    """An argument of the caller: its name, the file's other name for it, and its `z`."""

    name: str
    alias: str
    z: Z


class Parameters(NamedTuple):
    """Facts about the parameters of a tool that its other rules need."""

    given: tuple[Given, ...]
    places: tuple[tuple[str, str], ...]
    """Keys of the parameters in the path, with the JSON Pointer of each declaration."""
    is_known: bool
    """False if a parameter is too broken to know its arguments."""

    @property
    def inserts(self) -> frozenset[str]:
        """The keys of the values that are inserted into the path."""
        return frozenset(key for key, _ in self.places)


def parameter_hits(
    declared: Any, path: str, secrets: frozenset[str], lists: KnownLists, method: Any
) -> Generator[Hit, None, Parameters]:
    """Breaches in the parameters of a tool."""
    if not isinstance(declared, list):
        yield Hit("VAL035", path, f"`parameters` must be a list, {got(declared)}")
        return Parameters((), (), is_known=False)
    given: list[Given] = []
    places: dict[str, str] = {}
    is_known = True
    for index, block in enumerate(items(declared)):
        place = f"{path}/{index}"
        if not isinstance(members(block).get("position"), dict) or not isinstance(
            members(block).get("z"), dict
        ):
            words = "a parameter must have the objects `position` and `z`"
            yield Hit("VAL040", place, f"{words}, {_lacking(block)}")
            is_known = False
            continue
        position = members(block["position"])
        is_named = _is_named(position)
        is_known = is_known and is_named
        if not block.keys() <= _FIELDS:
            yield from unknown_hits("VAL077", place, block, _FIELDS)
        if not (is_named and _is_usual(position)):
            yield from _position_hits(position, f"{place}/position", method)
        declared_z = members(block["z"])
        z = read_z(declared_z.get("primitive", UNSET), declared_z.get("options", UNSET))
        if z.hits or z.references or z.values or not declared_z.keys() <= _Z_FIELDS:
            z = yield from _z_hits(z, declared_z, f"{place}/z", lists)
        if is_named and position["value"] == "{{USER_PARAM}}":  # As most are.
            given.append(Given(position["key"], "", z))
        else:
            made = yield from _value_hits(position, f"{place}/position/value", secrets, z)
            given += made
        if is_named and position.get("location") == "insert":
            places.setdefault(position["key"], f"{place}/position/location")
    yield from _double_hits(given, path)
    return Parameters(tuple(given), tuple(places.items()), is_known)


def _lacking(block: Any) -> str:
    if not isinstance(block, dict):
        return got(block)
    wrong = [name for name in ("position", "z") if not isinstance(members(block).get(name), dict)]
    return f"`{wrong[0]}`: {got(members(block).get(wrong[0], UNSET))}"


def _is_named(position: Mapping[str, Any]) -> bool:
    return is_text(position.get("key")) and isinstance(position.get("value"), str)


def _is_usual(position: dict[str, Any]) -> bool:
    """True if it certainly breaks no rule, as most do not."""
    return (
        len(position) == len(_POSITION_FIELDS)
        and position.get("location") in ("insert", "query")
        and CAMEL.match(position["key"]) is not None
    )


def _position_hits(position: dict[str, Any], path: str, method: Any) -> Hits:
    yield from unknown_hits("VAL077", path, position, _POSITION_FIELDS)
    key = position.get("key", UNSET)
    if not is_text(key):
        yield Hit("VAL041", f"{path}/key", f"`key` must be a text, {got(key)}")
    elif not CAMEL.match(key):
        yield Hit("VAL098", f"{path}/key", f"`key` must be in camelCase, {got(key)}")
    value = position.get("value", UNSET)
    if not isinstance(value, str):
        yield Hit("VAL042", f"{path}/value", f"`value` must be a text, {got(value)}")
    location = position.get("location", UNSET)
    if location not in _LOCATIONS:
        words = "`location` must be insert, query or body"
        yield Hit("VAL043", f"{path}/location", f"{words}, {got(location)}")
    elif location == "body" and method in ("GET", "DELETE"):
        yield Hit("VAL087", f"{path}/location", f"a {method} request has no body")


def _z_hits(z: Z, block: dict[str, Any], path: str, lists: KnownLists) -> Generator[Hit, None, Z]:
    """Breaches in a `z`; returns the `z` with the values of the lists that it refers to."""
    yield from unknown_hits("VAL077", path, block, _Z_FIELDS)
    for hit in z.hits:
        yield Hit(hit.key, path + hit.path, hit.message)
    if z.references:
        wrong = [*lists.reference_hits(z.references, f"{path}/primitive")]
        yield from wrong
        if wrong or z.hits or any(not lists.has(name) for name, _ in z.references):
            return Z(is_required=z.is_required)
        options = [str(option) for option in items(block.get("options"))]
        z = with_lists(z, str(block.get("primitive")), options, lists.entries)
        if not z.values:
            yield Hit("VAL046", f"{path}/primitive", "the lists have no value for this enum()")
            return Z(is_required=z.is_required)
        for hit in default_hits(z):
            yield Hit(hit.key, path + hit.path, hit.message)
    elif z.values and lists.available:
        yield from lists.repetition_hits(z.values, f"{path}/primitive")
    return z


def _value_hits(
    position: dict[str, Any], path: str, secrets: frozenset[str], z: Z
) -> Generator[Hit, None, list[Given]]:
    """Breaches in a value; returns the arguments that fill it."""
    value, key = position.get("value"), position.get("key")
    if not isinstance(value, str):
        return []
    if "{{" not in value:
        wrong = _fixed_violation(value, z)
        if wrong is not None:  # A fixed value may be a key: it is not shown.
            yield Hit("VAL088", path, f"the fixed value breaks its own `z`: it {wrong}")
        return []
    names = dict.fromkeys(name.strip() for name in PLACEHOLDER.findall(value))
    own: list[str] = []
    for name in names:
        if name.startswith(_SERVER) or name in secrets:
            yield from server_hits(name, path, secrets)
        elif ":" in name:
            yield Hit("VAL047", path, f"only enum() may refer to a list, got '{{{{{cut(name)}}}}}'")
        elif name != _USER:
            own.append(name)
            words = f"'{{{{{cut(name)}}}}}' is neither {{{{USER_PARAM}}}} nor a server parameter"
            yield Hit("VAL091", path, words)
    if not names:
        yield Hit("VAL091", path, "a placeholder must be closed, as in {{USER_PARAM}}")
    if len(own) > 1:
        yield Hit("VAL131", path, f"one value holds {len(own)} things that the caller gives")
        return [Given(name, "", Z(is_required=z.is_required)) for name in own]
    if not is_text(key) or not (own or _USER in names):
        return []
    return [Given(str(key), own[0] if own else "", z)]


def _fixed_violation(value: str, z: Z) -> str | None:
    """The reason why a fixed value, a text, does not match the primitive; None if it does."""
    kind = None if z.schema is None else z.schema["type"]
    if kind == "number":
        number = as_number(value)
        return "must be a number" if number is None else z.violation(number)
    if kind == "boolean":
        return None if value in {"true", "false"} else "must be true or false"
    if kind in {"array", "object"}:
        return None  # Sent as text; the format does not define how such a value is written.
    return z.violation(value)


def server_hits(name: str, path: str, secrets: frozenset[str]) -> Hits:
    """Breaches in the placeholder of a server parameter."""
    plain = name.removeprefix(_SERVER).strip()
    if plain not in secrets:
        words = f"the server parameter '{cut(plain)}' is not in `requiredServerParams`"
        yield Hit("VAL089", path, words)
    elif not name.startswith(_SERVER):
        words = f"a server parameter must be {{{{SERVER_PARAM:{cut(plain)}}}}}"
        yield Hit("VAL090", path, f"{words}, got the bare name")


def secret_hits(text: Any, path: str, secrets: frozenset[str]) -> Hits:
    """Breaches in the placeholders of a text that only server parameters may fill."""
    if not isinstance(text, str) or "{{" not in text:
        return
    for name in dict.fromkeys(name.strip() for name in PLACEHOLDER.findall(text)):
        yield from server_hits(name, path, secrets)


def header_secret_hits(headers: Any, path: str, secrets: frozenset[str]) -> Hits:
    """Breaches in the placeholders of headers."""
    for name, value in members(headers).items():
        yield from secret_hits(value, at(path, name), secrets)


def _double_hits(given: list[Given], path: str) -> Hits:
    seen: set[str] = set()
    for item in given:
        if item.name in seen:
            yield Hit("VAL130", path, f"two parameters have the key '{cut(item.name)}'")
        seen.add(item.name)
