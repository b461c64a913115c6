"""The HTTP server of the doors: framing, guard, sessions."""
