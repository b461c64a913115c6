"""The hooks of a FlowMCP file around one request, and the hosts that they may reach."""
