"""Violations of a schema as issues: which rule, where, in which words, and which places are secret."""
