"""The public names of `callpact.audit`."""

import subprocess
import sys

from callpact import audit


def test_every_public_name_is_there_and_in_order():
    assert audit.__all__ == sorted(audit.__all__)
    assert dir(audit) == audit.__all__
    assert set(audit._LAZY) == set(audit.__all__)
    for name in audit.__all__:
        assert getattr(audit, name) is not None


def test_importing_it_loads_no_engine_and_no_analysis():
    code = (
        "import sys, callpact.audit, callpact.audit.log\n"
        "heavy = {'duckdb', 'asyncpg', 'callpact.audit.analysis.schema_edits', 'callpact.audit.store.parquet'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
