"""`callpact ask` and `callpact parse`."""
