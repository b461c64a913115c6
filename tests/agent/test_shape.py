"""Whatever a shape is declared with: it parses, is told to the model, and goes back to JSON."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
from typing import Annotated, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from answers import GOOD, VALUE, Refund, go
from callpact import Agent, InvalidSchema, OutputSchemaError, UsageError
from callpact.agent import shape_of
from callpact.agent.answer.shape import issues_of
from callpact.testing import ScriptedModel


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Typed(TypedDict):
    x: int


class Pair(NamedTuple):
    x: int
    y: str


class Struct(msgspec.Struct):
    x: int


class Colour(enum.Enum):
    red = "red"


class Modelled(BaseModel):
    x: int


class Parser:
    def parse(self, value):
        return ("parsed", value["x"])


def function(value):
    return ("called", value["x"])


JSON_SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}

EVERY_KIND = {
    "model": (Modelled, '{"x": 1}', Modelled(x=1), '{"x": "a"}'),
    "adapter": (TypeAdapter(list[int]), "[1]", [1], '["a"]'),
    "list": (list[int], "[1]", [1], '["a"]'),
    "union": (int | None, "null", None, '"a"'),
    "literal": (Literal["a", "b"], '"a"', "a", '"c"'),
    "annotated": (Annotated[int, Field(gt=3)], "4", 4, "3"),
    "scalar": (int, "4", 4, '"a"'),
    "enum": (Colour, '"red"', Colour.red, '"blue"'),
    "dataclass": (Point, '{"x": 1}', Point(1), '{"y": 1}'),
    "TypedDict": (Typed, '{"x": 1}', {"x": 1}, "{}"),
    "NamedTuple": (Pair, '[1, "a"]', Pair(1, "a"), "[1]"),
    "struct": (Struct, '{"x": 1}', Struct(1), '{"x": "a"}'),
    "JSON Schema": (JSON_SCHEMA, '{"x": 1}', {"x": 1}, '{"x": "a"}'),
    "parser": (Parser(), '{"x": 1}', ("parsed", 1), "{}"),
    "function": (function, '{"x": 1}', ("called", 1), "{}"),
}


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_kind_of_declaration_parses_what_it_should_and_nothing_else(kind):
    declared, good, value, bad = EVERY_KIND[kind]
    agent = Agent(ScriptedModel([good])).output_schema(declared)
    parsed = go(agent.run_typed("go"))
    assert (type(parsed), parsed) == (type(value), value)
    with pytest.raises(OutputSchemaError) as caught:
        agent.parse_output(bad)
    assert caught.value.stage == "schema-validate"
    assert caught.value.raw_output == bad


@pytest.mark.parametrize("kind", [k for k in EVERY_KIND if k not in {"parser", "function"}])
def test_every_type_shows_its_json_schema_where_it_has_no_words(kind):
    shape = shape_of(EVERY_KIND[kind][0])
    assert shape.json_schema is not None
    model = ScriptedModel([EVERY_KIND[kind][1]])
    go(Agent(model).output_schema(EVERY_KIND[kind][0]).run("go"))
    said = model.requests[0].system.partition("The output shape: ")[2]
    assert msgspec.json.decode(said.removesuffix(".")) == shape.json_schema


# --- words ----------------------------------------------------------------------------------


class Worded(BaseModel):
    """An x.

    It is whole.
    """

    x: int


@dataclasses.dataclass
class WordedPoint:
    """A point."""

    x: int


class WordedParser:
    """Parses."""

    def parse(self, value):
        return value


class DescribedParser(WordedParser):
    description = "what it takes"


def worded(value):
    """Take anything."""
    return value


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (Worded, "An x.\n\nIt is whole."),
        (WordedPoint, "A point."),
        (WordedParser(), "Parses."),
        (DescribedParser(), "what it takes"),
        (worded, "Take anything."),
        ({**JSON_SCHEMA, "description": "An x."}, "An x."),
        (lambda value: value, None),
        (Parser(), None),
    ],
)
def test_the_words_are_the_description_else_the_docstring(declared, words):
    assert shape_of(declared).description == words
    assert shape_of(declared, description="given").description == "given"


def test_words_that_python_wrote_are_not_the_authors():
    for kind in (Point, Pair, Typed, Colour, Struct):
        assert shape_of(kind).description.startswith("{")


# --- strictness, transformation, dumping ----------------------------------------------------


def test_a_strict_model_takes_a_date_as_json_has_it():
    class Dated(BaseModel):
        model_config = ConfigDict(strict=True)
        day: dt.date

    agent = Agent(ScriptedModel([])).output_schema(Dated)
    assert agent.parse_output('{"day": "2026-01-02"}').day == dt.date(2026, 1, 2)


@pytest.mark.parametrize("number", [2**63, -(2**70), 10**30])
def test_an_integer_of_any_size_is_kept(number):
    assert Agent(ScriptedModel([])).output_schema(int).parse_output(str(number)) == number


def test_a_parser_may_transform():
    agent = Agent(ScriptedModel(["[3, 1, 2]"])).output_schema(sorted)
    assert go(agent.run_typed("sort")) == [1, 2, 3]


@pytest.mark.parametrize(
    ("declared", "value", "data"),
    [
        (Refund, VALUE, {"amount": 5.0, "reason": "late"}),
        (Point, Point(1, 2), {"x": 1, "y": 2}),
        (Struct, Struct(1), {"x": 1}),
        (dt.date, dt.date(2026, 1, 2), "2026-01-02"),
    ],
)
def test_a_typed_value_goes_back_to_json(declared, value, data):
    assert shape_of(declared).dump(value) == data


def test_a_shape_is_a_shape():
    shape = shape_of(Refund)
    assert shape_of(shape) == shape
    assert Agent(ScriptedModel([]), output_schema=shape).parse_output(GOOD) == VALUE


def test_a_json_schema_beside_a_parser_is_told_and_not_judged():
    agent = Agent(ScriptedModel([])).output_schema(function, json_schema=JSON_SCHEMA)
    assert agent._plan.contract.shape.json_schema == JSON_SCHEMA
    assert agent.parse_output('{"x": "a"}') == ("called", "a")


# --- what is no shape -----------------------------------------------------------------------


@pytest.mark.parametrize("given", [5, "int", b"x", [], (), object(), 1.5, Exception])
def test_what_stands_for_no_shape_is_refused(given):
    with pytest.raises(UsageError):
        Agent(ScriptedModel([])).output_schema(given)


@pytest.mark.parametrize("schema", [{"type": "strin"}, {"$ref": "#/nowhere"}, {"minLength": -1}])
def test_a_json_schema_that_cannot_be_compiled_is_refused(schema):
    with pytest.raises(InvalidSchema):
        Agent(ScriptedModel([])).output_schema(schema)
    with pytest.raises(InvalidSchema):
        Agent(ScriptedModel([])).output_schema(function, json_schema=schema)


async def asynchronous(value):
    await asyncio.sleep(0)
    return value


class AsynchronousParser:
    async def parse(self, value):
        await asyncio.sleep(0)
        return value


@pytest.mark.parametrize(
    ("given", "name"),
    [(asynchronous, "asynchronous"), (AsynchronousParser(), "AsynchronousParser")],
)
def test_an_asynchronous_parser_is_refused_by_name(given, name):
    with pytest.raises(UsageError, match=name):
        Agent(ScriptedModel([])).output_schema(given)


def test_a_parser_that_turns_out_to_be_asynchronous_is_refused_and_left_unawaited():
    agent = Agent(ScriptedModel(["1"])).output_schema(lambda v: asynchronous([v]))
    with pytest.raises(UsageError):
        agent.parse_output("1")
    with pytest.raises(UsageError):
        go(agent.run_typed("go"))


# --- issues ---------------------------------------------------------------------------------


class Nested(BaseModel):
    rows: list[dict[str, int]]


@pytest.mark.parametrize(
    ("declared", "raw", "paths"),
    [
        (Nested, '{"rows": [{"a/b~": "x"}]}', ["/rows/0/a~1b~0"]),
        (Refund, '{"amount": "x"}', ["/amount", "/reason"]),
        (JSON_SCHEMA, '{"x": "a"}', ["/x"]),
        (function, "{}", []),
    ],
)
def test_issues_have_places_as_json_pointers(declared, raw, paths):
    with pytest.raises(OutputSchemaError) as caught:
        Agent(ScriptedModel([])).output_schema(declared).parse_output(raw)
    assert [issue.path for issue in caught.value.issues] == paths
    assert caught.value.path == (paths[0] if paths else None)


def test_the_place_of_a_struct_is_a_json_pointer():
    class Outer(msgspec.Struct):
        rows: list[Struct]

    with pytest.raises(OutputSchemaError) as caught:
        Agent(ScriptedModel([])).output_schema(Outer).parse_output('{"rows": [{"x": "a"}]}')
    assert caught.value.path == "/rows/0/x"


def test_an_error_that_names_no_place_has_no_issues():
    assert issues_of(ValueError("x")) == ()
