"""The store of the audit log in PostgreSQL: several machines may share one, and ask it from anywhere.

It answers as `sqlite.py` does, from the same tables; records are partitioned by day.
"""

from __future__ import annotations

from callpact.audit.postgres_file import PostgresFile
from callpact.audit.sql_store import SqlStore


class PostgresStore(SqlStore):
    """Keeps records in a PostgreSQL database, in a schema that is made if it is not there.

    Raises:
        InvalidConfig: if the address cannot be used, or the log is of a later callpact.
        UsageError: if it cannot be used: out of reach, no rights, locked. All methods raise it; what
            was to be written then is not. A connection that was lost is opened again.
    """

    def __init__(self, address: str) -> None:
        super().__init__(PostgresFile(address))
