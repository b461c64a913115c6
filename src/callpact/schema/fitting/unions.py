"""The kinds of schema that leave a choice or point elsewhere: unions and references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from callpact.schema.fitting.objects import stripped
from callpact.schema.fitting.scalars import MISSING, FitPass, Meter, Node, Unknown, copied

if TYPE_CHECKING:
    from collections.abc import Callable

    from callpact.schema.values import Change


class Union(Node):
    __slots__ = ("variants",)
    is_leaf = False

    def __init__(self, schema: dict[str, Any], variants: list[Node]) -> None:
        super().__init__(schema)
        self.variants = variants

    def check(self, value: Any) -> bool:
        return any(variant.check(value) for variant in self.variants)

    def _invent(self, meter: Meter) -> Any:
        return self.variants[0].create(meter)

    def cast(self, value: Any, run: FitPass) -> Any:
        if self.check(value):
            return value
        if value is MISSING and self.takes_absence():
            # TypeBox: a variant that says nothing takes `undefined`, too; it is written as null.
            self._note_made(value, run)
            return None
        if self.default is not MISSING:
            self._note_made(value, run)
            return copied(self.default, run.meter)
        return self.best(value).cast(value, run)

    def takes_absence(self) -> bool:
        """True if a variant says nothing at all."""
        return any(
            isinstance(variant, Unknown) or (isinstance(variant, Union) and variant.takes_absence())
            for variant in self.variants
        )

    def best(self, value: Any, among: list[Node] | None = None) -> Node:
        """The variant that the value most likely means."""
        variants = among or self.variants
        scores = [variant.score(value) for variant in variants]
        return variants[scores.index(max(scores))]

    def score(self, value: Any) -> int:
        return max(variant.score(value) for variant in self.variants)

    def convert(self, value: Any, run: FitPass) -> Any:
        accepting = self._accepting(value)
        mark = len(run.changes)
        tried: list[tuple[Any, list[Change]]] = []
        chosen: int | None = None
        for variant in accepting or self.variants:
            run.meter.spend()
            new = variant.convert(value, run)
            tried.append((new, run.changes[mark:]))
            del run.changes[mark:]
            if accepting and not tried[-1][1]:
                return value
            if chosen is None and (accepting or variant.check(new)):
                chosen = len(tried) - 1
                if not accepting:
                    break
        if chosen is None:
            chosen = self.variants.index(self.best(value))
        new, changes = tried[chosen]
        run.changes.extend(changes)
        return new

    def strip(self, value: Any, run: FitPass) -> Any:
        if self.also:
            return stripped(self, value, run)
        if not isinstance(value, dict | list | tuple):
            return value
        held = cast("Any", value)
        while not run.meter.is_settled(self, held):
            new = self._stripped_once(held, run)
            if new is held:
                run.meter.settle(self, held)
            # Without the keys of one variant, the value may mean another.
            held = new
        return held

    def _stripped_once(self, value: Any, run: FitPass) -> Any:
        accepting = self._accepting(value)
        mark = len(run.changes)
        tried: list[tuple[Any, list[Change]]] = []
        for variant in accepting:
            # What one accepting variant declares in full holds nothing undeclared.
            run.meter.spend()
            tried.append((variant.strip(value, run), run.changes[mark:]))
            if len(run.changes) == mark:
                return value
            del run.changes[mark:]
        best = self.best(value, accepting)
        if not accepting:
            return best.strip(value, run)
        new, changes = tried[accepting.index(best)]
        run.changes.extend(changes)
        return new

    def _accepting(self, value: Any) -> list[Node]:
        return [variant for variant in self.variants if variant.check(value)]

    def _keys(self, value: Any) -> set[str] | None:
        found: set[str] = set()
        for variant in self._accepting(value) or [self.best(value)]:
            known = variant.keys(value)
            if known is None:
                return None
            found |= known
        return found

    def nodes_of(self, part: str | int) -> list[Node]:
        found = [node for variant in self.variants for node in variant.nodes_of(part)]
        return found + super().nodes_of(part)


class Ref(Node):
    """A reference, resolved when it is first followed; its steps are counted."""

    __slots__ = ("_meter", "_read", "_target")
    is_leaf = False

    def __init__(self, reference: str, read: Callable[[], Node], meter: Meter) -> None:
        super().__init__({"$ref": reference})
        self._read = read
        self._meter = meter
        self._target: Node | None = None

    @property
    def target(self) -> Node:
        self._meter.spend()
        if self._target is None:
            self._target = self._read()
        return self._target

    def check(self, value: Any) -> bool:
        return self._meter.check(self.target, value)

    def _invent(self, meter: Meter) -> Any:
        return self.target.create(meter)

    def cast(self, value: Any, run: FitPass) -> Any:
        return self.target.cast(value, run)

    def convert(self, value: Any, run: FitPass) -> Any:
        return self.target.convert(value, run)

    def strip(self, value: Any, run: FitPass) -> Any:
        return stripped(self, value, run) if self.also else self.target.strip(value, run)

    def score(self, value: Any) -> int:
        return self.target.score(value)

    def _keys(self, value: Any) -> set[str] | None:
        return self.target.keys(value)

    def nodes_of(self, part: str | int) -> list[Node]:
        return self.target.nodes_of(part) + super().nodes_of(part)
