"""Wire forms of results, failures and definitions: pure functions, one module per format."""

from callpact.wire import flowmcp, paging, plain, terminal

__all__ = ["flowmcp", "paging", "plain", "terminal"]
