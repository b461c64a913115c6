"""Why a reply ended: calls of an incomplete one never run, and broken arguments are not guessed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers import GOOD, Heard, Refund, call, go, refunds, streamed
from callpact import Agent, ModelError, OutputSchemaError, Runtime, from_functions, tool
from callpact.agent import Finished, Message, ModelReply, SqliteMemory, Token, ToolUse
from callpact.agent.run.offered_tools import PURE_SYNTAX
from callpact.errors import ToolError
from callpact.jsonreader.reader import LOSSY
from callpact.jsonreader.reading import SAFE
from callpact.testing import ScriptedModel
from openai_stub import say, with_stub

CUT = '{"to":"bob","amount":50,'
WHOLE = '{"to":"bob","amount":50}'


class Bank:
    """Pays, and keeps count."""

    def __init__(self):
        self.paid = []
        self.heard = Heard()
        self.finished = []

    def agent(self, *replies, model=None, **options):
        @tool(namespace="bank")
        def pay(to: str, amount: int) -> str:
            """Pay."""
            self.paid.append((to, amount))
            return "paid"

        tools = Runtime(from_functions(pay), [self.finished.append])
        return Agent(model or ScriptedModel(replies), tools=tools, **options).on(self.heard)


def pay(arguments, stop_reason, content=""):
    return ModelReply(content, (ToolUse("u1", "bank_pay", arguments),), stop_reason=stop_reason)


def results(answer):
    return [message for message in answer.messages if message.role == "tool"]


INCOMPLETE = [
    ("length", "length"),
    ("max_tokens", "length"),
    ("MAX_TOKENS", "length"),
    ("model_context_window_exceeded", "length"),
    ("content_filter", "content_filter"),
    ("SAFETY", "content_filter"),
    ("refusal", "content_filter"),
    ("error", "error"),
    ("malformed_function_call", "error"),
    ("a word of tomorrow", "error"),
]


@pytest.mark.parametrize(("reason", "finish"), INCOMPLETE)
@pytest.mark.parametrize("arguments", [CUT, WHOLE, {"to": "bob", "amount": 50}, ""])
def test_no_call_of_an_incomplete_reply_runs(reason, finish, arguments):
    bank = Bank()
    answer = go(bank.agent(pay(arguments, reason), "done").run("pay bob"))
    assert answer == "done"
    assert bank.paid == []
    (result,) = results(answer)
    assert result.is_error
    error = json.loads(result.content)["error"]
    assert "none of its tool calls was run" in error["message"]
    assert error["hint"]
    assert bank.heard.one("agent.reply_cut_off") == {"finish": finish, "tools": ["bank_pay"]}


@pytest.mark.parametrize("reason", [5, b"length", ["length"]])
def test_a_reason_that_is_no_text_is_no_reply(reason):
    bank = Bank()
    with pytest.raises(ModelError):
        go(bank.agent(pay(WHOLE, reason)).run("pay bob"))
    assert bank.paid == []


def test_none_of_several_calls_runs_and_each_has_its_result():
    bank = Bank()
    uses = tuple(ToolUse(f"u{n}", "bank_pay", {"to": "bob", "amount": n}) for n in range(3))
    answer = go(bank.agent(ModelReply("", uses, stop_reason="length"), "done").run("pay"))
    assert [each.tool_use_id for each in results(answer)] == ["u0", "u1", "u2"]
    assert bank.paid == []


@pytest.mark.parametrize("reason", [None, "", "stop", "tool_calls", "tool_call", "tool_use"])
def test_calls_of_a_complete_reply_run(reason):
    bank = Bank()
    go(bank.agent(pay(WHOLE, reason), "done").run("pay bob"))
    assert bank.paid == [("bob", 50)]
    assert bank.heard.of("agent.reply_cut_off") == []


def test_a_model_that_is_cut_off_again_and_again_is_given_up():
    bank = Bank()
    agent = bank.agent(*[pay(CUT, "length")] * 20)
    answer = go(agent.run("pay bob"))
    assert answer.account.requests == 5
    assert bank.paid == []


def test_a_refused_call_is_on_record_without_its_text():
    bank = Bank()
    go(bank.agent(pay(CUT, "length"), pay(CUT, "stop"), "done").run("pay bob"))
    refused = [each for each in bank.finished if each.tool_id == "bank.pay"]
    assert [each.gate for each in refused] == ["input", "input"]
    assert [each.error.issues[0].code for each in refused] == ["truncated", "json"]
    assert [each.arguments for each in refused] == [None, None]
    assert all(each.parent_id and each.via == "agent" for each in refused)


def test_the_scripted_model_sets_the_reason_by_a_word():
    bank = Bank()
    cut = {"tool": "bank_pay", "arguments": CUT, "finish": "length"}
    answer = go(bank.agent(cut, {"text": "half an ans", "finish": "length"}).run("pay bob"))
    assert bank.paid == []
    assert (answer, answer.finish) == ("half an ans", "length")


def test_a_cut_reply_streams_and_its_call_does_not_run():
    bank = Bank()
    items = go(streamed(bank.agent(pay(CUT, "length", "I pay."), "done")))
    assert [item.text for item in items if isinstance(item, Token)] == ["I", " pay.", "done"]
    assert isinstance(items[-1], Finished)
    assert bank.paid == []


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("reason", ["length", "content_filter", "guardrail_intervened", "odd"])
def test_a_real_model_that_was_cut_off_runs_nothing(streams, reason):
    bank = Bank()

    async def story(model, stub):
        agent = bank.agent(model=model)
        await (streamed(agent, "pay bob") if streams else agent.run("pay bob"))
        assert "none of its tool calls" in stub.bodies[1]["messages"][-1]["content"]

    with_stub(say("", ("bank_pay", CUT), finish=reason), say("done"))(story)
    assert bank.paid == []


# --- arguments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "codes"),
    [
        ('{"to":"bob","amount":50,}', ["trailing_comma"]),
        ("{'to':'bob','amount':50}", ["single_quotes"]),
        ('{to:"bob",amount:50}', ["unquoted_key", "unquoted_key"]),
        ('{"to":"bob", // him\n"amount":50}', ["comment"]),
        ('```json\n{"to":"bob","amount":50}\n```', ["fence"]),
    ],
)
def test_another_notation_is_read_and_each_repair_is_told_and_on_record(written, codes):
    bank = Bank()
    go(bank.agent(pay(written, "stop"), "done").run("pay bob"))
    assert bank.paid == [("bob", 50)]
    told = bank.heard.one("agent.arguments_repaired")
    assert set(told["repairs"]) == set(codes)
    assert (told["tool"], told["tool_use_id"]) == ("bank_pay", "u1")
    (record,) = [each for each in bank.finished if each.tool_id == "bank.pay"]
    assert len(record.logs) == len(told["repairs"])
    assert all(line.level == "warning" for line in record.logs)
    assert set(codes) == {line.message.split(": ")[1].split(",")[0] for line in record.logs}


def test_repairs_are_on_record_of_a_call_that_fails_as_well():
    finished = []

    @tool(namespace="bank")
    def pay_nobody(to: str) -> str:
        raise ToolError("closed", "the bank is closed")

    tools = Runtime(from_functions(pay_nobody), [finished.append])
    use = ModelReply("", (ToolUse("u", "bank_pay_nobody", "{'to': 'bob'}"),))
    go(Agent(ScriptedModel([use, "done"]), tools=tools).run("pay"))
    (record,) = [each for each in finished if each.tool_id == "bank.pay_nobody"]
    assert record.error.code == "closed"
    assert "single_quotes" in record.logs[0].message


@pytest.mark.parametrize(
    "written",
    [
        CUT,
        '{"to":"bob","amount":50',
        '{"to":"bob","amount":5',
        '{"to":"bo',
        '{"to":"bob","amount":tr',
        '{"to":"bob","amount":50}}',
        '{"to":"bob","amount":50]',
        '"to":"bob","amount":50}',
        'Sure: {"to":"bob","amount":50}',
        '{"to":"bob","amount":1} {"to":"bob","amount":50}',
        '{"to":"bob","amount":1,"amount":50}',
        '{"to":"bob","amount":0050}',
        "pay bob 50",
    ],
)
def test_arguments_that_need_a_guess_are_refused_with_the_reason(written):
    bank = Bank()
    answer = go(bank.agent(pay(written, None), "done").run("pay bob"))
    assert bank.paid == []
    error = json.loads(results(answer)[0].content)["error"]
    assert error["code"] == "schema_validation_failed"
    assert "cannot be read without guessing" in error["message"]
    assert "JSON object" in error["hint"]


@given(
    arguments=st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers(), min_size=1),
    share=st.floats(0, 1, exclude_max=True),
)
def test_no_part_of_a_call_ever_runs(arguments, share):
    ran = []

    @tool(namespace="bank")
    def any_pay(**rest: object) -> None:
        ran.append(rest)

    text = json.dumps(arguments)
    part = text[: max(1, int(len(text) * share))]
    use = ModelReply("", (ToolUse("u", "bank_any_pay", part),))
    go(Agent(ScriptedModel([use, "done"]), tools=[any_pay]).run("pay"))
    assert ran == []


def test_pure_syntax_names_only_safe_repairs():
    assert not PURE_SYNTAX & LOSSY
    guesses = {"cut_literal", "missing_closer", "missing_opener", "extra_closer", "wrong_closer"}
    assert not PURE_SYNTAX & guesses
    assert "trailing_comma" in PURE_SYNTAX & SAFE.keys()


# --- answers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "words"), [("length", "limit"), ("content_filter", "content filter")]
)
def test_a_cut_answer_is_refused_as_such_wherever_it_is_read(reason, words):
    cut = {"text": GOOD[:-4], "finish": reason}
    agent, _ = refunds(cut, cut)
    answer = go(agent.run("refund?"))
    assert answer.finish == reason
    for read in (
        lambda: agent.parse_output(answer),
        lambda: agent.parse_output(answer, repair="safe"),
        lambda: go(agent.run_typed("refund?")),
    ):
        with pytest.raises(OutputSchemaError) as caught:
            read()
        assert caught.value.stage == "json-parse"
        assert caught.value.cause.code == "truncated"
        assert words in caught.value.error


def test_the_model_is_shown_that_its_answer_was_cut():
    agent, model = refunds({"text": GOOD[:-4], "finish": "length"}, GOOD, retries=1)
    assert go(agent.run_typed("refund?")).amount == 5.0
    assert "limit" in model.requests[1].messages[-1].content


def test_a_forced_call_that_was_cut_is_no_answer():
    model = ScriptedModel([{"text": GOOD[:-4], "finish": "length"}])
    agent = Agent(model).output_schema(Refund, strategy="tool-forced")
    with pytest.raises(OutputSchemaError, match="limit"):
        go(agent.run_typed("refund?"))


def test_half_an_answer_is_not_remembered(tmp_path):
    memory = SqliteMemory(tmp_path / "turns.db")
    replies = [{"text": "Once upon", "finish": "length"}, "Whole."]
    agent = Agent(ScriptedModel(replies)).memory(memory)
    go(agent.run("a tale?"))
    go(agent.run("again?"))
    assert [turn.answer for turn in go(memory.recall("default", 5))] == ["Whole."]
    memory.close()


def test_an_agent_that_is_a_tool_gives_no_half_answer():
    sub = Agent(ScriptedModel([{"text": "Once upon", "finish": "length"}]), name="teller")
    agent = Agent(ScriptedModel([call("teller_ask", {"message": "?"}), "done"]))
    (result,) = results(go(agent.tools([sub.as_tool()]).run("go")))
    assert json.loads(result.content)["error"]["code"] == "answer_cut_off"


def test_a_message_and_a_reply_keep_their_fields():
    assert Message("user", "hi") == Message("user", "hi", (), None, None)
    assert ModelReply("x", (), stop_reason="end_turn").finish == "stop"
