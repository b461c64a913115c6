"""What a command imports: pydantic and rich only where they are needed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import command_line

WEATHER = Path(__file__).parents[2] / "examples" / "weather"
STATION = {"id": "be-1", "height": 34, "temperature": 18.5}


@pytest.fixture
def upstream():
    """The address of an API with one station."""

    class Station(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(STATION).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Station) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def started(folder, *words):
    """A command in a process of its own: exit code, output, and the slow packages it imported."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "callpact", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=folder,
        env=command_line.environment(XDG_DATA_HOME=str(folder)),
        timeout=60,
        check=False,
    )
    lines = done.stderr.decode().splitlines()
    names = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "callpact" in names
    return done.returncode, done.stdout.decode(), names & {"pydantic", "rich", "mcp"}


@pytest.mark.parametrize(
    "words",
    [("--help",), ("--version",), ("call", "--help"), ("serve", "--help"), ("types", "--help")],
    ids=" ".join,
)
def test_help_and_version_need_neither_pydantic_nor_rich(tmp_path, words):
    code, out, imported = started(tmp_path, *words)
    assert code == 0
    assert "callpact" in out
    assert imported == set()


def test_a_call_of_a_flowmcp_file_needs_neither_pydantic_nor_rich(tmp_path, upstream):
    code, out, imported = started(
        tmp_path,
        *("call", "weather.getStation", "stationId=be-1", "-s", str(WEATHER / "Stations.mjs")),
        *("--upstream", f"https://api.weather.example={upstream}"),
    )
    assert (code, json.loads(out)) == (0, STATION)
    assert imported == set()


def test_a_call_of_an_openapi_document_needs_neither_pydantic_nor_rich(tmp_path, upstream):
    answer = {"description": "It.", "content": {"application/json": {"schema": {"type": "object"}}}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Weather", "version": "1"},
        "servers": [{"url": upstream}],
        "paths": {"/station": {"get": {"operationId": "station", "responses": {"200": answer}}}},
    }
    (tmp_path / "weather.json").write_text(json.dumps(document), "utf-8")
    allowed = ("--allow-host", upstream.removeprefix("http://"))
    code, out, imported = started(
        tmp_path, "call", "weather.station", "-s", "weather.json", *allowed
    )
    assert (code, json.loads(out)) == (0, STATION)
    assert imported == set()


def test_a_failed_call_needs_neither_pydantic_nor_rich(tmp_path):
    words = ("call", "weather.getNothing", "-s", str(WEATHER / "Stations.mjs"))
    code, _, imported = started(tmp_path, *words)
    assert code not in {0, 2}
    assert imported == set()


def test_options_that_need_a_conversion_are_still_checked(tmp_path):
    words = ("call", "weather.getStation", "-s", str(WEATHER / "Stations.mjs"))
    assert started(tmp_path, *words, "--as", "words")[0] == 2
    assert started(tmp_path, *words, "--timeout", "0")[0] == 2
    assert started(tmp_path, "call")[0] == 2
