"""A tolerant JSON reader for the texts of models: returns one value and the list of repairs."""

from callpact.jsonreader.reader import read_json
from callpact.jsonreader.reading import ReadResult, Repair

__all__ = [
    "ReadResult",
    "Repair",
    "read_json",
]
