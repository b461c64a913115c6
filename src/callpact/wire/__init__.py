"""Renderings: one result, many wires. Pure functions, one file per format."""
