"""What is particular to the PostgreSQL store: its schema, its versions, and what goes wrong."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import msgspec
import pytest
from generated import BEGIN, DAY, counted, naive, naive_rates, records

from callpact.audit.record import Note, Record
from callpact.audit.store import Filter, Store
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


def _migrated(url, steps):
    """Bring a database so far; gives its version."""
    import asyncpg

    from callpact.audit import postgres_migrations as migrations

    async def go():
        connection = await asyncpg.connect(url, server_settings={"search_path": SCHEMA})
        try:
            await migrations.migrate(connection, "the log", steps)
            return await migrations.version_of(connection)
        finally:
            await connection.close()

    return asyncio.run(go())


def _shape(server, url):
    sql = (
        "SELECT table_name, column_name, data_type FROM information_schema.columns "
        f"WHERE table_schema = '{SCHEMA}' UNION ALL "
        f"SELECT tablename, indexdef, '' FROM pg_indexes WHERE schemaname = '{SCHEMA}'"
    )
    return {tuple(row) for row in server.run(sql, url)}


def test_a_database_of_every_earlier_version_is_brought_to_the_latest(server, postgres_store, url):
    from callpact.audit import postgres_migrations as migrations

    postgres_store(url).close()
    for version in range(len(migrations.STEPS) + 1):
        old = server.new_database()
        assert _migrated(old, migrations.STEPS[:version]) == (version or None)
        store = postgres_store(old)
        assert _shape(server, old) == _shape(server, url)
        assert store.add(SAMPLE) == len(SAMPLE)
        assert counted(store) == naive(SAMPLE)
        store.close()


def test_days_of_version_2_get_the_index_by_time(server, postgres_store, url):
    from callpact.audit import postgres_migrations as migrations

    assert _migrated(url, migrations.STEPS[:2]) == 2
    server.run(
        f"SET search_path = {SCHEMA}; CREATE TABLE calls_19700101 PARTITION OF calls "
        "FOR VALUES FROM (0) TO (86400000)",
        url,
    )
    store = postgres_store(url)
    store.add([*SAMPLE, Record(id="old", at=5, ms=1.0, tool="a.b")])
    days = len({record.at // DAY for record in SAMPLE}) + 1
    found = (
        f"SELECT count(*) FROM pg_indexes WHERE schemaname = '{SCHEMA}' "
        "AND tablename LIKE 'calls_%' AND indexdef LIKE '%(cell, at, caller)'"
    )
    assert server.run(found, url) == [[str(days)]]
    store.close()


def test_all_that_a_database_of_version_1_says_of_calls_is_still_told(
    server, postgres_store, url, caplog
):
    from callpact.audit import postgres_migrations as migrations

    assert _migrated(url, migrations.STEPS[:1]) == 1
    server.run(
        f"SET search_path = {SCHEMA}; INSERT INTO callers VALUES (DEFAULT, 'agent-1'); "
        "INSERT INTO cells VALUES (DEFAULT, 1, 'it', 'a.b', 'a', 'query', '1', 'c', 'warn', 'http', "
        "'http', 'input', 'timeout', 'timeout::'); "
        "INSERT INTO meta VALUES ('rolled_up', 3); "
        "INSERT INTO rollups (unit, caller, start, cell, calls, failed, rejected, warned, first, "
        "last, histogram) SELECT unit, caller, 0, cell, 3, 3, 3, 0, 5, 7, "
        r"'\x090003' FROM (VALUES (0, 0, 0), (4, 0, 0), (1, 0, 1), (5, 0, 1), (7, 1, 1)) "
        "AS t (unit, caller, cell); "
        "CREATE TABLE calls_19700101 (LIKE calls INCLUDING ALL); "
        "ALTER TABLE calls ATTACH PARTITION calls_19700101 FOR VALUES FROM (0) TO (86400000); "
        "INSERT INTO calls VALUES "
        "(1, 5, 2, NULL, NULL, 3, 1, 1, 404, 9, 12, 'tone', "
        r"'\x751f0c9a2e77b14c3d8e5f123456789abc', '/a', E'a \x01a \"word\"', "
        """'[[{"code":"type","path":"/a"}],[],[]]', '{"caller":null}'), """
        "(2, 6, 2, NULL, NULL, NULL, 1, 1, NULL, 9, 0, 'ttwo', 'tone', NULL, NULL, NULL, NULL), "
        "(3, 7, 2, NULL, NULL, NULL, 1, 1, NULL, 9, 0, 'tthree', NULL, NULL, NULL, NULL, NULL)",
        url,
    )
    store = postgres_store(url)
    assert "is brought from version 1 to" in caplog.text
    common = Record("three", 7, 2, "a.b", "query", "1", "c", "warn", "input", "timeout")
    third = msgspec.structs.replace(
        common, key="timeout::", source="http", caller="agent-1", via="http"
    )
    second = msgspec.structs.replace(third, id="two", at=6, parent="one")
    first = msgspec.structs.replace(
        third,
        id="one",
        at=5,
        parent="1f0c9a2e-77b1-4c3d-8e5f-123456789abc",
        path="/a",
        message='a \0 "word"',
        count=3,
        status=404,
        issues=(Note("type", "/a"),),
        caller=None,
        tool_error=True,
    )
    assert store.log(Filter()) == [third, second, first]
    assert counted(store) == {"a.b": 3}
    (rate,) = store.rates(Filter(until=6), "key")  # From the record itself.
    assert (rate.calls, rate.failed, rate.rejected, rate.warned) == (1, 1, 1, 0)
    # What facets tell since is told of calls from before.
    for where, by in (
        (Filter(version="1"), "tool"),
        (Filter(version="1", since=0, until=3_600_000), "tool"),
        (Filter(gate="input"), "via"),
        (Filter(caller="agent-1", via="http", gate="input"), "version"),
    ):
        (rate,) = store.rates(where, by)
        assert (rate.calls, rate.failed, rate.p50) == (3, 3, pytest.approx(0.00178, rel=0.01))
    store.close()


def test_hours_of_calls_of_version_3_are_known_when_their_records_are_gone(
    server, postgres_store, url
):
    store = postgres_store(url)
    store.add(SAMPLE)
    store.retention()
    store.close()
    server.run(
        f"SET search_path = {SCHEMA}; ALTER TABLE rollups DROP COLUMN hours; "
        "UPDATE meta SET value = 3 WHERE name = 'version'",
        url,
    )
    store = postgres_store(url)
    store.retention(older_than=BEGIN + 9 * DAY)
    assert store.log(Filter()) == []
    for where in (Filter(tool="shop.*", caller="agent-*"), Filter(outcome="ok", caller="*-*")):
        told = {
            rate.group: (rate.calls, rate.failed, rate.rejected, rate.warned)
            for rate in store.rates(where, "hour")
        }
        expected = naive_rates(SAMPLE, where, "hour")
        assert told == {group: counts[:4] for group, counts in expected.items()}
    store.close()


def test_steps_are_run_once_each_and_one_that_fails_leaves_the_version_before_it(server, url):
    steps = [
        ["CREATE TABLE ran (step int)", "INSERT INTO ran VALUES (1)"],
        ["INSERT INTO ran VALUES (2)"],
        ["INSERT INTO ran VALUES (3)", "CREATE TABLE half (a int)", "SELECT 1 / 0"],
    ]
    assert _migrated(url, steps[:1]) == 1
    assert _migrated(url, steps[:2]) == 2
    assert _migrated(url, steps[:2]) == 2
    with pytest.raises(Exception, match="division by zero"):
        _migrated(url, steps)
    assert server.tables(url) == {"meta", "ran"}
    assert server.run(f"SELECT step FROM {SCHEMA}.ran ORDER BY 1", url) == [
        ["1"],
        ["2"],
    ]


def test_a_log_of_a_later_version_is_refused(server, postgres_store, url):
    postgres_store(url).close()
    server.run(f"UPDATE {SCHEMA}.meta SET value = 999 WHERE name = 'version'", url)
    with pytest.raises(InvalidConfig, match="later") as refused:
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
    from callpact.audit.postgres import PostgresStore

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
    from callpact.audit.postgres import PostgresStore

    late = PostgresStore(url)
    with pytest.raises(UsageError, match="read-only"):
        late.add(SAMPLE)
    assert late.log(Filter()) == []
    late.close()


def test_without_the_driver_the_way_to_install_it_is_told():
    code = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from callpact.audit.auditing import open_store\n"
        "open_store('postgresql://postgres@127.0.0.1:1/log')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "UsageError" in run.stderr
    assert "pip install 'callpact[postgres]'" in run.stderr


def test_a_log_locked_by_another_process_is_told_and_nothing_is_lost(postgres_store, store, url):
    other = postgres_store(url)
    store._engine.change("SET lock_timeout = '50ms'")
    with other._engine.writing(), pytest.raises(UsageError, match="locked"):
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
