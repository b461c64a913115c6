"""Guards: an index of 10,000 tools is filled in a second, and a search of them takes milliseconds.

The words of the tools are drawn as in real texts: few are frequent, most are rare.
"""

from __future__ import annotations

import itertools
import random
import sqlite3
from collections.abc import Iterator

from callpact import Catalog, Contract, Tool
from callpact.discovery import ToolIndex
from measure import cpu, table

COUNT = 10_000
_BEGINNINGS = "al ber cor dan el fi gor hu in jo ka lum mor ne or pa qui ros sa ti".split()  # noqa: SIM905 - syllables
_ENDS = "ance bit cor dex ent form gate hold ing ject key line mark net op port rate set".split()  # noqa: SIM905 - syllables
_WORDS = ["".join(parts) for parts in itertools.product(_BEGINNINGS, _ENDS, ("", *_ENDS[:9]))]
_WEIGHTS = list(itertools.accumulate(1 / (rank + 5) for rank in range(len(_WORDS))))


async def _handler(arguments, _context):
    return arguments


def _tools() -> Iterator[Tool]:
    chance = random.Random(7)

    def words(count: int) -> list[str]:
        return chance.choices(_WORDS, cum_weights=_WEIGHTS, k=count)

    for number in range(COUNT):
        first, second, third = words(3)
        properties = {
            name: {"type": "string", "description": f"The {' '.join(words(7))}."}
            for name in words(4)
        }
        yield Tool(
            id=f"{_WORDS[number % 150]}.get{first.title()}{second.title()}{number}",
            description=f"Get the {first} {second} of a {third}. Returns {' '.join(words(25))}.",
            contract=Contract(input={"type": "object", "properties": properties}),
            handler=_handler,
            title=f"{first} {second}".title(),
            tags=words(2),
        )


def _filled(catalog: Catalog) -> ToolIndex:
    index = ToolIndex(catalog)
    index.search("get")
    return index


def filling(catalog: Catalog) -> None:
    rows = [(tool.id, tool.description, str(tool.contract.input)) for tool in catalog]

    def bare() -> None:
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE VIRTUAL TABLE t USING fts5(a, b, c, tokenize='porter')")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        connection.close()

    taken = cpu({"bare": bare, "filled": lambda: _filled(catalog)}, seconds=0.01)
    ratio = taken["filled"] / taken["bare"]
    table(
        f"An index of {COUNT:,} tools",
        [
            ("SQLite alone, the texts as they are", taken["bare"], 1.0, ""),
            ("ToolIndex, filled by its first search", taken["filled"], ratio, "about 1 s"),
        ],
    )


def searching(catalog: Catalog) -> None:
    index = _filled(catalog)
    texts = [f"{tool.id} {tool.title} {tool.description}".lower() for tool in catalog]
    rare, usual, often = _WORDS[1500], _WORDS[150], _WORDS[3]
    queries = {
        "one rare word": rare,
        "a question of five words": f"what is the {rare} {usual} of {_WORDS[700]} and {_WORDS[40]}",
        "with a frequent word": f"{often} {rare}",
        "a word that every tool holds": "get",
        "no word: the list by id": "",
    }
    functions = {
        "scan": lambda: sum(rare in text for text in texts),
        **{name: (lambda query=query: index.search(query)) for name, query in queries.items()},
    }
    taken = cpu(functions)
    base = taken["scan"]
    told = {name: f"{name} ({index.search(query).total:,} hits)" for name, query in queries.items()}
    table(
        f"A search of {COUNT:,} tools",
        [
            ("a scan of all texts for one word, unranked", base, 1.0, ""),
            *((told[name], taken[name], taken[name] / base, "some ms") for name in queries),
        ],
    )


def main() -> None:
    """All of them."""
    catalog = Catalog(_tools())
    filling(catalog)
    searching(catalog)


if __name__ == "__main__":
    main()
