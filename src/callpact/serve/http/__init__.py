"""HTTP in front of the doors: framing, guard, sessions, the server itself."""
