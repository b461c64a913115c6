"""`callpact install`: the configuration files of MCP clients."""
