"""The journal: every record in one write before its answer leaves."""
