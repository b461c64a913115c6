"""What goes wrong when a real model is opened or asked, and that no key shows."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

from callpact import Agent, LimitReached, ModelError, UsageError, open_model
from callpact.agent import CircuitBreaker, ModelRequest, Rule
from callpact.errors import ReliabilityFailFastError
from openai_stub import (
    HELLO,
    KEY,
    NAME,
    PATIENCE,
    Stub,
    collected,
    echo_key,
    fail,
    raw,
    redirect,
    say,
    shown,
    silence,
    with_stub,
)


def retrying(times, kind):
    return (
        Rule(lambda scope: scope.error_kind == kind and scope.attempt < times, "retry", "again"),
    )


# --- failures -------------------------------------------------------------------------------


def test_a_server_error_is_tried_again_by_rules_and_every_attempt_counts():
    async def story(model, stub):
        agent = Agent(model).reliability(retrying(3, "5xx-transient"))
        answer = await agent.run("Hello?")
        assert answer == "Good day."
        assert answer.account.requests == len(stub.asked) == 3

    with_stub(fail(500), fail(503), say("Good day."))(story)


def test_without_rules_a_server_error_is_one_attempt():
    async def story(model, stub):
        with pytest.raises(ModelError) as caught:
            await Agent(model).run("Hello?")
        assert caught.value.status == 500
        assert "it went wrong" in str(caught.value)
        assert len(stub.asked) == 1

    with_stub(fail(500))(story)


def test_too_many_requests_is_a_rate_limit_and_tells_how_long_to_wait():
    async def story(model, stub):
        kinds = []
        rule = Rule(lambda scope: kinds.append(scope.error_kind), "retry", "never")
        with pytest.raises(ReliabilityFailFastError) as caught:
            await Agent(model).reliability(rule).run("Hello?")
        assert kinds == ["rate-limit"]
        assert caught.value.cause.status == 429
        assert "wait 20 s" in str(caught.value.cause)

    with_stub(fail(429, "slow down", retry_after="20"))(story)


def test_a_request_is_given_up_at_its_timeout():
    async def story(model, stub):
        with pytest.raises(ModelError, match=r"0\.1 s") as caught:
            await model.complete(ModelRequest("", HELLO.messages, timeout=0.1))
        assert caught.value.transient
        with pytest.raises(ModelError) as caught:
            await collected(model.stream(ModelRequest("", HELLO.messages, timeout=0.1)))
        assert caught.value.transient
        assert len(stub.asked) == 2

    with_stub(silence, silence)(story)


def test_the_limit_of_a_run_ends_a_request_that_hangs():
    async def story(model, stub):
        with pytest.raises((LimitReached, ModelError)):
            await Agent(model).limits(seconds=0.1).run("Hello?")

    with_stub(silence)(story)


def test_a_timeout_among_the_settings_is_kept():
    async def story(model, stub):
        settings = {"request_timeout": 0.1}
        with pytest.raises(ModelError, match=r"0\.1 s") as caught:
            await model.complete(ModelRequest("", HELLO.messages, settings=settings, timeout=9))
        assert caught.value.transient

    with_stub(silence)(story)


def test_nobody_at_the_address_is_a_passing_failure():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    model = open_model(NAME, base_url=f"http://127.0.0.1:{port}/v1")
    with pytest.raises(ModelError, match="could not be reached") as caught:
        asyncio.run(model.complete(HELLO))
    assert caught.value.transient
    assert caught.value.status is None


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'{"choices": [{"mess', "application/json"),
        (b"<html>Sign in</html>", "text/html"),
        (b'{"choices": []}', "application/json"),
        (b"[]", "application/json"),
        (b"", "application/json"),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_what_is_no_reply_is_an_error_of_the_model(data, kind, streams):
    async def story(model, stub):
        with pytest.raises(ModelError):
            await (collected(model.stream(HELLO)) if streams else model.complete(HELLO))

    with_stub(raw(data, kind))(story)


def test_a_model_that_the_server_does_not_have_is_told_with_a_near_name():
    async def story(model, stub):
        with pytest.raises(ModelError, match="did you mean 'openai:gpt-4o-mini'") as caught:
            await model.complete(HELLO)
        assert caught.value.status == 404

    absent = fail(404, "no such model", "model_not_found")
    with_stub(absent, name="openai:gpt-4o-minni")(story)


@pytest.mark.parametrize("status", [401, 403, 429, 500])
def test_a_key_that_a_server_shows_is_masked(status):
    async def story(model, stub):
        for request in (model.complete(HELLO), collected(model.stream(HELLO))):
            with pytest.raises(ModelError) as caught:
                await request
            assert caught.value.status == status
            assert "Bearer ***" in str(caught.value)
            assert KEY not in shown(caught.value)

    with_stub(echo_key(status), echo_key(status), api_key=KEY)(story)


def test_a_key_of_the_environment_is_masked_too(monkeypatch):
    monkeypatch.setenv("OLLAMA_API_KEY", KEY)

    async def story(model, stub):
        with pytest.raises(ModelError) as caught:
            await model.complete(HELLO)
        assert "Bearer ***" in str(caught.value)
        assert KEY not in shown(caught.value)

    with_stub(echo_key(), name="ollama:llama3")(story)


def test_half_a_key_does_not_show_where_a_long_error_is_cut():
    async def story(model, stub):
        with pytest.raises(ModelError) as caught:
            await model.complete(HELLO)
        assert KEY[:8] not in str(caught.value)
        assert len(str(caught.value)) < 700

    with_stub(fail(400, "x" * 490 + KEY + "y" * 100_000), api_key=KEY)(story)


def test_a_key_that_cannot_be_a_header_does_not_show(monkeypatch):
    monkeypatch.setenv("OLLAMA_API_KEY", f"{KEY}\n")

    async def story(model, stub):
        with pytest.raises(ModelError) as caught:
            await model.complete(HELLO)
        assert KEY not in shown(caught.value)

    with_stub(name="ollama:llama3")(story)


def test_a_redirect_is_not_followed():
    async def main():
        async with asyncio.timeout(PATIENCE), Stub(say("Here.")) as other:
            async with Stub(redirect(f"{other.url}/chat/completions")) as stub:
                model = open_model(NAME, base_url=stub.url, api_key=KEY)
                with pytest.raises(ModelError):
                    await model.complete(HELLO)
            assert other.asked == []

    asyncio.run(main())


def test_a_server_that_fails_leaves_alone_another_with_a_model_of_the_same_name():
    async def main():
        async with asyncio.timeout(PATIENCE), Stub(fail(500)) as bad, Stub(say("Hi.")) as good:
            breaker = CircuitBreaker(failures=1)
            models = [open_model(NAME, base_url=stub.url) for stub in (bad, good)]
            rule = Rule(lambda scope: scope.error is not None, "retry-other", "next")
            agent = Agent(models[0]).reliability(
                rule, providers=models[1:], circuit_breaker=breaker
            )
            assert await agent.run("Hello?") == "Hi."

    asyncio.run(main())


# --- opening --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt-5", "opnai:gpt-5", ":gpt-5", "openai:", "", "x" * 10_000])
def test_an_unknown_name_is_told_with_what_is_expected(name):
    with pytest.raises(UsageError, match=r"a vendor, a colon and a model, such as 'openai:gpt-5'"):
        open_model(name, api_key=KEY)


@pytest.mark.parametrize("name", ["gpt-5", "opnai:gpt-5"])
def test_an_unknown_name_is_told_with_near_ones(name):
    with pytest.raises(UsageError, match=r"near it: .*openai:gpt-5"):
        open_model(name)


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("deepseek:deepseek-chat", "DEEPSEEK_API_KEY"),
        ("ollama:llama3", "OLLAMA_BASE_URL"),
        ("openrouter:openai/gpt-5", "OPENROUTER_API_KEY"),
    ],
)
def test_a_missing_key_is_told_by_the_name_of_its_variable(name, variable, monkeypatch):
    for each in (variable, "OPENAI_BASE_URL"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with pytest.raises(UsageError) as caught:
        open_model(name)
    assert f"needs {variable} in the environment" in str(caught.value)
    assert KEY not in shown(caught.value)


@pytest.mark.parametrize(
    "base_url", ["127.0.0.1:11434", "ftp://host/v1", "http://", "http://[::1", "", 7]
)
def test_an_address_that_is_none_is_refused(base_url):
    with pytest.raises(UsageError, match="base_url must be the address"):
        open_model(NAME, base_url=base_url)


@pytest.mark.parametrize("api_key", ["", f"{KEY}\n", f" {KEY}", 7])
def test_a_key_that_is_none_is_refused_and_not_shown(api_key):
    with pytest.raises(UsageError, match="api_key") as caught:
        open_model(NAME, api_key=api_key)
    assert KEY not in shown(caught.value)


def test_an_option_that_a_vendor_does_not_take_is_refused_with_those_it_takes():
    with pytest.raises(UsageError, match=r"takes no region_name; it takes .*api_key"):
        open_model("openai:gpt-5", api_key=KEY, region_name="here")
    with pytest.raises(UsageError, match="takes no region_name"):
        open_model(NAME, base_url="http://127.0.0.1:9/v1", region_name="here")


def test_a_model_of_pydantic_ai_takes_no_second_address():
    from pydantic_ai.models.test import TestModel

    with pytest.raises(UsageError, match="already"):
        open_model(TestModel(), base_url="http://127.0.0.1:9/v1")


def test_what_is_no_model_and_no_ability_is_refused():
    with pytest.raises(UsageError, match="got int"):
        open_model(7)
    with pytest.raises(UsageError, match="no ability 'flying'"):
        open_model(NAME, base_url="http://127.0.0.1:9/v1", abilities=["flying"])


def test_the_name_of_a_model_at_an_address_tells_where_it_is_and_no_password():
    model = open_model("openai:llama3", base_url=f"http://me:{KEY}@127.0.0.1:11434/v1")
    assert model.name == "openai:llama3@127.0.0.1:11434"
    assert repr(model) == "OpenedModel('openai:llama3@127.0.0.1:11434')"


def in_new_process(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_callpact_and_its_agents_does_not_import_pydantic_ai():
    code = (
        "import sys, callpact, callpact.agent, callpact.agent.models.open\n"
        "callpact.Agent, callpact.open_model\n"
        "print([name for name in ('pydantic_ai', 'openai') if name in sys.modules])"
    )
    assert in_new_process(code) == "[]"


def test_without_the_extra_the_line_that_installs_it_is_told():
    code = (
        "import sys\n"
        "sys.modules['pydantic_ai'] = None\n"
        "from callpact import UsageError, open_model\n"
        "try: open_model('openai:gpt-5')\n"
        "except UsageError as error: print(error)"
    )
    assert 'pip install "callpact[models]"' in in_new_process(code)


def test_without_the_package_of_a_vendor_the_line_that_installs_it_is_told():
    code = (
        "import sys\n"
        "sys.modules['anthropic'] = None\n"
        "from callpact import UsageError, open_model\n"
        "try: open_model('anthropic:claude-opus-4-5')\n"
        "except UsageError as error: print(error)"
    )
    assert 'pip install "pydantic-ai-slim[anthropic]"' in in_new_process(code)
