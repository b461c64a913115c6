"""Checks of an agent's declaration, made before anything runs; `agent.py` has the methods."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, cast, get_args

from callpact.agent.answer.parse import RepairMode
from callpact.agent.answer.shape import shape_of
from callpact.agent.budget import MAX_FILE_BYTES, MAX_FILES, MAX_HISTORY
from callpact.agent.models.model import File, Message, Model, Part, Role, without_ephemeral
from callpact.agent.models.open import NamedModel
from callpact.agent.plan import AnswerContract, Strategy
from callpact.agent.prompt.instructions import CONTRACT_ID, instruction_of
from callpact.catalog import Catalog
from callpact.context import (
    Identity,
)
from callpact.errors import (
    OutputSchemaError,
    UsageError,
)
from callpact.jsonreader.reader import LOSSY
from callpact.observers import (
    Observer,
)
from callpact.runtime import Runtime
from callpact.tool import Tool

MAX_RETRIES = 10
"""The highest number of corrective re-asks in `output_schema(retries=…)`."""
MAX_MESSAGE = 1_000_000
"""Characters of a message to an agent."""
MAX_PARTS = 100
"""Texts and files in one message."""
_ROLES = get_args(Role)
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SPELLED_OUT = re.compile(r'\{\s*"[^"]{1,100}"\s*:')
_log = logging.getLogger("callpact.agent")

Tools = Runtime | Catalog | Iterable[Tool | Callable[..., Any]]


class AgentOptions(TypedDict, total=False):
    """Keyword arguments of `Agent(…)` beside `output_schema`."""

    system: str
    tools: Tools | None
    fallback: Callable[[OutputSchemaError, str], Any] | None
    canned: Any
    retries: int
    name: str
    settings: Mapping[str, Any] | None
    observers: Iterable[Observer]


class RunOptions(TypedDict, total=False):
    """Keyword arguments of `run`, `run_typed`, `run_result` and `stream`."""

    session: str
    identity: Identity | None
    history: Iterable[Message]
    model: Model | str | None


class AnswerOptions(TypedDict, total=False):
    """Keyword arguments of `output_schema(…)`."""

    name: str
    instruction: str | None
    description: str | None
    retries: int
    repair: RepairMode
    allow: Iterable[str]
    strategy: Strategy
    json_schema: Mapping[str, Any] | None


def check_options(options: Mapping[str, Any], known: type[Any], what: str = "an agent") -> None:
    """Check that all keyword arguments are known options.

    Raises:
        UsageError: an option is unknown.
    """
    names = known.__annotations__
    if unknown := sorted(set(options) - set(names)):
        listed = ", ".join(sorted(names))
        raise UsageError(f"{what} has no option {unknown[0]!r:.100}; there are {listed}")


def model_of(given: Model | str) -> Model:
    """Return a model; a name gives a model that is opened on its first request.

    Raises:
        UsageError: the value is not a model.
    """
    if isinstance(given, str):
        return NamedModel(given)
    if not hasattr(given, "complete") or not isinstance(getattr(given, "name", None), str):
        raise UsageError(
            "a model is a name such as 'openai:gpt-5', or has a name and complete(request), got "
            f"{type(given).__name__}"
        )
    return given


def check_agent(system: str, name: str) -> None:
    """Check the system prompt and the name of an agent.

    Raises:
        UsageError: one of them is not valid.
    """
    if not isinstance(cast("Any", system), str):
        raise UsageError(f"system must be text, got {type(system).__name__}")
    if not isinstance(cast("Any", name), str) or not _NAME.fullmatch(name):
        raise UsageError(f"an agent's name is letters, digits, '_' and '-', got {name!r:.100}")


def declared_contract(
    schema: Any,
    *,
    name: str = CONTRACT_ID,
    instruction: str | None = None,
    description: str | None = None,
    retries: int = 0,
    repair: RepairMode = "none",
    allow: Iterable[str] = (),
    strategy: Strategy = "instruct",
    json_schema: Mapping[str, Any] | None = None,
) -> AnswerContract:
    """Check the options of `output_schema` and return the contract of the answer.

    Raises:
        UsageError: an option is not valid.
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
        # Seed 003, anti-patterns: a shape that is written out drifts apart from its parser.
        _log.warning(
            "the instruction '%s' spells the shape out as JSON; put it into the description of "
            "the schema, where it stays true",
            name,
        )
    if instruction is None:  # A forced call has the schema already.
        instruction = instruction_of(shape, shows_schema=strategy == "instruct")
    allowed = allowed_repairs(allow)
    return AnswerContract(shape, name, instruction, retries, repair, allowed, strategy)


def allowed_repairs(allow: Iterable[str]) -> frozenset[str]:
    """Check the names of lossy repairs and return them.

    Raises:
        UsageError: a name is unknown.
    """
    allowed = frozenset([allow] if isinstance(allow, str) else allow)
    if unknown := sorted(map(str, allowed - LOSSY)):
        names = ", ".join(sorted(LOSSY))
        raise UsageError(f"allow names no repair: {', '.join(unknown)}; there are {names}")
    return allowed


MessageInput = str | Sequence[Part] | Mapping[str, Any]
"""The message of a run: text, a list of texts and files, or `{"message": …}` of one of these."""


def message_of(given: Any) -> Message:
    """Check the message of a run and return it.

    Raises:
        UsageError: the value is no message, or the message is empty or too large.
    """
    if isinstance(given, Mapping):
        held = cast("Mapping[Any, Any]", given)
        if set(held) != {"message"}:
            raise _no_message(", ".join(sorted(map(str, held))) or "nothing")
        given = held["message"]
    parts: tuple[Any, ...] = ()
    if isinstance(given, str):
        text = given
    elif isinstance(given, list | tuple):
        parts = tuple(cast("Sequence[Any]", given))
        for part in parts:
            if not isinstance(part, str | File):
                raise _no_message(f"a list with {type(part).__name__}")
        parts = tuple(part for part in parts if not isinstance(part, str) or part.strip())
        text = "\n".join(part for part in parts if isinstance(part, str))
    else:
        raise _no_message(type(given).__name__)
    if not text.strip() and not any(isinstance(part, File) for part in parts):
        raise UsageError("the message is empty; the model was not asked")
    if len(text) > MAX_MESSAGE:
        raise UsageError(
            f"the message has {len(text):,} characters; at most {MAX_MESSAGE:,} are taken"
        )
    if len(parts) > MAX_PARTS:
        raise UsageError(f"the message has {len(parts):,} parts; at most {MAX_PARTS} are taken")
    has_files = any(isinstance(part, File) for part in parts)
    return Message("user", text, parts=parts if has_files else ())


def _no_message(got: str) -> UsageError:
    return UsageError(
        "an agent is given text, a list of texts and File(…)s, or {'message': …} of one of these, "
        f"got {got}"
    )


def checked_history(history: Iterable[Message], message: Message) -> tuple[Message, ...]:
    """Check earlier messages, such as `answer.messages`, and return them without ephemeral ones.

    Raises:
        UsageError: an entry is no message, a tool call has no result, or the conversation with the
            new message has too many messages or too large files.
    """
    if isinstance(cast("Any", history), str | bytes | Mapping | Message):
        raise UsageError(
            f"history is a list of messages, as answer.messages, got {type(history).__name__}"
        )
    held = tuple(history)
    for each in held:
        if not isinstance(cast("Any", each), Message) or each.role not in _ROLES:
            raise UsageError(
                f"history is a list of messages, as answer.messages, got one with {each!r:.100}"
            )
    if len(held) > MAX_HISTORY:
        raise UsageError(
            f"the history has {len(held):,} messages; at most {MAX_HISTORY:,} are taken"
        )
    kept = without_ephemeral(held)
    _check_results(kept)
    files = [part for each in (*kept, message) for part in each.parts if isinstance(part, File)]
    size = sum(len(file.data) for file in files)
    if len(files) > MAX_FILES or size > MAX_FILE_BYTES:
        raise UsageError(
            f"the conversation has {len(files)} files of {size:,} bytes; at most {MAX_FILES} of "
            f"{MAX_FILE_BYTES:,} bytes together are taken"
        )
    return kept


def _check_results(messages: Iterable[Message]) -> None:
    """Refuse a tool call without a result and a result without a call, as model vendors do."""
    wanted: set[str] = set()
    for message in messages:
        if message.role == "tool":
            if message.tool_use_id not in wanted:
                raise UsageError("the history has a tool's result without the call before it")
            wanted.discard(message.tool_use_id)
            continue
        if wanted:
            break
        wanted = {use.id for use in message.tool_uses}
    if wanted:
        raise UsageError(
            f"the history has a tool call without its result: {min(wanted):.100}; a run that paused "
            "goes on with resume"
        )
