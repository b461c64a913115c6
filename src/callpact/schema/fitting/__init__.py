"""Fit a value to its schema: `convert`, `cast` and `strip`, by the kind of each subschema."""
