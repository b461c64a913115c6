"""Images and other files in messages: to the model, into a checkpoint, and in outline on record."""

from __future__ import annotations

import base64

import msgspec
import pytest

from answers import GOOD, call, go, refunds
from callpact import Agent, Context, UsageError, tool
from callpact.agent import File, Message, SqliteMemory
from callpact.agent.budget import MAX_FILE_BYTES, MAX_FILES
from callpact.agent.declaration import MAX_PARTS
from callpact.agent.models.model import MAX_URL, as_data
from callpact.testing import ScriptedModel
from openai_stub import say, with_stub

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@tool(namespace="main")
async def ask(context: Context) -> str:
    """Ask a person."""
    return await context.pause("May I?")


def test_a_message_may_hold_images_and_files_in_order():
    model = ScriptedModel(["A red dot."])
    image, page = File("image/png", PIXEL), File("application/pdf", url="https://a.example/b.pdf")
    answer = go(Agent(model).run(["What is", image, "beside", page]))
    (message,) = model.requests[0].messages
    assert message.parts == ("What is", image, "beside", page)
    assert message.content == "What is\nbeside"
    assert answer.messages[0] == message


def test_a_list_of_texts_is_a_text():
    model = ScriptedModel(["ok"])
    go(Agent(model).run({"message": ["a", "b"]}))
    assert model.requests[0].messages == (Message("user", "a\nb"),)


def test_a_file_alone_is_a_message():
    model = ScriptedModel(["ok"])
    go(Agent(model).run([File("image/png", PIXEL)]))
    assert model.requests[0].messages[0].content == ""


def test_a_memory_keeps_no_empty_question(tmp_path):
    model = ScriptedModel(["A dot.", "Yes."])
    memory = SqliteMemory(tmp_path / "turns.db")
    agent = Agent(model).memory(memory)
    go(agent.run([" ", File("image/png", PIXEL)]))
    go(agent.run("Sure?"))
    memory.close()
    assert model.requests[0].messages[0].parts == (File("image/png", PIXEL),)
    assert model.requests[1].messages[0] == Message("user", "[1 files]")


def test_files_reach_a_real_model():
    async def story(model, stub):
        await Agent(model).run(
            [
                "What is this?",
                File("image/png", PIXEL),
                File("image/png", url="https://a.example/b.png"),
                File("application/pdf", b"%PDF-1.4"),
            ]
        )
        text, inline, linked, page = stub.bodies[0]["messages"][0]["content"]
        assert text == {"type": "text", "text": "What is this?"}
        data = base64.b64encode(PIXEL).decode()
        assert inline["image_url"]["url"] == f"data:image/png;base64,{data}"
        assert linked["image_url"]["url"] == "https://a.example/b.png"
        assert page["type"] == "file"

    with_stub(say("A dot."))(story)


def test_a_pause_keeps_the_files_of_its_run():
    agent, model = refunds(call("main_ask"), GOOD, tools=[ask])
    file = File("image/png", PIXEL)
    paused = go(agent.run(["refund?", file]))
    go(agent.resume_typed(paused.checkpoint, "yes"))
    assert model.requests[1].messages[0].parts == ("refund?", file)


def test_a_record_has_the_outline_of_a_file_not_its_bytes():
    finished = []
    agent = Agent(ScriptedModel(["ok"]), observers=[finished.append])
    link = File("image/png", url="https://a.example/b.png?sig=secret#x")
    go(agent.run(["?", File("image/png", PIXEL), link]))
    parts = finished[0].arguments["messages"][0]["parts"]
    assert parts[1]["bytes"] == len(PIXEL)
    assert "data" not in parts[1]
    assert parts[2] == {"media_type": "image/png", "url": "https://a.example/b.png"}
    assert as_data(Message("user", "hi")) == {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: File("image/png"),
        lambda: File("image/png", PIXEL, "https://a.example/b"),
        lambda: File("png", PIXEL),
        lambda: File("image/png\r\nX: y", PIXEL),
        lambda: File(5, PIXEL),
        lambda: File("image/png", "text"),
        lambda: File("image/png", url="file:///etc/passwd"),
        lambda: File("image/png", url="data:image/png;base64,AAAA"),
        lambda: File("image/png", url="https://"),
        lambda: File("image/png", url="https://user:pass@a.example/b"),
        lambda: File("image/png", url="https://a.example/a b"),
        lambda: File("image/png", url="https://[/"),
        lambda: File("image/png", url=f"https://a.example/{'a' * MAX_URL}"),
    ],
)
def test_a_file_that_cannot_be_is_refused(make):
    with pytest.raises(UsageError):
        make()


@pytest.mark.parametrize(
    "message",
    [
        [],
        [""],
        ["a", 5],
        ["a", b"bytes"],
        [{"type": "text"}],
        ["a"] * (MAX_PARTS + 1),
        [File("image/png", b"x")] * (MAX_FILES + 1),
        [File("image/png", b"x" * (MAX_FILE_BYTES + 1))],
        b"bytes",
        {"message": ["a"], "x": 1},
    ],
    ids=lambda message: repr(message)[:20],
)
def test_a_message_that_no_model_takes_is_refused_before_it_is_asked(message):
    model = ScriptedModel(["ok"])
    with pytest.raises(UsageError):
        go(Agent(model).run(message))
    assert model.requests == []


def test_files_of_the_history_count():
    model = ScriptedModel(["ok"])
    held = Message("user", "a", parts=("a", File("image/png", b"x" * MAX_FILE_BYTES)))
    with pytest.raises(UsageError, match="files"):
        go(Agent(model).run([File("image/png", b"x")], history=[held]))
    assert model.requests == []


def test_a_message_with_files_survives_its_json():
    message = Message("user", "a", parts=("a", File("image/png", PIXEL)))
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message
