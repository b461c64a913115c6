"""A reader for JSON in text as models write it: one value, and every repair that it needed."""
