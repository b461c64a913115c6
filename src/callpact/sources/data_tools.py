"""Data Tools (seed 004): property blocks for input and output; an output that breaks its block fails.

The gate checks the arguments; then defaults are filled in and undeclared keys removed, so that the
handler can rely on their shape. Data Tools are declared in code; no file is loaded here.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, Literal, cast

from callpact.context import Context
from callpact.envelope import ResponseEnvelope, local_envelope
from callpact.errors import DeclarationError, InvalidTool
from callpact.schema.properties import PropertyBlock, properties_schema
from callpact.tool import Contract, Handler, Tool, is_async_generator

DataHandler = Callable[[dict[str, Any], Context], Any]
"""`async (props, context) -> object`; a plain function runs in a thread."""

_BREAK = re.compile(r"[^a-z0-9]+")
_MISSING: Any = object()
_Shaper = Callable[[Any], Any]


def data_tool(
    name: str,
    properties: PropertyBlock,
    output: PropertyBlock | None,
    handler: DataHandler,
    *,
    namespace: str = "data",
    description: str = "",
    title: str | None = None,
    strict_input: bool = False,
    tags: Iterable[str] = (),
    version: str | None = None,
    kind: Literal["query", "mutation"] = "query",
) -> Tool:
    """Declare a Data Tool; "Product Search" becomes `data.product_search`, a dotted name is an id.

    Undeclared keys of the arguments are dropped before the handler runs; `strict_input` closes the
    published schema, so that they are rejected. An output that breaks `output` is rejected.

    Raises:
        InvalidTool: the name, a block or the handler cannot be used.
    """
    tool_id = _id(name, namespace)
    try:
        if output is None:
            raise InvalidTool("output is required: a Data Tool says what it answers")
        if kind not in ("query", "mutation"):
            raise InvalidTool(f"kind must be query or mutation, got {kind!r}")
        _check_handler(handler)
        contract = Contract(
            input=properties_schema(properties, strict=strict_input),
            output=properties_schema(output, output=True),
            policy="reject",
            formats=True,
        )
    except DeclarationError as error:
        raise InvalidTool(f"tool '{tool_id}': {error}") from None
    return Tool(
        id=tool_id,
        description=description,
        contract=contract,
        handler=_prepared(handler, contract.input, tool_id),
        title=title,
        tags=tuple(tags),
        version=version,
        kind=kind,
        source=_source(handler),
    )


def exhausted_message(tool_name: str) -> str:
    """The text for a user when the model gave up on a tool: its name, without its schema."""
    return f"The assistant tried to use {tool_name} but the input didn't match the expected format."


def _id(name: Any, namespace: str) -> str:
    if not isinstance(name, str):
        raise InvalidTool(f"a tool's name must be text, got {type(name).__name__}")
    if "." in name:
        return name
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    slug = _BREAK.sub("_", plain.lower()).strip("_")
    if not slug:
        raise InvalidTool(f"a tool's name must hold a letter or a digit, got {name!r:.60}")
    return f"{namespace}.{slug}"


def _check_handler(handler: Any) -> None:
    if not callable(handler):
        kind = type(handler).__name__
        raise InvalidTool(f"handler must be a function of (props, context), got {kind}")
    if is_async_generator(handler) or inspect.isgeneratorfunction(handler):
        raise InvalidTool("handler must return one object, got a generator function")
    try:
        signature = inspect.signature(handler)
    except ValueError:
        return
    try:
        signature.bind({}, None)
    except TypeError:
        raise InvalidTool(f"handler must take (props, context), got {signature}") from None


def _source(handler: Any) -> str:
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    return f"{getattr(handler, '__module__', 'code')}.{name}"


# --- around the handler ---------------------------------------------------------------------


def _prepared(handler: Any, schema: dict[str, Any], tool_id: str) -> Handler:
    shape = cast("_Shaper", _shaper(schema))
    call: Any = handler if _is_async(handler) else _threaded(handler)

    async def prepared(arguments: dict[str, Any], context: Context) -> Any:
        answer: Any = await call(shape(arguments), context)
        # Data that only looks like an envelope is data: it must not bypass the output gate.
        if isinstance(answer, ResponseEnvelope):
            return cast("ResponseEnvelope[Any]", answer)
        return local_envelope(answer, tool_id)

    return prepared


def _is_async(handler: Any) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object may be async only in its call
    )


def _threaded(handler: Callable[[dict[str, Any], Context], Any]) -> Handler:
    def run(props: dict[str, Any], context: Context) -> Any:
        try:
            return handler(props, context)
        except StopIteration as error:
            # A future cannot hold a StopIteration: the call would never end.
            raise RuntimeError("the handler raised StopIteration") from error

    async def threaded(props: dict[str, Any], context: Context) -> Any:
        answer = await asyncio.to_thread(run, props, context)
        return await answer if inspect.isawaitable(answer) else answer

    return threaded


def _shaper(schema: dict[str, Any]) -> _Shaper | None:
    """A function that copies a value with defaults filled in and undeclared keys left out.

    None for a scalar, which needs neither. A group that is absent stays absent, unless it has a
    default of its own.
    """
    if schema["type"] == "array":
        item = _shaper(schema["items"])
        return list if item is None else lambda items: [item(value) for value in items]
    if schema["type"] != "object":
        return None
    parts = [
        (name, _shaper(sub), sub.get("default", _MISSING))
        for name, sub in schema["properties"].items()
    ]

    def shape(given: dict[str, Any]) -> dict[str, Any]:
        shaped: dict[str, Any] = {}
        for name, inner, default in parts:
            value = given.get(name, default)
            if value is not _MISSING:
                # Shaping copies every list and object: the declared default is never changed.
                shaped[name] = value if inner is None else inner(value)
        return shaped

    return shape
