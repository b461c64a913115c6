"""Resources, prompts and completions at the door, asked by the SDK's own client in both eras."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
from urllib.parse import quote

import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from callpact import Context, from_functions, prompt, resource
from callpact.context import Identity
from callpact.errors import ToolError
from callpact.resources import MAX_URI_LENGTH, Prompt, Resource
from callpact.serve.mcp import completion as completing
from callpact.serve.mcp import views
from callpact.tool import Contract, Tool
from doors import LEGACY, MODERN, connected, tool

PATIENCE = 20
ERAS = pytest.mark.parametrize("mode", [MODERN, LEGACY])
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


def run(told):
    return asyncio.run(asyncio.wait_for(told, PATIENCE))


def ask(question, *functions, mode=MODERN, identity=None):
    """The answer of a door over these functions, or the error of the protocol; and the events."""
    made = from_functions(functions, namespace="t")

    async def go():
        given = {"resources": made.resources, "prompts": made.prompts, "identity": identity}
        async with connected(mode=mode, **given) as at:
            try:
                return await question(at.client), at.events
            except MCPError as error:
                return error.error, at.events

    return run(go())


def read(uri, *functions, **given):
    return ask(lambda client: client.read_resource(uri), *functions, **given)


def get(name, arguments, *functions, **given):
    return ask(lambda client: client.get_prompt(name, arguments), *functions, **given)


def missing(mode):
    """What a resource that is not there is called in an era."""
    return types.INVALID_PARAMS if mode == MODERN else -32002


# --- resources ------------------------------------------------------------------------------


@resource("docs://{page}", title="A page", mime_type="text/markdown")
def page(page: str) -> str:
    """A page of the handbook."""
    return f"# {page}"


@resource("docs://readme", name="readme")
def readme() -> str:
    return "Read me"


@resource("orders://{year}/{number}")
def order(year: int, number: int) -> dict:
    return {"year": year, "number": number}


@resource("files://{+path}")
def file(path: str) -> str:
    return path


@resource("logo://it")
def logo() -> bytes:
    return PNG


@resource("secret://it", access=["admin"])
def secret() -> str:
    return "s3cr3t"


@ERAS
def test_addresses_and_templates_are_listed_apart(mode):
    async def question(client):
        fixed = (await client.list_resources()).resources
        return fixed, (await client.list_resource_templates()).resource_templates

    (fixed, templates), _ = ask(question, page, readme, logo, order, mode=mode)
    assert [(one.uri, one.name) for one in fixed] == [
        ("docs://readme", "t_readme"),
        ("logo://it", "t_logo"),
    ]
    assert [one.uri_template for one in templates] == ["docs://{page}", "orders://{year}/{number}"]
    first = templates[0]
    told = (first.name, first.title, first.description, first.mime_type)
    assert told == ("t_page", "A page", "A page of the handbook.", "text/markdown")


@ERAS
@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("docs://intro", "# intro"),
        ("docs://readme", "Read me"),
        ("docs://a%20b%C3%A9", "# a bé"),
        ("docs://é😀", "# é😀"),
        ("docs://tcp%2Fip", "# tcp/ip"),
        ("orders://2026/7", '{"year":2026,"number":7}'),
        ("files://a/b/c.txt", "a/b/c.txt"),
    ],
)
def test_a_resource_is_read_under_its_address_and_a_fixed_one_comes_first(mode, uri, text):
    result, events = read(uri, page, readme, order, file, mode=mode)
    (content,) = result.contents
    assert (content.uri, content.text) == (uri, text)
    assert [event.error for event in events] == [None]


@ERAS
def test_bytes_arrive_as_they_are(mode):
    result, _ = read("logo://it", logo, mode=mode)
    (content,) = result.contents
    assert (base64.b64decode(content.blob), content.mime_type) == (PNG, "image/png")


@ERAS
def test_several_contents_arrive_as_several(mode):
    @resource("folder://it")
    def folder() -> list:
        return [{"uri": "folder://it/a", "text": "A"}, {"uri": "folder://it/b", "blob": "YQ=="}]

    result, _ = read("folder://it", folder, mode=mode)
    assert [one.uri for one in result.contents] == ["folder://it/a", "folder://it/b"]


@ERAS
@pytest.mark.parametrize(
    "uri",
    [
        "",
        "docs://",
        "docs://a/b",
        "docs://a?b",
        "DOCS://a",
        "nothing://a",
        "docs://..",
        "docs://%2e%2e%2fetc%2fpasswd",
        "docs://%2Fetc%2Fpasswd",
        "docs://a%00b",
        "files://../../etc/passwd",
        "files:///etc/passwd",
        "files://a/../../b",
        "docs://" + "x" * MAX_URI_LENGTH,
        "callpact://results/0123",
        "secret://it",
    ],
)
def test_where_nothing_is_for_this_caller_there_is_no_resource_and_nothing_runs(mode, uri):
    error, events = read(uri, page, file, secret, mode=mode)
    assert error.code == missing(mode)
    assert error.data == {"uri": uri[:200]}
    assert events == []


@ERAS
def test_what_a_caller_may_not_read_is_there_for_one_who_may(mode):
    async def question(client):
        listed = (await client.list_resources()).resources
        return [one.uri for one in listed], (await client.read_resource("secret://it")).contents

    async def listing(client):
        return [one.uri for one in (await client.list_resources()).resources]

    admin = Identity("ada", ("admin",))
    (listed, (content,)), _ = ask(question, secret, logo, mode=mode, identity=admin)
    assert (listed, content.text) == (["secret://it", "logo://it"], "s3cr3t")
    assert ask(listing, secret, logo, mode=mode, identity=Identity("eve"))[0] == ["logo://it"]


@ERAS
def test_a_value_that_breaks_its_type_is_an_error_of_the_caller_with_its_place(mode):
    error, events = read("orders://2026/seven", order, mode=mode)
    assert error.code == types.INVALID_PARAMS
    assert (error.data["error"]["code"], error.data["error"]["path"]) == (
        "schema_validation_failed",
        "/number",
    )
    assert [event.error.code for event in events] == ["schema_validation_failed"]


@ERAS
def test_what_reads_a_template_can_say_that_nothing_is_there(mode):
    @resource("notes://{name}")
    def note(name: str) -> str:
        raise ToolError("no_resource", f"There is no note '{name}'")

    error, events = read("notes://tea", note, mode=mode)
    assert (error.code, error.data) == (missing(mode), {"uri": "notes://tea"})
    assert [event.error.code for event in events] == ["no_resource"]


@ERAS
def test_a_resource_that_fails_tells_its_code_and_nothing_of_its_insides(mode, caplog):
    caplog.set_level(logging.CRITICAL)

    @resource("sold://it")
    def sold() -> str:
        raise ToolError("sold_out", "None left")

    @resource("crash://it")
    def crash() -> str:
        raise RuntimeError("the password is tea")

    @resource("slow://it", timeout=0.01)
    async def slow() -> str:
        await asyncio.Event().wait()

    @resource("odd://it")
    def odd():
        return [{"uri": "odd://1", "text": 5}]

    wanted = {"sold": "sold_out", "crash": "handler_error", "slow": "timeout"}
    for name, code in wanted.items():
        error, events = read(f"{name}://it", sold, crash, slow, mode=mode)
        assert (error.code, error.data["error"]["code"]) == (types.INTERNAL_ERROR, code)
        assert "tea" not in error.model_dump_json()
        assert [event.error.code for event in events] == [code]
    error, _ = read("odd://it", odd, mode=mode)
    assert error.code == types.INTERNAL_ERROR


@ERAS
def test_a_handler_knows_who_reads_and_may_call_tools(mode):
    async def double(arguments, context):
        return arguments["n"] * 2

    @resource("twice://{n}")
    async def twice(n: int, context: Context) -> dict:
        envelope = await context.env.t.double({"n": n})
        return {"who": context.identity.id, "twice": envelope.data}

    async def go():
        made = from_functions(twice, namespace="t")
        given = {"resources": made.resources, "identity": Identity("ada")}
        async with connected(tool("double", double), mode=mode, **given) as at:
            return (await at.client.read_resource("twice://4")).contents

    (content,) = run(go())
    assert json.loads(content.text) == {"who": "ada", "twice": 8}


def test_a_definition_that_mcp_does_not_take_leaves_the_others_alone(caplog):
    @resource("bad://it", annotations={"priority": "very"})
    def bad() -> str:
        return "still read"

    async def question(client):
        listed = [one.uri for one in (await client.list_resources()).resources]
        return listed, (await client.read_resource("bad://it")).contents[0].text

    assert ask(question, bad, logo)[0] == (["logo://it"], "still read")
    assert "t_bad" in caplog.text


# --- prompts --------------------------------------------------------------------------------


@prompt(title="Review")
def review(code: str, lines: int = 10, tone: str = "kind") -> str:
    """Review some code.

    Args:
        code: What to review.
    """
    return f"{tone}: {code} ({lines})"


@prompt(access=["admin"])
def hidden() -> str:
    return "s3cr3t"


@ERAS
def test_a_prompt_is_listed_with_its_arguments(mode):
    listed, _ = ask(lambda client: client.list_prompts(), review, hidden, mode=mode)
    (one,) = listed.prompts
    assert (one.name, one.title, one.description) == ("t_review", "Review", "Review some code.")
    assert [(part.name, part.description, part.required) for part in one.arguments] == [
        ("code", "What to review.", True),
        ("lines", None, False),
        ("tone", None, False),
    ]


@ERAS
@pytest.mark.parametrize("name", ["t_review", "t.review"])
def test_a_prompt_is_filled_in_with_texts_that_become_what_it_takes(mode, name):
    result, events = get(name, {"code": "x = 1", "lines": "3"}, review, mode=mode)
    (message,) = result.messages
    assert (message.role, message.content.text) == ("user", "kind: x = 1 (3)")
    assert result.description == "Review some code."
    assert [event.arguments for event in events] == [{"code": "x = 1", "lines": "3"}]


@ERAS
@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        (None, {"/code"}),
        ({"lines": "3"}, {"/code"}),
        ({"code": "x", "lines": "three"}, {"/lines"}),
        ({"code": "x", "colour": "red"}, {"/colour"}),
    ],
)
def test_wrong_arguments_are_told_with_their_place(mode, arguments, paths):
    error, _ = get("t_review", arguments, review, mode=mode)
    assert error.code == types.INVALID_PARAMS
    body = error.data["error"]
    assert body["code"] == "schema_validation_failed"
    assert {issue["path"] for issue in body.get("issues", [body])} == paths


@ERAS
@pytest.mark.parametrize("name", ["nothing", "t_hidden", "", "x" * 10_000])
def test_a_prompt_that_is_not_there_for_this_caller_is_unknown(mode, name):
    error, events = get(name, {}, review, hidden, mode=mode)
    assert (error.code, events) == (types.INVALID_PARAMS, [])
    assert "t_review" in error.message
    assert "t_hidden; " not in error.message
    assert len(error.message) < 500


@ERAS
def test_messages_of_many_kinds_arrive(mode):
    @prompt
    def many() -> list:
        image = {"type": "image", "data": "YQ==", "mimeType": "image/png"}
        held = {"type": "resource", "resource": {"uri": "docs://a", "text": "A"}}
        return [
            "First",
            {"role": "assistant", "content": "Then"},
            {"role": "user", "content": image},
            {"role": "user", "content": held},
        ]

    result, _ = get("t_many", None, many, mode=mode)
    kinds = [(one.role, one.content.type) for one in result.messages]
    assert kinds == [
        ("user", "text"),
        ("assistant", "text"),
        ("user", "image"),
        ("user", "resource"),
    ]


@ERAS
@pytest.mark.parametrize(
    "answer", [None, 5, [None], {"role": "system", "content": "a"}, [{"role": "user"}]]
)
def test_messages_that_are_none_are_an_error_of_the_server(mode, answer, caplog):
    @prompt
    def odd():
        return answer

    error, _ = get("t_odd", None, odd, mode=mode)
    assert error.code == types.INTERNAL_ERROR
    assert "t.odd" in caplog.text


# --- lists in pages -------------------------------------------------------------------------


async def nothing(arguments, context):
    return None


async def every_entry(fetch, key):
    """The entries of a list, page by page."""
    found, cursor = [], None
    while True:
        page = await fetch(cursor=cursor)
        found.append(getattr(page, key))
        cursor = page.next_cursor
        if cursor is None:
            return found


@settings(max_examples=20)
@given(count=st.integers(0, 13), size=st.integers(1, 5))
def test_pages_hold_every_entry_once_and_in_order(count, size):
    number = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}
    fixed = [Resource(uri=f"d:{n}", tool=tool(f"r{n}", nothing)) for n in range(count)]
    templates = [
        Resource(uri=f"d:{n}/{{n}}", tool=tool(f"p{n}", nothing, input=number))
        for n in range(count)
    ]
    prompts = [Prompt(tool=tool(f"q{n}", nothing)) for n in range(count)]

    async def go():
        async with connected(resources=[*fixed, *templates], prompts=prompts) as at:
            client = at.client
            return [
                await every_entry(client.list_resources, "resources"),
                await every_entry(client.list_resource_templates, "resource_templates"),
                await every_entry(client.list_prompts, "prompts"),
            ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "PAGE_ENTRIES", size)
        for pages, letter in zip(run(go()), "rpq", strict=True):
            names = [entry.name for page in pages for entry in page]
            assert names == [f"t_{letter}{n}" for n in range(count)]
            assert all(len(page) <= size for page in pages)


@ERAS
@pytest.mark.parametrize("cursor", ["1", "-1", "x", "", "9" * 100, "٣"])
def test_a_cursor_that_was_not_given_is_refused_for_every_list(mode, cursor):
    async def question(client):
        errors = []
        for fetch in (client.list_resources, client.list_resource_templates, client.list_prompts):
            with pytest.raises(MCPError) as refused:
                await fetch(cursor=cursor)
            errors.append(refused.value.error.code)
        return errors

    assert ask(question, page, logo, review, mode=mode)[0] == [types.INVALID_PARAMS] * 3


# --- completions ----------------------------------------------------------------------------

SIZES = ["small", "Small-ish", "large", "extra small"]


def complete(completion, text="", *, mode=MODERN, others=None, name="size"):
    """What one argument of a prompt is completed with."""

    @prompt(complete={"size": completion})
    def order(size: str, colour: str = "") -> str:
        return size

    async def question(client):
        ref = types.PromptReference(type="ref/prompt", name="t_order")
        return await client.complete(ref, {"name": name, "value": text}, others)

    answer, _ = ask(question, order, mode=mode)
    return answer.completion


@ERAS
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", SIZES),
        ("sm", ["small", "Small-ish", "extra small"]),
        ("SM", ["small", "Small-ish", "extra small"]),
        ("large", ["large"]),
        ("x", ["extra small"]),
        ("z", []),
    ],
)
def test_values_that_begin_with_the_text_come_first_then_those_that_hold_it(mode, text, values):
    given = complete(SIZES, text, mode=mode)
    assert (given.values, given.total, given.has_more) == (values, len(values), False)


@ERAS
def test_a_variable_of_a_resource_is_completed_by_its_template(mode):
    @resource("docs://{page}", complete={"page": ("intro", "index")})
    def docs(page: str) -> str:
        return page

    async def question(client):
        ref = types.ResourceTemplateReference(type="ref/resource", uri="docs://{page}")
        return await client.complete(ref, {"name": "page", "value": "in"})

    assert ask(question, docs, mode=mode)[0].completion.values == ["intro", "index"]


async def late(text, others):
    await asyncio.sleep(0)
    return [f"{text}!", json.dumps(others)]


@pytest.mark.parametrize(
    "function",
    [
        lambda text, others: [f"{text}!", json.dumps(others)],
        late,
        lambda text, others: late(text, others),  # noqa: PLW0108 - a plain function that gives an awaitable
        lambda text, others: (value for value in (f"{text}!", json.dumps(others))),
    ],
    ids=["plain", "async", "awaitable", "generator"],
)
def test_a_function_sees_the_text_and_the_other_arguments(function):
    given = complete(function, "sm", others={"colour": "red"})
    assert given.values == ["sm!", '{"colour": "red"}']


def test_what_a_schema_can_be_is_what_it_is_completed_with():
    schema = {"type": "object", "properties": {"size": {"enum": ["small", "large", 5]}}}
    order = Tool(id="t.order", description="", contract=Contract(input=schema), handler=nothing)

    async def go():
        async with connected(prompts=[Prompt(tool=order)]) as at:
            ref = types.PromptReference(type="ref/prompt", name="t_order")
            return (await at.client.complete(ref, {"name": "size", "value": "l"})).completion

    assert run(go()).values == ["large", "small"]


def test_ten_thousand_values_are_told_as_the_first_hundred_of_them():
    many = [f"{number:05}" for number in range(12_000)]
    given = complete(many)
    assert (given.values, given.has_more) == (many[:100], True)
    given = complete(lambda text, others: iter(many))
    assert (given.values, given.total) == (many[:100], completing.MAX_COMPLETED)


def crash(text, others):
    raise RuntimeError("the password is tea")


@pytest.mark.parametrize(
    "function",
    [crash, lambda text, others: 5, list, lambda text, others: (crash(1, 2) for _ in "ab")],
    ids=["crash", "number", "no parameters", "generator"],
)
def test_a_function_that_fails_has_nothing_to_offer_and_is_logged(function, caplog):
    given = complete(function)
    assert (given.values, given.has_more) == ([], False)
    assert "t.order" in caplog.text


@pytest.mark.parametrize("given", [None, [], "text"])
def test_nothing_to_offer_is_no_failure(given, caplog):
    assert complete(lambda text, others: given).values == []
    assert caplog.text == ""


def test_what_is_no_text_is_told_as_text():
    assert complete(lambda text, others: [1, None, 2.5]).values == ["1", "None", "2.5"]


@pytest.mark.parametrize("how", ["plain", "generator", "async"])
def test_a_function_that_hangs_holds_up_nobody(monkeypatch, caplog, how):
    monkeypatch.setattr(completing, "COMPLETION_SECONDS", 0.05)
    done = threading.Event()

    def plain(text, others):
        done.wait(PATIENCE)
        return ["late"]

    def generator(text, others):
        done.wait(PATIENCE)
        yield "late"

    async def never(text, others):
        await asyncio.Event().wait()

    @prompt(complete={"size": {"plain": plain, "generator": generator, "async": never}[how]})
    def order(size: str) -> str:
        return size

    async def question(client):
        ref = types.PromptReference(type="ref/prompt", name="t_order")
        coming = client.complete(ref, {"name": "size", "value": ""})
        completion, listed = await asyncio.gather(coming, client.list_prompts())
        done.set()  # Else the loop would wait for its thread.
        return completion.completion.values, len(listed.prompts)

    assert ask(question, order)[0] == ([], 1)
    assert "t.order" in caplog.text


@ERAS
def test_an_argument_that_there_is_not_has_no_values(mode):
    assert complete(SIZES, mode=mode, name="weight").values == []


@ERAS
@pytest.mark.parametrize(
    "ref",
    [
        types.PromptReference(type="ref/prompt", name="nothing"),
        types.PromptReference(type="ref/prompt", name="t_hidden"),
        types.ResourceTemplateReference(type="ref/resource", uri="nothing://{a}"),
        types.ResourceTemplateReference(type="ref/resource", uri="secret://it"),
    ],
)
def test_what_is_not_there_for_this_caller_is_not_completed(mode, ref):
    error, _ = ask(lambda client: client.complete(ref, {"name": "a", "value": ""}), hidden, secret)
    assert error.code == types.INVALID_PARAMS


def test_every_address_that_is_made_of_a_template_is_read_there():
    @settings(max_examples=25)
    @given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=50))
    def law(value):
        parts = value.replace("\\", "/").split("/")
        answer, _ = read(f"files://{quote(value)}", file)
        if ".." in parts or value.startswith("/"):
            assert answer.code == types.INVALID_PARAMS
        else:
            assert answer.contents[0].text == value

    law()
