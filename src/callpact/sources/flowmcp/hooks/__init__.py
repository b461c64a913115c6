"""The hooks of a FlowMCP file around one request, and what they may reach."""
