"""Models behind one protocol: real ones by an extra, scripted ones for tests."""
