"""What an agent remembers: accepted pairs, by session, in a file that outlives the process."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys

import pytest

from answers import CANNED, GOOD, PROSE, WRONG, call, go, refunds
from callpact import Agent, Context, UsageError, strict_output_rules, tool
from callpact.agent import Remembered, SqliteMemory
from callpact.agent.prompt.memory import MAX_TURNS
from callpact.errors import InvalidConfig, ReliabilityFailFastError
from callpact.testing import ScriptedModel


@pytest.fixture
def store(tmp_path):
    held = SqliteMemory(tmp_path / "memory.db")
    yield held
    held.close()


def kept(store, session="default"):
    return [(turn.message, turn.answer) for turn in go(store.recall(session, 10_000))]


@tool(namespace="main")
async def ask(context: Context) -> str:
    """Ask somebody."""
    return await context.pause("Well?")


def test_a_model_is_reminded_of_earlier_turns_the_oldest_first(store):
    model = ScriptedModel(["a1", "a2", "a3"])
    agent = Agent(model).memory(store)
    for message in ("q1", "q2", "q3"):
        go(agent.run(message))
    said = [(message.role, message.content) for message in model.requests[2].messages]
    assert said == [
        ("user", "q1"),
        ("assistant", "a1"),
        ("user", "q2"),
        ("assistant", "a2"),
        ("user", "q3"),
    ]


def test_only_the_accepted_pair_of_a_turn_is_kept(store):
    agent, _ = refunds(PROSE, WRONG, GOOD, retries=2)
    go(agent.memory(store).run("refund?"))
    assert kept(store) == [("refund?", GOOD)]


def test_tools_and_pauses_stay_out_and_the_answer_after_a_pause_is_kept(store):
    agent = Agent(ScriptedModel([call("main_ask"), "done"]), tools=[ask]).memory(store)
    paused = go(agent.run("go", session="s"))
    assert kept(store, "s") == []
    go(agent.resume(paused, "yes"))
    assert kept(store, "s") == [("go", "done")]


def test_an_answer_that_breaks_the_contract_is_not_kept_nor_what_is_given_instead(store):
    agent, _ = refunds(PROSE, canned=CANNED)
    go(agent.memory(store).run_typed("refund?"))
    agent, _ = refunds(PROSE, PROSE)
    with pytest.raises(ReliabilityFailFastError):
        go(agent.memory(store).reliability(strict_output_rules(3)).run("refund?"))
    assert kept(store) == []


def test_a_turn_that_was_stopped_is_not_kept(store):
    agent = Agent(ScriptedModel([call("nothing")] * 9)).memory(store)
    answer = go(agent.limits(rejections=2).run("go"))
    assert "nothing" in answer
    assert kept(store) == []


def test_sessions_do_not_hear_each_other(store):
    model = ScriptedModel(["for a", "for b", "for a again"])
    agent = Agent(model).memory(store)
    go(agent.run("I am a", session="a"))
    go(agent.run("I am b", session="b"))
    go(agent.run("who am I?", session="a"))
    assert [m.content for m in model.requests[1].messages] == ["I am b"]
    assert [m.content for m in model.requests[2].messages] == ["I am a", "for a", "who am I?"]


def test_as_many_turns_are_recalled_as_are_asked_for(store):
    model = ScriptedModel([str(at) for at in range(5)])
    agent = Agent(model).memory(store, turns=1)
    for at in range(5):
        go(agent.run(f"q{at}"))
    assert [m.content for m in model.requests[4].messages] == ["q3", "3", "q4"]


def test_a_new_object_on_the_same_file_remembers(tmp_path):
    path = tmp_path / "deep" / "memory.db"
    first = SqliteMemory(path)
    go(first.keep("s", Remembered("q", "a")))
    first.close()
    second = SqliteMemory(str(path))
    assert kept(second, "s") == [("q", "a")]
    second.close()


def test_another_process_remembers(tmp_path):
    path = tmp_path / "memory.db"
    code = (
        "import asyncio, sys\n"
        "from callpact import Agent\n"
        "from callpact.testing import ScriptedModel\n"
        "asyncio.run(Agent(ScriptedModel(['there'])).memory(sys.argv[1]).run('here?'))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)
    store = SqliteMemory(path)
    assert kept(store) == [("here?", "there")]
    store.close()


def test_a_path_is_enough(tmp_path):
    agent = Agent(ScriptedModel(["a", "b"])).memory(tmp_path / "memory.db")
    go(agent.run("q"))
    assert kept(agent._plan.memory) == [("q", "a")]
    agent._plan.memory.close()


def test_the_file_is_for_its_owner_alone(store):
    go(store.keep("s", Remembered("q", "a")))
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_the_oldest_turns_of_a_session_go_first(store):
    def fill(file):
        rows = [("s", 0, str(at), "") for at in range(MAX_TURNS)]
        file.executemany("INSERT INTO turns (session, at, message, answer) VALUES (?,?,?,?)", rows)

    store._run(fill)
    go(store.keep("other", Remembered("q", "a")))
    go(store.keep("s", Remembered("new", "a")))
    messages = [message for message, _ in kept(store, "s")]
    assert len(messages) == MAX_TURNS
    assert (messages[0], messages[-1]) == ("1", "new")
    assert kept(store, "other") == [("q", "a")]


def test_a_session_can_be_forgotten(store):
    for session in ("a", "b"):
        go(store.keep(session, Remembered("q", "a")))
    go(store.forget("a"))
    assert (kept(store, "a"), kept(store, "b")) == ([], [("q", "a")])


@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "é" * 10_000, "'; DROP TABLE turns; --", ""])
def test_odd_texts_are_kept(store, text):
    go(store.keep("s", Remembered(text, text)))
    writable = text.encode(errors="replace").decode()
    assert kept(store, "s") == [(writable, writable)]


@pytest.mark.parametrize("session", ["", "a\x00b", "'; DROP TABLE turns; --"])
def test_odd_sessions_are_sessions(store, session):
    go(store.keep(session, Remembered("q", "a")))
    assert kept(store, session) == [("q", "a")]


def test_a_session_that_cannot_be_written_is_told(store):
    with pytest.raises(UsageError):
        go(store.recall("\ud800", 1))


def test_turns_of_many_runs_at_once_are_all_kept(store):
    async def story():
        agent = Agent(ScriptedModel(lambda request: "a")).memory(store)
        await asyncio.gather(*[agent.run(str(at)) for at in range(20)])

    go(story())
    assert sorted(kept(store)) == sorted((str(at), "a") for at in range(20))


# --- files that are something else ----------------------------------------------------------


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    with pytest.raises(InvalidConfig):
        go(SqliteMemory(path).keep("s", Remembered("q", "a")))
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    other.close()


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes " * 100, encoding="utf-8")
    with pytest.raises(UsageError):
        go(SqliteMemory(path).recall("s", 1))
    assert path.read_text(encoding="utf-8") == "my notes " * 100


def test_a_file_of_a_later_version_is_refused(tmp_path):
    path = tmp_path / "memory.db"
    first = SqliteMemory(path)
    go(first.keep("s", Remembered("q", "a")))
    first._run(lambda file: file.execute("PRAGMA user_version = 99"))
    first.close()
    with pytest.raises(InvalidConfig):
        go(SqliteMemory(path).recall("s", 1))


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError):
        go(SqliteMemory(tmp_path / "file" / "memory.db").recall("s", 1))


# --- declaring ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "declare",
    [
        lambda agent, store: agent.memory(store).memory(store),
        lambda agent, store: agent.memory(store, turns=0),
        lambda agent, store: agent.memory(5),
        lambda agent, store: agent.memory(object()),
    ],
)
def test_what_cannot_be_a_memory_is_refused(declare, store):
    with pytest.raises(UsageError):
        declare(Agent(ScriptedModel([])), store)


def test_any_object_that_recalls_and_keeps_is_a_memory():
    class Forgetful:
        kept = []

        async def recall(self, session, turns):
            return [Remembered("always", "this")]

        async def keep(self, session, turn):
            self.kept.append((session, turn))

    model = ScriptedModel(["a"])
    go(Agent(model).memory(Forgetful()).run("q", session="s"))
    assert [m.content for m in model.requests[0].messages] == ["always", "this", "q"]
    assert Forgetful.kept == [("s", Remembered("q", "a"))]
