"""The call protocol of seed 001: events, the bus, pending requests, and the call handler."""

from callpact.protocol.bus import Bus, Listener, LocalBus
from callpact.protocol.events import (
    CALL_EVENT_SCHEMAS,
    MAX_EVENT_BYTES,
    MAX_ID_LENGTH,
    CallAborted,
    CallCompleted,
    CallEvent,
    CallFailed,
    CallRequested,
    CallResponded,
    decode_event,
    encode_event,
    read_event,
    write_event,
)
from callpact.protocol.handler import build_call_handler
from callpact.protocol.pending import PendingRequestMap

__all__ = [
    "CALL_EVENT_SCHEMAS",
    "MAX_EVENT_BYTES",
    "MAX_ID_LENGTH",
    "Bus",
    "CallAborted",
    "CallCompleted",
    "CallEvent",
    "CallFailed",
    "CallRequested",
    "CallResponded",
    "Listener",
    "LocalBus",
    "PendingRequestMap",
    "build_call_handler",
    "decode_event",
    "encode_event",
    "read_event",
    "write_event",
]
