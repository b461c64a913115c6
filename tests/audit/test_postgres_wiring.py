"""How a person names a PostgreSQL server for the audit log, and that no password shows."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from callpact.audit import place_of
from callpact.audit.store.postgres_address import Address
from callpact.config_file import read_config
from callpact.errors import InvalidConfig


@pytest.mark.parametrize(
    "address", ["postgresql://lena:s3cret@host:port/log", "postgresql://[::1/log?password=s3cret"]
)
def test_an_address_that_cannot_be_read_is_told_and_not_shown(address):
    with pytest.raises(InvalidConfig, match="postgresql://user@host/database") as refused:
        Address(address)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://lena:s3cr%2Ft@db.example:6543/log",
        "postgres://lena@db.example:6543/log?password=s3cr/t&sslmode=require",
        "postgresql:///log?host=db.example&port=6543&user=lena&password=s3cr%2Ft",
    ],
)
def test_an_address_is_shown_without_its_password(address):
    where = Address(address)
    assert str(where) == "postgresql://lena@db.example:6543/log"
    assert "s3cr" not in repr(where) + str(place_of(address)) + repr(place_of(address))
    assert "s3cr" not in where.hide(f"invalid: {address} or s3cr/t or s3cr%2Ft")


# The configuration and the command line


@pytest.mark.parametrize(
    "text",
    [
        'audit = "postgresql://lena@db.example/log"',
        '[audit]\nstore = "postgresql://lena@db.example/log"',
    ],
)
def test_an_address_may_stand_for_the_table_or_within_it(tmp_path, text):
    path = tmp_path / "callpact.toml"
    path.write_text(text, "utf-8")
    audit = read_config(path).audit
    assert (audit.store, audit.enabled, audit.keep_days) == (
        "postgresql://lena@db.example/log",
        True,
        90,
    )


@pytest.mark.parametrize("text", ['audit = "{}"', '[audit]\nstore = "{}"'])
@pytest.mark.parametrize("wrong", ["mysql://lena:s3cret-word@db/log", "s3cret-word"])
def test_another_address_is_refused_and_not_shown(tmp_path, text, wrong):
    path = tmp_path / "callpact.toml"
    path.write_text(text.format(wrong), "utf-8")
    with pytest.raises(InvalidConfig, match=r"audit.*postgresql://user@host/database") as refused:
        read_config(path)
    assert "s3cret" not in str(refused.value)


SHOP = """
from callpact import tool

@tool
def buy(item: str) -> str:
    return f"one {item}"
"""


def ask(*words):
    run = subprocess.run(
        [sys.executable, "-m", "callpact", *words],
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=60,
    )
    return run.returncode, run.stdout, run.stderr


@pytest.mark.parametrize("is_configured", [True, False])
def test_calls_of_the_command_line_are_on_record_in_the_server(
    url, tmp_path, monkeypatch, is_configured
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    head = f'audit = "{url}"\n' if is_configured else ""
    sources = '[sources.shop]\nref = "python:shop.py"\n'
    (tmp_path / "callpact.toml").write_text(head + sources, "utf-8")
    where = [] if is_configured else ["--audit", url]
    for item in ("tea", "rice"):
        code, _, said = ask("call", "shop.buy", f"item={item}", *where)
        assert code == 0, said
    code, told, said = ask("audit", "log", "--json", *where)
    assert code == 0, said
    assert [json.loads(line)["tool"] for line in told.splitlines()] == ["shop.buy"] * 2
    assert not list((tmp_path / "data").rglob("*.parquet"))


def test_the_command_line_tells_what_is_wrong_with_a_server(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    address = "postgresql://lena:s3cret-word@127.0.0.1:1/log"
    code, told, said = ask("audit", "log", "--audit", address)
    assert code == 2
    assert "cannot be reached" in said
    assert "s3cret" not in told + said
