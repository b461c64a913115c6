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
    places = [shown.index(f"\n{number}. ") for number in range(1, 8)]
    assert places == sorted(places)
    good, rejected, cast, over_mcp, two_processes, files, agent = places
    assert '"Darjeeling tea"' in shown[good:rejected]
    assert "schema_validation_failed" in shown[rejected:cast]
    assert "did you mean 'query'?" in shown[rejected:cast]
    assert "changed: /price was converted" in shown[cast:over_mcp]
    assert '"price": 12.5' in shown[cast:over_mcp]
    assert "isError=True" in shown[over_mcp:two_processes]
    assert "102.0 euros are 110.16 USD" in shown[two_processes:files]
    assert "VAL032 `method` must be GET, POST, PUT or DELETE, got 'SEND'" in shown[files:agent]
    loaded = (
        "loaded with 0 findings: weather.getForecast, weather.getStation, weather.reportReading"
    )
    assert loaded in shown[files:agent]
    outcomes = re.findall(r"^  (\{.*\})$", shown[files:agent], re.MULTILINE)
    forecast, rejected, reported, missing = map(json.loads, outcomes)
    assert (forecast["status"], forecast["data"]["city"]) == (True, "Berlin")
    assert [day["rain"] for day in forecast["data"]["days"]] == [0, 10]
    assert rejected["messages"] == [
        "E004 getForecast: Property 'city' must be one of berlin, lisbon, oslo, got 'atlantis'",
        "E004 getForecast: Property 'days' must be ≤ 7, got 9",
    ]
    assert reported == {"status": True, "messages": [], "data": "be-1: 18.5 from callpact"}
    assert missing["messages"] == ["E001 getStation: API returned 404"]
    assert "key-of-the-weather-demo" not in shown
    assert shown[agent:].count(" µs ") == 6
    assert "Traceback" not in done.stderr
