"""Who calls over HTTP: bearer tokens and OAuth."""
