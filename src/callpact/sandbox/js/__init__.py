"""JavaScript that runs inside the guest, and the data that it needs."""
