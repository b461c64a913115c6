"""Checks of what is declared of an agent, before anything runs; `agent.py` has the methods."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, cast

from callpact.answer.errors import OutputSchemaError
from callpact.answer.injections import OUTPUT_SCHEMA, instruction_of
from callpact.answer.model import Model
from callpact.answer.parsing import Repairing
from callpact.answer.plan import AnswerContract, Strategy
from callpact.answer.reader import LOSSY
from callpact.answer.shape import shape_of
from callpact.catalog import Catalog
from callpact.errors import UsageError
from callpact.finished import Observer
from callpact.runtime import Runtime
from callpact.tool import Tool

MAX_RETRIES = 10
"""Corrective re-asks that `output_schema(retries=…)` takes."""
MAX_MESSAGE = 1_000_000
"""Characters of a message to an agent."""
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SPELLED_OUT = re.compile(r'\{\s*"[^"]{1,100}"\s*:')
_log = logging.getLogger("callpact.answer")

Tools = Runtime | Catalog | Iterable[Tool | Callable[..., Any]]


class AgentOptions(TypedDict, total=False):
    """What `Agent(…)` takes by keyword beside the shape of its answer."""

    system: str
    tools: Tools | None
    fallback: Callable[[OutputSchemaError, str], Any] | None
    canned: Any
    retries: int
    name: str
    settings: Mapping[str, Any] | None
    observers: Iterable[Observer]


class AnswerOptions(TypedDict, total=False):
    """What `output_schema(…)` takes by keyword."""

    name: str
    instruction: str | None
    description: str | None
    retries: int
    repair: Repairing
    allow: Iterable[str]
    strategy: Strategy
    json_schema: Mapping[str, Any] | None


def check_options(options: Mapping[str, Any]) -> None:
    """See that an agent knows what it is given by keyword.

    Raises:
        UsageError: it does not.
    """
    if unknown := sorted(set(options) - set(AgentOptions.__annotations__)):
        known = ", ".join(sorted(AgentOptions.__annotations__))
        raise UsageError(f"an agent has no option {unknown[0]!r:.100}; there are {known}")


def check_agent(model: Model, system: str, name: str) -> None:
    """See that an agent can be made of these.

    Raises:
        UsageError: it cannot.
    """
    if not hasattr(model, "complete") or not isinstance(getattr(model, "name", None), str):
        raise UsageError(
            f"an agent's model has a name and complete(request), got {type(model).__name__}; "
            "open_model('openai:…') of callpact[models] gives one"
        )
    if not isinstance(cast("Any", system), str):
        raise UsageError(f"system must be text, got {type(system).__name__}")
    if not isinstance(cast("Any", name), str) or not _NAME.fullmatch(name):
        raise UsageError(f"an agent's name is letters, digits, '_' and '-', got {name!r:.100}")


def declared_contract(
    schema: Any,
    *,
    name: str = OUTPUT_SCHEMA,
    instruction: str | None = None,
    description: str | None = None,
    retries: int = 0,
    repair: Repairing = "none",
    allow: Iterable[str] = (),
    strategy: Strategy = "instruct",
    json_schema: Mapping[str, Any] | None = None,
) -> AnswerContract:
    """The contract of an answer, checked.

    Raises:
        UsageError: an option cannot be.
        InvalidSchema: a JSON Schema that cannot be compiled.
    """
    given: Any = retries
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= MAX_RETRIES:
        raise UsageError(f"retries must be 0 to {MAX_RETRIES}, got {given!r:.100}")
    if repair not in {"none", "safe"}:
        raise UsageError(f"repair must be 'none' or 'safe', got {repair!r:.100}")
    if strategy not in {"instruct", "tool-forced"}:
        raise UsageError(f"strategy must be 'instruct' or 'tool-forced', got {strategy!r:.100}")
    shape = shape_of(schema, description=description, json_schema=json_schema)
    if strategy == "tool-forced" and shape.json_schema is None:
        raise UsageError(
            "strategy='tool-forced' sends a JSON Schema, and this shape has none; give json_schema="
        )
    if strategy == "tool-forced" and (shape.json_schema or {}).get("type") != "object":
        raise UsageError(
            "strategy='tool-forced' sends the answer as the arguments of a call, which are an object; "
            "wrap the value in one, or use 'instruct'"
        )
    if instruction is not None and _SPELLED_OUT.search(instruction):
        # Seed 003, anti-patterns: words and parser drift apart.
        _log.warning(
            "the instruction '%s' spells the shape out as JSON; put it into the description of "
            "the schema, where it stays true",
            name,
        )
    text = instruction_of(shape) if instruction is None else instruction
    return AnswerContract(shape, name, text, retries, repair, allowed_repairs(allow), strategy)


def allowed_repairs(allow: Iterable[str]) -> frozenset[str]:
    """The names of lossy repairs.

    Raises:
        UsageError: one of them names none.
    """
    allowed = frozenset([allow] if isinstance(allow, str) else allow)
    if unknown := sorted(map(str, allowed - LOSSY)):
        names = ", ".join(sorted(LOSSY))
        raise UsageError(f"allow names no repair: {', '.join(unknown)}; there are {names}")
    return allowed


def text_of(message: str | Mapping[str, Any]) -> str:
    """The message of a run.

    Raises:
        UsageError: it is none, or empty.
    """
    given: Any = message
    if isinstance(message, Mapping):
        if set(message) != {"message"}:
            keys = ", ".join(sorted(map(str, message))) or "nothing"
            raise UsageError(f"an agent is given text or {{'message': text}}, got {keys}")
        given = message["message"]
    if not isinstance(given, str):
        kind = type(given).__name__
        raise UsageError(f"an agent is given text or {{'message': text}}, got {kind}")
    if not given.strip():
        raise UsageError("the message is empty; the model was not asked")
    if len(given) > MAX_MESSAGE:
        raise UsageError(
            f"the message has {len(given):,} characters; at most {MAX_MESSAGE:,} are taken"
        )
    return given
