"""The audit log: one record for each call, kept before its answer leaves, and the answers from it.

`recorder.py` is the observer that writes records into a journal (`journal.py`); a compactor moves
them into a store, whose queries answer what was called, what was refused and why. Nothing here
runs a tool, and the runtime does not know of it.

The names below are all that a program needs: `record_calls` puts calls on record, `open_store` gives
a store, whose `log`, `find`, `rates`, `trend` and `causes` answer for them, and the functions put
that before contracts. Each is imported on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callpact.audit.analysis.advice import Advice, advice_of
    from callpact.audit.analysis.drift import Drift, drift_of
    from callpact.audit.analysis.replay import Replay, replay_of
    from callpact.audit.analysis.retry_chains import Repairs, repairs_of, retry_chain
    from callpact.audit.journal.health import Health
    from callpact.audit.journal.health import health as health_of
    from callpact.audit.journal.recorder import Recorder
    from callpact.audit.log import Place, open_store, place_of
    from callpact.audit.log import auditing as record_calls
    from callpact.audit.pages import Comparison, compare, pages_of, waiting
    from callpact.audit.record import Note, Payload, Record
    from callpact.audit.store import Cause, Filter, GroupBy, Rate, Store, Trend
    from callpact.audit.store.retention import Held
    from callpact.audit.store.retention import held as held_retention

_LAZY = {
    "Advice": "advice.Advice",
    "Cause": "store.Cause",
    "Comparison": "reading.Comparison",
    "Drift": "drift.Drift",
    "Filter": "store.Filter",
    "GroupBy": "store.GroupBy",
    "Health": "health.Health",
    "Held": "retention.Held",
    "Note": "record.Note",
    "Payload": "record.Payload",
    "Place": "auditing.Place",
    "Rate": "store.Rate",
    "Record": "record.Record",
    "Recorder": "recorder.Recorder",
    "Repairs": "chains.Repairs",
    "Replay": "replay.Replay",
    "Store": "store.Store",
    "Trend": "store.Trend",
    "advice_of": "advice.advice_of",
    "compare": "reading.compare",
    "drift_of": "drift.drift_of",
    "health_of": "health.health",
    "held_retention": "retention.held",
    "open_store": "auditing.open_store",
    "pages_of": "reading.pages_of",
    "place_of": "auditing.place_of",
    "record_calls": "auditing.auditing",
    "repairs_of": "chains.repairs_of",
    "replay_of": "replay.replay_of",
    "retry_chain": "chains.retry_chain",
    "waiting": "reading.waiting",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'callpact.audit' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _LAZY[name].partition(".")
    value = getattr(import_module(f"callpact.audit.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Advice",
    "Cause",
    "Comparison",
    "Drift",
    "Filter",
    "GroupBy",
    "Health",
    "Held",
    "Note",
    "Payload",
    "Place",
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
