"""Records as a busy server leaves them, and the answers about them in plain Python.

`records` draws calls of some tools by some callers over some days: most give a result, some are
refused for a few causes, one upstream has begun to send something else. `naive_*` say what a store
has to answer, from the list alone.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from callpact.audit import Note, Record
from callpact.audit.record import error_key, payload_of
from callpact.audit.store import Cause, Filter, Store, Trend

HOUR = 3_600_000
DAY = 24 * HOUR
BEGIN = 1_788_220_800_000
"""A midnight (UTC)."""
_VENDORS = ("coingecko", "shop", "weather", "mail", "geo")
_VERBS = ("search", "price", "list", "create", "history", "status")
_CAUSES = (
    # Gate, code, path, rule, what is said.
    ("input", "schema_validation_failed", "/limit", "maximum", "limit must be ≤ 50"),
    ("input", "schema_validation_failed", "/items/3/id", "type", "id must be a string"),
    ("access", "access_denied", None, None, "You may not use this tool"),
    ("find", "tool_not_found", None, None, "There is no such tool"),
    ("handler", "upstream_error", None, None, "the upstream answered 503"),
    ("handler", "timeout", None, None, "no answer before the deadline"),
    ("output", "output_validation_failed", "/price", "type", "price must be a number"),
)
_DRIFT = Note("type", "/items/0/price", "price must be a number, got a string")

_CLIENTS = ("claude-code 2.1.0", "cursor 1.4", "")
TEXT_FIELDS = (
    *("tool", "namespace", "caller", "client", "gate", "code", "key", "version", "contract", "via"),
)
"""What a filter compares texts of."""


def records(
    count: int,
    *,
    seed: int = 7,
    begin: int = BEGIN,
    days: float = 3,
    tools: int = 12,
    callers: int = 6,
    payloads: bool = True,
) -> Iterator[Record]:
    """So many records, in the order of their time."""
    chance = random.Random(seed)
    names = [
        f"{_VENDORS[n % len(_VENDORS)]}.{_VERBS[n // len(_VENDORS) % len(_VERBS)]}"
        + (f"{n // 30}" if n >= 30 else "")
        for n in range(tools)
    ]
    people = [None, *(f"{'agent' if n % 3 else 'script'}-{n}" for n in range(1, callers))]
    step = days * DAY / max(1, count)
    weights = [1 / (rank + 2) for rank in range(tools)]
    caller_weights = [1 / (rank + 2) for rank in range(callers)]
    for number in range(count):
        [tool] = chance.choices(names, weights)
        [caller] = chance.choices(people, caller_weights)
        yield one(
            chance,
            number,
            at=begin + int(number * step) + chance.randrange(int(step) + 1),
            tool=tool,
            caller=caller,
            version="1.1.0" if number > count * 0.6 else "1.0.0",
            payloads=payloads,
        )


def one(
    chance: random.Random,
    number: int,
    *,
    at: int,
    tool: str,
    caller: str | None,
    version: str,
    payloads: bool = True,
) -> Record:
    """One record; its id is made of its number."""
    common: dict[str, Any] = {
        "id": uuid(number, chance),
        "at": at,
        "ms": round(chance.lognormvariate(3 + len(tool) % 3, 0.7), 3),
        "tool": tool,
        "kind": "query",
        "version": version,
        "contract": f"{abs(hash_of(tool, version)):064x}",
        "policy": "warn",
        "caller": caller,
        # Who has no name uses any, the others one each.
        "client": _CLIENTS[(len(tool) if caller is None else int(caller[-1])) % 3],
        "via": ("mcp 2026-07-28", "http", "")[len(caller or "") % 3],
        "input": payload_of(_input(chance)) if payloads else None,
    }
    if chance.random() < 0.12:
        gate, code, path, rule, message = chance.choice(_CAUSES)
        if path == "/limit":
            message += f", got {chance.randrange(51, 200)}"
        issues = (Note(rule, path, message),) if rule and path else ()
        return Record(
            **common,
            gate=gate,
            code=code,
            path=path,
            message=message,
            key=error_key(code, path, rule),
            issues=issues,
        )
    drifts = tool.endswith("price") and version == "1.1.0" and chance.random() < 0.3
    return Record(
        **common,
        source="http",
        status=200,
        warnings=(_DRIFT,) if drifts else (),
        changes=(Note("replaced", "/items/1/price"),) if drifts and number % 2 else (),
        output=payload_of(_output(chance)) if payloads else None,
    )


def uuid(number: int, chance: random.Random) -> str:
    """An id as the runtime gives them: a prefix of the process and a counter."""
    process = ("1f0c9a2e-77b1-4c3d-8e5f", "9b2d4f60-0a1c-4d2e-8f3a")[chance.random() < 0.5]
    return f"{process}-{10**11 + number}"


def hash_of(*parts: str) -> int:
    """A number that is the same in every process."""
    return int.from_bytes("/".join(parts).encode()[-8:], "little")


def _input(chance: random.Random) -> bytes:
    """About 100 bytes; some are sent again and again."""
    query = f"running shoes for wide feet, size {chance.randrange(400)}"
    given = {"query": query, "limit": chance.randrange(1, 60), "sort": "price", "in_stock": True}
    return orjson.dumps(given)


def _output(chance: random.Random) -> bytes:
    """About 500 bytes, hardly ever the same."""
    items = [
        {"id": chance.randrange(10**6), "name": "a thing to buy", "price": chance.random() * 100}
        for _ in range(chance.randrange(3, 13))
    ]
    return orjson.dumps({"items": items, "total": len(items)})


def fits(record: Record, where: Filter) -> bool:
    """What a filter means, from its words."""
    if where.since is not None and record.at < where.since:
        return False
    if where.until is not None and record.at >= where.until:
        return False
    if where.outcome is not None and record.is_error != (where.outcome == "failed"):
        return False
    return all(matches(getattr(record, name), getattr(where, name)) for name in TEXT_FIELDS)


def matches(value: str | None, wanted: str | None) -> bool:
    """A text as a filter wants it; `*` stands for any text, what is not there is the empty one."""
    if wanted is None:
        return True
    pattern = ".*".join(re.escape(part) for part in wanted.split("*"))
    return re.fullmatch(pattern, value or "", re.DOTALL) is not None


def naive_log(kept: Iterable[Record], where: Filter) -> list[Record]:
    """All that fit, the newest first."""
    return sorted((r for r in kept if fits(r, where)), key=lambda r: (r.at, r.id), reverse=True)


def naive_rates(kept: Iterable[Record], where: Filter, by: str) -> dict[str, tuple[Any, ...]]:
    """For each group: calls, failed, rejected, warned, and the true quantiles."""
    groups: defaultdict[str, list[Record]] = defaultdict(list)
    for record in kept:
        if fits(record, where):
            group = record.at // HOUR * HOUR if by == "hour" else getattr(record, by) or ""
            groups[str(group)].append(record)
    return {
        group: (
            len(of),
            sum(r.gate is not None for r in of),
            sum(r.gate in {"find", "access", "input"} for r in of),
            sum(r.gate is None and bool(r.warnings) for r in of),
            *(quantile([r.ms for r in of], share) for share in (0.5, 0.95, 0.99)),
        )
        for group, of in groups.items()
    }


def naive_trend(fitting: Iterable[Record], by: str, trend: Trend) -> dict[str, list[int]]:
    """Calls by group and span, of those that are not before the first."""
    latest = max(record.at for record in fitting)
    number = (latest - trend.begin) // trend.span + 1
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * number)
    for record in fitting:
        if record.at >= trend.begin:
            group = record.at // HOUR * HOUR if by == "hour" else getattr(record, by) or ""
            counts[str(group)][(record.at - trend.begin) // trend.span] += 1
    return counts


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that this share of all does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def naive_causes(kept: Sequence[Record], where: Filter) -> list[Cause]:
    """Error keys of tools, the commonest first."""
    everything = Filter(
        since=where.since,
        until=where.until,
        tool=where.tool,
        namespace=where.namespace,
        caller=where.caller,
        version=where.version,
        contract=where.contract,
        client=where.client,
        via=where.via,
    )
    of = Counter(r.tool for r in kept if fits(r, everything))
    causes: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in naive_log(kept, where):
        if record.key is not None:
            causes[record.tool, record.key].append(record)
    told: list[Cause] = []
    for (tool, key), those in causes.items():
        messages = [record.message or "" for record in those]
        counts = (len(those), of[tool], those[-1].at, those[0].at)
        told.append(Cause(tool, key, messages[0], *counts, min(messages), max(messages)))
    return sorted(told, key=lambda cause: (-cause.calls, cause.tool, cause.key))


def counted(store: Store) -> dict[str, int]:
    """Calls by tool, as a store counts them."""
    return {rate.group: rate.calls for rate in store.rates(Filter(), "tool")}


def naive(kept: Iterable[Record]) -> dict[str, int]:
    """Calls by tool, counted one by one."""
    return {group: counts[0] for group, counts in naive_rates(kept, Filter(), "tool").items()}
