"""Declarations: a Tool or Contract is right when it is made, and stays so."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import re
import zlib
from types import MappingProxyType

import pytest

from callpact.context import Context, Env, Identity
from callpact.errors import InvalidSchema, InvalidTool, UsageError
from callpact.gate import admit
from callpact.schema import compile_schema
from callpact.tool import OPEN, Access, Call, Contract, DeclaredSchemas, Tool, wire_name

CLOSED = {"type": "object", "properties": {"q": {"type": "string"}}, "additionalProperties": False}


async def _handler(arguments, context):
    return arguments


def _tool(**changes):
    fields = {
        "id": "shop.search",
        "description": "Find products.",
        "contract": Contract(),
        "handler": _handler,
    }
    return Tool(**{**fields, **changes})


# --- tools ----------------------------------------------------------------------------------


def test_a_tool_knows_its_namespace_its_name_and_its_wire_name():
    tool = _tool(id="shop.File.search")
    assert (tool.namespace, tool.name, tool.wire_name) == (
        "shop",
        "File.search",
        "shop_File_search",
    )


def test_a_tool_cannot_be_changed():
    tool = _tool()
    with pytest.raises(dataclasses.FrozenInstanceError):
        tool.id = "other.id"
    with pytest.raises(dataclasses.FrozenInstanceError):
        tool.contract.policy = "pass"


@pytest.mark.parametrize(
    "bad",
    ["search", "", ".", "shop.", ".search", "shop..search", "shop search", "shop.a/b", 5, None],
)
def test_an_id_that_is_not_namespace_and_name_is_refused(bad):
    with pytest.raises(
        InvalidTool, match=re.escape("namespace.name' in letters, digits")
    ) as caught:
        _tool(id=bad)
    assert repr(bad) in str(caught.value)


@pytest.mark.parametrize(
    ("field", "bad", "words"),
    [
        ("description", None, "description must be text"),
        ("description", 5, "description must be text"),
        ("contract", {"input": {}}, "contract must be a Contract, got dict"),
        ("contract", None, "contract must be a Contract, got NoneType"),
        (
            "handler",
            None,
            "handler must be an async function of (arguments, context), got NoneType",
        ),
        ("handler", "shop:search", "handler must be an async function"),
        ("title", 5, "title must be text or None, got 5"),
        ("version", 1.0, "version must be text or None, got 1.0"),
        ("source", None, "source must be text, got None"),
        ("kind", "procedure", "kind must be one of query, mutation, subscription, interactive"),
        ("kind", ["query"], "kind must be one of"),
        ("tags", "search", "tags must be a list or tuple, got 'search'"),
        ("tags", 5, "tags must be a list or tuple, got 5"),
        ("tags", ["a", 5], "tags must be a list or tuple of texts"),
        ("aliases", "old", "aliases must be a list or tuple, got 'old'"),
        ("aliases", [""], "aliases must be a list or tuple of texts that are not empty"),
        ("aliases", [None], "aliases must be a list or tuple of texts"),
        ("examples", {"q": "tea"}, "examples must be a list or tuple"),
        ("annotations", ["readOnlyHint"], "annotations must be a mapping"),
        ("timeout", 0, "timeout must be a positive number of seconds or None, got 0"),
        ("timeout", -1.5, "timeout must be a positive number"),
        ("timeout", float("nan"), "timeout must be a positive number"),
        ("timeout", True, "timeout must be a positive number"),
        ("timeout", "10s", "timeout must be a positive number"),
        ("wire_name", "shop.search", "wire_name must be at most 64 letters"),
        ("wire_name", "x" * 65, "wire_name must be at most 64 letters"),
        ("wire_name", 5, "wire_name must be at most 64 letters"),
    ],
)
def test_every_bad_field_has_an_error_of_its_own_that_names_the_tool(field, bad, words):
    with pytest.raises(InvalidTool) as caught:
        _tool(**{field: bad})
    assert str(caught.value).startswith("tool 'shop.search': ")
    assert words in str(caught.value)


def test_lists_become_tuples_and_mappings_copies_so_that_nobody_changes_a_tool_from_outside():
    tags, notes, examples = ["a"], {"readOnlyHint": True}, [{"q": "tea"}]
    tool = _tool(tags=tags, annotations=notes, examples=examples, aliases=["old_name"])
    tags.append("b")
    notes.clear()
    examples.clear()
    assert tool.tags == ("a",)
    assert tool.aliases == ("old_name",)
    assert tool.annotations == {"readOnlyHint": True}
    assert tool.examples == ({"q": "tea"},)


def test_tools_can_stand_in_a_set():
    tool = _tool()
    assert len({tool, tool, _tool(id="shop.other")}) == 2


# --- wire names -----------------------------------------------------------------------------


def test_a_short_name_is_kept_and_foreign_characters_become_underscores():
    assert wire_name("shop_search") == "shop_search"
    assert wire_name("shop/Größe::x") == "shop_Gr__e__x"
    assert wire_name("x" * 64) == "x" * 64


def test_a_long_name_is_cut_to_64_characters_with_a_stable_hash():
    long = "shop_" + "search_" * 20
    name = wire_name(long)
    assert len(name) == 64
    assert name[:55] == long[:55]
    # CRC-32 of the text, eight hex digits: the same on every machine and in every run.
    assert name[55:] == f"_{zlib.crc32(long.encode()):08x}"
    assert wire_name(long) == name
    assert wire_name(long + "2") != name


def test_a_given_wire_name_is_kept():
    assert _tool(wire_name="search_shop").wire_name == "search_shop"


# --- contracts ------------------------------------------------------------------------------


def test_without_an_output_schema_the_policy_is_pass_and_with_one_it_is_cast():
    assert Contract().policy == "pass"
    assert Contract(output={"type": "object"}).policy == "cast"
    assert Contract(output={"type": "object"}, policy="warn").policy == "warn"


@pytest.mark.requirement("001.output.unknown-is-skipped")
@pytest.mark.parametrize("unknown", [None, True, {}, {"title": "T", "description": "d"}])
def test_an_output_schema_that_says_nothing_counts_as_none(unknown):
    contract = Contract(output=unknown)
    assert contract.compiled_output is None
    assert contract.policy == "pass"
    assert contract.output == unknown


@pytest.mark.parametrize("policy", ["strict", "", 5, ["cast"], "CAST"])
def test_an_unknown_policy_is_refused_with_the_known_ones(policy):
    with pytest.raises(
        InvalidTool, match="policy must be one of pass, warn, cast, convert, reject"
    ):
        Contract(output={"type": "object"}, policy=policy)


def test_an_unknown_input_policy_is_refused_with_the_known_ones():
    with pytest.raises(InvalidTool, match="input_policy must be one of exact, tolerant"):
        Contract(input_policy="lenient")


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "str"}, "/type"),
        ({"type": "object", "properties": {"q": {"minLength": -1}}}, "/properties/q/minLength"),
        ({"properties": {"q": 5}}, "/properties/q"),
        ({"enum": {1, 2}}, "/enum"),
        ([], ""),
        ("object", ""),
        (5, ""),
    ],
)
def test_a_schema_that_cannot_be_compiled_is_refused_with_its_place(side, schema, path):
    with pytest.raises(InvalidSchema) as caught:
        Contract(**{side: schema})
    assert caught.value.path == path


def test_a_reference_to_the_network_is_never_fetched():
    with pytest.raises(InvalidSchema):
        Contract(input={"$ref": "https://example.com/schema.json"})


def test_changing_the_schemas_that_were_passed_in_changes_nothing():
    given, unknown = {**CLOSED, "properties": {"q": {"type": "string"}}}, {"title": "anything"}
    contract = Contract(input=given, output=given)
    loose = Contract(output=unknown)
    given["properties"]["q"]["type"] = "integer"
    given["required"] = ["x"]
    unknown["type"] = "object"
    assert contract.input == CLOSED
    assert contract.output == CLOSED
    assert loose.output == {"title": "anything"}
    assert admit(_tool(contract=contract), {"q": "tea"}).arguments == {"q": "tea"}


def test_another_policy_gives_another_contract_that_shares_what_is_compiled():
    contract = Contract(input=CLOSED, output=CLOSED, input_policy="tolerant", formats=True)
    strict = contract.with_policy("reject")
    assert (contract.policy, strict.policy) == ("cast", "reject")
    assert strict.compiled_input is contract.compiled_input
    assert strict.compiled_output is contract.compiled_output
    assert (strict.input, strict.output) == (contract.input, contract.output)
    assert (strict.input_policy, strict.formats) == ("tolerant", True)
    assert contract.with_policy("cast") is contract
    with pytest.raises(InvalidTool):
        contract.with_policy("loose")


def test_a_contract_takes_schemas_that_are_compiled_already():
    compiled = compile_schema(CLOSED)
    assert Contract(input=compiled).compiled_input is compiled
    assert Contract(input=compiled).input == CLOSED


def test_contracts_with_the_same_content_are_equal():
    assert Contract(input=CLOSED) == Contract(input=dict(CLOSED))
    assert Contract(input=CLOSED) != Contract(input=CLOSED, policy="warn")


def test_a_context_has_a_logger_named_after_its_tool():
    assert Context(call_id="1", tool_id="shop.search").logger.name == "callpact.tool.shop.search"


# --- kinds and handlers ---------------------------------------------------------------------


async def _stream(arguments, context):
    yield arguments


class _Object:
    """Handlers that are objects and methods."""

    async def __call__(self, arguments, context):
        return arguments

    async def stream(self, arguments, context):
        yield arguments

    @staticmethod
    async def static_stream(arguments, context):
        yield arguments


class _StreamObject:
    async def __call__(self, arguments, context):
        yield arguments


STREAMS = {
    "function": _stream,
    "partial": functools.partial(_stream, context=None),
    "partial of a partial": functools.partial(functools.partial(_stream), context=None),
    "method": _Object().stream,
    "static method": _Object.static_stream,
    "object": _StreamObject(),
    "partial of an object": functools.partial(_StreamObject(), context=None),
}
ANSWERS = {
    "function": _handler,
    "partial": functools.partial(_handler, context=None),
    "object": _Object(),
    "sync function": lambda arguments, context: arguments,
    "partial of an object": functools.partial(_Object(), context=None),
}


@pytest.mark.parametrize("name", STREAMS)
def test_an_async_generator_is_the_handler_of_a_subscription_and_of_nothing_else(name):
    assert _tool(kind="subscription", handler=STREAMS[name]).kind == "subscription"
    for kind in ("query", "mutation", "interactive"):
        with pytest.raises(InvalidTool, match="kind must be 'subscription'"):
            _tool(kind=kind, handler=STREAMS[name])


@pytest.mark.parametrize("name", ANSWERS)
def test_a_handler_with_one_answer_is_of_every_kind_but_a_subscription(name):
    for kind in ("query", "mutation", "interactive"):
        assert _tool(kind=kind, handler=ANSWERS[name]).kind == kind
    with pytest.raises(InvalidTool, match="handler must be an async generator function"):
        _tool(kind="subscription", handler=ANSWERS[name])


# --- access ---------------------------------------------------------------------------------


def test_a_tool_without_access_is_open_to_everybody():
    assert _tool().access is OPEN
    assert Access() == OPEN


def test_a_list_of_scopes_is_short_for_an_access_that_needs_them_all():
    for scopes in (["a", "b"], ("a", "b")):
        assert _tool(access=scopes).access == Access(scopes=("a", "b"))
    assert _tool(access=[]).access == OPEN
    full = Access(any_scopes=["a"], resource_type="project", resource_action="read")
    assert _tool(access=full).access is full


@pytest.mark.parametrize("field", ["scopes", "any_scopes"])
@pytest.mark.parametrize(
    "bad",
    ["admin", "", None, 5, [5], [None], [""], ["a", ""], b"ab", [["a"]], {"requiredScopes": 1}],
)
def test_scopes_are_a_list_of_texts_and_one_text_is_none(field, bad):
    with pytest.raises(InvalidTool, match=f"access: {field} must be a list of scopes"):
        Access(**{field: bad})


@pytest.mark.parametrize("bad", ["admin", None, 5, [5], [""], {"scopes": ["admin"]}, True])
def test_an_access_that_a_tool_cannot_have_names_the_tool(bad):
    with pytest.raises(
        InvalidTool, match=r"tool 'shop\.search': access must be an Access or a list"
    ):
        _tool(access=bad)


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("project", None),
        (None, "read"),
        ("", None),
        (None, ""),
        ("", ""),
        ("project", ""),
        (5, "r"),
    ],
)
def test_the_two_resource_fields_are_texts_and_given_together(kind, action):
    with pytest.raises(InvalidTool, match="access: "):
        Access(resource_type=kind, resource_action=action)


def test_an_access_holds_tuples_that_nobody_changes_from_outside():
    scopes = ["a"]
    access = Access(scopes, {"b"}, "project", "read")
    scopes.append("c")
    assert access == Access(("a",), ("b",), "project", "read")
    assert hash(access) == hash(Access(("a",), ("b",), "project", "read"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        access.scopes = ()


# --- identities -----------------------------------------------------------------------------


def test_an_identity_takes_any_list_of_texts_and_copies_it():
    scopes, actions = ["a", "b"], ["read"]
    identity = Identity("me", scopes, MappingProxyType({"project:1": actions}))
    scopes.append("admin")
    actions.append("write")
    assert identity == Identity("me", ("a", "b"), {"project:1": ("read",)})
    assert Identity("me", {"a"}).scopes == ("a",)
    assert Identity("me", (s for s in "ab")).scopes == ("a", "b")


def test_an_identity_without_more_than_an_id_may_nothing_special():
    assert (Identity("me").scopes, Identity("me").resources) == ((), {})


def test_one_identity_never_holds_the_resources_of_another():
    Identity("a").resources["project:1"] = ("read",)
    assert Identity("b").resources == {}


@pytest.mark.parametrize("bad", [None, 5, b"me", ["me"]])
def test_the_id_of_an_identity_is_text(bad):
    with pytest.raises(UsageError, match="id must be text"):
        Identity(bad)


@pytest.mark.parametrize(
    "bad", ["admin", "", None, 0, 5, b"admin", b"", ["a", 5], [None], {"admin": True}, {}, [["a"]]]
)
def test_one_text_is_never_taken_for_a_list_of_scopes(bad):
    with pytest.raises(UsageError, match="scopes must be a list of texts"):
        Identity("me", bad)
    with pytest.raises(UsageError, match="resources must be a list of texts"):
        Identity("me", (), {"project:1": bad})


@pytest.mark.parametrize("bad", [None, "", 0, [], (), "project:1", ["project:1"], 5])
def test_the_resources_of_an_identity_are_a_mapping(bad):
    with pytest.raises(UsageError, match="resources must be a mapping"):
        Identity("me", (), bad)


def test_an_identity_and_a_call_cannot_be_changed():
    with pytest.raises(AttributeError):
        Identity("me").scopes = ("admin",)
    with pytest.raises(AttributeError):
        Call("a.b").tool_id = "c.d"


# --- calls and contexts ---------------------------------------------------------------------


def test_a_call_needs_no_more_than_a_tool():
    call = Call("shop.search")
    assert (call.tool_id, call.arguments, call.id, call.parent_id) == (
        "shop.search",
        None,
        "",
        None,
    )
    assert (call.deadline, call.policy, call.chain, call.metadata) == (None, None, (), None)
    assert Call("a.b", {"q": 1}) == Call("a.b", {"q": 1})
    assert Call("a.b", {"q": 1}) != Call("a.b", {"q": 2})


def test_a_context_of_no_runtime_has_no_other_tools_and_says_what_to_do():
    with pytest.raises(UsageError, match="build_env") as caught:
        _ = Context("1", "shop.search").env
    assert "'shop.search'" in str(caught.value)


def test_the_env_of_a_context_is_opened_for_this_very_call_and_its_bus():
    opened, call_map = [], object()

    async def send(tool_id, arguments):
        return (tool_id, arguments)

    def open_env(context, *, call_map):
        opened.append((context, call_map))
        return Env(send)

    context = Context("1", "shop.search", _open_env=open_env, _call_map=call_map)
    assert asyncio.run(context.env.shop.price(5)) == ("shop.price", 5)
    assert opened == [(context, call_map)]
    assert opened[0][0] is context


def test_a_later_contract_shows_its_schemas_and_policy_before_it_is_made():
    made = []

    def make():
        made.append(1)
        return Contract(input={"type": "object"}, output={"type": "string"})

    schemas = DeclaredSchemas({"type": "object"}, {"type": "string"}, "cast")
    contract = Contract.later(make, lambda: schemas)
    tightened = contract.with_policy("reject")
    assert (contract.input, contract.output, contract.policy) == (
        {"type": "object"},
        {"type": "string"},
        "cast",
    )
    assert (tightened.output, tightened.policy) == ({"type": "string"}, "reject")
    assert not made
    assert tightened.compiled_output.accepts("a")
    assert (tightened.policy, contract.policy, made) == ("reject", "cast", [1])
    assert contract.compiled_input.accepts({})
    assert contract == Contract(input={"type": "object"}, output={"type": "string"})
