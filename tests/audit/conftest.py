"""The stores that tests run against: for `test_store.py` both, each as a factory of empty ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from callpact.audit.store.parquet import ParquetStore
from postgres import Server, Unavailable

sys.path.insert(0, str(Path(__file__).parent))  # `generated.py` is shared by the tests here.

ENGINES = ("parquet", "postgres")


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
    from callpact.audit.store.postgres import PostgresStore

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
        from callpact.audit.store.postgres import PostgresStore

    def make():
        if request.param == "postgres":
            store = PostgresStore(server.new_database())
        else:
            store = ParquetStore(tmp_path_factory.mktemp(request.param))
        made.append(store)
        return store

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(new_store):
    """An empty store."""
    return new_store()


@pytest.fixture
def make_disk(tmp_path):
    """Makes a small file system: `make_disk("64k")`."""
    mounted = []

    def make(size):
        folder = tmp_path / "disk"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        try:
            is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            is_mounted = False
        if not is_mounted:
            pytest.skip("no right to mount a small disk")
        mounted.append(folder)
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)
