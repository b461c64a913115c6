"""A prompt that `test_trigger_prompt_change` replaces: each change is a generation."""

from __future__ import annotations

from callpact import prompt


@prompt(namespace="test", name="prompt_generation_1")
def changing() -> str:
    """Be there until the next generation is."""
    return "prompt_generation_1"
