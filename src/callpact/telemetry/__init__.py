"""Logs, metrics and traces of calls."""
