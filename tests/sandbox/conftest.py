"""What the tests of hooks share: one compiled guest, and engines with small limits."""

from __future__ import annotations

import pytest

from callpact.sandbox import HookLimits
from callpact.sandbox.engine import Engine


@pytest.fixture(scope="session")
def hooks_cache(tmp_path_factory):
    """A directory with the compiled guest; all workers of a run use the same."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "popen-" in base.name else base) / "hooks-cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def engine(hooks_cache):
    """An engine whose limits are reached soon."""
    limits = HookLimits(seconds=0.3, load_seconds=0.3, memory_bytes=32 << 20)
    engine = Engine(hooks_cache, limits)
    yield engine
    assert engine.machines.lent == 0
    engine.close()
