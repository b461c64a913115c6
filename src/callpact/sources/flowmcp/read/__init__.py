"""Read FlowMCP files: data and code as text, without running any of it."""
