"""Doors: what lets others call the tools of a runtime. A door never imports a source."""
