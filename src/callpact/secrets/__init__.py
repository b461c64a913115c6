"""Keys for upstreams, which source is granted which of them, and the one `Masker` that hides them."""
