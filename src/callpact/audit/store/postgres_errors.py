"""What goes wrong with a PostgreSQL server, in words: what was tried, why not, what to do."""

from __future__ import annotations

from asyncpg import exceptions as pg  # pyright: ignore[reportMissingTypeStubs]

from callpact.audit.store.postgres_address import Address
from callpact.audit.store.postgres_tables import SCHEMA
from callpact.errors import CallpactError, InvalidConfig, UsageError

ANSWER_SECONDS = 60.0
"""How long a PostgreSQL server may take for one statement."""
BUSY_SECONDS = 10.0
"""How long a PostgreSQL store waits for another process that writes."""

ERRORS = (pg.PostgresError, pg.InterfaceError, pg.InternalClientError, OSError)
"""What the driver raises; a time that is up is an `OSError`."""


def explained(error: Exception, address: Address) -> CallpactError:
    """An error of the driver as ours; the password shows nowhere."""
    said = address.hide(str(error)).strip() or type(error).__name__
    match error:
        case pg.ClientConfigurationError():
            return InvalidConfig(f"the address of the audit log '{address}' cannot be used: {said}")
        case pg.InvalidPasswordError():
            return UsageError(
                f"the audit log '{address}' refuses the password ({said}); it is taken from the "
                "address, else from the variable PGPASSWORD, else from the file ~/.pgpass"
            )
        case pg.InvalidAuthorizationSpecificationError():
            return UsageError(
                f"the audit log '{address}' lets this user not in ({said}); name another one in the "
                "address, or let it in (`pg_hba.conf`, CREATE ROLE)"
            )
        case pg.InvalidCatalogNameError():
            return UsageError(
                f"there is no database '{address.database}' at '{address}'; make it "
                f"(`createdb {address.database}`), or name another one"
            )
        case pg.InsufficientPrivilegeError():
            return UsageError(
                f"the user of the audit log '{address}' may not do this ({said}); a writer "
                f"must own the schema '{SCHEMA}' or may make it: GRANT CREATE ON DATABASE"
            )
        case pg.CannotConnectNowError() | pg.TooManyConnectionsError():
            return UsageError(f"the audit log '{address}' takes no connection now: {said}")
        case pg.LockNotAvailableError():
            return UsageError(
                f"the audit log '{address}' has been locked by another process for "
                f"{BUSY_SECONDS:g} s; nothing was written"
            )
        case pg.DiskFullError():
            return UsageError(
                f"the audit log '{address}' cannot grow: the disk of the server is full; nothing "
                "was written"
            )
        case pg.ReadOnlySQLTransactionError():
            return UsageError(
                f"the audit log '{address}' cannot be written: the server is read-only (a standby?)"
            )
        case pg.DataError() | ValueError():
            return UsageError(
                f"the audit log '{address}' cannot be used: {said}; nothing was written"
            )
        case (
            pg.PostgresConnectionError()
            | pg.AdminShutdownError()
            | pg.CrashShutdownError()
            | pg.InterfaceError()
            | ConnectionResetError()
            | BrokenPipeError()
        ):
            return UsageError(
                f"the connection to the audit log '{address}' was lost ({said}); it is tried again"
            )
        case TimeoutError():
            return UsageError(f"the audit log '{address}' does not answer in time")
        case OSError():
            return UsageError(
                f"the audit log '{address}' cannot be reached ({said}); does the server run, and is "
                "the address right?"
            )
        case _:
            return UsageError(f"the audit log '{address}' cannot be used: {said}")
