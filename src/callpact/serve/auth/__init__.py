"""Authentication of callers over HTTP: bearer tokens and OAuth."""
