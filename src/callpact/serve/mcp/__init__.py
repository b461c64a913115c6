"""The MCP door on the official SDK."""
