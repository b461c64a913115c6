"""Stores of records: the protocol, and its two engines.

`parquet.py` keeps files in the folder of a log and queries them with DuckDB; `postgres.py` keeps
a table that several machines share. `queries.py` has the SQL of both. Nothing here writes the
journal.
"""

from callpact.audit.store.interface import (
    MAX_ROWS,
    Cause,
    Filter,
    GroupBy,
    Moved,
    Noted,
    Overtaken,
    Rate,
    Span,
    Step,
    Store,
    Stored,
    Trend,
)

__all__ = [
    "MAX_ROWS",
    "Cause",
    "Filter",
    "GroupBy",
    "Moved",
    "Noted",
    "Overtaken",
    "Rate",
    "Span",
    "Step",
    "Store",
    "Stored",
    "Trend",
]
