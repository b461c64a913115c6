"""Published contracts: compared with proofs, linted, and written as reference pages and types.

Runs no tool and opens no source.
"""

from typing import TYPE_CHECKING

from callpact.lazy import lazy_names

if TYPE_CHECKING:
    from callpact.contracts.diff import CatalogDiff, ContractChange, diff_catalogs
    from callpact.contracts.flowmcp_bumps import (
        FLOWMCP_BUMPS,
        BumpRule,
        is_flowmcp,
        with_flowmcp_bumps,
    )
    from callpact.contracts.lint import LintFinding, lint_catalog, lint_tool
    from callpact.contracts.lint_rules import LINT_RULES, LintRule
    from callpact.contracts.proof import CoverProof, Prover
    from callpact.contracts.reference_pages import ReferencePage, write_pages
    from callpact.contracts.types.named_schemas import NamedSchema, name_schemas
    from callpact.contracts.types.pydantic_types import write_pydantic
    from callpact.contracts.types.schema_bundle import bundle_schemas
    from callpact.contracts.types.typescript_types import write_typescript
    from callpact.contracts.types.zod_types import write_zod

__getattr__ = lazy_names(
    __name__,
    {
        "diff": ("CatalogDiff", "ContractChange", "diff_catalogs"),
        "flowmcp_bumps": ("FLOWMCP_BUMPS", "BumpRule", "is_flowmcp", "with_flowmcp_bumps"),
        "lint": ("LintFinding", "lint_catalog", "lint_tool"),
        "lint_rules": ("LINT_RULES", "LintRule"),
        "types.named_schemas": ("NamedSchema", "name_schemas"),
        "proof": ("CoverProof", "Prover"),
        "types.pydantic_types": ("write_pydantic",),
        "reference_pages": ("ReferencePage", "write_pages"),
        "types.schema_bundle": ("bundle_schemas",),
        "types.typescript_types": ("write_typescript",),
        "types.zod_types": ("write_zod",),
    },
)

__all__ = [
    "FLOWMCP_BUMPS",
    "LINT_RULES",
    "BumpRule",
    "CatalogDiff",
    "ContractChange",
    "CoverProof",
    "LintFinding",
    "LintRule",
    "NamedSchema",
    "Prover",
    "ReferencePage",
    "bundle_schemas",
    "diff_catalogs",
    "is_flowmcp",
    "lint_catalog",
    "lint_tool",
    "name_schemas",
    "with_flowmcp_bumps",
    "write_pages",
    "write_pydantic",
    "write_typescript",
    "write_zod",
]
