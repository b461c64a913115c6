"""What all tests share: the profiles of hypothesis. A test ties itself to a rule of a seed with
`@pytest.mark.requirement("id")`; `contract/test_requirements.py` checks both directions.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_QUIET = [HealthCheck.too_slow]

settings.register_profile("dev", max_examples=60, deadline=None, suppress_health_check=_QUIET)
settings.register_profile(
    "ci", max_examples=150, deadline=None, derandomize=True, suppress_health_check=_QUIET
)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "dev")
