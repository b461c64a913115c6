"""Requests and responses of a FlowMCP tool, and the keys that a request may carry."""
