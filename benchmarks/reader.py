"""Guards: broken JSON is recovered more often than by any peer, never wrongly and never silently.

And reading costs no more than json-repair, on clean and on broken text of 1 KB to 1 MB. The cases
stand in `tests/data/malformed.json`; a peer that is not installed is told as missing.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import TypeAdapter

from callpact import OutputSchemaError, parse_answer
from callpact.agent import shape_of
from callpact.jsonreader import read_json
from callpact.jsonreader.reader import Unreadable
from measure import cpu, table

CASES = Path(__file__).parents[1] / "tests" / "data" / "malformed.json"
SUPPORT = Path(__file__).parents[1] / "tests" / "support"
SEED, ROUNDS = 18, 300
COLUMNS = ("right", "silent", "missed", "refused", "guessed", "WRONG")
SIZES = (1_000, 10_000, 100_000, 1_000_000)


class Outcome(NamedTuple):
    """What a parser gave, and whether it said that the text was not JSON as it stood."""

    value: Any
    told: bool


def _ours(text: str) -> Outcome:
    read = read_json(text)
    return Outcome(read.value, bool(read.repairs))


def _json_repair() -> Callable[[str], Outcome]:
    repair = import_module("json_repair").repair_json

    def parse(text: str) -> Outcome:
        value, log = repair(text, return_objects=True, logging=True)
        if value == "":  # Its way to say that there is no JSON.
            raise ValueError(text)
        return Outcome(value, bool(log))

    return parse


def _instructor() -> Callable[[str], Outcome]:
    try:
        extract = import_module("instructor.v2.core.json").extract_json_from_codeblock
    except ImportError:
        extract = import_module("instructor.utils").extract_json_from_codeblock
    return lambda text: Outcome(json.loads(extract(text)), told=False)


def _pydantic_ai() -> Callable[[str], Outcome]:
    strip = import_module("pydantic_ai._utils").strip_markdown_fences
    from_json = import_module("pydantic_core").from_json
    return lambda text: Outcome(from_json(strip(text)), told=False)


PEERS = {"json-repair": _json_repair, "instructor": _instructor, "pydantic-ai": _pydantic_ai}


def parsers() -> dict[str, Callable[[str], Outcome] | None]:
    """Every parser by name, None where it is not installed."""
    found: dict[str, Callable[[str], Outcome] | None] = {"callpact": _ours}
    for name, load in PEERS.items():
        try:
            found[name] = load()
        except ImportError:
            found[name] = None
    return found


def outcome(case: dict[str, Any], parse: Callable[[str], Outcome]) -> str:
    """How a parser did with a case: one of `COLUMNS`."""
    decided = "refused" not in case
    try:
        value, told = parse(case["text"])
    except (Unreadable, ValueError, RecursionError, TypeError, IndexError):
        return "missed" if decided else "refused"
    expected = case["value"] if decided else case.get("allowed", ...)
    if expected is ... or not _same(value, expected):
        return "WRONG"
    if not decided:
        return "guessed"
    return "right" if told or "repairs" not in case else "silent"


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def recovery() -> None:
    cases = json.loads(CASES.read_text("utf-8"))
    decided = sum("refused" not in case for case in cases)
    print(
        f"\n### {len(cases)} malformed texts: {decided} that say one thing, "
        f"{len(cases) - decided} that do not\n"
    )
    print(
        "right: the value, and that it was repaired. silent: the value, nothing said. missed: "
        "refused what says one thing. refused: rightly. guessed: one of several meanings. "
        "WRONG: a value that the text does not say.\n"
    )
    print("| parser | " + " | ".join(COLUMNS) + " |")
    print("| --- |" + " ---: |" * len(COLUMNS))
    for name, parse in parsers().items():
        if parse is None:
            print(f"| {name} | missing |" + " |" * (len(COLUMNS) - 1))
            continue
        counts = Counter(outcome(case, parse) for case in cases)
        print(f"| {name} | " + " | ".join(str(counts[column]) for column in COLUMNS) + " |")


def answers() -> None:
    """Texts in the manner of models, each with a schema: `tests/support/replies.py` makes them."""
    sys.path.append(str(SUPPORT))
    module: Any = import_module("replies")
    made = list(module.replies(SEED, ROUNDS))
    decided = sum(each.value is not module.NONE for each in made)
    print(
        f"\n### {len(made):,} answers with a schema: {decided:,} that say one value, "
        f"{len(made) - decided:,} that do not\n"
    )
    print("| reader | right | missed | refused | WRONG |\n| --- | ---: | ---: | ---: | ---: |")
    for name, read in _readers().items():
        counts = Counter(_judged(each, read, module.NONE) for each in made)
        cells = " | ".join(
            f"{counts[column]:,}" for column in ("right", "missed", "refused", "WRONG")
        )
        print(f"| {name} | {cells} |")


def _readers() -> dict[str, Callable[[str, Any], Any]]:
    """Readers of a text by a shape; each raises `ValueError` for a text that it does not take."""

    def ours(text: str, shape: Any) -> Any:
        try:
            return parse_answer(text, shape_of(shape), repair="safe").value
        except OutputSchemaError as error:
            raise ValueError from error

    if not parsers()["json-repair"]:
        return {"callpact": ours}
    repair = import_module("json_repair").repair_json

    def theirs(text: str, shape: Any) -> Any:
        return TypeAdapter(shape).validate_python(repair(text, return_objects=True))

    def last(text: str, shape: Any) -> Any:
        try:
            return theirs(text, shape)
        except ValueError:
            found = repair(text, return_objects=True)
        for value in reversed(cast("list[Any]", found) if isinstance(found, list) else []):
            with suppress(ValueError):
                return TypeAdapter(shape).validate_python(value)
        raise ValueError(text)

    return {"callpact": ours, "json-repair": theirs, "json-repair, last value that fits": last}


def _judged(reply: Any, read: Callable[[str, Any], Any], none: Any) -> str:
    try:
        value = read(reply.text, reply.shape)
    except (ValueError, RecursionError):
        return "refused" if reply.value is none else "missed"
    if reply.value is none:
        return "WRONG"
    return "right" if value == TypeAdapter(reply.shape).validate_python(reply.value) else "WRONG"


def _texts(size: int) -> dict[str, str]:
    item = {
        "name": "a user",
        "tags": ["a", "b"],
        "score": 1.37,
        "ok": True,
        "note": None,
        "text": "lorem ipsum dolor sit amet " * 2,
    }
    value = [{"id": n, **item} for n in range(max(size // 160, 1))]
    text = json.dumps(value)
    return {
        "clean": text,
        "fenced, prose around": f"Sure:\n```json\n{text}\n```\nDone.",
        "closing bracket missing": text[:-1],
        "trailing comma at the end": text[:-1] + ",]",
        "trailing comma in each object": text.replace('"}', '",}'),
        "as Python writes it": repr(value),
    }


def speed() -> None:
    peer = import_module("json_repair").repair_json if parsers()["json-repair"] else None
    for size in SIZES:
        rows: list[tuple[str, float, float, str]] = []
        for kind, text in _texts(size).items():
            functions: dict[str, Callable[[], object]] = {
                "callpact": lambda text=text: read_json(text, allow={"truncated"})
            }
            if peer:
                functions["json-repair"] = lambda text=text: peer(text, return_objects=True)
            taken = cpu(functions, seconds=0.02)
            base = taken.get("json-repair", taken["callpact"])
            rows.append((f"{kind}: callpact", taken["callpact"], taken["callpact"] / base, "≤ 1"))
            if peer:
                rows.append((f"{kind}: json-repair", base, 1.0, ""))
        table(f"Reading {size // 1_000} KB", rows)


def main() -> None:
    """All of them."""
    recovery()
    answers()
    speed()


if __name__ == "__main__":
    main()
