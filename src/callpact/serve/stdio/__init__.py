"""The MCP door over standard input and output."""
