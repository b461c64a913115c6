"""What a user's type checker sees. Read by pyright (strict), never run."""

from typing import Any, assert_type

from callpact import (
    CallFinished,
    Catalog,
    Context,
    Contract,
    ResponseEnvelope,
    Runtime,
    Tool,
    from_functions,
    local_envelope,
    tool,
    unwrap,
)
from callpact.errors import Issue
from callpact.schema import cast, check, fit


@tool(namespace="shop")
async def search(query: str, limit: int = 10) -> list[str]:
    """Search."""
    return [query] * limit


@tool
def plain(a: int) -> int:
    """Give it back."""
    return a


async def handler(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    context.logger.info("called")
    return arguments


async def main() -> None:
    assert_type(await search("tea", limit=3), list[str])
    assert_type(plain(1), int)
    assert_type(unwrap(local_envelope(3, "a.b")), int)
    events: list[CallFinished] = []
    echo = Tool(id="b.echo", description="Echo.", contract=Contract(), handler=handler)
    runtime = Runtime(Catalog([*from_functions(search, plain), echo]), observers=[events.append])
    assert_type(await runtime.execute("shop.search", {"query": "tea"}), ResponseEnvelope[Any])
    assert_type(check({}, 1), list[Issue])
    assert_type(cast({}, 1), Any)
    assert_type(fit({}, 1).value, Any)
