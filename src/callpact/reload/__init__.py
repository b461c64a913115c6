"""Hot reload: sources that changed on disk are read again while their tools are served.

Calls under way end on the version that they began with, whose source is closed after the last one.
Starts no server and does not know MCP.
"""
