"""Keys for upstreams, their grants to sources, and the one `Masker` that hides them."""
