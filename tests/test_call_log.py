"""What a tool logs goes to its logger, and its first lines to whoever observes the call."""

from __future__ import annotations

import asyncio
import logging

import pytest

from callpact import Contract, Runtime, Tool, ToolError
from callpact.call_log import MAX_KEPT_LINES, MAX_KEPT_TEXT, LogLine
from callpact.tool import Context


def logged(say):
    """What is kept of a call whose tool logs."""
    context = Context("call-1", "shop.search")
    say(context.logger)
    return context.logged


def test_lines_from_info_on_are_kept_whatever_the_process_logs():
    logging.getLogger("callpact.tool.shop.search").setLevel(logging.CRITICAL)
    try:
        kept = logged(
            lambda log: (
                log.debug("no"),
                log.info("asked %s times", 3),
                log.warning("100 %"),
                log.error("%(a)s", {"a": "of a mapping"}),
                log.log(logging.CRITICAL, "bad"),
            )
        )
    finally:
        logging.getLogger("callpact.tool.shop.search").setLevel(logging.NOTSET)
    assert kept == [
        LogLine("info", "asked 3 times"),
        LogLine("warning", "100 %"),
        LogLine("error", "of a mapping"),
        LogLine("critical", "bad"),
    ]


def test_an_exception_is_kept_in_the_words_of_the_tool(caplog):
    def say(log):
        try:
            raise ValueError("the password is tea")
        except ValueError:
            log.exception("it failed")

    assert logged(say) == [LogLine("error", "it failed")]
    assert "the password is tea" in caplog.text


def test_what_is_kept_is_bounded():
    kept = logged(lambda log: [log.info("%d%s", n, "x" * 5_000) for n in range(80)])
    assert len(kept) == MAX_KEPT_LINES
    assert {len(line.message) for line in kept} == {MAX_KEPT_TEXT}
    assert kept[-1].message.startswith("49x")


class Unspeakable:
    def __str__(self):
        raise RuntimeError("never")


@pytest.mark.parametrize("said", [("%d", "three"), ("%s and %s", 1), (Unspeakable(),)])
def test_a_line_that_cannot_be_written_out_does_not_break_the_call(said, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    (line,) = logged(lambda log: log.info(*said))
    assert line.level == "info"
    assert "cannot be written out" in line.message


def test_a_line_tells_where_it_was_logged_and_of_which_call(caplog):
    caplog.set_level(logging.INFO)
    log = Context("call-1", "shop.search").logger
    log.info("directly", extra={"order": 7})
    log.log(logging.INFO, "by its level")
    assert {record.filename for record in caplog.records} == {"test_call_log.py"}
    first = caplog.records[0]
    assert (first.name, first.tool_id, first.call_id, first.order) == (
        *("callpact.tool.shop.search", "shop.search", "call-1", 7),
    )


def test_observers_are_told_what_a_tool_logged_whatever_became_of_the_call():
    async def handler(arguments, context):
        context.logger.info("for %s", arguments["who"])
        if arguments["who"] == "bob":
            raise ToolError("no", "Not for bob")

    events = []
    tool = Tool(id="a.b", description="", contract=Contract(), handler=handler)
    runtime = Runtime([tool], observers=[events.append])

    async def main():
        await asyncio.gather(
            *(runtime.execute("a.b", {"who": who}) for who in ("ann", "bob")),
            return_exceptions=True,
        )

    asyncio.run(main())
    told = {event.arguments["who"]: list(event.logs) for event in events}
    assert told == {who: [LogLine("info", f"for {who}")] for who in ("ann", "bob")}
