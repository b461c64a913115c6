"""A tool that `test_trigger_tool_change` replaces: each change is a generation."""

from __future__ import annotations

from callpact import tool


@tool(namespace="test")
def generation_1() -> str:
    """Be there until the next generation is."""
    return "generation_1"
