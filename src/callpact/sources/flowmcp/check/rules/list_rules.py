"""The rules of shared lists: list files, references to them, their versions and dependencies.

`resolve_lists` returns the entries that a file sees, filtered and immutable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import UNSET, Struct

from callpact.schema.issues.wording import cut, json_type, shown
from callpact.sources.flowmcp.read.hit import (
    CAMEL,
    SEMVER,
    Hit,
    Hits,
    at,
    got,
    is_same,
    is_scalar,
    is_text,
    items,
    members,
)

MAX_LIST_DEPTH = 3
"""Shared lists that may depend on one another in a row."""

Entries = tuple[Mapping[str, Any], ...]
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "boolean": bool,
}
_SORTS = ("exists", "value", "in")
_FEW = 3
"""An enum with fewer values may equal a list without being copied from it."""


class Dependency(Struct, frozen=True):
    """A list that another list depends on."""

    ref: str
    version: str
    field: str = ""
    value: Any = None


class ListFile(Struct, frozen=True):
    """A shared list that can be used."""

    name: str
    version: str
    fields: tuple[str, ...]
    entries: Entries
    depends_on: tuple[Dependency, ...] = ()
    file: str = ""
    columns: dict[frozenset[str], str] = {}
    """Fields by the set of their texts, to recognise an enum that repeats them."""


class Resolved(NamedTuple):
    """The lists that a file refers to, by name, and the breaches in its references."""

    lists: dict[str, Entries]
    hits: tuple[Hit, ...]


# --- list files -----------------------------------------------------------------------------


def list_hits(data: Any) -> Hits:
    """Breaches in the `list` of a list file."""
    if not isinstance(data, dict):
        yield Hit("LST001", "", f"`list` must be an object, {got(data)}")
        return
    meta = members(data).get("meta", UNSET)
    if not isinstance(meta, dict):
        yield Hit("LST002", "/meta", f"`meta` must be an object with a name, {got(meta)}")
    yield from _meta_hits(members(meta))
    yield from _field_hits(members(meta).get("fields", UNSET))
    yield from _dependency_hits(members(meta).get("dependsOn", UNSET))
    yield from _entry_hits(members(data).get("entries", UNSET), members(meta).get("fields"))


def _meta_hits(meta: dict[str, Any]) -> Hits:
    name = meta.get("name", UNSET)
    if not is_text(name):
        yield Hit("LST002", "/meta/name", f"`name` must be a text, {got(name)}")
    elif not CAMEL.match(name):
        yield Hit("VAL145", "/meta/name", f"`name` must be in camelCase, {got(name)}")
    version = meta.get("version", UNSET)
    if not (isinstance(version, str) and SEMVER.match(version)):
        yield Hit("LST003", "/meta/version", f"`version` must be x.y.z, {got(version)}")
    if not is_text(meta.get("description")):
        words = f"`description` must be a text, {got(meta.get('description', UNSET))}"
        yield Hit("VAL144", "/meta/description", words)


def _field_hits(fields: Any) -> Hits:
    if not isinstance(fields, list) or not fields:
        words = "`fields` must be a list with a field at least"
        yield Hit("LST004", "/meta/fields", f"{words}, {got(fields)}")
        return
    seen: set[str] = set()
    for index, field in enumerate(items(fields)):
        path = f"/meta/fields/{index}"
        key, kind = members(field).get("key", UNSET), members(field).get("type", UNSET)
        if not is_text(key):
            yield Hit("LST005", f"{path}/key", f"a field must have a key, {got(key)}")
        elif key in seen:
            yield Hit("LST005", f"{path}/key", f"the field '{cut(key)}' must be declared once")
        else:
            seen.add(key)
        if not isinstance(kind, str) or kind not in _TYPES:
            words = "the type of a field must be string, number or boolean"
            yield Hit("LST005", f"{path}/type", f"{words}, {got(kind)}")
        if isinstance(field, dict) and not is_text(members(field).get("description")):
            yield Hit("VAL144", f"{path}/description", "a field must have a description")


def _dependency_hits(declared: Any) -> Hits:
    if declared is UNSET:
        return
    if not isinstance(declared, list):
        yield Hit("LST009", "/meta/dependsOn", f"`dependsOn` must be a list, {got(declared)}")
    for index, item in enumerate(items(declared)):
        path = f"/meta/dependsOn/{index}"
        ref, version = members(item).get("ref"), members(item).get("version")
        if not is_text(ref) or not (isinstance(version, str) and SEMVER.match(version)):
            words = "a dependency must have a `ref` and a `version` x.y.z"
            yield Hit("LST009", path, f"{words}, {got(item)}")
        condition = members(item).get("condition", UNSET)
        if condition is not UNSET and not (
            is_text(members(condition).get("field")) and "value" in members(condition)
        ):
            words = f"a condition must be {{ field, value }}, {got(condition)}"
            yield Hit("LST009", f"{path}/condition", words)


def _entry_hits(entries: Any, fields: Any) -> Hits:
    if not isinstance(entries, list) or not entries:
        words = "`entries` must be a list with an entry at least"
        yield Hit("LST006", "/entries", f"{words}, {got(entries)}")
        return
    declared = {
        key: (kind, members(field).get("optional") is True)
        for field in items(fields)
        if is_text(key := members(field).get("key"))
        and isinstance(kind := members(field).get("type"), str)
        and kind in _TYPES
    }
    required = [key for key, (_, is_optional) in declared.items() if not is_optional]
    for index, entry in enumerate(items(entries)):
        path = f"/entries/{index}"
        if not isinstance(entry, dict):
            yield Hit("LST007", path, f"an entry must be an object, {got(entry)}")
            continue
        for key in required:
            if key not in entry:
                yield Hit("LST007", at(path, key), f"the field '{cut(key)}' must be there")
        yield from _value_hits(members(entry), path, declared)


def _value_hits(entry: dict[str, Any], path: str, declared: dict[str, tuple[str, bool]]) -> Hits:
    for key, value in entry.items():
        if key not in declared:
            yield Hit("VAL146", at(path, key), f"the field '{cut(key)}' is not in `meta.fields`")
            if isinstance(value, dict | list):
                yield Hit("LST008", at(path, key), f"an entry must be flat, {got(value)}")
            continue
        kind, is_optional = declared[key]
        if value is None and is_optional:
            continue
        is_wrong_truth = isinstance(value, bool) and kind != "boolean"
        if is_wrong_truth or not isinstance(value, _TYPES[kind]):
            words = f"'{cut(key)}' must be a {kind}, got {json_type(value)}"
            yield Hit("LST008", at(path, key), words)


def made_list(data: dict[str, Any], file: str) -> ListFile:
    """Build a list from data without errors."""
    meta = members(data["meta"])
    depends_on = tuple(
        Dependency(
            item["ref"],
            item["version"],
            members(item.get("condition")).get("field", ""),
            frozen(members(item.get("condition")).get("value")),
        )
        for item in items(meta.get("dependsOn"))
    )
    fields = tuple(field["key"] for field in meta["fields"])
    entries: Entries = frozen(data["entries"])
    columns = dict(_columns(fields, entries))
    return ListFile(meta["name"], meta["version"], fields, entries, depends_on, file, columns)


def _columns(fields: Iterable[str], entries: Entries) -> Iterator[tuple[frozenset[str], str]]:
    for field in fields:
        texts = frozenset(v for entry in entries if isinstance(v := entry.get(field), str))
        if len(texts) >= _FEW:
            yield texts, field


def frozen(value: Any) -> Any:
    """The same data in immutable form: tuples and read-only mappings."""
    if isinstance(value, dict):
        return MappingProxyType({key: frozen(item) for key, item in members(value).items()})
    if isinstance(value, list):
        return tuple(frozen(item) for item in items(value))
    return value


# --- references -----------------------------------------------------------------------------


def resolve_lists(main: Mapping[str, Any], available: Mapping[str, ListFile]) -> Resolved:
    """The lists of `main.sharedLists`, filtered and frozen; those with errors are left out."""
    found: dict[str, Entries] = {}
    hits: list[Hit] = []
    seen: set[str] = set()
    declared = main.get("sharedLists", UNSET)
    if declared is not UNSET and not isinstance(declared, list):
        hits.append(Hit("VAL024", "/sharedLists", f"`sharedLists` must be a list, {got(declared)}"))
    for index, reference in enumerate(items(declared)):
        path = f"/sharedLists/{index}"
        if not isinstance(reference, dict):
            hits.append(Hit("VAL024", path, f"a reference must be an object, {got(reference)}"))
            continue
        name = members(reference).get("ref")
        if isinstance(name, str) and name in seen:
            hits.append(Hit("VAL139", path, f"the list '{cut(name)}' is referred to twice"))
            continue
        seen.add(name if isinstance(name, str) else "")
        wrong = [*_reference_hits(members(reference), path, available)]
        hits += wrong
        if isinstance(name, str) and not any(hit.key != "VAL123" for hit in wrong):
            found[name] = _filtered(available[name], members(reference).get("filter"))
    return Resolved(found, tuple(hits))


def _reference_hits(
    reference: dict[str, Any], path: str, available: Mapping[str, ListFile]
) -> Hits:
    name, version = reference.get("ref", UNSET), reference.get("version", UNSET)
    is_version = isinstance(version, str) and SEMVER.match(version) is not None
    if not is_version:
        yield Hit("VAL071", f"{path}/version", f"`version` must be x.y.z, {got(version)}")
    if not is_text(name):
        more = "; `name` is called `ref`" if "name" in reference else ""
        yield Hit("VAL070", f"{path}/ref", f"`ref` must be a text, {got(name)}{more}")
        return
    known = available.get(name)
    yield from _filter_hits(reference.get("filter", UNSET), f"{path}/filter", known)
    if known is None:
        yield Hit("VAL072", f"{path}/ref", f"there is no list '{cut(name)}'", (name, available))
        return
    if is_version and version != known.version:
        is_close = str(version).partition(".")[0] == known.version.partition(".")[0]
        words = f"the list '{cut(name)}' has version {known.version}, {got(version)}"
        yield Hit("VAL123" if is_close else "VAL073", f"{path}/version", words)
    yield from chain_hits(known, available, f"{path}/ref")


def _filter_hits(given: Any, path: str, known: ListFile | None) -> Hits:
    if given is UNSET:
        return
    chosen = members(given)
    sorts = [sort for sort in _SORTS if sort in chosen]
    if not is_text(chosen.get("key")) or len(sorts) != 1:
        words = "a filter must be { key, exists }, { key, value } or { key, in }"
        more = "; `field` is called `key`" if "field" in chosen else ""
        yield Hit("VAL074", path, f"{words}, {got(given)}{more}")
        return
    if sorts == ["exists"] and not isinstance(chosen["exists"], bool):
        words = f"`exists` must be true or false, {got(chosen['exists'])}"
        yield Hit("VAL074", f"{path}/exists", words)
    if sorts == ["in"] and not isinstance(chosen["in"], list):
        yield Hit("VAL074", f"{path}/in", f"`in` must be a list, {got(chosen['in'])}")
    if known is not None and chosen["key"] not in known.fields:
        words = f"the list '{cut(known.name)}' has no field '{cut(chosen['key'])}'"
        yield Hit("VAL074", f"{path}/key", words)


def _filtered(known: ListFile, given: Any) -> Entries:
    chosen = members(given)
    if not chosen:
        return known.entries
    key = chosen["key"]
    if "exists" in chosen:
        return tuple(e for e in known.entries if (e.get(key) is not None) == chosen["exists"])
    if "value" in chosen:
        return tuple(e for e in known.entries if key in e and is_same(e[key], chosen["value"]))
    scalars = {(isinstance(v, bool), v) for v in items(chosen["in"]) if is_scalar(v)}
    return tuple(
        e for e in known.entries if key in e and (isinstance(e[key], bool), e[key]) in scalars
    )


def chain_hits(first: ListFile, available: Mapping[str, ListFile], path: str) -> Hits:
    """Breaches in the direct and indirect dependencies of a list."""
    reported: set[str] = set()
    seen = {(first.name, 1)}
    chains: list[tuple[ListFile, tuple[str, ...]]] = [(first, (first.name,))]
    held: dict[tuple[str, str], set[Any]] = {}
    while chains:
        above, chain = chains.pop()
        for dependency in above.depends_on:
            problem = _dependency_problem(dependency, chain, available, held)
            if problem is None and (dependency.ref, len(chain) + 1) not in seen:
                seen.add((dependency.ref, len(chain) + 1))
                chains.append((available[dependency.ref], (*chain, dependency.ref)))
            elif problem is not None and problem[1] not in reported:
                reported.add(problem[1])
                yield Hit(problem[0], path, problem[1])


def _dependency_problem(
    dependency: Dependency,
    chain: tuple[str, ...],
    available: Mapping[str, ListFile],
    held: dict[tuple[str, str], set[Any]],
) -> tuple[str, str] | None:
    words = f"the list '{cut(chain[-1])}' depends on '{cut(dependency.ref)}'"
    known = available.get(dependency.ref)
    if dependency.ref in chain:
        return "LST010", f"{words}, which depends on it: {' → '.join(map(cut, chain))}"
    if known is None:
        return "LST009", f"{words}, which is not there"
    if known.version != dependency.version:
        return "LST009", f"{words} {dependency.version}, which has version {known.version}"
    if len(chain) >= MAX_LIST_DEPTH:
        steps = " → ".join(map(cut, (*chain, dependency.ref)))
        return "LST011", f"{words}, which is more than {MAX_LIST_DEPTH} levels: {steps}"
    if dependency.field and not _holds(dependency, known, held):
        asked = f"'{cut(dependency.field)}' is {shown(dependency.value)}"
        return "LST009", f"{words}, which has no entry where {asked}"
    return None


def _holds(dependency: Dependency, known: ListFile, held: dict[tuple[str, str], set[Any]]) -> bool:
    """True if an entry meets the condition; true is not 1."""
    column = held.get((known.name, dependency.field))
    if column is None:
        values = (entry.get(dependency.field, UNSET) for entry in known.entries)
        column = {(isinstance(value, bool), value) for value in values if is_scalar(value)}
        held[known.name, dependency.field] = column
    value = dependency.value
    return is_scalar(value) and (isinstance(value, bool), value) in column


# --- uses by parameters ---------------------------------------------------------------------


class KnownLists:
    """The lists that a file declares, those it can see, and those that its parameters use."""

    def __init__(
        self,
        main: Mapping[str, Any],
        available: Mapping[str, ListFile],
        entries: dict[str, Entries],
    ) -> None:
        self.available = available
        self.entries = entries
        self.used: set[str] = set()
        references = enumerate(items(main.get("sharedLists")))
        refs = ((index, members(item).get("ref")) for index, item in references)
        self.declared = {name: index for index, name in refs if isinstance(name, str)}

    def has(self, name: str) -> bool:
        """True if a list is declared and exists."""
        return name in self.entries

    def reference_hits(self, references: Iterable[tuple[str, str]], path: str) -> Hits:
        """Breaches in the references of an enum to lists and fields."""
        for name, field in references:
            self.used.add(name)
            if name not in self.declared:
                words = f"the list '{cut(name)}' is not in `sharedLists`"
                yield Hit("VAL048", path, words, (name, self.declared))
            elif name in self.entries and field not in self.available[name].fields:
                words = f"the list '{cut(name)}' has no field '{cut(field)}'"
                yield Hit("VAL049", path, words, (field, self.available[name].fields))

    def repetition_hits(self, values: frozenset[str], path: str) -> Hits:
        """A hit if written values are those of a list's field."""
        if len(values) < _FEW:
            return
        for name, known in self.available.items():
            field = known.columns.get(values)
            if field is not None:
                words = f"these are the values of '{cut(name)}': write enum({{{{{name}:{field}}}}})"
                yield Hit("VAL107", path, words)
                return

    def unused_hits(self, hits: Iterable[Hit], code: str) -> Hits:
        """The hits of references to lists, and one for each list that no enum and no hook names.

        A missing list that nothing uses is a milder breach.
        """
        unused = {
            f"/sharedLists/{index}": name
            for name, index in self.declared.items()
            if name not in self.used and name not in code
        }
        for hit in hits:
            is_unused = hit.key == "VAL072" and hit.path.removesuffix("/ref") in unused
            yield hit._replace(key="VAL072:unused") if is_unused else hit
        for path, name in unused.items():
            words = f"the list '{cut(name)}' is used by no parameter and no hook"
            yield Hit("VAL075", path, words)
