"""What all tests share: the profiles of hypothesis, and that no skip passes unseen in CI.

A test ties itself to a rule of a seed with
`@pytest.mark.requirement("id")`; `contract/test_requirements.py` checks both directions.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

if "CALLPACT_TEST_CACHE" not in os.environ:  # The first process of a run; workers inherit it.
    os.environ["CALLPACT_TEST_CACHE"] = _folder = tempfile.mkdtemp(prefix="callpact-tests-")
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)
os.environ["XDG_CACHE_HOME"] = os.environ["CALLPACT_TEST_CACHE"]
# Each worker keeps its own records: nobody waits for another's store.
_worker = os.environ.get("PYTEST_XDIST_WORKER", "")
os.environ["XDG_DATA_HOME"] = f"{os.environ['CALLPACT_TEST_CACHE']}/data{_worker}"

_QUIET = [HealthCheck.too_slow]

settings.register_profile("dev", max_examples=60, deadline=None, suppress_health_check=_QUIET)
settings.register_profile(
    "ci", max_examples=150, deadline=None, derandomize=True, suppress_health_check=_QUIET
)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "dev")


@pytest.fixture(scope="module", params=["direct", "sdk"])
def way(request):
    """The way of every call (`support/ways.py`); processes inherit it."""
    os.environ["CALLPACT_TEST_WAY"] = request.param
    yield request.param
    del os.environ["CALLPACT_TEST_WAY"]


def pytest_terminal_summary(terminalreporter):
    """In CI a skipped test is a failed one: what was not tried has not passed."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped and os.environ.get("CI") == "true":
        terminalreporter.write_line(f"{len(skipped)} skipped in CI, which counts as failed")
        terminalreporter._session.exitstatus = 1
