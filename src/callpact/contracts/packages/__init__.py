"""Published versions of contracts: their form, their folder, and tools held to them."""
