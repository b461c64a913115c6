"""JSON Schema as callpact uses it: check, convert, cast, strip, fit and hash; pure functions."""

from callpact.errors import Issue
from callpact.schema.compiled import CompiledSchema, compile_schema, is_json
from callpact.schema.fitting import Fitted, cast, convert, fit, strip
from callpact.schema.hashing import canonical_json, schema_hash
from callpact.schema.issues import check
from callpact.schema.nodes import Change

__all__ = [
    "Change",
    "CompiledSchema",
    "Fitted",
    "Issue",
    "canonical_json",
    "cast",
    "check",
    "compile_schema",
    "convert",
    "fit",
    "is_json",
    "schema_hash",
    "strip",
]
