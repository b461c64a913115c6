"""What must stay as it is while a schema is widened, lest more values be refused.

Under `not` and `if`, and where only one form may match, accepting more can mean accepting less.
"""

from __future__ import annotations

from typing import Any, cast

from callpact.audit.places import DATA, NAMED, Path, Places, at, keywords_of, schemas_in
from callpact.audit.widening_rules import as_any_of
from callpact.audit.widening_unions import Outline, Outliner


class Bounds:
    """A schema as it is before a change, and what that change must not touch."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self.places = Places(document)
        self._outliner = Outliner(document, self.places)
        self._outlines: dict[tuple[str | int, ...], list[Outline]] = {}
        self._apart: dict[tuple[str | int, ...], tuple[int, frozenset[int]]] = {}
        self._unions = _one_ofs(document)
        self._targets = self._kept_targets()

    def outlines(self, union: Path) -> list[Outline]:
        """What each branch of a union accepts at most."""
        key = tuple(union)
        if key not in self._outlines:
            branches = cast("list[Any]", at(self._document, union))
            self._outlines[key] = [self._outliner.of(branch) for branch in branches]
        return self._outlines[key]

    def refusal(self, where: Path) -> str | None:
        """Why a place must not be widened: it also serves where more would then be refused."""
        for index, keyword in keywords_of(where[:-1]):
            branch = where[index + 1] if keyword == "oneOf" else None
            if self._is_inverting(where[:index], keyword, branch):
                return "it stands where widening would refuse other values"
        for target in self._targets:
            if where[: len(target)] == target:
                return "it is shared with a place where widening would refuse other values"
        return None

    def _is_inverting(self, holder: Path, keyword: str, branch: Any) -> bool:
        """True if accepting more under a keyword may mean accepting less above it."""
        if keyword == "contains":
            return "maxContains" in (at(self._document, holder) or ())
        if keyword == "oneOf":
            return branch not in self._apart_at(holder)[1]
        return keyword in {"not", "if"}

    def _apart_at(self, holder: Path) -> tuple[int, frozenset[int]]:
        """How many branches a `oneOf` has, and those that exclude all others."""
        key = tuple(holder)
        if key not in self._apart:
            found: Any = at(self._document, [*holder, "oneOf"])
            branches = cast("list[Any]", found) if isinstance(found, list) else []
            self._apart[key] = (len(branches), self._outliner.apart(branches))
        return self._apart[key]

    def _kept_targets(self) -> list[Path]:
        """The places that are referred to from where a wider rule refuses more."""
        found: dict[str, Path] = {}
        stack: list[tuple[Path, Any, bool]] = [([], self._document, False)]
        while stack:
            path, node, is_inverted = stack.pop()
            if isinstance(node, list):
                items = enumerate(cast("list[Any]", node))
                stack += [([*path, i], item, is_inverted) for i, item in items]
            if not isinstance(node, dict):
                continue
            rules = cast("dict[str, Any]", node)
            reference = rules.get("$ref", rules.get("$dynamicRef"))
            if is_inverted and isinstance(reference, str) and reference not in found:
                # What is named otherwise than by its place may be anywhere.
                target = self.places.target_path(reference) if "$ref" in rules else None
                found[reference] = target or []
                stack.append((target or [], at(self._document, target or []), True))
            for key, item in rules.items():
                if key in NAMED and isinstance(item, dict):
                    parts = cast("dict[str, Any]", item).items()
                    stack += [([*path, key, name], part, is_inverted) for name, part in parts]
                elif key == "oneOf" and isinstance(item, list):
                    for i, part in enumerate(cast("list[Any]", item)):
                        inner = is_inverted or self._is_inverting(path, key, i)
                        stack.append(([*path, key, i], part, inner))
                elif key not in DATA:
                    inner = is_inverted or self._is_inverting(path, key, None)
                    stack.append(([*path, key], item, inner))
        return list(found.values())

    def mend(self, document: Any) -> None:
        """Let several forms match where forms that excluded each other no longer do."""
        if not self._unions:
            return
        outliner = Outliner(document, Places(document))
        before = {_plain(path): self._apart_at(list(path)) for path in self._unions}
        for path in sorted(_one_ofs(document), key=len, reverse=True):
            rules = at(document, path)
            count, apart = before.get(_plain(path), (0, frozenset()))
            meant = apart | set(range(count, len(rules["oneOf"])))
            if not meant <= outliner.apart(rules["oneOf"]):
                as_any_of(rules)


def _one_ofs(document: Any) -> list[Path]:
    return [path for path, rules, _ in schemas_in(document) if isinstance(rules.get("oneOf"), list)]


def _plain(path: Path) -> tuple[str | int, ...]:
    """A path that stays the same when a `oneOf` on it becomes an `anyOf`."""
    return tuple("anyOf" if part == "oneOf" else part for part in path)
