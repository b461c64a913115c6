"""The plain HTTP door: every tool is an endpoint, on the port of the MCP door and behind its guard."""
