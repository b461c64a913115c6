"""A reader for JSON in text as models write it: one value, and every repair that it needed."""

from callpact.jsonreader.reader import read_json
from callpact.jsonreader.reading import Read, Repair

__all__ = [
    "Read",
    "Repair",
    "read_json",
]
