"""Requests and responses of a FlowMCP tool."""
