"""`make demo`, as far as it needs no make."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_one_round_of_the_demo_shows_every_step_in_its_order():
    done = subprocess.run(
        [sys.executable, "examples/shop/demo.py", "--once"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout
    places = [shown.index(f"\n{number}. ") for number in range(1, 9)]
    assert places == sorted(places)
    good, rejected, cast, over_mcp, two_processes, files, hooks, agent = places
    assert '"Darjeeling tea"' in shown[good:rejected]
    assert "schema_validation_failed" in shown[rejected:cast]
    assert "did you mean 'query'?" in shown[rejected:cast]
    assert "changed: /price was converted" in shown[cast:over_mcp]
    assert '"price": 12.5' in shown[cast:over_mcp]
    assert "isError=True" in shown[over_mcp:two_processes]
    assert "102.0 euros are 110.16 USD" in shown[two_processes:files]
    assert "VAL032 `method` must be GET, POST, PUT or DELETE, got 'SEND'" in shown[files:hooks]
    loaded = (
        "loaded with 0 findings: weather.getForecast, weather.getStation, weather.reportReading, "
    )
    assert f"{loaded}weather.getWarmestDay, weather.compareCities\n" in shown[files:hooks]
    outcomes = re.findall(r"^  (\{.*\})$", shown[files:hooks], re.MULTILINE)
    forecast, rejected, reported, missing = map(json.loads, outcomes)
    assert (forecast["status"], forecast["data"]["city"]) == (True, "Berlin")
    assert [day["rain"] for day in forecast["data"]["days"]] == [0, 10]
    assert rejected["messages"] == [
        "E004 getForecast: Property 'city' must be one of berlin, lisbon, oslo, got 'atlantis'",
        "E004 getForecast: Property 'days' must be ≤ 7, got 9",
    ]
    assert reported == {"status": True, "messages": [], "data": "be-1: 18.5 from callpact"}
    assert missing["messages"] == ["E001 getStation: API returned 404"]
    _check_hooks(shown[hooks:agent])
    assert "key-of-the-weather-demo" not in shown
    assert shown[agent:].count(" µs ") == 6
    typed, last = shown.index("\n10. "), shown.index("\n11. ")
    assert agent < typed < last
    assert "Decision(status='refund', amount=40.0" in shown[typed:last]
    assert "refunds.model ERR_OUTPUT_SCHEMA, refunds.model ok\n" in shown[typed:last]
    assert "Traceback" not in done.stderr


def _check_hooks(shown):
    outcomes = re.findall(r"^  (\{.*\})$", shown, re.MULTILINE)
    warmest, compared, unknown = map(json.loads, outcomes)
    # The API adds a degree each day, and Lisbon is twelve degrees warmer than Oslo.
    assert warmest["data"] == {"city": "Berlin", "date": "2026-06-02", "high": 20}
    assert compared["data"] == {"warmer": "Lisbon", "by": 12}
    [words] = unknown["messages"]
    assert "E005 getWarmestDay: The hook preRequest of 'getWarmestDay' failed" in words
    assert re.search(r"no station in 'Atlantis' \(.*Trips\.mjs:\d+:\d+\)$", words)
    attacks = dict(re.findall(r"^hostile\.(\w+)\n  after [\d.]+ s, (.*)$", shown, re.MULTILINE))
    assert attacks["runForever"].startswith("E005 runForever: The hook executeRequest of")
    assert "Timeout: it ran longer than 1 s;" in attacks["runForever"]
    assert "MemoryLimit: it needed more than 64 MiB of memory" in attacks["eatMemory"]
    assert attacks["findHost"] == "its result: {'found': []}"
    assert "'collector.example' is not the root of the file" in attacks["sendAway"]
    assert "4 attacks, and this process is alive\n" in shown
