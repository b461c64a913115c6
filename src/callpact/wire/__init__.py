"""Wire forms of results, failures and definitions: pure functions, one module per format."""
