"""FlowMCP schema files as a source: read without being run, checked, and called."""
