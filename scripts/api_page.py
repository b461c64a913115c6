"""The page of the API: every public name as the source declares it.

Read from the source, not from the running code: annotations and defaults stand on the page as they
were written, whichever Python writes it. `reference.py` puts the page into its place.
"""

from __future__ import annotations

import ast
import itertools
import re
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).resolve().parent.parent / "src"

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def _tree(module: str) -> ast.Module:
    path = SOURCE / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text("utf-8"))


def _target(node: ast.AST) -> str | None:
    """The name that an assignment gives."""
    if isinstance(node, ast.Assign):
        node = node.targets[0]
    elif isinstance(node, ast.AnnAssign):
        node = node.target
    return node.id if isinstance(node, ast.Name) else None


def sentences(module: str) -> dict[str, str]:
    """The string under each constant of a module."""
    found: dict[str, str] = {}
    for node, after in itertools.pairwise(_tree(module).body):
        name = _target(node)
        if name and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[name] = " ".join(str(after.value.value).split())
    return found


def constant(module: str, name: str) -> Any:
    """The value of a constant; the module is not run, as it may need what is not installed."""
    module, node = _home(name, module)
    value = getattr(node, "value", node)
    names = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
    known = {other: constant(module, other) for other in names}  # Perhaps of another module.
    return eval(ast.unparse(value), {"__builtins__": {}}, known)  # noqa: S307 - numbers in our own source


def _home(name: str, module: str = "callpact") -> tuple[str, Definition]:
    """Where a name is defined, followed through the imports; of overloads the last."""
    tree = _tree(module)
    for node in reversed(tree.body):
        if isinstance(node, Definition) and name in {getattr(node, "name", None), _target(node)}:
            return module, node
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return _home(name, str(node.module))
    raise LookupError(f"{name} is not defined in {module}")


# --- the API --------------------------------------------------------------------------------

PUBLIC = {
    "callpact": "The names that a program needs. Every way to call a tool gives envelopes, never a raw value:",
    "callpact.agent": "An agent's final answer under contract; see [typed answers](../guides/typed-answers.md).",
    "callpact.jsonreader": "JSON in text as models write it.",
    "callpact.protocol": "Calls over a bus. The protocol itself: [call protocol](call-protocol.md).",
    "callpact.envelope": "The one result: `data`, `meta`, and beside them what the contract found.",
    "callpact.context": "What a handler is given beside its arguments.",
    "callpact.schema": "JSON Schema, and property blocks; see [schema functions](schema.md) and [Data Tools](../guides/data-tools.md).",
    "callpact.sources": "What turns declarations into Tools.",
    "callpact.audit": "Every call on record; see [the audit log](../guides/audit.md).",
    "callpact.serve": "Doors; see [serve over MCP](../guides/serve-over-mcp.md).",
    "callpact.sandbox": "What runs the hooks of FlowMCP files; see [hooks](../guides/flowmcp-hooks.md).",
    "callpact.errors": "Every error class. Codes on each wire: [codes](codes.md).",
    "callpact.testing": "Fakes for tests.",
}
"""Every public module, in the order of the page; a name stands under the first that has it."""

SAID = {
    "CallEvent": "Any event of the call protocol.",
    "GroupBy": "The fields that rates of calls are grouped by.",
    "Handler": "The async function that does a tool's work.",
    "HTTP_RESPONSE_META_SCHEMA": "JSON Schema of an `HTTPResponseMeta`.",
    "LOCAL_RESPONSE_META_SCHEMA": "JSON Schema of a `LocalResponseMeta`.",
    "MCPContentBlock": "One block of what an MCP server answered.",
    "MCP_CONTENT_BLOCK_SCHEMA": "JSON Schema of an `MCPContentBlock`.",
    "MCP_RESPONSE_META_SCHEMA": "JSON Schema of an `MCPResponseMeta`.",
    "Policy": "What happens to an answer that breaks its schema.",
    "RESPONSE_ENVELOPE_SCHEMA": "JSON Schema of an envelope: `data` unknown, `meta` one of three.",
    "RESPONSE_META_SCHEMA": "JSON Schema of any meta.",
    "ResponseMeta": "How a result came.",
}
"""Sentences for names that have no string of their own in the code."""

CALLS = (
    ("Runtime", "execute", "a tool of this process; who calls is not asked"),
    ("Runtime", "execute_sync", "the same, for code without an event loop"),
    ("Runtime", "call", "the same for strangers: access is asked first"),
    ("Runtime", "subscribe", "the results of a subscription, one envelope for each"),
    ("Runtime", "stream", "the same for strangers: access is asked first"),
    ("Env", "__call__", "another tool, from inside a handler"),
    ("PendingRequestMap", "call", "a tool behind a bus, wherever it is"),
    ("PendingRequestMap", "subscribe", "a subscription behind a bus"),
)

RULES = """
`PendingRequestMap.respond(request_id, output)` requires an envelope: a raw value raises
`NotAnEnvelope`, which is a `TypeError`, and nothing is published. What `build_call_handler` gives
calls the tool, wraps what its handler returned and publishes `call.responded`; handlers return
values and publish nothing.
"""

_HOMES = {"PendingRequestMap": "callpact.protocol"}
_SHOWN = {("Env", "__call__"): "env.namespace.name"}


def api() -> str:
    """Every public name: its signature, its first sentence, its members."""
    lines = [
        "# API",
        "",
        (
            "Every public name, by the module that it is imported from, with its signature and what "
            "it is. `await` stands before what must be awaited."
        ),
    ]
    shown: set[str] = set()
    for module, about in PUBLIC.items():
        lines += ["", f"## {module}", "", about, ""]
        if module == "callpact":
            lines += [*_results(), "", " ".join(RULES.split()), ""]
        names = [name for name in import_module(module).__all__ if name not in shown]
        shown.update(names)
        for name in names:
            lines += _entry(name, module)
    return "\n".join(lines) + "\n"


def public_names() -> set[str]:
    """The names of all public modules."""
    return {name for module in PUBLIC for name in import_module(module).__all__}


def _results() -> Iterator[str]:
    yield "| call | gives | of |"
    yield "| --- | --- | --- |"
    for owner, method, what in CALLS:
        node = _member(owner, method, _HOMES.get(owner, "callpact"))
        label = _SHOWN.get((owner, method), f"{owner}.{method}")
        waits, returned = _returned(node)
        yield f"| `{waits}{label}(…)` | {_in_words(returned)} | {what} |"


def _in_words(returned: str) -> str:
    words = {
        "ResponseEnvelope[Any]": "a `ResponseEnvelope`",
        "AsyncGenerator[ResponseEnvelope[Any], None]": "an async generator of `ResponseEnvelope`",
    }
    return words[returned]


def _member(owner: str, name: str, module: str = "callpact") -> Function:
    body: list[ast.stmt] = getattr(_home(owner, module)[1], "body", [])
    return next(node for node in body if isinstance(node, Function) and node.name == name)


def _entry(name: str, public: str) -> Iterator[str]:
    module, node = _home(name, public)
    value: Any = getattr(import_module(public), name)
    said = SAID.get(name) or sentences(module).get(name) or ""
    if isinstance(node, Function):
        yield f"- `{_signature(node, name)}`: {_first_sentence(ast.get_docstring(node))}"
    elif isinstance(node, ast.ClassDef):
        yield f"- `{_constructor(value, node)}`{_bases(value)}: {_first_sentence(ast.get_docstring(node))}"
        yield from (f"  {line}" for line in _members(node))
    elif module.endswith(".properties"):
        call = _signature(_member("PropertyHelper", "__call__", module), name)
        yield f"- `{call}`: Writes a property of type `{value.kind}`."
    elif name.isupper():
        yield f"- `{name}`: {_first_sentence(said)}"
    else:
        yield f"- `{name} = {ast.unparse(node.value or node)}`: {_first_sentence(said)}"


def _first_sentence(text: str | None) -> str:
    found = re.match(r"(.+?\.)(?=\s|$)", " ".join((text or "").split()))
    if not found:
        raise LookupError(f"a sentence was expected, got {text!r}")
    return found[1]


def _signature(node: Function, name: str) -> str:
    waits, returned = _returned(node)
    return f"{waits}{name}({_parameters(node.args)}) -> {returned}"


def _returned(node: Function) -> tuple[str, str]:
    """Whether it must be awaited, and what it gives then."""
    returned = ast.unparse(node.returns) if node.returns else "None"
    wrapped = re.fullmatch(r"Awaitable\[(.+)\]|Coroutine\[Any, Any, (.+)\]", returned)
    if wrapped:
        return "await ", wrapped[1] or wrapped[2]
    if isinstance(node, ast.AsyncFunctionDef) and not returned.startswith("AsyncGenerator"):
        return "await ", returned
    return "", returned


def _parameters(arguments: ast.arguments) -> str:
    """What stands between the brackets, without `self`."""
    given = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(given) - len(arguments.defaults)), *arguments.defaults]
    shown = [_parameter(*pair) for pair in zip(given, defaults, strict=True)]
    if arguments.posonlyargs:
        shown.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg:
        shown.append(f"*{_parameter(arguments.vararg)}")
    elif arguments.kwonlyargs:
        shown.append("*")
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    shown += [_parameter(*pair) for pair in named]
    if arguments.kwarg:
        shown.append(f"**{_parameter(arguments.kwarg)}")
    if shown[:1] == ["self"]:
        shown = shown[2 if shown[1:2] == ["/"] else 1 :]
    return ", ".join(shown)


def _parameter(argument: ast.arg, default: ast.expr | None = None) -> str:
    kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    return f"{argument.arg}{kind}{_default_of(default)}"


def _constructor(value: type, node: ast.ClassDef) -> str:
    for base in value.__mro__:
        if not base.__module__.startswith("callpact"):
            break
        home = _home(base.__name__, base.__module__)[1]
        for item in getattr(home, "body", ()):
            if isinstance(item, Function) and item.name == "__init__":
                return f"{node.name}({_parameters(item.args)})"
    if issubclass(value, Struct):
        return f"{node.name}({', '.join(_fields(node))})"
    if is_dataclass(value):
        alone = ["*"] if fields(value)[0].kw_only else []
        return f"{node.name}({', '.join([*alone, *_fields(node)])})"
    return node.name


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        name = _target(item)
        if not isinstance(item, ast.AnnAssign) or not name or name.startswith("_"):
            continue
        kind = ast.unparse(item.annotation)
        if not kind.startswith("ClassVar"):
            yield f"{name}: {kind}{_default_of(item.value)}"


def _default_of(value: ast.expr | None) -> str:
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        if "default_factory" in given:
            return f" = {ast.unparse(given['default_factory']).partition('[')[0]}()"
        value = given.get("default")
    text = ast.unparse(value) if value else ""
    return f" = {'…' if text.startswith('_') else text}" if text else ""


def _bases(value: type) -> str:
    """The nearest public class above, and what it is for Python itself."""
    above = [base.__name__ for base in value.__mro__[1:] if base.__name__ in public_names()][:1]
    if above:
        above += [b.__name__ for b in value.__bases__ if b.__module__ == "builtins"]
    named = " and ".join(f"{'an' if name[0] in 'AEIO' else 'a'} `{name}`" for name in above)
    return f" ({named})" if named else ""


def _members(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        if not isinstance(item, Function):
            continue
        label = _SHOWN.get((node.name, item.name), item.name)
        if label.startswith("_") or "overload" in map(ast.unparse, item.decorator_list):
            continue
        said = _first_sentence(ast.get_docstring(item))
        if any(ast.unparse(mark) == "property" for mark in item.decorator_list):
            yield f"- `{label}: {_returned(item)[1]}`: {said}"
        else:
            yield f"- `{_signature(item, label)}`: {said}"
