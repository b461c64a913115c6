"""Keys for upstreams, their grants to sources, and the one `Masker` that hides them."""

from callpact.secrets.keys import AllSecrets, Secrets
from callpact.secrets.masker import MASK, Masker

__all__ = ["MASK", "AllSecrets", "Masker", "Secrets"]
