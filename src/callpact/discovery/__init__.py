"""Find tools in a large catalog: a search index, and three tools that use it."""
