"""JSON Schema as callpact uses it: check, convert, cast, strip, fit and hash; pure functions.

What a valid value never needs (fitting, hashing) is imported on first use.
"""

from typing import TYPE_CHECKING, Any

from callpact.errors import Issue
from callpact.schema.bounds import SchemaLimits, schema_limits, set_schema_limits
from callpact.schema.compiled import CompiledSchema, compile_schema
from callpact.schema.issues.explain import check
from callpact.schema.json_types import Json, is_array, is_object
from callpact.schema.values import Change, is_json

if TYPE_CHECKING:
    from callpact.schema.fit.conversion import Fitted, cast, convert, fit, repair, strip
    from callpact.schema.hashing import canonical_json, schema_hash

_LAZY = {
    "Fitted": "callpact.schema.fit.conversion",
    "canonical_json": "callpact.schema.hashing",
    "cast": "callpact.schema.fit.conversion",
    "convert": "callpact.schema.fit.conversion",
    "fit": "callpact.schema.fit.conversion",
    "repair": "callpact.schema.fit.conversion",
    "schema_hash": "callpact.schema.hashing",
    "strip": "callpact.schema.fit.conversion",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'callpact.schema' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


__all__ = [
    "Change",
    "CompiledSchema",
    "Fitted",
    "Issue",
    "Json",
    "SchemaLimits",
    "canonical_json",
    "cast",
    "check",
    "compile_schema",
    "convert",
    "fit",
    "is_array",
    "is_json",
    "is_object",
    "repair",
    "schema_hash",
    "schema_limits",
    "set_schema_limits",
    "strip",
]
