"""Python functions as tools: `from_functions` makes Tools of functions, marked or not.

A signature is read once, when it is loaded; a call converts only the arguments whose JSON differs
from the typed value.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
from pydantic.fields import FieldInfo

from callpact.context import Context
from callpact.envelope import ResponseEnvelope
from callpact.errors import DeclarationError, InvalidInput, InvalidSchema, InvalidTool, Issue
from callpact.resources import Prompt, Resource
from callpact.schema import CompiledSchema, compile_schema
from callpact.sources.base import Finding, Tools
from callpact.sources.python.annotation import LOAD_ERRORS, explain_refusal
from callpact.sources.python.marker import PromptOptions, ResourceOptions, ToolOptions, options_of
from callpact.sources.python.returns import call_code
from callpact.sources.python.signature import (
    Signature,
    function_label,
    read_docstring,
    read_signature,
)
from callpact.tool import Contract, Handler, Kind, Origin, Policy, Tool, without_partials

_EMPTY = inspect.Parameter.empty
_GAPS = re.compile(r"[_\-.]+")
_NOT_NAMESPACE = re.compile(r"[^A-Za-z0-9_-]+")


def from_functions(
    *functions: Any, namespace: str | None = None, policy: Policy | None = None
) -> Tools:
    """Make Tools of functions, decorated with `tool` or plain; of one iterable as well.

    Functions decorated with `resource` or `prompt` are in `.resources` and `.prompts`. An async
    generator function becomes a subscription: each yield is checked by the output schema. The
    namespace is the decorator's, or `namespace`, or the last part of the module's name.

    Raises:
        InvalidTool: a function cannot be a tool as it is written; nothing is loaded.
    """
    given = functions
    if len(functions) == 1 and _is_collection(functions[0]):
        given = tuple(functions[0])
    findings: list[Finding] = []
    made = [_made(function, namespace, policy, findings) for function in given]
    return Tools(
        (item for item in made if isinstance(item, Tool)),
        findings,
        (item for item in made if isinstance(item, Resource)),
        (item for item in made if isinstance(item, Prompt)),
    )


def _made(
    function: Any, namespace: str | None, policy: Policy | None, findings: list[Finding]
) -> Tool | Resource | Prompt:
    if isinstance(function, Tool | Resource | Prompt):
        return function
    tool, options = _tool(function, namespace, policy, findings), options_of(function)
    if isinstance(options, ResourceOptions):
        uri, mime_type = options.uri, options.mime_type
        return Resource(uri=uri, tool=tool, mime_type=mime_type, completions=options.complete)
    if isinstance(options, PromptOptions):
        return Prompt(tool=tool, completions=options.complete)
    return tool


def _is_collection(given: Any) -> bool:
    if callable(given) or isinstance(given, str | bytes | Mapping):
        return False
    return isinstance(given, Iterable)


def _tool(
    function: Any, namespace: str | None, policy: Policy | None, findings: list[Finding]
) -> Tool:
    options = options_of(function) or ToolOptions()
    _refuse(function)
    label = function_label(function)
    name = options.name or _name(function, label)
    words = read_docstring(function)
    signature = read_signature(function, words)
    kind = _kind(options, signature, label)
    module = _module(function, label)
    compiled_input, compiled_output = _compiled(signature, label, findings)
    try:
        return Tool(
            id=f"{options.namespace or namespace or module}.{name}",
            description=options.description or words.description or _GAPS.sub(" ", name).strip(),
            contract=Contract(
                input=compiled_input,
                output=compiled_output,
                policy=options.policy or policy or _default_policy(compiled_output),
                input_policy=options.input_policy,
            ),
            handler=_handler(function, signature),
            title=options.title,
            tags=options.tags,
            aliases=options.aliases,
            version=options.version,
            kind=kind,
            access=options.access,
            annotations=options.annotations,
            source=label,
            timeout=options.timeout,
            uses_client=bool(signature.contexts),
            origin=Origin(deprecated=hasattr(without_partials(function), "__deprecated__")),
        )
    except DeclarationError as error:
        raise InvalidTool(f"{label}: {error}") from None


def _default_policy(output: CompiledSchema | None) -> Policy:
    """No policy that invents values: the author of a function can correct its output."""
    return "pass" if output is None or output.is_unknown else "convert"


def _module(function: Any, label: str) -> str:
    """The last part of the module's name, the same for an imported and a started file."""
    name = label.partition(":")[0]
    if name in _STARTED:
        function = without_partials(function)
        code = inspect.unwrap(function) if inspect.isroutine(function) else type(function).__call__
        held: Mapping[str, Any] = getattr(code, "__globals__", {})
        if held.get("__name__") == name:
            spec, file = held.get("__spec__"), held.get("__file__")
            if spec is not None and spec.name not in _STARTED:  # python -m package.module
                name = spec.name
            elif isinstance(file, str):
                path = Path(file)
                stem = path.absolute().parent.name if path.stem == "__init__" else path.stem
                name = _NOT_NAMESPACE.sub("_", stem)
    return name.rpartition(".")[2].strip("_")


_STARTED = ("__main__", "__mp_main__")
"""Names of the module that was started, here and in a process of `multiprocessing`."""


def _kind(options: ToolOptions, signature: Signature, label: str) -> Kind:
    is_stream, kind = signature.result.is_stream, options.kind
    if kind is None:
        return "subscription" if is_stream else "mutation"
    if is_stream and kind != "subscription":
        raise InvalidTool(
            f"{label}: it yields, so its kind must be 'subscription', got {kind!r:.100}; leave "
            "the kind out, or return one answer"
        )
    if kind == "subscription" and not is_stream:
        raise InvalidTool(
            f"{label}: its kind is 'subscription', so it must be an async generator function "
            "('async def' with a yield), got a function that returns one answer"
        )
    return kind


def _compiled(
    signature: Signature, label: str, findings: list[Finding]
) -> tuple[CompiledSchema, CompiledSchema | None]:
    try:
        compiled_input = compile_schema(signature.input)
    except InvalidSchema as error:
        raise InvalidTool(
            f"{label}: the schema of its parameters cannot be used: {error}"
        ) from None
    problem, output = signature.result.problem, signature.result.output
    compiled_output = None
    if output is not None:
        try:
            compiled_output = compile_schema(output)
        except InvalidSchema as error:
            problem = (
                f"the schema of its return type cannot be used ({error}); answers go unchecked"
            )
    if problem is not None:
        findings.append(Finding(label, "warning", f"{label}: {problem}"))
    return compiled_input, compiled_output


# --- refusals -------------------------------------------------------------------------------


def _refuse(function: Any) -> None:
    if isinstance(function, type):
        raise InvalidTool(
            f"{function_label(function)}: a class is not a tool; pass a function, a bound method, "
            "or an object that can be called"
        )
    if not callable(function):
        raise _not_a_function(function)
    if inspect.isgeneratorfunction(call_code(function)):
        raise InvalidTool(
            f"{function_label(function)}: a generator function that is not async is no tool; "
            "make it 'async def' for a subscription, or return a list for one answer"
        )


def _not_a_function(given: Any) -> InvalidTool:
    return InvalidTool(f"from_functions takes functions and Tools, got {type(given).__name__}")


def _name(function: Any, label: str) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        kind = "a lambda" if name else f"a {type(function).__name__}"
        raise InvalidTool(
            f"{label}: {kind} has no name of its own; give one with tool(name=...)(...)"
        )
    return name


# --- calls ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The conversion of admitted arguments to those of the function; made once."""

    loads: tuple[tuple[str, Callable[[Any], Any]], ...]
    rest: Callable[[Any], Any] | None
    known: frozenset[str]
    names: dict[str, str]
    filled: tuple[tuple[str, FieldInfo], ...]
    contexts: tuple[str, ...]
    positional: tuple[tuple[str, Any], ...]
    hidden: frozenset[str]
    hides_rest: bool

    @property
    def is_plain(self) -> bool:
        return not (self.loads or self.rest or self.is_shaped)

    @property
    def is_shaped(self) -> bool:
        return bool(self.names or self.filled or self.contexts or self.positional)

    def bind(self, arguments: dict[str, Any], context: Context) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments."""
        values = self.load(arguments)
        names = self.names
        values = {names.get(key, key): value for key, value in values.items()}
        for name, info in self.filled:
            if name not in values:
                values[name] = info.get_default(call_default_factory=True, validated_data={})
        for name in self.contexts:
            values[name] = context
        return [values.pop(name, default) for name, default in self.positional], values

    def load(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Typed arguments; the given ones are not changed.

        Raises:
            InvalidInput: a value is valid for its schema, but not for its type.
        """
        values = arguments
        failures: list[tuple[str, Exception]] | None = None
        for key, load in self.loads if self.rest is None else self._all_loads(arguments):
            if key not in arguments:
                continue
            given = arguments[key]
            try:
                value = load(given)
            except LOAD_ERRORS as error:
                failures = [*(failures or ()), (key, error)]
                continue
            if value is not given:
                if values is arguments:
                    values = dict(arguments)
                values[key] = value
        if failures:
            raise InvalidInput(functools.partial(self._issues, arguments, failures))
        return values

    def _all_loads(self, arguments: dict[str, Any]) -> Iterable[tuple[str, Callable[[Any], Any]]]:
        rest = cast("Callable[[Any], Any]", self.rest)
        return (*self.loads, *((key, rest) for key in arguments if key not in self.known))

    def _issues(
        self, arguments: dict[str, Any], failures: list[tuple[str, Exception]]
    ) -> list[Issue]:
        return [
            issue
            for key, error in failures
            for issue in explain_refusal(error, key, arguments[key], hidden=self._hides(key))
        ]

    def _hides(self, key: str) -> bool:
        return key in self.hidden if key in self.known else self.hides_rest


def _plan(signature: Signature) -> _Plan:
    parameters = signature.parameters
    return _Plan(
        loads=tuple((p.key, p.annotation.load) for p in parameters if p.annotation.load),
        rest=signature.rest.load if signature.rest is not None else None,
        known=frozenset(p.key for p in parameters),
        names={p.key: p.name for p in parameters if p.key != p.name},
        filled=tuple((p.name, p.info) for p in parameters if p.is_filled),
        contexts=signature.contexts,
        positional=tuple((p.name, p.default) for p in parameters if p.is_positional),
        hidden=signature.hidden,
        hides_rest=signature.hides_rest,
    )


def _handler(function: Any, signature: Signature) -> Handler:
    plan = _plan(signature)
    dump = signature.result.dump
    if signature.result.is_stream:
        return _stream(function, plan, dump)
    if not inspect.iscoroutinefunction(call_code(function)):
        return _in_a_thread(function, plan, dump)
    if dump is None and plan.is_plain:
        return lambda arguments, _context: function(**arguments)
    if dump is None and not plan.is_shaped:
        load = plan.load
        return lambda arguments, _context: function(**load(arguments))
    if dump is None:

        def call(arguments: dict[str, Any], context: Context) -> Any:
            args, kwargs = plan.bind(arguments, context)
            return function(*args, **kwargs)

        return call

    async def call_and_dump(arguments: dict[str, Any], context: Context) -> Any:
        args, kwargs = plan.bind(arguments, context)
        return _dumped(await function(*args, **kwargs), dump)

    return call_and_dump


def _stream(function: Any, plan: _Plan, dump: Callable[[Any], Any] | None) -> Handler:
    async def stream(arguments: dict[str, Any], context: Context) -> AsyncGenerator[Any, None]:
        args, kwargs = plan.bind(arguments, context)
        values = aiter(function(*args, **kwargs))
        try:
            async for value in values:
                yield value if dump is None else _dumped(value, dump)
        finally:
            close = getattr(values, "aclose", None)  # The iterator of a wrapper may lack it.
            if close is not None:
                await close()

    return stream


def _in_a_thread(function: Any, plan: _Plan, dump: Callable[[Any], Any] | None) -> Handler:
    async def call(arguments: dict[str, Any], context: Context) -> Any:
        args, kwargs = plan.bind(arguments, context)
        value = await asyncio.to_thread(_call, function, args, kwargs)
        if hasattr(value, "__await__"):  # A sync wrapper around an async function.
            value = await value
        return value if dump is None else _dumped(value, dump)

    return call


def _call(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        # A future cannot hold a StopIteration: the call would never end.
        raise RuntimeError("the function raised StopIteration") from error


def _dumped(value: Any, dump: Callable[[Any], Any]) -> Any:
    if isinstance(value, ResponseEnvelope):
        envelope = cast("ResponseEnvelope[Any]", value)
        return msgspec.structs.replace(envelope, data=_dumped(envelope.data, dump))
    is_bytes = isinstance(value, bytes | bytearray | memoryview)
    return cast("Any", value) if is_bytes else dump(value)
