"""The commands about contracts as a whole."""
