"""A folder for sources, for the tests of hot reload."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the sources are; the modules that came from there are gone again after the test."""
    before, path = set(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    sys.path[:] = path
