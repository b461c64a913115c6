"""Calls with an idempotency key: they run once, whoever retries, and whatever dies in between."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import threading

import pytest

import raw
from callpact.catalog import Catalog
from callpact.errors import InvalidConfig, ToolError
from callpact.runtime import Runtime
from callpact.serve import Authentication, Door, RestDoor, answer_store
from callpact.serve.answer_store import AnswerKey, AnswerStore, ClaimState
from callpact.tool import Contract, Tool
from serving import CI, ROOT, TOKENS, Serving, bearer

NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "m": {"type": "integer"}},
    "additionalProperties": False,
}


class Counter:
    """A tool that counts its runs."""

    def __init__(self, kind="mutation", **more):
        self.runs = 0
        contract = Contract(input=NUMBER)
        self.tool = Tool(
            id="t.count", description="", contract=contract, handler=self.run, kind=kind, **more
        )

    async def run(self, arguments, context):
        self.runs += 1
        if arguments.get("n") == 0:
            raise ToolError("no_zero", "Not zero", path="/n")
        return {"runs": self.runs, "blob": "x" * arguments.get("m", 0)}


def serving(tool, path, authentication=None, **given):
    door = Door(Runtime(Catalog([tool])), answers=AnswerStore(path), **given)
    return Serving(authentication, door, rest=RestDoor(door.calls))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "answers.db"


def post(line, key, body=None, **headers):
    return line.ask(body or {"n": 1}, path="/tools/t.count", Idempotency_Key=key, **headers)


def code(answer, status):
    assert answer.status == status, answer
    return answer.json["error"]["code"]


def test_a_repeated_key_gets_the_recorded_answer(path):
    count = Counter()
    with serving(count.tool, path) as served, served.connect() as line:
        first, again = post(line, "k", {"n": 1, "m": 2}), post(line, "k", {"m": 2, "n": 1})
        other, quoted = post(line, "other", {"n": 1, "m": 2}), post(line, '"k"', {"n": 1, "m": 2})
    assert count.runs == 2
    assert "idempotency-replayed" not in first.headers
    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["x-operation-timestamp"] == first.headers["x-operation-timestamp"]
    assert quoted.body == first.body
    assert other.json["runs"] == 2


def test_it_is_recorded_across_restarts(path):
    count = Counter()
    for _ in range(2):
        with serving(count.tool, path) as served, served.connect() as line:
            assert post(line, "k").json["runs"] == 1
    assert count.runs == 1


def test_other_arguments_with_the_same_key_are_refused(path):
    count = Counter()
    with serving(count.tool, path) as served, served.connect() as line:
        post(line, "k", {"n": 1})
        assert code(post(line, "k", {"n": 2}), 422) == "idempotency_key_reused"
    assert count.runs == 1


def test_a_failure_of_the_tool_is_recorded_too(path):
    count = Counter()
    with serving(count.tool, path) as served, served.connect() as line:
        first, again = post(line, "k", {"n": 0}), post(line, "k", {"n": 0})
    assert count.runs == 1
    assert (again.status, again.body) == (422, first.body)
    assert again.headers["idempotency-replayed"] == "true"


def test_a_call_that_was_rejected_before_it_ran_releases_its_key(path):
    count = Counter()
    with serving(count.tool, path) as served, served.connect() as line:
        assert code(post(line, "k", {"x": 1}), 400) == "schema_validation_failed"
        assert post(line, "k", {"n": 1}).json["runs"] == 1


def test_a_tool_that_only_reads_runs_every_time(path):
    count = Counter(kind="query")
    with serving(count.tool, path) as served, served.connect() as line:
        assert [post(line, "k").json["runs"] for _ in range(2)] == [1, 2]
    assert not path.exists()


@pytest.mark.parametrize("key", ["", "a b", "é", "x" * 256, '""', ["a", "b"]])
def test_a_key_that_is_none_is_refused(path, key):
    count = Counter()
    with serving(count.tool, path) as served, served.connect() as line:
        assert code(post(line, key), 400) == "idempotency_key_invalid"
    assert count.runs == 0


def test_no_caller_gets_the_answer_of_another(path):
    count = Counter()
    with serving(count.tool, path, Authentication(TOKENS)) as served, served.connect() as line:
        runs = [post(line, "k", **bearer(token)).json["runs"] for token in (CI, ROOT, CI)]
    assert runs == [1, 2, 1]


def test_a_caller_that_lost_its_rights_gets_no_recorded_answer(path):
    count = Counter()
    with serving(count.tool, path, Authentication(TOKENS)) as served, served.connect() as line:
        assert post(line, "k", **bearer(CI)).status == 200
    closed = Counter(access=["admin"])
    with serving(closed.tool, path, Authentication(TOKENS)) as served, served.connect() as line:
        assert code(post(line, "k", **bearer(CI)), 403) == "access_denied"


def test_while_the_first_call_runs_a_repeated_one_is_refused_and_it_outlives_its_client(path):
    begun, go = threading.Event(), threading.Event()

    async def slow(arguments, context):
        begun.set()
        await asyncio.to_thread(go.wait, raw.PATIENCE)
        return "done"

    tool = Tool(id="t.count", description="", contract=Contract(input=NUMBER), handler=slow)
    with serving(tool, path) as served, served.connect() as line:
        with served.connect() as first:
            first.send(raw.request({"n": 1}, path="/tools/t.count", Idempotency_Key="k"))
            assert begun.wait(raw.PATIENCE)
            busy = post(line, "k")
            assert code(busy, 409) == "idempotency_key_in_use"
            assert busy.headers["retry-after"]
        go.set()
        answer = busy
        for _ in range(500):
            answer = post(line, "k")
            if answer.status == 200:
                break
        assert answer.json == "done"
        assert answer.headers["idempotency-replayed"] == "true"


def test_a_key_protects_calls_over_mcp_and_over_both_doors(path):
    count = Counter()
    meta = {"callpact/idempotencyKey": "k"}

    async def story(client):
        return [await client.call_tool("t_count", {"n": 1}, meta=meta) for _ in range(2)]

    for mode in ("2026-07-28", "legacy"):
        with serving(count.tool, path, Authentication(TOKENS)) as served:

            async def go(served=served, mode=mode):
                async with served.client(CI, mode) as client:
                    return await story(client)

            first, again = asyncio.run(asyncio.wait_for(go(), raw.PATIENCE))
            with served.connect() as line:
                assert post(line, "k", **bearer(CI)).json["runs"] == 1
        assert again.structured_content == first.structured_content
        assert again.meta["callpact/idempotencyReplayed"] is True
    assert count.runs == 1


def test_an_answer_that_is_too_large_is_not_kept_and_not_run_again(path, monkeypatch):
    monkeypatch.setattr(answer_store, "MAX_ANSWER_BYTES", 1000)
    count = Counter()
    body = {"n": 1, "m": 2000}
    with serving(count.tool, path) as served, served.connect() as line:
        assert post(line, "k", body).status == 200
        assert code(post(line, "k", body), 409) == "idempotency_answer_unavailable"
    assert count.runs == 1


def test_a_store_that_cannot_be_used_refuses_the_call(tmp_path):
    path = tmp_path / "answers.db"
    path.write_bytes(b"not a database" * 100)
    count = Counter()
    with serving(count.tool, path) as served, served.connect() as line:
        assert code(post(line, "k"), 503) == "idempotency_not_recorded"
        assert line.ask({"n": 1}, path="/tools/t.count").status == 200
    assert count.runs == 1


# --- the store --------------------------------------------------------------------------------


def key(name="k", caller="c", arguments=b"{}"):
    return AnswerKey.of(caller, "t.count", name, arguments)


FAR = 4_000_000_000_000


def test_a_call_that_was_interrupted_is_not_run_again(path):
    store = AnswerStore(path)
    assert store.claim(key(), FAR).state is ClaimState.NEW
    assert store.claim(key(), FAR).state is ClaimState.RUNNING
    store.close()
    with sqlite3.connect(path) as file:  # As if its deadline were over, in another process.
        file.execute("UPDATE answers SET until = 0")
    file.close()
    assert store.claim(key(), FAR).state is ClaimState.INTERRUPTED
    store.close()


def test_after_a_day_a_key_is_new(path):
    store = AnswerStore(path)
    store.claim(key(), FAR)
    store.finish(key(), b"answer")
    assert store.claim(key(), FAR).answer == b"answer"
    with sqlite3.connect(path) as file:
        file.execute("UPDATE answers SET begun = begun - 86400001")
    file.close()
    assert store.claim(key(), FAR).state is ClaimState.NEW
    store.close()


def test_the_file_is_private_and_names_neither_callers_nor_keys(path):
    store = AnswerStore(path)
    store.claim(key("secret-key", "secret-caller", b'{"secret":1}'), FAR)
    files = list(path.parent.iterdir())
    assert len(files) > 1
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert b"secret" not in file.read_bytes()
    store.close()


def test_the_caller_with_the_most_keys_loses_its_oldest_at_the_limit(path, monkeypatch):
    monkeypatch.setattr(answer_store, "MAX_ANSWERS", 100)
    store = AnswerStore(path)
    store.claim(key("mine", "quiet"), FAR)
    for number in range(300):
        store.claim(key(f"{number}", "loud"), FAR)
    with sqlite3.connect(path) as file:
        (number,) = file.execute("SELECT count(*) FROM answers").fetchone()
    file.close()
    assert number <= 100 + answer_store._PRUNE_EVERY
    assert store.claim(key("mine", "quiet"), FAR).state is ClaimState.RUNNING
    assert store.claim(key("299", "loud"), FAR).state is ClaimState.RUNNING
    assert store.claim(key("0", "loud"), FAR).state is ClaimState.NEW
    store.close()


def test_the_size_of_all_answers_is_limited(path, monkeypatch):
    monkeypatch.setattr(answer_store, "MAX_STORE_BYTES", 2_000_000)
    store = AnswerStore(path)
    for number in range(40):
        store.claim(key(f"{number}"), FAR)
        store.finish(key(f"{number}"), b"x" * 200_000)
    with sqlite3.connect(path) as file:
        (size,) = file.execute("SELECT sum(size) FROM answers").fetchone()
    file.close()
    assert size <= 2_000_000 + 2 * answer_store.MAX_ANSWER_BYTES
    store.close()


def test_a_database_of_something_else_is_left_alone(path):
    path.parent.mkdir()
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE theirs (x)")
    file.close()
    with pytest.raises(InvalidConfig, match="something else"):
        AnswerStore(path).claim(key(), FAR)
