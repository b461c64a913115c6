"""`make demo`, as far as it needs no make, and the stories that it names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def ran(script, *args, **more):
    done = subprocess.run(
        [sys.executable, "-X", "utf8", f"examples/{script}", *args],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        **more,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_the_demo_has_six_chapters_and_says_what_to_do_next(tmp_path):
    home = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "COLUMNS": "100"}
    shown = ran("shop/demo.py", "--once", env=home)
    places = [shown.index(f"\n{number}. ") for number in range(1, 7)]
    assert places == sorted(places)
    good, refused, mended, over_mcp, audit, published = places
    assert re.search(r"Darjeeling tea +42.00 +kg", shown[good:refused])
    assert "did you mean 'query'?" in shown[refused:mended]
    assert re.search(r'/price +converted +"12.50"', shown[mended:over_mcp])
    assert '"price": 12.5' in shown[mended:over_mcp]
    assert "isError=True" in shown[over_mcp:audit]
    # 20 calls by the agent; the two over MCP were of another tool.
    assert re.search(r"shop.supplier_offer +20 +50% +There is no product 't9'", shown[audit:])
    assert "shop@1.0.0: 3 contracts published" in shown[published:]
    broken = re.search(r"accepted before, refused now: (.*)", shown[published:])
    assert 20 < json.loads(broken[1])["limit"] <= 50
    assert "need a major step, and 1.1.0 is minor" in " ".join(shown[published:].split())
    assert "docs/tutorials/first-tool.md" in shown[published:]
    assert list(tmp_path.iterdir()) == []
    for script in re.findall(r"examples/(\S+\.py)", shown):
        assert (ROOT / "examples" / script).is_file()


def test_the_story_of_flowmcp_files_checks_calls_and_runs_hooks():
    shown = ran("weather/weather.py")
    assert "VAL032 `method` must be GET, POST, PUT or DELETE, got 'SEND'" in shown
    loaded = (
        "loaded with 0 findings: weather.getForecast, weather.getStation, weather.reportReading, "
    )
    assert f"{loaded}weather.getWarmestDay, weather.compareCities\n" in shown
    outcomes = [json.loads(line) for line in re.findall(r"^  (\{.*\})$", shown, re.MULTILINE)]
    forecast, rejected, reported, missing, warmest, compared, unknown = outcomes
    assert (forecast["status"], forecast["data"]["city"]) == (True, "Berlin")
    assert [day["rain"] for day in forecast["data"]["days"]] == [0, 10]
    assert rejected["messages"] == [
        "E004 getForecast: Property 'city' must be one of berlin, lisbon, oslo, got 'atlantis'",
        "E004 getForecast: Property 'days' must be ≤ 7, got 9",
    ]
    assert reported == {"status": True, "messages": [], "data": "be-1: 18.5 from callpact"}
    assert missing["messages"] == ["E001 getStation: API returned 404"]
    # The API adds a degree each day, and Lisbon is twelve degrees warmer than Oslo.
    assert warmest["data"] == {"city": "Berlin", "date": "2026-06-02", "high": 20}
    assert compared["data"] == {"warmer": "Lisbon", "by": 12}
    [words] = unknown["messages"]
    assert "E005 getWarmestDay: The hook preRequest of 'getWarmestDay' failed" in words
    assert re.search(r"no station in 'Atlantis' \(.*Trips\.mjs:\d+:\d+\)$", words)
    assert "key-of-the-weather-demo" not in shown


def test_the_story_of_hostile_hooks_survives_them():
    shown = ran("hostile/hostile.py")
    attacks = dict(re.findall(r"^hostile\.(\w+)\n  after [\d.]+ s, (.*)$", shown, re.MULTILINE))
    assert attacks["runForever"].startswith("E005 runForever: The hook executeRequest of")
    assert "Timeout: it ran longer than 1 s;" in attacks["runForever"]
    assert "MemoryLimit: it needed more than 64 MiB of memory" in attacks["eatMemory"]
    assert attacks["findHost"] == "its result: {'found': []}"
    assert "'collector.example' is not the root of the file" in attacks["sendAway"]
    assert "4 attacks, and this process is alive\n" in shown
