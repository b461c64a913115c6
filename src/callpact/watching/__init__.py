"""Hot reload: sources that changed on disk are read again while their tools are served.

Calls under way end on the version that they began with, and its source is closed then. Clients are
told only of what they see differently. No server is started here, and nothing is known of MCP.
"""
