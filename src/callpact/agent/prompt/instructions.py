"""Parts of the system prompt beside the base prompt: instructions, skills, the answer's contract.

Each part is an `Injection`; the prompt is composed for every request. Memory is added to the
messages instead (`memory.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from msgspec import Struct

from callpact.agent.answer.shape import Shape
from callpact.agent.models.model import Message
from callpact.errors import UsageError
from callpact.schema.json_text import json_text

CONTRACT_ID = "output-schema"
"""Default id of the injection that holds the contract of the answer."""


class Turn(Struct, frozen=True):
    """The state of a run when the text of an injection is composed."""

    run_id: str
    iteration: int
    messages: tuple[Message, ...]


Text = str | Callable[[Turn], str | None]
"""A text, or a function that returns one; None or an empty text adds nothing."""


class Injection(Struct, frozen=True):
    """A text for the system prompt."""

    id: str
    text: Text


class Skill(Struct, frozen=True):
    """Instructions that the model reads with the tool `read_skill` when it needs them."""

    name: str
    description: str
    text: str


MAX_SHOWN_SCHEMA = 50_000
"""Characters of the JSON Schema that an instruction shows beside the description of a shape."""


def instruction_of(shape: Shape[Any], *, shows_schema: bool = True) -> str:
    """Describe the contract of the final answer: the author's description, and the JSON Schema."""
    text = (
        "Respond ONLY with valid JSON matching the output schema. "
        "Do NOT include prose, markdown fences, or explanatory text."
    )
    if not shape.description:
        return text
    stop = "" if shape.description.rstrip().endswith(".") else "."
    text = f"{text} The output shape: {shape.description}{stop}"
    schema = None if shape.json_schema is None else json_text(shape.json_schema)
    if not shows_schema or schema is None or schema == shape.description:
        return text
    return f"{text}\nThe output schema: {schema}" if len(schema) <= MAX_SHOWN_SCHEMA else text


def added(injections: tuple[Injection, ...], *more: Injection) -> tuple[Injection, ...]:
    """Append injections.

    Raises:
        UsageError: two injections have the same id, or one has neither a text nor a function.
    """
    known = {injection.id for injection in injections}
    for injection in more:
        if injection.id in known:
            raise UsageError(
                f"two injections are called '{injection.id}'; give one of them another name"
            )
        if not isinstance(cast("Any", injection.text), str) and not callable(injection.text):
            raise UsageError(
                f"the instruction '{injection.id}' must be text or a function of (turn), "
                f"got {type(injection.text).__name__}"
            )
        known.add(injection.id)
    return (*injections, *more)


def compose(
    system: str, injections: Iterable[Injection], turn: Turn
) -> tuple[str, tuple[str, ...]]:
    """Return the system prompt of one request, and the ids of its injections.

    Raises:
        UsageError: a function returned something else than text or None.
    """
    parts = [system] if system else []
    ids: list[str] = []
    for injection in injections:
        text: Any = injection.text if isinstance(injection.text, str) else injection.text(turn)
        if text is not None and not isinstance(text, str):
            raise UsageError(
                f"the instruction '{injection.id}' must give text or None, got {type(text).__name__}"
            )
        if text:
            parts.append(text)
            ids.append(injection.id)
    return "\n\n".join(parts), tuple(ids)


def skill_injections(skills: Iterable[Skill], active: Iterable[str]) -> tuple[Injection, ...]:
    """Return the list of skills, and the texts of those that were read, as injections."""
    skills, read = tuple(skills), set(active)
    if not skills:
        return ()
    listed = "\n".join(f"- {skill.name}: {skill.description}" for skill in skills)
    head = f"Skills that you can read with the tool read_skill before you use them:\n{listed}"
    texts = (Injection(f"skill:{skill.name}", skill.text) for skill in skills if skill.name in read)
    return (Injection("skills", head), *texts)
