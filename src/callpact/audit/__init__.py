"""The audit log: one record for each call, kept before its answer leaves, and what it answers.

`recorder.py` is the observer that writes records into a journal (`journal.py`); an indexer moves
them into a store, whose queries answer what was called, what was refused and why. Nothing here
runs a tool, and the runtime does not know of it.
"""
