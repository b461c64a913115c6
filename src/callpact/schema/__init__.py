"""JSON Schema as callpact uses it: check, convert, cast, strip, fit and hash; pure functions.

What a valid value never needs (fitting, hashing, property blocks) is imported on first use.
"""

from typing import TYPE_CHECKING

from callpact.lazy import lazy_names
from callpact.schema.bounds import SchemaLimits, schema_limits, set_schema_limits
from callpact.schema.compiled import CompiledSchema, compile_schema
from callpact.schema.issues.explain import check
from callpact.schema.json_types import Json, is_array, is_object
from callpact.schema.values import Change, is_json

if TYPE_CHECKING:
    from callpact.schema.fitting.conversion import Fitted, cast, convert, fit, repair, strip
    from callpact.schema.hashing import canonical_json, schema_hash
    from callpact.schema.properties import (
        PropertyArray,
        PropertyAsset,
        PropertyBoolean,
        PropertyComponent,
        PropertyContent,
        PropertyDate,
        PropertyEnum,
        PropertyGroup,
        PropertyInteger,
        PropertyNumber,
        PropertyString,
    )

__getattr__ = lazy_names(
    __name__,
    {
        "fitting.conversion": ("Fitted", "cast", "convert", "fit", "repair", "strip"),
        "hashing": ("canonical_json", "schema_hash"),
        "properties": (
            "PropertyArray",
            "PropertyAsset",
            "PropertyBoolean",
            "PropertyComponent",
            "PropertyContent",
            "PropertyDate",
            "PropertyEnum",
            "PropertyGroup",
            "PropertyInteger",
            "PropertyNumber",
            "PropertyString",
        ),
    },
)

__all__ = [
    "Change",
    "CompiledSchema",
    "Fitted",
    "Json",
    "PropertyArray",
    "PropertyAsset",
    "PropertyBoolean",
    "PropertyComponent",
    "PropertyContent",
    "PropertyDate",
    "PropertyEnum",
    "PropertyGroup",
    "PropertyInteger",
    "PropertyNumber",
    "PropertyString",
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
