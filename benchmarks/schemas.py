"""Guards: a check costs what the validator costs; a cast of a valid value costs one check."""

from __future__ import annotations

import jsonschema_rs

from callpact import Catalog, Contract, Tool
from callpact.schema import cast, check, compile_schema, fit
from cases import IN, OUT, PAGE, page, page_with
from measure import cpu, table

COUNT = 10_000


def checks() -> None:
    value, compiled = page(), compile_schema(PAGE)
    bare = jsonschema_rs.validator_for(PAGE, offline=True).is_valid
    taken = cpu(
        {
            "bare": lambda: bare(value),
            "check": lambda: check(compiled, value),
            "twin": lambda: compiled.fits(value),
            "fit": lambda: fit(compiled, value),
        },
        seconds=0.2,
    )
    base = taken["bare"]
    table(
        "A valid value of 1 MB",
        [
            ("jsonschema-rs is_valid", base, 1.0, ""),
            ("check", taken["check"], taken["check"] / base, "≤ 1.3"),
            ("closed twin", taken["twin"], taken["twin"] / base, ""),
            ("fit (convert, cast, strip)", taken["fit"], taken["fit"] / base, "the twin"),
        ],
    )
    for wrong in (1, 7_000):
        broken = page_with(wrong)
        taken = cpu(
            {
                "check": lambda broken=broken: check(compiled, broken),
                "cast": lambda broken=broken: cast(compiled, broken),
                "fit": lambda broken=broken: fit(compiled, broken),
            },
            seconds=0.3,
        )
        base = taken["check"]
        table(
            f"A value of 1 MB with {wrong:,} of 7,000 items wrong",
            [
                ("check", base, 1.0, ""),
                ("cast", taken["cast"], taken["cast"] / base, "≤ 8"),
                ("fit (convert, cast, strip)", taken["fit"], taken["fit"] / base, "≤ 8"),
            ],
        )


async def _handler(arguments, _context):
    return arguments


def many_tools() -> None:
    """Every tool with schemas of its own, and all with the same; both sides keep what they make."""
    own = [
        ({**IN, "description": f"In {i}"}, {**OUT, "description": f"Out {i}"}) for i in range(COUNT)
    ]

    def bare():
        return [
            (
                jsonschema_rs.validator_for(i, offline=True),
                jsonschema_rs.validator_for(o, offline=True),
            )
            for i, o in own
        ]

    def tools(schemas):
        return Catalog(
            Tool(
                id=f"many.tool_{n}",
                description="One of many.",
                contract=Contract(input=given, output=gives),
                handler=_handler,
            )
            for n, (given, gives) in enumerate(schemas)
        )

    taken = cpu(
        {"bare": bare, "own": lambda: tools(own), "same": lambda: tools([(IN, OUT)] * COUNT)},
        seconds=0.01,
    )
    base = taken["bare"]
    table(
        f"{COUNT:,} tools made from ready schemas",
        [
            (f"{2 * COUNT:,} bare compilations", base, 1.0, ""),
            ("tools with schemas of their own, catalog", taken["own"], taken["own"] / base, "≤ 3"),
            ("tools with the same schemas, catalog", taken["same"], taken["same"] / base, ""),
        ],
    )


def main() -> None:
    """All of them."""
    checks()
    many_tools()
