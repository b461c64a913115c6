"""Every rule of the seeds, as a row: what it says, and what became of it.

`held` rows are proved by at least one test that names them with `@pytest.mark.requirement(id)`;
`divergent` ones too, with the ruling in `note`; `deferred` ones say what they wait for. The rows of
a seed stand in `seeds/seed_NNN.py`, in its order: `(id, sentence)`, `(id, sentence, status, note)`,
or `{note: {id: sentence}}` for those that wait for the same thing. Rules of FlowMCP (000 and 002)
are held by the profile `strict`; what `compat` takes instead is a warning, and tried beside them.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

Status = Literal["held", "divergent", "deferred"]
_SEEDS = Path(__file__).parent / "seeds"


class Requirement(NamedTuple):
    """One MUST, SHOULD, rule or table row of a seed, in short words."""

    id: str
    sentence: str
    status: Status = "held"
    note: str = ""

    @property
    def seed(self) -> str:
        """The seed's number, as in `seeds/`."""
        return self.id.partition(".")[0]


def _rows(path: Path) -> Iterator[Requirement]:
    for row in runpy.run_path(str(path))["ROWS"]:
        if isinstance(row, tuple):
            yield Requirement(*row)
            continue
        for note, waiting in row.items():
            for key, sentence in waiting.items():
                yield Requirement(key, sentence, "deferred", note)


REQUIREMENTS: tuple[Requirement, ...] = tuple(
    row for path in sorted(_SEEDS.glob("seed_*.py")) for row in _rows(path)
)
