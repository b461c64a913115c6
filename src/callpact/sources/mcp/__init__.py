"""Tools of other MCP servers, under contract."""
