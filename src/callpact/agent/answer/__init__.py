"""An agent's final answer: its shape, how it is parsed, and what replaces it."""
