"""`callpact serve` with callers: what the configuration file says of them holds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import raw
from issuer import AUDIENCE, Issuer
from serving import CI, ROOT, bearer

TOOLS = """
from callpact import tool

@tool
def open_() -> int:
    "For all."
    return 1

@tool(access=["admin"])
def admin() -> int:
    "For some."
    return 2
"""
FILE = """
secrets = "keys.env"
[sources.t]
ref = "python:t.py"
[serve]
hosts = ["tools.example.com"]
[serve.tokens.ci]
secret = "CI_TOKEN"
[serve.tokens.root]
secret = "ROOT_TOKEN"
scopes = ["admin"]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "t.py").write_text(TOOLS, "utf-8")
    (tmp_path / "keys.env").write_text(f"CI_TOKEN={CI}\n", "utf-8")
    (tmp_path / "keys.env").chmod(0o600)
    (tmp_path / "callpact.toml").write_text(FILE, "utf-8")
    monkeypatch.setenv("ROOT_TOKEN", ROOT)
    return tmp_path


def listed(line, token, **headers):
    answer = line.ask(raw.message(), **raw.routed(), **bearer(token), **headers)
    return sorted(tool["name"] for tool in answer.result["tools"])


def test_the_callers_of_the_file_see_their_tools_also_beyond_this_machine(folder):
    with raw.Served(args=["--host", "0.0.0.0"], cwd=folder) as served, served.connect() as line:
        assert line.ask(raw.message(), **raw.routed()).status == 401
        assert listed(line, CI, Host="tools.example.com") == ["t_open_"]
        assert listed(line, ROOT) == ["t_admin", "t_open_"]
        assert line.ask(raw.message(), Host="evil.example", **raw.routed()).status == 403
    assert not any(CI in told or ROOT in told for told in served.lines)


def test_the_issuer_of_the_file_is_asked(folder):
    with Issuer() as issuer:
        oauth = f'[serve.oauth]\nissuer = "{issuer.url}"\naudience = "{AUDIENCE}"\nhosts = ["{issuer.host}"]\n'
        (folder / "callpact.toml").write_text(FILE + oauth, "utf-8")
        with raw.Served(cwd=folder) as served, served.connect() as line:
            assert listed(line, issuer.token(scope="admin")) == ["t_admin", "t_open_"]
            assert listed(line, CI) == ["t_open_"]


OPEN = """
[sources.t]
ref = "python:t.py"
[serve]
host = "0.0.0.0"
hosts = ["tools"]
"""
WARNING = (
    "warning: there is no authentication (--trust-network): everybody who reaches this port can "
    "call the tools"
)


@pytest.mark.parametrize(
    ("file", "args"),
    [(OPEN, ["--trust-network"]), (OPEN + "trust_network = true\n", [])],
    ids=["option", "file"],
)
def test_a_trusted_network_is_served_without_tokens_under_the_names_of_the_file(folder, file, args):
    (folder / "callpact.toml").write_text(file, "utf-8")
    with raw.Served(args=args, cwd=folder) as served, served.connect() as line:
        served.until(WARNING)
        assert line.ask(raw.message(), Host="tools", **raw.routed()).status == 200
        assert line.ask(raw.message(), Host="evil.example", **raw.routed()).status == 403
        assert line.ask(raw.message(), Origin="https://evil.example", **raw.routed()).status == 403
    assert not any(told.startswith("authentication:") for told in served.lines)


@pytest.mark.parametrize(
    ("file", "args", "words"),
    [
        (OPEN, [], "--trust-network"),
        (OPEN + "trust_network = true\n", ["--no-trust-network"], "--trust-network"),
        (OPEN.replace('hosts = ["tools"]', ""), ["--trust-network"], 'hosts = ["'),
    ],
    ids=["not asked for", "taken back", "no names"],
)
def test_a_network_is_trusted_only_as_a_whole_and_by_name(folder, file, args, words):
    (folder / "callpact.toml").write_text(file, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "callpact", "serve", "--port", "0", *args], cwd=folder,
        capture_output=True, text=True, timeout=raw.PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("CI_TOKEN", "NO_SUCH"), "[serve.tokens.ci]"),
        (('secret = "CI_TOKEN"', 'secret = "SHORT"'), "16 characters"),
        (('secret = "CI_TOKEN"', f'token = "{CI}"'), "serve.tokens.ci.token is not known"),
        (('[serve.tokens.ci]\nsecret = "CI_TOKEN"', f'[serve.tokens]\nci = "{CI}"'), "serve.tokens.ci"),
        (('hosts = ["tools.example.com"]', 'hosts = ["*"]'), "[serve] hosts"),
        (('hosts = ["tools.example.com"]', "ports = [1]"), "serve.ports is not known; known here: stdio, host, port"),
        (("[serve.tokens.ci]", '[serve.oauth]\nissuer = "x"\naudience = "y"\n[serve.tokens.ci]'), "[serve.oauth] "),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line_before_anything_is_loaded(folder, change, words):
    (folder / "callpact.toml").write_text(FILE.replace(*change), "utf-8")
    (folder / "t.py").write_text("raise SystemExit(9)", "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "callpact", "serve", "--port", "0"], cwd=folder,
        env={**os.environ, "SHORT": "short-value"}, capture_output=True, text=True, timeout=raw.PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert words in line
    assert CI not in line
    assert "short-value" not in line


def test_scopes_for_all_cannot_be_given_where_callers_have_their_own(folder):
    done = subprocess.run(
        [sys.executable, "-m", "callpact", "serve", "--port", "0", "--scope", "admin"], cwd=folder,
        capture_output=True, text=True, timeout=raw.PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--scope" in done.stderr
