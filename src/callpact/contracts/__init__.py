"""Published contracts: two catalogs compared, with proofs of compatibility.

Runs no tool and opens no source.
"""

from typing import TYPE_CHECKING

from callpact.lazy import lazy_names

if TYPE_CHECKING:
    from callpact.contracts.diff import CatalogDiff, ContractChange, diff_catalogs
    from callpact.contracts.proof import CoverProof, Prover

__getattr__ = lazy_names(
    __name__,
    {
        "diff": ("CatalogDiff", "ContractChange", "diff_catalogs"),
        "proof": ("CoverProof", "Prover"),
    },
)

__all__ = [
    "CatalogDiff",
    "ContractChange",
    "CoverProof",
    "Prover",
    "diff_catalogs",
]
