"""Build Tools from checked FlowMCP files: parameters, requests, responses, keys."""
