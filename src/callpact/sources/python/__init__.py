"""Python functions and modules as tools."""
