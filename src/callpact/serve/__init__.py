"""Doors: servers through which others call the tools of a runtime. A door imports no source."""

DEFAULT_TIMEOUT = 60.0
"""Seconds after which a call that came through a door is given up."""
