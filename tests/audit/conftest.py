"""The stores that tests run against: for `test_store.py` both, each as a factory of empty ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from callpact.audit.sqlite import SqliteStore
from postgres import Server, Unavailable

sys.path.insert(0, str(Path(__file__).parent))  # `generated.py` is shared by the tests here.

ENGINES = ("sqlite", "postgres")


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server, one for each process of tests."""
    try:
        server = Server()
    except Unavailable as reason:
        pytest.skip(f"no PostgreSQL here: {reason}")
    yield server
    server.close()


@pytest.fixture
def url(server, tmp_path, monkeypatch):
    """The address of an empty database, and nothing of the user's that leads elsewhere."""
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "no file"))
    return server.new_database()


@pytest.fixture
def postgres_store(server):
    """The class; where there is no server there may be no driver."""
    from callpact.audit.postgres import PostgresStore

    return PostgresStore


@pytest.fixture
def postgres(postgres_store, url):
    """An empty store in PostgreSQL."""
    store = postgres_store(url)
    yield store
    store.close()


@pytest.fixture(params=ENGINES, scope="module")
def new_store(request, tmp_path_factory):
    """Makes empty stores; all are closed at the end of a module."""
    made = []
    if request.param == "postgres":
        server = request.getfixturevalue("server")
        from callpact.audit.postgres import PostgresStore

    def make():
        if request.param == "postgres":
            store = PostgresStore(server.new_database())
        else:
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
