"""What is particular to the PostgreSQL store: its schema, its versions, and what goes wrong."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from generated import counted, naive, records

from callpact.audit.store import Filter, Moved, Overtaken, Store
from callpact.audit.store.postgres import LOCK
from callpact.errors import CallpactError, InvalidConfig, UsageError
from postgres import SCHEMA, database_of

SAMPLE = list(records(600))


@pytest.fixture
def store(postgres):
    return postgres


def test_it_is_a_store(store):
    kept: Store = store
    assert kept.add(SAMPLE) == len(SAMPLE)


def test_records_outlive_the_process_that_kept_them(postgres_store, url):
    first = postgres_store(url)
    first.add(SAMPLE)
    first.close()
    again = postgres_store(url)
    assert again.find(SAMPLE[3].id) == SAMPLE[3]
    assert again.add(SAMPLE) == 0
    assert counted(again) == naive(SAMPLE)
    again.close()


def test_other_tables_of_the_database_are_left_alone(server, postgres_store, url):
    server.run("CREATE TABLE calls (id int)", url)
    store = postgres_store(url)
    store.add(SAMPLE)
    store.close()
    assert server.run("SELECT count(*) FROM public.calls", url) == [["0"]]


def test_a_log_of_another_version_is_refused(server, postgres_store, url):
    postgres_store(url).close()
    server.run(f"UPDATE {SCHEMA}.meta SET value = 999 WHERE name = 'version'", url)
    with pytest.raises(InvalidConfig, match="version 999") as refused:
        postgres_store(url)
    assert database_of(url) in str(refused.value)


def test_a_schema_of_something_else_is_refused_and_left_as_it_is(server, postgres_store, url):
    server.run(f"CREATE SCHEMA {SCHEMA}", url)
    server.run(f"CREATE TABLE {SCHEMA}.orders (id int)", url)
    with pytest.raises(InvalidConfig, match="not an audit log"):
        postgres_store(url)
    assert server.tables(url) == {"orders"}


# What goes wrong


def told(url):
    """What is said of an address that cannot be used, as the class and the text."""
    from callpact.audit.store.postgres import PostgresStore

    with pytest.raises(CallpactError) as refused:
        PostgresStore(url)
    return refused.type, str(refused.value)


def test_a_server_that_does_not_run_is_told(server):
    kind, text = told("postgresql://postgres@127.0.0.1:1/log")
    assert kind is UsageError
    assert "postgresql://postgres@127.0.0.1:1/log" in text
    assert "cannot be reached" in text


def test_a_host_that_is_not_there_is_told(server):
    kind, text = told("postgresql://postgres@nowhere.invalid/log")
    assert kind is UsageError
    assert "cannot be reached" in text


@pytest.mark.parametrize("password", ["wr0ng-password", None])
def test_a_password_that_is_refused_is_told_and_shown_nowhere(server, password):
    kind, text = told(server.url("postgres", user="lena", password=password))
    assert kind is UsageError
    assert "PGPASSWORD" in text
    assert "wr0ng" not in text


def test_a_password_is_taken_from_the_environment(server, postgres_store, monkeypatch, url):
    server.run("GRANT CREATE ON DATABASE " + database_of(url) + " TO lena")
    monkeypatch.setenv("PGPASSWORD", server.password)
    store = postgres_store(server.url(database_of(url), user="lena"))
    assert store.add(SAMPLE[:3]) == 3
    store.close()


def test_a_password_may_stand_in_the_address(server, postgres_store, url):
    server.run("GRANT CREATE ON DATABASE " + database_of(url) + " TO lena")
    store = postgres_store(server.url(database_of(url), user="lena", password=server.password))
    assert store.add(SAMPLE[:3]) == 3
    store.close()


def test_a_database_that_is_not_there_is_told(server):
    kind, text = told(server.url("nothing_here"))
    assert kind is UsageError
    assert "createdb nothing_here" in text


def test_a_user_without_rights_is_told(server, url):
    kind, text = told(server.url(database_of(url), user="lena", password=server.password))
    assert kind is UsageError
    assert "GRANT CREATE ON DATABASE" in text
    assert server.password not in text


def test_whoever_may_only_read_can_ask_and_not_write(server, postgres_store, store, url):
    store.add(SAMPLE)
    server.run(f"GRANT USAGE ON SCHEMA {SCHEMA} TO lena", url)
    server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO lena", url)
    reader = postgres_store(server.url(database_of(url), user="lena", password=server.password))
    assert reader.find(SAMPLE[5].id) == SAMPLE[5]
    assert counted(reader) == naive(SAMPLE)
    with pytest.raises(UsageError, match=SCHEMA):
        reader.add(list(records(610))[600:])
    reader.close()


def test_a_server_that_is_read_only_is_told(server, store, url):
    server.run(f"ALTER DATABASE {database_of(url)} SET default_transaction_read_only = on")
    from callpact.audit.store.postgres import PostgresStore

    late = PostgresStore(url)
    with pytest.raises(UsageError, match="read-only"):
        late.add(SAMPLE)
    assert late.log(Filter()) == []
    late.close()


def test_without_the_driver_the_way_to_install_it_is_told():
    code = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from callpact.audit.log import open_store\n"
        "open_store('postgresql://postgres@127.0.0.1:1/log')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "UsageError" in run.stderr
    assert "pip install 'callpact[postgres]'" in run.stderr


def test_a_log_locked_by_another_process_is_told_and_nothing_is_lost(postgres_store, store, url):
    other = postgres_store(url)
    store._run(store._connection.execute("SET lock_timeout = '50ms'"))
    other._run(other._connection.execute(f"BEGIN; SELECT pg_advisory_xact_lock({LOCK})"))
    with pytest.raises(UsageError, match="locked"):
        store.add(SAMPLE)
    assert store.rates(Filter(), "tool") == []
    other.close()
    assert store.add(SAMPLE) == len(SAMPLE)
    assert counted(store) == naive(SAMPLE)


def test_a_closed_store_says_so(store):
    store.close()
    store.close()
    with pytest.raises(UsageError, match="closed"):
        store.add(SAMPLE)
    with pytest.raises(UsageError, match="closed"):
        store.log(Filter())


def test_a_record_that_cannot_be_kept_keeps_nothing_of_its_batch(store):
    broken = msgspec.structs.replace(SAMPLE[5], at=1 << 70)
    with pytest.raises(OverflowError):
        store.add([*SAMPLE[:5], broken])
    assert store.rates(Filter(), "tool") == []
    assert store.add(SAMPLE) == len(SAMPLE)
    assert counted(store) == naive(SAMPLE)


def test_records_and_how_far_their_journal_is_read_are_kept_together(postgres_store, url):
    store, other = postgres_store(url, "here"), postgres_store(url, "there")
    assert store.add(SAMPLE[:10], Moved({}, {"1.jsonl": 500})) == 10
    assert (store.taken(), other.taken()) == ({"1.jsonl": 500}, {})
    with pytest.raises(Overtaken):
        store.add(SAMPLE[10:20], Moved({}, {"1.jsonl": 900}))
    assert store.add(SAMPLE[10:12], Moved({"1.jsonl": 500}, {"1.jsonl": 600})) == 2
    assert store.add([], Moved({"1.jsonl": 600}, {})) == 0
    assert store.taken() == {}
    assert len(store.log(Filter())) == 12
    store.close()
    other.close()
