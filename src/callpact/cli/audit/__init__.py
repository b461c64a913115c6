"""`callpact audit` and `callpact replay`."""
