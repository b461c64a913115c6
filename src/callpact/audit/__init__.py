"""The audit log: one record for each call, written before its result leaves, and queries over it.

`record_calls` puts calls on record; `open_store` opens a store, whose `log`, `find`, `rates`, `trend`
and `causes` query them; `drift_of`, `advice_of` and `replay_of` compare them with contracts. Nothing
here runs a tool, and the runtime does not know of it. Each name is imported on first use.
"""

from typing import TYPE_CHECKING

from callpact.lazy import lazy_names

if TYPE_CHECKING:
    from callpact.audit.analysis.advice import Advice, advice_of
    from callpact.audit.analysis.drift import Drift, drift_of
    from callpact.audit.analysis.replay import Replay, replay_of
    from callpact.audit.analysis.retry_chains import Repairs, repairs_of, retry_chain
    from callpact.audit.journal.health import Health, health_of
    from callpact.audit.journal.recorder import Recorder
    from callpact.audit.log import LogPlace, open_store, place_of, record_calls
    from callpact.audit.pages import Comparison, compare, pages_of, waiting
    from callpact.audit.record import Note, Payload, Record
    from callpact.audit.store import Cause, Filter, GroupBy, Rate, Store, Trend
    from callpact.audit.store.retention import Held, held_retention

__getattr__ = lazy_names(
    __name__,
    {
        "analysis.advice": ("Advice", "advice_of"),
        "analysis.drift": ("Drift", "drift_of"),
        "analysis.replay": ("Replay", "replay_of"),
        "analysis.retry_chains": ("Repairs", "repairs_of", "retry_chain"),
        "journal.health": ("Health", "health_of"),
        "journal.recorder": ("Recorder",),
        "log": ("LogPlace", "open_store", "place_of", "record_calls"),
        "pages": ("Comparison", "compare", "pages_of", "waiting"),
        "record": ("Note", "Payload", "Record"),
        "store": ("Cause", "Filter", "GroupBy", "Rate", "Store", "Trend"),
        "store.retention": ("Held", "held_retention"),
    },
)

__all__ = [
    "Advice",
    "Cause",
    "Comparison",
    "Drift",
    "Filter",
    "GroupBy",
    "Health",
    "Held",
    "LogPlace",
    "Note",
    "Payload",
    "Rate",
    "Record",
    "Recorder",
    "Repairs",
    "Replay",
    "Store",
    "Trend",
    "advice_of",
    "compare",
    "drift_of",
    "health_of",
    "held_retention",
    "open_store",
    "pages_of",
    "place_of",
    "record_calls",
    "repairs_of",
    "replay_of",
    "retry_chain",
    "waiting",
]
