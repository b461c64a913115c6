"""Logs, metrics and traces of calls."""

from typing import TYPE_CHECKING

from callpact.lazy import lazy_names

if TYPE_CHECKING:
    from callpact.telemetry.logs import Logs, configure
    from callpact.telemetry.metrics import Metrics
    from callpact.telemetry.tracing import Telemetry, observing

__getattr__ = lazy_names(
    __name__,
    {
        "logs": ("Logs", "configure"),
        "metrics": ("Metrics",),
        "tracing": ("Telemetry", "observing"),
    },
)

__all__ = [
    "Logs",
    "Metrics",
    "Telemetry",
    "configure",
    "observing",
]
