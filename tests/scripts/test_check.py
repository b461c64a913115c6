"""`make test` runs in a clean environment and says which Pythons it tried."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import check  # noqa: E402  # a script, imported from its folder


def test_variables_of_the_shell_are_cleared_and_those_of_package_clients_kept():
    shell = {
        "PATH": "/bin",
        "HOME": "/home/a",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": "/somewhere",
        "NO_COLOR": "1",
        "LANG": "de_DE.UTF-8",
        "CALLPACT_TOKEN": "secret",
        "PIP_CERT": "/ca.pem",
        "npm_config_cache": "/cache",
        "https_proxy": "http://127.0.0.1:1",
        "CI": "true",
    }
    assert set(check.clean_environment(shell)) == {
        "PATH",
        "HOME",
        "PIP_CERT",
        "npm_config_cache",
        "https_proxy",
        "CI",
    }


def test_a_group_runs_without_the_variables_of_the_shell(monkeypatch, capfd):
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    code = "import os; print(os.environ.get('PYTHONUNBUFFERED', 'cleared'))"
    assert check.main(["one"], {"one": [[sys.executable, "-c", code]]}) == 0
    printed = capfd.readouterr().out
    assert "cleared" in printed
    assert f"groups (Python {check.version_of(sys.executable)})" in printed


def test_a_group_that_fails_makes_the_run_fail_and_the_others_run_all_the_same(capfd):
    fails = [[sys.executable, "-c", "raise SystemExit(1)"]]
    works = [[sys.executable, "-c", "print('ran')"]]
    assert check.main([], {"one": fails, "two": works}) == 1
    printed = capfd.readouterr().out
    assert "FAILED" in printed
    assert "ran" in printed


def test_an_unknown_group_is_named(capfd):
    assert check.main(["nonsense"]) == 2
    assert "no such group: nonsense" in capfd.readouterr().out


def test_the_tests_of_text_are_there():
    assert [path for path in check.TEXT_TESTS if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("", "no python3 of its own"),
        ("3.11.7", "the version of all other groups"),
        ("3.9.2", "callpact needs 3.11"),
        ("3.11.2", ""),
        ("3.13.1", ""),
    ],
)
def test_the_python_of_the_system_is_tried_where_it_is_another_version(version, reason):
    assert reason in check.reason_to_skip(version, "3.11.7")
    assert bool(reason) == bool(check.reason_to_skip(version, "3.11.7"))


def test_versions_are_read_from_interpreters():
    assert check.version_of(sys.executable) == platform.python_version()
    assert check.version_of(check.distribution_python() or sys.executable)
