"""The stores that the tests of `test_store.py` run against, each as a factory of empty ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from callpact.audit.sqlite import SqliteStore

sys.path.insert(0, str(Path(__file__).parent))  # `generated.py` is shared by the tests here.

ENGINES = ("sqlite",)


@pytest.fixture(params=ENGINES, scope="module")
def new_store(request, tmp_path_factory):
    """Makes empty stores; all are closed at the end of a module."""
    made = []

    def make():
        store = SqliteStore(tmp_path_factory.mktemp(request.param) / "audit.db")
        made.append(store)
        return store

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(new_store):
    """An empty store."""
    return new_store()
