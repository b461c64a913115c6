"""Hot reload: changed sources are read again while their tools are served.

Running calls finish on the version that they began with, whose source is closed after the last one.
Starts no server and does not know MCP.
"""
