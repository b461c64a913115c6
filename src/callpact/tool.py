"""Tools and the values of one call: `Tool`, `Contract`, `Context`, `Admitted`.

Declarations are frozen dataclasses, checked when they are made; what is made per call are frozen
structs. Nothing here runs a tool.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

from msgspec import Struct

from callpact.errors import InvalidTool, Issue
from callpact.schema import CompiledSchema, compile_schema

Policy = Literal["pass", "warn", "cast", "reject"]
InputPolicy = Literal["exact", "tolerant"]
Kind = Literal["query", "mutation", "subscription", "interactive"]
POLICIES: tuple[str, ...] = get_args(Policy)

_ID = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+")
_NOT_WIRE = re.compile(r"[^A-Za-z0-9_-]")
_WIRE_LENGTH = 64
_WIRE = re.compile(rf"[A-Za-z0-9_-]{{1,{_WIRE_LENGTH}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What a tool promises: the schema of its input, the schema of its output, and the policies.

    `policy` says what happens to an answer that breaks its schema: delivered as it is (`pass`),
    with warnings (`warn`), fitted (`cast`), or not at all (`reject`). Without an output schema it
    is `pass`. `input_policy="tolerant"` repairs input where no meaning can be lost. `formats` makes
    `format` an assertion.

    Raises:
        InvalidSchema: a schema cannot be compiled.
        InvalidTool: a policy is not known.
    """

    input: Any = field(default_factory=lambda: {"type": "object"})
    output: Any = None
    policy: Policy | None = None
    input_policy: InputPolicy = "exact"
    formats: bool = False
    compiled_input: CompiledSchema = field(init=False, repr=False, compare=False)
    compiled_output: CompiledSchema | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiled_in = compile_schema(self.input, formats=self.formats)
        fill = object.__setattr__
        compiled_out = None
        if self.output is not None:
            compiled_out = compile_schema(self.output, formats=self.formats)
            fill(self, "output", compiled_out.document)
            if compiled_out.is_unknown:
                compiled_out = None
        policy = self.policy
        if policy is None:
            policy = "pass" if compiled_out is None else "cast"
        _one_of(policy, POLICIES, "policy")
        _one_of(self.input_policy, get_args(InputPolicy), "input_policy")
        fill(self, "policy", policy)
        fill(self, "input", compiled_in.document)
        fill(self, "compiled_input", compiled_in)
        fill(self, "compiled_output", compiled_out)

    def with_policy(self, policy: Policy) -> Contract:
        """The same contract under another output policy."""
        if policy == self.policy:
            return self
        # What is compiled is shared, not compiled again.
        output = self.output if self.compiled_output is None else self.compiled_output
        return replace(self, input=self.compiled_input, output=output, policy=policy)


class Context(Struct, frozen=True):
    """What a handler may know of its call: never the secrets, never the runtime itself."""

    call_id: str
    tool_id: str
    identity: Any = None
    deadline: float | None = None
    """When the call must have ended, in epoch milliseconds; None for never."""

    @property
    def logger(self) -> logging.Logger:
        """The logger of this tool: `callpact.tool.<id>`."""
        return logging.getLogger(f"callpact.tool.{self.tool_id}")


Handler = Callable[[dict[str, Any], Context], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One callable under a contract. `handler` is `async (arguments, context) -> value | envelope`.

    Raises:
        InvalidTool: the id, the handler or another field cannot be used.
    """

    id: str
    description: str
    contract: Contract
    handler: Handler
    title: str | None = None
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    version: str | None = None
    kind: Kind = "mutation"
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    examples: tuple[Any, ...] = ()
    source: str = "code"
    timeout: float | None = None
    """Seconds that a door gives a call of this tool; None for the door's own default."""
    wire_name: str = ""
    """The name over MCP; derived from the id when it is not given."""

    def __post_init__(self) -> None:
        if not isinstance(cast("Any", self.id), str) or not _ID.fullmatch(self.id):
            raise InvalidTool(
                f"a tool's id is 'namespace.name' in letters, digits, '_' and '-', got {self.id!r}"
            )
        if not isinstance(cast("Any", self.contract), Contract):
            kind = type(self.contract).__name__
            raise InvalidTool(f"tool '{self.id}': contract must be a Contract, got {kind}")
        if not callable(self.handler):
            kind = type(self.handler).__name__
            raise InvalidTool(
                f"tool '{self.id}': handler must be an async function of (arguments, context), "
                f"got {kind}"
            )
        if not isinstance(cast("Any", self.description), str):
            raise self._wrong("description", "text", self.description)
        for name in ("title", "version"):
            if not isinstance(getattr(self, name), str | None):
                raise self._wrong(name, "text or None", getattr(self, name))
        if not isinstance(cast("Any", self.source), str):
            raise self._wrong("source", "text", self.source)
        _one_of(self.kind, get_args(Kind), f"tool '{self.id}': kind")
        self._check_timeout()
        fill = object.__setattr__
        fill(self, "tags", self._texts("tags"))
        fill(self, "aliases", self._texts("aliases"))
        fill(self, "examples", self._items("examples"))
        if not isinstance(cast("Any", self.annotations), Mapping):
            raise self._wrong("annotations", "a mapping", self.annotations)
        fill(self, "annotations", dict(self.annotations))
        if not self.wire_name:
            fill(self, "wire_name", wire_name(self.id.replace(".", "_")))
        elif not isinstance(cast("Any", self.wire_name), str) or not _WIRE.fullmatch(
            self.wire_name
        ):
            what = f"at most {_WIRE_LENGTH} letters, digits, '_' and '-'"
            raise self._wrong("wire_name", what, self.wire_name)

    def __hash__(self) -> int:
        return hash(self.id)

    def _check_timeout(self) -> None:
        seconds = cast("Any", self.timeout)
        if seconds is None:
            return
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise self._wrong("timeout", "a positive number of seconds or None", seconds)

    def _items(self, name: str) -> tuple[Any, ...]:
        given = getattr(self, name)
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise self._wrong(name, "a list or tuple", cast("object", given))
        return tuple(cast("Iterable[Any]", given))

    def _texts(self, name: str) -> tuple[str, ...]:
        items = self._items(name)
        for item in items:
            if not isinstance(item, str) or not item:
                raise self._wrong(name, "a list or tuple of texts that are not empty", items)
        return items

    def _wrong(self, name: str, what: str, value: object) -> InvalidTool:
        return InvalidTool(f"tool '{self.id}': {name} must be {what}, got {value!r:.100}")

    @property
    def namespace(self) -> str:
        """The first part of the id."""
        return self.id.partition(".")[0]

    @property
    def name(self) -> str:
        """The id without its namespace."""
        return self.id.partition(".")[2]


class Admitted(Struct, frozen=True):
    """Arguments that passed the gate. Only `gate.admit` makes one, and only this is run."""

    tool: Tool
    arguments: dict[str, Any]
    warnings: tuple[Issue, ...] = ()


def wire_name(text: str) -> str:
    """A name that every MCP client takes: at most 64 characters, with a stable hash when cut."""
    name = _NOT_WIRE.sub("_", text)
    if len(name) <= _WIRE_LENGTH:
        return name
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name[: _WIRE_LENGTH - 9]}_{digest}"


def _one_of(value: object, allowed: tuple[str, ...], what: str) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidTool(f"{what} must be one of {', '.join(allowed)}, got {value!r}")
