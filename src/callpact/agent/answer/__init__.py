"""An agent's final answer: its shape, its parser, and its fallback."""
