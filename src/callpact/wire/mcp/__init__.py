"""MCP's wire form of tools, results, resources and prompts, as plain JSON without the SDK."""
