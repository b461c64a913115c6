"""Tools and the values of one call: `Tool`, `Contract`, `Access`, `Call`, `Admitted`.

Declarations are frozen dataclasses, checked when they are made; the values of a call are frozen
structs. Nothing here runs a tool.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from inspect import CO_ASYNC_GENERATOR, isasyncgenfunction
from types import NoneType
from typing import Any, Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from callpact.context import Context, LogLine
from callpact.errors import InvalidTool, Issue
from callpact.schema import CompiledSchema, compile_schema

Policy = Literal["pass", "warn", "cast", "convert", "reject"]
InputPolicy = Literal["exact", "tolerant"]
Kind = Literal["query", "mutation", "subscription", "interactive"]
POLICIES: tuple[str, ...] = get_args(Policy)
_INPUT_POLICIES: tuple[str, ...] = get_args(InputPolicy)
_KINDS: tuple[str, ...] = get_args(Kind)

_ANY_OBJECT: dict[str, Any] = {"type": "object"}
_ID = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+")
_NOT_WIRE = re.compile(r"[^A-Za-z0-9_-]")
_WIRE_LENGTH = 64
_WIRE = re.compile(rf"[A-Za-z0-9_-]{{1,{_WIRE_LENGTH}}}")


@dataclass(frozen=True, slots=True)
class Projection:
    """The fields of an output that are delivered; the whole output is judged before."""

    whole: CompiledSchema | None
    """The schema of the whole output; None if it allows every value."""
    fields: Mapping[str, Any]
    """The kept fields, each with those kept inside it; an empty mapping keeps all of a field."""


class DeclaredSchemas(Struct, frozen=True):
    """The schemas of a contract that is not made yet, as plain data, and its policy."""

    input: Any
    output: Any
    policy: Policy


@dataclass(frozen=True, slots=True, init=False)
class Contract:
    """The promise of a tool: the schema of its input, the schema of its output, and the policies.

    `policy` decides how an output that breaks its schema is delivered: as it is (`pass`), with
    warnings (`warn`), fitted with invented values (`cast`), converted if that loses nothing and
    otherwise refused (`convert`), or refused (`reject`). The default is `cast`, without an output
    schema `pass`. `input_policy="tolerant"` repairs input where no meaning can be lost. `formats`
    makes `format` an assertion. With a `projection`, `output` is the schema of the delivered fields.

    Raises:
        InvalidSchema: a schema cannot be compiled.
        InvalidTool: a policy is not known.
    """

    policy: Policy
    input_policy: InputPolicy
    formats: bool
    compiled_input: CompiledSchema
    compiled_output: CompiledSchema | None
    """None if the output schema allows every value."""
    projection: Projection | None
    _declared_output: CompiledSchema | None
    _make: Callable[[], Contract] | None = field(repr=False, compare=False)
    _schemas: Callable[[], DeclaredSchemas] | None = field(repr=False, compare=False)

    def __init__(
        self,
        *,
        input: Any = _ANY_OBJECT,
        output: Any = None,
        policy: Policy | None = None,
        input_policy: InputPolicy = "exact",
        formats: bool = False,
        projection: Projection | None = None,
    ) -> None:
        fill = object.__setattr__
        fill(self, "_make", None)
        fill(self, "projection", projection)
        fill(self, "_schemas", None)
        fill(self, "compiled_input", compile_schema(input, formats=formats))
        declared = None if output is None else compile_schema(output, formats=formats)
        known = None if declared is None or declared.is_unknown else declared
        fill(self, "compiled_output", known)
        fill(self, "_declared_output", declared)
        if policy is None:
            policy = "pass" if known is None else "cast"
        _one_of(policy, POLICIES, "policy")
        _one_of(input_policy, _INPUT_POLICIES, "input_policy")
        fill(self, "policy", policy)
        fill(self, "input_policy", input_policy)
        fill(self, "formats", formats)

    @staticmethod
    def later(
        make: Callable[[], Contract], schemas: Callable[[], DeclaredSchemas] | None = None
    ) -> Contract:
        """A contract that is made on first access, from schemas known to be valid.

        With `schemas` its schemas can be listed, and its policy read, without making it.
        """
        contract = object.__new__(Contract)
        object.__setattr__(contract, "_make", make)
        object.__setattr__(contract, "_schemas", schemas)
        return contract

    def __getattr__(self, name: str) -> Any:
        # Called only for missing attributes: the fields of a contract from `later`.
        make = None if name == "_make" else self._make
        if name not in _CONTRACT_FIELDS or make is None:
            raise AttributeError(f"a Contract has no attribute {name!r}")
        if name == "policy" and self._schemas is not None:
            return self._schemas().policy
        made = make()
        for field_name in _CONTRACT_FIELDS:
            object.__setattr__(self, field_name, getattr(made, field_name))
        object.__setattr__(self, "_make", None)
        object.__setattr__(self, "_schemas", None)
        return getattr(self, name)

    @property
    def input(self) -> Any:
        """The input schema as plain data."""
        return self.compiled_input.document if self._schemas is None else self._schemas().input

    @property
    def output(self) -> Any:
        """The output schema as plain data, or None."""
        if self._schemas is not None:
            return self._schemas().output
        return None if self._declared_output is None else self._declared_output.document

    def with_policy(self, policy: Policy) -> Contract:
        """The same contract under another output policy."""
        if policy == self.policy:
            return self
        make, schemas = self._make, self._schemas
        if make is not None and schemas is not None:
            return Contract.later(
                lambda: make().with_policy(policy), lambda: replace(schemas(), policy=policy)
            )
        return Contract(
            input=self.compiled_input,
            output=self._declared_output,
            policy=policy,
            input_policy=self.input_policy,
            formats=self.formats,
            projection=self.projection,
        )


_CONTRACT_FIELDS = tuple(
    each.name for each in fields(Contract) if each.name not in {"_make", "_schemas"}
)


class Call(Struct, frozen=True, gc=False):
    """One request: the tool, its arguments, the deadline, and the call that it is part of."""

    tool_id: str
    arguments: Any = None
    id: str = ""
    """The caller's id for the call; if it is empty, the runtime makes one."""
    parent_id: str | None = None
    deadline: float | None = None
    """Epoch milliseconds; None for never."""
    policy: Policy | None = None
    chain: tuple[str, ...] = ()
    """The tools that called one another to get here, the first caller first."""
    metadata: Mapping[str, Any] | None = None
    via: str = ""
    """The door that received the call; empty for code of the same process."""
    client_name: str = ""
    """The name that the client program gives itself; empty if it gives none."""
    logs: tuple[LogLine, ...] = ()
    """Log lines of the call from before its tool runs, such as repairs of its arguments."""
    uses_wire_names: bool = False
    """True if the door names tools by their wire names; errors suggest names of the same kind."""


Handler = Callable[[dict[str, Any], Context], Awaitable[Any] | AsyncGenerator[Any, None]]


@dataclass(frozen=True, slots=True)
class Access:
    """The rights that a caller needs: all of `scopes`, one of `any_scopes`, a right to a resource.

    With `resource_type="project"` and `resource_action="read"`, some resource `project:…` of the
    caller must list `read`.

    Raises:
        InvalidTool: a part is not a list of texts, or only one of the two resource fields is given.
    """

    scopes: tuple[str, ...] = ()
    any_scopes: tuple[str, ...] = ()
    resource_type: str | None = None
    resource_action: str | None = None

    def __post_init__(self) -> None:
        for name in ("scopes", "any_scopes"):
            given = getattr(self, name)
            if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
                raise InvalidTool(f"access: {name} must be a list of scopes, got {given!r:.100}")
            scopes = tuple(cast("Iterable[Any]", given))
            if not all(isinstance(scope, str) and scope for scope in scopes):
                raise InvalidTool(f"access: {name} must be a list of scopes, got {given!r:.100}")
            object.__setattr__(self, name, scopes)
        pair = (self.resource_type, self.resource_action)
        if (pair[0] is None) != (pair[1] is None):
            raise InvalidTool(
                "access: resource_type and resource_action are given together; one of them alone "
                "would ask for nothing"
            )
        if pair[0] is not None and not all(isinstance(part, str) and part for part in pair):
            raise InvalidTool(f"access: the resource must be two texts, got {pair!r:.100}")


OPEN = Access()
"""Requires no right: every caller may call."""


class Disabled(Struct, frozen=True):
    """Why a tool cannot be called: the code of the error that a call gets, and the reason."""

    code: str
    reason: str


class Terms(Struct, frozen=True):
    """Documentation, terms of service and data licence of a tool's upstream, for display only."""

    docs: tuple[str, ...] = ()
    service: str | None = None
    checked: str | None = None
    language: str | None = None
    licence: str | None = None
    licence_name: str | None = None


_NO_TERMS = Terms()


class Origin(Struct, frozen=True):
    """The HTTP operation that a tool was made from; texts are empty if there is none."""

    method: str = ""
    """Upper case."""
    path: str = ""
    """The template of the path, as `/pets/{petId}`."""
    operation: str = ""
    """The `operationId`; empty if the document gives none."""
    deprecated: bool = False
    """Also of a Python function that is marked with `deprecated` (PEP 702)."""


_NO_ORIGIN = Origin()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One callable under a contract. `handler` is `async (arguments, context) -> value | envelope`.

    The handler of a subscription is an async generator function, and only that of a subscription.
    `access` is an `Access`, or simply the list of scopes that a caller needs.

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
    former: tuple[str, ...] = ()
    """Those aliases that a rename left; they give way to a tool that has such a name itself."""
    version: str | None = None
    kind: Kind = "mutation"
    access: Access = OPEN
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    examples: tuple[Any, ...] = ()
    source: str = "code"
    timeout: float | None = None
    """Seconds that a door gives a call of this tool; None for the door's own default."""
    wire_name: str = ""
    """The name over MCP; derived from the id when it is not given."""
    argument_aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other names of arguments, each with the declared name."""
    disabled: Disabled | None = None
    """Why it cannot be called; such a tool is shown as disabled, and not advertised."""
    keywords: tuple[str, ...] = ()
    """Other words under which a search finds it."""
    search_hint: str = ""
    """A few words on what it is for, for clients that search among many tools."""
    always_listed: bool = False
    """True if it is listed also where others are only found by searching."""
    terms: Terms = _NO_TERMS
    origin: Origin = _NO_ORIGIN
    definition: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further members of its definition over MCP, as another server sent them: icons, `_meta`."""
    uses_client: bool = True
    """False if its handler never reaches the client of a call: no progress, log lines, questions."""
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of the keys that its source may send for it, each with the hosts that it is sent to."""

    def __post_init__(self) -> None:
        if not _matches(_ID, self.id):
            raise InvalidTool(
                f"a tool's id is 'namespace.name' in letters, digits, '_' and '-', got {self.id!r}"
            )
        self._check_fields()
        fill = object.__setattr__
        if self.tags != ():
            fill(self, "tags", self._texts("tags"))
        if self.aliases != ():
            fill(self, "aliases", self._texts("aliases"))
        if self.keywords != ():
            fill(self, "keywords", self._texts("keywords"))
        if self.examples != ():
            fill(self, "examples", self._items("examples"))
        fill(self, "annotations", dict(self.annotations))
        if self.argument_aliases:
            fill(self, "argument_aliases", dict(self.argument_aliases))
        if not _is(self.access, Access):
            fill(self, "access", self._access())
        if not self.wire_name:
            fill(self, "wire_name", wire_name(self.id.replace(".", "_")))
        elif not _matches(_WIRE, self.wire_name):
            what = f"at most {_WIRE_LENGTH} letters, digits, '_' and '-'"
            raise self._wrong("wire_name", what, self.wire_name)

    def _check_fields(self) -> None:
        if not _is(self.contract, Contract):
            raise self._wrong("contract", "a Contract", type(self.contract))
        if not callable(self.handler):
            what = "an async function of (arguments, context)"
            raise self._wrong("handler", what, type(self.handler))
        for name, kinds, what in _FIELDS:
            if not isinstance(getattr(self, name), kinds):
                raise self._wrong(name, what, getattr(self, name))
        if self.kind not in _KINDS:
            raise self._wrong("kind", f"one of {', '.join(_KINDS)}", self.kind)
        self._check_kind()
        if self.timeout is not None:
            self._check_timeout(self.timeout)

    def __hash__(self) -> int:
        return hash(self.id)

    def _check_timeout(self, seconds: object) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise self._wrong("timeout", "a positive number of seconds or None", seconds)

    def _check_kind(self) -> None:
        is_stream = is_async_generator(self.handler)
        if self.kind == "subscription" and not is_stream:
            what = "an async generator function, as the tool is a subscription"
            raise self._wrong("handler", what, type(self.handler))
        if is_stream and self.kind != "subscription":
            what = "'subscription', as the handler is an async generator"
            raise self._wrong("kind", what, self.kind)

    def _access(self) -> Access:
        try:
            return Access(cast("Any", self.access))
        except InvalidTool:
            what = "an Access or a list of scopes"
            raise self._wrong("access", what, self.access) from None

    def _items(self, name: str) -> tuple[Any, ...]:
        given = getattr(self, name)
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise self._wrong(name, "a list or tuple", getattr(self, name))
        return tuple(cast("Iterable[Any]", given))

    def _texts(self, name: str) -> tuple[str, ...]:
        items = self._items(name)
        for item in items:
            if not isinstance(item, str) or not item:
                raise self._wrong(name, "a list or tuple of texts that are not empty", items)
        return items

    def _wrong(self, name: str, what: str, value: object) -> InvalidTool:
        came = value.__name__ if isinstance(value, type) else f"{value!r:.100}"
        return InvalidTool(f"tool '{self.id}': {name} must be {what}, got {came}")

    @property
    def namespace(self) -> str:
        """The first part of the id."""
        return self.id.partition(".")[0]

    @property
    def name(self) -> str:
        """The id without its namespace."""
        return self.id.partition(".")[2]


_FIELDS = (
    ("description", str, "text"),
    ("title", (str, NoneType), "text or None"),
    ("version", (str, NoneType), "text or None"),
    ("source", str, "text"),
    ("annotations", (dict, Mapping), "a mapping"),  # Testing for a dict first is faster.
    ("argument_aliases", (dict, Mapping), "a mapping"),
    ("disabled", (Disabled, NoneType), "a Disabled or None"),
)


class Admitted(Struct, frozen=True):
    """Arguments that passed the gate. Only `gate.admit` makes one, and only this is run."""

    tool: Tool
    arguments: dict[str, Any]
    warnings: tuple[Issue, ...] = ()


def is_async_generator(function: Any) -> bool:
    """True if calling it gives an async generator; looks through partials and callable objects."""
    code = getattr(function, "__code__", None)
    if code is not None:  # The fast way, for catalogs of ten thousand tools.
        return bool(code.co_flags & CO_ASYNC_GENERATOR)
    function = without_partials(function)
    return isasyncgenfunction(function) or isasyncgenfunction(getattr(function, "__call__", None))  # noqa: B004 - the method is wanted, not whether there is one


def without_partials(function: Any) -> Any:
    """The function that partials wrap."""
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return function


def wire_name(text: str) -> str:
    """A name that every MCP client accepts: at most 64 characters, with a stable hash when cut."""
    name = text if _WIRE.fullmatch(text) else _NOT_WIRE.sub("_", text)
    if len(name) <= _WIRE_LENGTH:
        return name
    return f"{name[: _WIRE_LENGTH - 9]}_{zlib.crc32(text.encode()):08x}"


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind)


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _one_of(value: object, allowed: tuple[str, ...], what: str) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidTool(f"{what} must be one of {', '.join(allowed)}, got {value!r}")
