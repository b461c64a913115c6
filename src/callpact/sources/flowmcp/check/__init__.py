"""Check FlowMCP files against every rule of their specification."""
