import asyncio
import contextvars
import enum
import functools
import importlib.machinery
import inspect
import threading
import typing
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, Optional
from uuid import UUID

import annotated_types
import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from typing_extensions import Doc, TypedDict

from callpact import from_functions, tool
from callpact.catalog import Catalog
from callpact.context import Context, Identity
from callpact.envelope import ResponseEnvelope, local_envelope
from callpact.errors import (
    AccessDenied,
    HandlerCrashed,
    InvalidInput,
    InvalidTool,
    OutputRejected,
    ToolError,
)
from callpact.runtime import Runtime
from callpact.sources import Tools
from callpact.sources.python.marker import options_of
from callpact.tool import Access, Call, Contract, Tool


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Address(BaseModel):
    street: str
    since: date | None = None


class Point(msgspec.Struct):
    x: int
    label: str = ""


class Timed(msgspec.Struct):
    when: date


@dataclass
class Size:
    width: int
    height: int = 1


class Options(TypedDict):
    fast: bool
    depth: int


class Options311(typing.TypedDict):
    fast: bool


class Pair(NamedTuple):
    left: int
    right: str


class Opaque:
    pass


def made(function: Any, **options: Any) -> Tool:
    (only,) = from_functions(function, **options)
    return only


def properties(function: Any) -> dict[str, Any]:
    return made(function).contract.input["properties"]


def run(function: Any, arguments: Any = None, **options: Any) -> ResponseEnvelope[Any]:
    built = made(function, **options)
    return asyncio.run(Runtime(Catalog([built])).execute(built.id, arguments or {}))


def received(annotation: Any, value: Any) -> Any:
    """What a function with one parameter of this type gets for a JSON value."""
    seen: list[Any] = []

    async def take(value) -> None:
        seen.append(value)

    take.__annotations__["value"] = annotation
    run(take, {"value": value})
    return seen[0]


def refused(annotation: Any, value: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        received(annotation, value)
    return caught.value


# --- marking and naming ---------------------------------------------------------------------


def test_a_marked_function_is_the_same_function():
    def add(a: int, b: int) -> int:
        return a + b

    assert tool(add) is add
    assert tool(namespace="math")(add) is add
    assert add(1, 2) == 3
    assert options_of(add)


def test_a_plain_function_is_not_marked_and_still_loads():
    async def ping() -> str:
        return "pong"

    assert not options_of(ping)
    assert run(ping).data == "pong"


def test_every_option_of_the_decorator_reaches_the_tool():
    @tool(
        namespace="shop",
        name="find",
        title="Find",
        description="Finds it.",
        tags=["a"],
        aliases=["old_find"],
        version="1.2",
        kind="query",
        access=["shop:read"],
        annotations={"readOnlyHint": True},
        policy="reject",
        input_policy="tolerant",
    )
    async def product_search(query: str) -> list[str]:
        """Another text."""
        return [query]

    built = made(product_search)
    assert built.id == "shop.find"
    assert (built.title, built.description, built.version) == ("Find", "Finds it.", "1.2")
    assert (built.tags, built.aliases, built.kind) == (("a",), ("old_find",), "query")
    assert (built.access, built.annotations) == (Access(("shop:read",)), {"readOnlyHint": True})
    assert (built.contract.policy, built.contract.input_policy) == ("reject", "tolerant")


def test_the_defaults_of_a_tool_are_mutation_exact_convert_and_open():
    async def f() -> int:
        return 1

    built = made(f)
    assert (built.kind, built.contract.input_policy) == ("mutation", "exact")
    assert (built.contract.policy, built.access) == ("convert", Access())


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, "abc"), (int, 1.5), (int, None), (bool, "yes"), (list[int], [1, "x"]), (str, 7)],
)
def test_a_function_that_breaks_its_return_type_fails_and_nothing_is_invented(annotation, value):
    with pytest.raises(OutputRejected):
        run(answering(annotation, value))


def test_a_function_without_a_checked_return_type_passes_its_answers():
    async def f():
        return {"any": "thing"}

    assert made(f).contract.policy == "pass"


def test_the_namespace_is_the_decorators_then_the_arguments_then_the_modules():
    @tool(namespace="own")
    async def first() -> None: ...

    async def second() -> None: ...

    assert made(first, namespace="given").id == "own.first"
    assert made(second, namespace="given").id == "given.second"
    assert made(second).id == "test_functions.second"
    second.__module__ = "__main__"
    assert made(second).id == "main.second"
    second.__module__ = "pkg.shop.tools"
    assert made(second).id == "tools.second"


@pytest.mark.parametrize(
    ("started", "name"),
    [
        ({"__name__": "__main__", "__file__": "/a/shop.py"}, "shop"),
        ({"__name__": "__mp_main__", "__file__": "/a/shop.py"}, "shop"),
        ({"__name__": "__main__", "__file__": "/a/my shop.v2.py"}, "my_shop_v2"),
        ({"__name__": "__main__", "__file__": "/a/shop/__init__.py"}, "shop"),
        ({"__name__": "__main__", "__file__": "/a/shop/__main__.py"}, "main"),
        ({"__name__": "__main__"}, "main"),
        ({"__name__": "__main__", "__file__": None}, "main"),
        (
            {
                "__name__": "__main__",
                "__file__": "/a/b.py",
                "__spec__": importlib.machinery.ModuleSpec("pkg.shop", None),
            },
            "shop",
        ),
        (
            {
                "__name__": "__main__",
                "__file__": "/a/pkg/__main__.py",
                "__spec__": importlib.machinery.ModuleSpec("pkg.__main__", None),
            },
            "main",
        ),
    ],
)
def test_the_file_that_was_started_is_named_as_if_it_was_imported(started, name):
    code = """
import functools
async def second() -> None: ...
class Third:
    async def __call__(self) -> None: ...
    async def method(self) -> None: ...
third = functools.partial(second)
"""
    exec(code, started)
    assert made(started["second"]).id == f"{name}.second"
    assert made(started["Third"]().method).id == f"{name}.method"


def test_the_source_is_module_and_qualname():
    async def f() -> None: ...

    assert made(f).source == f"{__name__}:{f.__qualname__}"


def test_the_policy_of_the_decorator_wins_over_the_argument():
    @tool(policy="warn")
    async def own() -> int:
        return 1

    async def other() -> int:
        return 1

    assert made(own, policy="reject").contract.policy == "warn"
    assert made(other, policy="reject").contract.policy == "reject"


def test_one_iterable_is_as_good_as_many_arguments():
    async def a() -> None: ...

    async def b() -> None: ...

    ids = ["test_functions.a", "test_functions.b"]
    assert [t.id for t in from_functions(a, b)] == ids
    assert [t.id for t in from_functions([a, b])] == ids
    assert [t.id for t in from_functions(f for f in (a, b))] == ids
    assert isinstance(from_functions(), Tools)
    assert from_functions() == []


def test_a_tool_among_functions_passes_as_it_is():
    async def handler(arguments, context):
        return 1

    given_tool = Tool(id="a.b", description="", contract=Contract(), handler=handler)
    assert from_functions(given_tool)[0] is given_tool
    assert from_functions([given_tool])[0] is given_tool


def test_methods_static_and_class_methods_work():
    class Shop:
        def __init__(self, name):
            self.name = name

        @tool
        async def bound(self, n: int) -> str:
            return f"{self.name}{n}"

        @tool(name="stat")
        @staticmethod
        def static(n: int) -> int:
            return n

        @tool
        @classmethod
        def klass(cls, n: int) -> str:
            return f"{cls.__name__}{n}"

    shop = Shop("s")
    tools = from_functions(shop.bound, shop.static, Shop.klass)
    assert [t.name for t in tools] == ["bound", "stat", "klass"]
    assert all(list(t.contract.input["properties"]) == ["n"] for t in tools)
    assert run(shop.bound, {"n": 1}).data == "s1"
    assert run(shop.static, {"n": 1}).data == 1
    assert run(Shop.klass, {"n": 1}).data == "Shop1"
    assert made(tool(name="given")(shop.bound)).name == "given"
    assert run(tool(name="given")(shop.bound), {"n": 2}).data == "s2"


def test_a_method_without_its_object_is_refused_with_the_remedy():
    with pytest.raises(InvalidTool, match="bound method"):
        from_functions(Greeter.greet)


class Greeter:
    """Greets."""

    def greet(self, name: str) -> str:
        return name

    def __call__(self, name: str) -> str:
        return f"hello {name}"


def test_a_callable_object_needs_a_name_and_then_works():
    with pytest.raises(InvalidTool, match="name"):
        from_functions(Greeter())
    named = tool(name="greet")(Greeter())
    assert made(named).description == "Greets."
    assert run(named, {"name": "x"}).data == "hello x"


def test_an_async_callable_object_is_awaited():
    class Later:
        __name__ = "later"

        async def __call__(self, n: int) -> int:
            return n + 1

    assert run(Later(), {"n": 1}).data == 2


def test_a_partial_needs_a_name_and_does_not_show_what_is_fixed():
    def send(token: str, text: str, key: str = "k") -> str:
        """Sends."""
        return token + text + key

    partial = functools.partial(send, "secret", key="hidden")
    with pytest.raises(InvalidTool, match="name"):
        from_functions(partial)
    named = tool(name="send")(partial)
    assert list(properties(named)) == ["text"]
    assert "hidden" not in repr(made(named).contract.input)
    assert made(named).description == "Sends."
    assert run(named, {"text": "T"}).data == "secretThidden"
    with pytest.raises(InvalidInput):
        run(named, {"text": "T", "key": "mine"})


def test_a_decorated_function_keeps_its_signature_and_its_marker():
    def twice(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    @twice
    @tool(name="inner")
    async def original(n: int) -> int:
        return n * 2

    assert made(original).name == "inner"
    assert run(original, {"n": 4}).data == 8


def test_a_cached_function_works():
    @functools.lru_cache
    def slow(n: int) -> int:
        return n

    assert run(slow, {"n": 1}).data == 1


# --- what cannot be a tool ------------------------------------------------------------------


def _generator(n: int):
    yield n


def _star(*args: int) -> None: ...


def _opaque(thing: Opaque) -> None: ...


def _callback(then: Callable[[], None]) -> None: ...


@pytest.mark.parametrize(
    ("given_value", "text"),
    [
        (Address, "class"),
        (lambda x: x, "lambda"),
        (_generator, "async def"),
        (_star, r"'\*args'"),
        (_opaque, "'thing' of type Opaque"),
        (_callback, "'then'"),
        ("text", "str"),
        (3, "int"),
        ({"a": 1}, "dict"),
        (None, "NoneType"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_by_name(given_value, text):
    with pytest.raises(InvalidTool, match=text):
        from_functions(given_value)


def test_a_refusal_names_the_function():
    with pytest.raises(InvalidTool, match=f"{__name__}:_opaque"):
        from_functions(_opaque)


def test_a_pattern_that_cannot_be_read_is_refused():
    def f(code: Annotated[str, Field(pattern="(")]): ...

    with pytest.raises(InvalidTool, match="'code'"):
        from_functions(f)


def test_a_lambda_with_a_name_works():
    assert run(tool(name="same")(lambda x: x), {"x": [1]}).data == [1]


def test_a_name_that_is_no_id_is_refused_with_the_function():
    @tool(name="not ok")
    async def f() -> None: ...

    with pytest.raises(InvalidTool, match=r"test_functions:.*not ok"):
        from_functions(f)


def test_an_unknown_policy_is_refused_with_the_function():
    @tool(policy="maybe")
    async def f() -> int:
        return 1

    with pytest.raises(InvalidTool, match=r"\.f: .*maybe"):
        from_functions(f)


@pytest.mark.parametrize("option", ["tags", "aliases", "access"])
def test_one_text_for_a_list_of_texts_is_refused(option):
    with pytest.raises(InvalidTool, match=option):
        tool(**{option: "abc"})


@pytest.mark.parametrize("access", [None, 3, b"abc", [""], [1], [["admin"]]])
def test_access_that_is_no_list_of_scopes_is_refused_where_it_is_declared(access):
    with pytest.raises(InvalidTool, match="access"):
        tool(access=access)


READER = Identity("reader", scopes=["read"], resources={"shop:1": ["view"]})


@pytest.mark.parametrize(
    ("access", "identity", "is_granted"),
    [
        (["read"], READER, True),
        (["read", "write"], READER, False),
        (["read"], None, False),
        ([], None, True),
        (Access(any_scopes=["write", "read"]), READER, True),
        (Access(any_scopes=["write", "own"]), READER, False),
        (Access(resource_type="shop", resource_action="view"), READER, True),
        (Access(resource_type="shop", resource_action="sell"), READER, False),
    ],
)
def test_the_access_of_the_decorator_is_asked_of_strangers(access, identity, is_granted):
    begun: list[str] = []

    async def one() -> int:
        begun.append("one")
        return 1

    async def many() -> AsyncIterator[int]:
        begun.append("many")
        yield 1

    mark = tool(namespace="a", access=access)
    runtime = Runtime(Catalog(from_functions(mark(one), mark(many))))

    async def main():
        if is_granted:
            assert (await runtime.call(Call("a.one"), identity)).data == 1
            assert [e.data async for e in runtime.stream(Call("a.many"), identity)] == [1]
        else:
            with pytest.raises(AccessDenied):
                await runtime.call(Call("a.one"), identity)
            with pytest.raises(AccessDenied):
                await anext(runtime.stream(Call("a.many"), identity))
            assert begun == []
        # Code of the same process is not asked.
        assert (await runtime.execute("a.one", identity=identity)).data == 1
        assert [e.data async for e in runtime.subscribe("a.many", identity=identity)] == [1]

    asyncio.run(main())


def test_an_iterable_of_scopes_is_read_once_for_every_function_it_marks():
    async def first() -> None: ...

    async def second() -> None: ...

    mark = tool(access=(scope for scope in ["read"]))
    assert [t.access for t in from_functions(mark(first), mark(second))] == [Access(["read"])] * 2


def test_two_parameters_under_one_alias_are_refused():
    def f(a: int = Field(alias="x"), b: int = Field(alias="x")): ...

    with pytest.raises(InvalidTool, match="'a' and 'b'"):
        from_functions(f)


# --- hints ----------------------------------------------------------------------------------


def test_hints_that_are_text_are_resolved():
    async def f(color: "Color", items: "list['Address']") -> "Address":
        return items[0]

    envelope = run(f, {"color": "red", "items": [{"street": "a"}]})
    assert envelope.data == {"street": "a", "since": None}


def test_a_type_of_the_enclosing_function_is_resolved_from_its_closure():
    class Local(BaseModel):
        n: int

    async def f(value: "Local") -> int:
        assert type(value) is Local
        return value.n

    assert run(f, {"value": {"n": 3}}).data == 3


def test_an_unresolvable_hint_names_function_parameter_and_remedy():
    async def f(good: int, bad: "Nowhere") -> None: ...  # noqa: F821

    with pytest.raises(InvalidTool) as caught:
        from_functions(f)
    text = str(caught.value)
    assert f.__qualname__ in text
    assert "'bad'" in text
    assert "TYPE_CHECKING" in text


def test_an_unresolvable_return_hint_is_a_warning():
    async def f() -> "Nowhere":  # noqa: F821
        return 1

    tools = from_functions(f)
    assert tools[0].contract.output is None
    assert [finding.severity for finding in tools.report] == ["warning"]
    assert run(f).data == 1


# --- input schema ---------------------------------------------------------------------------


def test_the_input_schema_is_one_closed_object_in_the_order_of_the_parameters():
    async def product_search(query: str, limit: int = 10, *, exact: bool = False): ...

    assert made(product_search).contract.input == {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer", "default": 10},
            "exact": {"type": "boolean", "default": False},
        },
        "required": ["query"],
        "additionalProperties": False,
    }


def test_a_function_without_parameters_takes_the_empty_object_only():
    async def now() -> int:
        return 1

    assert run(now).data == 1
    with pytest.raises(InvalidInput) as caught:
        run(now, {"x": 1})
    assert (caught.value.issues[0].code, caught.value.path) == ("additionalProperties", "/x")


def test_definitions_are_shared_between_parameters():
    async def f(a: Address, b: list[Address], c: Address | None = None): ...

    schema = made(f).contract.input
    assert list(schema["$defs"]) == ["Address"]
    assert schema["properties"]["a"] == {"$ref": "#/$defs/Address"}
    assert schema["properties"]["b"]["items"] == {"$ref": "#/$defs/Address"}


def test_a_struct_and_a_model_of_one_name_are_two_definitions():
    model = Address
    struct = msgspec.defstruct("Address", [("zip", int)])

    async def f(a: model, b: struct) -> list[str]:
        return [type(a).__module__, str(b.zip)]

    schema = made(f).contract.input
    references = [schema["properties"][name]["$ref"] for name in "ab"]
    assert len(set(references)) == len(schema["$defs"]) == 2
    assert run(f, {"a": {"street": "s"}, "b": {"zip": 1}}).data == [__name__, "1"]


def test_names_make_no_titles():
    async def f(first_name: str, home: Address): ...

    schema = made(f).contract.input
    assert "title" not in schema["properties"]["first_name"]
    assert "title" not in schema["$defs"]["Address"]["properties"]["street"]


def test_an_explicit_title_examples_and_deprecation_are_kept():
    async def f(
        a: Annotated[int, Field(title="An A", examples=[1], json_schema_extra={"x-unit": "kg"})],
        b: int = Field(1, deprecated=True),
    ): ...

    a, b = properties(f)["a"], properties(f)["b"]
    assert (a["title"], a["examples"], a["x-unit"]) == ("An A", [1], "kg")
    assert b["deprecated"] is True


@pytest.mark.parametrize(
    ("annotation", "good", "bad", "code"),
    [
        (Annotated[int, Field(ge=1, le=5)], 5, 6, "maximum"),
        (Annotated[int, annotated_types.Gt(0)], 1, 0, "exclusiveMinimum"),
        (Annotated[int, annotated_types.Interval(ge=2, lt=4)], 3, 4, "exclusiveMaximum"),
        (Annotated[str, Field(max_length=2)], "ab", "abc", "maxLength"),
        (Annotated[str, Field(pattern="^a+$")], "aa", "b", "pattern"),
        (Annotated[list[int], annotated_types.MinLen(1)], [1], [], "minItems"),
        (Annotated[int, msgspec.Meta(ge=3)], 3, 2, "minimum"),
        (Annotated[list[Point], Field(max_length=1)], [], [{"x": 1}, {"x": 2}], "maxItems"),
        (Literal["a", "b"], "a", "c", "enum"),
        (Color, "red", "green", "enum"),
        (int | None, None, "x", "type"),
        (dict[str, int], {"a": 1}, {"a": "b"}, "type"),
        (Address, {"street": "a"}, {}, "required"),
        (Point, {"x": 1}, {}, "required"),
        (Options, {"fast": True, "depth": 1}, {"fast": True}, "required"),
        (Options311, {"fast": True}, {"fast": 1}, "type"),
        (Size, {"width": 1}, {"width": "1"}, "type"),
        (Pair, [1, "a"], ["a", "a"], "type"),
    ],
)
def test_types_and_constraints_stand_in_the_schema(annotation, good, bad, code):
    received(annotation, good)
    error = refused(annotation, bad)
    assert error.issues[0].code == code
    assert error.path.startswith("/value")


def test_an_unannotated_parameter_takes_any_json():
    async def echo(value):
        return value

    assert properties(echo) == {"value": {}}
    for value in (None, 1, 1.5, "a", [1], {"a": [None]}, True):
        assert run(echo, {"value": value}).data == value


def test_a_constraint_in_the_default_is_checked_and_its_default_is_used():
    async def f(limit: int = Field(10, le=50, description="How many")) -> int:
        return limit

    expected = {"type": "integer", "maximum": 50, "description": "How many", "default": 10}
    assert properties(f) == {"limit": expected}
    assert run(f).data == 10
    assert run(f, {"limit": 50}).data == 50
    with pytest.raises(InvalidInput):
        run(f, {"limit": 51})


def test_a_field_without_a_default_is_required():
    async def f(a: int = Field(ge=1), b: Annotated[int, Field(default=2)] = 3) -> list[int]:
        return [a, b]

    assert made(f).contract.input["required"] == ["a"]
    assert run(f, {"a": 1}).data == [1, 3]


def test_a_default_inside_annotated_is_a_default():
    async def f(b: Annotated[int, Field(default=2)]) -> int:
        return b

    assert "required" not in made(f).contract.input
    assert run(f).data == 2


FRESH = Field(default_factory=list)


def test_a_default_factory_is_called_for_every_call():
    async def f(items: list[int] = FRESH) -> int:
        items.append(1)
        return len(items)

    assert "default" not in properties(f)["items"]
    assert [run(f).data, run(f).data] == [1, 1]


@pytest.mark.parametrize(
    ("annotation", "default", "published"),
    [
        (int, 3, {"default": 3}),
        (Color, Color.RED, {"default": "red"}),
        (date, date(2024, 1, 2), {"default": "2024-01-02"}),
        (int | None, None, {"default": None}),
        (int, None, {}),
        (Any, object(), {}),
        (SecretStr, SecretStr("hidden"), {}),
        (Address, Address(street="a"), {"default": {"street": "a", "since": None}}),
    ],
)
def test_a_default_is_published_where_it_is_json(annotation, default, published):
    async def f(value=default): ...

    f.__annotations__["value"] = annotation
    found = properties(f)["value"]
    assert {k: v for k, v in found.items() if k == "default"} == published


def test_a_default_that_is_not_given_is_the_functions_own_object():
    marker = object()

    async def f(value: Any = marker) -> bool:
        return value is marker

    assert run(f).data is True


def test_an_alias_is_the_name_in_json():
    async def f(from_: Annotated[int, Field(alias="from")], to: int = 2) -> list[int]:
        return [from_, to]

    assert list(properties(f)) == ["from", "to"]
    assert run(f, {"from": 1}).data == [1, 2]
    with pytest.raises(InvalidInput):
        run(f, {"from_": 1})


def test_aliases_may_cross():
    async def f(a: int = Field(alias="b"), b: int = Field(alias="a")) -> list[int]:
        return [a, b]

    assert run(f, {"a": 1, "b": 2}).data == [2, 1]


def test_positional_only_parameters_work_with_and_without_defaults():
    async def f(a: int, b: int = 2, c: int = 3, /, d: int = 4) -> list[int]:
        return [a, b, c, d]

    assert run(f, {"a": 1, "c": 9}).data == [1, 2, 9, 4]
    assert run(f, {"a": 1, "b": 5, "d": 6}).data == [1, 5, 3, 6]


def test_keyword_arguments_open_the_schema():
    async def f(a: int, **rest) -> dict[str, Any]:
        return {"a": a, **rest}

    assert made(f).contract.input["additionalProperties"] is True
    assert run(f, {"a": 1, "b": [2]}).data == {"a": 1, "b": [2]}


def test_typed_keyword_arguments_are_checked_and_typed():
    seen = {}

    async def f(**when: date) -> None:
        seen.update(when)

    assert made(f).contract.input["additionalProperties"]["type"] == "string"
    run(f, {"a": "2024-01-02"})
    assert seen == {"a": date(2024, 1, 2)}
    with pytest.raises(InvalidInput) as caught:
        run(f, {"a": "never"})
    assert caught.value.path == "/a"


ALIASED = Field(1, alias="q")


@pytest.mark.parametrize("name", ["context", "query", "self"])
def test_keyword_arguments_cannot_take_a_name_that_is_not_the_callers(name):
    class Thing:
        async def f(self, context: Context, query: int = ALIASED, **rest) -> int:
            return query

    with pytest.raises(InvalidInput) as caught:
        run(Thing().f, {name: "mine"})
    assert caught.value.issues[0].code == "propertyNames"
    assert run(Thing().f, {"q": 2, "other": 1}).data == 2


# --- context --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation",
    [Context, Context | None, Optional[Context], Annotated[Context, "it"]],  # noqa: UP045 - both spellings
)
def test_a_context_is_injected_and_is_not_in_the_schema(annotation):
    seen = []

    async def f(n: int, where=None) -> int:
        seen.append(where)
        return n

    f.__annotations__["where"] = annotation
    assert list(properties(f)) == ["n"]
    run(f, {"n": 1})
    assert seen[0].tool_id == "test_functions.f"
    with pytest.raises(InvalidInput):
        run(f, {"n": 1, "where": {}})


def test_a_context_behind_a_slash_is_refused():
    def f(context: Context, /): ...

    with pytest.raises(InvalidTool, match="'context'"):
        from_functions(f)


# --- descriptions ---------------------------------------------------------------------------


def google(query, limit=1):
    """Find products.

    By name or by number.

    Args:
        query (str): What to look
            for.
        limit: How many.

    Returns:
        A list.

    Raises:
        ValueError: never.
    """


def numpy(query, limit=1):
    """Find products.

    By name or by number.

    Parameters
    ----------
    query : str
        What to look
        for.
    limit : int, optional
        How many.

    Returns
    -------
    list
        A list.
    """


def rest(query, limit=1):
    """Find products.

    By name or by number.

    :param query: What to look
        for.
    :param limit: How many.
    :type limit: int
    :returns: A list.
    :raises ValueError: never.
    """


@pytest.mark.parametrize("function", [google, numpy, rest])
def test_docstrings_of_three_styles_describe_function_and_parameters(function):
    built = made(function)
    assert built.description == "Find products.\n\nBy name or by number."
    found = built.contract.input["properties"]
    assert found["query"]["description"] == "What to look for."
    assert found["limit"]["description"] == "How many."


def test_a_docstring_without_sections_is_taken_whole():
    async def f():
        """One: line.

        And a list:

        - a: b
        """

    assert made(f).description == "One: line.\n\nAnd a list:\n\n- a: b"


def test_without_a_docstring_the_name_speaks():
    async def product_search(): ...

    assert made(product_search).description == "product search"


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[int, "Mine"],
        Annotated[int, Doc("Mine")],
        Annotated[int, Field(description="Mine")],
        Annotated[int, "Not mine", Field(description="Mine")],
        Annotated[Point, "Mine"],
    ],
)
def test_a_description_in_the_annotation_wins_over_the_docstring(annotation):
    async def f(n):
        """Do.

        Args:
            n: Theirs.
        """

    f.__annotations__["n"] = annotation
    assert properties(f)["n"]["description"] == "Mine"


# --- typed arguments ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, 7.0, 7),
        (int | None, 7.0, 7),
        (int | str, 7.0, 7),
        (float, 7, 7.0),
        (float, 1.5, 1.5),
        (int | float, 7.0, 7.0),
        (list[int], [1, 2.0], [1, 2]),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (dict[str, int], {"a": 2.0}, {"a": 2}),
        (list[list[int]], [[1.0]], [[1]]),
        (Literal[1, 2], 1.0, 1),
        (Level, 2.0, Level.HIGH),
        (Annotated[int, Field(strict=True)], 3.0, 3),
        (Point, {"x": 3.0}, Point(3)),
        (list[Point], [{"x": 1, "label": "a"}], [Point(1, "a")]),
        (Point | None, None, None),
        (Color, "red", Color.RED),
        (date, "2024-01-02", date(2024, 1, 2)),
        (datetime, "2024-01-02T03:04:05", datetime(2024, 1, 2, 3, 4, 5)),
        (Decimal, "1.10", Decimal("1.10")),
        (
            UUID,
            "12345678-1234-5678-1234-567812345678",
            UUID(int=0x12345678123456781234567812345678),
        ),
        (
            Address,
            {"street": "a", "since": "2024-01-02"},
            Address(street="a", since=date(2024, 1, 2)),
        ),
        (Size, {"width": 2}, Size(2, 1)),
        (Pair, [1, "b"], Pair(1, "b")),
        (set[int], [1, 2], {1, 2}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (Options, {"fast": True, "depth": 1}, {"fast": True, "depth": 1}),
        (Options311, {"fast": True}, {"fast": True}),
        (Annotated[str, AfterValidator(str.upper)], "a", "A"),
        (list[Annotated[date, "x"]], ["2024-01-02"], [date(2024, 1, 2)]),
    ],
)
def test_functions_get_typed_arguments(annotation, value, expected):
    got = received(annotation, value)
    assert got == expected
    assert type(got) is type(expected)
    if isinstance(got, list):
        assert [type(item) for item in got] == [type(item) for item in expected]


class Tree(BaseModel):
    value: int
    children: list["Tree"] = []


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]
    born: date


def test_a_recursive_model_works():
    tree = received(Tree, {"value": 1, "children": [{"value": 2}]})
    assert tree == Tree(value=1, children=[Tree(value=2)])
    assert refused(Tree, {"value": 1, "children": [{}]}).path == "/value/children/0/value"


def test_a_discriminated_union_works_and_its_tag_is_no_part_of_a_path():
    union = Annotated[Cat | Dog, Field(discriminator="kind")]
    assert received(union, {"kind": "cat"}) == Cat(kind="cat")
    assert refused(union, {"kind": "dog", "born": "x"}).path == "/value/born"


def test_a_strict_model_takes_dates_as_json_has_them():
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        when: date
        n: int

    assert received(Strict, {"when": "2024-01-02", "n": 1.0}).when == date(2024, 1, 2)


def test_an_integer_beyond_64_bits_reaches_a_model():
    class Big(BaseModel):
        n: int

    assert received(Big, {"n": 10**30}).n == 10**30


@pytest.mark.parametrize(
    "annotation",
    [str, bool, Any, list[str], dict[str, Any], dict, list, list[list[str]], str | None],
)
def test_values_that_are_right_already_are_passed_as_the_same_object(annotation):
    values = {str: "text" * 9, bool: True, Any: [1], list[str]: ["a"], dict: {"a": 1}, list: [1]}
    value = values.get(annotation)
    if value is None:
        value = {dict[str, Any]: {"a": 1}, list[list[str]]: [["a"]]}.get(annotation, "t" * 9)
    assert received(annotation, value) is value


def test_arguments_are_left_as_they_were_given():
    async def f(n: int, a: Address) -> None: ...

    arguments = {"n": 1.0, "a": {"street": "s"}}
    run(f, arguments)
    assert arguments == {"n": 1.0, "a": {"street": "s"}}
    assert type(arguments["n"]) is float


@pytest.mark.parametrize(
    ("annotation", "value", "code", "path"),
    [
        (date, "tomorrow", "date_from_datetime_parsing", "/value"),
        (list[date], ["2024-01-02", "x"], "date_from_datetime_parsing", "/value/1"),
        (Address, {"street": "a", "since": "x"}, "date_from_datetime_parsing", "/value/since"),
        (
            Address | int,
            {"street": "a", "since": "x"},
            "date_from_datetime_parsing",
            "/value/since",
        ),
        (Timed, {"when": "x"}, "convert", "/value/when"),
        (list[Timed], [{"when": "x"}], "convert", "/value/0/when"),
        (float, 10**400, "convert", "/value"),
    ],
)
def test_what_keeps_the_schema_but_not_the_type_is_invalid_input(annotation, value, code, path):
    error = refused(annotation, value)
    assert error.code == "schema_validation_failed"
    assert code in {issue.code for issue in error.issues if issue.path == path}


def test_a_refusal_is_told_in_our_form_without_a_link():
    message = refused(date, "tomorrow").message
    assert message.startswith("Property 'value' must be a valid date")
    assert message.endswith(", got 'tomorrow'")
    assert "pydantic" not in message
    assert refused(list[date], ["x"]).message.startswith("Item 0 of 'value' must ")


def test_the_words_of_a_validator_reach_the_caller():
    def even(n: int) -> int:
        if n % 2:
            raise ValueError("must be even")
        return n

    error = refused(Annotated[int, AfterValidator(even)], 3)
    assert error.message == "Property 'value' must be even, got 3"
    assert error.issues[0].code == "value_error"


def test_all_refused_parameters_are_told_at_once():
    async def f(a: date, b: UUID) -> None: ...

    with pytest.raises(InvalidInput) as caught:
        run(f, {"a": "x", "b": "y"})
    assert [issue.path for issue in caught.value.issues] == ["/a", "/b"]


class Login(BaseModel):
    user: str
    password: SecretStr
    since: date | None = None

    @field_validator("password")
    @classmethod
    def _long(cls, value: SecretStr) -> SecretStr:
        if len(value.get_secret_value()) < 8:
            raise ValueError(f"too short: {value.get_secret_value()}")
        return value

    @model_validator(mode="after")
    def _other(self):
        if self.user == self.password.get_secret_value():
            raise ValueError(f"{self.password.get_secret_value()} is the user")
        return self


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"user": "u", "password": "s3cr3t"}, "/value/password"),
        ({"user": "s3cr3t-long", "password": "s3cr3t-long"}, "/value"),
    ],
)
def test_a_secret_never_stands_in_an_issue(value, path):
    error = refused(Login, value)
    assert error.path == path
    assert "s3cr3t" not in repr(error.issues)
    assert "s3cr3t" not in str(error)


def test_beside_a_secret_the_place_and_the_rule_are_still_told():
    error = refused(Login, {"user": "u", "password": "long-enough", "since": "x"})
    assert error.path == "/value/since"
    assert "valid date" in error.message


def test_a_secret_among_keyword_arguments_is_hidden_too():
    def never(value: SecretStr) -> SecretStr:
        raise ValueError(f"not {value.get_secret_value()}")

    async def f(**tokens: Annotated[SecretStr, AfterValidator(never)]) -> None: ...

    with pytest.raises(InvalidInput) as caught:
        run(f, {"a": "s3cr3t"})
    assert caught.value.path == "/a"
    assert "s3cr3t" not in repr(caught.value.issues)


def test_a_parameter_marked_write_only_is_hidden_and_shows_no_default():
    async def f(day: date = WRITE_ONLY) -> None: ...

    assert "default" not in properties(f)["day"]
    with pytest.raises(InvalidInput) as caught:
        run(f, {"day": "s3cr3t"})
    assert "s3cr3t" not in repr(caught.value.issues)


WRITE_ONLY = Field(date(2024, 1, 2), json_schema_extra={"writeOnly": True})


def test_a_secret_reaches_the_function():
    assert received(SecretStr, "abc").get_secret_value() == "abc"


# --- output ---------------------------------------------------------------------------------


def answering(annotation: Any, value: Any, **options: Any) -> Any:
    async def answer():
        return value

    answer.__annotations__["return"] = annotation
    return tool(**options)(answer)


@pytest.mark.parametrize(
    ("annotation", "value", "data"),
    [
        (
            Address,
            Address(street="a", since=date(2024, 1, 2)),
            {"street": "a", "since": "2024-01-02"},
        ),
        (list[Address], [Address(street="a")], [{"street": "a", "since": None}]),
        (Point, Point(1), {"x": 1, "label": ""}),
        (list[Timed], [Timed(date(2024, 1, 2))], [{"when": "2024-01-02"}]),
        (Size, Size(1), {"width": 1, "height": 1}),
        (Color, Color.BLUE, "blue"),
        (datetime, datetime(2024, 1, 2), "2024-01-02T00:00:00"),
        (dict[str, Any], {"a": [1]}, {"a": [1]}),
        (Options, {"fast": True, "depth": 1}, {"fast": True, "depth": 1}),
        (dict[int, str], {1: "a"}, {"1": "a"}),
        (set[int], {1}, [1]),
        (Pair, Pair(1, "a"), [1, "a"]),
        (None, None, None),
        (Address | None, None, None),
        (float, 1.5, 1.5),
    ],
)
def test_answers_are_plain_json_that_keeps_the_output_schema(annotation, value, data):
    function = answering(annotation, value)
    envelope = run(function, policy="reject")
    assert envelope.data == data
    assert type(envelope.data) is type(data)
    assert envelope.warnings == ()
    jsonschema.Draft202012Validator(made(function).contract.output).validate(data)


def test_the_output_schema_is_the_one_of_serialization():
    class Row(BaseModel):
        model_config = ConfigDict(populate_by_name=True)
        n: int = Field(1, serialization_alias="count")

    output = made(answering(Row, None)).contract.output
    assert list(output.get("properties") or output["$defs"]["Row"]["properties"]) == ["count"]
    assert run(answering(Row, Row(n=2)), policy="reject").data == {"count": 2}


def test_none_as_return_type_promises_null():
    async def f() -> None: ...

    assert made(f).contract.output == {"type": "null"}


@pytest.mark.parametrize(
    "annotation",
    [inspect.Parameter.empty, Any, object, bytes, ResponseEnvelope, typing.NoReturn, bytes | None],
)
def test_some_return_types_promise_nothing(annotation):
    async def f():
        return b"x"

    if annotation is not inspect.Parameter.empty:
        f.__annotations__["return"] = annotation
    tools = from_functions(f)
    assert tools[0].contract.output is None
    assert tools[0].contract.policy == "pass"
    assert tools.report == ()
    assert run(f).data == b"x"


def test_an_envelope_is_judged_by_its_data():
    value = local_envelope(Address(street="a"), "x.y")
    function = answering(ResponseEnvelope[Address], value)
    assert "street" in repr(made(function).contract.output)
    envelope = run(function, policy="reject")
    assert envelope.data == {"street": "a", "since": None}
    assert envelope.meta == value.meta


def test_a_dict_instead_of_a_model_goes_to_the_gate_as_it_is():
    right = {"street": "a", "since": None}
    assert run(answering(Address, right), policy="reject").data == right
    wrong = {"street": 5, "extra": 1}
    with pytest.raises(OutputRejected) as caught:
        run(answering(Address, wrong), policy="reject")
    assert caught.value.path == "/street"
    cast = run(answering(Address, wrong), policy="cast")
    assert "extra" not in cast.data
    assert "type" in {issue.code for issue in cast.warnings}


@pytest.mark.parametrize("annotation", [Address, Point, Size, list[Address]])
def test_an_answer_of_another_kind_is_judged_not_crashed(annotation):
    for value in (None, 3, "text", [1], {"a": 1}):
        with pytest.raises(OutputRejected):
            run(answering(annotation, value), policy="reject")


def test_an_object_that_is_not_json_is_an_output_failure():
    for annotation in (Address, Point):
        with pytest.raises(OutputRejected):
            run(answering(annotation, object()))


def test_bytes_are_never_made_text_by_a_dump():
    assert run(answering(bytes | Address, b"\xff")).data == b"\xff"


def test_an_output_type_without_a_schema_is_kept_with_a_warning():
    tools = from_functions(answering(Opaque, {"a": 1}))
    assert tools[0].contract.output is None
    (finding,) = tools.report
    assert (finding.severity, finding.place) == ("warning", tools[0].source)
    assert "Opaque" in finding.message
    assert run(answering(Opaque, {"a": 1})).data == {"a": 1}


def test_an_answer_of_the_wrong_type_is_cast_by_default():
    envelope = run(answering(int, "12"))
    assert envelope.data == 12
    assert envelope.warnings


# --- running --------------------------------------------------------------------------------


def test_a_sync_function_runs_in_a_thread_with_the_callers_context_variables():
    variable = contextvars.ContextVar("variable", default="unset")

    def f() -> list[Any]:
        return [variable.get(), threading.current_thread() is threading.main_thread()]

    built = made(f)

    async def story():
        variable.set("carried")
        return await Runtime(Catalog([built])).execute(built.id)

    assert asyncio.run(story()).data == ["carried", False]


def test_an_async_function_runs_in_the_loop():
    async def f() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert run(f).data is True


def test_a_stop_iteration_in_a_thread_ends_the_call():
    def first(items: list[int]) -> int:
        return next(iter(items))

    async def story():
        built = made(first)
        call = Runtime(Catalog([built])).execute(built.id, {"items": []})
        return await asyncio.wait_for(call, 30)

    with pytest.raises(HandlerCrashed):
        asyncio.run(story())


@pytest.mark.parametrize("is_async", [True, False])
def test_a_tool_error_passes_and_anything_else_is_left_to_the_runtime(is_async):
    def fail(kind: str) -> int:
        raise ToolError("sold_out", "Sold out") if kind == "tool" else KeyError("x")

    async def fail_later(kind: str) -> int:
        return fail(kind)

    function = fail_later if is_async else fail
    with pytest.raises(ToolError) as caught:
        run(function, {"kind": "tool"})
    assert caught.value.code == "sold_out"
    with pytest.raises(HandlerCrashed):
        run(function, {"kind": "other"})


def test_a_serializer_that_breaks_is_a_crash_of_the_tool():
    from pydantic import field_serializer

    class Broken(BaseModel):
        n: int

        @field_serializer("n")
        def _n(self, value: int) -> int:
            raise RuntimeError("inside")

    with pytest.raises(HandlerCrashed):
        run(answering(Broken, Broken(n=1)))


def test_one_bad_function_loads_nothing():
    async def good() -> None: ...

    with pytest.raises(InvalidTool):
        from_functions(good, _opaque)


# --- the law --------------------------------------------------------------------------------

ANNOTATIONS = [
    str,
    int,
    float,
    bool,
    Any,
    int | None,
    int | str,
    list[int],
    list[str],
    dict[str, float],
    list[dict[str, int]],
    Literal["a", "b", 1],
    Color,
    Level,
    Annotated[int, Field(ge=0, lt=10)],
    Annotated[str, Field(min_length=1, max_length=3)],
    Annotated[list[bool], Field(max_length=2)],
    Size,
    Point,
    list[Point] | None,
    Options,
    Options311,
    Pair,
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.floats(-3, 12).map(lambda number: round(number, 1))
    | st.sampled_from(["", "a", "b", "red", "long text"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["x", "label", "width", "height", "fast", "depth"]), inner, max_size=3
        )
    ),
    max_leaves=4,
)
LIKELY = {
    Size: st.fixed_dictionaries({"width": SCALARS}, optional={"height": SCALARS}),
    Point: st.fixed_dictionaries({"x": SCALARS}, optional={"label": SCALARS}),
    Options: st.fixed_dictionaries({"fast": st.booleans(), "depth": SCALARS}),
    Pair: st.tuples(SCALARS, SCALARS).map(list),
}


@st.composite
def calls(draw):
    """A signature of a few parameters, and arguments that may or may not keep it."""
    parameters, arguments = [], {}
    for index in range(draw(st.integers(1, 3))):
        annotation = draw(st.sampled_from(ANNOTATIONS))
        required = draw(st.booleans())
        name = f"p{index}"
        default = inspect.Parameter.empty if required else None
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
            )
        )
        if draw(st.integers(0, 5)):
            arguments[name] = draw(LIKELY.get(annotation, VALUES) | VALUES)
    if not draw(st.integers(0, 9)):
        arguments["stranger"] = 1
    return inspect.Signature(parameters), arguments


@given(calls())
def test_what_the_schema_admits_reaches_the_function_and_nothing_else(call):
    signature, arguments = call
    reached = []

    async def function(**values):
        reached.append(values)

    function.__signature__ = signature
    built = made(function)
    admitted = jsonschema.Draft202012Validator(built.contract.input).is_valid(arguments)
    try:
        asyncio.run(Runtime(Catalog([built])).execute(built.id, arguments))
    except InvalidInput:
        assert not reached
    assert bool(reached) == admitted
    if reached:
        assert set(reached[0]) == set(arguments)
        for name, value in reached[0].items():
            annotation = signature.parameters[name].annotation
            if isinstance(annotation, type) and annotation not in {Any, Options, Options311}:
                assert isinstance(value, typing.get_origin(annotation) or annotation)


# --- keys inside models ---------------------------------------------------------------------


def test_an_unknown_key_inside_a_model_is_rejected_with_the_nearest_one():
    class Line(BaseModel):
        sku: str

    async def order(lines: list[Line]) -> int:
        return len(lines)

    runtime = Runtime(Catalog(from_functions(order, namespace="t")))
    with pytest.raises(InvalidInput) as caught:
        asyncio.run(runtime.execute("t.order", {"lines": [{"sku": "a", "skuu": "b"}]}))
    (issue,) = caught.value.issues
    assert (issue.code, issue.path) == ("additionalProperties", "/lines/0/skuu")
    assert "'sku'" in issue.hint


def test_a_model_that_allows_extra_keys_gets_them():
    class Line(BaseModel):
        model_config = ConfigDict(extra="allow")
        sku: str

    async def order(line: Line) -> int:
        return line.count

    runtime = Runtime(Catalog(from_functions(order, namespace="t")))
    call = runtime.execute("t.order", {"line": {"sku": "a", "count": 3}})
    assert asyncio.run(call).data == 3
