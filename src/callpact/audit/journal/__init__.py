"""The journal: every record in one write before the call's result leaves."""
