"""What keeping records and answering for them needs of a database: the seam between both engines.

SQL is written once, in what both speak: `?` and `?1` are parameters, texts are compared by
`pattern`, and what is large is written by a method of its own. Nothing here knows of records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Row = Sequence[Any]


class Engine(Protocol):
    """An open database of the latest version."""

    @property
    def opened(self) -> int:
        """How often it was connected to; ids that were read before may be of another database."""
        ...

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run one statement; how many rows it changed."""
        ...

    def execute_all(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        """Run one statement for each row of parameters."""
        ...

    def kept_number(self, name: str, default: int = 0) -> int:
        """A number that is kept under a name."""
        ...

    def keep_number(self, name: str, value: int) -> None:
        """Keep a number under a name, in place of what was there."""
        ...

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        """The first row of a SELECT."""
        ...

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Row]:
        """All rows of a SELECT."""
        ...

    def stream(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[Row]:
        """The rows of a SELECT one after the other: of many, only the first are wanted."""
        ...

    def among(self, select: str, values: Sequence[Any]) -> Iterator[Row]:
        """The rows of a SELECT that ends in `IN`, for so many values as there are."""
        ...

    def insert_all(self, table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows to a table."""
        ...

    def add_rollups(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows to rollups: those that are there already are summed up with them."""
        ...

    def joined(self, column: str) -> str:
        """An aggregate: the numbers of a group with commas between them."""
        ...

    def strung(self, column: str) -> str:
        """An aggregate: the bytes of a group one after the other."""
        ...

    def summed(self, column: str) -> str:
        """An aggregate: the histograms of a group, as `sum_in` takes them."""
        ...

    def sum_in(self, kept: Any) -> int:
        """The sum of histograms that `summed` gave."""
        ...

    def pattern(self, text: str) -> tuple[str, str]:
        """The sign and the parameter that compare with a text in which `*` is any text."""
        ...

    def kept_id(self, id: str) -> Any:
        """The id of a record as it is kept."""
        ...

    def shown_id(self, kept: Any) -> str:
        """The id that `kept_id` was given."""
        ...

    def prepare(self, days: Collection[int]) -> None:
        """Make room for records of these days, within the transaction."""
        ...

    def payloads_of(self, day: int) -> str:
        """The condition for payloads of a day, if they are apart."""
        ...

    def payloads_from(self, day: int) -> int:
        """The id after which those of a day begin."""
        ...

    def drop_day(self, before: int) -> tuple[int, int] | None:
        """Let go of the oldest day, if all of it is before a time, within the transaction.

        Gives how many records it had, and the time of the last; None if there is no such day, or
        days are not apart.
        """
        ...

    @property
    def shrinks_at_once(self) -> bool:
        """True if `size` is smaller as soon as records are gone; else only after `compact`."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """All of it or nothing, and nobody else meanwhile."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """One state for all parts of a question, whatever others write."""
        ...

    def told(self) -> AbstractContextManager[None]:
        """Errors of the engine as ours."""
        ...

    @property
    def size(self) -> int:
        """Bytes that hold something."""
        ...

    def compact(self) -> None:
        """See to it that `size` is without what was just let go of by record."""
        ...

    def vacuum(self) -> None:
        """Give back what holds nothing, as far as nobody is in the way."""
        ...

    def close(self) -> None:
        """Let go of the file or connection."""
        ...


class Numbers(ABC):
    """Numbers under names, in the table `meta`, for both engines."""

    @abstractmethod
    def row(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        """The first row of a SELECT."""

    @abstractmethod
    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run one statement; how many rows it changed."""

    def kept_number(self, name: str, default: int = 0) -> int:
        """A number that is kept under a name."""
        row = self.row("SELECT value FROM meta WHERE name = ?", (name,))
        return default if row is None else row[0]

    def keep_number(self, name: str, value: int) -> None:
        """Keep a number under a name, in place of what was there."""
        self.change(
            "INSERT INTO meta VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )


def rows_by_id(engine: Engine, columns: str, ids: Iterable[int | None]) -> dict[int, Any]:
    """Columns of the rows with these ids."""
    wanted = list({id_ for id_ in ids if id_ is not None})
    if not wanted:
        return {}
    found = engine.among(f"SELECT id, {columns} WHERE id IN", wanted)
    return {id_: rest for id_, *rest in found}
